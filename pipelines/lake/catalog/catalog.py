"""The lake: a directory of Delta tables, and the `snapshots` table that says what is in it.

A snapshot exists when its row is in `snapshots`; the row is written last, by a commit that only
one writer can make for a given job and id.
"""

from __future__ import annotations

import os
from contextlib import suppress
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from pipelines.lake.tables.names import SNAPSHOTS
from pipelines.lake.tables.records import SNAPSHOT_SCHEMA, SnapshotRecord
from pipelines.lake.tables.tables import CONFIGURATION, StateTable
from state_core.errors import ConflictError, NotALakeError, NotFoundError
from state_core.files.filesystem import Directory
from state_core.files.storage_options import storage_options

__all__ = ["Lake"]

ATTEMPTS = 20
MANY_FILES = 64
# Not even delta-rs itself may try again: what is to be written follows from what was read.
UNLESS_CHANGED = CommitProperties(max_commit_retries=0)
_HEAVY_COLUMNS = ("metadata", "carried", "operators")


class Lake:
    """A lake at a path or URI. Nothing is created before the first snapshot."""

    def __init__(self, location: str | os.PathLike[str]) -> None:
        self.location = os.fspath(location)
        self.directory = Directory(self.location)
        self._catalog = StateTable(self.directory, SNAPSHOTS)

    def table(self, path: str) -> StateTable:
        """One of its tables."""
        return StateTable(self.directory, path)

    def exists(self) -> bool:
        """Whether there is a lake."""
        return self._catalog.open() is not None

    def _open_catalog(self) -> DeltaTable:
        table = self._catalog.open()
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

        Raises:
            NotALakeError: There is no lake.
        """
        columns = [name for name in SNAPSHOT_SCHEMA.names if name not in _HEAVY_COLUMNS]
        records = self._read(columns, job)
        return sorted(records, key=lambda one: (one.job, one.imported_at, one.snapshot_id))

    def snapshot(self, job: str, snapshot_id: str) -> SnapshotRecord:
        """One snapshot with all that is known of it.

        Raises:
            NotFoundError: There is no such job or snapshot.
        """
        found = self._read(SNAPSHOT_SCHEMA.names, job, snapshot_id)
        if found:
            return found[0]
        known = [record.snapshot_id for record in self.summaries(job)]
        if not known:
            jobs = ", ".join(self.jobs()) or "none"
            raise NotFoundError(f"no job {job!r} in the lake", remedy=f"it has: {jobs}")
        latest = ", ".join(known[-10:])
        raise NotFoundError(
            f"job {job!r} has no snapshot {snapshot_id!r}", remedy=f"its latest are: {latest}"
        )

    def latest(self, job: str) -> SnapshotRecord | None:
        """The job's newest snapshot, if it has one."""
        summaries = self.summaries(job) if self.exists() else []
        return self.snapshot(job, summaries[-1].snapshot_id) if summaries else None

    def _read(
        self, columns: list[str], job: str | None, snapshot_id: str | None = None
    ) -> list[SnapshotRecord]:
        """Rows of the catalog, read from its own files: no engine has to wake up for it."""
        actions = pa.table(self._open_catalog().get_add_actions(flatten=True))
        paths, jobs = (
            actions.column("path").to_pylist(),
            actions.column("partition.job").to_pylist(),
        )
        stored = [name for name in columns if name != "job"]
        records = []
        for path, held in zip(paths, jobs, strict=True):
            if job is not None and held != job:
                continue
            target = self._catalog.directory.full(unquote(path))
            filters = None if snapshot_id is None else [("snapshot_id", "=", snapshot_id)]
            rows = pq.read_table(
                target,
                columns=stored,
                filters=filters,
                filesystem=self.directory.filesystem,
                partitioning=None,
            )
            records += [SnapshotRecord.from_row(row | {"job": held}) for row in rows.to_pylist()]
        return records

    def append(self, record: SnapshotRecord) -> None:
        """Make a snapshot exist.

        Raises:
            ConflictError: There is one of that job and id.
        """
        row = pa.Table.from_pylist([record.to_row()], SNAPSHOT_SCHEMA)
        for _ in range(ATTEMPTS):
            if self._append(record, row):
                break
        else:
            raise _busy(self._catalog.uri)
        self._compact(record.job)

    def _append(self, record: SnapshotRecord, row: pa.Table) -> bool:
        """Append one row; False if another commit came in between."""
        table = self._catalog.open()
        name, times = f"{record.job}/{record.snapshot_id}", 0
        if table is not None:
            times = table.transaction_version(name) or 0
            if any(one.snapshot_id == record.snapshot_id for one in self.summaries(record.job)):
                raise _taken(record)
        try:
            write_deltalake(
                self._catalog.uri if table is None else table,
                row,
                partition_by=["job"],
                mode="error" if table is None else "append",
                schema_mode=None if table is None else "merge",
                configuration=CONFIGURATION if table is None else None,
                storage_options=storage_options(self.directory),
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(name, times + 1)],
                    # a catalog that is made twice would have what two made of one id
                    max_commit_retries=0 if table is None else None,
                ),
            )
        except (CommitFailedError, DeltaError) as error:
            if isinstance(error, CommitFailedError) or "already exists" in str(error):
                return False
            raise
        return True

    def _compact(self, job: str) -> None:
        """Put the catalog's files of a job together when there are many, one a snapshot.

        Written as a replacement: two OPTIMIZE of delta-rs at once double the rows.
        """
        table = self._open_catalog()
        jobs = pa.table(table.get_add_actions(flatten=True)).column("partition.job").to_pylist()
        if jobs.count(job) < MANY_FILES:
            return
        rows = table.to_pyarrow_table(filters=[("job", "=", job)])
        with suppress(CommitFailedError):  # another was quicker; the next does it
            write_deltalake(
                table,
                rows,
                mode="overwrite",
                predicate=f"job = {_quoted(job)}",
                commit_properties=UNLESS_CHANGED,
            )

    def remove(self, job: str, snapshot_ids: list[str]) -> None:
        """Make snapshots not exist any more.

        Raises:
            ConflictError: Others kept committing.
        """
        names = ", ".join(_quoted(one) for one in snapshot_ids)
        for _ in range(ATTEMPTS):
            with suppress(CommitFailedError):
                self._open_catalog().delete(
                    f"job = {_quoted(job)} AND snapshot_id IN ({names})",
                    commit_properties=UNLESS_CHANGED,
                )
                return
        raise _busy(self._catalog.uri)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _busy(uri: str) -> ConflictError:
    return ConflictError(
        f"others committed {ATTEMPTS} times while this was tried",
        place=uri,
        remedy="try again when they are done",
    )


def _taken(record: SnapshotRecord) -> ConflictError:
    return ConflictError(
        f"job {record.job!r} has a snapshot {record.snapshot_id!r} already",
        remedy="choose another id with --snapshot",
    )
