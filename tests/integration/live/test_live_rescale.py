"""A job on a real cluster is rescaled, put back, and killed at every step: its count goes on."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.live.cluster import FlinkCluster
from statelake.pipelines.live.jars import JarRun
from statelake.pipelines.live.live_rescaling import LEFT, PUT_BACK, RESCALED, rescale_job
from statelake.pipelines.live.requests import Rescale
from statelake.pipelines.live.rescale_journal import ended_journals
from statelake.pipelines.live.rescale_steps import STEPS, WAY_BACK, RescalePlan
from statelake.state_core.errors import ConflictError, FlinkJobError, NotFoundError, StateError
from tests.integration.flink.live_cluster import LiveFlink, counted
from tests.integration.live.killed_rescale import KILLED, plan_of
from tests.support.command import run

pytestmark = [pytest.mark.flink, pytest.mark.full]

ROOT = Path(__file__).parents[3]
TEXT_TYPES = """
states:
  counter/count: {type: String, expressions: CAST(old AS STRING)}
"""
TEXT_JOB = """
from statelake.state_core.runtime.declarations import (
    JobDeclaration, RedistributionStrategy, StateDeclarations, StreamKind, declare_operator,
)

splits = StateDeclarations.list_state_builder("SourceReaderState", "byte[]")
counts = [StateDeclarations.value_state(*of) for of in (("count", "String"), ("last", "Long"))]
JOB = JobDeclaration("counting", (
    declare_operator(
        "numbers", "Source: numbers", StreamKind.NON_KEYED,
        [splits.redistribute_by(RedistributionStrategy.SPLIT).build()], parallelism=1,
    ),
    declare_operator("counter", "Counting", StreamKind.KEYED, counts, key="Long", parallelism=2),
))
"""


def every_fifth(names: Iterable[str], first: int) -> list[Any]:
    """Every fifth of them in CI, from one on; the others at night."""
    return [
        pytest.param(name, marks=[pytest.mark.nightly] if (at - first) % 5 else [])
        for at, name in enumerate(names)
    ]


class Counting:
    """A job that counts, in a lake of its own."""

    def __init__(self, live: LiveFlink, cluster: FlinkCluster, jar: str, root: Path) -> None:
        self.live = live
        self.cluster = cluster
        self.root = root
        self.jar = jar
        self.lake = Catalog(root / "lake")
        self.name = f"counting {uuid.uuid4().hex[:8]}"
        self.job_id = self.run("")
        self.before: dict[int, int] = {}

    def run(self, savepoint: str) -> str:
        """Run it, and see that it runs."""
        job_id = self.cluster.run_jar(
            self.jar, entry_class="LiveCounter", arguments=[self.name], parallelism=2,
            savepoint=savepoint,
        )  # fmt: skip
        self.cluster.wait_until_running(job_id)
        return job_id

    def plan(self, **changed: Any) -> dict[str, Any]:
        """What it is to become, as JSON; its savepoint and its export share a directory."""
        program = asdict(JarRun(jar_id=self.jar, entry_class="LiveCounter", arguments=(self.name,)))
        return {
            "job": "counting", "flink_job": self.job_id, "program": program, "old": program,
            "savepoints": f"file://{self.root}/savepoints", "exports": f"{self.root}/savepoints",
            "parallelism": 3, "max_parallelism": 300, "timeout": 120, **changed,
        }  # fmt: skip

    def rescale(self, plan: dict[str, Any], **options: Any) -> Any:
        """Rescale it, here."""
        return rescale_job(self.lake, plan_of(plan, self.cluster), engine="local", **options)

    def killed(self, plan: dict[str, Any], step: str, phase: str) -> None:
        """Rescale it in a process that ends at a step."""
        call = {"url": self.live.url, "lake": self.lake.location, "plan": plan, "step": step,
                "phase": phase}  # fmt: skip
        command = [sys.executable, "-m", "tests.integration.live.killed_rescale", json.dumps(call)]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == KILLED, done.stderr

    def running(self) -> list[str]:
        """The ids of those of its jobs that have not ended."""
        return [job.id for job in self.cluster.jobs() if job.name == self.name and not job.ended]

    def goes_on(self, result: Any) -> None:
        """It alone runs, from state that lost nothing; its own savepoint is untouched."""
        assert self.running() == [result.flink_job]
        here = result.savepoint.removeprefix("file://").removeprefix("file:")
        at_savepoint = counted(here)
        stopped = self.cluster.stop_with_savepoint(
            result.flink_job, f"file://{self.root}/savepoints"
        )
        after = counted(stopped.removeprefix("file:"))
        assert len(at_savepoint) == 50
        assert all(after[key] > at_savepoint[key] for key in at_savepoint)


@pytest.fixture(scope="module")
def cluster(live_flink: LiveFlink) -> Iterator[FlinkCluster]:
    """The client."""
    with live_flink.client() as client:
        yield client


@pytest.fixture
def counting(
    live_flink: LiveFlink, cluster: FlinkCluster, counter: Path, tmp_path: Path
) -> Iterator[Counting]:
    """A job that runs; nothing of it is left behind."""
    jar = cluster.upload_jar(str(counter))
    job = Counting(live_flink, cluster, jar, tmp_path)
    yield job
    for job_id in job.running():
        cluster.cancel(job_id)
    cluster.delete_jar(jar)


def test_a_job_is_rescaled_to_another_max_parallelism(counting: Counting) -> None:
    """Which Flink can't; every step is in the lake; the count goes on."""
    result = counting.rescale(counting.plan())
    assert (result.outcome, result.why) == (RESCALED, "")
    job = counting.cluster.job(result.flink_job)
    assert (job.parallelism, job.max_parallelism) == (3, 300)
    assert [step["step"] for step in result.steps] == [step.name for step in STEPS]
    (journal,) = ended_journals(counting.lake, "counting")
    assert tuple(map(msgspec.structs.asdict, journal.steps)) == result.steps
    counting.goes_on(result)


