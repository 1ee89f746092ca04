"""Scripts of Flink SQL: where a statement ends, and what is refused before Java starts."""

from __future__ import annotations

from pathlib import Path

import pytest

import statelake as sl
from statelake.pipelines.operations.sql_scripts import split_statements
from statelake.state_core.errors import (
    DeclarationError,
    EncodeError,
    FlinkJobError,
    MissingFileError,
)
from tests.support.command import run


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
        (b"SET 'a' = '\0'", DeclarationError, "no script"),
        (b"-- later", DeclarationError, "no statement"),
    ):
        if content is not None:
            script.write_bytes(content)
        with pytest.raises(error, match=says):
            sl.compile_sql(script, flink_version="1.20")
        with pytest.raises(error, match=says):
            sl.sql_types(script, flink_version="1.20")
    script.write_text("SET 'a' = 'b'")
    with pytest.raises(EncodeError, match="which is not said"):
        sl.compile_sql(script)
    with pytest.raises(EncodeError, match="which is not said"):
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
        ("types x --sql a", "in the place of a SAVEPOINT"),
        ("types --lake x --job y --sql a", "in the place of a SAVEPOINT"),
        ("types x --to y", "are for --sql"),
        ("types x --flink-version 2.3", "are for --sql"),
        ("types x --classpath y", "for a JAR, or --sql"),
        ("types x.jar --flink-home y --classpath z", "--classpath is for --sql"),
        ("types --sql a --arg b", "are for a JAR"),
        ("types --sql a --flink-version 2.3 --timeout nan", "a number of seconds"),
        ("check sql x --old-plan a --new-sql b --timeout inf", "a number of seconds"),
    ],
)
def test_words_that_do_not_belong_together_are_refused(words: str, says: str) -> None:
    """Exit code 2, and nothing is started."""
    ran = run(*words.split())
    assert ran.code == 2
    assert says in ran.err
