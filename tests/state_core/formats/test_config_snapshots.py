"""Serializer snapshots in the form of before Flink 1.7: read where the class says all, or refused.

The bytes are made here by a small writer after Flink 1.7 to 1.16's `TypeSerializerConfigSnapshot`,
`TypeSerializerSerializationUtil` and `ParameterlessTypeSerializerConfig`.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import (
    StateError,
    UnknownSerializerError,
    UnsupportedFormatError,
)
from statelake.state_core.files.java_stream import write_java_stream
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.meta_info import (
    VALUE_SERIALIZER,
    BackendStateType,
    parse_keyed_header,
    read_keyed_header,
    read_serializer_entry,
    serializer_entry,
    write_keyed_header,
)
from statelake.state_core.serializers import registered_classes
from statelake.state_core.serializers.composite.collections import ListSerializerSnapshot
from statelake.state_core.serializers.framework.base import ADAPTER_VERSION
from statelake.state_core.serializers.framework.config_snapshots import (
    PARAMETERLESS,
    JavaSerializerSnapshot,
)
from statelake.state_core.serializers.framework.snapshots import NESTED_MAGIC
from statelake.state_core.serializers.sql.types.logical_type_objects import java_class, java_object
from statelake.state_core.serializers.type_spec import parse_type

BASE = "org.apache.flink.api.common.typeutils.base."
WINDOWS = "org.apache.flink.streaming.api.windowing.windows."
FIXED = {
    f"{BASE}StringSerializer": "String",
    f"{BASE}LongSerializer": "Long",
    f"{BASE}BigDecSerializer": "BigDecimal",
    f"{BASE}InstantSerializer": "Instant",
    f"{BASE}array.IntPrimitiveArraySerializer": "int[]",
    f"{BASE}array.BytePrimitiveArraySerializer": "byte[]",
    f"{BASE}VoidSerializer": "Void",
    "org.apache.flink.runtime.state.VoidNamespaceSerializer": "VoidNamespace",
    f"{WINDOWS}TimeWindow$Serializer": "TimeWindow",
    f"{WINDOWS}GlobalWindow$Serializer": "GlobalWindow",
    "org.apache.flink.api.java.typeutils.runtime.Tuple0Serializer": "Tuple0",
}


def adapted(serializer: str, config: str = PARAMETERLESS) -> bytes:
    """A versioned snapshot as Flink 1.7 to 1.16 write one that is a config snapshot."""
    stream = write_java_stream(java_object(java_class(serializer, 1)))
    out = DataOutput()
    out.write_utf(config)
    out.write_int(ADAPTER_VERSION)
    out.write_int(1)
    out.write_int(len(stream))
    out.write_bytes(stream)
    out.write_int(1)
    out.write_utf(serializer.replace("$", "."))
    return out.to_bytes()


def wrapped(snapshot: bytes, version: int = 2) -> DataInput:
    """A snapshot in the wrapper of state meta infos."""
    return DataInput(version.to_bytes(4, "big") + snapshot, "file")


@pytest.mark.parametrize("serializer", FIXED)
def test_what_the_class_says_is_read(serializer: str) -> None:
    """Numbers, strings, arrays, windows: the class name in the Java stream is enough."""
    source = wrapped(adapted(serializer))
    entry = read_serializer_entry(source, "the key")
    assert source.remaining == 0
    assert entry.snapshot.type_name == FIXED[serializer]
    assert entry.encoded == serializer_entry(type(entry.snapshot)()).encoded


@pytest.mark.parametrize("serializer", FIXED)
def test_the_wrapper_of_flink_1_6(serializer: str) -> None:
    """There the serializer is not beside it, but its config names it."""
    out = DataOutput()
    out.write_utf(PARAMETERLESS)
    out.write_int(1)
    out.write_utf(serializer.replace("$", "."))
    entry = read_serializer_entry(wrapped(out.to_bytes(), 1), "the key")
    assert entry.snapshot.type_name == FIXED[serializer]


def test_nested_in_a_newer_one() -> None:
    """A list of today's whose element is of the older form, which is written back as today's."""
    out = DataOutput()
    out.write_utf(ListSerializerSnapshot.java_class)
    out.write_int(1)
    for number in (NESTED_MAGIC, 1, 1):
        out.write_int(number)
    out.write_bytes(adapted(f"{BASE}LongSerializer"))
    entry = read_serializer_entry(wrapped(out.to_bytes()), "the value")
    assert entry.snapshot.type_name == "List<Long>"
    assert entry.encoded == serializer_entry(parse_type("List<Long>")).encoded


def test_a_keyed_header() -> None:
    """Version 6 (Flink 1.7 on), as a whole: what is written back is what Flink 2.3 reads."""
    data = DataOutput()
    data.write_int(6)
    data.write_boolean(False)
    data.write_int(2)
    data.write_bytes(adapted(f"{BASE}StringSerializer"))
    data.write_short(1)
    data.write_utf("count")
    for number in (BackendStateType.KEY_VALUE.value, 0, 1):
        data.write_int(number)
    data.write_utf(VALUE_SERIALIZER)
    data.write_int(2)
    data.write_bytes(adapted(f"{BASE}IntSerializer"))
    source = DataInput(data.to_bytes() + b"rest")
    header = read_keyed_header(source)
    assert header.size == len(data) == source.position
    out = DataOutput()
    write_keyed_header(header, out)
    assert ADAPTER_VERSION.to_bytes(4, "big") not in out.to_bytes()
    again = read_keyed_header(DataInput(out.to_bytes()))
    assert again.key_serializer.snapshot.type_name == "String"
    assert again.states[0].serializers[VALUE_SERIALIZER].snapshot.type_name == "Integer"


POJO = "org.apache.flink.api.java.typeutils.runtime.PojoSerializer"


BEAM = "org.apache.beam.runners.flink.translation.types.CoderTypeSerializer"
MORE = [
    (POJO, f"{POJO}$PojoSerializerConfigSnapshot"),
    ("com.acme.MySerializer", PARAMETERLESS),
    ("com.acme.MySerializer", "com.acme.MyConfigSnapshot"),
    ("org.apache.flink.runtime.state.JavaSerializer", PARAMETERLESS),
    (f"{BASE}ListSerializer", PARAMETERLESS),
    (BEAM, f"{BEAM}$LegacySnapshot"),
    ("javax.script.ScriptEngineManager", PARAMETERLESS),
]


@pytest.mark.parametrize(("serializer", "config"), MORE)
@pytest.mark.parametrize("bare", [False, True])
def test_what_more_than_the_class_says_is_kept_as_bytes(
    serializer: str, config: str, bare: bool
) -> None:
    """The other states beside it are read, and the header is written back as it was.

    A stream may name any class: it is looked up among snapshots, and found unknown.
    """
    other = adapted(serializer, config)
    if bare and config != PARAMETERLESS:  # as Beam's: a version, and nothing behind it
        other = other[: -2 - len(serializer)]
    data = DataOutput()
    data.write_int(6)
    data.write_boolean(False)
    data.write_int(2)
    data.write_bytes(other)
    data.write_short(2)
    plain = serializer_entry(parse_type("Long")).encoded
    for name, encoded in (("mine", (2).to_bytes(4, "big") + other), ("count", plain)):
        data.write_utf(name)
        for number in (BackendStateType.KEY_VALUE.value, 0, 1):
            data.write_int(number)
        data.write_utf(VALUE_SERIALIZER)
        data.write_bytes(encoded)
    header = parse_keyed_header(data.to_bytes())
    mine, count = (state.serializers[VALUE_SERIALIZER].snapshot for state in header.states)
    assert count.type_name == "Long"
    for snapshot in (mine, header.key_serializer.snapshot):
        assert isinstance(snapshot, JavaSerializerSnapshot)
        assert snapshot.type_name == f"binary ({serializer})"
    out = DataOutput()
    write_keyed_header(header, out)
    assert out.to_bytes() == data.to_bytes()


@pytest.mark.parametrize(("serializer", "config"), MORE)
@pytest.mark.parametrize("version", [1, 2])
def test_without_an_end_it_is_refused(serializer: str, config: str, version: int) -> None:
    """With its class, whose it is, and how to bring such a savepoint forward."""
    data = adapted(serializer, config)
    if version == 1:
        out = DataOutput()
        out.write_utf(config)
        out.write_int(1)
        out.write_utf(serializer)
        data = out.to_bytes()
    elif config == PARAMETERLESS:
        assert read_serializer_entry(wrapped(data), "it").encoded[4:] == data
        return
    with pytest.raises((UnsupportedFormatError, UnknownSerializerError)) as found:
        read_serializer_entry(wrapped(data, version), "state 'mine'")
    assert "state 'mine', file, offset" in str(found.value)
    assert (serializer in str(found.value)) or (config in str(found.value))
    assert "Flink 1.8 to 1.16, and take a new savepoint there" in found.value.remedy


@given(st.sampled_from(sorted(FIXED)), st.data())
def test_damaged_ones_give_errors_of_ours(serializer: str, data: st.DataObject) -> None:
    """Cut or changed anywhere: a known type or our error."""
    row = bytearray(adapted(serializer))
    at = data.draw(st.integers(0, len(row) - 1))
    if data.draw(st.booleans()):
        row = row[:at]
    else:
        row[at] = data.draw(st.integers(0, 255))
    try:
        found = read_serializer_entry(wrapped(bytes(row)), "the key")
    except StateError:
        return
    if not isinstance(found.snapshot, JavaSerializerSnapshot):
        assert found.snapshot.java_class in registered_classes()
