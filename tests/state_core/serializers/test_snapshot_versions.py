"""Snapshots of serializers: every version that Flink reads is read, the current one is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from statelake.state_core.errors import CorruptSnapshotError, StateError, UnsupportedFormatError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.meta_info import read_serializer_entry, serializer_entry
from statelake.state_core.serializers.basic.numbers import SNAPSHOTS, LongSerializer
from statelake.state_core.serializers.composite.collections import ListSerializerSnapshot
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.registry import registered_classes
from statelake.state_core.serializers.framework.snapshots import SimpleTypeSerializerSnapshot

BASE = "org.apache.flink.api.common.typeutils.base."
LONG = SNAPSHOTS[LongSerializer]


def nested(made: TypeSerializerSnapshot, *held: TypeSerializerSnapshot) -> TypeSerializerSnapshot:
    """A composite snapshot around others."""
    made.nested = held  # type: ignore[attr-defined]
    return made


def utf(text: str) -> bytes:
    """A name as the format has it."""
    out = DataOutput()
    out.write_utf(text)
    return out.to_bytes()


@pytest.mark.parametrize(
    ("form", "kind", "words"),
    [
        (1, UnsupportedFormatError, "Java-serialized serializer in the form of before Flink 1.7"),
        (0, CorruptSnapshotError, "unknown form 0"),
        (3, CorruptSnapshotError, "unknown form 3"),
    ],
)
def test_wrappers_of_other_versions(form: int, kind: type[StateError], words: str) -> None:
    """Only wrapper 2 is read by Flink since 1.17."""
    with pytest.raises(kind, match=words):
        read_serializer_entry(DataInput(form.to_bytes(4, "big") + bytes(9)), "the key")


SIMPLE = {
    name: made
    for name, made in registered_classes().items()
    if made.__base__ is SimpleTypeSerializerSnapshot and made.versions == range(2, 4)
}


@pytest.mark.parametrize("name", SIMPLE)
def test_simple_snapshots_of_both_versions(name: str) -> None:
    """Version 2 held the serializer's class name, version 3 holds nothing."""
    for version, payload in ((2, utf("some.Serializer")), (3, b"")):
        data = (2).to_bytes(4, "big") + utf(name) + version.to_bytes(4, "big") + payload
        source = DataInput(data + b"rest")
        entry = read_serializer_entry(source, "it")
        assert (type(entry.snapshot), entry.snapshot.version) == (SIMPLE[name], version)
        assert entry.encoded == data
        assert source.read_rest() == b"rest"
    for version in (1, 4):
        data = (2).to_bytes(4, "big") + utf(name) + version.to_bytes(4, "big")
        with pytest.raises(UnsupportedFormatError, match=f"version {version}; 2, 3 can be read"):
            read_serializer_entry(DataInput(data), "it")


def outer_nothing(out: DataOutput) -> None:
    """An outer payload that is empty."""


def outer_tuple(out: DataOutput) -> None:
    """The tuple's class."""
    out.write_utf("org.apache.flink.api.java.tuple.Tuple2")


def outer_kind(out: DataOutput) -> None:
    """That rows have kinds."""
    out.write_boolean(True)


RUNTIME = "org.apache.flink.api.java.typeutils.runtime."
TTL = "org.apache.flink.runtime.state.ttl.TtlStateFactory$TtlSerializerSnapshot"
TIMER = "org.apache.flink.streaming.api.operators.TimerSerializerSnapshot"
ROW = f"{RUNTIME}RowSerializer$RowSerializerSnapshot"
COMPOSITES: list[tuple[str, int, int | None, int, Callable[[DataOutput], None], str]] = [
    # class, version, outer version (None: without magic), nested, outer payload, type
    (f"{BASE}ListSerializerSnapshot", 3, 1, 1, outer_nothing, "List<Long>"),
    (f"{BASE}ListSerializerSnapshot", 1, None, 1, outer_nothing, "List<Long>"),
    (f"{BASE}MapSerializerSnapshot", 3, 1, 2, outer_nothing, "Map<Long, Long>"),
    (f"{BASE}MapSerializerSnapshot", 1, None, 2, outer_nothing, "Map<Long, Long>"),
    (f"{RUNTIME}TupleSerializerSnapshot", 3, 2, 2, outer_tuple, "Tuple2<Long, Long>"),
    (f"{RUNTIME}TupleSerializerSnapshot", 2, None, 2, outer_tuple, "Tuple2<Long, Long>"),
    (ROW, 3, 4, 2, outer_kind, "Row<Long, Long>"),
    (ROW, 3, 3, 2, outer_nothing, "Row<Long, Long>"),
    (ROW, 2, None, 2, outer_nothing, "Row<Long, Long>"),
    (TTL, 3, 2, 2, outer_nothing, "TtlValue<Long>"),
    (TTL, 1, None, 2, outer_nothing, "TtlValue<Long>"),
    (TIMER, 3, 2, 2, outer_nothing, "Timer<Long, Long>"),
    (TIMER, 1, None, 2, outer_nothing, "Timer<Long, Long>"),
]


@pytest.mark.parametrize(
    ("name", "version", "outer", "count", "payload", "type_name"),
    COMPOSITES,
    ids=[f"{row[0].rpartition('.')[2]}-{row[1]}-{row[2]}" for row in COMPOSITES],
)
def test_composite_snapshots_of_old_versions(
    name: str,
    version: int,
    outer: int | None,
    count: int,
    payload: Callable[[DataOutput], None],
    type_name: str,
) -> None:
    """Before Flink 1.9 there were neither magic number nor outer version."""
    out = DataOutput()
    out.write_int(2)
    out.write_utf(name)
    out.write_int(version)
    if outer is not None:
        out.write_int(911108)
        out.write_int(outer)
    payload(out)
    for number in (1333245, 1, count):
        out.write_int(number)
    for _ in range(count):
        out.write_utf(LONG.java_class)
        out.write_int(3)
    source = DataInput(out.to_bytes() + b"rest")
    entry = read_serializer_entry(source, "it")
    assert source.read_rest() == b"rest"
    assert entry.snapshot.restore_serializer().name == type_name
    assert entry.encoded == out.to_bytes()
    current = serializer_entry(entry.snapshot)
    again = read_serializer_entry(DataInput(current.encoded), "it").snapshot
    assert again.restore_serializer().name == type_name
    assert again.version == 3


def test_serializers_nest_only_so_deep() -> None:
    """A list of a list of a list, and so on: refused before Python's stack is."""
    whole: TypeSerializerSnapshot = LONG()
    for _ in range(63):
        whole = nested(ListSerializerSnapshot(), whole)
    fine = serializer_entry(whole)
    read_serializer_entry(DataInput(fine.encoded), "it").snapshot.restore_serializer()
    too_deep = serializer_entry(
        nested(ListSerializerSnapshot(), nested(ListSerializerSnapshot(), whole))
    )
    with pytest.raises(CorruptSnapshotError, match="nested more than 64 deep"):
        read_serializer_entry(DataInput(too_deep.encoded), "it")
