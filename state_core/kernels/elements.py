"""Starts of the elements of a stream between two operators, each with its length in front."""

from __future__ import annotations

import numpy as np

from statelake.state_core.kernels.bytes_at import i32
from statelake.state_core.kernels.compiler import kernel

LENGTH_BYTES = 4
# for each tag, including it: the least size of a record, the exact size of all others
LEAST = np.array([9, 1, 9, 29, 5, 2, 13], np.int64)


@kernel("int64(U8R, I64R, I64, U8)")
def walk_elements(data, least, starts, tags):
    """Walk elements, up to the first that is not whole.

    Args:
        data: The bytes of a channel.
        least: `LEAST`.
        starts: Filled with the position of each tag, and that of the next one behind the last; its
            length is a fifth of the bytes of `data` and one.
        tags: Filled with the tags.

    Returns:
        The number of elements, or -1 for bytes that are not an element.
    """
    at = np.int64(0)
    count = np.int64(0)
    while at + 4 < data.size:
        length = i32(data, at)
        tag = np.int64(data[np.uintp(at + 4)])
        if tag >= least.size:
            return np.int64(-1)
        if length < least[np.uintp(tag)] or (tag > 1 and length > least[np.uintp(tag)]):
            return np.int64(-1)
        if at + 4 + length > data.size:
            break
        starts[np.uintp(count)] = at + 4
        tags[np.uintp(count)] = np.uint8(tag)
        count += 1
        at += 4 + length
    starts[np.uintp(count)] = at + 4
    return count
