"""The runs of a job: planned, prepared and done.

Each run has a directory in the lake, `<job>/_runs/<number>/`:

==================  ==================================================================
`plan.json`         its input and initial state, written before anything is read
`prepared.json`     the attempt whose output and state are complete, and count
`prepared-N.json`   the same, after N turns that were given up
`done.json`         the mark that output and state are committed
`attempt-*/`        exchanged records, and the state as a savepoint
==================  ==================================================================

A run that was interrupted before `prepared.json` is repeated, over the same input; after it, the
prepared files are committed, and nothing is computed again: so output and state are of the same
attempt, even if the function is not deterministic.

A process that runs a job writes a file `running-<token>.json`, with the run and the `prepared` file
that it may write, and gives signs of life as attempts do. A process that takes it for dead writes
that `prepared` file itself, as given up: only one of them succeeds, and the other notices. So a
process that is alive after all can't prepare anything, and its files may be deleted.

The files are in the lake, so anyone with write access may have written them: their content is
checked by rules when it is read, and can only name the run's own directories.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeAlias, TypedDict, TypeVar

import msgspec
from msgspec import Meta

from statelake.pipelines.lake.catalog.attempts import refuse_running
from statelake.pipelines.lake.catalog.processes import described, is_gone, read_note
from statelake.pipelines.lake.tables.records import Parallelism
from statelake.state_core.errors import ConflictError, CorruptSnapshotError, MissingFileError
from statelake.state_core.files.filesystem import ConfinedDirectory, Directory
from statelake.state_core.files.outside import Refusal, checked, decoded, matching
from statelake.state_core.runtime.commit import CheckpointId

VERSION = 1
KEPT_RUNS = 2
OUTPUT_DIRECTORY = "_data"  # below a sink's table
SAVEPOINT = "savepoint"
Word = TypeVar("Word")
_RUN = re.compile(r"\d{8,12}", re.ASCII)
_ATTEMPT = re.compile("attempt-[0-9a-f]{12}")
_PREPARED = re.compile(r"prepared(-\d{1,5})?\.json", re.ASCII)
_LOCK = re.compile(r"running(-([0-9a-f]{16}))?\.json")
MOST_GIVEN_UP = (1 << 16) - 1


_Number: TypeAlias = Annotated[int, Meta(gt=-(1 << 62), lt=1 << 62)]
_Count: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 62)]


class _Lock(msgspec.Struct):
    """The lock of a process; those of older versions have neither number."""

    run: _Count | None = None
    number: Annotated[int, Meta(ge=0, le=MOST_GIVEN_UP)] | None = None


class Offset(TypedDict, total=False):
    """The position up to which a source was read: a table's version, or the bytes of each file."""

    version: _Count
    files: dict[str, _Count]


@dataclass(frozen=True)
class Turn:
    """The exclusive right of a process to prepare a run.

    Attributes:
        token: The token of its lock, and of its signs of life.
        run: The run: the one that was interrupted, or the next.
        number: The number of the run's turns that were given up before.
    """

    token: str
    run: int
    number: int

    @property
    def lock(self) -> str:
        """The file of its lock."""
        return f"running-{self.token}.json"

    def new_attempt(self) -> str:
        """Return an unused name of an attempt."""
        return f"attempt-{self.number:04x}{secrets.token_hex(4)}"


class RunPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The plan of a run.

    Attributes:
        run: Its number, from 1.
        parallelism: The parallelism of its operators.
        max_parallelism: The number of key groups.
        processing_time: Its time, in milliseconds.
        begins: For each source, the offset after which it reads.
        ends: For each source, the offset up to which it reads.
        restore: The lake's snapshot with its initial state; empty for the first run.
        watermark: Event time before it.
        latest: The greatest event time of each source before it.
        final: Whether the streams end with it.
    """

    run: _Count
    parallelism: Parallelism
    max_parallelism: Parallelism
    processing_time: _Count
    begins: dict[str, Offset]
    ends: dict[str, Offset]
    restore: str = ""
    watermark: _Number | None = None
    latest: dict[str, _Number] = msgspec.field(default_factory=dict)
    final: bool = False

    @property
    def checkpoint(self) -> CheckpointId:
        """The id of its checkpoint: times of runs ascend."""
        return CheckpointId(self.processing_time, 0)


class Prepared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The prepared result of a run.

    Attributes:
        attempt: The attempt that prepared it.
        savepoint: The directory of its state, below the run's.
        watermark: Event time after it.
        latest: The greatest event time of each source.
        outputs: For each sink, the path, bytes and rows of its files.
        records: The number of input records.
        markers: By task and backend, the marker of its state; the text of older versions is that
            of the blob store.
        counts: By task, the costs of its commit, by the names of `CommitMeasures`.
        state_bytes: The size of the state, as a savepoint.
    """

    attempt: Annotated[str, matching(_ATTEMPT.pattern)]
    savepoint: str
    watermark: _Number | None
    latest: dict[str, _Number]
    outputs: dict[str, list[tuple[str, _Count, _Count]]]
    records: _Count
    markers: dict[str, dict[str, str] | str] = msgspec.field(default_factory=dict)
    counts: dict[str, dict[str, _Number]] = msgspec.field(default_factory=dict)
    state_bytes: _Count = 0


def output_directory(job: str, run: int, attempt: str) -> str:
    """Return the directory of an attempt's files below a sink's table."""
    return f"{OUTPUT_DIRECTORY}/{job}-{run:08d}-{attempt}"


