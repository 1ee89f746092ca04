"""The component: all that a `defs.yaml` of ten lines gives the two jobs of the example project."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.tables.names import keyed_table, operator_table, timers_table
from statelake.pipelines.orchestration.assets import job_assets
from statelake.pipelines.orchestration.checks import growth, skew
from statelake.pipelines.orchestration.component import StateLake
from statelake.pipelines.orchestration.known_tables import find_tables
from statelake.pipelines.orchestration.progress import LoggedProgress
from statelake.pipelines.orchestration.resources import Locations
from statelake.pipelines.orchestration.settings import (
    CheckSettings,
    GrowthSettings,
    JobSettings,
    RetentionSettings,
    SkewSettings,
)
from statelake.pipelines.orchestration.state_job import StateJob, table_key
from tests.support.lakes import DEMO, WORDS

pytestmark = pytest.mark.full

PROJECT = Path(__file__).resolve().parents[3] / "examples" / "dagster_project"
DEFS = PROJECT / "state_of_flink" / "defs" / "lake" / "defs.yaml"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "dagster.md"
TABLES = {
    "orders/kinds/_timers", "orders/kinds/avg", "orders/kinds/items", "orders/kinds/name",
    "orders/kinds/row", "orders/kinds/scores", "orders/kinds/session", "orders/kinds/total",
    "orders/kinds/triple", "orders/source/_operator/SourceReaderState", "words/counter/_timers",
    "words/counter/count",
}  # fmt: skip
ARCHIVED = ("savepoint", "state_tables", "restore_plan", "exported_savepoint")
DERIVED = ("migrated_tables", "upgraded_tables")
NAME = "statelake.dagster.StateLake"
PICTURE = "](data:image/svg+xml;base64,"


def fill(base: Path) -> None:
    """Savepoints of two jobs, where the example looks for them."""
    for hour, night in enumerate(("monday", "tuesday")):
        copy = shutil.copytree(DEMO / night, base / "savepoints" / "orders" / night)
        os.utime(copy / "_metadata", (1_700_000_000 + hour * 3600,) * 2)
    shutil.copytree(WORDS, base / "savepoints" / "words" / "first")


def loaded() -> dg.Definitions:
    """The example project as Dagster loads it."""
    return dg.load_from_defs_folder(path_within_project=PROJECT / "state_of_flink")


@dataclass
class Example:
    """The example project over savepoints, and a Dagster of its own."""

    base: Path
    instance: dg.DagsterInstance
    definitions: dg.Definitions

    def run(self, job: str, partition: str, last: str = "") -> dg.ExecuteInProcessResult:
        """A job over one partition, or a range of them."""
        tags = {
            "dagster/asset_partition_range_start": partition,
            "dagster/asset_partition_range_end": last,
        }
        done = self.definitions.resolve_job_def(job).execute_in_process(
            instance=self.instance,
            partition_key=None if last else partition,
            tags=tags if last else None,
            raise_on_error=False,
        )
        assert done.success
        return done

    def sensed(self, name: str, cursor: str | None = None) -> Any:
        """What a sensor asks for."""
        context = dg.build_sensor_context(
            instance=self.instance,
            cursor=cursor,
            resources=dict(self.definitions.resources or {}),
        )
        return self.definitions.resolve_sensor_def(name)._raw_fn(context)


def instance_in(base: Path) -> dg.DagsterInstance:
    """A Dagster of its own."""
    (base / "home").mkdir()
    return dg.DagsterInstance.local_temp(str(base / "home"), {"telemetry": {"enabled": False}})


def example_in(base: Path, patch: pytest.MonkeyPatch, instance: dg.DagsterInstance) -> Example:
    """The example project over savepoints below a directory."""
    fill(base)
    patch.setenv("STATE_DATA", str(base))
    patch.syspath_prepend(str(PROJECT))
    instance.add_dynamic_partitions("orders_snapshots", ["monday", "tuesday"])
    instance.add_dynamic_partitions("words_snapshots", ["first"])
    return Example(base, instance, loaded())


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    """One for tests that leave each other alone."""
    base = tmp_path_factory.mktemp("example")
    with pytest.MonkeyPatch.context() as patch, instance_in(base) as instance:
        yield example_in(base, patch, instance)


@pytest.fixture(scope="module")
def archived(example: Example) -> dg.ExecuteInProcessResult:
    """Both nights of the orders in one run, as a backfill has it."""
    return example.run("orders_archive_and_export", "monday", "tuesday")


def metadata(done: dg.ExecuteInProcessResult) -> dict[tuple[str, str], dict[str, Any]]:
    """What is said of each asset and partition."""
    return {
        (event.asset_key.to_user_string(), str(event.partition)): {
            name: value.value for name, value in event.materialization.metadata.items()
        }
        for event in done.get_asset_materialization_events()
        if event.asset_key is not None
    }


class TestDefinitions:
    """What ten lines of YAML give two jobs."""

    def test_they_are_ten_lines(self) -> None:
        """Of which the first names the component; they stand in the documentation."""
        assert DEFS.read_text("utf-8") in PAGE.read_text("utf-8")
        lines = DEFS.read_text("utf-8").splitlines()
        assert len(lines) <= 10
        assert yaml.safe_load("\n".join(lines))["type"] == NAME

    def test_assets(self, example: Example) -> None:
        """One for each table, known before anything was imported; all come of the savepoint."""
        graph = example.definitions.resolve_asset_graph()
        names = {key.to_user_string() for key in graph.get_all_asset_keys()}
        assert names == TABLES | {
            f"{job}/{name}" for job in ("orders", "words") for name in (*ARCHIVED, *DERIVED)
        }
        for name in names:
            job, *_ = name.split("/")
            node = graph.get(dg.AssetKey(name.split("/")))
            assert node.description
            assert node.group_name == job
            assert node.partitions_def == dg.DynamicPartitionsDefinition(name=f"{job}_snapshots")
            assert node.backfill_policy == dg.BackfillPolicy.multi_run(10)
            if name in TABLES:
                assert node.parent_keys == {dg.AssetKey([job, "savepoint"])}
        assert "value state 'count' of operator 'counter'" in str(
            graph.get(dg.AssetKey(["words", "counter", "count"])).description
        )

    def test_checks(self, example: Example) -> None:
        """Integrity and legality block; the others are as severe as is configured."""
        graph = example.definitions.resolve_asset_graph()
        blocking = {
            key.to_user_string() for key in graph.asset_check_keys
            if graph.get_check_spec(key).blocking
        }  # fmt: skip
        names = {"integrity", "legality", "compatibility", "growth", "skew", "staleness"}
        found = {key.to_user_string() for key in graph.asset_check_keys}
        assert found == {f"{job}/state_tables:{name}" for job in ("orders", "words")
                         for name in names}  # fmt: skip
        assert blocking == {f"{job}/state_tables:{name}" for job in ("orders", "words")
                            for name in ("integrity", "legality")}  # fmt: skip

    def test_schedules_and_sensors(self, example: Example) -> None:
        """Pruning only where something is said of it."""
        repository = example.definitions.get_repository_def()
        assert {each.name: each.job_name for each in repository.schedule_defs} == {
            "orders_nightly_archive": "orders_archive_and_export",
            "orders_nightly_savepoint": "orders_savepoint_and_verify",
            "orders_nightly_pruning": "orders_prune_snapshots",
            "words_nightly_archive": "words_archive_and_export",
            "words_nightly_savepoint": "words_savepoint_and_verify",
        }
        assert {each.name: each.job_name for each in repository.sensor_defs} == {
            "orders_new_savepoints": "orders_archive_and_export",
            "orders_changed_states": "orders_check_restore",
            "words_new_savepoints": "words_archive_and_export",
            "words_changed_states": "words_check_restore",
        }

    def test_one_writer_and_freshness(self, example: Example) -> None:
        """What writes a job's tables is in one pool; what is too old is not fresh."""
        pools = {
            key.to_user_string(): asset.op.pool
            for asset in example.definitions.assets or ()
            if isinstance(asset, dg.AssetsDefinition)
            for key in asset.keys
        }
        assert {name for name, pool in pools.items() if pool == "orders_lake"} == {
            name for name in pools
            if name in TABLES | {f"orders/{made}" for made in ("state_tables", *DERIVED)}
            and name.startswith("orders/")
        }  # fmt: skip
        prune = example.definitions.resolve_job_def("orders_prune_snapshots")
        assert prune.get_node_named("prune_snapshots").definition.pools == {"orders_lake"}
        for name in ("savepoint", "state_tables"):
            node = example.definitions.resolve_asset_graph().get(dg.AssetKey(["words", name]))
            assert isinstance(node.freshness_policy_or_from_metadata, dg.FreshnessPolicy)

    def test_the_ui_is_not_told_where_things_are(self, example: Example) -> None:
        """Locations are no configuration of a resource, and stand in no description."""
        resources = example.definitions.resources or {}
        assert set(resources) == {"orders_locations", "words_locations"}
        for resource in resources.values():
            assert isinstance(resource, dg.ResourceDefinition)
            assert not resource.config_schema.default_provided
            assert not resource.description


