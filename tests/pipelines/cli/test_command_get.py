"""`statelake get` and `history`: one key, as `dump` has it, and through a job's snapshots."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statelake import open_snapshot
from statelake.pipelines.keys import key_from_text, rows_of_key
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.recorded_states import recorded_snapshot
from statelake.pipelines.lake.keys import key_history
from statelake.pipelines.lake.tables import key_rows
from statelake.pipelines.shown import plain_rows, state_head
from statelake.state_core.errors import EncodeError
from statelake.state_core.model.key_groups import EncodedKey
from statelake.state_core.serializers.sql.row_data import RowDataSerializerSnapshot
from statelake.state_core.serializers.sql.types.logical_type_parser import parse_logical_type
from tests.support.command import Ran, run
from tests.support.lakes import KINDS, WIDE, WINDOWS, WORDS, edited_savepoint, import_as
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases
from tests.support.savepoints.heap_timers import TIMER_KEYS, heap_timers
from tests.support.savepoints.keyed_types import KEYS, POJO, keyed_savepoint
from tests.support.savepoints.kryo_savepoint import kryo_savepoint

pytestmark = pytest.mark.thinned(2)

SAMPLED = 6
NOTHING, USAGE, BAD_INPUT = 1, 2, 3
IN_LAKES = [KINDS, WINDOWS, WIDE, *(case.snapshot for case in golden_cases("pojo", "queries"))]


def by_key(savepoint: Path) -> dict[str, list[str]]:
    """The keyed rows of a dump, by key as it is dumped."""
    rows = defaultdict(list)
    for line in run("dump", savepoint).lines:
        if "key_group" in line:
            rows[json.dumps(line["key"])].append(json.dumps(line))
    return {key: sorted(lines) for key, lines in rows.items()}


def sampled(keys: Sequence[str], count: int = SAMPLED) -> list[str]:
    """Some keys, always the same."""
    return random.Random(7).sample(sorted(keys), min(count, len(keys)))


def got(savepoint: Path, key: str) -> list[str]:
    """The rows that a savepoint holds for a key."""
    return sorted(
        json.dumps(row)
        for rows in rows_of_key(open_snapshot(savepoint), key)
        for state, batch in rows.batches
        for row in plain_rows(state_head(rows.operator, state), batch, state.layout)
    )


def got_json(ran: Ran) -> list[str]:
    """The rows that the command printed."""
    assert ran.code == 0, ran
    return sorted(map(json.dumps, ran.json))


# --------------------------------------------------------------------- savepoints


@pytest.mark.parametrize("golden", golden_cases(), ids=lambda golden: golden.name)
def test_a_key_has_the_rows_that_are_dumped(golden: GoldenCase) -> None:
    """Of every form and type: all operators, states, timers and namespaces."""
    rows = by_key(golden.snapshot)
    for key in sampled(list(rows)):
        assert got(golden.snapshot, key) == rows[key]


@pytest.mark.parametrize("case", TIMER_KEYS)
def test_timers_of_the_heap(case: str, tmp_path: Path) -> None:
    """They lie beside RocksDB's files, and are the key's all the same."""
    path = heap_timers(case, tmp_path / case)
    rows = by_key(path)
    for key in sampled(list(rows)):
        assert got(path, key) == rows[key]


def test_keys_beside_their_column_are_not_passed_over(tmp_path: Path) -> None:
    """A key that no column holds is null there: smallest and largest say nothing of it."""
    key = key_rows.SearchKey("m", EncodedKey(b"m", 1))
    for keys, may in ((["a", "b"], False), (["a", None], True), (["a", "z"], True)):
        table = pa.table({"key_group": pa.array([1, 1], pa.int32()), "key": keys})
        pq.write_table(table, tmp_path / "keys.parquet")
        groups = pq.ParquetFile(tmp_path / "keys.parquet").metadata.row_group(0)
        assert key_rows._may_hold(groups, key) is may


def test_values_that_nobody_can_read(tmp_path: Path) -> None:
    """They are shown as `dump` shows them."""
    path = kryo_savepoint(tmp_path / "kryo")
    rows = by_key(path)
    for key in sampled(list(rows), 2):
        assert got(path, key) == rows[key]


def test_json_is_what_dump_prints() -> None:
    """One array, with a row a line."""
    rows = by_key(KINDS)
    key = "-820795872871"
    ran = run("get", KINDS, "--key", key, "--json")
    assert got_json(ran) == rows[key]
    assert len(ran.out.splitlines()) == len(rows[key]) + 2
    ran = run("get", KINDS, "--key", key, "--json", "--state", "scores", "--operator", "kinds")
    assert got_json(ran) == [row for row in rows[key] if '"state": "scores"' in row]


def test_a_table_for_people() -> None:
    """Every state of the key, and times as people read them."""
    ran = run("get", KINDS, "--key", "-820795872871")
    assert ran.code == 0
    title, *lines = ran.out.splitlines()
    assert title == "kinds, keyed by Long: -820795872871, key group 1"
    assert lines[0].split() == ["state", "kind", "user", "key", "fires", "value", "last", "access"]
    assert '"name of größe-105"' in ran.out
    assert "2096-10-02 07:06:40.735" in ran.out


@pytest.mark.parametrize("written", ['"word-7"', "word-7"])
def test_text_stands_as_it_is(written: str, tmp_path: Path) -> None:
    """Or as JSON."""
    keyed_savepoint(tmp_path / "s", "String", ["word-7", "7"])
    assert [row["value"] for row in run(
        "get", tmp_path / "s", "--key", written, "--state", "count", "--json"
    ).json] == [0]  # fmt: skip


def test_days_and_bytes_need_no_quotes(tmp_path: Path) -> None:
    """What is text in JSON is text here."""
    keyed_savepoint(tmp_path / "s", *KEYS["days"])
    ran = run("get", tmp_path / "s", "--key", "2026-11-22", "--json")
    assert {row["key"] for row in ran.json} == {"2026-11-22"}


def test_a_hash_that_the_class_alone_knows_is_said(tmp_path: Path) -> None:
    """All key groups are read, and standard error says why; the output is whole."""
    keyed_savepoint(tmp_path / "s", POJO, KEYS["POJOs"][1])
    ran = run("get", tmp_path / "s", "--key", '{"name": "a", "number": 1}', "--json")
    assert len(ran.json) == 3
    assert ran.err.startswith("note: the hash of keys of type")
    assert "all key groups of op are read" in ran.err


def test_a_key_that_is_nowhere() -> None:
    """Exit 1, and a line that says so; JSON is an empty array."""
    ran = run("get", KINDS, "--key", 1)
    assert (ran.code, ran.out) == (NOTHING, "there is no state for key 1\n")
    assert (run("get", KINDS, "--key", 1, "--json").out) == "[]\n"
    assert run("get", KINDS, "--key", 1, "--json").code == NOTHING


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--key", "abc"], BAD_INPUT, "abc is not a key of type Long"),
        (["--key", "abc"], BAD_INPUT, "such as 42"),
        (["--key", "1", "--state", "no"], BAD_INPUT, "no operator has a keyed state 'no'"),
        (["--key", "1", "--operator", "no"], BAD_INPUT, "no operator 'no'"),
        (["--key", "1", "--lake", "l"], USAGE, "either a SAVEPOINT, or --lake and --job"),
        (["--key", "1", "--job", "j"], USAGE, "either a SAVEPOINT, or --lake and --job"),
        (["--key", "1", "--snapshot", "s"], USAGE, "--snapshot names one of a lake"),
        ([], USAGE, "Missing option '--key'"),
    ],
)
def test_what_is_asked_wrongly(words: list[str], code: int, said: str) -> None:
    """Errors name what there is."""
    ran = run("get", KINDS, *words)
    assert ran.code == code
    assert said in ran.err


def test_a_key_of_none_of_several_types() -> None:
    """The error names each type, and how its keys are written."""
    (golden,) = golden_cases("queries")
    ran = run("get", golden.snapshot, "--key", "{")
    assert ran.code == BAD_INPUT
    assert "{ is not a key of any operator; keys are of type" in ran.err
    assert "(such as " in ran.err


# --------------------------------------------------------------------- lakes


@pytest.mark.parametrize("savepoint", IN_LAKES, ids=lambda path: path.parent.name)
@pytest.mark.full
def test_a_lake_holds_what_the_savepoint_held(savepoint: Path, tmp_path: Path) -> None:
    """The same rows, of the newest snapshot and of one that is named."""
    lake = Catalog(tmp_path / "lake")
    import_as(lake, savepoint, "s")
    rows = by_key(savepoint)
    for key in sampled(list(rows)):
        found = [
            json.dumps(row)
            for each in rows_of_key(recorded_snapshot(lake, lake.latest("orders")), key)
            for state, batch in each.batches
            for row in plain_rows(state_head(each.operator, state), batch, state.layout)
        ]
        assert sorted(found) == rows[key]
    words = ("get", "--lake", lake.location, "--job", "orders", "--key", key, "--json")
    assert got_json(run(*words, "--snapshot", "s")) == got_json(run(*words)) == rows[key]


@pytest.mark.parametrize("source", [WORDS, WIDE], ids=["a file a key group", "buckets"])
def test_files_that_can_not_hold_the_key_are_not_read(source: Path, tmp_path: Path) -> None:
    """They may be damaged."""
    lake = Catalog(tmp_path / "lake")
    record = import_as(lake, source, "s")
    row = open_snapshot(source).operator("counter").state("count").to_arrow().to_pylist()[0]
    (operator,) = (each for each in record.operators if each.uid == "counter")
    for table in operator.keyed_tables:
        for unit in table.units:
            if not unit.first <= row["key_group"] <= unit.last:
                Path(lake.location, table.path, unit.path).write_bytes(b"damaged")
    words = ("--lake", lake.location, "--job", "orders", "--key", row["key"], "--state", "count")
    assert run("get", *words, "--json").json[0]["value"] == row["value"]


def test_row_groups_that_can_not_hold_the_key_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their statistics; and values only of the row group that has the key."""
    lake = Catalog(tmp_path / "lake")
    record = import_as(lake, WIDE, "s")
    (operator,) = (each for each in record.operators if each.uid == "counter")
    (table,) = (table for table in operator.keyed_tables if table.path.endswith("count"))
    unit = max(table.units, key=lambda unit: unit.rows)
    path = Path(lake.location, table.path, unit.path)
    rows = pq.read_table(path, partitioning=None)
    pq.write_table(rows, path, row_group_size=1)
    read: list[list[str]] = []
    whole = pq.ParquetFile.read_row_group

    def watched(file: pq.ParquetFile, index: int, columns: list[str]) -> Any:
        read.append(columns)
        return whole(file, index, columns=columns)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", watched)
    key = rows.column("key")[0].as_py()
    (found,) = rows_of_key(recorded_snapshot(lake, record), key, state="count")
    assert [batch.column("key").to_pylist() for _, batch in found.batches] == [[key]]
    keys, values = read
    assert "value" in values
    assert "value" not in keys


