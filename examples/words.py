"""Word counts: lines are cut into words, record by record, and words are counted in batches.

The counts may go on from those of a word count in Flink, whose operator has the uid `counter` and
keeps a `ValueState<Long>` called `count`: import its savepoint as job `words`, and begin with it.

    statelake import SAVEPOINT --lake lake --job words --snapshot flink
    statelake run examples/words.py:JOB --lake lake --restore flink
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.runtime.declarations import StateDeclaration, StateDeclarations
from statelake.state_core.runtime.process import (
    Collector,
    NonPartitionedContext,
    OneInputBatchProcessFunction,
    OneInputStreamProcessFunction,
    PartitionedContext,
    StreamJob,
)

COUNT = StateDeclarations.value_state("count", "Long")


class Split(OneInputStreamProcessFunction):
    """Cuts lines into words."""

    def process_record(
        self, record: Any, output: Collector, ctx: NonPartitionedContext | PartitionedContext
    ) -> None:
        for word in record["line"].lower().split():
            output.collect({"word": word})


class Count(OneInputBatchProcessFunction):
    """Adds what came of each word; the new counts go out."""

    def uses_states(self) -> Iterable[StateDeclaration]:
        return {COUNT}

    def process_batch(
        self, keys: pa.Array, records: pa.RecordBatch, output: Collector, ctx: PartitionedContext
    ) -> None:
        came = pc.value_counts(keys)
        words, count = came.field("values"), ctx.get_state(COUNT)
        counts = pc.add(pc.fill_null(count.get(words), 0), came.field("counts"))
        count.put(words, counts)
        output.collect_batch(pa.table({"word": words, "count": counts}))


def words(data: str, max_parallelism: int = 128) -> StreamJob:
    """The job, over the lines below a directory."""
    job = StreamJob("words", max_parallelism)
    lines = job.source(
        "lines", f"{data}/lines", format="json", schema=pa.schema({"line": pa.string()})
    )
    split = lines.process(Split(), uid="split", output={"word": pa.string()})
    counts = split.key_by("word", "String").process(
        Count(), uid="counter", output={"word": pa.string(), "count": pa.int64()}
    )
    counts.sink("counts", f"{data}/counts")
    return job


JOB = words(os.environ.get("WORDS_DATA", "words-data"))
