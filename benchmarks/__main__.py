"""Run the benchmarks: `python -m benchmarks [--entries N] [--wide-entries N] [--only NAME]`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks import keyed_state, rescaling, small_matters, startup
from benchmarks.measuring import print_table
from statelake.pipelines.spark.session import open_session


def main() -> None:
    """Measure, and print a table for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=5_000_000)
    parser.add_argument("--wide-entries", type=int, default=10_000_000)
    parser.add_argument("--only", choices=["keyed", "rescaling"], default="")
    parser.add_argument("--dir", default=None, help="where to put some gigabytes meanwhile")
    given = parser.parse_args()
    if not given.only:
        print_table("From nothing to the end of the command", startup.measure())
    open_session("benchmarks")
    with tempfile.TemporaryDirectory(dir=given.dir) as name:
        work = Path(name)
        if given.only != "rescaling":
            rows = keyed_state.measure(work, given.entries)
            print_table(f"{given.entries:,} entries of `ValueState<Long>` by `String`", rows)
            large = work / "savepoint-uncompressed"
            print_table("From start to end of the process", small_matters.measure(work, large))
        if given.only != "keyed":
            rows = rescaling.measure(work, given.wide_entries)
            print_table(f"{given.wide_entries:,} entries, keys of 96 and values of 128 bytes", rows)


main()
