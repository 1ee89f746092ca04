"""Runs of `archive_and_export`: a savepoint into the lake, checked, and out again."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.orchestration.definitions import definitions
from statelake.pipelines.orchestration.resources import Locations
from statelake.pipelines.requests.imports import Import
from tests.support.lakes import add_row, remove_rows
from tests.support.savepoints.golden_cases import golden_cases

pytestmark = [pytest.mark.spark, pytest.mark.full]

(GOLDEN_CASE,) = (
    golden_case
    for golden_case in golden_cases("kinds")
    if "rocksdb-canonical-snappy-p3" in golden_case.name
)
PICTURE = re.compile(r"!\[[^\]]+\]\(data:image/svg\+xml;base64,PHN2Zy[A-Za-z0-9+/=]+\)\n\n.+\.")
NAME = "savepoint-1"
TABLES = {
    f"orders/kinds/{name}"
    for name in (
        "_timers", "avg", "items", "name", "row", "scores", "session", "total", "triple",
    )
}  # fmt: skip


class Workspace:
    """A Dagster of its own, with places of its own."""

    def __init__(self, base: Path, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.locations = Locations(
            savepoints=str(base / "savepoints"),
            lake=str(base / "lake"),
            exports=str(base / "exports"),
            job="orders",
        )
        shutil.copytree(GOLDEN_CASE.snapshot, base / "savepoints" / NAME)
        instance.add_dynamic_partitions("snapshots", [NAME])

    def run(self, config: dict[str, Any] | None = None) -> dg.ExecuteInProcessResult:
        """The job on the savepoint, in this process."""
        wanted = {"config": config or {}}
        return definitions.resolve_job_def("archive_and_export").execute_in_process(
            instance=self.instance,
            partition_key=NAME,
            resources={"locations": self.locations},
            run_config={"ops": {"restore_plan": wanted, "exported_savepoint": wanted}},
            raise_on_error=False,
        )


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """One for the runs that leave each other alone."""
    base = tmp_path_factory.mktemp("dagster")
    (base / "home").mkdir()
    quiet = {"telemetry": {"enabled": False}}
    with dg.DagsterInstance.local_temp(str(base / "home"), quiet) as instance:
        yield Workspace(base, instance)


@pytest.fixture(scope="module")
def done(workspace: Workspace) -> dg.ExecuteInProcessResult:
    """A run that changes nothing on the way."""
    found = workspace.run()
    assert found.success
    return found


def metadata(done: dg.ExecuteInProcessResult) -> dict[str, dict[str, Any]]:
    """What each asset says of its partition, by the asset's name."""
    return {
        event.materialization.asset_key.to_user_string(): {
            name: value.value for name, value in event.materialization.metadata.items()
        }
        for event in done.get_asset_materialization_events()
        if event.partition == NAME
    }


def contents(path: str | Path) -> dict[tuple[str, str], list[str]]:
    """Every state of every operator: its rows, without their key groups."""
    return {
        (operator.label, state.name): sorted(
            json.dumps(row | {"key_group": None}, default=repr, sort_keys=True)
            for row in state.to_arrow().to_pylist()
        )
        for operator in open_snapshot(path).operators
        for state in operator.keyed_states
    }


