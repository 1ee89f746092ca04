"""Tables in RocksDB: a column family for each state, with the same keys as in Flink.

A key is the key group's number, then key, namespace and a map's user key as in the unified format,
so a key group is a range of keys and a snapshot is a scan. A list is one value; appended elements
wait in memory until the list is read, a snapshot is taken, or too many wait: RocksDB's merge, which
Flink uses, is not available in Python.

Source: `AbstractRocksDBState`, `RocksDBListState`, `RocksDBMapState` in
`org.apache.flink.state.rocksdb`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from rocksdict import ReadOptions, WriteBatch, WriteOptions

from statelake.state_core.errors import CorruptSnapshotError
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.snapshot import Entries
from statelake.state_core.runtime.backends.states.keys import namespace_ends
from statelake.state_core.runtime.backends.states.tables import (
    DELIMITER,
    cut_pieces,
    entries_of,
    within,
)

SCAN_ROWS = 1 << 13
PENDING_BYTES = 8 << 20
PENDING_COST = 100  # cost of an element in addition to its bytes


class Database:
    """The RocksDB instance that tables share, and the form of key groups in it.

    Args:
        database: The instance, opened for raw bytes.
        key_groups: The key groups of this subtask.
        prefix: Bytes of the key-group prefix.
    """

    def __init__(self, database: Any, key_groups: KeyGroupRange, prefix: int) -> None:
        self.database = database
        self.key_groups = key_groups
        self.prefix = prefix
        self.first = key_groups.first
        groups = range(key_groups.first, key_groups.last + 1)
        self.heads = [group.to_bytes(prefix, "big") for group in groups]
        writing: Any = WriteOptions()
        writing.disable_wal = True  # after a crash everything is restored from a snapshot
        self.writing = writing

    def head(self, group: int) -> bytes:
        """Return the common beginning of a key group's keys."""
        return self.heads[group - self.first]

    def write(self, batch: Any) -> None:
        """Write a batch."""
        self.database.write(batch, self.writing)


def scan_group(
    family: Any, head: bytes, rows: int = SCAN_ROWS
) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield all keys with a common beginning, with their values, many at a time.

    Args:
        family: A column family.
        head: The beginning, of a key group or a map.
        rows: The number of rows at a time.

    Raises:
        CorruptSnapshotError: RocksDB can't read its files.
    """
    options = ReadOptions()
    options.set_iterate_upper_bound(_successor(head))
    items = family.items(from_key=head, read_opt=options)
    return _pieces(items, family.iter(read_opt=options), head, rows, options)


class View:
    """A view of the current content of a column family, to be read once.

    It is an iterator, which does not see later writes. RocksDB's snapshots do not help: in
    `rocksdict` 0.3.29 single values are read from the snapshot, but iterators do not use it.

    Args:
        family: The column family.
        first: The smallest key to read.
    """

    def __init__(self, family: Any, first: bytes) -> None:
        self.first = first
        self.items = family.items(from_key=first)
        self.again = family.iter()

    def pieces(self, prefix: int) -> Iterator[tuple[int, list[tuple[bytes, bytes]]]]:
        """Yield all keys and values, many of one key group at a time.

        Args:
            prefix: Bytes of the key-group prefix.

        Raises:
            CorruptSnapshotError: RocksDB can't read its files.
        """
        for piece in _pieces(self.items, self.again, self.first, SCAN_ROWS):
            at = 0
            while at < len(piece):
                head = piece[at][0][:prefix]
                behind = len(piece)
                if piece[-1][0][:prefix] != head:
                    behind = bisect_left(piece, (_successor(head),), at)
                yield int.from_bytes(head, "big"), piece[at:behind]
                at = behind


def _pieces(
    items: Any, again: Any, first: bytes, rows: int, options: Any = None
) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield the items of an iterator, many at a time.

    Args:
        items: The iterator.
        again: Returns another iterator over the same items.
        first: The smallest key.
        rows: The number of rows at a time.
        options: The options of both, which must live as long as they do.
    """
    last = first
    while piece := list(islice(items, rows)):
        last = piece[-1][0]
        yield piece
        if len(piece) < rows:
            break
    # an iterator also ends at a block that can't be read: try again, to get its error
    again.seek(last)
    if again.valid() and again.key() == last:
        again.next()
    del options  # nobody reads the bound from here on
    try:
        again.status()
    except Exception as error:
        raise CorruptSnapshotError(
            f"RocksDB can't read its working files ({error})", remedy="restore the last checkpoint"
        ) from error


