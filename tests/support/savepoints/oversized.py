"""Snapshots that declare more than they hold: each case is a function that writes one.

A case is bytes of kilobytes to a few megabytes that once took minutes or gigabytes, or a sibling of
one. All state lies inline in `_metadata`, in the one key group of an operator of parallelism 1,
unless a case is about files or key groups.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statelake.state_core.files.wire import DataOutput
from statelake.state_core.formats.layout.meta_info import (
    DISTRIBUTION_MODE,
    KEY_SERIALIZER,
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    USER_KEY_SERIALIZER,
    VALUE_SERIALIZER,
    BackendStateType,
    KeyedHeader,
    SerializerEntry,
    StateMetaInfo,
    write_keyed_header,
)
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
    write_metadata,
)
from statelake.state_core.formats.operator_state.operator_file import (
    OperatorHeader,
    write_operator_header,
)
from statelake.state_core.model.handles import (
    DistributionMode,
    InlineHandle,
    KeyGroupsHandle,
    KeyGroupsKind,
    OperatorHandle,
    PartitionOffsets,
    RelativeHandle,
    StreamHandle,
)

__all__ = ["CASES", "Case"]

BASE = "org.apache.flink.api.common.typeutils.base."
RUNTIME = "org.apache.flink.api.java.typeutils.runtime."
TABLE = "org.apache.flink.table.runtime.typeutils."
LOGICAL = "org.apache.flink.table.types.logical."

Write = Callable[[Path], None]


@dataclass(frozen=True)
class Case:
    """One hostile snapshot: its name, and what writes it into an empty directory."""

    name: str
    write: Write


CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Write], Write]:
    """Register a case."""

    def add(write: Write) -> Write:
        CASES[name] = Case(name, write)
        return write

    return add


# --------------------------------------------------------------------------- serializer snapshots


def utf(text: str) -> bytes:
    """A name as `DataOutput.writeUTF` has it."""
    out = DataOutput()
    out.write_utf(text)
    return out.to_bytes()


def i32(number: int) -> bytes:
    """Four bytes."""
    return struct.pack(">i", number)


def i64(number: int) -> bytes:
    """Eight bytes."""
    return struct.pack(">q", number)


def snapshot(java_class: str, version: int = 3, payload: bytes = b"") -> bytes:
    """A versioned serializer snapshot."""
    return utf(java_class) + i32(version) + payload


def simple(name: str) -> bytes:
    """The snapshot of one of Flink's own serializers without parameters."""
    return snapshot(f"{BASE}{name}Serializer${name}SerializerSnapshot")


def composite(java_class: str, outer_version: int, outer: bytes, nested: Sequence[bytes]) -> bytes:
    """The snapshot of a serializer with others in it."""
    head = i32(911108) + i32(outer_version) + outer
    return snapshot(
        java_class, 3, head + i32(1333245) + i32(1) + i32(len(nested)) + b"".join(nested)
    )


def list_of(element: bytes) -> bytes:
    """A `List`."""
    return composite(f"{BASE}ListSerializerSnapshot", 1, b"", [element])


def map_of(key: bytes, value: bytes) -> bytes:
    """A `Map`."""
    return composite(f"{BASE}MapSerializerSnapshot", 1, b"", [key, value])


def tuple_of(elements: Sequence[bytes]) -> bytes:
    """A tuple."""
    return composite(f"{RUNTIME}TupleSerializerSnapshot", 2, utf("Tuple"), elements)


def row_of(elements: Sequence[bytes]) -> bytes:
    """A `Row`."""
    return composite(f"{RUNTIME}RowSerializer$RowSerializerSnapshot", 4, b"\x01", elements)


def case_class_of(elements: Sequence[bytes]) -> bytes:
    """A case class of Scala's."""
    name = "org.apache.flink.api.scala.typeutils.ScalaCaseClassSerializerSnapshot"
    return composite(name, 2, utf("com.acme.Case"), elements)


def avro(schema: Any) -> bytes:
    """An Avro value."""
    out = DataOutput()
    out.write_string("org.apache.avro.generic.GenericRecord")
    out.write_string(schema if isinstance(schema, str) else json.dumps(schema))
    name = "org.apache.flink.formats.avro.typeutils.AvroSerializerSnapshot"
    return snapshot(name, 3, out.to_bytes())


def optional_map(entries: Iterable[tuple[str, bytes, bytes]]) -> bytes:
    """A `LinkedOptionalMap`."""
    parts = [
        utf(name) + b"\x01" + i32(len(key)) + key + b"\x01" + i32(len(value)) + value
        for name, key, value in entries
    ]
    return i64(0x4F2C69A3D70) + i32(len(parts)) + b"".join(parts)


