"""The state of a Flink SQL job is upgraded between its stop and its new query, with a way back.

The cluster is a stand-in that stops a job with a golden savepoint and runs what it is told to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import statelake as sl
from statelake.pipelines.live.answers import is_id
from statelake.pipelines.sql_jobs.sql_upgrades import SqlChange
from tests.support.command import Ran, run
from tests.support.fake_java import fake_compiler, fake_flink, sql_script
from tests.support.fake_rest import Answer, FakeRest
from tests.support.savepoints.sql_jobs import unpack_sql_job, unpack_sql_plans

JOB = "0123456789abcdef" * 2
SAVEPOINT = "savepoint-012345-0123456789ab"


class Cluster:
    """A cluster with one job, that restores a savepoint unless the program is told to fail.

    Attributes:
        runs: What was run: the body of each call.
        stopped: Whether the job was stopped.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs: list[dict[str, Any]] = []
        self.stopped = False
        self.server = FakeRest(self._answer)

    @property
    def changed(self) -> bool:
        """Whether it was asked for anything but what there is."""
        return any(method != "GET" for method, *_ in self.server.asked)

    def _answer(self, method: str, path: str) -> Answer:
        words = path.partition("?")[0].strip("/").split("/")
        body = json.loads(self.server.asked[-1][3] or b"{}")
        if path == "/jobs/overview":
            state = "FINISHED" if self.stopped else "RUNNING"
            return Answer({"jobs": [{"jid": JOB, "name": "shop", "state": state, "start-time": 0}]})
        if words[0] == "jars":
            self.runs.append(body)
            return Answer({"jobid": body["jobId"]})
        job, call = words[1], words[2:]
        started = next((each for each in self.runs if each["jobId"] == job), None)
        if job != JOB and started is None:
            return Answer({"errors": ["not found"]}, 404)
        if call == ["stop"]:
            self.stopped = True
            target = Path(body["targetDirectory"].removeprefix("file:"))
            target.mkdir(parents=True)
            unpack_sql_job("shop", target / SAVEPOINT)
            self.location = f"{body['targetDirectory']}/{SAVEPOINT}"
            return Answer({"request-id": body["triggerId"]})
        if call[:1] == ["savepoints"]:
            assert is_id(call[1])
            return Answer({"status": {"id": "COMPLETED"}, "operation": {"location": self.location}})
        if call == ["checkpoints"]:
            restored = {"external_path": started["savepointPath"]} if started else {}
            return Answer(
                {"counts": {"completed": 1}, "history": [], "latest": {"restored": restored}}
            )
        if call == ["exceptions"]:
            return Answer({"root-exception": "StateMigrationException: no"})
        fails = started is not None and "fail" in started["programArgsList"]
        state = "FAILED" if fails else "FINISHED" if self.stopped and job == JOB else "RUNNING"
        vertex = {"parallelism": 1, "maxParallelism": 128, "status": state}
        return Answer({"jid": job, "name": "shop", "state": state, "vertices": [vertex]})


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A stand-in for a cluster."""
    made = Cluster(tmp_path)
    with made.server:
        yield made


@pytest.fixture
def rescale(cluster: Cluster, tmp_path: Path) -> Callable[..., Ran]:
    """The command, with all that it needs but for what is accepted."""
    old, new = unpack_sql_plans(tmp_path)

    def call(
        *words: object,
        program: str = "new.json",
        plans: tuple[object, ...] = ("--old-plan", old, "--new-plan", new),
    ) -> Ran:
        return run(
            "flink", "rescale", "--flink", cluster.server.url, "--flink-job", "shop",
            "--lake", tmp_path / "lake", "--job", "shop", "--jar-id", "run-plan.jar",
            "--arg", program, "--old-arg", "old.json", "--savepoints", f"file:{tmp_path}/sp",
            "--exports", tmp_path / "exports", "--engine", "local", *plans, *words,
        )  # fmt: skip

    (tmp_path / "exports").mkdir()
    return call


def test_the_new_job_runs_from_upgraded_state(
    cluster: Cluster, rescale: Callable[..., Ran], tmp_path: Path
) -> None:
    """Which is what `sql-upgrade` makes of the savepoint; the lake has both snapshots."""
    done = rescale("--accept", "partly", "--json")
    assert done.code == 0, done.err
    assert done.json["outcome"] == "rescaled"
    did = {step["step"]: step["did"] for step in done.json["steps"]}
    assert did["sql"] == f"snapshot {SAVEPOINT}-sql: 2 keeps, 1 starts now, 1 null in old rows"
    (ran,) = cluster.runs
    assert ran["programArgsList"] == ["new.json"]
    exported = Path(ran["savepointPath"].removeprefix("file:"))
    made = sl.sql_upgrade(
        cluster.location, tmp_path / "made", tmp_path / "old.json", tmp_path / "new.json",
        accept="partly",
    )  # fmt: skip
    assert made.made
    upgraded, expected = (sl.open_snapshot(each) for each in (exported, tmp_path / "made"))
    assert [each.uid for each in upgraded.operators] == [each.uid for each in expected.operators]
    for name in ("accState", "right-records"):
        operator = "4_group-aggregate" if name == "accState" else "10_join"
        one, other = (each[operator][name].to_arrow() for each in (upgraded, expected))
        assert one.equals(other)
    snapshots = sl.Lake(tmp_path / "lake").job("shop").snapshots()
    assert [each.snapshot_id for each in snapshots] == [SAVEPOINT, f"{SAVEPOINT}-sql"]


def test_what_is_not_accepted_is_refused_before_the_job_is_stopped(
    cluster: Cluster, rescale: Callable[..., Ran], tmp_path: Path
) -> None:
    """With the word that accepts it; so is what is lost, and a word for no operator."""
    for words, said in (
        ((), "GroupAggregate[4]: starts now; --accept partly"),
        (("--accept", "filter"), "Join[10]: null in old rows; --accept partly"),
        (("--accept", "lost=Nothing[3]"), "no operator 'Nothing[3]'"),
        (("--accept", "all"), "accept partly, filter or lost=OPERATOR"),
        (("--map", "4=7"), "no operator with state has the number 7"),
        (("--new-plan", str(tmp_path / "nowhere.json")), "it can't be read"),
    ):
        refused = rescale(*words)
        assert refused.code == (1 if "--accept partly" in said else 3), said
        assert said in " ".join(refused.err.split())
    assert not cluster.changed
    assert not list((tmp_path / "lake").glob("_statelake/rescales/*/*"))


def test_a_job_that_does_not_come_up_is_put_back(
    cluster: Cluster, rescale: Callable[..., Ran]
) -> None:
    """The old query runs again, from its own savepoint."""
    done = rescale("--accept", "partly", "--json", program="fail")
    assert done.code == 1
    assert done.json["outcome"] == "put back"
    assert "StateMigrationException" in done.json["why"]
    failed, again = cluster.runs
    assert failed["programArgsList"] == ["fail"]
    assert again["programArgsList"] == ["old.json"]
    assert again["savepointPath"] == cluster.location != failed["savepointPath"]


def test_a_savepoint_that_is_not_of_the_plan_puts_the_job_back(
    cluster: Cluster, rescale: Callable[..., Ran], tmp_path: Path
) -> None:
    """Which only the savepoint tells: no job of the new plan is begun."""
    old = tmp_path / "old.json"
    other = json.loads(old.read_text().replace("BIGINT", "INT"))
    old.write_text(json.dumps(other))
    (tmp_path / "new.json").write_text(json.dumps(other))
    done = rescale("--json")
    assert done.code == 1
    assert done.json["outcome"] == "put back"
    assert "sql: " in done.json["why"]
    (again,) = cluster.runs
    assert again["savepointPath"] == cluster.location


def test_a_dry_run_says_what_becomes_of_state(
    cluster: Cluster, rescale: Callable[..., Ran]
) -> None:
    """By the plans alone, as the page shows; the exit code is 1 until all is accepted."""
    shown = rescale("--dry-run")
    assert shown.code == 1
    said = [line.rstrip() for line in shown.out.splitlines()]
    page = (Path(__file__).parents[3] / "docs" / "live-upgrade.md").read_text("utf-8").splitlines()
    at = page.index("state of Flink SQL that does not keep as it is")
    assert page[at : page.index("```", at)] == said[-page[at:].index("```") :]
    assert all(line in said for line in page if line.startswith("sql            upgrade"))
    told = rescale("--dry-run", "--json", "--accept", "partly")
    assert told.code == 0
    fates = {each["operator"]: each["fate"] for each in told.json["sql"]["operators"]}
    assert fates == {"GroupAggregate[4]": "starts now", "Join[10]": "null in old rows"}
    assert told.json["sql"]["refused"] == []
    assert not cluster.changed


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """The words of two scripts, and of a Flink that makes both plans of them."""
    java = fake_compiler(tmp_path / "a jdk")
    monkeypatch.setenv("JAVA_HOME", str(java))
    monkeypatch.setenv("STATELAKE_CACHE", str(tmp_path / "a cache"))
    old, new = (sql_script(tmp_path / f"{name} job.sql", tmp_path / f"{name}.json")
                for name in ("old", "new"))  # fmt: skip
    home = fake_flink(tmp_path / "flink 2.3")
    return ("--old-sql", old, "--new-sql", new, "--flink-home", home)


def compilations(tmp_path: Path) -> int:
    """How often Flink compiled a script."""
    ran = tmp_path / "a jdk" / "ran"
    return ran.read_text().count("SqlScript compile") if ran.exists() else 0


def test_scripts_are_compiled_before_the_job_is_stopped(
    cluster: Cluster, rescale: Callable[..., Ran], scripts: tuple[object, ...], tmp_path: Path
) -> None:
    """Once each; the plan is kept when its upgrade is accepted, and the new job runs from it."""
    kept = tmp_path / "kept plan.json"
    words = (*scripts, "--keep-plan", kept)
    for more, code in (((), 1), (("--dry-run",), 1), (("--dry-run", "--accept", "partly"), 0)):
        refused = rescale(*more, plans=words)
        assert refused.code == code, refused.err
        assert "--accept partly" in refused.err + refused.out or code == 0
        assert not kept.exists()
    assert not cluster.changed
    before = compilations(tmp_path)
    done = rescale("--accept", "partly", "--json", plans=words)
    assert done.code == 0, done.err
    assert compilations(tmp_path) - before == 2
    did = {step["step"]: step["did"] for step in done.json["steps"]}
    assert did["sql"] == f"snapshot {SAVEPOINT}-sql: 2 keeps, 1 starts now, 1 null in old rows"
    assert kept.read_bytes() == (tmp_path / "new.json").read_bytes()
    assert kept.stat().st_mode & 0o777 == 0o600
    (ran,) = cluster.runs
    made = sl.sql_upgrade(
        cluster.location, tmp_path / "made", tmp_path / "old.json", tmp_path / "new.json",
        accept="partly",
    ).made  # fmt: skip
    upgraded, expected = (
        sl.open_snapshot(each) for each in (ran["savepointPath"].removeprefix("file:"), made)
    )
    for operator, state in (("4_group-aggregate", "accState"), ("10_join", "right-records")):
        one, other = (each[operator][state].to_arrow() for each in (upgraded, expected))
        assert one.equals(other)


def test_a_script_that_can_not_be_compiled_is_refused_before_the_job_is_stopped(
    cluster: Cluster,
    rescale: Callable[..., Ran],
    scripts: tuple[object, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No Java, no Flink, no such script, or SQL that Flink does not take."""
    bad = tmp_path / "bad.sql"
    bad.write_text("INSERT INTO nowhere")
    home = scripts[-1]
    newer = (*scripts[:2], "--flink-home", home, "--new-sql")
    for words, code, said in (
        ((*newer, bad), 3, "bad.sql: Flink does not take it: line 1"),
        ((*newer, tmp_path / "none.sql"), 3, "none.sql: it can't be read"),
        ((*scripts[:-1], tmp_path), 3, "no JARs of Flink in its `lib`"),
        (scripts[:-2], 2, "version of Flink that compiles SQL is missing"),
        ((*scripts, "--keep-plan", tmp_path / "no" / "x.json"), 3, "no such directory"),
    ):
        refused = rescale("--accept", "partly", plans=words)
        assert (refused.code, said in refused.err) == (code, True), refused.err
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    for more in ((), ("--dry-run",)):
        refused = rescale("--accept", "partly", *more, plans=scripts)
        assert (refused.code, "no Java found, and Flink needs one" in refused.err) == (3, True)
    assert not cluster.changed
    assert not list((tmp_path / "lake").glob("_statelake/rescales/*/*"))


