"""The runs of a job, as they are planned, prepared and done.

Each run has a directory in the lake, `<job>/_runs/<number>/`:

==================  ==================================================================
`plan.json`         what it reads and begins with, written before anything is read
`prepared.json`     the attempt whose output and state are whole, and count
`done.json`         that output and state are committed
`attempt-*/`        records on their way, and the state as a savepoint
==================  ==================================================================

A run that was cut off before `prepared.json` is done again, over the same input; after it, what was
prepared is committed, and nothing is computed again: so output and state are of the same attempt,
even if the function would not do the same twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from state_core.commit import CheckpointId
from state_core.errors import ConflictError, CorruptSnapshotError
from state_core.filesystem import ConfinedDirectory, Directory

__all__ = ["Plan", "Prepared", "RunLog"]

VERSION = 1
KEPT_RUNS = 2
LOCK = "running.json"
_RUN = re.compile(r"[0-9]{8,18}")
_ATTEMPT = re.compile(r"attempt-[0-9a-f]{12}")


@dataclass(frozen=True)
class Plan:
    """What a run is of.

    Attributes:
        run: Its number, from 1.
        parallelism: Of its operators.
        max_parallelism: The number of key groups.
        processing_time: Its time, in milliseconds.
        begins: Of each source, the offset behind which it reads.
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
        outputs: Of each sink, path, bytes and rows of its files.
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


class RunLog:
    """The runs of one job.

    Args:
        lake: The lake's directory.
        job: The job's name.
    """

    def __init__(self, lake: Directory, job: str) -> None:
        self.directory = lake.confined().child(f"{job}/_runs")

    def run_directory(self, run: int) -> ConfinedDirectory:
        """The directory of a run."""
        return self.directory.child(f"{run:08d}")

    def runs(self) -> list[int]:
        """The numbers of all runs whose directory is there, in order."""
        if not self.directory.exists():
            return []
        return sorted(int(name) for name in self.directory.names() if _RUN.fullmatch(name))

    def plan(self, run: int) -> Plan | None:
        """What a run is of; None if it was not planned."""
        held = self._read(run, "plan.json")
        return None if held is None else Plan(**held)

    def prepared(self, run: int) -> Prepared | None:
        """What a run came to; None if it did not get there."""
        held = self._read(run, "prepared.json")
        return None if held is None else Prepared(**held)

    def done(self, run: int) -> bool:
        """Whether a run is committed."""
        return self.run_directory(run).is_file("done.json")

    def write_plan(self, plan: Plan) -> None:
        """Say what a run is of."""
        self._write(plan.run, "plan.json", asdict(plan))

    def write_prepared(self, run: int, prepared: Prepared) -> None:
        """Say what a run came to."""
        self._write(run, "prepared.json", asdict(prepared))

    def write_done(self, run: int, snapshot_id: str) -> None:
        """Say that a run is committed."""
        self._write(run, "done.json", {"snapshot": snapshot_id})

    def discard(self, run: int, keep: str = "") -> None:
        """Remove the attempts of a run but one."""
        directory = self.run_directory(run)
        for name in directory.names():
            if _ATTEMPT.fullmatch(name) and not (keep and name.startswith(keep)):
                directory.delete_tree(name)

    def forget_before(self, run: int) -> None:
        """Remove what runs long done left, but for what says what they were of."""
        for old in self.runs():
            if old <= run - KEPT_RUNS and self.done(old):
                self.discard(old)

    def lock(self, mine: dict[str, Any], alive: Callable[[dict[str, Any]], bool]) -> None:
        """Let nobody else run the job until `unlock`.

        Raises:
            ConflictError: Another process that is alive has done that.
        """
        self.directory.create()
        if self.directory.is_file(LOCK):
            held = json.loads(self.directory.read(LOCK))
            if alive(held):
                raise ConflictError(
                    f"process {held['process']} of {held['host']} runs the job",
                    place=self.directory.full(LOCK),
                    remedy="wait until it is done, or remove the file if it is not there any more",
                )
        self.directory.write(LOCK, json.dumps(mine).encode())

    def unlock(self, mine: dict[str, Any]) -> None:
        """Let others run it."""
        if self.directory.is_file(LOCK) and json.loads(self.directory.read(LOCK)) == mine:
            self.directory.delete(LOCK)

    def _write(self, run: int, name: str, held: dict[str, Any]) -> None:
        data = json.dumps({"version": VERSION, **held}, indent=1, sort_keys=True)
        directory = self.run_directory(run)
        directory.create()
        directory.write(name, data.encode())

    def _read(self, run: int, name: str) -> dict[str, Any] | None:
        directory = self.run_directory(run)
        if not directory.is_file(name):
            return None
        place = directory.full(name)
        try:
            held: dict[str, Any] = json.loads(directory.read(name))
            version = held.pop("version")
        except (ValueError, KeyError, AttributeError) as error:
            raise CorruptSnapshotError(
                f"this is no word of a run ({error})", place=place
            ) from error
        if version != VERSION:
            raise CorruptSnapshotError(
                f"of version {version}", place=place, remedy="a newer statelake reads it"
            )
        return held
