"""What a new column of an aggregate is in full: computed from the rows that the node below holds.

Below an aggregate of rows that are updated there is a node that holds them: the last row of each
key, the groups of another aggregate, both sides of a join. What it has emitted, less what it has
taken back, follows from its state. So a new accumulator need not begin now: it is folded from
there, if that state is complete, and each column on the way is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from statelake.state_core.errors import IncompatibleError
from statelake.state_core.plans.lineage import (
    NORMALIZE,
    WHOLE_NUMBERS,
    Relation,
    aggregated,
    function_name,
    widens,
)
from statelake.state_core.plans.plan import Plan, PlanNode, plan_type
from statelake.state_core.plans.states import Place, StateColumn, emitted_columns
from statelake.state_core.serializers.sql.binary.projected import reserved_bytes
from statelake.state_core.serializers.sql.types.logical_types import LogicalType

if TYPE_CHECKING:
    from statelake.state_core.plans.matching import ColumnMatch, OperatorMatch, StateMatch

PASSED = ("exchange", "mini-batch-assigner", "watermark-assigner")
LOCAL = "local-group-aggregate"
SUMMED = (*WHOLE_NUMBERS, "DECIMAL")
COMPARED = (
    *SUMMED, "FLOAT", "DOUBLE", "CHAR", "VARCHAR", "DATE", "TIME_WITHOUT_TIME_ZONE",
    "TIMESTAMP_WITHOUT_TIME_ZONE", "TIMESTAMP_WITH_LOCAL_TIME_ZONE",
)  # fmt: skip


class Emits(Enum):
    """How a node emits what it holds in a column."""

    VALUE = "as it is"
    COUNTED = "as it is, and NULL where the other column is 0"
    EXTREME = "the first field of an object, and NULL where the second is 0"
    AVERAGE = "divided by the other column, and NULL where that is 0"


@dataclass(frozen=True)
class Held:
    """A column of the rows that a node emits, as its state has it.

    Attributes:
        state: The name of the state.
        place: The place of the row in it.
        index: The column of that row.
        type: The type that is emitted.
        emits: How.
        other: Another column of the row.
    """

    state: str
    place: Place
    index: int
    type: LogicalType
    emits: Emits = Emits.VALUE
    other: int = -1


@dataclass(frozen=True)
class Side:
    """A state whose rows are emitted, or joined.

    Attributes:
        state: Its name.
        counted: Whether a row is there as often as the value says; its row is the map's key.
    """

    state: str
    counted: bool = False


@dataclass(frozen=True)
class Fold:
    """From what new columns of an aggregate are computed.

    Attributes:
        node: The number of the node of the old plan that holds the rows.
        label: What it is called.
        sides: Its states: one, or those of both sides of a join.
        not_null: The columns of a join's key that are equal to nothing where they are NULL.
        keys: The columns by which the aggregate groups.
        arguments: Those that it adds up, by their index in its input.
    """

    node: int
    label: str
    sides: tuple[Side, ...]
    not_null: tuple[int, ...]
    keys: tuple[Held, ...]
    arguments: Mapping[int, Held]


@dataclass(frozen=True)
class _Emitted:
    """What a node emits: columns that are held, or the reason why they can't be computed."""

    match: OperatorMatch
    sides: tuple[Side, ...]
    not_null: tuple[int, ...]
    columns: tuple[Held | str, ...]


