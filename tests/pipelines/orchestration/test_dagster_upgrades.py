"""Upgrades in Dagster: of snapshots of Flink 1 to Flink 2, and for a changed query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import statelake as sl
from statelake.dagster import StateLake
from statelake.pipelines.orchestration.checks import changed_query
from statelake.pipelines.orchestration.resources import Locations
from statelake.pipelines.orchestration.settings import ChangedQuerySettings, JobSettings
from tests.support.savepoints.kryo_jobs import jdk_savepoint
from tests.support.savepoints.sql_jobs import unpack_sql_job, unpack_sql_plans

NIGHTS = ("monday", "tuesday")
# runs an asset's job over one night: whether it succeeded, and the metadata
Run = Callable[[str, str, dict[str, Any]], tuple[bool, dict[str, Any]]]


@contextmanager
def dagster_over(base: Path, savepoint: Path, **settings: Any) -> Iterator[Run]:
    """A Dagster of its own, over a lake that has one savepoint of each night."""
    job = sl.Lake(base / "lake").job("shop", engine="local")
    for night in NIGHTS:
        job.import_snapshot(savepoint, night)
    (base / "savepoints").mkdir()
    (base / "home").mkdir()
    shop = JobSettings(name="shop", savepoints=str(base / "savepoints"), engine="local", **settings)
    made = dg.build_defs_for_component(StateLake(lake=str(base / "lake"), jobs=[shop]))
    home = dg.DagsterInstance.local_temp(str(base / "home"), {"telemetry": {"enabled": False}})
    with home as instance:
        instance.add_dynamic_partitions("shop_snapshots", list(NIGHTS))

        def run(name: str, night: str, config: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
            (op,) = (node.name for node in made.resolve_job_def(name).nodes)
            done = made.resolve_job_def(name).execute_in_process(
                instance=instance, partition_key=night, raise_on_error=False,
                run_config={"ops": {op: {"config": config}}},
            )  # fmt: skip
            told = [
                e.materialization.metadata for e in done.all_events if e.is_step_materialization
            ]
            failed = [e.step_failure_data.user_failure_data for e in done.all_events
                      if e.is_step_failure]  # fmt: skip
            told += [data.metadata for data in failed if data is not None]
            return done.success, {k: v.value for of_event in told for k, v in of_event.items()}

        yield run


@pytest.mark.full
def test_snapshots_of_flink_1_are_upgraded_night_by_night(tmp_path: Path) -> None:
    """All that Flink 2 can't restore, or nothing; what was done is left alone."""
    with dagster_over(tmp_path, jdk_savepoint(tmp_path / "savepoint")) as run:
        success, told = run("shop_upgrade_snapshots", "monday", {})
        assert (success, told["made"]) == (False, "nothing")
        assert "basket" in told["states"]
        partly = {"to_flink": "2.3", "partly": True}
        for _ in range(2):
            success, told = run("shop_upgrade_snapshots", "monday", partly)
            assert (success, told["made"]) == (True, "monday-flink-2")
    names = [each.snapshot_id for each in sl.Lake(tmp_path / "lake").job("shop").snapshots()]
    assert names == [*NIGHTS, "monday-flink-2"]


@pytest.mark.full
def test_a_changed_query_goes_on_from_each_night(tmp_path: Path) -> None:
    """By the plans in the job's settings; what is not accepted fails, and makes nothing."""
    savepoint = unpack_sql_job("shop", tmp_path / "shop")
    old, new = unpack_sql_plans(tmp_path)
    query = ChangedQuerySettings(old_plan=str(old), new_plan=str(new))
    with dagster_over(tmp_path, savepoint, changed_query=query) as run:
        success, told = run("shop_upgrade_sql_snapshots", "monday", {})
        assert (success, told["made"]) == (False, "nothing")
        assert "--accept partly" in told["to be accepted"].replace("\\", "")
        for _ in range(2):
            success, told = run("shop_upgrade_sql_snapshots", "monday", {"accept": ["partly"]})
            assert (success, told["made"]) == (True, "monday-sql")
    names = [each.snapshot_id for each in sl.Lake(tmp_path / "lake").job("shop").snapshots()]
    assert names == [*NIGHTS, "monday-sql"]


def test_the_check_of_a_changed_query_says_what_is_not_accepted(tmp_path: Path) -> None:
    """It passes if the new job finds all that it should, or what it does not is accepted."""
    savepoint = unpack_sql_job("shop", tmp_path / "shop")
    old, new = unpack_sql_plans(tmp_path)
    sl.Lake(tmp_path / "lake").job("shop", engine="local").import_snapshot(savepoint, "monday")
    locations = Locations(lake=str(tmp_path / "lake"), job="shop")
    query = ChangedQuerySettings(old_plan=str(old), new_plan=str(new))
    passed, told = changed_query(locations, "monday", query)
    assert not passed
    assert "starts now" in told["operators"].value
    accepted = query.model_copy(update={"accept": ["partly"]})
    assert changed_query(locations, "monday", accepted)[0]
    same = query.model_copy(update={"new_plan": str(old)})
    assert changed_query(locations, "monday", same)[0]
