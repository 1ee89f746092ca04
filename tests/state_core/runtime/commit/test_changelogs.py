"""Changelogs: one contract; what a crash cuts off, what is compacted, and what is undone."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import CheckpointRecordError, CommitError
from statelake.state_core.files.confinement import PART, ConfinedTree
from statelake.state_core.runtime.commit import Changelogs, FileChangelogs
from statelake.state_core.runtime.commit.backends.changelog import (
    BATCH_BYTES,
    LARGEST_OFFSET,
    Change,
    _batch,
    _encoded,
)
from statelake.state_core.runtime.commit.backends.changelog_backend import undoing
from statelake.state_core.runtime.commit.records.records import SystemStreamPartition
from tests.support.jobs.commit_tasks import Job
from tests.support.jobs.doubles import MemoryChangelogs, in_memory

LOG = SystemStreamPartition("kafka", "store-changelog", 3)
CHANGELOG = {"stores.store.changelog": "kafka.store-changelog"}
KINDS: dict[str, Callable[[Path], Changelogs]] = {
    "memory": lambda _: MemoryChangelogs(),
    "files": FileChangelogs,
    "small segments": lambda path: FileChangelogs(path, segment_bytes=40),
}
written = st.lists(st.tuples(st.sampled_from([b"a", b"b", b""]), st.none() | st.binary(max_size=9)))


@pytest.fixture(params=KINDS)
def changelogs(request: pytest.FixtureRequest, tmp_path: Path) -> Changelogs:
    """Each kind, empty."""
    return KINDS[request.param](tmp_path / "changelogs")


def folded(changes: list[Change]) -> dict[bytes, bytes]:
    """The state that changes make."""
    said = {key: value for _, key, value in changes}
    return {key: value for key, value in said.items() if value is not None}


def test_changes_come_in_their_order(changelogs: Changelogs) -> None:
    """With offsets that go on where another writer ended; a part of them by its ends."""
    expected = []
    for _ in range(3):
        log = changelogs.open(LOG)
        for _ in range(7):
            value = None if len(expected) % 3 == 0 else b"%d" % len(expected)
            log.append(b"key", value)
            expected.append(Change(len(expected), b"key", value))
            if len(expected) % 2:
                log.flush()
        log.flush()
        assert log.newest() == len(expected) - 1
        log.close()
    log = changelogs.open(LOG)
    assert list(log.read()) == expected
    for start in range(22):
        assert list(log.read(start)) == expected[start:]
        assert list(log.read(5, start)) == expected[5 : start + 1]


def test_an_empty_changelog(changelogs: Changelogs) -> None:
    """Has no newest change."""
    log = changelogs.open(LOG)
    log.flush()
    assert log.newest() is None
    assert list(log.read()) == []
    log.compact(0)


def test_partitions_are_apart(changelogs: Changelogs) -> None:
    """Each has its own offsets."""
    other = SystemStreamPartition("kafka", "store-changelog", 4)
    for partition, key in ((LOG, b"a"), (other, b"b")):
        log = changelogs.open(partition)
        log.append(key, b"1")
        log.flush()
        assert list(log.read()) == [Change(0, key, b"1")]


def test_what_was_not_flushed_may_be_gone(changelogs: Changelogs) -> None:
    """And is, where it was only in memory."""
    log = changelogs.open(LOG)
    log.append(b"a", b"1")
    log.flush()
    log.append(b"a", b"2")
    assert log.newest() == 0
    log.close()
    assert list(changelogs.open(LOG).read()) == [Change(0, b"a", b"1")]


@pytest.mark.parametrize("kind", KINDS)
@given(rounds=st.lists(written, max_size=6), data=st.data())
def test_compaction_keeps_the_state(
    kind: str, rounds: list[list[tuple[bytes, bytes | None]]], data: st.DataObject
) -> None:
    """At every offset from where it ends, also for a reader from the start; and offsets stay."""
    import tempfile  # noqa: PLC0415 - each example has a directory of its own

    with tempfile.TemporaryDirectory() as path:
        changelogs = KINDS[kind](Path(path))
        everything: list[Change] = []
        end = 0  # committed checkpoints follow each other
        for changes in rounds:
            log = changelogs.open(LOG)
            for key, value in changes:
                log.append(key, value)
                everything.append(Change(len(everything), key, value))
                log.flush()
            end = data.draw(st.integers(end, max(end, len(everything) - 1)))
            log.compact(end)
            for at in range(end, len(everything)):
                assert folded(list(log.read(0, at))) == folded(everything[: at + 1])
            assert list(log.read(end + 1)) == everything[end + 1 :]
            assert log.newest() == (len(everything) - 1 if everything else None)
            log.close()


def test_files_are_compacted(tmp_path: Path) -> None:
    """So that a log is not as long as its history."""
    changelogs = FileChangelogs(tmp_path, segment_bytes=1000)
    log = changelogs.open(LOG)
    for number in range(2000):
        log.append(b"%d" % (number % 10), b"x" * 20)
        if number % 10 == 9:
            log.flush()
    before = sum(path.stat().st_size for path in tmp_path.rglob("*.log"))
    log.compact(1999)
    after = sum(path.stat().st_size for path in tmp_path.rglob("*.log"))
    assert before > 60_000
    assert after < 3_000
    assert len(folded(list(log.read()))) == 10


def batches(path: Path, count: int) -> Path:
    """A file of so many batches of one change each."""
    log = FileChangelogs(path).open(LOG)
    for number in range(count):
        log.append(b"key", b"%d" % number)
        log.flush()
    log.close()
    (file,) = path.rglob("*.log")
    return file


@given(st.data())
def test_what_a_crash_cut_off_is_cut_off_for_good(data: st.DataObject) -> None:
    """Complete batches stay, at any cut; what is appended next follows the last complete one."""
    import tempfile  # noqa: PLC0415 - each example has a directory of its own

    with tempfile.TemporaryDirectory() as path:
        file = batches(Path(path), 5)
        whole = file.read_bytes()
        cut = data.draw(st.integers(0, len(whole)))
        size = len(whole) // 5
        # what stands behind half a head is its length: any other than zeros is damage
        left = (size - cut - 1) % size if cut % size >= struct.calcsize(">IIQ") else 0
        tail = data.draw(st.binary(max_size=left) | st.integers(0, 2 * size).map(bytes))
        file.write_bytes(whole[:cut] + tail)
        log = FileChangelogs(path).open(LOG)
        kept = cut // size
        expected = [Change(index, b"key", b"%d" % index) for index in range(kept)]
        found = list(log.read())
        assert found[:kept] == expected
        assert len(found) == kept or whole.startswith((whole[:cut] + tail)[: cut + 1])
        log.append(b"key", b"new")
        log.flush()
        log.close()
        again = list(FileChangelogs(path).open(LOG).read())
        assert again == [*found, Change(len(found), b"key", b"new")]


def test_only_what_is_appended_cuts_off_what_a_crash_left(tmp_path: Path) -> None:
    """Who opens, reads or closes a log changes nothing: another may have to read it."""
    file = batches(tmp_path, 3)
    cut = file.read_bytes()[:-1]
    file.write_bytes(cut)
    log = FileChangelogs(tmp_path).open(LOG)
    assert [change.offset for change in log.read()] == [0, 1]
    log.flush()
    log.close()
    assert file.read_bytes() == cut


def test_what_an_erasure_closes_has_no_rest_of_a_crash(tmp_path: Path) -> None:
    """A batch that was cut off may have what was to go, so it goes."""
    file = batches(tmp_path, 3)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert FileChangelogs(tmp_path).erase(LOG, lambda change: change.value == b"7") == 0
    assert file.read_bytes() == _reencoded(tmp_path) != whole[:-1]
    assert b"key2" not in file.read_bytes()


def test_who_opened_a_log_before_others_appended_cuts_nothing_of_theirs_off(tmp_path: Path) -> None:
    """A process that stood still, and was taken for dead, finds that the log is no longer its."""
    file = batches(tmp_path, 3)
    file.write_bytes(file.read_bytes()[:-1])
    late, other = FileChangelogs(tmp_path).open(LOG), FileChangelogs(tmp_path).open(LOG)
    for number in range(2, 6):
        other.append(b"key", b"%d" % number)
    other.flush()
    late.append(b"key", b"late")
    for _ in range(2):
        with pytest.raises(CommitError, match="another process has appended to the changelog"):
            late.flush()
    late.close()
    expected = [Change(number, b"key", b"%d" % number) for number in range(6)]
    assert list(FileChangelogs(tmp_path).open(LOG).read()) == expected


@pytest.mark.parametrize("segment_bytes", [1, 1 << 20])
def test_what_was_flushed_is_on_the_disk_under_its_name(
    segment_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each segment, and each directory down to it, also those that a killed process made."""
    work = tmp_path / "logs"
    for _ in range(2):  # a new log, and one that another process has begun
        synced: set[int] = set()
        monkeypatch.setattr(os, "fsync", lambda file, to=synced: to.add(os.fstat(file).st_ino))
        log = FileChangelogs(work, segment_bytes).open(LOG)
        for _ in range(2):
            log.append(b"key", bytes(BATCH_BYTES))
        log.flush()
        log.close()
        paths = [
            work,
            *(path for path in work.rglob("*") if path.is_dir()),
            max(work.rglob("*.log")),
        ]
        assert {path.stat().st_ino for path in paths} <= synced


