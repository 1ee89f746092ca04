"""Walk the unified keyed format: bytes in, positions of keys and values out.

The layout of one key group (`org.apache.flink.runtime.state.FullSnapshotAsyncWriter`)::

    i16 state id
    entries:  i32 key length, key, i32 value length, value
              the key's first bit is set on the last entry of a run; then an i16 follows:
              the next state id, or 0xFFFF at the end of the key group
"""

from __future__ import annotations

import numpy as np

from statelake.state_core.kernels.bytes_at import i32
from statelake.state_core.kernels.compiler import inlined, kernel

DONE = 0
FULL = 1
MORE = 2
BAD_LENGTH = 3
BAD_PREFIX = 4
BAD_STATE = 5

# cells of the `progress` array, input and output
GROUP, POSITION, STATE, COUNT = 0, 1, 2, 3

END_OF_KEY_GROUP = 0xFFFF
BETWEEN_RUNS = -1


@inlined
def _u16(data, at):
    return (np.int64(data[np.uintp(at)]) << 8) | np.int64(data[np.uintp(at + 1)])


@kernel(
    "int64(U8R, I32R, I64R, I64R, int64, int64, boolean, I64, I16, I64, I64, I64, I64, I64)",
)
def scan_unified(
    data, groups, starts, ends, prefix, states, ended,
    progress, state_of, group_of, key_start, key_end, value_start, value_end,
):  # fmt: skip
    """Fill the entry table from the position in `progress` on, and return the reason to stop.

    Args:
        data: The window's bytes.
        groups: The key groups in it, in order of position.
        starts, ends: The bounds of each in `data`; the last may be cut off.
        prefix: Bytes of the key-group prefix, 1 or 2.
        states: The number of states in the header.
        ended: Whether the last key group ends in this window.
        progress: In and out: index into `groups`, position, current state id (-1 if one must be
            read), entries filled.
        state_of, group_of: Per entry.
        key_start, key_end: Per entry, without the key-group prefix.
        value_start, value_end: Per entry.

    Returns:
        `DONE`, `FULL` (the table is full), `MORE` (more bytes are needed), or a fault at
        `progress`.
    """
    group, at, state, count = progress[GROUP], progress[POSITION], progress[STATE], progress[COUNT]
    capacity = state_of.size
    status = DONE
    while group < groups.size:
        end = ends[group]
        expected = np.int64(groups[group])
        open_ended = group == groups.size - 1 and not ended
        closed = False
        while True:
            if state == BETWEEN_RUNS:
                if at + 2 > end:
                    status = MORE if open_ended else BAD_LENGTH
                    break
                state = _u16(data, at)
                if state == END_OF_KEY_GROUP:
                    at += 2
                    closed = True
                    break
                if state >= states:
                    status = BAD_STATE
                    break
                at += 2
            if count == capacity:
                status = FULL
                break
            if at + 4 > end:
                status = MORE if open_ended else BAD_LENGTH
                break
            key_length = i32(data, at)
            value_at = at + 4 + key_length
            if key_length < prefix:
                status = BAD_LENGTH
                break
            if value_at + 4 > end:
                status = MORE if open_ended else BAD_LENGTH
                break
            value_length = i32(data, value_at)
            if value_length < 0:
                status = BAD_LENGTH
                break
            next_at = value_at + 4 + value_length
            if next_at > end:
                status = MORE if open_ended else BAD_LENGTH
                break
            first = np.int64(data[np.uintp(at + 4)])
            key_group = first & 0x7F
            if prefix == 2:
                key_group = (key_group << 8) | np.int64(data[np.uintp(at + 5)])
            if key_group != expected:
                status = BAD_PREFIX
                break
            state_of[count] = state
            group_of[count] = expected
            key_start[count] = at + 4 + prefix
            key_end[count] = value_at
            value_start[count] = value_at + 4
            value_end[count] = next_at
            count += 1
            at = next_at
            if first & 0x80:
                state = BETWEEN_RUNS
        if not closed:
            break
        group += 1
        state = BETWEEN_RUNS
        if group < groups.size:
            at = starts[group]
    progress[GROUP], progress[POSITION], progress[STATE], progress[COUNT] = group, at, state, count
    return status
