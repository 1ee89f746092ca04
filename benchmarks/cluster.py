"""A cluster of one and of two executors: `python -m benchmarks.cluster [--gigabytes N] [--hot]`.

A standalone cluster of Spark's on this machine, each executor with one core. Time of import, export
and rescale (an export to other key groups); the resident memory that an executor held at most (its
JVM and its Python workers) and the driver (Python and JVM); and how much faster two executors are
than one. With `--hot`: one key group that has nearly all bytes, against the same bytes spread
evenly. What was written is removed. It takes up to five times the savepoint's bytes on the disk.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from typing_extensions import Self

from statelake.state_core.formats.writing.new_snapshot import write_snapshot
from statelake.state_core.formats.writing.new_states import NewKeyedState, NewOperator
from tests.integration.spark.cluster import SparkCluster
from tests.integration.spark.driver import SparkDriver

KEYS, BATCH, VALUE_BYTES = 100_000, 100_000, 128
ENTRY_BYTES = 2 + 8 + 1 + 8 + 1 + 2 + VALUE_BYTES  # about: prefix, key, namespace, user key, value
SUBTASKS, KEY_GROUPS, OTHER_KEY_GROUPS = 8, 128, 100
STEPS = ("import", "export", "rescale")
SAMPLE_SECONDS = 0.5
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SMALL, WARM_UPS = 100_000_000, 10
LAKE = ("--lake", "lake", "--job", "j")
COMMANDS = {
    "import": ("import", "savepoint", *LAKE, "--snapshot", "s"),
    "export": ("export", *LAKE, "--snapshot", "s", "--to", "out"),
    "rescale": ("export", *LAKE, "--snapshot", "s", "--to", "out",
                "--max-parallelism", str(OTHER_KEY_GROUPS)),
}  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """A step: the seconds that it took, and bytes of memory that were held at most."""

    seconds: float
    executor: int
    driver: int


def batches(size: int, *, hot: bool) -> Iterator[pa.RecordBatch]:
    """Entries of a map by one key, and a few by many others; or by all alike.

    Args:
        size: About how many bytes they come to.
        hot: Whether one key has nearly all.
    """
    random = np.random.default_rng(1)
    offsets = np.arange(BATCH + 1, dtype=np.int32) * VALUE_BYTES
    entries = max(KEYS, size // ENTRY_BYTES)
    for first in range(0, entries, BATCH):
        numbers = np.arange(first, first + BATCH)
        text = np.full((BATCH, VALUE_BYTES), ord("-"), np.uint8)
        # half of each value is the same everywhere, the other half compresses to five eighths
        letters = random.integers(ord("a"), ord("z") + 1, (BATCH, VALUE_BYTES // 2), np.uint8)
        text[:, VALUE_BYTES // 2 :] = letters
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
        values = pa.StringArray.from_buffers(BATCH, buffers[1], buffers[2])
        keys = np.zeros(BATCH, np.int64) if hot and first else numbers % KEYS
        yield pa.record_batch({"key": keys, "user_key": numbers, "value": values})


def write_savepoint(to: Path, size: int, *, hot: bool) -> int:
    """Write a savepoint of about so many bytes; how many it has."""
    state = NewKeyedState(
        "map", batches(size, hot=hot), kind="map", user_key="Long", value="String"
    )
    operator = NewOperator("op", "Long", (state,), parallelism=SUBTASKS, max_parallelism=KEY_GROUPS)
    return write_snapshot(to, [operator]).size


class MemoryWatch:
    """The most memory that trees of processes held, looked at now and then; use it in `with`.

    Args:
        roots: The processes at the roots of the trees, at a moment.
    """

    def __init__(self, roots: Callable[[], Sequence[int]]) -> None:
        self._roots = roots
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.most: dict[int, int] = defaultdict(int)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            children, resident = processes()
            for root in self._roots():
                held, below = 0, [root]
                while below:
                    process = below.pop()
                    held += resident.get(process, 0)
                    below += children[process]
                self.most[root] = max(self.most[root], held)


def processes() -> tuple[dict[int, list[int]], dict[int, int]]:
    """The children of each process of this machine, and its resident bytes.

    What a fork shares with its parent counts for both.
    """
    children: dict[int, list[int]] = defaultdict(list)
    resident: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            process = int(path.name)
            fields = (path / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            children[int(fields[1])].append(process)
            resident[process] = int(fields[21]) * PAGE_BYTES
    return children, resident


def run_steps(work: Path, steps: Sequence[str], executors: int, memory: str) -> dict[str, Measured]:
    """Run steps over the savepoint in a directory, by that many executors of one core.

    Args:
        work: The directory.
        steps: The steps.
        executors: How many executors.
        memory: The memory of an executor's JVM, as Spark has it.
    """
    settings = {"spark.cores.max": str(executors), "spark.executor.memory": memory}
    measured = {}
    with SparkCluster() as cluster, SparkDriver(cluster, work, settings) as driver:
        warm_up(cluster, driver, executors)
        for step in steps:
            shutil.rmtree(work / "out", ignore_errors=True)
            if step == "import":
                shutil.rmtree(work / "lake", ignore_errors=True)
            os.sync()  # or what was written before is written to the disk meanwhile
            with MemoryWatch(lambda: [driver.process.pid, *cluster.executor_processes]) as held:
                ran = driver.run(*COMMANDS[step])
            of_driver = held.most.pop(driver.process.pid)
            if len(held.most) != executors:
                raise RuntimeError(f"{len(held.most)} executors ran, not {executors}")
            print(f"\n{ran.printed}", flush=True)
            measured[step] = Measured(ran.seconds, max(held.most.values()), of_driver)
    for name in ("out", "lake", "warm"):
        shutil.rmtree(work / name, ignore_errors=True)
    return measured


def warm_up(cluster: SparkCluster, driver: SparkDriver, executors: int) -> None:
    """Have each executor do some work: what it does but once is starting, and loading kernels."""
    for attempt in range(WARM_UPS):
        lake = ("--lake", f"warm/{attempt}", "--job", "j")
        driver.run("import", "small", *lake, "--snapshot", "s")
        children, _ = processes()
        if sum(bool(children[executor]) for executor in cluster.executor_processes) == executors:
            return
    raise RuntimeError(f"there are not {executors} executors that work")


def compare_executors(
    work: Path, size: int, counts: Sequence[int], steps: Sequence[str], memory: str
) -> None:
    """Print what each number of executors takes, and how much faster the others are."""
    size = write_savepoint(work / "savepoint", size, hot=False)
    runs = {count: run_steps(work, steps, count, memory) for count in counts}
    print(f"\n### A savepoint of {size / 1e9:.1f} GB, executors of one core\n")
    print("| what | executors | time | rate | times as fast | executor's memory | driver's |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for step in steps:
        base = runs[counts[0]][step].seconds
        for count in counts:
            ran = runs[count][step]
            print(
                f"| {step} | {count} | {ran.seconds:.1f} s | {size / ran.seconds / 1e6:.0f} MB/s"
                f" | {base / ran.seconds:.2f} | {_megabytes(ran.executor)}"
                f" | {_megabytes(ran.driver)} |"
            )


def compare_hot(work: Path, size: int, executors: int, steps: Sequence[str], memory: str) -> None:
    """Print what a hot key group takes, beside the same bytes spread evenly."""
    runs = {}
    for hot in (False, True):
        size = write_savepoint(work / "savepoint", size, hot=hot)
        runs[hot] = run_steps(work, steps, executors, memory)
        shutil.rmtree(work / "savepoint")
    print(f"\n### A key group of {size / 1e9:.1f} GB, {executors} executors of one core\n")
    print("| what | one key group | spread evenly | times as long | executor's memory of each |")
    print("|---|---:|---:|---:|---:|")
    for step in steps:
        one, even = runs[True][step], runs[False][step]
        print(
            f"| {step} | {one.seconds:.1f} s | {even.seconds:.1f} s"
            f" | {one.seconds / even.seconds:.2f}"
            f" | {_megabytes(one.executor)}, {_megabytes(even.executor)} |"
        )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=5)
    parser.add_argument("--executors", default="1,2", help="with --hot, the last counts")
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--hot", action="store_true")
    parser.add_argument("--executor-memory", default="512m", help="of an executor's JVM")
    parser.add_argument("--dir", default=None, help="where to put some gigabytes meanwhile")
    given = parser.parse_args()
    counts = [int(count) for count in given.executors.split(",")]
    steps = [step for step in STEPS if step in given.steps.split(",")]
    size = int(given.gigabytes * 1e9)
    with tempfile.TemporaryDirectory(dir=given.dir) as name:
        work = Path(name)
        write_savepoint(work / "small", SMALL, hot=False)
        if given.hot:
            compare_hot(work, size, counts[-1], steps, given.executor_memory)
        else:
            compare_executors(work, size, counts, steps, given.executor_memory)


if __name__ == "__main__":
    main()
