"""Scripts of Flink SQL alone: what real Flink compiles of them fits jobs that ran with connectors.

The jobs read and write tables of the tests' own connector. Its changes are those of a connector
that is known, so that scripts name that one: nothing but the name differs.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import statelake as sl
from statelake.pipelines.spark.jars import resolve_jars
from statelake.state_core.errors import FlinkJobError, IncompatibleError
from tests.integration.flink.distribution import JAVA_SOURCES, compiled, flink_home, flink_jars
from tests.integration.flink.generated_queries import write_tables
from tests.integration.flink.sql_jobs import FACTORY, MODULES, SOURCES, SqlFlink
from tests.integration.flink.sql_versions import QUERIES, Statements, compiles
from tests.support.command import run
from tests.support.savepoints.sql_jobs import unpack_sql_job, unpack_sql_plans

pytestmark = [pytest.mark.flink, pytest.mark.full]

DOCS = Path(__file__).parents[3] / "docs"
LOADER = ("flink-table-planner-loader", "flink-table-runtime", "flink-table-api-java-bridge")
VERSIONS = ("2.3.0", "1.20.0")
EACH = pytest.mark.parametrize(
    "version", [VERSIONS[0], pytest.param(VERSIONS[1], marks=pytest.mark.nightly)]
)
UTC = "SET 'table.local-time-zone' = 'UTC';\n"
ALL_CHANGES = "'kafka', 'format' = 'debezium-json'"  # as the tests' connector takes
OTHERWISE = ("values of arrays",)  # a correlation has a number of the JVM
SINKS = """
CREATE TABLE per_group (g BIGINT, {columns}) WITH ('connector' = 'halves');
CREATE TABLE joined (id BIGINT, name STRING) WITH ('connector' = 'halves');
"""
GROUPED = "INSERT INTO per_group SELECT g, {} FROM o WHERE v > 3 GROUP BY g"
JOIN = "INSERT INTO joined SELECT o.id, u.name FROM o JOIN u ON o.g = u.id"
HALVES = [
    {"o": (0, 60), "u": (0, 60)},
    {"o": (60, 120), "u": (60, 90)},
    {"o": (0, 120), "u": (0, 90)},
]
TOPIC = "'topic' = 't', 'properties.bootstrap.servers' = 'k:9092', 'properties.group.id' = 'g'"
DATABASE = (
    "'hostname' = 'h', 'username' = 'u', 'password' = 'p', 'database-name' = 'd',"
    " 'table-name' = 't'"
)


def home(version: str, to: Path) -> Path:
    """A directory of Flink with the planner of SQL."""
    return flink_home(version, to / f"flink-{version}", MODULES)


def script(to: Path, tables: str, inserts: Iterable[str], connectors: dict[str, str]) -> Path:
    """A user's script: its tables have the connectors that are given for ours."""
    for ours, name in connectors.items():
        tables = tables.replace(ours, name)
    to.write_text(f"{tables}EXECUTE STATEMENT SET BEGIN\n{';'.join(inserts)};\nEND;\n")
    return to


def own_connector(version: str, to: Path) -> str:
    """The tests' connector as a JAR."""
    jars = flink_jars(version, MODULES)
    classes = compiled([JAVA_SOURCES / each for each in SOURCES], jars, f"sql-{version}")
    with zipfile.ZipFile(to, "w") as archive:
        archive.writestr(f"META-INF/services/{FACTORY}", "SqlHalves\n")
        for path in classes.glob("*.class"):
            archive.write(path, path.name)
    return str(to)


def results(lines: Iterable[str]) -> Counter[str]:
    """What sinks have in the end: how often each row came, less how often it went."""
    count: Counter[str] = Counter()
    for line in lines:
        sink, kind, rest = line.split("|", 2)
        count[f"{sink}|{rest}"] += 1 if kind[0] == "+" else -1
    return Counter({row: n for row, n in count.items() if n})


