"""Keyed state of one subtask, whatever form it has: the handle's type chooses the reader.

======================  =======================================================================
handle                  read as
======================  =======================================================================
savepoint (tag 7)       the unified format
native (tags 3, 12)     the heap backend's format, or the unified one: old RocksDB checkpoints
                        and savepoints have the same tag, and the bytes must tell
incremental (tag 11)    RocksDB's own files
changelog (tag 14)      what it wraps, if no change came after that, as in a native savepoint;
                        else refused: its changes lie in a log that only the backend replays
======================  =======================================================================

Source: `HeapKeyedStateBackendBuilder.getRestoreOperation`,
`RocksDBKeyedStateBackendBuilder.getRocksDBRestoreOperation`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from state_core.bounds import COLUMNS_IN_ALL, Budget
from state_core.errors import StateError, UnsupportedFormatError
from state_core.files.filesystem import ByteSource
from state_core.files.wire import DataInput
from state_core.formats.keyed.heap_native import HeapFile
from state_core.formats.keyed.raw_timers import (
    RawTimersFile,
    holds_timers,
    raw_spans,
    read_timers_header,
)
from state_core.formats.keyed.rocksdb_native import RocksDBFiles
from state_core.formats.keyed.unified import KeyGroupSpan, UnifiedFile, spans_of
from state_core.formats.layout.keyed_layout import KeyedLayout
from state_core.formats.layout.keyed_states import describe_state, layout_of
from state_core.formats.layout.keys import encode_key, rows_of_key
from state_core.formats.layout.meta_info import KeyedHeader, read_keyed_header
from state_core.formats.metadata.state_files import StateFiles
from state_core.model.handles import (
    ChangelogHandle,
    IncrementalHandle,
    KeyedHandle,
    KeyGroupRange,
    KeyGroupsHandle,
    KeyGroupsKind,
)
from state_core.model.key_groups import EncodedKey, prefix_bytes
from state_core.model.snapshot import Entries, KeyedFile, KeyedState, StateKind
from state_core.serializers.framework.base import TypeSerializer
from state_core.serializers.framework.restored import count_columns, restore_bounded

__all__ = [
    "HeapKeyedFile",
    "RawTimersKeyedFile",
    "RocksDBKeyedFile",
    "UnifiedKeyedFile",
    "is_heap",
    "is_timers",
    "open_keyed",
    "open_raw_timers",
    "without_changelog",
]


def open_keyed(handle: KeyedHandle, files: StateFiles, max_parallelism: int) -> KeyedFile | None:
    """Open one keyed handle; None if there is nothing behind it.

    Raises:
        SnapshotError: It can't be read.
    """
    if isinstance(handle, KeyGroupsHandle):
        return _open_key_groups(handle, files, max_parallelism)
    if isinstance(handle, IncrementalHandle):
        return _open_rocksdb(handle, files, max_parallelism)
    wrapped = without_changelog(handle)
    if wrapped is not None:
        return open_keyed(wrapped, files, max_parallelism)
    raise UnsupportedFormatError(
        "keyed state of the changelog backend, whose latest changes lie in a log",
        remedy="take a savepoint (flink savepoint), which holds them, too",
    )


def is_timers(handle: KeyedHandle | None, files: StateFiles) -> bool:
    """Whether raw keyed state is timers; if not, only its operator knows what it is.

    Raises:
        SnapshotError: Its file is not there.
    """
    return _raw_timers(handle, files) is not None


def open_raw_timers(
    handle: KeyedHandle | None, files: StateFiles, max_parallelism: int
) -> KeyedFile | None:
    """Open raw keyed state that is timers; None if it is none, or the operator sets no timers.

    Raises:
        SnapshotError: It is timers, and can't be read.
    """
    found = _raw_timers(handle, files)
    if found is None:
        return None
    handle, source, spans = found
    header = read_timers_header(source, spans)
    if header is None:
        return None
    timers = RawTimersFile(source, header, spans)
    head = Head(header)
    return RawTimersKeyedFile(source.name, head, handle.key_groups, max_parallelism, timers)


def _raw_timers(
    handle: KeyedHandle | None, files: StateFiles
) -> tuple[KeyGroupsHandle, ByteSource, tuple[KeyGroupSpan, ...]] | None:
    """A handle, its file and where key groups lie in it, if it is raw state that is timers."""
    if not isinstance(handle, KeyGroupsHandle) or handle.stream is None:
        return None
    source = files.open(handle.stream)
    spans = raw_spans(handle, source.size, source.name)
    return (handle, source, spans) if holds_timers(source, spans) else None


def without_changelog(handle: KeyedHandle) -> KeyedHandle | None:
    """What a changelog handle wraps, if no change came after that; None for any other handle."""
    if not isinstance(handle, ChangelogHandle) or handle.changes or len(handle.materialized) != 1:
        return None
    (wrapped,) = handle.materialized
    # after a restore at another parallelism a subtask may hold more than is its own
    return wrapped if wrapped is not None and wrapped.key_groups == handle.key_groups else None


def _open_key_groups(
    handle: KeyGroupsHandle, files: StateFiles, max_parallelism: int
) -> KeyedFile | None:
    if handle.stream is None:
        return None
    source = files.open(handle.stream)
    spans = tuple(spans_of(handle.first, handle.offsets, source.size, source.name))
    first = min(spans, key=lambda one: one.start, default=None)
    begin = source.size if first is None else first.start
    head = files.heads.read(source, begin, _read_head)
    header = head.header
    if first is not None and first.start < header.size:
        raise DataInput(b"", source.name).fault(
            f"key group {first.group} at offset {first.start}, inside the header"
        )
    if handle.kind is not KeyGroupsKind.SAVEPOINT and is_heap(source, handle, spans):
        return HeapKeyedFile(source.name, head, handle.key_groups, max_parallelism, source, spans)
    unified = UnifiedFile(source, header, spans, prefix_bytes(max_parallelism))
    return UnifiedKeyedFile(source.name, head, handle.key_groups, max_parallelism, unified)


def is_heap(
    source: ByteSource,
    handle: KeyGroupsHandle,
    spans: Sequence[KeyGroupSpan],
    *,
    damaged: bool = False,
) -> bool:
    """Whether a file is in the heap backend's format, in which each key group has its number first.

    Args:
        source: The file.
        handle: Its handle.
        spans: Where its key groups lie.
        damaged: Whether it may be damaged: then most key groups have to be there and begin with
            their numbers, else all.
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
    handle: IncrementalHandle, files: StateFiles, max_parallelism: int
) -> KeyedFile | None:
    if handle.meta is None:
        return None
    meta = files.open(handle.meta)
    head = files.heads.read(meta, meta.size, _read_head)
    listed = (*handle.shared, *handle.private)
    held = tuple((name, files.open(stream)) for name, stream in listed if stream is not None)
    name = f"{meta.name} (RocksDB, {len(held)} files)"
    prefix = prefix_bytes(max_parallelism)
    database = RocksDBFiles(name, head.header, held, handle.key_groups, prefix)
    return RocksDBKeyedFile(name, head, handle.key_groups, max_parallelism, database)


