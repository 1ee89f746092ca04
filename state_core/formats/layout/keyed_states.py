"""The layout of a state, from the serializers in its meta info.

The value serializer that a snapshot registers for a list or a map state is that of the whole list
or map, although entries contain single elements and map entries; time to live is recognised by the
snapshot class around an element or value.

Source: `RegisteredKeyValueStateBackendMetaInfo`, `StateDescriptor.Type`,
`InternalTimeServiceManagerImpl` (names of timer queues), `TtlStateFactory`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from functools import lru_cache

from statelake.state_core.errors import CorruptSnapshotError, UnsupportedFormatError
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.formats.layout.keyed_layout import NAMESPACE, USER_KEY, KeyedLayout
from statelake.state_core.formats.layout.meta_info import (
    KEY_SERIALIZER,
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    USER_KEY_SERIALIZER,
    VALUE_SERIALIZER,
    BackendStateType,
    StateMetaInfo,
    parse_key_serializer,
    parse_state_meta_info,
    serializer_entry,
    write_state_meta_info,
)
from statelake.state_core.model.snapshot import (
    NO_NAMES,
    KeyedState,
    RowNames,
    RowTypes,
    StateKind,
)
from statelake.state_core.serializers.basic.numbers import SNAPSHOTS, LongSerializer
from statelake.state_core.serializers.composite.collections import (
    ListSerializerSnapshot,
    MapSerializerSnapshot,
)
from statelake.state_core.serializers.composite.wrappers import (
    AsyncTtlSerializerSnapshot,
    TimerSerializer,
    TimerSerializerSnapshot,
    TtlSerializerSnapshot,
)
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.opaque_values import (
    as_key,
    described_type,
    restore_bounded,
    restore_key,
    undecoded,
    written_by,
)
from statelake.state_core.serializers.framework.registry import changes
from statelake.state_core.serializers.framework.snapshots import CompositeTypeSerializerSnapshot

TIMERS = "org.apache.flink.streaming.api.operators.TimerSerializer"
_KINDS = {
    "VALUE": StateKind.VALUE,
    "LIST": StateKind.LIST,
    "MAP": StateKind.MAP,
    "REDUCING": StateKind.REDUCING,
    "AGGREGATING": StateKind.AGGREGATING,
    "FOLDING": StateKind.AGGREGATING,
    "UNKNOWN": StateKind.VALUE,
}


def with_row_names(
    snapshot: TypeSerializerSnapshot, names: Sequence[str]
) -> TypeSerializerSnapshot:
    """Return the snapshot of a value in whose row of Flink SQL the fields have names, if any.

    Raises:
        IncompatibleError: It holds no row, or one of another number of fields.
    """
    if not names:
        return snapshot
    from statelake.state_core.serializers.sql.row_data import with_names  # noqa: PLC0415 - if named

    return with_names(snapshot, names)


def layout_of(state: StateMetaInfo, key: TypeSerializer, names: RowNames = NO_NAMES) -> KeyedLayout:
    """Return the layout of one state's entries in the unified format.

    Args:
        state: The state.
        key: The key's serializer, which has its names.
        names: The names of the fields of its rows.

    Raises:
        IncompatibleError: The state has other rows than those that are named.
        CorruptSnapshotError: A serializer that its kind needs is missing.
        UnsupportedFormatError: A priority queue that does not contain timers.
    """
    if state.kind is BackendStateType.PRIORITY_QUEUE:
        with as_key():
            timer = _snapshot(state, VALUE_SERIALIZER).restore_serializer()
        if not isinstance(timer, TimerSerializer):
            if TIMERS in timer.name:
                raise UnsupportedFormatError(
                    "timers in a form of before Flink 1.8",
                    place=f"state {state.name!r}",
                    remedy="restore it in Flink 1.8 to 1.16, and take a new savepoint there",
                )
            raise UnsupportedFormatError(
                f"a priority queue of {timer.name}, and only timers are known",
                place=f"state {state.name!r}",
                remedy="drop the state before the savepoint is taken",
            )
        # a part of a timer may be typed, but as in all other states a key by Kryo stays bytes
        own = timer.key if key.self_delimiting and not names.key else key
        return KeyedLayout(StateKind.TIMERS, own, timer.namespace)
    if state.kind not in (BackendStateType.KEY_VALUE, BackendStateType.KEY_VALUE_V2):
        raise CorruptSnapshotError(
            f"{state.kind.name} state in a file of keyed state", place=f"state {state.name!r}"
        )
    kind = _KINDS.get(state.options.get(KEYED_STATE_TYPE, "UNKNOWN"))
    if kind is None:
        raise CorruptSnapshotError(
            f"keyed state of unknown type {state.options[KEYED_STATE_TYPE]!r}",
            place=f"state {state.name!r}",
        )
    namespace = restore_key(_snapshot(state, NAMESPACE_SERIALIZER))
    value, user_key = _parts(state, kind)
    with_ttl = isinstance(value, TtlSerializerSnapshot)
    if isinstance(value, TtlSerializerSnapshot):
        value = value.nested[1]
    return KeyedLayout(
        kind,
        key,
        namespace,
        _held(restore_bounded(with_row_names(value, names.value)), names),
        None if user_key is None else restore_key(with_row_names(user_key, names.user_key)),
        with_ttl,
    )


def walking_layout(
    state: StateMetaInfo, layout: KeyedLayout, key: TypeSerializerSnapshot
) -> KeyedLayout:
    """Return a layout of the same bytes, in which more parts know where they end.

    It is for formats without lengths, and decodes nothing: a key by Kryo may have several forms for
    equal values, and so stays bytes in columns, but each of its forms ends somewhere.

    Args:
        state: The state.
        layout: Its layout.
        key: The key's serializer snapshot.
    """
    if layout.kind is StateKind.TIMERS:
        return replace(layout, key=_delimited(layout.key, _timer(state).nested[0]))
    value, user_key = _parts(state, layout.kind)
    value = value.nested[1] if isinstance(value, TtlSerializerSnapshot) else value
    assert layout.value is not None  # noqa: S101 - not of timers
    walking = replace(
        layout,
        key=_delimited(layout.key, key),
        namespace=_delimited(layout.namespace, _snapshot(state, NAMESPACE_SERIALIZER)),
        value=_delimited(layout.value, value),
    )
    if layout.user_key is None or user_key is None:
        return walking
    return replace(walking, user_key=_delimited(layout.user_key, user_key))


def _delimited(part: TypeSerializer, snapshot: TypeSerializerSnapshot) -> TypeSerializer:
    """Return the serializer of a part that knows where it ends, as far as there is one."""
    return part if part.self_delimiting else snapshot.restore_nested()


def _held(value: TypeSerializer, names: RowNames) -> TypeSerializer:
    """Return the serializer of a value whose text or bytes may hold something else.

    Raises:
        IncompatibleError: It is neither text nor bytes.
    """
    if not names.content:
        return value
    from statelake.state_core.serializers.contents.sayings import holding  # noqa: PLC0415 - if said

    return holding(value, names.content)


def parse_keyed_state(
    meta_info: bytes,
    key_serializer: bytes,
    *,
    without_decoders: bool = False,
    flink: int = 0,
    names: RowNames = NO_NAMES,
) -> tuple[KeyedState, KeyedLayout]:
    """Return a state and its layout from the bytes in a snapshot.

    Args:
        meta_info: As in `KeyedState.meta_info`.
        key_serializer: As in `KeyedFile.key_serializer`.
        without_decoders: Whether user decoders are left out.
        flink: The major version of the Flink that wrote it; 0 if it is not known.
        names: The names of the fields of its rows.
    """
    with written_by(flink), undecoded() if without_decoders else nullcontext():
        return _parse_keyed_state(
            meta_info, key_serializer, names, changes(), without_decoders, flink
        )


@lru_cache(maxsize=256)
def _parse_keyed_state(
    meta_info: bytes,
    key_serializer: bytes,
    names: RowNames,
    _changes: int,
    _plain: bool,
    _flink: int,
) -> tuple[KeyedState, KeyedLayout]:
    state = parse_state_meta_info(meta_info)
    key = parse_key_serializer(key_serializer)
    layout = layout_of(state, restore_key(with_row_names(key.snapshot, names.key)), names)
    return describe_state(state, layout, names), layout


def _parts(
    state: StateMetaInfo, kind: StateKind
) -> tuple[TypeSerializerSnapshot, TypeSerializerSnapshot | None]:
    """Return the serializer snapshots of an entry's value, and of its user key."""
    stored = _snapshot(state, VALUE_SERIALIZER)
    if state.kind is BackendStateType.KEY_VALUE_V2:
        user_key = _snapshot(state, USER_KEY_SERIALIZER) if kind is StateKind.MAP else None
        return stored, user_key
    if kind is StateKind.LIST:
        if not isinstance(stored, ListSerializerSnapshot):
            raise _unlike(state, stored, "a list")
        return stored.nested[0], None
    if kind is StateKind.MAP:
        if not isinstance(stored, MapSerializerSnapshot):
            raise _unlike(state, stored, "a map")
        return stored.nested[1], stored.nested[0]
    return stored, None