@EACH
def test_two_scripts_upgrade_a_job_that_ran_without_plans(version: str, tmp_path: Path) -> None:
    """No plan, no connector; the types that no plan tells are of a savepoint over empty tables."""
    flink_of: Any = {"flink_home": home(version, tmp_path)}
    changing = f"'connector' = 'halves', 'rows' = '{tmp_path / 'u.rows'}'"
    known = {
        changing: changing.replace("halves", "mysql-cdc"),
        "'connector' = 'halves', 'rows'": "'connector' = 'datagen', 'rows'",
        "'halves'": "'print'",
    }
    rows = write_tables(tmp_path, Random(7))
    old = rows + SINKS.format(columns="n BIGINT, names STRING"), (
        GROUPED.format("COUNT(*), LISTAGG(name)"), JOIN,
    )  # fmt: skip
    new = rows + SINKS.format(columns="total BIGINT, n BIGINT, names STRING"), (
        JOIN, GROUPED.format("SUM(v), COUNT(*), LISTAGG(name)"),
    )  # fmt: skip
    scripts = [
        script(tmp_path / f"{number}.sql", *job, known) for number, job in enumerate((old, new))
    ]
    other = script(tmp_path / "other.sql", old[0], old[1][:1], known)
    jobs = [tmp_path / "old-job.sql", tmp_path / "new-job.sql"]
    for job, (tables, inserts) in zip(jobs, (old, new), strict=True):
        job.write_text(tables.lstrip() + ";\n".join(inserts))
    with SqlFlink(version, tmp_path) as flink:
        taken, before = flink.run(jobs[0], HALVES[0])
        plans = [sl.compile_sql(each, **flink_of) for each in (other, scripts[1])]
        with pytest.raises(IncompatibleError, match=r"other\.sql.*do not follow from the old plan"):
            sl.check_sql(taken, *plans, no_uids=True)
        types = sl.sql_types(scripts[1], tmp_path / "empty", no_uids=True, **flink_of)
        begun, _ = flink.run(jobs[1], HALVES[0])
        assert keyed(types) == keyed(sl.open_snapshot(begun).types()) != []
        made = run(
            "sql-upgrade", taken, "--old-sql", scripts[0], "--new-sql", scripts[1], "--no-uids",
            "--flink-home", flink_of["flink_home"], "--like", tmp_path / "empty",
            "--accept", "partly", "--to", tmp_path / "made", "--json",
        )  # fmt: skip
        assert made.code == 0, made.out + made.err
        assert {each["fate"] for each in made.json["operators"]} == {"keeps", "starts now"}
        like, written = (sl.open_snapshot(tmp_path / name).types() for name in ("empty", "made"))
        assert keyed(like) == keyed(written)
        _, after = flink.run(jobs[1], HALVES[1], tmp_path / "made")
        _, never = flink.run(jobs[1], HALVES[2])
        promised = results([*before, *_without_total(after)])
        assert promised == results(_without_total(never)) != Counter()


def keyed(types: Any) -> list[str]:
    """The types of keyed state, without the operators' names, which are those of connectors."""
    states = types.content()["states"]
    return sorted(
        f"{name.rpartition('/')[2]} {spec}"
        for name, spec in states.items()
        if spec["kind"].startswith("keyed")
    )


def _without_total(lines: Iterable[str]) -> list[str]:
    """Rows without the column that starts now."""
    parts = [line.split("|") for line in lines]
    return [
        "|".join(words[:3] + words[4:] if words[0] == "per_group" else words) for words in parts
    ]


