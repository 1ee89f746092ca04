"""Stores, disks, logs and backends for tests of the commit protocol, in memory.

The product has none of them: a run's store is a `SubtaskStore` on a `PosixDisk`, and what it
commits outlives its process.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future

from statelake.state_core.errors import (
    CommitError,
    CorruptSnapshotError,
    MissingFileError,
    UnsafePathError,
)
from statelake.state_core.files.confinement import shortened
from statelake.state_core.runtime.commit import (
    Changelog,
    Checkpoint,
    CheckpointId,
    CheckpointLog,
    CheckpointManager,
    CheckpointV1,
    CommitSettings,
    FileSystemBlobStore,
    KeyValueStore,
    LogRecord,
    PersistentStore,
    PosixDisk,
    StateBackendFactory,
    StoreSettings,
    StoreSpec,
    SystemStreamPartition,
    TaskBackupManager,
    TaskRestoreManager,
)
from statelake.state_core.runtime.commit.backends.blob_store import CHUNK, THIRTY_DAYS_MS, deleted
from statelake.state_core.runtime.commit.backends.changelog import Change, compacted, never_cancel
from statelake.state_core.runtime.commit.contract.futures import done
from statelake.state_core.runtime.commit.records.clocks import now_millis
from statelake.state_core.runtime.commit.records.records import (
    BLOB_STORE_FACTORY,
    CHANGELOG_FACTORY,
)
from statelake.state_core.runtime.commit.records.snapshot_index import FileMetadata
from statelake.state_core.runtime.commit.stores.local_disk import join

MEMORY_FACTORY = "memory"
SHORT_NAMES = {"blob_store": BLOB_STORE_FACTORY, "changelog": CHANGELOG_FACTORY}
MANIFEST = "SEGMENTS"
MAX_SEGMENTS = 8
_LENGTHS = struct.Struct(">Ii")  # of the key, and of the value: -1 for a deletion
_SEGMENT = re.compile(r"[0-9]{6,}\.seg")


class MemoryStore(KeyValueStore):
    """A store without files."""

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[bytes, bytes] = {}

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set or remove a key, and call the subscribers."""
        self.apply(key, value)
        for listener in self._listeners:
            listener(key, value)

    def delete(self, key: bytes) -> None:
        """Remove a key, and call the subscribers."""
        self.put(key, None)

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Set or remove a key."""
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None without a value."""
        return self._values.get(key)

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        """Return every key with its value."""
        return sorted(self._values.items())


