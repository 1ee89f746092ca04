"""`statelake ui`: a page in the browser."""

from __future__ import annotations

import click

from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import tell
from statelake.pipelines.cli.options import Reading, reading_options
from statelake.state_core.extras import require_extra


@click.command()
@click.argument("location", default=".", metavar="[LAKE|DIR|SNAPSHOT]")
@click.option("--port", default=0, type=click.IntRange(0, 65535),
              help="The port on 127.0.0.1; by default any that is free.")  # fmt: skip
@click.option("--no-values", is_flag=True, help="Show no keys, no values, and no SQL.")
@click.option("--mask", metavar="FILE", help="A YAML file with the rules for masking.")
@click.option("--leave-out-opaque", is_flag=True, help="Leave out what can't be masked.")
@click.option("--audit", default="", metavar="FILE",
              help="Write a line to this file for each look at keys and values.")  # fmt: skip
@reading_options
@plugins_option
def ui(
    location: str,
    port: int,
    no_values: bool,
    mask: str | None,
    leave_out_opaque: bool,
    audit: str,
    reading: Reading,
) -> None:
    """Look at a lake, a directory of snapshots or one snapshot in the browser.

    Prints an address with a token that works once; only this machine's browser reaches it. The
    pages only read. They show snapshots, states and their rows, what is held for a key, what
    differs in two snapshots, growth, and run SQL. Ctrl-C ends it.

    \b
    Examples:
      statelake ui lake
      statelake ui /checkpoints --no-values
      statelake ui savepoint-5f1e2c-0a1b2c3d4e5f --mask mask.yaml --audit looks.jsonl
    """
    if leave_out_opaque and mask is None:
        raise click.UsageError("--leave-out-opaque is for --mask")
    require_extra("ui")
    from statelake.pipelines.lake.share.mask_file import read_mask  # noqa: PLC0415 - not for --help
    from statelake.pipelines.ui.server import serve  # noqa: PLC0415 - an extra
    from statelake.pipelines.ui.views import Options  # noqa: PLC0415 - not for --help

    rules = None if mask is None else read_mask(mask)
    options = Options(
        values=not no_values, mask=rules, leave_out_opaque=leave_out_opaque, **reading
    )
    serve(location, options, port=port, audit=audit, ready=lambda where: tell(f"open {where}"))
