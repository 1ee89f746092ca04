"""Schedules: the newest savepoint every night, and process functions every quarter of an hour."""

import dagster as dg

from pipelines.jobs import archive_job, process_job
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
    directory = Directory(locations.savepoints_location)
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


all_schedules = [nightly_archive, frequent_run]
