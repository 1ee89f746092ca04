"""A task's commits: what is skipped, what waits, what fails, and what a start restores from."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import AsyncCommitError, CommitError, RestoreInterruptedError
from statelake.state_core.runtime.commit import (
    CheckpointId,
    CheckpointV2,
    CommitDecision,
    RestoreSource,
    StoreSpec,
    TaskStart,
)
from statelake.state_core.runtime.commit.contract.futures import done, wait_for
from statelake.state_core.runtime.commit.records.records import (
    BLOB_STORE_FACTORY,
    CHANGELOG_FACTORY,
)
from statelake.state_core.runtime.commit.tasks.decisions import (
    decide_commit,
    decide_restore,
)
from tests.support.jobs.commit_simulation import INPUT, Life, Plan, Schedule
from tests.support.jobs.commit_tasks import Job
from tests.support.jobs.commit_world import Fate
from tests.support.jobs.doubles import MEMORY_FACTORY, in_memory

ALL = {
    "stores.store.changelog": "kafka.store-changelog",
    "stores.store.backup.factories": "blob_store,changelog,memory",
    "task.max.commit.delay": "100",
}
PLAN = Plan({"store": True}, ALL)
HERE, THERE = CheckpointId(5, 0), CheckpointId(6, 0)


def life(schedule: Schedule, plan: Plan = PLAN, host: int = 0, fate: Fate | None = None) -> Life:
    """A task that was started."""
    made = Life(schedule, plan, host, fate or Fate())
    made.start()
    return made


def test_a_commit_is_skipped_within_the_delay() -> None:
    """While one is under way; nothing of the skipped one is left."""
    one = life(Schedule(1))
    one.process()
    assert one.commit() is CommitDecision.START
    one.process()
    one.remote.now += 99 * 1_000_000
    files = dict(one.disk.contents)
    assert one.commit() is CommitDecision.SKIP
    assert one.disk.contents == files
    assert one.context.measures.as_dict()["commits_skipped"] == 1
    assert one.commits.under_way


def test_a_commit_blocks_beyond_the_delay(caplog: pytest.LogCaptureFixture) -> None:
    """Until the one before is in the log; then it begins, with all that was processed."""
    one = life(Schedule(1))
    one.process()
    one.commit()
    one.process()
    one.remote.now += 101 * 1_000_000
    assert not one.remote.log.records
    with caplog.at_level(logging.WARNING):
        assert one.commit() is CommitDecision.BLOCK
    assert len(one.remote.log.records) == 1
    assert "processing waits for the commit that began 101 ms ago" in caplog.text
    one.commits.wait()
    assert len(one.remote.log.records) == 2
    measures = one.context.measures
    assert (measures["commits"], measures["commits_blocked"]) == (2, 1)


def test_a_commit_that_does_not_end_fails_the_task(tmp_path: Path) -> None:
    """After the timeout; on real threads, with an upload that hangs."""
    config = ALL | {"task.max.commit.delay": "-1", "task.commit.timeout.ms": "50"}
    go_on = threading.Event()
    with Job(tmp_path, config) as job:
        task = job.task()
        put = job.blobs.put

        def hang(*arguments: object) -> str:
            go_on.wait(30)
            return put(*arguments)  # type: ignore[arg-type]

        job.blobs.put = hang  # type: ignore[method-assign]
        task.put(a="1")
        task.commit(wait=False)
        with pytest.raises(AsyncCommitError, match="did not end within 50 ms"):
            task.commit()
        go_on.set()


@pytest.mark.parametrize("backend", ["blob_store", "changelog", "memory"])
def test_a_failed_upload_fails_the_task_loudly(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An ERROR at once, an exception at the next message and ever after, and nothing in the log."""
    one = life(Schedule(1))
    one.process()
    one.commit()
    one.commits.wait()
    before = list(one.remote.log.records)
    one.process()
    names = {
        "blob_store": BLOB_STORE_FACTORY, "changelog": CHANGELOG_FACTORY, "memory": MEMORY_FACTORY
    }  # fmt: skip
    manager = one.commits.backups[names[backend]]
    uploading = manager._upload

    def failing(*arguments: object) -> object:
        future = uploading(*arguments)  # type: ignore[arg-type]
        future._result = None  # an upload that was done is no longer
        return one.pool.submit(fail)

    def fail() -> dict[str, str]:
        raise OSError("the network is down")

    manager._upload = failing  # type: ignore[method-assign, assignment]
    with caplog.at_level(logging.ERROR):
        one.commit()
        while one.pool.waiting:
            one.pool.step()
    assert "the commit failed: the network is down" in caplog.text
    for again in (one.commits.raise_if_failed, one.commits.wait, one.commit):
        with pytest.raises(AsyncCommitError, match="the network is down; restart the task"):
            again()
    assert one.remote.log.records == before
    marked = one.context.stores.marked("store")
    assert marked == {one.commits.last.id}  # type: ignore[union-attr]
    for host in (0, 1):
        life(one.schedule, PLAN, host)


