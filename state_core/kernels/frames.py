"""Snappy-framed streams: walking their chunks without decompressing them, framing small pieces."""

from __future__ import annotations

import numpy as np

from statelake.state_core.kernels.compiler import kernel

HEAD, CHECKSUM = 4, 4
COMPRESSED, PLAIN, FIRST_SKIPPABLE, IDENTIFIER = 0x00, 0x01, 0x80, 0xFF
MAX_CONTENT = 65536
START, AT, CONTENT, WANTED = range(4)
FULL, CUT_OFF, FAULTY = range(3)
POLYNOMIAL = 0x82F63B78  # CRC-32C, its bits reversed
ONES, MASK_ROTATION, MASK_DELTA = 0xFFFFFFFF, 15, 0xA282EAD8


def _table():
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(POLYNOMIAL), table >> 1)
    return table.astype(np.uint32)


CRC_TABLE = _table()


@kernel("int64(U8R, I64, I64)")
def walk_frames(data, starts, contents):
    """Find each chunk, and its declared content size.

    Args:
        data: The frames.
        starts, contents: Filled, per chunk; at least a fifth of the bytes of `data` long.

    Returns:
        The number of chunks, or -1 - position for an invalid chunk.
    """
    at = np.int64(0)
    count = np.int64(0)
    while at < data.size:
        if at + HEAD > data.size:
            return -1 - at
        kind = np.int64(data[np.uintp(at)])
        length = np.int64(0)
        for step in range(3):
            length |= np.int64(data[np.uintp(at + 1 + step)]) << (8 * step)
        if at + HEAD + length > data.size:
            return -1 - at
        content = np.int64(0)
        if kind < FIRST_SKIPPABLE:
            if kind > PLAIN or length <= CHECKSUM:
                return -1 - at
            content = length - CHECKSUM
            if kind == COMPRESSED:
                content = np.int64(0)
                for step in range(min(np.int64(3), length - CHECKSUM)):
                    byte = np.int64(data[np.uintp(at + HEAD + CHECKSUM + step)])
                    content |= (byte & 0x7F) << (7 * step)
                    if byte < 0x80:
                        break
            if content <= 0 or content > MAX_CONTENT:
                return -1 - at
        starts[count] = at
        contents[count] = content
        count += 1
        at += HEAD + length
    return count


@kernel("int64(U8R, int64, I64)")
def walk_run(data, room, progress):
    """Walk whole chunks with up to `room` bytes of content, or one larger chunk.

    Args:
        data: The frames.
        room: The largest content of the run.
        progress: The walk starts at `AT`, and leaves its end there; chunks without content in front
            of the run are left out, so the run begins at `START`, and has `CONTENT` bytes; a chunk
            that is `CUT_OFF` needs `WANTED` bytes.

    Returns:
        `FULL`, `CUT_OFF` for an incomplete chunk, `FAULTY` for one that is or may be invalid.
    """
    at = start = np.int64(progress[AT])
    size = np.int64(data.size)
    total = np.int64(0)
    status = np.int64(FULL)
    while total < room:
        if at + HEAD > size:
            progress[WANTED] = HEAD
            status = np.int64(CUT_OFF)
            break
        kind = np.int64(data[np.uintp(at)])
        length = (
            np.int64(data[np.uintp(at + 1)])
            | np.int64(data[np.uintp(at + 2)]) << 8
            | np.int64(data[np.uintp(at + 3)]) << 16
        )
        if at + HEAD + length > size:
            progress[WANTED] = HEAD + length
            status = np.int64(CUT_OFF)
            break
        content = length - CHECKSUM
        if kind == COMPRESSED and content > 0:
            content = np.int64(0)
            for step in range(min(np.int64(3), length - CHECKSUM)):
                byte = np.int64(data[np.uintp(at + HEAD + CHECKSUM + step)])
                content |= (byte & 0x7F) << (7 * step)
                if byte < 0x80:
                    break
        if kind > PLAIN:
            if kind < FIRST_SKIPPABLE or kind == IDENTIFIER:
                status = np.int64(FAULTY)
                break
            content = np.int64(0)
        elif content <= 0 or content > MAX_CONTENT:
            status = np.int64(FAULTY)
            break
        if total + content > room and total:
            break
        at += HEAD + length
        total += content
        if not total:
            start = at
    progress[START] = start
    progress[AT] = at
    progress[CONTENT] = total
    return status


@kernel("void(U8R, I64R, U8R, I64R, U32R, U8, I64)")
def frame_pieces(data, bounds, packed, packed_bounds, table, out, at):
    """Write each piece as one chunk: compressed, unless that hardly makes it smaller.

    Args:
        data: The pieces.
        bounds: The start of each, and the end of the last one.
        packed: The compressed pieces.
        packed_bounds: The bounds of the compressed pieces.
        table: The table of the checksum.
        out: The output, with room for all pieces uncompressed.
        at: Filled with the start of each chunk there, and the end of the last one.
    """
    to = np.int64(0)
    for index in range(bounds.size - 1):
        at[index] = to
        start, end = np.int64(bounds[index]), np.int64(bounds[index + 1])
        crc = np.int64(ONES)
        body = to + HEAD + CHECKSUM
        for position in range(start, end):
            byte = data[np.uintp(position)]
            crc = np.int64(table[np.uintp((crc ^ byte) & 0xFF)]) ^ (crc >> 8)
            out[np.uintp(body + position - start)] = byte
        crc ^= ONES
        crc = (crc >> MASK_ROTATION | crc << (32 - MASK_ROTATION)) & ONES
        crc = (crc + MASK_DELTA) & ONES
        kind = np.int64(PLAIN)
        length = end - start
        first, last = np.int64(packed_bounds[index]), np.int64(packed_bounds[index + 1])
        if last - first < length - length // 8:
            kind = np.int64(COMPRESSED)
            length = last - first
            for position in range(first, last):
                out[np.uintp(body + position - first)] = packed[np.uintp(position)]
        out[np.uintp(to)] = np.uint8(kind)
        for step in range(3):
            out[np.uintp(to + 1 + step)] = np.uint8((length + CHECKSUM) >> (8 * step) & 0xFF)
        for step in range(4):
            out[np.uintp(to + HEAD + step)] = np.uint8(crc >> (8 * step) & 0xFF)
        to = body + length
    at[bounds.size - 1] = to
