"""Files of object stores: the bytes that are wanted, in few requests."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Barrier
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from statelake.state_core.errors import ChangedFileError, OversizedError, TruncatedError
from statelake.state_core.files import file_sources
from statelake.state_core.files.file_sources import (
    FIRST_AHEAD,
    MOST_AHEAD,
    PART,
    PARTS_AT_ONCE,
    FileSource,
    RemoteFile,
)
from statelake.state_core.files.filesystem import Directory

SIZE = 40 << 20


@cache
def data() -> npt.NDArray[np.uint8]:
    """The bytes of the file."""
    return np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)


class Counted:
    """A file that keeps what it was asked for."""

    def __init__(self) -> None:
        self.file = pa.BufferReader(pa.py_buffer(data()))
        self.asked: list[tuple[int, int]] = []

    def size(self) -> int:
        """Its bytes."""
        return SIZE

    def get_stream(self, offset: int, size: int) -> pa.NativeFile:
        """Some of them."""
        self.asked.append((offset, size))
        return self.file.get_stream(offset, size)


def read(remote: RemoteFile, offset: int, size: int) -> int:
    """Read, hold it against the bytes that there are, and return how many they were."""
    out = np.zeros(size, np.uint8)
    remote.read_into(offset, out)
    assert np.array_equal(out, data()[offset : offset + size])
    return size


def test_reads_that_follow_on_each_other_are_put_together() -> None:
    """40 MiB in pieces of 100 KB: a request for each 4 MiB, and some at the beginning."""
    file = Counted()
    remote = RemoteFile(file, "file")
    step = 100_000
    for at in range(0, SIZE, step):
        read(remote, at, min(step, SIZE - at))
    assert len(file.asked) <= SIZE // PART + 12
    assert sum(size for _, size in file.asked) == SIZE


def test_what_is_read_from_anywhere_is_asked_for_alone() -> None:
    """No byte more than is wanted."""
    file = Counted()
    remote = RemoteFile(file, "file")
    places = [(at, 1000) for at in range(SIZE - 1000, 0, -(3 << 20))]
    for offset, size in places:
        read(remote, offset, size)
    assert file.asked == places


def test_what_is_large_is_asked_for_in_parts() -> None:
    """None greater than `PART`, all of them together what was wanted."""
    file = Counted()
    read(RemoteFile(file, "file"), 5, 3 * PART + 7)
    assert sorted(file.asked) == [(5 + at * PART, PART) for at in range(3)] + [(5 + 3 * PART, 7)]


def test_any_reads_of_any_threads_give_the_bytes_of_the_file() -> None:
    """Of several files at once, from anywhere, in any size."""
    remotes = [RemoteFile(Counted(), f"file {number}") for number in range(3)]

    def look(seed: int) -> None:
        chosen = random.Random(seed)
        at = dict.fromkeys(range(3), 0)
        for _ in range(60):
            which, size = chosen.randrange(3), chosen.choice([0, 10, 5000, FIRST_AHEAD, PART + 1])
            if chosen.random() < 0.2 or at[which] + size > SIZE:
                at[which] = chosen.randrange(SIZE - PART - 1)
            read(remotes[which], at[which], size)
            at[which] += size

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(look, range(8)))


def test_what_a_thread_keeps_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many files it reads."""
    most = 8 * FIRST_AHEAD
    kept = file_sources._ThreadReadAhead(most)
    monkeypatch.setattr(file_sources, "_THREAD", kept)
    remotes = [RemoteFile(Counted(), "file") for _ in range(20)]
    for remote in remotes:
        at = 0
        for size in (1000, FIRST_AHEAD, 2 * FIRST_AHEAD, 4 * FIRST_AHEAD - 100):
            read(remote, at, size)
            at += size
    windows = {id(ahead.data.base): ahead.data.base for ahead in kept.aheads.values()}
    assert 0 < sum(window.nbytes for window in windows.values() if window is not None) <= most
    del remote, remotes
    assert len(kept.aheads) == 0, "what was read of files that are gone is kept"


