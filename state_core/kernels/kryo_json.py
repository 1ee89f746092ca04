"""JSON of objects that Kryo wrote, from the table of their parts in `kernels.kryo`.

It is JSON as `serializers.kryo.json_values` makes it of one object, which says what it means. Each
class has a way in which its objects are JSON, below; what has none is made by itself.
"""

from __future__ import annotations

import numpy as np

from statelake.state_core.kernels.bytes_at import copy, put, u8
from statelake.state_core.kernels.compiler import helper, kernel
from statelake.state_core.kernels.kryo import (
    DEEPEST,
    HALVES,
    NULL,
    REFERENCE,
    class_named,
    put_halves,
)

FAILED = -2  # the class of what has to be made by itself
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
# four letters, the first one in the highest byte
NULL_TEXT, TRUE_TEXT, FALS_TEXT = 0x6E756C6C, 0x74727565, 0x66616C73
ALSE_TEXT, ALUE_TEXT = 0x616C7365, 0x616C7565


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
        at = put(out, at, 0x2D)
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
    at = put(out, at, QUOTE)
    for digit in range(32):
        if digit == 8 or digit == 12 or digit == 16 or digit == 20:
            at = put(out, at, 0x2D)
        half = high if digit < 16 else low
        at = put(out, at, _hex(half >> np.int64(60 - 4 * (digit & 15)) & 15))
    return put(out, at, QUOTE)


@helper
def _put_text(data, start, stop, is_ascii, out, at):
    """Write text in quotes; return the position behind it, -1 if half of a character is alone."""
    at = put(out, at, QUOTE)
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
            at = put(out, at, byte)
        else:  # half of a character, and the other half
            at = put_halves(data, start - 1, stop, out, at)
            if at < 0:
                return at
            start += HALVES - 1
    return put(out, at, QUOTE)


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
                    at = put(out, at, CLOSE)
                if way != UNTOLD:
                    at = put(out, at, CLOSE_BRACE if way == DICT else CLOSE)
                if stack[top + TAGGED]:
                    at = put(out, at, CLOSE_BRACE)
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
                    at = put(out, at, OPEN)
            elif begun:
                at = _put2(out, at, COMMA, SPACE)
            here, what = line, kind[line]
            line += 1
            if what == NULL:
                at = _put4(out, at, NULL_TEXT)
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
                at = put(out, at, OPEN_BRACE if form == DICT else OPEN)
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
                at = _put4(out, at, TRUE_TEXT)
            else:
                at = _put4(out, at, FALS_TEXT)
                at = put(out, at, 0x65)
            if tagged:
                at = put(out, at, CLOSE_BRACE)
        ends[row] = ~begin if failed else at
        row += 1
    return np.int64(row)


@helper
def _space(data, at, stop):
    """Return the position behind white space."""
    while at < stop:
        byte = u8(data, at)
        if byte != SPACE and byte != 0x0A and byte != 0x09 and byte != 0x0D:
            break
        at += 1
    return at


@helper
def _behind(data, at, stop, wanted):
    """Return the position behind white space and one character.

    It is -1 behind another one, and behind -1.
    """
    if at >= 0:
        at = _space(data, at, stop)
        return at + 1 if at < stop and u8(data, at) == wanted else np.int64(-1)
    return at


@helper
def _hex_digit(byte):
    """Return the value of a hexadecimal digit in lower case, -1 of another character."""
    if byte >= 0x30 and byte <= 0x39:
        return byte - 0x30
    return byte - 0x57 if byte >= 0x61 and byte <= 0x66 else np.int64(-1)


