"""What becomes of state by each edit of a query, beside what one vendor's table says."""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from statelake.state_core.errors import StateError
from statelake.state_core.plans.handling import flink_handling
from statelake.state_core.plans.kinds import lineage_of, states_of
from statelake.state_core.plans.lineage import widens
from statelake.state_core.plans.matches import Fate, PlanMatch, worst
from statelake.state_core.plans.matching import match_plans, same_bytes, with_held
from statelake.state_core.plans.meanings import Call, Cast, TableColumn, bare, marked, phrase
from statelake.state_core.plans.plan import Plan, parse_plan
from statelake.state_core.plans.states import ValuePlace
from statelake.state_core.serializers.sql.types.logical_type_parser import parse_logical_type
from tests.integration.flink.sql_plans import (
    ALIKE,
    EDITS,
    FOLD_EDITS,
    FOLD_PLANS,
    GOLDEN,
    KEY_EDITS,
    KEY_PLANS,
    SINK_EDITS,
    SINK_PLANS,
    TWO_SCANS,
    Edit,
)
from tests.integration.flink.whole_nodes import GOLDEN as WHOLE_PLANS
from tests.integration.flink.whole_nodes import NODES, WholeNode
from tests.support.savepoints.sql_jobs import grouping_sets_plan

ALL = (*EDITS, *KEY_EDITS, *FOLD_EDITS, *SINK_EDITS)


@cache
def plans() -> dict[str, list[Any]]:
    """The plans of each edit, which real Flink compiled."""
    files = [
        lzma.decompress(file.read_bytes()).splitlines()
        for file in (GOLDEN, KEY_PLANS, FOLD_PLANS, SINK_PLANS)
    ]
    return {line["name"]: line["plans"] for file in files for line in map(json.loads, file)}


def matched(edit: Edit) -> PlanMatch:
    """The match of the plans of an edit."""
    old, new = (parse_plan(json.dumps(plan), edit.name) for plan in plans()[edit.name])
    return match_plans(old, new)


def worst_of(match: PlanMatch) -> Fate:
    """The worst fate of the operators that the old job has."""
    return worst(each.worst for each in match.operators if each.old is not None)


@pytest.mark.parametrize("edit", ALL, ids=lambda edit: edit.name)
def test_each_edit_has_its_verdict(edit: Edit) -> None:
    """The worst of all operators that the old job has; and what Flink does in silence."""
    match = matched(edit)
    assert worst_of(match) is Fate(edit.ours)
    wrong = [each.text for each in flink_handling(match) if each.wrong]
    if edit.flink:
        assert any(says.startswith(edit.flink) for says in wrong), wrong
    else:
        assert wrong == []


@pytest.mark.parametrize("edit", [*ALL, *ALIKE], ids=lambda edit: edit.name)
def test_a_plan_goes_on_from_itself(edit: Edit) -> None:
    """Nothing is lost, nothing is rewritten, and Flink restores it."""
    for plan in plans()[edit.name]:
        parsed = parse_plan(json.dumps(plan), edit.name)
        match = match_plans(parsed, parsed)
        assert all(each.old is each.new or each.old == each.new for each in match.operators)
        assert all(each.worst is Fate.KEEPS for each in match.operators)
        assert all(state.same for each in match.operators for state in each.states)
        assert not any(each.wrong for each in flink_handling(match))


@pytest.mark.parametrize("edit", ALIKE, ids=lambda edit: edit.name)
def test_what_looks_alike_is_told_apart(edit: Edit) -> None:
    """Also where both texts name the same columns of the same tables."""
    assert worst_of(matched(edit)) is Fate(edit.ours)


def test_a_source_goes_on_where_its_rows_went() -> None:
    """One may have read more than the other: by their tables alone they are alike."""
    (edit,) = (each for each in ALIKE if each.name == TWO_SCANS)
    pairs = {
        each.old.node.id: each.new.node.id
        for each in matched(edit).operators
        if each.old is not None and each.new is not None
    }
    scans = []
    for plan in plans()[edit.name]:
        nodes = parse_plan(json.dumps(plan), "plan").nodes
        (node,) = (each for each in nodes.values() if each.kind == "group-aggregate")
        while node.inputs:
            node = nodes[node.inputs[0]]
        scans.append(node.id)
    assert scans[0] != scans[1]
    assert pairs[scans[0]] == scans[1]


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("BIGINT", "BIGINT NOT NULL", True),
        ("VARCHAR(10) NOT NULL", "VARCHAR(2147483647)", True),
        ("DECIMAL(9, 2)", "DECIMAL(18, 2)", True),
        ("DECIMAL(19, 2)", "DECIMAL(38, 2)", True),
        ("DECIMAL(18, 2)", "DECIMAL(19, 2)", False),
        ("DECIMAL(18, 2)", "DECIMAL(9, 2)", False),
        ("DECIMAL(9, 2)", "DECIMAL(9, 3)", False),
        ("INT", "BIGINT", False),
        ("CHAR(3)", "CHAR(4)", False),
        ("TIMESTAMP(3)", "TIMESTAMP(6)", False),
    ],
)
def test_types_of_the_same_bytes(old: str, new: str, same: bool) -> None:
    """Whose keys and columns need another serializer alone."""
    assert same_bytes(parse_logical_type(old), parse_logical_type(new)) is same


