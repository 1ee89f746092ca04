"""Histories of jobs that write checkpoints, by the rules by which Flink keeps and drops files.

Of each file it is known who may still name it: a `_metadata` that is there, or a job that runs and
holds the file for a later one. Nobody else's files are left over.

A job's backend decides what it holds: `heap` writes all state anew; `rocksdb` carries files of the
newest completed checkpoint on; `changelog` uploads changes and what they are materialized into
before any checkpoint names them; `merged` keeps files open, and writes segments into them; `forst`
works with tables in `shared`.
"""

from __future__ import annotations

import random
import shutil
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timezone
from os import utime
from pathlib import Path

from statelake.pipelines.live.answers import Checkpoint, FlinkJob, JobCheckpoints
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
    canonical_savepoint_properties,
    write_metadata,
)
from statelake.state_core.model.handles import (
    ChangelogFileHandle,
    ChangelogHandle,
    FileHandle,
    IncrementalHandle,
    RelativeHandle,
    SegmentHandle,
    StreamHandle,
)

__all__ = ["BACKENDS", "DAY", "World"]

BACKENDS = ("heap", "rocksdb", "changelog", "merged", "forst")
BUFFERS = ("changelog", "merged", "forst")
DAY = 86_400.0
START = 1_700_000_000.0
BYTES = 7
PROPERTIES = canonical_savepoint_properties()


@dataclass
class Snapshot:
    """A completed checkpoint or savepoint: its directory, and the files that it names."""

    directory: Path
    number: int
    time: float
    named: set[Path]
    shared: set[Path] = field(default_factory=set)


@dataclass
class Job:
    """A job, and what it holds.

    Attributes:
        id: Its id.
        backend: One of `BACKENDS`.
        retained: How many checkpoints it retains.
        number: The id of its newest checkpoint.
        state: Of the cluster.
        completed: The checkpoints that it retains.
        told: What the cluster says of it.
        held: The files that it may name later.
        shared: The shared files that the next increment carries on.
        restored_from: The path that it was started from.
        under_way: The id of the checkpoint in progress.
        forgotten: Whether the cluster does not know it any more.
    """

    id: str
    backend: str
    retained: int
    number: int = 0
    state: str = "RUNNING"
    completed: list[Snapshot] = field(default_factory=list)
    told: list[Checkpoint] = field(default_factory=list)
    held: set[Path] = field(default_factory=set)
    shared: set[Path] = field(default_factory=set)
    restored_from: str = ""
    under_way: int | None = None
    forgotten: bool = False


class Cluster:
    """Answers as a cluster does that has forgotten some jobs which ended."""

    def __init__(self, world: World) -> None:
        self.world = world

    def jobs(self) -> list[FlinkJob]:
        """Return the overview."""
        began = _moment(START)
        known = [job for job in self.world.jobs if not job.forgotten]
        return [FlinkJob(job.id, "job", job.state, began, 0.0, 1, 1) for job in known]

    def checkpoints(self, job_id: str) -> JobCheckpoints:
        """Return the last ten checkpoints."""
        job = next(job for job in self.world.jobs if job.id == job_id)
        told = list(job.told)
        if job.under_way is not None:
            told.append(_told(job.under_way, "IN_PROGRESS", self.world.now, ""))
        return JobCheckpoints(len(told), 0, job.restored_from, "", tuple(told[-10:]))


