"""Structures that Flink SQL's operators keep in state: windows, keys, the upsert sink's multiset.

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

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from state_core.errors import EncodeError
from state_core.files.wire import DataInput, DataOutput
from state_core.serializers.basic.numbers import SNAPSHOTS, LongSerializer
from state_core.serializers.basic.text import OpaqueSerializer
from state_core.serializers.composite.namespaces import SingletonSerializer, TimeWindowSerializer
from state_core.serializers.composite.structs import TupleSerializer
from state_core.serializers.composite.wrappers import flip_sign
from state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from state_core.serializers.framework.columns import Cursor, Target, fixed_values
from state_core.serializers.framework.compatibility import Compatibility, as_is, incompatible
from state_core.serializers.framework.registry import (
    read_serializer_snapshot,
    register,
    write_serializer_snapshot,
)
from state_core.serializers.framework.snapshots import (
    CompositeTypeSerializerSnapshot,
    simple_snapshot,
)

__all__ = [
    "NamedFieldsSerializer", "NodeSerializerSnapshot", "RowDataKeySerializerSnapshot",
    "SortedLongSerializer", "WindowKeySerializerSnapshot",
]  # fmt: skip

RUNTIME = "org.apache.flink.table.runtime."
TYPEUTILS = f"{RUNTIME}typeutils."
WINDOW = f"{RUNTIME}operators.window."
LINKED = f"{RUNTIME}sequencedmultisetstate.linked."
DATAVIEW = "org.apache.flink.table.dataview."
LONG = SNAPSHOTS[LongSerializer]


class NamedFieldsSerializer(TupleSerializer):
    """A class of fields one behind the other, under the names that they have in Java.

    Args:
        type_name: The class.
        names: The fields' names.
        elements: Their serializers.
    """

    def __init__(
        self, type_name: str, names: Sequence[str], elements: Sequence[TypeSerializer]
    ) -> None:
        super().__init__(list(elements))
        self.type_name = type_name
        self.fields = list(zip(names, elements, strict=True))
        self.arrow_type = pa.struct([pa.field(name, one.arrow_type) for name, one in self.fields])

    @property
    def name(self) -> str:
        """The class."""
        return self.type_name


class SortedLongSerializer(LongSerializer):
    """A `Long` whose sign bit is flipped, so that bytes sort as numbers do."""

    @property
    def name(self) -> str:
        """`SortedLong`."""
        return "SortedLong"

    def read(self, source: DataInput) -> Any:
        """One number."""
        return source.read_long() ^ -(1 << 63)

    def write(self, value: Any, out: DataOutput) -> None:
        """One number."""
        if not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
            raise EncodeError(f"{value!r} is no Long")
        out.write_long(value ^ -(1 << 63))

    def decode(self, cursor: Cursor) -> pa.Array:
        """Numbers with the sign bit flipped back."""
        column = super().decode(cursor)
        numbers = flip_sign(fixed_values(column, np.int64))
        buffers = [column.buffers()[0], pa.py_buffer(numbers)]
        return pa.Array.from_buffers(pa.int64(), len(column), buffers, column.null_count)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Numbers with the sign bit flipped."""
        super().encode(pa.array(flip_sign(fixed_values(values, np.int64))), target)


class NullSerializer(SingletonSerializer):
    """A view's value that is not there: one byte."""

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
    """The snapshot of a class with fields of fixed names."""

    type_label = ""
    names: tuple[str, ...] = ()

    def nested_name(self, index: int) -> str:
        """The field's name."""
        return self.names[index]

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """The fields under their names."""
        if not all(one.self_delimiting for one in nested):
            return OpaqueSerializer(self.java_class)
        return NamedFieldsSerializer(self.type_label, self.names, nested)


