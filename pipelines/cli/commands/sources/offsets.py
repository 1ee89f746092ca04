"""`statelake offsets`: where the sources of a snapshot go on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from statelake.pipelines.cli.commands.keys.one_key import operator_option
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import as_json, json_option, print_table, tell
from statelake.pipelines.cli.options import NamedSnapshot, source_options
from statelake.state_core.connectors.files import PendingFiles
from statelake.state_core.connectors.kafka import KafkaEnumerator, KafkaSplit, OldKafkaElement
from statelake.state_core.connectors.sinks import Sink, sinks_of
from statelake.state_core.connectors.sources import Source, Split, sources_of
from statelake.state_core.errors import NotFoundError

if TYPE_CHECKING:
    pass

SHOWN = 1000  # splits of one source: --json has all
_TITLES = {
    "kafka": "Kafka",
    "file": "files",
    "sequence": "number sequence",
    "bytes": "a source that is not known",
}
_COLUMNS = {
    "kafka": (("topic", "<"), ("partition", ">"), ("offset", ">"), ("stopping_offset", ">")),
    "file": (
        ("path", "<"), ("start", ">"), ("length", ">"), ("position", ">"),
        ("records_after_position", ">"),
    ),
    "sequence": (("split_id", "<"), ("next_number", ">"), ("last_number", ">")),
    "bytes": (("version", ">"), ("bytes", ">")),
}  # fmt: skip
_HEADS = {
    "stopping_offset": "stops at",
    "records_after_position": "then skips",
    "split_id": "split",
    "next_number": "next",
    "last_number": "last",
}


# its status, the subtask of the reader that has it, and the split
_Row: TypeAlias = tuple[str, int | None, Split]


@click.command()
@source_options
@operator_option
@plugins_option
@json_option
def offsets(source: NamedSnapshot, operator: str | None, as_json_: bool) -> None:
    """Show where the sources of a snapshot go on: offsets of Kafka, positions in files, numbers.

    These are the splits in the state of readers, and those that no reader has got yet. An offset
    of Kafka is that of the next record to read. Sources and versions that are not known are listed
    by their bytes. `statelake edit --set-offsets` has Kafka's go on from elsewhere.

    Of sinks the transactions are shown that they have still to commit.

    \b
    Examples:
      statelake offsets savepoint-5f1e2c-0a1b2c3d4e5f
      statelake offsets savepoint-5f1e2c-0a1b2c3d4e5f --operator orders --json
      statelake offsets --lake lake --job orders --snapshot monday
    """
    sources, sinks = _ends_of(source, operator)
    if as_json_:
        described = [_described(each) for each in sources]
        as_json({"sources": described, "sinks": [asdict(sink) for sink in sinks]})
        return
    if not sources and not sinks:
        tell("no operator has the state of a source or sink")
    for number, each in enumerate(sources):
        if number:
            tell("")
        _print(each)
    for number, sink in enumerate(sinks):
        if number or sources:
            tell("")
        _print_sink(sink)


def _ends_of(place: NamedSnapshot, operator: str | None) -> tuple[list[Source], list[Sink]]:
    """The sources and sinks of a savepoint, or of a snapshot of a lake.

    Raises:
        NotFoundError: There is no such operator, or it is neither.
    """
    if not place.in_lake:
        snapshot = place.open()
        sources, sinks = sources_of(snapshot), sinks_of(snapshot)
        named = None if operator is None else snapshot.operator(operator).operator_id
    else:
        stored = place.stored()
        sources, sinks = stored.sources(), stored.sinks()
        labels = {source.operator: source.operator_id for source in sources}
        labels |= {sink.operator: sink.operator_id for sink in sinks}
        named = labels.get(operator or "", operator)
    if named is not None:
        sources = [source for source in sources if source.operator_id == named]
        sinks = [sink for sink in sinks if sink.operator_id == named]
        if not sources and not sinks:
            raise NotFoundError(
                f"operator {operator!r} has no state of a source or sink",
                remedy="name one that reads or writes",
            )
    return sources, sinks


def _described(source: Source) -> dict[str, Any]:
    """A source, for scripts."""
    enumerator = source.enumerator
    described: dict[str, Any] = {
        "operator": source.operator,
        "operator_id": source.operator_id,
        "kind": source.kind,
        "splits": [
            {"status": status, "subtask": subtask, "version": split.version} | split.columns()
            for status, subtask, split in source.splits()
        ],
        "enumerator": None,
    }
    if source.coordinator is not None:
        described["enumerator"] = {
            "kind": "bytes" if enumerator is None else enumerator.kind,
            "version": source.coordinator.enumerator_version,
            "bytes": len(source.coordinator.data),
        }
    if isinstance(enumerator, KafkaEnumerator):
        described["enumerator"]["initial_discovery_finished"] = enumerator.discovered
    if isinstance(enumerator, PendingFiles):
        described["enumerator"]["processed_paths"] = list(enumerator.processed)
    return described


def _print(source: Source) -> None:
    kind = source.kind
    rows = list(source.splits())
    if kind == "kafka":
        rows.sort(key=_partition)
    columns = [each for each in _COLUMNS[kind] if each[0] != "stopping_offset" or _ends(rows)]
    table = []
    for status, subtask, split in rows:
        row: dict[str, object] = {"version": split.version} | split.columns()
        cells = [_cell(row.get(name)) for name, _ in columns]
        where = status if subtask is None else f"subtask {subtask}"
        table.append([*cells, where])
    heads = [f"{side}{_HEADS.get(name, name)}" for name, side in columns]
    print_table(f"{source.operator}: {_TITLES[kind]}", [*heads, "<where"], table, most=SHOWN)
    if source.enumerator is None and source.coordinator is not None:
        coordinator = source.coordinator
        tell(
            f"the enumerator's state, {len(coordinator.data):,} bytes of version"
            f" {coordinator.enumerator_version}, is not known"
        )


def _partition(row: _Row) -> tuple[str, int]:
    _, _, split = row
    return (
        (split.topic, split.partition)
        if isinstance(split, KafkaSplit | OldKafkaElement)
        else ("", 0)
    )


def _print_sink(sink: Sink) -> None:
    names = list(dict.fromkeys(name for row in sink.to_commit for name in row))
    table = [[_cell(row.get(name)) for name in names] for row in sink.to_commit]
    writers, left = len(sink.writers), len(sink.to_commit)
    title = f"{sink.operator}: sink" + (f", {writers:,} writers" if writers else "")
    title += f", {left:,} to commit" if left else ""
    if not table:
        tell(title, marked=title)
        return
    print_table(title, [f"<{name.replace('_', ' ')}" for name in names], table, most=SHOWN)


def _ends(rows: Iterable[_Row]) -> bool:
    """Whether a partition of Kafka has an end."""
    return any(split.columns().get("stopping_offset") is not None for _, _, split in rows)


def _cell(value: object) -> str:
    return "-" if value is None else str(value)
