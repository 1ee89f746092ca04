"""Contradictions within `_metadata`, which can't be resolved.

=========================================  =====================================================
contradiction                              why Flink never writes it
=========================================  =====================================================
two operators of one id, or of one uid     a job graph refuses the second (`StreamGraphHasherV2`)
a parallelism above the max parallelism,   `OperatorState` and `KeyGroupRangeAssignment` refuse it
or that above 32768
key groups at or above the max             a backend has the range of its subtask
parallelism                                (`computeKeyGroupRangeForOperatorIndex`)
key groups in two subtasks' handles        the same: ranges of subtasks are disjoint
key groups of a finished subtask           a finished subtask has no state
some key groups of a subtask in no handle  the same: a handle has all of its backend's range, also
                                           where nothing is in it
a file twice in one RocksDB handle         it is a list of a directory
a queue of timers in managed and in raw    timers are on the heap or in the backend
keyed state of one subtask
=========================================  =====================================================

A subtask without any handle is no contradiction: it registered no state. The files of a handle may
contain more key groups than it claims, as they do after rescaling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from statelake.state_core.errors import CorruptSnapshotError, KeyGroupError, SnapshotError
from statelake.state_core.formats.metadata.checkpoint_metadata import OperatorMetadata
from statelake.state_core.model.handles import (
    ChangelogHandle,
    IncrementalHandle,
    KeyedHandle,
    KeyGroupRange,
)
from statelake.state_core.model.key_groups import check_parallelism, key_groups_of, subtask_of

METADATA, KEY_GROUPS = "metadata", "key groups"
REMEDY = "`_metadata` is damaged, or was not written by Flink: fetch it again"


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A contradiction within `_metadata`.

    Attributes:
        kind: Its subject: `metadata` or `key groups`.
        operator: The operator's label; empty where two operators contradict each other.
        subtask: The subtask of the handle, if it concerns one.
        key_groups: The key groups, if it concerns some.
        error: The error that describes it.
    """

    kind: str
    operator: str
    subtask: int | None
    key_groups: KeyGroupRange | None
    error: SnapshotError

    @property
    def place(self) -> str:
        """Return the operator, the subtask and the key groups, for messages."""
        parts = [f"operator {self.operator}"] if self.operator else []
        if self.subtask is not None:
            parts.append(f"subtask {self.subtask}")
        if self.key_groups is not None:
            many = "s" if len(self.key_groups) > 1 else ""
            parts.append(f"key group{many} {self.key_groups if many else self.key_groups.first}")
        return ", ".join(parts)


def label_of(state: OperatorMetadata, known: Mapping[str, str]) -> str:
    """Return an operator's name for messages: its uid, or otherwise its name or id.

    Args:
        state: The operator.
        known: Uids by operator id, for snapshots without uids.
    """
    return state.uid or known.get(state.operator_id, "") or state.name or state.operator_id


def find_contradictions(
    operators: Sequence[OperatorMetadata], known: Mapping[str, str]
) -> Iterator[Contradiction]:
    """Yield every contradiction within `_metadata` that shows in its handles.

    Args:
        operators: The operators in `_metadata`.
        known: Uids by operator id, for snapshots without uids.
    """
    yield from _operators_twice(operators, known)
    for state in operators:
        label = label_of(state, known)
        try:
            check_parallelism(state.max_parallelism, state.parallelism)
        except KeyGroupError as error:
            yield Contradiction(METADATA, label, None, None, _corrupt(error.problem))
            continue
        yield from _files_twice(state, label)
        for kind in ("managed_keyed", "raw_keyed"):
            claims = [
                (index, handle)
                for index, subtask in sorted((state.subtasks or {}).items())
                if (handle := getattr(subtask, kind)) is not None and len(handle.key_groups)
            ]
            yield from _claims(state, label, claims)


def find_timers_twice(managed: Iterable[str], raw: Iterable[str]) -> CorruptSnapshotError | None:
    """Return the error of a subtask with a queue of timers both in its backend and on the heap.

    Args:
        managed: The names of its backend's states.
        raw: The names of the queues in its raw keyed state.
    """
    twice = sorted(set(managed) & set(raw))
    if not twice:
        return None
    return CorruptSnapshotError(
        f"timers {twice[0]!r} in its managed keyed state and in its raw keyed state",
        remedy="let the job take a new savepoint, which holds them once",
    )


