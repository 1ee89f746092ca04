"""Values that a typed column can't hold: their exact bytes beside it, in every kind of state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.basic.text import StringSerializer
from statelake.state_core.serializers.composite.collections import ListSerializer, MapSerializer
from statelake.state_core.serializers.composite.pojo import PojoSerializer, SubclassValue
from statelake.state_core.serializers.composite.structs import RowSerializer, TupleSerializer
from statelake.state_core.serializers.composite.wrappers import VoidNamespaceSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.scala.serializers import OptionSerializer
from tests.support.serializers.serializer_columns import write

pytestmark = pytest.mark.thinned(3)

LONG, TEXT = LongSerializer(), StringSerializer()
SUB = PojoSerializer("acme.Sub", [("id", LONG), ("more", TEXT)])
BASE = PojoSerializer("acme.Base", [("id", LONG)], {"acme.Sub": SUB})
OTHER = SubclassValue({"id": 2}, "acme.Sub", {"id": 2, "more": "x"}, 0)
UNKNOWN = b"\x04\x00\x06acme.X\x02\x00"
PLAIN = {"id": 1}

# serializer, a value that its column holds, one that it does not
VALUES: dict[str, tuple[TypeSerializer, Any, Any]] = {
    "text": (TEXT, "a", "x\ud800yy"),
    "pojo": (BASE, PLAIN, OTHER),
    "list of text": (ListSerializer(TEXT), ["a", "b"], ["b", "longer than its \udc00 neighbours"]),
    "list of pojos": (ListSerializer(BASE), [PLAIN, None], [OTHER, PLAIN]),
    "map": (MapSerializer(TEXT, BASE), [("k", PLAIN)], [("k", OTHER), ("\ud801", None)]),
    "tuple": (TupleSerializer([BASE, TEXT]), {"f0": PLAIN, "f1": "a"}, {"f0": OTHER, "f1": "b"}),
    "row": (
        RowSerializer([ListSerializer(TEXT), BASE]),
        {"f0": None, "f1": PLAIN},
        {"f0": ["\udfff", "b"], "f1": None},
    ),
}
KINDS = [StateKind.VALUE, StateKind.LIST, StateKind.MAP]

every_value = pytest.mark.parametrize("name", VALUES)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.value for kind in KINDS])
with_and_without_ttl = pytest.mark.parametrize("ttl", [False, True], ids=["", "ttl"])


def layout_of(kind: StateKind, serializer: TypeSerializer, *, ttl: bool) -> KeyedLayout:
    """A state of that kind by Long."""
    user_key = LONG if kind is StateKind.MAP else None
    return KeyedLayout(kind, LONG, VoidNamespaceSerializer(), serializer, user_key, ttl)


def value_bytes(layout: KeyedLayout, encoded: list[bytes]) -> bytes:
    """An entry's value of these elements; only a list has more than one."""
    ttl = bytes(7) + b"\x05" if layout.with_ttl else b""
    head = b"\0" if layout.kind is StateKind.MAP else b""
    return head + b",".join(ttl + piece for piece in encoded)


def entries_of(layout: KeyedLayout, values: list[bytes]) -> Entries:
    """Entries with these values, and keys from 0 on."""
    keys = [
        write(LONG, key) + b"\0" + (write(LONG, -key) if layout.user_key else b"")
        for key in range(len(values))
    ]
    bounds = np.cumsum([0, *map(len, keys), *map(len, values)]).astype(np.int64)
    count = len(values)
    return Entries(
        np.frombuffer(b"".join([*keys, *values]), np.uint8),
        np.zeros(count, np.int16),
        np.zeros(count, np.int64),
        bounds[:count],
        bounds[1 : count + 1],
        bounds[count:-1],
        bounds[count + 1 :],
        lambda at: f"byte {at}",
    )


def written_back(layout: KeyedLayout, batch: pa.RecordBatch) -> list[bytes]:
    """The value bytes of a batch."""
    found: list[bytes] = layout.value_writer(batch).to_binary().to_pylist()
    return found


@every_value
@every_kind
@with_and_without_ttl
def test_every_byte_comes_back(name: str, kind: StateKind, ttl: bool) -> None:
    """Rows with exact bytes, between rows without, are written as they were read."""
    serializer, plain, odd = VALUES[name]
    layout = layout_of(kind, serializer, ttl=ttl)
    good, bad = write(serializer, plain), write(serializer, odd)
    lists = [[good], [bad], [good], [bad]]
    if kind is StateKind.LIST:
        lists = [[good, good], [good, bad, good], [good], [bad]]
    values = [value_bytes(layout, list_) for list_ in lists]
    batch = layout.decode(entries_of(layout, values))
    assert batch.column("raw_value").to_pylist() == [None, values[1], None, values[3]]
    assert written_back(layout, batch) == values
    assert written_back(layout, batch.slice(1, 2)) == values[1:3]


@every_kind
@with_and_without_ttl
@pytest.mark.parametrize("among", [[], [b"\1"]], ids=["alone", "beside null"])
def test_a_value_that_is_none_but_not_null(kind: StateKind, ttl: bool, among: list[bytes]) -> None:
    """A map's `None` of Scala is a value: its flag says that it is not null, whatever is beside."""
    layout = layout_of(kind, OptionSerializer(TEXT), ttl=ttl)
    nulls = among if kind is StateKind.MAP and not ttl else []
    values = [value_bytes(layout, [b"\0"]), value_bytes(layout, [b"\1\2a"]), *nulls]
    batch = layout.decode(entries_of(layout, values))
    assert written_back(layout, batch) == values


@every_kind
@with_and_without_ttl
def test_a_subclass_that_nobody_knows(kind: StateKind, ttl: bool) -> None:
    """Its row's value is null, its bytes are all there, and its neighbours are typed."""
    layout = layout_of(kind, BASE, ttl=ttl)
    good = write(BASE, PLAIN)
    lists = [[good], [UNKNOWN], [good]]
    if kind is StateKind.LIST:
        lists[1] = [good, UNKNOWN]
    values = [value_bytes(layout, list_) for list_ in lists]
    batch = layout.decode(entries_of(layout, values))
    shown = [PLAIN] if kind is StateKind.LIST else PLAIN
    assert batch.column("value").to_pylist() == [shown, None, shown]
    assert batch.column("raw_value").to_pylist() == [None, values[1], None]
    assert written_back(layout, batch) == values


def test_an_edited_value_is_written_as_it_is_now() -> None:
    """The typed value wins over the bytes beside it once they differ: it is a base class's then."""
    layout = layout_of(StateKind.VALUE, BASE, ttl=False)
    batch = layout.decode(entries_of(layout, [write(BASE, OTHER), write(BASE, OTHER)]))
    edited = pa.array([{"id": 2}, {"id": 7}], BASE.arrow_type)
    changed = batch.set_column(batch.schema.get_field_index("value"), "value", edited)
    assert written_back(layout, changed) == [write(BASE, OTHER), write(BASE, {"id": 7})]
