"""The lake as a state backend: each store is a Delta table, and a marker is a version of it.

::

    <job>/stores/<store>                              partitioned by task
    <job>/stores/<store>/_data/<task>/<id>-full-...   all that the store held at a commit
    <job>/stores/<store>/_data/<task>/<id>-more-...   what changed in it since the commit before

A row is a key with its value, or without one if it was deleted; among the files of a version the
later commit's row counts. The first commit after a start writes everything, as the store may have
been restored from elsewhere; later ones write the changes, and after some of them all files are
merged into one, concurrently with processing. A commit without changes has the marker of the one
before.

Versions never expire, and only `clean_up` deletes files, so that a marker can be restored as long
as it is kept.
"""

from __future__ import annotations

import posixpath
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable, Transaction

from statelake.pipelines.lake.commits.partition_files import PartitionFile, PartitionFiles
from statelake.pipelines.lake.tables.names import store_table
from statelake.pipelines.lake.tables.parquet_bounds import BoundedWriter
from statelake.pipelines.lake.tables.tables import StateTable
from statelake.state_core.commit import (
    Checkpoint,
    CheckpointId,
    CheckpointV2,
    StateBackendAdmin,
    StateBackendFactory,
    TaskBackupManager,
    TaskContext,
    TaskRestoreManager,
)
from statelake.state_core.commit.contract.futures import all_of, done, mapped, then
from statelake.state_core.commit.records.records import LAKE_FACTORY
from statelake.state_core.errors import CommitError, DamagedLakeError
from statelake.state_core.files.filesystem import Directory

MORE_FILES = 16
ROW_GROUP_BYTES = 8 << 20
CHECK_BYTES, CHECK_ROWS = 512 << 10, 1024
BATCH_ROWS = 256
ROWS = pa.schema([pa.field("key", pa.binary(), nullable=False), ("value", pa.binary())])
COLUMNS = pa.schema([("task", pa.string()), *ROWS])
_FILE = re.compile(r"(\d+-\d+)-(full|more)-[0-9a-f]+\.parquet", re.ASCII)

Row = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True, order=True)
class StoreFile:
    """A file of a store's table.

    Attributes:
        checkpoint: The id of the commit that wrote it.
        full: Whether it has the whole store; otherwise the changes.
        path: Its path below the table.
        size: Its bytes.
        rows: Its rows.
    """

    checkpoint: CheckpointId
    full: bool
    path: str
    size: int = 0
    rows: int = 0

    @classmethod
    def parse(cls, path: str, size: int = 0, rows: int = 0) -> StoreFile | None:
        """Return the file of a path; None for other files."""
        match = _FILE.fullmatch(posixpath.basename(path))
        if match is None:
            return None
        return cls(CheckpointId.parse(match[1]), match[2] == "full", path, size, rows)


def superseded(files: Iterable[StoreFile], last: CheckpointId, keep: int) -> list[StoreFile]:
    """Return the files that a task's last commits do not need.

    Args:
        files: All files of the task, in a version or not.
        last: The commit whose record is the log's last.
        keep: How many commits stay, the last one included.
    """
    listed = list(files)
    upto = sorted({file.checkpoint for file in listed if file.checkpoint <= last})[-keep:]
    bases = [
        file.checkpoint for file in listed if file.full and upto and file.checkpoint <= upto[0]
    ]
    return [file for file in listed if bases and file.checkpoint < max(bases)]


class LakeBackend(StateBackendFactory):
    """Stores as versioned Delta tables.

    Args:
        lake: The lake's directory.
        keep: How many commits of each store stay, counting all that were uploaded, in the log or
            not.
        more_files: The number of files of changes after which all are merged into one.
    """

    name = LAKE_FACTORY

    def __init__(self, lake: Directory, keep: int = 1, more_files: int = MORE_FILES) -> None:
        if keep < 1:
            raise CommitError(f"{keep} commits can't be kept", remedy="keep 1 or more")
        self.lake = lake
        self.keep = keep
        self.more_files = more_files

    def backup_manager(self, context: TaskContext, stores: Iterable[str]) -> TaskBackupManager:
        """Return the manager that writes these stores' changes."""
        return _Backup(self, context, stores)

    def restore_manager(self, context: TaskContext, stores: Iterable[str]) -> TaskRestoreManager:
        """Return the manager that reads these stores' versions."""
        return _Restore(self, context, stores)

    def admin(self) -> StateBackendAdmin:
        """Return the admin that creates the lake's directory; the first commit creates a table."""
        return _Admin(self.lake)

    def part(self, context: TaskContext, store: str) -> TaskPart:
        """Return a task's part of a store's table."""
        job = context.job_name
        if context.job_id not in {"", "1"}:  # as in Samza, one instance is the usual case
            job = f"{job}-{context.job_id}"
        return TaskPart(StateTable(self.lake, store_table(job, store)), context.task)


