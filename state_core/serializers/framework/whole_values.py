"""Values read whole, for people: with all that their columns can't hold.

A column cuts off nanoseconds, and has no year 12345. While values are read whole, a serializer's
`read` returns such a value as the text that says all of it; every other value is as ever.
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
    """A value that no column holds, as text.

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
    """Read values whole in this thread, until the context ends."""
    token = _whole.set(True)
    try:
        yield
    finally:
        _whole.reset(token)


def reads_whole() -> bool:
    """Return whether this thread reads values whole."""
    return _whole.get()


def said(value: Any) -> Any:
    """Return a value as JSON says it, without what only Python's object has.

    Raises:
        EncodeError: JSON does not say all of it: a NaN's bits, an object of another class.
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
