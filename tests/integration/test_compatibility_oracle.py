"""The golden verdicts and bytes of serializers are what Flink's own classes say today."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

import pytest

from pipelines.spark.jars import java_command
from tests.golden_cases import GOLDEN
from tests.integration.flink.distribution import JAVA_SOURCES, compiled, flink_jars

pytestmark = [pytest.mark.flink, pytest.mark.full]


def printed(programs: Iterable[str], modules: Iterable[str]) -> str:
    """What the first program prints, compiled with the others."""
    jars = flink_jars("2.3.0", modules)
    main, *others = programs
    sources = [JAVA_SOURCES / f"{name}.java" for name in (main, *others)]
    classes = compiled(sources, jars, "vectors-2.3.0")
    done = subprocess.run(
        [java_command(), "-Xmx1g", "-cp", ":".join(map(str, [classes, *jars])), main],
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.decode()


def test_flink_says_the_same_again() -> None:
    """The program that wrote the golden pairs writes them again, byte by byte."""
    programs = ("CompatibilityVectors", "CompatibilityTypes")
    golden = (GOLDEN / "vectors" / "compatibility.jsonl").read_text("utf-8")
    assert printed(programs, ("flink-avro", "flink-table-runtime")) == golden
