"""Bytes searched for many short ones at once, after Wu and Manber.

A window as long as the shortest sought one moves over the bytes. What its last three bytes say is
how far it may move; where they end one of those that are sought, these are compared.

Source: Wu, Manber: A Fast Algorithm for Multi-Pattern Searching, 1994.
"""

from __future__ import annotations

import numpy as np

from state_core.kernels.compiler import inlined, kernel

__all__ = ["BLOCK_BYTES", "TABLE_BITS", "block_of", "find_any"]

BLOCK_BYTES = 3
TABLE_BITS = 16


@inlined
def _block(data, at):
    """Which place in the table the three bytes before `at` have."""
    last = np.uint32(data[np.uintp(at - 1)])
    middle = np.uint32(data[np.uintp(at - 2)])
    first = np.uint32(data[np.uintp(at - 3)])
    joined = np.uint32(first | middle << np.uint32(8) | last << np.uint32(16))
    return np.uint32(joined * np.uint32(2654435761)) >> np.uint32(32 - TABLE_BITS)


def block_of(data: bytes) -> int:
    """The same of three bytes, for whoever makes the table."""
    return (int.from_bytes(data, "little") * 2654435761 & 0xFFFFFFFF) >> (32 - TABLE_BITS)


@kernel("int64(U8R, int64, int64, U8R, I32R, I32R, U8R, I64R, I64, I64)", counted=False)
def find_any(data, start, window, shifts, heads, following, words, bounds, positions, found):
    """Where any of some words is.

    Args:
        data: The bytes.
        start: Where to begin.
        window: The length of the shortest word, `BLOCK_BYTES` or more.
        shifts: By block: how far the window may move; 0 where it ends the beginning of a word.
        heads: By block: the first of the words whose beginning it ends, or -1.
        following: By word: the next one of the same block, or -1.
        words: All words, one after the other.
        bounds: Where each begins, and where the last ends.
        positions: Filled with where words are.
        found: Filled with which they are; how many is in the last place.

    Returns:
        Where to go on; the number of bytes at the end.
    """
    size, count = len(data), np.int64(0)
    at = start + window
    while at <= size:
        block = _block(data, at)
        shift = np.int64(shifts[np.uintp(block)])
        if shift:
            at += shift
            continue
        first = at - window
        word = np.int64(heads[np.uintp(block)])
        while word >= 0:
            begin, end = bounds[np.uintp(word)], bounds[np.uintp(word + 1)]
            if first + end - begin <= size:
                same = True
                for step in range(end - begin):
                    if data[np.uintp(first + step)] != words[np.uintp(begin + step)]:
                        same = False
                        break
                if same:
                    if count == len(positions):
                        found[len(positions)] = count
                        return first
                    positions[np.uintp(count)] = first
                    found[np.uintp(count)] = word
                    count += 1
            word = np.int64(following[np.uintp(word)])
        at += 1
    found[len(positions)] = count
    return np.int64(size)
