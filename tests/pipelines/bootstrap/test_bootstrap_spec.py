"""Mistakes in a bootstrap's spec: every one is answered by its line and by what is legal."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from statelake.pipelines.bootstrap.bootstrap_columns import (
    ConstantColumn,
    Expression,
    Fields,
    SourceColumn,
    plan_column,
)
from statelake.pipelines.bootstrap.bootstrap_spec import read_bootstrap_spec
from statelake.state_core.errors import EncodeError

HEAD = """\
operators:
  counter:
    key_type: String
    source: a.csv
"""

MISTAKES = {
    "no mapping": ("just text", "", "begin it with `operators:`"),
    "no YAML": ("operators:\n  counter: [\n", ":3", "no YAML"),
    "no operators": ("operators:\n", ":1", "begin with `operators:`"),
    "a word too many": ("operater:\n  x: 3\n", ":1", "did you mean 'operators'?"),
    "an operator without states": (HEAD, ":2", "`operator_states`"),
    "an unknown key": (f"{HEAD}    stats: {{}}\n", ":5", "did you mean 'states'?"),
    "a key twice": (f"{HEAD}    source: b.csv\n", ":5", "the first time in line 4"),
    "no key type": (
        "operators:\n  counter:\n    states: {count: {type: Long, source: a.csv}}\n",
        ":2", "it has no `key_type`",
    ),
    "no kind": (
        f"{HEAD}    states:\n      count: {{kind: valeu, type: Long}}\n",
        ":6, operator counter, state 'count'", "value, list, map, reducing, aggregating",
    ),
    "no mode": (
        f"{HEAD}    operator_states:\n      rules: {{type: Long}}\n",
        ":6, operator counter, operator state 'rules'", "split, union, broadcast",
    ),
    "no type": (f"{HEAD}    states:\n      count: {{kind: list}}\n", ":6", "it has no `type`"),
    "an unknown type": (
        f"{HEAD}    states:\n      count:\n        type: Lonk\n", ":7", "Lonk is no known type",
    ),
    "no user key's type": (
        f"{HEAD}    states:\n      count: {{kind: map, type: Long}}\n", ":6", "`user_key_type`",
    ),
    "a user key of no map": (
        f"{HEAD}    states:\n      count:\n        type: Long\n        user_key: x\n",
        ":8", "`user_key` means nothing here",
    ),
    "no source": (
        "operators:\n  counter:\n    key_type: Long\n    states: {count: {type: Long}}\n",
        ":4", "it has no `source`",
    ),
    "a column that is none": (
        f"{HEAD}    states:\n      count:\n        type: Long\n        value: [a]\n",
        ":8, operator counter, state 'count', `value`", "{constant: value}",
    ),
    "a namespace without its type": (
        f"{HEAD}    states:\n      count:\n        type: Long\n        namespace: w\n",
        ":6", "`namespace_type`",
    ),
    "timers of nothing": (
        f"{HEAD}    timers:\n      event: {{}}\n", ":6", "says nothing",
    ),
    "another domain": (
        f"{HEAD}    timers:\n      evnt: {{timestamp: t}}\n", ":6", "legal: event, processing",
    ),
    "no parallelism": (f"{HEAD}    parallelism: two\n    states: {{c: {{type: Long}}}}\n", ":5",
                       "1 to 32768"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_names_its_line_and_what_is_legal(mistake: str, tmp_path: Path) -> None:
    """The file, the line, the operator and state, and the way out."""
    text, where, said = MISTAKES[mistake]
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    with pytest.raises(EncodeError) as raised:
        read_bootstrap_spec(str(path))
    assert f"{path}{where}" in str(raised.value)
    assert said in str(raised.value)


def test_no_file(tmp_path: Path) -> None:
    """A file that is not there is named."""
    with pytest.raises(EncodeError, match="it can't be read"):
        read_bootstrap_spec(str(tmp_path / "none.yaml"))


def test_defaults_come_from_above(tmp_path: Path) -> None:
    """Parallelism, source and key column are taken from the operator, or from the file's head."""
    path = tmp_path / "spec.yaml"
    path.write_text(
        dedent("""\
        parallelism: 4
        source: all.csv
        operators:
          one:
            key_type: Long
            key: id
            states: {a: {type: Long}, b: {type: Long, source: b.csv, key: other}}
            timers: {processing/window-timers: {timestamp: due}}
          two:
            parallelism: 2
            max_parallelism: 64
            operator_states: {c: {kind: broadcast, key_type: String, type: Long}}
        """)
    )
    one, two = read_bootstrap_spec(str(path)).operators
    a, b, timers = one.states
    (c,) = two.operator_states
    assert (one.parallelism, one.max_parallelism) == (4, None)
    assert (two.parallelism, two.max_parallelism) == (2, 64)
    assert [state.source for state in (a, b, c)] == ["all.csv", "b.csv", "all.csv"]
    key, other = SourceColumn(("id",), "id"), SourceColumn(("other",), "other")
    assert a.columns == {"key": key, "value": SourceColumn(("value",), "value")}
    assert b.columns["key"] == other
    assert (timers.domain, timers.name) == ("processing", "window-timers")
    assert c.columns["key"] == SourceColumn(("key",), "key")


@pytest.mark.parametrize(
    ("said", "plan"),
    [
        ("a", SourceColumn(("a",), "a")),
        (" größe ", SourceColumn(("größe",), "größe")),
        ("a.b", SourceColumn(("a", "b"), "a.b")),
        ("`a b`.`c``d`", SourceColumn(("a b", "c`d"), "`a b`.`c``d`")),
        ("a + 1", Expression("a + 1")),
        ("concat(a, b)", Expression("concat(a, b)")),
        ("'text'", Expression("'text'")),
        ("NULL", Expression("NULL")),
        (3, ConstantColumn(3)),
        (None, ConstantColumn(None)),
        ({"constant": "x"}, ConstantColumn("x")),
        ({"f": "a", "g": {"h": 1}},
         Fields({"f": SourceColumn(("a",), "a"), "g": Fields({"h": ConstantColumn(1)})})),
    ],
)  # fmt: skip
def test_columns_are_told_from_sql(said: Any, plan: Any) -> None:
    """A name is a column; a mapping, fields; anything else in text, Spark SQL."""
    assert plan_column(said, "here") == plan


def test_python_says_the_same(tmp_path: Path) -> None:
    """A Python file's `operators` are read like YAML's."""
    path = tmp_path / "spec.py"
    path.write_text(
        "parallelism = 3\n"
        "operators = {'op': {'key_type': 'Long', 'states': {'s': {'type': 'Long',"
        " 'source': 'a.csv'}}}}\n"
    )
    (operator,) = read_bootstrap_spec(str(path)).operators
    assert (operator.uid, operator.parallelism, operator.states[0].name) == ("op", 3, "s")
