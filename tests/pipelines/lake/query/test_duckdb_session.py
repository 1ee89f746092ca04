"""SQL on DuckDB: names, tables of the catalog, functions, and what a query may not do."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from statelake import NewKeyedState, NewOperator, write_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.query import session as sessions
from statelake.pipelines.lake.query.session import QueryError, Session
from statelake.pipelines.lake.query.table_names import (
    DUCKDB,
    TableNames,
    find_folded,
    resolve_names,
)
from statelake.state_core.errors import (
    KeyGroupError,
    LakeError,
    NotFoundError,
    StateError,
    UnknownHashError,
    UnsafePathError,
)
from tests.support.lakes import DEMO, WIDE, WORDS, forge_entry, import_as, import_golden

NAMES = {
    ("orders", "counter", "count"): "T1",
    ("orders", "counter", "Count"): "T2",
    ("my-job", "0da08f51", 'win"dow'): "T3",
    ("orders", "counter", "count@all"): "T4",
    ("0da08f51", "count"): "T5",
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """The demo's savepoints as snapshots of job `demo`, and a job `wide` of 1,024 key groups."""
    lake = Catalog(tmp_path_factory.mktemp("query") / "lake")
    import_as(lake, DEMO / "monday", "monday", job="demo")
    import_as(lake, DEMO / "tuesday", "tuesday", job="demo")
    import_as(lake, WIDE, "first", job="wide")
    return lake


@pytest.fixture
def session(lake: Catalog) -> Iterator[Session]:
    """A session at the newest tables, in which `demo` may be left out."""
    with Session(lake, TableNames(lake, job="demo")) as opened:
        yield opened


def rows(session: Session, query: str) -> list[dict[str, Any]]:
    """The rows of a query."""
    return [row for batch in session.query(query).batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT * FROM orders.counter.count", "SELECT * FROM T1"),
        ("SELECT * FROM Orders.COUNTER.COUNT@all", "SELECT * FROM T4"),
        ('SELECT * FROM "orders".counter . `count`', "SELECT * FROM T1"),
        ('FROM `my-job`.0da08f51."win""dow"', "FROM T3"),
        ('FROM `my-job`.0da08f51.`win"dow`', "FROM T3"),
        ("FROM orders.counter.count@all a", "FROM T4 a"),
        ('FROM orders.counter."count@all" a', "FROM T4 a"),
        ("FROM 0da08f51.count", "FROM T5"),
        ('SELECT `key`, `a``b`, `a"b` FROM x', 'SELECT "key", "a`b", "a""b" FROM x'),
        ("SELECT 'orders.counter.count', 1.5 FROM x", None),
        ("SELECT 'it''s orders.counter.count' FROM x", None),
        ("SELECT 'a\\', 'orders.counter.count' FROM x", None),
        ("SELECT e'\\' orders.counter.count' FROM x", None),
        ("SELECT $$ orders.counter.count $$, $a$ orders.counter.count $a$", None),
        ("SELECT 1 -- orders.counter.count", None),
        ("SELECT 1 /* orders.counter.count */", None),
    ],
)  # fmt: skip
def test_names_in_duckdbs_sql(query: str, expected: str | None) -> None:
    """Names may be in backticks or double quotes; text and comments stay as they are."""
    resolved = resolve_names(query, lambda parts: find_folded(NAMES, parts), DUCKDB)
    assert resolved == (expected or query)


def test_a_name_of_two_tables_is_refused() -> None:
    """Where several tables differ in capital letters alone, none of them is guessed."""
    with pytest.raises(NotFoundError, match=r"may be orders\.counter\.count or orders\.counter\."):
        resolve_names("FROM Orders.COUNTER.count", lambda parts: find_folded(NAMES, parts), DUCKDB)


