"""Files of the heap whose values only their class could walk: what a whole file says of each."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelake.state_core.errors import (
    CorruptSnapshotError,
    UnsupportedFormatError,
    UnwalkableError,
)
from statelake.state_core.files.compression import compress_snappy
from statelake.state_core.files.filesystem import InlineSource
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.keyed.headed_file import FileHeader, KeyGroupSpan
from statelake.state_core.formats.keyed.heap.heap_native import HeapFile
from statelake.state_core.formats.keyed.heap.heap_recovery import (
    AmbiguousError,
    entry_starts,
    recover_states,
)
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.layout.meta_info import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
    BackendStateType,
    KeyedHeader,
    StateMetaInfo,
    serializer_entry,
)
from statelake.state_core.formats.operator_state.operator_file import ElementBounds
from statelake.state_core.formats.operator_state.operator_states import OperatorLayout
from statelake.state_core.model.handles import DistributionMode
from statelake.state_core.model.key_groups import key_group_of
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.basic.numbers import SNAPSHOTS, LongSerializer
from statelake.state_core.serializers.basic.values import StringValueSerializer
from statelake.state_core.serializers.composite.pojo import PojoSerializer
from statelake.state_core.serializers.composite.wrappers import (
    VoidNamespaceSerializer,
    VoidNamespaceSerializerSnapshot,
)
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from statelake.state_core.serializers.framework.registry import read_serializer_snapshot
from statelake.state_core.serializers.framework.snapshots import CompositeTypeSerializerSnapshot
from statelake.state_core.serializers.kryo.snapshot import KryoSerializerSnapshot
from tests.support.savepoints.golden_cases import GOLDEN

LONG, VOID, OWN = LongSerializer(), VoidNamespaceSerializer(), OpaqueSerializer("Own")
GROUPS = 64
HEAD = struct.Struct(">hi")
KEYS = {
    group: [key for key in range(4000) if key_group_of(LONG.hash_code(key), GROUPS) == group]
    for group in range(GROUPS)
}
VALUE = KeyedLayout(StateKind.VALUE, LONG, VOID, OWN)
TTL = KeyedLayout(StateKind.VALUE, LONG, VOID, OWN, with_ttl=True)
LIST = KeyedLayout(StateKind.LIST, LONG, VOID, OWN)
MAP = KeyedLayout(StateKind.MAP, LONG, VOID, OWN, LONG)
OWN_KEYS = KeyedLayout(StateKind.MAP, LONG, VOID, LONG, OWN)

Groups = list[list[tuple[int, list[tuple[int, bytes]]]]]  # of each: states, of each: key and value


def file_of(layouts: tuple[KeyedLayout, ...], groups: Groups, *, compressed: bool) -> HeapFile:
    """A file as `HeapSnapshotStrategy` writes it, of key groups from 0 on."""
    data, spans = b"", []
    for group, states in enumerate(groups):
        start = len(data)
        data += struct.pack(">i", group)
        for state, entries in states:
            content = HEAD.pack(state, len(entries))
            content += b"".join(b"\0" + struct.pack(">q", key) + value for key, value in entries)
            data += bytes(compress_snappy(content)) if compressed else content
        spans.append(KeyGroupSpan(group, start, len(data)))
    names = (f"state-{index}" for index in range(len(layouts)))
    states = tuple(StateMetaInfo(name, BackendStateType.KEY_VALUE) for name in names)
    header = KeyedHeader(compressed, None, states)  # type: ignore[arg-type]
    return HeapFile(
        InlineSource("heap", data), header, layouts, tuple(spans), max_parallelism=GROUPS
    )


Held: TypeAlias = "dict[tuple[int, int], list[tuple[bytes, bytes]]]"


def held(file: HeapFile, found: Held | None = None) -> Held:
    """Keys and values, as in the unified format, by key group and state; added to `found`."""
    found = {} if found is None else found
    for entries in file.entries():
        for row in range(len(entries.state_of)):
            key = entries.data[entries.key_start[row] : entries.key_end[row]].tobytes()
            value = entries.data[entries.value_start[row] : entries.value_end[row]].tobytes()
            place = int(entries.group_of[row]), int(entries.state_of[row])
            found.setdefault(place, []).append((key, value))
    return found


def test_the_order_of_states_is_that_of_every_key_group() -> None:
    """The end of a value looks like a state without entries, which stands elsewhere."""
    first, second, third = KEYS[1][:3]
    last = b"last" + HEAD.pack(1, 0)
    states = [(0, [(first, b"first")]), (1, [(second, b"second")]), (2, [(third, last)])]
    groups: Groups = [[(0, []), (1, []), (2, [])], states]
    found = held(file_of((VALUE,) * 3, groups, compressed=False))
    assert [found[1, state][0][1] for state in range(3)] == [b"first", b"second", last]
    alone: Groups = [[(state, [(KEYS[0][0], value)]) for state, [(_, value)] in states]]
    with pytest.raises(UnsupportedFormatError, match="more ways than one"):
        held(file_of((VALUE,) * 3, alone, compressed=False))


def test_a_compressed_file_says_where_states_end() -> None:
    """Each is a stream of its own, whatever its values look like."""
    first, second, third = KEYS[0][:3]
    fake = HEAD.pack(0, 1) + b"\0" + struct.pack(">q", third) + b"fake"
    groups: Groups = [[(1, [(first, fake)]), (0, [(second, b"value")])]]
    found = held(file_of((VALUE, VALUE), groups, compressed=True))
    assert found[0, 1] == [(struct.pack(">q", first) + b"\0", fake)]
    assert found[0, 0] == [(struct.pack(">q", second) + b"\0", b"value")]


payloads = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"", bytes(6), bytes(20), HEAD.pack(0, 0), HEAD.pack(2, 1)]),
    st.sampled_from(KEYS[0][:4]).map(lambda key: b"\0" + struct.pack(">q", key) + b"x"),
)


def _list(payload: bytes) -> bytes:
    return struct.pack(">i", 1) + payload


def _map(payload: bytes) -> bytes:
    return struct.pack(">iq?", 1, 5, False) + payload


def _ttl(payload: bytes) -> bytes:
    return struct.pack(">q", 1_700_000_000_000) + payload


SHAPES: list[tuple[KeyedLayout, Callable[[bytes], bytes], int]] = [
    (VALUE, bytes, 0), (TTL, _ttl, 0), (LIST, _list, 4), (MAP, _map, 12),
]  # fmt: skip
written = st.tuples(st.integers(0, 3), st.lists(payloads, max_size=3), st.integers(0, 3))


@settings(max_examples=60, deadline=None)
@given(st.lists(written, min_size=1, max_size=3), st.booleans(), st.booleans())
def test_what_is_read_is_what_was_written(
    states: list[tuple[int, list[bytes], int]], compressed: bool, known: bool
) -> None:
    """Or missed and named: values, some with a time to live, lists and maps, empty ones too."""
    layouts = tuple(SHAPES[shape][0] for shape, _, _ in states)
    group: list[tuple[int, list[tuple[int, bytes]]]] = []
    wanted: dict[tuple[int, int], list[tuple[bytes, bytes]]] = {}
    for state, (shape, values, empty) in enumerate(states):
        _, write, cut = SHAPES[shape]
        entries = [(key, write(value)) for key, value in zip(KEYS[0], values, strict=False)]
        for key, value in entries:
            whole_key = struct.pack(">q", key) + b"\0" + value[4:cut]
            wanted.setdefault((0, state), []).append((whole_key, value[cut:]))
        if shape > 1 and empty:
            entries.append((KEYS[0][len(values)], struct.pack(">i", 0)))
        group.append((state, entries))
    groups: Groups = [group[::-1]]
    if known:
        groups.append([(state, []) for state, _ in group[::-1]])
    found: Held = {}
    lost: frozenset[str] = frozenset()
    try:
        held(file_of(layouts, groups, compressed=compressed), found)
    except UnwalkableError as error:
        lost = error.states
    for place in found | wanted:
        rows, right = found.get(place, []), wanted.get(place, [])
        assert rows == right or (f"state-{place[1]}" in lost and set(rows) < set(right))


def test_states_beside_one_that_can_be_cut_in_two_ways_are_found() -> None:
    """Before and behind it, as each way has them alike; the error names the one alone."""
    first, second, third = KEYS[0][:3]
    twice = b"a\0" + struct.pack(">q", third) + b"b"  # one value, or the end of one and another
    states = [(0, [(first, b"one")]), (1, [(first, twice), (second, b"c")]), (2, [(second, b"d")])]
    groups: Groups = [states, [(state, []) for state in range(3)]]
    found: Held = {}
    with pytest.raises(UnwalkableError, match=r"more ways than one.*of state 'state-1'") as told:
        held(file_of((VALUE,) * 3, groups, compressed=False), found)
    assert told.value.states == {"state-1"}
    assert {place: rows[0][1] for place, rows in found.items()} == {(0, 0): b"one", (0, 2): b"d"}


def test_an_empty_list_ends_behind_its_count() -> None:
    """Bytes behind it, of a damaged file, are not passed over in silence."""
    groups: Groups = [[(0, [(KEYS[0][0], struct.pack(">i", 0) + b"more")])]]
    with pytest.raises((CorruptSnapshotError, UnsupportedFormatError)):
        held(file_of((LIST,), groups, compressed=False))


def test_a_user_key_that_only_its_class_walks_is_refused() -> None:
    """Nothing says where it ends, and the value begins."""
    entry = struct.pack(">i", 1) + b"user key" + struct.pack(">?q", False, 9)
    groups: Groups = [[(0, [(KEYS[0][0], entry)])]]
    with pytest.raises(UnsupportedFormatError, match="only their class knows"):
        held(file_of((OWN_KEYS,), groups, compressed=False))


def test_many_states() -> None:
    """Of which one has an entry; another key group has none."""
    states = 3000
    others: list[tuple[int, list[tuple[int, bytes]]]] = [(state, []) for state in range(1, states)]
    groups: Groups = [[(0, [(KEYS[0][0], b"value")]), *others], [(0, []), *others]]
    found = held(file_of((VALUE,) * states, groups, compressed=False))
    assert [value for _, value in found[0, 0]] == [b"value"]


class _Unreadable(LongSerializer):
    def hash_code_at(self, source: DataInput) -> int:
        """As of a number that Python has no room for."""
        raise OverflowError(source.read_long())


def test_a_key_whose_hash_code_is_not_known_here_is_a_key() -> None:
    """Else the right cut would be missing among those that fit."""
    data = np.zeros(20, np.uint8).tobytes()
    starts, bodies = entry_starts(data, (VOID, _Unreadable()), 0, GROUPS)
    assert starts == list(range(12))
    assert bodies == list(range(9, 21))


def test_work_is_in_proportion() -> None:
    """However many states might follow one another: no way is gone down without end."""
    walked = []

    def walk(_: int, begin: int, count: int) -> int | None:
        walked.append(count)
        return begin

    data = HEAD.pack(0, 1) + b"\0" + struct.pack(">q", KEYS[0][0])
    data += b"".join(HEAD.pack(state, state % 2) for state in range(1, 400)) * 16 + b"!"
    places = entry_starts(data, (VOID, LONG), 0, GROUPS)
    with pytest.raises(AmbiguousError, match="too many places"):
        recover_states(data, {0}, 500, walk, lambda _: places)
    assert len(walked) <= 64 * (len(data) + 6) // 6


def tried() -> tuple[CompositeTypeSerializerSnapshot, list[bytes]]:
    """The snapshot of Flink's `Try<Long>`, whose exception Kryo writes, and its values."""
    lines = (GOLDEN / "vectors" / "scala.jsonl").read_text().splitlines()
    line = next(line for line in map(json.loads, lines) if line.get("type") == "Try<Long>")
    values = [bytes.fromhex(value["bytes"]) for value in line["values"]]
    snapshot = read_serializer_snapshot(DataInput(bytes.fromhex(line["snapshot"])))
    assert isinstance(snapshot, CompositeTypeSerializerSnapshot)
    return snapshot, values


