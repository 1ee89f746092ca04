"""Blocks of RocksDB's table files: read, verified by their checksums, and decompressed.

Source: `table/format.cc` of RocksDB 8.10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cramjam
import numpy as np
import xxhash

from statelake.state_core.bounds import BLOCK_BYTES, INDEX_BYTES, Bound
from statelake.state_core.errors import CorruptSnapshotError
from statelake.state_core.files.filesystem import ByteSource
from statelake.state_core.kernels.sst import (
    CRC_TABLES,
    NO_COMPRESSION,
    SLACK,
    SNAPPY,
    TRAILER,
    block_crcs,
    entries_end,
    read_index,
    snappy_sizes,
    unpack_blocks,
)
from statelake.state_core.serializers.framework.columns import I64Array, U8Array

NO_CHECKSUM, CRC32C, XXHASH, XXHASH64, XXH3 = range(5)
LAST_BYTE_PRIME = 0x6B9083D9
U32 = 0xFFFFFFFF
BZIP2, LZ4, LZ4HC, ZSTD = 3, 4, 5, 7
LARGEST_RATIO = {BZIP2: 1 << 17, LZ4: 256, LZ4HC: 256, ZSTD: 1 << 15}
MAX_VARINT = 10
_CONTENT = "a block that does not hold what it says"
NO_INDEX = "a malformed index"


@dataclass(frozen=True)
class BlockRun:
    """Consecutive blocks of a file, as stored.

    Attributes:
        raw: The blocks' bytes.
        offset: The offset of the bytes in the file.
        starts: The start of each block in them.
        ends: The end of each block, where its trailer begins.
        sizes: The decompressed size of each block.
    """

    raw: U8Array
    offset: int
    starts: I64Array
    ends: I64Array
    sizes: I64Array


@dataclass(frozen=True)
class BlockReader:
    """A reader of a file's blocks."""

    source: ByteSource
    checksum: int

    def fault(self, problem: str, offset: int) -> CorruptSnapshotError:
        """Return the error of a block at an offset."""
        return CorruptSnapshotError(
            f"RocksDB can't read its files ({problem})",
            place=f"{self.source.name}, block at offset {offset}",
            remedy="a file is missing or damaged: copy the whole checkpoint, with `shared`",
        )

    def blocks(self, offsets: I64Array, sizes: I64Array) -> BlockRun:
        """Return blocks as stored, verified."""
        first = int(offsets[0])
        length = int(offsets[-1]) + int(sizes[-1]) + TRAILER - first
        if length > self.source.size - first:
            raise self.fault("a block that ends behind the file", int(offsets[-1]))
        raw = np.empty(length + SLACK, np.uint8)
        self.source.read_into(first, raw[:length])
        starts = offsets - first
        ends = starts + sizes
        self._check(raw, starts, ends, first)
        return BlockRun(raw, first, starts, ends, self._sizes(raw, starts, ends, first))

    def _check(self, raw: U8Array, starts: I64Array, ends: I64Array, first: int) -> None:
        if self.checksum == NO_CHECKSUM:
            return
        stored = raw[ends + 1].astype(np.int64)
        for byte in range(1, 4):
            stored |= raw[ends + 1 + byte].astype(np.int64) << 8 * byte
        checksums = np.empty(len(starts), np.int64)
        if self.checksum == CRC32C:
            block_crcs(raw, starts, ends, CRC_TABLES, checksums)
        else:
            data: Any = raw.data
            hashed = _HASHES[self.checksum]
            last = self.checksum != XXH3  # otherwise the last byte is mixed in afterwards
            pairs = zip(starts.tolist(), (ends + last).tolist(), strict=True)
            checksums[:] = [hashed(data[start:end]) & U32 for start, end in pairs]
            if not last:
                checksums ^= raw[ends].astype(np.int64) * LAST_BYTE_PRIME & U32
        wrong = np.flatnonzero(stored != checksums)
        if wrong.size:
            raise self.fault("block checksum mismatch", first + int(starts[wrong[0]]))

    def _sizes(self, raw: U8Array, starts: I64Array, ends: I64Array, first: int) -> I64Array:
        kinds = raw[ends]
        sizes = ends - starts
        snappy = np.flatnonzero(kinds == SNAPPY)
        if snappy.size:
            unpacked = np.empty(snappy.size, np.int64)
            snappy_sizes(raw, starts[snappy], ends[snappy], unpacked)
            sizes[snappy] = unpacked
        for index in np.flatnonzero((kinds != SNAPPY) & (kinds != NO_COMPRESSION)).tolist():
            kind, start, end = int(kinds[index]), int(starts[index]), int(ends[index])
            if kind not in LARGEST_RATIO:
                raise self.fault(f"compression of type {kind}, which is not known", first + start)
            size, _ = read_varint(raw[start : min(end, start + MAX_VARINT)].tobytes())
            fits = 0 <= size <= LARGEST_RATIO[kind] * (end - start) + (1 << 17)
            sizes[index] = size if fits else -1
        wrong = np.flatnonzero(sizes < 0)
        if wrong.size:
            raise self.fault(_CONTENT, first + int(starts[wrong[0]]))
        if sizes.size and sizes.max() > BLOCK_BYTES.allowed(self.source.size):
            place = f"{self.source.name}, block at offset {first + int(starts[sizes.argmax()])}"
            raise BLOCK_BYTES.exceeded(int(sizes.max()), place, self.source.size)
        return sizes

    def unpack(self, run: BlockRun, blocks: slice, out: U8Array) -> tuple[I64Array, I64Array]:
        """Decompress blocks, concatenated with 8 spare bytes at the end; return their bounds."""
        starts, ends, sizes = run.starts[blocks], run.ends[blocks], run.sizes[blocks]
        behind = np.cumsum(sizes)
        to = behind - sizes
        wrong = int(unpack_blocks(run.raw, starts, ends, out, to, behind))
        kinds = run.raw[ends]
        for index in np.flatnonzero((kinds != SNAPPY) & (kinds != NO_COMPRESSION)).tolist():
            block = run.raw[starts[index] : ends[index]]
            size, skipped = read_varint(block[:MAX_VARINT].tobytes())
            unpacker = _UNPACKERS[int(kinds[index])]
            target = out[to[index] : behind[index]]
            try:
                done = unpacker(block[skipped:], target)
            except Exception as error:
                at = run.offset + int(starts[index])
                raise self.fault(_CONTENT, at) from error
            if done != size:
                wrong = index
                break
        behind_values = np.empty(len(to), np.int64)
        if wrong < 0:
            wrong = int(entries_end(out, to, behind, behind_values))
        if wrong >= 0:
            raise self.fault(_CONTENT, run.offset + int(starts[wrong]))
        return to, behind_values

    def stored(self, offset: int, size: int) -> BlockRun:
        """Return the block of a handle, as stored."""
        if not 0 <= offset <= self.source.size or not 0 <= size <= self.source.size:
            raise self.fault("a handle that leads out of the file", offset)
        return self.blocks(np.array([offset], np.int64), np.array([size], np.int64))

    def block(self, offset: int, size: int, bound: Bound = INDEX_BYTES) -> U8Array:
        """Return the entries of one block, that of an index or of properties by default."""
        run = self.stored(offset, size)
        if int(run.sizes[0]) > bound.allowed(self.source.size):
            place = f"{self.source.name}, block at offset {offset}"
            raise bound.exceeded(int(run.sizes[0]), place, self.source.size)
        out = np.empty(int(run.sizes[0]) + SLACK, np.uint8)
        _, ends = self.unpack(run, slice(None), out)
        return out[: int(ends[0])]

    def pairs(
        self, offset: int, size: int, bound: Bound = INDEX_BYTES
    ) -> list[tuple[bytes, bytes]]:
        """Return keys and values of one block, that of an index or of properties by default."""
        data = self.block(offset, size, bound).tobytes()
        pairs = []
        at, key = 0, b""
        while at < len(data):
            shared, at = read_varint(data, at)
            fresh, at = read_varint(data, at)
            length, at = read_varint(data, at)
            if shared > len(key) or fresh > len(data) - at or length > len(data) - at - fresh:
                raise self.fault(_CONTENT, offset)
            key = key[:shared] + data[at : at + fresh]
            at += fresh + length
            pairs.append((key, data[at - length : at]))
        return pairs

    def index(
        self, offset: int, size: int, tail: int, delta: int, prefix: int
    ) -> tuple[I64Array, ...]:
        """Return key groups, offsets and sizes of the blocks that an index block lists."""
        data = self.block(offset, size)
        columns = [np.empty(data.size // 2 + 1, np.int64) for _ in range(3)]
        count = int(read_index(data, data.size, tail, delta, prefix, *columns))
        if count < 0:
            raise self.fault(NO_INDEX, offset)
        return tuple(column[:count] for column in columns)

    def check_order(self, index: tuple[I64Array, ...], offset: int) -> None:
        """Refuse an index whose data blocks overlap, or are not within the file."""
        groups, offsets, sizes = index
        behind = np.minimum(sizes, self.source.size) + offsets + TRAILER
        if (
            (np.maximum(offsets, sizes) > self.source.size).any()
            or (behind > self.source.size).any()
            or (offsets[1:] < behind[:-1]).any()
            or (np.diff(groups) < 0).any()
        ):
            raise self.fault("an index whose blocks don't follow each other", offset)


_HASHES: dict[int, Any] = {
    XXHASH: xxhash.xxh32_intdigest,
    XXHASH64: xxhash.xxh64_intdigest,
    XXH3: xxhash.xxh3_64_intdigest,
}


def read_varint(data: bytes, at: int = 0) -> tuple[int, int]:
    """Return a number and its end; one that breaks off is as large as its bytes."""
    value = 0
    for shift in range(0, 7 * MAX_VARINT, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 1 << 7:
            break
    return value, at


def _unpack_lz4(block: Any, out: Any) -> int:
    done: int = cramjam.lz4.decompress_block_into(block, out, output_len=len(out))
    return done


def _unpack_zstd(block: Any, out: Any) -> int:
    done: int = cramjam.zstd.decompress_into(block, out)
    return done


def _unpack_bzip2(block: Any, out: Any) -> int:
    done: int = cramjam.bzip2.decompress_into(block, out)
    return done


_UNPACKERS = {BZIP2: _unpack_bzip2, LZ4: _unpack_lz4, LZ4HC: _unpack_lz4, ZSTD: _unpack_zstd}
