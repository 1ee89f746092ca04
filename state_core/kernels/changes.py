"""Changes of the changelog backend, found by their lengths, and the changed entries.

A change is an i32 length (big-endian) and as many bytes; there is no other index.
"""

from __future__ import annotations

import numpy as np

from statelake.state_core.kernels.bytes_at import compare, i32
from statelake.state_core.kernels.compiler import kernel

LENGTH = 4


@kernel("int64(U8R, int64, I64)")
def skip_changes(data, count, position):
    """Skip changes, as far as their lengths are in a window of bytes.

    Args:
        data: The window.
        count: The number of changes.
        position: The start of the first one; moved behind the last skipped one, possibly behind the
            window.

    Returns:
        The number of skipped changes; its one's complement (negative) if a length is negative.
    """
    at, passed = position[0], np.int64(0)
    while passed < count and at + LENGTH <= len(data):
        length = i32(data, at)
        if length < 0:
            position[0] = at
            return ~passed
        at += LENGTH + length
        passed += 1
    position[0] = at
    return passed


@kernel("int64(U8R, int64, I64, I64)")
def locate_changes(data, at, starts, ends):
    """Find the start and end of each change's bytes.

    Args:
        data: The bytes.
        at: The position of the first length.
        starts: Filled with the start of each.
        ends: Filled with the end of each.

    Returns:
        The end of the last one; negative if they don't fit.
    """
    for row in range(len(starts)):
        if at + LENGTH > len(data):
            return np.int64(-1)
        length = i32(data, at)
        at += LENGTH
        if length < 0 or length > len(data) - at:
            return np.int64(-1)
        starts[row] = at
        at += length
        ends[row] = at
    return at


@kernel("void(U8R, I64R, I64R, U8R, I64R, U8)")
def find_sorted(data, starts, ends, words, bounds, marks):
    """Mark the pieces of bytes that are among some words.

    Args:
        data: The bytes.
        starts: The start of each piece.
        ends: The end of each piece.
        words: The words, ascending by their bytes, concatenated.
        bounds: The start of each word, and the end of the last one.
        marks: Filled with 1 for each piece that is a word, otherwise 0.
    """
    for row in range(len(starts)):
        low, high = np.int64(0), np.int64(len(bounds) - 1)
        start, size = starts[row], ends[row] - starts[row]
        same = np.uint8(0)
        while low < high:
            middle = (low + high) >> 1
            begin = bounds[np.uintp(middle)]
            order = compare(data, start, size, words, begin, bounds[np.uintp(middle + 1)] - begin)
            if order == 0:
                same = np.uint8(1)
                break
            if order < 0:
                high = middle
            else:
                low = middle + 1
        marks[row] = same
