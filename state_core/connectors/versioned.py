"""`SimpleVersionedSerializer`: bytes of a class of a connector, with the version that wrote them.

::

    i32 version, i32 length, bytes

A connector that is read here gives back the very bytes that it was read from; what would not is
left as bytes, as is every version that is not known.

Source: `SimpleVersionedSerialization` in `org.apache.flink.core.io`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from statelake.state_core.errors import StateError
from statelake.state_core.files.wire import DataInput, DataOutput

__all__ = ["Encodable", "read_exactly", "read_versioned", "write_versioned"]


class Encodable(Protocol):
    """What can be written back."""

    def encode(self) -> bytes:
        """The bytes that a serializer writes for it."""


Value = TypeVar("Value", bound=Encodable)


def read_exactly(read: Callable[[DataInput], Value], data: bytes) -> Value | None:
    """A value that takes all of some bytes, and gives them back.

    Args:
        read: Reads the value.
        data: The bytes.

    Returns:
        The value; None if these are not the bytes of one.
    """
    source = DataInput(data)
    try:
        value = read(source)
        return value if source.remaining == 0 and value.encode() == data else None
    except StateError:
        return None


def read_versioned(source: DataInput) -> tuple[int, bytes]:
    """A version, and the bytes that it wrote.

    Raises:
        CorruptSnapshotError: There are fewer bytes than it says.
    """
    version = source.read_int()
    return version, source.read_bytes(source.read_length("bytes of a versioned value"))


def write_versioned(version: int, data: bytes, out: DataOutput) -> None:
    """Write a version, and the bytes that it wrote."""
    out.write_int(version)
    out.write_int(len(data))
    out.write_bytes(data)
