"""Trees of what fields mean: equal ones are one object, and no query makes them large."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from statelake.state_core.errors import DeclarationError
from statelake.state_core.plans import kinds, lineage
from statelake.state_core.plans.around import conditions_passed
from statelake.state_core.plans.kinds import lineage_of
from statelake.state_core.plans.lineage import Relation
from statelake.state_core.plans.matching import match_plans
from statelake.state_core.plans.meanings import (
    MOST_LETTERS,
    Aggregate,
    Call,
    Cast,
    Meaning,
    Series,
    TableColumn,
    conjuncts,
    expression,
    marked,
    phrase,
)
from statelake.state_core.plans.plan import Plan, PlanNode, parse_plan

COLUMN = TableColumn("o", "v")
INT = {"kind": "INPUT_REF", "inputIndex": 0, "type": "INT"}


def call(name: str, *operands: Any, kind: str = "BOOLEAN") -> dict[str, Any]:
    """A call of a function."""
    return {"kind": "CALL", "internalName": f"${name}$1", "operands": operands, "type": kind}


@pytest.mark.parametrize(
    "made",
    [
        lambda: TableColumn("o", "v"),
        lambda: Cast(COLUMN, "BIGINT"),
        lambda: Call("+", (COLUMN, COLUMN), to="INT"),
        lambda: Aggregate("SUM", (COLUMN,), distinct=True),
        lambda: replace(Aggregate("COUNT", (COLUMN,)), function="SUM"),
        lambda: Series((COLUMN, COLUMN), " | "),
        lambda: phrase("{} #{}", COLUMN, 2),
    ],
)
def test_equal_trees_are_one_object(made: Any) -> None:
    """However they are made, and copied: to another process as well."""
    one: Meaning = made()
    assert made() is one
    assert deepcopy(one) is one
    assert pickle.loads(pickle.dumps(one)) is one  # noqa: S301 - its own
    assert made() is not marked(one, "")


def test_the_order_of_operands_means_nothing_where_a_function_commutes() -> None:
    """And something everywhere else."""
    columns = [COLUMN, TableColumn("o", "w")]
    one, other = INT, {**INT, "inputIndex": 1}
    for name, same in (("=", True), ("+", True), ("AND", True), ("-", False), ("<", False)):
        both = [expression(call(name, *each), columns) for each in ((one, other), (other, one))]
        assert (both[0] is both[1]) is same


def test_texts_that_read_alike_are_not_equal() -> None:
    """A column that is named as an expression reads is that column."""
    added = expression(call("UPPER", INT), [COLUMN])
    assert str(added) == "UPPER(o.v)"
    assert added is not TableColumn("UPPER(o", "v)")
    assert TableColumn("a", "b.c") is not TableColumn("a.b", "c")


def test_nested_conditions_are_taken_apart_at_any_depth() -> None:
    """As deep as JSON is read."""
    condition = call("IS NULL", INT)
    for _ in range(2000):
        condition = call("AND", condition, call("IS NOT NULL", INT))
    assert sorted(map(str, conjuncts(condition, [COLUMN]))) == ["IS NOT NULL(o.v)", "IS NULL(o.v)"]


def test_an_expression_that_is_nested_too_deep_is_refused() -> None:
    """Before Python is out of stack."""
    value = INT
    for _ in range(300):
        value = call("NOT", value)
    with pytest.raises(DeclarationError, match="nested more than 200 deep"):
        expression(value, [COLUMN])


def _chain(length: int, function: str) -> Plan:
    """A plan of calcs in a row, each of which computes twice with what the one before emits."""
    row = "ROW<`v` INT>"
    table = {"table": {"identifier": "`c`.`d`.`o`"}}
    nodes: list[Any] = [
        {"id": 0, "type": "stream-exec-table-source-scan_2", "scanTableSource": table,
         "outputType": row}
    ]  # fmt: skip
    nodes += [
        {"id": each, "type": "stream-exec-calc_1", "outputType": row, "inputProperties": [{}],
         "projection": [call(function, INT, INT, kind="INT")]}
        for each in range(1, length)
    ]  # fmt: skip
    edges = [{"source": each, "target": each + 1} for each in range(length - 1)]
    return parse_plan(json.dumps({"flinkVersion": "2.3", "nodes": nodes, "edges": edges}), "plan")


def test_conditions_that_would_fill_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node has those of all before it: their number grows by the square of a plan's bytes."""
    plan = _chain(60, "+")
    for number, node in plan.nodes.items():
        if number:
            literal = {"kind": "LITERAL", "value": number, "type": "INT"}
            assert isinstance(node.spec, dict)
            node.spec["condition"] = call(">", INT, literal)
    sink = {"dynamicTableSink": {"table": {"identifier": "`c`.`d`.`s`"}}}
    last = replace(plan.nodes[59], kind="sink", spec=sink)
    plan = replace(plan, nodes={**plan.nodes, 59: last})
    relations = lineage_of(plan)
    assert len(relations[59].filters) == 58
    monkeypatch.setattr(kinds, "MOST_CONDITIONS", 1000)
    with pytest.raises(DeclarationError, match="more than 1,000 conditions"):
        lineage_of(plan)
    with pytest.raises(DeclarationError, match="more than 1,000 conditions"):
        conditions_passed(plan, relations)


