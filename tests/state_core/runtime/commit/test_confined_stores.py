"""Markers, indexes and lists of files are data: nothing outside a store's directory is touched."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from statelake.state_core.errors import CommitError, DeletedBlobError, StateError, UnsafePathError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.runtime.commit import (
    BlobStoreBackend,
    Checkpoint,
    CheckpointId,
    CheckpointV2,
    FileChangelogs,
    FileCheckpointLog,
    FileSystemBlobStore,
    PosixDisk,
    SystemStreamPartition,
    TaskContext,
    TaskStores,
)
from statelake.state_core.runtime.commit.records.records import BLOB_STORE_FACTORY
from statelake.state_core.runtime.commit.records.snapshot_index import (
    DirIndex,
    FileBlob,
    FileIndex,
    FileMetadata,
    SnapshotIndex,
    SnapshotMetadata,
    write_snapshot_index,
)
from tests.support.jobs.commit_world import Pool
from tests.support.jobs.doubles import segments

OUTSIDE = (
    "../victim", "../../victim", "../../../../victim", "/victim", "a/../../../../../victim", "..",
    "", ".", "a//b", "a/", "file:/victim", "s3://victim/x", "a\\..\\victim", "a\0b",
)  # fmt: skip
METADATA = SnapshotMetadata("1-0", "job", "1", "task", "store")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory for what belongs to a job, beside a victim that stays as it is."""
    for name in ("victim/x", "victim/current/y", "x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("not to be touched")
    before = _contents(tmp_path)
    (tmp_path / "job").mkdir()
    yield tmp_path / "job"
    assert _contents(tmp_path) == before


def _contents(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(directory.rglob("*"))
        if not path.is_relative_to(directory / "job")
    }


class Restoring:
    """A task whose store is restored of what a blob store has."""

    def __init__(self, place: Path) -> None:
        self.blobs = FileSystemBlobStore(Directory(place / "blobs"))
        self.disk = PosixDisk(place / "disk")
        self.stores = TaskStores(self.disk, "task", [segments("store")])
        self.pool = Pool(random.Random(1))
        self.context = TaskContext("job", "1", "task", self.stores, self.pool, self.pool.wait)
        self.backend = BlobStoreBackend(self.blobs)

    def file(self, name: str, *blobs: str) -> FileIndex:
        """An empty file."""
        parts = [FileBlob(blob, 0) for blob in blobs or [self.blobs.put("f", "x", [b""])]]
        return FileIndex(name, tuple(parts), FileMetadata(1, 1, 0, "u", "g", "rw-r--r--"), 0)

    def record(self, directory: DirIndex, previous: str | None = None) -> CheckpointV2:
        """A checkpoint with an index of that directory."""
        index = write_snapshot_index(SnapshotIndex(1, METADATA, directory, previous))
        folder = "job=job-1/task=task/store=store/1-0"
        marker = self.blobs.put(folder, "index", [index])
        return CheckpointV2(CheckpointId(1, 0), {}, {BLOB_STORE_FACTORY: {"store": marker}})

    def restore(self, checkpoint: Checkpoint) -> None:
        """Make the store anew."""
        manager = self.backend.restore_manager(self.context, ["store"])
        manager.init(checkpoint)
        manager.restore()

    def clean_up(self, checkpoint: CheckpointV2) -> None:
        """Remove what the index says is no longer needed."""
        manager = self.backend.backup_manager(self.context, ["store"])
        manager.init(checkpoint)
        cleaning = manager.clean_up(checkpoint.id, checkpoint.markers[BLOB_STORE_FACTORY])
        self.pool.wait(cleaning, 1)
        cleaning.result()


# ----------------------------------------------------------------------------- blob stores


@pytest.mark.parametrize("name", [path for path in OUTSIDE if path != "file:/victim"])
def test_files_of_an_index_are_restored_below_the_store(place: Path, name: str) -> None:
    """As a file's name, as a directory's, and as a name that is a path; `file:` is a name there."""
    task = Restoring(place)
    for directory in (
        DirIndex.of("", (task.file(name),)),
        DirIndex("", (), (), (DirIndex.of(name, (task.file("x"),)),), ()),
        DirIndex.of("", (task.file(f"{name}/x"),)),
    ):
        if name == "a/" and directory.directories:
            continue  # what follows a trailing slash makes it `a//x`, which has its own row
        with pytest.raises(UnsafePathError):
            task.restore(task.record(directory))


@pytest.mark.parametrize("blob", [path for path in OUTSIDE if path])
def test_blobs_of_an_index_are_got_of_the_store(place: Path, blob: str) -> None:
    """An id is a path below the store's directory, and no other."""
    task = Restoring(place)
    for path in (blob, f"{blob}/x", f"f/{blob}"):
        if path == "f/a/":
            continue
        with pytest.raises((UnsafePathError, DeletedBlobError)):
            task.restore(task.record(DirIndex.of("", (task.file("file", path),))))
        with pytest.raises((UnsafePathError, DeletedBlobError)):
            list(task.blobs.get(path))
        with pytest.raises(UnsafePathError):
            task.blobs.delete(path)


@pytest.mark.parametrize("blob", [*OUTSIDE, "expiring/f", "notes.txt", "f/notes.txt"])
def test_a_clean_up_removes_blobs_of_its_own_store(place: Path, blob: str) -> None:
    """What an index says was there before is not believed."""
    task = Restoring(place)
    for path in ("blobs/notes.txt", "blobs/f/notes.txt", "blobs/expiring/f"):
        (place / "blobs" / path).parent.mkdir(parents=True, exist_ok=True)
        (place / "blobs" / path).write_text("kept")
    others = task.blobs.put("job=job-1/task=task/store=other/1-0", "x", [b"another store's"])
    before = sorted((place / "blobs").rglob("*"))
    for gone in (blob, others):
        directory = DirIndex("", (), (task.file("file", gone),), (), ())
        task.clean_up(task.record(directory, previous=gone))
    assert set(before) <= {*(place / "blobs").rglob("*")}
    assert list(task.blobs.get(others)) == [b"another store's"]


@pytest.mark.parametrize("previous", [5, ["x"], {"a": 1}, True])
def test_an_index_before_is_named_by_text(place: Path, previous: object) -> None:
    """Whatever the JSON has there."""
    task = Restoring(place)
    index = json.loads(write_snapshot_index(SnapshotIndex(1, METADATA, DirIndex.of())))
    index["prev-snapshot-index-blob-id"] = previous
    marker = task.blobs.put("f", "index", [json.dumps(index).encode()])
    record = CheckpointV2(CheckpointId(1, 0), {}, {BLOB_STORE_FACTORY: {"store": marker}})
    task.clean_up(record)
    assert list(task.blobs.get(marker))


@pytest.mark.parametrize("where", ["blobs/blobs", "blobs/blobs/f", "blobs/expiring"])
def test_links_in_a_blob_store_are_not_followed(place: Path, where: str) -> None:
    """Neither to read and write nor to list and remove."""
    task = Restoring(place)
    blob = task.blobs.put("f", "x", [b"blob"])
    link = place / where
    link.rename(place / "away")
    link.symlink_to(place.parent / "victim")
    calls: list[Callable[[], object]] = [
        lambda: task.blobs.put("f", "x", [b"blob"]),
        lambda: task.blobs.put("g", "x", [b"blob"]),
        lambda: task.blobs.make_permanent("f"),
        lambda: task.blobs.make_permanent("x"),
        lambda: task.blobs.expiring("f"),
        lambda: task.blobs.list("f"),
        lambda: list(task.blobs.get(blob)),
        lambda: list(task.blobs.get("f/x")),
        lambda: task.blobs.delete(blob),
    ]
    assert [outcome(call) for call in calls].count("refused")


def outcome(call: Callable[[], object]) -> str:
    """Whether a call was refused; what it gives is nothing of the victim's."""
    try:
        found = call()
    except (UnsafePathError, DeletedBlobError):
        return "refused"
    assert "not to be touched" not in str(found)
    return "done"


@pytest.mark.parametrize("level", ["store", "store/task=task", "store/task=task/current"])
def test_links_on_a_tasks_disk_are_not_followed(place: Path, level: str) -> None:
    """A restore writes below the disk's directory alone, and discarding removes nothing else."""
    task = Restoring(place)
    link = place / "disk" / level
    link.parent.mkdir(parents=True)
    link.symlink_to(place.parent / "victim")
    with pytest.raises(UnsafePathError):
        task.restore(task.record(DirIndex.of("", (task.file("file"),))))
    with pytest.raises(UnsafePathError):
        task.stores.discard("store")
    with pytest.raises(UnsafePathError):
        task.stores.open("store")


# ----------------------------------------------------------------------------- the local disk


@pytest.mark.parametrize("name", [*OUTSIDE, "SEGMENTS", "../other/000001.seg", "000001.seg/x", 5])
def test_segments_are_called_as_a_store_calls_them(place: Path, name: object) -> None:
    """A list that was restored is data: what it names is removed once it was replaced."""
    stores = TaskStores(PosixDisk(place), "task", [segments("store")])
    path = place / stores.directory("store") / "SEGMENTS"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"segments": [[name, 0]], "next": 2}))
    with pytest.raises(StateError):
        stores.open("store")


