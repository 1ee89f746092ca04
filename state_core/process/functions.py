"""What users write: process functions of one or two inputs, of one or two outputs.

A function declares its states before it uses them, and gets at them through the context that each
call is handed. Nothing of a function's own attributes is kept between runs: what is to last is
state. With two outputs, every method that has `output` gets two of them instead.

Source: `org.apache.flink.datastream.api.function` (FLIP-410, FLIP-433).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from state_core.declarations.states import StateDeclaration
from state_core.process.contexts import Collector, NonPartitionedContext, PartitionedContext

__all__ = [
    "OneInputBatchProcessFunction",
    "OneInputStreamProcessFunction",
    "ProcessFunction",
    "TwoInputBroadcastStreamProcessFunction",
    "TwoInputNonBroadcastStreamProcessFunction",
    "TwoOutputStreamProcessFunction",
]


class ProcessFunction(ABC):  # noqa: B024 - what is abstract depends on its inputs
    """What every process function has; all but the processing of records may be left out."""

    def uses_states(self) -> Iterable[StateDeclaration]:
        """The states that it uses, whichever input is processed."""
        return ()

    def uses_states_of_first_input(self) -> Iterable[StateDeclaration]:
        """What only the processing of the first of two inputs uses."""
        return ()

    def uses_states_of_second_input(self) -> Iterable[StateDeclaration]:
        """What only the processing of the second of two inputs uses."""
        return ()

    def open(self, ctx: NonPartitionedContext) -> None:  # noqa: B027 - may be left out
        """Called once a run, before the first record."""

    def close(self) -> None:  # noqa: B027 - may be left out
        """Called once a run, after the last record or an error."""

    def on_event_timer(self, timestamp: int, *outputs_and_context: Any) -> None:  # noqa: B027 - may be left out
        """A timer of event time is due: `(timestamp, output, ctx)`, for the key that set it."""

    def on_processing_timer(self, timestamp: int, *outputs_and_context: Any) -> None:  # noqa: B027 - may be left out
        """A timer of processing time is due, likewise."""

    def on_watermark(self, watermark: int, *outputs_and_context: Any) -> None:  # noqa: B027 - may be left out
        """Event time has reached this: `(watermark, output, ctx)`, of no key."""

    def end_input(self, *outputs_and_context: Any) -> None:  # noqa: B027 - may be left out
        """The stream has ended for good: `(output, ctx)`, of no key."""


class OneInputStreamProcessFunction(ProcessFunction):
    """One input, one output."""

    @abstractmethod
    def process_record(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        """One record; of a keyed stream, with its key made the current one."""


class OneInputBatchProcessFunction(ProcessFunction):
    """One keyed input, the records of one key group at a time, as columns."""

    @abstractmethod
    def process_batch(
        self, keys: pa.Array, records: pa.RecordBatch, output: Collector, ctx: PartitionedContext
    ) -> None:
        """Many records of one key group, in their order.

        Args:
            keys: The key of each record.
            records: Their columns.
            output: Takes records, or with `collect_batch` columns.
            ctx: Its states take and give columns: `get(keys)` and `put(keys, values)`.
        """


class TwoOutputStreamProcessFunction(ProcessFunction):
    """One input, two outputs."""

    @abstractmethod
    def process_record(
        self, record: Any, first: Collector, second: Collector, ctx: PartitionedContext
    ) -> None:
        """One record."""


class TwoInputNonBroadcastStreamProcessFunction(ProcessFunction):
    """Two inputs of the same kind: both keyed, both not, or both global."""

    @abstractmethod
    def process_record_from_first_input(
        self, record: Any, output: Collector, ctx: PartitionedContext
    ) -> None:
        """One record of the first input."""

    @abstractmethod
    def process_record_from_second_input(
        self, record: Any, output: Collector, ctx: PartitionedContext
    ) -> None:
        """One record of the second input."""


class TwoInputBroadcastStreamProcessFunction(ProcessFunction):
    """A broadcast input, which is the first, and another."""

    @abstractmethod
    def process_record_from_first_input(
        self, record: Any, output: Collector, ctx: NonPartitionedContext
    ) -> None:
        """One record of the broadcast input, which every subtask sees.

        No key is the current one; `ctx.apply_to_all_partitions` goes through all of them.
        """

    @abstractmethod
    def process_record_from_second_input(
        self, record: Any, output: Collector, ctx: PartitionedContext
    ) -> None:
        """One record of the other input; broadcast state is read-only here."""
