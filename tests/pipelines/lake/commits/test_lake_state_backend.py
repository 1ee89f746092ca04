"""The lake as a state backend: the contract of all backends, increments, and what is removed."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from statelake.pipelines.lake.commits.checkpoint_log import DeltaCheckpointLog
from statelake.pipelines.lake.commits.state_backend import (
    LakeBackend,
    StoreFile,
    TaskPart,
    superseded,
)
from statelake.pipelines.lake.tables.delta_commit import DeltaCommit
from statelake.pipelines.lake.tables.tables import StateTable
from statelake.state_core.commit import CheckpointId, CheckpointV2, SystemStreamPartition
from statelake.state_core.commit.records.records import LAKE_FACTORY
from statelake.state_core.errors import AsyncCommitError, CommitError
from statelake.state_core.files.filesystem import Directory
from tests.support.jobs.committed_job import CommittedJob

pytestmark = pytest.mark.thinned(2)

KINDS: dict[str, Callable[[Path], LakeBackend]] = {
    "lake": lambda path: LakeBackend(Directory(path), more_files=3),
    "lake that keeps 3": lambda path: LakeBackend(Directory(path), keep=3),
}


def contract_over(kinds: dict[str, Callable[[Path], LakeBackend]]) -> ModuleType:
    """The contract as a module of its own: others may run theirs in the same process."""
    path = Path(__file__).parents[3] / "state_core" / "commit" / "test_backend_contract.py"
    spec = importlib.util.spec_from_file_location("lake_backend_contract", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.BACKENDS.clear()
    module.BACKENDS.update(kinds)
    return module


contract = contract_over(KINDS)
World: TypeAlias = contract.World

disk = contract.disk
test_a_snapshot_is_what_was_flushed = contract.test_a_snapshot_is_what_was_flushed
test_cleaning_up_again = contract.test_cleaning_up_again_changes_nothing
test_markers_of_other_stores = contract.test_markers_of_stores_that_are_others_are_left_alone
test_a_restore_replaces_what_is_there = contract.test_a_restore_replaces_what_is_there
test_without_a_checkpoint = contract.test_without_a_checkpoint_stores_start_empty
test_a_restore_is_interrupted = contract.test_a_restore_is_interrupted
test_a_restore_is_interrupted_in_the_middle = contract.test_a_restore_is_interrupted_in_the_middle
test_backups_hold_their_order = contract.test_backups_hold_their_order
test_restores_hold_their_order = contract.test_restores_hold_their_order
test_resources = contract.test_resources_are_made_any_number_of_times
test_any_commit_is_restored_on_any_host = contract.test_any_commit_is_restored_on_any_host


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, disk: str, tmp_path: Path) -> World:
    """Each kind on each disk, with nothing in it."""
    return contract.World(request.param, disk, tmp_path)


@pytest.fixture
def lake(tmp_path: Path) -> World:
    """One that merges soon."""
    return contract.World("lake", "memory", tmp_path)


def names(place: Path) -> list[str]:
    """What the files of the first store are called, without what makes them unique."""
    found = (place / "remote" / "job" / "stores" / "one").glob("_data/*/*.parquet")
    return sorted(path.name.split("-")[2] for path in found)


def test_a_commit_writes_what_changed(lake: World, tmp_path: Path) -> None:
    """Everything at first, then changes alone, nothing for nothing, and one file in the end."""
    context = lake.host(("one",))
    manager = lake.begin(context)
    store = context.stores.open("one")
    for number in range(1000):
        store.put(b"%d" % number, bytes([number % 251]) * 50)
    lake.commit(context, manager, lambda: None)
    first = context.measures["bytes_sent"]
    store.put(b"7", b"x")
    store.delete(b"8")
    record = lake.commit(context, manager, lambda: None)
    assert context.measures["bytes_sent"] - first < first / 4
    assert context.measures["bytes_saved"] == first
    assert names(tmp_path) == ["full", "more"]
    again = lake.commit(context, manager, lambda: None)
    assert again.markers == record.markers
    assert names(tmp_path) == ["full", "more"]
    for value in (b"1", b"2"):
        store.put(b"9", value)
        record = lake.commit(context, manager, lambda: None)
        lake.clean(context, manager, record)
    assert names(tmp_path) == ["full"]
    assert lake.restored(lake.host(("one",)), record) == contract.content(context)


def test_engines_read_a_stores_table(lake: World, tmp_path: Path) -> None:
    """Its version is the marker, its partition the task."""
    context = lake.host(("one",))
    manager = lake.begin(context)
    context.stores.open("one").put(b"key", b"value")
    record = lake.commit(context, manager, lambda: None)
    version = int(record.markers[LAKE_FACTORY]["one"])
    table = DeltaTable(str(tmp_path / "remote" / "job" / "stores" / "one"), version)
    (row,) = table.to_pyarrow_dataset().to_table().to_pylist()
    assert row == {"task": "Partition 3", "key": b"key", "value": b"value"}


def test_two_processes_of_one_task_are_found_out(lake: World) -> None:
    """The one that was there first fails at its next commit: nothing is mixed."""
    first, second = lake.host(("one",)), lake.host(("one",))
    old, new = lake.begin(first), lake.begin(second)
    first.stores.open("one").put(b"a", b"old")
    lake.commit(first, old, lambda: None)
    second.stores.open("one").put(b"a", b"new")
    record = lake.commit(second, new, lambda: None)
    first.stores.open("one").put(b"b", b"old")
    with pytest.raises(CommitError, match="another process committed for task 'Partition 3'"):
        lake.commit(first, old, lambda: None)
    second.stores.open("one").put(b"c", b"new")
    record = lake.commit(second, new, lambda: None)
    assert lake.restored(lake.host(("one",)), record) == {"one": {b"a": b"new", b"c": b"new"}}


def test_tasks_commit_at_once(tmp_path: Path) -> None:
    """Each into its partition; every version has each task's rows as they were committed."""

    def work(number: int) -> list[tuple[str, int]]:
        part = TaskPart(StateTable(Directory(tmp_path), "store"), f"task {number}")
        versions = []
        for step in range(5):
            file = part.write(CheckpointId(step, number), [(b"%d" % step, b"x")], full=True)
            versions.append((part.task, part.commit(file, None)))
        return versions

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, range(4)))
    for versions in found:
        for step, (task, version) in enumerate(versions):
            part = TaskPart(StateTable(Directory(tmp_path), "store"), task)
            (file,) = part.at(str(version))
            assert list(part.read(file)) == [(b"%d" % step, b"x")]


