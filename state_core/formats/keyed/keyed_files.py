"""Keyed state of one subtask in any format: the handle's type selects the reader.

======================  =======================================================================
handle                  read as
======================  =======================================================================
savepoint (tag 7)       the unified format
native (tags 3, 12)     the heap backend's format, or the unified one: old RocksDB checkpoints
                        and savepoints have the same tag, so the bytes decide
incremental (tag 11)    RocksDB's own files
changelog (tag 14)      the wrapped handle, with the changes in its log
======================  =======================================================================

Source: `HeapKeyedStateBackendBuilder.getRestoreOperation`,
`RocksDBKeyedStateBackendBuilder.getRocksDBRestoreOperation`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from statelake.state_core.errors import CorruptSnapshotError, UnsupportedFormatError
from statelake.state_core.files.filesystem import ByteSource
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.keyed.headed_file import Head, HeadedFile, read_head
from statelake.state_core.formats.keyed.raw_timers import (
    RawTimersFile,
    holds_timers,
    raw_spans,
    read_timers_header,
)
from statelake.state_core.formats.keyed.unified import KeyGroupSpan, UnifiedFile, spans_of
from statelake.state_core.formats.layout.meta_info import SerializerEntry
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.model.handles import (
    ChangelogByteHandle,
    ChangelogFileHandle,
    ChangelogHandle,
    IncrementalHandle,
    KeyedHandle,
    KeyGroupRange,
    KeyGroupsHandle,
    KeyGroupsKind,
    StreamHandle,
)
from statelake.state_core.model.key_groups import EncodedKey, prefix_bytes
from statelake.state_core.model.pieces import FilePiece
from statelake.state_core.model.snapshot import Entries, StateKind

# readers of other formats are imported when a handle wants them
# ruff: noqa: PLC0415

if TYPE_CHECKING:
    from statelake.state_core.formats.keyed.rocksdb_native import RocksDBFiles


def open_keyed(
    handle: KeyedHandle,
    files: StateFiles,
    max_parallelism: int,
    siblings: Siblings | None = None,
) -> HeadedFile | None:
    """Open one keyed handle; return None if it has no data.

    Args:
        handle: The handle.
        files: The files of the snapshot.
        max_parallelism: The number of key groups.
        siblings: All handles of the operator, as a changelog may need some of them.

    Raises:
        SnapshotError: The keyed state can't be read.
    """
    siblings = siblings or Siblings((handle,), files, max_parallelism)
    if isinstance(handle, ChangelogHandle):
        return _open_changelog(handle, siblings)
    return _open_backend(handle, siblings)


def _open_backend(
    handle: KeyedHandle, siblings: Siblings, *, part: bool = False
) -> HeadedFile | None:
    """Open a backend's own file; `part` if siblings may have other parts of it."""
    if isinstance(handle, KeyGroupsHandle):
        return _open_key_groups(handle, siblings, part=part)
    if isinstance(handle, IncrementalHandle):
        return _open_rocksdb(handle, siblings, part=part)
    raise CorruptSnapshotError(
        f"a {type(handle).__name__} where a backend's own handle should be",
        place=siblings.files.metadata_path,
    )


def is_timers(handle: KeyedHandle | None, files: StateFiles) -> bool:
    """Return whether raw keyed state consists of timers; otherwise only its operator can read it.

    Raises:
        SnapshotError: The handle's file does not exist.
    """
    return _raw_timers(handle, files) is not None


def open_raw_timers(
    handle: KeyedHandle | None, files: StateFiles, max_parallelism: int
) -> HeadedFile | None:
    """Open raw keyed state that consists of timers; return None for other state, or without timers.

    Raises:
        SnapshotError: The raw state consists of timers, and can't be read.
    """
    timers = _raw_timers(handle, files)
    if timers is None:
        return None
    handle, source, spans = timers
    header = read_timers_header(source, spans)
    if header is None:
        return None
    file = RawTimersFile(source, header, spans)
    head = Head(header)
    return RawTimersKeyedFile(source.name, head, handle.key_groups, max_parallelism, file)


