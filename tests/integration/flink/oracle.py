"""Ask real Flink: a JVM that writes savepoints with our jobs, and restores them."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections import deque
from pathlib import Path
from threading import Thread, Timer
from types import TracebackType
from typing import Any

from typing_extensions import Self

from pipelines.spark.jars import java_command
from tests.integration.flink.distribution import JAVA_SOURCES, OPENS, compiled, flink_jars

SOURCES = ("Oracle.java", "Jobs.java", "Json.java")
KEPT_LINES = 60
ANSWER_SECONDS = 180


class FlinkError(RuntimeError):
    """Flink refused; the message is its own."""


class FlinkOracle:
    """One version of Flink in a JVM of its own, asked line by line.

    Args:
        version: Of Flink.
        heap: Of the JVM.
    """

    def __init__(self, version: str, heap: str = "1g") -> None:
        self.version = version
        jars = flink_jars(version)
        classes = compiled([JAVA_SOURCES / one for one in SOURCES], jars, f"flink-{version}")
        path = ":".join(map(str, [classes, *jars]))
        self.process = subprocess.Popen(
            [java_command(), f"-Xmx{heap}", *OPENS, "-cp", path, "Oracle"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._told: deque[str] = deque(maxlen=KEPT_LINES)
        Thread(target=self._listen, daemon=True).start()
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def generate(self, case: str, to: Path, **options: object) -> Path:
        """Run a job over some keys, and take a savepoint; where it is."""
        chosen = {
            "backend": "hashmap", "format": "canonical", "compression": "false",
            "parallelism": 2, "max": 128, "keys": 300, "inline": 0, **options,
        }  # fmt: skip
        answer = self._ask("generate", case=case, to=to.as_uri(), **chosen)
        return Path(answer.removeprefix("file:"))

    def restore(self, case: str, savepoint: Path, **options: object) -> list[Any]:
        """What Flink sees after restoring: the sorted lines of every key, as JSON."""
        chosen = {"backend": "hashmap", "parallelism": 2, "max": 128, "keys": 300, **options}
        with tempfile.TemporaryDirectory() as directory:
            out = Path(directory) / "lines"
            self._ask("restore", case=case, savepoint=savepoint.as_uri(), out=out, **chosen)
            lines = out.read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """End the JVM."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _ask(self, command: str, **arguments: object) -> str:
        words = [command, *(f"{name}={value}" for name, value in arguments.items())]
        assert self.process.stdin is not None
        self.process.stdin.write("\t".join(words) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        watchdog = Timer(ANSWER_SECONDS, self.process.kill)
        watchdog.start()
        line = self.process.stdout.readline()
        watchdog.cancel()
        if not line:
            told = "\n".join(self._told)
            raise FlinkError(
                f"Flink {self.version} gave no answer in {ANSWER_SECONDS} s, or ended:\n{told}"
            )
        verdict, _, text = line.rstrip("\n").partition(" ")
        if verdict != "ok":
            raise FlinkError(f"Flink {self.version}: {text}")
        return text

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._told.append(line.rstrip("\n"))