@pytest.mark.parametrize(
    ("kind", "fate"),
    [
        ("DECIMAL(18, 2)", Fate.KEEPS),
        ("DECIMAL(24, 2) NOT NULL", Fate.KEEPS),
        ("DECIMAL(24, 2)", Fate.UNKNOWN),
        ("DECIMAL(24, 3)", Fate.LOST),
    ],
)
def test_rows_that_are_found_by_null_of_a_long_decimal_are_not_widened(
    kind: str, fate: Fate
) -> None:
    """It has two forms, and rows that are updated are found by their bytes."""
    _, plan = plans()["a column more through a join with a table that changes"]
    texts = [json.dumps(plan).replace("`d` INT", f"`d` {each}") for each in ("DECIMAL(9, 2)", kind)]
    match = match_plans(*(parse_plan(text, "plan") for text in texts))
    (join,) = (each for each in match.operators if each.node.kind == "join")
    (column,) = (each for each in join.column_matches if each.column.column == "d")
    assert column.fate is fate


@pytest.mark.parametrize(
    ("old", "new", "wider"),
    [
        ("TINYINT", "SMALLINT", True),
        ("SMALLINT NOT NULL", "BIGINT", True),
        ("INT", "BIGINT", True),
        ("BIGINT", "INT", False),
        ("BIGINT", "DECIMAL(19, 0)", False),
        ("FLOAT", "DOUBLE", False),
        ("DECIMAL(9, 2)", "DECIMAL(20, 2)", True),
        ("DECIMAL(9, 2)", "DECIMAL(20, 3)", False),
        ("VARCHAR(3)", "VARCHAR(2147483647)", True),
        ("CHAR(3)", "CHAR(4)", False),
        ("TIMESTAMP(3)", "TIMESTAMP(6)", False),
    ],
)
def test_types_of_the_same_values(old: str, new: str, wider: bool) -> None:
    """And more of them: keys and columns of one become those of the other."""
    assert widens(parse_logical_type(old), parse_logical_type(new)) is wider


def test_a_column_that_is_cast_to_a_wider_type_is_that_column() -> None:
    """Also where a join marks it; what reads alike is not."""
    column = TableColumn("o", "a")
    assert bare(Cast(column, "BIGINT")) is column
    wider = marked(Cast(column, "DECIMAL(24, 2)"), " OR NULL BY join LEFT ON o.b = p.b")
    assert str(wider) == "o.a OR NULL BY join LEFT ON o.b = p.b AS DECIMAL(24, 2)"
    assert bare(wider) is marked(column, " OR NULL BY join LEFT ON o.b = p.b")
    others = (
        column,
        Call("CAST", (column,), "BIGINT"),
        phrase("o.a AS BIGINT"),
        TableColumn("o", "a AS BIGINT"),
    )
    for other in others:
        assert bare(other) is other


def test_a_view_of_values_of_another_type_is_lost() -> None:
    """Its state has a serializer of its own, which is not rewritten."""
    _, old = plans()["a distinct aggregate added"]
    new = json.loads(json.dumps(old).replace("`c` VARCHAR", "`c` CHAR"))
    assert new != old
    match = match_plans(*(parse_plan(json.dumps(plan), "plan") for plan in (old, new)))
    lost = [column.why for each in match.operators for column in each.column_matches
            if column.column.view]  # fmt: skip
    assert lost == [
        "its state of its own holds VARCHAR(2147483647), and is to hold CHAR(2147483647)"
    ]


def test_a_sorted_map_of_another_type_is_not_known() -> None:
    """Of a TopN over updated rows."""
    (old, _) = plans()["TopN: another N"]
    old = json.loads(json.dumps(old))
    (rank,) = (node for node in old["nodes"] if "rankStrategy" in node)
    rank["rankStrategy"] = {"type": "Retract"}
    (order,) = rank["orderBy"]["fields"]
    name = re.findall(r"`(\w+)` BIGINT", rank["outputType"])[0]
    new = json.loads(json.dumps(old).replace(f"`{name}` BIGINT", f"`{name}` BIGINT NOT NULL"))
    assert new != old
    match = match_plans(*(parse_plan(json.dumps(plan), "plan") for plan in (old, new)))
    (operator,) = (each for each in match.operators if each.fate is Fate.UNKNOWN)
    assert "counts by sort key" in operator.why[0], order


def ranked(strategy: dict[str, Any], end: int, time: str = "") -> Plan:
    """The plan of a TopN of so many rows, by a number or by a time."""
    plan = json.loads(json.dumps(plans()["TopN: another N"][0]))
    (rank,) = (node for node in plan["nodes"] if "rankStrategy" in node)
    rank["rankStrategy"], rank["rankRange"]["end"] = strategy, end
    read = [node for node in plan["nodes"] if node["outputType"] == rank["outputType"]]
    for node in read if time else ():
        kind = {"type": "TIMESTAMP_WITH_LOCAL_TIME_ZONE", "precision": 3, "kind": time}
        types = {"a": "INT", "b": kind, "c": "VARCHAR(2147483647)"}
        fields = [{"name": name, "fieldType": each} for name, each in types.items()]
        node["outputType"] = {"type": "ROW", "fields": fields}
    return parse_plan(json.dumps(plan), "plan")


@pytest.mark.parametrize(
    ("strategy", "end", "time", "names"),
    [
        ("AppendFast", 1, "", ["Top1-Rank-State"]),
        ("UpdateFast", 1, "", ["Top1-Rank-State"]),
        ("Retract", 1, "", ["data-state", "sorted-map"]),
        ("AppendFast", 2, "", ["data-state-with-append"]),
        ("AppendFast", 1, "ROWTIME", ["Top1-Rank-State"]),
        ("AppendFast", 2, "PROCTIME", ["counterState"]),
        ("UpdateFast", 2, "", ["data-state-with-update"]),
    ],
)
def test_what_a_topn_keeps(strategy: str, end: int, time: str, names: list[str]) -> None:
    """One row, or rows by their order, or, of those that come first, no more than their number."""
    plan = ranked({"type": strategy, "primaryKeys": [0]}, end, time)
    (rank,) = (node for node in plan.nodes.values() if node.kind == "rank")
    assert [state.name for state in states_of(plan, lineage_of(plan))[rank.id].states] == names


