"""Arrow buffers into bytes at given positions: the reverse of `decode`.

Sizes come first, positions follow from them, and then every column of an entry is written directly
to its place; nothing is copied twice. All kernels take `present` as in `decode`, and move
`position` by writing.
"""

from __future__ import annotations

import numpy as np

from statelake.state_core.kernels.compiler import inlined, kernel, kernels_by_width

LAST_OF_RUN = 0x80


@inlined
def _store32(out, at, value):
    bits = np.uint32(value)
    out[np.uintp(at)] = bits >> np.uint32(24)
    out[np.uintp(at + 1)] = (bits >> np.uint32(16)) & np.uint32(0xFF)
    out[np.uintp(at + 2)] = (bits >> np.uint32(8)) & np.uint32(0xFF)
    out[np.uintp(at + 3)] = bits & np.uint32(0xFF)


@kernels_by_width("void({}R, U8R, U8, I64)")
def _write_fixed(values, present, out, position):
    """Write a big-endian number as wide as those of `values`."""
    width = np.iinfo(values.dtype).bits // 8
    for row in range(position.size):
        if present.size and present[row] == 0:
            continue
        bits, at = np.uint64(values[row]), position[row]
        for step in range(width):
            shift = np.uint64(8 * (width - 1 - step))
            out[np.uintp(at + step)] = bits >> shift & np.uint64(0xFF)
        position[row] = at + width


write_fixed8, write_fixed16, write_fixed32, write_fixed64 = _write_fixed


@kernel("void(U8R, U8R, int64, U8, I64R)")
def set_bits(values, present, index, out, position):
    """Set bit `index` of the mask at each position where `values[row]` is not 0."""
    for row in range(position.size):
        if (present.size and present[row] == 0) or values[row] == 0:
            continue
        at = np.uintp(position[row] + (index >> 3))
        out[at] |= np.uint8(1) << np.uint8(7 - (index & 7))


@kernel("void(I32R, U8R, U8R, U8, I64)")
def write_byte_arrays(offsets, data, present, out, position):
    """Write an i32 length and that many bytes."""
    for row in range(position.size):
        if present.size and present[row] == 0:
            continue
        start, length = np.int64(offsets[row]), np.int64(offsets[row + 1] - offsets[row])
        at = position[row]
        _store32(out, at, np.int32(length))
        at += 4
        for step in range(length):
            out[np.uintp(at + step)] = data[np.uintp(start + step)]
        position[row] = at + length


@kernel("void(I32R, U8R, U8R, U8, I64)")
def write_units(offsets, data, present, out, position):
    """Write the bytes as they are, without a length."""
    for row in range(position.size):
        if present.size and present[row] == 0:
            continue
        start, length = np.int64(offsets[row]), np.int64(offsets[row + 1] - offsets[row])
        at = position[row]
        for step in range(length):
            out[np.uintp(at + step)] = data[np.uintp(start + step)]
        position[row] = at + length


@inlined
def _varint_size(value):
    size = np.int64(1)
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


@inlined
def _put_varint(out, at, value):
    while value >= 0x80:
        out[np.uintp(at)] = (value & 0x7F) | 0x80
        value >>= 7
        at += 1
    out[np.uintp(at)] = value
    return at + 1


@inlined
def _code_point(data, at):
    """Return the code point of valid UTF-8 at `at`, and the position behind it."""
    first = np.int64(data[np.uintp(at)])
    if first < 0x80:
        return first, at + 1
    second = np.int64(data[np.uintp(at + 1)]) & 0x3F
    if first < 0xE0:
        return ((first & 0x1F) << 6) | second, at + 2
    third = np.int64(data[np.uintp(at + 2)]) & 0x3F
    if first < 0xF0:
        return ((first & 0x0F) << 12) | (second << 6) | third, at + 3
    fourth = np.int64(data[np.uintp(at + 3)]) & 0x3F
    return ((first & 0x07) << 18) | (second << 12) | (third << 6) | fourth, at + 4


@inlined
def _sequence_length(data, at, stop):
    """Return the length of the UTF-8 sequence at `at`; 0 if it is invalid or incomplete."""
    first = data[np.uintp(at)]
    length = np.int64(0)
    if first < 0x80:
        length = np.int64(1)
    elif 0xC2 <= first < 0xE0:
        length = np.int64(2)
    elif 0xE0 <= first < 0xF0:
        length = np.int64(3)
    elif 0xF0 <= first < 0xF5:
        length = np.int64(4)
    if at + length > stop:
        return np.int64(0)
    for step in range(1, length):
        if data[np.uintp(at + step)] & 0xC0 != 0x80:
            return np.int64(0)
    return length


