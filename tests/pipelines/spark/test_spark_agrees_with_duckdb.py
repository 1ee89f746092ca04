"""Both engines of `statelake sql` give the same rows: of every state of every golden snapshot."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.query.session import Session
from statelake.pipelines.lake.query.table_names import TableNames
from statelake.pipelines.shown import json_text, plain
from statelake.pipelines.spark.sql import run_sql
from tests.support.lakes import import_as
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

pytestmark = [pytest.mark.spark, pytest.mark.full]

AGGREGATES = (
    "SELECT count(*) AS n, count(DISTINCT key_group) AS key_groups, min(key_group) AS least,"
    " sum(key_group) AS total, avg(key_group) AS mean FROM {table}"
)


# whose states have all kinds, and all types that the two engines could see in two ways
IN_CI = ("kinds", "pojo", "types")


def cases() -> list[object]:
    """All golden snapshots: the first with all kinds of state always, three jobs' in CI."""
    listed = golden_cases()
    first = {case.facts["case"]: case for case in reversed(listed)}
    fast, in_ci = first["kinds"], [first[name] for name in IN_CI]
    return [
        pytest.param(case, id=case.name, marks=_marks(case is fast, case in in_ci))
        for case in listed
    ]


def _marks(fast: bool, in_ci: bool) -> list[pytest.MarkDecorator]:
    if fast:
        return []
    return [pytest.mark.full] if in_ci else [pytest.mark.full, pytest.mark.nightly]


def rows_of(table: pa.Table) -> list[str]:
    """Rows as JSON, in order of that."""
    kind = pa.struct(list(table.schema))
    return sorted(json_text(plain(row, kind)) for row in table.to_pylist())


@pytest.mark.parametrize("case", cases())
def test_the_rows_of_every_state(case: GoldenCase, spark: SparkSession, tmp_path: Path) -> None:
    """Values, names of columns and counts are the same, nested and inexact ones too."""
    lake = Catalog(tmp_path / "lake")
    import_as(lake, case.snapshot, "monday", job="golden job", partitions=8)
    names = TableNames(lake, as_of="monday")
    tables = list(names)
    assert tables
    with Session(lake, names) as session:
        for table in tables:
            quoted = ".".join(f"`{part}`" for part in (table.job, table.operator, table.state))
            exact = f"SELECT is_exact, count(*) AS n FROM {quoted} GROUP BY is_exact"
            queries = [f"SELECT * FROM {quoted}", exact]
            if table.path.split("/")[1] == "keyed":
                queries.append(AGGREGATES.format(table=quoted))
            for query in queries:
                answer = session.query(query)
                ours = pa.Table.from_batches(answer.batches, answer.schema)
                theirs = run_sql(spark, lake, query, as_of="monday").toArrow()
                assert ours.schema.names == theirs.schema.names
                assert rows_of(ours) == rows_of(theirs), query