def _sorted_by_time(kind: str, columns: str, *, descending: bool = False) -> Plan:
    """The plan of rows in the order of time, and of their first column."""
    time = {"type": "TIMESTAMP_WITH_LOCAL_TIME_ZONE", "precision": 3, "kind": kind}
    fields = [{"name": "ts", "fieldType": time}]
    fields += [{"name": name, "fieldType": "INT"} for name in columns]
    by = [{"index": at, "isAscending": not (at and descending), "nullIsLast": False}
          for at in (0, 1)]  # fmt: skip
    nodes: list[dict[str, Any]] = [
        {"type": "stream-exec-table-source-scan_2",
         "scanTableSource": {"table": {"identifier": "`c`.`d`.`o`"}}},
        {"type": "stream-exec-exchange_1"},
        {"type": "stream-exec-temporal-sort_1", "orderBy": {"fields": by}},
    ]  # fmt: skip
    nodes = [{**node, "id": at, "outputType": {"type": "ROW", "fields": fields}}
             for at, node in enumerate(nodes)]  # fmt: skip
    edges = [{"source": 0, "target": 1}, {"source": 1, "target": 2}]
    return parse_plan(json.dumps({"flinkVersion": "2.3", "nodes": nodes, "edges": edges}), "plan")


@pytest.mark.parametrize("kind", ["ROWTIME", "PROCTIME"])
def test_rows_that_wait_for_their_turn_keep(kind: str) -> None:
    """In a sort by time, also if they get a column; in another order they are lost."""
    old = _sorted_by_time(kind, "ab")
    for new, fate, column in (
        (old, Fate.KEEPS, Fate.KEEPS),
        (_sorted_by_time(kind, "abc"), Fate.KEEPS, Fate.NULL),
        (_sorted_by_time(kind, "ba"), Fate.LOST, Fate.KEEPS),
        (_sorted_by_time(kind, "ab", descending=True), Fate.LOST, Fate.KEEPS),
    ):
        (match,) = (e for e in match_plans(old, new).operators if e.node.kind == "temporal-sort")
        assert match.fate is fate
        assert worst(each.fate for each in match.column_matches) is column
    states = states_of(old, lineage_of(old))[2].states
    by_time = ["dataState", "lastTriggeringTsState"]
    assert [each.name for each in states] == (by_time if kind == "ROWTIME" else ["sortState"])


def test_the_best_row_is_not_kept_as_several_are() -> None:
    """A TopN that was a Top 1 does not go on: its row is in another state."""
    match = match_plans(*(ranked({"type": "AppendFast"}, end) for end in (1, 3)))
    (rank,) = (each for each in match.operators if each.node.kind == "rank")
    assert rank.fate is Fate.UNKNOWN
    assert "holds lists of rows by sort key, and there was nothing like it" in rank.why[1]
    assert flink_handling(match)[match.operators.index(rank)].wrong


def test_what_lookups_by_a_primary_key_found_is_one_row() -> None:
    """Of others it is a list, in a state of another name."""
    kinds = {}
    for _, node, (plan, _, _) in whole_plans():
        if node.kind == "lookup-join" and "rows are taken back" in node.says:
            key = _with_text(plan, '"lookupKeyContainsPrimaryKey": false',
                             '"lookupKeyContainsPrimaryKey": true')  # fmt: skip
            for each in (plan, key):
                found = (n for n in each.nodes.values() if n.spec.get("requireUpsertMaterialize"))
                number = next(node.id for node in found if node.kind == "lookup-join")
                (state,) = states_of(each, lineage_of(each))[number].states
                kinds[state.name] = state.form
    assert kinds == {"values": "list of rows", "unique-value": "row"}


def test_asynchronous_functions_in_a_row_have_expressions_as_others() -> None:
    """Each reads what the one before emits, and no text is longer than its expression."""
    plan = json.loads(json.dumps(plans()["TopN: another N"][0]))
    (rank,) = (node for node in plan["nodes"] if "rankStrategy" in node)
    (edge,) = (each for each in plan["edges"] if each["target"] == rank["id"])
    for number in range(1000, 1020):
        fields = [{"kind": "INPUT_REF", "inputIndex": n, "type": "INT"} for n in range(3)]
        node = {"id": number, "type": "stream-exec-async-calc_1", "projection": fields,
                "inputProperties": [{}], "outputType": rank["outputType"]}  # fmt: skip
        plan["nodes"].insert(-1, node)
        plan["edges"].append({**edge, "target": number})
        edge["source"] = number
    parsed = parse_plan(json.dumps(plan), "plan")
    relations = lineage_of(parsed)
    assert relations[1019].fields == relations[1000].fields
    assert {1000, 1019} < set(states_of(parsed, relations))  # calls that wait for an answer
    other = json.loads(json.dumps(plan))
    (call,) = (node for node in other["nodes"] if node["id"] == 1019)
    call["condition"] = {"kind": "CALL", "internalName": "$IS_NULL$1", "operands": fields[:1]}
    match = with_held(match_plans(parsed, parse_plan(json.dumps(other), "plan")), [1000, 1019])
    fates = {each.node.id: each.fate for each in match.operators if each.node.id >= 1000}
    assert (fates[1000], fates[1019]) == (Fate.KEEPS, Fate.UNKNOWN)


