"""The RocksDB backend: working state on a local disk, cached in memory.

There is a column family for each state, with the same keys as in Flink: the key group's number,
then key, namespace and a map's user key as in the unified format. So a key group is a range of
keys, and a snapshot is a scan.

Source: `RocksDBKeyedStateBackend`, `AbstractRocksDBState`, `RocksDBMapState` in
`org.apache.flink.state.rocksdb`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from statelake.state_core.errors import CorruptSnapshotError
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.runtime.backends.backend import KeyedStateBackend
from statelake.state_core.runtime.backends.states.configuration import BackendConfiguration
from statelake.state_core.runtime.backends.states.keys import namespace_ends
from statelake.state_core.runtime.backends.states.tables import (
    MapTable,
    SnapshotRun,
    ValueTable,
    cut_entries,
    entries_of_pairs,
    within,
)
from statelake.state_core.runtime.backends.states.timer_queues import OrderedTimerQueue

MEMORY_BYTES = 256 << 20
DEFAULT_FAMILY = "default"
SCAN_ROWS = 1 << 13


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
        # the common beginning of the keys of each key group
        self.heads = {group: group.to_bytes(prefix, "big") for group in key_groups}
        writing: Any = WriteOptions()
        writing.disable_wal = True  # after a crash everything is restored from a snapshot
        self.writing = writing

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

    def close(self) -> None:
        """Release the column family: RocksDB closes when all of them are released."""
        self.family = self.handle = None

    def items(self, group: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of a key group."""
        prefix = self.database.prefix
        for piece in scan_group(self.family, self.database.heads[group]):
            for key, value in piece:
                yield key[prefix:], value

    def load(self, entries: Entries) -> None:
        """Add many entries."""
        entries = within(entries, self.database.key_groups)
        self._write(entries.group_of.tolist(), *cut_entries(entries))

    def freeze(self, state_id: int) -> Iterator[SnapshotRun]:
        """Return the current entries: of an iterator, which does not see later writes.

        RocksDB's snapshots do not help: in `rocksdict` 0.3.29 single values are read from the
        snapshot, but iterators do not use it.
        """
        first = self.database.heads[self.database.key_groups.first]
        pieces = _pieces(self.family.items(from_key=first), self.family.iter(), first, SCAN_ROWS)
        return self._runs(state_id, pieces)

    def _runs(
        self, state_id: int, pieces: Iterator[list[tuple[bytes, bytes]]]
    ) -> Iterator[SnapshotRun]:
        prefix = self.database.prefix
        for piece in pieces:
            at = 0
            while at < len(piece):
                head = piece[at][0][:prefix]
                behind = len(piece)
                if piece[-1][0][:prefix] != head:
                    behind = bisect_left(piece, (_successor(head),), at)
                group = int.from_bytes(head, "big")
                entries = scanned_entries(state_id, group, piece[at:behind], prefix)
                yield SnapshotRun(group, state_id, entries)
                at = behind

    def _write(
        self, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes | None]
    ) -> None:
        """Set the values of many keys; None removes a value."""
        heads, handle = self.database.heads, self.handle
        batch = WriteBatch(raw_mode=True)
        for group, key, value in zip(groups, keys, values, strict=True):
            if value is None:
                batch.delete(heads[group] + key, handle)
            else:
                batch.put(heads[group] + key, value, handle)
        self.database.write(batch)


