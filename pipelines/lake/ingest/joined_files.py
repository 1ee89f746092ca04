"""Join the files that slices wrote of a small table: it has a file a megabyte, not one a slice.

The slices of an import share no file, so a state of a few kilobytes has one from each of them. They
become one file, whose record keeps the fingerprint of each part: the next import compares these,
and reads what did not change from the file that it knows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from statelake.pipelines.engine import Engine
from statelake.pipelines.lake.ingest.import_slice import SliceResult, TableTarget
from statelake.pipelines.lake.tables.data_files import DataFileWriter
from statelake.pipelines.lake.tables.file_spans import (
    BUCKET,
    MAX_PARTITIONS,
    Partitioning,
    has_shrunk,
    joined_bytes,
)
from statelake.pipelines.lake.tables.records import DataFile, by_span
from statelake.pipelines.lake.tables.table_rows import read_data_file, rows_of_groups
from statelake.pipelines.lake.tables.tables import table_directory
from statelake.state_core.model.handles import KeyGroupRange

TASK_FILES = 64


@dataclass(frozen=True)
class JoinedFile:
    """One file of a table, to be written from others.

    Attributes:
        lake: The lake's location.
        attempt: The token under which it is named.
        path: The table's path.
        partitioning: The table's partitioning.
        columns: The table's columns, without the bucket.
        sources: The files, in order of key group, and the key groups that are read of each.
    """

    lake: str
    attempt: str
    path: str
    partitioning: Partitioning
    columns: pa.Schema
    sources: tuple[tuple[DataFile, KeyGroupRange], ...]

    def write(self) -> tuple[str, int]:
        """Write it.

        Returns:
            Its path below the table, and its bytes.

        Raises:
            LakeError: A file of the previous snapshot can't be read.
        """
        directory = table_directory(self.lake, self.path)
        writer = DataFileWriter(directory, self.attempt, self.partitioning)
        last = self.sources[-1][1].last
        files: dict[str, pa.Table] = {}  # one of before has several parts
        for file, key_groups in self.sources:
            if file.path not in files:
                files[file.path] = read_data_file(
                    self.lake, self.path, file, self.columns, self.partitioning
                )
            for batch in rows_of_groups(files[file.path], key_groups).to_batches():
                writer.append(batch, last)
        return writer.close(last)


def write_joined(files: Sequence[JoinedFile]) -> list[tuple[str, int]]:
    """Write files: the function of a task."""
    return [file.write() for file in files]


@dataclass
class _JoinedRun:
    """Consecutive files of a table, their bytes of state, and whether these fit into one file."""

    files: list[DataFile]
    state_bytes: int = 0
    fits: bool = True


@dataclass(frozen=True)
class SlicedTable:
    """A table, and what all slices of its operator have of it.

    Attributes:
        target: The table.
        columns: The table's columns, without the bucket.
        results: The results of the slices, in order of key group.
        partitions: How many partitions it is to have, whatever its bytes; None if that is open.
    """

    target: TableTarget
    columns: pa.Schema
    results: Sequence[SliceResult]
    partitions: int | None = None

    @cached_property
    def files(self) -> list[DataFile]:
        """The files of all slices, in order of key group."""
        path = self.target.path
        files = [file for result in self.results for file in result.files.get(path, [])]
        return sorted(files, key=lambda file: file.first)

    @cached_property
    def before(self) -> dict[tuple[int, int], list[DataFile]]:
        """The files of the previous snapshot that can be kept, by first and last key group."""
        return {} if self.target.previous is None else by_span(self.target.previous.units)

    @cached_property
    def _containing(self) -> dict[tuple[int, int], DataFile]:
        """The file of the previous snapshot that has a part, by first and last key group."""
        return {
            part.span: file
            for files in self.before.values()
            for file in files
            for part in file.parts
        }

    def runs(self) -> Iterator[_JoinedRun]:
        """Yield files that are to be one, or one that stays as it is."""
        atoms = list(self._atoms(self._sizes()))
        total = sum(atom.state_bytes for atom in atoms)
        starts = sorted(first for first, _ in self.before)
        if has_shrunk(total, len(starts)):
            starts = []
        by_share: dict[int, list[_JoinedRun]] = {}
        for atom in atoms:
            by_share.setdefault(self._share(atom.files[0].first, starts), []).append(atom)
        for share in by_share.values():
            size = sum(atom.state_bytes for atom in share)
            follows = bool(starts) or self.partitions is not None
            limit = joined_bytes(size, follows=follows)
            run = _JoinedRun([])
            for atom in share:
                if run.files and run.state_bytes + atom.state_bytes > limit:
                    yield run
                    run = _JoinedRun([])
                run.files += atom.files
                run.state_bytes += atom.state_bytes
                run.fits = run.state_bytes <= limit
            yield run

    def _share(self, first: int, starts: Sequence[int]) -> int:
        """Return the number of the partition of a file, or of the file before that it follows."""
        if self.partitions is not None:
            return self.target.partitioning.partition_of(first) * self.partitions // MAX_PARTITIONS
        return bisect_right(starts, first)

    def _sizes(self) -> Callable[[DataFile], int]:
        """Return a function of the bytes of state in a file's key groups."""
        sums = [
            result.sums[name]
            for result in self.results
            for name in self.target.states
            if name in result.sums
        ]
        groups = np.concatenate([each.key_groups for each in sums])
        order = np.argsort(groups, kind="stable")
        groups = groups[order]
        ends = np.cumsum(np.concatenate([each.state_bytes for each in sums])[order])
        ends = np.concatenate([[0], ends])

        def size_of(file: DataFile) -> int:
            first, behind = np.searchsorted(groups, [file.first, file.last + 1])
            return int(ends[behind] - ends[first])

        return size_of

    def _atoms(self, size_of: Callable[[DataFile], int]) -> Iterator[_JoinedRun]:
        """Yield the files of the same buckets together: all of a partition are within one file."""
        atom: _JoinedRun | None = None
        for file in self.files:
            size = size_of(file)
            if atom is not None:
                last = atom.files[-1]
                if last.span == file.span:
                    size = 0  # they were counted
                if self.target.partitioning.partition_of(last.last) == file.partition:
                    atom.files.append(file)
                    atom.state_bytes += size
                    continue
                yield atom
            atom = _JoinedRun([file], size)
        if atom is not None:
            yield atom

    def kept(self, run: _JoinedRun) -> DataFile | None:
        """Return the file of the previous snapshot that has exactly these parts."""
        ends = [file.span for file in run.files]
        file = self._containing.get(ends[0])
        if file is None or any(each.path for each in run.files):
            return None
        if [part.span for part in file.parts] != ends:
            return None
        return DataFile("", file.partition, *file.span, file.rows, 0, file.fingerprint)

    def stays(self, run: _JoinedRun) -> bool:
        """Return whether files are left as they are: one, one in pieces, or those of before."""
        if any(not file.path and file.span not in self.before for file in run.files):
            return False  # a part of a file
        if len(run.files) == 1 or all(not file.path for file in run.files):
            return True
        return not run.fits or len({file.span for file in run.files}) == 1

    def sources(self, run: _JoinedRun) -> Iterator[tuple[DataFile, KeyGroupRange]]:
        """Yield the files that have the rows of some, and which key groups are read of each."""
        for file in run.files:
            span = KeyGroupRange(*file.span)
            if file.path:
                yield file, span
            elif file.span in self.before:
                yield from ((each, span) for each in self.before[file.span])
            else:
                yield self._containing[file.span], span

    def joined(self, run: _JoinedRun, path: str, size: int) -> DataFile:
        """Return the record of a file that was written from others."""
        first, last = run.files[0].first, run.files[-1].last
        parts = list({file.span: file.compared[0] for file in run.files}.values())
        return DataFile(
            path,
            self.target.partitioning.partition_of(first),
            first,
            last,
            sum(file.rows for file in run.files),
            size,
            parts[0].fingerprint if len(parts) == 1 else b"",
            parts if len(parts) > 1 else [],
        )


