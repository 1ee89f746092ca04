"""A rescale in a process of its own that ends as a kill ends it, at a step.

Arguments: JSON with `url`, `lake`, `plan` (see `plan_of`), `step` and `phase`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.live.cluster import FlinkCluster
from statelake.pipelines.live.connection import ConnectionSettings
from statelake.pipelines.live.jars import JarRun
from statelake.pipelines.live.live_rescaling import rescale_job
from statelake.pipelines.live.requests import Rescale
from statelake.pipelines.live.rescale_steps import RescalePlan

__all__ = ["KILLED", "plan_of"]

KILLED = 9


def plan_of(said: dict[str, Any], cluster: FlinkCluster) -> RescalePlan:
    """A plan of JSON: everything but its programs is as it is said."""
    programs = {name: JarRun(**{**said[name], "arguments": tuple(said[name]["arguments"])})
                for name in ("program", "old")}  # fmt: skip
    job, others = said["job"], {name: value for name, value in said.items() if name != "job"}
    return RescalePlan.of(job, Rescale(cluster, **{**others, **programs}))


def _main() -> None:
    call = json.loads(sys.argv[1])

    def kill(step: str, phase: str) -> None:
        if (step, phase) == (call["step"], call["phase"]):
            os._exit(KILLED)

    cluster = FlinkCluster(ConnectionSettings(call["url"]), poll_seconds=0.1)
    plan = plan_of(call["plan"], cluster)
    rescale_job(Catalog(call["lake"]), plan, engine="local", progress=kill)


if __name__ == "__main__":
    _main()