class SegmentStore(MemoryStore, PersistentStore):
    """A store of immutable files, read into memory when it is opened.

    Each flush writes the changes since the last one to another file, and after some files all are
    replaced by one: a local checkpoint is a few links, and an upload sends only the new ones.

    Args:
        disk: The disk.
        path: The directory; created by the first flush.
        max_segments: The number of files after which all are replaced by one.

    Raises:
        CorruptSnapshotError: A file is damaged.
        MissingFileError: A file is missing.
    """

    def __init__(self, disk: PosixDisk, path: str, max_segments: int = MAX_SEGMENTS) -> None:
        super().__init__()
        self._disk = disk
        self._path = path
        self._max = max_segments
        self._changed: set[bytes] = set()
        self._segments: list[tuple[str, int]] = []
        self._next = 1
        self._open()

    @staticmethod
    def immutable(name: str) -> bool:
        """Return whether a file of this name never changes: segments and the list of them."""
        return name.endswith(".seg") or name == MANIFEST

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Set or remove a key."""
        super().apply(key, value)
        self._changed.add(key)

    def flush(self) -> None:
        """Write the changes since the last flush to another file, or everything to a single one."""
        if not self._changed and self._segments:
            return
        full = len(self._segments) >= self._max
        keys = sorted(self._values if full else self._changed)
        data = b"".join(_frame(key, self._values.get(key)) for key in keys)
        name = f"{self._next:06}.seg"
        self._disk.write(join(self._path, name), data)
        segments = [*([] if full else self._segments), (name, zlib.crc32(data))]
        listed = {"segments": segments, "next": self._next + 1}
        self._disk.write(join(self._path, MANIFEST), json.dumps(listed).encode())
        # only now: after a failed flush everything is written again
        gone = self._segments if full else []
        self._segments, self._next = segments, self._next + 1
        self._changed.clear()
        for old, _ in gone:
            self._disk.remove(join(self._path, old))

    def checkpoint(self, target: str) -> None:
        """Link every file into a new directory."""
        for name in [*(name for name, _ in self._segments), MANIFEST]:
            self._disk.link(join(self._path, name), join(target, name))

    def _open(self) -> None:
        try:
            listed = json.loads(self._disk.read(join(self._path, MANIFEST)))
        except MissingFileError:
            return
        self._next = listed["next"]
        for name, checksum in listed["segments"]:
            if not _SEGMENT.fullmatch(str(name)):
                raise UnsafePathError(
                    f"a segment called {shortened(str(name))}",
                    place=join(self._path, MANIFEST),
                    remedy="the list was not written by a store: restore from another checkpoint",
                )
            data = self._disk.read(join(self._path, name))
            if zlib.crc32(data) != checksum:
                raise CorruptSnapshotError("damaged", place=join(self._path, name))
            self._segments.append((name, checksum))
            for key, value in _frames(data):
                super().apply(key, value)


def _frame(key: bytes, value: bytes | None) -> bytes:
    if value is None:
        return _LENGTHS.pack(len(key), -1) + key
    return _LENGTHS.pack(len(key), len(value)) + key + value


def _frames(data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    at = 0
    while at < len(data):
        key_length, length = _LENGTHS.unpack_from(data, at)
        at += _LENGTHS.size
        key = data[at : at + key_length]
        at += key_length
        yield key, None if length < 0 else data[at : at + length]
        at += max(0, length)


def in_memory(name: str) -> StoreSpec:
    """Return the specification of a store without files."""
    return StoreSpec(name, lambda *_: MemoryStore(), persistent=False)


def parse_settings(config: Mapping[str, str], stores: Iterable[str]) -> CommitSettings:
    """Return the settings in a job's configuration, by Samza's names and short names of backends.

    Args:
        config: The configuration: names and values.
        stores: The names of the job's stores.
    """

    def parts(name: str) -> list[str]:
        return [part.strip() for part in config.get(name, "").split(",") if part.strip()]

    def settings_of(store: str) -> StoreSettings:
        prefix = f"stores.{store}"
        own = ["changelog"] if f"{prefix}.changelog" in config else []
        backup = parts(f"{prefix}.backup.factories") or own
        restore = config.get(f"{prefix}.restore.factory") or next(iter(backup), None)
        return StoreSettings(
            tuple(SHORT_NAMES.get(name, name) for name in backup),
            restore and SHORT_NAMES.get(restore, restore),
        )

    default = CommitSettings()
    return CommitSettings(
        int(config.get("task.max.commit.delay", default.max_commit_delay)),
        int(config.get("task.commit.timeout.ms", default.commit_timeout)),
        {store: settings_of(store) for store in stores},
    )


def checkpoints_in(
    log: CheckpointLog, grouper: str, config: Mapping[str, str]
) -> CheckpointManager:
    """Return the reader and writer of a log, with the versions of a job's configuration."""
    versions = {
        f"{kind}_versions": tuple(map(int, text.split(",")))
        for kind in ("read", "write")
        if (text := config.get(f"checkpoint.{kind}.versions"))
    }
    return CheckpointManager(log, grouper, **versions)  # type: ignore[arg-type]


