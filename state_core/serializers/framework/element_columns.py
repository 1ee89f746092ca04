"""The elements of lists and maps in columns: their positions, presence, and targets.

Source: `ListSerializer` and `MapSerializer` in `org.apache.flink.api.common.typeutils.base`, which
write an i32 count and then the elements.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statelake.state_core.files.wire import DataInput
from statelake.state_core.kernels import decode, encode, skip
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import (
    ALL_PRESENT,
    Cursor,
    I64Array,
    Target,
    U8Array,
    arrow_buffer,
    list_offsets,
    present_rows,
    validity,
    written_rows,
)


def offsets_of(sizes: I64Array) -> I64Array:
    """Return the starts of consecutive values of these sizes, and the end of the last one."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)))


def locate(cursor: Cursor, counts: I64Array, first: I64Array, element: TypeSerializer) -> Cursor:
    """Return a cursor over the elements of all rows; this one moves behind them.

    A row with an element whose end can't be found is lost: `first` then gives it no elements.

    Args:
        cursor: The cursor, at each row's first element.
        counts: The number of elements of each row.
        first: The index of each row's first element, and the number of all elements.
        element: The serializer of an element.
    """
    total = int(first[-1])
    if element.length > 0:
        short = np.flatnonzero(counts * element.length > cursor.end - cursor.position)
        cursor.check(int(short[0]) if short.size else -1, f"elements of {element.name}")
        starts, ends = np.empty(total, np.int64), np.empty(total, np.int64)
        decode.spread_fixed(cursor.position, counts, first, element.length, starts, ends)
        cursor.position += counts * element.length
        return cursor.children(starts, ends)
    program = element.skip_program()
    if program is not None:
        return locate_by_program(cursor, counts, first, program)
    starts, ends = np.empty(total, np.int64), np.empty(total, np.int64)
    for row in np.flatnonzero(counts).tolist():
        at, end = int(cursor.position[row]), int(cursor.end[row])
        source = DataInput(cursor.data.data[at:end], cursor.place(at))
        for index in range(int(first[row]), int(first[row + 1])):
            starts[index] = at + source.position
            element.skip(source)
            ends[index] = at + source.position
        cursor.position[row] = at + source.position
    return cursor.children(starts, ends)


def locate_by_program(
    cursor: Cursor, counts: I64Array, first: I64Array, program: tuple[int, ...]
) -> Cursor:
    """Locate elements as `locate` does, with the program of `kernels.skip` that walks one."""
    total = int(first[-1])
    starts, ends = np.empty(total, np.int64), np.empty(total, np.int64)
    failed = skip.locate_counted(
        cursor.data, cursor.position, cursor.end, counts, first,
        np.array(program, np.int32), starts, ends,
    )  # fmt: skip
    cursor.check(failed, "elements of variable size")
    unknown = np.flatnonzero(cursor.position == skip.UNKNOWN)
    if unknown.size:
        cursor.lose(unknown)
        kept = np.ones(cursor.rows, np.int64)
        kept[unknown] = 0
        located = np.repeat(kept, counts) != 0
        starts, ends = starts[located], ends[located]
        first[:] = offsets_of(counts * kept)
    return cursor.children(starts, ends)


def list_array(kind: pa.DataType, first: I64Array, present: U8Array, items: pa.Array) -> pa.Array:
    """Return a list or map column of these elements."""
    bitmap, nulls = validity(present)
    buffers = [bitmap, arrow_buffer(first.astype(np.int32))]
    return pa.Array.from_buffers(kind, len(first) - 1, buffers, nulls, children=[items])


def elements_of(values: pa.Array, present: U8Array) -> tuple[I64Array, pa.Array]:
    """Return offsets from 0, and the elements of a list column: those of present rows only."""
    values = _without_hidden(values, present)
    first = list_offsets(values)
    start = int(first[0])
    return first - start, values.values.slice(start, int(first[-1]) - start)


def entries_of(values: pa.Array, present: U8Array) -> tuple[I64Array, pa.Array, pa.Array]:
    """Return offsets from 0, and keys and values of a map column: those of present rows only."""
    values = _without_hidden(values, present)
    first = list_offsets(values)
    start, count = int(first[0]), int(first[-1] - first[0])
    return first - start, values.keys.slice(start, count), values.items.slice(start, count)


def _without_hidden(values: pa.Array, present: U8Array) -> pa.Array:
    """Drop the elements of rows that are null or absent, which Arrow allows."""
    written = written_rows(values, present)
    if written.size == 0:
        return values
    hidden = (np.diff(list_offsets(values)) > 0) & (written == 0)
    if not hidden.any():
        return values
    return values.take(pa.array(np.arange(len(values)), mask=hidden))


def place_elements(target: Target, first: I64Array, sizes: I64Array) -> Target:
    """Write the counts at the target, and return the targets of the elements behind them."""
    within = offsets_of(sizes)
    encode.write_fixed32(
        np.diff(first).astype(np.int32), target.present, target.out, target.position
    )
    start = target.position - within[first[:-1]]
    positions = np.repeat(start, np.diff(first)) + within[:-1]
    target.position += within[first[1:]] - within[first[:-1]]
    return Target(target.out, positions)


def write_counted(
    target: Target, first: I64Array, elements: pa.Array, element: TypeSerializer
) -> None:
    """Write the counts of lists, each followed by its elements."""
    element.encode(elements, place_elements(target, first, element.sizes(elements, ALL_PRESENT)))


def without_null_keys(
    cursor: Cursor, first: I64Array, keys: pa.Array, items: pa.Array
) -> tuple[U8Array, I64Array, pa.Array, pa.Array]:
    """Drop maps with a null key, which Arrow can't hold: their rows become null and inexact.

    Args:
        cursor: The cursor over the rows of the maps.
        first: The index of each row's first entry, and the number of all entries.
        keys: The keys of all rows.
        items: The values of all rows.

    Returns:
        The presence of rows, and offsets, keys and values without the dropped maps.
    """
    if not keys.null_count:
        return cursor.present, first, keys, items
    nulls = offsets_of(1 - present_rows(keys).astype(np.int64))
    bad = (nulls[first[1:]] > nulls[first[:-1]]).astype(np.uint8)
    cursor.inexact |= bad
    present: U8Array = 1 - bad if cursor.present.size == 0 else (1 - bad) & cursor.present
    counts = np.diff(first)
    kept = pa.array(np.flatnonzero(np.repeat(present, counts)))
    first = offsets_of(counts * present.astype(np.int64))
    return present, first, keys.take(kept), items.take(kept)