def test_a_disk_writes_into_no_file_that_has_another_path(place: Path) -> None:
    """What was linked from a local checkpoint stays as it is."""
    disk = PosixDisk(place)
    disk.write("a", b"first")
    disk.link("a", "b")
    disk.create("b", [b"second"])
    disk.link("a", "c")
    disk.write("c", b"third")
    assert (disk.read("a"), disk.read("b"), disk.read("c")) == (b"first", b"second", b"third")


@pytest.mark.parametrize(
    "call",
    [
        lambda disk: disk.read("link/x"), lambda disk: list(disk.chunks("link/x")),
        lambda disk: disk.write("link/x", b""), lambda disk: disk.create("link/x", []),
        lambda disk: disk.names("link"), lambda disk: disk.files("link"),
        lambda disk: disk.metadata("link/x", 1), lambda disk: disk.remove("link"),
        lambda disk: disk.remove("link/x"), lambda disk: disk.link("link/x", "y"),
        lambda disk: disk.link("file", "link/y"), lambda disk: disk.path("link"),
        lambda disk: disk.link_tree("link", "y", lambda _: True),
        lambda disk: disk.link_tree("directory", "link", lambda _: True),
    ],
)  # fmt: skip
def test_no_link_on_a_disk_is_followed(place: Path, call: Callable[[PosixDisk], object]) -> None:
    """Whatever is done there."""
    disk = PosixDisk(place)
    disk.write("file", b"file")
    disk.write("directory/file", b"file")
    (place / "link").symlink_to(place.parent / "victim")
    with pytest.raises(UnsafePathError):
        call(disk)


