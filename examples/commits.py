"""A task that counts words, and commits its counts in two phases to a blob store.

Call it again and again, on one host or another: a host is a directory here. Each call is a process
that starts the task, processes some input, commits, and ends. On a host where it was last, the task
finds its store on the disk; on another it restores it from the blob store.

    python examples/commits.py host-a the quick brown fox
    python examples/commits.py host-b the lazy dog
    statelake checkpoints list --log commits-data/log
    statelake checkpoints verify --log commits-data/log --blobs commits-data/blobs
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from statelake.state_core.commit import (
    BlobStoreBackend,
    CheckpointManager,
    CommitSettings,
    FileCheckpointLog,
    FileSystemBlobStore,
    PosixDisk,
    StoreSpec,
    SystemStreamPartition,
    TaskContext,
    TaskStart,
    TaskStores,
)
from statelake.state_core.files.filesystem import Directory

INPUT = SystemStreamPartition("files", "lines", 0)
SETTINGS = CommitSettings.parse({"stores.counts.backup.factories": "blob_store"}, ["counts"])
GROUPER = "org.apache.samza.container.grouper.stream.GroupByPartitionFactory"


def count(data: Path, host: str, words: Iterable[str]) -> dict[str, int]:
    """Start the task on a host, count words, commit: all counts that there are then."""
    backend = BlobStoreBackend(FileSystemBlobStore(Directory(data / "blobs")))
    log = CheckpointManager(FileCheckpointLog(Directory(data / "log")), GROUPER)
    stores = TaskStores(PosixDisk(data / host), "words 0", [StoreSpec.segments("counts")])
    with ThreadPoolExecutor(1) as pool:
        context = TaskContext("words", "1", "words 0", stores, pool)
        task = TaskStart(context, SETTINGS, log, [backend]).start()
        restored, offset = task.restored["counts"], int(task.offsets.get(INPUT, "0"))
        print(f"{host}: counts from {restored.source.value}, input from offset {offset}")  # noqa: T201
        store = stores.open("counts")
        for word in words:
            store.put(word.encode(), str(int(store.get(word.encode()) or 0) + 1).encode())
            offset += 1
        task.commits.commit({INPUT: str(offset)})
        task.commits.wait()
        counts = {word.decode(): int(times) for word, times in store.items()}
        task.commits.close()
    return counts


if __name__ == "__main__":
    print(count(Path("commits-data"), sys.argv[1], sys.argv[2:]))  # noqa: T201
