"""Asset checks: is what is in the lake what was in the savepoint?"""

import dagster as dg

from pipelines.assets import state_tables
from pipelines.lake.integrity import count_faults
from pipelines.partitions import snapshot_partitions
from pipelines.resources import Locations
from state_core.formats import open_snapshot

__all__ = ["all_checks"]


@dg.asset_check(asset=state_tables, partitions_def=snapshot_partitions, blocking=True)
def integrity(context: dg.AssetCheckExecutionContext, locations: Locations) -> dg.AssetCheckResult:
    """Every state has as many entries in each key group as the savepoint, and so has its table."""
    lake = locations.open_lake()
    record = lake.snapshot(locations.job_name, context.partition_key)
    snapshot = open_snapshot(locations.savepoint(context.partition_key))
    faults = count_faults(lake, record, snapshot)
    return dg.AssetCheckResult(
        passed=not faults,
        metadata={
            "entries": record.entries,
            "states": sum(len(one.states) for one in record.operators),
            "faults": dg.MetadataValue.md("\n".join(f"- {fault}" for fault in faults) or "none"),
        },
    )


all_checks = [integrity]
