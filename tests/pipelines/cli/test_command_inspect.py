"""`statelake inspect`: Flink's own columns under their names, and more, at no more than reading."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statelake import open_snapshot
from tests.support.command import run
from tests.support.lakes import KINDS, WINDOWS, WORDS, golden, raw_savepoint
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases
from tests.support.savepoints.sql_jobs import unpack_sql_job, unpack_sql_plans

pytestmark = pytest.mark.thinned(3)

FLINKS_COLUMNS = [
    "checkpoint-id",
    "operator-name",
    "operator-uid",
    "operator-uid-hash",
    "operator-parallelism",
    "operator-max-parallelism",
    "operator-subtask-state-count",
    "operator-coordinator-state-size-in-bytes",
    "operator-total-size-in-bytes",
]
OURS = [
    "finished", "raw_state_bytes", "in_flight_bytes", "key_type", "keyed_states",
    "operator_states", "key_groups", "subtasks",
]  # fmt: skip
CASES = golden_cases()
NATIVE = golden("kinds-rocksdb-native-p2-m128-flink2.3.0").snapshot


def inspected(*words: object) -> dict[str, Any]:
    """What the command says as JSON."""
    ran = run("inspect", *words, "--json")
    assert (ran.code, ran.err) == (0, "")
    found: dict[str, Any] = ran.json
    return found


def operator(report: dict[str, Any], uid: str) -> dict[str, Any]:
    """One operator of a report."""
    (found,) = (operator for operator in report["operators"] if operator["operator-uid"] == uid)
    return dict(found)


def state_of(report: dict[str, Any], uid: str, name: str) -> dict[str, Any]:
    """One keyed state of a report."""
    (found,) = (
        keyed_state
        for keyed_state in operator(report, uid)["keyed_states"]
        if keyed_state["name"] == name
    )
    return dict(found)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_golden_snapshot(case: GoldenCase) -> None:
    """Stable keys; sizes, counts and types that agree with the snapshot."""
    report = inspected(case.snapshot)
    assert list(report) == [
        "location", "kind", "format", "metadata_version", "checkpoint_id", "compression",
        "size_bytes", "operators",
    ]  # fmt: skip
    assert report["format"] == case.facts["format"]
    assert report["location"] == str(case.snapshot)
    assert report["size_bytes"] == sum(
        operator["operator-total-size-in-bytes"] for operator in report["operators"]
    )
    snapshot = open_snapshot(case.snapshot)
    assert [operator["operator-uid-hash"] for operator in report["operators"]] == [
        operator.operator_id for operator in snapshot.operators
    ]
    for described, held in zip(report["operators"], snapshot.operators, strict=True):
        assert list(described) == FLINKS_COLUMNS + OURS
        assert described["checkpoint-id"] == report["checkpoint_id"]
        assert described["operator-parallelism"] == held.parallelism
        assert described["operator-max-parallelism"] == held.max_parallelism
        for state in described["keyed_states"]:
            rows = held.state(state["name"]).to_arrow()
            groups = rows.column("key_group").to_pylist()
            assert state["entries"] == len(rows)
            assert {g["key_group"]: g["entries"] for g in state["key_groups"]} == {
                group: groups.count(group) for group in set(groups)
            }
            assert state["bytes"] == sum(g["bytes"] for g in state["key_groups"])
        planned = described["subtasks"]["now"]["subtasks"]
        assert len(planned) == held.parallelism
        assert sum(p["entries"] for p in planned) == sum(
            state["entries"] for state in described["keyed_states"]
        )


def test_flinks_columns() -> None:
    """What Flink's `savepoint_metadata` function says of the savepoint of a job with sources."""
    report = inspected(KINDS)
    found = operator(report, "kinds")
    files = sum(path.stat().st_size for path in KINDS.iterdir() if path.name != "_metadata")
    assert {name: found[name] for name in FLINKS_COLUMNS} == {
        "checkpoint-id": 1,
        "operator-name": "kinds",
        "operator-uid": "kinds",
        "operator-uid-hash": open_snapshot(KINDS).operator("kinds").operator_id,
        "operator-parallelism": 3,
        "operator-max-parallelism": 128,
        "operator-subtask-state-count": 3,
        "operator-coordinator-state-size-in-bytes": 0,
        "operator-total-size-in-bytes": files,
    }


