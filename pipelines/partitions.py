"""How assets are partitioned: one partition a snapshot, added as snapshots are found."""

import dagster as dg

__all__ = ["snapshot_partitions"]

snapshot_partitions = dg.DynamicPartitionsDefinition(name="snapshots")
