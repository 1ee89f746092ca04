"""Avro schemas that are none: an error that says where, in a snapshot as in a file of a user's."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from statelake.state_core.errors import (
    CorruptSnapshotError,
    EncodeError,
    IncompatibleError,
    StateError,
)
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.kernels import skip
from statelake.state_core.serializers.avro.serializer import AvroSerializerSnapshot
from statelake.state_core.serializers.composite.evolution import migrate_column
from statelake.state_core.serializers.contents.avro_messages import read_avro
from statelake.state_core.serializers.framework.compatibility import Verdict
from statelake.state_core.serializers.type_spec import parse_type

FIXED = {"type": "fixed", "name": "F", "size": 4}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    """A record of these fields."""
    return {"type": "record", "name": "R", "fields": list(fields), **more}


def field(kind: Any, name: str = "f", **more: Any) -> dict[str, Any]:
    """A field of that type."""
    return {"name": name, "type": kind, **more}


BAD = {
    "null": "the schema is null",
    "12": "the schema is 12",
    "1e400": "the schema is Infinity",
    "true": "the schema is true",
    "NaN": "NaN, which is no number",
    "{": "Expecting property name",
    "{}": "the schema has no type",
    '"Other"': "no type is called 'Other'",
    '{"type": "Other"}': "no type is called 'Other'",
    '{"type": null}': "the schema.type is null",
    '{"type": 3}': "the schema.type is 3",
    '["null", 1]': "the schema[1] is 1",
    "[" * 5000: "nested too deep",
    '{"type":' * 5000 + '"int"' + "}" * 5000: "nested too deep",
    '{"type": "fixed", "name": "F", "size": 1e400}': "the schema.size is not a size",
    json.dumps({**FIXED, "size": -1}): "the schema.size is not a size",
    json.dumps({**FIXED, "size": 1.5}): "the schema.size is not a size",
    json.dumps({**FIXED, "size": True}): "the schema.size is not a size",
    json.dumps({**FIXED, "size": "4"}): "the schema.size is not a size",
    json.dumps({**FIXED, "size": 2**31}): "the schema.size is not a size",
    '{"type": "fixed", "name": "F"}': "the schema.size is not a size",
    '{"type": "fixed", "size": 1}': "the schema.name is not a name",
    json.dumps({**ENUM, "symbols": "AB"}): "the schema.symbols is not a list of names",
    json.dumps({**ENUM, "symbols": ["A", 1]}): "the schema.symbols is not a list of names",
    json.dumps({**ENUM, "symbols": ["A", "A"]}): "the schema has a symbol twice",
    json.dumps({**ENUM, "name": 1}): "the schema.name is not a name",
    json.dumps({**ENUM, "aliases": 3}): "the schema.aliases is not a list of names",
    json.dumps({**ENUM, "namespace": 3}): "the schema.namespace is not text",
    '{"type": "array"}': "the schema has no items",
    '{"type": "array", "items": null}': "the schema.items is null",
    '{"type": "map"}': "the schema has no values",
    '{"type": "record", "name": "R"}': "the schema.fields is not a list of fields",
    json.dumps(record("int")): "the schema.fields is not a list of fields",
    json.dumps(record({"type": "int"})): "the schema has a field without a name",
    json.dumps(record({"name": "f"})): "the schema.f has no type",
    json.dumps(record(field(None))): "the schema.f is null",
    json.dumps(record(field("int", aliases=[1]))): "the schema.f.aliases is not a list of names",
    json.dumps(record(field("int"), field("long"))): "a field 'f' a second time",
    json.dumps(record(field(FIXED), field(FIXED, "g"))): "'F' is defined twice",
    json.dumps(record(field("int", "\ud800"))): "half a surrogate pair",
    json.dumps({**ENUM, "symbols": ["\udfff"]}): "half a surrogate pair",
}  # fmt: skip

GOOD = (
    "null", '["null", "int"]', "[]", ENUM, {**ENUM, "namespace": None}, FIXED, {**FIXED, "size": 0},
    record(), record(field("int", default="no number", order="?", doc=3)),
    {"type": {"type": ["null", "string"]}}, {"type": "string", "avro.java.string": "String"},
    record(field(["null", "R"], "next"), namespace="a.b", aliases=["Q"]),
    record(field({"type": "array", "items": FIXED}), field("F", "g"), field("R.F", "h"))
    | {"fields": [field({"type": "array", "items": FIXED}), field("F", "g")]},
)  # fmt: skip


def snapshot_of(text: str) -> AvroSerializerSnapshot:
    """The snapshot of a serializer with that schema, as a file has it."""
    out = DataOutput()
    out.write_string("org.acme.Value")
    out.write_string(text)
    made = AvroSerializerSnapshot()
    made.read_snapshot(3, DataInput(out.to_bytes(), "file"))
    return made


def test_an_enum_has_no_more_symbols_than_a_java_class_has_fields() -> None:
    """The others would cost memory, and Java could not name them."""
    symbols = [f"S{index}" for index in range(1 << 16)]
    with pytest.raises(CorruptSnapshotError, match="has 65536 symbols; at most 65535 are read"):
        snapshot_of(json.dumps({**ENUM, "symbols": symbols}))
    assert snapshot_of(json.dumps({**ENUM, "symbols": symbols[1:]}))


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_schema(text: str) -> None:
    """It is damage of a snapshot, which has a place, and a mistake in a file of a user's."""
    with pytest.raises(StateError) as refused:
        snapshot_of(text)
    assert BAD[text] in str(refused.value)
    if "surrogate" not in BAD[text]:
        assert isinstance(refused.value, CorruptSnapshotError)
        assert refused.value.place.startswith("file, offset")
    try:
        spec = json.loads(text)
    except (ValueError, RecursionError):
        spec = text
    with pytest.raises(EncodeError):
        parse_type({"avro": spec})


