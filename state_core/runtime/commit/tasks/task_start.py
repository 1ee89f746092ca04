"""The start of a task: read its last checkpoint, restore its stores, clean up leftovers.

For each store, in this order: a local checkpoint with the id of the last record is used unchanged;
otherwise the marker of `stores.<store>.restore.factory` is restored; otherwise, with an ERROR in
the log, another backend's; otherwise the store is restored from its whole changelog, or starts
empty. A local id that is not in the log belongs to a newer, interrupted commit, and is not used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Lock

from statelake.state_core.errors import CommitError, RestoreInterruptedError
from statelake.state_core.runtime.commit.contract.futures import done
from statelake.state_core.runtime.commit.contract.interfaces import (
    StateBackendFactory,
    TaskBackupManager,
    TaskContext,
    TaskRestoreManager,
)
from statelake.state_core.runtime.commit.records.checkpoint_reading import CheckpointManager
from statelake.state_core.runtime.commit.records.records import (
    CHANGELOG_FACTORY,
    CheckpointV2,
    SystemStreamPartition,
)
from statelake.state_core.runtime.commit.records.serdes import upgrade
from statelake.state_core.runtime.commit.tasks.decisions import (
    RestoreDecision,
    RestoreSource,
    decide_restore,
)
from statelake.state_core.runtime.commit.tasks.settings import CommitSettings
from statelake.state_core.runtime.commit.tasks.task_commit import InputTrimmer, TaskCommit

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StartedTask:
    """A task that is ready to process.

    Attributes:
        commits: Commits the task.
        offsets: The last processed offsets of its inputs.
        restored: The decision for each store's restore.
    """

    commits: TaskCommit
    offsets: Mapping[SystemStreamPartition, str]
    restored: Mapping[str, RestoreDecision]


class TaskStart:
    """Restores a task once, and creates its `TaskCommit`.

    Args:
        context: The task.
        settings: The settings of the job.
        checkpoints: Reads and writes records.
        factories: Every available backend, configured now or before.
        trim_inputs: Called with the offsets of a finished commit.
        observer: Called with the name of every step of a commit before it.
    """

    def __init__(
        self,
        context: TaskContext,
        settings: CommitSettings,
        checkpoints: CheckpointManager,
        factories: Iterable[StateBackendFactory],
        *,
        trim_inputs: InputTrimmer = lambda _: None,
        observer: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.context = context
        self.settings = settings
        self.checkpoints = checkpoints
        self.factories = {factory.name: factory for factory in factories}
        self._trim_inputs = trim_inputs
        self._observer = observer
        self._lock = Lock()
        self._running: TaskRestoreManager | None = None
        self._interrupted = False
        self._validate()

    def start(self) -> StartedTask:
        """Restore all stores, and clean up after a crash.

        Raises:
            RestoreInterruptedError: `interrupt` was called.
            CommitError: The checkpoint can't be restored.
        """
        try:
            return self._start()
        except BaseException:
            self.context.stores.close()
            raise

    def restore(self, last: CheckpointV2 | None) -> Mapping[str, RestoreDecision]:
        """Restore all stores, without cleaning up: the backends stay as they are.

        Args:
            last: The last record of the task; None without one.

        Returns:
            The decision for each store.

        Raises:
            RestoreInterruptedError: `interrupt` was called.
            CommitError: The checkpoint can't be restored.
        """
        decisions = {store: self._decide(store, last) for store in self.context.stores.names}
        self._restore(last, decisions)
        return decisions

    def resume(
        self,
        last: CheckpointV2 | None,
        around: Callable[[TaskBackupManager], TaskBackupManager] = lambda backup: backup,
    ) -> TaskCommit:
        """Return the commits of a task whose stores have the state of its last record.

        Args:
            last: The record; None without one.
            around: Returns a manager to use instead of a backend's.

        Raises:
            CommitError: A backend can't continue from the record.
        """
        backups = {}
        for name in self.settings.factories:
            stores = self.settings.backed_up_by(name)
            backups[name] = around(self.factories[name].backup_manager(self.context, stores))
            backups[name].init(last)
        return TaskCommit(
            self.context,
            self.settings,
            self.checkpoints,
            backups,
            last,
            trim_inputs=self._trim_inputs,
            observer=self._observer,
        )

    def interrupt(self) -> None:
        """Cancel `start` within a second, from any thread."""
        with self._lock:
            self._interrupted = True
            if self._running is not None:
                self._running.interrupt()

    def _start(self) -> StartedTask:
        recorded = self.checkpoints.read_last(self.context.task)
        last = None if recorded is None else upgrade(recorded, self.context.changelogs)
        decisions = self.restore(last)
        commits = self.resume(last)
        if last is None:
            self.context.stores.drop_checkpoints(None)
        else:
            cleaned = commits.finish(done(last))
            self.context.wait(cleaned, self.settings.commit_timeout / 1000)
            cleaned.result()
        return StartedTask(commits, {} if last is None else last.input_offsets, decisions)

    def _validate(self) -> None:
        stores = self.context.stores
        for name, settings in self.settings.stores.items():
            wanted = {*settings.backup, *([settings.restore] if settings.restore else [])}
            unknown = sorted(wanted - set(self.factories))
            if name not in stores.specs or unknown:
                raise CommitError(
                    f"store {name!r} or its backends {unknown} are not known",
                    place=f"task {self.context.task}",
                    remedy=f"known are {', '.join(self.factories)}",
                )
            self._validate_versions(name)
            for factory in settings.backup:
                if self.factories[factory].needs_files and not stores.specs[name].persistent:
                    raise CommitError(f"store {name!r} has no files that {factory} could back up")

    def _validate_versions(self, store: str) -> None:
        """Refuse version 1 for stores without a changelog, whose markers it can't hold."""
        backup, checkpoints = self.settings.stores[store].backup, self.checkpoints
        of_version_1 = checkpoints.read_versions[0] == 1 or 2 not in checkpoints.write_versions
        if backup and CHANGELOG_FACTORY not in backup and of_version_1:
            raise CommitError(
                f"store {store!r} has no changelog, and records of version 1 have no place for "
                f"markers of {', '.join(backup)}",
                place=f"task {self.context.task}",
                remedy="write version 2 and read it first, or add the changelog to the backups",
            )

    def _decide(self, store: str, last: CheckpointV2 | None) -> RestoreDecision:
        settings = self.settings.stores.get(store)
        restore = settings.restore if settings else None
        has_changelog = store in self.context.changelogs and CHANGELOG_FACTORY in self.factories
        spec = self.context.stores.specs[store]
        decision = decide_restore(
            store,
            last,
            self.context.stores.marked(store) if spec.persistent else (),
            restore,
            list(self.factories),
            CHANGELOG_FACTORY if has_changelog else None,
            exact=restore is None or self.factories[restore].exact,
        )
        if decision.error:
            LOG.error("task %s: %s", self.context.task, decision.error)
        if decision.source is RestoreSource.LOST:
            raise CommitError(
                decision.error,
                place=f"task {self.context.task}",
                remedy="configure one of those backends until there is a commit to another",
            )
        return decision

    def _restore(self, last: CheckpointV2 | None, decisions: Mapping[str, RestoreDecision]) -> None:
        stores = self.context.stores
        by_factory: dict[str, list[str]] = {}
        for store, decision in decisions.items():
            if decision.source is RestoreSource.LOCAL and last is not None:
                stores.adopt(store, last.id)
            elif decision.factory is None:
                stores.discard(store)
            else:
                by_factory.setdefault(decision.factory, []).append(store)
        for factory, names in by_factory.items():
            manager = self.factories[factory].restore_manager(self.context, names)
            with self._lock:
                self._running = manager
                if self._interrupted:
                    manager.interrupt()
            try:
                manager.init(last)
                manager.restore()
            finally:
                manager.close()
        if self._interrupted:
            raise RestoreInterruptedError("the start was interrupted")
