"""The test plan of SEP-28, item by item, each by its words."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from statelake.state_core.runtime.commit import CommitDecision
from statelake.state_core.runtime.commit.records.checkpoint_reading import CheckpointManager
from statelake.state_core.runtime.commit.records.records import (
    CHANGELOG_FACTORY,
    ChangelogMarker,
    CheckpointId,
    CheckpointLogKey,
    CheckpointV1,
    CheckpointV2,
    SystemStreamPartition,
)
from statelake.state_core.runtime.commit.records.serdes import (
    read_key,
    write_changelog_marker,
    write_key,
)
from tests.support.jobs.commit_tasks import GROUPER, INPUT, Job
from tests.support.jobs.doubles import MemoryCheckpointLog, in_memory

TASK = "Partition 3"
CHANGELOG = SystemStreamPartition("kafka", "store-changelog", 3)
BOTH = {"checkpoint.write.versions": "1,2"}
BACKENDS = {
    "changelog": {"stores.store.changelog": "kafka.store-changelog"},
    "blob_store": {"stores.store.backup.factories": "blob_store"},
    "both": {
        "stores.store.changelog": "kafka.store-changelog",
        "stores.store.backup.factories": "blob_store,changelog",
    },
}


def record(number: int) -> CheckpointV2:
    """The number-th checkpoint, with a changelog's marker."""
    marker = write_changelog_marker(ChangelogMarker(CHANGELOG, str(number * 10)))
    return CheckpointV2(
        CheckpointId(number, 0), {INPUT: str(number)}, {CHANGELOG_FACTORY: {"store": marker}}
    )


def reader(log: MemoryCheckpointLog, read: tuple[int, ...]) -> CheckpointManager:
    """A release that reads these versions, and writes both."""
    return CheckpointManager(log, GROUPER, read_versions=read, write_versions=(1, 2))


def test_serde_of_checkpoints_v2() -> None:
    """Successfully reads and writes v2 checkpoints."""
    log = MemoryCheckpointLog()
    reader(log, (2,)).write(TASK, record(1))
    assert reader(log, (2,)).read_last(TASK) == record(1)


def test_backwards_compatibility_of_checkpoints_v2() -> None:
    """Can read v1 checkpoints when reading of v2 is disabled."""
    log = MemoryCheckpointLog()
    CheckpointManager(log, GROUPER, read_versions=(1,), write_versions=(1,)).write(TASK, record(1))
    assert reader(log, (1,)).read_last(TASK) == CheckpointV1({INPUT: "1", CHANGELOG: "1-0:10"})


def test_forwards_compatibility_of_checkpoints_v2() -> None:
    """Skips checkpoints with other keys, of v2 for who reads v1 and of releases to come."""
    log = MemoryCheckpointLog()
    reader(log, (1,)).write(TASK, record(1))
    CheckpointManager(log, GROUPER, write_versions=(2,)).write(TASK, record(2))
    log.append(write_key(CheckpointLogKey(GROUPER, TASK, "checkpoint-v3")), b"\x00 not even JSON")
    last = reader(log, (1,)).read_last(TASK)
    assert last is not None
    assert last.offsets[INPUT] == "1"
    assert reader(log, (2,)).read_last(TASK) == record(2)


def test_dual_checkpoints_write() -> None:
    """Both the v1 and the v2 message are in the checkpoint topic."""
    log = MemoryCheckpointLog()
    reader(log, (1,)).write(TASK, record(1))
    assert [read_key(record.key).type for record in log.records] == ["checkpoint", "checkpoint-v2"]


def test_switching_of_reading() -> None:
    """Between v2 and v1 on the latest version by configuration, back and forth, without loss."""
    log = MemoryCheckpointLog()
    for number, read in enumerate([(1,), (2,), (1,), (2, 1), (2,)], 1):
        reader(log, read).write(TASK, record(number))
        for either in ((1,), (2,), (2, 1), (1, 2)):
            last = reader(log, either).read_last(TASK)
            assert last is not None
            assert last.offsets[INPUT] == str(number)
            assert last.version == either[0]


