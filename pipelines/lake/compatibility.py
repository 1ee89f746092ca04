"""The check before a deploy: would the new job restore from this snapshot?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipelines.lake.changes import read_changes
from pipelines.lake.migrating import ValueChange, resolve_change
from pipelines.lake.records import SnapshotRecord
from state_core.formats import open_snapshot
from state_core.formats.keyed_states import with_value
from state_core.formats.state_compatibility import (
    OperatorSchema,
    StateVerdict,
    check_operators,
    operator_schema,
)
from state_core.snapshot import Snapshot

__all__ = ["check_against", "check_changes", "schemas_of_record", "schemas_of_snapshot"]

SPEC_SUFFIXES = (".yaml", ".yml", ".json", ".py")


def schemas_of_record(record: SnapshotRecord) -> list[OperatorSchema]:
    """The schemas of a snapshot in the lake."""
    return [
        operator_schema(one.label, one.key_serializer, [state.meta_info for state in one.states])
        for one in record.operators
    ]


def schemas_of_snapshot(snapshot: Snapshot) -> list[OperatorSchema]:
    """The schemas of a savepoint."""
    return [
        operator_schema(
            one.label,
            one.keyed_files[0].key_serializer if one.keyed_files else b"",
            [state.meta_info for state in one.keyed_states],
        )
        for one in snapshot.operators
    ]


def check_against(
    record: SnapshotRecord, against: str, *, allow_missing: bool = False
) -> list[StateVerdict]:
    """A verdict for each state of a snapshot.

    Args:
        record: What is to be restored.
        against: A file that says what states become, or a savepoint of the job that restores it.
        allow_missing: Whether an operator may be gone.

    Raises:
        SnapshotError: `against` is a savepoint that can't be read.
        EncodeError: It is a file that can't be understood.
    """
    if against.endswith(SPEC_SUFFIXES):
        return check_changes(record, read_changes(against))
    new = schemas_of_snapshot(open_snapshot(against))
    return check_operators(schemas_of_record(record), new, allow_missing=allow_missing)


def check_changes(record: SnapshotRecord, changes: Sequence[ValueChange]) -> list[StateVerdict]:
    """A verdict for each state, were it restored by a job with these changes.

    Raises:
        NotFoundError: A change is about a state that the snapshot does not have.
    """
    old = schemas_of_record(record)
    new = {one.label: one for one in old}
    for change in changes:
        operator, state, _ = resolve_change(record, change)
        schema = new[operator.label]
        changed = with_value(schema.states[state.name], change.value)
        new[operator.label] = replace(schema, states={**schema.states, state.name: changed})
    return check_operators(old, new.values())