def _corrupt(problem: str) -> CorruptSnapshotError:
    return CorruptSnapshotError(problem, remedy=REMEDY)


def _operators_twice(
    operators: Sequence[OperatorMetadata], known: Mapping[str, str]
) -> Iterator[Contradiction]:
    for operator_id, count in Counter(operator.operator_id for operator in operators).items():
        if count > 1:
            problem = f"{count} operators of id {operator_id}"
            yield Contradiction(METADATA, "", None, None, _corrupt(problem))
    ids: dict[str, str] = {}
    for operator in operators:
        uid = operator.uid or known.get(operator.operator_id, "") or operator.operator_id
        other = ids.setdefault(uid, operator.operator_id)
        if other != operator.operator_id:
            problem = f"operators {other} and {operator.operator_id} are both of uid {uid!r}"
            yield Contradiction(METADATA, "", None, None, _corrupt(problem))


def _files_twice(state: OperatorMetadata, label: str) -> Iterator[Contradiction]:
    for index, subtask in sorted((state.subtasks or {}).items()):
        for handle in _rocksdb_handles(subtask.managed_keyed):
            names = Counter(name for name, _ in (*handle.shared, *handle.private))
            for name, count in names.items():
                if count > 1:
                    problem = f"the handle of its RocksDB has {count} files {name!r}"
                    yield Contradiction(METADATA, label, index, None, _corrupt(problem))


def _rocksdb_handles(handle: KeyedHandle | None) -> Iterator[IncrementalHandle]:
    if isinstance(handle, IncrementalHandle):
        yield handle
    elif isinstance(handle, ChangelogHandle):
        for inner in handle.materialized:
            yield from _rocksdb_handles(inner)


def _claims(
    state: OperatorMetadata, label: str, claims: list[tuple[int, KeyedHandle]]
) -> Iterator[Contradiction]:
    """Yield the contradictions between the key groups that an operator's handles claim."""
    within = KeyGroupRange(0, state.max_parallelism - 1)
    claimed = np.zeros(state.max_parallelism, np.bool_)
    for index, handle in claims:
        groups = handle.key_groups
        claimed[groups.first : groups.last + 1] = True
        if groups.last > within.last:
            problem = f"key groups {groups} claimed, and there are {state.max_parallelism}"
            yield Contradiction(KEY_GROUPS, label, index, None, _corrupt(problem))
    last, holder = -1, -1
    for index, handle in sorted(claims, key=lambda claim: claim[1].key_groups.first):
        groups = handle.key_groups.intersection(within)
        both = KeyGroupRange(groups.first, min(groups.last, last))
        if len(both):
            problem = f"in the handle of subtask {holder} too"
            yield Contradiction(KEY_GROUPS, label, index, both, _corrupt(problem))
        if groups.last > last:
            last, holder = groups.last, index
    for index, subtask in sorted((state.subtasks or {}).items()):
        own = key_groups_of(index, state.max_parallelism, state.parallelism)
        if subtask.finished and claimed[own.first : own.last + 1].any():
            problem = "in the handle of another subtask, and their own had finished"
            yield Contradiction(KEY_GROUPS, label, index, own, _corrupt(problem))
    for index, handle in claims:
        groups = handle.key_groups
        owner = subtask_of(groups.first, state.max_parallelism, state.parallelism)
        if groups == key_groups_of(owner, state.max_parallelism, state.parallelism):
            continue  # raw state is complete in any subtask
        own = key_groups_of(index, state.max_parallelism, state.parallelism)
        for first, end in _runs(~claimed[own.first : own.last + 1]):
            missing = KeyGroupRange(own.first + first, own.first + end - 1)
            problem = f"in no handle: the subtask's holds {groups.intersection(within)}"
            yield Contradiction(KEY_GROUPS, label, index, missing, _corrupt(problem))


def _runs(flags: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the start and end of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return [(first, end) for first, end in edges.reshape(-1, 2).tolist()]
