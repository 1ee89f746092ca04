"""The golden answers about declared states are what Flink's own classes say today."""

from __future__ import annotations

import subprocess

import pytest

from tests.integration.flink.distribution import JAVA_SOURCES, OPENS, compiled, flink_jars
from tests.support.java import java
from tests.support.savepoints.golden_cases import GOLDEN

pytestmark = [pytest.mark.flink, pytest.mark.full]


@pytest.mark.parametrize(
    ("program", "golden"),
    [("LegalityVectors", "legality.jsonl"), ("RestoreVectors", "restore.jsonl")],
)
def test_flink_says_the_same_again(program: str, golden: str) -> None:
    """The program that wrote a golden file writes it again, byte by byte."""
    jars = flink_jars("2.3.0", ["flink-datastream"])
    sources = [JAVA_SOURCES / f"{program}.java", JAVA_SOURCES / "Json.java"]
    classes = compiled(sources, jars, "legality-2.3.0")
    done = subprocess.run(
        java("512m", [classes, *jars], *OPENS, program),
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == (GOLDEN / "vectors" / golden).read_bytes()
