"""Snapshots of flink-scala-api's serializers.

Source: the snapshot classes in `org.apache.flinkx.api.serializer` of flink-scala-api 1.1 to 2.2.
"""

from __future__ import annotations

from typing import ClassVar

from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    as_is,
    incompatible,
)
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from statelake.state_core.serializers.framework.registry import register, registered_class
from statelake.state_core.serializers.framework.snapshots import (
    CompositeTypeSerializerSnapshot,
    SimpleTypeSerializerSnapshot,
    composite_snapshot,
)
from statelake.state_core.serializers.scala.flinkx import (
    CollectionSerializer,
    CountedClassSerializer,
    EmptyClassSerializer,
    EntriesSerializer,
    MappedSerializer,
    MarkedSerializer,
    ScalaEitherSerializer,
)
from statelake.state_core.serializers.scala.flinkx_parts import (
    CASE_CLASS,
    FLINKX,
    UNCOMPARED,
    KeptVersionSnapshot,
    PartsSnapshot,
    read_part,
    reads_parts,
    write_part,
)
from statelake.state_core.serializers.scala.flinkx_simple import UuidSerializer
from statelake.state_core.serializers.scala.sealed import (
    MOST,
    CaseObjectSerializer,
    SealedSerializer,
    labels_of,
)
from statelake.state_core.serializers.scala.serializers import CaseClassSerializer, OptionSerializer

NULL_BYTE = -128
COLLECTIONS = {
    "List": "List", "ListCC": "::", "Vector": "Vector", "Seq": "Seq", "Set": "Set",
    "Array": "Array", "SortedSet": "SortedSet", "MutableArrayDeque": "mutable.ArrayDeque",
    "MutableBuffer": "mutable.Buffer", "MutableQueue": "mutable.Queue",
    "MutableSet": "mutable.Set", "MutableSortedSet": "mutable.SortedSet",
}  # fmt: skip
MARKED = ("Sorted", "Mutable")  # collections that may be null
MAPPERS = {"BigDecMapper": "scala.BigDecimal", "BigIntMapper": "scala.BigInt"}
RENUMBERED = "values have the number of their type, which would be that of another"


def _is_marked(kind: str) -> bool:
    return kind.startswith(MARKED)


@register
class CollectionSerializerSnapshot(PartsSnapshot):
    """`CollectionSerializerSnapshot`: the classes of serializer and element, and the element."""

    java_class = f"{FLINKX}CollectionSerializerSnapshot"
    versions = range(1, 3)
    texts, parts = 2, 1
    nested_names: ClassVar[tuple[str, ...]] = ("element",)
    without_versions = 1

    def around_parts(self, *nested: TypeSerializer) -> TypeSerializer | None:
        """Return the serializer of the collection; none of a user's, or of empty elements."""
        element, *ordering = nested
        kind = self.words[0].removeprefix(FLINKX).removesuffix("Serializer")
        empty = all(serializer.wire_length == 0 for serializer in ordering)
        if kind not in COLLECTIONS or not element.min_length or not empty:
            return None
        collection = CollectionSerializer(COLLECTIONS[kind], element)
        return MarkedSerializer(collection) if _is_marked(kind) else collection

    def follows(self, old: PartsSnapshot) -> bool:
        """Return whether it is a collection, too."""
        return isinstance(old, CollectionSerializerSnapshot)


@register
class SortedCollectionSerializerSnapshot(CollectionSerializerSnapshot):
    """`SortedCollectionSerializerSnapshot`: the same, and the ordering."""

    java_class = f"{FLINKX}SortedCollectionSerializerSnapshot"
    versions = range(2, 3)
    parts = 2
    nested_names = ("element", "ordering")
    without_versions = 0


class EntriesSnapshot(PartsSnapshot):
    """Key, value, and in sorted maps the ordering."""

    kind: ClassVar[str]
    parts = 2
    nested_names = ("key", "value", "ordering")

    def around_parts(self, *nested: TypeSerializer) -> TypeSerializer | None:
        """Return the serializer of the map; none with empty keys."""
        key, value, *ordering = nested
        if not key.min_length or any(serializer.wire_length != 0 for serializer in ordering):
            return None
        entries = EntriesSerializer(self.kind, key, value)
        return entries if self.kind == "Map" else MarkedSerializer(entries)


@register
class FlinkxMapSerializerSnapshot(EntriesSnapshot):
    """`MapSerializer$MapSerializerSnapshot`."""

    java_class = f"{FLINKX}MapSerializer$MapSerializerSnapshot"
    versions = range(1, 3)
    without_versions = 1
    kind = "Map"


@register
class MutableMapSerializerSnapshot(EntriesSnapshot):
    """`MutableMapSerializerSnapshot`."""

    java_class = f"{FLINKX}MutableMapSerializerSnapshot"
    kind = "mutable.Map"


