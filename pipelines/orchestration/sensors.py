"""The sensor: a new directory with a savepoint becomes a partition and a run."""

import dagster as dg

from pipelines.orchestration.jobs import archive_job
from pipelines.orchestration.partitions import snapshot_partitions
from pipelines.orchestration.resources import Locations
from state_core.errors import UnsafePathError
from state_core.files.filesystem import ConfinedDirectory, Directory
from state_core.formats.reader import METADATA_FILE

__all__ = ["all_sensors", "find_savepoints"]


def find_savepoints(location: str) -> list[str]:
    """The names of the directories below `location` that hold a finished snapshot."""
    directory = Directory(location).confined()
    return [name for name in directory.names() if _is_finished(directory, name)]


def _is_finished(directory: ConfinedDirectory, name: str) -> bool:
    try:
        return directory.is_file(f"{name}/{METADATA_FILE}")
    except UnsafePathError:  # a link, whoever put it there
        return False


@dg.sensor(job=archive_job, minimum_interval_seconds=30)
def new_savepoints(
    context: dg.SensorEvaluationContext, locations: Locations
) -> dg.SensorResult | dg.SkipReason:
    """Runs `archive_and_export` for every savepoint that has not been seen."""
    known = set(context.instance.get_dynamic_partitions(str(snapshot_partitions.name)))
    found = [
        find_savepoint
        for find_savepoint in find_savepoints(locations.savepoints_location)
        if find_savepoint not in known
    ]
    if not found:
        return dg.SkipReason(f"no new savepoint in {locations.savepoints_location}")
    return dg.SensorResult(
        run_requests=[dg.RunRequest(run_key=one, partition_key=one) for one in found],
        dynamic_partitions_requests=[snapshot_partitions.build_add_request(found)],
    )


all_sensors = [new_savepoints]