def _successor(head: bytes) -> bytes:
    """Return the smallest bytes behind all that begin with `head`."""
    kept = head.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


class _RocksDBTable:
    """A table in one column family."""

    def __init__(self, database: Database, family: Any, handle: Any) -> None:
        self.database = database
        self.family = family
        self.handle = handle
        self.family.set_write_options(database.writing)

    def flush(self) -> None:
        """Write data that waits in memory."""

    def close(self) -> None:
        """Release the column family: RocksDB closes when all of them are released."""
        self.family = self.handle = None

    def freeze(self) -> View:
        """Return a view of the current content of the column family."""
        self.flush()
        return View(self.family, self.database.heads[0])

    def items(self, group: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of a key group."""
        self.flush()
        prefix = self.database.prefix
        for piece in scan_group(self.family, self.database.head(group)):
            for key, value in piece:
                yield key[prefix:], value

    def load(self, entries: Entries) -> None:
        """Add many entries."""
        entries = within(entries, self.database.key_groups)
        data = entries.data.tobytes()
        heads, first, batch = self.database.heads, self.database.first, WriteBatch(raw_mode=True)
        keys = cut_pieces(data, entries.key_start.tolist(), entries.key_end.tolist())
        values = cut_pieces(data, entries.value_start.tolist(), entries.value_end.tolist())
        for group, key, value in zip(entries.group_of.tolist(), keys, values, strict=True):
            batch.put(heads[group - first] + key, value, self.handle)
        self.database.write(batch)


class RocksDBValueTable(_RocksDBTable):
    """A table of one value for each key."""

    def get(self, group: int, key: bytes) -> bytes | None:
        """Return the value of a key; None without a value."""
        value: bytes | None = self.family.get(self.database.head(group) + key)
        return value

    def put(self, group: int, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        self.family[self.database.head(group) + key] = value

    def remove(self, group: int, key: bytes) -> None:
        """Remove a key."""
        del self.family[self.database.head(group) + key]

    def keys(self, group: int) -> Iterator[bytes]:
        """Yield the keys of a key group."""
        for key, _ in self.items(group):
            yield key

    def first_keys(self, group: int, count: int) -> list[bytes]:
        """Return the first keys of a key group, in order."""
        self.flush()
        prefix = self.database.prefix
        piece = next(scan_group(self.family, self.database.head(group), count), [])
        return [key[prefix:] for key, _ in piece]

    def get_many(self, groups: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of many keys."""
        # one by one: RocksDB's own method for many is three times slower from Python
        get, heads, first = self.family.get, self.database.heads, self.database.first
        return [get(heads[group - first] + key) for group, key in zip(groups, keys, strict=True)]

    def put_many(
        self, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes | None]
    ) -> None:
        """Set the values of many keys; None removes a value."""
        heads, first, handle = self.database.heads, self.database.first, self.handle
        batch = WriteBatch(raw_mode=True)
        for group, key, value in zip(groups, keys, values, strict=True):
            if value is None:
                batch.delete(heads[group - first] + key, handle)
            else:
                batch.put(heads[group - first] + key, value, handle)
        self.database.write(batch)


