"""Restore one subtask of an operator, run it over its records, and write its state.

A subtask only reads and writes files, so it runs anywhere, and again, even twice at once: its
output and its state are files of its own in directories of the attempt, invisible before the run is
committed.
"""

from __future__ import annotations

import copy
import secrets
import traceback
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from statelake.pipelines.runtime.commits import CommitTask, PreparedCommit, prepare_commit
from statelake.pipelines.runtime.exchange import records_of
from statelake.pipelines.runtime.subtask_store import SubtaskFiles
from statelake.state_core.errors import EncodeError, ProcessError, StateError
from statelake.state_core.files.filesystem import ConfinedDirectory
from statelake.state_core.formats.metadata.checkpoint_metadata import OperatorMetadata, SubtaskState
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.formats.writing.new_states import USER_TIMERS
from statelake.state_core.model.handles import KeyedHandle
from statelake.state_core.model.key_groups import operator_id_of_uid
from statelake.state_core.runtime.backends import (
    BackendConfiguration,
    KeyedStateBackend,
    OperatorStateBackend,
    heap_backend,
    restore_backend,
    rocksdb_backend,
)
from statelake.state_core.runtime.backends.states.keys import runs_of_groups
from statelake.state_core.runtime.backends.states.operator_state import AssignedElements
from statelake.state_core.runtime.declarations.jobs import sides_of
from statelake.state_core.runtime.process import (
    Backends,
    Collector,
    ProcessOperator,
    RuntimeContext,
)
from statelake.state_core.runtime.process.jobs import OperatorNode
from statelake.state_core.runtime.process.located_keys import locate_keys

BACKENDS = {"heap": heap_backend, "rocksdb": rocksdb_backend}
BATCH_FUNCTION_ROWS = 1 << 20
FLUSH_RECORDS = 1 << 16


@dataclass(frozen=True)
class Restored:
    """The initial state of a subtask.

    Attributes:
        directory: The savepoint's directory.
        keyed: Its handles, of all subtasks.
        operator: This subtask's part of the operator state.
        raw_keyed: Handles of raw keyed state, of all subtasks, which may be timers.
    """

    directory: ConfinedDirectory
    keyed: tuple[KeyedHandle, ...] = ()
    operator: tuple[AssignedElements, ...] = ()
    raw_keyed: tuple[KeyedHandle, ...] = ()


@dataclass(frozen=True)
class OutputTarget:
    """The target of an output.

    Attributes:
        output: The name of the output.
        name: The sink's name; empty if other operators read it.
        directory: The sink's table, or one of the run's.
        path: The path below it, without the suffix of the task's run.
    """

    output: int
    name: str
    directory: ConfinedDirectory
    path: str


@dataclass(frozen=True)
class OutputFile:
    """A written file of an output."""

    target: OutputTarget
    size: int
    rows: int


@dataclass(frozen=True)
class SubtaskTask:
    """A subtask's part of a run.

    Attributes:
        runtime: The subtask and the run.
        operator: The operator.
        records: The directory of channels, confined to the lake.
        inputs: The files in it of each input, in the order of the source.
        state: The directory of the written state.
        backend: `heap` or `rocksdb`.
        restored: The initial state; None in the first run.
        targets: The targets of its outputs.
        before: The watermark of the initial state.
        watermark: The watermark at the end of this run.
        final: Whether the streams end with this run.
        compressed: Whether state is written compressed.
        commit: The commit to other backends than the lake; None without them.
        timers: The name under which its timers are kept.
    """

    runtime: RuntimeContext
    operator: OperatorNode
    records: ConfinedDirectory
    inputs: tuple[tuple[str, ...], ...]
    state: ConfinedDirectory
    backend: str = "heap"
    restored: Restored | None = None
    targets: tuple[OutputTarget, ...] = ()
    before: int | None = None
    watermark: int | None = None
    final: bool = False
    compressed: bool = False
    commit: CommitTask | None = None
    timers: str = USER_TIMERS

    @property
    def place(self) -> str:
        """Its name in messages."""
        return f"operator {self.operator.uid!r}, subtask {self.runtime.subtask}"


