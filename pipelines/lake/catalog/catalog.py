"""The lake: a directory of Delta tables, and the `snapshots` table that says what is in it.

A snapshot exists when its row is in `snapshots`; the row is written last, by a commit that only
one writer can make for a given job and id.

Who can write into the lake can write a row, too. So a row is held against `record_rules` when it is
read. One that breaks them is no snapshot: asked for by name it is an error that says what is wrong,
and the others can be used as if it were not there.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from pipelines.lake.catalog.catalog_looks import CatalogLooks
from pipelines.lake.catalog.catalog_rows import (
    HoldsChange,
    rows_of,
    rows_replaced,
    rows_with_holds,
    rows_without,
)
from pipelines.lake.tables.delta_commit import DeltaCommit, until_committed
from pipelines.lake.tables.names import SNAPSHOTS, is_edited_file, new_edited_file, path_segment
from pipelines.lake.tables.parquet_bounds import open_parquet
from pipelines.lake.tables.record_rules import record_fault
from pipelines.lake.tables.records import SNAPSHOT_SCHEMA, SnapshotRecord
from pipelines.lake.tables.tables import (
    CONFIGURATION,
    StateTable,
    log_path,
    open_table,
    refuse_features,
)
from state_core.errors import (
    ConflictError,
    DamagedLakeError,
    MissingFileError,
    NotALakeError,
    NotFoundError,
    StateError,
    UnsafePathError,
)
from state_core.files.filesystem import Directory

__all__ = ["BadRow", "Catalog"]

MANY_FILES = 64
# Not even delta-rs itself may try again: what is to be written follows from what was read.
UNLESS_CHANGED = CommitProperties(max_commit_retries=0)
_HEAVY_COLUMNS = ("metadata", "carried", "operators")


@dataclass(frozen=True)
class BadRow:
    """A row of the catalog that is no snapshot, or a file of rows that can't be read.

    Attributes:
        job: Its job.
        snapshot_id: Its id, as far as it says one.
        error: What is wrong with it, and what to do.
    """

    job: str
    snapshot_id: str
    error: DamagedLakeError | UnsafePathError


class Catalog:
    """A lake's catalog of snapshots, and its tables. Nothing is created before the first snapshot.

    Nothing that is in the lake leads out of it: its directory is confined.

    Args:
        location: The lake's path or URI.
    """

    def __init__(self, location: str | os.PathLike[str]) -> None:
        self.directory = Directory(location).confined()
        # absolute, since tasks on other machines have it too
        self.location = self.directory.location
        self._catalog = StateTable(self.directory, SNAPSHOTS)
        self._looks = CatalogLooks(self._catalog.directory)

    def table(self, path: str) -> StateTable:
        """A table of the lake."""
        return StateTable(self.directory, path)

    def check_tables(self, paths: Iterable[str]) -> None:
        """Open some of its tables, those that there are, before anything is written.

        Raises:
            DamagedLakeError: A table can't be opened.
            UnsafePathError: A table's path leads out of the lake.
        """
        for path in paths:
            self.table(path).open()

    def exists(self) -> bool:
        """Whether there is a lake."""
        return self._looks.newest() is not None

    def _open_catalog(self, *, to_read: bool = False) -> DeltaTable:
        table = self._looks.newest() if to_read else open_table(self._catalog.directory)
        if table is None or table.metadata().partition_columns != ["job"]:
            raise NotALakeError(
                "this is no lake: there is no `snapshots` table of ours in it",
                place=self.directory.full(),
                remedy="give the directory that `statelake import --lake` wrote to",
            )
        return table

    def jobs(self) -> list[str]:
        """The jobs that have snapshots, sorted."""
        return sorted({record.job for record in self.summaries()})

    def summaries(self, job: str | None = None) -> list[SnapshotRecord]:
        """All snapshots, or one job's, the oldest first, without their operators.

        Rows that can't be believed are left out: `bad_rows` has them, as far as that can be told
        without operators.

        Raises:
            NotALakeError: There is no lake.
        """
        return self.listed(job)[0]

    def bad_rows(self, job: str | None = None) -> list[BadRow]:
        """What `summaries` leaves out."""
        return self.listed(job)[1]

    def has(self, job: str, snapshot_id: str) -> bool:
        """Whether an id is taken, if only by a row that breaks a rule."""
        summaries, bad = self.listed(job)
        existing = {summary.snapshot_id for summary in summaries} | {row.snapshot_id for row in bad}
        return snapshot_id in existing

    def records(self, job: str | None = None) -> tuple[list[SnapshotRecord], list[BadRow]]:
        """All snapshots, or one job's, with all that is known of them, and the rows that are none.

        Raises:
            NotALakeError: There is no lake.
        """
        records, bad = self._read(SNAPSHOT_SCHEMA.names, job)
        return sorted(records, key=_by_age), bad

    def snapshot(self, job: str, snapshot_id: str) -> SnapshotRecord:
        """One snapshot with all that is known of it.

        Raises:
            NotFoundError: There is no such job or snapshot.
            DamagedLakeError: The snapshot's row breaks a rule of the catalog.
        """
        records, bad = self._read(SNAPSHOT_SCHEMA.names, job, snapshot_id)
        if records:
            return records[0]
        if bad:
            raise bad[0].error
        ids = [record.snapshot_id for record in self.summaries(job)]
        if not ids:
            jobs = ", ".join(self.jobs()) or "none"
            raise NotFoundError(f"no job {job!r} in the lake", remedy=f"it has: {jobs}")
        latest = ", ".join(ids[-10:])
        raise NotFoundError(
            f"job {job!r} has no snapshot {snapshot_id!r}", remedy=f"its latest are: {latest}"
        )

    def latest(self, job: str) -> SnapshotRecord | None:
        """The job's newest snapshot, if it has one.

        Raises:
            DamagedLakeError: A row can't be believed, so that nobody knows which is the newest.
        """
        summaries, bad = self.listed(job) if self.exists() else ([], [])
        if bad:
            raise bad[0].error
        return self.snapshot(job, summaries[-1].snapshot_id) if summaries else None

    def listed(self, job: str | None = None) -> tuple[list[SnapshotRecord], list[BadRow]]:
        """What `summaries` gives, and what it leaves out, of one look at the catalog."""
        columns = [name for name in SNAPSHOT_SCHEMA.names if name not in _HEAVY_COLUMNS]
        records, bad = self._read(columns, job)
        by_name = {(record.job, record.snapshot_id): record for record in records}
        return sorted(by_name.values(), key=_by_age), bad

    def _read(
        self, columns: list[str], job: str | None, snapshot_id: str | None = None
    ) -> tuple[list[SnapshotRecord], list[BadRow]]:
        """Rows of the catalog, read from its own files: no engine has to wake up for it."""
        whole = columns == SNAPSHOT_SCHEMA.names
        stored = [name for name in columns if name != "job"]
        records: list[SnapshotRecord] = []
        bad: list[BadRow] = []
        for path, _, held in _files(self._open_catalog(to_read=True)):
            if job is not None and held != job:
                continue
            try:
                with self._looks.open_file(log_path(path, self._catalog.uri)) as file:
                    rows = rows_of(open_parquet(file, path), stored, snapshot_id)
            except UnsafePathError as error:
                bad.append(BadRow(str(held or ""), "", error))
                continue
            except (
                MissingFileError, OSError, OverflowError, ValueError, pa.ArrowException
            ) as error:  # fmt: skip
                bad.append(BadRow(str(held or ""), "", self._unreadable(path, error)))
                continue
            for row in rows:
                parsed = self._record(row | {"job": held}, whole=whole)
                if isinstance(parsed, SnapshotRecord):
                    records.append(parsed)
                else:
                    bad.append(parsed)
        return (
            self._told_apart(records, bad) if columns == SNAPSHOT_SCHEMA.names else (records, bad)
        )

    def _record(self, row: dict[str, object], *, whole: bool) -> SnapshotRecord | BadRow:
        """A row, if it keeps the rules."""
        try:
            record = SnapshotRecord.from_row(row)
            problem = record_fault(record, whole=whole)
        except DamagedLakeError as error:
            problem = error.problem
        return self._bad(row, problem) if problem else record

    def _told_apart(
        self, records: list[SnapshotRecord], bad: list[BadRow]
    ) -> tuple[list[SnapshotRecord], list[BadRow]]:
        """Move snapshots with several rows to the bad rows: none of them is known to be true."""
        counts = Counter((record.job, record.snapshot_id) for record in records)
        alone = [record for record in records if counts[record.job, record.snapshot_id] == 1]
        twins = [
            self._bad({"job": job, "snapshot_id": name}, f"{count} rows of this snapshot")
            for (job, name), count in counts.items()
            if count > 1
        ]
        return alone, bad + twins

    def _bad(self, row: dict[str, object], problem: str) -> BadRow:
        job, name = str(row.get("job") or ""), str(row.get("snapshot_id") or "")
        error = DamagedLakeError(
            problem,
            place=f"{self._catalog.uri}, job {job!r}, snapshot {name!r}",
            remedy="statelake did not write this row: restore the table from a backup or an older"
            f" version, or take the row out with `statelake drop --job {job!r} --snapshot"
            f" {name!r}`",
        )
        return BadRow(job, name, error)

    def _unreadable(self, path: str, error: Exception) -> DamagedLakeError:
        return DamagedLakeError(
            f"a file of the catalog can't be read ({' '.join(str(error).split())})",
            place=f"{self._catalog.uri}/{path}",
            remedy="restore it, or an older version of the table, from a backup of the lake",
        )

    def append(self, record: SnapshotRecord) -> None:
        """Make a snapshot exist.

        Raises:
            ConflictError: There is one of that job and id.
        """
        row = record.to_table()
        until_committed(lambda: self._append(record, row), self._catalog.directory)
        self._compact(record.job)

    def _append(self, record: SnapshotRecord, row: pa.Table) -> bool:
        """Append one row to the catalog as it is now."""
        table = self._catalog.open()
        name, times = f"{record.job}/{record.snapshot_id}", 0
        if table is not None:
            times = table.transaction_version(name) or 0
            if self.has(record.job, record.snapshot_id):
                raise _taken(record)
        properties = CommitProperties(
            app_transactions=[Transaction(name, times + 1)],
            # a catalog that is made twice would have what two made of one id
            max_commit_retries=0 if table is None else None,
        )
        change = self._change(SNAPSHOT_SCHEMA, properties)
        change.add_rows(_new_file(record.job), row, record.job)
        if table is None:
            change.create(CONFIGURATION)
            return True
        self._add_columns(table)
        change.write(table)
        return True

    def _change(self, schema: pa.Schema, properties: CommitProperties) -> DeltaCommit:
        return DeltaCommit(self._catalog.directory, schema, "job", properties)

    def _compact(self, job: str) -> None:
        """Put the catalog's files of a job together when there are many, one a snapshot.

        Written as a replacement: two OPTIMIZE of delta-rs at once double the rows.
        """
        if sum(file.job == job for file in _files(self._open_catalog(to_read=True))) < MANY_FILES:
            return
        table = self._open_catalog()
        files = [file for file in _files(table) if file.job == job]
        # left to the next, where another was quicker or a file is not as it must be
        with suppress(StateError, CommitFailedError, pa.ArrowException, OSError):
            rows = [self._rows(file.path) for file in files]
            change = self._change(pa.schema(table.schema().to_arrow()), UNLESS_CHANGED)
            change.add_rows(
                _new_file(job), pa.concat_tables(rows, promote_options="permissive"), job
            )
            for file in files:
                change.remove(file.path, file.size, job)
            change.write(table)

    def remove(self, job: str, snapshot_ids: list[str]) -> None:
        """Make snapshots, and rows that are none, not exist any more.

        Raises:
            HeldError: There is a hold on one; then all stay.
            ConflictError: Others kept committing.
            DamagedLakeError: The catalog's files can't be written again.
        """
        self._rewrite({job: partial(rows_without, job, snapshot_ids)})

    def set_holds(self, job: str, snapshot_id: str, change: HoldsChange) -> None:
        """Give a snapshot other holds, also one whose row can't be believed.

        Args:
            job: Its job.
            snapshot_id: Its id.
            change: What becomes of the fields of its `HoldRecord`s.

        Raises:
            ConflictError: Others kept committing.
            DamagedLakeError: The catalog's files can't be written again.
        """
        self._rewrite({job: partial(rows_with_holds, snapshot_id, change)})

    def _rewrite(self, edits: Mapping[str, Callable[[pa.Table], pa.Table]]) -> None:
        """Replace rows of some jobs, file by file, as they are when that is committed.

        Args:
            edits: By the job, what becomes of the rows of a file; the same object if they stay as
                they are.
        """
        until_committed(lambda: self._rewritten(edits), self._catalog.directory)

    def _rewritten(self, edits: Mapping[str, Callable[[pa.Table], pa.Table]]) -> bool:
        table = self._open_catalog()
        refuse_features(table)
        self._add_columns(table)
        change, changed = self._change(pa.schema(table.schema().to_arrow()), UNLESS_CHANGED), False
        for file in _files(table):
            edit = edits.get(file.job)
            if edit is None:
                continue
            try:
                rows = self._rows(file.path)
                kept = edit(rows)
            except (MissingFileError, OSError, KeyError, ValueError, pa.ArrowException) as error:
                raise self._unreadable(file.path, error) from error
            if kept is not rows:
                change.remove(file.path, file.size, file.job)
                changed = True
                if len(kept):
                    change.add_rows(_new_file(file.job), kept, file.job)
        if changed:
            change.write(table)
        return True

    def _add_columns(self, table: DeltaTable) -> None:
        """Give the catalog of an older version the columns of now: a commit that has no rows."""
        if table.schema() != self._change(SNAPSHOT_SCHEMA, UNLESS_CHANGED).schema:
            write_deltalake(table, SNAPSHOT_SCHEMA.empty_table(), mode="append",
                            partition_by=["job"], schema_mode="merge")  # fmt: skip

    def replace(self, records: Sequence[SnapshotRecord]) -> None:
        """Put other rows in the place of those that snapshots have: all of them at once.

        Args:
            records: Snapshots that there are, as they are to be.

        Raises:
            HeldError: There is a hold on one; then all stay as they are.
            ConflictError: Others kept committing.
            DamagedLakeError: The catalog's files can't be written again.
        """
        rows_by_id: dict[str, dict[str, dict[str, object]]] = {}
        for record in records:
            rows_by_id.setdefault(record.job, {})[record.snapshot_id] = record.to_row()
        self._rewrite({job: partial(rows_replaced, job, rows) for job, rows in rows_by_id.items()})

    def delete_old_rows(self, job: str) -> None:
        """Delete the files of rows of a job that the newest version of the catalog has not.

        Nobody may be writing rows of the job.
        """
        named = {log_path(file.path, self._catalog.uri) for file in _files(self._open_catalog())}
        for name, _ in self._catalog.directory.files_below(f"job={path_segment(job)}"):
            if name not in named and is_edited_file(name):
                self._catalog.directory.delete(name)

    def _rows(self, path: str) -> pa.Table:
        """All rows of a file of the catalog, with the columns that it has."""
        with self._catalog.directory.open_input(log_path(path, self._catalog.uri)) as file:
            return open_parquet(file, path).read()


class _File(NamedTuple):
    """A file of the catalog."""

    path: str
    size: int
    job: str


def _files(table: DeltaTable) -> list[_File]:
    actions = pa.table(table.get_add_actions(flatten=True))
    names = ("path", "size_bytes", "partition.job")
    return list(map(_File, *(actions.column(name).to_pylist() for name in names)))


def _new_file(job: str) -> str:
    return f"job={path_segment(job)}/{new_edited_file()}"


def _by_age(record: SnapshotRecord) -> tuple[object, ...]:
    return record.job, record.imported_at, record.snapshot_id


def _taken(record: SnapshotRecord) -> ConflictError:
    return ConflictError(
        f"job {record.job!r} has a snapshot {record.snapshot_id!r} already",
        remedy="choose another id with --snapshot",
    )
