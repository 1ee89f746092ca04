"""Create a savepoint from rows: the first state of a job, without an earlier snapshot.

::

    write_snapshot("sp-0", [
        NewOperator("counter", "String", (
            NewKeyedState("count", table, value="Long"),       # columns key, value
        ), parallelism=2, max_parallelism=128),
    ])

Every row is hashed to its key group as Flink would, sorted there through spill files beside the
savepoint, and written in the unified format; `_metadata` comes last, so a crash leaves no
savepoint. Some batches and one key group are in memory at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from statelake.state_core.errors import EncodeError, StateError, UnsupportedFormatError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.formats.layout.keyed_states import parse_keyed_state
from statelake.state_core.formats.layout.meta_info import (
    KeyedHeader,
    SerializerEntry,
    StateMetaInfo,
    parse_keyed_header,
    serializer_entry,
    write_keyed_header,
    write_state_meta_info,
)
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    FIRST_WITH_COORDINATOR,
    METADATA_VERSIONS,
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
    write_metadata,
)
from statelake.state_core.formats.metadata.stream_map import named_files
from statelake.state_core.formats.operator_state.operator_file import (
    CURRENT_VERSION,
    UNCOMPRESSED_VERSION,
)
from statelake.state_core.formats.writing.new_operator_states import write_new_operator_states
from statelake.state_core.formats.writing.new_rows import SpillTask, batches_of, spill_batches
from statelake.state_core.formats.writing.new_states import NewKeyedState, NewOperator, snapshot_of
from statelake.state_core.formats.writing.spills import (
    PlannedPart,
    Spill,
    find_twin,
    gathered_groups,
    plan_parts,
)
from statelake.state_core.formats.writing.writer import (
    KeyedPart,
    SavepointDirectory,
    keyed_handle,
    write_keyed_part,
)
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.key_groups import (
    check_parallelism,
    default_max_parallelism,
    key_group_ranges,
    operator_id_of_uid,
)
from statelake.state_core.serializers.composite.wrappers import SingletonSerializer

FIRST_CHECKPOINT = 1
DEFAULT_METADATA_VERSION = 3
COMPRESSIONS = ("none", "snappy")
Task = TypeVar("Task")
Result = TypeVar("Result")


class Runner(Protocol):
    """A runner of tasks, in this process or elsewhere."""

    def __call__(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], /
    ) -> Iterable[Result]:
        """Run a function for every task; return the results in order."""


@dataclass(frozen=True)
class WrittenState:
    """One written state; `entries` of a list in operator state are its elements."""

    operator: str
    state: str
    kind: str
    entries: int


@dataclass(frozen=True)
class WrittenSnapshot:
    """The result of writing a savepoint.

    Attributes:
        path: The savepoint.
        metadata_version: The version of its `_metadata`.
        files: State files in it.
        size: The bytes of those files.
        states: Its states.
    """

    path: str
    metadata_version: int
    files: int
    size: int
    states: tuple[WrittenState, ...]


def write_snapshot(
    to: str | os.PathLike[str],
    operators: Sequence[NewOperator],
    *,
    compression: str = "none",
    metadata_version: int = DEFAULT_METADATA_VERSION,
    operator_state_version: int = CURRENT_VERSION,
    checkpoint_id: int = FIRST_CHECKPOINT,
    run: Runner = map,
    again: bool = False,
) -> WrittenSnapshot:
    """Write rows as a canonical savepoint that Flink restores.

    Args:
        to: A directory that does not exist yet.
        operators: The operators with their states and rows. Iterables of rows are used up.
        compression: `snappy` or `none`.
        metadata_version: 3 restores in every Flink since 1.11, 4 since 1.16, 5 since 2.0, 6 since
            2.1; uids and names of operators are in 5 and 6.
        operator_state_version: 6, or 5 for Flink before 1.18.
        checkpoint_id: The checkpoint's number in the job.
        run: Runs the tasks that assemble key groups; by default one after the other.
        again: Whether the same savepoint may exist already, on a local disk: then that stays.

    Raises:
        EncodeError: A type that is not known, a column that does not fit its state, a value that
            can't be written, a null, or a duplicate key.
        KeyGroupError: The parallelism is out of range, or the hash of keys can't be derived.
        SnapshotError: The target can't be written.
    """
    _check(operators, compression, metadata_version, operator_state_version)
    target = SavepointDirectory(to, again=again)
    compressed = compression == "snappy"
    work = _Writing(target, compressed=compressed, version=operator_state_version, run=run)
    try:
        states = [work.operator(operator) for operator in operators]
        metadata = CheckpointMetadata(metadata_version, checkpoint_id, states)
        target.delete_leftovers(named_files(metadata))
        path = target.commit(metadata)
    except BaseException:
        target.abandon()
        raise
    return WrittenSnapshot(path, metadata_version, work.files, work.size, tuple(work.written))


def _check(
    operators: Sequence[NewOperator], compression: str, version: int, operator_version: int
) -> None:
    """Refuse bad arguments before anything is written."""
    if compression not in COMPRESSIONS:
        raise EncodeError(
            f"compression {compression!r}", remedy=f"one of {', '.join(COMPRESSIONS)}"
        )
    if version not in METADATA_VERSIONS or version < FIRST_WITH_COORDINATOR:
        write_metadata(CheckpointMetadata(version, FIRST_CHECKPOINT, []))  # refuses unknown ones
    if operator_version not in (UNCOMPRESSED_VERSION, CURRENT_VERSION):
        raise UnsupportedFormatError(
            f"operator state of version {operator_version} can't be written",
            remedy="choose 6, or 5 for Flink before 1.18",
        )
    uids = [operator.uid for operator in operators]
    if "" in uids or len(set(uids)) < len(uids) or not uids:
        twice = next((uid for uid in uids if uids.count(uid) > 1), "")
        raise EncodeError(
            f"operator uid {twice!r} twice"
            if twice
            else "an operator without a uid, or no operators",
            remedy="give each operator the uid that the job sets",
        )
    for operator in operators:
        if not operator.states and not operator.operator_states:
            raise EncodeError("an operator without state", place=f"operator {operator.uid}")
        names = [state.name for state in operator.states]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise EncodeError(
                "there are two states of that name",
                place=f"operator {operator.uid}, state {twice!r}",
            )


class _Writing:
    def __init__(
        self, target: SavepointDirectory, *, compressed: bool, version: int, run: Runner
    ) -> None:
        self.target = target
        self.directory = target.directory
        self.compressed = compressed
        self.version = version
        self.run = run
        self.files = 0
        self.size = 0
        self.written: list[WrittenState] = []

    def operator(self, operator: NewOperator) -> OperatorMetadata:
        """Write one operator's files."""
        try:
            return self._operator(operator)
        except StateError as error:
            place = f"operator {operator.uid}"
            raise (error if error.place.startswith(place) else error.within(place)) from error

    def _operator(self, operator: NewOperator) -> OperatorMetadata:
        parallelism = operator.parallelism
        most = operator.max_parallelism or default_max_parallelism(parallelism)
        check_parallelism(most, parallelism)
        subtasks = {index: SubtaskState() for index in range(parallelism)}
        handles, counts = write_new_operator_states(
            self.directory,
            operator,
            compressed=self.compressed and self.version == CURRENT_VERSION,
            version=self.version,
        )
        for index, handle in enumerate(handles):
            subtasks[index].managed_operator = handle
            self.size += handle.stream.size if handle.stream is not None else 0
        if operator.states:
            ranges = key_group_ranges(most, parallelism)
            parts = self._keyed(operator, most, ranges)
            for index, (part, key_groups) in enumerate(zip(parts, ranges, strict=True)):
                subtasks[index].managed_keyed = keyed_handle(part, key_groups)
                self.size += part.size
            self.files += len(parts)
        self.files += len(handles)
        self.written += [
            WrittenState(
                operator.uid, operator_state.name, operator_state.mode, counts[operator_state.name]
            )
            for operator_state in operator.operator_states
        ]
        uid = operator.uid
        return OperatorMetadata(
            operator_id_of_uid(uid), parallelism, most, operator.name or uid, uid, None, subtasks
        )

    def _keyed(
        self, operator: NewOperator, most: int, ranges: Sequence[KeyGroupRange]
    ) -> list[KeyedPart]:
        """Write the operator's keyed state: a file for each subtask."""
        key = serializer_entry(snapshot_of(operator.key, "key"))
        infos = tuple(state.meta_info(key.snapshot) for state in operator.states)
        encoded = DataOutput()
        write_keyed_header(KeyedHeader(self.compressed, key, infos), encoded)
        header = encoded.to_bytes()
        spills: list[Spill] = []
        for index, (state, info) in enumerate(zip(operator.states, infos, strict=True)):
            task = self._spill_task(operator.uid, index, info, key, most)
            spilled = _spilled(state, task)
            spills += spilled
            entries = sum(spill.entries for spill in spilled)
            self.written.append(WrittenState(operator.uid, state.name, state.kind, entries))
        # key groups are whole, so that they can be checked for duplicate keys
        planned = plan_parts(
            spills, ranges, whole_files=not self.directory.local, whole_groups=True
        )
        tasks = [
            GatherTask(
                self.directory.location, operator.uid, header, index == 0, part,
                self.compressed, self.target.attempt,
            )
            for parts in planned
            for index, part in enumerate(parts)
        ]  # fmt: skip
        written = iter(self.run(gather_part, tasks))
        grouped = [[next(written) for _ in parts] for parts in planned]
        for spill in spills:
            self.directory.delete(spill.name)
        return self.target.join(grouped, self.run)

    def _spill_task(
        self, uid: str, index: int, info: StateMetaInfo, key: SerializerEntry, most: int
    ) -> SpillTask:
        encoded = DataOutput()
        write_state_meta_info(info, encoded)
        directory = self.directory.location
        return SpillTask(
            directory, uid, info.name, index, encoded.to_bytes(), key.encoded, most,
            self.target.attempt,
        )  # fmt: skip


