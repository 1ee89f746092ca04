"""`statelake top`: the heaviest keys, as counted from what `to_arrow` and the entries say."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake import NewKeyedState, NewOperator, open_snapshot, write_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.shown import plain
from statelake.state_core.formats import key_weights
from statelake.state_core.formats.key_weights import StateWeights, heaviest_key, weigh_operator
from statelake.state_core.model.snapshot import KeyedState, Operator, StateKind
from tests.support.command import run
from tests.support.lakes import KINDS, WIDE, WINDOWS, import_as
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases
from tests.support.savepoints.heap_timers import TIMER_KEYS, heap_timers
from tests.support.savepoints.keyed_types import KEYS, POJO, keyed_savepoint
from tests.support.savepoints.own_savepoint import FORMS, own_savepoint

pytestmark = pytest.mark.thinned(3)

USAGE, BAD_INPUT = 2, 3
ALL = 1 << 20


def counted(state: KeyedState) -> dict[str, tuple[int, int, int]]:
    """By key: its key group, its entries and their bytes, each entry decoded by itself."""
    found: dict[str, tuple[int, int, int]] = {}
    for file, index in state.files:
        for entries in file.entries():
            mine = entries.of_state(index)
            if not len(mine):
                continue
            keys = file.decode(index, mine, ["key"]).column(0).to_pylist()
            rows = zip(keys, mine.group_of.tolist(), mine.payload_bytes().tolist(), strict=True)
            for key, group, size in rows:
                _, count, total = found.get(repr(key), (group, 0, 0))
                found[repr(key)] = (group, count + 1, total + size)
    return found


def assert_weighed(operator: Operator, most: int = 5) -> None:
    """What is heavy in each state is what counting by hand finds."""
    weighed = weigh_operator(operator, most)
    assert list(weighed) == [state.name for state in operator.keyed_states]
    for state in operator.keyed_states:
        weights, by_key = weighed[state.name], counted(state)
        assert weights.keys == len(by_key)
        assert weights.entries == sum(count for _, count, _ in by_key.values())
        assert weights.size == sum(size for _, _, size in by_key.values())
        for ranked, column in ((weights.heaviest(), 2), (weights.busiest(), 1)):
            for key in ranked:
                assert by_key[repr(key.key)] == (key.key_group, key.entries, key.size)
            numbers = sorted((row[column] for row in by_key.values()), reverse=True)[:most]
            assert [(key.entries, key.size)[column - 1] for key in ranked] == numbers
        assert_longest(state, weights, most)


def assert_longest(state: KeyedState, weights: StateWeights, most: int) -> None:
    """The longest lists and maps are those of `to_arrow`."""
    lengths: Counter[str] = Counter()
    rows = state.to_arrow(threads=1)
    if state.kind is StateKind.LIST and pa.types.is_list(rows.schema.field("value").type):
        for row in rows.to_pylist():
            lengths[repr((row["key"], row["namespace"]))] += len(row["value"])
    elif state.kind is StateKind.MAP and not weights.layout.opaque_key:
        lengths.update(repr((row["key"], row["namespace"])) for row in rows.to_pylist())
    found = weights.longest()
    if lengths or found:
        assert [long.length for long in found] == sorted(lengths.values(), reverse=True)[:most]
        assert all(
            lengths[repr((long.key, long.namespace))] == long.length and long.size for long in found
        )


@pytest.mark.parametrize("golden", golden_cases(), ids=lambda golden: golden.name)
@pytest.mark.full
def test_what_flink_wrote(golden: GoldenCase) -> None:
    """Canonical, heap and RocksDB, of every type."""
    for operator in open_snapshot(golden.snapshot).operators:
        assert_weighed(operator)


@pytest.mark.parametrize("case", TIMER_KEYS)
def test_timers_beside_rocksdb(case: str, tmp_path: Path) -> None:
    """They are a state like any other."""
    for operator in open_snapshot(heap_timers(case, tmp_path / case)).operators:
        assert_weighed(operator)


@pytest.mark.parametrize("form", FORMS)
def test_a_job_whose_serializers_nobody_knows(form: str, tmp_path: Path) -> None:
    """Bytes are bytes; what can't be told apart is not counted apart."""
    for operator in open_snapshot(own_savepoint(form, tmp_path / form)).operators:
        assert_weighed(operator)


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_every_type(name: str, tmp_path: Path) -> None:
    """They are shown as they are dumped."""
    spec, keys = KEYS[name]
    kind = keyed_savepoint(tmp_path / "s", spec, keys)
    assert_weighed(open_snapshot(tmp_path / "s").operator("op"))
    shown = run("top", tmp_path / "s", "--json").json["operators"][0]["states"][0]["heaviest"]
    assert sorted(json.dumps(key["key"]) for key in shown) == sorted(
        json.dumps(plain(key, kind)) for key in keys
    )