@helper
def _get_text(data, at, stop, out, to):
    """Read text behind its first quote, of characters of one unit of UTF-16.

    Returns:
        The position behind the last quote, -1 on a fault; the end in `out`; the characters.
    """
    count = np.int64(0)
    while at < stop:
        byte = u8(data, at)
        at += 1
        if byte == QUOTE:
            return at, to, count
        if byte < 0x20 or byte >= 0xF0:
            break
        if byte == BACKSLASH:
            byte = u8(data, at) if at < stop else np.int64(0)
            at += 1
            if byte == LETTER_U:
                unit = np.int64(0)
                for step in range(4):
                    digit = u8(data, at + step) if at + step < stop else np.int64(0)
                    value = _hex_digit(digit | 0x20 if digit >= 0x41 else digit)
                    if value < 0:
                        return np.int64(-1), to, count
                    unit = unit << 4 | value
                at += 4
                if unit >= 0xD800 and unit < 0xE000:
                    break
                if unit >= 0x800:
                    out[np.uintp(to)] = 0xE0 | unit >> 12
                    to = _put2(out, to + 1, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F)
                elif unit >= 0x80:
                    to = _put2(out, to, 0xC0 | unit >> 6, 0x80 | unit & 0x3F)
                else:
                    out[np.uintp(to)] = unit
                    to += 1
                count += 1
                continue
            if byte == 0x62:
                byte = np.int64(0x08)
            elif byte == 0x66:
                byte = np.int64(0x0C)
            elif byte == LETTER_N:
                byte = np.int64(0x0A)
            elif byte == 0x72:
                byte = np.int64(0x0D)
            elif byte == 0x74:
                byte = np.int64(0x09)
            elif byte != QUOTE and byte != BACKSLASH and byte != 0x2F:
                break
        out[np.uintp(to)] = byte
        to += 1
        if byte & 0xC0 != 0x80:
            count += 1
    return np.int64(-1), to, count


@helper
def _digits(data, at, stop):
    """Return the position behind some digits."""
    while at < stop and u8(data, at) >= 0x30 and u8(data, at) <= 0x39:
        at += 1
    return at


@helper
def _get_number(data, at, stop):
    """Return a whole number of 64 bits, the position behind it (-1 on a fault), and 1.

    Of a number with a fraction or an exponent the last is 0.
    """
    negative = at < stop and u8(data, at) == 0x2D
    first = at + 1 if negative else at
    at = _digits(data, first, stop)
    value = np.int64(0)
    for place in range(first, at):
        value = value * 10 + u8(data, place) - 0x30
    size = at - first
    if size == 0 or size > 19 or value < 0 or (size > 1 and u8(data, first) == 0x30):
        return value, np.int64(-1), 1
    is_whole = 1
    if at < stop and u8(data, at) == 0x2E:
        is_whole, begin = 0, at + 1
        at = _digits(data, begin, stop)
        if at == begin:
            return value, np.int64(-1), 0
    if at < stop and u8(data, at) | 0x20 == 0x65:
        is_whole, begin = 0, at + 1
        if begin < stop and (u8(data, begin) == 0x2B or u8(data, begin) == 0x2D):
            begin += 1
        at = _digits(data, begin, stop)
        if at == begin:
            return value, np.int64(-1), 0
    return -value if negative else value, at, is_whole


@helper
def _get_word(data, at, stop, word, size):
    """Return the position behind the last four letters of a word, -1 if it is another one."""
    at += size - 4
    if at + 4 > stop:
        return np.int64(-1)
    for step in range(4):
        if u8(data, at + step) != word >> (24 - 8 * step) & 0xFF:
            return np.int64(-1)
    return at + 4


@helper
def _get_uuid(data, at, stop, line, number, start):
    """Read a UUID behind its first quote; return the position behind it, -1 on a fault."""
    if at < 0 or stop - at < 37:
        return np.int64(-1)
    for half in range(2):
        value = np.int64(0)
        for step in range(16):
            digit = 16 * half + step
            if digit == 8 or digit == 12 or digit == 16 or digit == 20:
                if u8(data, at) != 0x2D:
                    return np.int64(-1)
                at += 1
            part = _hex_digit(u8(data, at))
            if part < 0:
                return np.int64(-1)
            value = value << np.int64(4) | part
            at += 1
        if half == 0:
            number[line] = value
        else:
            start[line] = value
    return at + 1 if u8(data, at) == QUOTE else np.int64(-1)


