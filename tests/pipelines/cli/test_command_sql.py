"""`statelake sql` on DuckDB, and `statelake shell`."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statelake import Lake
from statelake.pipelines.cli.commands.queries import query_output
from statelake.pipelines.cli.commands.queries.shell import Shell
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.query.session import Answer
from statelake.pipelines.spark.sql import changing_verb
from statelake.state_core.errors import StateError
from statelake.state_core.files.held_directories import SQL_PREFIX
from tests.support.command import run
from tests.support.lakes import DEMO, import_as, import_golden, kept_files

pytestmark = pytest.mark.thinned(2)

KEY = -820795872871
COUNT = "SELECT count(*) AS n FROM kinds.total"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """The demo's savepoints as snapshots of job `demo`; nobody changes it."""
    lake = Catalog(tmp_path_factory.mktemp("sql") / "lake")
    for name in ("monday", "tuesday"):
        import_as(lake, DEMO / name, name, job="demo")
    return lake


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """One of its own with the first of them."""
    return import_golden(Catalog(tmp_path / "lake"), ("monday", DEMO / "monday"), job="demo")


class TestResults:
    """The same rows in each form."""

    QUERY = "SELECT key, value, value.f1 AS text FROM kinds.triple ORDER BY key"

    def words(self, lake: Catalog, *options: object) -> list[object]:
        """A command."""
        return ["sql", "--lake", lake.location, "--job", "demo", self.QUERY, *options]

    @pytest.mark.full
    def test_forms(self, shared: Catalog, tmp_path: Path) -> None:
        """JSON, CSV, and files of each kind, which have all rows and replace what was there."""
        rows = run(*self.words(shared, "--json", "--limit", 1000)).lines
        assert len(rows) == 128
        printed = run(*self.words(shared, "--csv", "--limit", 1000)).out
        for kind in ("csv", "json", "parquet"):
            path = tmp_path / f"rows.{kind}"
            path.write_text("what was there")
            ran = run(*self.words(shared, "--to", path))
            assert ran.code == 0, ran.err
            assert "wrote 128 rows to" in ran.out
        assert (tmp_path / "rows.csv").read_text() == printed
        (head, *lines) = csv.reader(io.StringIO(printed))
        assert head == ["key", "value", "text"]
        assert [(int(key), json.loads(value), text) for key, value, text in lines] == [
            (row["key"], row["value"], row["text"]) for row in rows
        ]
        as_json = (tmp_path / "rows.json").read_text().splitlines()
        assert list(map(json.loads, as_json)) == rows
        assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == rows
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "rows.csv", "rows.json", "rows.parquet"
        ]  # fmt: skip

    def test_the_first_rows(self, shared: Catalog) -> None:
        """A table ends where its limit is, and says so."""
        ran = run(*self.words(shared, "--limit", 3))
        assert len(ran.out.splitlines()) == 5
        assert ran.out.endswith("the first 3 rows (--limit)\n")
        assert len(run(*self.words(shared)).out.splitlines()) == 102

    def test_a_file_is_whole_or_not_there(
        self, shared: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What fails on the way leaves what was there before."""
        path = tmp_path / "rows.csv"
        path.write_text("before")
        query = "SELECT CAST(value.f1 AS INTEGER) FROM demo.kinds.triple"
        ran = run("sql", "--lake", shared.location, query, "--to", path)
        assert (ran.code, "Could not convert" in ran.err) == (3, True)

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(csv, "writer", full)
        ran = run(*self.words(shared, "--to", path))
        assert (ran.code, "No space left" in ran.err) == (3, True)
        assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
            "rows.csv": "before"
        }

    def test_memory_is_bounded(self, tmp_path: Path) -> None:
        """Batches are written as they come: none is kept."""
        taken: list[int] = []
        schema = pa.schema([("n", pa.int64())])

        def batches() -> Iterator[pa.RecordBatch]:
            for number in range(5):
                taken.append(number)
                yield pa.RecordBatch.from_pydict({"n": [number]}, schema)

        rows = pa.RecordBatchReader.from_batches(schema, Answer(schema, batches()).first(2))
        query_output.write_file(str(tmp_path / "n.parquet"), rows)
        assert taken == [0, 1]
        assert pq.read_table(tmp_path / "n.parquet").num_rows == 2


class TestLimits:
    """What a query takes of the machine."""

    @pytest.mark.full
    def test_more_than_its_memory(self, shared: Catalog) -> None:
        """It is refused, with the option to raise; what can be is spilled."""
        words = ("sql", "--lake", shared.location, "--query-memory", "64MiB")
        ran = run(*words, "SELECT list(range) FROM range(100000000)")
        assert (ran.code, "--query-memory" in ran.err) == (3, True)
        rows = "(SELECT md5(range::VARCHAR) AS text FROM range(1500000) ORDER BY text OFFSET 3)"
        assert run(*words, "--csv", f"SELECT count(text) AS n FROM {rows}").out == "n\n1499997\n"

    def test_more_than_the_memory_of_a_prompt(
        self, shared: Catalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its queries have the same limit."""
        lines = io.StringIO("SELECT list(range) FROM range(100000000);\n")
        monkeypatch.setattr("sys.stdin", lines)
        ran = run("shell", "--lake", shared.location, "--query-memory", "64MiB")
        assert (ran.code, "--query-memory" in ran.err) == (3, True)

    @pytest.mark.full
    def test_an_interrupt_ends_it(self, shared: Catalog, tmp_path: Path) -> None:
        """The first one; and nothing is left."""
        program = (
            "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
            "from statelake.pipelines.cli.main import main; main()"
        )  # a background job would ignore it
        query = "SELECT max(md5(range::VARCHAR)) FROM range(100000000000)"
        with subprocess.Popen(
            [sys.executable, "-c", program, "sql", "--lake", shared.location, query],
            stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)},
        ) as running:  # fmt: skip
            while not list(tmp_path.glob(f"{SQL_PREFIX}*")):
                time.sleep(0.02)
            time.sleep(0.5)  # so that it runs
            running.send_signal(signal.SIGINT)
            try:
                _, said = running.communicate(timeout=60)
            finally:
                running.kill()
        assert (running.returncode, said.strip(), list(tmp_path.iterdir())) == (130, "stopped", [])


