"""Removal of expired values that are never read again: Flink's clean-up in the background.

Values with a time to live are removed when they are read; values that are never read stay. A
runtime calls this now and then, for a few key groups at a time; functions do not notice.

Source: `TtlIncrementalCleanup`, `RocksDbTtlCompactFiltersManager`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statelake.state_core.backends.backend import KeyedStateBackend
from statelake.state_core.backends.states.states import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
)
from statelake.state_core.backends.states.tables import DELIMITER
from statelake.state_core.backends.states.ttl import (
    LastAccess,
    TtlAggregatingState,
    TtlListState,
    TtlMapState,
    TtlReducingState,
    TtlValueState,
)
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.serializers.composite.collections import DelimitedListSerializer

__all__ = ["remove_expired"]

TIME = slice(0, 8)
TIME_BEHIND_FLAG = slice(1, 9)
WITH_TTL = (
    TtlValueState, TtlReducingState, TtlAggregatingState, TtlListState, TtlMapState,
)  # fmt: skip


def remove_expired(
    backend: KeyedStateBackend, state: Any, key_groups: KeyGroupRange | None = None
) -> int:
    """Remove a state's expired values, list elements and map entries.

    Args:
        backend: The backend of the state.
        state: The state, as the backend returned it; without time to live nothing is removed.
        key_groups: The key groups to clean; all by default.

    Returns:
        The number of removed entries.
    """
    if not isinstance(state, WITH_TTL):
        return 0
    own = backend.configuration.key_groups
    chosen_groups = own if key_groups is None else own.intersection(key_groups)
    remove: Callable[[Any, LastAccess, int], int] = _of_values
    if isinstance(state, TtlListState | TtlMapState):
        remove = _of_lists if isinstance(state, TtlListState) else _of_maps
    groups = range(chosen_groups.first, chosen_groups.last + 1)
    return sum(remove(state.original, state.access, group) for group in groups)


def _dead(access: LastAccess, time: bytes) -> bool:
    return access.ttl.expired(int.from_bytes(time, "big", signed=True), access.clock())


def _of_values(state: ReducingState | AggregatingState, access: LastAccess, group: int) -> int:
    dead = [key for key, value in state.table.items(group) if _dead(access, value[TIME])]
    for key in dead:
        state.table.remove(group, key)
    return len(dead)


def _of_maps(state: MapState, access: LastAccess, group: int) -> int:
    count = 0
    for key in list(state.table.keys(group)):
        entries = state.table.entries(group, key)
        dead = [user_key for user_key, value in entries if _dead(access, value[TIME_BEHIND_FLAG])]
        for user_key in dead:
            state.table.remove(group, key, user_key)
        count += len(dead)
    return count


def _of_lists(state: ListState, access: LastAccess, group: int) -> int:
    count = 0
    joined = DelimitedListSerializer(state.serializer)
    for key, data in list(state.table.items(group)):
        elements = joined.read(DataInput(data, state.name))
        living = [element for element in elements if not access.expired(element)]
        if len(living) == len(elements):
            continue
        count += len(elements) - len(living)
        pieces = []
        for element in living:
            out = DataOutput()
            state.serializer.write(element, out)
            pieces.append(out.to_bytes())
        if pieces:
            state.table.put(group, key, DELIMITER.join(pieces))
        else:
            state.table.remove(group, key)
    return count
