"""An import and an export against an earlier commit: `python -m benchmarks.against COMMIT`.

Whole processes, in pairs in turn: the processor time that each took, since other programs of the
machine change that less, and the time on the clock. Kernels are compiled, and files read, before
the first pair.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.measuring import Row, print_table
from benchmarks.startup import run
from statelake import NewKeyedState, NewOperator, write_snapshot

HERE = Path(__file__).parents[1]


def make_savepoint(path: Path, entries: int) -> None:
    """Write `ValueState<Long>` by `String`."""
    numbers = pa.array(np.arange(entries))
    keys = pa.array([f"key-{number:012d}" for number in range(entries)])
    count = NewKeyedState("count", pa.table({"key": keys, "value": numbers}), value="Long")
    write_snapshot(path, [NewOperator("counter", "String", (count,), parallelism=2)])


def command(tree: Path, *words: str) -> tuple[float, float]:
    """Seconds, and seconds of CPU time, of the command in a tree of this repository."""
    package = "statelake.pipelines" if (tree / "statelake").is_dir() else "pipelines"
    program = f"from {package}.cli.main import main; main()"
    return run(("-c", program, *words), tree)


def measure(earlier: Path, work: Path, pairs: int, entries: int) -> list[Row]:
    """The medians of each, and of the ratios of pairs."""
    savepoint = work / "savepoint"
    make_savepoint(savepoint, entries)

    def lake_of(tree: Path, number: int) -> str:
        return str(work / f"lake-{number}-{'here' if tree == HERE else 'earlier'}")

    def importing(tree: Path, number: int) -> tuple[float, float]:
        words = ("--lake", lake_of(tree, number), "--job", "j", "--engine", "local")
        return command(tree, "import", str(savepoint), *words)

    def exporting(tree: Path, number: int) -> tuple[float, float]:
        lake = lake_of(tree, number)
        words = ("--lake", lake, "--job", "j", "--engine", "local")
        return command(tree, "export", *words, "--to", f"{lake}-export")

    rows = []
    work_of: dict[str, Callable[[Path, int], tuple[float, float]]] = {
        "import": importing,
        "export": exporting,
    }
    for what, take in work_of.items():
        taken = [[take(tree, number) for tree in (HERE, earlier)] for number in range(pairs + 1)]
        for clock, column in (("CPU", 1), ("wall", 0)):
            pairs_of = [(here[column], before[column]) for here, before in taken[1:]]
            ours, theirs = (statistics.median(each) for each in zip(*pairs_of, strict=True))
            ratio = statistics.median(before / here for here, before in pairs_of)
            rows.append(Row(f"`{what}`", f"{clock} {ours:.2f} s", f"{clock} {theirs:.2f} s", ratio))
    return rows


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="the earlier commit")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--entries", type=int, default=5_000_000)
    given = parser.parse_args()
    git = ["git", "-C", str(HERE)]
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name, "tree")
        subprocess.run(
            [*git, "worktree", "add", "--quiet", "--detach", tree, given.commit], check=True
        )
        try:
            rows = measure(tree, Path(name), given.pairs, given.entries)
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", tree], check=True)
    print_table(f"Whole processes, {given.entries:,} entries, against {given.commit}", rows)


if __name__ == "__main__":
    main()
