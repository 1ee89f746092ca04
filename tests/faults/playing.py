"""Commands as processes that are forked: from a shell of ours, in a container, with another clock.

All that a process is told of its host is here: a container is a real one (namespaces of processes,
names and mounts, which need root), in which each command has the process number 2.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from statelake.pipelines.cli.main import end_in_order
from statelake.pipelines.cli.main import main as statelake
from tests.adversary.fork_server import in_child
from tests.faults.shim import Calls, Fault, set_clock

__all__ = ["HERE", "TOO_LONG", "Guise", "Played", "Process", "do_apart", "start"]

MEMORY = 4 << 30
POLL_SECONDS = 0.001
MOST_SECONDS = 120.0
TOO_LONG, UNBEGUN = 1000, 99
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWPID = 0x20000, 0x4000000, 0x20000000
MS_REC, MS_PRIVATE, MS_BIND = 0x4000, 0x40000, 0x1000
BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True)
class Guise:
    """What a command thinks of where and when it runs.

    Attributes:
        host: The name of its container; none by default.
        boot: Its host's boot id; that of this machine by default.
        clock: Seconds by which its wall clock is ahead.
        hurry: How many times faster its monotonic clock goes, so that a lease ends soon.
    """

    host: str = ""
    boot: str = ""
    clock: int = 0
    hurry: int = 1

    def __str__(self) -> str:
        parts = [self.host, f"clock{self.clock:+d}" if self.clock else ""]
        return "/".join(part for part in parts if part) or "here"


HERE = Guise()


@dataclass(frozen=True)
class Played:
    """How a command ended: its exit code, negative if it was killed, and what it printed."""

    code: int
    out: str
    err: str


class Process:
    """A command that runs."""

    def __init__(self, number: int, out: Path, err: Path, init: int | None) -> None:
        self.number, self.out, self.err, self.init = number, out, err, init
        self.stopped = False

    def wait(self, seconds: float = MOST_SECONDS, *, stops: bool = False) -> Played | None:
        """How it ended; nothing if it did not in that time, or stands still."""
        deadline = time.monotonic() + seconds
        while True:
            number, status = os.waitpid(self.number, os.WNOHANG | (os.WUNTRACED if stops else 0))
            if number and os.WIFSTOPPED(status):
                self.stopped = True
                return None
            if number:
                return self._ended(os.waitstatus_to_exitcode(status))
            if time.monotonic() > deadline:
                return None
            time.sleep(POLL_SECONDS)

    def go_on(self) -> None:
        """Let it go on where it stands."""
        os.kill(self.number, signal.SIGCONT)

    def end(self) -> Played:
        """Wait for its end; one that takes too long is killed, and has no exit code of its own."""
        ended = self.wait()
        if ended is None:
            os.kill(self.number, signal.SIGKILL)
            os.waitpid(self.number, 0)
            ended = self._ended(TOO_LONG)
        return ended

    def _ended(self, code: int) -> Played:
        for stop in (self.number, self.init):
            if stop is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(stop, signal.SIGKILL)
        if self.init is not None:
            os.waitpid(self.init, 0)
        return Played(code, *(path.read_text("utf-8", "replace") for path in (self.out, self.err)))


def start(
    words: tuple[str, ...],
    world: Path,
    *,
    calls: Calls | None = None,
    fault: Fault | None = None,
    guise: Guise = HERE,
) -> Process:
    """Run a command in a directory.

    Args:
        words: What stands behind `statelake`.
        world: Where it is called.
        calls: Where its calls below the directory are counted, if they are.
        fault: What happens at one of them.
        guise: Where and when it thinks that it runs.
    """
    beside = f"{world.name}.{os.urandom(4).hex()}"
    outputs = [world.with_name(f"{beside}.{end}") for end in ("out", "err")]
    init, outside = None, None
    if guise.host:
        init, outside = _container()
    child = os.fork()
    if child == 0:
        try:
            _dress(guise, world)
            signal.signal(signal.SIGTERM, end_in_order)
            entry = _entry(words)  # what Dagster writes while it is imported is not the command's
            if calls is not None:
                calls.arm(world, fault or Fault("count", 0))
            in_child(entry, _call(words, world, *outputs))
        except BaseException:  # noqa: BLE001 - what keeps a command from its begin is told
            traceback.print_exc()
        finally:
            os._exit(UNBEGUN)
    if outside is not None:
        _check(_LIBC.setns(outside, CLONE_NEWPID))
        os.close(outside)
    return Process(child, *outputs, init)


def do_apart(function: Callable[[], None]) -> None:
    """Call it in a process of its own: no thread is started in this one."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            function()
            code = 0
        except BaseException:  # noqa: BLE001 - told, and the parent sees the exit code
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def _entry(words: tuple[str, ...]) -> Callable[[list[str]], None]:
    """The command; or a run of Dagster's, which is imported only there: its threads don't fork."""
    if words[0] != "dagster":
        return statelake
    entry: Callable[[list[str]], None] = import_module(
        "tests.faults.dagster_run"
    ).archive_and_export
    return entry


def _call(words: tuple[str, ...], world: Path, out: Path, err: Path) -> dict[str, object]:
    environment = {
        "HOME": str(world / "tmp"), "TMPDIR": str(world / "tmp"), "COLUMNS": "200",
        "STATELAKE_DEBUG": "1", "STATELAKE_ERASE_SECRET": "of the tests",
    }  # fmt: skip
    return {
        "words": list(words), "directory": str(world), "environment": environment,
        "memory": MEMORY, "out": str(out), "err": str(err),
    }  # fmt: skip


_LIBC = ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _container() -> tuple[int, int]:
    """Open a namespace of processes for the next fork: its first process, and the way back."""
    outside = os.open("/proc/self/ns/pid", os.O_RDONLY)
    _check(_LIBC.unshare(CLONE_NEWPID))
    init = os.fork()
    if init == 0:
        os.setsid()
        signal.pause()
        os._exit(0)
    return init, outside


def _dress(guise: Guise, world: Path) -> None:
    """Make this process what it is to think that it is."""
    if guise.host:
        _check(_LIBC.unshare(CLONE_NEWNS | CLONE_NEWUTS))
        _check(_LIBC.mount(None, b"/", None, MS_REC | MS_PRIVATE, None))
        _check(_LIBC.mount(b"proc", b"/proc", b"proc", 0, None))
        _check(_LIBC.sethostname(guise.host.encode(), len(guise.host)))
    if guise.boot:
        boot = world.with_name(f"{world.name}.boot-{guise.host}")
        boot.write_text(f"{guise.boot}\n", "ascii")
        _check(_LIBC.mount(os.fsencode(boot), BOOT_ID.encode(), None, MS_BIND, None))
    tempfile.tempdir = str(world / "tmp")  # found: not tried by writing a file
    set_clock(guise.clock)
    if guise.hurry > 1:
        true, begin = time.monotonic, time.monotonic()
        time.monotonic = lambda: begin + (true() - begin) * guise.hurry
