"""All targets in turn, each in processes of its own, and figures of them: `python -m tests.fuzz`.

Where a target can have both, its time is halved: Python runs the kernels in the first half, machine
code in the second. A process that ends before its time is begun anew, with the inputs that were
found until then; what ended it is kept. Below the working directory, in `.fuzz` by default::

    <target>/corpus            inputs that reach something, kept from run to run
    <target>/findings          inputs that are findings, and what each is
    <target>/<mode>.log        what libFuzzer said
    runs.jsonl                 the figures of each run
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.fuzz.targets import INTERPRETED

__all__ = ["Run", "run_target", "table", "total"]

ROOT = Path(__file__).parents[2]
STARTING_SECONDS = 90  # to import, to compile what is not compiled yet, and to run the seeds
LEAST_SECONDS = 5
_COVERAGE = re.compile(r"cov: (\d+)")
_EXECUTIONS = re.compile(r"^(?:#|stat::number_of_executed_units: )(\d+)", re.MULTILINE)
_PEAK = re.compile(r"peak_rss_mb: +(\d+)")
_READY = re.compile(r"ready with (\d+) MiB")


@dataclass(frozen=True)
class Run:
    """What came of a target, in one run or in several.

    Attributes:
        target: Its name.
        mode: `interpreted` or `compiled`: what ran the kernels.
        seconds: How long it ran.
        executions: How many inputs.
        coverage: Places in the code that the seeds and the kept inputs reached at the start.
        covered: The same at the end.
        grown: The most memory, in MiB, beside what was there before the first input.
        crashes: Exceptions that are none of ours, and ends of the process.
        hangs: Inputs that took too long.
    """

    target: str
    mode: str
    seconds: float
    executions: int
    coverage: int
    covered: int
    grown: int
    crashes: int
    hangs: int


def run_target(target: str, directory: Path, seconds: float) -> list[Run]:
    """Run a target for some time: half of it with each mode of kernels, where it has both."""
    place = directory / target
    place.mkdir(parents=True, exist_ok=True)
    runs = []
    modes = ("interpreted", "compiled") if target in INTERPRETED else ("compiled",)
    for mode in modes:
        until = time.monotonic() + seconds / len(modes)
        while (left := until - time.monotonic()) > LEAST_SECONDS or not runs:
            runs.append(_run(target, mode, place, max(left, LEAST_SECONDS)))
            with (directory / "runs.jsonl").open("a", encoding="utf-8") as log:
                log.write(json.dumps(asdict(runs[-1])) + "\n")
            if runs[-1].executions == 0:
                break  # it does not get far: what it said is in its log
    return runs


def _run(target: str, mode: str, place: Path, seconds: float) -> Run:
    before, started = _findings(place), time.monotonic()
    words = [sys.executable, "-m", "tests.fuzz.fuzzing", target, str(place), str(int(seconds))]
    environment = {
        **os.environ,
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": str(place.parent / "kernels"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    log = place / f"{mode}.log"
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            [*words, "--interpreted"] if mode == "interpreted" else words,
            stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, env=environment,
        )  # fmt: skip
        try:
            code = process.wait(seconds + STARTING_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = 0  # a busy machine was long about compiling; libFuzzer itself ends what hangs
    text = log.read_text("utf-8", "replace")
    findings = _findings(place) - before
    hangs = sum("Hang" in _said(path) or path.name.startswith("timeout-") for path in findings)
    crashes = len(findings) - hangs
    if code and not findings:  # it ended in a way that left no input behind
        crashes += 1
    places = [int(found) for found in _COVERAGE.findall(text)] or [0]
    return Run(
        target, mode, round(time.monotonic() - started, 1), _last(_EXECUTIONS, text),
        places[0], max(places), max(0, _last(_PEAK, text) - _last(_READY, text)), crashes, hangs,
    )  # fmt: skip


def _findings(place: Path) -> set[Path]:
    return {path for path in (place / "findings").glob("*") if path.suffix != ".txt"}


def _said(path: Path) -> str:
    text = path.with_suffix(".txt")
    return text.read_text("utf-8").partition("\n")[0] if text.exists() else path.name


def _last(pattern: re.Pattern[str], text: str) -> int:
    return int((pattern.findall(text) or ["0"])[-1])


def total(runs: Iterable[Run]) -> list[Run]:
    """The runs of each target as one."""
    by_target: dict[str, list[Run]] = {}
    for run in runs:
        by_target.setdefault(run.target, []).append(run)
    return [
        Run(
            target, "both", sum(run.seconds for run in each), sum(run.executions for run in each),
            each[0].coverage, max(run.covered for run in each), max(run.grown for run in each),
            sum(run.crashes for run in each), sum(run.hangs for run in each),
        )
        for target, each in by_target.items()
    ]  # fmt: skip


def table(runs: Iterable[Run]) -> str:
    """Figures as a table of Markdown."""
    lines = [
        "| target | minutes | executions | a second | places reached | MiB | crashes | hangs |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {run.target} | {run.seconds / 60:.1f} | {run.executions:,} |"
        f" {run.executions / max(run.seconds, 1):,.0f} | {run.coverage:,} to {run.covered:,} |"
        f" {run.grown} | {run.crashes} | {run.hangs} |"
        for run in runs
    ]
    return "\n".join(lines)