@EACH
def test_connectors_on_the_class_path_are_used_themselves(version: str, tmp_path: Path) -> None:
    """The plan that is kept is what the new job runs, from the savepoint of the old one."""
    own = own_connector(version, tmp_path / "halves.jar")
    words = ("--flink-home", home(version, tmp_path), "--classpath", own)
    tables = write_tables(tmp_path, Random(3)) + SINKS.format(columns="a BIGINT, b BIGINT")
    old, new = (
        script(tmp_path / f"{name}.sql", tables, (GROUPED.format(selected), JOIN), {})
        for name, selected in (("old", "COUNT(*), SUM(v)"), ("new", "SUM(v), COUNT(*)"))
    )
    unknown = run("types", "--sql", new, *words[:2])
    assert unknown.code not in (0, 1, 2)
    assert "line " in unknown.err
    assert "'halves' of table `o` is not known" in unknown.err
    with SqlFlink(version, tmp_path) as flink:
        kept = tmp_path / "old.json"
        sl.compile_sql(old, kept, flink_home=words[1], classpath=own)
        taken, before = flink.run(kept, HALVES[0])
        names = [
            f"--uid={number}_{name}" for number in range(1, 20) for name in ("numbers", "rows")
        ]
        made = run(
            "sql-upgrade", taken, *names, "--old-sql", old, "--new-sql", new, *words,
            "--keep-plan", tmp_path / "new.json", "--to", tmp_path / "made", "--json",
        )  # fmt: skip
        assert made.code == 0, made.err
        assert {each["fate"] for each in made.json["operators"]} == {"keeps"}
        _, after = flink.run(tmp_path / "new.json", HALVES[1], tmp_path / "made")
        _, never = flink.run(tmp_path / "new.json", HALVES[2])
        assert results([*_exchanged(before), *after]) == results(never) != Counter()


def _exchanged(lines: Iterable[str]) -> list[str]:
    """Rows of the old query's sink, with the columns in the order of the new one."""
    found = []
    for line in lines:
        words = line.split("|")
        if words[0] == "per_group":
            words[3:] = reversed(words[3:])
        found.append("|".join(words))
    return found


@EACH
def test_types_of_a_script_are_those_of_its_plan(version: str, tmp_path: Path) -> None:
    """By the planner of `opt`, too, as a distribution has it; uids are those of the plan."""
    loader = flink_home(version, tmp_path / "loader", LOADER)
    sql = tmp_path / "job.sql"
    sql.write_text(KAFKA_TABLES + f"INSERT INTO out_changes {SUMS};")
    plan = tmp_path / "plan.json"
    sl.compile_sql(sql, plan, flink_home=loader)
    whole = sl.compile_sql(sql, flink_home=home(version, tmp_path))
    assert whole.nodes == sl.compile_sql(sql, flink_home=loader).nodes
    of_script = run("types", "--sql", sql, "--flink-home", loader, "--to", tmp_path / "empty")
    assert of_script.code == 0, of_script.err
    assert "4_group-aggregate/accState" in of_script.out
    assert run("types", "--sql", plan, "--flink-home", loader).out == of_script.out
    assert run("types", tmp_path / "empty", "--plan", plan).code == 2
    assert sl.open_snapshot(tmp_path / "empty").operators


@EACH
def test_settings_of_the_flink_and_of_the_script_count(version: str, tmp_path: Path) -> None:
    """Its time to live is that of `conf`, unless the script sets another.

    `RESET` goes back to `conf`, as in Flink's own SQL client.
    """
    flink = home(version, tmp_path)
    (flink / "conf").mkdir()
    (flink / "conf" / "config.yaml").write_text(
        "table.exec.state.ttl: 1 h\nexecution.runtime-mode: STREAMING\nstate.backend.type: none\n"
    )
    sql = tmp_path / "job.sql"
    for settings, ttl in (
        ("", "1 h"),
        ("SET 'table.exec.state.ttl' = '2 s'; SET 'parallelism.default' = '9';", "2 s"),
        ("SET 'table.exec.state.ttl' = '2 s'; RESET 'table.exec.state.ttl';", "1 h"),
        ("SET 'table.exec.state.ttl' = '2 s'; RESET;", "1 h"),
        ("RESET 'table.exec.mini-batch.size';", "1 h"),
    ):
        sql.write_text(f"{settings}{KAFKA_TABLES}INSERT INTO out_changes {SUMS};")
        plan = sl.compile_sql(sql, flink_home=flink)
        (state,) = (node.spec["state"] for node in plan.nodes.values() if "state" in node.spec)
        assert state[0]["ttl"] == ttl


