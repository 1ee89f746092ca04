"""A process that has imported everything once, and forks for each call: started by `runner`.

A line of JSON on standard input says what is called; a line of JSON on standard output says how it
ended. Nothing is run here that starts a thread, so that a fork has all that there is: delta-rs and
Arrow make their pools in the child.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from statelake import state_core
from statelake.pipelines import lake
from statelake.pipelines.cli.main import COMMANDS
from statelake.state_core.kernels.compiler import kernels_in
from statelake.state_core.serializers.framework.registry import registered_classes

PAGE = resource.getpagesize()
POLL_SECONDS = 0.01
LARGEST_FILE = 256 << 20
NOT_NEEDED = {"demo"}
CRASHED = 70  # an exception that is nobody's to catch: a panic of Rust's


def warm_up() -> None:
    """Import every command and every serializer, and load every kernel.

    A child compiles the kernels whose machine code is on no disk yet: what that takes hundreds of
    megabytes for is not to be counted as the memory of each case.
    """
    for place, _ in COMMANDS.values():
        module = place.partition(":")[0]
        if module not in NOT_NEEDED:
            importlib.import_module(f"statelake.pipelines.cli.commands.{module}")
    registered_classes()
    child = os.fork()
    if child == 0:
        try:
            compile_kernels()
        finally:
            os._exit(0)  # what failed there fails here, too, and is told
    os.waitpid(child, 0)
    compile_kernels()
    for package in (state_core, lake):  # what commands import where they need it
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)
    importlib.import_module("pandas")  # by PyArrow, in nearly each command
    gc.freeze()  # the collector of a child need not copy these pages


def compile_kernels() -> None:
    """Compile them all, or load what was compiled."""
    modules = list(sys.modules.items())
    loaded = (of for name, of in modules if name.startswith("statelake.state_core.kernels."))
    for kernel in kernels_in(*loaded):
        kernel.compile()


def main() -> None:
    """Answer calls until the input ends."""
    warm_up()
    answer({"ready": os.getpid()})
    for line in sys.stdin:
        call = json.loads(line)
        module, _, function = call["entry"].partition(":")
        entry = getattr(importlib.import_module(module), function)
        answer(run(entry, call))


def answer(what: dict[str, Any]) -> None:
    """Write a line."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def run(entry: Any, call: dict[str, Any]) -> dict[str, Any]:
    """Fork, wait within the limits, and say how the child ended."""
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        in_child(entry, call)
    stopped = watch(child, started + call["seconds"], call["memory"])
    _, status, used = os.wait4(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it started
    return {
        "code": os.waitstatus_to_exitcode(status),
        "stopped": stopped,
        "seconds": time.monotonic() - started,
        "processor_seconds": used.ru_utime + used.ru_stime,
        "peak_bytes": used.ru_maxrss << 10,
    }


def watch(child: int, deadline: float, memory: int) -> str:
    """Wait for a child, and kill it at a limit: the limit's name, or nothing."""
    ended = os.pidfd_open(child)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    try:
        while not poll.poll(POLL_SECONDS * 1000):
            too_long = time.monotonic() > deadline
            if too_long or resident(child) > memory:
                os.kill(child, signal.SIGKILL)
                return "time" if too_long else "memory"
        return ""
    finally:
        os.close(ended)


def resident(process: int) -> int:
    """The bytes of memory that a process has."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{process}/statm").read_text("ascii").split()[1]) * PAGE
    return 0


def in_child(entry: Any, call: dict[str, Any]) -> NoReturn:
    """Run the call under its limits, and leave."""
    code = CRASHED
    try:
        os.setsid()
        redirect(call)
        os.environ.update(call["environment"])
        os.chdir(call["directory"])
        limit(call["memory"])
        try:
            entry(call["words"])
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
        atexit._run_exitfuncs()  # what a process does at its end: temporary directories go
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - a panic of Rust's is told, too
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stderr.flush()
        os._exit(code)


def redirect(call: dict[str, Any]) -> None:
    """Standard input is empty; output goes to files."""
    for stream, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, call["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, call["err"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        handle = os.open(path, flags, 0o600)
        os.dup2(handle, stream)
        os.close(handle)


def limit(memory: int) -> None:
    """What is mapped now is the interpreter's and its libraries'; so much more may be."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    (data,) = (line for line in lines if line.startswith("VmData:"))
    most = (int(data.split()[1]) << 10) + memory
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
