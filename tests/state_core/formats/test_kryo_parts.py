"""Values of Flink 1's Kryo for Flink 2: a column at a time as one by one, also of damaged bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from statelake.state_core.errors import (
    CorruptSnapshotError,
    EncodeError,
    StateError,
    UnsupportedFormatError,
)
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.keyed_layout import (
    NAMESPACE,
    USER_KEY,
    KeyedLayout,
    LengthTrailer,
)
from statelake.state_core.formats.rewriting import kryo_upgrade
from statelake.state_core.formats.rewriting.kryo_parts import PartsOfKryo
from statelake.state_core.formats.rewriting.kryo_upgrade import (
    _element,
    collection_of,
    for_flink_2,
    upgrade_keys,
    upgrade_rows,
)
from statelake.state_core.formats.rewriting.value_migration import rewritten_rows
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.kernels.kryo import WRITTEN
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.basic.enums import EnumSerializerSnapshot
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.basic.text import StringSerializer
from statelake.state_core.serializers.composite.collections import (
    ListSerializerSnapshot,
    MapSerializerSnapshot,
)
from statelake.state_core.serializers.composite.optionals import NullableSerializerSnapshot
from statelake.state_core.serializers.composite.pojo_snapshot import PojoSerializerSnapshot
from statelake.state_core.serializers.composite.structs import TupleSerializerSnapshot
from statelake.state_core.serializers.composite.wrappers import VoidNamespaceSerializer
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.columns import ALL_PRESENT
from statelake.state_core.serializers.framework.opaque_values import as_key, restore_key, undecoded
from statelake.state_core.serializers.kryo import serializer as kryo_serializer
from statelake.state_core.serializers.kryo.decoding import (
    KryoDecoder,
    KryoValues,
    declare_classes,
)
from statelake.state_core.serializers.kryo.forms import decimal_parts, decimal_text
from statelake.state_core.serializers.kryo.graph import Item
from statelake.state_core.serializers.kryo.java_types import JavaType, parse_java_type
from statelake.state_core.serializers.kryo.serializer import KryoSerializer, NestedKryoSerializer
from statelake.state_core.serializers.kryo.snapshot import KryoSerializerSnapshot
from statelake.state_core.serializers.kryo.tables import FEW, Objects, read_objects
from statelake.state_core.serializers.kryo.uuids import NO_UUID, uuid_halves, uuid_texts
from statelake.state_core.serializers.kryo.wire import KryoVersion
from statelake.state_core.serializers.opaque.optional_map import write_raw_map
from statelake.state_core.serializers.type_spec import parse_type
from tests.support.savepoints.kryo_meaning import values_said
from tests.support.savepoints.kryo_savepoint import kryo_snapshot
from tests.support.serializers.serializer_columns import cursor_over, encode

pytestmark = pytest.mark.usefixtures("own_registry")

UTC = timezone.utc
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
TEXTS = st.text(max_size=70).map(lambda value: Item("java.lang.String", value))
ASCII = st.text("ab", min_size=28, max_size=66).map(lambda value: Item("java.lang.String", value))
INTS, LONGS = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
NANOS = st.sampled_from([0, 1, 999_999_999])
SECONDS = st.integers(-31_557_014_167_219_200, 31_556_889_864_403_199)  # of Java's instants
DATES = (st.integers(-9999, 9999), st.integers(1, 12), st.integers(1, 28))
CLOCK = (st.integers(0, 23), *[st.sampled_from([0, 1, 59])] * 2, NANOS)
# values of each class that kernels know, and of some that they do not
SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    "java.lang.Boolean": st.booleans(),
    "java.lang.Byte": st.integers(-128, 127),
    "java.lang.Character": st.characters(max_codepoint=0xD7FF),
    "java.lang.Short": st.integers(-(2**15), 2**15 - 1),
    "java.lang.Integer": INTS,
    "java.lang.Long": LONGS,
    "java.lang.Float": st.floats(width=32, allow_nan=False),
    "java.lang.Double": st.floats(),
    "java.lang.StringBuilder": st.text(max_size=40),
    "java.net.URI": st.text("abc:/", min_size=2),
    "java.math.BigInteger": st.integers(-(2**70), 2**70),
    "java.math.BigDecimal": st.tuples(st.integers(-(2**70), 2**70), st.integers(-9, 9)),
    "java.util.Date": LONGS,
    "java.sql.Timestamp": st.tuples(st.integers(-(10**9), 10**9).map(lambda s: s * 1000), NANOS),
    "java.time.Instant": st.tuples(SECONDS, NANOS),
    "java.time.Duration": st.tuples(LONGS, NANOS),
    "java.time.LocalDate": st.tuples(*DATES),
    "java.time.LocalTime": st.tuples(*CLOCK),
    "java.time.LocalDateTime": st.tuples(*DATES, *CLOCK),
    "java.time.Period": st.tuples(INTS, INTS, INTS),
    "java.util.regex.Pattern": st.tuples(st.text("ab"), st.just(0)),
    "[B": st.binary(max_size=20),
    "[Z": st.lists(st.booleans(), max_size=3),
    "[S": st.lists(st.integers(-(2**15), 2**15 - 1), max_size=3),
    "[I": st.lists(INTS, max_size=3),
    "[J": st.lists(LONGS, max_size=3),
    "[D": st.lists(st.floats(allow_nan=False), max_size=3),
    "[Ljava.lang.String;": st.lists(TEXTS | st.none(), max_size=3),
    "com.acme.Kind": st.sampled_from(["SMALL", "LARGE"]),
}
LEAVES = st.one_of(
    TEXTS, ASCII, UUIDS,
    *(value.map(lambda each, name=name: Item(name, each)) for name, value in SIMPLE.items()),
)  # fmt: skip
CLASSES = {
    "com.acme.Kind": {"enum": ["SMALL", "LARGE"]},
    "com.acme.Point": {"fields": {"x": "int", "y": "double"}, "final": True},
    "com.acme.Shop": {
        "fields": {
            "at": "com.acme.Point", "kind": "com.acme.Kind", "name": "String", "any": "Object",
            "tags": "List<String>", "stock": "Map<String, List<Long>>", "id": "long",
        }
    },
}  # fmt: skip
COLLECTIONS = ["ArrayList", "HashSet", "TreeSet", "PriorityQueue", "Arrays$ArrayList",
               "ImmutableCollections$ListN"]  # fmt: skip
MAPS = ["HashMap", "TreeMap", "ImmutableCollections$MapN"]


@st.composite
def containers(draw: Any, inner: st.SearchStrategy[Item | None]) -> Item:
    """A collection, a map, or an object with fields; of equal or of different classes."""
    same = draw(st.sampled_from([TEXTS, UUIDS, LEAVES, TEXTS | st.none(), inner]))
    name = draw(st.sampled_from([*COLLECTIONS, *MAPS, "Optional", "Collections$EmptyList", "Shop"]))
    if name == "Shop":
        texts, longs = st.lists(TEXTS | st.none(), max_size=3), st.lists(LONGS, max_size=2)
        tags = texts.map(lambda each: Item("java.util.ArrayList", each))
        stock = st.lists(st.tuples(TEXTS, longs), max_size=2).map(lambda pairs: Item(
            "java.util.HashMap", [(key, Item("java.util.ArrayList", [
                Item("java.lang.Long", number) for number in numbers
            ])) for key, numbers in pairs]
        ))  # fmt: skip
        point = st.tuples(INTS, st.floats(allow_nan=False)).map(
            lambda pair: Item("com.acme.Point", dict(zip("xy", pair, strict=True)))
        )
        kinds = st.sampled_from(["SMALL", "LARGE"]).map(lambda each: Item("com.acme.Kind", each))
        fields = {"at": st.none() | point, "kind": st.none() | kinds, "name": st.none() | TEXTS,
                  "any": inner, "tags": st.none() | tags, "stock": st.none() | stock,
                  "id": LONGS}  # fmt: skip
        return Item("com.acme.Shop", draw(st.fixed_dictionaries(fields)))
    if name == "Optional":
        return Item("java.util.Optional", [draw(inner)])
    if name == "Collections$EmptyList":
        return Item("java.util.Collections$EmptyList", [])
    parts = draw(st.lists(same, max_size=4))
    if parts and draw(st.booleans()):
        parts.append(parts[0])  # which is written once
    if "Immutable" in name:
        parts = [part for part in parts if part is not None]
    if name in MAPS:
        return Item(f"java.util.{name}", list(zip(parts, reversed(parts), strict=True)))
    return Item(f"java.util.{name}", parts)


ITEMS = st.recursive(LEAVES | st.none(), containers, max_leaves=12)


@pytest.fixture(autouse=True)
def _declared(own_registry: None) -> None:  # noqa: ARG001 - which forgets them again
    declare_classes({"flink": 1, "classes": CLASSES})


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
    """Or the same values, where the damage makes sense: those that it makes."""
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
    made = upgraded(value, rows)
    assert made == one_by_one(value, rows)
    if not isinstance(made, str):
        before = values_said(stored, rows.layout, value, FLINK_1)
        assert values_said(made, rows.layout, value, FLINK_2) == before


@st.composite
def keys(draw: Any) -> tuple[dict[str, TypeSerializerSnapshot], StateRows]:
    """The types of namespaces and of a map's keys, and rows with both, some of them damaged."""
    kind = draw(st.sampled_from([StateKind.VALUE, StateKind.MAP, StateKind.TIMERS]))
    types = {NAMESPACE: TYPES[draw(st.sampled_from(["uuid", "anything", "pair"]))]}
    if kind is StateKind.MAP:
        types[USER_KEY] = draw(st.sampled_from([UUID, PAIR, LONG]))
    key = draw(st.sampled_from([LongSerializer(), StringSerializer()]))
    with undecoded(), as_key():
        parts = {
            name: each.restore_nested() if kind is StateKind.TIMERS else each.restore_serializer()
            for name, each in types.items()
        }
    value = None if kind is StateKind.TIMERS else LongSerializer()
    layout = KeyedLayout(kind, key, parts[NAMESPACE], value, parts.get(USER_KEY))

    def stored() -> bytes:
        out = DataOutput()
        if kind is StateKind.TIMERS:
            out.write_long(draw(LONGS))
        own = DataOutput()
        key.write("k" * draw(st.integers(0, 300)) if key.name == "String" else draw(LONGS), own)
        namespace = written(types[NAMESPACE], draw)
        for part in (own.to_bytes(), namespace):
            out.write_bytes(part)
            if layout.ambiguous:
                LengthTrailer().write(len(part), out)
        if USER_KEY in types:
            out.write_bytes(written(types[USER_KEY], draw))
        data = out.to_bytes()
        if draw(st.integers(0, 15)) == 0:
            place = draw(st.integers(0, len(data) - 1))
            data = data[:place] + bytes([draw(st.integers(0, 255))]) + data[place + 1 :]
        return data

    held = [stored() for _ in range(draw(st.integers(1, FEW + 2)))]
    try:
        columns = layout.decode_keys(cursor_over(held))
    except StateError:  # they are not even rows
        reject()
    arrays = [columns.get(field.name, pa.nulls(len(held), field.type)) for field in layout.schema
              if field.name != "key_group"]  # fmt: skip
    arrays = [pa.array([0] * len(held), pa.int32()), *arrays]
    batch = pa.RecordBatch.from_arrays(arrays, schema=layout.schema)
    return types, StateRows(0, "ids", layout, batch)