def test_types() -> None:
    """Java's types as Java writes them, kinds, and whether values expire."""
    states = {
        keyed_state["name"]: keyed_state
        for keyed_state in operator(inspected(KINDS), "kinds")["keyed_states"]
    }
    assert list(states["name"]) == [
        "name", "kind", "key_type", "namespace_type", "value_type", "ttl", "entries", "bytes",
        "key_groups",
    ]  # fmt: skip
    shown = {
        name: (
            described["kind"],
            described.get("user_key_type"),
            described["value_type"],
            described["ttl"],
        )
        for name, described in states.items()
    }
    assert shown["name"] == ("value", None, "String", False)
    assert shown["items"] == ("list", None, "Integer", False)
    assert shown["scores"] == ("map", "String", "Double", False)
    assert shown["total"] == ("reducing", None, "Long", False)
    assert shown["avg"] == ("aggregating", None, "Tuple2<Long, Long>", False)
    assert shown["session"] == ("value", None, "String", True)
    assert shown["_timer_state/event_user-timers"] == ("timers", None, None, False)
    assert {state["key_type"] for state in states.values()} == {"Long"}


def test_the_heaviest_key_groups() -> None:
    """Those with the most bytes, the heaviest first."""
    groups = operator(inspected(WORDS), "counter")["key_groups"]
    sizes = [group["bytes"] for group in groups["heaviest"]]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == 5
    held = state_of(inspected(WORDS), "counter", "count")
    assert groups["with_data"] == len(held["key_groups"])
    entries = {key_group["key_group"]: key_group["entries"] for key_group in held["key_groups"]}
    assert all(group["entries"] == entries[group["key_group"]] for group in groups["heaviest"])


def test_key_groups_of_rocksdb_are_counted_or_marked_as_estimated() -> None:
    """As the report counts them; without counting nothing is said of how many have data."""
    counted = operator(inspected(NATIVE), "kinds")["key_groups"]
    rows = open_snapshot(str(NATIVE)).operator("kinds").keyed_states
    held = {group for state in rows for group in state.to_arrow()["key_group"].to_pylist()}
    assert counted["estimated"] is False
    assert counted["with_data"] == len(held) < 128
    estimated = operator(inspected(NATIVE, "--no-entries"), "kinds")["key_groups"]
    assert (estimated["estimated"], estimated["with_data"]) == (True, None)
    assert "entries" not in estimated["heaviest"][0]
    printed = run("inspect", NATIVE, "--no-entries").out
    assert "are estimated from the indexes of RocksDB's files" in printed
    assert "key groups have data" not in printed


def test_what_if() -> None:
    """Another parallelism: who would get what, and how evenly."""
    subtasks = operator(inspected(WORDS, "--parallelism", 5), "counter")["subtasks"]
    assert list(subtasks) == ["now", "then"]
    then = subtasks["then"]
    assert then["parallelism"] == len(then["subtasks"]) == 5
    assert sum(subtask["entries"] for subtask in then["subtasks"]) == 300
    assert [subtask["first"] for subtask in then["subtasks"]] == [0, 26, 52, 77, 103]
    assert then["skew"] >= 1
    sizes = [subtask["state_bytes"] for subtask in then["subtasks"]]
    assert then["skew"] == pytest.approx(max(sizes) * 5 / sum(sizes), abs=0.001)


def test_counting_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without entries no state is walked, so it takes no longer for a large snapshot."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("statelake.state_core.formats.describing.measure_operator", never)
    report = inspected(WORDS, "--no-entries")
    assert "entries" not in state_of(report, "counter", "count")
    monkeypatch.setattr("statelake.state_core.formats.describing.AUTO_COUNT_BYTES", 10)
    assert inspected(WORDS) == report


