"""Sources and sinks of a snapshot in a lake, decoded from its tables and its unmanaged state."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from statelake.pipelines.lake.catalog.unmanaged_state import carried_metadata
from statelake.pipelines.lake.tables.operator_tables import read_operator_rows
from statelake.pipelines.lake.tables.records import OperatorRecord, SnapshotRecord
from statelake.state_core.connectors.elements import StateElement
from statelake.state_core.connectors.sinks import SINK_STATES, Sink, sink_of
from statelake.state_core.connectors.sources import SOURCE_STATES, Source, source_of
from statelake.state_core.formats.metadata.checkpoint_metadata import OperatorState
from statelake.state_core.formats.operator_state.operator_reader import parse_operator_state

__all__ = ["recorded_sinks", "recorded_sources", "sources_among"]


def recorded_sources(lake: str, record: SnapshotRecord) -> list[Source]:
    """Return the sources of a snapshot of the lake at a location.

    Raises:
        LakeError: A table, or the carried `_metadata`, can't be read.
    """
    return sources_among(lake, record.operators, carried_metadata(record).operators)


def sources_among(
    lake: str, operators: Sequence[OperatorRecord], carried: Sequence[OperatorState]
) -> list[Source]:
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


def recorded_sinks(lake: str, record: SnapshotRecord) -> list[Sink]:
    """Return the sinks of a snapshot of the lake at a location.

    Raises:
        LakeError: A table can't be read.
    """
    sinks = (
        sink_of(each.operator_id, each.label, _elements(lake, each, SINK_STATES))
        for each in record.operators
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
