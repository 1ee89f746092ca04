"""A process that runs commands on a cluster, one after the other, with one session of Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from tests.integration.spark.cluster import SparkCluster
from tests.integration.spark.one_session import ENDED

__all__ = ["Ran", "SparkDriver"]

ROOT = str(Path(__file__).parents[3])


@dataclass(frozen=True)
class Ran:
    """A command that has ended: the seconds that it took, and what it printed."""

    seconds: float
    printed: str


class SparkDriver:
    """The driver; use it in `with`. Executors have the Python and the sources of this process.

    Args:
        cluster: The cluster.
        directory: Where commands are run, and the driver's log is.
        settings: Settings of Spark's.
    """

    def __init__(self, cluster: SparkCluster, directory: Path, settings: Mapping[str, str]) -> None:
        settings = {
            "spark.pyspark.python": sys.executable,
            "spark.executorEnv.PYTHONPATH": ROOT,
            **settings,
        }
        environment = {
            **os.environ,
            "PYTHONPATH": ROOT,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "STATELAKE_MASTER": cluster.master,
            "STATELAKE_SPARK_CONF": "\n".join(f"{key}={value}" for key, value in settings.items()),
        }
        self._log = directory / "driver.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.spark.one_session"],
                cwd=directory, env=environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.communicate()

    def begin(self, words: Sequence[str]) -> None:
        """Begin a command."""
        self._begun = time.monotonic()
        assert self.process.stdin is not None
        self.process.stdin.write(f"{json.dumps(list(words))}\n")
        self.process.stdin.flush()

    def end(self) -> Ran:
        """Wait for the end of the command that was begun.

        Raises:
            RuntimeError: It failed.
        """
        assert self.process.stdout is not None
        printed = []
        for line in self.process.stdout:
            if line.strip() == ENDED:
                return Ran(time.monotonic() - self._begun, "".join(printed))
            printed.append(line)
        raise RuntimeError(self._log.read_text("utf-8", "replace")[-3000:])

    def run(self, *words: str) -> Ran:
        """Run a command.

        Raises:
            RuntimeError: It failed.
        """
        self.begin(words)
        return self.end()
