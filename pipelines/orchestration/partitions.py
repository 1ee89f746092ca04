"""How assets are partitioned: one partition a snapshot, or a checkpoint log, added as found."""

import dagster as dg

__all__ = ["checkpoint_log_partitions", "snapshot_partitions"]

snapshot_partitions = dg.DynamicPartitionsDefinition(name="snapshots")
checkpoint_log_partitions = dg.DynamicPartitionsDefinition(name="checkpoint_logs")
