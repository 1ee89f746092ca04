"""What else Flink SQL's operators keep in state: lists with nulls, sorted maps, small structures.

===================================  ==========================================================
`LinkedListSerializer`               lists of accumulators (LAG, LISTAGG with retraction)
`SortedMapSerializerSnapshot`        Top-N's counts by sort key; the comparator is carried
`ExternalSerializer`, `MapView`...   wrappers without bytes of their own
`WindowKeySerializer`                window end and key
`TimeWindow`, `CountWindow`, ...     namespaces of the window operators
`NodeSerializer`, `RowSqnInfo`...    the upsert sink's sequenced multiset
===================================  ==========================================================

Source: `org.apache.flink.table.runtime` (`typeutils`, `operators.window`, `operators.sink`,
`sequencedmultisetstate.linked`) and `org.apache.flink.table.dataview`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from state_core.errors import EncodeError
from state_core.java_stream import JavaArray, JavaObject, JavaValue, read_java_stream
from state_core.kernels.skip import REPEAT, WHEN
from state_core.serializers.base import TypeSerializer, TypeSerializerSnapshot
from state_core.serializers.collections import MapSerializer
from state_core.serializers.columns import Cursor, Target, fixed_values
from state_core.serializers.compatibility import (
    Compatibility,
    as_is,
    incompatible,
    migrate,
    unknown,
)
from state_core.serializers.logical_type_streams import logical_type_of, summary
from state_core.serializers.namespaces import SingletonSerializer, TimeWindowSerializer
from state_core.serializers.numbers import SNAPSHOTS, LongSerializer
from state_core.serializers.registry import (
    read_serializer_snapshot,
    register,
    write_serializer_snapshot,
)
from state_core.serializers.snapshots import (
    CompositeTypeSerializerSnapshot,
    read_nested,
    simple_snapshot,
    write_nested,
)
from state_core.serializers.structs import TupleSerializer
from state_core.serializers.text import OpaqueSerializer
from state_core.serializers.wrappers import flip_sign
from state_core.wire import DataInput, DataOutput

__all__ = [
    "ExternalSerializerSnapshot", "LinkedListSerializer", "LinkedListSerializerSnapshot",
    "NamedFieldsSerializer", "NullAwareMapSerializer", "RowDataKeySerializerSnapshot",
    "SortedLongSerializer", "SortedMapSerializerSnapshot",
]  # fmt: skip

RUNTIME = "org.apache.flink.table.runtime."
TYPEUTILS = f"{RUNTIME}typeutils."
WINDOW = f"{RUNTIME}operators.window."
LINKED = f"{RUNTIME}sequencedmultisetstate.linked."
DATAVIEW = "org.apache.flink.table.dataview."
COMPARATOR = f"{RUNTIME}operators.rank.ComparableRecordComparator"
LONG = SNAPSHOTS[LongSerializer]


class LinkedListSerializer(TypeSerializer):
    """`LinkedList`: an i32 count, a bit mask of nulls where there is one, the elements.

    It stands within RAW values only, whose column is binary, so it has no fast path.
    """

    least = 4

    def __init__(self, element: TypeSerializer, *, with_mask: bool = True) -> None:
        self.element = element
        self.with_mask = with_mask
        self.arrow_type = pa.list_(element.arrow_type)

    @property
    def name(self) -> str:
        """`LinkedList<...>`."""
        return f"LinkedList<{self.element.name}>"

    def read(self, source: DataInput) -> list[Any]:
        """One list."""
        if not self.with_mask:
            count = source.read_count("list elements", self.element.least)
            return [self.element.read(source) for _ in range(count)]
        count = source.read_int()
        if count < 0 or (count + 7) // 8 > source.remaining:
            raise source.fault(f"{count} list elements declared, {source.remaining} bytes left")
        mask = source.read_bytes((count + 7) // 8)
        null = [mask[index >> 3] >> (7 - (index & 7)) & 1 for index in range(count)]
        return [None if one else self.element.read(source) for one in null]

    def write(self, value: Any, out: DataOutput) -> None:
        """One list."""
        if not isinstance(value, list) or not (self.with_mask or None not in value):
            raise EncodeError(f"{value!r} is no {self.name}")
        out.write_int(len(value))
        if self.with_mask:
            mask = bytearray((len(value) + 7) // 8)
            for index, one in enumerate(value):
                mask[index >> 3] |= (one is None) << (7 - (index & 7))
            out.write_bytes(bytes(mask))
        for one in value:
            if one is not None:
                self.element.write(one, out)

    def skip_program(self) -> tuple[int, ...] | None:
        """A count of elements, if there is no mask."""
        body = None if self.with_mask else self.element.skip_program()
        return None if body is None else (REPEAT, len(body), *body)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Value by value; what does not come out the same is inexact."""
        return decode_by_value(self, cursor)


