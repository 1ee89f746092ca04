"""Snapshot compression: Snappy in its framing format, read as streams, a window at a time.

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

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import cramjam
import numpy as np
import numpy.typing as npt
import snappy

from statelake.state_core.errors import (
    CorruptSnapshotError,
    EncodeError,
    StateError,
    UnsupportedFormatError,
)
from statelake.state_core.files.filesystem import ByteSource

# `kernels.frames` is imported for compressed streams alone
# ruff: noqa: PLC0415

COMPRESSION_KEY = "execution.checkpointing.snapshot-compression"
IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
READ_BLOCK = 1 << 20
RUN_CONTENT = 1 << 21
HELD = 2 * READ_BLOCK
HEAD = 4
ROOM = len(IDENTIFIER)  # kept free before a run, for the identifier that the decoder needs
CHECKSUM = 4
CHUNK_CONTENT = 65536

INCOMPRESSIBLE = 16  # Snappy leaves anything this short as it is
SMALL_PIECE = 1 << 11  # up to here a chunk costs less than a stream of its own

COMPRESSED, PLAIN, IDENTIFIER_CHUNK = 0x00, 0x01, 0xFF


class StateStream(Protocol):
    """A stream of content that is read from front to back into the caller's buffer."""

    def read_into(self, out: npt.NDArray[np.uint8]) -> int:
        """Fill `out` as far as possible; fewer bytes than its size mean that the end is reached."""

    def mark(self) -> tuple[int, int]:
        """Return the place from which the next read can resume.

        Returns:
            An offset in the source, and the number of bytes of content to skip from there.
        """


class PlainStream:
    """A part of a source, uncompressed."""

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

    def mark(self) -> tuple[int, int]:
        """Return the place from which the next read can resume."""
        return self.position, 0


