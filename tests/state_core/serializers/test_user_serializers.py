"""Serializers of users: forty lines of `read` and `write`, alone and within everything of ours."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import EncodeError, KeyGroupError, StateError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.writing.unified_encode import StateRows, encode_rows
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers import (
    CompositeTypeSerializerSnapshot,
    TypeSerializer,
    TypeSerializerSnapshot,
    register,
)
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.basic.text import StringSerializer
from statelake.state_core.serializers.composite.collections import (
    DelimitedListSerializer,
    ListSerializer,
    MapSerializer,
)
from statelake.state_core.serializers.composite.pojo import PojoSerializer
from statelake.state_core.serializers.composite.structs import RowSerializer, TupleSerializer
from statelake.state_core.serializers.composite.wrappers import (
    TimeWindowSerializer,
    TtlSerializer,
    VoidNamespaceSerializer,
)
from statelake.state_core.serializers.framework import plugins
from statelake.state_core.serializers.framework.compatibility import Verdict
from statelake.state_core.serializers.framework.registry import (
    read_serializer_snapshot,
    write_serializer_snapshot,
)
from statelake.state_core.serializers.type_spec import parse_type
from tests.support.serializers.serializer_columns import decode, encode, read, write

pytestmark = pytest.mark.usefixtures("own_registry")

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_types.py"
LONG, STRING = LongSerializer(), StringSerializer()


class PairSerializer(TypeSerializer):
    """An i16 with a sign of its own and a text; scalar methods and nothing else."""

    name = "Pair"
    arrow_type = pa.struct({"number": pa.int32(), "text": pa.string()})

    def read(self, source: DataInput) -> dict[str, Any]:
        """The sign, which may be any byte, the number and the text."""
        sign = -1 if source.read_byte() else 1
        return {"number": sign * source.read_char(), "text": source.read_utf()}

    def write(self, value: Any, out: DataOutput) -> None:
        """The same back, the sign being 0 or 1."""
        out.write_byte(int(value["number"] < 0))
        out.write_char(abs(value["number"]))
        out.write_utf(value["text"])


class BoxSerializer(TypeSerializer):
    """A user's composite: something behind a byte that says whether it is there."""

    def __init__(self, held: TypeSerializer) -> None:
        self.held = held
        self.arrow_type = held.arrow_type

    @property
    def name(self) -> str:
        """`Box<...>`."""
        return f"Box<{self.held.name}>"

    def read(self, source: DataInput) -> Any:
        """What is in the box, or None."""
        return self.held.read(source) if source.read_boolean() else None

    def write(self, value: Any, out: DataOutput) -> None:
        """The byte and what is in the box."""
        out.write_boolean(value is not None)
        if value is not None:
            self.held.write(value, out)


class BoxSerializerSnapshot(CompositeTypeSerializerSnapshot):
    """Its snapshot, as a user writes it."""

    java_class = "com.acme.BoxSerializerSnapshot"
    arity = 1

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """A box of it."""
        return BoxSerializer(*nested)


PAIR = PairSerializer()
numbers = st.integers(-0xFFFF, 0xFFFF)
texts = st.text(st.characters(codec="utf-8"), max_size=5)
pairs = st.builds(lambda number, text: {"number": number, "text": text}, numbers, texts)
longs = st.integers(-(2**63), 2**63 - 1)

