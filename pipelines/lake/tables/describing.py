"""Descriptions of operators of the lake, with the counts that an import stored."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from statelake.pipelines.lake.tables.records import (
    OperatorRecord,
    OperatorStateRecord,
    StateRecord,
)
from statelake.pipelines.lake.tables.table_rows import parse_recorded
from statelake.state_core.formats.description import KINDS, OperatorDescription, StateDescription
from statelake.state_core.formats.layout.keyed_states import named_types
from statelake.state_core.model.handles import DistributionMode


def group_totals(states: Iterable[StateRecord]) -> npt.NDArray[np.int64]:
    """Return three rows, summed over states: key groups with entries, their entries and bytes."""
    each = [group for state in states for group in state.key_groups]
    groups, at = np.unique(
        np.array([group.key_group for group in each], np.int64), return_inverse=True
    )
    totals = np.zeros((3, len(groups)), np.int64)
    totals[0] = groups
    np.add.at(totals[1], at, [group.entries for group in each])
    np.add.at(totals[2], at, [group.state_bytes for group in each])
    return totals


def describe_recorded(operator: OperatorRecord, *, schemas: int = 0) -> OperatorDescription:
    """Return the description of an operator of a snapshot of the lake.

    Args:
        operator: The operator.
        schemas: The number of keyed states, from the first, whose columns are listed.
    """
    return OperatorDescription(
        operator.operator_id,
        operator.uid,
        operator.name,
        operator.parallelism,
        operator.max_parallelism,
        operator.state_bytes,
        keyed_states=tuple(
            _keyed_state(operator, state, with_schema=number < schemas)
            for number, state in enumerate(operator.states)
        ),
        operator_states=tuple(map(_operator_state, operator.operator_states)),
        key_groups=group_totals(operator.states),
        counted=True,
        node=operator.node,
        query=operator.query,
    )


def _keyed_state(
    operator: OperatorRecord, state: StateRecord, *, with_schema: bool
) -> StateDescription:
    groups = [(each.key_group, each.entries, each.state_bytes) for each in state.key_groups]
    names = operator.names_of(state)
    return StateDescription(
        state.name,
        state.kind,
        operator.key_type,
        state.namespace_type,
        state.value_type,
        state.user_key_type,
        state.ttl,
        schema=parse_recorded(operator, state).schema if with_schema else None,
        entries=state.entries,
        size=state.state_bytes,
        key_groups=np.array(groups, np.int64).reshape(-1, 3).T,
        names=names,
        named=named_types(state.meta_info, operator.key_serializer, names),
    )


def _operator_state(state: OperatorStateRecord) -> StateDescription:
    mode = DistributionMode[state.mode]
    return StateDescription(
        state.name,
        KINDS[mode],
        state.key_type,
        value_type=state.value_type,
        mode=mode,
        elements=state.elements,
        subtasks=len(state.subtasks),
        entries=state.elements,
        size=state.state_bytes,
    )
