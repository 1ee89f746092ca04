"""One target in this process, guided by coverage: started by `running`, in a process of its own.

Atheris (libFuzzer) changes inputs, and keeps those that reach what none has reached. What ends a
process (a crash, a hang, too much memory) it writes down itself. An exception that is none of ours
is a finding: its first input is kept, and the run goes on.

Machine code is compiled with checks of bounds, since a kernel that reads beside its arrays raises
nothing. With `--interpreted` Python runs the kernels' source instead, so that coverage guides into
them, too.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import pkgutil
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import atheris

from tests.fuzz.targets import Fuzzing, prepare

__all__ = ["main"]

ROOM = 1 << 30  # what a process may map beside what it has when it is ready
SECONDS = 5  # of the processor, for an input
BACKSTOP_SECONDS = 60  # of the clock, where no line of Python is reached
FINDINGS = "findings"


def main() -> None:
    """Run a target for some time."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("directory", type=Path)
    parser.add_argument("seconds", type=int)
    parser.add_argument("--interpreted", action="store_true")
    asked = parser.parse_args()
    place: Path = asked.directory
    fuzzing = _instrumented(asked.target, place / "scratch", interpreted=asked.interpreted)
    shutil.rmtree(place / "seeds", ignore_errors=True)
    for folder in ("seeds", "corpus", FINDINGS):
        (place / folder).mkdir(parents=True, exist_ok=True)
    for seed in fuzzing.seeds:
        (place / "seeds" / _name(seed)).write_bytes(seed)
    _limit()
    sys.stderr.write(f"ready with {_resident_bytes() >> 20} MiB\n")
    atheris.Setup(
        [
            sys.argv[0],
            f"-max_total_time={asked.seconds}",
            f"-timeout={BACKSTOP_SECONDS}",
            f"-report_slow_units={BACKSTOP_SECONDS}",
            f"-rss_limit_mb={ROOM >> 20}",
            f"-artifact_prefix={place / FINDINGS}/",
            "-print_final_stats=1",
            str(place / "corpus"),
            str(place / "seeds"),
        ],
        _checked(fuzzing.run, place / FINDINGS),
    )
    atheris.Fuzz()


def _instrumented(target: str, scratch: Path, *, interpreted: bool) -> Fuzzing:
    """A target whose code tells where it has been."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    kernels = Path(__file__).parents[2] / "state_core" / "kernels"
    modules = [
        f"statelake.state_core.kernels.{module.name}"
        for module in pkgutil.iter_modules([str(kernels)])
    ]
    compiled = ["statelake.state_core.kernels", *modules]
    with atheris.instrument_imports(include=["statelake"], exclude=[] if interpreted else compiled):
        compiler = importlib.import_module("statelake.state_core.kernels.compiler")
        if interpreted:
            compiler.Kernel.compile = lambda kernel: kernel.interpret
        fuzzing = prepare(target, scratch)
    if not interpreted:
        _in_a_fork(lambda: _compile_kernels(compiler.kernels_in))
        _compile_kernels(compiler.kernels_in)
    return fuzzing


def _in_a_fork(call: Callable[[], None]) -> None:
    """Do something whose memory is not to be counted: what it leaves is on disk."""
    child = os.fork()
    if child == 0:
        try:
            call()
        finally:
            os._exit(0)  # what failed there fails behind it, too, and is told
    os.waitpid(child, 0)


def _compile_kernels(kernels_in: Callable[..., list[Any]]) -> None:
    """Compile all that were imported, or load what was compiled: no input is to wait for it."""
    modules = list(sys.modules.items())
    loaded = (of for name, of in modules if name.startswith("statelake.state_core.kernels."))
    for kernel in kernels_in(*loaded):
        kernel.compile()


def _checked(run: Callable[[bytes], None], findings: Path) -> Callable[[bytes], None]:
    """Run an input; what is raised and none of ours is kept, once for each place."""
    from statelake.state_core.errors import StateError  # noqa: PLC0415 - behind what instruments it

    def stop(*_: object) -> None:
        raise HangError

    def check(data: bytes) -> None:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            run(data)
        except KeyboardInterrupt:
            raise
        except StateError:
            pass
        except BaseException as error:  # noqa: BLE001 - a panic of Rust's is no Exception
            signal.setitimer(signal.ITIMER_PROF, 0)
            _keep(findings, data, error)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    signal.signal(signal.SIGPROF, stop)
    return check


class HangError(BaseException):
    """An input took more than its seconds; no `except Exception` takes it for its own."""


def _keep(findings: Path, data: bytes, error: BaseException) -> None:
    """Keep the first input of a finding, with its traceback."""
    place = f"{type(error).__name__} at {_innermost(error.__traceback__)}"
    path = findings / f"exception-{hashlib.sha256(place.encode()).hexdigest()[:12]}"
    if not path.exists():
        path.write_bytes(data)
        text = "".join(traceback.format_exception(error))
        path.with_suffix(".txt").write_text(f"{place}\n\n{text}", "utf-8", "replace")
        sys.stderr.write(f"FINDING {place}: {path}\n")


def _innermost(trace: TracebackType | None) -> str:
    """The innermost line of ours."""
    frames = traceback.extract_tb(trace)
    ours = [
        frame for frame in frames if "state_core" in frame.filename or "pipelines" in frame.filename
    ]
    frame = (ours or frames)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno} ({frame.name})"


def _limit() -> None:
    """An allocation of gigabytes fails at once, as a MemoryError."""
    mapped = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + ROOM, mapped + ROOM))
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 20, 256 << 20))


def _resident_bytes() -> int:
    """The bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()


def _name(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


if __name__ == "__main__":
    main()