def test_the_least_and_greatest_of_short_texts_are_held_as_strings() -> None:
    """As real Flink holds them, of any length; other types stay as they are."""
    (old, _) = plans()["an alias"]
    for given, held in (("VARCHAR(10)", "VARCHAR(2147483647)"), ("CHAR(3)", "VARCHAR(2147483647)"),
                        ("DECIMAL(10, 2)", "DECIMAL(10, 2)")):  # fmt: skip
        changed = json.loads(json.dumps(old))
        (node,) = (each for each in changed["nodes"] if "aggCalls" in each)
        node["aggCalls"][1]["type"] = given
        plan = parse_plan(json.dumps(changed), "plan")
        states = states_of(plan, lineage_of(plan))[node["id"]].states
        kind = states[0].rows[ValuePlace.VALUE][1].type
        assert kind is not None
        assert kind.text == held


@pytest.mark.parametrize(("version", "refused"), [("2.0", True), ("2.1", False), ("2.3", False)])
def test_a_filter_that_an_old_flink_does_not_apply_is_not_computed(
    version: str, refused: bool
) -> None:
    """Of the first column: FLINK-30687. What it goes on to count would be all rows."""
    old, new = (json.loads(json.dumps(plan)) for plan in
                plans()["FILTER added above the last rows of a table"])  # fmt: skip
    for plan in (old, new):
        plan["flinkVersion"] = version
    (node,) = (each for each in new["nodes"] if "aggCalls" in each)
    node["aggCalls"][1]["filterArg"] = 0
    match = match_plans(*(parse_plan(json.dumps(plan), "plan") for plan in (old, new)))
    whys = [column.why for each in match.operators for column in each.column_matches]
    assert any("FLINK-30687" in why for why in whys) is refused


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize(
    ("versions", "filters", "fate"),
    [
        (("1.20", "1.20"), (0, 0), Fate.KEEPS),
        (("1.20", "1.20"), (0, 2), Fate.FILTER),
        (("1.20", "1.20"), (2, 0), Fate.FILTER),
        (("1.20", "2.3"), (0, 0), Fate.FILTER),
        (("1.20", "2.3"), (2, 0), Fate.KEEPS),
        (("2.1", "2.3"), (0, 2), Fate.KEEPS),
    ],
)
def test_a_filter_that_an_old_flink_does_not_apply_is_another_one(
    versions: tuple[str, str], filters: tuple[int, int], fate: Fate, *, distinct: bool
) -> None:
    """Of the first column: FLINK-30687. Its columns were counted of all rows, or would be."""
    (given, _) = plans()["an aggregate removed"]
    made = []
    for version, at in zip(versions, filters, strict=True):
        plan = json.loads(json.dumps(given))
        plan["flinkVersion"] = version
        (node,) = (each for each in plan["nodes"] if "aggCalls" in each)
        calc = next(each for each in plan["nodes"] if each["id"] == node["id"] - 2)
        columns = calc["projection"][:2]
        only = {"kind": "CALL", "internalName": "$IS TRUE$1", "type": "BOOLEAN NOT NULL"}
        columns.insert(at, {**only, "operands": [calc["projection"][2]]})
        calc["projection"] = columns
        names = ["`a` INT", "`b` BIGINT"]
        names.insert(at, "`m` BOOLEAN NOT NULL")
        for each in plan["nodes"][node["id"] - 3 : node["id"] - 1]:
            each["outputType"] = f"ROW<{', '.join(names)}>"
        node["grouping"] = [int(at == 0)]
        node["aggCalls"] = [
            {**node["aggCalls"][0], "argList": [1 + (at == 0)], "filterArg": at,
             "distinct": distinct}
        ]  # fmt: skip
        node["aggCallNeedRetractions"] = [False]
        plan["nodes"][-1]["outputType"] = node["outputType"] = "ROW<`a` INT, `s` BIGINT>"
        made.append(parse_plan(json.dumps(plan), "plan"))
    match = match_plans(*made)
    (operator,) = (each for each in match.operators if each.node.kind == "group-aggregate")
    assert operator.worst is fate
    assert all("FLINK-30687" in each.why for each in operator.column_matches if each.fate.rank)
    (unaided,) = (
        said for each, said in zip(match.operators, flink_handling(match), strict=True)
        if each is operator
    )  # fmt: skip
    assert unaided.wrong is (fate is Fate.FILTER)


def _distinct(functions: str, *, updates: bool) -> Any:
    """A plan of aggregates of distinct values, of which the first letters are given."""
    (given, _) = plans()["an aggregate removed"]
    plan = json.loads(json.dumps(given))
    (node,) = (each for each in plan["nodes"] if "aggCalls" in each)
    call = {**node["aggCalls"][0], "distinct": True}
    names = {"s": "$SUM$1", "c": "$COUNT$1", "a": "$AVG$1"}
    node["aggCalls"] = [{**call, "internalName": names[each]} for each in functions]
    node |= {"aggCallNeedRetractions": [updates] * len(functions), "needRetraction": updates}
    results = "".join(f", `r{at}` BIGINT" for at in range(len(functions)))
    plan["nodes"][-1]["outputType"] = node["outputType"] = f"ROW<`a` INT{results}>"
    return parse_plan(json.dumps(plan), "plan")


