"""State of the operators of Flink SQL: all that a job of seventeen queries keeps has its types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from statelake import open_snapshot
from statelake.state_core.formats.layout.keyed_states import parse_keyed_state
from statelake.state_core.model.key_groups import key_groups_of_hashes
from statelake.state_core.model.snapshot import KeyedState, Operator
from statelake.state_core.serializers import registered_classes
from tests.support.savepoints.golden_cases import golden_cases

(GOLDEN,) = golden_cases("queries")
OPERATORS = [
    operator for operator in open_snapshot(GOLDEN.snapshot).operators if operator.keyed_states
]
RUNTIME = "org.apache.flink.table.runtime."

# what each operator of `flink-table-runtime` 2.3.0 keeps, by name of the state
OF_OPERATORS = {
    "GroupAggregate": {
        "accState", "distinctAcc_0", "distinctAcc_0_null_state", "agg0$map", "agg1$list",
        "agg1$retractList", "agg2$orderToValueMap", "agg2$valueToOrderMap",
    },
    "Join": {"left-records", "right-records"},
    "Rank": {"data-state-with-append", "data-state", "sorted-map"},
    "Deduplicate": {"deduplicate-state"},
    "OverAggregate": {"accState", "inputState", "lastTriggeringTsState", "processedCountState"},
    "GroupWindowAggregate": {"window-aggs", "session-window-mapping"},
    "GlobalWindowAggregate": {"window-aggs", "distinctAcc_0", "distinctAcc_0_null_state"},
    "WindowRank": {"window_rank"},
    "IntervalJoin": {
        "IntervalJoinLeftCache", "IntervalJoinRightCache", "IntervalJoinLeftTimerState",
        "IntervalJoinRightTimerState",
    },
    "TemporalJoin": {"left", "right", "next-index", "timer"},
    "SinkMaterializer": {"highestSqnState", "rowToSqnState", "sqnToNodeState"},
}  # fmt: skip

# what the sources of Flink 2.3.0 write into state, whether or not a query here does
SNAPSHOT_CLASSES = [
    f"{RUNTIME}typeutils.{name}Serializer${name}SerializerSnapshot"
    for name in ("RowData", "BinaryRowData", "StringData", "TimestampData", "ArrayData", "MapData",
                 "RawValueData", "LinkedList", "External", "WindowKey")
] + [
    f"{RUNTIME}typeutils.DecimalDataSerializer$DecimalSerializerSnapshot",
    f"{RUNTIME}typeutils.SortedMapSerializerSnapshot",
    *(f"{RUNTIME}operators.window.{name}$Serializer${name}SerializerSnapshot"
      for name in ("TimeWindow", "CountWindow", "GlobalWindow")),
    f"{RUNTIME}operators.sink.SortedLongSerializer$SortedLongSerializerSnapshot",
    *(f"{RUNTIME}sequencedmultisetstate.linked.{name}Serializer${name}SerializerSnapshot"
      for name in ("MetaSqnInfo", "RowSqnInfo", "Node")),
    f"{RUNTIME}sequencedmultisetstate.linked.RowDataKeySerializerSnapshot",
    *(f"org.apache.flink.table.dataview.{name}"
      for name in ("NullSerializer$NullSerializerSnapshot", "MapViewSerializerSnapshot",
                   "ListViewSerializerSnapshot", "NullAwareMapSerializerSnapshot")),
]  # fmt: skip


def states() -> list[tuple[Operator, KeyedState]]:
    """Every state but the timers."""
    return [
        (operator, state)
        for operator in OPERATORS
        for state in operator.keyed_states
        if state not in operator.timers
    ]


def kind_of(operator: Operator) -> str:
    """`Join` of `Join[32]`."""
    return operator.name.partition("[")[0]


def state_of(operator: str, name: str) -> list[dict[str, Any]]:
    """The rows of the one state of that name, of an operator of that kind."""
    (found,) = (
        state
        for owner, state in states()
        if kind_of(owner) == operator and state.name == name and len(state.to_arrow())
    )
    rows: list[dict[str, Any]] = found.to_arrow().to_pylist()
    return rows


@pytest.mark.parametrize("name", SNAPSHOT_CLASSES)
def test_snapshot_classes_are_known(name: str) -> None:
    """Each serializer of Flink SQL that can stand in state has its snapshot class."""
    assert name in registered_classes()


def test_operators_keep_what_their_sources_say() -> None:
    """The savepoint has every operator that keeps state, with its states and no others."""
    found: dict[str, set[str]] = {}
    for operator, state in states():
        found.setdefault(kind_of(operator), set()).add(state.name)
    assert found == OF_OPERATORS


def test_nothing_is_opaque() -> None:
    """No state has a key, namespace or value of which only bytes are known, but RAW values."""
    for operator, state in states():
        table = state.to_arrow()
        table.validate(full=True)
        for name in ("key", "user_key", "value"):
            if name in table.schema.names:
                assert table.schema.field(name).type != pa.binary(), (operator.name, state.name)


def test_keys_lie_where_their_bytes_hash_to() -> None:
    """All keys, those of no fields at all among them, are in the groups that their hashes give."""
    types = set()
    for operator, state in states():
        _, layout = parse_keyed_state(state.meta_info, operator.keyed_files[0].key_serializer)
        types.add(state.key_type)
        table = state.to_arrow()
        if len(table):
            codes = layout.key.hash_codes(table.column("key").combine_chunks())
            groups = key_groups_of_hashes(codes, operator.max_parallelism).tolist()
            assert table.column("key_group").to_pylist() == groups
    assert types == {"RowData<>", "RowData<BIGINT>", "RowData<INT>", "RowData<BIGINT NOT NULL>"}


def test_a_join_without_unique_keys_counts_rows() -> None:
    """Its state is a map from whole rows, as user keys, to how often they came."""
    (rows,) = (
        state.to_arrow().to_pylist()
        for owner, state in states()
        if kind_of(owner) == "Join"
        and "ARRAY" in state.user_key_type
        and state.value_type == "Integer"
    )
    assert len(rows) == 24
    (seventh,) = (row["user_key"] for row in rows if row["user_key"]["f0"] == 7)
    assert seventh["f1"] == 2
    assert seventh["f2"] == "größe-7"
    assert seventh["f6"] == ["a7", None]


def test_top_n_counts_by_sort_key() -> None:
    """A retracting Top-N has a sorted map of counts, whose comparator is the planner's code."""
    rows = state_of("Rank", "sorted-map")
    assert sum(count for row in rows for _, count in row["value"]) == 5
    for row in rows:
        keys = [key["f0"] for key, _ in row["value"]]
        assert keys == sorted(keys, reverse=True)


def test_sequenced_multiset_is_linked() -> None:
    """The upsert sink's nodes are a linked list, its ends null."""
    nodes = state_of("SinkMaterializer", "sqnToNodeState")
    assert all(row["value"]["prevSqn"] is None and row["value"]["sqn"] >= 0 for row in nodes)
    highest = {
        row["key"]["f0"]: row["value"] for row in state_of("SinkMaterializer", "highestSqnState")
    }
    assert {row["key"]["f0"]: row["value"]["sqn"] for row in nodes} == {
        key: value["highSqn"] for key, value in highest.items()
    }
    assert {value["size"] for value in highest.values()} == {1}


def test_row_kinds_keep_their_bytes() -> None:
    """What a deduplication remembers is an update, which the column does not say."""
    for _, state in states():
        if state.name == "deduplicate-state":
            table = state.to_arrow()
            assert len(table) == 5
            assert table.column("raw_value").null_count == 0
            assert {bytes(value)[4] for value in table.column("raw_value").to_pylist()} == {2}