def test_what_a_lake_is_asked_wrongly(tmp_path: Path) -> None:
    """Errors name what there is."""
    lake = Catalog(tmp_path / "lake")
    import_as(lake, KINDS, "monday")
    words = ("get", "--lake", lake.location, "--job")
    assert "not a key of type Long" in run(*words, "orders", "--key", "x").err
    assert "it has: orders" in run(*words, "no", "--key", 1).err
    assert "its latest are: monday" in run(*words, "orders", "--key", 1, "--snapshot", "no").err
    assert "it has: " in run(*words, "orders", "--key", 1, "--operator", "no").err
    assert "there are: " in run(*words, "orders", "--key", 1, "--state", "no").err
    assert run(*words, "orders", "--key", 1).code == NOTHING
    assert run(*words, "orders", "--key", 1, "--uid", "x").code == USAGE


# --------------------------------------------------------------------- history


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A job with three snapshots: a key's total changes, and then one of its scores is gone."""
    tmp_path = tmp_path_factory.mktemp("history")
    lake = Catalog(tmp_path / "lake")
    changed = edited_savepoint(
        KINDS, tmp_path / "b", ("kinds/total", "key = -820795872871", {"value": "1"})
    )
    gone = edited_savepoint(changed, tmp_path / "c", ("kinds/scores", "key = -820795872871", {}))
    for snapshot_id, savepoint in (("a", KINDS), ("b", changed), ("c", gone)):
        import_as(lake, savepoint, snapshot_id)
    return lake


