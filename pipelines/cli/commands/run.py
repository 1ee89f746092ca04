"""`statelake run`: run process functions over new input, exactly once."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from statelake.pipelines.api import Lake
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import (
    json_option,
    progress_bar,
    show,
    stop_on_interrupt,
)
from statelake.pipelines.cli.engine_options import engine_option
from statelake.pipelines.cli.options import answer, lake_option, request_options
from statelake.pipelines.requests.runs import Run


@click.command()
@click.argument("runnable", metavar="MODULE:JOB")
@lake_option
@request_options(Run)
@engine_option
@plugins_option
@json_option
def run(
    runnable: str,
    lake: str,
    request: Run,
    engine: str,
    as_json_: bool,
) -> None:
    """Run a job of process functions over the input that arrived since its last run.

    Output is appended to the job's tables, and state becomes the lake's snapshot run-NUMBER, each
    exactly once, even if an earlier call was killed. Call it repeatedly, or let Dagster do that.
    Exit code 1 if no source exists yet. With --until-idle, Ctrl-C ends it after the present run; a
    second one, at once.

    \b
    Examples:
      statelake run examples/alerts.py:JOB --lake lake
      statelake run acme.jobs:ORDERS --lake lake --parallelism 8 --backend rocksdb
      statelake run acme.jobs:ORDERS --lake lake --restore savepoint-5f1e2c
      statelake run acme.jobs:ORDERS --lake lake --commit-to blob=s3://bucket/blobs
      statelake run acme.jobs:ORDERS --lake lake --until-idle --metrics /metrics/orders.prom
      statelake run acme.jobs:ORDERS --lake lake --commit-to changelog=kafka://broker:9092
    """
    if str(Path.cwd()) not in sys.path:
        # as `python -m` does: modules of the working directory can be imported
        sys.path.insert(0, str(Path.cwd()))
    with (
        progress_bar("running", quiet=as_json_) as progress,
        stop_on_interrupt(ask=request.until_idle) as stop,
    ):
        done = Lake(lake).run(
            runnable, **vars(request), engine=engine, stop=stop,
            step=progress.begin if progress else lambda _: None, progress=progress,
        )  # fmt: skip
    show(done, as_json_=as_json_, marked=f"run {done.run}")
    if stop():
        raise click.Abort
    answer(yes=not done.no_input)
