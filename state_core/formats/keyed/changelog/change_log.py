"""The log of one subtask: its change sets, in files or inlined, and their metadata of states.

::

    change      u8 operation, i16 state id, operands                             (`change_replay`)
    metadata    u8 8 (9 in old logs), i32 version, state meta info; of key-value state its TTL and
                its default value; i16 state id, u8 kind: before the first change of the state

Inlined changes are a list of key groups and changes, which become one change set here.

Source: `AbstractStateChangeLogger` and `ChangelogBackendLogApplier` in
`org.apache.flink.state.changelog`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from threading import Lock

import numpy as np

from statelake.state_core.bounds import Budget
from statelake.state_core.errors import (
    CorruptSnapshotError,
    StateError,
    UnknownSerializerError,
    UnsupportedFormatError,
)
from statelake.state_core.files.copies import Copies
from statelake.state_core.files.filesystem import InlineSource
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.keyed.changelog.change_files import ChangeFile
from statelake.state_core.formats.keyed.changelog.change_tables import SAVEPOINT
from statelake.state_core.formats.layout.meta_info import (
    BackendStateType,
    StateMetaInfo,
    read_state_meta_info,
)
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.kernels.changes import locate_changes
from statelake.state_core.model.handles import (
    ChangelogByteHandle,
    ChangelogFileHandle,
    KeyedHandle,
    KeyGroupRange,
)
from statelake.state_core.serializers.framework.columns import I64Array, U8Array
from statelake.state_core.serializers.opaque.unknown_classes import read_whole

METADATA = (8, 9)  # since Flink has no REMOVE_FIRST_ELEMENT, and before
META_VERSIONS = (6, 7)
HEAD = 3  # of a change: u8 operation, i16 state id
TAIL = 3  # of a metadata change: i16 state id, u8 kind
NO_TTL_NO_DEFAULT = b"\0\0"


@dataclass(frozen=True)
class _ChangeSet:
    """One change set of a subtask's log, with the states by their ids at that point."""

    file: ChangeFile
    at: int
    states: dict[int, int]


@dataclass(frozen=True)
class GroupChanges:
    """All changes of one key group, in their order.

    Attributes:
        data: The buffer of the positions.
        states: The state of each change, as an index into the log's states.
        starts: The start of each change.
        ends: The end of each change.
        place: Returns the name of a position in `data`.
    """

    data: U8Array
    states: I64Array
    starts: I64Array
    ends: I64Array
    pieces: list[tuple[int, int, ChangeFile]] = field(repr=False)

    @cached_property
    def content(self) -> bytes:
        """Return the bytes as Python's `bytes`."""
        return self.data.tobytes()

    def place(self, position: int) -> str:
        """Return the name of a position in `data`: the file and the offset there."""
        begins = [begin for begin, _, _ in self.pieces]
        begin, at, file = self.pieces[max(0, int(np.searchsorted(begins, position, "right")) - 1)]
        return file.place(at + position - begin)


