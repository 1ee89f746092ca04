"""Working state in RocksDB: its SST files never change, so a commit links and sends new ones alone.

Nothing is kept in a write-ahead log: what is not in a checkpoint is never used after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from rocksdict import Checkpoint, Options, Rdict, WriteBatch, WriteOptions

from state_core.commit.stores.local_disk import LocalDisk, PosixDisk
from state_core.commit.stores.stores import PersistentStore
from state_core.commit.stores.task_stores import StoreSpec
from state_core.errors import CommitError

__all__ = ["RocksDbStore", "rocksdb_spec"]


class RocksDbStore(PersistentStore):
    """A database of its own for one store.

    Args:
        disk: Where it lies: one with real paths.
        path: Its directory.

    Raises:
        CommitError: The disk has none.
    """

    def __init__(self, disk: LocalDisk, path: str) -> None:
        super().__init__()
        if not isinstance(disk, PosixDisk):
            raise CommitError("RocksDB needs a disk with real paths", place=path)
        self._disk = disk
        target = disk.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        self._database = Rdict(str(target), Options(raw_mode=True))
        options: Any = WriteOptions()  # its stubs have a method where there is an attribute
        options.disable_wal = True
        self._writing = options
        self._database.set_write_options(options)

    @staticmethod
    def immutable(name: str) -> bool:
        """Whether a file of this name never changes."""
        return name.endswith(".sst")

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Set or remove a key."""
        if value is None:
            self._database.delete(key)
        else:
            self._database[key] = value

    def apply_all(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Set and remove some keys at once."""
        batch = WriteBatch(raw_mode=True)
        for key, value in changes.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        self._database.write(batch, self._writing)

    def get(self, key: bytes) -> bytes | None:
        """A key's value."""
        return cast("bytes | None", self._database.get(key))

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        """Every key with its value."""
        return cast("Iterable[tuple[bytes, bytes]]", self._database.items())

    def flush(self) -> None:
        """Write the memtable to a new file."""
        self._database.flush()

    def checkpoint(self, target: str) -> None:
        """RocksDB's own checkpoint: hard links, and copies of the few files that change."""
        path = self._disk.path(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        Checkpoint(self._database).create_checkpoint(str(path))

    def close(self) -> None:
        """Let go of the files."""
        self._database.close()


def rocksdb_spec(name: str) -> StoreSpec:
    """A store in RocksDB.

    Args:
        name: The store's.
    """
    return StoreSpec(name, RocksDbStore, immutable=RocksDbStore.immutable)
