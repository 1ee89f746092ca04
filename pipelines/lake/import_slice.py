"""Import one slice: key groups of one file become Parquet files of every state's table.

A plain function of a task, so that Spark can map it over executors and a thread pool over cores.
It reads a window at a time, keeps at most one unit's rows, and touches no log: what it wrote
exists only when the driver commits it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.lake.records import KeyGroupRecord, UnitRecord
from pipelines.lake.tables import DATA_DIRECTORY
from pipelines.lake.units import Partitioning, Unit, units_of
from state_core.filesystem import Directory
from state_core.formats import open_snapshot
from state_core.handles import KeyGroupRange
from state_core.kernels.hashing import fingerprint_entries
from state_core.snapshot import Entries, KeyedFile, KeyedState, Snapshot, StateKind

__all__ = [
    "ImportTask",
    "SliceResult",
    "TableTarget",
    "import_slice",
    "timers_schema",
    "with_service",
]

ROW_GROUP_BYTES = 64 << 20
ZSTD_LEVEL = 1


@dataclass(frozen=True)
class TableTarget:
    """A table that a slice writes to.

    Attributes:
        path: Below the lake.
        states: The states that it holds: one, or all queues of timers.
        known: Fingerprints of the previous snapshot's units, by their key groups; a unit that
            still has its fingerprint is not written.
    """

    path: str
    states: tuple[str, ...]
    known: dict[tuple[int, int], bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class ImportTask:
    """One slice of an import."""

    source: str
    allow_external: tuple[str, ...]
    operator_id: str
    file: int
    key_groups: KeyGroupRange
    max_parallelism: int
    lake: str
    attempt: str
    targets: tuple[TableTarget, ...]


@dataclass
class SliceResult:
    """What a slice found and wrote.

    Attributes:
        units: By table: the units that hold rows; those that were not written have no path.
        key_groups: By state: entries and bytes.
        written_bytes: The size of the files that were written.
    """

    units: dict[str, list[UnitRecord]] = field(default_factory=dict)
    key_groups: dict[str, list[KeyGroupRecord]] = field(default_factory=dict)
    written_bytes: int = 0


@lru_cache(maxsize=4)
def _opened(source: str, allow_external: tuple[str, ...]) -> Snapshot:
    return open_snapshot(source, allow_external=allow_external)


def import_slice(task: ImportTask) -> SliceResult:
    """Read a slice and write its files.

    Raises:
        SnapshotError: The snapshot can't be read there.
    """
    snapshot = _opened(task.source, task.allow_external)
    (operator,) = (one for one in snapshot.operators if one.operator_id == task.operator_id)
    return _Slice(task, operator.keyed_files[task.file]).run()


class _Slice:
    def __init__(self, task: ImportTask, file: KeyedFile) -> None:
        self.task = task
        self.file = file
        self.partitioning = Partitioning(task.max_parallelism)
        within = task.key_groups
        own = KeyGroupRange(file.key_groups.first, file.key_groups.last)
        units = units_of(own, self.partitioning)
        self.units = [one for one in units if within.first <= one.first <= within.last]
        cells = len(file.states) * len(within)
        self.low, self.high = np.zeros(cells, np.uint64), np.zeros(cells, np.uint64)
        self.counts, self.sizes = np.zeros(cells, np.int64), np.zeros(cells, np.int64)
        self.result = SliceResult()

    def run(self) -> SliceResult:
        """Measure first where something is known to compare with, and write what differs."""
        task = self.task
        compare = any(target.known for target in task.targets)
        if compare:
            for entries in self.file.entries(task.key_groups):
                self._measure(entries)
        writers = {
            target.path: _UnitWriter(task, target, self.partitioning, self._unchanged(target))
            for target in task.targets
        }
        owner = {name: writers[target.path] for target in task.targets for name in target.states}
        by_state = [(state, owner[state.name]) for state in self.file.states]
        done = 0
        for entries in self.file.entries(task.key_groups):
            if not compare:
                self._measure(entries)
            for index, (state, writer) in enumerate(by_state):
                mine = writer.wanted(entries.of_state(index))
                if len(mine):
                    unit = self.units[min(done, len(self.units) - 1)]
                    writer.append(state, self.file.decode(index, mine), unit)
            reached = int(entries.group_of[-1])
            while done < len(self.units) and self.units[done].last < reached:
                self._finish(writers, self.units[done])
                done += 1
        for unit in self.units[done:]:
            self._finish(writers, unit)
        self._report()
        return self.result

    def _measure(self, entries: Entries) -> None:
        groups = entries.group_of - self.task.key_groups.first
        slot = entries.state_of.astype(np.int64) * len(self.task.key_groups) + groups
        fingerprint_entries(
            entries.data, entries.key_start, entries.key_end, entries.value_start,
            entries.value_end, slot, self.low, self.high,
        )  # fmt: skip
        self.counts += np.bincount(slot, minlength=len(self.counts))
        weights = entries.payload_bytes()
        self.sizes += np.bincount(slot, weights, len(self.sizes)).astype(np.int64)

    def _cells(self, target: TableTarget, unit: Unit) -> Iterator[tuple[str, slice]]:
        first = unit.first - self.task.key_groups.first
        last = unit.last - self.task.key_groups.first
        for index, state in enumerate(self.file.states):
            if state.name in target.states:
                start = index * len(self.task.key_groups)
                yield state.name, slice(start + first, start + last + 1)

    def _fingerprint(self, target: TableTarget, unit: Unit) -> bytes:
        digest = blake2b(digest_size=16)
        for name, cells in sorted(self._cells(target, unit)):
            if self.counts[cells].any():
                digest.update(name.encode())
                for column in (self.counts, self.low, self.high):
                    digest.update(np.ascontiguousarray(column[cells]).tobytes())
        return digest.digest()

    def _rows(self, target: TableTarget, unit: Unit) -> int:
        return sum(int(self.counts[cells].sum()) for _, cells in self._cells(target, unit))

    def _unchanged(self, target: TableTarget) -> set[Unit]:
        return {
            unit
            for unit in self.units
            if (known := target.known.get((unit.first, unit.last))) is not None
            and known == self._fingerprint(target, unit)
        }

    def _finish(self, writers: dict[str, _UnitWriter], unit: Unit) -> None:
        for target in self.task.targets:
            rows = self._rows(target, unit)
            path, size = writers[target.path].close(unit)
            if rows:
                record = UnitRecord(
                    path, unit.partition, unit.first, unit.last, rows, size,
                    self._fingerprint(target, unit),
                )  # fmt: skip
                self.result.units.setdefault(target.path, []).append(record)
                self.result.written_bytes += size

    def _report(self) -> None:
        width, first = len(self.task.key_groups), self.task.key_groups.first
        for index, state in enumerate(self.file.states):
            counts = self.counts[index * width : (index + 1) * width]
            sizes = self.sizes[index * width : (index + 1) * width]
            self.result.key_groups[state.name] = [
                KeyGroupRecord(first + group, int(counts[group]), int(sizes[group]))
                for group in np.flatnonzero(counts).tolist()
            ]


class _UnitWriter:
    """Writes a table's units one after the other, each into a file of its own."""

    def __init__(
        self, task: ImportTask, target: TableTarget, partitioning: Partitioning, skip: set[Unit]
    ) -> None:
        self.partitioning = partitioning
        self.directory = Directory(task.lake).child(target.path)
        self.prefix = f"{DATA_DIRECTORY}/{task.attempt}"
        self.skipped = np.array(
            sorted(g for one in skip for g in range(one.first, one.last + 1)), np.int64
        )
        self.rows: list[pa.RecordBatch] = []
        self.held = 0
        self.path = ""
        self.file: pq.ParquetWriter | None = None

    def wanted(self, entries: Entries) -> Entries:
        """The entries that are to be written."""
        if not self.skipped.size or not len(entries):
            return entries
        return entries.take(np.flatnonzero(~np.isin(entries.group_of, self.skipped)))

    def append(self, state: KeyedState, batch: pa.RecordBatch, unit: Unit) -> None:
        """Take rows of `unit` and of units behind it, in order of key group."""
        if state.kind is StateKind.TIMERS:
            batch = with_service(state, batch)
        self.rows.append(batch)
        self.held += batch.nbytes
        if self.held > ROW_GROUP_BYTES:
            self._flush(unit)

    def close(self, unit: Unit) -> tuple[str, int]:
        """Finish the unit's file: its path below the table and its bytes; empty if it has none."""
        self._flush(unit)
        if self.file is None:
            return "", 0
        self.file.close()
        self.file = None
        return self.path, self.directory.size(self.path)

    def _flush(self, unit: Unit) -> None:
        """Write the rows up to the unit's last key group as one row group."""
        ready, rest = [], []
        for batch in self.rows:
            groups = batch.column("key_group").to_numpy()
            count = int(np.searchsorted(groups, unit.last, side="right"))
            ready.append(batch.slice(0, count))
            if count < len(batch):
                rest.append(batch.slice(count))
        self.rows = rest
        self.held = sum(batch.nbytes for batch in rest)
        ready = [batch for batch in ready if len(batch)]
        if not ready:
            return
        schema = self.partitioning.file_schema(ready[0].schema)
        table = pa.Table.from_batches(ready).select(schema.names)
        if self.file is None:
            self.file = self._create(unit, schema)
        self.file.write_table(table, row_group_size=max(1, len(table)))

    def _create(self, unit: Unit, schema: pa.Schema) -> pq.ParquetWriter:
        self.path = f"{self.prefix}/key-group-{unit.first:05d}.parquet"
        target = self.directory.full(self.path)
        self.directory.filesystem.create_dir(posixpath.dirname(target), recursive=True)
        return pq.ParquetWriter(
            target,
            schema,
            filesystem=self.directory.filesystem,
            compression="zstd",
            compression_level=ZSTD_LEVEL,
            use_dictionary=False,
        )


def with_service(state: KeyedState, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A timer queue's rows with the columns that tell it from other queues of the operator."""
    domain, service = state.timer_service
    columns = {name: batch.column(name) for name in batch.schema.names}
    constant = {"service": service, "domain": domain}
    columns |= {name: pa.repeat(pa.scalar(value), len(batch)) for name, value in constant.items()}
    schema = timers_schema(batch.schema)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def timers_schema(queue: pa.Schema) -> pa.Schema:
    """The columns of a table of timers, from those of a queue."""
    named = queue.insert(1, pa.field("service", pa.string()))
    return named.insert(2, pa.field("domain", pa.string()))