def _raw_timers(
    handle: KeyedHandle | None, files: StateFiles
) -> tuple[KeyGroupsHandle, ByteSource, tuple[KeyGroupSpan, ...]] | None:
    """Return a handle of timers, its file, and its key groups' positions; otherwise None."""
    if not isinstance(handle, KeyGroupsHandle) or handle.stream is None:
        return None
    source = files.open(handle.stream)
    spans = raw_spans(handle, source.size, source.name)
    return (handle, source, spans) if holds_timers(source, spans) else None


def _open_changelog(handle: ChangelogHandle, siblings: Siblings) -> HeadedFile | None:
    from statelake.state_core.formats.keyed import changelog
    from statelake.state_core.formats.keyed.change_log import read_log

    files, max_parallelism = siblings.files, siblings.max_parallelism
    opened = [_open_backend(wrapped, siblings, part=True) for wrapped in _wrapped(handle)]
    bases = tuple(base for base in opened if base is not None)
    log = read_log(handle.changes, files, handle.key_groups)
    if not bases and not log.sets:
        return None
    if not log.sets and len(bases) == 1 and bases[0].key_groups == handle.key_groups:
        return bases[0]
    key = bases[0].header.key_serializer if bases else changelog.key_of_timers(log) or siblings.key
    if key is None:
        raise UnsupportedFormatError(
            "a log of changes before anything was materialized, of an operator that set no timers:"
            " nothing in it says what the keys are",
            place=log.sets[0].file.name,
            remedy="take a savepoint (flink savepoint), or the checkpoint after the next"
            " materialization (state.changelog.periodic-materialize.interval)",
        )
    name = f"{bases[0].name if bases else log.sets[0].file.name} (with a log of changes)"
    head = changelog.head_with(bases, log, key)
    return changelog.ChangelogKeyedFile(name, head, handle.key_groups, max_parallelism, bases, log)


def all_in_base(handle: ChangelogHandle) -> KeyedHandle | None:
    """Return the materialized handle, if it is the only one and has no changes; otherwise None."""
    bases = [base for base in _wrapped(handle) if not _is_empty(base)]
    logged = any(log is not None and not _is_empty(log) for log in handle.changes)
    if logged or len(bases) != 1 or bases[0].key_groups != handle.key_groups:
        return None
    return bases[0]


def _is_empty(handle: KeyedHandle) -> bool:
    """Return whether a handle has no bytes at all."""
    if isinstance(handle, KeyGroupsHandle):
        return handle.stream is None
    if isinstance(handle, IncrementalHandle):
        return handle.meta is None
    if isinstance(handle, ChangelogFileHandle):
        return all(stream is None for _, stream in handle.streams)
    return isinstance(handle, ChangelogByteHandle) and not handle.changes


def _wrapped(handle: ChangelogHandle) -> list[KeyedHandle]:
    """Return the materialized handles."""
    return [base for base in handle.materialized if base is not None]


@dataclass(frozen=True)
class Siblings:
    """All handles of an operator: one subtask's may lack information that another's has.

    Attributes:
        handles: The handles.
        files: The files of the snapshot.
        max_parallelism: The number of key groups.
    """

    handles: Collection[KeyedHandle]
    files: StateFiles
    max_parallelism: int

    @cached_property
    def key(self) -> SerializerEntry | None:
        """Return the operator's key serializer, if any handle has it.

        Raises:
            SnapshotError: A handle can't be read.
        """
        from statelake.state_core.formats.keyed.change_log import read_log
        from statelake.state_core.formats.keyed.changelog import key_of_timers

        for handle in self.handles:
            if not isinstance(handle, ChangelogHandle):
                continue
            for wrapped in _wrapped(handle):
                opened = _open_backend(wrapped, self, part=True)
                if opened is not None:
                    return opened.header.key_serializer
            key = key_of_timers(read_log(handle.changes, self.files, handle.key_groups))
            if key is not None:
                return key
        return None

    @cached_property
    def _offsets(self) -> dict[StreamHandle, list[int]]:
        """Return the start of key groups in each file, for all subtasks."""
        offsets_of: dict[StreamHandle, set[int]] = {}
        for handle in self.handles:
            for wrapped in _wrapped(handle) if isinstance(handle, ChangelogHandle) else ():
                if isinstance(wrapped, KeyGroupsHandle) and wrapped.stream is not None:
                    offsets_of.setdefault(wrapped.stream, set()).update(wrapped.offsets)
        return {stream: sorted(offsets) for stream, offsets in offsets_of.items()}

    def end_behind(self, stream: StreamHandle, start: int) -> int | None:
        """Return the end of the key group at an offset of a file; None if it is not known."""
        offsets = self._offsets.get(stream, [])
        index = bisect_right(offsets, start)
        return offsets[index] if index < len(offsets) else None


