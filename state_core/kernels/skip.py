"""Find the ends of values: an interpreter for one small program per type.

A value of variable size inside a list has no index: to find the start of the next one, this one
must be walked. Each serializer has a program of int32 words; the interpreter walks many values with
it and records their starts. Bytes are not copied and nothing is decoded. If the end of a value is
not known (a subclass that the snapshot does not describe), its row is left out.

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
`POJO`         tags, bodies, names; the bodies'       flags byte; if null nothing; else the
               lengths; of each name its body and     first body, or for a tag or a class name
               its length; then the bodies, then      that of the subclass. No such name, or a
               the names, a byte a word               body of length 0, can't be walked
`CHOICE`       width, prefix, padding, bodies, their  i8 or i32; if negative the padding (-1: can't
               lengths, then the bodies               be), else the body of that number, or with
                                                      `prefix` as many bodies as it says
`MARKED`       body length                            4 bytes if they are the least i32, else the
                                                      body, which begins with them
=============  =====================================  ==========================================
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from statelake.state_core.kernels.bytes_at import i32, varint32
from statelake.state_core.kernels.compiler import helper, kernel

I64Array = npt.NDArray[np.int64]

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
CHOICE = 10
MARKED = 11

MAX_FRAMES = 4096
NULL_COUNT = -(1 << 31)
DELIMITER = 0x2C

# flags of a POJO, in Flink's order of precedence
IS_NULL, IS_SUBCLASS, IS_TAGGED, IS_EXACT = 1, 4, 8, 2

# an unknown position, or an unknown count
UNKNOWN = -2


@helper
def _skip_string(data, at, end):
    length, at, _ = varint32(data, at, end)
    if at < 0 or length - 1 > end - at:
        return np.int64(-1)
    left = length - 1
    while left > 0:
        if at >= end:
            return np.int64(-1)
        if data[np.uintp(at)] < 0x80:
            at += 1
            left -= 1
        else:
            _, at, _ = varint32(data, at, end)
            if at < 0:
                return np.int64(-1)
            left -= 1
    return at


@helper
def _skip_sized(data, at, end, width):
    if at + 4 > end:
        return np.int64(-1)
    count = i32(data, at)
    at += 4
    if count < 0 or count * width > end - at:
        return np.int64(-1)
    return at + count * width


@helper
def _skip_bigint(data, at, end, with_scale):
    if at + 4 > end:
        return np.int64(-1)
    tag = i32(data, at)
    at += 4
    if tag > 4:
        at += tag - 4
    if with_scale and tag != 0:
        at += 4
    return at if tag >= 0 and at <= end else np.int64(-1)


@helper
def _named_body(data, at, size, program, pc):
    """Return the body for the class name at `at` in a POJO's program, or -1."""
    bodies, names = np.int64(program[pc + 2]), np.int64(program[pc + 3])
    index = np.int64(pc + 4 + bodies)
    name = index + 2 * names
    for body in range(bodies):
        name += program[pc + 4 + body]
    for number in range(names):
        length = np.int64(program[index + 2 * number + 1])
        same = length == size
        for step in range(size if same else 0):
            if np.int64(data[np.uintp(at + step)]) != np.int64(program[name + step]):
                same = False
                break
        if same:
            return np.int64(program[index + 2 * number])
        name += length
    return np.int64(-1)


@helper
def _pojo_body(data, at, end, program, pc):
    """Return the end of a POJO's head at `at`, and the body that follows; -1 without a body.

    The position is -1 if the head does not fit, and `UNKNOWN` for an unknown class.
    """
    if at >= end:
        return np.int64(-1), np.int64(-1)
    flags = np.int64(data[np.uintp(at)])
    at += 1
    body = np.int64(0)
    if flags & IS_NULL:
        return at, np.int64(-1)
    if flags & IS_SUBCLASS:
        if at + 2 > end:
            return np.int64(-1), np.int64(-1)
        size = np.int64(data[np.uintp(at)]) << 8 | np.int64(data[np.uintp(at + 1)])
        at += 2
        if size > end - at:
            return np.int64(-1), np.int64(-1)
        body = _named_body(data, at, size, program, pc)
        at += size
    elif flags & IS_TAGGED:
        if at >= end or data[np.uintp(at)] >= program[pc + 1]:
            return np.int64(-1), np.int64(-1)
        body = 1 + np.int64(data[np.uintp(at)])
        at += 1
    elif not flags & IS_EXACT:
        return np.int64(-1), np.int64(-1)
    if body < 0 or program[pc + 4 + body] == 0:
        return np.int64(UNKNOWN), np.int64(-1)
    return at, body


