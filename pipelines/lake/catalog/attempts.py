"""Notes of work in progress, so that what a crash leaves behind is found and removed.

An attempt writes its files under its own token and says in a note which tables it is about to
touch. The note goes when the attempt ends, well or badly. A note whose process is gone is a crash:
the next run takes back versions that no snapshot names, and deletes the files.

Anyone who can write into the lake can leave a note. One that can't be ours is refused by name,
before anything is written or removed: who knows whose work it stands for? Snapshots are exported,
compared and queried all the same. One that could be ours names tables of its own job alone, and
nothing goes but files of its own token that no snapshot names.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from typing_extensions import Self

from pipelines.lake.catalog.catalog import Catalog
from pipelines.lake.tables.names import SNAPSHOTS, is_table_of, is_token, token_of
from pipelines.lake.tables.record_rules import Rule, broken_rule
from pipelines.lake.tables.tables import DATA_DIRECTORY, StateTable, files_of
from state_core.errors import ConflictError, DamagedLakeError, MissingFileError, StateError
from state_core.files.filesystem import Directory
from state_core.files.paths import is_part

__all__ = [
    "DROP",
    "ERASURES",
    "UNDO",
    "Attempt",
    "attempt_tokens",
    "is_alive",
    "leaned_on",
    "read_note",
    "recover_attempts",
    "refuse_during_erasure",
    "running_attempts",
    "this_process",
]

NOTES = "_statelake/attempts"
ERASURES = "_statelake/erasures"  # a note for each that has not ended
PRESUMED_DEAD_SECONDS = 24 * 3600
LONGEST_NOTE = 16 << 20
UNDO, DROP = "undo-", "drop"  # what versions say that take others back
LOG = logging.getLogger(__name__)
# a note gets its name when it is whole

_TEXT = Rule(lambda value: isinstance(value, str), "text")
_TEXTS = Rule(
    lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value), "texts"
)
_PROCESS: Mapping[str, Rule] = {
    "host": _TEXT,
    "process": Rule(lambda value: type(value) is int and 0 < value < 1 << 31, "a process's number"),
    "started": Rule(
        lambda value: (
            isinstance(value, int | float) and 0 <= value <= time.time() + PRESUMED_DEAD_SECONDS
        ),
        "a time that was",
    ),
}
_NOTE: Mapping[str, Rule] = {
    "job": _TEXT, "snapshot_id": _TEXT, "tables": _TEXTS,
    # as it was once: one snapshot, or none
    "leans_on": Rule(lambda it: it is None or _TEXT.kept(it) or _TEXTS.kept(it), "texts"),
}  # fmt: skip
_ERASURE: Mapping[str, Rule] = {"request": _TEXT, "jobs": _TEXTS}


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
        lake: Catalog,
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
            **this_process(),
        }

    @property
    def _path(self) -> str:
        return f"{NOTES}/{self.token}.json"

    def __enter__(self) -> Self:
        self.lake.check_tables([SNAPSHOTS])
        self.lake.directory.write(self._path, json.dumps(self.note).encode())
        try:  # an erasure writes its note first, and looks for those of attempts then
            refuse_during_erasure(self.lake, str(self.note["job"]))
        except BaseException:
            self.lake.directory.delete(self._path)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not _undone(self.lake, self.token, self.note):
            return  # the note stays, for whoever comes next
        self.lake.directory.delete(self._path)


def recover_attempts(lake: Catalog, job: str) -> list[str]:
    """Undo what crashed attempts on a job's tables left, and say which snapshots they were for.

    What can't be undone is logged, and left to the next.

    Raises:
        DamagedLakeError: There is a note that no attempt wrote.
        ConflictError: The job is being erased from, or an erasure of it has not ended.
    """
    refuse_during_erasure(lake, job)
    undone = []
    for token, note in _notes(lake, job):
        if not is_alive(note) and _undone(lake, token, note):
            lake.directory.delete(f"{NOTES}/{token}.json")
            undone.append(note["snapshot_id"])
    return undone


def refuse_during_erasure(lake: Catalog, job: str, request: str = "") -> None:
    """Look whether rows of a job's snapshots are being erased, or were when a process ended.

    Args:
        lake: The lake.
        job: The job.
        request: The erasure that may go on.

    Raises:
        ConflictError: An erasure of the job has not ended.
        DamagedLakeError: There is a note that no erasure wrote.
    """
    for name in lake.directory.names(ERASURES):
        if is_part(name):
            continue
        try:
            note = read_note(lake.directory, f"{ERASURES}/{name}", _ERASURE)
        except MissingFileError:
            continue  # its process removes it at this moment
        if job in note["jobs"] and note["request"] != request:
            remedy = "try again when it is done"
            if not is_alive(note):
                remedy = "its process is gone: give the same `statelake erase --request ID` again"
            raise ConflictError(
                f"erasure {note['request']!r} of job {job!r} has not ended",
                place=lake.directory.full(f"{ERASURES}/{name}"),
                remedy=remedy,
            )


def running_attempts(lake: Catalog, job: str) -> list[str]:
    """The snapshots for which others may be working on a job's tables at this moment."""
    return [note["snapshot_id"] for _, note in _notes(lake, job) if is_alive(note)]


