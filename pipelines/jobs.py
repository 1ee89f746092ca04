"""Jobs: what is run as a whole."""

import dagster as dg

from pipelines.assets import archive_assets, migrated_tables
from pipelines.ops import check_declarations, compress, run_functions

__all__ = [
    "archive_job",
    "asset_jobs",
    "compression_job",
    "migration_job",
    "op_jobs",
    "process_job",
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


asset_jobs = [archive_job, migration_job]
op_jobs = [compression_job, process_job]
