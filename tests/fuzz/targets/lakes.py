"""Lakes that another wrote: the logs of their Delta tables, and the rows of their catalog."""

from __future__ import annotations

import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.tables.records import SNAPSHOT_SCHEMA
from tests.fuzz.targets import Fuzzing, chosen, seeded
from tests.support.lakes import WORDS

__all__ = ["fuzz_catalog", "fuzz_delta_log"]

JOB, SNAPSHOT = "orders", "good"
# what no file can have
_NO_ROW = (ValueError, TypeError, OverflowError, RecursionError, AttributeError, pa.ArrowException)


def fuzz_delta_log(directory: Path) -> Fuzzing:
    """An entry of the log of a state's table, or of the catalog's, and all that reads it."""
    whole, lake = _lakes(directory)
    logs = sorted(path.relative_to(whole) for path in whole.rglob("_delta_log/*.json"))

    def run(data: bytes) -> None:
        form, content = chosen(data, len(logs))
        (lake / logs[form]).write_bytes(content)
        try:
            _use(Catalog(lake), directory / "exported")
        finally:
            shutil.copyfile(whole / logs[form], lake / logs[form])

    seeds = seeded((n, (whole / path).read_bytes()) for n, path in enumerate(logs))
    return Fuzzing(seeds, run)


def fuzz_catalog(directory: Path) -> Fuzzing:
    """The row of a snapshot: what can be written as one at all is held against the rules."""
    whole, lake = _lakes(directory)
    (file,) = (whole / "snapshots").rglob("*.parquet")
    stored = [name for name in SNAPSHOT_SCHEMA.names if name != "job"]
    row = pq.read_table(file, columns=stored, partitioning=None).to_pylist()[0]
    place = lake / file.relative_to(whole)
    schema = pa.schema([SNAPSHOT_SCHEMA.field(name) for name in stored])

    def run(data: bytes) -> None:
        try:
            said = json.loads(data, object_hook=_from_json)
            rows = pa.Table.from_pylist([said], schema)
        except _NO_ROW:
            return
        pq.write_table(rows, place)
        _use(Catalog(lake), directory / "exported")

    return Fuzzing([json.dumps(row, default=_to_json).encode()], run)


def _lakes(directory: Path) -> tuple[Path, Path]:
    """A lake of one snapshot, and where a copy of it is to be damaged."""
    whole, lake = directory / "whole", directory / "lake"
    shutil.rmtree(whole, ignore_errors=True)
    import_snapshot(Catalog(whole), str(WORDS), JOB, snapshot_id=SNAPSHOT, engine=LocalEngine())
    shutil.copytree(whole, lake, dirs_exist_ok=True)
    return whole, lake


def _use(lake: Catalog, to: Path) -> None:
    """List what is in a lake, open its tables, and export the snapshot."""
    lake.listed()
    records, _ = lake.records()
    for record in records:
        for operator in record.operators:
            for held in operator.tables:
                table = lake.table(held.path)
                table.files(held.version)
                table.files()
                table.commit_info(held.version)
    shutil.rmtree(to, ignore_errors=True)
    export_snapshot(lake, JOB, SNAPSHOT, to, engine=LocalEngine())


def _to_json(value: Any) -> Any:
    return {"@time": value.isoformat()} if isinstance(value, datetime) else {"@hex": value.hex()}


def _from_json(value: dict[str, Any]) -> Any:
    if value.keys() == {"@time"}:
        return datetime.fromisoformat(value["@time"])
    return bytes.fromhex(value["@hex"]) if value.keys() == {"@hex"} else value
