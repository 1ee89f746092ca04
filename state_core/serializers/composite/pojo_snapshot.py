"""The snapshot of a POJO's serializer: its class, its fields and its subclasses.

It has three maps of names, any part of which may be missing when the snapshot is written: a removed
Java field is still in the bytes, under the name `missing-field-at-N`.

`pojo_compatibility` decides whether a POJO may follow another.

Source: `PojoSerializerSnapshot`, `PojoSerializerSnapshotData` and `PojoFieldUtils` in
`org.apache.flink.api.java.typeutils.runtime`; `PojoTypeInfo` for the order of fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from typing_extensions import Self

from statelake.state_core.bounds import SUBCLASSES
from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.composite.pojo import MAX_TAGS, PojoSerializer
from statelake.state_core.serializers.composite.pojo_compatibility import (
    Pojo,
    reconfigure,
    resolve_pojo,
)
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    Verdict,
    incompatible,
)
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from statelake.state_core.serializers.framework.registry import register
from statelake.state_core.serializers.opaque.optional_map import (
    FramedSnapshot,
    OptionalEntry,
    read_optional_map,
    write_optional_map,
)

Snapshots: TypeAlias = Mapping[str, TypeSerializerSnapshot]


@register
class PojoSerializerSnapshot(TypeSerializerSnapshot):
    """`PojoSerializerSnapshot`.

    Attributes:
        pojo: Its content.
        boxed: Fields that are known not to be Java primitives; snapshots do not contain it.
    """

    java_class = "org.apache.flink.api.java.typeutils.runtime.PojoSerializerSnapshot"
    versions = range(2, 3)

    def __init__(self) -> None:
        self.pojo = Pojo("")
        self.boxed: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        java_class: str,
        fields: Snapshots,
        *,
        registered: Snapshots | None = None,
        non_registered: Snapshots | None = None,
        declared_in: Mapping[str, str] | None = None,
        boxed: Collection[str] = (),
    ) -> Self:
        """Return the snapshot that a new job's serializer would write.

        Args:
            java_class: The POJO's class, as from `Class.getName`.
            fields: The snapshot of each field, by name; Flink sorts them.
            registered: The snapshots of registered subclasses by class, in order of registration.
            non_registered: The snapshots of subclasses that are written by name.
            declared_in: The declaring class of a field, if it is not the POJO's own.
            boxed: Fields that are `Integer` rather than `int`, and so on: if new, such a field
                begins as null, otherwise as 0.

        Raises:
            EncodeError: There are no fields, or more subclasses than tags.
        """
        if not fields:
            raise EncodeError(f"{java_class} without fields, which Flink takes for no POJO")
        if len(registered or {}) > MAX_TAGS:
            raise EncodeError(f"{java_class} with more than {MAX_TAGS} registered subclasses")
        declared = declared_in or {}
        pojo_snapshot = cls()
        pojo_snapshot.boxed = frozenset(boxed)
        pojo_snapshot.pojo = Pojo(
            java_class,
            tuple(
                OptionalEntry(
                    name, _field_key(declared.get(name, java_class), name), FramedSnapshot(snapshot)
                )
                for name, snapshot in sorted(
                    fields.items(), key=lambda field: _java_order(field[0])
                )
            ),
            _subclasses(registered),
            _subclasses(non_registered),
        )
        return pojo_snapshot

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Read the class and three maps."""
        self.check_version(version, source)
        java_class = source.read_utf()
        fields = read_optional_map(source, "fields")
        registered = read_optional_map(source, "registered subclasses")
        if len(registered) > MAX_TAGS:
            raise source.fault(f"{len(registered)} registered subclasses of {java_class}")
        others = read_optional_map(source, "subclasses", SUBCLASSES)
        self.pojo = Pojo(java_class, fields, registered, others)

    def write_snapshot(self, out: DataOutput) -> None:
        """Write the class and three maps."""
        out.write_utf(self.pojo.java_class)
        for entries in (self.pojo.fields, self.pojo.registered, self.pojo.non_registered):
            write_optional_map(entries, out)

    @property
    def type_name(self) -> str:
        """The class of the POJO."""
        return self.pojo.java_class

    def restore_serializer(self) -> TypeSerializer:
        """Return a POJO of the restored fields; one of bytes if a field can't be restored."""
        java_class = self.pojo.java_class
        fields = [(field.name, _restore(field)) for field in self.pojo.fields]
        restored = [
            (name, serializer)
            for name, serializer in fields
            if serializer is not None and serializer.self_delimiting
        ]
        if len(restored) != len(fields) or not fields:
            return OpaqueSerializer(java_class)
        return PojoSerializer(
            java_class,
            restored,
            {subclass.name: _restore(subclass) for subclass in self.pojo.registered},
            {subclass.name: _restore(subclass) for subclass in self.pojo.non_registered},
            self.boxed,
        )

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """Return the verdict of `PojoSerializerSnapshot.resolveSchemaCompatibility`."""
        if not isinstance(old, PojoSerializerSnapshot):
            return incompatible(old.type_name, self.type_name, "the type is another one")
        result, fields, registered = resolve_pojo(self.pojo, old.pojo)
        if result.verdict is not Verdict.COMPATIBLE_WITH_RECONFIGURED_SERIALIZER:
            return result
        snapshot = type(self)()
        snapshot.boxed = self.boxed
        snapshot.pojo = reconfigure(self.pojo, old.pojo, fields, registered)
        return replace(result, reconfigured=snapshot)


def _restore(entry: OptionalEntry) -> TypeSerializer | None:
    return None if entry.value is None else entry.value.restore_serializer()


def _field_key(declared_in: str, name: str) -> bytes:
    out = DataOutput()
    out.write_utf(declared_in)
    out.write_utf(name)
    return out.to_bytes()


def _subclasses(given: Snapshots | None) -> tuple[OptionalEntry, ...]:
    snapshots: Iterable[tuple[str, TypeSerializerSnapshot]] = (given or {}).items()
    return tuple(OptionalEntry(name, b"", FramedSnapshot(snapshot)) for name, snapshot in snapshots)


def _java_order(name: str) -> bytes:
    """Return a sort key for the order of `String.compareTo`: by UTF-16 code unit."""
    return name.encode("utf-16-be", "surrogatepass")
