"""A savepoint of a table, against Flink's State Processor API writing the same state.

`python -m benchmarks.bootstrapping [--entries N]`: `ValueState<Long>` by `String`, 128 key groups,
two subtasks. We read a Parquet or a CSV file; the peer counts its numbers, and reads nothing. It is
keyed by `String`, as by `Long` it hung: of 1,000,000 entries its thread found a key outside
its key groups, and the job waited on for that thread. So `Long` by `Long` has no peer.
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

from benchmarks.measuring import Row, compare, print_table, rate, seconds
from benchmarks.peer import StateProcessor
from statelake import open_snapshot
from statelake.pipelines.bootstrap.bootstrapping import bootstrap

ENTRIES = 5_000_000
WANTED = 10
KEY_BYTES = 11
BACKENDS = ("hashmap", "rocksdb")


def key_of(number: int) -> str:
    """The key that the peer makes of a number (`StateProcessorBench.pad`)."""
    text = f"key-{number}"
    return text + "".join(chr(97 + at % 26) for at in range(len(text), KEY_BYTES))


def tables(work: Path, entries: int) -> dict[str, Path]:
    """The same table, in no order, as Parquet and as CSV."""
    numbers = np.random.default_rng(7).permutation(entries)
    keys = [key_of(number) for number in numbers.tolist()]
    table = pa.table({"key": keys, "value": numbers * 7, "number": numbers})
    found = {"Parquet": work / "rows.parquet", "CSV": work / "rows.csv"}
    pyarrow.parquet.write_table(table, found["Parquet"])
    pyarrow.csv.write_csv(table, found["CSV"])
    return found


def spec(source: Path, key: str) -> dict[str, Any]:
    """One operator with one state."""
    column = "key" if key == "String" else "number"
    state = {"type": "Long", "source": str(source), "key": column}
    return {
        "parallelism": 2,
        "max_parallelism": 128,
        "operators": {"counter": {"key_type": key, "states": {"count": state}}},
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
    peer = StateProcessor()
    theirs = {}
    for backend in BACKENDS:
        path = work / f"peer-{backend}"
        theirs[backend] = peer.run("write", backend=backend, entries=entries, to=path.as_uri())
    best = min(theirs, key=theirs.__getitem__)
    name = f"{peer.name} write, {best}"
    numbers = itertools.count()
    rows = []
    for form, source in tables(work, entries).items():
        for key in ("String", "Long"):
            made: list[Path] = []

            def run(source: Path = source, key: str = key, made: list[Path] = made) -> None:
                made.append(work / f"ours-{next(numbers)}")
                bootstrap(None, spec(source, key), made[-1], engine="local")

            took = seconds(run)
            what = f"`bootstrap` of {form}, by `{key}`"
            if key == "Long":
                rows.append(Row(what, rate(entries, took)))
                continue
            same(made[-1], work / f"peer-{best}", entries)
            rows.append(compare(what, entries, took, theirs[best], name, WANTED))
    return rows


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=ENTRIES)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rows = measure(Path(name), given.entries)
    print_table(f"{given.entries:,} entries of `ValueState<Long>`, of a table", rows)


if __name__ == "__main__":
    main()
