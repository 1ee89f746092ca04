"""SQL rows into Arrow, against Flink's own reader: `python -m benchmarks.rowdata_decode`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.measuring import Row, compare, print_table, seconds
from benchmarks.peer import StateProcessor
from statelake import open_snapshot

ENTRIES = 1_000_000
WANTED = 20


def measure(work: Path, entries: int = ENTRIES) -> list[Row]:
    """One `ValueState` of rows with six fields, by `String`; both read the same savepoint."""
    peer = StateProcessor(program="RowDataBench", modules=("flink-table-runtime",))
    path = work / "rows"
    peer.run("write", backend="hashmap", entries=entries, to=path.as_uri())
    theirs = min(peer.run("read", backend="hashmap", savepoint=path.as_uri()) for _ in range(2))
    ours = seconds(lambda: open_snapshot(path).operator("orders").state("order").to_arrow(), 5)
    return [compare("`to_arrow()`", entries, ours, theirs, f"{peer.name} read", WANTED)]


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=ENTRIES)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rows = measure(Path(name), given.entries)
    print_table(f"{given.entries:,} rows of 6 mixed fields by `String`", rows)


if __name__ == "__main__":
    main()
