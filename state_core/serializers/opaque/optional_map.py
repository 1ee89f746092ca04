"""`LinkedOptionalMap`: a map of names whose keys and values may each be missing.

Every key and every value is in a frame with its length, so unknown ones are carried as they are.
Here the values are serializer snapshots.

Source: `org.apache.flink.util.LinkedOptionalMap` and `LinkedOptionalMapSerializer`.
"""

from __future__ import annotations

from dataclasses import dataclass

from statelake.state_core.bounds import MEMBERS, Bound
from statelake.state_core.errors import UnknownSerializerError, UnsupportedFormatError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    incompatible,
    unknown,
)
from statelake.state_core.serializers.framework.opaque_values import (
    OpaqueSerializer,
    opaque_serializer,
)
from statelake.state_core.serializers.framework.registry import (
    read_serializer_snapshot,
    write_serializer_snapshot,
)

HEADER = 0x4F2C69A3D70
MIN_ENTRY_BYTES = 4
FRAME_BYTES = 256  # bytes of kept frames, including nested ones, that count as one thing


@dataclass(frozen=True, slots=True)
class FramedSnapshot:
    """A serializer snapshot in a frame.

    Attributes:
        snapshot: The snapshot; None if its class, or its version, is not known here.
        encoded: The original bytes, which are written back; empty for a new snapshot, or one to be
            written in its current version.
    """

    snapshot: TypeSerializerSnapshot | None
    encoded: bytes = b""

    @property
    def type_name(self) -> str:
        """The type, for messages."""
        if self.snapshot is not None:
            return self.snapshot.type_name
        return OpaqueSerializer(DataInput(self.encoded).read_utf()).name

    def restore_serializer(self) -> TypeSerializer:
        """Return the serializer; for an unknown class, its decoder or one of bytes."""
        if self.snapshot is not None:
            return self.snapshot.restore_nested()
        return opaque_serializer(DataInput(self.encoded).read_utf())

    def renewed(self) -> FramedSnapshot:
        """Return the same snapshot, to be written in its current version."""
        return self if self.snapshot is None else FramedSnapshot(self.snapshot)

    def resolve_schema_compatibility(self, old: FramedSnapshot) -> Compatibility:
        """Return the verdict of the snapshots, if both are known."""
        if self.snapshot is None:
            rule = "its snapshot class decides in its own code; register one for it here"
            return unknown(old.type_name, self.type_name, rule)
        if old.snapshot is None:
            rule = "the serializer is another one"
            return incompatible(old.type_name, self.type_name, rule)
        return self.snapshot.resolve_schema_compatibility(old.snapshot)

    def write(self, out: DataOutput) -> None:
        """Write the original bytes, or otherwise the current form."""
        if self.encoded or self.snapshot is None:
            out.write_bytes(self.encoded)
        else:
            write_serializer_snapshot(self.snapshot, out)


@dataclass(frozen=True, slots=True)
class OptionalEntry:
    """A name, with its key and its value as far as they are known.

    Attributes:
        name: The key as text, unique in its map.
        key: The key's frame; None if Java had lost the key when the snapshot was written.
        value: The serializer snapshot; None if Java had lost it.
    """

    name: str
    key: bytes | None
    value: FramedSnapshot | None

    @property
    def present(self) -> bool:
        """Return whether both key and value are known."""
        return self.key is not None and self.value is not None


@dataclass(frozen=True, slots=True)
class RawEntry:
    """An entry whose key and value are not parsed.

    Attributes:
        name: The name.
        key: The bytes of the key; None if it is missing.
        value: The bytes of the value; None if it is missing.
    """

    name: str
    key: bytes | None
    value: bytes | None


def read_optional_map(
    source: DataInput, what: str, bound: Bound = MEMBERS
) -> tuple[OptionalEntry, ...]:
    """Read a map; a snapshot whose class or version is not known stays bytes.

    Args:
        source: The input, at the map.
        what: The name of its entries, for messages.
        bound: The bound of its entries.

    Raises:
        OversizedError: The map has more entries.
    """
    if source.read_long() != HEADER:
        raise source.fault(f"a map of {what} without its magic number")
    entries: dict[str, OptionalEntry] = {}
    for _ in range(source.read_members(what, MIN_ENTRY_BYTES, bound)):
        name = source.read_utf()
        if name in entries:
            raise source.fault(f"{name!r} is there twice among the {what}")
        key = _read_frame(source)
        value = _read_frame(source)
        snapshot = None if value is None else _read_snapshot(value)
        entries[name] = OptionalEntry(name, None if key is None else bytes(key.data), snapshot)
    return tuple(entries.values())


def read_raw_map(source: DataInput) -> tuple[RawEntry, ...]:
    """Read a map of other keys and values, as bytes."""
    if source.read_long() != HEADER:
        raise source.fault("a map of optional entries without its magic number")
    entries = []
    for _ in range(source.read_count("map entries", MIN_ENTRY_BYTES)):
        name, key, value = source.read_utf(), _read_frame(source), _read_frame(source)
        entries.append(RawEntry(name, _bytes_of(key), _bytes_of(value)))
    return tuple(entries)


def _bytes_of(frame: DataInput | None) -> bytes | None:
    return None if frame is None else bytes(frame.data)


def write_raw_map(entries: tuple[RawEntry, ...], out: DataOutput) -> None:
    """Write a map: the reverse of `read_raw_map`."""
    out.write_long(HEADER)
    out.write_int(len(entries))
    for entry in entries:
        out.write_utf(entry.name)
        _write_frame(entry.key, out)
        _write_frame(entry.value, out)


def write_optional_map(entries: tuple[OptionalEntry, ...], out: DataOutput) -> None:
    """Write a map: the reverse of `read_optional_map`."""
    out.write_long(HEADER)
    out.write_int(len(entries))
    for entry in entries:
        out.write_utf(entry.name)
        _write_frame(entry.key, out)
        frame = None
        if entry.value is not None:
            inner = DataOutput()
            entry.value.write(inner)
            frame = inner.to_bytes()
        _write_frame(frame, out)


def _read_frame(source: DataInput) -> DataInput | None:
    if not source.read_boolean():
        return None
    length = source.read_length("bytes of a frame")
    source.declare(length // FRAME_BYTES)
    start = source.position
    source.read_bytes(length)
    frame = DataInput(source.data[start : start + length], source.source, source.base + start)
    frame.nesting, frame.budget = source.nesting, source.budget
    return frame


def _write_frame(frame: bytes | None, out: DataOutput) -> None:
    out.write_boolean(frame is not None)
    if frame is not None:
        out.write_sized(frame)


def _read_snapshot(frame: DataInput) -> FramedSnapshot:
    encoded = bytes(frame.data)
    try:
        return FramedSnapshot(read_serializer_snapshot(frame), encoded)
    except (UnknownSerializerError, UnsupportedFormatError):
        return FramedSnapshot(None, encoded)