def test_a_jar_that_does_not_restore_is_put_back(counting: Counting) -> None:
    """With Flink's own reason; the old one runs on from the savepoint."""
    program = counting.plan()["program"]
    wrong = {**program, "arguments": (counting.name, "text")}
    result = counting.rescale(counting.plan(program=wrong))
    assert result.outcome == PUT_BACK
    assert "StateMigrationException" in result.why
    assert counting.cluster.job(result.flink_job).parallelism == 2
    assert [step["step"] for step in result.steps][-3:] == [step.name for step in WAY_BACK]
    counting.goes_on(result)


def test_what_is_wrong_before_is_told_before_anything_happens(counting: Counting) -> None:
    """The job runs on, and there is no journal."""
    for changed in (
        {"migrate": "/nowhere.yaml"},
        {"declared": "nowhere.py:JOB"},
        {"program": {**counting.plan()["program"], "jar_id": "", "jar": "/nowhere.jar"}},
        {"flink_job": "nobody"},
    ):
        with pytest.raises(StateError):
            counting.rescale(counting.plan(**changed))
    with pytest.raises(NotFoundError, match="unfinished"):
        counting.rescale(counting.plan(), roll_back=True)
    assert counting.running() == [counting.job_id]
    assert ended_journals(counting.lake, "counting") == []


@pytest.mark.parametrize("step", every_fifth([step.name for step in STEPS], 0))
def test_a_rescale_that_was_killed_goes_on(counting: Counting, step: str) -> None:
    """After each step, when that has been done and nobody has noted it yet."""
    counting.killed(counting.plan(), step, "did")
    with pytest.raises(ConflictError, match="is not finished"):
        counting.rescale(counting.plan(parallelism=4))
    result = counting.rescale(counting.plan())
    assert (result.outcome, result.why) == (RESCALED, "")
    job = counting.cluster.job(result.flink_job)
    assert (job.parallelism, job.max_parallelism) == (3, 300)
    counting.goes_on(result)


@pytest.mark.parametrize("step", every_fifth([step.name for step in STEPS], 1))
def test_a_rescale_that_was_killed_is_rolled_back(counting: Counting, step: str) -> None:
    """After each step, when it was noted; the old job runs, and it alone."""
    counting.killed(counting.plan(), step, "kept")
    result = counting.rescale(counting.plan(), roll_back=True)
    assert result.outcome == PUT_BACK
    assert counting.cluster.job(result.flink_job).max_parallelism == 128
    counting.goes_on(result)


@pytest.mark.parametrize("phase", every_fifth(["did", "kept"], 0))
@pytest.mark.parametrize("step", [step.name for step in WAY_BACK])
def test_a_way_back_that_was_killed_goes_on(counting: Counting, step: str, phase: str) -> None:
    """Whatever it is called with: it is on its way back."""
    wrong = {**counting.plan()["program"], "arguments": (counting.name, "text")}
    counting.killed(counting.plan(program=wrong), step, phase)
    result = counting.rescale(counting.plan())
    assert result.outcome == PUT_BACK
    counting.goes_on(result)


