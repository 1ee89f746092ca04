"""Process functions for tests, and an operator of one in memory."""

from __future__ import annotations

from typing import Any

from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.runtime.backends import (
    BackendConfiguration,
    OperatorStateBackend,
    heap_backend,
)
from statelake.state_core.runtime.declarations import (
    OperatorDeclaration,
    RedistributionStrategy,
    StateDeclaration,
    StateDeclarations,
    StreamKind,
    declare_operator,
)
from statelake.state_core.runtime.process import (
    Backends,
    Collector,
    NonPartitionedContext,
    OneInputStreamProcessFunction,
    PartitionedContext,
    ProcessFunction,
    ProcessOperator,
    RuntimeContext,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
)

__all__ = [
    "COUNT",
    "FIRED",
    "RULES",
    "SEEN",
    "Alerting",
    "Counting",
    "Joining",
    "operator_of",
]

NOW = 1_000_000
COUNT = StateDeclarations.value_state("count", "Long")
FIRED = StateDeclarations.value_state("fired", "Long")
SEEN = StateDeclarations.list_state_builder("seen", "String").redistribute_by(
    RedistributionStrategy.SPLIT
).build()  # fmt: skip
RULES = StateDeclarations.map_state_builder("rules", "String", "Long").broadcast().build()


class Counting(OneInputStreamProcessFunction):
    """Counts records by key, and says at a timer how many there were."""

    def uses_states(self) -> set[StateDeclaration]:
        """A count."""
        return {COUNT}

    def process_record(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        """One more."""
        count = ctx.get_state(COUNT)
        count.update((count.value() or 0) + 1)
        if record["at"] is not None:
            ctx.timers.register_event_time(record["at"])
            ctx.timers.register_processing_time(NOW + record["at"])
        output.collect((ctx.current_key, count.value()))

    def on_event_timer(self, timestamp: int, output: Collector, ctx: PartitionedContext) -> None:  # type: ignore[override]
        """The count so far."""
        output.collect(("event", ctx.current_key, timestamp, ctx.get_state(COUNT).value()))

    def on_processing_timer(
        self, timestamp: int, output: Collector, ctx: PartitionedContext
    ) -> None:  # type: ignore[override]
        """The same."""
        output.collect(("processing", ctx.current_key, timestamp))

    def on_watermark(self, watermark: int, output: Collector, ctx: NonPartitionedContext) -> None:  # type: ignore[override]
        """Event time, behind its timers."""
        output.collect(("watermark", watermark, ctx.get_state(COUNT)))

    def end_input(self, output: Collector, ctx: NonPartitionedContext) -> None:  # type: ignore[override]
        """Every key's count."""
        ctx.apply_to_all_partitions(
            lambda out, of_key: out.collect(
                ("end", of_key.current_key, of_key.get_state(COUNT).value())
            )
        )


class Alerting(TwoInputBroadcastStreamProcessFunction):
    """Rules on one side, records by key on the other."""

    def uses_states(self) -> set[StateDeclaration]:
        """A count by key, and the rules."""
        return {COUNT, RULES}

    def process_record_from_first_input(
        self, record: Any, output: Collector, ctx: NonPartitionedContext
    ) -> None:
        """A new limit; who is beyond it is told at once."""
        name, limit = record
        ctx.get_state(RULES).put(name, limit)

        def check(out: Collector, of_key: PartitionedContext) -> None:
            if of_key.get_state(COUNT).value() > limit:
                out.collect(("beyond", of_key.current_key))

        ctx.apply_to_all_partitions(check)

    def process_record_from_second_input(
        self, record: Any, output: Collector, ctx: PartitionedContext
    ) -> None:
        """One more, and an alert beyond a limit."""
        count = ctx.get_state(COUNT)
        count.update((count.value() or 0) + record)
        for name, limit in ctx.get_state(RULES).entries():
            if count.value() > limit:
                output.collect((name, ctx.current_key, count.value()))


class Joining(TwoInputNonBroadcastStreamProcessFunction):
    """Each side has a state of its own."""

    def uses_states_of_first_input(self) -> set[StateDeclaration]:
        """A count of the first."""
        return {COUNT}

    def process_record_from_first_input(
        self, record: Any, output: Collector, ctx: PartitionedContext
    ) -> None:
        """Its own."""
        ctx.get_state(COUNT).update(record)

    def process_record_from_second_input(
        self, record: Any, output: Collector, ctx: PartitionedContext
    ) -> None:
        """The other's."""
        output.collect(ctx.get_state(COUNT).value())


def operator_of(
    function: ProcessFunction,
    inputs: StreamKind | tuple[StreamKind, ...],
    *,
    key: str = "Long",
    declaration: OperatorDeclaration | None = None,
) -> ProcessOperator:
    """An operator of one subtask; keyed if an input is."""
    kinds = (inputs,) if isinstance(inputs, StreamKind) else inputs
    keyed = StreamKind.KEYED in kinds
    declared = declaration or declare_operator(
        "counter",
        function,
        kinds,
        function.uses_states(),
        first_states=function.uses_states_of_first_input(),
        second_states=function.uses_states_of_second_input(),
        key=key if keyed else None,
        outputs=1,
    )
    configuration = BackendConfiguration(
        key if keyed else "Byte", KeyGroupRange(0, 127), 128, clock=lambda: NOW
    )
    backend = heap_backend(configuration) if keyed or StreamKind.GLOBAL in kinds else None
    runtime = RuntimeContext("job", "counter", 0, 1, 128, NOW)
    return ProcessOperator(function, declared, runtime, Backends(OperatorStateBackend(), backend))
