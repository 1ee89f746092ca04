"""Flink SQL's binary format into Arrow buffers: slots of little-endian numbers, and references.

A section (a row, an array) has a *slot* for each of its fields: a number, or where in the section
a longer value lies. Kernels here read one field of many sections at once. `state` says of each
slot whether there is a value: `ABSENT` (nothing to read), `VALUE`, `NULL`, and after reading
`LOST` for a value that the column can't hold.

Flink's writers leave no choice: longer values follow each other in the order of the fields, each
padded to 8 bytes with zeros. `cursor` is where the next one must begin; what lies elsewhere is
read all the same, and marked inexact. It also bounds the work: the longer values of a section
never add up to more than the section.

Source: `org.apache.flink.table.data.binary` (`BinaryRowData`, `BinaryArrayData`,
`BinarySegmentUtils`).
"""

from __future__ import annotations

from numba import njit, types

from state_core.kernels.compiler import I16, I32, I64, I64R, U8, U8R, U64, kernel

__all__ = [
    "check_dates", "close_sections", "find_bad_utf8", "gather", "join_nanos", "locate_decimals",
    "locate_sized", "locate_values", "millis_to_micros", "open_arrays", "open_rows",
    "parse_decimals", "read_slots8", "read_slots16", "read_slots32", "read_slots64",
    "read_wide_timestamps", "row_states", "split_maps", "spread_arrays", "widen_decimals",
]  # fmt: skip

ABSENT, VALUE, NULL, LOST = 0, 1, 2, 3

INLINE_FLAG = 0x80
MAX_INLINE = 7
DECIMAL_BYTES = 16
# what Python, Spark and Arrow agree on: years 1 to 9999
FIRST_MILLI, LAST_MILLI = -62_135_596_800_000, 253_402_300_799_999
FIRST_DAY, LAST_DAY = -719_162, 2_932_896


@njit(inline="always")
def _le32(data, at):
    return types.int32(
        types.uint32(data[types.uintp(at)])
        | (types.uint32(data[types.uintp(at + 1)]) << types.uint32(8))
        | (types.uint32(data[types.uintp(at + 2)]) << types.uint32(16))
        | (types.uint32(data[types.uintp(at + 3)]) << types.uint32(24))
    )


@njit(inline="always")
def _le64(data, at):
    low = types.uint64(types.uint32(_le32(data, at)))
    high = types.uint64(types.uint32(_le32(data, at + 4)))
    return types.int64((high << types.uint64(32)) | low)


@njit(inline="always")
def _be32(data, at):
    return types.int64(
        types.int32(
            (types.uint32(data[types.uintp(at)]) << types.uint32(24))
            | (types.uint32(data[types.uintp(at + 1)]) << types.uint32(16))
            | (types.uint32(data[types.uintp(at + 2)]) << types.uint32(8))
            | types.uint32(data[types.uintp(at + 3)])
        )
    )


@njit(inline="always")
def _all_zero(data, start, stop):
    bits = types.uint8(0)
    for at in range(start, stop):
        bits |= data[types.uintp(at)]
    return bits == 0


@kernel(types.int64(U8R, I64, I64R, U8R, I64, I64))
def locate_sized(data, position, end, present, starts, ends):
    """An i32 length, big-endian, and that many bytes: where they lie; the first bad row or -1."""
    for row in range(position.size):
        starts[row] = 0
        ends[row] = 0
        if present.size and present[row] == 0:
            continue
        at = position[row]
        if at + 4 > end[row]:
            return types.int64(row)
        length = _be32(data, at)
        at += 4
        if length < 0 or length > end[row] - at:
            return types.int64(row)
        starts[row] = at
        ends[row] = at + length
        position[row] = at + length
    return types.int64(-1)


# --------------------------------------------------------------------------- rows


