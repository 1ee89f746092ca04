"""Upgrades in Dagster: of snapshots of Flink 1 to Flink 2, and for a changed query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pydantic import ValidationError

import statelake as sl
from statelake.dagster import StateLake
from statelake.pipelines.orchestration.checks import changed_query
from statelake.pipelines.orchestration.resources import Locations
from statelake.pipelines.orchestration.settings import ChangedQuerySettings, JobSettings
from statelake.state_core.errors import FlinkJobError
from tests.support.fake_java import fake_compiler, fake_flink, sql_script
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


def scripts_of(to: Path, patch: pytest.MonkeyPatch) -> dict[str, str]:
    """The settings of two scripts, and of a Flink that makes both plans of them."""
    patch.setenv("JAVA_HOME", str(fake_compiler(to / "jdk")))
    patch.setenv("STATELAKE_CACHE", str(to / "cache"))
    old, new = (sql_script(to / f"{plan.stem} job.sql", plan) for plan in unpack_sql_plans(to))
    return {"old_sql": str(old), "new_sql": str(new), "flink_home": str(fake_flink(to / "flink"))}


@pytest.mark.full
def test_a_changed_query_of_scripts_goes_on_from_each_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real Flink's plans of them; the new one is kept when a snapshot was upgraded for it."""
    savepoint, kept = unpack_sql_job("shop", tmp_path / "shop"), tmp_path / "kept.json"
    words = scripts_of(tmp_path, monkeypatch)
    query = ChangedQuerySettings(**words, keep_plan=str(kept))
    with dagster_over(tmp_path, savepoint, changed_query=query) as run:
        success, told = run("shop_upgrade_sql_snapshots", "monday", {})
        assert (success, told["made"], kept.exists()) == (False, "nothing", False)
        success, told = run("shop_upgrade_sql_snapshots", "monday", {"accept": ["partly"]})
        assert (success, told["made"]) == (True, "monday-sql")
    assert kept.read_bytes() == (tmp_path / "new.json").read_bytes()
    assert kept.stat().st_mode & 0o777 == 0o600


def test_the_check_of_a_changed_query_takes_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or one script and one plan; it keeps no plan, and names what Flink does not take."""
    savepoint = unpack_sql_job("shop", tmp_path / "shop")
    words = scripts_of(tmp_path, monkeypatch)
    sl.Lake(tmp_path / "lake").job("shop", engine="local").import_snapshot(savepoint, "monday")
    locations = Locations(lake=str(tmp_path / "lake"), job="shop")
    kept = tmp_path / "kept.json"
    query = ChangedQuerySettings(**words, accept=["partly"], keep_plan=str(kept))
    assert changed_query(locations, "monday", query)[0]
    assert not kept.exists()
    strict = ChangedQuerySettings(**(words | {"new_sql": ""}), new_plan=str(tmp_path / "new.json"))
    assert not changed_query(locations, "monday", strict)[0]
    (tmp_path / "bad.sql").write_text("INSERT INTO t WITH ('password' = 's3cret')")
    bad = ChangedQuerySettings(**(words | {"new_sql": str(tmp_path / "bad.sql")}))
    with pytest.raises(FlinkJobError, match=r"bad\.sql: Flink does not take it: line 1") as failed:
        changed_query(locations, "monday", bad)
    assert "s3cret" not in str(failed.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "give --old-plan, or --old-sql"),
        ({"old_plan": "a", "old_sql": "b", "new_plan": "c"}, "give --old-plan, or --old-sql"),
        ({"old_plan": "a"}, "give --new-plan, or --new-sql"),
        ({"old_plan": "a", "new_plan": "b", "keep_plan": "c"}, "--keep-plan is for the plan of"),
        ({"old_sql": "a", "new_sql": "b", "flink_home": "c", "flink_version": "2"}, "one of both"),
        ({"old_sql": "a", "new_sql": "b"}, "version of Flink that compiles SQL is missing"),
        ({"old_sql": "a", "new_plan": "b", "flink_version": 1.20}, "flink_version"),
        ({"old_plan": "a", "new_plan": "b", "timeout": 0}, "timeout"),
        ({"old_plan": "a", "new_plan": "b", "timeout": float("nan")}, "timeout"),
    ],
)  # fmt: skip
def test_settings_of_a_changed_query_that_do_not_belong_together_are_refused(
    settings: dict[str, Any], says: str
) -> None:
    """When definitions are loaded; a version without quotes is a number to YAML, and no version."""
    with pytest.raises(ValidationError, match=says):
        ChangedQuerySettings(**settings)


@pytest.mark.parametrize("version", ["2.3", "1.20"])
def test_a_version_in_quotes_is_text(version: str) -> None:
    """As the page says: a template that Dagster renders makes a number of it, and 1.2 of 1.20."""
    lines = f'{{old_sql: a, new_sql: b, flink_version: "{version}", old_flink: "{version}"}}'
    query = ChangedQuerySettings.resolve_from_yaml(lines)
    assert (query.flink_version, query.old_flink) == (version, version)


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
