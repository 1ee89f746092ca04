"""`statelake find`: the places that a search of the decoded rows, one by one, finds."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statelake import NewKeyedState, NewOperator, Snapshot, open_snapshot, write_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.state_core.model.finding import State
from tests.support.command import run
from tests.support.lakes import DEMO, KINDS, import_as
from tests.support.savepoints.expected_contents import open_golden
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

MONDAY = DEMO / "monday"
SLOW = "types-hashmap-native-p2-m128-flink2.3.0"  # whose file is read for each state
LEFT_OUT = ("key_group", "subtask", "position")
HOSTILE = ("a.*[b", "x' OR '1'='1", "\x1b[31mred", "{0}", "[bold]", '"quoted"', "%s")


def leaves(path: str, value: Any, kind: pa.DataType) -> Iterator[tuple[str, Any, pa.DataType]]:
    """Every value below a value, with its path and type."""
    if value is None:
        return
    if pa.types.is_struct(kind):
        for field in kind:
            yield from leaves(f"{path}.{field.name}", value[field.name], field.type)
    elif pa.types.is_map(kind):
        for at, (key, item) in enumerate(value):
            yield from leaves(f"{path}[{at}].key", key, kind.key_type)
            yield from leaves(f"{path}[{at}].value", item, kind.item_type)
    elif pa.types.is_nested(kind):
        for at, element in enumerate(value):
            yield from leaves(f"{path}[{at}]", element, kind.value_type)
    else:
        yield path, value, kind


def all_leaves(snapshot: Snapshot) -> list[tuple[str, str, str, Any, pa.DataType]]:
    """Operator, state, path, value and type of everything in a snapshot."""
    found = []
    for operator in snapshot.operators:
        states: list[State] = [*operator.keyed_states, *operator.operator_states]
        for state in states:
            table = state.to_arrow()
            for field in table.schema:
                if field.name not in LEFT_OUT:
                    for value in table.column(field.name).to_pylist():
                        for path, leaf, kind in leaves(field.name, value, field.type):
                            found.append((operator.label, state.name, path, leaf, kind))
    return found


def written(value: Any) -> str:
    """A value as the command line has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return value.isoformat() if isinstance(value, datetime | date | time) else str(value)


def is_same(value: Any, sought: Any, text: str) -> bool:
    """Whether a value is what is sought, by Python's means."""
    if isinstance(value, str):
        return value == text
    if isinstance(value, bytes):
        return text.startswith("0x") and value == bytes.fromhex(text[2:])
    if isinstance(value, bool) or isinstance(sought, bool):
        return written(value) == text
    numbers = int | float | Decimal
    if isinstance(value, numbers):
        try:
            wanted = Decimal(text)
        except ArithmeticError:
            return False
        if math.isnan(value):
            return bool(wanted.is_nan())
        return value == (float(text) if isinstance(value, float) else wanted)
    return type(value) is type(sought) and value == sought


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[pytest.mark.full] if case.name == SLOW else [])
        for case in golden_cases()
    ],
)
@pytest.mark.thinned(4)
def test_finds_what_a_search_by_hand_finds(case: GoldenCase) -> None:
    """The places are those at which the decoded rows have the value, for values of every type."""
    snapshot = open_golden(case)
    everything = all_leaves(snapshot)
    by_kind: dict[str, list[Any]] = {}
    for _, _, _, value, kind in everything:
        by_kind.setdefault(str(kind), []).append(value)
    chance = random.Random(case.name)
    assert by_kind
    kinds = chance.sample(sorted(by_kind), min(8, len(by_kind)))  # a heap's file takes longer
    for values in map(by_kind.__getitem__, kinds):
        for sought in chance.sample(values, min(2, len(values))):
            text = written(sought)
            found = snapshot.find(text, limit=None)
            expected = sorted(
                (operator, state, path)
                for operator, state, path, value, _ in everything
                if is_same(value, sought, text)
            )
            places = sorted((hit.operator, hit.state.name, hit.path) for hit in found.hits)
            assert places == expected, text
            assert found.count == len(expected) > 0


@pytest.mark.parametrize("part", ["session-1", "t", "-11", ".", ""])
def test_contains_finds_parts_of_texts(part: str) -> None:
    """With --contains a part of a text is enough; a pattern is only text."""
    snapshot = open_snapshot(MONDAY)
    expected = sorted(
        (state, path)
        for _, state, path, value, _ in all_leaves(snapshot)
        if isinstance(value, str) and part in value
    )
    found = snapshot.find(part, contains=True, limit=None)
    texts = [hit for hit in found.hits if isinstance(_held(hit), str)]
    assert sorted((hit.state.name, hit.path) for hit in texts) == expected