def _open_key_groups(
    handle: KeyGroupsHandle, siblings: Siblings, *, part: bool
) -> HeadedFile | None:
    if handle.stream is None:
        return None
    files, max_parallelism = siblings.files, siblings.max_parallelism
    source = files.open(handle.stream, part=part)
    spans = tuple(spans_of(handle.first, handle.offsets, source.size, source.name))
    part = part and bool(spans)
    if part:
        last = max(spans, key=lambda span: span.start)
        end = siblings.end_behind(handle.stream, last.start)
        if end is not None and end <= source.size:
            part = False
            spans = tuple(replace(span, end=end) if span == last else span for span in spans)
    first = min(spans, key=lambda span: span.start, default=None)
    begin = source.size if first is None else first.start
    head = files.heads.read(source, begin, read_head)
    header = head.header
    if first is not None and first.start < header.size:
        raise DataInput(b"", source.name).fault(
            f"key group {first.group} at offset {first.start}, inside the header"
        )
    if handle.kind is not KeyGroupsKind.SAVEPOINT and is_heap(source, handle, spans):
        name, groups = source.name, handle.key_groups
        return HeapKeyedFile(name, head, groups, max_parallelism, source, spans, part)
    unified = UnifiedFile(source, header, spans, prefix_bytes(max_parallelism))
    return UnifiedKeyedFile(source.name, head, handle.key_groups, max_parallelism, unified)


def is_heap(
    source: ByteSource,
    handle: KeyGroupsHandle,
    spans: Sequence[KeyGroupSpan],
    *,
    damaged: bool = False,
) -> bool:
    """Return whether a file is in the heap's format, where key groups begin with their numbers.

    Args:
        source: The file.
        handle: The file's handle.
        spans: The positions of its key groups.
        damaged: Whether it may be damaged: then most key groups must exist and begin with their
            numbers, otherwise all.
    """
    if not damaged and len(spans) < len(handle.offsets):
        return False
    numbered, head = 0, np.empty(4, np.uint8)
    for span in spans:
        if span.end - span.start >= len(head):
            source.read_into(span.start, head)
            numbered += int.from_bytes(head.tobytes(), "big") == span.group
        if not damaged and not numbered:
            return False
    if damaged:
        empty = sum(offset == 0 for offset in handle.offsets)
        return 2 * numbered > len(spans) and 2 * empty < len(handle.offsets)
    return numbered == len(spans)


def _open_rocksdb(
    handle: IncrementalHandle, siblings: Siblings, *, part: bool
) -> HeadedFile | None:
    from statelake.state_core.formats.keyed.rocksdb_native import RocksDBFiles

    if handle.meta is None:
        return None
    files, max_parallelism = siblings.files, siblings.max_parallelism
    meta = files.open(handle.meta, part=part)
    head = files.heads.read(meta, meta.size, read_head)
    listed = (*handle.shared, *handle.private)
    sources = tuple(
        (name, files.open(stream, part=part)) for name, stream in listed if stream is not None
    )
    name = f"{meta.name} (RocksDB, {len(sources)} files)"
    prefix = prefix_bytes(max_parallelism)
    database = RocksDBFiles(name, head.header, sources, handle.key_groups, prefix)
    return RocksDBKeyedFile(name, head, handle.key_groups, max_parallelism, database)


