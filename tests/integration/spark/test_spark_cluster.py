"""Commands on a cluster whose executors have Python and nothing of ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

import pyarrow.parquet as pq
import pytest

from statelake.pipelines.engine import SPARK_CONF
from statelake.pipelines.spark.packing import pack
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.files.storage_options import STORES
from tests.integration.hdfs.cluster import Hdfs
from tests.integration.s3.proxy import BUCKET, ENVIRONMENT, KEY, SECRET, S3Proxy
from tests.integration.spark.cluster import SparkCluster
from tests.integration.spark.one_session import ENDED
from tests.support.savepoints.golden_cases import golden_cases

pytestmark = [pytest.mark.spark, pytest.mark.full]

(CASE,) = (
    case
    for case in golden_cases("kinds", form="canonical")
    if case.name == "kinds-rocksdb-canonical-snappy-p3-m128-flink2.3.0"
)
Location = Callable[[str], str]
LAKE = ("--lake", "lake", "--job", "j")
ALERTS = f"{Path(__file__).parents[3] / 'examples' / 'alerts.py'}:JOB"
ORDER = '{"customer": 1, "amount": 500, "at": 1000}\n'
RULE = '{"rule": "big", "limit": 100}\n'
NEW_TYPES = """
states:
  kinds/total:
    type: Double
    expressions: CAST(old AS DOUBLE) / 100
