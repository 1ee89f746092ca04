"""`statelake bootstrap`: create the first state of a new job from tables and a spec."""

from __future__ import annotations

from functools import partial

import click

from statelake.pipelines import api
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import json_option, progress_bar, show
from statelake.pipelines.cli.options import (
    configured_option,
    engine_option,
    inexact_option,
    lake_is_meant,
    max_parallelism_option,
    metadata_version_option,
    operator_state_version_option,
)


@click.command("bootstrap")
@click.argument("spec")
@click.option("--to", required=True, help="The savepoint's directory, which must not exist.")
@configured_option("lake", "A lake into which it is imported, too.")
@configured_option("job", "The job's name in the lake.")
@click.option("--snapshot", "snapshot_id", help="The snapshot's name in the lake.")
@click.option("--parallelism", type=click.IntRange(min=1), help="By default as the spec says.")
@max_parallelism_option(help="By default as the spec says, or Flink's default for the parallelism.")
@click.option(
    "--compression", type=click.Choice(["snappy", "none"]), default="none", show_default=True,
    help="The compression of the savepoint's files.",
)  # fmt: skip
@click.option("--compress", is_flag=True, hidden=True, help="The same as --compression snappy.")
@metadata_version_option(
    default=3, show_default=True,
    help="3 restores in any Flink since 1.11, 4 in 1.16+, 5 in 2.0+, 6 in 2.1+.",
)  # fmt: skip
@operator_state_version_option(
    default=6, show_default=True, help="5 for Flink before 1.18, which is never compressed."
)
@inexact_option
@engine_option
@plugins_option
@json_option
def bootstrap_command(
    spec: str,
    to: str,
    lake: str | None,
    job: str | None,
    snapshot_id: str | None,
    parallelism: int | None,
    max_parallelism: int | None,
    compression: str,
    compress: bool,
    metadata_version: int,
    operator_state_version: int,
    inexact: bool,
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
    with progress_bar("bootstrapping", quiet=as_json_) as progress:
        bootstrap = partial(api.bootstrap, engine=engine, progress=progress)
        if lake is not None and job is not None:
            opened = api.Lake(lake).job(job, engine=engine, progress=progress)
            bootstrap = partial(opened.bootstrap, name=snapshot_id)
        done = bootstrap(
            spec, to, parallelism=parallelism, max_parallelism=max_parallelism,
            compression="snappy" if compress else compression, metadata_version=metadata_version,
            operator_state_version=operator_state_version, inexact=inexact,
        )  # fmt: skip
    show(done, as_json_=as_json_, marked=done.written.path)
