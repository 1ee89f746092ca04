"""The first minute: inspecting, a small import, and what commands cost to start."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measuring import Row

SMALL = Path(__file__).parents[1] / "pipelines" / "cli" / "demo" / "savepoints" / "monday"


PEAK = """
import atexit, sys
from pathlib import Path
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    print(*(line.split()[1] for line in lines if line.startswith("VmHWM")), file=sys.stderr)
atexit.register(peak)
"""
WATCHED = f"""{PEAK}
from statelake.pipelines.cli.main import main
main()
"""


def run(*words: str) -> tuple[float, float]:
    """Run the command in a process of its own; its seconds and its peak memory in MB."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *words], capture_output=True, text=True, check=True
    )
    took = time.perf_counter() - began
    return took, int(done.stderr.split()[-1]) / 1000


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
