"""Commits of runs to several backends: `python -m benchmarks.run_commits --keys 8000000`.

A value of 100 bytes a key; the second run changes one key of a hundred. The peer of each figure is
the same run that commits to the lake alone.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import Row, print_table
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.runtime import RunOptions, run_job
from statelake.state_core.runtime.declarations import StateDeclaration, StateDeclarations
from statelake.state_core.runtime.process import (
    Collector,
    OneInputBatchProcessFunction,
    PartitionedContext,
    StreamJob,
)

VALUE = StateDeclarations.value_state("value", "String")
VALUE_BYTES = 100
CHANGED = 100
PARALLELISM = 2
BACKENDS: dict[str, tuple[Literal["blob", "changelog"], ...]] = {
    "the lake alone": (),
    "a changelog too": ("changelog",),
    "a blob store too": ("blob",),
}


class Keep(OneInputBatchProcessFunction):
    """Keeps the last value of each key."""

    def uses_states(self) -> Iterable[StateDeclaration]:
        """A value."""
        return {VALUE}

    def process_batch(
        self, keys: pa.Array, records: pa.RecordBatch, output: Collector, ctx: PartitionedContext
    ) -> None:
        """Put all of them."""
        ctx.get_state(VALUE).put(keys, records["value"])


def write_input(directory: Path, name: str, keys: pa.Array, letter: str) -> None:
    """Write a file of records, one a key."""
    directory.mkdir(exist_ok=True)
    values = pa.array([letter * VALUE_BYTES]).take(pa.array(np.zeros(len(keys), np.int64)))
    pq.write_table(pa.table({"key": keys, "value": values}), directory / name)


def run(
    work: Path, backends: Iterable[str], restore_from: Literal["lake", "blob", "changelog"]
) -> float:
    """Return the seconds of a run."""
    job = StreamJob("kept")
    stream = job.source("records", str(work / "records"), format="parquet")
    stream.key_by("key", "Long").process(Keep(), uid="keep", output={"key": pa.int64()})
    commit_to = [f"{name}={work / name}" for name in backends]
    options = RunOptions(
        parallelism=PARALLELISM, engine="local", commit_to=commit_to, restore_from=restore_from
    )
    began = time.perf_counter()
    run_job(job, Catalog(work / "lake"), options)
    return time.perf_counter() - began


def size_of(directory: Path) -> int:
    """Return the bytes below a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def measure(work: Path, count: int) -> list[Row]:
    """Measure a first run, one that changes a little, and one that is restored from the backend."""
    rows: list[Row] = []
    alone: list[float] = []
    for title, backends in BACKENDS.items():
        place = work / (backends[0] if backends else "alone")
        place.mkdir(parents=True)
        seconds, sizes = [], []
        for part, letter in enumerate("abc"):
            step = 1 if part == 0 else CHANGED
            keys = pa.array(np.arange(0, count, step))
            write_input(place / "records", f"{part}.parquet", keys, letter)
            seconds.append(run(place, backends, backends[0] if backends and part == 2 else "lake"))
            sizes.append(sum(size_of(place / name) for name in backends))
        if not backends:
            alone = seconds
            continue
        names = ("first run", "1 % of the keys changed", "1 % changed, restored from there")
        for name, ours, theirs in zip(names, seconds, alone, strict=True):
            rows.append(
                Row(
                    f"{name}, {title}",
                    f"{ours:.2f} s",
                    f"the lake alone {theirs:.2f} s",
                    theirs / ours,
                )
            )
        grown = sizes[1] - sizes[0]
        rows.append(
            Row(
                f"bytes of the second commit, {title}", f"{grown / 1e6:,.1f} MB",
                f"the first {sizes[0] / 1e6:,.1f} MB", sizes[0] / max(grown, 1),
            )
        )  # fmt: skip
    return rows


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=8_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        measure(Path(path) / "warm", 1000)
        rows = measure(Path(path), given.keys)
    print_table(f"{given.keys:,} keys with values of {VALUE_BYTES} bytes, on threads", rows)


if __name__ == "__main__":
    main()
