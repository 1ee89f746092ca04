"""RocksDB's own files, in incremental and full checkpoints and native savepoints.

A handle lists the files of a RocksDB instance, shared ones and private ones, and a meta file that
contains only the keyed header. Each state has a column family; keys and values are the bytes of the
unified format without its flag. The files may contain key groups of other subtasks, which are left
out. RocksDB opens the instance and checks its files; entries are then read from the files
themselves by `rocksdb_tables`, or by RocksDB if a column family has a feature that `rocksdb_tables`
lacks.

RocksDB does not open the snapshot in place: files are linked or copied into a directory of their
own. The options file is left out: one damaged byte in it is enough to end the process, and reading
needs only the merge operator of lists, which Flink never changes.

Source: `RocksIncrementalSnapshotStrategy`, `RocksNativeFullSnapshotStrategy`,
`RocksDBIncrementalRestoreOperation` in `org.apache.flink.state.rocksdb`.
"""

from __future__ import annotations

import os
import re
import resource
import tempfile
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np
from rocksdict import AccessType, Options, Rdict

from statelake.state_core.bounds import HELD_BYTES, Budget
from statelake.state_core.errors import (
    CorruptSnapshotError,
    OversizedError,
    StateError,
    UnsafePathError,
)
from statelake.state_core.files.filesystem import ByteSource, Directory, FileSource
from statelake.state_core.formats.keyed.headed_file import HeadedFile
from statelake.state_core.formats.keyed.rocksdb.rocksdb_cuts import (
    bounds_in,
    by_family,
    cut_families,
    open_indexes,
    stored_bytes,
)
from statelake.state_core.formats.keyed.rocksdb.rocksdb_iterators import (
    BATCH_ROWS,
    IteratedFamily,
    Pairs,
)
from statelake.state_core.formats.keyed.rocksdb.rocksdb_tables import (
    FamilyTables,
    OutputBatch,
    Runs,
    open_tables,
)
from statelake.state_core.formats.keyed.rocksdb.sst_file import KeyBounds, SstFile
from statelake.state_core.formats.layout.meta_info import KeyedHeader
from statelake.state_core.kernels.sst import TRAILER
from statelake.state_core.model.entries import Entries, FilePiece, StoredSpan
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.key_groups import EncodedKey
from statelake.state_core.model.snapshot import StateKind

_Rows: TypeAlias = list[tuple[int, Pairs]]

BLOCK_BYTES = 8 << 20
LOG_BLOCK = 32768
LOG_HEAD = 7  # u32 checksum, u16 length (little-endian), u8 type
PROPERTIES = (
    "total-sst-files-size",
    "num-entries-active-mem-table",
    "num-entries-imm-mem-tables",
)
RECYCLED_RECORDS = (5, 6, 7, 8, 11)
KNOWN_NAME = re.compile(r"CURRENT|IDENTITY|(MANIFEST|OPTIONS)-[0-9]+|[0-9]+\.(sst|log|blob)")
OPTIONS = """
[Version]
  rocksdb_version=8.10.0
  options_file_version=1.1
[DBOptions]
  create_if_missing=false
[CFOptions "default"]
  comparator=leveldb.BytewiseComparator
  merge_operator={id=StringAppendTESTOperator;delimiter=,;}
  num_levels=32
  table_factory=BlockBasedTable
[TableOptions/BlockBasedTable "default"]
  checksum=kXXH3
"""
STRICT = "create_if_missing=false\n"
LENIENT = f"""{STRICT}  paranoid_checks=false
  max_open_files=64
  skip_checking_sst_file_sizes_on_db_open=true
  skip_stats_update_on_db_open=true
"""
DIRECTORY = "statelake-rocksdb-"
MOST_OPEN_FILES = 1 << 16


