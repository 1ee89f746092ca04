"""What runs and tasks keep loses the keys too: changelogs, attempts at runs, and blobs."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.claims import Claims
from statelake.pipelines.lake.catalog.dropping import clean_lake, drop_snapshots
from statelake.pipelines.lake.catalog.processes import this_process
from statelake.pipelines.lake.catalog.run_log import RunLog
from statelake.pipelines.lake.erase.audit_records import audit_records
from statelake.pipelines.lake.erase.auditing import audit_erasure
from statelake.pipelines.lake.erase.erasing import STEPS, Erasure, erase, plan_erasure
from statelake.pipelines.lake.erase.requests import ErasureRequest
from statelake.pipelines.lake.erase.task_state import OLD
from statelake.pipelines.runtime import RunOptions, run_job
from statelake.pipelines.runtime.commits import checkpoint_manager
from statelake.state_core.errors import (
    ConflictError,
    EncodeError,
    NoMatchError,
    NotFoundError,
    UnsafePathError,
)
from statelake.state_core.files.confinement import ConfinedTree
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.runtime.commit import (
    CheckpointId,
    CheckpointV2,
    FileChangelogs,
    FileCheckpointLog,
    SystemStreamPartition,
)
from statelake.state_core.runtime.commit.backends.changelog import Change, Changelog
from statelake.state_core.runtime.commit.records.records import BLOB_STORE_FACTORY
from tests.support.jobs.alert_orders import alerts_module, state_rows
from tests.support.jobs.committed_job import CommittedJob
from tests.support.lakes import import_as
from tests.support.people import ALICE, BESIDE_KEYS, files_with, people_savepoint
from tests.support.steps import do_at

pytestmark = pytest.mark.thinned(2)

KEY = ALICE.encode()
BOB = b"bob-77aa01"
TASK = "Partition 0"
CHANGES = SystemStreamPartition("kafka", "visits-log", 0)
CUSTOMER = 783_633_772_217
alerts = alerts_module()


class DiesError(BaseException):
    """What no code catches: the process is gone."""


def die() -> None:
    """Be gone."""
    raise DiesError


def put(log: Changelog) -> None:
    """Three flushes, of which the last change is hers."""
    for changes in ([(KEY, b"1"), (BOB, b"1")], [(BOB, b"2"), (KEY, None)], [(KEY, b"3")]):
        for key, value in changes:
            log.append(key, value)
        log.flush()
    log.close()


def job_of(root: Path) -> CommittedJob:
    """A job that commits to the blob store and to the changelogs, and is restored from these."""
    log = FileCheckpointLog(Directory(root / "log"))
    return CommittedJob(root, log, keep=3, restore="changelog")


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a snapshot; a task's blob store, and its and others' changelogs."""
    root = tmp_path_factory.mktemp("committed")
    import_as(Catalog(root / "lake"), people_savepoint(root / "day", 0), "day",
              uids=("users", "places"))  # fmt: skip
    job_of(root).run(TASK, [{KEY: b"1", BOB: b"1"}, {KEY: b"2"}, {BOB: b"3"}])
    put(FileChangelogs(root / "changelogs", segment_bytes=1).open(CHANGES))
    return root