def as_key_value(state: StateMetaInfo) -> StateMetaInfo:
    """Return the state as version 1, which every backend restores from a canonical savepoint.

    ForSt registers asynchronous state as version 2, without the serializer of the whole list or
    map; Flink converts that only when it restores RocksDB's files (`RegisteredStateMetaInfoUtils`).
    """
    if state.kind is not BackendStateType.KEY_VALUE_V2:
        return state
    kind = _KINDS.get(state.options.get(KEYED_STATE_TYPE, "UNKNOWN"), StateKind.VALUE)
    value, user_key = _parts(state, kind)
    if isinstance(value, TtlSerializerSnapshot):
        value = TtlSerializerSnapshot.around(*value.nested)  # version 2 has its own class
    if kind is StateKind.LIST:
        value = ListSerializerSnapshot.around(value)
    elif user_key is not None:
        value = MapSerializerSnapshot.around(user_key, value)
    entries = {
        NAMESPACE_SERIALIZER: state.serializers[NAMESPACE_SERIALIZER],
        VALUE_SERIALIZER: serializer_entry(value),
    }
    return StateMetaInfo(state.name, BackendStateType.KEY_VALUE, state.options, entries)


def value_snapshot(state: StateMetaInfo) -> TypeSerializerSnapshot:
    """Return the snapshot of the user's value: a list's element, a map's value, without TTL."""
    value = _inner(state)
    return value.nested[1] if isinstance(value, TtlSerializerSnapshot) else value


