"""Merge of runs of RocksDB's blocks: entry by entry in order of keys, the newest version of each.

A run is a sequence of blocks whose keys ascend. Each has a cursor into its blocks, and the key at
the cursor; `order` lists the runs that have a current entry, by key, the newest first among equal
keys. The output is each key with its newest value. Deleted keys are left out. Elements that were
appended to a list (merge operands) are joined to the older value, oldest first.

Source: `db/dbformat.h`, `db/db_iter.cc`, `utilities/merge_operators/string_append/stringappend2.cc`
of RocksDB 8.10.
"""

from __future__ import annotations

import numpy as np

from statelake.state_core.kernels.bytes_at import compare, copy, u8, varint
from statelake.state_core.kernels.compiler import inlined, kernel

DELETION, VALUE, MERGE, SINGLE_DELETION = 0, 1, 2, 7
DELIMITER = 44
TAG_BYTES = 8

# cells of a cursor: its position in the run's data, the end of the block's entries, that block and
# the one behind the last, the user key's size, its version, its value, whether it waits for blocks,
# whether its blocks are the first of the run
AT, END, BLOCK, BLOCKS_BEHIND, KEY_SIZE, TAG, VALUE_START, VALUE_END, WAITING, FRESH = range(10)
CURSOR = 10

# cells of the state: runs at an entry; rows and bytes of the output; the current key there and the
# knowledge about it; collected elements and their bytes; the next key group; for a status, the run,
# its fault, the wanted size; whether the first wanted key was reached
LIVE, ROWS, POSITION, KEY_START, KEY_BEHIND, OPEN = range(6)
PIECES, SCRATCH, GROUP, RUN, WHY, WANTED, REACHED = range(6, 13)
STATE_CELLS = 13

NOTHING, DECIDED, COLLECTING, COLLECTED = range(4)  # the knowledge about the current key
DONE, WANTING, FULL, GROWING_KEYS, GROWING_PIECES, FAULT = range(6)
NO_ENTRY, NO_KEY, UNKNOWN_KIND, UNORDERED, STRAYED = range(5)
READY = -1


@inlined
def _advance(run, data, room, starts, ends, blocks, cursors, keys, key_room, state):
    """Move a cursor to its next entry; return `READY`, or the status that stops it."""
    cursor = run * CURSOR
    at, end = cursors[cursor + AT], cursors[cursor + END]
    key_size = cursors[cursor + KEY_SIZE] + TAG_BYTES
    while at >= end:
        block = cursors[cursor + BLOCK] + 1
        if block >= cursors[cursor + BLOCKS_BEHIND]:
            return np.int64(WANTING)
        at, end = starts[run * blocks + block], ends[run * blocks + block]
        key_size = np.int64(0)
        cursors[cursor + BLOCK] = block
        cursors[cursor + AT] = at
        cursors[cursor + END] = end
        cursors[cursor + KEY_SIZE] = -TAG_BYTES
    base = run * room
    at += base
    end += base
    shared, at = varint(data, at, end)
    fresh, at = varint(data, at, end)
    length, at = varint(data, at, end)
    if at > end or shared > key_size or fresh > end - at or length > end - at - fresh:
        state[WHY] = NO_ENTRY
        return np.int64(FAULT)
    size = shared + fresh - TAG_BYTES
    if size < 0:
        state[WHY] = NO_ENTRY
        return np.int64(FAULT)
    if size + TAG_BYTES > key_room:
        state[WANTED] = size + TAG_BYTES
        return np.int64(GROWING_KEYS)
    key = run * key_room
    copy(data, at, keys, key + shared, fresh)
    tag = np.int64(0)
    for step in range(TAG_BYTES):
        tag |= u8(keys, key + size + step) << (8 * step)
    at += fresh
    cursors[cursor + KEY_SIZE] = size
    cursors[cursor + TAG] = tag
    cursors[cursor + VALUE_START] = at - base
    cursors[cursor + VALUE_END] = at - base + length
    cursors[cursor + AT] = at - base + length
    return np.int64(READY)


@inlined
def _before(left, right, cursors, keys, key_room):
    """Return whether one run's entry comes before another's."""
    change = compare(
        keys, left * key_room, cursors[left * CURSOR + KEY_SIZE],
        keys, right * key_room, cursors[right * CURSOR + KEY_SIZE],
    )  # fmt: skip
    if change:
        return change < 0
    return cursors[left * CURSOR + TAG] > cursors[right * CURSOR + TAG]


