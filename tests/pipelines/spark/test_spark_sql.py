"""Spark SQL over a lake: names, snapshots, edits that become snapshots, and VACUUM."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from statelake import open_snapshot
from statelake.pipelines.cli.main import main
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.erase.erasing import Erasure, erase
from statelake.pipelines.lake.erase.requests import ErasureRequest
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.query.table_names import find_folded, resolve_names
from statelake.pipelines.lake.tables.log_entries import log_entry
from statelake.pipelines.lake.tables.parquet_seals import check_whole
from statelake.pipelines.lake.tables.table_log import write_checkpoint
from statelake.pipelines.spark.sql import run_sql
from statelake.state_core.errors import ConflictError, KeyGroupError
from statelake.state_core.model.key_groups import operator_id_of_uid
from tests.support.lakes import DEMO, LOCAL, entries, import_as
from tests.support.savepoints.golden_cases import golden_cases
from tests.support.savepoints.names_by_case import names_by_case
from tests.support.steps import EndError, do_at, stop

pytestmark = [pytest.mark.spark, pytest.mark.full]

ERASED = "word-142"
NAMES = {
    ("orders", "counter", "count"): "T1",
    ("orders", "counter", "Count"): "T2",
    ("my-job", "0da08f51", "win`dow"): "T3",
    ("orders", "counter", "timers"): "T4",
    ("counter", "timers"): "T4",
}
Sql = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def sql(
    spark: SparkSession,  # noqa: ARG001 - the command takes it for its own
    archive: Catalog,
    capfd: pytest.CaptureFixture[str],
) -> Sql:
    """`statelake sql --json` on the archive: the rows that it prints."""

    def run(query: str, *options: str) -> list[dict[str, Any]]:
        with pytest.raises(SystemExit) as left:
            main(
                ["sql", "--engine", "spark", "--lake", archive.location, query, "--json", *options]
            )
        said = capfd.readouterr()
        assert (left.value.code, said.err) == (0, "")
        return [json.loads(line) for line in said.out.splitlines()]

    return run


@pytest.fixture
def change(spark: SparkSession, archive: Catalog) -> Sql:
    """Spark as a user has it, who changes tables of the archive: what it answers."""
    return lambda query: [row.asDict() for row in run_sql(spark, archive, query).collect()]


def test_damaged_values_are_not_read(archive: Catalog, change: Sql) -> None:
    """Spark compares the checksums of pages, which it does not do by itself."""
    path = next(Path(archive.location).glob("orders/keyed/counter/count/_data/**/*.parquet"))
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(1)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size - 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(Exception, match=r"(?i)could not verify page integrity|crc"):
        change("SELECT sum(value), count(key) FROM orders.counter.count")


def test_entries_and_checkpoints_with_digests_are_read(archive: Catalog, change: Sql) -> None:
    """Spark passes over what it does not know of them, and over the seals of files."""
    table = archive.table("orders/keyed/counter/count")
    write_checkpoint(table.directory)
    assert b"statelake.digest" in table.directory.read(log_entry(0))
    assert check_whole(table.directory.open_input(f"_delta_log/{0:020}.checkpoint.parquet"))
    assert change("SELECT count(*) AS words FROM orders.counter.count") == [{"words": 300}]


def held(savepoint: str | Path) -> dict[str, int]:
    """The counts by word that a savepoint holds."""
    table = open_snapshot(savepoint).operator("counter").state("count").to_arrow()
    return dict(zip(*(table.column(name).to_pylist() for name in ("key", "value")), strict=True))


def exported(lake: Catalog, snapshot_id: str, to: Path) -> dict[str, int]:
    """The counts by word of a snapshot, exported and read again."""
    return held(export_snapshot(lake, "orders", snapshot_id, to, engine="local").path)


class TestNames:
    """`<job>.<operator>.<state>` in a query stands for its table, and nothing else does."""

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("SELECT * FROM orders.counter.count", "SELECT * FROM T1"),
            ("SELECT * FROM ORDERS.Counter.TIMERS", "SELECT * FROM T4"),
            ("SELECT * FROM orders.counter.Count c", "SELECT * FROM T2 c"),
            ("SELECT * FROM `orders`.counter . `count`", "SELECT * FROM T1"),
            ("SELECT * FROM `my-job`.0da08f51.`win``dow`", "SELECT * FROM T3"),
            ("FROM counter.timers t, orders.counter.count", "FROM T4 t, T1"),
            ("UPDATE orders.counter.count SET value=1;", "UPDATE T1 SET value=1;"),
            ("SELECT 'orders.counter.count' FROM x", None),
            ("SELECT 'it''s', \"orders.counter.count\" FROM x", None),
            ("SELECT '\\' orders.counter.count' FROM x", None),
            ("SELECT 1 -- orders.counter.count", None),
            ("SELECT 1 /* orders.counter.count\n */", None),
            ("SELECT c.value FROM orders.counter.nope c", None),
            ("SELECT * FROM orders.counter.count.value", None),
            ("SELECT * FROM my_orders.counter.count", None),
            ("SELECT 1.5, a.b-c.d FROM delta.`/lake/orders.counter.count`", None),
        ],
    )
    def test_of_tables(self, query: str, expected: str | None) -> None:
        """Quotes, comments, unknown names and paths are left as they are."""
        assert resolve_names(query, lambda parts: find_folded(NAMES, parts)) == (expected or query)

    def test_of_a_state(self, sql: Sql, counts: Path) -> None:
        """The table's rows are the savepoint's."""
        assert sql("SELECT count(*) n, sum(value) total FROM orders.counter.count") == [
            {"n": 300, "total": sum(held(counts).values())}
        ]

    def test_without_the_job(self, sql: Sql) -> None:
        """With `--job` its name may be left out."""
        assert sql("SELECT count(*) n FROM counter.count", "--job", "orders") == [{"n": 300}]

    @pytest.mark.full
    def test_of_timers_and_old_operators(self, spark: SparkSession, tmp_path: Path) -> None:
        """An operator's timers share a table; an operator without a uid goes by its id."""
        (kinds,) = golden_cases("kinds", form="canonical")[:1]
        (old,) = (
            golden_case
            for golden_case in golden_cases("kinds", form="canonical")
            if "1.20" in golden_case.name
        )
        lake = Catalog(str(tmp_path / "lake"))
        import_snapshot(lake, str(kinds.snapshot), "new", engine="local")
        import_snapshot(lake, str(old.snapshot), "old job", engine="local")
        state = open_snapshot(kinds.snapshot).operator("kinds")
        expected = sum(len(timer.to_arrow()) for timer in state.timers)
        for query in (
            "SELECT count(*), count(DISTINCT domain) FROM new.kinds.timers",
            """SELECT count(*), count(DISTINCT domain)
               FROM `old job`.3681dd3b43c36f87b626db636033d1db.timers""",
        ):
            assert tuple(run_sql(spark, lake, query).first() or ()) == (expected, 2)
        joined = run_sql(
            spark,
            lake,
            "SELECT * FROM new.kinds.total a"
            " JOIN `old job`.3681dd3b43c36f87b626db636033d1db.total b USING (key)",
        )
        assert joined.count() > 0


