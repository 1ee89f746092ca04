"""What a job with a Flink cluster has in Dagster, and what is said when the cluster fails."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from statelake.pipelines.live.canary import drill as rehearse
from statelake.pipelines.live.cluster import FlinkCluster
from statelake.pipelines.live.jars import JarRun
from statelake.pipelines.orchestration.component import StateLake
from statelake.pipelines.orchestration.settings import (
    CanarySettings,
    DrillSettings,
    FlinkSettings,
    JobSettings,
)
from tests.support.fake_rest import Answer, FakeRest
from tests.support.lakes import WORDS

pytestmark = pytest.mark.full

TOKEN = "t0ken-of-flink"  # noqa: S105 - to be looked for
ARGUMENT = "s3cret-argument"
JOB_ID = "a" * 32
PAGE = Path(__file__).resolve().parents[3] / "docs" / "dagster.md"
NO_CLUSTER = "http://127.0.0.1:1"
FAULTS = {
    "500": (Answer({"errors": ["java.lang.IllegalStateException: out of order"]}, 500),
            "HTTP 500: IllegalStateException: out of order"),
    "garbage": (Answer("<html>proxy</html>"), "its response is not JSON"),
    "other JSON": (Answer({"jobs": 7}), "its response has no valid jobs (`array` is wanted)"),
}  # fmt: skip
Answers = Callable[[str, str], Answer]


def overview(*states: str) -> Answer:
    """A cluster with the job in a state, or several of its name."""
    rows = [
        {"jid": f"{number:x}" * 32, "name": "orders", "state": state, "start-time": 0,
         "tasks": {"total": 1, "running": 1}}
        for number, state in enumerate(states, start=10)
    ]  # fmt: skip
    return Answer({"jobs": rows})


def failed(_: str, path: str) -> Answer:
    """The job failed, behind a checkpoint."""
    if path.endswith("/exceptions"):
        trace = (
            "java.lang.RuntimeException: wrapped\n\tat a.B.c(D.java:1)\nCaused by: a.BoomError: x"
        )
        return Answer({"exceptionHistory": {"entries": [{"stacktrace": trace}]}})
    if path.endswith("/checkpoints"):
        taken = [{"id": 1, "status": "COMPLETED", "external_path": "file:/cp/chk-1"},
                 {"id": 2, "status": "FAILED"}]  # fmt: skip
        return Answer({"counts": {"completed": 1}, "history": taken})
    return overview("FAILED")


class FakeCluster:
    """A cluster that runs what is submitted, or refuses it."""

    def __init__(self, refusal: Answer | None = None) -> None:
        self.refusal = refusal
        self.cancelled = False

    def __call__(self, method: str, path: str) -> Answer:
        """Return what Flink would."""
        if path == "/config":
            return Answer({"flink-version": "2.3.0"})
        if path.startswith("/jars/"):
            self.cancelled = False
            return self.refusal or Answer({"jobid": JOB_ID})
        if self.refusal:
            return Answer({"errors": ["no such job"]}, 404)
        if method == "PATCH":
            self.cancelled = True
        if path.endswith("/checkpoints"):
            return Answer({"counts": {"completed": 1}, "history": []}, delay=0.01)
        state = "CANCELED" if self.cancelled else "RUNNING"
        vertex = {"parallelism": 2, "maxParallelism": 128, "status": "RUNNING"}
        return Answer({"jid": JOB_ID, "name": "orders", "state": state, "vertices": [vertex]})


class Dagster:
    """The component with one job that runs on a cluster, and a Dagster of its own."""

    def __init__(self, base: Path, instance: dg.DagsterInstance, **flink: Any) -> None:
        (base / "savepoints").mkdir(exist_ok=True)
        settings = FlinkSettings(arguments=["--password", ARGUMENT], **flink)
        job = JobSettings(name="orders", savepoints=str(base / "savepoints"), flink=settings)
        lake = StateLake(lake=str(base / "lake"), exports=str(base / "exports"), jobs=[job])
        self.instance = instance
        self.definitions = dg.build_defs_for_component(lake)

    def look(self, cursor: str | None = None) -> Any:
        """What the sensor of lost jobs asks for."""
        context = dg.build_sensor_context(
            instance=self.instance,
            cursor=cursor,
            resources=dict(self.definitions.resources or {}),
        )
        return self.definitions.resolve_sensor_def("orders_lost_job")._raw_fn(context)

    def run(self, job: str, config: Any = None) -> tuple[dg.ExecuteInProcessResult, str]:
        """A run, and all that its log says."""
        done = self.definitions.resolve_job_def(job).execute_in_process(
            instance=self.instance, run_config=config, raise_on_error=False
        )
        said = "\n".join(str(record) for record in self.instance.all_logs(done.run_id))
        assert TOKEN not in said
        assert ARGUMENT not in said
        return done, said


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """A Dagster of its own, and a token in the environment."""
    monkeypatch.setenv("STATELAKE_FLINK_TOKEN", TOKEN)
    (tmp_path / "home").mkdir()
    settings = {"telemetry": {"enabled": False}}
    with dg.DagsterInstance.local_temp(str(tmp_path / "home"), settings) as made:
        yield made


def test_a_job_with_a_cluster_has_more(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    """Three jobs, a schedule, a sensor; what writes its tables is in its pool."""
    made = Dagster(tmp_path, instance, url=NO_CLUSTER, schedule="30 1 * * *").definitions
    dg.Definitions.validate_loadable(made)
    repository = made.get_repository_def()
    more = {"orders_take_savepoint", "orders_rescale_job", "orders_report_lost_job"}
    assert more <= {job.name for job in repository.get_all_jobs()}
    schedule = made.resolve_schedule_def("orders_nightly_flink_savepoint")
    assert (schedule.cron_schedule, schedule.job_name) == ("30 1 * * *", "orders_take_savepoint")
    assert made.resolve_sensor_def("orders_lost_job").job_name == "orders_report_lost_job"
    rescale = made.resolve_job_def("orders_rescale_job").get_node_named("rescale").definition
    take = made.resolve_job_def("orders_take_savepoint").get_node_named("take_savepoint")
    assert isinstance(rescale, dg.OpDefinition)
    assert isinstance(take.definition, dg.OpDefinition)
    assert (rescale.pool, take.definition.pool) == ("orders_lake", "orders_flink")
    form = rescale.config_field
    assert form is not None
    assert set(form.config_type.fields) == {
        "parallelism", "max_parallelism", "jar", "jar_id", "entry_class", "migrate", "roll_back",
        "take_over",
    }  # fmt: skip


def test_two_jobs_with_clusters_and_one_without_load(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """Names of steps do not collide, nor does a job without a prefix."""
    assert not instance.get_runs()  # definitions ask for the state of an instance that is open
    jobs = [
        JobSettings(name="a", savepoints="a", flink=FlinkSettings(url=NO_CLUSTER)),
        JobSettings(name="b", savepoints="b", flink=FlinkSettings(url=NO_CLUSTER)),
        JobSettings(name="c", savepoints="c", prefix="", flink=FlinkSettings()),
        JobSettings(name="d", savepoints="d"),
    ]
    made = dg.build_defs_for_component(StateLake(lake=str(tmp_path / "lake"), jobs=jobs))
    dg.Definitions.validate_loadable(made)
    names = {sensor.name for sensor in made.get_repository_def().sensor_defs}
    assert {name for name in names if "lost" in name} == {"a_lost_job", "b_lost_job", "lost_job"}


@pytest.mark.parametrize(
    "flink",
    [
        {"url": f"http://user:{ARGUMENT}@flink:8081"},
        {"savepoints": f"s3://key:{ARGUMENT}@bucket/sp"},
        {"path_map": {f"s3://key:{ARGUMENT}@bucket": "/mnt"}},
        {"path_map": {"s3://bucket": f"s3://key:{ARGUMENT}@bucket"}},
        {"exports": f"s3://bucket/sp?secret_key={ARGUMENT}"},
        {"jar": "a.jar", "jar_id": "b", "arguments": [ARGUMENT]},
        {"arguments": ARGUMENT},
        {"password": ARGUMENT},
        {"canary": {"arguments": [], "url": f"http://user:{ARGUMENT}@flink:8081"}},
        {"drill": {"arguments": [], "directory": f"s3://key:{ARGUMENT}@bucket/region"}},
        {"drill": {"arguments": [], "directory": "r", "path_map": {f"s3://k:{ARGUMENT}@b": "/b"}}},
        {"drill": {"arguments": [ARGUMENT], "directory": "r", "jar": "a.jar", "jar_id": "b"}},
    ],
)
def test_what_defs_may_not_say_is_refused_and_not_repeated(flink: dict[str, Any]) -> None:
    """Credentials belong into the environment."""
    job = {"name": "orders", "savepoints": "savepoints", "flink": flink}
    with pytest.raises(ValueError, match=r"credentials|not both|valid list|Extra") as raised:
        StateLake.model_validate({"lake": "lake", "jobs": [job]})
    assert ARGUMENT not in str(raised.value)


def test_settings_do_not_show_arguments() -> None:
    """Which may be passwords."""
    canary = CanarySettings(arguments=[ARGUMENT])
    drill = DrillSettings(arguments=[ARGUMENT], directory="region")
    assert ARGUMENT not in repr(FlinkSettings(arguments=[ARGUMENT], canary=canary, drill=drill))


def test_a_canary_is_a_check_that_only_its_own_job_has(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """What archives a savepoint runs no program."""
    canary = CanarySettings(arguments=["--dry-run"], severity="WARN")
    made = Dagster(tmp_path, instance, url=NO_CLUSTER, canary=canary).definitions
    dg.Definitions.validate_loadable(made)
    key = dg.AssetCheckKey(dg.AssetKey(["orders", "state_tables"]), "restorable")
    for job, has_it in (("orders_archive_and_export", False), ("orders_prove_restorable", True)):
        checks = made.resolve_job_def(job).asset_layer.asset_graph.asset_check_keys
        assert (key in checks) is has_it
    assert made.resolve_job_def("orders_prove_restorable").partitions_def is not None


def test_a_canary_may_run_from_a_sample() -> None:
    """Of a share that there is."""
    assert CanarySettings(arguments=[]).share is None
    assert CanarySettings(arguments=[], sample="1%").share == 0.01
    with pytest.raises(ValueError, match="'half' is no share"):
        CanarySettings(arguments=[], sample="half")


def test_a_canary_is_of_one_program() -> None:
    """As a drill and the job itself: a JAR here, or one on the cluster."""
    with pytest.raises(ValueError, match="a `jar` or a `jar_id`, not both"):
        CanarySettings(arguments=[], jar="a.jar", jar_id="b")


def test_the_documentation_has_settings_that_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they stand there."""
    monkeypatch.setenv("BROKERS", "kafka:9092")
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (block,) = (block for block in blocks if "path_map" in block)
    lake = StateLake.resolve_from_yaml(f"lake: lake\njobs:\n{block}")
    flink = lake.jobs[0].flink
    assert flink is not None
    assert flink.arguments == ["--brokers", "kafka:9092"]
    assert flink.canary is not None
    assert flink.drill is not None
    assert flink.drill.limits == {"RPO": "15min", "RTO": "2min"}