def _doubled(joins: int, kind: str, more: int = 0) -> Plan:
    """A plan of joins in a row, each of the one before with itself, and of a union above them."""
    row, table = "ROW<`v` INT>", {"table": {"identifier": "`c`.`d`.`o`"}}
    nodes: list[Any] = [
        {"id": 0, "type": "stream-exec-table-source-scan_2", "scanTableSource": table,
         "outputType": row}
    ]  # fmt: skip
    nodes += [
        {"id": each, "type": "stream-exec-join_1", "outputType": row, "inputProperties": [{}, {}],
         "joinSpec": {"joinType": kind, "leftKeys": [0], "rightKeys": [0]}}
        for each in range(1, joins + 1)
    ]  # fmt: skip
    edges = [{"source": each, "target": each + 1} for each in range(joins) for _ in "lr"]
    if more:
        nodes.append({"id": joins + 1, "type": "stream-exec-union_1", "outputType": row})
        edges += [{"source": joins, "target": joins + 1}] * more
    return parse_plan(json.dumps({"flinkVersion": "2.3", "nodes": nodes, "edges": edges}), "plan")


def test_a_join_of_other_fields_than_it_reads_is_refused() -> None:
    """As each of them would double its fields, whatever its own type says."""
    with pytest.raises(DeclarationError, match="other fields than its inputs have"):
        lineage_of(_doubled(40, "INNER"))


def test_tables_are_counted_before_they_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """An edge of few bytes repeats all tables of a node."""
    monkeypatch.setattr(kinds, "MOST_CONDITIONS", 1000)
    assert len(lineage_of(_doubled(8, "SEMI"))[8].tables) == 256
    united = []

    def unite(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
        united.append(node.id)
        return lineage.united(node, inputs)

    kind = replace(kinds.KINDS["union"], emits=unite)
    monkeypatch.setattr(kinds, "KINDS", {**kinds.KINDS, "union": kind})
    with pytest.raises(DeclarationError, match="more than 1,000 conditions"):
        lineage_of(_doubled(8, "SEMI", 10))
    assert not united


def test_what_a_query_repeats_is_there_once() -> None:
    """A text of it would have as many letters as there are atoms; nor is it nested too deep."""
    plan = _chain(1200, "+")
    relations = lineage_of(plan)
    last: Relation = relations[1199]
    assert len(last.fields[0].text) == MOST_LETTERS
    assert last.fields == lineage_of(_chain(1200, "+"))[1199].fields
    assert last.fields != lineage_of(_chain(1200, "*"))[1199].fields
    assert {each.fate.rank for each in match_plans(plan, _chain(1200, "+")).operators} == {0}
