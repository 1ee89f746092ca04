"""Savepoints with people in them, and a search for one that shares no code with statelake.

The search reads the raw bytes of files in plain Python, and has DuckDB decode Parquet.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from statelake import NewKeyedState, NewOperator, NewOperatorState, write_snapshot

__all__ = ["ALICE", "BESIDE_KEYS", "NEW_PROFILE", "files_with", "forms_of", "people_savepoint"]

ALICE = "alice-7f3a9c"
# where she is, and not the key
BESIDE_KEYS = {
    "users/friends": f"user_key = '{ALICE}'",
    "places/members": f"element = '{ALICE}'",
    "places/pending": f"value = '{ALICE}'",
    "places/shared": f"value = '{ALICE}'",
    "places/rules": f"key = '{ALICE}'",
}
PROFILE = {"pojo": "com.example.Profile", "fields": {"age": "int", "city": "String"}}
NEW_PROFILE = {
    "pojo": "com.example.Profile",
    "fields": {"age": "int", "city": "String", "points": "int"},
}


def people_savepoint(to: Path, day: int, people: int = 60) -> Path:
    """A savepoint with state of some people, of whom one is `ALICE`: a little changes every day.

    She is the key of two operators' state and of timers, a user key in the state of others, in
    a list, and in operator state of all three modes.
    """
    draw = random.Random(day)
    names = [f"person-{at:03d}" for at in range(people - 1)] + [ALICE]
    some = sorted({*draw.sample(names, people // 2), ALICE})
    ages = [{"age": 20 + at % 50, "city": f"city-{at % 7}"} for at in range(people)]
    profile = NewKeyedState("profile", pa.table({"key": names, "value": ages}), value=PROFILE)
    visits = NewKeyedState(
        "visits", pa.table({"key": some, "value": [day * 100 + len(name) for name in some]}),
        value="Long",
    )  # fmt: skip
    friends = NewKeyedState(
        "friends",
        pa.table({"key": names, "user_key": [ALICE] * people, "value": list(range(people))}),
        kind="map", user_key="String", value="Integer",
    )  # fmt: skip
    timers = NewKeyedState.timers(
        "event", pa.table({"key": names, "timestamp": [10_000 + at for at in range(people)]})
    )
    regions = ["east", "north", "south", "west"]
    lists_of = [[f"{region}-1", ALICE, f"{region}-{day}"] for region in regions]
    members = NewKeyedState(
        "members",
        pa.table({"key": regions, "value": lists_of}),
        kind="list", value="String",
    )  # fmt: skip
    lists = {
        name: pa.table({"subtask": [0, 0, 1], "position": [0, 1, 0],
                        "value": [ALICE, "bob", f"day-{day}"]})
        for name in ("pending", "shared")
    }  # fmt: skip
    rules = pa.table({"key": [ALICE, "bob"], "value": ["gold", f"day-{day}"]})
    users = NewOperator("users", "String", (profile, visits, friends, timers), parallelism=2)
    places = NewOperator(
        "places", "String", (members,), parallelism=2,
        operator_states=(
            NewOperatorState("pending", lists["pending"], "split", "String"),
            NewOperatorState("shared", lists["shared"], "union", "String"),
            NewOperatorState("rules", rules, "broadcast", "String", "String"),
        ),
    )  # fmt: skip
    write_snapshot(to, [users, places])
    return to


def forms_of(text: str) -> list[bytes]:
    """How a word may stand in bytes: as it is, in hexadecimal, and in base64."""
    word = text.encode()
    coded = base64.b64encode(word)
    whole = coded[: len(word) // 3 * 4]
    return [word, word.hex().encode(), word.hex().upper().encode(), whole]


def files_with(root: Path, text: str) -> list[str]:
    """The files below a directory that hold a word, by their paths."""
    forms = forms_of(text)
    with duckdb.connect(":memory:") as connection:
        return [
            path.relative_to(root).as_posix()
            for path in sorted(root.rglob("*"))
            if path.is_file() and _holds(connection, path, text, forms)
        ]


def _holds(
    connection: duckdb.DuckDBPyConnection, path: Path, text: str, forms: list[bytes]
) -> bool:
    data = path.read_bytes()
    if any(form in data for form in forms):
        return True
    if data[:4] != b"PAR1":
        return False
    rows = connection.execute("SELECT * FROM read_parquet(?)", [str(path)]).fetchall()
    return any(
        text in cell if isinstance(cell, str) else any(form in cell for form in forms)
        for row in rows
        for cell in _cells(row)
    )


def _cells(value: Any) -> Iterator[str | bytes]:
    if isinstance(value, bytes | bytearray):
        yield bytes(value)
    elif isinstance(value, dict):
        for pair in value.items():
            yield from _cells(pair)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _cells(item)
    else:
        yield str(value)
