"""Source tables: Parquet, Delta, CSV and JSON lines, read in picklable pieces.

They are read as Arrow batches, in the order of the files, so that messages can name a row. CSV is
only text; the types of its columns follow from the states that are created from them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.json
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.tables.names import TIMERS
from statelake.pipelines.lake.tables.records import TableRecord
from statelake.pipelines.lake.tables.tables import READABLE_FEATURES
from statelake.state_core.errors import (
    EncodeError,
    InexactError,
    NotFoundError,
    StateError,
    UnreadableTableError,
    did_you_mean,
)
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.files.storage_options import storage_options

FORMATS = ("parquet", "delta", "csv", "json")
SUFFIXES = {
    ".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json",
    ".ndjson": "json",
}  # fmt: skip
PIECE_BYTES = 128 << 20
BLOCK_BYTES = 16 << 20
BATCH_ROWS = 1 << 17
EXACT = ("raw_key", "raw_value")


@dataclass(frozen=True)
class BootstrapSource:
    """A table in files.

    Attributes:
        name: Its name, for messages.
        location: A file or a directory, a path or a URI.
        format: One of `FORMATS`.
        delimiter: The delimiter of CSV.
        version: The version of a Delta table; None for the latest.
        of_lake: Whether it is a state table of a lake, with columns of exact bytes.
        inexact: Whether its values are taken as columns show them, if these don't hold all.
    """

    name: str
    location: str
    format: str
    delimiter: str = ","
    version: int | None = None
    of_lake: bool = False
    inexact: bool = False

    @property
    def text(self) -> bool:
        """Return whether its format has only text for some types."""
        return self.format in ("csv", "json")


@dataclass(frozen=True)
class SourcePiece:
    """A piece for one task, picklable.

    Attributes:
        source: The source of which it is a piece.
        name: The file, for messages.
        first_row: Its first row's place in that file.
        size: Its approximate number of bytes.
        path: The file, of CSV and JSON.
        fragment: Row groups of a Parquet file.
        schema: The columns with which a fragment is read.
    """

    source: BootstrapSource
    name: str
    first_row: int
    size: int
    path: str = ""
    fragment: Any = None
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))


def find_source(location: str, name: str, options: Mapping[str, Any]) -> BootstrapSource:
    """Return the source at a location.

    Args:
        location: A path or a URI.
        name: Its name, for messages.
        options: `format`, `delimiter`, `version`.

    Raises:
        EncodeError: There is no source, or its format is not clear.
    """
    directory = Directory(location)
    if not directory.exists():
        raise EncodeError("there is no such file or directory", place=name)
    kind = str(options.get("format", "")) or _format_of(directory, location)
    if kind not in FORMATS:
        raise EncodeError(
            f"format {kind!r}" if kind else "of which format is it?",
            place=name,
            remedy=f"add `format`, one of {', '.join(FORMATS)}",
        )
    tabs = location.removesuffix(".gz").endswith(".tsv")
    delimiter = str(options.get("delimiter", "\t" if tabs else ","))
    return BootstrapSource(name, location, kind, delimiter, options.get("version"))


def _format_of(directory: Directory, location: str) -> str:
    """Return the format by the ending of the name; of a directory, by those of its files."""
    if file_format := _by_suffix(location.partition("?")[0]):
        return file_format
    if directory.exists("_delta_log"):
        return "delta"
    if directory.filesystem.get_file_info(directory.root).type == fs.FileType.File:
        return ""
    return next(filter(None, (_by_suffix(path) for path, _ in directory.files_below())), "")


def _by_suffix(name: str) -> str:
    return SUFFIXES.get(PurePosixPath(name.removesuffix(".gz")).suffix.lower(), "")


def lake_table(lake: str, job: str, snapshot: str, state: str, name: str) -> BootstrapSource:
    """The table of a state in a lake.

    Raises:
        NotFoundError: The snapshot has no such state.
        ConflictError: An erasure has not ended.
    """
    opened = Catalog(lake)
    record = opened.snapshot(job, snapshot)
    tables_by_name: dict[str, TableRecord] = {}
    for operator in record.operators:
        tables = {table.path: table for table in operator.tables}
        # timers share one table, of which none is a state's alone
        pairs = [(each.name, each.table) for each in operator.all_states if each.kind != TIMERS]
        for label in (operator.label, operator.operator_id):
            for state_name, path in pairs:  # of two of one name the first, which is keyed
                tables_by_name.setdefault(f"{label}/{state_name}", tables[path])
    if state not in tables_by_name:
        raise NotFoundError(
            f"snapshot {snapshot} has no state {state}", place=name,
            remedy=f"it has: {', '.join(tables_by_name)}{did_you_mean(state, tables_by_name)}",
        )  # fmt: skip
    table = tables_by_name[state]
    location = opened.table(table.path).checked_directory(table).location
    return BootstrapSource(name, location, "delta", version=table.version, of_lake=True)


def pieces_of(source: BootstrapSource) -> list[SourcePiece]:
    """The pieces of a table, in order.

    Raises:
        EncodeError: The source can't be read.
        UnreadableTableError: A Delta table with features that only Spark understands.
    """
    try:
        if source.format == "delta":
            return _parquet_pieces(source, _delta(source))
        directory = Directory(source.location)
        if source.format == "parquet":
            dataset = ds.dataset(
                directory.root, format="parquet", filesystem=directory.filesystem,
                partitioning="hive",
            )  # fmt: skip
            return _parquet_pieces(source, dataset)
    except StateError:
        raise
    except (pa.ArrowException, DeltaError, OSError, ValueError) as error:
        raise EncodeError(" ".join(str(error).split())[:300], place=source.name) from error
    info = directory.filesystem.get_file_info(directory.root)
    if info.type == fs.FileType.File:
        return [SourcePiece(source, source.name, 0, info.size, directory.root)]
    return [
        SourcePiece(source, f"{source.name}/{path}", 0, size, directory.full(path))
        for path, size in directory.files_below()
        if not any(part.startswith(("_", ".")) for part in path.split("/"))
    ]


def _delta(source: BootstrapSource) -> Any:
    directory = Directory(source.location)
    table = DeltaTable(directory.uri, source.version, storage_options=storage_options(directory))
    protocol = table.protocol()
    features = set(protocol.reader_features or ()) - READABLE_FEATURES
    if features or protocol.min_reader_version == 2:
        names = ", ".join(sorted(features)) or "columnMapping"
        raise UnreadableTableError(
            f"the table uses {names}, so its files alone do not tell its content",
            place=source.name,
            remedy="read it with --engine spark",
        )
    below = fs.SubTreeFileSystem(directory.root, directory.filesystem)
    return table.to_pyarrow_dataset(filesystem=below)


def _parquet_pieces(source: BootstrapSource, table: Any) -> list[SourcePiece]:
    """Return pieces of row groups, grouped to about `PIECE_BYTES`."""
    pieces = []
    for fragment in table.get_fragments():
        groups: list[int] = []
        size = first = at = 0
        for group in fragment.row_groups:
            if groups and size + group.total_byte_size > PIECE_BYTES:
                pieces.append(_piece(source, table, fragment, groups, first, size))
                groups, size, first = [], 0, at
            groups.append(group.id)
            size += group.total_byte_size
            at += group.num_rows
        if groups:
            pieces.append(_piece(source, table, fragment, groups, first, size))
    return pieces


def _piece(
    source: BootstrapSource, table: Any, fragment: Any, groups: list[int], first: int, size: int
) -> SourcePiece:
    part = fragment.subset(row_group_ids=groups)
    root = Directory(source.location).root
    inside = fragment.path.removeprefix(root).lstrip("/")
    name = f"{source.name}/{inside}" if inside else source.name
    return SourcePiece(source, name, first, size, fragment=part, schema=table.schema)


def read_piece(
    piece: SourcePiece, columns: list[str], hints: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a piece.

    Args:
        piece: The piece to read.
        columns: The columns to read; others may be left out.
        hints: The types of the state's columns, since JSON does not have them.

    Raises:
        EncodeError: The piece can't be read.
    """
    try:
        if piece.fragment is not None:
            yield from _read_fragment(piece, columns)
        elif piece.source.format == "csv":
            yield from _read_csv(piece)
        else:
            yield from _read_json(piece, _json_schema(hints))
    except StateError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise EncodeError(" ".join(str(error).split())[:300], place=piece.name) from error


