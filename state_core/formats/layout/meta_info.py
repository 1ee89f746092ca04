"""The meta infos in a state file: names, kinds, options, serializer snapshots of states.

::

    keyed header (never compressed):
        i32 version 6, boolean compression
        the key's serializer snapshot
        i16 count, state meta infos
    state meta info:
        UTF name, i32 kind (an ordinal), i32 n, n options (UTF, UTF),
        i32 n, n serializers (UTF role, i32 2, versioned snapshot)

Source: `KeyedBackendSerializationProxy`, `StateMetaInfoSnapshotReadersWriters` and
`StateMetaInfoSnapshot` in `org.apache.flink.runtime.state`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from statelake.state_core.bounds import STATES
from statelake.state_core.errors import CorruptSnapshotError, StateError, UnsupportedFormatError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers import (
    TypeSerializerSnapshot,
    read_serializer_snapshot,
    registered_classes,
    write_serializer_snapshot,
)
from statelake.state_core.serializers.framework.base import ADAPTER_VERSION

_Read = TypeVar("_Read")

KEYED_VERSION = 6
SNAPSHOT_WRAPPER_VERSION = 2
ADAPTED = ADAPTER_VERSION.to_bytes(4, "big")
LEGACY_WRAPPER_VERSION = 1
LEAST_META_BYTES = 14

KEYED_STATE_TYPE = "KEYED_STATE_TYPE"
DISTRIBUTION_MODE = "OPERATOR_STATE_DISTRIBUTION_MODE"
KEY_SERIALIZER = "KEY_SERIALIZER"
NAMESPACE_SERIALIZER = "NAMESPACE_SERIALIZER"
USER_KEY_SERIALIZER = "USER_KEY_SERIALIZER"
VALUE_SERIALIZER = "VALUE_SERIALIZER"
ROLES = frozenset((KEY_SERIALIZER, NAMESPACE_SERIALIZER, USER_KEY_SERIALIZER, VALUE_SERIALIZER))


class BackendStateType(Enum):
    """`StateMetaInfoSnapshot.BackendStateType`, by its ordinal."""

    KEY_VALUE = 0
    OPERATOR = 1
    BROADCAST = 2
    PRIORITY_QUEUE = 3
    KEY_VALUE_V2 = 4


UNKEYED = (BackendStateType.OPERATOR, BackendStateType.BROADCAST)


@dataclass(frozen=True, slots=True)
class SerializerEntry:
    """A serializer snapshot with its original bytes, which are written back as they are.

    A form that Flink 1.17 and later refuse is kept as the bytes of the current form.
    """

    snapshot: TypeSerializerSnapshot
    encoded: bytes


@dataclass(frozen=True, slots=True)
class StateMetaInfo:
    """One registered state.

    Attributes:
        name: Its name, unique in a file.
        kind: The kind of state.
        options: `KEYED_STATE_TYPE`, `OPERATOR_STATE_DISTRIBUTION_MODE`.
        serializers: By role (`NAMESPACE_SERIALIZER`, `VALUE_SERIALIZER`, ...).
    """

    name: str
    kind: BackendStateType
    options: dict[str, str] = field(default_factory=dict)
    serializers: dict[str, SerializerEntry] = field(default_factory=dict)

    @property
    def form(self) -> str:
        """Form of the state, as in declarations: `keyed value`, `UNION list`, `broadcast`."""
        if self.kind is BackendStateType.BROADCAST:
            return "broadcast"
        if self.kind is BackendStateType.OPERATOR:
            mode = self.options.get(DISTRIBUTION_MODE, "")
            return f"{mode.removesuffix('_DISTRIBUTE')} list"
        return f"keyed {self.options.get(KEYED_STATE_TYPE, 'UNKNOWN').lower()}"


@dataclass(frozen=True, slots=True)
class KeyedHeader:
    """The header of a keyed state file, and its length in bytes."""

    compressed: bool
    key_serializer: SerializerEntry
    states: tuple[StateMetaInfo, ...]
    size: int = 0


def read_keyed_header(source: DataInput) -> KeyedHeader:
    """Read the header of a keyed state file.

    Raises:
        UnsupportedFormatError: The version is not 6, which Flink writes since 1.7.
        UnknownSerializerError: The header names a snapshot class that is not registered.
    """
    version = source.read_int()
    if version != KEYED_VERSION:
        raise UnsupportedFormatError(
            f"keyed state of version {version}; only 6 (Flink 1.7 to 2.3) is read",
            place=source.place,
            remedy="restore it in Flink 1.8 to 1.16, and take a new savepoint there",
        )
    compressed = source.read_boolean()
    key_serializer = read_serializer_entry(source, "the key")
    count = source.read_short_count("states", LEAST_META_BYTES, STATES)
    states = read_state_meta_infos(source, count)
    return KeyedHeader(compressed, key_serializer, states, source.position)


def read_state_meta_infos(
    source: DataInput, count: int, others: tuple[StateMetaInfo, ...] = ()
) -> tuple[StateMetaInfo, ...]:
    """Read the meta infos of several states.

    Args:
        source: The bytes, at the first meta info.
        count: The number of states.
        others: Other states of the same file, whose names are taken.

    Raises:
        CorruptSnapshotError: Two states have one name.
    """
    names = {state.name for state in others}
    states: list[StateMetaInfo] = []
    for _ in range(count):
        place = source.place
        state = read_state_meta_info(source)
        if state.name in names:
            raise CorruptSnapshotError(f"state {state.name!r} a second time", place=place)
        names.add(state.name)
        states.append(state)
    return tuple(states)


def parse_keyed_header(encoded: bytes) -> KeyedHeader:
    """Return the header in these bytes; unknown classes are carried."""
    return _read_whole(DataInput(encoded, "keyed header"), read_keyed_header)


def write_keyed_header(header: KeyedHeader, out: DataOutput) -> None:
    """Write the header of a keyed state file, version 6."""
    out.write_int(KEYED_VERSION)
    out.write_boolean(header.compressed)
    out.write_bytes(header.key_serializer.encoded)
    out.write_short(len(header.states))
    for state in header.states:
        write_state_meta_info(state, out)


def read_state_meta_info(source: DataInput) -> StateMetaInfo:
    """Read one state's meta info (versions 6 and 7, which are alike)."""
    name = source.read_utf()
    ordinal = source.read_int()
    if not 0 <= ordinal < len(BackendStateType):
        raise source.fault(f"state {name!r} of unknown kind {ordinal}")
    options: dict[str, str] = {}
    for _ in range(source.read_members("options", 4)):
        option = source.read_utf()
        if option in options:
            raise source.fault(f"state {name!r} with option {option!r} a second time")
        options[option] = source.read_utf()
    serializers: dict[str, SerializerEntry] = {}
    for _ in range(source.read_members("serializers", 12)):
        role = source.read_utf()
        if role in serializers:
            raise source.fault(f"state {name!r} with serializer {role!r} a second time")
        if source.unknown is not None and role not in ROLES:
            raise source.fault(f"a serializer of the role {role!r}")
        serializers[role] = read_serializer_entry(source, f"state {name!r}, {role}")
    return StateMetaInfo(name, BackendStateType(ordinal), options, serializers)