@dataclass(frozen=True)
class SubtaskResult:
    """The result of a subtask.

    Attributes:
        operator: Its operator, with this subtask alone.
        files: The files of its outputs.
        records: The number of processed records.
        commit: Its commit to other backends, and what writing and committing cost.
    """

    operator: OperatorMetadata
    files: tuple[OutputFile, ...]
    records: int
    commit: PreparedCommit


def run_subtask(task: SubtaskTask) -> SubtaskResult:
    """Restore a subtask, process its records, and write its state.

    Raises:
        ProcessError: The function failed.
        StateError: State or records can't be read or written.
    """
    try:
        return _Subtask(task).run()
    except StateError as error:
        raise error.within(task.place) from error
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise ProcessError(
            f"the function failed: {type(error).__name__}: {error} ({where.name}, line"
            f" {where.lineno} of {where.filename.rpartition('/')[2]})",
            place=task.place,
            remedy="nothing was committed: correct the function, and run again",
        ) from error


class _Subtask:
    def __init__(self, task: SubtaskTask) -> None:
        self.task = task
        self.directory = task.state
        self.keyed = self._keyed_backend()
        self.states = OperatorStateBackend(compressed=task.compressed)
        restored = task.restored
        if restored is not None:
            self.states.restore(restored.operator, StateFiles(restored.directory))
        # threads of one process share the function; its copy is this subtask's alone
        self.function = copy.deepcopy(task.operator.function)
        self.operator = ProcessOperator(
            self.function, task.operator.declaration, task.runtime,
            Backends(self.states, self.keyed), task.timers,
        )  # fmt: skip
        self.writers = [
            _OutputWriter(self.operator.outputs[at], schema, [
                target for target in task.targets if target.output == at
            ])
            for at, schema in enumerate(task.operator.outputs)
        ]  # fmt: skip

    def _keyed_backend(self) -> KeyedStateBackend | None:
        task = self.task
        if task.operator.key_type is None:
            return None
        own = task.runtime
        configuration = BackendConfiguration.of_subtask(
            task.operator.key_type.snapshot(), own.subtask, own.parallelism,
            own.max_parallelism, compressed=task.compressed, clock=lambda: own.processing_time,
        )  # fmt: skip
        backend = BACKENDS[task.backend](configuration)
        if task.restored is not None:
            restored, directory = task.restored, task.restored.directory
            restore_backend(backend, restored.keyed, directory, raw=restored.raw_keyed)
        return backend

    def run(self) -> SubtaskResult:
        """Run the subtask, from `open` of the function to the handles of the written state."""
        operator, task = self.operator, self.task
        try:
            operator.open(task.before)
            operator.fire_processing_timers()
            records = sum(self._process(index) for index in range(len(task.operator.inputs)))
            if task.watermark is not None and task.watermark != task.before:
                operator.advance_watermark(task.watermark)
            if task.final:
                operator.end_input()
            files = tuple(file for writer in self.writers for file in writer.close())
            began = perf_counter()
            written = self._snapshot()
            counts = {"commits": 1, "snapshot_ms": round((perf_counter() - began) * 1000)}
            prepared = PreparedCommit({}, {})
            if task.commit is not None:
                prepared = prepare_commit(task.commit, SubtaskFiles(self.directory, written))
            commit = PreparedCommit(prepared.markers, {**counts, **prepared.counts})
            return SubtaskResult(written, files, records, commit)
        finally:
            for writer in self.writers:
                writer.abandon()
            operator.close()

    def _process(self, index: int) -> int:
        """Process all records of one input, and return their number."""
        task = self.task
        side = sides_of(task.operator.declaration.inputs)[index]
        kind = task.operator.inputs[index].kind
        count = 0
        pending: list[tuple[pa.Array, npt.NDArray[np.int32], pa.RecordBatch]] = []
        for keys, groups, batch in records_of(task.records, task.inputs[index], kind):
            count += batch.num_rows
            if self.operator.batched and keys is not None and groups is not None:
                pending.append((keys, groups, batch))
                if sum(len(part) for part, _, _ in pending) >= BATCH_FUNCTION_ROWS:
                    self._process_groups(pending)
                    pending = []
                continue
            located = None
            if keys is not None and groups is not None and self.keyed is not None:
                located = locate_keys(self.keyed, keys, groups)
            self.operator.process(side, batch.to_pylist(), located)
            self._flush()
        if pending:
            self._process_groups(pending)
        return count

    def _process_groups(
        self, pending: list[tuple[pa.Array, npt.NDArray[np.int32], pa.RecordBatch]]
    ) -> None:
        """Process records by key group, each group's in their order."""
        keys = pa.concat_arrays([part for part, _, _ in pending])
        groups = np.concatenate([part for _, part, _ in pending])
        table = pa.Table.from_batches([part for _, _, part in pending])
        order = np.argsort(groups, kind="stable")
        indices = pa.array(order)
        keys, table = keys.take(indices), table.take(indices).combine_chunks()
        (batch,) = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
        for _, start, end in runs_of_groups(groups[order]):
            self.operator.process_batch(
                keys.slice(start, end - start), batch.slice(start, end - start)
            )
            self._flush()

    def _flush(self) -> None:
        for writer in self.writers:
            writer.flush()

    def _snapshot(self) -> OperatorMetadata:
        """Write the state, and return the operator with this subtask alone."""
        keyed = None if self.keyed is None else self.keyed.snapshot(self.directory).run()
        operator = self.states.snapshot(self.directory).run()
        own = self.task.runtime
        return OperatorMetadata(
            operator_id_of_uid(own.uid), own.parallelism, own.max_parallelism, own.uid, own.uid,
            None, {own.subtask: SubtaskState(managed_operator=operator, managed_keyed=keyed)},
        )  # fmt: skip


