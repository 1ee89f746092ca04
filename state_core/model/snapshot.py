"""The neutral model of a snapshot: operators, their keyed states, and entries of state.

Formats fill it, everything else reads it; neither depends on the other. A `KeyedState` returns its
content as Arrow, whatever backend wrote it and however many files it has.

Operator state has no keys: a list state belongs to subtasks, element by element. A broadcast state
is one map, with a copy in every subtask: it is shown once, and `disagreeing` returns the subtasks
whose copy differs.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from statelake.state_core.errors import (
    EncodeError,
    NotFoundError,
    OversizedError,
    StateError,
    UnwalkableError,
    did_you_mean,
)
from statelake.state_core.files.file_sources import Workers
from statelake.state_core.model.entries import (
    SLICE_BYTES,
    FileOfFamilies,
    KeyedFile,
    entries_of_state,
    plan_slices,
)
from statelake.state_core.model.handles import (
    DistributionMode,
    KeyedHandle,
    KeyGroupRange,
    KeyGroups,
    OperatorHandle,
    handle_files,
    handle_text,
    ranges_of,
)
from statelake.state_core.model.key_groups import SearchKey
from statelake.state_core.printable import LONGEST, JsonFields, Table, brief, kind_text

TIMER_PREFIX = "_timer_state/"
_State = TypeVar("_State", bound="KeyedState | OperatorState")


class StateKind(Enum):
    """The kind of a keyed state; timers are a kind of their own."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    TIMERS = "timers"


@dataclass(frozen=True)
class RowNames(JsonFields):
    """Facts that no snapshot has of a state: the names of its rows' fields, and its texts' content.

    Attributes:
        key: The names that a compiled plan of Flink SQL gives to the fields of the key; empty
            without names, as in all of these.
        user_key: Those of a map's key.
        value: Those of the row that the value is, or holds.
        content: What the value's text or bytes hold, as a saying of `serializers.contents`.
        alias: What the plan calls the state, if Flink only counts it: `distinct_item` is
            `distinctAcc_0`.
    """

    JSON = ("key?", "user_key?", "value?", "content?", "alias?")

    key: tuple[str, ...] = ()
    user_key: tuple[str, ...] = ()
    value: tuple[str, ...] = ()
    content: str = ""
    alias: str = ""


NO_NAMES = RowNames()


@dataclass(frozen=True)
class RowTypes:
    """The Java types of a state, in which the fields of Flink SQL's rows have names.

    Attributes:
        key: The key's.
        user_key: That of a map's key; empty for other states.
        value: The value's; empty for timers.
    """

    key: str
    user_key: str = ""
    value: str = ""


