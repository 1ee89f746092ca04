"""YAML of users that stands for more than it says: aliases of aliases, and of themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from statelake.pipelines.yaml_lines import read_yaml
from statelake.state_core.errors import EncodeError

DOUBLED = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} {{x: *a{n - 1}, y: *a{n - 1}}}\n" for n in range(1, 41)
)
MERGED = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 41)
)
LISTED = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 41))


def written(directory: Path, text: str) -> str:
    """A file of that text."""
    path = directory / "said.yaml"
    path.write_text(text, "utf-8")
    return str(path)


@pytest.mark.parametrize("text", [DOUBLED, MERGED, LISTED], ids=["doubled", "merged", "listed"])
def test_few_lines_are_not_a_billion_values(text: str, tmp_path: Path) -> None:
    """What aliases stand for is counted before anything is made of it."""
    with pytest.raises(EncodeError, match="aliases stand for, it has more than 262144 values"):
        read_yaml(written(tmp_path, text), "a", "")


@pytest.mark.parametrize("text", ["a: &a {b: *a}", "a: &a [*a]", "&a b: &b {c: [*b]}"])
def test_nothing_holds_itself(text: str, tmp_path: Path) -> None:
    """A mapping or list with itself in it has no end."""
    with pytest.raises(EncodeError, match=r"said\.yaml:1: it holds itself"):
        read_yaml(written(tmp_path, text), "a", "")


def test_aliases_are_read(tmp_path: Path) -> None:
    """An alias stands for what it names, with lines of its own; a merge for the keys."""
    text = "a: &a {x: 1}\nb: *a\nc:\n  <<: *a\n  y: [2]\n"
    said, lines = read_yaml(written(tmp_path, text), "a", "")
    assert said == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": [2]}}
    assert lines.of(("c", "y")) == 5


@pytest.mark.parametrize("text", ["a: 1" + ":1" * 120_000, "a: !!int '1" + ":1" * 120_000 + "'"])
def test_a_number_takes_no_time_in_the_square_of_its_length(text: str, tmp_path: Path) -> None:
    """YAML has numbers to the base of 60."""
    with pytest.raises(EncodeError, match=r"said\.yaml:1: a number has more than 4300 characters"):
        read_yaml(written(tmp_path, text), "a", "")
