"""Every type as Flink writes it: its snapshot's bytes, and the bytes that its values can have.

This is the table that `tests/state_core/serializers/test_contract.py` runs over. To add a
serializer, add a row: a leaf to `leaves`, a type made of others to `wrapped`. Rows are written
from the description of the format, not with our serializers, so that a mistake is not made twice.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.registry import read_serializer_snapshot

__all__ = ["LEAVES", "Sample", "leaves", "samples", "wrapped", "wrapper"]

Encoded = st.SearchStrategy[bytes]

FLINK = "org.apache.flink."
BASE = f"{FLINK}api.common.typeutils.base."
RUNTIME = f"{FLINK}api.java.typeutils.runtime."
STATE = f"{FLINK}runtime.state."
WINDOWS = f"{FLINK}streaming.api.windowing.windows."
ANY_CHARACTER = st.characters(exclude_categories=())
NO_BYTES = st.just(b"")


@dataclass(frozen=True)
class Sample:
    """A type.

    Attributes:
        name: What it is called in a failing test.
        snapshot: What a snapshot holds of its serializer: class name, version, payload.
        encoded: The bytes of one value.
        java_class: The snapshot's class.
    """

    name: str
    snapshot: bytes
    encoded: Encoded
    java_class: str

    def read_snapshot(self) -> TypeSerializerSnapshot:
        """The snapshot as an object."""
        return read_serializer_snapshot(DataInput(self.snapshot, self.name))

    def __repr__(self) -> str:
        return self.name


# ------------------------------------------------------------------------------------ primitives


def utf(text: str) -> bytes:
    """Java's `writeUTF`."""
    out = DataOutput()
    out.write_utf(text)
    return out.to_bytes()


def i32(value: int) -> bytes:
    """Four bytes."""
    return value.to_bytes(4, "big", signed=True)


def varint(value: int) -> bytes:
    """LEB128."""
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def string(text: str | None) -> bytes:
    """Flink's `StringValue`: LEB128 of length + 1, then of each UTF-16 code unit."""
    if text is None:
        return b"\0"
    units = utf16(text)
    return varint(len(units) + 1) + b"".join(map(varint, units))


def string_value(text: str) -> bytes:
    """The same without a null: the length is not one more (`StringValue.write`)."""
    units = utf16(text)
    return varint(len(units)) + b"".join(map(varint, units))


def utf16(text: str) -> tuple[int, ...]:
    """Java's characters."""
    raw = text.encode("utf-16-be", "surrogatepass")
    return struct.unpack(f">{len(raw) // 2}H", raw)


def big_integer(value: int) -> bytes:
    """Zero, one and ten have a tag; the others a length, of which 0 to 3 are tags."""
    if value in (0, 1, 10):
        return i32({0: 1, 1: 2, 10: 3}[value])
    raw = value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)
    return i32(len(raw) + 4) + raw


def fixed(count: int) -> Encoded:
    """Any so many bytes."""
    return st.binary(min_size=count, max_size=count)


def sized(*widths: int) -> Encoded:
    """A count, then so many elements of one of these widths each."""
    return st.sampled_from(widths).flatmap(
        lambda width: st.integers(0, 4).flatmap(
            lambda count: fixed(count * width).map(lambda data: i32(count) + data)
        )
    )


def joined(*parts: Encoded) -> Encoded:
    """One behind the other."""
    return st.tuples(*parts).map(b"".join)


def counted(element: Encoded) -> Encoded:
    """A count, then the elements."""
    return st.lists(element, max_size=4).map(lambda held: i32(len(held)) + b"".join(held))


def optional(element: Encoded, null: bytes = b"\1", held: bytes = b"\0") -> Encoded:
    """A flag, and the value if there is one."""
    return st.just(null) | element.map(lambda data: held + data)


