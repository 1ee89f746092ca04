"""Process functions, which users extend: of one or two inputs, of one or two outputs.

A function declares its states before it uses them, and gets them from the context of each call.
Only state is kept between runs, not a function's own attributes. With two outputs, every method
that has `output` gets two of them instead.

Source: `org.apache.flink.datastream.api.function` (FLIP-410, FLIP-433).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from statelake.state_core.runtime.declarations.states import StateDeclaration
from statelake.state_core.runtime.process.contexts import (
    Collector,
    NonPartitionedContext,
    PartitionedContext,
)

__all__ = [
    "OneInputBatchProcessFunction",
    "OneInputStreamProcessFunction",
    "ProcessFunction",
    "TwoInputBroadcastStreamProcessFunction",
    "TwoInputNonBroadcastStreamProcessFunction",
    "TwoOutputStreamProcessFunction",
]


class ProcessFunction(ABC):  # noqa: B024 - what is abstract depends on its inputs
    """The base of process functions; only the processing of records must be implemented."""

    def uses_states(self) -> Iterable[StateDeclaration]:
        """Return the states that it uses, whichever input is processed."""
        return ()

    def uses_states_of_first_input(self) -> Iterable[StateDeclaration]:
        """Return the states that only the processing of the first of two inputs uses."""
        return ()

    def uses_states_of_second_input(self) -> Iterable[StateDeclaration]:
        """Return the states that only the processing of the second of two inputs uses."""
        return ()

    def open(self, ctx: NonPartitionedContext) -> None:  # noqa: B027 - may be left out
        """Called once a run, before the first record."""

    def close(self) -> None:  # noqa: B027 - may be left out
        """Called once a run, after the last record or an error."""

    def on_event_timer(self, timestamp: int, *outputs_and_context: Any) -> None:  # noqa: B027 - may be left out
        """Called with `(timestamp, output, ctx)` when a timer of event time is due, for its key."""

    def on_processing_timer(self, timestamp: int, *outputs_and_context: Any) -> None:  # noqa: B027 - may be left out
        """Called with `(timestamp, output, ctx)` when a timer of processing time is due."""

    def on_watermark(self, watermark: int, *outputs_and_context: Any) -> None:  # noqa: B027 - may be left out
        """Called with `(watermark, output, ctx)` when event time has advanced, for no key."""

    def end_input(self, *outputs_and_context: Any) -> None:  # noqa: B027 - may be left out
        """Called with `(output, ctx)` when the stream has ended for good, for no key."""


class OneInputStreamProcessFunction(ProcessFunction):
    """A function of one input and one output."""

    @abstractmethod
    def process_record(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        """Process one record; of a keyed stream its key is the current one."""


class OneInputBatchProcessFunction(ProcessFunction):
    """A function of one keyed input that takes the records of a key group at a time, as columns."""

    @abstractmethod
    def process_batch(
        self, keys: pa.Array, records: pa.RecordBatch, output: Collector, ctx: PartitionedContext
    ) -> None:
        """Process many records of one key group, in their order.

        Args:
            keys: The key of each record.
            records: The records, as columns.
            output: Collects records, or columns with `collect_batch`.
            ctx: The context, whose states take columns: `get(keys)` and `put(keys, values)`.
        """


class TwoOutputStreamProcessFunction(ProcessFunction):
    """A function of one input and two outputs."""

    @abstractmethod
    def process_record(
        self, record: Any, first: Collector, second: Collector, ctx: PartitionedContext
    ) -> None:
        """Process one record."""


class TwoInputNonBroadcastStreamProcessFunction(ProcessFunction):
    """A function of two inputs of the same kind: both keyed, both not, or both global."""

    @abstractmethod
    def process_record_from_first_input(
        self, record: Any, output: Collector, ctx: PartitionedContext
    ) -> None:
        """Process one record of the first input."""

    @abstractmethod
    def process_record_from_second_input(
        self, record: Any, output: Collector, ctx: PartitionedContext
    ) -> None:
        """Process one record of the second input."""


class TwoInputBroadcastStreamProcessFunction(ProcessFunction):
    """A function of a broadcast input, which is the first, and another one."""

    @abstractmethod
    def process_record_from_first_input(
        self, record: Any, output: Collector, ctx: NonPartitionedContext
    ) -> None:
        """Process one record of the broadcast input, which every subtask sees.

        There is no current key; `ctx.apply_to_all_partitions` visits all of them.
        """

    @abstractmethod
    def process_record_from_second_input(
        self, record: Any, output: Collector, ctx: PartitionedContext
    ) -> None:
        """Process one record of the other input; broadcast state is read-only here."""
