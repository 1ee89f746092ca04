"""The demo's step on Spark, in a process that starts its JVM while other steps run.

That process is this module: it opens a session, waits for a line of words on standard input, and
calls `statelake sql` with them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from typing_extensions import Self

# not `-m`, which would import from the working directory
START = (
    "import sys; sys.path = [*filter(None, sys.path)];"
    " from statelake.pipelines.cli.demo.spark_step import main; main()"
)


class SparkStep:
    """A query on Spark, in a process of its own; use it in `with`, by which the process ends."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", START]
        self._process = subprocess.Popen(  # noqa: S603 - ours
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, words: Sequence[str]) -> None:
        """Call `statelake sql` with these words once Spark has started."""
        if self._process.stdin is not None:
            self._process.stdin.write(json.dumps(words) + "\n")
            self._process.stdin.flush()

    def answer(self) -> str:
        """Wait for what it prints.

        Raises:
            CalledProcessError: The process failed; standard error says why.
        """
        printed, _ = self._process.communicate()
        if self._process.returncode:
            raise subprocess.CalledProcessError(self._process.returncode, self._process.args)
        return printed


def main() -> None:
    """Start Spark, and run the query once it is asked for: not if the input ends before that."""
    from statelake.pipelines.cli.commands.queries.sql import sql  # noqa: PLC0415 - not who starts this process
    from statelake.pipelines.spark.session import open_session  # noqa: PLC0415 - the same

    session = open_session()
    session.range(1).count()
    line = sys.stdin.readline()
    if line:
        sql.main(json.loads(line))
