"""Real Flink restores what was salvaged of damaged savepoints: what was not damaged is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statelake import open_snapshot
from statelake.state_core.integrity import check_snapshot, salvage_snapshot
from tests.integration.flink.oracle import FlinkOracle, sorted_lines
from tests.support.lakes import golden
from tests.support.savepoints.damaged import damaged
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

pytestmark = [pytest.mark.flink, pytest.mark.full]


def restored(flink: FlinkOracle, case: GoldenCase, savepoint: Path) -> list[str]:
    """What Flink sees."""
    job, keys = case.facts["case"], case.facts["keys"]
    return sorted_lines(
        flink.restore(job, savepoint, keys=keys, parallelism=3, max=128, backend="rocksdb")
    )


def held_keys(savepoint: Path) -> set[str]:
    """The keys that have a count."""
    (operator,) = [op for op in open_snapshot(savepoint).operators if op.keyed_states]
    return set(operator.state("count").to_arrow().column("key").to_pylist())


def test_all_but_what_was_damaged(flink: FlinkOracle, tmp_path: Path) -> None:
    """A key group that breaks off, a file that is cut: of all other keys Flink sees the count."""
    case = golden("wordcount-hashmap-canonical-p2-m128-flink1.20.0")
    savepoint = damaged(case, tmp_path / "damaged")
    broken, cut = savepoint.groups(0)[4], savepoint.groups(1)[-20]
    savepoint.change_group(0, broken, lambda data: data[:-2])
    end = savepoint.span(1, cut)[0] + 3
    savepoint.change(savepoint.file(1), lambda data: data[:end])
    done = salvage_snapshot(savepoint.path, tmp_path / "salvaged")
    kept = held_keys(tmp_path / "salvaged")
    assert done.lost
    assert len(kept) == done.entries
    assert 200 < len(kept) < len(held_keys(case.snapshot))
    expected = [line if line["key"] in kept else line | {"count": None} for line in case.expected()]
    assert restored(flink, case, tmp_path / "salvaged") == sorted_lines(expected)


@pytest.mark.parametrize(
    "case", golden_cases("kinds", "windows", form="native"), ids=lambda case: case.name
)
def test_native_savepoints_become_canonical(
    case: GoldenCase, flink: FlinkOracle, tmp_path: Path
) -> None:
    """One that is sound comes out in the canonical format, and holds the same."""
    salvage_snapshot(case.snapshot, tmp_path / "salvaged")
    assert restored(flink, case, tmp_path / "salvaged") == sorted_lines(case.expected())


@pytest.mark.parametrize("backend", ["rocksdb", pytest.param("hashmap", marks=pytest.mark.full)])
def test_merged_files(backend: str, flink: FlinkOracle, tmp_path: Path) -> None:
    """A checkpoint whose files hold the state of many subtasks: sound, and salvaged whole."""
    (place,) = flink.checkpoints(
        "mixed", tmp_path / "written", keys=40, backend=backend,
        **{"execution.checkpointing.file-merging.enabled": "true"},
    )  # fmt: skip
    assert check_snapshot(place).faults == ()
    assert salvage_snapshot(place, tmp_path / "salvaged").lost == ()
    expected = flink.restore("mixed", place, keys=40, parallelism=2, backend=backend)
    other = "hashmap" if backend == "rocksdb" else "rocksdb"
    saved = tmp_path / "salvaged"
    lines = flink.restore("mixed", saved, keys=40, parallelism=2, backend=other)
    assert sorted_lines(map(unordered, lines)) == sorted_lines(map(unordered, expected))


def unordered(line: dict[str, Any]) -> dict[str, Any]:
    """A line whose lists are sorted: Flink's order of old subtasks depends on paths."""
    return {name: sorted(item) if isinstance(item, list) else item for name, item in line.items()}
