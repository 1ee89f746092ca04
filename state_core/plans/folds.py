"""Complete new columns of an aggregate, computed from the rows that the node below keeps.

Below an aggregate of rows that are updated there is a node that holds them: the last row of each
key, the groups of another aggregate, both sides of a join. What it has emitted, less what it has
taken back, follows from its state. So a new accumulator need not begin now: it is folded from
there, if that state is complete, and each column on the way is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from statelake.state_core.errors import IncompatibleError
from statelake.state_core.plans.expressions import Emits, Expression, StoredColumn, expression_of
from statelake.state_core.plans.lineage import Relation, grouping_of
from statelake.state_core.plans.matches import (
    ColumnMatch,
    Fold,
    FoldSide,
    OperatorMatch,
    StateMatch,
)
from statelake.state_core.plans.meanings import WHOLE_NUMBERS, Aggregate, function_name
from statelake.state_core.plans.plan import Plan, PlanNode
from statelake.state_core.plans.states import StateColumn, ValuePlace
from statelake.state_core.plans.versions import UNFILTERED
from statelake.state_core.serializers.sql.binary.projected import reserved_bytes
from statelake.state_core.serializers.sql.types.logical_types import LogicalType

PASSED = ("exchange", "mini-batch-assigner", "watermark-assigner", "local-group-aggregate")
SUMMED = (*WHOLE_NUMBERS, "DECIMAL")
COMPARED = (
    *SUMMED, "FLOAT", "DOUBLE", "CHAR", "VARCHAR", "DATE", "TIME_WITHOUT_TIME_ZONE",
    "TIMESTAMP_WITHOUT_TIME_ZONE", "TIMESTAMP_WITH_LOCAL_TIME_ZONE",
)  # fmt: skip


@dataclass(frozen=True)
class _Emitted:
    """The output of a node: stored columns, or the reason why they can't be computed."""

    match: OperatorMatch
    sides: tuple[FoldSide, ...]
    not_null: tuple[int, ...]
    columns: tuple[Expression | str, ...]
    conditions: tuple[Expression, ...] = ()


def fold_of(
    match: OperatorMatch,
    column: StateColumn,
    plan: Plan,
    relations: Mapping[int, Relation],
    matches: Mapping[int, OperatorMatch],
) -> Fold:
    """Return from what a new column of an aggregate can be computed.

    Args:
        match: The aggregate, and the one that it goes on from.
        column: Its new column.
        plan: The new plan.
        relations: What each of its nodes emits.
        matches: The operators of the new plan by number, as they were matched.

    Raises:
        IncompatibleError: It can't be; the problem says why.
    """
    old, new = match.old, match.new
    assert old is not None and new is not None  # noqa: S101, PT018 - by the caller
    if old.family != "groups" or not old.states or not old.states[0].updates:
        raise IncompatibleError("only a GROUP BY of updated rows is computed from the rows below")
    if match.fate.rank or match.keys:
        raise IncompatibleError("not all else of it stays as it is")
    _refuse_ttl(match)
    for kind in new.key_types:
        if kind.nullable and reserved_bytes(kind):
            raise IncompatibleError(f"NULL in {kind}, by which it groups, has two forms")
    grouping = grouping_of(new.node, relations[new.node.inputs[0]])
    emitted = _emitted(plan, new.node.inputs[0], matches)
    source = emitted.match
    arguments = {index: _held(emitted, index) for index in _read_by(column)}
    if column.unfiltered:
        raise IncompatibleError(UNFILTERED)
    if column.adds is not None and column.adds.argument >= 0:
        _refuse_type(column.adds.function, arguments[column.adds.argument].type)
    keys = tuple(_held(emitted, each) for each in grouping)
    assert source.old is not None  # noqa: S101 - by _emitted
    return Fold(
        source.old.node.id, source.label, emitted.sides, emitted.not_null, keys, arguments,
        emitted.conditions,
    )  # fmt: skip


