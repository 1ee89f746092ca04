"""SQL without its literals, and their values: DuckDB says which those are."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.pipelines.lake.query.literals import text_literals, without_literals


@pytest.mark.parametrize(
    ("sql", "shape"),
    [
        (
            "DELETE FROM users.visits WHERE key = 'O''Brien'",
            "DELETE FROM users.visits WHERE key = ?",
        ),
        (r"UPDATE t SET v = E'a\'b' WHERE k = -42", "UPDATE t SET v = ? WHERE k = -?"),
        ("a = $$it's$$ AND b = $x$ $$ $x$", "a = ? AND b = ?"),
        ("v = 1.5e-7 OR v = .5 OR v = 0xFF OR v = 1_000", "v = ? OR v = ? OR v = ? OR v = ?"),
        ("state2.f1 = 3 AND \"o'clock 7\".x = `7's`", "state2.f1 = ? AND \"o'clock 7\".x = `7's`"),
        ("v = {'name': 'alice', 'age': 7}", "v = {?: ?, ?: ?}"),
        ("k = DATE '2026-01-01' -- of 'alice'", "k = DATE ?  "),
        ("job-1.op-2.st-3.value = 4", "job-1.op-2.st-3.value = ?"),
        ("value-7712345.5 > value-42", "value-? > value-?"),
        ("k = x'abcd' /* alice */ AND true", "k = x?   AND true"),
        ("k = 'never ended", "k = ?"),
    ],
)
def test_a_statement_without_its_literals(sql: str, shape: str) -> None:
    """Names and words stay; what can't be told from a text goes to its end."""
    assert without_literals(sql) == shape


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)


@given(ANY_TEXT, ANY_TEXT)
def test_texts_are_what_duckdb_reads(first: str, second: str) -> None:
    """Quoted with doubled quotes, and with backslashes."""
    doubled = first.replace("'", "''")
    escaped = second.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    sql = f"SELECT '{doubled}', E'{escaped}', 12345"
    assert duckdb.execute(sql).fetchall() == [(first, second, 12345)]
    assert list(text_literals(sql)) == [first, second]
    assert without_literals(sql) == "SELECT ?, ?, ?"


@pytest.mark.parametrize(
    ("predicate", "words"),
    [
        ("key LIKE 'user-%-7_x'", ["user-", "-7", "x"]),
        (r"key NOT ILIKE 'a\_b%c\%' ESCAPE '\' AND v = 'x_y%'", ["a_b", "c%", "\\", "x_y%"]),
        ("key GLOB 'ab*c?d[0-9]'", ["ab", "c", "d"]),
        ("kind = 'like' AND key LIKE '%'", ["like"]),
        ("key ~~ E'O\\'Brien%'", ["O'Brien"]),
    ],
)
def test_a_pattern_has_the_words_between_its_wildcards(predicate: str, words: list[str]) -> None:
    """So that an audit searches what the rows of `LIKE` have in common."""
    assert list(text_literals(predicate)) == words
