"""Tables of keys and values as bytes, into which tasks commit: rows are erased from every version.

A store's table has the pairs of its tasks, a changelog's table their changes. Only the task knows
the meaning of the bytes: a row is erased if its key is one of the keys. A row that only contains
one, in a longer key or in its value, may belong to another key; the request says whether it stays.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from statelake.pipelines.lake.erase.log_rewriting import check_log, named_files, rewrite_log
from statelake.pipelines.lake.erase.needles import needles_of, whole_forms
from statelake.pipelines.lake.erase.requests import ErasureRequest
from statelake.pipelines.lake.erase.searching import Searcher, unpacked, unpacked_table
from statelake.pipelines.lake.tables.parquet_bounds import BoundedWriter, open_parquet
from statelake.pipelines.lake.tables.records import SnapshotRecord, UnitRecord
from statelake.pipelines.lake.tables.table_log import LOG_DIRECTORY
from statelake.pipelines.lake.tables.tables import StateTable
from statelake.state_core.errors import DamagedLakeError, StateError
from statelake.state_core.files.filesystem import Directory

BATCH_ROWS = 1 << 14
PIECE_BYTES = 16 << 20
UNPACKED_BYTES = 256 << 20
_END = re.compile(r"(-[0-9a-f]{12})?\.parquet$")


class HeldKeys:
    """Tests whether bytes hold one of the keys.

    Args:
        asked: The request with the keys; predicates only apply to states with columns.
        records: Snapshots, whose operators have the key serializers.
        everything: Whether pairs are erased that only contain a key.
    """

    def __init__(
        self, asked: ErasureRequest, records: Iterable[SnapshotRecord], *, everything: bool
    ) -> None:
        listed = list(records)
        keys = ErasureRequest(asked.request, asked.keys)
        needles, left_out = needles_of(keys, listed)
        self.too_short = bool(left_out)
        self.everything = everything
        self._whole = frozenset(whole_forms(asked, listed))
        self._whole_column = pa.array(sorted(self._whole), pa.large_binary())
        self._within = Searcher(needles)
        # excludes many rows at once; it also finds numbers within longer ones
        self._somewhere = Searcher([replace(needle, digits=False) for needle in needles])

    def has(self, data: bytes | pa.Buffer) -> bool:
        """Return whether bytes contain a key."""
        return next(self._within.find(data), None) is not None

    def pair_has(self, key: bytes, value: bytes | None) -> bool:
        """Return whether a pair contains a key."""
        return self.has(key) or self.has(value or b"")

    def goes(self, key: bytes, value: bytes | None) -> bool:
        """Return whether a pair is erased."""
        return key in self._whole or (self.everything and self.pair_has(key, value))

    def going(self, batch: pa.RecordBatch) -> tuple[pa.BooleanArray, pa.BooleanArray]:
        """Return which pairs are erased, and which stay although they contain a key."""
        key, value = (batch.column(name).cast(pa.large_binary()) for name in ("key", "value"))
        equal = pc.is_in(key, self._whole_column)
        partial = pc.or_(self._within_each(key), self._within_each(value))
        if self.everything:
            return pc.or_(equal, partial), pa.repeat(False, len(batch))
        return equal, pc.and_(partial, pc.invert(equal))

    def _within_each(self, column: pa.Array) -> pa.BooleanArray:
        """Return which values of a column contain a key."""
        data = column.buffers()[2] if len(column) else None
        if data is None or next(self._somewhere.find(data), None) is None:
            return pa.repeat(False, len(column))
        matches = [value is not None and self.has(value) for value in column.to_pylist()]
        return pa.array(matches, pa.bool_())

    def in_file(self, directory: Directory, path: str) -> bool:
        """Return whether a file contains a key, in its bytes or in its compressed parts."""
        size, overlap = directory.size(path), self._within.longest
        with suppress(StateError):  # a file of another kind, or one that only RocksDB can read
            if any(self.has(data) for _, data in unpacked_table(directory.source(path))):
                return True
        with directory.open_input(path) as file:
            for start in range(0, size, PIECE_BYTES):
                data = pa.py_buffer(file.read_at(PIECE_BYTES + overlap, start))
                contents = (content for _, content in unpacked(data, UNPACKED_BYTES))
                if self.has(data) or any(map(self.has, contents)):
                    return True
        return False


@dataclass(frozen=True)
class RowsGoing:
    """The rows of a table to erase.

    Attributes:
        rows: Their number.
        files: The files with such rows, with their bytes.
        partial_matches: The number of rows that stay although they contain a key.
        unread: Files that no version has and that can't be read: of an interrupted write.
    """

    rows: int
    files: tuple[tuple[str, int], ...]
    partial_matches: int
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class PairTable:
    """A table of keys and values.

    Attributes:
        job: The job.
        area: `stores` or `changelogs`.
        name: Its name there.
        table: The table.
    """

    job: str
    area: str
    name: str
    table: StateTable

    def find(self, held: HeldKeys) -> RowsGoing:
        """Search all files, also those that no version has.

        Raises:
            DamagedLakeError: A file can't be read, or the log can't be rewritten.
        """
        if self.table.open() is not None:
            check_log(self.table)
        rows = partial_matches = 0
        files, unread = [], []
        named = named_files(self.table)
        for path, size in self._files():
            try:
                going, partial = self._counts(path, held)
            except StateError:
                if path in named:
                    raise
                unread.append(path)  # it was not committed, and never will be
                continue
            rows += going
            partial_matches += partial
            if going:
                files.append((path, size))
        return RowsGoing(rows, tuple(files), partial_matches, tuple(unread))

    def _counts(self, path: str, held: HeldKeys) -> tuple[int, int]:
        """Return how many rows of a file are erased, and how many stay but contain a key."""
        going = partial_matches = 0
        for batch in self._batches(path):
            for_good, partial = held.going(batch)
            going += pc.sum(for_good).as_py() or 0
            partial_matches += pc.sum(partial).as_py() or 0
        return going, partial_matches

    def erase(self, held: HeldKeys, request: str) -> None:
        """Make every version name files without the erased rows; it may be repeated.

        The name of a new file depends on the old one and the request, so that a repetition uses the
        same names.
        """
        going, named = self.find(held), named_files(self.table)
        for path in going.unread:
            self.table.directory.delete(path)
        replaced: dict[str, UnitRecord | None] = {
            path: self._rewritten(path, held, request, named)
            for path, _ in going.files
            if path in named
        }
        if self.table.open() is not None:
            rewrite_log(self.table, replaced)
        for path, _ in going.files:
            self.table.directory.delete(path)

    def _files(self) -> Iterator[tuple[str, int]]:
        for path, size in self.table.directory.files_below():
            if path.endswith(".parquet") and not path.startswith(f"{LOG_DIRECTORY}/"):
                yield path, size

    def _batches(self, path: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file."""
        try:
            with self.table.directory.open_input(path) as file:
                rows = open_parquet(file, self.table.directory.full(path))
                if not {"key", "value"} <= set(rows.schema_arrow.names):
                    raise pa.ArrowInvalid("no columns key and value")
                yield from rows.iter_batches(BATCH_ROWS)
        except StateError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise DamagedLakeError(
                f"not a file of keys and values ({error})", place=self.table.directory.full(path)
            ) from error

    def _rewritten(self, path: str, held: HeldKeys, request: str, named: set[str]) -> UnitRecord:
        """Write a file without the erased rows; one without rows is kept for its offsets."""
        digest = hashlib.sha256(f"{request}\n{path}".encode()).hexdigest()[:12]
        new, rows = _END.sub(f"-{digest}.parquet", path), 0
        directory = self.table.directory
        if new in named:  # it was written, and its log begun, before a crash
            with directory.open_input(new) as file:
                rows = pq.read_metadata(file).num_rows
            return UnitRecord(new, -1, 0, 0, rows, directory.size(new), b"")
        with directory.open_input(path) as file:
            schema = pq.read_schema(file)
        with directory.open_output(new) as target:
            with BoundedWriter(
                target, schema, compression="zstd", write_page_checksum=True
            ) as writer:
                for batch in self._batches(path):
                    kept = batch.filter(pc.invert(held.going(batch)[0]))
                    rows += len(kept)
                    if len(kept):
                        writer.write_batch(kept)
            size = target.tell()
        return UnitRecord(new, -1, 0, 0, rows, size, b"")
