"""Blocks of RocksDB's table files: checksums, Snappy, ends of entries, and the index.

A block is `entries, u32 restart points, [hash index], u32 count of restarts`, compressed as a
whole, and has a trailer of a byte for the compression and a checksum of both. Entries are `varint
shared, varint unshared, varint value length, unshared bytes of the key, value`; an index may omit
the length, and store a block's size as the difference from the previous one.

Source: `table/format.cc`, `table/block_based/block.cc`, `data_block_hash_index.cc` of RocksDB 8.10.
"""

from __future__ import annotations

import numpy as np

from statelake.state_core.kernels.bytes_at import compare, copy, move8, u8, u32, varint
from statelake.state_core.kernels.compiler import inlined, kernel
from statelake.state_core.kernels.frames import CRC_TABLE

TRAILER = 5
NO_COMPRESSION, SNAPPY = 0, 1
ONES, MASK_ROTATION, MASK_DELTA = 0xFFFFFFFF, 15, 0xA282EAD8
HASH_INDEX = 0x80000000
HASH_INDEX_LIMIT = 1 << 16
SNAPPY_RATIO = 22  # three bytes of a copy become at most 64
SLACK = 8


def _tables():
    """Return tables for eight bytes at a time, concatenated."""
    tables = [CRC_TABLE]
    for _ in range(7):
        last = tables[-1]
        tables.append((last >> 8) ^ CRC_TABLE[last & 0xFF])
    return np.concatenate(tables).astype(np.uint32)


CRC_TABLES = _tables()


@kernel("void(U8R, I64R, I64R, U32R, I64)")
def block_crcs(raw, starts, ends, tables, out):
    """Compute the masked CRC-32C of each block and the byte behind it."""
    for index in range(starts.size):
        crc = np.int64(ONES)
        at = np.int64(starts[index])
        end = np.int64(ends[index]) + 1
        while at + 8 <= end:
            low = u32(raw, at) ^ crc
            high = u32(raw, at + 4)
            crc = np.int64(
                tables[np.uintp(0x700 + (low & 0xFF))]
                ^ tables[np.uintp(0x600 + (low >> 8 & 0xFF))]
                ^ tables[np.uintp(0x500 + (low >> 16 & 0xFF))]
                ^ tables[np.uintp(0x400 + (low >> 24 & 0xFF))]
                ^ tables[np.uintp(0x300 + (high & 0xFF))]
                ^ tables[np.uintp(0x200 + (high >> 8 & 0xFF))]
                ^ tables[np.uintp(0x100 + (high >> 16 & 0xFF))]
                ^ tables[np.uintp(high >> 24 & 0xFF)]
            )
            at += 8
        while at < end:
            crc = np.int64(tables[np.uintp((crc ^ u8(raw, at)) & 0xFF)]) ^ (crc >> 8)
            at += 1
        crc ^= ONES
        crc = (crc >> MASK_ROTATION | crc << (32 - MASK_ROTATION)) & ONES
        out[index] = (crc + MASK_DELTA) & ONES


@kernel("void(U8R, I64R, I64R, I64)")
def snappy_sizes(raw, starts, ends, sizes):
    """Fill in the declared content size of each Snappy block, or -1 if it is impossible."""
    for index in range(starts.size):
        start, end = np.int64(starts[index]), np.int64(ends[index])
        size, at = varint(raw, start, end)
        fits = at <= end and size >= 0 and size <= SNAPPY_RATIO * (end - start)
        sizes[index] = size if fits else np.int64(-1)


@inlined
def _copy_over(data, at, out, to, size):
    """Copy forward, eight bytes at a time; up to seven more are overwritten."""
    done = np.int64(0)
    while done < size:
        move8(data, at + done, out, to + done)
        done += 8