@pytest.fixture
def root(committed: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(committed, tmp_path / "copy")
    return tmp_path / "copy"


def asked(root: Path, carried: str = "", request: str = "gdpr-4711") -> ErasureRequest:
    """All of her, and where."""
    return ErasureRequest(
        request, [ALICE], BESIDE_KEYS, carried, changelogs=[str(root / "changelogs")]
    )


def stored(root: Path) -> dict[bytes, bytes]:
    """What the task finds in its store when it starts on another host."""
    shutil.rmtree(root / "disks", ignore_errors=True)
    return job_of(root).run(TASK, [])


def changelog(root: Path) -> Changelog:
    """The changelog of no run, as a writer has it that starts now."""
    return FileChangelogs(root / "changelogs").open(CHANGES)


@pytest.mark.full
def test_changelogs_lose_her_and_tasks_go_on(root: Path) -> None:
    """The last marker restores; offsets stay, and none comes again."""
    assert stored(root) == {KEY: b"2", BOB: b"3"}
    lake = Catalog(root / "lake")
    plan = plan_erasure(lake, asked(root))
    rows = {
        (state.operator, state.state): state.rows
        for state in plan.states
        if state.operator != "users"
    }
    assert rows["changelogs", str(SystemStreamPartition("kafka", "counts-log", 0))] == 2
    assert rows["changelogs", str(CHANGES)] == 3
    erase(lake, asked(root), all_rows=True)
    assert files_with(root / "lake", ALICE) == []
    assert files_with(root / "changelogs", ALICE) == []
    assert stored(root) == {BOB: b"3"}
    log = changelog(root)
    assert list(log.read()) == [Change(1, BOB, b"1"), Change(2, BOB, b"2")]
    assert log.newest() == 4
    log.append(b"new", b"")
    log.flush()
    assert log.newest() == 5
    log.close()
    assert audit_erasure(lake, asked(root), [str(root / "changelogs")]).clean
    with pytest.raises(NoMatchError):
        erase(lake, asked(root, request="again"), all_rows=True)


def test_what_blobs_of_tasks_hold_is_named(root: Path) -> None:
    """Only the task can write its blobs again; a place that is none is refused."""
    request = ErasureRequest("r", [ALICE], blobs=[str(root / "blobs")])
    plan = plan_erasure(Catalog(root / "lake"), request)
    (named,) = [place for place in plan.elsewhere if place.startswith("blobs of ")]
    assert "task=Partition%200/store=counts" in named
    assert "checkpoints drop" in named
    with pytest.raises(NotFoundError, match="no blob store"):
        plan_erasure(
            Catalog(root / "lake"), ErasureRequest("r", [ALICE], blobs=[str(root / "lake")])
        )
    nothing = ErasureRequest("r", [ALICE], changelogs=[str(root / "blobs")])
    with pytest.raises(NotFoundError, match="no changelog"):
        plan_erasure(Catalog(root / "lake"), nothing)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("key", "value"), [(BOB, b"friend of " + KEY), (KEY + b"-smith", None), (b"1700:" + KEY, b"1")]
)
@pytest.mark.full
def test_rows_that_may_be_others_need_a_word(root: Path, key: bytes, value: bytes | None) -> None:
    """Whether rows go that have her in a longer key, or in their value, is to be said."""
    log = changelog(root)
    log.append(key, value)
    log.flush()
    log.close()
    lake = Catalog(root / "lake")
    also = [str(root / "changelogs")]
    with pytest.raises(EncodeError, match=r"changelogs/.*visits-log.*--carried drop"):
        erase(lake, asked(root), all_rows=True)
    erase(lake, asked(root, "keep"), all_rows=True)
    assert len(files_with(root / "changelogs", ALICE)) == 1
    assert not audit_erasure(lake, asked(root), also).clean
    erase(lake, asked(root, "drop", "more"), all_rows=True)
    assert files_with(root / "changelogs", ALICE) == []
    assert audit_erasure(lake, asked(root), also).clean


@pytest.mark.full
def test_tables_of_older_versions_are_named(root: Path) -> None:
    """With the directory to delete, also where nothing else is found; the audit searches them."""
    tables = root / "lake" / "orders" / "stores"
    rows = pa.table({"key": [KEY], "value": [b"1"]})
    write_deltalake(str(tables / "counts"), rows)
    write_deltalake(str(root / "lake" / "other" / "stores" / "counts"), rows)  # no snapshots
    lake = Catalog(root / "lake")
    for request in (asked(root), ErasureRequest("r", [ALICE], snapshots=["day"])):
        named = [place for place in plan_erasure(lake, request).elsewhere if OLD in place]
        assert len(named) == 2
        assert f"delete the directory {tables};" in named[0]
    with pytest.raises(NoMatchError, match=f"not searched: {OLD}.*{tables};"):
        erase(lake, ErasureRequest("r", ["nobody-0815-4711"]))
    erase(lake, asked(root), all_rows=True)
    assert not audit_erasure(lake, asked(root)).clean
    shutil.rmtree(tables)
    shutil.rmtree(root / "lake" / "other")
    assert audit_erasure(lake, asked(root)).clean


