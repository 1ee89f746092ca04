"""Numbers, booleans and characters: the fixed-width basic types.

Source: `org.apache.flink.api.common.typeutils.base` (`LongSerializer` and its like).
"""

from __future__ import annotations

import math
import struct
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.kernels import decode, encode
from statelake.state_core.kernels.compiler import Kernel
from statelake.state_core.kernels.hashing import hash_java_longs
from statelake.state_core.serializers.framework.base import TypeSerializer, named, to_int32
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I32Array,
    I64Array,
    Target,
    U8Array,
    arrow_buffer,
    fixed_sizes,
    fixed_values,
    require_values,
    validity,
)
from statelake.state_core.serializers.framework.snapshots import simple_snapshot

BASE = "org.apache.flink.api.common.typeutils.base."

# readers and writers of numbers by width, with their type there
CODECS: dict[int, tuple[Kernel, Kernel, type]] = {
    1: (decode.read_fixed8, encode.write_fixed8, np.uint8),
    2: (decode.read_fixed16, encode.write_fixed16, np.int16),
    4: (decode.read_fixed32, encode.write_fixed32, np.int32),
    8: (decode.read_fixed64, encode.write_fixed64, np.int64),
}


class FixedWidthSerializer(TypeSerializer):
    """A number of fixed width that Arrow holds bit for bit.

    Attributes:
        java_name: The type's name in Java.
        method: The suffix of `DataInput.read_...` and `DataOutput.write_...`.
    """

    java_name: ClassVar[str]
    method: ClassVar[str]

    name = named("{java_name}")

    def read(self, source: DataInput) -> Any:
        """Read one number."""
        return getattr(source, f"read_{self.method}")()

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one number; refuse one that does not fit."""
        if value is None:
            raise EncodeError(f"null, and a {self.java_name} in Flink's state can't be")
        try:
            getattr(out, f"write_{self.method}")(value)
        except Exception as error:
            raise EncodeError(f"{value!r} is no {self.java_name}") from error

    def skip(self, source: DataInput) -> None:
        """Move on by the width."""
        source.read_bytes(self.length)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read big-endian numbers into an Arrow column."""
        read, _, dtype = CODECS[self.length]
        out: npt.NDArray[Any] = np.empty(cursor.rows, dtype)
        failed = read(cursor.data, cursor.position, cursor.end, cursor.present, out)
        cursor.check(failed, f"a {self.java_name}")
        bitmap, nulls = validity(cursor.present)
        buffers = [bitmap, arrow_buffer(out)]
        return pa.Array.from_buffers(self.arrow_type, cursor.rows, buffers, nulls)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the width for every present row."""
        require_values(values, present, self.java_name)
        return fixed_sizes(len(values), self.length, present)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write an Arrow column as big-endian numbers."""
        _, write, dtype = CODECS[self.length]
        write(fixed_values(values, dtype), target.present, target.out, target.position)


class _IntegralSerializer(FixedWidthSerializer):
    """A number whose hash code is itself."""

    def hash_code(self, value: Any) -> int:
        """Return the number."""
        return int(value)

    def hash_codes(self, values: pa.Array) -> I32Array:
        """Return the numbers."""
        return fixed_values(values, values.type.to_pandas_dtype()).astype(np.int32)