@pytest.mark.parametrize("writes", range(4))
def test_an_erasure_that_is_killed_leaves_a_log_that_can_be_read(
    writes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind any of its writes, and although a crash before it had cut off a batch."""
    left = iter(range(writes))
    real = ConfinedTree.write

    def write(tree: ConfinedTree, path: str, chunks: Iterable[bytes]) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        real(tree, path, chunks)

    def erase() -> int:
        return FileChangelogs(tmp_path).erase(LOG, lambda change: change.value == b"1")

    file = batches(tmp_path, 4)
    file.write_bytes(file.read_bytes()[:-1])
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(ConfinedTree, "write", write)
        erase()
    assert erase() == (writes < 3)
    log = FileChangelogs(tmp_path).open(LOG)
    assert [change.offset for change in log.read()] == [0, 2]
    assert log.newest() == 2


def test_an_erasure_leaves_no_part_that_a_killed_process_wrote(tmp_path: Path) -> None:
    """It has what is to go; a compaction removes it, too, but not that of a living one."""
    file = batches(tmp_path, 3)
    part = file.with_name(f"{file.name}.0123abcd{PART}")
    for clean_up in (
        lambda: FileChangelogs(tmp_path).erase(LOG, lambda _: True),
        lambda: FileChangelogs(tmp_path).open(LOG).compact(0),
    ):
        part.write_bytes(file.read_bytes())
        with part.open() as held:
            fcntl.flock(held, fcntl.LOCK_SH)
            clean_up()
            assert part.exists()
        clean_up()
        assert not part.exists()


def test_changes_that_are_far_apart_are_compacted_and_erased(tmp_path: Path) -> None:
    """A key of the first days, and others after four thousand million changes."""
    file = batches(tmp_path, 1)
    far = 1 << 33
    file.with_name(f"{far:020}.log").touch()
    logs = FileChangelogs(tmp_path, segment_bytes=1)
    log = logs.open(LOG)
    for _ in range(3):
        log.append(b"other", b"1")
        log.flush()
    log.compact(far + 2)
    expected = [
        Change(0, b"key", b"0"),
        Change(far + 1, b"other", b"1"),
        Change(far + 2, b"other", b"1"),
    ]
    assert list(log.read()) == expected
    log.close()
    assert logs.erase(LOG, lambda change: change.offset == far + 1) == 1
    assert list(logs.open(LOG).read()) == [expected[0], expected[2]]


def test_what_is_rewritten_is_in_batches_as_large_as_others(tmp_path: Path) -> None:
    """However large its values are: their sizes fit the fields, and a reader's memory."""
    logs = FileChangelogs(tmp_path)
    log = logs.open(LOG)
    for number in range(9):
        log.append(b"%d" % number, bytes(BATCH_BYTES // 2))
    log.flush()
    log.close()
    assert logs.erase(LOG, lambda change: change.key == b"0") == 1
    for file in tmp_path.rglob("*.log"):
        data, at = file.read_bytes(), 0
        while at < len(data):
            _, length, _ = struct.unpack_from(">IIQ", data, at)
            assert length <= 2 * BATCH_BYTES
            at += 16 + length
    assert len(list(logs.open(LOG).read())) == 8


def test_a_segment_that_begins_beyond_all_offsets_is_refused(tmp_path: Path) -> None:
    """Nothing could be appended to it that is read again."""
    file = batches(tmp_path, 1)
    for number in (LARGEST_OFFSET + 1, 10**20 - 1):
        beyond = file.with_name(f"{number:020}.log")
        beyond.touch()
        with pytest.raises(CheckpointRecordError, match=f"a segment begins at {number}") as caught:
            FileChangelogs(tmp_path).open(LOG)
        assert beyond.name in caught.value.place
        beyond.unlink()


def _reencoded(path: Path) -> bytes:
    """What a log of the same changes has."""
    return _encoded(list(FileChangelogs(path).open(LOG).read()))


def test_damage_before_whole_batches_is_told_and_nothing_cut(tmp_path: Path) -> None:
    """What is before it is read; a reader of more is refused, as committed changes follow."""
    file = batches(tmp_path, 4)
    data = bytearray(file.read_bytes())
    data[len(data) // 4 * 2 - 1] ^= 1
    file.write_bytes(data)
    log = FileChangelogs(tmp_path).open(LOG)
    assert log.newest() == 0
    assert list(log.read(0, 0)) == [Change(0, b"key", b"0")]
    with pytest.raises(CheckpointRecordError, match="a batch is damaged") as caught:
        list(log.read())
    assert "offset 32" in caught.value.place
    log.close()
    assert file.read_bytes() == data


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"abc", id="less than a change"),
        pytest.param(struct.pack(">IIi", 0, 9, 0) + b"key", id="a key beyond the end"),
        pytest.param(struct.pack(">IIi", 0, 3, 9) + b"key", id="a value beyond the end"),
        pytest.param(struct.pack(">IIi", 0, 3, -2) + b"key", id="a negative length"),
        pytest.param(2 * (struct.pack(">IIi", 5, 3, -1) + b"key"), id="an offset twice"),
    ],
)
def test_a_batch_that_has_no_changes_is_refused(content: bytes, tmp_path: Path) -> None:
    """Its checksum is right: someone else wrote it."""
    file = batches(tmp_path, 1)
    file.write_bytes(file.read_bytes() + _batch(1, content))
    with pytest.raises(CheckpointRecordError, match="a batch has something else than changes"):
        list(FileChangelogs(tmp_path).open(LOG).read())


def test_a_batch_that_begins_beyond_all_offsets_is_refused(tmp_path: Path) -> None:
    """The offsets behind it would not fit a batch."""
    file = batches(tmp_path, 1)
    change = struct.pack(">IIi", 0, 3, -1) + b"key"
    file.write_bytes(file.read_bytes() + _batch(2**64 - 1, change))
    with pytest.raises(CheckpointRecordError, match="a batch begins at 18446744073709551615"):
        FileChangelogs(tmp_path).open(LOG)


def test_damage_in_the_middle_is_refused(tmp_path: Path) -> None:
    """In a segment that others follow nothing can have been cut off."""
    log = FileChangelogs(tmp_path, segment_bytes=1).open(LOG)
    for number in range(3):
        log.append(b"key", b"%d" % number)
        log.flush()
    log.close()
    first = min(tmp_path.rglob("*.log"))
    data = first.read_bytes()
    first.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CheckpointRecordError, match="a batch is damaged"):
        list(FileChangelogs(tmp_path).open(LOG).read())