@pytest.mark.parametrize("step", STEPS[STEPS.index("switch") : -1])
def test_what_only_tasks_keep_is_erased_and_recorded(root: Path, step: str) -> None:
    """No snapshot has it, and none says that it was erased from; a crash is gone on from."""
    lake, also = Catalog(root / "lake"), [str(root / "changelogs")]
    request = ErasureRequest("r", [BOB.decode()], changelogs=also)
    with pytest.MonkeyPatch.context() as patch:
        do_at(patch, (Erasure, step, "after", 1), die)
        with pytest.raises(DiesError):
            erase(lake, request)
    assert erase(lake, request).resumed
    assert files_with(root / "changelogs", BOB.decode()) == []
    assert audit_records(lake)[-1].request == "r"
    assert lake.snapshot("orders", "day").erased == []
    assert stored(root) == {KEY: b"2"}
    assert audit_erasure(lake, request, also).clean


@pytest.mark.full
def test_what_goes_on_drops_what_was_to_be_dropped(root: Path) -> None:
    """Also if who goes on does not say so again."""
    lake, log = Catalog(root / "lake"), changelog(root)
    log.append(b"longer-" + KEY, b"1")
    log.flush()
    log.close()
    with pytest.MonkeyPatch.context() as patch:
        do_at(patch, (Erasure, "rewrite_logs", "before", 1), die)
        with pytest.raises(DiesError):
            erase(lake, asked(root, "drop"), all_rows=True)
    erase(lake, asked(root), all_rows=True)
    assert files_with(root / "changelogs", ALICE) == []


@pytest.mark.full
def test_changes_for_which_an_erasure_was_begun_are_not_forgotten(root: Path) -> None:
    """Who goes on without their place, or for somebody else, is told; and the latter is erased."""
    lake, also = Catalog(root / "lake"), [str(root / "changelogs")]
    with pytest.MonkeyPatch.context() as patch:
        do_at(patch, (Erasure, "rewrite_logs", "before", 1), die)
        with pytest.raises(DiesError):
            erase(lake, ErasureRequest("r", [BOB.decode()], changelogs=also))
    with pytest.raises(ConflictError, match=r"changelogs: .*another place, too; give the same"):
        erase(lake, ErasureRequest("r", [ALICE]))
    with pytest.raises(
        ConflictError, match=r"changes may be left in the changelog .*another --req"
    ):
        erase(lake, ErasureRequest("r", [ALICE], changelogs=also), all_rows=True)
    assert not plan_erasure(lake, ErasureRequest("r", [ALICE], changelogs=also)).rows
    assert erase(lake, ErasureRequest("r2", [BOB.decode()], changelogs=also)).content["rows"]
    assert files_with(root / "changelogs", BOB.decode()) == []


@pytest.mark.full
def test_a_crash_at_each_file_of_tasks_is_gone_on_from(committed: Path, tmp_path: Path) -> None:
    """Before and behind the last step but two, at files that are written."""
    for name, when in itertools.product(("write", "create"), ("before", "after")):
        for nth in itertools.count(1):
            root = tmp_path / f"{name}-{when}-{nth}"
            shutil.copytree(committed, root)
            lake, patch = Catalog(root / "lake"), pytest.MonkeyPatch()
            real = Erasure.erase_task_state

            def watched(
                self: Erasure, patch: pytest.MonkeyPatch = patch, nth: int = nth,
                real: Any = real, step: tuple[str, str] = (name, when),
            ) -> None:  # fmt: skip
                do_at(patch, (ConfinedTree, *step, nth), die)
                real(self)

            patch.setattr(Erasure, "erase_task_state", watched)
            try:
                erase(lake, asked(root), all_rows=True)
            except DiesError:
                ended = False
            else:
                ended = True
            finally:
                patch.undo()
            if ended:
                assert nth > 1
                break
            assert erase(lake, asked(root), all_rows=True).resumed
            for place in ("lake", "changelogs"):
                assert files_with(root / place, ALICE) == []
            assert stored(root) == {BOB: b"3"}
            log = changelog(root)
            assert [change.offset for change in log.read()] == [1, 2]
            assert log.newest() == 4
            log.close()
            shutil.rmtree(root)


# ---------------------------------------------------------------------------------------- runs


def run(work: Path, part: int, restore_from: str = "lake", **options: Any) -> None:
    """The next run, over an order of each of three customers."""
    folder = work / "data" / "orders"
    folder.mkdir(parents=True, exist_ok=True)
    orders = [
        {"customer": CUSTOMER + at, "amount": 10 + part, "at": part * 1000} for at in range(3)
    ]
    text = "".join(json.dumps(order) + "\n" for order in orders)
    (folder / f"{part}.jsonl").write_text(text, "utf-8")
    (work / "data" / "rules").mkdir(exist_ok=True)
    settings = RunOptions(
        parallelism=2,
        engine="local",
        restore_from=restore_from,
        commit_to=(f"blob={work / 'blobs'}", f"changelog={work / 'changelogs'}"),
        **options,
    )
    run_job(alerts.alerts(str(work / "data")), Catalog(work / "lake"), settings)


