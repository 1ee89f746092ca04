"""What people are shown of names and values that anybody may have written."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.printable import (
    JsonFields,
    Table,
    json_value,
    printable,
    printable_json,
)

SEEN = ["", "größe", "键😀", "a b", "עברית", "👍🏽", "\u00a0", "❤\ufe0f"]
UNSEEN = [
    "\0", "\t", "\n", "\r", "\x1b[31m", "\x7f", "\x85", "\x9b2J", "\xad", "\u061c", "\u180e",
    "\u200b", "\u200d", "\u200e", "\u200f", "\u2028", "\u2029", "\u202a", "\u202e", "\u2060",
    "\u2066", "\u2069", "\ufeff", "\ufff9", "\ud800", "\udfff", "\U000e0041",
]  # fmt: skip


def paired(text: str) -> str:
    """As Java's strings become ours: two halves that follow each other are one character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


@pytest.mark.parametrize("text", SEEN)
def test_what_is_seen_stays(text: str) -> None:
    """Text of any script is shown as it is."""
    assert printable(text) == text
    assert json.dumps(text, ensure_ascii=False) == printable_json(
        json.dumps(text, ensure_ascii=False)
    )


@pytest.mark.parametrize("text", UNSEEN)
def test_what_is_not_seen_is_escaped(text: str) -> None:
    """Line ends, a terminal's orders, what turns text around, what has no width, half a pair."""
    shown = printable(f"a{text}b")
    assert shown.startswith("a\\")
    assert shown.isprintable()
    assert shown.encode()


@given(st.text(st.characters(exclude_categories=())))
def test_nothing_controls_what_it_is_shown_on(text: str) -> None:
    """Of all characters none is left that is a control, a format, half a pair, or ends a line."""
    bad = {"Cc", "Cs", "Zl", "Zp"}
    assert not bad & {unicodedata.category(character) for character in printable(text)}
    assert not bad & {unicodedata.category(character) for character in _json(text)}
    assert len(printable(text).splitlines()) <= 1


@given(st.text(st.characters(exclude_categories=()), max_size=20).map(paired))
def test_json_is_of_the_same_value(text: str) -> None:
    """Whoever parses it gets the very characters; layout stays layout."""
    assert json.loads(_json(text)) == text
    value = {text: [text, {"a": text}]}
    shown = printable_json(json.dumps(value, ensure_ascii=False, indent=2))
    assert json.loads(shown) == value
    assert len(shown.split("\n")) == 8
    assert shown.encode()


def _json(text: str) -> str:
    return printable_json(json.dumps(text, ensure_ascii=False))


class Colour(Enum):
    """An enum."""

    RED = "red"


@dataclass(frozen=True)
class Part:
    """A struct that another one has."""

    JSON = ("name", "bytes=size")

    name: str
    size: int


@dataclass(frozen=True)
class Result(JsonFields):
    """A result with all that JSON can show of it."""

    JSON = ("*", "count", "first=parts.name?", "*more", "problem?", "colour=shade")

    parts: Part
    rows: tuple[Any, ...] = ()
    at: datetime | None = None
    more: dict[str, Any] = field(default_factory=dict, repr=False)
    problem: str = field(default="", repr=False)
    shade: Colour = field(default=Colour.RED, repr=False)

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.rows)


class Results(JsonFields, list[Result]):
    """A list of them."""


def test_a_struct_is_shown_by_its_fields() -> None:
    """Those that are named, in that order, under the names that they have in JSON."""
    plain = Result(Part("", 3))
    assert list(plain.to_json().items()) == [
        ("parts", {"name": "", "bytes": 3}), ("rows", []), ("at", None), ("count", 0),
        ("colour", "red"),
    ]  # fmt: skip
    full = Result(Part("a", 3), (Part("b", 4),), datetime(2026, 1, 2, tzinfo=timezone.utc),
                  {"x": [Part("c", 5)]}, "late")  # fmt: skip
    shown = full.to_json()
    assert shown["rows"] == [{"name": "b", "bytes": 4}]
    assert shown["at"] == "2026-01-02T00:00:00+00:00"
    assert (shown["first"], shown["x"], shown["problem"]) == (
        "a", [{"name": "c", "bytes": 5}], "late",
    )  # fmt: skip
    assert Results([full]).to_json() == [shown]


class Parts(JsonFields, list[Part]):
    """A list with something before it."""

    JSON = ("unnamed=!names", "parts=.")

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [part.name for part in self]


def test_a_list_may_be_a_part_of_its_json() -> None:
    """Behind what is said of it as a whole."""
    shown = Parts([Part("a", 1)]).to_json()
    assert shown == {"unnamed": False, "parts": [{"name": "a", "bytes": 1}]}
    assert Parts().to_json() == {"unnamed": True, "parts": []}


@dataclass(frozen=True)
class Listing(JsonFields):
    """A result that JSON shows as one of its parts."""

    JSON = "parts"

    title: str
    parts: list[Part]


def test_a_struct_may_be_shown_as_a_part_of_it() -> None:
    """As a list, without its other fields."""
    assert Listing("of one", [Part("a", 1)]).to_json() == [{"name": "a", "bytes": 1}]


def test_a_table_of_structs_has_their_parts() -> None:
    """By names and paths, formatted; of maps and lists, too; the first ones."""
    at = datetime(2026, 1, 2, 3, 4, tzinfo=timezone.utc)
    rows = [Result(Part("a", 2048), (1, {"of": 1234}), at), Result(Part("", 0), (0, {}))]
    columns = (
        "<name=parts.name:-", ">Size=parts.size:B", ">more=parts.size:+B", ">of=rows.1.of:,",
        "<at:%H:%M", ">first=rows.0", "<rows", "<problem:.", ">count:.1f",
    )  # fmt: skip
    table = Table.of("two", columns, rows)
    assert table.columns == [
        "<name", ">Size", ">more", ">of", "<at", ">first", "<rows", "<problem", ">count",
    ]  # fmt: skip
    assert table.rows == [
        ["a", "2.0 KiB", "+2.0 KiB", "1,234", "03:04", "1", ["1", "{'of': 1234}"], ".", "2.0"],
        ["-", "0 B", "+0 B", "", "", "0", ["0", "{}"], ".", "2.0"],
    ]
    assert (table.title, table.left) == ("two", 0)
    first = Table.of("", (">Count",), rows, 1, 5)
    assert (first.rows, first.left) == ([["2"]], 6)


def test_pairs_stay_pairs() -> None:
    """The entries of a map, as Arrow gives them to Python: faces show these as a map."""
    assert json_value({"map": (("a", Part("b", 1)),)}) == {
        "map": [("a", {"name": "b", "bytes": 1})]
    }
