"""What real Flink holds for a query has the names of the query's columns, and goes back to Flink.

The names come from the plan alone: whether each stands at the right column is told by the values,
which are worked out from the rows that the job has read.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

import statelake as sl
from tests.integration.flink.generated_queries import write_tables
from tests.integration.flink.sql_jobs import SqlFlink

pytestmark = [pytest.mark.flink, pytest.mark.full]

SQL = """
SELECT g, COUNT(*), SUM(v), AVG(price), MAX(name), COUNT(DISTINCT name),
    MIN(v) FILTER (WHERE id > 9) FROM o GROUP BY g;
SELECT o.id, o.v, u.name FROM o JOIN u ON o.g = u.id;
SELECT g, id, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY g ORDER BY v DESC) AS rn FROM o)
    WHERE rn <= 2
"""
UPSERTS = """
SET 'table.exec.sink.upsert-materialize' = 'FORCE';
SET 'table.exec.sink.not-null-enforcer' = 'DROP';
CREATE TABLE counts (name STRING, c BIGINT, PRIMARY KEY (name) NOT ENFORCED)
    WITH ('connector' = 'halves');
INSERT INTO counts SELECT name, c FROM (SELECT g, name, COUNT(*) AS c FROM o GROUP BY g, name)
"""
HALF = {"o": (0, 60), "u": (0, 60)}
REST = {"o": (60, 120), "u": (60, 90)}


def read_rows(table: Path) -> list[dict[str, Any]]:
    """The first half of a table's rows that are inserts."""
    kinds = {"id": int, "g": int, "name": str, "v": int, "price": float}
    rows = []
    for line in table.read_text().splitlines()[:60]:
        values = line.split("|")[1:6]
        rows.append(
            {name: None if text == "\\N" else kind(text)
             for (name, kind), text in zip(kinds.items(), values, strict=True)}
        )  # fmt: skip
    return rows


def accumulators(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the first query holds of the rows of a group."""

    def of(column: str, *, least: int = -1) -> list[Any]:
        return [row[column] for row in rows if row[column] is not None and row["id"] > least]

    return {
        "count": len(rows),
        "sum_v": sum(of("v")) if of("v") else None,
        "sum_price": sum(of("price")),
        "count_price": len(of("price")),
        "max_name": max(of("name"), default=None),
        "count_distinct_name": len({*of("name")}),
        "min_v_filtered": min(of("v", least=9), default=None),
    }


def held(operator: sl.Operator, state: str) -> list[dict[str, Any]]:
    """The keys and values of a state."""
    table = operator.state(state).to_arrow()
    names = [name for name in ("key", "user_key", "value") if name in table.schema.names]
    return list(table.select(names).to_pylist())


def by_kind(snapshot: sl.Snapshot, kind: str) -> sl.Operator:
    """The operator of a kind, by the name of its node."""
    (found,) = (each for each in snapshot.operators if each.node.startswith(f"{kind}["))
    return found


@pytest.mark.parametrize("version", ["1.20.0", "2.3.0"])
def test_each_name_stands_at_its_column(version: str, tmp_path: Path) -> None:
    """Of a job with uids and of one without; and what a lake keeps of them goes on in Flink."""
    with SqlFlink(version, tmp_path) as flink:
        tables = write_tables(tmp_path, Random(7))
        plan, _ = flink.compile(tables + SQL.strip())
        taken, _ = flink.run(plan, HALF)
        check_names(sl.open_snapshot(taken, plan=plan), read_rows(tmp_path / "o.rows"))
        if version.startswith("1."):  # the planner of 2.3 needs no such sink
            check_sink(flink, tables, tmp_path)
            return
        plain, _ = flink.run(plan.with_suffix(".sql"), HALF, backend="rocksdb", parallelism=3)
        check_names(sl.open_snapshot(plain, plan=plan), read_rows(tmp_path / "o.rows"))
        lake = sl.Lake(tmp_path / "lake").job("job", engine="local")
        lake.import_snapshot(taken, "named", plan=plan)
        lake["named"].export(tmp_path / "exported")
        results = [
            sorted(flink.run(plan, REST, restored)[1])
            for restored in (tmp_path / "exported", taken)
        ]
        assert results[0] == results[1] != []


def check_sink(flink: SqlFlink, tables: str, to: Path) -> None:
    """A sink that materializes rows has its table's primary key, and the columns that come."""
    plan, _ = flink.compile(tables + UPSERTS.strip())
    taken, _ = flink.run(plan, {"o": (0, 60)})
    states = held(by_kind(sl.open_snapshot(taken, plan=plan), "Sink"), "values")
    names = {row["name"] for row in read_rows(to / "o.rows")} - {None}
    assert {each["key"]["name"] for each in states} == names
    for each in states:
        assert {row["name"] for row in each["value"]} == {each["key"]["name"]}
        assert all(row["c"] > 0 for row in each["value"])


def check_names(snapshot: sl.Snapshot, rows: list[dict[str, Any]]) -> None:
    """Hold named state to the rows that the job has read."""
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["g"], []).append(row)
    aggregate = by_kind(snapshot, "GroupAggregate")
    counted = {each["key"]["g"]: each["value"] for each in held(aggregate, "accState")}
    for value in counted.values():
        assert value.pop("distinct_name") is not None
    assert counted == {group: accumulators(of_group) for group, of_group in groups.items()}
    join = by_kind(snapshot, "Join")
    left = held(join, "left-records")
    assert sorted(each["user_key"]["id"] for each in left) == sorted(row["id"] for row in rows)
    by_id = {row["id"]: row for row in rows}
    for each in left:
        assert each["user_key"] == {name: by_id[each["user_key"]["id"]][name]
                                    for name in ("id", "g", "v")}  # fmt: skip
        assert each["key"] == {"g": each["user_key"]["g"]}
    for each in held(join, "right-records"):
        assert list(each["value"]) == ["id", "name"]
        assert each["key"]["g"] == each["value"]["id"]
    tops = held(by_kind(snapshot, "Rank"), "data-state-with-append")
    assert {each["key"]["g"] for each in tops} == {*groups}
    for each in tops:
        assert list(each["user_key"]) == ["v"]
        for row in each["value"]:
            assert {name: by_id[row["id"]][name] for name in ("id", "g", "v")} == row
            assert row["v"] == each["user_key"]["v"]
