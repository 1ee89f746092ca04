"""Walk the chunks of a Snappy-framed stream without decompressing it."""

from __future__ import annotations

from numba import types

from state_core.kernels.compiler import I64, U8R, kernel

__all__ = ["walk_frames"]

HEAD, CHECKSUM = 4, 4
COMPRESSED, PLAIN, FIRST_SKIPPABLE = 0x00, 0x01, 0x80
MAX_CONTENT = 65536


@kernel(types.int64(U8R, I64, I64))
def walk_frames(data, starts, contents):
    """Where each chunk begins, and the bytes that it says it holds.

    Args:
        data: The frames.
        starts, contents: Filled, per chunk; at least a fifth of the bytes of `data` long.

    Returns:
        The number of chunks, or -1 - position of the chunk that is none.
    """
    at = types.int64(0)
    count = types.int64(0)
    while at < data.size:
        if at + HEAD > data.size:
            return -1 - at
        kind = types.int64(data[types.uintp(at)])
        length = types.int64(0)
        for step in range(3):
            length |= types.int64(data[types.uintp(at + 1 + step)]) << (8 * step)
        if at + HEAD + length > data.size:
            return -1 - at
        content = types.int64(0)
        if kind < FIRST_SKIPPABLE:
            if kind > PLAIN or length <= CHECKSUM:
                return -1 - at
            content = length - CHECKSUM
            if kind == COMPRESSED:
                content = types.int64(0)
                for step in range(min(types.int64(3), length - CHECKSUM)):
                    byte = types.int64(data[types.uintp(at + HEAD + CHECKSUM + step)])
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