texts = st.text(ANY_CHARACTER, max_size=6)
strings = texts.map(string)
nullable_strings = st.none().map(string) | strings
big_integers = st.sampled_from([0, 1, 10, -1, 127, 128, -128, -129]) | st.integers(
    -(10**50), 10**50
)
longs = st.integers(-(2**63), 2**63 - 1).map(lambda value: value.to_bytes(8, "big", signed=True))
millis = st.integers(-62_135_596_800_000, 253_402_300_799_000)
dates = st.dates().map(lambda day: i32(day.year) + bytes([day.month, day.day]))
times = st.tuples(st.times(), st.integers(0, 999)).map(
    lambda held: (
        bytes([held[0].hour, held[0].minute, held[0].second])
        + i32(held[0].microsecond * 1000 + held[1])
    )
)
NO_DATE, NO_TIME = bytes.fromhex("800000008000"), bytes.fromhex("80800080000000")
NO_MILLIS = bytes.fromhex("8000000000000000")


def seconds_and_nanos() -> Encoded:
    """An instant: seconds and nanoseconds of Flink's, whole range."""
    seconds = st.integers(-31_557_014_167_219_200, 31_556_889_864_403_199)
    return st.tuples(seconds, st.integers(0, 999_999_999)).map(
        lambda held: held[0].to_bytes(8, "big", signed=True) + i32(held[1])
    )


def sql_timestamps() -> Encoded:
    """Milliseconds, and the nanoseconds of the second, whose milliseconds are the same."""
    return st.tuples(millis, st.integers(0, 999_999)).map(
        lambda held: (
            held[0].to_bytes(8, "big", signed=True) + i32(held[0] % 1000 * 1_000_000 + held[1])
        )
    )


# ------------------------------------------------------------------------------------ the table

Simple = tuple[str, Encoded]


def simple_rows() -> list[Simple]:
    """Types whose class says everything: the class behind `org.apache.flink.`, and values."""
    base: list[Simple] = [
        ("Byte", fixed(1)),
        ("Short", fixed(2)),
        ("Int", fixed(4)),
        ("Long", longs),
        ("Float", fixed(4) | st.sampled_from([b"\x7f\xc0\0\0", b"\x7f\x80\0\1", b"\x80\0\0\0"])),
        (
            "Double",
            fixed(8) | st.just(b"\x80" + bytes(7)) | st.just(b"\x7f\xf0" + bytes(5) + b"\1"),
        ),
        ("Boolean", st.sampled_from([b"\0", b"\1"])),
        ("Char", fixed(2) | st.sampled_from([b"\xd8\0", b"\0A"])),
        ("String", nullable_strings),
        ("Void", st.just(b"\0")),
        ("BigInt", st.just(i32(0)) | big_integers.map(big_integer)),
        (
            "BigDec",
            st.just(i32(0))
            | st.tuples(big_integers, st.integers(-30, 60)).map(
                lambda held: big_integer(held[0]) + i32(held[1])
            ),
        ),
        ("Date", st.just(NO_MILLIS) | longs),
        ("SqlDate", st.just(NO_MILLIS) | longs),
        ("SqlTime", st.just(NO_MILLIS) | longs),
        ("SqlTimestamp", st.just(NO_MILLIS + bytes(4)) | sql_timestamps()),
        ("Instant", st.just(NO_MILLIS + b"\x80\0\0\0") | seconds_and_nanos()),
        ("LocalDate", st.just(NO_DATE) | dates),
        ("LocalTime", st.just(NO_TIME) | times),
        ("LocalDateTime", st.just(NO_DATE + NO_TIME) | joined(dates, times)),
        ("ByteValue", fixed(1)),
        ("ShortValue", fixed(2)),
        ("IntValue", fixed(4)),
        ("LongValue", longs),
        ("FloatValue", fixed(4)),
        ("DoubleValue", fixed(8)),
        ("BooleanValue", st.sampled_from([b"\0", b"\1"])),
        ("CharValue", fixed(2)),
        ("StringValue", texts.map(string_value)),
        ("NullValue", NO_BYTES),
        ("Bitmap", sized(1)),
        ("Variant", st.binary(max_size=9).flatmap(_variant)),
    ]
    arrays: list[Simple] = [
        ("BytePrimitive", sized(1)),
        ("BooleanPrimitive", counted(st.sampled_from([b"\0", b"\1"]))),
        ("ShortPrimitive", sized(2)),
        ("IntPrimitive", sized(4)),
        ("LongPrimitive", sized(8)),
        ("FloatPrimitive", sized(4)),
        ("DoublePrimitive", sized(8)),
        ("CharPrimitive", sized(2)),
        ("String", counted(nullable_strings)),
    ]
    others: list[Simple] = [
        (f"{RUNTIME}Tuple0SerializerSnapshot", st.just(b"\x2a")),
        (f"{STATE}VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot", st.just(b"\0")),
        (f"{WINDOWS}TimeWindow$Serializer$TimeWindowSerializerSnapshot", fixed(16)),
        (f"{WINDOWS}GlobalWindow$Serializer$GlobalWindowSerializerSnapshot", st.just(b"\0")),
    ]
    return [
        *((_named(BASE, name), encoded) for name, encoded in base),
        *((_named(f"{BASE}array.", f"{name}Array"), encoded) for name, encoded in arrays),
        *others,
    ]


