"""The steps of a rescale of a live job, and of the way back, as two tables.

A step that was killed before the journal recorded it is repeated, and finds its earlier result:
Flink knows the savepoint and the jobs by ids that the journal has from the beginning.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from statelake.pipelines.engine import Engine
from statelake.pipelines.find.path_map import PathMap
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.recorded_states import recorded_operators
from statelake.pipelines.lake.change.changes import read_changes
from statelake.pipelines.lake.change.migrations import migrate_one
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.verify.compatibility import check_against
from statelake.pipelines.lake.verify.legality import check_declared, load_job
from statelake.pipelines.live.jars import JarRun, Jars
from statelake.pipelines.live.requests import Rescale
from statelake.pipelines.live.rescale_journal import Journal
from statelake.pipelines.requests.imports import Import
from statelake.pipelines.sql_jobs.sql_scripts import SqlPlans
from statelake.pipelines.sql_jobs.sql_upgrades import SqlChange, read_pairs
from statelake.state_core.errors import (
    CorruptSnapshotError,
    DamagedLakeError,
    EncodeError,
    FlinkJobError,
    IncompatibleError,
    LegalityError,
    NotFoundError,
)
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.integrity import check_snapshot
from statelake.state_core.runtime.legality.stored_states import held_operators

RUN_OLD = "run old"
SUFFIX = "-migrated"
METADATA = "_metadata"
SHOWN = 3


@dataclass(frozen=True)
class RescalePlan:
    """The target of a rescale.

    Attributes:
        job: The job's name in the lake.
        request: What is asked for.
        paths: Paths of the cluster as paths of this machine.
        sql: The change of the job's SQL; None if it stays.
    """

    job: str
    request: Rescale
    paths: PathMap = field(default_factory=PathMap)
    sql: SqlChange | None = None

    @classmethod
    def of(cls, job: str, request: Rescale) -> RescalePlan:
        """Return the plan of what is asked for.

        Raises:
            EncodeError: There is one plan of SQL, or what belongs to plans and none of them.
        """
        paths = PathMap.parse(request.path_map)
        old, new = request.old_plan, request.new_plan
        others = (request.map, request.accept, request.like, request.no_uids, request.uids)
        if old and new:
            sql = SqlChange(
                SqlPlans(old, new), read_pairs(request.map), tuple(request.accept),
                os.fspath(request.like or ""), request.no_uids, tuple(request.uids),
            )  # fmt: skip
            return cls(job, request, paths, sql)
        if old or new or any(others):
            raise EncodeError(
                "an upgrade of SQL needs both plans",
                remedy="give --old-plan, that of the job that runs, and --new-plan",
            )
        return cls(job, request, paths)

    @property
    def old(self) -> JarRun:
        """The present program, which is run again if the new one fails."""
        return self.request.old or self.request.program

    def completed(self) -> RescalePlan:
        """Return the plan with the cluster's own directory for savepoints, if it names none.

        Raises:
            DeclarationError: The cluster has none either.
        """
        if self.request.savepoints:
            return self
        savepoints = self.request.cluster.savepoint_directory()
        return replace(self, request=replace(self.request, savepoints=savepoints))


class Work:
    """The context of the steps of one call."""

    def __init__(
        self, lake: Catalog, plan: RescalePlan, journal: Journal, jars: Jars, engine: Engine | str
    ) -> None:
        self.request, self.cluster = plan.request, plan.request.cluster
        self.jars = jars
        self.lake = lake
        self.plan = plan
        self.journal = journal
        self.engine = engine

    @property
    def target(self) -> str:
        """The directory of the job's savepoint, as the cluster names it."""
        return f"{self.request.savepoints.rstrip('/')}/{self.journal.savepoint_directory}"

    @property
    def savepoint(self) -> str:
        """The job's own savepoint, as the cluster names it; empty before it exists."""
        return f"{self.target}/{self.journal.savepoint}" if self.journal.savepoint else ""

    @property
    def savepoint_here(self) -> str:
        """The job's own savepoint, as this machine names it."""
        return self.plan.paths.readable(self.savepoint)

    @property
    def export_here(self) -> str:
        """The savepoint from which the new job starts, as this machine names it."""
        exports = Directory(self.request.exports).confined()
        return exports.checked_location(self.journal.export_directory)

    def run(
        self, program: JarRun, job_id: str, savepoint: str, parallelism: int, max_parallelism: int
    ) -> str:
        """Run a program under an id, unless it was submitted before; return a description."""
        try:
            self.cluster.job(job_id)
        except NotFoundError:
            self.jars.run(
                program, savepoint=savepoint, job_id=job_id, parallelism=parallelism or None,
                max_parallelism=max_parallelism or None,
            )  # fmt: skip
        return f"job {job_id} from {savepoint}"

    def require_started(self, job_id: str, start: str) -> None:
        """Require that a job is the journal's, which names jobs by their ids alone.

        Args:
            job_id: The job, which runs.
            start: The last name of the path of the savepoint from which it was started.

        Raises:
            DamagedLakeError: The job was started from another savepoint.
        """
        restored = self.cluster.checkpoints(job_id).restored_from
        if restored.rstrip("/").rpartition("/")[2] != start:
            raise DamagedLakeError(
                f"job {job_id} was started from {restored or 'nothing'}, not from {start}",
                place=f"the journal of a rescale of {self.plan.job!r}",
                remedy="the job is left as it is: check who else may write into the lake",
            )


