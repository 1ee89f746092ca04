"""One key group with nearly all bytes, against the same bytes spread evenly: time and memory.

`python -m benchmarks.hot_key_group [--entries N] [--rocksdb]`; each step in a process of its own,
by turns. In RocksDB's own files only the import differs.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.state_core.formats.writing.new_snapshot import write_snapshot
from statelake.state_core.formats.writing.new_states import NewKeyedState, NewOperator
from tests.support.savepoints.rocksdb_checkpoints import rocksdb_checkpoint

KEYS, BATCH = 100_000, 200_000
STEPS = ("import", "export", "rescale")


def batches(entries: int, *, hot: bool) -> Iterator[pa.RecordBatch]:
    """Entries of a map, by one key or by all."""
    for first in range(0, entries, BATCH):
        numbers = np.arange(first, min(entries, first + BATCH))
        keys = np.zeros(len(numbers), np.int64) if hot else numbers % KEYS
        yield _batch(keys, numbers)
    if hot:
        yield _batch(np.arange(1, KEYS), np.arange(1, KEYS))


def _batch(keys: np.ndarray, numbers: np.ndarray) -> pa.RecordBatch:
    values = np.char.add("some value of forty characters, about ", numbers.astype("U10"))
    return pa.record_batch({"key": keys, "user_key": numbers, "value": pa.array(values)})


def most_held() -> int:
    """The megabytes that this process held at most; `getrusage` counts those of its parent."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) // 1024


def step(what: str, work: Path) -> None:
    """Do it, and print the seconds, and the megabytes held at most beyond the beginning."""
    lake, engine = Catalog(work / "lake"), LocalEngine()
    before = most_held()
    began = time.perf_counter()
    if what == "import":
        shutil.rmtree(work / "lake", ignore_errors=True)
        import_snapshot(lake, str(work / "savepoint"), "j", snapshot_id="s", engine=engine)
    else:
        shutil.rmtree(work / what, ignore_errors=True)
        most = 100 if what == "rescale" else None
        export_snapshot(lake, "j", "s", work / what, max_parallelism=most, engine=engine)
    took = time.perf_counter() - began
    print(took, most_held() - before)


def measured(what: str, work: Path) -> tuple[float, int]:
    """The best of three runs: seconds, and megabytes."""
    command = [sys.executable, "-m", "benchmarks.hot_key_group", "--step", what, "--at", str(work)]
    runs = [
        subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        for _ in range(3)
    ]
    return min(float(took) for took, _ in runs), min(int(held) for _, held in runs)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=4_000_000)
    parser.add_argument("--rocksdb", action="store_true", help="in RocksDB's own files")
    parser.add_argument("--step", default="")
    parser.add_argument("--at", type=Path, default=Path())
    given = parser.parse_args()
    if given.step:
        step(given.step, given.at)
        return
    with tempfile.TemporaryDirectory() as name:
        for hot in (True, False):
            rows = batches(given.entries, hot=hot)
            state = NewKeyedState("map", rows, kind="map", user_key="Long", value="String")
            operator = NewOperator("op", "Long", (state,), parallelism=2, max_parallelism=128)
            written = Path(name, str(hot), "savepoint")
            canonical = Path(name, str(hot), "canonical") if given.rocksdb else written
            write_snapshot(canonical, [operator])
            if given.rocksdb:
                rocksdb_checkpoint([canonical], written)
                shutil.rmtree(canonical)
        print("| what | one key group | spread evenly | times as long | times the memory |")
        print("|---|---:|---:|---:|---:|")
        for what in STEPS[:1] if given.rocksdb else STEPS:
            (hot_took, hot_held), (took, held) = (
                measured(what, Path(name, str(hot))) for hot in (True, False)
            )
            print(
                f"| {what} | {hot_took:.2f} s, {hot_held} MB | {took:.2f} s, {held} MB"
                f" | {hot_took / took:.2f} | {hot_held / held:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
