"""Process functions run over state: records, timers, watermarks, all partitions, both sides."""

from __future__ import annotations

from typing import Any

import pytest

from statelake.state_core.errors import LegalityError
from statelake.state_core.runtime.declarations import InputSide, StateDeclaration, StreamKind
from statelake.state_core.runtime.process import (
    Collector,
    NonPartitionedContext,
    OneInputStreamProcessFunction,
    PartitionedContext,
    ProcessOperator,
    TwoOutputStreamProcessFunction,
)
from tests.support.jobs.process_functions import (
    COUNT,
    NOW,
    RULES,
    SEEN,
    Alerting,
    Counting,
    Joining,
    operator_of,
)

K, NK, G, B = StreamKind.KEYED, StreamKind.NON_KEYED, StreamKind.GLOBAL, StreamKind.BROADCAST


def taken(operator: ProcessOperator, output: int = 0) -> list[Any]:
    """What the function gave since the last time."""
    return [value for batch in operator.outputs[output].take() for value in batch]


def test_records_by_key() -> None:
    """Each with its own state, in their order."""
    operator = operator_of(Counting(), K)
    operator.open()
    operator.process(InputSide.ONLY, [{"at": None}] * 5, [7, 8, 7, 7, 8])
    assert taken(operator) == [(7, 1), (8, 1), (7, 2), (7, 3), (8, 2)]


def test_timers_fire_by_time_and_with_their_key() -> None:
    """Event timers up to the watermark, in order of time; then the function is told itself."""
    operator = operator_of(Counting(), K)
    operator.open()
    operator.process(InputSide.ONLY, [{"at": 30}, {"at": 10}, {"at": 99}], [1, 2, 1])
    taken(operator)
    operator.advance_watermark(40)
    assert taken(operator) == [("event", 2, 10, 1), ("event", 1, 30, 2), ("watermark", 40, None)]
    operator.advance_watermark(98)
    assert taken(operator) == [("watermark", 98, None)]


def test_processing_timers_of_the_past_fire() -> None:
    """Only those that are due at the time of the run."""
    operator = operator_of(Counting(), K)
    operator.open()
    operator.process(InputSide.ONLY, [{"at": 0}, {"at": -5}, {"at": 1}], [1, 2, 3])
    taken(operator)
    operator.fire_processing_timers()
    assert taken(operator) == [("processing", 2, NOW - 5), ("processing", 1, NOW)]


def test_the_end_reaches_every_key() -> None:
    """`apply_to_all_partitions` goes through the keys that have state."""
    operator = operator_of(Counting(), K)
    operator.open()
    operator.process(InputSide.ONLY, [{"at": None}] * 4, [1, 2, 3, 2])
    taken(operator)
    operator.end_input()
    assert sorted(taken(operator)) == [("end", 1, 1), ("end", 2, 2), ("end", 3, 1)]


def test_broadcast_and_keyed() -> None:
    """Rules are for all keys, and can look at all of them when they come."""
    operator = operator_of(Alerting(), (B, K))
    operator.open()
    operator.process(InputSide.FIRST, [("ten", 10)], None)
    operator.process(InputSide.SECOND, [6, 6, 3], [1, 1, 2])
    assert taken(operator) == [("ten", 1, 12)]
    operator.process(InputSide.FIRST, [("two", 2)], None)
    assert sorted(taken(operator)) == [("beyond", 1), ("beyond", 2)]


