"""POJOs: bytes, columns and snapshots, whatever they hold and however they are damaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import (
    CorruptSnapshotError,
    EncodeError,
    KeyGroupError,
    StateError,
    UnsupportedFormatError,
)
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.kernels import skip
from statelake.state_core.serializers.basic.enums import EnumSerializerSnapshot
from statelake.state_core.serializers.basic.numbers import (
    SNAPSHOTS,
    BooleanSerializer,
    DoubleSerializer,
    IntSerializer,
    LongSerializer,
)
from statelake.state_core.serializers.basic.text import (
    StringSerializer,
    StringSerializerSnapshot,
)
from statelake.state_core.serializers.composite.arrays import GenericArraySerializer, SetSerializer
from statelake.state_core.serializers.composite.collections import (
    DelimitedListSerializer,
    ListSerializer,
    MapSerializer,
)
from statelake.state_core.serializers.composite.optionals import NullableSerializer
from statelake.state_core.serializers.composite.pojo import PojoSerializer, SubclassValue
from statelake.state_core.serializers.composite.pojo_snapshot import PojoSerializerSnapshot
from statelake.state_core.serializers.composite.structs import RowSerializer, TupleSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from statelake.state_core.serializers.framework.registry import (
    read_serializer_snapshot,
    write_serializer_snapshot,
)
from tests.support.serializers.serializer_columns import (
    cursor_over,
    decode,
    encode,
    read,
    walked,
    write,
)

BASE = [("id", LongSerializer()), ("name", StringSerializer())]
TAGGED = PojoSerializer("acme.Tagged", [*BASE, ("ratio", DoubleSerializer())])
NAMED = PojoSerializer("acme.Näm€d", [("deep", ListSerializer(IntSerializer())), *BASE])
PERSON = PojoSerializer(
    "acme.Person", BASE, {"acme.Tagged": TAGGED, "acme.Lost": None}, {"acme.Näm€d": NAMED}
)
ADDRESS = PojoSerializer("acme.Address", [("street", StringSerializer()), ("zip", IntSerializer())])
CUSTOMER = PojoSerializer(
    "acme.Customer",
    [
        ("active", BooleanSerializer()),
        ("address", ADDRESS),
        ("friends", ListSerializer(PERSON)),
        ("past", MapSerializer(StringSerializer(), ADDRESS)),
        ("score", DoubleSerializer()),
        ("text", StringSerializer()),
    ],
)
LONG = LongSerializer()
OUTER = PojoSerializer("acme.Outer", [("p", PERSON), ("n", LONG)])
GOOD = {"id": 2, "name": "b"}
UNKNOWN_SUBCLASS = b"\x04\x00\x06acme.X" + b"\x02\x00\x01"

longs = st.integers(-(1 << 63), (1 << 63) - 1)
ints = st.integers(-(1 << 31), (1 << 31) - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def pojos(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Dicts of these fields, each of which may be null."""
    return st.fixed_dictionaries({name: st.none() | values for name, values in fields.items()})


bases = pojos(id=longs, name=texts)
tagged = pojos(id=longs, name=texts, ratio=st.floats(allow_nan=False)).map(
    lambda value: SubclassValue(_base(value), "acme.Tagged", value, 0)
)
named = pojos(deep=st.lists(ints, max_size=3), id=longs, name=texts).map(
    lambda value: SubclassValue(_base(value), "acme.Näm€d", value, None)
)
people = st.one_of(st.none(), bases, tagged, named)
addresses = pojos(street=texts, zip=ints)
customers = pojos(
    active=st.booleans(),
    address=addresses,
    friends=st.lists(people, max_size=3),
    past=st.lists(st.tuples(texts, st.none() | addresses), max_size=3),
    score=st.floats(allow_nan=False),
    text=texts,
)


def _base(value: dict[str, Any]) -> dict[str, Any]:
    return {"id": value["id"], "name": value["name"]}


class Unwalked(TupleSerializer):
    """One that no program walks, as those with values of Kryo, so that it is read one by one."""

    def skip_program(self) -> None:
        """Return nothing."""


