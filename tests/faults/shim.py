"""The shim in C (`shim.c`): compiled, loaded below this process, and told what to do."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import subprocess
import sys
from enum import IntEnum
from pathlib import Path

__all__ = ["Calls", "Fault", "is_loaded", "run_below", "set_clock"]

TRACED, LONGEST = 4096, 240
SOURCE = Path(__file__).with_name("shim.c")


class Action(IntEnum):
    """What becomes of one call, as `enum action` of the shim has it."""

    COUNT = 0
    FAIL = 1
    FULL = 2  # from this call on there is no space left
    KILL = 3  # before the call
    HALF = 4  # in the middle of what is written; behind what is no write
    STOP = 5  # the process stands still before the call, until it is told to go on
    TERM = 6  # the process is told to end in order, at the call


class _Shared(ctypes.Structure):
    """The memory that the shim shares with us."""

    _fields_ = (
        ("calls", ctypes.c_long),
        ("hits", ctypes.c_long),
        ("trace", ctypes.c_char * LONGEST * TRACED),
    )


_ACTIONS = {
    "count": Action.COUNT, "read": Action.COUNT, "full": Action.FULL, "kill": Action.KILL,
    "half": Action.HALF, "stop": Action.STOP, "term": Action.TERM,
}  # fmt: skip


class Fault:
    """What is to happen, and at which call: `kill`, `half`, `stop`, `term`, `full`, or an error."""

    def __init__(self, what: str, at: int) -> None:
        self.what, self.at = what, at
        self.reads = what in {"stop", "read"}  # whether files that are read count, too
        self.error = getattr(errno, what) if what.startswith("E") else errno.ENOSPC
        self.action = Action.FAIL if what.startswith("E") else _ACTIONS[what]


class Calls:
    """What a process and its children wrote below a directory, call by call."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, ctypes.sizeof(_Shared))
        self._shared = _Shared.from_buffer(self._memory)

    def arm(self, root: Path, fault: Fault) -> None:
        """Count this process's calls from now on, and do what is to happen."""
        ctypes.CDLL(None).faults_arm(
            ctypes.byref(self._shared), os.fsencode(root.resolve()), ctypes.c_long(fault.at),
            int(fault.action), fault.error, int(fault.reads),
        )  # fmt: skip

    @property
    def count(self) -> int:
        """How many calls there were."""
        return int(self._shared.calls)

    @property
    def hits(self) -> int:
        """How many of them did not go their way."""
        return int(self._shared.hits)

    @property
    def trace(self) -> list[str]:
        """Each call and its file."""
        return [self.at(number) for number in range(1, min(self.count, TRACED) + 1)]

    def at(self, number: int) -> str:
        """The call of that number, counted from 1."""
        return os.fsdecode(self._shared.trace[number - 1].value) if 0 < number <= TRACED else ""


def set_clock(seconds: int) -> None:
    """Have this process's wall clock be so far ahead of the true one."""
    ctypes.CDLL(None).faults_clock(ctypes.c_long(seconds))


def is_loaded() -> bool:
    """Whether this process runs with the shim."""
    return hasattr(ctypes.CDLL(None), "faults_arm")


def run_below(directory: Path, module: str, *words: str) -> int:
    """Compile the shim in a directory, run a module with it loaded, and give its exit code."""
    library = directory / "shim.so"
    build = ["cc", "-std=gnu11", "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(build, check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    program = [sys.executable, "-m", module, *words]
    return subprocess.run(program, env=environment, check=False).returncode
