"""Real Flink restores the exports of every basic type, and of POJOs.

The jobs are those of `Judge.java`, whose classes have the names that the golden savepoints hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.requests.imports import Import
from tests.integration.flink.oracle import FlinkOracle, sorted_lines
from tests.support.covering import pairs
from tests.support.savepoints.expected_contents import UIDS
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

pytestmark = [pytest.mark.flink, pytest.mark.full, pytest.mark.thinned(4, by=pairs)]

CASES = golden_cases("types", "pojo")
OLD = "flink1.20.0"
EVERY_PARALLELISM = (1, 3, 128)
EVERY_MAX_PARALLELISM = (128, 300)


def exported(golden: GoldenCase, work: Path, **options: Any) -> Path:
    """A golden savepoint through a lake, as another."""
    lake = Catalog(work / "lake")
    uids = UIDS.get(golden.facts["case"], ())
    import_snapshot(
        lake, str(golden.snapshot), "job", Import(uids=uids), snapshot_id="s", engine="local"
    )
    export_snapshot(lake, "job", "s", work / "export", engine="local", **options)
    return work / "export"


def assert_restored(oracle: FlinkOracle, golden: GoldenCase, made: Path, **options: Any) -> None:
    """Flink prints of an export what it printed of the golden savepoint."""
    case, keys = golden.facts["case"], golden.facts["keys"]
    lines = oracle.restore(case, made, keys=keys, **options)
    assert sorted_lines(lines) == sorted_lines(golden.expected())


@pytest.mark.parametrize("golden", CASES, ids=lambda case: case.name)
def test_every_type(golden: GoldenCase, flink: FlinkOracle, tmp_path: Path) -> None:
    """Of canonical and native snapshots, of either backend and Flink, at another parallelism."""
    native = golden.facts["format"] == "native"
    spread = {"parallelism": 3, "max_parallelism": 300 if native else 128}
    savepoint = exported(golden, tmp_path, **spread)
    backend = "hashmap" if golden.facts["backend"] == "rocksdb" else "rocksdb"
    assert_restored(
        flink, golden, savepoint, parallelism=3, max=spread["max_parallelism"], backend=backend
    )


@pytest.mark.parametrize(
    "golden",
    [case for case in CASES if case.facts["format"] == "canonical"],
    ids=lambda case: case.name,
)
def test_every_type_in_an_older_flink(
    golden: GoldenCase, old_flink: FlinkOracle, tmp_path: Path
) -> None:
    """Flink 1.20 restores what it wrote itself, and what Flink 2.3 wrote, as version 3."""
    savepoint = exported(golden, tmp_path, parallelism=1, metadata_version=3)
    assert_restored(old_flink, golden, savepoint, parallelism=1, backend="hashmap")


@pytest.mark.parametrize("max_parallelism", EVERY_MAX_PARALLELISM)
@pytest.mark.parametrize("parallelism", EVERY_PARALLELISM)
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("golden", CASES, ids=lambda case: case.name)
def test_every_type_at_every_parallelism(
    golden: GoldenCase,
    backend: str,
    parallelism: int,
    max_parallelism: int,
    flink: FlinkOracle,
    tmp_path: Path,
) -> None:
    """Compressed: each with each."""
    savepoint = exported(
        golden, tmp_path, parallelism=parallelism, max_parallelism=max_parallelism,
        compression="snappy",
    )  # fmt: skip
    assert_restored(
        flink, golden, savepoint, parallelism=parallelism, max=max_parallelism, backend=backend
    )