def _stop(work: Work) -> str:
    """Stop the job, or find the savepoint of an earlier call that stopped it."""
    journal = work.journal
    try:
        ended = work.cluster.job(journal.flink_job).ended
    except NotFoundError:
        ended = True  # the cluster has forgotten it
    if ended:
        location = _stopped_with(work)
    else:
        location = work.cluster.stop_with_savepoint(
            journal.flink_job, work.target, form=work.request.format, trigger_id=journal.trigger,
            timeout=work.request.savepoint_timeout,
        )  # fmt: skip
    journal.savepoint = location.rstrip("/").rpartition("/")[2]
    return f"savepoint {work.savepoint}"


def _stopped_with(work: Work) -> str:
    """Return the savepoint of a job that has ended; its directory is this rescale's alone.

    Raises:
        FlinkJobError: The job has no such savepoint.
    """
    operation = work.cluster.triggered_savepoint(work.journal.flink_job, work.journal.trigger)
    if operation is not None and operation.location:
        return operation.location
    directory = Directory(work.plan.paths.here(work.target)).confined()
    complete = [name for name in directory.names() if directory.is_file(f"{name}/{METADATA}")]
    if complete:
        return f"{work.target}/{complete[-1]}"
    raise FlinkJobError(
        f"job {work.journal.flink_job} has ended, and there is no savepoint of it in {work.target}",
        place=work.cluster.url,
        remedy="start it from its last checkpoint, and then rescale it",
    )


def _import(work: Work) -> str:
    sql = work.plan.sql
    done = import_snapshot(
        work.lake, work.savepoint_here, work.plan.job,
        Import(note=f"rescale of {work.journal.flink_job}", uids=sql.uids if sql else ()),
        engine=work.engine,
    )  # fmt: skip
    work.journal.snapshot = work.journal.migrated = done.record.snapshot_id
    return f"snapshot {done.record.snapshot_id}, {done.record.entries:,} entries"


def _integrity(work: Work) -> str:
    report = check_snapshot(work.savepoint_here)
    if report.faults:
        raise CorruptSnapshotError(
            f"{len(report.faults)} faults: {_first(report.faults)}", place=work.savepoint
        )
    return "sound"


def _migrate(work: Work) -> str:
    if not work.request.migrate:
        return "no migration was requested"
    changes = read_changes(work.request.migrate)
    parent = work.journal.snapshot
    target = f"{parent}{SUFFIX}"
    child = ChildSnapshot(work.lake, work.plan.job, parent, target, engine=work.engine)
    outcome = migrate_one(child, *changes)
    work.journal.migrated = outcome.made
    states = ", ".join(f"{change.operator}/{change.state}" for change in changes)
    return f"snapshot {outcome.made}: {states} {outcome.outcome}"


def _upgrade_sql(work: Work) -> str:
    if work.plan.sql is None:
        return "no plans of Flink SQL were given"
    done = work.plan.sql.upgrade(
        work.lake, work.plan.job, work.journal.migrated, engine=work.engine
    )
    work.journal.migrated = done.made
    fates = Counter(each.fate for each in done.operators)
    return f"snapshot {done.made}: " + ", ".join(f"{n} {fate}" for fate, n in fates.items())


