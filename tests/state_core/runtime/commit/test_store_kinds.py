"""Stores and disks, one contract for each: what they hold, their checkpoints, and their damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import (
    CorruptSnapshotError,
    MissingFileError,
    UnsafePathError,
)
from statelake.state_core.runtime.commit import (
    PersistentStore,
    PosixDisk,
    StoreSpec,
    TaskStores,
)
from statelake.state_core.runtime.commit.records.records import CheckpointId, CheckpointV2
from statelake.state_core.runtime.commit.stores.local_disk import join
from tests.support.jobs.commit_tasks import Job
from tests.support.jobs.doubles import MemoryDisk, SegmentStore, in_memory, segments

SPECS: dict[str, Callable[[str], StoreSpec]] = {
    "memory": in_memory,
    "segments": segments,
}
BACKENDS = ("blob_store", "changelog", "memory")
changes = st.lists(
    st.tuples(st.binary(max_size=2), st.none() | st.binary(max_size=5), st.booleans()), max_size=30
)


@pytest.fixture(params=["memory", "files"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> PosixDisk:
    """Each kind of disk."""
    return MemoryDisk() if request.param == "memory" else PosixDisk(tmp_path / "disk")


@pytest.mark.parametrize("kind", SPECS)
def test_a_store_holds_what_was_put(kind: str, tmp_path: Path) -> None:
    """Sorted by key; who listens is told of puts and deletes, and not of what is applied."""
    stores = TaskStores(PosixDisk(tmp_path), "task", [SPECS[kind]("store")])
    store = stores.open("store")
    told: list[tuple[bytes, bytes | None]] = []
    store.subscribe(lambda key, value: told.append((key, value)))
    store.put(b"b", b"1")
    store.put(b"a", b"")
    store.delete(b"b")
    store.delete(b"none")
    store.apply(b"c", b"3")
    assert list(store.items()) == [(b"a", b""), (b"c", b"3")]
    assert store.get(b"a") == b""
    assert store.get(b"b") is None
    assert told == [(b"b", b"1"), (b"a", b""), (b"b", None), (b"none", None)]
    stores.close()


@given(rounds=st.lists(changes, max_size=3))
def test_checkpoints_are_what_was_flushed(
    rounds: list[list[tuple[bytes, bytes | None, bool]]],
) -> None:
    """Each of them, through flushes in between, compactions, and a store that is opened anew."""
    import tempfile  # noqa: PLC0415 - each example has a directory of its own

    with tempfile.TemporaryDirectory() as path:
        stores = TaskStores(PosixDisk(path), "task", [segments("store")])
        expected: dict[int, dict[bytes, bytes]] = {}
        model: dict[bytes, bytes] = {}
        for number, done in enumerate(rounds):
            store = stores.open("store")
            for key, value, flush in done:
                store.apply(key, value)
                model.pop(key, None)
                if value is not None:
                    model[key] = value
                if flush:
                    store.flush()
            stores.flush()
            stores.checkpoint(CheckpointId(number, 0))
            expected[number] = dict(model)
        for number, content in expected.items():
            stores.adopt("store", CheckpointId(number, 0))
            assert dict(stores.open("store").items()) == content
            stores.open("store").put(b"new", b"1")
            stores.flush()
        for number, content in expected.items():
            stores.adopt("store", CheckpointId(number, 0))
            assert dict(stores.open("store").items()) == content
        stores.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_store_commits_to_every_backend(backend: str, tmp_path: Path) -> None:
    """And is restored on its host and on another; only new files are sent."""
    config = {
        "stores.store.changelog": "kafka.store-changelog",
        "stores.store.backup.factories": backend,
    }
    with Job(tmp_path, config) as job:
        expected: dict[str, str] = {}
        for number, host in enumerate(["a", "a", "b", "a"]):
            task = job.task(host)
            assert task.content() == expected
            task.put(
                **{f"key{index}": f"{number}" * 50 for index in range(number, 400, number + 1)}
            )
            expected = task.content()
            task.commit()
            task.put(key0="never committed")
            task.started.commits.close()
        if backend == "blob_store":
            assert task.context.measures["files_saved"] >= 1


def test_a_disk_keeps_files(disk: PosixDisk) -> None:
    """Whole, in pieces, linked and renamed; what is not there is no error to remove."""
    disk.write("a/b/c", b"one")
    disk.create("a/d", [b"t", b"wo"])
    disk.link("a/b/c", "e/f")
    disk.write("a/b/c", b"other")
    assert disk.read("e/f") == b"one"
    assert b"".join(disk.chunks("a/d")) == b"two"
    assert disk.names("a") == ["b", "d"]
    assert disk.files("a") == [("b/c", 5), ("d", 3)]
    assert disk.names("none") == disk.files("none") == []
    disk.link_tree("a", "z/y", lambda name: name == "d")
    assert disk.files("z") == [("y/b/c", 5), ("y/d", 3)]
    disk.remove("a")
    disk.remove("a")
    disk.remove("e/f")
    assert disk.files("z") == [("y/b/c", 5), ("y/d", 3)]
    with pytest.raises(MissingFileError, match="restart the task"):
        disk.read("a/d")
    with pytest.raises(MissingFileError):
        list(disk.chunks("a/d"))
    with pytest.raises(MissingFileError):
        disk.link("a/d", "b")
    assert len(disk.metadata("z/y/d", 3).permissions) == 9


@pytest.mark.parametrize("path", ["..", "a/../b", "/etc", "a//b", "", "a\0", "a\\b", "./a"])
def test_paths_lead_nowhere_else(path: str, disk: PosixDisk) -> None:
    """Whoever made them up."""
    for call in (disk.read, disk.remove, disk.names, lambda p: disk.write(p, b"")):
        with pytest.raises(UnsafePathError):
            call(path)


@pytest.mark.parametrize("name", ["task", "..", "a/b", "Partition 3", "task=x", "ü" * 20])
def test_a_tasks_directories_are_its_own(name: str, disk: PosixDisk) -> None:
    """Whatever its name is; and a task whose name goes on like an id is another one."""
    made = []
    for task in (name, f"{name}-1-2"):
        stores = TaskStores(disk, task, [segments("store")])
        stores.open("store").put(b"task", task.encode())
        stores.flush()
        stores.checkpoint(CheckpointId(1, 2))
        stores.mark(CheckpointV2(CheckpointId(1, 2)))
        made.append(stores)
    one, other = made
    one.drop_checkpoints(None)
    one.discard("store")
    assert one.marked("store") == set()
    assert other.marked("store") == {CheckpointId(1, 2)}
    other.adopt("store", CheckpointId(1, 2))
    assert other.open("store").get(b"task") == f"{name}-1-2".encode()


def test_only_marked_checkpoints_count(disk: PosixDisk) -> None:
    """One without a mark, with another's, or with a broken one was cut off."""
    stores = TaskStores(disk, "task", [segments("store")])
    for number in range(4):
        stores.flush()
        stores.checkpoint(CheckpointId(number, 0))
    stores.mark(CheckpointV2(CheckpointId(0, 0)))
    disk.write(f"{stores.directory('store', CheckpointId(1, 0))}/CHECKPOINT-V2", b"{")
    other = disk.read(f"{stores.directory('store', CheckpointId(0, 0))}/CHECKPOINT-V2")
    disk.write(f"{stores.directory('store', CheckpointId(2, 0))}/CHECKPOINT-V2", other)
    assert stores.marked("store") == {CheckpointId(0, 0)}


def test_a_damaged_segment_is_refused(disk: PosixDisk) -> None:
    """By its checksum."""
    store = SegmentStore(disk, "store")
    store.put(b"a", b"1")
    store.flush()
    disk.write("store/000001.seg", b"x")
    with pytest.raises(CorruptSnapshotError, match=r"000001\.seg: damaged"):
        SegmentStore(disk, "store")


def test_a_flush_that_failed_is_made_again() -> None:
    """With all that it had to write, also when it was to replace every file."""
    disk = MemoryDisk()
    store: PersistentStore = SegmentStore(disk, "store", max_segments=2)
    for number in range(6):
        store.put(b"%d" % number, b"x")
        write, disk.write = disk.write, refuse  # type: ignore[method-assign]
        with pytest.raises(OSError, match="full"):
            store.flush()
        disk.write = write  # type: ignore[method-assign]
        store.flush()
        assert list(SegmentStore(disk, "store").items()) == list(store.items())
    assert len(disk.files("store")) <= 3


def refuse(path: str, _: bytes) -> None:
    """A disk that is full."""
    raise OSError(f"{join(path)}: the disk is full")