def test_a_script_may_have_what_a_sql_client_takes(tmp_path: Path) -> None:
    """Databases, views, hints, modules, lookups, patterns; and tables stay empty."""
    flink, file = home("2.3.0", tmp_path), tmp_path / "job.sql"
    file.write_text(CLIENT)
    kinds = sorted(node.kind for node in sl.compile_sql(file, flink_home=flink).nodes.values())
    assert {"lookup-join", "match", "group-aggregate"} <= set(kinds)
    assert (kinds.count("table-source-scan"), kinds.count("sink")) == (3, 3)
    types = sl.sql_types(file, flink_home=flink, operator=["4_group-aggregate"])
    assert list(types.content()["states"]) == ["4_group-aggregate/accState"]
    file.write_text(
        "CREATE TABLE a (g STRING, v BIGINT) WITH ('connector' = 'datagen');\n"
        "CREATE TABLE b (g STRING, v BIGINT) WITH ('connector' = 'print');\n"
        "COMPILE PLAN '/nowhere/x' FOR INSERT INTO b SELECT g, SUM(v) FROM a GROUP BY g;\n"
        "EXECUTE PLAN '/nowhere/x';"
    )
    assert len(sl.compile_sql(file, flink_home=flink).nodes) == 4


def test_what_flink_does_not_take_is_named_with_its_line(tmp_path: Path) -> None:
    """What is no part of a job, what has no JAR, and what Flink says of a query."""
    flink = home("2.3.0", tmp_path)
    table = "CREATE TABLE t (a INT) WITH ('connector' = '{}');\n"
    for sql, says in (
        (table.format("print"), "it has no INSERT"),
        (table.format("datagen") + "SELECT a FROM t", "line 2: this is no part of a job"),
        (table.format("print") + "INSERT INTO t VALUES (1);\nINSERT INTO t VALUES (2)",
         "line 3: a second job: put all INSERTs in one STATEMENT SET"),
        (table.format("print") + "INSERT INTO t SELECT b FROM t", "line 2: .*'b' not found"),
        (table.format("print") + "\nCREATE TABLE u AS SELECT 1", "line 3: only INSERT INTO"),
        ("SET 'execution.runtime-mode' = 'batch'", "line 1: only streaming jobs"),
        ("CREATE CATALOG c WITH ('type' = 'hive')", "line 1: a catalog is of its own system"),
        (table.format("paimon") + "INSERT INTO t VALUES (1)", "'paimon' of table `t` is not known"),
        ("CREATE FUNCTION f AS 'com.acme.F';\n" + table.format("print")
         + "INSERT INTO t SELECT f(1)", "com.acme.F"),
    ):  # fmt: skip
        file = tmp_path / "job.sql"
        file.write_text(sql)
        with pytest.raises(FlinkJobError, match=says):
            sl.compile_sql(file, flink_home=flink)


