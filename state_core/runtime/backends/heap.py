"""The heap backend: tables in memory, whose snapshots are taken by reference: copy on write.

Each key group of a state is one dictionary. In its synchronous part a snapshot only keeps
references to the dictionaries; when a key group changes for the first time after it, its dictionary
is copied first. The dictionaries contain bytes, which never change; a map's entries are in
dictionaries of their own, copied by the same rule.

Source: `HeapKeyedStateBackend`, `CopyOnWriteStateMap`, `CopyOnWriteStateTable` in
`org.apache.flink.runtime.state.heap`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, TypeVar

from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.runtime.backends.backend import KeyedStateBackend
from statelake.state_core.runtime.backends.states.configuration import BackendConfiguration
from statelake.state_core.runtime.backends.states.keys import namespace_ends, runs_of_groups
from statelake.state_core.runtime.backends.states.tables import (
    MapTable,
    SnapshotRun,
    ValueTable,
    cut_entries,
    cut_pieces,
    entries_of,
    within,
)
from statelake.state_core.runtime.backends.states.timer_queues import HeapTimerQueue

Item = TypeVar("Item")

CHUNK_ROWS = 1 << 11


class _UserMap(dict[bytes, bytes]):
    """The map of a key, with the number of snapshots before it."""

    __slots__ = ("version",)
    version: int


class _HeapTable:
    """The dictionaries of one state, each with the number of snapshots before it."""

    def __init__(self, key_groups: KeyGroupRange) -> None:
        self.key_groups = key_groups
        self.first = key_groups.first
        self.groups: list[dict[bytes, Any]] = [{} for _ in range(len(key_groups))]
        self.group_versions = [0] * len(key_groups)
        self.snapshots = 0

    def keys(self, group: int) -> Iterator[bytes]:
        """Yield the keys of a key group, which may change meanwhile."""
        return iter(list(self.groups[group - self.first]))

    def items(self, group: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of a key group."""
        for keys, values in self._chunks(self.groups[group - self.first]):
            yield from zip(keys, values, strict=True)

    def freeze(self, state_id: int) -> Iterator[SnapshotRun]:
        """Return the current entries."""
        self.snapshots += 1
        return self._runs(state_id, self.groups.copy())

    def _runs(self, state_id: int, groups: list[dict[bytes, Any]]) -> Iterator[SnapshotRun]:
        for group, dictionary in enumerate(groups, self.first):
            for keys, values in self._chunks(dictionary):
                if keys:
                    entries = entries_of(state_id, group, keys, values)
                    yield SnapshotRun(group, state_id, entries)

    def _writable(self, group: int) -> dict[bytes, Any]:
        """Return the dictionary of a key group, copied if a snapshot has it."""
        index = group - self.first
        if self.group_versions[index] != self.snapshots:
            self.groups[index] = self.groups[index].copy()
            self.group_versions[index] = self.snapshots
        return self.groups[index]

    def discard(self, group: int, key: bytes) -> None:
        """Remove a key with all that belongs to it."""
        if key in self.groups[group - self.first]:
            del self._writable(group)[key]

    def _chunks(self, entries: dict[bytes, Any]) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield keys and values of a dictionary in the form of a snapshot."""
        yield from zip(in_pieces(entries), in_pieces(entries.values()), strict=True)


class HeapValueTable(_HeapTable):
    """A table of one value for each key."""

    in_memory: ClassVar[bool] = True
    remove = _HeapTable.discard

    def get(self, group: int, key: bytes) -> bytes | None:
        """Return the value of a key; None without a value."""
        value: bytes | None = self.groups[group - self.first].get(key)
        return value

    def put(self, group: int, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        self._writable(group)[key] = value

    def get_many(self, groups: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of many keys."""
        dictionaries, first = self.groups, self.first
        return [
            dictionaries[group - first].get(key) for group, key in zip(groups, keys, strict=True)
        ]

    def put_many(
        self, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes | None]
    ) -> None:
        """Set the values of many keys; None removes a value."""
        for group in set(groups):
            self._writable(group)
        dictionaries, first = self.groups, self.first
        for group, key, value in zip(groups, keys, values, strict=True):
            if value is None:
                dictionaries[group - first].pop(key, None)
            else:
                dictionaries[group - first][key] = value

    def load(self, entries: Entries) -> None:
        """Add many entries."""
        entries = within(entries, self.key_groups)
        keys, values = cut_entries(entries)
        for group, start, end in runs_of_groups(entries.group_of):
            self._writable(group).update(zip(keys[start:end], values[start:end], strict=True))


