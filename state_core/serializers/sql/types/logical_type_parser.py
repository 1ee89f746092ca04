"""SQL text of logical types: `ROW<id BIGINT NOT NULL, tags ARRAY<STRING>>` and the like.

Source: `org.apache.flink.table.types.logical.utils.LogicalTypeParser`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from statelake.state_core.errors import EncodeError
from statelake.state_core.serializers.sql.types.logical_type_objects import (
    LENGTH_TYPES,
    SIMPLE_TYPES,
)
from statelake.state_core.serializers.sql.types.logical_types import (
    MAX_LENGTH,
    ArrayType,
    DecimalType,
    IntervalType,
    LengthType,
    LogicalType,
    MapType,
    MultisetType,
    RowField,
    RowType,
    SimpleType,
    StructuredType,
    TimestampType,
    TimeType,
)

MAX_DEPTH = 60
MAX_DIGITS = 38
_TOKEN = re.compile(
    r"\s*(?:(?P<mark>[<>(),.])|`(?P<quoted>(?:[^`]|``)*)`|'(?P<text>(?:[^']|'')*)'|(?P<word>[^\s<>().,`']+))"
)
_SIMPLE = {"INT": "INTEGER", **{root: root for root in SIMPLE_TYPES}}
_LENGTHS = {"STRING": ("VARCHAR", MAX_LENGTH), "BYTES": ("VARBINARY", MAX_LENGTH)}


def parse_logical_type(text: str) -> LogicalType:
    """Parse the SQL text of a type.

    Raises:
        EncodeError: It is not a type, or one that can't be written as text (RAW, a catalog's type).
    """
    parser = _Parser(text)
    parsed = parser.type(0)
    if parser.kind != "end":
        raise parser.fault(f"{parser.value!r} behind a complete type")
    return parsed


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.kind = self.value = ""
        self.advance()

    def fault(self, problem: str) -> EncodeError:
        return EncodeError(
            f"{problem}, in the SQL type {self.text!r}",
            remedy="write it as in CREATE TABLE: BIGINT, DECIMAL(10, 2), ROW<id BIGINT, ...>",
        )

    def advance(self) -> tuple[str, str]:
        """Move to the next token, and return the one before it."""
        was = (self.kind, self.value)
        if not self.text[self.at :].strip():
            self.kind, self.value = "end", "the end"
            return was
        match = _TOKEN.match(self.text, self.at)
        if match is None or match.lastgroup is None:
            raise self.fault(f"{self.text[self.at :]!r} is no part of a type")
        self.at = match.end()
        self.kind, self.value = match.lastgroup, match[match.lastgroup]
        if self.kind == "quoted":
            self.value = self.value.replace("``", "`")
        elif self.kind == "text":
            self.value = self.value.replace("''", "'")
        return was

    def accept(self, *words: str) -> bool:
        """Move behind these marks or words if they come next, and return whether they did."""
        back = (self.at, self.kind, self.value)
        for word in words:
            if self.kind not in ("mark", "word") or self.value.upper() != word:
                self.at, self.kind, self.value = back
                return False
            self.advance()
        return True

    def expect(self, word: str) -> None:
        if not self.accept(word):
            raise self.fault(f"{word!r} expected where {self.value!r} is")

    def number(self, low: int, high: int) -> int:
        kind, value = self.advance()
        if kind != "word" or not value.isdigit() or not low <= int(value) <= high:
            raise self.fault(f"a number from {low} to {high} expected where {value!r} is")
        return int(value)

    def digits(self, default: int, low: int, high: int) -> int:
        """Parse a number in brackets; return the default without one."""
        if not self.accept("("):
            return default
        number = self.number(low, high)
        self.expect(")")
        return number

    def type(self, depth: int) -> LogicalType:
        if depth > MAX_DEPTH:
            raise self.fault(f"types nested more than {MAX_DEPTH} deep")
        parsed = self.nullability(self.base(depth))
        if self.accept("ARRAY"):
            return self.nullability(ArrayType(parsed))
        if self.accept("MULTISET"):
            return self.nullability(MultisetType(parsed))
        return parsed

    def nullability(self, parsed: LogicalType) -> LogicalType:
        if self.accept("NOT", "NULL"):
            return replace(parsed, nullable=False)
        self.accept("NULL")
        return parsed

    def base(self, depth: int) -> LogicalType:
        kind, value = self.advance()
        name = value.upper()
        if kind == "word" and name in _SIMPLE:
            if name == "DOUBLE":
                self.accept("PRECISION")
            return SimpleType(_SIMPLE[name])
        if kind == "word" and name in _LENGTHS:
            return LengthType(*_LENGTHS[name])
        if kind == "word" and name in LENGTH_TYPES:
            return LengthType(name, self.digits(1, 1, MAX_LENGTH))
        build = _BUILDERS.get(name) if kind == "word" else None
        if build is None:
            raise self.fault(f"{value!r} is no SQL type that can be written down")
        return build(self, depth + 1)

    def decimal(self, _: int) -> LogicalType:
        precision, scale = 10, 0
        if self.accept("("):
            precision = self.number(1, MAX_DIGITS)
            if self.accept(","):
                scale = self.number(0, precision)
            self.expect(")")
        return DecimalType(precision, scale)

    def time(self, _: int) -> LogicalType:
        precision = self.digits(0, 0, 9)
        self.accept("WITHOUT", "TIME", "ZONE")
        return TimeType(precision)

    def timestamp(self, _: int) -> LogicalType:
        precision = self.digits(6, 0, 9)
        root = "TIMESTAMP_WITHOUT_TIME_ZONE"
        if self.accept("WITH", "LOCAL", "TIME", "ZONE"):
            root = "TIMESTAMP_WITH_LOCAL_TIME_ZONE"
        elif self.accept("WITH", "TIME", "ZONE"):
            root = "TIMESTAMP_WITH_TIME_ZONE"
        else:
            self.accept("WITHOUT", "TIME", "ZONE")
        return TimestampType(precision, root)

    def timestamp_ltz(self, _: int) -> LogicalType:
        return TimestampType(self.digits(6, 0, 9), "TIMESTAMP_WITH_LOCAL_TIME_ZONE")

    def interval(self, _: int) -> LogicalType:
        first = self.advance()[1].upper()
        if first in ("YEAR", "MONTH"):
            precision = self.digits(2, 1, 4) if first == "YEAR" else 2
            to_month = first == "YEAR" and self.accept("TO", "MONTH")
            return IntervalType("YEAR_TO_MONTH" if to_month else first, precision)
        units = ("DAY", "HOUR", "MINUTE", "SECOND")
        if first not in units:
            raise self.fault(f"{first!r} is no unit of an interval")
        days = self.digits(2, 1, 6) if first == "DAY" else 2
        last = first
        if first != "SECOND" and self.accept("TO"):
            last = self.advance()[1].upper()
            if last not in units[units.index(first) + 1 :]:
                raise self.fault(f"INTERVAL {first} TO {last}")
        fraction = self.digits(6, 0, 9) if last == "SECOND" else 6
        return IntervalType(first if last == first else f"{first}_TO_{last}", days, fraction)

    def subtypes(self, depth: int, count: int) -> list[LogicalType]:
        self.expect("<")
        subtypes = [self.type(depth)]
        for _ in range(count - 1):
            self.expect(",")
            subtypes.append(self.type(depth))
        self.expect(">")
        return subtypes

    def row(self, depth: int) -> LogicalType:
        close = ")" if self.accept("(") else ">"
        if close == ">":
            self.expect("<")
        return RowType(self.fields(depth, close))

    def structured(self, depth: int) -> LogicalType:
        self.expect("<")
        kind, name = self.advance()
        if kind != "text":
            raise self.fault(f"a class name in single quotes expected where {name!r} is")
        if self.accept(">"):
            return StructuredType(name, ())
        self.expect(",")
        return StructuredType(name, self.fields(depth, ">"))

    def fields(self, depth: int, close: str) -> tuple[RowField, ...]:
        fields: list[RowField] = []
        while not self.accept(close):
            if fields:
                self.expect(",")
            kind, name = self.advance()
            if kind not in ("word", "quoted") or (kind == "word" and name[0].isdigit()):
                raise self.fault(f"the name of a field expected where {name!r} is")
            if any(field.name == name for field in fields):
                raise self.fault(f"two fields {name!r}")
            type_ = self.type(depth)
            description = self.advance()[1] if self.kind == "text" else None
            fields.append(RowField(name, type_, description))
        return tuple(fields)


_BUILDERS: dict[str, Callable[[_Parser, int], LogicalType]] = {
    "DECIMAL": _Parser.decimal,
    "NUMERIC": _Parser.decimal,
    "DEC": _Parser.decimal,
    "TIME": _Parser.time,
    "TIMESTAMP": _Parser.timestamp,
    "TIMESTAMP_LTZ": _Parser.timestamp_ltz,
    "INTERVAL": _Parser.interval,
    "ARRAY": lambda parser, depth: ArrayType(*parser.subtypes(depth, 1)),
    "MULTISET": lambda parser, depth: MultisetType(*parser.subtypes(depth, 1)),
    "MAP": lambda parser, depth: MapType(*parser.subtypes(depth, 2)),
    "ROW": _Parser.row,
    "STRUCTURED": _Parser.structured,
}
