"""Changelogs: a log of every put and delete for each store, which outlives the task's host.

`Changelog` is one partition. Offsets increase and are never reused; a compaction leaves gaps.
Changes are durable when `flush` returns, and possibly earlier.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from threading import Lock
from typing import IO, NamedTuple, Protocol

from statelake.state_core.errors import CheckpointRecordError, CommitError, MissingFileError
from statelake.state_core.files.confinement import ConfinedTree, is_part, relative_path
from statelake.state_core.runtime.commit.records.records import SystemStreamPartition

BATCH_BYTES = 1 << 18
BATCH_CHANGES = 1000  # of those that are rewritten
SEGMENT_BYTES = 1 << 26
LARGEST_OFFSET = 1 << 62
RELATIVE_OFFSETS = 1 << 32  # what a batch's first offset and its last are apart, at most
_SUFFIX = ".log"
_SEGMENT = re.compile(r"\d{20}\.log", re.ASCII)
_BATCH = struct.Struct(">IIQ")  # checksum of the rest, bytes of changes, first offset
_CHANGE = struct.Struct(">IIi")  # relative offset, length of key, of value: -1 if deleted
_DAMAGED = "restore from another backend, and remove the changelog: a commit writes it anew"


def never_cancel() -> None:
    """Do nothing: a wait that is never cancelled."""


class Change(NamedTuple):
    """A put or a delete."""

    offset: int
    key: bytes
    value: bytes | None


class Changelog(Protocol):
    """One partition of a changelog, written by one task."""

    def append(self, key: bytes, value: bytes | None) -> None:
        """Append a put or a delete."""

    def flush(self) -> None:
        """Write everything that was appended durably."""

    def newest(self) -> int | None:
        """Return the offset of the last durable change; None before the first one."""

    def read(
        self, start: int = 0, end: int | None = None, waiting: Callable[[], None] = never_cancel
    ) -> Iterator[Change]:
        """Yield the changes from one offset to another, both included; by default to the newest.

        Args:
            start: The first offset.
            end: The last offset.
            waiting: Called twice a second while no data arrives; may raise to cancel.
        """

    def compact(self, end: int) -> None:
        """Remove changes up to an offset that a later one of their key replaces.

        Afterwards the log only has the state at this offset and at later ones.
        """

    def close(self) -> None:
        """Close the partition without flushing."""


class Changelogs(Protocol):
    """All partitions of all changelogs.

    Attributes:
        compaction_lag: Milliseconds after which a log may compact itself before a marker; None if
            it never does.
    """

    compaction_lag: int | None

    def open(self, partition: SystemStreamPartition) -> Changelog:
        """Open one partition."""

    def create(self, stream: str, partitions: int) -> None:
        """Create a stream unless it exists."""

    def validate(self, stream: str, partitions: int) -> None:
        """Check that a stream has this number of partitions.

        Raises:
            CommitError: The stream has another number of partitions.
        """


class FileChangelogs:
    """The embedded changelogs: files below a directory that outlives the host, such as a mount.

    A partition is a directory of segments, each named by its first offset; changes are appended
    only to the last one. A batch has a checksum, so that one that a crash cut off is detected; it
    is removed by the first change behind it, and by nothing else.

    Args:
        root: The directory.
        segment_bytes: The size at which a new segment begins.
    """

    compaction_lag: int | None = None  # it is compacted only on request

    def __init__(self, root: str | os.PathLike[str], segment_bytes: int = SEGMENT_BYTES) -> None:
        self._tree = ConfinedTree(os.fspath(root))
        self.segment_bytes = segment_bytes

    def create(self, stream: str, partitions: int) -> None:
        """Do nothing: partitions are created when they are opened."""

    def validate(self, stream: str, partitions: int) -> None:
        """Do nothing: every partition exists."""

    def open(self, partition: SystemStreamPartition) -> _FileChangelog:
        """Open the segments of a partition.

        Raises:
            UnsafePathError: A name leads out of the directory.
        """
        system, stream = f"system={partition.system}", f"stream={partition.stream}"
        folder = relative_path(
            f"{system}/{stream}/{partition.partition}",
            what="a changelog",
            inside="the directory of changelogs",
        )
        return _FileChangelog(self._tree, folder, self.segment_bytes)

    def partitions(self) -> list[SystemStreamPartition]:
        """Return the partitions that have a directory."""
        partitions = []
        for system in self._tree.names():
            for stream in self._tree.names(system) if system.startswith("system=") else ():
                for number in self._tree.names(f"{system}/{stream}"):
                    if stream.startswith("stream=") and number.isdecimal():
                        names = system.partition("=")[2], stream.partition("=")[2]
                        partitions.append(SystemStreamPartition(*names, int(number)))
        return partitions

    def erase(self, partition: SystemStreamPartition, goes: Callable[[Change], bool]) -> int:
        """Remove changes from all segments of a closed partition; return their number.

        Offsets are not reused: an empty segment replaces a removed last change.

        Raises:
            CheckpointRecordError: A batch is damaged; its segment is unchanged.
        """
        changelog = self.open(partition)
        try:
            return changelog.erase(goes)
        finally:
            changelog.close()


class _FileChangelog:
    def __init__(self, tree: ConfinedTree, folder: str, segment_bytes: int) -> None:
        self._tree = tree
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._lock = Lock()
        tree.make(folder)
        self._segments = [name for name in tree.names(folder) if _SEGMENT.fullmatch(name)]
        self._buffer = bytearray()
        self._first = self._next = 0
        self._file: int | None = None
        self._found = 0  # bytes of the last segment when it was opened
        self._whole = 0  # of these, the bytes of whole batches
        self._untouched = True  # until something is appended
        self._is_named = False  # whether the segments' names are on the disk
        if self._segments:
            last = self._segments[-1]
            self._next = _first_offset(last)
            if self._next > LARGEST_OFFSET:
                raise CheckpointRecordError(
                    f"a segment begins at {self._next}",
                    place=f"{tree.anchor}/{self._path(last)}",
                    remedy=_DAMAGED,
                )
            self._found = self._size(last)
            for end, changes in deque(self._batches(last, [last], opening=True), maxlen=1):
                self._whole = end
                self._next = list(changes)[-1].offset + 1
        self._flushed = self._next
        self._first = self._next

    def _path(self, segment: str) -> str:
        return f"{self._folder}/{segment}"

    def _size(self, segment: str) -> int:
        status = self._tree.status(self._path(segment))
        return 0 if status is None else status.st_size

    def append(self, key: bytes, value: bytes | None) -> None:
        length = -1 if value is None else len(value)
        self._buffer += _CHANGE.pack(self._next - self._first, len(key), length)
        self._buffer += key
        if value:
            self._buffer += value
        self._next += 1
        if len(self._buffer) >= BATCH_BYTES:
            self._write()

    def flush(self) -> None:
        self._write()
        if self._file is not None:
            os.fsync(self._file)
            if not self._is_named:  # by this process, or by a killed one
                self._tree.sync_files([self._path(self._segments[-1])])
                self._is_named = True
        self._flushed = self._next

    def newest(self) -> int | None:
        return self._flushed - 1 if self._flushed else None

    def read(
        self, start: int = 0, end: int | None = None, waiting: Callable[[], None] = never_cancel
    ) -> Iterator[Change]:
        with self._lock:
            segments = list(self._segments)
        behind = [*(_first_offset(segment) for segment in segments[1:]), None]
        for segment, following in zip(segments, behind, strict=False):
            if following is not None and following <= start:
                continue
            for change in self._from(segment, segments[-1:], start):
                if end is not None and change.offset > end:
                    return
                if change.offset >= start:
                    yield change
                if change.offset == end:
                    return  # what is behind it need not be whole

    def compact(self, end: int) -> None:
        """Compact whole segments, but never the last one, when they have twice what is needed.

        The first segment is what the last compaction left; those behind it were written since.
        """
        self._remove_left_parts()
        with self._lock:
            sealed = [
                segment
                for segment, following in zip(self._segments, self._segments[1:], strict=False)
                if _first_offset(following) <= end + 1
            ]
        sizes = [self._size(segment) for segment in sealed]
        if len(sealed) < 2 or sum(sizes[1:]) < sizes[0]:
            return
        changes = [change for segment in sealed for change in self._from(segment, [], 0)]
        # after a crash here changes are there twice, in their order: the state is the same
        self._rewrite(sealed[0], compacted(changes, end))
        with self._lock:
            self._segments = [segment for segment in self._segments if segment not in sealed[1:]]
        for gone in sealed[1:]:
            self._tree.remove(self._path(gone))

    def erase(self, goes: Callable[[Change], bool]) -> int:
        """Rewrite segments without some changes, and return the number of removed changes."""
        self._remove_left_parts()
        erased = 0
        last = self._segments[-1:]
        for segment in last if self._whole < self._found else ():
            # a batch that was cut off may have what goes, and no segment can follow it
            self._rewrite(segment, list(self._from(segment, last, 0)))
        for segment in self._segments:
            changes = list(self._from(segment, last, 0))
            kept = [change for change in changes if not goes(change)]
            if len(kept) < len(changes):
                if not erased and _first_offset(self._segments[-1]) < self._next:
                    self._rewrite(f"{self._next:020}{_SUFFIX}", [])
                self._rewrite(segment, kept)
                erased += len(changes) - len(kept)
        return erased

    def _rewrite(self, segment: str, changes: Iterable[Change]) -> None:
        self._tree.write(self._path(segment), _in_batches(changes))

    def _remove_left_parts(self) -> None:
        """Remove what killed processes left of segments that they rewrote."""
        for name in filter(is_part, self._tree.names(self._folder)):
            self._tree.remove_left_part(self._path(name))

    def close(self) -> None:
        self._buffer.clear()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self) -> None:
        if not self._buffer:
            return
        if self._file is None:
            self._open()
        elif os.fstat(self._file).st_size >= self._segment_bytes:
            os.fsync(self._file)
            os.close(self._file)
            self._open(new=True)
        assert self._file is not None  # noqa: S101 - for the type checker
        rest = memoryview(_batch(self._first, bytes(self._buffer)))
        while rest:
            rest = rest[os.write(self._file, rest) :]
        self._buffer.clear()
        self._first = self._next

    def _open(self, *, new: bool = False) -> None:
        with self._lock:
            new = new or not self._segments
            if new:
                self._segments.append(f"{self._first:020}{_SUFFIX}")
            path = self._path(self._segments[-1])
        file = self._tree.create(path) if new else self._tree.append(path)
        if new:
            self._is_named = False
        elif self._untouched:
            if os.fstat(file).st_size != self._found:
                os.close(file)
                raise CommitError(
                    "another process has appended to the changelog since it was opened",
                    place=f"{self._tree.anchor}/{path}",
                    remedy="end the other process, and run again: what it appended is undone",
                )
            os.ftruncate(file, self._whole)
        self._file = file
        self._untouched = False

    def _from(self, segment: str, last: list[str], start: int) -> Iterator[Change]:
        """Yield the changes of a segment; batches that end before an offset are not parsed."""
        pending: _Changes | None = None
        try:
            for _, changes in self._batches(segment, last):
                if pending is not None and changes.first > start:
                    yield from pending
                pending = changes
        except CheckpointRecordError:
            # a reader may need no more than what is before the damage
            yield from pending or ()
            raise
        yield from pending or ()

    def _batches(
        self, segment: str, last: list[str], *, opening: bool = False
    ) -> Iterator[tuple[int, _Changes]]:
        """Yield the batches of a segment: the end and the changes of each.

        The last segment may be cut off; what is opened ends before what is damaged, since a reader
        that needs it is told.

        Raises:
            CheckpointRecordError: Another segment is cut off, or a batch is damaged.
        """
        path, first_offset = self._path(segment), _first_offset(segment)
        try:
            file = os.fdopen(self._tree.open(path), "rb")
        except MissingFileError:
            if self._tree.status(path) is not None:
                raise
            return  # it was compacted away meanwhile: its changes were read before
        with file:
            end, size = 0, os.fstat(file.fileno()).st_size
            while head := file.read(_BATCH.size):
                place = f"{self._tree.anchor}/{path}, offset {end}"
                checksum, length, first = _BATCH.unpack(head.ljust(_BATCH.size, b"\0"))
                after = end + _BATCH.size + length
                data = file.read(length) if after <= size else b""
                if not data or zlib.crc32(data, zlib.crc32(head[4:])) != checksum:
                    # a crash leaves nothing behind what it cut off, or zeros never written
                    if segment in last and (opening or after >= size or _is_zeros(file)):
                        return
                    raise CheckpointRecordError("a batch is damaged", place=place, remedy=_DAMAGED)
                if not first_offset <= first <= LARGEST_OFFSET:
                    raise CheckpointRecordError(
                        f"a batch begins at {first}", place=place, remedy=_DAMAGED
                    )
                end = after
                yield end, _Changes(first, data, place)


def _is_zeros(file: IO[bytes]) -> bool:
    """Return whether the rest of a file is zeros."""
    return not any(piece.strip(b"\0") for piece in iter(lambda: file.read(BATCH_BYTES), b""))


def _first_offset(segment: str) -> int:
    return int(segment.removesuffix(_SUFFIX))


def compacted(changes: list[Change], end: int) -> list[Change]:
    """Return changes without those up to an offset that a later one of their key replaces."""
    last = {change.key: change.offset for change in changes if change.offset <= end}
    return [
        change
        for change in changes
        if change.offset > end or (last[change.key] == change.offset and change.value is not None)
    ]


def _batch(first: int, data: bytes) -> bytes:
    rest = _BATCH.pack(0, len(data), first)[4:] + data
    return struct.pack(">I", zlib.crc32(rest)) + rest


def _in_batches(changes: Iterable[Change]) -> Iterator[bytes]:
    """Yield changes as batches, encoded."""
    batch: list[Change] = []
    size = 0
    for change in changes:
        is_full = len(batch) == BATCH_CHANGES or size >= BATCH_BYTES
        if batch and (is_full or change.offset - batch[0].offset >= RELATIVE_OFFSETS):
            yield _encoded(batch)
            batch, size = [], 0
        batch.append(change)
        size += len(change.key) + len(change.value or b"")
    if batch:
        yield _encoded(batch)


def _encoded(changes: list[Change]) -> bytes:
    first = changes[0].offset
    data = bytearray()
    for offset, key, value in changes:
        data += _CHANGE.pack(offset - first, len(key), -1 if value is None else len(value))
        data += key
        data += value or b""
    return _batch(first, bytes(data))


class _Changes:
    """The changes of a batch, which are parsed when they are read.

    Args:
        first: The first offset.
        data: The changes, encoded.
        place: The place of the batch, for messages.
    """

    def __init__(self, first: int, data: bytes, place: str) -> None:
        self.first = first
        self._data = data
        self._place = place

    def __iter__(self) -> Iterator[Change]:
        """Yield the changes.

        Raises:
            CheckpointRecordError: The batch has something else, though its checksum is right.
        """
        data = self._data
        at, size, head, least = 0, len(data), _CHANGE.size, 0
        while at < size:
            has_head = size - at >= head
            offset, keys, values = _CHANGE.unpack_from(data, at) if has_head else (0, 0, -2)
            middle = at + head + keys
            at = middle + max(0, values)
            if values < -1 or at > size or offset < least:
                raise CheckpointRecordError(
                    "a batch has something else than changes",
                    place=self._place,
                    remedy=_DAMAGED,
                )
            least = offset + 1
            value = None if values < 0 else data[middle:at]
            yield Change(self.first + offset, data[middle - keys : middle], value)
