"""Real Flink SQL goes on from what statelake exports: seventeen queries, and all their state."""

from __future__ import annotations

import lzma
import subprocess
from pathlib import Path

import pytest

from pipelines.engine import LocalEngine
from pipelines.lake.api import Lake
from pipelines.lake.export.exporting import export_snapshot
from pipelines.lake.ingest.importing import import_snapshot
from pipelines.spark.jars import java_command
from tests.integration.flink.distribution import JAVA_SOURCES, OPENS, compiled, flink_jars
from tests.support.lakes import entries
from tests.support.savepoints.golden_cases import GOLDEN as DATA
from tests.support.savepoints.golden_cases import golden_cases

pytestmark = [pytest.mark.flink, pytest.mark.full]

MODULES = ("flink-table-planner_2.12", "flink-table-runtime", "flink-table-api-java-bridge")
(GOLDEN,) = golden_cases("queries")


def run_queries(backend: str, to: Path, restored: Path, *options: str) -> Path:
    """Restore a savepoint in a job of the same queries; where the savepoint lies that it took."""
    jars = flink_jars("2.3.0", MODULES)
    classes = compiled([JAVA_SOURCES / "SqlQueries.java"], jars, "sql-2.3.0")
    path = ":".join(map(str, [classes, *jars]))
    words = [backend, to.as_uri(), restored.as_uri()]
    done = subprocess.run(
        [java_command(), "-Xmx2g", *options, *OPENS, "-cp", path, "SqlQueries", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return Path(done.stdout.split()[-1].removeprefix("file:"))


@pytest.mark.parametrize("backend", [pytest.param("hashmap", marks=pytest.mark.nightly), "rocksdb"])
def test_queries_go_on(backend: str, tmp_path: Path) -> None:
    """Import, export, restore in either backend, savepoint: every entry is what it was."""
    lake = Lake(tmp_path / "lake")
    snapshot = import_snapshot(lake, str(GOLDEN.snapshot), "queries", engine=LocalEngine())
    exported = tmp_path / "exported"
    export_snapshot(lake, "queries", snapshot.record.snapshot_id, exported, engine=LocalEngine())
    after = run_queries(backend, tmp_path / "after", exported)
    assert entries(after) == entries(GOLDEN.snapshot)


@pytest.mark.nightly
def test_multi_joins_go_on(tmp_path: Path) -> None:
    """The same of joins of three tables each, from parallelism 2 to 3."""
    (tmp_path / "golden").mkdir()
    packed = (DATA / "multijoin" / "multijoin.metadata.xz").read_bytes()
    (tmp_path / "golden" / "_metadata").write_bytes(lzma.decompress(packed))
    lake, exported = Lake(tmp_path / "lake"), tmp_path / "exported"
    golden = tmp_path / "golden"
    import_snapshot(lake, str(golden), "joins", snapshot_id="s", engine=LocalEngine())
    export_snapshot(lake, "joins", "s", exported, parallelism=3, engine=LocalEngine())
    options = ("-Dnew-queries=true", "-Dparallelism=3")
    after = run_queries("rocksdb", tmp_path / "after", exported, *options)
    assert entries(after) == entries(golden)
