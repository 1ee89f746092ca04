"""Jobs with serializers of their own: through a lake and back, without a line of code for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from tests.integration.flink.oracle import FlinkOracle, sorted_lines
from tests.support.savepoints.own_savepoint import FORMS, KEYS, own_lines, own_savepoint

pytestmark = [pytest.mark.flink, pytest.mark.full]


def assert_restored(flink: FlinkOracle, savepoint: Path, work: Path, **options: Any) -> None:
    """Flink prints of an export what it printed of the savepoint."""
    lake = Catalog(work / "lake")
    import_snapshot(lake, str(savepoint), "job", snapshot_id="s", engine="local")
    export_snapshot(lake, "job", "s", work / "out", engine="local", parallelism=3)
    lines = flink.restore("own", work / "out", keys=KEYS, parallelism=3, **options)
    assert sorted_lines(lines) == sorted_lines(own_lines())


@pytest.mark.parametrize("form", FORMS)
def test_restored_in_the_other_backend(form: str, flink: FlinkOracle, tmp_path: Path) -> None:
    """What was written from the heap, by RocksDB at another parallelism."""
    assert_restored(flink, own_savepoint(form, tmp_path / "sp"), tmp_path, backend="rocksdb")


@pytest.mark.full
@pytest.mark.parametrize("compression", ["true", "false"])
def test_native_savepoints_of_rocksdb(compression: str, flink: FlinkOracle, tmp_path: Path) -> None:
    """Keys and values have lengths there."""
    savepoint = flink.generate(
        "own", tmp_path / "sp", keys=KEYS, backend="rocksdb", format="native",
        compression=compression,
    )  # fmt: skip
    assert_restored(flink, savepoint, tmp_path, backend="hashmap")


@pytest.mark.full
def test_a_native_savepoint_of_the_heap(flink: FlinkOracle, tmp_path: Path) -> None:
    """It has no lengths: where values end is found by the keys behind them, of many key groups."""
    options = {"keys": KEYS, "max": 1024}
    savepoint = own_savepoint("few-native", tmp_path / "native")
    lines = sorted_lines(
        flink.restore("own-few", own_savepoint("few-canonical", tmp_path / "sp"), **options)
    )
    lake = Catalog(tmp_path / "lake")
    import_snapshot(lake, str(savepoint), "job", snapshot_id="s", engine="local")
    export_snapshot(lake, "job", "s", tmp_path / "out", engine="local", parallelism=3)
    after = flink.restore("own-few", tmp_path / "out", **options, parallelism=3, backend="rocksdb")
    assert sorted_lines(after) == lines
