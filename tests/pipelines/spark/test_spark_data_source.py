"""`spark.read.format("flink_savepoint")`: what it reads, and what it leaves out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from statelake import open_snapshot
from statelake.pipelines.spark.flink_savepoint import FlinkSavepointDataSource, FlinkSavepointReader
from statelake.pipelines.spark.jars import java_command
from statelake.state_core.errors import SnapshotError
from tests.support.savepoints.golden_cases import GOLDEN, GoldenCase, golden_cases

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.thinned(4)]

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
CASES = golden_cases("wordcount", "kinds", "windows", form="canonical")
PARTITIONS = 11  # of the counts by word
SMALL = 1000  # bytes of a partition: a few key groups


def read(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    """A state as a DataFrame, without any registration."""
    reader = spark.read.format("flink_savepoint")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(str(path))


def rows(table: Any) -> list[str]:
    """The rows of an Arrow table, whatever their order."""
    return sorted(repr(row) for row in table.to_pylist())


@pytest.fixture
def counter(spark: SparkSession, counts: Path) -> DataFrame:
    """All counts by word, a few key groups a partition."""
    return read(spark, counts, sliceBytes=SMALL)


@pytest.fixture
def pruned(spark: SparkSession, counts: Path) -> DataFrame:
    """The same, for one filter."""
    return read(spark, counts, sliceBytes=SMALL, pruneByFilter="true")


class TestContents:
    """A DataFrame holds what `to_arrow` does."""

    @pytest.mark.parametrize(
        "case",
        [case for case in CASES if "kinds" not in case.name or "2.3.0" in case.name],
        ids=lambda case: case.name,
    )
    def test_every_state_is_what_state_core_reads(
        self, spark: SparkSession, case: GoldenCase
    ) -> None:
        """Every state of a golden savepoint, timers too, has the same columns and rows."""
        seen = 0
        for operator in open_snapshot(case.snapshot).operators:
            for state in operator.keyed_states:
                options = {"operator": operator.label, "state": state.name}
                found = read(spark, case.snapshot, **options).toArrow()
                expected = state.to_arrow().select(found.schema.names)
                assert found.schema.types == expected.schema.types
                assert rows(found) == rows(expected)
                seen += 1
        assert seen >= 3

    def test_the_only_operator_and_state_need_no_name(
        self, spark: SparkSession, counts: Path
    ) -> None:
        """Where one operator has one state beside its timers, the path is enough."""
        found = read(spark, counts)
        assert found.columns == ["key_group", "key", "namespace", "value"]
        assert found.count() == 300

    def test_it_is_a_table_for_sql_too(self, spark: SparkSession, counts: Path) -> None:
        """A view `USING flink_savepoint` takes the same options."""
        spark.sql(
            "CREATE OR REPLACE TEMPORARY VIEW words USING flink_savepoint"
            f" OPTIONS (path '{counts}', keyGroups '5')"
        )
        found = spark.sql("SELECT count(*), min(key_group), max(key_group) FROM words").first()
        assert found is not None
        assert found[0] > 0
        assert tuple(found[1:]) == (5, 5)

    def test_partitions_are_slices_of_key_groups(self, counter: DataFrame) -> None:
        """Small slices make many partitions, and no key group is in two of them."""
        groups: list[set[int]] = (
            counter.select("key_group").rdd.mapPartitions(lambda part: [{r[0] for r in part}])
        ).collect()
        assert len(groups) > 5
        assert sum(map(len, groups)) == len(set.union(*groups))


class TestOptions:
    """What is not asked for is not read."""

    def test_columns(self, spark: SparkSession, counts: Path) -> None:
        """Only the columns that are named, in that order."""
        found = read(spark, counts, columns="value, key")
        assert found.columns == ["value", "key"]
        everything = read(spark, counts).toArrow().select(["value", "key"])
        assert rows(found.toArrow()) == rows(everything)

    def test_columns_of_a_schema(self, spark: SparkSession, counts: Path) -> None:
        """A schema that the user gives chooses columns too."""
        reader = spark.read.format("flink_savepoint").schema("value bigint, key string")
        everything = read(spark, counts).toArrow().select(["value", "key"])
        assert rows(reader.load(str(counts)).toArrow()) == rows(everything)

    def test_exact_bytes_are_there_for_who_asks(self, spark: SparkSession, counts: Path) -> None:
        """`raw_value` is a column only when it is named."""
        assert read(spark, counts, columns="key,raw_value").columns == ["key", "raw_value"]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("17", [range(17, 18)]),
            ("0-63", [range(64)]),
            ("3, 8-11,120-127", [range(3, 4), range(8, 12), range(120, 128)]),
        ],
    )
    def test_key_groups(
        self, spark: SparkSession, counts: Path, text: str, expected: list[range]
    ) -> None:
        """Only the rows of key groups that are named, from no more partitions than they need."""
        found = read(spark, counts, keyGroups=text, sliceBytes=SMALL)
        state = open_snapshot(counts).operator("counter").state("count").to_arrow()
        wanted = {group for part in expected for group in part}
        kept = [row for row in state.to_pylist() if row["key_group"] in wanted]
        assert {row["key_group"] for row in kept} <= wanted
        assert len(kept) < 300
        assert sorted(row.key for row in found.collect()) == sorted(row["key"] for row in kept)
        assert (
            found.rdd.getNumPartitions()
            < read(spark, counts, sliceBytes=SMALL).rdd.getNumPartitions()
        )

    def test_names_of_options_have_no_case(self, spark: SparkSession, counts: Path) -> None:
        """Spark's options have no case, so ours have none."""
        assert (
            read(spark, counts, KEYGROUPS="5").count()
            == read(spark, counts, keygroups="5").count()
            < 300
        )

    def test_a_uid_names_an_operator_of_old_flink(self, spark: SparkSession) -> None:
        """Before Flink 2.0 a savepoint has ids only; `uids` gives them their names back."""
        (old,) = (
            case for case in CASES if case.facts["case"] == "wordcount" and "1.20" in case.name
        )
        assert read(spark, old.snapshot, uids="counter", operator="counter").count() == 300


