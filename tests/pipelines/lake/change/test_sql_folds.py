"""New aggregates above rows that are updated, computed in full from the state that holds these."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import statelake as sl
from statelake.pipelines.lake.change import folding, sql_upgrading
from statelake.pipelines.lake.tables import file_spans as units
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.state_core.errors import StateError
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    SubtaskState,
)
from statelake.state_core.formats.writing.new_snapshot import write_snapshot
from statelake.state_core.formats.writing.new_states import NewKeyedState, NewOperator
from tests.support.command import run

ROWS = 3000
TYPES = {
    "id": "BIGINT NOT NULL", "g": "INT", "name": "VARCHAR(9)", "v": "INT", "d": "DECIMAL(9, 2)",
    "x": "DOUBLE",
}  # fmt: skip
ARROW = {"g": pa.int32(), "name": pa.string()}
FIELDS = [
    ("f0", pa.int64()), ("f1", pa.int32()), ("f2", pa.string()), ("f3", pa.int32()),
    ("f4", pa.decimal128(9, 2)), ("f5", pa.float64()),
]  # fmt: skip
COUNT = ("$COUNT$1", [], -1, "BIGINT NOT NULL")
# of the columns that the Calc emits: g, name, v, d, x, v > 10
NEW = (
    ("$MAX$1", [1], -1, "VARCHAR(9)"),
    ("$SUM$1", [2], -1, "INT"),
    COUNT,
    ("$AVG$1", [2], -1, "INT"),
    ("$MIN$1", [3], -1, "DECIMAL(9, 2)"),
    ("$SUM$1", [3], -1, "DECIMAL(38, 2)"),
    ("$COUNT$1", [2], 5, "BIGINT NOT NULL"),
    ("$MAX$1", [4], 5, "DOUBLE"),
)


def ref(index: int, kind: str) -> dict[str, Any]:
    """A column."""
    return {"kind": "INPUT_REF", "inputIndex": index, "type": kind}


def call(name: str, kind: str, *operands: Any) -> dict[str, Any]:
    """A call of a function."""
    return {"kind": "CALL", "internalName": f"${name}$1", "operands": operands, "type": kind}


def literal(value: Any, kind: str) -> dict[str, Any]:
    """A constant."""
    return {"kind": "LITERAL", "value": value, "type": f"{kind} NOT NULL"}


MORE = call("IS TRUE", "BOOLEAN NOT NULL",
            call(">", "BOOLEAN", ref(3, "INT"), literal(10, "INT")))  # fmt: skip


def plan(
    to: Path,
    calls: tuple[Any, ...],
    keys: tuple[int, ...] = (0,),
    condition: Any = None,
    ttl: str = "0 ms",
) -> Path:
    """The plan of aggregates of a table's last rows."""
    names = ["g", "name", "v", "d", "x"]
    emitted = [*(f"`{name}` {TYPES[name]}" for name in names), "`m` BOOLEAN NOT NULL"]
    rows = f"ROW<{', '.join(f'`{name}` {kind}' for name, kind in TYPES.items())}>"
    results = [emitted[key] for key in keys]
    results += [f"`c{index}` {made[3]}" for index, made in enumerate(calls)]
    content = {
        "flinkVersion": "2.3",
        "nodes": [
            {
                "id": 1, "type": "stream-exec-table-source-scan_2",
                "scanTableSource": {"table": {"identifier": "`c`.`d`.`t`"}}, "outputType": rows,
            },
            {
                "id": 2, "type": "stream-exec-changelog-normalize_1", "uniqueKeys": [0],
                "state": [{"index": 0, "ttl": ttl}], "outputType": rows,
            },
            {
                "id": 3, "type": "stream-exec-calc_1", "condition": condition,
                "projection": [*(ref(1 + at, TYPES[name]) for at, name in enumerate(names)), MORE],
                "outputType": f"ROW<{', '.join(emitted)}>",
            },
            {"id": 4, "type": "stream-exec-exchange_1",
             "outputType": f"ROW<{', '.join(emitted)}>"},
            {
                "id": 5, "type": "stream-exec-group-aggregate_1", "grouping": list(keys),
                "needRetraction": True, "state": [{"index": 0, "ttl": "0 ms"}],
                "aggCalls": [{"internalName": name, "argList": of, "filterArg": only, "type": kind}
                             for name, of, only, kind in calls],
                "aggCallNeedRetractions": [True] * len(calls),
                "outputType": f"ROW<{', '.join(results)}>",
            },
        ],
        "edges": [{"source": at, "target": at + 1} for at in range(1, 5)],
    }  # fmt: skip
    to.write_text(json.dumps(content))
    return to


