"""Native snapshots, read as Flink's own reader reads them: `python -m benchmarks.native`.

A job of Flink's writes them, since the State Processor API only writes canonical ones: a checkpoint
of the heap backend, a full one of RocksDB, and an incremental one, which is what production has.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.measuring import Row, compare, print_table, seconds
from benchmarks.peer import StateProcessor
from statelake import open_snapshot

WANTED = 20
FORMS = {
    "heap checkpoint": ("hashmap", "false"),
    "RocksDB checkpoint, full": ("rocksdb", "false"),
    "RocksDB checkpoint, incremental": ("rocksdb", "true"),
}


def newest(directory: Path) -> Path:
    """The last whole checkpoint of the job that wrote here."""
    whole = [path.parent for path in directory.glob("*/chk-*/_metadata")]
    return max(whole, key=lambda path: int(path.name.removeprefix("chk-")))


def measure(work: Path, entries: int) -> list[Row]:
    """A row for each form."""
    writer = StateProcessor(program="NativeBench")
    reader = StateProcessor()
    rows = []
    for form, (backend, incremental) in FORMS.items():
        directory = work / form.replace(" ", "-").replace(",", "")
        writer.run(
            "write", backend=backend, incremental=incremental, entries=entries,
            to=directory.as_uri(),
        )  # fmt: skip
        path = newest(directory)

        def read(path: Path = path) -> None:
            column = open_snapshot(path).operator("counter").state("count").to_arrow()
            if column.num_rows != entries:
                raise RuntimeError(f"{column.num_rows} entries of {entries}")

        theirs = min(reader.run("read", backend=backend, savepoint=path.as_uri()) for _ in range(2))
        ours = seconds(read)
        rows.append(compare(form, entries, ours, theirs, f"{reader.name} read", WANTED))
    return rows


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=5_000_000)
    parser.add_argument("--dir", default=None, help="where to put a gigabyte meanwhile")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as name:
        rows = measure(Path(name), given.entries)
    print_table(f"{given.entries:,} entries of `ValueState<Long>` by `String`", rows)


if __name__ == "__main__":
    main()
