"""The first minute: inspecting, a small import, and what commands cost to start."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.measuring import Row

SMALL = Path(__file__).parents[1] / "pipelines" / "cli" / "demo" / "savepoints" / "monday"


PEAK = """
import atexit, sys, time
from pathlib import Path
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    print(time.process_time(), file=sys.stderr)
    print(*(line.split()[1] for line in lines if line.startswith("VmHWM")), file=sys.stderr)
atexit.register(peak)
"""
WATCHED = f"""{PEAK}
from statelake.pipelines.cli.main import main
main()
"""


class Ran(NamedTuple):
    """What a process took: seconds, seconds of CPU, and megabytes of memory at most."""

    seconds: float
    busy: float
    memory: float

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s (CPU {self.busy:.2f} s), {self.memory:.0f} MB"


def run(*words: str) -> Ran:
    """Run the command in a process of its own."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *words], capture_output=True, text=True, check=True
    )
    took = time.perf_counter() - began
    *_, busy, peak = done.stderr.split()
    return Ran(took, float(busy), int(peak) / 1000)


def measure(work: Path, large: Path) -> list[Row]:
    """Processes from start to end, twice each, so that caches are warm as a user's are."""
    rows = []
    for what, path in (("the small savepoint", SMALL), ("the large savepoint", large)):
        run("inspect", str(path))
        rows.append(Row(f"`inspect` of {what}", str(run("inspect", str(path)))))
    for name, path in (("small", SMALL), ("large", large)):
        for _ in range(2):
            lake = work / f"lake-{name}"
            shutil.rmtree(lake, ignore_errors=True)
            place = ("--lake", str(lake), "--job", name, "--engine", "local")
            imported = run("import", str(path), *place)
        exported = run("export", *place, "--to", f"{lake}-export")
        rows += [
            Row(f"`{word}` of the {name} savepoint", str(ran))
            for word, ran in (("import", imported), ("export", exported))
        ]
    return rows
