"""The job whose state is attacked, as process functions: each order is remembered by its key."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pyarrow as pa

from statelake.state_core.runtime.declarations import (
    RedistributionStrategy,
    StateDeclaration,
    StateDeclarations,
)
from statelake.state_core.runtime.process import (
    Collector,
    OneInputStreamProcessFunction,
    PartitionedContext,
    StreamJob,
)

NAME = StateDeclarations.value_state("name", "String")
SESSION = (
    StateDeclarations.value_state_builder("session", "String").with_state_ttl(timedelta(1)).build()
)
PROFILE = StateDeclarations.value_state(
    "profile", {"pojo": "acme.Profile", "fields": {"name": "String"}}
)
PARTS = (
    StateDeclarations.list_state_builder("parts", "String")
    .redistribute_by(RedistributionStrategy.SPLIT)
    .build()
)


class Remember(OneInputStreamProcessFunction):
    """Keeps the last text of each key."""

    def uses_states(self) -> Iterable[StateDeclaration]:
        """All that the savepoint has."""
        return {NAME, SESSION, PROFILE, PARTS}

    def process_record(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        """One order."""
        ctx.get_state(NAME).update(record["text"])
        output.collect({"key": ctx.current_key, "text": record["text"]})


def orders(data: str) -> StreamJob:
    """Over the orders below a directory, where its output goes too."""
    job = StreamJob("orders", 4)
    schema = pa.schema({"key": pa.string(), "text": pa.string()})
    lines = job.source("orders", f"{data}/orders", format="json", schema=schema)
    fields = {"key": pa.string(), "text": pa.string()}
    kept = lines.key_by("key", "String").process(Remember(), uid="counter", output=fields)
    kept.sink("kept", f"{data}/kept")
    return job


JOB = orders(os.environ.get("ORDERS_DATA", "orders-data"))
