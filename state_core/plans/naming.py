"""Names of a snapshot's operators, keys and columns, from the compiled plan of its job.

The rows of Flink SQL's state have no names for their fields; the plan has them: `sum_amount` of an
accumulator, the columns of a join's rows and of a GROUP BY. A plan fits a snapshot if each operator
with keyed state is one of its nodes, and has the rows that the node predicts; else it is refused,
since names that are wrong would be worse than none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from statelake.state_core.errors import DeclarationError, IncompatibleError, StateError
from statelake.state_core.formats.layout.keyed_layout import USER_KEY
from statelake.state_core.formats.layout.keyed_states import key_parts, value_snapshot
from statelake.state_core.formats.layout.meta_info import (
    parse_key_serializer,
    parse_state_meta_info,
)
from statelake.state_core.model.key_groups import operator_id_of_uid
from statelake.state_core.model.snapshot import (
    KeyedState,
    Operator,
    RowNames,
    Snapshot,
    StateKind,
)
from statelake.state_core.nested import plain_names
from statelake.state_core.plans.kinds import KINDS, lineage_of, states_of
from statelake.state_core.plans.plan import Plan
from statelake.state_core.plans.states import (
    NodeState,
    NodeStates,
    ValuePlace,
)
from statelake.state_core.plans.topology import OPERATORS, find_shape, operator_ids_of
from statelake.state_core.serializers.sql.row_data import (
    RowDataSerializerSnapshot,
    internal_snapshot,
    row_in,
)
from statelake.state_core.serializers.sql.types.logical_types import LogicalType, UnknownType

REMEDY = "give the plan of the job that took the savepoint"
LONGEST_QUERY = 2000
SHOWN = 5
HIGHEST = 1 << 14  # number of a node that is looked for where a savepoint has hashes alone
_UID = re.compile(r"(\d{1,18})_(.+)")
# names of operators behind the number of their node, where a savepoint of Flink 1 has hashes alone
NAMES = (
    "source", "sink", "kafka", "values", "upsert-materialize", "constraint-validator",
    "partitioner", "rowtime-inserter", "csv-source", "filesystem", "committer", "writer",
    "lookup-join-materialize",
)  # fmt: skip


@dataclass(frozen=True)
class OperatorNames:
    """The names of an operator of a snapshot in the plan of its job.

    Attributes:
        label: As Flink names its node, `GroupAggregate[5]`; empty if that is another operator, too.
        query: Flink's description of the node, in which users recognise their query.
        states: The names of the fields of its rows, by state.
    """

    label: str
    query: str
    states: Mapping[str, RowNames] = field(default_factory=dict)


def nodes_by_uid(
    plan: Plan, uids: Mapping[str, str]
) -> tuple[dict[str, tuple[int, str]], dict[str, str]]:
    """Return the operators of a job that runs a compiled plan, by id: node, and name in it.

    Args:
        plan: The plan.
        uids: The operators of a snapshot, each with its uid; empty if it is not known.

    Returns:
        Those of the plan, and of the others what they are instead.
    """
    guesses = {
        operator_id_of_uid(f"{node.id}_{name}"): (node.id, name)
        for node in plan.nodes.values()
        for name in (OPERATORS.get(node.kind, node.kind), *NAMES)
    }
    own = {uid: node for node in plan.nodes.values() if (uid := node.function_uid)}
    guesses |= {operator_id_of_uid(uid): (node.id, node.kind) for uid, node in own.items()}
    nodes: dict[str, tuple[int, str]] = {}
    others: dict[str, str] = {}
    for operator_id, uid in uids.items():
        if uid in own:
            nodes[operator_id] = own[uid].id, own[uid].kind
            continue
        parts = _UID.fullmatch(uid)
        number, name = (int(parts[1]), parts[2]) if parts else guesses.get(operator_id, (-1, ""))
        node = plan.nodes.get(number)
        if node is None:
            others[operator_id] = uid or operator_id
        elif name in KINDS and name not in (node.kind, OPERATORS.get(node.kind)):
            others[operator_id] = f"{uid} (of which the plan says {node.label})"
        else:
            nodes[operator_id] = number, name
    return nodes, others


def numbered_as(plan: Plan, uids: Mapping[str, str]) -> Plan:
    """Return a plan with the numbers that its nodes have in a job that runs a plan of the same SQL.

    Numbers are counted in the JVM that compiles, so that those of two plans of the same script
    differ by one amount.

    Args:
        plan: The plan; if it has the job's numbers, it is returned as it is.
        uids: The operators of the job's snapshot, each with its uid; empty if it is not known.

    Raises:
        IncompatibleError: It fits the snapshot by several amounts.
    """
    if plan.numbered:
        return plan
    nodes: dict[str, list[int]] = {}
    for node in plan.nodes.values():
        nodes.setdefault(OPERATORS.get(node.kind, node.kind), []).append(node.id)
    hashed = {
        operator_id_of_uid(f"{number}_{name}"): (number, name)
        for name in nodes
        for number in range(HIGHEST if not all(uids.values()) else 0)
    }
    known = [(int(parts[1]), parts[2]) for uid in uids.values() if (parts := _UID.fullmatch(uid))]
    known += [hashed[each] for each, uid in uids.items() if not uid and each in hashed]
    shifts = Counter(number - each for number, name in known for each in nodes.get(name, ()))
    (best, count), (_, second) = [*shifts.most_common(2), (0, 0), (0, -1)][:2]
    if count == second:
        raise IncompatibleError(
            "its nodes may be several of the savepoint's", place=plan.place, remedy=REMEDY
        )
    return plan.shifted(best)


def names_in(snapshot: Snapshot, plan: Plan) -> dict[str, OperatorNames]:
    """Return the names of a snapshot's operators, by id; of those that the plan has.

    Raises:
        DeclarationError: The plan is not that of the job that took the snapshot, or a node of it
            can't be understood.
    """
    states = states_of(plan, lineage_of(plan))
    nodes = _nodes_in(snapshot, plan)
    operators = {each.operator_id: each for each in snapshot.operators}
    stateful: dict[int, list[str]] = {}
    for operator_id, (number, _) in nodes.items():
        if _has_state(operators[operator_id]):
            stateful.setdefault(number, []).append(operator_id)
    named = {}
    for operator_id, (number, name) in nodes.items():
        node, operator = plan.nodes[number], operators[operator_id]
        try:
            rows = _state_names(operator, states[number]) if number in states else {}
        except StateError as error:
            where = f"{plan.place}, {node.label}, operator {operator.label}"
            raise DeclarationError(error.problem, place=where, remedy=error.remedy) from error
        ids = stateful.get(number, [])
        mine = ids == [operator_id] if len(ids) == 1 else name == node.kind
        label = node.label if mine else ""
        named[operator_id] = OperatorNames(label, node.title[:LONGEST_QUERY] if mine else "", rows)
    return named


def _nodes_in(snapshot: Snapshot, plan: Plan) -> dict[str, tuple[int, str]]:
    """Return the node of each of a snapshot's operators and its name, by id.

    Raises:
        DeclarationError: An operator with keyed state, or with a uid and state, is of no node.
    """
    nodes, others = nodes_by_uid(plan, {each.operator_id: each.uid for each in snapshot.operators})
    stateful = [each for each in snapshot.operators if _has_state(each)]
    # of what connectors call themselves, hashes alone tell nothing
    unknown = [
        each for each in stateful if each.operator_id in others and (each.uid or each.keyed_states)
    ]
    if stateful and not unknown and any(each.operator_id in nodes for each in stateful):
        return nodes
    ids = [each.operator_id for each in stateful]
    shape = None
    if not any(each.uid for each in stateful):
        every = [each.operator_id for each in snapshot.operators]
        keyed = [each.operator_id for each in stateful if each.keyed_states]
        shape = find_shape(plan, ids, every, keyed)
    if shape is not None:  # a job without a compiled plan
        by_id = {operator_id: at for at, operator_id in operator_ids_of(plan, shape).items()}
        return {
            each.operator_id: by_id[each.operator_id]
            for each in snapshot.operators
            if each.operator_id in by_id
        }
    if not stateful:
        return nodes
    shown = ", ".join(others[each.operator_id] for each in (unknown or stateful)[:SHOWN])
    raise DeclarationError(
        f"{shown} of {snapshot.location} {'are' if len(unknown) > 1 else 'is'} no operator of the"
        " plan",
        place=plan.place,
        remedy=f"{REMEDY}; if that ran its SQL without a compiled plan, compile it in the same"
        " Flink with the same settings",
    )


def _has_state(operator: Operator) -> bool:
    return bool(operator.total_bytes or operator.keyed_states or operator.operator_states)


def _state_names(operator: Operator, node: NodeStates) -> dict[str, RowNames]:
    """Return the names of the fields of an operator's rows, by state.

    Raises:
        IncompatibleError: It has other rows than the node.
    """
    predicted = {state.name: state for state in node.states}
    valued = [each.name for each in operator.keyed_states if each.kind is not StateKind.TIMERS]
    known = [name for name in valued if name in predicted or view_names(node, name).alias]
    if valued and predicted and not known:
        raise IncompatibleError(
            f"the snapshot has the state {', '.join(valued[:SHOWN])}, and the plan says"
            f" {', '.join(predicted)}",
            remedy=REMEDY,
        )
    if node.key_names and operator.keyed_files:
        row = row_in(parse_key_serializer(operator.key_serializer).snapshot)
        if not node.identity or len(row.types) == len(node.key_names):
            _fit(row, node.key_types or [None] * len(node.key_names), "its key")
        else:
            node = replace(node, key_names=())
    names = {}
    for keyed in operator.keyed_states:
        state = predicted.get(keyed.name)
        if state is not None and node.identity and not _has_rows(keyed, state):
            state = None
        if state is not None and keyed.kind is not StateKind.TIMERS:
            for place, columns in state.rows.items():
                row = row_at(keyed.meta_info, place)
                _fit(row, [each.type for each in columns], f"{place.value} of {keyed.name!r}")
        names[keyed.name] = row_names(node, state)
        if state is None:
            names[keyed.name] = view_names(node, keyed.name)
            _fit_view(node, keyed)
    return names


def _has_rows(keyed: KeyedState, state: NodeState) -> bool:
    """Return whether a state of a node that is kept as a whole has the rows that are known."""
    try:
        for place, columns in state.rows.items():
            refuse_other_types(row_at(keyed.meta_info, place), [each.type for each in columns])
    except IncompatibleError:
        return False
    return True


def row_names(node: NodeStates, state: NodeState | None) -> RowNames:
    """Return the names of the fields of a state's rows; of an unknown state those of its key."""
    key, rows = plain_names(node.key_names), {} if state is None else state.rows
    user_key, value = (
        plain_names([column.column for column in rows.get(place, ())])
        for place in (ValuePlace.USER_KEY, ValuePlace.VALUE)
    )
    return RowNames(key, user_key, value)


