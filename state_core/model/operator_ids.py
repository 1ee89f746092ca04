"""Operator ids: the 16 bytes that Flink derives from an operator's uid.

The id is MurmurHash3 (x64, 128 bits, seed 0) of the uid's UTF-8 bytes. Without a uid it is a hash
of the job's topology, which can't be derived from a snapshot alone.

Source: `org.apache.flink.streaming.api.graph.StreamGraphHasherV2.generateUserSpecifiedHash`.
"""

from __future__ import annotations

import struct

_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def operator_id_of_uid(uid: str) -> str:
    """Return the operator id of a uid, as 32 hex digits."""
    data = uid.encode("utf-8")
    h1 = h2 = 0
    blocks = len(data) // 16
    for index in range(blocks):
        k1, k2 = struct.unpack_from("<QQ", data, 16 * index)
        h1 = (_rotate(h1 ^ _scramble(k1, _C1, 31, _C2), 27) + h2) * 5 + 0x52DCE729 & _MASK
        h2 = (_rotate(h2 ^ _scramble(k2, _C2, 33, _C1), 31) + h1) * 5 + 0x38495AB5 & _MASK
    tail = data[16 * blocks :].ljust(16, b"\0")
    k1, k2 = struct.unpack("<QQ", tail)
    h2 ^= _scramble(k2, _C2, 33, _C1)
    h1 ^= _scramble(k1, _C1, 31, _C2)
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = h1 + h2 & _MASK
    h2 = h1 + h2 & _MASK
    h1, h2 = _finish(h1), _finish(h2)
    h1 = h1 + h2 & _MASK
    h2 = h1 + h2 & _MASK
    return struct.pack("<QQ", h1, h2).hex()


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _scramble(word: int, first: int, bits: int, second: int) -> int:
    return _rotate(word * first & _MASK, bits) * second & _MASK


def _finish(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
