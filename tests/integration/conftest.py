"""One JVM of each Flink for all tests that ask it, and one lake with the golden savepoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.sql_jobs import java_programs
from statelake.state_core.errors import StateError
from tests.integration.flink.live_cluster import LiveFlink
from tests.integration.flink.oracle import FlinkOracle
from tests.integration.hdfs.cluster import Hdfs
from tests.integration.kafka.broker import KafkaBroker
from tests.integration.s3.proxy import ENVIRONMENT, S3Proxy
from tests.support.java import QUICK
from tests.support.savepoints.golden_cases import golden_cases

Server = TypeVar("Server")


@pytest.fixture(autouse=True, scope="session")
def quick_programs() -> Iterator[None]:
    """Programs that commands run in Flink start as quickly as those of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(java_programs, "QUICK", QUICK)
        yield


@pytest.fixture(scope="session")
def flink() -> Iterator[FlinkOracle]:
    """Flink 2.3.0."""
    with running("2.3.0") as oracle:
        yield oracle


@pytest.fixture(scope="session")
def old_flink() -> Iterator[FlinkOracle]:
    """Flink 1.20.0, the last of the line before."""
    with running("1.20.0") as oracle:
        yield oracle


@contextmanager
def running(version: str) -> Iterator[FlinkOracle]:
    """A JVM with this Flink."""
    with started(lambda: FlinkOracle(version), f"Flink {version} can't be asked") as oracle:
        yield oracle


@contextmanager
def started(make: Callable[[], AbstractContextManager[Server]], problem: str) -> Iterator[Server]:
    """A server while its tests run; without a Java, they fail in one sentence."""
    try:
        made = make()
    except StateError as error:
        pytest.fail(f"{problem}: {error}", pytrace=False)
    with made as server:
        yield server


@pytest.fixture(scope="session")
def live_flink() -> Iterator[LiveFlink]:
    """A running cluster of Flink 2.3.0: two TaskManagers, with slots for eight subtasks."""
    with started(LiveFlink, "no Flink cluster can be started") as live:
        yield live


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Proxy]:
    """An S3 API on loopback, with what AWS's SDKs take from the environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        with started(S3Proxy, "S3Proxy can't be had") as proxy:
            yield proxy


@pytest.fixture(scope="session")
def hdfs() -> Iterator[Hdfs]:
    """An HDFS on loopback."""
    with started(Hdfs, "Hadoop can't be had") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    """A broker on loopback: topics are each test's own."""
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def golden_lake(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A lake with each golden savepoint of our jobs as a job of its own, called `sp` in it."""
    lake = Catalog(tmp_path_factory.mktemp("golden") / "lake")
    for golden in golden_cases("wordcount", "kinds", "windows", form="canonical"):
        import_snapshot(lake, str(golden.snapshot), golden.name, snapshot_id="sp", engine="local")
    return lake
