"""Schedules: savepoints every night, functions every quarter of an hour, commits every hour."""

import dagster as dg

from pipelines.jobs import archive_job, commits_job, process_job, savepoint_job
from pipelines.partitions import snapshot_partitions
from pipelines.resources import Locations
from pipelines.sensors import find_savepoints
from state_core.filesystem import Directory
from state_core.formats.reader import METADATA_FILE

__all__ = ["all_schedules"]


@dg.schedule(job=archive_job, cron_schedule="0 2 * * *")
def nightly_archive(
    context: dg.ScheduleEvaluationContext, locations: Locations
) -> dg.RunRequest | dg.SkipReason:
    """Archives the savepoint that was written last."""
    directory = Directory(locations.savepoints_location).confined()
    found = find_savepoints(locations.savepoints_location)
    if not found:
        return dg.SkipReason(f"no savepoint in {locations.savepoints_location}")
    newest = max(found, key=lambda name: directory.modified(f"{name}/{METADATA_FILE}"))
    context.instance.add_dynamic_partitions(str(snapshot_partitions.name), [newest])
    return dg.RunRequest(run_key=newest, partition_key=newest)


@dg.schedule(job=process_job, cron_schedule="*/15 * * * *")
def frequent_run(locations: Locations) -> dg.RunRequest | dg.SkipReason:
    """Runs the declared job of process functions over what its sources got."""
    if not locations.declared_job:
        return dg.SkipReason("no job is named: set STATELAKE_DECLARED to MODULE:JOB")
    return dg.RunRequest()


@dg.schedule(job=savepoint_job, cron_schedule="0 4 * * *")
def nightly_savepoint(locations: Locations) -> dg.RunRequest | dg.SkipReason:
    """Takes and verifies a savepoint of the job, if it has a snapshot."""
    latest = locations.open_lake().latest(locations.job_name)
    if latest is None:
        return dg.SkipReason(f"job {locations.job_name!r} has no snapshot")
    return dg.RunRequest()


@dg.schedule(job=commits_job, cron_schedule="0 * * * *")
def hourly_commits() -> dg.RunRequest:
    """Looks at what commits cost."""
    return dg.RunRequest()


all_schedules = [nightly_archive, frequent_run, nightly_savepoint, hourly_commits]
