"""RocksDB's own files, of incremental and full checkpoints and native savepoints.

A handle lists the files of a RocksDB instance, shared ones and private ones, and a meta file that
holds the keyed header alone. One column family a state; keys and values are the bytes of the
unified format without its flag. What compaction has not yet removed (overwritten and deleted
entries, list elements not yet merged) is RocksDB's business, so RocksDB itself reads them; the
files may hold key groups of other subtasks, which are left out.

Nothing of the snapshot is opened in place: files are linked or copied into a directory of their
own. Its options file is left out: one damaged byte there is enough to end the process, and all that
reading needs to know is how list elements are merged, which Flink never changes.

Source: `RocksIncrementalSnapshotStrategy`, `RocksNativeFullSnapshotStrategy`,
`RocksDBIncrementalRestoreOperation` in `org.apache.flink.state.rocksdb`.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from rocksdict import AccessType, Options, Rdict, ReadOptions

from state_core.errors import CorruptSnapshotError, UnsafePathError
from state_core.filesystem import ByteSource, FileSource
from state_core.formats.meta_info import KeyedHeader
from state_core.handles import KeyGroupRange
from state_core.snapshot import Entries

__all__ = ["RocksDBFiles"]

BATCH_ROWS = 1 << 16
BLOCK_BYTES = 8 << 20
LOG_BLOCK = 32768
LOG_HEAD = 7  # u32 checksum, u16 length (little-endian), u8 type
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


@dataclass(frozen=True)
class RocksDBFiles:
    """One handle's RocksDB files.

    Attributes:
        name: What it is, for messages.
        header: What the meta file says of the states.
        files: Local name and bytes of each file.
        key_groups: Those that the handle claims.
        prefix: Bytes of the key-group prefix.
        lenient: Whether a damaged table is a fault only where something is read of it.
    """

    name: str
    header: KeyedHeader
    files: tuple[tuple[str, ByteSource], ...]
    key_groups: KeyGroupRange
    prefix: int
    lenient: bool = False
    _held: list[Any] = field(default_factory=list, repr=False, compare=False)
    _families: set[str] = field(default_factory=set, repr=False, compare=False)

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(source.size for _, source in self.files)

    @cached_property
    def _database(self) -> Rdict:
        """The instance, opened read-only from a directory that goes when this does."""
        directory = tempfile.TemporaryDirectory(prefix=DIRECTORY)
        self._held.append(directory)
        try:
            for name, source in self.files:
                _place(Path(directory.name), name, source)
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
        """Open the instance, which else happens where it is first read.

        Raises:
            CorruptSnapshotError: RocksDB can't read its files.
            UnsafePathError: A file is called what RocksDB never calls one.
        """
        _ = self._database

    def family(self, state: int) -> Any:
        """The column family of a state.

        Raises:
            CorruptSnapshotError: There is none, or RocksDB can't read its files.
        """
        database, name = self._database, self.header.states[state].name
        if name not in self._families:
            raise CorruptSnapshotError(
                f"RocksDB has no column family for state {name!r}",
                place=self.name,
                remedy="a file of the checkpoint is missing or another's: copy it whole",
            )
        try:
            return database.get_column_family(name)
        except Exception as error:
            raise self._fault(error) from error

    def entries(
        self, key_groups: KeyGroupRange | None = None, states: Sequence[int] | None = None
    ) -> Iterator[Entries]:
        """All entries of some key groups, key group after key group.

        Args:
            key_groups: Only these; all by default.
            states: Only these, by id; all by default.

        Raises:
            CorruptSnapshotError: RocksDB can't read its files.
        """
        wanted = self.key_groups
        if key_groups is not None:
            wanted = wanted.intersection(key_groups)
        if not len(wanted) or not self.files:
            return
        chosen = range(len(self.header.states)) if states is None else states
        families = [_Family(self, index, wanted) for index in chosen]
        rows: list[tuple[int, list[tuple[bytes, bytes]]]] = []
        count = 0
        for group in range(wanted.first, wanted.last + 1):
            for family in families:
                for batch in family.of_group(group):
                    rows.append((family.state, batch))
                    count += len(batch)
                    if count >= BATCH_ROWS:
                        yield self._entries(rows)
                        rows, count = [], 0
        if rows:
            yield self._entries(rows)

    def _entries(self, rows: list[tuple[int, list[tuple[bytes, bytes]]]]) -> Entries:
        """Keys and values in one buffer, in their order."""
        pairs = [pair for _, batch in rows for pair in batch]
        data = np.frombuffer(b"".join([part for pair in pairs for part in pair]), np.uint8)
        lengths = np.array([len(part) for pair in pairs for part in pair], np.int64)
        bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        parts = bounds[:-1:2], bounds[1::2], bounds[2::2]
        starts, middles, ends = (np.ascontiguousarray(one) for one in parts)
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
        said = re.sub(rf"\S*{DIRECTORY}\w+/(\S+\.sst|[A-Z]+(-\d+)?)", self._known, str(error))
        return CorruptSnapshotError(
            f"RocksDB can't read its files ({' '.join(said.split())})",
            place=self.name,
            remedy="a file is missing or damaged: copy the whole checkpoint, with `shared`",
        )

    def _known(self, found: re.Match[str]) -> str:
        """A file as the snapshot calls it, behind RocksDB's own name."""
        name = found[1]
        paths = [source.name for local, source in self.files if local == name]
        return f"{name}, which is {paths[0]}" if paths else name


