"""Structures of Flink SQL's operators in state: windows, keys, the upsert sink's multiset.

==================================  ==========================================================
`WindowKeySerializerSnapshot`       window end and key
`TimeWindow`, `CountWindow`, ...    namespaces of the window operators
`NodeSerializerSnapshot`, ...       the upsert sink's sequenced multiset
==================================  ==========================================================

Source: `org.apache.flink.table.runtime` (`operators.window`, `operators.sink`,
`sequencedmultisetstate.linked`, `typeutils.WindowKeySerializer`); `NullSerializer` in
`org.apache.flink.table.dataview`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.basic.numbers import SNAPSHOTS, LongSerializer
from statelake.state_core.serializers.composite.structs import ObjectSerializer
from statelake.state_core.serializers.composite.wrappers import (
    SingletonSerializer,
    TimeWindowSerializer,
    flip_sign,
)
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.columns import Cursor, Target, fixed_values
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    as_is,
    incompatible,
)
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from statelake.state_core.serializers.framework.registry import (
    read_serializer_snapshot,
    register,
    write_serializer_snapshot,
)
from statelake.state_core.serializers.framework.snapshots import (
    CompositeTypeSerializerSnapshot,
    simple_snapshot,
)

RUNTIME = "org.apache.flink.table.runtime."
TYPEUTILS = f"{RUNTIME}typeutils."
WINDOW = f"{RUNTIME}operators.window."
LINKED = f"{RUNTIME}sequencedmultisetstate.linked."
DATAVIEW = "org.apache.flink.table.dataview."
LONG = SNAPSHOTS[LongSerializer]


class SortedLongSerializer(LongSerializer):
    """A `Long` whose sign bit is flipped, so that bytes sort as numbers do."""

    java_name = "SortedLong"

    def read(self, source: DataInput) -> Any:
        """Read one number."""
        return source.read_long() ^ -(1 << 63)

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one number."""
        if not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
            raise EncodeError(f"{value!r} is no Long")
        out.write_long(value ^ -(1 << 63))

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read numbers, and flip the sign bit back."""
        column = super().decode(cursor)
        numbers = flip_sign(fixed_values(column, np.int64))
        buffers = [column.buffers()[0], pa.py_buffer(numbers)]
        return pa.Array.from_buffers(pa.int64(), len(column), buffers, column.null_count)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write numbers with the sign bit flipped."""
        super().encode(pa.array(flip_sign(fixed_values(values, np.int64))), target)


class NullSerializer(SingletonSerializer):
    """The absent value of a view: one byte."""

    name = "Null"
    length = 1


class TableTimeWindowSerializer(TimeWindowSerializer):
    """Flink SQL's `TimeWindow`: start and end, as in the DataStream API."""

    name = "table.TimeWindow"


class TableGlobalWindowSerializer(SingletonSerializer):
    """Flink SQL's `GlobalWindow`: one byte."""

    name = "table.GlobalWindow"
    length = 1


class CountWindowSerializer(LongSerializer):
    """Flink SQL's `CountWindow`: its number."""

    java_name = "table.CountWindow"


simple_snapshot(f"{DATAVIEW}NullSerializer$NullSerializerSnapshot", NullSerializer)
simple_snapshot(
    f"{RUNTIME}operators.sink.SortedLongSerializer$SortedLongSerializerSnapshot",
    SortedLongSerializer,
)
for _name, _serializer in (
    ("TimeWindow", TableTimeWindowSerializer),
    ("CountWindow", CountWindowSerializer),
    ("GlobalWindow", TableGlobalWindowSerializer),
):
    simple_snapshot(f"{WINDOW}{_name}$Serializer${_name}SerializerSnapshot", _serializer)


# --------------------------------------------------------------------------- snapshots


