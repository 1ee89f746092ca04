"""The stores of one task with their directories: the working one, and those of checkpoints.

::

    <store>/task=<task>/current                  the working state
    <store>/task=<task>/<checkpoint id>          a local checkpoint: never changes
    <store>/task=<task>/<checkpoint id>/CHECKPOINT-V2    its record, written after the uploads and
                                                 before the record goes to the log

`current` is ahead of every checkpoint, so a restart never uses it: it is created anew, from a local
checkpoint that is in the log, or from a backend.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import quote

from statelake.state_core.errors import CheckpointRecordError, CommitError, MissingFileError
from statelake.state_core.runtime.commit.records.records import CheckpointId, CheckpointV2
from statelake.state_core.runtime.commit.records.serdes import (
    read_checkpoint_v2,
    write_checkpoint_v2,
)
from statelake.state_core.runtime.commit.stores.local_disk import PosixDisk, join
from statelake.state_core.runtime.commit.stores.stores import KeyValueStore, PersistentStore

CHECKPOINT_FILE = "CHECKPOINT-V2"
_ID = re.compile(r"\d+-\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """A store's name and kind, and its constructor.

    Attributes:
        name: The name in the settings.
        open: Creates the store in a directory of a disk; it may be empty or not exist.
        persistent: Whether the store keeps its content there.
        immutable: Returns whether a file never changes, so that it may be linked.
    """

    name: str
    open: Callable[[PosixDisk, str], KeyValueStore]
    persistent: bool = True
    immutable: Callable[[str], bool] = lambda _: False


class TaskStores:
    """The stores of a task on this host, and their local checkpoints.

    Args:
        disk: The disk of the host.
        task: The task's name.
        specs: The specifications of its stores.
    """

    def __init__(self, disk: PosixDisk, task: str, specs: Iterable[StoreSpec]) -> None:
        self.disk = disk
        self.task = task
        self.specs = {spec.name: spec for spec in specs}
        self._open: dict[str, KeyValueStore] = {}
        self._folder = f"task={quote(task, safe='')}"

    @property
    def names(self) -> list[str]:
        """The names of all stores."""
        return list(self.specs)

    @property
    def persistent(self) -> list[str]:
        """The names of the stores with files."""
        return [name for name, spec in self.specs.items() if spec.persistent]

    def directory(self, store: str, checkpoint: CheckpointId | None = None) -> str:
        """Return the directory of a store, or of one of its local checkpoints."""
        last = "current" if checkpoint is None else str(checkpoint)
        return join(store, self._folder, last)

    def open(self, store: str) -> KeyValueStore:
        """Return an open store; the same one until it is closed or discarded."""
        if store not in self._open:
            self._open[store] = self.specs[store].open(self.disk, self.directory(store))
        return self._open[store]

    def flush(self) -> None:
        """Write the changes of every store to disk."""
        for store in self.names:
            self.open(store).flush()

    def checkpoint(self, checkpoint: CheckpointId) -> None:
        """Make a local checkpoint of every persistent store's flushed content."""
        for name in self.persistent:
            store = self.open(name)
            if not isinstance(store, PersistentStore):
                raise CommitError(f"store {name!r} is declared persistent, and has no files")
            store.checkpoint(self.directory(name, checkpoint))

    def mark(self, checkpoint: CheckpointV2) -> None:
        """Write the record to every local checkpoint, which marks it as complete."""
        for name in self.persistent:
            path = join(self.directory(name, checkpoint.id), CHECKPOINT_FILE)
            self.disk.write(path, write_checkpoint_v2(checkpoint))

    def marked(self, store: str) -> set[CheckpointId]:
        """Return the complete local checkpoints."""
        return {
            checkpoint
            for checkpoint in self._checkpoints(store)
            if self._is_marked(store, checkpoint)
        }

    def adopt(self, store: str, checkpoint: CheckpointId) -> None:
        """Continue from a local checkpoint, which stays unchanged."""
        self.discard(store)
        source, target = self.directory(store, checkpoint), self.directory(store)
        self.disk.link_tree(source, target, self.specs[store].immutable)
        self.disk.remove(join(target, CHECKPOINT_FILE))

    def discard(self, store: str) -> None:
        """Remove the content of a store, but not its local checkpoints."""
        opened = self._open.pop(store, None)
        if opened is not None:
            opened.close()
        self.disk.remove(self.directory(store))

    def drop_checkpoints(self, keep: CheckpointId | None) -> None:
        """Remove every local checkpoint but one."""
        for store in self.persistent:
            for checkpoint in self._checkpoints(store):
                if checkpoint != keep:
                    # the mark goes first: leftovers of a crash must not look complete
                    self.disk.remove(join(self.directory(store, checkpoint), CHECKPOINT_FILE))
                    self.disk.remove(self.directory(store, checkpoint))

    def close(self) -> None:
        """Close every store."""
        while self._open:
            self._open.popitem()[1].close()

    def _is_marked(self, store: str, checkpoint: CheckpointId) -> bool:
        try:
            data = self.disk.read(join(self.directory(store, checkpoint), CHECKPOINT_FILE))
            return read_checkpoint_v2(data).id == checkpoint
        except (MissingFileError, CheckpointRecordError):
            return False

    def _checkpoints(self, store: str) -> list[CheckpointId]:
        parent = self.directory(store).rpartition("/")[0]
        return [CheckpointId.parse(n) for n in self.disk.names(parent) if _ID.fullmatch(n)]