class _Family:
    """One state's column family, read from front to back."""

    def __init__(self, files: RocksDBFiles, state: int, wanted: KeyGroupRange) -> None:
        self.files = files
        self.state = state
        self.prefix = files.prefix
        self.family: Any = files.family(state)
        self.last = wanted.first.to_bytes(self.prefix, "big")
        self.behind = (wanted.last + 1).to_bytes(self.prefix + 1, "big")
        options = ReadOptions()
        if self.behind[0] == 0:  # else the range ends where all key groups end
            options.set_iterate_upper_bound(self.behind[1:])
        try:
            self.items: Any = self.family.items(from_key=self.last, read_opt=options)
        except Exception as error:
            raise files._fault(error) from error  # noqa: SLF001 - a part of it
        self.held: list[tuple[bytes, bytes]] = []
        self.error: Exception | None = None

    def of_group(self, group: int) -> Iterator[list[tuple[bytes, bytes]]]:
        """The entries of one key group, in batches."""
        behind = (group + 1).to_bytes(self.prefix + 1, "big")[-self.prefix :]
        last = group + 1 >= 1 << 8 * self.prefix
        while True:
            if not self.held:
                self.held = self._next()
                if not self.held:
                    return
            if last or self.held[-1][0] < behind:
                yield self.held
                self.held = []
                continue
            cut = _first_from(self.held, behind)
            if cut:
                yield self.held[:cut]
                self.held = self.held[cut:]
            return

    def _next(self) -> list[tuple[bytes, bytes]]:
        """The next entries; those before a break come before the error that tells of it."""
        if self.error is not None:
            raise self.files._fault(self.error) from self.error  # noqa: SLF001 - a part of it
        found: list[tuple[bytes, bytes]] = []
        try:
            found = list(islice(self.items, BATCH_ROWS))
            if found:
                self.last = found[-1][0]
            if len(found) < BATCH_ROWS:
                self._check_end()
        except Exception as error:
            if not found:
                raise self.files._fault(error) from error  # noqa: SLF001 - the same
            self.error = error
        return found

    def _check_end(self) -> None:
        """Items just end where a block can't be read; go there again, and ask why nothing follows.

        Raises:
            Exception: RocksDB's own, or ours if there is more after all.
        """
        again = self.family.iter()
        again.seek(self.last)
        if again.valid() and again.key() == self.last:
            again.next()
        again.status()
        if again.valid() and (self.behind[0] != 0 or again.key() < self.behind[1:]):
            raise CorruptSnapshotError("reading ended before the last entry")


def _first_from(rows: list[tuple[bytes, bytes]], key: bytes) -> int:
    """The first row whose key is not before `key`."""
    low, high = 0, len(rows)
    while low < high:
        middle = (low + high) // 2
        if rows[middle][0] < key:
            low = middle + 1
        else:
            high = middle
    return low


def _place(directory: Path, name: str, source: ByteSource) -> None:
    """Put a file where RocksDB expects it: a link to a whole local file, or else a copy."""
    if not KNOWN_NAME.fullmatch(name):
        raise UnsafePathError(
            f"a RocksDB file called {name!r}",
            place=source.name,
            remedy="this is not how Flink writes: do not trust the file",
        )
    if name.startswith("MANIFEST"):
        _check_manifest(source)
    if name.startswith("OPTIONS"):
        return
    target = directory / name
    local = isinstance(source, FileSource) and source.directory.local and source.start == 0
    if local and name.endswith(".sst") and isinstance(source, FileSource):
        path = source.directory.full(source.path)
        if Path(path).stat().st_size == source.size:
            target.symlink_to(os.path.realpath(path))
            return
    with target.open("wb") as file:
        for at in range(0, source.size, BLOCK_BYTES):
            block = np.empty(min(BLOCK_BYTES, source.size - at), np.uint8)
            source.read_into(at, block)
            file.write(block.data)


def _options(lenient: bool) -> tuple[Options, Options]:
    """The options of the database, and of each of its column families."""
    with tempfile.TemporaryDirectory(prefix=DIRECTORY) as directory:
        (Path(directory) / "OPTIONS-000001").write_text(
            OPTIONS.replace(STRICT, LENIENT) if lenient else OPTIONS
        )
        options, families = Options.load_latest(directory)
    return options, families["default"]


def _check_manifest(source: ByteSource) -> None:
    """Refuse records of recycled logs: no manifest has any, and RocksDB never comes back from one.

    Whatever else may be wrong it finds itself, by the checksums.
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
    raise CorruptSnapshotError(f"{len(data)} bytes that want to be unpickled, which never happens")