@kernel("int64(I32R, U8R, U8R, U8R, I64, I64)")
def string_sizes(offsets, data, valid, present, units, sizes):
    """Compute the UTF-16 units of each UTF-8 string, and its bytes as a `StringValue`.

    Returns:
        The first row that is not UTF-8, or -1.
    """
    for row in range(units.size):
        units[row] = 0
        sizes[row] = 0
        if present.size and present[row] == 0:
            continue
        if valid.size and valid[row] == 0:
            sizes[row] = 1
            continue
        at, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        wide = np.uint8(0)
        for step in range(stop - at):
            wide |= data[np.uintp(at + step)]
        count = size = stop - at
        if wide >= 0x80:
            count = size = np.int64(0)
            while at < stop:
                if _sequence_length(data, at, stop) == 0:
                    return np.int64(row)
                point, at = _code_point(data, at)
                if point >= 0x10000:
                    count += 2
                    size += 6
                else:
                    count += 1
                    size += 1 if point < 0x80 else (2 if point < 0x4000 else 3)
        units[row] = count
        sizes[row] = size + _varint_size(count + 1)
    return np.int64(-1)


@kernel("void(I32R, U8R, U8R, U8R, I64R, U8, I64)")
def write_strings(offsets, data, valid, present, units, out, position):
    """Write `StringValue`s of UTF-8 strings, with the `units` from `string_sizes`."""
    for row in range(position.size):
        if present.size and present[row] == 0:
            continue
        target = position[row]
        if valid.size and valid[row] == 0:
            out[np.uintp(target)] = 0
            position[row] = target + 1
            continue
        at, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        target = _put_varint(out, target, units[row] + 1)
        wide = np.uint8(0)
        for step in range(stop - at):
            byte = data[np.uintp(at + step)]
            wide |= byte
        if wide < 0x80:
            for step in range(stop - at):
                out[np.uintp(target + step)] = data[np.uintp(at + step)]
            target += stop - at
        else:
            while at < stop:
                point, at = _code_point(data, at)
                if point >= 0x10000:
                    point -= 0x10000
                    target = _put_varint(out, target, 0xD800 + (point >> 10))
                    target = _put_varint(out, target, 0xDC00 + (point & 0x3FF))
                else:
                    target = _put_varint(out, target, point)
        position[row] = target


@kernel("void(I32R, I64R, int64, U8R, U8, I64)")
def write_entry_heads(groups, key_sizes, prefix, last, out, position):
    """Write the i32 key length and the key-group prefix of entries of the unified format.

    Args:
        groups: Key group per entry.
        key_sizes: Bytes of key, namespace and user key together, without the prefix.
        prefix: 1 or 2 bytes.
        last: 1 for entries with the flag "meta data follows".
        out: The output buffer.
        position: Moved to the start of the key.
    """
    for row in range(position.size):
        at = position[row]
        _store32(out, at, np.int32(key_sizes[row] + prefix))
        at += 4
        group = np.int64(groups[row])
        flag = LAST_OF_RUN if last[row] != 0 else 0
        if prefix == 2:
            out[np.uintp(at)] = (group >> 8) | flag
            out[np.uintp(at + 1)] = group & 0xFF
        else:
            out[np.uintp(at)] = group | flag
        position[row] = at + prefix


@kernel("void(I64R, U8, I64)")
def write_values_heads(value_sizes, out, position):
    """Write the i32 value length of entries."""
    for row in range(position.size):
        _store32(out, position[row], np.int32(value_sizes[row]))
        position[row] += 4


@kernel("void(U8R, I64R, I64R, U8, I64R)")
def copy_ranges(data, starts, ends, out, targets):
    """Copy `data[starts[i]:ends[i]]` to `out[targets[i]:]`."""
    for row in range(starts.size):
        at, target = starts[row], targets[row]
        for step in range(ends[row] - at):
            out[np.uintp(target + step)] = data[np.uintp(at + step)]


@kernel("void(U8R, I64R, I64R, U8, I64)")
def copy_pieces(data, starts, ends, out, position):
    """Copy a piece of each row to the row's position, which moves behind it."""
    for row in range(starts.size):
        target = position[row]
        for at in range(starts[row], ends[row]):
            out[np.uintp(target)] = data[np.uintp(at)]
            target += 1
        position[row] = target