class _OutputWriter:
    """A writer of one output, into a file for each target."""

    def __init__(
        self, collector: Collector, schema: pa.Schema, targets: list[OutputTarget]
    ) -> None:
        self.collector = collector
        self.schema = schema
        run = secrets.token_hex(8)
        self.targets = [replace(target, path=f"{target.path}-{run}.parquet") for target in targets]
        self.rows = 0
        self.files: list[tuple[Any, pq.ParquetWriter]] = []

    def flush(self, least: int = FLUSH_RECORDS) -> None:
        """Write the buffered records, if they fill a batch."""
        if self.collector.pending < least:
            return
        for records in self.collector.take():
            batch = self._typed(records)
            self.rows += batch.num_rows
            for _, writer in self._opened():
                writer.write_batch(batch)

    def close(self) -> list[OutputFile]:
        """Finish the files."""
        self.flush(1)
        if not self.rows:
            return []
        self.abandon()
        return [
            OutputFile(target, target.directory.size(target.path), self.rows)
            for target in self.targets
        ]

    def abandon(self) -> None:
        """Close all open files."""
        files, self.files = self.files, []
        for file, writer in files:
            writer.close()
            file.close()

    def _opened(self) -> list[tuple[Any, pq.ParquetWriter]]:
        if not self.files:
            for target in self.targets:
                file = target.directory.open_output(target.path)
                writer = pq.ParquetWriter(
                    file, self.schema, compression="zstd", write_page_checksum=True
                )
                self.files.append((file, writer))
        return self.files

    def _typed(self, records: pa.RecordBatch | list[Any]) -> pa.RecordBatch:
        try:
            if isinstance(records, list):
                extra = set(records[0]) - set(self.schema.names)
                if extra:
                    raise EncodeError(
                        f"a record has {', '.join(map(repr, sorted(extra)))}, which its output "
                        f"does not have",
                        remedy=f"the output's columns are {', '.join(self.schema.names)}",
                    )
                return pa.RecordBatch.from_pylist(records, self.schema)
            return records.select(self.schema.names).cast(self.schema)
        except (pa.ArrowException, AttributeError, KeyError, TypeError) as error:
            raise EncodeError(
                f"the function's records do not have its output's columns ({error})",
                remedy="give dicts, or columns, of the declared types",
            ) from error
