"""Flink SQL's binary format into Arrow buffers: slots of little-endian numbers, and references.

A section (a row, an array) has a *slot* for each of its fields: a number, or the position of a
longer value in the section. Kernels here read one field of many sections at once. `state` tells for
each slot whether it has a value: `ABSENT` (nothing to read), `VALUE`, `NULL`, and after reading
`LOST` for a value that the column can't hold.

Bytes that Flink's writers would write differently are still read, and marked inexact. Longer values
are read by `binary_values`.

Source: `org.apache.flink.table.data.binary` (`BinaryRowData`, `BinaryArrayData`,
`BinaryMapData`).
"""

from __future__ import annotations

import numpy as np

from statelake.state_core.kernels.bytes_at import i32
from statelake.state_core.kernels.compiler import inlined, kernel, kernels_by_width

ABSENT, VALUE, NULL, LOST = 0, 1, 2, 3


@inlined
def load32(data, at):
    """Return four bytes, little-endian."""
    return np.int32(
        np.uint32(data[np.uintp(at)])
        | (np.uint32(data[np.uintp(at + 1)]) << np.uint32(8))
        | (np.uint32(data[np.uintp(at + 2)]) << np.uint32(16))
        | (np.uint32(data[np.uintp(at + 3)]) << np.uint32(24))
    )


@inlined
def load64(data, at):
    """Return eight bytes, little-endian."""
    low = np.uint64(np.uint32(load32(data, at)))
    high = np.uint64(np.uint32(load32(data, at + 4)))
    return np.int64((high << np.uint64(32)) | low)


@inlined
def all_zero(data, start, stop):
    """Return whether all bytes are zero."""
    bits = np.uint8(0)
    for at in range(start, stop):
        bits |= data[np.uintp(at)]
    return bits == 0


@kernel("int64(U8R, I64, I64R, U8R, I64, I64)")
def locate_sized(data, position, end, present, starts, ends):
    """Find the bytes behind i32 lengths, big-endian; return the first bad row, or -1."""
    for row in range(position.size):
        starts[row] = 0
        ends[row] = 0
        if present.size and present[row] == 0:
            continue
        at = position[row]
        if at + 4 > end[row]:
            return np.int64(row)
        length = i32(data, at)
        at += 4
        if length < 0 or length > end[row] - at:
            return np.int64(row)
        starts[row] = at
        ends[row] = at + length
        position[row] = at + length
    return np.int64(-1)


# --------------------------------------------------------------------------- rows


@kernel("int64(U8R, I64R, I64R, U8R, int64, int64, I64, U8)")
def open_rows(data, base, end, present, arity, mask_bytes, cursor, inexact):
    """Check that the fixed part of each row fits, and set the cursor behind it.

    A row kind other than `+I`, and null bits of fields that don't exist, are marked inexact.

    Returns:
        The first row that does not fit, or -1.
    """
    fixed = mask_bytes + 8 * arity
    bits = arity + 8
    for row in range(base.size):
        cursor[row] = end[row]
        if present.size and present[row] == 0:
            continue
        at = base[row]
        if end[row] - at < fixed:
            return np.int64(row)
        cursor[row] = at + fixed
        if data[np.uintp(at)] != 0:
            inexact[row] = 1
        unused = np.uint8(0)
        bit_bytes = (bits + 7) >> 3
        if bits & 7:
            unused = data[np.uintp(at + (bits >> 3))] >> np.uint8(bits & 7)
        if unused != 0 or not all_zero(data, at + bit_bytes, at + mask_bytes):
            inexact[row] = 1
    return np.int64(-1)


@kernel("void(U8R, I64R, U8R, int64, U8)")
def row_states(data, base, present, field, state):
    """Fill in whether a field of each row is null."""
    bit = field + 8
    byte, shift = bit >> 3, np.uint8(bit & 7)
    for row in range(base.size):
        if present.size and present[row] == 0:
            state[row] = ABSENT
        else:
            null = (data[np.uintp(base[row] + byte)] >> shift) & np.uint8(1)
            state[row] = VALUE + null