def head_of(key: TypeSerializerSnapshot, value: TypeSerializerSnapshot) -> FileHeader:
    """The head of a file of Flink 1 with one value state."""
    parts = {VALUE_SERIALIZER: value, NAMESPACE_SERIALIZER: VoidNamespaceSerializerSnapshot()}
    entries = {role: serializer_entry(snapshot) for role, snapshot in parts.items()}
    options = {KEYED_STATE_TYPE: "VALUE"}
    state = StateMetaInfo("tried", BackendStateType.KEY_VALUE, options, entries)
    return FileHeader(KeyedHeader(False, serializer_entry(key), (state,)), flink=1)


def test_an_exception_ends_where_its_java_object_does() -> None:
    """Values around it are found also where bytes look like entries in every place."""
    snapshot, (success, failure) = tried()
    (layout,) = head_of(SNAPSHOTS[LongSerializer](), snapshot).walking()
    zeros = struct.pack(">?q", True, 0)
    values = [failure, zeros, failure, success, failure]
    entries = list(zip([0] * len(values), values, strict=True))
    groups: Groups = [[(0, [])]] * key_group_of(LONG.hash_code(0), GROUPS) + [[(0, entries)]]
    found = held(file_of((layout,), groups, compressed=False))
    assert [value for _, value in found[len(groups) - 1, 0]] == values