def test_the_pages_show_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the script on the page, whose plan fits a savepoint that another connector's job took."""
    monkeypatch.chdir(tmp_path)
    home("2.3.0", tmp_path)
    unpack_sql_job("shop", tmp_path / "savepoint-5f1e2c")
    unpack_sql_plans(tmp_path)
    pages = "".join((DOCS / page).read_text("utf-8") for page in ("flink-sql.md", "types.md"))
    (sql,) = re.findall(r"^```sql\n(-- old\.sql\n.*?)^```$", pages, re.DOTALL | re.MULTILINE)
    (tmp_path / "old.sql").write_text(sql)
    (tmp_path / "other.sql").write_text(re.sub(r"  INSERT INTO paid .*\n", "", sql))
    shown = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```$", pages, re.DOTALL | re.MULTILINE)
    shown = [each for each in shown if "--flink-version 2.3" in each[0]]
    assert len(shown) == 3
    for command, expected in shown:
        words = command.replace("--flink-version 2.3", "--flink-home flink-2.3.0").split()
        ran = run(*words[1:])
        pattern = re.escape(" ".join(expected.split())).replace(re.escape("..."), ".*")
        printed = " ".join((ran.out + ran.err).split())
        assert re.fullmatch(pattern, printed), printed


@pytest.mark.nightly
def test_flink_is_taken_from_maven_by_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest patch of a minor version, and an exact one."""
    monkeypatch.setenv("STATELAKE_CACHE", str(tmp_path / "cache"))
    sql = tmp_path / "job.sql"
    sql.write_text(KAFKA_TABLES + f"INSERT INTO out_changes {SUMS};")
    plans = [sl.compile_sql(sql, flink_version=version) for version in ("1.20", "1.20.1")]
    assert {plan.flink for plan in plans} == {(1, 20)}
    jars = (tmp_path / "cache" / "flink-sql-1.20").glob("flink-clients-*.jar")
    (newest,) = (path.stem.rpartition(".")[2] for path in jars)
    assert int(newest) > 1


@pytest.mark.nightly
@pytest.mark.parametrize("version", VERSIONS)
def test_plans_of_all_nodes_are_those_of_jobs(version: str, tmp_path: Path) -> None:
    """Queries of every node that keeps state, but for the options of tables."""
    names = [name for name in QUERIES if compiles(name, version) and name not in OTHERWISE]
    files = {"flink_home": home(version, tmp_path)}
    with SqlFlink(version, tmp_path) as flink:
        of_name = {name: Statements.of([name], version).settings for name in names}
        for settings in set(of_name.values()):
            batch = [name for name in names if of_name[name] == settings]
            statements = Statements.of(batch, version)
            _, wanted = flink.compile(UTC + statements.sql)
            sinks = {
                node["dynamicTableSink"]["table"]["identifier"].rpartition(".")[2].strip("`"): node
                for node in wanted["nodes"]
                if "dynamicTableSink" in node
            }
            declared, inserts = [UTC.rstrip(";\n")], []
            for text in map(str.strip, statements.sql.split(";\n")):
                if text.startswith("SELECT"):
                    declared.append(_table_of(sinks[f"sink_{len(inserts)}"]))
                    inserts.append(f"INSERT INTO sink_{len(inserts)} {text}")
                elif text.startswith("INSERT"):
                    inserts.append(text)
                else:
                    declared.append(_known(text))
            sql, plan = tmp_path / "job.sql", tmp_path / "plan.json"
            script(sql, ";\n".join(declared) + ";\n", inserts, {})
            sl.compile_sql(sql, plan, **files)
            assert _optionless(json.loads(plan.read_text())) == _optionless(wanted), batch


def _known(statement: str) -> str:
    """A table of the tests' connector as one of a connector that emits and takes the same."""
    name = ALL_CHANGES
    if "'updating' = 'true'" in statement:
        name = "'mysql-cdc'"
    elif "'rows'" in statement:
        name = "'datagen'"
    elif "'upserts' = 'true'" in statement:
        name = "'mongodb'"
    return statement.replace("'halves'", name)


def _table_of(sink: dict[str, Any]) -> str:
    table = sink["dynamicTableSink"]["table"]
    columns = ", ".join(
        f"`{each['name']}` {each['dataType']}"
        for each in table["resolvedTable"]["schema"]["columns"]
    )
    name = table["identifier"].rpartition(".")[2]
    return f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'print')"


def _optionless(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _optionless(each) for name, each in content.items() if name != "options"}
    return [_optionless(each) for each in content] if isinstance(content, list) else content


# ------------------------------------------------------------------ plans of real connectors

