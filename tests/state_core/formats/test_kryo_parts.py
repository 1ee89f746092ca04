"""Values of Flink 1's Kryo for Flink 2: a column at a time as one by one, also of damaged bytes."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from statelake.state_core.errors import EncodeError, StateError, UnsupportedFormatError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.rewriting.kryo_parts import FEW, PartsOfKryo
from statelake.state_core.formats.rewriting.kryo_upgrade import (
    collection_of,
    for_flink_2,
    upgrade_rows,
)
from statelake.state_core.formats.rewriting.value_migration import rewritten_rows
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.composite.collections import (
    ListSerializerSnapshot,
    MapSerializerSnapshot,
)
from statelake.state_core.serializers.composite.namespaces import VoidNamespaceSerializer
from statelake.state_core.serializers.composite.structs import TupleSerializerSnapshot
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.columns import ALL_PRESENT
from statelake.state_core.serializers.framework.decoders import undecoded
from statelake.state_core.serializers.kryo.graph import Item
from statelake.state_core.serializers.kryo.java_types import JavaType
from statelake.state_core.serializers.kryo.snapshot import KryoSerializerSnapshot
from statelake.state_core.serializers.kryo.uuids import uuid_halves, uuid_texts
from statelake.state_core.serializers.kryo.wire import KryoVersion
from statelake.state_core.serializers.opaque.optional_map import write_raw_map
from statelake.state_core.serializers.type_spec import parse_type
from tests.support.savepoints.kryo_savepoint import kryo_snapshot

pytestmark = pytest.mark.usefixtures("own_registry")

UUID = kryo_snapshot().of_class("java.util.UUID")
ANYTHING = kryo_snapshot().of_class("java.lang.Object")
LONG = parse_type("Long")
FLINK_1, FLINK_2 = KryoVersion.FLINK_1, KryoVersion.FLINK_2
PAIR = TupleSerializerSnapshot.around(ANYTHING, UUID, LONG)
PAIR.tuple_class = "org.apache.flink.api.java.tuple.Tuple3"
TYPES: dict[str, TypeSerializerSnapshot] = {
    "uuid": UUID,
    "anything": ANYTHING,
    "pair": PAIR,
    "list": ListSerializerSnapshot.around(UUID),
    "map": MapSerializerSnapshot.around(UUID, PAIR),
}
UUIDS = st.uuids().map(lambda value: Item("java.util.UUID", str(value)))
TEXTS = st.text(max_size=40).map(lambda value: Item("java.lang.String", value))
ITEMS = UUIDS | TEXTS | st.lists(UUIDS | TEXTS | st.none(), max_size=3).map(
    lambda value: Item("java.util.ArrayList", value)
)  # fmt: skip


def written(kind: TypeSerializerSnapshot, draw: Any) -> bytes:
    """A drawn value of a type, as Flink 1 writes it."""
    if kind is UUID:
        return UUID.values(FLINK_1).write(draw(UUIDS), FLINK_1)
    if kind is ANYTHING:
        return ANYTHING.values(FLINK_1).write(draw(ITEMS | st.none()), FLINK_1)
    if kind is LONG:
        return bytes(draw(st.binary(min_size=8, max_size=8)))
    if kind is PAIR:
        return b"".join(written(each, draw) for each in (ANYTHING, UUID, LONG))
    count = draw(st.integers(0, 3))
    out = DataOutput()
    out.write_int(count)
    for _ in range(count):
        if isinstance(kind, MapSerializerSnapshot):
            out.write_bytes(written(UUID, draw))
            null = draw(st.booleans())
            out.write_boolean(null)
            out.write_bytes(b"" if null else written(PAIR, draw))
        else:
            out.write_bytes(written(UUID, draw))
    return out.to_bytes()


@st.composite
def states(draw: Any) -> tuple[TypeSerializerSnapshot, StateRows]:
    """A type, and rows of a state of some kind whose values have it."""
    value = TYPES[draw(st.sampled_from(sorted(TYPES)))]
    kind = draw(st.sampled_from([StateKind.VALUE, StateKind.LIST, StateKind.MAP]))
    with_ttl = draw(st.booleans())

    def one() -> bytes:
        last_access = bytes(range(8)) if with_ttl else b""
        return last_access + written(value, draw)

    def entry() -> bytes:
        if kind is StateKind.MAP:
            return b"\1" if draw(st.booleans()) else b"\0" + one()
        return b",".join(
            one() for _ in range(draw(st.integers(1, 3)) if kind is StateKind.LIST else 1)
        )

    stored = [entry() for _ in range(draw(st.integers(1, FEW + 2)))]
    return value, rows_of(kind, value, stored, with_ttl=with_ttl)


def rows_of(
    kind: StateKind, value: TypeSerializerSnapshot, stored: list[bytes], *, with_ttl: bool = False
) -> StateRows:
    """Rows with these bytes."""
    with undecoded():
        layout = KeyedLayout(
            kind, LongSerializer(), VoidNamespaceSerializer(), value.restore_serializer(),
            LongSerializer() if kind is StateKind.MAP else None, with_ttl,
        )  # fmt: skip
    known = {"key_group": [0] * len(stored), "key": list(range(len(stored)))}
    arrays = [pa.array(known.get(field.name, [None] * len(stored)), field.type)
              for field in layout.schema]  # fmt: skip
    rows = StateRows(0, "ids", layout, pa.RecordBatch.from_arrays(arrays, schema=layout.schema))
    assert layout.value is not None
    return rewritten_rows(rows, layout.value, pa.array(stored, pa.large_binary()))


def upgraded(value: TypeSerializerSnapshot, rows: StateRows) -> list[bytes] | str:
    """The new bytes of each value, or the error."""
    try:
        made = upgrade_rows(rows, value, for_flink_2(value, {}), plain=True)
    except StateError as error:
        return str(error)
    return list(made.layout.value_writer(made.batch).to_binary().to_pylist())


def one_by_one(value: TypeSerializerSnapshot, rows: StateRows) -> list[bytes] | str:
    """The same without columns."""

    def refused(*_: object) -> None:
        raise EncodeError("one by one")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartsOfKryo, "located", refused)
        return upgraded(value, rows)


@given(states())
def test_a_column_at_a_time_and_one_by_one_give_the_same(
    drawn: tuple[TypeSerializerSnapshot, StateRows],
) -> None:
    """In values, lists and maps, with times of last access or not."""
    value, rows = drawn
    made = upgraded(value, rows)
    assert not isinstance(made, str)
    assert made == one_by_one(value, rows)


@given(states(), st.data())
def test_damaged_values_give_the_same_errors(
    drawn: tuple[TypeSerializerSnapshot, StateRows], data: st.DataObject
) -> None:
    """Or the same values, where the damage makes sense."""
    value, rows = drawn
    stored = rows.layout.value_writer(rows.batch).to_binary().to_pylist()
    at = data.draw(st.integers(0, len(stored) - 1))
    place = data.draw(st.integers(0, len(stored[at]) - 1))
    stored[at] = data.draw(st.sampled_from([
        stored[at][:place], stored[at] + b",",
        stored[at][:place] + bytes([data.draw(st.integers(0, 255))]) + stored[at][place + 1 :],
    ]))  # fmt: skip
    try:
        rows = rows_of(rows.layout.kind, value, stored, with_ttl=rows.layout.with_ttl)
    except StateError:  # they are not even rows
        reject()
    assert upgraded(value, rows) == one_by_one(value, rows)


@given(st.lists(st.uuids().map(str), max_size=2 * FEW))
def test_uuids_are_rewritten_without_their_objects(values: list[str]) -> None:
    """Their bytes are those that the objects have, in both versions."""
    items = [Item("java.util.UUID", value) for value in values]
    old, new = UUID.values(FLINK_1), UUID.values(FLINK_2)
    rows = rows_of(StateKind.VALUE, UUID, [old.write(item, FLINK_1) for item in items])
    stored = rows.layout.value_writer(rows.batch).to_binary()
    for places in PartsOfKryo(UUID).located(rows, stored):
        assert (places.uuids is not None) is (len(items) >= FEW)
    assert upgraded(UUID, rows) == [new.write(item, FLINK_2) for item in items]
    halves = uuid_halves(pa.array(values, pa.string()))
    assert (halves is None) is (not values)
    if halves is not None:
        assert uuid_texts(halves, ALL_PRESENT).to_pylist() == values


@pytest.mark.parametrize("text", ["", "0" * 36, "00000000-0000-0000-0000-00000000000G", "Z" * 36])
def test_texts_that_are_no_uuid_have_no_halves(text: str) -> None:
    """They are written one by one, which says what is wrong."""
    assert uuid_halves(pa.array([text, "00000000-0000-0000-0000-000000000000"])) is None


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("java.time.Instant", (1700, 123_456_789), struct.pack(">qi", 1700, 123_456_789)),
        ("java.time.Instant", (1 << 40, 5), struct.pack(">qi", 1 << 40, 5)),
        ("java.sql.Timestamp", (-5000, 999_999_999), struct.pack(">qi", -4001, 999_999_999)),
        ("java.sql.Date", -(10**15), struct.pack(">q", -(10**15))),
        ("java.sql.Time", 259_200_005, struct.pack(">q", 259_200_005)),
        ("java.util.Date", -(10**15), struct.pack(">q", -(10**15))),
        ("java.math.BigInteger", 10**50, struct.pack(">i", 21 + 4) + (10**50).to_bytes(21, "big")),
        ("java.lang.String", "\ud800", b"\2\x80\xb0\3"),
        ("java.lang.Character", "\ud800", b"\xd8\0"),
    ],
)  # fmt: skip
def test_elements_of_collections_are_exact(name: str, value: Any, stored: bytes) -> None:
    """To the nanosecond, in any year, of any size: also what no column holds."""
    lists = kryo_snapshot().of_class("java.util.List")
    old = lists.values(FLINK_1).write(Item("java.util.ArrayList", [Item(name, value)]), FLINK_1)
    after = for_flink_2(
        lists, {"": collection_of(lists, JavaType("java.util.List", (JavaType(name),)))}
    )
    rows = rows_of(StateKind.VALUE, lists, [old])
    made = upgrade_rows(rows, lists, after, plain=True)
    (new,) = made.layout.value_writer(made.batch).to_binary().to_pylist()
    assert new == b"\0" + struct.pack(">i", 1) + b"\0" + stored


def test_an_element_of_another_class_than_the_new_job_has_is_refused() -> None:
    """It is not written as a value of the other, of the same width."""
    lists = kryo_snapshot().of_class("java.util.List")
    item = Item("java.util.ArrayList", [Item("java.time.Instant", (1, 5))])
    rows = rows_of(StateKind.VALUE, lists, [lists.values(FLINK_1).write(item, FLINK_1)])
    other = collection_of(lists, JavaType("java.util.List", (JavaType("java.sql.Timestamp"),)))
    with pytest.raises(EncodeError, match=r"a java\.time\.Instant where there should be"):
        upgrade_rows(rows, lists, for_flink_2(lists, {"": other}), plain=True)


def test_a_shared_object_does_not_become_gigabytes() -> None:
    """Flink 1 refers to it by a byte or two, and Flink 2's lists have it each time."""
    lists = kryo_snapshot().of_class("java.util.List")
    declared = JavaType("java.util.List", (JavaType("java.lang.String"),))
    after = for_flink_2(lists, {"": collection_of(lists, declared)})

    def upgraded_list(text: str, count: int) -> bytes:
        item = Item("java.util.ArrayList", [Item("java.lang.String", text)] * count)
        old = lists.values(FLINK_1).write(item, FLINK_1)
        made = upgrade_rows(rows_of(StateKind.VALUE, lists, [old]), lists, after, plain=True)
        return bytes(made.layout.value_writer(made.batch).to_binary()[0].as_py())

    assert len(upgraded_list("shipped", 10_000)) > 80_000
    with pytest.raises(EncodeError, match="shared objects expand to more than"):
        upgraded_list("x" * 100_000, 100_000)


def test_default_serializers_of_the_job_are_refused() -> None:
    """Whoever read a `Date` in the usual form would write another one."""
    out = DataOutput()
    out.write_utf("java.util.Date")
    entry = UUID.maps[0][0]
    for entries in ((entry,), (), (replace(entry, name="java.util.Date"),)):
        write_raw_map(entries, out)
    own = KryoSerializerSnapshot()
    own.read_snapshot(2, DataInput(out.to_bytes()))
    rows = rows_of(StateKind.VALUE, own, [b"\1\0java.util.Dat\xe5\1\5"])
    with pytest.raises(UnsupportedFormatError, match="default serializers of the job's own"):
        upgrade_rows(rows, own, for_flink_2(own, {}), plain=True)


def test_numbers_of_kryo_end_where_their_bytes_do() -> None:
    """A number cut off is an error at its place."""
    for data in (b"", b"\x80", b"\xff\xff\xff\xff\xff"):
        with pytest.raises(StateError):
            ANYTHING.values(FLINK_1).read_next(DataInput(data), FLINK_1)
