"""Operator state on Spark: imported, planned for another parallelism, and written for it there.

However many tasks there are, each subtask gets what Flink gave it (`expected-at-p<N>.jsonl`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export import redistributing
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.tables import file_spans as units
from statelake.pipelines.lake.tables import operator_tables
from statelake.pipelines.requests.imports import Import
from statelake.pipelines.spark.engine import SparkEngine
from statelake.state_core.formats.reader import Snapshot
from tests.support.command import run
from tests.support.savepoints.golden_cases import GoldenCase
from tests.support.savepoints.operator_contents import (
    OPERATOR_CASES,
    UIDS,
    assert_dealt_out,
    by_subtask,
    copies,
    state_of,
)

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.thinned(2)]

PARALLELISMS = (1, 2, 3, 4, 5, 7)
EVERY_RUN = {("small", 1), ("whole", 5), ("small", 7)}
every_case = pytest.mark.parametrize("golden", OPERATOR_CASES, ids=lambda case: case.name)
at_each_parallelism = pytest.mark.parametrize(
    ("engine", "parallelism"),
    [
        pytest.param(size, parallelism, marks=[] if (size, parallelism) in EVERY_RUN else
                     pytest.mark.full)
        for size in ("small", "whole")
        for parallelism in PARALLELISMS
    ],
    indirect=["engine"],
)  # fmt: skip
STATES = ("split", "offsets", "union")


class Counting:
    """Spark as an engine; `tasks` is how many tasks each function had."""

    name = "spark"
    repeats = True

    def __init__(self, spark: SparkSession) -> None:
        self.spark = SparkEngine(spark)
        self.tasks: dict[str, int] = {}

    def map(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], progress: Any = None
    ) -> list[Any]:
        """As `Engine.map`."""
        # one whose time is measured is called by what measures it
        name = function.args[0].__name__ if isinstance(function, partial) else function.__name__
        self.tasks[name] = max(self.tasks.get(name, 0), len(tasks))
        return self.spark.map(function, tasks, progress)


@pytest.fixture
def engine(
    request: pytest.FixtureRequest, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Counting:
    """Spark; once with tasks so small that each subtask is one of its own."""
    if request.param == "small":
        monkeypatch.setattr(operator_tables, "PIECE_BYTES", 1)
        monkeypatch.setattr(redistributing, "TASK_BYTES", 1)
        monkeypatch.setattr(units, "SLICE_BYTES", 1)
    return Counting(spark)


def lists(snapshot: Snapshot) -> dict[str, Any]:
    """Every state by subtask, lists in their order."""
    held: dict[str, Any] = {name: by_subtask(state_of(snapshot, name)) for name in STATES}
    return held | {"rules": list(copies(state_of(snapshot, "rules")))}


@at_each_parallelism
@every_case
def test_each_subtask_has_what_flink_gives_it(
    golden: GoldenCase, parallelism: int, engine: Counting, tmp_path: Path
) -> None:
    """SPLIT to the element, UNION for everyone, a BROADCAST copy each; as in this process."""
    lake, target = Catalog(tmp_path / "lake"), tmp_path / "out"
    source = str(golden.snapshot)
    done = import_snapshot(lake, source, "rules", Import(uids=UIDS), snapshot_id="s", engine=engine)
    assert done.engine == "spark"
    export_snapshot(lake, "rules", "s", target, parallelism=parallelism, engine=engine)
    snapshot = open_snapshot(target)
    assert_dealt_out(snapshot, golden, parallelism)
    local = Catalog(tmp_path / "local-lake")
    import_snapshot(local, source, "rules", Import(uids=UIDS), snapshot_id="s", engine="local")
    export_snapshot(local, "rules", "s", tmp_path / "local", parallelism=parallelism,
                    engine="local")  # fmt: skip
    assert lists(snapshot) == lists(open_snapshot(tmp_path / "local"))
    if operator_tables.PIECE_BYTES == 1:
        assert engine.tasks["import_operator_states"] > 2
        assert engine.tasks["_write_subtasks"] == parallelism


@every_case
@pytest.mark.usefixtures("spark")
def test_the_commands(golden: GoldenCase, tmp_path: Path) -> None:
    """`rescale` says how many elements each subtask will have; the export on Spark has those."""
    place = ("--lake", tmp_path / "lake", "--job", "rules", "--snapshot", "s")
    on_spark = ("--engine", "spark", "--json")
    uids = [word for uid in UIDS for word in ("--uid", uid)]
    ran = run("import", golden.snapshot, *place, *uids, *on_spark)
    assert (ran.code, ran.err) == (0, "")
    plans = {plan["operator"]: plan for plan in
             run("plan-rescale", *place, "--parallelism", 5, "--json").json}  # fmt: skip
    ran = run("export", *place, "--to", tmp_path / "out", "--parallelism", 5, *on_spark)
    assert (ran.code, ran.err, ran.json["engine"]) == (0, "", "spark")
    snapshot = open_snapshot(tmp_path / "out", uids=UIDS)
    assert_dealt_out(snapshot, golden, 5)
    planned = plans["opstate"]["operator_states"]
    for name in ("split", "offsets"):
        assert planned[name] == counted(by_subtask(state_of(snapshot, name)), range(5))
    union = [value for held in by_subtask(state_of(snapshot, "union")).values() for value in held]
    assert planned["union"] == [len(union)] * 5  # everyone gets all
    (rules, *_) = copies(state_of(snapshot, "rules"))
    assert plans["rules"]["operator_states"]["rules"] == [len(rules)] * 5


def counted(held: dict[int, list[Any]], subtasks: Iterable[int]) -> list[int]:
    """The elements of each subtask."""
    return [len(held.get(subtask, [])) for subtask in subtasks]
