"""Bytes that several tasks move into one file: each run of a task leaves the same."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from statelake.state_core.errors import MissingFileError, SnapshotError, TruncatedError
from statelake.state_core.files import confinement
from statelake.state_core.files import moves as moving
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.files.moves import Move, move_all, plan_moves

PARTS = {"first": b"0123", "second": b"-456789-", "third": b"ab"}


@pytest.fixture(autouse=True)
def _blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "COPY_BYTES", 4)


def moves(root: Path) -> list[Move]:
    """Moves of a part without its ends, and of a whole one, behind the first."""
    for name, data in PARTS.items():
        (root / name).write_bytes(data)
    directory = Directory(root).confined()
    return [
        Move(directory, "second", 1, 7, "first", 4),
        Move(directory, "third", 0, 2, "first", 10),
    ]


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 0, 1), (1, 0, 1, 0)])
def test_every_order_and_every_repetition_leaves_the_same(
    order: tuple[int, ...], tmp_path: Path
) -> None:
    """The bytes are in their places, and what they were in takes no room."""
    tasks = moves(tmp_path)
    for number in order:
        move_all([tasks[number]])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "first": b"0123456789ab", "second": b"", "third": b"",
    }  # fmt: skip


def test_a_run_that_was_cut_off_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part stays whole until all of it is in its place."""
    task, _ = moves(tmp_path)
    write = os.pwrite

    def killed(file: int, data: bytes, at: int) -> int:
        if at > 4:
            raise KeyboardInterrupt
        return write(file, data, at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", killed)
        with pytest.raises(KeyboardInterrupt):
            move_all([task])
    assert (tmp_path / "second").read_bytes() == PARTS["second"]
    move_all([task])
    assert (tmp_path / "first").read_bytes() == b"0123456789"


def test_another_run_that_was_faster_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part is empty all at once, as the other has moved it to the same place."""
    task, _ = moves(tmp_path)
    write = os.pwrite

    def overtaken(file: int, data: bytes, at: int) -> int:
        monkeypatch.setattr(os, "pwrite", write)
        move_all([task])
        return write(file, data, at)

    monkeypatch.setattr(os, "pwrite", overtaken)
    move_all([task])
    assert (tmp_path / "first").read_bytes() == b"0123456789"


def test_what_another_run_reads_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS would give it zeros for a file that was cut off, which it had opened when it was long."""
    task, _ = moves(tmp_path)
    with (tmp_path / "second").open("rb") as opened:
        move_all([task])
        assert opened.read() == PARTS["second"]
    assert (tmp_path / "second").read_bytes() == b""
    task, _ = moves(tmp_path)
    read = os.pread

    def stale(*_: object) -> bytes:
        monkeypatch.setattr(os, "pread", read)
        move_all([task])
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(os, "pread", stale)
    move_all([task])
    assert (tmp_path / "first").read_bytes() == b"0123456789"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(PARTS)


def test_a_disk_that_is_full_leaves_what_was_to_be_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS says so when the file is closed, and no other run may take the part for moved then."""
    task, _ = moves(tmp_path)
    close = os.close

    def full(file: int) -> None:
        into = os.path.samestat(os.fstat(file), (tmp_path / "first").stat())
        close(file)
        if into:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", full)
        with pytest.raises(SnapshotError, match="quota"):
            move_all([task])
    assert (tmp_path / "second").read_bytes() == PARTS["second"]


def test_a_file_that_can_not_be_as_long_is_our_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the system says is told with the file's name."""

    def full(*_: object) -> None:
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(os, "ftruncate", full)
    with pytest.raises(SnapshotError, match="File too large") as caught:
        plan_moves(moves(tmp_path))
    assert caught.value.place == str(tmp_path / "first")


def test_what_is_missing_is_an_error(tmp_path: Path) -> None:
    """A part that is shorter than it was, or gone; the file, which nobody makes."""
    whole, _ = moves(tmp_path)
    (tmp_path / "second").write_bytes(b"-45")
    with pytest.raises(TruncatedError, match="second, offset 1"):
        move_all([whole])
    (tmp_path / "second").unlink()
    with pytest.raises(MissingFileError, match="second"):
        move_all([whole])
    (tmp_path / "first").unlink()
    with pytest.raises(MissingFileError, match="first"):
        move_all([whole])
    assert not (tmp_path / "first").exists()


def test_tasks_are_of_one_file_and_of_some_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All moves are in them, in order; what is large is not cut; files have their length."""
    monkeypatch.setattr(moving, "TASK_BYTES", 10)
    directory = Directory(tmp_path).confined()
    (tmp_path / "a").write_bytes(b"as long as it may be")
    (tmp_path / "b").write_bytes(b"")
    places = [("a", 1, 4), ("b", 0, 30), ("a", 5, 6), ("b", 30, 1), ("a", 11, 2), ("a", 13, 1)]
    moves = [Move(directory, "part", 0, size, to, at) for to, at, size in places]
    tasks = [[(move.to, move.size) for move in task] for task in plan_moves(moves)]
    assert tasks == [[("a", 4), ("a", 6)], [("a", 2), ("a", 1)], [("b", 30)], [("b", 1)]]
    assert [(tmp_path / name).stat().st_size for name in "ab"] == [14, 31]
