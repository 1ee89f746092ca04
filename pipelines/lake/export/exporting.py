"""Export a snapshot: its tables become a savepoint in the unified format, at any parallelism.

Every subtask of the new job gets one file with its range of key groups. A file is written by one
task or several; `_metadata` comes last, so a crash leaves no savepoint.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from statelake.pipelines.engine import Engine, Progress
from statelake.pipelines.engine_choice import choose_engine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.reading import SnapshotReading
from statelake.pipelines.lake.catalog.recorded_channels import recorded_channels
from statelake.pipelines.lake.catalog.unmanaged_state import (
    KEYED,
    blocks_of,
    unmanaged_metadata,
)
from statelake.pipelines.lake.export.cutting import chunk_weight, cut_chunks, cut_parts, cut_slices
from statelake.pipelines.lake.export.export_slice import (
    AssembleTask,
    ShuffleTask,
    Spill,
    WriteTask,
    assemble_part,
    slice_name,
    spill_slice,
    write_part,
)
from statelake.pipelines.lake.export.redistributing import refuse_finished, write_operator_states
from statelake.pipelines.lake.share.sharing import SampleAndMasks, SharedForm
from statelake.pipelines.lake.tables.records import (
    OperatorRecord,
    SnapshotRecord,
    differing_copies,
)
from statelake.pipelines.lake.tables.table_rows import TableReader, group_sizes, table_rows
from statelake.pipelines.times import Stopwatch, Times
from statelake.state_core.errors import SnapshotError, UnsupportedFormatError
from statelake.state_core.files.moves import Move
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.formats.channels import records_in_flight
from statelake.state_core.formats.layout.meta_info import (
    KeyedHeader,
    parse_key_serializer,
    parse_state_meta_info,
    write_keyed_header,
)
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
)
from statelake.state_core.formats.metadata.stream_map import map_streams, named_files
from statelake.state_core.formats.writing.spills import plan_parts
from statelake.state_core.formats.writing.writer import KeyedPart, SavepointDirectory, keyed_handle
from statelake.state_core.model.handles import KeyGroupRange, RelativeHandle, StreamHandle
from statelake.state_core.model.key_groups import check_parallelism, key_group_ranges

DEFAULT_METADATA_VERSION = 3
Task = TypeVar("Task", WriteTask, ShuffleTask, AssembleTask)
Result = TypeVar("Result")


@dataclass(frozen=True)
class ExportResult:
    """The result of an export.

    Attributes:
        path: The savepoint.
        metadata_version: The version of its `_metadata`.
        files: The number of its state files.
        size: The bytes of those files.
        engine: The engine that ran it.
        left_out: The parts of the snapshot that are not in it, in words.
        times: The times of its stages.
    """

    path: str
    metadata_version: int
    files: int
    size: int
    engine: str
    left_out: list[str] = field(default_factory=list)
    times: Times | None = None


def export_snapshot(
    lake: Catalog,
    job: str,
    snapshot_id: str,
    to: str | os.PathLike[str],
    *,
    parallelism: int | None = None,
    max_parallelism: int | None = None,
    compression: str | None = None,
    metadata_version: int | None = None,
    operator_state_version: int | None = None,
    sharing: SharedForm | None = None,
    drop_channel_state: bool = False,
    engine: Engine | str = "auto",
    progress: Progress | None = None,
) -> ExportResult:
    """Write a snapshot as a canonical savepoint.

    Args:
        lake: The lake with the snapshot.
        job: The snapshot's job.
        snapshot_id: The snapshot's id.
        to: A directory that does not exist yet.
        parallelism: That of every operator with state; unchanged by default. An operator whose max
            parallelism is 1 keeps one subtask, as in Flink.
        max_parallelism: That of every other operator; unchanged by default. Another one gives every
            key a new key group.
        compression: `snappy` or `none`; unchanged by default.
        metadata_version: 3 to 6; unchanged by default. 3 restores in every Flink since 1.11.
        operator_state_version: 6, or 5 for Flink before 1.18; unchanged by default.
        sharing: A sample of the keys, and masks; by default everything is exported unchanged.
        drop_channel_state: Whether the in-flight records of an unaligned checkpoint are left out,
            which the job then never sees. Otherwise they are carried, if no operator is to have
            another parallelism or max parallelism.
        engine: `auto`, `spark`, `local`, or an engine.
        progress: Called with (done, total) in bytes after each slice.

    Raises:
        NotFoundError: There is no such snapshot, or it was dropped meanwhile.
        ConflictError: An erasure changed it meanwhile, each time.
        KeyGroupError: The parallelism is out of range, or keys can't be given new key groups.
        UnsupportedFormatError: It holds state that can't be redistributed, sampled or masked.
        EncodeError: A value can't be masked as specified, or a state has no mask.
        DamagedLakeError: The lake's records of it contradict each other.
        SnapshotError: The target can't be written.
    """
    chosen = choose_engine(engine)

    def export(record: SnapshotRecord) -> ExportResult:
        target = SavepointDirectory(to)
        work = _Export(
            lake, record, target, chosen, parallelism, max_parallelism, compression,
            operator_state_version, sharing, drop_channel_state,
        )  # fmt: skip
        try:
            return work.run(metadata_version, progress)
        except BaseException:
            target.abandon()
            raise

    return SnapshotReading(lake, lake.snapshot(job, snapshot_id)).at_once(export)


@dataclass
class _Export:
    lake: Catalog
    record: SnapshotRecord
    target: SavepointDirectory
    engine: Engine
    parallelism: int | None
    max_parallelism: int | None
    compression: str | None
    operator_state_version: int | None
    sharing: SharedForm | None
    drop_channel_state: bool
    shared: Mapping[str, SampleAndMasks] = field(default_factory=dict)
    files: int = 0
    size: int = 0
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    def __post_init__(self) -> None:
        self.carried = {each.blob for each in self.record.carried}
        self.compressed = (self.compression or self.record.compression) == "snappy"

    def run(self, version: int | None, progress: Progress | None) -> ExportResult:
        """Write state files, carry unmanaged state, and commit."""
        metadata = unmanaged_metadata(self.record)
        # a version 2 can't be written
        metadata.version = version or max(self.record.metadata_version, DEFAULT_METADATA_VERSION)
        left_out: list[str] = []
        if self.drop_channel_state:
            left_out += _dropped_records(self.lake, self.record)
            metadata = _without_channel_state(metadata)
        if self.sharing is not None:
            shared = self.sharing.of(self.lake.location, self.record, metadata)
            self.record, metadata = shared.record, shared.metadata
            self.shared = shared.rows
            left_out += shared.left_out
        left_out += differing_copies(self.record.operators)
        known = {operator.operator_id: operator for operator in self.record.operators}
        _refuse_moved_channels(
            metadata.operators,
            [self._new_parallelism(op, op.operator_id in known) for op in metadata.operators],
        )
        metadata.operators = [
            self._operator(state, known.get(state.operator_id), progress)
            for state in metadata.operators
        ]
        metadata = map_streams(metadata, self._carry, keyed=True)
        if self.engine.repeats:
            self.target.delete_leftovers(named_files(metadata))
        path = self.target.commit(metadata)
        return ExportResult(
            path, metadata.version, self.files, self.size, self.engine.name, left_out,
            self.stopwatch.times(),
        )  # fmt: skip

    def _operator(
        self, state: OperatorMetadata, record: OperatorRecord | None, progress: Progress | None
    ) -> OperatorMetadata:
        parallelism, max_parallelism = self._new_parallelism(state, record is not None)
        check_parallelism(max_parallelism, parallelism)
        if any(part.managed_keyed is not None for part in (state.subtasks or {}).values()):
            wanted = self.parallelism or state.parallelism
            self._refuse_unmovable(state, wanted if max_parallelism > 1 else 1, max_parallelism)
        if record is None:
            return replace(state, max_parallelism=max_parallelism)
        self._refuse_unmovable(state, parallelism, max_parallelism)
        subtasks = self._write_operator_states(state, record, parallelism)
        if record.states:
            self._keyed(subtasks, record, parallelism, max_parallelism, progress)
        refuse_finished(subtasks, state.uid or state.operator_id)
        return replace(
            state, parallelism=parallelism, max_parallelism=max_parallelism, subtasks=subtasks
        )

    def _new_parallelism(self, state: OperatorMetadata, has_tables: bool) -> tuple[int, int]:
        """Return the parallelism and max parallelism that an operator is to have."""
        if state.max_parallelism == 1:
            return (1 if has_tables else state.parallelism), 1
        parallelism = self.parallelism if has_tables else None
        return parallelism or state.parallelism, self.max_parallelism or state.max_parallelism

    def _keyed(
        self,
        subtasks: dict[int, SubtaskState],
        record: OperatorRecord,
        parallelism: int,
        max_parallelism: int,
        progress: Progress | None,
    ) -> None:
        """Write the operator's keyed state, and give every subtask its handle."""
        ranges = key_group_ranges(max_parallelism, parallelism)
        shared = self.shared.get(record.operator_id)
        same_keys = shared is None or not shared.masks_keys
        if max_parallelism == record.max_parallelism and same_keys:
            parts = self._write_same_key_groups(record, ranges, progress)
        else:
            parts = self._write_rehashed(record, ranges, max_parallelism, progress)
        for index, (part, key_groups) in enumerate(zip(parts, ranges, strict=True)):
            subtasks.setdefault(index, SubtaskState()).managed_keyed = keyed_handle(
                part, key_groups
            )
        self.files += len(parts)
        self.size += sum(part.size for part in parts)

    def _write_operator_states(
        self, state: OperatorMetadata, record: OperatorRecord, parallelism: int
    ) -> dict[int, SubtaskState]:
        """Return each subtask with all but keyed state: carried state, and its operator state."""
        before = dict(state.subtasks or {}) if parallelism == state.parallelism else {}
        subtasks = {index: replace(subtask) for index, subtask in before.items()}
        handles = write_operator_states(
            self.lake.location,
            record,
            parallelism,
            self.target,
            self.engine,
            compressed=self.compressed,
            version=self.operator_state_version,
            shared=self.shared.get(record.operator_id),
        )
        for index, handle in handles.items():
            subtasks.setdefault(index, SubtaskState()).managed_operator = handle
            self.files += 1
            self.size += handle.stream.size if handle.stream is not None else 0
        return subtasks

    def _refuse_unmovable(
        self, state: OperatorMetadata, parallelism: int, max_parallelism: int
    ) -> None:
        """Refuse to rescale an operator with state that only Flink can redistribute."""
        if (parallelism, max_parallelism) == (state.parallelism, state.max_parallelism):
            return
        label = state.uid or state.operator_id
        for index, subtask in (state.subtasks or {}).items():
            beside = {
                "raw operator state": subtask.raw_operator,
                "raw keyed state": subtask.raw_keyed,
                KEYED: subtask.managed_keyed,
                "a finished subtask": subtask.finished,
            }
            for what, content in beside.items():
                if content:
                    raise UnsupportedFormatError(
                        f"{what}, which only Flink can move to another parallelism",
                        place=f"operator {label}, subtask {index}",
                        remedy=f"export it at parallelism {state.parallelism}; Flink rescales it",
                    )

    def _header(self, keyed: OperatorRecord) -> bytes:
        states = tuple(
            parse_state_meta_info(state.meta_info, f"state {state.name!r}")
            for state in keyed.states
        )
        key = parse_key_serializer(keyed.key_serializer)
        out = DataOutput()
        write_keyed_header(KeyedHeader(self.compressed, key, states), out)
        return out.to_bytes()

    def _tables(self, keyed: OperatorRecord) -> tuple[TableReader, ...]:
        tables = [table_rows(self.lake.location, keyed, table) for table in keyed.keyed_tables]
        return tuple(table for table in tables if table.units)

    def _write_same_key_groups(
        self, keyed: OperatorRecord, ranges: Sequence[KeyGroupRange], progress: Progress | None
    ) -> list[KeyedPart]:
        """Write each key group into the file of its subtask."""
        tables, header = self._tables(keyed), self._header(keyed)
        sizes = group_sizes(keyed.states, keyed.max_parallelism)
        shared = self.shared.get(keyed.operator_id)
        tasks, owners, weights = [], [], []
        for subtask, key_groups in enumerate(ranges):
            # in a store parts can't be joined without reading and writing them again
            uncut = None if self.target.directory.local else [key_groups]
            head = header
            for groups in uncut or cut_slices(sizes, key_groups):
                within = tuple(table.within(groups) for table in tables)
                # if rows are left out, a state's last row is not known
                chunks = cut_chunks(within, sizes, groups, whole_groups=shared is not None)
                for part in [chunks] if uncut else cut_parts(chunks):
                    tasks.append(
                        WriteTask(
                            self.target.directory.location,
                            self.target.attempt,
                            head,
                            within,
                            tuple(part),
                            keyed.max_parallelism,
                            self.compressed,
                            shared,
                        )
                    )
                    owners.append(subtask)
                    weights.append(sum(chunk_weight(chunk, sizes) for chunk in part))
                    head = b""
        parts = self._map(write_part, tasks, weights, progress)
        return self._join(parts, owners, len(ranges))

    def _write_rehashed(
        self,
        keyed: OperatorRecord,
        ranges: Sequence[KeyGroupRange],
        max_parallelism: int,
        progress: Progress | None,
    ) -> list[KeyedPart]:
        """Write each entry into the file of its key's new key group."""
        tables, header = self._tables(keyed), self._header(keyed)
        directory = self.target.directory.location
        everything = KeyGroupRange(0, keyed.max_parallelism - 1)
        sizes = group_sizes(keyed.states, keyed.max_parallelism)
        shuffles, weights = [], []
        for groups in cut_slices(sizes, everything):
            within = tuple(table.within(groups) for table in tables)
            for part in cut_parts(cut_chunks(within, sizes, groups)):
                shuffles.append(
                    ShuffleTask(
                        directory,
                        self.target.attempt,
                        within,
                        tuple(part),
                        keyed.max_parallelism,
                        max_parallelism,
                        self.shared.get(keyed.operator_id),
                    )
                )
                weights.append(sum(chunk_weight(chunk, sizes) for chunk in part))
        spills: list[Spill] = self._map(spill_slice, shuffles, weights, progress)
        planned = plan_parts(spills, ranges, whole_files=not self.target.directory.local)
        tasks = [
            AssembleTask(
                directory, self.target.attempt, b"" if index else header, planned_part,
                key_groups, self.compressed,
            )
            for key_groups, of_file in zip(ranges, planned, strict=True)
            for index, planned_part in enumerate(of_file)
        ]  # fmt: skip
        owners = [subtask for subtask, of_file in enumerate(planned) for _ in of_file]
        parts = self._map(assemble_part, tasks, [task.part.size for task in tasks], progress)
        for spill in spills:
            self.target.directory.delete(spill.name)
        return self._join(parts, owners, len(ranges))

    def _map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        sizes: Sequence[int],
        progress: Progress | None,
    ) -> list[Result]:
        return self.stopwatch.run_timed(
            self.engine, function, tasks, sizes, progress, rest="wrote", name=slice_name
        )

    def _join(self, parts: list[KeyedPart], owners: list[int], count: int) -> list[KeyedPart]:
        grouped: list[list[KeyedPart]] = [[] for _ in range(count)]
        for part, owner in zip(parts, owners, strict=True):
            grouped[owner].append(part)
        return self.target.join(grouped, self._run)

    def _run(self, function: Callable[[list[Move]], None], tasks: list[list[Move]]) -> list[None]:
        sizes = [sum(move.size for move in moves) for moves in tasks]
        return self.stopwatch.run_timed(
            self.engine, function, tasks, sizes, rest="joined", name=lambda moves: moves[0].to
        )

    def _carry(self, handle: StreamHandle) -> StreamHandle:
        """Copy a carried file into the savepoint; other handles are of what was written there."""
        if not isinstance(handle, RelativeHandle) or handle.path not in self.carried:
            return handle
        if not self.target.directory.is_file(handle.path):
            with self.target.directory.open_output(handle.path) as file:
                for block in blocks_of(handle.path, self.lake.directory):
                    file.write(block)
                    self.size += len(block)
            self.files += 1
        return handle