class ByteSerializer(_IntegralSerializer):
    """`Byte`: one signed byte."""

    java_name, method, length, arrow_type = "Byte", "byte", 1, pa.int8()

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one signed byte."""
        if not isinstance(value, int) or not -128 <= value <= 127:
            raise EncodeError(f"{value!r} is no Byte")
        out.write_byte(value)


class ShortSerializer(_IntegralSerializer):
    """`Short`: two bytes."""

    java_name, method, length, arrow_type = "Short", "short", 2, pa.int16()


class IntSerializer(_IntegralSerializer):
    """`Integer`: four bytes."""

    java_name, method, length, arrow_type = "Integer", "int", 4, pa.int32()


class LongSerializer(FixedWidthSerializer):
    """`Long`: eight bytes."""

    java_name, method, length, arrow_type = "Long", "long", 8, pa.int64()

    def hash_code(self, value: Any) -> int:
        """Return `Long.hashCode`: the halves xor-ed."""
        return to_int32(value ^ (value % (1 << 64) >> 32))

    def hash_codes(self, values: pa.Array) -> I32Array:
        """Return the hash code of every row."""
        codes = np.empty(len(values), np.int32)
        hash_java_longs(fixed_values(values, np.int64), codes)
        return codes


class FloatSerializer(FixedWidthSerializer):
    """`Float`: IEEE-754 bits, NaN payloads included."""

    java_name, method, length, arrow_type = "Float", "float", 4, pa.float32()

    def hash_code(self, value: Any) -> int:
        """Return `Float.hashCode`: the bits, NaN canonical."""
        bits = struct.pack(">f", math.nan if math.isnan(value) else value)
        return int.from_bytes(bits, "big", signed=True)


class DoubleSerializer(FixedWidthSerializer):
    """`Double`: IEEE-754 bits, NaN payloads included."""

    java_name, method, length, arrow_type = "Double", "double", 8, pa.float64()

    def hash_code(self, value: Any) -> int:
        """Return `Double.hashCode`: the halves of the bits xor-ed, NaN canonical."""
        bits = struct.pack(">d", math.nan if math.isnan(value) else value)
        return LongSerializer().hash_code(int.from_bytes(bits, "big", signed=True))


class BooleanSerializer(FixedWidthSerializer):
    """`Boolean`: one byte, 0 or 1."""

    java_name, method, length, arrow_type = "Boolean", "boolean", 1, pa.bool_()

    def hash_code(self, value: Any) -> int:
        """Return `Boolean.hashCode`."""
        return 1231 if value else 1237

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read bytes into Arrow's bits."""
        flags = cursor.read_flags("a Boolean")
        bitmap, nulls = validity(cursor.present)
        bits = pa.py_buffer(np.packbits(flags, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), cursor.rows, [bitmap, bits], nulls)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write Arrow's bits as bytes."""
        raw = values.buffers()[1]
        bits = np.frombuffer(raw, np.uint8) if raw is not None else np.empty(0, np.uint8)
        flags = np.unpackbits(bits, count=values.offset + len(values), bitorder="little")
        flags = np.ascontiguousarray(flags[values.offset :])
        encode.write_fixed8(flags, target.present, target.out, target.position)


class CharSerializer(TypeSerializer):
    """`Character`: one UTF-16 code unit, as a string of one character.

    A surrogate, which is no character by itself, becomes U+FFFD; its exact bytes are kept.
    """

    name = "Character"
    length = 2
    arrow_type = pa.string()

    def read(self, source: DataInput) -> str:
        """Read one code unit."""
        return chr(source.read_char())

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one code unit."""
        if not isinstance(value, str) or len(value) != 1 or ord(value) > 0xFFFF:
            raise EncodeError(f"{value!r} is no Character, which is one UTF-16 code unit")
        out.write_char(ord(value))

    def hash_code(self, value: Any) -> int:
        """Return the code unit."""
        return ord(value)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read code units as strings of one character."""
        units = np.empty(cursor.rows, np.int16)
        failed = decode.read_fixed16(
            cursor.data, cursor.position, cursor.end, cursor.present, units
        )
        cursor.check(failed, "a Character")
        points = units.view(np.uint16)
        surrogate = (points >= 0xD800) & (points < 0xE000)
        if surrogate.any():
            cursor.inexact |= surrogate.astype(np.uint8)
            points = np.where(surrogate, np.uint16(0xFFFD), points)
        text = [chr(point) for point in points.tolist()]
        missing = None if cursor.present.size == 0 else cursor.present == 0
        return pa.array(text, pa.string(), mask=missing)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return two bytes for every present row."""
        require_values(values, present, self.name)
        return fixed_sizes(len(values), 2, present)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write strings of one character as code units."""
        units = np.zeros(len(values), np.int16)
        for row, text in enumerate(values.to_pylist()):
            if target.present.size == 0 or target.present[row]:
                out = DataOutput()
                self.write(text, out)
                units[row] = np.int16(int.from_bytes(out.to_bytes(), "big", signed=True))
        encode.write_fixed16(units, target.present, target.out, target.position)


# by the word in the names of their classes, and of composite classes
NUMBERS: dict[str, type[Any]] = {
    "Byte": ByteSerializer,
    "Short": ShortSerializer,
    "Int": IntSerializer,
    "Long": LongSerializer,
    "Float": FloatSerializer,
    "Double": DoubleSerializer,
    "Boolean": BooleanSerializer,
    "Char": CharSerializer,
}
SNAPSHOTS = {
    serializer: simple_snapshot(f"{BASE}{name}Serializer${name}SerializerSnapshot", serializer)
    for name, serializer in NUMBERS.items()
}
