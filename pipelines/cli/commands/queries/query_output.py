"""How the rows of a query are given out: as a table, JSON or CSV, or as a file of them.

Rows are taken a batch at a time. A file is written beside its place, and gets its name when it is
whole.
"""

from __future__ import annotations

import csv
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from statelake.pipelines.cli.commands.terminal import json_text, plain, print_table, tell
from statelake.pipelines.shown import bytes_text
from statelake.state_core.errors import StateError
from statelake.state_core.printable import printable

Batches = Iterator[pa.RecordBatch]


def limited(batches: Batches, limit: int | None) -> Batches:
    """The first rows; all where there is no limit."""
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        yield batch.slice(0, left)
        left -= min(left, len(batch))
        if not left:
            return


def print_rows(schema: pa.Schema, batches: Batches, limit: int) -> None:
    """Print rows as a table, for people."""
    rows = [[_cell(value) for value in row] for batch in batches for row in _rows(batch)]
    print_table("", [f"<{name}" for name in schema.names], rows)
    if len(rows) == limit:
        tell(f"the first {limit} rows (--limit)")


def print_json(batches: Batches) -> None:
    """Print each row as a line of JSON."""
    _write_json(sys.stdout, batches)


def print_csv(schema: pa.Schema, batches: Batches) -> None:
    """Print rows as CSV; in text, what a terminal would obey is escaped."""
    _write_csv(sys.stdout, schema, batches, printable)


def write_file(path: str, schema: pa.Schema, batches: Batches) -> None:
    """Write rows to a file that appears whole or not at all, in the place of what is there.

    Args:
        path: Its path; its ending says what it is: see `FILE_KINDS`.
        schema: The columns.
        batches: The rows.

    Raises:
        StateError: The file can't be written.
    """
    counted = _Counted(batches)
    target = Path(path)
    try:
        with _whole(target) as part:
            FILE_KINDS[target.suffix.lower()](part, schema, iter(counted))
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
    def __init__(self, batches: Batches) -> None:
        self.batches = batches
        self.rows = 0

    def __iter__(self) -> Batches:
        for batch in self.batches:
            self.rows += len(batch)
            yield batch


@contextmanager
def _whole(target: Path) -> Iterator[Path]:
    """A file beside another, which takes its place when all has been written."""
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        yield part
        part.replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            part.unlink()
        raise


def _parquet_file(path: Path, schema: pa.Schema, batches: Batches) -> None:
    with pq.ParquetWriter(path, schema, compression="zstd") as file:
        for batch in batches:
            file.write_batch(batch)


def _csv_file(path: Path, schema: pa.Schema, batches: Batches) -> None:
    with path.open("x", encoding="utf-8", newline="") as file:
        _write_csv(file, schema, batches, str)


def _json_file(path: Path, _: pa.Schema, batches: Batches) -> None:
    with path.open("x", encoding="utf-8", newline="") as file:
        _write_json(file, batches)


def _write_json(out: TextIO, batches: Batches) -> None:
    for batch in batches:
        kind = pa.struct(list(batch.schema))
        out.writelines(json_text(plain(row, kind)) + "\n" for row in batch.to_pylist())


def _write_csv(
    out: TextIO, schema: pa.Schema, batches: Batches, text: Callable[[str], str]
) -> None:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(text, schema.names))
    for batch in batches:
        for row in _rows(batch):
            writer.writerow([text(_cell(value)) for value in row])


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """The rows of a batch as values that JSON can hold; columns may share a name."""
    columns = [
        [plain(value, field.type) for value in column.to_pylist()]
        for field, column in zip(batch.schema, batch.columns, strict=True)
    ]
    return zip(*columns, strict=True)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json_text(value)


# by the ending of its name
FILE_KINDS: dict[str, Callable[[Path, pa.Schema, Batches], None]] = {
    ".parquet": _parquet_file,
    ".csv": _csv_file,
    ".json": _json_file,
}
