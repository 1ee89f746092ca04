"""State of SQL queries through the lake and back: the same entries, at any max parallelism."""

from __future__ import annotations

from pathlib import Path

import pytest

from statelake import open_snapshot
from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

CASES = golden_cases("sql", "queries")
MOVABLE = golden_cases("sql")  # the others' window operators have operator state beside
ENTRIES = {"sql": 250, "queries": 394}

every_case = pytest.mark.parametrize("golden", CASES, ids=[case.name for case in CASES])


def entries(savepoint: Path) -> dict[str, set[tuple[int, bytes, bytes]]]:
    """Key group, key and value of every entry, by operator and state."""
    found: dict[str, set[tuple[int, bytes, bytes]]] = {}
    for operator in open_snapshot(savepoint).operators:
        for file in operator.keyed_files:
            for batch in file.entries():
                data = batch.data.tobytes()
                columns = (
                    batch.state_of, batch.group_of, batch.key_start, batch.key_end,
                    batch.value_start, batch.value_end,
                )  # fmt: skip
                for state, group, a, b, c, d in zip(
                    *(column.tolist() for column in columns), strict=True
                ):
                    name = f"{operator.label} {file.states[state].name}"
                    found.setdefault(name, set()).add((group, data[a:b], data[c:d]))
    return found


def imported(golden: GoldenCase, folder: Path) -> tuple[Catalog, str]:
    """A lake with the savepoint in it."""
    lake = Catalog(folder / "lake")
    result = import_snapshot(lake, str(golden.snapshot), "orders", engine=LocalEngine())
    return lake, result.record.snapshot_id


@every_case
@pytest.mark.full
def test_exported_entries_are_flinks(golden: GoldenCase, tmp_path: Path) -> None:
    """Import and export give the entries that Flink wrote, byte for byte."""
    lake, snapshot = imported(golden, tmp_path)
    export_snapshot(lake, "orders", snapshot, tmp_path / "out", engine=LocalEngine())
    before = entries(golden.snapshot)
    assert sum(map(len, before.values())) == ENTRIES[golden.facts["case"]]
    assert entries(tmp_path / "out") == before


@pytest.mark.parametrize("golden", MOVABLE, ids=[case.name for case in MOVABLE])
def test_another_max_parallelism(golden: GoldenCase, tmp_path: Path) -> None:
    """Keys find their new key groups by the hash of their binary form, and come back."""
    lake, snapshot = imported(golden, tmp_path)
    export_snapshot(
        lake, "orders", snapshot, tmp_path / "wide", max_parallelism=1000, parallelism=3,
        engine=LocalEngine(),
    )  # fmt: skip
    wide = entries(tmp_path / "wide")
    assert {group for held in wide.values() for group, _, _ in held} - set(range(128))
    other = Catalog(tmp_path / "other")
    back = import_snapshot(other, str(tmp_path / "wide"), "orders", engine=LocalEngine())
    export_snapshot(
        other, "orders", back.record.snapshot_id, tmp_path / "back", max_parallelism=128,
        parallelism=1, engine=LocalEngine(),
    )  # fmt: skip
    assert entries(tmp_path / "back") == entries(golden.snapshot)
