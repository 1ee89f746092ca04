"""Declarations of new states, which no job has written yet, and their meta infos.

Types are text or mappings in the language of `state_core.serializers.type_spec`, or snapshots of
serializers. A list, a map, time to live or a timer is wrapped around a type here, as by Flink's
backends.

Source: `StateDescriptor`, `RegisteredKeyValueStateBackendMetaInfo`, `TtlStateFactory`,
`InternalTimeServiceManagerImpl`, `RegisteredOperatorStateBackendMetaInfo`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from statelake.state_core.errors import EncodeError, StateError
from statelake.state_core.formats.layout.meta_info import (
    DISTRIBUTION_MODE,
    KEY_SERIALIZER,
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
    BackendStateType,
    StateMetaInfo,
    serializer_entry,
)
from statelake.state_core.model.handles import DistributionMode
from statelake.state_core.model.snapshot import TIMER_PREFIX, StateKind
from statelake.state_core.serializers.composite.collections import (
    ListSerializerSnapshot,
    MapSerializerSnapshot,
)
from statelake.state_core.serializers.composite.wrappers import (
    TimerSerializerSnapshot,
    TtlSerializerSnapshot,
)
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.snapshots import CompositeTypeSerializerSnapshot
from statelake.state_core.serializers.type_spec import TypeSpec, parse_type

if TYPE_CHECKING:
    from statelake.state_core.formats.writing.new_rows import RemoteRows

TypeOf: TypeAlias = "TypeSpec | TypeSerializerSnapshot"
Rows: TypeAlias = (
    "pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch] | RemoteRows"
)

# of a `KeyedProcessFunction`, and of the DataStream API V2's `KeyedProcessOperator`
USER_TIMERS, V2_TIMERS = "user-timers", "processing timer"
_TIMERS = re.compile(re.escape(TIMER_PREFIX) + r"(event|processing)_.+", re.DOTALL)
MODES = {
    "split": DistributionMode.SPLIT_DISTRIBUTE,
    "union": DistributionMode.UNION,
    "broadcast": DistributionMode.BROADCAST,
}


@dataclass(frozen=True)
class NewKeyedState:
    """A keyed state and its rows.

    Attributes:
        name: The name in the job's descriptor; timers are best created by `timers`.
        rows: Columns `key`, and `namespace` (if it has one), `user_key` (of a map: a row is
            an entry), `timestamp` (of timers, in milliseconds), `value`, and `ttl` (the time of
            last access, in milliseconds). A key group is computed from the key's hash; a column
            `key_group` is needed only if that hash can't be derived, and otherwise checked.
        kind: `value`, `list`, `map`, `reducing`, `aggregating` or `timers`.
        value: The type of the value, of a list's elements, a map's values, or an accumulator.
        user_key: The type of a map's keys.
        namespace: The namespace's type.
        with_ttl: Whether the job's descriptor has time to live enabled.
    """

    name: str
    rows: Rows
    kind: str = "value"
    value: TypeOf = ""
    user_key: TypeOf = ""
    namespace: TypeOf = "VoidNamespace"
    with_ttl: bool = False

    @classmethod
    def timers(
        cls,
        domain: str,
        rows: Rows,
        *,
        namespace: TypeOf = "VoidNamespace",
        service: str = USER_TIMERS,
    ) -> NewKeyedState:
        """Return the timers of one service.

        Args:
            domain: `event` or `processing`.
            rows: Columns `key`, `timestamp`, and `namespace` if it has one.
            namespace: The namespace's type.
            service: `user-timers` for process functions, `window-timers` for windows.
        """
        return cls(f"{TIMER_PREFIX}{domain}_{service}", rows, kind="timers", namespace=namespace)

    def meta_info(self, key: TypeSerializerSnapshot) -> StateMetaInfo:
        """Return its meta info for a file.

        Args:
            key: The operator's key serializer.

        Raises:
            EncodeError: Something is missing, or does not belong to its kind.
        """
        place = f"state {self.name!r}"
        kinds = {member.value: member for member in StateKind}
        kind = kinds.get(self.kind)
        if kind is None:
            raise EncodeError(
                f"{self.kind!r} is no kind of state",
                place=place,
                remedy=f"one of {', '.join(kinds)}",
            )
        if (kind is StateKind.TIMERS) != bool(_TIMERS.fullmatch(self.name)) or not self.name:
            raise EncodeError(
                f"{self.name!r} can't be the name of {kind.value} state",
                place=place,
                remedy="timers, and only they, are called _timer_state/event_<service> or"
                " _timer_state/processing_<service>",
            )
        namespace = snapshot_of(self.namespace, f"{place}, namespace")
        if kind is StateKind.TIMERS:
            self._refuse(place, value=self.value, user_key=self.user_key, with_ttl=self.with_ttl)
            timer = _composite(TimerSerializerSnapshot(), key, namespace)
            entries = {VALUE_SERIALIZER: serializer_entry(timer)}
            return StateMetaInfo(self.name, BackendStateType.PRIORITY_QUEUE, {}, entries)
        value = snapshot_of(self.value, f"{place}, value")
        if self.with_ttl:
            value = _composite(TtlSerializerSnapshot(), parse_type("Long"), value)
        if kind is StateKind.MAP:
            user_key = snapshot_of(self.user_key, f"{place}, user key")
            value = _composite(MapSerializerSnapshot(), user_key, value)
        else:
            self._refuse(place, user_key=self.user_key)
        if kind is StateKind.LIST:
            value = _composite(ListSerializerSnapshot(), value)
        return StateMetaInfo(
            self.name,
            BackendStateType.KEY_VALUE,
            {KEYED_STATE_TYPE: kind.name},
            {
                VALUE_SERIALIZER: serializer_entry(value),
                NAMESPACE_SERIALIZER: serializer_entry(namespace),
            },
        )

    def _refuse(self, place: str, **given: object) -> None:
        for what, value in given.items():
            if value:
                raise EncodeError(f"{self.kind} state has no `{what}`", place=place)


@dataclass(frozen=True)
class NewOperatorState:
    """An operator (non-keyed) state and its rows, all of which are in memory.

    Attributes:
        name: The name in the job's descriptor.
        rows: Column `value`, and `key` of a broadcast state. A list state may have `subtask` and
            `position`; without them, a split list is distributed evenly in the order of its rows,
            and a
            union list is written once.
        mode: `split`, `union` or `broadcast`.
        value: The type of its elements, or of a broadcast state's values.
        key: The type of a broadcast state's keys.
    """

    name: str
    rows: Rows
    mode: str
    value: TypeOf
    key: TypeOf = ""

    def meta_info(self) -> StateMetaInfo:
        """Return its meta info for a file.

        Raises:
            EncodeError: Something is missing, or does not belong to its mode.
        """
        place = f"operator state {self.name!r}"
        mode = MODES.get(self.mode)
        if mode is None or not self.name:
            problem = f"{self.mode!r} is no mode" if self.name else "a state without a name"
            raise EncodeError(problem, place=place, remedy=f"one of {', '.join(MODES)}")
        entries = {VALUE_SERIALIZER: serializer_entry(snapshot_of(self.value, f"{place}, value"))}
        kind = BackendStateType.OPERATOR
        if mode is DistributionMode.BROADCAST:
            kind = BackendStateType.BROADCAST
            entries[KEY_SERIALIZER] = serializer_entry(snapshot_of(self.key, f"{place}, key"))
        elif self.key:
            raise EncodeError(f"a {self.mode} list has no `key`", place=place)
        return StateMetaInfo(self.name, kind, {DISTRIBUTION_MODE: mode.name}, entries)


@dataclass(frozen=True)
class NewOperator:
    """An operator and its states.

    Attributes:
        uid: The uid in the job; the operator's id is its hash.
        key: The type of its keys.
        states: Its keyed states.
        operator_states: Its operator states.
        parallelism: The number of subtasks.
        max_parallelism: The number of key groups; by default Flink's default for the parallelism.
        name: Its name, in `_metadata` 5 and 6.
    """

    uid: str
    key: TypeOf = ""
    states: tuple[NewKeyedState, ...] = ()
    operator_states: tuple[NewOperatorState, ...] = ()
    parallelism: int = 1
    max_parallelism: int | None = None
    name: str = ""


def snapshot_of(one: TypeOf, place: str) -> TypeSerializerSnapshot:
    """Return the serializer snapshot of a type that is written down, or already one.

    Raises:
        EncodeError: The type can't be parsed.
    """
    if isinstance(one, TypeSerializerSnapshot):
        return one
    try:
        return parse_type(one)
    except StateError as error:
        raise error.within(place) from error


def _composite(
    composite: CompositeTypeSerializerSnapshot, *nested: TypeSerializerSnapshot
) -> CompositeTypeSerializerSnapshot:
    composite.nested = nested
    return composite
