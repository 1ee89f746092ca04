"""Requests: structs from whose fields options, keywords and settings follow."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache, wraps
from typing import (
    Any,
    Concatenate,
    Literal,
    NoReturn,
    ParamSpec,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
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
    parse: Callable[[str], Any] | None = None,
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
        parse: What makes its value of text, which may be given instead.
    """
    metadata = {
        "help": help, "placeholder": placeholder, "least": least, "most": most, "flag": flag,
        "parse": parse,
    }  # fmt: skip
    return field(default=default, kw_only=kw_only, metadata=metadata)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(option,))
class Request:
    """What is asked of an operation. A list of texts may be given as one text.

    Raises:
        DeclarationError: Fields contradict each other; see `check`.
    """

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)

    def __post_init__(self) -> None:
        for each in options_of(type(self)):
            object.__setattr__(self, each.name, each.value_of(getattr(self, each.name)))
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
        parse: What makes its value of text; None without one.
    """

    def __init__(self, declared: Field[Any], hint: Any) -> None:
        metadata = declared.metadata
        self.name = declared.name
        self.flag = metadata["flag"] or f"--{declared.name.replace('_', '-')}"
        self.help = metadata["help"]
        self.placeholder = metadata["placeholder"]
        self.least, self.most, self.parse = metadata["least"], metadata["most"], metadata["parse"]
        self.required = declared.default is MISSING
        self.default: Any = None if self.required else declared.default
        self.many = get_origin(hint) is not None and issubclass_of(hint, Sequence)
        parts = [part for part in _parts(hint) if part is not type(None)]
        self.choices = tuple(parts[0].__args__) if get_origin(parts[0]) is Literal else ()
        self.kind = type(self.choices[0]) if self.choices else parts[0]

    def value_of(self, given: Any) -> Any:
        """Return a value as the request has it: lists as tuples, texts parsed.

        Raises:
            DeclarationError: A text can't be parsed, or a number is out of bounds.
        """
        if self.many:
            return tuple(map(self._one, (given,) if isinstance(given, str) else given))
        return self._one(given)

    def _one(self, given: Any) -> Any:
        value = given if self.parse is None or not isinstance(given, str) else self.parse(given)
        if self.least is not None and value is not None and value < self.least:
            refuse(f"{self.flag} is {value}, and must be at least {self.least}")
        if self.most is not None and value is not None and value > self.most:
            refuse(f"{self.flag} is {value}, and must be at most {self.most}")
        return value

    @property
    def sentence(self) -> str:
        """The help, and its default if that says something."""
        if self.default in (None, (), "", False) or callable(self.default):
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


def options_of(request: Callable[..., Request]) -> tuple[Option, ...]:
    """Return the fields of a request, in their order."""
    return _options_of(cast("Any", request))


@cache
def _options_of(request: Any) -> tuple[Option, ...]:
    names: dict[str, Any] = {}
    for base in reversed(request.__mro__):
        names |= vars(sys.modules[base.__module__])
    return tuple(Option(each, _hint(str(each.type), names)) for each in fields(request))


def _hint(written: str, names: dict[str, Any]) -> Any:
    """Return an annotation; `Any` of a type that is imported for types alone."""
    try:
        return eval(written, names)  # noqa: S307 - an annotation of ours
    except NameError:
        return Any


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


def refuse(problem: str, remedy: str = "") -> NoReturn:
    """Refuse a request.

    Raises:
        DeclarationError: Always.
    """
    raise DeclarationError(problem, remedy=remedy)