@helper
def _is_tag(data, at):
    """Return whether six characters are `@class`."""
    word = np.int64(0)
    for step in range(6):
        word = word << np.int64(8) | u8(data, at + step)
    return word == 0x40636C617373


@helper
def _get_tag(data, at, stop, out, to, name_hashes, name_classes, name_offsets, name_bytes):
    """Return the class that an object names, and where its value begins: -1 on a fault."""
    number = np.int64(-1)
    at = _behind(data, _behind(data, at, stop, COLON), stop, QUOTE)
    if at >= 0:
        at, last, size = _get_text(data, at, stop, out, to)
        if at >= 0 and last - to == size:
            number = class_named(out, to, last, name_hashes, name_classes, name_offsets, name_bytes)
    at = _behind(data, _behind(data, at, stop, COMMA), stop, QUOTE)
    is_value = at >= 0 and at < stop and u8(data, at) == 0x76
    at = _get_word(data, at, stop, ALUE_TEXT, 5) if is_value else np.int64(-1)
    at = _behind(data, _behind(data, at, stop, QUOTE), stop, COLON)
    if at < 0 or number < 0:
        return np.int64(-1), np.int64(-1)
    return number, _space(data, at, stop)


@kernel(
    "void(I32R, U8R, U8R, I64R, I64R, I64R, U8R, I64R, I64R, I64R, I64, I64, I64, I64, I64, U8,"
    " I64, I64, I64)"
)
def read_json(
    offsets, data, present, name_hashes, name_classes, name_offsets, name_bytes, ways, bits, bare,
    kind, number, start, end, behind, out, ends, seen, stack,
):  # fmt: skip
    """Read the objects of JSON texts into a table of their parts.

    Args:
        offsets, data: The texts, of which each lies between two offsets.
        present: Which of them are not null.
        name_hashes, name_classes, name_offsets, name_bytes: The classes, as in
            `kernels.kryo.read_objects`.
        ways: The way of each class.
        bits: The bits of a whole number of each class.
        bare: The classes of text, booleans, whole numbers, other numbers, lists and maps.
        kind, number, start, end, behind: Filled: the table, with a line for each byte and row at
            least. The class of a row that has to be made by itself is `FAILED`; another number than
            a whole one is between two places of `data`.
        out: Filled: the bytes that lines of text refer to; as long as `data`.
        ends: Filled: the line behind each row.
        seen, stack: Scratch, as in `write_json`.
    """
    lines, to = np.int64(0), np.int64(0)
    for row in range(present.size):
        first, text = lines, to
        at, stop, depth = np.int64(offsets[row]), np.int64(offsets[row + 1]), np.int64(0)
        if present[row] == 0:
            kind[lines], behind[lines] = NULL, lines + 1
            lines += 1
            ends[row] = lines
            continue
        done = False
        while not done:
            at = _space(data, at, stop)
            byte = u8(data, at) if at < stop else np.int64(0)
            line, opened, tagged = lines, np.int64(UNTOLD), 0
            lines += 1
            behind[line] = lines
            number[line], start[line], end[line] = 0, 0, 0
            if byte == QUOTE:
                kind[line], start[line] = bare[0], to
                at, to, number[line] = _get_text(data, at + 1, stop, out, to)
                end[line] = to
            elif byte == OPEN:
                kind[line], opened = bare[4], np.int64(LIST)
                at += 1
            elif byte == OPEN_BRACE:
                kind[line], opened = bare[5], np.int64(DICT)
                at = _space(data, at + 1, stop)
                if at < stop and u8(data, at) == QUOTE:
                    behind_key, last, size = _get_text(data, at + 1, stop, out, to)
                    if behind_key < 0:
                        at = behind_key
                    elif size == 6 and last - to == 6 and _is_tag(out, to):
                        what, at = _get_tag(
                            data, behind_key, stop, out, to, name_hashes, name_classes,
                            name_offsets, name_bytes,
                        )  # fmt: skip
                        way = ways[what] if at >= 0 else np.int64(UNTOLD)
                        kind[line], opened, tagged = what, np.int64(UNTOLD), 1
                        if way == WHOLE:
                            number[line], at, is_whole = _get_number(data, at, stop)
                            over = number[line] >> (bits[what] - 1)
                            if not is_whole or (over != 0 and over != -1):
                                at = np.int64(-1)
                        elif way == UUID:
                            at = _behind(data, at, stop, QUOTE)
                            at = _get_uuid(data, at, stop, line, number, start)
                        elif way >= LIST:
                            opened = np.int64(LIST if way == LIST else ENTRIES)
                            at = _behind(data, at, stop, OPEN)
                        else:
                            at = np.int64(-1)
                        if at >= 0 and opened == UNTOLD:
                            at = _behind(data, at, stop, CLOSE_BRACE)
            elif byte == 0x74:
                kind[line], number[line] = bare[1], 1
                at = _get_word(data, at, stop, TRUE_TEXT, 4)
            elif byte == 0x66:
                kind[line] = bare[1]
                at = _get_word(data, at, stop, ALSE_TEXT, 5)
            elif byte == LETTER_N:
                kind[line] = NULL
                at = _get_word(data, at, stop, NULL_TEXT, 4)
            else:
                begin = at
                number[line], at, is_whole = _get_number(data, at, stop)
                kind[line] = bare[2]
                if not is_whole:
                    kind[line], start[line], end[line] = bare[3], begin, at
                elif number[line] >> 31 != 0 and number[line] >> 31 != -1:
                    at = np.int64(-1)
            if at < 0 or (opened != UNTOLD and depth == DEEPEST):
                break
            if opened != UNTOLD:
                top = depth * LEVEL_WIDTH
                stack[top + LEFT], stack[top + WAY] = 0, opened
                stack[top + TAGGED], stack[top + BEGUN] = tagged, line
                depth += 1
            begun = opened == UNTOLD
            while at >= 0:  # what is between two values
                if depth == 0:
                    done = True
                    break
                top = (depth - 1) * LEVEL_WIDTH
                way = stack[top + WAY]
                stack[top + LEFT] += begun
                parts = stack[top + LEFT]
                at = _space(data, at, stop)
                byte = u8(data, at) if at < stop else np.int64(0)
                at += 1
                if way == ENTRIES and parts & 1:  # between a key and its value
                    at = at if byte == COMMA else np.int64(-1)
                    break
                if way == ENTRIES and parts > 0:  # behind a pair
                    if byte != CLOSE:
                        at = np.int64(-1)
                        break
                    at = _space(data, at, stop)
                    byte = u8(data, at) if at < stop else np.int64(0)
                    at += 1
                closing = CLOSE_BRACE if way == DICT else CLOSE
                if byte == closing:
                    line, count = stack[top + BEGUN], parts
                    behind[line] = lines
                    if way == DICT:
                        plain = count <= MOST_KEYS and _are_names(
                            out, kind, start, end, number, behind, ways, line, count, seen
                        )
                        if not plain:
                            at = np.int64(-1)
                            break
                    number[line] = count >> 1 if way == ENTRIES else count
                    if stack[top + TAGGED]:
                        at = _behind(data, at, stop, CLOSE_BRACE)
                    depth -= 1
                    begun = True
                    continue
                if parts > 0 and byte != COMMA:
                    at = np.int64(-1)
                    break
                if parts == 0:
                    at -= 1
                if way == ENTRIES:
                    at = _behind(data, at, stop, OPEN)
                elif way == DICT:
                    at = _behind(data, at, stop, QUOTE)
                    if at >= 0:
                        line = lines
                        lines += 1
                        kind[line], start[line], behind[line] = bare[0], to, lines
                        at, to, number[line] = _get_text(data, at, stop, out, to)
                        end[line] = to
                    if at >= 0:
                        at = _behind(data, at, stop, COLON)
                break
            if at < 0:
                break
        if at < 0 or not done or _space(data, at, stop) != stop:
            lines, to = first + 1, text
            kind[first], behind[first] = FAILED, lines
        ends[row] = lines