class TestRefused:
    """Wrong usage is told with 2, bad input with 3, and what is not there with 1."""

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            ((COUNT, COUNT), 2, "one query at a time"),
            ((COUNT, "--edit", "monday"), 2, "--as the new one"),
            ((COUNT, "--as", "x"), 2, "--edit names the snapshot"),
            ((COUNT, "--edit", "monday", "--as", "x", "--as-of", "monday"), 2, "--edit goes"),
            ((COUNT, "--to", "x.xlsx"), 2, "--to writes .parquet, .csv, .json"),
            ((COUNT, "--to", "s3://bucket/x.csv"), 2, "on this machine"),
            ((COUNT, "--csv", "--json"), 2, "give one of"),
            ((COUNT, "--as-of", "nope"), 3, "no job has a snapshot 'nope'"),
            (("SELECT collect_list(key) FROM kinds.total",), 3, "--engine spark"),
            (("SELECT * FROM kinds.nope",), 3, "tables are: demo.kinds.avg"),
            (("MERGE INTO kinds.total USING kinds.name ON true WHEN MATCHED THEN DELETE",), 3,
             "statelake commit"),
            ((COUNT + "; " + COUNT,), 3, "2 statements"),
            (("DELETE FROM kinds.total WHERE key = 1", "--edit", "tuesday", "--as", "x"), 1,
             "no row of tuesday"),
        ],
    )  # fmt: skip
    def test_queries(self, shared: Catalog, words: tuple[str, ...], code: int, said: str) -> None:
        """Nothing is printed but what is wrong, and nothing in the lake changes."""
        before = kept_files(shared)
        ran = run("sql", "--lake", shared.location, "--job", "demo", *words)
        assert (ran.code, ran.out) == (code, "")
        assert said in " ".join(ran.err.split())
        assert code == 2 or ran.err.count("\n") == 1
        assert kept_files(shared) == before