@inlined
def _insert(run, first, live, order, cursors, keys, key_room):
    """Insert a run into the sorted `order[first:live]`; the place before `first` is free."""
    low, high = first, live
    if low < high and _before(run, order[low], cursors, keys, key_room):
        high = low
    elif low < high:
        low += 1
    while low < high:
        middle = (low + high) >> 1
        if _before(order[middle], run, cursors, keys, key_room):
            low = middle + 1
        else:
            high = middle
    for place in range(first, low):
        order[place - 1] = order[place]
    order[low - 1] = run


@inlined
def _first_waiting(cursors, runs):
    """Return a run that waits for blocks, or -1."""
    for run in range(runs):
        if cursors[run * CURSOR + WAITING]:
            return np.int64(run)
    return np.int64(-1)


@kernel(
    "int64(U8R, int64, I64R, I64R, int64, I64, U8, int64, I64, I64, U8, I64, int64, U8R, int64, "
    "int64, int64, int64, int64, U8, I16, I64, I64, I64, I64)",
)
def merge_runs(
    data, room, starts, ends, blocks, cursors, keys, key_room, order, state, scratch, pieces,
    prefix, bounds, first_size, first_group, behind_group, last, label,
    out, state_of, group_of, key_start, value_start, value_end,
):  # fmt: skip
    """Output entries until the end, or until something is needed, as the status says.

    Args:
        data: The blocks of each run, decompressed, `room` bytes for each run.
        room: The bytes of each run in `data`.
        starts, ends: The bounds of each block's entries there, `blocks` for each run.
        blocks: The number of blocks of each run in `starts` and `ends`.
        cursors: `CURSOR` cells for each run.
        keys: The key at each cursor, with its tag, `key_room` bytes for each run.
        key_room: The bytes of each run in `keys`.
        order: The runs at an entry.
        state: `STATE_CELLS` cells.
        scratch: Elements of the current key's list, newest first.
        pieces: The length of each.
        prefix: Bytes of the key-group prefix.
        bounds: The first wanted key, followed by the first one that is not wanted any more.
        first_size: The length of the first, at whose end the second begins.
        first_group, behind_group: The key groups of these two keys.
        last: The last wanted key group.
        label: The value for `state_of`.
        out: Keys and values, entry by entry.
        state_of, group_of, key_start, value_start, value_end: Filled, one element for each row. A
        key starts after the prefix of its key group, and ends where its value starts.

    Returns:
        `DONE` if no wanted key is left: `state[GROUP]` is then the next key group, or -1 if there
        is none; `WANTING` if a run has no blocks left (it is marked as waiting); `FULL`;
        `GROWING_KEYS` and `GROWING_PIECES` if there is too little room for these; `FAULT`.
    """
    live = state[LIVE]
    rows, at = state[ROWS], state[POSITION]
    status = np.int64(DONE)
    group = np.int64(-1)
    moving = _first_waiting(cursors, order.size)
    while True:
        if moving >= 0:
            # a run that waited, or the first one
            cursor = moving * CURSOR
            joins = cursors[cursor + WAITING] != 0
            status = _advance(
                moving, data, room, starts, ends, blocks, cursors, keys, key_room, state
            )
            if status != READY:
                if not joins:
                    for place in range(1, live):
                        order[place - 1] = order[place]
                    live -= 1
                    cursors[cursor + WAITING] = 1
                state[RUN] = moving
                break
            if joins:
                cursors[cursor + WAITING] = 0
                for place in range(live, 0, -1):
                    order[place] = order[place - 1]
                live += 1
            if live > 1 or joins:
                _insert(moving, np.int64(1), live, order, cursors, keys, key_room)
            moving = _first_waiting(cursors, order.size) if joins else np.int64(-1)
            if moving >= 0:
                continue
        run = np.int64(0)
        size = np.int64(0)
        key = np.int64(0)
        group = np.int64(-1)
        fresh = True
        if live:
            run = order[0]
            key = run * key_room
            size = cursors[run * CURSOR + KEY_SIZE]
            if size < prefix:
                state[RUN] = run
                state[WHY] = NO_KEY
                status = np.int64(FAULT)
                break
            group = np.int64(0)
            for step in range(prefix):
                group = group << 8 | u8(keys, key + step)
            if state[OPEN] != NOTHING:
                begin = state[KEY_START]
                change = compare(keys, key, size, out, begin, state[KEY_BEHIND] - begin)
                if change < 0:
                    state[RUN] = run
                    state[WHY] = UNORDERED
                    status = np.int64(FAULT)
                    break
                fresh = change != 0
        if fresh and state[OPEN] >= COLLECTING:
            # all versions of a list were seen: its elements follow its key
            count = state[PIECES]
            begin = state[KEY_BEHIND]
            size = state[SCRATCH] + count - 1
            if rows == state_of.size or begin + size > out.size:
                state[WANTED] = begin - state[KEY_START] + size
                status = np.int64(FULL)
                break
            to = begin
            piece_end = state[SCRATCH]
            for piece in range(count - 1, -1, -1):
                if piece < count - 1:
                    out[np.uintp(to)] = DELIMITER
                    to += 1
                piece_start = piece_end - pieces[piece]
                copy(scratch, piece_start, out, to, piece_end - piece_start)
                to += piece_end - piece_start
                piece_end = piece_start
            state_of[rows] = label
            key_group = np.int64(0)
            for step in range(prefix):
                key_group = key_group << 8 | u8(out, state[KEY_START] + step)
            group_of[rows] = key_group
            key_start[rows] = state[KEY_START] + prefix
            value_start[rows] = begin
            value_end[rows] = to
            rows += 1
            at = to
            state[PIECES] = 0
            state[SCRATCH] = 0
            state[OPEN] = DECIDED
            continue
        if group >= behind_group and (
            group > behind_group
            or compare(keys, key, size, bounds, first_size, bounds.size - first_size) >= 0
        ):
            state[OPEN] = NOTHING
            status = np.int64(DONE)
            group = np.int64(-1)
            break
        if not live or group > last:
            state[OPEN] = NOTHING
            status = np.int64(DONE)
            break
        cursor = run * CURSOR
        if group < first_group or (
            state[REACHED] == 0
            and group == first_group
            and compare(keys, key, size, bounds, 0, first_size) < 0
        ):
            if cursors[cursor + BLOCK] > 0 or not cursors[cursor + FRESH]:
                state[RUN] = run
                state[WHY] = STRAYED
                status = np.int64(FAULT)
                break
        else:
            state[REACHED] = 1
            kind = cursors[cursor + TAG] & 0xFF
            begin = cursors[cursor + VALUE_START] + run * room
            length = cursors[cursor + VALUE_END] + run * room - begin
            if kind != VALUE and kind != MERGE and kind != DELETION and kind != SINGLE_DELETION:
                state[RUN] = run
                state[WHY] = UNKNOWN_KIND
                status = np.int64(FAULT)
                break
            if fresh:
                gathered = kind == MERGE
            else:
                gathered = state[OPEN] == COLLECTING and (kind == MERGE or kind == VALUE)
            count, filled = state[PIECES], state[SCRATCH]
            if gathered and (count == pieces.size or filled + length > scratch.size):
                state[WANTED] = filled + length
                status = np.int64(GROWING_PIECES)
                break
            if fresh:
                if rows == state_of.size or at + size + length > out.size:
                    state[WANTED] = size + length
                    status = np.int64(FULL)
                    break
                copy(keys, key, out, at, size)
                state[KEY_START] = at
                state[KEY_BEHIND] = at + size
                state[OPEN] = COLLECTING if gathered else DECIDED
                if kind == VALUE:
                    state_of[rows] = label
                    group_of[rows] = group
                    key_start[rows] = at + prefix
                    at += size
                    value_start[rows] = at
                    copy(data, begin, out, at, length)
                    at += length
                    value_end[rows] = at
                    rows += 1
            elif state[OPEN] == COLLECTING and kind != MERGE:
                state[OPEN] = COLLECTED
            if gathered:
                copy(data, begin, scratch, filled, length)
                pieces[count] = length
                state[PIECES] = count + 1
                state[SCRATCH] = filled + length
        moving = run
    state[LIVE] = live
    state[ROWS] = rows
    state[POSITION] = at
    state[GROUP] = group
    return status
