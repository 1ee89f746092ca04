"""Sources and sinks of a snapshot in a lake, decoded from its tables and its unmanaged state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from pathlib import Path

from statelake.pipelines.keys import lines_of
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.unmanaged_state import unmanaged_metadata
from statelake.pipelines.lake.tables.operator_tables import read_operator_rows
from statelake.pipelines.lake.tables.records import OperatorRecord, SnapshotRecord, TableRecord
from statelake.state_core.connectors.elements import StateElement
from statelake.state_core.connectors.offsets import (
    NewOffset,
    check_readers,
    parse_new_offset,
    partitions_read,
)
from statelake.state_core.connectors.sinks import SINK_STATES, Sink, sink_of
from statelake.state_core.connectors.sources import SOURCE_STATES, SourceState, source_of
from statelake.state_core.errors import EncodeError, NotFoundError, StateError
from statelake.state_core.extras import require_extra
from statelake.state_core.formats.metadata.checkpoint_metadata import OperatorMetadata
from statelake.state_core.formats.operator_state.operator_reader import parse_operator_state

PATIENCE = 20.0  # seconds that brokers have for an answer


def recorded_sources(lake: str, record: SnapshotRecord) -> list[SourceState]:
    """Return the sources of a snapshot of the lake at a location.

    Raises:
        LakeError: A table, or the carried `_metadata`, can't be read.
    """
    return sources_among(lake, record.operators, unmanaged_metadata(record).operators)


def sources_among(
    lake: str, operators: Sequence[OperatorRecord], carried: Sequence[OperatorMetadata]
) -> list[SourceState]:
    """Return the sources among some operators.

    Args:
        lake: The lake's location.
        operators: The operators with tables.
        carried: All operators, as a carried `_metadata` has them.

    Raises:
        LakeError: A table can't be read.
    """
    recorded = {operator.operator_id: operator for operator in operators}
    sources = []
    for each in carried:
        operator = recorded.get(each.operator_id)
        elements = [] if operator is None else _elements(lake, operator, SOURCE_STATES)
        data = None if each.coordinator is None else each.coordinator.data
        label = operator.label if operator else each.uid or each.operator_id
        source = source_of(each.operator_id, label, elements, data)
        if source is not None:
            sources.append(source)
    return sources


def check_edited_sources(lake: str, before: SnapshotRecord, after: SnapshotRecord) -> None:
    """Refuse a snapshot in which a source has partitions that two readers have, or none.

    Args:
        lake: The lake's location.
        before: The snapshot before rows were edited.
        after: The snapshot after that, perhaps with other uids.

    Raises:
        EncodeError: A partition would be read twice, or not at all.
        LakeError: A table, or the carried `_metadata`, can't be read.
    """
    had, has = (_source_tables(record) for record in (before, after))
    edited = {path for path, (_, table) in had.items() if not _same_files(table, has.get(path))}
    if not edited:
        return
    ids = {had[path][0]: has[path][0] for path in edited & has.keys()}
    sources = {source.operator_id: source for source in recorded_sources(lake, after)}
    changed = [had[path][0] for path in edited]
    owners = [each for each in before.operators if each.operator_id in changed]
    for source in sources_among(lake, owners, unmanaged_metadata(before).operators):
        new = sources.get(ids.get(source.operator_id, source.operator_id))
        if source.operator_id in changed and new is not None:
            check_readers(source, new)


def _source_tables(record: SnapshotRecord) -> dict[str, tuple[str, TableRecord]]:
    """Return the tables of sources' states by their paths, each with its operator's id."""
    return {
        state.table: (operator.operator_id, operator.table_of(state))
        for operator in record.operators
        for state in operator.operator_states
        if state.name in SOURCE_STATES and not state.key_type
    }


def _same_files(table: TableRecord, other: tuple[str, TableRecord] | None) -> bool:
    return other is not None and table.units == other[1].units


def sinks_among(lake: str, operators: Iterable[OperatorRecord]) -> list[Sink]:
    """Return the sinks among some operators of the lake at a location.

    Raises:
        LakeError: A table can't be read.
    """
    sinks = (
        sink_of(each.operator_id, each.label, _elements(lake, each, SINK_STATES))
        for each in operators
    )
    return [sink for sink in sinks if sink is not None]


def _elements(lake: str, operator: OperatorRecord, states: Collection[str]) -> list[StateElement]:
    """Return the elements of some list states, by state, subtask and position."""
    elements = []
    for state in operator.operator_states:
        if state.name not in states or state.key_type:
            continue
        rows = read_operator_rows(lake, state, operator.table_of(state).units)
        subtasks, positions = rows.column("subtask"), rows.column("position")
        data = parse_operator_state(state.meta_info)[1].encode(rows)
        elements += [
            StateElement(state.name, subtasks[row].as_py(), positions[row].as_py(),
                         data[row].as_py())
            for row in range(len(rows))
        ]  # fmt: skip
    return elements


def read_new_offsets(given: Iterable[str]) -> list[NewOffset]:
    """Read the offsets of `--set-offsets`: offsets, or files with one a line.

    Raises:
        EncodeError: A text is neither an offset nor a file of them, or a file can't be read.
    """
    new_offsets = []
    for text in given:
        if "=" in text and not Path(text).is_file():
            new_offsets.append(parse_new_offset(text))
            continue
        remedy = "give topic:partition=offset, or a text file with one a line"
        for place, line in lines_of(Path(text).read_bytes, text, remedy):
            if not line.lstrip().startswith("#"):
                try:
                    new_offsets.append(parse_new_offset(line))
                except StateError as error:
                    raise error.within(place) from error
    if not new_offsets:
        raise EncodeError("no offset is given", remedy="write topic:partition=offset, one a line")
    return new_offsets


def offsets_at(
    lake: Catalog, job: str, snapshot_id: str, servers: str, at: datetime
) -> list[NewOffset]:
    """Ask a broker for the offsets of a snapshot's Kafka partitions at a time.

    Args:
        lake: The lake.
        job: The job.
        snapshot_id: The snapshot.
        servers: Brokers: `host:port`, several separated by commas.
        at: The time.

    Raises:
        MissingExtraError: The client of Kafka is not installed.
        NotFoundError: No source of the snapshot reads Kafka.
        CommitError: No broker answers, or a partition does not exist.
    """
    require_extra("kafka")
    from statelake.state_core.runtime.commit.backends.kafka import KafkaCluster  # noqa: PLC0415 - only when wanted

    record = lake.snapshot(job, snapshot_id)
    sources = recorded_sources(lake.location, record)
    reads = {source.operator: partitions_read(source) for source in sources}
    partitions = {partition for of_source in reads.values() for partition in of_source}
    if not partitions:
        raise NotFoundError(
            f"no source of snapshot {snapshot_id} reads Kafka", remedy="name one that does"
        )
    cluster = KafkaCluster(servers, {"log_level": 0}, patience=PATIENCE)
    offset_of = cluster.offsets_at(partitions, round(at.timestamp() * 1000))
    return [
        NewOffset(topic, number, offset_of[topic, number], operator)
        for operator, of_source in reads.items()
        for topic, number in of_source
    ]