# ----------------------------------------------------------------------------- logs


@pytest.mark.parametrize(
    "partition",
    [
        SystemStreamPartition("kafka", "../../../victim", 0),
        SystemStreamPartition("a//b", "log", 0),
        SystemStreamPartition("kafka", "a/../../../../victim", 0),
        SystemStreamPartition("kafka", "log\0", 0),
        SystemStreamPartition("kafka", "log/", 0),
    ],
)
def test_partitions_of_changelogs_lead_nowhere_else(
    place: Path, partition: SystemStreamPartition
) -> None:
    """A marker names its partition, and a marker is data."""
    with pytest.raises(UnsafePathError):
        FileChangelogs(place / "logs").open(partition)


def test_links_in_changelogs_are_not_followed(place: Path) -> None:
    """Neither as a partition nor as a segment."""
    partition = SystemStreamPartition("kafka", "log", 0)
    log = FileChangelogs(place).open(partition)
    log.append(b"key", b"value")
    log.flush()
    log.close()
    (segment,) = place.rglob("*.log")
    segment.rename(place / "away")
    segment.symlink_to(place.parent / "victim/x")
    with pytest.raises(UnsafePathError):
        FileChangelogs(place).open(partition)
    segment.unlink()
    segment.hardlink_to(place.parent / "victim/x")
    victim = (place.parent / "victim/x").read_bytes()
    log = FileChangelogs(place).open(partition)  # which writes nothing
    log.append(b"key", b"value")
    with pytest.raises(UnsafePathError, match="linked from elsewhere"):
        log.flush()
    assert (place.parent / "victim/x").read_bytes() == victim
    segment.unlink()
    segment.parent.rmdir()
    segment.parent.symlink_to(place.parent / "victim")
    with pytest.raises(UnsafePathError):
        FileChangelogs(place).open(partition)


def test_links_in_a_checkpoint_log_are_not_followed(place: Path) -> None:
    """A record is a file of the log, or none."""
    log = FileCheckpointLog(Directory(place), keep=2)
    log.append(b"key", b"message")
    (place / f"{7:020}-link.record").symlink_to(place.parent / "victim/x")
    with pytest.raises(UnsafePathError):
        list(log.read())
    with pytest.raises(UnsafePathError):
        log.compact()


@pytest.mark.parametrize("name", ["²-x.record", "x.record", "-x.record", f"{'9' * 5000}"[:200]])
def test_files_that_are_no_records_are_named(place: Path, name: str) -> None:
    """And not read, nor removed."""
    log = FileCheckpointLog(Directory(place))
    (place / f"{name.removesuffix('.record')}.record").write_bytes(b"")
    with pytest.raises(CommitError, match="not the name of a record"):
        list(log.read())
    with pytest.raises(CommitError, match="not the name of a record"):
        log.compact()
