"""Commands and a run of Dagster's in one process, whose session of Spark serves them all.

`python -m tests.integration.spark.one_session [SAVEPOINTS LAKE EXPORTS]`, with commands as lines of
JSON on standard input, of which each ends with a line `ENDED`; where Spark runs is said by the
environment. Dagster archives and exports the savepoint, if there is one.
"""

from __future__ import annotations

import json
import sys
import tempfile

import click
import dagster as dg

from statelake.pipelines.cli.main import statelake
from statelake.pipelines.orchestration.definitions import definitions
from statelake.pipelines.orchestration.resources import Locations
from statelake.state_core.files.filesystem import Directory

__all__ = ["ENDED"]

ENDED = "ENDED"


def materialize(savepoints: str, lake: str, exports: str) -> None:
    """The assets of one savepoint: archived, checked, planned, exported."""
    (name,) = Directory(savepoints).names()
    quiet = {"telemetry": {"enabled": False}}
    with (
        tempfile.TemporaryDirectory() as home,
        dg.DagsterInstance.local_temp(home, quiet) as instance,
    ):
        instance.add_dynamic_partitions("snapshots", [name])
        definitions.resolve_job_def("archive_and_export").execute_in_process(
            instance=instance,
            partition_key=name,
            resources={
                "locations": Locations(savepoints=savepoints, lake=lake, exports=exports, job="d")
            },
        )


if __name__ == "__main__":
    for line in sys.stdin:
        statelake.main(json.loads(line), "statelake", standalone_mode=False)
        click.echo(ENDED)
    if sys.argv[1:]:
        materialize(*sys.argv[1:])
