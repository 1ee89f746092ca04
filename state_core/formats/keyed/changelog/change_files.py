"""Files of changes (DSTL), which the changelog backend writes beside its checkpoints.

::

    file        u8 1 if one Snappy stream follows, else 0; then change sets of any subtasks of any
    operators, concatenated; a handle has the offset of each of its own,
                behind the first byte and without compression
    change set  i32 n, n times: i32 count, i32 key group, count changes in their order; key group
                -1, if there, is the first, all others come in any order
    change      i32 length, that many bytes                                  (`change_replay`)

Metadata of states (`change_log`) are changes of key group -1.

Source: `StateChangeFormat`, `OutputStreamWithPos` and `ChangelogStreamWrapper` in
`org.apache.flink.changelog.fs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import RLock

import numpy as np

from statelake.state_core.bounds import HEAD_BYTES, KEY_GROUPS, SHARED_BYTES, STATES
from statelake.state_core.errors import CorruptSnapshotError
from statelake.state_core.files.compression import open_stream
from statelake.state_core.files.copies import Copies
from statelake.state_core.files.filesystem import ByteSource, FileSource, InlineSource
from statelake.state_core.kernels.changes import skip_changes
from statelake.state_core.serializers.framework.columns import I64Array, U8Array

METADATA_GROUP = -1
RUN_HEAD = 8
LEAST_CHANGE = 4
FIRST_WINDOW = 4 << 10
WINDOW_BYTES = 4 << 20
REMEDY = "the log is damaged or was not copied whole: fetch its files again"


@dataclass(frozen=True)
class _Runs:
    """The positions of each key group's changes in a change set; its key groups, ascending."""

    groups: I64Array
    starts: I64Array
    ends: I64Array
    counts: I64Array