values = st.none() | st.sampled_from([b"1", b"2"])
states = st.dictionaries(st.sampled_from([b"a", b"b", b"c"]), st.sampled_from([b"1", b"2"]))


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b"]), values)), states)
def test_undoing_makes_a_log_say_what_a_store_holds(
    said: list[tuple[bytes, bytes | None]], state: dict[bytes, bytes]
) -> None:
    """And appends nothing that it says already."""
    changes = [Change(at, *change) for at, change in enumerate(said)]
    held: dict[bytes, bytes | None] = {change.key: None for change in changes}
    held.update(state)
    more = list(undoing(changes, held))
    whole = [*changes, *(Change(len(changes) + at, *change) for at, change in enumerate(more))]
    assert folded(whole) == state
    before = {change.key: change.value for change in changes}
    assert all(before.get(key) != value for key, value in more)


def test_uncommitted_changes_are_undone_whoever_restores(tmp_path: Path) -> None:
    """A changelog stays whole beside a blob store: it may be restored from later."""
    both = CHANGELOG | {"stores.store.backup.factories": "blob_store,changelog"}
    with Job(tmp_path, both) as job:
        task = job.task()
        task.put(a="1", b="1")
        task.commit()
        task.put(a="never committed", b=None, c="never committed")
        FileChangelogs(tmp_path / "changelogs").open(LOG)
        for log in task.started.commits.backups.values():
            for segment_log in getattr(log, "_logs", {}).values():
                segment_log.flush()
        task = job.task("elsewhere")
        assert task.content() == {"a": "1", "b": "1"}
        task.put(d="1")
        task.commit()
        name = "stores.store.restore.factory"
        assert job.task("third", **{name: "changelog"}).content() == {"a": "1", "b": "1", "d": "1"}


