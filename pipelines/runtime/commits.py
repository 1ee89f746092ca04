"""Commits of a run's state to a blob store and a changelog, in two phases (SEP-28).

Each subtask is a task of the protocol, its state one store. Executors prepare the commits while
they have the state: `TaskCommit.prepare` snapshots and uploads it. The driver writes one record a
task, with the markers of all backends (the id of the lake's snapshot is one), when all state is
permanent, and then cleans up. A restore starts the tasks of the last run by `TaskStart`, whatever
its parallelism, and merges their states into one savepoint.
"""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from statelake.pipelines.lake.catalog.run_log import RunPlan
from statelake.pipelines.lake.tables.names import stream_of
from statelake.pipelines.runtime.subtask_store import (
    METADATA_VERSION,
    SubtaskFiles,
    SubtaskStore,
)
from statelake.state_core.errors import CommitError, StateError
from statelake.state_core.files.filesystem import ConfinedDirectory, Directory
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
)
from statelake.state_core.model.key_groups import operator_id_of_uid
from statelake.state_core.runtime.commit import (
    BlobStoreBackend,
    ChangelogBackend,
    CheckpointId,
    CheckpointManager,
    CheckpointV2,
    CommitSettings,
    FileCheckpointLog,
    FileSystemBlobStore,
    PosixDisk,
    StateBackendFactory,
    StoreSettings,
    StoreSpec,
    SystemStreamPartition,
    TaskBackupManager,
    TaskContext,
    TaskStart,
    TaskStores,
)
from statelake.state_core.runtime.commit.contract.futures import done
from statelake.state_core.runtime.commit.logs.checkpoint_records import open_changelogs
from statelake.state_core.runtime.commit.records.records import (
    BLOB_STORE_FACTORY,
    CHANGELOG_FACTORY,
    Checkpoint,
)
from statelake.state_core.runtime.process import StreamJob

LAKE, BLOB, CHANGELOG = "lake", "blob", "changelog"
FACTORIES = {BLOB: BLOB_STORE_FACTORY, CHANGELOG: CHANGELOG_FACTORY}
GROUPER = "statelake.runtime"
STORE = "state"
MOST_DELAY = 1800.0
_PARTS = re.compile(r",(?=(?:blob|changelog)=|lake(?:,|$))")
LOG = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True)
class CommitTargets:
    """The backends to which a job's state is committed, beside the lake.

    Attributes:
        job: The job's name.
        blob: The blob store, a directory or a URI; empty without one.
        changelog: The changelogs, `kafka://HOST:PORT` or a directory; empty without them.
        keep: The number of snapshots to keep in the blob store.
        max_delay: The seconds that a commit's uploads may take.
        tolerant: Whether a backend that fails is left out of a commit, and has everything again in
            the next one; otherwise it fails the run.
    """

    job: str
    blob: str = ""
    changelog: str = ""
    keep: int = 2
    max_delay: float = MOST_DELAY
    tolerant: bool = False

    @classmethod
    def parse(
        cls, job: str, commit_to: Iterable[str], max_delay: float, *, tolerant: bool
    ) -> CommitTargets:
        """Parse `blob=PLACE`, `changelog=PLACE` and `lake`, one by one or between commas.

        Raises:
            StateError: A backend is unknown, named twice, or without a place.
        """
        places: dict[str, str] = {}
        for part in (part for text in commit_to for part in _PARTS.split(text)):
            name, _, place = part.strip().partition("=")
            if name not in {*FACTORIES, LAKE} or bool(place) != (name != LAKE) or name in places:
                raise StateError(
                    f"{part!r} is not a backend of commits"
                    if name not in places
                    else f"{name!r} is named twice",
                    remedy="backends are blob=PLACE, changelog=PLACE and lake, each once",
                )
            places[name] = place
        return cls(
            job, places.get(BLOB, ""), places.get(CHANGELOG, ""), max_delay=max_delay,
            tolerant=tolerant,
        )  # fmt: skip

    @property
    def names(self) -> list[str]:
        """The backends beside the lake."""
        return [name for name in FACTORIES if getattr(self, name)]

    def factories(self, streams: Mapping[str, int] | None = None) -> list[StateBackendFactory]:
        """Return the backends.

        Args:
            streams: The changelogs to create, with their numbers of partitions.
        """
        backends: list[StateBackendFactory] = []
        if self.blob:
            blobs = FileSystemBlobStore(Directory(self.blob).confined())
            backends.append(BlobStoreBackend(blobs, self.keep))
        if self.changelog:
            changelogs = open_changelogs(self.changelog)
            backends.append(
                ChangelogBackend(changelogs, compact_every=0, streams=streams, reads_back=True)
            )
        return backends

    def backup(self, backup: TaskBackupManager) -> TaskBackupManager:
        """Return a manager of backups, or one that goes on without it if it fails."""
        return _ToleratedBackup(backup) if self.tolerant else backup

    def settings(self, restore: str = "") -> CommitSettings:
        """Return the settings of a task.

        Args:
            restore: The backend of a restore; any if it is empty.
        """
        store = StoreSettings(tuple(FACTORIES[name] for name in self.names), FACTORIES.get(restore))
        return CommitSettings(stores={STORE: store})

    def create_resources(self, parallelism: Mapping[str, int]) -> None:
        """Create the changelogs of operators, given the largest parallelism of each."""
        streams = {stream_of(self.job, uid): count for uid, count in parallelism.items()}
        for factory in self.factories(streams):
            if factory.name == CHANGELOG_FACTORY:
                try:
                    factory.create_resources()
                except (StateError, OSError) as error:
                    if not self.tolerant:
                        raise
                    LOG.error("job %s: changelogs can't be created: %s", self.job, error)  # noqa: TRY400 - the error says all


