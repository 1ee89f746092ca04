"""What SQL operators keep beside rows: lists with nulls, sorted maps, windows, linked rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import CorruptSnapshotError, EncodeError, KeyGroupError, StateError
from statelake.state_core.files.java_stream import (
    JavaArray,
    JavaClass,
    JavaEnum,
    write_java_stream,
)
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.basic.numbers import SNAPSHOTS, IntSerializer, LongSerializer
from statelake.state_core.serializers.composite.structs import TupleSerializerSnapshot
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import Verdict
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from statelake.state_core.serializers.framework.registry import (
    read_serializer_snapshot,
    write_serializer_snapshot,
)
from statelake.state_core.serializers.kryo.snapshot import KryoSerializerSnapshot
from statelake.state_core.serializers.sql.row_data import (
    BinaryRowDataSerializerSnapshot,
    RowDataSerializerSnapshot,
    internal_snapshot,
)
from statelake.state_core.serializers.sql.table_collections import (
    LinkedListSerializer,
    LinkedListSerializerSnapshot,
    NullAwareMapSerializer,
    SortedMapSerializerSnapshot,
)
from statelake.state_core.serializers.sql.table_data import RawValueDataSerializerSnapshot
from statelake.state_core.serializers.sql.table_structures import (
    RowDataKeySerializerSnapshot,
    SortedLongSerializer,
    WindowKeySerializerSnapshot,
)
from statelake.state_core.serializers.sql.table_timestamps import TimestampDataSerializerSnapshot
from statelake.state_core.serializers.sql.table_views import ExternalSerializerSnapshot
from statelake.state_core.serializers.sql.types.logical_type_objects import java_class, java_object
from statelake.state_core.serializers.sql.types.logical_type_parser import parse_logical_type
from tests.support.serializers.serializer_columns import decode, encode, read, walked, write

LONG, INT = LongSerializer(), IntSerializer()
LONGS, INTS = SNAPSHOTS[LongSerializer], SNAPSHOTS[IntSerializer]
longs = st.integers(-(1 << 63), (1 << 63) - 1)


def row(*types: str) -> RowDataSerializerSnapshot:
    """The snapshot of rows of these SQL types."""
    return RowDataSerializerSnapshot.of(*(parse_logical_type(type_) for type_ in types))


def again(snapshot: TypeSerializerSnapshot) -> TypeSerializerSnapshot:
    """A snapshot written and read."""
    out = DataOutput()
    write_serializer_snapshot(snapshot, out)
    source = DataInput(out.to_bytes())
    found = read_serializer_snapshot(source)
    assert source.remaining == 0
    return found


def kryo() -> TypeSerializerSnapshot:
    """The snapshot of a type whose values have no known end."""
    made = KryoSerializerSnapshot()
    made.type_class = "acme.Thing"
    return made


COLLECTIONS: dict[str, tuple[TypeSerializer, st.SearchStrategy[Any]]] = {
    "list with mask": (LinkedListSerializer(LONG), st.lists(st.none() | longs, max_size=20)),
    "list without": (LinkedListSerializer(LONG, with_mask=False), st.lists(longs, max_size=5)),
    "null-aware map": (
        NullAwareMapSerializer(LONG, LONG),
        st.lists(st.fixed_dictionaries({"key": st.none() | longs, "value": st.none() | longs})),
    ),
    "sorted long": (SortedLongSerializer(), longs),
    "node": (
        WindowKeySerializerSnapshot.around(row("BIGINT", "STRING")).restore_serializer(),
        st.fixed_dictionaries(
            {"window": longs, "key": st.fixed_dictionaries({"f0": longs, "f1": st.text()})}
        ),
    ),
}

every_collection = pytest.mark.parametrize("name", COLLECTIONS)


class TestValues:
    """Round trips and damage."""

    @every_collection
    @given(st.data())
    def test_round_trip(self, name: str, data: st.DataObject) -> None:
        """Column and value at a time agree, and a program walks where there is one."""
        made, one = COLLECTIONS[name]
        rows = data.draw(st.lists(one, min_size=1, max_size=4))
        column = pa.array(rows, made.arrow_type)
        raw = encode(made, column)
        assert [write(made, value) for value in rows] == raw
        found, inexact = decode(made, raw)
        assert found.to_pylist() == rows == [read(made, value) for value in raw]
        assert not any(inexact)
        if made.skip_program() is not None:
            assert walked(made, raw) == [len(value) for value in raw]

    @every_collection
    @given(st.binary(max_size=60))
    def test_noise(self, name: str, noise: bytes) -> None:
        """Noise is refused, or marked, or comes back as it is."""
        made, _ = COLLECTIONS[name]
        try:
            found, inexact = decode(made, [noise])
        except StateError:
            return
        if not any(inexact):
            assert encode(made, found) == [noise]

    def test_many_nulls_of_few_bytes(self) -> None:
        """A mask is a bit an element: a count that the mask can't hold is refused."""
        made = LinkedListSerializer(LONG)
        assert read(made, bytes.fromhex("00000008 ff")) == [None] * 8
        with pytest.raises(CorruptSnapshotError, match="elements declared"):
            read(made, bytes.fromhex("7fffffff ff"))

    @given(st.lists(longs, min_size=2))
    def test_sorted_longs_sort(self, numbers: list[int]) -> None:
        """The bytes are in the order of the numbers."""
        made = SortedLongSerializer()
        assert sorted(numbers) == sorted(numbers, key=lambda value: write(made, value))

    @pytest.mark.parametrize(
        ("made", "value"),
        [
            (LinkedListSerializer(LONG, with_mask=False), [None]),
            (LinkedListSerializer(LONG), "no list"),
            (NullAwareMapSerializer(LONG, LONG), [1]),
            (SortedLongSerializer(), 1 << 63),
        ],
    )
    def test_refusals(self, made: TypeSerializer, value: Any) -> None:
        """A value of another kind is refused."""
        with pytest.raises(EncodeError):
            write(made, value)