@dataclass(frozen=True)
class Head:
    """What files that begin alike say of their states, worked out once for all of them.

    Attributes:
        header: What they begin with.
        budget: What the snapshot may still declare.
    """

    header: KeyedHeader
    budget: Budget | None = None

    @cached_property
    def key(self) -> TypeSerializer:
        """The serializer of the keys."""
        return restore_bounded(self.header.key_serializer.snapshot)

    @cached_property
    def layouts(self) -> tuple[KeyedLayout, ...]:
        """How each state's entries are laid out."""
        layouts = []
        for state in self.header.states:
            layouts.append(layout_of(state, self.key))
            if self.budget is not None:
                columns = count_columns(layouts[-1].schema)
                self.budget.spend(COLUMNS_IN_ALL, columns, f"state {state.name!r}")
        return tuple(layouts)

    @cached_property
    def states(self) -> tuple[KeyedState, ...]:
        """Its states, by id."""
        pairs = zip(self.header.states, self.layouts, strict=True)
        return tuple(describe_state(state, layout) for state, layout in pairs)


def _read_head(source: DataInput) -> Head:
    return Head(read_keyed_header(source), source.budget)


@dataclass(frozen=True)
class _HeadedFile(ABC):
    """What all forms share: a head that says what the states are.

    Attributes:
        name: The file's path.
        head: What it begins with.
        key_groups: The key groups that its handle claims.
        max_parallelism: How many the operator has.
    """

    name: str
    head: Head
    key_groups: KeyGroupRange
    max_parallelism: int

    @property
    def header(self) -> KeyedHeader:
        """What it says of its states."""
        return self.head.header

    @property
    def compressed(self) -> bool:
        """Whether its key groups are compressed."""
        return self.header.compressed

    @property
    def key_serializer(self) -> bytes:
        """The snapshot of the key's serializer."""
        return self.header.key_serializer.encoded

    @property
    def layouts(self) -> tuple[KeyedLayout, ...]:
        """How each state's entries are laid out."""
        try:
            return self.head.layouts
        except StateError as error:
            raise error.within(self.name) from error

    @property
    def states(self) -> tuple[KeyedState, ...]:
        """Its states, by id."""
        return self.head.states

    def decode(
        self, state: int, entries: Entries, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Entries of one state as typed columns, all of them or those named."""
        try:
            return self.layouts[state].decode(entries, columns)
        except StateError as error:
            raise error.within(f"state {self.states[state].name!r}") from error

    def encode_key(self, key: object) -> EncodedKey:
        """A key as its serializer writes it, and its key group."""
        return encode_key(self.head.key, key, self.max_parallelism)

    @abstractmethod
    def entries(self, key_groups: KeyGroupRange | None = None) -> Iterator[Entries]:
        """All entries of some key groups."""

    def entries_of_key(
        self, key: EncodedKey, states: Collection[int] | None = None
    ) -> Iterator[Entries]:
        """The entries of one key, of all states or of some; those of one state at a time."""
        return self._of_key(self.entries(key.key_groups), key, states)

    def _of_key(
        self, batches: Iterator[Entries], key: EncodedKey, states: Collection[int] | None
    ) -> Iterator[Entries]:
        for entries in batches:
            for state in np.unique(entries.state_of).tolist():
                if states is None or state in states:
                    of_state = entries.of_state(state)
                    rows = rows_of_key(self.layouts[state], of_state, key)
                    if rows.size:
                        yield of_state.take(rows)


@dataclass(frozen=True)
class UnifiedKeyedFile(_HeadedFile):
    """A `KeyedFile` in the unified format."""

    file: UnifiedFile

    def group_bytes(self) -> list[tuple[int, int]]:
        """Key groups and their bytes as stored."""
        return [(span.group, span.end - span.start) for span in self.file.spans]

    def entries(self, key_groups: KeyGroupRange | None = None) -> Iterator[Entries]:
        """All entries of some key groups."""
        return self.file.entries(key_groups)


@dataclass(frozen=True)
class HeapKeyedFile(_HeadedFile):
    """A `KeyedFile` in the heap backend's own format."""

    source: ByteSource
    spans: tuple[KeyGroupSpan, ...]

    def group_bytes(self) -> list[tuple[int, int]]:
        """Key groups and their bytes as stored."""
        return [(span.group, span.end - span.start) for span in self.spans]

    def entries(self, key_groups: KeyGroupRange | None = None) -> Iterator[Entries]:
        """All entries of some key groups, in the unified format."""
        return HeapFile(self.source, self.header, self.layouts, self.spans).entries(key_groups)


@dataclass(frozen=True)
class RawTimersKeyedFile(_HeadedFile):
    """A `KeyedFile` of nothing but timers, which lie beside another one."""

    file: RawTimersFile

    def group_bytes(self) -> list[tuple[int, int]]:
        """Key groups and their bytes as stored."""
        return [(span.group, span.end - span.start) for span in self.file.spans]

    def entries(self, key_groups: KeyGroupRange | None = None) -> Iterator[Entries]:
        """All timers of some key groups."""
        return self.file.entries(key_groups)


@dataclass(frozen=True)
class RocksDBKeyedFile(_HeadedFile):
    """A `KeyedFile` that is a RocksDB instance."""

    database: RocksDBFiles

    def group_bytes(self) -> list[tuple[int, int]]:
        """Key groups with an even share of the files' bytes: nothing says more without reading."""
        count = len(self.key_groups)
        share, rest = divmod(self.database.size, max(1, count))
        return [(self.key_groups.first + i, share + (i < rest)) for i in range(count)]

    def entries(self, key_groups: KeyGroupRange | None = None) -> Iterator[Entries]:
        """All entries of some key groups."""
        return self.database.entries(key_groups)

    def entries_of_key(
        self, key: EncodedKey, states: Collection[int] | None = None
    ) -> Iterator[Entries]:
        """The entries of one key: RocksDB finds them by the indexes of its tables.

        A timer's key stands behind its timestamp, so all timers of the key group are read.
        """
        if key.key_group is None:
            yield from super().entries_of_key(key, states)
            return
        for state in range(len(self.states)) if states is None else states:
            timers = self.layouts[state].kind is StateKind.TIMERS
            begins = b"" if timers else key.encoded
            batches = self.database.entries_from(state, key.key_group, begins)
            yield from self._of_key(batches, key, (state,))
