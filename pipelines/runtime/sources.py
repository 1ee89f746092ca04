"""The new input of a source since the last run: offsets, and the splits between two offsets.

A source must only grow. Its offset is the version of a Delta table, or the list of files with their
sizes; a file of JSON lines may grow, and is read from its earlier end.
"""

from __future__ import annotations

import json
import logging
import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from statelake.pipelines.lake.catalog.run_log import Offset
from statelake.pipelines.lake.tables.table_log import file_actions
from statelake.pipelines.lake.tables.tables import log_path
from statelake.state_core.errors import LakeError, NotALakeError, StateError, UnreadableTableError
from statelake.state_core.files.filesystem import ConfinedDirectory, Directory
from statelake.state_core.files.storage_options import storage_options
from statelake.state_core.runtime.process.jobs import SourceNode

LOG = logging.getLogger(__name__)
BATCH_ROWS = 1 << 16
APPEND_ONLY = (
    "a source must only grow: start the job again without state, or give it a table that keeps "
    "its rows"
)


@dataclass(frozen=True)
class Split:
    """A part of a source that one task reads.

    Attributes:
        source: The name of the source.
        directory: The source's directory.
        path: The file's, below it.
        row_group: The row group of a Parquet file; -1 for the whole file.
        start: The first byte, of JSON lines.
        end: Behind the last byte, of JSON lines.
        partition: Values of the columns that are not in the file, as in the log.
        schema: The columns to read: the Delta table's, or the declared ones.
    """

    source: SourceNode
    directory: ConfinedDirectory
    path: str
    row_group: int = -1
    start: int = 0
    end: int = 0
    partition: tuple[tuple[str, str | None], ...] = ()
    schema: pa.Schema | None = None

    @property
    def place(self) -> str:
        """Its name in messages."""
        return f"source {self.source.name!r}, {self.path}"


def is_absent(source: SourceNode) -> bool:
    """Return whether the source does not exist at all."""
    location, files = _located(source)
    return not files and not Directory(location).exists()


def latest_offset(source: SourceNode) -> Offset:
    """Return the present end of a source; empty if it has no input yet."""
    return _KINDS[source.format][0](source)


def lag_of(source: SourceNode, end: Offset) -> dict[str, int]:
    """Return what a source has behind an offset now; empty if it can't be read any more."""
    try:
        return amount_between(end, latest_offset(source))
    except (StateError, OSError) as error:  # what was read is committed all the same
        LOG.warning("source %s: what it has now is not known: %s", source.name, error)
        return {}


def amount_between(before: Offset, until: Offset) -> dict[str, int]:
    """Return what is between two offsets: `bytes` of files, or `versions` of a table."""
    if "version" in until:
        return {"versions": max(0, int(until["version"]) - int(before.get("version", -1)))}
    read = before.get("files", {})
    sizes = until.get("files", {})
    return {"bytes": sum(max(0, size - read.get(name, 0)) for name, size in sizes.items())}


def splits_between(source: SourceNode, before: Offset, until: Offset) -> list[Split]:
    """Return the splits between two offsets, in order.

    Raises:
        LakeError: Earlier input is missing or has changed: a source must only grow.
    """
    return _KINDS[source.format][1](source, before, until)


