"""Sweep: `python -m tests.faults --faults 10000 --pairs 2000 --seed 1 --commands import,edit`.

Prints how each command fared, and for each case that went wrong a line with which it is tried
again: `python -m tests.faults --again import:kill:57:1`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections import Counter
from functools import cache
from itertools import islice, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.faults.shim import is_loaded, run_below

PAIRED = (
    "import", "edit", "sql-edit", "commit", "drop", "drop-all", "keep-one", "retain", "hold",
    "erase", "audit", "export", "sql",
)  # fmt: skip
PROGRESS = 100
MEMORY = Path("/dev/shm")  # noqa: S108 - a thousand small lakes an hour need no disk


def main() -> int:
    """Try what is asked for: 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="tests.faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=0, help="how many, of all commands together")
    parser.add_argument("--pairs", type=int, default=0, help="how many interleavings")
    parser.add_argument("--runs", type=int, default=0, help="how many faults of `statelake run`")
    parser.add_argument("--imports", type=int, default=0, help="how many, by two that are killed")
    parser.add_argument("--commands", default="", help="only these, by commas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", default="0/1", metavar="I/N", help="only each N-th case, from I")
    parser.add_argument("--again", nargs="*", default=[], metavar="CASE", help="only these cases")
    parser.add_argument("--trace", default="", metavar="COMMAND", help="only its calls")
    parser.add_argument("--keep", type=Path, help="a directory for the worlds of what went wrong")
    parser.add_argument("--directory", type=Path, default=MEMORY if MEMORY.is_dir() else None)
    parser.add_argument("--served", action="store_true", help="sweeps by lines of input, too")
    asked = parser.parse_args()
    if is_loaded():
        importlib.import_module("tests.adversary.fork_server").warm_up()
        code = _serve(parser, asked.directory) if asked.served else _sweep(asked, asked.directory)
        os._exit(code)  # what is frozen for forks is no leak to tell of
    with TemporaryDirectory(prefix="statelake-faults-", dir=asked.directory) as scratch:
        return run_below(Path(scratch), "tests.faults", *sys.argv[1:], "--directory", scratch)


def _serve(parser: argparse.ArgumentParser, directory: Path) -> int:
    """Sweep as each line of input says; behind what is printed stands `end` and the exit code."""
    for line in sys.stdin:
        _say(f"end {_sweep(parser.parse_args(line.split()), directory)}")
    return 0


@cache
def _worlds(directory: Path, keep: Path | None) -> Any:
    """What sweeps share: worlds in which commands can be run, and calm runs."""
    sweeping = importlib.import_module("tests.faults.sweeping")
    return sweeping.Sweep(directory, keep=keep, containers=os.geteuid() == 0)


def _sweep(asked: argparse.Namespace, directory: Path) -> int:
    """Try the cases, in this process, in which the shim is loaded."""
    if asked.runs:
        return _sweep_runs(asked, directory / f"runs-{asked.seed}")
    if asked.imports:
        return _live(asked, directory / f"lives-{asked.seed}")
    sweep = _worlds(directory, asked.keep)
    sweeping = importlib.import_module("tests.faults.sweeping")
    if asked.trace:
        _say("\n".join(sweep.trace(asked.trace)))
        return 0
    names = [name for name in asked.commands.split(",") if name]
    part, _, parts = asked.part.partition("/")
    cases = [sweeping.Case.parse(text) for text in asked.again]
    commands = importlib.import_module("tests.faults.commands").COMMANDS
    known = [name for name, command in commands.items() if not command.slow]
    cases += islice(sweep.faults(names or known, asked.seed), asked.faults)
    paired = [name for name in PAIRED if not names or name in names]
    cases += islice(sweep.interleavings(list(product(paired, paired)), asked.seed), asked.pairs)
    return _report(sweep, cases[int(part) :: int(parts)])


def _sweep_runs(asked: argparse.Namespace, directory: Path) -> int:
    """Try faults of runs, and say which went wrong."""
    faults = importlib.import_module("tests.faults.run_faults").RunFaults(directory, asked.seed)
    began, wrong, struck = time.monotonic(), 0, 0
    for number, (case, hit, problem) in enumerate(faults(asked.runs), 1):
        struck += hit
        if problem:
            wrong += 1
            _say(f"BAD {case}\n      {problem}")
        if number % PROGRESS == 0:
            _say(f"{number} of {asked.runs} in {time.monotonic() - began:.0f} s, {wrong} wrong")
    _say(f"{'all':24}{asked.runs:8}{struck:8}{wrong:8}")
    _say(f"{time.monotonic() - began:.0f} s")
    return int(bool(wrong))


def _live(asked: argparse.Namespace, directory: Path) -> int:
    """Have two import into a lake and be killed, and say what was wrong."""
    lives = importlib.import_module("tests.faults.lives").Lives(directory, asked.seed)
    began, wrong = time.monotonic(), 0
    for problem in lives(asked.imports):
        wrong += 1
        _say(f"BAD {problem}")
    _say(f"{lives.kills} kills; {dict(sorted(lives.codes.items()))}")
    _say("\n".join(lives.figures))
    _say(f"{'all':24}{asked.imports:8}{lives.kills:8}{wrong:8}")
    _say(f"{time.monotonic() - began:.0f} s")
    return int(bool(wrong))


def _report(sweep: Any, cases: list[Any]) -> int:
    """Try cases, say which went wrong, and how each command fared."""
    tried, struck, wrong, codes = Counter[str](), Counter[str](), Counter[str](), {}
    kinds = Counter[str]()
    began = time.monotonic()
    for number, case in enumerate(cases, 1):
        verdict = sweep.judge(case)
        tried[case.name] += 1
        struck[case.name] += bool(verdict.call)
        codes.setdefault(case.name, Counter()).update(verdict.codes)
        if verdict.problems:
            wrong[case.name] += 1
            kinds.update({problem.partition(":")[0] for problem in verdict.problems})
            _say(f"BAD {case}  at {verdict.call!r}, {verdict.guises}, exits {verdict.codes}")
            _say("".join(f"      {problem}\n" for problem in verdict.problems))
        if number % PROGRESS == 0:
            seconds = time.monotonic() - began
            _say(f"{number} of {len(cases)} in {seconds:.0f} s, {wrong.total()} wrong")
    _say(f"{'':24}{'tried':>8}{'struck':>8}{'wrong':>8}  exit codes")
    for name in tried:
        ended = ", ".join(f"{code}: {count}" for code, count in sorted(codes[name].items()))
        _say(f"{name:24}{tried[name]:8}{struck[name]:8}{wrong[name]:8}  {ended}")
    _say(f"{'all':24}{tried.total():8}{struck.total():8}{wrong.total():8}")
    _say("".join(f"{kind}: {count}\n" for kind, count in kinds.most_common()))
    _say(f"{time.monotonic() - began:.0f} s")
    return int(bool(wrong))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