@register
class FlinkxSortedMapSerializerSnapshot(EntriesSnapshot):
    """`FlinkxSortedMapSerializerSnapshot`."""

    java_class = f"{FLINKX}SortedMapSerializerSnapshot"
    parts = 3
    kind = "SortedMap"


@register
class MutableSortedMapSerializerSnapshot(FlinkxSortedMapSerializerSnapshot):
    """`MutableSortedMapSerializerSnapshot`."""

    java_class = f"{FLINKX}MutableSortedMapSerializerSnapshot"
    kind = "mutable.SortedMap"


@register
class MappedSerializerSnapshot(PartsSnapshot):
    """`MappedSerializer$MappedSerializerSnapshot`: the mapper's class, and the type it maps to.

    Version 1 has the class of that type's serializer, which takes no arguments.
    """

    java_class = f"{FLINKX}MappedSerializer$MappedSerializerSnapshot"
    versions = range(1, 3)
    texts, parts = 1, 1
    without_versions = 1

    def __init__(self) -> None:
        super().__init__()
        self.serializer_class = ""

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Read the mapper's class, and the type or the class of its serializer."""
        if version != self.without_versions:
            super().read_snapshot(version, source)
            return
        self.check_version(version, source)
        self.words = (source.read_utf(),)
        self.serializer_class = source.read_utf()
        simple = self.serializer_class.rpartition(".")[2]
        for suffix in (f"${simple}Snapshot", "Snapshot"):
            registered = registered_class(f"{self.serializer_class}{suffix}")
            if registered is not None and issubclass(registered, SimpleTypeSerializerSnapshot):
                self.nested = (registered(),)

    def write_snapshot(self, out: DataOutput) -> None:
        """Write the same."""
        if self.version != self.without_versions:
            super().write_snapshot(out)
            return
        out.write_utf(self.words[0])
        out.write_utf(self.serializer_class)

    def around_parts(self, *nested: TypeSerializer) -> TypeSerializer | None:
        """Return the serializer of the other type, under a name of its own."""
        if not nested:
            return None
        mapper = self.words[0]
        if mapper == f"{FLINKX.removesuffix('serializer.')}mapper.UuidMapper":
            return UuidSerializer() if nested[0].name == "byte[]" else None
        known = MAPPERS.get(mapper.removeprefix(f"{FLINKX.removesuffix('serializer.')}mapper."))
        return MappedSerializer(nested[0], known or f"Mapped<{nested[0].name}, {mapper}>")


@register
class ScalaCaseObjectSerializerSnapshot(PartsSnapshot):
    """`ScalaCaseObjectSerializer$ScalaCaseObjectSerializerSnapshot`: the object's class."""

    java_class = f"{FLINKX}ScalaCaseObjectSerializer$ScalaCaseObjectSerializerSnapshot"
    texts = 1

    def around_parts(self, *nested: TypeSerializer) -> TypeSerializer:
        """Return the serializer of the object."""
        return CaseObjectSerializer(self.words[-1].removesuffix("$"))


@register
class Scala3EnumValueSerializerSnapshot(ScalaCaseObjectSerializerSnapshot):
    """`Scala3EnumValueSerializerSnapshot`: the enum's class, and the constant."""

    java_class = f"{FLINKX}Scala3EnumValueSerializerSnapshot"
    texts = 2


@register
class ReverseOrderingSerializerSnapshot(PartsSnapshot):
    """`ReverseOrderingSerializerSnapshot`, around another ordering, whose bytes it has."""

    java_class = f"{FLINKX}ReverseOrderingSerializerSnapshot"
    parts = 1
    nested_names = ("ordering",)


@register
class OptionOrderingSerializerSnapshot(ReverseOrderingSerializerSnapshot):
    """`OptionOrderingSerializerSnapshot`, around another ordering, whose bytes it has."""

    java_class = f"{FLINKX}OptionOrderingSerializerSnapshot"


# ------------------------------------------------------------------------------- case classes


