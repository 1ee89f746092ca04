"""Values at the edge of what a column holds: every command says all of them, or that it can't.

The savepoints of `golden/edge` have the same 40 keys, of whose number modulo 5 the values follow.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import statelake as sl
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.query.session import Session
from statelake.pipelines.lake.query.table_names import TableNames
from tests.support.command import run
from tests.support.lakes import golden, import_golden
from tests.support.savepoints.golden_cases import GOLDEN

FIRST, SECOND = (GOLDEN / "edge" / f"values-{number}" for number in (1, 2))
# what the job put in, by the number of the key modulo 5
VALUES: dict[str, list[Any]] = {
    "big": [str(-(2 ** (3000 + number))) for number in range(5)],
    "dec": [
        "12345678901234567890123456789012345678901234567890123456789.123456789", "1E+40", "1.00",
        "1.0", "-1E-51",
    ],
    "ins": [
        "2023-11-14T22:13:20.123456789+00:00", "+1000000000-12-31T23:59:59.999999999+00:00",
        "-1000000000-01-01T00:00:00+00:00", "1969-12-31T23:59:59.999999999+00:00",
        "+10000-01-01T00:00:00.000000001+00:00",
    ],
    "str": ["a\ud800b", "\udc00", "nul\0in", "", "plain"],
    "dbl": ["nan", "nan", -0.0, "-inf", 5e-324],
    "ldt": [
        "-999999999-01-01T00:00:00", "+999999999-12-31T23:59:59.999999999",
        "2026-01-01T00:00:00.000000001", "0001-01-01T00:00:00", "1582-10-10T00:00:00",
    ],
    "ld": ["-999999999-01-01", "+999999999-12-31", "0000-01-01", "-0044-03-15", "2026-02-28"],
    "lt": ["23:59:59.999999999", "00:00", "01:02:03.000000004", "12:00", "23:59:59.999999999"],
    "ts": ["2023-11-14T22:13:20.123456789+00:00"] * 5,
    "date": [
        "+292278994-08-17T07:12:55.807000+00:00", "-292275055-05-16T16:47:04.193000+00:00",
        "1970-01-01T00:00:00+00:00", "1969-12-31T23:59:59.999000+00:00",
        "2023-11-14T22:13:20.123000+00:00",
    ],
}  # fmt: skip
INEXACT = {"big": 40, "ins": 40, "str": 16, "ldt": 24, "ld": 32, "ts": 40, "date": 16}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Both as snapshots of job `edge`; nobody changes it."""
    made = Catalog(tmp_path_factory.mktemp("edge") / "lake")
    return import_golden(made, ("first", FIRST), ("second", SECOND), job="edge").location


def expected(line: dict[str, Any]) -> Any:
    """What the job put into a value state for a key."""
    return VALUES[line["state"]][int(line["key"][1:]) % 5]


def test_dump_prints_what_was_put_in() -> None:
    """Every digit, nanosecond, year and half of a character; no null stands for a value."""
    lines = run("dump", FIRST).lines
    held = [line for line in lines if line["state"] in VALUES]
    assert len(held) == 40 * len(VALUES)
    assert [repr(line["value"]) for line in held] == [repr(expected(line)) for line in held]
    assert not any(name.startswith("raw_") for line in lines for name in line)


def test_get_and_find_print_the_same(lake: str) -> None:
    """Of a savepoint and of a lake."""
    in_lake = ("--lake", lake, "--job", "edge", "--snapshot", "first")
    for source in ((FIRST,), in_lake):
        lines = run("get", *source, "--key", "k6", "--json").json
        held = {line["state"]: line["value"] for line in lines if line["state"] in VALUES}
        assert repr(held) == repr({state: VALUES[state][1] for state in held})
        assert len(held) == len(VALUES)
        hits = run("find", "k6", *source, "--json").json["hits"]
        found = {hit["state"]: hit["row"]["value"] for hit in hits if hit["state"] in VALUES}
        assert repr({state: found[state] for state in held}) == repr(held)
        assert VALUES["ins"][1] in run("get", *source, "--key", "k6").out
        assert VALUES["ins"][1] in run("find", "k6", *source, "--state", "ins").out


def test_a_key_that_no_column_holds_is_found_as_it_is_printed(tmp_path: Path) -> None:
    """By the text of `top` and `find`, in a savepoint and a lake; another nanosecond is not it."""
    seconds, namespace = (1_700_000_000).to_bytes(8, "big"), b"\0"
    raw = [seconds + nanos.to_bytes(4, "big") + namespace for nanos in (123_456_789, 123_456_788)]
    at = datetime(2023, 11, 14, 22, 13, 20, 123_456, timezone.utc)
    rows = pa.table({"key": [at, at], "value": [1, 2], "raw_key": raw})
    state = sl.NewKeyedState("s", rows, value="Long")
    other = sl.NewKeyedState("t", pa.table({"key": ["a"], "value": [3]}), value="Long")
    operators = [sl.NewOperator("op", "Instant", (state,)), sl.NewOperator("b", "String", (other,))]
    sl.write_snapshot(tmp_path / "sp", operators)
    job = sl.Lake(str(tmp_path / "lake")).job("j")
    job.import_snapshot(str(tmp_path / "sp"), "one", uids=["op", "b"])
    in_lake = ("--lake", tmp_path / "lake", "--job", "j", "--snapshot", "one")
    for source in ((tmp_path / "sp", "--uid", "op", "--uid", "b"), in_lake):
        heaviest = run("top", *source, "--json").json["operators"][0]["states"][0]["heaviest"]
        assert [each["key"] for each in heaviest] == [
            "2023-11-14T22:13:20.123456789+00:00", "2023-11-14T22:13:20.123456788+00:00",
        ]  # fmt: skip
        for value, each in enumerate(heaviest, 1):
            for text in (each["key"], json.dumps(each["key"])):
                got = run("get", *source, "--key", text, "--json")
                held = [(row["key"], row["value"]) for row in got.json]
                assert (got.code, held) == (0, [(each["key"], value)])
        none = "2023-11-14T22:13:20.123456787+00:00"
        assert run("get", *source, "--key", none).code == 1
        refused = run("get", *source, "--key", none, "--operator", "op")
        assert (refused.code, f"{none} is not a key of type Instant" in refused.err) == (3, True)