@helper
def _chosen(data, at, end, program, pc):
    """Return what follows the number at `at` in a choice: its start, and the bodies' bounds.

    The start is -1 if the number does not fit.
    """
    width, bodies = np.int64(program[pc + 1]), np.int64(program[pc + 4])
    first = np.int64(pc) + 5 + bodies
    last = first
    if at + width > end:
        return np.int64(-1), first, last
    number = i32(data, at) if width == 4 else np.int64(np.int8(data[np.uintp(at)]))
    at += width
    if number < 0:
        padding = np.int64(program[pc + 3])
        return (at + padding if padding >= 0 else np.int64(-1)), first, last
    prefix = program[pc + 2] != 0
    if number > bodies or (number == bodies and not prefix):
        return np.int64(-1), first, last
    for body in range(number):
        last += program[pc + 5 + body]
    if not prefix:
        first = last
        last += program[pc + 5 + number]
    return at, first, last


@helper
def skip_one(data, at, end, program, stack):
    """Return the end of one value at `at`; -1 if it does not fit before `end`, or `UNKNOWN`.

    `stack` has frames of four words: body start, body end, repetitions left, next position.
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
            return np.int64(-1)
        op = program[pc]
        if op == FIXED:
            at += program[pc + 1]
            pc += 2
        elif op == STRING:
            at = _skip_string(data, at, end)
            pc += 1
        elif op == SIZED:
            at = _skip_sized(data, at, end, np.int64(program[pc + 1]))
            pc += 2
        elif op == BIGINT or op == BIGDEC:
            at = _skip_bigint(data, at, end, op == BIGDEC)
            pc += 1
        elif op == REPEAT:
            body, body_end = pc + 2, pc + 2 + program[pc + 1]
            if at + 4 > end:
                return np.int64(-1)
            count = i32(data, at)
            at += 4
            if count < 0 or count > end - at:
                return np.int64(-1)
            pc = body_end
            if count > 0 and body_end > body:
                stack[4 * depth] = body
                stack[4 * depth + 1] = body_end
                stack[4 * depth + 2] = count
                stack[4 * depth + 3] = body_end
                depth += 1
                pc = body
        elif op == POJO:
            at, body = _pojo_body(data, at, end, program, pc)
            if at < 0:
                return at
            bodies, names = program[pc + 2], program[pc + 3]
            first = last = pc + 4 + bodies + 2 * names
            behind = first
            for index in range(bodies):
                if index == body:
                    first, last = behind, behind + program[pc + 4 + index]
                behind += program[pc + 4 + index]
            for index in range(names):
                behind += program[pc + 4 + bodies + 2 * index + 1]
            pc = behind
            if body >= 0:
                stack[4 * depth] = first
                stack[4 * depth + 1] = last
                stack[4 * depth + 2] = 1
                stack[4 * depth + 3] = behind
                depth += 1
                pc = first
        elif op == CHOICE:
            at, first, last = _chosen(data, at, end, program, pc)
            if at < 0:
                return at
            bodies = program[pc + 4]
            behind = pc + 5 + bodies
            for body in range(bodies):
                behind += program[pc + 5 + body]
            pc = behind
            if last > first:
                stack[4 * depth] = first
                stack[4 * depth + 1] = last
                stack[4 * depth + 2] = 1
                stack[4 * depth + 3] = behind
                depth += 1
                pc = first
        elif op == MARKED:
            if at + 4 > end:
                return np.int64(-1)
            behind = pc + 2 + program[pc + 1]
            if i32(data, at) == NULL_COUNT:
                at += 4
                pc = behind
            else:
                pc += 2
        elif op == WHEN or op == EITHER:
            if at >= end:
                return np.int64(-1)
            flag = data[np.uintp(at)]
            at += 1
            if op == WHEN:
                first, last = pc + 3, pc + 3 + program[pc + 2]
                behind = last
                if (flag != 0) != (program[pc + 1] != 0):
                    first = last
            else:
                split = pc + 3 + program[pc + 1]
                behind = split + program[pc + 2]
                first, last = (pc + 3, split) if flag != 0 else (split, behind)
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
                return np.int64(-1)
            body = pc + 3 + arity
            behind = body
            for field in range(arity):
                behind += program[pc + 3 + field]
            if depth + arity + 1 >= MAX_FRAMES:
                return np.int64(-1)
            # frames are taken from the top: push the last field first
            body = behind
            pc_next = behind
            for back in range(arity):
                field = arity - 1 - back
                length = program[pc + 3 + field]
                body -= length
                bit = field + leading
                byte = data[np.uintp(mask + (bit >> 3))]
                if (byte >> np.uint8(7 - (bit & 7))) & 1 == 0 and length > 0:
                    stack[4 * depth] = body
                    stack[4 * depth + 1] = body + length
                    stack[4 * depth + 2] = 1
                    stack[4 * depth + 3] = pc_next
                    depth += 1
                    pc_next = body
            pc = pc_next
        else:
            return np.int64(-1)
        if at < 0 or at > end:
            return np.int64(-1)


@kernel("int64(U8R, I64, I64R, I64R, I64R, I32R, I64, I64, I64)")
def _locate_counted(data, position, end, counts, first, program, starts, ends, stack):
    """Do what `locate_counted` does, with a stack of frames."""
    for row in range(position.size):
        at = position[row]
        for index in range(first[row], first[row] + counts[row]):
            starts[index] = at
            if at != UNKNOWN:
                at = skip_one(data, at, end[row], program, stack)
            if at == -1:
                return np.int64(row)
            ends[index] = at
        position[row] = at
    return np.int64(-1)


@kernel("int64(U8R, I64R, I64R, I32R, I64, I64)")
def _count_delimited(data, position, end, program, counts, stack):
    """Do what `count_delimited` does, with a stack of frames."""
    for row in range(position.size):
        at = position[row]
        count = np.int64(0)
        while at < end[row]:
            at = skip_one(data, at, end[row], program, stack)
            if at == UNKNOWN:
                count = np.int64(UNKNOWN)
                break
            if at < 0:
                return np.int64(row)
            count += 1
            if at < end[row]:
                if data[np.uintp(at)] != DELIMITER or at + 1 == end[row]:
                    return np.int64(row)
                at += 1
        counts[row] = count
    return np.int64(-1)


@kernel("void(U8R, I64R, I64R, I64R, I32R, I64, I64, I64)")
def _locate_delimited(data, position, end, first, program, starts, ends, stack):
    """Do what `locate_delimited` does, with a stack of frames."""
    for row in range(position.size):
        at = position[row]
        index = first[row]
        while at < end[row]:
            starts[index] = at
            at = skip_one(data, at, end[row], program, stack)
            ends[index] = at
            index += 1
            at += 1


def locate_counted(
    data: npt.NDArray[np.uint8],
    position: I64Array,
    end: I64Array,
    counts: I64Array,
    first: I64Array,
    program: npt.NDArray[np.int32],
    starts: I64Array,
    ends: I64Array,
) -> int:
    """Find the start and end of each of `counts[row]` consecutive values, row by row.

    Args:
        data: The bytes.
        position: Per row, in and out: the first value's start, then the last one's end.
        end: Per row.
        counts: Per row.
        first: Per row, the index of its first value in `starts`.
        program: The program of the type.
        starts, ends: Filled, per value; with `UNKNOWN` for an unknown position.

    Returns:
        The first row that does not fit, or -1.
    """
    return int(_locate_counted(data, position, end, counts, first, program, starts, ends, _stack()))


def count_delimited(
    data: npt.NDArray[np.uint8],
    position: I64Array,
    end: I64Array,
    program: npt.NDArray[np.int32],
    counts: I64Array,
) -> int:
    """Count the values of each row, one comma byte between two; return a faulty row, or -1.

    A row with a value of unknown end has the count `UNKNOWN`.
    """
    return int(_count_delimited(data, position, end, program, counts, _stack()))


def locate_delimited(
    data: npt.NDArray[np.uint8],
    position: I64Array,
    end: I64Array,
    first: I64Array,
    program: npt.NDArray[np.int32],
    starts: I64Array,
    ends: I64Array,
) -> None:
    """Find each value of a delimited row; `count_delimited` has checked that all fit."""
    _locate_delimited(data, position, end, first, program, starts, ends, _stack())


def _stack() -> I64Array:
    return np.empty(4 * MAX_FRAMES, np.int64)
