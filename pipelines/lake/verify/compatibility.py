"""The check before a deploy whether the new job would restore from a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from statelake.pipelines.lake.catalog.unmanaged_state import KEYED, unmanaged_keyed_sizes
from statelake.pipelines.lake.change.changes import ValueChange, read_changes, resolve_change
from statelake.pipelines.lake.tables.records import OperatorStateRecord, SnapshotRecord
from statelake.state_core.formats.layout.keyed_states import with_value
from statelake.state_core.formats.layout.state_compatibility import (
    OperatorSchema,
    StateVerdict,
    Verdicts,
    check_operators,
    named_operators,
    operator_schema,
    schemas_of_snapshot,
)
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    OperatorMetadata,
    read_metadata,
)
from statelake.state_core.formats.reader import open_snapshot
from statelake.state_core.serializers.framework.compatibility import unknown

SPEC_SUFFIXES = (".yaml", ".yml", ".json", ".py")
COORDINATOR, RAW, IN_FLIGHT = "its coordinator's state", "raw state", "records in flight"


def schemas_of_record(record: SnapshotRecord) -> list[OperatorSchema]:
    """Return the schemas of a snapshot in the lake, also of operators without tables."""
    carried = {
        operator.operator_id: (operator.uid or operator.operator_id, _carried(operator))
        for operator in read_metadata(record.metadata, "carried _metadata").operators
    }
    schemas = [
        operator_schema(
            operator.label,
            operator.key_serializer,
            [state.meta_info for state in operator.all_states],
            carried.pop(operator.operator_id, ("", []))[1],
        )
        for operator in record.operators
    ]
    return schemas + [operator_schema(label, b"", [], kinds) for label, kinds in carried.values()]


def _carried(operator: OperatorMetadata) -> list[str]:
    """Return the kinds of an operator's unmanaged state."""
    subtasks = (operator.subtasks or {}).values()
    there = {
        COORDINATOR: operator.coordinator is not None,
        KEYED: any(subtask.managed_keyed for subtask in subtasks),
        RAW: any(subtask.raw_keyed or subtask.raw_operator for subtask in subtasks),
        IN_FLIGHT: any(subtask.inputs or subtask.outputs for subtask in subtasks),
    }
    return [name for name, present in there.items() if present]


def check_against(
    record: SnapshotRecord,
    against: str,
    operators: Sequence[str] = (),
    *,
    allow_missing: bool = False,
) -> Verdicts:
    """Return a verdict for each state of a snapshot.

    Args:
        record: The snapshot to restore.
        against: A file with the new types, or a savepoint of the job that restores it.
        operators: Only of these operators, by uid or id; of all by default.
        allow_missing: Whether the job may lack an operator.

    Raises:
        SnapshotError: `against` is a savepoint that can't be read.
        EncodeError: The file is not valid.
        NotFoundError: There is no such operator with state.
    """
    old = named_operators(schemas_of_record(record), operators)
    if against.endswith(SPEC_SUFFIXES):
        return check_changes(record, read_changes(against), old)
    new = schemas_of_snapshot(open_snapshot(against))
    verdicts = check_operators(old, new, allow_missing=allow_missing)
    declared = {each.operator_id for each in old} & {each.operator_id for each in new}
    for label in unmanaged_keyed_sizes(record):
        if OperatorSchema(label, None).operator_id in declared:  # otherwise it is reported as gone
            rule = "nobody has read its types: try a restore in Flink"
            verdicts.append(StateVerdict(label, "", unknown(KEYED, KEYED, rule)))
    return verdicts


def check_changes(
    record: SnapshotRecord, changes: Sequence[ValueChange], old: Sequence[OperatorSchema]
) -> Verdicts:
    """Return a verdict for each state of some operators, as restored by a job with these changes.

    Raises:
        NotFoundError: A change is about a state that the snapshot does not have.
    """
    new = {each.label: each for each in schemas_of_record(record)}
    for change in changes:
        operator, state, _ = resolve_change(record, change)
        schema, name = new[operator.label], state.name
        if isinstance(state, OperatorStateRecord):
            changed = with_value(schema.operator_states[name], change.value)
            states = {**schema.operator_states, name: changed}
            new[operator.label] = replace(schema, operator_states=states)
        else:
            changed = with_value(schema.states[name], change.value)
            new[operator.label] = replace(schema, states={**schema.states, name: changed})
    return check_operators(old, new.values())
