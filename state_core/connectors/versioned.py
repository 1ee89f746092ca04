"""`SimpleVersionedSerializer`: bytes of a connector's class, with their version.

Values that are read here are written back as the same bytes; bytes for which that fails, and
unknown versions, stay bytes.

Source: `SimpleVersionedSerialization` in `org.apache.flink.core.io`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar, Protocol, TypeVar

from statelake.state_core.errors import StateError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.framework.base import TypeSerializer


class Encodable(Protocol):
    """A value that can be written back."""

    def encode(self) -> bytes:
        """Return the bytes of its serializer."""


class KeptBytes:
    """A value that keeps the bytes from which it was read, and is written back as these."""

    __slots__ = ()
    data: bytes

    def encode(self) -> bytes:
        """Return its bytes."""
        return self.data


class ShownFields:
    """A split whose content is some of its attributes.

    Attributes:
        shown: Their names, and the heads of their columns.
    """

    __slots__ = ()
    shown: ClassVar[tuple[tuple[str, str], ...]]

    def columns(self) -> dict[str, object]:
        """Return its content by name."""
        return {name: getattr(self, name) for name, _ in self.shown}


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


def reader_of(
    versions: Collection[int], read: Callable[[int, DataInput], Value]
) -> Callable[[int, bytes], Value | None]:
    """Return what reads a value of some versions, given the version and the bytes.

    It returns None for another version, and for bytes that are not such a value.

    Args:
        versions: The versions.
        read: Reads the value of a version.
    """

    def read_value(version: int, data: bytes) -> Value | None:
        if version not in versions:
            return None
        return read_exactly(lambda source: read(version, source), data)

    return read_value


def encoded(serializer: TypeSerializer, value: Any) -> bytes:
    """Return the bytes of a value."""
    out = DataOutput()
    serializer.write(value, out)
    return out.to_bytes()
