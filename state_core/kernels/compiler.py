"""Compile a kernel when it is called, and keep its machine code on disk.

Numba itself takes longer to import than a small snapshot takes to read. So kernels are defined
without importing it: signatures are text, numbers in them have NumPy's types, and helpers are plain
functions that are looked up when a kernel that calls them is compiled. It is not imported for a
kernel that was compiled before, either: `machine_code` has that.

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

from statelake.state_core.kernels import machine_code
from statelake.state_core.kernels.machine_code import MachineCode, NativeFunction


@dataclass(frozen=True)
class Interpreting:
    """The limits of what Python's interpreter runs instead of machine code.

    Attributes:
        size: The largest size of an array.
        seconds: The processor time in all, for each kernel; a compilation takes longer.
        unloaded: The same for all kernels, before LLVM is loaded; that takes as long.
    """

    size: int = 1 << 17
    seconds: float = 0.25
    unloaded: float = 0.05


interpreting = Interpreting()
_Function = TypeVar("_Function", bound=Callable[..., Any])

_OPTIONS = {  # references are not counted (`nrt`): that is atomic, and can take most of the time
    "boundscheck": False,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
    "no_cpython_wrapper": True,
    "nrt": False,
}
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
    loading LLVM a twentieth of one. `interpreting` says where that ends.

    Args:
        function: The Python source of the kernel; it makes no arrays.
        signature: Its Numba signature, as text.
        numbers: What `{}` stands for in the signature.
    """

    interpreted_seconds = 0.0  # of all kernels

    def __init__(self, function: Callable[..., Any], signature: str, *, numbers: str = "") -> None:
        self.function = function
        self.signature = signature.format(numbers)
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        result, _, types = signature.rstrip(")").partition("(")  # `{}` keeps its width
        self._returns = result != "void"
        self._bytes_read = tuple(
            index for index, word in enumerate(types.split(", ")) if word == "U8R"
        )
        self._interpreted_seconds = 0.0
        self._looked_up = False
        self._native: NativeFunction | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Run the kernel, compiling it first if necessary."""
        native = self._native
        if native is not None:
            return native(*arguments)
        small = all(
            argument.size <= interpreting.size
            for argument in arguments
            if isinstance(argument, np.ndarray)
        )
        if small and self._pays():
            began = time.thread_time()
            result = self.interpret(*arguments)
            took = time.thread_time() - began
            self._interpreted_seconds += took
            Kernel.interpreted_seconds += took
            return result
        return self.compile()(*arguments)

    def _pays(self) -> bool:
        """Return whether to interpret the next small arrays."""
        if self._interpreted_seconds >= interpreting.seconds:
            return False
        if not machine_code.loaded() and Kernel.interpreted_seconds < interpreting.unloaded:
            return True
        return self._stored() is None

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

    def compile(self) -> NativeFunction:
        """Compile, or load what was compiled before."""
        with _compile_lock:
            native = self._stored()
            if native is None:
                code = _compile(self.function, self.signature)
                native = self._native = NativeFunction(code, self.signature)
            return native

    def _stored(self) -> NativeFunction | None:
        """Return what is loaded, or was compiled before."""
        with _compile_lock:
            if self._native is None and not self._looked_up:
                code = machine_code.stored(self.function, self.signature, _OPTIONS)
                self._native = None if code is None else NativeFunction(code, self.signature)
                self._looked_up = True
            return self._native


def kernel(signature: str) -> Callable[[Callable[..., Any]], Kernel]:
    """Decorate a function as a kernel of this signature, which is a Numba signature as text."""
    return lambda function: Kernel(function, signature)


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
    kernels = [
        value
        for module in modules
        for each in vars(module).values()
        for value in (each if isinstance(each, tuple) else (each,))
        if isinstance(value, Kernel)
    ]
    return list(dict.fromkeys(kernels))


def _compile(function: Callable[..., Any], signature: str) -> MachineCode:
    """Compile a kernel, and keep its machine code for other processes."""
    from numba.core.compiler import Flags, compile_extra  # noqa: PLC0415 - only where a kernel is compiled
    from numba.core.registry import cpu_target  # noqa: PLC0415 - the same

    _say_once(
        "compiling kernels: each takes a second, once on this machine; `statelake warm`"
        " compiles all of them ahead"
    )
    types, flags = _signature(signature), Flags()
    for name, value in _OPTIONS.items():
        setattr(flags, name, value)
    typing, target = cpu_target.typing_context, cpu_target.target_context
    typing.refresh()
    target.refresh()
    compiled = compile_extra(
        typing, target, _with_helpers(function), types.args, types.return_type, flags, {}
    )
    _, _, (data, _) = compiled.library.serialize_using_object_code()
    code = MachineCode(compiled.fndesc.llvm_func_name, data)
    if not machine_code.store(function, signature, _OPTIONS, code):
        _say_once(
            "compiled kernels can't be cached, as no cache directory is writable: each process"
            " compiles them again (seconds); set NUMBA_CACHE_DIR to a writable directory"
        )
    return code


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
    return FunctionType(code, names, function.__name__)


def _native_helper(function: Callable[..., Any]) -> Any:
    from numba import njit  # noqa: PLC0415 - only where a kernel is compiled

    if function not in _native_helpers:
        _native_helpers[function] = njit(**_helpers[function])(_with_helpers(function))
    return _native_helpers[function]


def _say_once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        _log.warning(message)
