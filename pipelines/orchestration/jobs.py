"""The Dagster jobs."""

from collections.abc import Iterable
from typing import TypeAlias

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from statelake.pipelines.orchestration.flink_ops import report_lost_job, rescale_op, savepoint_op
from statelake.pipelines.orchestration.ops import (
    PruneConfig,
    check_declarations,
    compress,
    export_savepoint,
    keep_exports,
    prune_op,
    report_commits,
    restore_elsewhere,
    run_functions,
)
from statelake.pipelines.orchestration.state_job import StateJob

AnyJob: TypeAlias = dg.JobDefinition | UnresolvedAssetJobDefinition

ARCHIVE = "archive_and_export"
MIGRATE = "migrate_snapshots"
UPGRADE = "upgrade_snapshots"
SQL_UPGRADE = "upgrade_sql_snapshots"
CHECK = "check_restore"
VERIFY = "savepoint_and_verify"
PRUNE = "prune_snapshots"
COMPRESS = "compress_savepoint"
FUNCTIONS = "run_process_functions"
COMMITS = "watch_commits"
LOGS = "migrate_checkpoint_logs"
SAVEPOINT = "take_savepoint"
RESCALE = "rescale_job"
LOST = "report_lost_job"
PROVE = "prove_restorable"
WATCH = "watch_checkpoints"
SCRUB = "check_lake"
DRILL = "run_drill"


def state_jobs(job: StateJob, assets: Iterable[dg.AssetsDefinition]) -> dict[str, AnyJob]:
    """Return all Dagster jobs over a Flink job's state, by their names without its prefix."""
    by_key = {key: definition for definition in assets for key in definition.keys}

    def chosen(*names: str) -> dg.AssetSelection:
        return dg.AssetSelection.assets(*(by_key[job.key(name)] for name in names))

    def checks(*names: str) -> dg.AssetSelection:
        keys = (dg.AssetCheckKey(job.key("state_tables"), name) for name in names)
        return dg.AssetSelection.checks(*keys)

    flink = job.settings.flink
    archive = chosen("savepoint", "state_tables", "restore_plan", "exported_savepoint")
    if flink is not None and flink.canary is not None:
        archive -= checks("restorable")
    if flink is not None and flink.drill is not None:
        archive -= checks("drill")
    if job.settings.checkpoints is not None:
        archive -= checks("checkpoint")
    if job.settings.scrub is not None:
        archive -= checks("lake")
    of_query = [] if job.settings.changed_query is None else ["changed_query"]
    jobs: list[AnyJob] = [
        _over_snapshots(
            job, ARCHIVE, archive, "A savepoint into the lake, checked, and out again."
        ),
        _over_snapshots(
            job, MIGRATE, chosen("migrated_tables"),
            "One state under a new type, snapshot by snapshot: backfill it over partitions.",
        ),
        _over_snapshots(
            job, UPGRADE, chosen("upgraded_tables"),
            "What Flink 2 restores of snapshots of Flink 1: backfill it over partitions.",
        ),
        _over_snapshots(
            job, CHECK, chosen("restore_plan") | checks("compatibility", "legality", *of_query),
            "Whether the job that is to restore it could use a snapshot of the lake, and a plan.",
        ),
        _of_ops(job, _verify, VERIFY),
        _of_ops(job, _compress, COMPRESS),
    ]  # fmt: skip
    if job.settings.changed_query is not None:
        what = "What a changed query goes on from: backfill it over partitions."
        jobs.append(_over_snapshots(job, SQL_UPGRADE, chosen("sql_upgraded_tables"), what))
    if job.settings.checkpoints is not None:
        what = "Whether the newest sound checkpoint is young enough."
        jobs.append(_of_checks(job, WATCH, checks("checkpoint"), what))
    if job.settings.scrub is not None:
        what = "Whether every byte of the lake is what was written."
        jobs.append(_of_checks(job, SCRUB, checks("lake"), what))
    retention = job.settings.retention
    if retention is not None:
        limits = PruneConfig(last=retention.last, daily=retention.daily, policy=retention.policy)
        jobs.append(_of_one_op(job, prune_op(job), PRUNE, "prune_snapshots", limits))
    if flink is not None:
        jobs += [
            _of_one_op(job, savepoint_op(job, flink), SAVEPOINT, "take_savepoint"),
            _of_one_op(job, rescale_op(job, flink), RESCALE, "rescale"),
            _of_ops(job, _report_lost, LOST),
        ]
        if flink.canary is not None:
            what = "A plan, and whether the program of `canary` restores a snapshot: it is run."
            # a job of checks alone has no partitions
            proof = chosen("restore_plan") | checks("restorable")
            jobs.append(_over_snapshots(job, PROVE, proof, what))
        if flink.drill is not None:
            what = "Restores the newest sound snapshot as after a disaster: its program is run."
            jobs.append(_of_checks(job, DRILL, checks("drill"), what))
    if job.settings.process_functions:
        jobs += [_of_ops(job, _functions, FUNCTIONS), _of_ops(job, _commits, COMMITS)]
        jobs.append(
            dg.define_asset_job(
                job.named(LOGS),
                selection=chosen("migrated_checkpoint_logs"),
                description="Checkpoint logs from version 1 to 2, or back: backfill it.",
                executor_def=dg.in_process_executor,
            )
        )
    return {each.name.removeprefix(job.named("")): each for each in jobs}