@pytest.mark.parametrize(
    ("old", "new", "kept", "kept_if_updated"),
    [
        ("s", "s", "s", "s"),
        ("s", "sc", "s", ""),
        ("s", "cs", "s", ""),
        ("s", "c", "", "c"),
        ("s", "a", "", "a"),
        ("s", "sa", "s", ""),
        ("a", "sc", "sc", ""),
        ("sc", "s", "s", ""),
        ("sc", "c", "c", ""),
        ("sc", "cs", "cs", "cs"),
        ("sc", "sca", "sca", ""),
        ("sc", "a", "a", ""),
        ("sca", "sc", "sc", ""),
        ("sca", "ca", "ca", ""),
    ],
)
@pytest.mark.parametrize("updates", [False, True])
def test_each_call_has_its_bit_of_a_distinct_value(
    old: str, new: str, kept: str, kept_if_updated: str, *, updates: bool
) -> None:
    """And counts what it has not met; of updated rows there are counts instead."""
    match = match_plans(*(_distinct(each, updates=updates) for each in (old, new)))
    (operator,) = (each for each in match.operators if each.node.kind == "group-aggregate")
    called = {"s": "SUM(", "c": "COUNT(", "a": "AVG("}
    columns = operator.states[0].columns[ValuePlace.VALUE]
    found = "".join(
        each for each in new
        if all(column.fate is Fate.KEEPS for column in columns
               if called[each] in column.column.name)
    )  # fmt: skip
    assert found == (kept_if_updated if updates else kept)


def test_every_reason_is_said() -> None:
    """An operator that does not keep says why."""
    for edit in ALL:
        for each in matched(edit).operators:
            said = [*each.why, *(column.why for column in each.column_matches)]
            assert each.worst is Fate.KEEPS or each.old is None or any(said), edit.name


def test_no_json_of_a_plan_is_in_a_verdict() -> None:
    """Whatever two plans are compared: reasons, keys and columns are said in words."""
    pairs = [(matched(edit), edit.name) for edit in (*ALL, *ALIKE)]
    # each with the next, too, so that all that can differ does
    parsed = [parse_plan(json.dumps(plan), "plan") for of in plans().values() for plan in of]
    parsed += [plan for _, _, three in whole_plans() for plan in three]
    by_family = sorted(parsed, key=lambda plan: sorted({n.kind for n in plan.nodes.values()}))
    pairs += [(match_plans(*two), "neighbours") for two in pairwise(by_family)]
    said = set()
    for match, name in pairs:
        for each, flink in zip(match.operators, flink_handling(match), strict=True):
            columns = [text for column in each.column_matches
                       for text in (column.why, column.column.name)]  # fmt: skip
            gone = [column.name for state in each.states for column in state.left_out]
            said |= {(text, name) for text in (*each.why, *columns, *gone, flink.text)}
    assert len(said) > 200
    raw = re.compile(r'[{}"]|INPUT_REF|internalName|\bnull\b.*: ')
    assert [each for each in said if raw.search(each[0])] == []
    (why,) = (text for text, name in said
              if name == "another size of a window" and "window is another" in text)  # fmt: skip
    assert why == (
        "its window is another: TumblingWindow of size PT2M of MyTable.ts, and it was"
        " TumblingWindow of size PT1M of MyTable.ts"
    )


def _why(old: Any, new: Any, kind: str) -> tuple[Fate, str]:
    """The fate of the operator of a kind, and the reasons."""
    match = match_plans(*(parse_plan(json.dumps(plan), "plan") for plan in (old, new)))
    (operator,) = (each for each in match.operators if each.node.kind == kind)
    return operator.fate, "; ".join(operator.why)


def test_what_a_having_makes_of_rows_that_the_sink_has_is_said() -> None:
    """Stricter, they stay; no longer, what takes them back comes of rows that never came."""
    old, new = plans()["HAVING with what is there"]
    condition = ">(SUM(MyTable.b) BY [MyTable.a], 3)"
    stricter = (
        f"sink_0 gets only {condition} now: rows that it has and that do not pass stay there, as"
        " nothing takes them back"
    )
    looser = (
        f"sink_0 gets no longer only {condition}: rows that did not pass come as they change, and a"
        " delete of one comes that never came before"
    )
    assert _why(old, new, "group-aggregate") == (Fate.KEEPS, stricter)
    assert _why(new, old, "group-aggregate") == (Fate.KEEPS, looser)
    assert _why(new, new, "group-aggregate") == (Fate.KEEPS, "")


def _ranked(strategy: str, end: int, *, numbered: bool = False) -> Any:
    """A plan of a TopN."""
    (given, _) = plans()["TopN: another N"]
    plan = json.loads(json.dumps(given))
    (rank,) = (node for node in plan["nodes"] if "rankStrategy" in node)
    rank["rankStrategy"] = {"type": strategy, "primaryKeys": [0, 1]}
    rank["rankRange"]["end"] = end
    if numbered:
        rank["outputRankNumber"] = True
    return plan


@pytest.mark.parametrize(
    ("strategy", "ends", "fate", "says"),
    [
        ("AppendFast", (3, 5), Fate.STARTS_NOW, "come as they change"),
        ("UpdateFast", (3, 5), Fate.STARTS_NOW, "come as they change"),
        ("Retract", (1, 2), Fate.STARTS_NOW, "a delete comes that no row came before"),
        ("Retract", (5, 3), Fate.STARTS_NOW, "and come again when they move up"),
        ("AppendFast", (5, 3), Fate.UNKNOWN, "a key that has 5 goes on with 5, and rows beyond 3"),
        ("UpdateFast", (5, 3), Fate.UNKNOWN, "a key that has 5 goes on with 5, and rows beyond 3"),
        ("AppendFast", (1, 2), Fate.UNKNOWN, "lists of rows by sort key, and there was nothing"),
        ("UpdateFast", (2, 1), Fate.UNKNOWN, "'data-state-with-update' is not read"),
    ],
)
def test_what_another_number_of_rows_of_a_top_n_does_is_said(
    strategy: str, ends: tuple[int, int], fate: Fate, says: str
) -> None:
    """By what it holds: as many rows as it emits, one row, or all."""
    old, new = (_ranked(strategy, end) for end in ends)
    found, why = _why(old, new, "rank")
    assert found is fate
    assert says in why


