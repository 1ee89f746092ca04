"""The two families of snapshots that nearly every serializer uses.

*Simple*: the class is the whole schema, the payload is empty. *Composite*: a magic number, a
version and payload of the outer serializer, then the snapshots of the nested serializers.

Source: `SimpleTypeSerializerSnapshot`, `CompositeTypeSerializerSnapshot` and
`NestedSerializersSnapshotDelegate` in `org.apache.flink.api.common.typeutils`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar

from typing_extensions import Self

from statelake.state_core.errors import CorruptSnapshotError, EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    Verdict,
    as_is,
    incompatible,
    migrate,
    worst_of,
)
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from statelake.state_core.serializers.framework.registry import (
    read_serializer_snapshot,
    register,
    write_serializer_snapshot,
)

COMPOSITE_MAGIC = 911108
NESTED_MAGIC = 1333245
NESTED_VERSION = 1
FIRST_COMPOSITE_WITH_MAGIC = 3
MIN_SNAPSHOT_BYTES = 6
OUTER = ("read_outer_snapshot", "write_outer_snapshot", "resolve_outer_schema_compatibility")
"""The methods of a composite snapshot's outer payload: one without the others loses data."""


class SimpleTypeSerializerSnapshot(TypeSerializerSnapshot):
    """A snapshot whose class is the whole schema.

    Version 3 has no payload; version 2 had the serializer's class name.
    """

    versions = range(2, 4)
    serializer_class: ClassVar[type[TypeSerializer]]

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Read nothing, or a class name in version 2."""
        self.check_version(version, source)
        if version == 2:
            source.read_utf()

    def write_snapshot(self, out: DataOutput) -> None:
        """Write nothing."""

    def restore_serializer(self) -> TypeSerializer:
        """Return the serializer of this class."""
        return self.serializer_class()

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """Return as is for the same serializer, else incompatible."""
        if (
            isinstance(old, SimpleTypeSerializerSnapshot)
            and old.serializer_class is self.serializer_class
        ):
            return as_is()
        return incompatible(old.type_name, self.type_name, "the type is another one")


def simple_snapshot(
    java_class: str, serializer_class: type[TypeSerializer]
) -> type[SimpleTypeSerializerSnapshot]:
    """Create and register the simple snapshot class of a serializer."""
    module = serializer_class.__module__
    attributes = {"java_class": java_class, "serializer_class": serializer_class}
    return _made(SimpleTypeSerializerSnapshot, module, attributes)


def _made(base: type[Any], module: str, attributes: dict[str, Any]) -> type[Any]:
    """Create and register a snapshot class that differs from its base only by data."""
    java_class = attributes["java_class"]
    name = java_class.rpartition("$")[2].rpartition(".")[2]
    named = {"__doc__": f"`{java_class}`.", "__module__": module, "__qualname__": name}
    return register(type(name, (base,), named | attributes))


class CompositeTypeSerializerSnapshot(TypeSerializerSnapshot):
    """A snapshot with nested snapshots.

    Attributes:
        outer_version: The version of the outer payload to write; by default the last of those that
            are read.
        outer_versions: The versions of the outer payload that are read.
        arity: The number of nested snapshots; None for any number.
        nested_names: The names of the nested serializers in a reason's path.
        unnamed: The pattern for the names of other ones, by index.
        delimited: The nested serializers that must be self-delimiting: all, except those that are
            the last part of an entry. If one is not, values are carried as bytes.
        outer: The attributes of the outer payload, in order: texts, numbers and flags.
        same_bytes: Other snapshot classes, by Java name, whose serializers write the same bytes.
        nested: The nested snapshots.
        outer_version_read: The version of the outer payload that was read.
    """

    versions = range(1, 4)
    outer_version: ClassVar[int] = 1
    outer_versions: ClassVar[range] = range(1, 2)
    arity: ClassVar[int | None] = None
    nested_names: ClassVar[tuple[str, ...]] = ()
    unnamed: ClassVar[str] = "[{}]"
    delimited: ClassVar[slice] = slice(None)
    outer: ClassVar[tuple[str, ...]] = ()
    same_bytes: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "outer_versions" in vars(cls) and "outer_version" not in vars(cls):
            cls.outer_version = cls.outer_versions[-1]

    @classmethod
    def lacking(cls) -> str:
        """Return the methods of the outer payload that a class lacks which has others of them."""
        base = CompositeTypeSerializerSnapshot
        lacks = [name for name in OUTER if getattr(cls, name) is getattr(base, name)]
        if cls.resolve_schema_compatibility is not base.resolve_schema_compatibility:
            lacks = [name for name in lacks if name != OUTER[-1]]  # it compares all by itself
        if not lacks or set(OUTER[:-1]) <= set(lacks):
            return ""
        return f"has an outer payload, and lacks {' and '.join(lacks)}"

    def __init__(self) -> None:
        self.nested: tuple[TypeSerializerSnapshot, ...] = ()
        self.outer_version_read = self.outer_version

    @classmethod
    def around(cls, *nested: TypeSerializerSnapshot) -> Self:
        """Return the snapshot that a new job's serializer would write.

        Args:
            nested: The snapshots of the nested serializers.

        Raises:
            EncodeError: Their number is wrong.
        """
        if cls.arity is not None and len(nested) != cls.arity:
            raise EncodeError(f"{cls.__name__} takes {cls.arity} nested types, not {len(nested)}")
        snapshot = cls()
        snapshot.nested = nested
        return snapshot

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Read magic number, outer version, outer payload and nested snapshots.

        Versions 1 and 2 (before Flink 1.9) had neither magic number nor outer version: the outer
        payload has the version of the whole.
        """
        self.check_version(version, source)
        outer_version = version
        if version >= FIRST_COMPOSITE_WITH_MAGIC:
            if source.read_int() != COMPOSITE_MAGIC:
                raise source.fault(f"{self.java_class} without its magic number")
            outer_version = source.read_int()
        if outer_version not in self.outer_versions:
            raise self.unread("outer version", outer_version, self.outer_versions, source)
        self.outer_version_read = outer_version
        self.read_outer_snapshot(outer_version, source)
        self.nested = read_nested(source)
        if self.arity is not None and len(self.nested) != self.arity:
            raise source.fault(f"{self.java_class} with {len(self.nested)} nested serializers")

    def write_snapshot(self, out: DataOutput) -> None:
        """Write the current form of the snapshot."""
        out.write_int(COMPOSITE_MAGIC)
        out.write_int(self.written_outer_version)
        self.write_outer_snapshot(out)
        write_nested(self.nested, out)

    @property
    def written_outer_version(self) -> int:
        """The version of the outer payload that is written; the class's by default."""
        return self.outer_version

    def read_outer_snapshot(self, version: int, source: DataInput) -> None:
        """Read the payload of the outer serializer: the attributes in `outer` by default."""
        reads: dict[type, Callable[[], Any]] = {
            str: source.read_utf, int: source.read_int, bool: source.read_boolean,
        }  # fmt: skip
        for name in self.outer:
            setattr(self, name, reads[type(getattr(self, name))]())

    def write_outer_snapshot(self, out: DataOutput) -> None:
        """Write the payload of the outer serializer: the attributes in `outer` by default."""
        writes: dict[type, Callable[[Any], None]] = {
            str: out.write_utf, int: out.write_int, bool: out.write_boolean,
        }  # fmt: skip
        for name in self.outer:
            value = getattr(self, name)
            writes[type(value)](value)

    def restore_serializer(self) -> TypeSerializer:
        """Return the outer serializer around the nested ones.

        If the end of a nested value is not known but must be, values are carried as bytes.
        """
        nested = tuple(serializer.restore_nested() for serializer in self.nested)
        if all(serializer.self_delimiting for serializer in nested[self.delimited]):
            return self.compose(nested)
        return OpaqueSerializer(self.opaque_name)

    @property
    def opaque_name(self) -> str:
        """The class that names values which are carried as bytes."""
        return self.java_class

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """Return the worst verdict on the outer serializers and each pair of nested ones."""
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
        reconfigured = copy(outer.reconfigured if outer.reconfigured is not None else self)
        reconfigured.nested = tuple(
            new if result.reconfigured is None else result.reconfigured
            for new, result in zip(self.nested, results, strict=True)
        )
        return replace(worst, reconfigured=reconfigured)

    def resolve_outer_schema_compatibility(self, old: Self) -> Compatibility:
        """Return the verdict on the outer payloads; as is by default."""
        return as_is()

    def nested_name(self, index: int) -> str:
        """Return the name of a nested serializer in a reason's path."""
        named = index < len(self.nested_names)
        return self.nested_names[index] if named else self.unnamed.format(index)

    @abstractmethod
    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the outer serializer around these nested ones."""


class _ComposedSnapshot(CompositeTypeSerializerSnapshot):
    """A composite snapshot that has only nested ones."""

    composer: Callable[..., TypeSerializer]

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the composer's result for the nested serializers."""
        return self.composer(*nested)


