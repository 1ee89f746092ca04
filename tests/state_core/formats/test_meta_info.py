"""What a state file says of its states: every version that Flink reads, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from statelake import open_snapshot
from statelake.state_core.errors import (
    CorruptSnapshotError,
    StateError,
    TruncatedError,
    UnknownSerializerError,
    UnsupportedFormatError,
)
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.keyed_states import layout_of, parse_keyed_state
from statelake.state_core.formats.layout.meta_info import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    USER_KEY_SERIALIZER,
    VALUE_SERIALIZER,
    BackendStateType,
    KeyedHeader,
    StateMetaInfo,
    read_keyed_header,
    read_state_meta_info,
    serializer_entry,
    write_keyed_header,
    write_state_meta_info,
)
from statelake.state_core.formats.operator_state.operator_file import (
    OperatorHeader,
    read_operator_header,
    write_operator_header,
)
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.basic.numbers import SNAPSHOTS, IntSerializer, LongSerializer
from statelake.state_core.serializers.composite.collections import (
    ListSerializerSnapshot,
    MapSerializerSnapshot,
)
from statelake.state_core.serializers.composite.wrappers import (
    TimerSerializerSnapshot,
    TtlSerializerSnapshot,
    VoidNamespaceSerializer,
)
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.registry import registered_classes
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

LONG, INT = SNAPSHOTS[LongSerializer], SNAPSHOTS[IntSerializer]
VOID = registered_classes()[
    "org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot"
]
CASES = golden_cases("kinds", "wordcount", "windows", "churn")


def nested(made: TypeSerializerSnapshot, *held: TypeSerializerSnapshot) -> TypeSerializerSnapshot:
    """A composite snapshot around others."""
    made.nested = held  # type: ignore[attr-defined]
    return made


def keyed_state(
    keyed_type: str | None = "VALUE",
    kind: BackendStateType = BackendStateType.KEY_VALUE,
    **serializers: TypeSerializerSnapshot,
) -> StateMetaInfo:
    """A state with Long values, or what is given instead."""
    held = {NAMESPACE_SERIALIZER: VOID(), VALUE_SERIALIZER: LONG(), **serializers}
    options = {} if keyed_type is None else {KEYED_STATE_TYPE: keyed_type}
    entries = {role: serializer_entry(serializer) for role, serializer in held.items()}
    return StateMetaInfo("s", kind, options, entries)


def header_bytes(*states: StateMetaInfo) -> bytes:
    """A keyed header with Long keys."""
    out = DataOutput()
    write_keyed_header(KeyedHeader(False, serializer_entry(LONG()), states), out)
    return out.to_bytes()


def utf(text: str) -> bytes:
    """A name as the format has it."""
    out = DataOutput()
    out.write_utf(text)
    return out.to_bytes()


# ------------------------------------------------------------------------------ keyed headers


@pytest.mark.parametrize("golden", CASES, ids=[case.name for case in CASES])
def test_meta_infos_of_real_files_come_back(golden: GoldenCase) -> None:
    """Each state's meta info, read from a file, is written as it was and parsed again alike."""
    for operator in open_snapshot(golden.snapshot).operators:
        for state in operator.keyed_states:
            out = DataOutput()
            write_state_meta_info(read_state_meta_info(DataInput(state.meta_info)), out)
            assert out.to_bytes() == state.meta_info
            for file, index in state.files:
                parsed, layout = parse_keyed_state(state.meta_info, file.key_serializer)
                assert parsed == state
                assert layout.schema == file.states[index].schema


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 7, -1])
def test_other_versions_of_keyed_state(version: int) -> None:
    """Flink 2.3 reads version 6 only, and so do we; the message says what to do."""
    data = version.to_bytes(4, "big", signed=True) + header_bytes()[4:]
    with pytest.raises(UnsupportedFormatError, match=f"version {version}; only 6") as found:
        read_keyed_header(DataInput(data, "file"))
    assert "new savepoint" in found.value.remedy