@pytest.mark.full
def test_what_changed_when(three: Catalog) -> None:
    """All is added first; then only what changed is told, with both values."""
    words = ("history", "--lake", three.location, "--job", "orders", "--key", "-820795872871")
    first, second, third = run(*words, "--json").json
    assert {change["change"] for change in first["changes"]} == {"added"}
    assert len(first["changes"]) == first["entries"] == 9
    (change,) = second["changes"]
    assert (change["state"], change["change"]) == ("total", "changed")
    assert (change["before"], change["after"]) == ({"value": 11130}, {"value": 1})
    (change,) = third["changes"]
    assert (change["state"], change["change"], change["user_key"]) == ("scores", "gone", "s0")
    assert (change["before"], change["after"], third["entries"]) == ({"value": 35.0}, None, 8)
    ran = run(*words, "--state", "total")
    assert ran.out.splitlines()[0] == "-820795872871 in 3 snapshots"
    assert "11130 → 1" in ran.out


@pytest.mark.full
def test_the_history_ends_with_what_each_snapshot_holds(three: Catalog) -> None:
    """As many entries as `get` finds, in every snapshot."""
    for key in ("-820795872871", "-94496947966233"):
        for snapshot in key_history.key_history(three, "orders", key).snapshots:
            held = rows_of_key(
                recorded_snapshot(three, three.snapshot("orders", snapshot.snapshot_id)), key
            )
            assert snapshot.entries == sum(len(rows) for each in held for _, rows in each.batches)


