"""Convert a source's columns to a state's, batch by batch, and report values that do not fit.

A column of a state is a column of the source, a constant, fields that are each one of these, or
Spark SQL, which Spark has put into a column of its own before. A value that does not fit is
reported by source, row, key and column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.errors import EncodeError, StateError
from statelake.state_core.formats.layout.conforming import conform, to_millis
from statelake.state_core.nested import column_path, field_name, is_list

CONSTANT = "constant"
TIMES = ("ttl", "timestamp")
SHOWN = 60
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\W\d]\w*))\s*")
REFUSED = (EncodeError, pa.ArrowInvalid, pa.ArrowNotImplementedError)
_LITERALS = ("true", "false", "null")


@dataclass(frozen=True)
class SourceColumn:
    """A column of the source, or a field within one, with its text in the specification."""

    path: tuple[str, ...]
    written: str


@dataclass(frozen=True)
class ConstantColumn:
    """One value in every row."""

    value: Any


@dataclass(frozen=True)
class Expression:
    """Spark SQL over the source's columns."""

    sql: str


@dataclass(frozen=True)
class Fields:
    """A value with fields, each with its own plan."""

    parts: Mapping[str, ColumnPlan]


ColumnPlan: TypeAlias = "SourceColumn | ConstantColumn | Expression | Fields"


@dataclass(frozen=True)
class RowPlan:
    """The plan of one state's rows, picklable.

    Attributes:
        place: The operator and state, for messages.
        columns: By the state's column.
        text: Whether text stands for other types, as in CSV.
        never_null: Columns of the state that can't be null.
    """

    place: str
    columns: Mapping[str, ColumnPlan]
    text: bool = False
    never_null: tuple[str, ...] = ()


def plan_column(given: Any, place: str) -> ColumnPlan:
    """Return the plan of a column, from its specification.

    Raises:
        EncodeError: The specification is not valid.
    """
    if isinstance(given, Mapping):
        if list(given) == [CONSTANT]:
            return ConstantColumn(given[CONSTANT])
        if not given:
            raise EncodeError("it has no fields", place=place, remedy="give each its column")
        return Fields(
            {str(name): plan_column(part, f"{place}.{name}") for name, part in given.items()}
        )
    if given is None or isinstance(given, bool | int | float):
        return ConstantColumn(given)
    if not isinstance(given, str) or not given.strip():
        raise EncodeError(
            f"{given!r} is no column", place=place,
            remedy="legal: a column's name, Spark SQL, {field: column, ...}, {constant: value}",
        )  # fmt: skip
    path = _path(given)
    return SourceColumn(path, given.strip()) if path else Expression(given)


def _path(text: str) -> tuple[str, ...]:
    """Return the names of `a`, `a.b` or of names in backticks; empty for other expressions."""
    parts, at = [], 0
    if text.strip().lower() in _LITERALS:
        return ()
    while match := _NAME.match(text, at):
        parts.append(match[1].replace("``", "`") if match[1] else match[2])
        at = match.end()
        if at == len(text):
            return tuple(parts)
        if text[at] != ".":
            break
        at += 1
    return ()


def expressions_in(plan: ColumnPlan) -> Iterator[Expression]:
    """The Spark SQL in a plan."""
    if isinstance(plan, Expression):
        yield plan
    if isinstance(plan, Fields):
        for part in plan.parts.values():
            yield from expressions_in(part)


def source_columns(plan: ColumnPlan) -> Iterator[str]:
    """The columns of the source that a plan reads."""
    if isinstance(plan, SourceColumn):
        yield plan.path[0]
    if isinstance(plan, Fields):
        for part in plan.parts.values():
            yield from source_columns(part)


def with_expressions(plan: ColumnPlan, names: Mapping[str, str]) -> ColumnPlan:
    """Return the plan with the columns into which Spark puts the values of expressions."""
    if isinstance(plan, Expression):
        return SourceColumn((names[plan.sql],), plan.sql)
    if isinstance(plan, Fields):
        return Fields({name: with_expressions(part, names) for name, part in plan.parts.items()})
    return plan


def map_batches(
    plan: RowPlan,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    source: str,
    first_row: int = -1,
) -> Iterator[tuple[SourceBatch, pa.RecordBatch]]:
    """Yield each batch of the source, and the state's columns from it.

    Args:
        plan: The plan of the columns.
        batches: The source's batches.
        schema: The columns that the state has.
        source: Its name, for messages.
        first_row: The place of the first row in it; -1 if rows have no order.

    Raises:
        EncodeError: A column is missing, or a value, named by its row, does not fit.
    """
    for batch in batches:
        source_batch = SourceBatch(plan, batch, source, first_row)
        yield source_batch, source_batch.mapped(schema)
        if first_row >= 0:
            first_row += len(batch)


