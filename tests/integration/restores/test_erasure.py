"""A customer is erased: real Flink, restored, holds nothing of them, and all of everyone else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from statelake import open_snapshot
from statelake.pipelines.cli.main import main
from statelake.pipelines.lake.catalog.catalog import Catalog
from tests.integration.flink.oracle import FlinkOracle, sorted_lines

pytestmark = [pytest.mark.flink, pytest.mark.full]

KEYS = 120
NOTHING = {"items": [], "scores": {}} | dict.fromkeys(
    ("name", "total", "avg", "triple", "row", "session")
)


def statelake(*arguments: str) -> None:
    """Run a command, which must succeed."""
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    assert left.value.code == 0


def erase(lake: Catalog, job: str, snapshot: str, key: int) -> int:
    """Delete a key's rows from every table of a snapshot; how many went."""
    tables = [
        keyed_table.path
        for op in lake.snapshot(job, snapshot).operators
        for keyed_table in op.keyed_tables
    ]
    assert len(tables) > 1
    deleted = [DeltaTable(lake.table(table).uri).delete(f"key = {key}") for table in tables]
    return sum(int(row["num_deleted_rows"]) for row in deleted)


def test_an_erased_customer_is_gone_from_flink(
    flink: FlinkOracle, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Import, DELETE in every state, commit, export: values, elements and timers are gone."""
    savepoint = flink.generate("kinds", tmp_path / "flink", keys=KEYS)
    truth: list[Any] = flink.restore("kinds", savepoint, keys=KEYS)
    # one with elements in its list and its map, and two timers that a restored job fires
    customer = next(
        line["key"]
        for line in truth
        if line.get("items") and line.get("scores") and timers(truth, line["key"]) == 2
    )
    lake, target = tmp_path / "lake", tmp_path / "export"
    of_job = ("--lake", str(lake), "--job", "orders", "--snapshot")
    statelake("import", str(savepoint), *of_job, "monday", "--engine", "local")
    held_by = [name for name, keys in keys_by_state(savepoint).items() if customer in keys]
    assert len(held_by) == 10
    assert erase(Catalog(lake), "orders", "monday", customer) >= len(held_by)
    statelake("commit", *of_job, "erased", "--parent", "monday", "--engine", "local")
    capfd.readouterr()
    statelake("export", *of_job, "erased", "--to", str(target), "--parallelism", "3", "--json")
    assert json.loads(capfd.readouterr().out)["path"] == str(target)
    assert all(customer not in keys for keys in keys_by_state(target).values())
    lines = flink.restore("kinds", target, keys=KEYS, parallelism=3, backend="rocksdb")
    others = [line for line in truth if line["key"] != customer]
    assert len(others) == len(truth) - 3
    assert sorted_lines(lines) == sorted_lines([*others, {"key": customer} | NOTHING])


def test_flink_restores_every_snapshot_that_a_customer_was_erased_from(
    flink: FlinkOracle, tmp_path: Path
) -> None:
    """One command for two snapshots: each is restored without them, and with everyone else."""
    savepoint = flink.generate("kinds", tmp_path / "flink", keys=KEYS)
    truth: list[Any] = flink.restore("kinds", savepoint, keys=KEYS)
    customer = next(line["key"] for line in truth if timers(truth, line["key"]) == 2)
    lake = tmp_path / "lake"
    at = ("--lake", str(lake))
    statelake("import", str(savepoint), *at, "--job", "orders", "--snapshot", "monday")
    statement = "DELETE FROM kinds.name WHERE key_group = 1"
    statelake("sql", *at, "--job", "orders", "--edit", "monday", "--as", "edited", statement)
    asked = ("--request", "gdpr-4711", f"--key={customer}")
    statelake("erase", *at, *asked, "--carried", "keep", "--yes")
    statelake("audit", "erase", *at, *asked)
    others = [line for line in truth if line["key"] != customer]
    for name in ("monday", "edited"):
        target = tmp_path / name
        statelake("export", *at, "--job", "orders", "--snapshot", name, "--to", str(target))
        assert all(customer not in keys for keys in keys_by_state(target).values())
    lines = flink.restore("kinds", tmp_path / "monday", keys=KEYS, backend="rocksdb")
    assert sorted_lines(lines) == sorted_lines([*others, {"key": customer} | NOTHING])
    edited = flink.restore("kinds", tmp_path / "edited", keys=KEYS)
    assert len(edited) == len(lines)


def keys_by_state(savepoint: Path) -> dict[str, set[int]]:
    """Whose entries each state has, timers of processing time too, which do not fire in a test."""
    operator = open_snapshot(savepoint).operator("kinds")
    return {
        keyed_state.name: set(operator.state(keyed_state.name).to_arrow()["key"].to_pylist())
        for keyed_state in operator.keyed_states
    }


def timers(held: list[Any], key: int) -> int:
    """How many timers of a key fired."""
    return sum(line["key"] == key and "timer" in line for line in held)