def test_a_top_n_of_one_row_holds_that_row_alone() -> None:
    """In a state of another name, whose rows get columns; in the order in which rows come, none."""
    plan = parse_plan(json.dumps(_ranked("AppendFast", 1)), "plan")
    states = states_of(plan, lineage_of(plan))
    (rank,) = (each for each in states.values() if each.node.kind == "rank")
    assert [(each.name, list(each.rows)) for each in rank.states] == [
        ("Top1-Rank-State", [ValuePlace.VALUE])
    ]


@pytest.mark.parametrize(
    ("inner", "outer", "fates"),
    [
        ("SUM", "SUM", {Fate.STARTS_NOW}),
        ("SUM", "AVG", {Fate.STARTS_NOW}),
        ("MAX", "COUNT", {Fate.STARTS_NOW}),
        ("$SUM0", "SUM", {Fate.UNKNOWN}),  # which begins as 0
        ("COUNT", "SUM", {Fate.UNKNOWN}),
        ("SUM", "MAX", {Fate.UNKNOWN}),  # only Java knows what that begins as
    ],
)
def test_an_aggregate_of_a_new_aggregate_starts_now(
    inner: str, outer: str, fates: set[Fate]
) -> None:
    """What takes a group back has the NULL of it that it was: at both levels it counts from now."""
    old, new = json.loads(json.dumps(plans()["a nested aggregate's inner one added"]))
    for plan, functions in ((old, ()), (new, (inner, outer))):
        aggregates = [node for node in plan["nodes"] if "aggCalls" in node]
        for node, function, argument in zip(aggregates, functions, (1, 2), strict=False):
            call = node["aggCalls"][1]
            call |= {"internalName": f"${function}$1", "argList": [argument]}
            node["aggCallNeedRetractions"] = [node["needRetraction"]] * 2
            call["type"] = "BIGINT NOT NULL" if function in ("COUNT", "$SUM0") else "BIGINT"
    match = match_plans(*(parse_plan(json.dumps(plan), "plan") for plan in (old, new)))
    below, above = (each for each in match.operators if each.node.kind == "group-aggregate")
    assert {each.fate for each in below.column_matches if each.old is None} == {Fate.STARTS_NOW}
    assert {each.fate for each in above.column_matches if each.old is None} == fates
    assert above.fate is Fate.KEEPS


@pytest.mark.parametrize(
    "edit",
    [
        "deduplication, last: a column more",
        "a column more through a join with a table that changes",
    ],
)
def test_a_condition_on_a_column_that_old_rows_do_not_have_is_refused(edit: str) -> None:
    """It is NULL in those that are there, and would leave them out."""
    old, new = json.loads(json.dumps(plans()[edit]))
    match = match_plans(*(parse_plan(json.dumps(plan), "plan") for plan in (old, new)))
    (held,) = (each for each in match.operators if each.worst is Fate.NULL)
    (above,) = (edge["target"] for edge in new["edges"] if edge["source"] == held.node.id)
    (calc,) = (node for node in new["nodes"] if node["id"] == above)
    at = [each.name for each in held.node.columns].index("d")
    calc["condition"] = {
        "kind": "CALL", "internalName": "$>$1", "type": "BOOLEAN",
        "operands": [{"kind": "INPUT_REF", "inputIndex": at, "type": "INT"},
                     {"kind": "LITERAL", "value": 3, "type": "INT NOT NULL"}],
    }  # fmt: skip
    match = match_plans(*(parse_plan(json.dumps(plan), "plan") for plan in (old, new)))
    (refused,) = (each for each in match.operators if each.node.id == held.node.id)
    whys = [each.why for each in refused.column_matches if each.fate is Fate.UNKNOWN]
    assert whys == [
        "it is new, and the query has a condition on it, which rows that are there would not pass"
    ]


def test_an_aggregate_added_to_grouping_sets_starts_now() -> None:
    """Whatever beside the key is in what is expanded; ROLLUP and CUBE are sets, too."""
    for sets in ("a|b", "ab|a|", "ab|a|b|"):
        old, new = grouping_sets_plan(sets), grouping_sets_plan(sets, calls=("SUM", "MAX"))
        assert _why(old, old, "group-aggregate") == (Fate.KEEPS, "")
        assert _why(old, new, "group-aggregate") == (Fate.KEEPS, "")
        match = match_plans(*(parse_plan(json.dumps(plan), "plan") for plan in (old, new)))
        (operator,) = (each for each in match.operators if each.node.kind == "group-aggregate")
        assert [each.fate for each in operator.column_matches] == [Fate.KEEPS, Fate.STARTS_NOW]
        assert not operator.keys


