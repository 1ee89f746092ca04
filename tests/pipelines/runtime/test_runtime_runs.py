"""A job run again and again: state goes on, at any parallelism and in either backend, and ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.runtime import RunOptions, run_job
from statelake.state_core.errors import (
    ConflictError,
    DeclarationError,
    LakeError,
    LegalityError,
    NotFoundError,
)
from statelake.state_core.runtime.process import StreamJob
from tests.support.jobs.alert_orders import alerts_module, expected, feed, sink_rows, state_rows

alerts = alerts_module()
HOUR = 3_600_000


def options(**more: object) -> RunOptions:
    """On this machine."""
    return RunOptions(engine="local", **more)  # type: ignore[arg-type]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize("parallelisms", [(1, 1, 1), (2, 3, 1), (5, 2, 8)])
@pytest.mark.full
def test_runs_add_up(backend: str, parallelisms: tuple[int, ...], tmp_path: Path) -> None:
    """Whatever the parallelism of each, the result is that of one run over everything."""
    lake, data = Catalog(tmp_path / "lake"), tmp_path / "data"
    for part, parallelism in enumerate(parallelisms):
        feed(data, part)
        job = alerts.alerts(str(data))
        done = run_job(job, lake, options(parallelism=parallelism, backend=backend))
        assert (done.run, done.records) == (part + 1, 302 if part == 0 else 300)
    wanted, spent = expected(range(3))
    rows = sink_rows(data / "alerts")
    assert {(row["customer"], row["rule"], row["spent"]) for row in rows} == wanted
    assert len(rows) == len(wanted)
    assert state_rows(lake, 3, "alert", "spent", tmp_path) == spent
    by_rule = [rule for _, rule, _ in wanted]
    counts = state_rows(lake, 3, "count-by-rule", "count", tmp_path)
    assert counts == {rule: by_rule.count(rule) for rule in set(by_rule)}
    told = sorted(sink_row["alerts"] for sink_row in sink_rows(data / "alerts-by-rule"))
    assert told == sorted(n for count in counts.values() for n in range(1, count + 1))


def test_nothing_new_is_nothing_to_do(tmp_path: Path) -> None:
    """No run, no snapshot; unless it is to run always."""
    lake, data = Catalog(tmp_path / "lake"), tmp_path / "data"
    feed(data, 0)
    job = alerts.alerts(str(data))
    assert run_job(job, lake, options()).run == 1
    assert run_job(job, lake, options()).run == 0
    assert len(lake.summaries("alerts")) == 1
    again = run_job(job, lake, options(always=True))
    assert (again.run, again.records) == (2, 0)


def test_event_time_goes_on_with_the_slowest_source(tmp_path: Path) -> None:
    """The watermark stays behind by the delay; timers fire when it passes them, and clear state."""
    lake, data = Catalog(tmp_path / "lake"), tmp_path / "data"
    feed(data, 0)
    first = run_job(alerts.alerts(str(data)), lake, options())
    assert first.watermark == 299 - 60_000
    late = {"customer": 7, "amount": 1, "at": 3 * HOUR}
    (data / "orders" / "999.jsonl").write_text(json.dumps(late) + "\n")
    second = run_job(alerts.alerts(str(data)), lake, options())
    assert second.watermark == 3 * HOUR - 60_000
    assert state_rows(lake, 2, "alert", "spent", tmp_path) == {}


def test_a_line_that_is_still_being_written_waits(tmp_path: Path) -> None:
    """A file of JSON lines may grow; each line is read once."""
    lake, data = Catalog(tmp_path / "lake"), tmp_path / "data"
    feed(data, 0)
    file = data / "orders" / "000.jsonl"
    whole = file.read_text()
    cut = len(whole) // 2
    file.write_text(whole[:cut])
    job = alerts.alerts(str(data))
    first = run_job(job, lake, options())
    file.write_text(whole)
    second = run_job(job, lake, options())
    assert first.records - 2 + second.records == 300
    assert state_rows(lake, 2, "alert", "spent", tmp_path) == expected([0])[1]


def test_a_source_that_was_rewritten_is_refused(tmp_path: Path) -> None:
    """Nothing would be right any more."""
    lake, data = Catalog(tmp_path / "lake"), tmp_path / "data"
    feed(data, 0)
    job = alerts.alerts(str(data))
    run_job(job, lake, options())
    (data / "orders" / "000.jsonl").write_text("")
    with pytest.raises(LakeError, match=r"orders.*must only grow"):
        run_job(job, lake, options())


def test_a_job_that_can_not_restore_is_refused(tmp_path: Path) -> None:
    """Before anything is read, by the checks of a deploy."""
    lake, data = Catalog(tmp_path / "lake"), tmp_path / "data"
    feed(data, 0)
    run_job(alerts.alerts(str(data)), lake, options())
    feed(data, 1)
    job = alerts.alerts(str(data))
    job.max_parallelism = 128
    changed = StreamJob("alerts")
    changed.sources = job.sources
    stream = changed.source("more", str(data / "orders"), format="json").key_by("rule", "Long")
    stream.process(alerts.CountByRule(), uid="count-by-rule", output={"rule": alerts.pa.string()})
    with pytest.raises(LegalityError, match="can't restore"):
        run_job(changed, lake, options())
    assert run_job(alerts.alerts(str(data)), lake, options()).run == 2


def test_snapshots_of_others_are_restored_only_when_named(tmp_path: Path) -> None:
    """A first run over a job that has snapshots must say which it begins with."""
    lake, data = Catalog(tmp_path / "lake"), tmp_path / "data"
    feed(data, 0)
    run_job(alerts.alerts(str(data)), lake, options())
    from statelake.state_core.files.filesystem import Directory  # noqa: PLC0415

    Directory(tmp_path / "lake" / "alerts" / "_runs").delete_tree()
    feed(data, 1)
    with pytest.raises(NotFoundError, match="--restore"):
        run_job(alerts.alerts(str(data)), lake, options())


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    """The second is told which process has the job."""
    lake, data = Catalog(tmp_path / "lake"), tmp_path / "data"
    feed(data, 0)
    job = alerts.alerts(str(data))
    met = []

    def meanwhile(step: str) -> None:
        if step == "planned":
            with pytest.raises(ConflictError, match="is run by process"):
                run_job(job, lake, options())
            met.append(step)

    run_job(job, lake, options(observe=meanwhile))
    assert met == ["planned"]


def test_timers_are_kept_under_the_name_of_the_job_or_of_what_is_restored(tmp_path: Path) -> None:
    """As of the DataStream API V2, or of a `KeyedProcessFunction`; no other name is legal."""
    data = tmp_path / "data"
    job, lake = alerts.alerts(str(data)), Catalog(tmp_path / "lake")
    job.timers = "processing timer"
    for part, name in enumerate(("processing timer", "user-timers")):
        job.timers = name
        feed(data, part)
        run_job(job, lake, RunOptions(parallelism=2 + part, engine="local"))
    target = tmp_path / "export"
    export_snapshot(lake, "alerts", "run-00000002", target, engine="local")
    queues = {queue.name for queue in open_snapshot(target).operator("alert").timers}
    assert queues == {
        "_timer_state/processing_processing timer", "_timer_state/event_processing timer"
    }  # fmt: skip
    with pytest.raises(DeclarationError, match="timers under the name 'others'"):
        StreamJob("other", timers="others")
