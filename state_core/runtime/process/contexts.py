"""Contexts of process functions: the run, states, timers, and the current key.

Source: `RuntimeContext`, `PartitionedContext`, `NonPartitionedContext`, `Collector` in
`org.apache.flink.datastream.api`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from statelake.state_core.errors import LegalityError
from statelake.state_core.runtime.backends import InternalTimerService
from statelake.state_core.runtime.process.state_access import StateManager


@dataclass(frozen=True)
class RuntimeContext:
    """The subtask and the run of a function.

    Attributes:
        job: The job's name.
        uid: The operator's uid.
        subtask: The index of this subtask.
        parallelism: The number of subtasks.
        max_parallelism: The number of key groups.
        processing_time: The time of the run, in milliseconds: the same for all of its records, so
            that a repeated run has the same result.
    """

    job: str
    uid: str
    subtask: int
    parallelism: int
    max_parallelism: int
    processing_time: int


class Collector:
    """Collects the output of a function: records, or columns of them, in order."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self._batches: list[pa.RecordBatch | list[Any]] = []
        self.collect: Callable[[Any], None] = self.records.append

    def collect_batch(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Collect many records, as columns."""
        self._close_records()
        self._batches += batch.to_batches() if isinstance(batch, pa.Table) else [batch]

    @property
    def pending(self) -> int:
        """The number of records that were not taken yet."""
        return len(self.records) + sum(len(batch) for batch in self._batches)

    def take(self) -> list[pa.RecordBatch | list[Any]]:
        """Return the output since the last call."""
        self._close_records()
        batches, self._batches = self._batches, []
        return batches

    def _close_records(self) -> None:
        if self.records:
            self._batches.append(self.records)
            self.records = []
            self.collect = self.records.append


class _Context:
    """The common part of all contexts.

    Attributes:
        runtime: The subtask and the run.
        state_manager: The states.
        watermark: The current watermark; None before the first one.
    """

    def __init__(self, runtime: RuntimeContext, state_manager: StateManager) -> None:
        self.runtime = runtime
        self.state_manager = state_manager
        self.get_state = state_manager.get_state
        self.watermark: int | None = None

    @property
    def processing_time(self) -> int:
        """The time of the run, in milliseconds."""
        return self.runtime.processing_time


class PartitionedContext(_Context):
    """The context of a call for one partition."""

    def __init__(
        self,
        runtime: RuntimeContext,
        state_manager: StateManager,
        timers: InternalTimerService | None,
        key_of: Callable[[], Any],
    ) -> None:
        super().__init__(runtime, state_manager)
        self._timers = timers
        self._key_of = key_of

    @property
    def timers(self) -> InternalTimerService:
        """The timers of the current key.

        Raises:
            LegalityError: No stream is keyed.
        """
        if self._timers is None:
            place = f"operator {self.runtime.uid!r}"
            raise LegalityError("timers need a keyed stream", place=place, remedy="key the stream")
        return self._timers

    @property
    def current_key(self) -> Any:
        """The key of the current record or timer.

        Raises:
            LegalityError: No stream is keyed.
        """
        return self._key_of()


class NonPartitionedContext(_Context):
    """The context of a call without a partition, which has no access to a partition's states."""

    def __init__(
        self,
        runtime: RuntimeContext,
        state_manager: StateManager,
        outputs: Sequence[Collector],
        for_each_partition: Callable[[Callable[[PartitionedContext], None]], None],
    ) -> None:
        super().__init__(runtime, state_manager)
        self._outputs = outputs
        self._for_each_partition = for_each_partition

    def apply_to_all_partitions(self, function: Callable[..., None]) -> None:
        """Call `function(output, ctx)` for each partition of this subtask.

        Over a keyed stream a partition is each key with state, in order of key group; otherwise the
        subtask is the one partition. Keys that the function adds meanwhile are not visited.

        Args:
            function: The function to call.
        """
        self._for_each_partition(lambda ctx: function(*self._outputs, ctx))
