"""The two parts of a snapshot: what is prepared is released, whatever happens."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from statelake.state_core.errors import MissingFileError, SnapshotError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata
from statelake.state_core.formats.writing.writer import SavepointDirectory
from statelake.state_core.runtime.backends import KeyedStateBackend
from statelake.state_core.runtime.backends.states.snapshots import unified_pieces
from statelake.state_core.runtime.backends.states.tables import SnapshotRun, entries_of
from tests.support.jobs.backend_cases import MakeBackend, descriptor, restored_at


class Frozen:
    """The frozen tables of a backend's state, as long as a snapshot has them."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        self._taken: list[weakref.ref[Any]] = []
        (table,) = [state.table for state in backend.registry]
        freeze = table.freeze

        def freezing(state_id: int) -> Any:
            runs = freeze(state_id)
            self._taken.append(weakref.ref(runs))
            return runs

        table.freeze = freezing  # type: ignore[method-assign]

    def __call__(self) -> tuple[int, int]:
        """How many were frozen, and how many of them are still there."""
        gc.collect()
        return len(self._taken), sum(runs() is not None for runs in self._taken)


@pytest.fixture
def filled(backend: KeyedStateBackend) -> KeyedStateBackend:
    """A backend with 500 keys."""
    value: Any = backend.state(descriptor("value"))
    for number in range(500):
        backend.set_current_key(f"key {number}")
        value.update(number)
    return backend


def test_resources_are_released_behind_success(filled: KeyedStateBackend, tmp_path: Path) -> None:
    """Once, and not before the asynchronous part."""
    frozen = Frozen(filled)
    task = filled.snapshot(Directory(tmp_path / "chk-1"))
    assert frozen() == (1, 1)
    assert task.run() is not None
    task.cancel()
    assert frozen() == (1, 0)
    with pytest.raises(SnapshotError, match="before"):
        task.run()


def test_resources_are_released_behind_failure(filled: KeyedStateBackend, tmp_path: Path) -> None:
    """What can't be written is an error, and nothing is held; the next one goes well."""
    frozen = Frozen(filled)
    (tmp_path / "file").write_text("in the way")
    blocked = Directory(tmp_path / "file" / "below")
    with pytest.raises((SnapshotError, OSError)):
        filled.snapshot(blocked).run()
    assert frozen() == (1, 0)
    assert filled.snapshot(Directory(tmp_path / "chk-2")).run() is not None


def test_resources_are_released_when_cancelled(filled: KeyedStateBackend, tmp_path: Path) -> None:
    """A cancelled snapshot writes nothing, and can't be run."""
    frozen = Frozen(filled)
    task = filled.snapshot(Directory(tmp_path))
    task.cancel()
    task.cancel()
    assert frozen() == (1, 0)
    with pytest.raises(SnapshotError, match="cancelled"):
        task.run()
    assert list(tmp_path.iterdir()) == []


def test_a_snapshot_is_written_while_the_job_goes_on(
    filled: KeyedStateBackend, make_backend: MakeBackend, tmp_path: Path
) -> None:
    """Another thread writes what was there, while this one changes every key."""
    value: Any = filled.state(descriptor("value"))
    task = filled.snapshot(Directory(tmp_path))
    handles: list[Any] = []
    writer = Thread(target=lambda: handles.append(task.run()))
    writer.start()
    for number in range(500):
        filled.set_current_key(f"key {number}")
        value.update(None if number % 2 else -number)
    writer.join()
    (restored,) = restored_at(make_backend, handles, tmp_path, 1)
    with restored:
        again: Any = restored.state(descriptor("value"))
        for number in range(500):
            restored.set_current_key(f"key {number}")
            assert again.value() == number


def test_no_state_is_no_file(backend: KeyedStateBackend, tmp_path: Path) -> None:
    """Where no state is registered, there is no handle, as in Flink."""
    assert backend.snapshot(Directory(tmp_path)).run() is None
    backend.state(descriptor("value"))
    handle: Any = backend.snapshot(Directory(tmp_path)).run()
    assert set(handle.offsets) == {0}


def test_a_savepoint_is_not_written_over(filled: KeyedStateBackend, tmp_path: Path) -> None:
    """A directory with something in it is refused before the snapshot is begun."""
    (tmp_path / "something").write_text("")
    with pytest.raises(SnapshotError, match="not empty"):
        SavepointDirectory(tmp_path)
    assert filled.current_key == "key 499"


def test_of_two_savepoints_at_one_place_the_first_stays(wordcount: Path, tmp_path: Path) -> None:
    """The second is refused in a sentence, and leaves nothing."""
    metadata = read_metadata((wordcount / "_metadata").read_bytes())
    metadata = replace(metadata, operators=[])
    first, second = (SavepointDirectory(tmp_path / "savepoint") for _ in range(2))
    first.commit(metadata)
    written = (tmp_path / "savepoint" / "_metadata").read_bytes()
    with pytest.raises(SnapshotError, match="another has written there meanwhile"):
        second.commit(metadata)
    second.abandon()
    assert [path.name for path in tmp_path.iterdir()] == ["savepoint"]
    assert (tmp_path / "savepoint" / "_metadata").read_bytes() == written


def test_what_a_dead_export_has_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """Not what one that lives has written by then, to the same place or to another."""
    places = [tmp_path / "savepoint", tmp_path / "savepoint", tmp_path / "other"]
    dead, living, other = (SavepointDirectory(place) for place in places)
    for target in (dead, living, other):
        target.directory.write("file", b"state")
    dead._release()  # as the system does it for a process that is killed
    following = SavepointDirectory(tmp_path / "savepoint")
    left = {target.directory.root for target in (living, other, following)}
    assert {str(path) for path in tmp_path.iterdir()} == left
    assert living.directory.read("file") == b"state"


def test_a_savepoint_that_misses_a_file_is_not_made(wordcount: Path, tmp_path: Path) -> None:
    """As when somebody else has removed it from what is being written."""
    target = SavepointDirectory(tmp_path / "savepoint")
    with pytest.raises(MissingFileError):
        target.commit(read_metadata((wordcount / "_metadata").read_bytes()))
    target.abandon()
    assert list(tmp_path.iterdir()) == []


def test_runs_are_written_by_key_group() -> None:
    """A state's id is before its first run, and the last entry of a state and key group says so."""
    runs = [
        SnapshotRun(group, state, entries_of(state, group, [bytes([group]) + b"k"], [b"v"]))
        for group, state in ((0, 2), (1, 0), (1, 0), (1, 2), (3, 0), (3, 2))
    ]

    def entry(group: int, *, last: bool) -> bytes:
        head = bytes([0x80 | group if last else group, group])
        return b"\0\0\0\x03" + head + b"k" + b"\0\0\0\x01v"

    zero, two, end = b"\0\0", b"\0\x02", b"\xff\xff"
    assert list(unified_pieces(runs, 1)) == [
        (0, two + entry(0, last=True) + end),
        (1, zero + entry(1, last=False)),
        (None, entry(1, last=True)),
        (None, two + entry(1, last=True) + end),
        (3, zero + entry(3, last=True)),
        (None, two + entry(3, last=True) + end),
    ]
