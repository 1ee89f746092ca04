"""Java's hash codes, Flink's murmur, and fingerprints of content, over whole columns.

Sources: `java.lang.String.hashCode` and the other `hashCode` methods of the JDK;
`org.apache.flink.util.MathUtils.murmurHash`;
`org.apache.flink.runtime.state.KeyGroupRangeAssignment`.
"""

from __future__ import annotations

import numpy as np

from statelake.state_core.kernels.compiler import inlined, kernel


@inlined
def times(value, factor):
    """Return a 32-bit product, which Numba would widen to 64 bits."""
    return np.uint32(np.uint64(value) * np.uint64(factor))


@inlined
def rotate(value, bits):
    """Rotate 32 bits to the left."""
    wide = np.uint64(value) << np.uint64(bits)
    return np.uint32(wide | (wide >> np.uint64(32)))


@inlined
def _mix(code):
    """Return `MathUtils.murmurHash` of an int."""
    mixed = rotate(times(np.uint32(code), 0xCC9E2D51), 15)
    mixed = rotate(times(mixed, 0x1B873593), 13)
    mixed = np.uint32(times(mixed, 5) + np.uint32(0xE6546B64)) ^ np.uint32(4)
    mixed = times(np.uint32(mixed ^ (mixed >> np.uint32(16))), 0x85EBCA6B)
    mixed = times(np.uint32(mixed ^ (mixed >> np.uint32(13))), 0xC2B2AE35)
    mixed = np.uint32(mixed ^ (mixed >> np.uint32(16)))
    signed = np.int64(np.int32(mixed))
    if signed >= 0:
        return signed
    return -signed if signed != -2147483648 else np.int64(0)


@kernel("void(I32R, int64, I32)")
def assign_key_groups(codes, max_parallelism, out):
    """Convert hash codes to key groups: `murmurHash(code) % max_parallelism`."""
    for row in range(codes.size):
        out[row] = np.int32(_mix(codes[row]) % max_parallelism)


@kernel("void(I64R, I32)")
def hash_java_longs(values, out):
    """Compute `Long.hashCode`: the halves xor-ed."""
    for row in range(values.size):
        bits = np.uint64(values[row])
        out[row] = np.int32(np.uint32((bits ^ (bits >> np.uint64(32))) & np.uint64(0xFFFFFFFF)))


@kernel("void(I32R, I32R, int64, I32)")
def combine_hashes(codes, element_codes, factor, out):
    """Compute `factor * code + element`, wrapping, as Java combines fields and elements."""
    for row in range(codes.size):
        folded = np.uint32(codes[row]) * np.uint32(factor) + np.uint32(element_codes[row])
        out[row] = np.int32(np.uint32(folded))


@kernel("void(I32R, U8R, I32)")
def hash_java_strings(offsets, data, out):
    """Compute `String.hashCode` over UTF-16 units, from valid UTF-8."""
    for row in range(out.size):
        code = np.uint32(0)
        at, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        while at < stop:
            first = np.uint32(data[np.uintp(at)])
            if first < 0x80:
                code = np.uint32(code * np.uint32(31) + first)
                at += 1
                continue
            second = np.uint32(data[np.uintp(at + 1)]) & np.uint32(0x3F)
            if first < 0xE0:
                unit = ((first & np.uint32(0x1F)) << np.uint32(6)) | second
                code = np.uint32(code * np.uint32(31) + unit)
                at += 2
                continue
            third = np.uint32(data[np.uintp(at + 2)]) & np.uint32(0x3F)
            if first < 0xF0:
                unit = (
                    ((first & np.uint32(0x0F)) << np.uint32(12)) | (second << np.uint32(6)) | third
                )
                code = np.uint32(code * np.uint32(31) + unit)
                at += 3
                continue
            fourth = np.uint32(data[np.uintp(at + 3)]) & np.uint32(0x3F)
            point = (
                ((first & np.uint32(0x07)) << np.uint32(18))
                | (second << np.uint32(12))
                | (third << np.uint32(6))
                | fourth
            ) - np.uint32(0x10000)
            high = np.uint32(0xD800) + (point >> np.uint32(10))
            low = np.uint32(0xDC00) + (point & np.uint32(0x3FF))
            code = np.uint32(code * np.uint32(31) + high)
            code = np.uint32(code * np.uint32(31) + low)
            at += 4
        out[row] = np.int32(code)


@inlined
def _word(data, at, stop):
    """Return up to eight bytes, little-endian."""
    value = np.uint64(0)
    count = min(stop - at, np.int64(8))
    for step in range(count):
        value |= np.uint64(data[np.uintp(at + step)]) << np.uint64(8 * step)
    return value


@inlined
def _word8(data, at):
    value = np.uint64(0)
    for step in range(8):
        value |= np.uint64(data[np.uintp(at + step)]) << np.uint64(8 * step)
    return value


@inlined
def _stir(state, word, factor):
    state = (state ^ word) * factor
    return state ^ (state >> np.uint64(29))


@inlined
def _absorb(data, at, stop, first, second):
    length = np.uint64(stop - at)
    while at + 8 <= stop:
        word = _word8(data, at)
        first = _stir(first, word, np.uint64(0x9E3779B97F4A7C15))
        second = _stir(second, word, np.uint64(0xC2B2AE3D27D4EB4F))
        at += 8
    word = _word(data, at, stop)
    first = _stir(first, word, np.uint64(0xBF58476D1CE4E5B9))
    second = _stir(second, word, np.uint64(0x94D049BB133111EB))
    first = _stir(first, length, np.uint64(0xD6E8FEB86659FD93))
    second = _stir(second, length, np.uint64(0xFF51AFD7ED558CCD))
    return first, second


@kernel("int64(I16R, I64R, int64, int64, int64, I64R, I64R, I64R, I64R, I64, I64, I64)")
def count_entries(
    state, group, first, groups, states, key_start, key_end, value_start, value_end,
    slot, counts, sizes,
):  # fmt: skip
    """Count entries and their bytes by state and key group.

    Args:
        state, group: Per entry.
        first, groups: The first key group, and how many there are.
        states: The number of states.
        key_start, key_end, value_start, value_end: Per entry.
        slot: Per entry, set to the index of its counts, for `fingerprint_entries`.
        counts, sizes: By state and key group, added to in place.

    Returns:
        -1; or, with nothing added, the first entry whose state or key group is not counted.
    """
    for row in range(state.size):
        within, of = group[row] - first, np.int64(state[row])
        if within < 0 or within >= groups or of < 0 or of >= states:
            return row
        slot[row] = of * groups + within
    for row in range(state.size):
        cell = slot[row]
        counts[cell] += 1
        sizes[cell] += key_end[row] - key_start[row] + value_end[row] - value_start[row]
    return -1


@kernel("void(U8R, I64R, I64R, I64R, I64R, I64R, U64, U64)")
def fingerprint_entries(data, key_start, key_end, value_start, value_end, slot, low, high):
    """Add a 128-bit hash of each entry to its slot: equal sums mean equal content in any order.

    Args:
        data: The bytes.
        key_start, key_end, value_start, value_end: Per entry.
        slot: Per entry, the index of its pair of sums.
        low, high: The sums, added to in place.
    """
    for row in range(key_start.size):
        first, second = np.uint64(0x243F6A8885A308D3), np.uint64(0x13198A2E03707344)
        first, second = _absorb(data, key_start[row], key_end[row], first, second)
        first, second = _absorb(data, value_start[row], value_end[row], first, second)
        low[slot[row]] += first ^ (first >> np.uint64(32))
        high[slot[row]] += second ^ (second >> np.uint64(32))
