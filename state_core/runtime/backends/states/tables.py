"""Tables of the entries of one state: what a storage keeps, and lists over it.

An entry is a key and a value as bytes, in the unified format, written by serializers; callers never
change returned bytes. A table is used by key group and key, without a current key. The kinds of
state differ:

`ValueTable`   one value for each key: values, accumulators; timers, whose values are empty
`ListTable`    one value for each key, to which elements can be appended, over a `ValueTable`
`MapTable`     many values for each key, by user key

Source: `StateTable` of the heap backend, column families of RocksDB's, `RocksDBListState`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from statelake.state_core.model.entries import Entries
from statelake.state_core.model.handles import KeyGroupRange

DELIMITER = b","
PENDING_BYTES = 8 << 20
PENDING_COST = 100  # cost of an element in addition to its bytes
FLUSHED_LISTS = 1 << 11


class SnapshotRun(NamedTuple):
    """Entries of one key group and one state, not necessarily all of them."""

    key_group: int
    state_id: int
    entries: Entries


class EntryTable(Protocol):
    """A table of the entries of one state."""

    def keys(self, group: int) -> Iterator[bytes]:
        """Yield the keys of a key group that have an entry, each once."""

    def items(self, group: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of a key group as in a snapshot; a map's with key and user key."""

    def load(self, entries: Entries) -> None:
        """Add many entries of this state and subtask, as in a snapshot."""

    def freeze(self, state_id: int) -> Iterator[SnapshotRun]:
        """Return the current entries in order of key group, whatever changes meanwhile."""


