"""One block-based table file of RocksDB: its properties, and its blocks by key group.

::

    data blocks, filters, properties, index     each with a trailer of 5 bytes
    footer:  u8 checksum type, handle of the metaindex, handle of the index, zeros up to 41,
             u32 format version, u64 magic

A handle is two varints, offset and size. Every block that is read is verified by its checksum.
Features that Flink does not use by default are not read here: `SstFile.open` returns None.

Source: `table/format.cc`, `table/meta_blocks.cc`, `table/block_based/block_based_table_reader.cc`,
`include/rocksdb/table_properties.h` of RocksDB 8.10.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from statelake.state_core.bounds import BLOCK_BYTES, SST_BYTES, Budget
from statelake.state_core.errors import CorruptSnapshotError
from statelake.state_core.files.filesystem import ByteSource
from statelake.state_core.formats.keyed.rocksdb.sst_blocks import (
    NO_INDEX,
    XXH3,
    BlockReader,
    BlockRun,
    read_varint,
)
from statelake.state_core.kernels.sst import index_keys, index_search
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.serializers.framework.columns import I64Array, U8Array

FOOTER = 53
MAGIC = 0x88E241B785F4CFF7
FIRST_VERSION, LAST_VERSION = 2, 5
COMPARATOR = b"leveldb.BytewiseComparator"
BINARY_SEARCH, TWO_LEVELS = 0, 2
COMPRESSIONS = {b"NoCompression", b"Snappy", b"LZ4", b"LZ4HC", b"ZSTD", b"BZip2"}
PROPERTIES = b"rocksdb.properties"
MEASURED_BYTES = 1 << 20  # bytes to read at once
LONGEST_KEY = 1 << 16  # a longer prefix of a key is not needed to divide a file


@dataclass(frozen=True)
class KeyBounds:
    """A range of consecutive keys, including the key group.

    Attributes:
        first: The first possible key.
        behind: The key behind the range; None if the range has no end.
    """

    first: bytes
    behind: bytes | None = None

    @classmethod
    def of(cls, key_groups: KeyGroupRange, prefix: int) -> KeyBounds:
        """Return the range of some key groups, whose numbers have `prefix` bytes."""
        first, last = (
            group.to_bytes(prefix, "big") for group in (key_groups.first, key_groups.last)
        )
        return cls(first, cls.beginning(last).behind)

    @classmethod
    def beginning(cls, begins: bytes) -> KeyBounds:
        """Return the range of keys that begin with some bytes."""
        head = begins.rstrip(b"\xff")
        return cls(begins, head[:-1] + bytes([head[-1] + 1]) if head else None)

    def first_group(self, prefix: int) -> int:
        """Return the key group of the first key."""
        return _group_of(self.first, prefix)

    def behind_group(self, prefix: int) -> int:
        """Return the key group behind the range; behind all of them if it has no end."""
        if self.behind is None:
            return 1 << 8 * prefix
        return _group_of(self.behind, prefix)

    @property
    def empty(self) -> bool:
        """Return whether the range is empty."""
        return self.behind is not None and self.behind <= self.first


@dataclass(frozen=True)
class SstFile:
    """One table file, with its index.

    Attributes:
        source: Its bytes.
        checksum: The type of the blocks' checksums.
        column_family: The column family's name.
        key_groups: The key group of each data block's last key, or a later one, ascending.
        offsets: The offset of each data block.
        block_sizes: Each data block's size without the trailer.
        index: The position of the index.
        first_key: Its first key, if known from the manifest.
        last_key: Its last key, if known from the manifest.
    """

    source: ByteSource
    checksum: int
    column_family: bytes
    key_groups: I64Array
    offsets: I64Array
    block_sizes: I64Array
    index: _Index
    first_key: bytes = b""
    last_key: bytes | None = None

    @classmethod
    def open(cls, source: ByteSource, prefix: int, *, index_only: bool = False) -> SstFile | None:
        """Read the properties and the index of a table; return None if only RocksDB can read it.

        Args:
            source: The file's bytes.
            prefix: Bytes of the key-group prefix.
            index_only: Whether no data block will be read, so that their format does not matter.

        Raises:
            CorruptSnapshotError: The file is damaged.
            OversizedError: A block of it unpacks to too much.
        """
        if source.size < FOOTER:
            return None
        footer = np.empty(FOOTER, np.uint8)
        source.read_into(source.size - FOOTER, footer)
        data = footer.tobytes()
        version = int.from_bytes(data[-12:-8], "little")
        known = FIRST_VERSION <= version <= LAST_VERSION and data[0] <= XXH3
        if int.from_bytes(data[-8:], "little") != MAGIC or not known:
            return None
        reader = BlockReader(source, data[0])
        at, handles = 1, []
        for _ in range(4):
            number, at = read_varint(data, at)
            handles.append(number)
        metaindex = dict(reader.pairs(handles[0], handles[1]))
        unknown = [handle for name, handle in metaindex.items() if _unknown(name)]
        for handle in unknown:  # RocksDB unpacks them when it opens the file
            offset, behind = read_varint(handle)
            reader.stored(offset, read_varint(handle, behind)[0])
        if PROPERTIES not in metaindex or (unknown and not index_only):
            return None
        offset, behind = read_varint(metaindex[PROPERTIES])
        properties = dict(reader.pairs(offset, read_varint(metaindex[PROPERTIES], behind)[0]))
        kind = _index_type(properties)
        if kind is None or not (index_only or _has_plain_blocks(properties)):
            return None
        user_key = _number(properties, b"rocksdb.index.key.is.user.key")
        delta = _number(properties, b"rocksdb.index.value.is.delta.encoded")
        layout = (0 if user_key else 8, delta, prefix)
        index = reader.index(handles[2], handles[3], *layout)
        reader.check_order(index, handles[2])
        key_groups, offsets, sizes = index
        spots, counts = [(handles[2], handles[3])], [len(offsets)]
        if kind == TWO_LEVELS:
            spots = list(zip(offsets.tolist(), sizes.tolist(), strict=True))
            parts = [reader.index(*spot, *layout) for spot in spots]
            counts = [len(part[0]) for part in parts]
            empty = np.zeros(0, np.int64)
            key_groups, offsets, sizes = (
                np.concatenate([empty, *(part[i] for part in parts)]) for i in range(3)
            )
            reader.check_order((key_groups, offsets, sizes), handles[2])
        family = properties.get(b"rocksdb.column.family.name", b"")
        where = _Index(tuple(spots), tuple(counts), *layout)
        return cls(source, data[0], family, key_groups, offsets, sizes, where)

    def blocks_of(self, bounds: KeyBounds) -> tuple[int, int]:
        """Return the first data block that may have keys of a range, and the block behind the last.

        The index is read if one of the bounds is within a key group.

        Raises:
            CorruptSnapshotError: The index is damaged.
        """
        if self.first_key and bounds.behind is not None and bounds.behind <= self.first_key:
            return 0, 0
        if self.last_key is not None and self.last_key < bounds.first:
            return 0, 0
        count = len(self.offsets)
        behind = count if bounds.behind is None else self._block_of(bounds.behind) + 1
        return self._block_of(bounds.first), min(behind, count)

    def _block_of(self, key: bytes) -> int:
        """Return the first data block that may have keys that are not before this one."""
        prefix = self.index.prefix
        group = _group_of(key, prefix)
        low, high = (
            int(np.searchsorted(self.key_groups, group, side)) for side in ("left", "right")
        )
        if len(key) <= prefix or low == high:
            return low
        wanted = np.frombuffer(key, np.uint8)
        for first, count, offset, data in self._index_blocks(low, high):
            room = np.empty(data.size, np.uint8)
            tail, delta = self.index.tail, self.index.delta
            before = int(index_search(data, data.size, tail, delta, wanted, room))
            if before < 0:
                raise self.fault(NO_INDEX, offset)
            if before < count:
                return min(max(first + before, low), high)
        return high

    def keys_of(self, blocks: I64Array) -> list[bytes]:
        """Return, for each data block, a key not before its own, and before those of the next.

        Args:
            blocks: The data blocks, ascending.

        Raises:
            CorruptSnapshotError: The index is damaged.
        """
        keys: list[bytes] = []
        if not blocks.size:
            return keys
        for first, count, offset, data in self._index_blocks(int(blocks[0]), int(blocks[-1]) + 1):
            wanted = blocks[(blocks >= first) & (blocks < first + count)] - first
            limit = min(LONGEST_KEY, data.size)
            room, out = np.empty(data.size, np.uint8), np.empty(len(wanted) * limit, np.uint8)
            sizes = np.empty(len(wanted), np.int64)
            tail, delta = self.index.tail, self.index.delta
            done = index_keys(data, data.size, tail, delta, wanted, limit, room, out, sizes)
            if done != len(wanted):
                raise self.fault(NO_INDEX, offset)
            keys += [
                out[at * limit : at * limit + size].tobytes()
                for at, size in enumerate(sizes.tolist())
            ]
        return keys

    def _index_blocks(self, low: int, high: int) -> Iterator[tuple[int, int, int, U8Array]]:
        """Yield index blocks of some data blocks: the first, their number, place and entries."""
        reader, first = BlockReader(self.source, self.checksum), 0
        for spot, count in zip(self.index.spots, self.index.counts, strict=True):
            if first < high and low < first + count:
                yield first, count, spot[0], reader.block(*spot)
            first += count

    def read(self, first: int, behind: int) -> BlockRun:
        """Read some data blocks, and verify their checksums.

        Raises:
            CorruptSnapshotError: A block is damaged.
        """
        reader = BlockReader(self.source, self.checksum)
        return reader.blocks(self.offsets[first:behind], self.block_sizes[first:behind])

    def check_unpacked(self, first: int, behind: int) -> int:
        """Return the size of the largest of some data blocks; refuse too much for RocksDB.

        They are read, but not unpacked.

        Raises:
            CorruptSnapshotError: A block is damaged.
            OversizedError: They unpack to too much.
        """
        budget = Budget(self.source.size)
        ends = np.cumsum(self.block_sizes[first:behind])
        cuts = first + 1 + np.flatnonzero(np.diff(ends // MEASURED_BYTES))
        largest = 0
        for start, end in pairwise([first, *cuts.tolist(), behind] if first < behind else []):
            sizes = self.read(start, end).sizes
            budget.spend(SST_BYTES, int(sizes.sum()), self.source.name)
            largest = max(largest, int(sizes.max()))
        return largest

    def unpack(self, run: BlockRun, blocks: slice, out: U8Array) -> tuple[I64Array, I64Array]:
        """Decompress blocks, concatenated; return the start and end of each one's entries.

        Raises:
            CorruptSnapshotError: A block does not match its declared size.
        """
        return BlockReader(self.source, self.checksum).unpack(run, blocks, out)

    def entries(self) -> Iterator[tuple[int, list[tuple[bytes, bytes]]]]:
        """Yield the offset and the entries of each data block, including deletes and old versions.

        Keys end with the 8 bytes that RocksDB appends.

        Raises:
            CorruptSnapshotError: A block is damaged.
        """
        reader = BlockReader(self.source, self.checksum)
        for offset, size in zip(self.offsets.tolist(), self.block_sizes.tolist(), strict=True):
            yield offset, reader.pairs(offset, size, BLOCK_BYTES)

    def fault(self, problem: str, offset: int) -> CorruptSnapshotError:
        """Return the error of a block at an offset."""
        return BlockReader(self.source, self.checksum).fault(problem, offset)


@dataclass(frozen=True)
class _Index:
    """The position and the format of an index.

    Attributes:
        spots: Offset and size of each block of it that lists data blocks.
        counts: The number of data blocks in each.
        tail: Bytes behind the user key in each key.
        delta: Whether values are differences.
        prefix: Bytes of the key-group prefix.
    """

    spots: tuple[tuple[int, int], ...]
    counts: tuple[int, ...]
    tail: int
    delta: int
    prefix: int


def _group_of(key: bytes, prefix: int) -> int:
    """Return the key group of a key; zeros are appended to a bound that is shorter."""
    return int.from_bytes(key[:prefix].ljust(prefix, b"\0"), "big")


def _number(properties: dict[bytes, bytes], name: bytes) -> int:
    return read_varint(properties.get(name, b"\0"))[0]


def _unknown(name: bytes) -> bool:
    """Return whether a meta block changes the meaning of the data blocks."""
    return name.startswith((b"rocksdb.range_del", b"rocksdb.compression_dict"))


def _index_type(properties: dict[bytes, bytes]) -> int | None:
    """Return the format of the index; None if it is not read here."""
    stored = properties.get(b"rocksdb.block.based.table.index.type", bytes(4))
    kind = int.from_bytes(stored, "little")
    known = (
        kind in {BINARY_SEARCH, TWO_LEVELS}
        and properties.get(b"rocksdb.comparator") == COMPARATOR
        and _number({b"": properties.get(b"rocksdb.user.defined.timestamps.persisted", b"\1")}, b"")
    )
    return kind if known else None


def _has_plain_blocks(properties: dict[bytes, bytes]) -> bool:
    """Return whether data blocks have a format that is read here."""
    return (
        properties.get(b"rocksdb.compression") in COMPRESSIONS
        and not _number(properties, b"rocksdb.num.range-deletions")
        and not any(name.startswith(b"rocksdb.external_sst_file") for name in properties)
    )
