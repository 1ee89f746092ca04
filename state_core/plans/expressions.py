"""Expressions of a plan that can be computed from what is held: comparisons, whole numbers.

What is known here is computed as Flink does: NULL is neither true nor false, whole numbers wrap
around, texts are compared by their bytes. Everything else has a reason why it can't be computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.plans.lineage import widens
from statelake.state_core.plans.meanings import MAX_DEPTH, WHOLE_NUMBERS
from statelake.state_core.plans.plan import plan_type
from statelake.state_core.plans.states import MAX_DECIMAL, ValuePlace
from statelake.state_core.serializers.sql.types.logical_types import DecimalType, LogicalType

TEXTS = ("CHAR", "VARCHAR")
COMPARISONS: Mapping[str, Callable[..., pa.Array]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
ARITHMETIC: Mapping[str, Callable[..., pa.Array]] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
}
LOGIC: Mapping[str, Callable[..., pa.Array]] = {
    "AND": pc.and_kleene,
    "OR": pc.or_kleene,
    "NOT": pc.invert,
    "IS NULL": pc.is_null,
    "IS NOT NULL": pc.is_valid,
    "IS TRUE": lambda value: pc.fill_null(value, False),
    "IS NOT TRUE": lambda value: pc.invert(pc.fill_null(value, False)),
    "IS FALSE": lambda value: pc.invert(pc.fill_null(value, True)),
    "IS NOT FALSE": lambda value: pc.fill_null(value, True),
}
_ARROW = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64(),
}  # fmt: skip


class Emits(Enum):
    """The way in which a node emits the content of a column."""

    VALUE = "as it is"
    COUNTED = "as it is, and NULL where the other column is 0"
    EXTREME = "the first field of an object, and NULL where the second is 0"
    AVERAGE = "divided by the other column, and NULL where that is 0"


@dataclass(frozen=True)
class StoredColumn:
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
    place: ValuePlace
    index: int
    type: LogicalType
    emits: Emits = Emits.VALUE
    other: int = -1


@dataclass(frozen=True)
class Constant:
    """A constant: a whole number, a decimal, a text, a truth value, or NULL."""

    value: Any
    type: LogicalType


@dataclass(frozen=True)
class Computed:
    """A value that is computed of others.

    Attributes:
        function: What is done, as plans name it.
        operands: Of what.
        type: The type of the result.
    """

    function: str
    operands: tuple[Expression, ...]
    type: LogicalType


Expression: TypeAlias = "StoredColumn | Constant | Computed"


def expression_of(
    value: Mapping[str, Any], columns: Sequence[Expression | str], depth: int = 0
) -> Expression | str:
    """Return an expression of a plan (a RexNode); the reason if it can't be computed.

    Args:
        value: The expression.
        columns: What it reads, or why that can't be computed.
        depth: How deep it is nested.
    """
    kind = value.get("kind")
    if kind == "INPUT_REF":
        index: int = value["inputIndex"]
        return columns[index]
    if depth > MAX_DEPTH or "type" not in value:
        return "an expression on the way is not known here"
    to = plan_type(value["type"])
    if kind == "LITERAL" and "sarg" not in value:
        return _constant(value["value"], to)
    if kind != "CALL":
        return f"an expression on the way is a {kind}"
    name = str(value.get("internalName", "")).removeprefix("$").removesuffix("$1")
    operands: list[Expression] = []
    if name == "SEARCH":
        return _search(value["operands"], columns, to, depth)
    for each in value.get("operands") or ():
        made = expression_of(each, columns, depth + 1)
        if isinstance(made, str):
            return made
        operands.append(made)
    types = [each.type for each in operands]
    if name == "CAST" and len(types) == 1:
        if types[0].text == to.text:
            return operands[0]
        known = widens(types[0], to) or types[0].root == to.root == "BOOLEAN"
    elif name in COMPARISONS:
        known = len(types) == 2 and _comparable(*types)
    elif name in ARITHMETIC:
        known = len(types) == 2 and all(widens(each, to) for each in types)
        known = known and to.root in WHOLE_NUMBERS
    else:
        known = name in LOGIC and bool(types)
        known = known and ("NULL" in name or all(each.root == "BOOLEAN" for each in types))
    if not known:
        shown = ", ".join(map(str, types))
        return f"{name or value.get('syntax')}({shown}) on the way is not known here"
    return Computed(name, tuple(operands), to)


def _comparable(one: LogicalType, other: LogicalType) -> bool:
    numbers = (*WHOLE_NUMBERS, "DECIMAL")
    return any(one.root in kinds and other.root in kinds for kinds in (numbers, TEXTS))


def _constant(value: Any, kind: LogicalType) -> Constant | str:
    is_whole_number = kind.root in WHOLE_NUMBERS and isinstance(value, int | str)
    known = (*WHOLE_NUMBERS, "DECIMAL", "BOOLEAN", *TEXTS)
    if (value is None and kind.root in known) or isinstance(value, bool):
        return Constant(value, kind)
    if is_whole_number:
        return Constant(int(value), kind)
    if isinstance(kind, DecimalType):
        return Constant(Decimal(str(value)), kind)
    if kind.root in TEXTS:
        return Constant(str(value), kind)
    return f"a constant of the type {kind} on the way is not known here"


def _search(
    operands: Sequence[Mapping[str, Any]],
    columns: Sequence[Expression | str],
    to: LogicalType,
    depth: int,
) -> Expression | str:
    """Return a search of ranges: `a IN (1, 2)`, `a BETWEEN 1 AND 2`."""
    value, ranges = expression_of(operands[0], columns, depth + 1), operands[1]["sarg"]
    if isinstance(value, str):
        return value
    if "nullAs" not in ranges:
        return "a range of an older Flink on the way is not known here"
    condition: Expression = Constant(value=False, type=to)
    for each in ranges["ranges"]:
        within: Expression = Constant(value=True, type=to)
        for side, signs in (("lower", (">", ">=")), ("upper", ("<", "<="))):
            if each.get(side) is None:
                continue
            bound = _constant(each[side]["value"], plan_type(operands[1]["type"]))
            if isinstance(bound, str) or not _comparable(value.type, bound.type):
                return f"a range of {value.type} on the way is not known here"
            sign = signs[each[side]["boundType"] == "CLOSED"]
            within = Computed("AND", (within, Computed(sign, (value, bound), to)), to)
        condition = Computed("OR", (condition, within), to)
    if ranges["nullAs"] == "UNKNOWN":
        return condition
    return Computed("IS TRUE" if ranges["nullAs"] == "FALSE" else "IS NOT FALSE", (condition,), to)


def evaluated(
    value: Expression, column: Callable[[StoredColumn], pa.Array]
) -> pa.Array | pa.Scalar:
    """Return what an expression is in each row; a scalar if it is the same in all.

    Args:
        value: The expression.
        column: Returns what is held.
    """
    if isinstance(value, StoredColumn):
        return column(value)
    if isinstance(value, Constant):
        return pa.scalar(value.value, _arrow(value.type))
    operands = [evaluated(each, column) for each in value.operands]
    if value.function in LOGIC:
        logic = LOGIC[value.function]
        return logic(*operands) if len(operands) < 2 else reduce(logic, operands)
    if value.function in COMPARISONS:
        roots = {each.type.root for each in value.operands}
        if "DECIMAL" in roots:
            scale = max(getattr(each.type, "scale", 0) for each in value.operands)
            operands = [each.cast(pa.decimal256(2 * MAX_DECIMAL, scale)) for each in operands]
        return COMPARISONS[value.function](*operands)
    if value.type.root not in _ARROW:  # a decimal of more digits, a longer text
        return operands[0]
    operands = [each.cast(_ARROW[value.type.root]) for each in operands]
    if value.function == "CAST":
        return operands[0]
    return ARITHMETIC[value.function](*operands)


def _arrow(kind: LogicalType) -> pa.DataType:
    """Return the type of constants."""
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return _ARROW.get(kind.root, pa.bool_() if kind.root == "BOOLEAN" else pa.string())
