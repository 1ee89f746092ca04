"""Blobs: only what is new is sent, what nobody needs goes, what is gone is refused."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import (
    CheckpointRecordError,
    CommitError,
    DeletedBlobError,
    MissingFileError,
    UnsafePathError,
)
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.runtime.commit import (
    BlobStoreBackend,
    FileSystemBlobStore,
    PersistentStore,
    StoreSpec,
    TaskContext,
    TaskStores,
)
from statelake.state_core.runtime.commit.backends.blob_backend import garbage, read_index
from statelake.state_core.runtime.commit.backends.blob_store import folder_of
from statelake.state_core.runtime.commit.records.records import (
    BLOB_STORE_FACTORY,
    CheckpointId,
    CheckpointV2,
)
from statelake.state_core.runtime.commit.records.snapshot_index import (
    DirIndex,
    FileBlob,
    FileIndex,
    FileMetadata,
    SnapshotIndex,
    SnapshotMetadata,
    present_files,
    reachable_blobs,
    read_snapshot_index,
    removed_blobs,
    successor,
    write_snapshot_index,
)
from statelake.state_core.runtime.commit.stores.local_disk import join
from tests.support.jobs.commit_tasks import Job
from tests.support.jobs.commit_world import Pool
from tests.support.jobs.doubles import MemoryBlobStore, MemoryDisk

BLOBS = {"stores.store.backup.factories": "blob_store"}


class Ticking:
    """A clock that is set by hand."""

    now = 1_700_000_000_000

    def __call__(self) -> int:
        """Milliseconds."""
        return self.now


@pytest.fixture
def clock() -> Ticking:
    """A clock."""
    return Ticking()


@pytest.fixture(params=["memory", "files", "remote files"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path, clock: Ticking) -> FileSystemBlobStore:
    """Each blob store, whose folders expire after 1000 ms."""
    if request.param == "memory":
        return MemoryBlobStore(clock, ttl=1000)
    directory = Directory("mock:///blobs" if "remote" in request.param else tmp_path / "blobs")
    return FileSystemBlobStore(directory, clock, ttl=1000)


class Files(PersistentStore):
    """A store whose files a test writes by hand."""

    def apply(self, key: bytes, value: bytes | None) -> None:
        """It has no keys."""

    def get(self, key: bytes) -> bytes | None:
        """It has no keys."""
        return None

    def items(self) -> list[tuple[bytes, bytes]]:
        """It has no keys."""
        return []

    def __init__(self, disk: MemoryDisk, path: str) -> None:
        super().__init__()
        self.disk, self.path = disk, path

    def checkpoint(self, target: str) -> None:
        """All files."""
        self.disk.link_tree(self.path, target, lambda _: True)


class Uploads:
    """Uploads of files, one after another."""

    def __init__(
        self, blobs: FileSystemBlobStore, keep: int = 1, *, immutable: bool = False
    ) -> None:
        self.disk = MemoryDisk()
        spec = StoreSpec("store", Files, immutable=lambda _: immutable)  # type: ignore[arg-type]
        pool = Pool(random.Random(1))
        stores = TaskStores(self.disk, "task", [spec])
        self.context = TaskContext("job", "1", "task", stores, pool, pool.wait)
        self.blobs = blobs
        self.backend = BlobStoreBackend(blobs, keep)
        self.manager = self.backend.backup_manager(self.context, ["store"])
        self.manager.init(None)
        self.number = 0

    def commit(self, files: dict[str, bytes], *, clean: bool = True) -> CheckpointV2:
        """Upload a directory with just these files."""
        self.number += 1
        identifier = CheckpointId(self.number, 0)
        current = self.context.stores.directory("store")
        self.disk.remove(current)
        for name, data in files.items():
            self.disk.write(join(current, name), data)
        self.context.stores.checkpoint(identifier)
        uploading = self.manager.upload(identifier, self.manager.snapshot(identifier))
        self.context.wait(uploading, 1)
        record = CheckpointV2(identifier, {}, {BLOB_STORE_FACTORY: uploading.result()})
        if clean:
            cleaning = self.manager.clean_up(identifier, uploading.result())
            self.context.wait(cleaning, 1)
            cleaning.result()
        return record

    def index(self, record: CheckpointV2) -> SnapshotIndex:
        """What was uploaded."""
        return read_index(self.blobs, record.markers[BLOB_STORE_FACTORY]["store"])

    def restored(self, record: CheckpointV2) -> dict[str, bytes]:
        """The files that a restore makes."""
        disk = MemoryDisk()
        stores = TaskStores(disk, "task", self.context.stores.specs.values())
        context = TaskContext("job", "1", "task", stores, self.context.pool)
        manager = self.backend.restore_manager(context, ["store"])
        manager.init(record)
        manager.restore()
        return {
            path: disk.read(join(stores.directory("store"), path))
            for path, _ in disk.files(stores.directory("store"))
        }


paths = st.sampled_from(["a", "b.sst", "x/a", "x/b", "x/y/a", "z/a"])
folders = st.dictionaries(paths, st.binary(max_size=4), max_size=6)


@given(st.lists(folders, min_size=1, max_size=6), st.integers(1, 3))
def test_any_row_of_directories_comes_back(rows: list[dict[str, bytes]], keep: int) -> None:
    """With files that come, go, change and move between directories; and nothing else stays."""
    uploads = Uploads(MemoryBlobStore(), keep)
    records = []
    for files in rows:
        records.append(uploads.commit(files))
        assert uploads.restored(records[-1]) == files
    for record, files in list(zip(records, rows, strict=True))[-keep:]:
        assert uploads.restored(record) == files
    for record in records[:-keep]:
        with pytest.raises(DeletedBlobError):
            uploads.restored(record)
    kept = [uploads.index(record) for record in records[-keep:]]
    blobs = {blob for record in kept for blob in reachable_blobs(record.directory)}
    blobs |= {record.markers[BLOB_STORE_FACTORY]["store"] for record in records[-keep:]}
    assert set(uploads.blobs.list("job=job-1")) == blobs


def test_only_new_files_are_sent(blobs: FileSystemBlobStore) -> None:
    """Others keep their blobs; what is gone is listed as removed, directories too."""
    uploads = Uploads(blobs)
    one = uploads.commit({"1.sst": b"one", "2.sst": b"two", "d/x": b"x", "e/y": b"y"})
    before = dict(present_files(uploads.index(one).directory))
    two = uploads.commit({"2.sst": b"two", "3.sst": b"three", "d/x": b"z"})
    index = uploads.index(two)
    after = dict(present_files(index.directory))
    assert after["2.sst"] == before["2.sst"]
    assert [file.name for file in index.directory.files_removed] == ["1.sst"]
    assert [directory.name for directory in index.directory.directories_removed] == ["e"]
    assert [file.name for file in index.directory.directories[0].files_removed] == ["x"]
    gone = {before[name].blobs[0].id for name in ("1.sst", "d/x", "e/y")}
    assert set(removed_blobs(index.directory)) == gone
    assert index.previous == one.markers[BLOB_STORE_FACTORY]["store"]
    measures = uploads.context.measures
    assert (measures["files_sent"], measures["files_saved"]) == (6, 1)
    assert (measures["bytes_sent"], measures["bytes_saved"]) == (14, 3)


def test_a_file_of_the_same_name_and_size_is_looked_into(blobs: FileSystemBlobStore) -> None:
    """As one that was made anew by a restore from a changelog is another."""
    uploads = Uploads(blobs, immutable=True)
    uploads.commit({"1.sst": b"one"})
    again = Uploads(blobs, immutable=True)
    again.manager._previous = uploads.manager._previous  # type: ignore[attr-defined]
    again.number = 1
    assert again.restored(again.commit({"1.sst": b"two"})) == {"1.sst": b"two"}
    assert again.context.measures["files_sent"] == 1


def test_a_file_that_never_changes_is_read_once(blobs: FileSystemBlobStore) -> None:
    """In one process, for its checksum."""
    uploads = Uploads(blobs, immutable=True)
    for _ in range(3):
        uploads.commit({"1.sst": b"one"})
    uploads.disk.chunks = None  # type: ignore[method-assign, assignment]
    record = uploads.commit({"1.sst": b"one"})
    assert uploads.context.measures["files_sent"] == 1
    assert [name for name, _ in present_files(uploads.index(record).directory)] == ["1.sst"]


def test_a_percent_of_the_keys_sends_a_twentieth_of_the_bytes(tmp_path: Path) -> None:
    """Before a compaction, as the issue asks for."""
    with Job(tmp_path, BLOBS) as job:
        task = job.task()
        task.put(**{f"key{number}": "x" * 100 for number in range(20_000)})
        task.commit()
        first = task.context.measures["bytes_sent"]
        task.put(**{f"key{number}": "y" * 100 for number in range(0, 20_000, 100)})
        task.commit()
        second = task.context.measures["bytes_sent"] - first
        assert first > 20_000 * 100
        assert second < first / 20
        assert len(job.task("elsewhere").content()) == 20_000


def test_what_expires_and_what_does_not(blobs: FileSystemBlobStore, clock: Ticking) -> None:
    """An upload expires until its record is cleaned up after; what is permanent stays so."""
    uploads = Uploads(blobs)
    first = uploads.commit({"a": b"1"})
    assert blobs.expiring("job=job-1") == {}
    uploads.commit({"a": b"2"}, clean=False)
    assert list(blobs.expiring("job=job-1").values()) == [clock.now + 1000]
    # a crash: the next run goes on from the first record
    for later, left in ((999, 3), (1001, 0)):
        clock.now += later
        again = Uploads(blobs)
        again.context = TaskContext(
            "job", "1", "task", again.context.stores, again.context.pool, again.context.wait,
            lambda: clock.now * 1_000_000,
        )  # fmt: skip
        manager = again.backend.backup_manager(again.context, ["store"])
        manager.init(first)
        for _ in range(2):
            cleaning = manager.clean_up(first.id, first.markers[BLOB_STORE_FACTORY])
            again.context.wait(cleaning, 1)
            cleaning.result()
        useless = [blob for blob in blobs.list("job=job-1") if "/2-0/" in blob]
        assert len(useless) == (2 if left else 0)
        assert uploads.restored(first) == {"a": b"1"}
    assert blobs.expiring("job=job-1") == {}


def test_what_can_not_be_read_is_not_taken_for_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its blobs would be removed while they are uploaded."""
    store = FileSystemBlobStore(Directory(tmp_path))
    store.put("job=a/1", "file", [b"x"])

    def refused(directory: Directory, path: str) -> bytes:
        raise MissingFileError("permission denied", place=directory.full(path))

    monkeypatch.setattr(Directory, "read", refused)
    with pytest.raises(MissingFileError, match="permission denied"):
        store.expiring("job=a")