class NullAwareMapSerializer(TypeSerializer):
    """`MapView` of Flink's heap: an i32 count, then key and value, each behind a null flag.

    A map of Arrow has no null keys, so it is a list of pairs. It stands within RAW values only.
    """

    least = 4

    def __init__(self, key: TypeSerializer, value: TypeSerializer) -> None:
        self.key = key
        self.value = value
        pair = [pa.field("key", key.arrow_type), pa.field("value", value.arrow_type)]
        self.arrow_type = pa.list_(pa.struct(pair))

    @property
    def name(self) -> str:
        """`NullAwareMap<..., ...>`."""
        return f"NullAwareMap<{self.key.name}, {self.value.name}>"

    def read(self, source: DataInput) -> list[dict[str, Any]]:
        """One map."""
        count = source.read_count("map entries", 2)
        return [
            {
                name: None if source.read_boolean() else one.read(source)
                for name, one in (("key", self.key), ("value", self.value))
            }
            for _ in range(count)
        ]

    def write(self, value: Any, out: DataOutput) -> None:
        """One map."""
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise EncodeError(f"{value!r} is no {self.name}")
        out.write_int(len(value))
        for pair in value:
            for name, serializer in (("key", self.key), ("value", self.value)):
                held = pair.get(name)
                out.write_boolean(held is None)
                if held is not None:
                    serializer.write(held, out)

    def skip_program(self) -> tuple[int, ...] | None:
        """A count of entries."""
        programs = [self.key.skip_program(), self.value.skip_program()]
        body: list[int] = []
        for one in programs:
            if one is None:
                return None
            body += [WHEN, 0, len(one), *one]
        return (REPEAT, len(body), *body)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Value by value; what does not come out the same is inexact."""
        return decode_by_value(self, cursor)


def decode_by_value(serializer: TypeSerializer, cursor: Cursor) -> pa.Array:
    """Read row by row, and mark those inexact that would be written in another way."""
    starts = cursor.position.copy()
    column = TypeSerializer.decode(serializer, cursor)
    for row, value in enumerate(column.to_pylist()):
        if cursor.present.size and not cursor.present[row]:
            continue
        out = DataOutput()
        try:
            serializer.write(value, out)
        except EncodeError:
            out = DataOutput()
        found = cursor.data[int(starts[row]) : int(cursor.position[row])]
        if out.to_bytes() != found.tobytes():
            cursor.inexact[row] = 1
    return column


class SortedMapSerializer(MapSerializer):
    """`SortedMap`: as a map, its entries in the comparator's order."""

    @property
    def name(self) -> str:
        """`SortedMap<..., ...>`."""
        return f"SortedMap<{self.key.name}, {self.value.name}>"


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


@register
class LinkedListSerializerSnapshot(CompositeTypeSerializerSnapshot):
    """`LinkedListSerializer$LinkedListSerializerSnapshot`: whether there is a mask of nulls."""

    java_class = f"{TYPEUTILS}LinkedListSerializer$LinkedListSerializerSnapshot"
    outer_version = 3
    outer_versions = range(1, 4)
    arity = 1

    def __init__(self) -> None:
        super().__init__()
        self.with_mask = True

    @classmethod
    def of(cls, element: TypeSerializerSnapshot) -> LinkedListSerializerSnapshot:
        """The snapshot of lists of these elements."""
        made = cls()
        made.nested = (element,)
        return made

    def read_outer_snapshot(self, version: int, source: DataInput) -> None:
        """A boolean since version 3; version 2 always had a mask, version 1 never."""
        self.with_mask = source.read_boolean() if version == 3 else version == 2

    def write_outer_snapshot(self, out: DataOutput) -> None:
        """Whether there is a mask."""
        out.write_boolean(self.with_mask)

    def resolve_outer_schema_compatibility(
        self, old: LinkedListSerializerSnapshot
    ) -> Compatibility:
        """With and without a mask lists are written differently."""
        if self.with_mask == old.with_mask:
            return as_is()
        forms = {False: "LinkedList without null mask", True: "LinkedList with null mask"}
        return migrate(forms[old.with_mask], forms[self.with_mask], "the null mask changes")

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """A list of it."""
        if not nested[0].self_delimiting:
            return OpaqueSerializer(self.java_class)
        return LinkedListSerializer(nested[0], with_mask=self.with_mask)