class TestErrors:
    """A sentence that names what is wrong, and what there is."""

    @pytest.mark.parametrize(
        ("case", "options", "said"),
        [
            ("kinds", {}, 'choose one with .option("state", ...): total, avg, triple'),
            ("windows", {}, 'choose one with .option("operator", ...): tumbling, sliding'),
            ("kinds", {"operator": "nope"}, "no operator 'nope'"),
            (
                "kinds",
                {"state": "nope"},
                "operator kinds has no keyed state 'nope'; it has: 'total'",
            ),
            (
                "kinds",
                {"state": "avg", "columns": "key,nope"},
                "has no column 'nope'; it has: key_",
            ),
            ("kinds", {"state": "avg", "keyGroups": "1..3"}, "keyGroups '1..3'; write 17, or 0-63"),
            (
                "kinds",
                {"state": "avg", "keyGroups": "128"},
                "no key groups 128; the operator has 0-127",
            ),
            (
                "kinds",
                {"state": "avg", "keyGroups": "9-3"},
                "no key groups 9-3; the operator has 0-127",
            ),
        ],
    )
    def test_options_that_name_nothing(
        self, spark: SparkSession, case: str, options: dict[str, str], said: str
    ) -> None:
        """The load fails at once, before any task, and says what could be chosen."""
        snapshot = next(
            golden_case for golden_case in CASES if golden_case.facts["case"] == case
        ).snapshot
        with pytest.raises(AnalysisException) as failed:
            read(spark, snapshot, **options)
        assert said in str(failed.value)
        told = str(failed.value)
        assert "Traceback" not in told
        assert len(told.splitlines()) <= 2, told

    def test_what_is_counted_is_what_is_listed(self, spark: SparkSession) -> None:
        """States and queues of timers each have their number, and stand in that order."""
        kinds = next(case for case in CASES if case.facts["case"] == "kinds").snapshot
        with pytest.raises(AnalysisException) as failed:
            read(spark, kinds)
        found = re.search(
            r"has (\d+) states and (\d+) queues of timers; choose one .*?: (.*)", str(failed.value)
        )
        assert found is not None
        names = found[3].strip().split(", ")
        timers = [name.startswith("_timer_state/") for name in names]
        assert timers == [False] * int(found[1]) + [True] * int(found[2])

    def test_a_size_that_is_no_number(self, spark: SparkSession, counts: Path) -> None:
        """`sliceBytes` has to be a number of bytes."""
        with pytest.raises(PySparkException, match="sliceBytes '1 MB'; write a number of bytes"):
            read(spark, counts, sliceBytes="1 MB").count()

    def test_no_path(self, spark: SparkSession) -> None:
        """Without a path there is nothing to read."""
        with pytest.raises(AnalysisException, match="no path given"):
            spark.read.format("flink_savepoint").load()

    def test_no_savepoint(self, spark: SparkSession, tmp_path: Path) -> None:
        """A directory without `_metadata` is no savepoint."""
        with pytest.raises(AnalysisException, match=r"NotASnapshotError.*_metadata"):
            read(spark, tmp_path)

    def test_a_damaged_file_is_named(
        self, spark: SparkSession, counts: Path, tmp_path: Path
    ) -> None:
        """What an executor finds wrong says which file, and where in it."""
        copy = shutil.copytree(counts, tmp_path / "savepoint")
        file = max((path for path in copy.iterdir()), key=lambda path: path.stat().st_size)
        data = bytearray(file.read_bytes())
        data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
        file.write_bytes(data)
        with pytest.raises(PySparkException) as failed:
            read(spark, copy).collect()
        assert re.search(rf"CorruptSnapshotError: .*{file.name}, .*offset \d+", str(failed.value))
        assert "Traceback (most recent call last)" not in str(failed.value)