@settings(max_examples=200)
@given(keys())
@pytest.mark.full
def test_namespaces_at_once_and_one_by_one_are_the_same(
    drawn: tuple[dict[str, TypeSerializerSnapshot], StateRows],
) -> None:
    """Of values, maps and timers, behind keys with lengths and without; also of damaged bytes."""
    before, rows = drawn
    after = {name: for_flink_2(each, {}) for name, each in before.items()}

    def new_keys() -> list[bytes] | str:
        try:
            made = upgrade_keys(rows, before, after, plain=True)
        except StateError as error:
            return str(error)
        return list(made.layout.key_writer(made.batch).to_binary().to_pylist())

    def refused(*_: object) -> None:
        raise EncodeError("one by one")

    found = new_keys()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kryo_upgrade, "_with_namespaces_at_once", refused)
        assert found == new_keys()


def test_namespaces_are_rewritten_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is looked at by itself."""
    stored = [bytes(8) + UUID.values(FLINK_1).write(Item("java.util.UUID", NO_UUID), FLINK_1)] * FEW
    layout = KeyedLayout(StateKind.VALUE, LongSerializer(), restore_key(UUID), LongSerializer())
    columns = layout.decode_keys(cursor_over(stored))
    arrays = [columns.get(field.name, pa.nulls(FEW, field.type)) for field in layout.schema]
    arrays[0] = pa.array([0] * FEW, pa.int32())
    rows = StateRows(0, "ids", layout, pa.RecordBatch.from_arrays(arrays, schema=layout.schema))
    monkeypatch.setattr(kryo_upgrade, "_with_namespaces_one_by_one", pytest.fail)
    after = {NAMESPACE: for_flink_2(UUID, {})}
    made = upgrade_keys(rows, {NAMESPACE: UUID}, after, plain=True)
    assert (
        made.layout.key_writer(made.batch).to_binary().to_pylist()
        == [bytes(8) + UUID.values(FLINK_2).write(Item("java.util.UUID", NO_UUID), FLINK_2)] * FEW
    )


# what Kryo 2.24 reads into a field, and no object of Java's has
IMPOSSIBLE = [
    ("java.time.LocalDate", "001d0202d01f"),  # month 514, of which a byte would be 2
    ("java.time.LocalDate", "001e0002d01f"),  # February 30
    ("java.time.LocalDate", "001d0002ce1f"),  # February 29, 2023
    ("java.time.LocalDate", "00010001feffffff0f"),  # year 2147483647
    ("java.time.LocalTime", "05ec0006"),  # minute -20, with which the bytes of Kryo 5 end
    ("java.time.LocalTime", "18000000"),
    ("java.time.LocalTime", "0c1e0100"),  # nanosecond -1
    ("java.time.LocalTime", "0c1e80a8d6b90700"),  # a whole second of them
    ("java.time.LocalDateTime", "0100f00002d01f010102c03e03"),
    ("java.time.Instant", "0100"),
    ("java.time.Instant", "00feffffffffffffff7f"),
    ("java.time.Duration", "80a8d6b90702"),
    ("java.time.OffsetDateTime", "0101003d0002d01f01010208030100"),
    ("java.time.OffsetTime", "01f8f90d0101020803"),
    ("java.time.ZoneOffset", "f8f90d"),  # 127 quarters of an hour: Kryo 5's byte for seconds
    ("java.time.Year", "feffffff0f"),
    ("java.time.YearMonth", "8404d01f"),  # month 258
    ("java.time.MonthDay", "3c04"),
    ("java.sql.Timestamp", "00ffffffff07"),
]


@pytest.mark.parametrize("count", [1, FEW])
@pytest.mark.parametrize(("name", "content"), IMPOSSIBLE)
def test_times_that_java_does_not_have_are_refused(name: str, content: str, count: int) -> None:
    """Kryo 5 would have no bytes for them, or those of another time."""
    kryo = kryo_snapshot().of_class(name)
    values = kryo.values(FLINK_1)
    stored = bytes([values.classes.numbers[name] + 2, 1]) + bytes.fromhex(content)
    item = values.read(stored)
    assert item is not None
    told = upgraded(kryo, rows_of(StateKind.VALUE, kryo, [stored] * count))
    assert told == f"state 'ids', key group 0, row 0: {item.value!r} is no {name}"
    cursor = cursor_over([stored] * count)
    KryoSerializer(name, KryoDecoder(values, JavaType(name))).decode(cursor)
    assert cursor.inexact.all()


# times with a serializer of Flink's own
OF_FLINK = {"java.sql.Timestamp", *map("java.time.{}".format, (
    "Instant", "LocalDate", "LocalTime", "LocalDateTime"
))}  # fmt: skip


@pytest.mark.parametrize("count", [1, FEW])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(each for each in IMPOSSIBLE if each[0] in OF_FLINK),
        ("java.time.LocalDateTime", "0100ff000ce41e011535d00f11"),  # day 255, which no byte has
    ],
)
def test_times_that_java_does_not_have_are_refused_for_flinks_own_serializers(
    name: str, content: str, count: int
) -> None:
    """Java refuses such a value when the job restores it."""
    kryo = kryo_snapshot().of_class(name)
    values = kryo.values(FLINK_1)
    stored = bytes([values.classes.numbers[name] + 2, 1]) + bytes.fromhex(content)
    item = values.read(stored)
    assert item is not None
    rows = rows_of(StateKind.VALUE, kryo, [stored] * count)
    target = parse_type(name.removeprefix("java.time.").removeprefix("java.sql."))
    with pytest.raises(EncodeError) as error:
        upgrade_rows(rows, kryo, for_flink_2(kryo, {"": target}), plain=True)
    assert str(error.value) == f"state 'ids', key group 0, row 0: {item.value!r} is no {name}"


ODD = [
    ("java.lang.Boolean", "0502", False),
    (
        "java.sql.Timestamp",
        "5101e30880cab5ee01",
        datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC),
    ),
]


@pytest.mark.parametrize("count", [1, FEW])
@pytest.mark.parametrize(("name", "content", "expected"), ODD)
def test_odd_bytes_are_read_as_kryo_does(
    name: str, content: str, expected: Any, count: int
) -> None:
    """A flag is true if it is 1; nanoseconds belong to the second of the milliseconds."""
    kryo, old = kryo_snapshot().of_class(name), bytes.fromhex(content)
    new = upgraded(kryo, rows_of(StateKind.VALUE, kryo, [old] * count))
    for version, stored in ((FLINK_1, [old] * count), (FLINK_2, new)):
        serializer = KryoSerializer(name, KryoDecoder(kryo.values(version), JavaType(name)))
        assert serializer.decode(cursor_over(list(stored))).to_pylist() == [expected] * count


def test_a_number_without_bytes_is_refused() -> None:
    """As Java refuses it, where 0 has a byte."""
    with pytest.raises(CorruptSnapshotError, match="a number without bytes"):
        ANYTHING.of_class("java.math.BigInteger").values(FLINK_1).read(bytes.fromhex("570101"))


@given(st.lists(ITEMS, min_size=FEW, max_size=2 * FEW))
def test_objects_are_rewritten_as_one_by_one(items: list[Item | None]) -> None:
    """Their bytes are those that Kryo 5 writes; only classes without a kernel are read as items."""
    values = ANYTHING.values(FLINK_1)
    stored = [values.write(item, FLINK_1) for item in items]
    data, ends = np.frombuffer(b"".join(stored), np.uint8), np.cumsum(list(map(len, stored)))
    for objects in read_objects(values, data, ends - list(map(len, stored)), ends, str):
        assert objects.ends.tolist() == ends.tolist()
        for item in objects.others.values():
            assert {"java.time.Period", "java.util.regex.Pattern"} & classes_in(item)
        roots = objects.roots[objects.roots >= 0]
        out, sizes, told = objects.parts.written(roots, FLINK_2, values.classes)
        wanted = [
            values.write(values.read(each), FLINK_2)
            for each, root in zip(stored, objects.roots.tolist(), strict=True)
            if root >= 0
        ]
        assert (told == WRITTEN).all()
        assert sizes.tolist() == list(map(len, wanted))
        assert out.tobytes() == b"".join(wanted)


@given(st.lists(ITEMS, min_size=1, max_size=4), st.lists(st.integers(0, 9), max_size=12))
def test_elements_are_written_each_by_itself(items: list[Item | None], order: list[int]) -> None:
    """Also what an element before shares with it, of which its own bytes had only a number."""
    shared = [items[place % len(items)] for place in order]
    lists = [Item("java.util.ArrayList", [Item("java.util.ArrayList", [item]) for item in shared])]
    values = ANYTHING.values(FLINK_1)
    stored = [values.write(item, FLINK_1) for item in lists * FEW]
    data, ends = np.frombuffer(b"".join(stored), np.uint8), np.cumsum(list(map(len, stored)))
    for objects in read_objects(values, data, ends - list(map(len, stored)), ends, str):
        roots = objects.roots[objects.roots >= 0]
        members = objects.parts.elements(roots)[1]
        out, sizes, told = objects.parts.written(members, FLINK_2, values.classes)
        wanted = [
            values.write(member, FLINK_2)
            for each, root in zip(stored, objects.roots.tolist(), strict=True)
            if root >= 0
            for member in getattr(values.read(each), "value", ())
        ]
        pieces = np.split(out, np.cumsum(sizes))
        for piece, right, why in zip(pieces, wanted, told.tolist(), strict=False):
            assert why != WRITTEN or piece.tobytes() == right


POINT = PojoSerializerSnapshot.of(
    "com.acme.Point", {"x": parse_type("Integer"), "y": parse_type("Double")}
)
KIND = EnumSerializerSnapshot.of("com.acme.Kind", ["SMALL", "LARGE"])
LISTS, MAPS_OF = (kryo_snapshot().of_class(f"java.util.{name}") for name in ("List", "Map"))
SHOP = PojoSerializerSnapshot.of("com.acme.Shop", {
    "at": POINT, "kind": KIND, "name": parse_type("String"), "id": LONG, "any": ANYTHING,
    "tags": collection_of(LISTS, parse_java_type("List<String>")),
    "stock": MapSerializerSnapshot.around(parse_type("String"), LISTS),
})  # fmt: skip
OF_OWN = ("Boolean", "Character", "Double", "Float", "Long", "String", "UUID", "Instant", "byte[]",
          "java.util.Date", "java.sql.Timestamp", "java.math.BigDecimal",
          "java.math.BigInteger", "int[]")  # fmt: skip


@st.composite
def for_own(draw: Any) -> tuple[TypeSerializerSnapshot, TypeSerializerSnapshot, list[Item | None]]:
    """The type of collections by Kryo, that of Flink 2, and values with null in them."""
    name = draw(st.sampled_from([*OF_OWN, "Kind", "Point", "Shop"]))
    if name in ("Kind", "Point", "Shop"):
        element: TypeSerializerSnapshot = {"Kind": KIND, "Point": POINT, "Shop": SHOP}[name]
        points = st.builds(lambda x, y: Item("com.acme.Point", {"x": x, "y": y}), INTS, st.floats())
        kinds = st.sampled_from(["SMALL", "LARGE"]).map(lambda each: Item("com.acme.Kind", each))
        own = {"Kind": kinds, "Point": points, "Shop": containers(LEAVES)}[name].filter(
            lambda item: item.java_class == f"com.acme.{name}"
        )
    else:
        element = _element(LISTS, parse_java_type(name))
        java_class = parse_java_type(name).name
        strategies = {"java.lang.String": TEXTS, "java.util.UUID": UUIDS}
        strategies |= {
            each: value.map(lambda value, each=each: Item(each, value))
            for each, value in SIMPLE.items()
        }
        own = strategies.get(java_class, st.none())
    lists = st.lists(own | st.none(), max_size=3)
    if draw(st.booleans()):
        names = st.sampled_from(["ArrayList", "Arrays$ArrayList", "TreeSet"])
        values = st.builds(lambda name, each: Item(f"java.util.{name}", each), names, lists)
        nullable = NullableSerializerSnapshot.of(element)
        kryo, after = LISTS, ListSerializerSnapshot.around(nullable)
    else:
        pairs = st.lists(st.tuples(TEXTS, own | st.none()), max_size=3)
        kryo, values = MAPS_OF, pairs.map(lambda each: Item("java.util.HashMap", each))
        after = MapSerializerSnapshot.around(parse_type("String"), element)
    items = draw(st.lists(values | st.none(), min_size=FEW, max_size=FEW + 2))
    return kryo, NullableSerializerSnapshot.of(after), items


@given(for_own())
def test_objects_for_serializers_of_flinks_own_are_written_as_each_is(
    drawn: tuple[KryoSerializerSnapshot, TypeSerializerSnapshot, list[Item | None]],
) -> None:
    """Collections of numbers, times, POJOs and objects that stay Kryo's; also null in them."""
    kryo, target, items = drawn
    rows = rows_of(
        StateKind.VALUE, kryo, [kryo.values(FLINK_1).write(each, FLINK_1) for each in items]
    )
    after = for_flink_2(kryo, {"": target})

    def new() -> list[bytes] | str:
        try:
            made = upgrade_rows(rows, kryo, after, plain=True)
        except StateError as error:
            return str(error)
        return list(made.layout.value_writer(made.batch).to_binary().to_pylist())

    def none_at_once(_: object, __: str, objects: Objects) -> tuple[Any, ...]:
        sizes = np.zeros(len(objects.roots), np.int64)
        return np.empty(0, np.uint8), sizes, sizes != 0

    many = new()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kryo_upgrade._Writers, "_write_columns", none_at_once)
        assert many == new()


