"""Files of object stores: the bytes that are wanted, in few requests."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from state_core.errors import TruncatedError
from state_core.files import file_sources
from state_core.files.file_sources import FIRST_AHEAD, MOST_AHEAD, PART, RemoteFile

SIZE = 40 << 20
DATA = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)


class Counted:
    """A file that keeps what it was asked for."""

    def __init__(self) -> None:
        self.file = pa.BufferReader(pa.py_buffer(DATA))
        self.asked: list[tuple[int, int]] = []

    def size(self) -> int:
        """Its bytes."""
        return SIZE

    def read_at(self, size: int, offset: int) -> bytes:
        """Some of them."""
        self.asked.append((offset, size))
        return DATA[offset : offset + size].tobytes()


def read(remote: RemoteFile, offset: int, size: int) -> None:
    """Read, and hold it against the bytes that there are."""
    out = np.zeros(size, np.uint8)
    remote.read_into(offset, out)
    assert np.array_equal(out, DATA[offset : offset + size])


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
    kept = file_sources._OfThread()
    monkeypatch.setattr(file_sources, "_OF_THREAD", kept)
    monkeypatch.setattr(file_sources, "MOST_OF_A_THREAD", FIRST_AHEAD)
    for _ in range(20):
        remote = RemoteFile(Counted(), "file")
        for at in range(0, 1000, 100):
            read(remote, at, 100)
    assert sum(ahead.data.size for ahead in kept.aheads.values()) <= FIRST_AHEAD
    assert MOST_AHEAD >= FIRST_AHEAD


def test_a_file_that_ends_too_soon() -> None:
    """Said with its name, and nothing is asked."""
    file = Counted()
    with pytest.raises(TruncatedError, match="the file, offset"):
        RemoteFile(file, "the file").read_into(SIZE - 1, np.zeros(2, np.uint8))
    assert file.asked == []