def pojo_of(fields: Iterable[tuple[str, bytes]], others: bytes = optional_map(())) -> bytes:
    """A POJO."""
    held = optional_map((name, utf("P") + utf(name), snapshot) for name, snapshot in fields)
    payload = utf("com.acme.Pojo") + held + optional_map(()) + others
    return snapshot(f"{RUNTIME}PojoSerializerSnapshot", 2, payload)


def enum_of(names: Iterable[str]) -> bytes:
    """An enum."""
    constants = [utf(name) for name in names]
    payload = utf("com.acme.Enum") + i32(len(constants)) + b"".join(constants)
    return snapshot(f"{BASE}EnumSerializer$EnumSerializerSnapshot", 3, payload)


STRING, LONG, INT = simple("String"), simple("Long"), simple("Int")
VOID = snapshot(
    "org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot"
)
BIG_INTEGER, BIG_DECIMAL = (
    snapshot(f"{BASE}BigIntSerializer$BigIntSerializerSnapshot"),
    snapshot(f"{BASE}BigDecSerializer$BigDecSerializerSnapshot"),
)


def entry(encoded: bytes) -> SerializerEntry:
    """A snapshot as a header holds it."""
    return SerializerEntry(None, i32(2) + encoded)  # type: ignore[arg-type]


# --------------------------------------------------------------------------- states


def keyed(name: str, value: bytes, kind: str = "VALUE", user_key: bytes | None = None,
          namespace: bytes = VOID) -> StateMetaInfo:  # fmt: skip
    """A keyed state."""
    serializers = {NAMESPACE_SERIALIZER: entry(namespace), VALUE_SERIALIZER: entry(value)}
    if user_key is not None:
        serializers[USER_KEY_SERIALIZER] = entry(user_key)
    return StateMetaInfo(name, BackendStateType.KEY_VALUE, {KEYED_STATE_TYPE: kind}, serializers)


def text(value: str) -> bytes:
    """A `StringValue`."""
    out = DataOutput()
    out.write_string(value)
    return out.to_bytes()


def keyed_file(
    states: Sequence[StateMetaInfo],
    entries: Sequence[tuple[int, bytes, bytes]],
    key: bytes = STRING,
    group: int = 0,
    prefix: int = 1,
) -> tuple[bytes, int]:
    """A file in the unified format, and where its one key group begins.

    Args:
        states: Its states.
        entries: State, key with namespace, and value of each, by state.
        key: The key's serializer.
        group: The key group.
        prefix: Bytes of its prefix.
    """
    out = DataOutput()
    write_keyed_header(KeyedHeader(False, entry(key), tuple(states)), out)
    offset = len(out)
    out.write_bytes(runs(entries, group, prefix))
    return out.to_bytes(), offset


def runs(entries: Sequence[tuple[int, bytes, bytes]], group: int = 0, prefix: int = 1) -> bytes:
    """Entries of one key group."""
    parts = []
    for index, (state, key, value) in enumerate(entries):
        if index == 0 or entries[index - 1][0] != state:
            parts.append(struct.pack(">H", state))
        head = bytearray(group.to_bytes(prefix, "big"))
        if index + 1 == len(entries) or entries[index + 1][0] != state:
            head[0] |= 0x80
        parts.append(i32(prefix + len(key)) + head + key + i32(len(value)) + value)
    return b"".join(parts) + b"\xff\xff"


def broadcast(name: str, key: bytes, value: bytes) -> StateMetaInfo:
    """A broadcast state."""
    return StateMetaInfo(
        name, BackendStateType.BROADCAST, {DISTRIBUTION_MODE: "BROADCAST"},
        {KEY_SERIALIZER: entry(key), VALUE_SERIALIZER: entry(value)},
    )  # fmt: skip


def listed(name: str, value: bytes, mode: str = "SPLIT_DISTRIBUTE") -> StateMetaInfo:
    """A list state of an operator's."""
    return StateMetaInfo(
        name, BackendStateType.OPERATOR, {DISTRIBUTION_MODE: mode}, {VALUE_SERIALIZER: entry(value)}
    )


def inline(data: bytes) -> InlineHandle:
    """Bytes in `_metadata`."""
    return InlineHandle("s", data)


def keyed_handle(
    data: bytes,
    offset: int,
    first: int = 0,
    kind: KeyGroupsKind = KeyGroupsKind.SAVEPOINT,
    stream: StreamHandle | None = None,
) -> KeyGroupsHandle:
    """The handle of one key group."""
    return KeyGroupsHandle(kind, first, (offset,), stream or inline(data))


