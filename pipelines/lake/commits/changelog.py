"""Changelogs that are Delta tables of the lake.

::

    <job>/changelogs/<stream>                                      partitioned by the task's number
    <job>/changelogs/<stream>/_data/<partition>/<first>-<last>-... changes of these offsets

A row is a put, or a delete if it has no value. A flush is one commit, and each file has the offsets
in its name, so that a compaction replaces files by one of the same offsets, and no offset is used
twice. A second writer is refused at its next flush.
"""

from __future__ import annotations

import posixpath
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import Transaction

from statelake.pipelines.lake.commits.partition_files import PartitionFile, PartitionFiles
from statelake.pipelines.lake.tables.names import changelog_table
from statelake.pipelines.lake.tables.parquet_bounds import BoundedWriter
from statelake.pipelines.lake.tables.tables import StateTable
from statelake.state_core.commit.backends.changelog import (
    Change,
    Changelog,
    EmbeddedChangelogs,
    never_cancel,
)
from statelake.state_core.commit.records.records import SystemStreamPartition
from statelake.state_core.errors import CommitError
from statelake.state_core.files.filesystem import Directory

BATCH_BYTES = 32 << 20
BATCH_ROWS = 1 << 14
COMPACTED_FILES = 8
ORPHANED_SECONDS = 3600
ROWS = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        ("value", pa.binary()),
    ]
)
LARGE = pa.schema(
    [("offset", pa.int64()), ("key", pa.large_binary()), ("value", pa.large_binary())]
)
COLUMNS = pa.schema([("partition", pa.string()), *ROWS])
_FILE = re.compile(r"(\d{20})-(\d{20})-[0-9a-f]+\.parquet", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class _Segment:
    first: int
    last: int
    file: PartitionFile

    @classmethod
    def parse(cls, file: PartitionFile) -> _Segment | None:
        """Return the segment in a file's name; None for other files."""
        match = _FILE.fullmatch(posixpath.basename(file.path))
        return None if match is None else cls(int(match[1]), int(match[2]), file)


class DeltaChangelogs(EmbeddedChangelogs):
    """The changelogs of a job in its lake.

    Args:
        lake: The lake's directory.
        job: The job's name.
        batch_bytes: The bytes of changes after which they are committed without a flush.
    """

    def __init__(self, lake: Directory, job: str, batch_bytes: int = BATCH_BYTES) -> None:
        self.lake = lake
        self.job = job
        self.batch_bytes = batch_bytes

    def open(self, partition: SystemStreamPartition) -> Changelog:
        """Open a partition of a stream's table."""
        table = StateTable(self.lake, changelog_table(self.job, partition.stream))
        return _DeltaChangelog(table, partition.partition, self.batch_bytes)


class _DeltaChangelog:
    def __init__(self, table: StateTable, partition: int, batch_bytes: int) -> None:
        self._files = PartitionFiles(table, COLUMNS, "partition", str(partition))
        self._table = table
        self._batch_bytes = batch_bytes
        self._lock = Lock()  # commits: a flush may come while a compaction ends
        self._segments = self._present()
        self._first = self._segments[-1].last + 1 if self._segments else 0
        self._keys: list[bytes] = []
        self._values: list[bytes | None] = []
        self._size = 0

    def append(self, key: bytes, value: bytes | None) -> None:
        self._keys.append(key)
        self._values.append(value)
        self._size += len(key) + len(value or b"") + 16
        if self._size >= self._batch_bytes:
            self.flush()

    def flush(self) -> None:
        if not self._keys:
            return
        offsets = np.arange(self._first, self._first + len(self._keys))
        arrays = [offsets, pa.array(self._keys, pa.binary()), pa.array(self._values, pa.binary())]
        rows = pa.Table.from_arrays([pa.array(array) for array in arrays], schema=ROWS)
        self._replace(self._write(int(offsets[0]), int(offsets[-1]), rows), [])
        self._first += len(self._keys)
        self._clear()

    def newest(self) -> int | None:
        return self._segments[-1].last if self._segments else None

    def read(
        self, start: int = 0, end: int | None = None, waiting: Callable[[], None] = never_cancel
    ) -> Iterator[Change]:
        with self._lock:
            segments = list(self._segments)
        for segment in segments:
            if segment.last < start or (end is not None and segment.first > end):
                continue
            for batch in self._batches(segment):
                for change in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    if change[0] >= start and (end is None or change[0] <= end):
                        yield Change(*change)

    def compact(self, end: int) -> None:
        """Compact whole files only, once there are enough of them."""
        with self._lock:
            sealed = [segment for segment in self._segments if segment.last <= end]
        if len(sealed) < COMPACTED_FILES:
            return
        batches = [batch for segment in sealed for batch in self._batches(segment)]
        rows = _compacted(pa.Table.from_batches(batches, ROWS))
        # even without a row it has its offsets, so that they never come again
        compacted = self._write(sealed[0].first, sealed[-1].last, rows)
        self._replace(compacted, sealed)
        for gone in sealed:
            self._table.directory.delete(gone.file.path)
        self._remove_orphans()

    def close(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._keys, self._values, self._size = [], [], 0

    def _present(self) -> list[_Segment]:
        table = self._table.open()
        return [] if table is None else _segments(self._files.of(table))

    def _write(self, first: int, last: int, rows: pa.Table) -> _Segment:
        """Write a file that the table does not name yet."""
        name = f"{first:020}-{last:020}-{uuid.uuid4().hex[:12]}.parquet"
        path = f"{self._files.directory}/{name}"
        with self._table.directory.open_output(path) as target:
            options = {"compression": "zstd", "write_page_checksum": True}
            with BoundedWriter(target, rows.schema, **options) as writer:
                writer.write_table(rows)
            size = target.tell()
        return _Segment(first, last, PartitionFile(path, size, rows.num_rows))

    def _replace(self, new: _Segment, gone: list[_Segment]) -> None:
        """Commit a file that replaces others."""

        def choose(
            before: list[PartitionFile],
        ) -> tuple[list[PartitionFile], list[PartitionFile]]:
            if _segments(before) != self._segments:
                raise CommitError(
                    "another process writes this changelog",
                    place=f"{self._table.uri}, partition {self._files.value}",
                    remedy="end one of the two; the other goes on from the last record in the log",
                )
            return [new.file], [segment.file for segment in gone]

        with self._lock:
            moment = Transaction(f"partition {self._files.value}", self._segments_end(new))
            self._files.commit(choose, moment)
            self._segments = sorted(
                [*(segment for segment in self._segments if segment not in gone), new]
            )

    def _segments_end(self, new: _Segment) -> int:
        return max([new.last, *(segment.last for segment in self._segments)])

    def _batches(self, segment: _Segment) -> Iterator[pa.RecordBatch]:
        return self._files.batches(segment.file, ROWS, BATCH_ROWS)

    def _remove_orphans(self) -> None:
        """Delete files that were never committed, unless a process may be about to commit them."""
        directory, known = self._table.directory, {segment.file.path for segment in self._segments}
        for path, _ in directory.files_below(self._files.directory):
            ours = _FILE.fullmatch(posixpath.basename(path)) is not None and path not in known
            if ours and directory.modified(path) < time.time() - ORPHANED_SECONDS:
                directory.delete(path)


def _segments(files: Iterable[PartitionFile]) -> list[_Segment]:
    segments = (_Segment.parse(file) for file in files)
    return sorted(segment for segment in segments if segment is not None)


def _compacted(rows: pa.Table) -> pa.Table:
    """Return the last change of each key, unless it is a delete; rows are in order of offsets."""
    # together they may have more bytes than the offsets of one small array can say
    rows = rows.cast(LARGE)
    keys = rows.column("key").combine_chunks().dictionary_encode()
    codes = keys.indices.to_numpy()
    last = np.full(len(keys.dictionary), -1, np.int64)
    last[codes] = np.arange(len(codes))
    kept = rows.take(pa.array(np.sort(last)))
    return kept.filter(pc.is_valid(kept.column("value")))