@dataclass(frozen=True, slots=True)
class TaskPart:
    """The partition of a store's table that one task writes.

    Attributes:
        table: The store's.
        task: The task's name.
    """

    table: StateTable
    task: str

    @property
    def partition(self) -> PartitionFiles:
        """Its files, as the table has them."""
        return PartitionFiles(self.table, COLUMNS, "task", self.task)

    @property
    def directory(self) -> str:
        """The directory of its files below the table."""
        return self.partition.directory

    def files(self, table: DeltaTable) -> list[StoreFile]:
        """Return the task's files in a version, the oldest first."""
        return _store_files(self.partition.of(table))

    def at(self, marker: str) -> list[StoreFile]:
        """Return the files of a marker.

        Raises:
            CommitError: There is no such version.
        """
        try:
            table = self.table.open(int(marker))
        except (DamagedLakeError, ValueError) as error:
            raise self.partition.lost(f"version {marker} can't be read: {error}") from error
        if table is None:
            raise self.partition.lost("there is no table")
        return self.files(table)

    def present(self) -> list[StoreFile]:
        """Return all files in its directory."""
        files = self.table.directory.files_below(self.directory)
        return [
            store_file
            for path, size in files
            if (store_file := StoreFile.parse(path, size)) is not None
        ]

    def read(self, file: StoreFile) -> Iterator[Row]:
        """Yield the rows of a file.

        Raises:
            CommitError: The file does not exist, or has other content than was written.
        """
        partition_file = PartitionFile(file.path, file.size, file.rows)
        for batch in self.partition.batches(partition_file, ROWS, BATCH_ROWS):
            keys, values = (column.to_pylist() for column in batch.columns)
            yield from zip(keys, values, strict=True)

    def write(self, checkpoint: CheckpointId, rows: Iterable[Row], *, full: bool) -> StoreFile:
        """Write a new file, which no version has yet."""
        kind = "full" if full else "more"
        path = f"{self.directory}/{checkpoint}-{kind}-{uuid.uuid4().hex[:12]}.parquet"
        count = 0
        with self.table.directory.open_output(path) as target:
            with BoundedWriter(
                target, ROWS, compression="zstd", write_page_checksum=True
            ) as writer:
                for group in _groups(rows):
                    keys, values = zip(*group, strict=True)
                    arrays = [pa.array(column, pa.binary()) for column in (keys, values)]
                    writer.write_table(pa.Table.from_arrays(arrays, schema=ROWS))
                    count += len(group)
            size = target.tell()
        return StoreFile(checkpoint, full, path, size, count)

    def commit(self, file: StoreFile, expected: list[StoreFile] | None) -> int:
        """Commit a file to the table, and return the version.

        Args:
            file: A full one replaces the task's others; another one is added to them.
            expected: The task's files so far; None if they may be any.

        Raises:
            CommitError: Another process commits for the same task.
            ConflictError: Other writers were first each time.
        """

        def choose(
            before: list[PartitionFile],
        ) -> tuple[list[PartitionFile], list[PartitionFile]]:
            if expected is not None and _store_files(before) != expected:
                raise CommitError(
                    f"another process committed for task {self.task!r}",
                    place=self.table.uri,
                    remedy="end one of the two; the other goes on from the last record in the log",
                )
            return [PartitionFile(file.path, file.size, file.rows)], before if file.full else []

        return self.partition.commit(
            choose, Transaction(f"task {self.task}", file.checkpoint.millis)
        )


