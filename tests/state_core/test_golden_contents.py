"""What we read of real snapshots is what Flink itself sees in them, to the last value."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from statelake.state_core.formats.layout.keyed_states import parse_keyed_state
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.key_groups import key_group_ranges, key_groups_of_hashes
from statelake.state_core.model.snapshot import KeyedState, Operator, StateKind
from tests.support.savepoints.expected_contents import (
    FAR,
    UIDS,
    assert_contents,
    open_golden,
    tables_of,
)
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

CASES = golden_cases(*UIDS)
KINDS = golden_cases("kinds")
STEP, BASE = 2654435761, -(1 << 40)
YEARS_2020_TO_2100 = (1_577_836_800_000, 4_102_444_800_000)

every_case = pytest.mark.parametrize("golden", CASES, ids=[case.name for case in CASES])
every_kinds = pytest.mark.parametrize("golden", KINDS, ids=[kind.name for kind in KINDS])


def keyed_states(golden: GoldenCase) -> list[tuple[Operator, KeyedState]]:
    """Every keyed state of a case."""
    operators = open_golden(golden).operators
    return [(operator, state) for operator in operators for state in operator.keyed_states]


def test_there_are_cases_of_every_backend_form_and_version() -> None:
    """The golden data covers both backends, all forms, compression and both Flink versions."""
    facts = [case.facts for case in CASES]
    assert {fact["backend"] for fact in facts} == {"hashmap", "rocksdb"}
    assert {fact["format"] for fact in facts} >= {"canonical", "native", "checkpoint"}
    assert {fact["compression"] for fact in facts} == {False, True}
    assert {fact["flink"] for fact in facts} == {"1.20.0", "2.3.0"}


@every_case
@pytest.mark.full
def test_contents_are_what_flink_sees(golden: GoldenCase) -> None:
    """Tables put together as the job prints them are Flink's own lines."""
    assert_contents(golden, tables_of(open_golden(golden)))


@pytest.mark.thinned(2)
@every_case
@pytest.mark.full
def test_reading_in_batches_gives_the_same_rows(golden: GoldenCase) -> None:
    """`batches` and `to_arrow` give the same rows, however many threads decode."""
    for _, state in keyed_states(golden):
        whole = state.to_arrow(threads=1)
        assert state.to_arrow(threads=3).equals(whole)
        assert pa.Table.from_batches(state.batches(), state.schema).equals(whole)
        whole.validate(full=True)


@every_case
@pytest.mark.full
def test_keys_lie_where_their_hash_says(golden: GoldenCase) -> None:
    """Each row's key group is that of its key's Java hash code, and its subtask owns it."""
    for operator, state in keyed_states(golden):
        table = state.to_arrow()
        _, layout = parse_keyed_state(state.meta_info, state.files[0][0].key_serializer)
        keys = table.column("key").combine_chunks()
        codes = layout.key.hash_codes(keys)
        groups = key_groups_of_hashes(codes, operator.max_parallelism)
        assert table.column("key_group").to_pylist() == groups.tolist()
        ranges = key_group_ranges(operator.max_parallelism, operator.parallelism)
        assert [file.key_groups for file, _ in state.files] == ranges


@every_case
def test_key_groups_can_be_asked_for(golden: GoldenCase) -> None:
    """A range of key groups gives its rows and no others; ranges add up to the whole."""
    operator, state = keyed_states(golden)[0]
    whole = state.to_arrow()
    cut = operator.max_parallelism // 3
    first = state.to_arrow(KeyGroupRange(0, cut))
    rest = state.to_arrow(KeyGroupRange(cut + 1, operator.max_parallelism - 1))
    assert pc.max(first["key_group"]).as_py() <= cut < pc.min(rest["key_group"]).as_py()
    assert pa.concat_tables([first, rest]).sort_by("key").equals(whole.sort_by("key"))
    assert len(state.to_arrow(KeyGroupRange(5, 4))) == 0


@every_case
@pytest.mark.full
def test_schemas_promise_what_tables_have(golden: GoldenCase) -> None:
    """Typed columns all through: no state of these jobs falls back to bytes."""
    for _, state in keyed_states(golden):
        table = state.to_arrow()
        assert table.schema == state.schema
        assert pa.binary() not in [
            field.type for field in state.schema if not field.name.startswith("raw_")
        ]
        raw = [name for name in ("raw_key", "raw_value") if name in state.schema.names]
        assert all(table.column(name).null_count == len(table) for name in raw)


