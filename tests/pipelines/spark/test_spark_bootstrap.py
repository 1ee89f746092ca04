"""DataFrames, queries, Delta tables and Spark SQL as the first state of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from statelake import open_snapshot
from statelake.pipelines.bootstrap.bootstrapping import bootstrap
from statelake.state_core.errors import EncodeError, StateError, UnreadableTableError
from tests.support.command import run
from tests.support.lakes import entries

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.thinned(3)]

COUNT = 3000


@pytest.fixture
def people(spark: SparkSession) -> DataFrame:
    """Ids, words and instants, in several partitions."""
    return spark.range(COUNT).selectExpr(
        "id", "concat('größe-', id) AS word", "id * 3 AS n", "timestamp_millis(id) AS at"
    ).repartition(4)  # fmt: skip


def spec(source: Any, **said: Any) -> dict[str, Any]:
    """One operator with one state, keyed by word."""
    state = {"type": "Long", "source": source, "key": "word", "value": "n"} | said
    return {"operators": {"op": {"key_type": "String", "states": {"s": state}}}}


def rows(savepoint: Path, *columns: str) -> dict[str, Any]:
    """The state, by key."""
    table = open_snapshot(savepoint, uids=["op"]).operator("op").state("s").to_arrow()
    assert table.num_rows == len(set(table["key"].to_pylist()))
    return {row.pop("key"): row for row in table.select(["key", *columns]).to_pylist()}


def test_a_frame_becomes_a_savepoint(
    spark: SparkSession, people: DataFrame, tmp_path: Path
) -> None:
    """Spark's tasks spill it; columns and Spark SQL, time to live and timers."""
    said = spec(people, value="n * 2 + 1", ttl="at")
    said["operators"]["op"]["timers"] = {
        "event": {"source": people, "key": "word", "timestamp": "at"}
    }
    done = bootstrap(spark, said, tmp_path / "sp", parallelism=3)
    assert done.engine == "spark"
    assert rows(tmp_path / "sp", "value", "ttl") == {
        f"größe-{index}": {"value": index * 6 + 1, "ttl": index} for index in range(COUNT)
    }
    assert sorted(path.suffix for path in (tmp_path / "sp").iterdir()) == [""] * 4
    timers = open_snapshot(tmp_path / "sp", uids=["op"]).operator("op").keyed_states[1]
    assert timers.to_arrow().num_rows == COUNT


@pytest.mark.full
def test_delta_tables_and_queries_give_the_same(
    spark: SparkSession, people: DataFrame, tmp_path: Path
) -> None:
    """By Arrow on Spark's workers; with deletion vectors, by Spark; by a query."""
    path = str(tmp_path / "table")
    people.write.format("delta").save(path)
    bootstrap(None, spec(path), tmp_path / "local", engine="local")
    bootstrap(spark, spec(path), tmp_path / "slices", engine="spark")
    assert entries(tmp_path / "slices") == entries(tmp_path / "local")
    table = f"delta.`{path}`"
    properties = "SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    spark.sql(f"ALTER TABLE {table} {properties}")
    spark.sql(f"DELETE FROM {table} WHERE id = 7")
    with pytest.raises(UnreadableTableError, match=r"deletionVectors.*--engine spark"):
        bootstrap(None, spec(path), tmp_path / "no", engine="local")
    bootstrap(spark, spec(path), tmp_path / "without")
    query = f"SELECT * FROM {table}"
    bootstrap(spark, spec({"sql": query}), tmp_path / "query")
    bootstrap(spark, spec({"path": path, "version": 0}), tmp_path / "version")
    held = rows(tmp_path / "without", "value")
    assert len(held) == COUNT - 1
    assert "größe-7" not in held
    assert entries(tmp_path / "query") == entries(tmp_path / "without")
    assert entries(tmp_path / "version") == entries(tmp_path / "local")


