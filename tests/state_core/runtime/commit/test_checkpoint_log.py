"""Checkpoint logs, one contract for all; and who reads the last checkpoint in them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from statelake.state_core.errors import CheckpointRecordError, CommitError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.runtime.commit.records.checkpoint_log import (
    CheckpointLog,
    FileCheckpointLog,
    LogRecord,
)
from statelake.state_core.runtime.commit.records.checkpoint_reading import (
    CheckpointManager,
    TaskRecord,
    replaces,
)
from statelake.state_core.runtime.commit.records.records import (
    CheckpointId,
    CheckpointLogKey,
    CheckpointV1,
    CheckpointV2,
    SystemStreamPartition,
)
from statelake.state_core.runtime.commit.records.serdes import write_checkpoint_v2, write_key
from tests.support.jobs.doubles import MemoryCheckpointLog

GROUPER = "org.apache.samza.container.grouper.stream.GroupByPartitionFactory"
ORDERS = SystemStreamPartition("kafka", "orders", 3)
TASK = "Partition 3"
MINUTE = 60_000


class Ticking:
    """A clock that is set by hand."""

    now = 1_700_000_000_000

    def __call__(self) -> int:
        """Milliseconds."""
        return self.now


def memory(_: Path, clock: Callable[[], int]) -> CheckpointLog:
    """In memory."""
    return MemoryCheckpointLog(clock)


def files(path: Path, clock: Callable[[], int]) -> CheckpointLog:
    """In files."""
    return FileCheckpointLog(Directory(path), clock)


@pytest.fixture
def clock() -> Ticking:
    """A clock."""
    return Ticking()


def remote(_: Path, clock: Callable[[], int]) -> CheckpointLog:
    """In files that are not this host's."""
    return FileCheckpointLog(Directory("mock:///log"), clock)


@pytest.fixture(params=[memory, files, remote])
def log(request: pytest.FixtureRequest, tmp_path: Path, clock: Ticking) -> CheckpointLog:
    """Each kind of log, empty."""
    made: CheckpointLog = request.param(tmp_path / "log", clock)
    return made


def record(number: int) -> CheckpointV2:
    """The number-th checkpoint of a task."""
    return CheckpointV2(CheckpointId(1_700_000_000_000 + number, 7), {ORDERS: str(number)})


def manager(log: CheckpointLog, **options: object) -> CheckpointManager:
    """Whoever reads the log, from its start."""
    return CheckpointManager(log, GROUPER, **options)  # type: ignore[arg-type]


def test_records_come_in_their_order(log: CheckpointLog, clock: Ticking) -> None:
    """With key, message, time, and offsets that go up."""
    for number in range(12):
        clock.now += 1
        log.append(b"key%d" % (number % 2), b"message%d" % number)
    records = list(log.read())
    assert [record.message for record in records] == [b"message%d" % index for index in range(12)]
    assert [record.key for record in records[:2]] == [b"key0", b"key1"]
    assert [record.appended_at for record in records] == list(range(clock.now - 11, clock.now + 1))
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets))
    assert list(log.read(offsets[8])) == records[9:]


def test_an_empty_log_has_no_checkpoint(log: CheckpointLog) -> None:
    """Before the first commit."""
    assert manager(log).read_last(TASK) is None


def test_of_each_task_the_last_record_counts(log: CheckpointLog) -> None:
    """Whatever others wrote behind; and a manager goes on where it was."""
    reading = manager(log)
    writing = manager(log)
    for number in (1, 2):
        writing.write(TASK, record(number))
        writing.write("other", record(number + 10))
        assert reading.read_last(TASK) == record(number)
    assert reading.read_last("other") == record(12)
    assert reading.read_last("nobody") is None


def test_files_of_two_writers_are_both_kept(tmp_path: Path) -> None:
    """Though both saw the same end of the log."""
    one, other = (FileCheckpointLog(Directory(tmp_path)) for _ in range(2))
    one._names = other._names = list  # type: ignore[method-assign, assignment]
    one.append(b"a", b"1")
    other.append(b"a", b"2")
    assert {record.message for record in FileCheckpointLog(Directory(tmp_path)).read()} == {
        b"1",
        b"2",
    }


def test_a_files_log_forgets_what_was_replaced(tmp_path: Path) -> None:
    """After so many records; the last of every key stays."""
    log = FileCheckpointLog(Directory(tmp_path), keep=10)
    log.append(b"seldom", b"x")
    for number in range(40):
        log.append(b"often", b"%d" % number)
    assert len(list(tmp_path.iterdir())) <= 11
    assert {record.key: record.message for record in log.read()} == {
        b"seldom": b"x",
        b"often": b"39",
    }


def test_a_log_of_many_keys_is_not_read_at_every_append(tmp_path: Path) -> None:
    """Only after as many more records as it is told."""
    log = FileCheckpointLog(Directory(tmp_path), keep=10)
    compactions: list[int] = []
    compact = log.compact
    log.compact = lambda: (compactions.append(1), compact())[1]  # type: ignore[method-assign]
    for number in range(60):
        log.append(b"%d" % number, b"x")
    assert len(compactions) <= 4
    assert len(list(log.read())) == 60


