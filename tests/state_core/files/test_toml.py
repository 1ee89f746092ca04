"""TOML that costs its parser much is refused before it is parsed."""

from __future__ import annotations

import time

import pytest

from statelake.state_core.files.toml import MOST_DOTS, parse_toml

DEEP = ".a" * 20_000


@pytest.mark.parametrize(
    "text",
    [
        f"a{DEEP} = 1",
        f"[a{DEEP}]",
        f"[[a{DEEP}]]",
        f"x = {{a{DEEP} = 1}}",
        "a" + ' . "a"' * 12_000 + " = 1",
        "x = {y = '''\n''', a" + DEEP + " = ''}",
        "x = {y = '''\nit's''', a" + DEEP + " = ''}",
    ],
)
def test_a_key_of_many_parts_is_refused_at_once(text: str) -> None:
    """The parser takes 7 s and more for it; the line is named."""
    begun = time.process_time()
    with pytest.raises(ValueError, match=rf"line [12] has more than {MOST_DOTS} dots"):
        parse_toml(f"# {'.' * 80}\n{text}" if text[0] == "a" else text)
    assert time.process_time() - begun < 0.5


@pytest.mark.full
def test_the_most_that_is_allowed_is_parsed_soon() -> None:
    """In a file of 64 KiB."""
    key = "a" + ".a" * MOST_DOTS
    lines = [f"[{key}]", *(f"b{number}" + ".b" * MOST_DOTS + " = 1" for number in range(240))]
    begun = time.process_time()
    parse_toml("\n".join(lines))
    assert time.process_time() - begun < 3


def test_dots_in_comments_and_in_several_lines_are_no_key() -> None:
    """A list may have any number of addresses, one a line."""
    said = parse_toml("# " + "." * 1000 + "\na = [\n" + '"x.y.z",\n' * 1000 + "]\n")
    assert len(said["a"]) == 1000


def test_what_nests_too_deeply() -> None:
    """As the parser's own errors."""
    with pytest.raises(ValueError, match="it nests too deeply"):
        parse_toml("a = " + "[" * 30_000)