def _legality(work: Work) -> str:
    if not work.request.declared:
        return "no declaration was given"
    record = work.lake.snapshot(work.plan.job, work.journal.migrated)
    findings = check_declared(
        load_job(work.request.declared), held_operators(recorded_operators(work.lake, record)),
        allow_missing=work.request.program.allow_non_restored,
    )  # fmt: skip
    faults = [finding for finding in findings if finding.fault]
    if faults:
        raise LegalityError(f"{len(faults)} faults: {_first(faults)}", place=work.request.declared)
    return f"legal, {len(findings)} warnings"


def _compatibility(work: Work) -> str:
    if not work.request.against:
        return "no types were given: Flink decides"
    record = work.lake.snapshot(work.plan.job, work.journal.migrated)
    verdicts = check_against(
        record,
        work.request.against,
        allow_missing=work.request.program.allow_non_restored,
    )
    faults = [
        f"{verdict.operator}/{verdict.state}: {'; '.join(map(str, verdict.result.reasons))}"
        for verdict in verdicts
        if verdict.fault
    ]
    if faults:
        raise IncompatibleError(
            f"{len(faults)} of {len(verdicts)} states: {_first(faults)}",
            place=work.request.against,
        )
    return f"{len(verdicts)} states, none incompatible"


def _export(work: Work) -> str:
    here = work.export_here
    if not Directory(here).is_file(METADATA):
        Directory(work.request.exports).confined().delete_tree(work.journal.export_directory)
        export_snapshot(
            work.lake, work.plan.job, work.journal.migrated, here,
            parallelism=work.journal.parallelism or None,
            max_parallelism=work.journal.max_parallelism or None, engine=work.engine,
        )  # fmt: skip
    return f"savepoint {work.plan.paths.there(here)}"


def _run(work: Work) -> str:
    parallelism = work.journal.parallelism or work.journal.old_parallelism
    savepoint = work.plan.paths.there(work.export_here)
    return work.run(
        work.request.program,
        work.journal.new_job,
        savepoint,
        parallelism,
        work.journal.max_parallelism,
    )


def _confirm(work: Work) -> str:
    return _confirmed(work, work.journal.new_job, work.journal.export_directory)


def _cancel_new(work: Work) -> str:
    job_id = work.journal.new_job
    try:
        if work.cluster.job(job_id).runs:
            work.require_started(job_id, work.journal.export_directory)
        return f"job {job_id} is {work.cluster.cancel(job_id)}"
    except NotFoundError:
        return "the new job never ran"


def _run_old(work: Work) -> str:
    return work.run(
        work.plan.old, work.journal.old_again, work.savepoint, work.journal.old_parallelism, 0
    )


def _confirm_old(work: Work) -> str:
    return _confirmed(work, work.journal.old_again, work.journal.savepoint)


def _confirmed(work: Work, job_id: str, start: str) -> str:
    work.cluster.wait_until_running(job_id, timeout=work.request.timeout)
    work.require_started(job_id, start)
    return f"job {job_id} runs, and has completed a checkpoint"


@dataclass(frozen=True)
class Step:
    """A step; repeated after a kill, it finds its earlier result.

    Attributes:
        name: Its name in the journal.
        what: Its description in a plan.
        do: Runs it, and returns a description of the result.
    """

    name: str
    what: str
    do: Callable[[Work], str]


STEPS = (
    Step("stop", "stop the job with a savepoint", _stop),
    Step("import", "import the savepoint into the lake", _import),
    Step("integrity", "read all of the savepoint, and check it", _integrity),
    Step("migrate", "migrate states to their new types, if types are given", _migrate),
    Step("sql", "upgrade the state of Flink SQL for its new plan, if plans are given",
         _upgrade_sql),
    Step("legality", "check the new job's declaration, if one is given", _legality),
    Step("compatibility", "check that the new job can use each state, if types are given",
         _compatibility),
    Step("export", "write the savepoint for the new job", _export),
    Step("run", "run the new job from that savepoint", _run),
    Step("confirm", "wait until it runs and has completed a checkpoint", _confirm),
)  # fmt: skip
WAY_BACK = (
    Step("cancel new", "cancel the new job, if it was submitted", _cancel_new),
    Step(RUN_OLD, "run the old JAR from the job's own savepoint", _run_old),
    Step("confirm old", "wait until it runs and has completed a checkpoint", _confirm_old),
)


def _first(faults: object) -> str:
    """Return the first few faults, and the number of the others."""
    texts = [str(fault) for fault in faults]  # type: ignore[attr-defined]
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return "; ".join(texts[:SHOWN]) + more