FILTERS = (
    ("key_group = 5", True),
    ("key_group <=> 5", True),
    ("key_group > 100", True),
    ("key_group >= 120", True),
    ("key_group < 7", True),
    ("key_group <= 7", True),
    ("key_group BETWEEN 30 AND 40", True),
    ("key_group IN (1, 2, 77, 4000)", True),
    ("key_group IN (5, NULL)", True),
    ("key_group = -1", True),
    ("key = 'word-142'", True),
    ("key IN ('word-142', 'never written')", True),
    ("key = 'word-142' AND key_group < 64", True),
    ("key = 'a\ufffdb'", False),
    ("key IS NULL", False),
    ("key LIKE 'word-1%'", False),
    ("key_group = 5 OR value > 9000", False),
    ("value > 9000", False),
)
CONDITIONS = [text for text, _ in FILTERS]


@pytest.fixture(scope="module")
def answers(spark: SparkSession) -> dict[str, list[str]]:
    """The keys that each filter lets through, by a DataFrame without the data source."""
    (case,) = (case for case in CASES if case.name.startswith("wordcount-rocksdb"))
    state = open_snapshot(case.snapshot).operator("counter").state("count").to_arrow()
    frame = spark.createDataFrame(state.select(["key_group", "key", "value"]))
    found = frame.selectExpr("key", *CONDITIONS).collect()
    return {
        condition: sorted(row[0] for row in found if row[index])
        for index, condition in enumerate(CONDITIONS, 1)
    }


def keys(frame: DataFrame) -> list[str]:
    """The keys of a DataFrame's rows, sorted."""
    return sorted(frame.toArrow().column("key").to_pylist())


class TestPushDown:
    """Filters prune key groups where Spark pushes them down, and never change an answer."""

    @pytest.fixture
    def pushing(self, spark: SparkSession) -> Iterator[None]:
        """Push-down on; Spark's default is off."""
        spark.conf.set(PUSH_DOWN, "true")
        yield
        spark.conf.unset(PUSH_DOWN)

    @pytest.mark.parametrize(("text", "prunes"), FILTERS, ids=CONDITIONS)
    def test_on(
        self,
        pushing: None,
        answers: dict[str, list[str]],
        pruned: DataFrame,
        text: str,
        prunes: bool,
    ) -> None:
        """The rows are the filter's, and come from fewer partitions where it fixes key groups."""
        found = pruned.where(text)
        assert keys(found) == answers[text]
        assert (found.rdd.getNumPartitions() < PARTITIONS) is prunes

    def test_only_the_key_group_itself_is_read(self, pushing: None, pruned: DataFrame) -> None:
        """One key group out of many is one partition, and only its rows leave Python."""
        found = pruned.where("key_group = 5")
        count = len(found.collect())
        assert found.rdd.getNumPartitions() == 1
        assert 0 < rows_scanned(found) == count < 300

    def test_on_one_frame_twice(self, pushing: None, counter: DataFrame) -> None:
        """Without `pruneByFilter` a frame that was filtered once can be used again."""
        assert counter.where("key_group = 5").count() < 300
        assert counter.count() == 300

    def test_off(
        self, spark: SparkSession, answers: dict[str, list[str]], counter: DataFrame
    ) -> None:
        """With push-down off nothing raises, and everything is read and filtered by Spark."""
        assert spark.conf.get(PUSH_DOWN) == "false"
        found = counter.where("key_group = 5")
        assert keys(found) == answers["key_group = 5"]
        assert found.rdd.getNumPartitions() == counter.rdd.getNumPartitions() == PARTITIONS
        rest = counter.selectExpr("key", *CONDITIONS).collect()
        for index, condition in enumerate(CONDITIONS, 1):
            assert sorted(row[0] for row in rest if row[index]) == answers[condition]