def test_a_failed_snapshot_fails_the_task() -> None:
    """What can't be fixed is never uploaded."""
    one = life(Schedule(1))
    one.process()
    one.fate.fail_at = one.fate.count + 3
    with pytest.raises(OSError, match="the schedule says"):
        one.commit()
    with pytest.raises(AsyncCommitError):
        one.commit()
    assert not one.remote.log.records


def test_the_local_id_is_written_before_the_record() -> None:
    """So that a local id can only be newer than the log's."""
    one = life(Schedule(1))
    one.process()
    append = one.remote.log.append
    seen: list[set[CheckpointId]] = []

    def look(key: bytes, message: bytes) -> None:
        seen.append(one.context.stores.marked("store"))
        append(key, message)

    one.remote.log.append = look  # type: ignore[method-assign]
    one.commit()
    one.commits.wait()
    assert seen == [{one.commits._last_id}]


def test_inputs_are_trimmed_to_what_is_committed() -> None:
    """Only after the record is in the log, and again at a start."""
    schedule = Schedule(1)
    trimmed: list[object] = []
    one = life(schedule)
    one.process()
    one.commits._trim_inputs = trimmed.append
    one.commit()
    assert not trimmed
    one.commits.wait()
    assert trimmed == [{INPUT: "0"}]
    again = Life(schedule, PLAN, 1, Fate())
    TaskStart(
        again.context, PLAN.settings, PLAN.checkpoints(schedule.remote),
        PLAN.factories(schedule.remote), trim_inputs=trimmed.append,
    ).start()  # fmt: skip
    assert trimmed == [{INPUT: "0"}] * 2


def test_markers_of_all_backends_are_in_one_record() -> None:
    """And of none that has no stores."""
    one = life(Schedule(1))
    one.commit()
    one.commits.wait()
    assert one.commits.last is not None
    assert set(one.commits.last.markers) == {BLOB_STORE_FACTORY, CHANGELOG_FACTORY, MEMORY_FACTORY}
    one.commits.backups[MEMORY_FACTORY]._upload = lambda *_: done({})  # type: ignore[method-assign]
    one.commit()
    one.commits.wait()
    assert set(one.commits.last.markers) == {BLOB_STORE_FACTORY, CHANGELOG_FACTORY}


@pytest.mark.parametrize(
    ("started", "now", "delay", "decision"),
    [
        (None, 10, 5, CommitDecision.START),
        (0, 5, 5, CommitDecision.SKIP),
        (0, 6, 5, CommitDecision.BLOCK),
        (3, 3, 0, CommitDecision.SKIP),
        (3, 4, 0, CommitDecision.BLOCK),
    ],
)
def test_decisions_of_commits(
    started: int | None, now: int, delay: int, decision: CommitDecision
) -> None:
    """Skipped up to the delay, the delay itself included, as the spec has it."""
    assert decide_commit(started, now, delay) is decision