@dataclass(frozen=True)
class SubtaskName:
    """The name of a subtask.

    Attributes:
        uid: The uid of its operator.
        subtask: Its index.
    """

    uid: str
    subtask: int

    def __str__(self) -> str:
        return f"{self.uid}-{self.subtask}"


def tasks_of(job: StreamJob, plan: RunPlan) -> list[SubtaskName]:
    """Return the tasks of a run, operator by operator."""
    return [
        SubtaskName(uid, index)
        for uid, operator in job.operators.items()
        for index in range(operator.parallelism(plan.parallelism))
    ]


def checkpoint_manager(runs: Directory) -> CheckpointManager:
    """Return the manager of the records of a job's runs."""
    return CheckpointManager(FileCheckpointLog(runs.child("checkpoints")), GROUPER)


def partition_of(source: str) -> SystemStreamPartition:
    """Return the partition under which a record has a source's offset."""
    return SystemStreamPartition("statelake", source, 0)


@contextmanager
def _context(targets: CommitTargets, name: SubtaskName) -> Iterator[TaskContext]:
    """Yield the context of a task, with a directory of its own."""
    changelogs = {}
    if targets.changelog:
        stream = stream_of(targets.job, name.uid)
        changelogs[STORE] = SystemStreamPartition("statelake", stream, name.subtask)
    with tempfile.TemporaryDirectory(
        prefix="statelake-commit-", ignore_cleanup_errors=True
    ) as directory:
        spec = StoreSpec(STORE, SubtaskStore, immutable=lambda _: True)
        stores = TaskStores(PosixDisk(directory), str(name), [spec])
        pool = ThreadPoolExecutor(1)
        try:
            yield TaskContext(targets.job, "1", str(name), stores, pool, changelogs=changelogs)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _store(context: TaskContext) -> SubtaskStore:
    store = context.stores.open(STORE)
    assert isinstance(store, SubtaskStore)  # noqa: S101 - as the context's specification says
    return store


@dataclass(frozen=True)
class PreparedCommit:
    """A subtask's commit without its record.

    Attributes:
        markers: By backend, where the state is.
        counts: The costs of the commit, by the names of `CommitMeasures`.
    """

    markers: dict[str, str]
    counts: dict[str, int]