class RocksDBValueTable(_RocksDBTable):
    """A table of one value for each key."""

    in_memory: ClassVar[bool] = False

    def get(self, group: int, key: bytes) -> bytes | None:
        """Return the value of a key; None without a value."""
        value: bytes | None = self.family.get(self.database.heads[group] + key)
        return value

    def put(self, group: int, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        self.family[self.database.heads[group] + key] = value

    def remove(self, group: int, key: bytes) -> None:
        """Remove a key."""
        del self.family[self.database.heads[group] + key]

    def keys(self, group: int) -> Iterator[bytes]:
        """Yield the keys of a key group."""
        for key, _ in self.items(group):
            yield key

    def first_keys(self, group: int, count: int) -> list[bytes]:
        """Return the first keys of a key group, in order."""
        prefix = self.database.prefix
        piece = next(scan_group(self.family, self.database.heads[group], count), [])
        return [key[prefix:] for key, _ in piece]

    def get_many(self, groups: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of many keys."""
        # one by one: RocksDB's own method for many is three times slower from Python
        get, heads = self.family.get, self.database.heads
        return [get(heads[group] + key) for group, key in zip(groups, keys, strict=True)]

    def put_many(
        self, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes | None]
    ) -> None:
        """Set the values of many keys; None removes a value."""
        self._write(groups, keys, values)


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
        value: bytes | None = self.family.get(self.database.heads[group] + key + user_key)
        return value

    def put(self, group: int, key: bytes, user_key: bytes, value: bytes) -> None:
        """Set the value of a user key."""
        self.family[self.database.heads[group] + key + user_key] = value

    def remove(self, group: int, key: bytes, user_key: bytes) -> None:
        """Remove a user key."""
        del self.family[self.database.heads[group] + key + user_key]

    def entries(self, group: int, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield all current entries of a key."""
        head = self.database.heads[group] + key
        pieces = scan_group(self.family, head)
        return ((full_key[len(head) :], value) for piece in pieces for full_key, value in piece)

    def is_empty(self, group: int, key: bytes) -> bool:
        """Return whether the key has no entries."""
        return next(scan_group(self.family, self.database.heads[group] + key, 1), None) is None

    def clear(self, group: int, key: bytes) -> None:
        """Remove all entries of a key."""
        batch = WriteBatch(raw_mode=True)
        for piece in scan_group(self.family, self.database.heads[group] + key):
            for full_key, _ in piece:
                batch.delete(full_key, self.handle)
        self.database.write(batch)

    def keys(self, group: int) -> Iterator[bytes]:
        """Yield the keys of a key group, each once."""
        before = None
        prefix = self.database.prefix
        for piece in scan_group(self.family, self.database.heads[group]):
            entries = scanned_entries(0, group, piece, prefix)
            ends = namespace_ends(self.layout, entries)
            for (stored, _), length in zip(piece, (ends - entries.key_start).tolist(), strict=True):
                key = stored[prefix : prefix + length]
                if key != before:
                    before = key
                    yield key


def scanned_entries(
    state: int, group: int, piece: list[tuple[bytes, bytes]], prefix: int
) -> Entries:
    """Return keys and values of RocksDB as entries of one state and key group."""
    entries = entries_of_pairs(state, group, piece)
    starts = np.ascontiguousarray(entries.key_start + prefix)
    return replace(entries, key_start=starts)


class RocksDBStorage:
    """A RocksDB instance in its own directory.

    Args:
        key_groups: The key groups of this subtask.
        prefix: Bytes of the key-group prefix.
        parent: The parent of its directory.
        memory_bytes: The memory for write buffers and cached blocks together.
    """

    def __init__(
        self,
        key_groups: KeyGroupRange,
        prefix: int,
        parent: str | os.PathLike[str] | None = None,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="statelake-working-", dir=parent))
        self.key_groups = key_groups
        self.options = _options(memory_bytes)
        self.tables: dict[str, RocksDBValueTable | RocksDBMapTable] = {}
        database: Any = Rdict(str(self.directory / "db"), self.options)
        self.database = Database(database, key_groups, prefix)

    def create_table(self, name: str, layout: KeyedLayout) -> ValueTable | MapTable:
        """Create a column family with the state's name."""
        database = self.database.database
        if name != DEFAULT_FAMILY:
            database.create_column_family(name, self.options)
        family, handle = database.get_column_family(name), database.get_column_family_handle(name)
        table: RocksDBValueTable | RocksDBMapTable
        if layout.kind is StateKind.MAP:
            table = RocksDBMapTable(self.database, family, handle, layout)
        else:
            table = RocksDBValueTable(self.database, family, handle)
        self.tables[name] = table
        return table

    def create_queue(self, table: RocksDBValueTable) -> OrderedTimerQueue:
        """Create a queue over a table of timers."""
        return OrderedTimerQueue(table, self.key_groups)

    def close(self) -> None:
        """Close the instance, and remove its directory."""
        for table in self.tables.values():
            table.close()
        self.tables = {}
        self.database.database.close()
        self.database.database = None  # it must be closed before its files are removed
        shutil.rmtree(self.directory, ignore_errors=True)


def _options(memory_bytes: int) -> Options:
    """Return options that bound memory for any number of states."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    cache = Cache(memory_bytes)
    # write buffers are accounted for in the same cache, so that both together stay within it
    options.set_write_buffer_manager(
        WriteBufferManager.new_write_buffer_manager_with_cache(memory_bytes // 2, False, cache)
    )
    options.set_write_buffer_size(max(memory_bytes // 8, 1 << 20))
    blocks = BlockBasedOptions()
    blocks.set_block_cache(cache)
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_bloom_filter(10, False)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_max_background_jobs(2)
    options.set_max_open_files(256)
    options.set_keep_log_file_num(1)
    return options


def rocksdb_backend(
    configuration: BackendConfiguration,
    directory: str | os.PathLike[str] | None = None,
    memory_bytes: int = MEMORY_BYTES,
) -> KeyedStateBackend:
    """Create a backend whose working state is in RocksDB.

    Args:
        configuration: Keys, key groups, clock.
        directory: The parent of its directory; that of temporary files by default.
        memory_bytes: The approximate memory of RocksDB.
    """
    storage = RocksDBStorage(
        configuration.key_groups, configuration.prefix, directory, memory_bytes
    )
    return KeyedStateBackend(configuration, storage)