def record(*factories: str) -> CheckpointV2:
    """A checkpoint with markers of some backends."""
    return CheckpointV2(HERE, {}, {factory: {"store": "m"} for factory in factories})


DECISIONS = {
    "local": (record("a"), {HERE}, "a", (RestoreSource.LOCAL, "a", "")),
    "local is newer": (record("a"), {THERE}, "a", (RestoreSource.MARKER, "a", "")),
    "both are local": (record("a"), {HERE, THERE}, "a", (RestoreSource.LOCAL, "a", "")),
    "no local": (record("a", "b"), set(), "b", (RestoreSource.MARKER, "b", "")),
    "other backend": (record("b"), set(), "a", (RestoreSource.MARKER, "b", "restored from b")),
    "in the order of asking": (record("c", "b"), set(), "a", (RestoreSource.MARKER, "b", "from b")),
    "nothing known": (record("x"), set(), "a", (RestoreSource.LOST, None, "but of x")),
    "no marker": (record(), set(), "a", (RestoreSource.BOOTSTRAP, "log", "the whole changelog")),
    "no checkpoint": (None, {HERE}, "a", (RestoreSource.BOOTSTRAP, "log", "")),
}  # fmt: skip


@pytest.mark.parametrize("name", DECISIONS)
def test_decisions_of_restores(name: str) -> None:
    """In the spec's order; whatever is not as configured is told."""
    last, local, wanted, (source, factory, error) = DECISIONS[name]
    found = decide_restore("store", last, local, wanted, ["a", "b", "c"], "log")  # type: ignore[arg-type]
    assert (found.source, found.factory) == (source, factory)
    assert error in found.error
    assert bool(found.error) is bool(error)


def test_restores_without_a_changelog_or_exactness() -> None:
    """A store starts empty; and a backend that goes beyond the checkpoint takes no local one."""
    found = decide_restore("store", None, (), None, ["a"], None)
    assert found.source is RestoreSource.EMPTY
    inexact = decide_restore("store", record("a"), {HERE}, "a", ["a"], None, exact=False)
    assert inexact.source is RestoreSource.MARKER


@pytest.mark.parametrize(
    ("host", "wipe", "source"),
    [(0, False, RestoreSource.LOCAL), (1, False, RestoreSource.MARKER),
     (0, True, RestoreSource.MARKER)],
)  # fmt: skip
def test_where_a_start_restores_from(host: int, wipe: bool, source: RestoreSource) -> None:
    """The same host's disk, or the marker on another host or after a loss."""
    schedule = Schedule(1)
    one = life(schedule)
    one.process()
    one.commit()
    one.commits.wait()
    one.process()
    if wipe:
        one.disk.contents.clear()
    started = start(schedule, PLAN, host)
    assert started.restored["store"].source is source


def start(schedule: Schedule, plan: Plan, host: int):  # noqa: ANN201 - a StartedTask
    """A start that is looked at."""
    again = Life(schedule, plan, host, Fate())
    return TaskStart(
        again.context, plan.settings, plan.checkpoints(schedule.remote),
        plan.factories(schedule.remote),
    ).start()  # fmt: skip


def test_a_host_that_the_task_left_is_not_believed() -> None:
    """Back on it, its local id is older than the log's."""
    schedule = Schedule(1)
    for host in (0, 1):
        one = life(schedule, PLAN, host)
        one.process()
        one.commit()
        one.commits.wait()
    assert one.schedule.remote.hosts[0].contents
    started = start(schedule, PLAN, 0)
    assert started.restored["store"].source is RestoreSource.MARKER
    life(schedule, PLAN, 0)


