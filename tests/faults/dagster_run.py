"""A run of Dagster's as a command: a savepoint into the lake, checked, and out again."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import NoReturn

import dagster as dg

from statelake.pipelines.orchestration.definitions import definitions
from statelake.pipelines.orchestration.resources import Locations

__all__ = ["archive_and_export"]


def archive_and_export(words: list[str]) -> NoReturn:
    """Run the job on a savepoint, in this process, and leave with 3 if it failed."""
    _, name = words
    world = Path.cwd()
    tempfile.tempdir = tempfile.mkdtemp(dir=world.parent)  # what Dagster itself keeps is no matter
    here = Locations(
        savepoints=str(world.parent / "sources"), lake="lake", exports="exports", job="orders"
    )
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("snapshots", [name])
        done = definitions.resolve_job_def("archive_and_export").execute_in_process(
            instance=instance,
            partition_key=name,
            resources={"locations": here},
            raise_on_error=False,
        )
    sys.exit(0 if done.success else 3)
