"""Arrow buffers into Flink SQL's binary format: the reverse of `binary_rows`.

The buffer is zeroed first, so padding, null slots and unused bits need no writing. `targets` has
the absolute position of each slot's longer value.

Source: `org.apache.flink.table.data.writer` (`BinaryRowWriter`, `BinaryArrayWriter`).
"""

from __future__ import annotations

import numpy as np

from statelake.state_core.kernels.binary_rows import NULL, VALUE
from statelake.state_core.kernels.binary_values import MAX_INLINE
from statelake.state_core.kernels.compiler import inlined, kernel, kernels_by_width
from statelake.state_core.kernels.hashing import rotate, times

HASH_SEED = 42


@inlined
def _store32(out, at, value):
    bits = np.uint32(value)
    out[np.uintp(at)] = bits & np.uint32(0xFF)
    out[np.uintp(at + 1)] = (bits >> np.uint32(8)) & np.uint32(0xFF)
    out[np.uintp(at + 2)] = (bits >> np.uint32(16)) & np.uint32(0xFF)
    out[np.uintp(at + 3)] = bits >> np.uint32(24)


@inlined
def _store64(out, at, value):
    bits = np.uint64(value)
    _store32(out, at, np.uint32(bits & np.uint64(0xFFFFFFFF)))
    _store32(out, at + 4, np.uint32(bits >> np.uint64(32)))


@kernel("void(U8, I64R, I64R)")
def zero_ranges(out, starts, sizes):
    """Zero `sizes[i]` bytes at each start."""
    for row in range(starts.size):
        at = starts[row]
        for step in range(sizes[row]):
            out[np.uintp(at + step)] = 0


@kernel("void(U8R, int64, U8, I64R)")
def set_row_nulls(state, field, out, base):
    """Set the null bit of a field in each row where it is null."""
    bit = field + 8
    for row in range(base.size):
        if state[row] == NULL:
            at = np.uintp(base[row] + (bit >> 3))
            out[at] |= np.uint8(1) << np.uint8(bit & 7)


@kernel("void(U8R, I64R, U8, I64R)")
def set_array_nulls(state, first, out, base):
    """Set the null bits of arrays, whose elements are those from `first[i]` on."""
    for row in range(base.size):
        for step in range(first[row + 1] - first[row]):
            if state[first[row] + step] == NULL:
                at = np.uintp(base[row] + 4 + (step >> 3))
                out[at] |= np.uint8(1) << np.uint8(step & 7)


@kernel("void(I64R, U8R, U8, I64R)")
def write_array_heads(counts, present, out, base):
    """Write four bytes: a number of elements, or the size of a map's keys."""
    for row in range(base.size):
        if present.size == 0 or present[row] != 0:
            _store32(out, base[row], np.int32(counts[row]))


@kernels_by_width("void({}R, U8R, I64R, U8)")
def _write_slots(values, state, slots, out):
    """Write a number as wide as those of `values`."""
    for row in range(slots.size):
        if state[row] == VALUE:
            bits, at = np.uint64(values[row]), slots[row]
            for step in range(np.iinfo(values.dtype).bits // 8):
                out[np.uintp(at + step)] = bits >> np.uint64(8 * step) & np.uint64(0xFF)


write_slots8, write_slots16, write_slots32, write_slots64 = _write_slots


@kernel("void(I32R, U8R, U8R, I64R, I64R, I64R, I64R, U8)")
def write_inline(offsets, data, state, slots, base, owner, targets, out):
    """Write strings and byte arrays: up to 7 bytes in the slot, more at the target."""
    for row in range(slots.size):
        if state[row] != VALUE:
            continue
        start, size = np.int64(offsets[row]), np.int64(offsets[row + 1] - offsets[row])
        at, target = slots[row], slots[row]
        if size <= MAX_INLINE:
            out[np.uintp(at + 7)] = np.uint8(0x80 | size)
        else:
            section = owner[row] if owner.size else np.int64(row)
            target = targets[row]
            _store64(out, at, ((target - base[section]) << 32) | size)
        for step in range(size):
            out[np.uintp(target + step)] = data[np.uintp(start + step)]


@kernel("void(I64R, U8R, I64R, I64R, I64R, I64R, U8)")
def write_references(sizes, state, slots, base, owner, targets, out):
    """Write the offset and size of each target."""
    for row in range(slots.size):
        if state[row] == VALUE:
            section = owner[row] if owner.size else np.int64(row)
            _store64(out, slots[row], ((targets[row] - base[section]) << 32) | sizes[row])


@kernel("void(I64R, U8R, I64R, I64R, I64R, I64R, U8)")
def write_wide_timestamps(micros, state, slots, base, owner, targets, out):
    """Write nanoseconds of the millisecond in the slot, milliseconds at the target."""
    for row in range(slots.size):
        if state[row] == VALUE:
            section = owner[row] if owner.size else np.int64(row)
            millis = micros[row] // 1000
            nanos = (micros[row] - millis * 1000) * 1000
            _store64(out, slots[row], ((targets[row] - base[section]) << 32) | nanos)
            _store64(out, targets[row], millis)


@kernel("void(U64R, U8R, I64)")
def decimal_lengths(words, state, lengths):
    """Count the bytes of each 128-bit number in shortest two's complement; 0 without a value."""
    for row in range(lengths.size):
        lengths[row] = 0
        if state[row] != VALUE:
            continue
        low, high = words[2 * row], words[2 * row + 1]
        if high >> np.uint64(63):
            low, high = ~low, ~high
        size = np.int64(1)
        while high != 0 or low >= 0x80:
            low = (low >> np.uint64(8)) | (high << np.uint64(56))
            high >>= np.uint64(8)
            size += 1
        lengths[row] = size


@kernel("void(U64R, I64R, I64R, U8)")
def write_decimals(words, lengths, targets, out):
    """Write the low `lengths[i]` bytes of each 128-bit number, big-endian, at its target."""
    for row in range(lengths.size):
        for step in range(lengths[row]):
            shift = 8 * (lengths[row] - 1 - step)
            word = words[2 * row + (shift >> 6)]
            out[np.uintp(targets[row] + step)] = (word >> np.uint64(shift & 63)) & np.uint64(0xFF)


# --------------------------------------------------------------------------- hash codes


@inlined
def _absorb(code, word):
    word = times(rotate(times(word, 0xCC9E2D51), 15), 0x1B873593)
    return np.uint32(times(rotate(np.uint32(code ^ word), 13), 5) + 0xE6546B64)


@inlined
def _hash(data, at, stop):
    code = np.uint32(HASH_SEED)
    length = stop - at
    while at + 4 <= stop:
        word = np.uint32(0)
        for step in range(4):
            word |= np.uint32(data[np.uintp(at + step)]) << np.uint32(8 * step)
        code = _absorb(code, word)
        at += 4
    while at < stop:  # Java's bytes are signed
        code = _absorb(code, np.uint32(np.int32(np.int8(data[np.uintp(at)]))))
        at += 1
    code ^= np.uint32(length)
    code = times(np.uint32(code ^ (code >> np.uint32(16))), 0x85EBCA6B)
    code = times(np.uint32(code ^ (code >> np.uint32(13))), 0xC2B2AE35)
    return np.int32(np.uint32(code ^ (code >> np.uint32(16))))


@kernel("void(U8R, I64R, I64R, I32)")
def hash_sections(data, starts, ends, out):
    """Compute `MurmurHashUtils.hashBytes` of each range, the hash code of a row or string."""
    for row in range(starts.size):
        out[row] = _hash(data, starts[row], ends[row])
