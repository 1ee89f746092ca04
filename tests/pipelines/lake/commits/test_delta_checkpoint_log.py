"""A checkpoint log in a Delta table: the contract of all logs, and many writers at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from statelake.pipelines.lake.commits import checkpoint_log
from statelake.pipelines.lake.commits.checkpoint_log import DeltaCheckpointLog
from statelake.state_core.commit import CheckpointManager
from statelake.state_core.errors import CheckpointRecordError, ConflictError
from statelake.state_core.files.filesystem import Directory
from tests.state_core.commit import test_checkpoint_log as contract

clock = contract.clock
test_records_come_in_their_order = contract.test_records_come_in_their_order
test_an_empty_log_has_no_checkpoint = contract.test_an_empty_log_has_no_checkpoint
test_of_each_task_the_last_record_counts = contract.test_of_each_task_the_last_record_counts
test_another_groupers_checkpoint = contract.test_another_groupers_checkpoint_is_refused
test_a_broken_record = contract.test_a_broken_record_is_refused_every_time
test_the_key_of_samza = contract.test_writing_goes_by_the_key_of_samza


@pytest.fixture
def log(tmp_path: Path, clock: contract.Ticking) -> DeltaCheckpointLog:
    """A log, empty."""
    return DeltaCheckpointLog(Directory(tmp_path / "log"), clock)


def test_writers_of_several_processes_lose_nothing(tmp_path: Path) -> None:
    """Each with a log of its own; offsets have no gaps, and compactions come between."""
    place = Directory(tmp_path / "log")

    def write(writer: int) -> None:
        mine = DeltaCheckpointLog(place, keep=7)
        for number in range(8):
            mine.append(b"%d-%d" % (writer, number), b"message")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    records = list(DeltaCheckpointLog(place).read())
    assert {record.key for record in records} == {
        b"%d-%d" % (w, n) for w in range(4) for n in range(8)
    }
    assert [record.offset for record in records] == list(range(32))
    assert len(DeltaTable(place.uri).file_uris()) <= 10


def test_a_reader_misses_nothing(tmp_path: Path) -> None:
    """That goes on behind the last offset that it saw, while another compacts."""
    log = DeltaCheckpointLog(Directory(tmp_path / "log"))
    reading = CheckpointManager(log, contract.GROUPER)
    writing = CheckpointManager(log, contract.GROUPER)
    for number in range(6):
        writing.write("a", contract.record(number))
        if number % 2:
            assert log.compact() == (1 if number == 1 else 2)
        assert reading.read_last("a") == contract.record(number)


def test_only_the_newest_of_a_key_stays(tmp_path: Path) -> None:
    """With its offset and its time; and offsets go on behind it."""
    log = DeltaCheckpointLog(Directory(tmp_path / "log"), keep=10)
    log.append(b"seldom", b"x")
    for number in range(30):
        log.append(b"often", b"%d" % number)
    before = {record.key: record for record in log.read()}
    log.compact()
    assert {record.key: record for record in log.read()} == before
    assert before[b"often"].offset == 30
    log.append(b"often", b"later")
    assert [record.offset for record in log.read()] == [0, 30, 31]
    assert log.compact(newest=2) == 0


def test_others_may_optimize_the_table(tmp_path: Path) -> None:
    """Offsets are the records', not the table's versions."""
    log = DeltaCheckpointLog(Directory(tmp_path / "log"))
    for number in range(3):
        log.append(b"key", b"%d" % number)
    DeltaTable(log.directory.uri).optimize.compact()
    log.append(b"key", b"3")
    assert [(record.offset, record.message) for record in log.read(1)] == [(2, b"2"), (3, b"3")]


def test_a_lost_file_is_told(tmp_path: Path) -> None:
    """And no record before it is taken for the last."""
    log = DeltaCheckpointLog(Directory(tmp_path / "log"))
    log.append(b"key", b"message")
    (file,) = (tmp_path / "log").glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(CheckpointRecordError, match="the log can't be read"):
        list(log.read())
    file.unlink()
    with pytest.raises(CheckpointRecordError, match="the log can't be read"):
        list(log.read())


def test_who_never_comes_first_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is appended then."""
    log = DeltaCheckpointLog(Directory(tmp_path / "log"))
    log.append(b"key", b"1")

    def came_second(*_: object, **__: object) -> None:
        raise CommitFailedError("another writer came first")

    monkeypatch.setattr(DeltaCheckpointLog, "_write", came_second)
    monkeypatch.setattr(checkpoint_log, "ATTEMPTS", 3)  # which wait for seconds each
    for late in (lambda: log.append(b"key", b"2"), lambda: log.append(b"key", b"3")):
        with pytest.raises(ConflictError, match="others committed"):
            late()
    assert [record.message for record in log.read()] == [b"1"]


def test_a_job_has_its_log_in_the_lake(tmp_path: Path) -> None:
    """Where no state's table can be."""
    log = DeltaCheckpointLog.of_job(Directory(tmp_path), "orders")
    log.append(b"key", b"message")
    assert (tmp_path / "orders" / "_checkpoints" / "_delta_log").is_dir()
