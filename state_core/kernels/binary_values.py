"""The longer values of Flink SQL's binary format into Arrow buffers: strings, decimals, timestamps.

A slot has the position of a value, or the value itself if it is short. Flink's writers have a
single layout: longer values are consecutive in the order of the fields, each padded to 8 bytes with
zeros. `cursor` is the required start of the next one; a value elsewhere is still read, and marked
inexact. It also bounds the work: the longer values of a section never add up to more than the
section.

Source: `org.apache.flink.table.data.binary.BinarySegmentUtils`.
"""

from __future__ import annotations

import numpy as np

from statelake.state_core.kernels.binary_rows import ABSENT, LOST, NULL, VALUE, all_zero, load64
from statelake.state_core.kernels.compiler import inlined, kernel

INLINE_FLAG = 0x80
MAX_INLINE = 7
DECIMAL_BYTES = 16
# years 1 to 9999, the common range of Python, Spark and Arrow
FIRST_MILLI, LAST_MILLI = -62_135_596_800_000, 253_402_300_799_999
FIRST_DAY, LAST_DAY = -719_162, 2_932_896


@kernel("int64(U8R, I64R, U8R, I64R, I64R, I64R, I64, boolean, I64, I64, U8)")
def locate_values(
    data, slots, state, base, end, owner, cursor, inline, starts, ends, inexact
):  # fmt: skip
    """Find each slot's bytes: in the slot itself, or at its reference.

    Args:
        base, end, cursor: Per section.
        owner: Per slot, its section; of size 0 if each slot has a section of its own.
        inline: Whether up to 7 bytes are in the slot (for strings and byte arrays).

    Returns:
        The first slot that leads out of its section, or -1.
    """
    for row in range(slots.size):
        starts[row] = 0
        ends[row] = 0
        if state[row] == ABSENT:
            continue
        at = slots[row]
        word = load64(data, at)
        if state[row] == NULL:
            if word != 0:
                inexact[row] = 1
            continue
        last = data[np.uintp(at + 7)]
        if inline and last >= INLINE_FLAG:
            length = np.int64(last & np.uint8(0x7F))
            if length > MAX_INLINE:
                return np.int64(row)
            starts[row] = at
            ends[row] = at + length
            if not all_zero(data, at + length, at + 7):
                inexact[row] = 1
            continue
        section = owner[row] if owner.size else np.int64(row)
        offset, size = word >> 32, np.int64(np.int32(word & 0xFFFFFFFF))
        begin, limit = base[section] + offset, end[section]
        expected = cursor[section]
        if offset < 0 or size < 0 or size > limit - begin or size > limit - expected:
            return np.int64(row)
        padded = (size + 7) & ~7
        cursor[section] = expected + padded
        starts[row] = begin
        ends[row] = begin + size
        if (
            begin != expected
            or begin + padded > limit
            or (inline and size <= MAX_INLINE)
            or not all_zero(data, begin + size, begin + padded)
        ):
            inexact[row] = 1
    return np.int64(-1)


@kernel("int64(U8R, I64R, U8R, I64R, I64R, I64R, I64, I64, I64, U8)")
def locate_decimals(data, slots, state, base, end, owner, cursor, starts, ends, inexact):
    """Find the bytes of decimals of more than 18 digits, which have 16 bytes reserved each."""
    for row in range(slots.size):
        starts[row] = 0
        ends[row] = 0
        if state[row] == ABSENT:
            continue
        word = load64(data, slots[row])
        if state[row] == NULL:
            if word != 0:
                inexact[row] = 1
            continue
        section = owner[row] if owner.size else np.int64(row)
        offset, size = word >> 32, word & 0xFFFFFFFF
        begin, limit = base[section] + offset, end[section]
        expected = cursor[section]
        room = DECIMAL_BYTES
        if offset < 0 or size < 1 or size > room or room > limit - begin or room > limit - expected:
            return np.int64(row)
        cursor[section] = expected + room
        starts[row] = begin
        ends[row] = begin + size
        if begin != expected or not all_zero(data, begin + size, begin + room):
            inexact[row] = 1
    return np.int64(-1)


@kernel("int64(U8R, I64R, U8, I64R, I64R, I64R, I64, I64, U8)")
def read_wide_timestamps(data, slots, state, base, end, owner, cursor, out, inexact):
    """Read timestamps of more than 3 digits: nanoseconds in the slot, milliseconds outside.

    The result has microseconds; the rest is cut off and marked inexact.
    """
    for row in range(slots.size):
        out[row] = 0
        if state[row] == ABSENT:
            continue
        word = load64(data, slots[row])
        if state[row] == NULL:
            if word != 0:
                inexact[row] = 1
            continue
        section = owner[row] if owner.size else np.int64(row)
        offset, nanos = word >> 32, np.int64(np.int32(word & 0xFFFFFFFF))
        begin, limit = base[section] + offset, end[section]
        expected = cursor[section]
        if offset < 0 or limit - begin < 8 or limit - expected < 8:
            return np.int64(row)
        cursor[section] = expected + 8
        if begin != expected:
            inexact[row] = 1
        _put_micros(load64(data, begin), nanos, row, state, out, inexact)
    return np.int64(-1)


# --------------------------------------------------------------------------- what Arrow holds


@inlined
def _put_micros(millis, nanos, row, state, out, inexact):
    if nanos < 0 or nanos > 999_999 or millis < FIRST_MILLI or millis > LAST_MILLI:
        out[row] = 0
        state[row] = LOST
        inexact[row] = 1
    else:
        out[row] = millis * 1000 + nanos // 1000
        if nanos % 1000 != 0:
            inexact[row] = 1


