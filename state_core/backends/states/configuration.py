"""What every backend is made with: keys, key groups, a clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from state_core.backends.states.registry import StateRegistry, TableFactory
from state_core.errors import KeyGroupError
from state_core.formats.layout.meta_info import SerializerEntry, serializer_entry
from state_core.formats.writing.new_states import TypeOf, snapshot_of
from state_core.model.handles import KeyGroupRange
from state_core.model.key_groups import check_parallelism, key_group_ranges, prefix_bytes

__all__ = ["BackendConfiguration", "wall_clock"]


def wall_clock() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class BackendConfiguration:
    """What every backend is made with.

    Attributes:
        key: The type of keys.
        key_groups: Those of this subtask.
        max_parallelism: The number of all key groups.
        compressed: Whether snapshots are compressed.
        clock: Says the time, in milliseconds, by which values live and expire.
    """

    key: TypeOf
    key_groups: KeyGroupRange
    max_parallelism: int
    compressed: bool = False
    clock: Callable[[], int] = field(default=wall_clock, compare=False)

    def __post_init__(self) -> None:
        check_parallelism(self.max_parallelism, 1)
        if not 0 <= self.key_groups.first <= self.key_groups.last < self.max_parallelism:
            raise KeyGroupError(f"key groups {self.key_groups} of {self.max_parallelism}")

    @classmethod
    def of_subtask(
        cls,
        key: TypeOf,
        subtask: int,
        parallelism: int,
        max_parallelism: int,
        *,
        compressed: bool = False,
        clock: Callable[[], int] = wall_clock,
    ) -> BackendConfiguration:
        """That of one subtask of an operator."""
        ranges = key_group_ranges(max_parallelism, parallelism)
        return cls(key, ranges[subtask], max_parallelism, compressed, clock)

    @property
    def prefix(self) -> int:
        """Bytes of the key-group prefix."""
        return prefix_bytes(self.max_parallelism)

    @cached_property
    def key_entry(self) -> SerializerEntry:
        """The key's serializer snapshot."""
        return serializer_entry(snapshot_of(self.key, "key"))

    def registry(self, tables: TableFactory) -> StateRegistry:
        """A registry of no states."""
        return StateRegistry(self.key_entry, self.key_groups, tables, self.clock)
