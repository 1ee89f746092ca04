"""Reading, importing and exporting `ValueState<Long>` by `String`, against Flink's own reader."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measuring import Row, compare, seconds
from benchmarks.peer import StateProcessor
from statelake import open_snapshot
from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.spark.engine import SparkEngine

JOB = "bench"
FORMS = {"uncompressed": "false", "Snappy": "true"}


def savepoints(work: Path, peer: StateProcessor, entries: int) -> dict[str, tuple[Path, float]]:
    """The savepoint in both forms, written by the peer; with the seconds that each took."""
    found = {}
    for form, compression in FORMS.items():
        path = work / f"savepoint-{form}"
        took = peer.run(
            "write", backend="hashmap", compression=compression, entries=entries, to=path.as_uri()
        )
        found[form] = (path, took)
    return found


def reading(path: Path, form: str, peer: StateProcessor, entries: int) -> Row:
    """`to_arrow` against reading with rows dropped, both backends of the peer, the better one."""
    theirs = min(peer.run("read", backend="hashmap", savepoint=path.as_uri()) for _ in range(2))
    ours = seconds(lambda: open_snapshot(path).operator("counter").state("count").to_arrow(), 5)
    wanted = {"uncompressed": 50, "Snappy": 20}[form]
    return compare(f"`to_arrow()`, {form}", entries, ours, theirs, f"{peer.name} read", wanted)


def importing(
    path: Path, form: str, peer: StateProcessor, entries: int, work: Path
) -> tuple[list[Row], Catalog, Any]:
    """Into Delta, on Spark (session up and warm) and locally, against reading to Parquet."""
    parquet = work / f"parquet-{form}"
    parquet.mkdir()
    theirs = peer.run("parquet", backend="hashmap", savepoint=path.as_uri(), to=parquet)
    numbers = itertools.count()
    lakes: list[tuple[Catalog, Any]] = []

    def run(engine: Any) -> None:
        lake = Catalog(work / f"lake-{form}-{engine.name}-{next(numbers)}")
        lakes.append((lake, import_snapshot(lake, str(path), JOB, engine=engine).record))

    spark = SparkEngine()
    run(spark)
    wanted = {"uncompressed": 10, "Snappy": 4}[form]
    rows = [
        compare(
            f"`import` on {engine.name}, {form}", entries, seconds(partial(run, engine)),
            theirs, f"{peer.name} → Parquet", wanted,
        )
        for engine in (spark, LocalEngine())
    ]  # fmt: skip
    return rows, *lakes[-1]


def exporting(
    lake: Catalog, record: Any, form: str, theirs: float, entries: int, work: Path
) -> Row:
    """Back into a savepoint, against the peer's writing of one."""
    numbers = itertools.count()

    def run() -> None:
        target = work / f"export-{form}-{next(numbers)}"
        export_snapshot(lake, JOB, record.snapshot_id, target, engine=SparkEngine())

    took = seconds(run)
    return compare(
        f"`export` on spark, {form}", entries, took, theirs, "State Processor API write", 5
    )


def second_snapshot(lake: Catalog, record: Any, work: Path) -> Row:
    """The same savepoint with one key group of 128 changed: what the lake grows by."""
    changed = work / "changed"
    export_snapshot(lake, JOB, record.snapshot_id, changed, compression="none")
    snapshot = open_snapshot(changed)
    handle = snapshot.metadata.operators[-1].subtasks[0].managed_keyed
    at = next(offset for offset in handle.offsets if offset)
    with (changed / handle.stream.path).open("r+b") as file:
        file.seek(at + 2)
        key = int.from_bytes(file.read(4), "big")
        file.seek(at + 2 + 4 + key + 4 + 7)
        last = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([last ^ 1]))
    first = _size(Path(lake.location))
    took = seconds(
        lambda: import_snapshot(lake, str(changed), JOB, snapshot_id="second", engine="local"), 1
    )
    more = _size(Path(lake.location)) - first
    return Row(
        f"second snapshot, 1 of 128 key groups changed ({took:.2f} s)",
        f"{more / 1e6:.2f} MB more", f"first snapshot {first / 1e6:.1f} MB", first / more, 10,
    )  # fmt: skip


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def measure(work: Path, entries: int) -> list[Row]:
    """The whole table."""
    peer = StateProcessor()
    rows = []
    changed = []
    for form, (path, wrote) in savepoints(work, peer, entries).items():
        rows.append(reading(path, form, peer, entries))
        more, lake, record = importing(path, form, peer, entries, work)
        rows += more
        rows.append(exporting(lake, record, form, wrote, entries, work))
        if form == "uncompressed":
            changed.append(second_snapshot(lake, record, work))
    return rows + changed