@pytest.mark.parametrize("flag", [0, 1, 2, 255])
def test_compression_is_any_byte_but_zero(flag: int) -> None:
    """As Java's `readBoolean` has it."""
    data = bytearray(header_bytes())
    data[4] = flag
    assert read_keyed_header(DataInput(bytes(data))).compressed == (flag != 0)


@pytest.mark.parametrize("count", [-1, 1, 32767])
def test_more_states_than_bytes(count: int) -> None:
    """A count of states is checked before anything is made of it."""
    data = header_bytes()[:-2] + count.to_bytes(2, "big", signed=True)
    with pytest.raises(CorruptSnapshotError, match=f"{count} states declared, 0 bytes left"):
        read_keyed_header(DataInput(data))


def test_a_header_cut_anywhere_is_refused() -> None:
    """No proper beginning of a header is a header."""
    data = header_bytes(keyed_state(), keyed_state("LIST", VALUE_SERIALIZER=LONG()))
    for cut in range(len(data)):
        with pytest.raises(StateError):
            read_keyed_header(DataInput(data[:cut]))


# ------------------------------------------------------------------------------ operator headers


@pytest.mark.parametrize(("version", "compressed"), [(5, False), (6, False), (6, True)])
def test_operator_headers_of_both_versions(version: int, compressed: bool) -> None:
    """Version 5, of Flink up to 1.17, has no byte for compression."""
    state = keyed_state(None, BackendStateType.OPERATOR)
    header = OperatorHeader(version, compressed, (state,), ())
    out = DataOutput()
    write_operator_header(header, out)
    found = read_operator_header(DataInput(out.to_bytes()))
    assert (found.version, found.compressed, found.size) == (version, compressed, len(out))
    again = DataOutput()
    write_operator_header(found, again)
    assert again.to_bytes() == out.to_bytes()


@pytest.mark.parametrize("version", [1, 4, 7])
def test_other_versions_of_operator_state(version: int) -> None:
    """Below 5 Flink itself refuses, too."""
    with pytest.raises(UnsupportedFormatError, match=f"version {version}; 5 and 6"):
        read_operator_header(DataInput(version.to_bytes(4, "big") + bytes(9)))


# ------------------------------------------------------------------------------ serializers


def test_unknown_classes_are_named() -> None:
    """A payload has no length: the class is named, whose it is, where, and the remedy."""
    data = header_bytes()[:-2] + (1).to_bytes(2, "big") + utf("mine") + bytes(8)
    data += (1).to_bytes(4, "big") + utf(VALUE_SERIALIZER) + (2).to_bytes(4, "big")
    at = len(data)
    data += utf("com.acme.MySnapshot") + bytes(40)
    with pytest.raises(UnknownSerializerError) as found:
        read_keyed_header(DataInput(data, "savepoint/file"))
    text = str(found.value)
    assert "'com.acme.MySnapshot'" in text
    assert "state 'mine', VALUE_SERIALIZER" in text
    assert f"savepoint/file, offset {at}" in text
    assert "statelake.state_core.serializers.register" in found.value.remedy


# ------------------------------------------------------------------------------ states


def key() -> LongSerializer:
    """The key's serializer."""
    return LongSerializer()


@pytest.mark.parametrize(
    ("keyed_type", "kind"),
    [
        ("VALUE", StateKind.VALUE),
        ("REDUCING", StateKind.REDUCING),
        ("AGGREGATING", StateKind.AGGREGATING),
        ("FOLDING", StateKind.AGGREGATING),
        ("UNKNOWN", StateKind.VALUE),
        (None, StateKind.VALUE),
    ],
)
def test_kinds_by_their_option(keyed_type: str | None, kind: StateKind) -> None:
    """Folding state is of Flink before 1.9; without the option nothing is known but the value."""
    assert layout_of(keyed_state(keyed_type), key()).kind is kind


