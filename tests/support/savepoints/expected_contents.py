"""What a snapshot of a golden job holds, in the shape of its `expected.jsonl`.

Flink prints what it sees after restoring: a line for each key with all its states, a line for
each timer that fires, a line for each window's result. We have tables, one a state, wherever they
come from (a snapshot that was opened, a lake, an export that was read again). `contents_of` puts
such tables together into the same lines, doing to accumulators and windows what the job's own
functions do (`tests/integration/flink/java/Jobs.java`):

===========  ==================================================================================
`wordcount`  a key's count
`kinds`      a key's states: the average instead of its accumulator, empty lists and maps where
             there is no entry; and event-time timers, which a final watermark fires
`windows`    the sum of each window: kept as such by `tumbling`, its elements by `sliding`
`pojo`       a customer with all its fields, and the addresses that it had before
`chain`      a key's count, log, notes and when a timer is due; and the timers
`churn`      a key's last value and log. Flink, asked for a key whose entries are all deleted,
             prints a line without anything (as it does for `chain`); there is nothing in state
             to make that line of
===========  ==================================================================================

So a test says `assert_contents(golden, tables_of(open_golden(golden)))`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from statelake import open_snapshot
from statelake.state_core.formats.reader import Snapshot
from tests.support.savepoints.golden_cases import GoldenCase

__all__ = [
    "FAR",
    "UIDS",
    "assert_contents",
    "contents_of",
    "held_lines",
    "open_golden",
    "same_lines",
    "tables_of",
]

Line: TypeAlias = "dict[str, Any]"
Tables: TypeAlias = "Mapping[tuple[str, str], pa.Table]"

UIDS = {
    "wordcount": ("counter",),
    "kinds": ("kinds",),
    "windows": ("tumbling", "sliding"),
    "pojo": ("customers",),
    "churn": ("churn",),
    "chain": ("chain",),
}
FAR = 4_000_000_000_000  # when the timers of `kinds` are about to fire
EVENT_TIMERS = "_timer_state/event_user-timers"
WINDOW_CONTENTS = "window-contents"


def open_golden(golden: GoldenCase) -> Snapshot:
    """The case's snapshot; operators have their uids, which Flink 1 keeps as hashes only."""
    return open_snapshot(golden.snapshot, uids=UIDS.get(golden.facts["case"], ()))


def tables_of(snapshot: Snapshot) -> dict[tuple[str, str], pa.Table]:
    """Every keyed state's rows, by operator uid and state name."""
    return {
        (operator.label, state.name): state.to_arrow()
        for operator in snapshot.operators
        for state in operator.keyed_states
    }


def contents_of(case: str, tables: Tables) -> list[Line]:
    """What the tables of a job say, a line for each that Flink prints, in no order.

    Args:
        case: Which job: a key of `UIDS`.
        tables: Rows by operator uid and state name. Columns beyond those of the state's schema
            do no harm.
    """
    return list(_JOBS[case](tables))


def same_lines(found: Iterable[Any], expected: Iterable[Any]) -> None:
    """Assert that both are the same lines, in whatever order, and each as often."""
    assert sorted(map(_text, found)) == sorted(map(_text, expected))


def assert_contents(golden: GoldenCase, tables: Tables, name: str = "expected.jsonl") -> None:
    """Assert that the tables hold exactly what Flink sees in the golden snapshot."""
    case = golden.facts["case"]
    expected = golden.expected(name)
    same_lines(contents_of(case, tables), held_lines(expected) if case == "churn" else expected)


def held_lines(lines: Iterable[Line]) -> list[Line]:
    """The lines that say more than a key."""
    return [
        line
        for line in lines
        if any(value not in (None, {}, []) for name, value in line.items() if name != "key")
    ]


def _text(line: Any) -> str:
    """A line as text that is the same only for the same values: 1 and 1.0 differ."""
    return json.dumps(line, sort_keys=True, ensure_ascii=False)


def _wordcount(tables: Tables) -> Iterator[Line]:
    for row in _rows(tables, "counter", "count"):
        yield {"key": row["key"], "count": row["value"]}


def _kinds(tables: Tables) -> Iterator[Line]:
    names = ("name", "total", "avg", "triple", "row", "session")
    single = {name: _values(tables, "kinds", name) for name in names}
    items = _values(tables, "kinds", "items")
    scores = _maps(tables, "kinds", "scores")
    keys = set(items) | set(scores)
    for values in single.values():
        keys |= set(values)
    for key in keys:
        line: Line = {name: values.get(key) for name, values in single.items()}
        if line["avg"] is not None:
            line["avg"] = line["avg"]["f0"] / line["avg"]["f1"]
        for name in ("triple", "row"):
            if line[name] is not None:
                line[name] = list(line[name].values())
        yield {"key": key, "items": items.get(key, []), "scores": scores.get(key, {}), **line}
    for row in _rows(tables, "kinds", EVENT_TIMERS):
        yield {"key": row["key"], "timer": "EVENT_TIME", "ts": row["timestamp"]}


def _windows(tables: Tables) -> Iterator[Line]:
    for uid in UIDS["windows"]:
        for row in _rows(tables, uid, WINDOW_CONTENTS):
            held = row["value"]
            total = sum(held) if isinstance(held, list) else held
            yield {"key": row["key"], **row["namespace"], "sum": total}


def _pojo(tables: Tables) -> Iterator[Line]:
    past = _values(tables, "customers", "past")
    for row in _rows(tables, "customers", "customer"):
        customer = {**row["value"], "scores": dict(row["value"]["scores"])}
        yield {"key": row["key"], "customer": customer, "past": past.get(row["key"], [])}


def _churn(tables: Tables) -> Iterator[Line]:
    last, logs = _values(tables, "churn", "last"), _maps(tables, "churn", "log")
    for key in set(last) | set(logs):
        log = {str(number): text for number, text in logs.get(key, {}).items()}
        yield {"key": key, "last": last.get(key), "log": log}


def _chain(tables: Tables) -> Iterator[Line]:
    single = {name: _values(tables, "chain", name) for name in ("count", "due", "log")}
    notes = _maps(tables, "chain", "notes")
    for key in set(notes).union(*single.values()):
        noted = {str(number): text for number, text in notes.get(key, {}).items()}
        line = {name: values.get(key) for name, values in single.items()}
        yield {"key": key, "notes": noted, **line, "log": line["log"] or []}
    for row in _rows(tables, "chain", EVENT_TIMERS):
        yield {"key": row["key"], "timer": row["timestamp"]}


_JOBS: dict[str, Callable[[Tables], Iterator[Line]]] = {
    "wordcount": _wordcount,
    "kinds": _kinds,
    "windows": _windows,
    "pojo": _pojo,
    "churn": _churn,
    "chain": _chain,
}


def _rows(tables: Tables, uid: str, state: str) -> list[Line]:
    rows: list[Line] = tables[uid, state].to_pylist()
    return rows


def _values(tables: Tables, uid: str, state: str) -> dict[Any, Any]:
    """Each key's value; no key may have two."""
    rows = _rows(tables, uid, state)
    found = {row["key"]: row["value"] for row in rows}
    assert len(found) == len(rows), f"a key twice in state {state}"
    return found


def _maps(tables: Tables, uid: str, state: str) -> dict[Any, dict[Any, Any]]:
    """Each key's map, which the table has an entry a row; no user key may be there twice."""
    found: dict[Any, dict[Any, Any]] = {}
    for row in _rows(tables, uid, state):
        entries = found.setdefault(row["key"], {})
        assert row["user_key"] not in entries, f"a user key twice in state {state}"
        entries[row["user_key"]] = row["value"]
    return found
