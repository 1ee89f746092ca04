"""Where state goes when a job runs at another parallelism: pure plans, no data.

Keyed state moves by key group, each to the subtask whose range holds it. Operator state moves by
element, in one of three modes:

===================  ================================================================
`SPLIT_DISTRIBUTE`   all subtasks' elements in one row, cut into contiguous parts; what does
                     not divide goes one each to the first subtasks, and the next state (in
                     Java's hash order of names) begins where this one ended
`UNION`              every subtask gets everything
`BROADCAST`          every subtask gets one copy: that of old subtask `i % copies`
===================  ================================================================

At an unchanged parallelism split and broadcast state stay where they are.

Source: `org.apache.flink.runtime.checkpoint.StateAssignmentOperation`,
`RoundRobinOperatorStateRepartitioner`, `KeyGroupRangeAssignment`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from state_core.handles import DistributionMode
from state_core.key_groups import key_group_ranges

__all__ = [
    "ElementSlice",
    "OperatorPart",
    "SubtaskPlan",
    "java_hash_order",
    "plan_key_groups",
    "plan_operator_state",
    "skew_of",
    "spread_evenly",
]

FIRST_TABLE, LOAD_FACTOR = 16, 0.75


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


@dataclass(frozen=True)
class OperatorPart:
    """What one old subtask holds of one named operator state."""

    mode: DistributionMode
    elements: int


@dataclass(frozen=True)
class ElementSlice:
    """Elements `first` to `last` (excluded) of what an old subtask holds of a state."""

    subtask: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first


def plan_operator_state(
    before: Sequence[Mapping[str, OperatorPart]], parallelism: int
) -> list[dict[str, list[ElementSlice]]]:
    """Plan where every element of every operator state goes.

    Args:
        before: Per old subtask, its states by name, in the order of its handle.
        parallelism: The new one.

    Returns:
        Per new subtask and state, slices of what old subtasks hold; in the old subtasks' order,
        while Flink, which merges files in the order of a hash map, promises none between them.
    """
    names = list(dict.fromkeys(name for subtask in before for name in subtask))
    parts = {
        name: [(index, one[name]) for index, one in enumerate(before) if name in one]
        for name in names
    }
    plan: list[dict[str, list[ElementSlice]]] = [{} for _ in range(parallelism)]
    if parallelism == len(before):
        for name, held in parts.items():
            _keep(plan, name, held)
        return plan
    start = 0
    for name in java_hash_order(names):
        held = parts[name]
        mode = held[0][1].mode
        if mode is DistributionMode.SPLIT_DISTRIBUTE:
            start = _split(plan, name, held, start)
        elif mode is DistributionMode.UNION:
            _unite(plan, name, held)
        else:
            _broadcast(plan, name, held)
    return plan


def _whole(held: tuple[int, OperatorPart]) -> ElementSlice:
    return ElementSlice(held[0], 0, held[1].elements)


def _keep(
    plan: list[dict[str, list[ElementSlice]]], name: str, held: list[tuple[int, OperatorPart]]
) -> None:
    """An unchanged parallelism: only union state, and broadcast state that some lack, moves."""
    mode = held[0][1].mode
    if mode is DistributionMode.UNION:
        _unite(plan, name, held)
    elif mode is DistributionMode.BROADCAST and len(held) < len(plan):
        _broadcast(plan, name, held)
    else:
        for one in held:
            plan[one[0]][name] = [_whole(one)]


def _unite(
    plan: list[dict[str, list[ElementSlice]]], name: str, held: list[tuple[int, OperatorPart]]
) -> None:
    everything = [_whole(one) for one in held]
    for subtask in plan:
        subtask[name] = list(everything)


def _broadcast(
    plan: list[dict[str, list[ElementSlice]]], name: str, held: list[tuple[int, OperatorPart]]
) -> None:
    for index, subtask in enumerate(plan):
        subtask[name] = [_whole(held[index % len(held)])]


def _split(
    plan: list[dict[str, list[ElementSlice]]],
    name: str,
    held: list[tuple[int, OperatorPart]],
    start: int,
) -> int:
    """Cut one state's elements into contiguous parts, and say where the next one starts."""
    count = len(plan)
    base, odd = divmod(sum(part.elements for _, part in held), count)
    sources = [(index, part.elements) for index, part in held]
    at = offset = 0
    for step in range(count):
        wanted = base + (step < odd)
        taken: list[ElementSlice] = []
        while wanted > 0:
            subtask, elements = sources[at]
            more = min(wanted, elements - offset)
            if more:
                taken.append(ElementSlice(subtask, offset, offset + more))
            wanted -= more
            offset += more
            if offset == elements:
                at, offset = at + 1, 0
        plan[(step + start) % count][name] = taken
    return (start + odd) % count


def java_hash_order(names: Iterable[str]) -> list[str]:
    """Names in the order in which `java.util.HashMap` gives back keys inserted in this order.

    Chains of eight or more in one bucket, which Java turns into trees, are not modelled.
    """
    inserted = list(dict.fromkeys(names))
    size = FIRST_TABLE
    while len(inserted) > size * LOAD_FACTOR:
        size *= 2
    return sorted(inserted, key=lambda name: _spread(name) & (size - 1))


def _spread(name: str) -> int:
    """`HashMap.hash` of a string."""
    code = 0
    for unit in np.frombuffer(name.encode("utf-16-le", "surrogatepass"), np.uint16).tolist():
        code = (31 * code + unit) & 0xFFFFFFFF
    return code ^ (code >> 16)
