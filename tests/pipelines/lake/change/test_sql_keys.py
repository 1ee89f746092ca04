"""Keys of a Flink SQL job that move: in another order, of wider types, with their timers."""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import statelake as sl
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.change.changes import TtlChange, ValueChange
from statelake.pipelines.lake.change.migrating import migrate_snapshot
from statelake.pipelines.lake.change.sql_rows import merged_column
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.edit.sql_editing import edit_by_sql
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest import importing
from statelake.pipelines.lake.tables import file_spans as units
from statelake.state_core.errors import UnwalkableError
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.formats.writing.new_snapshot import write_snapshot
from statelake.state_core.formats.writing.new_states import NewKeyedState, NewOperator
from statelake.state_core.serializers.sql.binary.projected import projected_row
from statelake.state_core.serializers.sql.row_data import RowDataSerializerSnapshot
from statelake.state_core.serializers.sql.types.logical_type_parser import parse_logical_type
from statelake.state_core.serializers.type_spec import parse_type
from tests.integration.flink.sql_versions import GOLDEN
from tests.support.command import run
from tests.support.lakes import LOCAL, import_as
from tests.support.savepoints.sql_jobs import grouping_sets_plan

KEYS = {"a": "INT", "b": "VARCHAR(5)", "c": "DECIMAL(9, 2)"}
WIDER = {"a": "BIGINT", "b": "VARCHAR(2147483647)", "c": "DECIMAL(20, 2)"}
GROUPS = 3000


def plan(to: Path, keys: list[str], types: dict[str, str], calls: list[str] | None = None) -> Path:
    """The plan of counts and sums, by some keys in an order."""
    calls = ["$COUNT$1", "$SUM$1"] if calls is None else calls
    columns = [*(f"`{key}` {types[key]}" for key in keys), "`v` BIGINT"]
    results = [f"`x{index}` BIGINT" for index in range(len(calls))]
    content = {
        "flinkVersion": "2.3",
        "nodes": [
            {
                "id": 1, "type": "stream-exec-table-source-scan_2",
                "scanTableSource": {"table": {"identifier": "`c`.`d`.`o`"}},
                "outputType": f"ROW<{', '.join(columns)}>",
            },
            {
                "id": 6, "type": "stream-exec-group-aggregate_1",
                "grouping": list(range(len(keys))), "needRetraction": False,
                "aggCalls": [{"internalName": call, "argList": [len(keys)], "type": "BIGINT"}
                             for call in calls],
                "aggCallNeedRetractions": [False] * len(calls),
                "outputType": f"ROW<{', '.join([*columns[:-1], *results])}>",
            },
        ],
        "edges": [{"source": 1, "target": 6}],
    }  # fmt: skip
    to.write_text(json.dumps(content))
    return to


@pytest.fixture
def rows() -> list[tuple[Any, ...]]:
    """Keys with nulls in each column, and an accumulator each."""
    random = Random(7)
    found = {
        (
            random.choice([None, *range(-9, 40)]),
            random.choice([None, "", "x", "seven", "ä€𝄞"]),
            random.choice([None, Decimal(random.randrange(-9999, 9999)).scaleb(-2)]),
        )
        for _ in range(GROUPS)
    }
    return [(*key, number, number * 3) for number, key in enumerate(sorted(found, key=repr))]


@pytest.fixture
def savepoint(rows: list[tuple[Any, ...]], tmp_path: Path) -> Path:
    """A savepoint of groups by all of them, each with a timer."""
    key = pa.array([dict(zip(("f0", "f1", "f2"), row, strict=False)) for row in rows],
                   pa.struct([("f0", pa.int32()), ("f1", pa.string()),
                              ("f2", pa.decimal128(9, 2))]))  # fmt: skip
    times = pa.array(range(len(rows)), pa.int64())
    value = pa.array([{"f0": row[3], "f1": row[4]} for row in rows])
    spec = {"row_data": list(KEYS.values())}
    states = (
        NewKeyedState("accState", pa.table({"key": key, "value": value}),
                      value={"row_data": ["BIGINT", "BIGINT"]}),
        NewKeyedState.timers("event", pa.table({"key": key, "timestamp": times})),
    )  # fmt: skip
    operator = NewOperator("6_group-aggregate", spec, states, parallelism=3, max_parallelism=128)
    write_snapshot(tmp_path / "savepoint", [operator])
    return tmp_path / "savepoint"


