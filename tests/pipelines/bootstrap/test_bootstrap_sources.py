"""What a bootstrap reads, and what it says of rows that do not fit."""

from __future__ import annotations

import gzip
import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import write_deltalake

from statelake import NewKeyedState, NewOperator, open_snapshot, write_snapshot
from statelake.pipelines.bootstrap.bootstrapping import bootstrap
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.requests.imports import Import
from statelake.state_core.errors import ConflictError, EncodeError, StateError
from tests.support.lakes import WORDS, entries, import_as

pytestmark = pytest.mark.thinned(2)

ROWS = [
    {"id": number, "name": f'größe, "{number}"\n', "at": 1_700_000_000_123 + number}
    for number in range(1000)
]  # fmt: skip


def spec(source: Any, key: str = "Long", value: Any = "String", **said: Any) -> dict[str, Any]:
    """One operator with one state."""
    state = {"type": value, "source": source, "key": "id", "value": "name"} | said
    return {"operators": {"op": {"key_type": key, "states": {"s": state}}}}


def read(savepoint: Path, columns: tuple[str, ...] = ("key", "value")) -> list[dict[str, Any]]:
    """The state's rows, by key."""
    table = open_snapshot(savepoint, uids=["op"]).operator("op").state("s").to_arrow()
    return sorted(table.select(columns).to_pylist(), key=lambda row: str(row["key"]))


def write(form: str, to: Path) -> Path:
    """The rows, in a form that tables have."""
    table = pa.Table.from_pylist(ROWS)
    if form == "parquet":
        pyarrow.parquet.write_table(table, to / "rows.parquet", row_group_size=300)
        return to / "rows.parquet"
    if form == "directory":
        pyarrow.parquet.write_to_dataset(table, to / "rows")
        return to / "rows"
    if form == "delta":
        write_deltalake(to / "rows", table)
        return to / "rows"
    if form == "jsonl":
        path = to / "rows.jsonl"
        path.write_text("\n".join(json.dumps(row) for row in ROWS))
        return path
    text = "id,name,at\n" + "".join(
        f'{row["id"]},"{str(row["name"]).replace(chr(34), chr(34) * 2)}",{row["at"]}\n'
        for row in ROWS
    )
    if form == "csv.gz":
        path = to / "rows.csv.gz"
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path = to / "rows.csv"
        path.write_text(text)
    return path


@pytest.mark.parametrize("form", ["parquet", "directory", "delta", "jsonl", "csv", "csv.gz"])
def test_every_form_gives_the_same_savepoint(form: str, tmp_path: Path) -> None:
    """Byte for byte the entries that an Arrow table gives."""
    for name, source in {
        "found": str(write(form, tmp_path)),
        "wanted": pa.Table.from_pylist(ROWS),
    }.items():
        made = spec(source, value="Tuple2<String, Integer>", ttl="at")
        made["operators"]["op"]["states"]["s"]["value"] = {"f0": "name", "f1": "id"}
        bootstrap(None, made, tmp_path / name, parallelism=3, engine="local")
    assert entries(tmp_path / "found") == entries(tmp_path / "wanted")
    shown = read(tmp_path / "found", ("key", "value", "ttl"))
    assert shown[0] == {
        "key": 0, "value": {"f0": ROWS[0]["name"], "f1": 0}, "ttl": ROWS[0]["at"],
    }  # fmt: skip
    assert len(shown) == len(ROWS)


def test_csv_says_nothing_of_types(tmp_path: Path) -> None:
    """Text becomes what the state's type says; what is empty and not in quotes is null."""
    path = tmp_path / "a.csv"
    path.write_text(
        'id,flag,half,day,moment,empty,none\n007,true,1.5,2026-02-03,2026-02-03T04:05:06Z,"",\n'
    )
    types = {"flag": "boolean", "half": "double", "moment": "Instant", "empty": "String",
             "none": "Integer"}  # fmt: skip
    said = spec(str(path), key="String", value={"pojo": "P", "fields": types})
    said["operators"]["op"]["states"]["s"]["value"] = {name: name for name in types}
    bootstrap(None, said, tmp_path / "sp", engine="local")
    (row,) = read(tmp_path / "sp")
    moment = row["value"].pop("moment")
    assert row == {
        "key": "007", "value": {"flag": True, "half": 1.5, "empty": "", "none": None},
    }  # fmt: skip
    assert str(moment).startswith("2026-02-03 04:05:06") or moment["seconds"] == 1770091506


