"""Jobs of Flink SQL in real Flink: compiled plans, run over a part of their tables' rows."""

from __future__ import annotations

import itertools
import json
import subprocess
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any

from typing_extensions import Self

from statelake.pipelines.spark.jars import java_command
from tests.integration.flink.distribution import JAVA_SOURCES, OPENS, compiled, flink_jars
from tests.integration.flink.oracle import KEPT_LINES, SHORT_JOBS, FlinkError

MODULES = ("flink-table-planner_2.12", "flink-table-runtime", "flink-table-api-java-bridge")
SOURCES = ("SqlHalves.java", "Cluster.java")
FACTORY = "org.apache.flink.table.factories.Factory"


class SqlFlink:
    """One version of Flink SQL in a JVM of its own.

    Args:
        version: Of Flink.
        to: A directory for plans, savepoints and what jobs print.
    """

    def __init__(self, version: str, to: Path) -> None:
        self.version = version
        self._to = to
        to.mkdir(parents=True, exist_ok=True)
        self._numbers = itertools.count()
        jars = flink_jars(version, MODULES)
        classes = compiled([JAVA_SOURCES / name for name in SOURCES], jars, f"sql-{version}")
        services = to / "factories" / "META-INF" / "services"
        services.mkdir(parents=True, exist_ok=True)
        (services / FACTORY).write_text("SqlHalves\n")
        self._directory = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        path = ":".join(map(str, [classes, to / "factories", *jars]))
        self._process = subprocess.Popen(
            [
                java_command(), "-Xmx1500m", *SHORT_JOBS,
                f"-Djava.io.tmpdir={self._directory.name}", *OPENS, "-cp", path, "SqlHalves",
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            encoding="utf-8",
        )  # fmt: skip
        self._said: deque[str] = deque(maxlen=KEPT_LINES)
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        self._said.extend(self._process.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._directory.cleanup()

    def _ask(self, *words: object) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("ok "):
                return line[3:].strip()
            if line.startswith("error"):
                raise FlinkError(line.strip())
        raise FlinkError("".join(self._said))

    def compile(self, sql: str) -> tuple[Path, dict[str, Any]]:
        """Compile statements to a plan: its file, and its JSON."""
        number = next(self._numbers)
        file = self._to / f"{self.version}-{number}.sql"
        file.write_text(sql)
        plan = file.with_suffix(".json")
        self._ask("compile", file, plan)
        return plan, json.loads(plan.read_text())

    def run(
        self,
        plan: Path,
        ranges: Mapping[str, tuple[int, int]],
        restored: Path | str = "",
        backend: str = "hashmap",
        parallelism: int = 1,
        inline: int = 0,
    ) -> tuple[Path, Sequence[str]]:
        """Run a plan, or a file of SQL, over a part of the rows of each table.

        Args:
            plan: The file.
            ranges: The first row and the end, by table.
            restored: A savepoint to begin with; empty for none.
            backend: `hashmap` or `rocksdb`.
            parallelism: Of the job.
            inline: The bytes of a file of state that is within `_metadata`.

        Returns:
            The savepoint at its end, and what its sinks got.
        """
        number = next(self._numbers)
        output = self._to / f"{self.version}-{number}.out"
        words = ",".join(f"{table}:{first}-{end}" for table, (first, end) in ranges.items())
        made = self._ask(
            "run", plan, words, restored, self._to / f"savepoints-{self.version}-{number}", backend,
            parallelism, output, inline,
        )  # fmt: skip
        return Path(made.removeprefix("file:")), output.read_text().splitlines()
