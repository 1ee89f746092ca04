"""RocksDB: its working files, and checkpoints of them, which the readers of Flink's read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.keyed.keyed_files import open_keyed
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.model.handles import (
    IncrementalHandle,
    KeyGroupRange,
)
from statelake.state_core.model.key_groups import key_group_of, key_group_ranges
from statelake.state_core.runtime.backends import (
    BackendConfiguration,
    KeyedStateBackend,
    rocksdb_backend,
)
from tests.support.jobs.backend_cases import BACKENDS, descriptor, restored_at
from tests.support.savepoints.native_checkpoints import native_checkpoint

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
    handle = native_checkpoint(backend, directory, Directory(job / "shared"))
    assert isinstance(handle, IncrementalHandle)
    return handle, directory


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
        handle = backend.snapshot(directory).run()
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
            handles.append(native_checkpoint(backend, directory, Directory(tmp_path / "shared")))
    for parallelism in (1, 2):
        restored = restored_at(BACKENDS[kind], handles, directory, parallelism)
        assert sum(len(list(opened.keys("map"))) for opened in restored) == KEYS
        assert held(restored) == expected(KEYS)
        for opened in restored:
            opened.close()
