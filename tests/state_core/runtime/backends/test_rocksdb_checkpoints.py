"""RocksDB's incremental checkpoints: what is copied, what is shared, what is taken over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statelake.state_core.errors import UnsafePathError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.keyed.keyed_files import open_keyed
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.model.handles import (
    FileHandle,
    IncrementalHandle,
    KeyGroupRange,
    RelativeHandle,
)
from statelake.state_core.model.key_groups import key_group_of, key_group_ranges
from statelake.state_core.runtime.backends import (
    BackendConfiguration,
    KeyedStateBackend,
    SnapshotTarget,
    restore_backend,
    rocksdb_backend,
)
from statelake.state_core.runtime.backends.rocksdb.checkpoints import copy_into
from tests.support.jobs.backend_cases import BACKENDS, descriptor, restored_at

KEYS = 400
ALL = KeyGroupRange(0, 127)


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[KeyedStateBackend]:
    """A RocksDB backend on the disk that checkpoints are on."""
    (tmp_path / "working").mkdir()
    with rocksdb_backend(BackendConfiguration("String", ALL, 128), tmp_path / "working") as made:
        yield made


def fill(backend: KeyedStateBackend, first: int) -> None:
    """Values and maps of `KEYS` keys."""
    value: Any = backend.state(descriptor("value"))
    entries: Any = backend.state(descriptor("map"))
    items: Any = backend.state(descriptor("list"))
    for number in range(first, first + KEYS):
        backend.set_current_key(str(number))
        value.update(number)
        entries.put_all({"x": number, "y": None})
        items.add(f"item {number}")


def held(backends: list[KeyedStateBackend]) -> dict[str, Any]:
    """What all backends hold, by key."""
    found = {}
    for backend in backends:
        value: Any = backend.state(descriptor("value"))
        entries: Any = backend.state(descriptor("map"))
        items: Any = backend.state(descriptor("list"))
        for key in list(backend.keys("value")):
            backend.set_current_key(key)
            found[key] = value.value(), dict(entries.entries()), items.get()
    return found


def expected(count: int) -> dict[str, Any]:
    """What `fill` has put."""
    return {
        str(index): (index, {"x": index, "y": None}, [f"item {index}"]) for index in range(count)
    }


def checkpoint(
    backend: KeyedStateBackend, job: Path, number: int
) -> tuple[IncrementalHandle, Directory]:
    """A checkpoint and its directory."""
    directory = Directory(job / f"chk-{number}")
    directory.create()
    target = SnapshotTarget(number, directory, Directory(job / "shared"))
    handle = backend.snapshot(target).run()
    assert isinstance(handle, IncrementalHandle)
    return handle, directory


def shared(handle: IncrementalHandle) -> set[str]:
    """The shared files that a checkpoint names."""
    return {stream.uri for _, stream in handle.shared if isinstance(stream, FileHandle)}


def test_a_second_checkpoint_copies_only_what_is_new(
    backend: KeyedStateBackend, tmp_path: Path
) -> None:
    """Files of the first complete one are named again; each restores what it was taken of."""
    fill(backend, 0)
    first, directory = checkpoint(backend, tmp_path, 1)
    backend.notify_checkpoint_complete(1)
    fill(backend, KEYS)
    second, later = checkpoint(backend, tmp_path, 2)
    assert shared(first) < shared(second)
    assert second.checkpointed_size < sum(stream.size for _, stream in second.shared if stream)
    files = {path.name for path in (tmp_path / "shared").iterdir()}
    assert files == {Path(uri).name for uri in shared(second)}
    for handle, where, count in ((first, directory, KEYS), (second, later, 2 * KEYS)):
        for make in BACKENDS.values():
            for parallelism in (1, 3):
                restored = restored_at(make, [handle], where, parallelism)
                assert held(restored) == expected(count)
                for opened in restored:
                    opened.close()


def test_a_checkpoint_that_is_not_complete_is_not_built_on(
    backend: KeyedStateBackend, tmp_path: Path
) -> None:
    """Nothing is shared with one that was aborted, or of which nobody has heard yet."""
    fill(backend, 0)
    first, _ = checkpoint(backend, tmp_path, 1)
    second, _ = checkpoint(backend, tmp_path, 2)
    backend.notify_checkpoint_aborted(2)
    backend.notify_checkpoint_complete(2)
    third, _ = checkpoint(backend, tmp_path, 3)
    assert not shared(first) & shared(second)
    assert not shared(third) & (shared(first) | shared(second))


def test_files_are_taken_over_and_built_on(backend: KeyedStateBackend, tmp_path: Path) -> None:
    """Without rescaling the files are RocksDB's own again, and the next checkpoint shares them."""
    fill(backend, 0)
    first, directory = checkpoint(backend, tmp_path, 1)
    (tmp_path / "again").mkdir()
    with rocksdb_backend(BackendConfiguration("String", ALL, 128), tmp_path / "again") as again:
        restore_backend(again, [first], directory)
        storage: Any = again.storage
        assert storage.restored == first
        assert held([again]) == expected(KEYS)
        fill(again, KEYS)
        second, _ = checkpoint(again, tmp_path, 2)
        assert shared(first) <= shared(second)
        assert second.backend_id == first.backend_id
    assert held(restored_at(BACKENDS["heap"], [second], tmp_path / "chk-2", 1)) == expected(
        2 * KEYS
    )


