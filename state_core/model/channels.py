"""Channels with records in flight: the buffers between subtasks in an unaligned checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from statelake.state_core.errors import CorruptSnapshotError, SnapshotError, UnsupportedFormatError
from statelake.state_core.files.file_sources import ByteSource

VERSION_BYTES, LENGTH_BYTES = 4, 4
VERSION = 0
PIECE_BYTES = 64 << 20
_Places: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


class ChannelFile:
    """A file with the buffers of channels, of one or several subtasks of any operators.

    ::

        i32 version 0, then buffers: i32 length, bytes

    Every offset belongs to one channel, so that no byte is read twice.

    Source: `ChannelStateSerializerImpl` in `org.apache.flink.runtime.checkpoint.channel`.

    Args:
        open_: Opens the file; called once.
    """

    def __init__(self, open_: Callable[[], ByteSource]) -> None:
        self._open = open_
        self._source: ByteSource | None = None
        self._claimed: list[int] = []
        self._places: _Places | SnapshotError | None = None

    def claim(self, offsets: Sequence[int]) -> None:
        """Claim the buffers at some offsets for a channel."""
        self._claimed += offsets
        self._places = None

    def read(self, offsets: Sequence[int]) -> list[bytes]:
        """Return the buffers at some claimed offsets, in their order in the file.

        Raises:
            CorruptSnapshotError: There is no buffer at an offset, or an offset is given twice.
            UnsupportedFormatError: The file has another version.
            MissingFileError: The file does not exist.
        """
        if self._source is None:
            self._source = self._open()
        source = self._source
        starts, behind = self._known_places(source)
        places = np.searchsorted(starts, np.sort(np.array(offsets, np.int64)))
        buffers: list[bytes] = []
        # a run of buffers is read at once, unless something large could lie between them
        for piece in np.split(places, np.flatnonzero(np.diff(places) != 1) + 1):
            begin, end = int(starts[piece[0]]), int(behind[piece[-1]])
            if end - begin > PIECE_BYTES:
                buffers += [_read_buffer(source, int(starts[at]), int(behind[at])) for at in piece]
                continue
            data = np.empty(end - begin, np.uint8)
            source.read_into(begin, data)
            buffers += [
                _buffer(data[int(starts[at]) - begin : int(behind[at]) - begin], source, starts[at])
                for at in piece
            ]
        return buffers

    def _known_places(self, source: ByteSource) -> _Places:
        """Return the starts of buffers, ascending, and the latest end of each; computed once."""
        if self._places is None:
            try:
                self._places = self._checked_places(source)
            except SnapshotError as error:
                self._places = error
        if isinstance(self._places, SnapshotError):
            raise self._places.with_traceback(None)
        return self._places

    def _checked_places(self, source: ByteSource) -> _Places:
        version = np.empty(min(VERSION_BYTES, source.size), np.uint8)
        source.read_into(0, version)
        if int.from_bytes(version.tobytes(), "big") != VERSION:
            raise UnsupportedFormatError(
                f"channel state of version {int.from_bytes(version.tobytes(), 'big')}",
                place=source.name,
                remedy=f"Flink writes version {VERSION}",
            )
        starts = np.sort(np.array(self._claimed, np.int64))
        outside = starts[(starts < VERSION_BYTES) | (starts > source.size - LENGTH_BYTES)]
        if outside.size:
            raise _fault(source, int(outside[0]), "no buffer can begin there")
        twice = starts[1:][np.diff(starts) == 0]
        if twice.size:
            raise _fault(source, int(twice[0]), "a buffer that is named twice")
        return starts, np.append(starts[1:], source.size)


def _read_buffer(source: ByteSource, start: int, behind: int) -> bytes:
    """Read the buffer at an offset, and no more than its length and the bounds allow."""
    head = np.empty(LENGTH_BYTES, np.uint8)
    source.read_into(start, head)
    length = int.from_bytes(head.tobytes(), "big", signed=True)
    end = min(behind, start + LENGTH_BYTES + max(0, length))
    data = np.empty(end - start, np.uint8)
    source.read_into(start, data)
    return _buffer(data, source, start)


def _buffer(data: npt.NDArray[np.uint8], source: ByteSource, offset: int) -> bytes:
    """Return the buffer at the beginning of some bytes."""
    length = int.from_bytes(data[:LENGTH_BYTES].tobytes(), "big", signed=True)
    if not 0 <= length <= len(data) - LENGTH_BYTES:
        raise _fault(
            source, int(offset), f"a buffer of {length} bytes, and {len(data) - LENGTH_BYTES} there"
        )
    return data[LENGTH_BYTES : LENGTH_BYTES + length].tobytes()


def _fault(source: ByteSource, offset: int, problem: str) -> CorruptSnapshotError:
    return CorruptSnapshotError(
        problem,
        place=f"{source.name}, offset {offset}",
        remedy="the file is damaged or was not copied whole: fetch it again",
    )


@dataclass(frozen=True)
class Channel:
    """The buffers of one channel of a subtask.

    Attributes:
        operator_id: The operator's id.
        operator: Its uid, or else its id.
        received: Whether the subtask had received them; otherwise it had still to send them.
        subtask: The subtask.
        gate: Its input gate, or its result partition for buffers still to be sent.
        channel: The channel of the gate, which is the sender's subtask; or the subpartition, which
            is the receiver's, for buffers still to be sent.
        size: The bytes of its buffers in the file, with their lengths.
        offsets: Their offsets in the file.
        file: The file.
    """

    operator_id: str
    operator: str
    received: bool
    subtask: int
    gate: int
    channel: int
    size: int
    offsets: tuple[int, ...] = field(repr=False)
    file: ChannelFile = field(compare=False, repr=False)

    @property
    def place(self) -> str:
        """Name of the channel, for messages."""
        kind = ("gate", "channel") if self.received else ("partition", "subpartition")
        where = f"{kind[0]} {self.gate}, {kind[1]} {self.channel}"
        return f"operator {self.operator}, subtask {self.subtask}, {where}"

    def buffers(self) -> list[bytes]:
        """Return its buffers, the oldest first.

        Raises:
            SnapshotError: The file can't be read, or is damaged.
        """
        return self.file.read(self.offsets) if self.offsets else []
