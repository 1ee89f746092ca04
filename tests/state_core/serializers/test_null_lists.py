"""Null rows of list and map columns: Arrow lets them have elements, which nobody sees."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from statelake.state_core.serializers.avro.schema_types import AvroNull
from statelake.state_core.serializers.basic.numbers import IntSerializer, LongSerializer
from statelake.state_core.serializers.basic.text import StringSerializer
from statelake.state_core.serializers.basic.values import NullValueSerializer
from statelake.state_core.serializers.composite.collections import ListSerializer, MapSerializer
from statelake.state_core.serializers.composite.optionals import NullableSerializer
from statelake.state_core.serializers.composite.structs import RowSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.sql.row_data import internal_snapshot
from statelake.state_core.serializers.sql.types.logical_type_parser import parse_logical_type
from tests.support.serializers.serializer_columns import decode, encode

OFFSETS = pa.array([0, 2, 5, 5, 6], pa.int32())
VALIDITY = [True, False, True, True]


def list_with_hidden_elements() -> pa.Array:
    """Four lists, of which the second is null and has three elements all the same."""
    elements = pa.array([1, 2, 7, 8, 9, 3], pa.int32())
    mask = pa.array([not valid for valid in VALIDITY])
    return pa.ListArray.from_arrays(OFFSETS, elements, mask=mask)


def map_with_hidden_entries() -> pa.Array:
    """The same of maps."""
    keys = pa.array(list("abcdef"), pa.string())
    values = pa.array([1, 2, 7, 8, None, 3], pa.int64())
    entries = pa.StructArray.from_arrays(
        [keys, values],
        fields=[pa.field("key", pa.string(), nullable=False), pa.field("value", pa.int64())],
    )
    bitmap = pa.py_buffer(np.packbits(VALIDITY, bitorder="little"))
    return pa.Array.from_buffers(
        pa.map_(pa.string(), pa.int64()), 4, [bitmap, OFFSETS.buffers()[1]], 1, children=[entries]
    )


def in_a_struct(column: pa.Array, name: str) -> pa.Array:
    """A struct with the column as its only field."""
    return pa.StructArray.from_arrays([column], [name])


def table_rows(sql: str) -> TypeSerializer:
    """The serializer of Flink SQL's rows of this type."""
    return internal_snapshot(parse_logical_type(sql)).restore_serializer()


def field_name(serializer: TypeSerializer) -> str:
    """The name of a struct's only field."""
    return str(serializer.arrow_type.field(0).name)


LIST = ListSerializer(IntSerializer())
MAP = MapSerializer(StringSerializer(), LongSerializer())


@pytest.mark.parametrize(
    ("serializer", "column"),
    [
        (NullableSerializer(LIST), list_with_hidden_elements()),
        (NullableSerializer(MAP), map_with_hidden_entries()),
        (RowSerializer([LIST]), list_with_hidden_elements()),
        (RowSerializer([MAP]), map_with_hidden_entries()),
        (table_rows("ROW<a ARRAY<INT>>"), list_with_hidden_elements()),
        (table_rows("ROW<a MAP<STRING, BIGINT>>"), map_with_hidden_entries()),
    ],
    ids=lambda case: repr(case) if isinstance(case, TypeSerializer) else "",
)
def test_hidden_elements_of_null_rows_are_not_written(serializer: Any, column: pa.Array) -> None:
    """A null row is written as null whatever lies behind it."""
    seen = pa.array(column.to_pylist(), column.type)
    if pa.types.is_struct(serializer.arrow_type):
        name = field_name(serializer)
        column, seen = in_a_struct(column, name), in_a_struct(seen, name)
    assert encode(serializer, column) == encode(serializer, seen)


@pytest.mark.parametrize("element", [NullValueSerializer(), AvroNull()])
def test_lists_of_elements_without_bytes(element: TypeSerializer) -> None:
    """At the end of the bytes they have more elements than bytes are left: this is no damage."""
    lists = MapSerializer(LongSerializer(), ListSerializer(element))
    value = struct.pack(">iqbi", 1, 7, 0, 3)
    column, inexact = decode(lists, [value, value])
    assert [[(key, len(items)) for key, items in row] for row in column.to_pylist()] == [
        [(7, 3)], [(7, 3)]
    ]  # fmt: skip
    assert inexact == [False, False]
