"""The mutable twins of the basic types (`IntValue` and its like), and types without a value.

A twin has the bytes of its basic type, except `StringValue`: its length is not offset by one, as it
can't be null. Types without a value are shown as `true`.

Source: `IntValueSerializer` and its like, `VoidSerializer`, `Tuple0Serializer`;
`org.apache.flink.types.StringValue`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.basic.numbers import NUMBERS, DoubleSerializer, LongSerializer
from statelake.state_core.serializers.basic.text import StringSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer, named, to_int32
from statelake.state_core.serializers.framework.columns import Cursor
from statelake.state_core.serializers.framework.layouts import ByteLayout, fixed
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from statelake.state_core.serializers.framework.snapshots import simple_snapshot

BASE = "org.apache.flink.api.common.typeutils.base."


class StringValueSerializer(TypeSerializer):
    """`StringValue`: a LEB128 count of UTF-16 code units, then each as LEB128."""

    name = "StringValue"
    arrow_type = pa.string()

    def read(self, source: DataInput) -> str:
        """Read one string; an unpaired surrogate stays one."""
        count = source.read_varint()
        if count > source.remaining:
            raise source.fault(f"a string of {count} characters in {source.remaining} bytes")
        units = b"".join(_unit(source).to_bytes(2, "little") for _ in range(count))
        return units.decode("utf-16-le", "surrogatepass")

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one string."""
        if not isinstance(value, str):
            raise EncodeError(f"{value!r} is no StringValue")
        units = value.encode("utf-16-le", "surrogatepass")
        out.write_varint(len(units) // 2)
        for at in range(0, len(units), 2):
            out.write_varint(int.from_bytes(units[at : at + 2], "little"))

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read text; a value with an unpaired surrogate is inexact."""
        texts = self._decode_values(cursor)
        for row, text in enumerate(texts):
            if text is not None and any("\ud800" <= character <= "\udfff" for character in text):
                texts[row] = text.encode("utf-8", "replace").decode()
                cursor.inexact[row] = 1
        return pa.array(texts, self.arrow_type)

    def hash_code(self, value: Any) -> int:
        """Return the hash code of the text, as a `String`."""
        return StringSerializer().hash_code(value)


def _unit(source: DataInput) -> int:
    unit = source.read_varint()
    if unit > 0xFFFF:
        raise source.fault(f"a character {unit:#x}")
    return unit


class ConstantSerializer(TypeSerializer):
    """A type with one value, whose bytes are constant."""

    java_name: ClassVar[str]
    content: ClassVar[bytes]
    arrow_type = pa.bool_()

    name = named("{java_name}")

    @property
    def length(self) -> int:  # type: ignore[override] # that of the constant
        """The length of the constant."""
        return len(self.content)

    @property
    def byte_layout(self) -> ByteLayout:
        """The constant."""
        return fixed(len(self.content))

    def read(self, source: DataInput) -> bool:
        """Read the constant, and return True."""
        data = source.read_bytes(len(self.content))
        if data != self.content:
            raise source.fault(f"a {self.java_name} of bytes {data.hex()}")
        return True

    def write(self, value: Any, out: DataOutput) -> None:
        """Write the constant."""
        if value is not True:
            raise EncodeError(f"{value!r}, and a {self.java_name} is shown as true")
        out.write_bytes(self.content)


def _boolean_hash(_: Any, value: bool) -> int:
    """Return `BooleanValue.hashCode`."""
    return int(value)


def _double_hash(_: Any, value: float) -> int:
    """Return `DoubleValue.hashCode`."""
    return to_int32(31 + DoubleSerializer().hash_code(value))


def _long_hash(_: Any, value: int) -> int:
    """Return `LongValue.hashCode`."""
    return to_int32(43 + LongSerializer().hash_code(value))


# the other types have the hash code of the basic type
_HASHES = {"Boolean": _boolean_hash, "Double": _double_hash, "Long": _long_hash}


def _twin(basic: type[Any], kind: str) -> None:
    """Make and register the mutable twin of a basic type."""
    named: dict[str, Any] = {
        "name": f"{kind}Value",
        "__module__": __name__,
        "__doc__": f"`{kind}Value`.",
    }
    if kind in _HASHES:
        named |= {"hash_code": _HASHES[kind], "hash_codes": TypeSerializer.hash_codes}
    twin = type(f"{kind}ValueSerializer", (basic,), named)
    simple_snapshot(f"{BASE}{kind}ValueSerializer${kind}ValueSerializerSnapshot", twin)


for _kind, _basic in NUMBERS.items():
    _twin(_basic, _kind)
simple_snapshot(f"{BASE}StringValueSerializer$StringValueSerializerSnapshot", StringValueSerializer)


class VoidSerializer(ConstantSerializer):
    """`Void`: one zero byte."""

    java_name, content = "Void", b"\x00"


class NullValueSerializer(ConstantSerializer):
    """`NullValue`: no bytes."""

    java_name, content = "NullValue", b""


class Tuple0Serializer(ConstantSerializer):
    """`Tuple0`: the byte 42."""

    java_name, content = "Tuple0", b"\x2a"


class JavaObjectSerializer(OpaqueSerializer):
    """A Java-serialized object: its bytes are kept, and never deserialized."""

    def __init__(self) -> None:
        super().__init__("java.io.Serializable")


simple_snapshot(f"{BASE}VoidSerializer$VoidSerializerSnapshot", VoidSerializer)
simple_snapshot(f"{BASE}NullValueSerializer$NullValueSerializerSnapshot", NullValueSerializer)
simple_snapshot(
    "org.apache.flink.api.java.typeutils.runtime.Tuple0SerializerSnapshot", Tuple0Serializer
)
simple_snapshot(
    "org.apache.flink.runtime.state.JavaSerializer$JavaSerializerSnapshot", JavaObjectSerializer
)
