"""A checkpoint log that is a Delta table of the lake.

Each record is a row, and one commit. A commit has the record's offset as an application
transaction, so that of two writers that saw the same end one fails and appends after the other:
offsets have no gaps, no offset is used twice, and a reader that has read up to one misses nothing
later. They do not depend on the table's versions, so other engines may optimize it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from threading import Lock
from typing import TypeVar

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from statelake.pipelines.lake.tables.delta_commit import DeltaCommit, until_committed
from statelake.pipelines.lake.tables.names import (
    checkpoint_log_table,
    is_edited_file,
    new_edited_file,
)
from statelake.pipelines.lake.tables.tables import create_table, files_of, open_table, read_rows
from statelake.state_core.commit import LogRecord
from statelake.state_core.commit.records.clocks import now_millis
from statelake.state_core.errors import CheckpointRecordError
from statelake.state_core.files.filesystem import Directory

TRANSACTION = "statelake.checkpoints"
ATTEMPTS = 200
Result = TypeVar("Result")
READERS_MAY_TAKE_HOURS = 1
SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("message", pa.binary()),
        ("appended_at", pa.timestamp("us", "UTC")),
    ]
)


class DeltaCheckpointLog:
    """A log in a Delta table, to which any number of processes append.

    Args:
        directory: The table's directory; it is created with the first record.
        clock: Returns milliseconds since 1970.
        keep: The number of files after which records are removed that a later one has replaced.
    """

    def __init__(
        self, directory: Directory, clock: Callable[[], int] = now_millis, keep: int = 200
    ) -> None:
        self.directory = directory.confined()
        self.clock = clock
        self.keep = keep
        self._lock = Lock()

    @classmethod
    def of_job(cls, lake: Directory, job: str) -> DeltaCheckpointLog:
        """Return the log of a job, at its place in the lake."""
        return cls(lake.confined().child(checkpoint_log_table(job)))

    def append(self, key: bytes, message: bytes) -> None:
        """Add a record.

        Raises:
            ConflictError: Other writers were first each time.
        """
        with self._lock:  # tasks of one process do not conflict with each other
            table = self._until_committed(lambda: self._append_once(key, message))
            if len(table.file_uris()) + 1 >= self.keep:
                with suppress(CommitFailedError):  # left to the writer that was first
                    self._compact_once(1)

    def _append_once(self, key: bytes, message: bytes) -> DeltaTable:
        table = self._open() or self._create()
        offset = _end(table) + 1
        record = LogRecord(offset, key, message, self.clock())
        self._write(table, [record], offset, replace=False)
        return table

    def read(self, after: int = -1) -> Iterator[LogRecord]:
        """Yield the records after an offset.

        Raises:
            CheckpointRecordError: A file is damaged, or does not exist.
        """
        table = self._open()
        if table is not None:
            yield from self._records(table, after)

    def compact(self, newest: int = 1) -> int:
        """Remove every record but the newest of its key.

        Args:
            newest: How many of each key stay.

        Returns:
            The number of removed records.

        Raises:
            ConflictError: Other writers were first each time.
        """
        with self._lock:
            return self._until_committed(lambda: self._compact_once(newest))

    def _until_committed(self, attempt: Callable[[], Result]) -> Result:
        return until_committed(attempt, self.directory, attempts=ATTEMPTS)

    def _compact_once(self, newest: int) -> int:
        """Try to compact once, and return the number of removed records."""
        table = self._open()
        if table is None:
            return 0
        records = list(self._records(table, -1))
        kept = newest_of_each_key(records, newest)
        if len(kept) < len(records) or len(table.file_uris()) >= self.keep:
            self._write(table, kept, _end(table), replace=True)
            self._remove_unneeded()
        return len(records) - len(kept)

    def _remove_unneeded(self) -> None:
        """Delete files that are no longer named, and those of lost commits."""
        table = self._open()
        if table is None:
            return
        removed, long_removed = (
            set(table.vacuum(hours, dry_run=True, enforce_retention_duration=False))
            for hours in (0, READERS_MAY_TAKE_HOURS)
        )
        needed = {file.path for file in files_of(table)} | (removed - long_removed)
        before = time.time() - READERS_MAY_TAKE_HOURS * 3600
        for name in self.directory.names():
            if (
                name not in needed
                and is_edited_file(name)
                and self.directory.modified(name) < before
            ):
                self.directory.delete(name)

    def _write(
        self, table: DeltaTable, records: list[LogRecord], end: int, *, replace: bool
    ) -> None:
        """Commit rows, unless another writer was first."""
        columns = [
            [record.offset for record in records],
            [record.key for record in records],
            [record.message for record in records],
            [record.appended_at * 1000 for record in records],
        ]
        arrays = [pa.array(c, field.type) for c, field in zip(columns, SCHEMA, strict=True)]
        transaction = Transaction(TRANSACTION, end)
        properties = CommitProperties(app_transactions=[transaction])
        change = DeltaCommit(self.directory, SCHEMA, None, properties)
        name = new_edited_file(table.version() + 1)
        change.add_rows(name, pa.Table.from_arrays(arrays, schema=SCHEMA))
        change.write(table, replace_all=replace)

    def _records(self, table: DeltaTable, after: int) -> Iterator[LogRecord]:
        try:
            condition = ds.field("offset") > after
            rows = read_rows(table, self.directory, SCHEMA, condition).sort_by("offset")
            if any(column.null_count for column in rows.columns):
                raise pa.ArrowInvalid("a record without offset, key, message or time")
        except (DeltaError, pa.ArrowException, OSError) as error:
            raise CheckpointRecordError(
                f"the log can't be read: {error}",
                place=self.directory.uri,
                remedy="restore the file, or the table's version before it",
            ) from error
        times = rows.column("appended_at").cast(pa.int64()).to_pylist()
        columns = [rows.column(name).to_pylist() for name in SCHEMA.names[:3]]
        for offset, key, message, micros in zip(*columns, times, strict=True):
            yield LogRecord(offset, key, message, micros // 1000)

    def _open(self) -> DeltaTable | None:
        # always anew: what is behind a table that was opened long ago may be cleaned up
        return open_table(self.directory)

    def _create(self) -> DeltaTable:
        kept = {"delta.logRetentionDuration": "interval 1 days"}
        return create_table(self.directory, SCHEMA, configuration=kept, name="checkpoints")


def newest_of_each_key(records: Iterable[LogRecord], newest: int) -> list[LogRecord]:
    """Return the last records of each key, in the order of the log."""
    listed = list(records)
    later: Counter[bytes] = Counter()
    kept = []
    for record in reversed(listed):
        if later[record.key] < newest:
            kept.append(record)
        later[record.key] += 1
    return kept[::-1]


def _end(table: DeltaTable) -> int:
    version = table.transaction_version(TRANSACTION)
    return -1 if version is None else int(version)
