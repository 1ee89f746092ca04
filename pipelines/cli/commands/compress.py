"""`statelake compress`: compress a savepoint, or decompress it, without Spark or a lake."""

from __future__ import annotations

from collections.abc import Iterable

import click

from statelake.pipelines import api
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import json_option, progress_bar, show
from statelake.pipelines.cli.options import allow_external_option
from statelake.state_core.errors import EncodeError

conf_option = click.option(
    "--conf",
    multiple=True,
    metavar="KEY=VALUE",
    help="Flink's execution.checkpointing.snapshot-compression, true or false.",
)


def parse_conf(settings: Iterable[str]) -> dict[str, str]:
    """Return the settings of `--conf` by their keys.

    Raises:
        EncodeError: A setting is not of the form KEY=VALUE.
    """
    conf = {}
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not equals:
            raise EncodeError(f"{setting!r} is not of the form KEY=VALUE", place="--conf")
        conf[key] = value
    return conf


@click.command()
@click.argument("savepoint")
@click.option("--to", required=True, help="The new savepoint's directory, which must not exist.")
@click.option("--compression", type=click.Choice(["snappy", "none"]), help="By default snappy.")
@conf_option
@allow_external_option
@plugins_option
@json_option
def compress(
    savepoint: str,
    to: str,
    compression: str | None,
    conf: tuple[str, ...],
    allow_external: tuple[str, ...],
    as_json_: bool,
) -> None:
    """Compress a canonical savepoint, or decompress it; its entries stay the same.

    \b
    Examples:
      statelake compress /savepoints/sp-1 --to /savepoints/sp-1-small
      statelake compress /savepoints/sp-1-small --to /savepoints/plain --compression none
      statelake compress sp-1 --to sp-2 --conf execution.checkpointing.snapshot-compression=true
    """
    with progress_bar("compressing", quiet=as_json_) as progress:
        done = api.compress(
            savepoint, to, compression, conf=parse_conf(conf), allow_external=allow_external,
            progress=progress,
        )  # fmt: skip
    show(done, as_json_=as_json_, marked=done.path)
