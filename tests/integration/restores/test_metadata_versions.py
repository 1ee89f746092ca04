"""Which version of `_metadata` which Flink restores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from tests.integration.flink.oracle import FlinkError, FlinkOracle, sorted_lines
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

pytestmark = [pytest.mark.flink, pytest.mark.full, pytest.mark.thinned(2)]

CASES = {
    golden_case.name: golden_case
    for golden_case in golden_cases("kinds", "wordcount", form="canonical")
}
OF_FLINK_2 = CASES["kinds-hashmap-canonical-p2-m128-flink2.3.0"]
OF_FLINK_1 = CASES["wordcount-hashmap-canonical-p2-m128-flink1.20.0"]


def full(version: int) -> Any:
    """A version that is tried with the longest tests."""
    return pytest.param(version, marks=pytest.mark.full)


def export(lake: Catalog, golden: GoldenCase, target: Path, version: int | None) -> int:
    """Export at parallelism 3; the version that the savepoint says it has."""
    done = export_snapshot(lake, golden.name, "sp", target, parallelism=3, metadata_version=version)
    assert open_snapshot(target).metadata_version == done.metadata_version
    return done.metadata_version


def restored(oracle: FlinkOracle, golden: GoldenCase, savepoint: Path) -> list[str]:
    """What Flink sees at parallelism 3."""
    case, keys = golden.facts["case"], golden.facts["keys"]
    return sorted_lines(oracle.restore(case, savepoint, keys=keys, parallelism=3))


@pytest.mark.parametrize("version", [3, full(4), full(5), 6])
def test_flink_restores_every_version(
    version: int, golden_lake: Catalog, flink: FlinkOracle, tmp_path: Path
) -> None:
    """`_metadata` is written in the version that was asked for, and Flink 2.3 reads it."""
    assert export(golden_lake, OF_FLINK_2, tmp_path / "export", version) == version
    lines = restored(flink, OF_FLINK_2, tmp_path / "export")
    assert lines == sorted_lines(OF_FLINK_2.expected())


@pytest.mark.parametrize("version", [3, full(4)])
def test_an_older_flink_restores_the_older_versions(
    version: int, golden_lake: Catalog, old_flink: FlinkOracle, tmp_path: Path
) -> None:
    """Flink 1.20 reads versions 3 and 4 of what Flink 2.3 wrote."""
    assert export(golden_lake, OF_FLINK_2, tmp_path / "export", version) == version
    lines = restored(old_flink, OF_FLINK_2, tmp_path / "export")
    assert lines == sorted_lines(OF_FLINK_2.expected())


@pytest.mark.parametrize("version", [5, full(6)])
def test_an_older_flink_refuses_the_newer_versions(
    version: int, golden_lake: Catalog, old_flink: FlinkOracle, tmp_path: Path
) -> None:
    """Flink 1.20 knows no version 5 or 6: that is why one can choose."""
    assert export(golden_lake, OF_FLINK_2, tmp_path / "export", version) == version
    with pytest.raises(FlinkError, match=f"checkpoint version number: {version}"):
        restored(old_flink, OF_FLINK_2, tmp_path / "export")


def test_the_version_stays_what_it_was(
    golden_lake: Catalog, flink: FlinkOracle, old_flink: FlinkOracle, tmp_path: Path
) -> None:
    """Not asked for another, what Flink 1.20 wrote restores in Flink 1.20, and in Flink 2.3."""
    written = open_snapshot(OF_FLINK_1.snapshot).metadata_version
    assert export(golden_lake, OF_FLINK_1, tmp_path / "export", None) == written
    expected = sorted_lines(OF_FLINK_1.expected())
    assert restored(old_flink, OF_FLINK_1, tmp_path / "export") == expected
    assert restored(flink, OF_FLINK_1, tmp_path / "export") == expected
