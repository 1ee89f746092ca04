"""A real S3 API: files by name, blobs and checkpoint logs, savepoints written and checked."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from statelake import NewKeyedState, NewOperator, open_snapshot, write_snapshot
from statelake.state_core.errors import (
    ChangedFileError,
    DeletedBlobError,
    MissingFileError,
    SnapshotError,
    TruncatedError,
)
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.rewriting.recompression import recompress_snapshot
from statelake.state_core.integrity import (
    FaultKind,
    IntegrityReport,
    check_snapshot,
    salvage_snapshot,
)
from statelake.state_core.runtime.commit import (
    BlobStoreBackend,
    CheckpointId,
    CheckpointManager,
    CheckpointV2,
    FileCheckpointLog,
    FileSystemBlobStore,
)
from tests.integration.s3.proxy import KEY, SECRET, S3Proxy
from tests.state_core.runtime.commit.test_backend_contract import (  # noqa: F401 - they are run here too
    World,
    test_a_restore_is_interrupted,
    test_a_restore_is_interrupted_in_the_middle,
    test_a_restore_replaces_what_is_there,
    test_a_snapshot_is_what_was_flushed,
    test_backups_hold_their_order,
    test_cleaning_up_again_changes_nothing,
    test_markers_of_stores_that_are_others_are_left_alone,
    test_resources_are_made_any_number_of_times,
    test_restores_hold_their_order,
    test_without_a_checkpoint_stores_start_empty,
)
from tests.support.jobs.commit_tasks import GROUPER, INPUT
from tests.support.lakes import WORDS, entries, golden
from tests.support.savepoints.damaged import damaged

pytestmark = [pytest.mark.s3, pytest.mark.thinned(2)]

WRITERS, APPENDS = 6, 8


@pytest.fixture
def location(s3: S3Proxy) -> str:
    """A directory of its own."""
    return s3.location(f"tests/{uuid.uuid4().hex[:12]}")


@pytest.fixture
def directory(location: str) -> Directory:
    """The same."""
    return Directory(location)


@pytest.fixture
def world(directory: Directory, tmp_path: Path) -> World:
    """The contract's: stores whose files go to S3."""
    made = World("memory", "memory", tmp_path)
    made.factory = BlobStoreBackend(FileSystemBlobStore(directory), keep=2)
    return made


def put(source: Path, directory: Directory) -> None:
    """Copy files from here."""
    for path in source.rglob("*"):
        if path.is_file():
            directory.write(path.relative_to(source).as_posix(), path.read_bytes())


# ------------------------------------------------------------------------------- files


@pytest.mark.full
def test_a_directory(directory: Directory) -> None:
    """Written, listed, read from anywhere, removed; what is not there is said to be missing."""
    assert directory.names() == []
    data = np.random.default_rng(1).bytes(11 << 20)  # more than a part of an upload
    directory.write("a/b", data)
    directory.write("a/c", b"")
    assert directory.names() == ["a"]
    assert directory.files_below() == [("a/b", len(data)), ("a/c", 0)]
    assert directory.is_file("a/b")
    assert not directory.is_file("a")
    assert directory.read("a/b") == data
    assert directory.read("a/c") == b""
    assert directory.modified("a/b") > 1_700_000_000
    out = np.empty(100, np.uint8)
    directory.read_into("a/b", 1 << 20, out)
    assert out.tobytes() == data[1 << 20 :][:100]
    with pytest.raises(TruncatedError):
        directory.read_into("a/b", len(data) - 1, out)
    for _ in range(2):
        directory.delete("a/b")
    with pytest.raises(MissingFileError):
        directory.read("a/b")
    for _ in range(2):
        directory.delete_tree("a")
    assert directory.files_below() == []


@pytest.mark.parametrize("size", [0, 100, (1 << 20) - 1])
def test_a_file_that_gets_shorter_while_it_is_read(directory: Directory, size: int) -> None:
    """Said with its name: what is missing is neither zeros nor what was in memory."""
    directory.write("a/b", bytes([1]) * (1 << 20))
    source = directory.source("a/b")
    directory.write("a/b", bytes([1]) * size)
    with pytest.raises(SnapshotError, match=r"a/b: (it has changed|can't be read|no such)"):
        source.read_all()


def test_a_file_that_is_replaced_by_one_as_long(directory: Directory) -> None:
    """It is known by its ETag, in HDFS by when it was written."""
    directory.write("a/b", b"1" * 100)
    source = directory.source("a/b")
    source.refuse_change()
    time.sleep(0.01)
    directory.write("a/b", b"2" * 100)
    with pytest.raises(ChangedFileError, match="a/b: it has changed"):
        source.refuse_change()


def test_a_directory_is_made_again_of_its_location(directory: Directory) -> None:
    """With its options, also below it and above it."""
    directory.write("a/b", b"1")
    assert Directory(directory.child("a").location).read("b") == b"1"
    assert Directory(directory.child("a/..").location).read("a/b") == b"1"