def _without_channel_state(metadata: CheckpointMetadata) -> CheckpointMetadata:
    """Return the same `_metadata`, as of an aligned checkpoint."""
    strip = partial(replace, inputs=(), outputs=())
    operators = [operator.with_subtasks(strip) for operator in metadata.operators]
    return replace(metadata, operators=operators)


def _dropped_records(lake: Catalog, record: SnapshotRecord) -> list[str]:
    """Return what a job loses without channel state, in words, operator by operator."""
    try:
        records = records_in_flight(recorded_channels(lake.directory, record))
    except SnapshotError as error:
        return [f"all records in flight, which can't be counted: {error.problem} ({error.place})"]
    return [
        f"{operator.text} in flight at operator {operator.operator}: the job never sees them"
        for operator in records
    ]


def _refuse_moved_channels(
    before: Iterable[OperatorMetadata], after: Iterable[tuple[int, int]]
) -> None:
    """Refuse another parallelism or max parallelism of any operator if there is channel state.

    Records in flight are stored by channel, from subtask to subtask. Flink itself redistributes
    them when it restores, since it knows how the job partitions them; no snapshot says so.

    Args:
        before: The operators.
        after: The parallelism and max parallelism that each is to have.

    Raises:
        UnsupportedFormatError: An operator has channel state, and an operator is to be rescaled.
    """
    before = list(before)
    moved = any(
        (operator.parallelism, operator.max_parallelism) != shape
        for operator, shape in zip(before, after, strict=True)
    )
    for operator in before if moved else ():
        for index, subtask in (operator.subtasks or {}).items():
            if subtask.inputs or subtask.outputs:
                raise UnsupportedFormatError(
                    "records in flight, which only Flink can move to another parallelism",
                    place=f"operator {operator.uid or operator.operator_id}, subtask {index}",
                    remedy="keep parallelism and max parallelism, and let Flink rescale it;"
                    " or lose them: --drop-channel-state",
                )
