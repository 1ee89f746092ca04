"""What it costs to bring files to the disk before they are named.

`python -m benchmarks.durability [--entries N]`

An import and an export, each as it is and without a single `fsync`, by turns. An import is to keep
0.9 of its speed; an export waits until the disk has the whole savepoint.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.measuring import Row, compare, print_table, seconds
from statelake.pipelines.bootstrap.bootstrapping import bootstrap
from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot

ROUNDS = 5
JOB = "bench"


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=5_000_000)
    parser.add_argument("--dir", default=None, help="where to put some gigabytes meanwhile")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as name:
        print_table("Bringing files to the disk", measure(Path(name), given.entries))


def measure(work: Path, entries: int) -> list[Row]:
    """The rows of an import and of an export."""
    source, lake = _written(work / "savepoint", entries), work / "lake"
    import_snapshot(Catalog(work / "kept"), str(source), JOB, snapshot_id="s", engine=LocalEngine())

    def import_anew() -> None:
        import_snapshot(Catalog(lake), str(source), JOB, snapshot_id="s", engine=LocalEngine())

    def export_anew() -> None:
        export_snapshot(Catalog(work / "kept"), JOB, "s", work / "to", engine=LocalEngine())

    return [
        _compared("import", entries, import_anew, lake, wanted=0.9),
        _compared("export", entries, export_anew, work / "to", wanted=0.5),
    ]


def _written(to: Path, entries: int) -> Path:
    """A savepoint of `ValueState<Long>` by `String`."""
    keys = pc.binary_join_element_wise("key-", pc.cast(pa.array(range(entries)), pa.string()), "")
    rows = pa.table({"key": keys, "value": range(entries)})
    state = {"type": "Long", "source": "rows", "key": "key", "value": "value"}
    operator = {"key_type": "String", "states": {"sum": state}}
    spec = {"parallelism": 4, "max_parallelism": 128, "operators": {"counter": operator}}
    bootstrap(None, spec, to, sources={"rows": rows}, engine="local")
    return to


def _compared(
    what: str, entries: int, work: Callable[[], None], made: Path, *, wanted: float
) -> Row:
    synced = unsynced = float("inf")
    for _ in range(ROUNDS):  # by turns, as the disk is not as fast at any time
        synced = min(synced, _once(work, made))
        with _without_syncs():
            unsynced = min(unsynced, _once(work, made))
    return compare(f"{what} of {entries:,} entries", entries, synced, unsynced, "unsynced", wanted)


def _once(work: Callable[[], None], made: Path) -> float:
    took = seconds(work, 1)
    shutil.rmtree(made)
    os.sync()  # or the next one waits for what this one has written
    return took


@contextmanager
def _without_syncs() -> Iterator[Any]:
    with mock.patch("os.fsync") as unsynced:
        yield unsynced


if __name__ == "__main__":
    main()
