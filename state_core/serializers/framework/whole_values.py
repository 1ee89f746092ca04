"""Exact values as text, where typed columns can't represent them.

A column cuts off nanoseconds, and has no year 12345. Within `whole_values`, a serializer's `read`
returns such a value as exact text, and all other values as usual.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from typing_extensions import Self

from statelake.state_core.errors import EncodeError

_whole: ContextVar[bool] = ContextVar("whole", default=False)
_NAN = struct.pack(">d", math.nan)
_SAID = (type(None), bool, int, str, bytes, Decimal, datetime, date, time)


class WholeText(str):
    """The exact text of a value that no column can hold.

    Attributes:
        numbers: The numbers that its serializer writes.
    """

    __slots__ = ("numbers",)
    numbers: tuple[int, ...]

    def __new__(cls, text: str, numbers: Sequence[int] = ()) -> Self:
        """Return the text, with its numbers."""
        instance = super().__new__(cls, text)
        instance.numbers = tuple(numbers)
        return instance


@contextmanager
def whole_values() -> Iterator[None]:
    """Read exact values in this thread, until the context ends."""
    token = _whole.set(True)
    try:
        yield
    finally:
        _whole.reset(token)


def reads_whole() -> bool:
    """Return whether this thread reads exact values."""
    return _whole.get()


def said(value: Any) -> Any:
    """Return a value made only of types that JSON can represent exactly.

    Raises:
        EncodeError: JSON can't represent it: the bits of a NaN, or an object of another class.
    """
    kind = type(value)
    if kind in _SAID or kind is WholeText:
        return value
    if kind is float and (not math.isnan(value) or struct.pack(">d", value) == _NAN):
        return value
    if kind is dict:
        return {name: said(item) for name, item in value.items()}
    if kind in (list, tuple):
        return kind(map(said, value))
    raise EncodeError(f"{value!r} has parts that JSON does not have")