@every_kinds
def test_each_kind_of_state_is_told_apart(golden: GoldenCase) -> None:
    """Kinds and Java types come from the snapshot."""
    found = {state.name: state for _, state in keyed_states(golden)}
    kinds = {name: state.kind for name, state in found.items() if "timer" not in name}
    assert kinds == {
        "name": StateKind.VALUE,
        "items": StateKind.LIST,
        "scores": StateKind.MAP,
        "total": StateKind.REDUCING,
        "avg": StateKind.AGGREGATING,
        "triple": StateKind.VALUE,
        "row": StateKind.VALUE,
        "session": StateKind.VALUE,
    }
    assert {state.key_type for state in found.values()} == {"Long"}
    assert {state.namespace_type for state in found.values()} == {"VoidNamespace"}
    assert found["triple"].value_type == "Tuple3<Integer, String, Boolean>"
    assert (found["scores"].user_key_type, found["scores"].value_type) == ("String", "Double")
    assert [name for name, state in found.items() if state.with_ttl] == ["session"]


@every_kinds
def test_times_of_last_access_are_there(golden: GoldenCase) -> None:
    """State with time to live has its times beside its values, in milliseconds since 1970."""
    (session,) = (state for _, state in keyed_states(golden) if state.name == "session")
    ttl = session.to_arrow().column("ttl")
    low, high = YEARS_2020_TO_2100
    assert ttl.null_count == 0
    assert low < pc.min(ttl).as_py() <= pc.max(ttl).as_py() < high


@every_kinds
def test_processing_time_timers_are_there(golden: GoldenCase) -> None:
    """Timers of processing time, which no watermark fires, are those that the job registered."""
    operator = open_golden(golden).operator("kinds")
    services = {state.timer_service: state for state in operator.timers}
    assert set(services) == {("processing", "user-timers"), ("event", "user-timers")}
    rows = services["processing", "user-timers"].to_arrow().to_pylist()
    found = {(row["timestamp"], row["key"], row["namespace"]) for row in rows}
    assert len(rows) == len(found)
    assert found == {(FAR + k, BASE + k * STEP, None) for k in range(0, golden.facts["keys"], 3)}


@pytest.mark.parametrize("golden", golden_cases("windows"), ids=lambda case: case.name)
def test_windows_have_a_timer_each(golden: GoldenCase) -> None:
    """A timer at the last millisecond of each window with contents, under key and window."""
    tables = tables_of(open_golden(golden))
    for uid in UIDS["windows"]:
        contents = tables[uid, "window-contents"].to_pylist()
        timers = tables[uid, "_timer_state/event_window-timers"].to_pylist()
        windows = {(row["key"], *row["namespace"].values()) for row in contents}
        fire = {(row["key"], *row["namespace"].values()): row["timestamp"] for row in timers}
        assert len(windows) == len(contents)
        assert fire == {window: window[-1] - 1 for window in windows}


@pytest.mark.parametrize("golden", golden_cases("windows"), ids=lambda case: case.name)
def test_window_elements_are_whole(golden: GoldenCase) -> None:
    """The elements of each sliding window are the numbers of its key within it, in order."""
    for row in tables_of(open_golden(golden))["sliding", "window-contents"].to_pylist():
        remainder = int(row["key"][1:])
        start, end = row["namespace"]["start"], row["namespace"]["end"]
        numbers = np.arange(golden.facts["keys"])
        held = numbers[(numbers % 40 == remainder) & (numbers * 1000 >= start)]
        assert row["value"] == held[held * 1000 < end].tolist()


@pytest.mark.parametrize("golden", golden_cases("churn"), ids=lambda case: case.name)
def test_deleted_entries_are_gone(golden: GoldenCase) -> None:
    """Keys that the job deleted altogether have no row, though files may still hold them."""
    tables = tables_of(open_golden(golden))
    emptied = {
        line["key"] for line in golden.expected() if line["last"] is None and not line["log"]
    }
    assert emptied
    for name in ("last", "log"):
        assert emptied.isdisjoint(tables["churn", name].column("key").to_pylist())
