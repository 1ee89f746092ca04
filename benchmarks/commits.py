"""Commits in two phases: `python -m benchmarks.commits [--keys N] [--value BYTES] [--store NAME]`.

What processing loses while an upload runs, against commits that processing waits for; what an
increment sends; what a restore from blobs is against one from a changelog, on the same state. The
blob store is a directory behind a line of so many megabytes a second, as local disks hide what a
commit beside processing is for.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import harmonic_mean
from threading import Lock

from benchmarks.measuring import Row, print_table
from statelake.state_core.commit import (
    BlobStoreBackend,
    ChangelogBackend,
    CheckpointManager,
    CommitSettings,
    FileChangelogs,
    FileSystemBlobStore,
    MemoryCheckpointLog,
    PosixDisk,
    StartedTask,
    StoreSpec,
    TaskContext,
    TaskStart,
    TaskStores,
)
from statelake.state_core.commit.stores.rocksdb_store import rocksdb_spec
from statelake.state_core.files.filesystem import Directory

VALUE_BYTES = 100  # behind keys of 16, as RocksDB's own benchmark has it
LINE_MB = 100
PART = 2000
ROUNDS = 6
SPECS = {"rocksdb": rocksdb_spec, "segments": StoreSpec.segments}
CONFIG = {
    "stores.store.changelog": "kafka.store-changelog",
    "stores.store.backup.factories": "blob_store,changelog",
    "task.max.commit.delay": "100000000",
}
FLOOR_MB = 50


class Line(FileSystemBlobStore):
    """A blob store behind one line of so many bytes a second, whoever sends."""

    bytes_a_second = 0.0

    def __init__(self, directory: Directory) -> None:
        super().__init__(directory)
        self._free = 0.0
        self._lock = Lock()

    def put(self, folder: str, name: str, chunks: Iterable[bytes]) -> str:
        """Store a blob, no faster than the line."""

        def slowed() -> Iterable[bytes]:
            for piece in chunks:
                if self.bytes_a_second:
                    time.sleep(self._wait(len(piece)))
                yield piece

        return super().put(folder, name, slowed())

    def _wait(self, size: int) -> float:
        with self._lock:
            now = time.perf_counter()
            self._free = max(now, self._free) + size / self.bytes_a_second
            return self._free - now


class Bench:
    """A job in a directory.

    Args:
        work: The directory.
        store: The kind of store.
        pool: Runs uploads.
    """

    def __init__(self, work: Path, store: str, pool: ThreadPoolExecutor) -> None:
        self.work, self.store, self.pool = work, store, pool
        self.log = MemoryCheckpointLog()
        self.blobs = Line(Directory(work / "blobs"))

    def start(self, host: str, **config: str) -> tuple[TaskContext, StartedTask]:
        """A task on a host."""
        settings = CommitSettings.parse(CONFIG | config, ["store"])
        stores = TaskStores(PosixDisk(self.work / host), "task", [SPECS[self.store]("store")])
        context = TaskContext(
            "job", "1", "task", stores, self.pool, changelogs=settings.changelogs(0)
        )
        changelogs = FileChangelogs(self.work / "changelogs")
        factories = [BlobStoreBackend(self.blobs), ChangelogBackend(changelogs)]
        checkpoints = CheckpointManager(self.log, "grouper")
        return context, TaskStart(context, settings, checkpoints, factories).start()


def process(context: TaskContext, keys: list[bytes], size: int) -> float:
    """Messages a second: each reads a key and writes it."""
    store = context.stores.open("store")
    value = random.randbytes(size)  # noqa: S311 - no secret
    began = time.perf_counter()
    for key in keys:
        store.get(key)
        store.put(key, value)
    return len(keys) / (time.perf_counter() - began)


def beside(bench: Bench, keys: list[bytes], size: int) -> tuple[float, float, float]:
    """Messages a second behind a commit that is done, beside its upload, and waiting for each.

    The first two are measured from the flush of a commit on, as a store whose memtable was just
    written to a file is slower to read, whether that is uploaded or not.
    """
    context, started = bench.start("host", **{"stores.store.backup.factories": "blob_store"})
    chosen = random.Random(1)  # noqa: S311 - no secret
    some = [chosen.choice(keys) for _ in range(len(keys) // 4)]
    bench.blobs.bytes_a_second = LINE_MB * 1e6
    parts = [some[at : at + PART] for at in range(0, len(some), PART)]
    process(context, some, size)
    alone, along = [], []
    for _ in range(ROUNDS):
        started.commits.commit({})
        began = len(along)
        while started.commits.under_way:
            along.append(process(context, parts[len(along) % len(parts)], size))
        process(context, some, size)
        started.commits.commit({})
        started.commits.wait()
        alone += [process(context, parts[at % len(parts)], size) for at in range(began, len(along))]
        process(context, some, size)
    began_at = time.perf_counter()
    for _ in range(ROUNDS):
        process(context, some, size)
        started.commits.commit({})
        started.commits.wait()
    waited = ROUNDS * len(some) / (time.perf_counter() - began_at)
    started.commits.close()
    return harmonic_mean(alone), harmonic_mean(along), waited


def restores(bench: Bench) -> tuple[float, float]:
    """Seconds of a restore from blobs, and from the changelog, each on a new host."""
    took = []
    for factory in ("blob_store", "changelog"):
        began = time.perf_counter()
        settings = {
            "stores.store.restore.factory": factory,
            "stores.store.backup.factories": factory,
        }
        context, started = bench.start(f"elsewhere-{factory}", **settings)
        context.stores.open("store").flush()
        took.append(time.perf_counter() - began)
        started.commits.close()
    return took[0], took[1]


def measure(work: Path, store: str, count: int, size: int) -> list[Row]:
    """All of it once."""
    keys = [b"key-%012d" % number for number in range(count)]
    megabytes = count * (size + len(keys[0])) / 1e6
    with ThreadPoolExecutor(1) as pool:
        bench = Bench(work, store, pool)
        context, started = bench.start("host")
        value = random.Random(2)  # noqa: S311 - no secret
        opened = context.stores.open("store")
        for key in keys:
            opened.put(key, value.randbytes(size))
        began = time.perf_counter()
        started.commits.commit({})
        stopped = time.perf_counter() - began
        started.commits.wait()
        whole = time.perf_counter() - began
        first = context.measures["bytes_sent"]
        for key in keys[::100]:
            opened.put(key, value.randbytes(size))
        started.commits.commit({})
        started.commits.wait()
        second = context.measures["bytes_sent"] - first
        started.commits.close()
        from_blobs, from_changelog = restores(bench)
        alone, along, waited = beside(bench, keys, size)
    return [
        Row("messages beside an upload", f"{along:,.0f}/s", f"none under way {alone:,.0f}/s",
            along / alone, 0.9),
        Row("messages with commits", f"{along:,.0f}/s", f"waiting for each {waited:,.0f}/s",
            along / waited),
        Row("processing stops for the first commit", f"{stopped * 1000:.0f} ms",
            f"the whole commit {whole * 1000:.0f} ms", whole / stopped),
        Row("bytes after 1% of the keys changed", f"{second / 1e6:.2f} MB",
            f"first commit {first / 1e6:.2f} MB", first / second, 20),
        Row("restore from blobs", f"{megabytes / from_blobs:.0f} MB/s",
            f"from the changelog {megabytes / from_changelog:.0f} MB/s",
            from_changelog / from_blobs, 10),
        Row("restore from the changelog", f"{megabytes / from_changelog:.0f} MB/s",
            f"published floor {FLOOR_MB} MB/s", megabytes / from_changelog / FLOOR_MB, 1),
    ]  # fmt: skip


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--value", type=int, default=VALUE_BYTES, help="bytes of a value")
    parser.add_argument("--store", choices=sorted(SPECS), default="rocksdb")
    parser.add_argument("--dir", default=None, help="where to put some gigabytes meanwhile")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as name:
        rows = measure(Path(name), given.store, given.keys, given.value)
    title = f"Commits of {given.keys:,} keys with values of {given.value} bytes, {given.store}"
    print_table(f"{title}, uploads at {LINE_MB} MB/s", rows)


if __name__ == "__main__":
    main()
