"""Savepoints that real Flink writes now, through the lake, and back into real Flink."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import astuple, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from tests.integration.flink.oracle import FlinkOracle, sorted_lines
from tests.support.covering import pairs, values


@dataclass(frozen=True)
class Journey:
    """How a savepoint is written, exported, and restored."""

    case: str
    backend: str
    form: str
    compression: bool
    parallelism: int
    keys: int
    to_parallelism: int
    to_groups: int
    to_compression: str
    to_backend: str

    def __str__(self) -> str:
        """As the name of a test."""
        return "-".join(map(str, astuple(self)))


OTHER = {"hashmap": "rocksdb", "rocksdb": "hashmap"}
JOURNEYS = [
    Journey(
        case, backend, form, compression, 1 + index % 3, 103 + 97 * (index % 7),
        1 + (index * 5 + 3) % 7, (128, 300, 1024, 200, 32768)[index % 5],
        ("none", "snappy")[(index + index // 4) % 2], OTHER[backend],
    )
    for index, (case, backend, form, compression) in enumerate(
        product(
            ("wordcount", "kinds", "windows"), ("hashmap", "rocksdb"), ("canonical", "native"),
            (False, True),
        )
    )
]  # fmt: skip


def of_journey(test: str, parameters: Mapping[str, Any]) -> list[Hashable]:
    """Pairs of how it is written and compressed again, and once where it goes."""
    facts = vars(parameters["journey"])
    paired = ("case", "backend", "form", "compression", "to_compression")
    once = {name: value for name, value in facts.items() if name not in (*paired, "keys")}
    return [*pairs(test, {name: facts[name] for name in paired}), *values(test, once)]


pytestmark = [pytest.mark.flink, pytest.mark.full, pytest.mark.thinned(6, by=of_journey)]


def travel(
    writer: FlinkOracle,
    reader: FlinkOracle,
    journey: Journey,
    work: Path,
    metadata_version: int | None = None,
) -> None:
    """What the one Flink sees in its own savepoint, the other must see in ours."""
    source = writer.generate(
        journey.case, work / "flink", backend=journey.backend, keys=journey.keys,
        format=journey.form, compression=str(journey.compression).lower(),
        parallelism=journey.parallelism,
    )  # fmt: skip
    truth = writer.restore(
        journey.case, source, keys=journey.keys, parallelism=2, backend=journey.backend
    )
    assert len(truth) > 100
    lake = Catalog(work / "lake")
    import_snapshot(lake, str(source), "job", snapshot_id="sp", engine="local")
    target = work / "export"
    export_snapshot(
        lake, "job", "sp", target, parallelism=journey.to_parallelism,
        max_parallelism=journey.to_groups, compression=journey.to_compression,
        metadata_version=metadata_version,
    )  # fmt: skip
    assert open_snapshot(target).compression == journey.to_compression
    lines = reader.restore(
        journey.case, target, keys=journey.keys, backend=journey.to_backend,
        parallelism=journey.to_parallelism, max=journey.to_groups,
    )  # fmt: skip
    assert sorted_lines(lines) == sorted_lines(truth)


@pytest.mark.parametrize("journey", JOURNEYS, ids=str)
def test_flink_sees_the_same_after_the_journey(
    journey: Journey, flink: FlinkOracle, tmp_path: Path
) -> None:
    """Other parallelism, other max parallelism, other compression, other backend: same state."""
    travel(flink, flink, journey, tmp_path)


@pytest.mark.parametrize("journey", JOURNEYS, ids=str)
def test_an_older_flink_sees_the_same(
    journey: Journey, old_flink: FlinkOracle, tmp_path: Path
) -> None:
    """The same with Flink 1.20, which writes older `_metadata`."""
    travel(old_flink, old_flink, journey, tmp_path)


def test_a_job_moves_to_the_newer_flink(
    flink: FlinkOracle, old_flink: FlinkOracle, tmp_path: Path
) -> None:
    """What Flink 1.20 writes, Flink 2.3 restores after the journey."""
    travel(old_flink, flink, JOURNEYS[9], tmp_path)


def test_a_job_moves_back_to_the_older_flink(
    flink: FlinkOracle, old_flink: FlinkOracle, tmp_path: Path
) -> None:
    """What Flink 2.3 writes, Flink 1.20 restores when exported as version 3."""
    travel(flink, old_flink, JOURNEYS[13], tmp_path, metadata_version=3)
