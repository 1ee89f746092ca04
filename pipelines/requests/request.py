"""Requests: structs from whose fields options, keywords and settings follow."""

from __future__ import annotations

import builtins
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    variable: str = "",
    unit: str = "",
    names: str = "",
    more: bool = False,
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
        variable: The variable of the environment from which the command takes it otherwise.
        unit: What it counts as a number, which may be given instead of text.
        names: What its value names, `snapshot` or `job`, which a shell completes.
        more: Whether it is not usual: help lists it among the others. A class that has `more` says
            so of all its fields.
    """
    metadata = {
        "help": help, "placeholder": placeholder, "least": least, "most": most, "flag": flag,
        "parse": parse, "variable": variable, "unit": unit, "names": names,
        "more": more,
    }  # fmt: skip
    return field(default=default, kw_only=kw_only, metadata=metadata)


def given(
    help: str,  # noqa: A002 - as of `option`
    *,
    default: Any = MISSING,
    kw_only: bool = True,
) -> Any:
    """Return a field that no words say: only the method has it, and the command sets it later.

    Args:
        help: A sentence about its value.
        default: Its default; without one it must be given.
        kw_only: Whether it may only be given by its name.
    """
    return field(default=default, kw_only=kw_only, metadata={"help": help, "given": True})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option, given))
class Request:
    """The arguments of an operation. A list of texts may be given as one text.

    Raises:
        DeclarationError: Fields contradict each other; see `check_fields`.
    """

    def __init_subclass__(cls) -> None:
        # generated methods take time to compile in each class: those below are of all
        dataclass(frozen=True, repr=False, eq=False)(cls)

    def __post_init__(self) -> None:
        for each in options_of(type(self)):
            object.__setattr__(self, each.name, each.value_of(getattr(self, each.name)))
        self.check_fields()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def words(self, of: type[Request]) -> dict[str, Any]:
        """Return those of its fields that another request has, too, by their names."""
        return {
            each.name: getattr(self, each.name)
            for each in options_of(of)
            if hasattr(self, each.name)
        }

    def check_fields(self) -> None:
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
        keyed: Whether its values have keys.
        paired: Whether a key and its value are two texts; if not, `parse` makes both of one.
        choices: All values that it may have; empty if these are not counted.
        default: Its default.
        required: Whether it has none.
        least: The smallest number that it may be; None without one.
        most: The largest number that it may be; None without one.
        parse: What makes its value of text; None without one.
        variable: The variable of the environment from which the command takes it otherwise.
        unit: What it counts as a number, which may be given instead of text.
        names: What its value names; see `option`.
        more: Whether it is not usual.
        given: Whether no words say it; see `given`.
    """

    def __init__(self, declared: Field[Any], hint: Any, *, more: bool = False) -> None:
        metadata = declared.metadata
        self.name = declared.name
        self.flag = metadata.get("flag") or f"--{declared.name.replace('_', '-')}"
        self.help = metadata["help"]
        self.placeholder = metadata.get("placeholder", "")
        self.least, self.most = metadata.get("least"), metadata.get("most")
        self.parse, self.variable = metadata.get("parse"), metadata.get("variable", "")
        self.given, self.unit = metadata.get("given", False), metadata.get("unit", "")
        self.names, self.more = metadata.get("names", ""), more or metadata.get("more", False)
        self.required = declared.default is MISSING
        self.default: Any = None if self.required else declared.default
        parts = [part for part in _parts(hint) if part is not type(None)]
        self.keyed = issubclass_of(parts[0], Mapping)
        self.paired = self.keyed and " " in self.placeholder
        self.many = self.keyed or issubclass_of(hint, Sequence)
        self.choices = tuple(parts[0].__args__) if get_origin(parts[0]) is Literal else ()
        self.kind = type(self.choices[0]) if self.choices else parts[0]

    def value_of(self, given: Any) -> Any:
        """Return a value as the request has it: lists as tuples, maps copied, texts parsed.

        Raises:
            DeclarationError: A text can't be parsed, or a value is out of bounds, or no choice.
        """
        given = () if given is None and self.many else given
        if self.paired:
            return self._pairs(given.items() if isinstance(given, Mapping) else given)
        if not self.many:
            return self._one(given)
        if isinstance(given, Mapping):
            return dict(given) if self.keyed else given
        values = map(self._one, (given,) if isinstance(given, str) and given else given)
        return dict(values) if self.keyed else tuple(values)

    def _pairs(self, given: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in given:
            if name in values:
                refuse(f"{self.flag} names {name} twice: give it once")
            values[name] = self._one(value)
        return values

    def _one(self, given: Any) -> Any:
        try:
            value = given if self.parse is None or not isinstance(given, str) else self.parse(given)
        except DeclarationError as error:
            raise error.within(self.flag) from error
        if self.choices and value not in (*self.choices, self.default):
            refuse(f"{self.flag} is {value!r}, and must be one of {', '.join(self.choices)}")
        if self.least is not None and value is not None and value < self.least:
            refuse(f"{self.flag} is {value}, and must be at least {self.least}")
        if self.most is not None and value is not None and value > self.most:
            refuse(f"{self.flag} is {value}, and must be at most {self.most}")
        return value

    @property
    def sentence(self) -> str:
        """The help, and its default if that says something."""
        unsaid = self.default is True or callable(self.default)
        if unsaid or self.default in (None, (), "", False):
            return str(self.help)
        other = f" (or a number of {self.unit})" if self.unit else ""
        return f"{self.help.rstrip('.')}; by default {self.default}{other}."


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


class _Names(dict[str, Any]):
    """Names of modules; one that is imported for types alone is `Any`."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, Any)


@cache
def _options_of(request: Any) -> tuple[Option, ...]:
    names = _Names()
    more: dict[str, bool] = {}
    for base in reversed(request.__mro__):
        names |= vars(sys.modules[base.__module__])
        more |= dict.fromkeys(vars(base).get("__annotations__", ()), vars(base).get("more", False))
    hints = (eval(str(each.type), {}, names) for each in fields(request))  # noqa: S307 - ours
    return tuple(
        Option(each, hint, more=more[each.name])
        for each, hint in zip(fields(request), hints, strict=True)
    )


def asks(
    request: Callable[Given, Asked],
) -> Callable[[Callable[[Self, Asked], Result]], Callable[Concatenate[Self, Given], Result]]:
    """Return a decorator of a method: it takes the fields of a request, instead of the request.

    Args:
        request: The request, whose fields are in the method's documentation.
    """
    return lambda method: _asking(method, request)


def like(
    method: Callable[Concatenate[Any, Given], Result],
) -> Callable[[Callable[..., Result]], Callable[Concatenate[Any, Given], Result]]:
    """Return a decorator of a method that takes and says what another one does."""
    return lambda own: cast("Callable[Concatenate[Any, Given], Result]", wraps(method)(own))


def takes(
    request: Callable[Given, Asked],
) -> Callable[[Callable[[Asked], Result]], Callable[Given, Result]]:
    """Return the same for a function that has no other parameter."""
    return lambda function: _asking(function, request)


def _asking(function: Callable[..., Any], request: Callable[..., Request]) -> Any:
    own = inspect.signature(function)
    before = list(own.parameters.values())[:-1]

    @wraps(function)
    def ask(*values: Any, **named: Any) -> Any:
        return function(*values[: len(before)], request(*values[len(before) :], **named))

    taken = inspect.signature(request).parameters
    by_name = {each.name: Option(each, str) for each in fields(request)}  # type: ignore[arg-type]
    options = [by_name[name] for name in taken]
    ask.request = request  # type: ignore[attr-defined]
    text, raises, errors = (inspect.getdoc(function) or "").partition("\n\nRaises:")
    ask.__doc__ = f"{text}\n\n{arguments_text(options)}{raises}{errors}"
    ask.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[*before, *taken.values()]
    )
    return ask


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