class SnappyStream:
    """A part of a source that holds Snappy frames, decompressed.

    Args:
        source: The bytes that hold the frames.
        start: Offset of the first frame. It need not be a stream identifier: in operator state an
            offset points behind it.
        end: Offset behind the last frame.
        up_to_break: Whether corruption ends the content after the last good chunk, and is kept as
            `error`, instead of being raised.

    Attributes:
        error: The corruption that ended the content, or None.
        borders: Offsets at which the content behind each stream identifier begins.
    """

    def __init__(
        self, source: ByteSource, start: int, end: int, *, up_to_break: bool = False
    ) -> None:
        self.source = source
        self.position = start
        self.end = end
        self.error: StateError | None = None
        self.borders: list[int] = []
        self._content = 0
        self._up_to_break = up_to_break
        self._held = np.empty(ROOM + min(HELD, end - start), np.uint8)
        self._at = self._behind = ROOM
        self._left = np.empty(0, np.uint8)
        self._left_from = (0, 0)  # the chunk that the rest comes from, and its size

    def read_into(self, out: npt.NDArray[np.uint8]) -> int:
        """Decompress as many chunks as fit, and keep the rest of the last one."""
        done = min(out.size, self._left.size)
        out[:done] = self._left[:done]
        self._left = self._left[done:]
        while done < out.size and self.error is None:
            try:
                count = self._read_run(out[done:])
            except StateError as error:
                if not self._up_to_break:
                    raise
                self.error = copy(error)  # without the traceback, whose frames hold this
                break
            if count == 0:
                break
            done += count
        return done

    def mark(self) -> tuple[int, int]:
        """Return the place of the next read: a chunk, and the bytes of its content to skip."""
        if not self._left.size:
            return self._offset_of(self._at), 0
        chunk, content = self._left_from
        return chunk, content - self._left.size

    def _offset_of(self, at: int) -> int:
        """Return the offset in the source of a position in the buffer."""
        return self.position - (self._behind - at)

    def _read_run(self, out: npt.NDArray[np.uint8]) -> int:
        """Decompress the next chunks, or the part of one that fits; return the number of bytes."""
        chunks, content = self._next_run(1 if self._up_to_break else min(out.size, RUN_CONTENT))
        if content <= out.size:
            if content:
                self._decompress(chunks, out[:content])
            return content
        chunk = np.empty(content, np.uint8)
        self._decompress(chunks, chunk)
        self._left_from = self._offset_of(self._at - (chunks.size - ROOM)), content
        out[:] = chunk[: out.size]
        self._left = chunk[out.size :]
        return out.size

    def _next_run(self, room: int) -> tuple[npt.NDArray[np.uint8], int]:
        """Return whole chunks with up to `room` bytes of content, or one larger; and their size."""
        from statelake.state_core.kernels import frames

        self._hold(READ_BLOCK)
        progress = np.zeros(4, np.int64)
        while True:
            progress[frames.AT] = self._at
            status = frames.walk_run(self._held[: self._behind], room, progress)
            start, self._at, content, size = progress.tolist()
            if content:
                self._content += content
                return self._held[start - ROOM : self._at], content
            if status == frames.FAULTY:
                self._pass_chunk()
            elif not self._hold_chunk(size):
                return self._held[:0], 0

    def _pass_chunk(self) -> None:
        """Skip a stream identifier or a skippable chunk; refuse any other."""
        kind, *length_bytes = self._held[self._at : self._at + HEAD].tolist()
        length = int.from_bytes(bytes(length_bytes), "little")
        self._check(kind, self._at + HEAD, length)
        self._at += HEAD + length

    def _hold_chunk(self, count: int) -> bool:
        """Buffer the `count` bytes of a chunk; return False at the end."""
        self._hold(count)
        if self._behind == self._at:
            return False
        if self._behind - self._at < count:
            raise self._fault("a Snappy chunk is cut off")
        return True

    def _hold(self, count: int) -> None:
        """Read on until `count` bytes are buffered, or the end is reached."""
        kept = self._held[self._at : self._behind]
        if kept.size >= count or self.position == self.end:
            return
        more = min(max(READ_BLOCK, count - kept.size), self.end - self.position)
        if ROOM + kept.size + more > self._held.size:
            self._held = np.empty(ROOM + kept.size + more, np.uint8)
        self._held[ROOM : ROOM + kept.size] = kept
        self._at, self._behind = ROOM, ROOM + kept.size + more
        self.source.read_into(self.position, self._held[self._behind - more : self._behind])
        self.position += more

    def _check(self, kind: int, at: int, length: int) -> None:
        """Refuse a chunk that is neither content nor skippable, nor the identifier."""
        if kind == IDENTIFIER_CHUNK:
            if self._held[at : at + length].tobytes() != IDENTIFIER[HEAD:]:
                raise self._fault("a stream identifier that is not Snappy's")
            self.borders.append(self._content)
            return
        if kind > PLAIN or length <= CHECKSUM:
            raise self._fault(f"a Snappy chunk of type {kind:#04x} and {length} bytes")
        size = length - CHECKSUM
        if kind == COMPRESSED:
            size = 0
            for shift, byte in enumerate(self._held[at + CHECKSUM : at + CHECKSUM + 3].tolist()):
                size |= (byte & 0x7F) << 7 * shift
                if byte < 0x80:
                    break
        raise self._fault(f"a Snappy chunk that claims {size} bytes of content")

    def _decompress(self, chunks: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8]) -> None:
        chunks[:ROOM] = np.frombuffer(IDENTIFIER, np.uint8)
        try:
            written = cramjam.snappy.decompress_into(chunks.data, out.data)
        except cramjam.DecompressionError as error:
            raise self._fault(f"Snappy frames that do not decompress ({error})") from error
        if written != out.size:
            raise self._fault(f"Snappy frames of {out.size} bytes that gave {written}")

    def _fault(self, problem: str) -> CorruptSnapshotError:
        return CorruptSnapshotError(
            problem,
            place=f"{self.source.name}, near offset {self._offset_of(self._at)}",
            remedy="the file is damaged or was not copied whole: fetch it again",
        )


def open_stream(source: ByteSource, start: int, end: int, *, compressed: bool) -> StateStream:
    """Open a part of a source as a stream of its content."""
    kind = SnappyStream if compressed else PlainStream
    return kind(source, start, end)


