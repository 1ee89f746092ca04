"""The interface of a state backend: a factory of two parts, and the order of calls of each.

::

    TaskRestoreManager   init(checkpoint) → restore() → close()
    TaskBackupManager    init(checkpoint) → ( snapshot(id) → upload(id, markers) → clean_up(...) )*
                                          → close()
    StateBackendFactory  create_resources(), validate_resources(): by the job, before any task

`init` of a backup is called after the task's stores are restored. `snapshot` runs while nothing is
processed and must be quick; `upload` runs during processing, and ends before the next `snapshot`.
`clean_up` follows when the record is in the log; it may be repeated for the same checkpoint, also
at the next start, and then does nothing. It may come first: after a crash between record and
clean-up, the next start calls it.

The methods without an underscore check that order: a backend implements those with an underscore.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any, ClassVar, TypeVar

from statelake.state_core.errors import CommitOrderError, RestoreInterruptedError
from statelake.state_core.runtime.commit.contract.futures import Pool, done, then, wait_for
from statelake.state_core.runtime.commit.records.clocks import now_nanos
from statelake.state_core.runtime.commit.records.records import (
    Checkpoint,
    CheckpointId,
    SystemStreamPartition,
)
from statelake.state_core.runtime.commit.stores.task_stores import TaskStores

_T = TypeVar("_T")


class CommitMeasures:
    """Counters by name, from several threads.

    ===================  ==========================================================
    `commits`            begun commits
    `commits_skipped`    commits skipped since one was running, for no longer than the delay
    `commits_blocked`    commits that blocked processing, since the previous one was late
    `snapshot_ms`        time of snapshots, while nothing was processed
    `upload_ms`          time of uploads, during processing
    `bytes_sent`         bytes uploaded to blob stores
    `bytes_saved`        bytes that existed already
    `files_sent`         files uploaded
    `files_saved`        files that existed already
    `bytes_restored`     bytes downloaded from blob stores
    `changes_restored`   changes read from changelogs
    ===================  ==========================================================
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = Lock()

    def add(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""
        with self._lock:
            self._counts[name] += amount

    def __getitem__(self, name: str) -> int:
        return self._counts[name]

    def as_dict(self) -> dict[str, int]:
        """Return all counters."""
        with self._lock:
            return dict(self._counts)


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The task of a backend.

    Attributes:
        job_name: The name of the job; empty if it is not known, as to who only looks at its state.
        job_id: The id of the job's instance.
        task: The name of the task.
        stores: The task's stores on this host.
        pool: Runs functions during processing.
        wait: Waits a number of seconds for a result of the pool, or raises TimeoutError.
        clock: Returns nanoseconds since 1970.
        changelogs: The changelog partition of each store that has one.
        measures: The counters of bytes and times.
    """

    job_name: str
    job_id: str
    task: str
    stores: TaskStores
    pool: Pool
    wait: Callable[[Future[Any], float], None] = wait_for
    clock: Callable[[], int] = now_nanos
    changelogs: Mapping[str, SystemStreamPartition] = field(default_factory=dict)
    measures: CommitMeasures = field(default_factory=CommitMeasures)

    @property
    def millis(self) -> int:
        """The time in milliseconds since 1970."""
        return self.clock() // 1_000_000


class _TaskManager(ABC):
    """A manager for some stores of one task; the module's docstring has the order of calls.

    Args:
        backend: The factory of the backend.
        context: The task.
        stores: The names of the stores that this backend backs up or restores.
    """

    order: ClassVar[str]
    _backend: Any

    def __init__(self, backend: Any, context: TaskContext, stores: Iterable[str]) -> None:
        self._backend = backend
        self._resources = ExitStack()
        self.context = context
        self.stores = tuple(stores)
        self._state = "new"

    def init(self, checkpoint: Checkpoint | None) -> None:
        """Initialize the manager.

        Args:
            checkpoint: The checkpoint to restore, or of the restored stores; None without one.

        Raises:
            CommitOrderError: This is not the first call.
            CommitError: The checkpoint's markers are not valid.
        """
        self._expect("init", "new")
        self._init(checkpoint)
        self._state = "ready"

    def close(self) -> None:
        """Release all resources; may be called any number of times."""
        if self._state != "closed":
            self._state = "closed"
            self._close()

    @abstractmethod
    def _init(self, checkpoint: Checkpoint | None) -> None: ...

    def _close(self) -> None:
        self._resources.close()

    def _later(self, function: Callable[[], _T]) -> Future[_T]:
        """Call a function during processing."""
        return then(self.context.pool, done(None), lambda _: function())

    def _expect(self, call: str, state: str) -> None:
        if self._state != state:
            raise self._out_of_order(call, f"it is {self._state}")

    def _out_of_order(self, call: str, problem: str) -> CommitOrderError:
        return CommitOrderError(
            f"`{call}` was called, but {problem}",
            place=f"{type(self).__name__} of task {self.context.task}",
            remedy=f"the order is {self.order}",
        )


class TaskBackupManager(_TaskManager):
    """Backs up some stores of one task."""

    order = "init, then snapshot, upload and clean_up, and close at last"

    _snapshot_id: CheckpointId | None = None
    _uploading: Future[dict[str, str]] | None = None

    def snapshot(self, checkpoint: CheckpointId) -> dict[str, str]:
        """Fix the content to upload, while nothing is processed.

        Args:
            checkpoint: The id of this commit. The stores are flushed, and local checkpoints made.

        Returns:
            Markers for `upload`, by store.

        Raises:
            CommitOrderError: The backend was not initialized, or an upload has not ended.
        """
        self._expect("snapshot", "ready")
        if self._uploading is not None and not self._uploading.done():
            raise self._out_of_order("snapshot", "the upload before it has not ended")
        markers = self._snapshot(checkpoint)
        self._snapshot_id = checkpoint
        return markers

    def upload(
        self, checkpoint: CheckpointId, markers: Mapping[str, str]
    ) -> Future[dict[str, str]]:
        """Upload the content that `snapshot` fixed, during processing.

        Args:
            checkpoint: The id of this commit.
            markers: The markers that `snapshot` returned.

        Returns:
            A future of the markers to restore from, by store, set once everything is durable.

        Raises:
            CommitOrderError: There was no snapshot of this checkpoint, or it was uploaded before.
        """
        self._expect("upload", "ready")
        if self._snapshot_id != checkpoint:
            raise self._out_of_order("upload", f"there is no snapshot of {checkpoint}")
        self._snapshot_id = None
        self._uploading = self._upload(checkpoint, markers)
        return self._uploading

    def clean_up(self, checkpoint: CheckpointId, markers: Mapping[str, str]) -> Future[None]:
        """Remove data that only earlier checkpoints need; may be called any number of times.

        Args:
            checkpoint: The id of the last record in the log.
            markers: This backend's markers in that record, by store.

        Raises:
            CommitOrderError: The backend was not initialized, or an upload has not ended.
        """
        self._expect("clean_up", "ready")
        if self._uploading is not None and not self._uploading.done():
            raise self._out_of_order("clean_up", "the upload has not ended")
        ours = {store: marker for store, marker in markers.items() if store in self.stores}
        return self._clean_up(checkpoint, ours)

    @abstractmethod
    def _snapshot(self, checkpoint: CheckpointId) -> dict[str, str]: ...

    @abstractmethod
    def _upload(
        self, checkpoint: CheckpointId, markers: Mapping[str, str]
    ) -> Future[dict[str, str]]: ...

    @abstractmethod
    def _clean_up(self, checkpoint: CheckpointId, markers: Mapping[str, str]) -> Future[None]: ...


class TaskRestoreManager(_TaskManager):
    """Restores some stores of one task."""

    order = "init, restore, close"

    def __init__(self, backend: Any, context: TaskContext, stores: Iterable[str]) -> None:
        super().__init__(backend, context, stores)
        self._stopped = Event()

    def restore(self) -> None:
        """Restore the stores to the checkpoint, regardless of their current content.

        Raises:
            CommitOrderError: `init` was not called, or this was called before.
            RestoreInterruptedError: `interrupt` was called; the stores must be restored anew.
        """
        self._expect("restore", "ready")
        self._state = "restored"
        for store in self.stores:
            self._check()
            self.context.stores.discard(store)
            self._restore(store)

    def interrupt(self) -> None:
        """Cancel a restore within a second, from any thread."""
        self._stopped.set()

    @abstractmethod
    def _restore(self, store: str) -> None:
        """Fill one store, which is empty; call `_check` at least once a mebibyte."""

    def _check(self) -> None:
        if self._stopped.is_set():
            raise RestoreInterruptedError(
                "the restore was interrupted",
                place=f"task {self.context.task}",
                remedy="start the task again: a restore begins anew",
            )


class StateBackendFactory(ABC):
    """Creates the parts of one backend, and what the tasks of a job share in it.

    Attributes:
        name: The name of this backend in the markers of records.
        exact: Whether a restore has exactly the state of the checkpoint; otherwise a later one.
        needs_files: Whether only persistent stores can be backed up.
        expires: Whether an upload expires unless `clean_up` follows the record.
        backup: The class of managers that back up.
        restore: The class of managers that restore.
    """

    name: str
    exact: bool = True
    needs_files: bool = False
    expires: bool = False
    backup: type[TaskBackupManager]
    restore: type[TaskRestoreManager]

    def backup_manager(self, context: TaskContext, stores: Iterable[str]) -> TaskBackupManager:
        """Return a manager that backs up these stores of a task."""
        return self.backup(self, context, stores)

    def restore_manager(self, context: TaskContext, stores: Iterable[str]) -> TaskRestoreManager:
        """Return a manager that restores these stores of a task."""
        return self.restore(self, context, stores)

    @abstractmethod
    def create_resources(self) -> None:
        """Create missing resources; may be called any number of times."""

    @abstractmethod
    def validate_resources(self) -> None:
        """Check that the resources exist and fit.

        Raises:
            CommitError: A resource is missing, or does not fit.
        """
