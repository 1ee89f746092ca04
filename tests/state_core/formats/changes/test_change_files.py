"""Files of changes one by one: what they take of the system, and what they cost to read."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from statelake.state_core.errors import OversizedError, SnapshotError
from statelake.state_core.files.compression import compress_snappy
from statelake.state_core.files.copies import Copies
from statelake.state_core.files.filesystem import InlineSource
from statelake.state_core.formats.keyed.changelog.change_files import ChangeFile
from statelake.state_core.formats.keyed.changelog.change_log import ChangeLog, _ChangeSet
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.serializers.framework.columns import U8Array

DESCRIPTORS = Path("/proc/self/fd")


def change_set(*changes: tuple[int, Sequence[bytes]]) -> bytes:
    """A change set of key groups and their changes."""
    pieces = [len(changes).to_bytes(4, "big")]
    for group, of_group in changes:
        pieces += [len(of_group).to_bytes(4, "big"), group.to_bytes(4, "big", signed=True)]
        for change in of_group:
            pieces += [len(change).to_bytes(4, "big"), change]
    return b"".join(pieces)


def compressed_log(number: int, copies: Copies) -> ChangeFile:
    """A compressed log whose only change is of the key group of that number."""
    content = change_set((number, [b"\1\0\0"]))
    data = b"\1" + bytes(compress_snappy(content))
    return ChangeFile(InlineSource(f"log-{number}", data), copies)


def test_copies_of_many_logs_are_one_open_file() -> None:
    """However many compressed logs a checkpoint has; each reads what is its own."""
    copies, before = Copies(), len(list(DESCRIPTORS.iterdir()))
    logs = [compressed_log(number, copies) for number in range(100)]
    assert len(list(DESCRIPTORS.iterdir())) == before + 1
    assert [log.runs(0).groups.tolist() for log in logs] == [[number] for number in range(100)]
    with pytest.raises(SnapshotError, match="wanted"):
        logs[0].content.read_into(logs[0].content.size, np.empty(1, np.uint8))


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EMFILE])
def test_no_room_for_a_copy(fault: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said of which log, and what to do; there is room again, and nothing is amiss."""
    copies = Copies()
    compressed_log(1, copies)

    def refuse(*_: object) -> int:
        raise OSError(fault, os.strerror(fault))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", refuse)
        with pytest.raises(SnapshotError, match=os.strerror(fault)) as told:
            compressed_log(2, copies)
    assert (told.value.place, "TMPDIR" in told.value.remedy) == ("log-2", True)
    assert compressed_log(3, copies).runs(0).groups.tolist() == [3]


@dataclass
class CountedSource:
    """Bytes in memory; counts those that are read."""

    source: InlineSource
    read: int = 0

    @property
    def name(self) -> str:
        """What it is."""
        return self.source.name

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return self.source.size

    def read_into(self, offset: int, out: U8Array) -> None:
        """Copy, and count."""
        self.read += out.size
        self.source.read_into(offset, out)


def counted_log(data: bytes) -> tuple[ChangeFile, CountedSource]:
    """A log without compression, and what counts the bytes that are read of its content."""
    log = ChangeFile(InlineSource("log", b"\0" + data), Copies())
    log.content = counted = CountedSource(InlineSource("log", data))
    return log, counted


def test_small_change_sets_are_found_with_small_reads() -> None:
    """Of a large file each takes some thousand bytes, not millions."""
    small = change_set((0, [b"\1\0\0"]))
    log, counted = counted_log(small * 100_000)
    for number in range(100):
        assert log.runs(number * len(small)).ends.tolist() == [(number + 1) * len(small)]
    assert counted.read <= 100 * (4096 + 12)


def test_a_large_change_set_is_found_with_few_bytes_more_than_it_has() -> None:
    """Reads become larger as it goes on."""
    changes = [b"\1\0\0" + bytes(position % 300) for position in range(50_000)]
    log, counted = counted_log(change_set((5, changes)) + bytes(10 << 20))
    (end,) = log.runs(0).ends.tolist()
    assert end == 12 + sum(4 + len(change) for change in changes)
    assert counted.read < 3 * end


def nested(group: int, count: int) -> bytes:
    """Change sets each of which holds all that follow in its only change."""
    data = b"\1\0\0"
    for _ in range(count):
        data = change_set((group, [data]))
    return data


@pytest.mark.parametrize("group", [-1, 0], ids=["metadata", "changes"])
def test_change_sets_within_each_other(group: int) -> None:
    """They are refused before much was read; a file's own size some times is the most."""
    data = nested(group, 1000)
    log, counted = counted_log(data)
    find = log.metadata if group == -1 else log.runs
    with pytest.raises(OversizedError, match="times that handles lead to the same bytes"):
        list(map(find, range(0, 16_000, 16)))
    assert counted.read < 20 * len(data)


def test_metadata_of_one_change_set_for_many_subtasks() -> None:
    """After a restore at a higher parallelism each asks for it: it counts, and is read, once."""
    log, counted = counted_log(change_set((-1, [bytes(5000)])))
    described = log.metadata(0)
    read = counted.read
    assert all(log.metadata(0) == described for _ in range(100))
    assert (counted.read, described) == (read, [(16, bytes(5000))])


def test_bytes_count_once_however_many_threads_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads that begin with the same log at once."""
    change = b"\1\0\0" + bytes(1000)
    sets = [change_set((group, [change])) for group in range(20)]
    log, _ = counted_log(b"".join(sets))
    count = log.count_bytes_read

    def count_slowly(size: int) -> None:
        time.sleep(0.002)  # others go on meanwhile
        count(size)

    monkeypatch.setattr(log, "count_bytes_read", count_slowly)
    owned = tuple(_ChangeSet(log, len(sets[0]) * group, {0: 0}) for group in range(20))
    changes = ChangeLog(owned, (), KeyGroupRange(0, 19))
    with ThreadPoolExecutor(8) as threads:
        sizes = list(threads.map(ChangeLog.group_bytes, [changes] * 8))
    assert sizes == [dict.fromkeys(range(20), 4 + len(change))] * 8
