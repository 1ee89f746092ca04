"""Real Flink with jobs whose state is about people: what it sees in savepoints of theirs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.integration.flink.distribution import JAVA_SOURCES, compiled, flink_jars
from tests.integration.flink.oracle import answers_of, successes

__all__ = ["restored_people"]

PROGRAMS = ("PeopleJobs.java", "Answers.java", "Cluster.java", "Json.java", "people/Profile.java")


def restored_people(
    savepoints: Iterable[tuple[Path, Sequence[str], int]], keys: Iterable[str]
) -> list[list[dict[str, Any]]]:
    """What Flink restores of each savepoint: a line for each key of each operator, timer, subtask.

    Args:
        savepoints: Each with its operators, by uid, and the parallelism of the job.
        keys: The keys whose state is looked at.
    """
    jars = flink_jars("2.3.0", ())
    classes = compiled([JAVA_SOURCES / name for name in PROGRAMS], jars, "people-2.3.0")
    with tempfile.TemporaryDirectory() as directory:
        commands = [
            ("restore", savepoint.as_uri(), f"{directory}/{at}", parallelism, ",".join(keys),
             ",".join(operators))
            for at, (savepoint, operators, parallelism) in enumerate(savepoints)
        ]  # fmt: skip
        successes(answers_of("PeopleJobs", classes, jars, commands))
        return [
            [json.loads(line) for line in Path(directory, str(at)).read_text("utf-8").splitlines()]
            for at in range(len(commands))
        ]
