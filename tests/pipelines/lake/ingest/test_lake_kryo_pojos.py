"""POJOs some of whose fields are Kryo's: typed columns without a word, and exports bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.state_core.serializers.framework.plugins import note_change
from statelake.state_core.serializers.kryo.snapshot import KryoSerializerSnapshot
from tests.support.lakes import LOCAL, edit, entries, exported, import_as, rows_of
from tests.support.savepoints.kryo_jobs import jdk_savepoint, kryo_lines

pytestmark = pytest.mark.usefixtures("own_registry")

UIDS = ("customers", "places")
NAMES = ("pojos-1.20", "pojos-native-1.20")
STATES = ("customer", "listed", "mapped", "pair", "odd")
CUSTOMER = {
    "id": pa.int64(), "name": pa.string(), "scores": pa.string(), "seen": pa.string(),
    "tags": pa.string(), "token": pa.string(),
}  # fmt: skip


def states_of(savepoint: Path) -> dict[str, dict[Any, Any]]:
    """Each state of the operator with customers: its rows by key and user key."""
    operator = open_snapshot(savepoint, uids=UIDS)["customers"]
    rows = {name: operator[name].to_arrow().to_pylist() for name in STATES}
    return {
        name: {(row["key"], row.get("user_key")): row for row in held}
        for name, held in rows.items()
    }


def customers(record: SnapshotRecord) -> str:
    """The path of the table of customers."""
    (path,) = (
        table.path
        for operator in record.operators
        for table in operator.tables
        if table.path.endswith("/customer")
    )
    return path


def shown(customer: dict[str, Any]) -> str:
    """A customer as its `toString` in the job."""
    tags, seen = json.loads(customer["tags"]), json.loads(customer["seen"] or "null")
    kind = "ArrayList"
    if isinstance(tags, dict):
        kind, tags = tags["@class"].removeprefix("java.util."), tags["value"]
    scores = sorted(json.loads(customer["scores"]).items())
    numbers = "null" if seen is None else [number["value"] for number in seen["value"]]
    return (
        f"{customer['id']} {customer['name'] or 'null'} [{', '.join(tags)}]{kind}"
        f"{{{', '.join(f'{name}={score}' for name, score in scores)}}}"
        f"{numbers}{customer['token'] or 'null'}"
    )


@pytest.mark.parametrize("name", NAMES)
def test_fields_are_columns_with_the_values_of_flink(name: str, tmp_path: Path) -> None:
    """As a value, in a list and in a map; and of a tuple."""
    savepoint = jdk_savepoint(tmp_path / "savepoint", name)
    kind = open_snapshot(savepoint, uids=UIDS)["customers"]["customer"].schema.field("value").type
    assert {field.name: field.type for field in kind} == CUSTOMER
    states = states_of(savepoint)
    for line in (line for line in kryo_lines("pojos") if "key" in line):
        key = line["key"]
        assert shown(states["customer"][key, None]["value"]) == line["customer"]
        listed = states["listed"].get((key, None), {"value": []})["value"]
        assert [shown(customer) for customer in listed] == line["listed"]
        for user_key, text in line["mapped"].items():
            assert shown(states["mapped"][key, user_key]["value"]) == text
        pair = states["pair"][key, None]["value"]
        assert f"({pair['f0']},{pair['f1']})" == line["pair"]
    for state in STATES[:-1]:
        assert not any(row["raw_value"] for row in states[state].values())


@pytest.mark.parametrize("name", NAMES)
def test_keys_are_typed(name: str, tmp_path: Path) -> None:
    """To be read: entries are found by their bytes."""
    savepoint = jdk_savepoint(tmp_path / "savepoint", name)
    rows = open_snapshot(savepoint, uids=UIDS)["places"]["number"].to_arrow().to_pylist()
    assert {(f"{row['key']['city']} {row['key']['token']}", row["value"]) for row in rows} == {
        (line["place"], line["number"]) for line in kryo_lines("pojos") if "place" in line
    }
    assert not any(row["raw_key"] for row in rows)


@pytest.mark.parametrize("name", NAMES)
def test_a_field_of_an_unknown_class_leaves_its_row_as_bytes(name: str, tmp_path: Path) -> None:
    """Only rows with such a value: nothing tells where it ends, but what is around it."""
    for (key, _), row in states_of(jdk_savepoint(tmp_path / "savepoint", name))["odd"].items():
        unknown = key % 4 == 0
        assert (row["value"] is None) == unknown
        assert (row["raw_value"] is not None) == unknown
        assert unknown or row["value"]["text"] == f"after {key}"


def test_an_unchanged_export_is_what_flink_wrote(tmp_path: Path) -> None:
    """Bit for bit, though nothing but typed columns was kept of most values."""
    savepoint = jdk_savepoint(tmp_path / "savepoint", NAMES[0])
    lake = Catalog(tmp_path / "lake")
    import_as(lake, savepoint, "monday")
    assert exported(lake, "monday", tmp_path / "out") == entries(savepoint)


def test_an_edited_field_is_written_and_the_others_stay(tmp_path: Path) -> None:
    """Its new value is Kryo's, too."""
    savepoint = jdk_savepoint(tmp_path / "savepoint", NAMES[0])
    lake = Catalog(tmp_path / "lake")
    table = edit(lake, customers(import_as(lake, savepoint, "monday")))
    rows = table.to_pyarrow_table().to_pylist()
    (row,) = [row for row in rows if row["key"] == 5]
    changed = row["value"] | {"tags": '["new"]', "token": "00000000-0000-0000-0000-000000000001"}
    literal = ", ".join(
        f"'{name}', {value!r}" if value is not None else f"'{name}', CAST(NULL AS STRING)"
        for name, value in changed.items()
    )
    table.update({"value": f"named_struct({literal})"}, predicate="key = 5")
    commit_snapshot(ChildSnapshot(lake, "orders", "monday", "after", engine=LOCAL))
    exported(lake, "after", tmp_path / "out")
    before, after = states_of(savepoint), states_of(tmp_path / "out")
    assert after["customer"].pop((5, None))["value"] == changed
    assert before["customer"].pop((5, None))["value"] == row["value"]
    assert after == before


def test_lakes_of_before_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table whose rows are bytes is read, and exported, as such."""
    savepoint = jdk_savepoint(tmp_path / "savepoint", NAMES[0])
    lake = Catalog(tmp_path / "lake")
    with monkeypatch.context() as before:
        restore = KryoSerializerSnapshot.restore_serializer
        before.setattr(KryoSerializerSnapshot, "restore_nested", restore)
        note_change()
        record = import_as(lake, savepoint, "monday")
    note_change()
    rows = rows_of(lake, record, customers(record))
    assert rows.schema.field("value").type == pa.binary()
    assert exported(lake, "monday", tmp_path / "out") == entries(savepoint)
