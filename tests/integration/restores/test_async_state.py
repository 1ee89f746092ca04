"""Jobs of Flink 2's asynchronous state, which Flink itself can't move between backends."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.lake.catalog.catalog import Lake
from pipelines.lake.export.exporting import export_snapshot
from pipelines.lake.ingest.importing import import_snapshot
from tests.integration.flink.oracle import FlinkOracle, sorted_lines

pytestmark = pytest.mark.flink

KEYS = 40
FAR = 4_000_000_000_000
LINES = [
    {
        "key": f"key-{k}", "count": k * 31 - 7, "session": f"session-{k}", "score": k,
        "items": f"{k},{k + 1}", "total": k + k * k,
    }
    for k in range(KEYS)
]  # fmt: skip
TIMERS = [{"key": f"key-{k}", "timer": FAR + k} for k in range(KEYS)]


@pytest.mark.parametrize(
    ("backend", "into"),
    [("hashmap", "rocksdb"), pytest.param("rocksdb", "hashmap", marks=pytest.mark.full)],
)
def test_moved_to_the_other_backend(
    backend: str, into: str, flink: FlinkOracle, tmp_path: Path
) -> None:
    """A native savepoint, through a lake, as a canonical one at another parallelism."""
    made = flink.generate("async", tmp_path / "sp", keys=KEYS, backend=backend, format="native")
    lake = Lake(tmp_path / "lake")
    import_snapshot(lake, str(made), "job", snapshot_id="s", engine="local")
    export_snapshot(lake, "job", "s", tmp_path / "out", engine="local", parallelism=3)
    found = flink.restore("async", tmp_path / "out", keys=KEYS, parallelism=3, backend=into)
    assert sorted_lines(found) == sorted_lines([*LINES, *TIMERS])
