"""Runs of one partition that overlap: at once, one in the other, killed, and in another order."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import statelake as sl
from statelake.dagster import StateLake
from statelake.pipelines.lake.catalog.attempts import Attempt
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.tables.tables import StateTable
from statelake.pipelines.orchestration import checks
from statelake.pipelines.orchestration.resources import Locations
from statelake.pipelines.orchestration.settings import (
    CheckSettings,
    GrowthSettings,
    JobSettings,
)
from tests.support.steps import Step, die_as_gone, do_at, stop

pytestmark = pytest.mark.full

ARCHIVE = "orders_archive_and_export"
NIGHTS = ("monday", "tuesday", "wednesday")
STEPS: list[Step] = [
    (Attempt, "__enter__", "before", 1),
    (Attempt, "__enter__", "after", 1),
    (StateTable, "replace_files", "before", 1),
    (StateTable, "replace_files", "after", 1),
    (Attempt, "commit", "before", 1),
    (Attempt, "commit", "after", 1),
]
NIGHTLY = pytest.mark.nightly


def steps(which: slice, in_ci: set[int]) -> list[Any]:
    """Steps as parameters, of which CI takes some."""
    return [
        pytest.param(step, id=f"{step[2]} {step[1]}", marks=() if at in in_ci else NIGHTLY)
        for at, step in list(enumerate(STEPS))[which]
    ]


def words(to: Path, counts: int = 40, factor: int = 1) -> Path:
    """A savepoint of so many counts."""
    rows = {"key": list(range(counts)), "value": [number * factor for number in range(counts)]}
    state = sl.NewKeyedState("count", pa.table(rows), value="Long")
    sl.write_snapshot(to, [sl.NewOperator("counter", "Long", (state,), parallelism=2)])
    return to


class Runs:
    """The component over one job, and a Dagster of its own."""

    def __init__(self, base: Path, instance: dg.DagsterInstance) -> None:
        self.base = base
        self.instance = instance
        self.savepoints = base / "savepoints"
        limits = CheckSettings(growth=GrowthSettings(each_state=3, from_bytes=1))
        job = JobSettings(
            name="orders", savepoints=str(self.savepoints), engine="local", checks=limits
        )
        lake = StateLake(lake=str(base / "lake"), exports=str(base / "exports"), jobs=[job])
        self.definitions = dg.build_defs_for_component(lake)
        self.lake = Catalog(base / "lake")

    def put(self, name: str, hour: int, counts: int = 40, factor: int = 1) -> Path:
        """A savepoint that was taken at an hour."""
        made = words(self.savepoints / name, counts, factor)
        os.utime(made / "_metadata", (1_700_000_000 + hour * 3600,) * 2)
        self.instance.add_dynamic_partitions("orders_snapshots", [name])
        return made

    def run(
        self, job: str, partition: str = "", last: str = "", config: Any = None
    ) -> dg.ExecuteInProcessResult:
        """A run over a partition, a range of them, or none."""
        ends = {"start": partition, "end": last}
        tags = {f"dagster/asset_partition_range_{end}": name for end, name in ends.items()}
        return self.definitions.resolve_job_def(job).execute_in_process(
            instance=self.instance, partition_key=None if last else partition or None,
            tags=tags if last else None, run_config=config, raise_on_error=False,
        )  # fmt: skip

    def sensed(self, name: str, cursor: str | None = None) -> Any:
        """What a sensor asks for."""
        context = dg.build_sensor_context(
            instance=self.instance, cursor=cursor, resources=dict(self.definitions.resources or {})
        )
        return self.definitions.resolve_sensor_def(name)._raw_fn(context)

    @property
    def snapshots(self) -> list[str]:
        """The snapshots, as they were imported; none is being made."""
        assert not self.lake.version().claims.attempts
        assert sl.Lake(self.lake.location).check().sound
        return [each.snapshot_id for each in self.lake.summaries("orders")]


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    """A lake without snapshots."""
    (tmp_path / "home").mkdir()
    quiet = {"telemetry": {"enabled": False}}
    with dg.DagsterInstance.local_temp(str(tmp_path / "home"), quiet) as instance:
        yield Runs(tmp_path, instance)


def told(done: dg.ExecuteInProcessResult, asset: str) -> dict[str, dict[str, Any]]:
    """What a run says of an asset, by partition."""
    return {
        str(event.partition): {
            name: value.value for name, value in event.materialization.metadata.items()
        }
        for event in done.all_events
        if event.is_step_materialization and event.asset_key == dg.AssetKey(asset.split("/"))
    }


def checked(done: dg.ExecuteInProcessResult, name: str) -> Any:
    """What a check of a run says."""
    (found,) = [each for each in done.get_asset_check_evaluations() if each.check_name == name]
    return found


def failure(done: dg.ExecuteInProcessResult) -> str:
    """Why a run failed."""
    assert not done.success
    (event,) = (event for event in done.all_events if event.is_step_failure)
    data = event.step_failure_data
    return str(data.user_failure_data.description if data.user_failure_data else data.error.cause)


def counts_of(savepoint: str | Path) -> dict[int, int]:
    """The counts of a savepoint by key."""
    (operator,) = sl.open_snapshot(savepoint, uids=["counter"]).operators
    rows = operator["count"].to_arrow()
    return dict(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))


def race(base: str) -> None:
    """One of two processes with one instance: archive the same savepoints, and say how it went."""
    quiet = {"telemetry": {"enabled": False}}
    with dg.DagsterInstance.local_temp(f"{base}/home", quiet) as instance:
        runs, outcomes = Runs(Path(base), instance), []
        Path(base, f"ready-{os.getpid()}").touch()
        while len(list(Path(base).glob("ready-*"))) < 2:
            time.sleep(0.01)
        for night in NIGHTS:
            done = runs.run(ARCHIVE, night)
            outcomes.append(told(done, "orders/state_tables")[night]["outcome"])
            assert done.success
    Path(base, f"told-{os.getpid()}.json").write_text(json.dumps(outcomes))


@pytest.mark.nightly
@pytest.mark.parametrize("attempt", range(2))
def test_two_processes_have_one_snapshot_of_each_savepoint(attempt: int, runs: Runs) -> None:
    """Both succeed; what one imported the other one found, whichever was first."""
    for hour, night in enumerate(NIGHTS):
        runs.put(night, hour, counts=40 + attempt)
    words = f"import runpy; runpy.run_path({__file__!r})['race']({str(runs.base)!r})"
    both = [subprocess.Popen([sys.executable, "-c", words], stderr=subprocess.PIPE)
            for _ in range(2)]  # fmt: skip
    for process in both:
        _, said = process.communicate(timeout=600)
        assert process.returncode == 0, said[-2000:]
    assert runs.snapshots == list(NIGHTS)
    outcomes = [json.loads(path.read_text()) for path in runs.base.glob("told-*.json")]
    assert [sorted(pair) for pair in zip(*outcomes, strict=True)] == [
        ["imported", "imported before"]
    ] * 3
    exports = list((runs.base / "exports" / "orders").iterdir())
    assert len(exports) == 6
    for path in exports:
        assert counts_of(path) == counts_of(runs.savepoints / path.name.partition("-")[0])


@pytest.mark.parametrize("step", steps(slice(6), {1, 4}))
def test_two_runs_of_a_partition_have_one_snapshot(
    step: Step, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both succeed, each exports, and one of them says that it imported nothing."""
    runs.put("monday", 1)
    inner: list[dg.ExecuteInProcessResult] = []
    with monkeypatch.context() as patch:
        do_at(patch, step, lambda: inner.append(runs.run(ARCHIVE, "monday")))
        outer = runs.run(ARCHIVE, "monday")
    assert [done.success for done in (outer, *inner)] == [True, True]
    assert runs.snapshots == ["monday"]
    of_both = [told(done, "orders/state_tables")["monday"] for done in (outer, *inner)]
    assert sorted(said["outcome"] for said in of_both) == ["imported", "imported before"]
    wrote = {said["outcome"]: said["files written"] for said in of_both}
    assert (wrote["imported before"], wrote["imported"] > 0) == (0, True)
    paths = {told(done, "orders/exported_savepoint")["monday"]["savepoint"]
             for done in (outer, *inner)}  # fmt: skip
    assert len(paths) == 2
    for path in paths:
        assert counts_of(path) == counts_of(runs.savepoints / "monday")


