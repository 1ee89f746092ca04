"""Where a backend keeps the entries of one state: what all backends have in common.

Entries are bytes under bytes, in the unified format: whatever is kept here was written by a
serializer, and what is handed out is never changed by whom it was handed to. A table is asked by
key group and key; it has no notion of a current key. What differs between kinds of state:

`ValueTable`   one value a key: values, accumulators; timers, whose values are empty
`ListTable`    the same, and elements can be appended
`MapTable`     many values a key, by user key

Source: `StateTable` of the heap backend, column families of RocksDB's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from state_core.model.handles import KeyGroupRange
from state_core.model.snapshot import Entries

__all__ = ["ListTable", "MapTable", "StateTable", "ValueTable", "cut_pieces", "entries_of"]

DELIMITER = b","


class StateTable(Protocol):
    """What every table can do."""

    def keys(self, group: int) -> Iterator[bytes]:
        """The keys of a key group that have something; each once."""

    def items(self, group: int) -> Iterator[tuple[bytes, bytes]]:
        """The entries of a key group as a snapshot has them; a map's with key and user key."""

    def load(self, entries: Entries) -> None:
        """Put many entries of this state, as a snapshot has them; those of other subtasks not."""


class ValueTable(StateTable, Protocol):
    """One value a key."""

    def get(self, group: int, key: bytes) -> bytes | None:
        """What the key has."""

    def put(self, group: int, key: bytes, value: bytes) -> None:
        """Let the key have this."""

    def remove(self, group: int, key: bytes) -> None:
        """Let the key have nothing."""

    def get_many(self, groups: Sequence[int], keys: Sequence[bytes]) -> list[bytes | None]:
        """What many keys have."""

    def put_many(
        self, groups: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes | None]
    ) -> None:
        """Let many keys have these, or nothing; of a key that comes twice, the last counts."""


class ListTable(ValueTable, Protocol):
    """One value a key: elements, and a delimiter between two."""

    def append(self, group: int, key: bytes, elements: bytes) -> None:
        """Put elements behind those that the key has."""


class MapTable(StateTable, Protocol):
    """Many values a key."""

    def get(self, group: int, key: bytes, user_key: bytes) -> bytes | None:
        """What the user key has under the key."""

    def put(self, group: int, key: bytes, user_key: bytes, value: bytes) -> None:
        """Let the user key have this."""

    def remove(self, group: int, key: bytes, user_key: bytes) -> None:
        """Let the user key have nothing."""

    def entries(self, group: int, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All that the key has, as it is now."""

    def is_empty(self, group: int, key: bytes) -> bool:
        """Whether the key has nothing."""

    def clear(self, group: int, key: bytes) -> None:
        """Let the key have nothing."""


Table: TypeAlias = "ValueTable | ListTable | MapTable"


def entries_of(state: int, group: int, keys: list[bytes], values: list[bytes]) -> Entries:
    """Entries of one state and key group in one buffer."""
    count = len(keys)
    pieces = [*keys, *values]
    bounds = np.zeros(2 * count + 1, np.int64)
    np.cumsum(np.fromiter(map(len, pieces), np.int64, 2 * count), out=bounds[1:])
    data = np.frombuffer(b"".join(pieces), np.uint8)
    return Entries(
        data,
        np.full(count, state, np.int16),
        np.full(count, group, np.int64),
        bounds[:count],
        bounds[1 : count + 1],
        bounds[count:-1],
        bounds[count + 1 :],
        lambda at: f"key group {group}, byte {at} of a batch",
    )


def cut_pieces(data: bytes, starts: Iterable[int], ends: Iterable[int]) -> list[bytes]:
    """Pieces of a buffer."""
    return [data[start:end] for start, end in zip(starts, ends, strict=True)]


def within(entries: Entries, key_groups: KeyGroupRange) -> Entries:
    """Only the entries of some key groups."""
    inside = (entries.group_of >= key_groups.first) & (entries.group_of <= key_groups.last)
    return entries if inside.all() else entries.take(np.flatnonzero(inside))