@inlined
def _snappy(data, at, end, out, to, limit):
    """Decompress one block to exactly `to` up to `limit`; return whether that succeeded.

    `out` has 8 more bytes behind `limit`, and `data` behind `end`.
    """
    first = to
    size, at = varint(data, at, end)
    if at > end or size != limit - to:
        return False
    while at < end:
        tag = u8(data, at)
        at += 1
        kind = tag & 3
        length = (tag >> 2) + 1
        if kind == 0:
            if length > 60:
                extra = length - 60
                if at + extra > end:
                    return False
                length = np.int64(0)
                for step in range(extra):
                    length |= u8(data, at + step) << (8 * step)
                length += 1
                at += extra
            if length > end - at or length > limit - to:
                return False
            _copy_over(data, at, out, to, length)
            at += length
            to += length
            continue
        width = np.int64(4) if kind == 3 else kind
        if at + width > end:
            return False
        if kind == 1:
            length = (tag >> 2 & 7) + 4
            offset = (tag >> 5) << 8 | u8(data, at)
        else:
            offset = np.int64(0)
            for step in range(width):
                offset |= u8(data, at + step) << (8 * step)
        at += width
        if offset <= 0 or offset > to - first or length > limit - to:
            return False
        if offset >= 8:
            _copy_over(out, to - offset, out, to, length)
        else:
            for step in range(length):
                out[np.uintp(to + step)] = out[np.uintp(to + step - offset)]
        to += length
    return to == limit


@kernel("int64(U8R, I64R, I64R, U8, I64R, I64R)")
def unpack_blocks(raw, starts, ends, out, to, behind):
    """Decompress blocks of Snappy, and copy uncompressed ones.

    Args:
        raw: The blocks, with 8 more bytes behind the last one.
        starts, ends: The bounds of each; the byte behind it is the compression.
        out: The output, with 8 more bytes behind the last one.
        to, behind: The bounds of each in the output, ascending.

    Returns:
        The first invalid block, or -1.
    """
    for index in range(starts.size):
        start, end = np.int64(starts[index]), np.int64(ends[index])
        kind = u8(raw, end)
        first, limit = np.int64(to[index]), np.int64(behind[index])
        if kind == SNAPPY:
            if not _snappy(raw, start, end, out, first, limit):
                return np.int64(index)
        elif kind == NO_COMPRESSION:
            if end - start != limit - first:
                return np.int64(index)
            _copy_over(raw, start, out, first, end - start)
    return np.int64(-1)


@kernel("int64(U8R, I64R, I64R, I64)")
def entries_end(data, starts, ends, entry_ends):
    """Find the end of each block's entries; return the first invalid block, or -1."""
    for index in range(starts.size):
        start, end = np.int64(starts[index]), np.int64(ends[index]) - 4
        if end < start:
            return np.int64(index)
        restarts = u32(data, end)
        if end + 4 - start <= HASH_INDEX_LIMIT and restarts & HASH_INDEX:
            restarts ^= HASH_INDEX
            end -= 2
            if end < start:
                return np.int64(index)
            end -= u8(data, end) | u8(data, end + 1) << 8
        end -= 4 * restarts
        if restarts == 0 or end < start:
            return np.int64(index)
        entry_ends[index] = end
    return np.int64(-1)


@kernel("int64(U8R, int64, int64, int64, int64, I64, I64, I64)")
def read_index(data, end, tail, delta, prefix, key_groups, offsets, sizes):
    """Read the list of blocks in an index.

    Args:
        data: The index block.
        end: The end of its entries.
        tail: Bytes behind the user key in each key.
        delta: Whether values are differences, and have no length.
        prefix: Bytes of the key-group prefix.
        key_groups: Filled with that of each block's last key, or a later one; at least a third as
            long as `data`, like the rest.
        offsets, sizes: Filled with the offset of each block, and its size without the trailer.

    Returns:
        The number of blocks, or -1 if this is not an index.
    """
    at = np.int64(0)
    count = np.int64(0)
    key_size = np.int64(0)
    head = np.int64(0)  # the first bytes of the key, enough for its key group
    while at < end:
        shared, at = varint(data, at, end)
        fresh, at = varint(data, at, end)
        value_size = np.int64(0)
        if not delta:
            value_size, at = varint(data, at, end)
        if at > end or shared < 0 or shared > key_size or fresh < 0 or fresh > end - at:
            return np.int64(-1)
        key_size = shared + fresh
        group = np.int64(0)
        for position in range(prefix):
            byte = head >> (8 * (prefix - 1 - position)) & 0xFF
            if position >= key_size:
                byte = np.int64(0)
            elif position >= shared:
                byte = u8(data, at + position - shared)
            group = group << 8 | byte
        head = group
        for position in range(max(key_size - tail, np.int64(0)), prefix):
            group &= ~(np.int64(0xFF) << (8 * (prefix - 1 - position)))
        at += fresh
        behind = at + value_size
        if delta and shared:
            change, at = varint(data, at, end)
            change = (change >> 1 & 0x7FFFFFFFFFFFFFFF) ^ -(change & 1)
            offset = offsets[count - 1] + sizes[count - 1] + TRAILER
            size = sizes[count - 1] + change
        else:
            offset, at = varint(data, at, end)
            size, at = varint(data, at, end)
        if at > end or (not delta and at != behind) or offset < 0 or size < 0:
            return np.int64(-1)
        key_groups[count] = group
        offsets[count] = offset
        sizes[count] = size
        count += 1
    return count


