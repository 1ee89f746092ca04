"""Drop old records from a checkpoint log, and delete the blobs that only they needed.

Blobs are listed before the log is read for the last time: one that is listed and not about to
expire belongs to a commit that is in the log by then. So a job may commit meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from statelake.state_core.errors import CommitError, DeletedBlobError
from statelake.state_core.runtime.commit import (
    CheckpointLog,
    FileCheckpointLog,
    FileSystemBlobStore,
)
from statelake.state_core.runtime.commit.backends.blob_backend import garbage, read_index
from statelake.state_core.runtime.commit.backends.blob_store import folder_of
from statelake.state_core.runtime.commit.logs.checkpoint_records import (
    last_records,
    read_records,
)
from statelake.state_core.runtime.commit.records.checkpoint_reading import TaskRecord
from statelake.state_core.runtime.commit.records.clocks import now_millis
from statelake.state_core.runtime.commit.records.records import BLOB_STORE_FACTORY
from statelake.state_core.runtime.commit.records.snapshot_index import reachable_blobs


@dataclass(frozen=True, slots=True)
class CheckpointDropResult:
    """The result of a drop.

    Attributes:
        records: The records removed from the log.
        records_kept: The records that stay.
        blobs: The blobs removed from the blob store.
        blobs_kept: The blobs of the log's tasks that stay.
    """

    records: int
    records_kept: int
    blobs: int = 0
    blobs_kept: int = 0


def drop_records(
    log: CheckpointLog, keep: int, blobs: FileSystemBlobStore | None = None
) -> CheckpointDropResult:
    """Remove every record but the last ones of its key, and then the blobs that they don't need.

    Args:
        log: The log.
        keep: How many records of each key stay: of each task and version.
        blobs: The store of the markers' blobs; without it they stay.

    Raises:
        CommitError: Nothing would be kept; the log is a topic; a task's last snapshot is gone.
    """
    if keep < 1:
        raise CommitError(f"{keep} records can't be kept", remedy="keep 1 or more")
    prefixes = {folder_of(folder_of(id_)) for record in read_records(log) for id_ in _ids(record)}
    if not isinstance(log, FileCheckpointLog):
        raise CommitError(
            "records can't be removed from a topic", remedy="its brokers do that: it is compacted"
        )
    removed = log.compact(keep)
    if blobs is None:
        return CheckpointDropResult(removed, len(list(log.read())))
    now = now_millis()
    listed = [blob for prefix in sorted(prefixes) for blob in blobs.list(prefix)]
    expiring = {
        folder: at for prefix in sorted(prefixes) for folder, at in blobs.expiring(prefix).items()
    }
    records = read_records(log)
    gone = garbage(listed, _needed(blobs, records), expiring, now)
    for blob in gone:
        blobs.delete(blob)
    return CheckpointDropResult(removed, len(list(log.read())), len(gone), len(listed) - len(gone))


def _ids(record: TaskRecord) -> Iterable[str]:
    return record.checkpoint.markers.get(BLOB_STORE_FACTORY, {}).values()


def _needed(blobs: FileSystemBlobStore, records: list[TaskRecord]) -> set[str]:
    """Return the blobs of all snapshots that the records name.

    Raises:
        DeletedBlobError: The last snapshot of a task does not exist.
    """
    last = {
        id(version) for versions in last_records(records).values() for version in versions.values()
    }
    needed: set[str] = set()
    for record in records:
        for marker in _ids(record):
            try:
                index = read_index(blobs, marker)
            except DeletedBlobError as error:
                if id(record) in last:
                    raise error.within(f"task {record.task}") from error
                continue  # the backend's own retention removed it
            needed |= {marker, *reachable_blobs(index.directory)}
    return needed
