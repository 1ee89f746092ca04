"""Real Flink restores what statelake exports: every golden savepoint, at every parallelism."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.lake.catalog import Lake
from pipelines.lake.exporting import export_snapshot
from pipelines.lake.importing import import_snapshot
from tests.golden_cases import GoldenCase, golden_cases
from tests.integration.flink.oracle import FlinkOracle

pytestmark = pytest.mark.flink

CASES = golden_cases("wordcount", "kinds", "windows", form="canonical")
PARALLELISMS = (1, 2, 3, 5, 128)
MAX_PARALLELISMS = (128, 256, 1000)
IN_EVERY_RUN = {
    (one.name, PARALLELISMS[(2 * index + step) % 4], MAX_PARALLELISMS[(index + step) % 3])
    for index, one in enumerate(CASES)
    for step in range(2)
} | {
    ("wordcount-hashmap-canonical-p2-m1024-flink2.3.0", 128, 256),
    ("kinds-rocksdb-canonical-snappy-p3-m128-flink2.3.0", 128, 1000),
}
PRODUCT = [
    pytest.param(
        golden,
        parallelism,
        groups,
        id=f"{golden.name}-to-p{parallelism}-m{groups}",
        marks=[] if (golden.name, parallelism, groups) in IN_EVERY_RUN else [pytest.mark.full],
    )
    for golden in CASES
    for parallelism in PARALLELISMS
    for groups in MAX_PARALLELISMS
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with every golden savepoint as a job of its own."""
    made = Lake(tmp_path_factory.mktemp("golden") / "lake")
    for golden in CASES:
        import_snapshot(made, str(golden.snapshot), golden.name, snapshot_id="sp", engine="local")
    return made


def restored(
    flink: FlinkOracle, golden: GoldenCase, savepoint: Path, **options: object
) -> list[Any]:
    """What Flink sees, as sorted text of each line."""
    facts = golden.facts
    return flink.restore(facts["case"], savepoint, keys=facts["keys"], **options)


def same(found: list[Any], golden: GoldenCase) -> bool:
    """Whether lines are the expected ones, in any order."""

    def lines(held: list[Any]) -> list[str]:
        return sorted(json.dumps(one, sort_keys=True) for one in held)

    return lines(found) == lines(golden.expected())


@pytest.mark.parametrize(("golden", "parallelism", "max_parallelism"), PRODUCT)
def test_flink_sees_every_key_of_an_export(
    golden: GoldenCase,
    parallelism: int,
    max_parallelism: int,
    lake: Lake,
    flink: FlinkOracle,
    tmp_path: Path,
) -> None:
    """Nothing is lost, whatever the parallelism and the max parallelism become."""
    target = tmp_path / "export"
    export_snapshot(
        lake, golden.name, "sp", target, parallelism=parallelism, max_parallelism=max_parallelism
    )
    backend = "rocksdb" if parallelism % 2 else "hashmap"
    found = restored(
        flink, golden, target, parallelism=parallelism, max=max_parallelism, backend=backend
    )
    assert same(found, golden)


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_flink_restores_every_metadata_version(
    version: int, lake: Lake, flink: FlinkOracle, tmp_path: Path
) -> None:
    """`_metadata` is written in the version that was asked for, and Flink 2.3 reads it."""
    golden = next(one for one in CASES if one.name.startswith("kinds-hashmap"))
    target = tmp_path / "export"
    done = export_snapshot(lake, golden.name, "sp", target, parallelism=3, metadata_version=version)
    assert done.metadata_version == version
    assert same(restored(flink, golden, target, parallelism=3), golden)


@pytest.mark.parametrize(
    "name",
    [
        "wordcount-hashmap-canonical-p2-m128-flink1.20.0",
        "kinds-rocksdb-canonical-snappy-p2-m128-flink1.20.0",
        "wordcount-hashmap-canonical-p2-m1024-flink2.3.0",
    ],
)
def test_an_older_flink_restores_version_3(
    name: str, lake: Lake, old_flink: FlinkOracle, tmp_path: Path
) -> None:
    """Version 3 restores in Flink 1.20, even what Flink 2.3 wrote."""
    golden = next(one for one in CASES if one.name == name)
    target = tmp_path / "export"
    export_snapshot(
        lake, name, "sp", target, parallelism=3, max_parallelism=256, metadata_version=3
    )
    found = restored(old_flink, golden, target, parallelism=3, max=256, backend="rocksdb")
    assert same(found, golden)
