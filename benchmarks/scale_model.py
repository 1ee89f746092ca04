"""What import, export and rescale of much state take: `python -m benchmarks.scale_model`.

A model of time and cost, from what `RUNS` and `ASSUMED` hold, and nowhere else. The first run of
each operation by one executor gives its rate; the others are what predictions are held against.
`docs/scale.md` has the tables that this prints, and a test keeps them the same.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from statelake.pipelines.lake.ingest.large_slices import HUGE_BYTES

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
OPERATIONS = ("import", "export", "rescale")


@dataclass(frozen=True)
class Run:
    """A run of `python -m benchmarks.cluster`.

    Attributes:
        operation: What was done.
        gigabytes: The savepoint's bytes.
        executors: Executors of one core.
        seconds: How long it took.
        executor_megabytes: The memory that an executor held at most.
        calm: Whether the machine did nothing else.
    """

    operation: str
    gigabytes: float
    executors: int
    seconds: float
    executor_megabytes: int
    calm: bool = True


@dataclass(frozen=True)
class Store:
    """What an object store gives, and what it and a core cost; assumed, not measured.

    Attributes:
        megabytes: A second, for each core.
        latency: Seconds until a request's answer begins.
        at_once: Requests of a task that are under way at once.
        write_price: Dollars for 1,000 PUT, POST or LIST.
        read_price: Dollars for 1,000 GET or HEAD.
        core_price: Dollars for an hour of a core.
    """

    megabytes: float = 100
    latency: float = 0.03
    at_once: int = 4
    write_price: float = 0.005
    read_price: float = 0.0004
    core_price: float = 0.05


RUNS = (
    Run("import", 5.2, 1, 22.5, 788),
    Run("import", 5.2, 2, 14.0, 786),
    Run("import", 16.8, 2, 36.9, 845),
    Run("export", 5.2, 1, 32.6, 1100),
    Run("export", 5.2, 2, 18.5, 1092),
    Run("export", 16.8, 2, 59.4, 1285),
    Run("rescale", 5.2, 1, 36.4, 1255),
    Run("rescale", 5.2, 2, 22.8, 1153),
)
ASSUMED = Store()

SIZES = (100, 1_000, 10_000)  # gigabytes
EXECUTORS = (10, 100)
CORES = 4  # of an executor in these
START = 30.0  # seconds until executors have unpacked what they need
LAKE_SHARE = 0.28  # the lake's bytes of the savepoint's, with the values of `benchmarks.cluster`
BUCKETS = 128  # a table's; a slice of an import has whole ones
SUBTASK_GIGABYTES = 10  # of the job; in a store one task writes a subtask's file
IMPORT_SLICE, EXPORT_SLICE = 64e6, 128e6
GET_BYTES, PUT_BYTES = 4 << 20, 10 << 20
RUN_BYTES = 0.46e6  # what is read at once of a spill file, where 128 key groups become 100


@dataclass(frozen=True)
class Prediction:
    """What an operation takes: seconds, dollars, and how many cores have work all along."""

    seconds: float
    dollars: float
    busy: int


def seconds_per_gigabyte(operation: str) -> float:
    """What a core takes for a gigabyte of savepoint, from and to a local disk."""
    run = next(run for run in RUNS if run.operation == operation and run.executors == 1)
    return run.seconds / run.gigabytes


def slices(operation: str, gigabytes: float, *, in_store: bool) -> list[int]:
    """How many tasks run side by side, in each half of the work of a rescale; of one large state.

    A rescale sorts entries into spill files first, and then gathers them. In a store one task
    reads all of a bucket, or writes all of a subtask's file.
    """
    if operation == "import":
        pieces = max(1, math.ceil(gigabytes * 1e9 / IMPORT_SLICE))
        in_pieces = not in_store and gigabytes * 1e9 / BUCKETS > HUGE_BYTES
        return [pieces if in_pieces else min(BUCKETS, pieces)]
    subtasks = max(8, math.ceil(gigabytes / SUBTASK_GIGABYTES))
    cut = max(1, math.ceil(gigabytes * 1e9 / EXPORT_SLICE))
    written = subtasks if in_store else cut
    return [cut, written] if operation == "rescale" else [written]


def traffic(operation: str, gigabytes: float) -> tuple[float, float, float]:
    """The gigabytes that an operation reads and writes, and those it writes to spill files."""
    lake = gigabytes * LAKE_SHARE
    read, written = (gigabytes, lake) if operation == "import" else (lake, gigabytes)
    return read, written, gigabytes if operation == "rescale" else 0


def predict(operation: str, gigabytes: float, cores: int, store: Store | None = None) -> Prediction:
    """Predict an operation; its slices are as large as each other.

    Args:
        operation: `import`, `export` or `rescale`.
        gigabytes: The savepoint's bytes.
        cores: Of all executors.
        store: Where savepoint and lake are; a local disk by default, with executors that run.
    """
    counts = slices(operation, gigabytes, in_store=store is not None)
    work = gigabytes * seconds_per_gigabyte(operation)
    seconds, requests = 0.0, 0.0
    if store is not None:
        read, written, spilled = traffic(operation, gigabytes)
        gets = read * 1e9 / GET_BYTES + spilled * 1e9 / RUN_BYTES
        puts = (written + spilled) * 1e9 / PUT_BYTES
        work += (read + written + 2 * spilled) * 1e3 / store.megabytes
        work += (gets + puts) * store.latency / store.at_once
        requests = (gets * store.read_price + puts * store.write_price) / 1e3
        seconds = START
    seconds += sum(work / len(counts) / count * math.ceil(count / cores) for count in counts)
    dollars = requests + cores * seconds / 3600 * (store.core_price if store else 0)
    return Prediction(seconds, dollars, min(cores, *counts))


def table_of_runs() -> Iterator[str]:
    """Predictions beside runs; the rates are from those of one executor, the first of each."""
    yield "| what | savepoint | executors | predicted | measured | of it | executor's memory |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for run in RUNS:
        predicted = predict(run.operation, run.gigabytes, run.executors).seconds
        busy = "" if run.calm else " (busy machine)"
        yield (
            f"| {run.operation} | {run.gigabytes:g} GB | {run.executors} | {predicted:.1f} s"
            f" | {run.seconds:.1f} s{busy} | {run.seconds / predicted:.2f}"
            f" | {run.executor_megabytes:,} MB |"
        )


def table_of_sizes() -> Iterator[str]:
    """What much state takes in an object store."""
    heads = [f"{executors} executors" for executors in EXECUTORS]
    yield f"| what | state | {' | '.join(heads)} |"
    yield f"|---|---:|{'---:|' * len(EXECUTORS)}"
    for operation in OPERATIONS:
        for gigabytes in SIZES:
            cells = [
                _cell(predict(operation, gigabytes, executors * CORES, ASSUMED))
                for executors in EXECUTORS
            ]
            yield f"| {operation} | {_size(gigabytes)} | {' | '.join(cells)} |"


def _cell(predicted: Prediction) -> str:
    minutes = f"{predicted.seconds / 60:,.1f} min"
    return f"{minutes}, {predicted.dollars:,.2f} $, {predicted.busy} cores"


def _size(gigabytes: int) -> str:
    return f"{gigabytes} GB" if gigabytes < 1000 else f"{gigabytes / 1000:g} TB"


def with_tables(page: str) -> str:
    """The page with the tables as they are now."""
    for name, table in (("runs", table_of_runs()), ("sizes", table_of_sizes())):
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, _, rest = page.partition(begin)
        lines = "\n".join(table)
        page = f"{before}{begin}\n{lines}\n{end}{rest.partition(end)[2]}"
    return page


def main() -> None:
    """Print both tables, or put them into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"put them into {PAGE.name}")
    if parser.parse_args().write:
        PAGE.write_text(with_tables(PAGE.read_text("utf-8")), "utf-8")
    else:
        print("\n".join([*table_of_runs(), "", *table_of_sizes()]))


if __name__ == "__main__":
    main()