def with_value(state: StateMetaInfo, value: TypeSerializerSnapshot) -> StateMetaInfo:
    """Return the same state with another value, in the same list, map or TTL.

    Args:
        state: A keyed state other than a queue of timers, or an operator state.
        value: The new value's serializer snapshot, as from `value_snapshot`.
    """
    inner = _inner(state)
    if isinstance(inner, TtlSerializerSnapshot):
        value = _renested(inner, inner.nested[0], value)
    return _with_inner(state, value)


def is_queue(meta_info: bytes) -> bool:
    """Return whether a state is a queue of timers, which have no values."""
    return parse_state_meta_info(meta_info).kind is BackendStateType.PRIORITY_QUEUE


def key_parts(meta_info: bytes) -> dict[str, TypeSerializerSnapshot]:
    """Return the snapshots of what entries have beside the key that the stream has.

    Returns:
        Those of `namespace` and of `user_key`, as far as the state has them; the keys of a
        broadcast state are its `user_key`.
    """
    state = parse_state_meta_info(meta_info)
    if state.kind is BackendStateType.BROADCAST:
        return {USER_KEY: _snapshot(state, KEY_SERIALIZER)}
    if state.kind is BackendStateType.PRIORITY_QUEUE:
        return {NAMESPACE: _timer(state).nested[1]}
    if state.kind not in (BackendStateType.KEY_VALUE, BackendStateType.KEY_VALUE_V2):
        return {}
    kind = _KINDS.get(state.options.get(KEYED_STATE_TYPE, "UNKNOWN"), StateKind.VALUE)
    user_key = _parts(state, kind)[1]
    namespace = {NAMESPACE: _snapshot(state, NAMESPACE_SERIALIZER)}
    return namespace if user_key is None else {**namespace, USER_KEY: user_key}


