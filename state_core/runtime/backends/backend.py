"""A keyed state backend: the working state of one subtask of an operator.

It is composed of a storage (the tables) and a registry (the states). `heap_backend` and
`rocksdb_backend` choose the storage; nothing inherits from a backend.

Source: `AbstractKeyedStateBackend`, `KeyedStateBackend` in `org.apache.flink.runtime.state`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from typing_extensions import Self

from statelake.state_core.errors import IncompatibleError, NotFoundError, did_you_mean
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.writing.new_states import USER_TIMERS, NewKeyedState, TypeOf
from statelake.state_core.model.handles import KeyGroupsHandle
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.runtime.backends.states.configuration import BackendConfiguration
from statelake.state_core.runtime.backends.states.descriptors import StateDescriptor
from statelake.state_core.runtime.backends.states.keys import KeyContext, split_key
from statelake.state_core.runtime.backends.states.registry import (
    RegisteredState,
    StateRegistry,
    Storage,
    same_info,
)
from statelake.state_core.runtime.backends.states.snapshots import SnapshotTask, write_tables
from statelake.state_core.runtime.backends.states.states import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from statelake.state_core.runtime.backends.states.tables import ValueTable
from statelake.state_core.runtime.backends.states.timers import (
    InternalTimerQueue,
    InternalTimerService,
)
from statelake.state_core.runtime.backends.states.ttl import LastAccess

AnyState: TypeAlias = "ValueState | ListState | MapState | ReducingState | AggregatingState"
VOID_NAMESPACE = "VoidNamespace"
STATES: dict[StateKind, Any] = {
    StateKind.VALUE: ValueState,
    StateKind.LIST: ListState,
    StateKind.MAP: MapState,
    StateKind.REDUCING: ReducingState,
    StateKind.AGGREGATING: AggregatingState,
}


class KeyedStateBackend:
    """The keyed state of one subtask.

    Args:
        configuration: Keys, key groups, clock.
        storage: Keeps the tables of the states.

    Attributes:
        context: The current key.
    """

    def __init__(self, configuration: BackendConfiguration, storage: Storage) -> None:
        self.configuration = configuration
        self.registry = StateRegistry(configuration, storage)
        self.storage = storage
        self.context = KeyContext(
            self.registry.key_serializer, configuration.max_parallelism, configuration.key_groups
        )
        self._states: dict[str, tuple[StateDescriptor, AnyState]] = {}
        self._queues: dict[str, InternalTimerQueue] = {}
        self._services: dict[str, InternalTimerService] = {}

    # ------------------------------------------------------------------------- keys

    @property
    def current_key(self) -> Any:
        """The current key."""
        return self.context.key

    def set_current_key(self, key: Any) -> None:
        """Set the current key of all states.

        Raises:
            KeyGroupError: The key belongs to another subtask, or its hash can't be derived.
        """
        self.context.set(key)

    def keys(self, state: str, namespace: Any = None) -> Iterator[Any]:
        """Yield the keys that have an entry in a state, in a namespace.

        Raises:
            NotFoundError: There is no such state.
        """
        for key, own_namespace in self.keys_and_namespaces(state):
            if own_namespace == namespace:
                yield key

    def keys_and_namespaces(self, state: str) -> Iterator[tuple[Any, Any]]:
        """Yield the keys that have an entry in a state, with their namespaces.

        Raises:
            NotFoundError: There is no such state.
        """
        registered = self.registered(state)
        for group in self.configuration.key_groups:
            for composite in registered.table.keys(group):
                yield split_key(registered.layout, composite)

    def registered(self, state: str) -> RegisteredState:
        """Return a registered state by name.

        Raises:
            NotFoundError: There is no such state.
        """
        try:
            return self.registry.states[state]
        except KeyError:
            known = self.registry.states
            raise NotFoundError(
                f"no state {state!r}",
                remedy=f"there are: {', '.join(map(repr, known)) or 'none'}"
                f"{did_you_mean(state, known)}",
            ) from None

    # ------------------------------------------------------------------------- states

    def state(self, descriptor: StateDescriptor, namespace: TypeOf = VOID_NAMESPACE) -> AnyState:
        """Return a state, created at the first call; the same object for the same descriptor.

        Args:
            descriptor: The descriptor of the state.
            namespace: The type of its namespaces.

        Raises:
            IncompatibleError: A restored or registered state of that name is not compatible.
            EncodeError: A type is invalid.
        """
        known = self._states.get(descriptor.name)
        if known is not None and known[0] == descriptor:
            return known[1]
        info = descriptor.meta_info(self.configuration.key_entry.snapshot, namespace)
        if known is not None and not same_info(self.registered(descriptor.name).info, info):
            raise IncompatibleError(
                "the state was requested before with another descriptor",
                place=f"state {descriptor.name!r}",
            )
        registered, ttl = self.registry.register(info), descriptor.ttl
        new_state: AnyState = STATES[descriptor.kind](
            descriptor.name,
            self.context,
            registered.layout,
            registered.table,
            None if ttl is None else LastAccess(ttl, self.configuration.clock),
            descriptor.function,
        )
        self._states[descriptor.name] = descriptor, new_state
        return new_state

    # ------------------------------------------------------------------------- timers

    def timer_queue(
        self, domain: str, service: str = USER_TIMERS, namespace: TypeOf = VOID_NAMESPACE
    ) -> InternalTimerQueue:
        """Return the queue of one service's timers, of `event` or of `processing` time.

        Raises:
            IncompatibleError: The restored queue has namespaces of another type.
        """
        declared = NewKeyedState.timers(domain, (), namespace=namespace, service=service)
        info = declared.meta_info(self.configuration.key_entry.snapshot)
        existing = self._queues.get(info.name)
        if existing is not None and same_info(self.registered(info.name).info, info):
            return existing
        registered = self.registry.register(info)
        table: ValueTable = registered.table  # type: ignore[assignment]
        elements = self.storage.create_queue(table)
        queue = InternalTimerQueue(self.context, registered.layout, table, elements)
        self._queues[info.name] = queue
        return queue

    def timer_service(
        self, service: str = USER_TIMERS, namespace: TypeOf = VOID_NAMESPACE
    ) -> InternalTimerService:
        """Return the timer service of that name."""
        if service not in self._services:
            # the order in which Flink registers them
            processing = self.timer_queue("processing", service, namespace)
            event = self.timer_queue("event", service, namespace)
            self._services[service] = InternalTimerService(self.context, event, processing)
        return self._services[service]

    # ------------------------------------------------------------------------- snapshots

    def snapshot(self, directory: Directory) -> SnapshotTask[KeyGroupsHandle | None]:
        """Take a snapshot: the synchronous part is done when this returns.

        Args:
            directory: The directory of the snapshot.

        Returns:
            The asynchronous part, to be run in any thread while the job continues.
        """
        header, own = self.registry.header, self.configuration
        tables = [state.table.freeze(number) for number, state in enumerate(self.registry)]

        def write() -> KeyGroupsHandle | None:
            return write_tables(
                directory, header, tables, own.key_groups, own.prefix, compressed=own.compressed
            )

        return SnapshotTask(write, tables.clear)

    def close(self) -> None:
        """Release all resources outside memory; no state can be used any more."""
        self.storage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
