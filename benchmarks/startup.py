"""What it costs to start the command: `python -m benchmarks.startup`.

Whole processes, one after the other and all of them over and over, so that what else the machine
does meets each alike. CPU time is what they took of it, whoever else took the rest.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measuring import Row, print_table

HERE = Path(__file__).parents[1]
SAVEPOINT = HERE / "pipelines" / "cli" / "demo" / "savepoints" / "monday"
COMMAND = "from statelake.pipelines.cli.main import main; main()"
BARE, LIBRARIES = "a bare Python", "`import numpy, pyarrow`"
PROGRAMS = {
    BARE: ("-c", "pass"),
    LIBRARIES: ("-c", "import numpy, pyarrow"),
    "`statelake --help`": ("-c", COMMAND, "--help"),
    "`statelake --version`": ("-c", COMMAND, "--version"),
    "`statelake inspect` of a small savepoint": ("-c", COMMAND, "inspect", str(SAVEPOINT)),
}
PEERS = {name: LIBRARIES if "inspect" in name else BARE for name in PROGRAMS}
REPEAT = 11


def run(arguments: tuple[str, ...], tree: Path = HERE) -> tuple[float, float]:
    """One process, with the modules of a tree: its seconds, and its seconds of CPU time."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments], check=True, cwd=tree, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(repeat: int = REPEAT) -> list[Row]:
    """The medians of each, beside those of what it can't be quicker than."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in PROGRAMS}
    for _ in range(repeat + 1):  # the first has its files to read from the disk
        for name, arguments in PROGRAMS.items():
            taken[name].append(run(arguments))
    medians = {
        name: [statistics.median(column) for column in zip(*runs[1:], strict=True)]
        for name, runs in taken.items()
    }
    return [
        Row(
            name,
            _text(medians[name]),
            f"{PEERS[name]} {_text(medians[PEERS[name]])}",
            medians[PEERS[name]][1] / medians[name][1],
        )
        for name in PROGRAMS
        if name not in (BARE, LIBRARIES)
    ]


def _text(median: list[float]) -> str:
    return f"{median[0]:.2f} s (CPU {median[1]:.2f} s)"


if __name__ == "__main__":
    print_table("From nothing to the end of the command", measure())
