"""Send records of a split to the subtasks that process them.

Every input of every operator has one directory for each subtask (a broadcast input has one for all
of them), with one file for each split. If the files are read in the order of the splits, the
records come in the order of the source, whichever task ended first. A task may run twice, and each
run writes its own files; only files of the run whose result was returned are read. Rows of keyed
inputs go to the subtask with their key group, as in Flink.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelake.pipelines.runtime.sources import Split, batches_of
from statelake.state_core.errors import KeyGroupError, LakeError, StateError
from statelake.state_core.files.filesystem import ConfinedDirectory
from statelake.state_core.model.key_groups import key_group_ranges, key_groups_of_hashes
from statelake.state_core.runtime.declarations.jobs import StreamKind
from statelake.state_core.runtime.process.jobs import Input, OperatorNode
from statelake.state_core.serializers.framework.base import TypeSerializer

# columns that precede a record's own
KEY, GROUP = "__key", "__key_group"
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_TIME_UNIT = "ms"


@dataclass(frozen=True)
class OperatorInput:
    """One input of one operator.

    Attributes:
        operator: The operator.
        index: The index of the input.
        parallelism: The operator's parallelism.
    """

    operator: OperatorNode
    index: int
    parallelism: int

    @property
    def input(self) -> Input:
        """The operator's input."""
        return self.operator.inputs[self.index]

    def path(self, subtask: int) -> str:
        """Return the directory of a subtask's records."""
        is_broadcast = self.input.kind is StreamKind.BROADCAST
        return f"{self.operator.uid}/{self.index}/{'all' if is_broadcast else subtask}"


@dataclass(frozen=True)
class ExchangeTask:
    """The task of reading a split, and of writing its records for every input that reads it.

    Attributes:
        directory: The directory of channels, confined to the lake.
        number: The split's position among those of its source.
        split: The split to read.
        channels: The channels that get the records.
        max_parallelism: The number of key groups.
    """

    directory: ConfinedDirectory
    number: int
    split: Split
    channels: tuple[OperatorInput, ...]
    max_parallelism: int


@dataclass(frozen=True)
class Exchanged:
    """The result of the task of a split.

    Attributes:
        rows: The number of records.
        event_time: The greatest event time in milliseconds; None if there is none.
        files: By the directory of a subtask, the file that was written there.
    """

    rows: int
    event_time: int | None
    files: dict[str, str]


def exchange(task: ExchangeTask) -> Exchanged:
    """Read a split, and write its records to the channels.

    Raises:
        LakeError: The split can't be read, or lacks a column.
        KeyGroupError: A key is null, or its hash can't be derived.
        EncodeError: A key is not of its type.
    """
    run = secrets.token_hex(8)
    writers = [ChannelWriter(task, channel, run) for channel in task.channels]
    rows, latest = 0, None
    try:
        for batch in batches_of(task.split):
            rows += batch.num_rows
            latest = _later(latest, _event_time(task.split, batch))
            for writer in writers:
                writer.write(batch)
    except StateError as error:
        raise error.within(task.split.place) from error
    finally:
        for writer in writers:
            writer.close()
    return Exchanged(rows, latest, {p: f for writer in writers for p, f in writer.names.items()})


def _later(first: int | None, second: int | None) -> int | None:
    return second if first is None else first if second is None else max(first, second)


def _event_time(split: Split, batch: pa.RecordBatch) -> int | None:
    name = split.source.event_time
    if not name:
        return None
    column = _column(batch, name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp(_TIME_UNIT, column.type.tz), safe=False).cast(pa.int64())
    latest = pc.max(column).as_py()
    if latest is not None and not isinstance(latest, int):
        raise LakeError(
            f"event time {name!r} of type {column.type}", remedy="give a timestamp column"
        )
    return latest


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name not in batch.schema.names:
        raise LakeError(f"no column {name!r}", remedy=f"there are: {', '.join(batch.schema.names)}")
    return batch.column(name)


