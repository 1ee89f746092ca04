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
from statelake.pipelines.cli.options import answer, engine_option, lake_option


@click.command()
@click.argument("runnable", metavar="MODULE:JOB")
@lake_option
@click.option("--parallelism", type=int, help="The operators' parallelism; by default as before.")
@click.option(
    "--backend", type=click.Choice(["heap", "rocksdb"]), default="heap", show_default=True,
    help="The backend of the working state.",
)  # fmt: skip
@click.option("--restore", default="", help="The snapshot from which the first run starts.")
@click.option(
    "--commit-to", multiple=True, metavar="BACKEND",
    help="Commit state there, beside the lake: blob=PLACE, changelog=kafka://HOST:PORT or a"
    " directory.",
)  # fmt: skip
@click.option(
    "--restore-from", type=click.Choice(["lake", "blob", "changelog"]), default="lake",
    show_default=True,
    help="The source of the last run's state; if it fails, the others follow.",
)  # fmt: skip
@click.option(
    "--max-commit-delay", type=click.FloatRange(0, min_open=True), default=1800.0,
    show_default=True, metavar="SECONDS", help="The seconds that a commit's uploads may take.",
)  # fmt: skip
@click.option(
    "--if-backend-fails", type=click.Choice(["stop", "continue"]), default="stop",
    show_default=True,
    help="Fail the run, or commit without the backend, which catches up in the next run.",
)  # fmt: skip
@click.option("--final", is_flag=True, help="The streams end with this run.")
@click.option("--always", is_flag=True, help="Run even without new input, for timers that are due.")
@click.option("--until-idle", is_flag=True, help="Run again until no source has anything new.")
@click.option(
    "--metrics", default="", metavar="FILE",
    help="Write the run's figures there, in Prometheus' text format.",
)  # fmt: skip
@engine_option
@plugins_option
@json_option
def run(
    runnable: str,
    lake: str,
    parallelism: int | None,
    backend: str,
    restore: str,
    commit_to: tuple[str, ...],
    restore_from: str,
    max_commit_delay: float,
    if_backend_fails: str,
    final: bool,
    always: bool,
    until_idle: bool,
    metrics: str,
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
        stop_on_interrupt(ask=until_idle) as stop,
    ):
        done = Lake(lake).run(
            runnable, parallelism=parallelism, backend=backend, restore=restore,
            commit_to=commit_to, restore_from=restore_from,
            max_commit_delay=max_commit_delay, if_backend_fails=if_backend_fails, final=final,
            always=always, until_idle=until_idle, metrics=metrics, engine=engine,
            stop=stop, step=progress.begin if progress else lambda _: None, progress=progress,
        )  # fmt: skip
    show(done, as_json_=as_json_, marked=f"run {done.run}")
    if stop():
        raise click.Abort
    answer(yes=not done.no_input)
