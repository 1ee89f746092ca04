"""Real Flink with sources: Kafka's by its own connector, files and number sequences."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from statelake.pipelines.spark.jars import resolve_jars
from tests.integration.flink.distribution import JAVA_SOURCES, compiled, flink_jars
from tests.integration.flink.oracle import answers_of, successes

__all__ = ["MODULES", "NEW", "OLD", "Run", "connector_jars", "run_sources"]

NEW, OLD = "2.3.0", "1.20.0"
MODULES = ("flink-connector-files",)
# whichever Flink they were made for: the newest there is, and one with the old consumer
CONNECTORS = {NEW: "5.0.0-2.2", OLD: "3.2.0-1.19"}
PROGRAMS = ("SourceJobs.java", "Answers.java", "Cluster.java")


@dataclass(frozen=True)
class Run:
    """A job of one source.

    Attributes:
        source: Its words, as `SourceJobs.java` has them.
        lines: How many lines it reads at least.
        savepoint: What it is restored from; nothing without.
        to: Where its savepoint goes; it takes none without.
        pause: The milliseconds that each line takes.
        parallelism: Of the job.
    """

    source: Sequence[object]
    lines: int
    savepoint: Path | None = None
    to: Path | None = None
    pause: int = 0
    parallelism: int = 2


def connector_jars(version: str) -> list[Path]:
    """Kafka's connector for a Flink, downloaded at the first call."""
    name = f"flink-connector-kafka-{CONNECTORS[version]}"
    modules = [f"org.apache.flink:flink-connector-kafka:{CONNECTORS[version]}"]
    return sorted(resolve_jars(name, modules).glob("*.jar"))


def run_sources(runs: Sequence[Run], version: str = NEW) -> list[tuple[list[str], Path | None]]:
    """Run jobs in one JVM, one after the other: what each has read, and its savepoint."""
    flink = flink_jars(version, MODULES)
    present = {jar.name for jar in flink}
    jars = [*flink, *(jar for jar in connector_jars(version) if jar.name not in present)]
    names = [*PROGRAMS, "OldKafka.java"] if version == OLD else PROGRAMS
    classes = compiled([JAVA_SOURCES / name for name in names], jars, f"sources-{version}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        files = [Path(directory) / f"lines-{index}" for index in range(len(runs))]
        commands = [
            ["run", run.parallelism, run.pause, run.lines,
             "-" if run.savepoint is None else run.savepoint.as_uri(), file,
             "-" if run.to is None else run.to.as_uri(), *run.source]
            for run, file in zip(runs, files, strict=True)
        ]  # fmt: skip
        places = successes(answers_of("SourceJobs", classes, jars, commands, "768m"))
        return [
            (
                file.read_text("utf-8").splitlines(),
                None if place == "-" else Path(place.removeprefix("file:")),
            )
            for file, place in zip(files, places, strict=True)
        ]
