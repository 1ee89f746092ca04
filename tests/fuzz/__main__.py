"""Fuzz: `python -m tests.fuzz --minutes 60 [TARGET ...]`, and `--replay TARGET FILE`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.running import Run, run_target, table, total
from tests.fuzz.targets import TARGETS, prepare


def main() -> int:
    """Run the targets in turn: 1 if anything was found, in this run or before."""
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--minutes", type=float, default=10, help="for all of them together")
    parser.add_argument("--directory", type=Path, default=Path(".fuzz"))
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "FILE"))
    parser.add_argument("--figures", action="store_true", help="of all runs in the directory")
    asked = parser.parse_args()
    if asked.replay:
        with TemporaryDirectory() as scratch:
            prepare(asked.replay[0], Path(scratch)).run(Path(asked.replay[1]).read_bytes())
        return 0
    directory = asked.directory.resolve()
    if asked.figures:
        lines = (directory / "runs.jsonl").read_text("utf-8").splitlines()
        sys.stdout.write(table(total(Run(**json.loads(line)) for line in lines)) + "\n")
        return 0
    names = asked.targets or list(TARGETS)
    runs: list[Run] = []
    for name in names:
        each = run_target(name, directory, asked.minutes * 60 / len(names))
        runs += each
        sys.stdout.write(table(total(each)).splitlines()[-1] + "\n")
        sys.stdout.flush()
    sys.stdout.write(f"\n{table(total(runs))}\n")
    findings = [path for path in directory.glob("*/findings/*") if path.suffix != ".txt"]
    sys.stdout.write("".join(f"{path}\n" for path in sorted(findings)))
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
