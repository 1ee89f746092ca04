"""Compile a kernel when it is called, and keep its machine code on disk.

Numba itself takes longer to import than a small snapshot takes to read. So kernels are defined
without importing it: signatures are text, numbers in them have NumPy's types, and helpers are plain
functions that are looked up when a kernel that calls them is compiled.

Signatures are explicit: one compilation for each kernel, for any mix of writable and read-only
arrays (an Arrow buffer is read-only; an input typed without `readonly` would reject it). `I64` is
an array of 64-bit integers that the kernel writes, `I64R` one that it only reads; numbers have
Numba's names.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, TypeVar

import numpy as np


@dataclass(frozen=True)
class Interpreting:
    """The limits of what Python's interpreter runs instead of machine code.

    Attributes:
        size: The largest size of an array.
        seconds: The processor time in all, for each kernel; a compilation takes longer.
    """

    size: int = 1 << 17
    seconds: float = 0.25


interpreting = Interpreting()
_Function = TypeVar("_Function", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {"nogil": True, "boundscheck": False, "error_model": "numpy"}
_ARRAYS = {"U": "uint", "I": "int", "F": "float"}
_compile_lock = threading.RLock()
_helpers: dict[Callable[..., Any], dict[str, Any]] = {}
_native_helpers: dict[Callable[..., Any], Any] = {}
_log = logging.getLogger("statelake")
_said: set[str] = set()


def helper(function: _Function) -> _Function:
    """Decorate a function that kernels call."""
    _helpers[function] = {}
    return function


def inlined(function: _Function) -> _Function:
    """Decorate a function that is inlined into the kernels that call it."""
    _helpers[function] = {"inline": "always"}
    return function


class Kernel:
    """A function that is compiled to machine code once that pays off.

    Until then Python's interpreter runs it over small arrays: a compilation takes a second, and
    loading Numba takes half of one. `interpreting` says where that ends.

    Args:
        function: The Python source of the kernel.
        signature: Its Numba signature, as text.
        numbers: What `{}` stands for in the signature.
        counted: Whether references to arrays are counted.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        signature: str,
        *,
        numbers: str = "",
        counted: bool = True,
    ) -> None:
        self.function = function
        self.signature = signature.format(numbers)
        self.options = _OPTIONS if counted else {**_OPTIONS, "_nrt": False}
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        result, _, types = signature.rstrip(")").partition("(")  # `{}` keeps its width
        self._returns = result != "void"
        self._bytes_read = tuple(
            index for index, word in enumerate(types.split(", ")) if word == "U8R"
        )
        self._interpreted_seconds = 0.0
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Run the kernel, compiling it first if necessary."""
        compiled = self._compiled
        if compiled is not None:
            return compiled(*arguments)
        if self._interpreted_seconds < interpreting.seconds and all(
            argument.size <= interpreting.size
            for argument in arguments
            if isinstance(argument, np.ndarray)
        ):
            began = time.thread_time()
            result = self.interpret(*arguments)
            self._interpreted_seconds += time.thread_time() - began
            return result
        return self.compile()(*arguments)

    def interpret(self, *arguments: Any) -> Any:
        """Run the Python source.

        Bytes are widened to 64 bits before it reads them, as Numba's arithmetic does it.
        """
        widened = list(arguments)
        for index in self._bytes_read:
            widened[index] = arguments[index].astype(np.int64)
        with np.errstate(all="ignore"):  # machine code wraps around in silence
            result = self.function(*widened)
        return int(result) if self._returns else None

    def compile(self) -> Callable[..., Any]:
        """Compile, or load from the cache."""
        with _compile_lock:
            if self._compiled is None:
                self._compiled = _compile(self.function, self.signature, self.options)
            return self._compiled


def kernel(signature: str, *, counted: bool = True) -> Callable[[Callable[..., Any]], Kernel]:
    """Decorate a function as a kernel of this signature.

    Args:
        signature: Its Numba signature, as text.
        counted: Whether references to arrays are counted, which a kernel that creates arrays needs.
            With inlined helpers, counting can take most of the time: it is atomic, at every call.
    """
    return lambda function: Kernel(function, signature, counted=counted)


def kernels_by_width(signature: str) -> Callable[[Callable[..., Any]], tuple[Kernel, ...]]:
    """Decorate a function as four kernels, for arrays of numbers of 1, 2, 4 and 8 bytes.

    Args:
        signature: The signature, with `{}` for the array whose numbers are of each width; the
            function gets the bits of a number from `np.iinfo(array.dtype).bits`, which costs
            nothing.
    """

    def of_widths(function: Callable[..., Any]) -> tuple[Kernel, ...]:
        code, names = function.__code__, function.__globals__
        return tuple(
            Kernel(
                FunctionType(code, names, f"{function.__name__}{numbers[1:]}"),
                signature,
                numbers=numbers,
            )
            for numbers in ("U8", "I16", "I32", "I64")
        )

    return of_widths


def all_kernels() -> list[Kernel]:
    """Return every kernel, by module."""
    package = __name__.rpartition(".")[0]
    modules = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return kernels_in(*(importlib.import_module(f"{package}.{module.name}") for module in modules))


def kernels_in(*modules: ModuleType) -> list[Kernel]:
    """Return the kernels of modules, each once."""
    found = [
        value
        for module in modules
        for each in vars(module).values()
        for value in (each if isinstance(each, tuple) else (each,))
        if isinstance(value, Kernel)
    ]
    return list(dict.fromkeys(found))


def _compile(
    function: Callable[..., Any], signature: str, options: dict[str, Any]
) -> Callable[..., Any]:
    from numba import njit  # noqa: PLC0415 - only where a kernel is compiled

    types, native = _signature(signature), _with_helpers(function)
    compiled: Callable[..., Any]
    try:
        compiled = njit([types], cache=True, **options)(native)
        if compiled.stats.cache_misses:
            _say_once(
                "compiling kernels: each takes a second, once on this machine; `statelake warm`"
                " compiles all of them ahead"
            )
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        _say_once(
            "compiled kernels can't be cached, as no cache directory is writable: each process"
            " compiles them again (seconds); set NUMBA_CACHE_DIR to a writable directory"
        )
        compiled = njit([types], **options)(native)
    return compiled


def _signature(text: str) -> Any:
    """Return Numba's signature for its text."""
    result, _, rest = text.rstrip(")").partition("(")
    return _numba_type(result)(*map(_numba_type, rest.split(", ")))


def _numba_type(word: str) -> Any:
    from numba import types  # noqa: PLC0415 - only where a kernel is compiled

    if word[0] not in _ARRAYS:
        return getattr(types, word)
    number = getattr(types, _ARRAYS[word[0]] + word[1:].rstrip("R"))
    return types.Array(number, 1, "C", readonly=word.endswith("R"))


def _with_helpers(function: Callable[..., Any]) -> FunctionType:
    """Return the function with its helpers replaced by their Numba versions."""
    code, names = function.__code__, dict(function.__globals__)
    for name in code.co_names:
        called = names.get(name)
        if isinstance(called, FunctionType) and called in _helpers:
            names[name] = _native_helper(called)
    native = FunctionType(code, names, function.__name__)
    # the cache's file: processes that compile at once could mix up kernels that share one
    native.__qualname__ = function.__name__
    return native


def _native_helper(function: Callable[..., Any]) -> Any:
    from numba import njit  # noqa: PLC0415 - only where a kernel is compiled

    if function not in _native_helpers:
        _native_helpers[function] = njit(**_helpers[function])(_with_helpers(function))
    return _native_helpers[function]


def _say_once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        _log.warning(message)
