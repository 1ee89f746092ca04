"""The backfill of a migration: one partition a snapshot, each with its outcome, and resumable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.orchestration.definitions import definitions
from statelake.pipelines.orchestration.resources import Locations
from statelake.pipelines.requests.imports import Import
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

pytestmark = [pytest.mark.spark, pytest.mark.full]

JOB = "shop"
NIGHTS = ("monday", "tuesday", "wednesday")
KINDS = golden_cases("kinds", form="canonical")[0]
RULES = golden_cases("operator", form="canonical")[0]


class Backfill:
    """A lake with a snapshot a night, and a Dagster that migrates them."""

    def __init__(
        self, base: Path, instance: dg.DagsterInstance, golden: GoldenCase = KINDS,
        state: str = "kinds/items",
    ) -> None:  # fmt: skip
        self.instance = instance
        self.state = state
        self.locations = Locations(lake=str(base / "lake"), job=JOB)
        self.lake = Catalog(base / "lake")
        for name in NIGHTS:
            import_snapshot(
                self.lake, str(golden.snapshot), JOB, Import(uids=[state.partition("/")[0]]),
                snapshot_id=name, engine="local",
)  # fmt: skip
        instance.add_dynamic_partitions("snapshots", list(NIGHTS))
        self.spec = base / "new-types.json"

    def expect(self, **change: Any) -> None:
        """What the state is to become."""
        self.spec.write_text(json.dumps({"states": {self.state: change}}))

    def run(self, night: str) -> tuple[bool, dict[str, Any]]:
        """One partition: whether it succeeded, and its outcome."""
        config = {"state": self.state, "to": str(self.spec)}
        done = definitions.resolve_job_def("migrate_snapshots").execute_in_process(
            instance=self.instance,
            partition_key=night,
            resources={"locations": self.locations},
            run_config={"ops": {"migrated_tables": {"config": config}}},
            raise_on_error=False,
        )
        told = [
            event.materialization.metadata
            for event in done.all_events
            if event.is_step_materialization
        ]
        found = {name: value.value for event in told for name, value in event.items()}
        return done.success, found


@pytest.fixture
def backfill(tmp_path: Path) -> Iterator[Backfill]:
    """A new one."""
    with instance_in(tmp_path) as instance:
        yield Backfill(tmp_path, instance)


def instance_in(base: Path) -> dg.DagsterInstance:
    """A Dagster of its own."""
    (base / "home").mkdir()
    return dg.DagsterInstance.local_temp(str(base / "home"), {"telemetry": {"enabled": False}})


@pytest.mark.full
def test_night_after_night_and_once_more(backfill: Backfill) -> None:
    """Stopped behind the first, it is run again over all: what was done is left alone."""
    backfill.expect(type="Long", expressions="old * 10")
    assert backfill.run("monday")[1]["outcome"] == "migrated"
    outcomes = {night: backfill.run(night) for night in NIGHTS}
    assert all(success for success, _ in outcomes.values())
    assert {night: told["outcome"] for night, (_, told) in outcomes.items()} == {
        "monday": "migrated before", "tuesday": "migrated", "wednesday": "migrated",
    }  # fmt: skip
    names = {summary.snapshot_id for summary in backfill.lake.summaries(JOB)}
    assert names == {*NIGHTS, *(f"{night}-migrated" for night in NIGHTS)}


@pytest.mark.parametrize(
    ("state", "change"),
    [
        ("opstate/split", {"type": "String", "expressions": "concat('n', old)"}),
        pytest.param(
            "rules/rules",
            {"type": "Long", "expressions": "CAST(old AS BIGINT) * 10"},
            marks=pytest.mark.full,
        ),
    ],
)
def test_operator_state_is_backfilled_too(
    state: str, change: dict[str, str], tmp_path: Path
) -> None:
    """A list's elements and a broadcast state's values; a second backfill leaves all alone."""
    with instance_in(tmp_path) as instance:
        backfill = Backfill(tmp_path, instance, RULES, state)
        backfill.expect(**change)
        first = {night: backfill.run(night) for night in NIGHTS}
        assert all(success for success, _ in first.values())
        assert {told["outcome"] for _, told in first.values()} == {"migrated"}
        again = [backfill.run(night)[1]["outcome"] for night in NIGHTS]
    assert set(again) == {"migrated before"}
    record = backfill.lake.snapshot(JOB, "monday-migrated")
    types = {
        f"{operator.label}/{operator_state.name}": operator_state.value_type
        for operator in record.operators
        for operator_state in operator.operator_states
    }
    assert types[state] == change["type"]


def test_what_can_not_be_migrated_fails_alone(backfill: Backfill) -> None:
    """Its partition fails; nothing is left in the lake, and other nights are not touched."""
    backfill.expect(type="String")
    success, told = backfill.run("monday")
    assert (success, told) == (False, {})
    assert {summary.snapshot_id for summary in backfill.lake.summaries(JOB)} == set(NIGHTS)
