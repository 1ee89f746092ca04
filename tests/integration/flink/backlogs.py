"""Unaligned checkpoints of full exchanges, by real Flink: `tests/golden/unaligned/*.tar.xz`.

    python -m tests.integration.flink.backlogs tests/golden/unaligned

The checkpoint is that of the job `backlog`, with small buffers, so that few records fill them.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

from tests.integration.flink.oracle import FlinkOracle
from tests.support.savepoints.backlogs import RECORDS

__all__ = ["VERSIONS", "checkpoint_of_backlog"]

VERSIONS = ("1.20.0", "2.3.0")
UNALIGNED = {
    "execution.checkpointing.unaligned.enabled": "true",
    "taskmanager.memory.segment-size": "4kb",
    "taskmanager.network.memory.buffers-per-channel": "1",
    "taskmanager.network.memory.floating-buffers-per-gate": "2",
    "taskmanager.network.memory.max-buffers-per-channel": "3",
}


def checkpoint_of_backlog(flink: FlinkOracle, to: Path, **options: object) -> Path:
    """Run the job until its exchanges are full, and take a checkpoint.

    Args:
        flink: The version of Flink.
        to: Where a directory for the job is to be.
        options: As for `FlinkOracle.checkpoints`.
    """
    chosen = {"backend": "hashmap", "keys": RECORDS, **UNALIGNED, **options}
    return flink.checkpoints("backlog", to, **chosen)[-1]


def main(target: str) -> None:
    """Write an archive for each version."""
    for version in VERSIONS:
        with FlinkOracle(version) as flink, tempfile.TemporaryDirectory() as directory:
            checkpoint = checkpoint_of_backlog(flink, Path(directory))
            with tarfile.open(Path(target) / f"flink-{version}.tar.xz", "w:xz") as archive:
                archive.add(checkpoint, checkpoint.name)


if __name__ == "__main__":
    main(sys.argv[1])
