"""`statelake compress`: compress a savepoint, or decompress it, without Spark or a lake."""

from __future__ import annotations

import click

import statelake as sl
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import json_option, progress_bar, show
from statelake.pipelines.cli.options import request_options
from statelake.pipelines.requests.savepoints import Compress


@click.command()
@click.argument("savepoint")
@request_options(Compress)
@plugins_option
@json_option
def compress(savepoint: str, request: Compress, as_json_: bool) -> None:
    """Compress a canonical savepoint, or decompress it; its entries stay the same.

    \b
    Examples:
      statelake compress /savepoints/sp-1 --to /savepoints/sp-1-small
      statelake compress /savepoints/sp-1-small --to /savepoints/plain --compression none
      statelake compress sp-1 --to sp-2 --conf execution.checkpointing.snapshot-compression=true
    """
    with progress_bar("compressing", quiet=as_json_) as progress:
        done = sl.compress(**vars(request) | {"savepoint": savepoint, "progress": progress})
    show(done, as_json_=as_json_, marked=done.path)
