"""`statelake mcp`: answers for assistants."""

from __future__ import annotations

import click

from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.options import Reading, reading_options
from statelake.state_core.extras import require_extra


@click.command()
@click.argument("location", default=".", metavar="[LAKE|DIR|SNAPSHOT]")
@click.option("--values", is_flag=True, help="Show keys and values, and run SQL.")
@click.option("--mask", metavar="FILE", help="A YAML file with the rules for masking.")
@click.option("--leave-out-opaque", is_flag=True, help="Leave out what can't be masked.")
@click.option("--audit", default="", metavar="FILE",
              help="Write a line to this file for each look at keys and values.")  # fmt: skip
@reading_options
@plugins_option
def mcp(
    location: str,
    values: bool,
    mask: str | None,
    leave_out_opaque: bool,
    audit: str,
    reading: Reading,
) -> None:
    """Answer an assistant about a lake, a directory of snapshots or one snapshot.

    Speaks the Model Context Protocol on standard input and output, as assistants start it. Its
    tools only read: snapshots, states and types, differences, growth, offsets, checks and erasures.
    Only what lies at the location can be asked. Keys and values are shown with --values alone.

    \b
    Examples:
      statelake mcp lake
      statelake mcp /checkpoints --values --mask mask.yaml --audit looks.jsonl
    """
    if (mask or audit) and not values:
        raise click.UsageError("--mask and --audit are for --values")
    if leave_out_opaque and mask is None:
        raise click.UsageError("--leave-out-opaque is for --mask")
    require_extra("mcp")
    from statelake.pipelines.lake.share.mask_file import read_mask  # noqa: PLC0415 - not for --help
    from statelake.pipelines.ui.assistants import serve_assistant  # noqa: PLC0415 - an extra
    from statelake.pipelines.ui.views import Options  # noqa: PLC0415 - not for --help

    rules = None if mask is None else read_mask(mask)
    options = Options(values=values, mask=rules, leave_out_opaque=leave_out_opaque, **reading)
    serve_assistant(location, options, audit=audit)
