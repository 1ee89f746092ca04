"""How many files a lake has, and what a changed snapshot adds: `python -m benchmarks.lake_files`.

Nine snapshots of the demo's savepoint, each with a key less in every state, are to be fewer than
300 files and 3 MB. Of 5,000,000 entries with 1 of 128 key groups changed, the second snapshot is to
write less than 2 % of what the first one did. Checksums and seals are to cost less than a third of
writing a table's files, and a fifth of reading them. A check of the lake is held against reading
its bytes once, and an import of the same bytes against the first one.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import Row, print_table, seconds
from benchmarks.one_key import write_canonical
from benchmarks.small_matters import SMALL
from statelake import open_snapshot
from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.edit.sql_editing import edit_by_sql
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.tables.parquet_bounds import BoundedWriter, open_parquet
from statelake.pipelines.lake.verify.lake_checking import check_lake

JOB = "bench"
SNAPSHOTS = 9
STATES = ("name", "items", "scores", "total", "avg", "triple", "row", "session", "timers")
ERASURES = [f"DELETE FROM kinds.{state} WHERE key =" for state in STATES]  # noqa: S608 - our own names
OTHER_BYTES = """
UPDATE counter.blob SET value = unhex(sha256(value) || sha256(value || '1'::BLOB)
    || sha256(value || '2'::BLOB) || sha256(value || '3'::BLOB)) WHERE key_group = 5"""


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=5_000_000)
    parser.add_argument("--dir", default=None, help="where to put some gigabytes meanwhile")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as name:
        rows = [*small_snapshots(Path(name)), *one_changed_group(Path(name), given.entries)]
        rows += checksums()
        print_table("Files of a lake", rows)


def small_snapshots(work: Path) -> list[Row]:
    """Files and bytes of a lake with many small snapshots."""
    lake = Catalog(work / "small")
    keys = open_snapshot(SMALL).operator("kinds").state("total").to_arrow().column("key")
    source, took = SMALL, 0.0
    for number in range(SNAPSHOTS):
        if number:
            source = _changed(work, source, [f"{erase} {keys[number]}" for erase in ERASURES])
        took += seconds(partial(_import, lake, source, f"s{number}"), 1)
    files = [path for path in (work / "small").rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    return [
        Row(
            f"{SNAPSHOTS} snapshots of the small savepoint ({took / SNAPSHOTS:.2f} s each)",
            f"{len(files)} files, {size / 1e6:.2f} MB",
            "300 files, 3 MB",
            min(300 / len(files), 3e6 / size),
            1,
        )
    ]


def one_changed_group(work: Path, entries: int) -> list[Row]:
    """What the second snapshot writes when one key group has changed."""
    lake = Catalog(work / "large")
    source = write_canonical(work, entries)
    first_took = seconds(lambda: _import(lake, source, "first"), 1)
    changed = _changed(work, source, [OTHER_BYTES])
    second_took = seconds(lambda: _import(lake, changed, "second"), 1)
    first, second = (lake.snapshot(JOB, name) for name in ("first", "second"))
    files = sum(len(table.units) for operator in first.operators for table in operator.tables)
    same_took = seconds(lambda: _import(lake, changed, "the same"), 1)
    paths = [path for path in Path(lake.location).rglob("*") if path.is_file()]
    read_took = seconds(lambda: [path.read_bytes() for path in paths])
    checked_took = seconds(lambda: check_lake(lake.location), 1)
    return [
        Row(
            f"`lake check` of {sum(path.stat().st_size for path in paths) / 1e6:.0f} MB",
            f"{checked_took:.2f} s",
            f"{read_took:.2f} s to read the bytes once",
            read_took / checked_took,
            0.1,
        ),
        Row(
            f"import of {entries:,} entries that were imported before",
            f"{same_took:.2f} s",
            f"{first_took:.2f} s the first time",
            first_took / same_took,
            3,
        ),
        Row(
            f"second snapshot of {entries:,} entries, 1 of 128 key groups changed",
            f"{second.written_bytes / 1e6:.2f} MB ({second_took:.2f} s)",
            f"first {first.written_bytes / 1e6:.1f} MB in {files} files ({first_took:.2f} s)",
            first.written_bytes / max(second.written_bytes, 1),
            50,
        ),
    ]


def checksums(count: int = 500_000) -> list[Row]:
    """What checksums of pages and seals cost."""
    numbers = np.random.default_rng(1).integers(0, 10**9, count)
    rows = pa.table({"key": pa.array(numbers).cast(pa.string()), "value": numbers})
    options: dict[str, Any] = {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": False,
    }

    def write(kind: type[pq.ParquetWriter]) -> pa.Buffer:
        output = pa.BufferOutputStream()
        with kind(output, rows.schema, **options) as file:
            file.write_table(rows)
        return output.getvalue()

    plain, sealed = write(pq.ParquetWriter), write(BoundedWriter)
    took = {
        "writing": [seconds(partial(write, kind)) for kind in (BoundedWriter, pq.ParquetWriter)],
        "reading": [
            seconds(lambda: open_parquet(pa.BufferReader(sealed), "a file").read()),
            seconds(lambda: pq.ParquetFile(pa.BufferReader(plain)).read()),
        ],
    }
    return [
        Row(
            f"{what} {count:,} rows with checksums and a seal", f"{ours:.3f} s",
            f"{other:.3f} s without", other / ours, wanted,
        )
        for (what, (ours, other)), wanted in zip(took.items(), (0.75, 0.83), strict=True)
    ]  # fmt: skip


def _import(lake: Catalog, source: Path, name: str) -> None:
    import_snapshot(lake, str(source), JOB, snapshot_id=name, engine=LocalEngine())


def _changed(work: Path, source: Path, statements: Sequence[str]) -> Path:
    """The savepoint that statements make of another."""
    with tempfile.TemporaryDirectory(dir=work) as name:
        scratch = Catalog(Path(name) / "lake")
        _import(scratch, source, "before")
        edit_by_sql(ChildSnapshot(scratch, JOB, "before", "after"), statements)
        to = Path(tempfile.mkdtemp(dir=work)) / "savepoint"
        export_snapshot(scratch, JOB, "after", to, engine=LocalEngine())
    return to


if __name__ == "__main__":
    main()
