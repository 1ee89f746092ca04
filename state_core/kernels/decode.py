"""Bytes at given positions into Arrow buffers, one kernel for each layout.

All take the bytes, a cursor (`position`, moved by reading; `end`, never passed) and `present` (one
byte a row, 0 where the value is null and nothing is read; of size 0 when all are present). All
return the first row that does not fit, or -1.
"""

from __future__ import annotations

import numpy as np

from statelake.state_core.kernels.bytes_at import i32, varint32
from statelake.state_core.kernels.compiler import helper, inlined, kernel, kernels_by_width

# cells of the `totals` array of the variable-length kernels
BYTES, INEXACT = 0, 1


@kernel("int64(I64R, I64R, U8R)")
def room(position, end, present):
    """Count the bytes between the cursor and the ends of the present rows."""
    total = np.int64(0)
    for row in range(position.size):
        if present.size == 0 or present[row] != 0:
            total += end[row] - position[row]
    return total


@kernel("int64(I64R, I64R, U8R)")
def first_unfinished(position, end, present):
    """Return the first present row whose cursor is not at its end, or -1."""
    for row in range(position.size):
        if position[row] != end[row] and (present.size == 0 or present[row] != 0):
            return np.int64(row)
    return np.int64(-1)


@kernel("int64(U8R, I64, I64R, U8R, U8)")
def read_zeros(data, position, end, present, inexact):
    """Read one byte a row that should be 0; other values are marked inexact."""
    for row in range(position.size):
        if present.size and present[row] == 0:
            continue
        at = position[row]
        if at + 1 > end[row]:
            return np.int64(row)
        if data[np.uintp(at)] != 0:
            inexact[row] = 1
        position[row] = at + 1
    return np.int64(-1)


@kernels_by_width("int64(U8R, I64, I64R, U8R, {})")
def _read_fixed(data, position, end, present, out):
    """Read a big-endian number as wide as those of `out`."""
    width = np.iinfo(out.dtype).bits // 8
    for row in range(position.size):
        if present.size and present[row] == 0:
            out[row] = 0
            continue
        at = position[row]
        if at + width > end[row]:
            return np.int64(row)
        bits = np.uint64(0)
        for step in range(width):
            bits |= np.uint64(data[np.uintp(at + step)]) << np.uint64(8 * (width - 1 - step))
        out[row] = out.dtype.type(bits)
        position[row] = at + width
    return np.int64(-1)


read_fixed8, read_fixed16, read_fixed32, read_fixed64 = _read_fixed


@kernel("int64(U8R, I64, I64R, U8R, U8, U8, I64)")
def read_bools(data, position, end, present, out, inexact, totals):
    """Read one byte a row, 0 or 1; any other value is true too, and marked inexact."""
    for row in range(position.size):
        if present.size and present[row] == 0:
            out[row] = 0
            continue
        at = position[row]
        if at + 1 > end[row]:
            return np.int64(row)
        flag = data[np.uintp(at)]
        out[row] = 1 if flag != 0 else 0
        if flag > 1:
            inexact[row] = 1
            totals[INEXACT] += 1
        position[row] = at + 1
    return np.int64(-1)


@kernel("int64(U8R, I64, I64R, U8R, int64, int64, U8)")
def read_bits(data, position, end, present, bits, index, out):
    """Read bit `index` of a mask of `bits` bits, most significant first; the cursor stays.

    The first row that is too short for the mask is returned.
    """
    width = (bits + 7) >> 3
    for row in range(position.size):
        if present.size and present[row] == 0:
            out[row] = 0
            continue
        at = position[row]
        if at + width > end[row]:
            return np.int64(row)
        byte = data[np.uintp(at + (index >> 3))]
        out[row] = (byte >> np.uint8(7 - (index & 7))) & np.uint8(1)
    return np.int64(-1)


@kernel("void(I64R, I64R, I64R, int64, I64, I64)")
def spread_fixed(position, counts, first, width, starts, ends):
    """Fill in the start and end of each of `counts[row]` values of `width` bytes."""
    for row in range(position.size):
        at = position[row]
        for index in range(first[row], first[row] + counts[row]):
            starts[index] = at
            at += width
            ends[index] = at


@kernel("int64(U8R, I64, I64R, U8R, I32, U8, I64)")
def read_byte_arrays(data, position, end, present, offsets, out, totals):
    """Read an i32 length and that many bytes; `out` has room for all bytes of the rows."""
    written = np.int64(0)
    offsets[0] = 0
    for row in range(position.size):
        if present.size == 0 or present[row] != 0:
            at = position[row]
            if at + 4 > end[row]:
                return np.int64(row)
            length = i32(data, at)
            at += 4
            if length < 0 or length > end[row] - at:
                return np.int64(row)
            for step in range(length):
                out[np.uintp(written + step)] = data[np.uintp(at + step)]
            written += length
            position[row] = at + length
        offsets[row + 1] = written
    totals[BYTES] = written
    return np.int64(-1)


