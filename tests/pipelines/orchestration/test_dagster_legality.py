"""The asset check of legality: it compares with a declared job, and stops a run that is illegal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.orchestration.checks import job_checks
from statelake.pipelines.orchestration.resources import Locations
from statelake.pipelines.orchestration.settings import JobSettings
from statelake.pipelines.orchestration.state_job import StateJob
from tests.support.savepoints.golden_cases import golden_cases

ONE_JOB = StateJob(JobSettings(prefix=""), Locations())
HERE = "tests.support.jobs.declared_jobs"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake with a snapshot of the job of all kinds."""
    made = Catalog(tmp_path_factory.mktemp("legality") / "lake")
    savepoint = golden_cases("kinds", form="canonical")[0].snapshot
    import_snapshot(made, str(savepoint), "kinds", snapshot_id="monday", engine="local")
    return made.location


@dg.asset(name="state_tables", partitions_def=ONE_JOB.snapshots)
def stand_in() -> None:
    """In the place of the tables, which the lake of these tests has already."""


@dg.asset(deps=["state_tables"], partitions_def=ONE_JOB.snapshots)
def behind() -> None:
    """What a check that blocks stands before."""


def _is_legality(check: dg.AssetChecksDefinition) -> bool:
    return {key.name for key in check.check_keys} == {"legality"}


def check(lake: str, declared: str, *, goes_on: bool = False) -> tuple[bool, dict[str, Any]]:
    """Whether the check passes, and what it says; the run goes on then, or as told."""
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("snapshots", ["monday"])
        made = dg.Definitions(
            assets=[stand_in, behind],
            asset_checks=[check for check in job_checks(ONE_JOB) if _is_legality(check)],
            jobs=[dg.define_asset_job("whole", "*")],
            resources={"locations": Locations(lake=lake, job="kinds", declared=declared)},
        )
        done = made.resolve_job_def("whole").execute_in_process(
            instance=instance, partition_key="monday", raise_on_error=False
        )
        (found,) = done.get_asset_check_evaluations()
        reached = {
            event.asset_key.to_user_string() for event in done.get_asset_materialization_events()
        }
        assert ("behind" in reached) == (found.passed or goes_on)
        assert (found.severity is dg.AssetCheckSeverity.WARN) >= goes_on
        return found.passed, {name: value.value for name, value in found.metadata.items()}


def test_without_a_declared_job_it_warns_and_blocks_nothing(lake: str) -> None:
    """And says how to name one: a check that compares with nothing is not green."""
    passed, said = check(lake, "", goes_on=True)
    assert not passed
    assert "STATELAKE_DECLARED" in said["compared with"]


def test_the_job_that_wrote_it_passes(lake: str) -> None:
    """With nothing to be said."""
    assert check(lake, f"{HERE}:KINDS") == (
        True,
        {"compared with": f"{HERE}:KINDS", "findings": "none"},
    )


def test_warnings_pass_and_are_said(lake: str) -> None:
    """A state that nobody reads."""
    passed, said = check(lake, f"{HERE}:RENAMED")
    assert passed
    assert "| warning | extra_state | kinds (Kinds) |" in said["findings"]


@pytest.mark.parametrize(
    ("name", "rule", "operator"),
    [("ILLEGAL", "mode", "kinds (Kinds)"), ("OPERATORS", "missing_operator", "kinds")],
)
def test_a_fault_does_not_pass(lake: str, name: str, rule: str, operator: str) -> None:
    """Neither an illegal job, nor one that this snapshot is not of; what is behind is not run."""
    passed, said = check(lake, f"{HERE}:{name}")
    assert not passed
    assert f"| fault | {rule} | {operator} |" in said["findings"]


def test_the_declared_job_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As all locations do; what is configured wins."""
    monkeypatch.setenv("STATELAKE_DECLARED", "acme:JOB")
    assert Locations().declared_job == "acme:JOB"
    assert Locations(declared="other:JOB").declared_job == "other:JOB"


def test_paths_are_not_needed(tmp_path: Path) -> None:
    """The check opens the lake only if there is a job to compare with."""
    passed, said = check(str(tmp_path / "nowhere"), "", goes_on=True)
    assert (passed, list(said)) == (False, ["compared with"])
