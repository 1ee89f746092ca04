"""Real Flink restores savepoints that no Flink wrote: of Arrow tables, and nothing else.

The jobs are those that the oracle knows; what they print after the restore must be what the tables
hold, key by key. The values are ours, not those that the jobs would have come to.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statelake import NewKeyedState, NewOperator, NewOperatorState, write_snapshot
from tests.integration.flink.oracle import FlinkOracle, sorted_lines

pytestmark = [pytest.mark.flink, pytest.mark.full, pytest.mark.thinned(2)]

KEYS = 90
BACKENDS = ("hashmap", "rocksdb")
BASE, STEP, FAR = -(1 << 40), 2654435761, 4_000_000_000_000
TIERS = ("GOLD", "BRONZE", "SILVER")
LAST_ACCESS = 1_750_000_000_000
ADDRESS = {"pojo": "ProfileJobs$Address", "fields": {"city": "String", "zip": "int"}}
PROFILE = {
    "pojo": "ProfileJobs$Profile",
    "fields": {
        "id": "long",
        "name": "String",
        "age": "Integer",
        "score": "double",
        "tier": {"enum": "ProfileJobs$Tier", "constants": list(TIERS)},
        "address": ADDRESS,
    },
}
Made = tuple[NewOperator, list[Any]]


def word(number: int) -> str:
    """The keys of the jobs (`Jobs.word`)."""
    if number % 7 == 0:
        return f"größe-{number}"
    return f"键😀-{number}" if number % 11 == 0 else f"word-{number}"


def rows(**columns: list[Any]) -> pa.Table:
    """A table."""
    return pa.table(columns)


def wordcount(parallelism: int, max_parallelism: int) -> Made:
    """A Long by String."""
    words = [word(number) for number in range(KEYS)]
    counts = [number**5 - 10**6 for number in range(KEYS)]
    state = NewKeyedState("count", rows(key=words, value=counts), value="Long")
    lines = [{"key": key, "count": count} for key, count in zip(words, counts, strict=True)]
    operator = NewOperator("counter", "String", (state,), (), parallelism, max_parallelism)
    return operator, lines


def kinds(parallelism: int, max_parallelism: int) -> Made:
    """Every kind of keyed state, time to live and timers among them."""
    keys = [BASE + number * STEP for number in range(KEYS)]
    names = [f"name {number} ü😀" for number in range(KEYS)]
    items = [[number - index for index in range(number % 4)] for number in range(KEYS)]
    scores = [
        {f"s{index}": number / (index + 1) for index in range(number % 3)} for number in range(KEYS)
    ]
    pairs = [(key, *one) for key, map_ in zip(keys, scores, strict=True) for one in map_.items()]
    totals = [number * 10**12 - 5 for number in range(KEYS)]
    averages = [{"f0": number * 3, "f1": number + 1} for number in range(KEYS)]
    triples = [{"f0": -number, "f1": f"t{number}", "f2": number % 2 == 1} for number in range(KEYS)]
    fields = [
        {"f0": number, "f1": f"r{number}" if number % 2 else None, "f2": number / 4}
        for number in range(KEYS)
    ]
    sessions = [f"session of {number}" for number in range(KEYS)]
    times = [
        (key, FAR - number * step) for number, key in enumerate(keys) for step in (1, 2) if number
    ]
    states = (
        NewKeyedState("name", rows(key=keys, value=names), value="String"),
        NewKeyedState("items", rows(key=keys, value=items), "list", value="Integer"),
        NewKeyedState(
            "scores",
            rows(
                key=[pair[0] for pair in pairs],
                user_key=[pair[1] for pair in pairs],
                value=[pair[2] for pair in pairs],
            ),
            "map",
            value="Double",
            user_key="String",
        ),
        NewKeyedState("total", rows(key=keys, value=totals), "reducing", value="Long"),
        NewKeyedState(
            "avg", rows(key=keys, value=averages), "aggregating", value="Tuple2<Long, Long>"
        ),
        NewKeyedState(
            "triple", rows(key=keys, value=triples), value="Tuple3<Integer, String, Boolean>"
        ),
        NewKeyedState("row", rows(key=keys, value=fields), value="Row<Long, String, Double>"),
        NewKeyedState(
            "session",
            rows(key=keys, value=sessions, ttl=[LAST_ACCESS] * KEYS),
            value="String",
            with_ttl=True,
        ),
        NewKeyedState.timers(
            "event", rows(key=[time[0] for time in times], timestamp=[time[1] for time in times])
        ),
        NewKeyedState.timers("processing", rows(key=keys, timestamp=[FAR] * KEYS)),
    )  # fmt: skip
    lines: list[Any] = [
        {
            "key": keys[at], "name": names[at], "items": items[at], "scores": scores[at],
            "total": totals[at], "avg": averages[at]["f0"] / averages[at]["f1"],
            "triple": list(triples[at].values()), "row": list(fields[at].values()),
            "session": sessions[at],
        }
        for at in range(KEYS)
    ]  # fmt: skip
    lines += [{"key": key, "timer": "EVENT_TIME", "ts": time} for key, time in times]
    return NewOperator("kinds", "Long", states, (), parallelism, max_parallelism), lines


def profiles(parallelism: int, max_parallelism: int) -> Made:
    """A POJO with another in it, an enum, and fields that are null."""
    words = [word(number) for number in range(KEYS)]
    values = [
        {
            "id": number << 33,
            "name": None if number % 5 == 0 else f"n{number}",
            "age": None if number % 3 == 0 else number,
            "score": number / 3,
            "tier": TIERS[number % 3] if number % 4 else None,
            "address": None if number % 6 == 0 else {"city": f"c{number}", "zip": number * 1000},
        }
        for number in range(KEYS)
    ]
    lines = [
        {
            "key": key,
            **{name: value for name, value in profile.items() if name != "address"},
            **(profile["address"] or {"city": None, "zip": None}),
        }
        for key, profile in zip(words, values, strict=True)
    ]
    state = NewKeyedState("profile", rows(key=words, value=values), value=PROFILE)
    return NewOperator("profiles", "String", (state,), (), parallelism, max_parallelism), lines


def mixed(parallelism: int, max_parallelism: int) -> Made:
    """Split, union and broadcast state beside keyed state."""
    words = [word(number) for number in range(KEYS)]
    lengths = [number * 7 for number in range(KEYS)]
    numbers = list(range(100, 100 + 10 * parallelism))
    pairs = [{"f0": f"p{index}", "f1": index} for index in range(2 * parallelism)]
    names = [f"u{index}" for index in range(7)]
    rules = {f"rule-{index}": index * index for index in range(20)}
    operator = NewOperator(
        "mixed",
        "String",
        (NewKeyedState("length", rows(key=words, value=lengths), value="Long"),),
        (
            NewOperatorState("split", rows(value=numbers), "split", "Long"),
            NewOperatorState("offsets", rows(value=pairs), "split", "Tuple2<String, Integer>"),
            NewOperatorState("union", rows(value=names), "union", "String"),
            NewOperatorState(
                "rules", rows(key=list(rules), value=list(rules.values())), "broadcast", "Integer",
                "String",
            ),
        ),
        parallelism,
        max_parallelism,
    )  # fmt: skip
    lines: list[Any] = [
        {"key": key, "length": length} for key, length in zip(words, lengths, strict=True)
    ]
    for subtask in range(parallelism):
        lines.append({"subtask": subtask, "rules": rules})
        lines.append(
            {
                "subtask": subtask,
                "split": numbers[10 * subtask : 10 * subtask + 10],
                "offsets": [list(pair.values()) for pair in pairs[2 * subtask : 2 * subtask + 2]],
                "union": names,
                "lone": [],
                "rare": [],
            }
        )
    return operator, lines


JOBS = {"wordcount": wordcount, "kinds": kinds, "profiles": profiles, "mixed": mixed}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.full), 3])
@pytest.mark.parametrize("case", JOBS)
def test_flink_holds_what_the_tables_held(
    case: str, parallelism: int, backend: str, flink: FlinkOracle, tmp_path: Path
) -> None:
    """Every value of every key, every timer, every subtask's lists."""
    operator, lines = JOBS[case](parallelism, 128)
    compression = "snappy" if (parallelism == 1) == (backend == "hashmap") else "none"
    version = 6 if backend == "rocksdb" else 3
    write_snapshot(tmp_path / "sp", [operator], compression=compression, metadata_version=version)
    restored = flink.restore(
        case, tmp_path / "sp", keys=KEYS, parallelism=parallelism, backend=backend
    )
    assert sorted_lines(restored) == sorted_lines(lines)