@kernel("int64(U8R, I64R, I64R, U8R, I32, U8, I64)")
def read_units(data, position, end, present, offsets, out, totals):
    """Read all bytes up to the end, as they are."""
    written = np.int64(0)
    offsets[0] = 0
    for row in range(position.size):
        if present.size == 0 or present[row] != 0:
            at = position[row]
            length = end[row] - at
            for step in range(length):
                out[np.uintp(written + step)] = data[np.uintp(at + step)]
            written += length
        offsets[row + 1] = written
    totals[BYTES] = written
    return np.int64(-1)


@inlined
def _put2(out, at, unit):
    out[np.uintp(at)] = 0xC0 | (unit >> 6)
    out[np.uintp(at + 1)] = 0x80 | (unit & 0x3F)


@inlined
def _put3(out, at, unit):
    out[np.uintp(at)] = 0xE0 | (unit >> 12)
    out[np.uintp(at + 1)] = 0x80 | ((unit >> 6) & 0x3F)
    out[np.uintp(at + 2)] = 0x80 | (unit & 0x3F)


@inlined
def _put4(out, at, point):
    out[np.uintp(at)] = 0xF0 | (point >> 18)
    out[np.uintp(at + 1)] = 0x80 | ((point >> 12) & 0x3F)
    out[np.uintp(at + 2)] = 0x80 | ((point >> 6) & 0x3F)
    out[np.uintp(at + 3)] = 0x80 | (point & 0x3F)


@helper
def _string_tail(data, at, end, left, out, written):
    """Convert `left` UTF-16 units in LEB128 to UTF-8; return position, bytes, and exactness."""
    high = np.int64(0)
    exact = True
    while left > 0:
        if at >= end:
            return np.int64(-1), written, exact
        unit, at, shortest = varint32(data, at, end)
        if at < 0 or unit > 0xFFFF:
            return np.int64(-1), written, exact
        exact &= shortest
        left -= 1
        if high and 0xDC00 <= unit < 0xE000:
            _put4(out, written, 0x10000 + ((high - 0xD800) << 10) + (unit - 0xDC00))
            written += 4
            high = np.int64(0)
            continue
        if high:
            _put3(out, written, 0xFFFD)
            written += 3
            exact = False
            high = np.int64(0)
        if unit < 0x80:
            out[np.uintp(written)] = unit
            written += 1
        elif unit < 0x800:
            _put2(out, written, unit)
            written += 2
        elif 0xD800 <= unit < 0xDC00:
            high = unit
        else:
            lone = 0xDC00 <= unit < 0xE000
            _put3(out, written, 0xFFFD if lone else unit)
            written += 3
            exact &= not lone
    if high:
        _put3(out, written, 0xFFFD)
        written += 3
        exact = False
    return at, written, exact


@kernel("int64(U8R, I64, I64R, U8R, I32, U8, U8, U8, I64)")
def read_strings(data, position, end, present, offsets, out, valid, inexact, totals):
    """Convert `StringValue`s to UTF-8, in one pass.

    A lone surrogate, which UTF-8 can't hold, becomes U+FFFD and its row is marked inexact; so is
    a length or a character that is not in its shortest form. `valid[row]` is 0 for a null.

    Args:
        out: At least 3/2 of the rows' bytes: two bytes of input may become three.
        totals: Bytes written, rows marked.
    """
    written = np.int64(0)
    offsets[0] = 0
    for row in range(position.size):
        valid[row] = 0
        if present.size == 0 or present[row] != 0:
            at = position[row]
            stop = end[row]
            if at >= stop:
                return np.int64(row)
            exact = True
            length = np.int64(data[np.uintp(at)])
            at += 1
            if length >= 0x80:
                length, at, exact = varint32(data, at - 1, stop)
            left = length - 1
            if at < 0 or left > stop - at:
                return np.int64(row)
            if length > 0:
                valid[row] = 1
                wide = np.uint8(0)
                for step in range(left):
                    byte = data[np.uintp(at + step)]
                    out[np.uintp(written + step)] = byte
                    wide |= byte
                if wide < 0x80:
                    at += left
                    written += left
                else:
                    at, written, tail_exact = _string_tail(data, at, stop, left, out, written)
                    exact &= tail_exact
                    if at < 0:
                        return np.int64(row)
            if not exact:
                inexact[row] = 1
                totals[INEXACT] += 1
            position[row] = at
        offsets[row + 1] = written
    totals[BYTES] = written
    return np.int64(-1)
