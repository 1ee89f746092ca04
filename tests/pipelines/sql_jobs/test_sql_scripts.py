"""Scripts of Flink SQL: where a statement ends, and what is refused before Java starts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import statelake as sl
from statelake.pipelines.sql_jobs import java_programs
from statelake.pipelines.sql_jobs.sql_scripts import passwords, split_statements
from statelake.state_core.errors import (
    DeclarationError,
    EncodeError,
    FlinkJobError,
    MissingFileError,
)
from tests.support.command import run
from tests.support.fake_java import VERSION, fake_compiler, fake_flink, fake_java, sql_script
from tests.support.savepoints.sql_jobs import unpack_sql_job, unpack_sql_plans


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("", []),
        (" ; ;-- nothing;\n/* nor; here */", []),
        ("SET 'a' = 'b'", [(1, "SET 'a' = 'b'")]),
        (
            "-- a job;\nSET 'a;' = 'it''s;';\n\n SELECT `;` /* ; */ -- ;\n FROM t;",
            [(2, "SET 'a;' = 'it''s;'"), (4, "SELECT `;` /* ; */ -- ;\n FROM t")],
        ),
        ("INSERT INTO a SELECT '-- no comment' FROM b; INSERT INTO c VALUES (1)",
         [(1, "INSERT INTO a SELECT '-- no comment' FROM b"), (1, "INSERT INTO c VALUES (1)")]),
        (
            ("execute statement\nset begin\n insert into a select case when b then 1 end from c;\n"
            "-- and\ninsert into d values (1); end; SET 'e' = 'f';"),
            [(1, ("execute statement\nset begin\n insert into a select case when b then 1 end from"
                 " c;\n-- and\ninsert into d values (1); end")), (5, "SET 'e' = 'f'")],
        ),
        (
            "SET 'a' = 'statement set begin'; SET '; end' = `statement set begin`; SET 'b' = 'c'",
            [(1, "SET 'a' = 'statement set begin'"), (1, "SET '; end' = `statement set begin`"),
             (1, "SET 'b' = 'c'")],
        ),
        ("BEGIN STATEMENT SET; INSERT INTO a VALUES (1); END;",
         [(1, "BEGIN STATEMENT SET"), (1, "INSERT INTO a VALUES (1)"), (1, "END")]),
        ("COMPILE PLAN 'x' FOR STATEMENT SET BEGIN INSERT INTO a VALUES (1); END; EXECUTE PLAN 'x'",
         [(1, "COMPILE PLAN 'x' FOR STATEMENT SET BEGIN INSERT INTO a VALUES (1); END"),
          (1, "EXECUTE PLAN 'x'")]),
    ],
)  # fmt: skip
def test_a_statement_ends_with_a_semicolon_of_its_own(
    text: str, statements: list[tuple[int, str]]
) -> None:
    """None in a text, a name, a comment or a statement set; each has the line where it begins."""
    assert list(split_statements(text)) == statements


def test_what_is_no_script_is_refused_before_java_starts(tmp_path: Path) -> None:
    """A file that is not there, no text, or nothing; no Flink, two of them, or none there."""
    script = tmp_path / "job.sql"
    for content, error, says in (
        (None, MissingFileError, "can't be read"),
        (b"\xff\xfe", DeclarationError, "no text"),
        (b"SET 'a' = '\0'", DeclarationError, "not a SQL script"),
        (b"-- later", DeclarationError, "no statement"),
    ):
        if content is not None:
            script.write_bytes(content)
        with pytest.raises(error, match=says):
            sl.compile_sql(script, flink_version="1.20")
        with pytest.raises(error, match=says):
            sl.sql_types(script, flink_version="1.20")
    script.write_text("SET 'a' = 'b'")
    with pytest.raises(EncodeError, match="that compiles SQL is missing"):
        sl.compile_sql(script)
    with pytest.raises(EncodeError, match="that compiles SQL is missing"):
        sl.compile_sql(script, flink_home=tmp_path, flink_version="1.20")
    for version in ("newest", "1", "1.20.0-x", "../1.20", "1.20.+"):
        with pytest.raises(EncodeError, match="no version of Flink"):
            sl.compile_sql(script, flink_version=version)
    with pytest.raises(MissingFileError, match="--flink-home"):
        sl.compile_sql(script, flink_home=tmp_path)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "flink-dist.jar").touch()
    with pytest.raises(MissingFileError, match="planner"):
        sl.compile_sql(script, flink_home=tmp_path)
    for missing in (tmp_path / "none.jar", tmp_path):
        with pytest.raises(MissingFileError, match="--classpath"):
            sl.compile_sql(script, flink_home=tmp_path, classpath=str(missing))


def test_programs_are_compiled_for_the_oldest_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache has one set of classes, which a later run reads with an older Java."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        '#!/bin/sh\ntest "$1" = -version && echo \'openjdk version "25.0.1"\' >&2'
        f' || echo "$@" >> {tmp_path}/ran\n'
    )
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("STATELAKE_CACHE", str(tmp_path / "cache"))
    script, home = flink_and_script(tmp_path)
    with pytest.raises(FlinkJobError, match="Java ended: 0"):
        sl.compile_sql(script, flink_home=home)
    compiler, program = (tmp_path / "ran").read_text().splitlines()
    assert "Main --release 17 " in compiler
    assert "SqlScript compile false" in program


def test_a_cache_that_can_not_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No internal error: another directory is to be named."""
    script, home = flink_and_script(tmp_path)
    monkeypatch.setenv("STATELAKE_CACHE", str(script))
    for words in (("--flink-home", home), ("--flink-version", "1.20.0")):
        ran = run("types", "--sql", script, *words)
        assert ran.code == 3, ran.err
        assert f"error: {script}: the cache can't be written (File exists); name another" in ran.err


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Flink that makes known plans of scripts."""
    monkeypatch.setenv("JAVA_HOME", str(fake_compiler(tmp_path / "a jdk")))
    monkeypatch.setenv("STATELAKE_CACHE", str(tmp_path / "a cache"))
    return fake_flink(tmp_path / "flink 2.3")


def test_a_plan_is_kept_for_its_owner_alone_and_whole_or_not_at_all(
    compiler: Path, tmp_path: Path
) -> None:
    """It may have passwords; what does not compile leaves the file that is there as it is."""
    _, new = unpack_sql_plans(tmp_path)
    good, bad = sql_script(tmp_path / "good job.sql", new), tmp_path / "bad.sql"
    bad.write_text("INSERT")
    kept = tmp_path / "a directory" / "kept.json"
    kept.parent.mkdir()
    kept.write_text("{}")
    kept.chmod(0o644)
    with pytest.raises(FlinkJobError):
        sl.compile_sql(bad, kept, flink_home=compiler)
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == ("{}", 0o644)
    before = os.umask(0)
    try:
        plan = sl.compile_sql(good, kept, flink_home=compiler)
    finally:
        os.umask(before)
    assert (kept.read_bytes(), kept.stat().st_mode & 0o777) == (new.read_bytes(), 0o600)
    assert plan.nodes == sl.compile_sql(good, flink_home=compiler).nodes
    link = tmp_path / "link.json"
    link.symlink_to(kept)
    sl.compile_sql(good, link, flink_home=compiler)
    assert link.is_symlink()
    assert [path.name for path in kept.parent.iterdir()] == ["kept.json"]


@pytest.mark.parametrize(
    ("to", "says"),
    [
        ("none/x.json", "no such directory"),
        ("good.sql/x.json", "no such directory"),
        ("good.sql", "it is the script"),
        ("lib", "something else is there"),
        ("/dev/null", "something else is there"),
    ],
)
def test_a_place_where_no_plan_can_be_is_refused_before_java_starts(
    to: str, says: str, compiler: Path, tmp_path: Path
) -> None:
    """Nothing that is no file is replaced."""
    (tmp_path / "lib").mkdir()
    _, new = unpack_sql_plans(tmp_path)
    script = sql_script(tmp_path / "good.sql", new)
    with pytest.raises(EncodeError, match=f"{to}: the plan can't be written .{says}.; name anoth"):
        sl.compile_sql(script, tmp_path / to, flink_home=compiler)
    assert not (tmp_path / "a jdk" / "ran").exists()


def test_the_command_keeps_a_plan_when_its_upgrade_is_accepted(
    compiler: Path, tmp_path: Path
) -> None:
    """Not of a dry run, nor of a verdict that refuses; then it is what the new job runs."""
    savepoint = unpack_sql_job("shop", tmp_path / "shop savepoint")
    old, new = (
        sql_script(tmp_path / f"{plan.stem} job.sql", plan) for plan in unpack_sql_plans(tmp_path)
    )
    kept = tmp_path / "kept.json"
    words = (savepoint, "--old-sql", old, "--new-sql", new, "--flink-home", compiler,
             "--keep-plan", kept)  # fmt: skip
    to = ("--to", tmp_path / "made")
    for more, code in (
        (to, 1), (("--accept", "partly", "--dry-run"), 0), (("--accept", "partly"), 0),
    ):  # fmt: skip
        assert run("sql-upgrade", *words, *more).code == code
        assert not kept.exists()
    assert run("sql-upgrade", *words, *to, "--accept", "partly").code == 0
    assert kept.read_bytes() == (tmp_path / "new.json").read_bytes()
    kept.unlink()
    assert run("check", "sql", *words).code == 0
    assert kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("jars", "says"),
    [
        (("flink-dist-1.20.0.jar", "flink-dist-2.3.0.jar", "flink-table-planner-loader-2.3.0.jar"),
         "lib/flink-dist-1.20.0.jar and lib/flink-dist-2.3.0.jar"),
        (("flink-dist-2.3.0.jar", "flink-table-planner-loader-2.3.0.jar",
          "flink-table-planner_2.12-2.3.0.jar"),
         "lib/flink-table-planner-loader-2.3.0.jar and lib/flink-table-planner_2.12-2.3.0.jar"),
        (("flink-dist-2.3.0.jar", "flink-table-planner_2.12-1.20.1.jar"),
         "lib/flink-dist-2.3.0.jar and lib/flink-table-planner_2.12-1.20.1.jar"),
        (("flink-dist-2.3.0 (copy).jar", "flink-dist-2.3.0.jar", "flink-table-planner.jar"),
         r"lib/flink-dist-2.3.0 \(copy\).jar and lib/flink-dist-2.3.0.jar"),
    ],
)  # fmt: skip
def test_two_flinks_in_one_directory_are_refused_with_both_names(
    jars: tuple[str, ...], says: str, compiler: Path, tmp_path: Path
) -> None:
    """Java would mix their classes; so is a planner of another version, and two of one."""
    home = fake_flink(tmp_path / "two flinks", *jars)
    script = sql_script(tmp_path / "job.sql", unpack_sql_plans(tmp_path)[1])
    with pytest.raises(EncodeError, match=f"two flinks: it has two Flinks: {says}; remove one"):
        sl.compile_sql(script, flink_home=home)
    with pytest.raises(EncodeError, match=f"it has two Flinks: {says}"):
        sl.job_types(tmp_path / "job.jar", home)
    assert sl.compile_sql(script, flink_home=compiler).flink == (2, 3)


@pytest.mark.usefixtures("compiler")
def test_what_connectors_and_formats_are_called_is_no_other_flink(tmp_path: Path) -> None:
    """They have versions of their own, as have the shaded libraries."""
    home = fake_flink(
        tmp_path / "home", "flink-dist-2.3.0.jar", "flink-table-planner-loader-2.3.0.jar",
        "flink-table-api-java-uber-2.3.0.jar", "flink-table-runtime-2.3.0.jar",
        "flink-table-api-java-2.3.0.jar", "flink-table-api-java-bridge-2.3.0.jar",
        "flink-sql-connector-kafka-4.0.1-2.0.jar", "flink-connector-files-2.3.0.jar",
        "flink-connector-jdbc-3.3.0-1.20.jar", "flink-cep-2.3.0.jar", "flink-json-2.2.0.jar",
        "flink-shaded-zookeeper-3-3.8.4-20.0.jar", "flink-table-store-dist-0.3.0.jar",
        "flink-scala_2.12-2.3.0.jar", "log4j-core-2.24.3.jar",
    )  # fmt: skip
    (home / "opt").mkdir()
    (home / "opt" / "flink-table-planner_2.12-2.3.0.jar").touch()
    script = sql_script(tmp_path / "job.sql", unpack_sql_plans(tmp_path)[1])
    assert sl.compile_sql(script, flink_home=home).flink == (2, 3)


def hanging_java(word: str, to: Path) -> Path:
    """A `java` that does not end if it is called with a word; it writes down its number."""
    script = f'case "$*" in *"{word}"*) echo $$ > "{to}/number"; sleep 1000; true;; esac'
    return fake_java(to / "hangs", VERSION + script)


@pytest.mark.parametrize(
    ("word", "says"),
    [("javac.Main", "not made ready for this Flink in 1 s; .*--timeout"),
     ("SqlScript compile", "it has not ended in 1 s; give it longer, --timeout")],
)  # fmt: skip
def test_java_that_does_not_end_is_ended_with_all_that_it_started(
    word: str, says: str, compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler of our programs, and Flink; the error says how to give it longer."""
    hangs = hanging_java(word, tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(hangs))
    monkeypatch.setattr(java_programs, "START_SECONDS", 0)
    script = sql_script(tmp_path / "job.sql", unpack_sql_plans(tmp_path)[1])
    with pytest.raises(FlinkJobError, match=says):
        sl.compile_sql(script, flink_home=compiler, timeout=1)
    wait_for_end_of_group(int((tmp_path / "number").read_text()))


