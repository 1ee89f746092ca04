"""`statelake demo`: run all steps on bundled savepoints."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import click

from statelake.state_core.extras import has_extra


@click.command()
@click.option(
    "--dir",
    "directory",
    default="demo",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where its savepoints, lake and exports go; those in it are replaced.",
)
@click.option(
    "--savepoints",
    "copies",
    type=click.Path(file_okay=False, path_type=Path),
    help="Only copy the savepoints into this new directory.",
)
def demo(directory: Path, copies: Path | None) -> None:
    """Run the whole way on bundled savepoints that real Flink wrote.

    Inspects them, archives them, queries and compares their state, erases a key from all of it, and
    writes it back at another parallelism and max parallelism. With the extra `dagster` it is
    Dagster that archives them; with the extra `spark`, Spark reads the lake, too.

    \b
    Examples:
      statelake demo --dir /tmp/statelake-demo
      statelake demo --savepoints savepoints
    """
    from statelake.pipelines.cli.demo.run import copy_savepoints, run_demo  # noqa: PLC0415 - not for --help

    if copies is not None:
        copy_savepoints(copies)
        return
    from statelake.pipelines.cli.demo.spark_step import SparkStep  # noqa: PLC0415 - the same

    directory = directory.resolve()
    home = Path(os.environ.get("DAGSTER_HOME") or directory / "dagster")
    # Spark starts before Dagster is imported, whose modules take seconds
    with SparkStep() if has_extra("spark") else nullcontext() as spark:
        run_demo(directory, home if has_extra("dagster") else None, spark)