def test_many_files_that_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read ahead of each is still there at its next turn: nothing is asked for twice."""
    monkeypatch.setattr(file_sources, "_THREAD", file_sources._ThreadReadAhead(16 * FIRST_AHEAD))
    files = [Counted() for _ in range(10)]
    remotes = [RemoteFile(file, "file") for file in files]
    step = 50_000
    for at in range(0, 4 << 20, step):
        for remote in remotes:
            read(remote, at, step)
    for file in files:
        assert len(file.asked) < 20
        assert sum(size for _, size in file.asked) <= (4 << 20) + MOST_AHEAD


def test_readers_do_not_wait_for_each_other() -> None:
    """Each of four that ask for four parts has all of them under way at once."""
    meeting = Barrier(4 * PARTS_AT_ONCE, timeout=30)
    met = []

    class Meeting(Counted):
        def get_stream(self, offset: int, size: int) -> pa.NativeFile:
            met.append(meeting.wait())
            return super().get_stream(offset, size)

    with ThreadPoolExecutor(4) as readers:
        sizes = list(readers.map(lambda _: read(RemoteFile(Meeting(), "f"), 0, 4 * PART), range(4)))
    assert sizes == [4 * PART] * 4
    assert sorted(met) == list(range(4 * PARTS_AT_ONCE))  # all at one meeting


def test_a_fork_reads_with_threads_of_its_own() -> None:
    """It has none of its parent's, and would wait for them for ever."""
    script = """
import io, os, signal
import numpy as np
import numpy.typing as npt
from statelake.state_core.files.file_sources import PART, RemoteFile

class Sevens:
    def size(self): return 4 * PART
    def get_stream(self, offset, size): return io.BytesIO(b"\\7" * size)

def sevens():
    out = np.zeros(4 * PART, np.uint8)
    RemoteFile(Sevens(), "file").read_into(0, out)
    return np.count_nonzero(out == 7)

print(sevens() == 4 * PART, flush=True)
child = os.fork()
if child == 0:
    signal.alarm(20)
    print(sevens() == 4 * PART, flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        check=True, timeout=60, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.stdout.split() == ["True", "True", "0"]


def test_a_file_that_ends_too_soon() -> None:
    """Said with its name, and nothing is asked."""
    file = Counted()
    with pytest.raises(TruncatedError, match="the file, offset"):
        RemoteFile(file, "the file").read_into(SIZE - 1, np.zeros(2, np.uint8))
    assert file.asked == []


class Shrunk:
    """A file of an S3 that is answered for with fewer bytes than were asked for, as Arrow does."""

    def __init__(self, left: int) -> None:
        self.left = left

    def size(self) -> int:
        """As it was."""
        return 100

    def metadata(self) -> dict[str, bytes]:
        """What S3 said when it was opened."""
        return {"ETag": b"of the longer one"}

    def get_stream(self, offset: int, size: int) -> Shrunk:
        """All of them, it is said."""
        return self

    def readinto(self, out: np.ndarray) -> int:
        """What is left."""
        out[: self.left] = 1
        return len(out)


@pytest.mark.parametrize("left", [0, 50, 99])
def test_a_file_that_got_shorter(left: int, tmp_path: Path) -> None:
    """Its missing bytes are not taken for zeros, nor for what was in memory."""
    (tmp_path / "file").write_bytes(bytes([1] * left))
    directory = Directory(tmp_path)
    remote = RemoteFile(Shrunk(left), "file", (directory, "file"))
    with pytest.raises(ChangedFileError, match="file: it has changed while it was read"):
        remote.read_into(0, np.zeros(100, np.uint8))


@pytest.mark.parametrize("left", [0, 50, 99])
def test_a_short_answer_for_a_file_that_is_the_same(left: int, tmp_path: Path) -> None:
    """A store that gives fewer bytes than the file has is not believed."""

    class Short(Shrunk):
        def metadata(self) -> dict[str, bytes]:
            return {}

    (tmp_path / "file").write_bytes(bytes([1] * 100))
    remote = RemoteFile(Short(left), "file", (Directory(tmp_path), "file"))
    with pytest.raises(TruncatedError, match=r"file, offset 0: .* fewer than 100 bytes"):
        remote.read_into(0, np.zeros(100, np.uint8))


def test_a_size_that_no_memory_has(tmp_path: Path) -> None:
    """It is what a store says, or a file full of holes has: an error that names the file."""
    (tmp_path / "file").write_bytes(b"1")
    source = FileSource(Directory(tmp_path), "file", 0, 1 << 60)
    with pytest.raises(OversizedError, match="file: 1152921504606846976 bytes"):
        source.read_all()


def test_a_last_byte_that_looks_as_if_it_was_not_read(tmp_path: Path) -> None:
    """It is asked whether the file is the same, and read again."""
    data = bytes([file_sources.NOT_READ[0]] * 100)
    (tmp_path / "file").write_bytes(data)
    directory = Directory(tmp_path)
    remote = RemoteFile(directory.open_input("file"), "file", (directory, "file"))
    out = np.zeros(100, np.uint8)
    remote.read_into(0, out)
    assert out.tobytes() == data


def test_a_source_travels_between_processes(tmp_path: Path) -> None:
    """It is opened again there, once for all that are of one file."""
    (tmp_path / "file").write_bytes(b"0123456789")
    directory = Directory(tmp_path).confined()
    remote = RemoteFile(directory.open_input("file"), "file", (directory, "file"))
    directory.is_object_store = True
    sources = [FileSource(directory, "file", start, 3, remote) for start in (2, 5)]
    with patch.object(
        type(directory),
        "source",
        return_value=FileSource(
            directory, "file", 0, 10, RemoteFile(directory.open_input("file"), "file")
        ),
    ) as opened:
        again = pickle.loads(pickle.dumps(sources))  # noqa: S301
    assert opened.call_count == 1
    assert again[0].remote is again[1].remote is not remote
    assert [source.read_all() for source in again] == [b"234", b"567"]
