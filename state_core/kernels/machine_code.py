"""Keep machine code of kernels on disk, and call it without Numba.

Numba takes half a second to load, LLVM alone a twentieth.

A file holds the object code of one kernel, as LLVM emits it, and the name of its function. The name
of the file says for which processor and versions it was compiled, and from which code: of the
kernel, its helpers, and the numbers that they use. An incomplete file is ignored.

Numba's calling convention: a place for the result, one for an exception, and the arguments, each
array as seven; the function returns 0, or that it failed.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

_NUMBERS: dict[str, Any] = {
    "boolean": ctypes.c_bool,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
}
_KINDS = {"U": "u", "I": "i", "F": "f"}
_READABLE = 0x0101  # flags of NumPy: contiguous and aligned
_WRITABLE = _READABLE | 0x0400
_DIGEST_BYTES = 32
MACHINE_CODE = ".o"  # how names of files end
_BESIDE = Path(__file__).parent / "__pycache__"
_lock = threading.Lock()


@dataclass(frozen=True)
class MachineCode:
    """Object code, and the name of the function in it."""

    symbol: str
    data: bytes


class NativeFunction:
    """A function of machine code, called as the kernel that it was compiled from.

    Args:
        code: The object code.
        signature: The kernel's signature.

    Raises:
        RuntimeError: It is no object code for this processor.
    """

    def __init__(self, code: MachineCode, signature: str) -> None:
        result, _, rest = signature.rstrip(")").partition("(")
        self._result = _NUMBERS.get(result, ctypes.c_void_p)
        self._returns = result in _NUMBERS
        self._arrays: list[tuple[np.dtype[Any], int] | None] = []
        types: list[Any] = [ctypes.c_void_p, ctypes.c_void_p]
        for word in rest.split(", "):
            if word in _NUMBERS:
                types.append(_NUMBERS[word])
                self._arrays.append(None)
                continue
            bits = int(word[1:].rstrip("R"))
            flags = _READABLE if word.endswith("R") else _WRITABLE
            self._arrays.append((np.dtype(f"{_KINDS[word[0]]}{bits // 8}"), flags))
            types += [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 2
            types += [ctypes.c_void_p] + [ctypes.c_int64] * 2
        self._call = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(_address(code))
        self.__name__ = code.symbol

    def __call__(self, *arguments: Any) -> Any:
        """Run it, without Python's lock.

        Raises:
            TypeError: Arguments are not those of the signature.
            RuntimeError: It raised an exception.
        """
        words: list[Any] = []
        for expected, argument in zip(self._arrays, arguments, strict=True):
            if expected is None:
                words.append(int(argument))
                continue
            dtype, flags = expected
            if argument.ndim != 1 or argument.dtype != dtype or argument.flags.num & flags != flags:
                raise TypeError(f"an array of {argument.dtype} is given for one of {dtype}")
            size, width = argument.size, dtype.itemsize
            words += (None, None, size, width, argument.ctypes.data, size, width)
        result, failure = self._result(), ctypes.c_void_p()
        if self._call(ctypes.addressof(result), ctypes.addressof(failure), *words):
            raise RuntimeError("a kernel failed")
        return result.value if self._returns else None


def stored(function: Callable[..., Any], signature: str, options: object) -> MachineCode | None:
    """Return the machine code of a kernel, if it was compiled before."""
    name = file_name(function, signature, options)
    for directory in _directories():
        with suppress(OSError):
            content = (directory / name).read_bytes()
            digest, rest = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
            if _digest(name, rest) == digest:
                symbol, _, data = rest.partition(b"\n")
                return MachineCode(symbol.decode(), data)
    return None


def store(function: Callable[..., Any], signature: str, options: object, code: MachineCode) -> bool:
    """Store a kernel's machine code instead of older; return whether a directory is writable."""
    name = file_name(function, signature, options)
    content = code.symbol.encode() + b"\n" + code.data
    for directory in _directories():
        with suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            written = directory / f".{name}.{secrets.token_hex(8)}"
            written.write_bytes(_digest(name, content) + content)
            written.replace(directory / name)
            for older in directory.glob(f"{name.rpartition('-')[0]}-*{MACHINE_CODE}"):
                if older.name != name:
                    older.unlink(missing_ok=True)
            return True
    return False


def _digest(name: str, content: bytes) -> bytes:
    """Return the digest of a file, which identifies its kernel as well."""
    return hashlib.sha256(name.encode() + b"\n" + content).digest()


def loaded() -> bool:
    """Return whether LLVM is loaded in this process, so that machine code costs little more."""
    return bool(_engine.cache_info().currsize)


def _directories() -> list[Path]:
    """Return where machine code may be: `NUMBA_CACHE_DIR`, or beside the package, or the user's."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        return [Path(given)]
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    with suppress(RuntimeError):  # a user without a home directory
        return [_BESIDE, base.expanduser() / "statelake" / "kernels"]
    return [_BESIDE]


def file_name(function: Callable[..., Any], signature: str, options: object) -> str:
    """Return the name of a kernel's file: processor and versions, and the digest of its code."""
    digest = hashlib.sha256(repr((signature, options)).encode())
    for part in _parts(function):
        digest.update(part.encode())
    module = function.__module__.rpartition(".")[2]
    return f"{module}.{function.__name__}-{_machine()}-{digest.hexdigest()[:16]}{MACHINE_CODE}"


@lru_cache(maxsize=1)
def _machine() -> str:
    import llvmlite.binding as llvm  # noqa: PLC0415 - only where machine code is used

    settings = sorted(
        item
        for item in os.environ.items()
        if item[0].startswith("NUMBA_") and "_DIR" not in item[0]
    )
    facts = (
        sys.version_info[:2], version("numba"), version("llvmlite"), llvm.get_process_triple(),
        llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), settings,
    )  # fmt: skip
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:8]


def _parts(function: Callable[..., Any]) -> Iterator[str]:
    """Yield all that a kernel's machine code depends on, of its own code and its helpers'."""
    assert isinstance(function, FunctionType)  # noqa: S101 - kernels are defined by `def`
    code = function.__code__
    constants = [value for value in code.co_consts if not isinstance(value, CodeType)]
    yield repr((code.co_name, code.co_code, constants, code.co_names, code.co_varnames))
    for name in code.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, FunctionType):
            yield from _parts(value)
        elif isinstance(value, np.ndarray):
            yield f"{name} {value.dtype} {value.tobytes().hex()}"
        elif value is not None:
            fixed = isinstance(value, int | float | tuple | np.generic)
            yield f"{name} {value!r}" if fixed else name


@lru_cache(maxsize=1)
def _engine() -> Any:
    """Return LLVM's loader of machine code, one for the process."""
    import llvmlite.binding as llvm  # noqa: PLC0415 - only where machine code is used

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


def _address(code: MachineCode) -> int:
    from llvmlite.binding import ObjectFileRef  # noqa: PLC0415 - only where machine code is used

    with _lock:
        engine = _engine()
        engine.add_object_file(ObjectFileRef.from_data(code.data))
        engine.finalize_object()
        address = engine.get_function_address(code.symbol)
    if not address:
        raise RuntimeError(f"no function {code.symbol} in its machine code")
    return int(address)
