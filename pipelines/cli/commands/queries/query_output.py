"""Print the rows of a query as a table, JSON or CSV, or write them to a file.

Rows are read a batch at a time. A file is written under a temporary name in the same directory, and
renamed when it is complete.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from statelake.pipelines.cli.commands.terminal import json_text, print_table, tell
from statelake.pipelines.shown import bytes_text, csv_cell, json_rows, write_csv
from statelake.state_core.errors import StateError
from statelake.state_core.printable import Table, printable

Batches: TypeAlias = Iterable[pa.RecordBatch]


def print_rows(read: pa.RecordBatchReader, limit: int) -> None:
    """Print rows as a table, for people."""
    rows = [[csv_cell(value) for value in row] for batch in read for row in json_rows(batch)]
    print_table(Table("", [f"<{name}" for name in read.schema.names], rows))
    if len(rows) == limit:
        tell(f"the first {limit} rows (--limit)")


def print_json(rows: pa.RecordBatchReader) -> None:
    """Print each row as a line of JSON."""
    _write_json(sys.stdout, rows)


def print_csv(rows: pa.RecordBatchReader) -> None:
    """Print rows as CSV, with control characters escaped."""
    write_csv(sys.stdout, rows.schema, rows, printable)


def write_file(path: str, rows: pa.RecordBatchReader) -> None:
    """Write rows to a file, which appears complete or not at all; one that exists is replaced.

    Args:
        path: The path, whose ending names the format: see `FILE_KINDS`.
        rows: The rows.

    Raises:
        StateError: The file can't be written.
    """
    counted = _Counted(rows)
    target = Path(path)
    try:
        with _whole(target) as part:
            FILE_KINDS[target.suffix.lower()](part, rows.schema, counted)
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, StateError):
            raise
        raise StateError(
            f"it can't be written ({' '.join(str(error).split())})",
            place=path,
            remedy="check the directory, permissions and space, and that the format has such types",
        ) from error
    tell(f"wrote {counted.rows:,} rows to {path}, {bytes_text(target.stat().st_size)}")


class _Counted:
    """Batches, whose rows are counted as they are consumed."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self.batches:
            self.rows += len(batch)
            yield batch


@contextmanager
def _whole(target: Path) -> Iterator[Path]:
    """Yield the path of a temporary file, which is renamed at the end, or removed on an error."""
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        yield part
        part.replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            part.unlink()
        raise


def _parquet_file(path: Path, schema: pa.Schema, batches: Batches) -> None:
    with pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as file:
        for batch in batches:
            file.write_batch(batch)


def _csv_file(path: Path, schema: pa.Schema, batches: Batches) -> None:
    with path.open("x", encoding="utf-8", newline="") as file:
        write_csv(file, schema, batches, str)


def _json_file(path: Path, _: pa.Schema, batches: Batches) -> None:
    with path.open("x", encoding="utf-8", newline="") as file:
        _write_json(file, batches)


def _write_json(out: TextIO, batches: Batches) -> None:
    for batch in batches:
        names = batch.schema.names
        rows = (dict(zip(names, row, strict=True)) for row in json_rows(batch))
        out.writelines(json_text(row) + "\n" for row in rows)


# by the ending of a file's name
FILE_KINDS: dict[str, Callable[[Path, pa.Schema, Batches], None]] = {
    ".parquet": _parquet_file,
    ".csv": _csv_file,
    ".json": _json_file,
}
