"""`statelake offsets`: the offsets, positions and splits of a snapshot's sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from statelake.pipelines.cli.commands.keys.one_key import operator_option
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import (
    Result,
    as_json,
    json_option,
    show,
    tell,
)
from statelake.pipelines.cli.options import NamedSnapshot, refuse_problems, source_options
from statelake.state_core.errors import NotFoundError, did_you_mean

if TYPE_CHECKING:
    pass


@click.command()
@source_options
@operator_option
@click.option(
    "--look", metavar="DIRECTORY",
    help="Say whether Iceberg's manifests are still there, if they lie below this local directory.",
)  # fmt: skip
@plugins_option
@json_option
def offsets(source: NamedSnapshot, operator: str | None, look: str | None, as_json_: bool) -> None:
    """Show where the sources of a snapshot continue: offsets, positions in logs and files, numbers.

    The list has the splits in the state of readers, and those that no reader has yet. An offset of
    Kafka is that of the next record to read. Unknown sources and versions are listed by their
    bytes. `statelake edit --set-offsets` changes offsets of Kafka, and those of logs that Flink CDC
    reads.

    Of sinks it has the transactions, manifests and files that are still to be committed.

    \b
    Examples:
      statelake offsets savepoint-5f1e2c-0a1b2c3d4e5f
      statelake offsets savepoint-5f1e2c-0a1b2c3d4e5f --operator orders --json
      statelake offsets --lake lake --job orders --snapshot monday
      statelake offsets savepoint-5f1e2c-0a1b2c3d4e5f --look /warehouse/orders
    """
    snapshot = source.opened()
    sources, sinks = snapshot.sources(), snapshot.sinks()
    if operator is not None:
        ids = {each.operator: each.operator_id for each in sources}
        ids |= {each.operator: each.operator_id for each in sinks}
        wanted = ids.get(operator, operator)
        if wanted not in ids.values():
            wanted = snapshot.operator(operator).operator_id
        sources = [each for each in sources if each.operator_id == wanted]
        sinks = [each for each in sinks if each.operator_id == wanted]
        if not sources and not sinks:
            raise NotFoundError(
                f"operator {operator!r} has no state of a source or sink",
                remedy=f"name one that reads or writes{did_you_mean(operator, ids)}",
            )
    if look is not None:
        sinks = [each.looked_up(look) for each in sinks]
    problems = [problem for each in sources for problem in each.problems]
    problems += [problem for each in sinks for problem in each.problems]
    if as_json_:
        as_json({"sources": sources, "sinks": sinks})
        refuse_problems(problems)
        return
    if not sources and not sinks:
        tell("no operator has the state of a source or sink")
    shown: list[Result] = [*sources, *sinks]
    for number, each in enumerate(shown):
        if number:
            tell("")
        show(each)
    refuse_problems(problems)
