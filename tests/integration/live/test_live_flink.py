"""A real cluster, asked by the client and by the command: jobs, savepoints, JARs, faults."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import statelake as sl
from statelake import open_snapshot
from statelake.pipelines.live.answers import FlinkJobDetails
from statelake.pipelines.live.cluster import FlinkCluster, new_id
from statelake.state_core.errors import ClusterError, FlinkJobError, NotFoundError
from tests.integration.flink.live_cluster import VERSION, LiveFlink, counted, examples_jar
from tests.support.command import run

pytestmark = [pytest.mark.flink, pytest.mark.full]

EXAMPLES = "org.apache.flink.streaming.examples"
TOP_SPEED = f"{EXAMPLES}.windowing.TopSpeedWindowing"
TOP_SPEED_NAME = "CarTopSpeedWindowingExample"
MACHINE = f"{EXAMPLES}.statemachine.StateMachineExample"


@pytest.fixture(scope="module")
def cluster(live_flink: LiveFlink) -> Iterator[FlinkCluster]:
    """The client; no job is left behind."""
    with live_flink.client() as client:
        yield client
        for job in client.jobs():
            client.cancel(job.id)


@pytest.fixture(scope="module")
def jar(cluster: FlinkCluster) -> str:
    """Flink's own examples, uploaded."""
    return cluster.upload_jar(str(examples_jar()))


@pytest.fixture(scope="module")
def job(cluster: FlinkCluster, jar: str) -> FlinkJobDetails:
    """A job that nobody here wrote, with a completed checkpoint."""
    assert cluster.version() == VERSION
    job_id = cluster.run_jar(jar, entry_class=TOP_SPEED, parallelism=2)
    return cluster.wait_until_running(job_id)


def test_a_job_is_known_by_name_and_id(cluster: FlinkCluster, job: FlinkJobDetails) -> None:
    """With what it is run at."""
    assert cluster.find_job(TOP_SPEED_NAME).id == cluster.find_job(job.id).id == job.id
    assert (job.parallelism, job.max_parallelism, job.runs) == (2, 128, True)
    with pytest.raises(NotFoundError, match=f"jobs that run: '{TOP_SPEED_NAME}'"):
        cluster.find_job("orders")
    with pytest.raises(NotFoundError):
        cluster.job(new_id())


@pytest.mark.parametrize("form", ["canonical", "native"])
def test_savepoints_are_taken_and_disposed_of(
    cluster: FlinkCluster, live_flink: LiveFlink, job: FlinkJobDetails, form: str
) -> None:
    """Where it was asked for, readable here; asked for twice by one id, there is one."""
    target = live_flink.root / f"taken-{form}"
    trigger = new_id()
    location = cluster.take_savepoint(job.id, f"file://{target}", form=form, trigger_id=trigger)
    again = cluster.take_savepoint(job.id, f"file://{target}", form=form, trigger_id=trigger)
    assert again == location
    (directory,) = target.iterdir()
    assert open_snapshot(directory).operators
    until = time.monotonic() + 10  # the cluster looks at its own statistics every three seconds
    while cluster.checkpoints(job.id).latest_savepoint != location:
        assert time.monotonic() < until
        time.sleep(0.2)
    cluster.dispose_savepoint(location)
    assert not directory.exists()
    with pytest.raises(ClusterError, match="is not deleted: FileNotFoundException"):
        cluster.dispose_savepoint(location)


def test_checkpoints_are_measured(cluster: FlinkCluster, job: FlinkJobDetails) -> None:
    """Sizes and durations, the oldest first."""
    summary = cluster.checkpoints(job.id)
    assert summary.completed >= 1
    done = [entry for entry in summary.history if entry.status == "COMPLETED"]
    assert all(entry.state_bytes > 0 and entry.path for entry in done)
    assert [entry.number for entry in done] == sorted(entry.number for entry in done)


def test_a_job_goes_on_from_its_savepoint_at_another_parallelism(
    cluster: FlinkCluster, jar: str, live_flink: LiveFlink
) -> None:
    """Stopped, and run again from where it was; Flink refuses the same id twice."""
    old = cluster.run_jar(jar, entry_class=TOP_SPEED, parallelism=1)
    cluster.wait_until_running(old)
    location = cluster.stop_with_savepoint(old, f"file://{live_flink.root}/stopped")
    assert cluster.job(old).state == "FINISHED"
    with pytest.raises(FlinkJobError, match="the job is FINISHED"):
        cluster.take_savepoint(old)
    new = cluster.run_jar(jar, entry_class=TOP_SPEED, parallelism=2, savepoint=location)
    assert cluster.wait_until_running(new).parallelism == 2
    assert cluster.checkpoints(new).restored_from == location
    with pytest.raises(ClusterError, match="already been submitted"):
        cluster.run_jar(jar, entry_class=TOP_SPEED, job_id=new)
    assert cluster.cancel(new) == "CANCELED"
    assert cluster.cancel(new) == "CANCELED"


def test_a_jar_that_does_not_restore_is_told_in_a_sentence(
    cluster: FlinkCluster, jar: str, job: FlinkJobDetails
) -> None:
    """Another job's state, another max parallelism, a class and a savepoint that are not there."""
    location = cluster.take_savepoint(job.id)

    def refusal(**changed: object) -> str:
        given = {"entry_class": TOP_SPEED, "savepoint": location, **changed}
        with pytest.raises(ClusterError) as raised:
            cluster.wait_until_running(cluster.run_jar(jar, **given))  # type: ignore[arg-type]
        assert "\n" not in str(raised.value)
        return str(raised.value)

    assert "allowNonRestoredState" in refusal(entry_class=MACHINE)
    assert "max parallelism" in refusal(max_parallelism=300)
    assert "ClassNotFoundException: nowhere.Job" in refusal(entry_class="nowhere.Job")
    assert "Cannot find checkpoint or savepoint" in refusal(savepoint="file:///nowhere")


