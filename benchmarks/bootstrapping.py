"""A savepoint of a table, against Flink's State Processor API writing the same state.

`python -m benchmarks.bootstrapping [--entries N]`: `ValueState<Long>` by `Long`, 128 key groups,
two subtasks. We read a Parquet or a CSV file; the peer counts its numbers, and reads nothing.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from benchmarks.measuring import Row, compare, print_table, seconds
from benchmarks.peer import StateProcessor
from pipelines.bootstrap import bootstrap
from state_core import open_snapshot

ENTRIES = 5_000_000
WANTED = 10
BACKENDS = ("hashmap", "rocksdb")


def tables(work: Path, entries: int) -> dict[str, Path]:
    """The same table, in no order, as Parquet and as CSV."""
    keys = np.random.default_rng(7).permutation(entries)
    table = pa.table({"key": keys, "value": keys * 7})
    found = {"Parquet": work / "rows.parquet", "CSV": work / "rows.csv"}
    pyarrow.parquet.write_table(table, found["Parquet"])
    pyarrow.csv.write_csv(table, found["CSV"])
    return found


def spec(source: Any) -> dict[str, Any]:
    """One operator with one state."""
    state = {"type": "Long", "source": str(source)}
    return {
        "parallelism": 2,
        "max_parallelism": 128,
        "operators": {"counter": {"key_type": "Long", "states": {"count": state}}},
    }


def same(ours: Path, theirs: Path, entries: int) -> None:
    """Whether both savepoints hold the same rows; a benchmark of another thing is none."""
    found = []
    for path in (ours, theirs):
        operator = open_snapshot(path, uids=["counter"]).operator("counter")
        rows = operator.state("count").to_arrow().select(["key_group", "key", "value"])
        found.append(rows.sort_by("key"))
    if not found[0].equals(found[1]) or len(found[0]) != entries:
        raise RuntimeError("the two savepoints differ")


def measure(work: Path, entries: int) -> list[Row]:
    """From the file to the savepoint's `_metadata`, here; the job alone, of the peer."""
    peer = StateProcessor(program="BootstrapBench")
    theirs = {}
    for backend in BACKENDS:
        path = work / f"peer-{backend}"
        theirs[backend] = peer.run("write", backend=backend, entries=entries, to=path.as_uri())
    best = min(theirs, key=theirs.__getitem__)
    numbers = itertools.count()
    rows = []
    for form, source in tables(work, entries).items():
        made: list[Path] = []

        def run(source: Path = source, made: list[Path] = made) -> None:
            made.append(work / f"ours-{next(numbers)}")
            bootstrap(None, spec(source), made[-1], engine="local")

        took = seconds(run)
        same(made[-1], work / f"peer-{best}", entries)
        name = f"{peer.name} write, {best}"
        rows.append(compare(f"`bootstrap` of {form}", entries, took, theirs[best], name, WANTED))
    return rows


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=ENTRIES)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rows = measure(Path(name), given.entries)
    print_table(f"{given.entries:,} entries of `ValueState<Long>` by `Long`, of a table", rows)


if __name__ == "__main__":
    main()
