"""Strings and byte arrays.

Source: `org.apache.flink.types.StringValue`, `...typeutils.base.StringSerializer`,
`...typeutils.base.array.BytePrimitiveArraySerializer`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.kernels import decode, encode
from statelake.state_core.kernels.hashing import hash_java_strings
from statelake.state_core.serializers.framework.base import TypeSerializer, to_int32
from statelake.state_core.serializers.framework.columns import (
    ALL_PRESENT,
    Cursor,
    I32Array,
    I64Array,
    Target,
    U8Array,
    arrow_buffer,
    decode_bytes,
    present_rows,
    require_values,
    validity,
    variable_sizes,
    variable_values,
)
from statelake.state_core.serializers.framework.layouts import STRING, sized
from statelake.state_core.serializers.framework.snapshots import simple_snapshot

BASE = "org.apache.flink.api.common.typeutils.base."


class StringSerializer(TypeSerializer):
    """`String`: LEB128 of length + 1, then LEB128 UTF-16 code units; 0 is null.

    A lone surrogate becomes U+FFFD in the column, and its exact bytes are kept beside it.
    """

    name = "String"
    arrow_type = pa.string()
    byte_layout = STRING

    def read(self, source: DataInput) -> str | None:
        """Read one string, or None."""
        return source.read_string()

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one string, or None."""
        if value is not None and not isinstance(value, str):
            raise EncodeError(f"{value!r} is no String")
        out.write_string(value)

    def hash_code(self, value: Any) -> int:
        """Return `String.hashCode`, over UTF-16 code units; 0 for null."""
        code = 0
        units = (value or "").encode("utf-16-le", "surrogatepass")
        for at in range(0, len(units), 2):
            code = 31 * code + (units[at] | units[at + 1] << 8) & 0xFFFFFFFF
        return to_int32(code)

    def hash_codes(self, values: pa.Array) -> I32Array:
        """Return the hash code of every row."""
        self._measure(values, ALL_PRESENT)  # refuses invalid UTF-8
        codes = np.empty(len(values), np.int32)
        offsets, data = variable_values(values)
        hash_java_strings(offsets, data, codes)
        return codes

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read UTF-16 in LEB128 into UTF-8, in one pass."""
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
        """Return the bytes of each row as a `StringValue`."""
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
        """Write UTF-8 as UTF-16 in LEB128."""
        units, _ = self._measure(values, target.present)
        offsets, data = variable_values(values)
        encode.write_strings(
            offsets, data, present_rows(values), target.present, units, target.out, target.position
        )


class SizedSerializer(TypeSerializer):
    """A text or bytes: an i32 length, and the bytes that the column has."""

    byte_layout = sized()

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return four bytes more than the bytes for every row."""
        require_values(values, present, self.name)
        return variable_sizes(values, present, head=4)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the bytes as they are."""
        offsets, data = variable_values(values)
        encode.write_byte_arrays(offsets, data, target.present, target.out, target.position)


class ByteArraySerializer(SizedSerializer):
    """`byte[]`: an i32 length and the bytes."""

    name = "byte[]"
    arrow_type = pa.binary()

    def read(self, source: DataInput) -> bytes:
        """Read one array."""
        return source.read_bytes(source.read_length("bytes"))

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one array."""
        if not isinstance(value, bytes):
            raise EncodeError(f"{value!r} is no byte[]")
        out.write_sized(value)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read a binary column."""
        return decode_bytes(cursor, decode.read_byte_arrays, "a byte[]")


class ByteArrayWrapperSerializer(ByteArraySerializer):
    """`ByteArrayWrapper`: a `byte[]` of a Python job, as a key in its map state."""

    name = "ByteArrayWrapper"

    def hash_code(self, value: Any) -> int:
        """Return `31 * h + byte` from the last byte on."""
        code = 1
        for byte in reversed(value):
            code = to_int32(31 * code + (byte ^ 0x80) - 0x80)
        return code


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
