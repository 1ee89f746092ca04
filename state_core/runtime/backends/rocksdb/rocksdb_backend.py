"""The RocksDB backend: working state on a local disk, cached in memory.

Savepoints are scans of a view of each column family. Checkpoints are incremental: RocksDB links its
files into a separate directory, and only those that no earlier checkpoint has are copied.

Source: `RocksDBKeyedStateBackend`, `RocksDBKeyedStateBackendBuilder`,
`RocksFullSnapshotStrategy` in `org.apache.flink.state.rocksdb`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    WriteBufferManager,
)

from statelake.state_core.formats.keyed.rocksdb.rocksdb_native import KNOWN_NAME
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.layout.meta_info import KeyedHeader
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.model.handles import IncrementalHandle, KeyGroupRange
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.runtime.backends.backend import BackendParts, KeyedStateBackend
from statelake.state_core.runtime.backends.rocksdb.checkpoints import IncrementalStrategy, copy_into
from statelake.state_core.runtime.backends.rocksdb.tables import (
    Database,
    RocksDBListTable,
    RocksDBMapTable,
    RocksDBValueTable,
    View,
    scanned_entries,
)
from statelake.state_core.runtime.backends.states.configuration import BackendConfiguration
from statelake.state_core.runtime.backends.states.registry import StateRegistry
from statelake.state_core.runtime.backends.states.savepoints import SavepointStrategy
from statelake.state_core.runtime.backends.states.snapshots import (
    FullSnapshotResources,
    SnapshotRun,
)
from statelake.state_core.runtime.backends.states.tables import Table
from statelake.state_core.runtime.backends.states.timer_queues import OrderedTimerQueue

MEMORY_BYTES = 256 << 20
DEFAULT_FAMILY = "default"
OPTIONS_FILE = "OPTIONS-"
NO_MERGE = "merge_operator=nullptr"


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
        self.prefix = prefix
        self.options = _options(memory_bytes)
        self.backend_id = str(uuid.uuid4())
        self.restored: IncrementalHandle | None = None
        self.tables: dict[str, RocksDBValueTable | RocksDBMapTable] = {}
        self._open("db", [])

    def _open(self, name: str, families: list[str]) -> None:
        self.path = self.directory / name
        others = dict.fromkeys(
            (family for family in families if family != DEFAULT_FAMILY), self.options
        )
        database: Any = Rdict(str(self.path), self.options, column_families=others or None)
        self.families = {DEFAULT_FAMILY, *others}
        self.database = Database(database, self.key_groups, self.prefix)

    def create_table(self, name: str, layout: KeyedLayout) -> Table:
        """Create a column family with the state's name."""
        database = self.database.database
        if name not in self.families:
            database.create_column_family(name, self.options)
            self.families.add(name)
        family, handle = database.get_column_family(name), database.get_column_family_handle(name)
        table: RocksDBValueTable | RocksDBMapTable
        if layout.kind is StateKind.MAP:
            table = RocksDBMapTable(self.database, family, handle, layout)
        elif layout.kind is StateKind.LIST:
            table = RocksDBListTable(self.database, family, handle)
        else:
            table = RocksDBValueTable(self.database, family, handle)
        self.tables[name] = table
        return table

    def create_queue(self, table: RocksDBValueTable) -> OrderedTimerQueue:
        """Create a queue over a table of timers."""
        return OrderedTimerQueue(table, self.key_groups)

    def flush(self) -> None:
        """Write data that tables have in memory to RocksDB."""
        for table in self.tables.values():
            table.flush()

    def full_snapshot(self, registry: StateRegistry) -> FullSnapshotResources:
        """Take a view of every column family."""
        names = list(registry.states)
        views = [self.tables[name].freeze() for name in names]
        return _RocksDBResources(registry.header, self.database, views)

    def adopt(self, handle: IncrementalHandle, files: StateFiles) -> bool:
        """Start with the files of a checkpoint, if RocksDB need not merge anything in them."""
        listed = [
            (name, stream)
            for name, stream in (*handle.shared, *handle.private)
            if stream is not None
        ]
        options = [stream for name, stream in listed if name.startswith(OPTIONS_FILE)]
        texts = [_text(files, stream) for stream in options]
        merging = [
            line
            for text in texts
            for line in text.splitlines()
            if line.strip().startswith("merge_operator") and line.strip() != NO_MERGE
        ]
        known = all(KNOWN_NAME.fullmatch(name) for name, _ in listed)
        if self.tables or not texts or merging or not known:
            return False
        self.database.database.close()
        target = self.directory / "restored"
        target.mkdir()
        for name, stream in listed:
            if not name.startswith(OPTIONS_FILE):
                copy_into(target / name, files.open(stream))
        self._open("restored", Rdict.list_cf(str(target), self.options))
        self.backend_id = handle.backend_id
        self.restored = handle
        return True

    def close(self) -> None:
        """Close the instance, and remove its directory."""
        for table in self.tables.values():
            table.close()
        self.tables = {}
        self.database.database.close()
        self.database.database = None  # it must be closed before its files are removed
        shutil.rmtree(self.directory, ignore_errors=True)


def _text(files: StateFiles, stream: Any) -> str:
    source = files.open(stream)
    out = np.empty(source.size, np.uint8)
    source.read_into(0, out)
    return out.tobytes().decode("utf-8", "replace")


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


class _RocksDBResources:
    """Snapshot resources: views of column families, which later writes do not change."""

    def __init__(self, header: KeyedHeader, database: Database, views: list[View]) -> None:
        self.header = header
        self.database = database
        self.views = views

    def iterators(self) -> Sequence[_RocksDBIterator]:
        """Return one iterator for each state."""
        return [
            _RocksDBIterator(state_id, self.database, view)
            for state_id, view in enumerate(self.views)
        ]

    def release(self) -> None:
        """Release the views."""
        self.views = []


@dataclass(frozen=True)
class _RocksDBIterator:
    """Iterates over a view, one key group at a time."""

    state_id: int
    database: Database
    view: View

    def __iter__(self) -> Iterator[SnapshotRun]:
        prefix = self.database.prefix
        for group, piece in self.view.pieces(prefix):
            entries = scanned_entries(self.state_id, group, piece, prefix)
            yield SnapshotRun(group, self.state_id, entries)


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
    registry = configuration.registry(storage)
    savepoints = SavepointStrategy(
        lambda: storage.full_snapshot(registry),
        configuration.key_groups,
        configuration.prefix,
        compressed=configuration.compressed,
    )
    checkpoints = IncrementalStrategy(storage, registry, configuration.key_groups)
    parts = BackendParts(registry, storage, savepoints, checkpoints)
    return KeyedStateBackend(configuration, parts)
