"""Dagster and a real cluster: a savepoint is taken and archived, a job rescaled, a loss told."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from statelake.pipelines.live.cluster import FlinkCluster
from statelake.pipelines.live.rescale_steps import STEPS, WAY_BACK
from statelake.pipelines.orchestration.component import StateLake
from statelake.pipelines.orchestration.settings import (
    CanarySettings,
    DrillSettings,
    FlinkSettings,
    JobSettings,
)
from tests.integration.flink.live_cluster import LiveFlink, counted

pytestmark = [pytest.mark.flink, pytest.mark.full]


@dataclass
class Watched:
    """A job that counts, as Dagster sees it."""

    cluster: FlinkCluster
    name: str
    savepoints: Path
    instance: dg.DagsterInstance
    definitions: dg.Definitions
    of_a_wrong_jar: dg.Definitions

    def run(self, job: str, *, partition: str = "", config: Any = None, wrong: bool = False) -> Any:
        """A Dagster job, in this process."""
        definitions = self.of_a_wrong_jar if wrong else self.definitions
        return definitions.resolve_job_def(job).execute_in_process(
            instance=self.instance,
            partition_key=partition or None,
            run_config=config,
            raise_on_error=False,
        )

    def rescale(self, **wanted: Any) -> Any:
        """The job of a rescale, with its config."""
        return self.run("counting_rescale_job", config={"ops": {"rescale": {"config": wanted}}})

    def look(self, sensor: str, cursor: str | None = None) -> Any:
        """What a sensor asks for."""
        context = dg.build_sensor_context(
            instance=self.instance,
            cursor=cursor,
            resources=dict(self.definitions.resources or {}),
        )
        return self.definitions.resolve_sensor_def(sensor)._raw_fn(context)

    def take(self) -> str:
        """A savepoint: its name."""
        done = self.run("counting_take_savepoint")
        assert done.success
        return str(done.output_for_node("take_savepoint"))

    def runs_at(self) -> tuple[int, int]:
        """Its parallelism and max parallelism: one job of its name runs."""
        job = self.cluster.job(self.cluster.find_job(self.name).id)
        assert job.runs
        return job.parallelism, job.max_parallelism


def told(done: Any) -> dict[str, Any]:
    """The metadata of the step that failed, and its description."""
    (failure,) = (event for event in done.all_events if event.is_step_failure)
    data = failure.step_failure_data.user_failure_data
    return {"": data.description, **{name: value.value for name, value in data.metadata.items()}}


@pytest.fixture(scope="module")
def watched(
    live_flink: LiveFlink, counter: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    """A job that runs, with a lake and a Dagster of its own; nothing of it is left behind."""
    root = tmp_path_factory.mktemp("watched")
    for folder in ("home", "savepoints"):
        (root / folder).mkdir()
    name = f"watched {uuid.uuid4().hex[:8]}"

    def defined(*more: str) -> dg.Definitions:
        flink = FlinkSettings(
            url=live_flink.url, job=name, jar=str(counter), entry_class="LiveCounter",
            arguments=[name], path_map={"file:/": "/"},
            canary=CanarySettings(arguments=["canary", *more]),
            drill=DrillSettings(
                directory=str(root / "savepoints"), arguments=["drill", *more], rpo="1h", rto="5min"
            ),
        )  # fmt: skip
        job = JobSettings(
            name="counting", savepoints=str(root / "savepoints"), engine="local", flink=flink
        )
        return dg.build_defs_for_component(
            StateLake(lake=str(root / "lake"), exports=str(root / "exports"), jobs=[job])
        )

    settings = {"telemetry": {"enabled": False}}
    with (
        live_flink.client() as cluster,
        dg.DagsterInstance.local_temp(str(root / "home"), settings) as instance,
    ):
        jar = cluster.upload_jar(str(counter))
        started = cluster.run_jar(jar, entry_class="LiveCounter", arguments=[name], parallelism=2)
        cluster.wait_until_running(started)
        cluster.delete_jar(jar)
        yield Watched(cluster, name, root / "savepoints", instance, defined(), defined("text"))
        for running in cluster.jobs():
            if running.name == name:
                cluster.cancel(running.id)


def test_a_savepoint_is_taken_found_and_archived(watched: Watched) -> None:
    """In the directory of the job; the sensor makes it a partition, and the lake has its rows."""
    name = watched.take()
    assert len(counted(str(watched.savepoints / name))) == 50
    result = watched.look("counting_new_savepoints")
    (request,) = result.run_requests
    assert request.partition_key == name
    for added in result.dynamic_partitions_requests:
        watched.instance.add_dynamic_partitions(added.partitions_def_name, added.partition_keys)
    done = watched.run("counting_archive_and_export", partition=name)
    assert done.success
    told_of = {
        event.asset_key.to_user_string(): event.materialization.metadata
        for event in done.get_asset_materialization_events()
    }
    assert told_of["counting/counter/count"]["dagster/row_count"].value == 50
    assert isinstance(watched.look("counting_new_savepoints"), dg.SkipReason)


def test_a_snapshot_is_proved_to_be_restorable(watched: Watched) -> None:
    """Or not, with Flink's reason; the job itself runs on, and nothing is left of the canary."""
    (name,) = watched.instance.get_dynamic_partitions("counting_snapshots")
    for wrong in (False, True):
        done = watched.run("counting_prove_restorable", partition=name, wrong=wrong)
        assert done.success
        (check,) = done.get_asset_check_evaluations()
        assert (check.check_name, check.passed) == ("restorable", not wrong)
        reason = "StateMigrationException" if wrong else ""
        assert reason in check.metadata["why not"].value
    canaries = [job for job in watched.cluster.jobs() if job.name == "canary"]
    assert all(job.ended for job in canaries)
    assert watched.runs_at()[0] == 2
    # who materializes the tables has not asked for a program to be run
    selected = dg.AssetKey(["counting", "state_tables"])
    implicit = watched.definitions.resolve_implicit_global_asset_job_def()
    again = implicit.get_subset(asset_selection={selected}).execute_in_process(
        instance=watched.instance, partition_key=name
    )
    names = {check.check_name for check in again.get_asset_check_evaluations()}
    assert "integrity" in names
    assert "restorable" not in names


