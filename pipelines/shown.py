"""Values as text for people, and as JSON."""

from __future__ import annotations

import base64
import csv
import html
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, TextIO

import pyarrow as pa

from statelake.state_core.errors import DeclarationError, StateError
from statelake.state_core.model.snapshot import KeyedState, OperatorState, StateKind, state_title
from statelake.state_core.printable import bytes_text, printable, printable_json

__all__ = [
    "RAW",
    "as_markdown",
    "bytes_text",
    "cell_text",
    "csv_cell",
    "from_plain",
    "json_rows",
    "json_text",
    "parse_duration",
    "plain",
    "plain_rows",
    "rows_said",
    "state_head",
    "state_title",
    "typed_row",
    "write_csv",
]

_READERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_binary, lambda text: base64.b64decode(text, validate=True)),
    (pa.types.is_floating, float),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_timestamp, datetime.fromisoformat),
    (pa.types.is_date, date.fromisoformat),
    (pa.types.is_time, time.fromisoformat),
)
_ORDER = (
    "key_group", "subtask", "position", "namespace", "key", "user_key", "timestamp", "value", "ttl",
)  # fmt: skip
# by how operator state is redistributed
_MODES = {
    "SPLIT_DISTRIBUTE": "operator_list",
    "UNION": "operator_union",
    "BROADCAST": "broadcast",
}
LONGEST_CELL = 2000
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
TO_YEAR_9999 = 253_402_300_799_999
ROWS_AT_ONCE = 4096  # as Python objects at a time: each takes hundreds of bytes
_ONE_LINE = json.JSONEncoder(ensure_ascii=False)
_DURATION = re.compile(r"(\d+)\s*(ms|s|min|m|h|d)")
_MILLIS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_MARKUP = re.compile(r"[\\`|\[\]]")


def parse_duration(text: str) -> timedelta:
    """Parse a duration as people write it: `90s`, `15min`, `12h`, `7d`.

    Raises:
        DeclarationError: The text is not a duration.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise DeclarationError(f"{text!r} is no duration (90s, 15min, 12h, 7d)")
    try:
        return timedelta(milliseconds=int(match[1]) * _MILLIS[match[2]])
    except (OverflowError, ValueError) as error:
        raise DeclarationError(f"{text!r} is longer than any calendar") from error


def as_markdown(text: str) -> str:
    """Escape a text for Markdown: a name makes no table, no link, no picture and no HTML."""
    return _MARKUP.sub(r"\\\g<0>", html.escape(printable(text), quote=False))


TIMES = ("timestamp", "ttl")  # columns of state with times
RAW = "raw_"  # before the name of the column whose exact bytes a column has


def cell_text(name: str, value: Any) -> str:
    """Return a value of a printed row as a cell of a table.

    Args:
        name: Its column: the values of `timestamp` and `ttl` are times.
        value: A value of `plain_rows`.
    """
    if value is None:
        return ""
    if name in TIMES and type(value) is int:
        return _instant(value)
    text = value if isinstance(value, str) and name != "value" else json_text(value)
    return text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}..."


def _instant(millis: int) -> str:
    """Return epoch milliseconds as text for people, if a calendar has that time."""
    if not 0 <= millis <= TO_YEAR_9999:
        return str(millis)
    at = EPOCH + timedelta(milliseconds=millis)
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d}"


def state_head(operator: str, state: KeyedState | OperatorState) -> dict[str, Any]:
    """Return the fields with which every printed row of a state begins.

    Args:
        operator: The operator's uid or id.
        state: The state.
    """
    if isinstance(state, OperatorState):
        return {"operator": operator, "state": state.name, "kind": _MODES[state.mode.name]}
    head = {"operator": operator, "state": state.name, "kind": state.kind.value}
    if state.kind is StateKind.TIMERS:
        domain, _ = state.timer_service
        head["kind"] = f"{domain}_timer"
    return head | ({"alias": state.names.alias} if state.names.alias else {})


def plain_rows(
    head: dict[str, Any], rows: pa.RecordBatch | pa.Table, layout: Any
) -> Iterator[dict[str, Any]]:
    """Yield rows of a state as they are printed, as JSON values.

    A value that its column can't hold is text, with all of its digits. Where JSON does not say all
    of a value, its bytes are beside it in Base64, as `raw_key` or `raw_value`.

    Args:
        head: What each begins with: `state_head`.
        rows: The rows.
        layout: The layout of the state's rows.
    """
    names = [name for name in rows.schema.names if not name.startswith(RAW)]
    names.sort(key=_ORDER.index)
    kinds = {name: rows.schema.field(name).type for name in names}
    for start in range(0, rows.num_rows, ROWS_AT_ONCE):
        part = rows.slice(start, ROWS_AT_ONCE)
        untyped = rows_said(part, layout)
        for row, more in zip(part.select(names).to_pylist(), untyped, strict=True):
            values = row | more
            shown = {name: plain(values[name], kinds.get(name)) for name in (*names, *more)}
            yield head | shown


def rows_said(rows: pa.RecordBatch | pa.Table, layout: Any = None) -> list[dict[str, Any]]:
    """Return for each row what its typed columns do not say: whole values, or else bytes.

    Args:
        rows: The rows, with their columns of exact bytes.
        layout: The state's layout; without it there are only the bytes.
    """
    untyped: list[dict[str, Any]] = [{} for _ in range(rows.num_rows)]
    if layout is not None and rows.num_rows:
        from statelake.state_core.formats.printed_rows import (  # noqa: PLC0415 - if printed
            printed_rows,
        )

        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        (batch,) = table.combine_chunks().to_batches()
        for row, more in printed_rows(layout, batch).items():
            untyped[row] = more
        return untyped
    for name in rows.schema.names:
        if name.startswith(RAW) and rows.column(name).null_count < rows.num_rows:
            for row, data in enumerate(rows.column(name).to_pylist()):
                if data is not None:
                    untyped[row][name] = data
    return untyped


def typed_row(row: pa.RecordBatch, layout: Any) -> dict[str, Any]:
    """Return a single row of a state as Python values, with what its columns do not say."""
    (values,), (more,) = row.to_pylist(), rows_said(row, layout)
    return {name: value for name, value in values.items() if not name.startswith(RAW)} | more


def json_rows(batch: pa.RecordBatch | pa.Table) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a batch as JSON values; columns may share a name.

    Raises:
        StateError: A time is one that Python does not have.
    """
    try:
        columns = [
            [plain(value, field.type) for value in column.to_pylist()]
            for field, column in zip(batch.schema, batch.columns, strict=True)
        ]
    except OverflowError as error:
        raise StateError(
            "a time is outside the years 1 to 9999", remedy="cast it to VARCHAR"
        ) from error
    return zip(*columns, strict=True)