def changelogs_of(config: Mapping[str, str], partition: int) -> dict[str, SystemStreamPartition]:
    """Return the changelog of each store of a task: `stores.<store>.changelog`.

    Args:
        config: The configuration.
        partition: The task's partition, in every changelog.
    """
    changelogs = {}
    for name, value in config.items():
        if name.startswith("stores.") and name.endswith(".changelog"):
            system, _, stream = value.partition(".")
            store = name.split(".")[1]
            changelogs[store] = SystemStreamPartition(system, stream, partition)
    return changelogs


def segments(name: str) -> StoreSpec:
    """Return the specification of a persistent store."""
    return StoreSpec(name, SegmentStore, immutable=SegmentStore.immutable)


class MemoryDisk(PosixDisk):
    """A disk in memory: bytes by their paths."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        try:
            return self.contents[join(path)]
        except KeyError as error:
            raise MissingFileError("no such file", place=path, remedy="restart the task") from error

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file in one piece."""
        yield self.read(path)

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file."""
        self.contents[join(path)] = data

    def create(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a new file."""
        self.contents[join(path)] = b"".join(chunks)

    def names(self, path: str) -> list[str]:
        """Return the names in a directory."""
        return sorted({name.split("/")[0] for name, _ in self.files(path)})

    def files(self, path: str) -> list[tuple[str, int]]:
        """Return every file below a directory."""
        start = join(path) + "/"
        sizes = ((name, len(data)) for name, data in self.contents.items())
        return sorted((name[len(start) :], size) for name, size in sizes if name.startswith(start))

    def metadata(self, path: str, size: int) -> FileMetadata:
        """Return the same for every file."""
        return FileMetadata(0, 0, size, "samza", "samza", "rw-r--r--")

    def link_tree(self, source: str, target: str, immutable: Callable[[str], bool]) -> None:
        """Link or copy every file below one directory to another."""
        for name, _ in self.files(source):
            self.link(join(source, name), join(target, name))

    def link(self, source: str, target: str) -> None:
        """Give a file a second path: bytes never change here."""
        self.contents[join(target)] = self.read(source)

    def rename(self, source: str, target: str) -> None:
        """Move a directory."""
        for name, _ in self.files(source):
            self.contents[join(target, name)] = self.contents.pop(join(source, name))

    def remove(self, path: str) -> None:
        """Remove a file or a directory."""
        for name, _ in self.files(path):
            del self.contents[join(path, name)]
        self.contents.pop(path, None)


class MemoryCheckpointLog:
    """A log in memory, for tests and for jobs that need no restart."""

    def __init__(self, clock: Callable[[], int] = now_millis) -> None:
        self.clock = clock
        self.records: list[LogRecord] = []

    def append(self, key: bytes, message: bytes) -> None:
        """Append a record."""
        self.records.append(LogRecord(len(self.records), key, message, self.clock()))

    def read(self, after: int = -1) -> Iterator[LogRecord]:
        """Yield the records behind an offset."""
        yield from self.records[after + 1 :]


class MemoryBlobStore(FileSystemBlobStore):
    """A blob store in memory, for the lifetime of its process.

    Args:
        clock: Returns milliseconds since 1970.
        ttl: Milliseconds after which a folder expires.
    """

    def __init__(self, clock: Callable[[], int] = now_millis, ttl: int = THIRTY_DAYS_MS) -> None:
        self.clock = clock
        self.ttl = ttl
        self.blobs: dict[str, bytes] = {}
        self.folders: dict[str, int] = {}
        self._count = 0

    def put(self, folder: str, name: str, chunks: Iterable[bytes]) -> str:
        """Store a blob, and return its id."""
        self.folders.setdefault(folder, self.clock() + self.ttl)
        self._count += 1
        blob = join(folder, f"{self._count}-{name}")
        self.blobs[blob] = b"".join(chunks)
        return blob

    def get(self, blob: str) -> Iterator[bytes]:
        """Yield a blob in pieces."""
        if blob not in self.blobs:
            raise deleted(blob)
        data = self.blobs[blob]
        for at in range(0, len(data), CHUNK):
            yield data[at : at + CHUNK]

    def delete(self, blob: str) -> None:
        """Remove a blob."""
        self.blobs.pop(blob, None)

    def make_permanent(self, folder: str) -> None:
        """Make a folder permanent."""
        self.folders.pop(folder, None)

    def expiring(self, prefix: str) -> dict[str, int]:
        """Return the folders that expire."""
        return {
            folder: at for folder, at in self.folders.items() if folder.startswith(f"{prefix}/")
        }

    def list(self, prefix: str) -> list[str]:
        """Return the ids of all blobs."""
        return [blob for blob in self.blobs if blob.startswith(f"{prefix}/")]