def test_an_edit(lake: Catalog) -> None:
    """It says what has become of each state; the job need not be named where it is clear."""
    ran = run(
        "sql", "--lake", lake.location, "--edit", "monday", "--as", "erased", "--json",
        f"DELETE FROM demo.kinds.total WHERE key = {KEY}",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    (change,) = ran.json["changes"]
    assert (change["state"], change["entries"]) == ("total", [120, 119])
    ran = run("sql", "--lake", lake.location, "--as-of", "erased", "--job", "demo", COUNT, "--json")
    assert ran.lines == [{"n": 119}]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE kinds.total SET value = 0",
        "DELETE FROM kinds.total",
        "INSERT INTO kinds.total (key_group, key, value) VALUES (1, 2, 3)",
    ],
)
@pytest.mark.parametrize("words", [("sql", "--as-of", "monday"), ("sql",)], ids=["past", "newest"])
def test_a_change_without_an_edit_is_refused(
    lake: Catalog, statement: str, words: tuple[str, ...]
) -> None:
    """The words that make a snapshot of it are told, and no table has another version."""
    before = kept_files(lake)
    ran = run(*words, "--lake", lake.location, "--job", "demo", statement)
    assert (ran.code, ran.out) == (2, "")
    assert f"{statement.split(maxsplit=1)[0]} needs --edit" in ran.err
    assert "--edit SNAPSHOT --as NAME" in " ".join(ran.err.split())
    assert kept_files(lake) == before


@pytest.mark.parametrize(
    ("query", "verb"),
    [
        ("UPDATE kinds.total SET value = 0", "UPDATE"),
        ("-- why\n UPDATE demo.kinds.`total` AS t SET t.value = 0", "UPDATE"),
        ("/* DELETE */ delete\n from kinds.total WHERE key = 1", "DELETE"),
        ("WITH x AS (SELECT 1) INSERT INTO kinds.total SELECT * FROM x", "INSERT"),
        ("FROM kinds.total INSERT OVERWRITE kinds.avg SELECT *", "INSERT"),
        ("MERGE INTO kinds.total t USING x ON true WHEN MATCHED THEN DELETE", "MERGE"),
        ("MERGE WITH SCHEMA EVOLUTION INTO kinds.total t USING x ON true", "MERGE"),
        ("TRUNCATE TABLE kinds.total", "TRUNCATE"),
        ("CREATE OR REPLACE TABLE kinds.total AS SELECT 1", "REPLACE"),
        ("SELECT 'DELETE FROM x', update FROM kinds.total -- UPDATE x SET y = 1", ""),
        ("SELECT update AS set, `merge into x`, replace(key, 'a', 'b') FROM kinds.total", ""),
        ("VACUUM kinds.total RETAIN 100 HOURS", ""),
    ],
)
def test_what_changes_rows_in_sparks_sql_is_known(query: str, verb: str) -> None:
    """Wherever the verb stands, and not in text, comments and names."""
    assert changing_verb(query) == verb


