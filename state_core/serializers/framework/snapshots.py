"""The two families of snapshots that nearly every serializer uses.

*Simple*: the class is the whole schema, the payload is empty. *Composite*: a magic number, a
version and payload of the outer serializer, then the snapshots of the nested serializers.

Source: `SimpleTypeSerializerSnapshot`, `CompositeTypeSerializerSnapshot` and
`NestedSerializersSnapshotDelegate` in `org.apache.flink.api.common.typeutils`.
"""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from dataclasses import replace
from typing import ClassVar

from typing_extensions import Self

from state_core.errors import CorruptSnapshotError
from state_core.files.wire import DataInput, DataOutput
from state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from state_core.serializers.framework.compatibility import (
    Compatibility,
    Verdict,
    as_is,
    incompatible,
    worst_of,
)
from state_core.serializers.framework.registry import (
    read_serializer_snapshot,
    register,
    write_serializer_snapshot,
)

__all__ = [
    "CompositeTypeSerializerSnapshot",
    "SimpleTypeSerializerSnapshot",
    "WithoutMagicSnapshot",
    "read_nested",
    "simple_snapshot",
    "write_nested",
]

COMPOSITE_MAGIC = 911108
NESTED_MAGIC = 1333245
NESTED_VERSION = 1
FIRST_COMPOSITE_WITH_MAGIC = 3
LEAST_SNAPSHOT_BYTES = 6


