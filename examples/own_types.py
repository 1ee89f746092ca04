"""Types of your own: a custom serializer, and a decoder for a class that Kryo writes.

statelake import savepoint --lake lake --job cars --plugins examples/own_types.py
"""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers import (
    Decoder,
    SimpleTypeSerializerSnapshot,
    TypeSerializer,
    register,
    register_decoder,
)


class PointSerializer(TypeSerializer):
    """`com.acme.PointSerializer`: two doubles, and a label in modified UTF-8."""

    name = "Point"
    arrow_type = pa.struct({"x": pa.float64(), "y": pa.float64(), "label": pa.string()})

    def read(self, source: DataInput) -> dict[str, Any]:
        """What `deserialize(DataInputView)` reads."""
        return {"x": source.read_double(), "y": source.read_double(), "label": source.read_utf()}

    def write(self, value: Any, out: DataOutput) -> None:
        """What `serialize(Point, DataOutputView)` writes."""
        out.write_double(value["x"])
        out.write_double(value["y"])
        out.write_utf(value["label"])


@register
class PointSerializerSnapshot(SimpleTypeSerializerSnapshot):
    """Flink writes this class's Java name into every savepoint, and finds the serializer by it."""

    java_class = "com.acme.PointSerializer$PointSerializerSnapshot"
    serializer_class = PointSerializer


class CarDecoder(Decoder):
    """`com.acme.Car`, as a serializer of Kryo's writes it: an i64, and i16 places on the map."""

    arrow_type = pa.struct({"id": pa.int64(), "places": pa.list_(pa.int16())})

    def decode(self, data: bytes) -> dict[str, Any]:
        """Exactly one value's bytes."""
        identity, count = struct.unpack_from(">qB", data)
        return {"id": identity, "places": list(struct.unpack_from(f">{count}h", data, 9))}

    def encode(self, value: dict[str, Any]) -> bytes:
        """Only needed where values are to be edited."""
        places = value["places"]
        return struct.pack(f">qB{len(places)}h", value["id"], len(places), *places)

    def length(self, data: memoryview) -> int:
        """Only needed inside lists, maps, tuples and POJOs."""
        return 9 + 2 * data[8]


register_decoder("com.acme.Car", CarDecoder())
