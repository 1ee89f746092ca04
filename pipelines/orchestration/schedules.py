"""Schedules: savepoints every night, functions every quarter of an hour, commits every hour."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import dagster as dg

from statelake.pipelines.orchestration.jobs import (
    ARCHIVE,
    COMMITS,
    DRILL,
    FUNCTIONS,
    PRUNE,
    RESCALE,
    SAVEPOINT,
    SCRUB,
    VERIFY,
    WATCH,
    AnyJob,
)
from statelake.pipelines.orchestration.live_job import is_under_way
from statelake.pipelines.orchestration.savepoints import newest_savepoint
from statelake.pipelines.orchestration.state_job import StateJob
from statelake.state_core.printable import public_location

Tick: TypeAlias = dg.RunRequest | dg.SkipReason
Look: TypeAlias = Callable[[StateJob, dg.ScheduleEvaluationContext], Tick]


def job_schedules(job: StateJob, jobs: Mapping[str, AnyJob]) -> list[dg.ScheduleDefinition]:
    """Return all schedules of a job."""
    settings = job.settings
    wanted: list[tuple[str, str, str, Look]] = [
        ("nightly_archive", ARCHIVE, settings.schedule, _archive),
        ("nightly_savepoint", VERIFY, settings.verify_schedule, _verify),
    ]
    if settings.retention is not None:
        wanted.append(("nightly_pruning", PRUNE, settings.retention.schedule, _with_lake))
    if settings.flink is not None:
        wanted.append(("nightly_flink_savepoint", SAVEPOINT, settings.flink.schedule, _take))
        if settings.flink.drill is not None:
            wanted.append(("weekly_drill", DRILL, settings.flink.drill.schedule, _rehearse))
    if settings.checkpoints is not None:
        wanted.append(("frequent_checkpoint", WATCH, settings.checkpoints.schedule, _always))
    if settings.scrub is not None:
        wanted.append(("weekly_scrub", SCRUB, settings.scrub.schedule, _scrub))
    if settings.process_functions:
        wanted.append(("frequent_run", FUNCTIONS, "*/15 * * * *", _run_functions))
        wanted.append(("hourly_commits", COMMITS, "0 * * * *", _always))
    return [_schedule(job, name, jobs[target], cron, look) for name, target, cron, look in wanted]


def _schedule(
    job: StateJob, name: str, target: AnyJob, cron: str, look: Look
) -> dg.ScheduleDefinition:
    needs = set() if look in (_take, _rehearse, _always) else {job.resource}

    @dg.schedule(job=target, name=job.named(name), cron_schedule=cron, required_resource_keys=needs)
    def schedule(context: dg.ScheduleEvaluationContext) -> Tick:
        return look(job, context)

    return schedule


def _archive(job: StateJob, context: dg.ScheduleEvaluationContext) -> Tick:
    """Archive the newest savepoint."""
    locations = job.places(context)
    newest = newest_savepoint(locations)
    if newest is None:
        return dg.SkipReason(f"no savepoint in {public_location(locations.savepoints_location)}")
    context.instance.add_dynamic_partitions(str(job.snapshots.name), [newest])
    return dg.RunRequest(run_key=newest, partition_key=newest)


def _verify(job: StateJob, context: dg.ScheduleEvaluationContext) -> Tick:
    """Export and verify a savepoint of the job, if it has a snapshot."""
    locations = job.places(context)
    if locations.open_lake().catalog.latest(locations.job_name) is None:
        return dg.SkipReason(f"job {locations.job_name!r} has no snapshot")
    return dg.RunRequest()


def _take(job: StateJob, context: dg.ScheduleEvaluationContext) -> Tick:
    """Trigger a savepoint on the cluster, unless one is in progress or the job is stopping."""
    if is_under_way(context.instance, job.named(RESCALE)):
        return dg.SkipReason("it is being rescaled, which takes a savepoint")
    if is_under_way(context.instance, job.named(SAVEPOINT)):
        return dg.SkipReason("the last savepoint is still being taken")
    return dg.RunRequest()


def _rehearse(job: StateJob, context: dg.ScheduleEvaluationContext) -> Tick:
    """Run the drill, unless one is in progress or the job is being rescaled."""
    if is_under_way(context.instance, job.named(RESCALE)):
        return dg.SkipReason("it is being rescaled")
    if is_under_way(context.instance, job.named(DRILL)):
        return dg.SkipReason("the last drill still runs")
    return dg.RunRequest()


def _with_lake(job: StateJob, context: dg.ScheduleEvaluationContext) -> Tick:
    """Run on the lake, if there is one."""
    exists = job.places(context).open_lake().catalog.exists()
    return dg.RunRequest() if exists else dg.SkipReason("there is no lake yet")


def _scrub(job: StateJob, context: dg.ScheduleEvaluationContext) -> Tick:
    """Check the complete lake, unless a check is still running."""
    if is_under_way(context.instance, job.named(SCRUB)):
        return dg.SkipReason("the last check of the lake still runs")
    return _with_lake(job, context)


def _run_functions(job: StateJob, context: dg.ScheduleEvaluationContext) -> Tick:
    """Run the declared job of process functions on the new input of its sources."""
    if not job.places(context).declared_job:
        return dg.SkipReason("no job is given: set STATELAKE_DECLARED to MODULE:JOB")
    return dg.RunRequest()


def _always(*_: object) -> Tick:
    """Report the cost of commits, or check the newest checkpoint."""
    return dg.RunRequest()
