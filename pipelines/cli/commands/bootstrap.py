"""`statelake bootstrap`: create the first state of a new job from tables and a spec."""

from __future__ import annotations

import click

import statelake as sl
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import json_option, progress_bar, show
from statelake.pipelines.cli.engine_options import engine_option
from statelake.pipelines.cli.options import (
    configured_option,
    lake_is_meant,
    request_options,
)
from statelake.pipelines.requests.bootstrap import Bootstrap


@click.command("bootstrap")
@click.argument("spec")
@configured_option("lake", "A lake into which it is imported, too.")
@configured_option("job", "The job's name in the lake.")
@click.option("--snapshot", "snapshot_id", help="The snapshot's name in the lake.")
@request_options(Bootstrap)
@engine_option
@plugins_option
@json_option
def bootstrap_command(
    spec: str,
    lake: str | None,
    job: str | None,
    snapshot_id: str | None,
    request: Bootstrap,
    engine: str,
    as_json_: bool,
) -> None:
    """Create a savepoint from tables: the first state of a new job.

    SPEC is a YAML or Python file: operators by uid, their key's type, and each state's kind, type
    and source - a Parquet, Delta, CSV or JSON-lines path, a state in a lake, or a query - with the
    columns that make up key and value. A key that is there twice, a null in a key and a value that
    does not fit its type are errors that name the row; nothing is left behind then.

    \b
    Examples:
      statelake bootstrap customers.yaml --to /savepoints/first
      statelake bootstrap customers.yaml --to /savepoints/first --parallelism 8 \\
          --compression snappy
      statelake bootstrap customers.yaml --to first --lake lake --job shop --snapshot first
    """
    if not lake_is_meant():
        lake = job = None
    if (lake is None) != (job is None) or (snapshot_id is not None and lake is None):
        raise click.UsageError("give --lake and --job together; --snapshot goes with them")
    words = vars(request) | {"spec": spec}
    with progress_bar("bootstrapping", quiet=as_json_) as progress:
        if lake is not None and job is not None:
            opened = sl.Lake(lake).job(job, engine=engine, progress=progress)
            done = opened.bootstrap(**words, name=snapshot_id)
        else:
            done = sl.bootstrap(**words, engine=engine, progress=progress)
    show(done, as_json_=as_json_, marked=done.written.path)
