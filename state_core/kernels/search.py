"""Search of bytes for many words at once, by the algorithm of Wu and Manber.

A window as long as the shortest word moves over the bytes. Its last three bytes determine how far
it may move. If they end a word, the window's hash selects the words with that end; only these are
compared. Words differ more often in their ends than in their beginnings.

Source: Wu, Manber: A Fast Algorithm for Multi-Pattern Searching, 1994.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from statelake.state_core.kernels.compiler import inlined, kernel

BLOCK_BYTES = 3
SHIFT_BITS = 16
FACTOR, PRIME = 2654435761, 16777619


@inlined
def _block(data, at):
    """Return the index of the three bytes before `at` in the table of shifts."""
    last = np.uint32(data[np.uintp(at - 1)])
    middle = np.uint32(data[np.uintp(at - 2)])
    first = np.uint32(data[np.uintp(at - 3)])
    joined = np.uint32(first | middle << np.uint32(8) | last << np.uint32(16))
    return np.uint32(joined * np.uint32(FACTOR)) >> np.uint32(32 - SHIFT_BITS)


def hashes_of(
    windows: npt.NDArray[np.uint8],
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Return the hashes of blocks at each place of some windows, and those of the windows.

    Args:
        windows: Rows of equal numbers of bytes, `BLOCK_BYTES` or more.

    Returns:
        A column for each place from the third byte on, and a hash for each row.
    """
    wide = windows.astype(np.uint32)
    joined = wide[:, :-2] | wide[:, 1:-1] << np.uint32(8) | wide[:, 2:] << np.uint32(16)
    blocks = joined * np.uint32(FACTOR) >> np.uint32(32 - SHIFT_BITS)
    hashes = np.zeros(len(windows), np.uint32)
    for column in range(windows.shape[1]):
        hashes = (hashes ^ wide[:, column]) * np.uint32(PRIME)
    return blocks, hashes ^ hashes >> np.uint32(15)


@kernel("int64(U8R, int64, U8R, I32R, I32R, U8R, I64R, I64, I64)")
def find_any(data, window, shifts, heads, following, words, bounds, positions, indexes):
    """Find all occurrences of some words.

    Args:
        data: The bytes.
        window: The length of the shortest word, `BLOCK_BYTES` or more.
        shifts: By block: the distance that the window may move; 0 at the end of a word.
        heads: By the last bits of a window's hash: the first word with that end, or -1.
        following: By word: the next one with the same bits, or -1.
        words: All words, concatenated.
        bounds: The start of each, and the end of the last one.
        positions: Filled with the positions of words, until it is full.
        indexes: Filled with the indexes of these words.

    Returns:
        The number of occurrences.
    """
    size, count = len(data), np.int64(0)
    mask = np.uint32(len(heads) - 1)
    at = window
    while at <= size and count < len(positions):
        shift = np.int64(shifts[np.uintp(_block(data, at))])
        if shift:
            at += shift
            continue
        hashed = np.uint32(0)
        for step in range(at - window, at):
            hashed = np.uint32((hashed ^ np.uint32(data[np.uintp(step)])) * np.uint32(PRIME))
        hashed = np.uint32(hashed ^ hashed >> np.uint32(15))
        word = np.int64(heads[np.uintp(hashed & mask)])
        while word >= 0 and count < len(positions):
            begin, end = bounds[np.uintp(word)], bounds[np.uintp(word + 1)]
            first = at - (end - begin)
            same = first >= 0
            for step in range(end - begin):
                if not same:
                    break
                byte = data[np.uintp(at - 1 - step)]
                same = byte == words[np.uintp(end - 1 - step)]
            if same:
                positions[np.uintp(count)] = first
                indexes[np.uintp(count)] = word
                count += 1
            word = np.int64(following[np.uintp(word)])
        at += 1
    return count