@register
class SortedMapSerializerSnapshot(TypeSerializerSnapshot):
    """`SortedMapSerializerSnapshot`: the comparator as a Java stream, key's and value's nested.

    The comparator of Top-N is code that the planner made; it is carried, and compared by what it
    says of itself, as `ComparableRecordComparator.equals` does.
    """

    java_class = f"{TYPEUTILS}SortedMapSerializerSnapshot"
    current_version = 3
    versions = range(1, 4)

    def __init__(self) -> None:
        self.comparator = b""
        self.comparator_class = ""
        self.order: object = None
        self.nested: tuple[TypeSerializerSnapshot, ...] = ()

    @classmethod
    def of(
        cls, comparator: bytes, key: TypeSerializerSnapshot, value: TypeSerializerSnapshot
    ) -> SortedMapSerializerSnapshot:
        """The snapshot of maps in the order of a comparator, given as its Java stream."""
        made = cls()
        made._take(DataInput(comparator, "a comparator"))
        made.nested = (key, value)
        return made

    def _take(self, source: DataInput) -> None:
        start = source.position
        found = read_java_stream(source)
        self.comparator = bytes(source.data[start : source.position])
        if not isinstance(found, JavaObject):
            raise source.fault("no comparator where one should be")
        self.comparator_class = found.java_class.name
        if self.comparator_class == COMPARATOR:
            types = found.values.get("compareKeyTypes")
            self.order = (
                _items(found.values.get("compareKeyPositions")),
                tuple(logical_type_of(one, source) for one in _items(types)),
                _items(found.values.get("compareOrders")),
                _items(found.values.get("nullsIsLast")),
            )
        else:
            self.order = summary(found)

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """The comparator's stream, then the nested snapshots."""
        self.check_version(version, source)
        self._take(source)
        self.nested = read_nested(source)
        if len(self.nested) != 2:
            raise source.fault(f"a map of {len(self.nested)} serializers")

    def write_snapshot(self, out: DataOutput) -> None:
        """The stream as it was."""
        out.write_bytes(self.comparator)
        write_nested(self.nested, out)

    def restore_serializer(self) -> TypeSerializer:
        """A map."""
        key, value = (one.restore_serializer() for one in self.nested)
        if not key.self_delimiting or not value.self_delimiting:
            return OpaqueSerializer(self.java_class)
        return SortedMapSerializer(key, value)

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """What the comparators say; like Flink's, it does not look at key and value."""
        if not isinstance(old, SortedMapSerializerSnapshot):
            return incompatible(old.type_name, self.type_name, "the type is another one")
        names = (old.comparator_class, self.comparator_class)
        if names[0] != names[1]:
            return incompatible(*names, "the comparator is another one")
        if self.comparator_class != COMPARATOR:
            return unknown(*names, f"only {names[1]} says whether it equals what it was")
        if self.order == old.order:
            return as_is()
        return incompatible(*names, "the comparator sorts by other fields, types or directions")


def _items(value: JavaValue) -> tuple[JavaValue, ...]:
    return tuple(value.items) if isinstance(value, JavaArray) else ()


class _TransparentSnapshot(CompositeTypeSerializerSnapshot):
    """The snapshot of a wrapper whose bytes are those of what it wraps."""

    arity = 1

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """What is wrapped."""
        return nested[0]


@register
class MapViewSerializerSnapshot(_TransparentSnapshot):
    """`MapViewSerializerSnapshot`: the map's snapshot nested."""

    java_class = f"{DATAVIEW}MapViewSerializerSnapshot"


@register
class ListViewSerializerSnapshot(_TransparentSnapshot):
    """`ListViewSerializerSnapshot`: the list's snapshot nested."""

    java_class = f"{DATAVIEW}ListViewSerializerSnapshot"


@register
class ExternalSerializerSnapshot(_TransparentSnapshot):
    """`ExternalSerializer$ExternalSerializerSnapshot`: a `DataType` as a Java stream, carried.

    State holds the internal form; the data type only says what Java code sees of it.
    """

    java_class = f"{TYPEUTILS}ExternalSerializer$ExternalSerializerSnapshot"

    def __init__(self) -> None:
        super().__init__()
        self.data_type = b""
        self.internal_input = False

    @classmethod
    def of(
        cls, data_type: bytes, inner: TypeSerializerSnapshot, *, internal_input: bool = False
    ) -> ExternalSerializerSnapshot:
        """The snapshot of a `DataType`, given as its Java stream, over an internal serializer."""
        made = cls()
        made.data_type, made.nested, made.internal_input = data_type, (inner,), internal_input
        return made

    def read_outer_snapshot(self, version: int, source: DataInput) -> None:
        """The stream, and whether values come in the internal form."""
        start = source.position
        read_java_stream(source)
        self.data_type = bytes(source.data[start : source.position])
        self.internal_input = source.read_boolean()

    def write_outer_snapshot(self, out: DataOutput) -> None:
        """The stream as it was."""
        out.write_bytes(self.data_type)
        out.write_boolean(self.internal_input)


@register
class NullAwareMapSerializerSnapshot(CompositeTypeSerializerSnapshot):
    """`NullAwareMapSerializerSnapshot`: the snapshots of key and value nested."""

    java_class = f"{DATAVIEW}NullAwareMapSerializerSnapshot"
    arity = 2

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """A map of them."""
        if not all(one.self_delimiting for one in nested):
            return OpaqueSerializer(self.java_class)
        return NullAwareMapSerializer(*nested)


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
        self.equaliser = source.read_bytes(source.read_count("bytes of a frame"))
        self.hash_function = source.read_bytes(source.read_count("bytes of a frame"))
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
