"""Whatever dies, is late or fails: what is restored is the last record in the log, exactly."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from statelake.state_core.runtime.commit import (
    RestoreDecision,
    RestoreSource,
    TaskBackupManager,
    TaskStores,
)
from statelake.state_core.runtime.commit.backends import changelog_backend
from statelake.state_core.runtime.commit.backends.blob_backend import read_index
from statelake.state_core.runtime.commit.contract.futures import done
from statelake.state_core.runtime.commit.records.records import BLOB_STORE_FACTORY
from statelake.state_core.runtime.commit.records.snapshot_index import reachable_blobs
from statelake.state_core.runtime.commit.tasks import task_start
from tests.support.jobs.commit_simulation import Life, Plan, Schedule
from tests.support.jobs.commit_steps import STEPS, Step, crash_table, order
from tests.support.jobs.commit_world import Fate, KilledError, _Blobs

pytestmark = pytest.mark.thinned(2)

DOCS = Path(__file__).parents[4] / "docs" / "commit.md"
PART = 250
CONFIG = {
    "stores.store.changelog": "kafka.store-changelog",
    "stores.store.backup.factories": "blob_store,changelog,memory",
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of commits fail here as they should: nobody reads of it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def commit_and_wait(life: Life) -> None:
    """A commit with all that follows."""
    life.commit()
    life.commits.wait()


def run(seeds: range) -> Counter[str]:
    """Run schedules; a failure names its seed."""
    ends: Counter[str] = Counter()
    for seed in seeds:
        schedule = Schedule(seed)
        try:
            schedule.run()
        except BaseException as error:
            raise AssertionError(f"the schedule of seed {seed}") from error
        ends.update(schedule.ended)
    return ends


@pytest.mark.thinned(4)
@pytest.mark.parametrize("part", range(8))
@pytest.mark.full
def test_schedules_restore_the_last_record(part: int) -> None:
    """Two thousand schedules; lives end in every way in each part of them."""
    ends = run(range(part * PART, (part + 1) * PART))
    assert min(ends["killed"], ends["failed"], ends["ended"]) > PART / 10


@pytest.mark.thinned(1)
@pytest.mark.full
@pytest.mark.parametrize(
    "part",
    [*range(4), *(pytest.param(part, marks=pytest.mark.nightly) for part in range(4, 100))],
)
def test_a_hundred_thousand_schedules_restore_the_last_record(part: int) -> None:
    """The same, with other seeds: 4,000 of them in each CI, all of them each night."""
    ends = run(range(1_000_000 + part * 1000, 1_000_000 + (part + 1) * 1000))
    assert min(ends["killed"], ends["failed"], ends["ended"]) > 100


SABOTAGE: dict[str, tuple[object, str, Callable[..., object]]] = {
    "changes that were never committed stay": (changelog_backend, "undoing", lambda *_: ()),
    "stores are not flushed": (TaskStores, "flush", lambda _: None),
    "local checkpoints that are not the log's stay": (
        TaskStores, "drop_checkpoints", lambda *_: None
    ),
    "blobs of a commit that is done expire": (_Blobs, "make_permanent", lambda *_: None),
    "nothing is cleaned up": (TaskBackupManager, "clean_up", lambda *_: done(None)),
    "any local checkpoint is used": (
        task_start, "decide_restore",
        lambda *arguments, **_: RestoreDecision(
            RestoreSource.LOCAL if arguments[2] else RestoreSource.EMPTY
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SABOTAGE)
def test_the_simulation_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is left out, some schedule of the first hundred fails."""
    owner, attribute, instead = SABOTAGE[name]
    monkeypatch.setattr(owner, attribute, instead)
    with pytest.raises(AssertionError, match="the schedule of seed"):
        run(range(100))


def test_a_schedule_is_its_seed() -> None:
    """The same seed does the same, so that a failure can be looked into."""
    one, other = Schedule(5), Schedule(5)
    one.run()
    other.run()
    assert one.remote.log.records == other.remote.log.records
    assert one.ended == other.ended


def test_the_observer_is_told_every_step_in_order() -> None:
    """As the table has them."""
    fate = Fate()
    life = Life(Schedule(0), Plan({"store": True}, CONFIG), 0, fate)
    life.start()
    life.process()
    commit_and_wait(life)
    assert fate.steps == [step.name for step in STEPS]
    beside = [step.beside for step in STEPS]
    assert beside == sorted(beside)


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("host", [0, 1])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_crash_before_a_step_leaves_what_the_table_says(
    step: Step, host: int, persistent: bool
) -> None:
    """And the next start, there or on another host, restores what the table says."""
    schedule = Schedule(1)
    config = CONFIG if persistent else CONFIG | {"stores.store.backup.factories": "changelog"}
    plan = Plan({"store": persistent}, config)
    life = Life(schedule, plan, 0, Fate(kill_before=(step.name, 2)))
    life.start()
    life.process()
    commit_and_wait(life)
    before = life.commits._last_id
    life.process()
    with pytest.raises(KilledError):
        commit_and_wait(life)
    this = life.commits._last_id
    assert before is not None
    assert this is not None
    assert this > before
    last = schedule.last(plan)
    assert last is not None
    assert last.id == (this if step.restores_this else before)
    blobs = schedule.remote.blobs
    if persistent:
        assert (this in life.context.stores.marked("store")) is step.marked
        index = read_index(blobs, last.markers[BLOB_STORE_FACTORY]["store"])
        needed = {last.markers[BLOB_STORE_FACTORY]["store"], *reachable_blobs(index.directory)}
        useless = {blob for blob in blobs.blobs if blob not in needed and str(this) in blob}
        assert bool(useless) is step.sent
    if not step.restores_this:
        schedule.committed.pop(this, None)
    again = Life(schedule, plan, host, Fate())
    again.start()
    assert again.commits.last == last


def test_the_document_has_the_table_and_the_order() -> None:
    """As they are made of the steps that the commit itself names."""
    text = DOCS.read_text("utf-8")
    assert crash_table() in text
    assert order() in text
