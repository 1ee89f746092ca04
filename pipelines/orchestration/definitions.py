"""Everything that Dagster knows of statelake, wired together; nothing is decided here."""

import dagster as dg

from pipelines.orchestration.assets import all_assets
from pipelines.orchestration.checks import all_checks
from pipelines.orchestration.jobs import asset_jobs, op_jobs
from pipelines.orchestration.resources import Locations
from pipelines.orchestration.schedules import all_schedules
from pipelines.orchestration.sensors import all_sensors

__all__ = ["definitions"]

definitions = dg.Definitions(
    assets=all_assets,
    asset_checks=all_checks,
    jobs=[*asset_jobs, *op_jobs],
    schedules=all_schedules,
    sensors=all_sensors,
    resources={"locations": Locations()},
    executor=dg.in_process_executor,
)