class MemoryChangelogs:
    """Changelogs in memory, for the lifetime of their process.

    Attributes:
        changes: The flushed changes, by partition.
    """

    compaction_lag: int | None = None

    def __init__(self) -> None:
        self.changes: dict[SystemStreamPartition, list[Change]] = {}
        self.ends: dict[SystemStreamPartition, int] = {}

    def create(self, stream: str, partitions: int) -> None:
        """Do nothing: every partition exists."""

    def validate(self, stream: str, partitions: int) -> None:
        """Do nothing: every partition exists."""

    def open(self, partition: SystemStreamPartition) -> Changelog:
        """Return a writer with its own buffer."""
        return _MemoryChangelog(self, partition)


class _MemoryChangelog:
    def __init__(self, owner: MemoryChangelogs, partition: SystemStreamPartition) -> None:
        self._owner = owner
        self._partition = partition
        self._changes = owner.changes.setdefault(partition, [])
        self._buffer: list[tuple[bytes, bytes | None]] = []

    def append(self, key: bytes, value: bytes | None) -> None:
        self._buffer.append((key, value))

    def flush(self) -> None:
        at = self._owner.ends.get(self._partition, 0)
        for offset, (key, value) in enumerate(self._buffer, at):
            self._changes.append(Change(offset, key, value))
        self._owner.ends[self._partition] = at + len(self._buffer)
        self._buffer.clear()

    def newest(self) -> int | None:
        end = self._owner.ends.get(self._partition, 0)
        return end - 1 if end else None

    def read(
        self, start: int = 0, end: int | None = None, waiting: Callable[[], None] = never_cancel
    ) -> Iterator[Change]:
        for change in list(self._changes):
            if change.offset >= start and (end is None or change.offset <= end):
                yield change

    def compact(self, end: int) -> None:
        self._changes[:] = compacted(self._changes, end)

    def close(self) -> None:
        self._buffer.clear()


class _Backup(TaskBackupManager):
    _backend: MemoryBackend

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

        def keep() -> dict[str, str]:
            for store, marker in markers.items():
                self._backend.copies[self.context.task, store, marker] = copied[store]
            return dict(markers)

        return self._later(keep)

    def _clean_up(self, checkpoint: CheckpointId, markers: Mapping[str, str]) -> Future[None]:
        copies, task = self._backend.copies, self.context.task
        for name in list(copies):
            if name[0] == task and name[1] in markers and name[2] != markers[name[1]]:
                del copies[name]
        return done(None)


class _Restore(TaskRestoreManager):
    _backend: MemoryBackend

    def _init(self, checkpoint: Checkpoint | None) -> None:
        self._copies: dict[str, dict[bytes, bytes]] = {}
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


class MemoryBackend(StateBackendFactory):
    """Copies of stores by task, store and checkpoint id; they outlive the task, not the process.

    Attributes:
        copies: The copies.
    """

    name = MEMORY_FACTORY
    backup = _Backup
    restore = _Restore

    def __init__(self) -> None:
        self.copies: dict[tuple[str, str, str], dict[bytes, bytes]] = {}

    def create_resources(self) -> None:
        """Do nothing."""

    def validate_resources(self) -> None:
        """Do nothing."""
