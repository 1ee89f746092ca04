"""Find where values end: an interpreter for one small program per type.

A value of variable size inside a list has no index: to know where the next one begins, this one
must be walked. Each serializer gives a program of int32 words; the interpreter walks many values
with it and records where each begins. Bytes are not copied and nothing is decoded.

=============  =====================================  ==========================================
word           operands                               walks over
=============  =====================================  ==========================================
`FIXED`        n                                      n bytes
`STRING`       -                                      a `StringValue`
`SIZED`        width                                  i32 count, then count * width bytes
`REPEAT`       body length                            i32 count, then count times the body
`WHEN`         wanted, body length                    a flag byte; the body if (flag != 0) == wanted
`EITHER`       length if true, length if false        a flag byte; the first or the second body
`BIGINT`       -                                      a `BigInteger`: 0 null, else length + 4
`BIGDEC`       -                                      a `BigInteger`, then i32 scale unless null
`MASKED`       arity, leading bits, then arity        a bit mask, then the bodies of the fields
               body lengths, then the bodies          whose bit is 0
`POJO`         body length                            flags byte; if null nothing; the body if
                                                      exactly this class; anything else can't be
                                                      walked (a subclass names itself)
=============  =====================================  ==========================================
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from state_core.kernels.compiler import I32R, I64, I64R, U8R, kernel

__all__ = [
    "BIGDEC", "BIGINT", "EITHER", "FIXED", "MASKED", "POJO", "REPEAT", "SIZED", "STRING", "WHEN",
    "count_delimited", "locate_counted", "locate_delimited",
]  # fmt: skip

FIXED = 0
STRING = 1
SIZED = 2
REPEAT = 3
WHEN = 4
EITHER = 5
BIGINT = 6
BIGDEC = 7
MASKED = 8
POJO = 9

MAX_FRAMES = 4096
DELIMITER = 0x2C

POJO_NULL, POJO_EXACT = 1, 2


@njit
def _i32(data, at):
    value = types.int32(0)
    for step in range(4):
        value = (value << types.int32(8)) | types.int32(data[types.uintp(at + step)])
    return types.int64(types.int32(value))


@njit
def _skip_varint(data, at, end):
    """The value and the position behind a LEB128 number, or -1 and -1."""
    value = types.int64(0)
    shift = 0
    while at < end and shift <= 28:
        byte = types.int64(data[types.uintp(at)])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return types.int64(-1), types.int64(-1)


@njit
def _skip_string(data, at, end):
    length, at = _skip_varint(data, at, end)
    if length < 0 or length - 1 > end - at:
        return types.int64(-1)
    left = length - 1
    while left > 0:
        if at >= end:
            return types.int64(-1)
        if data[types.uintp(at)] < 0x80:
            at += 1
            left -= 1
        else:
            unit, at = _skip_varint(data, at, end)
            if unit < 0:
                return types.int64(-1)
            left -= 1
    return at


@njit
def _skip_sized(data, at, end, width):
    if at + 4 > end:
        return types.int64(-1)
    count = _i32(data, at)
    at += 4
    if count < 0 or count * width > end - at:
        return types.int64(-1)
    return at + count * width


@njit
def _skip_bigint(data, at, end, with_scale):
    if at + 4 > end:
        return types.int64(-1)
    tag = _i32(data, at)
    at += 4
    if tag > 4:
        at += tag - 4
    if with_scale and tag != 0:
        at += 4
    return at if tag >= 0 and at <= end else types.int64(-1)


@njit
def skip_one(data, at, end, program, stack):
    """The position behind one value at `at`, or -1 if it does not fit before `end`.

    `stack` holds frames of four words: body start, body end, repetitions left, where to go on.
    """
    depth = 0
    pc = 0
    stop = program.size
    while True:
        while depth > 0 and pc == stack[4 * depth - 3]:
            stack[4 * depth - 2] -= 1
            if stack[4 * depth - 2] > 0:
                pc = stack[4 * depth - 4]
            else:
                pc = stack[4 * depth - 1]
                depth -= 1
        if depth == 0 and pc == stop:
            return at
        if depth + 1 >= MAX_FRAMES:
            return types.int64(-1)
        op = program[pc]
        if op == FIXED:
            at += program[pc + 1]
            pc += 2
        elif op == STRING:
            at = _skip_string(data, at, end)
            pc += 1
        elif op == SIZED:
            at = _skip_sized(data, at, end, types.int64(program[pc + 1]))
            pc += 2
        elif op == BIGINT or op == BIGDEC:
            at = _skip_bigint(data, at, end, op == BIGDEC)
            pc += 1
        elif op == REPEAT:
            body, body_end = pc + 2, pc + 2 + program[pc + 1]
            if at + 4 > end:
                return types.int64(-1)
            count = _i32(data, at)
            at += 4
            if count < 0 or count > end - at:
                return types.int64(-1)
            pc = body_end
            if count > 0 and body_end > body:
                stack[4 * depth] = body
                stack[4 * depth + 1] = body_end
                stack[4 * depth + 2] = count
                stack[4 * depth + 3] = body_end
                depth += 1
                pc = body
        elif op == WHEN or op == EITHER or op == POJO:
            if at >= end:
                return types.int64(-1)
            flag = data[types.uintp(at)]
            at += 1
            if op == WHEN:
                first, last = pc + 3, pc + 3 + program[pc + 2]
                behind = last
                if (flag != 0) != (program[pc + 1] != 0):
                    first = last
            elif op == EITHER:
                split = pc + 3 + program[pc + 1]
                behind = split + program[pc + 2]
                first, last = (pc + 3, split) if flag != 0 else (split, behind)
            else:
                first, last = pc + 2, pc + 2 + program[pc + 1]
                behind = last
                if flag == POJO_NULL:
                    first = last
                elif flag != POJO_EXACT:
                    return types.int64(-1)
            pc = behind
            if last > first:
                stack[4 * depth] = first
                stack[4 * depth + 1] = last
                stack[4 * depth + 2] = 1
                stack[4 * depth + 3] = behind
                depth += 1
                pc = first
        elif op == MASKED:
            arity, leading = program[pc + 1], program[pc + 2]
            mask = at
            at += (arity + leading + 7) // 8
            if at > end:
                return types.int64(-1)
            body = pc + 3 + arity
            behind = body
            for field in range(arity):
                behind += program[pc + 3 + field]
            if depth + arity + 1 >= MAX_FRAMES:
                return types.int64(-1)
            # frames are taken from the top: push the last field first
            body = behind
            pc_next = behind
            for back in range(arity):
                field = arity - 1 - back
                length = program[pc + 3 + field]
                body -= length
                bit = field + leading
                byte = data[types.uintp(mask + (bit >> 3))]
                if (byte >> types.uint8(7 - (bit & 7))) & 1 == 0 and length > 0:
                    stack[4 * depth] = body
                    stack[4 * depth + 1] = body + length
                    stack[4 * depth + 2] = 1
                    stack[4 * depth + 3] = pc_next
                    depth += 1
                    pc_next = body
            pc = pc_next
        else:
            return types.int64(-1)
        if at < 0 or at > end:
            return types.int64(-1)


@kernel(types.int64(U8R, I64, I64R, I64R, I64R, I32R, I64, I64))
def locate_counted(data, position, end, counts, first, program, starts, ends):
    """Where each of `counts[row]` values begins and ends, row by row, one after the other.

    Args:
        data: The bytes.
        position: Per row, in and out: the first value's start, then behind the last.
        end: Per row.
        counts: Per row.
        first: Per row, the index of its first value in `starts`.
        program: The type's.
        starts, ends: Filled, per value.

    Returns:
        The first row that does not fit, or -1.
    """
    stack = np.empty(4 * MAX_FRAMES, np.int64)
    for row in range(position.size):
        at = position[row]
        for index in range(first[row], first[row] + counts[row]):
            starts[index] = at
            at = skip_one(data, at, end[row], program, stack)
            if at < 0:
                return types.int64(row)
            ends[index] = at
        position[row] = at
    return types.int64(-1)


@kernel(types.int64(U8R, I64R, I64R, I32R, I64))
def count_delimited(data, position, end, program, counts):
    """How many values each row holds, one comma byte between two; a fault's row, or -1."""
    stack = np.empty(4 * MAX_FRAMES, np.int64)
    for row in range(position.size):
        at = position[row]
        found = types.int64(0)
        while at < end[row]:
            at = skip_one(data, at, end[row], program, stack)
            if at < 0:
                return types.int64(row)
            found += 1
            if at < end[row]:
                if data[types.uintp(at)] != DELIMITER or at + 1 == end[row]:
                    return types.int64(row)
                at += 1
        counts[row] = found
    return types.int64(-1)


@kernel(types.void(U8R, I64R, I64R, I64R, I32R, I64, I64))
def locate_delimited(data, position, end, first, program, starts, ends):
    """Where each value of a delimited row lies; `count_delimited` has checked that all fit."""
    stack = np.empty(4 * MAX_FRAMES, np.int64)
    for row in range(position.size):
        at = position[row]
        index = first[row]
        while at < end[row]:
            starts[index] = at
            at = skip_one(data, at, end[row], program, stack)
            ends[index] = at
            index += 1
            at += 1
