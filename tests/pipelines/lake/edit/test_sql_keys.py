"""Keys of a Flink SQL job that move: in another order, of wider types, with their timers."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import statelake as sl
from statelake.pipelines.lake.edit.sql_upgrading import _merged_column
from statelake.pipelines.lake.tables import units
from statelake.state_core.formats.writing.new_snapshot import write_snapshot
from statelake.state_core.formats.writing.new_states import NewKeyedState, NewOperator
from tests.support.command import run

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
@pytest.mark.parametrize("file_bytes", [units.FILE_BYTES, 2000])
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
    made = _merged_column(column, how, places, column.take(pa.array([0, 2])))
    assert made.equals(pa.array(merged, kind))


def test_what_has_no_order_is_not_merged() -> None:
    """Nor what has more digits than a DECIMAL."""
    places = pa.array([0, 0], pa.int32())
    for how, column in (
        ("max", pa.array([float("nan"), 1.0])),
        ("sum", pa.array([Decimal(9 * 10**37)] * 2, pa.decimal128(38, 0))),
    ):
        with pytest.raises(pa.ArrowInvalid):
            _merged_column(column, how, places, column[:1])