def _store_files(files: Iterable[PartitionFile]) -> list[StoreFile]:
    store_files = (StoreFile.parse(*file) for file in files)
    return sorted(file for file in store_files if file is not None)


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield rows in groups of some mebibytes."""
    group: list[Row] = []
    size = 0
    for row in rows:
        group.append(row)
        size += len(row[0]) + len(row[1] or b"") + 16
        if size >= ROW_GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


class _Backup(TaskBackupManager):
    def __init__(self, backend: LakeBackend, context: TaskContext, stores: Iterable[str]) -> None:
        super().__init__(context, stores)
        self._backend = backend
        self._parts = {name: backend.part(context, name) for name in self.stores}
        self._changed: dict[str, set[bytes]] = {name: set() for name in self.stores}
        self._known: dict[str, list[StoreFile]] = {}
        self._markers: dict[str, str] = {}
        self._fixed: dict[str, list[Row]] = {}

    def _init(self, checkpoint: Checkpoint | None) -> None:
        for name, changed in self._changed.items():
            self.context.stores.open(name).subscribe(_noting(changed))

    def _snapshot(self, checkpoint: CheckpointId) -> dict[str, str]:
        for name in self.stores:
            store = self.context.stores.open(name)
            if name in self._known:
                self._fixed[name] = [(key, store.get(key)) for key in sorted(self._changed[name])]
            else:
                self._fixed[name] = list(store.items())
            self._changed[name].clear()
        return dict.fromkeys(self.stores, str(checkpoint))

    def _upload(
        self, checkpoint: CheckpointId, markers: Mapping[str, str]
    ) -> Future[dict[str, str]]:
        def send(store: str) -> Future[str]:
            return then(self.context.pool, done(None), lambda _: self._send(store, checkpoint))

        sent = all_of([send(store) for store in self.stores])
        return mapped(sent, lambda found: dict(zip(self.stores, found, strict=True)))

    def _send(self, store: str, checkpoint: CheckpointId) -> str:
        part, rows = self._parts[store], self._fixed.pop(store)
        known = self._known.get(store)
        if known is not None and not rows:
            return self._markers[store]
        full = known is None or len(known) >= self._backend.more_files
        if full and known is not None:
            rows = list(_merged([*(row for file in known for row in part.read(file)), *rows]))
        file = part.write(checkpoint, rows, full=full)
        version = part.commit(file, known)
        self.context.measures.add("files_sent")
        self.context.measures.add("bytes_sent", file.size)
        if not full:
            self.context.measures.add("bytes_saved", sum(earlier.size for earlier in known or ()))
        self._known[store] = [file] if full else [*(known or ()), file]
        self._markers[store] = str(version)
        return self._markers[store]

    def _clean_up(self, checkpoint: CheckpointId, markers: Mapping[str, str]) -> Future[None]:
        def tidy(store: str, marker: str) -> Future[None]:
            return then(self.context.pool, done(None), lambda _: self._tidy(store, marker))

        return mapped(all_of([tidy(*item) for item in markers.items()]), lambda _: None)

    def _tidy(self, store: str, marker: str) -> None:
        part = self._parts[store]
        kept = part.at(marker)
        if kept:
            for file in superseded(part.present(), kept[-1].checkpoint, self._backend.keep):
                part.table.directory.delete(file.path)


class _Restore(TaskRestoreManager):
    def __init__(self, backend: LakeBackend, context: TaskContext, stores: Iterable[str]) -> None:
        super().__init__(context, stores)
        self._parts = {name: backend.part(context, name) for name in self.stores}
        self._files: dict[str, list[StoreFile]] = {}

    def _init(self, checkpoint: Checkpoint | None) -> None:
        if not isinstance(checkpoint, CheckpointV2):
            return
        for store, marker in checkpoint.markers.get(LAKE_FACTORY, {}).items():
            if store in self._parts:
                self._files[store] = self._parts[store].at(marker)

    def _restore(self, store: str) -> None:
        opened = self.context.stores.open(store)
        count = size = 0
        for file in self._files.get(store, ()):
            for key, value in self._parts[store].read(file):
                count += 1
                size += len(key) + len(value or b"")
                if size >= CHECK_BYTES or count >= CHECK_ROWS:
                    self._check()
                    count = size = 0
                opened.apply(key, value)
            self.context.measures.add("bytes_restored", file.size)


def _noting(changed: set[bytes]) -> Callable[[bytes, bytes | None], None]:
    return lambda key, _: changed.add(key)


def _merged(rows: Iterable[Row]) -> Iterator[Row]:
    last = dict(rows)
    return ((key, last[key]) for key in sorted(last) if last[key] is not None)


class _Admin(StateBackendAdmin):
    def __init__(self, lake: Directory) -> None:
        self._lake = lake

    def create_resources(self) -> None:
        self._lake.create()

    def validate_resources(self) -> None:
        if not self._lake.exists():
            raise CommitError("the lake is not there", place=self._lake.uri, remedy="create it")
