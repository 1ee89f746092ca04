"""POJO state through the lake and back: typed columns, and the bytes that Flink wrote."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.engine import LocalEngine
from pipelines.lake.api import Lake
from pipelines.lake.edit.changes import ValueChange
from pipelines.lake.edit.migrating import migrate_snapshot
from pipelines.lake.export.exporting import export_snapshot
from pipelines.lake.ingest.importing import import_snapshot
from state_core import open_snapshot
from state_core.files.wire import DataInput
from state_core.formats.layout.keyed_states import value_snapshot
from state_core.formats.layout.meta_info import read_state_meta_info
from state_core.model.snapshot import Snapshot
from state_core.serializers.basic.numbers import SNAPSHOTS, IntSerializer
from state_core.serializers.composite.pojo_snapshot import PojoSerializerSnapshot
from state_core.serializers.framework.compatibility import Verdict
from tests.support.savepoints.expected_contents import UIDS, assert_contents, open_golden, tables_of
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

CASES = golden_cases("pojo", form="canonical")
every_case = pytest.mark.parametrize("golden", CASES, ids=[case.name for case in CASES])


def entries_of(snapshot: Snapshot) -> list[tuple[str, bytes, bytes]]:
    """State, key bytes and value bytes of every entry, sorted."""
    found = []
    for file in snapshot.operator("customers").keyed_files:
        for entries in file.entries():
            data = entries.data.tobytes()
            for row in range(len(entries)):
                key = data[entries.key_start[row] : entries.key_end[row]]
                value = data[entries.value_start[row] : entries.value_end[row]]
                found.append((file.states[entries.state_of[row]].name, key, value))
    return sorted(found)


def test_both_backends_and_versions_are_there() -> None:
    """Flink 1.20 on the heap, Flink 2.3 on RocksDB."""
    facts = {(case.facts["flink"], case.facts["backend"]) for case in CASES}
    assert facts == {("1.20.0", "hashmap"), ("2.3.0", "rocksdb")}


@every_case
def test_columns_have_the_fields_names(golden: GoldenCase) -> None:
    """A struct of the Java fields, and no value needs its exact bytes beside."""
    table = open_golden(golden).operator("customers").state("customer").to_arrow()
    address = pa.struct([("street", pa.string()), ("zip", pa.int32())])
    assert dict(zip(*_fields(table.schema.field("value").type), strict=True)) == {
        "address": address,
        "balance": pa.float64(),
        "color": pa.string(),
        "id": pa.int64(),
        "name": pa.string(),
        "scores": pa.map_(pa.string(), pa.int32()),
        "tags": pa.list_(pa.string()),
    }
    assert table.column("raw_value").null_count == table.num_rows > 0


def _fields(kind: pa.StructType) -> tuple[list[str], list[pa.DataType]]:
    return [field.name for field in kind], [field.type for field in kind]


@every_case
def test_there_and_back(golden: GoldenCase, tmp_path: Path) -> None:
    """Imported and exported, a savepoint has the same contents, byte by byte."""
    lake = Lake(tmp_path / "lake")
    source, engine = str(golden.snapshot), LocalEngine()
    record = import_snapshot(lake, source, "job", uids=UIDS["pojo"], engine=engine).record
    exported = tmp_path / "exported"
    export_snapshot(lake, "job", record.snapshot_id, exported, engine=engine)
    again = open_snapshot(exported, uids=UIDS["pojo"])
    assert_contents(golden, tables_of(again))
    assert entries_of(again) == entries_of(open_golden(golden))


@every_case
def test_a_field_more_and_a_field_less(golden: GoldenCase, tmp_path: Path) -> None:
    """Migrated: the new field begins as Java has it, the old one is dropped, the rest stays."""
    lake, engine = Lake(tmp_path / "lake"), LocalEngine()
    source = str(golden.snapshot)
    record = import_snapshot(lake, source, "job", uids=UIDS["pojo"], engine=engine).record
    before = open_golden(golden).operator("customers").state("customer")
    old = value_snapshot(read_state_meta_info(DataInput(before.meta_info)))
    assert isinstance(old, PojoSerializerSnapshot)
    fields = {
        field.name: field.value.snapshot for field in old.pojo.fields if field.value is not None
    }
    del fields["tags"]
    level = SNAPSHOTS[IntSerializer]()
    new = PojoSerializerSnapshot.of(old.pojo.java_class, {**fields, "level": level})
    change = ValueChange("customers", "customer", new)
    result = migrate_snapshot(lake, "job", record.snapshot_id, "next", change, engine=engine)
    assert result.result.verdict is Verdict.COMPATIBLE_AFTER_MIGRATION
    assert {reason.path for reason in result.result.reasons} == {"tags", "level"}
    exported = tmp_path / "exported"
    export_snapshot(lake, "job", "next", exported, engine=engine)
    after = open_snapshot(exported, uids=UIDS["pojo"]).operator("customers").state("customer")
    expected = {row["key"]: row["value"] for row in before.to_arrow().to_pylist()}
    for value in expected.values():
        del value["tags"]
        value["level"] = 0
    assert {row["key"]: row["value"] for row in after.to_arrow().to_pylist()} == expected
