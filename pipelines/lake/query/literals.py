"""The literals of a SQL statement, and the statement without them.

The rest of a statement still names its columns, but no keys or values.
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
_OF_PATTERN = re.compile(r"(?:\b(?:I?LIKE|(?P<glob>GLOB))|~~\*?)\s*$", re.IGNORECASE)
_ESCAPED_BY = re.compile(r"\s*ESCAPE\s*'(?P<by>[^'])'", re.IGNORECASE)
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def without_literals(sql: str) -> str:
    """Return SQL with a `?` for each literal, and without comments.

    Args:
        sql: A statement for DuckDB or Spark. Parts that might be text are left out.
    """
    return _TOKEN.sub(_shape, sql)


def text_literals(sql: str) -> Iterator[str]:
    """Yield the values of the text literals in SQL; of a pattern, the texts between wildcards."""
    for match in _TOKEN.finditer(sql):
        if match["escaped"] is not None:
            text = unescaped(match["escaped"].replace("''", "'"))
        elif match["text"] is not None:
            text = match["text"].replace("''", "'")
        elif match["dollars"] is not None:
            text = match["dollars"]
        else:
            continue
        operator = _OF_PATTERN.search(sql, max(0, match.start() - 40), match.start())
        if operator is None:
            yield text
        elif operator["glob"]:
            yield from filter(None, re.split(r"\*|\?|\[.*?\]", text))
        else:
            escape = _ESCAPED_BY.match(sql, match.end())
            yield from _between_wildcards(text, escape["by"] if escape else "")


def _between_wildcards(pattern: str, escape: str) -> Iterator[str]:
    """Yield the texts that a pattern of LIKE has between its wildcards."""
    token = rf"{re.escape(escape)}(?P<plain>.)|[%_]" if escape else "[%_]"
    text, end = "", 0
    for match in re.finditer(token, pattern, re.DOTALL):
        text, end = text + pattern[end : match.start()], match.end()
        plain = match["plain"] if escape else None
        if plain is not None:
            text += plain
        elif text:
            yield text
            text = ""
    if text := text + pattern[end:]:
        yield text


def unescaped(text: str) -> str:
    """Return a text with each backslash escape, of SQL or JSON, replaced by its character."""
    return _ESCAPE.sub(_character, text)


def _shape(match: re.Match[str]) -> str:
    if match["comment"] is not None:
        return " "
    return match[0] if match["name"] is not None else PLACEHOLDER


def _character(match: re.Match[str]) -> str:
    """Return the character of an escape."""
    for name, base in (("u", 16), ("U", 16), ("x", 16), ("octal", 8)):
        if match[name] is not None:
            number = int(match[name], base)
            return chr(number) if number <= 0x10FFFF else match[0]
    return _CONTROLS.get(match["other"], match["other"])
