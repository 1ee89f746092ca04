"""Layouts: the order of the bytes of a value.

A layout consists of words of `kernels.skip` and of serializers, which have layouts themselves. A
serializer declares its layout once; the program that walks its values and the smallest size of a
value are derived from it::

    Map        repeat(key, when(value))
    Nullable   either(padding, value)
    Row        masked(fields, leading)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias

from statelake.state_core.kernels import skip

Program: TypeAlias = tuple[int, ...]


class ByteLayout(Protocol):
    """A part of a layout: a serializer or a word."""

    @property
    def self_delimiting(self) -> bool:
        """Return whether the bytes of a value determine its end."""

    @property
    def min_length(self) -> int:
        """Return the smallest size of a value in bytes."""

    def skip_program(self) -> Program | None:
        """Return the program that walks one value; None if no program can."""


@dataclass(frozen=True, slots=True)
class Sequenced:
    """Consecutive values, without anything between them."""

    parts: tuple[ByteLayout, ...]
    self_delimiting: ClassVar[bool] = True

    @property
    def min_length(self) -> int:
        """Return the sum of the parts' minimum lengths; a part up to the end may be empty."""
        return sum(part.min_length for part in self.parts if part.self_delimiting)

    def skip_program(self) -> Program | None:
        """Return the programs of the parts, concatenated."""
        programs = _programs(self.parts)
        return None if programs is None else tuple(word for body in programs for word in body)


@dataclass(frozen=True, slots=True)
class Word:
    """A word of `kernels.skip`: its code, its numbers, and the bodies behind their lengths."""

    numbers: Program
    min_length: int
    bodies: tuple[ByteLayout, ...] = ()
    self_delimiting: ClassVar[bool] = True

    def skip_program(self) -> Program | None:
        """Return the word with the programs of its bodies; None of elements without bytes.

        Of these there may be more than bytes are left, which a program takes for damage.
        """
        if self.numbers[0] == skip.REPEAT and not self.bodies[0].min_length:
            return None
        programs = _programs(self.bodies)
        if programs is None:
            return None
        words = (word for body in programs for word in body)
        return (*self.numbers, *map(len, programs), *words)


def _programs(parts: Sequence[ByteLayout]) -> list[Program] | None:
    """Return the programs of all parts; None if a part has no program."""
    programs = []
    for part in parts:
        program = part.skip_program()
        if program is None:
            return None
        programs.append(program)
    return programs


def sequence(*parts: ByteLayout) -> ByteLayout:
    """Return the layout of consecutive values."""
    return parts[0] if len(parts) == 1 else Sequenced(parts)


NOTHING = sequence()
STRING = Word((skip.STRING,), 1)
BIG_INTEGER = Word((skip.BIGINT,), 4)
BIG_DECIMAL = Word((skip.BIGDEC,), 4)


def fixed(size: int) -> ByteLayout:
    """Return the layout of a fixed number of bytes."""
    return Word((skip.FIXED, size), size) if size else NOTHING


def sized(width: int = 1, least: int = 0) -> ByteLayout:
    """Return the layout of an i32 count and as many elements of that width, but `least` bytes."""
    return Word((skip.SIZED, width), 4 + least)


def repeat(*parts: ByteLayout) -> ByteLayout:
    """Return the layout of an i32 count, and so many elements of these parts."""
    return Word((skip.REPEAT,), 4, (sequence(*parts),))


def when(part: ByteLayout) -> ByteLayout:
    """Return the layout of a flag, and of a value unless the flag is set."""
    return Word((skip.WHEN, 0), 1, (part,))


def either(if_true: ByteLayout, if_false: ByteLayout) -> ByteLayout:
    """Return the layout of a flag, and of a value of one of two types."""
    return Word((skip.EITHER,), 1, (if_true, if_false))


def masked(fields: Sequence[ByteLayout], leading: int) -> ByteLayout:
    """Return the layout of a bit mask, and of the fields whose bit is not set.

    Args:
        fields: The fields.
        leading: The bits before those of the fields.
    """
    size = (leading + len(fields) + 7) // 8
    return Word((skip.MASKED, len(fields), leading), size, tuple(fields))


def choice(
    parts: Sequence[ByteLayout], padding: int | None = None, *, width: int = 1
) -> ByteLayout:
    """Return the layout of the number of a type, and of a value of that type.

    Args:
        parts: The types.
        padding: The bytes behind a negative number; None if there are no such numbers.
        width: The bytes of the number: 1 or 4.
    """
    return _choice(width, 0, parts, padding)


def prefix(parts: Sequence[ByteLayout], padding: int | None) -> ByteLayout:
    """Return the layout of an i32 number of fields, and of so many of the first fields.

    Args:
        parts: All fields.
        padding: The bytes behind a negative number; None if there are no such numbers.
    """
    return _choice(4, 1, parts, padding)


def _choice(
    width: int, is_prefix: int, parts: Sequence[ByteLayout], padding: int | None
) -> ByteLayout:
    null_padding = -1 if padding is None else padding
    return Word((skip.CHOICE, width, is_prefix, null_padding, len(parts)), width, tuple(parts))


def marked(part: ByteLayout) -> ByteLayout:
    """Return the layout of a value that begins with an i32, whose smallest number means null."""
    return Word((skip.MARKED,), 4, (part,))
