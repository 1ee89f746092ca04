"""Keyed state of the changelog backend: a materialized snapshot with the changes since.

A handle wraps the handles of another backend, and those of a log. After a restore at another
parallelism there may be several of both, with key groups that belong to other subtasks by now:
these are left out. Before the first materialization there is only a log; then only a queue of
timers, or another subtask, has the key serializer.

Source: `ChangelogBackendRestoreOperation` in `org.apache.flink.state.changelog.restore`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from statelake.state_core.errors import UnsupportedFormatError, UnwalkableError
from statelake.state_core.formats.keyed.changelog.change_log import ChangeLog
from statelake.state_core.formats.keyed.changelog.change_replay import replayed
from statelake.state_core.formats.keyed.headed_file import FileHeader, HeadedFile
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.layout.keyed_states import describe_state
from statelake.state_core.formats.layout.meta_info import (
    VALUE_SERIALIZER,
    BackendStateType,
    KeyedHeader,
    SerializerEntry,
    StateMetaInfo,
    serializer_entry,
)
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.snapshot import KeyedState
from statelake.state_core.serializers.composite.wrappers import TimerSerializerSnapshot


@dataclass(frozen=True)
class ChangelogKeyedFile(HeadedFile):
    """A `KeyedFile` of a materialized snapshot and a log of changes.

    Attributes:
        bases: The files of the materialized snapshot.
        log: The changes since then.
    """

    bases: tuple[HeadedFile, ...]
    log: ChangeLog

    @property
    def compressed(self) -> bool:
        """Return whether the materialized snapshot is compressed."""
        return any(base.compressed for base in self.bases)

    @property
    def is_spread_evenly(self) -> bool:
        """Return whether `group_bytes` is estimated for the materialized snapshot."""
        return any(base.is_spread_evenly for base in self.bases)

    def group_bytes(self) -> list[tuple[int, int]]:
        """Return key groups and their bytes as stored, including their changes."""
        sizes = Counter(self.log.group_bytes())
        for base in self.bases:
            sizes.update(
                {group: size for group, size in base.group_bytes() if group in self.key_groups}
            )
        return sorted(sizes.items())

    def entries(self, key_groups: KeyGroupRange | None = None) -> Iterator[Entries]:
        """Yield all entries of some key groups; the changes of one are in memory at a time.

        Raises:
            SnapshotError: The entries can't be read, or a change can't be applied.
        """
        chosen = self.key_groups if key_groups is None else self.key_groups.intersection(key_groups)
        try:
            yield from self._entries(chosen)
        except UnwalkableError as error:  # changes and entries behind it are not read
            raise error.of(self._names) from error

    def _entries(self, chosen: KeyGroupRange) -> Iterator[Entries]:
        at = chosen.first
        for group in self.log.group_bytes():
            if group not in chosen:
                continue
            yield from self._before(KeyGroupRange(at, group - 1))
            changes = self.log.of_group(group)
            changes = replace(changes, states=self._log_states[changes.states])
            before = self._before(KeyGroupRange(group, group))
            yield from replayed(changes, group, self._walking, self._names, before)
            at = group + 1
        yield from self._before(KeyGroupRange(at, chosen.last))

    def _before(self, key_groups: KeyGroupRange) -> Iterator[Entries]:
        """Yield the materialized entries of some key groups."""
        for base, states in zip(self.bases, self._base_states, strict=True):
            within = key_groups.intersection(base.key_groups)
            if len(within):
                for entries in base.entries(within):
                    yield replace(entries, state_of=states[entries.state_of])

    @cached_property
    def _walking(self) -> tuple[KeyedLayout, ...]:
        """Return the layouts for changes, which have no lengths."""
        return self.head.walking()

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(state.name for state in self.header.states)

    @cached_property
    def _base_states(self) -> tuple[np.ndarray[tuple[int], np.dtype[np.int16]], ...]:
        """Return, for each materialized file, the ids of its states here, by its own ids."""
        return tuple(
            np.array([self._names.index(state.name) for state in base.header.states], np.int16)
            for base in self.bases
        )

    @cached_property
    def _log_states(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return the ids of the log's states here."""
        return np.array([self._names.index(state.name) for state in self.log.states], np.int64)


def head_with(
    bases: Sequence[HeadedFile], log: ChangeLog, key: SerializerEntry, flink: int
) -> FileHeader:
    """Return the header of a materialized snapshot together with a log.

    Args:
        bases: The files of the materialized snapshot.
        log: The log.
        key: The key serializer.
        flink: As in `FileHeader`.

    Raises:
        UnsupportedFormatError: A state has different types in the two.
    """
    states: dict[str, StateMetaInfo] = {}
    for state in (*(each for base in bases for each in base.header.states), *log.states):
        states.setdefault(state.name, state)
    budget = bases[0].head.budget if bases else None
    head = FileHeader(KeyedHeader(False, key, tuple(states.values())), budget, flink)
    expected = {state.name: state for state in head.states}
    for base in bases:
        for described in base.states:
            _check_alike(described, expected, base.name)
    for state in log.states:
        described = describe_state(state, head.layout(state))
        _check_alike(described, expected, "the log of changes")
    return head


def _check_alike(state: KeyedState, expected: dict[str, KeyedState], where: str) -> None:
    if state != expected[state.name]:
        raise UnsupportedFormatError(
            f"state {state.name!r} has another type than in what was materialized before",
            place=where,
            remedy="take a savepoint (flink savepoint), which writes all entries alike",
        )


def key_of_timers(log: ChangeLog) -> SerializerEntry | None:
    """Return the key serializer of a queue of timers in a log; None without such a queue."""
    for state in log.states:
        entry = state.serializers.get(VALUE_SERIALIZER)
        queue = state.kind is BackendStateType.PRIORITY_QUEUE
        if queue and entry is not None and isinstance(entry.snapshot, TimerSerializerSnapshot):
            return serializer_entry(entry.snapshot.nested[0])
    return None