@dataclass(frozen=True)
class SourceBatch:
    """A batch of the source, to convert to the state's columns.

    Attributes:
        plan: The plan of the columns.
        batch: Its rows.
        source: The name of its source, for messages.
        first: The place of its first row there; -1 if rows have no order.
    """

    plan: RowPlan
    batch: pa.RecordBatch
    source: str
    first: int

    def mapped(self, schema: pa.Schema) -> pa.RecordBatch:
        """The state's columns."""
        columns: dict[str, pa.Array] = {}
        for name, plan in self.plan.columns.items():
            index = schema.get_field_index(name)
            if index < 0:
                self.refuse(
                    f"`{name}`, which such a state has not", "", f"it has {', '.join(schema.names)}"
                )
            columns[name] = self.column(plan, schema.field(index).type, name)
            if name in self.plan.never_null and columns[name].null_count:
                row = pc.index(columns[name].is_null(), value=True).as_py()
                label = plan.written if isinstance(plan, SourceColumn) else name
                remedy = "leave such rows out: in Flink a key without a value has no entry"
                self.refuse(f"there is no {name}", label, remedy, row)
        if "ttl" in columns and pa.types.is_list(schema.field("ttl").type):
            columns["ttl"] = _repeated(columns["ttl"], columns["value"])
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def column(self, plan: ColumnPlan, wanted: pa.DataType, label: str) -> pa.Array:
        """One column."""
        time = label in TIMES
        if isinstance(plan, Fields):
            return self.fields(plan, wanted, label)
        if isinstance(plan, ConstantColumn):
            return self.constant(plan.value, wanted, label, time=time)
        if isinstance(plan, Expression):  # Spark has been asked before
            raise EncodeError("Spark SQL without Spark", place=self.plan.place)
        column = self.column_of(plan)
        text = self.plan.text or (time and pa.types.is_string(column.type))
        if text and pa.types.is_large_string(column.type):
            column = column.cast(pa.string())
        try:
            return _as(column, wanted, text=text, time=time)
        except REFUSED as error:
            self.refuse_value(plan, column, wanted, error, text=text, time=time)

    def refuse_value(
        self, plan: SourceColumn, column: pa.Array, wanted: pa.DataType, error: Exception,
        *, text: bool, time: bool,
    ) -> NoReturn:  # fmt: skip
        """Raise an error that names the row of a column that does not fit."""
        row = _first_refused(column, wanted, text=text, time=time)
        try:
            if row >= 0:  # of this one alone, as the whole column's may be about another
                _as(column.take(pa.array([row])), wanted, text=text, time=time)
        except REFUSED as alone:
            error = alone
        problem = error.problem if isinstance(error, StateError) else _short(error)
        remedy = error.remedy if isinstance(error, StateError) else f"it is to be {wanted}"
        if row >= 0:
            problem = f"{_shown(column[row])} does not fit: {problem}"
        elif isinstance(error, StateError) and ", " in error.place:
            problem = f"{problem} ({error.place.partition(', ')[2]})"
        self.refuse(problem, plan.written, remedy, row)

    def fields(self, plan: Fields, wanted: pa.DataType, label: str) -> pa.Array:
        """A struct of parts."""
        if not pa.types.is_struct(wanted):
            self.refuse("fields, for a type that has none", label, f"it is to be {wanted}")
        needed = [field.name for field in wanted]
        given = {column_path(wanted, name): part for name, part in plan.parts.items()}
        for name in [*given, *needed]:
            if name not in needed or name not in given:
                problem = f"no field {name!r} in the type" if name not in needed else ""
                self.refuse(
                    problem or f"field {name!r} is not given", label,
                    f"give {', '.join(needed)}; null for none",
                )  # fmt: skip
        parts = [self.column(given[f.name], f.type, f"{label}.{f.name}") for f in wanted]
        if not parts:
            return pa.array([{}] * len(self.batch), wanted)
        return pa.StructArray.from_arrays(parts, fields=list(wanted))

    def constant(self, value: Any, wanted: pa.DataType, label: str, *, time: bool) -> pa.Array:
        """A column with one value in every row."""
        try:
            single = pa.array([value])
            if time or pa.types.is_temporal(wanted):
                single = _as(single, wanted, text=isinstance(value, str), time=time)
            else:
                single = pa.array([_by_columns(value, wanted)], wanted)
        except (EncodeError, pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            problem = error.problem if isinstance(error, StateError) else _short(error)
            self.refuse(f"constant {value!r}: {problem}", label, f"it is to be {wanted}")
        return single.take(pa.array(np.zeros(len(self.batch), np.int64)))

    def column_of(self, plan: SourceColumn) -> pa.Array:
        """Return a column of the source, or a field within one."""
        names = self.batch.schema.names
        if plan.path[0] not in names:
            self.refuse(f"no column {plan.path[0]!r}", "", f"it has {', '.join(names)}")
        column = self.batch.column(names.index(plan.path[0]))
        for name in plan.path[1:]:
            inside = (
                [field.name for field in column.type] if pa.types.is_struct(column.type) else []
            )
            if name not in inside:
                has = f"it has {', '.join(inside)}" if inside else f"it is {column.type}"
                self.refuse(f"no field {name!r}", plan.written, has)
            column = pc.struct_field(column, name)
        return column

    def refuse(self, problem: str, column: str, remedy: str, row: int = -1) -> NoReturn:
        """Raise an error with its place."""
        where = [part for part in (self.plan.place, self.source) if part]
        if row >= 0 and self.first >= 0:
            where.append(f"row {self.first + row + 1}")
        key = self.plan.columns.get("key")
        if row >= 0 and isinstance(key, SourceColumn) and column != key.written:
            where.append(f"key {_shown(self.column_of(key)[row])}")
        if column:
            where.append(f"column `{column}`")
        raise EncodeError(problem, place=", ".join(where), remedy=remedy)


def _as(column: pa.Array, wanted: pa.DataType, *, text: bool, time: bool) -> pa.Array:
    """Return a column as another type; text is parsed if the source has only text."""
    is_text = pa.types.is_string(column.type)
    if time:
        shown = wanted.value_type if pa.types.is_list(wanted) else wanted
        if pa.types.is_list(column.type):
            return conform(column, wanted, "")
        if text and is_text:
            column = _instants(column)
        return to_millis(column, "").cast(shown)
    if not text or not is_text or pa.types.is_string(wanted):
        return conform(column, wanted, "")
    if pa.types.is_timestamp(wanted):
        return conform(_instants(column), wanted, "")
    if pa.types.is_nested(wanted) or pa.types.is_binary(wanted):
        raise EncodeError(
            f"text that is to be {wanted}",
            remedy="CSV holds no lists, maps or bytes: give JSON lines, Parquet or a query",
        )
    return column.cast(wanted)


def _instants(column: pa.Array) -> pa.Array:
    """Parse text as points in time: milliseconds since 1970, or ISO 8601, by default in UTC."""
    for kind in (pa.int64(), pa.timestamp("us", "UTC"), pa.timestamp("us")):
        try:
            return column.cast(kind)
        except pa.ArrowInvalid as error:  # noqa: PERF203 - three at most
            failed = error
    raise failed


def _by_columns(value: Any, wanted: pa.DataType) -> Any:
    """Return a constant with the names of the columns, whose fields may have others.

    Raises:
        ValueError: It has a field that the type has not.
    """
    if pa.types.is_struct(wanted) and isinstance(value, dict):
        columns = {field_name(field): field for field in wanted}
        columns |= {field.name: field for field in wanted}
        unknown = [name for name in value if name not in columns]
        if unknown:
            raise ValueError(f"no field {unknown[0]!r} in the type")
        pairs = [(columns[name], each) for name, each in value.items()]
        return {field.name: _by_columns(each, field.type) for field, each in pairs}
    if pa.types.is_map(wanted) and isinstance(value, dict):
        return {key: _by_columns(each, wanted.item_type) for key, each in value.items()}
    if is_list(wanted) and isinstance(value, list):
        return [_by_columns(each, wanted.value_type) for each in value]
    return value


def _first_refused(column: pa.Array, wanted: pa.DataType, *, text: bool, time: bool) -> int:
    """Return the first row that can't be converted; -1 if the type itself can't be converted."""

    def fits(count: int) -> bool:
        try:
            _as(column.take(pa.array(np.arange(count))), wanted, text=text, time=time)
        except REFUSED:
            return False
        return True

    if not fits(0):
        return -1
    low, high = 0, len(column)  # `low` rows fit, `high` do not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _repeated(times: pa.Array, values: pa.Array) -> pa.Array:
    """One time for every element of each row's list."""
    if pa.types.is_list(times.type):
        return times
    lengths = np.asarray(pc.fill_null(pc.list_value_length(values), 0))
    rows = np.repeat(np.arange(len(lengths)), lengths)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), times.take(pa.array(rows)))


def _shown(value: pa.Scalar) -> str:
    text = repr(value.as_py())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
