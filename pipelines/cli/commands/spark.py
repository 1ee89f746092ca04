"""`statelake spark`: prepare a Spark cluster for statelake."""

from __future__ import annotations

from pathlib import Path

import click

from statelake.pipelines.cli.commands.terminal import as_json, json_option
from statelake.pipelines.shown import bytes_text
from statelake.state_core.extras import require_extra


@click.group()
def spark() -> None:
    """Prepare a Spark cluster for statelake.

    \b
    Example:
      statelake spark pack --to statelake.tar.gz
      statelake import s3://bucket/savepoint --lake s3://bucket/lake --job orders \\
          --master spark://master:7077 --spark-pack statelake.tar.gz
    """


@spark.command()
@click.option("--to", required=True, type=click.Path(path_type=Path), metavar="FILE.tar.gz",
              help="The archive; replaced if it is there.")  # fmt: skip
@json_option
def pack(to: Path, as_json_: bool) -> None:
    """Pack statelake for executors that have Python and nothing else.

    The archive has all that statelake needs, except Python, which must be of the packing version.
    --spark-pack or STATELAKE_SPARK_PACK sends it to the executors. Executors with statelake
    installed do not need it.

    \b
    Example:
      statelake spark pack --to statelake.tar.gz
    """
    require_extra("spark")
    from statelake.pipelines.spark import packing  # noqa: PLC0415 - PySpark

    size, needs = packing.pack(to), packing.described()
    if as_json_:
        as_json({"file": str(to), "bytes": size, "needs": needs})
        return
    click.echo(f"{to}: {bytes_text(size)}, for nodes with {needs}")
    click.echo(f"send it along: --master spark://HOST:PORT --spark-pack {to}")
