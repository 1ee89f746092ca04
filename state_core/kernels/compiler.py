"""Compile a kernel when it is first called, and keep its machine code on disk.

Signatures are explicit: one compilation a kernel, whatever mix of writable and read-only arrays
arrives (an Arrow buffer is read-only; an input typed without `readonly` would reject it).
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

from numba import njit, types

__all__ = [
    "F32",
    "F64",
    "I16",
    "I32",
    "I32R",
    "I64",
    "I64R",
    "U8",
    "U8R",
    "U32R",
    "U64",
    "U64R",
    "Kernel",
    "kernel",
]

_OPTIONS: dict[str, Any] = {"nogil": True, "boundscheck": False, "error_model": "numpy"}
_compile_lock = threading.RLock()
_warned = False


def _array(scalar: Any, readonly: bool) -> Any:
    return types.Array(scalar, 1, "C", readonly=readonly)


U8, U8R = _array(types.uint8, False), _array(types.uint8, True)
I16 = _array(types.int16, False)
I16R = _array(types.int16, True)
I32, I32R = _array(types.int32, False), _array(types.int32, True)
I64, I64R = _array(types.int64, False), _array(types.int64, True)
U32R = _array(types.uint32, True)
U64, U64R = _array(types.uint64, False), _array(types.uint64, True)
F32 = _array(types.float32, False)
F64 = _array(types.float64, False)


class Kernel:
    """A function that becomes machine code at its first call.

    Args:
        function: The Python source of the kernel.
        signature: Its Numba signature.
        counted: Whether references to arrays are counted.
    """

    def __init__(
        self, function: Callable[..., Any], signature: Any, *, counted: bool = True
    ) -> None:
        self.function = function
        self.signature = signature
        self.options = _OPTIONS if counted else {**_OPTIONS, "_nrt": False}
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Run it, compiling it first if that is still to be done."""
        compiled = self._compiled
        return (compiled if compiled is not None else self.compile())(*arguments)

    def compile(self) -> Callable[..., Any]:
        """Compile, or load from the cache."""
        with _compile_lock:
            if self._compiled is None:
                try:
                    self._compiled = njit([self.signature], cache=True, **self.options)(
                        self.function
                    )
                except RuntimeError as error:
                    if "cannot cache" not in str(error):
                        raise
                    _say_once()
                    self._compiled = njit([self.signature], **self.options)(self.function)
            return self._compiled


def kernel(signature: Any, *, counted: bool = True) -> Callable[[Callable[..., Any]], Kernel]:
    """Decorate a function as a kernel of this signature.

    Args:
        signature: Its Numba signature.
        counted: Whether references to arrays are counted, which one that makes arrays needs. Where
            helpers are inlined, counting can take most of the time: it is atomic, at every call.
    """
    return lambda function: Kernel(function, signature, counted=counted)


def _say_once() -> None:
    global _warned  # noqa: PLW0603 - a warning given once is module state
    if not _warned:
        _warned = True
        warnings.warn(
            "compiled kernels can't be cached: no writable cache directory, so each process"
            " compiles them again (seconds); set NUMBA_CACHE_DIR to a writable directory",
            RuntimeWarning,
            stacklevel=4,
        )
