"""Commands on a cluster whose executors have Python and nothing of ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest
from deltalake import DeltaTable

from pipelines.spark.packing import pack
from tests.integration.spark.cluster import SparkCluster
from tests.integration.spark.one_session import ENDED
from tests.support.savepoints.golden_cases import golden_cases

pytestmark = [pytest.mark.spark, pytest.mark.full]

(CASE,) = (
    case
    for case in golden_cases("kinds", form="canonical")
    if case.name == "kinds-rocksdb-canonical-snappy-p3-m128-flink2.3.0"
)
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
        return self._called("pipelines.cli.main", map(str, words))

    def one_session(self, master: str, below: str, commands: list[list[str]]) -> str:
        """What commands print in one process, and then a run of Dagster's there.

        Args:
            master: Where Spark runs.
            below: The directory of Dagster's lake and exports.
            commands: The commands.
        """
        there = {
            "STATELAKE_MASTER": master,
            "STATELAKE_SPARK_PACK": str(self.packed),
            "ALERTS_DATA": "alerts",
        }
        ended = self._called(
            "tests.integration.spark.one_session",
            [str(self.root / name) for name in ("savepoints", f"{below}/lake", f"{below}/exports")],
            there,
            "".join(f"{json.dumps(words)}\n" for words in commands),
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

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


def go_on_in_one_session(place: Place, master: str) -> None:
    """A migration by SQL, a comparison, a run of a job and Dagster's assets, in one session."""
    for name in ("savepoints", "dagster", "session", "alerts"):
        shutil.rmtree(place.root / name, ignore_errors=True)
    shutil.copytree(CASE.snapshot, place.root / "savepoints" / "monday")
    for source, line in (("orders", ORDER), ("rules", RULE)):
        (place.root / "alerts" / source).mkdir(parents=True)
        (place.root / "alerts" / source / "a.json").write_text(line)
    (place.root / "types.yaml").write_text(NEW_TYPES)
    lake = ["--lake", "session/lake", "--job", "j"]
    printed = place.one_session(
        master,
        "dagster",
        [
            ["import", "savepoints/monday", *lake, "--snapshot", "monday"],
            ["migrate", *lake, "--snapshot", "monday", "--state", "kinds/total",
             "--to", "types.yaml", "--suffix", "-new"],
            ["rescale", *lake, "--snapshot", "monday-new", "--parallelism", "5"],
            ["run", ALERTS, "--lake", "session/runs"],
            ["import", "savepoints/monday", *lake, "--snapshot", "again"],
            ["diff", *lake, "monday-new", "again", "--json"],
        ],
    )  # fmt: skip
    assert "Long → Double" in printed
    *_, differences, _ = printed.split(f"{ENDED}\n")
    changed = [row for row in json.loads(differences) if row["status"] != "same"]
    assert [(row["state"], row["status"]) for row in changed] == [("total", "retyped")]
    sums = [
        json.loads(place.done("sql", *lake, "--json", "--as-of", name, SUM))["sum"]
        for name in ("monday", "monday-new")
    ]
    assert sums[0] == pytest.approx(100 * sums[1])
    alerts = DeltaTable(str(place.root / "alerts" / "alerts")).to_pyarrow_table().to_pylist()
    assert alerts == [{"customer": 1, "rule": "big", "spent": 500}]
    (exported,) = (place.root / "dagster" / "exports").rglob("_metadata")
    assert sorted(place.done("dump", exported.parent).splitlines()) == sorted(
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