class TestRuns:
    """The example materializes over real savepoints."""

    def test_a_range_of_snapshots_in_one_run(self, archived: dg.ExecuteInProcessResult) -> None:
        """Every asset and table has both partitions, but a state that monday has not."""
        orders = {name for name in TABLES if name.startswith("orders/")}
        orders |= {f"orders/{name}" for name in ARCHIVED}
        assert set(metadata(archived)) == {
            (name, night) for name in orders for night in ("monday", "tuesday")
        } - {("orders/source/_operator/SourceReaderState", "monday")}

    def test_of_a_table(self, example: Example, archived: dg.ExecuteInProcessResult) -> None:
        """Columns, rows, bytes, place and a drawing; each night has its own."""
        told = metadata(archived)
        said = told["orders/kinds/scores", "tuesday"]
        columns = {column.name: column.type for column in said["dagster/column_schema"].columns}
        assert list(columns)[:5] == ["key_group", "key", "namespace", "user_key", "value"]
        assert columns["key_group"] == "int32"
        described = {
            column.name: column.description for column in said["dagster/column_schema"].columns
        }
        assert described["user_key"] == "The key within a map state"
        lineage = said["dagster/column_lineage"].deps_by_column
        (origin,) = lineage["value"]
        assert origin.column_name == "kinds/scores"
        states = told[origin.asset_key.to_user_string(), "tuesday"]["dagster/column_schema"]
        assert "kinds/scores" in {column.name for column in states.columns}
        lake = Locations(lake=str(example.base / "lake")).open_lake().catalog
        record = lake.snapshot("orders", "tuesday")
        (state,) = (state for state in record.operators[0].states if state.name == "scores")
        assert said["dagster/row_count"] == state.entries > 0
        assert said["state (bytes)"] == state.state_bytes > 0
        assert Path(said["dagster/uri"]) == example.base / "lake" / "orders" / "keyed" / "kinds" / (
            "scores"
        )
        assert PICTURE in said["key groups"]
        assert said["version"] == told["orders/kinds/scores", "monday"]["version"] + 1

    def test_beside_the_snapshot_before(self, archived: dg.ExecuteInProcessResult) -> None:
        """Growth and the load of subtasks as pictures, and what changed as a table."""
        told = metadata(archived)
        monday, tuesday = (told["orders/state_tables", night] for night in ("monday", "tuesday"))
        assert "changes" not in monday
        assert tuesday["changes since"] == "monday"
        assert tuesday["changes"].startswith("| table | entries | change | bytes | change |")
        assert "| orders/keyed/kinds/total |" in tuesday["changes"]
        for said in (monday, tuesday):
            assert PICTURE in said["growth"]
            assert PICTURE in said["subtasks of kinds"]
            assert said["skew of kinds"] >= 1

    def test_checks_of_a_range(self, archived: dg.ExecuteInProcessResult) -> None:
        """Each snapshot's findings stand under its name."""
        checks = {each.check_name: each for each in archived.get_asset_check_evaluations()}
        assert set(checks) == {
            "integrity", "legality", "compatibility", "growth", "skew", "staleness",
        }  # fmt: skip
        for name in ("integrity", "skew"):
            assert checks[name].passed
        for name in ("legality", "compatibility", "growth"):  # which had nothing to compare with
            assert not checks[name].passed
            assert checks[name].severity is dg.AssetCheckSeverity.WARN
        stale = checks["staleness"]
        assert (stale.passed, stale.severity) == (False, dg.AssetCheckSeverity.WARN)
        assert stale.metadata["monday: newest snapshot"].value == "tuesday"
        said = checks["growth"].metadata
        assert said["monday: compared with"].value == 0
        assert said["tuesday: compared with"].value == 1

    def test_limits(self, example: Example, archived: dg.ExecuteInProcessResult) -> None:
        """What is beyond one does not pass, and says by how much."""
        assert archived.success
        places = Locations(lake=str(example.base / "lake"), job="orders", from_environment=False)
        for limits, passes in (({"at_most": 9}, True), ({"at_most": 1}, False)):
            passed, said = skew(places, "tuesday", SkewSettings(from_bytes=0, **limits))
            assert (passed, said["uneven"] == 0) == (passes, passes)
        passed, said = skew(places, "tuesday", SkewSettings(at_most=1))
        assert passed  # nothing is larger than 1 MiB
        for most, passes in ((2.0, True), (0.1, False)):
            passed, said = growth(places, "tuesday", GrowthSettings(at_most=most, at_least=0))
            assert passed is passes
            assert said["compared with"] == 1
        for most, passes in ((1e9, True), (1e-9, False)):
            limits = GrowthSettings(at_most=9, at_least=0, each_state=most, from_bytes=1)
            passed, said = growth(places, "tuesday", limits)
            assert (passed, said["states that grew too much"] == 0) == (passes, passes)
            assert "in monday" in said["states that grew"].value
        assert growth(places, "monday", limits)[0] is None

    def test_progress_is_in_the_log(
        self, example: Example, archived: dg.ExecuteInProcessResult
    ) -> None:
        """Percent, bytes and rate, at least when it is done."""
        logged = [
            record.user_message
            for record in example.instance.all_logs(archived.run_id)
            if record.user_message.startswith("importing tuesday")
        ]
        assert logged
        assert logged[-1].startswith("importing tuesday: 100%, ")
        assert logged[-1].endswith("/s")

    def test_the_other_job(self, example: Example) -> None:
        """It has tables, partitions and a pool of its own in the same lake."""
        told = metadata(example.run("words_archive_and_export", "first"))
        assert {name for name, _ in told} == {
            name for name in TABLES if name.startswith("words/")
        } | {f"words/{name}" for name in ARCHIVED}
        exported = Path(told["words/exported_savepoint", "first"]["savepoint"])
        assert exported.parent == example.base / "exports" / "words"

    def test_states_that_changed(
        self, example: Example, archived: dg.ExecuteInProcessResult
    ) -> None:
        """What came and went since the last look is told, and what restores it is checked."""
        assert archived.success
        first = example.sensed("orders_changed_states")
        (request,) = first.run_requests
        assert (first.cursor, request.partition_key) == ("tuesday", "tuesday")
        (event,) = first.asset_events
        said = {name: value.value for name, value in event.metadata.items()}
        assert said["changed since"] == "monday"
        assert "- source/SourceReaderState of subtasks is new" in said["changes"]
        again = example.sensed("orders_changed_states", first.cursor)
        assert again.skip_message == "no new snapshot in the lake"


