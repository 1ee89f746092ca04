"""Commands on a cluster whose executors have Python and nothing of ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipelines.spark.packing import pack
from tests.integration.spark.cluster import SparkCluster
from tests.support.savepoints.golden_cases import golden_cases

pytestmark = [pytest.mark.spark, pytest.mark.full]

(CASE,) = (
    case
    for case in golden_cases("kinds", form="canonical")
    if case.name == "kinds-rocksdb-canonical-snappy-p3-m128-flink2.3.0"
)
LAKE = ("--lake", "lake", "--job", "j")
COUNT = "SELECT count(*) AS people FROM kinds.total"


@dataclass(frozen=True)
class Place:
    """A cluster, an archive that its executors can be sent, and where commands are called."""

    cluster: SparkCluster
    packed: Path
    root: Path

    def statelake(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Call the command in a process of its own, in the directory."""
        command = [sys.executable, "-m", "pipelines.cli.main", *map(str, words)]
        root = str(Path(__file__).parents[3])
        environment = {**os.environ, "PYTHONPATH": root, "SPARK_LOCAL_IP": "127.0.0.1"}
        environment.pop("PYSPARK_PYTHON", None)
        return subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )

    def done(self, *words: object) -> str:
        """What a command prints that ends well, and says nothing beside it."""
        ended = self.statelake(*words)
        assert ended.returncode == 0, ended.stderr
        assert "Exception" not in ended.stderr
        return ended.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A cluster that has run nothing yet."""
    root = tmp_path_factory.mktemp("spark-cluster")
    packed = root / "statelake.tar.gz"
    assert pack(packed) == packed.stat().st_size
    with SparkCluster() as cluster:
        yield Place(cluster, packed, root)


def go_the_whole_way(place: Place, master: str) -> None:
    """Import, query and export there, and find what the local engine finds."""
    there = ("--engine", "spark", "--master", master, "--spark-pack", place.packed)
    for name in ("lake", "there", "here", "savepoint"):
        shutil.rmtree(place.root / name, ignore_errors=True)
    shutil.copytree(CASE.snapshot, place.root / "savepoint")
    place.done("import", "savepoint", *LAKE, "--snapshot", "monday", *there)
    assert json.loads(place.done("sql", *LAKE, "--json", *there, COUNT)) == {"people": 120}
    place.done("export", *LAKE, "--snapshot", "monday", "--to", "there", "--parallelism", 5, *there)
    place.done("export", *LAKE, "--snapshot", "monday", "--to", "here", "--parallelism", 5)
    exported = [place.done("dump", name).splitlines() for name in ("there", "here")]
    assert (
        sorted(exported[0])
        == sorted(exported[1])
        == sorted(place.done("dump", CASE.snapshot).splitlines())
    )


class TestCluster:
    """A standalone cluster."""

    def test_an_archive_brings_all_that_executors_need(self, place: Place) -> None:
        """Import, SQL and export, by executors that unpacked it."""
        go_the_whole_way(place, place.cluster.master)
        assert any((folder / "statelake" / "bin").is_dir() for folder in place.cluster.executors)

    def test_what_executors_lack_is_said_in_a_sentence(self, place: Place) -> None:
        """Without the archive: one line, with what to do, and no lake."""
        ended = place.statelake(
            "import", CASE.snapshot, "--lake", "none", "--job", "j", "--engine", "spark",
            "--master", place.cluster.master, "--spark-conf", "spark.pyspark.python=python3",
        )  # fmt: skip
        assert ended.returncode == 3, ended.stderr
        (line,) = ended.stderr.strip().splitlines()
        assert "the executors lack a module of Python's" in line
        assert "statelake spark pack" in line
        assert not [*(place.root / "none").rglob("*.*")]


@pytest.mark.nightly
def test_spark_connect_does_the_same(place: Place) -> None:
    """Through a server on that cluster, which takes the archive as an artifact."""
    go_the_whole_way(place, place.cluster.connect())


def test_a_server_that_is_not_there_is_said_in_a_sentence(place: Place) -> None:
    """Nobody listens at the port."""
    ended = place.statelake(
        "sql", *LAKE, "--engine", "spark", "--master", "sc://127.0.0.1:9", COUNT
    )
    assert ended.returncode == 3
    assert "no session of Spark Connect" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_archive_that_is_not_there_is_said_in_a_sentence(place: Place) -> None:
    """Before a JVM starts."""
    ended = place.statelake(
        "import", CASE.snapshot, "--lake", "none", "--job", "j", "--engine", "spark",
        "--master", place.cluster.master, "--spark-pack", "none.tar.gz",
    )  # fmt: skip
    assert ended.returncode == 3
    assert "there is no such archive" in ended.stderr
