"""A job with a mistake that is told before it runs: its state belongs to a key, and there is none.

Check it with `statelake check legality examples/wrong.py:JOB`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from statelake.state_core.runtime.declarations import StateDeclaration, StateDeclarations
from statelake.state_core.runtime.process import (
    Collector,
    OneInputStreamProcessFunction,
    PartitionedContext,
    StreamJob,
)

SPENT = StateDeclarations.value_state("spent", "Long")


class Total(OneInputStreamProcessFunction):
    """Adds up what each customer spends."""

    def uses_states(self) -> Iterable[StateDeclaration]:
        return {SPENT}

    def process_record(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        spent = ctx.get_state(SPENT)
        spent.update((spent.value() or 0) + record["amount"])
        output.collect({"customer": ctx.current_key, "spent": spent.value()})


JOB = StreamJob("totals")
_orders = JOB.source("orders", "alerts-data/orders", format="json")  # .key_by("customer", "Long")
_totals = _orders.process(
    Total(), uid="total", output={"customer": pa.int64(), "spent": pa.int64()}
)
_totals.sink("totals", "alerts-data/totals")
