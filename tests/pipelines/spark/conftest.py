"""One Spark session for every test below, as the product opens it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.spark.session import open_session
from tests.support.lakes import import_golden
from tests.support.savepoints.golden_cases import GOLDEN


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session, with Delta; stopped at the end, with its JVM."""
    session = open_session("statelake tests")
    yield session
    session.stop()
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


@pytest.fixture
def counts() -> Path:
    """A savepoint of 300 words and their counts: operator `counter`, state `count`, max 128."""
    return GOLDEN / "flink" / "wordcount-rocksdb-canonical-snappy-p2-m128-flink2.3.0" / "savepoint"


@pytest.fixture
def archive(tmp_path: Path, counts: Path) -> Catalog:
    """A lake whose job `orders` has that savepoint as its snapshot `monday`."""
    return import_golden(Catalog(tmp_path / "lake"), ("monday", counts), partitions=8)
