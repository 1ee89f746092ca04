"""`KryoSerializerSnapshot`: a state's class, and the classes that the job has registered.

Each registration is a class and, if the job gave one, its serializer, by its class or as a Java
object. That object is passed over: only its class's name is looked for.

Source: `KryoSerializerSnapshot`, `KryoSerializerSnapshotData` of Flink 1.20 and 2.3.
"""

from __future__ import annotations

from state_core.errors import StateError
from state_core.files.wire import DataInput
from state_core.serializers.framework.base import TypeSerializer
from state_core.serializers.framework.registry import register
from state_core.serializers.kryo.decoding import KryoDecoder, kryo_decoder
from state_core.serializers.kryo.wire import KryoVersion
from state_core.serializers.opaque.decoders import (
    DecodedSerializer,
    decoder_of,
    is_undecoded,
    opaque_serializer,
)
from state_core.serializers.opaque.opaque_bytes import RUNTIME, CarriedSnapshot
from state_core.serializers.opaque.optional_map import RawEntry, read_raw_map

__all__ = ["KryoSerializerSnapshot"]

UNSPECIFIED = 0
# the classes of a Java object that holds a serializer, by the Flink that has them
_HOLDERS = {
    KryoVersion.FLINK_1: b"org.apache.flink.api.common.ExecutionConfig$SerializableSerializer",
    KryoVersion.FLINK_2: b"org.apache.flink.api.common.SerializableSerializer",
}


@register
class KryoSerializerSnapshot(CarriedSnapshot):
    """`KryoSerializerSnapshot`: a class and three maps of registrations."""

    java_class = f"{RUNTIME}kryo.KryoSerializerSnapshot"
    current_version = 2
    versions = range(2, 3)

    def __init__(self) -> None:
        super().__init__()
        self.registered: tuple[tuple[str, bool], ...] = ()
        self.kryo: KryoVersion | None = None
        self.overridden = False

    def walk(self, source: DataInput) -> None:
        """Read registrations, default serializers and default serializer classes."""
        start = source.position
        maps = [read_raw_map(source) for _ in range(3)]
        raw = bytes(source.data[start : source.position])
        self.kryo = next((one for one, holder in _HOLDERS.items() if holder in raw), None)
        self.registered = tuple(map(_registration, maps[0]))
        # of classes of the JDK: which of them it counts for only Java's class hierarchy says
        self.overridden = any(one.name.startswith("java.") for one in (*maps[1], *maps[2]))

    def restore_serializer(self) -> TypeSerializer:
        """Return the decoder of the class, of a user or our own, or else a serializer of bytes."""
        if decoder_of(self.type_class) is None and not is_undecoded():
            decoder = self.decoder()
            if decoder is not None:
                return DecodedSerializer(self.type_class, decoder)
        return opaque_serializer(self.type_class)

    def decoder(self) -> KryoDecoder | None:
        """Return the decoder of the class; None if its form is not known."""
        if self.overridden:
            return None
        return kryo_decoder(self.type_class, self.registered, self.kryo)


def _registration(entry: RawEntry) -> tuple[str, bool]:
    """The class of an entry, and whether it has a serializer of its own."""
    if entry.value is None:
        return entry.name, True
    value = DataInput(entry.value)
    try:
        name = value.read_utf()
        return name, value.read_int() != UNSPECIFIED
    except StateError:
        return entry.name, True
