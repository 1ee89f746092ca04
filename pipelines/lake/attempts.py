"""Notes of work in progress, so that what a crash leaves behind is found and removed.

An attempt writes its files under its own token and says in a note which tables it is about to
touch. The note goes when the attempt ends, well or badly. A note whose process is gone is a crash:
the next run takes back versions that no snapshot names, and deletes the files.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from typing_extensions import Self

from pipelines.lake.catalog import Lake
from pipelines.lake.tables import DATA_DIRECTORY, StateTable, TableFile, attempt_of
from state_core.errors import LakeError

__all__ = ["Attempt", "attempt_tokens", "recover_attempts"]

NOTES = "_statelake/attempts"
PRESUMED_DEAD_SECONDS = 24 * 3600


class Attempt:
    """Work on some tables that ends with a snapshot, or leaves nothing.

    Args:
        lake: The lake.
        job: The job whose tables they are.
        snapshot_id: The snapshot that is to come of it.
        tables: Paths of the tables.
    """

    def __init__(self, lake: Lake, job: str, snapshot_id: str, tables: Iterable[str]) -> None:
        self.lake = lake
        self.token = uuid.uuid4().hex[:16]
        self.note = {
            "job": job,
            "snapshot_id": snapshot_id,
            "tables": sorted(tables),
            "host": socket.gethostname(),
            "process": os.getpid(),
            "started": time.time(),
        }

    @property
    def _path(self) -> str:
        return f"{NOTES}/{self.token}.json"

    def __enter__(self) -> Self:
        self.lake.directory.write(self._path, json.dumps(self.note).encode())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            _undo(self.lake, self.token, self.note)
        self.lake.directory.delete(self._path)


def recover_attempts(lake: Lake, job: str) -> list[str]:
    """Undo what crashed attempts on a job's tables left, and say which snapshots they were for."""
    undone = []
    for name in lake.directory.names(NOTES):
        path = f"{NOTES}/{name}"
        try:
            note = json.loads(lake.directory.read(path))
        except (ValueError, LakeError):
            continue  # another process removes it at this moment
        if note["job"] != job or _alive(note):
            continue
        _undo(lake, name.removesuffix(".json"), note)
        lake.directory.delete(path)
        undone.append(note["snapshot_id"])
    return undone


def attempt_tokens(lake: Lake) -> set[str]:
    """The tokens of all attempts that have not ended."""
    return {name.removesuffix(".json") for name in lake.directory.names(NOTES)}


def _alive(note: dict[str, Any]) -> bool:
    if time.time() - note["started"] > PRESUMED_DEAD_SECONDS:
        return False
    if note["host"] != socket.gethostname():
        return True
    try:
        os.kill(int(note["process"]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _undo(lake: Lake, token: str, note: dict[str, Any]) -> None:
    """Take back the attempt's versions and files, unless its snapshot exists after all."""
    summaries = lake.summaries(note["job"]) if lake.exists() else []
    if any(one.snapshot_id == note["snapshot_id"] for one in summaries):
        record = lake.snapshot(note["job"], note["snapshot_id"])
        if any(
            token in unit.path for op in record.operators for t in op.tables for unit in t.units
        ):
            return
    for path in note["tables"]:
        table = lake.table(path)
        _take_back(table, token)
        table.directory.delete_tree(f"{DATA_DIRECTORY}/{token}")


def _take_back(table: StateTable, token: str) -> None:
    """If the table's latest version is the attempt's, make the one before it the latest again."""
    latest = table.open()
    if latest is None or attempt_of(latest) != token:
        return
    before: list[TableFile] = []
    if latest.version() > 0:
        before = table.files(latest.version() - 1)
    columns = latest.metadata().partition_columns
    table.replace_files(
        latest.schema(),
        before,
        partition_by=columns[0] if columns else None,
        attempt=f"undo-{token}",
    )