class TestErrors:
    """What can't be asked is told in one line, with an exit code."""

    @pytest.mark.parametrize(
        ("query", "options", "code", "said"),
        [
            (
                "SELECT * FROM orders.counter.nope",
                [],
                3,
                "tables are: orders.counter.count, orders.counter.t",
            ),
            ("SELECT nope FROM orders.counter.count", [], 3, "`nope` cannot be resolved"),
            ("SELEKT 1", [], 3, "Syntax error at or near 'SELEKT'"),
            (
                "SELECT * FROM orders.counter.count",
                ["--as-of", "sunday"],
                3,
                "no job has a snapshot 'sunday'",
            ),
            (
                "UPDATE orders.counter.count SET value = 1",
                ["--as-of", "monday"],
                2,
                "UPDATE needs --edit",
            ),
            ("DELETE FROM orders.counter.count", [], 2, "DELETE needs --edit"),
        ],
    )
    def test_is_one_line(
        self,
        spark: SparkSession,
        archive: Catalog,
        capfd: pytest.CaptureFixture[str],
        query: str,
        options: list[str],
        code: int,
        said: str,
    ) -> None:
        """The line says what is wrong, without a trace; nothing goes to standard output."""
        with pytest.raises(SystemExit) as left:
            main(["sql", "--engine", "spark", "--lake", archive.location, query, *options])
        out, err = capfd.readouterr()
        assert (left.value.code, out) == (code, "")
        assert said in err
        assert err.count("\n") == 1 or code == 2
        assert "Traceback" not in err
        assert "org.apache.spark" not in err

    def test_no_lake(
        self, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """A directory that is no lake is told before anything else."""
        with pytest.raises(SystemExit) as left:
            main(["sql", "--engine", "spark", "--lake", str(tmp_path), "SELECT 1"])
        assert left.value.code == 3
        assert "this is no lake" in capfd.readouterr().err


class TestEdits:
    """A table that Spark SQL changed becomes a snapshot, which exports as changed."""

    def test_delete_and_update(
        self, sql: Sql, change: Sql, archive: Catalog, counts: Path, tmp_path: Path
    ) -> None:
        """One customer's key goes, others change; the parent stays what it was."""
        before = held(counts)
        assert change("DELETE FROM orders.counter.count WHERE key = 'word-142'") == [
            {"num_affected_rows": 1}
        ]
        changed = change("UPDATE orders.counter.count SET value = -value WHERE key LIKE 'word-1%'")
        assert changed[0]["num_affected_rows"] > 10
        done = commit_snapshot(
            ChildSnapshot(
                archive, "orders", "monday", "erased", note="asked for by mail", engine="spark"
            )
        )
        after = {
            key: -value if key.startswith("word-1") else value
            for key, value in before.items()
            if key != ERASED
        }
        assert done.changed == {"counter/count": (300, 299)}
        record = archive.snapshot("orders", "erased")
        assert (record.parent, record.origin, record.note) == (
            "monday", "commit", "asked for by mail",
        )  # fmt: skip
        assert record.entries == archive.snapshot("orders", "monday").entries - 1
        assert exported(archive, "erased", tmp_path / "erased") == after
        assert exported(archive, "monday", tmp_path / "monday") == before
        for snapshot_id, expected in (("monday", before), ("erased", after)):
            found = sql(
                "SELECT count(*) n, sum(value) total FROM orders.counter.count",
                "--as-of",
                snapshot_id,
            )
            assert found == [{"n": len(expected), "total": sum(expected.values())}]

    def test_insert(
        self, sql: Sql, change: Sql, archive: Catalog, counts: Path, tmp_path: Path
    ) -> None:
        """A key that was erased can be written again, by the columns that matter."""
        (row,) = sql("SELECT key_group, value FROM orders.counter.count WHERE key = 'word-142'")
        change("DELETE FROM orders.counter.count WHERE key = 'word-142'")
        change(
            "INSERT INTO orders.counter.count (key_group, key, value)"
            f" VALUES ({row['key_group']}, '{ERASED}', 7)"
        )
        commit_snapshot(ChildSnapshot(archive, "orders", "monday", "again", engine="local"))
        assert exported(archive, "again", tmp_path / "out") == held(counts) | {ERASED: 7}

    def test_a_key_outside_its_key_group(self, change: Sql, archive: Catalog) -> None:
        """Another key is another key group: an edit that forgets that is refused."""
        change("UPDATE orders.counter.count SET key = 'someone else' WHERE key = 'word-142'")
        with pytest.raises(KeyGroupError, match=r"key group"):
            commit_snapshot(ChildSnapshot(archive, "orders", "monday", "moved", engine="spark"))
        assert [summary.snapshot_id for summary in archive.summaries("orders")] == ["monday"]


class TestAnErasureThatHasNotEnded:
    """The log of a table may name files of before, and Spark reads by the log."""

    @pytest.mark.parametrize("as_of", [None, "monday"])
    def test_is_told(self, spark: SparkSession, archive: Catalog, as_of: str | None) -> None:
        """Nothing is read that was erased; when the erasure was ended, Spark reads again."""
        request = ErasureRequest("gdpr-1", [ERASED])
        query = "SELECT count(*) FROM orders.counter.count"
        with pytest.MonkeyPatch.context() as patch:
            do_at(patch, (Erasure, "rewrite_logs", "before", 1), stop)
            with pytest.raises(EndError):
                erase(archive, request)
        with pytest.raises(ConflictError, match="an erasure has not ended"):
            run_sql(spark, archive, query, as_of=as_of)
        erase(archive, request)
        assert tuple(run_sql(spark, archive, query, as_of=as_of).first() or ()) == (299,)


class TestVacuum:
    """A snapshot that is kept stays readable, whatever VACUUM does."""

    @pytest.mark.full
    def test_retain_0_hours(
        self,
        spark: SparkSession,
        sql: Sql,
        change: Sql,
        archive: Catalog,
        counts: Path,
        tmp_path: Path,
    ) -> None:
        """Imports and commits survive; only what an edit left and nobody committed goes."""
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        before = held(counts)
        change("DELETE FROM orders.counter.count WHERE key = 'word-142'")
        commit_snapshot(ChildSnapshot(archive, "orders", "monday", "erased", engine="local"))
        change("DELETE FROM orders.counter.count")
        other = next(
            golden_case for golden_case in golden_cases("wordcount") if "inline" in golden_case.name
        )
        import_snapshot(archive, str(other.snapshot), "orders", snapshot_id="tuesday")
        tables = archive.snapshot("orders", "monday").operators[0].tables
        (table,) = (table.path for table in tables if table.path.endswith("/count"))
        for path in ("snapshots", table):
            uri = archive.table(path).uri
            run_sql(spark, archive, f"VACUUM delta.`{uri}` RETAIN 0 HOURS").collect()
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
        spark.catalog.clearCache()
        for snapshot_id, expected in (
            ("monday", before),
            ("erased", {key: value for key, value in before.items() if key != ERASED}),
            ("tuesday", held(other.snapshot)),
        ):
            query = "SELECT key, value FROM orders.counter.count"
            found = sql(query, "--as-of", snapshot_id, "--limit", "999")
            assert {row["key"]: row["value"] for row in found} == expected
            assert exported(archive, snapshot_id, tmp_path / snapshot_id) == expected
        folder = tmp_path / "lake" / table
        left = {path.relative_to(folder).parts[0] for path in folder.rglob("*.parquet")}
        assert left - {"_delta_log"} == {"_data"}


def test_a_page_shows_how_spark_reads_a_lake_by_itself(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sample of `docs/without-statelake.md`, at the version that the catalog has."""
    page = Path(__file__).parents[3] / "docs" / "without-statelake.md"
    lake = Catalog(str(tmp_path / "lake"))
    import_as(lake, DEMO / "monday", "monday", job="demo")
    import_as(lake, DEMO / "tuesday", "tuesday", job="demo")
    (sample,) = re.findall(
        r"```python\n([^`]*spark\.[^`]*)```\n\n```\n(.*?)```", page.read_text("utf-8"), re.DOTALL
    )
    path = f"{lake.location}/demo/keyed/kinds/total"
    exec(sample[0], {"spark": spark, "path": path, "version": 0})  # noqa: S102 - what the page says
    assert capsys.readouterr().out.split() == sample[1].split()


def test_fields_that_differ_only_in_their_case(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's names have no case: it tells both columns apart, and an edit finds its field."""
    savepoint = names_by_case(tmp_path / "savepoint", "op")
    (row,) = (
        spark.read.format("flink_savepoint").options(operator="op", state="twin")
        .load(str(savepoint)).where("value.ID_2 = 'UP3'").select("value.id", "value.ID_2").collect()
    )  # fmt: skip
    assert list(row) == ["low3", "UP3"]
    lake = Catalog(tmp_path / "lake")
    import_as(lake, savepoint, "one")
    query = "UPDATE op.twin SET value.ID_2 = 'XX3', value.inner.a = 9 WHERE value.ID_2 = 'UP3'"
    run_sql(spark, lake, query, job="orders")
    commit_snapshot(ChildSnapshot(lake, "orders", "one", "two", engine=LOCAL))
    contents = []
    for name in ("one", "two"):
        out = export_snapshot(lake, "orders", name, tmp_path / name, engine="local").path
        contents.append(set(entries(Path(out))[operator_id_of_uid("op"), "twin"]))
    ((_, _, was),) = contents[0] - contents[1]
    ((_, _, becomes),) = contents[1] - contents[0]
    # `A` of 2 and `a` of 1, each behind its null flag
    numbers = [bytes([0, 0, 0, 0, 2, 0, 0, 0, 0, number]) for number in (1, 9)]
    assert becomes == was.replace(b"UP3", b"XX3").replace(*numbers)