@pytest.mark.parametrize(("case", "version"), [("kinds", 3), ("profiles", 4), ("mixed", 4)])
def test_an_older_flink(case: str, version: int, old_flink: FlinkOracle, tmp_path: Path) -> None:
    """Flink 1.20 restores the same, from `_metadata` 3 and 4 and operator state of version 5."""
    operator, lines = JOBS[case](2, 128)
    write_snapshot(
        tmp_path / "sp", [operator], metadata_version=version, operator_state_version=5,
        compression="snappy",
    )  # fmt: skip
    restored = old_flink.restore(case, tmp_path / "sp", keys=KEYS, parallelism=2, backend="rocksdb")
    assert sorted_lines(restored) == sorted_lines(lines)


@pytest.mark.parametrize(
    "version", [4, pytest.param(5, marks=pytest.mark.full), pytest.param(6, marks=pytest.mark.full)]
)
def test_every_version_at_another_parallelism(
    version: int, flink: FlinkOracle, tmp_path: Path
) -> None:
    """Flink rescales it as one of its own; two bytes of key-group prefix."""
    operator, lines = wordcount(2, 1000)
    write_snapshot(tmp_path / "sp", [operator], metadata_version=version)
    restored = flink.restore("wordcount", tmp_path / "sp", keys=KEYS, parallelism=3, max=1000)
    assert sorted_lines(restored) == sorted_lines(lines)