@dataclass(frozen=True)
class RocksDBFiles:
    """One handle's RocksDB files.

    Attributes:
        name: Its name in messages.
        header: The header in the meta file.
        files: Local name and bytes of each file.
        key_groups: The key groups that the handle claims.
        prefix: Bytes of the key-group prefix.
        lenient: Whether a damaged table is a fault only when it is read.
    """

    name: str
    header: KeyedHeader
    files: tuple[tuple[str, ByteSource], ...]
    key_groups: KeyGroupRange
    prefix: int
    lenient: bool = False
    by_rocksdb: bool = field(default=False, compare=False)
    _lock: Any = field(default_factory=threading.RLock, repr=False, compare=False)
    _held: list[Any] = field(default_factory=list, repr=False, compare=False)
    _families: set[str] = field(default_factory=set, repr=False, compare=False)
    _sources: dict[str, ByteSource] = field(default_factory=dict, repr=False, compare=False)
    _measured: dict[tuple[str, int, int], int] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(source.size for _, source in self.files)

    @property
    def _database(self) -> Rdict:
        with self._lock:
            return self._opened

    @cached_property
    def _opened(self) -> Rdict:
        """Return the instance, opened read-only in a temporary directory of this object."""
        directory = tempfile.TemporaryDirectory(prefix=DIRECTORY)
        self._held.append(directory)
        _raise_open_files()
        checked = _OpenFiles()
        if self.lenient:
            self._held.append(checked)  # RocksDB opens a table again and again then
        try:
            for name, source in self.files:
                self._sources[name] = _place(Path(directory.name), name, source, checked)
            for _ in open_indexes(self._sources, self.prefix):
                pass  # RocksDB unpacks the same blocks when it opens them
        except StateError:
            raise
        except OSError as error:  # one name twice, or no space left
            raise self._fault(error) from error
        try:
            options, of_family = _options(self.lenient)
            families = Rdict.list_cf(directory.name, options)
            database = Rdict(
                directory.name,
                options,
                column_families=dict.fromkeys(families, of_family),
                access_type=AccessType.read_only(),
            )
        except Exception as error:
            raise self._fault(error) from error
        database.set_loads(_refuse)
        self._families.update(families)
        return database

    def open(self) -> None:
        """Open the instance, instead of at the first read.

        Raises:
            CorruptSnapshotError: RocksDB can't read its files.
            UnsafePathError: A file has a name that RocksDB never uses.
        """
        _ = self._database

    def family(self, state: int) -> Any:
        """Return the column family of a state.

        Raises:
            CorruptSnapshotError: It does not exist, or RocksDB can't read its files.
        """
        name = self._family_name(state)
        try:
            return self._database.get_column_family(name)
        except Exception as error:
            raise self._fault(error) from error

    def _family_name(self, state: int) -> str:
        """Return the name of a state's column family, if it exists."""
        self.open()
        name = self.header.states[state].name
        if name not in self._families:
            raise CorruptSnapshotError(
                f"RocksDB has no column family for state {name!r}",
                place=self.name,
                remedy="a file of the checkpoint is missing or another's: copy it whole",
            )
        return name

    def entries(
        self, key_groups: KeyGroupRange | None = None, states: Sequence[int] | None = None
    ) -> Iterator[Entries]:
        """Yield all entries of some key groups, key group after key group.

        Args:
            key_groups: The key groups; all by default.
            states: The ids of the states; all by default.

        Raises:
            CorruptSnapshotError: RocksDB can't read its files.
        """
        groups = self.key_groups
        if key_groups is not None:
            groups = groups.intersection(key_groups)
        if not len(groups) or not self.files:
            return
        chosen = range(len(self.header.states)) if states is None else states
        bounds = KeyBounds.of(groups, self.prefix)
        yield from self._entries_in(groups, [self._reader(state, bounds) for state in chosen])

    def cut(self, key_groups: KeyGroupRange, piece_bytes: int) -> list[FilePiece]:
        """Cut some key groups into pieces of about `piece_bytes` bytes as stored, in order.

        Only the indexes of the tables are read, also of those that RocksDB has to read. A damaged
        table is reported by the reader of the pieces.

        Raises:
            CorruptSnapshotError: An index is damaged.
        """
        groups = self.key_groups.intersection(key_groups)
        if not len(groups) or not self.files:
            return [FilePiece(key_groups, 0)]
        tables = by_family(open_indexes(dict(self.files), self.prefix))
        families = [tables.get(state.name, []) for state in self.header.states]
        return cut_families(families, groups, self.prefix, piece_bytes)

    def entries_of(self, piece: FilePiece) -> Iterator[Entries]:
        """Yield the entries of a piece of `cut`.

        Raises:
            CorruptSnapshotError: RocksDB can't read its files.
        """
        groups = self.key_groups.intersection(piece.key_groups)
        if not len(groups) or not self.files:
            return
        yield from self._entries_in(groups, self._readers_of(piece))

    def stored_spans(self, key_groups: KeyGroupRange) -> list[StoredSpan] | None:
        """Return where the blocks of some key groups are; None if RocksDB has to read a table.

        Raises:
            CorruptSnapshotError: RocksDB can't read its files.
        """
        groups = self.key_groups.intersection(key_groups)
        if not len(groups) or not self.files:
            return []
        bounds = KeyBounds.of(groups, self.prefix)
        spans: list[StoredSpan] = []
        for state in range(len(self.header.states)):
            runs = self._runs(state)
            if runs is None:
                return None
            for file in chain.from_iterable(runs):
                first, behind = file.blocks_of(bounds)
                starts = file.offsets[first:behind]
                ends = starts + file.block_sizes[first:behind] + TRAILER
                if np.any(starts[1:] != ends[:-1]):
                    return None
                if first < behind:
                    spans.append(StoredSpan(state, file.source, int(starts[0]), int(ends[-1])))
        return spans

    @cached_property
    def stored_bytes(self) -> list[tuple[int, int]]:
        """Return key groups and their bytes as stored, from the indexes of the tables."""
        return stored_bytes(dict(self.files), self.key_groups, self.prefix)

    def _readers_of(self, piece: FilePiece) -> list[FamilyTables | IteratedFamily]:
        """Return the readers of the states of a piece."""
        groups = self.key_groups.intersection(piece.key_groups)
        states = range(len(self.header.states))
        bounds = [bounds_in(piece, groups, state, self.prefix) for state in states]
        return [self._reader(state, bounds[state]) for state in states if not bounds[state].empty]

    def _entries_in(
        self, groups: KeyGroupRange, readers: Sequence[FamilyTables | IteratedFamily]
    ) -> Iterator[Entries]:
        """Yield the entries of some readers and key groups, key group after key group."""
        out = OutputBatch(self._place)
        rows: _Rows = []
        count = 0
        broken: StateError | None = None
        try:
            for group in range(groups.first, groups.last + 1):
                last = groups.last if len(readers) == 1 else group
                for reader in readers:
                    if isinstance(reader, FamilyTables):
                        if rows:
                            yield self._entries(rows)
                            rows, count = [], 0
                        while not reader.fill(out, last):
                            if out.rows:
                                yield out.entries()
                        continue
                    for batch in reader.of_group(group):
                        if out.rows:
                            yield out.entries()
                        rows.append((reader.state, batch))
                        count += len(batch)
                        if count >= BATCH_ROWS:
                            yield self._entries(rows)
                            rows, count = [], 0
        except StateError as error:
            broken = error
        if rows:
            yield self._entries(rows)
        if out.rows:
            yield out.entries()
        if broken is not None:
            raise broken

    def entries_from(self, state: int, key_group: int, begins: bytes) -> Iterator[Entries]:
        """Yield the entries of one state whose keys begin with some bytes.

        RocksDB finds them by the indexes of its tables, and reads no block before them.

        Args:
            state: The state's id.
            key_group: The key group of the keys.
            begins: The beginning of the keys, behind the key-group prefix.

        Raises:
            CorruptSnapshotError: RocksDB can't read its files.
        """
        if key_group not in self.key_groups or not self.files:
            return
        bounds = KeyBounds.beginning(key_group.to_bytes(self.prefix, "big") + begins)
        for pairs in self._iterate(state, bounds).batches():
            yield self._entries([(state, pairs)])

    def _iterate(self, state: int, bounds: KeyBounds) -> IteratedFamily:
        """Return RocksDB's iterator of a state, after checking that its blocks are not bombs."""
        budget = Budget(self.size)
        for table in self._indexes:  # all column families, as a table may lie about its own
            budget.spend(HELD_BYTES, self._measure(table, bounds), self.name)
        return IteratedFamily(self.family(state), state, bounds, self.prefix, self._fault)

    def _measure(self, table: SstFile, bounds: KeyBounds) -> int:
        """Return the largest block's size; refuse those that unpack to too much.

        They are read once. RocksDB reports other faults.
        """
        try:
            key = (table.source.name, *table.blocks_of(bounds))
            if key not in self._measured:
                self._measured[key] = table.check_unpacked(*key[1:])
            return self._measured[key]
        except OversizedError:
            raise
        except StateError:
            return 0

    def _reader(self, state: int, bounds: KeyBounds) -> FamilyTables | IteratedFamily:
        runs = self._runs(state)
        if runs is None:
            return self._iterate(state, bounds)
        return FamilyTables(runs, state, bounds, self.prefix)

    def _runs(self, state: int) -> Runs | None:
        """Return the files of a state; None if RocksDB has to read one of them."""
        name = self._family_name(state)
        with self._lock:
            return None if self.by_rocksdb else self._tables.get(name)

    @cached_property
    def _indexes(self) -> list[SstFile]:
        """Return the tables whose indexes are readable here."""
        self.open()
        return [table for _, table in open_indexes(self._sources, self.prefix) if table is not None]

    @cached_property
    def _tables(self) -> dict[str, Runs]:
        """Return the column families whose table files are readable here."""
        database, sizes = self._database, {}
        try:
            for name in self._families:
                family = database.get_column_family(name)
                size, *logged = (
                    family.property_int_value(f"rocksdb.{property_}") for property_ in PROPERTIES
                )
                if size is not None and not any(logged):
                    sizes[name] = size
            live = database.live_files()
        except Exception as error:
            raise self._fault(error) from error
        if any(name.endswith(".blob") for name, _ in self.files):
            return {}
        return open_tables(live, self._sources, sizes, self.prefix)

    def _entries(self, rows: _Rows) -> Entries:
        """Return keys and values in one buffer, in their order."""
        pairs = [pair for _, batch in rows for pair in batch]
        data = np.frombuffer(b"".join([part for pair in pairs for part in pair]), np.uint8)
        lengths = np.array([len(part) for pair in pairs for part in pair], np.int64)
        bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        parts = bounds[:-1:2], bounds[1::2], bounds[2::2]
        starts, middles, ends = (np.ascontiguousarray(part) for part in parts)
        short = np.flatnonzero(middles - starts < self.prefix)
        if short.size:
            raise CorruptSnapshotError("a key without its key group", place=self.name)
        groups = data[starts].astype(np.int64)
        for byte in range(1, self.prefix):
            groups = groups << 8 | data[starts + byte]
        counts = [len(batch) for _, batch in rows]
        states = np.repeat(np.array([state for state, _ in rows], np.int16), counts)
        return Entries(
            data, states, groups, starts + self.prefix, middles, middles, ends, self._place
        )

    def _place(self, position: int) -> str:
        return f"{self.name}, byte {position} of a batch"

    def _fault(self, error: object) -> CorruptSnapshotError:
        message = re.sub(rf"\S*{DIRECTORY}\w+/(\S+\.sst|[A-Z]+(-\d+)?)", self._known, str(error))
        return CorruptSnapshotError(
            f"RocksDB can't read its files ({' '.join(message.split())})",
            place=self.name,
            remedy="a file is missing or damaged: copy the whole checkpoint, with `shared`",
        )

    def _known(self, match: re.Match[str]) -> str:
        """Return the snapshot's name of a file, followed by RocksDB's own name."""
        name = match[1]
        paths = [source.name for local, source in self.files if local == name]
        return f"{name}, which is {paths[0]}" if paths else name


