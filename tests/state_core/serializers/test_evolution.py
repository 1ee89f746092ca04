"""Old values as new ones: by position, by name, and through every kind of nesting."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import IncompatibleError
from statelake.state_core.serializers.basic.numbers import (
    BooleanSerializer,
    CharSerializer,
    DoubleSerializer,
    IntSerializer,
    LongSerializer,
)
from statelake.state_core.serializers.basic.text import StringSerializer
from statelake.state_core.serializers.composite.collections import (
    DelimitedListSerializer,
    ListSerializer,
    MapSerializer,
)
from statelake.state_core.serializers.composite.evolution import migrate_column, migrate_value
from statelake.state_core.serializers.composite.pojo import PojoSerializer, SubclassValue
from statelake.state_core.serializers.composite.structs import RowSerializer, TupleSerializer
from statelake.state_core.serializers.composite.wrappers import TtlSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from tests.support.serializers.serializer_columns import decode, write

LONG, TEXT = LongSerializer(), StringSerializer()
OLD = PojoSerializer("acme.P", [("gone", TEXT), ("id", LONG), ("name", TEXT)])
NEW = PojoSerializer(
    "acme.P",
    [
        ("age", IntSerializer()),
        ("boxed", IntSerializer()),
        ("city", TEXT),
        ("flag", BooleanSerializer()),
        ("id", LONG),
        ("initial", CharSerializer()),
        ("name", TEXT),
        ("ratio", DoubleSerializer()),
    ],
    boxed=["boxed"],
)
ADDED = {
    "age": 0, "boxed": None, "city": None, "flag": False, "initial": "\0", "ratio": 0.0,
}  # fmt: skip
BEFORE = {"gone": "x", "id": 7, "name": None}
AFTER = {**ADDED, "id": 7, "name": None}

NESTINGS: dict[str, tuple[Any, Any]] = {
    "itself": (lambda inner: inner, lambda value: value),
    "list": (ListSerializer, lambda value: [value, None, value]),
    "delimited list": (DelimitedListSerializer, lambda value: [value, value]),
    "list of lists": (
        lambda inner: ListSerializer(ListSerializer(inner)),
        lambda value: [[value], [], [None, value]],
    ),
    "map": (lambda inner: MapSerializer(TEXT, inner), lambda value: [("a", value), ("b", None)]),
    "map key": (lambda inner: MapSerializer(inner, LONG), lambda value: [(value, 1)]),
    "tuple": (
        lambda inner: TupleSerializer([LONG, inner]),
        lambda value: {"f0": 1, "f1": value},
    ),
    "row": (
        lambda inner: RowSerializer([inner, inner]),
        lambda value: {"f0": None, "f1": value},
    ),
    "time to live": (TtlSerializer, lambda value: {"ttl": 5, "value": value}),
    "field of a pojo": (
        lambda inner: PojoSerializer("acme.O", [("k", LONG), ("p", inner)]),
        lambda value: {"k": None, "p": value},
    ),
}


@pytest.mark.parametrize("nesting", NESTINGS)
def test_values_move_through_every_nesting(nesting: str) -> None:
    """A column and a single value both end as what the new serializer reads."""
    wrap, place = NESTINGS[nesting]
    old, new = wrap(OLD), wrap(NEW)
    column, _ = decode(old, [write(old, place(BEFORE))] * 3)
    expected, _ = decode(new, [write(new, place(AFTER))] * 3)
    assert migrate_column(old, new, column).equals(expected)
    assert migrate_column(old, new, column.slice(1, 1)).equals(expected.slice(1, 1))
    assert migrate_value(old, new, place(BEFORE)) == place(AFTER)


@given(rows=st.lists(st.none() | st.fixed_dictionaries({"id": st.none() | st.integers(0, 9)})))
def test_nulls_stay_null(rows: list[Any]) -> None:
    """A null POJO gets no new fields."""
    old, new = (
        PojoSerializer("acme.P", [("id", LONG)]),
        PojoSerializer("acme.P", [("id", LONG), ("n", IntSerializer())]),
    )
    column, _ = decode(old, [write(old, row) for row in rows])
    moved = migrate_column(old, new, column)
    assert moved.type == new.arrow_type
    assert moved.to_pylist() == [None if row is None else {**row, "n": 0} for row in rows]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (IntSerializer(), LONG),
        (LONG, TEXT),
        (OLD, LONG),
        (ListSerializer(LONG), MapSerializer(LONG, LONG)),
        (ListSerializer(IntSerializer()), ListSerializer(LONG)),
        (TupleSerializer([LONG]), TupleSerializer([LONG, LONG])),
        (TupleSerializer([LONG]), RowSerializer([LONG])),
        (OpaqueSerializer("acme.P"), OLD),
        (OpaqueSerializer("acme.P"), OpaqueSerializer("acme.Q")),
        (TtlSerializer(LONG), LONG),
    ],
    ids=lambda case: case.name,
)
def test_what_has_no_way_over_is_refused(old: TypeSerializer, new: TypeSerializer) -> None:
    """Flink promotes nothing, and neither is anything cast here."""
    with pytest.raises(IncompatibleError):
        migrate_column(old, new, pa.nulls(0, old.arrow_type))
    with pytest.raises(IncompatibleError):
        migrate_value(old, new, {"f0": 1} if isinstance(old, TupleSerializer) else [1])


def test_bytes_that_are_not_understood_stay() -> None:
    """Kryo's, of the same class."""
    column = pa.array([b"abc"], pa.binary())
    assert migrate_column(OpaqueSerializer("X"), OpaqueSerializer("X"), column) is column


def test_a_subclass_goes_where_the_new_type_has_it() -> None:
    """From a name to a tag, with its own new fields; one that the new type lacks is refused."""
    sub_old = PojoSerializer("acme.S", [("id", LONG), ("x", LONG)])
    sub_new = PojoSerializer("acme.S", [("id", LONG), ("n", LONG), ("x", LONG)])
    old = PojoSerializer("acme.P", [("id", LONG)], None, {"acme.S": sub_old})
    new = PojoSerializer("acme.P", [("id", LONG), ("n", LONG)], {"acme.R": None, "acme.S": sub_new})
    value = SubclassValue({"id": 1}, "acme.S", {"id": 1, "x": 2}, None)
    moved = migrate_value(old, new, value)
    assert isinstance(moved, SubclassValue)
    assert (moved, moved.tag, moved.value) == ({"id": 1, "n": 0}, 1, {"id": 1, "n": 0, "x": 2})
    assert write(new, moved)[:2] == b"\x08\x01"
    with pytest.raises(IncompatibleError, match=r"acme\.S"):
        migrate_value(old, PojoSerializer("acme.P", [("id", LONG)]), value)