def view_names(node: NodeStates, name: str) -> RowNames:
    """Return the names of a data view's state: its alias is its column in the accumulator row.

    A set of distinct values is `distinct_item`, and what a function keeps beside its result the
    field of its object: `max_amount.map`. States that are no views have no alias.
    """
    names = row_names(node, None)
    for state in node.states:
        columns = state.rows.get(ValuePlace.VALUE, ())
        called = plain_names([column.column for column in columns])
        for column, of in zip(columns, called, strict=True):
            if column.owns(name):
                part = name.removeprefix(column.view).strip("_")
                return replace(names, alias=f"{of}.{part}" if part else of)
    return names


def row_at(meta_info: bytes, place: ValuePlace) -> RowDataSerializerSnapshot:
    """Return the row in a place of a state.

    Raises:
        IncompatibleError: The state is no map, or has no row of Flink SQL there.
    """
    if place is ValuePlace.USER_KEY:
        user_key = key_parts(meta_info).get(USER_KEY)
        if user_key is None:
            raise IncompatibleError("it is no map")
        return row_in(user_key)
    return row_in(value_snapshot(parse_state_meta_info(meta_info)))


def _fit(
    row: RowDataSerializerSnapshot, predicted: Sequence[LogicalType | None], where: str
) -> None:
    try:
        refuse_other_types(row, list(map(known_type, predicted)))
    except IncompatibleError as error:
        problem = f"{where}: {error.problem}"
        raise IncompatibleError(problem, remedy=error.remedy) from error