def composite_snapshot(
    java_class: str, composer: Callable[..., TypeSerializer], *, arity: int, **attributes: Any
) -> type[CompositeTypeSerializerSnapshot]:
    """Create and register the snapshot class of a serializer around others.

    Args:
        java_class: The binary name that Flink writes.
        composer: Takes the nested serializers; mostly the serializer's class.
        arity: The number of nested serializers.
        attributes: Other attributes of `CompositeTypeSerializerSnapshot`.
    """
    attributes |= {"java_class": java_class, "composer": staticmethod(composer), "arity": arity}
    return _made(_ComposedSnapshot, composer.__module__, attributes)


class FlaggedSnapshot(CompositeTypeSerializerSnapshot):
    """A composite snapshot whose outer payload is one flag, for a part that values may lack.

    The current outer version writes the flag. Of the older versions, values of `always` always have
    the part, and other ones never.

    Attributes:
        always: The outer version whose values always have the part; 0 without such a version.
        forms: The names of values without and with the part, for reasons.
        change: The change of a migration between both forms.
        flag: Whether values have the part.
    """

    always: ClassVar[int] = 0
    forms: ClassVar[tuple[str, str]]
    change: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.flag = True

    def read_outer_snapshot(self, version: int, source: DataInput) -> None:
        """Read the flag, or take it from the version."""
        current = version == self.outer_version
        self.flag = source.read_boolean() if current else version == self.always

    def write_outer_snapshot(self, out: DataOutput) -> None:
        """Write the flag."""
        out.write_boolean(self.flag)

    def resolve_outer_schema_compatibility(self, old: Self) -> Compatibility:
        """Return as is for the same flag; values are migrated to another."""
        if self.flag == old.flag:
            return as_is()
        return migrate(self.forms[old.flag], self.forms[self.flag], self.change)


