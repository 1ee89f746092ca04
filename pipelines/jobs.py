"""Jobs: what is run as a whole."""

import dagster as dg

from pipelines.assets import all_assets

__all__ = ["all_jobs", "archive_job"]

archive_job = dg.define_asset_job(
    "archive_and_export",
    selection=dg.AssetSelection.assets(*all_assets),
    description="A savepoint into the lake, checked, and out again.",
)

all_jobs = [archive_job]