def attempt_tokens(lake: Catalog) -> set[str]:
    """The tokens of all attempts that have not ended."""
    return {name.removesuffix(".json") for name in _note_names(lake)}


def _note_names(lake: Catalog) -> list[str]:
    """The files of all notes, but for those that are being written at this moment."""
    return [name for name in lake.directory.names(NOTES) if not is_part(name)]


def leaned_on(lake: Catalog, job: str) -> set[str]:
    """The snapshots of a job whose files attempts that have not ended may share."""
    return {snapshot_id for _, note in _notes(lake, job) for snapshot_id in note["leans_on"]}


def _notes(lake: Catalog, job: str) -> list[tuple[str, dict[str, Any]]]:
    """Token and note of every attempt on a job's tables that has not ended."""
    notes = []
    for name in _note_names(lake):
        token, path = name.removesuffix(".json"), f"{NOTES}/{name}"
        if not is_token(token) or name == token:
            raise _foreign("no attempt is called like that", f"{lake.directory.full()}/{path}")
        try:
            note = read_note(lake.directory, path, _NOTE)
        except MissingFileError:
            continue  # its process removes it at this moment
        others = [table for table in note["tables"] if not is_table_of(note["job"], table)]
        if note["job"] == job and others:
            problem = f"{others[0]!r:.200} is no table of job {job!r}"
            raise _foreign(problem, lake.directory.full(path))
        if note["job"] == job:
            leaned = note.get("leans_on") or []
            note["leans_on"] = [leaned] if isinstance(leaned, str) else leaned
            notes.append((token, note))
    return notes


def read_note(directory: Directory, path: str, rules: Mapping[str, Rule]) -> dict[str, Any]:
    """What a process says of itself and of what it is about to do.

    Args:
        directory: Where the note is.
        path: The note.
        rules: What it says beside its process.

    Raises:
        MissingFileError: The note is gone.
        DamagedLakeError: No process of ours wrote that.
    """
    if directory.size(path) > LONGEST_NOTE:
        raise _foreign("no note is that long", directory.full(path))
    try:
        note = json.loads(directory.read(path))
    except (ValueError, RecursionError) as error:
        raise _foreign(f"no note of ours ({error})", directory.full(path)) from error
    if not isinstance(note, dict):
        raise _foreign("no note of ours", directory.full(path))
    fault = broken_rule(note, {**_PROCESS, **rules})
    if fault is not None:
        raise _foreign(f"{fault[0]}: {fault[1]}", directory.full(path))
    return dict(note)


def _foreign(problem: str, place: str) -> DamagedLakeError:
    return DamagedLakeError(
        problem, place=place, remedy="statelake did not write that note: remove the file"
    )


def this_process() -> dict[str, Any]:
    """What a note says of the process that writes it."""
    return {"host": socket.gethostname(), "process": os.getpid(), "started": time.time()}


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


def _undone(lake: Catalog, token: str, note: dict[str, Any]) -> bool:
    """Take an attempt back; whether that was done. What stands against it is told."""
    try:
        _undo(lake, token, note)
    except StateError as error:
        LOG.warning("attempt %s can't be taken back yet: %s", token, error)
        return False
    return True


def _undo(lake: Catalog, token: str, note: dict[str, Any]) -> None:
    """Take back the attempt's versions and files, unless its snapshot exists after all.

    Raises:
        DamagedLakeError: A row of the job can't be believed: who knows which files it needs?
    """
    records, bad = lake.records(note["job"]) if lake.exists() else ([], [])
    if bad:
        raise bad[0].error
    tables = [table for record in records for table in record.tables]
    if any(token_of(unit.path) == token for table in tables for unit in table.units):
        return
    for path in note["tables"]:
        table = lake.table(path)
        _take_back(table, token, {record.version for record in tables if record.path == path})
        latest = table.open()
        named = [] if latest is None else [file.path for file in files_of(latest)]
        # What someone committed on top of the attempt's version needs its files.
        if not any(file.startswith(f"{DATA_DIRECTORY}/{token}/") for file in named):
            for name, _ in table.directory.files_below(f"{DATA_DIRECTORY}/{token}"):
                if token_of(name) == token:
                    table.directory.delete(name)


def _take_back(table: StateTable, token: str, registered: set[int]) -> None:
    """If the table's latest version is the attempt's, let it show what it showed before.

    That is the newest version that a snapshot has or that someone else made: versions of other
    attempts may be taken back, too.
    """
    latest = table.open()
    if latest is None or table.maker(latest.version()) != token or latest.version() in registered:
        return
    shown = None
    for version in table.versions_after(-1):
        if version >= latest.version():
            continue
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
