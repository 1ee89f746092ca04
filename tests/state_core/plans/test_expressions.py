"""Expressions of plans that are computed from columns, as Flink computes them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from statelake.state_core.plans.expressions import StoredColumn, evaluated, expression_of
from statelake.state_core.plans.states import ValuePlace
from statelake.state_core.serializers.sql.types.logical_type_parser import parse_logical_type

COLUMNS = {
    "INT": pa.array([None, 0, 7, (1 << 31) - 1], pa.int32()),
    "SMALLINT": pa.array([3, None, 7, -1], pa.int16()),
    "DECIMAL(4, 2)": pa.array([Decimal("7.00"), Decimal("0.01"), None, None], pa.decimal128(4, 2)),
    "VARCHAR(5)": pa.array(["a", None, "B", "ä"]),
    "BOOLEAN": pa.array([True, False, None, None]),
}
INT, SMALL, DECIMAL, TEXT, TRUTH = (
    {"kind": "INPUT_REF", "inputIndex": index, "type": kind} for index, kind in enumerate(COLUMNS)
)


def call(name: str, kind: str, *operands: Any) -> dict[str, Any]:
    """A call of a function."""
    return {"kind": "CALL", "internalName": f"${name}$1", "operands": operands, "type": kind}


def literal(value: Any, kind: str) -> dict[str, Any]:
    """A constant."""
    return {"kind": "LITERAL", "value": value, "type": kind}


def search(null: str) -> dict[str, Any]:
    """Whether a column is 0, or more than 6."""
    zero = {"value": 0, "boundType": "CLOSED"}
    ranges = [{"lower": zero, "upper": zero}, {"lower": {"value": 6, "boundType": "OPEN"}}]
    sarg = {"ranges": ranges, "nullAs": null}
    return call("SEARCH", "BOOLEAN", INT, {"kind": "LITERAL", "sarg": sarg, "type": "INT NOT NULL"})


def computed(expression: dict[str, Any]) -> Any:
    """What an expression is in each row, or why that is not known."""
    held = [
        StoredColumn("state", ValuePlace.VALUE, index, parse_logical_type(kind))
        for index, kind in enumerate(COLUMNS)
    ]
    made = expression_of(expression, held)
    if isinstance(made, str):
        return made
    found = evaluated(made, lambda each: list(COLUMNS.values())[each.index])
    return found.as_py() if isinstance(found, pa.Scalar) else found.to_pylist()


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        (call("+", "INT", INT, literal(1, "INT NOT NULL")), [None, 1, 8, -(1 << 31)]),
        (call("*", "INT", INT, SMALL), [None, None, 49, 1 - (1 << 31)]),
        (call("-", "SMALLINT", SMALL, literal(-32768, "SMALLINT")), [-32765, None, -32761, 32767]),
        (call("CAST", "BIGINT", INT), [None, 0, 7, (1 << 31) - 1]),
        (call("=", "BOOLEAN", INT, SMALL), [None, None, True, False]),
        (call(">", "BOOLEAN", DECIMAL, literal(0, "INT NOT NULL")), [True, True, None, None]),
        (call("=", "BOOLEAN", DECIMAL, literal("7.0", "DECIMAL(2, 1)")), [True, False, None, None]),
        (call("<", "BOOLEAN", TEXT, literal("a", "CHAR(1)")), [False, None, True, False]),
        (call("<>", "BOOLEAN", INT, literal(None, "INT")), [None] * 4),
        (call("AND", "BOOLEAN", TRUTH, literal(value=False, kind="BOOLEAN")), [False] * 4),
        (call("OR", "BOOLEAN", TRUTH, TRUTH, call("IS NULL", "BOOLEAN", INT)),
         [True, False, None, None]),
        (call("NOT", "BOOLEAN", TRUTH), [False, True, None, None]),
        (call("IS TRUE", "BOOLEAN", TRUTH), [True, False, False, False]),
        (call("IS NOT TRUE", "BOOLEAN", TRUTH), [False, True, True, True]),
        (call("IS FALSE", "BOOLEAN", TRUTH), [False, True, False, False]),
        (call("IS NOT FALSE", "BOOLEAN", TRUTH), [True, False, True, True]),
        (call("IS NOT NULL", "BOOLEAN", TEXT), [True, False, True, True]),
        (search("UNKNOWN"), [None, True, True, True]),
        (search("FALSE"), [False, True, True, True]),
        (search("TRUE"), [True, True, True, True]),
        (call("=", "BOOLEAN", literal(1, "INT"), literal(1, "INT")), True),
    ],
)  # fmt: skip
def test_what_is_known_is_computed(expression: dict[str, Any], wanted: Any) -> None:
    """NULL is neither, and whole numbers wrap around."""
    assert computed(expression) == wanted


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (call("MOD", "INT", INT, INT), "MOD(INT, INT)"),
        (call("+", "SMALLINT", INT, INT), "+(INT, INT)"),
        (call("+", "DECIMAL(5, 2)", DECIMAL, DECIMAL), "+(DECIMAL(4, 2), DECIMAL(4, 2))"),
        (call("CAST", "SMALLINT", INT), "CAST(INT)"),
        (call("=", "BOOLEAN", INT, TEXT), "=(INT, VARCHAR(5))"),
        (call("AND", "BOOLEAN", INT, TRUTH), "AND(INT, BOOLEAN)"),
        (call("=", "BOOLEAN", TEXT, literal("x", "DATE")), "a constant of the type DATE"),
        ({"kind": "CORREL_VARIABLE", "type": "INT"}, "a CORREL_VARIABLE"),
    ],
)
def test_what_is_not_known_is_said(expression: dict[str, Any], why: str) -> None:
    """With the function and the types."""
    assert why in computed(expression)
