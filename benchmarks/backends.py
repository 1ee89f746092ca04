"""Working state: snapshots of the heap backend, state beyond memory, and a keyed running sum.

Run by itself: `python -m benchmarks.backends [--entries N] [--records N] [--beyond MB]`.

The peers are Flink's State Processor API, writing a savepoint of as many entries, and Spark's
`transformWithStateInPandas`, which keeps the same sums; that one is given fewer records and keys,
in the same proportion, and compared by the record.
"""

from __future__ import annotations

import argparse
import resource
import string
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from benchmarks.measuring import Row, compare, print_table, rate, seconds
from benchmarks.peer import StateProcessor
from statelake.pipelines.spark.session import open_session
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.runtime.backends import (
    BackendConfiguration,
    KeyedStateBackend,
    StateDescriptor,
    heap_backend,
    restore_backend,
    rocksdb_backend,
)
from statelake.state_core.runtime.backends.batches import encode_keys, get_many, put_many

BATCH = 1 << 17
SMALL_MEMORY = 16 << 20
TEXT_BYTES = 1000
TEXTS = 4096
READS = 200 * TEXTS
ALL = KeyGroupRange(0, 127)
I64Array = npt.NDArray[np.int64]


def counting(key: str, make: Any = heap_backend, **options: Any) -> tuple[KeyedStateBackend, Any]:
    """A backend with the state `count`."""
    backend = make(BackendConfiguration(key, ALL, 128), **options)
    return backend, backend.state(StateDescriptor("count", StateKind.VALUE, "Long"))


def filled(entries: int) -> KeyedStateBackend:
    """A heap backend with counts by word."""
    backend, state = counting("String")
    for first in range(0, entries, BATCH):
        numbers = np.arange(first, min(first + BATCH, entries))
        words = pa.array([f"key-{one:012d}" for one in numbers.tolist()])
        put_many(encode_keys(backend, state, words), pa.array(numbers))
    return backend


def snapshots(work: Path, entries: int) -> list[Row]:
    """A heap snapshot, how long the job stands still for it, and its restore."""
    backend = filled(entries)
    directory = Directory(work / "heap")
    directory.create()
    stood: list[float] = []
    handles: list[Any] = []

    def snapshot() -> None:
        began = time.perf_counter()
        task = backend.snapshot(directory)
        stood.append(time.perf_counter() - began)
        handles.append(task.run())

    ours = seconds(snapshot)
    peer = StateProcessor()
    theirs = peer.run(
        "write", backend="hashmap", compression="false", entries=entries,
        to=(work / "peer").as_uri(),
    )  # fmt: skip
    name = "State Processor API write"
    again = heap_backend(BackendConfiguration("String", ALL, 128))
    took = seconds(lambda: restore_backend(again, handles[:1], directory), 1)
    return [
        compare("heap snapshot", entries, ours, theirs, name, 5),
        Row("the job stands still for it", f"{1000 * min(stood):.2f} ms"),
        Row("its restore", rate(entries, took)),
    ]


def running_sum(state: Any, backend: KeyedStateBackend, keys: I64Array, values: I64Array) -> None:
    """Every record's sum so far, of its key, a batch at a time."""
    for at in range(0, len(keys), BATCH):
        order = np.argsort(keys[at : at + BATCH], kind="stable")
        mine, added = keys[at : at + BATCH][order], values[at : at + BATCH][order]
        first = np.flatnonzero(np.append(True, mine[1:] != mine[:-1]))
        counts = np.diff(np.append(first, len(mine)))
        columns = encode_keys(backend, state, pa.array(mine[first]))
        before = np.asarray(pc.fill_null(get_many(columns), 0))
        total = np.cumsum(added)
        offset = before - (total[first] - added[first])
        sums = total + np.repeat(offset, counts)
        put_many(columns, pa.array(sums[np.append(first[1:], len(mine)) - 1]))


class Summing(StatefulProcessor):
    """The same in Spark."""

    def init(self, handle: Any) -> None:
        """One state."""
        self.total = handle.getValueState("total", "total bigint")

    def handleInputRows(  # noqa: N802 - Spark's name
        self, key: Any, rows: Iterator[pd.DataFrame], timer_values: Any
    ) -> Iterator[pd.DataFrame]:
        """The sums of one key's records of a batch."""
        del timer_values
        for frame in rows:
            held = self.total.get()
            sums = frame["value"].cumsum() + (held[0] if held else 0)
            self.total.update((int(sums.iloc[-1]),))
            yield pd.DataFrame({"key": key[0], "total": sums})

    def close(self) -> None:
        """Nothing is held."""


