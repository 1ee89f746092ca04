"""Jobs: what is run as a whole."""

import dagster as dg

from pipelines.orchestration.assets import archive_assets, migrated_checkpoint_logs, migrated_tables
from pipelines.orchestration.ops import (
    check_declarations,
    compress,
    export_savepoint,
    keep_exports,
    report_commits,
    restore_elsewhere,
    run_functions,
)

__all__ = [
    "archive_job",
    "asset_jobs",
    "commits_job",
    "compression_job",
    "log_migration_job",
    "migration_job",
    "op_jobs",
    "process_job",
    "savepoint_job",
]

archive_job = dg.define_asset_job(
    "archive_and_export",
    selection=dg.AssetSelection.assets(*archive_assets),
    description="A savepoint into the lake, checked, and out again.",
)

migration_job = dg.define_asset_job(
    "migrate_snapshots",
    selection=dg.AssetSelection.assets(migrated_tables),
    description="One state under a new type, snapshot by snapshot: backfill it over partitions.",
)


log_migration_job = dg.define_asset_job(
    "migrate_checkpoint_logs",
    selection=dg.AssetSelection.assets(migrated_checkpoint_logs),
    description="Checkpoint logs from version 1 to 2, or back: backfill it over partitions.",
)


@dg.job(
    name="compress_savepoint",
    description="A savepoint written again compressed, or not.",
)
def compression_job() -> None:
    """One op: it needs no lake."""
    compress()


@dg.job(
    name="run_process_functions",
    description="A job of process functions over what its sources got: checked, then run once.",
)
def process_job() -> None:
    """The check comes first: nothing that is not legal runs."""
    run_functions(check_declarations())


@dg.job(
    name="savepoint_and_verify",
    description="The newest snapshot as a savepoint, restored elsewhere; the last ones are kept.",
)
def savepoint_job() -> None:
    """Nothing is removed before the new one is verified."""
    keep_exports(restore_elsewhere(*export_savepoint()))


@dg.job(
    name="watch_commits",
    description="What commits cost, and whether they were skipped or held up processing.",
)
def commits_job() -> None:
    """One op, which fails if there is something to be alarmed of."""
    report_commits()


asset_jobs = [archive_job, migration_job, log_migration_job]
op_jobs = [compression_job, process_job, savepoint_job, commits_job]
