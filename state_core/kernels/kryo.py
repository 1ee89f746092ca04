"""Objects that Kryo 2.24 or 5.6 wrote, as a table of their parts, and from it the bytes of either.

The table has one line for each part, in the order of the bytes: an object, null, a reference, a
primitive in a field. Its columns:

=========  ===================================================================================
`kind`     the number of the class, `NULL`, or `REFERENCE`
`start`    where the content begins; of two or three numbers the second one
`end`      where it ends; of three numbers the third one
`number`   the number, the characters of text, the elements of a collection, the line that is
           referred to
`behind`   the line behind the part and all within it
=========  ===================================================================================

The table is the same for both, but for arrays of numbers, which are the bytes of Kryo 2.24.

A class is eight numbers of `classes`: its form below and an operand; then, for Kryo 2.24 and for
Kryo 5.6 each, whether its objects are numbered, its id or -1, and the place of its steps. Content
without objects is read and written step by step: `fields` has their number there, and of each step
a codec, which part of the line it is, and the least and the most that it may be. Type arguments are
five numbers of `arguments`: the classes of elements (or of keys), and of values, or -1 if they are
not final; and the type arguments within a collection's elements, a map's keys, and its values.
Line 0 has none.

A form that is not here, or a fault, leaves the object out: the caller reads it by other means,
which know all forms and name the fault.

Source: as in `serializers.kryo`, whose `forms`, `containers` and `objects` say the same of single
values.
"""

from __future__ import annotations

import numpy as np

from statelake.state_core.kernels.bytes_at import copy, put, u8
from statelake.state_core.kernels.compiler import helper, inlined, kernel

NULL, REFERENCE = -1, -2
# the Kryo that wrote the objects
OLDER, NEWER = 0, 1
# what a class is: numbers in `classes`
FORM, OPERAND, NUMBERED, ID, STEPS, CLASS_WIDTH = 0, 1, 2, 4, 6, 8
# type arguments: numbers in `arguments`
FIRST, SECOND, IN_ELEMENTS, IN_KEYS, IN_VALUES, ARGUMENTS_WIDTH = 0, 1, 2, 3, 4, 5
# a field of an object: how it is written, its class, its type arguments
FIELD_WIDTH = 3
# how an object is preceded: by its class, by a mark that may be null, or by nothing. Kryo 5.6 also
# writes objects of a known class that are never null
ANY, OR_NULL, BARE, NEVER_NULL = 0, 1, 2, 3

# forms, the last four with a number of parts in their bytes: the operand of `LEAF` is `DATED` if
# days depend on months, of `OBJECT` and `DATE_TIME` where its fields are, of `SINGLE` the number of
# objects, of `ARRAY` a final class or -1, of the other three the flags below
UNKNOWN, LEAF, ENUM, OBJECT, DATE_TIME, SINGLE, EMPTY = range(7)
COLLECTION, AS_LIST, MAP, ARRAY = range(7, 11)
DATED = 1
# of a collection or a map: whether a comparator precedes its parts, in Kryo 2.24 and (the next bit)
# in Kryo 5.6; whether the latter allows no null; whether the former ignores type arguments
SORTED, WITHOUT_NULL, UNTYPED = 1, 4, 8
# codecs: so many bytes for 1, 2, 4 and 8; a clock is a time of day of Kryo 5.6, `SIZED_TEXT` text
# whose length Kryo 2.24 always writes, `ARRAY_OF` and a width an array of numbers of fixed length
VARINT, INT, VARLONG, LONG, MILLIS, CLOCK, TEXT, SIZED_TEXT, BYTES, BIG, INTS, LONGS = range(9, 21)
ARRAY_OF = 32
# the parts of a line, besides bits of its number: the first bit of them
IN_START, IN_END = -1, -2
STEP_WIDTH = 4

DEEPEST = 100
MOST_NAMES = 64  # of classes in one object
FAILED = -1
A_SECOND = 1_000_000_000  # nanoseconds
MOST_COUNTED = 32  # bits of an object's number
# the longest text of ASCII that is written without its length, by Kryo 5.6 and by Kryo 2.24
LONGEST_ASCII, LONGEST_ASCII_2 = 32, 63
# what became of an object that was to be written: a repeated one has a part of which a JVM has one,
# and that was there before; of an untold one a class, a reference or a number of parts is not known
WRITTEN, REPEATED, UNTOLD = 0, 1, 2
MOST_CONSTANTS = 63
HALVES = 6  # bytes of a character of two units of UTF-16
# the longest content besides bytes, text and arrays, with all that precedes it but names
ROOM = 64
# a line of the stack: objects left, how they are written, where their fields are or which class
# each one is, and for those at odd places; the table's line that ends with them
LEFT, HOW, CLASS, HOW_ODD, CLASS_ODD, ARGUMENTS, ARGUMENTS_ODD, LINE, STACK_WIDTH = range(9)
FIELDS = -1  # in `HOW`: each is as its field says, which is at `CLASS`


