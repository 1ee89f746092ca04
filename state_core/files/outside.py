"""Content that anyone may have written, as values of a type: the type says what it may be.

A type is a dataclass, or a `msgspec.Struct`, whose fields have bounds in their annotations. Bytes
are parsed by Python's JSON, as names of states may have lone surrogates, which msgspec refuses.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from statelake.state_core.errors import StateError

Value = TypeVar("Value")
Refusal: TypeAlias = Callable[[str], StateError]
"""A function that returns the error of a problem, with the place and the remedy."""

Count: TypeAlias = Annotated[int, Meta(ge=0)]
_MESSAGE = re.compile(r"(.*?)(?: - at (?:`key` in )?`\$\.?(.*)`)?", re.DOTALL)
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_SHOWN = reprlib.Repr()  # not of all levels, of which there may be as many as can be parsed
_SHOWN.maxstring = 200


def matching(pattern: str) -> Meta:
    """Return the bound of a text that matches a pattern from its beginning to its end."""
    return Meta(pattern=rf"(?a)\A(?:{pattern})\Z")


def one_of(words: Iterable[str]) -> Meta:
    """Return the bound of a text that is one of some words."""
    return matching("|".join(map(re.escape, words)))


def parse_json(data: bytes | str, refused: Refusal, longest: int | None = None) -> Any:
    """Parse JSON; what is too long, malformed or too deep is refused."""
    if longest is not None and len(data) > longest:
        raise refused(f"it is longer than {longest} bytes")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise refused(f"malformed JSON ({error})") from error


def checked(value: Any, kind: type[Value], refused: Refusal) -> Value:
    """Return parsed JSON, or a row, as a value of a type.

    Args:
        value: Mappings, lists and scalars.
        kind: The type.
        refused: Makes the error of a value that is not of that type.
    """
    try:
        return msgspec.convert(value, kind, builtin_types=(bytes, datetime))
    except msgspec.ValidationError as error:
        raise refused(_fault(value, str(error))) from error
    except (ValueError, RecursionError) as error:  # as a field's name that is no UTF-8
        raise refused(str(error)) from error


def decoded(
    data: bytes | str, kind: type[Value], refused: Refusal, longest: int | None = None
) -> Value:
    """Return JSON as a value of a type; see `parse_json` and `checked`."""
    return checked(parse_json(data, refused, longest), kind, refused)


def _fault(value: Any, message: str) -> str:
    """Return the place in a value, what is there if its names are known, and what is wanted."""
    problem, path = _MESSAGE.fullmatch(message).groups("")  # type: ignore[union-attr]  # all match
    wanted = problem.removeprefix("Expected ").partition(", got ")[0]
    if wanted != problem:
        problem = f"{wanted} is wanted"
        if path and "..." not in path:
            for name, index in _STEP.findall(path):
                value = value[int(index) if index else name]
            problem = f"{_SHOWN.repr(value)}, and {problem}"
    return f"{path}: {problem}" if path else problem