@dataclass(frozen=True, repr=False)
class KeyedState:
    """One registered keyed state of one operator.

    Attributes:
        name: Its name, or for timers the name of their queue.
        kind: Its kind.
        schema: Its decoded columns.
        key_type: The Java type of the keys.
        namespace_type: The Java type of the namespaces.
        value_type: The Java type of the values, a list's elements or a map's values; empty for
            timers.
        user_key_type: The Java type of a map's keys; empty for other states.
        with_ttl: Whether each value has the time of its last access.
        meta_info: Its meta info, as Flink wrote it.
        names: The names of the fields of its rows, from a plan of Flink SQL.
        files: The files that contain it, each with its id there.
        layout: The layout of its rows: a `KeyedLayout` of the formats.
    """

    name: str
    kind: StateKind
    schema: pa.Schema
    key_type: str
    namespace_type: str
    value_type: str = ""
    user_key_type: str = ""
    with_ttl: bool = False
    meta_info: bytes = field(default=b"", compare=False, repr=False)
    names: RowNames = NO_NAMES
    files: tuple[tuple[KeyedFile, int], ...] = field(default=(), compare=False, repr=False)
    layout: Any = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        types = types_text(self.key_type, self.user_key_type, self.value_type)
        return f"<KeyedState {brief(self.name, LONGEST)}: {self.kind.value}, {types}>"

    def _repr_html_(self) -> str:
        return schema_table(repr(self), self.schema).to_html()

    @property
    def labels(self) -> tuple[str, ...]:
        """Return its names: its own, and its alias in a plan of Flink SQL, if it has one."""
        return tuple(filter(None, (self.name, self.names.alias)))

    @property
    def timer_service(self) -> tuple[str, str]:
        """The domain of timers (`event` or `processing`), and the name of their service."""
        domain, _, service = self.name.removeprefix(TIMER_PREFIX).partition("_")
        return (domain, service) if service else ("", self.name)

    def batches(
        self, key_groups: KeyGroups | None = None, *, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the content a window at a time, in bounded memory; arguments as for `to_arrow`."""
        ranges = [None] if key_groups is None else ranges_of(key_groups)
        lost: UnwalkableError | None = None
        for file, state in self.files:
            for key_group_range in ranges:
                try:
                    yield from _batches(file, state, key_group_range, columns)
                except UnwalkableError as error:  # noqa: PERF203 - behind what is found in a file
                    lost = lost or error
        if lost is not None:
            raise lost

    def to_batch_reader(
        self, *, columns: Sequence[str] | None = None, key_groups: KeyGroups | None = None
    ) -> pa.RecordBatchReader:
        """Return the content as a stream of record batches, in bounded memory.

        Args:
            columns: The columns to read, in this order; all by default.
            key_groups: The key groups to read; all by default.

        Raises:
            NotFoundError: There is no such column.
        """
        schema = columns_of(self.schema, columns)
        batches = self.batches(key_groups, columns=columns)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def get(self, key: object) -> pa.Table:
        """Return the content for one key: a row for each namespace, user key or timer.

        Only the key's own key group is read, if the Java hash of the key can be derived; of
        RocksDB's files only the blocks in which the key can be.

        Args:
            key: The key as in `to_arrow().column("key").to_pylist()`, or an Arrow scalar.

        Returns:
            The columns of `to_arrow`; empty if the state has nothing for the key.

        Raises:
            EncodeError: The key is not of the state's key type.
            CorruptSnapshotError: The bytes don't match the header.
        """
        encoded = self.files[0][0].encode_key(key) if self.files else None
        batches = [
            file.decode(state, entries)
            for file, state in self.files
            if encoded is not None
            for entries in file.entries_of_key(encoded, (state,))
        ]
        return pa.Table.from_batches(batches, self.schema)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the content to other libraries, by Arrow's PyCapsule interface."""
        return self.to_batch_reader().__arrow_c_stream__(requested_schema)

    def to_pandas(
        self, key_groups: KeyGroups | None = None, *, columns: Sequence[str] | None = None
    ) -> Any:
        """Return the content as a data frame of pandas; arguments and errors as for `to_arrow`."""
        return self.to_arrow(key_groups, columns=columns).to_pandas()

    def to_arrow(
        self,
        key_groups: KeyGroups | None = None,
        *,
        columns: Sequence[str] | None = None,
        threads: int | None = None,
    ) -> pa.Table:
        """Return the content as one table, decoded by several threads.

        Args:
            key_groups: The key groups: one, a range, or any number of them; all by default.
            columns: The columns, in this order; all by default. Keys or values without a selected
                column are not decoded.
            threads: The number of threads; by default that of the cores.

        Raises:
            NotFoundError: There is no such column.
            CorruptSnapshotError: The bytes don't match the header.
        """
        schema = columns_of(self.schema, columns)
        workers = threads or os.cpu_count() or 1
        jobs = []
        for file, state in self.files:
            size = sum(count for _, count in file.group_bytes())
            share = max(1 << 20, min(SLICE_BYTES, -(-size // (2 * workers))))
            jobs += [(file, state, piece.key_groups) for piece in plan_slices([file], share)]
        if key_groups is not None:
            ranges = ranges_of(key_groups)
            jobs = [
                (file, state, groups)
                for file, state, own in jobs
                for key_group_range in ranges
                if len(groups := own.intersection(key_group_range))
            ]

        def decode(job: tuple[KeyedFile, int, KeyGroupRange]) -> list[pa.RecordBatch]:
            return list(_batches(*job, columns))

        if workers == 1 or len(jobs) < 2:
            decoded = [decode(job) for job in jobs]
        else:
            with Workers(workers) as pool:
                decoded = list(pool.map(decode, jobs))
        return pa.Table.from_batches([batch for batches in decoded for batch in batches], schema)


def _batches(
    file: KeyedFile,
    state: int,
    key_groups: KeyGroupRange | None,
    columns: Sequence[str] | None,
) -> Iterator[pa.RecordBatch]:
    for mine in entries_of_state(file, state, key_groups):
        if len(mine):
            yield file.decode(state, mine, columns)


class OperatorStatePart(Protocol):
    """One subtask's part of an operator state, in any format."""

    @property
    def subtask(self) -> int:
        """The index of the subtask."""

    @property
    def elements(self) -> int:
        """The number of elements of a list; 1 for a broadcast state."""

    @property
    def size(self) -> int:
        """The stored size of its file in bytes."""

    def decode(self) -> pa.RecordBatch:
        """Return the elements or entries as typed columns."""

    def encoded(self) -> list[bytes]:
        """Return the bytes of each element; a broadcast state is one element."""

    def measure(self) -> tuple[int, int]:
        """Return the elements of a list, or the entries of a broadcast state, and their bytes."""

    def contents(self) -> frozenset[tuple[bytes, bytes]]:
        """Return the entries of a broadcast state as bytes, unordered."""


@dataclass(frozen=True, repr=False)
class OperatorState:
    """One registered operator state.

    Attributes:
        name: Its name.
        mode: Its redistribution when the job runs at another parallelism.
        schema: Its decoded columns: `subtask, position, value` of a list, `key, value` of a
            broadcast state, and the exact bytes of values that a column can't hold.
        value_type: The Java type of the elements, or of a broadcast state's values.
        key_type: The Java type of a broadcast state's keys; empty for lists.
        meta_info: Its meta info, as Flink wrote it.
        parts: Its parts, by subtask.
        layout: The layout of its rows: an `OperatorLayout` of the formats.
    """

    name: str
    mode: DistributionMode
    schema: pa.Schema
    value_type: str
    key_type: str = ""
    meta_info: bytes = field(default=b"", compare=False, repr=False)
    parts: tuple[OperatorStatePart, ...] = field(default=(), compare=False, repr=False)
    layout: Any = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        types = types_text(self.key_type, self.value_type)
        return f"<OperatorState {brief(self.name, LONGEST)}: {self.mode.name}, {types}>"

    def _repr_html_(self) -> str:
        return schema_table(repr(self), self.schema).to_html()

    @property
    def labels(self) -> tuple[str, ...]:
        """Return its names: only its own."""
        return (self.name,)

    @property
    def broadcast(self) -> bool:
        """Return whether it is a broadcast state."""
        return self.mode is DistributionMode.BROADCAST

    @property
    def elements(self) -> int:
        """The number of elements of all subtasks, or of copies of a broadcast state."""
        return sum(part.elements for part in self.parts)

    @property
    def state_bytes(self) -> int:
        """The bytes of all elements, or of all copies of a broadcast state."""
        return sum(len(element) for part in self.parts for element in part.encoded())

    def batches(self, *, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the content, a subtask at a time; of a broadcast state, one copy.

        Raises:
            CorruptSnapshotError: The bytes are not what the header describes.
        """
        for part in self.parts[:1] if self.broadcast else self.parts:
            batch = part.decode()
            yield batch if columns is None else batch.select(list(columns))

    def to_batch_reader(self, *, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """Return the content as a stream of record batches, one per subtask.

        Args:
            columns: The columns to read, in this order; all by default.

        Raises:
            NotFoundError: There is no such column.
        """
        schema = columns_of(self.schema, columns)
        return pa.RecordBatchReader.from_batches(schema, self.batches(columns=columns))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the content to other libraries, by Arrow's PyCapsule interface."""
        return self.to_batch_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self, *, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the content as one table; arguments and errors as for `to_batch_reader`."""
        return self.to_batch_reader(columns=columns).read_all()

    def to_pandas(self, *, columns: Sequence[str] | None = None) -> Any:
        """The content as a data frame of pandas; arguments and errors as for `to_batch_reader`."""
        return self.to_arrow(columns=columns).to_pandas()

    def disagreeing(self) -> list[int]:
        """Return the subtasks whose copy of a broadcast state differs from the first one."""
        if not self.broadcast or len(self.parts) < 2:
            return []
        first = self.parts[0].contents()
        return [part.subtask for part in self.parts[1:] if part.contents() != first]


@dataclass(frozen=True)
class Unread:
    """State of one subtask that can't be read, of a snapshot that is opened as far as it can be.

    Attributes:
        operator: The operator's label.
        subtask: The index of the subtask.
        what: `keyed state`, `raw keyed state` or `operator state`.
        states: Its states with the number of their elements and their modes, as far as `_metadata`
            tells: those of operator state.
        handle: The kind of its handle.
        files: Its files by the names that the handle has for them, with their bytes.
        error: Why it can't be read.
        complete: Whether nothing of it can be; else some of its states may be whole.
    """

    operator: str
    subtask: int
    what: str
    states: Mapping[str, tuple[DistributionMode, int]]
    handle: str
    files: Mapping[str, int]
    error: StateError
    complete: bool = True

    @classmethod
    def of(
        cls,
        operator: str,
        subtask: int,
        what: str,
        handle: KeyedHandle | OperatorHandle,
        error: StateError,
        *,
        complete: bool = True,
    ) -> Unread:
        """Return what is not read of a handle."""
        states = {}
        if isinstance(handle, OperatorHandle):
            states = {name: (each.mode, len(each.offsets)) for name, each in handle.states.items()}
        files = handle_files(handle)
        return cls(operator, subtask, what, states, handle_text(handle), files, error, complete)

    @property
    def is_keyed(self) -> bool:
        """Return whether it is state by keys, timers included."""
        return self.what.endswith("keyed state")

    def may_hold(self, state: str | None, operator: Operator) -> bool:
        """Return whether it may have a part of a state, or of any."""
        if state is None or state in self.states:
            return True
        known = (each.name for each in operator.operator_states)
        return self.is_keyed and (self.complete and state not in known)

    def hides_types(self, operator: Operator) -> bool:
        """Return whether it may have states whose types no other subtask tells."""
        known = {state.name for state in operator.operator_states}
        return self.complete and (self.is_keyed or not {*self.states} <= known)

    @property
    def problem(self) -> str:
        """Return the unreadable part and the reason, as a sentence that names its states."""
        names = ", ".join(map(repr, self.states))
        place = f"operator {self.operator}, subtask {self.subtask}, {self.what} {names}".rstrip()
        return str(self.error.within(place))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "subtask": self.subtask,
            "what": self.what,
            "states": list(self.states),
            "handle": self.handle,
            "files": [{"name": name, "bytes": size} for name, size in self.files.items()],
            "whole": self.complete,
            "problem": str(self.error),
        }


@dataclass(frozen=True, repr=False)
class Operator:
    """One operator of the job.

    Attributes:
        operator_id: The operator id: 32 hex digits.
        uid: The uid that the job set; empty if it is not known (before Flink 2.0, or never set).
        name: The name that the job set; empty if it is not known.
        parallelism: The number of subtasks.
        max_parallelism: The number of key groups.
        keyed_files: The files of its keyed state.
        keyed_states: Its keyed states, timers included, by name.
        operator_states: Its operator (non-keyed) states: lists, then broadcast states.
        operator_state_version: The version of the operator state files; 0 without such files.
        operator_state_compressed: Whether the operator state files are compressed.
        subtask_states: The number of subtasks with state.
        coordinator_bytes: The size of its coordinator's state.
        raw_bytes: The size of raw state, keyed or not, which only the job can read.
        in_flight_bytes: The size of in-flight buffers of an unaligned checkpoint.
        total_bytes: The size of all its state, as stored.
        finished: Whether all its subtasks had finished.
        node: What the plan of Flink SQL calls it, `GroupAggregate[5]`; empty without a plan.
        query: Flink's description of it in that plan.
        unread: Its state that can't be read, if the snapshot was opened as far as it can be.
    """

    operator_id: str
    uid: str
    name: str
    parallelism: int
    max_parallelism: int
    keyed_files: tuple[KeyedFile, ...] = ()
    keyed_states: tuple[KeyedState, ...] = ()
    operator_states: tuple[OperatorState, ...] = ()
    operator_state_version: int = 0
    operator_state_compressed: bool = False
    subtask_states: int = 0
    coordinator_bytes: int = 0
    raw_bytes: int = 0
    in_flight_bytes: int = 0
    total_bytes: int = 0
    finished: bool = False
    node: str = ""
    query: str = ""
    unread: tuple[Unread, ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        return (
            f"<Operator {brief(self.label, LONGEST)}: parallelism {self.parallelism},"
            f" {self.max_parallelism} key groups, {len(self.keyed_states)} keyed and"
            f" {len(self.operator_states)} operator states, {self.total_bytes:,} bytes>"
        )

    def problems_among(self, lost: Mapping[str, StateError]) -> list[str]:
        """Return errors of its states, by their names, as sentences that name it and the state."""
        return [
            str(error.within(f"operator {self.label}, state {name!r}"))
            for name, error in lost.items()
        ]

    @property
    def label(self) -> str:
        """Its name in tables and messages: its uid, or otherwise its id."""
        return self.uid or self.operator_id

    @property
    def key_serializer(self) -> bytes:
        """The snapshot of its key serializer, as Flink wrote it; empty without keyed state."""
        return self.keyed_files[0].key_serializer if self.keyed_files else b""

    def state(self, name: str) -> KeyedState:
        """Return the keyed state of that name.

        Raises:
            NotFoundError: There is no such state.
        """
        return self._named(self.keyed_states, name, "keyed ")

    def operator_state(self, name: str) -> OperatorState:
        """Return the operator state of that name.

        Raises:
            NotFoundError: There is no such state.
        """
        return self._named(self.operator_states, name, "operator ")

    def __getitem__(self, name: str) -> KeyedState | OperatorState:
        """Return the state of that name; a keyed state goes before an operator state.

        Raises:
            NotFoundError: There is none.
        """
        states: list[KeyedState | OperatorState] = [*self.keyed_states, *self.operator_states]
        return self._named(states, name, "")

    def _named(self, states: Sequence[_State], name: str, kind: str) -> _State:
        for state in states:
            if name in state.labels:
                return state
        names = [label for state in states for label in state.labels]
        raise NotFoundError(
            f"operator {self.label} has no {kind}state {name!r}",
            remedy=f"it has: {', '.join(map(repr, names)) or 'none'}{did_you_mean(name, names)}",
        )

    @property
    def timers(self) -> tuple[KeyedState, ...]:
        """Its timer queues."""
        return tuple(
            keyed_state for keyed_state in self.keyed_states if keyed_state.kind is StateKind.TIMERS
        )

    def rows_of_key(
        self, key: SearchKey, state: str | None = None
    ) -> Iterator[tuple[KeyedState, pa.RecordBatch | pa.Table]]:
        """Yield the rows of a key; each file is read once.

        An error of unreadable state is raised after all other rows.

        Args:
            key: The key.
            state: Only of the state of that name.
        """
        states = {keyed.name: keyed for keyed in self.keyed_states}
        lost: StateError | None = None
        for file in self.keyed_files:
            indexes = [
                index for index, keyed in enumerate(file.states) if state in (None, *keyed.labels)
            ]
            apart = (
                [[index] for index in indexes] if isinstance(file, FileOfFamilies) else [indexes]
            )
            for together in apart:
                batches = file.entries_of_key(key.encoded, together)
                while True:
                    at = together[0] if len(together) == 1 else None  # the state being read
                    try:
                        entries = next(batches)
                        at = int(entries.state_of[0])
                        rows = file.decode(at, entries)
                    except StopIteration:
                        break
                    except OversizedError:
                        raise
                    except StateError as error:
                        # other entries are still read; an error of the file ends its batches
                        name = "" if at is None else f", state {file.states[at].name!r}"
                        lost = lost or error.within(f"operator {self.label}{name}")
                        continue
                    yield states[file.states[at].name], rows
        if lost is not None:
            raise lost


@dataclass(frozen=True, repr=False)
class Snapshot:
    """The contents of an open savepoint or checkpoint; `formats.reader.Snapshot` adds methods.

    Attributes:
        location: The path or URI of its directory.
        metadata_version: The version of `_metadata`.
        checkpoint_id: The number that the job gave it.
        kind: `savepoint` or `checkpoint`; empty before version 4 of `_metadata`.
        format: `canonical`, `native` or `checkpoint`.
        operators: The operators in the order of the file.
        metadata: The parsed `_metadata`, as the format's reader returned it.
        files: The files of its handles.
        partial: Whether it was opened as far as it can be, and is read so.
    """

    location: str
    metadata_version: int
    checkpoint_id: int
    kind: str
    format: str
    operators: tuple[Operator, ...]
    metadata: Any = field(default=None, repr=False, compare=False)
    files: Any = field(default=None, repr=False, compare=False)
    partial: bool = field(default=False, compare=False)

    def __repr__(self) -> str:
        kind = kind_text(self.format, self.kind) or "snapshot"
        return (
            f"<Snapshot {brief(self.location, LONGEST)}: {kind}, checkpoint"
            f" {self.checkpoint_id}, {len(self.operators)} operators, {self.total_bytes:,} bytes>"
        )

    @property
    def total_bytes(self) -> int:
        """The bytes of all its state, as stored."""
        return sum(operator.total_bytes for operator in self.operators)

    @property
    def unread(self) -> tuple[Unread, ...]:
        """Return its unreadable parts, if it was opened with `partial`."""
        return tuple(each for operator in self.operators for each in operator.unread)

    def problems_of(
        self, operator: str | None = None, state: str | None = None, *, keyed: bool = False
    ) -> list[str]:
        """Return what could not be opened of it, and why; empty if it was opened in full.

        Args:
            operator: Only of this operator: its uid, name or id.
            state: Only what may have a part of the state of that name.
            keyed: Only keyed state.

        Raises:
            NotFoundError: There is no such operator.
        """
        operators = self.operators if operator is None else (self.operator(operator),)
        return [
            each.problem
            for owner in operators
            for each in owner.unread
            if each.may_hold(state, owner) and (each.is_keyed or not keyed)
        ]

    @property
    def compression(self) -> str:
        """Name of the compression of keyed or operator state: `snappy` or `none`."""
        files = [file for operator in self.operators for file in operator.keyed_files]
        compressed = [file.compressed for file in files]
        compressed += [operator.operator_state_compressed for operator in self.operators]
        return "snappy" if any(compressed) else "none"

    def operator(self, wanted: str) -> Operator:
        """Return the operator of that uid, name or id; an id may be shortened.

        With a plan of Flink SQL also of a node: `GroupAggregate[5]`.

        Raises:
            NotFoundError: No operator matches, or more than one.
        """
        for key in ("uid", "name", "operator_id", "node"):
            matches = [operator for operator in self.operators if getattr(operator, key) == wanted]
            if len(matches) == 1:
                return matches[0]
        matches = [
            operator for operator in self.operators if operator.operator_id.startswith(wanted)
        ]
        if len(matches) == 1 and len(wanted) >= 4:
            return matches[0]
        labels = [operator.label for operator in self.operators]
        others = [name for each in self.operators for name in (each.name, each.node)]
        meant = did_you_mean(wanted, [*labels, *others])
        raise NotFoundError(
            f"no operator {wanted!r} in {self.location}",
            remedy=f"it has: {', '.join(labels) or 'none'}{meant}",
        )

    def __getitem__(self, wanted: str) -> Operator:
        """Return the operator of that uid, name or id, as `operator` does."""
        return self.operator(wanted)

    @property
    def taken_at(self) -> datetime:
        """When it was taken: the time of its file `_metadata`."""
        name = self.files.metadata_path.rpartition("/")[2]
        return datetime.fromtimestamp(self.files.directory.modified(name), timezone.utc)

    def keyed_operators(self, operator: str | None, state: str | None) -> tuple[Operator, ...]:
        """Return the operators with keyed state, or only the selected ones.

        Args:
            operator: Only this operator: its uid, name or id.
            state: Only operators with a keyed state of that name.

        Raises:
            NotFoundError: There is no such operator or state, or no keyed state at all.
        """
        operators = self.operators if operator is None else (self.operator(operator),)
        names = [label for each in operators for one in each.keyed_states for label in one.labels]
        check_states(state, names)
        if not names:
            raise NotFoundError("there is no keyed state", remedy="name a snapshot that has some")
        return tuple(
            each
            for each in operators
            if any(state in (None, *keyed.labels) for keyed in each.keyed_states)
        )

    def get(
        self, key: object, *, operator: str | None = None, state: str | None = None
    ) -> dict[str, dict[str, pa.Table]]:
        """Return all that is held for one key, by operator and state.

        Args:
            key: The key as in a column `key`; operators whose keys are of another type are left
                out.
            operator: Only of this operator: its uid, name or id.
            state: Only of the state of that name.

        Returns:
            For each operator and each of its keyed states that holds something, what its `get`
            returns.

        Raises:
            EncodeError: No operator has keys of such a type.
            NotFoundError: There is no such operator or state, or no keyed state at all.
            CorruptSnapshotError: The bytes are not what the header says they are.
        """
        by_owner: dict[str, dict[str, pa.Table]] = {}
        refused: EncodeError | None = None
        for owner in self.keyed_operators(operator, state):
            states = [each for each in owner.keyed_states if state in (None, *each.labels)]
            try:
                tables = {each.name: each.get(key) for each in states}
            except EncodeError as error:
                refused = error
            else:
                by_owner[owner.label] = {name: rows for name, rows in tables.items() if len(rows)}
        if refused is not None and not by_owner:
            raise refused
        return {label: tables for label, tables in by_owner.items() if tables}


def state_title(name: str, alias: str = "") -> str:
    """Return what people read of a state's name: `distinctAcc_0 (distinct_item)`."""
    return f"{name} ({alias})" if alias else name


def lost_entries(operator: str, reasons: Mapping[str, str]) -> list[str]:
    """Return of which states of an operator not all entries are found, and why, as sentences."""
    return [
        f"operator {operator}, state {name!r}: entries that could not be located: {why}"
        for name, why in reasons.items()
    ]


def check_states(state: str | None, names: Collection[str]) -> None:
    """Refuse the name of a keyed state that does not exist.

    Raises:
        NotFoundError: The state is not among the names.
    """
    if state is not None and state not in names:
        known = sorted(set(names))
        raise NotFoundError(
            f"no operator has a keyed state {state!r}",
            remedy=f"there are: {', '.join(known) or 'none'}{did_you_mean(state, known)}",
        )


def columns_of(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Return the columns of some names, in that order; all of them by default.

    Raises:
        NotFoundError: There is no such column.
    """
    if columns is None:
        return schema
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise NotFoundError(
            f"no column {missing[0]!r}",
            remedy=f"there are: {', '.join(schema.names)}{did_you_mean(missing[0], schema.names)}",
        )
    return pa.schema([schema.field(name) for name in columns])


def schema_table(line: str, schema: pa.Schema) -> Table:
    """Return a table of a state's columns."""
    return Table(line, ("<column", "<type"), [(column.name, str(column.type)) for column in schema])


def types_text(*types: str) -> str:
    """Return the types of a key, a user key and a value as one text."""
    return brief(" → ".join(filter(None, types)), LONGEST)
