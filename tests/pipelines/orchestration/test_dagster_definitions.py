"""What Dagster is given: its names, and what the sensor and the schedule ask for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import dagster as dg
import pytest
import yaml

from statelake.pipelines.orchestration.definitions import definitions
from statelake.pipelines.orchestration.resources import Locations
from tests.support.savepoints.golden_cases import golden_cases

ROOT = Path(__file__).resolve().parents[3]
ASSETS = ["savepoint", "state_tables", "restore_plan", "exported_savepoint"]


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """A Dagster of its own."""
    home = tmp_path / "dagster"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home), {"telemetry": {"enabled": False}}) as instance:
        yield instance


@pytest.fixture
def locations(tmp_path: Path) -> Locations:
    """Places below the test's own, with a directory for savepoints."""
    (tmp_path / "savepoints").mkdir()
    return Locations(
        savepoints=str(tmp_path / "savepoints"),
        lake=str(tmp_path / "lake"),
        exports=str(tmp_path / "exports"),
        job="orders",
    )


def put(locations: Locations, name: str, *, finished: bool = True, age: int = 0) -> Path:
    """A savepoint in the directory that is watched, or one that Flink still writes."""
    source = golden_cases("wordcount", form="canonical")[0].snapshot
    copy = Path(shutil.copytree(source, locations.savepoint(name)))
    if finished:
        os.utime(copy / "_metadata", (1_800_000_000 - age,) * 2)
    else:
        (copy / "_metadata").unlink()
    return copy


class TestNames:
    """Everything that the UI shows is there under the name that the documentation uses."""

    def test_it_loads(self) -> None:
        """Dagster finds nothing to complain of, and `make ui` loads the same."""
        dg.Definitions.validate_loadable(definitions)
        workspace = yaml.safe_load((ROOT / "workspace.yaml").read_text("utf-8"))
        (module,) = (
            location["python_module"]["module_name"] for location in workspace["load_from"]
        )
        assert module == "statelake.pipelines.orchestration.definitions"

    def test_assets(self) -> None:
        """Four assets in a row, migrations and upgrades, over dynamic partitions."""
        graph = definitions.resolve_asset_graph()
        names = {key.to_user_string() for key in graph.get_all_asset_keys()}
        logs = "migrated_checkpoint_logs"
        assert names == {*ASSETS, "migrated_tables", "upgraded_tables", logs}
        for before, after in pairwise(ASSETS):
            assert graph.get(dg.AssetKey(after)).parent_keys == {dg.AssetKey(before)}
        for name in names:
            partitions = graph.get(dg.AssetKey(name)).partitions_def
            assert isinstance(partitions, dg.DynamicPartitionsDefinition)
            assert partitions.name == ("checkpoint_logs" if name == logs else "snapshots")
            assert graph.get(dg.AssetKey(name)).description

    def test_checks(self) -> None:
        """What is checked on the tables; a lack of integrity or of legality stops a run."""
        graph = definitions.resolve_asset_graph()
        blocking = {
            asset_check_key.to_user_string(): graph.get_check_spec(asset_check_key).blocking
            for asset_check_key in graph.asset_check_keys
        }
        assert blocking == {
            "state_tables:integrity": True,
            "state_tables:compatibility": False,
            "state_tables:growth": False,
            "state_tables:skew": False,
            "state_tables:legality": True,
        }

    def test_job_schedule_and_sensor(self) -> None:
        """One job of all assets, run at night and when a savepoint appears."""
        job = definitions.resolve_job_def("archive_and_export")
        assert {key.to_user_string() for key in job.asset_layer.executable_asset_keys} == set(
            ASSETS
        )
        schedule = definitions.resolve_schedule_def("nightly_archive")
        assert (schedule.cron_schedule, schedule.job_name) == ("0 2 * * *", "archive_and_export")
        assert definitions.resolve_sensor_def("new_savepoints").job_name == "archive_and_export"


