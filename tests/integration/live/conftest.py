"""The job that counts, as a JAR."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.flink.live_cluster import counter_jar


@pytest.fixture(scope="session")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A JAR with `LiveCounter`."""
    return counter_jar(tmp_path_factory.mktemp("jar"))