def spark_seconds(work: Path, keys: I64Array, values: I64Array) -> float:
    """What Spark takes for the same, in batches of as many records."""
    source = work / "records"
    source.mkdir()
    for number, at in enumerate(range(0, len(keys), BATCH)):
        part = slice(at, at + BATCH)
        pq.write_table(
            pa.table({"key": keys[part], "value": values[part]}), source / f"{number:05d}.parquet"
        )
    spark = open_session("benchmarks")
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    stream = (
        spark.readStream.schema("key bigint, value bigint")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(source))
        .groupBy("key")
        .transformWithStateInPandas(
            statefulProcessor=Summing(),
            outputStructType="key bigint, total bigint",
            outputMode="Append",
            timeMode="None",
        )
    )
    began = time.perf_counter()
    stream.writeStream.format("noop").outputMode("append").option(
        "checkpointLocation", str(work / "checkpoint")
    ).trigger(availableNow=True).start().awaitTermination()
    return time.perf_counter() - began


def sums(work: Path, records: int, peer_records: int) -> list[Row]:
    """A keyed running sum, ten records a key."""
    random = np.random.default_rng(1)
    values = random.integers(0, 100, records)
    keys = random.integers(0, records // 10, records)
    some = random.integers(0, peer_records // 10, peer_records)
    theirs = spark_seconds(work, some, values[:peer_records]) * records / peer_records
    rows = []
    for name, make in (("heap", heap_backend), ("RocksDB", rocksdb_backend)):
        backend, state = counting("Long", make)
        ours = seconds(partial(running_sum, state, backend, keys, values), 1)
        what = f"running sum, {records // 10:,} keys, {name}"
        rows.append(
            compare(what, records, ours, theirs, f"transformWithState of {peer_records:,}", 3)
        )
        backend.set_current_key(int(keys[0]))
        wanted = int(values[keys == keys[0]].sum())
        if state.value() != wanted:
            raise AssertionError(f"{state.value()} where {wanted} belongs")
        backend.close()
    return rows


def beyond_memory(work: Path, megabytes: int) -> list[Row]:
    """RocksDB with little memory, and much more state: written, read, and a savepoint of it."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    backend = rocksdb_backend(BackendConfiguration("Long", ALL, 128), work, SMALL_MEMORY)
    state: Any = backend.state(StateDescriptor("text", StateKind.VALUE, "String"))
    count = megabytes * 1_000_000 // TEXT_BYTES
    random = np.random.default_rng(7)
    letters = np.frombuffer((string.ascii_letters + string.digits + "+/").encode(), np.uint8)
    # text that RocksDB can't compress; what belongs to a key is found by its number again
    texts = pa.array(
        [letters[random.integers(0, 64, TEXT_BYTES)].tobytes().decode() for _ in range(TEXTS)]
    )

    def batch(numbers: I64Array) -> tuple[Any, pa.Array]:
        keys = numbers * 7919 % count
        return encode_keys(backend, state, pa.array(keys)), texts.take(pa.array(keys % TEXTS))

    def write() -> None:
        for at in range(0, count, TEXTS):
            columns, values = batch(np.arange(at, min(at + TEXTS, count)))
            put_many(columns, values)

    def read() -> None:
        for _ in range(READS // TEXTS):
            columns, values = batch(random.integers(0, count, TEXTS))
            if get_many(columns) != values:
                raise AssertionError("RocksDB does not say what was put there")

    def savepoint() -> None:
        target = Directory(work / "beyond-savepoint")
        target.create()
        backend.snapshot(target).run()

    rows = []
    for what, entries, run in (("written", count, write), ("read at random", READS, read),
                               ("in a savepoint", count, savepoint)):  # fmt: skip
        took = seconds(run, 1)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        rows.append(
            Row(f"{megabytes:,} MB in RocksDB with {SMALL_MEMORY >> 20} MB of memory, {what}",
                f"{rate(entries, took)}, process grew by {grown:.0f} MB")
        )  # fmt: skip
    backend.close()
    return rows


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=5_000_000)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--peer-records", type=int, default=500_000)
    parser.add_argument("--beyond", type=int, default=4000, help="megabytes of state in RocksDB")
    parser.add_argument("--dir", default=None, help="where to put some gigabytes meanwhile")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as name:
        work = Path(name)
        rows = beyond_memory(work, given.beyond)
        rows += snapshots(work, given.entries)
        rows += sums(work, given.records, given.peer_records)
        print_table("Working state", rows)


if __name__ == "__main__":
    main()
