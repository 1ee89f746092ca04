"""Jobs: what is run as a whole."""

import dagster as dg

from pipelines.assets import archive_assets, migrated_tables

__all__ = ["all_jobs", "archive_job", "migration_job"]

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

all_jobs = [archive_job, migration_job]
