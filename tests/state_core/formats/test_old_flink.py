"""Savepoints that real Flink 1.8, 1.12 and 1.17 wrote, with either backend, read as any other.

Before 1.13 a savepoint was in the backend's own format; before 1.18 operator state had version 5.
The job is `OldJobs.java` of the integration tests; what its state holds follows from the number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from statelake import open_snapshot
from statelake.state_core.model.handles import DistributionMode
from statelake.state_core.model.snapshot import Operator
from tests.support.savepoints.golden_cases import GOLDEN

OLD = sorted((GOLDEN / "old").iterdir())
KEYS = 60
FAR = 4_000_000_000_000
cases = pytest.mark.parametrize("savepoint", OLD, ids=lambda case: case.name)


def operator(savepoint: Path, uid: str) -> Operator:
    """An operator of the savepoint, by a uid that it holds only as a hash."""
    return open_snapshot(savepoint, uids=["keyed", "lists"]).operator(uid)


def values(savepoint: Path, state: str) -> dict[str, Any]:
    """Each key's value; of a map state, its entries."""
    found: dict[str, Any] = {}
    for row in operator(savepoint, "keyed").state(state).to_arrow().to_pylist():
        if "user_key" in row:
            found.setdefault(row["key"], {})[row["user_key"]] = row["value"]
        else:
            found[row["key"]] = row["value"]
    return found


def test_every_version_is_there() -> None:
    """Three releases, two backends each."""
    assert len(OLD) == 6


@cases
def test_keyed_state(savepoint: Path) -> None:
    """A value, a list and a map for each key, as the job filled them."""
    numbers = range(KEYS)
    assert values(savepoint, "count") == {f"word-{n}": n * 31 - 7 for n in numbers}
    assert values(savepoint, "items") == {
        f"word-{n}": [n * 10 + i for i in range(n % 4)] for n in numbers if n % 4
    }
    assert values(savepoint, "scores") == {
        f"word-{n}": {f"s{i}": n / 8 + i for i in range(n % 4)} for n in numbers if n % 4
    }


@cases
def test_timers(savepoint: Path) -> None:
    """One a key. RocksDB in 1.8 kept them on the heap, as raw state."""
    held = operator(savepoint, "keyed")
    timers = held.state("_timer_state/event_user-timers").to_arrow()
    assert sorted(timers.column("timestamp").cast("int64").to_pylist()) == [
        FAR + number for number in range(KEYS)
    ]


@cases
def test_operator_state(savepoint: Path) -> None:
    """Version 5, a split and a union list."""
    held = operator(savepoint, "lists")
    assert held.operator_state_version == 5
    split, union = held.operator_state("split"), held.operator_state("union")
    assert (split.mode, union.mode) == (DistributionMode.SPLIT_DISTRIBUTE, DistributionMode.UNION)
    assert sorted(split.to_arrow().column("value").to_pylist()) == list(range(KEYS))
    assert union.to_arrow().column("value").to_pylist() == [
        "subtask-0-0", "subtask-1-0", "subtask-1-1", "subtask-1-2",
    ]  # fmt: skip
    assert pc.all(pc.is_null(split.to_arrow().column("raw_value"))).as_py()
