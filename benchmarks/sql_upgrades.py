"""Upgrades of a SQL job, against an export of it: `python -m benchmarks.sql_upgrades`."""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.measuring import Row, print_table, rate, seconds
from statelake.pipelines.engine_choice import choose_engine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.requests.changes import UpgradeSql
from statelake.pipelines.sql_jobs.sql_upgrades import upgrade_sql_job
from statelake.state_core.formats.writing.new_snapshot import write_snapshot
from statelake.state_core.formats.writing.new_states import NewKeyedState, NewOperator

GROUPS = 5_000_000
BATCH = 500_000
JOB = "bench"
TIMES = 3
PLAN = {
    "flinkVersion": "2.3",
    "nodes": [
        {
            "id": 1, "type": "stream-exec-table-source-scan_2",
            "scanTableSource": {"table": {"identifier": "`c`.`d`.`o`"}},
            "outputType": "ROW<`a` INT, `b` BIGINT>",
        },
        {
            "id": 6, "type": "stream-exec-group-aggregate_1", "grouping": [0],
            "needRetraction": False,
            "outputType": "ROW<`a` INT, `n` BIGINT NOT NULL, `s` BIGINT>",
        },
    ],
    "edges": [{"source": 1, "target": 6}],
}  # fmt: skip
CALLS = {
    "COUNT": {"internalName": "$COUNT$1", "argList": [], "type": "BIGINT NOT NULL"},
    "SUM": {"internalName": "$SUM$1", "argList": [1], "type": "BIGINT"},
    "MAX": {"internalName": "$MAX$1", "argList": [1], "type": "BIGINT"},
}


def _plan(to: Path, *calls: str, key: str = "INT") -> Path:
    """Write the plan of a query with these aggregates, by a key of a type."""
    content = json.loads(json.dumps(PLAN).replace("`a` INT", f"`a` {key}"))
    content["nodes"][1]["aggCalls"] = [CALLS[call] for call in calls]
    content["nodes"][1]["aggCallNeedRetractions"] = [False] * len(calls)
    to.write_text(json.dumps(content))
    return to


def _groups(count: int) -> Iterator[pa.RecordBatch]:
    """Yield the accumulators of a count and a sum, group by group."""
    for first in range(0, count, BATCH):
        ids = pa.array(np.arange(first, min(count, first + BATCH)))
        key = pa.StructArray.from_arrays([ids.cast(pa.int32())], names=["f0"])
        yield pa.RecordBatch.from_pydict(
            {"key": key, "value": pa.StructArray.from_arrays([ids, ids], names=["f0", "f1"])}
        )


def measure(work: Path, groups: int) -> list[Row]:
    """Both in one process, three times in turn; the fastest of each counts."""
    key, value = {"row_data": ["INT"]}, {"row_data": ["BIGINT", "BIGINT"]}
    state = NewKeyedState("accState", _groups(groups), value=value)
    operator = NewOperator("6_group-aggregate", key, (state,), parallelism=4, max_parallelism=128)
    write_snapshot(work / "savepoint", [operator])
    old, new = (
        _plan(work / "old.json", "COUNT", "SUM"),
        _plan(work / "new.json", "SUM", "MAX", "COUNT"),
    )
    wider = _plan(work / "wider.json", "COUNT", "SUM", key="BIGINT")
    engine, lake = choose_engine("local"), Catalog(work / "lake")
    import_snapshot(lake, str(work / "savepoint"), JOB, snapshot_id="old", engine=engine)
    numbers = itertools.count()
    exported: list[float] = []
    upgraded: list[float] = []
    moved: list[float] = []

    def export_it() -> None:
        export_snapshot(lake, JOB, "old", work / f"exported{next(numbers)}", engine=engine)

    def upgrade_it(plan: Path) -> None:
        child = ChildSnapshot(lake, JOB, "old", f"new{next(numbers)}", engine=engine)
        upgrade_sql_job(child, UpgradeSql(old, plan, accept=["partly"]))

    for _ in range(TIMES):
        exported.append(seconds(export_it))
        upgraded.append(seconds(lambda: upgrade_it(new)))
        moved.append(seconds(lambda: upgrade_it(wider)))
    export, upgrade, move = min(exported), min(upgraded), min(moved)
    return [
        Row("export", rate(groups, export)),
        Row("an aggregate added, two exchanged", rate(groups, upgrade),
            f"export {rate(groups, export)}", export / upgrade, 1 / 1.5),
        Row("a key of a wider type", rate(groups, move),
            f"export {rate(groups, export)}", export / move, 1 / 3),
    ]  # fmt: skip


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=GROUPS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rows = measure(Path(name), given.groups)
    print_table(f"{given.groups:,} groups of a SQL job's GROUP BY", rows)


if __name__ == "__main__":
    main()
