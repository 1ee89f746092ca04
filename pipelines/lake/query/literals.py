"""The literals of SQL: what a statement says of values, and the statement without it.

What is kept of a statement says which columns it was about, and of nobody's key or value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

PLACEHOLDER = "?"
_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)
    | \b[eE]'(?P<escaped>(?:[^'\\]|\\.|'')*)'
    | '(?P<text>(?:[^']|'')*)'
    | \$(?P<tag>(?:[^\W\d]\w*)?)\$(?P<dollars>.*?)\$(?P=tag)\$
    | (?P<name>"(?:[^"]|"")*" | `(?:[^`]|``)*` | [^\W\d]\w*
        (?:(?:-\w+)*(?=\s*\.\s*(?:[^\W\d]|["`])))?)
    | (?P<number>0[xX][0-9a-fA-F_]+|(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?\d+)?)
    | (?P<unended>['$].*)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\(?:u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})|x(?P<x>[0-9a-fA-F]{1,2})"
    r"|(?P<octal>[0-7]{1,3})|(?P<other>.))",
    re.DOTALL,
)
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def without_literals(sql: str) -> str:
    """SQL with a `?` for each literal, and without comments.

    Args:
        sql: A statement of DuckDB's or of Spark's. What can't be told from text is left out.
    """
    return _TOKEN.sub(_shape, sql)


def text_literals(sql: str) -> Iterator[str]:
    """The values of the texts in SQL."""
    for match in _TOKEN.finditer(sql):
        if match["escaped"] is not None:
            yield unescaped(match["escaped"].replace("''", "'"))
        elif match["text"] is not None:
            yield match["text"].replace("''", "'")
        elif match["dollars"] is not None:
            yield match["dollars"]


def unescaped(text: str) -> str:
    """Text in which each escape by a backslash, of SQL or JSON, is what it stands for."""
    return _ESCAPE.sub(_character, text)


def _shape(match: re.Match[str]) -> str:
    if match["comment"] is not None:
        return " "
    return match[0] if match["name"] is not None else PLACEHOLDER


def _character(match: re.Match[str]) -> str:
    """What an escape in a text stands for."""
    for name, base in (("u", 16), ("U", 16), ("x", 16), ("octal", 8)):
        if match[name] is not None:
            number = int(match[name], base)
            return chr(number) if number <= 0x10FFFF else match[0]
    return _CONTROLS.get(match["other"], match["other"])