@kernel("void(I64R, U8, I64, U8)")
def millis_to_micros(millis, state, out, inexact):
    """Convert milliseconds to microseconds; a year without four digits is lost."""
    for row in range(millis.size):
        out[row] = 0
        if state[row] == VALUE:
            _put_micros(millis[row], 0, row, state, out, inexact)


@kernel("void(I64R, I32, U8, I64, U8)")
def join_nanos(millis, nanos, state, out, inexact):
    """Join milliseconds and nanoseconds of the millisecond to microseconds."""
    for row in range(millis.size):
        out[row] = 0
        if state[row] == VALUE:
            _put_micros(millis[row], np.int64(nanos[row]), row, state, out, inexact)


@kernel("void(I32, U8, U8)")
def check_dates(days, state, inexact):
    """Lose days of a year without four digits."""
    for row in range(days.size):
        if state[row] == VALUE and (days[row] < FIRST_DAY or days[row] > LAST_DAY):
            days[row] = 0
            state[row] = LOST
            inexact[row] = 1


@kernel("void(I64R, int64, U8, U64, U8)")
def widen_decimals(values, limit, state, words, inexact):
    """Convert 64-bit unscaled values to Arrow's 128 bits; `limit` is ten to the precision."""
    for row in range(values.size):
        value = values[row]
        if state[row] == VALUE and (value >= limit or value <= -limit):
            state[row] = LOST
            inexact[row] = 1
        if state[row] != VALUE:
            value = np.int64(0)
        words[2 * row] = np.uint64(value)
        words[2 * row + 1] = np.uint64(value >> 63)


@kernel("int64(U8R, I64R, I64R, uint64, uint64, U8, U64, U8)")
def parse_decimals(data, starts, ends, limit_low, limit_high, state, words, inexact):
    """Convert big-endian two's complement of 1 to 16 bytes to Arrow's 128 bits.

    More than 16 bytes, and numbers of more digits than the type has, are lost; a form that is not
    the shortest is marked inexact.

    Args:
        limit_low, limit_high: Ten to the precision.

    Returns:
        The first value without bytes, or -1.
    """
    for row in range(starts.size):
        words[2 * row] = 0
        words[2 * row + 1] = 0
        if state[row] != VALUE:
            continue
        at, size = starts[row], ends[row] - starts[row]
        if size <= 0:
            return np.int64(row)
        lead = data[np.uintp(at)]
        negative = lead >= 0x80
        fill = np.uint8(0xFF) if negative else np.uint8(0)
        if size > 1 and lead == fill and (data[np.uintp(at + 1)] >= 0x80) == negative:
            inexact[row] = 1
        while size > DECIMAL_BYTES and data[np.uintp(at)] == fill:
            at += 1
            size -= 1
        if size > DECIMAL_BYTES or (data[np.uintp(at)] >= 0x80) != negative:
            state[row] = LOST
            inexact[row] = 1
            continue
        low = high = np.uint64(0)
        if negative:
            low = high = ~np.uint64(0)
        for step in range(size):
            high = (high << np.uint64(8)) | (low >> np.uint64(56))
            low = (low << np.uint64(8)) | np.uint64(data[np.uintp(at + step)])
        above, rest = high, low
        if negative:
            rest = ~low + np.uint64(1)
            above = ~high + np.uint64(1 if rest == 0 else 0)
        if above > limit_high or (above == limit_high and rest >= limit_low):
            state[row] = LOST
            inexact[row] = 1
            continue
        words[2 * row] = low
        words[2 * row + 1] = high
    return np.int64(-1)


@kernel("void(U8R, I64R, I64R, I64R, U8)")
def gather(data, starts, ends, targets, out):
    """Copy `data[starts[i]:ends[i]]` to `out[targets[i]:]`."""
    for row in range(starts.size):
        at, target = starts[row], targets[row]
        for step in range(ends[row] - at):
            out[np.uintp(target + step)] = data[np.uintp(at + step)]


@inlined
def _valid_utf8(data, at, stop):
    while at < stop:
        first = data[np.uintp(at)]
        more = 0
        if first < 0x80:
            at += 1
            continue
        least, most = np.uint8(0x80), np.uint8(0xBF)
        if 0xC2 <= first < 0xE0:
            more = 1
        elif 0xE0 <= first < 0xF0:
            more = 2
            if first == 0xE0:
                least = np.uint8(0xA0)
            elif first == 0xED:
                most = np.uint8(0x9F)
        elif 0xF0 <= first < 0xF5:
            more = 3
            if first == 0xF0:
                least = np.uint8(0x90)
            elif first == 0xF4:
                most = np.uint8(0x8F)
        else:
            return False
        if at + more >= stop:
            return False
        second = data[np.uintp(at + 1)]
        if second < least or second > most:
            return False
        for step in range(2, more + 1):
            if data[np.uintp(at + step)] & 0xC0 != 0x80:
                return False
        at += more + 1
    return True


@kernel("int64(I64R, U8R, U8)")
def find_bad_utf8(bounds, data, bad):
    """Set `bad[i]` where `data[bounds[i]:bounds[i + 1]]` is invalid UTF-8; return their number."""
    count = np.int64(0)
    for row in range(bad.size):
        start, stop = bounds[row], bounds[row + 1]
        wide = np.uint8(0)
        for at in range(start, stop):
            wide |= data[np.uintp(at)]
        bad[row] = 0
        if wide >= 0x80 and not _valid_utf8(data, start, stop):
            bad[row] = 1
            count += 1
    return count
