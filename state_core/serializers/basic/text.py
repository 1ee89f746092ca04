"""Strings and byte arrays.

Source: `org.apache.flink.types.StringValue`, `...typeutils.base.StringSerializer`,
`...typeutils.base.array.BytePrimitiveArraySerializer`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from state_core.errors import EncodeError
from state_core.files.wire import DataInput, DataOutput
from state_core.kernels import decode, encode
from state_core.kernels.hashing import hash_java_strings
from state_core.kernels.skip import SIZED, STRING
from state_core.serializers.framework.base import TypeSerializer, to_int32
from state_core.serializers.framework.columns import (
    ALL_PRESENT,
    Cursor,
    I32Array,
    I64Array,
    Target,
    U8Array,
    arrow_buffer,
    present_rows,
    require_values,
    validity,
    variable_values,
)
from state_core.serializers.framework.snapshots import simple_snapshot

__all__ = [
    "ByteArraySerializer",
    "ByteArrayWrapperSerializer",
    "OpaqueSerializer",
    "StringSerializer",
]

BASE = "org.apache.flink.api.common.typeutils.base."


class StringSerializer(TypeSerializer):
    """`String`: LEB128 of length + 1, then LEB128 UTF-16 code units; 0 is null.

    A lone surrogate becomes U+FFFD in the column, and its exact bytes travel beside.
    """

    name = "String"
    arrow_type = pa.string()

    def read(self, source: DataInput) -> str | None:
        """One string, or None."""
        return source.read_string()

    def write(self, value: Any, out: DataOutput) -> None:
        """One string, or None."""
        if value is not None and not isinstance(value, str):
            raise EncodeError(f"{value!r} is no String")
        out.write_string(value)

    def hash_code(self, value: Any) -> int:
        """`String.hashCode`, over UTF-16 code units; 0 for null."""
        code = 0
        units = (value or "").encode("utf-16-le", "surrogatepass")
        for at in range(0, len(units), 2):
            code = 31 * code + (units[at] | units[at + 1] << 8) & 0xFFFFFFFF
        return to_int32(code)

    def hash_codes(self, values: pa.Array) -> I32Array:
        """`hash_code` of every row."""
        self._measure(values, ALL_PRESENT)  # which refuses what is no UTF-8
        codes = np.empty(len(values), np.int32)
        offsets, data = variable_values(values)
        hash_java_strings(offsets, data, codes)
        return codes

    def skip_program(self) -> tuple[int, ...]:
        """A string."""
        return (STRING,)

    def decode(self, cursor: Cursor) -> pa.Array:
        """UTF-16 in LEB128 into UTF-8, in one pass."""
        rows = cursor.rows
        offsets = np.empty(rows + 1, np.int32)
        valid = np.empty(rows, np.uint8)
        data = np.empty(cursor.room(3, 2), np.uint8)
        totals = np.zeros(2, np.int64)
        failed = decode.read_strings(
            cursor.data, cursor.position, cursor.end, cursor.present,
            offsets, data, valid, cursor.inexact, totals,
        )  # fmt: skip
        cursor.check(failed, "a String")
        bitmap, nulls = validity(valid)
        buffers = [bitmap, arrow_buffer(offsets), arrow_buffer(data[: totals[0]])]
        return pa.Array.from_buffers(pa.string(), rows, buffers, nulls)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Bytes of each as a `StringValue`."""
        return self._measure(values, present)[1]

    def _measure(self, values: pa.Array, present: U8Array) -> tuple[I64Array, I64Array]:
        offsets, data = variable_values(values)
        units, sizes = np.empty(len(values), np.int64), np.empty(len(values), np.int64)
        failed = encode.string_sizes(offsets, data, present_rows(values), present, units, sizes)
        if failed >= 0:
            raise EncodeError(
                f"row {failed} is a string that is not UTF-8",
                remedy="rewrite the column with an engine that checks its strings",
            )
        return units, sizes

    def encode(self, values: pa.Array, target: Target) -> None:
        """UTF-8 into UTF-16 in LEB128."""
        units, _ = self._measure(values, target.present)
        offsets, data = variable_values(values)
        encode.write_strings(
            offsets, data, present_rows(values), target.present, units, target.out, target.position
        )