def test_the_way_back_compiles_nothing(
    cluster: Cluster,
    rescale: Callable[..., Ran],
    scripts: tuple[object, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rescale that was killed is undone where there is no Java, too."""
    with monkeypatch.context() as patch:
        patch.setattr(SqlChange, "upgrade", _killed)
        with pytest.raises(Killed):
            rescale("--accept", "partly", plans=scripts)
    assert cluster.stopped
    before = compilations(tmp_path)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    done = rescale("--accept", "partly", "--roll-back", "--json", plans=scripts)
    assert done.code == 1, done.err
    assert done.json["outcome"] == "put back"
    (again,) = cluster.runs
    assert again["savepointPath"] == cluster.location
    assert compilations(tmp_path) == before


class Killed(BaseException):
    """The process is gone."""


def _killed(*_: object, **__: object) -> None:
    raise Killed


def test_a_change_of_sql_needs_both_plans_and_what_to_go_back_to(cluster: Cluster) -> None:
    """Else nothing is asked of the job."""
    words = (
        "flink", "rescale", "--flink", cluster.server.url, "--flink-job", JOB, "--lake", "lake",
        "--job", "shop", "--jar-id", "x", "--exports", "/sp",
    )  # fmt: skip
    usage = run(*words, "--old-plan", "a", "--new-plan", "b")
    assert usage.code == 2
    assert "what to go back to" in usage.err
    for more in (("--accept", "partly"), ("--map", "1=2")):
        one = run(*words, *more)
        assert (one.code, "needs both plans" in one.err) == (3, True), one.err
    for more in (("--old-plan", "a"), ("--old-sql", "a", "--keep-plan", "b")):
        one = run(*words, *more)
        assert (one.code, "give --new-plan, or --new-sql" in one.err) == (2, True), one.err
    assert not cluster.changed
