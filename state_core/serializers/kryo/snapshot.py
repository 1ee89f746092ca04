"""`KryoSerializerSnapshot`: a state's class, and the classes that the job has registered.

Each registration is a class and, if the job gave one, its serializer, by its class or as a Java
object. That object is skipped: only its class name is used.

It does not contain which Flink wrote the values. Values that were rewritten for Flink 2 are
recognised by a mark behind the first class's name, which Flink ignores.

Source: `KryoSerializerSnapshot`, `KryoSerializerSnapshotData` of Flink 1.20 and 2.3.
"""

from __future__ import annotations

from statelake.state_core.errors import StateError, UnsupportedFormatError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.opaque_values import (
    DecodedSerializer,
    decoder_of,
    is_finding_ends,
    is_key,
    is_undecoded,
    opaque_serializer,
)
from statelake.state_core.serializers.framework.registry import register
from statelake.state_core.serializers.kryo.containers import AVRO_ARRAY
from statelake.state_core.serializers.kryo.decoding import (
    KryoDecoder,
    KryoValues,
    exception_ends,
    kryo_decoder,
    nested_decoder,
)
from statelake.state_core.serializers.kryo.serializer import KryoSerializer, NestedKryoSerializer
from statelake.state_core.serializers.kryo.wire import KryoVersion
from statelake.state_core.serializers.opaque.opaque_bytes import RUNTIME, CarriedSnapshot
from statelake.state_core.serializers.opaque.optional_map import (
    RawEntry,
    read_raw_map,
    write_raw_map,
)

UNSPECIFIED, INSTANCE = 0, 2
MARK = b"statelake: flink 2"
# what Flink 1 has for Avro's arrays, and Flink 2 lacks
_AVRO_LIST = (
    b"org.apache.flink.api.java.typeutils.runtime.kryo"
    b".Serializers$SpecificInstanceCollectionSerializerForArrayList"
)
# Flink 2's serializer of Avro's arrays, if a job has Avro, as a Java object
_AVRO_HOLDER = "org.apache.flink.api.common.SerializableSerializer"
_AVRO_SERIALIZER = (
    "org.apache.flink.formats.avro.utils.AvroKryoSerializerUtils$AvroGenericDataArraySerializer"
)
# the classes of a Java object with a serializer, by version of Flink
_HOLDERS = {
    KryoVersion.FLINK_1: b"org.apache.flink.api.common.ExecutionConfig$SerializableSerializer",
    KryoVersion.FLINK_2: b"org.apache.flink.api.common.SerializableSerializer",
}
# without which Flink 2 reads no snapshot, nor any state of the same operator
LACKED = (_HOLDERS[KryoVersion.FLINK_1], _AVRO_LIST)


