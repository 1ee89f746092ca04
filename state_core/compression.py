"""Snapshot compression: Snappy in its framing format, as streams that are read a window at a time.

::

    stream identifier:  FF 06 00 00 "sNaPpY"
    chunk:              u8 type, u24 length (little-endian), u32 masked CRC-32C, payload
                        type 00 compressed, 01 not; FE and 80..FD are skipped; the rest is refused
                        at most 65,536 bytes of content each

Flink writes one such stream for each key group of the unified format. It reads without checking
checksums; we check them. A chunk says how large it becomes before anything is decompressed, so
memory stays within the caller's buffer whatever a file claims.

Source: `org.apache.flink.runtime.state.SnappyStreamCompressionDecorator`, and the framing format
description of the Snappy project.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import cramjam
import numpy as np
import numpy.typing as npt

from state_core.errors import CorruptSnapshotError, UnsupportedFormatError
from state_core.filesystem import ByteSource

__all__ = [
    "CODECS",
    "IDENTIFIER",
    "Codec",
    "PlainStream",
    "SnappyStream",
    "StateStream",
    "codec_named",
    "compress_snappy",
    "open_stream",
]

IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
MAX_CHUNK_CONTENT = 65536
READ_BLOCK = 1 << 20
RUN_CONTENT = 1 << 20
HEAD = 4
ROOM = len(IDENTIFIER)  # kept free before a run, whose decoder wants a whole stream
CHECKSUM = 4

COMPRESSED, PLAIN, IDENTIFIER_CHUNK, FIRST_SKIPPABLE = 0x00, 0x01, 0xFF, 0x80


class StateStream(Protocol):
    """Content that is read from front to back into the caller's buffer."""

    def read_into(self, out: npt.NDArray[np.uint8]) -> int:
        """Fill `out` as far as possible; fewer bytes than it holds mean that the end is reached."""


class PlainStream:
    """A part of a source as it is."""

    def __init__(self, source: ByteSource, start: int, end: int) -> None:
        self.source = source
        self.position = start
        self.end = end

    def read_into(self, out: npt.NDArray[np.uint8]) -> int:
        """Copy from the source."""
        count = min(out.size, self.end - self.position)
        self.source.read_into(self.position, out[:count])
        self.position += count
        return count