@kernel(types.int64(U8R, I64R, I64R, U8R, types.int64, types.int64, I64, U8))
def open_rows(data, base, end, present, arity, mask_bytes, cursor, inexact):
    """Check that the fixed part of each row fits, and set the cursor behind it.

    A row kind other than `+I` and null bits of fields that are not there are marked inexact.

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
            return types.int64(row)
        cursor[row] = at + fixed
        if data[types.uintp(at)] != 0:
            inexact[row] = 1
        unused = types.uint8(0)
        whole = (bits + 7) >> 3
        if bits & 7:
            unused = data[types.uintp(at + (bits >> 3))] >> types.uint8(bits & 7)
        if unused != 0 or not _all_zero(data, at + whole, at + mask_bytes):
            inexact[row] = 1
    return types.int64(-1)


@kernel(types.void(U8R, I64R, U8R, types.int64, U8))
def row_states(data, base, present, field, state):
    """Whether a field of each row is null."""
    bit = field + 8
    byte, shift = bit >> 3, types.uint8(bit & 7)
    for row in range(base.size):
        if present.size and present[row] == 0:
            state[row] = ABSENT
        else:
            null = (data[types.uintp(base[row] + byte)] >> shift) & types.uint8(1)
            state[row] = VALUE + null


@kernel(types.void(I64R, U8R, I64R, U8))
def close_sections(end, present, cursor, inexact):
    """Mark sections inexact that are longer than what is in them."""
    for row in range(end.size):
        if cursor[row] != end[row] and (present.size == 0 or present[row] != 0):
            inexact[row] = 1


# --------------------------------------------------------------------------- arrays and maps


@kernel(types.int64(U8R, I64R, I64R, U8R, types.int64, I64, I64, U8))
def open_arrays(data, base, end, present, width, counts, cursor, inexact):
    """How many elements each array has, and the cursor behind its fixed part.

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
            return types.int64(row)
        count = types.int64(_le32(data, at))
        if count < 0 or count > 8 * (end[row] - at):
            return types.int64(row)
        mask_end = at + 4 + ((count + 31) >> 5) * 4
        used = mask_end + count * width
        fixed_end = at + ((used - at + 7) & ~7)
        if fixed_end > end[row]:
            return types.int64(row)
        counts[row] = count
        cursor[row] = fixed_end
        whole = at + 4 + ((count + 7) >> 3)
        unused = types.uint8(0)
        if count & 7:
            unused = data[types.uintp(at + 4 + (count >> 3))] >> types.uint8(count & 7)
        if (
            unused != 0
            or not _all_zero(data, whole, mask_end)
            or not _all_zero(data, used, fixed_end)
        ):
            inexact[row] = 1
    return types.int64(-1)


@kernel(types.void(U8R, I64R, I64R, I64R, types.int64, I64, U8, I64))
def spread_arrays(data, base, counts, first, width, slots, state, owner):
    """The slot of every element, whether it is null, and which array it belongs to."""
    for row in range(base.size):
        mask = base[row] + 4
        at = mask + ((counts[row] + 31) >> 5) * 4
        for step in range(counts[row]):
            index = first[row] + step
            slots[index] = at
            at += width
            null = data[types.uintp(mask + (step >> 3))] >> types.uint8(step & 7)
            state[index] = VALUE + (null & types.uint8(1))
            owner[index] = row


