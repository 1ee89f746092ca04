"""Time to live of a state that exists, switched on or off: the time before each value.

The values stay as they are, bit by bit. A value of a value, reducing or aggregating state has one
time, as has each element of a list and each value of a map. Flink 2 does the same when it restores,
with the time of the restore for all; Flink 1 refuses.

Source: `TtlAwareSerializer.migrateValueFromPriorSerializer`, `TtlStateFactory`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.errors import EncodeError, IncompatibleError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.layout.keyed_layout import RAW_VALUE, TTL, VALUE, KeyedLayout
from statelake.state_core.formats.rewriting.value_migration import (
    TTL_BYTES,
    current_exact,
    rewrite_entry,
    with_columns,
)
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.nested import column_path, elements_of, lists_of
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer


def switch_on(rows: StateRows, last_access: int | str) -> StateRows:
    """Give each value, list element or map value a time of last access.

    Args:
        rows: Rows of a state without times.
        last_access: The time, in milliseconds since 1970; or the values' field that has it.

    Raises:
        IncompatibleError: The values have no such field, or the elements of a list are not known.
        EncodeError: The field of a value is null, or a null of a map can't have a time.
    """
    layout = _splitting(replace(rows.layout, with_ttl=True))
    values, exact = _values(rows), _exact(rows)
    if isinstance(last_access, int):
        times = pa.array(np.full(len(values), last_access, np.int64))
    else:
        times = times_in(values, last_access)
    column = times
    if layout.kind is StateKind.LIST:
        bounds, _ = elements_of(rows.batch.column(VALUE))
        column = lists_of(pa.list_(times.type), bounds, [times])
    raw: list[bytes | None] = []
    for data, time in zip(exact, column.to_pylist() if exact else (), strict=True):
        of_row = iter(time if layout.kind is StateKind.LIST else [time])

        def timed(source: DataInput, of_row: Iterator[int] = of_row) -> bytes:
            return next(of_row).to_bytes(TTL_BYTES, "big", signed=True) + _one(rows.layout, source)

        null = layout.kind is StateKind.MAP and data is not None and data[:1] != b"\0"
        raw.append(
            None if data is None or null else rewrite_entry(_source(rows, data), layout.kind, timed)
        )
    return _switched(rows, layout, {TTL: column}, raw)


def switch_off(rows: StateRows) -> StateRows:
    """Return the same values without their times of last access, expired or not.

    Raises:
        IncompatibleError: The elements of a list are not known.
    """
    layout = replace(rows.layout, with_ttl=False)
    _splitting(rows.layout)

    def bare(source: DataInput) -> bytes:
        source.read_bytes(TTL_BYTES)
        return _one(layout, source)

    raw = [
        None if data is None else rewrite_entry(_source(rows, data), layout.kind, bare)
        for data in _exact(rows)
    ]
    return _switched(rows, layout, {}, raw)


def _switched(
    rows: StateRows,
    layout: KeyedLayout,
    columns: dict[str, pa.Array],
    raw: list[bytes | None],
) -> StateRows:
    """Return rows with other times."""
    exact = pa.array(raw, pa.binary()) if raw else pa.nulls(len(rows.batch), pa.binary())
    columns = {**columns, RAW_VALUE: exact}
    return replace(rows, layout=layout, batch=with_columns(rows, layout, columns))


def _splitting(layout: KeyedLayout) -> KeyedLayout:
    """Return the layout with times, unless a list is one piece of bytes in it.

    Raises:
        IncompatibleError: A list is one piece of bytes.
    """
    if isinstance(layout.stored_value(), OpaqueSerializer):
        raise IncompatibleError(
            "the end of a list's elements is not known, and each of them has its own time",
            remedy="register a serializer for the elements' class (--plugins)",
        )
    return layout


def _values(rows: StateRows) -> pa.Array:
    """Return the values, of a list all elements."""
    column = rows.batch.column(VALUE)
    return elements_of(column)[1] if rows.layout.kind is StateKind.LIST else column


def times_in(values: pa.Array, name: str) -> pa.Array:
    """Return the times that a field of the values has, in milliseconds.

    Args:
        values: The values; of an empty column only the type is examined.
        name: The field; that of a field within it behind a dot.

    Raises:
        IncompatibleError: There is no such field, or it has no times.
        EncodeError: A time is null.
    """
    times = values
    for part in column_path(values.type, name).split("."):
        if not pa.types.is_struct(times.type) or times.type.get_field_index(part) < 0:
            known = [field.name for field in times.type] if pa.types.is_struct(times.type) else []
            raise IncompatibleError(
                f"the values have no field {name!r} for the time of last access",
                remedy=f"it may be {' or '.join([*known, 'now', 'taken_at'])}",
            )
        times = pc.struct_field(times, part)
    kind = times.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        zone = kind.tz if pa.types.is_timestamp(kind) else None
        times = times.cast(pa.timestamp("ms", zone), safe=False).cast(pa.int64())
    elif not pa.types.is_int64(kind):
        raise IncompatibleError(
            f"field {name!r} is {kind}, and a time of last access is a Long of milliseconds or of"
            " a type of dates",
            remedy="name another field, or say now or taken_at",
        )
    if times.null_count:
        raise EncodeError(
            f"{times.null_count} values whose {name} is null, and each needs a time",
            remedy="give these a time first (`statelake sql --edit`), or say now or taken_at",
        )
    return times


def _exact(rows: StateRows) -> list[bytes | None]:
    """Return each row's exact bytes; an empty list if no row has any."""
    batch = rows.batch
    if batch.column(RAW_VALUE).null_count == len(batch):
        return []
    exact: list[bytes | None] = current_exact(rows.layout, batch).to_pylist()
    return exact


def _source(rows: StateRows, data: bytes) -> DataInput:
    return DataInput(data, f"state {rows.name!r}, {RAW_VALUE}")


def _one(layout: KeyedLayout, source: DataInput) -> bytes:
    """Return the next value's bytes; only a list's elements are followed by others."""
    if layout.kind is not StateKind.LIST:
        return source.read_rest()
    assert layout.value is not None  # noqa: S101 - not of timers
    start = source.position
    layout.value.read(source)
    end, source.position = source.position, start
    return source.read_bytes(end - start)
