"""Jobs of Flink SQL in real Flink: compiled plans, run over a part of their tables' rows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from typing_extensions import Self

from tests.integration.flink.distribution import JAVA_SOURCES, compiled, flink_jars
from tests.integration.flink.oracle import kept_jvm

MODULES = ("flink-table-planner_2.12", "flink-table-runtime", "flink-table-api-java-bridge")
SOURCES = ("SqlHalves.java", "Cluster.java")
# what Flink has since 2.1: process table functions
NEW_SOURCES, SINCE = ("ProcessedTables.java",), (2, 1)
FACTORY = "org.apache.flink.table.factories.Factory"


class SqlFlink(ExitStack):
    """One version of Flink SQL, in a JVM that others may have asked before; use it in `with`.

    Args:
        version: Of Flink.
        to: A directory for plans, savepoints and what jobs print.
    """

    def __init__(self, version: str, to: Path) -> None:
        super().__init__()
        self.version = version
        self._to = to
        self._numbers = itertools.count()
        jars = flink_jars(version, MODULES)
        new = NEW_SOURCES if tuple(map(int, version.split(".")[:2])) >= SINCE else ()
        sources = [JAVA_SOURCES / name for name in (*SOURCES, *new)]
        classes = compiled(sources, jars, f"sql-{version}", {FACTORY: "SqlHalves\n"})
        self._jvm = kept_jvm(version, "SqlHalves", [classes, *jars], "1500m")

    def __enter__(self) -> Self:
        self._to.mkdir(parents=True, exist_ok=True)
        self._asked = self.enter_context(self._jvm)
        return self

    def compile(self, sql: str) -> tuple[Path, dict[str, Any]]:
        """Compile statements to a plan: its file, and its JSON."""
        number = next(self._numbers)
        file = self._to / f"{self.version}-{number}.sql"
        file.write_text(sql)
        plan = file.with_suffix(".json")
        self._asked.ask_words(["compile", file, plan])
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
        to = self._to / f"savepoints-{self.version}-{number}"
        made = self._asked.ask_words(
            ["run", plan, words, restored, to, backend, parallelism, output, inline]
        )
        return Path(made.removeprefix("file:")), output.read_text().splitlines()
