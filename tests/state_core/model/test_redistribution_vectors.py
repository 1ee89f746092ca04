"""Redistribution against Flink's own repartitioner, case by case, and what holds of any plan."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from itertools import chain, repeat
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import KeyGroupError
from statelake.state_core.model.handles import DistributionMode
from statelake.state_core.model.key_groups import subtask_of
from statelake.state_core.model.redistribution import (
    NO_GROUPS,
    ElementSlice,
    StateShare,
    held_groups,
    plan_key_groups,
    plan_operator_state,
    skew_of,
    spread_evenly,
)
from tests.support.savepoints.golden_cases import GOLDEN

Case = dict[str, Any]
Plan = list[dict[str, list[ElementSlice]]]
Before = list[dict[str, StateShare]]

MODES = {mode.name[0]: mode for mode in DistributionMode}
SPLIT, UNION, BROADCAST = (
    DistributionMode.SPLIT_DISTRIBUTE,
    DistributionMode.UNION,
    DistributionMode.BROADCAST,
)
LARGEST = 12


def golden() -> list[Case]:
    """What Flink said; `SplitVectors.java` tells how a line is read."""
    text = lzma.decompress((GOLDEN / "vectors" / "split.jsonl.xz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def modes_of(before: Before) -> dict[str, DistributionMode]:
    """The mode of each state."""
    return {name: part.mode for subtask in before for name, part in subtask.items()}


def before_of(case: Case) -> Before:
    """What the old subtasks held."""
    return [
        {
            name: StateShare(MODES[held[0]], int(held[1:]))
            for name, _, held in (state.partition("=") for state in subtask.split())
        }
        for subtask in case["from"]
    ]


def as_lines(plan: Plan) -> list[str]:
    """A plan as the golden lines have it: slices that have elements, and repetitions as `=`."""
    lines: list[str] = []
    shown: list[str] = []
    for subtask in plan:
        states = {
            name: ",".join(
                f"{slice_.subtask}:{slice_.first}-{slice_.last}" for slice_ in slices if len(slice_)
            )
            for name, slices in subtask.items()
        }
        line = " ".join(f"{name}={states[name]}" for name in sorted(states) if states[name])
        shown.append("=" if lines and lines[-1] == line else line)
        lines.append(line)
    return shown


def test_there_are_cases_of_every_kind() -> None:
    """Over five thousand: every parallelism up to 12 both ways, all modes, gaps, empty lists."""
    cases = golden()
    assert len(cases) > 5000
    sizes = {(len(case["from"]), case["to"]) for case in cases}
    assert {old for old, _ in sizes} == {new for _, new in sizes} == set(range(1, LARGEST + 1))
    assert sum(old == new for old, new in sizes) == LARGEST
    befores = [before_of(case) for case in cases]
    mixed = [before for before in befores if len(set(modes_of(before).values())) == len(MODES)]
    assert len(mixed) > len(cases) / 10
    assert sum({} in before for before in befores) > len(cases) / 10
    parts = [part for before in befores for subtask in before for part in subtask.values()]
    assert sum(part.elements == 0 for part in parts) > len(parts) / 20
    assert max(len(modes_of(before)) for before in befores) > 2 * LARGEST


def test_every_case_is_flinks_to_the_element() -> None:
    """Which elements of which old subtask each new one gets of each state, and in which order."""
    for number, case in enumerate(golden()):
        plan = plan_operator_state(before_of(case), case["to"])
        assert as_lines(plan) == case["got"], f"line {number + 1}: {case}"


@st.composite
def befores(draw: st.DrawFn) -> Before:
    """Some states of some subtasks: lists of any length, and states that some do not have."""
    names = draw(st.lists(st.text(max_size=4), min_size=1, max_size=5, unique=True))
    modes = {name: draw(st.sampled_from(DistributionMode)) for name in names}
    counts = st.integers(0, 9) | st.integers(0, 1 << 40)
    subtasks = draw(st.lists(st.lists(st.sampled_from(names), unique=True), min_size=1, max_size=9))
    return [
        {name: StateShare(modes[name], draw(counts)) for name in subtask} for subtask in subtasks
    ]


def wholes(before: Before, name: str) -> list[tuple[int, int, int]]:
    """All elements of a state, as slices."""
    return [
        (index, 0, subtask[name].elements)
        for index, subtask in enumerate(before)
        if name in subtask and subtask[name].elements
    ]


def slices_of(subtask: dict[str, list[ElementSlice]], name: str) -> list[tuple[int, int, int]]:
    """What one new subtask gets of a state."""
    return [(part.subtask, part.first, part.last) for part in subtask.get(name, []) if len(part)]


def joined(slices: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Slices in order, neighbours as one."""
    found: list[tuple[int, int, int]] = []
    for subtask, first, last in sorted(slices):
        if found and found[-1][0] == subtask and found[-1][2] == first:
            found.append((subtask, found.pop()[1], last))
        else:
            found.append((subtask, first, last))
    return found


@given(befores(), st.integers(1, LARGEST))
def test_split_state_is_dealt_out_once_and_evenly(before: Before, parallelism: int) -> None:
    """Nothing is lost or given twice; two subtasks differ by one element at most."""
    plan = plan_operator_state(before, parallelism)
    assert len(plan) == parallelism
    for name in [name for name, mode in modes_of(before).items() if mode is SPLIT]:
        slices = [slices_of(subtask, name) for subtask in plan]
        assert joined(list(chain.from_iterable(slices))) == wholes(before, name)
        if parallelism != len(before):
            sizes = [sum(last - first for _, first, last in slice_) for slice_ in slices]
            assert max(sizes) - min(sizes) <= 1


