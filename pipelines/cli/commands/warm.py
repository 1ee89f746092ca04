"""`statelake warm`: compile all kernels ahead, for images and new machines."""

from __future__ import annotations

import time

import click

import statelake as sl
from statelake.pipelines.cli.commands.terminal import as_json, json_option, progress_bar


@click.command()
@json_option
def warm(as_json_: bool) -> None:
    """Compile all kernels ahead.

    A kernel is compiled when a large snapshot first needs it, and its machine code is cached for
    this user: in NUMBA_CACHE_DIR, beside the package, or below the home directory. In an image, run
    this command once, as the user that statelake will run as.

    \b
    Example:
      statelake warm
    """
    began = time.monotonic()
    with progress_bar("compiling", quiet=as_json_) as progress:
        kernels = sl.warm(progress)
    seconds = time.monotonic() - began
    if as_json_:
        as_json({"kernels": kernels, "seconds": round(seconds, 3)})
        return
    click.echo(f"{kernels} kernels are compiled ({seconds:.1f} s)")