def test_a_state_of_a_lake_is_a_source(tmp_path: Path) -> None:
    """The version that the snapshot has, whatever came later."""
    lake = Catalog(tmp_path / "lake")
    import_as(lake, WORDS, "monday")
    operator = open_snapshot(WORDS).operator("counter")
    source = {
        "lake": str(tmp_path / "lake"), "job": "orders", "snapshot": "monday",
        "state": "counter/count",
    }  # fmt: skip
    said = spec(source, key="String", value="Long")
    said["operators"]["op"]["states"]["s"] |= {"key": "key", "value": "value"}
    bootstrap(None, said, tmp_path / "sp", max_parallelism=128, engine="local")
    wanted = operator.state("count").to_arrow().select(["key", "value"]).to_pylist()
    assert read(tmp_path / "sp") == sorted(wanted, key=lambda row: str(row["key"]))
    source["state"] = "nope/count"
    with pytest.raises(StateError, match=r"has no state nope/count.*/count"):
        bootstrap(None, said, tmp_path / "other", engine="local")


def test_states_of_a_lake_are_listed_as_the_snapshot_has_them(tmp_path: Path) -> None:
    """Where the one that is wanted is not there."""
    rows = pa.table({"key": [1], "value": ["a"]})
    states = tuple(NewKeyedState(name, rows, value="String") for name in ("first", "second"))
    write_snapshot(tmp_path / "source", [NewOperator("op", "Long", states)])
    lake = Catalog(tmp_path / "lake")
    import_snapshot(lake, str(tmp_path / "source"), "j", Import(uids=["op"]), snapshot_id="one")
    source = {"lake": lake.location, "job": "j", "snapshot": "one", "state": "op/third"}
    with pytest.raises(StateError, match=r"no state op/third; it has: op/first, op/second, "):
        bootstrap(None, spec(source), tmp_path / "other", engine="local")


def test_rows_of_a_lake_that_only_exact_bytes_hold_are_refused(tmp_path: Path) -> None:
    """Half a surrogate pair is in no column of text: it would be lost."""
    half = bytes([2, 0x80, 0xB0, 0x03])
    rows = pa.table({"key": [1, 2], "value": ["a", "\ufffd"], "raw_value": [None, half]})
    state = NewKeyedState("s", rows, value="String")
    write_snapshot(tmp_path / "source", [NewOperator("op", "Long", (state,))])
    import_snapshot(
        Catalog(tmp_path / "lake"), str(tmp_path / "source"), "j", Import(uids=["op"]),
        snapshot_id="one",
)  # fmt: skip
    source = {"lake": "lake", "job": "j", "snapshot": "one", "state": "op/s"}
    made = spec(source | {"lake": str(tmp_path / "lake")})
    made["operators"]["op"]["states"]["s"] |= {"key": "key", "value": "value"}
    with pytest.raises(EncodeError, match="1 row has a value that the column does not hold"):
        bootstrap(None, made, tmp_path / "sp", engine="local")


