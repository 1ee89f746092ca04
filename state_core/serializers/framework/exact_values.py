"""Exact values as text, where typed columns can't represent them.

A column cuts off nanoseconds, and has no year 12345. Within `exact_values`, a serializer's `read`
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

_exact: ContextVar[bool] = ContextVar("whole", default=False)
_NAN = struct.pack(">d", math.nan)
_JSON_TYPES = (type(None), bool, int, str, bytes, Decimal, datetime, date, time)


class ExactText(str):
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
def exact_values() -> Iterator[None]:
    """Read exact values in this thread, until the context ends."""
    token = _exact.set(True)
    try:
        yield
    finally:
        _exact.reset(token)


def reads_exact() -> bool:
    """Return whether this thread reads exact values."""
    return _exact.get()


def exact_json_value(value: Any) -> Any:
    """Return a value made only of types that JSON can represent exactly.

    Raises:
        EncodeError: JSON can't represent it: the bits of a NaN, or an object of another class.
    """
    kind = type(value)
    if kind in _JSON_TYPES or kind is ExactText:
        return value
    if kind is float and (not math.isnan(value) or struct.pack(">d", value) == _NAN):
        return value
    if kind is dict:
        return {name: exact_json_value(item) for name, item in value.items()}
    if kind in (list, tuple):
        return kind(map(exact_json_value, value))
    raise EncodeError(f"{value!r} has parts that JSON does not have")