def operator(
    number: int,
    subtasks: dict[int, SubtaskState],
    parallelism: int = 1,
    max_parallelism: int = 1,
    uid: str = "",
) -> OperatorMetadata:
    """An operator."""
    uid = uid or f"op-{number}"
    return OperatorMetadata(
        f"{number:032x}", parallelism, max_parallelism, uid, uid, None, dict(subtasks)
    )


def put(
    to: Path,
    *operators: OperatorMetadata,
    version: int = 5,
    properties: bytes = b"\xac\xed\x00\x05p",
) -> None:
    """Write `_metadata`."""
    metadata = CheckpointMetadata(
        version, 1, list(operators), [], properties if version > 3 else b""
    )
    (to / "_metadata").write_bytes(write_metadata(metadata))


def put_keyed(
    to: Path,
    states: Sequence[StateMetaInfo],
    entries: Sequence[tuple[int, bytes, bytes]] = (),
    key: bytes = STRING,
) -> None:
    """A snapshot of one subtask with keyed state."""
    data, offset = keyed_file(states, entries or [(0, text("k") + b"\0", b"")], key)
    put(to, operator(1, {0: SubtaskState(managed_keyed=keyed_handle(data, offset))}))


def put_value(to: Path, serializer: bytes, value: bytes) -> None:
    """A snapshot of one value."""
    put_keyed(to, [keyed("s", serializer)], [(0, text("k") + b"\0", value)])


def put_operator_state(to: Path, state: StateMetaInfo, elements: Sequence[bytes]) -> None:
    """A snapshot of one operator state."""
    out = DataOutput()
    is_broadcast = state.kind is BackendStateType.BROADCAST
    header = OperatorHeader(
        6, False, () if is_broadcast else (state,), (state,) if is_broadcast else ()
    )
    write_operator_header(header, out)
    offsets = []
    for element in elements:
        offsets.append(len(out))
        out.write_bytes(element)
    mode = DistributionMode[state.options[DISTRIBUTION_MODE]]
    handle = OperatorHandle(
        {state.name: PartitionOffsets(mode, tuple(offsets))}, inline(out.to_bytes())
    )
    put(to, operator(1, {0: SubtaskState(managed_operator=handle)}))


# --------------------------------------------------------------------------- large numbers


def big_integer(size: int) -> bytes:
    """A `BigInteger` of so many bytes."""
    return i32(size + 4) + b"\x7f" * size


