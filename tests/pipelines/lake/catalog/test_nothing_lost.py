"""Nothing is lost: not to whoever is stopped, taken for dead, restarted, or has another clock.

Two containers are simulated by tables of processes of different names, in which both have the same
number; a process that is suspended gives no sign of life.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

from statelake.pipelines.lake.catalog import deletions, processes
from statelake.pipelines.lake.catalog.attempts import Attempt, Heartbeat
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.claims import Claims
from statelake.pipelines.lake.catalog.dropping import clean_lake, drop_snapshots
from statelake.pipelines.lake.catalog.holds import hold_snapshot
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.editing import SnapshotEdit, edit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.erase import audit_records as audit_records_module
from statelake.pipelines.lake.erase import erasing
from statelake.pipelines.lake.erase.audit_records import audit_records, broken_record
from statelake.pipelines.lake.erase.erasing import Erasure, erase
from statelake.pipelines.lake.erase.requests import ErasureRequest
from statelake.pipelines.lake.ingest import importing
from statelake.pipelines.lake.ingest.joined_files import JoinedFile
from statelake.pipelines.lake.tables import file_spans as units
from statelake.pipelines.lake.tables.delta_commit import DeltaCommit
from statelake.pipelines.lake.tables.names import (
    ERASURE_RECORDS,
    SNAPSHOTS,
    commits_table,
)
from statelake.pipelines.lake.tables.parquet_bounds import BoundedWriter
from statelake.pipelines.lake.tables.tables import StateTable
from statelake.pipelines.runtime.commit_measures import CommitReports
from statelake.state_core.errors import (
    ConflictError,
    DamagedLakeError,
    HeldError,
    NotALakeError,
    StateError,
)
from statelake.state_core.files.held_directories import LOG_PREFIX
from tests.support.forged_lakes import NAME, TOKEN, USUAL_CLAIMS, Scene, make_scene
from tests.support.lakes import (
    LOCAL,
    Contents,
    assert_whole,
    entries,
    exported,
    import_as,
    kept_files,
)
from tests.support.steps import EndError, Step, as_process, die_as_gone, do_at, end, stop

pytestmark = pytest.mark.thinned(4)

ERASED = "key-1"
ASKED = ErasureRequest("gdpr-4711", [ERASED], carried="keep")
PREVIOUS: Step = (importing._Import, "_previous", "after", 1)
BEGUN: Step = (importing._Import, "_import_keyed", "before", 1)
JOINING: Step = (JoinedFile, "write", "before", 1)
ONE_VERSION: Step = (StateTable, "replace_files", "after", 1)
LAST: Step = (Attempt, "commit", "before", 1)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The scene that each test has a copy of."""
    return make_scene(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def scene(prepared: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A copy: job `orders` with two snapshots, and another job; nobody else's temporary files."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    for name in ("lake", "good", "bad", "next"):
        shutil.copytree(prepared.root / name, tmp_path / name)
    return Scene(tmp_path)


def ids(lake: Catalog) -> list[str]:
    """The snapshots of the job."""
    return [summary.snapshot_id for summary in lake.summaries("orders")]


def contents(scene: Scene, snapshot_id: str) -> Contents:
    """What a snapshot exports to."""
    to = scene.root / "exports" / f"{snapshot_id}-{time.monotonic_ns()}"
    return exported(scene.lake, snapshot_id, to)


def assert_erased(scene: Scene) -> None:
    """Assert that no snapshot of before has the key, and that all else is there."""
    for name in ("good", "bad"):
        before, after = entries(scene.root / name), contents(scene, name)
        assert after == {
            state: [row for row in rows if ERASED.encode() not in row[1]]
            for state, rows in before.items()
        }
        assert after != before


def in_container(patch: pytest.MonkeyPatch, name: str) -> None:
    """Be the process of this number in a container."""
    as_process(patch, os.getpid(), name)


@pytest.fixture
def suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is a container whose process gives no sign of life; others wait for one a moment."""
    monkeypatch.setenv("STATELAKE_LEASE", "0.2")
    monkeypatch.setattr(Heartbeat, "_beat", lambda _: None)
    in_container(monkeypatch, "this container")


def elsewhere(work: Callable[[], object]) -> Callable[[], None]:
    """Something that is done in another container, whose process has the same number."""

    def do() -> None:
        with pytest.MonkeyPatch.context() as patch:
            in_container(patch, "another container")
            work()

    return do


class TestAnImportBesideAnErasure:
    """Files of the previous snapshot that it would have kept are gone then."""

    @pytest.mark.parametrize("step", [PREVIOUS, (Attempt, "__enter__", "before", 1)])
    @pytest.mark.full
    def test_an_import_that_has_not_begun(
        self, step: Step, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It looks again at what there is now."""
        do_at(monkeypatch, step, lambda: erase(scene.lake, ASKED, ["orders"]))
        import_as(scene.lake, scene.root / "bad", "again")
        assert contents(scene, "again") == entries(scene.root / "bad")
        assert_erased(scene)
        assert_whole(scene.lake)

    @pytest.mark.parametrize("step", [BEGUN, ONE_VERSION, LAST])
    def test_an_import_that_has_begun(
        self, step: Step, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The erasure is refused, with nothing changed, and succeeds behind it."""

        def refused() -> None:
            with pytest.raises(ConflictError, match="being written to, for snapshot 'again'"):
                erase(scene.lake, ASKED, ["orders"])

        do_at(monkeypatch, step, refused)
        import_as(scene.lake, scene.root / "bad", "again")
        assert contents(scene, "again") == entries(scene.root / "bad")
        assert_whole(scene.lake)
        erase(scene.lake, ASKED, ["orders"])
        assert_erased(scene)
        assert contents(scene, "again") == contents(scene, "bad")
        assert_whole(scene.lake)


class TestTwoContainersWithOneErasure:
    """Their processes have the same number; neither sees the other."""

    @pytest.mark.parametrize(
        "step",
        ["take", "find", "write_files", "note_files", "switch", "rewrite_logs", "delete_old"],
    )
    @pytest.mark.usefixtures("suspended")
    def test_one_that_is_suspended_is_taken_over(
        self, step: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It changes nothing when it goes on, and is told."""
        other = elsewhere(lambda: erase(scene.lake, ASKED, ["orders"]))
        do_at(monkeypatch, (Erasure, step, "before", 1), other)
        with pytest.raises(StateError):
            erase(scene.lake, ASKED, ["orders"])
        assert_erased(scene)
        assert [record.request for record in audit_records(scene.lake)] == ["gdpr-4711"]
        assert broken_record(audit_records(scene.lake)) is None
        import_as(scene.lake, scene.source, "next")
        drop_snapshots(scene.lake, "orders", snapshot_ids=[])
        assert_whole(scene.lake)

    @pytest.mark.parametrize(
        "step",
        [
            (Erasure, "erase_task_state", "before", 1),
            (Erasure, "record", "before", 1),
            (erasing, "add_record", "before", 1),
            (audit_records_module, "audit_records", "after", 1),
            (DeltaCommit, "add_rows", "before", 3),
            (erasing, "add_record", "after", 1),
        ],
        ids=lambda step: f"{step[2]}-{step[1]}",
    )
    @pytest.mark.usefixtures("suspended")
    @pytest.mark.full
    def test_one_record_is_written(
        self, step: Step, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However late the one goes on that the other has taken over from."""
        other = elsewhere(lambda: erase(scene.lake, ASKED, ["orders"]))
        do_at(monkeypatch, step, other)
        with suppress(ConflictError):
            erase(scene.lake, ASKED, ["orders"])
        assert_erased(scene)
        assert [record.request for record in audit_records(scene.lake)] == ["gdpr-4711"]
        assert broken_record(audit_records(scene.lake)) is None
        assert scene.lake.version().claims == Claims()
        assert_whole(scene.lake)

    @pytest.mark.parametrize("step", ["write_files", "switch", "rewrite_logs"])
    def test_one_that_gives_signs_of_life_goes_on(
        self, step: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The other one waits, sees them, and is refused."""
        monkeypatch.setenv("STATELAKE_LEASE", "1")
        in_container(monkeypatch, "this container")

        def refused() -> None:
            with pytest.raises(ConflictError, match="erasure 'gdpr-4711'"):
                erase(scene.lake, ASKED, ["orders"])

        do_at(monkeypatch, (Erasure, step, "before", 1), elsewhere(refused))
        erase(scene.lake, ASKED, ["orders"])
        assert_erased(scene)
        assert_whole(scene.lake)


@pytest.mark.usefixtures("suspended")
class TestTakenForDead:
    """However long a process was suspended: what it builds on may be gone when it goes on."""

    @pytest.mark.parametrize("step", [BEGUN, JOINING, ONE_VERSION, LAST])
    @pytest.mark.full
    def test_an_import_begins_again(
        self, step: Step, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Against what is there then."""
        monkeypatch.setattr(units, "SLICE_BYTES", 1)
        drop = elsewhere(lambda: drop_snapshots(scene.lake, "orders", snapshot_ids=["good", "bad"]))
        do_at(monkeypatch, step, drop)
        import_as(scene.lake, scene.root / "bad", "again")
        assert ids(scene.lake) == ["again"]
        assert contents(scene, "again") == entries(scene.root / "bad")
        assert_whole(scene.lake)

    @pytest.mark.parametrize("step", [(Attempt, "__enter__", "after", 1), LAST])
    @pytest.mark.full
    def test_an_edit_is_told(
        self, step: Step, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It has changed nothing, and leaves nothing behind."""
        drop = elsewhere(lambda: drop_snapshots(scene.lake, "orders", snapshot_ids=["bad"]))
        do_at(monkeypatch, step, drop)
        edit = SnapshotEdit(drop_state=["counter/total"])
        with pytest.raises(ConflictError, match=r"dropped, or erased from|taken for dead"):
            edit_snapshot(ChildSnapshot(scene.lake, "orders", "bad", "edited", engine=LOCAL), edit)
        assert ids(scene.lake) == ["good"]
        assert_whole(scene.lake)

    @pytest.mark.parametrize("step", [BEGUN, ONE_VERSION, LAST])
    def test_an_erasure_comes_between(
        self, step: Step, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The import keeps no file that it has exchanged."""
        do_at(monkeypatch, step, elsewhere(lambda: erase(scene.lake, ASKED, ["orders"])))
        import_as(scene.lake, scene.root / "bad", "again")
        assert contents(scene, "again") == entries(scene.root / "bad")
        assert_erased(scene)
        assert_whole(scene.lake)


class TestADropBesideAnErasure:
    """A table shall show a snapshot whose files the erasure has exchanged."""

    @pytest.mark.parametrize("nth", [1, 2, 3])
    @pytest.mark.full
    def test_the_table_shows_what_the_erasure_has_left(
        self, nth: int, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The drop looks at the snapshots again."""
        step = (deletions, "_restore_newest_content", "before", nth)
        do_at(monkeypatch, step, lambda: erase(scene.lake, ASKED, ["orders"]))
        drop_snapshots(scene.lake, "orders", snapshot_ids=["bad"])
        assert ids(scene.lake) == ["good"]
        assert contents(scene, "good") == {
            state: [row for row in rows if ERASED.encode() not in row[1]]
            for state, rows in entries(scene.root / "good").items()
        }
        assert_whole(scene.lake)


@pytest.mark.usefixtures("suspended")
class TestACommitBehindADeadOne:
    """The tables' newest versions are those of an attempt that nobody ends."""

    @pytest.mark.parametrize("step", [ONE_VERSION, LAST])
    @pytest.mark.full
    def test_it_takes_back_what_that_one_made(self, step: Step, scene: Scene) -> None:
        """What a user has changed is committed."""
        scene.lake.table("orders/keyed/counter/profile").require().delete()

        def commit() -> None:
            commit_snapshot(ChildSnapshot(scene.lake, "orders", "bad", "edited", engine=LOCAL))

        elsewhere(lambda: end(commit, step, "death"))()
        commit()
        assert {state: rows for state, rows in contents(scene, "edited").items() if rows} == {
            state: rows
            for state, rows in entries(scene.root / "bad").items()
            if rows and "profile" not in state
        }
        clean_lake(scene.lake, dry_run=False)
        assert_whole(scene.lake)


@pytest.mark.parametrize(
    "step", [(Catalog, "transact", "after", 1), (Heartbeat, "__enter__", "before", 1)]
)
def test_an_attempt_that_is_interrupted_as_it_begins_is_taken_back(
    step: Step, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others need not wait until its process has ended."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    do_at(monkeypatch, step, interrupt)
    with pytest.raises(KeyboardInterrupt):
        import_as(scene.lake, scene.source, "next")
    assert scene.lake.version().claims == Claims()
    assert_whole(scene.lake)


def test_clean_removes_what_a_killed_first_import_left(tmp_path: Path) -> None:
    """There is no lake yet: the first entry of its catalog has not got its name."""
    part = tmp_path / "lake" / SNAPSHOTS / "_delta_log" / f"{0:020}.json.0123abcd.part"
    part.parent.mkdir(parents=True)
    part.write_text("{")
    lake = Catalog(tmp_path / "lake")
    assert clean_lake(lake).files == 1
    assert clean_lake(lake, dry_run=False).files == 1
    assert not part.exists()
    with pytest.raises(NotALakeError):
        clean_lake(lake, dry_run=False)


@pytest.mark.full
def test_a_restarted_container_has_the_number_of_the_killed_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the killed one began is taken back at once: nobody waits a lease, or a day."""
    with monkeypatch.context() as patch:
        patch.setattr(processes, "_begun", lambda _: "1")
        patch.setattr(Attempt, "__exit__", lambda attempt, *_: attempt._beats._ended.set())
        do_at(patch, LAST, stop)
        with pytest.raises(EndError):
            import_as(scene.lake, scene.source, "next")
    assert len(scene.lake.version().claims.attempts) == 1
    monkeypatch.setenv("STATELAKE_LEASE", "1000000")
    erase(scene.lake, ASKED, ["orders"])
    assert_erased(scene)
    assert_whole(scene.lake)


@pytest.mark.parametrize("days", [-400, -1, 1, 400])
def test_clocks_say_nothing(days: int, scene: Scene) -> None:
    """What crashed at whatever time of whatever clock is taken back, and refuses nothing."""
    started = time.time() + 86400 * days
    scene.claim(process={**USUAL_CLAIMS["attempt"]["process"], "started": started})
    import_as(scene.lake, scene.source, "next")
    drop_snapshots(scene.lake, "orders", keep=1)
    assert ids(scene.lake) == ["next"]
    assert_whole(scene.lake)


@pytest.mark.full
def test_a_damaged_job_keeps_nobody_from_others(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """What a killed command left there can't be deleted: the other job is dropped from and erased.

    And what is told is what became of that one.
    """
    import_as(scene.lake, scene.source, "next", "clean")
    table = NAME.replace("orders", "clean", 1)
    scene.claim("deletion", job="clean", tokens=["f" * 16], tables=[table])
    entry = scene.path / table / f"_delta_log/{0:020}.json"
    entry.write_text("no entry\n")
    drop_snapshots(scene.lake, "orders", snapshot_ids=["bad"])
    assert "deletions are left to the next writer" in caplog.text
    erase(scene.lake, ASKED, ["orders"])
    assert list(scene.lake.version().claims.deletions) == [TOKEN]
    assert ids(scene.lake) == ["good"]
    with pytest.raises(DamagedLakeError):
        drop_snapshots(scene.lake, "clean", snapshot_ids=[])
    left = scene.path / NAME / "_data" / TOKEN / "0" / "key-groups-00000.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(HALF)
    with pytest.raises(DamagedLakeError):  # having cleaned all but that job
        clean_lake(scene.lake, dry_run=False)
    assert not left.exists()


@pytest.mark.parametrize("job", ["next", "the next job"])
def test_a_job_that_begins_beside_a_clean_keeps_its_files(
    job: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its folder is called, which need not be the job's name."""
    first = lambda: import_as(scene.lake, scene.source, "first", job)  # noqa: E731
    do_at(monkeypatch, (Catalog, "jobs", "after", 1), first)
    clean_lake(scene.lake, dry_run=False)
    to = scene.root / "exports" / "first"
    assert exported(scene.lake, "first", to, job) == entries(scene.source)


@pytest.mark.parametrize("job", ["next", "the next job"])
def test_a_job_whose_rows_can_not_be_read_keeps_its_files(job: str, scene: Scene) -> None:
    """They are as they were when the catalog is restored from a backup."""
    import_as(scene.lake, scene.source, "first", job)
    (path,) = (file.path for file in scene.lake.version().files if file.job == job)
    row = scene.path / SNAPSHOTS / unquote(path)
    whole = row.read_bytes()
    row.write_bytes(HALF)
    with pytest.raises(DamagedLakeError):
        clean_lake(scene.lake, dry_run=False)
    row.write_bytes(whole)
    to = scene.root / "exports" / "first"
    assert exported(scene.lake, "first", to, job) == entries(scene.source)


@pytest.mark.full
def test_an_erasure_from_all_jobs_leaves_out_none_whose_rows_can_not_be_read(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """It is refused, as the key would come back with the catalog's backup; the jobs are open."""
    import_as(scene.lake, scene.source, "first", "next")
    (path,) = (file.path for file in scene.lake.version().files if file.job == "next")
    row = scene.path / SNAPSHOTS / unquote(path)
    whole = row.read_bytes()
    row.write_bytes(HALF)
    with pytest.raises(DamagedLakeError):
        erase(scene.lake, ASKED)
    assert audit_records(scene.lake) == []
    assert scene.lake.version().claims == Claims()
    assert "the jobs stay closed" not in caplog.text
    row.write_bytes(whole)
    erase(scene.lake, ASKED)
    to = scene.root / "exports" / "first"
    after = exported(scene.lake, "first", to, "next")
    assert ERASED.encode() not in b"".join(row[1] for rows in after.values() for row in rows)


HALF = b"PAR1 half of a file"


def never_named(scene: Scene, table: str) -> set[str]:
    """The Parquet files of a table of rows that no version of it has ever named."""
    place = scene.path / table
    logs = "".join(path.read_text("utf-8") for path in (place / "_delta_log").glob("*.json"))
    rows = (path for path in place.rglob("*.parquet") if path.parent.name != "_delta_log")
    return {path.name for path in rows if path.name not in logs}


def half(patch: pytest.MonkeyPatch, *, rows: str) -> None:
    """A process that is killed while it writes rows of a table, of which a file is half there."""
    real = BoundedWriter.write_table

    def write(self: BoundedWriter, table: Any, row_group_size: int | None = None) -> None:
        if rows in table.schema.names:
            self._file.write(HALF)
            self._file.flush()
            self.is_open = False  # nothing more is written
            raise EndError
        real(self, table, row_group_size)

    patch.setattr(BoundedWriter, "write_table", write)
    die_as_gone(patch)


@pytest.mark.full
def test_a_half_written_file_of_the_catalog(scene: Scene) -> None:
    """It is no row, and nobody's for good: the next drop takes it away."""
    with pytest.MonkeyPatch.context() as patch:
        half(patch, rows="snapshot_id")
        with pytest.raises(EndError):
            import_as(scene.lake, scene.source, "next")
    assert ids(scene.lake) == ["good", "bad"]
    assert len(never_named(scene, SNAPSHOTS)) == 1
    import_as(scene.lake, scene.source, "next")
    drop_snapshots(scene.lake, "orders", keep=1)
    assert never_named(scene, SNAPSHOTS) == set()
    assert contents(scene, "next") == entries(scene.source)
    assert_whole(scene.lake)


@pytest.mark.full
def test_a_half_written_file_of_the_records_of_erasures(scene: Scene) -> None:
    """The records are read all the same; the same request ends, and a clean takes it away."""
    with pytest.MonkeyPatch.context() as patch:
        half(patch, rows="requested_by")
        with pytest.raises(EndError):
            erase(scene.lake, ASKED, ["orders"])
    assert audit_records(scene.lake) == []
    assert len(never_named(scene, ERASURE_RECORDS)) == 1
    assert erase(scene.lake, ASKED, ["orders"]).resumed
    assert len(audit_records(scene.lake)) == 1
    clean_lake(scene.lake, dry_run=False)
    assert never_named(scene, ERASURE_RECORDS) == set()
    assert_erased(scene)
    assert_whole(scene.lake)


def append_report(lake: Catalog, name: str, run: int) -> None:
    """Add a report of what a run's commit cost."""
    CommitReports(lake.directory, "orders").append({name: {"commits": 1}}, run)


def test_a_half_written_file_of_what_tasks_commit(scene: Scene) -> None:
    """A clean takes it away, and what was committed stays."""
    path = commits_table("orders")
    append_report(scene.lake, "one", 1)
    with pytest.MonkeyPatch.context() as patch:
        half(patch, rows="task")
        with pytest.raises(EndError):
            append_report(scene.lake, "two", 2)
    assert len(never_named(scene, path)) == 1
    assert clean_lake(scene.lake).files == 1
    clean_lake(scene.lake, dry_run=False)
    assert never_named(scene, path) == set()
    append_report(scene.lake, "three", 3)
    files = [scene.path / path / file.path for file in scene.lake.table(path).files()]
    names = [pq.read_table(file).column("task").cast("string").to_pylist() for file in files]
    assert sorted(names) == [["one"], ["three"]]


def test_what_tasks_are_about_to_commit_is_not_swept(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clean between a commit's file and its entry: the commit is worked out again."""
    append_report(scene.lake, "one", 1)
    do_at(
        monkeypatch, (DeltaCommit, "add_rows", "after", 1),
        lambda: clean_lake(scene.lake, dry_run=False),
    )  # fmt: skip
    append_report(scene.lake, "two", 2)
    reported = CommitReports(scene.lake.directory, "orders").read()
    assert [report.task for report in reported] == ["one", "two"]
    assert_whole(scene.lake)


@pytest.mark.full
def test_notes_of_older_versions_are_cleaned_up(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody reads them any more; an erasure that had not ended is told. Others' files stay."""
    notes = scene.path / "_statelake"
    process = {"host": "h", "process": 7, "started": 1_700_000_000.0}
    attempt = {"job": "orders", "snapshot_id": "x", "tables": [], "leans_on": [], **process}
    erasure = {"request": "gdpr-1", "jobs": ["orders"], "token": TOKEN, **process}
    for path, note in (
        (f"attempts/{TOKEN}.json", attempt),
        ("erasures/gdpr-1.json", erasure),
        ("erasures/mine.json", {"process": 7}),
    ):
        (notes / path).parent.mkdir(exist_ok=True)
        (notes / path).write_text(json.dumps(note))
    (notes / "attempts/link.json").symlink_to(scene.path / "snapshots")
    assert clean_lake(scene.lake).files == 2
    assert len(list(notes.glob("*s/*.json"))) == 4
    clean_lake(scene.lake, dry_run=False)
    left = {path.name for folder in ("attempts", "erasures") for path in (notes / folder).iterdir()}
    assert left == {"link.json", "mine.json"}
    assert "erasure 'gdpr-1'" in caplog.text
    assert_whole(scene.lake)


@pytest.mark.full
def test_what_is_about_to_be_named_is_not_swept(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clean between a commit's file and its entry: the commit is worked out again."""
    do_at(
        monkeypatch, (DeltaCommit, "add_rows", "after", 1),
        lambda: clean_lake(scene.lake, dry_run=False),
    )  # fmt: skip
    import_as(scene.lake, scene.source, "next")
    assert contents(scene, "next") == entries(scene.source)
    clean_lake(scene.lake, dry_run=False)
    assert never_named(scene, SNAPSHOTS) == set()
    assert_whole(scene.lake)


class TestAnErasureThatIsRefusedAtItsSwitch:
    """Nothing was changed then, and the job is open."""

    @staticmethod
    def open_as_before(scene: Scene, files: dict[str, str]) -> None:
        """Assert that nothing was changed, and that others may write."""
        assert kept_files(scene.lake) == files
        assert scene.lake.version().claims == Claims()
        import_as(scene.lake, scene.source, "next")
        assert_whole(scene.lake)

    @pytest.mark.full
    def test_a_hold_comes_between(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of a snapshot that has the key."""
        hold = lambda: hold_snapshot(scene.lake, "orders", "good", "case 4711")  # noqa: E731
        do_at(monkeypatch, (Erasure, "switch", "before", 1), hold)
        with pytest.raises(HeldError, match="case 4711"):
            erase(scene.lake, ASKED, ["orders"])
        assert contents(scene, "good") == entries(scene.root / "good")
        drop_snapshots(scene.lake, "orders", snapshot_ids=[])  # takes the row without the hold
        files = kept_files(scene.lake)
        self.open_as_before(scene, files)

    @pytest.mark.full
    def test_the_disk_is_full(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        """No row can be written."""

        def full() -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        files = kept_files(scene.lake)
        with monkeypatch.context() as patch:
            fill = lambda: do_at(patch, (DeltaCommit, "add_rows", "before", 1), full)  # noqa: E731
            do_at(patch, (Erasure, "switch", "before", 1), fill)
            with pytest.raises(StateError):
                erase(scene.lake, ASKED, ["orders"])
        self.open_as_before(scene, files)


def test_a_drop_where_temporary_directories_are_full(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it needs for a while is in memory then, and goes; so it is for whoever reads."""
    failed = []
    make = Path.mkdir

    def full(self: Path, *options: Any, **named: Any) -> None:
        if self.parent == tmp_path and self.name.startswith(LOG_PREFIX):
            failed.append(self)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        make(self, *options, **named)

    import_as(scene.lake, scene.source, "next")
    monkeypatch.setattr(Path, "mkdir", full)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lake = Catalog(scene.lake.location)
    drop_snapshots(lake, "orders", snapshot_ids=["good"])
    assert failed
    assert contents(scene, "next") == entries(scene.source)
    assert_whole(lake)