@pytest.mark.parametrize("schema", GOOD, ids=str)
def test_what_is_one(schema: Any) -> None:
    """What Avro's parser takes is taken, and what nothing looks at may be anything."""
    text = schema if isinstance(schema, str) and schema[0] == "[" else json.dumps(schema)
    name = snapshot_of(text).restore_serializer().name
    assert parse_type({"avro": json.loads(text)}).restore_serializer().name == name


DEFAULTS = ("x", None, 1e300, [1], {"a": 1}, 2**70, True)
KINDS = (
    "int", "long", "string", "bytes", "boolean", "double", ["null", "int"], ENUM, FIXED,
    {"type": "array", "items": "int"}, {"type": "map", "values": "int"},
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("default", DEFAULTS, ids=str)
def test_a_default_of_another_type(kind: Any, default: Any) -> None:
    """A migration says that it can't be, or makes values of the new type."""
    old = parse_type({"avro": record(field("int", "a"))}).restore_serializer()
    made = record(field("int", "a"), field(kind, "b", default=default))
    new = parse_type({"avro": made}).restore_serializer()
    column = pa.array([{"a": 1}], old.arrow_type)
    try:
        moved = migrate_column(old, new, column)
    except IncompatibleError as error:
        assert error.problem.startswith("Avro<record R> can't become Avro<record R>: ")  # noqa: PT017
    else:
        assert moved.type == new.arrow_type
        assert moved.to_pylist()[0]["a"] == 1


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
    | st.sampled_from(["record", "enum", "fixed", "array", "map", "int", "null", "R"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["type", "name", "fields", "symbols", "size", "items", "values", "aliases", "namespace"]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=200)
@example({"type": [], "items": None})
@given(anything)
def test_any_json_is_a_schema_or_an_error_of_ours(schema: Any) -> None:
    """Nothing else comes out: not when it is read, not when it is compared."""
    try:
        found = snapshot_of(json.dumps(schema))
        made = parse_type({"avro": schema})
    except StateError as error:
        assert error.problem  # noqa: PT017 - most are no schema, and some are
        return
    for new, old in ((made, found), (found, made)):
        result = new.resolve_schema_compatibility(old)
        assert result.verdict <= Verdict.COMPATIBLE_WITH_RECONFIGURED_SERIALIZER


def test_a_null_record_hides_what_is_no_symbol() -> None:
    """Arrow may hold any text below a null struct: no symbol is looked for there."""
    schema = ["null", record(field(ENUM))]
    values = AvroSerializerSnapshot.of(schema).restore_serializer()
    texts = pa.array(["A", ""])
    column = pa.StructArray.from_arrays([texts], ["f"], mask=pa.array([False, True]))
    assert values.sizes(column, np.zeros(0, np.uint8)).tolist() == [8, 4]
    with pytest.raises(EncodeError, match="'' is no symbol of E"):
        values.sizes(pa.StructArray.from_arrays([texts], ["f"]), np.zeros(0, np.uint8))


def test_lists_of_unions_are_columns() -> None:
    """A union has a layout, so that the elements of a list are found without reading them."""
    union = AvroSerializerSnapshot.of(["null", "string", "long"]).restore_serializer()
    assert union.skip_program() == (skip.CHOICE, 4, 0, -1, 3, 0, 2, 2, skip.SIZED, 1, skip.FIXED, 8)
    optional = AvroSerializerSnapshot.of(["long", "null"]).restore_serializer()
    assert optional.skip_program() == (skip.CHOICE, 4, 0, -1, 2, 2, 0, skip.FIXED, 8)
    assert (union.min_length, optional.min_length) == (4, 4)


def test_items_without_bytes_are_refused() -> None:
    """By an error that callers know, also of a schema that is among the bytes of a sink."""
    for items in ("null", {**FIXED, "size": 0}):
        schema = {"type": "array", "items": items}
        with pytest.raises(EncodeError, match="items without bytes"):
            AvroSerializerSnapshot.of(schema)
        with pytest.raises(EncodeError, match="items without bytes"):
            read_avro(json.dumps(schema), DataInput(b"\0"))