Row = tuple[int, Any, Any, Any, Any, Any]


def drawn() -> list[Row]:
    """The last rows of a table."""
    random = Random(3)
    made = []
    for number in range(ROWS):
        v = random.choice([None, random.randrange(-50, 50), (1 << 31) - 1])
        d = random.choice([None, Decimal(random.randrange(-9999, 9999)).scaleb(-2)])
        name = random.choice([None, "", "b", "ä€𝄞", "seven"])
        group = random.choice([None, *range(40)])
        made.append((number, group, name, v, d, random.choice([None, random.randrange(9) / 4 - 1])))
    return made


@dataclass
class Held:
    """What a savepoint holds.

    Attributes:
        rows: The last rows of the table.
        keys: By which of their columns the aggregate groups.
        counts: What it has counted of each group.
    """

    rows: list[Row] = field(default_factory=drawn)
    keys: tuple[int, ...] = (1,)
    counts: Counter[Any] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Count all rows."""
        self.counts = Counter(tuple(row[key] for key in self.keys) for row in self.rows)

    def write(self, to: Path) -> Path:
        """Write the savepoint."""
        names = list(TYPES)
        kinds = [TYPES[name] for name in names]
        values = [{f"f{at}": value for at, value in enumerate(row)} for row in self.rows]
        value = pa.array(values, pa.struct(FIELDS))
        rows = NewKeyedState(
            "deduplicate-state",
            pa.table({"key": pa.array([{"f0": row[0]} for row in self.rows],
                                      pa.struct([("f0", pa.int64())])), "value": value}),
            value={"row_data": kinds},
        )  # fmt: skip
        fields = [(f"f{at}", ARROW[names[key]]) for at, key in enumerate(self.keys)]
        fields = fields or [("empty", pa.null())]  # of one group for all rows
        keys = [{f"f{at}": one for at, one in enumerate(key)} for key in self.counts]
        counts = [{"f0": count} for count in self.counts.values()]
        groups = NewKeyedState(
            "accState", pa.table({"key": pa.array(keys, pa.struct(fields)), "value": counts}),
            value={"row_data": ["BIGINT"]},
        )  # fmt: skip
        by = {"row_data": [kinds[key] for key in self.keys]}
        operators = [
            NewOperator("2_changelog-normalize", {"row_data": kinds[:1]}, (rows,), parallelism=3),
            NewOperator("5_group-aggregate", by, (groups,), parallelism=3),
        ]
        write_snapshot(to, operators)
        return to


def group_of(row: Row) -> bool:
    """Whether a row counts where only some do."""
    return row[3] is not None and row[3] > 10


def expected(rows: list[Row]) -> tuple[list[Any], dict[str, Counter[Any]]]:
    """What aggregates of `NEW` hold of a group's rows: accumulators, and views."""
    names = Counter(row[2] for row in rows if row[2] is not None)
    numbers = [row[3] for row in rows if row[3] is not None]
    amounts = Counter(row[4] for row in rows if row[4] is not None)
    some = Counter(row[5] for row in rows if row[5] is not None and group_of(row))
    total = (sum(numbers) + (1 << 31)) % (1 << 32) - (1 << 31) if numbers else None

    def extreme(name: str, found: Any, view: Counter[Any]) -> dict[str, Any]:
        return {name: found, "mapSize": len(view), "map": b"\0"}

    return [
        extreme("max", max(names, default=None), names),
        total, len(numbers), len(rows), sum(numbers), len(numbers),
        extreme("min", min(amounts, default=None), amounts),
        sum(amounts.elements(), Decimal(0)) if amounts else None, amounts.total(),
        sum(map(group_of, rows)),
        extreme("max", max(some, default=None), some),
    ], {"agg0$map": names, "agg4$map": amounts, "agg7$map": some}  # fmt: skip


