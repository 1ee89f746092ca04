"""Copies of streams without random access: those of one snapshot share a temporary file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import IO

import numpy as np
import numpy.typing as npt

from statelake.state_core.errors import SnapshotError
from statelake.state_core.files.compression import StateStream
from statelake.state_core.files.file_sources import ByteSource, too_short

BLOCK_BYTES = 4 << 20


class Copies:
    """Copies, concatenated in a temporary file, which is created with the first copy."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._size = 0

    @cached_property
    def _file(self) -> IO[bytes]:
        return tempfile.TemporaryFile(prefix="statelake-", buffering=0)

    def add(self, stream: StateStream, name: str) -> ByteSource:
        """Copy the whole content of a stream.

        Args:
            stream: The stream.
            name: Name of the original.

        Raises:
            SnapshotError: The disk is full, or the stream can't be read.
        """
        block = np.empty(BLOCK_BYTES, np.uint8)
        with self._lock:
            with _explained(name):
                file, end = self._file, self._size
            while True:
                count = stream.read_into(block)
                with _explained(name):
                    _write(file, block[:count], end)
                end += count
                if count < block.size:
                    copy = _CachedCopy(name, end - self._size, file, self._size)
                    self._size = end
                    return copy


@dataclass(frozen=True)
class _CachedCopy:
    """A copy in a file, named after its original."""

    name: str
    size: int
    file: IO[bytes]
    start: int

    def read_into(self, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """Read from the copy."""
        if offset + out.size > self.size:
            raise too_short(self.name, offset, out.size, max(0, self.size - offset))
        read = 0
        while read < out.size:
            with _explained(self.name):
                at = self.start + offset + read
                count = os.preadv(self.file.fileno(), [out.data[read:]], at)
            if count == 0:
                raise too_short(self.name, offset, out.size, read)
            read += count


def _write(file: IO[bytes], data: npt.NDArray[np.uint8], at: int) -> None:
    written = 0
    while written < data.size:
        written += os.pwritev(file.fileno(), [data.data[written:]], at + written)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Translate the system's errors to ours, with the name of the original and a remedy."""
    try:
        yield
    except OSError as error:
        raise SnapshotError(
            f"no temporary copy of it: {error.strerror or error}",
            place=name,
            remedy=f"make room in {tempfile.gettempdir()}, or set TMPDIR to another directory",
        ) from error