@pytest.mark.parametrize("step", steps(slice(5), {3}))
def test_a_killed_run_is_given_again(
    step: Step, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is in the way, and nothing is left of it."""
    runs.put("monday", 1)
    with monkeypatch.context() as patch:
        do_at(patch, step, stop)
        die_as_gone(patch)
        assert not runs.run(ARCHIVE, "monday").success
    again = runs.run(ARCHIVE, "monday")
    assert again.success
    assert told(again, "orders/state_tables")["monday"]["outcome"] == "imported"
    assert runs.snapshots == ["monday"]


@pytest.mark.parametrize("step", steps(slice(1, 5), {2}))
def test_another_savepoint_in_the_place_of_one_that_is_imported_is_refused(
    step: Step, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the run that read the old one, in words; the other run's is the snapshot."""
    place = runs.put("monday", 1)
    inner: list[dg.ExecuteInProcessResult] = []

    def exchange() -> None:
        shutil.rmtree(place)
        runs.put("monday", 2, factor=7)
        inner.append(runs.run(ARCHIVE, "monday"))

    with monkeypatch.context() as patch:
        do_at(patch, step, exchange)
        outer = runs.run(ARCHIVE, "monday")
    assert inner[0].success
    assert "changed" in failure(outer) or "has another snapshot 'monday'" in failure(outer)
    assert runs.snapshots == ["monday"]
    exported = told(inner[0], "orders/exported_savepoint")["monday"]["savepoint"]
    assert counts_of(exported) == {number: number * 7 for number in range(40)}


def test_another_savepoint_of_as_many_entries_is_not_sound(runs: Runs) -> None:
    """The check compares it with the one that was imported, not counts alone."""
    place = runs.put("monday", 1)
    assert runs.run(ARCHIVE, "monday").success
    shutil.rmtree(place)
    runs.put("monday", 1, factor=7)
    places = Locations(lake=runs.lake.location, savepoints=str(runs.savepoints), job="orders")
    passed, said = checks.integrity(places, "monday")
    assert not passed
    assert "the savepoint is another one" in said["faults"].value


def test_an_older_savepoint_that_is_imported_later_is_compared_with_older_ones(
    runs: Runs,
) -> None:
    """Growth is over time, whatever the order of runs: nothing of it grew, and all checks pass."""
    for hour, (name, counts) in enumerate((("monday", 40), ("tuesday", 45), ("wednesday", 400))):
        runs.put(name, hour, counts)
    assert runs.run(ARCHIVE, "monday").success
    assert not checked(runs.run(ARCHIVE, "wednesday"), "growth").passed
    older = runs.run(ARCHIVE, "tuesday")
    assert older.success
    growth = checked(older, "growth")
    assert (growth.passed, growth.metadata["compared with"].value) == (True, 1)
    assert told(older, "orders/state_tables")["tuesday"]["changes since"] == "monday"
    assert runs.snapshots == ["monday", "wednesday", "tuesday"]


def test_what_was_taken_last_is_exported_and_compared(runs: Runs) -> None:
    """An older snapshot that was imported later is neither the newest nor a change of states."""
    for hour, name in enumerate(NIGHTS[:2]):
        runs.put(name, hour, factor=hour + 1)
    assert runs.run(ARCHIVE, "tuesday").success
    first = runs.sensed("orders_changed_states")
    assert first.cursor == "tuesday"
    assert runs.run(ARCHIVE, "monday").success
    assert isinstance(runs.sensed("orders_changed_states", "tuesday"), dg.SkipReason)
    done = runs.run("orders_savepoint_and_verify")
    assert done.success
    (path,) = (runs.base / "exports" / "orders").glob("*-tuesday")
    assert counts_of(path) == counts_of(runs.savepoints / "tuesday")


def test_savepoints_are_archived_in_the_order_in_which_they_were_finished(runs: Runs) -> None:
    """Names of Flink's say nothing of it; so the last one is the newest in the lake, too."""
    for name, hour in (("savepoint-a", 3), ("savepoint-b", 1), ("savepoint-c", 2)):
        words(runs.savepoints / name)
        os.utime(runs.savepoints / name / "_metadata", (1_700_000_000 + hour * 3600,) * 2)
    asked = runs.sensed("orders_new_savepoints")
    assert [each.partition_key for each in asked.run_requests] == [
        "savepoint-b", "savepoint-c", "savepoint-a",
    ]  # fmt: skip


class TestBackfill:
    """Runs over ranges of partitions."""

    @pytest.fixture
    def nights(self, runs: Runs) -> Runs:
        """Three snapshots, and a file of their new type."""
        for hour, name in enumerate(NIGHTS):
            made = runs.put(name, hour)
            job = sl.Lake(runs.lake.location).job("orders", engine="local")
            job.import_snapshot(made, name, uids=["counter"])
        return runs

    def migrate(
        self, runs: Runs, first: str, last: str, change: dict[str, str]
    ) -> dg.ExecuteInProcessResult:
        """A run of the backfill of a migration."""
        spec = runs.base / "to.json"
        spec.write_text(json.dumps({"states": {"counter/count": change}}))
        config = {"ops": {"orders__migrated_tables": {"config": {"to": str(spec)}}}}
        return runs.run("orders_migrate_snapshots", first, last, config)

    def test_two_that_overlap_migrate_each_snapshot_once(
        self, nights: Runs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What the other one made is told as made before."""
        change = {"type": "Long", "expressions": "old * 10"}
        inner: list[dg.ExecuteInProcessResult] = []

        def other() -> None:
            inner.append(self.migrate(nights, "tuesday", "wednesday", change))

        with monkeypatch.context() as patch:
            do_at(patch, (Attempt, "commit", "before", 2), other)
            outer = self.migrate(nights, "monday", "tuesday", change)
        outcomes = [
            {night: said["outcome"] for night, said in told(done, "orders/migrated_tables").items()}
            for done in (outer, *inner)
        ]
        assert outcomes == [
            {"monday": "migrated", "tuesday": "migrated before"},
            {"tuesday": "migrated", "wednesday": "migrated"},
        ]
        assert sorted(nights.snapshots) == sorted(
            [*NIGHTS, *(f"{night}-migrated" for night in NIGHTS)]
        )

    def test_a_snapshot_that_fails_stops_no_other(self, nights: Runs) -> None:
        """It is named, with the reason; the others are migrated, and say so."""
        sl.Lake(nights.lake.location).job("orders")["monday"].edit_sql(
            "tuesday-migrated", "DELETE FROM counter.count WHERE key = 1"
        )
        change = {"type": "Long", "expressions": "old * 10"}
        done = self.migrate(nights, "monday", "wednesday", change)
        assert failure(done) == "1 of 3 snapshots failed: tuesday"
        outcomes = told(done, "orders/migrated_tables")
        assert {night: said["outcome"] for night, said in outcomes.items()} == {
            "monday": "migrated", "wednesday": "migrated",
        }  # fmt: skip
        (event,) = (event for event in done.all_events if event.is_step_failure)
        why = event.step_failure_data.user_failure_data.metadata["tuesday"].value
        assert "which is not what this migration makes of 'tuesday'" in why