@pytest.mark.parametrize(
    "task",
    [str(SystemStreamPartition("kafka", "a/b=c.d", 3)), "..", "Größe % 2\n", "_x", "a" * 300, "1"],
)
def test_tasks_of_any_name(tmp_path: Path, task: str) -> None:
    """Each has its partition, and its directory is none of another's."""
    table = StateTable(Directory(tmp_path), "store")
    for name in (task, "other"):
        part = TaskPart(table, name)
        file = part.write(CheckpointId(1, 0), [(b"key", name.encode())], full=True)
        version = part.commit(file, None)
        (found,) = part.at(str(version))
        assert list(part.read(found)) == [(b"key", name.encode())]
        assert [part_file.path for part_file in part.present()] == [found.path]
    assert len(list((tmp_path / "store" / "_data").iterdir())) == 2


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda path: path.unlink(), "was removed after a later commit"),
        (lambda path: path.write_bytes(path.read_bytes()[:-20]), "is damaged"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"vvvv", b"wwww")), "is damaged"),
    ],
    ids=["removed", "cut off", "changed"],
)
def test_a_damaged_file_is_never_restored(
    lake: World, tmp_path: Path, damage: Callable[[Path], object], problem: str
) -> None:
    """Not in part either, but for what its checksums tell."""
    context = lake.host(("one",))
    manager = lake.begin(context)
    context.stores.open("one").put(b"key", bytes(range(256)) + b"vvvv" + bytes(range(256)))
    record = lake.commit(context, manager, lambda: None)
    (file,) = (tmp_path / "remote").glob("job/stores/one/_data/*/*.parquet")
    damage(file)
    with pytest.raises(CommitError, match=problem):
        lake.restored(lake.host(("one",)), record)