def test_files_are_never_written_over(tmp_path: Path) -> None:
    """What was linked from a checkpoint is replaced by another of its name, and stays as it is."""
    for name, data in (("one", b"the first"), ("two", b"another")):
        (tmp_path / name).write_bytes(data)
    files = StateFiles(Directory(tmp_path))
    (tmp_path / "working").mkdir()
    target = tmp_path / "working/000007.sst"
    for name, size in (("one", 9), ("two", 7), ("one", 9), ("two", 6)):
        copy_into(target, files.open(RelativeHandle(name, size)))
    assert target.read_bytes() == b"anothe"
    assert (tmp_path / "one").read_bytes() == b"the first"
    assert (tmp_path / "two").read_bytes() == b"another"
    target.unlink()
    target.symlink_to(tmp_path / "one")
    with pytest.raises(UnsafePathError):
        copy_into(target, files.open(RelativeHandle("two", 6)))
    assert (tmp_path / "one").read_bytes() == b"the first"


def test_a_checkpoint_opens_as_flinks_do(backend: KeyedStateBackend, tmp_path: Path) -> None:
    """The reader of Flink's checkpoints reads this one's files."""
    fill(backend, 0)
    handle, directory = checkpoint(backend, tmp_path, 7)
    opened = open_keyed(handle, StateFiles(directory), 128)
    assert opened is not None
    names = [state.name for state in opened.states]
    counts = dict.fromkeys(names, 0)
    for entries in opened.entries():
        for index, name in enumerate(names):
            counts[name] += len(entries.of_state(index))
    assert counts == {"value": KEYS, "map": 2 * KEYS, "list": KEYS}


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """A backend that is closed has no directory any more, nor have its snapshots."""
    (tmp_path / "working").mkdir()
    configuration = BackendConfiguration("String", ALL, 128)
    with rocksdb_backend(configuration, tmp_path / "working") as backend:
        fill(backend, 0)
        (own,) = (tmp_path / "working").iterdir()
        checkpoint(backend, tmp_path, 1)
        assert [path.name for path in own.iterdir()] == ["db"]
    assert list((tmp_path / "working").iterdir()) == []


@pytest.mark.full
def test_state_beyond_memory_works(tmp_path: Path) -> None:
    """Many times what RocksDB may hold in memory is written, read, and restored."""
    (tmp_path / "working").mkdir()
    configuration = BackendConfiguration("Long", ALL, 128)
    with rocksdb_backend(configuration, tmp_path / "working", memory_bytes=1 << 20) as backend:
        items: Any = backend.state(descriptor("list"))
        for number in range(3000):
            backend.set_current_key(number)
            items.add(f"{number:0>10000}")
        directory = Directory(tmp_path)
        handle = backend.snapshot(SnapshotTarget(1, directory), savepoint=True).run()
        (again,) = restored_at(
            lambda handles: rocksdb_backend(handles, tmp_path / "working", memory_bytes=1 << 20),
            [handle], directory, 1, "Long",
        )  # fmt: skip
        with again:
            restored: Any = again.state(descriptor("list"))
            for number in range(0, 3000, 7):
                again.set_current_key(number)
                assert restored.get() == [f"{number:0>10000}"]


def test_a_scan_keeps_its_bound(backend: KeyedStateBackend) -> None:
    """RocksDB reads an iterator's bound where its options have it: they must live as long.

    `rocksdict` 0.3.29 does not see to that; with the options gone a scan ends anywhere.
    """
    entries: Any = backend.state(descriptor("map"))
    for number in range(200):
        backend.set_current_key(str(number))
        entries.put_all({f"{index:03}": index for index in range(30)})
    for number in range(200):
        backend.set_current_key(str(number))
        held = entries.entries()
        rubbish = [bytes([255 - index % 256]) * (index % 40) for index in range(2000)]
        assert len(list(held)) == 30
        assert len(rubbish) == 2000


@pytest.mark.parametrize("kind", sorted(BACKENDS))
def test_checkpoints_of_many_subtasks_are_rescaled(kind: str, tmp_path: Path) -> None:
    """Three instances' files become one's, and two's: each entry once, where it belongs."""
    directory = Directory(tmp_path / "chk-1")
    directory.create()
    handles = []
    for key_groups in key_group_ranges(128, 3):
        with BACKENDS["rocksdb"](BackendConfiguration("String", key_groups, 128)) as backend:
            value: Any = backend.state(descriptor("value"))
            entries: Any = backend.state(descriptor("map"))
            items: Any = backend.state(descriptor("list"))
            for number in range(KEYS):
                group = key_group_of(backend.context.serializer.hash_code(str(number)), 128)
                if group in key_groups:
                    backend.set_current_key(str(number))
                    value.update(number)
                    entries.put_all({"x": number, "y": None})
                    items.add(f"item {number}")
            target = SnapshotTarget(1, directory, Directory(tmp_path / "shared"))
            handles.append(backend.snapshot(target).run())
    for parallelism in (1, 2):
        restored = restored_at(BACKENDS[kind], handles, directory, parallelism)
        assert sum(len(list(opened.keys("map"))) for opened in restored) == KEYS
        assert held(restored) == expected(KEYS)
        for opened in restored:
            opened.close()