def test_uids_of_flink_1() -> None:
    """A uid that is given is recognised by its hash."""
    old = golden("wordcount-hashmap-canonical-p2-m128-flink1.20.0").snapshot
    assert {operator["operator-uid"] for operator in inspected(old)["operators"]} == {None}
    found = operator(inspected(old, "--uid", "counter", "--uid", "nobody"), "counter")
    assert found["operator-name"] is None
    assert "count" in {keyed_state["name"] for keyed_state in found["keyed_states"]}


def test_the_metadata_file_itself(tmp_path: Path) -> None:
    """A path to `_metadata` is as good as its directory; a directory can be moved."""
    shutil.copytree(WORDS, tmp_path / "moved")
    report = inspected(tmp_path / "moved" / "_metadata")
    assert report == inspected(tmp_path / "moved")
    assert report["operators"] == inspected(WORDS)["operators"]


def test_for_people() -> None:
    """Everything that matters is in the text, too."""
    ran = run("inspect", WINDOWS, "--parallelism", 4)
    assert (ran.code, ran.err) == (0, "")
    for said in (
        "canonical savepoint, checkpoint 1, _metadata version 6, compression none, 33.1 KiB",
        "tumbling", "sliding", "window-contents", "TimeWindow", "key groups have data; skew",
        "at parallelism 2", "what if at parallelism 4", "heaviest:",
    ):  # fmt: skip
        assert said in ran.out
    assert str(WINDOWS) in ran.out.replace("\n", "")


def test_raw_state_is_listed(tmp_path: Path) -> None:
    """What only the job can read has a size, and is named for people."""
    source = raw_savepoint(tmp_path / "raw")
    report = inspected(source)
    sizes = [operator["raw_state_bytes"] for operator in report["operators"]]
    subtasks = len(open_snapshot(source).metadata.operators[0].subtasks)
    assert sizes[0] == subtasks * (source / "opaque").stat().st_size
    assert not any(sizes[1:])
    assert " raw" in run("inspect", source).out


def test_operator_state_is_named() -> None:
    """Operator states with their redistribution mode and elements."""
    report = inspected(golden("operator-hashmap-canonical-p2-m128-flink2.3.0").snapshot)
    states = [state for operator in report["operators"] for state in operator["operator_states"]]
    assert states
    assert all(list(state)[:5] == ["name", "mode", "value_type", "elements", "subtasks"]
               for state in states)  # fmt: skip
    assert [state["key_type"] for state in states if state["mode"] == "BROADCAST"] == ["String"]
    assert {state["mode"] for state in states} >= {"SPLIT_DISTRIBUTE", "UNION", "BROADCAST"}


def test_operator_state_has_entries_and_bytes() -> None:
    """As keyed state, in text and as JSON: elements, or of a broadcast state those of one copy."""
    source = golden("operator-hashmap-canonical-p2-m128-flink2.3.0").snapshot
    states = [state for operator in open_snapshot(source).operators
              for state in operator.operator_states]  # fmt: skip
    described = [state for operator in inspected(source)["operators"]
                 for state in operator["operator_states"]]  # fmt: skip
    for state, shown in zip(states, described, strict=True):
        assert shown["entries"] == len(state.to_arrow())
        assert shown["bytes"] > 0
        assert re.search(
            rf"\n{state.name} .* {shown['entries']:,} +[\d.]+ K?i?B", run("inspect", source).out
        )
    uncounted = run("inspect", source, "--json", "--no-entries").json["operators"]
    assert not any("bytes" in state for each in uncounted for state in each["operator_states"])


POJO = golden("pojo-hashmap-canonical-p2-m128-flink1.20.0").snapshot
OLD_WORDS = golden("wordcount-hashmap-canonical-p2-m128-flink1.20.0").snapshot


