"""`statelake notebook`: write a notebook that opens what was named."""

from __future__ import annotations

import click

import statelake as sl
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import json_option, show
from statelake.pipelines.cli.options import (
    configured_option,
    lake_is_meant,
    request_options,
    say_meant,
)
from statelake.pipelines.requests.reading import Notebook


@click.command()
@click.argument("location", default=".", metavar="[LAKE|DIR|SNAPSHOT]")
@configured_option("job", "The job of a lake that is chosen at first.")
@request_options(Notebook)
@plugins_option
@json_option
def notebook(location: str, job: str | None, request: Notebook, as_json_: bool) -> None:
    """Write a notebook that opens a lake, a directory of snapshots or one snapshot.

    It is a Python file for marimo (`pip install marimo`; `marimo edit FILE.py`): what there is,
    what a snapshot holds, rows of a state, SQL, and growth. Nothing of a snapshot is in it.

    \b
    Examples:
      statelake notebook lake --to orders.py --job orders --snapshot monday
      statelake notebook /checkpoints --to checkpoints.py
    """
    if not lake_is_meant():  # a configured job alone changes nothing
        job = None
    done = sl.notebook(**vars(request) | {"location": location, "job": job or ""})
    say_meant(request.snapshot, done.snapshot)
    show(done, as_json_=as_json_, marked=done.path)