class TestDrill:
    """The check that restores the newest sound snapshot, with a stand-in for the cluster."""

    @pytest.fixture
    def region(self, tmp_path: Path) -> Path:
        """A directory with a savepoint of an hour ago, and a newer one without its files."""
        region = tmp_path / "region"
        shutil.copytree(WORDS, region / "sound")
        (region / "damaged").mkdir()
        shutil.copy(WORDS / "_metadata", region / "damaged" / "_metadata")
        then = time.time() - 3600
        os.utime(region / "sound" / "_metadata", (then, then))
        return region

    @staticmethod
    def judged(
        base: Path, instance: dg.DagsterInstance, url: str, **drill: Any
    ) -> tuple[bool, str, dict[str, Any]]:
        """Whether the check passes, the severity, and the metadata."""
        settings = DrillSettings(arguments=["--password", ARGUMENT], jar_id="orders.jar", **drill)
        dagster = Dagster(base, instance, url=url, drill=settings)
        done, _ = dagster.run("orders_run_drill")
        assert done.success
        (check,) = done.get_asset_check_evaluations()
        assert check.check_name == "drill"
        metadata = {name: value.value for name, value in check.metadata.items()}
        return check.passed, check.severity.value, metadata

    def test_it_says_how_old_and_how_long(
        self, tmp_path: Path, instance: dg.DagsterInstance, region: Path
    ) -> None:
        """Within the limits it passes; beyond one it fails, or warns, and says by how much."""
        where = {"directory": str(region), "path_map": {"s3://region": str(region)}}
        cluster = FakeCluster()
        with FakeRest(cluster) as rest:
            passed, _, told = self.judged(tmp_path, instance, rest.url, **where, rpo="2h", rto="1h")
            assert passed
            assert told["snapshot"] == str(region / "sound")
            assert told["RPO (seconds)"] >= 3600
            assert told["RTO (seconds)"] >= 0.01
            assert told["allowed"] == "RPO 2h, RTO 1h"
            assert told["newer ones that can't be restored"] == 1
            assert told["why not"] == "none"
            asked = [json.loads(body) for method, path, _, body in rest.asked if "/jars/" in path]
            assert [each["savepointPath"] for each in asked] == ["s3://region/sound"]
            assert told["Flink UI"].endswith(f"/#/job/running/{asked[0]['jobId']}/overview")
            assert cluster.cancelled
            for severity in ("ERROR", "WARN"):
                passed, judged, told = self.judged(
                    tmp_path, instance, rest.url, **where, rpo="30min", rto="1ms", severity=severity
                )
                assert (passed, judged) == (False, severity)
                assert re.search(r"RPO of 1:00:\d\d is beyond 30min", told["why not"])
                assert re.search(r"RTO of 0:00:\S*[1-9] is beyond 1ms", told["why not"])
            assert self.judged(tmp_path, instance, rest.url, **where)[2]["allowed"] == "any"

    def test_clocks_that_differ(
        self, tmp_path: Path, instance: dg.DagsterInstance, region: Path
    ) -> None:
        """By seconds it is new; by more its age is not known, which fails a limit of it."""
        shutil.rmtree(region / "damaged")
        of = {"directory": str(region), "rto": "1h"}
        with FakeRest(FakeCluster()) as rest:
            for late, rpo, expected in ((30, "1min", 0.0), (7200, "1min", None), (7200, "", None)):
                moment = time.time() + late
                os.utime(region / "sound" / "_metadata", (moment, moment))
                passed, _, told = self.judged(tmp_path, instance, rest.url, **of, rpo=rpo)
                assert told.get("RPO (seconds)") == expected
                assert passed is (expected is not None or not rpo)
                assert ("compare the clocks" in told["why not"]) is not passed
            with FlinkCluster(rest.url) as cluster:
                shown = str(rehearse(region, cluster, JarRun(jar_id="orders.jar")))
        assert "RPO: not known, as it is of" in shown
        assert "-1 day" not in shown

    def test_what_is_not_restored_fails_with_the_reason(
        self, tmp_path: Path, instance: dg.DagsterInstance, region: Path
    ) -> None:
        """Flink's own, or that nothing can be restored, or that no cluster answers."""
        of = {"directory": str(region), "rpo": "2h", "rto": "1min", "severity": "WARN"}
        refusal = Answer({"errors": ["Caused by: a.StateMigrationException: another type"]}, 500)
        with FakeRest(FakeCluster(refusal)) as rest:
            passed, severity, told = self.judged(tmp_path, instance, rest.url, **of)
            assert (passed, severity) == (False, "ERROR")
            assert "StateMigrationException: another type" in told["why not"]
            assert "RTO (seconds)" not in told
            shutil.rmtree(region / "sound")
            passed, severity, told = self.judged(tmp_path, instance, rest.url, **of)
            assert (passed, severity, list(told)) == (False, "ERROR", ["why not"])
            assert "no snapshot that can be restored: damaged is damaged" in told["why not"]
        shutil.copytree(WORDS, region / "sound")
        passed, severity, told = self.judged(tmp_path, instance, NO_CLUSTER, **of)
        assert (passed, severity) == (False, "ERROR")
        assert "no connection" in told["why not"]

    def test_only_its_own_job_runs_a_program(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        """On its schedule, one at a time; without the setting there is none of it."""
        drill = DrillSettings(arguments=[], directory="region", schedule="0 4 * * 1")
        made = Dagster(tmp_path, instance, url=NO_CLUSTER, drill=drill).definitions
        dg.Definitions.validate_loadable(made)
        key = dg.AssetCheckKey(dg.AssetKey(["orders", "state_tables"]), "drill")
        for job, has_it in (("orders_archive_and_export", False), ("orders_run_drill", True)):
            checks = made.resolve_job_def(job).asset_layer.asset_graph.asset_check_keys
            assert (key in checks) is has_it
        schedule = made.resolve_schedule_def("orders_weekly_drill")
        assert (schedule.cron_schedule, schedule.job_name) == ("0 4 * * 1", "orders_run_drill")
        assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
        assert isinstance(schedule(dg.build_schedule_context(instance=instance)), dg.RunRequest)
        instance.create_run_for_job(made.resolve_job_def("orders_run_drill"))
        asked = schedule(dg.build_schedule_context(instance=instance))
        assert isinstance(asked, dg.SkipReason)
        assert "the last drill" in str(asked.skip_message)
        implicit = made.resolve_implicit_global_asset_job_def()
        done = implicit.get_subset(asset_check_selection={key}).execute_in_process(
            instance=instance
        )
        assert done.success  # no cluster was asked
        assert not done.get_asset_check_evaluations()
        without = Dagster(tmp_path, instance, url=NO_CLUSTER).definitions.get_repository_def()
        assert not any("drill" in each.name for each in without.get_all_jobs())
        assert not any("drill" in each.name for each in without.schedule_defs)
        assert key not in without.asset_graph.asset_check_keys

    @pytest.mark.parametrize("limit", ["rpo", "rto", "timeout"])
    def test_a_limit_is_a_duration(self, limit: str) -> None:
        """As on the command line."""
        with pytest.raises(ValueError, match="'soon' is no duration"):
            DrillSettings.model_validate({"arguments": [], "directory": "r", limit: "soon"})

    def test_a_program_has_to_be_named(
        self, tmp_path: Path, instance: dg.DagsterInstance, region: Path
    ) -> None:
        """Else the run fails: nothing was rehearsed."""
        drill = DrillSettings(arguments=[], directory=str(region))
        done, said = Dagster(tmp_path, instance, url=NO_CLUSTER, drill=drill).run(
            "orders_run_drill"
        )
        assert not done.success
        assert "a program needs a JAR" in said


class TestLostJob:
    """The sensor, and the run that it asks for."""

    def test_a_job_that_failed_is_told_once(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        """With its root cause and its last checkpoint; again only when it ran in between."""
        with FakeRest(failed) as rest:
            dagster = Dagster(tmp_path, instance, url=rest.url)
            asked = dagster.look()
            (request,) = asked.run_requests
            assert isinstance(dagster.look(asked.cursor), dg.SkipReason)
            done, _ = dagster.run("orders_report_lost_job", request.run_config)
            assert rest.asked[0][2]["Authorization"] == f"Bearer {TOKEN}"
        assert not done.success
        (failure,) = (event for event in done.all_events if event.is_step_failure)
        told = failure.step_failure_data.user_failure_data
        assert told is not None
        assert told.description == "the job is not seen to run: FAILED: BoomError: x"
        assert {name: value.value for name, value in told.metadata.items()} == {
            "state": "FAILED",
            "root cause": "BoomError: x",
            "last completed checkpoint": "file:/cp/chk-1",
            "Flink UI": f"{rest.url}/#/job/running/{JOB_ID}/overview",
        }

    def test_one_that_runs_again_and_is_lost_again_is_told_again(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        """Restarting is running, and so are two of its name, of which one may be a canary."""
        for states in (["RUNNING"], ["FAILED", "RESTARTING"], ["RUNNING", "RUNNING"]):
            with FakeRest([overview(*states)]) as rest:
                runs = Dagster(tmp_path, instance, url=rest.url).look(f"FAILED {JOB_ID}")
            assert not runs.run_requests
        with FakeRest(failed) as rest:
            again = Dagster(tmp_path, instance, url=rest.url).look(runs.cursor)
        assert len(again.run_requests) == 1

    def test_one_that_the_cluster_does_not_know(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        """The jobs that it does know are named."""
        with FakeRest([overview("RUNNING")]) as rest:
            asked = Dagster(tmp_path, instance, url=rest.url, job="clicks").look()
        (request,) = asked.run_requests
        said = request.run_config["ops"]["report_lost_job"]["config"]
        assert said["state"] == "UNKNOWN"
        assert said["reason"] == "there is no job 'clicks'; jobs that run: 'orders'"

    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_cluster_that_fails(
        self, tmp_path: Path, instance: dg.DagsterInstance, fault: str
    ) -> None:
        """It is said what it answered."""
        answer, problem = FAULTS[fault]
        with FakeRest([answer]) as rest:
            asked = Dagster(tmp_path, instance, url=rest.url).look()
        said = asked.run_requests[0].run_config["ops"]["report_lost_job"]["config"]
        assert said["state"] == "NO ANSWER"
        assert problem in said["reason"]
        assert TOKEN not in str(said)

    def test_a_cluster_that_is_gone(self, tmp_path: Path, instance: dg.DagsterInstance) -> None:
        """That is a loss as well."""
        asked = Dagster(tmp_path, instance, url=NO_CLUSTER).look()
        said = asked.run_requests[0].run_config["ops"]["report_lost_job"]["config"]
        assert "no connection (Connection refused)" in said["reason"]

    def test_nothing_is_lost_while_it_is_rescaled(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        """The job is stopped then, on purpose; nor is a second savepoint asked for meanwhile."""
        dagster = Dagster(tmp_path, instance, url=NO_CLUSTER)
        schedule = dagster.definitions.resolve_schedule_def("orders_nightly_flink_savepoint")
        for job, why in (("rescale_job", "being rescaled"), ("take_savepoint", "being taken")):
            under_way = instance.create_run_for_job(
                dagster.definitions.resolve_job_def(f"orders_{job}")
            )
            if job == "rescale_job":
                assert dagster.look().skip_message == "it is being rescaled"
            asked = schedule(dg.build_schedule_context(instance=instance))
            assert isinstance(asked, dg.SkipReason)
            assert why in str(asked.skip_message)
            instance.report_run_canceled(under_way)
        assert len(dagster.look().run_requests) == 1
        asked = schedule(dg.build_schedule_context(instance=instance))
        assert isinstance(asked, dg.RunRequest)

    def test_no_cluster_is_named(
        self, tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """That is a fault of the configuration, not of the job; the environment may name one."""
        monkeypatch.delenv("STATELAKE_FLINK", raising=False)
        with pytest.raises(ValueError, match="no Flink cluster is given"):
            Dagster(tmp_path, instance).look()
        with FakeRest([overview("RUNNING")]) as rest:
            monkeypatch.setenv("STATELAKE_FLINK", rest.url)
            assert not Dagster(tmp_path, instance).look().run_requests


class TestFaults:
    """Runs against a cluster that fails."""

    @pytest.mark.parametrize("job", ["orders_take_savepoint", "orders_rescale_job"])
    @pytest.mark.parametrize("fault", FAULTS)
    def test_the_run_says_what_the_cluster_answered(
        self, tmp_path: Path, instance: dg.DagsterInstance, job: str, fault: str
    ) -> None:
        """Without token and arguments."""
        answer, problem = FAULTS[fault]
        with FakeRest([answer]) as rest:
            done, said = Dagster(tmp_path, instance, url=rest.url, jar="a.jar").run(job)
        assert not done.success
        assert problem in said

    def test_a_savepoint_that_is_not_in_the_directory_of_the_job(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        """It can be read, and yet nobody would archive it; nor can one that is nowhere."""
        there = tmp_path / "elsewhere" / "savepoint-1"
        shutil.copytree(WORDS, there)
        for path, problem in (
            (f"file:{there}", "not in the job's directory of savepoints"),
            ("file:/nowhere/savepoint-1", "path_map"),
        ):
            done = {"status": {"id": "COMPLETED"}, "operation": {"location": path}}

            def taken(method: str, asked: str, done: dict[str, Any] = done) -> Answer:
                if asked.endswith("/overview"):
                    return overview("RUNNING")
                return Answer({"request-id": JOB_ID}) if method == "POST" else Answer(done)

            with FakeRest(taken) as rest:
                run, said = Dagster(tmp_path, instance, url=rest.url).run("orders_take_savepoint")
            assert not run.success
            assert problem in said

    def test_a_rescale_without_a_jar_does_nothing(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        """The job is not stopped."""
        vertex = {"parallelism": 2, "maxParallelism": 128, "status": "RUNNING"}
        details = {"jid": JOB_ID, "name": "orders", "state": "RUNNING", "vertices": [vertex]}

        def running(_: str, path: str) -> Answer:
            return overview("RUNNING") if path.endswith("/overview") else Answer(details)

        with FakeRest(running) as rest:
            config = {"ops": {"rescale": {"config": {"parallelism": 4}}}}
            done, said = Dagster(tmp_path, instance, url=rest.url).run("orders_rescale_job", config)
            assert {method for method, *_ in rest.asked} == {"GET"}
        assert not done.success
        assert "a program needs a JAR" in said
