"""What an import costs after very many: `python -m benchmarks.many_imports --imports 1000`.

Two savepoints, by default the demo's, are imported in turn, and after each import `retain "20 all"`
drops what is older. Processor seconds are the mean of the last imports before each number, as each
tenth one cleans logs.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.small_matters import SMALL
from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.retention import Policy, prune
from statelake.pipelines.lake.ingest.importing import import_snapshot

JOB = "bench"
KEPT = 20
LAST = 20
"""How many imports the figures are of."""


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--imports", type=int, default=1000)
    parser.add_argument(
        "--savepoints", nargs=2, default=(SMALL, SMALL.with_name("tuesday")), metavar="SAVEPOINT"
    )
    parser.add_argument("--dir", default=None, help="where to put some megabytes meanwhile")
    given = parser.parse_args()
    print("| imports | import | snapshots | retain | peak memory | catalog | whole lake |")
    print("|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    took: list[tuple[float, float, float]] = []
    with tempfile.TemporaryDirectory(dir=given.dir) as name:
        lake = Path(name) / "lake"
        for number in range(given.imports):
            source = str(given.savepoints[number % 2])
            took.append((_import(lake, source, number), _list(lake), _retain(lake)))
            if number + 1 in (10, 20, 30, 50, 100, 300, given.imports):
                means = map(statistics.mean, zip(*took[-LAST:], strict=True))
                figures = " | ".join(f"{seconds:.3f} s" for seconds in means)
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                sizes = " | ".join(map(_size, (lake / "snapshots", lake)))
                print(f"| {number + 1} | {figures} | {peak:.0f} MB | {sizes} |", flush=True)


def _import(lake: Path, source: str, number: int) -> float:
    return _processor_seconds(
        lambda: import_snapshot(
            Catalog(lake), source, JOB, snapshot_id=f"s{number}", engine=LocalEngine()
        )
    )


def _list(lake: Path) -> float:
    return _processor_seconds(lambda: Catalog(lake).summaries(JOB))


def _retain(lake: Path) -> float:
    return _processor_seconds(lambda: prune(Catalog(lake), JOB, Policy.parse(f"{KEPT} all")))


def _processor_seconds(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _size(directory: Path) -> str:
    sizes = [path.stat().st_size for path in directory.rglob("*") if path.is_file()]
    return f"{len(sizes)} files, {sum(sizes) / 1e6:.2f} MB"


if __name__ == "__main__":
    main()