def _held(hit: Any) -> Any:
    """What a hit's row has at its path."""
    (row,) = hit.row.to_pylist()
    held: Any = row
    for step in re.findall(r"[^.\[\]]+", hit.path):
        if isinstance(held, tuple):
            held = held[step != "key"]
        else:
            held = held[int(step)] if isinstance(held, list) else held[step]
    return held


def test_of_a_lake_as_of_the_savepoint(tmp_path: Path) -> None:
    """A snapshot of a lake has the value where the savepoint has it."""
    lake = Catalog(tmp_path / "lake")
    import_as(lake, KINDS, "one")
    everywhere = ("--lake", lake.location, "--job", "orders", "--json")
    for words in (("-786288207978",), ("name of", "--contains"), ("118", "--state", "row")):
        there = run("find", *words, "--limit", 1000, *everywhere)
        here = run("find", *words, KINDS, "--limit", 1000, "--json")
        assert there.code == here.code == 0
        assert there.json["found"] == here.json["found"] > 0
        assert _sorted(there.json["hits"]) == _sorted(here.json["hits"])


def _sorted(hits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(hits, key=lambda hit: (hit["state"], hit["column"], repr(hit["row"])))


def test_hostile_values_are_text(tmp_path: Path) -> None:
    """Patterns, quotes and controls are found as they are, and printed without effect."""
    rows = pa.table({"key": list(range(len(HOSTILE))), "value": list(HOSTILE)})
    operator = NewOperator("o", "Long", (NewKeyedState("s", rows, value="String"),), parallelism=1)
    write_snapshot(tmp_path / "s", [operator])
    for key, hostile in enumerate(HOSTILE):
        for more in ((), ("--contains",)):
            ran = run("find", hostile, tmp_path / "s", *more)
            assert ran.code == 0
            assert "\x1b" not in ran.out
            found = run("find", hostile, tmp_path / "s", *more, "--json").json
            assert [hit["row"]["key"] for hit in found["hits"]] == [key]


def test_bytes_are_found_by_hex_and_named_otherwise(tmp_path: Path) -> None:
    """Bytes are searched if the value is hex; for a text they are named as not searched."""
    rows = pa.table({"key": [1, 2], "value": pa.array([b"\x00\xff\xfe", b"abc"], pa.binary())})
    operator = NewOperator("o", "Long", (NewKeyedState("s", rows, value="byte[]"),), parallelism=1)
    write_snapshot(tmp_path / "s", [operator])
    whole = run("find", "0x00fffe", tmp_path / "s", "--json")
    assert (whole.code, whole.json["found"], whole.json["not_searched"]) == (0, 1, [])
    assert whole.json["hits"][0]["row"]["key"] == 1
    assert run("find", "0xff", tmp_path / "s").code == 1
    assert run("find", "0xff", tmp_path / "s", "--contains").code == 0
    text = run("find", "abc", tmp_path / "s", "--json")
    assert (text.code, text.json["found"]) == (1, 0)
    assert [(each["state"], each["column"]) for each in text.json["not_searched"]] == [
        ("s", "value")
    ]
    assert "/s/value: bytes, which are searched for 0x" in run("find", "abc", tmp_path / "s").out


def test_limit_says_how_many_more() -> None:
    """All places are counted; only the first ones are shown."""
    ran = run("find", "session", MONDAY, "--contains", "--limit", 5)
    assert "session is at 120 places" in ran.out
    assert "... and 115 more" in ran.out
    few = run("find", "session", MONDAY, "--contains", "--limit", 5, "--json").json
    assert (few["found"], len(few["hits"])) == (120, 5)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("nothing-of-the-kind",), 1),
        (("1e999999",), 1),
        (("0x",), 1),
        (("--contian",), 2),
        (("a", "--operator", "none"), 3),
        (("a", "--state", "none"), 3),
    ],
)
def test_exit_codes(words: tuple[str, ...], code: int) -> None:
    """1 if it is nowhere, 2 for an unknown option, 3 for an unknown operator or state."""
    assert run("find", *words[:1], MONDAY, *words[1:]).code == code
