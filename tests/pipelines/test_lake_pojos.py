"""POJO state through the lake and back: typed columns, and the bytes that Flink wrote."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from statelake import open_snapshot
from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.change.changes import ValueChange
from statelake.pipelines.lake.change.migrating import migrate_snapshot
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.edit.sql_editing import edit_by_sql
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.requests.imports import Import
from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.layout.keyed_states import value_snapshot
from statelake.state_core.formats.layout.meta_info import read_state_meta_info
from statelake.state_core.formats.reader import Snapshot
from statelake.state_core.serializers.basic.numbers import SNAPSHOTS, IntSerializer
from statelake.state_core.serializers.composite.null_fields import null_fields
from statelake.state_core.serializers.composite.pojo_snapshot import PojoSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import Verdict
from statelake.state_core.serializers.type_spec import parse_type
from tests.support.savepoints.expected_contents import UIDS, assert_contents, open_golden, tables_of
from tests.support.savepoints.golden_cases import GOLDEN, GoldenCase, golden_cases

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
    lake = Catalog(tmp_path / "lake")
    source, engine = str(golden.snapshot), LocalEngine()
    record = import_snapshot(lake, source, "job", Import(uids=UIDS["pojo"]), engine=engine).record
    exported = tmp_path / "exported"
    export_snapshot(lake, "job", record.snapshot_id, exported, engine=engine)
    again = open_snapshot(exported, uids=UIDS["pojo"])
    assert_contents(golden, tables_of(again))
    assert entries_of(again) == entries_of(open_golden(golden))


@every_case
def test_a_field_more_and_a_field_less(golden: GoldenCase, tmp_path: Path) -> None:
    """Migrated: the new field begins as Java has it, the old one is dropped, the rest stays."""
    lake, engine = Catalog(tmp_path / "lake"), LocalEngine()
    source = str(golden.snapshot)
    record = import_snapshot(lake, source, "job", Import(uids=UIDS["pojo"]), engine=engine).record
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
    result = migrate_snapshot(
        ChildSnapshot(lake, "job", record.snapshot_id, "next", engine=engine), change
    )
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


CUSTOMERS = GOLDEN / "flink" / "pojo-hashmap-canonical-p2-m128-flink1.20.0" / "savepoint"


@pytest.fixture(scope="module")
def customers(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A lake with POJOs of which some fields are null in entries that Flink wrote."""
    lake = Catalog(tmp_path_factory.mktemp("customers") / "lake")
    import_snapshot(lake, str(CUSTOMERS), "shop", Import(uids=["customers"]), snapshot_id="one")
    return lake


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("{'balance': 5}", r"value\.id of Judge\$Customer .*\(long\)"),
        ("struct_update(value, id := NULL)", r"value\.id of Judge\$Customer"),
        (
            "struct_update(value, address := {'street': 'x', 'zip': NULL})",
            r"value\.address\.zip of Judge\$Address .*\(int\)",
        ),
    ],
)
def test_null_in_a_field_that_may_be_primitive_is_refused(
    customers: Catalog, value: str, field: str
) -> None:
    """Flink could not restore it: the field is named, and how one field is changed alone."""
    statement = f"UPDATE customers.customer SET value = {value}"
    with pytest.raises(EncodeError, match=rf"field {field}.*struct_update\(value"):
        edit_by_sql(ChildSnapshot(customers, "shop", "one", "bad"), [statement])
    assert [summary.snapshot_id for summary in customers.summaries("shop")] == ["one"]


@pytest.mark.parametrize(
    "value",
    [
        "struct_update(value, balance := 5)",
        "struct_update(value, balance := NULL)",
        "struct_update(value, name := NULL)",
        "NULL",
    ],
)
def test_null_in_a_field_that_had_nulls_is_written(customers: Catalog, value: str) -> None:
    """Where Flink itself wrote null, or the whole POJO is null, it can restore that."""
    made = f"fine-{value}"
    statement = f"UPDATE customers.customer SET value = {value} WHERE key_group < 64"
    edit_by_sql(ChildSnapshot(customers, "shop", "one", made), [statement])
    assert made in [summary.snapshot_id for summary in customers.summaries("shop")]


def test_null_in_a_field_is_refused_from_other_tools_too(tmp_path: Path) -> None:
    """`commit` finds what delta-rs wrote."""
    lake = Catalog(tmp_path / "lake")
    import_snapshot(lake, str(CUSTOMERS), "shop", Import(uids=["customers"]), snapshot_id="one")
    opened = DeltaTable(lake.table("shop/keyed/customers/customer").uri)
    rows = opened.to_pyarrow_table().to_pylist()
    for row in rows:
        if row["value"] is not None:
            row["value"]["id"] = None
    schema = pa.schema(opened.schema().to_arrow())
    write_deltalake(opened, pa.Table.from_pylist(rows, schema), mode="overwrite")
    with pytest.raises(EncodeError, match=r"field value\.id of Judge\$Customer"):
        commit_snapshot(ChildSnapshot(lake, "shop", "one", "bad", engine="local"))


def test_an_expression_that_gives_null_for_a_primitive_field_is_refused() -> None:
    """The new type says which fields are boxed: those alone may be null."""
    fields = {"id": "long", "level": "Integer"}
    serializer = parse_type({"pojo": "Judge$Customer", "fields": fields}).restore_serializer()
    column = pa.array([{"id": None, "level": None}], serializer.arrow_type)
    assert [field.path for field in null_fields(serializer, column, "value")] == ["value.id"]


def test_null_fields_in_maps_are_those_of_the_rows_alone() -> None:
    """Rows are often a part of a batch, whose other maps are not theirs."""
    value = {"pojo": "Judge$Customer", "fields": {"id": "long"}}
    serializer = parse_type({"map": ["String", value]}).restore_serializer()
    maps = [[("a", {"id": None})], [("b", {"id": 1})], None, [("c", {"id": None})]]
    column = pa.array(maps, serializer.arrow_type)
    (found,) = null_fields(serializer, column[3:], "value")
    assert found.path == "value.key_value.value.id"
    assert not list(null_fields(serializer, column[1:3], "value"))
    assert not list(null_fields(serializer, column[1:2], "value"))
