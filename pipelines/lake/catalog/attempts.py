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

from pipelines.lake.catalog.catalog import Lake
from pipelines.lake.tables.tables import DATA_DIRECTORY, StateTable, files_of
from state_core.errors import StateError

__all__ = ["DROP", "UNDO", "Attempt", "attempt_tokens", "is_alive", "leaned_on", "recover_attempts"]

NOTES = "_statelake/attempts"
PRESUMED_DEAD_SECONDS = 24 * 3600
UNDO, DROP = "undo-", "drop"  # what versions say that take others back


class Attempt:
    """Work on some tables that ends with a snapshot, or leaves nothing.

    Args:
        lake: The lake.
        job: The job whose tables they are.
        snapshot_id: The snapshot that is to come of it.
        tables: Paths of the tables.
        leans_on: The snapshots whose files the new one may share: no drop takes them meanwhile.
            Look whether they still exist once the attempt has begun.
    """

    def __init__(
        self,
        lake: Lake,
        job: str,
        snapshot_id: str,
        tables: Iterable[str],
        leans_on: Iterable[str] = (),
    ) -> None:
        self.lake = lake
        self.token = uuid.uuid4().hex[:16]
        self.note = {
            "job": job,
            "snapshot_id": snapshot_id,
            "tables": sorted(tables),
            "leans_on": list(leans_on),
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
    for token, note in _notes(lake):
        if note["job"] == job and not is_alive(note):
            _undo(lake, token, note)
            lake.directory.delete(f"{NOTES}/{token}.json")
            undone.append(note["snapshot_id"])
    return undone


def attempt_tokens(lake: Lake) -> set[str]:
    """The tokens of all attempts that have not ended."""
    return {name.removesuffix(".json") for name in lake.directory.names(NOTES)}


def leaned_on(lake: Lake, job: str) -> set[str]:
    """The snapshots of a job whose files attempts that have not ended may share."""
    notes = [note for _, note in _notes(lake) if note["job"] == job]
    return {str(one) for note in notes for one in note["leans_on"]}


def _notes(lake: Lake) -> list[tuple[str, dict[str, Any]]]:
    """Token and note of every attempt that has not ended."""
    found = []
    for name in lake.directory.names(NOTES):
        try:
            note = json.loads(lake.directory.read(f"{NOTES}/{name}"))
        except (ValueError, StateError):
            continue  # its process removes it at this moment
        found.append((name.removesuffix(".json"), note))
    return found


def is_alive(note: dict[str, Any]) -> bool:
    """Whether the process that wrote a note may still be at work."""
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
    job = note["job"]
    known = [one.snapshot_id for one in lake.summaries(job)] if lake.exists() else []
    tables = [t for one in known for op in lake.snapshot(job, one).operators for t in op.tables]
    if note["snapshot_id"] in known and any(
        token in unit.path for table in tables for unit in table.units
    ):
        return
    for path in note["tables"]:
        table = lake.table(path)
        _take_back(table, token, {one.version for one in tables if one.path == path})
        latest = table.open()
        named = [] if latest is None else [file.path for file in files_of(latest)]
        # What someone committed on top of the attempt's version needs its files.
        if not any(one.startswith(f"{DATA_DIRECTORY}/{token}/") for one in named):
            table.directory.delete_tree(f"{DATA_DIRECTORY}/{token}")


def _take_back(table: StateTable, token: str, registered: set[int]) -> None:
    """If the table's latest version is the attempt's, let it show what it showed before.

    That is the newest version that a snapshot has or that someone else made: versions of other
    attempts may be taken back, too.
    """
    latest = table.open()
    if latest is None or table.maker(latest.version()) != token:
        return
    shown = None
    for version in range(latest.version() - 1, -1, -1):
        if version in registered or table.maker(version) in ("", DROP):
            shown = table.require(version)
            break
    columns = latest.metadata().partition_columns
    table.replace_files(
        (shown or latest).schema(),
        [] if shown is None else files_of(shown),
        partition_by=columns[0] if columns else None,
        attempt=f"{UNDO}{token}",
    )
