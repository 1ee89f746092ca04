"""What flink-scala-api's snapshots have in common: parts, their versions, and no comparison.

Before 1.2.7 some did not write the versions of those within (version 1); both forms are read, and
each is written as it was read, since the library of a job reads only those of its time.

Source: the snapshot classes in `org.apache.flinkx.api.serializer` of flink-scala-api 1.1 to 2.2.
"""

from __future__ import annotations

from copy import copy
from typing import Any, ClassVar

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    Verdict,
    incompatible,
    unknown,
    worst_of,
)
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from statelake.state_core.serializers.framework.registry import (
    read_serializer_snapshot,
    read_unversioned_snapshot,
    write_serializer_snapshot,
)
from statelake.state_core.serializers.framework.snapshots import CompositeTypeSerializerSnapshot

FLINKX = "org.apache.flinkx.api.serializer."
CASE_CLASS = f"{FLINKX}ScalaCaseClassSerializerSnapshot"
WITH_VERSIONS = 2  # of snapshots whose parts have versions
UNCOMPARED = "flink-scala-api would take it, and read the old bytes as the new type"
DEFAULTS = "flink-scala-api takes it if the class has defaults for the fields that were added"


class KeptVersionSnapshot(CompositeTypeSerializerSnapshot):
    """A snapshot that is written in the version in which it was read.

    Attributes:
        without_versions: The version in which the parts have no versions; 0 if they always have.
    """

    without_versions: ClassVar[int] = 0

    @property
    def written_version(self) -> int:
        """The version that was read."""
        return self.version or self.current_version

    @property
    def unversioned(self) -> int:
        """The version in which the parts have no versions either."""
        return self.without_versions or self.current_version


class PartsSnapshot(KeptVersionSnapshot):
    """A few texts, then the snapshots of the parts, without more.

    Attributes:
        texts: The number of texts.
        parts: The number of parts.
        words: The texts.
    """

    versions = range(1, 2)
    texts: ClassVar[int] = 0
    parts: ClassVar[int] = 0
    nested_names: ClassVar[tuple[str, ...]] = ("value",)

    def __init__(self) -> None:
        super().__init__()
        self.words: tuple[str, ...] = ()

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Read the texts and the parts."""
        self.check_version(version, source)
        self.words = tuple(source.read_utf() for _ in range(self.texts))
        self.nested = tuple(read_part(self, source) for _ in range(self.parts))

    def write_snapshot(self, out: DataOutput) -> None:
        """Write the texts and the parts."""
        for word in self.words:
            out.write_utf(word)
        for part in self.nested:
            write_part(self, part, out)

    @property
    def opaque_name(self) -> str:
        """The class that names values which are carried as bytes."""
        return self.words[0] if self.words else self.java_class

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the serializer around these, whose values may be bytes."""
        return self.around_parts(*nested) or OpaqueSerializer(self.opaque_name)

    def around_parts(self, *nested: TypeSerializer) -> TypeSerializer | None:
        """Return the serializer around these; None if its values can only be bytes."""
        return nested[0] if nested else None

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """Return as is if all parts are: the library compares none, and migrates none."""
        if not isinstance(old, PartsSnapshot) or not self.follows(old):
            return incompatible(old.type_name, self.type_name, UNCOMPARED)
        if len(self.nested) != len(old.nested):
            return incompatible(old.type_name, self.type_name, UNCOMPARED)
        pairs = enumerate(zip(self.nested, old.nested, strict=True))
        return worst_of(
            _reads(new, before).under(self.nested_name(at)) for at, (new, before) in pairs
        )

    def follows(self, old: PartsSnapshot) -> bool:
        """Return whether values of the other may be of this form."""
        return type(old) is type(self)


def _reads(new: TypeSerializerSnapshot, old: TypeSerializerSnapshot) -> Compatibility:
    """Return whether the new serializer reads the old bytes, as the library does not ask.

    A value of a case class has the number of its fields: those that were added get the defaults
    that the class declares, which a snapshot does not contain.
    """
    composite = isinstance(new, CompositeTypeSerializerSnapshot) and type(new) is type(old)
    if composite and not isinstance(new, PartsSnapshot) and new.java_class.startswith(FLINKX):
        return reads_parts(new, old)
    return _only_as_is(new.resolve_schema_compatibility(old), new, old)


def reads_parts(new: Any, old: Any) -> Compatibility:
    """Return whether the new serializer reads the old bytes, given two composite snapshots."""
    outer = new.resolve_outer_schema_compatibility(old)
    if len(old.nested) > len(new.nested):
        outer = incompatible(old.type_name, new.type_name, UNCOMPARED)
    elif len(old.nested) < len(new.nested) and new.java_class == CASE_CLASS:
        outer = worst_of((outer, unknown(old.type_name, new.type_name, DEFAULTS)))
    pairs = enumerate(zip(new.nested, old.nested, strict=False))
    parts = (_reads(after, before).under(new.nested_name(at)) for at, (after, before) in pairs)
    return worst_of((_only_as_is(outer, new, old), *parts))


def _only_as_is(
    compatibility: Compatibility, new: TypeSerializerSnapshot, old: TypeSerializerSnapshot
) -> Compatibility:
    if compatibility.verdict in (Verdict.COMPATIBLE_AS_IS, Verdict.UNKNOWN):
        return compatibility
    refused = incompatible(old.type_name, new.type_name, UNCOMPARED)
    return worst_of((refused, Compatibility(Verdict.INCOMPATIBLE, compatibility.reasons)))


def read_part(snapshot: TypeSerializerSnapshot, source: DataInput) -> TypeSerializerSnapshot:
    """Read the snapshot of a part, which may have no version."""
    if _is_without_versions(snapshot):
        return read_unversioned_snapshot(source)
    return read_serializer_snapshot(source)


def write_part(
    snapshot: TypeSerializerSnapshot,
    part: TypeSerializerSnapshot,
    out: DataOutput,
) -> None:
    """Write the snapshot of a part, with its version or without."""
    if _is_without_versions(snapshot):
        out.write_utf(part.java_class)
        part.write_snapshot(out)
    else:
        write_serializer_snapshot(part, out)


def is_older(snapshot: TypeSerializerSnapshot) -> bool:
    """Return whether a part has the form of before 1.2.7, which 2.2.3 no longer reads."""
    parts = getattr(snapshot, "nested", ())
    return _is_without_versions(snapshot) or any(map(is_older, parts))


def renewed(snapshot: TypeSerializerSnapshot) -> TypeSerializerSnapshot:
    """Return the snapshot in the form of since 1.2.7; values stay as they are.

    Raises:
        EncodeError: A mapper maps to a type that is not known.
    """
    if not isinstance(snapshot, CompositeTypeSerializerSnapshot) or not is_older(snapshot):
        return snapshot
    new = copy(snapshot)
    new.nested = tuple(map(renewed, snapshot.nested))
    if _is_without_versions(snapshot):
        new.version = WITH_VERSIONS
        if isinstance(snapshot, PartsSnapshot) and len(new.nested) < snapshot.parts:
            raise EncodeError(f"{snapshot.words[0]} maps to what is not known")
    return new


def _is_without_versions(snapshot: TypeSerializerSnapshot) -> bool:
    older = getattr(snapshot, "without_versions", 0)
    return 0 < snapshot.version == older