@kernel(types.int64(U8R, I64R, I64R, U8R, I64, I64))
def split_maps(data, base, end, present, starts, middles):
    """Where the array of keys and the array of values of each map begin.

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
            return types.int64(row)
        size = types.int64(_le32(data, at))
        if size < 0 or size > end[row] - at - 4:
            return types.int64(row)
        starts[row] = at + 4
        middles[row] = at + 4 + size
    return types.int64(-1)


# --------------------------------------------------------------------------- numbers in slots


@kernel(types.void(U8R, I64R, U8R, I64, U8))
def read_slots64(data, slots, state, out, inexact):
    """Eight bytes."""
    for row in range(slots.size):
        out[row] = 0
        if state[row] == ABSENT:
            continue
        found = _le64(data, slots[row])
        if state[row] == VALUE:
            out[row] = found
        elif found != 0:
            inexact[row] = 1


@kernel(types.void(U8R, I64R, U8R, types.int64, I32, U8))
def read_slots32(data, slots, state, padding, out, inexact):
    """Four bytes, and `padding` zeros."""
    for row in range(slots.size):
        out[row] = 0
        if state[row] == ABSENT:
            continue
        at = slots[row]
        found = _le32(data, at)
        if state[row] == VALUE:
            out[row] = found
        elif found != 0:
            inexact[row] = 1
        if not _all_zero(data, at + 4, at + 4 + padding):
            inexact[row] = 1


@kernel(types.void(U8R, I64R, U8R, types.int64, I16, U8))
def read_slots16(data, slots, state, padding, out, inexact):
    """Two bytes, and `padding` zeros."""
    for row in range(slots.size):
        out[row] = 0
        if state[row] == ABSENT:
            continue
        at = slots[row]
        low = types.uint16(data[types.uintp(at)])
        high = types.uint16(data[types.uintp(at + 1)]) << types.uint16(8)
        found = types.int16(types.uint16(low | high))
        if state[row] == VALUE:
            out[row] = found
        elif found != 0:
            inexact[row] = 1
        if not _all_zero(data, at + 2, at + 2 + padding):
            inexact[row] = 1


@kernel(types.void(U8R, I64R, U8R, types.int64, U8, U8))
def read_slots8(data, slots, state, padding, out, inexact):
    """One byte, and `padding` zeros."""
    for row in range(slots.size):
        out[row] = 0
        if state[row] == ABSENT:
            continue
        at = slots[row]
        found = data[types.uintp(at)]
        if state[row] == VALUE:
            out[row] = found
        elif found != 0:
            inexact[row] = 1
        if not _all_zero(data, at + 1, at + 1 + padding):
            inexact[row] = 1


# --------------------------------------------------------------------------- longer values


@kernel(types.int64(U8R, I64R, U8R, I64R, I64R, I64R, I64, types.boolean, I64, I64, U8))
def locate_values(
    data, slots, state, base, end, owner, cursor, inline, starts, ends, inexact
):  # fmt: skip
    """Where each slot's bytes lie: in the slot itself, or where it says.

    Args:
        base, end, cursor: Per section.
        owner: Per slot, its section; of size 0 if each slot has a section of its own.
        inline: Whether up to 7 bytes lie in the slot (strings and byte arrays do).

    Returns:
        The first slot that leads out of its section, or -1.
    """
    for row in range(slots.size):
        starts[row] = 0
        ends[row] = 0
        if state[row] == ABSENT:
            continue
        at = slots[row]
        word = _le64(data, at)
        if state[row] == NULL:
            if word != 0:
                inexact[row] = 1
            continue
        last = data[types.uintp(at + 7)]
        if inline and last >= INLINE_FLAG:
            length = types.int64(last & types.uint8(0x7F))
            if length > MAX_INLINE:
                return types.int64(row)
            starts[row] = at
            ends[row] = at + length
            if not _all_zero(data, at + length, at + 7):
                inexact[row] = 1
            continue
        section = owner[row] if owner.size else types.int64(row)
        offset, size = word >> 32, types.int64(types.int32(word & 0xFFFFFFFF))
        begin, limit = base[section] + offset, end[section]
        expected = cursor[section]
        if offset < 0 or size < 0 or size > limit - begin or size > limit - expected:
            return types.int64(row)
        padded = (size + 7) & ~7
        cursor[section] = expected + padded
        starts[row] = begin
        ends[row] = begin + size
        if (
            begin != expected
            or begin + padded > limit
            or (inline and size <= MAX_INLINE)
            or not _all_zero(data, begin + size, begin + padded)
        ):
            inexact[row] = 1
    return types.int64(-1)


@kernel(types.int64(U8R, I64R, U8R, I64R, I64R, I64R, I64, I64, I64, U8))
def locate_decimals(data, slots, state, base, end, owner, cursor, starts, ends, inexact):
    """Where the bytes of decimals of more than 18 digits lie; each has 16 bytes reserved."""
    for row in range(slots.size):
        starts[row] = 0
        ends[row] = 0
        if state[row] == ABSENT:
            continue
        word = _le64(data, slots[row])
        if state[row] == NULL:
            if word != 0:
                inexact[row] = 1
            continue
        section = owner[row] if owner.size else types.int64(row)
        offset, size = word >> 32, word & 0xFFFFFFFF
        begin, limit = base[section] + offset, end[section]
        expected = cursor[section]
        room = DECIMAL_BYTES
        if offset < 0 or size < 1 or size > room or room > limit - begin or room > limit - expected:
            return types.int64(row)
        cursor[section] = expected + room
        starts[row] = begin
        ends[row] = begin + size
        if begin != expected or not _all_zero(data, begin + size, begin + room):
            inexact[row] = 1
    return types.int64(-1)


@kernel(types.int64(U8R, I64R, U8, I64R, I64R, I64R, I64, I64, U8))
def read_wide_timestamps(data, slots, state, base, end, owner, cursor, out, inexact):
    """Timestamps of more than 3 digits: nanoseconds in the slot, milliseconds where it says.

    Microseconds come out; what they can't hold is cut off and marked inexact.
    """
    for row in range(slots.size):
        out[row] = 0
        if state[row] == ABSENT:
            continue
        word = _le64(data, slots[row])
        if state[row] == NULL:
            if word != 0:
                inexact[row] = 1
            continue
        section = owner[row] if owner.size else types.int64(row)
        offset, nanos = word >> 32, types.int64(types.int32(word & 0xFFFFFFFF))
        begin, limit = base[section] + offset, end[section]
        expected = cursor[section]
        if offset < 0 or limit - begin < 8 or limit - expected < 8:
            return types.int64(row)
        cursor[section] = expected + 8
        if begin != expected:
            inexact[row] = 1
        _put_micros(_le64(data, begin), nanos, row, state, out, inexact)
    return types.int64(-1)


# --------------------------------------------------------------------------- what Arrow holds


@njit(inline="always")
def _put_micros(millis, nanos, row, state, out, inexact):
    if nanos < 0 or nanos > 999_999 or millis < FIRST_MILLI or millis > LAST_MILLI:
        out[row] = 0
        state[row] = LOST
        inexact[row] = 1
    else:
        out[row] = millis * 1000 + nanos // 1000
        if nanos % 1000 != 0:
            inexact[row] = 1


@kernel(types.void(I64R, U8, I64, U8))
def millis_to_micros(millis, state, out, inexact):
    """Milliseconds into microseconds; a year that is not of four digits is lost."""
    for row in range(millis.size):
        out[row] = 0
        if state[row] == VALUE:
            _put_micros(millis[row], 0, row, state, out, inexact)


@kernel(types.void(I64R, I32, U8, I64, U8))
def join_nanos(millis, nanos, state, out, inexact):
    """Milliseconds and nanoseconds of the millisecond into microseconds."""
    for row in range(millis.size):
        out[row] = 0
        if state[row] == VALUE:
            _put_micros(millis[row], types.int64(nanos[row]), row, state, out, inexact)


@kernel(types.void(I32, U8, U8))
def check_dates(days, state, inexact):
    """Lose days of a year that is not of four digits."""
    for row in range(days.size):
        if state[row] == VALUE and (days[row] < FIRST_DAY or days[row] > LAST_DAY):
            days[row] = 0
            state[row] = LOST
            inexact[row] = 1


@kernel(types.void(I64R, types.int64, U8, U64, U8))
def widen_decimals(values, limit, state, words, inexact):
    """64-bit unscaled values into Arrow's 128 bits; `limit` is ten to the precision."""
    for row in range(values.size):
        value = values[row]
        if state[row] == VALUE and (value >= limit or value <= -limit):
            state[row] = LOST
            inexact[row] = 1
        if state[row] != VALUE:
            value = types.int64(0)
        words[2 * row] = types.uint64(value)
        words[2 * row + 1] = types.uint64(value >> 63)