class TestShell:
    """What a prompt does with its lines."""

    @pytest.fixture
    def shell(self, lake: Catalog) -> Shell:
        """A prompt over the lake."""
        return Shell(Lake(lake.location), "demo")

    def said(self, shell: Shell, capsys: pytest.CaptureFixture[str], *lines: str) -> str:
        """What lines print."""
        capsys.readouterr()
        for line in lines:
            shell.run(line)
        return capsys.readouterr().out

    def test_a_query_ends_with_a_semicolon(
        self, shell: Shell, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Over as many lines as it takes."""
        assert self.said(shell, capsys, "SELECT count(*) AS n", "FROM kinds.total") == ""
        assert shell.prompt == "   ...> "
        assert self.said(shell, capsys, "WHERE true;").split() == ["n", "120"]

    @pytest.mark.parametrize("word", ["quit", "exit;", "QUIT", ".quit"])
    def test_who_wants_to_leave_leaves(self, shell: Shell, word: str) -> None:
        """By the words of other prompts, too."""
        with pytest.raises(EOFError):
            shell.run(word)

    def test_an_order_within_a_statement_is_an_order(
        self, shell: Shell, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """And what was typed of the statement is forgotten; that is told."""
        said = self.said(shell, capsys, "SELECT quit", ".tables")
        assert "forgotten, as it has no semicolon: SELECT quit" in said
        assert "demo.kinds.total" in said
        assert shell.typed == []
        with pytest.raises(EOFError):
            self.said(shell, capsys, "SELECT 1", ".quit")

    def test_tables_are_shown_by_sql_as_by_the_order(
        self, shell: Shell, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """`SHOW TABLES` lists the names that a query can use."""
        named = self.said(shell, capsys, ".tables").split()
        assert self.said(shell, capsys, "show tables;").split() == ["name", *named]

    def test_a_table_that_is_not_there_names_the_one_like_it(self, shell: Shell) -> None:
        """Of the lake's tables, not of DuckDB's own."""
        with pytest.raises(StateError) as refused:
            shell.run("SELECT * FROM kinds.totl;")
        assert "pg_" not in str(refused.value)
        assert "did you mean 'demo.kinds.total'?" in str(refused.value)
        with pytest.raises(StateError, match=r"did you mean 'statelake\.states'\?"):
            shell.run("SELECT * FROM statelake.state;")

    def test_rows_of_a_snapshot(self, shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
        """Tables are read as they were in a snapshot, until another is named, or none."""
        erase = f"DELETE FROM kinds.total WHERE key = {KEY};"
        shell.lake.job("demo", engine="local")["monday"].edit_sql("erased", erase)
        for snapshot, count in ((" erased", "119"), (" monday", "120"), ("", "119")):
            assert count in self.said(shell, capsys, f".as-of{snapshot}", f"{COUNT};")

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            (".nope", "no order .nope; there are .tables"),
            (".as-of nope", "no job has a snapshot 'nope'"),
            (".job nope", "no job 'nope'"),
            ("DELETE FROM kinds.total;", "DELETE needs --edit"),
        ],
    )
    def test_wrong_lines(self, shell: Shell, line: str, message: str) -> None:
        """The prompt goes on at what it was at."""
        state = (shell.as_of, shell.job)
        with pytest.raises((StateError, click.UsageError), match=message):
            shell.run(line)
        assert (shell.as_of, shell.job) == state

    def test_completion(self, shell: Shell) -> None:
        """Orders, snapshots, tables, and the columns of tables that the line names."""
        assert shell.completions(".a", ".a") == [".as-of"]
        assert shell.completions("mon", ".as-of mon") == ["monday"]
        assert shell.completions("kinds.t", "SELECT * FROM kinds.t") == [
            "kinds.timers", "kinds.total", "kinds.triple"
        ]  # fmt: skip
        assert "user_key" in shell.completions("use", "SELECT key FROM kinds.scores WHERE use")
        assert "user_key" not in shell.completions("use", "SELECT key FROM kinds.total WHERE use")
        assert "statelake.snapshots" in shell.completions("state", "SELECT * FROM state")

    def test_lines_from_elsewhere(self, lake: Catalog) -> None:
        """They run up to the first error, which is the command's."""
        lines = f"{COUNT};\nSELECT nope;\nSELECT 77777;\n"
        ran = subprocess.run(
            [sys.executable, "-m", "statelake.pipelines.cli.main", "shell", "--lake", lake.location,
             "--job", "demo"],
            input=lines, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 3
        assert ran.stdout.split()[:2] == ["n", "120"]
        assert "77777" not in ran.stdout
        assert ran.stderr.startswith("error: ")

    def test_at_a_terminal(self, lake: Catalog, tmp_path: Path) -> None:
        """Errors are told and the prompt comes again; Tab completes; lines are kept for later."""
        history = tmp_path / "state" / "history"
        master, slave = pty.openpty()
        environment = os.environ | {"STATELAKE_HISTORY": str(history), "TERM": "dumb"}
        process = subprocess.Popen(
            [sys.executable, "-m", "statelake.pipelines.cli.main", "shell", "--lake", lake.location,
             "--job", "demo"],
            stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        seen = b""

        def wait_for(text: bytes) -> None:
            nonlocal seen
            until = time.monotonic() + 30
            while text not in seen:
                assert time.monotonic() < until, seen
                if select.select([master], [], [], 1)[0]:
                    seen += os.read(master, 65536)
            seen = seen.partition(text)[2]

        wait_for(b"statelake> ")
        os.write(master, b"SELECT nope;\n")
        wait_for(b"error: ")
        wait_for(b"statelake> ")
        os.write(master, b"SELECT count(*) AS n FROM kinds.tot\t;\n")
        wait_for(b"kinds.total")
        wait_for(b"120")
        wait_for(b"statelake> ")
        os.write(master, b".quit\n")
        assert process.wait(30) == 0
        os.close(master)
        assert "FROM kinds.total" in history.read_text()