class TestHashCodes:
    """Hash codes of keys."""

    def test_rows_of_unknown_types(self) -> None:
        """A row of which only the number of fields is known hashes by its bytes, too."""
        known = row("BIGINT").restore_serializer()
        bare = BinaryRowDataSerializerSnapshot.of(1).restore_serializer()
        data = write(known, {"f0": 42})
        assert known.hash_code({"f0": 42}) == 907821237
        assert bare.hash_code(read(bare, data)) == 907821237
        assert bare.hash_codes(pa.array([data[4:]])).tolist() == [907821237]
        column = pa.array([{"f0": 42}, None, {"f0": 42}], known.arrow_type)
        assert known.hash_codes(column).tolist() == [907821237, 0, 907821237]

    def test_what_is_not_known(self) -> None:
        """Of arrays Java's hash code depends on the class that holds them."""
        made = internal_snapshot(parse_logical_type("ARRAY<INT>")).restore_serializer()
        with pytest.raises(KeyGroupError, match="can't be derived"):
            made.hash_code([1])


def constant(name: str) -> bytes:
    """A comparator that is a constant of an enum, as Java's natural order is."""
    described = JavaClass(
        "java.util.Comparators$NaturalOrderComparator", 0, 0x12,
        parent=JavaClass("java.lang.Enum", 0, 0x12),
    )  # fmt: skip
    return write_java_stream(JavaEnum(described, name))


def comparator(name: str, ascending: bool = True) -> bytes:
    """The stream of a comparator with an order."""
    booleans = java_class("[Z", 6309297032502205922)
    fields = [("compareOrders", "[Z")]
    orders = JavaArray(booleans, [ascending])
    return write_java_stream(java_object(java_class(name, 1, fields), compareOrders=orders))


