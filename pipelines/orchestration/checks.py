"""Asset checks: is what is in the lake what was in the savepoint?"""

import dagster as dg

from pipelines.lake.verify.compatibility import check_against
from pipelines.lake.verify.integrity import count_faults
from pipelines.lake.verify.legality import check_declared, held_of_record, load_job
from pipelines.orchestration.assets import state_tables
from pipelines.orchestration.metadata import faults_list, findings_metadata, verdicts_metadata
from pipelines.orchestration.partitions import snapshot_partitions
from pipelines.orchestration.resources import Locations
from state_core.checks.integrity import check_snapshot
from state_core.formats import open_snapshot

__all__ = ["all_checks"]


@dg.asset_check(asset=state_tables, partitions_def=snapshot_partitions, blocking=True)
def integrity(context: dg.AssetCheckExecutionContext, locations: Locations) -> dg.AssetCheckResult:
    """The savepoint is sound, and every state has as many entries in each key group of the lake."""
    lake = locations.open_lake()
    record = lake.snapshot(locations.job_name, context.partition_key)
    location = locations.savepoint(context.partition_key)
    faults = [str(fault) for fault in check_snapshot(location).faults]
    faults = faults or count_faults(lake, record, open_snapshot(location))
    return dg.AssetCheckResult(
        passed=not faults,
        metadata={
            "entries": record.entries,
            "states": sum(len(operator.states) for operator in record.operators),
            "faults": faults_list(faults),
        },
    )


@dg.asset_check(asset=state_tables, partitions_def=snapshot_partitions)
def compatibility(
    context: dg.AssetCheckExecutionContext, locations: Locations
) -> dg.AssetCheckResult:
    """The job that is to restore it could use every state: as it is, or migrated by Flink."""
    against = locations.against_location
    if not against:
        said = "set STATELAKE_AGAINST to a savepoint of the new job, or to a file of types"
        return dg.AssetCheckResult(passed=True, metadata={"compared with": f"nothing: {said}"})
    record = locations.open_lake().snapshot(locations.job_name, context.partition_key)
    verdicts = check_against(record, against)
    return dg.AssetCheckResult(
        passed=not any(verdict.fault for verdict in verdicts),
        metadata={"compared with": against, **verdicts_metadata(verdicts)},
    )


@dg.asset_check(asset=state_tables, partitions_def=snapshot_partitions, blocking=True)
def legality(context: dg.AssetCheckExecutionContext, locations: Locations) -> dg.AssetCheckResult:
    """The job that is to restore it declares legal states, and those that the snapshot holds."""
    named = locations.declared_job
    if not named:
        said = "set STATELAKE_DECLARED to MODULE:JOB of the job that is to restore it"
        return dg.AssetCheckResult(passed=True, metadata={"compared with": f"nothing: {said}"})
    record = locations.open_lake().snapshot(locations.job_name, context.partition_key)
    findings = check_declared(load_job(named), held_of_record(record))
    return dg.AssetCheckResult(
        passed=not any(finding.fault for finding in findings),
        metadata={"compared with": named, **findings_metadata(findings)},
    )


all_checks = [integrity, compatibility, legality]
