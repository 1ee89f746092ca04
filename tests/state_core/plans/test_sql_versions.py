"""What a job of one version of Flink keeps in a later one, of the same query."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from functools import cache
from itertools import combinations

import pytest

from statelake.state_core.plans.handling import flink_handling
from statelake.state_core.plans.kinds import KINDS
from statelake.state_core.plans.matches import Fate, PlanMatch, worst
from statelake.state_core.plans.matching import match_plans
from statelake.state_core.plans.plan import Plan, parse_plan
from statelake.state_core.plans.versions import FIRST_ROWS, FIRST_ROWS_SENT, VersionChange
from tests.integration.flink.sql_versions import (
    CHANGED,
    GOLDEN,
    QUERIES,
    VERSIONS,
    is_changed,
    minor_of,
)


@cache
def plans() -> dict[str, dict[str, Plan]]:
    """Return the plans that each version compiled of each query; those that it can."""
    lines = map(json.loads, lzma.decompress(GOLDEN.read_bytes()).splitlines())
    return {
        line["name"]: {
            version: parse_plan(json.dumps(plan), f"{line['name']} in {version}")
            for version, plan in line["plans"].items()
            if plan is not None
        }
        for line in lines
    }


def pairs(name: str) -> list[tuple[str, str, PlanMatch]]:
    """Return each version of a query with each later one, and the match of their plans."""
    found = plans()[name]
    return [(old, new, match_plans(found[old], found[new])) for old, new in combinations(found, 2)]


@pytest.mark.parametrize("name", QUERIES)
def test_the_same_query_keeps_all_state_in_each_later_version(name: str) -> None:
    """Nothing is rewritten, and Flink restores it; but for what a version keeps otherwise."""
    for old, new, match in pairs(name):
        if is_changed(name, old, new):
            continue
        assert all(each.old is not None and each.new is not None for each in match.operators)
        assert {each.worst for each in match.operators} == {Fate.KEEPS}, (old, new)
        assert all(state.same for each in match.operators for state in each.states)
        assert not any(each.wrong for each in flink_handling(match)), (old, new)


@pytest.mark.parametrize(("name", "change"), CHANGED.items(), ids=lambda each: str(each)[:30])
def test_what_a_version_keeps_otherwise_is_refused(name: str, change: VersionChange) -> None:
    """With the version, and what to do instead: in one operator, and all others keep."""
    crossed = [(old, new, match) for old, new, match in pairs(name) if is_changed(name, old, new)]
    assert crossed
    for old, new, match in crossed:
        (refused,) = (each for each in match.operators if each.worst is not Fate.KEEPS)
        if change is FIRST_ROWS:  # which are marked as sent
            assert (refused.fate, refused.why) == (Fate.STARTS_NOW, (FIRST_ROWS_SENT,)), (old, new)
            back = match_plans(match.new, match.old)
            assert worst(each.worst for each in back.operators) is Fate.UNKNOWN
        else:
            assert refused.fate in (Fate.UNKNOWN, Fate.LOST), (old, new)
            assert str(change) in " ".join(refused.why)
        unaided = flink_handling(match)[match.operators.index(refused)]
        assert unaided.wrong or unaided.text.startswith("refuses"), unaided


def test_each_version_compiled_each_query() -> None:
    """But for windows of sessions, which began as a table function in 1.19."""
    missing = {(n, v) for n, found in plans().items() for v in VERSIONS if v not in found}
    assert missing == {("session windows", "1.18.1")}
    assert list(plans()) == list(QUERIES)
    for found in plans().values():
        assert all(plan.flink == minor_of(version) for version, plan in found.items())


def test_all_nodes_with_state_are_in_the_queries() -> None:
    """Of which a rule says what they keep."""
    held = {
        node.kind for found in plans().values() for plan in found.values()
        for node in plan.nodes.values()
    }  # fmt: skip
    assert {name for name, kind in KINDS.items() if kind.keeps} <= held


def test_rows_of_a_lookup_are_told_by_its_key() -> None:
    """What is found by another key, or in another way, is other rows; how it is found is not."""
    plan = plans()["a lookup join"][VERSIONS[-1]]
    lookup = next(each for each in plan.nodes.values() if each.kind == "lookup-join")
    for change, fate in (
        ({"joinType": "LEFT"}, Fate.LOST),
        ({"lookupKeys": {"0": {"type": "FieldRef", "index": 1}}}, Fate.LOST),
        ({"preferCustomShuffle": True}, Fate.KEEPS),
    ):
        nodes = {**plan.nodes, lookup.id: replace(lookup, spec={**lookup.spec, **change})}
        match = match_plans(plan, replace(plan, nodes=nodes))
        assert worst(each.worst for each in match.operators if each.old is not None) is fate