def test_a_table_that_came_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is materialized under its key though definitions were made before it was there."""
    with instance_in(tmp_path) as instance:
        example = example_in(tmp_path, monkeypatch, instance)
        source = tmp_path / "savepoints" / "words" / "first"
        shutil.rmtree(source)
        shutil.copytree(DEMO / "monday", source)
        told = metadata(example.run("words_archive_and_export", "first"))
        assert ("words/kinds/total", "first") in told
        assert told["words/kinds/total", "first"]["dagster/row_count"] > 0
        again = loaded().resolve_asset_graph().get_all_asset_keys()
        assert dg.AssetKey(["words", "kinds", "total"]) in again
        # the same job under other states: a new snapshot that is told of, and checked
        shutil.copytree(WORDS, tmp_path / "savepoints" / "words" / "second")
        instance.add_dynamic_partitions("words_snapshots", ["second"])
        done = example.run("words_archive_and_export", "second")
        (grown,) = (
            each for each in done.get_asset_check_evaluations() if each.check_name == "growth"
        )
        assert (grown.passed, grown.severity) == (False, dg.AssetCheckSeverity.ERROR)
        assert grown.metadata["times the median"].value < 0.5
        asked = example.sensed("words_changed_states", "first")
        (request,) = asked.run_requests
        assert (request.partition_key, asked.cursor) == ("second", "second")
        (event,) = asked.asset_events  # an observation of the snapshot
        said = {name: value.value for name, value in event.metadata.items()}
        assert said["changed since"] == "first"
        assert "- kinds/total is gone" in said["changes"]
        assert "- counter/count is new: value of " in said["changes"]
        assert example.run("words_check_restore", "second").success


def test_pruning(tmp_path: Path) -> None:
    """The last one stays; a second run has nothing to do."""
    for hour, night in enumerate(("monday", "tuesday")):
        copy = shutil.copytree(DEMO / night, tmp_path / "savepoints" / night)
        os.utime(copy / "_metadata", (1_700_000_000 + hour * 3600,) * 2)
    settings = JobSettings(
        name="orders",
        savepoints=str(tmp_path / "savepoints"),
        retention=RetentionSettings(last=1),
        checks=CheckSettings(staleness=None),
    )
    made = dg.build_defs_for_component(
        StateLake(lake=str(tmp_path / "lake"), exports=str(tmp_path / "exports"), jobs=[settings])
    )
    with instance_in(tmp_path) as instance:
        instance.add_dynamic_partitions("orders_snapshots", ["monday", "tuesday"])
        example = Example(tmp_path, instance, made)
        example.run("orders_archive_and_export", "monday", "tuesday")
        pruning = made.resolve_job_def("orders_prune_snapshots")
        dropped = [
            pruning.execute_in_process(instance=instance).output_for_node("prune_snapshots")
            for _ in range(2)
        ]
    assert dropped == [["monday"], []]
    lake = Locations(lake=str(tmp_path / "lake")).open_lake().catalog
    assert [summary.snapshot_id for summary in lake.summaries("orders")] == ["tuesday"]


class TestSettings:
    """What `defs.yaml` may not say is refused when it is loaded."""

    @pytest.mark.parametrize(
        "location", ["s3://key:secret@bucket/lake", "s3://bucket/lake?secret_key=x"]
    )
    @pytest.mark.parametrize("field", ["lake", "exports", "savepoints"])
    def test_credentials(self, location: str, field: str) -> None:
        """They belong into the environment; the message does not repeat them."""
        job = {"name": "orders", "savepoints": "savepoints"}
        places = {"lake": "lake", "exports": "exports"}
        (job if field == "savepoints" else places)[field] = location
        with pytest.raises(ValueError, match="must not have credentials") as raised:
            StateLake.model_validate({**places, "jobs": [job]})
        assert "put them into the environment" in str(raised.value)

    def test_two_jobs_of_one_name(self) -> None:
        """Names that Dagster can't tell apart are refused; another prefix helps."""
        jobs: list[dict[str, str]] = [
            {"name": "a-b", "savepoints": "x"}, {"name": "a_b", "savepoints": "y"},
        ]  # fmt: skip
        with pytest.raises(ValueError, match="give one another `prefix`"):
            StateLake.model_validate({"lake": "lake", "jobs": jobs})
        jobs[1]["prefix"] = "other"
        assert StateLake.model_validate({"lake": "lake", "jobs": jobs}).jobs[1].prefix == "other"

    @pytest.mark.parametrize(
        ("job", "said"),
        [
            ({"name": "orders"}, "a name and a directory"),
            ({}, "a name and a directory"),
            ({"name": "o", "savepoints": "s", "keep": 3}, "Extra inputs are not permitted"),
            ({"name": "o", "savepoints": "s", "retention": {"last": 0}}, "greater than or equal"),
            ({"name": "o", "savepoints": "s", "checks": {"legality": {"severity": "BAD"}}}, "WARN"),
        ],
    )
    def test_a_job_that_is_none(self, job: dict[str, Any], said: str) -> None:
        """The message says which part."""
        with pytest.raises(ValueError, match=said):
            StateLake.model_validate({"lake": "lake", "jobs": [job]})


