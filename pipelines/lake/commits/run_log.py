"""The runs of a job, as they are planned, prepared and done.

Each run has a directory in the lake, `<job>/_runs/<number>/`:

==================  ==================================================================
`plan.json`         what it reads and begins with, written before anything is read
`prepared.json`     the attempt whose output and state are whole, and count
`prepared-N.json`   the same, after N that were given up
`done.json`         that output and state are committed
`attempt-*/`        records on their way, and the state as a savepoint
==================  ==================================================================

A run that was cut off before `prepared.json` is done again, over the same input; after it, what was
prepared is committed, and nothing is computed again: so output and state are of the same attempt,
even if the function would not do the same twice.

Who runs a job says so in a file `running-<token>.json`, with the run and which `prepared` it may
write, and gives signs of life as attempts do. Whoever takes it for dead writes that file in its
stead, with nothing in it but that it was given up: of the two one can, and the other sees that. So
a process that lives after all prepares nothing any more, and its files may go.

They lie in the lake, so anyone who can write there may have written them: what they say is held
against rules when it is read, and leads nowhere but to the run's own directories.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from statelake.pipelines.lake.catalog.attempts import watch
from statelake.pipelines.lake.catalog.processes import described, is_gone, read_note
from statelake.pipelines.lake.tables.record_rules import Rule, broken_rule
from statelake.state_core.commit import CheckpointId
from statelake.state_core.errors import ConflictError, CorruptSnapshotError, MissingFileError
from statelake.state_core.files.filesystem import ConfinedDirectory, Directory
from statelake.state_core.model.key_groups import MAX_PARALLELISM_LIMIT

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


def _is_number(value: object) -> bool:
    return type(value) is int and abs(value) < 1 << 62


def _is_count(value: object) -> bool:
    return _is_number(value) and value >= 0  # type: ignore[operator]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _each(kept: Callable[[Any], bool]) -> Callable[[object], bool]:
    """Whether a value is a mapping of names to such."""
    return lambda value: isinstance(value, dict) and all(map(kept, value.values()))


def _is_offset(value: object) -> bool:
    """Where a source is: a version of a Delta table, or the bytes of each of its files."""
    if not isinstance(value, dict):
        return False
    return _is_count(value.get("version", 0)) and _each(_is_count)(value.get("files", {}))


def _is_output(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, list)
        and len(item) == 3
        and _is_text(item[0])
        and all(map(_is_count, item[1:]))
        for item in value
    )


_GROUPS = Rule(
    lambda value: _is_number(value) and 1 <= value <= MAX_PARALLELISM_LIMIT,
    f"1 to {MAX_PARALLELISM_LIMIT}",
)
_WATERMARK = Rule(lambda value: value is None or _is_number(value), "a time in milliseconds")
_TIMES = Rule(_each(_is_number), "a time of each source")
_OFFSETS = Rule(_each(_is_offset), "an offset of each source")
_COUNT = Rule(_is_count, "0 or more")
PLAN_RULES: Mapping[str, Rule] = {
    "run": _COUNT, "parallelism": _GROUPS, "max_parallelism": _GROUPS, "processing_time": _COUNT,
    "begins": _OFFSETS, "ends": _OFFSETS, "restore": Rule(_is_text, "a snapshot"),
    "watermark": _WATERMARK, "latest": _TIMES,
    "final": Rule(lambda value: isinstance(value, bool), "true or false"),
}  # fmt: skip
PREPARED_RULES: Mapping[str, Rule] = {
    "attempt": Rule(
        lambda value: _is_text(value) and _ATTEMPT.fullmatch(value) is not None, "an attempt"
    ),
    "savepoint": Rule(_is_text, "a directory"), "watermark": _WATERMARK, "latest": _TIMES,
    "outputs": Rule(_each(_is_output), "the files of each sink: path, bytes and rows"),
    "records": _COUNT, "markers": Rule(_each(_is_text), "a marker of each task"),
    "counts": Rule(_each(_each(_is_number)), "counts of each task"),
}  # fmt: skip
LOCK_RULES: Mapping[str, Rule] = {  # those of older versions have neither
    "run": Rule(lambda value: value is None or _is_count(value), "a run"),
    "number": Rule(
        lambda value: value is None or (_is_count(value) and value <= MOST_GIVEN_UP), "a number"
    ),
}


@dataclass(frozen=True)
class Turn:
    """What a process may do that nobody else does: prepare a run.

    Attributes:
        token: Of its lock, and of its signs of life.
        run: The run: the one that was cut off, or the next.
        number: How many turns of the run were given up before.
    """

    token: str
    run: int
    number: int

    @property
    def lock(self) -> str:
        """The file that says who has it."""
        return f"running-{self.token}.json"

    def new_attempt(self) -> str:
        """A name that no attempt has."""
        return f"attempt-{self.number:04x}{secrets.token_hex(4)}"


@dataclass(frozen=True)
class Plan:
    """What a run is of.

    Attributes:
        run: Its number, from 1.
        parallelism: The parallelism of its operators.
        max_parallelism: The number of key groups.
        processing_time: Its time, in milliseconds.
        begins: For each source, the offset behind which it reads.
        ends: And up to which.
        restore: The lake's snapshot that it begins with; empty at the beginning of all.
        watermark: Event time before it.
        latest: The greatest event time of each source before it.
        final: Whether the streams end with it.
    """

    run: int
    parallelism: int
    max_parallelism: int
    processing_time: int
    begins: dict[str, Any]
    ends: dict[str, Any]
    restore: str = ""
    watermark: int | None = None
    latest: dict[str, int] = field(default_factory=dict)
    final: bool = False

    @property
    def checkpoint(self) -> CheckpointId:
        """The id of its checkpoint: times of runs ascend."""
        return CheckpointId(self.processing_time, 0)


@dataclass(frozen=True)
class Prepared:
    """What a run came to.

    Attributes:
        attempt: Whose it is.
        savepoint: The directory of its state, below the run's.
        watermark: Event time behind it.
        latest: The greatest event time of each source.
        outputs: For each sink, the path, bytes and rows of its files.
        records: How many records came in.
        markers: Of each task, where the blob store has its state; empty if that has not.
        counts: Of each task, what its commit cost, by the names that `CommitMeasures` has.
    """

    attempt: str
    savepoint: str
    watermark: int | None
    latest: dict[str, int]
    outputs: dict[str, list[list[Any]]]
    records: int
    markers: dict[str, str] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)


def output_directory(job: str, run: int, attempt: str) -> str:
    """Where an attempt's files lie below a sink's table."""
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

    def run_directory(self, run: int) -> ConfinedDirectory:
        """The directory of a run."""
        return self.directory.child(f"{run:08d}")

    def runs(self) -> list[int]:
        """The numbers of all runs whose directory is there, in order."""
        names = [name for name in self.directory.names() if _RUN.fullmatch(name)]
        return sorted(run for name in names if (run := int(name)) and f"{run:08d}" == name)

    def current(self) -> int:
        """The run that was cut off, or the next."""
        runs = self.runs()
        last = runs[-1] if runs else 0
        return last if last and not self.done(last) else last + 1

    def plan(self, run: int) -> Plan | None:
        """What a run is of; None if it was not planned.

        Raises:
            CorruptSnapshotError: The plan says something that can't be.
        """
        plan = self._read(run, "plan.json", Plan, PLAN_RULES)
        if plan is not None and plan.run != run:
            raise self._refused(run, "plan.json", f"run: {plan.run}, which is another run")
        return plan

    def prepared(self, run: int) -> Prepared | None:
        """What a run came to; None if it did not get there.

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
        prepared = self._read(run, name, Prepared, PREPARED_RULES)
        if prepared is None:
            return None
        if prepared.savepoint != f"{prepared.attempt}/{SAVEPOINT}":
            problem = f"savepoint: {prepared.savepoint!r:.200}, which is not the attempt's"
            raise self._refused(run, name, problem)
        within = re.escape(output_directory(self.job, run, prepared.attempt))
        ours = re.compile(within + r"/[\w.-]+\.parquet", re.ASCII)
        for path in (file[0] for files in prepared.outputs.values() for file in files):
            if not ours.fullmatch(path):
                problem = f"outputs: {path!r:.200}, which is no file of the attempt's"
                raise self._refused(run, name, problem)
        return prepared

    def done(self, run: int) -> bool:
        """Whether a run is committed."""
        return self.run_directory(run).is_file("done.json")

    def write_plan(self, plan: Plan) -> None:
        """Say what a run is of.

        Raises:
            ConflictError: Another process has said so.
        """
        if not self._write_new(plan.run, "plan.json", asdict(plan)):
            raise self._taken_over()

    def write_prepared(self, turn: Turn, prepared: Prepared) -> None:
        """Say what a run came to.

        Raises:
            ConflictError: The turn was given up, as its process was taken for dead.
        """
        if not self._write_new(turn.run, _prepared_name(turn.number), asdict(prepared)):
            self.run_directory(turn.run).delete_tree(prepared.attempt)
            raise self._taken_over()

    def write_done(self, run: int, snapshot_id: str) -> None:
        """Say that a run is committed."""
        directory = self.run_directory(run)
        directory.create()
        directory.write("done.json", _text_of({"snapshot": snapshot_id}))

    def require(self, turn: Turn) -> None:
        """Look whether a turn is this process's still: advice, as it may go the next moment.

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
        """The attempts at a run whose directories are there."""
        return [name for name in self.run_directory(run).names() if _ATTEMPT.fullmatch(name)]

    def discard(self, run: int, keep: str = "") -> None:
        """Remove the attempts of a run but one."""
        for name in self.attempts(run):
            if name != keep:
                self.run_directory(run).delete_tree(name)

    def discard_given_up(self, turn: Turn) -> None:
        """Remove the attempts of turns that were given up before this one."""
        for name in self.attempts(turn.run):
            if _number_in_attempt(name) < turn.number:
                self.run_directory(turn.run).delete_tree(name)

    def forget_before(self, run: int) -> None:
        """Remove what runs long done left, but for what says what they were of."""
        for old in self.runs():
            if old <= run - KEPT_RUNS and self.done(old):
                self.discard(old)

    def settle(self) -> None:
        """Give up the turns of processes that are gone, or give no sign of life.

        Raises:
            ConflictError: A process is at work, as far as anyone can tell.
            DamagedLakeError: Something is there that no process of ours wrote.
        """
        locks = dict(self._locks())
        unsure = {name: note for name, note in locks.items() if not is_gone(note)}
        for name, note in unsure.items():
            if note.get("number") is None:  # of an older version, which gives no sign of life
                raise self._running(name, note)
        watch(
            self.lake,
            {name.removeprefix("running-").removesuffix(".json"): unsure[name] for name in unsure},
            f"job {self.job!r} is run",
        )
        for name, note in locks.items():
            if note.get("number") is not None and note.get("run") == self.current():
                self._give_up(note["run"], note["number"])
            self.directory.delete(name)

    def _give_up(self, run: int, number: int) -> None:
        """Let nobody prepare a run in a turn, unless that is done."""
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
        """What processes that run the job say of themselves, and those that did not end well."""
        for name in self.directory.names():
            if _LOCK.fullmatch(name):
                with suppress(MissingFileError):  # it has ended at this moment
                    yield name, read_note(self.directory, name, LOCK_RULES)

    def lock(self, mine: dict[str, Any]) -> Turn:
        """Let nobody else run the job until `unlock`.

        Each process has a lock of its own, and looks for others behind it: of two that begin at
        once, both may be refused, and never none.

        Returns:
            What this process may do.

        Raises:
            ConflictError: Another process that is alive has done that.
            DamagedLakeError: Something is there that no process of ours wrote.
        """
        self.directory.create()
        self.settle()
        turn = self._next_turn()
        said = {**mine, "run": turn.run, "number": turn.number}
        self.directory.write(turn.lock, json.dumps(said).encode())
        try:
            self._refuse_others(turn.lock)
        except BaseException:
            self.unlock(turn)
            raise
        return turn

    def _next_turn(self) -> Turn:
        """The first turn of the current run that nobody has begun or given up."""
        run = self.current()
        begun = {_number_in_attempt(name) for name in self.attempts(run)}
        taken = {_number_in(name) for name in self._prepared_names(run)}
        number = 0
        while number in begun | taken:
            if number not in taken:  # who began it has ended without a word
                self._give_up(run, number)
            number += 1
        return Turn(secrets.token_hex(8), run, number)

    def unlock(self, turn: Turn) -> None:
        """Let others run it."""
        self.directory.delete(turn.lock)

    def _write_new(self, run: int, name: str, content: dict[str, Any]) -> bool:
        """Say something of a run that can be said once; whether it is what was said."""
        data = _text_of(content)
        directory = self.run_directory(run)
        directory.create()
        # of a store whose answer was lost, this process's own word is there
        return directory.write_new(name, data) or directory.read(name) == data

    def _read(
        self, run: int, name: str, kind: Callable[..., Word], rules: Mapping[str, Rule]
    ) -> Word | None:
        content = self._content(run, name)
        if content is None:
            return None
        try:
            parsed = kind(**content)
        except TypeError as error:
            raise self._refused(run, name, f"this is no word of a run ({error})") from error
        fault = broken_rule(vars(parsed), rules)
        if fault is not None:
            raise self._refused(run, name, f"{fault[0]}: {fault[1]}")
        return parsed

    def _content(self, run: int, name: str) -> dict[str, Any] | None:
        """What a file of a run says; None if it does not exist."""
        directory = self.run_directory(run)
        if not directory.is_file(name):
            return None
        try:
            content: dict[str, Any] = json.loads(directory.read(name))
            version = content.pop("version")
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise self._refused(run, name, f"this is no word of a run ({error})") from error
        if version != VERSION:
            raise CorruptSnapshotError(
                f"of version {version!r:.200}", place=directory.full(name),
                remedy="a newer statelake reads it",
            )  # fmt: skip
        return content

    def _refused(self, run: int, name: str, problem: str) -> CorruptSnapshotError:
        return CorruptSnapshotError(
            problem,
            place=self.run_directory(run).full(name),
            remedy="statelake did not write that: restore the file from a backup of the lake",
        )


def _text_of(content: Mapping[str, Any]) -> bytes:
    return json.dumps({"version": VERSION, **content}, indent=1, sort_keys=True).encode()


def _prepared_name(number: int) -> str:
    return f"prepared-{number}.json" if number else "prepared.json"


def _number_in(name: str) -> int:
    """The turn in the name of what was prepared."""
    match = _PREPARED.fullmatch(name)
    return int(match[1][1:]) if match and match[1] else 0


def _number_in_attempt(name: str) -> int:
    """The turn in the name of an attempt; any number in that of an older version."""
    return int(name.removeprefix("attempt-")[:4], 16)
