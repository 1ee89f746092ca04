"""Import one slice: key groups of an operator become Parquet files of every state's table.

A plain function of a task, so that Spark can map it over executors and a thread pool over cores.
It reads a window at a time, holds only the rows of open files, and writes to no log: its files
belong to a table only when the driver commits them.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import pyarrow as pa

from statelake.pipelines.lake.ingest.unchanged_slices import slice_mark, stored_digest
from statelake.pipelines.lake.tables.data_files import DataFileWriter, measured_file, table_batch
from statelake.pipelines.lake.tables.file_spans import FileCuts, Partitioning, SlicePart
from statelake.pipelines.lake.tables.records import DataFile, PartRecord
from statelake.pipelines.lake.tables.table_rows import TableReader, is_undamaged
from statelake.pipelines.lake.tables.tables import table_directory
from statelake.pipelines.times import phase, phase_of_each
from statelake.state_core.errors import StateError
from statelake.state_core.formats.keyed.keyed_files import with_first_decoders, with_names
from statelake.state_core.formats.reader import Snapshot, open_snapshot
from statelake.state_core.model.entries import Entries, KeyedFile
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.measure import GroupSums, Measure
from statelake.state_core.model.snapshot import RowNames
from statelake.state_core.serializers.framework.registry import changes

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableTarget:
    """A table that a slice writes.

    Attributes:
        path: Its path below the lake.
        partitioning: Its partitioning.
        states: The states that it holds: one, or all queues of timers.
        previous: The previous snapshot's files of the same types; None without any. What still has
            its fingerprint there, and is undamaged, is not written.
    """

    path: str
    partitioning: Partitioning
    states: tuple[str, ...]
    previous: TableReader | None = None

    @cached_property
    def fingerprints(self) -> dict[tuple[int, int], bytes]:
        """The fingerprints of these files, or of their parts, by first and last key group."""
        files = () if self.previous is None else self.previous.units
        return {part.span: part.fingerprint for file in files for part in file.compared}

    @cached_property
    def _ordered(self) -> list[PartRecord]:
        """The same in order of key group, which is in one of them at most."""
        return [
            PartRecord(*span, fingerprint)
            for span, fingerprint in sorted(self.fingerprints.items())
        ]

    @cached_property
    def starts(self) -> set[int]:
        """The partitions in which these begin."""
        if self.previous is None:
            return set()
        return {self.previous.partitioning.partition_of(first) for first, _ in self.fingerprints}

    def parts(self, key_groups: KeyGroupRange) -> list[PartRecord]:
        """Return what the previous snapshot has that touches some key groups, in order."""
        first = bisect_left(self._ordered, key_groups.first, key=lambda part: part.last)
        behind = bisect_right(self._ordered, key_groups.last, key=lambda part: part.first)
        return self._ordered[first:behind]

    def keeps(self, span: KeyGroupRange, content: bytes) -> bool:
        """Return whether the previous snapshot has these rows, in undamaged files.

        Args:
            span: The key groups of the rows.
            content: The fingerprint of the rows.
        """
        if self.previous is None or self.fingerprints.get((span.first, span.last)) != content:
            return False
        try:
            if is_undamaged(self.previous, span, content):
                return True
            problem = "its rows are not those of its fingerprint"
        except (StateError, OSError, pa.ArrowException) as error:
            problem = " ".join(str(error).split())
        LOG.warning("%s, key groups %s: written anew (%s)", self.path, span, problem)
        return False


@dataclass(frozen=True)
class ImportTask:
    """One slice of an import: consecutive key groups, of files of one operator.

    Attributes:
        source: The snapshot's directory.
        cache_key: The token by which it is opened once in each process.
        allow_external: Directories elsewhere to which its handles may lead.
        operator_id: The operator.
        parts: The parts of files to read, in order of key group.
        max_parallelism: The operator's max parallelism.
        lake: The lake's location.
        attempt: The token under which files are named.
        targets: The tables.
        partitions: How many partitions each table is to have, whatever its bytes.
        names: The names of the fields of rows, by state; empty without a plan of Flink SQL.
        digested: Whether the bytes are digested, so that the next import can compare them; those in
            an object store would be fetched twice.
        marks: The marks of the same key groups in the previous snapshot: timers that Flink keeps
            on the heap beside RocksDB are slices of their own.
    """

    source: str
    cache_key: str
    allow_external: tuple[str, ...]
    operator_id: str
    parts: tuple[SlicePart, ...]
    max_parallelism: int
    lake: str
    attempt: str
    targets: tuple[TableTarget, ...]
    partitions: int | None = None
    names: tuple[tuple[str, RowNames], ...] = ()
    digested: bool = False
    marks: frozenset[bytes] = frozenset()

    def files(self) -> Sequence[KeyedFile]:
        """Return the files of its operator, which are opened once in a process.

        Raises:
            SnapshotError: The snapshot can't be read.
        """
        return _files(
            self.source,
            self.cache_key,
            self.allow_external,
            self.operator_id,
            self.names,
            changes(),
        )

    @property
    def key_groups(self) -> KeyGroupRange:
        """The key groups of all its parts."""
        return KeyGroupRange(self.parts[0].key_groups.first, self.parts[-1].key_groups.last)


@dataclass
class SliceResult:
    """The result of a slice.

    Attributes:
        files: By table, the files that hold its rows; one without a path stands for those of its
            key groups in the previous snapshot, or for a part of one.
        sums: By state, what was measured of its key groups.
        mark: The mark of the slice; empty without a digest of its bytes.
        unchanged: The states that were not measured, as their bytes are those of the previous
            snapshot: its tables have all rows.
    """

    files: dict[str, list[DataFile]] = field(default_factory=dict)
    sums: dict[str, GroupSums] = field(default_factory=dict)
    mark: bytes = b""
    unchanged: tuple[str, ...] = ()

    def take_recorded(self, sums: dict[str, GroupSums], task: ImportTask) -> None:
        """Take from the catalog what was not measured, as the bytes are the same.

        Args:
            sums: What the previous snapshot has of each state.
            task: The slice.
        """
        self.sums = {name: sums[name].within(task.key_groups) for name in self.unchanged}
        for target in task.targets:
            of_target = [self.sums[name] for name in target.states if name in self.sums]
            for file in self.files.get(target.path, []):
                span = KeyGroupRange(*file.span)
                file.rows = sum(int(each.within(span).entries.sum()) for each in of_target)


def cached_snapshot(
    source: str, cache_key: str, allow_external: tuple[str, ...], uids: tuple[str, ...] = ()
) -> Snapshot:
    """Return a snapshot, opened once in a process for all tasks of an import.

    Args:
        source: The snapshot's directory.
        cache_key: The token of the import: another opens it anew, as files may have changed.
        allow_external: Directories elsewhere to which its handles may lead.
        uids: Operator uids to recognise.

    Raises:
        SnapshotError: The snapshot can't be read.
    """
    return _opened(source, cache_key, allow_external, uids, changes())


@lru_cache(maxsize=4)
def _opened(
    source: str,
    cache_key: str,  # noqa: ARG001 - see above
    allow_external: tuple[str, ...],
    uids: tuple[str, ...],
    registered: int,  # noqa: ARG001 - a snapshot opened before does not know what was registered since
) -> Snapshot:
    return open_snapshot(source, allow_external=allow_external, uids=uids)


@lru_cache(maxsize=64)
def _files(
    source: str,
    cache_key: str,
    allow_external: tuple[str, ...],
    operator_id: str,
    names: tuple[tuple[str, RowNames], ...],
    registered: int,  # noqa: ARG001 - see above
) -> Sequence[KeyedFile]:
    snapshot = cached_snapshot(source, cache_key, allow_external)
    (operator,) = (op for op in snapshot.operators if op.operator_id == operator_id)
    files = with_names(operator.keyed_files, dict(names)) if names else operator.keyed_files
    return with_first_decoders(files)


def import_slice(task: ImportTask) -> SliceResult:
    """Read a slice and write its files.

    Raises:
        SnapshotError: The snapshot can't be read there.
    """
    return _ImportSlice(task, task.files()).run()


def slice_name(task: ImportTask) -> str:
    """Return the name of a slice in messages."""
    groups = task.key_groups
    return f"operator {task.operator_id}, key groups {groups.first} to {groups.last}"


class _ImportSlice:
    def __init__(self, task: ImportTask, files: Sequence[KeyedFile]) -> None:
        self.task = task
        self.parts = [(files[part.file], part.key_groups) for part in task.parts]
        self.states = files[task.parts[0].file].states  # the same in all parts
        self.measure = Measure([state.name for state in self.states], task.key_groups)
        self.targets = [
            target
            for target in task.targets
            if any(name in self.measure.states for name in target.states)
        ]

    def run(self) -> SliceResult:
        """Measure first if the previous snapshot has files to compare, and write what differs."""
        task, measure = self.task, self.measure
        with phase("compared"):
            stored = stored_digest(self.parts) if task.digested else b""
            mark = self._mark_before(stored)
            if mark and mark in task.marks and self._keeps_all():
                return SliceResult(self._files_before(), mark=mark, unchanged=tuple(measure.states))
        compare = any(target.fingerprints for target in self.targets)
        if compare:
            for _, entries in self._entries():
                self._measure(entries)
        tables = [_SliceTable(task, target, measure, measured=compare) for target in self.targets]
        owner = {name: table for table in tables for name in table.target.states}
        by_state = [(state, owner[state.name]) for state in self.states]
        read = not compare or any(table.differs for table in tables)
        for file, entries in self._entries() if read else ():
            if not compare:
                self._measure(entries)
            for index, (state, table) in enumerate(by_state):
                with phase("decoded"):
                    changed = table.writer.wanted(entries.of_state(index))
                    rows = table_batch(state, file.decode(index, changed)) if len(changed) else None
                if rows is not None:
                    table.append(rows)
            for table in tables:
                table.end_files(int(entries.group_of[-1]))
        for table in tables:
            table.end_files(task.max_parallelism)
        files = {table.target.path: table.files for table in tables if table.files}
        sums = {state.name: measure.sums(state.name) for state in self.states}
        parts = {
            path: [part for data_file in of_table for part in data_file.compared]
            for path, of_table in files.items()
        }
        mark = slice_mark(stored, task.partitions, parts) if stored else b""
        return SliceResult(files, sums, mark)

    def _mark_before(self, stored: bytes) -> bytes:
        """Return the mark of these bytes and of what the previous snapshot has; empty without."""
        if not stored or any(target.previous is None for target in self.targets):
            return b""
        parts = {target.path: target.parts(self.task.key_groups) for target in self.targets}
        return slice_mark(stored, self.task.partitions, parts)

    def _keeps_all(self) -> bool:
        """Return whether all that the previous snapshot has of these key groups is undamaged."""
        return all(
            target.keeps(KeyGroupRange(*part.span), part.fingerprint)
            for target in self.targets
            for part in target.parts(self.task.key_groups)
        )

    def _files_before(self) -> dict[str, list[DataFile]]:
        """Return the previous snapshot's files of these key groups, whose rows are not counted."""
        files = {}
        for target in self.targets:
            partition_of = target.partitioning.partition_of
            files[target.path] = [
                DataFile("", partition_of(part.first), *part.span, 0, 0, part.fingerprint)
                for part in target.parts(self.task.key_groups)
            ]
        return {path: of_table for path, of_table in files.items() if of_table}

    def _entries(self) -> Iterator[tuple[KeyedFile, Entries]]:
        """Yield the entries of all parts, in order of key group."""
        for file, key_groups in self.parts:
            for entries in phase_of_each("read", file.entries(key_groups)):
                yield file, entries

    def _measure(self, entries: Entries) -> None:
        with phase("measured"):
            self.measure.add(entries)


