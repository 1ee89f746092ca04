"""The heap backend: working state in memory, snapshots by reference.

Source: `HeapKeyedStateBackend`, `HeapKeyedStateBackendBuilder`, `HeapSnapshotResources`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.layout.meta_info import KeyedHeader
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.runtime.backends.backend import BackendParts, KeyedStateBackend
from statelake.state_core.runtime.backends.heap.checkpoints import (
    FrozenState,
    HeapCheckpointStrategy,
    HeapResources,
)
from statelake.state_core.runtime.backends.heap.tables import (
    HeapListTable,
    HeapMapTable,
    HeapValueTable,
    SnapshotVersions,
)
from statelake.state_core.runtime.backends.states.configuration import BackendConfiguration
from statelake.state_core.runtime.backends.states.registry import StateRegistry
from statelake.state_core.runtime.backends.states.savepoints import SavepointStrategy
from statelake.state_core.runtime.backends.states.snapshots import SnapshotRun
from statelake.state_core.runtime.backends.states.tables import Table, ValueTable, entries_of
from statelake.state_core.runtime.backends.states.timer_queues import HeapTimerQueue

HeapTable: TypeAlias = "HeapValueTable | HeapListTable | HeapMapTable"


class HeapStorage:
    """The tables of one backend, and the versions of their snapshots.

    Args:
        key_groups: The key groups of this subtask.
    """

    def __init__(self, key_groups: KeyGroupRange) -> None:
        self.key_groups = key_groups
        self.versions = SnapshotVersions()
        self.tables: dict[str, HeapTable] = {}

    def create_table(self, name: str, layout: KeyedLayout) -> Table:
        """Create a table in memory."""
        table: HeapTable
        if layout.kind is StateKind.MAP:
            table = HeapMapTable(self.versions, self.key_groups, layout)
        elif layout.kind is StateKind.LIST:
            table = HeapListTable(self.versions, self.key_groups)
        else:
            table = HeapValueTable(self.versions, self.key_groups)
        self.tables[name] = table
        return table

    def create_queue(self, table: ValueTable) -> HeapTimerQueue:
        """Create a queue over a table of timers."""
        return HeapTimerQueue(table, self.key_groups)

    def full_snapshot(self, registry: StateRegistry) -> HeapResources:
        """Freeze all tables in their current form."""
        version = self.versions.take()
        frozen = [
            FrozenState(state.layout, self.tables[name].chunks, self.tables[name].freeze())
            for name, state in registry.states.items()
        ]
        return _HeapResources(
            registry.header, self.versions, version, self.key_groups.first, frozen
        )

    def close(self) -> None:
        """Do nothing: everything is in memory."""


@dataclass
class _HeapResources:
    """Snapshot resources: dictionaries that do not change until they are released."""

    header: KeyedHeader
    versions: SnapshotVersions
    version: int
    first: int
    frozen: Sequence[FrozenState]

    def iterators(self) -> Sequence[_HeapIterator]:
        """Return one iterator for each state."""
        return [
            _HeapIterator(state_id, self.first, state) for state_id, state in enumerate(self.frozen)
        ]

    def release(self) -> None:
        """Release the dictionaries."""
        self.frozen = []
        self.versions.release(self.version)


@dataclass(frozen=True)
class _HeapIterator:
    """Iterates over a state's dictionaries, one key group at a time."""

    state_id: int
    first: int
    state: FrozenState

    def __iter__(self) -> Iterator[SnapshotRun]:
        for group, dictionary in enumerate(self.state.groups, self.first):
            for keys, values in self.state.chunks(dictionary):
                if keys:
                    entries = entries_of(self.state_id, group, keys, values)
                    yield SnapshotRun(group, self.state_id, entries)


def heap_backend(configuration: BackendConfiguration) -> KeyedStateBackend:
    """Create a backend whose working state is in memory.

    Its checkpoints are always complete, in the format of Flink's heap backend.

    Args:
        configuration: Keys, key groups, clock.
    """
    storage = HeapStorage(configuration.key_groups)
    registry = configuration.registry(storage)

    def prepare() -> HeapResources:
        return storage.full_snapshot(registry)

    key_groups, compressed = configuration.key_groups, configuration.compressed
    savepoints = SavepointStrategy(prepare, key_groups, configuration.prefix, compressed=compressed)
    checkpoints = HeapCheckpointStrategy(prepare, key_groups, savepoints, compressed=compressed)
    parts = BackendParts(registry, storage, savepoints, checkpoints)
    return KeyedStateBackend(configuration, parts)
