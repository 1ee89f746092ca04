"""A lake: the entry point to its jobs and snapshots."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from statelake.pipelines.engine import Engine, Progress
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.snapshot_names import resolve_snapshot
from statelake.pipelines.requests.erase import EraseFromLake
from statelake.pipelines.requests.request import asks
from statelake.pipelines.requests.runs import RunJob
from statelake.state_core.errors import StateError
from statelake.state_core.files.storage_options import with_storage_options
from statelake.state_core.printable import printable

if TYPE_CHECKING:
    from statelake.pipelines.api.jobs import Job
    from statelake.pipelines.api.plans import Erasure
    from statelake.pipelines.lake.catalog.deletions import Freed
    from statelake.pipelines.lake.catalog.lake_format import LakeFormat, LakeUpgrade
    from statelake.pipelines.lake.erase.audit_records import AuditRecord
    from statelake.pipelines.lake.query.limits import QueryLimits
    from statelake.pipelines.lake.query.session import Session
    from statelake.pipelines.lake.tables.records import SnapshotRecord
    from statelake.pipelines.lake.verify.lake_checking import LakeReport
    from statelake.pipelines.runtime import RunResult


class Lake:
    """A lake at a path or URI. Nothing is created before the first snapshot.

    Args:
        location: Its directory.
        storage_options: For `s3://`: `AWS_REGION` and the like, as deltalake names them.

    Attributes:
        catalog: Its catalog and tables, for programs that need the lower level.
    """

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self.catalog = Catalog(with_storage_options(location, storage_options))

    def __repr__(self) -> str:
        return f"<Lake {printable(self.catalog.directory.uri)}>"

    def jobs(self, snapshot: str | None = None) -> list[str]:
        """Return the names of the jobs that have snapshots; an empty list if there is no lake.

        Args:
            snapshot: Only of the jobs that have a snapshot of this id.

        Raises:
            NotFoundError: No job has that snapshot.
        """
        if snapshot is not None:
            from statelake.pipelines.lake.query.table_names import TableNames

            return list(TableNames(self.catalog, as_of=snapshot).jobs)
        return self.catalog.jobs() if self.catalog.exists() else []

    def job(
        self, name: str, *, engine: Engine | str = "auto", progress: Progress | None = None
    ) -> Job:
        """Return a job of the lake, whether or not it has snapshots.

        Args:
            name: The name of the job, which is the directory of its tables.
            engine: The engine of its operations: `auto`, `spark`, `local`, or an engine.
            progress: Called with (done, total) by long operations.
        """
        from statelake.pipelines.api.jobs import Job

        return Job(self, name, engine, progress)

    def snapshots(
        self, job: str | None = None, *, errors: list[StateError] | None = None
    ) -> list[SnapshotRecord]:
        """Return what is known of all snapshots, or of one job's, the oldest first.

        Args:
            job: Only of this job.
            errors: Receives an error for each invalid row of the catalog; these rows are left out.

        Raises:
            NotALakeError: There is no lake, and `errors` is given; otherwise the list is empty.
        """
        if errors is None and not self.catalog.exists():
            return []
        records, invalid = self.catalog.listed(job)
        if errors is not None:
            errors += [row.error for row in invalid]
        return records

    def session(
        self,
        *,
        as_of: str | None = None,
        job: str | None = None,
        limits: QueryLimits | None = None,
    ) -> Session:
        """Return DuckDB over the tables of the lake, for several queries; close it at the end.

        Args:
            as_of: Read tables as they were in this snapshot.
            job: A job whose name may be left out of table names.
            limits: The time and memory that each query may take; by default DuckDB's own limits.

        Raises:
            NotFoundError: There is no such snapshot or job.
        """
        from statelake.pipelines.lake.query.session import NO_LIMITS, Session
        from statelake.pipelines.lake.query.table_names import TableNames

        if as_of is not None and job is not None:
            as_of = resolve_snapshot(self.catalog, job, as_of)
        names = TableNames(self.catalog, as_of=as_of, job=job)
        return Session(self.catalog, names, limits=limits or NO_LIMITS)

    def sql(
        self,
        query: str,
        *,
        as_of: str | None = None,
        job: str | None = None,
        engine: str = "duckdb",
        limit: int | None = None,
        query_memory: int | None = None,
    ) -> pa.RecordBatchReader:
        """Run a query, with tables by the name `<job>.<operator>.<state>`.

        Args:
            query: SQL that reads; on Spark also any statement that changes no rows.
            as_of: Read tables as they were in this snapshot.
            job: A job whose name may be left out of table names.
            engine: The engine that runs it: `duckdb` within this process, or `spark`.
            limit: The largest number of rows to return; all by default.
            query_memory: The bytes of memory that DuckDB may take; by default 80 % of the
                machine's. It spills the rest into a temporary directory.

        Returns:
            A reader of the rows; `read_all()` makes a table, and DuckDB, Polars and pandas accept
            it as it is.

        Raises:
            ReadOnlyError: The statement changes rows, or reads no snapshot.
            QueryError: DuckDB refuses the statement.
            NotFoundError: There is no such snapshot or job.
        """
        if as_of is not None and job is not None:
            as_of = resolve_snapshot(self.catalog, job, as_of)
        if engine == "spark":
            from statelake.pipelines.spark.sql import read_sql

            return read_sql(self.catalog, query, as_of=as_of, job=job, limit=limit).to_reader()
        from statelake.pipelines.lake.query.limits import QueryLimits

        session = self.session(as_of=as_of, job=job, limits=QueryLimits(query_memory))
        try:
            answer = session.query(query, limit)
        except BaseException:
            session.close()
            raise

        def batches() -> Iterator[pa.RecordBatch]:
            with session:
                yield from answer.first(limit)

        return pa.RecordBatchReader.from_batches(answer.schema, batches())

    @property
    def format(self) -> LakeFormat:
        """The format of the lake: its number, its features, and the statelake that wrote it.

        Raises:
            NotALakeError: There is no lake.
            LakeFormatError: Its format is newer than this statelake can read.
        """
        return self.catalog.version().format

    def plan_upgrade(self) -> LakeUpgrade:
        """Return the changes that `upgrade` would make; nothing is written."""
        return self.catalog.plan_upgrade()

    def upgrade(self) -> LakeUpgrade:
        """Give the lake the newest format, so that this statelake writes into it.

        The upgrade is one commit; after it, older versions of statelake refuse the lake.
        """
        return self.catalog.upgrade()

    def check(
        self, resume: str | os.PathLike[str] | None = None, progress: Progress | None = None
    ) -> LakeReport:
        """Check every byte of the lake, and name each damaged file.

        Args:
            resume: A local file that lists the files that an interrupted check found undamaged.
            progress: Called with (done, total) bytes after each file.
        """
        from statelake.pipelines.lake.verify.lake_checking import check_lake

        return check_lake(self.catalog.location, resume, progress)

    def plan_clean(self, exports: Iterable[str] = ()) -> Freed:
        """Return the number and size of the files that `clean` would delete; nothing is changed.

        Args:
            exports: The local directories in which savepoints were written.
        """
        from statelake.pipelines.lake.catalog.dropping import clean_lake

        return clean_lake(self.catalog, exports, dry_run=True)

    def clean(self, exports: Iterable[str] = ()) -> Freed:
        """Delete files that no snapshot and no running process has.

        Args:
            exports: The local directories in which savepoints were written: unfinished ones are
                deleted.
        """
        from statelake.pipelines.lake.catalog.dropping import clean_lake

        return clean_lake(self.catalog, exports, dry_run=False)

    @asks(EraseFromLake)
    def erase(self, request: EraseFromLake) -> Erasure:
        """Return an erasure, to be planned, executed and audited."""
        from statelake.pipelines.api.plans import Erasure
        from statelake.pipelines.keys import key_text
        from statelake.pipelines.lake.erase.requests import ErasureRequest

        erased = ErasureRequest(
            request.request, tuple(dict.fromkeys(map(key_text, request.keys))), request.where,
            request.carried or "", request.snapshots, request.blobs, request.changelogs,
        )  # fmt: skip
        return Erasure(self.catalog, erased, request.jobs, request.progress)

    @asks(RunJob)
    def run(self, request: RunJob) -> RunResult:
        """Run a job of process functions over the input that its sources got since its last run."""
        from statelake.pipelines.lake.verify.legality import load_runnable
        from statelake.pipelines.runtime import RunOptions, run_job
        from statelake.pipelines.runtime.metrics import write_metrics

        job, stop, metrics = request.job, request.stop, request.metrics
        options = RunOptions(**request.words(RunOptions))
        runnable = load_runnable(job) if isinstance(job, str) else job
        try:
            latest = done = run_job(runnable, self.catalog, options)
            while request.until_idle and latest.run and not stop():
                if metrics:  # before the next run, which may take long
                    write_metrics(metrics, runnable.name, done)
                latest = run_job(runnable, self.catalog, options)
                done = latest.after(done)
        except BaseException:
            if metrics:
                with suppress(StateError):  # only the run's error is reported
                    write_metrics(metrics, runnable.name, None)
            raise
        if metrics:
            write_metrics(metrics, runnable.name, done)
        return done

    def audit_records(self) -> list[AuditRecord]:
        """Return the records of erasures and audits, the oldest first."""
        from statelake.pipelines.lake.erase.audit_records import audit_records

        return audit_records(self.catalog)

    def broken_record(self) -> AuditRecord | None:
        """Return the first record that was changed, or that follows a removed one."""
        from statelake.pipelines.lake.erase.audit_records import broken_record

        return broken_record(self.audit_records())