def compress_snappy(data: bytes | memoryview) -> memoryview:
    """Return a whole framed stream of `data`, identifier included."""
    size = len(data)
    if size <= CHUNK_CONTENT:
        return memoryview(snappy.StreamCompressor().compress(bytes(data)))
    out = np.empty(ROOM + size + (size // CHUNK_CONTENT + 1) * (HEAD + CHECKSUM), np.uint8)
    return out.data[: cramjam.snappy.compress_into(data, out.data)]


def compress_pieces(
    data: bytes, bounds: npt.NDArray[np.int64]
) -> tuple[memoryview, npt.NDArray[np.int64]]:
    """Compress each piece to chunks of its own, without the stream's identifier.

    Args:
        data: The pieces, concatenated.
        bounds: Offset of each piece in it, and the end of the last one.

    Returns:
        The chunks, and the number of bytes of each piece's chunks.
    """
    lengths = np.diff(bounds)
    chunks = int((lengths // CHUNK_CONTENT + 1).sum())
    out = np.empty(ROOM + len(data) + chunks * (HEAD + CHECKSUM), np.uint8)
    at = np.zeros(len(bounds), np.int64)
    if lengths.max(initial=0) > SMALL_PIECE or lengths.min(initial=1) == 0:
        _frame_streams(data, bounds, out.data, at)
        return out.data[ROOM : ROOM + at[-1]], np.diff(at)
    packed, packed_bounds = data, bounds
    if lengths.max(initial=0) > INCOMPRESSIBLE:
        view = memoryview(data)
        parts = [cramjam.snappy.compress_raw(view[a:b]) for a, b in pairwise(bounds.tolist())]
        packed = b"".join(parts)
        packed_bounds = np.cumsum(np.fromiter((0, *map(len, parts)), np.int64, len(bounds)))
    from statelake.state_core.kernels import frames

    frames.frame_pieces(
        np.frombuffer(data, np.uint8), bounds, np.frombuffer(packed, np.uint8), packed_bounds,
        frames.CRC_TABLE, out, at,
    )  # fmt: skip
    return out.data[: at[-1]], np.diff(at)


def _frame_streams(
    data: bytes, bounds: npt.NDArray[np.int64], out: memoryview, at: npt.NDArray[np.int64]
) -> None:
    """Frame pieces one by one, each identifier written over the last bytes before the piece."""
    view = memoryview(data)
    to = 0
    for index, (start, end) in enumerate(pairwise(bounds.tolist())):
        if end > start:
            kept = bytes(out[to : to + ROOM])
            to += cramjam.snappy.compress_into(view[start:end], out[to:]) - ROOM
            begin = int(at[index])
            out[begin : begin + ROOM] = kept
        at[index + 1] = to


@dataclass(frozen=True)
class Codec:
    """A compression of state that Flink knows.

    Attributes:
        name: Its name in `--compression`.
        compress: Compresses bytes to a whole stream.
        stream: Reads such a stream.
    """

    name: str
    compress: Callable[[bytes | memoryview], memoryview]
    stream: type[SnappyStream]


# Flink's files say only whether they are compressed, and that means Snappy; add another codec here.
CODECS = {"snappy": Codec("snappy", compress_snappy, SnappyStream)}


def codec_named(name: str) -> Codec:
    """Return the codec of a name.

    Raises:
        UnsupportedFormatError: There is no such codec.
    """
    if name not in CODECS:
        raise UnsupportedFormatError(
            f"no codec {name!r}", remedy=f"choose one of: {', '.join(CODECS)}, none"
        )
    return CODECS[name]


def configured_compression(conf: Mapping[str, str], compression: str | None = None) -> str | None:
    """Return the compression in Flink's configuration: `snappy` or `none`.

    Args:
        conf: Flink's configuration; only `COMPRESSION_KEY` is read here.
        compression: The compression from an option, which must not contradict; it is returned if
            the configuration does not set one.

    Raises:
        EncodeError: Another key, a value that is not a boolean, or a contradiction.
    """
    unknown = sorted(set(conf) - {COMPRESSION_KEY})
    if unknown:
        raise EncodeError(
            f"{unknown[0]!r} has no meaning for a snapshot that is written here",
            remedy=f"the only key that has: {COMPRESSION_KEY}=true|false",
        )
    if COMPRESSION_KEY not in conf:
        return compression
    configured = {"true": "snappy", "false": "none"}.get(str(conf[COMPRESSION_KEY]).lower())
    if configured is None:
        raise EncodeError(f"{COMPRESSION_KEY} is {conf[COMPRESSION_KEY]!r}: true or false")
    if compression not in (None, configured):
        raise EncodeError(
            f"{COMPRESSION_KEY}={conf[COMPRESSION_KEY]} and compression {compression!r}",
            remedy="say one of them",
        )
    return configured