@dataclass
class JoinedTables:
    """The files of tables after small ones were joined.

    Attributes:
        files: The files of each table, by its path.
        joined: The paths of tables of which files were joined.
    """

    files: dict[str, list[DataFile]] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)


def join_small_files(
    engine: Engine, lake: str, attempt: str, tables: Sequence[SlicedTable]
) -> JoinedTables:
    """Join the small files of consecutive slices.

    Args:
        engine: The engine that runs tasks.
        lake: The lake's location.
        attempt: The token under which files are named.
        tables: The tables.

    Raises:
        LakeError: A file of the previous snapshot can't be read.
    """
    result = JoinedTables()
    joins: list[tuple[SlicedTable, _JoinedRun, JoinedFile]] = []
    for table in tables:
        path, partitioning = table.target.path, table.target.partitioning
        if partitioning.column != BUCKET or not table.files:
            result.files[path] = table.files
            continue
        result.files[path] = data_files = []
        for run in table.runs():
            kept = table.kept(run)
            if kept is not None:
                data_files.append(kept)
            elif table.stays(run):
                data_files += run.files
            else:
                sources = tuple(table.sources(run))
                file = JoinedFile(lake, attempt, path, partitioning, table.columns, sources)
                joins.append((table, run, file))
    files = [file for _, _, file in joins]
    tasks = [files[at : at + TASK_FILES] for at in range(0, len(files), TASK_FILES)]
    written = (
        [each for of_task in engine.map(write_joined, tasks) for each in of_task] if tasks else []
    )
    for (table, run, file), (path, size) in zip(joins, written, strict=True):
        result.joined.add(file.path)
        result.files[file.path].append(table.joined(run, path, size))
    for data_files in result.files.values():
        data_files.sort(key=lambda data_file: data_file.first)
    return result
