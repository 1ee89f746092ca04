"""What people are shown of names and values that anybody may have written."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.printable import printable, printable_json

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
