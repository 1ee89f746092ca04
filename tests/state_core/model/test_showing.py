"""What a console and a notebook show: a line and a small table, whatever names a file has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from statelake import open_snapshot
from statelake.state_core.formats.reader import Snapshot
from statelake.state_core.model.snapshot import Operator
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

CASES = golden_cases()
HOSTILE = "<script>alert('x')</script>\x1b[2J\u202e" + "n" * 10_000


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_line_each(case: GoldenCase) -> None:
    """No representation is longer than a line, of any snapshot and all that is in it."""
    snapshot = open_snapshot(case.snapshot)
    shown: list[object] = [snapshot, *snapshot.operators]
    for operator in snapshot.operators:
        shown += [*operator.keyed_states, *operator.operator_states]
    for shown_object in shown:
        text = repr(shown_object)
        names = [each.__name__ for each in type(shown_object).__mro__]
        assert text.removeprefix("<").partition(" ")[0] in names
        assert "\n" not in text
        assert len(text) < 400


def test_what_is_said(wordcount: Path) -> None:
    """Enough to know what one has before one."""
    snapshot = open_snapshot(wordcount, uids=["counter"])
    operator = snapshot.operator("counter")
    assert repr(snapshot).startswith(f"<Snapshot {wordcount}: canonical savepoint, checkpoint ")
    assert repr(operator).startswith("<Operator counter: parallelism 2, 128 key groups, 3 keyed")
    assert repr(operator.state("count")) == "<KeyedState count: value, String → Long>"
    (page, states, columns) = (
        shown._repr_html_() for shown in (snapshot, operator, operator.state("count"))
    )
    assert "<td>counter</td>" in page
    assert "<td>count</td><td>value</td>" in states
    assert "<td>value</td><td>int64</td>" in columns


def named(name: str, wordcount: Path) -> Snapshot:
    """A snapshot all of whose names are that."""
    snapshot = open_snapshot(wordcount)
    operators = [
        replace(
            operator, uid=name, name=name,
            keyed_states=tuple(
                replace(state, name=name, value_type=name) for state in operator.keyed_states
            ),
        )
        for operator in snapshot.operators
    ]  # fmt: skip
    return replace(snapshot, location=name, operators=tuple(operators))


def test_hostile_names(wordcount: Path) -> None:
    """A name is no markup and no order to a terminal, and ends somewhere."""
    snapshot = named(HOSTILE, wordcount)
    for shown_object in (snapshot, *snapshot.operators, *snapshot.operators[0].keyed_states):
        page, line = shown_object._repr_html_(), repr(shown_object)
        assert "<script" not in page
        assert "&lt;script&gt;" in page
        assert not {"\x1b", "\u202e"} & {*page, *line}
        assert max(len(line), len(page) // 10) < 1000


def test_many(wordcount: Path) -> None:
    """Of very many operators or states the first are shown, and how many more there are."""
    snapshot = open_snapshot(wordcount)
    (operator,) = (operator for operator in snapshot.operators if operator.keyed_states)
    many = replace(snapshot, operators=(operator,) * 5000)
    wide: Operator = replace(operator, keyed_states=operator.keyed_states[:1] * 8192)
    for page, left in ((many._repr_html_(), "4,900"), (wide._repr_html_(), "8,092")):
        assert page.count("<tr>") == 101
        assert f"... and {left} more" in page