def parse_state_meta_info(encoded: bytes, what: str = "state meta info") -> StateMetaInfo:
    """Return the state that these bytes describe; unknown classes are carried.

    Args:
        encoded: The bytes of `write_state_meta_info`.
        what: Its name in messages.
    """
    return _read_whole(DataInput(encoded, what), read_state_meta_info)


def write_state_meta_info(state: StateMetaInfo, out: DataOutput) -> None:
    """Write one state's meta info, the reverse of `read_state_meta_info`."""
    out.write_utf(state.name)
    out.write_int(state.kind.value)
    out.write_int(len(state.options))
    for key, value in state.options.items():
        out.write_utf(key)
        out.write_utf(value)
    out.write_int(len(state.serializers))
    for role, entry in state.serializers.items():
        out.write_utf(role)
        out.write_bytes(entry.encoded)


def read_serializer_entry(source: DataInput, whose: str) -> SerializerEntry:
    """Read a serializer snapshot in its wrapper (`TypeSerializerSnapshotSerializationUtil`).

    Args:
        source: The bytes, at the entry.
        whose: The serialized thing, for messages.

    Raises:
        UnsupportedFormatError: It is Java-serialized, as before Flink 1.7, and its class alone does
            not determine the format.
        UnknownSerializerError: The entry's class is not registered.
    """
    start = source.position
    version = source.read_int()
    if version == LEGACY_WRAPPER_VERSION:
        try:
            from statelake.state_core.serializers.framework.config_snapshots import (  # noqa: PLC0415
                read_parameterless,
            )

            return serializer_entry(read_parameterless(source, registered_classes()))
        except StateError as error:
            raise error.within(whose) from error
    if version != SNAPSHOT_WRAPPER_VERSION:
        raise source.fault(f"serializer of {whose} in an unknown form {version}")
    try:
        snapshot = read_serializer_snapshot(source)
    except StateError as error:
        raise error.within(whose) from error
    encoded = bytes(source.data[start : source.position])
    return serializer_entry(snapshot) if ADAPTED in encoded else SerializerEntry(snapshot, encoded)


def parse_key_serializer(encoded: bytes) -> SerializerEntry:
    """Return the key serializer in these bytes; an unknown class is carried."""
    source = DataInput(encoded, "key serializer")
    return _read_whole(source, lambda content: read_serializer_entry(content, "the key"))


def _read_whole(source: DataInput, read: Callable[[DataInput], _Read]) -> _Read:
    from statelake.state_core.serializers.opaque.unknown_classes import read_whole  # noqa: PLC0415

    return read_whole(source, read)


def serializer_entry(snapshot: TypeSerializerSnapshot) -> SerializerEntry:
    """Return the entry of a snapshot that was created here, not read."""
    out = DataOutput()
    out.write_int(SNAPSHOT_WRAPPER_VERSION)
    write_serializer_snapshot(snapshot, out)
    return SerializerEntry(snapshot, out.to_bytes())
