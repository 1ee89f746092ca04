"""The component applied to the one job that the environment names (`STATELAKE_LAKE`, ...)."""

import dagster as dg

from statelake.pipelines.orchestration.component import StateLake
from statelake.pipelines.orchestration.settings import CheckSettings, JobSettings

ONE_JOB = JobSettings(prefix="", process_functions=True, checks=CheckSettings(staleness=None))

definitions = dg.Definitions.merge(
    dg.build_defs_for_component(StateLake(jobs=[ONE_JOB])),
    dg.Definitions(executor=dg.in_process_executor),
)
