"""Java's hash codes, Flink's murmur, and fingerprints of content, over whole columns.

Sources: `java.lang.String.hashCode` and the other `hashCode` methods of the JDK;
`org.apache.flink.util.MathUtils.murmurHash`;
`org.apache.flink.runtime.state.KeyGroupRangeAssignment`.
"""

from __future__ import annotations

from numba import njit, types

from state_core.kernels.compiler import I32, I32R, I64R, U8R, U64, kernel

__all__ = [
    "assign_key_groups", "combine_hashes", "fingerprint_entries", "hash_java_longs",
    "hash_java_strings",
]  # fmt: skip


@njit(inline="always")
def _times(value, factor):
    """A product of 32 bits; Numba would widen it to 64."""
    return types.uint32(types.uint64(value) * types.uint64(factor))


@njit(inline="always")
def _rotate(value, bits):
    wide = types.uint64(value) << types.uint64(bits)
    return types.uint32(wide | (wide >> types.uint64(32)))


@njit(inline="always")
def _mix(code):
    """`MathUtils.murmurHash` of an int."""
    mixed = _rotate(_times(types.uint32(code), 0xCC9E2D51), 15)
    mixed = _rotate(_times(mixed, 0x1B873593), 13)
    mixed = types.uint32(_times(mixed, 5) + types.uint32(0xE6546B64)) ^ types.uint32(4)
    mixed = _times(types.uint32(mixed ^ (mixed >> types.uint32(16))), 0x85EBCA6B)
    mixed = _times(types.uint32(mixed ^ (mixed >> types.uint32(13))), 0xC2B2AE35)
    mixed = types.uint32(mixed ^ (mixed >> types.uint32(16)))
    signed = types.int64(types.int32(mixed))
    if signed >= 0:
        return signed
    return -signed if signed != -2147483648 else types.int64(0)


@kernel(types.void(I32R, types.int64, I32))
def assign_key_groups(codes, max_parallelism, out):
    """Hash codes to key groups: `murmurHash(code) % max_parallelism`."""
    for row in range(codes.size):
        out[row] = types.int32(_mix(codes[row]) % max_parallelism)


@kernel(types.void(I64R, I32))
def hash_java_longs(values, out):
    """`Long.hashCode`: the halves xor-ed."""
    for row in range(values.size):
        bits = types.uint64(values[row])
        out[row] = types.int32(
            types.uint32((bits ^ (bits >> types.uint64(32))) & types.uint64(0xFFFFFFFF))
        )


@kernel(types.void(I32R, I32R, types.int64, I32))
def combine_hashes(codes, element_codes, factor, out):
    """`factor * code + element`, wrapping: how Java folds fields and elements."""
    for row in range(codes.size):
        folded = types.uint32(codes[row]) * types.uint32(factor) + types.uint32(element_codes[row])
        out[row] = types.int32(types.uint32(folded))


@kernel(types.void(I32R, U8R, I32))
def hash_java_strings(offsets, data, out):
    """`String.hashCode` over UTF-16 units, from UTF-8 that is known to be valid."""
    for row in range(out.size):
        code = types.uint32(0)
        at, stop = types.int64(offsets[row]), types.int64(offsets[row + 1])
        while at < stop:
            first = types.uint32(data[types.uintp(at)])
            if first < 0x80:
                code = types.uint32(code * types.uint32(31) + first)
                at += 1
                continue
            second = types.uint32(data[types.uintp(at + 1)]) & types.uint32(0x3F)
            if first < 0xE0:
                unit = ((first & types.uint32(0x1F)) << types.uint32(6)) | second
                code = types.uint32(code * types.uint32(31) + unit)
                at += 2
                continue
            third = types.uint32(data[types.uintp(at + 2)]) & types.uint32(0x3F)
            if first < 0xF0:
                unit = (
                    ((first & types.uint32(0x0F)) << types.uint32(12))
                    | (second << types.uint32(6))
                    | third
                )
                code = types.uint32(code * types.uint32(31) + unit)
                at += 3
                continue
            fourth = types.uint32(data[types.uintp(at + 3)]) & types.uint32(0x3F)
            point = (
                ((first & types.uint32(0x07)) << types.uint32(18))
                | (second << types.uint32(12))
                | (third << types.uint32(6))
                | fourth
            ) - types.uint32(0x10000)
            high = types.uint32(0xD800) + (point >> types.uint32(10))
            low = types.uint32(0xDC00) + (point & types.uint32(0x3FF))
            code = types.uint32(code * types.uint32(31) + high)
            code = types.uint32(code * types.uint32(31) + low)
            at += 4
        out[row] = types.int32(code)


@njit(inline="always")
def _word(data, at, stop):
    """Up to eight bytes, little-endian."""
    value = types.uint64(0)
    count = min(stop - at, types.int64(8))
    for step in range(count):
        value |= types.uint64(data[types.uintp(at + step)]) << types.uint64(8 * step)
    return value


@njit(inline="always")
def _word8(data, at):
    value = types.uint64(0)
    for step in range(8):
        value |= types.uint64(data[types.uintp(at + step)]) << types.uint64(8 * step)
    return value


@njit(inline="always")
def _stir(state, word, factor):
    state = (state ^ word) * factor
    return state ^ (state >> types.uint64(29))


@njit(inline="always")
def _absorb(data, at, stop, first, second):
    length = types.uint64(stop - at)
    while at + 8 <= stop:
        word = _word8(data, at)
        first = _stir(first, word, types.uint64(0x9E3779B97F4A7C15))
        second = _stir(second, word, types.uint64(0xC2B2AE3D27D4EB4F))
        at += 8
    word = _word(data, at, stop)
    first = _stir(first, word, types.uint64(0xBF58476D1CE4E5B9))
    second = _stir(second, word, types.uint64(0x94D049BB133111EB))
    first = _stir(first, length, types.uint64(0xD6E8FEB86659FD93))
    second = _stir(second, length, types.uint64(0xFF51AFD7ED558CCD))
    return first, second


@kernel(types.void(U8R, I64R, I64R, I64R, I64R, I64R, U64, U64))
def fingerprint_entries(data, key_start, key_end, value_start, value_end, slot, low, high):
    """Add a 128-bit hash of each entry to its slot: equal sums mean equal content in any order.

    Args:
        data: The bytes.
        key_start, key_end, value_start, value_end: Per entry.
        slot: Per entry, which pair of sums it belongs to.
        low, high: The sums, added to in place.
    """
    for row in range(key_start.size):
        first, second = types.uint64(0x243F6A8885A308D3), types.uint64(0x13198A2E03707344)
        first, second = _absorb(data, key_start[row], key_end[row], first, second)
        first, second = _absorb(data, value_start[row], value_end[row], first, second)
        low[slot[row]] += first ^ (first >> types.uint64(32))
        high[slot[row]] += second ^ (second >> types.uint64(32))
