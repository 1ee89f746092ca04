"""The plan of a rescale: Flink's ranges, nothing lost, and what an export then really does."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.redistributing import plan_elements
from statelake.pipelines.lake.export.rescaling import OperatorPlan, plan_rescale
from statelake.pipelines.lake.tables.describing import describe_recorded
from statelake.pipelines.lake.tables.records import (
    KeyGroupRecord,
    OperatorRecord,
    OperatorStateRecord,
    SnapshotRecord,
    StateRecord,
    SubtaskRecord,
)
from statelake.state_core.errors import KeyGroupError
from statelake.state_core.model.measure import measure_operator
from tests.support.lakes import WINDOWS, exported, files_of, import_as


def snapshot(
    groups: dict[int, tuple[int, int]], parallelism: int, max_parallelism: int
) -> SnapshotRecord:
    """A snapshot of one operator of two states; in each a key group has so many entries, bytes."""
    held = [KeyGroupRecord(group, *numbers) for group, numbers in groups.items()]
    states = [
        StateRecord(name, "value", name, "", "", "", False, b"", key_groups=held) for name in "ab"
    ]
    operator = OperatorRecord("id", "uid", "", parallelism, max_parallelism, "String", b"", states)
    now = datetime.now(timezone.utc)
    return SnapshotRecord(
        "job", "s", "", "import", "savepoint", "canonical", 6, 1, now, now, "", "", "none", "",
        0, 0, 0, b"", [], [operator],
    )  # fmt: skip


@st.composite
def snapshots(draw: st.DrawFn) -> SnapshotRecord:
    """Any spread over any number of key groups."""
    top = draw(st.integers(1, 300))
    numbers = st.tuples(st.integers(1, 1000), st.integers(1, 10**9))
    groups = draw(st.dictionaries(st.integers(0, top - 1), numbers, max_size=30))
    return snapshot(groups, draw(st.integers(1, top)), top)


def plan(record: SnapshotRecord, parallelism: int, top: int | None = None) -> OperatorPlan:
    """The plan of the only operator."""
    (found,) = plan_rescale(record, parallelism, top)
    return found


@given(snapshots(), st.data())
def test_every_key_group_once(record: SnapshotRecord, data: st.DataObject) -> None:
    """Subtasks cover the key groups in order, by the formula that Flink assigns them with."""
    (operator,) = record.operators
    top = operator.max_parallelism
    parallelism = data.draw(st.integers(1, top))
    found = plan(record, parallelism)
    owners = [group * parallelism // top for group in range(top)]
    for subtask in found.subtasks:
        assert [g for g in range(top) if owners[g] == subtask.subtask] == list(
            range(subtask.first, subtask.last + 1)
        )
    described = describe_recorded(operator)
    entries, sizes = described.entries, described.sizes
    for subtask in found.subtasks:
        inside = slice(subtask.first, subtask.last + 1)
        assert (subtask.entries, subtask.state_bytes) == (
            entries[inside].sum(),
            sizes[inside].sum(),
        )
    before = [group * operator.parallelism // top for group in range(top)]
    moved = sum(int(sizes[g]) for g in range(top) if owners[g] != before[g])
    assert sum(subtask.moved_bytes for subtask in found.subtasks) == moved
    heaviest, whole = max(subtask.state_bytes for subtask in found.subtasks), int(sizes.sum())
    assert found.skew == pytest.approx(heaviest * parallelism / whole if whole else 1)
    assert not found.estimated
    assert (found.old, found.new) == ((operator.parallelism, top), (parallelism, top))


@given(snapshots(), st.integers(1, 500), st.data())
def test_another_max_parallelism_is_an_estimate(
    record: SnapshotRecord, top: int, data: st.DataObject
) -> None:
    """Nothing is lost, all is taken to move, and the plan says that it is a guess."""
    parallelism = data.draw(st.integers(1, top))
    found = plan(record, parallelism, top)
    if record.operators[0].max_parallelism == 1:
        assert found.new == (1, 1)  # such an operator stays alone
        return
    (operator,) = record.operators
    described = describe_recorded(operator)
    entries, sizes = described.entries, described.sizes
    assert found.estimated == (top != record.operators[0].max_parallelism)
    assert sum(subtask.entries for subtask in found.subtasks) == entries.sum()
    assert sum(subtask.state_bytes for subtask in found.subtasks) == sizes.sum()
    assert (found.subtasks[0].first, found.subtasks[-1].last) == (0, top - 1)
    if found.estimated:
        assert all(subtask.moved_bytes == subtask.state_bytes for subtask in found.subtasks)
        shares = [
            subtask.state_bytes / (subtask.last - subtask.first + 1) for subtask in found.subtasks
        ]
        assert max(shares) - min(shares) <= 1


def test_skew() -> None:
    """All in one key group is as uneven as it gets; nothing at all is even."""
    assert plan(snapshot({5: (1, 100)}, 2, 128), 4).skew == 4
    assert plan(snapshot({}, 2, 128), 4).skew == 1
    even = dict.fromkeys(range(128), (1, 10))
    assert plan(snapshot(even, 2, 128), 4).skew == 1


def test_the_same_parallelism_moves_nothing() -> None:
    """What stays where it is costs nothing."""
    record = snapshot(dict.fromkeys(range(100), (1, 10)), 3, 100)
    assert [subtask.moved_bytes for subtask in plan(record, 3).subtasks] == [0, 0, 0]


@pytest.mark.parametrize(("parallelism", "top"), [(129, None), (5, 4), (0, None), (2, 40000)])
def test_what_flink_would_refuse(parallelism: int, top: int | None) -> None:
    """A parallelism out of range has no plan."""
    with pytest.raises(KeyGroupError, match="is not between 1 and"):
        plan(snapshot({}, 2, 128), parallelism, top)


@pytest.mark.parametrize("parallelism", [1, 3, 128])
def test_the_export_does_what_the_plan_says(parallelism: int, tmp_path: Path) -> None:
    """Each subtask's file has as many entries and bytes as was planned; no data was touched."""
    lake = Catalog(tmp_path / "lake")
    record = import_as(lake, WINDOWS, "s")
    before = files_of(tmp_path)
    plans = {plan.operator: plan for plan in plan_rescale(record, parallelism)}
    assert files_of(tmp_path) == before
    exported(lake, "s", tmp_path / "out", parallelism=parallelism)
    for operator in open_snapshot(tmp_path / "out").operators:
        if not operator.keyed_states:
            continue
        measured = measure_operator(operator)
        entries = sum(counts for counts, _ in measured.values())
        sizes = sum(held for _, held in measured.values())
        planned = plans.pop(operator.label).subtasks
        for file, subtask_plan in zip(operator.keyed_files, planned, strict=True):
            assert (file.key_groups.first, file.key_groups.last) == (
                subtask_plan.first,
                subtask_plan.last,
            )
            inside = slice(subtask_plan.first, subtask_plan.last + 1)
            assert (subtask_plan.entries, subtask_plan.state_bytes) == (
                entries[inside].sum(),
                sizes[inside].sum(),
            )
    assert plans == {}


@pytest.mark.parametrize("others", [{1: 4}, {0: 1, 1: 3}])
def test_elements_go_where_an_export_writes_them(others: dict[int, int]) -> None:
    """Also of a list without elements in a subtask: after an edit, no record names that one."""
    states = [
        OperatorStateRecord(
            name, "SPLIT_DISTRIBUTE", name, "", "", b"",
            subtasks=[SubtaskRecord(*part, 0) for part in counts.items()],
        )
        for name, counts in (("s3", others), ("s20", {0: 2, 1: 2}))
    ]  # fmt: skip
    operator = OperatorRecord("id", "uid", "", 2, 8, "", b"", operator_states=states)
    record = replace(snapshot({}, 1, 8), operators=[operator])
    written = plan_elements(operator, 3)
    expected = {name: [sum(map(len, each[name])) for each in written] for name in ("s3", "s20")}
    assert plan(record, 3).operator_states == expected
