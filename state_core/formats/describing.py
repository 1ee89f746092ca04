"""Descriptions of snapshots: operators, states and types, with counts and sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from statelake.state_core.errors import StateError, UnwalkableError
from statelake.state_core.formats.description import (
    KINDS,
    UNKNOWN,
    I64Array,
    OperatorDescription,
    SnapshotDescription,
    StateDescription,
    renamed_columns,
)
from statelake.state_core.formats.layout.keyed_states import named_types
from statelake.state_core.model.entries import CuttableFile
from statelake.state_core.model.handles import DistributionMode
from statelake.state_core.model.measure import measure_operator, measure_readable
from statelake.state_core.model.redistribution import NO_GROUPS, held_groups
from statelake.state_core.model.snapshot import (
    KeyedState,
    Operator,
    OperatorState,
    Snapshot,
)
from statelake.state_core.printable import first_of

AUTO_COUNT_BYTES = 2 << 30


def describe_snapshot(
    snapshot: Snapshot,
    describe: Callable[..., OperatorDescription],
    *,
    parallelism: int | None = None,
    entries: bool | None = None,
    schema: bool = False,
    key_groups: bool = True,
    keys: bool = False,
    types: bool = False,
) -> SnapshotDescription:
    """Return the description of a snapshot; arguments as for `Snapshot.describe`.

    `describe` is given each operator, as `describe_operator` is.

    Raises:
        CorruptSnapshotError: The bytes are not entries.
    """
    counted = snapshot.total_bytes <= AUTO_COUNT_BYTES if entries is None else entries
    typed = _types_of(snapshot) if types else {}
    return SnapshotDescription(
        snapshot.location,
        snapshot.kind,
        snapshot.format,
        snapshot.metadata_version,
        snapshot.checkpoint_id,
        UNKNOWN if snapshot.unread and snapshot.compression == "none" else snapshot.compression,
        tuple(
            _with_types(
                describe(
                    operator,
                    entries=counted,
                    schema=schema,
                    key_groups=key_groups,
                    keys=keys,
                    partial=snapshot.partial,
                ),
                typed,
            )
            for operator in snapshot.operators
        ),
        parallelism,
    )


def _types_of(snapshot: Snapshot) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the types of each state, by operator id and name."""
    from statelake.state_core.formats.layout.state_compatibility import (  # noqa: PLC0415 - if asked
        schemas_of_snapshot,
    )
    from statelake.state_core.formats.layout.state_types import typed_states  # noqa: PLC0415

    return typed_states(schemas_of_snapshot(snapshot))


def _with_types(
    described: OperatorDescription, typed: dict[tuple[str, str], dict[str, Any]]
) -> OperatorDescription:
    """Add the types of its states, if they are given."""
    if not typed:
        return described

    def of(states: tuple[StateDescription, ...]) -> tuple[StateDescription, ...]:
        return tuple(
            replace(each, types=typed.get((described.operator_id, each.name))) for each in states
        )

    return replace(
        described,
        keyed_states=of(described.keyed_states),
        operator_states=of(described.operator_states),
    )


def describe_operator(
    operator: Operator,
    *,
    entries: bool = True,
    schema: bool = False,
    key_groups: bool = True,
    keys: bool = False,
    partial: bool = False,
) -> OperatorDescription:
    """Return the description of an operator; arguments as for `Snapshot.describe`.

    Args:
        operator: The operator.
        entries: Whether to count entries.
        schema: Whether to list columns.
        key_groups: Whether to describe key groups.
        keys: Whether to add the heaviest key.
        partial: Whether to describe unreadable states as far as they are known.

    Raises:
        CorruptSnapshotError: The bytes are not entries, and `partial` is false.
    """
    counted = entries and key_groups
    totals, problems, uncounted = _totals(operator, counted, partial)
    groups, spread = NO_GROUPS, False
    is_whole = not problems and not any(each.is_keyed for each in operator.unread)
    if not is_whole:
        pass  # the readable part is not all of its key groups
    elif totals and not uncounted:
        entries_of, sizes_of = (sum(numbers) for numbers in zip(*totals.values(), strict=True))
        groups = held_groups(np.asarray(entries_of), np.asarray(sizes_of))
    elif key_groups and (uncounted or not counted):
        groups, spread = _stored_sizes(operator)
    keyed = (
        replace(
            _keyed_state(each, operator.key_serializer, totals.get(each.name), schema),
            uncounted=uncounted.get(each.name, ""),
            problem=problems.get(each.name, ""),
        )
        for each in operator.keyed_states
    )
    others = _operator_states(operator, counted, schema, partial)
    described = OperatorDescription(
        operator.operator_id,
        operator.uid,
        operator.name,
        operator.parallelism,
        operator.max_parallelism,
        operator.total_bytes,
        operator.subtask_states,
        operator.coordinator_bytes,
        operator.raw_bytes,
        operator.in_flight_bytes,
        operator.finished,
        tuple(keyed),
        tuple(others),
        groups,
        counted and is_whole and not uncounted,
        spread,
        problem=first_of([each.problem for each in operator.unread] or [*problems.values()]),
        node=operator.node,
        query=operator.query,
        unread=operator.unread,
    )
    return _with_key(described, operator) if keys else described


