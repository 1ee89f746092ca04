"""Snapshots of `RowData`, `ArrayData` and `MapData`, whose values are in `section_data`.

They contain logical types as Java object streams, without names for the outermost row:
its columns are `f0`, `f1`, ... unless a compiled plan names them. A stream that was read is written
back as it was.

Source: `RowDataSerializer`, `BinaryRowDataSerializer`, `ArrayDataSerializer` and
`MapDataSerializer` in `org.apache.flink.table.runtime.typeutils`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import ClassVar

from typing_extensions import Self

from statelake.state_core.errors import EncodeError, IncompatibleError
from statelake.state_core.files.java_stream import read_java_stream, write_java_stream
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    Reason,
    Verdict,
    as_is,
    incompatible,
    reconfigured,
    worst_of,
)
from statelake.state_core.serializers.framework.registry import register, registered_class
from statelake.state_core.serializers.framework.snapshots import (
    CompositeTypeSerializerSnapshot,
    read_nested,
    write_nested,
)
from statelake.state_core.serializers.sql.binary.formats import row_format, section_format
from statelake.state_core.serializers.sql.section_data import (
    BinarySerializer,
    RowDataSerializer,
    SectionSerializer,
)
from statelake.state_core.serializers.sql.table_data import (
    DecimalDataSerializerSnapshot,
    NumbersSnapshot,
)
from statelake.state_core.serializers.sql.table_timestamps import TimestampDataSerializerSnapshot
from statelake.state_core.serializers.sql.types.logical_type_streams import (
    WrittenType,
    read_logical_type,
)
from statelake.state_core.serializers.sql.types.logical_types import (
    ArrayType,
    DecimalType,
    DistinctType,
    LogicalType,
    MapType,
    MultisetType,
    RowType,
    SimpleType,
    StructuredType,
    TimestampType,
    type_differences,
)
from statelake.state_core.serializers.sql.types.serializer_streams import (
    SINGLETONS,
    java_serializer_of,
)

TYPEUTILS = "org.apache.flink.table.runtime.typeutils."
MAX_FIELDS = 1 << 16
MIN_STREAM_BYTES = 6
TYPE_STAYS = "a logical type in Flink SQL's state never changes"


def _compare(
    types: Iterable[tuple[str, LogicalType, LogicalType]],
) -> Compatibility:
    """Return as is if all logical types are equal; they can't be migrated."""
    all_differences = [
        difference
        for path, before, after in types
        for difference in type_differences(before, after, path)
    ]
    if not all_differences:
        return as_is()
    sure = [difference for difference in all_differences if difference.certain]
    rule = TYPE_STAYS if sure else "only the class in Java says whether it equals what it was"
    reasons = tuple(
        Reason(difference.path, difference.old, difference.new, rule)
        for difference in sure or all_differences
    )
    return Compatibility(Verdict.INCOMPATIBLE if sure else Verdict.UNKNOWN, reasons)