def test_what_differs_looks_different(lake: str) -> None:
    """A bit of 3,000, a nanosecond, half of a character: before is not after."""
    in_lake = ("first", "second", "--lake", lake, "--job", "edge")
    for named in ((FIRST, SECOND), in_lake):
        states = run("diff", *named, "--examples", 100, "--json").json
        changed = {each["state"]: each["changed"] for each in states if each["status"] != "same"}
        assert changed == {"big": 40, "ins": 16, "str": 16}
        for each in states:
            assert len(each["examples"]) == each["changed"]
            for example in each["examples"]:
                row = example["before"] | {"state": each["state"]}
                assert example["before"]["value"] == expected(row)
                assert example["before"]["value"] != example["after"]["value"]
                assert "raw_value" not in example["before"]
    nanos = run("diff", *in_lake).out
    assert "20.123456789" in nanos
    assert "20.123456788" in nanos


def test_history_says_what_changed(lake: str) -> None:
    """Also what its column does not."""
    snapshots = run("history", "--lake", lake, "--job", "edge", "--key", "k5", "--json").json
    changed = {
        change["state"]: (change["before"]["value"], change["after"]["value"])
        for change in snapshots[1]["changes"]
    }
    assert changed["str"] == ("a\ud800b", "a\ud801b")
    assert changed["ins"] == (VALUES["ins"][0], VALUES["ins"][0].replace("789+", "788+"))
    assert changed.keys() == {"big", "ins", "str"}


@pytest.mark.full
def test_sql_says_which_rows_are_exact(lake: str) -> None:
    """By a column for the queries that name it; no other query has a column more."""
    sql = ("sql", "--lake", lake, "--job", "edge", "--limit", 100, "--json")
    for state in VALUES:
        (row,) = run(*sql, f"SELECT count(*) AS n FROM edge.{state} WHERE NOT is_exact").lines
        assert row["n"] == INEXACT.get(state, 0), state
    (row, *_) = run(*sql, "SELECT e.key, e.value, e.Is_Exact FROM edge.big AS e").lines
    assert row["value"] is None
    assert row["is_exact"] is False
    plain = run(*sql, "SELECT * FROM edge.big -- is_exact").lines
    assert "is_exact" not in plain[0]
    assert run(*sql, "SELECT 'is_exact' AS said FROM edge.big LIMIT 1").lines == [
        {"said": "is_exact"}
    ]
    every = 'SELECT snapshot, bool_or(is_exact) AS any FROM edge."str@all" GROUP BY 1 ORDER BY 1'
    assert run(*sql, every).lines == [
        {"snapshot": "first", "any": True}, {"snapshot": "second", "any": True}
    ]  # fmt: skip
    assert "is_exact" not in run(*sql, "SELECT * FROM edge.timers").out
    assert run(*sql, "SELECT is_exact FROM edge.timers").out == ""


def test_a_session_has_the_column_for_the_queries_that_name_it(lake: str) -> None:
    """In any order, of the same table."""
    opened = Catalog(lake)
    with Session(opened, TableNames(opened, job="edge")) as session:
        for _ in range(2):
            names = session.query("SELECT * FROM edge.big").schema.names
            assert "is_exact" not in names
            answer = session.query('SELECT *, b."is_exact" AS held FROM edge.big b')
            assert answer.schema.names == [*names, "is_exact", "held"]
            assert sum(len(batch) for batch in answer.batches) == 40


def in_iso(flinks: str) -> str:
    """Java's text of a time as ours: seconds, six digits or nine, `+00:00`."""
    moment, zone = (flinks[:-1], "+00:00") if flinks.endswith("Z") else (flinks, "")
    date, _, clock = moment.replace(" ", "T").partition("T")
    clock, _, digits = (f"{clock}:00" if clock.count(":") == 1 else clock).partition(".")
    nanos = digits.ljust(9, "0")
    more = "" if not int(nanos) else f".{nanos[:6] if nanos.endswith('000') else nanos}"
    return f"{date}T{clock}{more}{zone}"


def test_times_are_those_that_flink_prints() -> None:
    """Of a job whose times have nanoseconds: the same as `toString` of Java, to the last digit."""
    case = golden("types-hashmap-canonical-p2-m128-flink2.3.0")
    for state, zone in (("instant", ""), ("localdatetime", ""), ("timestamp", "Z")):
        said = {line["key"]: line[state] for line in case.expected()}
        lines = run("dump", case.snapshot, "--state", state).lines
        found = {line["key"]: line["value"] for line in lines}
        assert any("000000" in value for value in found.values() if value)
        assert found == {
            key: in_iso(f"{value}{zone}") for key, value in said.items() if value is not None
        }