class TestSensor:
    """A new directory with a savepoint becomes a partition and a run, once."""

    @staticmethod
    def tick(instance: dg.DagsterInstance, locations: Locations) -> list[str]:
        """Evaluate, and do what the daemon does: the partitions that runs are requested of."""
        done = definitions.resolve_sensor_def("new_savepoints")._raw_fn(
            dg.build_sensor_context(instance=instance, resources={"locations": locations})
        )
        if isinstance(done, dg.SkipReason):
            assert locations.savepoints_location in str(done.skip_message)
            return []
        for request in done.dynamic_partitions_requests:
            instance.add_dynamic_partitions("snapshots", list(request.partition_keys))
        for run_request in done.run_requests:
            assert run_request.run_key == run_request.partition_key
            assert instance.has_dynamic_partition("snapshots", run_request.partition_key)
        return [run_request.partition_key for run_request in done.run_requests]

    def test_each_savepoint_once(self, instance: dg.DagsterInstance, locations: Locations) -> None:
        """All that are there at first, then only new ones."""
        put(locations, "savepoint-1")
        put(locations, "savepoint-2")
        assert self.tick(instance, locations) == ["savepoint-1", "savepoint-2"]
        assert self.tick(instance, locations) == []
        put(locations, "savepoint-3")
        assert self.tick(instance, locations) == ["savepoint-3"]
        assert self.tick(instance, locations) == []
        assert sorted(instance.get_dynamic_partitions("snapshots")) == [
            "savepoint-1",
            "savepoint-2",
            "savepoint-3",
        ]

    def test_not_before_it_is_finished(
        self, instance: dg.DagsterInstance, locations: Locations
    ) -> None:
        """Flink writes `_metadata` last: until then a directory is no savepoint."""
        half = put(locations, "half", finished=False)
        Path(locations.savepoint("notes.txt")).write_text("no savepoint")
        Path(locations.savepoint("empty")).mkdir()
        assert self.tick(instance, locations) == []
        (half / "_metadata").write_bytes(b"\x49\x60\x67\x2d")
        assert self.tick(instance, locations) == ["half"]

    def test_a_partition_that_is_known_is_not_new(
        self, instance: dg.DagsterInstance, locations: Locations
    ) -> None:
        """What the schedule or a user added before is not run again."""
        put(locations, "savepoint-1")
        instance.add_dynamic_partitions("snapshots", ["savepoint-1"])
        assert self.tick(instance, locations) == []

    def test_a_directory_that_is_not_there_yet(
        self, instance: dg.DagsterInstance, tmp_path: Path
    ) -> None:
        """Nothing to do, and no error either."""
        assert self.tick(instance, Locations(savepoints=str(tmp_path / "later"))) == []


class TestSchedule:
    """Every night the savepoint that was written last."""

    @staticmethod
    def tick(instance: dg.DagsterInstance, locations: Locations) -> list[str]:
        """Evaluate as the daemon does: the partitions that runs are requested of."""
        context = dg.build_schedule_context(
            instance=instance,
            resources={"locations": locations},
            repository_def=definitions.get_repository_def(),
        )
        done = definitions.resolve_schedule_def("nightly_archive").evaluate_tick(context)
        assert bool(done.run_requests) is not bool(done.skip_message)
        return [str(run_request.partition_key) for run_request in done.run_requests or []]

    def test_the_newest(self, instance: dg.DagsterInstance, locations: Locations) -> None:
        """By the time its `_metadata` was written, not by its name; its partition is there."""
        put(locations, "savepoint-1", age=300)
        put(locations, "savepoint-2", age=100)
        put(locations, "savepoint-3", age=200)
        put(locations, "savepoint-4", finished=False)
        assert self.tick(instance, locations) == ["savepoint-2"]
        assert list(instance.get_dynamic_partitions("snapshots")) == ["savepoint-2"]

    def test_nothing_to_archive(self, instance: dg.DagsterInstance, locations: Locations) -> None:
        """No savepoint, no run."""
        assert self.tick(instance, locations) == []


class TestLocations:
    """Places come from the resource, else from the environment, else they are beside us."""

    def test_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Read when a run needs it; what is configured wins."""
        monkeypatch.setenv("STATELAKE_SAVEPOINTS", "/data/savepoints/")
        monkeypatch.setenv("STATELAKE_JOB", "fraud")
        found = Locations()
        assert found.savepoint("one") == "/data/savepoints/one"
        assert found.job_name == "fraud"
        assert Locations(job="orders").job_name == "orders"

    def test_without_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Directories of the working directory."""
        for name in ("SAVEPOINTS", "LAKE", "EXPORTS", "JOB"):
            monkeypatch.delenv(f"STATELAKE_{name}", raising=False)
        found = Locations()
        assert (found.savepoints_location, found.exports_location) == ("savepoints", "exports")
        assert found.open_lake().catalog.location == str(Path("lake").absolute())
        assert found.job_name == "job"
