"""Commits of a task's state, in two phases, to several backends, and restores after a crash.

=============  ======================================================================
`records/`     checkpoints, markers and indexes, as Samza's JSON, and their logs
`stores/`      a task's stores on its disk, and their recovery after a crash
`contract/`    the interface of a state backend, and the order of calls
`backends/`    blob stores, changelogs, Kafka
`tasks/`       the protocol's steps: start, commit, decide
`logs/`        logs of checkpoints: read, verified, migrated, shortened
=============  ======================================================================

A new backend is a module in `backends/` that implements `contract/interfaces`. `backends/kafka` is
imported only where it is used.

Spec: Samza's SEP-28, "State Backend Interface and Checkpointing Improvements"; `docs/commit.md`.
"""

from statelake.state_core.runtime.commit.backends.blob_backend import BlobStoreBackend
from statelake.state_core.runtime.commit.backends.blob_store import (
    FileSystemBlobStore,
)
from statelake.state_core.runtime.commit.backends.changelog import (
    Changelog,
    Changelogs,
    FileChangelogs,
)
from statelake.state_core.runtime.commit.backends.changelog_backend import ChangelogBackend
from statelake.state_core.runtime.commit.contract.interfaces import (
    CommitMeasures,
    StateBackendFactory,
    TaskBackupManager,
    TaskContext,
    TaskRestoreManager,
)
from statelake.state_core.runtime.commit.records.checkpoint_log import (
    CheckpointLog,
    FileCheckpointLog,
    LogRecord,
)
from statelake.state_core.runtime.commit.records.checkpoint_reading import CheckpointManager
from statelake.state_core.runtime.commit.records.records import (
    ChangelogMarker,
    Checkpoint,
    CheckpointId,
    CheckpointLogKey,
    CheckpointV1,
    CheckpointV2,
    SystemStreamPartition,
)
from statelake.state_core.runtime.commit.stores.local_disk import PosixDisk
from statelake.state_core.runtime.commit.stores.stores import (
    KeyValueStore,
    PersistentStore,
)
from statelake.state_core.runtime.commit.stores.task_stores import StoreSpec, TaskStores
from statelake.state_core.runtime.commit.tasks.decisions import (
    CommitDecision,
    RestoreDecision,
    RestoreSource,
)
from statelake.state_core.runtime.commit.tasks.settings import CommitSettings, StoreSettings
from statelake.state_core.runtime.commit.tasks.task_commit import TaskCommit
from statelake.state_core.runtime.commit.tasks.task_start import StartedTask, TaskStart

__all__ = [
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
    "LogRecord",
    "PersistentStore",
    "PosixDisk",
    "RestoreDecision",
    "RestoreSource",
    "StartedTask",
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
]