@pytest.mark.parametrize("word", ["javac.Main", "SqlScript compile"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_command_that_is_told_to_end_leaves_neither_java_nor_files(
    word: str, number: signal.Signals, code: int, compiler: Path, tmp_path: Path
) -> None:
    """While Flink compiles, or while our program is compiled for it."""
    hangs = hanging_java(word, tmp_path)
    (tmp_path / "temporary").mkdir()
    old, _ = unpack_sql_plans(tmp_path)
    environment = {
        **os.environ, "JAVA_HOME": str(hangs), "TMPDIR": str(tmp_path / "temporary"),
        "STATELAKE_CACHE": str(tmp_path / "cache"),
    }  # fmt: skip
    # what started the tests may ignore both, as `nohup` and a background job do
    program = (
        "import signal; signal.pthread_sigmask(signal.SIG_SETMASK, ());"
        " signal.signal(signal.SIGTERM, signal.SIG_DFL);"
        " signal.signal(signal.SIGINT, signal.default_int_handler);"
        " from statelake.pipelines.cli.main import main; main()"
    )
    words = (
        "check", "sql", unpack_sql_job("shop", tmp_path / "shop"), "--new-plan", old,
        "--old-sql", sql_script(tmp_path / "job.sql", old), "--flink-home", compiler,
    )  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)], env=environment, stderr=subprocess.PIPE
    ) as command:
        started = tmp_path / "number"
        while command.poll() is None and not (started.exists() and started.read_text()):
            time.sleep(0.02)
        command.send_signal(number)
        _, told = command.communicate()
    assert command.returncode == code, told
    assert b"Traceback" not in told
    wait_for_end_of_group(int(started.read_text()))
    assert list((tmp_path / "temporary").iterdir()) == []
    assert list((tmp_path / "cache").iterdir()) == []