def test_deleted_blobs_are_refused_with_a_reason(blobs: FileSystemBlobStore) -> None:
    """An index or a file that retention removed: nothing is restored instead."""
    uploads = Uploads(blobs)
    first = uploads.commit({"a": b"1"})
    second = uploads.commit({"a": b"2"})
    with pytest.raises(DeletedBlobError, match="retention removed it after a later commit"):
        uploads.restored(first)
    file = dict(present_files(uploads.index(second).directory))["a"]
    blobs.delete(file.blobs[0].id)
    with pytest.raises(DeletedBlobError, match=r"or from another backend"):
        uploads.restored(second)


def test_a_damaged_blob_is_refused(tmp_path: Path) -> None:
    """By its checksum, and by its size."""
    directory = Directory(tmp_path)
    uploads = Uploads(FileSystemBlobStore(directory))
    record = uploads.commit({"a": b"hello"})
    blob = dict(present_files(uploads.index(record).directory))["a"].blobs[0].id
    for damage in (b"hallo", b"hell", b""):
        directory.write(f"blobs/{blob}", damage)
        with pytest.raises(CommitError, match="a is not what was uploaded"):
            uploads.restored(record)


def test_a_file_in_several_blobs_is_put_together(blobs: FileSystemBlobStore) -> None:
    """In the order of their offsets, as Samza's index may have it; a gap is refused."""
    uploads = Uploads(blobs)
    record = uploads.commit({"a": b"hello"})
    index = uploads.index(record)
    (file,) = index.directory.files
    parts = (
        FileBlob(blobs.put("f", "2", [b"lo"]), 3),
        FileBlob(blobs.put("f", "1", [b"hel"]), 0),
    )

    def changed(parts: tuple[FileBlob, ...]) -> CheckpointV2:
        other = FileIndex("a", parts, file.metadata, file.checksum)
        made = SnapshotIndex(index.created, index.metadata, DirIndex.of("", (other,)))
        marker = blobs.put("f", "index", [write_snapshot_index(made)])
        return CheckpointV2(record.id, {}, {BLOB_STORE_FACTORY: {"store": marker}})

    assert uploads.restored(changed(parts)) == {"a": b"hello"}
    with pytest.raises(CommitError, match="its blobs have a gap at 0"):
        uploads.restored(changed(parts[:1]))