class HeapMapTable(_HeapTable):
    """A table of one map for each key.

    Args:
        key_groups: The key groups of this subtask.
        layout: The layout of entries, which finds the user key in an entry's key.
    """

    clear = _HeapTable.discard

    def __init__(self, key_groups: KeyGroupRange, layout: KeyedLayout) -> None:
        super().__init__(key_groups)
        self.layout = layout

    def get(self, group: int, key: bytes, user_key: bytes) -> bytes | None:
        """Return the value of a user key; None without a value."""
        user_map: _UserMap | None = self.groups[group - self.first].get(key)
        return None if user_map is None else user_map.get(user_key)

    def put(self, group: int, key: bytes, user_key: bytes, value: bytes) -> None:
        """Set the value of a user key."""
        self._writable_map(group, key)[user_key] = value

    def remove(self, group: int, key: bytes, user_key: bytes) -> None:
        """Remove a user key; with its last entry the map itself."""
        if self.get(group, key, user_key) is None:
            return
        user_map = self._writable_map(group, key)
        del user_map[user_key]
        if not user_map:
            del self._writable(group)[key]

    def entries(self, group: int, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield all current entries of a key."""
        return iter(list(self.groups[group - self.first].get(key, {}).items()))

    def is_empty(self, group: int, key: bytes) -> bool:
        """Return whether the key has no entries."""
        return key not in self.groups[group - self.first]

    def load(self, entries: Entries) -> None:
        """Add many entries."""
        entries = within(entries, self.key_groups)
        data, middles = entries.data.tobytes(), namespace_ends(self.layout, entries).tolist()
        keys = cut_pieces(data, entries.key_start.tolist(), middles)
        user_keys = cut_pieces(data, middles, entries.key_end.tolist())
        values = cut_pieces(data, entries.value_start.tolist(), entries.value_end.tolist())
        for group, *entry in zip(entries.group_of.tolist(), keys, user_keys, values, strict=True):
            self.put(group, *entry)

    def _writable_map(self, group: int, key: bytes) -> _UserMap:
        entries = self._writable(group)
        user_map: _UserMap | None = entries.get(key)
        if user_map is None or user_map.version != self.snapshots:
            user_map = entries[key] = _UserMap(user_map or {})
            user_map.version = self.snapshots
        return user_map

    def _chunks(self, entries: dict[bytes, Any]) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield keys and values, one for each entry of a map."""
        for pairs in in_pieces(entries.items()):
            keys = [key + user_key for key, user_map in pairs for user_key in user_map]
            yield keys, [value for _, user_map in pairs for value in user_map.values()]


def in_pieces(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield slices of a few entries, which stay in the processor's cache for a second look."""
    rest = iter(items)
    while piece := list(islice(rest, CHUNK_ROWS)):
        yield piece


class HeapStorage:
    """Tables in memory.

    Args:
        key_groups: The key groups of this subtask.
    """

    def __init__(self, key_groups: KeyGroupRange) -> None:
        self.key_groups = key_groups

    def create_table(self, name: str, layout: KeyedLayout) -> ValueTable | MapTable:
        """Create a table in memory."""
        del name
        if layout.kind is StateKind.MAP:
            return HeapMapTable(self.key_groups, layout)
        return HeapValueTable(self.key_groups)

    def create_queue(self, table: ValueTable) -> HeapTimerQueue:
        """Create a queue over a table of timers."""
        return HeapTimerQueue(table, self.key_groups)

    def close(self) -> None:
        """Do nothing: everything is in memory."""


def heap_backend(configuration: BackendConfiguration) -> KeyedStateBackend:
    """Create a backend whose working state is in memory.

    Args:
        configuration: Keys, key groups, clock.
    """
    return KeyedStateBackend(configuration, HeapStorage(configuration.key_groups))