def _named(package: str, name: str) -> str:
    return f"{package}{name}Serializer${name}SerializerSnapshot"


def _variant(value: bytes) -> Encoded:
    sizes = st.binary(max_size=5)
    return sizes.map(lambda meta: i32(len(value)) + i32(len(meta)) + value + meta)


def leaves() -> list[Sample]:
    """Types that are made of no others."""
    found = [
        Sample(
            name.rpartition(".")[2].partition("Serializer")[0], utf(name) + i32(3), encoded, name
        )
        for name, encoded in simple_rows()
    ]
    enum = f"{BASE}EnumSerializer$EnumSerializerSnapshot"
    constants = ["RED", "GREEN", "BLUE"]
    payload = utf("acme.Color") + i32(len(constants)) + b"".join(map(utf, constants))
    indexes = st.integers(0, len(constants) - 1).map(i32)
    return [*found, Sample("Enum", utf(enum) + i32(3) + payload, indexes, enum)]


def composite(java_class: str, outer_version: int, payload: bytes, *nested: Sample) -> bytes:
    """`CompositeTypeSerializerSnapshot`, version 3."""
    head = utf(java_class) + i32(3) + i32(911108) + i32(outer_version) + payload
    return head + i32(1333245) + i32(1) + i32(len(nested)) + b"".join(x.snapshot for x in nested)


Wrapper = Callable[..., Sample]


def wrapper(
    label: str,
    java_class: str,
    outer_version: int,
    encoded: Callable[..., Encoded],
    payload: Callable[..., bytes] = lambda *nested: b"",  # noqa: ARG005 - of any arity
    around: Callable[..., bytes] = composite,
) -> Wrapper:
    """What makes a type of others: its snapshot around theirs, its bytes of theirs."""

    def wrap(*nested: Sample) -> Sample:
        name = f"{label}<{', '.join(serializer.name for serializer in nested)}>"
        snapshot = around(java_class, outer_version, payload(*nested), *nested)
        return Sample(
            name, snapshot, encoded(*(serializer.encoded for serializer in nested)), java_class
        )

    return wrap


def _rows(kinds: bool) -> Callable[..., Encoded]:
    """A mask of row kind and nulls, then the fields that are not null."""

    def encoded(*fields: Encoded) -> Encoded:
        kind = st.sampled_from([[0, 0], [1, 0], [0, 1], [1, 1]]) if kinds else st.just([])
        return st.tuples(kind, st.tuples(*(st.none() | field for field in fields))).map(_row)

    return encoded


