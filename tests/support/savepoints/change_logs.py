"""Checkpoints with a log of changes, by real Flink, each with a savepoint of its moment."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

from statelake.state_core.formats.reader import Snapshot
from tests.support.savepoints.golden_cases import GOLDEN

__all__ = ["CHECKPOINTS", "rows_of", "savepoint_of", "unpack"]

ARCHIVE = GOLDEN / "changelog" / "changelog.tar.xz"
CHECKPOINTS = [
    f"{backend}/{checkpoint}"
    for backend in ("hashmap", "rocksdb")
    for checkpoint in ("chk-1", "chk-2", "chk-3", "rescaled/chk-1")
]


def unpack(to: Path) -> Path:
    """All of them below a directory, by the names in `CHECKPOINTS`."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(to, filter="data")
    return to


def savepoint_of(checkpoint: Path) -> Path:
    """The canonical savepoint of the same moment."""
    return checkpoint.with_name(checkpoint.name.replace("chk-", "savepoint-"))


def rows_of(snapshot: Snapshot) -> dict[tuple[str, str], list[Any]]:
    """The rows of each state that has some, in an order of their own."""
    found = {}
    for operator in snapshot.operators:
        for state in operator.keyed_states:
            table = state.to_arrow()
            columns = [name for name in table.column_names if not name.startswith("raw_")]
            rows = sorted(map(repr, table.select(columns).to_pylist()))
            if rows:
                found[operator.label, state.name] = rows
    return found
