"""Executors that are killed at random while a cluster works: the result is that of a calm run."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.state_core.formats.writing.new_snapshot import write_snapshot
from statelake.state_core.formats.writing.new_states import NewKeyedState, NewOperator
from tests.integration.spark.cluster import SparkCluster
from tests.integration.spark.driver import SparkDriver

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.nightly]

RUNS = int(os.environ.get("STATELAKE_LOST_EXECUTORS", "5"))
ENTRIES = 1_500_000
SUBTASKS = 8
TYPES = "states:\n  op/state: {type: Double, expressions: CAST(old AS DOUBLE) / 100}\n"


class Driver(SparkDriver):
    """A driver whose cluster loses executors."""

    def __init__(self, cluster: SparkCluster, root: Path) -> None:
        super().__init__(cluster, root, {"spark.task.maxFailures": "20"})
        self.cluster = cluster
        self.root = root
        self.killed = 0

    def lose(self, words: list[str], after: float, which: int) -> None:
        """Run a command, and kill an executor so many seconds after its begin."""
        self.begin(words)
        time.sleep(after)
        executors = self.cluster.executor_processes
        if executors:
            self.killed += 1
            os.kill(executors[which % len(executors)], signal.SIGKILL)
        self.end()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver, beside a savepoint of some tasks' work."""
    root = tmp_path_factory.mktemp("lost-executors")
    (root / "types.yaml").write_text(TYPES)
    ids = np.arange(ENTRIES)
    keys = pa.array(np.char.add("a key that takes some bytes, that is ", ids.astype("U8")))
    state = NewKeyedState("state", pa.table({"key": keys, "value": ids}), value="Long")
    operator = NewOperator("op", "String", (state,), parallelism=SUBTASKS, max_parallelism=128)
    write_snapshot(root / "savepoint", [operator], metadata_version=6)
    with SparkCluster() as cluster, Driver(cluster, root) as driver:
        yield driver


def commands(name: str) -> list[list[str]]:
    """An import, a migration, and exports with the same and with other key groups."""
    lake = ["--lake", f"{name}/lake", "--job", "j"]
    old = ["--snapshot", "old", "--to"]
    return [
        ["import", "savepoint", *lake, "--snapshot", "old"],
        ["migrate", *lake, "--snapshot", "old", "--state", "op/state", "--to", "types.yaml",
         "--suffix", "-new"],
        ["export", *lake, *old, f"{name}/old", "--parallelism", "3"],
        ["export", *lake, "--snapshot", "old-new", "--to", f"{name}/new"],
        ["export", *lake, *old, f"{name}/wide", "--max-parallelism", "100"],
    ]  # fmt: skip


def savepoints(root: Path) -> dict[str, list[bytes]]:
    """The files of each savepoint below a directory, but for `_metadata`, which names them."""
    return {
        name: sorted(
            path.read_bytes() for path in (root / name).iterdir() if path.name != "_metadata"
        )
        for name in ("old", "new", "wide")
    }


def unnamed(lake: Catalog) -> set[str]:
    """Files of tables that no snapshot names."""
    named = {
        f"{table.path}/{unit.path}"
        for summary in lake.summaries("j")
        for operator in lake.snapshot("j", summary.snapshot_id).operators
        for table in operator.tables
        for unit in table.units
    }
    present = {path for path in Path(lake.location).rglob("_data/**/*") if path.is_file()}
    return {str(path.relative_to(lake.location)) for path in present} - named


def test_lost_executors_leave_no_trace(driver: Driver) -> None:
    """One is killed at a random moment of each command; bytes are those of a run without."""
    driver.run("import", "savepoint", "--lake", "warm/lake", "--job", "j")
    calm = [driver.run(*words).seconds for words in commands("calm")]
    expected = savepoints(driver.root / "calm")
    assert [len(files) for files in expected.values()] == [3, SUBTASKS, SUBTASKS]
    for seed in range(RUNS):
        chance = random.Random(seed)
        name = f"lost-{seed}"
        for words, seconds in zip(commands(name), calm, strict=True):
            driver.lose(words, chance.uniform(0, seconds), chance.randrange(2))
        assert savepoints(driver.root / name) == expected, name
        assert not unnamed(Catalog(driver.root / name / "lake")), name
    assert driver.killed > RUNS