@register
class WindowKeySerializerSnapshot(_NamedFieldsSnapshot):
    """`WindowKeySerializer$WindowKeySerializerSnapshot`: the key's snapshot nested."""

    java_class = f"{TYPEUTILS}WindowKeySerializer$WindowKeySerializerSnapshot"
    type_label = "WindowKey"
    names = ("key",)
    arity = 1

    @classmethod
    def of(cls, key: TypeSerializerSnapshot) -> WindowKeySerializerSnapshot:
        """The snapshot of windows with keys of this kind."""
        made = cls()
        made.nested = (key,)
        return made

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """The window's time, then the key."""
        if not nested[0].self_delimiting:
            return OpaqueSerializer(self.java_class)
        fields = (LongSerializer(), nested[0])
        return NamedFieldsSerializer(self.type_label, ("window", "key"), fields)


class _SequenceSnapshot(_NamedFieldsSnapshot):
    """Two numbers of the sequenced multiset."""

    outer_version = 0
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
    names = ("firstSqn", "lastSqn")


@register
class MetaSqnInfoSerializerSnapshot(_SequenceSnapshot):
    """`MetaSqnInfoSerializer$MetaSqnInfoSerializerSnapshot`: the highest number, and the size."""

    java_class = f"{LINKED}MetaSqnInfoSerializer$MetaSqnInfoSerializerSnapshot"
    type_label = "MetaSqnInfo"
    names = ("highSqn", "size")


@register
class NodeSerializerSnapshot(_NamedFieldsSnapshot):
    """`NodeSerializer$NodeSerializerSnapshot`: a row with its neighbours' numbers."""

    java_class = f"{LINKED}NodeSerializer$NodeSerializerSnapshot"
    type_label = "Node"
    names = ("row", "sqn", "prevSqn", "nextSqn", "nextSqnForRecord", "timestamp")
    outer_version = 0
    outer_versions = range(1)
    arity = 6

    @classmethod
    def of(
        cls, row: TypeSerializerSnapshot, link: TypeSerializerSnapshot
    ) -> NodeSerializerSnapshot:
        """The snapshot of nodes of such rows; `link` is that of a Long that may be null."""
        made = cls()
        made.nested = (row, LONG(), link, link, link, LONG())
        return made


@register
class RowDataKeySerializerSnapshot(TypeSerializerSnapshot):
    """`RowDataKeySerializerSnapshot`: generated code in two frames, and the row's snapshot."""

    java_class = f"{LINKED}RowDataKeySerializerSnapshot"
    current_version = 0
    versions = range(1)

    def __init__(self) -> None:
        self.equaliser = b""
        self.hash_function = b""
        self.row: TypeSerializerSnapshot | None = None

    @classmethod
    def of(
        cls, equaliser: bytes, hash_function: bytes, row: TypeSerializerSnapshot
    ) -> RowDataKeySerializerSnapshot:
        """The snapshot of such rows, with the generated code as Java streams."""
        made = cls()
        made.equaliser, made.hash_function, made.row = equaliser, hash_function, row
        return made

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Two framed streams, which are carried, and a snapshot."""
        self.check_version(version, source)
        self.equaliser = source.read_bytes(source.read_length("bytes of a frame"))
        self.hash_function = source.read_bytes(source.read_length("bytes of a frame"))
        self.row = read_serializer_snapshot(source)

    def write_snapshot(self, out: DataOutput) -> None:
        """The frames as they were."""
        for frame in (self.equaliser, self.hash_function):
            out.write_int(len(frame))
            out.write_bytes(frame)
        if self.row is not None:
            write_serializer_snapshot(self.row, out)

    def restore_serializer(self) -> TypeSerializer:
        """The row's."""
        return (
            OpaqueSerializer(self.java_class) if self.row is None else self.row.restore_serializer()
        )

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """As is for its like: Flink 2.3 compares the old row's snapshot with itself."""
        if not isinstance(old, RowDataKeySerializerSnapshot):
            return incompatible(old.type_name, self.type_name, "the type is another one")
        return as_is()