SHAPES: dict[str, tuple[TypeSerializer, st.SearchStrategy[Any]]] = {
    "plain": (PojoSerializer("acme.Base", BASE), st.none() | bases),
    "subclasses": (PERSON, people),
    "nested": (CUSTOMER, st.none() | customers),
    "in a list": (ListSerializer(PERSON), st.lists(people, max_size=4)),
    "in a map": (
        MapSerializer(IntSerializer(), PERSON),
        st.lists(st.tuples(ints, people), max_size=4),
    ),
    "in a tuple": (
        TupleSerializer([PERSON, LongSerializer()]),
        st.fixed_dictionaries({"f0": people, "f1": longs}),
    ),
    "in a row": (
        RowSerializer([PojoSerializer("acme.Base", BASE), PERSON]),
        st.fixed_dictionaries({"f0": st.none() | bases, "f1": st.none() | tagged | named}),
    ),
    "in a list with delimiters": (
        DelimitedListSerializer(PERSON),
        st.lists(people, min_size=1, max_size=4),
    ),
    "in a list that no program walks": (
        DelimitedListSerializer(Unwalked([PERSON])),
        st.lists(st.fixed_dictionaries({"f0": people}), min_size=1, max_size=4),
    ),
}
every_shape = pytest.mark.parametrize("shape", SHAPES)


def outcome(work: Callable[[], Any]) -> Any:
    """What it returns, or the `StateError` that it raises."""
    try:
        return work()
    except StateError as error:
        return error


class TestValuesAndColumns:
    """What is written is read, one by one and a column at a time."""

    @every_shape
    @given(data=st.data())
    def test_round_trip(self, shape: str, data: st.DataObject) -> None:
        """Values come back, columns give the same bytes but where they say that they can't."""
        serializer, strategy = SHAPES[shape]
        values = data.draw(st.lists(strategy, max_size=6))
        written = [write(serializer, value) for value in values]
        assert [read(serializer, encoded) for encoded in written] == values
        column, inexact = decode(serializer, written)
        assert column.type == serializer.arrow_type
        assert column.to_pylist() == values
        for before, again, marked in zip(written, encode(serializer, column), inexact, strict=True):
            assert marked or again == before
        if serializer.self_delimiting:
            assert walked(serializer, written) == [len(encoded) for encoded in written]

    @given(value=people)
    def test_only_subclasses_are_inexact(self, value: Any) -> None:
        """A value of the very class needs no bytes beside its column; a subclass's does."""
        _, (marked,) = decode(PERSON, [write(PERSON, value)])
        assert marked == isinstance(value, SubclassValue)

    @every_shape
    @given(data=st.data())
    def test_damage_is_an_error_or_other_values(self, shape: str, data: st.DataObject) -> None:
        """Changed and cut bytes never do more than raise a `StateError`."""
        serializer, strategy = SHAPES[shape]
        whole = bytearray(write(serializer, data.draw(strategy)))
        for _ in range(data.draw(st.integers(0, 3))):
            if whole:
                whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
        cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
        scalar = outcome(lambda: read(serializer, cut))
        found = outcome(lambda: decode(serializer, [cut]))
        if isinstance(found, StateError):
            assert isinstance(scalar, StateError)
            return
        column, (marked,) = found
        again = outcome(lambda: encode(serializer, column))
        if not marked:
            assert repr(column.to_pylist()) == repr([scalar])
            assert again == [cut]

    @given(values=st.lists(people, min_size=1, max_size=6), data=st.data())
    def test_slices_are_written(self, values: list[Any], data: st.DataObject) -> None:
        """A slice of a column gives the bytes of its rows."""
        column, inexact = decode(PERSON, [write(PERSON, value) for value in values])
        start = data.draw(st.integers(0, len(values)))
        whole = encode(PERSON, column)
        assert encode(PERSON, column.slice(start)) == whole[start:]
        assert len(inexact) == len(whole)