def test_a_changelog_is_added_to_a_store_that_has_content(tmp_path: Path) -> None:
    """It gets every key; also if it has another content from long ago."""
    log = FileChangelogs(tmp_path / "changelogs").open(LOG)
    log.append(b"old", b"1")
    log.append(b"a", b"1")
    log.flush()
    log.close()
    with Job(tmp_path, {"stores.store.backup.factories": "blob_store"}) as job:
        task = job.task()
        task.put(a="2", b="2")
        task.commit()
        job.config = CHANGELOG | {"stores.store.backup.factories": "changelog,blob_store"}
        task = job.task()
        task.commit()
        name = "stores.store.backup.factories"
        assert job.task("elsewhere", **{name: "changelog"}).content() == {"a": "2", "b": "2"}


def test_without_a_checkpoint_a_store_is_made_of_the_whole_log(tmp_path: Path) -> None:
    """As the spec has it for a job that had a changelog before it had checkpoints."""
    log = FileChangelogs(tmp_path / "changelogs").open(LOG)
    for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", None)):
        log.append(key, value)
    log.flush()
    with Job(tmp_path, CHANGELOG) as job:
        assert job.task().content() == {"b": "1"}
        assert list(log.read()) == list(FileChangelogs(tmp_path / "changelogs").open(LOG).read())


def test_a_changelog_that_ends_before_its_marker_is_refused(tmp_path: Path) -> None:
    """It was made anew: what the checkpoint says is nowhere."""
    with Job(tmp_path, CHANGELOG, [in_memory("store")]) as job:
        task = job.task()
        task.put(a="1", b="2")
        task.commit()
        for file in tmp_path.rglob("*.log"):
            file.unlink()
        with pytest.raises(CommitError, match="ends at None, before the checkpoint's 1"):
            job.task()
