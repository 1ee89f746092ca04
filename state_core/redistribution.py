"""Where state goes when a job runs at another parallelism: pure plans, no data.

Keyed state moves by key group, each to the subtask whose range holds it.

Source: `org.apache.flink.runtime.checkpoint.StateAssignmentOperation`,
`KeyGroupRangeAssignment`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from state_core.key_groups import key_group_ranges

__all__ = ["SubtaskPlan", "plan_key_groups", "skew_of", "spread_evenly"]


@dataclass(frozen=True)
class SubtaskPlan:
    """What one subtask gets.

    Attributes:
        subtask: Its index.
        first: Its first key group.
        last: Its last key group; before the first if it gets none.
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


def plan_key_groups(
    entries: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    parallelism: int,
    before: int | None = None,
) -> list[SubtaskPlan]:
    """Plan how key groups are spread over subtasks.

    Args:
        entries: Entries of each key group; as many as the max parallelism.
        sizes: Their bytes.
        parallelism: The new one.
        before: The parallelism that they come from, if they keep their numbers.

    Raises:
        KeyGroupError: The parallelism is out of range.
    """
    groups = len(entries)
    came_from = np.full(groups, -1, np.int64)
    if before is not None:
        for subtask, one in enumerate(key_group_ranges(groups, before)):
            came_from[one.first : one.last + 1] = subtask
    plans = []
    for subtask, one in enumerate(key_group_ranges(groups, parallelism)):
        inside = slice(one.first, one.last + 1)
        moved = sizes[inside][came_from[inside] != subtask].sum()
        plans.append(
            SubtaskPlan(
                subtask,
                one.first,
                one.last,
                int(entries[inside].sum()),
                int(sizes[inside].sum()),
                int(moved),
            )
        )
    return plans


def skew_of(sizes: npt.ArrayLike) -> float:
    """The largest over the mean: 1 is even, n is all in one of n."""
    values = np.asarray(sizes, np.float64)
    mean = values.mean() if values.size else 0.0
    return float(values.max() / mean) if mean else 1.0


def spread_evenly(totals: npt.NDArray[np.int64], groups: int) -> npt.NDArray[np.int64]:
    """What another number of key groups holds if keys hash evenly: an estimate."""
    whole = int(totals.sum())
    bounds = np.arange(groups + 1, dtype=np.int64) * whole // groups
    return np.diff(bounds)