def test_a_lake_that_can_not_be_read_stops_no_other_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It has no tables in the catalog yet, and the log says why."""
    (tmp_path / "lake" / "snapshots" / "_delta_log").mkdir(parents=True)
    (tmp_path / "lake" / "snapshots" / "_delta_log" / f"{0:020}.json").write_text('{"add": 1}')
    with caplog.at_level(logging.WARNING):
        found = find_tables(Locations(lake=str(tmp_path / "lake"), job="orders"))
    assert found == {}
    assert "the tables of job 'orders' are not known yet" in caplog.text


def test_tables_of_a_savepoint_are_those_of_the_lake(tmp_path: Path) -> None:
    """Where nothing was imported, the newest savepoint says what there will be."""
    (tmp_path / "savepoints").mkdir()
    shutil.copytree(DEMO / "monday", tmp_path / "savepoints" / "monday")
    places = Locations(
        lake=str(tmp_path / "lake"), savepoints=str(tmp_path / "savepoints"), job="orders"
    )
    expected = find_tables(places)
    import_snapshot(
        places.open_lake().catalog, places.savepoint("monday"), "orders", engine="local"
    )
    assert find_tables(places) == expected
    assert len(expected) > 5


def test_progress_says_no_more_than_it_knows(caplog: pytest.LogCaptureFixture) -> None:
    """Of parts neither bytes nor a rate; nothing in between within seconds."""
    log = logging.getLogger("statelake-test")
    with caplog.at_level(logging.INFO, "statelake-test"):
        told = LoggedProgress(log, "exporting x")
        for done in range(1, 5):
            told(done, 4)
        in_bytes = LoggedProgress(log, "importing x", of_bytes=True)
        in_bytes.began -= 2
        in_bytes(2 << 20, 2 << 20)
    assert caplog.messages[0] == "exporting x: 100%, 4 of 4 parts"
    assert caplog.messages[1].startswith("importing x: 100%, about 2.0 MiB of 2.0 MiB, ")
    assert caplog.messages[1].endswith("/s")


@pytest.mark.full
def test_dg_finds_scaffolds_and_checks(tmp_path: Path) -> None:
    """`dg list components`, `dg scaffold defs` and `dg check defs`, as a user calls them."""
    project = Path(shutil.copytree(PROJECT, tmp_path / "project"))
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")

    def dg_command(*words: str) -> str:
        done = subprocess.run(
            [str(Path(sys.executable).parent / "dg"), *words],
            cwd=project, capture_output=True, text=True, check=False, timeout=300,
            env={**os.environ, "DAGSTER_HOME": str(home), "HOME": str(tmp_path),
                 "STATE_DATA": str(tmp_path / "data"),
                 "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert f'"{NAME}"' in dg_command("list", "components", "--json")
    dg_command("scaffold", "defs", NAME, "more", "--job", "clicks", "--savepoints", "sp/clicks")
    more = project / "state_of_flink/defs/more/defs.yaml"
    written = yaml.safe_load(more.read_text("utf-8"))
    assert written["attributes"]["jobs"][0]["name"] == "clicks"
    written["attributes"]["erasure"] = {"requests": "requests", "promised_days": 14}
    more.write_text(yaml.safe_dump(written), "utf-8")
    assert "All definitions loaded successfully" in dg_command("check", "defs")


def test_defaults_are_said_once() -> None:
    """A job of two words is whole."""
    settings = JobSettings(name="orders", savepoints="savepoints")
    assert settings.checks.staleness is not None
    assert settings.retention is None


def test_tables_of_odd_names_have_keys_of_their_own() -> None:
    """Whatever operators and states are called, Dagster takes it, and no two are one."""
    names = ("count", "timers", "_timers", "operator", "a/b", "a b", "$é\n", "..", "")
    paths = {
        *(keyed_table("orders", operator, state) for operator in names for state in names),
        *(operator_table("orders", operator, state) for operator in names for state in names),
        *(timers_table("orders", operator) for operator in names),
    }
    job = StateJob(
        JobSettings(name="orders", savepoints="savepoints"),
        Locations(from_environment=False),
        dict.fromkeys(paths, "a table"),
    )
    definitions = dg.Definitions(
        assets=job_assets(job),
        resources={job.resource: dg.ResourceDefinition.hardcoded_resource(job.locations)},
    )
    dg.Definitions.validate_loadable(definitions)
    keys = definitions.resolve_asset_graph().get_all_asset_keys()
    assert len({table_key(path) for path in paths} & set(keys)) == len(paths)
