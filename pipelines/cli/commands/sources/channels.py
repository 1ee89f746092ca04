"""`statelake channels`: records in flight of an unaligned checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from statelake.pipelines.cli.commands.keys.one_key import operator_option
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import (
    as_json,
    bytes_text,
    json_option,
    json_text,
    plain,
    print_table,
    tell,
)
from statelake.pipelines.cli.options import (
    NamedSnapshot,
    refuse_problems,
    served_in_part,
    source_options,
)
from statelake.state_core.printable import Table

if TYPE_CHECKING:
    from statelake.state_core.formats.channels import ChannelElements
    from statelake.state_core.model.channels import Channel
    from statelake.state_core.serializers.framework.base import TypeSerializer

SHOWN = 1000  # channels: --json has all


@click.command()
@source_options
@operator_option
@click.option("--records", is_flag=True, help="Print each element in flight as a line of JSON.")
@click.option("--type", "type_", help="The records' type in Java's notation: Tuple2<Long, String>.")
@click.option("--like", help="OPERATOR/STATE: a state whose values have the type of the records.")
@click.option("--limit", type=click.IntRange(min=0), help="At most so many lines.")
@plugins_option
@json_option
def channels(
    source: NamedSnapshot,
    operator: str | None,
    records: bool,
    type_: str | None,
    like: str | None,
    limit: int | None,
    as_json_: bool,
) -> None:
    """Show the records in flight of an unaligned checkpoint, by channel.

    A channel is one of an input gate, with records that the subtask had received and not yet
    processed, or one of a result partition, with records that it had still to send. A record that
    its receiver had in part is counted at its sender. Savepoints and aligned checkpoints have no
    channels.

    --records prints every element: records with their timestamps, watermarks and others. A snapshot
    does not have the type of records: --type gives it, or --like, if a state has values of the same
    type; otherwise their bytes are printed in Base64. If a column can't hold a value exactly, its
    bytes are beside it in Base64, as raw_value.

    \b
    Examples:
      statelake channels /checkpoints/0af3.../chk-21
      statelake channels /checkpoints/0af3.../chk-21 --operator counter --json
      statelake channels /checkpoints/0af3.../chk-21 --operator counter --records \\
          --type "Tuple2<Long, String>"
      statelake channels --lake lake --job orders --snapshot chk-21 --records --like counter/last
    """
    if (type_ or like) and not records:
        raise click.UsageError("--type and --like say what --records prints")
    if type_ and like:
        raise click.UsageError("give either --type or --like")
    problems: list[str] = []
    snapshot = source.opened()
    with served_in_part(snapshot.problems_of() if like else []):
        value = snapshot.record_serializer(type=type_ or "", like=like or "")
    contents = snapshot.read_channels(operator, problems=problems)
    if records:
        if _print_records(contents, value, limit) != limit:
            refuse_problems(problems)
        return
    read = [(elements.position, _described(elements)) for elements in contents]
    rows = [described for _, described in sorted(read, key=itemgetter(0))]
    if as_json_:
        as_json({"channels": rows})
    else:
        _print(rows)
    refuse_problems(problems)


def _place(channel: Channel) -> dict[str, Any]:
    names = ("gate", "channel") if channel.received else ("partition", "subpartition")
    return {
        "operator": channel.operator,
        "subtask": channel.subtask,
        "side": "received" if channel.received else "to send",
        names[0]: channel.gate,
        names[1]: channel.channel,
    }


def _described(elements: ChannelElements) -> dict[str, Any]:
    """Return the JSON form of a channel."""
    return _place(elements.channel) | {
        "operator_id": elements.channel.operator_id,
        "buffers": elements.buffers,
        "bytes": elements.size,
        "records": elements.records,
        "other_elements": elements.others,
        "bytes_of_first_record_here": elements.ends_one,
        "bytes_of_last_record_here": elements.begins_one,
    }


def _print(rows: list[dict[str, Any]]) -> None:
    if not rows:
        tell("nothing is in flight")
        return
    table = [
        [
            row["operator"], str(row["subtask"]), _where(row), f"{row['buffers']:,}",
            f"{row['bytes']:,}", _count(row["records"]), _count(row["other_elements"]), _note(row),
        ]
        for row in rows
    ]  # fmt: skip
    heads = ("<operator", ">subtask", "<channel", ">buffers", ">bytes", ">records", ">others", "<")
    print_table(Table("", heads, table[:SHOWN], max(0, len(table) - SHOWN)))
    least = "" if all(row["records"] is not None for row in rows) else "at least "
    records, size = sum(row["records"] or 0 for row in rows), sum(row["bytes"] for row in rows)
    tell(f"{least}{records:,} records in flight, {bytes_text(size)}")


def _where(row: dict[str, Any]) -> str:
    names = ("gate", "channel") if row["side"] == "received" else ("partition", "subpartition")
    return f"{row['side']}, {names[0]} {row[names[0]]}, {names[1]} {row[names[1]]}"


def _count(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _note(row: dict[str, Any]) -> str:
    """Return which record is incomplete in a channel."""
    if row["records"] is None:
        return "not known where records end"
    if row["bytes_of_first_record_here"]:
        return f"ends a record: {row['bytes_of_first_record_here']:,} B"
    if row["bytes_of_last_record_here"]:
        return f"begins a record: {row['bytes_of_last_record_here']:,} B"
    return ""


def _print_records(
    contents: Iterable[ChannelElements], value: TypeSerializer | None, limit: int | None
) -> int:
    """Print the elements, and return their number."""
    count = 0
    for line in islice(_lines(contents, value), limit):
        sys.stdout.write(f"{json_text(line)}\n")
        count += 1
    sys.stdout.flush()
    return count


def _lines(
    contents: Iterable[ChannelElements], value: TypeSerializer | None
) -> Iterator[dict[str, Any]]:
    for elements in contents:
        rows = elements.decode(value)
        kinds = {field.name: field.type for field in rows.schema}
        for row in rows.to_pylist():
            values = {name: plain(row[name], kind) for name, kind in kinds.items()}
            yield _place(elements.channel) | {
                name: each for name, each in values.items() if each is not None
            }
