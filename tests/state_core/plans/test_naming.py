"""Names of Flink SQL's state from the plan of its job, and plans that are of another job."""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import statelake as sl
from statelake.state_core.errors import DeclarationError, NotFoundError
from statelake.state_core.formats.metadata.checkpoint_metadata import write_metadata
from statelake.state_core.model.key_groups import operator_id_of_uid
from statelake.state_core.nested import LONGEST, plain_names
from statelake.state_core.plans.kinds import lineage_of, states_of
from statelake.state_core.plans.naming import nodes_by_uid
from statelake.state_core.plans.plan import parse_plan
from statelake.state_core.plans.states import ValuePlace
from tests.integration.flink.sql_plans import GOLDEN
from tests.integration.flink.sql_versions import GOLDEN as VERSIONS
from tests.support.savepoints.sql_jobs import (
    unpack_sql_job,
    unpack_sql_plans,
    unpack_sql_views,
)


@pytest.fixture
def job(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A savepoint, its plan, and the plan of another job."""
    return (unpack_sql_job("shop", tmp_path / "shop"), *unpack_sql_plans(tmp_path))


def changed(plan: Path, change: Callable[[Any], None]) -> Path:
    """A plan of which something is changed."""
    content = json.loads(plan.read_text())
    change({node["id"]: node for node in content["nodes"]})
    to = plan.with_name(f"changed-{plan.name}")
    to.write_text(json.dumps(content))
    return to


def test_rows_have_the_columns_of_the_query(job: tuple[Path, Path, Path]) -> None:
    """Keys, accumulators, a join's rows in a map's keys, and timers; values are as without."""
    savepoint, plan, _ = job
    plain, named = sl.open_snapshot(savepoint), sl.open_snapshot(savepoint, plan=plan)
    group = named["GroupAggregate[4]"]
    assert (group.uid, group.node) == ("4_group-aggregate", "GroupAggregate[4]")
    assert group.query.startswith("GroupAggregate(groupBy=[shop], select=[shop, COUNT(amount)")
    schemas = {state.name: state.schema for each in named.operators for state in each.keyed_states}
    fields = {
        (name, column.name): [field.name for field in column.type]
        for name, schema in schemas.items()
        for column in schema
        if column.type.num_fields
    }
    assert fields == {
        ("accState", "key"): ["shop"],
        ("accState", "value"): ["count_amount", "sum_amount"],
        ("_timer_state/processing_user-timers", "key"): ["shop"],
        ("_timer_state/event_user-timers", "key"): ["shop"],
        ("left-records", "key"): ["customer"],
        ("left-records", "user_key"): ["id", "customer", "amount"],
        ("right-records", "key"): ["customer"],
        ("right-records", "user_key"): ["id", "name"],
    }
    for operator in plain.operators:
        for state in operator.keyed_states:
            rows = [
                list(map(_values, row.values()))
                for table in (state, named[operator.uid][state.name])
                for row in table.to_arrow().to_pylist()  # type: ignore[union-attr]
            ]
            half = len(rows) // 2
            assert rows[:half] == rows[half:]
            assert state.meta_info == named[operator.uid].state(state.name).meta_info
    held = group.state("accState").get({"shop": "shop-1"})["value"].to_pylist()
    assert held == [{"count_amount": 8, "sum_amount": 284}]


def _values(value: Any) -> Any:
    return list(value.values()) if isinstance(value, dict) else value


def test_operators_without_uids_are_named_by_their_ids(job: tuple[Path, Path, Path]) -> None:
    """As a savepoint of Flink 1 has only hashes; sources have names that no plan tells."""
    savepoint, plan, _ = job
    written = sl.open_snapshot(savepoint).metadata
    operators = [replace(each, uid="", name="") for each in written.operators]
    old = replace(written, version=4, operators=operators)
    (savepoint / "_metadata").write_bytes(write_metadata(old))
    snapshot = sl.open_snapshot(savepoint, plan=plan)
    assert {each.node for each in snapshot.operators if each.keyed_states} == {
        "GroupAggregate[4]", "Join[11]",
    }  # fmt: skip
    assert {each.uid for each in snapshot.operators} == {""}
    with pytest.raises(NotFoundError, match=r"GroupAggregate\[4\]"):
        snapshot.operator("GroupAggregate[5]")


def test_the_plan_of_another_job_is_refused(job: tuple[Path, Path, Path]) -> None:
    """By the numbers and kinds of its nodes, by a key, by rows; it is said where and why."""
    savepoint, plan, other = job
    with pytest.raises(DeclarationError, match=r"new\.json: 11_join \(of which the plan says Calc"):
        sl.open_snapshot(savepoint, plan=other)

    def no_sum(nodes: Any) -> None:
        for name in ("aggCalls", "aggCallNeedRetractions"):
            nodes[4][name] = nodes[4][name][:1]

    def another_key(nodes: Any) -> None:
        nodes[3]["outputType"] = nodes[3]["outputType"].replace("VARCHAR(2147483647)", "INT")

    def another_join(nodes: Any) -> None:
        nodes[11]["joinSpec"]["joinType"] = "LEFT"
        nodes[11]["leftUpsertKeys"] = [[0]]

    for change, said in (
        (no_sum, r"value of 'accState': the snapshot has (BIGINT, BIGINT), and the plan says"),
        (another_key, "its key: the snapshot has (VARCHAR(2147483647)), and the plan says (INT)"),
        (another_join, "Join[11], operator 11_join: the map's key of 'left-records'"),
    ):
        with pytest.raises(DeclarationError, match=re.escape(said)):
            sl.open_snapshot(savepoint, plan=changed(plan, change))


def test_what_is_no_plan_is_refused(job: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """With its place."""
    savepoint, plan, _ = job
    bad = tmp_path / "bad.json"
    for text, said in (("[", "not JSON"), ("{}", "no `nodes`"), ("[" * 99_999, "not JSON")):
        bad.write_text(text)
        with pytest.raises(DeclarationError, match=rf"bad\.json: .*{said}"):
            sl.open_snapshot(savepoint, plan=bad)
    with pytest.raises(DeclarationError, match=r"Join\[11\]: it can't be understood"):
        sl.open_snapshot(savepoint, plan=changed(plan, lambda nodes: nodes[11].pop("joinSpec")))


def test_names_are_what_tables_take() -> None:
    """Whatever a plan says; each another one, whatever its case."""
    assert plain_names(["$f1", "a b", "", "A_B", "ä", "\ud800", "x" * 999, "f2"]) == (
        "f1", "a_b", "f2", "A_B_2", "ä", "f5", "x" * LONGEST, "f2_2",
    )  # fmt: skip
    many = plain_names(["n"] * 20_000)  # in linear time
    assert (many[-1], len({*many})) == ("n_20000", len(many))


def test_accumulators_are_named_after_their_functions() -> None:
    """With the hidden ones: counts beside averages and sums, all rows, and sets of values."""
    found = set()
    for line in lzma.decompress(GOLDEN.read_bytes()).splitlines():
        edit = json.loads(line)
        for text in edit["plans"]:
            plan = parse_plan(json.dumps(text), edit["name"])
            for node in states_of(plan, lineage_of(plan)).values():
                for state in node.states:
                    if state.name in ("accState", "window-aggs"):
                        columns = state.rows[ValuePlace.VALUE]
                        found.add(plain_names([column.column for column in columns]))
    assert {
        ("sum_b", "max_c", "count_distinct_c", "distinct_c"),
        ("count_distinct_b_filtered", "count_distinct_b_filtered_2", "distinct_b"),
        ("sum_s", "count_s", "max_n", "count"),
        ("count_b", "sum_b", "max_c", "count"),
        ("sum_b", "count_b"),
    } <= found


@pytest.mark.parametrize("version", ["1.20.0", "2.3.0"])
def test_data_views_are_named_after_their_columns(version: str, tmp_path: Path) -> None:
    """Sets of distinct values, and what functions hold beside their results: by what is in them."""
    savepoint, plan = unpack_sql_views(version, tmp_path)
    snapshot = sl.open_snapshot(savepoint, plan=plan)
    views = {
        operator.node: {
            held.names.alias: [
                tuple(row.values())
                for row in held.to_arrow().drop(["key_group", "namespace"]).to_pylist()
            ]
            for held in operator.keyed_states
            if held.names.alias
        }
        for operator in snapshot.operators
    }
    distinct = {"distinct_c", "distinct_c.null_state"}
    kept = {"last_value_c.valueToOrderMap", "last_value_c.orderToValueMap", "min_b.map"}
    assert {node: {*held} for node, held in views.items() if held} == {
        "GroupAggregate[6]": {*distinct, "distinct_b", "distinct_b.null_state", "collect_d.map"},
        "GroupAggregate[13]": {
            *distinct, *kept, "max_c.map", "first_value_b.valueToOrderMap",
            "first_value_b.orderToValueMap", "listagg_c.list", "listagg_c.retractList",
        },
        "GlobalWindowAggregate[20]": distinct,
        "OverAggregate[24]": {*distinct, *kept},
        "OverAggregate[27]": distinct,
    }  # fmt: skip

    def held(node: str, alias: str) -> list[Any]:
        table = snapshot[node].state(alias).to_arrow()
        rows = table.select([n for n in ("key", "user_key", "value") if n in table.schema.names])
        lines = [[*row["key"].values(), *list(row.values())[1:]] for row in rows.to_pylist()]
        return sorted(lines, key=str)

    rows = [(k % 3, k, f"n{k % 4}", k % 2) for k in range(12)]
    # a bit for each call, in their order: the first has a filter that no row passes
    assert held("GroupAggregate[6]", "distinct_b") == sorted([[a, b, 2] for a, b, _, _ in rows],
                                                             key=str)  # fmt: skip
    assert held("GroupAggregate[6]", "distinct_c") == sorted([[a, c, 1] for a, _, c, _ in rows],
                                                             key=str)  # fmt: skip
    # where rows are taken back, how often each value is there: with several calls, for each
    left = rows[4:]
    counted = [[d, f"n{c}", 2] for d in (0, 1) for c in (d, d + 2)]
    assert held("GroupAggregate[13]", "max_c.map") == counted
    assert held("GroupAggregate[13]", "distinct_c") == [[d, c, [n, n]] for d, c, n in counted]
    assert held("GroupAggregate[13]", "min_b.map") == sorted([[d, b, 1] for _, b, _, d in left],
                                                             key=str)  # fmt: skip
    assert held("GroupAggregate[13]", "listagg_c.list") == [
        [d, [c for _, _, c, of in left if of == d]] for d in (0, 1)
    ]


def test_a_view_is_found_by_its_alias(tmp_path: Path) -> None:
    """In all that takes the name of a state, beside that name, by which it stays."""
    savepoint, plan = unpack_sql_views("2.3.0", tmp_path)
    snapshot = sl.open_snapshot(savepoint, plan=plan)
    operator = snapshot["GroupAggregate[6]"]
    assert operator["distinct_b"] is operator.state("distinctAcc_1")
    assert operator["distinct_b"].name == "distinctAcc_1"
    assert operator["distinct_b"].labels == ("distinctAcc_1", "distinct_b")
    for by in ("distinctAcc_1", "distinct_b"):
        assert {*snapshot.get({"a": 1}, operator=operator.node, state=by)[operator.label]} == {
            "distinctAcc_1"
        }
        assert {*snapshot.top(1, operator=operator.node, state=by)[operator.label]} == {
            "distinctAcc_1"
        }
        found = snapshot.find(10, operator=operator.node, state=by)
        assert [hit.state.name for hit in found.hits] == ["distinctAcc_1"]
    with pytest.raises(NotFoundError, match=r"'distinctAcc_1', 'distinct_b'.*did you mean 'dis"):
        operator.state("distinct_bb")
    text = str(snapshot.describe())
    assert "distinctAcc_1 (distinct_b)" in text
    assert "agg4$list (listagg_c.list)" in text


def test_a_view_of_other_values_than_the_plan_says_is_refused(tmp_path: Path) -> None:
    """Where neither rows nor keys tell it: a set of one column with the name of another."""
    savepoint, plan = unpack_sql_views("2.3.0", tmp_path)

    def exchanged(nodes: Any) -> None:
        calls = nodes[6]["aggCalls"]
        calls[0]["argList"], calls[2]["argList"] = calls[2]["argList"], calls[0]["argList"]

    said = "the map's key of 'distinctAcc_1': the snapshot has Long, and the plan says StringData"
    with pytest.raises(DeclarationError, match=said):
        sl.open_snapshot(savepoint, plan=changed(plan, exchanged))

    def another(nodes: Any) -> None:
        nodes[13]["aggCalls"][0]["argList"] = nodes[13]["aggCalls"][1]["argList"]

    with pytest.raises(DeclarationError, match=r"map's key of 'agg0\$map'.*plan says StringData"):
        sl.open_snapshot(savepoint, plan=changed(plan, another))


def test_a_damaged_plan_is_refused_or_names_what_is_there(job: tuple[Path, Path, Path]) -> None:
    """Whatever is changed in it, with its place; state is read all the same."""
    savepoint, plan, _ = job
    random = Random(32)
    wrong = (None, -1, 10**30, "", "\ud800", [], {}, [99], "ROW<`a` INT>", "5_join", 1.5)
    places = list(_places(json.loads(plan.read_text())))
    refusals = []
    for _ in range(60):
        content = json.loads(plan.read_text())
        *path, last = random.choice(places)
        part = content
        for step in path:
            part = part[step]
        part[last] = random.choice(wrong)
        damaged = plan.with_name("damaged.json")
        damaged.write_text(json.dumps(content))
        try:
            snapshot = sl.open_snapshot(savepoint, plan=damaged)
        except sl.StateError as error:
            refusals.append(str(error))
        else:
            assert len(snapshot["4_group-aggregate"].state("accState").to_arrow()) == 3
            assert str(snapshot.describe(schema=True))
    assert 10 < len(refusals) < 60
    assert all("damaged.json" in refusal for refusal in refusals)


def _places(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all that is in JSON."""
    inner = part.items() if isinstance(part, dict) else enumerate(part)
    for step, value in inner:
        yield (*path, step)
        if isinstance(value, dict | list):
            yield from _places(value, (*path, step))


def test_the_rows_of_a_session_are_named_in_flink_1() -> None:
    """Its window function keeps them, in an operator that is called `window` behind the number."""
    lines = map(json.loads, lzma.decompress(VERSIONS.read_bytes()).splitlines())
    (content,) = (line["plans"]["1.20.0"] for line in lines if line["name"] == "ranks of windows")
    (number,) = (node["id"] for node in content["nodes"] if "window-table" in node["type"])
    nodes = {node["id"]: node for node in content["nodes"]}
    nodes[number]["windowing"]["window"] = {
        "type": "SessionWindow", "gap": "PT5S", "partition_key_indices": [1],
    }  # fmt: skip
    plan = parse_plan(json.dumps(content), "plan")
    held = operator_id_of_uid(f"{number}_window")
    assert nodes_by_uid(plan, {held: ""}) == ({held: (number, "window")}, {})
    kept = states_of(plan, lineage_of(plan))[number]
    (state,) = kept.states
    assert (state.name, kept.key_names) == ("session-window-tvf-acc", ("b",))
    assert [column.name for column in state.rows[ValuePlace.VALUE]][:3] == ["a", "b", "c"]
