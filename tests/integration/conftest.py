"""One JVM of each Flink for all tests that ask it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.flink.oracle import FlinkOracle


@pytest.fixture(scope="session")
def flink() -> Iterator[FlinkOracle]:
    """Flink 2.3.0."""
    with FlinkOracle("2.3.0", "2g") as oracle:
        yield oracle


@pytest.fixture(scope="session")
def old_flink() -> Iterator[FlinkOracle]:
    """Flink 1.20.0, the last of the line before."""
    with FlinkOracle("1.20.0") as oracle:
        yield oracle
