"""The plan of a rescale: which key groups go to which subtask, and how evenly. No data is touched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.lake.records import OperatorRecord, SnapshotRecord
from state_core.key_groups import key_group_ranges

__all__ = ["OperatorPlan", "SubtaskPlan", "plan_rescale"]


@dataclass(frozen=True)
class SubtaskPlan:
    """What one subtask gets.

    Attributes:
        subtask: Its index.
        first: Its first key group.
        last: Its last key group.
        entries: In them.
        state_bytes: In them.
        moved_bytes: Of these, how many come from a subtask of another index.
    """

    subtask: int
    first: int
    last: int
    entries: int
    state_bytes: int
    moved_bytes: int


@dataclass(frozen=True)
class OperatorPlan:
    """What becomes of one operator.

    Attributes:
        operator: Its uid or id.
        old: Its parallelism and max parallelism.
        new: The same, afterwards.
        estimated: Whether sizes are estimates: with another max parallelism keys spread anew, and
            only reading them would tell how.
        skew: The largest subtask's bytes over the mean; 1 is even.
        subtasks: In order.
    """

    operator: str
    old: tuple[int, int]
    new: tuple[int, int]
    estimated: bool
    skew: float
    subtasks: list[SubtaskPlan]


def plan_rescale(
    record: SnapshotRecord, parallelism: int, max_parallelism: int | None = None
) -> list[OperatorPlan]:
    """Plan a rescale of every operator with keyed state.

    Raises:
        KeyGroupError: The parallelism is out of range.
    """
    return [_plan(one, parallelism, max_parallelism) for one in record.operators]


def _plan(operator: OperatorRecord, parallelism: int, max_parallelism: int | None) -> OperatorPlan:
    groups = max_parallelism or operator.max_parallelism
    ranges = key_group_ranges(groups, parallelism)
    entries, sizes = group_totals(operator)
    estimated = groups != operator.max_parallelism
    if estimated:
        entries, sizes = (_spread(one, groups) for one in (entries, sizes))
    before = np.zeros(groups, np.int64) - 1
    if not estimated:
        for subtask, one in enumerate(key_group_ranges(groups, operator.parallelism)):
            before[one.first : one.last + 1] = subtask
    subtasks = []
    for subtask, one in enumerate(ranges):
        inside = slice(one.first, one.last + 1)
        moved = sizes[inside][before[inside] != subtask].sum()
        subtasks.append(
            SubtaskPlan(
                subtask, one.first, one.last, int(entries[inside].sum()),
                int(sizes[inside].sum()), int(moved),
            )  # fmt: skip
        )
    total = sum(one.state_bytes for one in subtasks)
    largest = max(one.state_bytes for one in subtasks)
    skew = largest * len(subtasks) / total if total else 1.0
    old = (operator.parallelism, operator.max_parallelism)
    return OperatorPlan(operator.label, old, (parallelism, groups), estimated, skew, subtasks)


def group_totals(
    operator: OperatorRecord,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Entries and bytes of each key group, over all states."""
    entries = np.zeros(operator.max_parallelism, np.int64)
    sizes = np.zeros(operator.max_parallelism, np.int64)
    for state in operator.states:
        groups = [one.key_group for one in state.key_groups]
        np.add.at(entries, groups, [one.entries for one in state.key_groups])
        np.add.at(sizes, groups, [one.state_bytes for one in state.key_groups])
    return entries, sizes


def _spread(totals: npt.NDArray[np.int64], groups: int) -> npt.NDArray[np.int64]:
    """What other key groups hold on average if every key's hash is even."""
    whole = int(totals.sum())
    bounds = np.arange(groups + 1, dtype=np.int64) * whole // groups
    return np.diff(bounds)
