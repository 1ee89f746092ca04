"""Dagster's jobs over the directories of a scene, in this process and without Spark."""

from __future__ import annotations

import json
import sys
import warnings

import dagster as dg

warnings.filterwarnings("ignore", message="Specifying a partitions_def on an AssetCheckSpec")


import statelake.pipelines.spark.engine  # noqa: E402 - the warning is of an import behind it
from statelake.pipelines.engine import LocalEngine  # noqa: E402
from statelake.pipelines.orchestration.definitions import definitions  # noqa: E402
from statelake.pipelines.orchestration.resources import Locations  # noqa: E402
from statelake.state_core import errors  # noqa: E402

__all__ = ["main"]

OURS = {name for name in vars(errors) if name.endswith("Error")}
FAILED, REFUSED, INTERNAL = 1, 3, 4


def main(words: list[str]) -> None:
    """Run a job, and leave as the command would: 0, 1, 3 or 4.

    Args:
        words: The job, its partition or `-`, its operations' configuration as JSON, and where
            things are, as `lake=...`.
    """
    job, partition, config, *places = words
    statelake.pipelines.spark.engine.SparkEngine = LocalEngine  # type: ignore[misc,assignment]
    locations = Locations(**dict(place.split("=", 1) for place in places))
    run_config = {
        "ops": {name: {"config": value} for name, value in json.loads(config).items()},
        "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
    }
    with dg.DagsterInstance.ephemeral() as instance:
        for partitions in ("snapshots", "checkpoint_logs"):
            instance.add_dynamic_partitions(partitions, [partition])
        done = definitions.resolve_job_def(job).execute_in_process(
            run_config=run_config, partition_key=None if partition == "-" else partition,
            resources={"locations": locations}, instance=instance, raise_on_error=False,
        )  # fmt: skip
    failures = [
        all_event.step_failure_data.error
        for all_event in done.all_events
        if all_event.is_step_failure
    ]
    causes = [cause(failure) for failure in failures]
    for name, problem in causes[:1]:
        sys.stderr.write(f"error: {name}: {' '.join(problem.split())}\n")
    kinds = {name for name, _ in causes}
    if not kinds <= OURS | {"Failure"}:
        sys.exit(INTERNAL)
    sys.exit(REFUSED if kinds & OURS else FAILED if kinds else 0)


def cause(error: dg.SerializableErrorInfo | None) -> tuple[str, str]:
    """The name and the text of what was raised first."""
    assert error is not None
    while error.cause is not None:
        error = error.cause
    return str(error.cls_name), error.message.removeprefix(f"{error.cls_name}: ")