class WithoutMagicSnapshot(CompositeTypeSerializerSnapshot):
    """A composite snapshot of Flink 1.7, without magic number and outer version."""

    versions = range(2, 3)
    outer_versions = range(2, 3)

    def write_snapshot(self, out: DataOutput) -> None:
        """Write what `read_snapshot` reads as version 2."""
        self.write_outer_snapshot(out)
        write_nested(self.nested, out)


def read_nested(source: DataInput) -> tuple[TypeSerializerSnapshot, ...]:
    """Read the block of nested snapshots (`NestedSerializersSnapshotDelegate`)."""
    if source.read_int() != NESTED_MAGIC:
        raise source.fault("nested serializers without their magic number")
    if source.read_int() != NESTED_VERSION:
        raise CorruptSnapshotError("nested serializers of an unknown version", place=source.place)
    count = source.read_members("nested serializers", MIN_SNAPSHOT_BYTES)
    return tuple(read_serializer_snapshot(source) for _ in range(count))


def write_nested(nested: tuple[TypeSerializerSnapshot, ...], out: DataOutput) -> None:
    """Write the block of nested snapshots: the reverse of `read_nested`."""
    out.write_int(NESTED_MAGIC)
    out.write_int(NESTED_VERSION)
    out.write_int(len(nested))
    for snapshot in nested:
        write_serializer_snapshot(snapshot, out)
