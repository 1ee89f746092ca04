"""The heads of POJOs, and their fields with a null flag before each.

A POJO in state is a flags byte and then, unless it is null, its fields; or a tag or a class name
and then a value of that subclass's own serializer. Kernels have the arguments and results of those
of `decode`.
"""

from __future__ import annotations

import numpy as np

from statelake.state_core.kernels.compiler import helper, kernel
from statelake.state_core.kernels.skip import IS_EXACT, IS_NULL, IS_SUBCLASS, IS_TAGGED

# the kinds of heads: null, this very class, a known subclass from 1 on, an unknown subclass
NULL, EXACT, UNKNOWN = -1, 0, -2
# cells of the `totals` array
NULLS, SUBCLASSES, UNKNOWNS = 0, 1, 2


@helper
def _find_name(data, at, size, offsets, names, subclasses):
    """Return the subclass of the class name at `at`, or -1."""
    for index in range(offsets.size - 1):
        start = np.int64(offsets[index])
        if np.int64(offsets[index + 1]) - start != size:
            continue
        same = True
        for step in range(size):
            if data[np.uintp(at + step)] != names[np.uintp(start + step)]:
                same = False
                break
        if same:
            return np.int64(subclasses[index])
    return np.int64(-1)


@kernel("int64(U8R, I64, I64R, U8R, int64, I32R, U8R, I32R, I16, U8, I64)")
def read_heads(
    data, position, end, present, tagged, offsets, names, subclasses, kind, inexact, totals
):
    """Read the kind of each row, and set the cursor behind its head.

    Rows that are not of this very class, or whose flags have more bits than they need, are marked
    inexact.

    Args:
        tagged: The number of subclasses with tags, which come first among the known ones.
        offsets, names: Class names, in Java's modified UTF-8.
        subclasses: The index of each name among the known subclasses.
        kind: Filled: `NULL`, `EXACT`, `UNKNOWN`, or 1 and more, a known subclass.
        totals: Nulls, subclasses, unknown subclasses.
    """
    for row in range(position.size):
        if present.size and present[row] == 0:
            kind[row] = NULL
            continue
        at = position[row]
        stop = end[row]
        if at >= stop:
            return np.int64(row)
        flags = np.int64(data[np.uintp(at)])
        at += 1
        head = np.int64(EXACT)
        if flags == IS_EXACT:
            pass
        elif flags & IS_NULL:
            head = np.int64(NULL)
            totals[NULLS] += 1
            if flags != IS_NULL:
                inexact[row] = 1
        elif flags & IS_SUBCLASS:
            if at + 2 > stop:
                return np.int64(row)
            size = np.int64(data[np.uintp(at)]) << 8 | np.int64(data[np.uintp(at + 1)])
            at += 2
            if size > stop - at:
                return np.int64(row)
            index = _find_name(data, at, size, offsets, names, subclasses)
            at += size
            head = 1 + index if index >= 0 else np.int64(UNKNOWN)
        elif flags & IS_TAGGED:
            if at >= stop:
                return np.int64(row)
            tag = np.int64(data[np.uintp(at)])
            at += 1
            if tag >= tagged:
                return np.int64(row)
            head = 1 + tag
        elif flags & IS_EXACT:
            inexact[row] = 1
        else:
            return np.int64(row)
        if head > EXACT:
            inexact[row] = 1
            totals[SUBCLASSES] += 1
        elif head == UNKNOWN:
            totals[UNKNOWNS] += 1
        kind[row] = head
        position[row] = at
    return np.int64(-1)
