"""Savepoints of Flink 1.8 to 1.17, through the lake, restored by Flink 2.3 at parallelism 3."""

from __future__ import annotations

from pathlib import Path

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from tests.integration.flink.oracle import FlinkOracle
from tests.support.savepoints.golden_cases import GOLDEN

pytestmark = [pytest.mark.flink, pytest.mark.full]

KEYS = 60
FAR = 4_000_000_000_000
OLD = sorted((GOLDEN / "old").iterdir())


@pytest.mark.parametrize(
    "savepoint",
    [pytest.param(case, marks=[] if "1.12" in case.name else pytest.mark.full) for case in OLD],
    ids=lambda case: case.name,
)
def test_restored_by_a_new_flink(savepoint: Path, flink: FlinkOracle, tmp_path: Path) -> None:
    """Every key's state and timer, and all elements of operator state."""
    lake = Catalog(tmp_path / "lake")
    import_snapshot(lake, str(savepoint), "old", snapshot_id="s", engine="local")
    export_snapshot(lake, "old", "s", tmp_path / "out", parallelism=3, engine="local")
    lines = flink.restore("old", tmp_path / "out", keys=KEYS, parallelism=3)
    keyed = {line["key"]: line for line in lines if "count" in line}
    assert keyed == {
        f"word-{n}": {
            "key": f"word-{n}", "count": n * 31 - 7,
            "items": [n * 10 + i for i in range(n % 4)],
            "scores": {f"s{i}": n / 8 + i for i in range(n % 4)},
        }
        for n in range(KEYS)
    }  # fmt: skip
    timers = {line["key"]: line["timer"] for line in lines if "timer" in line}
    assert timers == {f"word-{n}": FAR + n for n in range(KEYS)}
    lists = [line for line in lines if "split" in line]
    assert sorted(value for line in lists for value in line["split"]) == list(range(KEYS))
    assert {tuple(line["union"]) for line in lists} == {
        ("subtask-0-0", "subtask-1-0", "subtask-1-1", "subtask-1-2")
    }