@dataclass(frozen=True)
class UnifiedKeyedFile(HeadedFile):
    """A `KeyedFile` in the unified format."""

    file: UnifiedFile

    def group_bytes(self) -> list[tuple[int, int]]:
        """Return key groups and their bytes as stored."""
        return [(span.group, span.end - span.start) for span in self.file.spans]

    def entries(self, key_groups: KeyGroupRange | None = None) -> Iterator[Entries]:
        """Yield all entries of some key groups."""
        return self.file.entries(key_groups)

    def cut(
        self, key_groups: KeyGroupRange, piece_bytes: int, *, guess: bool = False
    ) -> list[FilePiece]:
        """Cut some key groups into pieces."""
        guessed = self.file.guess(key_groups, piece_bytes) if guess else []
        return guessed or self.file.cut(key_groups, piece_bytes)

    def entries_of(self, piece: FilePiece) -> Iterator[Entries]:
        """Yield the entries of a piece."""
        return self.file.entries_of(piece)

    def looked_up_bytes(self) -> list[tuple[int, int]]:
        """Return `group_bytes`, which comes from the handle."""
        return self.group_bytes()


@dataclass(frozen=True)
class HeapKeyedFile(HeadedFile):
    """A `KeyedFile` in the heap backend's own format."""

    source: ByteSource
    spans: tuple[KeyGroupSpan, ...]
    part: bool = False

    def group_bytes(self) -> list[tuple[int, int]]:
        """Return key groups and their bytes as stored."""
        return [(span.group, span.end - span.start) for span in self.spans]

    def entries(self, key_groups: KeyGroupRange | None = None) -> Iterator[Entries]:
        """Yield all entries of some key groups, in the unified format."""
        from statelake.state_core.formats.keyed.heap_native import HeapFile

        file = HeapFile(
            self.source, self.header, self.layouts, self.spans, self.part, self.max_parallelism
        )
        return file.entries(key_groups)


@dataclass(frozen=True)
class RawTimersKeyedFile(HeadedFile):
    """A `KeyedFile` that contains only timers, beside another one."""

    file: RawTimersFile

    def group_bytes(self) -> list[tuple[int, int]]:
        """Return key groups and their bytes as stored."""
        return [(span.group, span.end - span.start) for span in self.file.spans]

    def entries(self, key_groups: KeyGroupRange | None = None) -> Iterator[Entries]:
        """Yield all timers of some key groups."""
        return self.file.entries(key_groups)


@dataclass(frozen=True)
class RocksDBKeyedFile(HeadedFile):
    """A `KeyedFile` that is a RocksDB instance."""

    database: RocksDBFiles

    @property
    def is_spread_evenly(self) -> bool:
        """True: handles name files, and these don't list their key groups."""
        return True

    def group_bytes(self) -> list[tuple[int, int]]:
        """Return key groups with an even share of the files' bytes, as more takes reading."""
        count = len(self.key_groups)
        share, rest = divmod(self.database.size, max(1, count))
        return [(self.key_groups.first + i, share + (i < rest)) for i in range(count)]

    def entries(self, key_groups: KeyGroupRange | None = None) -> Iterator[Entries]:
        """Yield all entries of some key groups."""
        return self.database.entries(key_groups)

    def cut(
        self, key_groups: KeyGroupRange, piece_bytes: int, *, guess: bool = False
    ) -> list[FilePiece]:
        """Cut some key groups into pieces, without guessing, as only indexes are read."""
        return self.database.cut(key_groups, piece_bytes)

    def entries_of(self, piece: FilePiece) -> Iterator[Entries]:
        """Yield the entries of a piece."""
        return self.database.entries_of(piece)

    def looked_up_bytes(self) -> list[tuple[int, int]]:
        """Return key groups and their bytes as stored, from the indexes of the tables."""
        return self.database.stored_bytes

    def entries_of_key(
        self, key: EncodedKey, states: Collection[int] | None = None
    ) -> Iterator[Entries]:
        """Yield the entries of one key, which RocksDB finds by the indexes of its tables.

        A timer's key follows its timestamp, so all timers of the key group are read.
        """
        if key.key_group is None:
            yield from super().entries_of_key(key, states)
            return
        for state in range(len(self.states)) if states is None else states:
            timers = self.layouts[state].kind is StateKind.TIMERS
            begins = b"" if timers else key.encoded
            batches = self.database.entries_from(state, key.key_group, begins)
            yield from self._of_key(batches, key, (state,))