def held(location: str | Path) -> tuple[list[Any], list[Any]]:
    """The keys and accumulators of a savepoint, and the keys and times of timers."""
    (operator,) = sl.open_snapshot(location).operators
    values = operator["accState"].to_arrow().to_pylist()
    (queue,) = (state for state in operator.keyed_states if state.kind.value == "timers")
    timed = queue.to_arrow().to_pylist()
    return (
        [(*row["key"].values(), *row["value"].values()) for row in values],
        [(*row["key"].values(), row["timestamp"]) for row in timed],
    )


@pytest.mark.parametrize("file_bytes", [units.FILE_BYTES, 2000])
@pytest.mark.full
def test_keys_move_with_all_that_they_have(
    file_bytes: int,
    savepoint: Path,
    rows: list[tuple[Any, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each entry and timer is in the key group of its new key, in tables of one file or many."""
    monkeypatch.setattr(units, "FILE_BYTES", file_bytes)
    old = plan(tmp_path / "old.json", ["a", "b", "c"], KEYS)
    new = plan(tmp_path / "new.json", ["c", "a", "b"], WIDER)
    shop = sl.Lake(tmp_path / "lake").job("shop")
    shop.import_snapshot(savepoint, "monday", plan=old)
    before = shop["monday"].record.operators[0]
    assert (len(before.tables[0].units) > 1) is (file_bytes == 2000)
    verdict = shop["monday"].check_sql(old, new)
    assert verdict.right
    (operator,) = verdict.operators
    assert operator.fate == "keeps"
    (why,) = operator.why
    assert why == (
        "its key moves: it was (o.a INT, o.b VARCHAR(5), o.c DECIMAL(9, 2)), and is (o.c"
        " DECIMAL(20, 2), o.a BIGINT, o.b VARCHAR(2147483647)); each entry and timer goes to the"
        " key group of its new key"
    )
    made = shop["monday"].sql_upgrade(old, new)
    assert made.made == "monday-sql"
    after = shop["monday-sql"].record.operators[0]
    assert (after.key_names, after.entries) == (["c", "a", "b"], before.entries)
    assert after.key_type == "RowData<DECIMAL(20, 2), BIGINT, VARCHAR(2147483647)>"
    named = shop["monday-sql"]["GroupAggregate[6]"]["accState"].to_arrow()
    assert [field.name for field in named.schema.field("key").type] == ["c", "a", "b"]
    shop["monday-sql"].export(tmp_path / "exported", parallelism=5)
    values, timed = held(tmp_path / "exported")
    assert sorted(values, key=repr) == sorted(((c, a, b, n, v) for a, b, c, n, v in rows), key=repr)
    assert sorted(timed, key=repr) == sorted(((c, a, b, n) for a, b, c, n, _ in rows), key=repr)
    assert run("check", "integrity", tmp_path / "exported").code == 0
    lake = ("--lake", tmp_path / "lake", "--job", "shop", "--snapshot", "monday-sql")
    assert run("check", "integrity", *lake).code == 0
    staged = [each for each in (tmp_path / "lake").rglob("*") if "staged" in each.parts]
    assert not staged


def test_keys_move_back(savepoint: Path, tmp_path: Path) -> None:
    """Two moves, into another order and back, are none."""
    old = plan(tmp_path / "old.json", ["a", "b", "c"], KEYS)
    new = plan(tmp_path / "new.json", ["b", "c", "a"], KEYS)
    there = sl.sql_upgrade(savepoint, tmp_path / "there", old, new)
    back = sl.sql_upgrade(there.made, tmp_path / "back", new, old)
    assert {each.fate for done in (there, back) for each in done.operators} == {"keeps"}
    one, other = held(savepoint), held(back.made)
    assert sorted(one[0], key=repr) == sorted(other[0], key=repr)
    assert sorted(one[1], key=repr) == sorted(other[1], key=repr)


def test_a_key_of_a_narrower_type_is_lost(savepoint: Path, tmp_path: Path) -> None:
    """And one whose values would be others."""
    old = plan(tmp_path / "old.json", ["a", "b", "c"], KEYS)
    for column, kind in (("a", "SMALLINT"), ("c", "DECIMAL(9, 1)"), ("a", "DOUBLE")):
        new = plan(tmp_path / "new.json", ["a", "b", "c"], {**KEYS, column: kind})
        (operator,) = sl.check_sql(savepoint, old, new).operators
        assert operator.fate == "lost"
        assert kind in operator.why[0]


@pytest.mark.parametrize("keys", [["a"], ["c", "b"], ["b"]])
@pytest.mark.parametrize(
    "file_bytes", [units.FILE_BYTES, pytest.param(2000, marks=pytest.mark.full)]
)
def test_groups_that_become_one_are_merged(
    keys: list[str],
    file_bytes: int,
    savepoint: Path,
    rows: list[tuple[Any, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each aggregate is that of all of them; of equal timers one stays."""
    monkeypatch.setattr(units, "FILE_BYTES", file_bytes)
    old = plan(tmp_path / "old.json", ["a", "b", "c"], KEYS)
    new = plan(tmp_path / "new.json", keys, WIDER, ["$MAX$1", "$SUM$1", "$COUNT$1"])
    done = sl.sql_upgrade(savepoint, tmp_path / "made", old, new, accept="partly")
    (operator,) = done.operators
    assert operator.fate == "starts now"
    assert operator.why[0].startswith("its groups merge: they were by (o.a INT, o.b VARCHAR(5)")
    values, timed = held(done.made)
    wanted: dict[Any, list[Any]] = {}
    times = set()
    for a, b, c, number, value in rows:
        key = tuple({"a": a, "b": b, "c": c}[name] for name in keys)
        group = wanted.setdefault(key, [None, 0, 0])
        group[1] += value
        group[2] += number
        times.add((*key, number))
    expected = [(*key, *group) for key, group in wanted.items()]
    assert sorted(values, key=repr) == sorted(expected, key=repr)
    assert sorted(timed, key=repr) == sorted(times, key=repr)
    assert run("check", "integrity", done.made).code == 0


@pytest.mark.parametrize(
    ("how", "kind", "held_", "merged"),
    [
        ("sum", pa.int64(), [(1 << 62) + 1, 1 << 62, None, None], [-(1 << 63) + 1, None]),
        ("sum", pa.int8(), [100, 100, None, 3], [-56, 3]),
        ("sum", pa.decimal128(38, 2), [Decimal("1.25"), Decimal("-2.50"), None, None],
         [Decimal("-1.25"), None]),
        ("sum", pa.float64(), [0.5, 0.25, None, 1.0], [0.75, 1.0]),
        ("min", pa.string(), ["𝄞", "ﬁ", "b", None], ["ﬁ", "b"]),  # by bytes, not UTF-16 units
        ("max", pa.string(), ["𝄞", "ﬁ", None, None], ["𝄞", None]),
        ("max", pa.decimal128(9, 2), [Decimal(1), Decimal(2), None, Decimal(-3)],
         [Decimal(2), Decimal(-3)]),
        ("max", pa.int64(), [3, 3, 2, 9], [3, 9]),
        ("min", pa.bool_(), [True, False, None, True], [False, True]),
        ("min", pa.date32(), [3, 2, None, 9], [2, 9]),
        ("min", pa.timestamp("ms"), [3, 2, None, 9], [2, 9]),
        ("first", pa.int64(), [7, 7, 7, 7], [7, 7]),
    ],
)  # fmt: skip
def test_columns_are_merged_as_flink_adds_them_up(
    how: str, kind: pa.DataType, held_: list[Any], merged: list[Any]
) -> None:
    """Numbers wrap around as in Java, NULL counts for nothing, text is compared by its bytes."""
    column = pa.array(held_, kind)
    places = pa.array([0, 0, 1, 1], pa.int32())
    made = merged_column(column, how, places, column.take(pa.array([0, 2])))
    assert made.equals(pa.array(merged, kind))


def test_what_has_no_order_is_not_merged() -> None:
    """Nor what has more digits than a DECIMAL."""
    places = pa.array([0, 0], pa.int32())
    for how, column in (
        ("max", pa.array([float("nan"), 1.0])),
        ("sum", pa.array([Decimal(9 * 10**37)] * 2, pa.decimal128(38, 0))),
    ):
        with pytest.raises(pa.ArrowInvalid):
            merged_column(column, how, places, column[:1])


def test_null_of_a_long_decimal_has_the_bytes_that_flink_gives_it() -> None:
    """Of a key that real Flink 2.3 wrote: ('n1', NULL, 4) of VARCHAR, DECIMAL(24, 2), BIGINT."""
    kinds = [parse_logical_type(text) for text in ("VARCHAR(9)", "DECIMAL(24, 2)", "BIGINT")]
    row = RowDataSerializerSnapshot.of(*kinds).restore_serializer()
    written = DataOutput()
    row.write({"f0": "n1", "f1": None, "f2": 4}, written)
    plain = written.to_bytes()[4:]
    flink = bytes.fromhex(
        "00020000000000006e3100000000008200000000200000000400000000000000" + "00" * 16
    )
    assert plain != flink
    assert projected_row(plain, kinds) == flink
    assert projected_row(flink, kinds) == flink


def test_null_of_a_long_decimal_moves(
    savepoint: Path, rows: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    """There, into another order, and to fewer columns: keys stay those that Flink would make."""
    plans = [
        plan(tmp_path / f"{number}.json", keys, types)
        for number, (keys, types) in enumerate(
            [(["a", "b", "c"], KEYS), (["b", "c", "a"], WIDER), (["c", "a"], WIDER)]
        )
    ]
    made = savepoint
    for number, (old, new) in enumerate(pairwise(plans)):
        made = Path(sl.sql_upgrade(made, tmp_path / f"made{number}", old, new).made)
    assert run("check", "integrity", made).code == 0
    (operator,) = sl.open_snapshot(made).operators
    table = operator["accState"].to_arrow()
    held_ = [row for row in table.to_pylist() if row["raw_key"] is not None]
    assert len(held_) == len({a for a, _, c, _, _ in rows if c is None})
    assert all(row["key"]["f0"] is None for row in held_)
    assert all(row["raw_key"][4 + 8 : 4 + 16] == bytes([0, 0, 0, 0, 24, 0, 0, 0]) for row in held_)


def test_groups_with_a_time_to_live_are_not_merged(
    rows: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    """What had expired would be missing; in another order they go on."""
    old = plan(tmp_path / "old.json", ["a", "b"], KEYS)
    key = pa.array([{"f0": a, "f1": b} for a, b in {(a, b) for a, b, *_ in rows}],
                   pa.struct([("f0", pa.int32()), ("f1", pa.string())]))  # fmt: skip
    value = pa.array([{"f0": 1, "f1": 2}] * len(key))
    state = NewKeyedState(
        "accState", pa.table({"key": key, "value": value, "ttl": pa.array([7] * len(key))}),
        value={"row_data": ["BIGINT", "BIGINT"]}, with_ttl=True,
    )  # fmt: skip
    spec = {"row_data": [KEYS["a"], KEYS["b"]]}
    operator = NewOperator("6_group-aggregate", spec, (state,), parallelism=1, max_parallelism=128)
    write_snapshot(tmp_path / "expiring", [operator])
    less = plan(tmp_path / "less.json", ["a"], KEYS)
    (verdict,) = sl.check_sql(tmp_path / "expiring", old, less).operators
    assert verdict.fate == "unknown"
    assert "values that had expired would be missing" in verdict.why[-1]
    other = plan(tmp_path / "other.json", ["b", "a"], KEYS)
    assert sl.check_sql(tmp_path / "expiring", old, other).keeps


def test_an_operator_that_is_new_below_one_that_goes_on_is_said_to_begin(
    savepoint: Path, tmp_path: Path
) -> None:
    """And is unknown if what it reads is updated: it would get retractions of rows it never had."""
    old = plan(tmp_path / "old.json", ["a", "b", "c"], KEYS)
    content = json.loads(old.read_text())
    content["nodes"].append(
        {
            "id": 7, "type": "stream-exec-group-aggregate_1", "grouping": [1],
            "needRetraction": True,
            "aggCalls": [{"internalName": "$SUM0$1", "argList": [3], "type": "BIGINT NOT NULL"}],
            "aggCallNeedRetractions": [True],
            "outputType": "ROW<`b` VARCHAR(5), `x` BIGINT NOT NULL>",
        }
    )  # fmt: skip
    content["edges"].append({"source": 6, "target": 7})
    new = tmp_path / "new.json"
    new.write_text(json.dumps(content))
    verdict = sl.check_sql(savepoint, old, new)
    assert not verdict.right
    fates = {each.operator: (each.fate, each.why[:1]) for each in verdict.operators}
    why = "it is new, and what it reads is updated: rows would be retracted that it never had"
    assert fates == {
        "GroupAggregate[6]": ("keeps", []),
        "GroupAggregate[7]": ("unknown", [why]),
    }
    assert sl.sql_upgrade(savepoint, tmp_path / "made", old, new).refused
    accept = ["lost=GroupAggregate[7]"]
    assert sl.sql_upgrade(savepoint, tmp_path / "made", old, new, accept=accept).made


def test_a_plan_of_other_keys_is_not_that_of_the_savepoint(savepoint: Path, tmp_path: Path) -> None:
    """Also where the key does not change, so that nothing of it would be written."""
    other = plan(tmp_path / "other.json", ["a", "b", "c"], KEYS | {"a": "BIGINT"})
    verdict = sl.check_sql(savepoint, other, other)
    assert not verdict.right
    (operator,) = verdict.operators
    assert operator.fate == "unknown"
    (why,) = operator.why
    assert why.startswith("its key: the snapshot has (INT, VARCHAR(5), DECIMAL(9, 2)), and the")
    assert "give the plan of the job that took the savepoint" in why


@pytest.mark.parametrize("ttl", [False, True])
def test_first_rows_of_an_old_flink_are_marked_as_sent(tmp_path: Path, *, ttl: bool) -> None:
    """In the state that the plan of 2.3 has, of another name and type; nothing waits."""
    (plans,) = (
        line["plans"] for line in map(json.loads, lzma.decompress(GOLDEN.read_bytes()).splitlines())
        if line["name"] == "first rows by time"
    )  # fmt: skip
    files = [tmp_path / f"{version}.json" for version in ("1.20.0", "2.3.0")]
    for file in files:
        text = json.dumps(plans[file.stem])
        file.write_text(text.replace('"ttl": "0 ms"', '"ttl": "1 h"') if ttl else text)
    keys = [None, *range(200)]
    row = {"f0": 1, "f1": 2, "f2": "n", "f3": datetime(2024, 1, 1)}  # noqa: DTZ001 - without zone
    table = pa.table({
        "key": pa.array([{"f0": key} for key in keys], pa.struct([("f0", pa.int32())])),
        "value": pa.array([row | {"f0": key} for key in keys],
                          pa.struct([("f0", pa.int32()), ("f1", pa.int64()), ("f2", pa.string()),
                                     ("f3", pa.timestamp("ms"))])),
    })  # fmt: skip
    types = {"row_data": ["INT", "BIGINT", "VARCHAR(2147483647)", "TIMESTAMP(3)"]}
    state = NewKeyedState("deduplicate-state", table, value=types)
    operator = NewOperator("6_deduplicate", {"row_data": ["INT"]}, (state,), max_parallelism=128)
    write_snapshot(tmp_path / "old", [operator])
    refused = sl.sql_upgrade(tmp_path / "old", tmp_path / "made", *files)
    assert refused.refused == ["Deduplicate[6]: starts now; --accept partly"]
    done = sl.sql_upgrade(tmp_path / "old", tmp_path / "made", *files, accept="partly")
    assert done.made
    (made,) = sl.open_snapshot(tmp_path / "made").operators
    (sent,) = made.keyed_states
    assert (sent.name, sent.value_type, sent.with_ttl) == (
        "already-emitted-state-boolean", "Boolean", ttl,
    )  # fmt: skip
    found = sent.to_arrow().to_pylist()
    assert sorted(str(each["key"]["f0"]) for each in found) == sorted(map(str, keys))
    assert {each["value"] for each in found} == {True}


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ("b|a", {(None, 1, 2, 10), (None, 2, 2, 20), (5, None, 1, 7), (None, None, 1, 8)}),
        ("a|b|c", {(1, None, None, 3, 10), (2, None, None, 3, 20), (None, 5, None, 5, 7),
                   (None, None, None, 5, 8)}),
        ("b|c", {(5, None, 1, 7), (None, None, 1, 8)}),
    ],
)  # fmt: skip
def test_groups_of_grouping_sets_go_to_their_numbers(
    sets: str, expected: set[tuple[Any, ...]], tmp_path: Path
) -> None:
    """With their columns; those of a set that is gone are left out, NULL in a set is a value."""
    files = []
    for name, of in (("old", "a|b"), ("new", sets)):
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps(grouping_sets_plan(of)))
    held = [(1, None, 1, 10), (2, None, 1, 20), (None, 5, 2, 7), (None, None, 2, 8)]
    key = pa.struct([("f0", pa.int32()), ("f1", pa.int32()), ("f2", pa.int64())])
    table = pa.table({
        "key": pa.array([dict(zip(("f0", "f1", "f2"), row, strict=False)) for row in held], key),
        "value": pa.array([{"f0": row[3]} for row in held]),
    })  # fmt: skip
    state = NewKeyedState("accState", table, value={"row_data": ["BIGINT"]})
    operator = NewOperator("6_group-aggregate", {"row_data": ["INT", "INT", "BIGINT NOT NULL"]},
                           (state,), max_parallelism=128)  # fmt: skip
    write_snapshot(tmp_path / "savepoint", [operator])
    done = sl.sql_upgrade(tmp_path / "savepoint", tmp_path / "made", *files, accept="partly")
    assert done.made, done.refused
    (made,) = sl.open_snapshot(tmp_path / "made").operators
    found = made["accState"].to_arrow().to_pylist()
    assert {(*row["key"].values(), *row["value"].values()) for row in found} == expected


@pytest.mark.parametrize(
    ("sets", "calls", "fate"),
    [("a|b", 1, ""), ("b|a", 1, "unknown"), ("a|b", 2, "unknown"), ("c|d", 1, "lost")],
)
def test_keyed_state_kept_as_bytes_goes_on_only_as_it_is(
    sets: str, calls: int, fate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it can be rewritten, so that other numbers of sets would be other groups."""
    files = [tmp_path / "old.json", tmp_path / "new.json"]
    files[0].write_text(json.dumps(grouping_sets_plan("a|b")))
    files[1].write_text(json.dumps(grouping_sets_plan(sets, ("SUM", "MAX")[:calls])))
    key = pa.struct([("f0", pa.int32()), ("f1", pa.int32()), ("f2", pa.int64())])
    table = pa.table({"key": pa.array([{"f0": 1, "f1": None, "f2": 1}], key),
                      "value": pa.array([{"f0": 10}])})  # fmt: skip
    state = NewKeyedState("accState", table, value={"row_data": ["BIGINT"]})
    operator = NewOperator("6_group-aggregate", {"row_data": ["INT", "INT", "BIGINT NOT NULL"]},
                           (state,), max_parallelism=128)  # fmt: skip
    write_snapshot(tmp_path / "savepoint", [operator])
    lost = UnwalkableError("not all entries are found", states=("accState",), why="nobody knows")
    attempts = iter([lost])

    def attempt(self: Any, *given: Any) -> Any:
        for error in attempts:
            raise error
        return reading(self, *given)

    reading = importing._Import._run_retrying
    monkeypatch.setattr(importing._Import, "_run_retrying", attempt)
    monkeypatch.setattr(importing, "not_found", lambda _: lost)
    shop = sl.Lake(tmp_path / "lake").job("shop")
    shop.import_snapshot(tmp_path / "savepoint", "monday")
    done = shop["monday"].sql_upgrade(*files, accept="partly")
    refusal = f"GroupAggregate[6]: {fate}; --accept lost=GroupAggregate[6]"
    assert (done.refused, bool(done.made)) == ([refusal] if fate else [], not fate)
    said = "it has keyed state kept as bytes, which can't be rewritten"
    assert (said in str(done.operators)) is (fate == "unknown")


def versions(savepoint: Path, keys: Sequence[int] = (1, 1, 1, 1)) -> list[dict[str, Any]]:
    """Write a temporal join's four versions of a row, or more, of all kinds of change."""
    types = ["INT NOT NULL", "VARCHAR(2147483647)", "TIMESTAMP(3)"]
    snapshot = RowDataSerializerSnapshot.of(*map(parse_logical_type, types))
    rows = [{"f0": key, "f1": f"n{kind}", "f2": datetime(2024, 1, 1)}  # noqa: DTZ001 - without zone
            for kind, key in enumerate(keys)]  # fmt: skip
    table = pa.table({
        "key": pa.array([{"f0": key} for key in keys], pa.struct([("f0", pa.int32())])),
        "user_key": pa.array(range(len(keys)), pa.int64()),
        "value": pa.array(rows, pa.struct([("f0", pa.int32()), ("f1", pa.string()),
                                           ("f2", pa.timestamp("ms"))])),
    })  # fmt: skip
    state = NewKeyedState("right", table, "map", {"row_data": types}, "Long")
    operator = NewOperator("10_temporal-join", {"row_data": ["INT"]}, (state,), max_parallelism=128)
    write_snapshot(savepoint, [operator])
    for kind, row in enumerate(rows):  # as Flink writes them
        out = DataOutput()
        snapshot.restore_serializer().write(row, out)
        written = out.to_bytes()
        for file in savepoint.iterdir():
            with_kind = written[:4] + bytes([kind % 4]) + written[5:]
            file.write_bytes(file.read_bytes().replace(written, with_kind))
    return rows


def test_versions_of_a_temporal_join_keep_their_kind_of_change(tmp_path: Path) -> None:
    """A deleted one is no row that was inserted, also when its columns are others."""
    (plans,) = (
        line["plans"]["2.3.0"]
        for line in map(json.loads, lzma.decompress(GOLDEN.read_bytes()).splitlines())
        if line["name"] == "a temporal join"
    )
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    text = json.dumps(plans)
    old.write_text(text)
    for node in plans["nodes"]:
        if node["id"] == 7:  # which the table's changes pass
            node["projection"].append({"kind": "INPUT_REF", "inputIndex": 3, "type": "INT"})
            node["outputType"] = node["outputType"].replace(">", ", `d` INT>")
        if node["id"] in (8, 9, 10):
            node["outputType"]["fields"].append({"name": "d", "fieldType": "INT"})
    new.write_text(json.dumps(plans))
    rows = versions(tmp_path / "savepoint")
    done = sl.sql_upgrade(tmp_path / "savepoint", tmp_path / "made", old, new, accept="partly")
    assert done.made, done.refused
    (joined,) = sl.open_snapshot(tmp_path / "made").operators
    made = joined["right"].to_arrow().to_pylist()
    assert [each["value"] for each in made] == [row | {"f3": None} for row in rows]
    kinds = [each["raw_value"] and each["raw_value"][5] for each in made]
    assert kinds == [None, 1, 2, 3]


def test_rows_that_move_keep_their_kind_of_change(tmp_path: Path) -> None:
    """Each its own, though they come in another order."""
    (plans,) = (
        line["plans"]["2.3.0"]
        for line in map(json.loads, lzma.decompress(GOLDEN.read_bytes()).splitlines())
        if line["name"] == "a temporal join"
    )
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps(plans))
    (exchange,) = (node for node in plans["nodes"] if node["id"] == 4)
    exchange["outputType"]["fields"][0]["fieldType"] = "BIGINT"
    new.write_text(json.dumps(plans))
    rows = versions(tmp_path / "savepoint", range(-20, 0))  # which have other bytes as BIGINT
    done = sl.sql_upgrade(tmp_path / "savepoint", tmp_path / "made", old, new)
    assert done.made, done.refused
    (joined,) = sl.open_snapshot(tmp_path / "made").operators
    made = joined["right"].to_arrow().to_pylist()
    for each in made:
        number = each["user_key"]
        assert (each["key"]["f0"], each["value"]) == (number - 20, rows[number])
        assert (each["raw_value"] and each["raw_value"][5]) == (number % 4 or None)


def test_versions_that_sql_changes_keep_their_kind_of_change(tmp_path: Path) -> None:
    """A deleted one with another column is still deleted."""
    rows = versions(tmp_path / "savepoint")
    lake = Catalog(tmp_path / "lake")
    import_as(lake, tmp_path / "savepoint", "before", "shop", uids=["10_temporal-join"])
    statement = """UPDATE "10_temporal-join"."right"
        SET value = struct_update(value, f1 := 'x') WHERE user_key > 1"""
    edit_by_sql(ChildSnapshot(lake, "shop", "before", "after"), [statement])
    export_snapshot(lake, "shop", "after", tmp_path / "made", engine=LOCAL)
    (joined,) = sl.open_snapshot(tmp_path / "made").operators
    made = joined["right"].to_arrow().to_pylist()
    assert [each["value"] for each in made] == rows[:2] + [row | {"f1": "x"} for row in rows[2:]]
    assert [each["raw_value"] and each["raw_value"][5] for each in made] == [None, 1, 2, 3]


@pytest.mark.parametrize("ttl", [False, True])
def test_versions_that_an_expression_changes_keep_their_kind_of_change(
    ttl: bool, tmp_path: Path
) -> None:
    """In a migration as in SQL, also where they get times of last access; null has no kind."""
    rows = versions(tmp_path / "savepoint")
    lake = Catalog(tmp_path / "lake")
    import_as(lake, tmp_path / "savepoint", "before", "shop", uids=["10_temporal-join"])
    types: Any = {"row_data": ["INT NOT NULL", "VARCHAR(2147483647)", "TIMESTAMP(3)"]}
    of = ("10_temporal-join", "right")
    sql = f"CASE WHEN {ttl} OR old.f1 <> 'n2' THEN struct_update(old, f1 := 'x') END"
    changes = [ValueChange(*of, parse_type(types), {"": sql}), TtlChange(*of, on=True)][: 1 + ttl]
    migrate_snapshot(ChildSnapshot(lake, "shop", "before", "after"), *changes)
    export_snapshot(lake, "shop", "after", tmp_path / "made", engine=LOCAL)
    (joined,) = sl.open_snapshot(tmp_path / "made").operators
    made = joined["right"].to_arrow().to_pylist()
    expected = [row | {"f1": "x"} if ttl or row["f1"] != "n2" else None for row in rows]
    assert [each["value"] for each in made] == expected
    kinds = [each["raw_value"] and each["raw_value"][5 + 8 * ttl] for each in made]
    assert kinds == [None, 1, 2 if ttl else None, 3]