def batches_of(split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split, in their order.

    Raises:
        LakeError: The file can't be read.
    """
    directory = split.directory
    try:
        if split.source.format == "json":
            yield from _json_batches(split, directory)
        else:
            yield from _parquet_batches(split, directory)
    except (pa.ArrowException, OSError) as error:
        raise LakeError(
            f"the file can't be read ({' '.join(str(error).split())[:200]})", place=split.place
        ) from error


def _paths_of(location: str) -> ConfinedDirectory:
    """Return a source's directory, confined: names in offsets and logs are data."""
    return Directory(location).confined(follow_links=True)


# ------------------------------------------------------------------------------- delta


def _delta_offset(source: SourceNode) -> Offset:
    table = _delta(source)
    return {} if table is None else {"version": table.version()}


def _delta(source: SourceNode, version: int | None = None) -> DeltaTable | None:
    directory = Directory(source.path)
    try:
        return DeltaTable(directory.uri, version, storage_options=storage_options(directory))
    except TableNotFoundError:
        return None
    except (DeltaError, OverflowError) as error:
        raise LakeError(
            f"the Delta table can't be read ({' '.join(str(error).split())[:200]})",
            place=f"source {source.name!r}",
            remedy="check that its log is complete, and still has the version after the last run's",
        ) from error


def _delta_splits(source: SourceNode, before: Offset, until: Offset) -> list[Split]:
    if not until or until == before:
        return []
    table = _delta(source, until["version"])
    if table is None:
        raise NotALakeError("the Delta table is gone", place=f"source {source.name!r}")
    features = set(table.protocol().reader_features or ())
    if "deletionVectors" in features or "columnMapping" in features:
        raise UnreadableTableError(
            f"the table uses {', '.join(sorted(features))}",
            place=f"source {source.name!r}",
            remedy="ALTER TABLE ... DROP FEATURE it",
        )
    directory = _paths_of(source.path)
    schema = pa.schema(table.schema().to_arrow())
    added = []
    if before:
        for version in range(before["version"] + 1, until["version"] + 1):
            added += _added(source, directory, version)
    else:
        added = _added_at(table)
    splits = []
    for stored, partition in added:
        path = log_path(stored, f"source {source.name!r}")
        splits += _row_groups(Split(source, directory, path, partition=partition, schema=schema))
    return splits


def _added(
    source: SourceNode, directory: Directory, version: int
) -> list[tuple[str, tuple[tuple[str, str | None], ...]]]:
    """Return the files that one version added."""
    path = f"_delta_log/{version:020d}.json"
    place = f"source {source.name!r}, version {version}"
    if not directory.is_file(path):
        raise LakeError(
            "the log of this version does not exist any more", place=place,
            remedy="run the job more often than the table's log expires",
        )  # fmt: skip
    added = []
    try:
        for action in map(json.loads, directory.read(path).splitlines()):
            if "remove" in action and action["remove"].get("dataChange", True):
                raise LakeError("rows were removed or rewritten", place=place, remedy=APPEND_ONLY)
            add = action.get("add")
            if add is not None and add.get("dataChange", True):
                added.append((add["path"], tuple(sorted(add.get("partitionValues", {}).items()))))
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise LakeError(
            f"not a valid Delta log ({error})", place=place, remedy="restore the table's log"
        ) from error
    return added


def _added_at(table: DeltaTable) -> list[tuple[str, tuple[tuple[str, str | None], ...]]]:
    """Return all files of a version, in the order in which they were added."""
    actions = file_actions(table)
    names = [name for name in actions.schema.names if name.startswith("partition.")]
    rows = actions.select(["path", "modification_time", *names]).to_pylist()
    rows.sort(key=lambda row: (row["modification_time"], row["path"]))
    return [
        (
            row["path"],
            tuple(
                (name.removeprefix("partition."), None if row[name] is None else str(row[name]))
                for name in names
            ),
        )
        for row in rows
    ]


# ------------------------------------------------------------------------------- files


def _files_offset(source: SourceNode) -> Offset:
    location, files = _located(source)
    directory = _paths_of(location)
    ending = (".parquet",) if source.format == "parquet" else (".json", ".jsonl", ".ndjson")
    sizes = {
        path: size
        for path, size in files
        if path.endswith(ending) and not posixpath.basename(path).startswith(("_", "."))
    }
    if source.format == "json":  # an unfinished line belongs to the next run
        sizes = {path: _last_line(directory, path, size) for path, size in sizes.items()}
    return {"files": sizes} if sizes else {}


def _located(source: SourceNode) -> tuple[str, list[tuple[str, int]]]:
    """Return a directory, and the files in it that may belong to the source."""
    directory = Directory(source.path)
    parent, name = directory.child(".."), posixpath.basename(directory.root)
    if name and parent.is_file(name):
        return parent.location, [(name, parent.size(name))]
    return source.path, directory.files_below() if directory.exists() else []


def _last_line(directory: Directory, path: str, size: int) -> int:
    """Return the end of the last complete line."""
    at = size
    with directory.open_input(path) as file:
        while at:
            begin = max(0, at - (1 << 16))
            file.seek(begin)
            end: int = file.read(at - begin).rfind(b"\n")
            if end >= 0:
                return begin + end + 1
            at = begin
    return 0


def _file_splits(source: SourceNode, before: Offset, until: Offset) -> list[Split]:
    location, _ = _located(source)
    directory = _paths_of(location)
    old: Mapping[str, int] = before.get("files", {})
    new: Mapping[str, int] = until.get("files", {})
    for path, size in old.items():
        if new.get(path, -1) < size or (source.format == "parquet" and new[path] != size):
            raise LakeError(
                "the file was deleted or replaced", place=f"source {source.name!r}, {path}",
                remedy=APPEND_ONLY,
            )  # fmt: skip
    splits: list[Split] = []
    for path in sorted(new):
        start, end = old.get(path, 0), new[path]
        if start >= end:
            continue
        if end > directory.size(path):
            raise LakeError(
                "the file is shorter than it was", place=f"source {source.name!r}, {path}",
                remedy=APPEND_ONLY,
            )  # fmt: skip
        if source.format == "json":
            splits.append(Split(source, directory, path, -1, start, end, schema=source.schema))
        else:
            splits += _row_groups(Split(source, directory, path, schema=source.schema))
    return splits


def _row_groups(split: Split) -> list[Split]:
    """Return a split for each row group of a Parquet file."""
    with split.directory.open_input(split.path) as file:
        groups = pq.ParquetFile(file).metadata.num_row_groups
    return [replace(split, row_group=group) for group in range(groups)]


# ------------------------------------------------------------------------------- rows


def _parquet_batches(split: Split, directory: Directory) -> Iterator[pa.RecordBatch]:
    with directory.open_input(split.path) as opened:
        file = pq.ParquetFile(opened, page_checksum_verification=True)
        groups = None if split.row_group < 0 else [split.row_group]
        for batch in file.iter_batches(BATCH_ROWS, groups):
            yield _completed(split, batch)


def _completed(split: Split, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with all columns of the schema: partition values, and nulls if missing."""
    if split.schema is None:
        return batch
    partition = dict(split.partition)
    columns = []
    for field in split.schema:
        if field.name in batch.schema.names:
            columns.append(batch.column(field.name).cast(field.type))
        else:
            value = pa.scalar(partition.get(field.name), pa.string())
            columns.append(pa.repeat(value, batch.num_rows).cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=split.schema)


def _json_batches(split: Split, directory: Directory) -> Iterator[pa.RecordBatch]:
    with directory.open_input(split.path) as file:
        file.seek(split.start)
        data = file.read(split.end - split.start)
    options = None
    if split.schema is not None:
        options = pj.ParseOptions(explicit_schema=split.schema, unexpected_field_behavior="ignore")
    table = pj.read_json(pa.py_buffer(data), parse_options=options)
    yield from table.to_batches(BATCH_ROWS)


_KINDS: dict[
    str,
    tuple[Callable[[SourceNode], Offset], Callable[[SourceNode, Offset, Offset], list[Split]]],
] = {
    "delta": (_delta_offset, _delta_splits),
    "parquet": (_files_offset, _file_splits),
    "json": (_files_offset, _file_splits),
}
