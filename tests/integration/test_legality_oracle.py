"""The golden answers about declared states are what Flink's DataStream V2 says today."""

from __future__ import annotations

import subprocess

import pytest

from pipelines.spark.jars import java_command
from tests.golden_cases import GOLDEN
from tests.integration.flink.distribution import JAVA_SOURCES, OPENS, compiled, flink_jars

pytestmark = pytest.mark.flink


def test_flink_says_the_same_again() -> None:
    """The program that wrote the golden file writes it again, byte by byte."""
    jars = flink_jars("2.3.0", ["flink-datastream"])
    sources = [JAVA_SOURCES / name for name in ("LegalityVectors.java", "Json.java")]
    classes = compiled(sources, jars, "legality-2.3.0")
    path = ":".join(map(str, [classes, *jars]))
    done = subprocess.run(
        [java_command(), "-Xmx512m", *OPENS, "-cp", path, "LegalityVectors"],
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == (GOLDEN / "vectors" / "legality.jsonl").read_bytes()
