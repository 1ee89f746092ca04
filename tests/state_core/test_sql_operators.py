"""State of what Flink SQL has new since 2.1: records that wait, and process table functions."""

from __future__ import annotations

import lzma
from pathlib import Path

import pyarrow as pa
import pytest

from statelake import open_snapshot
from statelake.state_core.model.snapshot import KeyedState, StateKind
from tests.support.savepoints.golden_cases import GOLDEN

States = dict[str, dict[str, KeyedState]]


@pytest.fixture
def states(tmp_path: Path) -> States:
    """The states of each kind of operator, by name; of two of a kind those of both."""
    packed = (GOLDEN / "sqloperators" / "sqloperators.metadata.xz").read_bytes()
    (tmp_path / "_metadata").write_bytes(lzma.decompress(packed))
    states: States = {}
    for operator in open_snapshot(tmp_path).operators:
        kind = operator.name.partition("[")[0]
        if "input-sort-buffer-data-0" in {state.name for state in operator.keyed_states}:
            kind = "sorted"
        states.setdefault(kind, {}).update({state.name: state for state in operator.keyed_states})
    return states


def test_a_delta_join_keeps_the_records_that_wait(states: States) -> None:
    """Records of either input in the order in which they came, with the side of each."""
    (state,) = states["DeltaJoin"].values()
    assert state.name == "_delta_join_operator_async_wait_state_"
    waiting = {0: [], 1: []}  # type: dict[int, list[int]]
    for row in state.to_arrow().to_pylist():
        for element in row["value"]:
            side = element["f3"]
            record = element["f1" if side else "f0"]
            assert record["kind"] == "record"
            assert element["f2"]["kind"] == "watermark"
            assert record["value"]["f1"] == row["key"]["f0"]
            waiting[side].append(record["value"]["f0"])
    assert sorted(waiting[0]) == sorted(waiting[1]) == list(range(12))


def test_a_lookup_in_the_order_of_keys_keeps_the_records_that_wait(states: States) -> None:
    """Records by their key, each with the watermark before it."""
    (state,) = states["LookupJoin"].values()
    assert state.name == "_keyed_async_wait_operator_state_"
    rows = state.to_arrow().to_pylist()
    assert [row["key"]["f0"] for row in rows] == [
        row["value"][0]["f0"]["value"]["f0"] for row in rows
    ]
    latest = {row["key"]["f0"]: row["value"][-1]["f0"]["value"]["f1"] for row in rows}
    assert latest == {0: 20, 1: 21, 2: 22, 3: 23, 4: 19}


def test_process_table_functions_have_all_forms_of_state(states: States) -> None:
    """A value, a list, a map, and timers with a name and without."""
    function = states["ProcessTableFunction"]
    assert function["seen"].value_type == "RowData<VARCHAR(2147483647), BIGINT NOT NULL>"
    seen = {row["key"]["f0"]: row["value"]["f1"] for row in function["seen"].to_arrow().to_pylist()}
    assert seen == {0: 5, 1: 5, 2: 5, 3: 5, 4: 4}
    ids = {row["key"]["f0"]: row["value"] for row in function["ids"].to_arrow().to_pylist()}
    assert ids == {group: list(range(group, 24, 5)) for group in range(5)}
    names = function["names"]
    assert (names.kind, names.user_key_type) == (StateKind.MAP, "StringData")
    assert sorted(names.to_arrow()["value"].to_pylist()) == [k for k in range(24) if k % 5]
    timers = function["_timer_state/event_user-named-timers"].to_arrow()
    named = function["internal-named-timers-map"].to_arrow()
    assert timers["namespace"].to_pylist() == ["after-a-day"] * 5
    assert sorted(timers["timestamp"].to_pylist()) == sorted(named["value"].to_pylist())
    assert function["_timer_state/event_user-unnamed-timers"].to_arrow().num_rows == 24


def test_a_variant_in_a_row_is_its_bytes(states: States) -> None:
    """The length of its metadata, that, and its value."""
    table = states["Join"]["left-records"].to_arrow()
    rows = pa.array(table["user_key"].to_pylist()).flatten()
    assert sorted(rows[1].to_pylist()) == [
        b"\x00\x00\x00\x06\x01\x01\x00\x02id\x02\x01\x00\x00\x02\x0c" + bytes([number])
        for number in range(3)
    ]


def test_a_sorted_input_is_buffered_by_time(states: States) -> None:
    """Rows after the watermark, in lists by their time."""
    buffer = states["sorted"]["input-sort-buffer-data-0"]
    assert buffer.user_key_type == "SortedLong"
    rows = buffer.to_arrow().to_pylist()
    times = {row["value"][0]["f0"]: row["user_key"] for row in rows}
    assert times == {k: 1_700_000_000_000 + k * 1000 for k in range(19, 24)}


def test_an_order_that_is_no_time_is_a_list_of_ids(states: States) -> None:
    """Sums over it stand by the column that orders, rows by an id, and the order is a list."""
    over = states["OverAggregate"]
    assert over["sortedListState"].value_type == (
        "List<Tuple2<RowData<VARCHAR(2147483647)>, List<Long>>>"
    )
    assert over["accMapState"].user_key_type == "RowData<VARCHAR(2147483647)>"
    ids = {
        (row["key"]["f0"], row["user_key"]) for row in over["valueMapState"].to_arrow().to_pylist()
    }
    listed = {
        (row["key"]["f0"], number)
        for row in over["sortedListState"].to_arrow().to_pylist()
        for element in row["value"]
        for number in element["f1"]
    }
    assert ids == listed
    assert len(ids) == 24


def test_a_sink_that_refuses_conflicts_keeps_the_row_of_each_key(states: States) -> None:
    """Its rows are those that the sink has; none waits for a watermark."""
    sink = states["SinkMaterializer"]
    assert sink["watermark-buffer"].user_key_type == "SortedLong"
    rows = sink["current-value"].to_arrow().to_pylist()
    assert {row["value"]["f0"] for row in rows} == set(range(5))
    assert [row["key"]["f0"] for row in rows] == [row["value"]["f0"] for row in rows]


def test_other_new_operators_have_their_types(states: States) -> None:
    """A sum ordered by time, the first row of each key, and a sink with its rows in one list."""
    over = states["OverAggregate"]
    assert over["accState"].value_type == "RowData<BIGINT, DECIMAL(38, 2)>"
    late = over["inputState"].to_arrow()["value"].to_pylist()
    assert sorted(row["f0"] for rows in late for row in rows) == list(range(19, 24))
    first = states["Deduplicate"]["already-emitted-state-boolean"].to_arrow()
    assert first["value"].to_pylist() == [True] * 5
    listed = states["SinkMaterializer"]["list"]
    assert listed.value_type == "List<Tuple2<RowData<BIGINT NOT NULL, DECIMAL(38, 2)>, Long>>"
    rows = listed.to_arrow().to_pylist()
    assert [row["value"][0]["f0"]["f0"] for row in rows] == [row["key"]["f0"] for row in rows]