def csv_cell(value: Any) -> str:
    """Return a value of `plain` as a cell of CSV: text as it is, other values as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json_text(value)


def write_csv(
    out: TextIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch], text: Callable[[str], str]
) -> None:
    """Write rows as CSV, with a line of names first.

    Args:
        out: The file.
        schema: The columns.
        batches: The rows.
        text: Escapes a name or a cell.
    """
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(text, schema.names))
    for batch in batches:
        for row in json_rows(batch):
            writer.writerow([text(csv_cell(value)) for value in row])


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value of `plain` as JSON, with invisible characters escaped."""
    if indent is None:
        return printable_json(_ONE_LINE.encode(value))
    return printable_json(json.dumps(value, ensure_ascii=False, indent=indent))


def plain(value: Any, kind: pa.DataType | None = None) -> Any:
    """Convert a decoded value to a JSON value.

    Bytes become Base64, decimals and dates text, numbers that JSON lacks their names; a map with
    text keys becomes an object, any other (also one that has a key twice) a list of pairs.

    Args:
        value: The value, as Arrow converts it to Python.
        kind: Its type. Without it an empty map can't be distinguished from an empty list.
    """
    if kind is not None and value is not None and _has_parts(kind):
        return _nested(value, kind)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if value and all(isinstance(item, tuple) and len(item) == 2 for item in value):
            return _pairs(value, all(isinstance(key, str) for key, _ in value), None, None)
        return [plain(item) for item in value]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value)


def _has_parts(kind: pa.DataType) -> bool:
    """Return whether each value of a type has parts of types that it names."""
    return pa.types.is_nested(kind) and not pa.types.is_union(kind)


def _nested(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_map(kind):
        text = pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type)
        return _pairs(value, text, kind.key_type, kind.item_type)
    if pa.types.is_struct(kind):
        return {field.name: plain(value[field.name], field.type) for field in kind}
    return [plain(item, kind.value_type) for item in value]


def _pairs(pairs: Any, text: bool, key: pa.DataType | None, item: pa.DataType | None) -> Any:
    if text and len(keys := {name for name, _ in pairs}) == len(pairs) and None not in keys:
        return {name: plain(element, item) for name, element in pairs}
    return [[plain(name, key), plain(element, item)] for name, element in pairs]


def from_plain(value: Any, kind: pa.DataType) -> Any:
    """Convert a JSON value of `plain` back, as a Python value for Arrow.

    Args:
        value: The JSON value.
        kind: The type of the result.

    Raises:
        ValueError: `plain` does not return such a value for that type.
    """
    try:
        scalar = pa.scalar(_read(value, kind), kind).as_py()
        again = plain(scalar, kind)
    except (pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ValueError(str(error)) from error
    if again != value:
        raise ValueError(f"it would be written {again!r}")
    return scalar


def _read(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            raise ValueError(f"it has the fields {', '.join(field.name for field in kind)}")
        missing = [field.name for field in kind if field.name not in value]
        if missing:
            raise ValueError(f"it has no field {missing[0]!r}")
        return {field.name: _read(value[field.name], field.type) for field in kind}
    if pa.types.is_nested(kind) and not isinstance(value, list | dict):
        raise ValueError("it is a list" if not pa.types.is_map(kind) else "it is a map")
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        return [
            (_read(key, kind.key_type), _read(element, kind.item_type)) for key, element in pairs
        ]
    if pa.types.is_nested(kind):
        return [_read(item, kind.value_type) for item in value]
    readers = [reader for is_kind, reader in _READERS if is_kind(kind)]
    return readers[0](value) if readers else value