class TestSnapshots:
    """Snapshots made here, and what they say of each other."""

    @pytest.mark.parametrize(
        "made",
        [
            LinkedListSerializerSnapshot.around(LONGS()),
            WindowKeySerializerSnapshot.around(row("INT")),
            RawValueDataSerializerSnapshot.around(LONGS()),
            TimestampDataSerializerSnapshot.of(3),
            BinaryRowDataSerializerSnapshot.of(7),
            SortedMapSerializerSnapshot.of(comparator("acme.Order"), row("INT"), LONGS()),
            ExternalSerializerSnapshot.of(comparator("acme.Type"), LONGS(), internal_input=True),
            RowDataKeySerializerSnapshot.of(b"equaliser", b"hash", row("BIGINT")),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_made_snapshots(self, made: TypeSerializerSnapshot) -> None:
        """What is made can be written and read, is the same type, and stays as it was."""
        found = again(made)
        assert type(found) is type(made)
        assert found.restore_serializer().name == made.restore_serializer().name
        unsure = isinstance(made, SortedMapSerializerSnapshot)
        wanted = Verdict.UNKNOWN if unsure else Verdict.COMPATIBLE_AS_IS
        assert made.resolve_schema_compatibility(found).verdict is wanted

    @pytest.mark.parametrize(
        ("old", "new", "verdict"),
        [
            (comparator("a.A"), comparator("a.A"), Verdict.UNKNOWN),
            (comparator("a.A"), comparator("a.B"), Verdict.INCOMPATIBLE),
            (constant("INSTANCE"), constant("INSTANCE"), Verdict.COMPATIBLE_AS_IS),
            (constant("INSTANCE"), constant("OTHER"), Verdict.INCOMPATIBLE),
            (comparator("a.A"), constant("INSTANCE"), Verdict.INCOMPATIBLE),
        ],
    )
    def test_other_comparators(self, old: bytes, new: bytes, verdict: Verdict) -> None:
        """A comparator of another class sorts otherwise; of the same, only its code knows."""
        snapshots = [
            SortedMapSerializerSnapshot.of(comparator, LONGS(), LONGS())
            for comparator in (old, new)
        ]
        assert snapshots[1].resolve_schema_compatibility(snapshots[0]).verdict is verdict

    def test_nested_values_of_no_known_end(self) -> None:
        """What holds a value whose end nobody knows is opaque as a whole; RAW has its size."""
        for made in (
            LinkedListSerializerSnapshot.around(kryo()),
            SortedMapSerializerSnapshot.of(comparator("a.A"), LONGS(), kryo()),
            WindowKeySerializerSnapshot.around(kryo()),
        ):
            assert isinstance(made.restore_serializer(), OpaqueSerializer)
        raw = RawValueDataSerializerSnapshot.around(kryo()).restore_serializer()
        assert raw.self_delimiting
        assert read(raw, bytes.fromhex("00000002 abcd")) == b"\xab\xcd"

    def test_worst_of_nested(self) -> None:
        """A row inside other types says where it differs."""
        pair = []
        for text in ("BIGINT", "INT"):
            one = TupleSerializerSnapshot()
            one.tuple_class = "org.apache.flink.api.java.tuple.Tuple2"
            one.nested = (row("STRING", text), INTS())
            pair.append(one)
        result = pair[1].resolve_schema_compatibility(pair[0])
        assert result.verdict is Verdict.INCOMPATIBLE
        (reason,) = result.reasons
        assert (reason.path, reason.old, reason.new) == ("f0.f1", "BIGINT", "INT")

    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ("ROW<a TIMESTAMP(3) WITH TIME ZONE>", pa.binary()),
            ("ARRAY<TIMESTAMP(3) WITH TIME ZONE>", pa.binary()),
        ],
    )
    def test_types_without_a_form(self, text: str, kind: pa.DataType) -> None:
        """No state can hold TIMESTAMP WITH TIME ZONE; a snapshot of it can't be made."""
        with pytest.raises(EncodeError):
            internal_snapshot(parse_logical_type(text))

    @pytest.mark.parametrize("version", [0, 4])
    def test_unknown_versions(self, version: int) -> None:
        """A version that Flink never wrote is refused."""
        out = DataOutput()
        write_serializer_snapshot(row("INT"), out)
        raw = bytearray(out.to_bytes())
        at = 2 + int.from_bytes(raw[:2], "big") + 3
        assert raw[at] == 3
        raw[at] = version
        with pytest.raises(StateError, match=f"version {version}"):
            read_serializer_snapshot(DataInput(bytes(raw)))

    @given(st.data())
    def test_damaged_snapshots(self, data: st.DataObject) -> None:
        """Changed bytes are an error of ours, or a snapshot that is written as it was read."""
        made = SortedMapSerializerSnapshot.of(
            comparator("acme.Order"), row("INT", "ARRAY<STRING>", "MAP<INT, DATE>"), LONGS()
        )
        out = DataOutput()
        write_serializer_snapshot(made, out)
        raw = bytearray(out.to_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        source = DataInput(bytes(raw))
        try:
            snapshot = read_serializer_snapshot(source)
            snapshot.restore_serializer()
        except StateError:
            return
        again = DataOutput()
        write_serializer_snapshot(snapshot, again)
        assert again.to_bytes() == raw[: source.position]
