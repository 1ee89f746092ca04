"""JSON of objects that Kryo wrote, from the table of their parts in `kernels.kryo`.

It is JSON as `serializers.kryo.json_values` makes it of one object, which says what it means. Each
class has a way in which its objects are JSON, below; what has none is made by itself.
"""

from __future__ import annotations

import numpy as np

from statelake.state_core.kernels.bytes_at import copy, u8
from statelake.state_core.kernels.compiler import helper, kernel
from statelake.state_core.kernels.kryo import DEEPEST, NULL, REFERENCE

# ways: a collection and a map are a list and a list of pairs, an `ArrayList` and a `HashMap` whose
# keys are text are without their class
UNTOLD, TEXT, BOOLEAN, WHOLE, UUID, LIST, ENTRIES, DICT = range(8)
# a level of the stack: parts left, the way of the object, whether its class is there, and a part
LEFT, WAY, TAGGED, BEGUN, LEVEL_WIDTH = range(5)
ROOM = 64  # the longest part besides text and classes, with what surrounds it
MOST_KEYS = 1 << 13  # keys of a map that are compared here
SEEN = 2 * MOST_KEYS
QUOTE, COMMA, SPACE, COLON = 0x22, 0x2C, 0x20, 0x3A
OPEN, CLOSE, OPEN_BRACE, CLOSE_BRACE, BACKSLASH = 0x5B, 0x5D, 0x7B, 0x7D, 0x5C
LETTER_N, LETTER_U = 0x6E, 0x75


@helper
def _put2(out, at, first, second):
    out[np.uintp(at)] = first
    out[np.uintp(at + 1)] = second
    return at + 2


@helper
def _put4(out, at, word):
    """Write four characters, the first one in the highest byte."""
    for step in range(4):
        out[np.uintp(at + step)] = word >> (24 - 8 * step) & 0xFF
    return at + 4


@helper
def _hex(digit):
    return digit + 0x30 if digit < 10 else digit + 0x57


@helper
def _put_number(out, at, value):
    if value < 0:
        out[np.uintp(at)] = 0x2D
        at += 1
    size, rest = 1, value // 10 if value >= 0 else -(value // -10)
    while rest != 0:
        size += 1
        rest = rest // 10 if rest >= 0 else -(rest // -10)
    for step in range(size):
        tens = value // 10 if value >= 0 else -(value // -10)
        digit = value - 10 * tens
        out[np.uintp(at + size - 1 - step)] = 0x30 + (digit if digit >= 0 else -digit)
        value = tens
    return at + size


@helper
def _put_uuid(out, at, high, low):
    out[np.uintp(at)] = QUOTE
    at += 1
    for digit in range(32):
        if digit == 8 or digit == 12 or digit == 16 or digit == 20:
            out[np.uintp(at)] = 0x2D
            at += 1
        half = high if digit < 16 else low
        out[np.uintp(at)] = _hex(half >> np.int64(60 - 4 * (digit & 15)) & 15)
        at += 1
    out[np.uintp(at)] = QUOTE
    return at + 1


@helper
def _put_text(data, start, stop, is_ascii, out, at):
    """Write text in quotes; return the position behind it, -1 if half of a character is alone."""
    out[np.uintp(at)] = QUOTE
    at += 1
    while start < stop:
        byte = u8(data, start) & 0x7F if is_ascii else u8(data, start)
        start += 1
        if byte == QUOTE or byte == BACKSLASH:
            at = _put2(out, at, BACKSLASH, byte)
        elif byte < 0x20:
            letter = 0
            if byte >= 8 and byte <= 13 and byte != 11:  # \b \t \n \f \r
                letter = (0x62, 0x74, LETTER_N, 0, 0x66, 0x72)[byte - 8]
            if letter:
                at = _put2(out, at, BACKSLASH, letter)
            else:
                at = _put2(out, _put2(out, at, BACKSLASH, LETTER_U), 0x30, 0x30)
                at = _put2(out, at, _hex(byte >> 4), _hex(byte & 15))
        elif byte != 0xED or u8(data, start) < 0xA0:
            out[np.uintp(at)] = byte
            at += 1
        else:  # half of a character, and the other half
            if stop - start < 5 or u8(data, start) > 0xAF:
                return np.int64(-1)
            if u8(data, start + 2) != 0xED or u8(data, start + 3) < 0xB0:
                return np.int64(-1)
            high = (u8(data, start) & 0x0F) << 6 | u8(data, start + 1) & 0x3F
            low = (u8(data, start + 3) & 0x0F) << 6 | u8(data, start + 4) & 0x3F
            point = 0x10000 + (high << 10 | low)
            at = _put2(out, at, 0xF0 | point >> 18, 0x80 | point >> 12 & 0x3F)
            at = _put2(out, at, 0x80 | point >> 6 & 0x3F, 0x80 | point & 0x3F)
            start += 5
    out[np.uintp(at)] = QUOTE
    return at + 1


@helper
def _same_text(data, start, end, number, one, other):
    size = end[one] - start[one]
    if size != end[other] - start[other] or number[one] != number[other]:
        return False
    mask = 0x7F if size == number[one] else 0xFF
    for step in range(size):
        if u8(data, start[one] + step) & mask != u8(data, start[other] + step) & mask:
            return False
    return True