def skewed(path: Path) -> Path:
    """A savepoint with a few heavy keys, long maps and lists, in many key groups."""
    random = np.random.default_rng(5)
    numbers = random.zipf(1.3, 20_000) % 3000
    user_keys: Counter[int] = Counter()
    rows: dict[str, list[Any]] = {"key": [5000], "user_key": [1], "value": ["v" * 100_000]}
    lists: dict[int, list[int]] = defaultdict(list)
    for number in numbers.tolist():
        user_keys[number] += 1
        rows["key"].append(number)
        rows["user_key"].append(user_keys[number])
        rows["value"].append("v" * (number % 7))
        lists[number].append(number)
    states = (
        NewKeyedState("map", pa.table(rows), "map", "String", "Long"),
        NewKeyedState(
            "list",
            pa.table({"key": list(lists), "value": pa.array(lists.values(), pa.list_(pa.int64()))}),
            "list",
            "Long",
        ),
    )
    write_snapshot(path, [NewOperator("op", "Long", states, parallelism=3)], metadata_version=6)
    return path


def test_the_heaviest_of_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact, however few are kept, however small the slices, and however often sums are summed."""
    operator = open_snapshot(skewed(tmp_path / "s")).operator("op")
    assert_weighed(operator, 1)
    monkeypatch.setattr(key_weights, "MANY_ROWS", 10)
    assert_weighed(operator, 7)
    assert_weighed(operator, ALL)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([b"", b"a", b"a\0", b"b", b"\xff"])),
        max_size=30,
    )
)
def test_rows_in_order_are_summed_as_others_are(drawn: list[tuple[int, bytes]]) -> None:
    """By the bounds of their keys, without a table of hashes, which has the same sums."""
    sums = []
    for rows in (sorted(drawn), sorted(drawn)[::-1], drawn):
        table = pa.table(
            {
                "key_group": pa.array([group for group, _ in rows], pa.int32()),
                "key": pa.chunked_array([[key] for _, key in rows], pa.binary()),
                "entries": pa.array([1] * len(rows), pa.int64()),
                "size": pa.array([len(key) + 1 for _, key in rows], pa.int64()),
            }
        )
        summed = key_weights._summed(table)
        sums.append(sorted(summed.to_pylist(), key=lambda row: (row["key_group"], row["key"])))
    by_key = Counter(drawn)
    assert (
        sums[0]
        == sums[1]
        == sums[2]
        == [
            {"key_group": group, "key": key, "entries": count, "size": count * (len(key) + 1)}
            for (group, key), count in sorted(by_key.items())
        ]
    )


def test_equals_are_in_an_order() -> None:
    """Of keys of the same weight those of the first key groups, by whatever number of threads."""
    operator = open_snapshot(KINDS).operator("kinds")
    once = weigh_operator(operator, 9, threads=1)["total"].heaviest()
    assert once == weigh_operator(operator, 9, threads=4)["total"].heaviest()
    assert [key.key_group for key in once] == sorted(key.key_group for key in once)


def test_the_heaviest_key_of_a_key_group(tmp_path: Path) -> None:
    """All states together; none where there is nothing."""
    operator = open_snapshot(skewed(tmp_path / "s")).operator("op")
    sums: dict[int, Counter[str]] = defaultdict(Counter)
    for state in operator.keyed_states:
        for key, (group, _, size) in counted(state).items():
            sums[group][key] += size
    for group in range(operator.max_parallelism):
        heaviest = heaviest_key(operator, group)
        if group not in sums:
            assert heaviest is None
        else:
            assert heaviest is not None
            assert sums[group][repr(heaviest.key)] == heaviest.size == max(sums[group].values())
    described = run("inspect", tmp_path / "s", "--keys", "--json").json["operators"][0]
    named = described["key_groups"]["heaviest_key"]
    totals = {group: sum(of_group.values()) for group, of_group in sums.items()}
    assert totals[named["key_group"]] == max(totals.values())
    assert named["bytes"] == max(sums[named["key_group"]].values())
    assert (
        f"heaviest key of key group {named['key_group']}: {named['key']},"
        in run("inspect", tmp_path / "s", "--keys").out
    )


# --------------------------------------------------------------------- the command


@pytest.mark.parametrize(
    "savepoint",
    [KINDS, WINDOWS, WIDE, *(case.snapshot for case in golden_cases("pojo", "queries"))],
    ids=lambda path: path.parent.name,
)
@pytest.mark.full
def test_a_lake_weighs_what_the_savepoint_weighed(savepoint: Path, tmp_path: Path) -> None:
    """To the byte, times to live and all."""
    lake = Catalog(tmp_path / "lake")
    import_as(lake, savepoint, "s")
    more = ("--json", "--limit", 4, "--ttl", "1h,1d", "--at", "2026-11-20T21:17:47.700Z")
    there = run("top", "--lake", lake.location, "--job", "orders", *more)
    assert (there.code, there.err) == (0, "")
    assert there.json == run("top", savepoint, *more).json


def test_times_to_live(tmp_path: Path) -> None:
    """An entry has expired as in `edit --expire`: at the moment its time is over."""
    times = [
        row["ttl"]
        for row in open_snapshot(KINDS).operator("kinds").state("session").to_arrow().to_pylist()
    ]
    middle = sorted(times)[len(times) // 2]
    at = datetime.fromtimestamp(middle / 1000, timezone.utc).isoformat()
    ran = run("top", KINDS, "--state", "session", "--ttl", "0s,1ms,365d", "--at", at, "--json")
    (state,) = ran.json["operators"][0]["states"]
    gone = [expiry["gone_entries"] for expiry in state["ttl"]]
    assert gone == [
        sum(time <= middle for time in times), sum(time <= middle - 1 for time in times), 0
    ]  # fmt: skip
    assert [expiry["time_to_live"] for expiry in state["ttl"]] == ["0s", "1ms", "365d"]
    lake = Catalog(tmp_path / "lake")
    import_as(lake, KINDS, "s")
    edited = run(
        "edit", "--lake", lake.location, "--job", "orders", "--parent", "s", "--snapshot", "t",
        "--expire", "kinds/session", "0s", "--at", at, "--json",
    )  # fmt: skip
    assert edited.code == 0
    left = next(s for s in lake.snapshot("orders", "t").operators[0].states if s.name == "session")
    assert (left.entries, left.state_bytes) == (
        state["entries"] - gone[0], state["bytes"] - state["ttl"][0]["gone_bytes"]
    )  # fmt: skip


def test_lists_expire_element_by_element(tmp_path: Path) -> None:
    """Elements are counted; bytes are those of lists of which nothing would be left."""
    kind = pa.list_(pa.int64())
    rows = {
        "key": [1, 2],
        "value": pa.array([[10, 11], [12]], kind),
        "ttl": pa.array([[1000, 2000], [1000]], kind),
    }
    state = NewKeyedState("seen", pa.table(rows), "list", "Long", with_ttl=True)
    write_snapshot(tmp_path / "s", [NewOperator("op", "Long", (state,))], metadata_version=6)
    ran = run("top", tmp_path / "s", "--ttl", "1s", "--at", "1970-01-01T00:00:02Z", "--json")
    (weights,) = ran.json["operators"][0]["states"]
    light = next(key["bytes"] for key in weights["heaviest"] if key["key"] == 2)
    assert weights["ttl"] == [{"time_to_live": "1s", "gone_entries": 2, "gone_bytes": light}]
    said = run("top", tmp_path / "s", "--ttl", "1s", "--at", "1970-01-01T00:00:02Z").out
    assert "at a time to live of 1s: 2 of 3 elements gone" in said


def test_a_table_for_people(tmp_path: Path) -> None:
    """Heaviest keys, those with most entries where these are others, and what is longest."""
    said = run("top", skewed(tmp_path / "s"), "--limit", 2, "--ttl", "1d").out
    lines = said.splitlines()
    assert lines[0] == "op, keyed by Long"
    assert any(line.startswith("map, map: 20,001 entries of ") for line in lines)
    assert any(line.startswith("heaviest key") for line in lines)
    assert any(line.startswith("most entries") for line in lines)
    assert any(line.startswith("longest map") for line in lines)
    assert any(line.startswith("longest list") for line in lines)
    assert lines[-1] == "no state has a time to live"


def test_a_hash_that_the_class_alone_knows(tmp_path: Path) -> None:
    """Weighing needs no hash."""
    keyed_savepoint(tmp_path / "s", POJO, KEYS["POJOs"][1])
    states = run("top", tmp_path / "s", "--json").json["operators"][0]["states"]
    assert [state["keys"] for state in states] == [2, 2, 2]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--ttl", "soon"], USAGE, "'soon' is no duration"),
        (["--ttl", "1d,"], USAGE, "is no duration"),
        (["--ttl", f"{10**30}d"], USAGE, "longer than any calendar"),
        (["--limit", "0"], USAGE, "--limit"),
        (["--state", "no"], BAD_INPUT, "no operator has a keyed state 'no'"),
        (["--operator", "no"], BAD_INPUT, "no operator 'no'"),
        (["--lake", "l"], USAGE, "either a SAVEPOINT, or --lake and --job"),
    ],
)
def test_what_is_asked_wrongly(words: list[str], code: int, said: str) -> None:
    """Errors name what there is."""
    ran = run("top", KINDS, *words)
    assert ran.code == code
    assert said in ran.err


def test_a_snapshot_without_keyed_state() -> None:
    """There is nothing to weigh, and nothing to look a key up in."""
    savepoint = golden_cases("operator")[0].snapshot
    for words in (("top", savepoint), ("get", savepoint, "--key", 1)):
        ran = run(*words)
        assert ran.code == BAD_INPUT
        assert "there is no keyed state" in ran.err
