"""Tasks on real threads, disks and files, for tests of commits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import Self

from statelake.state_core.files.filesystem import Directory
from statelake.state_core.runtime.commit import (
    BlobStoreBackend,
    ChangelogBackend,
    FileChangelogs,
    FileCheckpointLog,
    FileSystemBlobStore,
    PosixDisk,
    StartedTask,
    StateBackendFactory,
    StoreSpec,
    SystemStreamPartition,
    TaskContext,
    TaskStart,
    TaskStores,
)
from tests.support.jobs.doubles import (
    MemoryBackend,
    changelogs_of,
    checkpoints_in,
    parse_settings,
    segments,
)

GROUPER = "org.apache.samza.container.grouper.stream.GroupByPartitionFactory"
INPUT = SystemStreamPartition("kafka", "orders", 3)


@dataclass
class Task:
    """A task that runs.

    Attributes:
        context: Its context.
        started: What its start made.
        offset: Of the last message.
    """

    context: TaskContext
    started: StartedTask
    offset: int

    def put(self, **values: str | None) -> None:
        """A message for every key: sets it in the store named `store`, or removes it."""
        for key, value in values.items():
            self.offset += 1
            if value is None:
                self.context.stores.open("store").delete(key.encode())
            else:
                self.context.stores.open("store").put(key.encode(), value.encode())

    def content(self, store: str = "store") -> dict[str, str]:
        """What a store holds."""
        return {k.decode(): v.decode() for k, v in self.context.stores.open(store).items()}

    def commit(self, *, wait: bool = True) -> None:
        """Commit, and see it through."""
        self.started.commits.commit({INPUT: str(self.offset)})
        if wait:
            self.started.commits.wait()


@dataclass
class Job:
    """What outlives a task: a directory with log, blobs, changelogs and hosts, and threads.

    Attributes:
        root: The directory.
        config: The job's configuration.
        stores: Its stores.
        keep: Snapshots that a blob store keeps.
        transactional: Whether changelogs are.
        tasks: How many share the threads.
    """

    root: Path
    config: Mapping[str, str]
    stores: Iterable[StoreSpec] = (segments("store"),)
    keep: int = 1
    transactional: bool = True
    tasks: int = 1
    copies: MemoryBackend = field(default_factory=MemoryBackend)
    changed: Callable[[StateBackendFactory], StateBackendFactory] = lambda checkpoint: checkpoint

    def __post_init__(self) -> None:
        self._ends = ExitStack()
        self.pool = ThreadPoolExecutor(min(self.tasks, 64))
        self._ends.callback(self.pool.shutdown)
        self.log = FileCheckpointLog(Directory(self.root / "log"))
        self.blobs = FileSystemBlobStore(Directory(self.root / "blobs"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def factories(self) -> list[StateBackendFactory]:
        """All backends."""
        changelogs = FileChangelogs(self.root / "changelogs")
        made: list[StateBackendFactory] = [
            BlobStoreBackend(self.blobs, self.keep),
            ChangelogBackend(changelogs, transactional=self.transactional),
            self.copies,
        ]
        return [self.changed(marker) for marker in made]

    def task(self, host: str = "host", name: str = "Partition 3", **config: str) -> Task:
        """Start a task on a host; its settings come before the job's."""
        stores = list(self.stores)
        chosen = {**self.config, **config}
        settings = parse_settings(chosen, [store.name for store in stores])
        partition = int(name.rpartition(" ")[2])
        context = TaskContext(
            "job",
            "1",
            name,
            TaskStores(PosixDisk(self.root / host), name, stores),
            self.pool,
            changelogs=changelogs_of(chosen, partition),
        )
        self._ends.callback(context.stores.close)
        checkpoints = checkpoints_in(self.log, GROUPER, chosen)
        started = TaskStart(context, settings, checkpoints, self.factories()).start()
        return Task(context, started, int(started.offsets.get(INPUT, "-1")))
