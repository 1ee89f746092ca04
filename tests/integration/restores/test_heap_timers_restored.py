"""Checkpoints of RocksDB with timers on the heap, at any parallelism and in either backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from tests.integration.flink.oracle import FlinkOracle, sorted_lines
from tests.support.savepoints.heap_timers import TIMER_KEYS, heap_timers, heap_timers_lines

pytestmark = pytest.mark.flink

HEAP = {"state.backend.rocksdb.timer-service.factory": "HEAP"}


def exported(snapshot: Path, work: Path, parallelism: int, most: int) -> Path:
    """A checkpoint through a lake, spread over other subtasks and key groups."""
    lake, out = Catalog(work / "lake"), work / f"out-{parallelism}-{most}"
    import_snapshot(lake, str(snapshot), "job", snapshot_id="s", engine="local")
    export_snapshot(
        lake, "job", "s", out, engine="local", parallelism=parallelism, max_parallelism=most
    )
    return out


@pytest.mark.full
@pytest.mark.parametrize(
    ("case", "backend", "most"), [("kinds", "hashmap", 300), ("windows", "rocksdb", 128)]
)
def test_timers_go_off(
    case: str, backend: str, most: int, flink: FlinkOracle, tmp_path: Path
) -> None:
    """All of them, once, at the same time with the same key."""
    out = exported(heap_timers(case, tmp_path / "chk"), tmp_path, 3, most)
    lines = flink.restore(
        case, out, keys=TIMER_KEYS[case], parallelism=3, max=most, backend=backend
    )
    assert sorted_lines(lines) == sorted_lines(heap_timers_lines(case))


@pytest.mark.full
@pytest.mark.parametrize("incremental", ["true", "false"])
def test_checkpoints_of_today(incremental: str, flink: FlinkOracle, tmp_path: Path) -> None:
    """With files of their own, incremental or not."""
    options = {**HEAP, "execution.checkpointing.incremental": incremental}
    (checkpoint,) = flink.checkpoints("kinds", tmp_path / "chk", keys=60, **options)
    expected = flink.restore("kinds", checkpoint, keys=60, backend="rocksdb")
    for parallelism in (1, 2, 5):
        out = exported(checkpoint, tmp_path / str(parallelism), parallelism, 128)
        lines = flink.restore("kinds", out, keys=60, parallelism=parallelism, backend="hashmap")
        assert sorted_lines(lines) == sorted_lines(expected)