def holding(root: Path) -> list[str]:
    """The files with the customer: as text, as Flink writes a Long, and as Parquet does."""
    found = set(files_with(root, str(CUSTOMER)))
    for path in root.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        if any(CUSTOMER.to_bytes(8, order) in data for order in ("big", "little")):
            found.add(path.relative_to(root).as_posix())
    return sorted(found)


def erased(work: Path, request: str = "r") -> ErasureRequest:
    """The customer, in blobs and changelogs too."""
    return ErasureRequest(
        request, [str(CUSTOMER)], blobs=[str(work / "blobs")],
        changelogs=[str(work / "changelogs")],
    )  # fmt: skip


@pytest.mark.full
def test_runs_go_on_without_an_erased_customer(tmp_path: Path) -> None:
    """Attempts, blobs and changelogs go; the next run begins with the snapshot, and writes anew."""
    for part in range(3):
        run(tmp_path, part)
    lake = Catalog(tmp_path / "lake")
    assert any("_runs/" in path for path in holding(tmp_path / "lake"))
    assert holding(tmp_path / "blobs")
    assert holding(tmp_path / "changelogs")
    plan = plan_erasure(lake, erased(tmp_path))
    assert len(plan.leftover_runs) == 4
    assert plan.key_in_leftovers
    erase(lake, erased(tmp_path))
    assert holding(tmp_path / "lake") == []
    assert holding(tmp_path / "blobs") == []
    assert holding(tmp_path / "changelogs") == []
    assert audit_erasure(lake, erased(tmp_path), [str(tmp_path / "blobs")]).clean
    run(tmp_path, 3, "blob")
    spent = state_rows(lake, 4, "alert", "spent", tmp_path)
    assert spent == {CUSTOMER: 13, CUSTOMER + 1: 46, CUSTOMER + 2: 46}
    run(tmp_path, 4, "changelog")
    assert state_rows(lake, 5, "alert", "spent", tmp_path)[CUSTOMER] == 27