def test_it_becomes_a_snapshot_of_a_lake_under_its_uids(tmp_path: Path) -> None:
    """One that is there already is refused before anything is written."""
    lake = Catalog(tmp_path / "lake")
    said = spec(pa.Table.from_pylist(ROWS))
    where = {"lake": lake, "job": "shop", "snapshot_id": "first"}
    done = bootstrap(None, said, tmp_path / "sp", **where, engine="local")
    assert done.record is not None
    assert [operator.uid for operator in done.record.operators] == ["op"]
    assert done.record.entries == len(ROWS)
    with pytest.raises(ConflictError, match="has a snapshot first"):
        bootstrap(None, said, tmp_path / "again", **where, engine="local")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("value", "row", "said"),
    [
        ("Integer", {"value": 3_000_000_000}, "column `value`: 3000000000 does not fit"),
        ("Byte", {"value": -129}, "column `value`: -129 does not fit: Integer value -129 not in"),
        ("Long", {"value": None}, "column `value`: there is no value"),
        ("Long", {"key": None}, "column `key`: there is no key"),
    ],
)
@pytest.mark.parametrize("form", ["table", "parquet", "jsonl"])
def test_a_row_that_does_not_fit_is_named(
    form: str, value: str, row: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """The row from 1, its key and the column; and no savepoint is left."""
    rows = [{"key": number, "value": 5} for number in range(500)]
    rows[321] |= row
    source: Any = pa.Table.from_pylist(rows)
    if form == "parquet":
        source = str(tmp_path / "a.parquet")
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), source, row_group_size=100)
    if form == "jsonl":
        source = str(tmp_path / "a.jsonl")
        Path(source).write_text("\n".join(json.dumps(content) for content in rows))
    made = spec(source, value=value)
    made["operators"]["op"]["states"]["s"] |= {"key": "key", "value": "value"}
    with pytest.raises(EncodeError) as raised:
        bootstrap(None, made, tmp_path / "sp", engine="local")
    message = str(raised.value)
    assert said in message
    assert "operator op, state 's'" in message
    assert "row 322" in message
    assert not (tmp_path / "sp").exists()


def test_a_column_of_another_kind_is_named(tmp_path: Path) -> None:
    """A number is no text; in JSON it is the line that is named."""
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": 7}]
    with pytest.raises(EncodeError, match="column `id`: a column of int64; it is to be string"):
        bootstrap(None, spec(pa.table({"id": [1], "name": ["a"]}), key="String"), tmp_path / "sp")
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    with pytest.raises(EncodeError, match=r"state 's', .*a.jsonl, line 2: .*string to number"):
        bootstrap(None, spec(str(path)), tmp_path / "sp", engine="local")


def test_what_only_the_serializer_refuses_is_named_as_well(tmp_path: Path) -> None:
    """An enum's constant that there is not, far behind in a batch."""
    rows = [{"id": number, "name": "A"} for number in range(5000)]
    rows[4321]["name"] = "C"
    made = spec(pa.Table.from_pylist(rows), value={"enum": "E", "constants": ["A", "B"]})
    with pytest.raises(EncodeError, match=r"state 's', row 4322, key 4321: 'C' is no constant"):
        bootstrap(None, made, tmp_path / "sp", engine="local")


@pytest.mark.parametrize("kind", ["value", "reducing", "aggregating", "list"])
def test_a_key_twice_is_named(kind: str, tmp_path: Path) -> None:
    """However far apart the two rows are."""
    rows = [{"id": number % 999, "name": "x"} for number in range(1000)]
    if kind == "list":
        rows = [row | {"name": ["x"]} for row in rows]
    made = spec(pa.Table.from_pylist(rows), kind=kind)
    with pytest.raises(EncodeError, match=r"state 's': key 0 is there more than once"):
        bootstrap(None, made, tmp_path / "sp", engine="local")
    assert not (tmp_path / "sp").exists()


def test_an_entry_of_a_map_twice_is_named(tmp_path: Path) -> None:
    """A key may have many entries, and each but once."""
    rows = [{"id": 1, "item": f"i{number % 9}", "name": "x"} for number in range(10)]
    made = spec(pa.Table.from_pylist(rows), kind="map", user_key_type="String", user_key="item")
    with pytest.raises(EncodeError, match="key 1, user key 'i0' is there more than once"):
        bootstrap(None, made, tmp_path / "sp", engine="local")