class Asking(OneInputStreamProcessFunction):
    """Asks for a state in every place, and keeps what it got."""

    def __init__(self, declared: set[StateDeclaration], asked: StateDeclaration) -> None:
        self.declared = declared
        self.asked = asked
        self.found: dict[str, Any] = {}

    def uses_states(self) -> set[StateDeclaration]:
        """As told."""
        return self.declared

    def open(self, ctx: NonPartitionedContext) -> None:
        """Without a partition."""
        self.found["open"] = ctx.get_state(self.asked)

    def process_record(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        """With one."""
        self.found["record"] = ctx.get_state(self.asked)


def test_state_of_a_partition_is_none_where_there_is_no_partition() -> None:
    """Declared, legal, and absent."""
    function = Asking({COUNT}, COUNT)
    operator = operator_of(function, K)
    operator.open()
    operator.process(InputSide.ONLY, [1], [5])
    assert function.found["open"] is None
    assert function.found["record"].value() is None


def test_operator_state_is_there_in_open() -> None:
    """It belongs to the subtask."""
    function = Asking({SEEN}, SEEN)
    operator_of(function, NK).open()
    assert function.found["open"].get() == []


def test_an_undeclared_state_is_refused() -> None:
    """With the remedy."""
    operator = operator_of(Asking({COUNT}, SEEN), K)
    with pytest.raises(LegalityError, match=r"not declared.*uses_states"):
        operator.open()


def test_broadcast_state_is_read_only_on_the_other_side() -> None:
    """Read it does; each way of writing is refused, and says who may."""

    class Writing(Alerting):
        def process_record_from_second_input(
            self, record: Any, output: Collector, ctx: PartitionedContext
        ) -> None:
            rules = ctx.get_state(RULES)
            assert rules.get("ten") == 10
            assert rules.contains("ten")
            assert (rules.keys(), rules.values(), list(rules)) == (["ten"], [10], [("ten", 10)])
            getattr(rules, record)(*("x", 1)[: {"put": 2, "remove": 1}.get(record, 0)])

    operator = operator_of(Writing(), (B, K))
    operator.open()
    operator.process(InputSide.FIRST, [("ten", 10)], None)
    for way in ("put", "remove", "clear"):
        with pytest.raises(LegalityError, match=r"read, not written.*broadcast side"):
            operator.process(InputSide.SECOND, [way], [1])


def test_keyed_state_on_the_broadcast_side() -> None:
    """Only inside `apply_to_all_partitions`."""

    class Wrong(Alerting):
        def process_record_from_first_input(
            self, record: Any, output: Collector, ctx: NonPartitionedContext
        ) -> None:
            ctx.get_state(COUNT)

    operator = operator_of(Wrong(), (B, K))
    operator.open()
    with pytest.raises(LegalityError, match="inside apply_to_all_partitions"):
        operator.process(InputSide.FIRST, [("ten", 10)], None)


def test_a_side_can_not_touch_what_only_the_other_declared() -> None:
    """Which only run time can know."""
    operator = operator_of(Joining(), (K, K))
    operator.open()
    operator.process(InputSide.FIRST, [3], [1])
    with pytest.raises(LegalityError, match=r"not declared for the second input.*the first"):
        operator.process(InputSide.SECOND, [3], [1])


def test_a_global_stream_is_one_partition() -> None:
    """State of mode NONE, and neither key nor timer."""

    class Summing(OneInputStreamProcessFunction):
        def uses_states(self) -> set[StateDeclaration]:
            return {COUNT}

        def process_record(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
            count = ctx.get_state(COUNT)
            count.update((count.value() or 0) + record)
            output.collect(count.value())
            with pytest.raises(LegalityError, match="Global has no keys"):
                _ = ctx.current_key
            with pytest.raises(LegalityError, match="timers need a keyed stream"):
                ctx.timers.register_event_time(1)

    operator = operator_of(Summing(), G)
    operator.open()
    operator.process(InputSide.ONLY, [1, 2, 3], None)
    assert taken(operator) == [1, 3, 6]


def test_two_outputs() -> None:
    """Each function method gets both."""

    class Splitting(TwoOutputStreamProcessFunction):
        def process_record(
            self, record: Any, first: Collector, second: Collector, ctx: PartitionedContext
        ) -> None:
            (first if record % 2 else second).collect(record)

        def end_input(
            self, first: Collector, second: Collector, ctx: NonPartitionedContext
        ) -> None:  # type: ignore[override]
            first.collect("end")

    from statelake.state_core.runtime.declarations import declare_operator  # noqa: PLC0415

    function = Splitting()
    declared = declare_operator("counter", function, NK, outputs=2)
    operator = operator_of(function, NK, declaration=declared)
    operator.open()
    operator.process(InputSide.ONLY, range(5), None)
    operator.end_input()
    assert (taken(operator, 0), taken(operator, 1)) == ([1, 3, "end"], [0, 2, 4])
