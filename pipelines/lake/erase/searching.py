"""Search bytes for needles: as stored, and in unpacked blocks."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa

from statelake.pipelines.lake.erase.needles import Needle
from statelake.state_core.errors import CorruptSnapshotError
from statelake.state_core.files.filesystem import ByteSource
from statelake.state_core.formats.keyed.rocksdb.sst_file import SstFile
from statelake.state_core.kernels.search import BLOCK_BYTES, SHIFT_BITS, find_any, hashes_of

AT_ONCE = 1024
_GZIP, _ZSTD = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
_FRAMED, _XERIAL = b"\xff\x06\x00\x00sNaPpY", b"\x82SNAPPY\x00"
_MAGIC = re.compile(b"|".join(map(re.escape, (_GZIP, _ZSTD, _FRAMED, _XERIAL))))
_WORD = re.compile(rb"[0-9A-Za-z](?!\x00{3})")  # not the first byte of a length


class Searcher:
    """A search for several needles in bytes, in one pass.

    Args:
        needles: The needles, each of `BLOCK_BYTES` or more.
    """

    def __init__(self, needles: Sequence[Needle]) -> None:
        self.needles = needles
        sizes = [len(needle.data) for needle in needles]
        self.longest = max(sizes, default=0)
        self._window = min(sizes, default=BLOCK_BYTES)
        self._words = np.frombuffer(b"".join(needle.data for needle in needles), np.uint8)
        self._bounds = np.cumsum(np.array([0, *sizes], np.int64))
        ends = b"".join(needle.data[-self._window :] for needle in needles)
        blocks, hashes = hashes_of(np.frombuffer(ends, np.uint8).reshape(-1, self._window))
        farthest = min(self._window - BLOCK_BYTES + 1, 255)
        self._shifts = np.full(1 << SHIFT_BITS, farthest, np.uint8)
        for left, column in enumerate(blocks.T[::-1]):
            closer = np.minimum(self._shifts[column], min(left, 255)).astype(np.uint8)
            np.minimum.at(self._shifts, column, closer)
        self._heads = np.full(1 << max(10, len(needles).bit_length() + 1), -1, np.int32)
        self._following = np.full(max(len(needles), 1), -1, np.int32)
        for number, place in enumerate((hashes & np.uint32(len(self._heads) - 1)).tolist()):
            self._following[number] = self._heads[place]
            self._heads[place] = number

    def find(self, data: bytes | memoryview | pa.Buffer) -> Iterator[tuple[int, Needle]]:
        """Yield the position and the needle of the first matches, at most `AT_ONCE` of them."""
        view = np.frombuffer(data, np.uint8)
        if not self.needles or view.size < self._window:
            return
        view.flags.writeable = False
        positions = np.empty(AT_ONCE, np.int64)
        hits = np.empty(AT_ONCE, np.int64)
        count = find_any(
            view, self._window, self._shifts, self._heads, self._following, self._words,
            self._bounds, positions, hits,
        )  # fmt: skip
        for at, number in zip(positions[:count].tolist(), hits[:count].tolist(), strict=True):
            needle = self.needles[number]
            behind = at + len(needle.data)
            around = view[max(at - 1, 0) : at].tobytes(), view[behind : behind + 4].tobytes()
            if not (needle.digits and any(map(_WORD.match, around))):
                yield at, needle


def unpacked(data: pa.Buffer, limit: int) -> Iterator[tuple[str, bytes]]:
    """Yield the unpacked content of compressed blocks in bytes, each with its name and position.

    Blocks are found by their magic bytes; all of the bytes may also be one raw Snappy block, which
    has no magic bytes. Blocks that do not unpack are skipped.

    Args:
        data: The bytes.
        limit: The largest number of bytes that are unpacked of a block.
    """
    view = memoryview(data).cast("B")
    for match in _MAGIC.finditer(view):
        at, magic = match.start(), match[0]
        if magic == _GZIP:
            yield f"gzip at {at}", _inflated(view[at:], limit)
        elif magic == _ZSTD:
            yield f"zstd at {at}", _streamed(view[at:], limit)
        elif magic == _FRAMED:
            yield f"Snappy at {at}", _joined(_frames(view, at + len(_FRAMED), limit), limit)
        else:
            yield f"Snappy at {at}", _joined(_xerial_blocks(view, at + 16, limit), limit)
    content = _snappy(view, limit)
    if content:
        yield "Snappy at 0", content


def unpacked_table(source: ByteSource) -> Iterator[tuple[str, bytes]]:
    """Yield the entries of the data blocks of one of RocksDB's tables, each key in full.

    A block leaves out the prefix that a key shares with the one before, so that the key is not in
    its bytes.

    Raises:
        CorruptSnapshotError: The table is damaged, or only RocksDB can read it.
    """
    table = SstFile.open(source, 0)
    if table is None:
        raise CorruptSnapshotError("only RocksDB can read it", place=source.name)
    for offset, entries in table.entries():
        yield f"block at {offset}", b"\n".join(part for entry in entries for part in entry)


def _joined(pieces: Iterable[bytes], limit: int) -> bytes:
    """Join pieces, up to the limit."""
    joined = bytearray()
    for piece in pieces:
        joined += piece
        if len(joined) >= limit:
            break
    return bytes(joined[:limit])


def _inflated(data: memoryview, limit: int) -> bytes:
    try:
        return zlib.decompressobj(31).decompress(data, limit)
    except zlib.error:
        return b""


def _streamed(data: memoryview, limit: int) -> bytes:
    """Unpack a zstd stream, up to the first error."""

    def pieces() -> Iterator[bytes]:
        with (
            suppress(OSError, pa.ArrowException),
            pa.input_stream(pa.BufferReader(data), compression="zstd") as stream,
        ):
            while piece := stream.read(1 << 20):
                yield piece

    return _joined(pieces(), limit)


def _frames(data: memoryview, at: int, limit: int) -> Iterator[bytes]:
    """Yield the contents of frames in Snappy's framing format, up to an invalid frame."""
    while at + 4 <= len(data):
        kind, end = data[at], at + 4 + int.from_bytes(data[at + 1 : at + 4], "little")
        if end > len(data):
            return
        if kind == 0x00:
            yield _snappy(data[at + 8 : end], limit)
        elif kind == 0x01:
            yield bytes(data[at + 8 : end])
        elif not 0x80 <= kind < 0xFF:
            return
        at = end


def _xerial_blocks(data: memoryview, at: int, limit: int) -> Iterator[bytes]:
    """Yield the contents of blocks after their lengths, as in xerial's streams."""
    while at + 4 <= len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        block = _snappy(data[at + 4 : end], limit) if end <= len(data) else b""
        if not block:
            return
        yield block
        at = end


def _snappy(data: memoryview, limit: int) -> bytes:
    """Unpack a raw Snappy block; empty if it is not valid."""
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    # a copy of 64 bytes takes three
    if not 0 < size <= min(len(data) * 32, limit):
        return b""
    try:
        return bytes(pa.Codec("snappy").decompress(pa.py_buffer(data), size, asbytes=True))
    except (OSError, pa.ArrowException, ValueError):
        return b""