def test_lists_and_maps_are_taken_apart() -> None:
    """The snapshot is of the whole list or map; entries hold elements and single map entries."""
    whole = nested(ListSerializerSnapshot(), nested(TtlSerializerSnapshot(), LONG(), INT()))
    found = layout_of(keyed_state("LIST", VALUE_SERIALIZER=whole), key())
    assert (found.kind, found.with_ttl) == (StateKind.LIST, True)
    assert found.value is not None
    assert found.value.name == "Integer"
    whole = nested(MapSerializerSnapshot(), INT(), nested(TtlSerializerSnapshot(), LONG(), LONG()))
    found = layout_of(keyed_state("MAP", VALUE_SERIALIZER=whole), key())
    assert found.user_key is not None
    assert (found.kind, found.with_ttl, found.user_key.name) == (StateKind.MAP, True, "Integer")


def test_state_of_the_second_generation() -> None:
    """`KEY_VALUE_V2` registers elements and map values themselves, and the user key apart."""
    kind = BackendStateType.KEY_VALUE_V2
    found = layout_of(keyed_state("LIST", kind), key())
    assert found.value is not None
    assert (found.kind, found.value.name) == (StateKind.LIST, "Long")
    user_key = {USER_KEY_SERIALIZER: INT()}
    found = layout_of(keyed_state("MAP", kind, **user_key), key())
    assert found.user_key is not None
    assert found.user_key.name == "Integer"


def test_timers_take_key_and_namespace_of_their_own() -> None:
    """A queue's one serializer holds both."""
    timer = nested(TimerSerializerSnapshot(), INT(), VOID())
    queue = StateMetaInfo(
        "_timer_state/event_x",
        BackendStateType.PRIORITY_QUEUE,
        {},
        {VALUE_SERIALIZER: serializer_entry(timer)},
    )
    found = layout_of(queue, key())
    assert (found.kind, found.key.name) == (StateKind.TIMERS, "Integer")
    assert isinstance(found.namespace, VoidNamespaceSerializer)
    other = replace(queue, serializers={VALUE_SERIALIZER: serializer_entry(LONG())})
    with pytest.raises(UnsupportedFormatError, match="priority queue of Long"):
        layout_of(other, key())


@pytest.mark.parametrize(
    ("state", "kind", "words"),
    [
        (keyed_state("HEAP"), CorruptSnapshotError, "unknown type 'HEAP'"),
        (keyed_state("LIST"), UnsupportedFormatError, "a list state whose serializer is"),
        (keyed_state("MAP"), UnsupportedFormatError, "a map state whose serializer is"),
        (
            keyed_state("MAP", BackendStateType.KEY_VALUE_V2),
            CorruptSnapshotError,
            "no USER_KEY_SERIALIZER",
        ),
        (
            replace(keyed_state(), serializers={}),
            CorruptSnapshotError,
            "no NAMESPACE_SERIALIZER",
        ),
        (keyed_state(None, BackendStateType.OPERATOR), CorruptSnapshotError, "OPERATOR state in"),
        (keyed_state(None, BackendStateType.BROADCAST), CorruptSnapshotError, "BROADCAST state"),
    ],
)
def test_states_that_make_no_sense(
    state: StateMetaInfo, kind: type[StateError], words: str
) -> None:
    """Each names the state, and what is wrong with it."""
    with pytest.raises(kind, match=words) as found:
        layout_of(state, key())
    assert found.value.place == "state 's'"


@pytest.mark.parametrize("ordinal", [-1, 5, 10, 1 << 30])
def test_kinds_are_ordinals(ordinal: int) -> None:
    """Not the enum's own code, which is 10 for `KEY_VALUE_V2`."""
    data = utf("s") + ordinal.to_bytes(4, "big", signed=True) + bytes(8)
    with pytest.raises(CorruptSnapshotError, match=f"state 's' of unknown kind {ordinal}"):
        read_state_meta_info(DataInput(data))


def test_names_may_be_anything() -> None:
    """Supplementary characters, zeros and lone surrogates are names like any other."""
    for name in ("", "größe", "键😀", "\0", "a/b\n", "\ud800"):
        out = DataOutput()
        write_state_meta_info(replace(keyed_state(), name=name), out)
        assert read_state_meta_info(DataInput(out.to_bytes())).name == name
    with pytest.raises(TruncatedError):
        read_state_meta_info(DataInput(b"\xff\xff"))
