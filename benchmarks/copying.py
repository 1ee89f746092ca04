"""What it costs to copy a checkpoint, compared with `cp -r` of the same bytes.

`python -m benchmarks.copying [--megabytes N]`

Both end when the disk has everything: `cp` is followed by `sync`. A copy reads back what it wrote,
and compares digests; with `--no-verify` it does not.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import statelake as sl
from benchmarks.measuring import Row, print_table, seconds
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
    write_metadata,
)
from statelake.state_core.model.handles import FileHandle, IncrementalHandle, RelativeHandle

ROUNDS = 3
MEGABYTE = 1 << 20
LARGE, SMALL = 64 * MEGABYTE, 256 << 10  # tables of RocksDB, and what is beside them
SUBTASKS = 4


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2048)
    parser.add_argument("--dir", default=None, help="where to put three times as much meanwhile")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as name:
        print_table("Copying a checkpoint", measure(Path(name), given.megabytes * MEGABYTE))


def measure(work: Path, size: int) -> list[Row]:
    """The rows of a copy that is verified, and of one that is not."""
    job, to = work / "job", work / "to"
    checkpoint, files = _written(job, size)
    took: dict[str, float] = {}
    ways: dict[str, Callable[[], Any]] = {
        "cp": partial(_cp, job, to),
        "verified": partial(sl.copy_snapshot, checkpoint, to),
        "not verified": partial(sl.copy_snapshot, checkpoint, to, verify=False),
    }
    for _ in range(ROUNDS):  # by turns, as the disk is not as fast at any time
        for way, work_of in ways.items():
            took[way] = min(took.get(way, float("inf")), _once(work_of, to))
    return [
        Row(
            f"{size / 1e9:.1f} GB in {files:,} files, {way}",
            _rate(size, took[way]), f"`cp -r`, `sync` {_rate(size, took['cp'])}",
            took["cp"] / took[way], wanted,
        )
        for way, wanted in (("verified", 0.8), ("not verified", None))
    ]  # fmt: skip


def _rate(size: int, took: float) -> str:
    return f"{size / took / 1e6:,.0f} MB/s ({took:.2f} s)"


def _cp(job: Path, to: Path) -> None:
    subprocess.run(["cp", "-r", job, to], check=True)
    os.sync()


def _once(work: Callable[[], Any], made: Path) -> float:
    took = seconds(work, 1)
    shutil.rmtree(made)
    os.sync()  # or the next one waits for what this one has written
    return took


def _written(job: Path, size: int) -> tuple[Path, int]:
    """An incremental checkpoint of large shared files, and small ones of its own."""
    checkpoint, shared = job / "chk-1", job / "shared"
    checkpoint.mkdir(parents=True)
    shared.mkdir()
    block = np.random.default_rng(1).bytes(LARGE)
    sizes = [LARGE] * (size // LARGE)
    for number, length in enumerate(sizes):
        (shared / f"table-{number}").write_bytes(block[:length])
    subtasks = {}
    for index in range(SUBTASKS):
        private = [f"private-{index}-{number}" for number in range(16)]
        for name in private:
            (checkpoint / name).write_bytes(block[:SMALL])
        handle = IncrementalHandle(
            1, f"backend-{index}", 32 * index, 32, RelativeHandle(private[0], SMALL),
            tuple(
                (f"{number}.sst", FileHandle(f"file:{shared}/table-{number}", length))
                for number, length in enumerate(sizes)
                if number % SUBTASKS == index
            ),
            tuple((name, RelativeHandle(name, SMALL)) for name in private[1:]),
            -1, f"handle-{index}",
        )  # fmt: skip
        subtasks[index] = SubtaskState(managed_keyed=handle)
    operator = OperatorMetadata("0" * 32, SUBTASKS, 128, subtasks=subtasks)
    (checkpoint / "_metadata").write_bytes(write_metadata(CheckpointMetadata(3, 1, [operator])))
    return checkpoint, len(sizes) + 16 * SUBTASKS


if __name__ == "__main__":
    main()
