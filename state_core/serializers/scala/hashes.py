"""Hash codes of Scala's tuples, which put keys of Scala jobs into key groups.

A number hashes as the equal number of another type does: 1 as 1L and 1.0.

Source: `scala.util.hashing.MurmurHash3.productHash`, `scala.runtime.Statics.anyHash` of Scala 2.12.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from state_core.serializers.basic.numbers import DoubleSerializer, FloatSerializer, LongSerializer
from state_core.serializers.framework.base import TypeSerializer, to_int32

__all__ = ["NUMBERS", "number_hash", "product_hash"]

NUMBERS = (LongSerializer, FloatSerializer, DoubleSerializer)
PRODUCT_SEED = 0xCAFEBABE
MASK = 0xFFFFFFFF
LONGS = -(1 << 63), (1 << 63) - 1


def product_hash(codes: Sequence[int]) -> int:
    """That of a tuple with fields of these hash codes."""
    code = PRODUCT_SEED
    for one in codes:
        code ^= _rotated(one * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
        code = _rotated(code, 13) * 5 + 0xE6546B64 & MASK
    code ^= len(codes)
    code = (code ^ code >> 16) * 0x85EBCA6B & MASK
    code = (code ^ code >> 13) * 0xC2B2AE35 & MASK
    return to_int32(code ^ code >> 16)


def number_hash(serializer: TypeSerializer, value: Any) -> int:
    """That of a Long, Float or Double."""
    if isinstance(value, int):
        return _long_hash(value)
    if math.isfinite(value):
        whole = min(max(int(value), LONGS[0]), LONGS[1])  # as a cast to long has it
        if float(whole) == value:
            return _long_hash(whole)
    if isinstance(serializer, DoubleSerializer) and _is_float(value):
        return FloatSerializer().hash_code(value)
    return serializer.hash_code(value)


def _long_hash(value: int) -> int:
    return value if to_int32(value) == value else LongSerializer().hash_code(value)


def _is_float(value: float) -> bool:
    """Whether a float holds it; NaN equals nothing, and so is a double's."""
    try:
        (found,) = struct.unpack(">f", struct.pack(">f", value))
    except OverflowError:
        return False
    return bool(found == value)


def _rotated(code: int, by: int) -> int:
    return (code << by | code >> 32 - by) & MASK