SUMS = "SELECT g, COUNT(*), SUM(v) FROM plain GROUP BY g"
CLIENT = f"""
ADD JAR '/nowhere/functions.jar';
CREATE DATABASE shop; USE shop; SHOW TABLES;
CREATE TABLE base (id BIGINT, g STRING, v BIGINT, ts TIMESTAMP(3), pt AS PROCTIME(), WATERMARK FOR
    ts AS ts - INTERVAL '1' SECOND) WITH ('connector' = 'kafka', {TOPIC}, 'format' = 'json');
CREATE TEMPORARY TABLE other WITH ('topic' = 'u') LIKE base;
CREATE TEMPORARY VIEW seen AS SELECT g, COUNT(*) AS n FROM base
    /*+ OPTIONS('scan.startup.mode'='latest-offset') */ GROUP BY g;
CREATE TABLE places (a BIGINT, c STRING) WITH ('connector' = 'hbase-2.2', 'table-name' = 'x');
ALTER TABLE places SET ('lookup.async' = 'true');
DESCRIBE base; EXPLAIN SELECT * FROM seen; USE MODULES core;
CREATE TABLE indexed (g STRING, n BIGINT) WITH ('connector' = 'elasticsearch-7', 'index' = 'i');
CREATE TABLE kept (g STRING, n BIGINT, PRIMARY KEY (g) NOT ENFORCED) WITH ('connector' = 'mongodb');
CREATE TABLE dropped (a INT) WITH ('connector' = 'nothing'); DROP TABLE dropped;
BEGIN STATEMENT SET;
INSERT INTO indexed SELECT * FROM seen;
INSERT INTO kept SELECT * FROM seen;
INSERT INTO indexed SELECT p.c, b.v FROM base b JOIN places FOR SYSTEM_TIME AS OF b.pt p
    ON b.id = p.a;
INSERT INTO indexed SELECT x, y FROM other MATCH_RECOGNIZE (PARTITION BY id ORDER BY ts MEASURES
    A.g AS x, B.v AS y PATTERN (A B) DEFINE B AS B.v > A.v);
END;
"""
KAFKA_TABLES = f"""
CREATE TABLE plain (id BIGINT, g STRING, v BIGINT, ts TIMESTAMP(3), t TIMESTAMP_LTZ(3) METADATA FROM
    'timestamp', part INT METADATA FROM 'partition' VIRTUAL, h MAP<STRING, BYTES> METADATA FROM
    'headers', WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
    WITH ('connector' = 'kafka', {TOPIC}, 'format' = 'json');
CREATE TABLE changes (id BIGINT, g STRING, v BIGINT, src STRING METADATA FROM 'value.source.table'
    VIRTUAL, PRIMARY KEY (id) NOT ENFORCED)
    WITH ('connector' = 'kafka', {TOPIC}, 'format' = 'debezium-json');
CREATE TABLE ups (id BIGINT, g STRING, v BIGINT, ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'
    VIRTUAL, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, PRIMARY KEY (id) NOT ENFORCED)
    WITH ('connector' = 'upsert-kafka', {TOPIC}, 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE out_plain (g STRING, n BIGINT, t TIMESTAMP_LTZ(3) METADATA FROM 'timestamp')
    WITH ('connector' = 'kafka', {TOPIC}, 'format' = 'json');
CREATE TABLE out_changes (g STRING, n BIGINT, total BIGINT)
    WITH ('connector' = 'kafka', {TOPIC}, 'format' = 'debezium-json');
CREATE TABLE out_ups (id BIGINT, g STRING, n BIGINT, PRIMARY KEY (id) NOT ENFORCED)
    WITH ('connector' = 'upsert-kafka', {TOPIC}, 'key.format' = 'json', 'value.format' = 'json');
CREATE TABLE out_print (a STRING, b BIGINT, c BIGINT) WITH ('connector' = 'print');
CREATE TABLE out_hole (a STRING, b BIGINT, c BIGINT) WITH ('connector' = 'blackhole');
"""
KAFKA = (
    "INSERT INTO out_plain SELECT g, v, t FROM plain WHERE v > 5 AND g LIKE 'a%'",
    (
        "INSERT INTO out_plain SELECT g, COUNT(*), MAX(t) FROM TABLE(TUMBLE(TABLE plain,"
        " DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY g, window_start, window_end"
    ),
    "INSERT INTO out_changes SELECT g, COUNT(*), SUM(v) FROM changes WHERE src = 'a' GROUP BY g",
    "INSERT INTO out_changes SELECT g, COUNT(*), SUM(v) FROM ups WHERE v > 3 GROUP BY g",
    "INSERT INTO out_ups SELECT x.id, y.g, x.v FROM ups x JOIN changes y ON x.id = y.id",
    "INSERT INTO out_ups SELECT v, g, COUNT(*) FROM plain GROUP BY v, g{conflict}",
    f"INSERT INTO out_print {SUMS}",
    (
        "INSERT INTO out_hole SELECT g, COUNT(*), SUM(v) FROM (SELECT g, id, MAX(v) AS v FROM plain"
        " GROUP BY g, id) GROUP BY g"
    ),
)
FILE_TABLES = """
CREATE TABLE f (id BIGINT, g STRING, v BIGINT, ts TIMESTAMP(3), place STRING METADATA FROM
    'file.path' VIRTUAL, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
    WITH ('connector' = 'filesystem', 'path' = '/nowhere', 'format' = 'csv');
CREATE TABLE d (id BIGINT, g STRING, v BIGINT, ts AS LOCALTIMESTAMP, WATERMARK FOR ts AS ts)
    WITH ('connector' = 'datagen');
CREATE TABLE out_f (a STRING, b BIGINT, c STRING) PARTITIONED BY (c)
    WITH ('connector' = 'filesystem', 'path' = '/nowhere', 'format' = 'csv');
CREATE TABLE out_print (a STRING, b BIGINT, c BIGINT) WITH ('connector' = 'print');
"""
FILES = (
    "INSERT INTO out_f SELECT g, v, place FROM f WHERE v > 5",
    (
        "INSERT INTO out_f PARTITION (c = 'x') SELECT g, COUNT(*) FROM TABLE(TUMBLE(TABLE f,"
        " DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY g, window_start, window_end"
    ),
    "INSERT INTO out_print SELECT g, COUNT(*), SUM(v) FROM d GROUP BY g",
)
DATABASE_TABLES = f"""
CREATE TABLE r (id BIGINT, g STRING, v BIGINT, d DECIMAL(10, 2), ts TIMESTAMP(3), b BOOLEAN,
    day_ DATE, PRIMARY KEY (id) NOT ENFORCED)
    WITH ('connector' = 'jdbc', 'url' = 'jdbc:mysql://h/d', 'table-name' = 'r');
CREATE TABLE never (id BIGINT, g STRING, v BIGINT) WITH ('connector' = 'jdbc', 'url' =
    'jdbc:mysql://h/d', 'table-name' = 'r', 'filter.handling.policy' = 'never');
CREATE TABLE k (id BIGINT, g STRING, v BIGINT, pt AS PROCTIME()) WITH ('connector' = 'datagen');
CREATE TABLE m (id BIGINT, g STRING, v BIGINT, db STRING METADATA FROM 'database_name' VIRTUAL,
    t TIMESTAMP_LTZ(3) METADATA FROM 'op_ts' VIRTUAL, PRIMARY KEY (id) NOT ENFORCED)
    WITH ('connector' = 'mysql-cdc', {DATABASE});
CREATE TABLE ma (id BIGINT, g STRING, v BIGINT, kind STRING METADATA FROM 'row_kind' VIRTUAL,
    PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'mysql-cdc', {DATABASE},
    'scan.read-changelog-as-append-only.enabled' = 'true');
CREATE TABLE p (id BIGINT, g STRING, v BIGINT, PRIMARY KEY (id) NOT ENFORCED)
    WITH ('connector' = 'postgres-cdc', {DATABASE}, 'schema-name' = 's', 'slot.name' = 'x');
CREATE TABLE pu (id BIGINT, g STRING, v BIGINT, PRIMARY KEY (id) NOT ENFORCED)
    WITH ('connector' = 'postgres-cdc', {DATABASE}, 'schema-name' = 's', 'slot.name' = 'x',
    'changelog-mode' = 'upsert');
CREATE TABLE mo (_id STRING, g STRING, v BIGINT, PRIMARY KEY (_id) NOT ENFORCED)
    WITH ('connector' = 'mongodb-cdc', 'hosts' = 'h', 'database' = 'd', 'collection' = 't');
CREATE TABLE out_keyed (id BIGINT, g STRING, n BIGINT, PRIMARY KEY (id) NOT ENFORCED)
    WITH ('connector' = 'jdbc', 'url' = 'jdbc:mysql://h/d', 'table-name' = 'r');
CREATE TABLE out_print (a STRING, b BIGINT, c BIGINT) WITH ('connector' = 'print');
"""
DATABASES = (
    ("INSERT INTO out_print SELECT g, v, id FROM r WHERE v > 5 AND (g LIKE 'a%' OR d < 3.5) AND b"
    " AND day_ > DATE '2024-01-01' AND ts < TIMESTAMP '2024-01-01 00:00:00' AND UPPER(g) = 'X'"
    " AND g IS NOT NULL AND v IN (6, 7, 8)"),
    "INSERT INTO out_print SELECT g, v, id FROM never WHERE v > 5",
    ("INSERT INTO out_keyed SELECT k.id, r.g, k.v FROM k JOIN r FOR SYSTEM_TIME AS OF k.pt ON"
    " k.id = r.id AND r.v > 3"),
    "INSERT INTO out_print SELECT g, COUNT(*), SUM(v) FROM m WHERE db = 'x' AND v > 5 GROUP BY g",
    *(f"INSERT INTO out_print SELECT g, COUNT(*), SUM(v) FROM {name} WHERE v > 3 GROUP BY g"
      for name in ("ma", "p", "pu", "mo")),
    "INSERT INTO out_keyed SELECT id, g, v FROM m",
    "INSERT INTO out_keyed SELECT v, g, COUNT(*) FROM m GROUP BY v, g",
)  # fmt: skip
CDC = "org.apache.flink:flink-sql-connector-{}-cdc:3.5.0"
REAL: dict[str, tuple[str, tuple[str, ...], dict[str, tuple[str, ...]]]] = {
    "kafka": (KAFKA_TABLES, KAFKA, {
        "2.3.0": ("org.apache.flink:flink-sql-connector-kafka:4.0.1-2.0",
                  "org.apache.flink:flink-json:2.3.0"),
        "1.20.0": ("org.apache.flink:flink-sql-connector-kafka:3.2.0-1.19",
                   "org.apache.flink:flink-json:1.20.0"),
    }),
    "files": (FILE_TABLES, FILES, {
        version: (f"org.apache.flink:flink-connector-files:{version}",
                  f"org.apache.flink:flink-csv:{version}") for version in VERSIONS
    }),
    "databases": (DATABASE_TABLES, DATABASES, {
        "1.20.0": ("org.apache.flink:flink-connector-jdbc:3.3.0-1.20",
                   "com.mysql:mysql-connector-j:8.0.33",
                   *(CDC.format(name) for name in ("mysql", "postgres", "mongodb"))),
    }),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("kafka", "2.3.0"),
        *(pytest.param(name, version, marks=pytest.mark.nightly)
          for name, (_, _, versions) in REAL.items() for version in versions
          if (name, version) != ("kafka", "2.3.0")),
    ],
)  # fmt: skip
def test_plans_over_empty_tables_are_those_of_the_real_connectors(
    name: str, version: str, tmp_path: Path
) -> None:
    """To the letter: changes, filters, projections, watermarks, metadata, lookups, partitions."""
    tables, inserts, versions = REAL[name]
    conflict = " ON CONFLICT DO DEDUPLICATE" if version.startswith("2.3") else ""
    sql = script(tmp_path / "job.sql", tables, [each.replace("{conflict}", conflict)
                                                for each in inserts], {})  # fmt: skip
    base = f"org.apache.flink:flink-connector-base:{version}"
    jars = str(resolve_jars(f"connectors-{name}-{version}", [], [*versions[version], base]))
    plans: list[Any] = []
    for classpath in ((), (jars,)):
        plan = tmp_path / f"plan-{len(plans)}.json"
        sl.compile_sql(sql, plan, flink_home=tmp_path / f"flink-{version}" if plans else
                       home(version, tmp_path), classpath=classpath)  # fmt: skip
        plans.append(json.loads(plan.read_text()))
    assert plans[0] == plans[1]
