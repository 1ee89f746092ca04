"""The heap backend: working state in memory, snapshots by reference.

Source: `HeapKeyedStateBackend`, `HeapKeyedStateBackendBuilder`, `HeapSnapshotResources`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from state_core.backends.backend import BackendParts, KeyedStateBackend
from state_core.backends.configuration import BackendConfiguration
from state_core.backends.heap_tables import (
    Frozen,
    HeapListTable,
    HeapMapTable,
    HeapValueTable,
    SnapshotVersions,
)
from state_core.backends.registry import StateRegistry
from state_core.backends.savepoints import SavepointStrategy
from state_core.backends.snapshots import FullSnapshotResources, SnapshotRun
from state_core.backends.tables import Table, ValueTable, entries_of
from state_core.backends.timer_queues import HeapTimerQueue
from state_core.formats.keyed_layout import KeyedLayout
from state_core.formats.meta_info import KeyedHeader
from state_core.handles import KeyGroupRange, KeyGroupsKind
from state_core.snapshot import StateKind

__all__ = ["HeapStorage", "heap_backend"]


class HeapStorage:
    """The tables of one backend, and the versions of their snapshots.

    Args:
        key_groups: Those of this subtask.
    """

    def __init__(self, key_groups: KeyGroupRange) -> None:
        self.key_groups = key_groups
        self.versions = SnapshotVersions()

    def create_table(self, name: str, layout: KeyedLayout) -> Table:
        """A table in memory."""
        del name
        if layout.kind is StateKind.MAP:
            return HeapMapTable(self.versions, self.key_groups, layout)
        kind = HeapListTable if layout.kind is StateKind.LIST else HeapValueTable
        return kind(self.versions, self.key_groups)

    def create_queue(self, table: ValueTable) -> HeapTimerQueue:
        """A queue over a table of timers."""
        return HeapTimerQueue(table, self.key_groups)

    def full_snapshot(self, registry: StateRegistry) -> FullSnapshotResources:
        """All tables as they are now."""
        version = self.versions.take()
        frozen = [(state.table, state.table.freeze()) for state in registry]  # type: ignore[union-attr]
        return _HeapResources(
            registry.header,
            self.versions,
            version,
            self.key_groups.first,
            frozen,  # type: ignore[arg-type]
        )

    def close(self) -> None:
        """Nothing is held outside memory."""


class _HeapResources:
    """Dictionaries that nobody changes while this has them."""

    def __init__(
        self,
        header: KeyedHeader,
        versions: SnapshotVersions,
        version: int,
        first: int,
        frozen: list[tuple[HeapValueTable | HeapListTable | HeapMapTable, Frozen]],
    ) -> None:
        self.header = header
        self.versions = versions
        self.version = version
        self.first = first
        self.frozen = frozen

    def iterators(self) -> Sequence[_HeapIterator]:
        """One a state."""
        return [
            _HeapIterator(state_id, self.first, table, held)
            for state_id, (table, held) in enumerate(self.frozen)
        ]

    def release(self) -> None:
        """Let the dictionaries go."""
        self.frozen = []
        self.versions.release(self.version)


@dataclass(frozen=True)
class _HeapIterator:
    """Serves a state's dictionaries, a key group at a time."""

    state_id: int
    first: int
    table: HeapValueTable | HeapListTable | HeapMapTable
    frozen: Frozen

    def __iter__(self) -> Iterator[SnapshotRun]:
        for index, held in enumerate(self.frozen):
            group = self.first + index
            for keys, values in self.table.chunks(held):
                yield SnapshotRun(
                    group, self.state_id, entries_of(self.state_id, group, keys, values)
                )


def heap_backend(configuration: BackendConfiguration) -> KeyedStateBackend:
    """A backend whose working state lies in memory.

    Its checkpoints are whole, too, in the unified format.
    """
    storage = HeapStorage(configuration.key_groups)
    registry = configuration.registry(storage)

    def strategy(kind: KeyGroupsKind) -> SavepointStrategy:
        return SavepointStrategy(
            lambda: storage.full_snapshot(registry),
            configuration.key_groups,
            configuration.prefix,
            compressed=configuration.compressed,
            kind=kind,
        )

    parts = BackendParts(
        registry, storage, strategy(KeyGroupsKind.SAVEPOINT), strategy(KeyGroupsKind.NATIVE)
    )
    return KeyedStateBackend(configuration, parts)