class SnappyStream:
    """A part of a source that holds Snappy frames, decompressed.

    Args:
        source: Where the frames lie.
        start: Where the first lies. It need not be a stream identifier: in operator state an
            offset points behind it.
        end: Behind the last.
    """

    def __init__(self, source: ByteSource, start: int, end: int) -> None:
        self.source = source
        self.position = start
        self.end = end
        self._held = np.empty(ROOM, np.uint8)
        self._at = ROOM
        self._left = np.empty(0, np.uint8)

    def read_into(self, out: npt.NDArray[np.uint8]) -> int:
        """Decompress as many chunks as fit, and keep the rest of the last one."""
        done = min(out.size, self._left.size)
        out[:done] = self._left[:done]
        self._left = self._left[done:]
        while done < out.size:
            room = out.size - done
            frames, content = self._next_run(min(room, RUN_CONTENT))
            if content == 0:
                break
            if content <= room:
                self._decompress(frames, out[done : done + content])
                done += content
            else:
                chunk = np.empty(content, np.uint8)
                self._decompress(frames, chunk)
                out[done:] = chunk[:room]
                self._left = chunk[room:]
                done = out.size
        return done

    def _next_run(self, room: int) -> tuple[npt.NDArray[np.uint8], int]:
        """Whole chunks with up to `room` bytes of content, or one that has more; and how many."""
        self._hold(READ_BLOCK)
        start, content = self._at, 0
        while content < room:
            if not self._hold_within(HEAD, content):
                break
            kind, *length_bytes = self._held[self._at : self._at + HEAD].tolist()
            length = int.from_bytes(bytes(length_bytes), "little")
            if not self._hold_within(HEAD + length, content):
                break
            start = start if content else self._at
            size = self._content(kind, self._at + HEAD, length)
            if content and content + size > room:
                break
            self._at += HEAD + length
            content += size
        return self._held[start - ROOM : self._at], content

    def _hold_within(self, count: int, content: int) -> bool:
        """Have `count` bytes at hand; False at the end, or where a run is best ended first."""
        if self._held.size - self._at >= count:
            return True
        if content:
            return False
        self._hold(count)
        if self._held.size == self._at:
            return False
        if self._held.size - self._at < count:
            raise self._fault("a Snappy chunk is cut off")
        return True

    def _hold(self, count: int) -> None:
        """Read on until `count` bytes are at hand, or the end is reached."""
        kept = self._held[self._at :]
        if kept.size >= count or self.position == self.end:
            return
        more = min(max(READ_BLOCK, count - kept.size), self.end - self.position)
        held = np.empty(ROOM + kept.size + more, np.uint8)
        held[ROOM : ROOM + kept.size] = kept
        self.source.read_into(self.position, held[ROOM + kept.size :])
        self.position += more
        self._held, self._at = held, ROOM

    def _content(self, kind: int, at: int, length: int) -> int:
        """The bytes that a chunk decompresses to, as it says itself."""
        if kind == IDENTIFIER_CHUNK:
            if self._held[at : at + length].tobytes() != IDENTIFIER[HEAD:]:
                raise self._fault("a stream identifier that is not Snappy's")
            return 0
        if kind >= FIRST_SKIPPABLE:
            return 0
        if kind > PLAIN or length <= CHECKSUM:
            raise self._fault(f"a Snappy chunk of type {kind:#04x} and {length} bytes")
        size = length - CHECKSUM
        if kind == COMPRESSED:
            size = shift = 0
            for byte in self._held[at + CHECKSUM : at + CHECKSUM + 3].tolist():
                size |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
        if not 0 < size <= MAX_CHUNK_CONTENT:
            raise self._fault(f"a Snappy chunk that claims {size} bytes of content")
        return size

    def _decompress(self, frames: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8]) -> None:
        frames[:ROOM] = np.frombuffer(IDENTIFIER, np.uint8)
        try:
            written = cramjam.snappy.decompress_into(frames.data, out.data)
        except cramjam.DecompressionError as error:
            raise self._fault(f"Snappy frames that do not decompress ({error})") from error
        if written != out.size:
            raise self._fault(f"Snappy frames of {out.size} bytes that gave {written}")

    def _fault(self, problem: str) -> CorruptSnapshotError:
        at = self.position - (self._held.size - self._at)
        return CorruptSnapshotError(
            problem,
            place=f"{self.source.name}, near offset {at}",
            remedy="the file is damaged or was not copied whole: fetch it again",
        )


def open_stream(source: ByteSource, start: int, end: int, *, compressed: bool) -> StateStream:
    """The content of a part of a source."""
    kind = SnappyStream if compressed else PlainStream
    return kind(source, start, end)


def compress_snappy(data: bytes | memoryview) -> bytes:
    """A whole framed stream of `data`, identifier included."""
    return bytes(cramjam.snappy.compress(data))


@dataclass(frozen=True)
class Codec:
    """A way to compress state that Flink knows.

    Attributes:
        name: As `--compression` has it.
        compress: A whole stream of some bytes.
        stream: What reads such a stream.
    """

    name: str
    compress: Callable[[bytes | memoryview], bytes]
    stream: type[SnappyStream]


# Flink's files say only whether they are compressed, and that is Snappy; another codec goes here
CODECS = {"snappy": Codec("snappy", compress_snappy, SnappyStream)}


def codec_named(name: str) -> Codec:
    """The codec of that name.

    Raises:
        UnsupportedFormatError: There is none.
    """
    if name not in CODECS:
        raise UnsupportedFormatError(
            f"no codec {name!r}", remedy=f"choose one of: {', '.join(CODECS)}, none"
        )
    return CODECS[name]
