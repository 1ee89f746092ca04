"""Wrappers of Flink SQL that add nothing to the bytes: external types, views of maps and lists.

Source: `ExternalSerializer` in `org.apache.flink.table.runtime.typeutils`; `MapViewSerializer` and
`ListViewSerializer` in `org.apache.flink.table.dataview`.
"""

from __future__ import annotations

from statelake.state_core.files.java_stream import read_java_stream
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.registry import register
from statelake.state_core.serializers.framework.snapshots import (
    CompositeTypeSerializerSnapshot,
    composite_snapshot,
)

TYPEUTILS = "org.apache.flink.table.runtime.typeutils."
DATAVIEW = "org.apache.flink.table.dataview."


for _view in ("MapView", "ListView"):
    composite_snapshot(
        f"{DATAVIEW}{_view}SerializerSnapshot", lambda view: view, arity=1, delimited=slice(0)
    )


@register
class ExternalSerializerSnapshot(CompositeTypeSerializerSnapshot):
    """`ExternalSerializer$ExternalSerializerSnapshot`: a `DataType`, kept as its Java stream.

    State has the internal form; the data type is only for Java code.
    """

    java_class = f"{TYPEUTILS}ExternalSerializer$ExternalSerializerSnapshot"
    arity = 1
    delimited = slice(0)

    def __init__(self) -> None:
        super().__init__()
        self.data_type = b""
        self.internal_input = False

    @classmethod
    def of(
        cls, data_type: bytes, inner: TypeSerializerSnapshot, *, internal_input: bool = False
    ) -> ExternalSerializerSnapshot:
        """Return the snapshot of a `DataType`, given as Java stream, over a serializer."""
        snapshot = cls.around(inner)
        snapshot.data_type, snapshot.internal_input = data_type, internal_input
        return snapshot

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the serializer of the internal form."""
        return nested[0]

    def read_outer_snapshot(self, version: int, source: DataInput) -> None:
        """Read the stream, and whether values come in the internal form."""
        start = source.position
        read_java_stream(source)
        self.data_type = bytes(source.data[start : source.position])
        self.internal_input = source.read_boolean()

    def write_outer_snapshot(self, out: DataOutput) -> None:
        """Write the stream as it was read."""
        out.write_bytes(self.data_type)
        out.write_boolean(self.internal_input)