class TestRun:
    """All four assets of a partition, and the check between them."""

    def test_the_exported_savepoint_is_equal(
        self, done: dg.ExecuteInProcessResult, workspace: Workspace
    ) -> None:
        """What comes out holds what went in, at the same parallelism."""
        path = metadata(done)["exported_savepoint"]["savepoint"]
        assert Path(path).parent == Path(workspace.locations.exports_location)
        assert contents(path) == contents(GOLDEN_CASE.snapshot)
        assert open_snapshot(path).operator("kinds").parallelism == 3

    def test_the_lake_has_it(self, done: dg.ExecuteInProcessResult, workspace: Workspace) -> None:
        """Under the partition's name."""
        record = workspace.locations.open_lake().catalog.snapshot("orders", NAME)
        assert done.success
        assert record.source == workspace.locations.savepoint(NAME)
        assert record.entries == sum(map(len, contents(GOLDEN_CASE.snapshot).values()))

    def test_it_ran_on_spark(
        self, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, done: dg.ExecuteInProcessResult
    ) -> None:
        """Dagster always takes Spark, however small a snapshot is."""
        asked: list[str] = []

        def no_engine(wanted: str) -> None:
            asked.append(wanted)
            raise LookupError(wanted)

        assert done.success
        monkeypatch.setattr("statelake.pipelines.lake.export.exporting.choose_engine", no_engine)
        assert not workspace.run().success
        assert asked == ["auto"]

    def test_of_the_savepoint(self, done: dg.ExecuteInProcessResult, workspace: Workspace) -> None:
        """Where it lies, what it is, how large, and its operators as a table."""
        said = metadata(done)["savepoint"]
        assert said["location"] == workspace.locations.savepoint(NAME)
        assert said["kind"] == "canonical savepoint"
        assert said["compression"] == "snappy"
        assert said["size (bytes)"] > 1000
        assert "| kinds | kinds | 3 | 128 |" in said["operators"]

    def test_of_the_tables(self, done: dg.ExecuteInProcessResult) -> None:
        """Counts, bytes, a key-group histogram as a picture, and a preview table."""
        said = metadata(done)["state_tables"]
        rows = contents(GOLDEN_CASE.snapshot)
        assert said["dagster/row_count"] == sum(map(len, rows.values()))
        assert said["state (bytes)"] > 0
        assert said["written (bytes)"] > 0
        assert said["files written"] == len(TABLES)  # of small states one each
        assert said["files kept from the previous snapshot"] == 0
        assert PICTURE.fullmatch(said["key groups of kinds"])
        entries = len(rows["kinds", "scores"])
        assert re.search(
            rf"\| orders/keyed/kinds/scores \| 0 \| map \| \w+ \| {entries} \|", said["tables"]
        )
        for table in ("keyed/kinds/scores", "keyed/kinds/items", "timers/kinds"):
            assert f"**orders/{table}**" in said["preview"]
        assert "| key_group | key | namespace | user_key | value |" in said["preview"]

    def test_of_the_plan(self, done: dg.ExecuteInProcessResult) -> None:
        """Which key groups each subtask gets, and how evenly."""
        said = metadata(done)["restore_plan"]
        assert (said["kinds: parallelism"], said["kinds: max parallelism"]) == (
            "3 → 3",
            "128 → 128",
        )
        assert said["kinds: skew"] >= 1
        assert "| 0 | 0-42 |" in said["kinds: subtasks"]

    def test_of_the_export(self, done: dg.ExecuteInProcessResult) -> None:
        """Files, bytes, and the command that restores it."""
        said = metadata(done)["exported_savepoint"]
        files = [path for path in Path(said["savepoint"]).iterdir() if path.name != "_metadata"]
        assert said["files"] == len(files) >= 3
        assert said["size (bytes)"] == sum(file.stat().st_size for file in files)
        assert said["restore it with"] == f"flink run -s {said['savepoint']} ..."

    def test_checks_pass_or_have_nothing_to_compare_with(
        self, done: dg.ExecuteInProcessResult
    ) -> None:
        """The lake's counts are the savepoint's; there is no other job, and no earlier snapshot."""
        checks = {
            evaluation.check_name: evaluation for evaluation in done.get_asset_check_evaluations()
        }
        assert {name: evaluation.passed for name, evaluation in checks.items()} == {
            "integrity": True, "compatibility": False, "legality": False,
            "growth": False, "skew": True,
        }  # fmt: skip
        compared = {name for name, evaluation in checks.items() if evaluation.passed}
        for name in set(checks) - compared:
            assert checks[name].severity is dg.AssetCheckSeverity.WARN
        check = checks["integrity"]
        said = {name: value.value for name, value in check.metadata.items()}
        rows = contents(GOLDEN_CASE.snapshot)
        assert said == {
            "entries": sum(map(len, rows.values())), "states": len(rows), "faults": "none",
        }  # fmt: skip

    def test_rescaled(self, workspace: Workspace, done: dg.ExecuteInProcessResult) -> None:
        """With a configuration it comes out at another parallelism and max parallelism."""
        again = workspace.run({"parallelism": 2, "max_parallelism": 256, "compression": "none"})
        assert done.success
        assert again.success
        said = metadata(again)
        assert said["state_tables"]["files written"] == 0
        assert said["restore_plan"]["kinds: max parallelism"] == "128 → 256"
        path = said["exported_savepoint"]["savepoint"]
        assert path != metadata(done)["exported_savepoint"]["savepoint"]
        found = open_snapshot(path)
        kinds = found.operator("kinds")
        assert (kinds.parallelism, kinds.max_parallelism, found.compression) == (2, 256, "none")
        assert contents(path) == contents(GOLDEN_CASE.snapshot)