def test_two_writers_compact_at_once(tmp_path: Path) -> None:
    """What the other removed since the names were listed is passed over."""
    one, other = (FileCheckpointLog(Directory(tmp_path)) for _ in range(2))
    for number in range(4):
        one.append(b"a", b"%d" % number)
    names = one._names()
    other.compact()
    one._names = lambda: names  # type: ignore[method-assign]
    one.compact()
    assert [record.message for record in FileCheckpointLog(Directory(tmp_path)).read()] == [b"3"]


def test_a_record_that_goes_while_the_log_is_read(tmp_path: Path) -> None:
    """Since a later one of its key came: the reader finds that one."""
    writing, reading = (FileCheckpointLog(Directory(tmp_path)) for _ in range(2))
    for number in range(4):
        writing.append(b"key%d" % (number % 2), b"%d" % number)
    found = reading.read()
    assert next(found).message == b"0"
    for number in range(4, 6):
        writing.append(b"key%d" % (number % 2), b"%d" % number)
    writing.compact()
    assert [record.message for record in found] == [b"4", b"5"]


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: d[:3], lambda d: d + b"x"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """And never read as something else."""
    log = FileCheckpointLog(Directory(tmp_path))
    log.append(b"key", b"message")
    (file,) = tmp_path.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(CheckpointRecordError, match=f"{file.name}: the record is damaged"):
        list(log.read())


def test_another_groupers_checkpoint_is_refused(
    log: CheckpointLog, caplog: pytest.LogCaptureFixture
) -> None:
    """Its offsets fit no task; without validation it is taken, with a warning, as Samza does."""
    CheckpointManager(log, "other.Grouper").write(TASK, record(1))
    with pytest.raises(CheckpointRecordError, match=r"was grouped by other\.Grouper"):
        manager(log).read_last(TASK)
    with caplog.at_level(logging.WARNING):
        assert manager(log, validate=False).read_last(TASK) == record(1)
    assert "was grouped by other.Grouper" in caplog.text


def test_a_broken_record_is_refused_every_time(
    log: CheckpointLog, caplog: pytest.LogCaptureFixture
) -> None:
    """Not only when it is first met; without validation the one before counts."""
    manager(log).write(TASK, record(1))
    log.append(write_key(CheckpointLogKey(GROUPER, TASK, "checkpoint-v2")), b"{")
    reading = manager(log)
    for _ in range(2):
        with pytest.raises(CheckpointRecordError, match="record 1 of the checkpoint log"):
            reading.read_last(TASK)
    with caplog.at_level(logging.WARNING):
        assert manager(log, validate=False).read_last(TASK) == record(1)
    assert "record 1 of the checkpoint log is skipped" in caplog.text


def test_a_rollback_to_a_release_of_version_1_alone(log: CheckpointLog, clock: Ticking) -> None:
    """Its records count again once those of version 2 are older than one commit can be."""
    manager(log, write_versions=(1, 2)).write(TASK, record(1))
    clock.now += 9 * MINUTE
    manager(log, write_versions=(1,)).write(TASK, record(2))
    assert manager(log, read_versions=(2, 1)).read_last(TASK) == record(1)
    clock.now += 2 * MINUTE
    manager(log, write_versions=(1,)).write(TASK, record(3))
    assert manager(log, read_versions=(2, 1)).read_last(TASK) == CheckpointV1({ORDERS: "3"})


@pytest.mark.parametrize(
    ("new", "old", "apart", "taken"),
    [(2, 1, 0, True), (2, 2, 0, True), (1, 2, 10, False), (1, 2, 11, True), (1, 1, 0, True)],
)
def test_which_of_two_records_counts(new: int, old: int, apart: int, taken: bool) -> None:
    """The later one, unless its version is wanted less and the other is of the same commit."""
    later, earlier = (
        TaskRecord(
            LogRecord(0, b"", b"", at),
            CheckpointLogKey(GROUPER, TASK, "checkpoint"),
            CheckpointV1() if version == 1 else record(1),
        )
        for version, at in ((new, apart), (old, 0))
    )
    assert replaces(later, earlier, (2, 1), 10) is taken


@pytest.mark.parametrize(
    ("read", "write", "problem"),
    [((1,), (2,), "go back in time"), ((3,), (2,), "can't be read"), ((2,), (), "can't be read")],
)
def test_versions_that_lose_checkpoints_are_refused(
    read: tuple[int, ...], write: tuple[int, ...], problem: str
) -> None:
    """Before anything is written."""
    with pytest.raises(CommitError, match=problem):
        manager(MemoryCheckpointLog(), read_versions=read, write_versions=write)


def test_writing_goes_by_the_key_of_samza(log: CheckpointLog) -> None:
    """Byte for byte, so that its checkpoint manager finds it."""
    manager(log, write_versions=(2,)).write(TASK, record(1))
    (found,) = log.read()
    assert found.key == (
        b'{"systemstreampartition-grouper-factory":"%s","taskName":"Partition 3",'
        b'"type":"checkpoint-v2"}' % GROUPER.encode()
    )
    assert found.message == write_checkpoint_v2(record(1))