def with_key_parts(meta_info: bytes, parts: Mapping[str, TypeSerializerSnapshot]) -> bytes:
    """Return the meta info of the same state with other snapshots of `key_parts`."""
    state = parse_state_meta_info(meta_info)
    entries = dict(state.serializers)
    if NAMESPACE in parts and state.kind is BackendStateType.PRIORITY_QUEUE:
        timer = _timer(state)
        new: TypeSerializerSnapshot = _renested(timer, timer.nested[0], parts[NAMESPACE])
        entries[VALUE_SERIALIZER] = serializer_entry(new)
    elif NAMESPACE in parts:
        entries[NAMESPACE_SERIALIZER] = serializer_entry(parts[NAMESPACE])
    if USER_KEY in parts:
        name, new = USER_KEY_SERIALIZER, parts[USER_KEY]
        if state.kind is BackendStateType.BROADCAST:
            name = KEY_SERIALIZER
        elif state.kind is not BackendStateType.KEY_VALUE_V2:
            stored = _snapshot(state, VALUE_SERIALIZER)
            assert isinstance(stored, MapSerializerSnapshot)  # noqa: S101 - by _parts
            name, new = VALUE_SERIALIZER, _renested(stored, new, stored.nested[1])
        entries[name] = serializer_entry(new)
    return meta_info_bytes(replace(state, serializers=entries))


def check_names(meta_info: bytes, names: RowNames) -> None:
    """Refuse names that are not those of a state's rows.

    Args:
        meta_info: As in `KeyedState.meta_info`.
        names: The names; those of the key are not looked at.

    Raises:
        IncompatibleError: A row that is named is missing, or has another number of fields.
    """
    if names.value or names.content:
        value = value_snapshot(parse_state_meta_info(meta_info))
        _held(with_row_names(value, names.value).restore_serializer(), names)
    user_key = key_parts(meta_info).get(USER_KEY)
    if names.user_key and user_key is not None:
        with_row_names(user_key, names.user_key)


def named_types(meta_info: bytes, key_serializer: bytes, names: RowNames) -> RowTypes | None:
    """Return the types of a state, in which the fields of rows have names; None without names.

    Args:
        meta_info: As in `KeyedState.meta_info`.
        key_serializer: As in `KeyedFile.key_serializer`.
        names: The names.
    """
    if names == NO_NAMES:
        return None
    state = parse_state_meta_info(meta_info)
    key = with_row_names(parse_key_serializer(key_serializer).snapshot, names.key).type_name
    if state.kind is BackendStateType.PRIORITY_QUEUE:
        return RowTypes(key)
    user_key = key_parts(meta_info).get(USER_KEY)
    value = with_row_names(value_snapshot(state), names.value)
    return RowTypes(
        key,
        "" if user_key is None else with_row_names(user_key, names.user_key).type_name,
        _held(value.restore_serializer(), names).name if names.content else value.type_name,
    )


def with_timer_key(meta_info: bytes, key: bytes) -> bytes:
    """Return the meta info of the same queue of timers with another key serializer.

    Args:
        meta_info: The queue's.
        key: The key serializer, as Flink writes it.
    """
    state = parse_state_meta_info(meta_info)
    timer = _timer(state)
    new = _renested(timer, parse_key_serializer(key).snapshot, *timer.nested[1:])
    entries = {**state.serializers, VALUE_SERIALIZER: serializer_entry(new)}
    return meta_info_bytes(replace(state, serializers=entries))


def _timer(state: StateMetaInfo) -> CompositeTypeSerializerSnapshot:
    """Return the snapshot of a queue's timers: of the key, and of the namespace.

    Raises:
        UnsupportedFormatError: It is a queue of something else.
    """
    timer = _snapshot(state, VALUE_SERIALIZER)
    if not isinstance(timer, TimerSerializerSnapshot):
        raise _unlike(state, timer, "a timer")
    return timer


