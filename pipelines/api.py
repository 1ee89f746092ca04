"""A lake in Python: the lake, its jobs, their snapshots. What the command can, these can.

::

    import statelake as sl

    lake = sl.Lake("s3://bucket/lake", storage_options={"AWS_REGION": "eu-central-1"})
    orders = lake.job("orders")
    orders.import_snapshot("savepoint-5f1e2c-0a1b2c3d4e5f", name="monday")
    orders["latest"]["kinds"]["total"].to_arrow()
    orders["monday"].export("savepoints/wide", parallelism=12)

Methods and parameters are called as the command's words are. A snapshot is named as on the command
line: by its id, `latest`, `latest~1`, a date, or the beginning of its id; to be dropped, erased
from, held, released or committed, by its whole id alone. Each raises a `StateError` that says what
is wrong and what to do, and leaves the lake as it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from typing_extensions import Self

from statelake.pipelines.engine import Engine, Progress
from statelake.pipelines.lake.catalog.catalog import Catalog, CatalogVersion
from statelake.pipelines.lake.catalog.reading import SnapshotReading, read_together
from statelake.pipelines.lake.catalog.snapshot_names import (
    SnapshotId,
    resolve_snapshot,
    whole_snapshot,
)
from statelake.pipelines.lake.tables.records import HoldRecord, OperatorRecord, SnapshotRecord
from statelake.pipelines.live.requests import Canary, Drill, Rescale
from statelake.pipelines.requests.bootstrap import BootstrapJob, WatchedBootstrap
from statelake.pipelines.requests.changes import (
    CheckSql,
    CheckSqlOfSavepoint,
    Migrate,
    MigrateSnapshots,
    Upgrade,
    UpgradeSavepoint,
    UpgradeSql,
    UpgradeSqlSavepoint,
    Upgrading,
)
from statelake.pipelines.requests.find import CopyCheckpoints, CopySnapshot, FindSnapshots
from statelake.pipelines.requests.imports import ImportSnapshot
from statelake.pipelines.requests.request import asks, takes
from statelake.pipelines.requests.runs import RunJob
from statelake.pipelines.requests.savepoints import Export, Written
from statelake.pipelines.requests.shared import Reading, Sharing
from statelake.pipelines.shown import json_text, plain
from statelake.state_core.errors import DeclarationError, NotFoundError, StateError
from statelake.state_core.files.storage_options import with_storage_options
from statelake.state_core.formats.reader import Snapshot
from statelake.state_core.model.snapshot import Operator
from statelake.state_core.printable import printable

# each operation is imported when it is first used: who reads a state needs no DuckDB
# ruff: noqa: PLC0415

if TYPE_CHECKING:
    from statelake.pipelines.bootstrap.bootstrapping import BootstrapResult
    from statelake.pipelines.find.copying import CopiedCheckpoints, CopiedSnapshot
    from statelake.pipelines.find.growth import Growth
    from statelake.pipelines.find.orphans import Orphans
    from statelake.pipelines.find.scanning import Scan
    from statelake.pipelines.keys import KeyRows
    from statelake.pipelines.lake.catalog.deletions import Freed
    from statelake.pipelines.lake.catalog.dropping import DropPlan, DropResult
    from statelake.pipelines.lake.catalog.lake_format import LakeFormat, LakeUpgrade
    from statelake.pipelines.lake.catalog.retention import Policy, RetentionPlan
    from statelake.pipelines.lake.change.migrations import Migrations, Outcome, UpgradeOutcome
    from statelake.pipelines.lake.edit.committing import CommitResult
    from statelake.pipelines.lake.edit.edit_results import EditResult
    from statelake.pipelines.lake.edit.editing import SnapshotEdit
    from statelake.pipelines.lake.erase.audit_records import AuditRecord
    from statelake.pipelines.lake.erase.auditing import AuditResult
    from statelake.pipelines.lake.erase.erasing import ErasureResult
    from statelake.pipelines.lake.erase.planning import ErasurePlan
    from statelake.pipelines.lake.erase.requests import ErasureRequest
    from statelake.pipelines.lake.export.exporting import ExportResult
    from statelake.pipelines.lake.export.rescaling import OperatorPlan
    from statelake.pipelines.lake.ingest.importing import ImportResult
    from statelake.pipelines.lake.keys.key_history import KeyHistory
    from statelake.pipelines.lake.query.limits import QueryLimits
    from statelake.pipelines.lake.query.session import Session
    from statelake.pipelines.lake.verify.diffing import Differences, SortBy
    from statelake.pipelines.lake.verify.lake_checking import LakeReport
    from statelake.pipelines.live.canary import CanaryResult, DrillResult
    from statelake.pipelines.live.cluster import FlinkCluster
    from statelake.pipelines.live.live_rescaling import RescalePreview, RescaleResult
    from statelake.pipelines.live.rescale_steps import RescalePlan
    from statelake.pipelines.report.contents import ReportResult
    from statelake.pipelines.runtime import RunResult
    from statelake.pipelines.sql_jobs.sql_upgrades import SqlUpgrade
    from statelake.state_core.connectors.sinks import Sink
    from statelake.state_core.connectors.sources import SourceState
    from statelake.state_core.formats.key_weights import StateWeights
    from statelake.state_core.formats.layout.state_compatibility import Verdicts
    from statelake.state_core.formats.layout.state_types import StateTypes, TypeDifferences
    from statelake.state_core.formats.rewriting.recompression import Recompression
    from statelake.state_core.integrity import IntegrityReport, SalvageReport
    from statelake.state_core.model.channels import Channel
    from statelake.state_core.model.finding import SearchResult
    from statelake.state_core.runtime.commit import CheckpointLog, StateBackendFactory
    from statelake.state_core.runtime.commit.logs.checkpoint_dropping import CheckpointDropResult
    from statelake.state_core.runtime.commit.logs.checkpoint_migrating import MigratedLog
    from statelake.state_core.runtime.commit.logs.checkpoint_records import (
        LastCheckpoints,
        TaskRecord,
    )
    from statelake.state_core.runtime.commit.logs.checkpoint_verifying import VerifiedLog
    from statelake.state_core.runtime.declarations import JobDeclaration
    from statelake.state_core.runtime.declarations.findings import JobFindings
    from statelake.state_core.serializers.framework.base import TypeSerializer

__all__ = [
    "Checkpoints",
    "Erasure",
    "Job",
    "Lake",
    "LakeSnapshot",
    "LiveRescale",
    "SnapshotEditor",
    "bootstrap",
    "check_integrity",
    "check_legality",
    "check_sql",
    "compress",
    "copy_checkpoints",
    "copy_snapshot",
    "diff",
    "diff_types",
    "drill",
    "growth",
    "in_temporary_lake",
    "orphans",
    "salvage",
    "scan",
    "sql_upgrade",
    "upgrade",
    "warm",
]


Result = TypeVar("Result")


def _key_text(key: object) -> str:
    """Return a key as `statelake dump` prints it; text is returned as it is."""
    value = key.as_py() if isinstance(key, pa.Scalar) else key
    return value if isinstance(value, str) else json_text(plain(value))


class Lake:
    """A lake at a path or URI. Nothing is created before the first snapshot.

    Args:
        location: Its directory.
        storage_options: For `s3://`: `AWS_REGION` and the like, as deltalake names them.

    Attributes:
        catalog: Its catalog and tables, for programs that need what is below.
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
        """Return a job of the lake, be there snapshots of it or not.

        Args:
            name: Its name; its tables are below that.
            engine: Where its operations run: `auto`, `spark`, `local`, or an engine.
            progress: Called with (done, total) by operations that take long.
        """
        return Job(self, name, engine, progress)

    def snapshots(
        self, job: str | None = None, *, errors: list[StateError] | None = None
    ) -> list[SnapshotRecord]:
        """Return what is known of all snapshots, or of one job's, the oldest first.

        Args:
            job: Only of this job.
            errors: Gets an error for each row of the catalog that is not valid; these rows are left
                out.

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
            limits: What each query may take; by default what DuckDB takes.

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
            engine: What runs it: `duckdb` within this process, or `spark`.
            limit: Return at most so many rows; all by default.
            query_memory: How many bytes of memory DuckDB may take; by default 80 % of the
                machine's. It spills the rest into a temporary directory.

        Returns:
            The rows, which `read_all()` makes a table; DuckDB, Polars and pandas take it as it is.

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
            LakeFormatError: It is of a newer format than this statelake reads.
        """
        return self.catalog.version().format

    def plan_upgrade(self) -> LakeUpgrade:
        """Say what `upgrade` would change; nothing is written."""
        return self.catalog.plan_upgrade()

    def upgrade(self) -> LakeUpgrade:
        """Give the lake the newest format, so that this statelake writes into it.

        It is one commit: before it, all is as it was; after it, an older statelake is refused.
        """
        return self.catalog.upgrade()

    def check(
        self, resume: str | os.PathLike[str] | None = None, progress: Progress | None = None
    ) -> LakeReport:
        """Check every byte of the lake, and name each damaged file.

        Args:
            resume: A local file that says which files were found whole until a check was stopped.
            progress: Called with (done, total) bytes after each file.
        """
        from statelake.pipelines.lake.verify.lake_checking import check_lake

        return check_lake(self.catalog.location, resume, progress)

    def plan_clean(self, exports: Iterable[str] = ()) -> Freed:
        """Count what `clean` would delete; nothing is changed.

        Args:
            exports: The local directories in which savepoints were written.
        """
        from statelake.pipelines.lake.catalog.dropping import clean_lake

        return clean_lake(self.catalog, exports, dry_run=True)

    def clean(self, exports: Iterable[str] = ()) -> Freed:
        """Delete files that no snapshot and no running process has.

        Args:
            exports: The local directories in which savepoints were written: unfinished ones go.
        """
        from statelake.pipelines.lake.catalog.dropping import clean_lake

        return clean_lake(self.catalog, exports, dry_run=False)

    def erase(
        self,
        request: str,
        *,
        keys: Iterable[object] = (),
        where: Mapping[str, str] | None = None,
        jobs: Sequence[str] = (),
        snapshots: Sequence[str] = (),
        carried: str = "",
        blobs: Sequence[str] = (),
        changelogs: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> Erasure:
        """Return an erasure, to be planned, executed and audited.

        Args:
            request: The id under which it is recorded.
            keys: The keys that go from all keyed states and timers; text as `statelake dump`
                prints it.
            where: By state (`operator/state`), SQL that is true of the rows that go.
            jobs: The jobs from whose snapshots is erased; all by default.
            snapshots: Ids of the only snapshots from which is erased; all by default.
            carried: What becomes of state without tables, which can't be searched: `drop`, `keep`,
                or empty to refuse.
            blobs: Blob stores of `statelake run`, erased from too.
            changelogs: Directories of changelogs, erased from too.
            progress: Called with (done, total) after each file.
        """
        from statelake.pipelines.lake.erase.requests import ErasureRequest

        asked = ErasureRequest(
            request, tuple(dict.fromkeys(map(_key_text, keys))), dict(where or {}), carried,
            tuple(snapshots), tuple(blobs), tuple(changelogs),
        )  # fmt: skip
        return Erasure(self, asked, tuple(jobs), progress)

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
                if metrics:  # the next run may take long
                    write_metrics(metrics, runnable.name, done)
                latest = run_job(runnable, self.catalog, options)
                done = latest.after(done)
        except BaseException:
            if metrics:
                with suppress(StateError):  # the run's error is what matters
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
        """Return the first record that is not as it was written, or behind one that is gone."""
        from statelake.pipelines.lake.erase.audit_records import broken_record

        return broken_record(self.audit_records())


@dataclass(frozen=True, repr=False)
class Erasure:
    """Keys and rows that are to go from every snapshot and every file of a lake."""

    lake: Lake
    asked: ErasureRequest
    jobs: tuple[str, ...] = ()
    progress: Progress | None = None

    def __repr__(self) -> str:
        keys, predicates = len(self.asked.keys), len(self.asked.where)
        return f"<Erasure {self.asked.request}: {keys} keys, {predicates} predicates>"

    def plan(self, *, whole: bool = False) -> ErasurePlan:
        """Say what `execute` would do; nothing is written.

        Args:
            whole: Whether a predicate may be true of every row of a state.
        """
        from statelake.pipelines.lake.erase.erasing import plan_erasure

        plan = plan_erasure(self.lake.catalog, self.asked, self.jobs, progress=self.progress)
        return replace(plan, whole=whole)

    def execute(self, *, whole: bool = False, secret: bytes = b"", by: str = "") -> ErasureResult:
        """Erase, or go on with an erasure of that request that ended too soon.

        Args:
            whole: Whether a predicate may be true of every row of a state.
            secret: Makes the keyed hash by which the record knows what was asked.
            by: Who asks; by default who runs this process.
        """
        from statelake.pipelines.lake.erase.erasing import erase

        return erase(
            self.lake.catalog, self.asked, self.jobs, whole=whole, secret=secret,
            requested_by=by, progress=self.progress,
        )  # fmt: skip

    def audit(self, also: Sequence[str] = (), *, secret: bytes = b"") -> AuditResult:
        """Read every byte below the lake, and search for what was erased in all its forms.

        Args:
            also: Other places to search: directories or URIs.
            secret: The one of the erasure.
        """
        from statelake.pipelines.lake.erase.auditing import audit_erasure

        return audit_erasure(
            self.lake.catalog, self.asked, also, secret=secret, progress=self.progress
        )


@dataclass(frozen=True, repr=False)
class Job:
    """One job of a lake, and where its operations run.

    Attributes:
        lake: The lake.
        name: Its name.
        engine: `auto`, `spark`, `local`, or an engine.
        progress: Called with (done, total) by operations that take long.
    """

    lake: Lake
    name: str
    engine: Engine | str = "auto"
    progress: Progress | None = None

    def __repr__(self) -> str:
        return f"<Job {printable(self.name)} of {printable(self.lake.catalog.directory.uri)}>"

    def snapshots(self) -> list[SnapshotRecord]:
        """Return what is known of its snapshots, the oldest first; see `Lake.snapshots`."""
        return self.lake.snapshots(self.name)

    def __getitem__(self, snapshot: str) -> LakeSnapshot:
        """Return a snapshot by its id, `latest`, `latest~1`, a date, or how its id begins.

        Raises:
            NotFoundError: There is no such snapshot, or several begin so.
        """
        record = self.lake.catalog.snapshot(self.name, self.resolve(snapshot))
        return LakeSnapshot(self, record, snapshot)

    def newest(self) -> LakeSnapshot:
        """Return the newest snapshot.

        Raises:
            NotFoundError: There is no such job.
        """
        catalog = self.lake.catalog
        return LakeSnapshot(self, catalog.latest(self.name) or catalog.snapshot(self.name, ""))

    def checkpoints(self) -> Checkpoints:
        """Return the checkpoints of its runs, if it is a job of process functions.

        Raises:
            NotFoundError: It has no runs.
        """
        from statelake.pipelines.lake.catalog.run_log import RunLog

        directory = RunLog(self.lake.catalog.directory, self.name).checkpoints
        if not directory.exists():
            raise NotFoundError(
                "no run of the job has committed yet",
                place=f"job {self.name!r}",
                remedy="`statelake run` runs a job of process functions",
            )
        return Checkpoints(directory.location, self)

    def _verified(self, snapshot: str) -> tuple[int, str]:
        """Return the bytes of a snapshot's state, and its faults."""
        try:
            stored = LakeSnapshot(self, self.lake.catalog.snapshot(self.name, snapshot))
            return stored.record.state_bytes, "; ".join(stored.check_integrity())
        except StateError as error:
            return 0, str(error)

    def resolve(self, snapshot: str) -> SnapshotId:
        """Return the id of a snapshot that is named as for `[]`.

        A name that means no snapshot is returned as it is, so that opening it fails.

        Raises:
            NotFoundError: Several snapshots begin so, or there are fewer than it counts.
        """
        return resolve_snapshot(self.lake.catalog, self.name, snapshot)

    def _whole(self, snapshot: str) -> SnapshotId:
        """Return the whole id of a snapshot that is to be changed, and refuse other names."""
        return whole_snapshot(self.lake.catalog, self.name, snapshot)

    @asks(ImportSnapshot)
    def import_snapshot(self, request: ImportSnapshot) -> ImportResult:
        """Import a savepoint or checkpoint as the job's next snapshot."""
        from statelake.pipelines.lake.ingest.importing import import_snapshot

        return import_snapshot(
            self.lake.catalog, os.fspath(request.savepoint), self.name, request,
            snapshot_id=request.name, engine=self.engine, progress=self.progress,
        )  # fmt: skip

    @asks(BootstrapJob)
    def bootstrap(self, request: BootstrapJob) -> BootstrapResult:
        """Create a savepoint from tables, and import it as the job's snapshot."""
        from statelake.pipelines.bootstrap.bootstrapping import BootstrapInto, bootstrap

        return bootstrap(
            None, **request.words(BootstrapInto), lake=self.lake.catalog, job=self.name,
            snapshot_id=request.name, engine=self.engine, progress=self.progress,
        )  # fmt: skip

    def sql(
        self,
        query: str,
        *,
        as_of: str | None = None,
        engine: str = "duckdb",
        limit: int | None = None,
        query_memory: int | None = None,
    ) -> pa.RecordBatchReader:
        """Run a query with tables by the name `<operator>.<state>`; see `Lake.sql`."""
        return self.lake.sql(
            query, as_of=as_of, job=self.name, engine=engine, limit=limit,
            query_memory=query_memory,
        )  # fmt: skip

    def history(
        self, key: object, *, operator: str | None = None, state: str | None = None
    ) -> KeyHistory:
        """Return what changed of a key from each snapshot of the job to the next.

        Args:
            key: The key as in a column `key`, or text as `statelake dump` prints it.
            operator: Only of this operator: its uid, name or id.
            state: Only of the state of that name.
        """
        from statelake.pipelines.lake.keys.key_history import key_history

        text = _key_text(key)
        return key_history(self.lake.catalog, self.name, text, operator=operator, state=state)

    def growth(
        self,
        since: str | None = None,
        until: str | None = None,
        *,
        ahead: float = 30,
        keys: bool = True,
    ) -> Growth:
        """Return how the job's state grew over its snapshots, in which state, and why.

        Snapshots that were made from others show no growth, and are left out. Sizes come from the
        catalog; keys are read of the states that grew most, in the first and the last snapshot.

        Args:
            since: The first snapshot; the oldest by default.
            until: The last snapshot; the newest by default.
            ahead: The days of the forecast.
            keys: Whether to read keys, which may take long.

        Raises:
            DeclarationError: The first one was taken after the last, or `ahead` is no number.
            NotFoundError: There is no such snapshot, or there are fewer than two.
        """
        from statelake.pipelines.find.growth import KeyChanges, growth_of, recorded
        from statelake.pipelines.lake.verify.diffing import diff_state

        first, last = (None if name is None else self[name] for name in (since, until))
        if first is not None and last is not None and first.taken_at > last.taken_at:
            raise DeclarationError(
                f"snapshot {first.name} was taken after {last.name}", remedy="exchange them"
            )
        asked = {each.name for each in (first, last) if each is not None}

        def chosen(version: CatalogVersion) -> list[SnapshotRecord]:
            return [
                version.snapshot(self.name, record.snapshot_id)
                for record in version.listed(self.name)[0]
                if (first is None or record.taken_at >= first.taken_at)
                and (last is None or record.taken_at <= last.taken_at)
                and (not record.parent or record.snapshot_id in asked)
            ]

        def compare(operator: str, state: str, before: str, after: str) -> KeyChanges:
            found = diff_state(
                self.lake.catalog, self.name, before, after, operator, state,
                engine=self.engine, progress=self.progress,
            )  # fmt: skip
            return KeyChanges(found.added, found.removed, found.changed)

        def grown(records: list[SnapshotRecord]) -> Growth:
            described = [recorded(LakeSnapshot(self, record), record) for record in records]
            return growth_of(described, ahead=ahead, keys=keys, compare=compare)

        return read_together(self.lake.catalog, chosen, grown)

    def commit(self, name: str, parent: str, *, note: str = "") -> CommitResult:
        """Register the current versions of the job's tables, edited elsewhere, as a snapshot.

        Args:
            name: The id of the new snapshot.
            parent: The whole id of the snapshot whose tables were edited.
            note: Kept with it; say why.

        Raises:
            NotFoundError: No snapshot has the parent's id.
        """
        from statelake.pipelines.lake.edit.committing import commit_snapshot

        return commit_snapshot(
            self.lake.catalog, self.name, name, self._whole(parent), note=note, engine=self.engine,
            progress=self.progress,
        )  # fmt: skip

    @asks(MigrateSnapshots)
    def migrate(self, request: MigrateSnapshots) -> Migrations:
        """Make a snapshot with new types of states of each named snapshot, or of all.

        Those migrated before are skipped. Of all snapshots, an error is the result of its own.
        """
        return self.migrated(request, [*map(self.resolve, request.snapshots)])

    def migrated(self, request: Migrate, snapshots: Sequence[str] = ()) -> Migrations:
        """Migrate the snapshots of these ids, or all that are not migrated yet."""
        from statelake.pipelines.lake.change.migrations import migrate_several

        return migrate_several(
            self.lake.catalog, self.name, snapshots, request, self.engine, self.progress
        )

    def not_migrated(self, suffix: str = "-migrated") -> list[str]:
        """Return the ids of the snapshots that no migration with this suffix made."""
        from statelake.pipelines.lake.change.migrations import not_migrated

        return [*map(SnapshotId, not_migrated(self.lake.catalog, self.name, suffix))]

    def plan_drop(self, *snapshots: str, keep: int | None = None) -> DropPlan:
        """Say what `drop` would do; nothing is changed. Arguments and errors as for `drop`."""
        from statelake.pipelines.lake.catalog.dropping import plan_drop

        ids = self._going(snapshots, keep)
        return plan_drop(self.lake.catalog, self.name, snapshot_ids=ids, keep=keep)

    def drop(self, *snapshots: str, keep: int | None = None) -> DropResult:
        """Drop the snapshots named, or all but the newest, and free what only they needed.

        Those with a hold stay.

        Args:
            snapshots: The whole ids of the snapshots to drop.
            keep: How many of the newest to keep, where no snapshots are named.

        Raises:
            NotFoundError: No snapshot has one of the ids; nothing is dropped.
            HeldError: There is a hold on one of those named; nothing is dropped.
            DeclarationError: Neither snapshots nor `keep` are given, or both.
        """
        from statelake.pipelines.lake.catalog.dropping import drop_snapshots

        ids = self._going(snapshots, keep)
        return drop_snapshots(self.lake.catalog, self.name, snapshot_ids=ids, keep=keep)

    def _going(self, snapshots: tuple[str, ...], keep: int | None) -> list[str] | None:
        """Return the ids that are given; all are looked up before one is dropped."""
        if bool(snapshots) == (keep is not None):
            raise DeclarationError("give either snapshots to drop, or how many to keep")
        return [*dict.fromkeys(snapshots)] or None

    def plan_retain(self, policy: str) -> RetentionPlan:
        """Say which snapshots a policy keeps, and why; nothing is changed.

        Args:
            policy: For example `30d all, 1y daily, forever monthly`.
        """
        from statelake.pipelines.lake.catalog.retention import Policy, plan_retention

        return plan_retention(self.lake.catalog, self.name, Policy.parse(policy))

    def retain(self, policy: str | Policy) -> DropResult | None:
        """Drop the snapshots that a policy does not keep; return None if all stay.

        Args:
            policy: As for `plan_retain`, or parsed.
        """
        from statelake.pipelines.lake.catalog.retention import Policy, prune

        parsed = Policy.parse(policy) if isinstance(policy, str) else policy
        return prune(self.lake.catalog, self.name, parsed)

    def check_name(self, snapshot: str | None = None) -> None:
        """Refuse the job's name, or that of a new snapshot, if a lake can't have it.

        Raises:
            LakeError: A name is empty, not valid text, too long for a directory, or reserved.
        """
        from statelake.pipelines.lake.tables.names import check_names

        check_names(self.name, snapshot)

    @asks(Rescale)
    def live_rescale(self, request: Rescale) -> LiveRescale:
        """Return a rescale, migration or upgrade of the running job, to be planned and executed."""
        from statelake.pipelines.live.rescale_steps import RescalePlan

        return LiveRescale(self, RescalePlan.of(self.name, request))


@dataclass(frozen=True, repr=False)
class LiveRescale:
    """A rescale, migration or upgrade of a job that runs on a cluster."""

    job: Job
    asked: RescalePlan

    def __repr__(self) -> str:
        return f"<LiveRescale of {self.job!r}>"

    def plan(self) -> RescalePreview:
        """Return what `execute` would do; nothing is changed."""
        from statelake.pipelines.live.live_rescaling import RescalePreview

        request = self.asked.request
        running = request.cluster.job(request.cluster.find_job(request.flink_job).id)
        sql = None if self.asked.sql is None else self.asked.sql.verdict()
        return RescalePreview(self.asked.completed(), running, sql)

    def execute(
        self,
        *,
        roll_back: bool = False,
        take_over: bool = False,
        report: Callable[[str, str], None] | None = None,
    ) -> RescaleResult:
        """Rescale the job, or continue where an earlier call was killed.

        Args:
            roll_back: Whether to undo an earlier call instead of completing it.
            take_over: Whether an earlier call's process, elsewhere, is known to have ended.
            report: Called with the name of each step and its phase: `begins`, `did` or `kept`.
        """
        from statelake.pipelines.live.live_rescaling import rescale_job

        return rescale_job(
            self.job.lake.catalog, self.asked, roll_back=roll_back, take_over=take_over,
            engine=self.job.engine, progress=report,
        )  # fmt: skip


class LakeSnapshot(Snapshot):
    """A snapshot in a lake: a `Snapshot`, and what can be done with it there.

    Its `operators` are those that have state in tables.

    Args:
        job: The job.
        record: All that the lake knows of it.
        asked: The name by which it was asked for; by default its id.
    """

    job: Job
    record: SnapshotRecord
    asked: str

    def __init__(self, job: Job, record: SnapshotRecord, asked: str | None = None) -> None:
        known = {
            "location": f"{job.name}/{record.snapshot_id}",
            "metadata_version": record.metadata_version,
            "checkpoint_id": record.checkpoint_id,
            "kind": record.kind,
            "format": record.format,
            "job": job,
            "record": record,
            "asked": record.snapshot_id if asked is None else asked,
        }
        for name, value in known.items():
            object.__setattr__(self, name, value)

    @cached_property
    def operators(self) -> tuple[Operator, ...]:
        """Its operators with state in tables, which is read when it is used."""
        from statelake.pipelines.lake.catalog.recorded_states import recorded_operators

        return recorded_operators(self._catalog, self.record)

    def __repr__(self) -> str:
        return repr(self.record).replace("SnapshotRecord", "LakeSnapshot", 1)

    @property
    def name(self) -> SnapshotId:
        """Its id within the job."""
        return SnapshotId(self.record.snapshot_id)

    @property
    def compression(self) -> str:
        """`snappy` or `none`, as it was written."""
        return self.record.compression

    @property
    def taken_at(self) -> datetime:
        """When the job took it."""
        return self.record.taken_at

    @property
    def _catalog(self) -> Catalog:
        return self.job.lake.catalog

    @property
    def _whole_id(self) -> SnapshotId:
        """Its id, if it was asked for by that; other names are refused for what changes it."""
        return self.name if self.asked == self.name else self.job._whole(self.asked)  # noqa: SLF001 - of the job here

    @asks(Export)
    def export(self, request: Export) -> ExportResult:
        """Write it as a savepoint that Flink restores."""
        from statelake.pipelines.lake.export.exporting import export_snapshot
        from statelake.pipelines.lake.share.sharing import sharing_of
        from statelake.state_core.files.compression import configured_compression

        compression = configured_compression(request.conf, request.compression)
        return export_snapshot(
            self._catalog, self.job.name, self.name,
            **request.words(Written) | {"compression": compression},
            sharing=sharing_of(**request.words(Sharing)), engine=self.job.engine,
            progress=self.job.progress,
        )  # fmt: skip

    def diff(self, later: str, *, examples: int = 3, sort: SortBy = "operator") -> Differences:
        """Compare it with a later snapshot of the job, state by state.

        Args:
            later: The other snapshot.
            examples: How many rows of each kind of difference are shown.
            sort: `operator`, as snapshots have them, or `bytes`: the states that grew most first.
        """
        from statelake.pipelines.lake.verify.diffing import diff_snapshots

        return diff_snapshots(
            self._catalog, self.job.name, self.name, self.job[later].name, examples=examples,
            sort=sort, engine=self.job.engine, progress=self.job.progress,
        )  # fmt: skip

    def edit(self, name: str) -> SnapshotEditor:
        """Return an editor, whose `save` makes another snapshot of this one.

        Args:
            name: The id of the new snapshot.
        """
        from statelake.pipelines.lake.edit.editing import SnapshotEdit

        return SnapshotEditor(self, name, SnapshotEdit())

    def edit_sql(
        self, name: str, *statements: str, note: str = "", inexact: bool = False
    ) -> EditResult:
        """Make another snapshot of this one by SQL: all statements are run, or none.

        Args:
            name: The id of the new snapshot.
            statements: `DELETE`, `UPDATE` and `INSERT`, on DuckDB.
            note: Kept with it; say why.
            inexact: Whether to go by what columns show of values that they don't hold in full.
        """
        from statelake.pipelines.lake.edit.sql_editing import edit_by_sql

        return edit_by_sql(
            self._catalog, self.job.name, self.name, name, statements, note=note,
            inexact=inexact, progress=self.job.progress,
        )  # fmt: skip

    @asks(Migrate)
    def migrate(self, request: Migrate) -> Outcome:
        """Make a snapshot whose states have new types; one that was made before stays."""
        return self.job.migrated(request, [self.name]).outcomes[0]

    @asks(Upgrade)
    def upgrade(self, request: Upgrade) -> UpgradeOutcome:
        """Make a snapshot that Flink 2 restores of one that Flink 1 wrote.

        Raises:
            EncodeError: An argument can't be understood.
            ConflictError: There is a snapshot of the new id that something else made.
        """
        from statelake.pipelines.lake.change.migrations import upgrade_one

        return upgrade_one(
            self._catalog, self.job.name, self.name, request, self.job.engine, self.job.progress
        )

    @asks(CheckSql)
    def check_sql(self, request: CheckSql) -> SqlUpgrade:
        """Say what a Flink SQL job of a changed query keeps of this snapshot.

        Raises:
            DeclarationError: A plan can't be understood.
            IncompatibleError: The snapshot is not of the old plan.
        """
        return self.sql_upgrade(**vars(request), dry_run=True)

    @asks(UpgradeSql)
    def sql_upgrade(self, request: UpgradeSql) -> SqlUpgrade:
        """Make a snapshot from which a Flink SQL job of a changed query goes on.

        Accepted may be `partly`, what starts now or is null in old rows, `filter`, what another
        filter counted, and `lost=OPERATOR`, state that may be lost.

        Raises:
            DeclarationError: A plan can't be understood.
            IncompatibleError: The snapshot is not of the old plan.
            ConflictError: There is a snapshot of the new id that something else made.
        """
        from statelake.pipelines.sql_jobs.sql_upgrades import upgrade_sql_job

        return upgrade_sql_job(
            self._catalog, self.job.name, self.name, request, self.job.engine, self.job.progress
        )

    def erase(
        self,
        request: str,
        *,
        keys: Iterable[object] = (),
        where: Mapping[str, str] | None = None,
        carried: str = "",
        blobs: Sequence[str] = (),
        changelogs: Sequence[str] = (),
    ) -> Erasure:
        """Return an erasure from this snapshot alone; arguments as for `Lake.erase`.

        Raises:
            NotFoundError: It was not asked for by its whole id.
        """
        return self.job.lake.erase(
            request, keys=keys, where=where, jobs=(self.job.name,), snapshots=(self._whole_id,),
            carried=carried, blobs=blobs, changelogs=changelogs, progress=self.job.progress,
        )  # fmt: skip

    def hold(self, reason: str = "") -> list[HoldRecord]:
        """Let nobody drop it until its holds are released; return all that it has.

        Args:
            reason: Why; another reason is another hold.

        Raises:
            NotFoundError: It was not asked for by its whole id.
        """
        from statelake.pipelines.lake.catalog.holds import hold_snapshot

        return hold_snapshot(self._catalog, self.job.name, self._whole_id, reason)

    def release(self, reason: str | None = None) -> list[str]:
        """End its holds, and return their reasons.

        Args:
            reason: Only the hold of that reason; all of them by default.

        Raises:
            NotFoundError: It was not asked for by its whole id, or there is no such hold.
        """
        from statelake.pipelines.lake.catalog.holds import release_snapshot

        return release_snapshot(self._catalog, self.job.name, self._whole_id, reason)

    def plan_rescale(
        self, parallelism: int, max_parallelism: int | None = None
    ) -> list[OperatorPlan]:
        """Return how its key groups would be spread at another parallelism.

        Args:
            parallelism: The new parallelism.
            max_parallelism: A new one of these, too; by default as it was.
        """
        from statelake.pipelines.lake.export.rescaling import plan_rescale

        return plan_rescale(self.record, parallelism, max_parallelism)

    @asks(Canary)
    def canary(self, request: Canary) -> CanaryResult:
        """Run a program from it until that has completed a checkpoint, and cancel it."""
        from statelake.pipelines.live.canary import run_canary

        return run_canary(self._catalog, self.job.name, self.name, request, self.job.engine)

    def check_integrity(self, savepoint: Snapshot | None = None) -> list[str]:
        """Read, count and hash every row; return a sentence for each fault.

        Args:
            savepoint: What it was imported from, which is compared, too.
        """
        from statelake.pipelines.lake.verify.integrity import count_faults, stored_faults

        faults = stored_faults(self._catalog, self.record, self.job.progress)
        if savepoint is not None:
            found = count_faults(self._catalog, self.record, savepoint)
            faults += [fault for fault in found if fault not in faults]
        return faults

    def check_compatibility(
        self, against: str, *, allow_non_restored_state: bool = False
    ) -> Verdicts:
        """Return for every state whether a new job could use it.

        Args:
            against: A file that says what states become, or a savepoint of the new job.
            allow_non_restored_state: Whether an operator may be gone.
        """
        from statelake.pipelines.lake.verify.compatibility import check_against

        return check_against(self.record, against, allow_missing=allow_non_restored_state)

    def types(self, operator: str | Sequence[str] = ()) -> StateTypes:
        """Return the types of its states as text, as `Snapshot.types` does."""
        from statelake.pipelines.lake.verify.compatibility import schemas_of_record
        from statelake.state_core.formats.layout.state_types import types_of

        wanted = [operator] if isinstance(operator, str) else operator
        return types_of(schemas_of_record(self.record), wanted)

    def check_legality(
        self, declared: JobDeclaration | str, *, allow_non_restored_state: bool = False
    ) -> JobFindings:
        """Return all that is wrong with a declared job that is to restore it.

        Args:
            declared: A declaration, or where one is: `MODULE:JOB`, `FILE.py:JOB`, a JSON file.
            allow_non_restored_state: Whether an operator of the snapshot may be gone.
        """
        from statelake.pipelines.lake.verify.legality import (
            check_declared,
            held_of_record,
            load_job,
        )

        job = load_job(declared) if isinstance(declared, str) else declared
        held = held_of_record(self.record)
        return check_declared(job, held, allow_missing=allow_non_restored_state)

    def sources(self) -> list[SourceState]:
        """Return where its sources go on: offsets, positions, splits."""
        from statelake.pipelines.lake.catalog.recorded_sources import recorded_sources

        return self._read(partial(recorded_sources, self._catalog.location))

    def sinks(self) -> list[Sink]:
        """Return its sinks, with what they have still to commit."""
        from statelake.pipelines.lake.catalog.recorded_sources import recorded_sinks

        return self._read(partial(recorded_sinks, self._catalog.location))

    def _value_serializer(self, operator: str, state: str) -> TypeSerializer:
        from statelake.pipelines.lake.catalog.recorded_channels import recorded_value

        return recorded_value(self.record, operator, state)

    def channels(self) -> list[Channel]:
        """Return its channels with records in flight; `read_channels` reads what is in them."""
        from statelake.pipelines.lake.catalog.recorded_channels import recorded_channels

        return recorded_channels(self._catalog.directory, self.record)

    def top(
        self,
        limit: int = 10,
        *,
        operator: str | None = None,
        state: str | None = None,
        ttl: Iterable[timedelta] = (),
        at: datetime | None = None,
        problems: list[str] | None = None,
    ) -> dict[str, dict[str, StateWeights]]:
        """Return the heaviest keys of each keyed state; see `Snapshot.top`."""
        from statelake.pipelines.lake.keys.heavy_keys import weigh_snapshot
        from statelake.state_core.formats.key_weights import expired_until

        until = expired_until(at or self.taken_at, ttl)

        def weigh(record: SnapshotRecord) -> list[tuple[OperatorRecord, dict[str, StateWeights]]]:
            return weigh_snapshot(
                self._catalog, record, limit, operator=operator, state=state, until=until,
                progress=self.job.progress,
            )  # fmt: skip

        return {owner.label: states for owner, states in self._read(weigh)}

    def find(
        self,
        value: object,
        *,
        operator: str | None = None,
        state: str | None = None,
        contains: bool = False,
        limit: int | None = 100,
    ) -> SearchResult:
        """Return where a value is; see `Snapshot.find`. State without tables is not searched."""
        from statelake.pipelines.lake.catalog.unmanaged_state import KEYED, keyed_kept_as_bytes
        from statelake.state_core.model.finding import Unsearched, find_in_snapshot

        def search(record: SnapshotRecord) -> SearchResult:
            return find_in_snapshot(
                LakeSnapshot(self.job, record), value, operator=operator, state=state,
                contains=contains, limit=limit,
            )  # fmt: skip

        found: SearchResult = self._read(search)
        size = sum(carried.size for carried in self.record.carried)
        if size:
            why = f"{size:,} bytes of state without tables"
            found.unsearched.append(Unsearched("", "", "", why))
        for label, size in keyed_kept_as_bytes(self.record).items():
            found.unsearched.append(Unsearched(label, "", "", f"{size:,} bytes of {KEYED}"))
        found.entries_lost += self.problems_of(operator, state, keyed=True)
        return found

    def problems_of(
        self, operator: str | None = None, state: str | None = None, *, keyed: bool = False
    ) -> list[str]:
        """Return which operators' keyed state is kept as bytes, whose entries nobody finds.

        Args:
            operator: Only of this operator: its uid, name or id.
            state: As for `Snapshot.problems_of`: such bytes may have a state of any name.
            keyed: Likewise: it is keyed state.
        """
        from statelake.pipelines.lake.catalog.unmanaged_state import problems_kept_as_bytes

        return problems_kept_as_bytes(self.record, operator)

    def key_rows(
        self, key: object, *, operator: str | None = None, state: str | None = None
    ) -> list[KeyRows]:
        """Return the rows of one key of each operator, which are read when they are consumed.

        Args:
            key: The key as in a column `key`, or text as `statelake dump` prints it.
            operator: Only of this operator: its uid, name or id.
            state: Only of the state of that name.

        Raises:
            EncodeError: No operator can have that key.
            NotFoundError: There is no such operator or state, or no keyed state at all.
        """
        from statelake.pipelines.lake.keys.one_key import rows_in_lake

        text = _key_text(key)
        return rows_in_lake(self._catalog, self.record, text, operator=operator, state=state)

    def report(
        self,
        to: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        check: bool = False,
        limit: int = 5,
    ) -> ReportResult:
        """Write a page of HTML that shows the snapshot, and how the job's state grew, and why.

        Args:
            to: The file; its directory must exist.
            overwrite: Whether to replace a file.
            check: Whether to look for faults, which are then part of the page.
            limit: How many of the heaviest keys of each state; 0 for none.

        Raises:
            ConflictError: The file exists.
        """
        from statelake.pipelines.report.gathering import lake_report
        from statelake.pipelines.report.page import write_report

        grow = partial(self.job.growth, keys=limit > 0)
        gather = partial(
            lake_report, self._catalog, limit=limit, grow=grow, check=check,
            progress=self.job.progress,
        )  # fmt: skip
        return write_report(lambda: self._read(gather), to, overwrite=overwrite)

    def _read(self, read: Callable[[SnapshotRecord], Result]) -> Result:
        """Read the snapshot by one record from begin to end: see `SnapshotReading.whole`."""
        return SnapshotReading(self._catalog, self.record).whole(read)


class SnapshotEditor:
    """Changes of a snapshot, which `save` makes: each method adds one, and returns the editor.

    Names are those of before: merges come first, then what is dropped, purged and renamed.

    Args:
        parent: The snapshot.
        name: The id of the new snapshot.
        changes: What is changed so far.
    """

    def __init__(self, parent: LakeSnapshot, name: str, changes: SnapshotEdit) -> None:
        self.parent = parent
        self.name = name
        self.changes = changes

    def __repr__(self) -> str:
        return f"<SnapshotEditor {printable(self.name)} of {printable(self.parent.location)}>"

    def _add(self, what: str, *more: object) -> Self:
        changed: dict[str, Any] = {what: [*getattr(self.changes, what), *more]}
        self.changes = replace(self.changes, **changed)
        return self

    def _put(self, what: str, name: str, value: object) -> Self:
        given = getattr(self.changes, what)
        if name in given:
            raise DeclarationError(f"{what} names {name} twice", remedy="give it once")
        changed: dict[str, Any] = {what: {**given, name: value}}
        self.changes = replace(self.changes, **changed)
        return self

    def rename_uid(self, operator: str, uid: str) -> Self:
        """Give an operator a uid."""
        return self._put("rename", operator, uid)

    def drop_operator(self, *operators: str) -> Self:
        """Drop operators."""
        return self._add("drop_operators", *operators)

    def keep_operator(self, *operators: str) -> Self:
        """Drop all operators but these."""
        return self._add("keep_operators", *operators)

    def drop_state(self, *states: str) -> Self:
        """Drop states, each `operator/state`; `operator/timers` stands for all timers."""
        return self._add("drop_states", *states)

    def merge(self, snapshot: str, *, job: str | None = None) -> Self:
        """Take in the operators of another snapshot, of this job or of another."""
        other = self.parent.job if job is None else self.parent.job.lake.job(job)
        return self._add("merge", (other.name, other[snapshot].name))

    def purge(self, state: str, predicate: str) -> Self:
        """Delete the rows of a state (`operator/state`) of which a predicate in SQL is true."""
        return self._put("purge", state, predicate)

    def expire(self, state: str, ttl: timedelta) -> Self:
        """Delete what of a state has expired at a time to live; see `at`."""
        return self._put("expire", state, ttl)

    def keep_keys(self, operator: str, file: str) -> Self:
        """Delete all keys of an operator but those that a file lists, one a line."""
        return self._put("keep_keys", operator, file)

    def set_offsets(self, *offsets: str) -> Self:
        """Have Kafka's partitions, and the logs of Flink CDC, read from elsewhere.

        Args:
            offsets: `topic:partition=offset`, or files with one a line; of Flink CDC
                `binlog-split=FILE:POSITION` or `stream-split=LSN`.
        """
        from statelake.pipelines.lake.catalog.recorded_sources import read_new_offsets

        return self._add("set_offsets", *read_new_offsets(offsets))

    def drop_partitions(self, *partitions: str) -> Self:
        """Take partitions of Kafka out of a source that does not subscribe to them any more.

        Args:
            partitions: `topic:partition`, or `topic` for all of it.
        """
        from statelake.state_core.connectors.offsets import parse_partition

        return self._add("drop_partitions", *map(parse_partition, partitions))

    def move_positions(self, operator: str, uid: str) -> Self:
        """Have a new source go on where an old one stood, which is dropped.

        Args:
            operator: A `FlinkKafkaConsumer`, which becomes a `KafkaSource`, or a
                `FlinkKinesisConsumer`, which becomes a `KinesisStreamsSource`; see `stream_arn`.
            uid: The new source's uid.
        """
        return self._put("move_positions", operator, uid)

    def stream_arn(self, *arns: str) -> Self:
        """Name the ARNs of streams of Kinesis, which old sources know by their names alone."""
        return self._add("stream_arns", *arns)

    def offsets_from_timestamp(self, time: datetime, bootstrap_servers: str) -> Self:
        """Have Kafka's partitions read from where they stood at a time, as the brokers say."""
        from statelake.pipelines.lake.catalog.recorded_sources import offsets_at

        job = self.parent.job
        found = offsets_at(job.lake.catalog, job.name, self.parent.name, bootstrap_servers, time)
        return self._add("set_offsets", *found)

    def inexact(self) -> Self:
        """Let predicates go by what columns show of values that they don't hold in full."""
        self.changes = replace(self.changes, inexact=True)
        return self

    def at(self, time: datetime) -> Self:
        """Say when it is asked what has expired; by default when the snapshot was taken."""
        self.changes = replace(self.changes, at=time)
        return self

    def save(self, *, note: str = "", dry_run: bool = False) -> EditResult:
        """Make the new snapshot; the old one stays.

        Args:
            note: Kept with it; say why.
            dry_run: Whether it is only said what would change.

        Raises:
            NoMatchError: No row is purged or has expired, and nothing else would change.
        """
        from statelake.pipelines.lake.edit.editing import edit_snapshot

        job = self.parent.job
        return edit_snapshot(
            job.lake.catalog, job.name, self.parent.name, self.name, self.changes,
            note=note, dry_run=dry_run, engine=job.engine, progress=job.progress,
        )  # fmt: skip


class Checkpoints:
    """The checkpoints of running tasks, in a log.

    Args:
        log: A directory of records, or `kafka://HOST:PORT/TOPIC`.
        job: The job of a lake whose runs wrote the log; `Job.checkpoints` gives it.
    """

    def __init__(self, log: str, job: Job | None = None) -> None:
        self.location = log
        self.job = job

    def __repr__(self) -> str:
        return f"<Checkpoints {printable(self.location)}>"

    @cached_property
    def log(self) -> CheckpointLog:
        """The log, opened.

        Raises:
            NotFoundError: There is no log at the location.
        """
        from statelake.state_core.runtime.commit.logs.checkpoint_records import open_log

        return open_log(self.location)

    def list(self) -> LastCheckpoints:
        """Return the last checkpoint of each task, in each version."""
        from statelake.state_core.runtime.commit.logs.checkpoint_records import (
            LastCheckpoints,
            last_records,
            read_records,
        )
        from statelake.state_core.runtime.commit.records.clocks import now_millis

        now, tasks = now_millis(), last_records(read_records(self.log)).values()
        return LastCheckpoints(
            [record for versions in tasks for _, record in sorted(versions.items())], now
        )

    def show(
        self, task: str, checkpoint: str | None = None, *, version: int | None = None
    ) -> TaskRecord:
        """Return one record of a task.

        Args:
            task: The task.
            checkpoint: The id of the checkpoint; by default the last one.
            version: The version of the record, 1 or 2; by default the later record.

        Raises:
            NotFoundError: There is no such record.
        """
        from statelake.state_core.runtime.commit.logs.checkpoint_records import read_records

        for record in reversed(read_records(self.log)):
            if (
                record.task == task
                and version in (None, record.checkpoint.version)
                and checkpoint in (None, str(record.id))
            ):
                return record
        raise NotFoundError(
            f"no such record of task {task!r}",
            place=self.location,
            remedy="`statelake checkpoints list` has the last ones; older ones may be removed",
        )

    def verify(
        self,
        *,
        blobs: str | None = None,
        changelogs: str | None = None,
        tasks: Iterable[str] = (),
        all: bool = False,  # noqa: A002
    ) -> VerifiedLog:
        """Restore what its markers lead to, into a directory that is removed again.

        Snapshots of the lake are read and hashed, if the log is that of a job's runs. Then only
        tasks of the last run are verified, unless others are named.

        Args:
            blobs: The blob store, a directory or URI.
            changelogs: The changelogs: a cluster, as `kafka://HOST:PORT`, or a directory.
            tasks: Only of these tasks.
            all: Whether to verify every record; otherwise the last of each task.
        """
        from statelake.state_core.runtime.commit import BlobStoreBackend, ChangelogBackend
        from statelake.state_core.runtime.commit.logs.checkpoint_records import open_changelogs
        from statelake.state_core.runtime.commit.logs.checkpoint_verifying import verify_log

        backends: list[StateBackendFactory] = []
        if blobs:
            backends.append(BlobStoreBackend(_blob_store(blobs)))
        if changelogs:
            backends.append(ChangelogBackend(open_changelogs(changelogs)))
        job = self.job
        if job is None:
            return verify_log(self.log, backends, tasks=tasks, every=all)
        if not (tasks or all):  # those of a larger parallelism have records, but no state any more
            records = self.list().records
            newest = max(record.run or 0 for record in records)
            tasks = [record.task for record in records if record.run == newest]
        snapshots = cache(job._verified)  # noqa: SLF001 - every task of a run has the same
        return verify_log(self.log, backends, snapshots=snapshots, tasks=tasks, every=all)

    def drop(self, keep: int, *, blobs: str | None = None) -> CheckpointDropResult:
        """Remove all records but the last ones, and the blobs that only they needed.

        Args:
            keep: The number of records of each task and version that stay.
            blobs: The blob store; without it blobs stay.
        """
        from statelake.state_core.runtime.commit.logs.checkpoint_dropping import drop_records

        return drop_records(self.log, keep, _blob_store(blobs) if blobs else None)

    def migrate(
        self,
        changelogs: Iterable[str] = (),
        *,
        tasks: Iterable[str] = (),
        rollback: bool = False,
        dry_run: bool = False,
    ) -> MigratedLog:
        """Append a record of version 2 for every task that has its last one in version 1.

        Args:
            changelogs: The changelogs of stores, each `STORE=SYSTEM.STREAM`.
            tasks: Only of these tasks.
            rollback: Whether to go from version 2 to version 1.
            dry_run: Whether to append nothing.

        Raises:
            DeclarationError: A changelog is not of that form.
        """
        from statelake.state_core.runtime.commit.logs.checkpoint_migrating import (
            MigratedLog,
            changelog_of,
            migrate_records,
        )

        named = dict(map(changelog_of, changelogs))
        done = migrate_records(self.log, named, tasks=tasks, rollback=rollback, dry_run=dry_run)
        return MigratedLog(done, dry_run)


def _blob_store(location: str) -> Any:
    from statelake.state_core.files.filesystem import Directory
    from statelake.state_core.runtime.commit import FileSystemBlobStore

    return FileSystemBlobStore(Directory(location).confined())


@takes(WatchedBootstrap)
def bootstrap(request: WatchedBootstrap) -> BootstrapResult:
    """Create a savepoint from tables, without a lake."""
    from statelake.pipelines.bootstrap.bootstrapping import bootstrap

    return bootstrap(None, **vars(request))


def compress(
    savepoint: str | os.PathLike[str],
    to: str | os.PathLike[str],
    compression: str | None = None,
    *,
    conf: Mapping[str, str] | None = None,
    allow_external: Iterable[str] = (),
    progress: Progress | None = None,
) -> Recompression:
    """Compress a canonical savepoint, or decompress it: entry for entry the same state.

    Args:
        savepoint: Its directory, a path or URI.
        to: The directory of the new savepoint, which must not exist.
        compression: `snappy` or `none`; by default `snappy`.
        conf: Flink's configuration, with its setting of compression.
        allow_external: Directories elsewhere to which its handles may lead.
        progress: Called with (done, total) by the bytes that are written.
    """
    from statelake.state_core.files.compression import configured_compression
    from statelake.state_core.formats.rewriting.recompression import recompress_snapshot

    codec = configured_compression(conf or {}, compression) or "snappy"
    return recompress_snapshot(
        savepoint, to, codec, allow_external=allow_external, progress=progress
    )


def check_integrity(
    savepoint: str | os.PathLike[str],
    *,
    allow_external: Iterable[str] = (),
    uids: Iterable[str] = (),
    progress: Progress | None = None,
) -> IntegrityReport:
    """Read all of a savepoint or checkpoint, and report every fault.

    Args:
        savepoint: Its directory, a path or URI.
        allow_external: Directories elsewhere to which its handles may lead.
        uids: Operator uids to recognise, for snapshots of before Flink 2.0.
        progress: Called with (done, total) after each slice of keyed state.
    """
    from statelake.state_core.integrity import check_snapshot

    return check_snapshot(savepoint, allow_external=allow_external, uids=uids, progress=progress)


def salvage(
    savepoint: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    allow_external: Iterable[str] = (),
    uids: Iterable[str] = (),
    progress: Progress | None = None,
) -> SalvageReport:
    """Write what can be read of a damaged savepoint as a new one; see `check_integrity`.

    Args:
        savepoint: Its directory, a path or URI.
        to: The directory of the new savepoint, which must not exist.
        allow_external: As for `check_integrity`, like the next two.
        uids: Operator uids to recognise.
        progress: Called with (done, total).
    """
    from statelake.state_core.integrity import salvage_snapshot

    return salvage_snapshot(
        savepoint, to, allow_external=allow_external, uids=uids, progress=progress
    )


@takes(FindSnapshots)
def scan(request: FindSnapshots) -> Scan:
    """Find every savepoint and checkpoint below a directory, the newest first.

    Raises:
        SnapshotError: The directory can't be listed.
    """
    from statelake.pipelines.find.scanning import scan

    return scan(request)


@takes(CopySnapshot)
def copy_snapshot(request: CopySnapshot) -> CopiedSnapshot:
    """Copy a savepoint or checkpoint with all its files, so that Flink restores the copy.

    Raises:
        DeclarationError: The copy would be inside the original, or something else is there.
        SnapshotError: The snapshot is damaged, or a file can't be read or written.
    """
    from statelake.pipelines.find.copying import copy_snapshot

    return copy_snapshot(request)


@takes(CopyCheckpoints)
def copy_checkpoints(request: CopyCheckpoints) -> CopiedCheckpoints:
    """Copy the checkpoints of a job that were not copied before, and once what they share.

    Raises:
        DeclarationError: The copies would be inside the originals, or another job's are there.
        SnapshotError: A checkpoint is damaged, or a file can't be read or written.
    """
    from statelake.pipelines.find.copying import copy_checkpoints

    return copy_checkpoints(request)


@takes(Drill)
def drill(request: Drill) -> DrillResult:
    """Restore the newest sound snapshot below a directory, as after a disaster, and cancel the job.

    Raises:
        NotFoundError: No snapshot there can be restored.
        ClusterError: The cluster can't be asked.
    """
    from statelake.pipelines.live.canary import run_drill

    return run_drill(request)


def orphans(
    directory: str | os.PathLike[str],
    cluster: FlinkCluster | None = None,
    *,
    older_than: timedelta | None = None,
    no_cluster: bool = False,
    path_map: Iterable[str] = (),
    delete: bool = False,
) -> Orphans:
    """Find, and delete, the files below a directory of checkpoints that no snapshot needs.

    Args:
        directory: A path or URI.
        cluster: The cluster whose jobs write there.
        older_than: The age of the files; by default 7 days.
        no_cluster: Whether no cluster is asked, as no job needs files without a reference of that
            age.
        path_map: The names of the cluster's directories on this machine: `CLUSTER=HERE`.
        delete: Whether to delete them; if not, they are only listed.

    Raises:
        DeclarationError: No cluster is given and `no_cluster` is not set, or that without an age.
        ClusterError: The cluster can't be asked.
        SnapshotError: The directory can't be listed, or a file can't be deleted.
    """
    from statelake.pipelines.find.orphans import check_request, delete_orphans
    from statelake.pipelines.find.orphans import find_orphans as find
    from statelake.pipelines.find.path_map import PathMap
    from statelake.pipelines.live.cluster_view import cluster_jobs

    check_request(cluster is not None, no_cluster=no_cluster, older_than=older_than)
    plan = find(
        directory,
        partial(cluster_jobs, cluster) if cluster is not None else None,
        older_than=timedelta(days=7) if older_than is None else older_than,
        paths=PathMap.parse(path_map),
    )
    return delete_orphans(directory, plan) if delete else plan


def report(
    savepoint: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    check: bool = False,
    limit: int = 5,
    allow_external: Iterable[str] = (),
    uids: Iterable[str] = (),
    plan: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> ReportResult:
    """Write a page of HTML that shows a savepoint or checkpoint.

    Args:
        savepoint: Its directory, a path or URI.
        to: The file, a path or URI; its directory must exist.
        overwrite: Whether to replace a file.
        check: Whether to look for faults, which are then part of the page.
        limit: How many of the heaviest keys of each state; 0 for none.
        allow_external: Directories elsewhere to which its handles may lead.
        uids: Operator uids to recognise, for snapshots of before Flink 2.0.
        plan: The compiled plan of its Flink SQL job, as a file, for names.
        progress: Called with (done, total) after each operator.

    Raises:
        ConflictError: The file exists.
        DeclarationError: The plan is not that of the savepoint's job.
        SnapshotError: The savepoint can't be opened.
    """
    from statelake.pipelines.report.gathering import savepoint_report
    from statelake.pipelines.report.page import write_report

    gather = partial(
        savepoint_report, os.fspath(savepoint), limit, check=check, uids=tuple(uids),
        allow_external=tuple(allow_external), plan=plan, progress=progress,
    )  # fmt: skip
    return write_report(gather, to, overwrite=overwrite)


def check_legality(
    declared: JobDeclaration | str,
    savepoint: str | os.PathLike[str] | None = None,
    *,
    allow_non_restored_state: bool = False,
) -> JobFindings:
    """Return all that is wrong with a declared job, also with its restore from a savepoint.

    Args:
        declared: A declaration, or where one is: `MODULE:JOB`, `FILE.py:JOB`, a JSON file.
        savepoint: The savepoint to be restored; `LakeSnapshot.check_legality` is for one in a lake.
        allow_non_restored_state: Whether an operator of the savepoint may be gone.
    """
    from statelake.pipelines.lake.verify.legality import check_declared, load_job
    from statelake.state_core.formats import open_snapshot
    from statelake.state_core.runtime.legality.stored_states import held_operators

    job, held = load_job(declared) if isinstance(declared, str) else declared, None
    if savepoint is not None:
        uids = [operator.uid for operator in job.operators]
        held = held_operators(open_snapshot(savepoint, uids=uids))
    return check_declared(job, held, allow_missing=allow_non_restored_state)


def diff(
    earlier: str | os.PathLike[str],
    later: str | os.PathLike[str],
    *,
    examples: int = 3,
    sort: SortBy = "operator",
    allow_external: Iterable[str] = (),
    uids: Iterable[str] = (),
) -> Differences:
    """Compare two savepoints or checkpoints, state by state; see `LakeSnapshot.diff`.

    Both are imported into a lake that is removed afterwards: all of their state is read.

    Args:
        earlier: The earlier one's directory, a path or URI.
        later: That of the later one.
        examples: How many rows of each kind of difference are shown.
        sort: `operator`, as they have them, or `bytes`: the states that grew most first.
        allow_external: Directories elsewhere to which their handles may lead.
        uids: Operator uids to recognise, for snapshots of before Flink 2.0.

    Raises:
        SnapshotError: One can't be opened or read.
    """
    from statelake.pipelines.lake.verify.diffing import Differences
    from statelake.state_core.formats import open_snapshot

    reading: Any = {"allow_external": tuple(allow_external), "uids": tuple(uids)}
    names = []
    for path in (os.fspath(earlier), os.fspath(later)):  # before all the work
        opened = open_snapshot(path, **reading)
        names.append(opened.location if "://" in path else path)  # without its credentials
    with in_temporary_lake(earlier, **reading) as before:
        before.job.import_snapshot(later, "later", **reading)
        found = before.diff("later", examples=examples, sort=sort)
    return Differences(names[0], names[1], found)


def diff_types(
    old: StateTypes | str | os.PathLike[str], new: StateTypes | str | os.PathLike[str]
) -> TypeDifferences:
    """Return the differences of two files of types, or of snapshots' types, in words.

    Args:
        old: A file as `Snapshot.types` prints it, such as the one that was committed last; or what
            `Snapshot.types` returns.
        new: The same of the new job.

    Raises:
        EncodeError: A file is not valid.
    """
    from statelake.pipelines.lake.change.changes import read_types
    from statelake.state_core.formats.layout.state_types import StateTypes, differences_of

    return differences_of(
        *(
            each.content() if isinstance(each, StateTypes) else read_types(os.fspath(each))
            for each in (old, new)
        )
    )


def growth(
    savepoints: Iterable[str | os.PathLike[str]],
    *,
    ahead: float = 30,
    keys: bool = True,
    allow_external: Iterable[str] = (),
    uids: Iterable[str] = (),
) -> Growth:
    """Return how state grew over some savepoints or checkpoints of a job; see `Job.growth`.

    All of their state is read. Their times are those of their files `_metadata`.

    Args:
        savepoints: Their directories, paths or URIs, in any order.
        ahead: The days of the forecast.
        keys: Whether to read the keys of the states that grew most.
        allow_external: Directories elsewhere to which their handles may lead.
        uids: Operator uids to recognise, for snapshots of before Flink 2.0.

    Raises:
        SnapshotError: A savepoint can't be opened or read.
        NotFoundError: There are fewer than two.
    """
    from statelake.pipelines.find.growth import described, growth_of
    from statelake.state_core.formats import open_snapshot

    uids, allow_external = tuple(uids), tuple(allow_external)
    snapshots = (
        described(open_snapshot(each, allow_external=allow_external, uids=uids))
        for each in savepoints
    )
    return growth_of(snapshots, ahead=ahead, keys=keys)


@takes(UpgradeSavepoint)
def upgrade(request: UpgradeSavepoint) -> UpgradeOutcome:
    """Write a savepoint that Flink 2 restores of one that Flink 1 wrote.

    Raises:
        SnapshotError: The savepoint can't be opened, or something is at `to` already.
        EncodeError: An argument can't be understood.
    """
    from statelake.pipelines.lake.change.migrations import values_as_bytes
    from statelake.state_core.formats import open_snapshot

    place, to = os.fspath(request.savepoint), request.to
    reading = request.words(Reading)
    with (
        values_as_bytes(lambda: open_snapshot(place, **reading)),
        in_temporary_lake(place, to, **reading) as snapshot,
    ):
        planned = snapshot.upgrade(**request.words(Upgrading), dry_run=to is None)
        if to is None or not (planned.made or planned.restorable):
            return replace(planned, snapshot=place)
        snapshot.job[planned.made or snapshot.name].export(to)
        return replace(planned, snapshot=place, made=os.fspath(to))


@takes(CheckSqlOfSavepoint)
def check_sql(request: CheckSqlOfSavepoint) -> SqlUpgrade:
    """Say what a Flink SQL job of a changed query keeps of a savepoint.

    Raises:
        DeclarationError: A plan can't be understood.
        IncompatibleError: The savepoint is not of the old plan.
    """
    return sql_upgrade(to=None, **vars(request))


@takes(UpgradeSqlSavepoint)
def sql_upgrade(request: UpgradeSqlSavepoint) -> SqlUpgrade:
    """Write a savepoint from which a Flink SQL job of a changed query goes on.

    What is accepted, `LakeSnapshot.sql_upgrade` says.

    Raises:
        DeclarationError: A plan can't be understood.
        IncompatibleError: The savepoint is not of the old plan.
        SnapshotError: The savepoint can't be opened, or something is at `to` already.
    """
    place, to = os.fspath(request.savepoint), request.to
    with in_temporary_lake(place, to, **request.words(Reading)) as snapshot:
        done = snapshot.sql_upgrade(**request.words(UpgradeSql), dry_run=to is None)
        if to is None or not done.made:
            return replace(done, snapshot=place)
        snapshot.job[done.made].export(to)
        return replace(done, snapshot=place, made=os.fspath(to))


@contextmanager
def in_temporary_lake(
    savepoint: str | os.PathLike[str],
    to: str | os.PathLike[str] | None = None,
    *,
    allow_external: Iterable[str] = (),
    uids: Iterable[str] = (),
    plan: str | os.PathLike[str] | None = None,
    decode: Iterable[str] = (),
) -> Iterator[LakeSnapshot]:
    """Yield a savepoint as the snapshot of a lake that is removed afterwards, for an export.

    Args:
        savepoint: Its directory, a path or URI.
        to: Where it is to be exported, which is looked at before all the work.
        allow_external: Directories elsewhere to which its handles may lead.
        uids: Operator uids to recognise, for snapshots of before Flink 2.0.
        plan: The compiled plan of its Flink SQL job, as a file: rows have the columns of its query.
        decode: What texts and bytes hold, as for `Job.import_snapshot`.

    Raises:
        SnapshotError: The savepoint can't be opened, or something is at `to` already.
    """
    from statelake.state_core.files.held_directories import (
        EXPORT_PREFIX,
        held_temporary,
        remove_left,
        stale_temporary_directories,
    )
    from statelake.state_core.formats.writing.writer import require_free

    if to is not None:
        require_free(to)
    for left in stale_temporary_directories(EXPORT_PREFIX):
        remove_left(left)
    with held_temporary(EXPORT_PREFIX) as directory:
        job = Lake(directory).job("savepoint", engine="local")
        job.import_snapshot(
            savepoint, "savepoint", allow_external=tuple(allow_external), uids=tuple(uids),
            plan=plan, decode=tuple(decode),
        )  # fmt: skip
        yield job["savepoint"]


def warm(progress: Progress | None = None) -> int:
    """Compile all kernels, for images and new machines; return their number."""
    from statelake.state_core.kernels.compiler import all_kernels

    kernels = all_kernels()
    for done, kernel in enumerate(kernels, 1):
        kernel.compile()
        if progress is not None:
            progress(done, len(kernels))
    return len(kernels)