def test_a_drill_says_how_old_and_how_long(watched: Watched) -> None:
    """It restores the newest savepoint; with another type it fails, with Flink's reason."""
    (savepoint,) = watched.savepoints.iterdir()
    for wrong in (False, True):
        done = watched.run("counting_run_drill", wrong=wrong)
        assert done.success
        (check,) = done.get_asset_check_evaluations()
        assert (check.check_name, check.passed) == ("drill", not wrong)
        metadata = {name: value.value for name, value in check.metadata.items()}
        assert metadata["snapshot"] == str(savepoint)
        assert metadata["RPO (seconds)"] > 0
        assert ("RTO (seconds)" in metadata) is not wrong
        assert metadata["allowed"] == "RPO 1h, RTO 5min"
        assert ("StateMigrationException" in metadata["why not"]) is wrong
    drills = [job for job in watched.cluster.jobs() if job.name == "drill"]
    assert drills
    assert all(job.ended for job in drills)
    assert savepoint.exists()
    assert watched.runs_at()[0] == 2


def test_a_job_is_rescaled_by_its_config_and_put_back(watched: Watched) -> None:
    """The run of one that was put back fails, with the steps; the count goes on through both."""
    before = counted(str(watched.savepoints / watched.take()))
    done = watched.rescale(parallelism=3, max_parallelism=300)
    assert done.success
    assert watched.runs_at() == (3, 300)
    (output,) = (event.step_output_data for event in done.all_events if event.is_successful_output)
    values = {name: value.value for name, value in output.metadata.items()}
    assert values["outcome"] == "rescaled"
    assert all(f"| {step.name} |" in values["steps"] for step in STEPS)
    running = watched.cluster.find_job(watched.name).id
    assert values["Flink UI"] == f"{watched.cluster.url}/#/job/running/{running}/overview"

    failed = watched.rescale(parallelism=2, entry_class="Nobody")
    assert not failed.success
    put_back = told(failed)
    assert put_back[""].startswith("the job was put back: run: ")
    assert put_back["outcome"] == "put back"
    assert all(f"| {step.name} |" in put_back["steps"] for step in WAY_BACK)
    assert watched.runs_at() == (3, 300)
    after = counted(str(watched.savepoints / watched.take()))
    assert all(after[key] > before[key] for key in before)


def test_a_job_that_was_cancelled_is_lost(watched: Watched) -> None:
    """The sensor has nothing to tell while it runs; then the run that it asks for fails."""
    runs = watched.look("counting_lost_job")
    assert not runs.run_requests
    job = watched.cluster.find_job(watched.name)
    watched.cluster.cancel(job.id)
    lost = watched.look("counting_lost_job", runs.cursor)
    (request,) = lost.run_requests
    done = watched.run("counting_report_lost_job", config=request.run_config)
    assert not done.success
    message = told(done)
    assert message["state"] == "CANCELED"
    assert message["last completed checkpoint"].startswith("file:")  # it may be a savepoint
    assert job.id in message["Flink UI"]
    assert isinstance(watched.look("counting_lost_job", lost.cursor), dg.SkipReason)
    refused = watched.run("counting_take_savepoint")
    assert not refused.success