def test_time_to_live_of_a_list_is_that_of_its_elements(tmp_path: Path) -> None:
    """One time a row, or one an element; instants and text are times as well."""
    at = datetime(2026, 11, 20, 6, 0, 0, 5000, tzinfo=timezone.utc)
    rows = [{"id": 1, "name": ["a", "b"], "at": at}, {"id": 2, "name": ["c"], "at": at}]
    made = spec(pa.Table.from_pylist(rows), kind="list", ttl="at")
    bootstrap(None, made, tmp_path / "sp", engine="local")
    millis = int(at.timestamp() * 1000)
    assert [row["ttl"] for row in read(tmp_path / "sp", ("key", "ttl"))] == [
        [millis, millis], [millis],
    ]  # fmt: skip
    made["operators"]["op"]["states"]["s"]["ttl"] = {"constant": "2026-11-20T06:00:00.005Z"}
    bootstrap(None, made, tmp_path / "constant", engine="local")
    assert entries(tmp_path / "constant") == entries(tmp_path / "sp")


def test_a_stream_is_read_by_one_state_only(tmp_path: Path) -> None:
    """A second state would find it empty."""
    stream = pa.Table.from_pylist(ROWS).to_reader()
    made = spec(stream)
    made["operators"]["op"]["states"]["t"] = dict(made["operators"]["op"]["states"]["s"])
    with pytest.raises(EncodeError, match=r"state 't'.*another state reads"):
        bootstrap(None, made, tmp_path / "sp", engine="local")


def test_sources_by_name(tmp_path: Path) -> None:
    """What the spec calls a source may be handed over as a table."""
    made = spec("people")
    bootstrap(None, made, tmp_path / "sp", sources={"people": pa.Table.from_pylist(ROWS)})
    assert len(read(tmp_path / "sp")) == len(ROWS)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("none.csv", "no such file"),
        ({"path": "none", "forat": "csv"}, "legal: path, format, delimiter, version"),
        ({"lake": "l", "job": "j"}, "without `snapshot`"),
        ({}, "an empty source"),
        ({"sql": "SELECT 1"}, "needs Spark"),
        (7, "rows that are a int"),
    ],
)
def test_a_source_that_is_none(source: Any, said: str, tmp_path: Path) -> None:
    """It says of which state, and what would do."""
    with pytest.raises(StateError) as raised:
        bootstrap(None, spec(source), tmp_path / "sp", engine="local")
    assert said in str(raised.value)
    assert "state 's'" in str(raised.value)


def test_a_csv_with_other_delimiters(tmp_path: Path) -> None:
    """As `delimiter` says; a file whose name tells nothing needs its `format`."""
    path = tmp_path / "people"
    path.write_text("id;name\n1;a,b\n")
    source = {"path": str(path), "delimiter": ";"}
    with pytest.raises(EncodeError, match="one of parquet, delta, csv, json"):
        bootstrap(None, spec(source), tmp_path / "sp", engine="local")
    bootstrap(None, spec(source | {"format": "csv"}), tmp_path / "sp", engine="local")
    assert read(tmp_path / "sp") == [{"key": 1, "value": "a,b"}]


@pytest.mark.parametrize(
    ("value", "said", "problem"),
    [
        ("Tuple2<Long, Long>", {"f0": "id"}, "field 'f1' is not given"),
        ("Tuple2<Long, Long>", {"f0": "id", "f1": "id", "f2": "id"}, "no field 'f2' in the type"),
        ("Long", {"f0": "id"}, "fields, for a type that has none"),
        ("Long", "nope", "no column 'nope'; it has id, name, at"),
        ("Long", "id.deep", "no field 'deep'"),
        ("Long", {"constant": "x"}, "constant 'x'"),
        ("Long", "id + 1", "Spark SQL (id + 1)"),
        ("Tuple2<Long, Long>", {"f0": "id", "f1": None}, "a Long in Flink's state can't be"),
    ],
)
def test_columns_that_make_no_value(value: str, said: Any, problem: str, tmp_path: Path) -> None:
    """It names what is missing, or too much."""
    made = spec(pa.Table.from_pylist(ROWS), value=value)
    made["operators"]["op"]["states"]["s"]["value"] = said
    with pytest.raises(EncodeError) as raised:
        bootstrap(None, made, tmp_path / "sp", engine="local")
    assert problem in str(raised.value)
