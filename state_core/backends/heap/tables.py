"""Tables in memory, whose snapshots are taken by reference: copy on write.

Each key group of a state is one dictionary. A snapshot notes the dictionaries there are, which is
all that it does while the job stands still; whoever then changes a key group of which a snapshot
still has the dictionary copies it first, once. What lies in them are bytes, which nobody changes;
a list's elements and a map's entries are containers of their own, copied by the same rule.

Source: `CopyOnWriteStateMap`, `CopyOnWriteStateTable` in `org.apache.flink.runtime.state.heap`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from threading import Lock
from typing import Any, TypeAlias, TypeVar

from state_core.backends.states.keys import namespace_ends, runs_of_groups
from state_core.backends.states.tables import DELIMITER, cut_pieces, within
from state_core.formats.layout.keyed_layout import KeyedLayout
from state_core.model.handles import KeyGroupRange
from state_core.model.snapshot import Entries

__all__ = [
    "Frozen",
    "HeapListTable",
    "HeapMapTable",
    "HeapValueTable",
    "SnapshotVersions",
    "in_pieces",
]

Frozen: TypeAlias = "list[dict[bytes, Any]]"
Held = TypeVar("Held")

CHUNK_ROWS = 1 << 11


class SnapshotVersions:
    """Which snapshots are being written: what was made before the newest of them is theirs too.

    Attributes:
        current: The number of snapshots taken so far.
        required: What is older than this must be copied before it is changed.
    """

    __slots__ = ("_live", "_lock", "current", "required")

    def __init__(self) -> None:
        self.current = 0
        self.required = 0
        self._live: set[int] = set()
        self._lock = Lock()  # a snapshot ends in the thread that wrote it

    def take(self) -> int:
        """Begin a snapshot; its number."""
        with self._lock:
            self.current += 1
            self._live.add(self.current)
            self.required = self.current
            return self.current

    def release(self, version: int) -> None:
        """A snapshot needs nothing any more."""
        with self._lock:
            self._live.discard(version)
            self.required = max(self._live, default=0)


class _Elements(list[bytes]):
    """A key's list elements, one or several to a piece, and the version that made them."""

    __slots__ = ("made",)
    made: int


class _UserMap(dict[bytes, bytes]):
    """A key's map, and the version that made it."""

    __slots__ = ("made",)
    made: int