class RunLog:
    """The runs of one job.

    Args:
        lake: The lake's directory.
        job: The job's name.
    """

    def __init__(self, lake: Directory, job: str) -> None:
        self.job = job
        self.lake = lake.confined()
        self.directory = lake.confined().child(f"{job}/_runs")

    @property
    def checkpoints(self) -> ConfinedDirectory:
        """The directory of the records of its commits."""
        return self.directory.child("checkpoints")

    def run_directory(self, run: int) -> ConfinedDirectory:
        """Return the directory of a run."""
        return self.directory.child(f"{run:08d}")

    def runs(self) -> list[int]:
        """Return the numbers of all runs with a directory, in order."""
        names = [name for name in self.directory.names() if _RUN.fullmatch(name)]
        return sorted(run for name in names if (run := int(name)) and f"{run:08d}" == name)

    def current(self) -> int:
        """Return the run that was interrupted, or the next."""
        runs = self.runs()
        last = runs[-1] if runs else 0
        return last if last and not self.done(last) else last + 1

    def plan(self, run: int) -> RunPlan | None:
        """Return the plan of a run; None if it was not planned.

        Raises:
            CorruptSnapshotError: The plan is not valid.
        """
        plan = self._read(run, "plan.json", RunPlan)
        if plan is not None and plan.run != run:
            raise self._refusal(run, "plan.json")(f"run: {plan.run}, which is another run")
        return plan

    def prepared(self, run: int) -> Prepared | None:
        """Return the prepared result of a run; None if it is not prepared.

        Raises:
            CorruptSnapshotError: The record breaks a rule, or names files elsewhere.
        """
        for name in sorted(self._prepared_names(run), key=_number_in):
            if not (self._content(run, name) or {}).get("given_up"):
                return self._prepared(run, name)
        return None

    def _prepared_names(self, run: int) -> list[str]:
        return [name for name in self.run_directory(run).names() if _PREPARED.fullmatch(name)]

    def _prepared(self, run: int, name: str) -> Prepared | None:
        prepared = self._read(run, name, Prepared)
        if prepared is None:
            return None
        if prepared.savepoint != f"{prepared.attempt}/{SAVEPOINT}":
            problem = f"savepoint: {prepared.savepoint!r:.200}, which is not the attempt's"
            raise self._refusal(run, name)(problem)
        within = re.escape(output_directory(self.job, run, prepared.attempt))
        ours = re.compile(within + r"/[\w.-]+\.parquet", re.ASCII)
        for path in (file[0] for files in prepared.outputs.values() for file in files):
            if not ours.fullmatch(path):
                problem = f"outputs: {path!r:.200}, which is no file of the attempt's"
                raise self._refusal(run, name)(problem)
        return prepared

    def done(self, run: int) -> bool:
        """Return whether a run is committed."""
        return self.run_directory(run).is_file("done.json")

    def write_plan(self, plan: RunPlan) -> None:
        """Write the plan of a run.

        Raises:
            ConflictError: Another process has written one.
        """
        if not self._write_new(plan.run, "plan.json", msgspec.structs.asdict(plan)):
            raise self._taken_over()

    def write_prepared(self, turn: Turn, prepared: Prepared) -> None:
        """Write the prepared result of a run.

        Raises:
            ConflictError: The turn was given up, as its process was taken for dead.
        """
        content = msgspec.structs.asdict(prepared)
        if not self._write_new(turn.run, _prepared_name(turn.number), content):
            self.run_directory(turn.run).delete_tree(prepared.attempt)
            raise self._taken_over()

    def write_done(self, run: int, snapshot_id: str) -> None:
        """Write that a run is committed."""
        directory = self.run_directory(run)
        directory.create()
        directory.write("done.json", _text_of({"snapshot": snapshot_id}))

    def require(self, turn: Turn) -> None:
        """Check that a turn is still this process's: advice, as it may be lost the next moment.

        Raises:
            ConflictError: Another process has taken over.
        """
        if not self.directory.is_file(turn.lock):
            raise self._taken_over()

    def _taken_over(self) -> ConflictError:
        return ConflictError(
            "this run was taken for dead, and another process goes on with it",
            place=f"job {self.job!r}",
            remedy="nothing of it counts twice: run again",
        )

    def attempts(self, run: int) -> list[str]:
        """Return the attempts at a run that have directories."""
        return [name for name in self.run_directory(run).names() if _ATTEMPT.fullmatch(name)]

    def discard(self, run: int) -> None:
        """Delete the attempts of a run."""
        for name in self.attempts(run):
            self.run_directory(run).delete_tree(name)

    def discard_given_up(self, turn: Turn) -> None:
        """Delete the attempts of turns that were given up before this one."""
        for name in self.attempts(turn.run):
            if _number_in_attempt(name) < turn.number:
                self.run_directory(turn.run).delete_tree(name)

    def forget_before(self, run: int) -> None:
        """Delete the files of earlier runs, except for those that describe the runs."""
        for old in self.runs():
            if old <= run - KEPT_RUNS and self.done(old):
                self.discard(old)

    def settle(self) -> None:
        """Give up the turns of processes that are gone, or give no sign of life.

        Raises:
            ConflictError: A process seems to be running.
            DamagedLakeError: A file is not one of statelake's.
        """
        locks = dict(self._locks())
        unsure = {name: note for name, note in locks.items() if not is_gone(note)}
        for name, note in unsure.items():
            if note.get("number") is None:  # of an older version, which gives no sign of life
                raise self._running(name, note)
        refuse_running(
            self.lake,
            {name.removeprefix("running-").removesuffix(".json"): unsure[name] for name in unsure},
            f"job {self.job!r} is run",
        )
        for name, note in locks.items():
            if note.get("number") is not None and note.get("run") == self.current():
                self._give_up(note["run"], note["number"])
            self.directory.delete(name)

    def _give_up(self, run: int, number: int) -> None:
        """Keep a run from being prepared in a turn, unless it is prepared."""
        self._write_new(run, _prepared_name(number), {"given_up": True})

    def _refuse_others(self, lock: str) -> None:
        for name, note in self._locks():
            if name != lock and not is_gone(note):
                raise self._running(name, note)

    def _running(self, name: str, note: Mapping[str, Any]) -> ConflictError:
        remedy = "wait until it is done"
        if note.get("number") is None:
            remedy += ", or remove the file if it is not there any more"
        return ConflictError(
            f"job {self.job!r} is run by {described(note)}",
            place=self.directory.full(name),
            remedy=remedy,
        )

    def _locks(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the locks of processes that run the job, or were interrupted."""
        for name in self.directory.names():
            if _LOCK.fullmatch(name):
                with suppress(MissingFileError):  # it has just ended
                    yield name, read_note(self.directory, name, _Lock)[1]

    def lock(self, mine: dict[str, Any]) -> Turn:
        """Keep other processes from running the job until `unlock`.

        Each process has a lock of its own, and then looks for others: of two that begin at once,
        at least one is refused, perhaps both.

        Returns:
            The turn of this process.

        Raises:
            ConflictError: Another process that is alive has the lock.
            DamagedLakeError: A file is not one of statelake's.
        """
        self.directory.create()
        self.settle()
        turn = self._next_turn()
        content = {**mine, "run": turn.run, "number": turn.number}
        self.directory.write(turn.lock, json.dumps(content).encode())
        try:
            self._refuse_others(turn.lock)
        except BaseException:
            self.unlock(turn)
            raise
        return turn

    def _next_turn(self) -> Turn:
        """Return the first turn of the current run that was neither begun nor given up."""
        run = self.current()
        begun = {_number_in_attempt(name) for name in self.attempts(run)}
        taken = {_number_in(name) for name in self._prepared_names(run)}
        number = 0
        while number in begun | taken:
            if number not in taken:  # the process that began it has ended
                self._give_up(run, number)
            number += 1
        return Turn(secrets.token_hex(8), run, number)

    def unlock(self, turn: Turn) -> None:
        """Let other processes run the job."""
        self.directory.delete(turn.lock)

    def _write_new(self, run: int, name: str, content: dict[str, Any]) -> bool:
        """Write a file of a run that is written only once; return whether it has this content."""
        data = _text_of(content)
        directory = self.run_directory(run)
        directory.create()
        # if a store's response was lost, the file is this process's own
        return directory.write_new(name, data) or directory.read(name) == data

    def _read(self, run: int, name: str, kind: type[Word]) -> Word | None:
        content = self._content(run, name)
        return None if content is None else checked(content, kind, self._refusal(run, name))

    def _content(self, run: int, name: str) -> dict[str, Any] | None:
        """Return the content of a run's file; None if it does not exist."""
        directory = self.run_directory(run)
        if not directory.is_file(name):
            return None
        content = decoded(directory.read(name), dict[str, Any], self._refusal(run, name))
        version = content.pop("version", None)
        if version != VERSION:
            raise CorruptSnapshotError(
                f"of version {version!r:.200}", place=directory.full(name),
                remedy="a newer statelake reads it",
            )  # fmt: skip
        return content

    def _refusal(self, run: int, name: str) -> Refusal:
        return partial(
            CorruptSnapshotError,
            place=self.run_directory(run).full(name),
            remedy="statelake did not write that: restore the file from a backup of the lake",
        )


def _text_of(content: Mapping[str, Any]) -> bytes:
    return json.dumps({"version": VERSION, **content}, indent=1, sort_keys=True).encode()


def _prepared_name(number: int) -> str:
    return f"prepared-{number}.json" if number else "prepared.json"


def _number_in(name: str) -> int:
    """Return the turn in the name of a prepared file."""
    match = _PREPARED.fullmatch(name)
    return int(match[1][1:]) if match and match[1] else 0


def _number_in_attempt(name: str) -> int:
    """Return the turn in the name of an attempt; any number for an older version."""
    return int(name.removeprefix("attempt-")[:4], 16)