def _over_snapshots(
    job: StateJob, name: str, selection: dg.AssetSelection, description: str
) -> UnresolvedAssetJobDefinition:
    return dg.define_asset_job(
        job.named(name),
        selection=selection,
        partitions_def=job.snapshots,
        description=description,
        executor_def=dg.in_process_executor,  # steps follow each other, and share a Spark session
    )


def _of_checks(
    job: StateJob, name: str, selection: dg.AssetSelection, description: str
) -> UnresolvedAssetJobDefinition:
    """Return a job of checks that are of no partition."""
    return dg.define_asset_job(
        job.named(name),
        selection=selection,
        description=description,
        executor_def=dg.in_process_executor,
    )


def _of_ops(job: StateJob, graph: dg.GraphDefinition, name: str) -> dg.JobDefinition:
    return graph.to_job(
        name=job.named(name),
        resource_defs={"locations": dg.ResourceDefinition.hardcoded_resource(job.locations)},
        executor_def=dg.in_process_executor,
    )


def _of_one_op(
    job: StateJob, op: dg.OpDefinition, name: str, step: str, config: dg.Config | None = None
) -> dg.JobDefinition:
    """Return a job of one op, which has this job's pool; a config calls it `step`."""

    @dg.job(
        name=job.named(name),
        description=op.description,
        config=dg.RunConfig({} if config is None else {step: config}),
        executor_def=dg.in_process_executor,
    )
    def of_one() -> None:
        op.alias(step)()

    return of_one


@dg.graph(description="Fails, with what the sensor learned of a job that its cluster lost.")
def _report_lost() -> None:
    """Report a lost job: one op."""
    report_lost_job()


@dg.graph(description="A savepoint written again compressed, or not.")
def _compress() -> None:
    """Compress a savepoint: one op, which needs no lake."""
    compress()


@dg.graph(description="A job of process functions over what its sources got: checked, then run.")
def _functions() -> None:
    """Run process functions after the check, so that nothing illegal runs."""
    run_functions(check_declarations())


@dg.graph(description="The newest snapshot as a savepoint, restored elsewhere; the last ones stay.")
def _verify() -> None:
    """Verify a new savepoint before old ones are deleted."""
    keep_exports(restore_elsewhere(*export_savepoint()))


@dg.graph(description="What commits cost, and whether they were skipped or held up processing.")
def _commits() -> None:
    """Report commits: one op, which fails above the limits."""
    report_commits()