class _SliceTable:
    """The rows of a slice for one table.

    Args:
        task: The slice.
        target: The table.
        measure: The measure of the slice, as far as it has been read.
        measured: Whether all of it has been read.
    """

    def __init__(
        self, task: ImportTask, target: TableTarget, measure: Measure, *, measured: bool
    ) -> None:
        self.target = target
        self.measure = measure
        self.names = [name for name in target.states if name in measure.states]
        self.buckets = target.partitioning.buckets(task.key_groups)
        self.cuts = FileCuts(target.partitioning, self.buckets, task.partitions)
        self.files: list[DataFile] = []
        groups = [bucket.key_groups for bucket in self.buckets]
        self.sizes = measure.range_bytes(self.names, groups) if measured else []
        self.differs = True  # from the files of the previous snapshot
        unchanged = self._unchanged() if measured else []
        directory = table_directory(task.lake, target.path)
        self.writer = DataFileWriter(directory, task.attempt, target.partitioning, unchanged)
        self.first = task.key_groups.first
        self.at = 0
        self.holds_rows = False

    def _unchanged(self) -> list[KeyGroupRange]:
        """Plan all files, and take those that the previous snapshot has."""
        self.cuts.follow(self.target.starts, self.sizes)
        kept, self.differs = [], False
        for file in self.cuts.files(self.sizes):
            same = self._file(file.key_groups)
            if self.target.keeps(KeyGroupRange(*same.span), same.fingerprint):
                self.files.append(same)
                kept.append(file.key_groups)
            elif same.rows:
                self.differs = True
        return kept

    def append(self, rows: pa.RecordBatch) -> None:
        """Append rows of key groups whose files have not ended."""
        with phase("wrote"):
            self.writer.append(rows, self.buckets[self.at].last)
        self.holds_rows = True

    def end_files(self, reached: int) -> None:
        """End the files that have only key groups before `reached`."""
        while self.at < len(self.buckets) and self.buckets[self.at].last < reached:
            last = self.buckets[self.at].last
            if self.cuts.ends_after(self.at, self._bytes()):
                if self.holds_rows:
                    self._close(last)
                self.first = last + 1
            self.at += 1

    def _close(self, last: int) -> None:
        with phase("wrote"):
            path, size = self.writer.close(last)
        self.holds_rows = bool(self.writer.rows)
        if path:
            self.files.append(self._file(KeyGroupRange(self.first, last), path, size))

    def _file(self, key_groups: KeyGroupRange, path: str = "", size: int = 0) -> DataFile:
        partitioning = self.target.partitioning
        return measured_file(self.measure, self.names, key_groups, partitioning, path, size)

    def _bytes(self) -> int:
        """Return the bytes of the table's states in the current bucket."""
        if self.sizes:
            return self.sizes[self.at]
        if not self.holds_rows:
            return 0
        (size,) = self.measure.range_bytes(self.names, [self.buckets[self.at].key_groups])
        return size