class TestOddBytes:
    """Bytes that Flink would read, though it does not write them."""

    @pytest.mark.parametrize("flags", [0x03, 0x12])
    def test_flags_with_more_bits(self, flags: int) -> None:
        """The first bit that Flink looks at decides; the exact byte stays."""
        body = b"" if flags & 1 else b"\x01\x01"
        column, inexact = decode(PERSON, [bytes([flags]) + body])
        assert inexact == [True]
        assert column.to_pylist() == [None if flags & 1 else {"id": None, "name": None}]

    @pytest.mark.parametrize("flags", [0x00, 0x10, 0xE0])
    def test_flags_without_meaning(self, flags: int) -> None:
        """They are refused, both ways."""
        with pytest.raises(CorruptSnapshotError):
            decode(PERSON, [bytes([flags, 1, 1])])
        with pytest.raises(CorruptSnapshotError):
            read(PERSON, bytes([flags, 1, 1]))

    def test_a_string_null_by_itself(self) -> None:
        """Null behind a flag that says it is not: null, and the exact bytes stay."""
        column, inexact = decode(PERSON, [b"\x02\x01\x00\x00", b"\x02\x01\x01"])
        assert column.to_pylist() == [{"id": None, "name": None}] * 2
        assert inexact == [True, False]

    @pytest.mark.parametrize(
        ("serializer", "data", "value"),
        [
            (NullableSerializer(StringSerializer()), b"\0\0", None),
            (SetSerializer(StringSerializer()), b"\0\0\0\1\0\0", [None]),
            (GenericArraySerializer("String", StringSerializer()), b"\0\0\0\1\1\0", [None]),
            (MapSerializer(LONG, StringSerializer()), b"\0\0\0\1" + bytes(10), [(0, None)]),
            (RowSerializer([StringSerializer()]), b"\0\0", {"f0": None}),
        ],
        ids=lambda value: value.name if isinstance(value, TypeSerializer) else "",
    )
    def test_such_a_null_elsewhere(
        self, serializer: TypeSerializer, data: bytes, value: Any
    ) -> None:
        """Wherever a flag says whether there is a value."""
        column, inexact = decode(serializer, [data])
        assert (column.to_pylist(), inexact) == ([value], [True])

    def test_a_null_flag_that_is_neither(self) -> None:
        """Any byte but 0 is null, as in Java."""
        column, inexact = decode(PERSON, [b"\x02\x07\x01"])
        assert (column.to_pylist(), inexact) == ([{"id": None, "name": None}], [True])

    def test_a_tag_that_nobody_has(self) -> None:
        """A tag behind the last subclass is damage."""
        for attempt in (
            lambda: decode(PERSON, [b"\x08\x02\x01"]),
            lambda: read(PERSON, b"\x08\x02"),
        ):
            with pytest.raises(CorruptSnapshotError):
                attempt()

    def test_registered_subclass_by_name(self) -> None:
        """Written by name before it was registered: read with the serializer that is there."""
        value = {"id": 1, "name": "x", "ratio": 0.5}
        written = write(PERSON, SubclassValue(_base(value), "acme.Tagged", value, None))
        assert written[0] == skip.IS_SUBCLASS
        assert read(PERSON, written).value == value
        column, inexact = decode(PERSON, [written])
        assert (column.to_pylist(), inexact) == ([_base(value)], [True])