@register
class KryoSerializerSnapshot(CarriedSnapshot):
    """`KryoSerializerSnapshot`: a class and three maps of registrations."""

    java_class = f"{RUNTIME}kryo.KryoSerializerSnapshot"
    versions = range(2, 3)

    def __init__(self) -> None:
        super().__init__()
        self.maps: tuple[tuple[RawEntry, ...], ...] = ()
        self.registered: tuple[tuple[str, bool], ...] = ()
        self.kryo: KryoVersion | None = None
        self.overridden = False

    def walk(self, source: DataInput) -> None:
        """Read registrations, default serializers and default serializer classes."""
        start = source.position
        self.maps = tuple(read_raw_map(source) for _ in range(3))
        raw = bytes(source.data[start : source.position])
        self.kryo = next((version for version, holder in _HOLDERS.items() if holder in raw), None)
        if any((entry.key or b"").endswith(MARK) for entry in self.maps[0]):
            self.kryo = KryoVersion.FLINK_2
        self.registered = tuple(map(_registration, self.maps[0]))
        # interfaces of the JDK, which apply to more classes by Java's class hierarchy
        defaults = (*self.maps[1], *self.maps[2])
        self.overridden = any(entry.name.startswith("java.") for entry in defaults)

    def restore_serializer(self) -> TypeSerializer:
        """Return the decoder of the class, a user's or ours, or otherwise a serializer of bytes.

        Keys and namespaces are never decoded by ours, as one value may have several forms.
        """
        if decoder_of(self.type_class) is None and not is_undecoded() and not is_key():
            decoder = self.decoder()
            if decoder is not None:
                return KryoSerializer(self.type_class, decoder)
        return opaque_serializer(self.type_class)

    def restore_nested(self) -> TypeSerializer:
        """Return the decoder of a part of another type, also in keys, or as for a whole value."""
        if decoder_of(self.type_class) is None and not (is_undecoded() or self.overridden):
            decoder = nested_decoder(self.type_class, self.registered, self.kryo)
            if decoder is not None:
                return NestedKryoSerializer(self.type_class, decoder)
            ends = exception_ends(self.type_class, self.registered, self.kryo)
            if is_finding_ends() and ends is not None:
                return DecodedSerializer(self.type_class, ends)
        return self.restore_serializer()

    def decoder(self) -> KryoDecoder | None:
        """Return the decoder of the class; None without a declaration."""
        if self.overridden:
            return None
        return kryo_decoder(self.type_class, self.registered, self.kryo)

    def values(self, version: KryoVersion) -> KryoValues:
        """Return the reader and writer of the values in that version of Flink.

        Raises:
            UnsupportedFormatError: The job has its own default serializers for types of the JDK.
        """
        if self.overridden:
            raise UnsupportedFormatError(
                f"a KryoSerializer of {self.type_class} with default serializers of the job's own"
                " for types of the JDK, whose form is not known",
                remedy="migrate the state to another type in Flink 1",
            )
        return KryoValues(self.registered, version, recorded=self.kryo is version)

    def of_class(self, java_class: str) -> KryoSerializerSnapshot:
        """Return the snapshot of the serializer of another class, with the same registrations."""
        key, value = DataOutput(), DataOutput()
        key.write_utf(java_class)
        value.write_utf(java_class)
        value.write_int(UNSPECIFIED)
        own = RawEntry(java_class, key.to_bytes(), value.to_bytes())
        others = [
            entry for entry in self.maps[0] if entry.name not in (self.type_class, java_class)
        ]
        return self._with(java_class, (own, *others))

    def _with(self, java_class: str, *maps: tuple[RawEntry, ...]) -> KryoSerializerSnapshot:
        """Return the snapshot of another class, with other maps in place of the first ones."""
        out = DataOutput()
        out.write_utf(java_class)
        for entries in (*maps, *self.maps[len(maps) :]):
            write_raw_map(entries, out)
        snapshot = KryoSerializerSnapshot()
        snapshot.read_snapshot(self.current_version, DataInput(out.to_bytes()))
        return snapshot

    def for_flink_2(self) -> KryoSerializerSnapshot:
        """Return the snapshot of values that were rewritten for Flink 2.

        Raises:
            UnsupportedFormatError: No class is registered, so there is no place for the mark.
        """
        if not self.maps[0]:
            raise UnsupportedFormatError(
                f"a KryoSerializer of {self.type_class} that registers no class",
                remedy="Flink registers the state's own class at least: do not trust the snapshot",
            )
        (first, *others), *defaults = (
            tuple(_for_flink_2(entry) for entry in entries) for entries in self.maps
        )
        marked = RawEntry(first.name, (first.key or b"") + MARK, first.value)
        return self._with(self.type_class, (marked, *others), *defaults)


def _registration(entry: RawEntry) -> tuple[str, bool]:
    """Return the class of an entry, and whether it has its own serializer."""
    if entry.value is None:
        return entry.name, True
    value = DataInput(entry.value)
    try:
        name = value.read_utf()
        is_own = value.read_int() != UNSPECIFIED
    except StateError:
        return entry.name, True
    return name, is_own and not (name == AVRO_ARRAY and _AVRO_LIST in entry.value)


def _for_flink_2(entry: RawEntry) -> RawEntry:
    """Return a registration, or a default serializer, for Flink 2.

    It has another serializer of Avro's arrays, and another class around serializers that are
    objects.
    """
    value = entry.value or b""
    if entry.name != AVRO_ARRAY or _AVRO_LIST not in value:
        old, new = (len(name).to_bytes(2, "big") + name for name in _HOLDERS.values())
        return RawEntry(entry.name, entry.key, entry.value and value.replace(old, new))
    out = DataOutput()
    out.write_utf(AVRO_ARRAY)
    out.write_int(INSTANCE)
    out.write_bytes(_avro_object())
    return RawEntry(entry.name, entry.key, out.to_bytes())


def _avro_object() -> bytes:
    """Return a `SerializableSerializer` with the serializer of Avro's arrays, as a Java object."""
    out = DataOutput()
    out.write_bytes(bytes.fromhex("aced00057372"))
    out.write_utf(_AVRO_HOLDER)
    out.write_bytes(bytes.fromhex("410ebe4da2208fb50200014c"))
    out.write_utf("serializer")
    out.write_bytes(b"t")
    out.write_utf("Lcom/esotericsoftware/kryo/Serializer;")
    out.write_bytes(b"xpsr")
    out.write_utf(_AVRO_SERIALIZER)
    out.write_bytes(bytes.fromhex("00000000000000010200007870"))
    return out.to_bytes()
