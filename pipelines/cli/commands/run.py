"""`statelake run`: process functions over what their sources got, exactly once."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from statelake.pipelines.api import Lake
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import json_option, progress_bar, show
from statelake.pipelines.cli.options import answer, engine_option, lake_option


@click.command()
@click.argument("runnable", metavar="MODULE:JOB")
@lake_option
@click.option("--parallelism", type=int, help="Of its operators; as before, if not given.")
@click.option(
    "--backend", type=click.Choice(["heap", "rocksdb"]), default="heap", show_default=True,
    help="Where state is while the job runs.",
)  # fmt: skip
@click.option("--restore", default="", help="The snapshot that the very first run begins with.")
@click.option("--blobs", default="", help="A blob store that state goes to beside the lake.")
@click.option(
    "--restore-from", type=click.Choice(["lake", "blob_store"]), default="lake", show_default=True,
    help="Where the state of the run before is taken from.",
)  # fmt: skip
@click.option("--final", is_flag=True, help="The streams end with this run.")
@click.option("--always", is_flag=True, help="Run without new input too: timers may be due.")
@engine_option
@plugins_option
@json_option
def run(
    runnable: str,
    lake: str,
    parallelism: int | None,
    backend: str,
    restore: str,
    blobs: str,
    restore_from: str,
    final: bool,
    always: bool,
    engine: str,
    as_json_: bool,
) -> None:
    """Run a job of process functions over what its sources got since its last run.

    Output is appended to the job's tables, state becomes the lake's snapshot run-NUMBER; both
    once, wherever an earlier call was cut off. Call it again and again, or let Dagster. Exit code 1
    if no source exists yet.

    \b
    Examples:
      statelake run examples/alerts.py:JOB --lake lake
      statelake run acme.jobs:ORDERS --lake lake --parallelism 8 --backend rocksdb
      statelake run acme.jobs:ORDERS --lake lake --restore savepoint-5f1e2c
      statelake run acme.jobs:ORDERS --lake lake --blobs s3://bucket/blobs
    """
    if str(Path.cwd()) not in sys.path:
        # as `python -m` has it: modules of the directory that the command is called in
        sys.path.insert(0, str(Path.cwd()))
    with progress_bar("running", quiet=as_json_) as progress:
        done = Lake(lake).run(
            runnable, parallelism=parallelism, backend=backend, restore=restore, blobs=blobs,
            restore_from=restore_from, final=final, always=always, engine=engine,
            progress=progress,
        )  # fmt: skip
    show(done, as_json_=as_json_, marked=f"run {done.run}")
    answer(yes=not done.no_input)