class SimpleTypeSerializerSnapshot(TypeSerializerSnapshot):
    """A snapshot whose class says everything.

    Version 3 has no payload; version 2 held the serializer's class name.
    """

    current_version = 3
    versions = range(2, 4)
    serializer_class: ClassVar[type[TypeSerializer]]

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Nothing to read, or a class name in version 2."""
        self.check_version(version, source)
        if version == 2:
            source.read_utf()

    def write_snapshot(self, out: DataOutput) -> None:
        """Nothing to write."""

    def restore_serializer(self) -> TypeSerializer:
        """The one serializer that this class stands for."""
        return self.serializer_class()

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """As is for the same serializer; incompatible with any other."""
        if (
            isinstance(old, SimpleTypeSerializerSnapshot)
            and old.serializer_class is self.serializer_class
        ):
            return as_is()
        return incompatible(old.type_name, self.type_name, "the type is another one")


def simple_snapshot(
    java_class: str, serializer_class: type[TypeSerializer]
) -> type[SimpleTypeSerializerSnapshot]:
    """Make and register the simple snapshot class of a serializer."""
    name = java_class.rpartition("$")[2].rpartition(".")[2]
    namespace = {
        "java_class": java_class,
        "serializer_class": serializer_class,
        "__doc__": f"`{java_class}`.",
        "__module__": serializer_class.__module__,
        "__qualname__": name,
    }
    return register(type(name, (SimpleTypeSerializerSnapshot,), namespace))


class CompositeTypeSerializerSnapshot(TypeSerializerSnapshot):
    """A snapshot with nested snapshots.

    Attributes:
        outer_version: The version of the outer payload that is written.
        arity: How many nested snapshots there must be; None for any number.
        nested_names: What each nested serializer is called in a reason's path.
        same_bytes: Other snapshot classes, by Java name, whose serializers write the same bytes.
        nested: The nested snapshots.
        outer_version_read: The version of the outer payload that was read.
    """

    current_version = 3
    versions = range(1, 4)
    outer_version: ClassVar[int] = 1
    outer_versions: ClassVar[range] = range(1, 2)
    arity: ClassVar[int | None] = None
    nested_names: ClassVar[tuple[str, ...]] = ()
    same_bytes: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self.nested: tuple[TypeSerializerSnapshot, ...] = ()
        self.outer_version_read = self.outer_version

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Magic, outer version, outer payload, nested snapshots.

        Versions 1 and 2 (before Flink 1.9) had neither magic nor outer version: their outer
        payload is of the version of the whole.
        """
        self.check_version(version, source)
        outer_version = version
        if version >= FIRST_COMPOSITE_WITH_MAGIC:
            if source.read_int() != COMPOSITE_MAGIC:
                raise source.fault(f"{self.java_class} without its magic number")
            outer_version = source.read_int()
        if outer_version not in self.outer_versions:
            raise source.fault(f"{self.java_class} with outer version {outer_version}")
        self.outer_version_read = outer_version
        self.read_outer_snapshot(outer_version, source)
        self.nested = read_nested(source)
        if self.arity is not None and len(self.nested) != self.arity:
            raise source.fault(f"{self.java_class} with {len(self.nested)} nested serializers")

    def write_snapshot(self, out: DataOutput) -> None:
        """The current form of `read_snapshot`."""
        out.write_int(COMPOSITE_MAGIC)
        out.write_int(self.outer_version)
        self.write_outer_snapshot(out)
        write_nested(self.nested, out)

    def read_outer_snapshot(self, version: int, source: DataInput) -> None:
        """Read what the outer serializer says of itself; nothing by default."""

    def write_outer_snapshot(self, out: DataOutput) -> None:
        """Write what the outer serializer says of itself; nothing by default."""

    def restore_serializer(self) -> TypeSerializer:
        """The outer serializer around the restored nested ones."""
        return self.compose(tuple(one.restore_serializer() for one in self.nested))

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """The worst of what the outer serializers and each pair of nested ones say."""
        followed = type(old) is type(self) or old.java_class in self.same_bytes
        if not followed or not isinstance(old, CompositeTypeSerializerSnapshot):
            return incompatible(old.type_name, self.type_name, "the type is another one")
        outer = self.resolve_outer_schema_compatibility(old)
        if len(self.nested) != len(old.nested):
            rule = "the number of nested serializers differs"
            return worst_of((outer, incompatible(old.type_name, self.type_name, rule)))
        results = [
            new.resolve_schema_compatibility(before).under(self.nested_name(index))
            for index, (new, before) in enumerate(zip(self.nested, old.nested, strict=True))
        ]
        worst = worst_of((outer, *results))
        if worst.verdict is not Verdict.COMPATIBLE_WITH_RECONFIGURED_SERIALIZER:
            return worst
        whole = copy(outer.reconfigured if outer.reconfigured is not None else self)
        whole.nested = tuple(
            new if result.reconfigured is None else result.reconfigured
            for new, result in zip(self.nested, results, strict=True)
        )
        return replace(worst, reconfigured=whole)

    def resolve_outer_schema_compatibility(self, old: Self) -> Compatibility:
        """What the outer payloads say; as is by default, where there is none."""
        return as_is()

    def nested_name(self, index: int) -> str:
        """The name of a nested serializer in a reason's path."""
        return self.nested_names[index] if index < len(self.nested_names) else f"[{index}]"

    @abstractmethod
    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """The outer serializer around these."""


class WithoutMagicSnapshot(CompositeTypeSerializerSnapshot):
    """A composite snapshot of Flink 1.7: the outer payload and the nested ones, and no magic."""

    current_version = 2
    versions = range(2, 3)
    outer_version = 2
    outer_versions = range(2, 3)

    def write_snapshot(self, out: DataOutput) -> None:
        """As `read_snapshot` reads version 2."""
        self.write_outer_snapshot(out)
        write_nested(self.nested, out)


def read_nested(source: DataInput) -> tuple[TypeSerializerSnapshot, ...]:
    """The block of nested snapshots (`NestedSerializersSnapshotDelegate`)."""
    if source.read_int() != NESTED_MAGIC:
        raise source.fault("nested serializers without their magic number")
    if source.read_int() != NESTED_VERSION:
        raise CorruptSnapshotError("nested serializers of an unknown version", place=source.place)
    count = source.read_members("nested serializers", LEAST_SNAPSHOT_BYTES)
    return tuple(read_serializer_snapshot(source) for _ in range(count))


def write_nested(nested: tuple[TypeSerializerSnapshot, ...], out: DataOutput) -> None:
    """The reverse of `read_nested`."""
    out.write_int(NESTED_MAGIC)
    out.write_int(NESTED_VERSION)
    out.write_int(len(nested))
    for snapshot in nested:
        write_serializer_snapshot(snapshot, out)