@dataclass(frozen=True)
class CommitTask:
    """Task: prepare the commit of a subtask.

    Attributes:
        targets: The backends.
        runs: The directory of the job's runs, with the log of records.
        name: The subtask.
        checkpoint: The id of this commit's checkpoint.
        last: The task's last record, of the run before; None without one.
        committed: The state of that record; None if it is not at hand.
    """

    targets: CommitTargets
    runs: ConfinedDirectory
    name: SubtaskName
    checkpoint: CheckpointId
    last: CheckpointV2 | None = None
    committed: SubtaskFiles | None = None


def prepare_commit(task: CommitTask, files: SubtaskFiles) -> PreparedCommit:
    """Commit a subtask's state to all backends, and return when it is permanent.

    Args:
        task: The task.
        files: The state.

    Raises:
        CommitError: The state could not be stored.
    """
    last = task.last
    if last is not None and task.committed is None:
        # without the state of its marker a changelog is compared as a whole
        kept = {name: ids for name, ids in last.markers.items() if name != CHANGELOG_FACTORY}
        last = replace(last, markers=kept)
    with _context(task.targets, task.name) as context:
        store = _store(context)
        store.hold(files if last is None else task.committed or files)
        factories = task.targets.factories()
        manager = checkpoint_manager(task.runs)
        start = TaskStart(context, task.targets.settings(), manager, factories)
        commits = start.resume(last, task.targets.backup)
        try:
            for factory in factories:
                if last is not None and factory.name in last.markers and not factory.expires:
                    backup = commits.backups[factory.name]
                    cleaned = backup.clean_up(last.id, last.markers[factory.name])
                    _waited(context, cleaned, task.targets)
            try:
                store.become(replace(files, checkpoint=task.checkpoint.millis))
            except (StateError, OSError) as error:  # of the changelog, which gets every change
                if not task.targets.tolerant:
                    raise
                message = "task %s: the changelog fails, and is left out: %s"
                LOG.error(message, task.name, error)  # noqa: TRY400 - the error says all
                commits.backups.pop(CHANGELOG_FACTORY).close()
            record = _waited(context, commits.prepare(task.checkpoint, {}), task.targets)
            markers = {name: stores[STORE] for name, stores in record.markers.items()}
            return PreparedCommit(markers, context.measures.as_dict())
        finally:
            commits.close()


def _waited(context: TaskContext, future: Future[_T], targets: CommitTargets) -> _T:
    """Return the result of a part of a commit.

    Raises:
        CommitError: It failed, or took longer than is allowed.
    """
    try:
        context.wait(future, targets.max_delay)
    except TimeoutError as error:
        raise CommitError(
            f"the commit did not end within {targets.max_delay:g} s",
            place=f"task {context.task}",
            remedy="see what the backend waits for, or give it more time with --max-commit-delay",
        ) from error
    return future.result()


def clean_up(targets: CommitTargets, name: SubtaskName, record: CheckpointV2) -> None:
    """Make a commit's blobs permanent, and delete those of older commits; it is idempotent."""
    with _context(targets, name) as context:
        for factory in targets.factories():
            markers = record.markers.get(factory.name, {})
            if not factory.expires or not markers:
                continue
            backup = targets.backup(factory.backup_manager(context, [STORE]))
            try:
                backup.init(record)
                backup.clean_up(record.id, markers).result()
            finally:
                backup.close()


@dataclass(frozen=True)
class RestoreTask:
    """Task: restore the state of one old task.

    Attributes:
        targets: The backends.
        runs: The directory of the job's runs, with the log of records.
        name: The subtask.
        source: `blob` or `changelog`.
        last: The task's last record, whose state is wanted.
        directory: The directory for its files; confined to the lake.
    """

    targets: CommitTargets
    runs: ConfinedDirectory
    name: SubtaskName
    source: str
    last: CheckpointV2
    directory: ConfinedDirectory


