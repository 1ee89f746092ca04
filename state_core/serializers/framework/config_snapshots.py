"""Serializer snapshots in the form from before Flink 1.7, as far as they can be parsed.

A `TypeSerializerConfigSnapshot` could not restore its serializer, so the serializer itself was
written beside it with Java serialization. Flink 1.7 to 1.16 still wrote that form for classes
without a newer one::

    UTF class of the config snapshot, i32 0x7a53c4f0,
    i32 1, i32 length, the serializer as a Java object stream,
    the config's own payload: for `ParameterlessTypeSerializerConfig` i32 1, UTF serializer class

Flink 1.17 and later refuse it. Here the stream's class name is read as data: if that class alone
determines the format (numbers, strings, primitive arrays, windows) its serializer is known, and is
written back in the current form.

Source: `TypeSerializerConfigSnapshot`, `TypeSerializerSerializationUtil`,
`ParameterlessTypeSerializerConfig` in `org.apache.flink.api.common.typeutils`, Flink 1.4 to 1.16.
"""

from __future__ import annotations

from collections.abc import Mapping

from statelake.state_core.errors import StateError, UnsupportedFormatError
from statelake.state_core.files.java_stream import JavaObject, read_java_stream
from statelake.state_core.files.wire import DataInput
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot

PARAMETERLESS = "org.apache.flink.api.common.typeutils.ParameterlessTypeSerializerConfig"
BRING_FORWARD = (
    "give the serializer a TypeSerializerSnapshot, restore the savepoint with it in Flink 1.8 to"
    " 1.16, and take a new savepoint there"
)

Classes = Mapping[str, type[TypeSerializerSnapshot]]


def read_config_snapshot(
    class_name: str, source: DataInput, classes: Classes
) -> TypeSerializerSnapshot:
    """Return the snapshot, in the current form, of a serializer whose class determines its format.

    Args:
        class_name: The class of the config snapshot, which was read before, with `ADAPTER_VERSION`.
        source: The input behind both.
        classes: The registered snapshot classes.

    Raises:
        UnsupportedFormatError: The class does not determine the format.
    """
    at = source.place
    if source.read_int() != 1:
        raise source.fault("a Java-serialized serializer in an unknown form")
    stream = source.read_bytes(source.read_length("bytes of a serializer"))
    try:
        serializer = read_java_stream(DataInput(stream, f"{at}, Java stream"))
    except UnsupportedFormatError:
        serializer = None
    named = serializer.java_class.name if isinstance(serializer, JavaObject) else "unknown"
    if class_name != PARAMETERLESS:
        raise _refused(f"{named} with {class_name}", at)
    _read_identifier(source)
    return _snapshot_of(named, at, classes)


def read_parameterless(source: DataInput, classes: Classes) -> TypeSerializerSnapshot:
    """Return the snapshot of a serializer of Flink 1.6 or older, from its config alone.

    Raises:
        UnsupportedFormatError: The class does not determine the format.
    """
    at = source.place
    class_name = source.read_utf()
    if class_name != PARAMETERLESS:
        raise _refused(class_name, at)
    return _snapshot_of(_read_identifier(source), at, classes)


def _read_identifier(source: DataInput) -> str:
    """Read a `ParameterlessTypeSerializerConfig`: a version and the serializer's class name."""
    if source.read_int() != 1:
        raise source.fault(f"{PARAMETERLESS} of an unknown version")
    return source.read_utf()


def _snapshot_of(serializer: str, at: str, classes: Classes) -> TypeSerializerSnapshot:
    name = serializer.replace("$", ".")
    for java_class, snapshot_class in classes.items():
        fixed = getattr(snapshot_class, "serializer_class", None)
        if fixed is not None and fixed().self_delimiting and name == _serializer_name(java_class):
            return snapshot_class()
    raise _refused(serializer, at)


def _serializer_name(snapshot_class: str) -> str:
    """Return a serializer's name from that of its snapshot (`A$ASnapshot`, `ASnapshot`)."""
    outer, dollar, _ = snapshot_class.rpartition("$")
    name = outer if dollar else snapshot_class.removesuffix("Snapshot")
    return name.replace("$", ".")


def _refused(what: str, at: str) -> StateError:
    return UnsupportedFormatError(
        "a Java-serialized serializer in the form of before Flink 1.7,"
        f" {what or 'without a name'}, whose format its class alone does not fix",
        place=at,
        remedy=BRING_FORWARD,
    )
