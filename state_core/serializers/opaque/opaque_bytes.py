"""Serializers whose bytes only their own Java classes understand.

Their snapshots are walked (they are framed, or of a known form), carried whole, and written back
as they were; their values are `binary`, unless a user has registered a decoder for the class.

Source: `KryoSerializerSnapshot`, `GenericTypeSerializerSnapshot`, `LinkedOptionalMapSerializer`.
"""

from __future__ import annotations

from state_core.files.wire import DataInput, DataOutput
from state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from state_core.serializers.framework.compatibility import Compatibility, incompatible
from state_core.serializers.framework.registry import register
from state_core.serializers.opaque.decoders import opaque_serializer

__all__ = [
    "CopyableValueSerializerSnapshot",
    "GenericSerializerSnapshot",
    "KryoSerializerSnapshot",
    "skip_optional_map",
]

RUNTIME = "org.apache.flink.api.java.typeutils.runtime."
OPTIONAL_MAP_HEADER = 0x4F2C69A3D70


def skip_optional_map(source: DataInput) -> None:
    """Walk a `LinkedOptionalMap`: every key and value in it is framed by its length."""
    if source.read_long() != OPTIONAL_MAP_HEADER:
        raise source.fault("a map of optional entries without its magic number")
    for _ in range(source.read_members("map entries", 4)):
        source.read_utf()
        for _ in range(2):
            if source.read_boolean():
                source.read_bytes(source.read_length("bytes of a frame"))


class _CarriedSnapshot(TypeSerializerSnapshot):
    """A snapshot kept as bytes, of which only the type's class is read."""

    def __init__(self) -> None:
        self.type_class = ""
        self.payload = b""

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Walk the payload and keep it."""
        self.check_version(version, source)
        start = source.position
        self.type_class = source.read_utf()
        self.walk(source)
        self.payload = bytes(source.data[start : source.position])

    def walk(self, source: DataInput) -> None:
        """Move behind what follows the class name; nothing by default."""

    def write_snapshot(self, out: DataOutput) -> None:
        """The payload as it was."""
        out.write_bytes(self.payload)

    def restore_serializer(self) -> TypeSerializer:
        """Bytes under the type's class name, or what a user's decoder makes of them."""
        return opaque_serializer(self.type_class)

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """Another class is refused; what became of the same one is in its code only."""
        if not isinstance(old, _CarriedSnapshot) or type(old) is not type(self):
            return incompatible(old.type_name, self.type_name, "the serializer is another one")
        if old.type_class != self.type_class:
            return incompatible(old.type_name, self.type_name, "the class is another one")
        return super().resolve_schema_compatibility(old)


@register
class KryoSerializerSnapshot(_CarriedSnapshot):
    """`KryoSerializerSnapshot`: a class and three maps of registrations."""

    java_class = f"{RUNTIME}kryo.KryoSerializerSnapshot"
    current_version = 2
    versions = range(2, 3)

    def walk(self, source: DataInput) -> None:
        """Registrations, default serializers, default serializer classes."""
        for _ in range(3):
            skip_optional_map(source)


@register
class GenericSerializerSnapshot(_CarriedSnapshot):
    """`ValueSerializer$ValueSerializerSnapshot`: a class that writes itself."""

    java_class = f"{RUNTIME}ValueSerializer$ValueSerializerSnapshot"
    current_version = 2
    versions = range(2, 3)


@register
class CopyableValueSerializerSnapshot(GenericSerializerSnapshot):
    """`CopyableValueSerializer$CopyableValueSerializerSnapshot`: one that can copy itself, too."""

    java_class = f"{RUNTIME}CopyableValueSerializer$CopyableValueSerializerSnapshot"