def restore_task(task: RestoreTask) -> OperatorMetadata:
    """Restore an old subtask's files, and return its operator with only that subtask.

    Raises:
        CommitError: No backend has its state, or what it has is of another task or checkpoint.
    """
    target = task.directory
    places = task.targets
    targets = replace(
        places, tolerant=False, blob=places.blob if task.source == BLOB else "",
        changelog=places.changelog if task.source == CHANGELOG else "",
    )  # fmt: skip
    with _context(targets, task.name) as context:
        settings = targets.settings(task.source)
        manager = checkpoint_manager(task.runs)
        factory = FACTORIES[task.source]
        of_source = {name: ids for name, ids in task.last.markers.items() if name == factory}
        try:
            # the backends stay as they are until the next commit: what they have is not yet checked
            start = TaskStart(context, settings, manager, targets.factories())
            start.restore(replace(task.last, markers=of_source))
            context.stores.flush()
            files = _store(context).files
            if files is None:
                raise CommitError("nothing was restored", place=f"task {task.name}")
            actual = files.operator.operator_id, list(files.operator.subtasks or ())
            wanted = operator_id_of_uid(task.name.uid), [task.name.subtask]
            if (actual, files.checkpoint) != (wanted, task.last.id.millis):
                raise CommitError(
                    f"{task.source} has a state, but not the state that the last run committed",
                    place=f"task {task.name}",
                    remedy="restore from another backend; the next run commits all state again",
                )
            for path in files.names:
                # replaced atomically: another run of this task may write it while it is read
                target.write_pieces(path, files.pieces(path))
            return files.operator
        finally:
            context.stores.close()


def merged(
    operators: Iterable[tuple[int, Sequence[OperatorMetadata]]], run: int
) -> CheckpointMetadata:
    """Merge the state of a run's tasks into one savepoint.

    Args:
        operators: The parallelism of each operator, and its parts, each with some of its subtasks.
        run: The run's number.

    Raises:
        CommitError: A task's state has another parallelism or max parallelism.
    """
    states = []
    for parallelism, parts in operators:
        first = parts[0]
        wanted = parallelism, first.max_parallelism
        subtasks: dict[int, SubtaskState] = {}
        for part in parts:
            shape = part.parallelism, part.max_parallelism
            if shape != wanted:
                raise CommitError(
                    f"a subtask's state has parallelism {shape[0]} and max parallelism {shape[1]}, "
                    f"and not {wanted[0]} and {wanted[1]}",
                    place=f"operator {first.uid or first.operator_id}",
                    remedy="someone else changed it: restore from another backend",
                )
            subtasks.update(part.subtasks or {})
        states.append(replace(first, coordinator=None, subtasks=subtasks))
    return CheckpointMetadata(METADATA_VERSION, run, states)


class _ToleratedBackup(TaskBackupManager):
    """A backup without which commits go on if it fails: its markers are missing then."""

    def __init__(self, backup: TaskBackupManager) -> None:
        super().__init__(None, backup.context, backup.stores)
        self._backup = backup
        self._failed = False

    def _init(self, checkpoint: Checkpoint | None) -> None:
        try:
            self._backup.init(checkpoint)
        except (StateError, OSError) as error:
            self._fail(error)

    def _snapshot(self, checkpoint: CheckpointId) -> dict[str, str]:
        if not self._failed:
            try:
                return self._backup.snapshot(checkpoint)
            except (StateError, OSError) as error:
                self._fail(error)
        return {}

    def _upload(
        self, checkpoint: CheckpointId, markers: Mapping[str, str]
    ) -> Future[dict[str, str]]:
        if self._failed:
            return done({})
        uploaded: Future[dict[str, str]] = Future()

        def follow(ended: Future[dict[str, str]]) -> None:
            error = ended.exception()
            if isinstance(error, (StateError, OSError)):
                self._fail(error)
                uploaded.set_result({})
            elif error is not None:
                uploaded.set_exception(error)
            else:
                uploaded.set_result(ended.result())

        self._backup.upload(checkpoint, markers).add_done_callback(follow)
        return uploaded

    def _clean_up(self, checkpoint: CheckpointId, markers: Mapping[str, str]) -> Future[None]:
        return done(None) if self._failed else self._backup.clean_up(checkpoint, markers)

    def _close(self) -> None:
        self._backup.close()

    def _fail(self, error: Exception) -> None:
        self._failed = True
        LOG.error(
            "task %s: %s fails, and the commit goes on without it: %s",
            self.context.task, type(self._backup).__module__.rpartition(".")[2], error,
        )  # fmt: skip
