"""State of runs and tasks outside of snapshots, in the lake and in places that are named.

====================================  ==========================================================
`<job>/_runs/<run>/attempt-...`       deleted as a whole: the next run begins with the snapshot
a blob store of runs                  has a second copy of snapshots, deleted as a whole
a directory of changelogs             those of runs as blobs are, of others the changes of the keys
====================================  ==========================================================

Tables into which tasks committed before this version are named, as nothing reads them any more. To
a changelog keys and values are bytes: a change is erased if its key is one of the keys. One that
only contains one, in a longer key or in its value, may belong to another key; the request says
whether it stays.

All of it may be repeated. This state belongs to no snapshot: an erasure of some snapshots only
deletes the attempts of these, and leaves the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from urllib.parse import quote, unquote

import pyarrow as pa

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.run_log import RunLog
from statelake.pipelines.lake.erase.needles import needles_of, whole_forms
from statelake.pipelines.lake.erase.requests import ErasureRequest
from statelake.pipelines.lake.erase.searching import Searcher, unpacked, unpacked_table
from statelake.pipelines.lake.tables.names import OLD_AREAS, RUNS, job_directory, stream_of
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.state_core.errors import (
    ConflictError,
    NotFoundError,
    StateError,
    UnsafePathError,
)
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.runtime.commit import (
    CheckpointV2,
    FileChangelogs,
    FileCheckpointLog,
    FileSystemBlobStore,
)
from statelake.state_core.runtime.commit.backends.blob_store import folder_of
from statelake.state_core.runtime.commit.logs.checkpoint_records import read_records
from statelake.state_core.runtime.commit.records.records import (
    BLOB_STORE_FACTORY,
    CHANGELOG_FACTORY,
)
from statelake.state_core.runtime.commit.records.serdes import read_changelog_marker

RUNS_INSTANCE = "1"  # the instance id of a job in its runs' records
OLD = "tables of tasks that a version before this one wrote"
PIECE_BYTES = 16 << 20
UNPACKED_BYTES = 256 << 20


class HeldKeys:
    """Tests whether bytes hold one of the keys.

    Args:
        erasure: The request with the keys; predicates only apply to states with columns.
        records: Snapshots, whose operators have the key serializers.
        everything: Whether pairs are erased that only contain a key.
    """

    def __init__(
        self, erasure: ErasureRequest, records: Iterable[SnapshotRecord], *, everything: bool
    ) -> None:
        listed = list(records)
        keys = ErasureRequest(erasure.request, erasure.keys)
        needles, left_out = needles_of(keys, listed)
        self.too_short = bool(left_out)
        self.everything = everything
        self._whole = frozenset(whole_forms(erasure, listed))
        self._within = Searcher(needles)

    def has(self, data: bytes | pa.Buffer) -> bool:
        """Return whether bytes contain a key."""
        return next(self._within.find(data), None) is not None

    def pair_has(self, key: bytes, value: bytes | None) -> bool:
        """Return whether a pair contains a key."""
        return self.has(key) or self.has(value or b"")

    def goes(self, key: bytes, value: bytes | None) -> bool:
        """Return whether a pair is erased."""
        return key in self._whole or (self.everything and self.pair_has(key, value))

    def in_file(self, directory: Directory, path: str) -> bool:
        """Return whether a file contains a key, in its bytes or in its compressed parts."""
        size, overlap = directory.size(path), self._within.longest
        with suppress(StateError):  # a file of another kind, or one that only RocksDB can read
            if any(self.has(data) for _, data in unpacked_table(directory.source(path))):
                return True
        with directory.open_input(path) as file:
            for start in range(0, size, PIECE_BYTES):
                data = pa.py_buffer(file.read_at(PIECE_BYTES + overlap, start))
                contents = (content for _, content in unpacked(data, UNPACKED_BYTES))
                if self.has(data) or any(map(self.has, contents)):
                    return True
        return False


@dataclass(frozen=True)
class FoundChanges:
    """The changes to erase of a changelog.

    Attributes:
        place: The directory of changelogs.
        name: The changelog's partition.
        rows: The changes to erase.
        partial_matches: Changes that only contain a key, and stay.
    """

    place: str
    name: str
    rows: int
    partial_matches: int


@dataclass
class FoundTaskState:
    """The state of runs and tasks to erase.

    Attributes:
        changelogs: The changelogs with such changes.
        leftovers: Leftovers that are deleted completely, as text.
        key_in_leftovers: Whether a key is in these leftovers.
        elsewhere: Places that may have copies, and can't be changed from here.
    """

    changelogs: list[FoundChanges] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    key_in_leftovers: bool = False
    elsewhere: list[str] = field(default_factory=list)


def all_jobs(lake: Catalog) -> list[str]:
    """Return all jobs with snapshots, or with state of runs or tasks in the lake."""
    jobs = set(lake.jobs())
    for name in lake.directory.names():
        job = unquote(name.replace("~", "%"))
        if job and job_directory(job) == name and any(_kept(lake, job, (*OLD_AREAS, RUNS))):
            jobs.add(job)
    return sorted(jobs)


class TaskState:
    """The state of runs and tasks of some jobs.

    Args:
        lake: The lake.
        erasure: The request.
        records: The jobs, with the snapshots from which is erased.
    """

    def __init__(
        self,
        lake: Catalog,
        erasure: ErasureRequest,
        records: Mapping[str, Sequence[SnapshotRecord]],
    ) -> None:
        self.lake = lake
        self.erasure = erasure
        self.records = records
        self.runs: dict[str, RunLog] = {}
        for job in records:
            with suppress(UnsafePathError):  # such a job has no runs
                self.runs[job] = RunLog(lake.directory, job)

    @cached_property
    def keys(self) -> HeldKeys:
        """The test whether bytes hold one of the keys, created when it is first needed."""
        records = chain.from_iterable(self.records.values())
        return HeldKeys(self.erasure, records, everything=self.erasure.carried == "drop")

    def refuse_running(self) -> None:
        """Refuse to erase while a job runs, or has a prepared run that is not completed.

        Raises:
            ConflictError: The job runs, or a run of it is prepared and not completed.
        """
        for job, log in self.runs.items():
            log.settle()
            for run in log.runs()[-1:]:
                if not log.done(run) and log.prepared(run) is not None:
                    raise ConflictError(
                        f"run {run} of job {job!r} has state without a snapshot",
                        place=log.run_directory(run).full(),
                        remedy="complete it: `statelake run`",
                    )

    def find(self) -> FoundTaskState:
        """Search all state of runs and tasks.

        Raises:
            NotFoundError: A place that was named has no blob store or changelog.
        """
        task_state = FoundTaskState()
        for job, log in self.runs.items():
            ids = {record.snapshot_id for record in self.records[job]}
            for run in self._runs_going(job):
                for attempt in log.attempts(run):
                    directory = log.run_directory(run).child(attempt)
                    task_state.leftovers.append(directory.full())
                    # without snapshots the key serializer is not known
                    unknown = self.keys.too_short or not ids
                    task_state.key_in_leftovers |= self._in_any(directory) or (
                        unknown and f"run-{run:08d}" not in ids
                    )
        task_state.elsewhere += self._old_tables()
        if self.erasure.snapshots:
            return task_state
        for place in self.erasure.changelogs:
            task_state.changelogs += self._in_changelogs(place, task_state)
        for place in self.erasure.blobs:
            self._look_at_blobs(place, task_state)
        task_state.elsewhere += self._elsewhere()
        return task_state

    def erase(self) -> None:
        """Erase all that `find` finds."""
        for job, log in self.runs.items():
            for run in self._runs_going(job):
                log.discard(run)
        if self.erasure.snapshots:
            return
        for place in self.erasure.changelogs:
            changelogs = FileChangelogs(place)
            for partition in changelogs.partitions():
                if partition.stream in self._streams:
                    changelogs.erase(partition, lambda _: True)
                else:
                    changelogs.erase(partition, lambda it: self.keys.goes(it.key, it.value))
        for place in self.erasure.blobs:
            store = FileSystemBlobStore(Directory(place).confined())
            for prefix in self._prefixes:
                for blob in store.list(prefix):
                    store.delete(blob)
                for folder in store.expiring(prefix):
                    store.make_permanent(folder)  # no blob of it expires later

    def _runs_going(self, job: str) -> Iterator[int]:
        """Yield the runs whose attempts are deleted: all, or those of the named snapshots."""
        log = self.runs[job]
        for run in log.runs():
            if not self.erasure.snapshots or f"run-{run:08d}" in self.erasure.snapshots:
                yield run

    def _old_tables(self) -> Iterator[str]:
        for job in self.records:
            for area in _kept(self.lake, job, OLD_AREAS):
                place = self.lake.directory.full(f"{job_directory(job)}/{area}")
                yield (
                    f"{OLD}: delete the directory {place}; those tasks also have state on their"
                    " hosts, and in Kafka topics"
                )

    def _in_any(self, directory: Directory) -> bool:
        return any(self.keys.in_file(directory, path) for path, _ in directory.files_below())

    def _in_changelogs(self, place: str, task_state: FoundTaskState) -> Iterator[FoundChanges]:
        """Find changelogs of runs, which are deleted, and rows of other changelogs."""
        changelogs = FileChangelogs(place)
        partitions = changelogs.partitions()
        if not partitions:
            raise NotFoundError("there is no changelog", place=place, remedy="give its directory")
        changes = 0
        for partition in partitions:
            changelog = changelogs.open(partition)
            rows = partial_matches = 0
            if partition.stream in self._streams:
                for change in changelog.read():
                    changes += 1
                    task_state.key_in_leftovers |= self.keys.pair_has(change.key, change.value)
                changelog.close()
                continue
            for change in changelog.read():
                going = self.keys.goes(change.key, change.value)
                rows += going
                partial_matches += not going and self.keys.pair_has(change.key, change.value)
            changelog.close()
            if rows or partial_matches:
                yield FoundChanges(place, str(partition), rows, partial_matches)
        if changes:
            task_state.leftovers.append(f"{changes} changes of runs in {place}")

    def _markers(self, factory: str) -> Iterator[tuple[str, str]]:
        """Yield the markers of a backend in the records of these jobs' runs, with the job."""
        for job, log in self.runs.items():
            for record in read_records(FileCheckpointLog(log.checkpoints)):
                if isinstance(record.checkpoint, CheckpointV2):
                    for marker in record.checkpoint.markers.get(factory, {}).values():
                        yield job, marker

    @cached_property
    def _prefixes(self) -> set[str]:
        """Return the prefixes of the blobs of these jobs' runs, from their checkpoint records."""
        return {
            folder
            for job, marker in self._markers(BLOB_STORE_FACTORY)
            if (folder := folder_of(folder_of(marker))).startswith(
                f"job={quote(f'{job}-{RUNS_INSTANCE}', safe='')}/"
            )
        }

    @cached_property
    def _streams(self) -> set[str]:
        """Return the streams of these jobs' runs, from their checkpoint records."""
        return {
            stream
            for job, marker in self._markers(CHANGELOG_FACTORY)
            if (stream := read_changelog_marker(marker).changelog.stream).startswith(
                stream_of(job, "")
            )
        }

    def _look_at_blobs(self, place: str, task_state: FoundTaskState) -> None:
        """Find blobs of runs, which are deleted, and other blobs that contain a key."""
        directory = Directory(place).confined()
        if not directory.exists("blobs"):
            raise NotFoundError("there is no blob store", place=place, remedy="give its directory")
        prefixes = self._prefixes
        going = 0
        others = set()
        for path, _ in directory.files_below("blobs"):
            of_task = folder_of(folder_of(path.partition("/")[2]))
            if of_task in prefixes:
                going += 1
                task_state.key_in_leftovers |= self.keys.in_file(directory, path)
            elif self.keys.in_file(directory, path):
                others.add(of_task)
        if going:
            task_state.leftovers.append(f"{going} blobs of runs in {place}")
        task_state.elsewhere += [
            f"blobs of {of_task} in {place}, which only its task can write again: erase it there,"
            " let it commit, and `statelake checkpoints drop --keep 1 --blobs`"
            for of_task in sorted(others)
        ]

    def _elsewhere(self) -> Iterator[str]:
        """Yield places outside of the lake that may have copies, as far as the lake knows."""
        if not self.erasure.blobs and self._prefixes:
            yield "the blob store of runs: give it with --blobs"
        for stream in sorted(self._streams):
            yield (
                f"the changelog {stream} of runs: give its directory with --changelogs; in Kafka"
                " the next run deletes the keys, and compaction the older records"
            )


def _kept(lake: Catalog, job: str, areas: Sequence[str]) -> Iterator[str]:
    """Return those of some areas that a job has."""
    return (area for area in areas if lake.directory.exists(f"{job_directory(job)}/{area}"))
