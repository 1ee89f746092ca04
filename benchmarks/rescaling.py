"""The workload of Flink's own rescaling benchmark: wide keys and values, parallelism 1 and 2."""

from __future__ import annotations

from pathlib import Path

from benchmarks.measuring import Row, compare, seconds
from benchmarks.peer import StateProcessor
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.export.rescaling import plan_rescale
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.spark.engine import SparkEngine

JOB = "bench"
SHAPE = {"backend": "rocksdb", "keybytes": 96, "valuebytes": 128, "max": 128}


def measure(work: Path, entries: int) -> list[Row]:
    """Import and export at the other parallelism, against the peer rewriting the savepoint."""
    peer = StateProcessor()
    return [row for old, new in ((1, 2), (2, 1)) for row in _rescale(work, peer, entries, old, new)]


def _rescale(work: Path, peer: StateProcessor, entries: int, old: int, new: int) -> list[Row]:
    path = work / f"wide-{old}"
    rewritten = (work / f"rewritten-{old}").as_uri()
    target = work / f"export-wide-{old}"
    peer.run("write", **SHAPE, entries=entries, parallelism=old, to=path.as_uri())
    theirs = peer.run("rewrite", **SHAPE, parallelism=new, savepoint=path.as_uri(), to=rewritten)
    lake, engine = Catalog(work / f"lake-wide-{old}"), SparkEngine()
    imported = seconds(
        lambda: import_snapshot(lake, str(path), JOB, snapshot_id="wide", engine=engine), 1
    )
    planned = seconds(lambda: plan_rescale(lake.snapshot(JOB, "wide"), new))
    exported = seconds(
        lambda: export_snapshot(lake, JOB, "wide", target, parallelism=new, engine=engine), 1
    )
    what = f"import {imported:.1f} s + export {exported:.1f} s, parallelism {old} → {new}"
    ours = imported + exported
    return [
        compare(what, entries, ours, theirs, "State Processor API rewrite", 1),
        Row(f"`rescale` plan alone, {old} → {new}", f"{planned * 1000:.0f} ms"),
    ]
