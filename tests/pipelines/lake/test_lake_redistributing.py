"""Operator state for another parallelism: what each subtask gets is what Flink gives it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines.lake.catalog import Lake
from pipelines.lake.exporting import export_snapshot
from pipelines.lake.importing import import_snapshot
from state_core import open_snapshot
from state_core.non_keyed import NonKeyedState
from state_core.snapshot import Snapshot
from tests.golden_cases import GoldenCase, golden_cases

UIDS = ("opstate", "rules")
CASES = [one for one in golden_cases("operator") if (one.folder / "expected-at-p1.jsonl").exists()]
PARALLELISMS = (1, 2, 3, 4, 5, 7)


def exported(golden: GoldenCase, to: Path, **options: Any) -> Snapshot:
    """The case, through a lake, as a savepoint."""
    lake = Lake(to / "lake")
    import_snapshot(lake, os.fspath(golden.snapshot), "rules", snapshot_id="s", uids=UIDS)
    export_snapshot(lake, "rules", "s", to / "savepoint", **options)
    return open_snapshot(to / "savepoint", uids=UIDS)


def state_of(snapshot: Snapshot, name: str) -> NonKeyedState:
    """The state of that name, whose operator it is."""
    (found,) = (
        state
        for operator in snapshot.operators
        for state in operator.operator_states
        if state.name == name
    )
    return found


def plain(value: Any) -> Any:
    """A value as `expected.jsonl` has it: tuples are lists."""
    return [value["f0"], value["f1"]] if isinstance(value, dict) else value


def by_subtask(state: NonKeyedState) -> dict[int, list[Any]]:
    """The elements of each subtask that has some."""
    found: dict[int, list[Any]] = {}
    for row in state.to_arrow().to_pylist():
        found.setdefault(row["subtask"], []).append(plain(row["value"]))
    return found


def copies(state: NonKeyedState) -> Iterator[dict[str, Any]]:
    """Each subtask's copy of a broadcast state."""
    for part in state.parts:
        rows = part.decode().to_pylist()
        yield {row["key"]: row["value"] for row in rows}


@pytest.mark.parametrize("parallelism", PARALLELISMS)
@pytest.mark.parametrize("golden", CASES, ids=lambda one: one.name)
def test_each_subtask_has_what_flink_gives_it(
    golden: GoldenCase, parallelism: int, tmp_path: Path
) -> None:
    """Split state to the element; union state once in all; a broadcast copy for everyone."""
    snapshot = exported(golden, tmp_path, parallelism=parallelism)
    expected = golden.expected(f"expected-at-p{parallelism}.jsonl")
    wanted = {line["subtask"]: line for line in expected if "split" in line}
    assert len(wanted) == parallelism
    for name in ("split", "offsets"):
        held = by_subtask(state_of(snapshot, name))
        for subtask, line in wanted.items():
            assert sorted(held.get(subtask, [])) == sorted(line[name])
    union = by_subtask(state_of(snapshot, "union"))
    united = sorted(one for elements in union.values() for one in elements)
    assert all(united == sorted(line["union"]) for line in wanted.values())
    (rules, *others) = [line["rules"] for line in expected if "rules" in line]
    assert all(one == rules for one in others)
    found = list(copies(state_of(snapshot, "rules")))
    assert len(found) == parallelism
    assert all(one == rules for one in found)


@pytest.mark.parametrize("golden", golden_cases("operator"), ids=lambda one: one.name)
def test_an_unchanged_parallelism_changes_nothing(golden: GoldenCase, tmp_path: Path) -> None:
    """Every subtask has its own elements, in their order, union state too."""
    before, after = open_snapshot(golden.snapshot, uids=UIDS), exported(golden, tmp_path)
    for name in ("split", "offsets", "union"):
        old, new = state_of(before, name), state_of(after, name)
        assert by_subtask(old) == by_subtask(new)
        assert (old.mode, old.value_type, old.schema) == (new.mode, new.value_type, new.schema)
        assert old.meta_info == new.meta_info
    assert list(copies(state_of(before, "rules"))) == list(copies(state_of(after, "rules")))
    assert state_of(after, "rules").disagreeing() == []


@pytest.mark.parametrize("compression", ["snappy", "none"])
@pytest.mark.parametrize(("version", "written"), [(None, 6), (5, 5)])
@pytest.mark.parametrize("golden", CASES, ids=lambda one: one.name)
def test_versions_and_compression(
    golden: GoldenCase, version: int | None, written: int, compression: str, tmp_path: Path
) -> None:
    """Version 6 is compressed if that is asked for; 5, which has no word for it, never is."""
    snapshot = exported(
        golden, tmp_path, parallelism=5, compression=compression, operator_state_version=version
    )
    with_state = [one for one in snapshot.operators if one.operator_states]
    assert {one.operator_state_version for one in with_state} == {written}
    assert snapshot.compression == (compression if written > 5 else "none")
    original = state_of(open_snapshot(golden.snapshot, uids=UIDS), "split").to_arrow()
    again = state_of(snapshot, "split").to_arrow()
    assert sorted(again["value"].to_pylist()) == sorted(original["value"].to_pylist())
    assert isinstance(again, pa.Table)
