"""Calls of the command in processes of their own, with so much memory and time: how each ended.

A process costs most of a second to start; a fork of one that is ready costs milliseconds. Memory is
limited twice: what a process may map (so that an allocation of gigabytes fails at once), and what
it has of the machine's (it is killed beyond). What it had at most is measured by the kernel.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

__all__ = ["MEMORY", "SECONDS", "Ended", "Runner"]

ROOT = Path(__file__).parents[2]
MEMORY = 1 << 30
SECONDS = 10.0
COMMAND = "statelake.pipelines.cli.main:main"


@dataclass(frozen=True)
class Ended:
    """How a call ended.

    Attributes:
        code: Its exit code; negative if a signal killed it.
        stopped: `time` or `memory` if it was killed for that.
        seconds: From start to end.
        processor_seconds: Of all its threads.
        peak_bytes: The most memory that it had, the interpreter's among it.
        out: What it printed.
        err: What it printed as errors.
    """

    code: int
    stopped: str
    seconds: float
    processor_seconds: float
    peak_bytes: int
    out: str
    err: str

    def __str__(self) -> str:
        how = f"stopped for {self.stopped}" if self.stopped else f"exit {self.code}"
        cost = f"{self.seconds:.1f} s, {self.peak_bytes >> 20} MiB"
        return f"{how} after {cost}\n{self.out[-2000:]}\n{self.err[-4000:]}"


class Runner:
    """The process that forks for each call; use it in `with`."""

    def __enter__(self) -> Self:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "STATELAKE_DEBUG": "",
            "COLUMNS": "200",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.adversary.fork_server"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment,
        )  # fmt: skip
        self._read()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def run(
        self,
        words: tuple[object, ...],
        directory: Path,
        *,
        entry: str = COMMAND,
        environment: Mapping[str, str] | None = None,
        seconds: float = SECONDS,
        memory: int = MEMORY,
    ) -> Ended:
        """Run the command in a process of its own.

        Args:
            words: What stands behind `statelake`.
            directory: Where it is called; `stdout` and `stderr` are written there.
            entry: What is called instead of the command.
            environment: Variables that are set for it.
            seconds: How long it may take.
            memory: How many bytes it may have.
        """
        out, err = directory / "stdout", directory / "stderr"
        call = {
            "entry": entry, "words": [str(word) for word in words], "directory": str(directory),
            "environment": dict(environment or {}), "seconds": seconds, "memory": memory,
            "out": str(out), "err": str(err),
        }  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(call) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        texts = [path.read_bytes().decode("utf-8", "replace") for path in (out, err)]
        return Ended(**answer, out=texts[0], err=texts[1])

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process that forks for each call has ended"
        return json.loads(line)