def _with_key(described: OperatorDescription, operator: Operator) -> OperatorDescription:
    """Add the heaviest key of the key group with the most bytes."""
    from statelake.state_core.formats.key_weights import heaviest_key  # noqa: PLC0415 - if asked

    key = heaviest_key(operator, described.heaviest[0]) if described.heaviest else None
    return replace(described, heaviest_key=key, keys_asked=True)


def _stored_sizes(operator: Operator) -> tuple[I64Array, bool]:
    """Return the stored bytes of each key group, and whether these are estimated equal shares."""
    weights: Counter[int] = Counter()
    spread = False
    for file in operator.keyed_files:
        sizes = file.group_bytes()
        if file.is_spread_evenly:
            spread = True
            sizes = file.looked_up_bytes() if isinstance(file, CuttableFile) else sizes
        for group, size in sizes:
            weights[group] += size
    by_group = sorted(weights.items())
    rows = [[group for group, _ in by_group], [0] * len(by_group), [size for _, size in by_group]]
    return np.array(rows, np.int64), spread


def _keyed_state(
    state: KeyedState,
    key_serializer: bytes,
    totals: tuple[I64Array, I64Array] | None,
    schema: bool,
) -> StateDescription:
    key_groups = None
    if totals is not None:
        key_groups = held_groups(*totals)
    return StateDescription(
        state.name,
        state.kind.value,
        state.key_type,
        state.namespace_type,
        state.value_type,
        state.user_key_type,
        state.with_ttl,
        schema=state.schema if schema else None,
        entries=None if key_groups is None else int(key_groups[1].sum()),
        size=None if key_groups is None else int(key_groups[2].sum()),
        key_groups=key_groups,
        names=state.names,
        named=named_types(state.meta_info, key_serializer, state.names),
        renamed=dict(renamed_columns(state.schema)),
    )


def _totals(
    operator: Operator, counted: bool, partial: bool
) -> tuple[dict[str, tuple[I64Array, I64Array]], dict[str, str], dict[str, str]]:
    """Return the entries and bytes of keyed states in each key group.

    Of other states it returns the reasons why they can't be read, and why their entries can't be
    located.
    """
    lost = next((each.problem for each in operator.unread if each.is_keyed and each.complete), "")
    if lost:
        return {}, {state.name: lost for state in operator.keyed_states}, {}
    if not counted or not operator.keyed_files:
        return {}, {}, {}
    errors: dict[str, StateError] = {}
    totals = (measure_readable if partial else measure_operator)(operator, errors)
    problems, uncounted = {}, {}
    for name, error in errors.items():
        totals.pop(name, None)
        if isinstance(error, UnwalkableError):
            uncounted[name] = f"{error.why}; {error.remedy}"
        else:
            problems[name] = str(error.within(f"operator {operator.label}, state {name!r}"))
    return totals, problems, uncounted


def _operator_states(
    operator: Operator, counted: bool, schema: bool, partial: bool
) -> tuple[StateDescription, ...]:
    """Return an operator's own states; those in unreadable files as their handles describe them."""
    described: dict[str, StateDescription] = {}
    for state in operator.operator_states:
        describe = _readable_operator_state if partial else _operator_state
        description = describe(state, counted, schema)
        place = f"operator {operator.label}, " if description.problem else ""
        described[state.name] = replace(description, problem=f"{place}{description.problem}")
    for each in operator.unread:
        for name, (mode, elements) in each.states.items():
            before = described.get(
                name, StateDescription(name, KINDS[mode], value_type=UNKNOWN, mode=mode)
            )
            if mode is DistributionMode.BROADCAST and name not in described:
                before = replace(before, key_type=UNKNOWN)
            described[name] = replace(
                before,
                elements=before.elements + elements,
                subtasks=before.subtasks + 1,
                entries=None,
                size=None,
                problem=before.problem or each.problem,
            )
    return tuple(described.values())


def _readable_operator_state(state: OperatorState, counted: bool, schema: bool) -> StateDescription:
    """Return the description of an operator state, without counts if it can't be read."""
    try:
        return _operator_state(state, counted, schema)
    except StateError as error:
        problem = f"operator state {state.name!r}: {error}"
        return replace(_operator_state(state, counted=False, schema=schema), problem=problem)


def _operator_state(state: OperatorState, counted: bool, schema: bool) -> StateDescription:
    parts = state.parts[:1] if state.broadcast else state.parts
    counts = [part.measure() for part in parts] if counted else []
    return StateDescription(
        state.name,
        KINDS[state.mode],
        state.key_type,
        value_type=state.value_type,
        mode=state.mode,
        elements=state.elements,
        subtasks=len(state.parts),
        schema=state.schema if schema else None,
        entries=sum(entries for entries, _ in counts) if counted else None,
        size=sum(size for _, size in counts) if counted else None,
        renamed=dict(renamed_columns(state.schema)),
    )