class TestUnknownSubclass:
    """A subclass that the snapshot says nothing of: nobody knows where its value ends."""

    def test_the_row_is_null_and_exact(self) -> None:
        """Others are as they are; one by one it is refused with what to do."""
        good = write(PERSON, {"id": 1, "name": "a"})
        column, inexact = decode(PERSON, [good, UNKNOWN_SUBCLASS, good])
        assert column.to_pylist() == [{"id": 1, "name": "a"}, None, {"id": 1, "name": "a"}]
        assert inexact == [False, True, False]
        with pytest.raises(UnsupportedFormatError, match=r"acme\.X.*register the subclass"):
            read(PERSON, UNKNOWN_SUBCLASS)

    def test_a_tag_without_a_serializer(self) -> None:
        """The same, where the snapshot has the subclass and lost its serializer."""
        column, inexact = decode(PERSON, [b"\x08\x01whatever", write(PERSON, None)])
        assert (column.to_pylist(), inexact) == ([None, None], [True, False])

    @pytest.mark.parametrize(
        ("serializer", "head", "tail", "value"),
        [
            (ListSerializer(PERSON), b"\0\0\0\x02\x01", b"", [GOOD]),
            (DelimitedListSerializer(PERSON), b"\x01,", b",\x01", [GOOD]),
            (TupleSerializer([PERSON, LONG]), b"", bytes(8), {"f0": GOOD, "f1": 1}),
            (RowSerializer([PERSON, LONG]), b"\0", bytes(8), {"f0": GOOD, "f1": 1}),
            (MapSerializer(LONG, PERSON), b"\0\0\0\x01" + bytes(9), b"", [(1, GOOD)]),
            (
                PojoSerializer("acme.O", [("p", PERSON), ("n", LONG)]),
                b"\2\0",
                b"\1",
                {"p": GOOD, "n": 1},
            ),
            (ListSerializer(ListSerializer(PERSON)), b"\0\0\0\x01" * 2, b"", [[GOOD]]),
        ],
        ids=["list", "delimited list", "tuple", "row", "map", "pojo", "list of lists"],
    )
    def test_what_it_is_part_of_is_null(
        self, serializer: TypeSerializer, head: bytes, tail: bytes, value: Any
    ) -> None:
        """The row is lost as a whole, its neighbours are not."""
        good = write(serializer, value)
        column, inexact = decode(serializer, [good, head + UNKNOWN_SUBCLASS + tail, good])
        assert column.to_pylist() == [value, None, value]
        assert inexact == [False, True, False]
        assert encode(serializer, column.take(pa.array([0, 2]))) == [good, good]

    def test_its_program_says_that_nobody_knows(self) -> None:
        """A walk over many marks the one, and goes on."""
        assert walked(PERSON, [b"\x01", UNKNOWN_SUBCLASS, b"\x01"]) == [1, skip.UNKNOWN, 1]


class TestWriting:
    """What can't be written is refused."""

    def test_an_unknown_subclass(self) -> None:
        """There is no serializer for it."""
        with pytest.raises(EncodeError, match="does not know its subclass"):
            write(PERSON, SubclassValue({}, "acme.X", {}, None))

    def test_a_column_without_a_field(self) -> None:
        """A column of the lake that lost one."""
        column = pa.array([{"id": 1}])
        with pytest.raises(EncodeError, match="'name'"):
            PERSON.sizes(column, cursor_over([]).present)

    def test_what_is_no_pojo(self) -> None:
        """A number is none."""
        with pytest.raises(EncodeError):
            write(PERSON, 7)

    def test_more_subclasses_than_tags(self) -> None:
        """A tag is a signed byte."""
        many = {f"acme.S{number}": None for number in range(129)}
        with pytest.raises(EncodeError, match="128"):
            PojoSerializer("acme.P", BASE, many)

    def test_no_hash_code(self) -> None:
        """`hashCode` of a POJO is the user's own."""
        with pytest.raises(KeyGroupError):
            PERSON.hash_code({"id": 1, "name": "a"})


def long_snapshot() -> TypeSerializerSnapshot:
    """A simple one."""
    return SNAPSHOTS[LongSerializer]()


def written(snapshot: TypeSerializerSnapshot) -> bytes:
    """A snapshot's bytes."""
    out = DataOutput()
    write_serializer_snapshot(snapshot, out)
    return out.to_bytes()


def reread(data: bytes) -> PojoSerializerSnapshot:
    """A POJO's snapshot from bytes."""
    source = DataInput(data)
    found = read_serializer_snapshot(source)
    assert source.remaining == 0
    assert isinstance(found, PojoSerializerSnapshot)
    return found


