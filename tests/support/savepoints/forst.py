"""Checkpoints of ForSt by real Flink, each with a savepoint of the heap of its moment."""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.support.savepoints.golden_cases import GOLDEN

__all__ = ["CHECKPOINTS", "savepoint_of", "unpack"]

CHECKPOINTS = ["chk-1", "chk-2"]


def unpack(to: Path) -> Path:
    """All of them below a directory, by the names in `CHECKPOINTS`."""
    with tarfile.open(GOLDEN / "forst" / "forst.tar.xz") as archive:
        archive.extractall(to, filter="data")
    return to


def savepoint_of(checkpoint: Path) -> Path:
    """The heap's native savepoint of the same moment."""
    return checkpoint.with_name(checkpoint.name.replace("chk-", "heap-"))