@pytest.mark.parametrize(
    "tables",
    [
        {("x", "y.z"): 10, ("x.y", "z"): 1000},
        {("x", "count"): 10, ("x", "Count"): 1000},
        {("x", "count"): 10, ("X", "count"): 1000},
        {("x", 'y"."z'): 10, ('x"."y', "z"): 1000},
        {("x", "count"): 10, ("x", "count'"): 1000, ("x", "Count"): 100_000},
    ],
)
def test_two_tables_of_a_query_are_never_taken_for_one_another(
    tmp_path: Path, tables: dict[tuple[str, str], int]
) -> None:
    """Dots, quotes and capital letters in names: each name gives its own table's rows."""
    operators = [
        NewOperator(
            uid,
            "String",
            tuple(
                NewKeyedState(name, pa.table({"key": ["k"], "value": [value]}), value="Long")
                for (of_uid, name), value in tables.items()
                if of_uid == uid
            ),
        )
        for uid in dict.fromkeys(uid for uid, _ in tables)
    ]
    write_snapshot(tmp_path / "savepoint", operators)
    lake = Catalog(tmp_path / "lake")
    uids = [uid for uid, _ in tables]
    for snapshot in ("one", "One"):
        import_as(lake, tmp_path / "savepoint", snapshot, uids=uids)

    def part(name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    names = [f"orders.{part(uid)}.{part(name)}" for uid, name in tables]
    totals = ", ".join(f"(SELECT sum(value) FROM {name})" for name in names)
    every = ", ".join(f'(SELECT sum(value) FROM {name[:-1]}@all")' for name in names)
    with Session(lake, TableNames(lake)) as session:
        (row,) = rows(session, f"SELECT {totals}")
        assert list(row.values()) == list(tables.values())
        (row,) = rows(session, f"SELECT {every}")
        assert list(row.values()) == [2 * value for value in tables.values()]
        shown = [table.name for table in session.names]
        assert len(set(shown)) == len(tables)
        for name in shown:
            assert rows(session, f"SELECT count(*) AS n FROM {name}") == [{"n": 1}]


class TestTables:
    """What names stand for."""

    def test_the_newest_tables(self, session: Session) -> None:
        """The rows of the newest snapshot; with the job left out too."""
        query = "SELECT count(*) AS n, sum(value) AS total FROM {}"
        expected = [{"n": 128, "total": 699008}]
        assert rows(session, query.format("demo.kinds.total")) == expected
        assert rows(session, query.format('"kinds".`total`')) == expected

    def test_as_of_a_snapshot(self, lake: Catalog) -> None:
        """An earlier snapshot's rows, and no other job's tables."""
        names = TableNames(lake, as_of="monday")
        with Session(lake, names) as session:
            assert rows(session, "SELECT count(*) AS n FROM demo.kinds.total") == [{"n": 120}]
            with pytest.raises(QueryError, match=r"tables are: demo\.kinds\.avg"):
                session.query("SELECT * FROM wide.counter.count")

    def test_all_snapshots(self, session: Session) -> None:
        """Each row with the snapshot that it is in."""
        query = "SELECT snapshot, count(*) AS n FROM demo.kinds.total@all GROUP BY ALL ORDER BY 1"
        assert rows(session, query) == [
            {"snapshot": "monday", "n": 120}, {"snapshot": "tuesday", "n": 128}
        ]  # fmt: skip

    def test_partitions_that_are_not_asked_for_are_not_read(self, tmp_path: Path) -> None:
        """With all other files spoiled, a filter on a key group still gives its rows."""
        lake = Catalog(tmp_path / "lake")
        import_as(lake, WORDS, "monday", partitions=30)
        table = lake.table("orders/keyed/counter/count")
        for file in table.files():
            if file.key_groups is None or not file.key_groups[0] <= 50 <= file.key_groups[1]:
                (Path(table.uri) / file.path).write_bytes(b"no Parquet")
        query = "SELECT count(*) AS n FROM orders.counter.count"
        with Session(lake, TableNames(lake)) as session:
            (found,) = rows(session, f"{query} WHERE key_group = 50")
            assert found["n"] == 1
        with Session(lake, TableNames(lake)) as session, pytest.raises(LakeError):
            rows(session, query)

    def test_tables_that_are_not_named_are_not_opened(
        self, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A query costs what it names."""
        monkeypatch.setattr(sessions, "OpenedTable", None)
        assert rows(session, "SELECT 'demo.kinds.total' AS name") == [{"name": "demo.kinds.total"}]

    def test_times_of_last_access(self, session: Session) -> None:
        """As times; an entry has expired at the end of its time to live, not a moment before."""
        (found,) = rows(
            session,
            """SELECT count(*) FILTER (epoch_ms(last_access(ttl)) = ttl) AS same, count(*) AS n,
                      count(*) FILTER (has_expired(ttl, INTERVAL 7 DAYS, at_end)) AS at_end,
                      count(*) FILTER (has_expired(ttl, INTERVAL 7 DAYS, at_end - INTERVAL '1 ms'))
                      AS before
               FROM (SELECT ttl, last_access(ttl) + INTERVAL 7 DAYS AS at_end
                     FROM demo.kinds.session)""",
        )
        assert found == {"same": found["n"], "n": found["n"], "at_end": found["n"], "before": 0}
        assert found["n"] > 0
        (typed,) = rows(session, "SELECT typeof(last_access(1)) AS t")
        assert typed == {"t": "TIMESTAMP WITH TIME ZONE"}

    def test_buckets_of_key_groups(self, session: Session) -> None:
        """No row is before the bucket in which its file begins."""
        query = """
            SELECT count(*) AS n,
                   count(*) FILTER (key_group * 128 // 1024 >= key_group_bucket) AS m,
                   count(*) FILTER (key_group(key, 1024) = key_group) AS hashed
            FROM wide.counter.count"""
        ((found,),) = [rows(session, query)]
        assert found["n"] == found["m"] == found["hashed"] > 0

    def test_a_sum_is_a_whole_number_as_in_spark(self, session: Session) -> None:
        """DuckDB's HUGEINT is a BIGINT here; beyond it is an error, and not a wrong sum."""
        assert (
            str(session.query("SELECT sum(value) AS s FROM kinds.total").schema[0].type) == "int64"
        )
        with pytest.raises(QueryError, match="a sum is beyond BIGINT"):
            rows(session, "SELECT sum(9223372036854775807) FROM range(3)")


class TestCatalog:
    """`statelake.*`: what the catalog knows."""

    def test_snapshots(self, session: Session) -> None:
        """A row for each."""
        found = rows(session, "SELECT job, snapshot, entries FROM statelake.snapshots ORDER BY ALL")
        assert found[:2] == [
            {"job": "demo", "snapshot": "monday", "entries": 1170},
            {"job": "demo", "snapshot": "tuesday", "entries": 1248},
        ]

    def test_they_agree(self, session: Session) -> None:
        """States, operators, key groups and tables add up to the snapshots' entries."""
        for query in (
            "SELECT sum(entries) AS n FROM statelake.snapshots",
            "SELECT sum(entries) AS n FROM statelake.operators",
            "SELECT sum(entries) AS n FROM statelake.states",
            "SELECT sum(rows) AS n FROM statelake.tables",
        ):
            assert rows(session, query) == rows(
                session, "SELECT sum(entries) AS n FROM statelake.snapshots"
            )
        keyed = "SELECT sum(entries) AS n FROM statelake.states WHERE kind NOT IN"
        keyed += " ('UNION', 'SPLIT_DISTRIBUTE', 'BROADCAST')"
        assert rows(session, "SELECT sum(entries) AS n FROM statelake.key_groups") == rows(
            session, keyed
        )

    def test_a_table_that_it_does_not_have(self, session: Session) -> None:
        """The error says which there are."""
        with pytest.raises(QueryError, match=r"no table statelake.nope; .*statelake.key_groups"):
            session.query("SELECT * FROM statelake.nope")


class TestKeyGroups:
    """`key_group(key, max_parallelism)`."""

    @pytest.mark.parametrize("state", ["total", "name", "row"])
    def test_of_keys(self, session: Session, state: str) -> None:
        """Every key is in the key group that the function says."""
        query = f"SELECT DISTINCT key_group = key_group(key, 128) AS same FROM kinds.{state}"
        assert rows(session, query) == [{"same": True}]

    def test_of_literals(self, session: Session) -> None:
        """Text, numbers and booleans as Java hashes them; null has none."""
        query = """SELECT key_group('word-142', 128) AS text, key_group(-5::BIGINT, 128) AS long,
            key_group(-5::INTEGER, 128) AS int, key_group(true, 128) AS flag,
            key_group(1.5::DOUBLE, 128) AS double, key_group(NULL::VARCHAR, 128) AS nothing"""
        (found,) = rows(session, query)
        assert found["nothing"] is None
        assert found["long"] != found["int"]
        assert all(0 <= group < 128 for group in found.values() if group is not None)

    def test_a_type_that_several_classes_have(self, session: Session) -> None:
        """A clear error, and no guess."""
        with pytest.raises(UnknownHashError, match="can't hash struct"):
            rows(session, "SELECT key_group({'a': 1}, 128)")
        with pytest.raises(KeyGroupError, match="max parallelism 0"):
            rows(session, "SELECT key_group('a', 0)")


class TestRefused:
    """Clear errors."""

    @pytest.mark.parametrize(
        ("query", "message"),
        [
            ("SELECT * FROM demo.kinds.nope", r"tables are: demo.kinds.avg, .*demo.kinds.triple"),
            ("SELECT * FROM nope", r"tables are: demo.kinds.avg"),
            ("SELECT nope FROM kinds.total", r"demo.kinds.total has key_group, key, namespace"),
            ("SELECT collect_list(key) FROM kinds.total", r"collect_list.*--engine spark"),
            ("SELEC 1", r"syntax error.*--engine spark"),
            ("SELECT 1; SELECT 2", "2 statements, but exactly one is allowed"),
            (" -- nothing", "no statement, but exactly one is allowed"),
            ("CREATE TABLE x AS SELECT 1", r"CREATE is not run here.*statelake commit"),
            ("MERGE INTO kinds.total USING kinds.total b ON true WHEN MATCHED THEN DELETE",
             r"MERGE INTO is not run here.*statelake commit"),
            ("VACUUM", r"VACUUM is not run here"),
            ("SET threads = 1", r"SET is not run here"),
            ("PRAGMA enable_profiling", r"PRAGMA is not run here"),
            ("COPY (SELECT 1) TO 'x.csv'", r"COPY is not run here"),
            ("ATTACH 'x.db'", r"ATTACH is not run here"),
            ("INSTALL httpfs", r"is not run here"),
            ("SELECT 'x'::INTEGER", "Could not convert string"),
        ],
    )  # fmt: skip
    def test_queries(self, session: Session, query: str, message: str) -> None:
        """What is wrong, and what there is instead."""
        with pytest.raises(QueryError, match=message):
            rows(session, query)

    @pytest.mark.parametrize(
        "query",
        [
            "SELECT * FROM read_text('{secret}')",
            "SELECT * FROM read_csv('{secret}')",
            "SELECT * FROM read_parquet('{secret}')",
            "SELECT * FROM '{secret}'",
            "SELECT * FROM glob('{folder}/*')",
            "SELECT * FROM delta_scan('{folder}')",
            "SELECT * FROM read_csv('http://127.0.0.1:9/x')",
        ],
    )
    def test_files_of_others(self, session: Session, query: str, tmp_path: Path) -> None:
        """A query reads the lake's tables and nothing else."""
        secret = tmp_path / "secret.csv"
        secret.write_text("hidden")
        with pytest.raises(QueryError) as refused:
            rows(session, query.format(secret=secret, folder=tmp_path))
        assert "hidden" not in str(refused.value)

    def test_variables_of_python(self, session: Session) -> None:
        """No variable of this program is a table."""
        secret = {"a": [1]}
        assert secret
        with pytest.raises(QueryError, match="secret"):
            session.query("SELECT * FROM secret")

    def test_names_of_jobs_and_snapshots(self, lake: Catalog) -> None:
        """Wrong ones are told before anything is run."""
        with pytest.raises(NotFoundError, match="no job has a snapshot 'nope'"):
            TableNames(lake, as_of="nope")
        with pytest.raises(NotFoundError, match="no job 'nope' in the lake"):
            TableNames(lake, job="nope")


class TestDamagedTables:
    """A table whose files are not what its log says."""

    @pytest.fixture
    def words(self, tmp_path: Path) -> Catalog:
        """A lake with one job of words."""
        return import_golden(Catalog(tmp_path / "lake"), ("monday", WORDS))

    def file_of(self, lake: Catalog) -> Path:
        """A file of its table."""
        table = lake.table("orders/keyed/counter/count")
        return Path(table.uri) / table.files()[0].path

    def refused(self, lake: Catalog, kind: type[StateError], message: str) -> None:
        """The query ends in an error."""
        with Session(lake, TableNames(lake)) as session, pytest.raises(kind, match=message):
            rows(session, "SELECT sum(value) FROM orders.counter.count")

    def test_a_missing_file(self, words: Catalog) -> None:
        """It is named, with what to do."""
        self.file_of(words).unlink()
        self.refused(words, LakeError, r"key-groups-.*a file of the table can't be read")

    def test_a_link(self, words: Catalog, tmp_path: Path) -> None:
        """It is not followed."""
        file = self.file_of(words)
        file.rename(tmp_path / "victim.parquet")
        file.symlink_to(tmp_path / "victim.parquet")
        self.refused(words, UnsafePathError, "link")

    def test_no_parquet(self, words: Catalog) -> None:
        """What is no Parquet file is an error of the lake."""
        self.file_of(words).write_bytes(b"PAR1 but not really")
        self.refused(words, LakeError, "can't be read")

    def test_a_path_that_leads_away(self, words: Catalog) -> None:
        """A log that names a file elsewhere is refused."""
        table = words.table("orders/keyed/counter/count")
        log = Path(table.uri) / "_delta_log" / f"{0:020d}.json"
        name = table.files()[0].path
        forge_entry(log, lambda text: text.replace(name, "..%2F..%2Fvictim.parquet", 1))
        self.refused(words, UnsafePathError, "victim")


def test_nothing_is_left_behind(
    lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporary files go with the session, and DuckDB makes no directory where it runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Session(lake, TableNames(lake)) as session:
        rows(session, "SELECT * FROM demo.kinds.total ORDER BY value")
    assert list(tmp_path.iterdir()) == []


def test_a_query_that_is_not_read_to_its_end_ends(lake: Catalog) -> None:
    """Whoever has seen enough waits for nothing."""
    with Session(lake, TableNames(lake)) as session:
        query = "SELECT a.* FROM demo.kinds.total a, demo.kinds.total b, range(1000)"
        assert len(next(session.query(query).batches)) > 0


def test_a_version_is_pinned(tmp_path: Path) -> None:
    """A snapshot is read at its version, whatever a table's newest version has."""
    lake = Catalog(tmp_path / "lake")
    import_as(lake, WORDS, "monday")
    DeltaTable(lake.table("orders/keyed/counter/count").uri).delete("key_group > 9")
    query = "SELECT count(*) = 300 AS whole FROM orders.counter.count"
    for as_of in (None, "monday"):
        with Session(lake, TableNames(lake, as_of=as_of)) as session:
            assert rows(session, query) == [{"whole": as_of is not None}]


def test_a_slow_query_shows_no_bar_among_answers(session: Session) -> None:
    """DuckDB would draw it on the standard output."""
    (row,) = rows(session, "SELECT current_setting('enable_progress_bar') AS bar")
    assert row == {"bar": False}
