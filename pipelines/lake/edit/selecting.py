"""Selections of users: states by `operator/state` or `operator/timers`, and operators to drop."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from statelake.pipelines.lake.tables.records import OperatorRecord, StateRecord
from statelake.state_core.errors import NotFoundError, UnsupportedFormatError, did_you_mean
from statelake.state_core.formats.metadata.checkpoint_metadata import OperatorMetadata

TIMERS = "timers"


def find_state(
    operators: Sequence[OperatorRecord], wanted: str, snapshot_id: str
) -> tuple[OperatorRecord, str]:
    """Return the operator and the state of `operator/state`.

    Args:
        operators: The operators of a snapshot.
        wanted: An operator's uid or id, and the name of one of its states.
        snapshot_id: The snapshot, for messages.

    Raises:
        NotFoundError: There is no such state.
    """
    for operator in operators:
        for label in operator.labels:
            name = wanted.removeprefix(f"{label}/")
            if name != wanted and name in (states := _names_by_label(operator)):
                return operator, states[name]
    names = [f"{op.label}/{name}" for op in operators for name in _names_by_label(op)]
    raise NotFoundError(
        f"snapshot {snapshot_id} has no state {wanted!r}",
        remedy=f"it has: {', '.join(names) or 'none'}{did_you_mean(wanted, names)}",
    )


def _names_by_label(operator: OperatorRecord) -> dict[str, str]:
    """Return the names of an operator's states by their labels; `timers` stands for all timers."""
    names = {label: state.name for state in operator.all_states for label in state.labels}
    has_timers = any(state.kind == TIMERS for state in operator.states)
    return names | ({TIMERS: TIMERS} if has_timers else {})


def tables_of(operator: OperatorRecord, state: str) -> list[str]:
    """Return the tables of a state."""
    keyed = [keyed_state.table for keyed_state in operator.states if _has_label(keyed_state, state)]
    others = [
        operator_state.table
        for operator_state in operator.operator_states
        if operator_state.name == state
    ]
    return list(dict.fromkeys(keyed or others))


def without_state(operator: OperatorRecord, state: str) -> OperatorRecord:
    """Return the operator without a state, and without tables that no other state needs."""
    keyed = [keyed_state for keyed_state in operator.states if not _has_label(keyed_state, state)]
    others = operator.operator_states
    if len(keyed) == len(operator.states):
        others = [other for other in others if other.name != state]
    return operator.with_states(keyed, others)


def _has_label(state: StateRecord, name: str) -> bool:
    return name in (state.name, TIMERS if state.kind == TIMERS else state.name)


def refuse_cut_channels(
    operators: Sequence[OperatorMetadata], dropped_ids: Collection[str]
) -> None:
    """Refuse to drop only one end of an exchange with records in flight.

    Args:
        operators: All operators.
        dropped_ids: The ids of operators to drop.

    Raises:
        UnsupportedFormatError: A dropped operator and one that stays have records in flight.
    """
    having = [
        operator
        for operator in operators
        if any(subtask.inputs or subtask.outputs for subtask in (operator.subtasks or {}).values())
    ]
    cut = [operator for operator in having if operator.operator_id in dropped_ids]
    if 0 < len(cut) < len(having):
        raise UnsupportedFormatError(
            "records in flight at its exchanges with other operators, which would be lost",
            place=f"operator {cut[0].uid or cut[0].operator_id}",
            remedy="keep all operators that have some, or none; or `statelake export"
            " --drop-channel-state`, import that, and edit it",
        )
