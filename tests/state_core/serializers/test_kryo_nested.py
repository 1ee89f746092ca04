"""Kryo within POJOs, tuples, rows, lists and maps: round trips, unknown classes, damaged bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import StateError
from statelake.state_core.formats.layout.keyed_layout import RowPart, RowWriter
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.basic.text import StringSerializer
from statelake.state_core.serializers.composite.collections import (
    DelimitedListSerializer,
    ListSerializer,
    MapSerializer,
)
from statelake.state_core.serializers.composite.pojo import PojoSerializer
from statelake.state_core.serializers.composite.structs import RowSerializer, TupleSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import ALL_PRESENT, Cursor
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer, written_by
from statelake.state_core.serializers.kryo.graph import Item
from statelake.state_core.serializers.kryo.wire import KryoVersion
from tests.support.savepoints.kryo_savepoint import kryo_snapshot

pytestmark = pytest.mark.usefixtures("own_registry")

LIST, UUID, ANYTHING = "java.util.List", "java.util.UUID", "java.lang.Object"
SHORT = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=65)
TEXTS = st.lists(st.text(max_size=5) | SHORT, max_size=4)
UUIDS = st.uuids().map(str)


def nested(java_class: str, flink: int) -> TypeSerializer:
    """The serializer of a field of that class."""
    with written_by(flink):
        return kryo_snapshot(java_class).restore_nested()


def kryo(java_class: str, value: Any, flink: int) -> bytes:
    """A value as that Flink's Kryo writes it."""
    version = KryoVersion(flink)
    return kryo_snapshot(java_class).values(version).write(Item(java_class, value), version)


def texts(values: list[str], flink: int) -> bytes:
    """A list of texts."""
    return kryo("java.util.ArrayList", [Item("java.lang.String", text) for text in values], flink)


def within(flink: int) -> list[TypeSerializer]:
    """A field of each kind of type, with a list of texts, a UUID, and a number behind both."""
    fields = [nested(LIST, flink), nested(UUID, flink), LongSerializer()]
    pojo = PojoSerializer("a.A", list(zip("abc", fields, strict=True)))
    return [
        TupleSerializer(fields), RowSerializer(fields), pojo, ListSerializer(pojo),
        DelimitedListSerializer(pojo), MapSerializer(StringSerializer(), pojo),
    ]  # fmt: skip


def enclosed(serializer: TypeSerializer, body: list[bytes]) -> bytes:
    """The fields in a value of a type."""
    pojo = b"\2" + b"".join(b"\0" + part for part in body)
    if isinstance(serializer, TupleSerializer):
        return b"".join(body)
    if isinstance(serializer, RowSerializer):
        return b"\0" + b"".join(body)
    if isinstance(serializer, ListSerializer):
        return b"\0\0\0\2" + pojo * 2
    if isinstance(serializer, DelimitedListSerializer):
        return pojo + b"," + pojo
    if isinstance(serializer, MapSerializer):
        return b"\0\0\0\1" + b"\2k" + b"\0" + pojo
    return pojo


def decoded(serializer: TypeSerializer, rows: list[bytes]) -> tuple[pa.Array, Cursor]:
    """The column of some values, and the cursor behind them."""
    bounds = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    data = np.frombuffer(b"".join(rows), np.uint8)
    cursor = Cursor(data, bounds[:-1].copy(), bounds[1:].copy(), lambda at: f"byte {at}")
    column = serializer.decode(cursor)
    cursor.check_at_end()
    column.validate(full=True)
    return column, cursor


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("flink", [1, 2])
@given(TEXTS, UUIDS, st.integers(-(2**63), 2**63 - 1))
def test_values_come_back_to_their_bytes(
    flink: int, at: int, tags: list[str], token: str, number: int
) -> None:
    """Of each type, by both versions of Flink, from their typed columns alone."""
    serializer = within(flink)[at]
    body = [texts(tags, flink), kryo(UUID, token, flink), number.to_bytes(8, "big", signed=True)]
    rows = [enclosed(serializer, body)] * 2
    column, cursor = decoded(serializer, rows)
    assert not cursor.inexact.any()
    assert token in str(column.to_pylist())
    written = RowWriter([RowPart(serializer, column)], 2, ALL_PRESENT, None).to_binary()
    assert written.to_pylist() == rows


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("flink", [1, 2])
def test_only_rows_with_an_unknown_class_are_bytes(flink: int, at: int) -> None:
    """Nothing tells where such a value ends; the rows before and behind it are typed."""
    serializer = within(flink)[at]
    token, number = kryo(UUID, "0" * 8 + "-0000" * 3 + "-" + "0" * 12, flink), bytes(8)
    known = enclosed(serializer, [texts(["a", "b"], flink), token, number])
    unknown = enclosed(serializer, [b"\1\0com.acme.Ca\xf2\1\5", token, number])
    column, cursor = decoded(serializer, [known, unknown, known])
    assert cursor.inexact.tolist() == [0, 1, 0]
    assert column.is_valid().to_pylist() == [True, False, True]


@pytest.mark.parametrize("at", range(6))
@given(
    TEXTS,
    UUIDS,
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(0, 10**6),
)
def test_damaged_bytes_are_values_or_bytes_or_errors_of_ours(
    at: int, tags: list[str], token: str, changes: list[tuple[int, int]], end: int
) -> None:
    """Whatever is changed or cut off: what is typed without exact bytes is written as it was."""
    serializer = within(1)[at]
    whole = enclosed(serializer, [texts(tags, 1), kryo(UUID, token, 1), bytes(8)])
    data = bytearray(whole)
    for place, byte in changes:
        data[place % len(data)] = byte
    for cut in (len(data), end % len(data)):
        row = bytes(data[:cut])
        try:
            column, cursor = decoded(serializer, [whole, row])
        except StateError:
            continue
        assert column.is_valid().to_pylist()[0]
        if not cursor.inexact[1]:
            written = RowWriter([RowPart(serializer, column)], 2, ALL_PRESENT, None).to_binary()
            assert written.to_pylist() == [whole, row]


@pytest.mark.parametrize("flink", [1, 2])
def test_uuids_of_other_forms_are_read_one_by_one(flink: int) -> None:
    """A null, and a number that is longer than it need be, among usual ones."""
    usual = kryo(UUID, "123e4567-e89b-12d3-a456-426614174000", flink)
    odd = [b"\0", b"T\1\x80\0\2"] if flink == 1 else [b"\0"]
    column, cursor = decoded(nested(UUID, flink), [usual, *odd, usual])
    values = column.to_pylist()
    assert values[0] == values[-1] == "123e4567-e89b-12d3-a456-426614174000"
    assert values[1:-1] == [None, "00000000-0000-0000-0000-000000000001"][: len(odd)]
    assert cursor.inexact.tolist() == [0, *(1 for _ in odd), 0]


def test_without_a_version_parts_stay_bytes() -> None:
    """The same bytes are other UUIDs to the other version."""
    assert isinstance(nested(UUID, 0), OpaqueSerializer)
    assert isinstance(nested("com.acme.Car", 1), OpaqueSerializer)
    assert not isinstance(nested(ANYTHING, 1), OpaqueSerializer)
