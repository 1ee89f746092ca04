"""The engine that runs slices: this process, or Spark, which is loaded only for that."""

from __future__ import annotations

from statelake.pipelines.engine import Engine, LocalEngine, cluster_configured
from statelake.state_core.extras import has_extra


def choose_engine(wanted: Engine | str) -> Engine:
    """Return the engine of that name; `auto` is Spark if that is configured for a cluster.

    Args:
        wanted: `auto`, `spark`, `local`, or an engine, which is taken as it is.

    Raises:
        MissingExtraError: Spark is required, and not installed.
    """
    if not isinstance(wanted, str):
        return wanted
    if wanted == "local" or (
        wanted == "auto" and not (cluster_configured() and has_extra("spark"))
    ):
        return LocalEngine()
    from statelake.pipelines.spark.engine import SparkEngine  # noqa: PLC0415 - a JVM only where it is wanted

    return SparkEngine()