NESTED: dict[str, tuple[TypeSerializer, st.SearchStrategy[Any]]] = {
    "alone": (PAIR, pairs),
    "list": (ListSerializer(PAIR), st.lists(pairs, max_size=4)),
    "list of lists": (
        ListSerializer(ListSerializer(PAIR)),
        st.lists(st.lists(pairs, max_size=3), max_size=3),
    ),
    "delimited list": (DelimitedListSerializer(PAIR), st.lists(pairs, min_size=1, max_size=4)),
    "map to it": (
        MapSerializer(LONG, PAIR),
        st.lists(st.tuples(longs, st.none() | pairs), max_size=4),
    ),
    "map from it": (MapSerializer(PAIR, LONG), st.lists(st.tuples(pairs, longs), max_size=4)),
    "tuple": (TupleSerializer([LONG, PAIR, PAIR]), st.tuples(longs, pairs, pairs)),
    "row": (RowSerializer([PAIR, LONG]), st.tuples(st.none() | pairs, st.none() | longs)),
    "pojo": (
        PojoSerializer("com.acme.P", [("a", PAIR), ("b", ListSerializer(PAIR))]),
        st.none()
        | st.fixed_dictionaries(
            {"a": st.none() | pairs, "b": st.none() | st.lists(pairs, max_size=3)}
        ),
    ),
    "time to live": (
        TtlSerializer(PAIR),
        st.builds(lambda ttl, value: {"ttl": ttl, "value": value}, longs, pairs),
    ),
    "own composite": (ListSerializer(BoxSerializer(PAIR)), st.lists(st.none() | pairs, max_size=4)),
}
every_nesting = pytest.mark.parametrize("within", NESTED)


@every_nesting
@given(st.data())
def test_bytes_come_back(within: str, data: st.DataObject) -> None:
    """Of every nesting: a column gives its bytes back, and says what the scalar reader says."""
    serializer, values = NESTED[within]
    rows = [write(serializer, value) for value in data.draw(st.lists(values, max_size=6))]
    column, inexact = decode(serializer, rows)
    assert not any(inexact)
    assert encode(serializer, column) == rows
    for row in rows:
        source = DataInput(row)
        serializer.skip(source)
        assert source.remaining == 0
        assert write(serializer, read(serializer, row)) == row


@every_nesting
@given(st.data())
def test_damaged_bytes_give_errors_of_ours(within: str, data: st.DataObject) -> None:
    """Cut short or changed: a value or a `StateError`, whatever the user's code does."""
    serializer, values = NESTED[within]
    row = bytearray(write(serializer, data.draw(values)))
    if data.draw(st.booleans()):
        row = row[: data.draw(st.integers(0, len(row)))]
    elif row:
        row[data.draw(st.integers(0, len(row) - 1))] = data.draw(st.integers(0, 255))
    try:
        column, inexact = decode(serializer, [bytes(row)])
    except StateError:
        return
    if not inexact[0]:
        assert encode(serializer, column) == [bytes(row)]


def test_another_spelling_keeps_its_bytes() -> None:
    """A value that would be written in another way is marked, alone and in a list."""
    odd = b"\x05" + write(PAIR, {"number": -3, "text": "x"})[1:]
    column, inexact = decode(PAIR, [odd])
    assert column.to_pylist() == [{"number": -3, "text": "x"}]
    assert inexact == [True]
    _, inexact = decode(ListSerializer(PAIR), [b"\0\0\0\x01" + odd, b"\0\0\0\0"])
    assert inexact == [True, False]