def passed_by(plan: Plan, number: int) -> int:
    """Return the node whose rows come, as they are, through others; also through a local phase."""
    while plan.nodes[number].kind in PASSED:
        (number,) = plan.nodes[number].inputs
    return number


def _read_by(column: StateColumn) -> list[int]:
    """Return the columns of rows that a column of an accumulator adds up, and is filtered by."""
    if column.adds is None:
        call = column.meaning
        assert isinstance(call, Aggregate)  # noqa: S101 - of an accumulator
        what = "DISTINCT" if call.distinct else call.function
        raise IncompatibleError(f"{what} is not computed from rows")
    return [each for each in (column.adds.argument, column.adds.only) if each >= 0]


def _refuse_type(function: str, kind: LogicalType) -> None:
    if function == "sum" and kind.root not in SUMMED:
        raise IncompatibleError(f"a sum of {kind} depends on the order in which it was added up")
    if function in ("min", "max") and kind.root not in COMPARED:
        raise IncompatibleError(f"{function.upper()} of {kind} is not computed from rows")


def _held(emitted: _Emitted, index: int) -> Expression:
    column = emitted.columns[index]
    if isinstance(column, str):
        raise IncompatibleError(column)
    return column


def _refuse_ttl(match: OperatorMatch) -> None:
    for states in (match.old, match.new):
        for state in () if states is None else states.states:
            if states is not None and states.has_ttl(state.index):
                raise IncompatibleError(
                    f"{states.node.label} has a time to live: what has expired is not known"
                )


def _emitted(plan: Plan, number: int, matches: Mapping[int, OperatorMatch]) -> _Emitted:
    """Return what a node emits, by the state of the one that holds it.

    Raises:
        IncompatibleError: No node holds it, or its state is not known to be complete.
    """
    number = passed_by(plan, number)
    node = plan.nodes[number]
    if node.kind == "calc":
        below = _emitted(plan, node.inputs[0], matches)
        columns = tuple(expression_of(each, below.columns) for each in node.spec["projection"])
        passed = _conditions(node.spec.get("condition"), below)
        return replace(below, columns=columns, conditions=passed)
    rule = RULES.get(node.kind)
    if rule is None:
        raise IncompatibleError(f"it reads rows of {node.label}, which are not stored")
    match = matches.get(number)
    if match is None or match.old is None:
        raise IncompatibleError(f"{node.label} is new")
    if match.fate.rank or match.keys:
        raise IncompatibleError(f"what {node.label} holds does not stay as it is")
    _refuse_ttl(match)
    if not match.states or len(match.states) != len(match.old.states):
        raise IncompatibleError(f"what {node.label} holds is not known")
    return rule(node, match)


def _conditions(condition: Mapping[str, Any] | None, below: _Emitted) -> tuple[Expression, ...]:
    """Return the conditions that rows pass, with one more."""
    if condition is None:
        return below.conditions
    made = expression_of(condition, below.columns)
    if isinstance(made, str):
        raise IncompatibleError(made)
    return (*below.conditions, made)


def _kept(node: PlanNode, state: StateMatch, place: ValuePlace, index: int, name: str) -> int | str:
    """Return the column of the old row that is the same as a new one's, or why no column is."""
    column: ColumnMatch = state.columns[place][index]
    if column.old is None or column.fate.rank or column.filled or column.counted is not None:
        return f"{node.label} does not have all of {name} itself"
    return column.old


def _rows(node: PlanNode, match: OperatorMatch) -> _Emitted:
    """Return the rows of a node that holds all of the last row of each key."""
    if node.kind == "deduplicate" and not node.spec["keepLastRow"]:
        raise IncompatibleError(f"{node.label} does not hold the rows that it has emitted")
    (state,) = match.states
    if state.new.form != "row":
        raise IncompatibleError(f"{node.label} does not hold the rows that it has emitted")
    columns = _columns(node, state, ValuePlace.VALUE)
    if len(columns) != len(node.columns):
        raise IncompatibleError(f"{node.label} emits other columns than it holds")
    return _Emitted(match, (FoldSide(state.old.name),), (), columns)


