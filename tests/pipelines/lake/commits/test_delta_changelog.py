"""Changelogs in Delta tables; their contract is `test_changelogs`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from deltalake import DeltaTable

from statelake.pipelines.lake.commits import changelog as module
from statelake.pipelines.lake.commits.changelog import DeltaChangelogs
from statelake.pipelines.lake.commits.partition_files import PartitionFiles
from statelake.state_core.commit.backends.changelog import Change, Changelog
from statelake.state_core.commit.records.records import SystemStreamPartition
from statelake.state_core.errors import CommitError
from statelake.state_core.files.filesystem import Directory

TABLE = "orders/changelogs/store-changelog"


def opened(tmp_path: Path, partition: int = 0) -> Changelog:
    """A partition, as a writer has it that starts now."""
    changelogs = DeltaChangelogs(Directory(tmp_path), "orders")
    return changelogs.open(SystemStreamPartition("kafka", "store-changelog", partition))


def flushed(log: Changelog, *keys: bytes) -> None:
    """Put each key, one commit a key."""
    for key in keys:
        log.append(key, b"x" * 100)
        log.flush()


def files(tmp_path: Path) -> list[Path]:
    """What lies in the table's directories."""
    return sorted((tmp_path / TABLE / "_data").rglob("*.parquet"))


def test_tasks_share_a_table(tmp_path: Path) -> None:
    """Their partitions are theirs; anyone can read all of it with SQL."""
    logs = [opened(tmp_path, partition) for partition in range(3)]
    for number, log in enumerate(logs):
        flushed(log, b"%d" % number, b"both")
    table = DeltaTable(tmp_path / TABLE).to_pyarrow_table()
    assert sorted(table.column("partition").to_pylist()) == ["0", "0", "1", "1", "2", "2"]
    assert [record.key for record in logs[1].read()] == [b"1", b"both"]


def test_compaction_leaves_one_file(tmp_path: Path) -> None:
    """With the offsets of all that it replaced, and the last change of each key."""
    log = opened(tmp_path)
    flushed(log, *[b"%d" % (number % 3) for number in range(20)])
    log.append(b"0", None)
    log.flush()
    log.compact(15)
    assert len(files(tmp_path)) == 6
    assert [record.offset for record in log.read()] == [13, 14, 15, 16, 17, 18, 19, 20]
    flushed(log, *[b"1"] * 8)
    log.compact(28)
    assert [record[:2] for record in log.read()] == [(17, b"2"), (28, b"1")]
    assert opened(tmp_path).newest() == 28


def test_offsets_never_come_again(tmp_path: Path) -> None:
    """Not even where everything was deleted and compacted away."""
    log = opened(tmp_path)
    for _ in range(module.COMPACTED_FILES):
        log.append(b"a", None)
        log.flush()
    log.compact(module.COMPACTED_FILES)
    again = opened(tmp_path)
    assert list(again.read()) == []
    flushed(again, b"b")
    assert list(again.read()) == [Change(module.COMPACTED_FILES, b"b", b"x" * 100)]


def test_a_writer_that_is_not_alone_is_refused(tmp_path: Path) -> None:
    """The one that was there before can't write behind the other's back."""
    before, after = opened(tmp_path), opened(tmp_path)
    flushed(after, b"new")
    before.append(b"old", b"1")
    with pytest.raises(CommitError, match="another process writes this changelog"):
        before.flush()
    assert [record.key for record in opened(tmp_path).read()] == [b"new"]


def test_a_commit_that_is_cut_off_was_never_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is removed by a later compaction, when nobody can be about to commit it."""
    log = opened(tmp_path)
    flushed(log, b"a")

    def failing(*_: object) -> int:
        raise OSError("the network is gone")

    with monkeypatch.context() as broken:
        broken.setattr(PartitionFiles, "commit", failing)
        log.append(b"b", b"1")
        with pytest.raises(OSError, match="is gone"):
            log.flush()
    again = opened(tmp_path)
    assert [record.key for record in again.read()] == [b"a"]
    (orphan,) = [file for file in files(tmp_path) if "00000000000000000001-" in file.name]
    flushed(again, *[b"c"] * module.COMPACTED_FILES)
    again.compact(4)
    os.utime(orphan, (0, 0))
    again.compact(module.COMPACTED_FILES)
    assert not orphan.exists()
    assert [record.key for record in opened(tmp_path).read()] == [b"a", b"c"]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda path: path.unlink(), "was removed"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "is damaged"),
        (lambda path: path.write_bytes(b"no parquet"), "is damaged"),
    ],
)
def test_damage_is_said(tmp_path: Path, damage: object, problem: str) -> None:
    """With the file, and what can be done."""
    log = opened(tmp_path)
    flushed(log, b"a")
    (path,) = files(tmp_path)
    assert callable(damage)
    damage(path)
    with pytest.raises(CommitError, match=problem) as told:
        list(opened(tmp_path).read())
    assert path.name in str(told.value)
    assert told.value.remedy


def test_much_is_committed_before_a_flush(tmp_path: Path) -> None:
    """So that memory does not hold all changes between two checkpoints."""
    changelogs = DeltaChangelogs(Directory(tmp_path), "orders", batch_bytes=1000)
    log = changelogs.open(SystemStreamPartition("kafka", "store-changelog", 0))
    for number in range(30):
        log.append(b"%d" % number, b"x" * 100)
    assert len(files(tmp_path)) == 3
    log.flush()
    assert [record.offset for record in log.read()] == list(range(30))
