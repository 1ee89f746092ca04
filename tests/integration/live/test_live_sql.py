"""A Flink SQL job on a real cluster gets another query, or is put back: its counts go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import statelake as sl
from statelake.pipelines.live.cluster import FlinkCluster
from tests.integration.conftest import started
from tests.integration.flink.distribution import JAVA_SOURCES, flink_home
from tests.integration.flink.live_cluster import LiveFlink, jar_of
from tests.integration.flink.sql_jobs import MODULES, SqlFlink
from tests.support.command import Ran, run

pytestmark = [pytest.mark.flink, pytest.mark.full]

KEYS = 5
TABLES = (
    "CREATE TABLE numbers (k BIGINT, v BIGINT) WITH ('connector' = 'datagen',"
    f" 'rows-per-second' = '200', 'fields.k.min' = '0', 'fields.k.max' = '{KEYS - 1}');\n"
    "CREATE TABLE nowhere ({columns}) WITH ('connector' = 'blackhole');\n"
    "INSERT INTO nowhere SELECT {query} FROM numbers GROUP BY k"
)
OLD = TABLES.format(columns="k BIGINT, n BIGINT", query="k, COUNT(v)")
NEW = TABLES.format(columns="k BIGINT, m BIGINT, n BIGINT", query="k, MAX(v), COUNT(v)")


@pytest.fixture(scope="module")
def live() -> Iterator[LiveFlink]:
    """A cluster that runs plans."""
    with started(lambda: LiveFlink(extra=MODULES), "no Flink cluster can be started") as made:
        yield made


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The plans of the old query and of the new one."""
    directory = tmp_path_factory.mktemp("plans")
    with SqlFlink("2.3.0", directory) as flink:
        old, new = (flink.compile(sql)[0] for sql in (OLD, NEW))
    return old, new


def counts(savepoint: str, plan: Path) -> dict[int, int]:
    """Return how often each key was counted."""
    with_names = sl.open_snapshot(savepoint.removeprefix("file:"), plan=plan)
    (operator,) = (each for each in with_names.operators if each.keyed_states)
    rows = operator["accState"].to_arrow().to_pylist()
    return {row["key"]["k"]: row["value"]["count_v"] for row in rows}


@pytest.mark.parametrize("kind", ["goes on", "put back", "of scripts"])
def test_a_running_query_gets_another_one(
    kind: str, live: LiveFlink, plans: tuple[Path, Path], tmp_path: Path
) -> None:
    """Without --accept it is not stopped; else it goes on, by the new plan or the old one.

    The plan of a script is kept before the job is stopped, and is what the new job runs.
    """
    old, new = plans
    named: tuple[object, ...] = ("--old-plan", old, "--new-plan", new)
    if kind == "of scripts":
        scripts = tmp_path / "old job.sql", tmp_path / "new job.sql"
        for script, sql in zip(scripts, (OLD, NEW), strict=True):
            script.write_text(sql)
        new = tmp_path / "kept.json"
        home = flink_home("2.3.0", tmp_path / "flink home", MODULES)
        named = ("--old-sql", scripts[0], "--new-sql", scripts[1], "--keep-plan", new,
                 "--flink-home", home)  # fmt: skip
    comes_up = kind != "put back"
    jar = jar_of([JAVA_SOURCES / "PlanRunner.java"], tmp_path / "plan.jar", "PlanRunner", MODULES)
    name = f"numbers {kind}"
    with live.client() as cluster:
        uploaded = cluster.upload_jar(str(jar))
        first = cluster.run_jar(uploaded, arguments=[name, str(old)])
        cluster.wait_until_running(first)

        def rescale(*words: str) -> Ran:
            plan = new if comes_up else tmp_path / "nowhere.json"
            return run(
                "flink", "rescale", "--flink", live.url, "--flink-job", name, "--lake",
                tmp_path / "lake", "--job", "numbers", "--jar", jar, "--arg", name, "--arg", plan,
                "--old-arg", name, "--old-arg", old, "--savepoints", f"file:{tmp_path}/savepoints",
                "--exports", tmp_path, *named, "--parallelism", 2, "--engine", "local", "--json",
                *words,
            )  # fmt: skip

        refused = rescale()
        assert refused.code == 1
        assert "--accept partly" in refused.err
        assert new.exists() == (kind != "of scripts")
        assert cluster.job(first).runs
        done = rescale("--accept", "partly")
        assert done.json["outcome"] == ("rescaled" if comes_up else "put back"), done.json
        before = counts(done.json["savepoint"], old)
        after = counts(
            _stopped(cluster, done.json["flink_job"], tmp_path), new if comes_up else old
        )
        cluster.delete_jar(uploaded)
    assert sorted(before) == list(range(KEYS))
    assert all(after[key] > before[key] for key in before)


def _stopped(cluster: FlinkCluster, job_id: str, to: Path) -> str:
    return cluster.stop_with_savepoint(job_id, f"file:{to}/savepoints")