def wait_for_end_of_group(number: int) -> None:
    """Wait until no process of a group lives."""
    while any(_of_group(each, number) for each in Path("/proc").iterdir() if each.name.isdecimal()):
        time.sleep(0.02)


def _of_group(process: Path, number: int) -> bool:
    try:
        state, _, group = (process / "stat").read_text().rpartition(")")[2].split()[:3]
    except OSError:  # it has ended
        return False
    return state != "Z" and int(group) == number


SECRETS = ("s3cret-pw", "jaas pw", "tok''en", "in-url", "in-query", "in-mongo", "un", "quoted", "k")
WITH_SECRETS = """
CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'password' = 's3cret-pw',
  'properties.sasl.jaas.config' = 'x.PlainLoginModule required username="u" password="jaas pw";',
  'api-token'='tok''en', 'url' = 'jdbc:mysql://u:in-url@h/d?user=u&password=in-query',
  'hosts' = 'mongodb://u:in-mongo@h', 'secret'
     =   'k', 'my-password' = un-quoted);
"""


def test_passwords_are_in_no_message(compiler: Path, tmp_path: Path) -> None:
    """Whatever Flink repeats of a script; what is no password stays."""
    script = tmp_path / "job.sql"
    script.write_text(WITH_SECRETS)
    with pytest.raises(FlinkJobError) as failed:
        sl.compile_sql(script, flink_home=compiler)
    told = str(failed.value)
    assert "'connector' = 'jdbc'" in told
    assert "jdbc:mysql://u:******@h/d?user=u&password=******" in told
    for secret in SECRETS:
        assert not re.search(rf"(?<!\w){secret}(?!\w)", told), told