@pytest.mark.parametrize(
    ("sets", "fate", "says", "keys", "numbers"),
    [
        (("a|b", "a|b|ab"), Fate.STARTS_NOW, "of the grouping set (o.a, o.b) all groups are new",
         (), {}),
        (("a|b|ab", "a|b"), Fate.KEEPS, "groups of the grouping set (o.a, o.b) are left out",
         (0, 1, 2), {1: 1, 2: 2}),
        (("a|b", "b|a"), Fate.KEEPS, "its keys move", (1, 0, 2), {1: 2, 2: 1}),
        (("a|b", "a|b|c"), Fate.STARTS_NOW, "(o.c) all groups are new", (0, 1, -1, 2),
         {1: 3, 2: 5}),
        (("ab|a|", "a|"), Fate.KEEPS, "set (o.a, o.b) are left out", (0, 2), {1: 0, 3: 1}),
        (("a|b", "c|d"), Fate.LOST, "", (), {}),
        (("a|b", "a"), Fate.LOST, "the number of the grouping set", (), {}),
    ],
)  # fmt: skip
def test_grouping_sets_are_told_by_their_columns(
    sets: tuple[str, str], fate: Fate, says: str, keys: tuple[int, ...], numbers: dict[int, int]
) -> None:
    """One more, less, or others in order: their numbers, and the columns of the key, are others."""
    old, new = map(grouping_sets_plan, sets)
    match = match_plans(*(parse_plan(json.dumps(plan), "plan") for plan in (old, new)))
    operator = next(each for each in match.operators if each.node.kind == "group-aggregate")
    assert operator.fate is fate
    assert says in "; ".join(operator.why)
    assert (operator.keys, operator.sets) == (keys, numbers)
    assert not operator.merges


def test_a_grouping_set_added_over_updates_is_unknown() -> None:
    """What takes back a row that came before would be taken from groups that never had it."""
    old, new = map(grouping_sets_plan, ("a|b", "a|b|ab"))
    for plan in (old, new):
        (node,) = (each for each in plan["nodes"] if "aggCalls" in each)
        node |= {"needRetraction": True, "aggCallNeedRetractions": [True]}
    match = match_plans(*(parse_plan(json.dumps(plan), "plan") for plan in (old, new)))
    (operator,) = (each for each in match.operators if each.node.kind == "group-aggregate")
    assert operator.fate is Fate.UNKNOWN
    assert "of the grouping set (o.a, o.b) all groups are new, and what it reads is upd" in str(
        operator.why
    )
    assert flink_handling(match)[match.operators.index(operator)].wrong
    fewer, _ = _why(new, old, "group-aggregate")
    assert fewer is Fate.KEEPS


def _with_cast(sets: str) -> dict[str, Any]:
    """The plan of grouping sets of which `c` is `a` as a wider type."""
    plan = grouping_sets_plan(sets)
    wider = json.loads(json.dumps(plan["nodes"]).replace("`c` INT", "`c` BIGINT"))
    columns = list(dict.fromkeys(sets.replace("|", "")))
    at = {"a": 0, "b": 1, "c": 0}
    projection: list[dict[str, Any]] = [
        {"kind": "INPUT_REF", "inputIndex": at[each], "type": "INT"} for each in (*columns,)
    ]
    if "c" in columns:
        cast = {"kind": "CALL", "internalName": "$CAST$1", "type": "BIGINT"}
        projection[columns.index("c")] = cast | {"operands": [projection[columns.index("c")]]}
    projection.append({"kind": "INPUT_REF", "inputIndex": 2, "type": "BIGINT"})
    calc = {"id": 9, "type": "stream-exec-calc_1", "projection": projection,
            "outputType": wider[0]["outputType"]}  # fmt: skip
    wider[0]["outputType"] = "ROW<`a` INT, `b` INT, `v` BIGINT>"
    edges = [{"source": 1, "target": 9}, {"source": 9, "target": 2}, {"source": 2, "target": 6}]
    return {**plan, "nodes": [wider[0], calc, *wider[1:]], "edges": edges}


def test_grouping_sets_of_one_column_twice_are_not_told_apart() -> None:
    """A column and its cast are NULL in other sets: no group of the one is one of the other."""
    plans = {sets: _with_cast(sets) for sets in ("a|ab", "a|cb", "a|ac|cb")}

    def fate(old: str, new: str) -> Fate:
        pair = (parse_plan(json.dumps(plans[each]), "plan") for each in (old, new))
        (found,) = (each for each in match_plans(*pair).operators if each.old is not None
                    and each.old.node.kind == "group-aggregate")  # fmt: skip
        return found.fate

    assert fate("a|ab", "a|cb") is Fate.LOST
    assert fate("a|cb", "a|ab") is Fate.LOST
    assert fate("a|cb", "a|cb") is Fate.KEEPS
    assert fate("a|cb", "a|ac|cb") is Fate.LOST


def _mutated(value: Any, random: Random) -> Any:
    """A plan with something in it removed, exchanged, or of another type."""
    if isinstance(value, dict) and value and random.random() < 0.97:
        name = random.choice(sorted(value))
        if random.random() < 0.15:
            return {other: each for other, each in value.items() if other != name}
        return {**value, name: _mutated(value[name], random)}
    if isinstance(value, list) and value and random.random() < 0.97:
        at = random.randrange(len(value))
        if random.random() < 0.15:
            return value[:at] + value[at + 1 :]
        return [*value[:at], _mutated(value[at], random), *value[at + 1 :]]
    return random.choice([None, -1, 0, 7, 1 << 70, "", "x", [], {}, True, [[]], {"kind": "CALL"}])


@pytest.mark.parametrize("seed", range(8))
def test_mutated_plans_are_judged_or_refused(seed: int) -> None:
    """Whatever is in them: no other error than one of ours."""
    random = Random(seed)
    for _ in range(60):
        edit = random.choice([*EDITS, *FOLD_EDITS])
        pair, place = list(plans()[edit.name]), random.choice([0, 0, 1])
        for _ in range(random.choice([1, 1, 3])):
            pair[place] = _mutated(pair[place], random)
        try:
            old, new = (parse_plan(json.dumps(plan), name) for plan, name in
                        zip(pair, ("old", "new"), strict=True))  # fmt: skip
            flink_handling(match_plans(old, new))
        except StateError as error:
            assert ("old", "new")[place] in str(error)  # noqa: PT017 - most are no errors at all


