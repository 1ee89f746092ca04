"""Fields that differ only in their case: their columns, and the bytes that these become again."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.nested import (
    FIELD,
    column_names,
    column_path,
    field_name,
    field_path,
    struct_of,
    twins,
)
from statelake.state_core.serializers.avro.serializer import AvroSerializerSnapshot
from statelake.state_core.serializers.basic.numbers import IntSerializer, LongSerializer
from statelake.state_core.serializers.basic.text import ByteArraySerializer, StringSerializer
from statelake.state_core.serializers.composite.evolution import migrate_column, migrate_value
from statelake.state_core.serializers.composite.null_fields import null_fields
from statelake.state_core.serializers.composite.pojo import PojoSerializer, SubclassValue
from statelake.state_core.serializers.contents.sayings import holding
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.opaque_values import written_by
from statelake.state_core.serializers.kryo.decoding import declare_classes
from statelake.state_core.serializers.kryo.graph import Item
from statelake.state_core.serializers.kryo.protobuf import message_types
from statelake.state_core.serializers.kryo.wire import KryoVersion
from statelake.state_core.serializers.scala.sealed import SealedSerializer, labels_of
from tests.support.savepoints.kryo_savepoint import kryo_snapshot
from tests.support.serializers.serializer_columns import decode, encode, read, write

INT, LONG = IntSerializer(), LongSerializer()
TWINS = [("ID", INT), ("id", LONG)]
CASES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("ID", "id"): ("ID_2", "id"),
    ("id", "ID"): ("id", "ID_2"),
    ("ID", "ID_2", "id"): ("ID_3", "ID_2", "id"),
    ("ID", "Id", "id", "id_2"): ("ID_4", "Id_3", "id", "id_2"),
    ("aB", "Ab"): ("aB_2", "Ab"),
    ("a", "b"): ("a", "b"),
    ("Ä", "ä", "a$b", "A$B"): ("Ä_2", "ä", "a$b", "A$B_2"),
    (): (),
}


@pytest.mark.parametrize("names", CASES)
def test_the_name_with_the_fewest_capital_letters_stays(names: tuple[str, ...]) -> None:
    """The others get a number, whatever their order; never the name of another field."""
    assert column_names(names) == CASES[names]
    assert column_names(names[::-1]) == CASES[names][::-1]


@given(st.lists(st.text("aAbB_2", max_size=4), unique=True, max_size=12))
def test_any_names_have_columns_of_their_own(names: list[str]) -> None:
    """Whatever their case; each is found by its name and by its column's."""
    columns = column_names(names)
    assert len({column.lower() for column in columns}) == len(names)
    kind = struct_of(names, [pa.int64()] * len(names))
    assert not twins(kind)
    assert [field_name(each) for each in kind] == names
    for name, column in zip(names, columns, strict=True):
        assert column == name or column not in names
        for said in (name, column):
            assert (column_path(kind, said), field_path(kind, said)) == (column, name)


def test_a_path_goes_through_structs() -> None:
    """A path with an unknown name stays as it is."""
    kind = struct_of(["A", "a"], [struct_of(["B", "b"], [pa.int64()] * 2), pa.int64()])
    assert column_path(kind, "A.B") == column_path(kind, "A_2.B_2") == "A_2.B_2"
    assert field_path(kind, "A_2.B_2") == field_path(kind, "A.B") == "A.B"
    assert column_path(kind, "a.c") == field_path(kind, "a.c") == "a.c"


def test_many_names_take_linear_time() -> None:
    """20,000 of them, that any class of a snapshot may have."""
    names = [f"{text}{number}" for number in range(10_000) for text in "aA"]
    assert column_names(names)[-2:] == ("a9999", "A9999_2")


def check(serializer: TypeSerializer, values: Sequence[Any]) -> pa.Array:
    """Check that values are read from and written to the same bytes, both ways."""
    data = [write(serializer, value) for value in values]
    assert [read(serializer, each) for each in data] == list(values)
    column, inexact = decode(serializer, data)
    assert column.type.equals(serializer.arrow_type, check_metadata=True)
    assert not any(inexact)
    assert encode(serializer, column) == data
    assert column.to_pylist() == list(values)
    assert not twins([pa.field("value", column.type)])
    return column


# ------------------------------------------------------------------------------ POJOs