def _columns(node: PlanNode, state: StateMatch, place: ValuePlace) -> tuple[Expression | str, ...]:
    columns: list[Expression | str] = []
    for index, stored in enumerate(state.new.rows[place]):
        old = _kept(node, state, place, index, stored.name)
        if isinstance(old, str) or stored.type is None:
            columns.append(str(old))
        else:
            columns.append(StoredColumn(state.old.name, place, old, stored.type))
    return tuple(columns)


def _groups(node: PlanNode, match: OperatorMatch) -> _Emitted:
    """Return what another aggregate emits: its key, and what its accumulators come to."""
    assert match.old is not None and match.new is not None  # noqa: S101, PT018 - by _emitted
    (state,) = match.states
    columns: list[Expression | str] = [
        StoredColumn(state.old.name, ValuePlace.KEY, index, kind)
        for index, kind in enumerate(match.new.key_types)
    ]
    calls, emitted = node.spec["aggCalls"], node.columns[len(columns) :]
    if len(calls) != len(emitted):
        raise IncompatibleError(f"{node.label} emits other columns than it holds")
    for index, (call, column) in enumerate(zip(calls, emitted, strict=True)):
        own = {
            at: each for at, each in enumerate(state.new.rows[ValuePlace.VALUE])
            if each.call == index
        }  # fmt: skip
        olds = [_kept(node, state, ValuePlace.VALUE, at, each.name) for at, each in own.items()]
        wrong = [each for each in olds if isinstance(each, str)]
        if wrong:
            columns.append(wrong[0])
            continue
        indexes = [each for each in olds if isinstance(each, int)]
        made = StoredColumn(state.old.name, ValuePlace.VALUE, indexes[0], column.type)
        columns.append(_emits(call, made, indexes, list(own.values())))
    return _Emitted(match, (FoldSide(state.old.name),), (), tuple(columns))


def _emits(
    call: Mapping[str, Any], made: StoredColumn, indexes: Sequence[int], kept: Sequence[StateColumn]
) -> StoredColumn | str:
    """Return the way in which an aggregate emits the content of a call's columns."""
    function = function_name(call).removeprefix("$")
    if function in ("COUNT", "SUM0") or (function in ("SUM", "MIN", "MAX") and len(kept) == 1):
        if kept[0].type is None:
            return replace(made, emits=Emits.EXTREME)
        return made
    if function == "SUM":
        return replace(made, emits=Emits.COUNTED, other=indexes[1])
    is_bigint = kept[0].type is not None and kept[0].type.root == "BIGINT"
    if function == "AVG" and is_bigint and made.type.root in WHOLE_NUMBERS:
        return replace(made, emits=Emits.AVERAGE, other=indexes[1])
    return f"what {function} below it emits is not computed"


def _join(node: PlanNode, match: OperatorMatch) -> _Emitted:
    """Return the rows of an inner join, of which both sides are held."""
    spec = node.spec["joinSpec"]
    if spec["joinType"] != "INNER":
        raise IncompatibleError(f"{node.label} is no inner join")
    columns: list[Expression | str] = []
    sides = []
    for state in match.states:
        rows = ValuePlace.VALUE if ValuePlace.VALUE in state.new.rows else ValuePlace.USER_KEY
        columns += _columns(node, state, rows)
        sides.append(FoldSide(state.old.name, rows is ValuePlace.USER_KEY))
    nulls = spec.get("filterNulls") or ()
    not_null = tuple(index for index, filtered in enumerate(nulls) if filtered)
    joined = _Emitted(match, tuple(sides), not_null, tuple(columns))
    return replace(joined, conditions=_conditions(spec.get("nonEquiCondition"), joined))


RULES: Mapping[str, Callable[[PlanNode, OperatorMatch], _Emitted]] = {
    "changelog-normalize": _rows,
    "deduplicate": _rows,
    "group-aggregate": _groups,
    "global-group-aggregate": _groups,
    "join": _join,
}