def test_a_kill_before_the_job_was_stopped_leaves_it_as_it_was(counting: Counting) -> None:
    """It is never stopped for being rolled back."""
    counting.killed(counting.plan(), "stop", "begins")
    result = counting.rescale(counting.plan(), roll_back=True)
    assert (result.outcome, result.flink_job) == (LEFT, counting.job_id)
    assert counting.running() == [counting.job_id]


def test_neither_runs_and_the_savepoint_is_named(counting: Counting) -> None:
    """It is not lost; called again with a JAR that runs, the job does."""
    wrong = {**counting.plan()["program"], "arguments": (counting.name, "text")}
    with pytest.raises(FlinkJobError, match="untouched at file:") as raised:
        counting.rescale(counting.plan(program=wrong, old=wrong))
    assert "nor the old one" in str(raised.value)
    result = counting.rescale(counting.plan())
    assert result.outcome == PUT_BACK
    counting.goes_on(result)


def test_the_command_shows_a_plan_and_does_it(counting: Counting, counter: Path) -> None:
    """The plan changes nothing; what went wrong is exit code 1."""
    words = (
        "flink", "rescale", "--flink", counting.live.url, "--flink-job", counting.name,
        "--lake", counting.lake.location, "--job", "counting", "--jar", counter,
        "--entry-class", "LiveCounter", "--savepoints", f"file://{counting.root}/savepoints",
        "--exports", f"{counting.root}/savepoints", "--parallelism", "1", "--engine", "local",
    )  # fmt: skip
    planned = run(*words, "--arg", counting.name, "--dry-run")
    assert planned.code == 0, planned.err
    assert "parallelism 2 → 1, max parallelism 128 → 128" in planned.out
    assert all(step.what in " ".join(planned.out.split()) for step in (*STEPS, *WAY_BACK))
    assert counting.running() == [counting.job_id]
    failed = run(*words, "--arg", counting.name, "--arg", "text", "--old-arg", counting.name)
    assert failed.code == 1
    assert "put back: job" in failed.out
    assert "StateMigrationException" in " ".join(failed.out.split())
    done = run(*words, "--arg", counting.name, "--json")
    assert done.code == 0, done.err
    assert done.json["outcome"] == RESCALED
    assert counting.running() == [done.json["flink_job"]]


def test_the_command_migrates_and_holds_the_result_against_the_declared_job(
    counting: Counting, counter: Path
) -> None:
    """The count becomes a text, as the new job declares it; and goes on."""
    (counting.root / "types.yaml").write_text(TEXT_TYPES)
    (counting.root / "declared.py").write_text(TEXT_JOB)
    words = (
        "flink", "rescale", "--flink", counting.live.url, "--flink-job", counting.name,
        "--lake", counting.lake.location, "--job", "counting", "--jar", str(counter),
        "--savepoints", f"file://{counting.root}/savepoints", "--engine", "local",
        "--exports", f"{counting.root}/savepoints", "--arg", counting.name, "--arg", "text",
        "--old-jar", str(counter), "--old-arg", counting.name,
        "--migrate", f"{counting.root}/types.yaml", "--against", f"{counting.root}/types.yaml",
        "--declared", f"{counting.root}/declared.py:JOB", "--max-parallelism", "300", "--json",
    )  # fmt: skip
    # the expression is Spark's: in a process of its own, Spark ends with it
    done = subprocess.run(
        [sys.executable, "-m", "statelake.pipelines.cli.main", *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout, done.stderr)
    report = json.loads(done.stdout)
    did = {step["step"]: step["did"] for step in report["steps"]}
    assert did["migrate"].endswith("counter/count migrated")
    assert did["legality"] == "legal, 0 warnings"
    assert did["compatibility"].endswith("none incompatible")
    assert counting.running() == [report["flink_job"]]
    before = counted(report["savepoint"].removeprefix("file:"))
    stopped = counting.cluster.stop_with_savepoint(
        report["flink_job"], f"file://{counting.root}/savepoints"
    )
    after = counted(stopped.removeprefix("file:"))
    assert all(after[key] > before[key] for key in before)


def test_plans_do_not_show_arguments() -> None:
    """Which may be passwords."""
    program = JarRun(jar="a.jar", arguments=("--password", "s3cret"))
    cluster = FlinkCluster("http://127.0.0.1:1")
    request = Rescale(cluster, "orders", program, savepoints="file:/sp", exports="/sp")
    plan = RescalePlan("orders", request)
    assert "s3cret" not in repr(plan)
