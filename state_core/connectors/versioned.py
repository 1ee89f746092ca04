"""`SimpleVersionedSerializer`: bytes of a connector's class, with their version.

::

    i32 version, i32 length, bytes

Values that are read here are written back as the same bytes; bytes for which that fails, and
unknown versions, stay bytes.

Source: `SimpleVersionedSerialization` in `org.apache.flink.core.io`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from statelake.state_core.errors import StateError
from statelake.state_core.files.wire import DataInput, DataOutput


class Encodable(Protocol):
    """A value that can be written back."""

    def encode(self) -> bytes:
        """Return the bytes of its serializer."""


Value = TypeVar("Value", bound=Encodable)


def read_exactly(read: Callable[[DataInput], Value], data: bytes) -> Value | None:
    """Return a value that takes all of some bytes, and is written back as these; otherwise None.

    Args:
        read: Reads the value.
        data: The bytes.

    Returns:
        The value; None if the bytes are not such a value.
    """
    source = DataInput(data)
    try:
        value = read(source)
        return value if source.remaining == 0 and value.encode() == data else None
    except StateError:
        return None


def read_versioned(source: DataInput) -> tuple[int, bytes]:
    """Read a version, and the bytes of that version.

    Raises:
        CorruptSnapshotError: There are fewer bytes than the length.
    """
    version = source.read_int()
    return version, source.read_bytes(source.read_length("bytes of a versioned value"))


def write_versioned(version: int, data: bytes, out: DataOutput) -> None:
    """Write a version, and the bytes of that version."""
    out.write_int(version)
    out.write_int(len(data))
    out.write_bytes(data)