def test_a_pojos_fields_are_written_from_either_name() -> None:
    """A program may say `ID`, as the class does, or `ID_2`, as its column."""
    pojo = PojoSerializer("a.A", TWINS)
    check(pojo, [{"ID_2": 1, "id": 2}, {"ID_2": None, "id": 2}, {"ID_2": 1, "id": None}, None])
    assert write(pojo, {"ID": 1, "id": 2}) == write(pojo, {"ID_2": 1, "id": 2})
    assert write(pojo, (1, 2)) == write(pojo, {"ID_2": 1, "id": 2})


def test_a_subclass_fills_the_fields_of_its_base_by_their_names() -> None:
    """`id` is the same field in both, though only the subclass has an `ID`, or orders them."""
    sub = PojoSerializer("a.Sub", [("ID", LONG), ("Id", LONG), ("id", LONG)])
    for fields in ([("id", LONG)], [("ID", LONG)], [("Id", LONG), ("id", LONG)]):
        base = PojoSerializer("a.Base", list(fields), {"a.Sub": sub})
        whole = {"ID_3": 1, "Id_2": 2, "id": 3}
        seen = {"ID": 1, "Id": 2, "id": 3}
        own = {
            column: seen[name] for name, (column, _) in zip(base.names, base.fields, strict=True)
        }
        data = write(base, SubclassValue(own, "a.Sub", whole, 0))
        found = read(base, data)
        assert (found, found.value) == (own, whole)
        column, inexact = decode(base, [data])
        assert column.to_pylist() == [own]
        assert inexact == [True]
        assert write(base, found) == data


def test_a_migration_goes_by_the_names_of_fields() -> None:
    """A field that loses its twin, or gets one, keeps its values, of subclasses too."""
    both, alone = PojoSerializer("a.A", TWINS), PojoSerializer("a.A", TWINS[:1])
    value = {"ID_2": 1, "id": 2}
    assert migrate_value(both, alone, value) == {"ID": 1}
    assert migrate_value(alone, both, {"ID": 1}) == {"ID_2": 1, "id": 0}
    column = pa.array([value], both.arrow_type)
    assert migrate_column(both, alone, column).to_pylist() == [{"ID": 1}]
    back = migrate_column(alone, both, pa.array([{"ID": 1}], alone.arrow_type))
    assert back.to_pylist() == [{"ID_2": 1, "id": 0}]
    old = PojoSerializer("a.Base", [("id", LONG)], {"a.A": both})
    new = PojoSerializer("a.Base", [("id", LONG)], {"a.A": PojoSerializer("a.A", TWINS[::-1])})
    moved = migrate_value(old, new, SubclassValue({"id": 2}, "a.A", value, 0))
    assert (moved, moved.value) == ({"id": 2}, {"ID_2": 1, "id": 2})


def test_boxed_fields_are_named_as_in_java() -> None:
    """A null of `ID`, an `Integer`, is no fault; one of `id`, which may be a `long`, is."""
    boxed = PojoSerializer("a.A", TWINS, boxed=["ID"])
    column = pa.array([{"ID_2": None, "id": 1}, {"ID_2": 1, "id": None}], boxed.arrow_type)
    assert [each.path for each in null_fields(boxed, column, "value")] == ["value.id"]


# ------------------------------------------------------------------------------- Avro


def record(*names: str, inner: Any = "long") -> dict[str, Any]:
    """The schema of a record."""
    fields = [{"name": name, "type": inner} for name in names]
    return {"type": "record", "name": "R", "fields": fields}


def test_avro_records() -> None:
    """Nested ones, and those of a message, with Avro's own names in the bytes."""
    nested = record("ID", "id") | {"name": "N"}
    schema = {"type": "record", "name": "O", "fields": [
        {"name": "Sub", "type": nested}, {"name": "sub", "type": ["null", "N"]},
    ]}  # fmt: skip
    serializer = AvroSerializerSnapshot.of(json.dumps(schema)).restore_serializer()
    first = {"ID_2": 1, "id": 2}
    check(serializer, [{"Sub_2": first, "sub": None}, {"Sub_2": first, "sub": first}])


def test_avro_schemas_are_resolved_by_avros_names() -> None:
    """A new schema with both fields gets the old one's value in the right one."""
    one, both = record("ID"), record("ID", "id")
    both["fields"][1]["default"] = 7
    old, new = (
        AvroSerializerSnapshot.of(json.dumps(each)).restore_serializer() for each in (one, both)
    )
    assert migrate_value(old, new, {"ID": 5}) == {"ID_2": 5, "id": 7}
    assert migrate_value(new, old, {"ID_2": 5, "id": 7}) == {"ID": 5}


