"""The state of a SQL query: GROUP BY with COUNT, SUM, MAX, COUNT DISTINCT, AVG and MIN."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pyarrow as pa
import pytest

from statelake import open_snapshot
from statelake.state_core.formats.layout.keyed_states import parse_keyed_state
from statelake.state_core.model.key_groups import key_groups_of_hashes
from statelake.state_core.model.snapshot import Operator, StateKind
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

CASES = golden_cases("sql")
GROUPS = 50
NOTHING = b"\0"  # what a view in state leaves in the accumulator

every_case = pytest.mark.parametrize("golden", CASES, ids=[case.name for case in CASES])


def aggregate(golden: GoldenCase) -> Operator:
    """The operator of the query that has keyed state."""
    (found,) = (
        operator for operator in open_snapshot(golden.snapshot).operators if operator.keyed_states
    )
    return found


def rows(golden: GoldenCase, state: str) -> list[dict[str, Any]]:
    """The rows of one state."""
    found: list[dict[str, Any]] = aggregate(golden).state(state).to_arrow().to_pylist()
    return found


def test_both_backends_are_here() -> None:
    """There is a savepoint of each backend, one of them compressed."""
    facts = [(case.facts["backend"], case.facts["compression"]) for case in CASES]
    assert sorted(facts) == [("hashmap", False), ("rocksdb", True)]


@every_case
def test_every_state_has_its_types(golden: GoldenCase) -> None:
    """Accumulators, the view of distinct values and its null, timers: all by their SQL types."""
    found = {
        state.name: (state.kind, state.key_type, state.user_key_type, state.value_type)
        for state in aggregate(golden).keyed_states
    }
    view = "RAW('org.apache.flink.table.api.dataview.MapView', ...)"
    fields = (
        f"BIGINT, INT, VARCHAR(2147483647), BIGINT, DECIMAL(38, 2), BIGINT, TIMESTAMP(6), {view}"
    )
    key = "RowData<BIGINT>"
    assert found == {
        "accState": (StateKind.VALUE, key, "", f"RowData<{fields}>"),
        "distinctAcc_0": (StateKind.MAP, key, "StringData", "Long"),
        "distinctAcc_0_null_state": (StateKind.VALUE, key, "", "Long"),
        "_timer_state/processing_user-timers": (StateKind.TIMERS, key, "", ""),
        "_timer_state/event_user-timers": (StateKind.TIMERS, key, "", ""),
    }
    value = aggregate(golden).state("accState").schema.field("value").type
    assert [item.type for item in value] == [
        pa.int64(), pa.int32(), pa.string(), pa.int64(), pa.decimal128(38, 2), pa.int64(),
        pa.timestamp("us"), pa.binary(),
    ]  # fmt: skip


@every_case
def test_accumulators_mean_what_the_query_says(golden: GoldenCase) -> None:
    """What Flink emits when one more row of each group arrives follows from the state."""
    states = {row["key"]["f0"]: row["value"] for row in rows(golden, "accState")}
    assert sorted(states) == list(range(GROUPS))
    expected = {entry["k"]: entry["row"] for entry in golden.expected()}
    assert sorted(expected) == sorted(states)
    for key, held in states.items():
        count, total, last, distinct, prices, priced, first, view = held.values()
        average = (prices + key) / Decimal(priced + 1)
        average = average.quantize(Decimal("0.000001"), ROUND_HALF_UP)
        moment = first.isoformat().removesuffix(":00")
        emitted = [key, count + 1, total + 3 * key, last, distinct, average, moment]
        assert expected[key] == f"+U[{', '.join(map(str, emitted))}]"
        assert view == NOTHING
        start = datetime(2024, 1, 1, tzinfo=timezone.utc).replace(tzinfo=None)
        assert first == start + timedelta(seconds=key)


@every_case
def test_distinct_values_are_counted(golden: GoldenCase) -> None:
    """COUNT DISTINCT is the number of entries in the map state beside; no group has a null."""
    counted = Counter(row["key"]["f0"] for row in rows(golden, "distinctAcc_0"))
    states = {row["key"]["f0"]: row["value"]["f3"] for row in rows(golden, "accState")}
    assert dict(counted) == states
    assert {row["value"] for row in rows(golden, "distinctAcc_0")} == {1}
    assert rows(golden, "distinctAcc_0_null_state") == []


@every_case
def test_nothing_needs_exact_bytes(golden: GoldenCase) -> None:
    """The columns hold everything that Flink wrote."""
    for state in aggregate(golden).keyed_states:
        table = state.to_arrow()
        raw = [name for name in table.schema.names if name.startswith("raw_")]
        assert all(table.column(name).null_count == len(table) for name in raw)


@every_case
def test_keys_lie_where_their_bytes_hash_to(golden: GoldenCase) -> None:
    """The key group of a row follows from the murmur hash of its key's binary form."""
    operator = aggregate(golden)
    seen = set()
    for state in operator.keyed_states:
        _, layout = parse_keyed_state(state.meta_info, operator.keyed_files[0].key_serializer)
        table = state.to_arrow().combine_chunks()
        codes = layout.key.hash_codes(table.column("key").combine_chunks())
        groups = key_groups_of_hashes(codes, operator.max_parallelism).tolist()
        assert table.column("key_group").to_pylist() == groups
        seen |= set(groups)
    assert len(seen) > GROUPS // 2
