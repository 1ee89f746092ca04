"""Backups of a run's state in a blob store, committed in two phases (SEP-28).

Each subtask is a task of the protocol, its state one store: the files of its savepoint, and a
`_metadata` of its own. Executors snapshot and upload while they have the state; the driver writes
one record a task, with the markers of all backends (the id of the lake's snapshot is one), when all
state is permanent, and then cleans up. A restore takes the markers of the last run, whatever its
parallelism, and merges them into one savepoint.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import NoReturn

from statelake.state_core.commit import (
    BlobStoreBackend,
    CheckpointId,
    CheckpointManager,
    CheckpointV2,
    FileCheckpointLog,
    FileSystemBlobStore,
    PosixDisk,
    StoreSpec,
    SystemStreamPartition,
    TaskContext,
    TaskStores,
)
from statelake.state_core.commit.records.records import BLOB_STORE_FACTORY
from statelake.state_core.errors import CommitError
from statelake.state_core.files.filesystem import ConfinedDirectory, Directory
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
    read_metadata,
    write_metadata,
)
from statelake.state_core.model.handles import KeyGroupsHandle, RelativeHandle

# not `LAKE_FACTORY`, whose markers are versions of a table of pairs
SNAPSHOT_FACTORY = "statelake.snapshot"
GROUPER = "statelake.runtime"
STORE = "state"
METADATA_FILE = "_metadata"
METADATA_VERSION = 6
PIECE_BYTES = 8 << 20


@dataclass(frozen=True)
class BackupSettings:
    """The settings of a backup of state in a blob store.

    Attributes:
        blobs: The blob store: a directory, or a URI.
        job: The job's name.
        keep: The number of its snapshots to keep.
    """

    blobs: str
    job: str
    keep: int = 2

    @property
    def backend(self) -> BlobStoreBackend:
        """The state backend."""
        return BlobStoreBackend(FileSystemBlobStore(Directory(self.blobs).confined()), self.keep)


@dataclass(frozen=True)
class BackedUp:
    """A subtask's state in the blob store.

    Attributes:
        marker: Where the backup is.
        counts: The costs of the backup, by the names of `CommitMeasures`.
    """

    marker: str
    counts: dict[str, int]


def task_name(uid: str, subtask: int) -> str:
    """Return the name of a subtask in records."""
    return f"{uid}-{subtask}"


def checkpoint_manager(runs: Directory) -> CheckpointManager:
    """Return the manager of the records of a job's runs."""
    return CheckpointManager(FileCheckpointLog(runs.child("checkpoints")), GROUPER)


def partition_of(source: str) -> SystemStreamPartition:
    """Return the partition under which a record has a source's offset."""
    return SystemStreamPartition("statelake", source, 0)


@contextmanager
def _context(settings: BackupSettings, name: str) -> Iterator[TaskContext]:
    """Yield the context of a task, with a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="statelake-commit-") as directory:
        spec = StoreSpec(STORE, lambda *_: _not_opened(), immutable=lambda _: True)
        stores = TaskStores(PosixDisk(directory), name, [spec])
        with ThreadPoolExecutor(1) as pool:
            yield TaskContext(settings.job, "1", name, stores, pool)


def _not_opened() -> NoReturn:
    raise CommitError("the state of a subtask is files, not keys and values")


def back_up(
    settings: BackupSettings,
    name: str,
    operator: OperatorMetadata,
    directory: Directory,
    checkpoint: CheckpointId,
    before: CheckpointV2 | None,
) -> BackedUp:
    """Snapshot and upload a subtask's state; return when it is permanent.

    Args:
        settings: The settings of the backup.
        name: The task's name.
        operator: The operator's state, of this subtask alone.
        directory: The directory of the subtask's files.
        checkpoint: The id of this commit's checkpoint.
        before: The task's last record.

    Raises:
        CommitError: The backup could not be stored.
    """
    with _context(settings, name) as context:
        disk, folder = context.stores.disk, context.stores.directory(STORE, checkpoint)
        for path in _files(operator):
            disk.create(f"{folder}/{path}", _pieces(directory, path))
        metadata = CheckpointMetadata(METADATA_VERSION, checkpoint.millis, [operator])
        disk.create(f"{folder}/{METADATA_FILE}", [write_metadata(metadata)])
        backup = settings.backend.backup_manager(context, [STORE])
        try:
            backup.init(before)
            began = perf_counter()
            markers = backup.upload(checkpoint, backup.snapshot(checkpoint)).result()
            context.measures.add("upload_ms", round((perf_counter() - began) * 1000))
            return BackedUp(markers[STORE], context.measures.as_dict())
        finally:
            backup.close()


def clean_up(settings: BackupSettings, name: str, checkpoint: CheckpointV2) -> None:
    """Make a commit's blobs permanent, and delete those of older commits; it is idempotent."""
    with _context(settings, name) as context:
        backup = settings.backend.backup_manager(context, [STORE])
        try:
            backup.init(checkpoint)
            markers = checkpoint.markers.get(BLOB_STORE_FACTORY, {})
            backup.clean_up(checkpoint.id, markers).result()
        finally:
            backup.close()


@dataclass(frozen=True)
class RestoreTask:
    """Task: restore the state of one old task.

    Attributes:
        settings: The settings of the backup.
        name: The task's name.
        checkpoint: Its last record.
        directory: The directory for its files; confined to the lake.
    """

    settings: BackupSettings
    name: str
    checkpoint: CheckpointV2
    directory: ConfinedDirectory


def restore_task(task: RestoreTask) -> OperatorMetadata:
    """Restore an old subtask's files, and return its operator with only that subtask.

    Raises:
        CommitError: The blob store does not have its state.
    """
    target = task.directory
    with _context(task.settings, task.name) as context:
        restore = task.settings.backend.restore_manager(context, [STORE])
        try:
            restore.init(task.checkpoint)
            restore.restore()
        finally:
            restore.close()
        disk, folder = context.stores.disk, context.stores.directory(STORE)
        data = disk.read(f"{folder}/{METADATA_FILE}")
        for path, _ in disk.files(folder):
            if path != METADATA_FILE:
                # replaced atomically: another run of this task may write it while it is read
                target.write_pieces(path, disk.chunks(f"{folder}/{path}"))
    (operator,) = read_metadata(data, f"task {task.name}").operators
    return operator


def merged(operators: Mapping[str, list[OperatorMetadata]], run: int) -> CheckpointMetadata:
    """Merge the state of tasks into one savepoint, operator by operator."""
    states = []
    for parts in operators.values():
        first = parts[0]
        subtasks: dict[int, SubtaskState] = {}
        for part in parts:
            subtasks.update(part.subtasks or {})
        states.append(
            OperatorMetadata(
                first.operator_id, first.parallelism, first.max_parallelism, first.name, first.uid,
                None, subtasks,
            )
        )  # fmt: skip
    return CheckpointMetadata(METADATA_VERSION, run, states)


def _files(operator: OperatorMetadata) -> Iterator[str]:
    """Yield the files that a subtask's handles name."""
    for subtask in (operator.subtasks or {}).values():
        for handle in (subtask.managed_keyed, subtask.managed_operator):
            if handle is None:
                continue
            stream = getattr(handle, "stream", None)
            if not isinstance(handle, KeyGroupsHandle) and handle is subtask.managed_keyed:
                raise CommitError("keyed state that is not in the unified format")
            if isinstance(stream, RelativeHandle):
                yield stream.path


def _pieces(directory: Directory, path: str) -> Iterator[bytes]:
    with directory.open_input(path) as file:
        while piece := file.read(PIECE_BYTES):
            yield bytes(piece)