def test_a_key_by_kryo_is_known_beside_a_value_of_unknown_end() -> None:
    """The key still tells where it ends when the value is taken for bytes."""
    thrown = tried()[0].nested[1]
    assert isinstance(thrown, KryoSerializerSnapshot)
    head = head_of(thrown.of_class("java.lang.Object"), thrown.of_class("java.lang.Object"))
    walking = head.walking()
    key, value = b"\x09\x06", b"\x01\x00com.acme.Ow\xee\x01own"  # the Long 3; an object of a user's
    data = struct.pack(">ihi", 0, 0, 1) + b"\0" + key + value
    file = HeapFile(
        InlineSource("heap", data), head.header, walking, (KeyGroupSpan(0, 0, len(data)),),
        max_parallelism=GROUPS, bare=head.without_decoders(walking),
    )  # fmt: skip
    assert held(file) == {(0, 0): [(key + b"\0", value)]}


# a POJO with a skip program, a subclass without one, and values of both
DOG = PojoSerializer("acme.Dog", [("name", StringValueSerializer())])
ANIMAL = PojoSerializer("acme.Animal", [("id", LONG)], registered={"acme.Dog": DOG})
ANIMALS = [b"\2\0" + struct.pack(">q", 7), b"\x08\0\2\0\2ab"] * 2