@helper
def _unsigned(data, at, end, most):
    """Return a number of variable length, and the position behind it: -1 on a fault."""
    value = np.int64(0)
    for index in range(most):
        if at >= end:
            return value, np.int64(-1)
        byte = u8(data, at)
        at += 1
        if index == 8:
            return value | byte << np.int64(56), at
        value |= (byte & 0x7F) << np.int64(7 * index)
        if byte < 0x80:
            return value, at
    return value, np.int64(-1)


@helper
def _varint(data, at, end):
    if at < end:
        byte = u8(data, at)
        if byte < 0x80:
            return byte, at + 1
    value, at = _unsigned(data, at, end, 5)
    if value >> 32:
        return value, np.int64(-1)
    return value, at


@helper
def _signed(value):
    return value >> 1 & 0x7FFFFFFFFFFFFFFF ^ -(value & 1)


@helper
def _of_32_bits(value):
    """Return a number that was read as unsigned as a signed one."""
    return value - (value >> 31 << 32)


@helper
def _fixed(newer, data, at, width):
    """Return a number of some bytes: in Kryo 5.6 with the low byte first."""
    value = np.int64(0)
    for step in range(width):
        place = step if newer else width - 1 - step
        value |= u8(data, at + step) << np.int64(8 * place)
    bits = np.int64(64 - 8 * width)
    return value << bits >> bits


@helper
def _flagged(data, at, end):
    """Return a number behind a flag, and the position behind both: -1 on a fault."""
    if at >= end:
        return np.int64(0), np.int64(-1)
    first = u8(data, at)
    value = first & 0x3F
    at += 1
    if first & 0x40:
        for shift in (6, 13, 20, 27):
            if at >= end:
                return value, np.int64(-1)
            byte = u8(data, at)
            at += 1
            value |= (byte & 0x7F) << np.int64(shift)
            if byte < 0x80:
                break
    return value & 0xFFFFFFFF, at


@helper
def _text(data, at, end):
    """Return the start, the end and the characters of text: the end is -1 on a fault, or null."""
    if at >= end:
        return at, np.int64(-1), np.int64(0)
    first = u8(data, at)
    start = at
    if first < 0x80:  # the last character of ASCII has the highest bit
        while at < end and u8(data, at) < 0x80:
            at += 1
        if at >= end:
            return start, np.int64(-1), np.int64(0)
        return start, at + 1, at + 1 - start
    count, at = _flagged(data, at, end)
    if at < 0 or count == 0 or count - 1 > end - at:
        return start, np.int64(-1), np.int64(0)
    count -= 1
    start = at
    for _ in range(count):
        if at >= end:
            return start, np.int64(-1), count
        byte = u8(data, at)
        more = 0 if byte < 0x80 else 1 if byte >= 0xC2 and byte < 0xE0 else 2
        if (byte >= 0x80 and (byte < 0xC2 or byte >= 0xF0)) or at + more >= end:
            return start, np.int64(-1), count
        if byte == 0xE0 and u8(data, at + 1) < 0xA0:  # longer than it need be
            return start, np.int64(-1), count
        for step in range(more):
            if u8(data, at + 1 + step) & 0xC0 != 0x80:
                return start, np.int64(-1), count
        at += 1 + more
    return start, at, count


