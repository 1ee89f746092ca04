"""Types written down: what is understood, and what is refused with what is known."""

from __future__ import annotations

from typing import Any

import pytest

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import Verdict
from statelake.state_core.serializers.framework.registry import (
    read_serializer_snapshot,
    write_serializer_snapshot,
)
from statelake.state_core.serializers.type_spec import parse_type, simple_types

TEXTS = [
    "Long",
    "String",
    "int[]",
    "String[]",
    "Tuple2<String, List<Integer>>",
    "Map<String, Set<Nullable<Long>>>",
    "Row<Long, String, BigDecimal>",
    "Either<Instant, LocalDate>",
]
MAPPINGS: list[dict[str, Any]] = [
    {"pojo": "com.acme.P", "fields": {"id": "long", "name": "String", "tags": "List<String>"}},
    {"enum": "com.acme.Tier", "constants": ["GOLD", "SILVER"]},
    {"array": "java.lang.Long", "of": "Long"},
    {"row_data": ["BIGINT NOT NULL", "STRING", "DECIMAL(10, 2)"]},
    {"list": {"enum": "com.acme.Tier", "constants": ["GOLD", "SILVER"]}},
    {"map": ["Long", {"tuple": ["String", {"nullable": {"row": ["Long"]}}]}]},
    {"avro": {"type": "record", "name": "R", "fields": [{"name": "x", "type": "long"}]}},
]


def again(snapshot: TypeSerializerSnapshot) -> TypeSerializerSnapshot:
    """The snapshot, written and read as in a savepoint."""
    out = DataOutput()
    write_serializer_snapshot(snapshot, out)
    return read_serializer_snapshot(DataInput(out.to_bytes(), "here"))


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_the_serializers_own_name(text: str) -> None:
    """What a type is called in reports is what it is called in a spec."""
    assert parse_type(text).type_name == text


@pytest.mark.parametrize("spec", [*TEXTS, *MAPPINGS], ids=str)
def test_a_spec_is_a_snapshot_like_any_other(spec: Any) -> None:
    """It is written, read back, and the same type as before."""
    made = parse_type(spec)
    read = again(made)
    assert read.resolve_schema_compatibility(made).verdict is Verdict.COMPATIBLE_AS_IS
    assert read.restore_serializer().arrow_type == made.restore_serializer().arrow_type


@pytest.mark.parametrize("name", sorted(simple_types()))
def test_every_simple_type_is_known_by_its_name(name: str) -> None:
    """Types without parts are found by the name that they give themselves."""
    if " " not in name and "." not in name:
        assert parse_type(name).type_name == name


def test_a_boxed_field_begins_as_null_and_a_primitive_as_zero() -> None:
    """Java's own defaults, told apart by how the spec writes the type."""
    fields = {"boxed": "Integer", "primitive": "int"}
    made: Any = parse_type({"pojo": "P", "fields": fields})
    assert made.boxed == {"boxed"}


def test_subclasses_have_the_fields_of_the_class_that_they_are_given_under() -> None:
    """Flink knows a field by the class that declares it, however far up that is."""
    leaf = {"pojo": "C", "fields": {"a": "int", "b": "int", "c": "int"}}
    middle = {"pojo": "B", "fields": {"a": "int", "b": "int"}, "non_registered": {"C": leaf}}
    made: Any = parse_type({"pojo": "A", "fields": {"a": "int"}, "registered": {"B": middle}})
    (held,) = made.pojo.registered
    assert declared(held.value.snapshot) == {"a": "A", "b": "B"}
    (held,) = held.value.snapshot.pojo.non_registered
    assert declared(held.value.snapshot) == {"a": "A", "b": "B", "c": "C"}


def declared(made: Any) -> dict[str, str]:
    """The class that declares each field of a POJO."""
    return {field.name: DataInput(field.key).read_utf() for field in made.pojo.fields}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("Lon", "Lon is no known type"),
        ("", "a type is missing"),
        ("List<", "ends too early"),
        ("List<Long", "is not closed"),
        ("Long>", "behind a complete type"),
        ("Tuple3<Long>", "Tuple3 is given 1 types"),
        ("Map<Long>", "takes 2"),
        ("Li st<Long>", "Li is no known type"),
        ({"pojo": "P"}, "'fields'"),
        ({"enum": "E"}, "constants"),
        ({"thing": 1}, r"\['thing'\] must name one kind of type"),
        ({"map": "Long"}, "takes 2"),
        ({"list": []}, "needs at least one type"),
    ],
    ids=str,
)
def test_what_is_not_understood_is_said(spec: Any, said: str) -> None:
    """One sentence, and never another kind of error."""
    with pytest.raises(EncodeError, match=said):
        parse_type(spec)
