"""Import one slice: key groups of one file become Parquet files of every state's table.

A plain function of a task, so that Spark can map it over executors and a thread pool over cores.
It reads a window at a time, keeps at most one unit's rows, and touches no log: what it wrote
exists only when the driver commits it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from pipelines.lake.tables.records import KeyGroupRecord, UnitRecord, key_group_records
from pipelines.lake.tables.tables import table_directory
from pipelines.lake.tables.unit_writer import UnitWriter, table_batch
from pipelines.lake.tables.units import Partitioning, Unit, units_of
from state_core.formats import open_snapshot
from state_core.model.handles import KeyGroupRange
from state_core.model.measure import Measure
from state_core.model.snapshot import KeyedFile, Snapshot
from state_core.serializers.framework.registry import changes

__all__ = ["ImportTask", "SliceResult", "TableTarget", "import_slice"]


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
    digest: str
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
def _opened(
    source: str,
    digest: str,  # noqa: ARG001 - tells it from another that was in that directory before
    allow_external: tuple[str, ...],
    registered: int,  # noqa: ARG001 - what was opened before knows nothing of what came since
) -> Snapshot:
    return open_snapshot(source, allow_external=allow_external)


def import_slice(task: ImportTask) -> SliceResult:
    """Read a slice and write its files.

    Raises:
        SnapshotError: The snapshot can't be read there.
    """
    snapshot = _opened(task.source, task.digest, task.allow_external, changes())
    (operator,) = (one for one in snapshot.operators if one.operator_id == task.operator_id)
    return _Slice(task, operator.keyed_files[task.file]).run()


class _Slice:
    def __init__(self, task: ImportTask, file: KeyedFile) -> None:
        self.task = task
        self.file = file
        self.partitioning = Partitioning(task.max_parallelism)
        within = task.key_groups
        units = units_of(file.key_groups, self.partitioning)
        self.units = [unit for unit in units if within.first <= unit.first <= within.last]
        self.measure = Measure([state.name for state in file.states], within)
        self.result = SliceResult()

    def run(self) -> SliceResult:
        """Measure first where something is known to compare with, and write what differs."""
        task = self.task
        compare = any(target.known for target in task.targets)
        if compare:
            for entries in self.file.entries(task.key_groups):
                self.measure.add(entries)
        writers = {
            target.path: UnitWriter(
                table_directory(task.lake, target.path),
                task.attempt,
                self.partitioning,
                self._unchanged(target),
            )
            for target in task.targets
        }
        owner = {name: writers[target.path] for target in task.targets for name in target.states}
        by_state = [(state, owner[state.name]) for state in self.file.states]
        done = 0
        for entries in self.file.entries(task.key_groups):
            if not compare:
                self.measure.add(entries)
            for index, (state, writer) in enumerate(by_state):
                mine = writer.wanted(entries.of_state(index))
                if len(mine):
                    batch = self.file.decode(index, mine)
                    writer.append(table_batch(state, batch), self.units[done])
            reached = int(entries.group_of[-1])
            while self.units[done].last < reached:
                self._finish(writers, self.units[done])
                done += 1
        for unit in self.units[done:]:
            self._finish(writers, unit)
        self.result.key_groups = {
            state.name: key_group_records(self.measure, state.name) for state in self.file.states
        }
        return self.result

    def _held(self, target: TableTarget) -> list[str]:
        """The states of a table that this file has."""
        return [name for name in target.states if name in self.measure.states]

    def _unchanged(self, target: TableTarget) -> set[Unit]:
        return {
            unit
            for unit in self.units
            if (known := target.known.get((unit.first, unit.last))) is not None
            and known == self.measure.fingerprint(self._held(target), unit.key_groups)
        }

    def _finish(self, writers: dict[str, UnitWriter], unit: Unit) -> None:
        for target in self.task.targets:
            rows = self.measure.rows(self._held(target), unit.key_groups)
            path, size = writers[target.path].close(unit)
            if rows:
                content = self.measure.fingerprint(self._held(target), unit.key_groups)
                record = UnitRecord(
                    path, unit.partition, unit.first, unit.last, rows, size, content
                )
                self.result.units.setdefault(target.path, []).append(record)
                self.result.written_bytes += size
