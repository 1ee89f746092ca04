"""Printed values of rows whose columns can't represent them: as text, or otherwise as bytes.

A row of which JSON can say everything has nothing beside it. Of any other, a NaN with bits of its
own among them, `raw_key` or `raw_value` has the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import EncodeError, StateError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.keyed_layout import (
    KEY,
    NAMESPACE,
    RAW_KEY,
    RAW_VALUE,
    TIMESTAMP,
    TTL,
    USER_KEY,
    VALUE,
    KeyedLayout,
    LengthTrailer,
    RowWriter,
    exact_rows,
    trailer_sizes,
)
from statelake.state_core.formats.layout.keys import decode_keys
from statelake.state_core.formats.operator_state.operator_states import OperatorLayout
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import Cursor, odd_nans
from statelake.state_core.serializers.framework.exact_values import exact_json_value, exact_values

Layout: TypeAlias = KeyedLayout | OperatorLayout
_Read: TypeAlias = Callable[[DataInput, DataOutput], dict[str, Any]]

TIMESTAMP_BYTES = 8


@dataclass(frozen=True)
class _Side:
    """The key or the value of a layout's rows.

    Attributes:
        raw: The column of its exact bytes.
        names: Its typed columns, in order.
        decode: Reads them.
        read: Reads a value of each from bytes, and writes what JSON says of these.
        write: Returns the writer of its bytes.
    """

    raw: str
    names: list[str]
    decode: Callable[[Cursor], list[pa.Array]]
    read: _Read
    write: Callable[[pa.RecordBatch], RowWriter]


def printed_rows(layout: Layout, batch: pa.RecordBatch) -> dict[int, dict[str, Any]]:
    """Return what is printed instead of columns that do not have, or do not say, all of a value.

    Args:
        layout: The layout of the rows.
        batch: The rows. Where columns are missing, exact bytes are taken for current ones.

    Returns:
        By the number of the row: the whole values by column, or the bytes as `raw_key` and
        `raw_value`; nothing for a row whose columns say everything.
    """
    by_row: dict[int, dict[str, Any]] = {}
    for side in _sides(layout):
        for row, more in _printed_side(side, batch):
            by_row.setdefault(row, {}).update(more)
    return by_row


def printed_keys(layout: KeyedLayout, keys: pa.LargeBinaryArray) -> list[Any]:
    """Return keys of `keys_of` as Python values: bytes if neither a column nor a text holds one."""
    column, inexact = decode_keys(layout, keys)
    values: list[Any] = column.to_pylist()
    for row in np.flatnonzero(inexact).tolist():
        data = keys[row].as_py()
        parts = _printed(partial(_read_parts, [(KEY, layout.key)]), data)
        values[row] = parts[KEY] if parts else data
    return values


def printed_column(layout: Layout, batch: pa.RecordBatch, name: str, raw: str) -> list[Any]:
    """Return a column as Python values: bytes if neither it nor a text holds one.

    Args:
        layout: The layout of the rows.
        batch: The rows.
        name: The column.
        raw: The column of its exact bytes.
    """
    values: list[Any] = batch.column(name).to_pylist()
    for row, more in printed_rows(layout, batch).items():
        values[row] = more.get(name, more.get(raw, values[row]))
    return values


def _sides(layout: Layout) -> list[_Side]:
    if isinstance(layout, OperatorLayout):
        sides = [
            _Side(
                RAW_VALUE, [VALUE], layout.decode_values,
                partial(_read_parts, [(VALUE, layout.value)]), layout.value_writer,
            )
        ]  # fmt: skip
        if layout.key is not None:
            read = partial(_read_parts, [(KEY, layout.key)])
            sides.append(_Side(RAW_KEY, [KEY], layout.decode_key, read, layout.key_writer))
        return sides
    names = layout.schema.names
    keys = [name for name in (TIMESTAMP, KEY, NAMESPACE, USER_KEY) if name in names]
    values = [name for name in (VALUE, TTL) if name in names]
    return [
        _Side(RAW_KEY, keys, layout.decode_key, partial(_read_key, layout), layout.key_writer),
        _Side(
            RAW_VALUE, values, layout.decode_values, partial(_read_value, layout),
            layout.value_writer,
        ),
    ]  # fmt: skip


def _printed_side(side: _Side, batch: pa.RecordBatch) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows whose columns do not show all of the value, each with the reason."""
    if side.raw not in batch.schema.names:
        return
    raw = batch.column(side.raw)
    if raw.null_count < len(raw):
        for row in np.flatnonzero(_holding(side, batch)).tolist():
            data = raw[row].as_py()
            yield row, _printed(side.read, data) or {side.raw: data}
    if not _has_all(side, batch):
        return
    odd = np.zeros(len(batch), bool)
    for name in side.names:
        odd |= odd_nans(batch.column(name))
    rows = np.flatnonzero(odd & np.asarray(raw.is_null()))
    if rows.size:
        written = side.write(batch.take(pa.array(rows))).to_binary()
        for row, data in zip(rows.tolist(), written.to_pylist(), strict=True):
            yield row, {side.raw: data}


