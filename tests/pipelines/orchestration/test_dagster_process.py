"""Process functions in Dagster: checked first, run over what is new, and told of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.orchestration.definitions import definitions
from statelake.pipelines.orchestration.resources import Locations
from tests.support.jobs.alert_orders import EXAMPLE, expected, feed, sink_rows

pytestmark = pytest.mark.usefixtures("own_registry")

WRONG = """
from statelake.state_core.runtime.declarations import StateDeclarations
from statelake.state_core.runtime.process import OneInputStreamProcessFunction, StreamJob

COUNT = StateDeclarations.value_state("count", "Long")

class Counting(OneInputStreamProcessFunction):
    def uses_states(self):
        return {COUNT}
    def process_record(self, record, output, ctx):
        pass

JOB = StreamJob("wrong")
JOB.source("words", "words.jsonl").process(Counting(), uid="count", output={})
"""


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """A Dagster of its own."""
    home = tmp_path / "dagster"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home), {"telemetry": {"enabled": False}}) as instance:
        yield instance


def launched(
    instance: dg.DagsterInstance, tmp_path: Path, named: str, **more: Any
) -> dg.ExecuteInProcessResult:
    """The job, run over the test's own places."""
    config = {"job": named, "engine": "local", **more}
    return definitions.resolve_job_def("run_process_functions").execute_in_process(
        run_config={
            "ops": {"check_declarations": {"config": config}, "run_functions": {"config": config}}
        },
        resources={"locations": Locations(lake=str(tmp_path / "lake"))},
        instance=instance,
        raise_on_error=False,
    )


@pytest.mark.full
def test_run_after_run(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each launch takes what is new; its metadata says what came of it."""
    monkeypatch.chdir(tmp_path)
    named = f"{EXAMPLE}:JOB"
    for part in range(2):
        feed(tmp_path / "alerts-data", part)
        done = launched(instance, tmp_path, named)
        assert done.success
        assert done.output_for_node("run_functions") == f"run-{part + 1:08d}"
        (event,) = [
            event for event in done.events_for_node("run_functions") if event.is_successful_output
        ]
        told = event.step_output_data.metadata
        assert told["records in"].value == (302 if part == 0 else 300)
        assert told["records a second"].value > 0
        assert told["state bytes"].value > 0
        assert set(told["seconds"].value) == {"restore", "process", "write", "commit"}
        assert told["not read yet"].value == {"orders": {"bytes": 0}, "rules": {"bytes": 0}}
        assert (told["read"].value["orders"]["bytes"] > 0, told["runs"].value) == (True, 1)
    rows = sink_rows(tmp_path / "alerts-data" / "alerts")
    assert len(rows) == len(expected(range(2))[0])
    assert len(Catalog(tmp_path / "lake").summaries("alerts")) == 2


@pytest.mark.full
def test_runs_go_on_until_nothing_is_new(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As configured, with metrics for Prometheus, and each step in the log."""
    monkeypatch.chdir(tmp_path)
    feed(tmp_path / "alerts-data", 0)
    more = {"until_idle": True, "metrics": str(tmp_path / "run.prom")}
    done = launched(instance, tmp_path, f"{EXAMPLE}:JOB", **more)
    assert done.success
    assert 'statelake_run_failed{job="alerts"} 0' in (tmp_path / "run.prom").read_text()
    logged = [entry.user_message for entry in instance.all_logs(done.run_id)]
    assert "run 1: operator alert" in logged


@pytest.mark.full
def test_state_goes_to_a_blob_store_too(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And comes from there; what its commits cost is what `watch_commits` shows."""
    monkeypatch.chdir(tmp_path)
    named, places = f"{EXAMPLE}:JOB", {"commit_to": [f"blob={tmp_path / 'blobs'}"]}
    for part, restore_from in enumerate(("lake", "blob")):
        feed(tmp_path / "alerts-data", part)
        assert launched(instance, tmp_path, named, **places, restore_from=restore_from).success
    rows = sink_rows(tmp_path / "alerts-data" / "alerts")
    assert len(rows) == len(expected(range(2))[0])
    watched = definitions.resolve_job_def("watch_commits").execute_in_process(
        run_config={"ops": {"report_commits": {"config": {"job": "alerts"}}}},
        resources={"locations": Locations(lake=str(tmp_path / "lake"))},
        instance=instance,
    )
    counts = watched.output_for_node("report_commits")
    assert counts["commits"] == 2 * 2 * 2  # runs, operators, subtasks
    assert counts["files_sent"] > 0
    failed = launched(instance, tmp_path, named, restore_from="blob")
    assert not failed.success


def test_what_is_not_legal_does_not_run(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    """The check fails, with its faults, and the run is skipped."""
    path = tmp_path / "wrong_job.py"
    path.write_text(WRONG)
    done = launched(instance, tmp_path, f"{path}:JOB")
    assert not done.success
    (failure,) = [
        event for event in done.events_for_node("check_declarations") if event.is_step_failure
    ]
    metadata = failure.step_failure_data.user_failure_data.metadata
    assert "NONE over Non-Keyed" in str(metadata["faults"].value)
    assert not any(event.is_step_start for event in done.events_for_node("run_functions"))


def test_the_schedule_wants_a_job() -> None:
    """It asks for a run of what is declared; nothing is, by default."""
    for named, asked in (("", (0, True)), ("jobs.py:JOB", (1, False))):
        context = dg.build_schedule_context(
            resources={"locations": Locations(declared=named)},
            repository_def=definitions.get_repository_def(),
        )
        done = definitions.resolve_schedule_def("frequent_run").evaluate_tick(context)
        assert (len(done.run_requests or []), bool(done.skip_message)) == asked
