"""`statelake ui` and `statelake mcp`: the same answers for people, and for assistants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import tell
from statelake.pipelines.cli.options import (
    gathered,
    query_memory_option,
    typed_reading_options,
)
from statelake.pipelines.requests.shared import TypedReading
from statelake.state_core.extras import require_extra

if TYPE_CHECKING:
    from statelake.pipelines.ui.views import Options


@dataclass(frozen=True)
class Looks:
    """How keys and values are shown.

    Attributes:
        mask: The file with the rules for masking; None to show them as they are.
        leave_out_opaque: Whether state that can't be masked is left out.
        audit: The file that gets a line for each look; empty for none.
        query_memory: The bytes that a query may take; None for those in proportion to the machine.
        query_seconds: How long a query may take.
        queries: How many run at once; None for as many as the machine has cores, up to 4.
    """

    mask: str | None
    leave_out_opaque: bool
    audit: str
    query_memory: int | None
    query_seconds: int
    queries: int | None

    def options(self, reading: TypedReading, *, values: bool) -> Options:
        """Return what is shown, and how snapshots are read.

        Raises:
            UsageError: Nothing is shown that could be masked, or of which an audit could tell.
            StateError: The rules are not valid.
        """
        if (self.mask or self.audit) and not values:
            raise click.UsageError("--mask and --audit are for --values, not for --no-values")
        from statelake.pipelines.lake.share.mask_file import read_mask  # noqa: PLC0415 - not for --help
        from statelake.pipelines.ui.views import Options  # noqa: PLC0415 - not for --help

        rules = None if self.mask is None else read_mask(self.mask)
        return Options(
            values=values, mask=rules, leave_out_opaque=self.leave_out_opaque,
            query_memory=self.query_memory, query_seconds=self.query_seconds,
            queries=self.queries, **vars(reading),
        )  # fmt: skip


def _looks(
    mask: str | None,
    leave_out_opaque: bool,
    audit: str,
    query_memory: int | None,
    query_seconds: int,
    queries: int | None,
) -> Looks:
    if leave_out_opaque and mask is None:
        raise click.UsageError("--leave-out-opaque is for --mask")
    return Looks(mask, leave_out_opaque, audit, query_memory, query_seconds, queries)


location_argument = click.argument("location", default=".", metavar="[LAKE|DIR|SNAPSHOT]")
looks_options = gathered(
    "looks",
    _looks,
    click.option("--mask", metavar="FILE", help="A YAML file with the rules for masking."),
    click.option("--leave-out-opaque", is_flag=True, help="Leave out what can't be masked."),
    click.option("--audit", default="", metavar="FILE",
                 help="Write a line to this file for each look at keys and values."),
    query_memory_option(
        "How much memory a query may take, such as 2GiB; by default a quarter of the machine's,"
        " divided by --queries."
    ),
    click.option("--query-seconds", type=click.IntRange(1, 86_400), default=60,
                 show_default=True, help="How long one may run; a download ten times as long."),
    click.option("--queries", type=click.IntRange(1, 64), metavar="N",
                 help="How many run at once; by default one for each core, up to 4."),
)  # fmt: skip


@click.command()
@location_argument
@click.option("--port", default=0, type=click.IntRange(0, 65535),
              help="The port on 127.0.0.1; by default any that is free.")  # fmt: skip
@click.option("--no-values", is_flag=True, help="Show no keys, no values, and no SQL.")
@looks_options
@typed_reading_options
@plugins_option
def ui(
    location: str,
    port: int,
    no_values: bool,
    looks: Looks,
    reading: TypedReading,
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

    options = looks.options(reading, values=not no_values)
    serve(
        location, options, port=port, audit=looks.audit, ready=lambda where: tell(f"open {where}")
    )


@click.command()
@location_argument
@click.option("--values", is_flag=True, help="Show keys and values, and run SQL.")
@looks_options
@typed_reading_options
@plugins_option
def mcp(
    location: str,
    values: bool,
    looks: Looks,
    reading: TypedReading,
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

    serve_assistant(location, looks.options(reading, values=values), audit=looks.audit)
