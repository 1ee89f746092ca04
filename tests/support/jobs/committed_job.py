"""A job whose tasks really committed: to blobs and to changelogs, with a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from statelake.state_core.files.filesystem import Directory
from statelake.state_core.runtime.commit import (
    BlobStoreBackend,
    ChangelogBackend,
    CheckpointLog,
    CheckpointManager,
    CommitMeasures,
    FileChangelogs,
    FileSystemBlobStore,
    PosixDisk,
    SystemStreamPartition,
    TaskContext,
    TaskStart,
    TaskStores,
)
from tests.support.jobs.doubles import changelogs_of, parse_settings, segments

__all__ = ["GROUPER", "INPUT", "CommittedJob"]

GROUPER = "org.apache.samza.container.grouper.stream.GroupByPartitionFactory"
INPUT = SystemStreamPartition("kafka", "orders", 0)


class CommittedJob:
    """Tasks with one store, `counts`, and what their commits left.

    Args:
        path: Where everything lies: `blobs`, `changelogs`, and the tasks' disks.
        log: The checkpoint log.
        backup: Backends, by their short names.
        write_versions: Of records.
        keep: How many snapshots the backends keep.
        restore: The backend to restore from; the first by default.
    """

    def __init__(
        self,
        path: Path,
        log: CheckpointLog,
        backup: Iterable[str] = ("blob_store", "changelog"),
        write_versions: tuple[int, ...] = (2,),
        keep: int = 1,
        restore: str = "",
    ) -> None:
        self.path = path
        self.log = log
        self.write_versions = write_versions
        self.measures = CommitMeasures()
        self.backends = [
            BlobStoreBackend(FileSystemBlobStore(Directory(path / "blobs")), keep),
            ChangelogBackend(FileChangelogs(path / "changelogs")),
        ]
        config = {"stores.counts.backup.factories": ",".join(backup)}
        if "changelog" in config["stores.counts.backup.factories"]:
            config["stores.counts.changelog"] = "kafka.counts-log"
        if restore:
            config["stores.counts.restore.factory"] = restore
        self.config = config
        self.settings = parse_settings(config, ["counts"])

    def run(
        self, task: str, rounds: Iterable[Mapping[bytes, bytes]], *, read_versions: str = "2,1"
    ) -> dict[bytes, bytes]:
        """Start a task, put each round and commit it: what the store held at the start."""
        changelogs = changelogs_of(self.config, int(task.rpartition(" ")[2]))
        disk = PosixDisk(self.path / "disks" / task)
        stores = TaskStores(disk, task, [segments("counts")])
        read = tuple(int(part) for part in read_versions.split(","))
        manager = CheckpointManager(
            self.log, GROUPER, read_versions=read, write_versions=self.write_versions
        )
        with ThreadPoolExecutor(2) as pool:
            context = TaskContext(
                "orders", "1", task, stores, pool, changelogs=changelogs, measures=self.measures
            )
            started = TaskStart(context, self.settings, manager, self.backends).start()
            store = stores.open("counts")
            found = dict(store.items())
            done = int(started.offsets.get(INPUT, "0"))
            for number, puts in enumerate(rounds, done + 1):
                for key, value in puts.items():
                    store.put(key, value)
                started.commits.commit({INPUT: str(number)})
                started.commits.wait()
            started.commits.close()
        return found
