"""Working state in RocksDB: SST files never change, so a commit links and uploads only new ones.

There is no write-ahead log: data that is not in a checkpoint is never used after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from rocksdict import Checkpoint, Options, Rdict, WriteBatch, WriteOptions

from statelake.state_core.commit.stores.local_disk import LocalDisk, PosixDisk
from statelake.state_core.commit.stores.stores import PersistentStore
from statelake.state_core.commit.stores.task_stores import StoreSpec
from statelake.state_core.errors import CommitError


class RocksDbStore(PersistentStore):
    """A store in its own RocksDB database.

    Args:
        disk: The disk, which must have real paths.
        path: The directory of the database.

    Raises:
        CommitError: The disk has no real paths.
    """

    def __init__(self, disk: LocalDisk, path: str) -> None:
        super().__init__()
        if not isinstance(disk, PosixDisk):
            raise CommitError("RocksDB needs a disk with real paths", place=path)
        self._disk = disk
        target = disk.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        self._database = Rdict(str(target), Options(raw_mode=True))
        options: Any = WriteOptions()  # its stubs declare a method instead of an attribute
        options.disable_wal = True
        self._writing = options
        self._database.set_write_options(options)

    @staticmethod
    def immutable(name: str) -> bool:
        """Return whether a file of this name never changes."""
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
        """Return the value of a key; None without a value."""
        return cast("bytes | None", self._database.get(key))

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        """Return every key with its value."""
        return cast("Iterable[tuple[bytes, bytes]]", self._database.items())

    def flush(self) -> None:
        """Write the memtable to a new file."""
        self._database.flush()

    def checkpoint(self, target: str) -> None:
        """Make RocksDB's own checkpoint: hard links, and copies of the few files that change."""
        path = self._disk.path(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        Checkpoint(self._database).create_checkpoint(str(path))

    def close(self) -> None:
        """Close the files."""
        self._database.close()


def rocksdb_spec(name: str) -> StoreSpec:
    """Return the specification of a store in RocksDB.

    Args:
        name: The name of the store.
    """
    return StoreSpec(name, RocksDbStore, immutable=RocksDbStore.immutable)