@given(befores(), st.integers(1, LARGEST))
def test_odd_elements_of_all_split_states_are_spread_too(before: Before, parallelism: int) -> None:
    """Each state begins where the last one ended, so over all states the same holds."""
    if parallelism == len(before):
        return
    plan = plan_operator_state(before, parallelism)
    splits = [name for name, mode in modes_of(before).items() if mode is SPLIT]
    sizes = [
        sum(last - first for name in splits for _, first, last in slices_of(subtask, name))
        for subtask in plan
    ]
    assert max(sizes) - min(sizes) <= 1


@given(befores(), st.integers(1, LARGEST))
def test_union_state_goes_whole_to_everyone(before: Before, parallelism: int) -> None:
    """In the order of the old subtasks, whatever the parallelism."""
    plan = plan_operator_state(before, parallelism)
    for name in [name for name, mode in modes_of(before).items() if mode is UNION]:
        assert [slices_of(subtask, name) for subtask in plan] == [
            wholes(before, name)
        ] * parallelism


@given(befores(), st.integers(1, LARGEST))
def test_everyone_gets_a_whole_copy_of_broadcast_state(before: Before, parallelism: int) -> None:
    """One copy, taken in turn; where some had none before, who had one keeps it too."""
    plan = plan_operator_state(before, parallelism)
    for name in [name for name, mode in modes_of(before).items() if mode is BROADCAST]:
        copies = [
            (index, 0, share[name].elements) for index, share in enumerate(before) if name in share
        ]
        given_out = Counter[int]()
        for index, subtask in enumerate(plan):
            got = [(part.subtask, part.first, part.last) for part in subtask[name]]
            own = [copy for copy in copies if parallelism == len(before) and copy[0] == index]
            assert set(own) <= set(got) <= set(copies)
            assert 1 <= len(got) <= 1 + len(own)
            given_out.update(copy[0] for copy in got if copy not in own)
        assert max(given_out.values(), default=0) <= -(-parallelism // len(copies))


@given(befores())
def test_an_unchanged_parallelism_leaves_split_state_where_it_is(before: Before) -> None:
    """Not even what is uneven moves."""
    plan = plan_operator_state(before, len(before))
    for name in [name for name, mode in modes_of(before).items() if mode is SPLIT]:
        for index, subtask in enumerate(plan):
            held = before[index].get(name, StateShare(SPLIT, 0)).elements
            assert slices_of(subtask, name) == ([(index, 0, held)] if held else [])


def test_a_plan_does_not_depend_on_how_many_elements_there_are() -> None:
    """Ten quintillion elements are as few slices as ten."""
    before = [{"large": StateShare(SPLIT, 10**18), "all": StateShare(UNION, 10**18)}] * 10
    plan = plan_operator_state(before, 7)
    assert sum(len(subtask["large"]) for subtask in plan) == len(before) + 7 - 1
    assert [len(subtask["all"]) for subtask in plan] == [len(before)] * 7
    assert sum(len(part) for share in plan for part in share["large"]) == 10**19


@st.composite
def totals(draw: st.DrawFn) -> tuple[Any, Any]:
    """Entries and bytes of each key group."""
    groups = draw(st.integers(1, 300))
    numbers = st.lists(st.integers(0, 1 << 40), min_size=groups, max_size=groups)
    return np.array(draw(numbers), np.int64), np.array(draw(numbers), np.int64)


@given(totals(), st.data())
def test_every_key_group_goes_to_the_subtask_that_owns_it(
    held: tuple[Any, Any], data: st.DataObject
) -> None:
    """Ranges without gaps, entries and bytes in full; what stays is what both ranges share."""
    entries, sizes = held
    groups = len(entries)
    old, new = (data.draw(st.integers(1, groups)) for _ in range(2))
    held = held_groups(entries, sizes)
    plan = plan_key_groups(held, groups, new, old)
    owners = [subtask.subtask for subtask in plan for _ in range(subtask.first, subtask.last + 1)]
    assert owners == [subtask_of(group, groups, new) for group in range(groups)]
    assert [subtask.entries for subtask in plan] == [
        int(entries[subtask.first : subtask.last + 1].sum()) for subtask in plan
    ]
    assert sum(subtask.state_bytes for subtask in plan) == int(sizes.sum())
    stayed = sum(
        int(size)
        for group, size in enumerate(sizes)
        if subtask_of(group, groups, old) == owners[group]
    )
    assert sum(subtask.moved_bytes for subtask in plan) == int(sizes.sum()) - stayed
    assert old != new or stayed == int(sizes.sum())
    assert sum(
        plan_key_group.moved_bytes for plan_key_group in plan_key_groups(held, groups, new)
    ) == int(sizes.sum())


def test_a_parallelism_beyond_the_key_groups_is_refused() -> None:
    """As in Flink: a subtask without a key group can't be."""
    assert len(plan_key_groups(NO_GROUPS, 8, 8)) == 8
    for parallelism in (0, 9):
        with pytest.raises(KeyGroupError):
            plan_key_groups(NO_GROUPS, 8, parallelism)


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=50), st.integers(1, 200))
def test_an_estimate_keeps_the_total_and_is_even(held: list[int], groups: int) -> None:
    """For another number of key groups: the same sum, no two differing by more than one."""
    spread = spread_evenly(np.array(held, np.int64), groups)
    assert len(spread) == groups
    assert int(spread.sum()) == sum(held)
    assert int(spread.max() - spread.min()) <= 1


def test_skew() -> None:
    """One is even, n is all in one of n; nothing at all is even."""
    assert skew_of(list(repeat(7, 5))) == 1
    assert skew_of([0, 0, 0, 12]) == pytest.approx(4)
    assert skew_of([]) == skew_of([0, 0]) == 1
