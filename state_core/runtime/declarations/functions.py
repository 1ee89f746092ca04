"""Functions of reducing and aggregating states, by name.

A declaration can be sent as JSON, which is never executed: it names a function as
`module:qualname`, and only `resolve`, where the state is used, imports that. So a function must
have a name in a module.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from statelake.state_core.errors import DeclarationError, StateError

_TEXT = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")
_REMEDY = "define it in a module that can be imported, at its top level, and name it there"


@runtime_checkable
class AggregateFunction(Protocol):
    """The function of an aggregating state: a class without arguments, or an instance."""

    def create_accumulator(self) -> Any:
        """Return the accumulator of a new key."""

    def add(self, value: Any, accumulator: Any) -> Any:
        """Return the accumulator with one more value in it."""

    def get_result(self, accumulator: Any) -> Any:
        """Return the result, as read from the state."""

    def merge(self, a: Any, b: Any) -> Any:
        """Return two accumulators combined into one."""


@dataclass(frozen=True, slots=True)
class FunctionReference:
    """A function or class by the module that defines it, and its name there.

    Attributes:
        module: The module's name.
        qualname: Its name in the module, dotted inside classes.
    """

    module: str
    qualname: str

    @classmethod
    def of(
        cls, given: FunctionReference | Callable[..., Any] | str, place: str
    ) -> FunctionReference:
        """Return the reference of a function, or of `module:qualname`.

        Raises:
            DeclarationError: The function can't be found again by its name.
        """
        if isinstance(given, FunctionReference):
            return given
        if isinstance(given, str):
            match = _TEXT.fullmatch(given)
            if match is None:
                raise DeclarationError(
                    f"{given!r} names no function", place=place, remedy="write module:qualname"
                )
            return cls(match[1], match[2])
        module, qualname = getattr(given, "__module__", ""), getattr(given, "__qualname__", "")
        shown = qualname or repr(given)[:80]
        if not qualname or _TEXT.fullmatch(f"{module}:{qualname}") is None:
            raise DeclarationError(f"{shown} has no name", place=place, remedy=_REMEDY)
        if module == "__main__" or _member(sys.modules.get(module), qualname) != given:
            raise DeclarationError(
                f"{shown} of {module} can't be found by its name", place=place, remedy=_REMEDY
            )
        return cls(module, qualname)

    def resolve(self) -> Any:
        """Import the module, which runs its code, and return the named object.

        Raises:
            DeclarationError: The module can't be imported, or has no such name.
        """
        try:
            module = importlib.import_module(self.module)
        except StateError:
            raise
        except Exception as error:
            raise DeclarationError(
                f"the module can't be imported ({type(error).__name__}: {error})", place=str(self)
            ) from error
        member = _member(module, self.qualname)
        if member is None:
            raise DeclarationError("the module has no such name", place=str(self))
        return member

    def reduce_function(self) -> Callable[[Any, Any], Any]:
        """Return the function, to be called with two values.

        Raises:
            DeclarationError: The function can't be imported, or can't be called.
        """
        function = self.resolve()
        if not callable(function):
            raise DeclarationError("it is not callable", place=str(self))
        called: Callable[[Any, Any], Any] = function
        return called

    def aggregate_function(self) -> AggregateFunction:
        """Return an instance of the aggregate function.

        Raises:
            DeclarationError: The function can't be imported, or lacks a method.
        """
        function = self.resolve()
        if isinstance(function, type):
            try:
                function = function()
            except Exception as error:
                raise DeclarationError(
                    f"it can't be made without arguments ({error})", place=str(self)
                ) from error
        if not isinstance(function, AggregateFunction):
            raise DeclarationError(
                "this is no aggregate function",
                place=str(self),
                remedy="it wants create_accumulator, add, get_result and merge",
            )
        return function

    def __str__(self) -> str:
        return f"{self.module}:{self.qualname}"


def _member(module: Any, qualname: str) -> Any:
    member = module
    for name in qualname.split("."):
        member = getattr(member, name, None)
    return member
