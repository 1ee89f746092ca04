"""The assets: a savepoint as found, its tables in the lake, a plan for it, and what goes back."""

import dagster as dg
from pydantic import Field

from pipelines.lake.commits.checkpoint_migrating import REFUSED, changelog_of, migrate_records
from pipelines.lake.commits.checkpoint_records import open_log
from pipelines.lake.edit.changes import read_changes
from pipelines.lake.export.exporting import export_snapshot
from pipelines.lake.export.rescaling import plan_rescale
from pipelines.lake.ingest.importing import import_snapshot
from pipelines.operations.migrations import migrate_one
from pipelines.orchestration.metadata import (
    export_metadata,
    log_migration_metadata,
    outcome_metadata,
    plan_metadata,
    savepoint_metadata,
    tables_metadata,
)
from pipelines.orchestration.partitions import checkpoint_log_partitions, snapshot_partitions
from pipelines.orchestration.resources import Locations
from state_core.files.compression import configured_compression
from state_core.formats import open_snapshot

__all__ = [
    "LogMigrationConfig",
    "MigrationConfig",
    "RescaleConfig",
    "all_assets",
    "archive_assets",
    "migrated_checkpoint_logs",
    "migrated_tables",
]

GROUP = "state"


class RescaleConfig(dg.Config):
    """How a snapshot is to be written; what is left out stays as it was.

    Attributes:
        parallelism: Of every operator with keyed state.
        max_parallelism: Of every operator; another one gives every key a new key group.
        compression: `snappy` or `none`.
        metadata_version: 3 to 6.
        flink_conf: Flink's own words: `execution.checkpointing.snapshot-compression`.
    """

    parallelism: int | None = None
    max_parallelism: int | None = None
    compression: str | None = None
    metadata_version: int | None = None
    flink_conf: dict[str, str] = Field(default_factory=dict)


@dg.asset(partitions_def=snapshot_partitions, group_name=GROUP, kinds={"flink"})
def savepoint(
    context: dg.AssetExecutionContext, locations: Locations
) -> dg.MaterializeResult[None]:
    """A savepoint or checkpoint as Flink wrote it: what is in it, before anything is read."""
    snapshot = open_snapshot(locations.savepoint(context.partition_key))
    return dg.MaterializeResult(metadata=savepoint_metadata(snapshot))


@dg.asset(
    partitions_def=snapshot_partitions, group_name=GROUP, deps=[savepoint], kinds={"spark", "delta"}
)
def state_tables(
    context: dg.AssetExecutionContext, locations: Locations
) -> dg.MaterializeResult[None]:
    """Its keyed state in Delta tables, one a state, partitioned by key group."""
    lake = locations.open_lake()
    done = import_snapshot(
        lake,
        locations.savepoint(context.partition_key),
        locations.job_name,
        snapshot_id=context.partition_key,
        engine="spark",
    )
    return dg.MaterializeResult(metadata=tables_metadata(lake, done))


@dg.asset(partitions_def=snapshot_partitions, group_name=GROUP, deps=[state_tables])
def restore_plan(
    context: dg.AssetExecutionContext, config: RescaleConfig, locations: Locations
) -> dg.MaterializeResult[None]:
    """Which key groups each subtask gets when the job is restored, and how evenly."""
    record = locations.open_lake().snapshot(locations.job_name, context.partition_key)
    parallelism = config.parallelism or max(operator.parallelism for operator in record.operators)
    plans = plan_rescale(record, parallelism, config.max_parallelism)
    return dg.MaterializeResult(metadata=plan_metadata(plans))


@dg.asset(
    partitions_def=snapshot_partitions,
    group_name=GROUP,
    deps=[restore_plan],
    kinds={"spark", "flink"},
)
def exported_savepoint(
    context: dg.AssetExecutionContext, config: RescaleConfig, locations: Locations
) -> dg.MaterializeResult[None]:
    """The snapshot as a savepoint again, which Flink restores at the planned parallelism."""
    target = (
        f"{locations.exports_location.rstrip('/')}/{context.partition_key}-{context.run.run_id[:8]}"
    )
    done = export_snapshot(
        locations.open_lake(),
        locations.job_name,
        context.partition_key,
        target,
        parallelism=config.parallelism,
        max_parallelism=config.max_parallelism,
        compression=configured_compression(config.flink_conf, config.compression),
        metadata_version=config.metadata_version,
        engine="spark",
    )
    return dg.MaterializeResult(metadata=export_metadata(done))


class MigrationConfig(dg.Config):
    """What one state is to become.

    Attributes:
        state: `operator/state`.
        to: A file that says what its values become, as `statelake migrate --to` wants it.
        suffix: Behind the id of each snapshot, for the one that is made of it.
    """

    state: str
    to: str
    suffix: str = "-migrated"


@dg.asset(
    partitions_def=snapshot_partitions, group_name=GROUP, deps=[state_tables], kinds={"spark"}
)
def migrated_tables(
    context: dg.AssetExecutionContext, config: MigrationConfig, locations: Locations
) -> dg.MaterializeResult[None]:
    """The snapshot with one state under a new type, as a snapshot of its own.

    Backfill it over the snapshots; what was migrated before is left alone, so a backfill that was
    stopped is run again.
    """
    (change,) = read_changes(config.to, config.state)
    done = migrate_one(
        locations.open_lake(),
        locations.job_name,
        context.partition_key,
        change,
        suffix=config.suffix,
        engine="spark",
    )
    return dg.MaterializeResult(metadata=outcome_metadata(done))


class LogMigrationConfig(dg.Config):
    """How checkpoint logs are to be migrated.

    Attributes:
        changelogs: Of each store, its changelog as `system.stream`.
        rollback: Whether records of version 2 become ones of version 1.
    """

    changelogs: dict[str, str] = Field(default_factory=dict)
    rollback: bool = False


@dg.asset(partitions_def=checkpoint_log_partitions, group_name="checkpoints")
def migrated_checkpoint_logs(
    context: dg.AssetExecutionContext, config: LogMigrationConfig, locations: Locations
) -> dg.MaterializeResult[None]:
    """A checkpoint log in which every task has a record of version 2, or with rollback of 1.

    Backfill it over the logs, with their jobs stopped. What was migrated before is left alone, task
    by task, so a backfill that was stopped is run again.
    """
    named = [changelog_of(f"{store}={place}") for store, place in config.changelogs.items()]
    log = open_log(locations.checkpoint_log(context.partition_key))
    done = migrate_records(log, dict(named), rollback=config.rollback)
    metadata = log_migration_metadata(done)
    refused = [one for one in done if one.outcome == REFUSED]
    if refused:
        raise dg.Failure(f"{len(refused)} of {len(done)} tasks were refused", metadata=metadata)
    return dg.MaterializeResult(metadata=metadata)


archive_assets = [savepoint, state_tables, restore_plan, exported_savepoint]
all_assets = [*archive_assets, migrated_tables, migrated_checkpoint_logs]
