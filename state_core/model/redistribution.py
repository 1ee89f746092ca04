"""Redistribution of state to another parallelism: plans, without data.

Keyed state moves by key group, each to the subtask whose range holds it. Operator state moves by
element, in one of three modes:

===================  ================================================================
`SPLIT_DISTRIBUTE`   all subtasks' elements in one row, cut into contiguous parts; those that
                     don't divide go one each to the first subtasks, and the next state (in
                     the order of Java's hash maps) begins where this one ended
`UNION`              every subtask gets everything
`BROADCAST`          every subtask gets one copy: that of old subtask `i % copies`
===================  ================================================================

At an unchanged parallelism split and broadcast state stay where they are, unless some subtasks have
no copy of a broadcast state: then all get one, in addition to one that they may have.

Source: `org.apache.flink.runtime.checkpoint.StateAssignmentOperation`,
`RoundRobinOperatorStateRepartitioner`, `KeyGroupRangeAssignment`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from statelake.state_core.model.handles import DistributionMode
from statelake.state_core.model.key_groups import check_parallelism, key_group_ranges

# as in `java.util.HashMap`
NO_GROUPS: npt.NDArray[np.int64] = np.zeros((3, 0), np.int64)  # as of `held_groups`

FIRST_BUCKETS, LOAD_FACTOR, LONG_CHAIN, TREE_BUCKETS = 16, 0.75, 8, 64


@dataclass(frozen=True)
class SubtaskPlan:
    """The key groups that one subtask gets.

    Attributes:
        subtask: The index of the subtask.
        first: Its first key group.
        last: Its last key group; before the first if it gets none.
        entries: The number of entries in them.
        state_bytes: The bytes of these entries.
        moved_bytes: The part of these bytes that comes from a subtask of another index.
    """

    subtask: int
    first: int
    last: int
    entries: int
    state_bytes: int
    moved_bytes: int

    @property
    def groups_text(self) -> str:
        """Its key groups, as people read them."""
        return f"{self.first}-{self.last}" if self.last >= self.first else "none"


def held_groups(
    entries: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return three rows: the key groups that have entries, how many, and their bytes."""
    (groups,) = np.nonzero(entries | sizes)
    return np.stack([groups, entries[groups], sizes[groups]])