def test_no_file_is_read_twice(three: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots share the files of what did not change."""
    opened: list[tuple[str, str]] = []
    whole = key_rows.open_data_file

    def watched(lake: str, path: str, unit: Any) -> Any:
        opened.append((path, unit.path))
        return whole(lake, path, unit)

    monkeypatch.setattr(key_rows, "open_data_file", watched)
    history = key_history.key_history(three, "orders", "-820795872871")
    assert len(opened) == len(set(opened)) == history.files_read
    tables = {path for path, _ in opened}
    assert len(tables) < len(opened) <= len(tables) + 2


def test_a_key_without_a_history(three: Catalog) -> None:
    """Exit 1 where no snapshot holds anything; errors as of `get`."""
    words = ("history", "--lake", three.location, "--job")
    ran = run(*words, "orders", "--key", 1)
    assert (ran.code, ran.out) == (NOTHING, "no snapshot holds anything for key 1\n")
    assert run(*words, "orders", "--key", "x").code == BAD_INPUT
    assert run(*words, "orders", "--key", 1, "--state", "no").code == BAD_INPUT
    assert run(*words, "no", "--key", 1).code == BAD_INPUT


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 2", "it is not JSON"),
        ("1.5", "it would be written 1"),
        ("{}", "it has no field 'f0'"),
        ("true", "Expected integer, got bool"),
    ],
)
def test_a_key_of_another_shape_is_told_in_words(text: str, said: str) -> None:
    """Of a row key its fields are named, and nothing of Python's."""
    (case, *_) = golden_cases("sql", form="canonical")
    ran = run("get", case.snapshot, "--key", text)
    assert (ran.code, ran.out) == (3, "")
    assert f"is not a key of type RowData<BIGINT> ({said})" in ran.err
    assert 'such as {"f0": 42} or 42' in ran.err


@pytest.mark.parametrize(
    ("text", "type_", "key"),
    [
        ("12.5", "DECIMAL(10, 2)", Decimal("12.50")),
        ("12.505", "DECIMAL(10, 2)", None),
        ("1e999999999", "DECIMAL(10, 2)", None),
        ("NaN", "DECIMAL(10, 2)", None),
        ("2026-11-27 13:05:00", "TIMESTAMP(3)", datetime(2026, 11, 27, 13, 5)),  # noqa: DTZ001
        ("2026-11-27T13:05:00", "TIMESTAMP(3)", datetime(2026, 11, 27, 13, 5)),  # noqa: DTZ001
        ("2026-11-27", "DATE", date(2026, 11, 27)),
        ("berlin", "VARCHAR(9)", "berlin"),
        ('"berlin"', "VARCHAR(9)", "berlin"),
        ("null", "VARCHAR(9)", "null"),
        ("null", "INT", ...),
        ("true", "BOOLEAN", True),
        ("[1]", "ARRAY<INT>", [1]),
    ],
)
def test_a_key_is_written_as_in_sql(text: str, type_: str, key: object) -> None:
    """Of the only column of a row: its value, of its type; nothing is rounded."""
    row = RowDataSerializerSnapshot.of(parse_logical_type(type_)).restore_serializer()
    if key is None:
        with pytest.raises(EncodeError, match="such as"):
            key_from_text(text, row)
    else:
        assert key_from_text(text, row) == {"f0": None if key is ... else key}


def test_the_value_of_a_rows_only_column_is_a_key() -> None:
    """As the query has it, in the place of the whole row, which is a key as well."""
    (case, *_) = golden_cases("sql", form="canonical")
    keys = {row["key"]["f0"] for row in run("dump", case.snapshot).lines if "key_group" in row}
    for key in keys:
        whole = run("get", case.snapshot, "--key", json.dumps({"f0": key}), "--json").json
        assert whole
        assert run("get", case.snapshot, "--key", key, "--json").json == whole