@register
class CaseClassSerializerSnapshot(CompositeTypeSerializerSnapshot):
    """`ScalaCaseClassSerializerSnapshot`: the class, whether it is immutable, and the fields.

    Attributes:
        counted: Whether values begin with the number of their fields.
    """

    java_class = CASE_CLASS
    outer_versions = range(2, 4)
    unnamed = "f{}"
    counted: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.case_class = ""
        self.immutable = False

    @property
    def written_outer_version(self) -> int:
        """The version that was read."""
        return self.outer_version_read

    @property
    def opaque_name(self) -> str:
        """The case class."""
        return self.case_class

    def read_outer_snapshot(self, version: int, source: DataInput) -> None:
        """Read the class, and whether it is immutable."""
        self.case_class = source.read_utf()
        self.immutable = version == self.outer_version and source.read_boolean()

    def write_outer_snapshot(self, out: DataOutput) -> None:
        """Write the same."""
        out.write_utf(self.case_class)
        if self.outer_version_read == self.outer_version:
            out.write_boolean(self.immutable)

    def resolve_outer_schema_compatibility(self, old: CaseClassSerializerSnapshot) -> Compatibility:
        """Return as is for the same class, else incompatible."""
        if self.case_class == old.case_class:
            return as_is()
        rule = "the case class is another one"
        return incompatible(old.case_class, self.case_class, rule)

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the serializer of a case class."""
        current = self.outer_version_read == self.outer_version
        if not nested:
            if current:
                return EmptyClassSerializer(self.case_class)
            return CaseObjectSerializer(self.case_class)
        if not self.counted:
            return CaseClassSerializer(self.case_class, list(nested))
        return CountedClassSerializer(self.case_class, list(nested), current=current)


composite_snapshot(
    f"{FLINKX}ScalaOptionSerializerSnapshot",
    OptionSerializer,
    arity=1,
    nested_names=("value",),
    opaque_name="scala.Option",
    outer_versions=range(2, 3),
)
composite_snapshot(
    f"{FLINKX}ScalaEitherSerializerSnapshot",
    ScalaEitherSerializer,
    arity=2,
    nested_names=("left", "right"),
    opaque_name="scala.util.Either",
)


# ------------------------------------------------------------------------------ sealed traits


class _SealedSnapshot(CompositeTypeSerializerSnapshot):
    """The names of the types as a `String[]`, then the types."""

    unnamed = "[{}]"

    def __init__(self) -> None:
        super().__init__()
        self.names: tuple[str, ...] = ()

    def read_outer_snapshot(self, version: int, source: DataInput) -> None:
        """Read the names."""
        count = source.read_members("types of a sealed trait", 1)
        names = [source.read_string() for _ in range(count)]
        if None in names:
            raise source.fault("a type of a sealed trait without a name")
        self.names = tuple(name for name in names if name is not None)

    def write_outer_snapshot(self, out: DataOutput) -> None:
        """Write the names."""
        out.write_int(len(self.names))
        for name in self.names:
            out.write_string(name)

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Read names and types, which must be equally many."""
        super().read_snapshot(version, source)
        if len(self.names) != len(self.nested):
            raise source.fault(f"{len(self.names)} names of {len(self.nested)} types")

    def resolve_outer_schema_compatibility(self, old: _SealedSnapshot) -> Compatibility:
        """Return incompatible if an old type has another number, which the library takes."""
        if self.names[: len(old.names)] == old.names:
            return as_is()
        return incompatible(", ".join(old.names), ", ".join(self.names), RENUMBERED)

    def nested_name(self, index: int) -> str:
        """Return the name of a type in a reason's path."""
        return labels_of(self.names)[index]

    @property
    def opaque_name(self) -> str:
        """The names of the types."""
        return f"SealedTrait<{', '.join(self.names)}>"

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the serializer of a value of one of the types; one of bytes if they are many."""
        if not 0 < len(set(self.names)) == len(nested) <= MOST:
            return OpaqueSerializer(self.opaque_name)
        parts = list(zip(labels_of(self.names), nested, strict=True))
        name = f"SealedTrait<{', '.join(part.name for part in nested)}>"
        return SealedSerializer(name, parts, self._null, fixed=self._null is not None)

    @property
    def _null(self) -> int | None:
        return NULL_BYTE


@register
class Scala3EnumSerializerSnapshot(_SealedSnapshot):
    """`Scala3EnumSerializerSnapshot`: the constants' names, and their types."""

    java_class = f"{FLINKX}Scala3EnumSerializerSnapshot"


@register
class CoproductSerializerSnapshot(KeptVersionSnapshot, _SealedSnapshot):
    """`CoproductSerializer$CoproductSerializerSnapshot`: the types' classes, and these.

    Since version 3 (2.2.4) a value may be null.
    """

    java_class = f"{FLINKX}CoproductSerializer$CoproductSerializerSnapshot"
    outer_versions = range(3, 4)
    without_versions = 1

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Read classes and types."""
        if version == self.current_version:
            super().read_snapshot(version, source)
            return
        self.check_version(version, source)
        count = source.read_members("types of a sealed trait", 2)
        self.names = tuple(source.read_utf() for _ in range(count))
        source.declare(count)
        self.nested = tuple(read_part(self, source) for _ in self.names)

    def write_snapshot(self, out: DataOutput) -> None:
        """Write classes and types."""
        if self.written_version == self.current_version:
            super().write_snapshot(out)
            return
        out.write_int(len(self.names))
        for name in self.names:
            out.write_utf(name)
        for part in self.nested:
            write_part(self, part, out)

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """Return the worst verdict on the types; versions before 3 compare none of them."""
        if self.written_version == self.current_version:
            return super().resolve_schema_compatibility(old)
        if not isinstance(old, CoproductSerializerSnapshot):
            return incompatible(old.type_name, self.type_name, UNCOMPARED)
        return reads_parts(self, old)

    @property
    def _null(self) -> int | None:
        return NULL_BYTE if self.written_version == self.current_version else None