def test_a_missing_marker_is_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """And another backend's is restored: so a backend is added, and taken away."""
    schedule = Schedule(1)
    one = life(schedule, Plan({"store": True}, ALL | {"stores.store.backup.factories": "memory"}))
    one.process()
    one.commit()
    one.commits.wait()
    changed = Plan({"store": True}, ALL | {"stores.store.restore.factory": "blob_store"})
    with caplog.at_level(logging.ERROR):
        life(schedule, changed, 1)
    assert f"no marker of {BLOB_STORE_FACTORY} for store 'store'" in caplog.text
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_backend_that_is_not_known_is_no_reason_to_start_empty() -> None:
    """The start is refused, and says which backend has the state."""
    schedule = Schedule(1)
    memory = {"stores.store.backup.factories": "memory"}
    one = life(schedule, Plan({"store": True}, memory))
    one.commit()
    one.commits.wait()
    again = Life(schedule, PLAN, 1, Fate())
    start = TaskStart(
        again.context,
        PLAN.settings,
        PLAN.checkpoints(schedule.remote),
        PLAN.factories(schedule.remote),
    )
    del start.factories[MEMORY_FACTORY]
    with pytest.raises(CommitError, match="but of memory"):
        start.start()


def test_a_start_is_interrupted() -> None:
    """And the next one restores everything."""
    schedule = Schedule(1)
    one = life(schedule)
    one.process()
    one.commit()
    one.commits.wait()
    again = Life(schedule, PLAN, 1, Fate())
    start = TaskStart(
        again.context,
        PLAN.settings,
        PLAN.checkpoints(schedule.remote),
        PLAN.factories(schedule.remote),
    )
    start.interrupt()
    with pytest.raises(RestoreInterruptedError):
        start.start()
    life(schedule, PLAN, 1)


@pytest.mark.parametrize(
    ("versions", "value"),
    [("checkpoint.read.versions", "1"), ("checkpoint.read.versions", "1,2"),
     ("checkpoint.write.versions", "1")],
)  # fmt: skip
def test_version_1_alone_does_not_do_without_a_changelog(versions: str, value: str) -> None:
    """A restart would start empty: that is refused before it."""
    both = {"checkpoint.write.versions": "1,2"}
    config = {"stores.store.backup.factories": "blob_store"} | both | {versions: value}
    with pytest.raises(CommitError, match="records of version 1 have no place for markers"):
        life(Schedule(1), Plan({"store": True}, config))
    changelog = {"stores.store.changelog": "kafka.log", **config}
    changelog["stores.store.backup.factories"] = "blob_store,changelog"
    life(Schedule(1), Plan({"store": True}, changelog))


def test_stores_and_backends_that_do_not_fit() -> None:
    """Are refused before anything is restored."""
    schedule = Schedule(1)
    files = Plan({"store": False}, {"stores.store.backup.factories": "blob_store"})
    with pytest.raises(CommitError, match="has no files"):
        life(schedule, files)
    unknown = Plan({"store": True}, {"stores.store.backup.factories": "nobody.Knows"})
    with pytest.raises(CommitError, match=r"\['nobody\.Knows'\] are not known"):
        life(schedule, unknown)


@given(st.integers(0, 3))
def test_a_pool_of_real_threads_does_not_wait_for_itself(more: int) -> None:
    """One thread is enough for any number of backends and stores."""
    schedule = Schedule(1)
    stores = {f"store{number}": True for number in range(1 + more)}
    config = {"stores.backup.factories": "blob_store,memory"}
    plan = Plan(stores, config)
    with ThreadPoolExecutor(1) as pool:
        one = Life(schedule, plan, 0, Fate())
        one.context = replace(one.context, pool=pool, wait=wait_for)
        one.start()
        one.fate.between = lambda: None
        for _ in range(3):
            one.process()
            one.commit()
            one.commits.wait()
    assert len(schedule.remote.log.records) == 3


def test_a_store_that_says_it_has_files_has_some() -> None:
    """Else no local checkpoint could be made."""
    schedule = Schedule(1)
    one = life(schedule)
    one.context.stores.specs["store"] = StoreSpec("store", in_memory("s").open)
    one.context.stores.discard("store")
    with pytest.raises(CommitError, match="declared persistent, and has no files"):
        one.commit()
    assert not schedule.remote.log.records
