"""A backend that keeps copies in memory: for tests, and the shortest example of a backend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future

from statelake.state_core.commit.contract.futures import done, then
from statelake.state_core.commit.contract.interfaces import (
    StateBackendAdmin,
    StateBackendFactory,
    TaskBackupManager,
    TaskContext,
    TaskRestoreManager,
)
from statelake.state_core.commit.records.records import Checkpoint, CheckpointId, CheckpointV1
from statelake.state_core.errors import CommitError

MEMORY_FACTORY = "memory"


class MemoryBackend(StateBackendFactory):
    """Copies of stores by task, store and checkpoint id; they outlive the task, not the process.

    Attributes:
        copies: The copies.
    """

    name = MEMORY_FACTORY

    def __init__(self) -> None:
        self.copies: dict[tuple[str, str, str], dict[bytes, bytes]] = {}

    def backup_manager(self, context: TaskContext, stores: Iterable[str]) -> TaskBackupManager:
        """Return a manager that copies these stores."""
        return _Backup(self, context, stores)

    def restore_manager(self, context: TaskContext, stores: Iterable[str]) -> TaskRestoreManager:
        """Return a manager that restores the copies."""
        return _Restore(self, context, stores)

    def admin(self) -> StateBackendAdmin:
        """Return an admin without resources to create."""
        return _Admin()


class _Backup(TaskBackupManager):
    def __init__(self, backend: MemoryBackend, context: TaskContext, stores: Iterable[str]) -> None:
        super().__init__(context, stores)
        self._backend = backend
        self._copied: dict[str, dict[bytes, bytes]] = {}

    def _init(self, checkpoint: Checkpoint | None) -> None:
        return

    def _snapshot(self, checkpoint: CheckpointId) -> dict[str, str]:
        stores = self.context.stores
        self._copied = {name: dict(stores.open(name).items()) for name in self.stores}
        return dict.fromkeys(self.stores, str(checkpoint))

    def _upload(
        self, checkpoint: CheckpointId, markers: Mapping[str, str]
    ) -> Future[dict[str, str]]:
        copied = self._copied

        def keep(_: None) -> dict[str, str]:
            for store, marker in markers.items():
                self._backend.copies[self.context.task, store, marker] = copied[store]
            return dict(markers)

        return then(self.context.pool, done(None), keep)

    def _clean_up(self, checkpoint: CheckpointId, markers: Mapping[str, str]) -> Future[None]:
        copies, task = self._backend.copies, self.context.task
        for name in list(copies):
            if name[0] == task and name[1] in markers and name[2] != markers[name[1]]:
                del copies[name]
        return done(None)


class _Restore(TaskRestoreManager):
    def __init__(self, backend: MemoryBackend, context: TaskContext, stores: Iterable[str]) -> None:
        super().__init__(context, stores)
        self._backend = backend
        self._copies: dict[str, dict[bytes, bytes]] = {}

    def _init(self, checkpoint: Checkpoint | None) -> None:
        if checkpoint is None or isinstance(checkpoint, CheckpointV1):
            return
        for store, marker in checkpoint.markers.get(MEMORY_FACTORY, {}).items():
            if store not in self.stores:
                continue
            copy = self._backend.copies.get((self.context.task, store, marker))
            if copy is None:
                raise CommitError(
                    f"there is no copy {marker} of store {store!r}",
                    place=f"task {self.context.task}",
                    remedy="copies end with their process: restore from another backend",
                )
            self._copies[store] = copy

    def _restore(self, store: str) -> None:
        opened = self.context.stores.open(store)
        for key, value in self._copies.get(store, {}).items():
            self._check()
            opened.apply(key, value)


class _Admin(StateBackendAdmin):
    def create_resources(self) -> None:
        return

    def validate_resources(self) -> None:
        return
