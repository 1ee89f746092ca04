"""State of Stateful Functions: messages that wait, and values of remote functions.

A message is a Protobuf `Envelope` behind its length, whatever wrote its payload (Kryo, Protobuf, or
a class of the job's own), which stays bytes.

Source: `MessageTypeSerializer`, `MessageFactory` and `stateful-functions.proto` in
`org.apache.flink.statefun.flink.core`, 2.0 to 3.3; `ProtobufSerializer`; `RemoteValueSerializer`.
"""

from __future__ import annotations

from typing import Any

from statelake.state_core.errors import UnsupportedFormatError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.basic.text import ByteArraySerializer
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    as_is,
    incompatible,
)
from statelake.state_core.serializers.framework.layouts import sized
from statelake.state_core.serializers.framework.registry import register
from statelake.state_core.serializers.kryo.protobuf import BYTES, INT64, STRING, described_message

STATEFUN = "org.apache.flink.statefun.flink.core."
_ENVELOPE = described_message(
    "Envelope",
    {
        "EnvelopeAddress": [("namespace", 1, STRING), ("type", 2, STRING), ("id", 3, STRING)],
        "Payload": [("class_name", 2, STRING), ("payload_bytes", 3, BYTES)],
        "Checkpoint": [("checkpoint_id", 1, INT64)],
        "Envelope": [
            ("source", 1, "EnvelopeAddress"), ("target", 2, "EnvelopeAddress"),
            ("payload", 3, "Payload"), ("checkpoint", 4, "Checkpoint"),
            ("cancellation_token", 10, STRING),
        ],
    },
)  # fmt: skip
_BYTES = ByteArraySerializer()


class MessageSerializer(TypeSerializer):
    """`Message`: an i32 length and an `Envelope`; null beside its bytes if it has more in it."""

    name = "Message"
    arrow_type = _ENVELOPE.arrow_type
    byte_layout = sized()

    def read(self, source: DataInput) -> dict[str, Any] | None:
        """Read one message; None if it would not be written as the same bytes."""
        data = _BYTES.read(source)
        try:
            return _ENVELOPE.read(data)
        except UnsupportedFormatError:
            return None

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one message."""
        _BYTES.write(_ENVELOPE.write(value), out)

    def skip(self, source: DataInput) -> None:
        """Move behind one message."""
        _BYTES.skip(source)


@register
class MessageSerializerSnapshot(TypeSerializerSnapshot):
    """`MessageTypeSerializer$Snapshot`: what writes payloads.

    Attributes:
        payloads: `WITH_KRYO_PAYLOADS`, for example.
        custom: The class of a serializer of payloads; None without one.
    """

    java_class = f"{STATEFUN}message.MessageTypeSerializer$Snapshot"
    versions = range(1, 3)

    def __init__(self) -> None:
        self.payloads = ""
        self.custom: str | None = None

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Read a name, and since version 2 a class that may be missing."""
        self.check_version(version, source)
        self.payloads = source.read_utf()
        self.custom = source.read_utf() if version > 1 and source.read_boolean() else None

    def write_snapshot(self, out: DataOutput) -> None:
        """Write the same."""
        out.write_utf(self.payloads)
        if self.written_version > 1:
            out.write_boolean(self.custom is not None)
            if self.custom is not None:
                out.write_utf(self.custom)

    @property
    def written_version(self) -> int:
        """The version that was read."""
        return self.version or self.current_version

    def restore_serializer(self) -> TypeSerializer:
        """Return the serializer of messages."""
        return MessageSerializer()

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """Return as is if payloads are written by the same."""
        mine = self.payloads, self.custom
        if isinstance(old, MessageSerializerSnapshot) and (old.payloads, old.custom) == mine:
            return as_is()
        return incompatible(old.type_name, self.type_name, "the serializer is another one")


@register
class RemoteValueSerializerSnapshot(TypeSerializerSnapshot):
    """`RemoteValueSerializerSnapshot`: the name of the type, of which the bytes are kept.

    Attributes:
        type: Namespace and name: `io.statefun.types` and `long`.
    """

    java_class = f"{STATEFUN}types.remote.RemoteValueSerializerSnapshot"
    versions = range(1, 2)

    def __init__(self) -> None:
        self.type = ("", "")

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Read namespace and name."""
        self.check_version(version, source)
        self.type = (source.read_utf(), source.read_utf())

    def write_snapshot(self, out: DataOutput) -> None:
        """Write namespace and name."""
        for part in self.type:
            out.write_utf(part)

    def restore_serializer(self) -> TypeSerializer:
        """Return the serializer of bytes behind their length."""
        return ByteArraySerializer()

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """Return as is for the same type."""
        if isinstance(old, RemoteValueSerializerSnapshot) and old.type == self.type:
            return as_is()
        return incompatible(old.type_name, self.type_name, "the type is another one")
