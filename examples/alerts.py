"""A job of process functions: orders are counted by customer, and held against rules.

Each rule of the broadcast side is a limit; a customer who spends more than it within an hour is
told of once, and forgotten an hour after the last order.

    statelake run examples/alerts.py:JOB --lake lake
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from statelake.state_core.runtime.declarations import StateDeclaration, StateDeclarations
from statelake.state_core.runtime.process import (
    Collector,
    NonPartitionedContext,
    OneInputStreamProcessFunction,
    PartitionedContext,
    StreamJob,
    TwoInputBroadcastStreamProcessFunction,
)

HOUR = 3_600_000

SPENT = StateDeclarations.value_state("spent", "Long")
TOLD = StateDeclarations.map_state("told", "String", "Boolean")
RULES = StateDeclarations.map_state_builder("rules", "String", "Long").broadcast().build()
COUNT = StateDeclarations.value_state("count", "Long")


class Alert(TwoInputBroadcastStreamProcessFunction):
    """Tells of customers who spend more than a rule allows."""

    def uses_states(self) -> Iterable[StateDeclaration]:
        return {SPENT, TOLD, RULES}

    def process_record_from_first_input(
        self, record: Any, output: Collector, ctx: NonPartitionedContext
    ) -> None:
        rules = ctx.get_state(RULES)
        if record["limit"] is None:
            rules.remove(record["rule"])
        else:
            rules.put(record["rule"], record["limit"])

    def process_record_from_second_input(
        self, record: Any, output: Collector, ctx: PartitionedContext
    ) -> None:
        spent, told = ctx.get_state(SPENT), ctx.get_state(TOLD)
        total = (spent.value() or 0) + record["amount"]
        spent.update(total)
        for rule, limit in ctx.get_state(RULES).entries():
            if total > limit and not told.contains(rule):
                told.put(rule, True)
                output.collect({"customer": ctx.current_key, "rule": rule, "spent": total})
        ctx.timers.register_event_time(record["at"] + HOUR)

    def on_event_timer(self, timestamp: int, output: Collector, ctx: PartitionedContext) -> None:  # type: ignore[override]
        ctx.get_state(SPENT).clear()
        ctx.get_state(TOLD).clear()


class CountByRule(OneInputStreamProcessFunction):
    """Counts the alerts of each rule."""

    def uses_states(self) -> Iterable[StateDeclaration]:
        return {COUNT}

    def process_record(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        count = ctx.get_state(COUNT)
        count.update((count.value() or 0) + 1)
        output.collect({"rule": ctx.current_key, "alerts": count.value()})


def alerts(data: str) -> StreamJob:
    """The job, over files below a directory: a path, or a URI such as `s3://bucket/alerts`."""

    def below(name: str) -> str:
        place, mark, options = data.partition("?")
        return f"{place}/{name}{mark}{options}"

    job = StreamJob("alerts")
    orders = job.source(
        "orders", below("orders"), format="json", event_time="at", delay="1min",
        schema=pa.schema({"customer": pa.int64(), "amount": pa.int64(), "at": pa.int64()}),
    ).key_by("customer", "Long")  # fmt: skip
    rules = job.source(
        "rules", below("rules"), format="json",
        schema=pa.schema({"rule": pa.string(), "limit": pa.int64()}),
    ).broadcast()  # fmt: skip
    told = rules.connect_and_process(
        orders, Alert(), uid="alert",
        output={"customer": pa.int64(), "rule": pa.string(), "spent": pa.int64()},
    )  # fmt: skip
    told.sink("alerts", below("alerts"))
    counts = told.key_by("rule", "String").process(
        CountByRule(), uid="count-by-rule", output={"rule": pa.string(), "alerts": pa.int64()}
    )
    counts.sink("alerts-by-rule", below("alerts-by-rule"))
    return job


JOB = alerts(os.environ.get("ALERTS_DATA", "alerts-data"))
