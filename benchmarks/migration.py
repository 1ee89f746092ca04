"""One field of many POJOs migrated, against import and export: `python -m benchmarks.migration`."""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path

from benchmarks.measuring import Row, print_table, rate, seconds
from benchmarks.peer import StateProcessor
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.change.changes import ValueChange
from statelake.pipelines.lake.change.migrating import migrate_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.spark.engine import SparkEngine
from statelake.pipelines.spark.session import open_session
from statelake.state_core.serializers.type_spec import parse_type

ENTRIES = 5_000_000
JOB = "bench"
NEW = {
    "pojo": "PojoBench$Customer",
    "fields": {
        "active": "boolean", "balance": "Double", "city": "String", "id": "long",
        "name": "String", "points": "long",
    },
}  # fmt: skip


def measure(work: Path, entries: int) -> list[Row]:
    """Both on Spark, the session up and its workers warm."""
    path = work / "pojos"
    StateProcessor(program="PojoBench").run(
        "write", backend="hashmap", entries=entries, to=path.as_uri()
    )
    engine, lake = SparkEngine(), Catalog(work / "lake")
    import_snapshot(lake, str(path), "warm", snapshot_id="sp", engine=engine)
    numbers = itertools.count()
    imported = seconds(
        lambda: import_snapshot(
            lake, str(path), f"{JOB}{next(numbers)}", snapshot_id="sp", engine=engine
        )
    )
    change = ValueChange("customers", "customer", parse_type(NEW), spec=NEW)
    migrated = seconds(
        lambda: migrate_snapshot(
            ChildSnapshot(lake, f"{JOB}0", "sp", f"new{next(numbers)}", engine=engine), change
        )
    )
    exported = seconds(
        lambda: export_snapshot(
            lake, f"{JOB}0", "sp", work / f"exported{next(numbers)}", engine=engine
        )
    )
    return [
        Row("plain import", rate(entries, imported)),
        Row("export", rate(entries, exported)),
        Row(
            "migration, read back value by value", rate(entries, migrated),
            f"plain import {rate(entries, imported)}", imported / migrated, 0.5,
        ),
        Row("the same", rate(entries, migrated), f"export {rate(entries, exported)}",
            exported / migrated, 0.7),
    ]  # fmt: skip


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=ENTRIES)
    given = parser.parse_args()
    open_session("benchmarks")
    with tempfile.TemporaryDirectory() as name:
        rows = measure(Path(name), given.entries)
    print_table(f"{given.entries:,} POJOs of 6 mixed fields, one field gone, one new", rows)


if __name__ == "__main__":
    main()
