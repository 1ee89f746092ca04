"""State leaves the machine in two phases, to several backends at once, and is found again.

======================  ==========================================================================
`records`, `serdes`     checkpoints of version 1 and 2, their keys and markers, as Samza's JSON
`checkpoint_log`        where records go: memory, or files; others say what `CheckpointLog` says
`checkpoint_reading`    the last checkpoint of a task, among records of several versions
`interfaces`            what a state backend is, and the order of calls
`memory_backend`        copies in memory: the test double
`blob_backend`          new files alone, over any file system; `blob_store`, `snapshot_index`
`changelog_backend`     every put and delete; `changelog` (in Delta: `pipelines.lake.commits.changelog`)
`kafka`                 checkpoints and changelogs in topics; imported by who wants it
`stores`                stores of keys and values, persistent or not; `rocksdb_store`,
                        `task_stores`, `local_disk`, `durable_writing`
`decisions`             what a commit and a restore decide, as pure functions
`steps`                 the steps of a commit, and what a crash between them leaves
`task_start`            a task's restore
`task_commit`           a task's commits
`settings`              all of it by its names in a job's configuration
======================  ==========================================================================

Spec: Samza's SEP-28, "State Backend Interface and Checkpointing Improvements"; `docs/commit.md`.
"""

from state_core.commit.backends.blob_backend import BlobStoreBackend
from state_core.commit.backends.blob_store import BlobStore, FileSystemBlobStore, MemoryBlobStore
from state_core.commit.backends.changelog import (
    Changelog,
    Changelogs,
    FileChangelogs,
    MemoryChangelogs,
)
from state_core.commit.backends.changelog_backend import ChangelogBackend
from state_core.commit.backends.memory_backend import MemoryBackend
from state_core.commit.contract.interfaces import (
    StateBackendAdmin,
    StateBackendFactory,
    TaskBackupManager,
    TaskContext,
    TaskRestoreManager,
)
from state_core.commit.contract.measures import CommitMeasures
from state_core.commit.records.checkpoint_log import (
    CheckpointLog,
    FileCheckpointLog,
    LogRecord,
    MemoryCheckpointLog,
)
from state_core.commit.records.checkpoint_reading import CheckpointManager
from state_core.commit.records.records import (
    ChangelogMarker,
    Checkpoint,
    CheckpointId,
    CheckpointLogKey,
    CheckpointV1,
    CheckpointV2,
    SystemStreamPartition,
)
from state_core.commit.stores.local_disk import LocalDisk, MemoryDisk, PosixDisk
from state_core.commit.stores.stores import (
    KeyValueStore,
    MemoryStore,
    PersistentStore,
    SegmentStore,
)
from state_core.commit.stores.task_stores import StoreSpec, TaskStores
from state_core.commit.tasks.decisions import (
    CommitDecision,
    RestoreDecision,
    RestoreSource,
    pool_size,
)
from state_core.commit.tasks.settings import CommitSettings, StoreSettings
from state_core.commit.tasks.task_commit import TaskCommit
from state_core.commit.tasks.task_start import StartedTask, TaskStart

__all__ = [
    "BlobStore",
    "BlobStoreBackend",
    "Changelog",
    "ChangelogBackend",
    "ChangelogMarker",
    "Changelogs",
    "Checkpoint",
    "CheckpointId",
    "CheckpointLog",
    "CheckpointLogKey",
    "CheckpointManager",
    "CheckpointV1",
    "CheckpointV2",
    "CommitDecision",
    "CommitMeasures",
    "CommitSettings",
    "FileChangelogs",
    "FileCheckpointLog",
    "FileSystemBlobStore",
    "KeyValueStore",
    "LocalDisk",
    "LogRecord",
    "MemoryBackend",
    "MemoryBlobStore",
    "MemoryChangelogs",
    "MemoryCheckpointLog",
    "MemoryDisk",
    "MemoryStore",
    "PersistentStore",
    "PosixDisk",
    "RestoreDecision",
    "RestoreSource",
    "SegmentStore",
    "StartedTask",
    "StateBackendAdmin",
    "StateBackendFactory",
    "StoreSettings",
    "StoreSpec",
    "SystemStreamPartition",
    "TaskBackupManager",
    "TaskCommit",
    "TaskContext",
    "TaskRestoreManager",
    "TaskStart",
    "TaskStores",
    "pool_size",
]