LONG = "p" * 300


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("'url' = 'jdbc:postgresql://h/d?user=u&pwd=s3cret'", "s3cret"),
        ("'db.pass' = 's3cret'", "s3cret"), ("'pass'='s3cret'", "s3cret"),
        ("'userPass' = 's3cret'", "s3cret"), ("'trustStorePwd' = 's3cret'", "s3cret"),
        ("'path' = 'abfss://c@a.net/x?sv=1&sig=ab%2Fcd'", "ab%2Fcd"),
        ("'fs.azure.sas.fixed' = 's3cret'", "s3cret"), ("'sas' = 's3cret'", "s3cret"),
        ("'s3.access.key' = 's3cret'", "s3cret"), ("'s3.access-key' = 's3cret'", "s3cret"),
        ("'s3a.accessKey' = 's3cret'", "s3cret"), ("'s3.secret.key' = 's3cret'", "s3cret"),
        ("'c' = 'AccountName=a;AccountKey=ab/c+d==;X=1'", "ab/c+d=="),
        ("'c' = 'SharedAccessKeyName=a;SharedAccessKey=s3cret'", "s3cret"),
        ("'c' = 'jdbc:sqlserver://h;user=u;password=s3,cret;x=1'", "s3,cret"),
        ("'uri' = 'mongodb://u:pa/ss@h/d'", "pa/ss"),
        ("'uri' = 'mongodb://u:pa@ss@h/d'", "pa@ss"),
        ("'uri' = 'mongodb://u:p@s/s@h/d?x=y@z'", "p@s/s"),
        ("'uri' = 'mongodb://u:pa?ss@h/d'", "pa?ss"),
        ("'uri' = 'mongodb://u:pa''ss@h/d'", "pa'ss"),
        (f"'uri' = 'amqp://u:{LONG}@h/d'", LONG), (f"'uri' = 'amqp://{LONG}:s3cret@h/d'", "s3cret"),
        ("'uri' = 'redis://:s3cret@h:1'", "s3cret"),
        ("'url' = 'jdbc:oracle:thin:scott/s3cret@//h:1521/s'", "s3cret"),
        ("'url' = 'jdbc:oracle:thin:scott/s3@cr/et@h:1521:s'", "s3@cr/et"),
        ("'url' = 'JDBC:ORACLE:OCI:scott/s3cret@h'", "s3cret"),
        ("'url' = 'jdbc:oracle:thin:scott/\"s3 cret\"@h'", "s3 cret"),
        ('{"url": "jdbc:oracle:thin:scott/\\"s3 cret\\"@h"}', "s3 cret"),
        ('{"s3.access.key": "s3cret"}', "s3cret"),
    ],
)  # fmt: skip
def test_passwords_by_any_name_and_in_any_address(text: str, secret: str) -> None:
    """As drivers and stores call them."""
    assert secret in passwords(text)


