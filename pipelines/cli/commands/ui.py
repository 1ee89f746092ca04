"""`statelake ui` and `statelake mcp`: the same views for people and for assistants."""

from __future__ import annotations

from dataclasses import replace

import click

from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import tell
from statelake.pipelines.cli.options import request_options
from statelake.pipelines.ui.options import Options
from statelake.state_core.errors import DeclarationError
from statelake.state_core.extras import require_extra


def _with_mask(options: Options, *, values: bool) -> Options:
    """Return the options for keys and values, with the rules for masking read from their file.

    Raises:
        UsageError: A mask or an audit file is given, and no keys and values are shown.
        StateError: The rules are not valid.
    """
    try:
        options = replace(options, values=values)
    except DeclarationError as error:
        raise click.UsageError(str(error)) from error
    if not isinstance(options.mask, str):
        return options
    from statelake.pipelines.lake.share.mask_file import read_mask  # noqa: PLC0415 - not for --help

    return replace(options, mask=read_mask(options.mask))


location_argument = click.argument("location", default=".", metavar="[LAKE|DIR|SNAPSHOT]")


@click.command()
@location_argument
@click.option("--port", default=0, type=click.IntRange(0, 65535),
              help="The port on 127.0.0.1; by default any that is free.")  # fmt: skip
@click.option("--no-values", is_flag=True, help="Show no keys, no values, and no SQL.")
@request_options(Options, "options")
@plugins_option
def ui(
    location: str,
    port: int,
    no_values: bool,
    options: Options,
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
      statelake ui savepoint-5f1e2c-0a1b2c3d4e5f --plan plan.json
    """
    require_extra("ui")
    from statelake.pipelines.ui.server import serve  # noqa: PLC0415 - an extra

    options = _with_mask(options, values=not no_values)
    serve(
        location, options, port=port, audit=options.audit, ready=lambda where: tell(f"open {where}")
    )


@click.command()
@location_argument
@click.option("--values", is_flag=True, help="Show keys and values, and run SQL.")
@request_options(Options, "options")
@plugins_option
def mcp(
    location: str,
    values: bool,
    options: Options,
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
    require_extra("mcp")
    from statelake.pipelines.ui.assistants import serve_assistant  # noqa: PLC0415 - an extra

    serve_assistant(location, _with_mask(options, values=values), audit=options.audit)