def _raise_open_files() -> None:
    """Raise this process's soft limit of open files, as RocksDB keeps every table open.

    By default it is 1024, which a database of 60 GiB reaches.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # macOS has its own limit below the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _OpenFiles:
    """Files that stay open as long as this object exists."""

    def __init__(self) -> None:
        self.handles: list[int] = []

    def __del__(self) -> None:
        while self.handles:
            os.close(self.handles.pop())


@dataclass(frozen=True)
class _CopiedSource(FileSource):
    """A copy that is named after its original in messages."""

    original: str = ""

    @property
    def name(self) -> str:
        """The path of the original."""
        return self.original


def _place(directory: Path, name: str, source: ByteSource, checked: _OpenFiles) -> ByteSource:
    """Put a file where RocksDB expects it: a link to a whole local file, or otherwise a copy.

    A path could have become a link by the time RocksDB opens it, so the link points to the open
    file.

    Args:
        directory: The directory of the instance.
        name: RocksDB's name of the file.
        source: Its bytes.
        checked: Keeps files open.

    Returns:
        The source of its bytes.
    """
    if not KNOWN_NAME.fullmatch(name):
        raise UnsafePathError(
            f"a RocksDB file called {name!r}",
            place=source.name,
            remedy="this is not how Flink writes: do not trust the file",
        )
    if name.startswith("MANIFEST"):
        _check_manifest(source)
    if name.startswith("OPTIONS"):
        return source
    if name.endswith(".sst") and isinstance(source, FileSource) and _is_local_file(source):
        checked.handles.append(source.directory.descriptor(source.path))
        (directory / name).symlink_to(f"/dev/fd/{checked.handles[-1]}")
        return source
    working = Directory(directory).confined()  # a link of one name stays one
    with working.open_output(name) as file:
        for at in range(0, source.size, BLOCK_BYTES):
            block = np.empty(min(BLOCK_BYTES, source.size - at), np.uint8)
            source.read_into(at, block)
            file.write(block.data)
    return _CopiedSource(working, name, 0, source.size, original=source.name)


def _is_local_file(source: FileSource) -> bool:
    """Return whether a source is a whole file that other libraries can open."""
    is_entire_file = source.start == 0 and source.directory.size(source.path) == source.size
    return is_entire_file and source.directory.local


def _options(lenient: bool) -> tuple[Options, Options]:
    """Return the options of the database, and of each of its column families."""
    with tempfile.TemporaryDirectory(prefix=DIRECTORY) as directory:
        (Path(directory) / "OPTIONS-000001").write_text(
            OPTIONS.replace(STRICT, LENIENT) if lenient else OPTIONS
        )
        options, families = Options.load_latest(directory)
    return options, families["default"]


def _check_manifest(source: ByteSource) -> None:
    """Refuse records of recycled logs, which no manifest has, and in which RocksDB loops forever.

    RocksDB finds all other faults itself, by the checksums.
    """
    data = np.empty(source.size, np.uint8)
    source.read_into(0, data)
    at = 0
    while at + LOG_HEAD <= data.size:
        if LOG_BLOCK - at % LOG_BLOCK < LOG_HEAD:
            at += LOG_BLOCK - at % LOG_BLOCK
            continue
        if int(data[at + 6]) in RECYCLED_RECORDS:
            raise CorruptSnapshotError(
                f"a record of type {int(data[at + 6])} in a RocksDB manifest",
                place=f"{source.name}, offset {at}",
                remedy="the file is damaged or was not copied whole: fetch it again",
            )
        at += LOG_HEAD + int(data[at + 4]) + (int(data[at + 5]) << 8)


def _refuse(data: bytes) -> NoReturn:
    raise CorruptSnapshotError(f"{len(data)} bytes to unpickle, which is never done")


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

    def entries_of_state(
        self, state: int, key_groups: KeyGroupRange | None = None
    ) -> Iterator[Entries]:
        """Yield the entries of one state, from the tables of its column family alone."""
        return self.database.entries(key_groups, (state,))

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

    def stored_spans(self, key_groups: KeyGroupRange) -> list[StoredSpan] | None:
        """Return where the blocks of some key groups are; None if RocksDB has to read a table."""
        return self.database.stored_spans(key_groups)

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
