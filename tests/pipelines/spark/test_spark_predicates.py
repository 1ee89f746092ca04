"""`statelake edit --purge`: rows that a Spark SQL predicate names go, of either kind of state."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from tests.support.command import run
from tests.support.lakes import KINDS, assert_whole, entries, exported, files_of, golden, import_as

pytestmark = [pytest.mark.spark, pytest.mark.full]
OPERATOR = golden("operator-hashmap-canonical-p2-m128-flink2.3.0").snapshot


@pytest.fixture
def lake(
    tmp_path: Path,
    spark: SparkSession,  # noqa: ARG001 - the command takes it for its own
) -> Catalog:
    """A lake with keyed and with operator state."""
    lake = Catalog(tmp_path / "lake")
    import_as(lake, KINDS, "s")
    import_as(lake, OPERATOR, "s", "rules")
    return lake


def purge(lake: Catalog, job: str, state: str, predicate: str) -> tuple[int, str]:
    """Run the command: its exit code, and what it said."""
    ran = run(
        "edit", "--lake", lake.location, "--job", job, "--parent", "s", "--snapshot", "less",
        "--purge", state, predicate,
    )  # fmt: skip
    return ran.code, ran.err


def test_keyed_rows(lake: Catalog, tmp_path: Path) -> None:
    """The rows of which it is true go, and all others are there, entry for entry."""
    assert purge(lake, "orders", "kinds/total", "value > 10 AND key_group < 64") == (0, "")
    before = open_snapshot(KINDS).operator("kinds").state("total").to_arrow().to_pylist()
    stays = [row for row in before if not (row["value"] > 10 and row["key_group"] < 64)]
    assert 0 < len(stays) < len(before)
    found = exported(lake, "less", tmp_path / "out")
    after = open_snapshot(tmp_path / "out").operator("kinds").state("total").to_arrow()
    assert sorted(map(str, after.to_pylist())) == sorted(map(str, stays))
    others = {key: held for key, held in entries(KINDS).items() if key[1] != "total"}
    assert {key: held for key, held in found.items() if key[1] != "total"} == others
    assert not [name for name in files_of(tmp_path / "lake") if "staged" in name]
    assert_whole(lake)


def test_operator_state(lake: Catalog, tmp_path: Path) -> None:
    """Elements of a list, and the rest keeps its subtask and order."""
    assert purge(lake, "rules", "opstate/split", "value % 3 = 0") == (0, "")
    before = open_snapshot(OPERATOR).operator("opstate").operator_state("split").to_arrow()
    stays = [(row["subtask"], row["value"]) for row in before.to_pylist() if row["value"] % 3 != 0]
    exported(lake, "less", tmp_path / "out", "rules")
    after = open_snapshot(tmp_path / "out").operator("opstate").operator_state("split").to_arrow()
    assert [(row["subtask"], row["value"]) for row in after.to_pylist()] == stays


@pytest.mark.parametrize("predicate", ["nothing = 1", "value >", "value; DROP TABLE x"])
def test_what_spark_does_not_understand(predicate: str, lake: Catalog) -> None:
    """It is told in one line, and nothing was made."""
    code, said = purge(lake, "orders", "kinds/total", predicate)
    assert code == 3
    assert "the predicate can't be understood" in said
    assert [summary.snapshot_id for summary in lake.summaries("orders")] == ["s"]