def _fit_view(node: NodeStates, state: KeyedState) -> None:
    """Refuse a view of other values than the plan's call has.

    Raises:
        IncompatibleError: Its map has other keys.
    """
    columns = [each for planned in node.states for each in planned.rows.get(ValuePlace.VALUE, ())]
    for column in columns:
        extreme = column.adds is not None and state.name == f"{column.view}map"
        if not (extreme or (column.is_view and state.name == column.view)) or len(column.of) != 1:
            continue
        (kind,) = map(known_type, column.of)
        if kind is None or kind.children:
            continue
        predicted = internal_snapshot(kind).restore_serializer().name
        if state.user_key_type != predicted:
            raise IncompatibleError(
                f"the map's key of {state.name!r}: the snapshot has {state.user_key_type}, and the"
                f" plan says {predicted}, of {column.name}",
                remedy=REMEDY,
            )


def known_type(kind: LogicalType | None) -> LogicalType | None:
    """Return a type; None if the plan has no text for all of it."""
    if kind is None or isinstance(kind, UnknownType) or None in map(known_type, kind.children):
        return None
    return kind


def refuse_other_types(
    row: RowDataSerializerSnapshot, predicted: Sequence[LogicalType | None]
) -> None:
    """Refuse a row of other types than a plan predicts.

    Args:
        row: The row.
        predicted: The types; None where only Java knows them.

    Raises:
        IncompatibleError: They differ.
    """
    types = [each.type for each in row.types]
    if len(types) == len(predicted) and all(
        kind is None or kind.text == has.text for kind, has in zip(predicted, types, strict=True)
    ):
        return
    shown = ", ".join("?" if kind is None else kind.text for kind in predicted)
    raise IncompatibleError(
        f"the snapshot has ({', '.join(each.text for each in types)}), and the plan says ({shown})",
        remedy=REMEDY,
    )