def plan_key_groups(
    totals: npt.NDArray[np.int64],
    groups: int,
    parallelism: int,
    before: int | None = None,
) -> list[SubtaskPlan]:
    """Plan the distribution of key groups over subtasks.

    Args:
        totals: Three rows, as of `held_groups`, ascending: key groups, entries and bytes.
        groups: The number of all key groups, the max parallelism.
        parallelism: The new parallelism.
        before: The old parallelism, if key groups keep their numbers.

    Raises:
        KeyGroupError: The parallelism is out of range.
    """
    ranges = key_group_ranges(groups, parallelism)
    firsts = np.array([range_.first for range_ in ranges])
    lasts = np.array([range_.last for range_ in ranges])
    numbers, entries, sizes = totals
    owners = numbers * parallelism // groups
    moved = sizes
    if before is not None:
        check_parallelism(groups, before)
        moved = np.where(numbers * before // groups != owners, sizes, 0)
    columns = [
        np.concatenate(([0], np.cumsum(column, dtype=np.int64)))
        for column in (entries, sizes, moved)
    ]
    start, behind = np.searchsorted(numbers, firsts), np.searchsorted(numbers, lasts + 1)
    sums = [(column[behind] - column[start]).tolist() for column in columns]
    return list(map(SubtaskPlan, range(parallelism), firsts.tolist(), lasts.tolist(), *sums))


def skew_of(sizes: npt.ArrayLike, count: int | None = None) -> float:
    """Return the largest size over the mean: 1 is even, n means all in one of n.

    Args:
        sizes: The sizes, or those that are not 0.
        count: The number of all sizes.
    """
    values = np.asarray(sizes, np.float64)
    total = values.sum()
    return float(values.max() / (total / (count or values.size))) if total else 1.0


def spread_evenly(totals: npt.NDArray[np.int64], groups: int) -> npt.NDArray[np.int64]:
    """Estimate the content of another number of key groups, assuming that keys hash evenly."""
    total = int(totals.sum())
    bounds = np.arange(groups + 1, dtype=np.int64) * total // groups
    return np.diff(bounds)


@dataclass(frozen=True)
class StateShare:
    """An old subtask's share of one named operator state: its mode, and the number of elements."""

    mode: DistributionMode
    elements: int


@dataclass(frozen=True)
class ElementSlice:
    """The elements from `first` to `last` (excluded) of an old subtask's share of a state."""

    subtask: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first


def plan_operator_state(
    before: Sequence[Mapping[str, StateShare]], parallelism: int
) -> list[dict[str, list[ElementSlice]]]:
    """Plan the subtask of every element of every operator state.

    Args:
        before: The states of each old subtask by name, in the order of its handle in `_metadata`.
        parallelism: The new parallelism.

    Returns:
        For each new subtask and state, slices of old subtasks' shares, in the order of the old
        subtasks. Flink promises no order: it merges files in the order of a hash map.
    """
    names = list(dict.fromkeys(name for subtask in before for name in subtask))
    parts = {
        name: [(index, share[name]) for index, share in enumerate(before) if name in share]
        for name in names
    }
    plan: list[dict[str, list[ElementSlice]]] = [{} for _ in range(parallelism)]
    if parallelism == len(before):
        for name, shares in parts.items():
            _keep(plan, name, shares)
        return plan
    start = 0
    for name in _split_order(before):
        start = _split(plan, name, parts[name], start)
    for name, shares in parts.items():
        mode = shares[0][1].mode
        if mode is DistributionMode.UNION:
            _union(plan, name, shares)
        elif mode is DistributionMode.BROADCAST:
            _broadcast(plan, name, shares)
    return plan


def _whole(share: tuple[int, StateShare]) -> ElementSlice:
    return ElementSlice(share[0], 0, share[1].elements)


def _keep(
    plan: list[dict[str, list[ElementSlice]]], name: str, shares: list[tuple[int, StateShare]]
) -> None:
    """Plan an unchanged parallelism: only union state and incomplete broadcast state move."""
    mode = shares[0][1].mode
    if mode is DistributionMode.UNION:
        _union(plan, name, shares)
        return
    partly = mode is DistributionMode.BROADCAST and len(shares) < len(plan)
    if partly:
        _broadcast(plan, name, shares)
    for share in shares:
        mine, given = _whole(share), plan[share[0]].get(name, [])
        # a subtask with a copy keeps it in addition to its new one
        others = [other for other in given if other.subtask != mine.subtask]
        plan[share[0]][name] = sorted([mine, *others], key=lambda part: part.subtask)


def _union(
    plan: list[dict[str, list[ElementSlice]]], name: str, shares: list[tuple[int, StateShare]]
) -> None:
    everything = [_whole(share) for share in shares]  # shared by thousands of subtasks
    for subtask in plan:
        subtask[name] = everything


def _broadcast(
    plan: list[dict[str, list[ElementSlice]]], name: str, shares: list[tuple[int, StateShare]]
) -> None:
    for index, subtask in enumerate(plan):
        subtask[name] = [_whole(shares[index % len(shares)])]


def _split(
    plan: list[dict[str, list[ElementSlice]]],
    name: str,
    shares: list[tuple[int, StateShare]],
    start: int,
) -> int:
    """Cut one state's elements into contiguous parts, and return where the next state starts."""
    count = len(plan)
    base, odd = divmod(sum(part.elements for _, part in shares), count)
    sources = [(index, part.elements) for index, part in shares]
    at = offset = 0
    for step in range(count):
        share = base + (step < odd)
        slices: list[ElementSlice] = []
        while share > 0:
            subtask, elements = sources[at]
            more = min(share, elements - offset)
            if more:
                slices.append(ElementSlice(subtask, offset, offset + more))
            share -= more
            offset += more
            if offset == elements:
                at, offset = at + 1, 0
        plan[(step + start) % count][name] = slices
    return (start + odd) % count


def _split_order(before: Sequence[Mapping[str, StateShare]]) -> list[str]:
    """Return split states in the order in which Flink takes them: that of its hash maps.

    The names of a handle are put into one map, made for their number, and then, handle by handle,
    grouped in another. Buckets with so many names that Java makes trees of them are not modelled:
    that takes eight names in one of 64 buckets.
    """
    grouped: list[str] = []
    hashes: dict[str, int] = {}
    buckets = FIRST_BUCKETS
    for subtask in before:
        hashes.update((name, _spread(name)) for name in subtask if name not in hashes)
        for name in _handle_order(subtask, hashes):
            if subtask[name].mode is not DistributionMode.SPLIT_DISTRIBUTE:
                continue
            # `computeIfAbsent` grows the table before it looks, and chains at the front
            if len(grouped) > buckets * LOAD_FACTOR:
                buckets *= 2
            if name not in grouped:
                buckets = _grown(buckets, name, grouped, hashes, LONG_CHAIN - 1)
                grouped.insert(0, name)
    return sorted(grouped, key=lambda name: hashes[name] & (buckets - 1))


def _handle_order(names: Iterable[str], hashes: Mapping[str, int]) -> list[str]:
    """Return names in the order of the map in which a handle has them."""
    order = list(names)
    room = max(1, ceil(len(order) / LOAD_FACTOR))
    buckets = 1 << (room - 1).bit_length()
    for index, name in enumerate(order):
        buckets = _grown(buckets, name, order[:index], hashes, LONG_CHAIN)
    return sorted(order, key=lambda name: hashes[name] & (buckets - 1))


def _grown(
    buckets: int, name: str, others: Sequence[str], hashes: Mapping[str, int], longest: int
) -> int:
    """Return the table's size after one more name: a long chain makes a small table grow."""
    if len(others) < longest or buckets >= TREE_BUCKETS:
        return buckets
    mask = buckets - 1
    chain = sum(hashes[other] & mask == hashes[name] & mask for other in others)
    return buckets * 2 if chain >= longest else buckets


def _spread(name: str) -> int:
    """Return `HashMap.hash` of a string."""
    code = 0
    for unit in np.frombuffer(name.encode("utf-16-le", "surrogatepass"), np.uint16).tolist():
        code = (31 * code + unit) & 0xFFFFFFFF
    return code ^ (code >> 16)