class ByteArraySerializer(TypeSerializer):
    """`byte[]`: an i32 length and the bytes."""

    name = "byte[]"
    least = 4
    arrow_type = pa.binary()

    def read(self, source: DataInput) -> bytes:
        """One array."""
        return source.read_bytes(source.read_length("bytes"))

    def write(self, value: Any, out: DataOutput) -> None:
        """One array."""
        if not isinstance(value, bytes):
            raise EncodeError(f"{value!r} is no byte[]")
        out.write_int(len(value))
        out.write_bytes(value)

    def skip_program(self) -> tuple[int, ...]:
        """A count of bytes."""
        return (SIZED, 1)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Into a binary column."""
        return _decode_bytes(cursor, decode.read_byte_arrays, "a byte[]")

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Four bytes more than the array."""
        require_values(values, present, self.name)
        lengths = _lengths(values) + 4
        return lengths * present if present.size else lengths

    def encode(self, values: pa.Array, target: Target) -> None:
        """From a binary column."""
        offsets, data = variable_values(values)
        encode.write_byte_arrays(offsets, data, target.present, target.out, target.position)


class ByteArrayWrapperSerializer(ByteArraySerializer):
    """`ByteArrayWrapper`: the same, of a Python job's keys in map state."""

    name = "ByteArrayWrapper"

    def hash_code(self, value: Any) -> int:
        """`31 * h + byte` from the last byte on."""
        code = 1
        for byte in reversed(value):
            code = to_int32(31 * code + (byte ^ 0x80) - 0x80)
        return code


class OpaqueSerializer(TypeSerializer):
    """A type whose bytes only its own class understands: kept whole, as they are.

    It takes everything up to the end of its entry, so it can stand last in one and nowhere else.
    """

    arrow_type = pa.binary()
    self_delimiting = False

    def __init__(self, java_class: str = "unknown") -> None:
        self.java_class = java_class

    @property
    def name(self) -> str:
        """The Java class, marked as not understood."""
        return f"binary ({self.java_class})"

    def read(self, source: DataInput) -> bytes:
        """All bytes that are left."""
        return source.read_rest()

    def write(self, value: Any, out: DataOutput) -> None:
        """The bytes as they are."""
        if not isinstance(value, bytes):
            raise EncodeError(f"{value!r} is not bytes, and {self.java_class} is not understood")
        out.write_bytes(value)

    def decode(self, cursor: Cursor) -> pa.Array:
        """All bytes up to each row's end."""
        column = _decode_bytes(cursor, decode.read_units, "bytes")
        there = True if cursor.present.size == 0 else cursor.present != 0
        np.copyto(cursor.position, cursor.end, where=there)
        return column

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """As long as the bytes are."""
        require_values(values, present, self.name)
        lengths = _lengths(values)
        return lengths * present if present.size else lengths

    def encode(self, values: pa.Array, target: Target) -> None:
        """The bytes as they are."""
        offsets, data = variable_values(values)
        encode.write_units(offsets, data, target.present, target.out, target.position)


def _lengths(values: pa.Array) -> I64Array:
    offsets, _ = variable_values(values)
    return np.diff(offsets).astype(np.int64)


def _decode_bytes(cursor: Cursor, read: Any, what: str) -> pa.Array:
    offsets = np.empty(cursor.rows + 1, np.int32)
    data = np.empty(cursor.room(), np.uint8)
    totals = np.zeros(2, np.int64)
    failed = read(cursor.data, cursor.position, cursor.end, cursor.present, offsets, data, totals)
    cursor.check(failed, what)
    bitmap, nulls = validity(cursor.present)
    buffers = [bitmap, arrow_buffer(offsets), arrow_buffer(data[: totals[0]])]
    return pa.Array.from_buffers(pa.binary(), cursor.rows, buffers, nulls)


StringSerializerSnapshot = simple_snapshot(
    f"{BASE}StringSerializer$StringSerializerSnapshot", StringSerializer
)
_BYTES = "BytePrimitiveArraySerializer"
ByteArraySerializerSnapshot = simple_snapshot(
    f"{BASE}array.{_BYTES}${_BYTES}Snapshot", ByteArraySerializer
)
simple_snapshot(
    "org.apache.flink.streaming.api.utils"
    ".ByteArrayWrapperSerializer$ByteArrayWrapperSerializerSnapshot",
    ByteArrayWrapperSerializer,
)
