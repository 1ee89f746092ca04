"""Several runs at once: each snapshot is there once and whole, whoever comes first.

Some tests let threads and processes race; the others place one run inside another at a step, which
is the same every time.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from statelake.pipelines.lake.catalog.attempts import Attempt
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.dropping import drop_snapshots
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.ingest import importing
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.tables.data_files import DataFileWriter
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.pipelines.lake.tables.tables import StateTable
from statelake.state_core.errors import ConflictError
from tests.support.lakes import (
    LOCAL,
    WINDOWS,
    assert_shown,
    assert_whole,
    edit,
    edited_savepoint,
    entries,
    exported,
    import_as,
    import_golden,
)
from tests.support.steps import Step, do_at

pytestmark = pytest.mark.thinned(2)

RUNS = 4
TUMBLING = "tumbling/window-contents"


@pytest.fixture(scope="module")
def savepoints(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """As many savepoints as there are runs, each with its own few key groups changed."""
    root = tmp_path_factory.mktemp("savepoints")
    return [
        edited_savepoint(
            WINDOWS,
            root / f"s{index}",
            (TUMBLING, f"key_group % {RUNS} = {index} AND key_group < 24", {"value": "value + 1"}),
            ("sliding/window-contents", f"key_group = {index + 100}", {}),
        )
        for index in range(RUNS)
    ]


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """A lake that is not there yet."""
    return Catalog(tmp_path / "lake")


def at_once(works: list[Callable[[], object]]) -> list[object]:
    """Run things in threads that start together, and say what came of each."""
    start = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> object:
        start.wait()
        try:
            return work()
        except ConflictError as error:
            return error

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(run, works))


def ids(lake: Catalog) -> set[str]:
    """The snapshots that exist."""
    return {summary.snapshot_id for summary in lake.summaries()}


@pytest.mark.parametrize("present", [False, True], ids=["new lake", "with a snapshot"])
def test_the_same_snapshot(
    present: bool, lake: Catalog, savepoints: list[Path], tmp_path: Path
) -> None:
    """One of them makes it; the others find it."""
    if present:
        import_golden(lake, ("before", WINDOWS))

    def run() -> bool:
        source = str(savepoints[0])
        return import_snapshot(lake, source, "orders", snapshot_id="s", engine=LOCAL).new

    found = at_once([run] * RUNS)
    assert sorted(found, key=str) == [False] * (RUNS - 1) + [True]
    assert ids(lake) == {"s"} | ({"before"} if present else set())
    assert_whole(lake)
    assert_shown(lake, "s")
    assert exported(lake, "s", tmp_path / "out") == entries(savepoints[0])


@pytest.mark.parametrize("present", [False, True], ids=["new lake", "with a snapshot"])
def test_different_snapshots(
    present: bool, lake: Catalog, savepoints: list[Path], tmp_path: Path
) -> None:
    """All are there, and each holds what its savepoint holds."""
    if present:
        import_golden(lake, ("before", WINDOWS))
    works = [
        lambda source=source: import_as(lake, source, source.name) is not None
        for source in savepoints
    ]
    assert at_once(works) == [True] * RUNS
    assert ids(lake) >= {source.name for source in savepoints}
    assert_whole(lake)
    for source in savepoints:
        assert exported(lake, source.name, tmp_path / source.name) == entries(source)


def test_different_jobs(lake: Catalog, savepoints: list[Path], tmp_path: Path) -> None:
    """Jobs that begin a lake together do not disturb each other."""
    works = [
        lambda source=source: import_as(lake, source, "s", source.name) is not None
        for source in savepoints
    ]
    assert at_once(works) == [True] * RUNS
    assert lake.jobs() == sorted(source.name for source in savepoints)
    assert_whole(lake)
    for source in savepoints:
        assert_shown(lake, "s", source.name)
        assert exported(lake, "s", tmp_path / source.name, source.name) == entries(source)


PROGRAM = """
import sys
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.state_core.errors import ConflictError