class ValueTable(EntryTable, Protocol):
    """A table of one value for each key.

    Attributes:
        in_memory: Whether entries are in memory anyway.
    """

    in_memory: ClassVar[bool]

    def get(self, group: int, key: bytes) -> bytes | None:
        """Return the value of a key; None without a value."""

    def put(self, group: int, key: bytes, value: bytes) -> None:
        """Set the value of a key."""

    def remove(self, group: int, key: bytes) -> None:
        """Remove a key."""

    def get_many(self, groups: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of many keys."""

    def put_many(
        self, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes | None]
    ) -> None:
        """Set the values of many keys; None removes a value. The last one of a key counts."""


class ListTable:
    """A table of one list for each key: its elements, with a delimiter in between.

    Appended elements wait in memory until the list is read, a snapshot is taken, or too many wait
    of lists on disk: RocksDB's merge, which Flink uses, is not available in Python.

    Args:
        table: The table of the lists.
    """

    def __init__(self, table: ValueTable) -> None:
        self.table = table
        self._pending: dict[int, dict[bytes, list[bytes]]] = defaultdict(lambda: defaultdict(list))
        self._waiting = 0

    def append(self, group: int, key: bytes, elements: bytes) -> None:
        """Append elements to those of a key."""
        self._pending[group][key].append(elements)
        self._waiting += len(elements) + PENDING_COST
        if self._waiting > PENDING_BYTES and not self.table.in_memory:
            self.flush()

    def flush(self) -> None:
        """Write the elements that wait."""
        places = [(group, key) for group, lists in self._pending.items() for key in lists]
        for first in range(0, len(places), FLUSHED_LISTS):
            some = places[first : first + FLUSHED_LISTS]
            groups, keys = zip(*some, strict=True)
            stored = self.table.get_many(groups, keys)
            waiting = [self._pending[group][key] for group, key in some]
            self.table.put_many(groups, keys, list(map(_appended, stored, waiting)))
            for group, key in some:
                del self._pending[group][key]
        self._waiting = 0

    def get(self, group: int, key: bytes) -> bytes | None:
        """Return the elements of a key; None without a list."""
        stored = self.table.get(group, key)
        if (waiting := self._pending[group].pop(key, None)) is not None:
            stored = _appended(stored, waiting)
            self.table.put(group, key, stored)
        return stored

    def put(self, group: int, key: bytes, value: bytes) -> None:
        """Set the elements of a key."""
        self._pending[group].pop(key, None)
        self.table.put(group, key, value)

    def remove(self, group: int, key: bytes) -> None:
        """Remove a key."""
        self._pending[group].pop(key, None)
        self.table.remove(group, key)

    def get_many(self, groups: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the elements of many keys."""
        self.flush()
        return self.table.get_many(groups, keys)

    def put_many(
        self, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes | None]
    ) -> None:
        """Set the elements of many keys; None removes a list."""
        self.flush()
        self.table.put_many(groups, keys, values)

    def keys(self, group: int) -> Iterator[bytes]:
        """Yield the keys of a key group."""
        self.flush()
        return self.table.keys(group)

    def items(self, group: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of a key group."""
        self.flush()
        return self.table.items(group)

    def load(self, entries: Entries) -> None:
        """Add many lists, of which no elements wait."""
        self.table.load(entries)

    def freeze(self, state_id: int) -> Iterator[SnapshotRun]:
        """Return the current entries."""
        self.flush()
        return self.table.freeze(state_id)


def _appended(stored: bytes | None, elements: list[bytes]) -> bytes:
    return DELIMITER.join(elements if stored is None else [stored, *elements])


class MapTable(EntryTable, Protocol):
    """A table of many values for each key, by user key."""

    def get(self, group: int, key: bytes, user_key: bytes) -> bytes | None:
        """Return the value of a user key; None without a value."""

    def put(self, group: int, key: bytes, user_key: bytes, value: bytes) -> None:
        """Set the value of a user key."""

    def remove(self, group: int, key: bytes, user_key: bytes) -> None:
        """Remove a user key."""

    def entries(self, group: int, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield all current entries of a key."""

    def is_empty(self, group: int, key: bytes) -> bool:
        """Return whether the key has no entries."""

    def clear(self, group: int, key: bytes) -> None:
        """Remove all entries of a key."""


Table: TypeAlias = "ValueTable | ListTable | MapTable"


def entries_of_pairs(state: int, group: int, pairs: Sequence[tuple[bytes, bytes]]) -> Entries:
    """Return entries of one state and key group, at least one, in one buffer."""
    keys, values = zip(*pairs, strict=True)
    return entries_of(state, group, keys, values)


def entries_of(state: int, group: int, keys: Sequence[bytes], values: Sequence[bytes]) -> Entries:
    """Return entries of one state and key group in one buffer."""
    count = len(keys)
    pieces = [*keys, *values]
    bounds = np.zeros(2 * count + 1, np.int64)
    np.cumsum(np.fromiter(map(len, pieces), np.int64, 2 * count), out=bounds[1:])
    data = np.frombuffer(b"".join(pieces), np.uint8)
    return Entries(
        data,
        np.full(count, state, np.int16),
        np.full(count, group, np.int64),
        bounds[:count],
        bounds[1 : count + 1],
        bounds[count:-1],
        bounds[count + 1 :],
        lambda at: f"key group {group}, byte {at} of a batch",
    )


def cut_pieces(data: bytes, starts: Iterable[int], ends: Iterable[int]) -> list[bytes]:
    """Return pieces of a buffer."""
    return [data[start:end] for start, end in zip(starts, ends, strict=True)]


def cut_column(column: pa.Array) -> list[bytes]:
    """Return the rows of a new column of large binaries, none of which is null."""
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(column) + 1).tolist()
    return cut_pieces(b"" if data is None else data.to_pybytes(), bounds[:-1], bounds[1:])


def within(entries: Entries, key_groups: KeyGroupRange) -> Entries:
    """Return the entries of these key groups only."""
    inside = (entries.group_of >= key_groups.first) & (entries.group_of <= key_groups.last)
    return entries if inside.all() else entries.take(np.flatnonzero(inside))


def cut_entries(entries: Entries) -> tuple[list[bytes], list[bytes]]:
    """Return keys and values."""
    data = entries.data.tobytes()
    return (
        cut_pieces(data, entries.key_start.tolist(), entries.key_end.tolist()),
        cut_pieces(data, entries.value_start.tolist(), entries.value_end.tolist()),
    )