def test_operator_state_of_a_frame(spark: SparkSession, people: DataFrame, tmp_path: Path) -> None:
    """Broadcast and union state, which Spark computes and the driver writes."""
    states = {
        "rules": {"kind": "broadcast", "key_type": "String", "type": "Long",
                  "source": people.where("id < 5"), "key": "word", "value": "id + 1"},
        "all": {"kind": "union", "type": "Long", "source": lambda made: made.range(9),
                "value": "id"},
    }  # fmt: skip
    bootstrap(spark, {"operators": {"op": {"operator_states": states}}}, tmp_path / "sp")
    found = open_snapshot(tmp_path / "sp", uids=["op"]).operator("op").operator_states
    held = {state.name: state.to_arrow().to_pylist() for state in found}
    assert {rule["key"]: rule["value"] for rule in held["rules"]} == {
        f"größe-{index}": index + 1 for index in range(5)
    }
    assert sorted(row["value"] for row in held["all"]) == list(range(9))


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"value": "nope + 1"}, "cannot be resolved"),
        ({"value": "nope"}, "no column 'nope'; it has id, word, n, at"),
        ({"value": "n / 2"}, "column `n / 2`: a column of double; it is to be int64"),
        ({"value": "CAST(word AS BIGINT)"}, "CAST_INVALID_INPUT"),
        ({"value": "nullif(n, 30)"}, "key 'größe-10', column `nullif(n, 30)`: there is no value"),
        ({"type": "Byte", "value": "n"}, "does not fit: Integer value"),
        ({"key": "concat('k', id % 10)"}, "is there more than once"),
    ],
)
def test_what_does_not_fit_is_named(
    said: dict[str, Any], problem: str, spark: SparkSession, people: DataFrame, tmp_path: Path
) -> None:
    """By Spark, by a task, or when key groups are put together; nothing is left."""
    with pytest.raises(EncodeError) as raised:
        bootstrap(spark, spec(people, **said), tmp_path / "sp")
    assert problem in str(raised.value)
    assert "operator op, state 's'" in str(raised.value)
    assert not (tmp_path / "sp").exists()


def test_a_query_that_spark_does_not_understand(spark: SparkSession, tmp_path: Path) -> None:
    """Its own message, and the state."""
    with pytest.raises(StateError, match=r"state 's'.*PARSE_SYNTAX_ERROR"):
        bootstrap(spark, spec({"sql": "SELECT * FRM x"}), tmp_path / "sp")


@pytest.mark.usefixtures("spark")
def test_spark_sql_over_csv_and_json_on_the_command_line(tmp_path: Path) -> None:
    """CSV is text to Spark as well, so that plain columns mean the same with Spark SQL beside."""
    (tmp_path / "a.csv").write_text('id,word,n\n007,"x, y",3\n008,,4\n')
    (tmp_path / "a.jsonl").write_text('{"id": 1, "n": 2}\n{"id": 2, "n": 5}\n')
    (tmp_path / "spec.yaml").write_text(
        "operators:\n"
        "  op:\n"
        "    key_type: String\n"
        "    states:\n"
        "      s:\n"
        "        type: Tuple2<String, Long>\n"
        "        source: a.csv\n"
        "        key: id\n"
        "        value: {f0: \"coalesce(word, 'none')\", f1: n}\n"
        "      t: {type: Long, source: a.jsonl, key: CAST(id AS STRING), value: n}\n"
    )
    ran = run("bootstrap", tmp_path / "spec.yaml", "--to", tmp_path / "sp", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["engine"] == "spark"
    assert rows(tmp_path / "sp", "value") == {
        "007": {"value": {"f0": "x, y", "f1": 3}}, "008": {"value": {"f0": "none", "f1": 4}},
    }  # fmt: skip
    ran = run("bootstrap", tmp_path / "spec.yaml", "--to", tmp_path / "no", "--engine", "local")
    assert ran.code == 3
    assert "Spark SQL (coalesce(word, 'none')) needs Spark" in ran.err