@register
class RowDataSerializerSnapshot(TypeSerializerSnapshot):
    """`RowDataSerializer$RowDataSerializerSnapshot`: types and snapshots of the fields.

    The names of the fields are not written: they are in a plan, or in no place.
    """

    java_class = f"{TYPEUTILS}RowDataSerializer$RowDataSerializerSnapshot"
    versions = range(1, 4)

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.types: tuple[WrittenType, ...] = ()
        self.nested: tuple[TypeSerializerSnapshot, ...] = ()

    @classmethod
    def of(cls, *types: LogicalType) -> RowDataSerializerSnapshot:
        """Return the snapshot of rows with fields of these types.

        Raises:
            EncodeError: One of the types can't be written here.
        """
        snapshot = cls()
        snapshot.types = tuple(WrittenType.of(type_) for type_ in types)
        snapshot.nested = tuple(internal_snapshot(type_) for type_ in types)
        return snapshot

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Read a count, a Java stream for each type, and the nested snapshots."""
        self.check_version(version, source)
        count = source.read_members("field types", MIN_STREAM_BYTES)
        self.types = tuple(read_logical_type(source) for _ in range(count))
        self.nested = read_nested(source)
        if len(self.nested) != count:
            raise source.fault(f"{len(self.nested)} serializers of {count} fields")

    def write_snapshot(self, out: DataOutput) -> None:
        """Write the streams as they were read."""
        out.write_int(len(self.types))
        for type_ in self.types:
            out.write_bytes(type_.stream)
        write_nested(self.nested, out)

    @property
    def type_name(self) -> str:
        """`RowData<BIGINT NOT NULL, DECIMAL(10, 2)>`, or `RowData<a INT>` with names."""
        names = [f"{name} " for name in self.names] or [""] * len(self.types)
        fields = [f"{name}{type_.type}" for name, type_ in zip(names, self.types, strict=True)]
        return f"RowData<{', '.join(fields)}>"

    @property
    def _java_type(self) -> str:
        """The type without names, by which it is the same for all who read it."""
        return f"RowData<{', '.join(str(type_.type) for type_ in self.types)}>"

    def restore_serializer(self) -> TypeSerializer:
        """Return the serializer of these types; one of bytes if a type is not known."""
        section = row_format([type_.type for type_ in self.types], self.names)
        name = self._java_type
        return BinarySerializer(name) if section is None else RowDataSerializer(section, name)

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """Return the worst verdict on the nested serializers, if all types are equal."""
        if not isinstance(old, RowDataSerializerSnapshot):
            return incompatible(old.type_name, self.type_name, "the type is another one")
        if len(self.types) != len(old.types):
            rule = "the number of fields in Flink SQL's state never changes"
            return incompatible(old.type_name, self.type_name, rule)
        pairs = enumerate(zip(old.types, self.types, strict=True))
        result = _compare(((f"f{i}", a.type, b.type) for i, (a, b) in pairs))
        if result.verdict is Verdict.INCOMPATIBLE:
            return result
        nested = [
            new.resolve_schema_compatibility(before).under(f"f{index}")
            for index, (new, before) in enumerate(zip(self.nested, old.nested, strict=True))
        ]
        worst = worst_of((result, *nested))
        if worst.verdict is Verdict.COMPATIBLE_WITH_RECONFIGURED_SERIALIZER:
            rule = "; ".join(reason.rule for reason in worst.reasons)
            return reconfigured(self, old.type_name, self.type_name, rule)
        return worst


def row_in(snapshot: TypeSerializerSnapshot) -> RowDataSerializerSnapshot:
    """Return the row that a value is, or holds in a list or as the first part of a tuple.

    Raises:
        IncompatibleError: It holds no row.
    """
    if isinstance(snapshot, RowDataSerializerSnapshot):
        return snapshot
    if isinstance(snapshot, CompositeTypeSerializerSnapshot) and snapshot.nested:
        return row_in(snapshot.nested[0])
    raise IncompatibleError(f"{snapshot.type_name}, and not a row of Flink SQL")


def with_row(
    snapshot: TypeSerializerSnapshot, row: RowDataSerializerSnapshot
) -> TypeSerializerSnapshot:
    """Return the same value with another row in it."""
    if isinstance(snapshot, RowDataSerializerSnapshot):
        return row
    assert isinstance(snapshot, CompositeTypeSerializerSnapshot)  # noqa: S101 - by row_in
    changed = copy(snapshot)
    changed.nested = (with_row(snapshot.nested[0], row), *snapshot.nested[1:])
    return changed


def with_names(snapshot: TypeSerializerSnapshot, names: Sequence[str]) -> TypeSerializerSnapshot:
    """Return the same value, in whose row the fields have names.

    Args:
        snapshot: The value.
        names: As many names as fields.

    Raises:
        IncompatibleError: It holds no row, or one of another number of fields.
    """
    row = row_in(snapshot)
    if len(names) != len(row.types):
        raise IncompatibleError(
            f"{len(names)} names ({', '.join(names)}) of the {len(row.types)} fields of"
            f" {row.type_name}",
            remedy="give the plan of the job that took the savepoint",
        )
    named = copy(row)
    named.names = tuple(names)
    return with_row(snapshot, named)


@register
class BinaryRowDataSerializerSnapshot(NumbersSnapshot):
    """`BinaryRowDataSerializer$BinaryRowDataSerializerSnapshot`: the number of fields.

    Its values are carried as bytes: a slot's content is not known without types.
    """

    java_class = f"{TYPEUTILS}BinaryRowDataSerializer$BinaryRowDataSerializerSnapshot"
    versions = range(1, 4)
    label = "a row of {} fields"
    rule = "the number of fields never changes"
    numbers = (0,)

    @staticmethod
    def serializer_of(fields: int) -> TypeSerializer:
        """Return a serializer of bytes."""
        return BinarySerializer(f"BinaryRowData({fields})")

    def is_valid(self, *numbers: int) -> bool:
        """Return whether a row may have so many fields."""
        return 0 <= numbers[0] <= MAX_FIELDS


class _CollectionSnapshot(TypeSerializerSnapshot):
    """A snapshot of logical types and then of their serializers, all as Java streams.

    Attributes:
        label: The name of the serializer's type.
        collection: The class of the logical type.
        parts: The names of the types in it.
    """

    versions = range(1, 4)
    label: ClassVar[str]
    collection: ClassVar[Callable[..., LogicalType]]
    parts: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        self.types: tuple[WrittenType, ...] = ()
        self.serializers: tuple[bytes, ...] = ()

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Read the streams."""
        self.check_version(version, source)
        self.types = tuple(read_logical_type(source) for _ in self.parts)
        streams = []
        for _ in self.parts:
            start = source.position
            read_java_stream(source)
            streams.append(bytes(source.data[start : source.position]))
        self.serializers = tuple(streams)

    def write_snapshot(self, out: DataOutput) -> None:
        """Write the streams as they were read."""
        for stream in (*(type_.stream for type_ in self.types), *self.serializers):
            out.write_bytes(stream)

    @classmethod
    def of(cls, *types: LogicalType) -> Self:
        """Return the snapshot of collections of these types, with the streams of Flink 2.3.0.

        Raises:
            EncodeError: A type can't be written here.
        """
        snapshot = cls()
        snapshot.types = tuple(WrittenType.of(type_) for type_ in types)
        streams = (write_java_stream(java_serializer_of(type_)) for type_ in types)
        snapshot.serializers = tuple(streams)
        return snapshot

    @property
    def type_name(self) -> str:
        """`ArrayData<INT>`, `MapData<INT, BIGINT>`."""
        return f"{self.label}<{', '.join(str(type_.type) for type_ in self.types)}>"

    def restore_serializer(self) -> TypeSerializer:
        """Return the serializer of these types; one of bytes if a type is not known."""
        section = section_format(type(self).collection(*(type_.type for type_ in self.types)))
        name = self.type_name
        return BinarySerializer(name) if section is None else SectionSerializer(section, name)

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """Return as is for equal types, whose serializers are equal too."""
        if type(old) is not type(self) or not isinstance(old, _CollectionSnapshot):
            return incompatible(old.type_name, self.type_name, "the type is another one")
        pairs = zip(self.parts, old.types, self.types, strict=True)
        return _compare(((name, a.type, b.type) for name, a, b in pairs))