class TestSchema:
    """`--schema` lists what values are made of, field by field."""

    def test_a_pojos_fields(self) -> None:
        """Each field with its type, in a tree for scripts and by whole names for people."""
        report = inspected(POJO, "--schema")
        told = run("inspect", POJO, "--schema").out
        seen = 0
        for shown, read in zip(report["operators"], open_snapshot(POJO).operators, strict=True):
            for described, state in zip(shown["keyed_states"], read.keyed_states, strict=True):
                names = [name for name in state.schema.names if not name.startswith("raw_")]
                assert [column["name"] for column in described["columns"]] == names
                for column in described["columns"]:
                    kind = state.schema.field(column["name"]).type
                    if pa.types.is_struct(kind):
                        assert [field["name"] for field in column["fields"]] == [
                            field.name for field in kind
                        ]
                        for field in kind:
                            seen += 1
                            assert f"  {state.name}.{column['name']}.{field.name}: " in told
        assert seen > 5

    def test_only_when_asked(self) -> None:
        """Without it nothing is longer than it was."""
        assert "columns" not in str(inspected(KINDS)["operators"][0]["keyed_states"][0].keys())

    def test_maps_and_lists(self) -> None:
        """Of a map's keys and values, and a list's elements, too."""
        (scores,) = (
            state["columns"]
            for state in operator(inspected(KINDS, "--schema"), "kinds")["keyed_states"]
            if state["name"] == "scores"
        )
        assert {column["name"]: column["type"] for column in scores} == {
            "key_group": "int32", "namespace": "string", "key": "int64", "user_key": "string",
            "value": "double",
        }  # fmt: skip


def test_operators_without_a_uid_are_told_of() -> None:
    """Flink 1 writes no uids: people are told of `--uid`, and no more once it is given."""
    hint = "operators with state have no uid in the snapshot"
    told = " ".join(run("inspect", OLD_WORDS).out.split())
    assert f"1 of 1 {hint}" in told
    assert "with --uid" in told
    assert hint not in run("inspect", OLD_WORDS, "--uid", "counter").out
    assert hint not in run("inspect", KINDS).out


def test_types_are_those_of_types() -> None:
    """`--types` says of each state what `statelake types` says, and names Flink's serializers."""
    told = run("inspect", KINDS, "--types").out
    said = {
        f"{each['operator']}/{state['state']}": state
        for each in run("types", KINDS, "--json").json["operators"]
        for state in each["states"]
    }
    compared = 0
    for each in inspected(KINDS, "--types")["operators"]:
        label = each["operator-uid"] or each["operator-uid-hash"]
        for state in (*each["keyed_states"], *each["operator_states"]):
            if state.get("kind") == "timers":
                assert "types" not in state
                continue
            types, expected = state["types"], said[f"{label}/{state['name']}"]
            for name in ("type", "type_name", "kind"):
                assert types[name] == expected[name]
            assert types["serializers"]["value"].startswith("org.apache.flink.")
            assert f"  {state['name']}: type: " in told
            compared += 1
    assert compared == len(said) > 5


def test_a_plan_names_operators_keys_and_columns(tmp_path: Path) -> None:
    """Of a Flink SQL job, as its query does; `get` takes what a GROUP BY is by."""
    savepoint, (plan, other) = unpack_sql_job("shop", tmp_path / "shop"), unpack_sql_plans(tmp_path)
    told = run("inspect", savepoint, "--plan", plan).out
    assert (
        "GroupAggregate[4]: GroupAggregate(groupBy=[shop], select=[shop, COUNT(amount) AS" in told
    )
    assert "keyed by RowData<shop VARCHAR(2147483647)>" in told
    assert "RowData<count_amount BIGINT, sum_amount BIGINT>" in told
    operators = inspected(savepoint, "--plan", plan)["operators"]
    assert {each["node"] for each in operators if each["keyed_states"]} == {
        "GroupAggregate[4]", "Join[11]",
    }  # fmt: skip
    assert all("node" not in each for each in inspected(savepoint)["operators"])
    named = ("--plan", plan, "--operator", "GroupAggregate[4]", "--json")
    (row,) = run("get", savepoint, "--key", "shop-1", *named).json
    assert row["key"] == {"shop": "shop-1"}
    assert row["value"] == {"count_amount": 8, "sum_amount": 284}
    refused = run("inspect", savepoint, "--plan", other)
    assert refused.code == 3
    assert "is no operator of the plan" in refused.err
    lake = ("--lake", tmp_path / "lake", "--job", "shop", "--plan", plan)
    assert run("get", "--key", "shop-1", *lake).code == 2