def _spilled(state: NewKeyedState, task: SpillTask) -> list[Spill]:
    if hasattr(state.rows, "spill"):
        return list(state.rows.spill(task))
    return [spill_batches(task, batches_of(state.rows, f"state {state.name!r}"))]


@dataclass(frozen=True)
class GatherTask:
    """A task that assembles key groups from spills, picklable.

    Attributes:
        directory: The directory of the spills and of the part.
        operator: The operator's uid, for messages.
        header: The file's header.
        first: Whether the part begins with the header.
        part: The key groups.
        compressed: Whether key groups are compressed.
        attempt: The prefix of the part's name, from a `SavepointDirectory`.
    """

    directory: str
    operator: str
    header: bytes
    first: bool
    part: PlannedPart
    compressed: bool
    attempt: str = ""


def gather_part(task: GatherTask) -> KeyedPart:
    """Write one part.

    Raises:
        EncodeError: A key is duplicate.
    """
    directory = Directory(task.directory).confined()
    header = parse_keyed_header(task.header)

    def check(entries: Entries) -> None:
        twin = find_twin(entries)
        if twin >= 0:
            raise _twice(header, task.operator, entries, twin)

    groups = gathered_groups(directory, task.part, check)
    return write_keyed_part(
        directory, header if task.first else None, groups, compressed=task.compressed,
        attempt=task.attempt,
    )  # fmt: skip


def _twice(header: KeyedHeader, operator: str, entries: Entries, row: int) -> EncodeError:
    info = header.states[int(entries.state_of[row])]
    encoded = DataOutput()
    write_state_meta_info(info, encoded)
    _, layout = parse_keyed_state(
        encoded.to_bytes(), header.key_serializer.encoded, without_decoders=True
    )
    (entry,) = layout.decode(entries.take(slice(row, row + 1))).to_pylist()
    single = isinstance(layout.namespace, SingletonSerializer)
    columns = ("key", *(() if single else ("namespace",)), "user_key", "timestamp")
    names = [name for name in columns if entry.get(name) is not None]
    shown = ", ".join(f"{name.replace('_', ' ')} {entry[name]!r}" for name in names)
    return EncodeError(
        f"{shown or 'a key'} is there more than once",
        place=f"operator {operator}, state {info.name!r}",
        remedy="keep one row of each",
    )
