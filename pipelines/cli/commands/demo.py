"""`statelake demo`: the whole way on bundled savepoints."""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path

import click

from statelake.state_core.extras import require_extra


@click.command()
@click.option(
    "--dir",
    "directory",
    default="demo",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where its savepoints, lake and exports go; those in it are replaced.",
)
def demo(directory: Path) -> None:
    """Run the whole way on bundled savepoints that real Flink wrote.

    Inspects them, archives them through Dagster, queries, compares and edits their state, writes it
    back at another parallelism and max parallelism, and has Spark read the lake.

    \b
    Example:
      statelake demo --dir /tmp/statelake-demo
    """
    require_extra("dagster", "spark")
    directory = directory.resolve()
    home = Path(os.environ.get("DAGSTER_HOME") or directory / "dagster")
    logging.getLogger("dagster").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message="Specifying a partitions_def on an AssetCheckSpec")
    from statelake.pipelines.cli.demo.spark_step import SparkStep  # noqa: PLC0415 - only when wanted

    with SparkStep() as spark:  # before Dagster is imported, whose modules take seconds
        from statelake.pipelines.cli.demo.run import run_demo  # noqa: PLC0415 - the same

        run_demo(directory, home, spark)
