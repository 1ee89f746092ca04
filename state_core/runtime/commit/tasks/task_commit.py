"""A task's commits: their synchronous and their asynchronous part.

The steps are `docs/commit.md`'s. A task has at most one running commit. The record goes to the log
only when everything is durable in every backend, so a commit exists completely or not at all: a
failure before that leaves the previous record, and ends the task.

A job that commits all its tasks at once, as `statelake run` does, calls `prepare` for each of them,
and writes all their records when the last one is prepared.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from statelake.state_core.errors import AsyncCommitError
from statelake.state_core.runtime.commit.contract.futures import (
    all_of,
    done,
    flattened,
    mapped,
    then,
)
from statelake.state_core.runtime.commit.contract.interfaces import TaskBackupManager, TaskContext
from statelake.state_core.runtime.commit.records.checkpoint_reading import CheckpointManager
from statelake.state_core.runtime.commit.records.records import (
    CheckpointId,
    CheckpointV2,
    SystemStreamPartition,
)
from statelake.state_core.runtime.commit.tasks.decisions import (
    CommitDecision,
    decide_commit,
)
from statelake.state_core.runtime.commit.tasks.settings import CommitSettings

LOG = logging.getLogger(__name__)
Offsets = Mapping[SystemStreamPartition, str]
InputTrimmer = Callable[[Offsets], None]


class TaskCommit:
    """Commits a task's state; created by `TaskStart`, which restores it first.

    Args:
        context: The task.
        settings: The settings of the job.
        checkpoints: Writes records.
        backups: The initialized backends of `stores.<store>.backup.factories`, by name.
        last: The restored checkpoint; None without one.
        trim_inputs: Called with the offsets of a finished commit.
        observer: Called with the name of every step before it.
    """

    def __init__(
        self,
        context: TaskContext,
        settings: CommitSettings,
        checkpoints: CheckpointManager,
        backups: Mapping[str, TaskBackupManager],
        last: CheckpointV2 | None = None,
        *,
        trim_inputs: InputTrimmer = lambda _: None,
        observer: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.context = context
        self.settings = settings
        self.checkpoints = checkpoints
        self.backups = dict(backups)
        self.last = last
        self._last_id = None if last is None else last.id
        self._trim_inputs = trim_inputs
        self._step = observer
        self._pending: Future[None] | None = None
        self._started: int | None = None
        self._failure: BaseException | None = None

    @property
    def under_way(self) -> bool:
        """Return whether the asynchronous part of a commit is running."""
        return self._pending is not None and not self._pending.done()

    def raise_if_failed(self) -> None:
        """Raise an error if the asynchronous part of a commit failed; call it between messages.

        Raises:
            AsyncCommitError: The commit failed.
        """
        if self._pending is not None and self._pending.done() and self._failure is None:
            self._failure = self._pending.exception()
        if self._failure is not None:
            raise AsyncCommitError(
                f"the commit failed: {self._failure}",
                place=f"task {self.context.task}",
                remedy="restart the task: it goes on from the last record in the checkpoint log",
            ) from self._failure

    def commit(self, offsets: Offsets) -> CommitDecision:
        """Commit all processed work; call it between messages.

        It returns when the content of the stores is fixed: the rest runs during processing.

        Args:
            offsets: The last processed offset of each input.

        Returns:
            SKIP if nothing was done; BLOCK if processing had to wait before the commit began.

        Raises:
            AsyncCommitError: The previous commit failed, or did not end in time.
        """
        self.raise_if_failed()
        measures = self.context.measures
        started = self._started if self.under_way else None
        decision = decide_commit(started, self.context.millis, self.settings.max_commit_delay)
        if decision is CommitDecision.SKIP:
            LOG.info("task %s: a commit is under way, this one is skipped", self.context.task)
            measures.add("commits_skipped")
            return decision
        if decision is CommitDecision.BLOCK:
            LOG.warning(
                "task %s: processing waits for the commit that began %s ms ago",
                self.context.task,
                self.context.millis - (self._started or 0),
            )
            measures.add("commits_blocked")
            self.wait()
        measures.add("commits")
        begun = self.context.millis
        self._started = begun
        checkpoint = CheckpointId.create(self.context.clock(), self._last_id)
        self._last_id = checkpoint
        try:
            self._pending = self._begin(checkpoint, dict(offsets))
        except Exception as error:
            self._failure = error
            raise
        measures.add("snapshot_ms", self.context.millis - begun)
        return decision

    def wait(self) -> None:
        """Wait until no commit is running.

        Raises:
            AsyncCommitError: The commit failed, or did not end within `task.commit.timeout.ms`.
        """
        if self._pending is not None:
            try:
                self.context.wait(self._pending, self.settings.commit_timeout / 1000)
            except TimeoutError as error:
                raise AsyncCommitError(
                    f"the commit did not end within {self.settings.commit_timeout} ms",
                    place=f"task {self.context.task}",
                    remedy="see what the state backend waits for, or raise task.commit.timeout.ms",
                ) from error
        self.raise_if_failed()

    def close(self) -> None:
        """Close the backends and the stores; uncommitted work is lost."""
        for backup in self.backups.values():
            backup.close()
        self.context.stores.close()

    def prepare(self, checkpoint: CheckpointId, offsets: Offsets) -> Future[CheckpointV2]:
        """Run the first phase of a commit, which stores everything and writes no record.

        It returns when the content of the stores is fixed.

        Args:
            checkpoint: The id of the commit.
            offsets: The last processed offset of each input.

        Returns:
            A future of the record, set once everything is durable in every backend.
        """
        stores = self.context.stores
        self._step("flush")
        stores.flush()
        self._step("checkpoint")
        stores.checkpoint(checkpoint)
        self._step("snapshot")
        fixed = {name: backup.snapshot(checkpoint) for name, backup in self.backups.items()}
        self._step("upload")
        begun = self.context.millis
        uploads = [backup.upload(checkpoint, fixed[name]) for name, backup in self.backups.items()]

        def record_of(markers: list[dict[str, str]]) -> CheckpointV2:
            self.context.measures.add("upload_ms", self.context.millis - begun)
            by_factory = zip(self.backups, markers, strict=True)
            stored = {factory: dict(stores) for factory, stores in by_factory if stores}
            return CheckpointV2(checkpoint, dict(offsets), stored)

        return mapped(all_of(uploads), record_of)

    def _begin(
        self, checkpoint: CheckpointId, offsets: dict[SystemStreamPartition, str]
    ) -> Future[None]:
        recorded = then(self.context.pool, self.prepare(checkpoint, offsets), self._record)
        ended = self.finish(recorded)
        ended.add_done_callback(self._tell)
        return ended

    def _record(self, checkpoint: CheckpointV2) -> CheckpointV2:
        self._step("mark")
        self.context.stores.mark(checkpoint)
        self._step("record")
        self.checkpoints.write(self.context.task, checkpoint)
        self.last = checkpoint
        self._step("clean_up")
        return checkpoint

    def finish(self, recorded: Future[CheckpointV2]) -> Future[None]:
        """Run the steps behind a record in the log; may be repeated, as at every start."""

        def drop(checkpoint: CheckpointV2) -> None:
            self._step("drop_local")
            self.context.stores.drop_checkpoints(checkpoint.id)
            self._step("trim_inputs")
            self._trim_inputs(checkpoint.input_offsets)

        def clean(checkpoint: CheckpointV2) -> Future[CheckpointV2]:
            return mapped(all_of(self._cleaned(checkpoint)), lambda _: checkpoint)

        return then(self.context.pool, flattened(mapped(recorded, clean)), drop)

    def _cleaned(self, checkpoint: CheckpointV2) -> list[Future[None]]:
        cleaned = []
        for name, markers in checkpoint.markers.items():
            if name in self.backups:
                cleaned.append(self.backups[name].clean_up(checkpoint.id, markers))
            else:
                LOG.warning("task %s: %s is not configured any more", self.context.task, name)
        return cleaned or [done(None)]

    def _tell(self, ended: Future[None]) -> None:
        error = ended.exception()
        if error is not None:
            LOG.error("task %s: the commit failed: %s", self.context.task, error)
