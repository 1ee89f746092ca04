"""The journal of a rescale of a live job, kept in the lake, by which it resumes after a kill.

::

    _statelake/rescales/<job>/<time>.json    one rescale, written whole after each step

Who may write into the lake may have written it, so it can do little: it names no cluster, no JAR
and no directory. Paths in it are below directories that the caller names, and its jobs must be
those that the caller means. Arguments of programs are not in it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.processes import (
    is_gone,
    is_this_process,
    read_note,
    this_process,
)
from statelake.pipelines.lake.tables.names import path_segment
from statelake.pipelines.live.cluster import new_id
from statelake.state_core.errors import ConflictError
from statelake.state_core.files.outside import matching
from statelake.state_core.model.key_groups import MAX_PARALLELISM_LIMIT

JOURNALS = "_statelake/rescales"
LONGEST_TEXT = 2000
_NAME = re.compile(r"\d{8}T\d{12}", re.ASCII)

_Id: TypeAlias = Annotated[str, matching("[0-9a-f]{32}")]
_Parallelism: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_PARALLELISM_LIMIT)]


class JournalStep(msgspec.Struct, forbid_unknown_fields=True):
    """A completed step, and its time."""

    step: str
    at: str
    did: str


@dataclass
class Journal:
    """One rescale.

    Attributes:
        name: Its time, by which it is called.
        flink_job: The job that is stopped.
        trigger: The id of its savepoint's operation.
        new_job: The id that the job gets when it is run rescaled.
        old_again: The id that it gets when it is put back.
        parallelism: The new parallelism; 0 to leave it.
        max_parallelism: The new maximum parallelism; 0 to leave it.
        old_parallelism: The parallelism before.
        savepoint: The savepoint, below the directory for savepoints; empty before it is there.
        snapshot: Its snapshot in the lake.
        migrated: The snapshot that is exported.
        steps: What was done, in this order.
        failure: Why it is put back; empty while it is not.
        outcome: How it ended; empty while it has not.
    """

    name: str
    flink_job: _Id
    parallelism: _Parallelism
    max_parallelism: _Parallelism
    old_parallelism: _Parallelism
    trigger: _Id
    new_job: _Id
    old_again: _Id
    savepoint: Annotated[str, matching(r"([\w-][\w.-]*)?")]
    snapshot: str
    migrated: str
    steps: list[JournalStep]
    failure: str
    outcome: str

    @property
    def savepoint_directory(self) -> str:
        """Return the directory of its savepoint, which has no other use."""
        return f"rescale-{self.name}"

    @property
    def export_directory(self) -> str:
        """Its export: another name, as both may be in the same directory."""
        return f"rescaled-{self.name}"

    def has_done(self, step: str) -> bool:
        """Return whether a step was recorded."""
        return any(done.step == step for done in self.steps)

    def record(self, lake: Catalog, job: str, step: str, did: str) -> None:
        """Keep that a step was done."""
        at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self.steps.append(JournalStep(step, at, did[:LONGEST_TEXT]))
        self.write(lake, job)

    def write(self, lake: Catalog, job: str) -> None:
        """Write it whole, with the process that is at work on it."""
        self.failure = self.failure[:LONGEST_TEXT]
        note = msgspec.to_builtins(self) | this_process()
        lake.directory.write(_path(job, self.name), json.dumps(note, indent=1).encode())


def _path(job: str, name: str = "") -> str:
    above = f"{JOURNALS}/{path_segment(job)}"
    return f"{above}/{name}.json" if name else above


def _journals(lake: Catalog, job: str) -> list[tuple[Journal, dict[str, Any]]]:
    """All of a job, the oldest first, each with the process that wrote it.

    Raises:
        DamagedLakeError: A file is no journal.
    """
    journals = []
    for file in lake.directory.names(_path(job)):
        name = file.removesuffix(".json")
        if name == file or not _NAME.fullmatch(name):
            continue  # not yet whole, or none of ours
        journal, note = read_note(lake.directory, _path(job, name), Journal)
        journal.name = name
        journals.append((journal, note))
    return journals


def ended_journals(lake: Catalog, job: str) -> list[Journal]:
    """The rescales of a job that ended, the oldest first."""
    return [journal for journal, _ in _journals(lake, job) if journal.outcome]


def open_journal(lake: Catalog, job: str, *, take_over: bool = False) -> Journal | None:
    """The rescale of a job that has not ended, if there is one.

    Args:
        lake: The lake.
        job: The job.
        take_over: Whether the process that began it is known to be gone, as it can't be seen from
            another machine.

    Raises:
        ConflictError: Another process is at work on it.
        DamagedLakeError: There is a journal that no rescale wrote.
    """
    for journal, note in _journals(lake, job):
        if journal.outcome:
            continue
        if not (is_this_process(note) or is_gone(note) or take_over):
            raise ConflictError(
                f"a rescale of job {job!r} is at work: process {note['process']} on {note['host']}",
                place=lake.directory.uri,
                remedy="wait for it; if that process is gone for certain, --take-over goes on"
                " with it",
            )
        return journal
    return None


def start_journal(
    lake: Catalog,
    job: str,
    *,
    flink_job: str,
    parallelism: int,
    max_parallelism: int,
    old_parallelism: int,
) -> Journal:
    """Begin the journal of a rescale.

    Args:
        lake: The lake.
        job: The job in the lake.
        flink_job: The job on the cluster.
        parallelism: The new parallelism; 0 to leave it.
        max_parallelism: The new maximum parallelism; 0 to leave it.
        old_parallelism: The parallelism before.

    Raises:
        ConflictError: Another began at the same moment.
    """
    name = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S%f}"
    journal = Journal(
        name, flink_job, parallelism, max_parallelism, old_parallelism,
        trigger=new_id(), new_job=new_id(), old_again=new_id(),
        savepoint="", snapshot="", migrated="", steps=[], failure="", outcome="",
    )  # fmt: skip
    journal.write(lake, job)
    others = [other for other, _ in _journals(lake, job) if not other.outcome]
    if any(other.name != name for other in others):
        lake.directory.delete(_path(job, name))
        raise ConflictError(
            f"another rescale of job {job!r} began at this moment",
            place=lake.directory.uri,
            remedy="see what came of it, and call again",
        )
    return journal
