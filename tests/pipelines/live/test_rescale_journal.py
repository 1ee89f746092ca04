"""The journal of a rescale: whose it is, and what anybody else may have written into it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.processes import _begun
from statelake.pipelines.lake.verify.verified_savepoints import take_savepoint
from statelake.pipelines.live.cluster import FlinkCluster
from statelake.pipelines.live.connection import ConnectionSettings
from statelake.pipelines.live.jars import JarRun, Jars
from statelake.pipelines.live.live_rescaling import rescale_job
from statelake.pipelines.live.requests import Rescale
from statelake.pipelines.live.rescale_journal import (
    Journal,
    ended_journals,
    open_journal,
    start_journal,
)
from statelake.pipelines.live.rescale_steps import STEPS, WAY_BACK, RescalePlan, Work
from statelake.state_core.errors import (
    ConflictError,
    DamagedLakeError,
    NotFoundError,
    StateError,
    UnsafePathError,
)
from tests.support.fake_rest import Answer, FakeRest

JOB = "0123456789abcdef" * 2
GONE = 2**31 - 2  # no process has that number


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """A directory that is to be a lake."""
    return Catalog(tmp_path / "lake")


def started(lake: Catalog) -> Journal:
    """A rescale that has begun."""
    return start_journal(
        lake, "orders", flink_job=JOB, parallelism=3, max_parallelism=0, old_parallelism=2
    )


def file_of(lake: Catalog) -> Path:
    """The only journal."""
    (found,) = Path(lake.location).glob("_statelake/rescales/orders/*.json")
    return found


def change(lake: Catalog, **values: Any) -> None:
    """Write something else into it."""
    file = file_of(lake)
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def test_messages_have_nothing_of_the_lakes_credentials(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They name the lake as it may be shown, not what opens it in other processes."""
    started(lake)
    change(lake, process=os.getppid(), begun=_begun(os.getppid()))
    lake.location = "s3://key:secret@bucket/lake"
    monkeypatch.setattr(lake, "latest", lambda _: None)
    program = JarRun(jar_id="a.jar")
    cluster = FlinkCluster(ConnectionSettings("http://127.0.0.1:1"))
    request = Rescale(cluster, JOB, program, savepoints="s3://bucket/sp", exports="/sp")
    plan = RescalePlan("other", request)
    for fail in (
        lambda: started(lake),
        lambda: open_journal(lake, "orders"),
        lambda: take_savepoint(lake, "orders", "exports"),
        lambda: rescale_job(lake, plan, roll_back=True),
    ):
        with pytest.raises((ConflictError, NotFoundError)) as error:
            fail()
        assert error.value.place == lake.directory.uri


def test_what_was_done_is_there_again(lake: Catalog) -> None:
    """Every field, until it has an outcome."""
    journal = started(lake)
    journal.savepoint = "savepoint-012345-0123456789ab"
    journal.record(lake, "orders", "stop", "savepoint")
    again = open_journal(lake, "orders")
    assert again == journal
    assert again.has_done("stop")
    assert not again.has_done("import")
    assert open_journal(lake, "others") is None
    again.outcome = "rescaled"
    again.write(lake, "orders")
    assert open_journal(lake, "orders") is None
    assert ended_journals(lake, "orders") == [again]


def test_two_are_not_at_work_at_once(lake: Catalog) -> None:
    """One that began at the same moment, one in another process, one elsewhere."""
    journal = started(lake)
    with pytest.raises(ConflictError, match="at this moment"):
        started(lake)
    change(lake, process=os.getppid(), begun=_begun(os.getppid()))
    with pytest.raises(ConflictError, match="--take-over"):
        open_journal(lake, "orders")
    assert open_journal(lake, "orders", take_over=True) == journal
    change(lake, process=GONE)
    assert open_journal(lake, "orders") == journal
    change(lake, host="elsewhere", processes="elsewhere", started=time.time() - 48 * 3600)
    with pytest.raises(ConflictError, match="elsewhere"):  # however old: clocks say nothing
        open_journal(lake, "orders")


@pytest.mark.parametrize(
    "forged",
    [
        {"savepoint": "../../elsewhere"},
        {"savepoint": "/etc"},
        {"savepoint": ".."},
        {"savepoint": "a/b"},
        {"savepoint": None},
        {"flink_job": "../config"},
        {"new_job": 1},
        {"trigger": "F" * 32},
        {"parallelism": -1},
        {"max_parallelism": 1 << 16},
        {"old_parallelism": True},
        {"old_parallelism": 1.5},
        {"steps": {"step": "stop"}},
        {"steps": [{"step": "stop"}]},
        {"steps": [{"step": 1, "at": "", "did": ""}]},
        {"snapshot": ["x"]},
        {"process": 0},
        {"started": -1},
    ],
    ids=str,
)
def test_what_no_rescale_wrote_is_refused(lake: Catalog, forged: dict[str, Any]) -> None:
    """By name, before anything is done with it."""
    started(lake)
    change(lake, **forged)
    with pytest.raises(DamagedLakeError, match=next(iter(forged))):
        open_journal(lake, "orders")


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "{}"])
def test_what_is_no_journal_is_refused(lake: Catalog, text: str) -> None:
    """In a sentence."""
    started(lake)
    file_of(lake).write_text(text)
    with pytest.raises(DamagedLakeError):
        open_journal(lake, "orders")


def test_no_job_is_cancelled_that_a_forged_journal_names(lake: Catalog) -> None:
    """One that was not started from the rescale's own export is somebody else's."""
    journal = started(lake)
    running = {
        "jid": journal.new_job, "name": "payments", "state": "RUNNING",
        "vertices": [{"parallelism": 1, "status": "RUNNING"}],
    }  # fmt: skip
    checkpoints = {
        "counts": {"completed": 1}, "history": [],
        "latest": {"restored": {"external_path": "s3://bucket/savepoints/of-payments"}},
    }  # fmt: skip

    def answer(_: str, path: str) -> Answer:
        return Answer(checkpoints if path.endswith("/checkpoints") else running)

    program = JarRun(jar_id="a.jar")
    with FakeRest(answer) as server:
        cluster = FlinkCluster(ConnectionSettings(server.url))
        request = Rescale(cluster, JOB, program, savepoints="s3://bucket/sp", exports="/sp")
        work = Work(lake, RescalePlan("orders", request), journal, Jars(cluster), "local")
        for step in (STEPS[-1], WAY_BACK[0]):
            with pytest.raises(DamagedLakeError, match="of-payments, not from rescaled-"):
                step.do(work)
    assert {method for method, *_ in server.asked} == {"GET"}


def test_links_are_not_followed(lake: Catalog, tmp_path: Path) -> None:
    """Neither for reading nor for writing."""
    journal = started(lake)
    file = file_of(lake)
    kept = tmp_path / "kept.json"
    file.rename(kept)
    file.symlink_to(kept)
    with pytest.raises(UnsafePathError):
        open_journal(lake, "orders")
    before = kept.read_bytes()
    with pytest.raises(StateError):
        journal.write(lake, "orders")
    assert kept.read_bytes() == before


def test_other_files_are_none(lake: Catalog) -> None:
    """They are left alone."""
    journal = started(lake)
    folder = file_of(lake).parent
    for name in ("notes.txt", "x.json", "20261122T000000000000.json.0123abcd.part"):
        (folder / name).write_text("no journal")
    assert open_journal(lake, "orders") == journal
    assert len(list(folder.iterdir())) == 4
