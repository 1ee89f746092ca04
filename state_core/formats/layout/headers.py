"""Reading the head of a state file, which says nowhere how long it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from state_core.errors import SnapshotError, UnknownSerializerError
from state_core.files.compression import IDENTIFIER
from state_core.files.filesystem import ByteSource
from state_core.files.wire import DataInput
from state_core.serializers.opaque.unknown_classes import read_whole

__all__ = ["read_header"]

_Header = TypeVar("_Header")
FIRST_BLOCK = 1 << 16
MAX_HEADER = 1 << 28


def read_header(source: ByteSource, end: int, read: Callable[[DataInput], _Header]) -> _Header:
    """Read the head of a file: its first block, or as much as it takes.

    Args:
        source: The file.
        end: Where its content begins; to the byte, if a serializer's class is unknown.
        read: Reads the head.

    Raises:
        UnknownSerializerError: A class is unknown, and where its payload ends can't be found.
        SnapshotError: It can't be read.
    """
    limit = min(max(end, FIRST_BLOCK), source.size, MAX_HEADER)
    held = min(FIRST_BLOCK, limit)
    while True:
        try:
            return read(_first(source, held))
        except UnknownSerializerError:
            return read_whole(_before(source, min(max(end, 0), limit)), read)
        except SnapshotError:
            if held == limit:
                raise
        held = min(16 * held, limit)


def _first(source: ByteSource, size: int) -> DataInput:
    block = np.empty(size, np.uint8)
    source.read_into(0, block)
    return DataInput(block.tobytes(), source.name)


def _before(source: ByteSource, end: int) -> DataInput:
    """What lies before the content, and before what a stream of Snappy begins with."""
    head = _first(source, end)
    if head.data[-len(IDENTIFIER) :] == IDENTIFIER:
        head.limit -= len(IDENTIFIER)
    return head