@dataclass(frozen=True)
class ChangeLog:
    """The changes of one subtask since the materialized snapshot.

    Attributes:
        sets: Its change sets, in order.
        states: Every state that its metadata describes, again if the description changes.
        key_groups: The key groups of the subtask; changes of others belong to other subtasks.
    """

    sets: tuple[_ChangeSet, ...]
    states: tuple[StateMetaInfo, ...]
    key_groups: KeyGroupRange
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    @property
    def _table(self) -> I64Array:
        """Return key group, set, start, end and count of each run: by key group, then in order."""
        with self._lock:  # several threads read key groups, but bytes are counted once
            return self._made_table

    @cached_property
    def _made_table(self) -> I64Array:
        tables = [np.empty((5, 0), np.int64)]
        for index, change_set in enumerate(self.sets):
            runs = change_set.file.runs(change_set.at)
            first = int(np.searchsorted(runs.groups, self.key_groups.first))
            behind = int(np.searchsorted(runs.groups, self.key_groups.last, "right"))
            own = slice(first, behind)
            starts, ends = runs.starts[own], runs.ends[own]
            change_set.file.count_bytes_read(int((ends - starts).sum()))
            owner = np.full(behind - first, index, np.int64)
            tables.append(np.stack([runs.groups[own], owner, starts, ends, runs.counts[own]]))
        table = np.concatenate(tables, axis=1)
        return table[:, np.argsort(table[0], kind="stable")]

    def group_bytes(self) -> dict[int, int]:
        """Return the key groups with changes, ascending, with the bytes of the changes."""
        groups, first = np.unique(self._table[0], return_index=True)
        sizes = self._table[3] - self._table[2]
        sums = np.add.reduceat(sizes, first) if len(first) else sizes
        return dict(zip(groups.tolist(), sums.tolist(), strict=True))

    def of_group(self, group: int) -> GroupChanges:
        """Return all changes of one key group.

        Raises:
            CorruptSnapshotError: Changes do not fit in their file, or are of a state that no
                metadata described.
        """
        table = self._table
        first = int(np.searchsorted(table[0], group))
        behind = int(np.searchsorted(table[0], group, "right"))
        runs = table[:, first:behind]
        bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(runs[3] - runs[2])))
        rows = np.concatenate((np.zeros(1, np.int64), np.cumsum(runs[4])))
        data = np.empty(int(bounds[-1]), np.uint8)
        starts, ends = np.empty(int(rows[-1]), np.int64), np.empty(int(rows[-1]), np.int64)
        states = np.empty(int(rows[-1]), np.int64)
        pieces = []
        for index, (_, owner, at, _, _) in enumerate(runs.T.tolist()):
            change_set, begin, end = self.sets[owner], int(bounds[index]), int(bounds[index + 1])
            piece, file = data[:end], change_set.file
            file.content.read_into(at, piece[begin:])
            pieces.append((begin, at, file))
            own_rows = slice(int(rows[index]), int(rows[index + 1]))
            first_bytes, last_bytes = starts[own_rows], ends[own_rows]
            if locate_changes(piece, begin, first_bytes, last_bytes) != end:
                raise file.fault(f"changes of key group {group} that do not fit", at)
            states[own_rows] = _states_of(change_set, data, first_bytes, last_bytes, at - begin)
        return GroupChanges(data, states, starts, ends, pieces)


def _states_of(
    change_set: _ChangeSet, data: U8Array, starts: I64Array, ends: I64Array, shift: int
) -> I64Array:
    """Return the state of each change."""
    short = np.flatnonzero(ends - starts < HEAD)
    if short.size:
        at = int(starts[short[0]]) + shift
        raise change_set.file.fault("a change that is too short for a state id", at)
    ids = data[starts + 1].astype(np.int64) << 8 | data[starts + 2]
    state_of = np.full(1 << 16, -1, np.int64)
    for state_id, state in change_set.states.items():
        state_of[state_id] = state
    states: I64Array = state_of[ids]
    wrong = np.flatnonzero(states < 0)
    if wrong.size:
        at, wrong_id = int(starts[wrong[0]]) + shift, int(ids[wrong[0]])
        raise change_set.file.fault(f"a change of state id {wrong_id}, never described", at)
    return states


# --------------------------------------------------------------------------- from handles to a log


def read_log(
    handles: Sequence[KeyedHandle | None], files: StateFiles, key_groups: KeyGroupRange
) -> ChangeLog:
    """Open the log of one subtask: its metadata of states is read, its changes are not.

    Args:
        handles: The handles of changes, in order.
        files: The files of the snapshot.
        key_groups: The subtask's key groups.

    Raises:
        SnapshotError: The log can't be read.
    """
    reader = _LogReader(files.heads.budget)
    for handle in handles:
        if handle is None:
            continue
        for file, at in _places(handle, files):
            reader.add(file, at)
    return ChangeLog(tuple(reader.sets), tuple(reader.states), key_groups)