class _NamedFieldsSnapshot(CompositeTypeSerializerSnapshot):
    """The snapshot of a class whose fields have fixed names."""

    type_label = ""

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the serializer of the fields under their names."""
        return ObjectSerializer(
            self.type_label, list(zip(self.nested_names, nested, strict=True)), fixed=True
        )


@register
class WindowKeySerializerSnapshot(_NamedFieldsSnapshot):
    """`WindowKeySerializer$WindowKeySerializerSnapshot`, with the snapshot of the key."""

    java_class = f"{TYPEUTILS}WindowKeySerializer$WindowKeySerializerSnapshot"
    type_label = "WindowKey"
    nested_names = ("key",)
    arity = 1

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the serializer of the window's time and the key."""
        fields = [("window", LongSerializer()), ("key", nested[0])]
        return ObjectSerializer(self.type_label, fields, fixed=True)


class _SequenceSnapshot(_NamedFieldsSnapshot):
    """A snapshot of two numbers of the sequenced multiset."""

    outer_versions = range(1)
    arity = 2

    def __init__(self) -> None:
        super().__init__()
        self.nested = (LONG(), LONG())


@register
class RowSqnInfoSerializerSnapshot(_SequenceSnapshot):
    """`RowSqnInfoSerializer$RowSqnInfoSerializerSnapshot`: a row's first and last number."""

    java_class = f"{LINKED}RowSqnInfoSerializer$RowSqnInfoSerializerSnapshot"
    type_label = "RowSqnInfo"
    nested_names = ("firstSqn", "lastSqn")


@register
class MetaSqnInfoSerializerSnapshot(_SequenceSnapshot):
    """`MetaSqnInfoSerializer$MetaSqnInfoSerializerSnapshot`: the highest number, and the size."""

    java_class = f"{LINKED}MetaSqnInfoSerializer$MetaSqnInfoSerializerSnapshot"
    type_label = "MetaSqnInfo"
    nested_names = ("highSqn", "size")


@register
class NodeSerializerSnapshot(_NamedFieldsSnapshot):
    """`NodeSerializer$NodeSerializerSnapshot`: a row with its neighbours' numbers."""

    java_class = f"{LINKED}NodeSerializer$NodeSerializerSnapshot"
    type_label = "Node"
    nested_names = ("row", "sqn", "prevSqn", "nextSqn", "nextSqnForRecord", "timestamp")
    outer_versions = range(1)
    arity = 6

    @classmethod
    def of(
        cls, row: TypeSerializerSnapshot, link: TypeSerializerSnapshot
    ) -> NodeSerializerSnapshot:
        """Return the snapshot of nodes of these rows; `link` is the snapshot of a nullable Long."""
        return cls.around(row, LONG(), link, link, link, LONG())


@register
class RowDataKeySerializerSnapshot(TypeSerializerSnapshot):
    """`RowDataKeySerializerSnapshot`: generated code in two frames, and the row's snapshot."""

    java_class = f"{LINKED}RowDataKeySerializerSnapshot"
    versions = range(1)

    def __init__(self) -> None:
        self.equaliser = b""
        self.hash_function = b""
        self.row: TypeSerializerSnapshot | None = None

    @classmethod
    def of(
        cls, equaliser: bytes, hash_function: bytes, row: TypeSerializerSnapshot
    ) -> RowDataKeySerializerSnapshot:
        """Return the snapshot of these rows, with the generated code as Java streams."""
        snapshot = cls()
        snapshot.equaliser, snapshot.hash_function, snapshot.row = equaliser, hash_function, row
        return snapshot

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Read two framed streams, which stay bytes, and a snapshot."""
        self.check_version(version, source)
        self.equaliser = source.read_bytes(source.read_length("bytes of a frame"))
        self.hash_function = source.read_bytes(source.read_length("bytes of a frame"))
        self.row = read_serializer_snapshot(source)

    def write_snapshot(self, out: DataOutput) -> None:
        """Write the frames as they were read."""
        for frame in (self.equaliser, self.hash_function):
            out.write_sized(frame)
        if self.row is not None:
            write_serializer_snapshot(self.row, out)

    def restore_serializer(self) -> TypeSerializer:
        """Return the serializer of the row."""
        return (
            OpaqueSerializer(self.java_class) if self.row is None else self.row.restore_serializer()
        )

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """Return as is for the same class: Flink 2.3 compares the old snapshot with itself."""
        if not isinstance(old, RowDataKeySerializerSnapshot):
            return incompatible(old.type_name, self.type_name, "the type is another one")
        return as_is()