@kernel(types.int64(U8R, I64R, I64R, types.uint64, types.uint64, U8, U64, U8))
def parse_decimals(data, starts, ends, limit_low, limit_high, state, words, inexact):
    """Big-endian two's complement of 1 to 16 bytes into Arrow's 128 bits.

    More than 16 bytes, and numbers of more digits than the type has, are lost; what is not in
    its shortest form is marked inexact.

    Args:
        limit_low, limit_high: Ten to the precision.

    Returns:
        The first value of no bytes at all, or -1.
    """
    for row in range(starts.size):
        words[2 * row] = 0
        words[2 * row + 1] = 0
        if state[row] != VALUE:
            continue
        at, size = starts[row], ends[row] - starts[row]
        if size <= 0:
            return types.int64(row)
        lead = data[types.uintp(at)]
        negative = lead >= 0x80
        fill = types.uint8(0xFF) if negative else types.uint8(0)
        if size > 1 and lead == fill and (data[types.uintp(at + 1)] >= 0x80) == negative:
            inexact[row] = 1
        while size > DECIMAL_BYTES and data[types.uintp(at)] == fill:
            at += 1
            size -= 1
        if size > DECIMAL_BYTES or (data[types.uintp(at)] >= 0x80) != negative:
            state[row] = LOST
            inexact[row] = 1
            continue
        low = high = types.uint64(0)
        if negative:
            low = high = ~types.uint64(0)
        for step in range(size):
            high = (high << types.uint64(8)) | (low >> types.uint64(56))
            low = (low << types.uint64(8)) | types.uint64(data[types.uintp(at + step)])
        above, rest = high, low
        if negative:
            rest = ~low + types.uint64(1)
            above = ~high + types.uint64(1 if rest == 0 else 0)
        if above > limit_high or (above == limit_high and rest >= limit_low):
            state[row] = LOST
            inexact[row] = 1
            continue
        words[2 * row] = low
        words[2 * row + 1] = high
    return types.int64(-1)