def fold_of(
    match: OperatorMatch,
    columns: Sequence[StateColumn],
    plan: Plan,
    relations: Mapping[int, Relation],
    found: Mapping[int, OperatorMatch],
) -> Fold:
    """Return from what new columns of an aggregate can be computed.

    Args:
        match: The aggregate, and the one that it goes on from.
        columns: Its new columns.
        plan: The new plan.
        relations: What each of its nodes emits.
        found: The operators of the new plan by number, as they were matched.

    Raises:
        IncompatibleError: They can't be; the problem says why.
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
    number, grouping = _passed(plan, new.node.inputs[0]), new.node.spec["grouping"]
    if plan.nodes[number].kind == LOCAL:
        grouping = plan.nodes[number].spec["grouping"]
        (number,) = plan.nodes[number].inputs
    emitted = _emitted(plan, number, relations, found)
    source = emitted.match
    arguments = {}
    for column in columns:
        argument = _argument(column)
        if argument >= 0:
            arguments[argument] = _held(emitted, argument)
            _refuse_type(column, arguments[argument].type)
    keys = tuple(_held(emitted, each) for each in grouping)
    assert source.old is not None  # noqa: S101 - by _emitted
    return Fold(source.old.node.id, source.label, emitted.sides, emitted.not_null, keys, arguments)


def _passed(plan: Plan, number: int) -> int:
    """Return the node whose rows come, as they are, through others."""
    while plan.nodes[number].kind in PASSED:
        (number,) = plan.nodes[number].inputs
    return number


def _argument(column: StateColumn) -> int:
    if column.adds is None:
        function = column.text.partition("(")[0]
        what = "DISTINCT" if "(DISTINCT " in column.text or column.is_view else function
        what = "FILTER" if ") FILTER (" in column.text and what == function else what
        raise IncompatibleError(f"{what} is not computed from rows")
    return column.adds.argument


def _refuse_type(column: StateColumn, kind: LogicalType) -> None:
    assert column.adds is not None  # noqa: S101 - by _argument
    function = column.adds.function
    if function == "sum" and kind.root not in SUMMED:
        raise IncompatibleError(f"a sum of {kind} depends on the order in which it was added up")
    if function in ("min", "max") and kind.root not in COMPARED:
        raise IncompatibleError(f"{function.upper()} of {kind} is not computed from rows")


def _held(emitted: _Emitted, index: int) -> Held:
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


def _emitted(
    plan: Plan,
    number: int,
    relations: Mapping[int, Relation],
    found: Mapping[int, OperatorMatch],
) -> _Emitted:
    """Return what a node emits, by the state of the one that holds it.

    Raises:
        IncompatibleError: No node holds it, or its state is not known to be complete.
    """
    number = _passed(plan, number)
    node = plan.nodes[number]
    if node.kind == "calc":
        below = _emitted(plan, node.inputs[0], relations, found)
        if node.spec.get("condition") is not None:
            raise IncompatibleError(f"{node.label} filters what {below.match.label} emits")
        columns = tuple(_projected(each, below) for each in node.spec["projection"])
        return replace(below, columns=columns)
    rule = RULES.get(node.kind)
    if rule is None:
        raise IncompatibleError(f"it reads rows of {node.label}, of which nothing is held")
    match = found.get(number)
    if match is None or match.old is None:
        raise IncompatibleError(f"{node.label} is new")
    if match.fate.rank or match.keys:
        raise IncompatibleError(f"what {node.label} holds does not stay as it is")
    _refuse_ttl(match)
    if not match.states or len(match.states) != len(match.old.states):
        raise IncompatibleError(f"what {node.label} holds is not known")
    return rule(node, match, [relations[each] for each in node.inputs])


def _projected(each: Mapping[str, Any], below: _Emitted) -> Held | str:
    """Return a column that a Calc emits: one that it reads, perhaps of a wider type."""
    if each.get("kind") == "INPUT_REF":
        index: int = each["inputIndex"]
        return below.columns[index]
    if each.get("internalName") == "$CAST$1" and each["operands"][0].get("kind") == "INPUT_REF":
        read: Held | str = below.columns[each["operands"][0]["inputIndex"]]
        to = plan_type(each["type"])
        if isinstance(read, str):
            return read
        if widens(read.type, to) or read.type.text == to.text:
            return replace(read, type=to)
    return "what it adds up is an expression, and no column"


def _kept(node: PlanNode, state: StateMatch, place: Place, index: int, name: str) -> int | str:
    """Return the column of the old row that is the same as a new one's, or why there is none."""
    column: ColumnMatch = state.columns[place][index]
    if column.old is None or column.fate.rank or column.filled or column.counted is not None:
        return f"{node.label} does not have all of {name} itself"
    return column.old