class RocksDBListTable(RocksDBValueTable):
    """A table of one list for each key."""

    def __init__(self, database: Database, family: Any, handle: Any) -> None:
        super().__init__(database, family, handle)
        self._pending: dict[bytes, list[bytes]] = {}
        self._waiting = 0

    def append(self, group: int, key: bytes, elements: bytes) -> None:
        """Append elements to those of a key."""
        self._pending.setdefault(self.database.head(group) + key, []).append(elements)
        self._waiting += len(elements) + PENDING_COST
        if self._waiting > PENDING_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write elements that wait in memory."""
        if not self._pending:
            return
        batch = WriteBatch(raw_mode=True)
        for key, elements in self._pending.items():
            batch.put(key, self._joined(key, elements), self.handle)
        self.database.write(batch)
        self._pending, self._waiting = {}, 0

    def _joined(self, key: bytes, elements: list[bytes]) -> bytes:
        stored = self.family.get(key)
        return DELIMITER.join(elements if stored is None else [stored, *elements])

    def get(self, group: int, key: bytes) -> bytes | None:
        """Return the elements."""
        whole = self.database.head(group) + key
        waiting = self._pending.pop(whole, None)
        if waiting is None:
            stored: bytes | None = self.family.get(whole)
            return stored
        joined = self.family[whole] = self._joined(whole, waiting)
        return joined

    def put(self, group: int, key: bytes, value: bytes) -> None:
        """Set the elements of a key."""
        self._pending.pop(self.database.head(group) + key, None)
        super().put(group, key, value)

    def remove(self, group: int, key: bytes) -> None:
        """Remove a key."""
        self._pending.pop(self.database.head(group) + key, None)
        super().remove(group, key)

    def get_many(self, groups: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of many keys."""
        self.flush()
        return super().get_many(groups, keys)

    def put_many(
        self, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes | None]
    ) -> None:
        """Set the values of many keys; None removes a value."""
        self.flush()
        super().put_many(groups, keys, values)


class RocksDBMapTable(_RocksDBTable):
    """A table of maps, with an entry in RocksDB for each entry of a map.

    Args:
        database: The RocksDB instance.
        family: The column family.
        handle: The handle of the column family, for batches.
        layout: The layout of entries, which finds the user key in an entry's key.
    """

    def __init__(self, database: Database, family: Any, handle: Any, layout: KeyedLayout) -> None:
        super().__init__(database, family, handle)
        self.layout = layout

    def get(self, group: int, key: bytes, user_key: bytes) -> bytes | None:
        """Return the value of a user key; None without a value."""
        value: bytes | None = self.family.get(self.database.head(group) + key + user_key)
        return value

    def put(self, group: int, key: bytes, user_key: bytes, value: bytes) -> None:
        """Set the value of a user key."""
        self.family[self.database.head(group) + key + user_key] = value

    def remove(self, group: int, key: bytes, user_key: bytes) -> None:
        """Remove a user key."""
        del self.family[self.database.head(group) + key + user_key]

    def entries(self, group: int, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield all current entries of a key."""
        head = self.database.head(group) + key
        pieces = scan_group(self.family, head)
        return ((whole[len(head) :], value) for piece in pieces for whole, value in piece)

    def is_empty(self, group: int, key: bytes) -> bool:
        """Return whether the key has no entries."""
        return next(scan_group(self.family, self.database.head(group) + key, 1), None) is None

    def clear(self, group: int, key: bytes) -> None:
        """Remove all entries of a key."""
        batch = WriteBatch(raw_mode=True)
        for piece in scan_group(self.family, self.database.head(group) + key):
            for whole, _ in piece:
                batch.delete(whole, self.handle)
        self.database.write(batch)

    def keys(self, group: int) -> Iterator[bytes]:
        """Yield the keys of a key group, each once."""
        before = None
        prefix = self.database.prefix
        for piece in scan_group(self.family, self.database.head(group)):
            entries = scanned_entries(0, group, piece, prefix)
            ends = namespace_ends(self.layout, entries)
            for (whole, _), length in zip(piece, (ends - entries.key_start).tolist(), strict=True):
                key = whole[prefix : prefix + length]
                if key != before:
                    before = key
                    yield key


def scanned_entries(
    state: int, group: int, piece: list[tuple[bytes, bytes]], prefix: int
) -> Entries:
    """Return keys and values of RocksDB as entries of one state and key group."""
    keys, values = zip(*piece, strict=True)
    entries = entries_of(state, group, list(keys), list(values))
    starts = np.ascontiguousarray(entries.key_start + prefix)
    return replace(entries, key_start=starts)
