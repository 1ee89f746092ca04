"""A canary on a real cluster: what restores, what Flink refuses, and nothing that is left."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from statelake.pipelines.live.cluster import FlinkCluster
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
            "flink", "savepoint", "--flink", live_flink.url, "--flink-job", "original",
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


def test_a_drill_restores_the_newest_copy(
    archived: tuple[Path, FlinkCluster], counter: Path, live_flink: LiveFlink
) -> None:
    """It says how old that is and how long it took; another type is refused, as Flink says."""
    root, cluster = archived
    of = ("--lake", root / "lake", "--job", "counter", "--snapshot", "monday")
    assert run("export", *of, "--to", root / "made", "--engine", "local").code == 0
    region = root / "region"
    for name, age in (("old", 7200), ("new", 3600)):
        at = time.time() - age
        os.utime(root / "made" / "_metadata", (at, at))
        assert run("copy", root / "made", region / name).code == 0
    shutil.rmtree(root / "made")
    shutil.copytree(region / "new", region / "damaged")
    next(path for path in (region / "damaged").iterdir() if path.name != "_metadata").unlink()
    os.utime(region / "damaged" / "_metadata")
    words = (
        "flink", "drill", region, "--flink", live_flink.url, "--jar", counter,
        "--entry-class", "LiveCounter", "--arg", "drill",
    )  # fmt: skip
    ran = run(*words, "--json")
    assert ran.code == 0, ran.err
    assert (ran.json["snapshot"], ran.json["restores"]) == (str(region / "new"), True)
    assert 3600 <= ran.json["age_seconds"] < 3700
    assert 0 < ran.json["restore_seconds"] < 60
    assert ran.json["skipped"] == 1
    refused = run(*words, "--arg", "text")
    assert refused.code == 1
    assert f"{region / 'new'} was not restored" in refused.out
    assert "StateMigrationException" in refused.out
    drills = [job for job in cluster.jobs() if job.name == "drill"]
    assert drills
    assert all(job.ended for job in drills)
    assert (region / "new" / "_metadata").exists()
    shutil.rmtree(region / "new")
    shutil.rmtree(region / "old")
    none = run(*words)
    assert none.code == 3
    assert "damaged is damaged" in none.err