def _rows(node: PlanNode, match: OperatorMatch, _: Sequence[Relation]) -> _Emitted:
    """Return the rows of a node that holds all of the last row of each key."""
    if node.kind == "deduplicate" and not node.spec["keepLastRow"]:
        raise IncompatibleError(f"{node.label} does not hold the rows that it has emitted")
    (state,) = match.states
    if state.new.form != "row":
        raise IncompatibleError(f"{node.label} does not hold the rows that it has emitted")
    columns = _columns(node, state, Place.VALUE)
    if len(columns) != len(node.columns):
        raise IncompatibleError(f"{node.label} emits more than it holds")
    return _Emitted(match, (Side(state.old.name),), (), columns)


def _columns(node: PlanNode, state: StateMatch, place: Place) -> tuple[Held | str, ...]:
    columns: list[Held | str] = []
    for index, held in enumerate(state.new.rows[place]):
        old = _kept(node, state, place, index, held.name)
        if isinstance(old, str) or held.type is None:
            columns.append(str(old))
        else:
            columns.append(Held(state.old.name, place, old, held.type))
    return tuple(columns)


def _groups(node: PlanNode, match: OperatorMatch, inputs: Sequence[Relation]) -> _Emitted:
    """Return what another aggregate emits: its key, and what its accumulators come to."""
    assert match.old is not None and match.new is not None  # noqa: S101, PT018 - by _emitted
    (state,) = match.states
    read, _, _ = aggregated(node, inputs[0])
    columns: list[Held | str] = [
        Held(state.old.name, Place.KEY, index, kind)
        for index, kind in enumerate(match.new.key_types)
    ]
    calls = emitted_columns(node, read)
    for (call, held, at), column in zip(calls, node.columns[len(columns) :], strict=True):
        olds = [
            _kept(node, state, Place.VALUE, at + index, each.name)
            for index, each in enumerate(held)
        ]
        wrong = [each for each in olds if isinstance(each, str)]
        if wrong:
            columns.append(wrong[0])
            continue
        indexes = [each for each in olds if isinstance(each, int)]
        made = Held(state.old.name, Place.VALUE, indexes[0], column.type)
        columns.append(_emits(call, made, indexes, held))
    return _Emitted(match, (Side(state.old.name),), (), tuple(columns))


def _emits(
    call: Mapping[str, Any], made: Held, indexes: Sequence[int], held: Sequence[StateColumn]
) -> Held | str:
    """Return how an aggregate emits what the columns of a call hold."""
    function = function_name(call).removeprefix("$")
    if function in ("COUNT", "SUM0") or (function in ("SUM", "MIN", "MAX") and len(held) == 1):
        if held[0].type is None:
            return replace(made, emits=Emits.EXTREME)
        return made
    if function == "SUM":
        return replace(made, emits=Emits.COUNTED, other=indexes[1])
    whole = held[0].type is not None and held[0].type.root == "BIGINT"
    if function == "AVG" and whole and made.type.root in WHOLE_NUMBERS:
        return replace(made, emits=Emits.AVERAGE, other=indexes[1])
    return f"what {function} below it emits is not computed"


def _join(node: PlanNode, match: OperatorMatch, _: Sequence[Relation]) -> _Emitted:
    """Return the rows of an inner join, of which both sides are held."""
    spec = node.spec["joinSpec"]
    if spec["joinType"] != "INNER" or spec.get("nonEquiCondition") is not None:
        raise IncompatibleError(f"{node.label} is no inner join by equal columns alone")
    columns: list[Held | str] = []
    sides = []
    for state in match.states:
        rows = Place.VALUE if Place.VALUE in state.new.rows else Place.USER_KEY
        columns += _columns(node, state, rows)
        sides.append(Side(state.old.name, rows is Place.USER_KEY))
    nulls = spec.get("filterNulls") or ()
    not_null = tuple(index for index, filtered in enumerate(nulls) if filtered)
    return _Emitted(match, tuple(sides), not_null, tuple(columns))


RULES: Mapping[str, Callable[[PlanNode, OperatorMatch, Sequence[Relation]], _Emitted]] = {
    NORMALIZE: _rows,
    "deduplicate": _rows,
    "group-aggregate": _groups,
    "global-group-aggregate": _groups,
    "join": _join,
}
