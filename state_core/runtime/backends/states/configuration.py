"""The configuration of every backend: keys, key groups, a clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from statelake.state_core.errors import KeyGroupError
from statelake.state_core.formats.layout.meta_info import SerializerEntry, serializer_entry
from statelake.state_core.formats.writing.new_states import TypeOf, snapshot_of
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.key_groups import check_parallelism, key_group_ranges, prefix_bytes
from statelake.state_core.runtime.commit.records.clocks import now_millis


@dataclass(frozen=True)
class BackendConfiguration:
    """The configuration of a backend.

    Attributes:
        key: The type of keys.
        key_groups: The key groups of this subtask.
        max_parallelism: The number of all key groups.
        compressed: Whether snapshots are compressed.
        clock: Returns the time, in milliseconds, by which values expire.
    """

    key: TypeOf
    key_groups: KeyGroupRange
    max_parallelism: int
    compressed: bool = False
    clock: Callable[[], int] = field(default=now_millis, compare=False)

    def __post_init__(self) -> None:
        check_parallelism(self.max_parallelism, 1)
        if not 0 <= self.key_groups.first <= self.key_groups.last < self.max_parallelism:
            raise KeyGroupError(
                f"key groups {self.key_groups} are not within 0-{self.max_parallelism - 1}"
            )

    @classmethod
    def of_subtask(
        cls,
        key: TypeOf,
        subtask: int,
        parallelism: int,
        max_parallelism: int,
        *,
        compressed: bool = False,
        clock: Callable[[], int] = now_millis,
    ) -> BackendConfiguration:
        """Return the configuration of one subtask of an operator."""
        ranges = key_group_ranges(max_parallelism, parallelism)
        return cls(key, ranges[subtask], max_parallelism, compressed, clock)

    def check_key_groups(self, groups: npt.NDArray[np.int32], place: str = "") -> None:
        """Refuse keys of other subtasks.

        Args:
            groups: The key group of each key.
            place: The place, for messages.

        Raises:
            KeyGroupError: A key group is not one of this subtask.
        """
        own = self.key_groups
        if len(groups) and not own.first <= groups.min() <= groups.max() <= own.last:
            raise KeyGroupError(
                f"the keys are in key groups {groups.min()} to {groups.max()}, and this subtask has"
                f" {own}",
                place=place,
                remedy="send every key to the subtask that owns its key group",
            )

    @property
    def prefix(self) -> int:
        """Bytes of the key-group prefix."""
        return prefix_bytes(self.max_parallelism)

    @cached_property
    def key_entry(self) -> SerializerEntry:
        """The snapshot of the key serializer."""
        return serializer_entry(snapshot_of(self.key, "key"))
