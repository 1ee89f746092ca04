"""Serializer snapshots that are kept as bytes, and the form from before Flink 1.7.

A `TypeSerializerConfigSnapshot` could not restore its serializer, so the serializer itself was
written beside it with Java serialization. Flink 1.7 to 1.16 still wrote that form for classes
without a newer one::

    UTF class of the config snapshot, i32 0x7a53c4f0,
    i32 1, i32 length, the serializer as a Java object stream,
    the config's own payload: for `ParameterlessTypeSerializerConfig` i32 1, UTF serializer class

Flink 1.17 and later refuse it. Here the stream's class name is read as data: if that class alone
determines the format (numbers, strings, primitive arrays, windows) its serializer is known, and is
written back in the current form. All others are kept as bytes, as are snapshots of unknown classes:
the payload of another config, of which Beam's `CoderTypeSerializer` writes the version alone, ends
where all that follows can be parsed.

Source: `TypeSerializerConfigSnapshot`, `TypeSerializerSerializationUtil`,
`ParameterlessTypeSerializerConfig` in `org.apache.flink.api.common.typeutils`, Flink 1.4 to 1.16.
"""

from __future__ import annotations

from collections.abc import Mapping

from statelake.state_core.errors import (
    StateError,
    UnknownSerializerError,
    UnsupportedFormatError,
)
from statelake.state_core.files.java_stream import JavaObject, read_java_stream
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.framework.base import (
    ADAPTER_VERSION,
    TypeSerializer,
    TypeSerializerSnapshot,
)
from statelake.state_core.serializers.framework.compatibility import Compatibility, unknown
from statelake.state_core.serializers.framework.opaque_values import opaque_serializer

PARAMETERLESS = "org.apache.flink.api.common.typeutils.ParameterlessTypeSerializerConfig"
BRING_FORWARD = (
    "give the serializer a TypeSerializerSnapshot, restore the savepoint with it in Flink 1.8 to"
    " 1.16, and take a new savepoint there"
)

Classes = Mapping[str, type[TypeSerializerSnapshot]]


class UnknownSerializerSnapshot(TypeSerializerSnapshot):
    """The snapshot of a class that is not registered, as bytes.

    Args:
        java_class: The name of the class.
        version: The version of its payload.
        payload: The bytes of its payload.
    """

    def __init__(self, java_class: str, version: int, payload: bytes) -> None:
        # of this snapshot, not of its class
        self.java_class = java_class  # type: ignore[misc]
        self.current_version = version  # type: ignore[misc]
        self.version = version
        self.payload = payload

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Read the rest of the source."""
        self.version = version
        self.payload = source.read_rest()

    def write_snapshot(self, out: DataOutput) -> None:
        """Write the payload as it was read."""
        out.write_bytes(self.payload)

    def restore_serializer(self) -> TypeSerializer:
        """Return the decoder of the snapshot's class, or otherwise a serializer of bytes."""
        return opaque_serializer(self.java_class)

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """Return unknown: only the Java class itself could tell."""
        settled = f"{self.java_class} decides in its own code; register a snapshot class for it"
        return unknown(old.type_name, self.type_name, settled)


class JavaSerializerSnapshot(UnknownSerializerSnapshot):
    """A snapshot of that form as bytes, with the serializer's class.

    Args:
        java_class: The class of the config snapshot.
        payload: The bytes behind `ADAPTER_VERSION`.
        serializer_name: The class of the serializer in the Java stream.
    """

    def __init__(self, java_class: str, payload: bytes, serializer_name: str) -> None:
        super().__init__(java_class, ADAPTER_VERSION, payload)
        self.serializer_name = serializer_name

    def restore_serializer(self) -> TypeSerializer:
        """Return the decoder of the serializer's class, or otherwise a serializer of bytes."""
        return opaque_serializer(self.serializer_name)


def read_config_snapshot(
    class_name: str, source: DataInput, classes: Classes
) -> TypeSerializerSnapshot:
    """Return the snapshot, in the current form, of a serializer whose class determines its format.

    Args:
        class_name: The class of the config snapshot, which was read before, with `ADAPTER_VERSION`.
        source: The input behind both.
        classes: The registered snapshot classes.

    Returns:
        The snapshot; one of bytes if the class does not determine the format.

    Raises:
        UnknownSerializerError: Where the payload ends is not known (`unknown_classes.read_whole`).
    """
    at, begin = source.place, source.position
    if source.read_int() != 1:
        raise source.fault("a Java-serialized serializer in an unknown form")
    stream = source.read_bytes(source.read_length("bytes of a serializer"))
    try:
        serializer = read_java_stream(DataInput(stream, f"{at}, Java stream"))
    except UnsupportedFormatError:
        serializer = None
    named = serializer.java_class.name if isinstance(serializer, JavaObject) else "unknown"
    if class_name == PARAMETERLESS:
        _read_identifier(source)
        snapshot = _snapshot_of(named, classes)
        if snapshot is not None:
            return snapshot
    elif source.unknown is None:
        raise UnknownSerializerError(
            f"{_words(f'{named} with {class_name}')}, and what follows it can't be found without"
            " its class",
            place=at,
            remedy=BRING_FORWARD,
        )
    else:
        source.unknown(class_name, source.read_int(), source)
    return JavaSerializerSnapshot(class_name, bytes(source.data[begin : source.position]), named)


def read_parameterless(source: DataInput, classes: Classes) -> TypeSerializerSnapshot:
    """Return the snapshot of a serializer of Flink 1.6 or older, from its config alone.

    Raises:
        UnsupportedFormatError: The class does not determine the format.
    """
    at = source.place
    class_name = source.read_utf()
    if class_name != PARAMETERLESS:
        raise _refused(class_name, at)
    serializer = _read_identifier(source)
    snapshot = _snapshot_of(serializer, classes)
    if snapshot is None:
        raise _refused(serializer, at)
    return snapshot


def _read_identifier(source: DataInput) -> str:
    """Read a `ParameterlessTypeSerializerConfig`: a version and the serializer's class name."""
    if source.read_int() != 1:
        raise source.fault(f"{PARAMETERLESS} of an unknown version")
    return source.read_utf()


def _snapshot_of(serializer: str, classes: Classes) -> TypeSerializerSnapshot | None:
    name = serializer.replace("$", ".")
    for java_class, snapshot_class in classes.items():
        fixed = getattr(snapshot_class, "serializer_class", None)
        if fixed is not None and fixed().self_delimiting and name == _serializer_name(java_class):
            return snapshot_class()
    return None


def _serializer_name(snapshot_class: str) -> str:
    """Return a serializer's name from that of its snapshot (`A$ASnapshot`, `ASnapshot`)."""
    outer, dollar, _ = snapshot_class.rpartition("$")
    name = outer if dollar else snapshot_class.removesuffix("Snapshot")
    return name.replace("$", ".")


def _refused(what: str, at: str) -> StateError:
    return UnsupportedFormatError(_words(what), place=at, remedy=BRING_FORWARD)


def _words(what: str) -> str:
    return (
        "a Java-serialized serializer in the form of before Flink 1.7,"
        f" {what or 'without a name'}, whose format its class alone does not fix"
    )