@register
class ArrayDataSerializerSnapshot(_CollectionSnapshot):
    """`ArrayDataSerializer$ArrayDataSerializerSnapshot`: the element's type and serializer."""

    java_class = f"{TYPEUTILS}ArrayDataSerializer$ArrayDataSerializerSnapshot"
    label, collection = "ArrayData", ArrayType
    parts = ("[]",)


@register
class MapDataSerializerSnapshot(_CollectionSnapshot):
    """`MapDataSerializer$MapDataSerializerSnapshot`: types and serializers of key and value."""

    java_class = f"{TYPEUTILS}MapDataSerializer$MapDataSerializerSnapshot"
    label, collection = "MapData", MapType
    parts = ("key", "value")


# --------------------------------------------------------------------------- by logical type


def internal_snapshot(type_: LogicalType) -> TypeSerializerSnapshot:
    """Return the snapshot of Flink SQL's serializer of a type (`InternalSerializers`).

    Raises:
        EncodeError: The type has none, or it depends on a user's class.
    """
    if isinstance(type_, DistinctType):
        return internal_snapshot(type_.source)
    if isinstance(type_, DecimalType):
        return DecimalDataSerializerSnapshot.of(type_.precision, type_.scale)
    if isinstance(type_, TimestampType) and type_.name != "TIMESTAMP_WITH_TIME_ZONE":
        return TimestampDataSerializerSnapshot.of(type_.precision)
    if isinstance(type_, ArrayType):
        return ArrayDataSerializerSnapshot.of(type_.element)
    if isinstance(type_, MapType):
        return MapDataSerializerSnapshot.of(type_.key, type_.value)
    if isinstance(type_, MultisetType):
        count = SimpleType("INTEGER", nullable=False)
        return MapDataSerializerSnapshot.of(type_.element, count)
    if isinstance(type_, RowType | StructuredType):
        return RowDataSerializerSnapshot.of(*type_.children)
    name = "" if type_.root not in SINGLETONS else SINGLETONS[type_.root].name
    snapshot_class = registered_class(f"{name}${name.rpartition('.')[2]}Snapshot")
    if snapshot_class is None:
        raise EncodeError(
            f"{type_} has no serializer that can be made here",
            remedy="take it from a snapshot that has it",
        )
    return snapshot_class()