def changed_index(uploads: Uploads, record: CheckpointV2, **fields: Any) -> CheckpointV2:
    """A record whose index has other fields, in the place of the real one."""
    marker = record.markers[BLOB_STORE_FACTORY]["store"]
    data = write_snapshot_index(msgspec.structs.replace(uploads.index(record), **fields))
    directory = uploads.blobs.directory  # type: ignore[attr-defined]
    directory.write(f"blobs/{marker}", data)
    return record


def cleaned_by_another(uploads: Uploads, record: CheckpointV2) -> None:
    """What the next process does after a record."""
    manager = uploads.backend.backup_manager(uploads.context, ["store"])
    manager.init(record)
    cleaning = manager.clean_up(record.id, record.markers[BLOB_STORE_FACTORY])
    uploads.context.wait(cleaning, 1)
    cleaning.result()


@pytest.mark.parametrize(
    "field",
    [
        {"checkpoint_id": "9-0"},
        {"job_name": "other"},
        {"job_id": "2"},
        {"task_name": "other"},
        {"store_name": "other"},
    ],
    ids=lambda field: next(iter(field)),
)
def test_the_index_of_something_else_is_refused(field: dict[str, Any], tmp_path: Path) -> None:
    """By a restore, and by a clean-up, which would remove what it does not name."""
    uploads = Uploads(FileSystemBlobStore(Directory(tmp_path)))
    record = uploads.commit({"a": b"1"})
    metadata = msgspec.structs.replace(uploads.index(record).metadata, **field)
    changed_index(uploads, record, metadata=metadata, directory=DirIndex.of())
    before = uploads.blobs.list("job=job-1")
    for refused in (uploads.restored, partial(cleaned_by_another, uploads)):
        with pytest.raises(CheckpointRecordError, match="the snapshot index is that of"):
            refused(record)
    assert uploads.blobs.list("job=job-1") == before


