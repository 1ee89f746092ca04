"""Erasing from many snapshots, and the audit's speed: `python -m benchmarks.audit [--entries N]`.

A state of `Long` by `String` in a lake of many snapshots, each of which changes one key group, and
shares all other files with the one before. Erasing is held against what it takes to write the files
that hold the keys once: reading them, leaving the rows out, and encoding, hashing and writing the
rest. The audit is held against 500 MB a second, of a warm cache: the bytes of the files and what
they unpack to, all of which is searched.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from benchmarks.measuring import Row, print_table
from statelake import NewKeyedState, NewOperator, write_snapshot
from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot, rewrite_pieces
from statelake.pipelines.lake.edit.sql_editing import edit_by_sql
from statelake.pipelines.lake.erase.auditing import audit_erasure
from statelake.pipelines.lake.erase.erasing import erase
from statelake.pipelines.lake.erase.planning import Planner, records_of
from statelake.pipelines.lake.erase.requests import ErasureRequest
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.requests.imports import Import

WANTED_BYTES = 500e6


def make_lake(work: Path, entries: int, snapshots: int) -> Catalog:
    """A lake with so many snapshots of a state of so many entries."""
    keys = [f"key-{number:012d}" for number in range(entries)]
    rows = pa.table({"key": keys, "value": pa.array(range(entries), pa.int64())})
    state = NewKeyedState("count", rows, value="Long")
    write_snapshot(work / "savepoint", [NewOperator("counter", "String", (state,), parallelism=4)])
    lake = Catalog(work / "lake")
    import_snapshot(
        lake, str(work / "savepoint"), "orders", Import(uids=("counter",)), snapshot_id="s0",
        engine=LocalEngine(),
)  # fmt: skip
    for number in range(1, snapshots):
        changed = f"key_group = {number % 128}"
        statement = f"UPDATE counter.count SET value = value + 1 WHERE {changed}"  # noqa: S608
        edit_by_sql(ChildSnapshot(lake, "orders", f"s{number - 1}", f"s{number}"), [statement])
    return lake


def measure(work: Path, entries: int, snapshots: int) -> list[Row]:
    """Erasures of 1, 100 and 10,000 keys, each of a copy of the lake, and an audit."""
    made = make_lake(work, entries, snapshots)
    rows = []
    for count in (1, 100, 10_000):
        copy = work / f"lake-{count}"
        shutil.copytree(made.directory.root, copy)
        keys = [f"key-{number * (entries // count):012d}" for number in range(count)]
        asked = ErasureRequest("benchmark", keys)
        lake = Catalog(copy)
        began = time.perf_counter()
        written = erase(lake, asked).content
        took = time.perf_counter() - began
        again = Catalog(made.directory.root)
        once = _write_once(again, asked)
        rows.append(
            Row(f"erase {count:,} keys from {snapshots} snapshots, {written['files']} files",
                f"{took:.2f} s", f"files written once {once:.2f} s", once / took, 0.5)
        )  # fmt: skip
        if count == 1:
            rows.append(_audit(lake, asked))
        shutil.rmtree(copy)
    return rows


def _write_once(lake: Catalog, asked: ErasureRequest) -> float:
    """The time to read, encode and write the files that hold the keys."""
    planner = Planner(lake, asked, records_of(lake, []), LocalEngine())
    _, files = planner.find()
    planner.close()
    token = os.urandom(8).hex()
    tasks = [replace(file.task, prefix=f"{token}/{number}") for number, file in enumerate(files)]
    began = time.perf_counter()
    LocalEngine().map(rewrite_pieces, tasks)
    took = time.perf_counter() - began
    for file in files:
        lake.table(file.table).directory.delete_tree(f"_data/{token}")
    return took


def _audit(lake: Catalog, asked: ErasureRequest) -> Row:
    audit_erasure(lake, asked)  # the cache is warm then
    began = time.perf_counter()
    result = audit_erasure(lake, asked)
    took = time.perf_counter() - began
    searched = result.file_bytes + result.unpacked_bytes
    return Row(
        f"audit of {result.file_bytes / 1e6:,.0f} MB in {result.files:,} files, which unpack to"
        f" {result.unpacked_bytes / 1e6:,.0f} MB",
        f"{took:.2f} s, {searched / took / 1e6:,.0f} MB/s",
        f"wanted {WANTED_BYTES / 1e6:,.0f} MB/s", searched / took / WANTED_BYTES, 1,
    )  # fmt: skip


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=5_000_000)
    parser.add_argument("--snapshots", type=int, default=100)
    parser.add_argument("--dir", default=None, help="where to put some gigabytes meanwhile")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as name:
        rows = measure(Path(name), given.entries, given.snapshots)
    print_table(f"{given.entries:,} entries of `ValueState<Long>` by `String`", rows)


if __name__ == "__main__":
    main()