def test_objects_that_become_pojos_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is looked at by itself, nor are times in a list."""
    monkeypatch.setattr(kryo_upgrade._Writers, "write", pytest.fail)
    point = Item("com.acme.Point", {"x": 1, "y": 0.5})
    instant = Item("java.time.Instant", (5, 1000))
    for element, item in ((POINT, point), (parse_type("Instant"), instant)):
        stored = LISTS.values(FLINK_1).write(Item("java.util.ArrayList", [item, None]), FLINK_1)
        target = ListSerializerSnapshot.around(NullableSerializerSnapshot.of(element))
        rows = rows_of(StateKind.VALUE, LISTS, [stored] * FEW)
        upgrade_rows(rows, LISTS, for_flink_2(LISTS, {"": target}), plain=True)


OF_COLUMNS = {"com.acme.Shop": "com.acme.Shop", "com.acme.Kind": "com.acme.Kind",
              "java.lang.Object": "java.lang.Object", "java.util.Optional": "Optional<String>",
              "java.util.List": "List<Instant>", "java.util.Set": "Set<com.acme.Kind>",
              "java.util.Map": "Map<String, com.acme.Shop>", "[Ljava.lang.String;": "String[]",
              "java.util.TreeMap": "java.util.TreeMap<com.acme.Kind, com.acme.Point>",
              "java.util.HashMap": "java.util.HashMap<String, Map<String, List<Long>>>",
              "[Ljava.lang.Object;": "Object[]", "[Ljava.lang.Long;": "Long[]",
              "java.util.Collections$EmptyList": "java.util.Collections$EmptyList<String>",
              **{name: name for name in SIMPLE if not name.startswith(("[", "com."))}}  # fmt: skip


@st.composite
def columns(draw: Any) -> tuple[KryoSerializer, list[bytes]]:
    """A column of objects of a class and a Flink, alone or within values, some of them damaged."""
    name = draw(st.sampled_from(sorted(OF_COLUMNS)))
    kryo = kryo_snapshot().of_class(name)
    version = draw(st.sampled_from(KryoVersion))
    values = KryoValues(kryo.registered, version, recorded=True)
    decoder = KryoDecoder(values, parse_java_type(OF_COLUMNS[name]))
    serializer = draw(st.sampled_from([KryoSerializer, NestedKryoSerializer]))(name, decoder)
    own = SIMPLE[name].map(lambda value: Item(name, value)) if name in SIMPLE else ITEMS
    stored = []
    for _ in range(draw(st.integers(FEW, FEW + 4))):
        item = draw(own | (containers(ITEMS) if name not in SIMPLE else own))
        data = values.write(item, version)
        if draw(st.integers(0, 5)) == 0 and data:
            place = draw(st.integers(0, len(data) - 1))
            data = data[:place] + bytes([draw(st.integers(0, 255))]) + data[place + 1 :]
        stored.append(data)
    return serializer, stored


@settings(max_examples=300)
@given(columns())
@pytest.mark.full
def test_a_column_of_many_objects_is_that_of_each(
    drawn: tuple[KryoSerializer, list[bytes]],
) -> None:
    """With the same rows inexact, of unknown end, or null; also of damaged bytes."""
    serializer, stored = drawn
    found = []
    for few in (FEW, 1 << 30):
        cursor = cursor_over(stored)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kryo_serializer, "FEW", few)
            try:
                column = serializer.decode(cursor)
            except StateError as error:
                found.append(error.problem)
                continue
        column.validate(full=True)
        found.append((repr(column.to_pylist()), (cursor.inexact != 0).tolist(),
                      cursor.position.tolist(), cursor.present.tolist()))  # fmt: skip
    assert found[0] == found[1]


@settings(max_examples=300)
@given(columns())
@pytest.mark.full
def test_many_objects_are_written_as_each_is(drawn: tuple[KryoSerializer, list[bytes]]) -> None:
    """Those of a column, with the same errors; also those that share a constant of an enum."""
    serializer, stored = drawn
    try:
        column = serializer.decode(cursor_over(stored))
    except StateError:
        reject()
    column = column.filter(column.is_valid())
    found = either_way(lambda: encode(serializer, column))
    assert found[0] == found[1]


@pytest.mark.parametrize("nanos", [-1, 1_000_000_000])
def test_nanoseconds_that_no_second_has_are_refused_either_way(nanos: int) -> None:
    """Java has no such duration; many at a time were written, one by one was refused."""
    values = KryoValues(ANYTHING.registered, KryoVersion.FLINK_1, recorded=True)
    serializer = KryoSerializer(
        "java.time.Duration", KryoDecoder(values, JavaType("java.time.Duration"))
    )
    column = pa.array([{"seconds": 0, "nanos": nanos}] * 8, serializer.arrow_type)
    problems = either_way(lambda: encode(serializer, column))
    assert problems[0] == problems[1]
    assert "can't be written as Duration" in problems[0]


def either_way(act: Callable[[], Any]) -> list[Any]:
    """What comes of it many at a time, and one by one: a result, or the problem."""
    found = []
    for few in (0, 1 << 30):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kryo_serializer, "FEW", few)
            try:
                found.append(act())
            except StateError as error:
                found.append(error.problem)
    return found


def anything(version: KryoVersion) -> KryoSerializer:
    """The column of objects of any class, which is JSON."""
    values = KryoValues(ANYTHING.registered, version, recorded=True)
    return KryoSerializer("java.lang.Object", KryoDecoder(values, JavaType("java.lang.Object")))


ODD = st.text(st.sampled_from('"\\/\b\f\n\r\t\x00\x1f\x7f@aé€\ud83d\U0001f600\u2028'), max_size=4)
NAMES = st.sampled_from(["", "a", "b", "@", "@class", "é"]) | ODD
USUAL = st.recursive(
    st.none() | st.booleans().map(lambda each: Item("java.lang.Boolean", each))
    | ODD.map(lambda each: Item("java.lang.String", each)) | UUIDS
    | INTS.map(lambda each: Item("java.lang.Integer", each))
    | LONGS.map(lambda each: Item("java.lang.Long", each))
    | st.integers(-128, 127).map(lambda each: Item("java.lang.Byte", each))
    | st.sampled_from([Item("java.lang.Double", 0.1), Item("java.util.Date", 5)]),
    lambda inner: st.builds(
        Item, st.sampled_from(["java.util.ArrayList", "java.util.HashSet"]),
        st.lists(inner, max_size=4),
    ) | st.builds(
        Item, st.sampled_from(["java.util.HashMap", "java.util.LinkedHashMap"]),
        st.lists(st.tuples(NAMES.map(lambda each: Item("java.lang.String", each)) | inner, inner),
                 max_size=4),
    ),
    max_leaves=10,
)  # fmt: skip


@settings(max_examples=300)
@given(st.sampled_from(KryoVersion), st.lists(USUAL, min_size=FEW, max_size=FEW + 2))
@pytest.mark.full
def test_json_of_many_is_that_of_each(version: KryoVersion, items: list[Item | None]) -> None:
    """And is written back as that of each."""
    serializer = anything(version)
    stored = [serializer.decoder.values.write(item, version) for item in items]

    def decoded() -> tuple[pa.Array, list[int]]:
        cursor = cursor_over(stored)
        return serializer.decode(cursor), cursor.inexact.tolist()

    many, each = either_way(decoded)
    assert many[0].to_pylist() == each[0].to_pylist()
    assert many[1] == each[1]
    column = many[0].filter(many[0].is_valid())
    written, wanted = either_way(lambda: encode(serializer, column))
    assert written == wanted


@pytest.mark.parametrize("count", [100, 5000, pytest.param(10_000, marks=pytest.mark.full)])
def test_json_of_large_maps_is_that_of_each(count: int) -> None:
    """Whose keys are compared."""
    serializer = anything(FLINK_2)
    pairs = [(Item("java.lang.String", str(place)), None) for place in range(count)]
    twice = [*pairs[1:], (Item("java.lang.String", "7"), None)]
    stored = [
        serializer.decoder.values.write(Item("java.util.HashMap", each), FLINK_2)
        for each in (pairs, twice) * FEW
    ]
    many, each = either_way(lambda: serializer.decode(cursor_over(stored)).to_pylist())
    assert many == each
    assert many[0].startswith('{"0": null')
    assert many[1].startswith('{"@class": "java.util.HashMap"')
    assert encode(serializer, pa.array(many)) == stored


JSON = st.recursive(
    st.none() | st.booleans() | INTS | LONGS | st.floats() | ODD | st.uuids().map(str),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
    | st.fixed_dictionaries({
        "@class": st.sampled_from(["java.lang.Long", "java.lang.Byte", "java.util.HashSet", "a",
                                   "java.util.UUID", "java.util.LinkedHashMap"]),
        "value": inner | st.lists(st.tuples(inner, inner), max_size=2),
    }),
    max_leaves=8,
)  # fmt: skip


@st.composite
def json_texts(draw: Any) -> str:
    """JSON in any form, some of it damaged."""
    text = json.dumps(
        draw(JSON), ensure_ascii=draw(st.booleans()), indent=draw(st.none() | st.just(1)),
        separators=draw(st.sampled_from([None, (",", ":")])),
    ).encode("utf-8", "replace").decode()  # fmt: skip
    if draw(st.integers(0, 3)) == 0:
        place = draw(st.integers(0, len(text) - 1))
        other = draw(st.sampled_from(['"', "[", "]", "{", "}", ",", ":", "0", "-", ".", "e", ""]))
        text = text[:place] + other + text[place + draw(st.integers(0, 1)) :]
    return text


@settings(max_examples=500)
@given(st.sampled_from(KryoVersion), st.lists(json_texts(), min_size=1, max_size=3))
@pytest.mark.full
def test_json_texts_are_written_as_each_is(version: KryoVersion, texts: list[str]) -> None:
    """Of valid and invalid JSON: the same bytes, or the same problem."""
    serializer = anything(version)
    written, wanted = either_way(lambda: encode(serializer, pa.array(texts, pa.string())))
    assert written == wanted


SMALL = st.integers(-(2**63), 2**63 - 1) | st.integers(-1000, 1000)
NUMBERS = {
    "java.math.BigInteger": SMALL | st.integers(-(10**38), 10**38),
    "java.math.BigDecimal": st.tuples(SMALL, st.integers(-1, 32))
    | st.tuples(SMALL | st.integers(-(2**70), 2**70), st.integers(0, 9)),
}


@pytest.mark.parametrize("name", NUMBERS)
@settings(max_examples=100)
@given(st.data())
def test_numbers_of_many_digits_and_of_few_are_the_same(name: str, data: st.DataObject) -> None:
    """Those of 64 bits are made many at a time, the others one by one."""
    version = data.draw(st.sampled_from(KryoVersion))
    values = KryoValues(kryo_snapshot().of_class(name).registered, version, recorded=True)
    serializer = KryoSerializer(name, KryoDecoder(values, JavaType(name)))
    drawn = data.draw(st.lists(st.none() | NUMBERS[name], min_size=FEW, max_size=FEW + 2))
    items = [None if each is None else Item(name, each) for each in drawn]
    stored = [values.write(item, version) for item in items]
    column = serializer.decode(cursor_over(stored))
    assert column.to_pylist() == [serializer.decoder.decode(each) for each in stored]
    there = column.filter(column.is_valid())
    assert encode(serializer, there) == list(map(serializer.decoder.encode, there.to_pylist()))


DEEP = "[" * 150 + "]" * 150
EDITED: list[tuple[str, list[Any], str]] = [
    ("Long[]", [[1, None], [], [-5]], ""),
    ("byte[][]", [[b"ab", None]], ""),
    ("java.util.concurrent.ConcurrentSkipListMap<String, Long>", [[("a", 1)], []], ""),
    ("java.util.Collections$EmptyList<String>", [[]], ""),
    ("java.util.Collections$EmptyList<String>", [["a"]], "of 1 parts, which has 0"),
    ("java.util.Collections$SingletonList<Long>", [[5], [None]], ""),
    ("java.util.Collections$SingletonList<Long>", [[5, 6]], "of 2 parts, which has 1"),
    ("java.util.Collections$SingletonSet<Long>", [[]], "of 0 parts, which has 1"),
    ("Optional<String>", [["a", "b"]], "of 2 parts, which has 1"),
    ("java.lang.Object", ["[" * 99 + "]" * 99, "[" * 100 + "]" * 100], ""),
    ("java.lang.Object", [DEEP], "objects 100 deep in each other"),
    ("java.math.BigDecimal", ["-0.50", "007", "-0.00", "0", "12345678.123456789"], ""),
    ("java.math.BigDecimal", ["1.", ".5", "+5", "1E+3", "123456789012345678901"], ""),
    ("java.math.BigDecimal", ["1,5"], "can't be written"),
    ("java.math.BigDecimal", ["1e-2147483648"], "a scale of more than 32 bits"),
    ("java.math.BigDecimal", ["1e2147483649"], "a scale of more than 32 bits"),
    ("java.time.LocalTime", ["12:30", "24:00"], "is no java.time.LocalTime"),
    ("java.time.LocalTime", ["12:30", "09:05:60"], "is no java.time.LocalTime"),
    ("java.time.ZoneOffset", [3600, 114_300], "is no java.time.ZoneOffset"),
    ("java.time.MonthDay", [{"month": 2, "day": 29}, {"month": 2, "day": 30}], "is no java.time"),
    ("java.util.UUID", ["x"], "'x' can't be written as UUID"),
    ("java.time.Duration", [{"seconds": 1, "nanos": None}], "can't be written as"),
    ("java.lang.Object", ['{"@class":"java.lang.Byte","value":200}'], "can't be written as"),
    ("Map<String>", ['{"a": 1}'], ""),  # no map has one type argument
]


@pytest.mark.parametrize(("java_type", "values", "why"), EDITED, ids=[str(e)[:60] for e in EDITED])
def test_edited_values_are_written_as_each_is_or_refused(
    java_type: str, values: list[Any], why: str
) -> None:
    """Never as other bytes: also of classes that kernels do not know, and of wrong sizes."""
    kind = parse_java_type(java_type)
    kryo = kryo_snapshot().of_class(kind.name)
    decoder = KryoDecoder(KryoValues(kryo.registered, FLINK_1, recorded=True), kind)
    serializer = KryoSerializer(kind.name, decoder)
    column = pa.array(values * FEW, serializer.arrow_type)
    if why:
        with pytest.raises(EncodeError, match=why):
            encode(serializer, column)
        return
    written = encode(serializer, column)
    assert written == [decoder.encode(value) for value in column.to_pylist()]
    cursor = cursor_over(written)
    shown = (
        column
        if kind.name != "java.math.BigDecimal"
        else [decimal_text(*decimal_parts(text)) for text in column.to_pylist()]
    )
    assert serializer.decode(cursor).to_pylist() == pa.array(shown, column.type).to_pylist()
    assert not cursor.inexact.any()


NO_VALUES = {
    "java.lang.String": pa.array([b"\xe9t\xe9"]).view(pa.string()),
    "java.lang.Object": pa.array([b'"\xe9"']).view(pa.string()),
    "java.math.BigDecimal": pa.array([b"\xe9"]).view(pa.string()),
    "List<String>": pa.ListArray.from_arrays([0, 1], pa.array([b"\xed\xa0\x80"]).view(pa.string())),
    "java.time.LocalDate": pa.array([2932897], pa.int32()).view(pa.date32()),
    "java.util.Date": pa.array([253402300800000000]).view(pa.timestamp("us", "UTC")),
    "java.time.LocalDateTime": pa.array([-62135596800000001]).view(pa.timestamp("us")),
}


@pytest.mark.parametrize("count", [1, FEW])
@pytest.mark.parametrize("java_type", NO_VALUES)
def test_text_that_is_not_utf_8_and_the_year_10000_are_refused(java_type: str, count: int) -> None:
    """Other programs write them into a table; no column of ours holds them."""
    kind = parse_java_type(java_type)
    values = KryoValues(kryo_snapshot().of_class(kind.name).registered, FLINK_2, recorded=True)
    serializer = KryoSerializer(kind.name, KryoDecoder(values, kind))
    column = pa.concat_arrays([NO_VALUES[java_type]] * count)
    with pytest.raises(EncodeError, match="not UTF-8, or a time outside of the years 1 to 9999"):
        encode(serializer, column)


def classes_in(part: object) -> set[str]:
    """The classes of an object, and of all within it."""
    if isinstance(part, Item):
        return {part.java_class} | classes_in(part.value)
    if isinstance(part, dict):
        return classes_in(list(part.values()))
    if isinstance(part, (list, tuple)):
        return set().union(*map(classes_in, part))
    return set()


@pytest.mark.parametrize("version", KryoVersion)
def test_uuids_around_a_null_stay_in_their_places(version: KryoVersion) -> None:
    """In a list, where a null is no row of a column of its own."""
    kind = parse_java_type("java.util.ArrayList<java.util.UUID>")
    values = KryoValues(kryo_snapshot().of_class(kind.name).registered, version, recorded=True)
    serializer = KryoSerializer(kind.name, KryoDecoder(values, kind))
    told = [None if n % 3 == 1 else NO_UUID[:-1] + str(n) for n in range(7)]
    parts = [None if each is None else Item("java.util.UUID", each) for each in told]
    stored = [values.write(Item(kind.name, parts), version)] * FEW
    assert serializer.decode(cursor_over(stored)).to_pylist() == [told] * FEW


@given(st.lists(st.uuids().map(str), max_size=2 * FEW))
def test_uuids_as_text_have_their_halves(values: list[str]) -> None:
    """And back."""
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
        upgraded_list("x" * 20_000, 20_000)


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
