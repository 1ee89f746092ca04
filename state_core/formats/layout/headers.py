"""The headers of a snapshot's state files, whose length is not stored.

Most files of an operator have the same header, so it is worked out once for all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from statelake.state_core.bounds import HEAD_BYTES, Budget
from statelake.state_core.errors import TruncatedError, UnknownSerializerError
from statelake.state_core.files.compression import IDENTIFIER
from statelake.state_core.files.filesystem import ByteSource
from statelake.state_core.files.wire import DataInput
from statelake.state_core.serializers.opaque.unknown_classes import read_whole

_Head = TypeVar("_Head")
_Worked = TypeVar("_Worked")
FIRST_BLOCK = 1 << 16


class Heads:
    """The headers of one snapshot's files.

    Attributes:
        budget: The budget for all their declarations.
    """

    def __init__(self) -> None:
        self.budget = Budget(0)
        self._known: dict[tuple[object, bytes], Any] = {}
        self._followed: dict[int, tuple[object, Any]] = {}

    def read(self, source: ByteSource, end: int, read: Callable[[DataInput], _Head]) -> _Head:
        """Read the header of a file, unless an equal one was read.

        Args:
            source: The file.
            end: The start of its content; it must be exact if a serializer's class is unknown.
            read: Reads the header.

        Raises:
            UnknownSerializerError: A class is unknown, and the end of its payload can't be found.
            SnapshotError: The header can't be read.
        """
        end = min(max(end, 0), source.size, HEAD_BYTES.most)
        whole = _first(source, end)
        key = read, hashlib.sha256(whole.data).digest()
        if key not in self._known:
            head, size = self._read(source, whole, read)
            if size > end:
                return head
            self._known[key] = head
        cached: _Head = self._known[key]
        return cached

    def once(self, head: object, work_out: Callable[[], _Worked]) -> _Worked:
        """Return a result for a header, computed the first time.

        Args:
            head: The header, from `read`.
            work_out: Computes the result; always the same function.
        """
        if id(head) not in self._followed:
            self._followed[id(head)] = (head, work_out())
        worked: _Worked = self._followed[id(head)][1]
        return worked

    def _read(
        self, source: ByteSource, whole: DataInput, read: Callable[[DataInput], _Head]
    ) -> tuple[_Head, int]:
        """Read the bytes up to the content, or more if necessary; return header and length."""
        most = min(source.size, HEAD_BYTES.most)
        for size in sorted({min(max(len(whole.data), FIRST_BLOCK), most), most}):
            head = whole if size == len(whole.data) else _first(source, size)
            spent, head.budget = dict(self.budget.spent), self.budget
            try:
                return read(head), head.position
            except UnknownSerializerError:
                return read_whole(_before_content(whole), read), len(whole.data)
            except TruncatedError as error:
                if size == HEAD_BYTES.most < source.size:
                    raise HEAD_BYTES.exceeded(source.size, error.place) from error
                if size == most:
                    raise
                self.budget.spent = spent
        raise AssertionError


def _first(source: ByteSource, size: int) -> DataInput:
    block = np.empty(size, np.uint8)
    source.read_into(0, block)
    return DataInput(block.data, source.name)


def _before_content(whole: DataInput) -> DataInput:
    """Return the bytes before the content, and before the identifier of a Snappy stream."""
    head = DataInput(whole.data, whole.source)
    if head.data[-len(IDENTIFIER) :] == IDENTIFIER:
        head.limit -= len(IDENTIFIER)
    return head