def test_the_command_does_it_all(live_flink: LiveFlink, counter: Path, tmp_path: Path) -> None:
    """Run, list, take and import, stop, run on; the count continues, and nothing is lost."""
    flink, named = ("--flink", live_flink.url), ("--flink-job", "counted")
    mapped = ("--path-map", f"file:{live_flink.root}/mapped={tmp_path}/here")
    given = ("--jar", counter, "--entry-class", "LiveCounter", "--arg", "counted", "--json")
    started = run("flink", "run", *flink, *given, "--parallelism", 2)
    assert started.code == 0, started.err
    listed = run("flink", "jobs", *flink, "--json").json
    assert {row["name"]: row["state"] for row in listed}["counted"] == "RUNNING"
    assert "counted" in run("flink", "jobs", *flink).out
    assert "checkpoint" in run("flink", "checkpoints", *flink, *named).out

    target = ("--savepoints", f"file://{live_flink.root}/mapped")
    lake = ("--lake", tmp_path / "lake", "--job", "counter")
    unmapped = run("flink", "savepoint", *flink, *named, *target, *lake, *mapped, "--json")
    assert unmapped.code == 3
    assert f"here {tmp_path}/here/savepoint-" in unmapped.err
    assert "--path-map" in unmapped.err
    (tmp_path / "here").symlink_to(live_flink.root / "mapped")
    savepoint = run(
        "flink", "savepoint", *flink, *named, *target, *lake, *mapped, "--as", "first", "--json"
    )
    assert savepoint.code == 0, savepoint.err
    assert (savepoint.json["snapshot_id"], savepoint.json["new"]) == ("first", True)
    before = counted(savepoint.json["savepoint"].removeprefix("file:"))

    time.sleep(1)
    stopped = run("flink", "stop", *flink, *named, *target, "--json")
    assert stopped.code == 0, stopped.err
    location = stopped.json["savepoint"]
    between = counted(location.removeprefix("file:"))
    assert sum(between.values()) > sum(before.values())
    again = run("flink", "run", *flink, *given, "-s", location, "--parallelism", 3)
    assert again.code == 0, again.err
    last = run("flink", "stop", *flink, *named, *target, "--json").json["savepoint"]
    after = counted(last.removeprefix("file:"))
    assert all(after[key] >= between[key] for key in between)
    assert run("flink", "dispose", location, *flink).code == 0
    assert not Path(location.removeprefix("file:")).exists()
    assert run("flink", "cancel", *flink, "--flink-job", again.json["job"]).out.endswith(
        "FINISHED\n"
    )
    shutil.rmtree(live_flink.root / "mapped")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("stop",), 2, "Missing option '--flink-job'"),
        (("stop", "--flink-job", "nobody"), 3, "there is no job 'nobody'"),
        (("run",), 2, "give either --jar or --jar-id"),
        (("run", "--jar", "/nowhere.jar"), 3, "/nowhere.jar: it can't be read"),
        (("run", "--jar-id", "../jobs"), 3, "HTTP 4"),
        (("savepoint", "--flink-job", TOP_SPEED_NAME, "--as", "x"), 2, "an import needs"),
    ],
)
def test_what_is_wrong_has_its_exit_code(
    live_flink: LiveFlink,
    job: FlinkJobDetails,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    """Of usage or of input, with what to do."""
    for name in ("STATELAKE_LAKE", "STATELAKE_JOB"):
        monkeypatch.delenv(name, raising=False)
    assert job.runs
    monkeypatch.setenv("STATELAKE_FLINK", live_flink.url)
    ran = run("flink", *words)
    assert (ran.code, said in ran.err) == (code, True), ran.err


def test_checkpoints_of_a_job_that_runs_are_found_and_none_is_an_orphan(
    cluster: FlinkCluster, jar: str, live_flink: LiveFlink
) -> None:
    """What others left is deleted meanwhile; once it is cancelled it starts from the newest."""
    root = live_flink.root / "checkpoints"
    job = cluster.run_jar(jar, entry_class=TOP_SPEED, parallelism=2)
    cluster.wait_until_running(job)
    while cluster.checkpoints(job).completed < 2:
        time.sleep(0.2)
    (newest,) = sl.scan(root, job_id=job, latest=True, sound=True).snapshots
    assert (newest.job, newest.kind, newest.operators > 1) == (job, "checkpoint", True)
    left = [root / job / part / "left" for part in ("chk-0", "shared", "taskowned")]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"left")
        os.utime(path, (1.7e9, 1.7e9))
    words = ("orphans", root, "--flink", live_flink.url, "--older-than", "1s", "--json")
    # checkpoints come and go meanwhile
    plans = [run(*words) for _ in range(4)]
    assert [plan.code for plan in plans] == [0] * len(plans), plans
    for plan in plans:
        of_job = [each["path"] for each in plan.json["files"] if each["path"].startswith(job)]
        assert of_job == [f"{job}/chk-0/left", f"{job}/shared/left"]
    assert run(*words, "--yes").json["deleted"] >= 2
    assert [path.exists() for path in left] == [False, False, True]
    assert cluster.cancel(job) == "CANCELED"
    time.sleep(1.5)
    assert run(*words, "--yes").json["deleted"] >= 1
    ran = run("scan", root, "--job-id", job, "--latest", "--sound", "--print-path")
    again = cluster.run_jar(jar, entry_class=TOP_SPEED, savepoint=ran.out.rstrip("\n"))
    cluster.wait_until_running(again)
    assert cluster.checkpoints(again).restored_from.endswith(ran.out.rstrip("\n"))
    cluster.cancel(again)
