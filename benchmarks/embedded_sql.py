"""Queries over a large state, each a whole process: `python -m benchmarks.embedded_sql`.

`ValueState<Long>` by `String`. DuckDB answers within the command's own process; beside it the same
statement on Spark. Over 5,000,000 entries it is to take less than 1.5 s, over 40,000,000 less than
5 s.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.audit import make_lake
from benchmarks.measuring import Row, print_table
from benchmarks.small_matters import run

REPEAT = 3
STATEMENTS = (
    "SELECT count(*), sum(value) FROM counter.count",
    "SELECT key_group, max(value) FROM counter.count GROUP BY 1 ORDER BY 2 DESC LIMIT 5",
    "SELECT * FROM counter.count WHERE key = 'key-000000000042'",
)


def measure(work: Path, entries: int) -> list[Row]:
    """A row for each statement: the slowest of some runs behind the first, for warm caches."""
    lake = make_lake(work, entries, 1)
    words = ("sql", "--lake", lake.location, "--job", "orders", "--as-of", "s0")
    rows = []
    for statement in STATEMENTS:
        runs = [run(*words, statement) for _ in range(REPEAT + 1)][1:]
        took, memory = max(ran.seconds for ran in runs), max(ran.memory for ran in runs)
        on_spark = run(*words, "--engine", "spark", statement).seconds
        rows.append(
            Row(f"`{statement}`", f"{took:.2f} s, {memory:.0f} MB", f"Spark {on_spark:.2f} s",
                on_spark / took)
        )  # fmt: skip
    return rows


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=5_000_000)
    parser.add_argument("--dir", default=None, help="where to put some gigabytes meanwhile")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as name:
        rows = measure(Path(name), given.entries)
    print_table(f"SQL over {given.entries:,} entries of `ValueState<Long>` by `String`", rows)


if __name__ == "__main__":
    main()