@pytest.mark.parametrize("source", ["blob", "changelog"])
@pytest.mark.full
def test_backends_that_an_erasure_did_not_reach_are_not_restored_from(
    source: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They still have the customer, whom a restore would bring back into the lake."""
    run(tmp_path, 0)
    erase(Catalog(tmp_path / "lake"), ErasureRequest("r", [str(CUSTOMER)]))
    run(tmp_path, 1, source)
    assert "was erased from after the run" in caplog.text
    spent = state_rows(Catalog(tmp_path / "lake"), 2, "alert", "spent", tmp_path)
    assert spent == {CUSTOMER: 11, CUSTOMER + 1: 21, CUSTOMER + 2: 21}
    run(tmp_path, 2, source)
    spent = state_rows(Catalog(tmp_path / "lake"), 3, "alert", "spent", tmp_path)
    assert spent[CUSTOMER] == 23


def test_runs_of_a_job_without_snapshots_are_reached(tmp_path: Path) -> None:
    """As where the power went off behind the drop of all of them."""
    run(tmp_path, 0)
    lake = Catalog(tmp_path / "lake")
    shutil.copytree(tmp_path / "lake" / "alerts" / "_runs", tmp_path / "runs")
    drop_snapshots(lake, "alerts", keep=0)
    shutil.rmtree(tmp_path / "lake" / "alerts" / "_runs")
    shutil.copytree(tmp_path / "runs", tmp_path / "lake" / "alerts" / "_runs")
    assert any("_runs/" in path for path in holding(tmp_path / "lake"))
    erase(lake, erased(tmp_path))
    assert holding(tmp_path / "lake") == []
    assert audit_erasure(lake, erased(tmp_path)).clean


@pytest.mark.parametrize("sweep", ["drop", "clean"])
@pytest.mark.full
def test_what_runs_left_goes_with_their_snapshots(sweep: str, tmp_path: Path) -> None:
    """Of those that are dropped alone; what says what the runs were of stays."""
    run(tmp_path, 0)
    run(tmp_path, 1)
    lake = Catalog(tmp_path / "lake")
    if sweep == "clean":
        shutil.copytree(tmp_path / "lake" / "alerts" / "_runs", tmp_path / "runs")
    drop_snapshots(lake, "alerts", keep=1)
    if sweep == "clean":
        shutil.rmtree(tmp_path / "lake" / "alerts" / "_runs")
        shutil.copytree(tmp_path / "runs", tmp_path / "lake" / "alerts" / "_runs")
        assert clean_lake(lake).files
        clean_lake(lake, dry_run=False)
    kept = [path for path in holding(tmp_path / "lake") if "_runs/" in path]
    assert kept
    assert all("_runs/00000002/" in path for path in kept)
    log = RunLog(lake.directory, "alerts")
    assert log.done(1)
    assert log.plan(1) is not None
    run(tmp_path, 2)
    drop_snapshots(lake, "alerts", keep=0)
    assert holding(tmp_path / "lake") == []


@pytest.mark.full
def test_an_attempt_whose_snapshot_has_nothing_of_it_is_found(tmp_path: Path) -> None:
    """Its bytes alone have the customer."""
    run(tmp_path, 0)
    lake = Catalog(tmp_path / "lake")
    only = ErasureRequest("first", [str(CUSTOMER)], snapshots=["run-00000001"])
    shutil.copytree(tmp_path / "lake" / "alerts" / "_runs", tmp_path / "runs")
    erase(lake, only)
    shutil.rmtree(tmp_path / "lake" / "alerts" / "_runs")
    shutil.copytree(tmp_path / "runs", tmp_path / "lake" / "alerts" / "_runs")
    assert all("_runs/" in path for path in holding(tmp_path / "lake"))
    assert plan_erasure(lake, erased(tmp_path)).rows == 0
    erase(lake, erased(tmp_path))
    assert holding(tmp_path / "lake") == []
    with pytest.raises(NoMatchError):
        erase(lake, erased(tmp_path, "again"))


@pytest.mark.parametrize("folder", ["job=other-1/task=x", "job=alerts-1/../job=other-1/task=x"])
def test_forged_records_name_no_blobs_of_others(folder: str, tmp_path: Path) -> None:
    """Only blobs of the jobs that are erased from go, and none by a path that leads elsewhere."""
    run(tmp_path, 0)
    victim = tmp_path / "blobs/blobs/job=other-1/task=x/store=state/1-1/0123456789abcdef-file"
    victim.parent.mkdir(parents=True)
    victim.write_bytes(b"of somebody else")
    marker = f"{folder}/store=state/1-1/0123456789abcdef-file"
    checkpoint = CheckpointV2(CheckpointId(1, 1), {}, {BLOB_STORE_FACTORY: {"state": marker}})
    runs = Directory(tmp_path / "lake" / "alerts" / "_runs")
    checkpoint_manager(runs).write("alert-0", checkpoint)
    with contextlib.suppress(UnsafePathError):
        erase(Catalog(tmp_path / "lake"), erased(tmp_path))
    assert victim.read_bytes() == b"of somebody else"


@pytest.mark.full
def test_a_run_in_progress_is_refused(tmp_path: Path) -> None:
    """One at work, and one whose state is in no snapshot yet; so is a run during an erasure."""

    def observe(step: str) -> None:
        if step == "prepared":
            raise DiesError

    run(tmp_path, 0)
    lake = Catalog(tmp_path / "lake")
    log = RunLog(lake.directory, "alerts")
    lock = log.lock(this_process())
    with pytest.raises(ConflictError, match="is run by process"):
        erase(lake, erased(tmp_path))
    log.unlock(lock)
    with pytest.raises(DiesError):
        run(tmp_path, 1, observe=observe)
    with pytest.raises(ConflictError, match="run 2 of job 'alerts' has state without a snapshot"):
        erase(lake, erased(tmp_path))
    assert lake.version().claims == Claims()
    run(tmp_path, 1)
    with pytest.MonkeyPatch.context() as patch:
        do_at(patch, (Erasure, "rewrite_logs", "before", 1), die)
        with pytest.raises(DiesError):
            erase(lake, erased(tmp_path))
    with pytest.raises(ConflictError, match="erasure 'r' of job 'alerts' has not ended"):
        run(tmp_path, 2)
    assert erase(lake, erased(tmp_path)).resumed
    assert holding(tmp_path / "lake") == []
