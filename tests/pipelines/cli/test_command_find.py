"""`statelake find`: every place of a value is found, and what is not searched is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import statelake as sl
from statelake.pipelines.operations.finding import Sought
from statelake.state_core.errors import EncodeError, NotFoundError
from tests.support.command import run
from tests.support.lakes import KINDS
from tests.support.savepoints.golden_cases import golden_cases
from tests.support.savepoints.kryo_jobs import jdk_savepoint

RULES = golden_cases("operator", form="canonical")[0].snapshot


def places_in(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every value within a value of `dump`, with its path."""
    if isinstance(value, dict):
        for name, held in value.items():
            yield from places_in(held, f"{path}.{name}")
    elif isinstance(value, list):
        for index, held in enumerate(value):
            yield from places_in(held, f"{path}[{index}]")
    else:
        yield path, value


@pytest.mark.parametrize("savepoint", [KINDS, RULES], ids=["kinds", "operator"])
@pytest.mark.parametrize("text", ["5", "-3", "true", "t5", "s0", "word-1", "0.3333333333333333"])
def test_what_is_found_is_what_a_look_at_each_row_finds(savepoint: Path, text: str) -> None:
    """In keys, windows, lists, maps, tuples, rows, timers and operator state."""
    named: dict[str, Any] = {"true": True, "-3": -3, "5": 5}
    wanted = named.get(text, float(text) if text.startswith("0.") else text)
    expected = set()
    for line in run("dump", savepoint).out.splitlines():
        row = sl_json(line)
        for name in ("key", "namespace", "user_key", "value", "ttl", "timestamp"):
            for path, held in places_in(row.get(name), name):
                if held == wanted and isinstance(held, bool) is isinstance(wanted, bool):
                    expected.add((row["operator"], row["state"], path, line))
    ran = run("find", text, savepoint, "--limit", 100_000, "--json")
    found = {
        (hit["operator"], hit["state"], hit["path"], dumped(hit["row"])) for hit in ran.json["hits"]
    }
    assert {each[:3] for each in found} == {each[:3] for each in expected}
    assert len(found) == len(expected)
    assert ran.code == (0 if expected else 1)


def sl_json(line: str) -> dict[str, Any]:
    """A line of `dump`."""
    return dict(json.loads(line))


def dumped(row: dict[str, Any]) -> str:
    """A row as text, to be told apart from others."""
    return repr(sorted(row.items(), key=lambda item: item[0]))


def test_in_a_lake_as_in_the_savepoint(tmp_path: Path) -> None:
    """The same places; what is not there is exit code 1, an unknown state an error."""
    sl.Lake(tmp_path / "lake").job("j", engine="local").import_snapshot(KINDS, "monday")
    lake = ("--lake", tmp_path / "lake", "--job", "j", "--snapshot", "monday", "--json")
    there, here = run("find", "5", KINDS, "--json").json, run("find", "5", *lake).json
    assert sorted(map(repr, here["hits"])) == sorted(map(repr, there["hits"]))
    assert run("find", "nowhere", *lake).code == 1
    with pytest.raises(NotFoundError, match="no state 'itmes'"):
        sl.find(KINDS, "5", state="itmes")
    with pytest.raises(NotFoundError, match="no operator 'kind'"):
        sl.find(KINDS, "5", operator="kind")
    only = sl.find(KINDS, "5", operator="kinds", state="items")
    assert {hit.state for hit in only.hits} == {"items"}


def test_parts_of_texts_and_the_limit() -> None:
    """A search that stops says so; characters have no meaning but themselves."""
    assert not sl.find(KINDS, "name of").hits
    found = sl.find(KINDS, "name of", contains=True, limit=3)
    assert (len(found.hits), found.stopped) == (3, True)
    assert "the search stopped at 3" in str(found)
    for text in (".*", "%", "' OR 1=1 --", "\x1b[31m", "\u202e"):
        ran = run("find", text, KINDS, "--contains")
        assert ran.code == 1
        assert "\x1b" not in ran.out
        assert "\u202e" not in ran.out


def test_bytes_that_nobody_decodes_are_named_or_searched(tmp_path: Path) -> None:
    """By their hexadecimal digits."""
    savepoint = jdk_savepoint(tmp_path / "savepoint")
    found = sl.find(savepoint, "KryoJobs")
    assert any(each.endswith("/basket, value") for each in found.not_searched)
    (operator,) = (each for each in sl.open_snapshot(savepoint).operators
                   if any(state.name == "basket" for state in each.keyed_states))  # fmt: skip
    basket = operator["basket"].to_arrow().column("value")[0].as_py()
    whole, part = (sl.find(savepoint, f"0x{data.hex()}", state="basket", contains=within)
                   for data, within in ((basket, False), (basket[3:9], True)))  # fmt: skip
    assert [hit.path for hit in whole.hits] == ["value"]
    assert len(part.hits) >= 1
    assert not part.not_searched
    for wrong in ("", "0xg1"):
        with pytest.raises(EncodeError):
            sl.find(savepoint, wrong)


LEAVES = st.integers(-3, 3) | st.none()
ROWS = st.lists(
    st.fixed_dictionaries({
        "f": LEAVES,
        "l": st.none() | st.lists(LEAVES | st.none(), max_size=3),
        "s": st.none() | st.fixed_dictionaries({"t": st.none() | st.sampled_from(["1", "x"])}),
        "m": st.none() | st.lists(
            st.tuples(st.sampled_from(["1", "a", "b"]), st.none() | st.lists(LEAVES, max_size=2)),
            max_size=2, unique_by=lambda pair: pair[0],
        ),
    }) | st.none(),
    max_size=5,
)  # fmt: skip
KIND = pa.struct({
    "f": pa.int64(), "l": pa.list_(pa.int32()), "s": pa.struct({"t": pa.string()}),
    "m": pa.map_(pa.string(), pa.list_(pa.float64())),
})  # fmt: skip


@given(ROWS, st.sampled_from(["1", "-3", "x", "0"]), st.integers(0, 2))
def test_every_place_in_nested_columns(rows: list[Any], text: str, start: int) -> None:
    """Null rows hide what is below them; a slice has its own rows alone."""
    column = pa.array(rows, KIND).slice(min(start, len(rows)))
    expected = []
    for row, value in enumerate(column.to_pylist()):
        if value is None:
            continue
        pairs = value["m"] or ()
        leaves = [
            ("v.f", value["f"]),
            *((f"v.l[{at}]", held) for at, held in enumerate(value["l"] or ())),
            ("v.s.t", (value["s"] or {}).get("t")),
            *((f"v.m.key[{at}]", key) for at, (key, _) in enumerate(pairs)),
            *((f'v.m["{key}"][{at}]', held)
              for key, inner in pairs for at, held in enumerate(inner or ())),
        ]  # fmt: skip
        for path, held in leaves:
            shown = str(int(held)) if isinstance(held, (int, float)) else held
            if shown == text:
                expected.append((row, path))
    assert sorted(Sought(text).places(column, "v")) == sorted(expected)