for _name, _size in (("100kb", 100_000), ("1mb", 1_000_000)):
    case(f"big-integer-{_name}")(lambda to, n=_size: put_value(to, BIG_INTEGER, big_integer(n)))
    case(f"big-decimal-{_name}")(
        lambda to, n=_size: put_value(to, BIG_DECIMAL, big_integer(n) + i32(7))
    )
    case(f"big-integer-key-{_name}")(
        lambda to, n=_size: put_keyed(
            to, [keyed("s", STRING)], [(0, big_integer(n) + b"\0", text("v"))], BIG_INTEGER
        )
    )
    case(f"big-decimal-key-{_name}")(
        lambda to, n=_size: put_keyed(
            to, [keyed("s", STRING)], [(0, big_integer(n) + i32(3) + b"\0", text("v"))], BIG_DECIMAL
        )
    )
    case(f"big-integer-list-{_name}")(
        lambda to, n=_size: put_value(to, list_of(BIG_INTEGER), i32(2) + 2 * big_integer(n // 2))
    )


@case("big-decimals-4kb-each")
def _(to: Path) -> None:
    """A megabyte of numbers of ten thousand digits."""
    one = big_integer(4000) + i32(0)
    put_value(to, list_of(BIG_DECIMAL), i32(250) + one * 250)


for _scale in (2**31 - 1, -(2**31)):
    case(f"big-decimal-scale-{_scale}")(
        lambda to, n=_scale: put_value(to, BIG_DECIMAL, big_integer(20) + i32(n))
    )


# --------------------------------------------------------------------------- Avro


def avro_levels(levels: int, width: int = 2) -> Any:
    """Records in which each has the one before it `width` times."""
    schema: Any = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int"}]}
    for level in range(1, levels + 1):
        fields = [
            {"name": f"f{i}", "type": schema if i == 0 else f"R{level - 1}"} for i in range(width)
        ]
        schema = {"type": "record", "name": f"R{level}", "fields": fields}
    return schema


for _levels in (8, 12, 20, 60):
    case(f"avro-reused-{_levels}")(
        lambda to, n=_levels: put_value(to, avro(avro_levels(n)), b"\0" * 4 * (2 ** min(n, 12)))
    )


@case("avro-reused-many-states")
def _(to: Path) -> None:
    states = [keyed(f"s{i}", avro(json.dumps(avro_levels(12)) + " " * i)) for i in range(300)]
    put_keyed(to, states)


@case("avro-unions")
def _(to: Path) -> None:
    schema: Any = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int"}]}
    for level in range(1, 30):
        union = [
            schema,
            {"type": "array", "items": f"R{level - 1}"},
            {"type": "map", "values": f"R{level - 1}"},
        ]
        schema = {"type": "record", "name": f"R{level}", "fields": [{"name": "u", "type": union}]}
    put_value(to, avro(schema), b"\0" * 64)


@case("avro-recursive")
def _(to: Path) -> None:
    names = [f"R{i}" for i in range(60)]
    schema: Any = [
        {
            "type": "record",
            "name": name,
            "fields": [
                {"name": f"f{other}", "type": ["null", other]} for other in names[: index + 1]
            ],
        }
        for index, name in enumerate(names)
    ]
    put_value(to, avro(schema), b"\0" * 64)


@case("avro-fields-100000")
def _(to: Path) -> None:
    fields = [{"name": f"f{i}", "type": "int"} for i in range(100_000)]
    put_value(to, avro({"type": "record", "name": "R", "fields": fields}), b"\0" * 400_000)


@case("avro-enum-1000000")
def _(to: Path) -> None:
    put_value(
        to,
        avro({"type": "enum", "name": "E", "symbols": [f"S{i}" for i in range(1_000_000)]}),
        i32(7),
    )


@case("avro-nested-json-100000")
def _(to: Path) -> None:
    put_value(to, avro("[" * 100_000 + "]" * 100_000), b"")


@case("avro-nested-arrays-5000")
def _(to: Path) -> None:
    text_ = '{"type":"array","items":' * 300 + '"int"' + "}" * 300
    put_value(to, avro(text_), b"\0")


@case("avro-type-wrappers-900")
def _(to: Path) -> None:
    put_value(to, avro('{"type":' * 900 + '"int"' + "}" * 900), i32(1))


@case("avro-array-of-null")
def _(to: Path) -> None:
    blocks = b"\x80\x80\x04" * 300_000 + b"\0"  # each 65,536 of no bytes
    put_value(to, avro({"type": "array", "items": "null"}), blocks)


@case("avro-array-of-empty-records")
def _(to: Path) -> None:
    blocks = b"\x80\x80\x04" * 300_000 + b"\0"
    empty = {"type": "record", "name": "E", "fields": []}
    put_value(
        to,
        avro({"type": "array", "items": {"type": "array", "items": empty}}),
        b"\1" + blocks + b"\0",
    )


@case("avro-huge-literal")
def _(to: Path) -> None:
    put_value(to, avro('{"type":"fixed","name":"F","size":' + "9" * 4000 + "}"), b"")


@case("avro-huge-json-number")
def _(to: Path) -> None:
    put_value(to, avro('{"type":"int","x":' + "9" * 1_000_000 + "}"), i32(1))


# --------------------------------------------------------------------------- Java streams

SC = 0x02


def class_descriptor(
    name: str, fields: bytes = b"\0\0", parent: bytes = b"p", flags: int = SC
) -> bytes:
    """A class descriptor; `fields` with their count."""
    return b"r" + utf(name) + i64(1) + bytes([flags]) + fields + b"x" + parent


def java_chain(size: int) -> bytes:
    """Each class extends the one before it, and each has an object: the chain grows by one."""
    # an array of objects; element i is a new class whose parent is a reference to the class before
    parts, count, handle = [], 0, 0x7E0000
    head = b"u" + class_descriptor("[Ljava.lang.Object;")  # handle 0: class, 1: array
    handle += 2
    parent = b"p"
    while sum(map(len, parts)) < size if count % 512 == 0 else True:
        parts.append(b"s" + class_descriptor("C", b"\0\0", parent))
        parent = b"q" + i32(handle)
        handle += 2
        count += 1
    return b"\xac\xed\0\5" + head + i32(count) + b"".join(parts)


def java_wide(count: int) -> bytes:
    """One class with a chain of 90 parents, each with 0 fields, and many objects of it."""
    described = b"p"
    for index in range(90):
        described = class_descriptor(f"C{index}", b"\0\0", described)
    head = b"u" + class_descriptor("[Ljava.lang.Object;") + i32(count)
    # handles: 0 array class, 1 array, then the 90 classes, the outermost first: 2
    first = b"s" + described
    again = b"s" + b"q" + i32(0x7E0002)
    return b"\xac\xed\0\5" + head + first + again * (count - 1)


def nulls(count: int) -> bytes:
    """An array of nulls."""
    return b"\xac\xed\0\5u" + class_descriptor("[Ljava.lang.Object;") + i32(count) + b"p" * count


case("properties-superclasses-253kib")(lambda to: put(to, properties=java_chain(253 << 10)))
case("properties-superclasses-5mib")(lambda to: put(to, properties=java_chain(5 << 20)))
case("properties-parents-of-many")(lambda to: put(to, properties=java_wide(600_000)))
case("properties-nulls-20mb")(lambda to: put(to, properties=nulls(20_000_000)))


def java_arrays(size: int) -> bytes:
    """An array of empty arrays of the same class."""
    count = size // 10
    head = b"u" + class_descriptor("[Ljava.lang.Object;") + i32(count)
    return b"\xac\xed\0\5" + head + (b"uq" + i32(0x7E0000) + i32(0)) * count


def java_bytes(size: int) -> bytes:
    """An array of bytes."""
    return b"\xac\xed\0\5u" + class_descriptor("[B") + i32(size) + b"\0" * size


def java_strings(size: int) -> bytes:
    """An array of empty strings."""
    head = b"u" + class_descriptor("[Ljava.lang.String;") + i32(size // 3)
    return b"\xac\xed\0\5" + head + b"t\0\0" * (size // 3)


def java_block_data(size: int) -> bytes:
    """An object whose `writeObject` wrote empty blocks."""
    return b"\xac\xed\0\5s" + class_descriptor("C", flags=3) + b"w\0" * (size // 2) + b"x"


def java_class_annotations(size: int) -> bytes:
    """A class with annotations."""
    return b"\xac\xed\0\5s" + b"r" + utf("C") + i64(1) + b"\2\0\0" + b"p" * size + b"xp"


def java_fields(classes: int) -> bytes:
    """Classes of 32,767 fields of the shortest kind, and an object of each."""
    fields = struct.pack(">h", 32767) + b"Z\0\0" * 32767
    head = b"u" + class_descriptor("[Ljava.lang.Object;") + i32(classes)
    return b"\xac\xed\0\5" + head + (b"s" + class_descriptor("C", fields) + b"\0" * 32767) * classes


for _name, _make in (
    ("arrays", java_arrays), ("bytes", java_bytes), ("strings", java_strings),
    ("block-data", java_block_data), ("annotations", java_class_annotations),
):  # fmt: skip
    case(f"properties-{_name}-20mb")(lambda to, make=_make: put(to, properties=make(20_000_000)))
case("properties-fields")(lambda to: put(to, properties=java_fields(100)))


def row_data(types: Sequence[bytes], nested: Sequence[bytes] = ()) -> bytes:
    """`RowData` of logical types given as Java streams."""
    payload = i32(len(types)) + b"".join(types)
    payload += i32(1333245) + i32(1) + i32(len(nested)) + b"".join(nested)
    return snapshot(f"{TABLE}RowDataSerializer$RowDataSerializerSnapshot", 3, payload)


case("sql-nulls-20mb")(lambda to: put_value(to, row_data([nulls(20_000_000)]), b""))
case("sql-superclasses-253kib")(lambda to: put_value(to, row_data([java_chain(253 << 10)]), b""))


# --------------------------------------------------------------------------- wide and deep types

case("pojo-fields-1000000")(
    lambda to: put_value(to, pojo_of((f"f{i}", INT) for i in range(1_000_000)), b"\1")
)
case("pojo-fields-20000")(
    lambda to: put_value(to, pojo_of((f"f{i}", INT) for i in range(20_000)), b"\2" + b"\1" * 20_000)
)
case("pojo-fields-4000")(
    lambda to: put_value(to, pojo_of((f"f{i}", INT) for i in range(4_000)), b"\2" + b"\1" * 4_000)
)
case("pojo-subclasses-30000")(
    lambda to: put_value(
        to,
        pojo_of(
            [("a", INT)], optional_map((f"c{i}", b"", pojo_of([("a", INT)])) for i in range(30_000))
        ),
        b"\1",
    )
)
case("tuple-arity-300000")(lambda to: put_value(to, tuple_of([INT] * 100_000), b"\0" * 400_000))
case("row-arity-300000")(lambda to: put_value(to, row_of([INT] * 100_000), b"\0" * 412_501))
case("case-class-arity-100000")(
    lambda to: put_value(to, case_class_of([INT] * 100_000), b"\0" * 400_000)
)
case("enum-1000000")(lambda to: put_value(to, enum_of(f"N{i}" for i in range(1_000_000)), i32(3)))
case("enums-of-empty-names")(
    lambda to: put_value(to, enum_of("" for i in range(5_000_000)), i32(3))
)


def nest(wrap: Callable[[bytes], bytes], depth: int, inner: bytes = INT) -> bytes:
    """A type within itself."""
    for _ in range(depth):
        inner = wrap(inner)
    return inner


case("lists-nested-60")(lambda to: put_value(to, nest(list_of, 60), i32(1) * 61))
case("maps-nested-60")(
    lambda to: put_value(
        to, nest(lambda inner: map_of(INT, inner), 60), (i32(1) + i32(5) + b"\0") * 60 + i32(1)
    )
)
case("tuples-nested-60")(
    lambda to: put_value(to, nest(lambda inner: tuple_of([inner, INT]), 60), i32(1) * 61)
)
case("pojos-nested-50")(
    lambda to: put_value(to, nest(lambda inner: pojo_of([("a", inner), ("b", INT)]), 50), b"\1")
)


@case("pojos-nested-wide")
def _(to: Path) -> None:
    """Frames in frames: each level is copied out of the one around it."""
    inner = pojo_of((f"f{i}", INT) for i in range(20_000))
    put_value(to, nest(lambda value: pojo_of([("a", value)]), 50, inner), b"\1")


case("list-of-nothing")(lambda to: put_value(to, list_of(avro('"null"')), i32(2**31 - 1)))
case("map-of-nothing")(
    lambda to: put_value(
        to, map_of(avro('"null"'), avro('"null"')), i32(20_000_000) + b"\0" * 20_000_000
    )
)


@case("lists-of-65536-nothings")
def _(to: Path) -> None:
    array = composite(f"{BASE}GenericArraySerializerSnapshot", 1, utf("X"), [avro('"null"')])
    put_value(to, array, i32(2**31 - 1))


# --------------------------------------------------------------------------- many of something


@case("operators-300000")
def _(to: Path) -> None:
    put(to, *(operator(i, {}, uid="u") for i in range(300_000)))


@case("operators-300000-empty-names")
def _(to: Path) -> None:
    one = [OperatorMetadata(f"{i:032x}", 1, 1) for i in range(300_000)]
    put(to, *one, version=3)


@case("subtasks-1000000")
def _(to: Path) -> None:
    put(
        to,
        operator(
            1, {i: SubtaskState(finished=True) for i in range(1_000_000)}, 2**31 - 1, 2**31 - 1
        ),
    )


@case("max-parallelism-2147483647")
def _(to: Path) -> None:
    data, offset = keyed_file([keyed("s", STRING)], [(0, text("k") + b"\0", text("v"))], prefix=2)
    put(to, operator(1, {0: SubtaskState(managed_keyed=keyed_handle(data, offset))}, 1, 2**31 - 1))


@case("parallelism-2147483647")
def _(to: Path) -> None:
    data, offset = keyed_file([keyed("s", STRING)], [(0, text("k") + b"\0", text("v"))], prefix=2)
    put(
        to,
        operator(
            1, {0: SubtaskState(managed_keyed=keyed_handle(data, offset))}, 2**31 - 1, 2**31 - 1
        ),
    )


@case("operators-of-max-parallelism-32768")
def _(to: Path) -> None:
    put(to, *(operator(i, {}, 32768, 32768) for i in range(3000)))


@case("operators-16384-of-max-parallelism-32768")
def _(to: Path) -> None:
    put(to, *(OperatorMetadata(f"{i:032x}", 1, 32768) for i in range(1 << 14)), version=3)


@case("keyed-states-1000")
def _(to: Path) -> None:
    put_keyed(
        to,
        [keyed(f"s{i}", INT) for i in range(1000)],
        [(i, text("k") + b"\0", i32(i)) for i in range(1000)],
    )


@case("keyed-states-32767")
def _(to: Path) -> None:
    put_keyed(
        to,
        [keyed(f"s{i}", INT) for i in range(32767)],
        [(i, text("k") + b"\0", i32(i)) for i in range(32767)],
    )


@case("keyed-states-of-many-key-groups")
def _(to: Path) -> None:
    """States times key groups are cells to count in."""
    data, _ = keyed_file(
        [keyed(f"s{i}", INT) for i in range(5000)], [(0, text("k") + b"\0", i32(1))]
    )
    handle = KeyGroupsHandle(KeyGroupsKind.SAVEPOINT, 0, (0,) * 32768, inline(data))
    put(to, operator(1, {0: SubtaskState(managed_keyed=handle)}, 1, 32768))


@case("keyed-states-empty-everywhere")
def _(to: Path) -> None:
    """Many operators, each with a state of no entries in all key groups."""
    data, _ = keyed_file([keyed("s", INT)], [(0, text("k") + b"\0", i32(1))])
    ops = [
        operator(
            i,
            {
                0: SubtaskState(
                    managed_keyed=KeyGroupsHandle(KeyGroupsKind.SAVEPOINT, 0, (0,), inline(data))
                )
            },
            1,
            32768,
        )
        for i in range(300)
    ]
    put(to, *ops)


@case("operator-states-30000")
def _(to: Path) -> None:
    out = DataOutput()
    states = tuple(listed(f"s{i}", INT) for i in range(30_000))
    write_operator_header(OperatorHeader(6, False, states, ()), out)
    at = len(out)
    out.write_bytes(i32(1) * 30_000)
    parts = {
        state.name: PartitionOffsets(DistributionMode.SPLIT_DISTRIBUTE, (at + 4 * i,))
        for i, state in enumerate(states)
    }
    put(
        to,
        operator(
            1, {0: SubtaskState(managed_operator=OperatorHandle(parts, inline(out.to_bytes())))}
        ),
    )


@case("operator-offsets-1000000-alike")
def _(to: Path) -> None:
    out = DataOutput()
    state = listed("s", STRING)
    write_operator_header(OperatorHeader(6, False, (state,), ()), out)
    at = len(out)
    out.write_bytes(text("v" * 10_000))
    handle = OperatorHandle(
        {"s": PartitionOffsets(DistributionMode.SPLIT_DISTRIBUTE, (at,) * 1_000_000)},
        inline(out.to_bytes()),
    )
    put(to, operator(1, {0: SubtaskState(managed_operator=handle)}))


@case("operator-states-share-elements")
def _(to: Path) -> None:
    """Many states whose offsets lead to the same bytes."""
    out = DataOutput()
    states = tuple(listed(f"s{i}", STRING) for i in range(2_000))
    write_operator_header(OperatorHeader(6, False, states, ()), out)
    at = len(out)
    out.write_bytes(text("v" * 1_000_000))
    part = PartitionOffsets(DistributionMode.SPLIT_DISTRIBUTE, (at,))
    handle = OperatorHandle({state.name: part for state in states}, inline(out.to_bytes()))
    put(to, operator(1, {0: SubtaskState(managed_operator=handle)}))


@case("broadcast-of-nothing")
def _(to: Path) -> None:
    put_operator_state(to, broadcast("s", avro('"null"'), avro('"null"')), [i32(2**31 - 1)])


@case("list-elements-of-no-bytes-1000000")
def _(to: Path) -> None:
    put_operator_state(to, listed("s", avro('"null"')), [b""] * 1_000_000)


@case("options-300000")
def _(to: Path) -> None:
    state = keyed("s", INT)
    state.options.update({f"o{i}": "" for i in range(300_000)})
    put_keyed(to, [state])


@case("strings-of-nuls")
def _(to: Path) -> None:
    put_value(to, STRING, text("\0" * 5_000_000))


@case("namespaces-of-1mb")
def _(to: Path) -> None:
    put_keyed(
        to, [keyed("s", INT, namespace=STRING)], [(0, text("k") + text("n" * 1_000_000), i32(1))]
    )


@case("unknown-class-1mb")
def _(to: Path) -> None:
    put_value(to, snapshot("com.acme.Unknown", 1, b"\0\4nope" * 200_000), b"")


@case("unknown-classes-many")
def _(to: Path) -> None:
    states = [
        keyed(f"s{i}", snapshot(f"com.acme.Unknown{i}", 1, b"\0\1a" * 300)) for i in range(60)
    ]
    put_keyed(to, states)


# --------------------------------------------------------------------------- files and handles


def counted(group: int, prefix: int = 1) -> bytes:
    return runs([(0, text("k") + b"\0", text("v"))], group, prefix)


@case("subtasks-share-a-file")
def _(to: Path) -> None:
    """128 subtasks, each with all 128 key groups of one file."""
    out = DataOutput()
    write_keyed_header(KeyedHeader(False, entry(STRING), (keyed("s", STRING),)), out)
    offsets = []
    for group in range(128):
        offsets.append(len(out))
        out.write_bytes(runs([(0, text(f"k{i}") + b"\0", text("v" * 20)) for i in range(4)], group))
    (to / "shared").write_bytes(out.to_bytes())
    stream = RelativeHandle("shared", len(out))
    handle = KeyGroupsHandle(KeyGroupsKind.SAVEPOINT, 0, tuple(offsets), stream)
    put(to, operator(1, {i: SubtaskState(managed_keyed=handle) for i in range(128)}, 128, 128))


@case("operators-share-a-file")
def _(to: Path) -> None:
    """1,000 operators that point at one file of 2 MB."""
    data, offset = keyed_file(
        [keyed("s", STRING)], [(0, text(f"k{i}") + b"\0", text("v" * 1000)) for i in range(2_000)]
    )
    (to / "shared").write_bytes(data)
    stream = RelativeHandle("shared", len(data))
    put(
        to,
        *(
            operator(i, {0: SubtaskState(managed_keyed=keyed_handle(b"", offset, stream=stream))})
            for i in range(1000)
        ),
    )


@case("operator-states-share-a-file")
def _(to: Path) -> None:
    """1,000 subtasks whose operator state is the same file of 2 MB."""
    out = DataOutput()
    state = listed("s", STRING)
    write_operator_header(OperatorHeader(6, False, (state,), ()), out)
    at = len(out)
    out.write_bytes(text("v" * 2_000_000))
    (to / "shared").write_bytes(out.to_bytes())
    handle = OperatorHandle(
        {"s": PartitionOffsets(DistributionMode.SPLIT_DISTRIBUTE, (at,))},
        RelativeHandle("shared", len(out)),
    )
    put(
        to, operator(1, {i: SubtaskState(managed_operator=handle) for i in range(1000)}, 1000, 1000)
    )


@case("broadcast-copies-share-a-file")
def _(to: Path) -> None:
    out = DataOutput()
    state = broadcast("s", STRING, STRING)
    write_operator_header(OperatorHeader(6, False, (), (state,)), out)
    at = len(out)
    out.write_bytes(i32(20_000) + b"".join(text(f"k{i}") + text("v" * 90) for i in range(20_000)))
    (to / "shared").write_bytes(out.to_bytes())
    handle = OperatorHandle(
        {"s": PartitionOffsets(DistributionMode.BROADCAST, (at,))},
        RelativeHandle("shared", len(out)),
    )
    put(
        to, operator(1, {i: SubtaskState(managed_operator=handle) for i in range(1000)}, 1000, 1000)
    )


@case("raw-state-shares-a-file")
def _(to: Path) -> None:
    """2,000 subtasks whose raw state is the same file of 5 MB."""
    (to / "shared").write_bytes(b"\x11" * 5_000_000)
    handle = OperatorHandle(
        {"r": PartitionOffsets(DistributionMode.SPLIT_DISTRIBUTE, (0,))},
        RelativeHandle("shared", 5_000_000),
    )
    put(to, operator(1, {i: SubtaskState(raw_operator=handle) for i in range(2000)}, 2000, 2000))


@case("raw-keyed-shares-a-file")
def _(to: Path) -> None:
    (to / "shared").write_bytes(b"\x11" * 5_000_000)
    handle = KeyGroupsHandle(KeyGroupsKind.LEGACY, 0, (0,), RelativeHandle("shared", 5_000_000))
    put(to, operator(1, {i: SubtaskState(raw_keyed=handle) for i in range(2000)}, 2000, 2000))


@case("header-shared-by-many")
def _(to: Path) -> None:
    """1,000 subtasks that share a file whose head is 1 MB of an enum's names, without entries."""
    data, _ = keyed_file(
        [keyed("s", enum_of(f"N{i}" for i in range(120_000)))], [(0, text("k") + b"\0", i32(1))]
    )
    (to / "shared").write_bytes(data)
    stream = RelativeHandle("shared", len(data))
    handle = KeyGroupsHandle(KeyGroupsKind.SAVEPOINT, 0, (), stream)
    put(to, operator(1, {i: SubtaskState(managed_keyed=handle) for i in range(1000)}, 1000, 1000))


@case("operators-16384")
def _(to: Path) -> None:
    put(to, *(operator(i, {}) for i in range(16_384)))


def keyed_operators(to: Path, count: int) -> None:
    """A snapshot of so many operators with one entry each."""
    data, offset = keyed_file([keyed("s", INT)], [(0, text("k") + b"\0", i32(1))])
    handle = keyed_handle(data, offset)
    put(to, *(operator(i, {0: SubtaskState(managed_keyed=handle)}) for i in range(count)))


case("operators-300-keyed")(lambda to: keyed_operators(to, 300))
case("operators-4000-keyed")(lambda to: keyed_operators(to, 4_000))


@case("operators-300-keyed-32768")
def _(to: Path) -> None:
    data, offset = keyed_file([keyed("s", INT)], [(0, text("k") + b"\0", i32(1))], prefix=2)
    handle = keyed_handle(data, offset)
    put(
        to,
        *(operator(i, {0: SubtaskState(managed_keyed=handle)}, 1, 32768) for i in range(300)),
    )