def _row(held: tuple[list[int], tuple[bytes | None, ...]]) -> bytes:
    bits = [*held[0], *(int(item is None) for item in held[1])]
    mask = bytearray((len(bits) + 7) // 8)
    for index, bit in enumerate(bits):
        mask[index // 8] |= bit << 7 - index % 8
    return bytes(mask) + b"".join(item for item in held[1] if item is not None)


def _map(key: Encoded, value: Encoded) -> Encoded:
    return counted(joined(key, optional(value)))


def _tuple_class(*nested: Sample) -> bytes:
    return utf(f"org.apache.flink.api.java.tuple.Tuple{len(nested)}")


def either(left: Encoded, right: Encoded) -> Encoded:
    """A flag that is true for the first, and one of both."""
    return left.map(lambda data: b"\1" + data) | right.map(lambda data: b"\0" + data)


ROW = f"{RUNTIME}RowSerializer$RowSerializerSnapshot"
OF_ONE: list[Wrapper] = [
    wrapper("List", f"{BASE}ListSerializerSnapshot", 1, counted),
    wrapper("ArrayList", f"{STATE}ArrayListSerializerSnapshot", 1, counted),
    wrapper("Set", f"{BASE}SetSerializerSnapshot", 1, lambda values: counted(optional(values))),
    wrapper(
        "Array",
        f"{BASE}GenericArraySerializerSnapshot",
        1,
        lambda values: counted(optional(values, b"\0", b"\1")),
        lambda _: utf("acme.Component"),
    ),
    wrapper(
        "Nullable",
        f"{RUNTIME}NullableSerializer$NullableSerializerSnapshot",
        2,
        optional,
        lambda _: i32(0),
    ),
    wrapper("Tuple1", f"{RUNTIME}TupleSerializerSnapshot", 2, joined, _tuple_class),
    wrapper("Row", ROW, 4, _rows(kinds=True), lambda _: b"\1"),
    wrapper(
        "Ttl",
        f"{STATE}ttl.TtlStateFactory$TtlSerializerSnapshot",
        2,
        lambda values: joined(fixed(8), values),
    ),
    wrapper(
        "BufferEntry",
        f"{FLINK}streaming.api.operators.co.IntervalJoinOperator$BufferEntrySerializerSnapshot",
        2,
        lambda values: joined(st.sampled_from([b"\0", b"\1"]), values),
    ),
]
OF_TWO: list[Wrapper] = [
    wrapper("Map", f"{BASE}MapSerializerSnapshot", 1, _map),
    wrapper("Tuple2", f"{RUNTIME}TupleSerializerSnapshot", 2, joined, _tuple_class),
    wrapper("Row2", ROW, 4, _rows(kinds=False), lambda *_: b"\0"),
    wrapper("Either", f"{RUNTIME}JavaEitherSerializerSnapshot", 1, either),
    wrapper(
        "Timer",
        f"{FLINK}streaming.api.operators.TimerSerializerSnapshot",
        2,
        lambda key, namespace: joined(fixed(8), key, namespace),
    ),
    wrapper(
        "TaggedUnion",
        f"{FLINK}streaming.api.datastream.CoGroupedStreams$UnionSerializerSnapshot",
        2,
        lambda values, two: joined(st.just(b"\1"), values) | joined(st.just(b"\2"), two),
    ),
]
LEAVES = leaves()
LONG = next(leave for leave in LEAVES if leave.name == "Long")


def wrapped(wrapper: Wrapper, *nested: Sample) -> Sample:
    """A type made of others; time to live has a Long of its own before the value."""
    made = wrapper(*nested)
    if made.name.startswith(("Ttl<", "AsyncTtl<")):
        snapshot = composite(made.java_class, 2, b"", LONG, *nested)
        return Sample(made.name, snapshot, made.encoded, made.java_class)
    return made


def padded_nullable() -> Sample:
    """A null of the same length as a value (`NullableSerializer` with padding)."""
    java_class = f"{RUNTIME}NullableSerializer$NullableSerializerSnapshot"
    encoded = optional(LONG.encoded, b"\1" + bytes(8))
    return Sample("Padded<Long>", composite(java_class, 2, i32(8), LONG), encoded, java_class)


def samples(
    depth: int = 2,
    leaf: st.SearchStrategy[Sample] | None = None,
    of_one: Sequence[Wrapper] = OF_ONE,
    of_two: Sequence[Wrapper] = OF_TWO,
) -> st.SearchStrategy[Sample]:
    """Any type of the table, or of the given ones, and types made of such, up to so deep."""
    found = st.sampled_from([*LEAVES, padded_nullable()]) if leaf is None else leaf
    for _ in range(depth):
        inner = found
        found = (
            inner
            | st.builds(wrapped, st.sampled_from(of_one), inner)
            | st.builds(wrapped, st.sampled_from(of_two), inner, inner)
        )
    return found