class _HeapTable:
    """The dictionaries of one state."""

    def __init__(self, versions: SnapshotVersions, key_groups: KeyGroupRange) -> None:
        self.versions = versions
        self.key_groups = key_groups
        self.first = key_groups.first
        self.groups: list[dict[bytes, Any]] = [{} for _ in range(len(key_groups))]
        self.made = [versions.current] * len(key_groups)

    def freeze(self) -> Frozen:
        """The dictionaries as they are now, for the snapshot that was just begun."""
        return self.groups.copy()

    def keys(self, group: int) -> Iterator[bytes]:
        """The keys of a key group, which may change meanwhile."""
        return iter(list(self.groups[group - self.first]))

    def items(self, group: int) -> Iterator[tuple[bytes, bytes]]:
        """The entries of a key group."""
        for keys, values in self.chunks(self.groups[group - self.first]):
            yield from zip(keys, values, strict=True)

    def _writable(self, group: int) -> dict[bytes, Any]:
        """The dictionary of a key group, which no snapshot has."""
        index = group - self.first
        if self.made[index] < self.versions.required:
            self.groups[index] = self.groups[index].copy()
            self.made[index] = self.versions.current
        return self.groups[index]

    def _discard(self, group: int, key: bytes) -> None:
        if key in self.groups[group - self.first]:
            del self._writable(group)[key]

    @staticmethod
    def chunks(held: dict[bytes, Any]) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Keys and values of a dictionary as a snapshot has them."""
        raise NotImplementedError


class HeapValueTable(_HeapTable):
    """One value a key."""

    def get(self, group: int, key: bytes) -> bytes | None:
        """What the key has."""
        found: bytes | None = self.groups[group - self.first].get(key)
        return found

    def put(self, group: int, key: bytes, value: bytes) -> None:
        """Let the key have this."""
        self._writable(group)[key] = value

    def remove(self, group: int, key: bytes) -> None:
        """Let the key have nothing."""
        self._discard(group, key)

    def get_many(self, groups: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        """What many keys have."""
        held, first = self.groups, self.first
        return [held[group - first].get(key) for group, key in zip(groups, keys, strict=True)]

    def put_many(
        self, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes | None]
    ) -> None:
        """Let many keys have these, or nothing."""
        for group in set(groups):
            self._writable(group)
        held, first = self.groups, self.first
        for group, key, value in zip(groups, keys, values, strict=True):
            if value is None:
                held[group - first].pop(key, None)
            else:
                held[group - first][key] = value

    def load(self, entries: Entries) -> None:
        """Put many entries."""
        entries = within(entries, self.key_groups)
        data = entries.data.tobytes()
        keys = cut_pieces(data, entries.key_start.tolist(), entries.key_end.tolist())
        values = cut_pieces(data, entries.value_start.tolist(), entries.value_end.tolist())
        for group, start, end in runs_of_groups(entries):
            self._writable(group).update(zip(keys[start:end], values[start:end], strict=True))

    @staticmethod
    def chunks(held: dict[bytes, Any]) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """As they are."""
        yield from zip(in_pieces(held), in_pieces(held.values()), strict=True)


class HeapListTable(_HeapTable):
    """One list a key."""

    def get(self, group: int, key: bytes) -> bytes | None:
        """The elements."""
        held = self.groups[group - self.first].get(key)
        return None if held is None else DELIMITER.join(held)

    def put(self, group: int, key: bytes, value: bytes) -> None:
        """Let the key have these elements."""
        self._writable(group)[key] = self._made([value])

    def remove(self, group: int, key: bytes) -> None:
        """Let the key have nothing."""
        self._discard(group, key)

    def append(self, group: int, key: bytes, elements: bytes) -> None:
        """Put elements behind those that the key has."""
        entries = self._writable(group)
        held = entries.get(key)
        if held is None:
            entries[key] = self._made([elements])
            return
        if held.made < self.versions.required:
            held = entries[key] = self._made(held)
        held.append(elements)

    def get_many(self, groups: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        """What many keys have."""
        return [self.get(group, key) for group, key in zip(groups, keys, strict=True)]

    def put_many(
        self, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes | None]
    ) -> None:
        """Let many keys have these, or nothing."""
        for group, key, value in zip(groups, keys, values, strict=True):
            if value is None:
                self.remove(group, key)
            else:
                self.put(group, key, value)

    def load(self, entries: Entries) -> None:
        """Put many entries."""
        entries = within(entries, self.key_groups)
        data = entries.data.tobytes()
        keys = cut_pieces(data, entries.key_start.tolist(), entries.key_end.tolist())
        values = cut_pieces(data, entries.value_start.tolist(), entries.value_end.tolist())
        self.put_many(entries.group_of.tolist(), keys, values)

    def _made(self, pieces: list[bytes]) -> _Elements:
        made = _Elements(pieces)
        made.made = self.versions.current
        return made

    @staticmethod
    def chunks(held: dict[bytes, Any]) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """The pieces of each list joined."""
        for keys, lists in zip(in_pieces(held), in_pieces(held.values()), strict=True):
            yield keys, [DELIMITER.join(one) for one in lists]


class HeapMapTable(_HeapTable):
    """One map a key.

    Args:
        versions: Of snapshots.
        key_groups: Those of this subtask.
        layout: Says where in an entry's key the user key begins.
    """

    def __init__(
        self, versions: SnapshotVersions, key_groups: KeyGroupRange, layout: KeyedLayout
    ) -> None:
        super().__init__(versions, key_groups)
        self.layout = layout

    def get(self, group: int, key: bytes, user_key: bytes) -> bytes | None:
        """What the user key has under the key."""
        held: _UserMap | None = self.groups[group - self.first].get(key)
        return None if held is None else held.get(user_key)

    def put(self, group: int, key: bytes, user_key: bytes, value: bytes) -> None:
        """Let the user key have this."""
        self._writable_map(group, key)[user_key] = value

    def remove(self, group: int, key: bytes, user_key: bytes) -> None:
        """Let the user key have nothing; with its last entry the map is gone."""
        if self.get(group, key, user_key) is None:
            return
        held = self._writable_map(group, key)
        del held[user_key]
        if not held:
            del self._writable(group)[key]

    def entries(self, group: int, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All that the key has, as it is now."""
        return iter(list(self.groups[group - self.first].get(key, {}).items()))

    def is_empty(self, group: int, key: bytes) -> bool:
        """Whether the key has nothing."""
        return key not in self.groups[group - self.first]

    def clear(self, group: int, key: bytes) -> None:
        """Let the key have nothing."""
        self._discard(group, key)

    def load(self, entries: Entries) -> None:
        """Put many entries."""
        entries = within(entries, self.key_groups)
        data = entries.data.tobytes()
        middles = namespace_ends(self.layout, entries).tolist()
        keys = cut_pieces(data, entries.key_start.tolist(), middles)
        user_keys = cut_pieces(data, middles, entries.key_end.tolist())
        values = cut_pieces(data, entries.value_start.tolist(), entries.value_end.tolist())
        for group, *entry in zip(entries.group_of.tolist(), keys, user_keys, values, strict=True):
            self.put(group, *entry)

    def _writable_map(self, group: int, key: bytes) -> _UserMap:
        entries = self._writable(group)
        held: _UserMap | None = entries.get(key)
        if held is None or held.made < self.versions.required:
            held = entries[key] = _UserMap(held or {})
            held.made = self.versions.current
        return held

    @staticmethod
    def chunks(held: dict[bytes, Any]) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """A row a map entry."""
        for pairs in in_pieces(held.items()):
            keys = [key + user_key for key, one in pairs for user_key in one]
            yield keys, [value for _, one in pairs for value in one.values()]


def in_pieces(held: Iterable[Held]) -> Iterator[list[Held]]:
    """A few at a time: what is looked at twice is still in the processor's cache then."""
    rest = iter(held)
    while piece := list(islice(rest, CHUNK_ROWS)):
        yield piece