class TestSnapshot:
    """The snapshot, and what is gone or not known in it."""

    def test_made_of_parts(self) -> None:
        """Fields are sorted as Flink sorts them, and everything comes back."""
        sub = PojoSerializerSnapshot.of("acme.S", {"n": long_snapshot()})
        made = PojoSerializerSnapshot.of(
            "acme.P",
            {"b": StringSerializerSnapshot(), "B": long_snapshot(), "é": long_snapshot()},
            registered={"acme.S": sub},
            non_registered={"acme.T": sub},
            declared_in={"b": "acme.Parent"},
        )
        again = reread(written(made))
        serializer = again.restore_serializer()
        assert isinstance(serializer, PojoSerializer)
        assert serializer.names == ("B", "b", "é")
        assert list(serializer.registered) == ["acme.S"]
        assert list(serializer.non_registered) == ["acme.T"]
        assert again.pojo.fields[1].key == b"\x00\x0bacme.Parent\x00\x01b"
        assert written(again) == written(made)

    def test_without_fields(self) -> None:
        """Flink takes such a class for no POJO."""
        with pytest.raises(EncodeError, match="no POJO"):
            PojoSerializerSnapshot.of("acme.P", {})

    def test_a_field_of_an_unknown_class(self) -> None:
        """The snapshot is read and written back; the values are bytes under the class's name."""
        data = written(PojoSerializerSnapshot.of("acme.P", {"n": long_snapshot()}))
        name = b"org.apache.flink.api.common.typeutils.base.LongSerializer$LongSerializerSnapshot"
        changed = data.replace(name, b"x" * len(name))
        found = reread(changed)
        assert written(found) == changed
        serializer = found.restore_serializer()
        assert isinstance(serializer, OpaqueSerializer)
        assert serializer.java_class == "acme.P"

    def test_a_subclass_of_an_unknown_class(self) -> None:
        """The base class's own values are typed all the same."""
        sub = PojoSerializerSnapshot.of("acme.Sub", {"n": long_snapshot()})
        data = written(
            PojoSerializerSnapshot.of(
                "acme.P", {"n": long_snapshot()}, registered={"acme.Sub": sub}
            )
        )
        at = data.rindex(b"PojoSerializerSnapshot")
        changed = data[:at] + b"R" + data[at + 1 :]
        found = reread(changed)
        assert written(found) == changed
        column, inexact = decode(
            found.restore_serializer(), [b"\x02\x00" + bytes(8), b"\x08\x00\x02\x00" + bytes(8)]
        )
        assert column.to_pylist() == [{"n": 0}, None]
        assert inexact == [False, True]

    def test_a_field_twice(self) -> None:
        """Names are unique in what Flink writes."""
        data = written(
            PojoSerializerSnapshot.of("acme.P", {"a": long_snapshot(), "b": long_snapshot()})
        )
        with pytest.raises(CorruptSnapshotError, match="twice"):
            reread(data.replace(b"\x00\x01b", b"\x00\x01a"))

    @given(data=st.data())
    def test_damage_is_an_error(self, data: st.DataObject) -> None:
        """Changed and cut snapshots never do more than raise a `StateError`."""
        sub = PojoSerializerSnapshot.of("acme.S", {"n": long_snapshot()})
        whole = bytearray(
            written(
                PojoSerializerSnapshot.of(
                    "acme.P",
                    {"n": long_snapshot(), "p": sub},
                    registered={"acme.S": sub},
                    non_registered={"acme.T": sub},
                )
            )
        )
        for _ in range(data.draw(st.integers(1, 4))):
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
        cut = bytes(whole[: data.draw(st.integers(len(whole) // 2, len(whole)))])
        found = outcome(lambda: read_serializer_snapshot(DataInput(cut)))
        if not isinstance(found, StateError):
            assert found.type_name
            program = outcome(lambda: found.restore_serializer().skip_program())
            assert program is None or isinstance(program, tuple | StateError)


def test_a_null_pojo_hides_what_is_no_constant() -> None:
    """Arrow may hold any text below a null struct: no constant is looked for there."""
    tier = EnumSerializerSnapshot.of("com.acme.Tier", ["GOLD", "SILVER"])
    pojo = PojoSerializerSnapshot.of("com.acme.A", {"tier": tier}).restore_serializer()
    texts = pa.array(["GOLD", ""])
    values = pa.StructArray.from_arrays([texts], ["tier"], mask=pa.array([False, True]))
    assert pojo.sizes(values, np.zeros(0, np.uint8)).tolist() == [6, 1]
    with pytest.raises(EncodeError, match="'' is no constant"):
        pojo.sizes(pa.StructArray.from_arrays([texts], ["tier"]), np.zeros(0, np.uint8))
