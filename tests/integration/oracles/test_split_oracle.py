"""The golden cases of redistribution are what Flink's own repartitioner says today."""

from __future__ import annotations

import lzma
import subprocess

import pytest

from tests.integration.flink.distribution import JAVA_SOURCES, compiled, flink_jars
from tests.support.java import java
from tests.support.savepoints.golden_cases import GOLDEN

pytestmark = [pytest.mark.flink, pytest.mark.full]


def test_flink_says_the_same_again() -> None:
    """The program that wrote the golden file writes it again, byte by byte."""
    jars = flink_jars("2.3.0")
    classes = compiled([JAVA_SOURCES / "SplitVectors.java"], jars, "split-2.3.0")
    done = subprocess.run(
        java("1g", [classes, *jars], "SplitVectors"),
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    golden = lzma.decompress((GOLDEN / "vectors" / "split.jsonl.xz").read_bytes())
    assert done.stdout == golden