@inlined
def _next_key(data, at, end, tail, delta, key, size):
    """Read the next key of an index to `key`; return the entry's end and the key's size, or -1.

    Descending keys are a fault, too; equal ones are allowed: versions of one key in two blocks.
    """
    shared, at = varint(data, at, end)
    fresh, at = varint(data, at, end)
    value_size = np.int64(0)
    if not delta:
        value_size, at = varint(data, at, end)
    bad = at > end or shared < 0 or shared > size or fresh < 0 or fresh > end - at
    if not bad:
        before, now = max(size - tail, np.int64(0)), max(shared + fresh - tail, np.int64(0))
        if min(before, now) < shared:
            bad = now < before
        else:
            bad = compare(data, at, now - shared, key, shared, before - shared) < 0
    if not bad:
        copy(data, at, key, shared, fresh)
        at += fresh
        behind = at + value_size
        _, at = varint(data, at, end)
        if not (delta and shared):
            _, at = varint(data, at, end)
        bad = at > end or (not delta and at != behind)
    return (np.int64(-1), np.int64(0)) if bad else (at, shared + fresh)


@kernel("int64(U8R, int64, int64, int64, U8R, U8)")
def index_search(data, end, tail, delta, wanted, key):
    """Count the blocks in an index whose key is before `wanted`; return -1 if it is not an index.

    Args:
        data: The index block.
        end: The end of its entries.
        tail: Bytes behind the user key in each key.
        delta: Whether values are differences, and have no length.
        wanted: A user key.
        key: Room for a key, as long as `data`.
    """
    at = np.int64(0)
    size = np.int64(0)
    count = np.int64(0)
    while at < end:
        at, size = _next_key(data, at, end, tail, delta, key, size)
        if at < 0:
            return np.int64(-1)
        if compare(key, 0, max(size - tail, np.int64(0)), wanted, 0, wanted.size) >= 0:
            break
        count += 1
    return count


@kernel("int64(U8R, int64, int64, int64, I64R, int64, U8, U8, I64)")
def index_keys(data, end, tail, delta, wanted, limit, key, out, sizes):
    """Read the user keys of some blocks in an index.

    Args:
        data: The index block.
        end: The end of its entries.
        tail: Bytes behind the user key in each key.
        delta: Whether values are differences, and have no length.
        wanted: The blocks, ascending.
        limit: The largest number of bytes of a key in the output.
        key: Room for a key, as long as `data`.
        out: Filled with the keys, `limit` bytes each.
        sizes: Filled with the length of each key.

    Returns:
        The number of these blocks, or -1 if this is not an index.
    """
    at = np.int64(0)
    size = np.int64(0)
    count = np.int64(0)
    done = np.int64(0)
    while at < end and done < wanted.size:
        at, size = _next_key(data, at, end, tail, delta, key, size)
        if at < 0:
            return np.int64(-1)
        if count == wanted[done]:
            sizes[done] = min(max(size - tail, np.int64(0)), limit)
            copy(key, 0, out, done * limit, sizes[done])
            done += 1
        count += 1
    return done
