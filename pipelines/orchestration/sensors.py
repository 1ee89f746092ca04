"""Sensors for new savepoints, changed states and lost jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg

from statelake.pipelines.orchestration.flink_ops import run_config_of
from statelake.pipelines.orchestration.history import as_taken
from statelake.pipelines.orchestration.jobs import ARCHIVE, CHECK, LOST, RESCALE, AnyJob
from statelake.pipelines.orchestration.live_job import is_under_way, live_job
from statelake.pipelines.orchestration.metadata import faults_list
from statelake.pipelines.orchestration.savepoints import as_finished, find_savepoints
from statelake.pipelines.orchestration.settings import FlinkSettings
from statelake.pipelines.orchestration.state_job import StateJob
from statelake.state_core.printable import printable, public_location

if TYPE_CHECKING:
    from statelake.pipelines.lake.tables.records import SnapshotRecord

SHOWN_CHANGES = 100
RUNS = "it runs"


def job_sensors(job: StateJob, jobs: Mapping[str, AnyJob]) -> list[dg.SensorDefinition]:
    """Return all sensors of a job."""
    sensors = [_savepoints(job, jobs[ARCHIVE]), _states(job, jobs[CHECK])]
    flink = job.settings.flink
    if flink is not None:
        sensors.append(_lost(job, flink, jobs[LOST], jobs[RESCALE].name))
    return sensors


def _sensor(
    job: StateJob, target: AnyJob, name: str
) -> Callable[[Callable[..., Any]], dg.SensorDefinition]:
    return dg.sensor(
        job=target,
        name=job.named(name),
        minimum_interval_seconds=job.settings.sensor_seconds,
        required_resource_keys={job.resource},
    )


def _savepoints(job: StateJob, target: AnyJob) -> dg.SensorDefinition:
    @_sensor(job, target, "new_savepoints")
    def new_savepoints(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        """Archive every new savepoint, the one that was finished first before the others."""
        location = job.places(context).savepoints_location
        known = set(context.instance.get_dynamic_partitions(str(job.snapshots.name)))
        new = as_finished(location, set(find_savepoints(location)) - known)
        if not new:
            return dg.SkipReason(f"no new savepoint in {public_location(location)}")
        return dg.SensorResult(
            run_requests=[dg.RunRequest(run_key=name, partition_key=name) for name in new],
            dynamic_partitions_requests=[job.snapshots.build_add_request(new)],
        )

    return new_savepoints


def _states(job: StateJob, target: AnyJob) -> dg.SensorDefinition:
    @_sensor(job, target, "changed_states")
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        """Report changed operators, states and types, and check which job can restore them."""
        locations = job.places(context)
        taken = as_taken(locations.open_job().snapshots())
        imported = [summary.snapshot_id for summary in taken]
        if not imported or imported[-1] == context.cursor:
            return dg.SkipReason("no new snapshot in the lake")
        newest, seen = imported[-1], context.cursor
        before = seen if seen in imported else imported[-2] if len(imported) > 1 else None
        changes = []
        if before is not None:
            earlier = locations.open_snapshot(before).record
            changes = changed_states(earlier, locations.open_snapshot(newest).record)
        if not changes:
            return dg.SensorResult(cursor=newest, skip_reason="the same operators and states")
        observation = dg.AssetObservation(
            job.key("state_tables"),
            partition=newest,
            metadata={
                "changed states": len(changes),
                "changed since": printable(str(before)),
                "changes": faults_list(changes[:SHOWN_CHANGES]),
            },
        )
        return dg.SensorResult(
            run_requests=[dg.RunRequest(run_key=f"changed-{newest}", partition_key=newest)],
            dynamic_partitions_requests=[job.snapshots.build_add_request([newest])],
            asset_events=[observation],
            cursor=newest,
        )

    return look


def _lost(job: StateJob, flink: FlinkSettings, target: AnyJob, rescale: str) -> dg.SensorDefinition:
    @_sensor(job, target, "lost_job")
    def lost_job(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        """Report once that the cluster does not run the job, or does not answer."""
        if is_under_way(context.instance, rescale):
            return dg.SkipReason("it is being rescaled")
        loss = live_job(job, flink, context).lost_job()
        if loss is None:
            return dg.SensorResult(cursor=RUNS, skip_reason=RUNS)
        cursor = f"{loss.state} {loss.flink_job}".strip()
        if cursor == context.cursor:
            return dg.SkipReason(f"it is {cursor}, as reported before")
        request = dg.RunRequest(run_config=run_config_of(loss))
        return dg.SensorResult(run_requests=[request], cursor=cursor)

    return lost_job


def changed_states(before: SnapshotRecord, after: SnapshotRecord) -> list[str]:
    """Return a sentence for each operator or state that is new, gone or of another type."""
    old, new = _types(before), _types(after)
    changes = []
    for place in sorted({*old, *new}):
        if place not in new:
            changes.append(f"{place} is gone")
        elif place not in old:
            changes.append(f"{place} is new: {new[place]}")
        elif old[place] != new[place]:
            changes.append(f"{place}: {old[place]} became {new[place]}")
    return changes


def _types(record: SnapshotRecord) -> dict[str, str]:
    """Return the key type of each operator, and the types of each state."""
    types_of = {}
    for operator in record.operators:
        types_of[operator.label] = f"keys {operator.key_type}" if operator.key_type else "no keys"
        for state in operator.states:
            types = (state.namespace_type, state.user_key_type, state.value_type)
            types_of[f"{operator.label}/{state.name}"] = f"{state.kind} of {', '.join(types)}"
        for part in operator.operator_states:
            types_of_part = ", ".join(filter(None, (part.key_type, part.value_type)))
            types_of[f"{operator.label}/{part.name} of subtasks"] = (
                f"{part.mode} of {types_of_part}"
            )
    return types_of