class TestIntegrity:
    """The check fails where the lake is not what the savepoint was, and nothing is exported."""

    @pytest.fixture
    def archived(self, tmp_path: Path) -> Iterator[Workspace]:
        """A lake to be tampered with."""
        (tmp_path / "home").mkdir()
        quiet = {"telemetry": {"enabled": False}}
        with dg.DagsterInstance.local_temp(str(tmp_path / "home"), quiet) as instance:
            found = Workspace(tmp_path, instance)
            assert found.run().success
            yield found

    @staticmethod
    def faults(workspace: Workspace) -> str:
        """What the check says in a run that it ends."""
        done = workspace.run()
        assert not done.success
        checks = done.get_asset_check_evaluations()
        (check,) = (check for check in checks if check.check_name == "integrity")
        assert not check.passed
        assert list(metadata(done))[:2] == ["savepoint", "state_tables"]
        assert set(list(metadata(done))[2:]) == TABLES  # and nothing behind them
        return str(check.metadata["faults"].value)

    def test_counts_in_the_catalog(self, archived: Workspace) -> None:
        """An entry in another key group than it was is found, and both are named."""
        lake = archived.locations.open_lake().catalog
        record = lake.snapshot("orders", NAME)
        (state,) = (state for state in record.operators[0].states if state.name == "total")
        more, less = state.key_groups[3], state.key_groups[4]
        state.key_groups[3] = replace(more, entries=more.entries + 1)
        state.key_groups[4] = replace(less, entries=less.entries - 1)
        remove_rows(lake, "orders", [NAME])
        add_row(lake, record)
        assert self.faults(archived) == (
            f"- kinds/total, key group {more.key_group}: {more.entries} entries in the snapshot,"
            f" {more.entries + 1} in the lake\n"
            f"- kinds/total, key group {less.key_group}: {less.entries} entries in the snapshot,"
            f" {less.entries - 1} in the lake"
        )

    def test_files(self, archived: Workspace, tmp_path: Path) -> None:
        """A file that is gone, one with other rows, and one that is broken are each named."""
        shutil.rmtree(tmp_path / "lake")
        lake = archived.locations.open_lake().catalog
        source = archived.locations.savepoint(NAME)
        import_snapshot(
            lake, source, "orders", Import(partitions=64), snapshot_id=NAME, engine="local"
        )
        record = lake.snapshot("orders", NAME)
        (table,) = (table for table in record.operators[0].tables if table.path.endswith("/scores"))
        folder = tmp_path / "lake" / table.path
        few, missing, broken, *_, many = sorted(table.units, key=lambda unit: unit.rows)
        assert few.rows < many.rows
        (folder / missing.path).unlink()
        (folder / broken.path).write_bytes(b"PAR1")
        shutil.copyfile(folder / few.path, folder / many.path)
        said = self.faults(archived).splitlines()
        assert len(said) == 3
        assert f"- {table.path}/{missing.path} is not there" in said
        assert f"- {table.path}/{many.path}: {few.rows} rows, and {many.rows} entries" in said
        assert any(
            sentence.startswith(f"- {table.path}/{broken.path} can't be read (")
            for sentence in said
        )

    def test_another_savepoint_in_its_place(self, archived: Workspace) -> None:
        """A partition's savepoint that was replaced is refused before the check."""
        source = Path(archived.locations.savepoint(NAME))
        shutil.rmtree(source)
        (other,) = (
            golden_case
            for golden_case in golden_cases("wordcount")
            if "rocksdb" in golden_case.name
        )
        shutil.copytree(other.snapshot, source)
        done = archived.run()
        assert not done.success
        assert list(metadata(done)) == ["savepoint"]
        (failure,) = (event for event in done.all_events if event.is_step_failure)
        error = failure.step_failure_data.error
        assert error is not None
        assert "ConflictError: job 'orders' has another snapshot 'savepoint-1'" in str(error.cause)
