"""Savepoints that real Flink writes now, through the lake, and back into real Flink."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset as pads
import pytest
from deltalake import DeltaTable

from pipelines.lake.catalog import Lake
from pipelines.lake.committing import commit_snapshot
from pipelines.lake.exporting import export_snapshot
from pipelines.lake.importing import import_snapshot
from state_core import open_snapshot
from tests.integration.flink.oracle import FlinkOracle

pytestmark = pytest.mark.flink


@dataclass(frozen=True)
class Journey:
    """How a savepoint is written, exported, and restored."""

    case: str
    backend: str
    compression: bool
    parallelism: int
    keys: int
    to_parallelism: int
    to_groups: int
    to_compression: str
    to_backend: str


JOURNEYS = [
    Journey("wordcount", "hashmap", False, 3, 1000, 2, 128, "snappy", "rocksdb"),
    Journey("wordcount", "rocksdb", True, 1, 500, 4, 300, "none", "hashmap"),
    Journey("kinds", "rocksdb", False, 2, 200, 5, 128, "none", "hashmap"),
    Journey("kinds", "hashmap", True, 2, 150, 3, 512, "snappy", "rocksdb"),
    Journey("windows", "hashmap", False, 2, 120, 3, 200, "snappy", "rocksdb"),
]


def sorted_lines(held: list[Any]) -> list[str]:
    """Lines in an order of their own."""
    return sorted(json.dumps(one, sort_keys=True) for one in held)


def travel(flink: FlinkOracle, journey: Journey, work: Path) -> tuple[list[str], list[str]]:
    """What Flink sees in its own savepoint, and in ours."""
    source = flink.generate(
        journey.case, work / "flink", backend=journey.backend, keys=journey.keys,
        compression=str(journey.compression).lower(), parallelism=journey.parallelism,
    )  # fmt: skip
    truth = flink.restore(journey.case, source, keys=journey.keys, parallelism=2)
    lake = Lake(work / "lake")
    import_snapshot(lake, str(source), "job", snapshot_id="sp", engine="local")
    target = work / "export"
    export_snapshot(
        lake, "job", "sp", target, parallelism=journey.to_parallelism,
        max_parallelism=journey.to_groups, compression=journey.to_compression,
    )  # fmt: skip
    assert open_snapshot(target).compression == journey.to_compression
    found = flink.restore(
        journey.case, target, keys=journey.keys, backend=journey.to_backend,
        parallelism=journey.to_parallelism, max=journey.to_groups,
    )  # fmt: skip
    return sorted_lines(truth), sorted_lines(found)


@pytest.mark.parametrize("journey", JOURNEYS, ids=lambda one: f"{one.case}-{one.backend}")
def test_flink_sees_the_same_after_the_journey(
    journey: Journey, flink: FlinkOracle, tmp_path: Path
) -> None:
    """Other parallelism, other max parallelism, other compression, other backend: same state."""
    truth, found = travel(flink, journey, tmp_path)
    assert len(truth) > 100
    assert found == truth


@pytest.mark.parametrize("journey", JOURNEYS[1:3], ids=lambda one: f"{one.case}-{one.backend}")
def test_an_older_flink_sees_the_same(
    journey: Journey, old_flink: FlinkOracle, tmp_path: Path
) -> None:
    """The same with Flink 1.20, which writes older `_metadata`."""
    truth, found = travel(old_flink, journey, tmp_path)
    assert len(truth) > 100
    assert found == truth


@pytest.mark.parametrize(
    ("backend", "form", "compression"),
    [
        ("hashmap", "native", "true"),
        ("hashmap", "native", "false"),
        ("rocksdb", "native", "false"),
    ],
)
def test_a_native_savepoint_moves_to_the_other_backend(
    backend: str, form: str, compression: str, flink: FlinkOracle, tmp_path: Path
) -> None:
    """A backend's own format is read, and its export restores in the other backend."""
    source = flink.generate(
        "kinds", tmp_path / "flink", backend=backend, format=form, compression=compression,
        keys=120,
    )  # fmt: skip
    truth = flink.restore("kinds", source, keys=120, backend=backend)
    lake = Lake(tmp_path / "lake")
    import_snapshot(lake, str(source), "job", snapshot_id="sp", engine="local")
    export_snapshot(lake, "job", "sp", tmp_path / "export", parallelism=3, max_parallelism=200)
    other = "hashmap" if backend == "rocksdb" else "rocksdb"
    found = flink.restore(
        "kinds", tmp_path / "export", keys=120, backend=other, parallelism=3, max=200
    )
    assert sorted_lines(found) == sorted_lines(truth)


def test_an_erased_person_is_gone_after_the_restore(flink: FlinkOracle, tmp_path: Path) -> None:
    """DELETE, commit, export: asked for every key, Flink has nothing for that one."""
    source = flink.generate("wordcount", tmp_path / "flink", keys=300)
    lake = Lake(tmp_path / "lake")
    record = import_snapshot(lake, str(source), "job", snapshot_id="sp", engine="local").record
    (path,) = (one.table for one in record.operators[0].states if one.name == "count")
    table = DeltaTable(lake.table(path).uri)
    before = pads.dataset(table.file_uris()).count_rows()
    assert table.delete("key = 'word-13'")["num_deleted_rows"] == 1
    commit_snapshot(lake, "job", "erased", "sp", note="erasure request", engine="local")
    export_snapshot(lake, "job", "erased", tmp_path / "export", parallelism=3)
    found = flink.restore("wordcount", tmp_path / "export", keys=300, parallelism=3)
    truth = flink.restore("wordcount", source, keys=300)
    gone = [one for one in truth if one not in found]
    assert [one["key"] for one in gone] == ["word-13"]
    assert [one["count"] for one in found if one["key"] == "word-13"] == [None]
    assert len(found) == before