class ChangeFile:
    """A file of changes, readable without compression.

    Args:
        source: Its bytes.
        copies: The place for a copy of a source that is compressed or in an object store.

    Attributes:
        content: The bytes behind the first one, decompressed.
    """

    def __init__(self, source: ByteSource, copies: Copies) -> None:
        self.name = source.name
        first = np.empty(1, np.uint8)
        source.read_into(0, first)
        if first[0] > 1:
            raise CorruptSnapshotError(
                f"a file of changes that begins with {int(first[0])}, which is neither 0 nor 1",
                place=f"{source.name}, offset 0",
                remedy=REMEDY,
            )
        self.compressed = bool(first[0])
        self.content = _content(source, copies, compressed=self.compressed)
        self._lock = RLock()
        self._runs: dict[int, _Runs] = {}
        self._metadata: dict[int, list[tuple[int, bytes]]] = {}
        self._read_bytes = self._searched_bytes = 0

    def place(self, at: int) -> str:
        """Return the name of a position in the content."""
        if self.compressed:
            return f"{self.name}, offset {at} when decompressed"
        return f"{self.name}, offset {at + 1}"

    def fault(self, problem: str, at: int) -> CorruptSnapshotError:
        """Return the error for invalid bytes at a position in the content."""
        return CorruptSnapshotError(problem, place=self.place(at), remedy=REMEDY)

    def numbers(self, at: int, count: int) -> list[int]:
        """Return `count` i32 from a position on."""
        if at < 0 or at + 4 * count > self.content.size:
            raise self.fault(f"a change set outside the {self.content.size} bytes of the log", at)
        head = np.empty(4 * count, np.uint8)
        self.content.read_into(at, head)
        return [int(number) for number in head.view(">i4")]

    def runs(self, at: int) -> _Runs:
        """Return the positions of the changes of the change set at an offset."""
        with self._lock:
            if at not in self._runs:
                self._runs[at] = self._find_runs(at)
            return self._runs[at]

    def metadata(self, at: int) -> list[tuple[int, bytes]]:
        """Return the metadata changes of the change set at an offset, each with its position.

        Raises:
            SnapshotError: The changes can't be read, or change sets overlap too much.
        """
        with self._lock:
            if at not in self._metadata:
                self._metadata[at] = self._read_metadata(at)
            return self._metadata[at]

    def count_bytes_read(self, size: int) -> None:
        """Count the bytes that are read for one operator.

        Raises:
            OversizedError: Too many handles lead to the same bytes.
        """
        with self._lock:
            self._read_bytes += size
            self._check_shared(self._read_bytes)

    def _count_bytes_searched(self, size: int) -> None:
        """Count the bytes that are read once for each change set, as these may not all overlap."""
        self._searched_bytes += size
        self._check_shared(self._searched_bytes)

    def _check_shared(self, size: int) -> None:
        if size > SHARED_BYTES.most * self.content.size:
            raise SHARED_BYTES.exceeded(-(-size // max(1, self.content.size)), self.name)

    def _read_metadata(self, at: int) -> list[tuple[int, bytes]]:
        (count,) = self.numbers(at, 1)
        if count == 0:
            return []
        changes, group = self.numbers(at + 4, 2)
        if group != METADATA_GROUP:
            return []
        self._check_run(changes, at + 4)
        STATES.check(changes, self.place(at + 4))
        described, position = [], at + 4 + RUN_HEAD
        for _ in range(changes):
            (length,) = self.numbers(position, 1)
            position += 4
            if not 0 <= length <= self.content.size - position:
                raise self.fault(f"a change of {length} bytes", position - 4)
            HEAD_BYTES.check(length, self.place(position))
            self._count_bytes_searched(length)
            change = np.empty(length, np.uint8)
            self.content.read_into(position, change)
            described.append((position, change.tobytes()))
            position += length
        return described

    def _check_run(self, count: int, at: int) -> None:
        if not 0 < count <= (self.content.size - at) // LEAST_CHANGE:
            raise self.fault(f"{count} changes of one key group", at)

    def _find_runs(self, at: int) -> _Runs:
        (number,) = self.numbers(at, 1)
        if not 0 <= number <= KEY_GROUPS.most + 1:
            raise self.fault(f"a change set of {number} key groups", at)
        table = np.empty((4, number), np.int64)
        position = at + 4
        window = _Window(self.content)
        for index in range(number):
            count, group = self.numbers(position, 2)
            self._check_run(count, position)
            if not (METADATA_GROUP if index == 0 else 0) <= group < KEY_GROUPS.most:
                raise self.fault(f"changes of key group {group}", position + 4)
            start = position + RUN_HEAD
            position = self._behind(window, start, count)
            self._count_bytes_searched(position - start)
            table[:, index] = group, start, position, count
        table = table[:, np.argsort(table[0], kind="stable")]
        twice = np.flatnonzero(table[0, 1:] == table[0, :-1])
        if twice.size:
            group, start = table[:2, twice[0] + 1].tolist()
            raise self.fault(f"changes of key group {group} for the second time", start - 4)
        return _Runs(*table)

    def _behind(self, window: _Window, start: int, count: int) -> int:
        """Return the end of `count` changes."""
        at, left = start, count
        while left:
            begin, data = window.around(at)
            inside = np.array([at - begin], np.int64)
            passed = int(skip_changes(data, left, inside))
            at = begin + int(inside[0])
            if passed < 0:
                raise self.fault("a change of less than no bytes", at)
            if passed == 0 or at > self.content.size:
                raise self.fault("changes that lead past the end of the log", start)
            left -= passed
        return at


class _Window:
    """A window over a source, which grows as it moves on."""

    def __init__(self, source: ByteSource) -> None:
        self.source, self.room = source, FIRST_WINDOW
        self.begin, self.data = 0, np.empty(0, np.uint8)

    def around(self, at: int) -> tuple[int, U8Array]:
        """Return the window with the length of a change at a position: its start, and its bytes."""
        if not self.begin <= at <= self.begin + self.data.size - LEAST_CHANGE:
            self.begin = at
            self.data = np.empty(max(0, min(self.room, self.source.size - at)), np.uint8)
            self.room = min(2 * self.room, WINDOW_BYTES)
            if self.data.size:
                self.source.read_into(at, self.data)
        return self.begin, self.data


def _content(source: ByteSource, copies: Copies, *, compressed: bool) -> ByteSource:
    """Return the bytes behind the first one: the source if it has random access, else a copy."""
    if not compressed and isinstance(source, InlineSource):
        return InlineSource(source.name, source.data[1:])
    if not compressed and isinstance(source, FileSource) and source.directory.local:
        return FileSource(source.directory, source.path, source.start + 1, source.size - 1)
    stream = open_stream(source, 1, source.size, compressed=compressed)
    return copies.add(stream, source.name)
