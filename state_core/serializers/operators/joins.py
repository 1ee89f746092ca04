"""Values of Flink's own join operators: an element of one of two inputs, or one with a mark.

Source: `CoGroupedStreams$UnionSerializer`, `IntervalJoinOperator$BufferEntrySerializer`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.basic.numbers import BooleanSerializer
from statelake.state_core.serializers.composite.structs import StructSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer, named
from statelake.state_core.serializers.framework.snapshots import composite_snapshot

ONE, TWO = 1, 2


class UnionSerializer(TypeSerializer):
    """`TaggedUnion`: a byte 1 or 2, then the element of that input."""

    def __init__(self, one: TypeSerializer, two: TypeSerializer) -> None:
        self.inputs = {ONE: one, TWO: two}
        self.arrow_type = pa.struct(
            [
                pa.field("input", pa.int8()),
                pa.field("one", one.arrow_type),
                pa.field("two", two.arrow_type),
            ]
        )

    @property
    def name(self) -> str:
        """`TaggedUnion<..., ...>`."""
        return f"TaggedUnion<{self.inputs[ONE].name}, {self.inputs[TWO].name}>"

    def read(self, source: DataInput) -> dict[str, Any]:
        """Read one element, in the field of its input."""
        tag = source.read_byte()
        if tag not in self.inputs:
            raise source.fault(f"an element of input {tag}")
        value = self.inputs[tag].read(source)
        return {
            "input": tag,
            "one": value if tag == ONE else None,
            "two": value if tag == TWO else None,
        }

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one element."""
        tag = value.get("input") if isinstance(value, dict) else None
        if tag not in (ONE, TWO):
            raise EncodeError(f"{value!r} is of neither input of {self.name}")
        out.write_byte(tag)
        self.inputs[tag].write(value["one" if tag == ONE else "two"], out)


class BufferEntrySerializer(StructSerializer):
    """`BufferEntry`: whether it was joined already, then the element."""

    name = named("BufferEntry<{element}>")

    def __init__(self, element: TypeSerializer) -> None:
        super().__init__([("joined", BooleanSerializer()), ("element", element)])
        self.element = element


# for the snapshots of both inputs
composite_snapshot(
    "org.apache.flink.streaming.api.datastream.CoGroupedStreams$UnionSerializerSnapshot",
    UnionSerializer,
    arity=2,
    opaque_name="TaggedUnion",
    outer_versions=range(1, 3),
)
composite_snapshot(
    "org.apache.flink.streaming.api.operators.co"
    ".IntervalJoinOperator$BufferEntrySerializerSnapshot",
    BufferEntrySerializer,
    arity=1,
    opaque_name="BufferEntry",
    outer_versions=range(1, 3),
)
