"""The elements of lists and maps in columns: where they lie, which are present, where they go.

Source: `ListSerializer` and `MapSerializer` in `org.apache.flink.api.common.typeutils.base`, which
write an i32 count and then the elements.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from state_core.errors import EncodeError
from state_core.files.wire import DataInput
from state_core.kernels import decode, encode, skip
from state_core.serializers.framework.base import TypeSerializer
from state_core.serializers.framework.columns import (
    ALL_PRESENT,
    Cursor,
    I64Array,
    Target,
    U8Array,
    arrow_buffer,
    list_offsets,
    present_rows,
    validity,
)

__all__ = [
    "drop_rows",
    "elements_of",
    "entries_of",
    "list_array",
    "locate",
    "locate_by_program",
    "offsets_of",
    "place_elements",
    "without_null_keys",
    "write_counted",
]


def offsets_of(sizes: I64Array) -> I64Array:
    """Where each begins if they lie one behind the other, and where the last ends."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)))


def locate(cursor: Cursor, counts: I64Array, first: I64Array, element: TypeSerializer) -> Cursor:
    """The elements of all rows, whose `counts` stand before the cursor; it moves behind them.

    A row with an element of which nobody knows the end is lost: `first` then gives it none.
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
    """The same by the program of `kernels.skip` that walks an element."""
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
        held = np.repeat(kept, counts) != 0
        starts, ends = starts[held], ends[held]
        first[:] = offsets_of(counts * kept)
    return cursor.children(starts, ends)


def list_array(kind: pa.DataType, first: I64Array, present: U8Array, items: pa.Array) -> pa.Array:
    """A list column of these elements."""
    bitmap, nulls = validity(present)
    buffers = [bitmap, arrow_buffer(first.astype(np.int32))]
    return pa.Array.from_buffers(kind, len(first) - 1, buffers, nulls, children=[items])


def elements_of(values: pa.Array, present: U8Array) -> tuple[I64Array, pa.Array]:
    """Offsets from 0 and the elements of a list column's present rows; others have none."""
    first = _visible_offsets(values)
    elements = values.values.slice(int(first[0]), int(first[-1] - first[0]))
    first -= first[0]
    counts, kept = _of_present(first, present)
    return (first, elements) if kept is None else (offsets_of(counts), elements.take(kept))


def entries_of(values: pa.Array, present: U8Array) -> tuple[I64Array, pa.Array, pa.Array]:
    """Offsets from 0, and the keys and values of a map column's present rows; others have none."""
    first = _visible_offsets(values)
    start, count = int(first[0]), int(first[-1] - first[0])
    keys, items = values.keys.slice(start, count), values.items.slice(start, count)
    first -= start
    counts, kept = _of_present(first, present)
    if kept is None:
        return first, keys, items
    return offsets_of(counts), keys.take(kept), items.take(kept)


def _of_present(first: I64Array, present: U8Array) -> tuple[I64Array, pa.Array | None]:
    """How many elements present rows have, and which; None if no other row has any."""
    counts: I64Array = np.diff(first)
    if present.size == 0 or not counts[present == 0].any():
        return counts, None
    kept = np.flatnonzero(np.repeat(present, counts))
    counts[present == 0] = 0
    return counts, pa.array(kept)


def _visible_offsets(values: pa.Array) -> I64Array:
    """Offsets, where a null row hides no elements (Arrow lets it, no writer does it)."""
    first = list_offsets(values)
    if values.null_count:
        hidden = (np.diff(first) > 0) & (present_rows(values) == 0)
        if hidden.any():
            raise EncodeError(f"row {int(np.flatnonzero(hidden)[0])} is null and has elements")
    return first


def place_elements(target: Target, first: I64Array, sizes: I64Array) -> Target:
    """Write the counts at the target, and return the places of the elements behind them."""
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
    """Write the counts of lists, and behind each its elements."""
    element.encode(elements, place_elements(target, first, element.sizes(elements, ALL_PRESENT)))


def without_null_keys(cursor: Cursor, first: I64Array, keys: pa.Array) -> U8Array:
    """Rows whose map Arrow can hold: one with a null key becomes null, its exact bytes beside."""
    nulls = offsets_of(1 - present_rows(keys).astype(np.int64))
    bad = (nulls[first[1:]] > nulls[first[:-1]]).astype(np.uint8)
    cursor.inexact |= bad
    good: U8Array = 1 - bad
    return good if cursor.present.size == 0 else good & cursor.present


def drop_rows(
    keys: pa.Array, values: pa.Array, first: I64Array, present: U8Array
) -> tuple[pa.Array, pa.Array, I64Array]:
    """Keys, values and offsets without those of rows that are not present."""
    counts = np.diff(first)
    kept = np.flatnonzero(np.repeat(present, counts))
    return keys.take(kept), values.take(kept), offsets_of(counts * present.astype(np.int64))