def test_credentials_in_a_location(
    s3: S3Proxy, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go on to what is below, and never into what is shown."""
    directory.write("a/b", b"1")
    path = directory.root.partition("/")[2]
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    given = Directory(s3.location(path, f"{KEY}:{SECRET}@"))
    assert Directory(given.child("a").location).read("b") == b"1"
    assert SECRET not in f"{given.uri} {given!r} {given.full('a')}"


def test_what_can_not_be_written_is_said(s3: S3Proxy) -> None:
    """Another secret: an error of ours that names the file."""
    wrong = Directory(s3.location("x", f"{KEY}:another@"))
    with pytest.raises(SnapshotError, match="can't be written"):
        wrong.write("a", b"1")


# ------------------------------------------------------------------------------- commits


def test_blobs(directory: Directory) -> None:
    """In pieces, in folders that expire until they are permanent; gone is gone."""
    store = FileSystemBlobStore(directory, clock=lambda: 1000, ttl=500)
    data = np.random.default_rng(2).bytes(3 << 20)
    blob = store.put("job=a/1", "file.sst", [data[: 1 << 20], data[1 << 20 :]])
    other = store.put("job=a/1", "file.sst", [b""])
    assert b"".join(store.get(blob)) == data
    assert b"".join(store.get(other)) == b""
    assert sorted(store.list("job=a")) == sorted([blob, other])
    assert store.list("job=") == []
    assert store.expiring("job=a") == {"job=a/1": 1500}
    for _ in range(2):
        store.make_permanent("job=a/1")
        store.delete(other)
    assert FileSystemBlobStore(directory).expiring("job=a") == {}
    assert store.list("job=a") == [blob]
    with pytest.raises(DeletedBlobError):
        list(store.get(other))


def test_concurrent_appends_lose_nothing(directory: Directory) -> None:
    """Of several processes' logs, as of several threads of one; each one's are in its order."""

    def append(number: int) -> None:
        log = shared if number % 2 else FileCheckpointLog(directory, keep=10_000)
        for count in range(APPENDS):
            log.append(b"%d" % number, b"%d" % count)

    shared = FileCheckpointLog(directory, keep=10_000)
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(append, range(WRITERS)))
    records = [(record.key, record.message) for record in FileCheckpointLog(directory).read()]
    for number in range(WRITERS):
        written = [message for key, message in records if key == b"%d" % number]
        assert written == [b"%d" % count for count in range(APPENDS)]
    assert len(records) == WRITERS * APPENDS


@pytest.mark.full
def test_a_log_is_compacted_while_others_append(directory: Directory) -> None:
    """The last record of every task is there, whatever was removed meanwhile."""

    def commit(task: int) -> None:
        manager = CheckpointManager(FileCheckpointLog(directory, keep=3), GROUPER)
        for number in range(1, APPENDS + 1):
            manager.write(f"task {task}", CheckpointV2(CheckpointId(number, 0), {INPUT: "1"}))

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(commit, range(WRITERS)))
    reading = CheckpointManager(FileCheckpointLog(directory), GROUPER)
    last = [reading.read_last(f"task {task}") for task in range(WRITERS)]
    assert [one.id for one in last if one is not None] == [CheckpointId(APPENDS, 0)] * WRITERS
    assert len(directory.names()) < WRITERS * APPENDS


# ------------------------------------------------------------------------------- savepoints


def test_a_savepoint_is_read_checked_and_recompressed(directory: Directory) -> None:
    """Where it lies makes no difference."""
    put(WORDS, directory.child("savepoint"))
    source = directory.child("savepoint").location
    assert entries(source) == entries(WORDS)
    report = check_snapshot(source)
    assert report.sound
    assert report.checked == check_snapshot(WORDS).checked
    target = directory.child("snappy").location
    assert recompress_snapshot(source, target, "none").path == target
    assert open_snapshot(target).compression == "none"
    assert entries(target) == entries(WORDS)


def test_a_damaged_savepoint_is_salvaged(directory: Directory, tmp_path: Path) -> None:
    """From S3 to S3, with the same outcome as on a disk."""
    bad = damaged(golden("wordcount-hashmap-canonical-p2-m128-flink1.20.0"), tmp_path / "damaged")
    bad.change_group(0, bad.groups(0)[4], lambda data: data[:-2])
    put(bad.path, directory.child("damaged"))
    source, target = (directory.child(name).location for name in ("damaged", "salvaged"))
    assert problems(check_snapshot(source)) == problems(check_snapshot(bad.path)) != []
    expected = salvage_snapshot(bad.path, tmp_path / "salvaged")
    done = salvage_snapshot(source, target)
    assert (done.path, done.lost, done.entries) == (target, expected.lost, expected.entries)
    assert entries(target) == entries(tmp_path / "salvaged")
    assert check_snapshot(target).sound


def problems(report: IntegrityReport) -> list[tuple[FaultKind, str, str]]:
    """What is wrong, wherever the snapshot lies."""
    return [(fault.kind, str(fault.where), fault.problem) for fault in report.faults]


def test_a_target_that_failed_can_be_used_again(directory: Directory) -> None:
    """What was written of it is removed, so it is empty."""
    put(WORDS, directory.child("savepoint"))
    state = next(name for name in directory.names("savepoint") if name != "_metadata")
    data = directory.read(f"savepoint/{state}")
    directory.write(f"savepoint/{state}", data[: len(data) // 2])
    source, target = (directory.child(name).location for name in ("savepoint", "target"))
    with pytest.raises(SnapshotError):
        recompress_snapshot(source, target, "none")
    assert directory.child("target").names() == []
    directory.write(f"savepoint/{state}", data)
    recompress_snapshot(source, target, "none")
    assert entries(target) == entries(WORDS)


def test_rows_become_a_savepoint(directory: Directory, tmp_path: Path) -> None:
    """Written to S3 as to a disk."""
    keys = pa.array(range(1000), pa.int64())

    def operators() -> list[NewOperator]:
        rows = pa.table({"key": keys, "value": pc.multiply(keys, 3)})
        return [
            NewOperator(
                "op", "Long", (NewKeyedState("count", rows, value="Long"),), max_parallelism=128
            )
        ]

    target = directory.child("new").location
    written = write_snapshot(target, operators(), compression="snappy")
    write_snapshot(tmp_path / "new", operators(), compression="snappy")
    assert written.path == target
    assert entries(written.path) == entries(tmp_path / "new")
    assert check_snapshot(target).sound