@pytest.mark.parametrize(
    ("layout", "write"),
    [(VALUE, bytes), (LIST, _list), (MAP, _map)],
    ids=lambda each: each.kind.name if isinstance(each, KeyedLayout) else "",
)
def test_a_subclass_that_no_program_walks_is_read_by_its_serializer(
    layout: KeyedLayout, write: Callable[[bytes], bytes]
) -> None:
    """Of a POJO that one walks: its own values, and those of the subclass, in any order."""
    entries = list(zip(KEYS[0], map(write, ANIMALS), strict=False))
    file = file_of((replace(layout, value=ANIMAL),), [[(0, entries)]], compressed=False)
    found = held(file)[0, 0]
    for (_, value), each in zip(found, ANIMALS, strict=True):
        assert value.endswith(each)
    assert [struct.unpack(">q", key[:8])[0] for key, _ in found] == KEYS[0][:4]


def test_a_broadcast_state_has_subclasses_that_no_program_walks() -> None:
    """They are read by their serializer, as on the heap."""
    entries = [(struct.pack(">q", number), value) for number, value in enumerate(ANIMALS)]
    data = struct.pack(">i", len(entries)) + b"".join(key + value for key, value in entries)
    bounds = ElementBounds(np.array([0]), np.array([len(data)]))
    file: Any = SimpleNamespace(
        content=np.frombuffer(data, np.uint8), elements=lambda _: bounds, place=str
    )
    layout = OperatorLayout(DistributionMode.BROADCAST, ANIMAL, LONG)
    assert layout.entries(file, "rules") == set(entries)
