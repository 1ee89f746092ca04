"""Where payloads of unknown classes end, found by what must follow them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import StateError, UnknownSerializerError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.meta_info import (
    VALUE_SERIALIZER,
    BackendStateType,
    KeyedHeader,
    StateMetaInfo,
    read_keyed_header,
    serializer_entry,
    write_keyed_header,
)
from statelake.state_core.serializers import (
    read_serializer_snapshot,
    registered_classes,
    write_serializer_snapshot,
)
from statelake.state_core.serializers.basic.text import StringSerializerSnapshot
from statelake.state_core.serializers.composite.collections import (
    ListSerializerSnapshot,
    MapSerializerSnapshot,
)
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import Verdict
from statelake.state_core.serializers.framework.snapshots import CompositeTypeSerializerSnapshot
from statelake.state_core.serializers.opaque.unknown_classes import (
    UnknownSerializerSnapshot,
    read_whole,
)

LONG = registered_classes()[
    "org.apache.flink.api.common.typeutils.base.LongSerializer$LongSerializerSnapshot"
]
CLASSES = st.from_regex(r"[a-z]{1,5}(\.[A-Z][a-z$]{1,8}){1,3}", fullmatch=True)


def written(snapshot: TypeSerializerSnapshot) -> bytes:
    """A snapshot's bytes."""
    out = DataOutput()
    write_serializer_snapshot(snapshot, out)
    return out.to_bytes()


def known() -> st.SearchStrategy[TypeSerializerSnapshot]:
    """Snapshots that are known."""
    return st.sampled_from([LONG(), StringSerializerSnapshot()])


def payloads() -> st.SearchStrategy[bytes]:
    """Anything, and what looks like something else: nested snapshots, counts, names, nothing."""
    parts = st.one_of(
        st.binary(max_size=20),
        known().map(written),
        st.sampled_from([b"", b"\0\0", b"\0\1", b"\0\4name", b"\xff\xff\xff\xff"]),
    )
    return st.lists(parts, max_size=3).map(b"".join)


def unknown() -> st.SearchStrategy[TypeSerializerSnapshot]:
    """Snapshots of classes that nobody registered."""
    return st.builds(UnknownSerializerSnapshot, CLASSES, st.integers(1, 9), payloads())


def made(
    kind: type[CompositeTypeSerializerSnapshot], *nested: TypeSerializerSnapshot
) -> TypeSerializerSnapshot:
    """A composite snapshot of others."""
    snapshot = kind()
    snapshot.nested = nested
    return snapshot


Snapshots = st.SearchStrategy[TypeSerializerSnapshot]


def composite(of: Snapshots) -> Snapshots:
    """Lists and maps of these."""
    return st.one_of(
        of.map(lambda nested: made(ListSerializerSnapshot, nested)),
        st.tuples(of, of).map(lambda two: made(MapSerializerSnapshot, *two)),
    )


def header(snapshots: list[TypeSerializerSnapshot], key: TypeSerializerSnapshot) -> KeyedHeader:
    """The head of a file with a state for each."""
    states = tuple(
        StateMetaInfo(
            f"state-{index}",
            BackendStateType.KEY_VALUE,
            {"KEYED_STATE_TYPE": "VALUE"},
            {VALUE_SERIALIZER: serializer_entry(snapshot)},
        )
        for index, snapshot in enumerate(snapshots)
    )
    return KeyedHeader(compressed=False, key_serializer=serializer_entry(key), states=states)


def encoded(made: KeyedHeader) -> bytes:
    """A head's bytes."""
    out = DataOutput()
    write_keyed_header(made, out)
    return out.to_bytes()


ANY = st.one_of(known(), unknown(), composite(st.one_of(known(), unknown())))


@given(st.lists(ANY, max_size=4), st.one_of(known(), unknown()))
def test_heads_with_unknown_classes(
    snapshots: list[TypeSerializerSnapshot], key: TypeSerializerSnapshot
) -> None:
    """Wherever they stand, every state is found, and all bytes are written back."""
    data = encoded(header(snapshots, key))
    found = read_whole(DataInput(data), read_keyed_header)
    assert found.size == len(data)
    assert [state.name for state in found.states] == [f"state-{i}" for i in range(len(snapshots))]
    assert encoded(found) == data
    for state, snapshot in zip(found.states, snapshots, strict=True):
        entry = state.serializers[VALUE_SERIALIZER]
        assert entry.encoded == serializer_entry(snapshot).encoded
        assert entry.snapshot.type_name == snapshot.type_name


@given(st.lists(unknown(), min_size=1, max_size=3), st.data())
def test_mutated_heads(snapshots: list[TypeSerializerSnapshot], data: st.DataObject) -> None:
    """An error of ours, or a head that is written as it was read; never more than some attempts."""
    raw = bytearray(encoded(header(snapshots, LONG())))
    changes = data.draw(st.integers(1, 4))
    for _ in range(changes):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_whole(DataInput(bytes(raw)), read_keyed_header)
    except StateError:
        return
    assert len(encoded(found)) <= len(raw) + changes  # a zero byte in a name is written as two


def test_many_states_of_one_class() -> None:
    """As a job has them whose every state is of a class of its own."""
    one = UnknownSerializerSnapshot("com.acme.EventSnapshot", 3, b"\0\0\0\2\0\1a" * 20)
    data = encoded(header([one] * 60, LONG()))
    assert len(read_whole(DataInput(data), read_keyed_header).states) == 60


def test_a_hostile_head_ends_soon() -> None:
    """Nothing but names of classes, each with many places where it could end."""
    name = b"\0\x05a.Bcd" + bytes(3) + b"\1"
    data = encoded(header([], LONG()))[:-2]
    data += b"\0\x02" + b"\0\1s" + bytes(4) + bytes(4) + b"\0\0\0\1\0\x10VALUE_SERIALIZER"
    data += b"\0\0\0\2" + name * 3_000
    with pytest.raises(UnknownSerializerError, match=r"a\.Bcd"):
        read_whole(DataInput(data), read_keyed_header)


def test_verdicts_are_honest() -> None:
    """Of two of one class only its code could say; a known class refuses any other."""
    one = UnknownSerializerSnapshot("com.acme.Own", 1, b"x")
    other = UnknownSerializerSnapshot("com.acme.Own", 1, b"y")
    verdict = other.resolve_schema_compatibility(one)
    assert verdict.verdict is Verdict.UNKNOWN
    assert "com.acme.Own" in str(verdict.reasons[0])
    long = LONG()
    assert long.resolve_schema_compatibility(one).verdict is Verdict.INCOMPATIBLE
    assert one.resolve_schema_compatibility(long).verdict is Verdict.UNKNOWN


def test_alone_it_is_still_refused() -> None:
    """Where nothing says what follows, nothing is guessed."""
    data = written(UnknownSerializerSnapshot("com.acme.Own", 1, b""))
    with pytest.raises(UnknownSerializerError):
        read_serializer_snapshot(DataInput(data))
