"""Requests: structs from whose fields options, keywords and settings follow."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import wraps
from typing import (
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from typing_extensions import dataclass_transform

from statelake.state_core.errors import DeclarationError

Self = TypeVar("Self")
Given = ParamSpec("Given")
Asked = TypeVar("Asked", bound="Request")
Result = TypeVar("Result")

WIDTH = 96


def option(
    help: str,  # noqa: A002 - as in click
    placeholder: str = "",
    *,
    default: Any = MISSING,
    kw_only: bool = True,
    least: float | None = None,
    most: float | None = None,
    flag: str = "",
) -> Any:
    """Return a field of a request.

    Args:
        help: A sentence about its value.
        placeholder: The form of its value in the help of the command.
        default: Its default; without one it must be given.
        kw_only: Whether it may only be given by its name.
        least: The smallest number that it may be.
        most: The largest number that it may be.
        flag: The name of the option, if it is not that of the field.
    """
    metadata = {
        "help": help, "placeholder": placeholder, "least": least, "most": most, "flag": flag,
    }  # fmt: skip
    return field(default=default, kw_only=kw_only, metadata=metadata)


@dataclass_transform(frozen_default=True, field_specifiers=(option,))
class Request:
    """What is asked of an operation. A list of texts may be given as one text.

    Raises:
        DeclarationError: Fields contradict each other; see `check`.
    """

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)

    def __post_init__(self) -> None:
        for each in options_of(type(self)):
            if each.many:
                value = getattr(self, each.name)
                listed = (value,) if isinstance(value, str) else tuple(value)
                object.__setattr__(self, each.name, listed)
        self.check()

    def check(self) -> None:
        """Refuse fields that contradict each other, by the names of their options.

        Raises:
            DeclarationError: They do.
        """


class Option:
    """A field of a request.

    Attributes:
        name: The name of the field.
        flag: The name of the option: `--add-field`.
        help: A sentence about its value.
        placeholder: The form of its value; empty for a flag.
        kind: The type of its value, or of one of its values.
        many: Whether it may be repeated.
        choices: All values that it may have; empty if these are not counted.
        default: Its default.
        required: Whether it has none.
        least: The smallest number that it may be; None without one.
        most: The largest number that it may be; None without one.
    """

    def __init__(self, declared: Field[Any], hint: Any) -> None:
        metadata = declared.metadata
        self.name = declared.name
        self.flag = metadata["flag"] or f"--{declared.name.replace('_', '-')}"
        self.help = metadata["help"]
        self.placeholder = metadata["placeholder"]
        self.least, self.most = metadata["least"], metadata["most"]
        self.required = declared.default is MISSING
        self.default: Any = None if self.required else declared.default
        self.many = get_origin(hint) is not None and issubclass_of(hint, Sequence)
        parts = [part for part in _parts(hint) if part is not type(None)]
        self.choices = tuple(parts[0].__args__) if get_origin(parts[0]) is Literal else ()
        self.kind = type(self.choices[0]) if self.choices else parts[0]

    @property
    def sentence(self) -> str:
        """The help, and its default if that says something."""
        if self.default in (None, (), "", False):
            return str(self.help)
        return f"{self.help.rstrip('.')}; by default {self.default}."


def issubclass_of(hint: Any, kind: type) -> bool:
    """Return whether a hint is of a generic class."""
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, kind)


def _parts(hint: Any) -> Sequence[Any]:
    if get_origin(hint) is Union or type(hint).__name__ == "UnionType":
        return get_args(hint)
    return get_args(hint) if issubclass_of(hint, Sequence) else (hint,)


def options_of(request: type[Request]) -> Iterator[Option]:
    """Yield the fields of a request, in their order."""
    hints = get_type_hints(request)
    for declared in fields(request):  # type: ignore[arg-type]
        yield Option(declared, hints[declared.name])


def asks(
    request: Callable[Given, Asked],
) -> Callable[[Callable[[Self, Asked], Result]], Callable[Concatenate[Self, Given], Result]]:
    """Return a decorator of a method: it takes the fields of a request, instead of the request.

    Args:
        request: The request, whose fields are in the method's documentation.
    """
    options = [Option(each, str) for each in fields(request)]  # type: ignore[arg-type]

    def decorate(
        method: Callable[[Self, Asked], Result],
    ) -> Callable[Concatenate[Self, Given], Result]:
        @wraps(method)
        def ask(self: Self, /, *values: Given.args, **named: Given.kwargs) -> Result:
            return method(self, request(*values, **named))

        ask.__doc__ = f"{inspect.getdoc(method)}\n\n{arguments_text(options)}"
        own = inspect.signature(method)
        taken = inspect.signature(request)
        instance = next(iter(own.parameters.values()))
        ask.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[instance, *taken.parameters.values()]
        )
        return ask

    return decorate


def arguments_text(options: Iterable[Option]) -> str:
    """Return the fields of a request as a docstring has arguments."""
    lines = [
        textwrap.fill(f"{each.name}: {each.sentence}", WIDTH, initial_indent=" " * 4,
                      subsequent_indent=" " * 8)
        for each in options
    ]  # fmt: skip
    return "\n".join(["Args:", *lines])


def refuse(problem: str, remedy: str = "") -> None:
    """Refuse a request.

    Raises:
        DeclarationError: Always.
    """
    raise DeclarationError(problem, remedy=remedy)