class World:
    """A cluster's jobs, and the directory to which they write.

    Args:
        root: The directory, which is empty.
        rng: Decides what happens.
    """

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root = root
        self.rng = rng
        self.now = START
        self.jobs: list[Job] = []
        self.savepoints: list[Snapshot] = []
        self.written: dict[Path, float] = {}

    # ----------------------------------------------------------------------- a cluster's answers

    def cluster(self) -> Cluster:
        """Return what answers as a cluster does."""
        return Cluster(self)

    # ----------------------------------------------------------------------- what is needed

    def needed(self) -> set[Path]:
        """Return the files that a snapshot names, or that a job may name later."""
        needed: set[Path] = set()
        for snapshot in [*self.savepoints, *(each for job in self.jobs for each in job.completed)]:
            if (snapshot.directory / "_metadata").is_file():
                needed |= snapshot.named | {snapshot.directory / "_metadata"}
        for job in self.jobs:
            if job.state == "RUNNING":
                needed |= job.held
        return needed

    def left(self, age: float) -> set[Path]:
        """Return the files of that age that are nobody's, and that can be known to be.

        Of a job that runs these are those of its own directories, if it names all that it has; and
        in `shared` those that are older by the same age than its newest checkpoint.
        """
        needed, left = self.needed(), set()
        for path in self.root.rglob("*"):
            if path in needed or not path.is_file() or self.written[path] > self.now - age:
                continue
            part = path.relative_to(self.root).parts
            job = next((job for job in self.jobs if job.id == part[0]), None)
            if job is not None and job.state == "RUNNING" and not self._is_known(job, path, age):
                continue
            if job is not None and job.forgotten and self._is_fresh(job, age):
                continue
            left.add(path)
        return left

    def _is_known(self, job: Job, path: Path, age: float) -> bool:
        own = [each for each in job.completed if each.directory.parent.name == job.id]
        if not own or job.backend in BUFFERS:
            return False
        kind = path.relative_to(self.root).parts[1]
        newest = own[-1]
        if kind == "shared":
            return self.written[path] <= newest.time - age
        return kind.startswith("chk-") and int(kind[4:]) < newest.number

    def _is_fresh(self, job: Job, age: float) -> bool:
        files = [path for path in (self.root / job.id).rglob("*") if path.is_file()]
        return any(self.written[path] > self.now - age for path in files)

    # ----------------------------------------------------------------------- what happens

    def step(self) -> None:
        """Let one thing happen."""
        self.now += self.rng.choice((0.01, 0.1, 1, 3)) * DAY
        running = [job for job in self.jobs if job.state == "RUNNING"]
        if not running or (len(self.jobs) < 4 and self.rng.random() < 0.1):
            self._start()
            return
        job = self.rng.choice(running)
        actions = [
            self._complete, self._complete, self._complete, self._abort, self._lose_worker,
            self._savepoint, self._half_savepoint, self._cancel, self._delete_by_hand, self._hold,
        ]  # fmt: skip
        self.rng.choice(actions)(job)

    def end(self) -> None:
        """Let last checkpoints be in progress, perhaps for days; and ended jobs be forgotten."""
        for job in self.jobs:
            if job.state == "RUNNING" and self.rng.random() < 0.5:
                self.now += 60
                job.under_way = job.number + 1
                job.held |= self._upload(job, job.under_way)
            job.forgotten = job.state != "RUNNING" and self.rng.random() < 0.3
        self.now += self.rng.choice((0, 1, 10)) * DAY

    def _start(self) -> None:
        backend = self.rng.choice(BACKENDS)
        job = Job(uuid.UUID(int=self.rng.getrandbits(128)).hex, backend, self.rng.randint(1, 3))
        ended = [each for each in self.jobs if each.state != "RUNNING" and each.completed]
        if ended and self.rng.random() < 0.7:
            other = self.rng.choice(ended)
            taken = other.completed[-1]
            job.backend = other.backend
            job.number, job.restored_from = taken.number, str(taken.directory)
            job.shared = set(taken.shared)
            if self.rng.random() < 0.5:  # claimed: the new job retains it, and drops it later
                other.completed.remove(taken)
                job.completed.append(taken)
        self.jobs.append(job)

    def _upload(self, job: Job, number: int) -> set[Path]:
        """Write the files of a checkpoint, and return them; the job does not name them yet."""
        directory = self.root / job.id / f"chk-{number}"
        files = {self._write(directory / _name()) for _ in range(self.rng.randint(1, 3))}
        shared = self.root / job.id / "shared"
        if job.backend in {"rocksdb", "changelog"}:
            files |= {self._write(shared / _name()) for _ in range(self.rng.randint(0, 2))}
        if job.backend == "forst":
            files |= {self._write(shared / "op_1_attempt_0" / "db" / _name())}
        if job.backend == "merged" and (not job.held or self.rng.random() < 0.3):
            files |= {self._write(shared / "job_tm-1" / _name())}
            files |= {self._write(self.root / job.id / "taskowned" / "job_tm-1" / _name())}
        if job.backend == "changelog":
            files |= {self._write(self.root / job.id / "dstl" / _name())}
        return files

    def _complete(self, job: Job) -> None:
        job.number += 1
        triggered = self.now
        files = self._upload(job, job.number)
        directory = self.root / job.id / f"chk-{job.number}"
        beside = {path for path in files if path.parent == directory}
        if self.rng.random() < 0.2:  # of an attempt that was lost
            self._write(directory / _name())
        carried = {path for path in job.shared | job.held if self.rng.random() < 0.8}
        shared = (files - beside) | carried
        if job.backend == "heap":
            shared = set()
        named = beside | shared
        self.now += 60
        self._metadata(job, directory, job.number, named)
        if job.backend in BUFFERS:  # what is not named now may be later: open files, changes
            job.held |= files - beside
        job.shared = shared
        job.completed.append(Snapshot(directory, job.number, triggered, named, shared))
        job.told.append(_told(job.number, "COMPLETED", triggered, str(directory)))
        while len(job.completed) > job.retained:
            self._drop(job, job.completed.pop(0))

    def _drop(self, job: Job, snapshot: Snapshot) -> None:
        """Delete what a checkpoint has alone; a JobManager that dies meanwhile leaves the rest."""
        (snapshot.directory / "_metadata").unlink(missing_ok=True)
        needed = self.needed() | job.shared | job.held
        for path in sorted(snapshot.named - needed):
            if self.rng.random() < 0.05:
                return
            path.unlink(missing_ok=True)

    def _abort(self, job: Job) -> None:
        job.number += 1
        files = self._upload(job, job.number)
        if job.backend in BUFFERS:  # merged files stay open; changes are named by the next one
            job.held |= {path for path in files if f"chk-{job.number}" not in path.parts}
        job.told.append(_told(job.number, "FAILED", self.now, ""))
        for path in sorted(files - job.held):
            if self.rng.random() < 0.5:
                path.unlink()

    def _lose_worker(self, job: Job) -> None:
        """Restart from the newest checkpoint; what a task had uploaded is forgotten."""
        self._upload(job, job.number + 1)
        job.held = set()
        job.shared = set(job.completed[-1].shared) if job.completed else set()
        job.number += 1

    def _hold(self, job: Job) -> None:
        """Upload long before a checkpoint names it, as a changelog does."""
        if job.backend == "changelog":
            below = self.root / job.id
            where = (below / "dstl", below / "shared", below / f"chk-{max(1, job.number)}")
            job.held.add(self._write(self.rng.choice(where) / _name()))

    def _savepoint(self, job: Job) -> None:
        directory = self.root / "savepoints" / f"savepoint-{job.id[:6]}-{_name()[-12:]}"
        named = {self._write(directory / _name()) for _ in range(2)}
        job.number += 1
        self._metadata(job, directory, job.number, named)
        self.savepoints.append(Snapshot(directory, job.number, self.now, named))

    def _half_savepoint(self, job: Job) -> None:
        self._write(self.root / "savepoints" / f"savepoint-{job.id[:6]}-{_name()[-12:]}" / _name())

    def _cancel(self, job: Job) -> None:
        job.state = "CANCELED"
        if self.rng.random() < 0.4:
            while job.completed:
                self._drop(job, job.completed.pop(0))

    def _delete_by_hand(self, job: Job) -> None:
        """Delete a whole savepoint or retained checkpoint, as people do."""
        several = [*self.savepoints, *(job.completed if job.state != "RUNNING" else ())]
        if several:
            shutil.rmtree(self.rng.choice(several).directory, ignore_errors=True)

    # ----------------------------------------------------------------------- files

    def _write(self, path: Path, data: bytes = b"x" * BYTES) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        utime(path, (self.now, self.now))
        self.written[path] = self.now
        return path

    def _metadata(self, job: Job, directory: Path, number: int, named: set[Path]) -> None:
        streams: list[StreamHandle] = []
        for path in sorted(named):
            if path.parent == directory:
                streams.append(RelativeHandle(path.name, BYTES))
            elif "job_tm-1" in path.parts:
                streams.append(SegmentHandle(0, BYTES, 1, f"file:{path}", path.name))
            else:
                streams.append(FileHandle(f"file:{path}", BYTES))
        of_files = tuple((str(index), stream) for index, stream in enumerate(streams))
        increment = IncrementalHandle(number, job.id, 0, 128, None, of_files, ())
        keyed: IncrementalHandle | ChangelogHandle = increment
        if job.backend == "changelog":
            logs = tuple((0, s) for s in streams if "/dstl/" in getattr(s, "uri", ""))
            changes = ChangelogFileHandle(0, 128, logs, 0, 0, "log")
            keyed = ChangelogHandle(0, 128, 0, (increment,), (changes,), 0, number, "handle")
        operator = OperatorMetadata(
            "a" * 32, 1, 128, subtasks={0: SubtaskState(managed_keyed=keyed)}
        )
        metadata = CheckpointMetadata(4, number, [operator], properties=PROPERTIES)
        self._write(directory / "_metadata", write_metadata(metadata))


def _name() -> str:
    return str(uuid.UUID(int=_NAMES.getrandbits(128)))


_NAMES = random.Random(1)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


def _told(number: int, status: str, triggered: float, path: str) -> Checkpoint:
    return Checkpoint(number, status, False, _moment(triggered), 1.0, BYTES, BYTES, path)