"""
SUM = "SELECT sum(value) AS sum FROM kinds.total"
COUNT = "SELECT count(*) AS people FROM kinds.total"


@dataclass(frozen=True)
class Place:
    """A cluster, an archive that its executors can be sent, and where commands are called."""

    cluster: SparkCluster
    packed: Path
    root: Path

    def statelake(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Call the command in a process of its own, in the directory."""
        return self._called("statelake.pipelines.cli.main", map(str, words))

    def one_session(
        self, master: str, commands: list[list[str]], at: Location | None = None
    ) -> list[str]:
        """What each command prints, all in one process, and with `at` a run of Dagster's there.

        Args:
            master: Where Spark runs.
            commands: The commands.
            at: Where the data of jobs and Dagster lies.
        """
        there = {"STATELAKE_MASTER": master, "STATELAKE_SPARK_PACK": str(self.packed)}
        dagster: list[str] = []
        if at is not None:
            there["ALERTS_DATA"] = at("alerts")
            dagster = [at(name) for name in ("savepoints", "dagster/lake", "dagster/exports")]
        said = "".join(f"{json.dumps(words)}\n" for words in commands)
        ended = self._called("tests.integration.spark.one_session", dagster, there, said)
        assert ended.returncode == 0, ended.stderr
        assert "Exception" not in ended.stderr
        return ended.stdout.split(f"{ENDED}\n")

    def _called(
        self,
        module: str,
        words: Iterable[str],
        settings: Mapping[str, str] = MappingProxyType({}),
        said: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run a module in a process of its own, in the directory."""
        root = str(Path(__file__).parents[3])
        environment = {**os.environ, "PYTHONPATH": root, "SPARK_LOCAL_IP": "127.0.0.1", **settings}
        environment.pop("PYSPARK_PYTHON", None)
        return subprocess.run(
            [sys.executable, "-m", module, *words],
            cwd=self.root, env=environment, input=said, capture_output=True, text=True, check=False,
        )  # fmt: skip

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
    """Import, query and export there, and find what the local engine finds.

    In one session, whose executors unpack the archive once.
    """
    for name in ("lake", "there", "here", "savepoint"):
        shutil.rmtree(place.root / name, ignore_errors=True)
    shutil.copytree(CASE.snapshot, place.root / "savepoint")
    spark = ["--engine", "spark"]
    export = ["export", *LAKE, "--snapshot", "monday", "--parallelism", "5", "--to"]
    _, counted, *_ = place.one_session(
        master,
        [
            ["import", "savepoint", *LAKE, "--snapshot", "monday", *spark],
            ["sql", *LAKE, "--json", *spark, COUNT],
            [*export, "there", *spark],
            [*export, "here", "--engine", "local"],
        ],
    )
    assert json.loads(counted) == {"people": 120}
    exported = [place.done("dump", name).splitlines() for name in ("there", "here")]
    assert (
        sorted(exported[0])
        == sorted(exported[1])
        == sorted(place.done("dump", CASE.snapshot).splitlines())
    )


def go_on_in_one_session(place: Place, master: str, at: Location | None = None) -> None:
    """A migration by SQL, a comparison, a run of a job and Dagster's assets, in one session.

    Args:
        place: Where the commands are called.
        master: Where Spark runs.
        at: Where savepoints, lakes and exports lie; by default beside the commands.
    """
    if at is None:
        shutil.rmtree(place.root / "session", ignore_errors=True)
        at = partial(os.path.join, place.root / "session")
    savepoints, alerts = Directory(at("savepoints")), Directory(at("alerts"))
    for path in CASE.snapshot.iterdir():
        savepoints.write(f"monday/{path.name}", path.read_bytes())
    for source, line in (("orders", ORDER), ("rules", RULE)):
        alerts.write(f"{source}/a.json", line.encode())
    (place.root / "types.yaml").write_text(NEW_TYPES)
    monday = at("savepoints/monday")
    lake = ["--lake", at("lake"), "--job", "j"]
    printed = place.one_session(
        master,
        [
            ["import", monday, *lake, "--snapshot", "monday"],
            ["migrate", *lake, "--snapshot", "monday", "--state", "kinds/total",
             "--to", "types.yaml", "--suffix", "-new"],
            ["plan-rescale", *lake, "--snapshot", "monday-new", "--parallelism", "5"],
            ["run", ALERTS, "--lake", at("runs")],
            ["import", monday, *lake, "--snapshot", "again"],
            ["sql", "--engine", "spark", *lake, "--json", "--as-of", "again", COUNT],
            ["diff", *lake, "monday-new", "again", "--json"],
            ["export", *lake, "--snapshot", "again", "--to", at("wide"), "--parallelism", "5"],
        ],
        at,
    )  # fmt: skip
    assert any("Long → Double" in text for text in printed)
    *_, counted, differences, _, _ = printed
    assert json.loads(counted) == {"people": 120}
    changed = [row for row in json.loads(differences) if row["status"] != "same"]
    assert [(row["state"], row["status"]) for row in changed] == [("total", "retyped")]
    sums = [
        json.loads(place.done("sql", *lake, "--json", "--as-of", name, SUM))["sum"]
        for name in ("monday", "monday-new")
    ]
    assert sums[0] == pytest.approx(100 * sums[1])
    told = Directory(at("alerts/alerts"))
    (rows,) = (path for path, _ in told.files_below() if path.endswith(".parquet"))
    with told.open_input(rows) as file:
        assert pq.read_table(file).to_pylist() == [{"customer": 1, "rule": "big", "spent": 500}]
    exports = Directory(at("dagster/exports"))
    (by_dagster,) = (path for path, _ in exports.files_below() if path.endswith("_metadata"))
    for exported in (at("wide"), exports.child(by_dagster).child("..").location):
        assert sorted(place.done("dump", exported).splitlines()) == sorted(
            place.done("dump", CASE.snapshot).splitlines()
        )


class TestCluster:
    """A standalone cluster."""

    def test_an_archive_brings_all_that_executors_need(self, place: Place) -> None:
        """Import, SQL and export, by executors that unpacked it."""
        go_the_whole_way(place, place.cluster.master)
        assert any((folder / "statelake" / "bin").is_dir() for folder in place.cluster.executors)

    @pytest.mark.nightly
    def test_one_session_serves_commands_and_dagster(self, place: Place) -> None:
        """Executors serve one after the other, and make what is made here."""
        go_on_in_one_session(place, place.cluster.master)

    def test_what_executors_lack_is_said_in_a_sentence(self, place: Place) -> None:
        """Without the archive: one line, with what to do, and no row in the lake."""
        ended = place.statelake(
            "import", CASE.snapshot, "--lake", "none", "--job", "j", "--engine", "spark",
            "--master", place.cluster.master, "--spark-conf", "spark.pyspark.python=python3",
        )  # fmt: skip
        assert ended.returncode == 3, ended.stderr
        (line,) = ended.stderr.strip().splitlines()
        assert "the executors lack a module of Python's" in line
        assert "statelake spark pack" in line
        assert not [*(place.root / "none").rglob("*.parquet")]


@pytest.mark.nightly
def test_one_session_works_in_hdfs(place: Place) -> None:
    """Savepoints, lakes, exports and a job's data: neither driver nor executors have Hadoop."""
    with Hdfs() as hdfs:
        go_on_in_one_session(place, place.cluster.master, hdfs.location)


@pytest.mark.nightly
def test_one_session_works_in_s3(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """With keys that only the driver has a file of; Spark's own SQL is brought S3A."""
    stores = place.root / "stores.toml"
    stores.write_text(
        f'["s3://{BUCKET}"]\nAWS_ACCESS_KEY_ID = "{KEY}"\nAWS_SECRET_ACCESS_KEY = "{SECRET}"\n'
    )
    monkeypatch.setenv(STORES, str(stores))
    others = {name: value for name, value in ENVIRONMENT.items() if value not in (KEY, SECRET)}
    for name, value in others.items():
        monkeypatch.setenv(name, value)
    told = [f"spark.executorEnv.{name}={value}" for name, value in others.items()]
    monkeypatch.setenv(SPARK_CONF, "\n".join(told))
    with S3Proxy() as s3:
        go_on_in_one_session(place, place.cluster.master, s3.location)


@pytest.mark.nightly
def test_spark_connect_does_the_same(place: Place) -> None:
    """Through a server on that cluster, which takes the archive as an artifact."""
    server = place.cluster.connect()
    go_the_whole_way(place, server)
    go_on_in_one_session(place, server)


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