@pytest.mark.parametrize(
    "text",
    [
        "'connector' = 'jdbc'", "'bypass' = 'on'", "'compass' = 'north'", "'signal' = 'x'",
        "'design' = 'x'", "'passive' = 'x'", "'kafka.key.format' = 'json'",
        "'url' = 'jdbc:oracle:thin:@h:1521:s'", "'url' = 'http://h:8080/a'", "'rate' = 'x/y@z'",
        "'primary.key' = 'id'",
    ],
)  # fmt: skip
def test_what_is_no_password_stays(text: str) -> None:
    """Messages are of use."""
    assert passwords(text) == set()


@pytest.mark.parametrize(
    "part",
    [
        "://a:", "://a:b@", "jdbc:oracle:thin:u/", 'jdbc:oracle:thin:u/"', "'pass' = '", "a=", "''",
        "password=", "'", '"', '"pass":"', "\\", "a.", "= ", "'sig'  ", "pwd=a,", "Pass", "@", "/",
    ],
)  # fmt: skip
def test_passwords_are_found_in_the_time_of_the_length(part: str) -> None:
    """No text makes the search for them last."""
    text = part * (400_000 // len(part))
    begun = time.process_time()
    passwords(text)
    assert time.process_time() - begun < 4


def test_a_flink_that_is_named_needs_no_spark(compiler: Path, tmp_path: Path) -> None:
    """Only the JARs of a version are downloaded by what Spark brings."""
    script = sql_script(tmp_path / "job.sql", unpack_sql_plans(tmp_path)[1])
    program = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "filelock", "pandas"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent())