def test_an_index_that_names_a_blob_twice_is_refused(tmp_path: Path) -> None:
    """A restore would write more than is stored, as often as the index says."""
    uploads = Uploads(FileSystemBlobStore(Directory(tmp_path)))
    record = uploads.commit({"a": b"1"})
    (file,) = uploads.index(record).directory.files
    twice = DirIndex.of("", (file, msgspec.structs.replace(file, name="b")))
    with pytest.raises(CheckpointRecordError, match="names a blob twice"):
        uploads.restored(changed_index(uploads, record, directory=twice))


def test_what_an_index_needs_is_not_removed_though_it_says_so(tmp_path: Path) -> None:
    """Nor what the snapshot before needs, if that is kept."""
    uploads = Uploads(FileSystemBlobStore(Directory(tmp_path)), keep=2)
    first = uploads.commit({"a": b"1", "b": b"1"})
    second = uploads.commit({"a": b"2", "b": b"1"})
    for record in (first, second):
        directory = uploads.index(record).directory
        both = [*directory.files, *uploads.index(first).directory.files]
        changed_index(
            uploads, record, directory=msgspec.structs.replace(directory, files_removed=tuple(both))
        )
    cleaned_by_another(uploads, second)
    assert uploads.restored(first) == {"a": b"1", "b": b"1"}
    assert uploads.restored(second) == {"a": b"2", "b": b"1"}


def test_nothing_is_removed_while_a_kept_index_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Which blobs it needs is not known."""
    uploads = Uploads(FileSystemBlobStore(Directory(tmp_path)), keep=2)
    first = uploads.commit({"a": b"1"})
    second = uploads.commit({"a": b"2"})
    marker = first.markers[BLOB_STORE_FACTORY]["store"]
    (tmp_path / "blobs" / marker).write_bytes(b"{")
    before = uploads.blobs.list("job=job-1")
    cleaned_by_another(uploads, second)
    assert uploads.blobs.list("job=job-1") == before
    assert "nothing is removed" in caplog.text
    uploads.commit({"a": b"3"})
    third = uploads.commit({"a": b"4"})
    assert len(uploads.blobs.list("job=job-1")) < len(before) + 4
    assert uploads.restored(third) == {"a": b"4"}


def test_an_index_is_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken into memory, and anybody can have written it; a larger one is not committed."""
    uploads = Uploads(MemoryBlobStore())
    record = uploads.commit({"a": b"1"})
    monkeypatch.setattr(
        "statelake.state_core.runtime.commit.backends.blob_backend.INDEX_BYTES", 300
    )
    with pytest.raises(CheckpointRecordError, match="a snapshot index of more than 300 bytes"):
        uploads.restored(record)
    with pytest.raises(CommitError, match=r"index of \d+ bytes, and a restore reads 300"):
        uploads.commit({"a": b"2"})