@kernel(types.void(U8R, I64R, I64R, I64R, U8))
def gather(data, starts, ends, targets, out):
    """Copy `data[starts[i]:ends[i]]` to `out[targets[i]:]`."""
    for row in range(starts.size):
        at, target = starts[row], targets[row]
        for step in range(ends[row] - at):
            out[types.uintp(target + step)] = data[types.uintp(at + step)]


@njit(inline="always")
def _valid_utf8(data, at, stop):
    while at < stop:
        first = data[types.uintp(at)]
        more = 0
        if first < 0x80:
            at += 1
            continue
        least, most = types.uint8(0x80), types.uint8(0xBF)
        if 0xC2 <= first < 0xE0:
            more = 1
        elif 0xE0 <= first < 0xF0:
            more = 2
            if first == 0xE0:
                least = types.uint8(0xA0)
            elif first == 0xED:
                most = types.uint8(0x9F)
        elif 0xF0 <= first < 0xF5:
            more = 3
            if first == 0xF0:
                least = types.uint8(0x90)
            elif first == 0xF4:
                most = types.uint8(0x8F)
        else:
            return False
        if at + more >= stop:
            return False
        second = data[types.uintp(at + 1)]
        if second < least or second > most:
            return False
        for step in range(2, more + 1):
            if data[types.uintp(at + step)] & 0xC0 != 0x80:
                return False
        at += more + 1
    return True


@kernel(types.int64(I64R, U8R, U8))
def find_bad_utf8(bounds, data, bad):
    """Set `bad[i]` where `data[bounds[i]:bounds[i + 1]]` is no UTF-8; how many there are."""
    found = types.int64(0)
    for row in range(bad.size):
        start, stop = bounds[row], bounds[row + 1]
        wide = types.uint8(0)
        for at in range(start, stop):
            wide |= data[types.uintp(at)]
        bad[row] = 0
        if wide >= 0x80 and not _valid_utf8(data, start, stop):
            bad[row] = 1
            found += 1
    return found
