"""Ids of operators without uids: those of jobs that real Flink ran without their plans."""

from __future__ import annotations

import json
import lzma
from typing import Any

import pytest

from statelake.state_core.plans.plan import Plan, parse_plan
from statelake.state_core.plans.topology import Shape, find_shape, operator_ids_of
from tests.integration.flink.sql_plans import TOPOLOGIES

CASES = [json.loads(line) for line in lzma.decompress(TOPOLOGIES.read_bytes()).splitlines()]


def plan_of(case: dict[str, Any]) -> Plan:
    """The plan of a case."""
    return parse_plan(json.dumps(case["plan"]), "plan")


@pytest.mark.parametrize("case", CASES)
def test_the_ids_of_a_job_follow_from_its_plan(case: dict[str, Any]) -> None:
    """All of them, once it is known how many operators a connector has: two for each here."""
    shape = find_shape(plan_of(case), (), case["ids"])
    assert shape is not None
    assert set(shape.counts.values()) == {2}
    assert sorted(operator_ids_of(plan_of(case), shape).values()) == case["ids"]


def test_ids_of_another_job_fit_no_shape() -> None:
    """If an operator has state whose id is not of the job, or whose node keeps none."""
    for case in CASES:
        plan = plan_of(case)
        assert find_shape(plan, ["0" * 32], case["ids"]) is None
        shape = find_shape(plan, (), case["ids"])
        assert shape is not None
        ids = operator_ids_of(plan, shape)
        first, calc = ids[1, "source-0"], next(at for at in ids if at[1] == "calc")
        assert find_shape(plan, [first], case["ids"]) == shape
        assert find_shape(plan, [first], case["ids"], keyed=[first]) != shape
        assert find_shape(plan, [ids[calc]], case["ids"]) != shape


def test_a_shape_says_how_many_operators_connectors_have() -> None:
    """Every one has an id of its own."""
    plan = plan_of(CASES[0])
    for count in (1, 2, 3):
        shape = Shape({("table-source-scan", "halves"): count, ("sink", "halves"): 1})
        ids = operator_ids_of(plan, shape)
        assert len(set(ids.values())) == len(ids)
        assert sum(name.startswith("source-") for _, name in ids) == count