import statelake as sl
assert sl.compile_sql({str(script)!r}, flink_home={str(compiler)!r}).nodes
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def flink_and_script(to: Path) -> tuple[Path, Path]:
    """A script, and a Flink that is enough to be started."""
    script = to / "job.sql"
    script.write_text("SET 'a' = 'b'")
    (to / "lib").mkdir()
    (to / "lib" / "flink-table-planner_2.12.jar").touch()
    return script, to


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("check sql x --old-plan a", "--new-plan, or --new-sql"),
        ("check sql x --old-plan a --old-sql b --new-plan c", "--old-plan, or --old-sql"),
        ("sql-upgrade x --old-sql a --new-plan b --keep-plan c", "--keep-plan is for"),
        ("sql-upgrade x --old-sql a --new-sql b --flink-home c --flink-version 2.3", "one of both"),
        (
            "check sql x --old-plan a --new-sql b --flink-home c --keep-plan ./a",
            "the old job needs",
        ),
        ("check sql x --old-sql a --new-sql b --flink-home c --keep-plan a", "the old job needs"),
        (
            "check sql x --old-plan a --new-sql b --old-flink 1.20",
            "that compiles SQL is missing",
        ),
        ("types x --sql a", "in the place of a SAVEPOINT"),
        ("types --lake x --job y --sql a", "in the place of a SAVEPOINT"),
        ("types x --to y", "are for --sql"),
        ("types x --flink-version 2.3", "are for --sql"),
        ("types x --classpath y", "for a JAR, or --sql"),
        ("types x.jar --flink-home y --classpath z", "--classpath is for --sql"),
        ("types --sql a --arg b", "are for a JAR"),
        ("types --sql a --flink-version 2.3 --timeout nan", "'nan' is no duration"),
        ("check sql x --old-plan a --new-sql b --timeout 0s", "must be at least 1"),
    ],
)
def test_words_that_do_not_belong_together_are_refused(words: str, says: str) -> None:
    """Exit code 2, and nothing is started."""
    ran = run(*words.split())
    assert ran.code == 2
    assert says in ran.err
