"""RocksDB databases that tests write with RocksDB itself, and what is read of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import rocksdict
from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    DataBlockIndexType,
    DBCompressionType,
    Options,
    Rdict,
)

from statelake.state_core.errors import StateError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.keyed.rocksdb.rocksdb_native import KNOWN_NAME, RocksDBFiles
from statelake.state_core.formats.keyed.rocksdb.sst_blocks import read_varint
from statelake.state_core.formats.keyed.rocksdb.sst_file import SstFile
from statelake.state_core.formats.layout.meta_info import (
    BackendStateType,
    KeyedHeader,
    SerializerEntry,
    StateMetaInfo,
)
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.handles import KeyGroupRange

__all__ = [
    "Row",
    "Settings",
    "appended",
    "opened",
    "opened_with_appended",
    "read",
    "rows_in",
    "tables_in",
    "write",
]

Row = tuple[int, int, bytes, bytes]  # state, key group, key, value


@dataclass(frozen=True)
class Settings:
    """How a database is written.

    Attributes:
        families: Its column families.
        compression: The name of a compression.
        checksum: The name of a checksum.
        block_size: Of data blocks.
        restarts: Entries from a key written out to the next.
        index_restarts: The same of the index.
        two_levels: Whether the index is an index of indexes.
        hashed: Whether data blocks have an index of hashes.
        version: Of the format of tables.
        file_size: Where compaction begins another table.
    """

    families: tuple[str, ...] = ("a",)
    compression: str = "snappy"
    checksum: str = "xxh3"
    block_size: int = 4096
    restarts: int = 16
    index_restarts: int = 1
    two_levels: bool = False
    hashed: bool = False
    version: int = 5
    file_size: int = 64 << 20

    @property
    def options(self) -> Options:
        """The same as rocksdict has it."""
        table = BlockBasedOptions()
        table.set_block_size(self.block_size)
        table.set_block_restart_interval(self.restarts)
        table.set_index_block_restart_interval(self.index_restarts)
        table.set_checksum_type(getattr(rocksdict.ChecksumType, self.checksum)())
        table.set_format_version(self.version)
        if self.two_levels:
            table.set_index_type(BlockBasedIndexType.two_level_index_search())
            table.set_metadata_block_size(128)
        if self.hashed:
            table.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
        options = Options(raw_mode=True)
        options.set_disable_auto_compactions(True)
        options.set_target_file_size_base(self.file_size)
        options.set_compression_type(getattr(DBCompressionType, self.compression)())
        options.set_block_based_table_factory(table)
        return options


Step = tuple[str, int, bytes, bytes]  # what, column family, key, value


def write(
    directory: Path, settings: Settings, steps: Sequence[Step], *, copied: Path | None = None
) -> None:
    """Put, delete, delete up to a key, flush and compact; all is flushed in the end.

    A `hold` keeps all versions that are there from being dropped by what follows. What is only
    logged by then is only logged in the directory that is `copied`.
    """
    options = settings.options
    database = Rdict(str(directory), options)
    families = [database.create_column_family(name, options) for name in settings.families]
    held = []
    for what, index, key, value in steps:
        family = families[index % len(families)]
        if what == "put":
            family[key] = value
        elif what == "delete":
            family.delete(key)
        elif what == "delete range":
            family.delete_range(key, value)
        elif what == "hold":
            held.append(family.snapshot())
        elif what == "flush":
            family.flush()
        else:
            family.compact_range(None, None)
    if copied is not None:
        shutil.copytree(directory, copied)
    for family in families:
        family.flush()
    del held
    for family in families:
        family.close()
    database.close()


def opened(
    directory: Path, settings: Settings, prefix: int = 1, groups: KeyGroupRange | None = None
) -> RocksDBFiles:
    """The database as a handle's files."""
    whole = Directory(directory)
    names = [name for name in whole.names() if KNOWN_NAME.fullmatch(name)]
    kind = BackendStateType.KEY_VALUE
    states = tuple(StateMetaInfo(name, kind) for name in settings.families)
    header = KeyedHeader(False, SerializerEntry(cast("Any", None), b""), states)
    files = tuple((name, whole.source(name)) for name in names)
    wanted = groups or KeyGroupRange(0, (1 << 8 * prefix) - 1)
    return RocksDBFiles("database", header, files, wanted, prefix)


def rows_in(batches: Iterable[Entries]) -> Iterator[Row]:
    """Every entry, in its order."""
    for entries in batches:
        data = entries.data.tobytes()
        columns = (
            entries.state_of, entries.group_of,
            entries.key_start, entries.key_end, entries.value_start, entries.value_end,
        )  # fmt: skip
        for state, group, *at in zip(*(column.tolist() for column in columns), strict=True):
            yield state, group, data[at[0] : at[1]], data[at[2] : at[3]]


def read(
    files: RocksDBFiles, groups: KeyGroupRange | None = None, *, by_rocksdb: bool = False
) -> tuple[list[Row], str]:
    """Every entry up to a fault, and what that says."""
    rows: list[Row] = []
    try:
        rows.extend(rows_in(replace(files, by_rocksdb=by_rocksdb).entries(groups)))
    except StateError as error:
        return rows, str(error)
    return rows, ""


def tables_in(directory: Path) -> list[Path]:
    """The table files, in the order in which they were written."""
    return sorted(directory.glob("*.sst"))


def appended(path: Path, chosen: Sequence[bool]) -> None:
    """Turn values of a table into elements that are appended to a list, where `chosen` says so.

    Only of a table without compression, checksums and shared parts of keys: RocksDB's Python
    package has nothing that appends.
    """
    data = bytearray(path.read_bytes())
    table = SstFile.open(Directory(path.parent).source(path.name), 1)
    assert table is not None
    run = table.read(0, len(table.offsets))
    ends = (run.ends - 4).tolist()
    picked = iter(chosen)
    for start, end in zip(run.starts.tolist(), ends, strict=True):
        at = run.offset + start
        behind = run.offset + end
        behind -= 4 * int.from_bytes(data[behind : behind + 4], "little")
        while at < behind:
            shared, at = read_varint(data, at)
            fresh, at = read_varint(data, at)
            length, at = read_varint(data, at)
            assert shared == 0
            if data[at + fresh - 8] == 1 and next(picked, False):
                data[at + fresh - 8] = 2
            at += fresh + length
    path.write_bytes(data)


def opened_with_appended(
    directory: Path, steps: Sequence[Step], chosen: Sequence[bool], block_size: int
) -> RocksDBFiles:
    """A database in whose tables some values are elements that are appended to a list."""
    settings = Settings(
        compression="none", checksum="no_checksum", restarts=1, block_size=block_size
    )
    write(directory, settings, steps)
    for index, path in enumerate(tables_in(directory)):
        appended(path, chosen[index:])
    return opened(directory, settings)
