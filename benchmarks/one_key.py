"""One key of a large snapshot, as a whole process: `python -m benchmarks.one_key [--entries N]`.

`ValueState<byte[]>` by `String`, keys of 96 and values of 128 bytes, 128 key groups, in each form:
a canonical savepoint, checkpoints of the heap's and of RocksDB's own format, and a lake. Beside it
what it costs to read everything and to keep the key's rows, in a process too.

40,000,000 entries are 8.8 GB in each form; `get` is to take less than 2 s and 500 MB of each.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import Row, print_table
from benchmarks.small_matters import PEAK, run
from statelake.pipelines.bootstrap.bootstrapping import bootstrap
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata, write_metadata
from statelake.state_core.runtime.backends import (
    BackendConfiguration,
    heap_backend,
    restore_backend,
    rocksdb_backend,
)
from tests.support.savepoints.native_checkpoints import native_checkpoint

KEY_BYTES, VALUE_BYTES = 96, 128
MAX_PARALLELISM = 128
SUBTASKS = 32
BATCH = 1 << 18
REPEAT = 3
CANONICAL, HEAP, ROCKSDB, LAKE = "canonical savepoint", "heap", "RocksDB", "lake"
READ_ALL = """
import sys
import pyarrow.compute as pc
from statelake import open_snapshot
path, key = sys.argv[1:]
rows = open_snapshot(path).operator("counter").state("blob").batches(columns=["key", "value"])
print(sum(pc.sum(pc.equal(batch.column("key"), key)).as_py() or 0 for batch in rows))
"""
READ_ALL_FILES = """
import sys
from pathlib import Path
import pyarrow.compute as pc, pyarrow.parquet as pq
path, key = sys.argv[1:]
found = 0
for file in Path(path).rglob("*.parquet"):
    if "snapshots" not in file.parts:
        for batch in pq.ParquetFile(file).iter_batches(columns=["key", "value"]):
            found += pc.sum(pc.equal(batch.column("key"), key)).as_py() or 0
print(found)
"""


def key_of(number: int) -> str:
    """The key of a number."""
    return f"key-{number:012d}".ljust(KEY_BYTES, "x")


def rows_of(entries: int, seed: int = 7) -> Iterator[pa.Table]:
    """Keys and values, a batch at a time; no value can be compressed."""
    random = np.random.default_rng(seed)
    for first in range(0, entries, BATCH):
        count = min(BATCH, entries - first)
        numbers = np.char.zfill(np.arange(first, first + count).astype("S12"), 12)
        keys = np.char.ljust(np.char.add(b"key-", numbers), KEY_BYTES, b"x")
        bounds = np.arange(0, count * KEY_BYTES + 1, KEY_BYTES, dtype=np.int32)
        text = pa.Array.from_buffers(
            pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(keys.tobytes())]
        )
        data = random.bytes(count * VALUE_BYTES)
        bounds = np.arange(0, count * VALUE_BYTES + 1, VALUE_BYTES, dtype=np.int32)
        values = pa.Array.from_buffers(
            pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
        )
        yield pa.table({"key": text, "value": values})


def write_canonical(work: Path, entries: int) -> Path:
    """The savepoint, written as `statelake bootstrap` writes one."""
    source, path = work / "rows.parquet", work / "canonical"
    with pq.ParquetWriter(source, next(rows_of(1)).schema, compression="none") as file:
        for rows in rows_of(entries):
            file.write_table(rows)
    state = {"type": "byte[]", "source": str(source), "key": "key"}
    operator = {"key_type": "String", "states": {"blob": state}}
    bootstrap(
        None,
        {
            "parallelism": SUBTASKS,
            "max_parallelism": MAX_PARALLELISM,
            "operators": {"counter": operator},
        },
        path,
        engine="local",
        metadata_version=6,
    )
    source.unlink()
    return path


def write_native(canonical: Path, path: Path, make: Callable[..., Any]) -> Path:
    """The same state as a backend's own checkpoint, a subtask after the other."""
    directory, source = Directory(path), Directory(canonical)
    directory.create()
    shared = directory.child("shared")
    shared.create()
    metadata = read_metadata((canonical / "_metadata").read_bytes())
    (operator,) = metadata.operators
    subtasks = {}
    for index, subtask in (operator.subtasks or {}).items():
        handle = subtask.managed_keyed
        if handle is None:
            continue
        backend = make(BackendConfiguration("String", handle.key_groups, MAX_PARALLELISM))
        restore_backend(backend, [handle], source)
        native = native_checkpoint(backend, directory, shared)
        subtasks[index] = replace(subtask, managed_keyed=native)
        backend.close()
    metadata.operators[0] = replace(operator, subtasks=subtasks)
    (path / "_metadata").write_bytes(write_metadata(metadata))
    return path


def read_all(program: str, path: Path, key: str) -> tuple[float, float]:
    """A process that reads everything and keeps a key's rows: its seconds, and its peak in MB."""
    began = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-c", PEAK + program, str(path), key],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    took = time.perf_counter() - began
    if ended.stdout.split() != ["1"]:
        raise RuntimeError(f"{ended.stdout.strip()} rows of the key, and there is 1")
    return took, int(ended.stderr.split()[-1]) / 1000


def write_all(work: Path, entries: int) -> dict[str, Path]:
    """The same state in each form: where it is. What was written before is used again."""
    names = {CANONICAL: "canonical", HEAP: "heap", ROCKSDB: "rocksdb", LAKE: "lake"}
    places = {form: work / name for form, name in names.items()}
    written = work / f"{entries}-entries"
    if not written.exists():
        write_canonical(work, entries)
        write_native(places[CANONICAL], places[HEAP], heap_backend)
        write_native(places[CANONICAL], places[ROCKSDB], rocksdb_backend)
        import_snapshot(Catalog(places[LAKE]), str(places[CANONICAL]), "bench", engine="local")
        written.touch()
    return places


def measure(places: dict[str, Path], entries: int) -> list[Row]:
    """A row for each form: the slowest of some keys, each once for warm caches."""
    keys = [key_of(number) for number in (0, entries // 2, entries - 1)]
    rows = []
    for form, path in places.items():
        where = ("--lake", str(path), "--job", "bench") if form == LAKE else (str(path),)
        runs = [
            run("get", *where, "--key", key) for _ in range(REPEAT) for key in keys
        ]  # the first of them pays for cold files
        took, memory = max(ran.seconds for ran in runs[1:]), max(ran.memory for ran in runs)
        program = READ_ALL_FILES if form == LAKE else READ_ALL
        theirs, their_memory = read_all(program, path, keys[1])
        rows.append(
            Row(
                f"`get` from the {form}",
                f"{took:.2f} s, {memory:.0f} MB",
                f"everything read {theirs:.2f} s, {their_memory:.0f} MB",
                theirs / took,
            )
        )
        print(f"{form}: first {runs[0].seconds:.2f} s, slowest after it {took:.2f} s", flush=True)
    return rows


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=5_000_000)
    parser.add_argument(
        "--dir", type=Path, help="where to put five times the state, for this run and others"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = given.dir or Path(name)
        work.mkdir(parents=True, exist_ok=True)
        rows = measure(write_all(work, given.entries), given.entries)
    print_table(f"One key of {given.entries:,}, keys of 96 and values of 128 bytes", rows)


if __name__ == "__main__":
    main()
