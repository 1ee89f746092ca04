"""The assets of a job: its savepoints as found, their tables in the lake, plans, what goes back."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import dagster as dg
from pydantic import Field

from statelake.pipelines.api import Checkpoints, LakeSnapshot
from statelake.pipelines.orchestration.history import history_metadata
from statelake.pipelines.orchestration.metadata import (
    export_metadata,
    log_migration_metadata,
    metadata_of,
    plan_metadata,
    savepoint_metadata,
    spark_metadata,
    sql_upgrade_metadata,
    table_metadata,
    tables_metadata,
    upgrade_metadata,
)
from statelake.pipelines.orchestration.progress import LoggedProgress
from statelake.pipelines.orchestration.requests import requested, settings_of
from statelake.pipelines.orchestration.settings import ChangedQuerySettings
from statelake.pipelines.orchestration.state_job import StateJob, table_key
from statelake.pipelines.requests.changes import AcceptMore, Migrate, Upgrade
from statelake.state_core.errors import StateError
from statelake.state_core.files.compression import configured_compression
from statelake.state_core.files.storage_options import location_below
from statelake.state_core.formats.reader import open_snapshot
from statelake.state_core.printable import printable

Results = Iterator[dg.MaterializeResult[None]]
Events = Iterator[dg.MaterializeResult[None] | dg.AssetMaterialization]


class RescaleConfig(dg.Config):
    """The form in which a snapshot is written. Missing settings keep the form of the snapshot.

    Attributes:
        parallelism: The parallelism of every operator with keyed state.
        max_parallelism: Their max parallelism. Another one gives every key a new key group.
        compression: `snappy` or `none`.
        metadata_version: 3 to 6.
        flink_conf: Flink's option: `execution.checkpointing.snapshot-compression`.
    """

    parallelism: int | None = None
    max_parallelism: int | None = None
    compression: str | None = None
    metadata_version: int | None = None
    flink_conf: dict[str, str] = Field(default_factory=dict)


class LogMigrationConfig(dg.Config):
    """The settings for migrating checkpoint logs.

    Attributes:
        changelogs: For each store, its changelog as `system.stream`.
        rollback: Whether records of version 2 become ones of version 1.
    """

    changelogs: dict[str, str] = Field(default_factory=dict)
    rollback: bool = False


def job_assets(job: StateJob) -> list[dg.AssetsDefinition]:
    """Return all assets of a job. A run materializes one partition, or a range of them."""
    assets = [_savepoint(job), _tables(job), _plan(job), _export(job), _migrated(job)]
    assets.append(_upgraded(job))
    if job.settings.changed_query is not None:
        assets.append(_sql_upgraded(job, job.settings.changed_query))
    return [*assets, _migrated_logs(job)] if job.settings.process_functions else assets


def _derive_each(
    job: StateJob,
    context: dg.AssetExecutionContext,
    verb: str,
    derive: Callable[[LakeSnapshot], dict[str, Any]],
) -> Events:
    """Make a snapshot of each of the run's, and yield its metadata; one that fails stops no other.

    Args:
        job: The job.
        context: The run.
        verb: The work, for its log.
        derive: Makes a snapshot, and returns its metadata.

    Raises:
        Failure: Some could not be made, if there are several. They are named.
    """
    locations, partitions = job.places(context), context.partition_keys
    by_partition: dict[str, dict[str, Any]] = {}
    failed: dict[str, dg.Failure | StateError] = {}
    for partition in partitions:
        progress = LoggedProgress(context.log, f"{verb} {printable(partition)}")
        try:
            snapshot = locations.open_snapshot(partition, job.settings.engine, progress)
            by_partition[partition] = {**derive(snapshot), **spark_metadata()}
        except (dg.Failure, StateError) as error:
            if len(partitions) == 1:
                raise
            failed[partition] = error
    if not failed:
        for partition, metadata in by_partition.items():
            context.add_asset_metadata(metadata, partition_key=partition)
        yield dg.MaterializeResult()
        return
    for partition, metadata in by_partition.items():  # what else a step adds is lost when it fails
        yield dg.AssetMaterialization(context.asset_key, partition=partition, metadata=metadata)
    reasons: dict[str, Any] = {}
    for partition, reason in failed.items():
        if isinstance(reason, dg.Failure):
            why = reason.metadata.items()
            reasons |= {f"{printable(partition)}: {name}": value for name, value in why}
        else:
            reasons[printable(partition)] = printable(str(reason))
    names = ", ".join(map(printable, failed))
    what = f"{len(failed)} of {len(partitions)} snapshots failed: {names}"
    raise dg.Failure(what, metadata=reasons)


def _freshness(job: StateJob) -> dg.FreshnessPolicy | None:
    limit = job.settings.checks.staleness
    return None if limit is None else dg.FreshnessPolicy.time_window(timedelta(hours=limit.hours))


def _savepoint(job: StateJob) -> dg.AssetsDefinition:
    @dg.asset(
        key=job.key("savepoint"),
        kinds={"flink"},
        freshness_policy=_freshness(job),
        **job.of_snapshots(),
    )
    def savepoint(context: dg.AssetExecutionContext) -> None:
        """A savepoint or checkpoint as Flink wrote it, with its contents by name and size."""
        locations = job.places(context)
        for partition in context.partition_keys:
            of_savepoint = savepoint_metadata(open_snapshot(locations.savepoint(partition)))
            context.add_asset_metadata(of_savepoint, partition_key=partition)

    return savepoint


def _tables(job: StateJob) -> dg.AssetsDefinition:
    """One step, since an import reads a savepoint once: the snapshot as a whole, and its tables."""
    snapshot_key = job.key("state_tables")
    freshness = _freshness(job)
    kinds = {"delta", "spark"} if job.settings.engine == "spark" else {"delta"}
    outs = {
        "state_tables": dg.AssetOut(
            key=snapshot_key,
            dagster_type=dg.Nothing,
            description="A snapshot in the lake: Delta tables, one a state.",
            kinds=kinds,
            group_name=job.group,
            freshness_policy=freshness,
        )
    }
    keys = {table_key(path) for path in job.tables}
    for number, (path, description) in enumerate(job.tables.items()):
        outs[f"table_{number}"] = dg.AssetOut(
            key=table_key(path),
            dagster_type=dg.Nothing,
            description=description,
            is_required=False,
            kinds=kinds,
            group_name=job.group,
            freshness_policy=freshness,
        )

    @dg.multi_asset(
        name=job.named("state_tables"),
        outs=outs,
        deps=[job.key("savepoint")],
        pool=job.pool,
        partitions_def=job.snapshots,
        required_resource_keys={job.resource},
        backfill_policy=job.backfill_policy,
    )
    def state_tables(context: dg.AssetExecutionContext) -> Results:
        """Import savepoints, and report each table under its own key."""
        locations = job.places(context)
        tables: dict[dg.AssetKey, dict[str, dict[str, Any]]] = defaultdict(dict)
        for partition in context.partition_keys:
            location = locations.savepoint(partition)
            progress = LoggedProgress(
                context.log, f"importing {printable(partition)}", of_bytes=True
            )
            opened = locations.open_job(job.settings.engine, progress)
            imported = opened.import_snapshot(
                location, partition, plan=job.settings.plan or None, decode=job.settings.decode
            )
            lake = opened.lake.catalog
            of_snapshot = {
                **tables_metadata(lake, imported),
                **history_metadata(lake, imported.record),
                **spark_metadata(),
            }
            context.add_asset_metadata(of_snapshot, snapshot_key, partition)
            of_tables = table_metadata(lake, imported.record, job.key("savepoint"))
            for path, of_table in of_tables.items():
                tables[table_key(path)][partition] = of_table
        yield dg.MaterializeResult(asset_key=snapshot_key)
        for key, by_partition in tables.items():
            if key in keys and len(by_partition) == len(context.partition_keys):
                for partition, of_table in by_partition.items():
                    context.add_asset_metadata(of_table, key, partition)
                yield dg.MaterializeResult(asset_key=key)
            else:  # new since definitions were made, or not in all snapshots of this run
                for partition, of_table in by_partition.items():
                    context.log_event(
                        dg.AssetMaterialization(key, partition=partition, metadata=of_table)
                    )

    return state_tables


def _plan(job: StateJob) -> dg.AssetsDefinition:
    @dg.asset(key=job.key("restore_plan"), deps=[job.key("state_tables")], **job.of_snapshots())
    def restore_plan(context: dg.AssetExecutionContext, config: RescaleConfig) -> None:
        """The key groups of each subtask when the job is restored, and the skew."""
        locations = job.places(context)
        restore = job.settings.restore
        for partition in context.partition_keys:
            snapshot = locations.open_snapshot(partition)
            parallelism = config.parallelism or restore.parallelism
            plans = snapshot.plan_rescale(
                parallelism or max(each.parallelism for each in snapshot.record.operators),
                config.max_parallelism or restore.max_parallelism,
            )
            context.add_asset_metadata(plan_metadata(plans), partition_key=partition)

    return restore_plan


def _export(job: StateJob) -> dg.AssetsDefinition:
    @dg.asset(
        key=job.key("exported_savepoint"),
        deps=[job.key("restore_plan")],
        kinds={"flink"},
        **job.of_snapshots(),
    )
    def exported_savepoint(context: dg.AssetExecutionContext, config: RescaleConfig) -> None:
        """The snapshot as a savepoint that Flink restores at the planned parallelism."""
        locations = job.places(context)
        restore = job.settings.restore
        exports = location_below(locations.exports_location, *job.key_prefix)
        compression: Any = configured_compression(config.flink_conf, config.compression)
        for partition in context.partition_keys:
            progress = LoggedProgress(
                context.log, f"exporting {printable(partition)}", of_bytes=True
            )
            snapshot = locations.open_snapshot(partition, job.settings.engine, progress)
            exported = snapshot.export(
                location_below(exports, f"{partition}-{context.run.run_id[:8]}"),
                parallelism=config.parallelism or restore.parallelism,
                max_parallelism=config.max_parallelism or restore.max_parallelism,
                compression=compression or restore.compression,
                metadata_version=config.metadata_version,
            )
            of_export = {**export_metadata(exported), **spark_metadata()}
            context.add_asset_metadata(of_export, partition_key=partition)

    return exported_savepoint


def _migrated(job: StateJob) -> dg.AssetsDefinition:
    @dg.asset(
        key=job.key("migrated_tables"),
        deps=[job.key("state_tables")],
        kinds={"spark"},
        pool=job.pool,
        config_schema=settings_of(Migrate),
        **job.of_snapshots(),
    )
    def migrated_tables(context: dg.AssetExecutionContext) -> Events:
        """The snapshot with new types of states, as another snapshot.

        Backfill it over the snapshots; what was migrated before is left alone, so a backfill that
        was stopped is run again.
        """
        request = requested(context, Migrate)

        def migrated(snapshot: LakeSnapshot) -> dict[str, Any]:
            return metadata_of(snapshot.job.migrated(request, [snapshot.name]).outcomes[0])

        yield from _derive_each(job, context, "migrating", migrated)

    return migrated_tables


def _upgraded(job: StateJob) -> dg.AssetsDefinition:
    @dg.asset(
        key=job.key("upgraded_tables"),
        deps=[job.key("state_tables")],
        pool=job.pool,
        config_schema=settings_of(Upgrade),
        **job.of_snapshots(),
    )
    def upgraded_tables(context: dg.AssetExecutionContext) -> Events:
        """The snapshot of Flink 1 as Flink 2 restores it, as another snapshot.

        Backfill it over the snapshots; what was upgraded before is left alone.
        """
        request = requested(context, Upgrade)

        def upgraded(snapshot: LakeSnapshot) -> dict[str, Any]:
            done = snapshot.upgrade(**vars(request))
            metadata = upgrade_metadata(done)
            if not (done.made or done.states):
                metadata["made"] = "nothing to upgrade"
            if not (done.made or done.restorable or done.dry_run):
                what = f"{printable(snapshot.name)} can't be upgraded as a whole"
                raise dg.Failure(what, metadata=metadata)
            return metadata

        yield from _derive_each(job, context, "upgrading", upgraded)

    return upgraded_tables


def _sql_upgraded(job: StateJob, query: ChangedQuerySettings) -> dg.AssetsDefinition:
    @dg.asset(
        key=job.key("sql_upgraded_tables"),
        deps=[job.key("state_tables")],
        pool=job.pool,
        config_schema=settings_of(AcceptMore),
        **job.of_snapshots(),
    )
    def sql_upgraded_tables(context: dg.AssetExecutionContext) -> Events:
        """The snapshot as the job of the changed query goes on from it, as another snapshot.

        Backfill it over the snapshots; what was upgraded before is left alone.
        """
        plans, request = query.plans, requested(context, AcceptMore)
        arguments = query.arguments(plans, request.accept)

        def upgraded(snapshot: LakeSnapshot) -> dict[str, Any]:
            done = snapshot.sql_upgrade(**arguments, suffix=request.suffix)
            metadata = sql_upgrade_metadata(done)
            if done.refused:
                what = f"the new query can't go on from {printable(snapshot.name)}"
                raise dg.Failure(what, metadata=metadata)
            plans.keep()
            return metadata

        yield from _derive_each(job, context, "upgrading", upgraded)

    return sql_upgraded_tables


def _migrated_logs(job: StateJob) -> dg.AssetsDefinition:
    @dg.asset(
        key=job.key("migrated_checkpoint_logs"),
        partitions_def=job.checkpoint_logs,
        group_name="_".join(filter(None, (job.prefix, "checkpoints"))),
        required_resource_keys={job.resource},
    )
    def migrated_checkpoint_logs(
        context: dg.AssetExecutionContext, config: LogMigrationConfig
    ) -> dg.MaterializeResult[None]:
        """A checkpoint log in which every task has a record of version 2, or with rollback of 1.

        Backfill it over the logs, with their jobs stopped. What was migrated before is left alone,
        task by task, so a backfill that was stopped is run again.
        """
        named = [f"{store}={place}" for store, place in config.changelogs.items()]
        log = Checkpoints(job.places(context).checkpoint_log(context.partition_key))
        done = log.migrate(named, rollback=config.rollback)
        metadata = log_migration_metadata(done)
        if done.refused:
            raise dg.Failure(
                f"{done.refused} of {len(done.tasks)} tasks were refused", metadata=metadata
            )
        return dg.MaterializeResult(metadata=metadata)

    return migrated_checkpoint_logs