@pytest.mark.parametrize("marker", ["7", "no number", "-1", "9" * 30])
def test_a_marker_that_leads_nowhere(lake: World, marker: str) -> None:
    """It is refused before anything is discarded."""
    context = lake.host(("one",))
    manager = lake.begin(context)
    lake.commit(context, manager, lambda: None)
    record = CheckpointV2(CheckpointId(1, 0), {}, {LAKE_FACTORY: {"one": marker}})
    with pytest.raises(CommitError, match="can't be read"):
        lake.restored(lake.host(("one",)), record)


def test_something_has_to_be_kept(tmp_path: Path) -> None:
    """Else the last commit would go."""
    with pytest.raises(CommitError, match="0 commits can't be kept"):
        LakeBackend(Directory(tmp_path), keep=0)


def job_of(tmp_path: Path, restore: str = "lake") -> CommittedJob:
    """A job that commits to a blob store and to the lake, with its log there too."""
    log = DeltaCheckpointLog.of_job(Directory(tmp_path / "lake"), "orders")
    return CommittedJob(tmp_path, log, restore=restore)


@pytest.mark.parametrize("restore", ["lake", "blob_store"])
def test_a_job_moves_between_hosts(tmp_path: Path, restore: str) -> None:
    """Each time to an empty disk, whichever backend it is restored from."""
    job = job_of(tmp_path, restore)
    expected: dict[bytes, bytes] = {}
    for number in range(5):
        rounds = [{b"%d" % number: b"x"}, {b"last": b"%d" % number}]
        assert job.run("Partition 0", rounds) == expected
        for written in rounds:
            expected |= written
        shutil.rmtree(tmp_path / "disks")
    assert job.run("Partition 0", []) == expected


@pytest.mark.parametrize("step", ["write", "commit", "_put"])
@pytest.mark.parametrize("late", [False, True])
def test_a_commit_that_is_cut_off_was_never_there(
    tmp_path: Path, step: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start has what the record before says, and its commits are whole."""
    job = job_of(tmp_path)
    job.run("Partition 0", [{b"a": b"1"}, {b"b": b"1"}])
    owner = DeltaCommit if step == "_put" else TaskPart  # the entry of the log
    original = getattr(owner, step)

    def failing(*args: object, **more: object) -> object:
        if late:
            original(*args, **more)
        raise OSError("the network is gone")

    monkeypatch.setattr(owner, step, failing)
    with pytest.raises(AsyncCommitError, match="is gone"):
        job.run("Partition 0", [{b"a": b"2"}])
    monkeypatch.undo()
    shutil.rmtree(tmp_path / "disks")
    held = {b"a": b"1", b"b": b"1"}
    assert job.run("Partition 0", [{b"c": b"1"}, {b"d": b"1"}]) == held
    shutil.rmtree(tmp_path / "disks")
    assert job.run("Partition 0", []) == held | {b"c": b"1", b"d": b"1"}
    left = list((tmp_path / "lake" / "orders" / "stores" / "counts" / "_data").rglob("*.parquet"))
    assert len(left) == 2


def files(kinds: Iterable[bool]) -> list[StoreFile]:
    """One commit after the other: full ones, and changes."""
    return [StoreFile(CheckpointId(at, 0), full, str(at)) for at, full in enumerate(kinds)]


@given(
    kinds=st.lists(st.booleans(), max_size=12),
    last=st.integers(0, 12),
    keep=st.integers(1, 4),
)
def test_what_is_superseded_is_needed_by_no_kept_commit(
    kinds: list[bool], last: int, keep: int
) -> None:
    """A commit needs the last full file before it, and all from there on."""
    every = files([True, *kinds])
    last = min(last, len(every) - 1)
    gone = superseded(every, CheckpointId(last, 0), keep)
    for commit in range(max(0, last - keep + 1), len(every)):
        base = max(at for at in range(commit + 1) if every[at].full)
        assert not set(gone) & set(every[base : commit + 1])
    base = max(at for at in range(max(0, last - keep + 1) + 1) if every[at].full)
    assert gone == every[:base]
