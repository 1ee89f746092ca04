"""Functions of reducing and aggregating states, by name.

A declaration travels as JSON, and JSON never runs: it holds `module:qualname`, and only `resolve`,
where the state is used, imports that. So a function lives in a module, under a name.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from state_core.errors import DeclarationError, StateError

__all__ = ["AggregateFunction", "FunctionReference"]

_TEXT = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")
_REMEDY = "define it in a module that can be imported, at its top level, and name it there"


@runtime_checkable
class AggregateFunction(Protocol):
    """What an aggregating state does with values; a class without arguments, or an instance."""

    def create_accumulator(self) -> Any:
        """What a new key begins with."""

    def add(self, value: Any, accumulator: Any) -> Any:
        """The accumulator with one more value in it."""

    def get_result(self, accumulator: Any) -> Any:
        """What the state says when it is read."""

    def merge(self, a: Any, b: Any) -> Any:
        """Two accumulators as one."""


@dataclass(frozen=True, slots=True)
class FunctionReference:
    """A function, or a class, by where it is defined.

    Attributes:
        module: The module's name.
        qualname: Its name there, dotted inside classes.
    """

    module: str
    qualname: str

    @classmethod
    def of(
        cls, given: FunctionReference | Callable[..., Any] | str, place: str
    ) -> FunctionReference:
        """The reference of a function, or of `module:qualname`.

        Raises:
            DeclarationError: It can't be found again by a name.
        """
        if isinstance(given, FunctionReference):
            return given
        if isinstance(given, str):
            found = _TEXT.fullmatch(given)
            if found is None:
                raise DeclarationError(
                    f"{given!r} names no function", place=place, remedy="write module:qualname"
                )
            return cls(found[1], found[2])
        module, qualname = getattr(given, "__module__", ""), getattr(given, "__qualname__", "")
        shown = qualname or repr(given)[:80]
        if not qualname or _TEXT.fullmatch(f"{module}:{qualname}") is None:
            raise DeclarationError(f"{shown} has no name", place=place, remedy=_REMEDY)
        if module == "__main__" or _found(sys.modules.get(module), qualname) != given:
            raise DeclarationError(
                f"{shown} of {module} can't be found by its name", place=place, remedy=_REMEDY
            )
        return cls(module, qualname)

    def resolve(self) -> Any:
        """What it names; its module is imported, which runs the module's code.

        Raises:
            DeclarationError: It is not there.
        """
        try:
            module = importlib.import_module(self.module)
        except StateError:
            raise
        except Exception as error:
            raise DeclarationError(
                f"the module can't be imported ({type(error).__name__}: {error})", place=str(self)
            ) from error
        found = _found(module, self.qualname)
        if found is None:
            raise DeclarationError("the module has no such name", place=str(self))
        return found

    def reduce_function(self) -> Callable[[Any, Any], Any]:
        """What it names, to be called with two values.

        Raises:
            DeclarationError: It is not there, or can't be called.
        """
        found = self.resolve()
        if not callable(found):
            raise DeclarationError("this can't be called", place=str(self))
        called: Callable[[Any, Any], Any] = found
        return called

    def aggregate_function(self) -> AggregateFunction:
        """What it names, as an instance.

        Raises:
            DeclarationError: It is not there, or lacks a method.
        """
        found = self.resolve()
        if isinstance(found, type):
            try:
                found = found()
            except Exception as error:
                raise DeclarationError(
                    f"it can't be made without arguments ({error})", place=str(self)
                ) from error
        if not isinstance(found, AggregateFunction):
            raise DeclarationError(
                "this is no aggregate function",
                place=str(self),
                remedy="it wants create_accumulator, add, get_result and merge",
            )
        return found

    def __str__(self) -> str:
        return f"{self.module}:{self.qualname}"


def _found(module: Any, qualname: str) -> Any:
    found = module
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return found
