"""The first minute: inspecting, a small import, and what commands cost to start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measuring import Row

SMALL = Path(__file__).parents[1] / "pipelines" / "demo" / "savepoints" / "monday"


def run(*words: str) -> tuple[float, float]:
    """Run the command in a process of its own; its seconds and its peak memory in MB."""
    command = [sys.executable, "-m", "pipelines.cli", *words]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - began
    if status:
        raise RuntimeError(f"{' '.join(words)} failed")
    return took, usage.ru_maxrss / 1000


def measure(work: Path, large: Path) -> list[Row]:
    """Processes from start to end, twice each, so that caches are warm as a user's are."""
    rows = []
    for what, path in (("the small savepoint", SMALL), ("the large savepoint", large)):
        run("inspect", str(path))
        took, memory = run("inspect", str(path))
        rows.append(Row(f"`inspect` of {what}", f"{took:.2f} s, {memory:.0f} MB"))
    for _ in range(2):
        lake = work / "lake-small"
        shutil.rmtree(lake, ignore_errors=True)
        took, memory = run("import", str(SMALL), "--lake", str(lake), "--job", "small")
    rows.append(Row("`import` of the small savepoint, 9 states", f"{took:.2f} s, {memory:.0f} MB"))
    lake = work / "lake-large"
    took, memory = run(
        "import", str(large), "--lake", str(lake), "--job", "large", "--engine", "local"
    )
    rows.append(Row("`import` of the large savepoint", f"{took:.2f} s, {memory:.0f} MB"))
    return rows