def test_the_page_has_a_row_for_each_edit() -> None:
    """With what the vendor says, and the verdict that the test holds us to."""
    page = (Path(__file__).parents[3] / "docs" / "flink-sql.md").read_text("utf-8")
    for edit in ALL:
        (row,) = (line for line in page.splitlines() if line.startswith(f"| {edit.name} |"))
        _, _, vendor, ours, flink, _ = (cell.strip() for cell in row.split("|"))
        assert vendor == edit.vendor
        said = edit.ours if edit.ours != "counted by another filter" else "--accept filter"
        assert said in ours
        assert bool(flink) is bool(edit.flink)


def whole_plans() -> Iterator[tuple[str, WholeNode, list[Plan]]]:
    """Of each node whose state is known as a whole, by version: the plans of its three queries."""
    for line in map(json.loads, lzma.decompress(WHOLE_PLANS.read_bytes()).splitlines()):
        parsed = [parse_plan(json.dumps(plan), "plan") for plan in line["plans"]]
        yield line["flink"], NODES[line["node"]], parsed


def held_match(old: Plan, new: Plan, kind: str) -> PlanMatch:
    """The match of two plans of a job whose savepoint has state of all nodes of a kind."""
    held = [node.id for node in old.nodes.values() if node.kind == kind]
    assert held
    return with_held(match_plans(old, new), held)


def test_what_is_known_as_a_whole_keeps_if_nothing_of_it_changes() -> None:
    """Behind another query, by which it has another number; nothing of it is rewritten."""
    for _, node, (old, new, _) in whole_plans():
        match = held_match(old, new, node.kind)
        (whole,) = (each for each in match.operators if each.node.kind == node.kind)
        assert whole.old is not None
        assert whole.new is not None
        assert whole.old.node.id != whole.new.node.id
        assert (whole.fate, whole.why, whole.states) == (Fate.KEEPS, (), ())
        assert worst_of(match) is Fate.KEEPS
        assert {each.worst for each in held_match(old, old, node.kind).operators} == {Fate.KEEPS}


def test_what_is_known_as_a_whole_is_unknown_if_it_changes() -> None:
    """And it is said why, and what to do; Flink by itself may restore it all the same."""
    for _, node, (old, _, changed) in whole_plans():
        match = held_match(old, changed, node.kind)
        (whole,) = (each for each in match.operators if each.node.kind == node.kind)
        assert whole.fate is Fate.UNKNOWN
        assert len(whole.why) > 1
        assert node.says in whole.why[-1]
        assert whole.why[-1].endswith(f"--accept lost={whole.label}")
        assert all(len(why) < 600 for why in whole.why)
        unaided = flink_handling(match)[match.operators.index(whole)]
        assert unaided.wrong
        others = (each for each in match.operators if each is not whole and each.old is not None)
        assert {each.worst for each in others} <= {Fate.KEEPS}


def test_what_lookups_found_has_another_key_in_flink_2() -> None:
    """It is kept by what is looked up in Flink 1, and then by the rows' own key; patterns stay."""
    plans = {(version, node.kind, node.says): three[0] for version, node, three in whole_plans()}
    fates = {}
    for (version, kind, says), old in plans.items():
        new = plans["2.3.0", kind, says]
        match = held_match(old, new, kind)
        (whole,) = (each for each in match.operators if each.node.kind == kind)
        fates[version, says] = whole.fate
    changed = {at for at, fate in fates.items() if fate is not Fate.KEEPS}
    assert changed == {("1.20.0", "by which rows are taken back")}


def test_a_held_node_that_reads_other_columns_than_there_are_is_refused() -> None:
    """With the plan and the node, as any node that can't be understood."""
    for _, node, (old, new, _) in whole_plans():
        if "wait for lookups" not in node.says:
            continue
        (lookup,) = (each for each in old.nodes.values() if each.kind == node.kind)
        below = old.nodes[lookup.inputs[0]]
        nodes = {**old.nodes, below.id: replace(below, columns=below.columns[:-1])}
        with pytest.raises(StateError, match=r"LookupJoin\[\d+\]: it can't be understood"):
            held_match(replace(old, nodes=nodes), new, node.kind)


def test_a_type_of_what_is_known_as_a_whole_is_a_change() -> None:
    """Its rows have another serializer, though the query is the same; a time to live may differ."""
    for _, node, (old, _, _) in whole_plans():
        text = json.dumps([each.spec for each in old.nodes.values()])
        other = _with_text(old, "`d` INT", "`d` SMALLINT")
        other = _with_text(other, '"d", "fieldType": "INT"', '"d", "fieldType": "SMALLINT"')
        (whole,) = (each for each in held_match(old, other, node.kind).operators
                    if each.node.kind == node.kind)  # fmt: skip
        assert whole.fate is Fate.UNKNOWN
        if '"ttl": "0 ms"' in text:
            lives = [_with_text(old, '"ttl": "0 ms"', f'"ttl": "{h} h"') for h in (1, 2)]
            fates = [held_match(one, lives[1], node.kind).operators for one in (old, lives[0])]
            assert [worst(each.fate for each in found) for found in fates] == [
                Fate.UNKNOWN, Fate.KEEPS,
            ]  # fmt: skip


def _with_text(plan: Plan, old: str, new: str) -> Plan:
    """A plan in whose JSON a text is another."""
    nodes = [each.spec for each in plan.nodes.values()]
    edges = [
        {"source": source, "target": each.id}
        for each in plan.nodes.values() for source in each.inputs
    ]  # fmt: skip
    version = ".".join(map(str, plan.flink))
    text = json.dumps({"flinkVersion": version, "nodes": nodes, "edges": edges})
    return parse_plan(text.replace(old, new), "plan")