@kernel("void(I64R, U8R, I64R, U8)")
def close_sections(end, present, cursor, inexact):
    """Mark sections inexact that are longer than their content."""
    for row in range(end.size):
        if cursor[row] != end[row] and (present.size == 0 or present[row] != 0):
            inexact[row] = 1


# --------------------------------------------------------------------------- arrays and maps


@kernel("int64(U8R, I64R, I64R, U8R, int64, I64, I64, U8)")
def open_arrays(data, base, end, present, width, counts, cursor, inexact):
    """Count the elements of each array, and set the cursor behind its fixed part.

    Returns:
        The first array that does not fit, or -1.
    """
    for row in range(base.size):
        counts[row] = 0
        cursor[row] = end[row]
        if present.size and present[row] == 0:
            continue
        at = base[row]
        if end[row] - at < 4:
            return np.int64(row)
        count = np.int64(load32(data, at))
        if count < 0 or count > 8 * (end[row] - at):
            return np.int64(row)
        mask_end = at + 4 + ((count + 31) >> 5) * 4
        used = mask_end + count * width
        fixed_end = at + ((used - at + 7) & ~7)
        if fixed_end > end[row]:
            return np.int64(row)
        counts[row] = count
        cursor[row] = fixed_end
        bits_end = at + 4 + ((count + 7) >> 3)
        unused = np.uint8(0)
        if count & 7:
            unused = data[np.uintp(at + 4 + (count >> 3))] >> np.uint8(count & 7)
        if (
            unused != 0
            or not all_zero(data, bits_end, mask_end)
            or not all_zero(data, used, fixed_end)
        ):
            inexact[row] = 1
    return np.int64(-1)


@kernel("void(U8R, I64R, I64R, I64R, int64, I64, U8, I64)")
def spread_arrays(data, base, counts, first, width, slots, state, owner):
    """Fill in the slot of every element, whether it is null, and its array."""
    for row in range(base.size):
        mask = base[row] + 4
        at = mask + ((counts[row] + 31) >> 5) * 4
        for step in range(counts[row]):
            index = first[row] + step
            slots[index] = at
            at += width
            null = data[np.uintp(mask + (step >> 3))] >> np.uint8(step & 7)
            state[index] = VALUE + (null & np.uint8(1))
            owner[index] = row


@kernel("int64(U8R, I64R, I64R, U8R, I64, I64)")
def split_maps(data, base, end, present, starts, middles):
    """Find the starts of the array of keys and of the array of values of each map.

    Returns:
        The first map that does not fit, or -1.
    """
    for row in range(base.size):
        starts[row] = 0
        middles[row] = 0
        if present.size and present[row] == 0:
            continue
        at = base[row]
        if end[row] - at < 4:
            return np.int64(row)
        size = np.int64(load32(data, at))
        if size < 0 or size > end[row] - at - 4:
            return np.int64(row)
        starts[row] = at + 4
        middles[row] = at + 4 + size
    return np.int64(-1)


# --------------------------------------------------------------------------- numbers in slots


@kernels_by_width("void(U8R, I64R, U8R, int64, {}, U8)")
def _read_slots(data, slots, state, padding, out, inexact):
    """Read a number as wide as those of `out`, and `padding` zeros."""
    width = np.iinfo(out.dtype).bits // 8
    for row in range(slots.size):
        out[row] = 0
        if state[row] == ABSENT:
            continue
        at, bits = slots[row], np.uint64(0)
        for step in range(width):
            bits |= np.uint64(data[np.uintp(at + step)]) << np.uint64(8 * step)
        if state[row] == VALUE:
            out[row] = out.dtype.type(bits)
        elif bits != 0:
            inexact[row] = 1
        if not all_zero(data, at + width, at + width + padding):
            inexact[row] = 1


read_slots8, read_slots16, read_slots32, read_slots64 = _read_slots
