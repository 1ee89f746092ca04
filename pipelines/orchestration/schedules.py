"""Schedules: savepoints every night, functions every quarter of an hour, commits every hour."""

from collections.abc import Mapping

import dagster as dg

from pipelines.orchestration.jobs import (
    ARCHIVE,
    COMMITS,
    FUNCTIONS,
    PRUNE,
    RESCALE,
    SAVEPOINT,
    VERIFY,
    AnyJob,
)
from pipelines.orchestration.live_job import is_under_way
from pipelines.orchestration.resources import public_location
from pipelines.orchestration.savepoints import newest_savepoint
from pipelines.orchestration.state_job import StateJob

__all__ = ["job_schedules"]


def job_schedules(job: StateJob, jobs: Mapping[str, AnyJob]) -> list[dg.ScheduleDefinition]:
    """All schedules of a job."""
    schedules = [_archive(job, jobs[ARCHIVE]), _verify(job, jobs[VERIFY])]
    if job.settings.retention is not None:
        schedules.append(_prune(job, jobs[PRUNE], job.settings.retention.schedule))
    if job.settings.flink is not None:
        schedules.append(_take(job, jobs, job.settings.flink.schedule))
    if job.settings.process_functions:
        schedules += [_functions(job, jobs[FUNCTIONS]), _commits(job, jobs[COMMITS])]
    return schedules


def _archive(job: StateJob, target: AnyJob) -> dg.ScheduleDefinition:
    @dg.schedule(
        job=target,
        name=job.named("nightly_archive"),
        cron_schedule=job.settings.schedule,
        required_resource_keys={job.resource},
    )
    def nightly_archive(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        """Archives the savepoint that was written last."""
        locations = job.places(context)
        newest = newest_savepoint(locations)
        place = public_location(locations.savepoints_location)
        if newest is None:
            return dg.SkipReason(f"no savepoint in {place}")
        context.instance.add_dynamic_partitions(str(job.snapshots.name), [newest])
        return dg.RunRequest(run_key=newest, partition_key=newest)

    return nightly_archive


def _verify(job: StateJob, target: AnyJob) -> dg.ScheduleDefinition:
    @dg.schedule(
        job=target,
        name=job.named("nightly_savepoint"),
        cron_schedule=job.settings.verify_schedule,
        required_resource_keys={job.resource},
    )
    def nightly_savepoint(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        """Takes and verifies a savepoint of the job, if it has a snapshot."""
        locations = job.places(context)
        if locations.open_lake().latest(locations.job_name) is None:
            return dg.SkipReason(f"job {locations.job_name!r} has no snapshot")
        return dg.RunRequest()

    return nightly_savepoint


def _take(job: StateJob, jobs: Mapping[str, AnyJob], cron: str) -> dg.ScheduleDefinition:
    target = jobs[SAVEPOINT]

    @dg.schedule(job=target, name=job.named("nightly_flink_savepoint"), cron_schedule=cron)
    def take(
        context: dg.ScheduleEvaluationContext,
    ) -> dg.RunRequest | dg.SkipReason:
        """Has the cluster take a savepoint, unless it is at one, or about to stop the job."""
        if is_under_way(context.instance, jobs[RESCALE].name):
            return dg.SkipReason("it is being rescaled, which takes a savepoint")
        if is_under_way(context.instance, target.name):
            return dg.SkipReason("the last savepoint is still being taken")
        return dg.RunRequest()

    return take


def _prune(job: StateJob, target: AnyJob, cron: str) -> dg.ScheduleDefinition:
    @dg.schedule(
        job=target,
        name=job.named("nightly_pruning"),
        cron_schedule=cron,
        required_resource_keys={job.resource},
    )
    def nightly_pruning(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        """Drops the snapshots that need not stay."""
        if not job.places(context).open_lake().exists():
            return dg.SkipReason("there is no lake yet")
        return dg.RunRequest()

    return nightly_pruning


def _functions(job: StateJob, target: AnyJob) -> dg.ScheduleDefinition:
    @dg.schedule(
        job=target,
        name=job.named("frequent_run"),
        cron_schedule="*/15 * * * *",
        required_resource_keys={job.resource},
    )
    def frequent_run(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        """Runs the declared job of process functions over what its sources got."""
        if not job.places(context).declared_job:
            return dg.SkipReason("no job is named: set STATELAKE_DECLARED to MODULE:JOB")
        return dg.RunRequest()

    return frequent_run


def _commits(job: StateJob, target: AnyJob) -> dg.ScheduleDefinition:
    @dg.schedule(job=target, name=job.named("hourly_commits"), cron_schedule="0 * * * *")
    def hourly_commits() -> dg.RunRequest:
        """Looks at what commits cost."""
        return dg.RunRequest()

    return hourly_commits
