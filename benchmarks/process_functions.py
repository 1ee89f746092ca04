"""A keyed running sum against Spark's: `python -m benchmarks.process_functions`.

The same Parquet input and keys, one micro-batch: every record adds to the sum of its key. The peer
is `transformWithState`, by rows and over pandas, with RocksDB, the only store there is for it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.measuring import Row, print_table, rate
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.runtime import RunOptions, run_job
from statelake.pipelines.spark.engine import SparkEngine
from statelake.pipelines.spark.session import open_session
from statelake.state_core.runtime.declarations import StateDeclaration, StateDeclarations
from statelake.state_core.runtime.process import (
    Collector,
    OneInputBatchProcessFunction,
    OneInputStreamProcessFunction,
    PartitionedContext,
    StreamJob,
)

SUM = StateDeclarations.value_state("sum", "Long")
FILES = 8
OUTPUT = {"key": pa.int64(), "sum": pa.int64()}


class Summing(OneInputStreamProcessFunction):
    """Record by record; what a key came to is told by the state."""

    def uses_states(self) -> Iterable[StateDeclaration]:
        """A sum."""
        return {SUM}

    def process_record(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        """One more."""
        state = ctx.get_state(SUM)
        state.update((state.value() or 0) + record["value"])


class SummingBatches(OneInputBatchProcessFunction):
    """A key group at a time."""

    def uses_states(self) -> Iterable[StateDeclaration]:
        """A sum."""
        return {SUM}

    def process_batch(
        self, keys: pa.Array, records: pa.RecordBatch, output: Collector, ctx: PartitionedContext
    ) -> None:
        """All that came for each key."""
        added = pa.table({"key": keys, "value": records["value"]}).group_by("key")
        sums = added.aggregate([("value", "sum")])
        state, known = ctx.get_state(SUM), sums["key"].combine_chunks()
        held = pc.fill_null(state.get(known), 0)
        state.put(known, pc.add(held, sums["value_sum"].combine_chunks()))


class SparkSumming(StatefulProcessor):
    """The same in Spark, by rows or by pandas' frames."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """A sum."""
        self.sum = handle.getValueState("sum", "sum bigint")

    def handleInputRows(  # noqa: N802 - Spark's
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: N803 - Spark's
    ) -> Iterator[Any]:
        """All that came for one key."""
        held = self.sum.get()
        total = held[0] if held is not None else 0
        for row in rows:
            total += int(row["value"].sum()) if isinstance(row, pd.DataFrame) else row.value
        self.sum.update((total,))
        return iter(())

    def close(self) -> None:
        """Nothing."""


def write_input(directory: Path, records: int, keys: int) -> None:
    """Files of keys and values, in no order."""
    directory.mkdir()
    random = np.random.default_rng(1)
    for index in range(FILES):
        count = records // FILES
        table = pa.table(
            {"key": random.integers(0, keys, count), "value": random.integers(0, 100, count)}
        )
        pq.write_table(table, directory / f"{index}.parquet")


def ours(work: Path, source: Path, function: Any, engine: Any) -> float:
    """Seconds of a run from nothing."""
    job = StreamJob("sums")
    stream = job.source("records", str(source), format="parquet").key_by("key", "Long")
    stream.process(function, uid="sum", output=OUTPUT)
    began = time.perf_counter()
    run_job(job, Catalog(work), RunOptions(parallelism=2, engine=engine))
    return time.perf_counter() - began


def theirs(spark: SparkSession, work: Path, source: Path, pandas: bool) -> float:
    """Seconds of a micro-batch of Spark's."""
    stream = spark.readStream.schema("key bigint, value bigint").parquet(str(source))
    grouped = stream.groupBy("key")
    call = grouped.transformWithStateInPandas if pandas else grouped.transformWithState
    result = call(
        SparkSumming(), outputStructType="key bigint, sum bigint", outputMode="Update",
        timeMode="None",
    )  # fmt: skip
    began = time.perf_counter()
    query = (
        result.writeStream.format("noop").outputMode("update")
        .option("checkpointLocation", str(work)).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return time.perf_counter() - began


def measure(work: Path, records: int, keys: int) -> list[Row]:
    """Each way once, behind a small one that warms workers up."""
    spark = open_session("benchmarks")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    small, large = work / "small", work / "large"
    write_input(small, 80_000, 1000)
    write_input(large, records, keys)
    engine = SparkEngine(spark)
    peers, found = {}, {}
    for name, pandas in (("transformWithState", False), ("transformWithStateInPandas", True)):
        theirs(spark, work / f"warm-{name}", small, pandas)
        peers[name] = theirs(spark, work / name, large, pandas)
    for name, function in (("record by record", Summing()), ("batches", SummingBatches())):
        ours(work / f"warm-{name}", small, function, engine)
        found[name] = ours(work / name, large, function, engine)
    best = min(peers, key=lambda name: peers[name])
    wanted = {"record by record": 1, "batches": 3}
    rows = [
        Row(
            f"`{name}` of Spark", "", rate(records, took),
        )
        for name, took in peers.items()
    ]  # fmt: skip
    rows += [
        Row(
            name, rate(records, took), f"{best} {rate(records, peers[best])}",
            peers[best] / took, wanted[name],
        )
        for name, took in found.items()
    ]  # fmt: skip
    return rows


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rows = measure(Path(name), given.records, given.keys)
    print_table(f"A running sum of {given.records:,} records, {given.keys:,} keys", rows)


if __name__ == "__main__":
    main()