def rows_scanned(frame: DataFrame) -> int:
    """How many rows the data source gave to Spark when the frame was collected."""
    plan = frame._jdf.queryExecution().executedPlan()
    (scan,) = [leaf for leaf in _leaves(plan) if leaf.nodeName().startswith("BatchScan")]
    return int(scan.metrics().apply("numOutputRows").value())


def _leaves(plan: Any) -> list[Any]:
    found = plan.collectLeaves()
    return [found.apply(at) for at in range(found.size())]


PLAIN = """
import sys
from pyspark.sql import SparkSession
from statelake.pipelines.spark.flink_savepoint import register
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
before = spark.sparkContext.pythonExec
register(spark)
rows = spark.read.format("flink_savepoint").option("state", "count").load(sys.argv[1]).count()
print(rows, spark.sparkContext.pythonExec == before)
"""


@pytest.mark.full  # a second JVM
def test_a_plain_session(counts: Path) -> None:
    """Registered, it is found and run whatever `python3` the PATH has; other code is left alone."""
    environment = {name: value for name, value in os.environ.items() if "SPARK" not in name}
    environment["PATH"] = os.pathsep.join((str(Path(java_command()).parent), "/usr/bin", "/bin"))
    environment["PYTHONPATH"] = str(Path(__file__).parents[3])
    ran = subprocess.run(
        [sys.executable, "-c", PLAIN, str(counts)], check=False, capture_output=True, text=True,
        timeout=300, env=environment,
    )  # fmt: skip
    assert ran.stdout.split() == ["300", "True"], ran.stderr[-2000:]


def test_rows_that_no_column_holds_are_told(tmp_path: Path) -> None:
    """`is_exact` if it is named; another operator whose file is gone does not matter."""
    edge = GOLDEN / "edge" / "values-1"
    for state, exact in (("big", 0), ("str", 24), ("dbl", 40)):
        options = {"path": str(edge), "state": state, "columns": "key,is_exact"}
        reader = FlinkSavepointReader(options)
        found = [batch for part in reader.partitions() for batch in reader.read(part)]
        table = pa.Table.from_batches(found)
        assert table.schema.names == ["key", "is_exact"]
        assert sum(table["is_exact"].to_pylist()) == exact
    source = FlinkSavepointDataSource({"path": str(edge), "state": "big"})
    assert "is_exact" not in source.schema().names

    (case,) = golden_cases("windows", form="canonical")
    shutil.copytree(case.snapshot, tmp_path / "sp")
    whole = open_snapshot(tmp_path / "sp")
    lost = (
        whole.metadata.operators[
            next(at for at, each in enumerate(whole.operators) if each.label == "sliding")
        ]
        .subtasks[0]
        .managed_keyed.stream.path
    )
    (tmp_path / "sp" / lost).unlink()
    state = next(each.name for each in whole["tumbling"].keyed_states if each.value_type)
    options = {"path": str(tmp_path / "sp"), "operator": "tumbling", "state": state}
    options["columns"] = ",".join(whole["tumbling"].state(state).schema.names)
    reader = FlinkSavepointReader(options)
    found = [batch for part in reader.partitions() for batch in reader.read(part)]
    right = open_snapshot(case.snapshot)["tumbling"].state(state).to_arrow()
    assert rows(pa.Table.from_batches(found)) == rows(right)
    with pytest.raises(SnapshotError, match=lost):
        FlinkSavepointReader({**options, "operator": "sliding"})