def test_messages_of_a_registry() -> None:
    """Their columns are those of the record; one of an older schema is resolved."""
    one, both = record("ID"), record("ID", "id", "SCHEMA_ID")
    for field in both["fields"][1:]:
        field["default"] = 7
    data = []
    for number, schema, value in (
        (1, one, {"ID": 5}),
        (2, both, {"ID": 1, "id": 2, "SCHEMA_ID": 3}),
    ):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
        data.append(b"\0" + number.to_bytes(4, "big") + out.getvalue())
    serializer = holding(ByteArraySerializer(), f"avro {json.dumps({'1': one, '2': both})}")
    stored = [write(ByteArraySerializer(), each) for each in data]
    column, inexact = decode(serializer, stored)
    assert column.to_pylist() == [
        {"ID_2": 5, "id": 7, "SCHEMA_ID": 7, "_schema_id": 1},
        {"ID_2": 1, "id": 2, "SCHEMA_ID": 3, "_schema_id": 2},
    ]
    assert inexact == [True, False]
    assert encode(serializer, column.slice(1)) == stored[1:]


# ------------------------------------------------------------------- JSON, Kryo, Scala, Protobuf


def test_json_texts() -> None:
    """Members of JSON have no order, so that the first of the shape stays."""
    serializer = holding(
        StringSerializer(), 'json {"ID":"long","id":"long","in":{"A":"long","a":"long"}}'
    )
    said = '{"ID":1,"id":2,"in":{"A":3,"a":4}}'
    column, inexact = decode(serializer, [write(StringSerializer(), said)])
    assert column.to_pylist() == [{"ID": 1, "id_2": 2, "in": {"A": 3, "a_2": 4}}]
    assert not any(inexact)
    assert encode(serializer, column) == [write(StringSerializer(), said)]


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("flink", [1, 2])
def test_kryo_classes(flink: int) -> None:
    """One by one and many at once, by the fields' order in Java."""
    fields = {"id": "long", "ID": "int", "in": "a.In"}
    inner = {"a": "String", "A": "String"}
    declare_classes(
        {"flink": flink, "classes": {"a.A": {"fields": fields}, "a.In": {"fields": inner}}}
    )
    with written_by(flink):
        serializer = kryo_snapshot("a.A").restore_serializer()
    version = KryoVersion(flink)
    values = kryo_snapshot("a.A").values(version)
    data, shown = [], []
    for number in range(40):
        said = {"a": Item("java.lang.String", f"low{number}"), "A": Item("java.lang.String", "UP")}
        held = {"id": number, "ID": -number, "in": Item("a.In", said)}
        data.append(values.write(Item("a.A", held), version))
        shown.append({"id": number, "ID_2": -number, "in": {"a": f"low{number}", "A_2": "UP"}})
    for count in (1, 40):
        column, inexact = decode(serializer, data[:count])
        assert column.to_pylist() == shown[:count]
        assert not any(inexact)
        assert encode(serializer, column) == data[:count]
    assert {each.name: (each.metadata or {}).get(FIELD) for each in serializer.arrow_type} == {
        "id": None, "ID_2": b"ID", "in": None,
    }  # fmt: skip


def test_types_of_a_sealed_trait() -> None:
    """Their labels are columns and values of `type`."""
    labels = labels_of(["a.B$Pear", "a.B$pear", "a.b$pear", "x.Fig"])
    assert len({label.lower() for label in labels}) == 4
    serializer = SealedSerializer("Fruit", [(label, LONG) for label in labels], None)
    values = [
        {"type": label, **dict.fromkeys(labels), label: number}
        for number, label in enumerate(labels)
    ]
    check(serializer, values)


def test_protobuf_messages() -> None:
    """Their fields have numbers, by which they are ordered and written."""
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    file = descriptor_pb2.FileDescriptorProto(name="p.proto", package="acme", syntax="proto3")
    file.options.java_package = "com.acme"
    file.options.java_multiple_files = True
    message = file.message_type.add(name="P")
    message.field.add(name="ID", number=1, type=3, label=1)
    message.field.add(name="id", number=2, type=3, label=1)
    message.field.add(name="Id", number=3, type=11, type_name=".acme.P", label=1)
    descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    (kind,) = message_types(descriptors, "p.pb").values()
    data = bytes([8, 5, 16, 6])
    assert kind.read(data) == {"ID_3": 5, "id": 6, "Id_2": None}
    assert kind.write({"ID_3": 5, "id": 6, "Id_2": None}) == data
    assert [each.name for each in kind.arrow_type] == ["ID_3", "id", "Id_2"]