@pytest.mark.parametrize("keys", [(0,), (1, 0), ()])
@pytest.mark.parametrize("file_bytes", [units.FILE_BYTES, 2000])
@pytest.mark.full
def test_new_aggregates_are_those_of_all_rows(
    keys: tuple[int, ...], file_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each type and function, with and without FILTER, in tables of one file or many."""
    monkeypatch.setattr(units, "FILE_BYTES", file_bytes)
    held = Held(keys=tuple(1 + key for key in keys))
    savepoint = held.write(tmp_path / "savepoint")
    old, new = plan(tmp_path / "old", (COUNT,), keys), plan(tmp_path / "new", NEW, keys)
    shop = sl.Lake(tmp_path / "lake").job("shop")
    named = {"plan": old} if file_bytes == 2000 else {}
    shop.import_snapshot(savepoint, "monday", **named)
    verdict = shop["monday"].check_sql(old, new)
    assert verdict.right
    assert {each.operator: each.fate for each in verdict.operators} == {
        "GroupAggregate[5]": "computed in full", "ChangelogNormalize[2]": "keeps",
    }  # fmt: skip
    whys = {why for each in verdict.operators for column in each.columns if (why := column.why)}
    assert whys == {"from the rows that ChangelogNormalize[2] keeps"}
    shop["monday"].sql_upgrade(old, new)
    held_now = shop["monday-sql"].record.operators
    views = [state for each in held_now for state in each.states if state.name.endswith("$map")]
    assert len(views) == 3
    shop["monday-sql"].export(tmp_path / "exported", parallelism=2)
    (after,) = (each for each in sl.open_snapshot(tmp_path / "exported").operators
                if any(state.name == "accState" for state in each.keyed_states))  # fmt: skip
    groups: dict[Any, list[Row]] = {}
    for row in held.rows:
        groups.setdefault(tuple(row[key] for key in held.keys), []).append(row)
    made = {tuple(row["key"].values()) if keys else (): list(row["value"].values())
            for row in after["accState"].to_arrow().to_pylist()}  # fmt: skip
    assert made == {key: expected(rows)[0] for key, rows in groups.items()}
    for view in ("agg0$map", "agg4$map", "agg7$map"):
        entries: dict[Any, Counter[Any]] = {}
        for row in after[view].to_arrow().to_pylist():
            key = tuple(row["key"].values()) if keys else ()
            entries.setdefault(key, Counter())[row["user_key"]] += row["value"]
        wanted = {key: expected(rows)[1][view] for key, rows in groups.items()}
        assert entries == {key: view for key, view in wanted.items() if view}
    assert run("check", "integrity", tmp_path / "exported").code == 0
    lake = ("--lake", tmp_path / "lake", "--job", "shop", "--snapshot", "monday-sql")
    assert run("check", "integrity", *lake).code == 0
    assert not [each for each in (tmp_path / "lake").rglob("*") if "staged" in each.parts]


def test_only_rows_that_pass_the_filter_are_added_up(tmp_path: Path) -> None:
    """With NULL, which is neither; AND, OR, NOT and ranges."""
    v, name = ref(3, "INT"), ref(2, "VARCHAR(9)")
    seven = {"value": 7, "boundType": "CLOSED"}
    above = [{"lower": seven, "upper": seven}, {"lower": {"value": 20, "boundType": "OPEN"}}]
    sarg = {"nullAs": "UNKNOWN", "ranges": above}
    ranges = {"kind": "LITERAL", "type": "INT NOT NULL", "sarg": sarg}
    condition = call(
        "OR", "BOOLEAN",
        call("SEARCH", "BOOLEAN", v, ranges),
        call("AND", "BOOLEAN",
             call("=", "BOOLEAN", name, literal("seven", "CHAR(5)")),
             call("NOT", "BOOLEAN",
                  call("<", "BOOLEAN", call("+", "INT", v, literal(5, "INT")),
                       literal(0, "INT")))),
    )  # fmt: skip
    held = Held()

    def passes(row: Row) -> bool:
        v = row[3]
        return v is not None and (v == 7 or v > 20 or (
            # a whole number wraps around
            row[2] == "seven" and v + 5 < 1 << 31 and v + 5 >= 0
        ))  # fmt: skip

    passed = [row for row in held.rows if passes(row)]
    held.counts = Counter((row[1],) for row in passed)
    savepoint = held.write(tmp_path / "savepoint")
    old = plan(tmp_path / "old", (COUNT,), condition=condition)
    new = plan(tmp_path / "new", (COUNT, ("$COUNT$1", [1], -1, "BIGINT NOT NULL")),
               condition=condition)  # fmt: skip
    done = sl.sql_upgrade(savepoint, tmp_path / "made", old, new)
    (after,) = (each for each in sl.open_snapshot(done.made).operators
                if any(state.name == "accState" for state in each.keyed_states))  # fmt: skip
    made = {row["key"]["f0"]: list(row["value"].values())
            for row in after["accState"].to_arrow().to_pylist()}  # fmt: skip
    names = Counter(row[1] for row in passed if row[2] is not None)
    assert made == {key: [count, names[key]] for (key,), count in held.counts.items()}


@pytest.mark.parametrize("rows", [0, ROWS])
def test_nothing_is_added_up_where_no_row_passes(rows: int, tmp_path: Path) -> None:
    """Of a job that has read nothing, too."""
    held = Held(rows=drawn()[:rows])
    held.counts.clear()
    savepoint = held.write(tmp_path / "savepoint")
    never = call("IS NULL", "BOOLEAN", ref(0, "BIGINT"))
    old = plan(tmp_path / "old", (COUNT,), condition=never)
    new = plan(tmp_path / "new", NEW, condition=never)
    done = sl.sql_upgrade(savepoint, tmp_path / "made", old, new)
    made = sl.open_snapshot(done.made).operators
    assert sum(state.to_arrow().num_rows for each in made for state in each.keyed_states) == rows


def _lacks_a_row(held: Held) -> None:
    held.rows.pop()


def _lacks_a_group(held: Held) -> None:
    held.rows = [row for row in held.rows if row[1] != 7]


def _has_a_group_more(held: Held) -> None:
    held.counts.pop((7,))


def _has_no_groups(held: Held) -> None:
    held.counts.clear()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_lacks_a_row, "it has counted other rows"),
        (_lacks_a_group, "it has counted other rows"),
        (_has_a_group_more, "that it does not have"),
        (_has_no_groups, "that the aggregate does not have"),
    ],
)
@pytest.mark.parametrize("file_bytes", [units.FILE_BYTES, 2000])
@pytest.mark.full
def test_state_that_is_not_complete_is_refused(
    change: Any, says: str, file_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what does not agree, and what to do; nothing is left behind."""
    monkeypatch.setattr(units, "FILE_BYTES", file_bytes)
    held = Held()
    change(held)
    savepoint = held.write(tmp_path / "savepoint")
    old, new = plan(tmp_path / "old", (COUNT,)), plan(tmp_path / "new", NEW)
    shop = sl.Lake(tmp_path / "lake").job("shop")
    shop.import_snapshot(savepoint, "monday")
    before = set((tmp_path / "lake").rglob("*.parquet"))
    with pytest.raises(StateError, match=says) as refused:
        shop["monday"].sql_upgrade(old, new)
    assert "--accept lost=OPERATOR" in str(refused.value)
    assert [each.snapshot_id for each in shop.snapshots()] == ["monday"]
    assert set((tmp_path / "lake").rglob("*.parquet")) == before
    with pytest.raises(StateError, match=says):
        sl.sql_upgrade(savepoint, tmp_path / "made", old, new)
    assert not (tmp_path / "made").exists()


def test_a_sum_too_large_for_its_type_is_refused(tmp_path: Path) -> None:
    """As is -0.0, which Java tells from 0.0, of the least and greatest."""
    held = Held()
    held.rows[0] = (*held.rows[0][:5], -0.0)
    held.rows[0] = (*held.rows[0][:3], 11, *held.rows[0][4:])
    savepoint = held.write(tmp_path / "savepoint")
    old, new = plan(tmp_path / "old", (COUNT,)), plan(tmp_path / "new", (COUNT, NEW[-1]))
    with pytest.raises(StateError, match=r"-0\.0 is not 0\.0") as refused:
        sl.sql_upgrade(savepoint, tmp_path / "made", old, new)
    assert "--accept lost=OPERATOR" in str(refused.value)


def test_rows_in_flight_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a checkpoint that is not aligned: some have emitted what others have not counted."""
    savepoint = Held().write(tmp_path / "savepoint")
    shop = sl.Lake(tmp_path / "lake").job("shop")
    shop.import_snapshot(savepoint, "monday")
    old, new = plan(tmp_path / "old", (COUNT,)), plan(tmp_path / "new", NEW)
    known = sql_upgrading.unmanaged_metadata

    def in_flight(record: SnapshotRecord) -> CheckpointMetadata:
        metadata = known(record)
        channel: Any = SimpleNamespace(size=1)
        metadata.operators[0].subtasks = {0: SubtaskState(inputs=(channel,))}
        return metadata

    monkeypatch.setattr(sql_upgrading, "unmanaged_metadata", in_flight)
    verdict = shop["monday"].check_sql(old, new)
    (operator,) = (each for each in verdict.operators if each.why)
    assert (operator.operator, operator.fate) == ("GroupAggregate[5]", "unknown")
    assert "rows are in flight" in operator.why[0]
    assert not shop["monday"].sql_upgrade(old, new).made


def test_rows_with_a_time_to_live_are_refused(tmp_path: Path) -> None:
    """And a column that the old job's rows did not have, each with its reason."""
    savepoint = Held().write(tmp_path / "savepoint")
    old = plan(tmp_path / "old", (COUNT,), ttl="3600000 ms")
    new = plan(tmp_path / "new", NEW, ttl="3600000 ms")
    verdict = sl.check_sql(savepoint, old, new)
    assert not verdict.right
    whys = [column.why for each in verdict.operators for column in each.columns if column.why]
    assert all(why.endswith("ChangelogNormalize[2] has a time to live: what has expired is not"
                            " known") for why in whys)  # fmt: skip
    assert len(whys) == 9


JOINED = ("BIGINT", "INT", "INT")  # a key that may be NULL, a group, a number
Pair = tuple[Any, int, int]


def join_plan(to: Path, calls: tuple[Any, ...]) -> Path:
    """The plan of aggregates of an inner join, whose rows are unique by nothing."""
    side = f"ROW<{', '.join(f'`c{at}` {kind}' for at, kind in enumerate(JOINED))}>"
    both = f"ROW<{', '.join(f'`c{at}` {kind}' for at, kind in enumerate(JOINED * 2))}>"
    results = ["`g` INT", *(f"`r{at}` {made[3]}" for at, made in enumerate(calls))]
    nodes: list[dict[str, Any]] = [
        {"id": at, "type": "stream-exec-table-source-scan_2", "outputType": side,
         "scanTableSource": {"table": {"identifier": f"`c`.`d`.`{name}`"}}}
        for at, name in ((1, "a"), (2, "b"))
    ]  # fmt: skip
    joined = {"joinType": "INNER", "leftKeys": [0], "rightKeys": [0], "filterNulls": [True]}
    nodes += [
        {"id": 3, "type": "stream-exec-join_1", "joinSpec": joined, "outputType": both},
        {
            "id": 4, "type": "stream-exec-group-aggregate_1", "grouping": [1],
            "needRetraction": True, "aggCallNeedRetractions": [True] * len(calls),
            "aggCalls": [{"internalName": name, "argList": of, "filterArg": only, "type": kind}
                         for name, of, only, kind in calls],
            "outputType": f"ROW<{', '.join(results)}>",
        },
    ]  # fmt: skip
    edges = [{"source": one, "target": other} for one, other in ((1, 3), (2, 3), (3, 4))]
    to.write_text(json.dumps({"flinkVersion": "2.3", "nodes": nodes, "edges": edges}))
    return to


def write_join(to: Path, sides: tuple[Counter[Pair], Counter[Pair]]) -> Path:
    """Write the savepoint of such a job."""
    row = pa.struct([("f0", pa.int64()), ("f1", pa.int32()), ("f2", pa.int32())])
    states = []
    for name, rows in zip(("left-records", "right-records"), sides, strict=True):
        keys = pa.array([{"f0": each[0]} for each in rows], pa.struct([("f0", pa.int64())]))
        held = pa.array([dict(zip(("f0", "f1", "f2"), each, strict=True)) for each in rows], row)
        table = {"key": keys, "user_key": held, "value": pa.array(rows.values(), pa.int32())}
        states.append(NewKeyedState(
            name, pa.table(table), kind="map", user_key={"row_data": list(JOINED)},
            value="Integer",
        ))  # fmt: skip
    counts: Counter[int] = Counter()
    of_key: Counter[Any] = Counter()
    for each, often in sides[1].items():
        of_key[each[0]] += often
    for (key, group, _), often in sides[0].items():
        if key is not None and of_key[key]:
            counts[group] += often * of_key[key]
    groups = NewKeyedState(
        "accState",
        pa.table({"key": pa.array([{"f0": each} for each in counts],
                                  pa.struct([("f0", pa.int32())])),
                  "value": [{"f0": count} for count in counts.values()]}),
        value={"row_data": ["BIGINT"]},
    )  # fmt: skip
    write_snapshot(to, [
        NewOperator("3_join", {"row_data": ["BIGINT"]}, tuple(states), parallelism=2),
        NewOperator("4_group-aggregate", {"row_data": ["INT"]}, (groups,), parallelism=2),
    ])  # fmt: skip
    return to


@pytest.mark.parametrize("block", [folding.BLOCK, 100, 1])
@pytest.mark.full
def test_rows_of_a_join_are_made_some_at_a_time(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each as often as it is there on both sides, but for NULL; whatever is made at a time."""
    monkeypatch.setattr(folding, "BLOCK", block)
    random = Random(9)
    left, right = (
        Counter((random.choice([None, 1, 1, 2, 3]), random.randrange(4), random.randrange(9))
                for _ in range(count))
        for count in (40, 30)
    )  # fmt: skip
    savepoint = write_join(tmp_path / "savepoint", (left, right))
    added = ("$SUM$1", [5], -1, "INT"), ("$MAX$1", [5], -1, "INT")
    old = join_plan(tmp_path / "old", (COUNT,))
    new = join_plan(tmp_path / "new", (COUNT, *added))
    done = sl.sql_upgrade(savepoint, tmp_path / "made", old, new)
    (after,) = (each for each in sl.open_snapshot(done.made).operators
                if any(state.name == "accState" for state in each.keyed_states))  # fmt: skip
    wanted: dict[int, Counter[int]] = {}
    for (key, group, _), often in left.items():
        for (other, _, number), times in right.items():
            if key == other and key is not None:
                wanted.setdefault(group, Counter())[number] += often * times
    made = {row["key"]["f0"]: list(row["value"].values())
            for row in after["accState"].to_arrow().to_pylist()}  # fmt: skip
    assert made == {
        group: [of.total(), sum(of.elements()), of.total(),
                {"max": max(of), "mapSize": len(of), "map": b"\0"}]
        for group, of in wanted.items()
    }  # fmt: skip
    views: dict[int, Counter[int]] = {}
    for row in after["agg2$map"].to_arrow().to_pylist():
        views.setdefault(row["key"]["f0"], Counter())[row["user_key"]] += row["value"]
    assert views == wanted
