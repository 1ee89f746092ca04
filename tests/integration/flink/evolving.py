"""Real Flink with types that evolve: one job, compiled with one version of its classes or other."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.integration.flink.distribution import JAVA_SOURCES, compiled, flink_jars
from tests.integration.flink.oracle import answers_of, successes

__all__ = ["EVERY_STATE", "ask", "operators_restored", "restored", "verdicts", "written"]

EVERY_STATE = "-"
PROGRAMS = (
    "EvolvingJobs.java",
    "EvolvingOperators.java",
    "Answers.java",
    "Cluster.java",
    "Json.java",
)
MODULES = ("flink-avro",)


def ask(version: str, commands: Iterable[Iterable[object]]) -> list[str]:
    """Flink's answers to some commands, each of which begins with `ok` or `error`.

    Args:
        version: Of the classes: `old`, `new` or `refused`.
        commands: See `EvolvingJobs.java`; all of them in one JVM.
    """
    jars = flink_jars("2.3.0", MODULES)
    sources = [JAVA_SOURCES / program for program in PROGRAMS]
    sources += sorted((JAVA_SOURCES / "evolving" / version).iterdir())
    classes = compiled(sources, jars, f"evolving-{version}-2.3.0")
    return answers_of("EvolvingJobs", classes, jars, commands)


def written(version: str, backends: Iterable[str], to: Path) -> list[Path]:
    """Canonical savepoints of the job with these classes, one of each backend."""
    commands = [("write", backend, (to / backend).as_uri()) for backend in backends]
    return [Path(place.removeprefix("file:")) for place in successes(ask(version, commands))]


def restored(
    version: str, savepoints: Iterable[tuple[Path, str]], work: Path, states: str = EVERY_STATE
) -> list[list[Any]]:
    """What every key holds once each savepoint is restored in a backend by these classes."""
    asked = [("restore", backend, path.as_uri(), states) for path, backend in savepoints]
    return _lines(version, asked, work)


def operators_restored(
    version: str, savepoints: Iterable[Path], work: Path, states: str = EVERY_STATE
) -> list[list[Any]]:
    """What every subtask of the job of operator state gets of each savepoint."""
    asked = [("restore-operators", savepoint.as_uri(), states) for savepoint in savepoints]
    return _lines(version, asked, work)


def _lines(version: str, asked: list[tuple[str, ...]], work: Path) -> list[list[Any]]:
    """The lines that each command writes to a file."""
    files = [work / f"lines-{index}" for index in range(len(asked))]
    successes(ask(version, [(*words, file) for words, file in zip(asked, files, strict=True)]))
    return [[json.loads(line) for line in file.read_text("utf-8").splitlines()] for file in files]


def verdicts(version: str, savepoint: Path, work: Path) -> dict[str, str]:
    """Flink's verdict on each state of a savepoint, were it restored by these classes."""
    file = work / "verdicts"
    successes(ask(version, [("verdicts", savepoint.as_uri(), file)]))
    answers: dict[str, str] = json.loads(file.read_text("utf-8"))
    return answers