@pytest.mark.parametrize("number", [b"1e999", b"1e400", b"-Infinity", b"NaN"])
def test_a_number_that_is_none_is_refused(number: bytes) -> None:
    """Python's JSON has numbers that no integer is."""
    uploads = Uploads(MemoryBlobStore())
    data = write_snapshot_index(uploads.index(uploads.commit({"a": b"1"})))
    broken = data.replace(b'"size":1', b'"size":' + number)
    assert broken != data
    with pytest.raises(CheckpointRecordError, match=r"\.size: .*, and `int` is wanted"):
        read_snapshot_index(broken)


@pytest.mark.parametrize("name", ["..", "../../x", "a/../../b", "/etc/x", "a\\b", "", "x\0"])
def test_names_in_an_index_lead_nowhere_else(name: str, blobs: FileSystemBlobStore) -> None:
    """An index is data."""
    file = FileIndex(
        name,
        (FileBlob(blobs.put("f", "x", [b""]), 0),),
        FileMetadata(1, 1, 0, "u", "g", "rw-r--r--"),
        0,
    )
    metadata = SnapshotMetadata("1-0", "job", "1", "task", "store")
    index = SnapshotIndex(1, metadata, DirIndex.of("", (file,)))
    marker = blobs.put("f", "index", [write_snapshot_index(index)])
    record = CheckpointV2(CheckpointId(1, 0), {}, {BLOB_STORE_FACTORY: {"store": marker}})
    with pytest.raises(UnsafePathError):
        Uploads(blobs).restored(record)


@pytest.mark.parametrize("marker", ["../../secret", "/etc/passwd", "a//b"])
def test_markers_lead_nowhere_else(marker: str, tmp_path: Path) -> None:
    """A marker is data too."""
    (tmp_path / "secret").write_text("x")
    store = FileSystemBlobStore(Directory(tmp_path / "a" / "b"))
    with pytest.raises(UnsafePathError):
        list(store.get(marker))


def test_what_is_garbage() -> None:
    """What nobody needs, but for what an upload that has not expired may still name."""
    blobs = ["f/1", "f/2", "g/1", "h/1"]
    assert garbage(blobs, ["f/1"], {"g": 10, "h": 9}, now=9) == ["f/2", "h/1"]
    assert garbage(blobs, blobs, {}, now=9) == []


@given(folders, folders)
def test_an_index_says_what_is_there_and_what_is_gone(
    old: dict[str, bytes], new: dict[str, bytes]
) -> None:
    """And comes back from its JSON."""
    size = FileMetadata(1, 1, 1, "u", "g", "rw-r--r--")

    def indexed(files: dict[str, bytes]) -> dict[str, FileIndex]:
        return {
            path: FileIndex(
                path.rpartition("/")[2], (FileBlob(f"{path}={data.hex()}", 0),), size, 0
            )
            for path, data in files.items()
        }

    before = successor(indexed(old), DirIndex.of())
    after = successor(indexed(new), before)
    assert dict(present_files(after)) == indexed(new)
    gone = {f"{path}={data.hex()}" for path, data in old.items() if new.get(path) != data}
    assert set(removed_blobs(after)) == gone
    metadata = SnapshotMetadata("1-2", "job", "1", "Partition ü", "store")
    index = SnapshotIndex(1, metadata, after, "before")
    assert read_snapshot_index(write_snapshot_index(index)) == index


def test_snapshots_that_are_kept(tmp_path: Path) -> None:
    """The last three, through restarts; the fourth is gone."""
    with Job(tmp_path, BLOBS, keep=3) as job:
        records = []
        for number in range(6):
            task = job.task("host" if number % 2 else "elsewhere")
            task.put(a=str(number))
            task.commit()
            records.append(task.started.commits.last)
        for number, record in enumerate(records):
            assert record is not None
            marker = record.markers[BLOB_STORE_FACTORY]["store"]
            there = marker in job.blobs.list("job=job-1")
            assert there is (number >= 3)
        folders = {folder_of(blob) for blob in job.blobs.list("job=job-1")}
        assert len(folders) >= 3


def test_nothing_to_keep_is_refused() -> None:
    """The last snapshot is what the log names."""
    with pytest.raises(CommitError, match="keep at least 1"):
        BlobStoreBackend(MemoryBlobStore(), keep=0)


def test_a_blob_store_that_does_not_keep_is_found_out(tmp_path: Path) -> None:
    """By the validation of resources, before a task runs."""
    (tmp_path / "file").write_text("not a directory")
    store = FileSystemBlobStore(Directory(tmp_path / "file"))
    with pytest.raises(CommitError, match="the blob store can't be used"):
        BlobStoreBackend(store).validate_resources()
