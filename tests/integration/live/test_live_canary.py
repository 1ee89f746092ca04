"""A canary on a real cluster: what restores, what Flink refuses, and nothing that is left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from statelake.pipelines.flink.cluster import FlinkCluster
from tests.integration.flink.live_cluster import LiveFlink
from tests.support.command import run

pytestmark = [pytest.mark.flink, pytest.mark.full]

NEW_TYPES = {"states": {"counter/count": {"type": "String"}}}


@pytest.fixture(scope="module")
def archived(
    live_flink: LiveFlink, counter: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, FlinkCluster]]:
    """A directory with `lake`, which has a snapshot of a job that runs on."""
    root = tmp_path_factory.mktemp("canary")
    with live_flink.client() as cluster:
        jar = cluster.upload_jar(str(counter))
        job = cluster.run_jar(jar, entry_class="LiveCounter", arguments=["original"], parallelism=2)
        cluster.wait_until_running(job)
        savepoint = run(
            "flink", "savepoint", "--flink", live_flink.url, "--job-name", "original",
            "--lake", root / "lake", "--job", "counter", "--as", "monday",
        )  # fmt: skip
        assert savepoint.code == 0, savepoint.err
        yield root, cluster
        cluster.cancel(job)
        cluster.delete_jar(jar)


def test_a_canary_says_whether_the_jar_restores(
    archived: tuple[Path, FlinkCluster], counter: Path, live_flink: LiveFlink
) -> None:
    """At another max parallelism, too; with Flink's reason beside ours; and all is cleaned up."""
    root, cluster = archived
    (root / "new.json").write_text(json.dumps(NEW_TYPES))
    words = (
        "flink", "canary", "--flink", live_flink.url, "--lake", root / "lake", "--job", "counter",
        "--jar", counter, "--entry-class", "LiveCounter", "--arg", "canary",
        "--exports", root / "exports", "--engine", "local",
    )  # fmt: skip
    good = run(*words, "--json", "--parallelism", 3, "--max-parallelism", 300)
    assert good.code == 0, good.err
    assert (good.json["snapshot"], good.json["restores"]) == ("monday", True)
    sampled = run(*words, "--json", "--sample", "20%", "--seed", 3)
    assert sampled.code == 0, sampled.err
    assert sampled.json["restores"] is True
    bad = run(*words, "--arg", "text", "--against", root / "new.json", "--json")
    assert bad.code == 1
    assert "StateMigrationException" in bad.json["why"]
    assert bad.json["compatible"] is False
    assert "is refused from monday" in run(*words, "--arg", "text").out
    canaries = [job for job in cluster.jobs() if job.name == "canary"]
    assert canaries
    assert all(job.ended for job in canaries)
    assert cluster.find_job("original").state == "RUNNING"
    assert list((root / "exports").iterdir()) == []
    assert run(*words, "--snapshot", "tuesday").code == 3