@helper
def class_named(data, start, end, name_hashes, name_classes, name_offsets, name_bytes):
    """Return the class of a name of ASCII; -1 if it is not known."""
    wanted = np.int64(0)
    for at in range(start, end):
        wanted = wanted * np.int64(31) + (u8(data, at) & 0x7F)
    low, high = np.int64(0), np.int64(name_hashes.size)
    while low < high:
        middle = (low + high) // 2
        if name_hashes[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    if low == name_hashes.size or name_hashes[low] != wanted:
        return np.int64(-1)
    number = name_classes[low]
    first = name_offsets[number]
    if name_offsets[number + 1] - first != end - start:
        return np.int64(-1)
    for step in range(end - start):
        if u8(data, start + step) & 0x7F != u8(name_bytes, first + step):
            return np.int64(-1)
    return number


@helper
def _read_class(
    data, at, end, ids, name_hashes, name_classes, name_offsets, name_bytes, names, count
):
    """Return a class or `NULL`, the position behind it (-1 on a fault), and the names read."""
    mark, at = _varint(data, at, end)
    if at < 0 or mark == 0:
        return np.int64(NULL), at, count
    if mark > 1:
        number = ids[mark - 2] if mark - 2 < ids.size else np.int64(-1)
        return number, at if number >= 0 else np.int64(-1), count
    which, at = _varint(data, at, end)
    if at < 0 or which > count or which >= MOST_NAMES:
        return np.int64(NULL), np.int64(-1), count
    if which == count:
        start, at, size = _text(data, at, end)
        if at < 0 or at - start != size:
            return np.int64(NULL), np.int64(-1), count
        names[count] = class_named(
            data, start, at, name_hashes, name_classes, name_offsets, name_bytes
        )
        count += 1
    number = names[which]
    return number, at if number >= 0 else np.int64(-1), count


@helper
def _days(year, month):
    """Return the days of a month."""
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


@helper
def _read_clock(data, at, end, line, start, number):
    """Read a time of day of Kryo 5.6, whose last unit that is not 0 is inverted."""
    clock, nanos, units, byte = np.int64(0), np.int64(0), 0, np.int64(0)
    while units < 3 and byte < 0x80:
        if at >= end:
            return np.int64(-1)
        byte = u8(data, at)
        at += 1
        clock = clock << 8 | (byte if byte < 0x80 else byte ^ 0xFF)
        units += 1
    if byte < 0x80:
        nanos, at = _varint(data, at, end)
    clock <<= np.int64(8 * (3 - units))
    number[line], start[line] = clock, nanos
    fits = clock >> 16 < 24 and clock >> 8 & 0xFF < 60 and clock & 0xFF < 60
    return at if fits and nanos < A_SECOND else np.int64(-1)


@helper
def _read_bytes(newer, data, at, end, codec, line, start, stop, number):
    """Read bytes or an array of numbers; return the position behind it, -1 on a fault."""
    width = codec - ARRAY_OF if codec > ARRAY_OF else 1
    if newer and width > 1:  # the bytes of Kryo 5 are reversed
        return np.int64(-1)
    count, at = _varint(data, at, end)
    count -= 1
    if at < 0 or count < 0 or count > (end - at) // width:
        return np.int64(-1)
    first = at
    if codec == INTS or codec == LONGS:
        for _ in range(count):
            before = at
            value, at = _unsigned(data, at, end, 5 if codec == INTS else 9)
            if at < 0 or (codec == INTS and value >> 32):
                return np.int64(-1)
            if at > before + 1 and u8(data, at - 1) == 0:  # longer than it need be
                return np.int64(-1)
    else:
        at += count * width
    start[line], stop[line] = first, at
    if codec > BIG:
        number[line] = count
    elif codec == BIG and count == 0:
        return np.int64(-1)
    elif codec == BIG and count > 1:  # the shortest form of a number
        high, next_bit = u8(data, first), u8(data, first + 1) >> 7
        if (high == 0 and next_bit == 0) or (high == 0xFF and next_bit == 1):
            return np.int64(-1)
    return at


@inlined
def _read_content(newer, data, at, end, fields, place, operand, line, start, stop, number):
    """Read what has no objects within it; return the position behind it, -1 on a fault."""
    number[line] = 0
    for step in range(place + 1, place + 1 + STEP_WIDTH * fields[place], STEP_WIDTH):
        codec, part = fields[step], fields[step + 1]
        if codec == TEXT or codec == SIZED_TEXT:
            start[line], at, number[line] = _text(data, at, end)
            stop[line] = at
            return at
        if codec > SIZED_TEXT:
            at = _read_bytes(newer, data, at, end, codec, line, start, stop, number)
            if at < 0:
                return at
            continue
        if codec == CLOCK:
            return _read_clock(data, at, end, line, start, number)
        value = np.int64(0)
        if codec <= 8:
            if codec > end - at:
                return np.int64(-1)
            value = _fixed(newer, data, at, codec)
            at += codec
        elif codec == INT or codec == VARINT:
            value, at = _varint(data, at, end)
            value = _signed(value) if codec == INT else _of_32_bits(value)
        else:
            value, at = _unsigned(data, at, end, 9)
            if codec == LONG:
                value = _signed(value)
            elif codec == MILLIS and not newer:  # as Java has it: whole seconds, and nanoseconds
                value -= value % 1000
        if at < 0 or value < fields[step + 2] or value > fields[step + 3]:
            return np.int64(-1)
        if part == IN_START:
            start[line] = value
        elif part == IN_END:
            stop[line] = value
        else:
            number[line] |= value << part
    if operand == DATED and stop[line] > _days(number[line], start[line]):
        return np.int64(-1)
    return at


@helper
def _no_comparator(data, at, end):
    """Return the position behind a comparator that is null, -1 for another one."""
    return at + 1 if at < end and u8(data, at) == 0 else np.int64(-1)


@helper
def _enter(newer, form, operand, types, count, same, nulls, fields, arguments, stack, depth):
    """Put on the stack how the parts of an object are preceded; return the new depth.

    Args:
        form, operand: Those of its class.
        types: Its type arguments.
        count: The number of elements, or of entries.
        same: The class of all elements; -1 if each has its own.
        nulls: Whether one of these may be null.
    """
    top = depth * STACK_WIDTH
    stack[top + LEFT] = count
    stack[top + HOW], stack[top + HOW_ODD] = ANY, ANY
    stack[top + ARGUMENTS], stack[top + ARGUMENTS_ODD] = 0, 0
    if form == OBJECT or (form == DATE_TIME and not newer):
        stack[top + LEFT], stack[top + HOW] = fields[operand], FIELDS
        stack[top + CLASS] = operand + 1
    elif form == DATE_TIME:
        stack[top + LEFT] = 2
        stack[top + HOW], stack[top + CLASS] = BARE, fields[operand + 2]
        stack[top + HOW_ODD], stack[top + CLASS_ODD] = BARE, fields[operand + 2 + FIELD_WIDTH]
    elif form == ARRAY:
        if operand >= 0:
            stack[top + HOW], stack[top + CLASS] = OR_NULL, operand
            stack[top + HOW_ODD], stack[top + CLASS_ODD] = OR_NULL, operand
    elif form == MAP:
        stack[top + LEFT] = 2 * count
        second = arguments[types * ARGUMENTS_WIDTH + SECOND]
        known = NEVER_NULL if newer and operand & WITHOUT_NULL else OR_NULL
        if same >= 0:
            stack[top + HOW], stack[top + CLASS] = known, same
        if second >= 0:
            stack[top + HOW_ODD], stack[top + CLASS_ODD] = known, second
        if newer:
            stack[top + ARGUMENTS] = arguments[types * ARGUMENTS_WIDTH + IN_KEYS]
            stack[top + ARGUMENTS_ODD] = arguments[types * ARGUMENTS_WIDTH + IN_VALUES]
    elif form >= COLLECTION and (newer or operand & UNTYPED == 0):
        if same >= 0:
            known = OR_NULL if nulls else NEVER_NULL
            stack[top + HOW], stack[top + CLASS] = known, same
            stack[top + HOW_ODD], stack[top + CLASS_ODD] = known, same
        if newer:
            within = arguments[types * ARGUMENTS_WIDTH + IN_ELEMENTS]
            stack[top + ARGUMENTS], stack[top + ARGUMENTS_ODD] = within, within
    return depth + 1


@kernel(
    "void(int64, U8R, I64R, I64R, I64R, I64R, I64R, I64R, I64R, I64R, I64R, U8R,"
    " I64, I64, I64, I64, I64, I64, I64, I64, I64, I64)"
)
def read_objects(
    newer, data, first, limit, classes, fields, arguments, ids, name_hashes, name_classes,
    name_offsets, name_bytes, kind, start, end, number, behind, root, done, objects, names, stack,
):  # fmt: skip
    """Read an object of any class, or null, of each row.

    Args:
        newer: The Kryo that wrote them: `OLDER` or `NEWER`.
        data: The bytes.
        first: Where each row's object begins.
        limit: The position that it does not pass.
        classes, fields, arguments: As above.
        ids: The class of each id; -1 for those of no class.
        name_hashes: The hashes of names of classes, ascending.
        name_classes: The class of each.
        name_offsets, name_bytes: The names, by class.
        kind, start, end, number, behind: Filled: the table, with a line for each byte at least.
        root: Filled: the line of each row's object, or `FAILED`.
        done: Filled: the position behind each row's object.
        objects: Scratch, as long as the table.
        names: Scratch, of `MOST_NAMES`.
        stack: Scratch, of `DEEPEST` lines of `STACK_WIDTH`.
    """
    lines = np.int64(0)
    for row in range(first.size):
        at, stop = first[row], limit[row]
        root[row] = lines
        counted, named, depth = np.int64(0), np.int64(0), np.int64(1)
        stack[LEFT], stack[HOW], stack[HOW_ODD] = 1, ANY, ANY
        stack[ARGUMENTS], stack[ARGUMENTS_ODD] = 0, 0
        stack[LINE] = -1
        while depth > 0:
            top = (depth - 1) * STACK_WIDTH
            left = stack[top + LEFT]
            if left == 0:
                if stack[top + LINE] >= 0:
                    behind[stack[top + LINE]] = lines
                depth -= 1
                continue
            stack[top + LEFT] = left - 1
            if stack[top + HOW] == FIELDS:
                field = stack[top + CLASS]
                how, what, types = fields[field], fields[field + 1], fields[field + 2]
                stack[top + CLASS] = field + FIELD_WIDTH
            elif left & 1:
                how, what = stack[top + HOW_ODD], stack[top + CLASS_ODD]
                types = stack[top + ARGUMENTS_ODD]
            else:
                how, what = stack[top + HOW], stack[top + CLASS]
                types = stack[top + ARGUMENTS]
            line = lines
            lines += 1
            behind[line] = lines
            if how == ANY:
                what, at, named = _read_class(
                    data, at, stop, ids, name_hashes, name_classes, name_offsets, name_bytes,
                    names, named,
                )  # fmt: skip
                if at < 0:
                    break
                if what == NULL:
                    kind[line] = NULL
                    continue
            kind[line] = what
            numbered = classes[what * CLASS_WIDTH + NUMBERED + newer]
            if how == OR_NULL or (how != BARE and numbered):
                mark, at = _varint(data, at, stop)
                if at < 0 or (mark == 0 and how != OR_NULL):
                    at = np.int64(-1)
                    break
                if mark == 0:
                    kind[line] = NULL
                    continue
                if mark > 1:
                    if numbered == 0 or mark - 2 >= counted or kind[objects[mark - 2]] != what:
                        at = np.int64(-1)
                        break
                    kind[line], number[line] = REFERENCE, objects[mark - 2]
                    continue
                if numbered:
                    objects[counted] = line
                    counted += 1
            form = classes[what * CLASS_WIDTH + FORM]
            operand = classes[what * CLASS_WIDTH + OPERAND]
            if form <= ENUM:
                if form == UNKNOWN:
                    at = np.int64(-1)
                    break
                at = _read_content(
                    newer, data, at, stop, fields, classes[what * CLASS_WIDTH + STEPS + newer],
                    operand, line, start, end, number,
                )  # fmt: skip
                if at < 0:
                    break
                continue
            is_list = form == COLLECTION or form == AS_LIST
            same, nulls = arguments[types * ARGUMENTS_WIDTH + FIRST], True
            count = operand if form == SINGLE else np.int64(0)
            start[line] = at
            if form >= COLLECTION:
                is_sorted = form != ARRAY and operand & SORTED << newer != 0
                if is_sorted and not newer:
                    at = _no_comparator(data, at, stop)
                flag = False
                if newer and is_list and (same < 0 or operand & WITHOUT_NULL == 0):
                    flag = at < stop and u8(data, at) >= 0x80
                    count, at = _flagged(data, at, stop)
                elif at >= 0:
                    count, at = _varint(data, at, stop)
                if newer or form == ARRAY:
                    count -= 1
                if is_sorted and newer and at >= 0:
                    at = _no_comparator(data, at, stop)
                if at < 0 or count < 0 or count > stop - at:
                    at = np.int64(-1)
                    break
                if form == AS_LIST and not newer:
                    _, at, named = _read_class(
                        data, at, stop, ids, name_hashes, name_classes, name_offsets,
                        name_bytes, names, named,
                    )  # fmt: skip
                    if at < 0:
                        break
                if newer and is_list:
                    nulls = flag
                    if count > 0 and flag and same < 0:  # one class for all elements
                        same, at, named = _read_class(
                            data, at, stop, ids, name_hashes, name_classes, name_offsets,
                            name_bytes, names, named,
                        )  # fmt: skip
                        nulls = False
                        if at >= 0 and operand & WITHOUT_NULL == 0:
                            nulls = at < stop and u8(data, at) == 1
                            at = at + 1 if at < stop and u8(data, at) < 2 else np.int64(-1)
                        if at < 0 or same == NULL:  # all are null, which takes no bytes
                            at = np.int64(-1)
                            break
            number[line] = count
            if depth == DEEPEST:
                at = np.int64(-1)
                break
            stack[depth * STACK_WIDTH + LINE] = line
            depth = _enter(
                newer, form, operand, types, count, same, nulls, fields, arguments, stack, depth
            )
        done[row] = at
        if at < 0:
            lines = root[row]
            root[row] = FAILED


@kernel("void(I64R, I64R, I64R, I64R, I64)")
def find_ends(kind, number, classes, fields, behind):
    """Fill the column `behind` of a table without references, from its others.

    Args:
        kind, number: The table.
        classes, fields: As above.
        behind: Filled.
    """
    for step in range(kind.size):
        line = kind.size - 1 - step
        at = line + 1
        if kind[line] != NULL:
            form = classes[kind[line] * CLASS_WIDTH + FORM]
            operand = classes[kind[line] * CLASS_WIDTH + OPERAND]
            count = np.int64(0)
            if form == OBJECT or form == DATE_TIME:
                count = fields[operand]
            elif form > DATE_TIME:
                count = number[line] * (2 if form == MAP else 1)
            for _ in range(count):
                if at < kind.size:
                    at = behind[at]
        behind[line] = at


@kernel("void(I64R, I64R, I64R, I64R, I64)")
def parts_within(lines, counts, behind, offsets, parts):
    """Fill the lines of the parts right within some lines.

    Args:
        lines: The lines.
        counts: The number of parts of each.
        behind: As above.
        offsets: The place of the first part of each.
        parts: Filled.
    """
    for row in range(lines.size):
        line, place = lines[row] + 1, offsets[row]
        for _ in range(counts[row]):
            parts[place] = line
            place += 1
            line = behind[line]


@helper
def put_halves(data, at, stop, out, to):
    """Write a character of two units of UTF-16; return the end, -1 if the second one is not there.

    Args:
        data: Text with each half in three bytes.
        at: Where the first half begins, which is one of a character if it is not the second.
        stop: The end of the text.
        out, to: Where the four bytes of UTF-8 are written.
    """
    if stop - at < HALVES or u8(data, at + 1) > 0xAF:
        return np.int64(-1)
    if u8(data, at + 3) != 0xED or u8(data, at + 4) < 0xB0:
        return np.int64(-1)
    high = (u8(data, at + 1) & 0x0F) << 6 | u8(data, at + 2) & 0x3F
    low = (u8(data, at + 4) & 0x0F) << 6 | u8(data, at + 5) & 0x3F
    point = 0x10000 + (high << 10 | low)
    to = put(out, put(out, to, 0xF0 | point >> 18), 0x80 | point >> 12 & 0x3F)
    return put(out, put(out, to, 0x80 | point >> 6 & 0x3F), 0x80 | point & 0x3F)


@kernel("int64(U8R, I64R, I64R, I64R, I64R, I64R, I32, U8)")
def read_texts(data, lines, kind, start, end, number, offsets, out):
    """Read text as UTF-8, one behind the other.

    Args:
        data, kind, start, end, number: The table, and the bytes that it refers to.
        lines: The lines of text, or of null.
        offsets: Filled: where each begins, and the end.
        out: Filled; as long as the bytes of all.

    Returns:
        The bytes written; `FAILED` if half of a character is alone.
    """
    to = np.int64(0)
    for row in range(lines.size):
        offsets[row] = to
        line = lines[row]
        if kind[line] == NULL:
            continue
        at, stop = start[line], end[line]
        size = stop - at
        if size == number[line]:
            copy(data, at, out, to, size)
            to += size
            if size > 0:
                out[np.uintp(to - 1)] = u8(data, stop - 1) & 0x7F
            continue
        while at < stop:
            byte = u8(data, at)
            if byte != 0xED or u8(data, at + 1) < 0xA0:
                out[np.uintp(to)] = byte
                at += 1
                to += 1
                continue
            to = put_halves(data, at, stop, out, to)
            if to < 0:
                return np.int64(FAILED)
            at += HALVES
    offsets[lines.size] = to
    return to


@helper
def _put_varint(out, at, value):
    for _ in range(8):
        if value >= 0 and value < 0x80:
            break
        at = put(out, at, value & 0x7F | 0x80)
        value = value >> 7 & 0x01FFFFFFFFFFFFFF
    return put(out, at, value & 0xFF)


@helper
def _put_zigzag(out, at, value, is_int):
    value = value << 1 ^ value >> 63
    return _put_varint(out, at, value & 0xFFFFFFFF if is_int else value)


@helper
def _put_flagged(out, at, flag, value):
    first = value & 0x3F | (0x80 if flag else 0)
    value >>= 6
    if value == 0:
        return put(out, at, first)
    out[np.uintp(at)] = first | 0x40
    return _put_varint(out, at + 1, value)


@helper
def _put_fixed(newer, out, at, value, width):
    for step in range(width):
        place = step if newer else width - 1 - step
        out[np.uintp(at + step)] = value >> np.int64(8 * place) & 0xFF
    return at + width


@helper
def _put_text(data, start, end, count, longest, out, at):
    """Write text, without its length if it is ASCII and not longer than that."""
    size = end - start
    plain = size == count and count > 1 and count <= longest
    if not plain:
        at = _put_flagged(out, at, True, count + 1)
    copy(data, start, out, at, size)
    at += size
    if size == count and size > 0:
        last = u8(data, end - 1) & 0x7F
        out[np.uintp(at - 1)] = last | 0x80 if plain else last
    return at


@helper
def _put_clock(out, at, clock, nanos):
    hour, minute, second = clock >> 16, clock >> 8 & 0xFF, clock & 0xFF
    if nanos == 0 and second == 0 and minute == 0:
        return put(out, at, ~hour & 0xFF)
    at = put(out, at, hour)
    if nanos == 0 and second == 0:
        return put(out, at, ~minute & 0xFF)
    at = put(out, at, minute)
    if nanos == 0:
        return put(out, at, ~second & 0xFF)
    return _put_varint(out, put(out, at, second), nanos & 0xFFFFFFFF)


@helper
def _put_class(newer, row, what, classes, name_offsets, name_bytes, out, at, names, named):
    """Write a class; return the position behind it, -1 without space, and the names written."""
    number = classes[what * CLASS_WIDTH + ID + newer]
    if number >= 0:
        return _put_varint(out, at, number + 2), named
    at = put(out, at, 1)
    before = row << MOST_COUNTED  # a name of another row does not count
    if names[what] >= before:
        return _put_varint(out, at, names[what] - before), named
    at = _put_varint(out, at, named)
    names[what] = before + named
    first, end = name_offsets[what], name_offsets[what + 1]
    if out.size - at < end - first + ROOM:
        return np.int64(-1), named
    longest = end - first if newer else np.int64(LONGEST_ASCII_2)
    return _put_text(name_bytes, first, end, end - first, longest, out, at), named + 1


@helper
def _put_bytes(newer, data, codec, start, end, number, out, at):
    """Write bytes or an array of numbers; return the position behind it."""
    size = end - start
    at = _put_varint(out, at, (number if codec > BIG else size) + 1)
    width = codec - ARRAY_OF
    if newer and width > 1:
        for element in range(number):
            value = _fixed(False, data, start + element * width, width)
            at = _put_fixed(True, out, at, value, width)
        return at
    copy(data, start, out, at, size)
    return at + size


@inlined
def _put_content(newer, data, fields, place, start, end, number, out, at):
    """Write what has no objects within it; return the position behind it."""
    for step in range(place + 1, place + 1 + STEP_WIDTH * fields[place], STEP_WIDTH):
        codec, part = fields[step], fields[step + 1]
        if codec == TEXT or codec == SIZED_TEXT:
            longest = LONGEST_ASCII if newer else LONGEST_ASCII_2 if codec == TEXT else 0
            return _put_text(data, start, end, number, longest, out, at)
        value = start if part == IN_START else end if part == IN_END else number >> part
        if codec > SIZED_TEXT:
            at = _put_bytes(newer, data, codec, start, end, number, out, at)
        elif codec <= 8:
            at = _put_fixed(newer, out, at, value, codec)
        elif codec == INT or codec == LONG:
            at = _put_zigzag(out, at, value, codec == INT)
        elif codec == VARINT:
            at = _put_varint(out, at, value & 0xFFFFFFFF)
        elif codec == CLOCK:
            at = _put_clock(out, at, number, start)
        else:
            more = start // 1_000_000 if codec == MILLIS and not newer else 0
            at = _put_varint(out, at, value + more)
    return at


@kernel(
    "int64(int64, int64, I64R, U8R, I64R, I64R, I64R, I64R, I64R, I64R, I64R, I64R, I64R, U8R,"
    " U8, I64, U8, I64, I64, I64, I64)"
)
def write_objects(
    newer, row, lines, data, kind, start, end, number, behind, classes, fields, arguments,
    name_offsets, name_bytes, out, ends, outcomes, numbers, names, alone, stack,
):  # fmt: skip
    """Write objects one behind the other, each by itself.

    Args:
        newer: The Kryo that is to read them: `OLDER` or `NEWER`.
        row: The first row to write.
        lines: The line of each row's object. What its parts refer to outside of it is written in
            it, if nothing is within that.
        data, kind, start, end, number, behind: The table, and the bytes that it refers to.
        classes, fields, arguments, name_offsets, name_bytes: As in `read_objects`.
        out: The buffer.
        ends: Filled: the end of each row. That of the row before `row` is read.
        outcomes: Filled: `WRITTEN`, or why a row has no bytes: `REPEATED` or `UNTOLD`.
        numbers: Scratch, as long as the table, less than 0; empty for one without references.
        names: Scratch, one for each class: the number of its name.
        alone: Scratch, one for each class: its single objects that were written.
        stack: Scratch, as in `read_objects`.

    Returns:
        The row that has no space; the number of rows if all were written.
    """
    names[:] = -1
    singles = True
    while row < lines.size:
        begin = ends[row - 1] if row > 0 else np.int64(0)
        at, line, last = begin, lines[row], behind[lines[row]]
        if singles:
            alone[:] = 0
            singles = False
        counted, named, depth = np.int64(0), np.int64(0), np.int64(1)
        stack[LEFT], stack[HOW], stack[HOW_ODD] = 1, ANY, ANY
        stack[ARGUMENTS], stack[ARGUMENTS_ODD] = 0, 0
        outcome = WRITTEN
        while depth > 0:
            top = (depth - 1) * STACK_WIDTH
            left = stack[top + LEFT]
            if left == 0:
                depth -= 1
                continue
            stack[top + LEFT] = left - 1
            if stack[top + HOW] == FIELDS:
                field = stack[top + CLASS]
                how, types = fields[field], fields[field + 2]
                stack[top + CLASS] = field + FIELD_WIDTH
            elif left & 1:
                how, types = stack[top + HOW_ODD], stack[top + ARGUMENTS_ODD]
            else:
                how, types = stack[top + HOW], stack[top + ARGUMENTS]
            here, content, what = line, line, kind[line]
            line += 1
            if what == REFERENCE:
                content = number[here]
                what = kind[content]
            if out.size - at < ROOM:
                return np.int64(row)
            if what == NULL:
                if how == NEVER_NULL or how == BARE:
                    outcome = UNTOLD
                    break
                at = put(out, at, 0)
                continue
            base = what * CLASS_WIDTH
            form, operand = classes[base + FORM], classes[base + OPERAND]
            if form == UNKNOWN:
                outcome = UNTOLD
                break
            if how == ANY:
                at, named = _put_class(
                    newer, row, what, classes, name_offsets, name_bytes, out, at, names, named
                )
                if at < 0:
                    return np.int64(row)
            numbered = classes[base + NUMBERED + newer]
            if form == ENUM and numbered:  # of which a JVM has one
                bit = number[content]
                if bit >= MOST_CONSTANTS or alone[what] >> bit & 1:
                    outcome = UNTOLD if bit >= MOST_CONSTANTS else REPEATED
                    break
                alone[what] |= np.int64(1) << bit
                singles = True
            if numbered and how != BARE:
                if form == EMPTY or content != here:  # a number in another row does not count
                    known = alone[what] - 1
                    if form != EMPTY:
                        known = numbers[content] - (row << MOST_COUNTED)
                    if known >= 0:
                        at = _put_varint(out, at, known + 2)
                        continue
                    if content != here and content >= lines[row] and content < last:
                        outcome = UNTOLD  # an object whose number in this one is not known
                        break
                    if form == EMPTY:
                        alone[what] = counted + 1
                        singles = True
                if numbers.size > 0:
                    numbers[content] = counted + (row << MOST_COUNTED)
                counted += 1
                at = put(out, at, 1)
            elif how == OR_NULL:
                at = put(out, at, 1)
            if form <= ENUM:
                place = classes[base + STEPS + newer]
                size = end[content] - start[content] if fields[place + 1] >= TEXT else 0
                if out.size - at < size + ROOM:
                    return np.int64(row)
                at = _put_content(
                    newer, data, fields, place, start[content], end[content], number[content], out,
                    at,
                )  # fmt: skip
                continue
            count = number[here]
            uncounted = (form == SINGLE or form == EMPTY) and count != operand
            unnamed = form == AS_LIST and not newer  # the class of its elements is not here
            if content != here or depth == DEEPEST or uncounted or unnamed:
                outcome = UNTOLD
                break
            same, nulls = arguments[types * ARGUMENTS_WIDTH + FIRST], True
            is_sorted = form >= COLLECTION and form != ARRAY and operand & SORTED << newer != 0
            if is_sorted and not newer:
                at = put(out, at, 0)
            if newer and count > 0 and (form == COLLECTION or form == AS_LIST):
                only, others, nulls, child = np.int64(NULL), False, False, line
                for _ in range(count):
                    each = kind[child]
                    if each == REFERENCE:
                        each = kind[number[child]]
                    if each == NULL:
                        nulls = True
                    elif only == NULL:
                        only = each
                    elif each != only:
                        others = True
                    child = behind[child]
                never = operand & WITHOUT_NULL != 0
                if nulls and never:
                    outcome = UNTOLD
                    break
                if same >= 0 and never:
                    at = _put_varint(out, at, count + 1)
                else:
                    at = _put_flagged(out, at, nulls if same >= 0 else not others, count + 1)
                if is_sorted:
                    at = put(out, at, 0)
                if same < 0 and not others:
                    if only == NULL:  # all are null
                        at = put(out, at, 0)
                        line = child
                        continue
                    same = only
                    at, named = _put_class(
                        newer, row, same, classes, name_offsets, name_bytes, out, at, names, named
                    )
                    if at < 0:
                        return np.int64(row)
                    if not never:
                        at = put(out, at, 1 if nulls else 0)
            elif form >= COLLECTION:
                at = _put_varint(out, at, count + (1 if newer or form == ARRAY else 0))
                if is_sorted and newer:
                    at = put(out, at, 0)
            depth = _enter(
                newer, form, operand, types, count, same, nulls, fields, arguments, stack, depth
            )
        outcomes[row] = outcome
        ends[row] = at if outcome == WRITTEN else begin
        row += 1
    return np.int64(row)


@kernel("void(U8R, I64R, I64R, U8R, I64R, U8)")
def compare_pieces(data, first, ends, out, sizes, same):
    """Tell which pieces of bytes are those of another buffer, where they are one behind the other.

    Args:
        data: The bytes.
        first: Where each piece begins.
        ends: Where each ends.
        out: The other bytes.
        sizes: The size of each piece there.
        same: Filled: 1 for each that is the same.
    """
    at = np.int64(0)
    for row in range(first.size):
        same[row] = ends[row] - first[row] == sizes[row]
        if same[row]:
            for step in range(sizes[row]):
                if u8(data, first[row] + step) != u8(out, at + step):
                    same[row] = 0
                    break
        at += sizes[row]