@pytest.mark.parametrize("backend", ["changelog", "both"])
@pytest.mark.parametrize("host", ["host", "elsewhere"])
def test_switching_restores_the_same_state(backend: str, host: str, tmp_path: Path) -> None:
    """State too is found by either version, where a changelog has it."""
    with Job(tmp_path, BACKENDS[backend] | BOTH) as job:
        job.task().commit()
        for number, read in enumerate(["1", "2", "1", "2,1"]):
            task = job.task(host, **{"checkpoint.read.versions": read})
            assert task.content() == {f"key{index}": "v" for index in range(number)}
            assert task.offset == number - 1
            task.put(**{f"key{number}": "v"})
            task.commit()
            task.put(key0="never committed")


@pytest.mark.parametrize("backend", BACKENDS)
def test_async_processing_enabled(backend: str, tmp_path: Path) -> None:
    """Messages go on while an upload runs; they are of the next commit."""
    with Job(tmp_path, BACKENDS[backend]) as job:
        task = job.task()
        task.put(a="1")
        task.commit(wait=False)
        task.put(a="2", b="3")
        task.started.commits.wait()
        assert job.task("elsewhere").content() == {"a": "1"}
        assert job.task().offset == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_async_processing_disabled(backend: str, tmp_path: Path) -> None:
    """Each commit is over before the next message."""
    with Job(tmp_path, BACKENDS[backend]) as job:
        task = job.task()
        for number in range(5):
            task.put(a=str(number))
            task.commit()
            assert not task.started.commits.under_way
        assert job.task("elsewhere").content() == {"a": "4"}


@pytest.mark.parametrize(("transactional", "a"), [(True, "1"), (False, "2")])
def test_transactional_state(transactional: bool, a: str, tmp_path: Path) -> None:
    """Enabled, a restore ends at the checkpoint; disabled, with the changelog."""
    with Job(tmp_path, BACKENDS["changelog"], transactional=transactional) as job:
        task = job.task()
        task.put(a="1")
        task.commit()
        task.put(a="2")
        # what is flushed behind the marker, by the producer or by a commit that fails later
        task.started.commits.backups[CHANGELOG_FACTORY].snapshot(CheckpointId(9, 9))
        for host in ("host", "elsewhere"):
            assert job.task(host).content() == {"a": a}


@pytest.mark.full
def test_more_than_64_tasks(tmp_path: Path) -> None:
    """Seventy tasks share 64 threads, and all commit at once."""
    with Job(tmp_path, BACKENDS["both"], tasks=70) as job:
        assert isinstance(job.pool, ThreadPoolExecutor)
        assert job.pool._max_workers == 64
        tasks = [job.task(name=f"Partition {number}") for number in range(70)]
        for number, task in enumerate(tasks):
            task.put(mine=str(number))
            task.commit(wait=False)
        for task in tasks:
            task.started.commits.wait()
        for number in range(70):
            task = job.task("elsewhere", f"Partition {number}")
            assert task.content() == {"mine": str(number)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_commit_after_every_message(backend: str, tmp_path: Path) -> None:
    """Those that come while one is under way are skipped; the last one that began is restored."""
    with Job(tmp_path, BACKENDS[backend]) as job:
        task = job.task()
        begun: dict[int, str] = {}
        for number in range(60):
            task.put(a=str(number))
            decision = task.started.commits.commit({INPUT: str(number)})
            if decision is not CommitDecision.SKIP:
                begun[number] = str(number)
        task.started.commits.wait()
        again = job.task("elsewhere")
        assert again.offset == max(begun)
        assert again.content() == {"a": begun[max(begun)]}
        assert task.context.measures["commits_skipped"] == 60 - len(begun)


def test_a_store_without_files_has_a_changelog(tmp_path: Path) -> None:
    """As the spec's table of stores has it."""
    with Job(tmp_path, BACKENDS["changelog"], [in_memory("store")]) as job:
        task = job.task()
        task.put(a="1", b="2")
        task.put(b=None)
        task.commit()
        assert job.task().content() == {"a": "1"}
