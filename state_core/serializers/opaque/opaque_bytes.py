"""Serializers whose bytes only their own Java classes understand.

Their snapshots are walked (they are framed, or of a known form), carried as a whole, and written
back unchanged; their values are `binary`, unless a user has registered a decoder for the class.

Source: `GenericTypeSerializerSnapshot`.
"""

from __future__ import annotations

from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import Compatibility, incompatible
from statelake.state_core.serializers.framework.opaque_values import opaque_serializer
from statelake.state_core.serializers.framework.registry import register

RUNTIME = "org.apache.flink.api.java.typeutils.runtime."


class CarriedSnapshot(TypeSerializerSnapshot):
    """A snapshot kept as bytes, of which only the type's class is read."""

    def __init__(self) -> None:
        self.type_class = ""
        self.payload = b""

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Walk the payload, and keep it as bytes."""
        self.check_version(version, source)
        start = source.position
        self.type_class = source.read_utf()
        self.walk(source)
        self.payload = bytes(source.data[start : source.position])

    def walk(self, source: DataInput) -> None:
        """Skip the bytes behind the class name; none by default."""

    def write_snapshot(self, out: DataOutput) -> None:
        """Write the payload as it was read."""
        out.write_bytes(self.payload)

    def restore_serializer(self) -> TypeSerializer:
        """Return the decoder of the type's class, or otherwise a serializer of bytes."""
        return opaque_serializer(self.type_class)

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """Return incompatible for another class; for the same one only its Java code could tell."""
        if not isinstance(old, CarriedSnapshot) or type(old) is not type(self):
            return incompatible(old.type_name, self.type_name, "the serializer is another one")
        if old.type_class != self.type_class:
            return incompatible(old.type_name, self.type_name, "the class is another one")
        return super().resolve_schema_compatibility(old)


@register
class GenericSerializerSnapshot(CarriedSnapshot):
    """`ValueSerializer$ValueSerializerSnapshot`: a class that writes itself."""

    java_class = f"{RUNTIME}ValueSerializer$ValueSerializerSnapshot"
    versions = range(2, 3)


@register
class CopyableValueSerializerSnapshot(GenericSerializerSnapshot):
    """`CopyableValueSerializer$CopyableValueSerializerSnapshot`: a class that copies itself."""

    java_class = f"{RUNTIME}CopyableValueSerializer$CopyableValueSerializerSnapshot"