class ChannelWriter:
    """A writer of the records of a split for one channel, one file for each subtask.

    Args:
        task: The split.
        channel: The channel.
        run: The id of this run of the task, a part of the files' names.

    Attributes:
        names: The file of each path of the channel.
    """

    def __init__(self, task: ExchangeTask, channel: OperatorInput, run: str) -> None:
        self.task = task
        self.run = run
        self.names: dict[str, str] = {}
        self.channel = channel
        self.directory = task.directory
        self.files: dict[int, tuple[Any, pa.ipc.RecordBatchFileWriter]] = {}
        self.serializer: TypeSerializer | None = None
        if channel.input.kind is StreamKind.KEYED and channel.operator.key_type is not None:
            self.serializer = channel.operator.key_type.serializer()
        ranges = key_group_ranges(task.max_parallelism, channel.parallelism)
        self.lasts = np.array([range_.last for range_ in ranges])

    def write(self, batch: pa.RecordBatch) -> None:
        """Write records for the subtasks that process them: by key, by split, or for all."""
        if self.serializer is None:
            spread = self.channel.input.kind is StreamKind.NON_KEYED
            self._put(self.task.number % self.channel.parallelism if spread else 0, batch)
            return
        keys = _keys(self.channel.input, batch, self.serializer)
        groups = key_groups_of_hashes(
            self.serializer.hash_codes(keys).astype(np.int32), self.task.max_parallelism
        )
        marked = pa.RecordBatch.from_arrays(
            [keys, pa.array(groups), *batch.columns], [KEY, GROUP, *batch.schema.names]
        )
        subtasks = np.searchsorted(self.lasts, groups)
        if len(self.lasts) == 1:
            self._put(0, marked)
            return
        order = np.argsort(subtasks, kind="stable")
        sorted_rows = marked.take(pa.array(order))
        bounds = np.searchsorted(subtasks[order], np.arange(len(self.lasts) + 1))
        for subtask in np.unique(subtasks).tolist():
            start, end = int(bounds[subtask]), int(bounds[subtask + 1])
            self._put(subtask, sorted_rows.slice(start, end - start))

    def close(self) -> None:
        """Finish the files."""
        for file, writer in self.files.values():
            writer.close()
            file.close()

    def _put(self, subtask: int, batch: pa.RecordBatch) -> None:
        if subtask not in self.files:
            path = self.channel.path(subtask)
            name = self.names[path] = f"{path}/{self.task.number:08d}-{self.run}.arrow"
            file = self.directory.open_output(name)
            self.files[subtask] = file, pa.ipc.new_file(file, batch.schema, options=_OPTIONS)
        self.files[subtask][1].write_batch(batch)


def _keys(read: Input, batch: pa.RecordBatch, serializer: TypeSerializer) -> pa.Array:
    """Return the key of every record."""
    if callable(read.key):
        values = [read.key(record) for record in batch.to_pylist()]
        keys = pa.array(values, serializer.arrow_type)
    else:
        column = _column(batch, read.key)
        try:
            keys = column if column.type == serializer.arrow_type else column.cast(
                serializer.arrow_type
            )  # fmt: skip
        except pa.ArrowException as error:
            raise LakeError(
                f"column {read.key!r} of type {column.type} can't be a key of type "
                f"{serializer.name}",
                remedy="give another type in key_by",
            ) from error
    if keys.null_count:
        row = int(np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))[0])
        raise KeyGroupError(
            f"the key of {batch.slice(row, 1).to_pylist()[0]} is null",
            remedy="Flink has no null keys: filter such records out first",
        )
    return keys


def records_of(
    directory: ConfinedDirectory, files: Sequence[str], kind: StreamKind
) -> Iterator[tuple[pa.Array | None, npt.NDArray[np.int32] | None, pa.RecordBatch]]:
    """Yield the records of a subtask's input: keys, key groups, columns.

    Args:
        directory: The directory of channels.
        files: The subtask's files, in the order of the source.
        kind: The input's kind.
    """
    for name in files:
        with directory.open_input(name) as file:
            reader = pa.ipc.open_file(file)
            for index in range(reader.num_record_batches):
                batch = reader.get_batch(index)
                if kind is not StreamKind.KEYED:
                    yield None, None, batch
                    continue
                rest = pa.RecordBatch.from_arrays(
                    batch.columns[2:], schema=pa.schema(list(batch.schema)[2:])
                )
                yield batch.column(0), batch.column(1).to_numpy(), rest