lake, source, name = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
try:
    done = import_snapshot(Catalog(lake), source, "orders", snapshot_id=name, engine="local")
    print("new" if done.new else "present")
except ConflictError:
    print("conflict")
"""


@pytest.mark.parametrize("alike", [True, False], ids=["the same", "different"])
@pytest.mark.full
def test_processes(alike: bool, lake: Catalog, savepoints: list[Path], tmp_path: Path) -> None:
    """The same holds between processes that know nothing of each other."""
    sources = [savepoints[0]] * 2 if alike else savepoints[:2]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, lake.location, str(source), source.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for source in sources
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    found = [process.communicate(timeout=120)[0].strip() for process in processes]
    assert sorted(found) == ["new", "present" if alike else "new"]
    assert_whole(lake)
    for source in set(sources):
        assert exported(lake, source.name, tmp_path / source.name) == entries(source)


INSIDE: dict[str, Step] = {
    "begins": (importing._Import, "_import_keyed", "before", 1),
    "writes": (DataFileWriter, "_create", "before", 1),
    "has no version": (StateTable, "replace_files", "before", 1),
    "has a version": (StateTable, "replace_files", "after", 1),
    "has no row": (Attempt, "commit", "before", 1),
}
every_step = pytest.mark.parametrize("step", INSIDE.values(), ids=INSIDE.keys())


@pytest.mark.thinned(4)
@every_step
@pytest.mark.parametrize("present", [False, True], ids=["new lake", "with a snapshot"])
def test_the_same_snapshot_inside(
    step: Step,
    present: bool,
    lake: Catalog,
    savepoints: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever ends first makes it; who ends later takes back its own alone, and finds that one."""
    if present:
        import_golden(lake, ("before", WINDOWS))
    do_at(monkeypatch, step, lambda: import_as(lake, savepoints[0], "s"))
    source = str(savepoints[0])
    assert not import_snapshot(lake, source, "orders", snapshot_id="s", engine=LOCAL).new
    assert_whole(lake)
    assert_shown(lake, "s")


