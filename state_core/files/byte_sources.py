"""Byte sources with random access: in memory, or in a file (`filesystem`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from statelake.state_core.errors import TruncatedError


class ByteSource(Protocol):
    """Bytes with random access, readable from several threads at once."""

    @property
    def name(self) -> str:
        """Name of the source, for messages."""

    @property
    def size(self) -> int:
        """Number of bytes."""

    def read_into(self, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """Fill `out` with the bytes from `offset` on.

        Raises:
            TruncatedError: The source is shorter.
        """


@dataclass(frozen=True)
class InlineSource:
    """Bytes in memory."""

    name: str
    data: bytes

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self.data)

    def read_into(self, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """Copy from memory."""
        content = np.frombuffer(self.data, np.uint8)[offset : offset + out.size]
        if content.size < out.size:
            raise too_short(self.name, offset, out.size, content.size)
        out[:] = content


def too_short(name: str, offset: int, wanted: int, found: int) -> TruncatedError:
    """Return the error of a source that ends too soon."""
    return TruncatedError(
        f"{wanted} bytes wanted, {found} there",
        place=f"{name}, offset {offset}",
        remedy="the file was cut off: fetch it again",
    )
