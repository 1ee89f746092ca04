"""`statelake dump`: one JSON object a line, with the same keys for the same kind of state."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from statelake import open_snapshot
from statelake.pipelines.shown import plain
from statelake.state_core.model.snapshot import StateKind
from tests.support.command import run
from tests.support.lakes import KINDS, WINDOWS, WORDS, golden
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

pytestmark = pytest.mark.thinned(3)

CASES = golden_cases("wordcount", "kinds", "windows", "churn", "pojo", "sql", "types")
HEAD = ["operator", "state", "kind", "key_group", "namespace", "key"]


def dumped(*words: object) -> list[Any]:
    """The lines of a dump."""
    ran = run("dump", *words)
    assert (ran.code, ran.err) == (0, "")
    return ran.lines


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_golden_snapshot(case: GoldenCase) -> None:
    """A line for every row that the snapshot has, with the keys of its kind."""
    lines = dumped(case.snapshot)
    wanted: Counter[tuple[str, str]] = Counter()
    for operator in open_snapshot(case.snapshot).operators:
        for state in operator.keyed_states:
            rows = state.to_arrow()
            if len(rows):
                wanted[operator.label, state.name] = len(rows)
            name = (operator.label, state.name)
            mine = [line for line in lines if (line["operator"], line["state"]) == name]
            more = ["user_key"] if state.kind is StateKind.MAP else []
            more.append("timestamp" if state.kind is StateKind.TIMERS else "value")
            assert all([key for key in entry if key != "ttl"] == HEAD + more for entry in mine)
            types = {key: rows.schema.field(key).type for key in HEAD[3:] + more}
            found = Counter(str([entry[key] for key in types]) for entry in mine)
            held = [
                row for row in rows.to_pylist() if not row.get("raw_value") and not row["raw_key"]
            ]
            expected = Counter(
                str([plain(row[k], kind) for k, kind in types.items()]) for row in held
            )
            # the others are text with all of their digits: tests/pipelines/cli/test_whole_values.py
            assert not expected - found
            assert (found - expected).total() == len(rows) - len(held)
    assert Counter((line["operator"], line["state"]) for line in lines) == wanted


def test_kinds() -> None:
    """Every kind under its name, timers by their domain."""
    kinds = {entry["state"]: entry["kind"] for entry in dumped(KINDS)}
    assert kinds == {
        "name": "value", "items": "list", "scores": "map", "total": "reducing",
        "avg": "aggregating", "triple": "value", "row": "value", "session": "value",
        "_timer_state/processing_user-timers": "processing_timer",
        "_timer_state/event_user-timers": "event_timer",
    }  # fmt: skip


def test_a_list_is_one_line() -> None:
    """With all its elements, one line a key."""
    lines = dumped(KINDS, "--operator", "kinds", "--state", "items")
    assert len({line["key"] for line in lines}) == len(lines)
    assert all(isinstance(line["value"], list) for line in lines)
    assert any(len(line["value"]) > 1 for line in lines)


def test_a_map_is_a_line_a_user_key() -> None:
    """Each with its user key and that one's value."""
    lines = dumped(KINDS, "--state", "scores")
    assert len({(line["key"], line["user_key"]) for line in lines}) == len(lines)
    assert len({line["key"] for line in lines}) < len(lines)
    assert {type(line["value"]) for line in lines} == {float}


def test_values_that_expire() -> None:
    """A state with a time to live says when each value was last touched."""
    lines = dumped(KINDS, "--state", "session")
    assert all(list(line) == [*HEAD, "value", "ttl"] for line in lines)
    assert all(isinstance(line["ttl"], int) for line in lines)


def test_namespaces() -> None:
    """A window is an object with its bounds; without one it is null."""
    windows = dumped(WINDOWS, "--operator", "tumbling", "--state", "window-contents")
    assert all(list(window["namespace"]) == ["start", "end"] for window in windows)
    assert {entry["namespace"] for entry in dumped(WORDS)} == {None}


def test_only_what_is_asked_for() -> None:
    """By operator, state, key groups, and number."""
    lines = dumped(WINDOWS)
    for options, keep in (
        (["--operator", "sliding"], lambda entry: entry["operator"] == "sliding"),
        (["--state", "window-contents"], lambda entry: entry["state"] == "window-contents"),
        (["--key-groups", "17"], lambda entry: entry["key_group"] == 17),
        (["--key-groups", "10-40"], lambda entry: 10 <= entry["key_group"] <= 40),
        (
            ["--operator", "tumbling", "--state", "window-contents", "--key-groups", "0-9"],
            lambda entry: (
                entry["operator"] == "tumbling"
                and entry["state"] == "window-contents"
                and entry["key_group"] < 10
            ),
        ),
    ):
        assert dumped(WINDOWS, *options) == [line for line in lines if keep(line)]
    for limit in (0, 1, 7, 10_000):
        assert dumped(WINDOWS, "--limit", limit) == lines[:limit]


def test_an_operator_by_any_name() -> None:
    """By uid, by name, or by its id, whole or cut short."""
    operator = open_snapshot(WORDS).operator("counter")
    wanted = dumped(WORDS)
    assert operator.name
    for label in ("counter", operator.name, operator.operator_id, operator.operator_id[:8]):
        assert dumped(WORDS, "--operator", label) == wanted


OPERATOR = golden("operator-hashmap-canonical-p2-m128-flink2.3.0")


def test_operator_state() -> None:
    """Elements with subtask and position, and one copy of a broadcast state."""
    lines = dumped(OPERATOR.snapshot)
    expected = OPERATOR.expected("expected.jsonl")
    split = [entry for entry in lines if entry["state"] == "split"]
    assert {entry["kind"] for entry in split} == {"operator_list"}
    for line in expected:
        if "split" in line:
            mine = [entry for entry in split if entry["subtask"] == line["subtask"]]
            assert [entry["position"] for entry in mine] == list(range(len(mine)))
            assert sorted(entry["value"] for entry in mine) == sorted(line["split"])
    rules = {entry["key"]: entry["value"] for entry in lines if entry["kind"] == "broadcast"}
    assert rules == next(line["rules"] for line in expected if "rules" in line)
    only = dumped(OPERATOR.snapshot, "--state", "union")
    assert only
    assert {entry["kind"] for entry in only} == {"operator_union"}


def test_key_groups_select_keyed_state() -> None:
    """Operator state has none, so there is nothing to print, and that is no error."""
    assert dumped(OPERATOR.snapshot, "--key-groups", "0-127") == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--operator", "nobody"], "no operator 'nobody' in .*; it has: .*counter"),
        (["--state", "cont"], "; did you mean 'count'\\?$"),
        (["--state", "nothing"], "no operator has a state 'nothing'; there are: .*, count$"),
        (["--operator", "counter", "--state", "x"], "counter has no keyed state 'x'; it has: 'cou"),
    ],
)
def test_what_is_not_there(options: list[str], said: str) -> None:
    """A misspelled name is told, with what there is."""
    ran = run("dump", WORDS, *options)
    assert (ran.code, ran.out) == (3, "")
    assert re.match(f"error: .*{said}", ran.err.strip())


def test_text_is_not_escaped() -> None:
    """What people wrote is what people read."""
    assert "größe" in run("dump", KINDS, "--state", "name", "--limit", 1).out