def test_another_snapshot_of_that_name_inside(
    lake: Catalog, savepoints: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who ends later is told that it is another one, and where that came from."""
    do_at(monkeypatch, INSIDE["begins"], lambda: import_as(lake, savepoints[0], "s"))
    with pytest.raises(ConflictError, match="has another snapshot 's'"):
        import_as(lake, savepoints[1], "s")
    assert_whole(lake)


@every_step
def test_another_snapshot_inside(
    step: Step,
    lake: Catalog,
    savepoints: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both are there, and whole."""
    import_golden(lake, ("before", WINDOWS))
    do_at(monkeypatch, step, lambda: import_as(lake, savepoints[1], "s1"))
    import_as(lake, savepoints[0], "s0")
    assert ids(lake) == {"before", "s0", "s1"}
    assert_whole(lake)
    for source in savepoints[:2]:
        assert exported(lake, source.name, tmp_path / source.name) == entries(source)


def test_three_of_which_the_first_succeeds(
    lake: Catalog, savepoints: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taking back one's own never shows what another is about to take back, too."""
    real = Attempt.commit
    waiting: list[tuple[Attempt, SnapshotRecord]] = []
    done: list[SnapshotRecord] = []

    def commit(self: Attempt, record: SnapshotRecord) -> SnapshotRecord:
        """The first two wait for those that come in between; the third lets the first go on."""
        waiting.append((self, record))
        if len(waiting) < 3:
            with pytest.raises(ConflictError):
                import_as(lake, savepoints[len(waiting)], "s")
        if len(waiting) == 3 and record is waiting[2][1]:
            done.append(real(*waiting[0]))
        return done[0] if record is waiting[0][1] else real(self, record)

    import_as(lake, WINDOWS, "before")
    monkeypatch.setattr(Attempt, "commit", commit)
    import_as(lake, savepoints[0], "s")
    assert_whole(lake)
    assert_shown(lake, "s")
    assert exported(lake, "s", tmp_path / "out") == entries(savepoints[0])


@pytest.mark.parametrize(
    "step",
    [INSIDE["writes"], INSIDE["has no version"], INSIDE["has no row"]],
    ids=["writes", "has no version", "has no row"],
)
def test_an_import_inside_a_commit(
    step: Step,
    lake: Catalog,
    savepoints: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The commit has the edit, the import the savepoint, and neither has anything of the other."""
    import_golden(lake, ("before", WINDOWS))
    edit(lake, f"orders/keyed/{TUMBLING}").update({"value": "value - 1"}, predicate="key_group = 7")
    do_at(monkeypatch, step, lambda: import_as(lake, savepoints[0], "s0"))
    commit_snapshot(ChildSnapshot(lake, "orders", "before", "edited", engine=LOCAL))
    assert ids(lake) == {"before", "edited", "s0"}
    assert_whole(lake)
    assert exported(lake, "s0", tmp_path / "s0") == entries(savepoints[0])
    found, before = exported(lake, "edited", tmp_path / "edited"), entries(WINDOWS)
    changed = {entry for name, held in found.items() for entry in set(held) ^ set(before[name])}
    assert {group for group, _, _ in changed} == {7}


@pytest.mark.thinned(4)
@every_step
def test_a_drop_inside_an_import(
    step: Step,
    lake: Catalog,
    savepoints: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the import builds on is not dropped: by name it is refused, `keep` passes over it."""
    import_golden(lake, ("oldest", WINDOWS), ("before", WINDOWS))

    def drop() -> None:
        with pytest.raises(ConflictError, match="for snapshot 's0'"):
            drop_snapshots(lake, "orders", snapshot_ids=["before"])
        dropped = drop_snapshots(lake, "orders", keep=0)
        assert (dropped.dropped, dropped.held) == (["oldest"], ["before"])

    do_at(monkeypatch, step, drop)
    import_as(lake, savepoints[0], "s0")
    assert ids(lake) == {"before", "s0"}
    assert_whole(lake)
    assert exported(lake, "s0", tmp_path / "s0") == entries(savepoints[0])
    assert drop_snapshots(lake, "orders", keep=1).dropped == ["before"]
    assert_whole(lake)


def test_a_drop_just_before_an_import_begins(
    lake: Catalog, savepoints: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that has looked at a snapshot for what it may share notices that it went."""
    import_golden(lake, ("before", WINDOWS))
    step = (Attempt, "__enter__", "before", 1)
    do_at(monkeypatch, step, lambda: drop_snapshots(lake, "orders", snapshot_ids=["before"]))
    import_as(lake, savepoints[0], "s0")
    assert_whole(lake)
    assert exported(lake, "s0", tmp_path / "s0") == entries(savepoints[0])


def test_a_drop_of_a_parent(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit whose parent was dropped before it began is refused; once begun it keeps it."""
    import_golden(lake, ("before", WINDOWS))
    edit(lake, f"orders/keyed/{TUMBLING}").delete("key_group = 7")

    def drop() -> None:
        with pytest.raises(ConflictError, match="for snapshot 'edited'"):
            drop_snapshots(lake, "orders", snapshot_ids=["before"])

    with monkeypatch.context() as patch:
        do_at(patch, (Attempt, "commit", "before", 1), drop)
        commit_snapshot(ChildSnapshot(lake, "orders", "before", "edited", engine=LOCAL))
    drop_snapshots(lake, "orders", snapshot_ids=["before"])
    assert_whole(lake)
    edit(lake, f"orders/keyed/{TUMBLING}").delete("key_group = 8")
    step: Step = (Attempt, "__enter__", "before", 1)
    do_at(monkeypatch, step, lambda: drop_snapshots(lake, "orders", snapshot_ids=["edited"]))
    with pytest.raises(ConflictError, match="'edited' of job 'orders' was dropped"):
        commit_snapshot(ChildSnapshot(lake, "orders", "edited", "again", engine=LOCAL))
    assert ids(lake) == set()