def _read_fragment(piece: SourcePiece, columns: list[str]) -> Iterator[pa.RecordBatch]:
    # read all if one is missing: then the message lists the columns
    names = piece.schema.names
    read_columns = columns if set(columns) <= set(names) else names
    looked_at = EXACT[:1] if piece.source.inexact else EXACT
    exact = [name for name in looked_at if piece.source.of_lake and name in names]
    scanner = piece.fragment.scanner(
        schema=piece.schema, columns=sorted({*read_columns, *exact}), batch_size=BATCH_ROWS,
        fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=False),
        batch_readahead=2, fragment_readahead=1,
    )  # fmt: skip
    for batch in scanner.to_batches():
        for name in exact:
            if not (count := len(batch) - batch[name].null_count):
                continue
            raise InexactError.of(
                count,
                name.removeprefix("raw_"),
                place=piece.source.name,
                remedy="export that snapshot instead, or edit these rows first"
                + (", or take what the column shows: --inexact" if name == EXACT[1] else ""),
            )
        yield batch


def _open(piece: SourcePiece) -> pa.NativeFile:
    filesystem = Directory(piece.source.location).filesystem
    return filesystem.open_input_stream(piece.path, compression="detect")


def _read_csv(piece: SourcePiece) -> Iterator[pa.RecordBatch]:
    """Read text columns; an empty field without quotes is null."""
    csv = pyarrow.csv
    parsing = csv.ParseOptions(delimiter=piece.source.delimiter, newlines_in_values=True)
    with _open(piece) as file:
        header = csv.open_csv(
            file, csv.ReadOptions(block_size=BLOCK_BYTES), parsing,
            csv.ConvertOptions(null_values=[]),
        ).schema.names  # fmt: skip
    converting = csv.ConvertOptions(
        column_types=dict.fromkeys(header, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    with _open(piece) as file:
        yield from csv.open_csv(file, csv.ReadOptions(block_size=BLOCK_BYTES), parsing, converting)


def _json_schema(hints: pa.Schema) -> pa.Schema:
    """Return the hints that JSON supports: without them any text like a date is taken for one."""
    fields = [(hint.name, _json_type(hint.type)) for hint in hints]
    return pa.schema([(name, kind) for name, kind in fields if kind is not None])


def _json_type(wanted: pa.DataType) -> pa.DataType | None:
    """Return the widest JSON type for a type; None if there is none."""
    types = pa.types
    if types.is_integer(wanted):
        return pa.int64()
    if types.is_floating(wanted):
        return pa.float64()
    if types.is_boolean(wanted) or types.is_string(wanted):
        return wanted
    if types.is_list(wanted):
        inner = _json_type(wanted.value_type)
        return None if inner is None else pa.list_(inner)
    if types.is_struct(wanted):
        parts = [(part.name, _json_type(part.type)) for part in wanted]
        typed = [(name, kind) for name, kind in parts if kind is not None]
        return pa.struct(typed) if typed else None
    return None


def _read_json(piece: SourcePiece, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read blocks of whole lines; an invalid line is named by its number."""
    line = 1
    with _open(piece) as file:
        rest = b""
        while block := file.read(BLOCK_BYTES):
            head, newline, tail = (rest + block).rpartition(b"\n")
            rest = tail
            if newline:
                yield from _parsed(piece, head, line, schema)
                line += head.count(b"\n") + 1
        if rest.strip():
            yield from _parsed(piece, rest, line, schema)


def _parsed(
    piece: SourcePiece, lines: bytes, first: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    if not lines.strip():
        return
    try:
        reading = pyarrow.json.ReadOptions(block_size=len(lines) + 1)
        parsing = pyarrow.json.ParseOptions(explicit_schema=schema)
        table = pyarrow.json.read_json(io.BytesIO(lines), reading, parsing)
    except pa.ArrowInvalid as error:
        split = lines.split(b"\n")
        if len(split) == 1:
            problem = " ".join(str(error).split())[:200].removesuffix(" in row 0")
            raise EncodeError(problem, place=f"{piece.name}, line {first}") from error
        middle = len(split) // 2
        yield from _parsed(piece, b"\n".join(split[:middle]), first, schema)
        yield from _parsed(piece, b"\n".join(split[middle:]), first + middle, schema)
    else:
        yield from table.to_batches()