@helper
def _are_names(data, kind, start, end, number, behind, ways, line, count, seen):
    """Return whether the keys of a map are different texts, none of which begins with `@`."""
    slots = 1
    while slots < 2 * count:
        slots *= 2
    seen[:slots] = -1
    key = line + 1
    for _ in range(count):
        if kind[key] < 0 or ways[kind[key]] != TEXT:
            return False
        size = end[key] - start[key]
        mask = 0x7F if size == number[key] else 0xFF
        if size > 0 and u8(data, start[key]) & mask == 0x40:
            return False
        slot = np.int64(size)
        for step in range(size):
            slot = slot * 31 + (u8(data, start[key] + step) & mask) & 0xFFFFFFFF
        slot = (slot ^ slot >> 15) & (slots - 1)
        while seen[slot] >= 0:
            if _same_text(data, start, end, number, key, seen[slot]):
                return False
            slot = slot + 1 & slots - 1
        seen[slot] = key
        key = behind[behind[key]]
    return True


@kernel("int64(int64, I64R, U8R, I64R, I64R, I64R, I64R, I64R, I64R, I64R, U8R, U8, I64, I64, I64)")
def write_json(
    row, lines, data, kind, start, end, number, behind, ways, tag_offsets, tags, out, ends, seen,
    stack,
):  # fmt: skip
    """Write the JSON of objects, one behind the other.

    Args:
        row: The first row to write.
        lines: The line of each row's object; null has no bytes.
        data, kind, start, end, number, behind: The table, and the bytes that it refers to.
        ways: The way of each class.
        tag_offsets, tags: What names each class in front of its value; empty for those without.
        out: The buffer.
        ends: Filled: the end of each row, less than 0 for one that has to be made by itself: the
            end of the row before, as `~end`. That of the row before `row` is read.
        seen: Scratch, of `SEEN`.
        stack: Scratch, of `DEEPEST + 1` levels of `LEVEL_WIDTH`.

    Returns:
        The row that has no space; the number of rows if all were written.
    """
    while row < lines.size:
        begin = np.int64(0)
        if row > 0:
            begin = ends[row - 1] if ends[row - 1] >= 0 else ~ends[row - 1]
        at, line, depth = begin, lines[row], np.int64(1)
        stack[LEFT], stack[WAY], stack[TAGGED], stack[BEGUN] = 1, UNTOLD, 0, 0
        if kind[line] == NULL:
            stack[LEFT] = 0
        failed = False
        while depth > 0 and not failed:
            top = (depth - 1) * LEVEL_WIDTH
            left, way = stack[top + LEFT], stack[top + WAY]
            if out.size - at < ROOM:
                return np.int64(row)
            if left == 0:
                if way == ENTRIES and stack[top + BEGUN]:
                    out[np.uintp(at)] = CLOSE
                    at += 1
                if way != UNTOLD:
                    out[np.uintp(at)] = CLOSE_BRACE if way == DICT else CLOSE
                    at += 1
                if stack[top + TAGGED]:
                    out[np.uintp(at)] = CLOSE_BRACE
                    at += 1
                depth -= 1
                continue
            stack[top + LEFT] = left - 1
            begun = stack[top + BEGUN]
            stack[top + BEGUN] = 1
            if way == DICT and left & 1:
                at = _put2(out, at, COLON, SPACE)
            elif way == ENTRIES and left & 1 == 0:
                if begun:
                    at = _put2(out, _put2(out, at, CLOSE, COMMA), SPACE, OPEN)
                else:
                    out[np.uintp(at)] = OPEN
                    at += 1
            elif begun:
                at = _put2(out, at, COMMA, SPACE)
            here, what = line, kind[line]
            line += 1
            if what == NULL:
                at = _put4(out, at, 0x6E756C6C)
                continue
            form = np.int64(UNTOLD) if what == REFERENCE else ways[what]
            if form == UNTOLD:
                failed = True
                break
            count, bare = number[here], False
            if form == DICT:
                bare = count <= MOST_KEYS and _are_names(
                    data, kind, start, end, number, behind, ways, here, count, seen
                )
                if count > MOST_KEYS:
                    failed = True
                    break
                form = DICT if bare else ENTRIES
            size = np.int64(0) if bare else tag_offsets[what + 1] - tag_offsets[what]
            if form == TEXT:
                size += 6 * (end[here] - start[here])
            if out.size - at < size + ROOM:
                return np.int64(row)
            tagged = not bare and tag_offsets[what + 1] > tag_offsets[what]
            if tagged:
                copy(tags, tag_offsets[what], out, at, tag_offsets[what + 1] - tag_offsets[what])
                at += tag_offsets[what + 1] - tag_offsets[what]
            if form >= LIST:
                if depth > DEEPEST:
                    failed = True
                    break
                out[np.uintp(at)] = OPEN_BRACE if form == DICT else OPEN
                at += 1
                top += LEVEL_WIDTH
                depth += 1
                stack[top + LEFT] = count if form == LIST else 2 * count
                stack[top + WAY], stack[top + TAGGED], stack[top + BEGUN] = form, tagged, 0
                continue
            if form == TEXT:
                at = _put_text(
                    data, start[here], end[here], end[here] - start[here] == count, out, at
                )
                if at < 0:
                    failed = True
                    break
            elif form == WHOLE:
                at = _put_number(out, at, count)
            elif form == UUID:
                at = _put_uuid(out, at, count, start[here])
            elif count != 0:
                at = _put4(out, at, 0x74727565)
            else:
                at = _put4(out, at, 0x66616C73)
                out[np.uintp(at)] = 0x65
                at += 1
            if tagged:
                out[np.uintp(at)] = CLOSE_BRACE
                at += 1
        ends[row] = ~begin if failed else at
        row += 1
    return np.int64(row)