def _places(handle: KeyedHandle, files: StateFiles) -> Iterator[tuple[ChangeFile, int]]:
    """Yield the change sets of one handle."""
    if isinstance(handle, ChangelogFileHandle):
        for offset, stream in handle.streams:
            if stream is not None:
                yield files.opened_log(stream, ChangeFile), offset
    elif isinstance(handle, ChangelogByteHandle):
        if handle.changes:
            source = _inlined(handle, f"{files.metadata_path}, inlined changes")
            yield ChangeFile(source, Copies()), 0  # inlined and not compressed: no copy is made
    else:
        raise CorruptSnapshotError(
            f"a {type(handle).__name__} among the changes of a changelog",
            place=files.metadata_path,
            remedy="`_metadata` is damaged, or was not written by Flink: fetch it again",
        )


def _inlined(handle: ChangelogByteHandle, name: str) -> InlineSource:
    """Return the changes in a handle as a file of one change set."""
    by_group: dict[int, list[bytes]] = {}
    for group, change in handle.changes:
        by_group.setdefault(group, []).append(change)
    out = DataOutput()
    out.write_byte(0)
    out.write_int(len(by_group))
    for group in sorted(by_group):
        out.write_int(len(by_group[group]))
        out.write_int(group)
        for change in by_group[group]:
            out.write_int(len(change))
            out.write_bytes(change)
    return InlineSource(name, out.to_bytes())


class _LogReader:
    """A reader that collects the change sets of one subtask, and their metadata of states."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.sets: list[_ChangeSet] = []
        self.states: list[StateMetaInfo] = []
        self._by_id: dict[int, int] = {}
        self._by_digest: dict[bytes, int] = {}
        self._seen: set[tuple[int, int]] = set()

    def add(self, file: ChangeFile, at: int) -> None:
        """Add the next change set."""
        if (id(file), at) in self._seen:
            raise UnsupportedFormatError(  # Flink applies its changes twice
                "a change set for the second time in one subtask's log, as after restores at a"
                " higher and then at a lower parallelism, with nothing materialized between",
                place=file.place(at),
                remedy=SAVEPOINT,
            )
        self._seen.add((id(file), at))
        described = file.metadata(at)
        if described:
            self._by_id = dict(self._by_id)
        for position, change in described:
            self._describe(file, position, change)
        self.sets.append(_ChangeSet(file, at, self._by_id))

    def _describe(self, file: ChangeFile, position: int, change: bytes) -> None:
        if len(change) < 1 + 4 + TAIL or change[0] not in METADATA:
            raise file.fault("a change with key group -1 that is not a state's metadata", position)
        version = int.from_bytes(change[1:5], "big")
        if version not in META_VERSIONS:
            raise file.fault(f"state meta info of version {version}", position + 1)
        state_id, kind = int.from_bytes(change[-TAIL:-1], "big"), change[-1]
        body = change[5:-TAIL]
        digest = sha256(body).digest()
        if digest not in self._by_digest:
            state = self._parse(body, kind, file.place(position + 5))
            if state.kind.value != kind:
                raise file.fault(f"a {state.kind.name} state as one of kind {kind}", position)
            self._by_digest[digest] = len(self.states)
            self.states.append(state)
        self._by_id[state_id] = self._by_digest[digest]

    def _parse(self, body: bytes, kind: int, place: str) -> StateMetaInfo:
        """Return the meta info at the beginning of a metadata change."""
        queue = kind == BackendStateType.PRIORITY_QUEUE.value
        source = DataInput(body, place, budget=self.budget)
        try:
            state = read_state_meta_info(source)
        except UnknownSerializerError:
            # the end of an unknown class's payload is known only if all that follows is known
            rest = b"" if queue else NO_TTL_NO_DEFAULT
            if not body.endswith(rest):
                raise
            head = DataInput(body[: len(body) - len(rest)], place, budget=self.budget)
            return read_whole(head, read_state_meta_info)
        except StateError as error:
            raise error.within("metadata in a log of changes") from error
        if queue and source.remaining:
            raise source.fault(f"{source.remaining} bytes behind the meta info of a queue")
        return state