def _holding(side: _Side, batch: pa.RecordBatch) -> Any:
    """Return 1 for each row whose exact bytes are those of its value, which may be edited."""
    if not _has_all(side, batch):
        return np.asarray(batch.column(side.raw).is_valid())
    try:
        return exact_rows(batch, side.raw, side.names, side.decode)
    except StateError:  # bytes of nothing, which an export refuses
        return np.asarray(batch.column(side.raw).is_valid())


def _has_all(side: _Side, batch: pa.RecordBatch) -> bool:
    return set(side.names) <= set(batch.schema.names)


def _printed(read: _Read, data: bytes) -> dict[str, Any] | None:
    """Return the columns of a row's bytes, if JSON can say all of them; else None."""
    source, out = DataInput(data), DataOutput()
    try:
        with exact_values():
            values = read(source, out)
    except StateError:
        return None
    return values if out.buffer == data else None


def _read_parts(
    parts: list[tuple[str, TypeSerializer]], source: DataInput, out: DataOutput
) -> dict[str, Any]:
    """Read one value after the other, and write what JSON says of each."""
    values: dict[str, Any] = {}
    for name, serializer in parts:
        values[name] = serializer.read(source)
        serializer.write(exact_json_value(values[name]), out)
    return values


def _read_key(layout: KeyedLayout, source: DataInput, out: DataOutput) -> dict[str, Any]:
    """Read the key bytes of an entry.

    Raises:
        EncodeError: The end of a part is not known.
    """
    if layout.opaque_key or not (layout.key.self_delimiting and layout.namespace.self_delimiting):
        raise EncodeError("a key whose end is not known")
    if layout.kind is StateKind.TIMERS:
        out.write_bytes(source.read_bytes(TIMESTAMP_BYTES))
    values: dict[str, Any] = {}
    for name, serializer in ((KEY, layout.key), (NAMESPACE, layout.namespace)):
        start, begun = source.position, len(out)
        values |= _read_parts([(name, serializer)], source, out)
        if layout.ambiguous:
            source.read_bytes(int(trailer_sizes(np.array([source.position - start]))[0]))
            LengthTrailer().write(len(out) - begun, out)
    if layout.user_key is not None:
        values |= _read_parts([(USER_KEY, layout.user_key)], source, out)
    return values


def _read_value(layout: KeyedLayout, source: DataInput, out: DataOutput) -> dict[str, Any]:
    """Read the value bytes of an entry.

    Raises:
        EncodeError: JSON would say null of something else.
    """
    stored = layout.stored_value()
    assert stored is not None  # noqa: S101 - rows of timers have no `raw_value`
    if layout.kind is StateKind.MAP:
        null = source.read_boolean()
        out.write_boolean(null)
        if null:
            return {VALUE: None, **({TTL: None} if layout.with_ttl else {})}
    value = _read_parts([(VALUE, stored)], source, out)[VALUE]
    if TTL not in layout.schema.names:
        if value is None and layout.kind is StateKind.MAP:
            raise EncodeError("a map's value that is null, and not by its flag")
        return {VALUE: value}
    if layout.kind is StateKind.LIST:
        return {name: [element[name] for element in value] for name in (VALUE, TTL)}
    return {name: value[name] for name in (VALUE, TTL)}
