"""Lists with nulls, maps with null keys, and sorted maps of Flink SQL's operators.

Source: `LinkedListSerializer`, `SortedMapSerializer` and `SortedMapSerializerSnapshot` in
`org.apache.flink.table.runtime.typeutils`; `NullAwareMapSerializer` in
`org.apache.flink.table.dataview`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.java_stream import (
    JavaArray,
    JavaEnum,
    JavaObject,
    JavaValue,
    read_java_stream,
)
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.composite.collections import ListSerializer, MapSerializer
from statelake.state_core.serializers.composite.optionals import NullableSerializer
from statelake.state_core.serializers.composite.structs import TupleSerializer
from statelake.state_core.serializers.framework.base import (
    TypeSerializer,
    TypeSerializerSnapshot,
    named,
)
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    as_is,
    incompatible,
    unknown,
)
from statelake.state_core.serializers.framework.layouts import ByteLayout, repeat
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from statelake.state_core.serializers.framework.registry import register
from statelake.state_core.serializers.framework.snapshots import (
    FlaggedSnapshot,
    composite_snapshot,
    read_nested,
    write_nested,
)
from statelake.state_core.serializers.sql.types.logical_type_streams import logical_type_of, summary

RUNTIME = "org.apache.flink.table.runtime."
TYPEUTILS = f"{RUNTIME}typeutils."
DATAVIEW = "org.apache.flink.table.dataview."
COMPARATOR = f"{RUNTIME}operators.rank.ComparableRecordComparator"


class LinkedListSerializer(TypeSerializer):
    """`LinkedList`: an i32 count, a bit mask of nulls in some versions, the elements.

    It occurs only within RAW values, whose column is binary, so it has no fast path.
    """

    min_length = 4
    name = named("LinkedList<{element}>")

    def __init__(self, element: TypeSerializer, *, with_mask: bool = True) -> None:
        self.element = element
        self.with_mask = with_mask
        self.arrow_type = pa.list_(element.arrow_type)

    def read(self, source: DataInput) -> list[Any]:
        """Read one list."""
        if not self.with_mask:
            count = source.read_count("list elements", self.element.min_length)
            return [self.element.read(source) for _ in range(count)]
        count = source.read_int()
        if count < 0 or (count + 7) // 8 > source.remaining:
            raise source.fault(f"{count} list elements declared, {source.remaining} bytes left")
        mask = source.read_bytes((count + 7) // 8)
        null = [mask[index >> 3] >> (7 - (index & 7)) & 1 for index in range(count)]
        return [None if is_null else self.element.read(source) for is_null in null]

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one list."""
        if not isinstance(value, list) or not (self.with_mask or None not in value):
            raise EncodeError(f"{value!r} is no {self.name}")
        out.write_int(len(value))
        if self.with_mask:
            mask = bytearray((len(value) + 7) // 8)
            for index, element in enumerate(value):
                mask[index >> 3] |= (element is None) << (7 - (index & 7))
            out.write_bytes(bytes(mask))
        for element in value:
            if element is not None:
                self.element.write(element, out)

    @property
    def byte_layout(self) -> ByteLayout | None:
        """A count of elements; None with a mask, which no program walks."""
        return None if self.with_mask else repeat(self.element)


class NullAwareMapSerializer(ListSerializer):
    """`MapView` of Flink's heap: an i32 count, then key and value, each behind a null flag.

    A map of Arrow has no null keys, so it is a list of pairs. It occurs only within RAW values.
    """

    name = named("NullAwareMap<{key}, {value}>")
    hash_code = TypeSerializer.hash_code  # unknown: it is a map's

    def __init__(self, key: TypeSerializer, value: TypeSerializer) -> None:
        pair = [NullableSerializer(key), NullableSerializer(value)]
        super().__init__(TupleSerializer(pair, ("key", "value")))
        self.key = key
        self.value = value


class SortedMapSerializer(MapSerializer):
    """`SortedMap`: a map with entries in the order of its comparator."""

    name = named("SortedMap<{key}, {value}>")


@register
class LinkedListSerializerSnapshot(FlaggedSnapshot):
    """`LinkedListSerializer$LinkedListSerializerSnapshot`: whether there is a mask of nulls."""

    java_class = f"{TYPEUTILS}LinkedListSerializer$LinkedListSerializerSnapshot"
    outer_versions = range(1, 4)
    arity = 1
    always = 2
    forms = ("LinkedList without null mask", "LinkedList with null mask")
    change = "the null mask changes"

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the serializer of a list of these elements."""
        return LinkedListSerializer(*nested, with_mask=self.flag)


@register
class SortedMapSerializerSnapshot(TypeSerializerSnapshot):
    """`SortedMapSerializerSnapshot`: the comparator as a Java stream, and key and value.

    The comparator of Top-N is code that the planner generated; it stays a stream, and is compared
    by its fields, as `ComparableRecordComparator.equals` does.
    """

    java_class = f"{TYPEUTILS}SortedMapSerializerSnapshot"
    versions = range(1, 4)

    def __init__(self) -> None:
        self.comparator = b""
        self.comparator_class = ""
        self.order: object = None
        self.constant: str | None = None
        self.nested: tuple[TypeSerializerSnapshot, ...] = ()

    @classmethod
    def of(
        cls, comparator: bytes, key: TypeSerializerSnapshot, value: TypeSerializerSnapshot
    ) -> SortedMapSerializerSnapshot:
        """Return the snapshot of maps in the order of a comparator, given as its Java stream."""
        snapshot = cls()
        snapshot._take(DataInput(comparator, "a comparator"))
        snapshot.nested = (key, value)
        return snapshot

    def _take(self, source: DataInput) -> None:
        start = source.position
        comparator = read_java_stream(source)
        self.comparator = bytes(source.data[start : source.position])
        if isinstance(comparator, JavaEnum):  # such as Java's natural order, which Iceberg takes
            self.comparator_class = comparator.java_class.name
            self.constant = self.order = comparator.constant
            return
        if not isinstance(comparator, JavaObject):
            raise source.fault("no comparator where one should be")
        self.comparator_class = comparator.java_class.name
        if self.comparator_class == COMPARATOR:
            types = comparator.values.get("compareKeyTypes")
            self.order = (
                _items(comparator.values.get("compareKeyPositions")),
                tuple(logical_type_of(item, source) for item in _items(types)),
                _items(comparator.values.get("compareOrders")),
                _items(comparator.values.get("nullsIsLast")),
            )
        else:
            self.order = summary(comparator)

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Read the comparator's stream, then the nested snapshots."""
        self.check_version(version, source)
        self._take(source)
        self.nested = read_nested(source)
        if len(self.nested) != 2:
            raise source.fault(f"a map of {len(self.nested)} serializers")

    def write_snapshot(self, out: DataOutput) -> None:
        """Write the stream as it was read."""
        out.write_bytes(self.comparator)
        write_nested(self.nested, out)

    def restore_serializer(self) -> TypeSerializer:
        """Return the serializer of a sorted map."""
        key, value = (serializer.restore_serializer() for serializer in self.nested)
        if not key.self_delimiting or not value.self_delimiting:
            return OpaqueSerializer(self.java_class)
        return SortedMapSerializer(key, value)

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """Return the verdict on the comparators; like Flink, it does not look at key and value."""
        if not isinstance(old, SortedMapSerializerSnapshot):
            return incompatible(old.type_name, self.type_name, "the type is another one")
        names = (old.comparator_class, self.comparator_class)
        if names[0] != names[1]:
            return incompatible(*names, "the comparator is another one")
        if self.comparator_class != COMPARATOR and self.constant is None:
            return unknown(*names, f"only {names[1]} says whether it equals what it was")
        if self.order == old.order:
            return as_is()
        return incompatible(*names, "the comparator sorts by other fields, types or directions")


def _items(value: JavaValue) -> tuple[JavaValue, ...]:
    return tuple(value.items) if isinstance(value, JavaArray) else ()


composite_snapshot(f"{DATAVIEW}NullAwareMapSerializerSnapshot", NullAwareMapSerializer, arity=2)