KINDS = {
    "value": KeyedLayout(StateKind.VALUE, PAIR, VoidNamespaceSerializer(), PAIR),
    "list": KeyedLayout(StateKind.LIST, PAIR, TimeWindowSerializer(), PAIR),
    "map": KeyedLayout(StateKind.MAP, PAIR, VoidNamespaceSerializer(), PAIR, PAIR),
    "map with ttl": KeyedLayout(
        StateKind.MAP, PAIR, VoidNamespaceSerializer(), PAIR, PAIR, with_ttl=True
    ),
    "string namespace": KeyedLayout(StateKind.VALUE, PAIR, STRING, PAIR),
    "timers": KeyedLayout(StateKind.TIMERS, PAIR, VoidNamespaceSerializer()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_as_key_namespace_user_key_and_value(kind: str) -> None:
    """Entries of every kind of state with the type wherever it can stand, there and back."""
    layout = KINDS[kind]
    one, other = {"number": 7, "text": "seven"}, {"number": -8, "text": ""}
    window = isinstance(layout.namespace, TimeWindowSerializer)
    named = {"start": 1, "end": 2} if window else "n" if kind == "string namespace" else None
    columns: dict[str, list[Any]] = {
        "key_group": [1, 2],
        "timestamp": [5, -5],
        "key": [one, other],
        "namespace": [named, named],
        "user_key": [other, one],
        "value": [[one, other], [other]] if kind == "list" else [one, other],
        "ttl": [3, 4],
        "raw_key": [None, None],
        "raw_value": [None, None],
    }
    schema = layout.schema
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    entries = encode_rows(StateRows(0, "state", layout, batch), 1)
    assert layout.decode(entries).equals(batch)


def test_as_a_key_its_hash_is_not_known() -> None:
    """Unless the class says it, a rescale to another max parallelism is refused."""
    with pytest.raises(KeyGroupError, match="hash code of Pair can't be derived"):
        PAIR.hash_codes(pa.array([{"number": 1, "text": ""}], PAIR.arrow_type))


class Careless(TypeSerializer):
    """A serializer whose code fails in all ways."""

    name = "Careless"
    arrow_type = pa.int64()

    def read(self, source: DataInput) -> int:
        """Without a look at what is there."""
        return [10, 20][source.read_byte()]

    def write(self, value: Any, out: DataOutput) -> None:
        """Without a look at the value."""
        out.write_byte(value // 10 - 1 + len(value.missing if value > 50 else ""))


class TestErrorsOfUserCode:
    """What it raises comes out as ours, with the method and the place."""

    @pytest.mark.parametrize("serializer", [Careless(), ListSerializer(Careless())])
    def test_reading(self, serializer: TypeSerializer) -> None:
        """An index that is none."""
        head = b"\0\0\0\x01" if isinstance(serializer, ListSerializer) else b""
        column, _ = decode(serializer, [head + b"\x01"])
        assert "20" in str(column.to_pylist())
        with pytest.raises(StateError, match=r"byte .*Careless\.read failed \(IndexError"):
            decode(serializer, [head + b"\x05"])

    def test_writing(self) -> None:
        """An attribute that is not there."""
        with pytest.raises(EncodeError, match=r"Careless\.write failed .*AttributeError.* for 60"):
            encode(Careless(), pa.array([60]))


def test_a_snapshot_with_a_nested_one() -> None:
    """A user's composite: read, written byte-identically, restored, compared by its part."""
    register(BoxSerializerSnapshot)
    made = BoxSerializerSnapshot()
    made.nested = (parse_type("Long"),)
    out = DataOutput()
    write_serializer_snapshot(made, out)
    found = read_serializer_snapshot(DataInput(out.to_bytes()))
    again = DataOutput()
    write_serializer_snapshot(found, again)
    assert again.to_bytes() == out.to_bytes()
    assert found.type_name == "Box<Long>"
    other = BoxSerializerSnapshot()
    other.nested = (parse_type("String"),)
    assert found.resolve_schema_compatibility(made).verdict is Verdict.COMPATIBLE_AS_IS
    assert other.resolve_schema_compatibility(made).verdict is Verdict.INCOMPATIBLE


def test_the_example_of_the_manual() -> None:
    """It is short, it loads, and its type is read by the name that Flink writes."""
    module = plugins.load_plugin(str(EXAMPLE))
    both = (module.PointSerializer, module.PointSerializerSnapshot)
    assert sum(len(inspect.cleandoc(_source(class_)).splitlines()) for class_ in both) < 40
    out = DataOutput()
    out.write_utf("com.acme.PointSerializer$PointSerializerSnapshot")
    out.write_int(3)
    snapshot: TypeSerializerSnapshot = read_serializer_snapshot(DataInput(out.to_bytes()))
    point = {"x": 1.5, "y": float(np.float64(-0.0)), "label": "here"}
    serializer = snapshot.restore_serializer()
    column, inexact = decode(serializer, [write(serializer, point)])
    assert column.to_pylist() == [point]
    assert inexact == [False]
    assert parse_type("Map<Point, List<Point>>").type_name == "Map<Point, List<Point>>"


def _source(class_: type) -> str:
    """A class's lines; `inspect` does not look into files that were run."""
    lines = EXAMPLE.read_text("utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"class {class_.__name__}("))
    behind = (i for i in range(start + 1, len(lines)) if lines[i][:1].strip())
    return "\n".join(lines[start : next(behind, len(lines))])
