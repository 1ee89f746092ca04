"""Batch functions: a key group at a time, and the same as record by record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import KeyGroupError
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.runtime.backends import BackendConfiguration, heap_backend
from statelake.state_core.runtime.declarations import InputSide, StateDeclaration, StreamKind
from statelake.state_core.runtime.process import (
    Collector,
    OneInputBatchProcessFunction,
    PartitionedContext,
    ProcessOperator,
)
from tests.support.jobs.process_functions import COUNT, Counting, operator_of


class CountingBatches(OneInputBatchProcessFunction):
    """Counts records by key."""

    def uses_states(self) -> set[StateDeclaration]:
        """A count."""
        return {COUNT}

    def process_batch(
        self, keys: pa.Array, records: pa.RecordBatch, output: Collector, ctx: PartitionedContext
    ) -> None:
        """So many more of each."""
        counts = keys.value_counts()
        known, state = counts.field("values"), ctx.get_state(COUNT)
        total = pc.add(pc.fill_null(state.get(known), 0), counts.field("counts"))
        state.put(known, total)
        output.collect_batch(pa.RecordBatch.from_arrays([known, total], ["key", "count"]))


def counts_of(operator: ProcessOperator) -> dict[Any, int]:
    """What the state has."""
    backend = operator.backends.keyed
    assert backend is not None
    state: Any = state_of(operator)
    found = {}
    for key in list(backend.keys("count")):
        backend.set_current_key(key)
        found[key] = state.value()
    return found


def state_of(operator: ProcessOperator) -> Any:
    """The state itself, one key at a time."""
    held = operator.state(COUNT)
    return getattr(held, "_state", held)


@given(batches=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=20), max_size=4))
def test_the_same_as_record_by_record(batches: list[list[int]]) -> None:
    """State and the last that was told of each key."""
    one, many = operator_of(Counting(), StreamKind.KEYED), operator_of(
        CountingBatches(), StreamKind.KEYED
    )  # fmt: skip
    one.open()
    many.open()
    for keys in batches:
        one.process(InputSide.ONLY, [{"at": None}] * len(keys), keys)
        records = pa.RecordBatch.from_arrays([pa.nulls(len(keys))], ["at"])
        many.process_batch(pa.array(keys), records)
    assert counts_of(one) == counts_of(many)
    told = [row for batch in many.outputs[0].take() for row in batch.to_pylist()]
    assert {row["key"]: row["count"] for row in told} == counts_of(many)


def test_null_removes() -> None:
    """A value of null is no value."""

    class Forgetting(CountingBatches):
        def process_batch(
            self,
            keys: pa.Array,
            records: pa.RecordBatch,
            output: Collector,
            ctx: PartitionedContext,
        ) -> None:
            ctx.get_state(COUNT).put(keys, pa.array([1, None, 3]))

    operator = operator_of(Forgetting(), StreamKind.KEYED)
    operator.open()
    operator.process_batch(pa.array([1, 2, 3]), pa.RecordBatch.from_arrays([pa.nulls(3)], ["at"]))
    assert counts_of(operator) == {1: 1, 3: 3}


def test_keys_of_other_subtasks_are_refused() -> None:
    """As one by one."""
    operator = operator_of(CountingBatches(), StreamKind.KEYED)
    narrow = heap_backend(BackendConfiguration("Long", KeyGroupRange(0, 3), 128))
    operator.backends = replace(operator.backends, keyed=narrow)
    operator.open()
    with pytest.raises(KeyGroupError, match="this subtask has"):
        operator.process_batch(
            pa.array(range(50)), pa.RecordBatch.from_arrays([pa.nulls(50)], ["at"])
        )