def has_ttl(state: StateMetaInfo) -> bool:
    """Return whether each value, list element or map value has the time of its last access."""
    return isinstance(_inner(state), TtlSerializerSnapshot)


def with_ttl(state: StateMetaInfo, *, on: bool) -> StateMetaInfo:
    """Return the same state with or without the time of last access around each value.

    The form is that of Flink 1.8 to 2.3, which all write the same class and version.

    Args:
        state: A keyed state other than a queue of timers.
        on: Whether it is to have time to live.
    """
    inner = _inner(state)
    if isinstance(inner, TtlSerializerSnapshot) == on:
        return state
    if isinstance(inner, TtlSerializerSnapshot):
        return _with_inner(state, inner.nested[1])
    version_2 = state.kind is BackendStateType.KEY_VALUE_V2
    wrapper = AsyncTtlSerializerSnapshot if version_2 else TtlSerializerSnapshot
    return _with_inner(state, wrapper.around(SNAPSHOTS[LongSerializer](), inner))


def meta_info_bytes(state: StateMetaInfo) -> bytes:
    """Return meta info as the bytes in a snapshot."""
    out = DataOutput()
    write_state_meta_info(state, out)
    return out.to_bytes()


def with_value_bytes(meta_info: bytes, value: TypeSerializerSnapshot) -> bytes:
    """Apply `with_value` to meta info as bytes."""
    return meta_info_bytes(with_value(parse_state_meta_info(meta_info), value))


def with_ttl_bytes(meta_info: bytes, *, on: bool) -> bytes:
    """Apply `with_ttl` to meta info as bytes."""
    return meta_info_bytes(with_ttl(parse_state_meta_info(meta_info), on=on))


def _inner(state: StateMetaInfo) -> TypeSerializerSnapshot:
    """Return the snapshot of an entry's value: a list's element, a map's value, with its TTL."""
    kind = _KINDS.get(state.options.get(KEYED_STATE_TYPE, "UNKNOWN"), StateKind.VALUE)
    return _parts(state, kind)[0]


def _with_inner(state: StateMetaInfo, inner: TypeSerializerSnapshot) -> StateMetaInfo:
    stored = _snapshot(state, VALUE_SERIALIZER)
    if _inner(state) is not stored:
        assert isinstance(stored, CompositeTypeSerializerSnapshot)  # noqa: S101 - by _parts
        inner = _renested(stored, *stored.nested[:-1], inner)
    entries = {**state.serializers, VALUE_SERIALIZER: serializer_entry(inner)}
    return replace(state, serializers=entries)


def _renested(
    snapshot: CompositeTypeSerializerSnapshot, *nested: TypeSerializerSnapshot
) -> CompositeTypeSerializerSnapshot:
    renested = copy(snapshot)
    renested.nested = nested
    return renested


def _unlike(
    state: StateMetaInfo, value: TypeSerializerSnapshot, kind: str
) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        f"{kind} state whose serializer is {value.java_class}",
        place=f"state {state.name!r}",
        remedy="only Flink's own list and map serializers are known here",
    )


def _snapshot(state: StateMetaInfo, role: str) -> TypeSerializerSnapshot:
    entry = state.serializers.get(role)
    if entry is None:
        raise CorruptSnapshotError(f"no {role} registered", place=f"state {state.name!r}")
    return entry.snapshot


def describe_state(
    state: StateMetaInfo, layout: KeyedLayout, names: RowNames = NO_NAMES
) -> KeyedState:
    """Return the neutral description of a state."""
    return KeyedState(
        name=state.name,
        meta_info=meta_info_bytes(state),
        kind=layout.kind,
        schema=layout.schema,
        key_type=layout.key.name,
        namespace_type=layout.namespace.name,
        value_type="" if layout.value is None else described_type(layout.value),
        user_key_type="" if layout.user_key is None else layout.user_key.name,
        with_ttl=layout.with_ttl,
        names=names,
        layout=layout,
    )
