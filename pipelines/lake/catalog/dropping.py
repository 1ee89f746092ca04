"""Let snapshots go, and free the bytes that only they needed.

First their rows leave `snapshots`, which makes them not exist; then whatever no kept snapshot, no
table's current version and no running attempt names is deleted. What is left behind by a crash in
between is taken by the next drop.

Only files go that are called as statelake or a Delta engine calls them, below the job's own tables,
one by one. A row that can't be believed can be dropped by its name: what it says counts for
nothing. But while one stays nobody knows which files are needed, and nothing is dropped at all.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from deltalake import DeltaTable

from pipelines.lake.catalog.attempts import DROP, UNDO, attempt_tokens, leaned_on, recover_attempts
from pipelines.lake.catalog.catalog import Catalog
from pipelines.lake.catalog.unmanaged_state import CARRIED_DIRECTORY
from pipelines.lake.tables.names import areas_of, is_digest, is_edited_file, is_table_of, token_of
from pipelines.lake.tables.records import SnapshotRecord, TableRecord
from pipelines.lake.tables.tables import DATA_DIRECTORY, StateTable, TableFile, files_of
from state_core.errors import DamagedLakeError, NotFoundError, UnsafePathError

__all__ = ["DropResult", "drop_snapshots", "sweep_carried", "tables_of_job"]

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class DropResult:
    """What a drop freed.

    Attributes:
        dropped: The snapshots that are gone.
        kept: The others.
        files: Files that were removed.
        freed_bytes: Their bytes.
        held: The snapshots among `kept` that only a hold keeps.
    """

    dropped: list[str]
    kept: list[str]
    files: int
    freed_bytes: int
    held: list[str] = field(default_factory=list)


def drop_snapshots(
    lake: Catalog, job: str, *, snapshot_ids: list[str] | None = None, keep: int | None = None
) -> DropResult:
    """Drop some snapshots of a job, or all but the newest.

    Args:
        lake: The lake.
        job: The job.
        snapshot_ids: The snapshots to drop.
        keep: How many of the newest to keep, where no ids are given, beside those with a hold.

    Raises:
        HeldError: There is a hold on one of those named; nothing is dropped.
        NotFoundError: There is no such snapshot.
        DamagedLakeError: A row of the job can't be believed, and is not dropped by its name.
        UnsafePathError: A table of the job leads elsewhere.
    """
    records, bad = lake.records(job)
    known = [record.snapshot_id for record in records]
    rows = {*known, *(row.snapshot_id for row in bad)}
    if not rows:
        jobs = ", ".join(lake.jobs()) or "none"
        raise NotFoundError(f"no job {job!r} in the lake", remedy=f"it has: {jobs}")
    held: list[str] = []
    dropped = snapshot_ids
    if dropped is None:
        older = records[: max(0, len(known) - (keep or 0))]
        dropped = [record.snapshot_id for record in older if not record.holds]
        held = [record.snapshot_id for record in older if record.holds]
    missing = sorted(set(dropped) - rows)
    if missing:
        raise NotFoundError(
            f"job {job!r} has no snapshot {missing[0]!r}", remedy=f"it has: {', '.join(known)}"
        )
    for row in bad:
        if row.snapshot_id not in (snapshot_ids or ()):
            raise row.error
    recover_attempts(lake, job)
    tables = tables_of_job(lake, job, records)
    if dropped:
        lake.remove(job, dropped)
    work = _Drop(lake, job, [record for record in records if record.snapshot_id in dropped])
    files, freed = 0, 0
    for path in tables:
        work.show_newest(path)
        count, size = work.sweep(path)
        files, freed = files + count, freed + size
    count, size = sweep_carried(lake)
    kept = [snapshot_id for snapshot_id in known if snapshot_id not in set(dropped)]
    return DropResult(list(dropped), kept, files + count, freed + size, held)


class _Drop:
    """What follows when the rows of some snapshots are gone."""

    def __init__(self, lake: Catalog, job: str, going: list[SnapshotRecord]) -> None:
        self.lake = lake
        self.job = job
        self.running = attempt_tokens(lake)
        leaned = leaned_on(lake, job)
        self.leaned = [record for record in going if record.snapshot_id in leaned]
        self.going = going
        self.read: dict[str, SnapshotRecord] = {}

    def _kept(self) -> list[SnapshotRecord]:
        """The job's snapshots, the oldest first."""
        names = [summary.snapshot_id for summary in self.lake.summaries(self.job)]
        if not self.read.keys() >= set(names):
            records, bad = self.lake.records(self.job)
            if bad:
                raise bad[0].error
            self.read = {record.snapshot_id: record for record in records} | self.read
        return [self.read[name] for name in names if name in self.read]

    def show_newest(self, path: str) -> None:
        """If the table shows a snapshot that is no more, let it show the newest there is."""
        table = self.lake.table(path)
        latest = table.open()
        if latest is None:
            return
        maker, kept = table.maker(latest.version()), _tables_at(self._kept(), path)
        shown = {file.path for file in files_of(latest)}
        if any(shown == {unit.path for unit in record.units} for record in kept):
            return
        gone = [{unit.path for unit in record.units} for record in _tables_at(self.going, path)]
        edited = not maker or maker.startswith(UNDO)
        if maker in self.running or (edited and shown not in gone):
            return
        newest = kept[-1] if kept else None
        units = [] if newest is None else newest.units
        columns = latest.metadata().partition_columns
        table.replace_files(
            (latest if newest is None else table.require(newest.version)).schema(),
            [TableFile.of(unit) for unit in units],
            partition_by=columns[0] if columns else None,
            attempt=DROP,
        )

    def sweep(self, path: str) -> tuple[int, int]:
        """Delete a table's files that nothing names. Listed first: what comes later stays."""
        table = self.lake.table(path)
        present = table.directory.files_below(DATA_DIRECTORY)
        running = self.running | attempt_tokens(self.lake)
        needed = _tables_at(self._kept() + self.leaned, path)
        named = {unit.path for record in needed for unit in record.units}
        latest = table.open()
        if latest is not None:
            named |= {file.path for file in files_of(latest)}
        unneeded = [
            (name, size)
            for name, size in present
            if name not in named and (token := token_of(name)) and token not in running
        ]
        unneeded += _edit_leftovers(table, latest)
        for name, _ in unneeded:
            table.directory.delete(name)
        return len(unneeded), sum(size for _, size in unneeded)


def tables_of_job(lake: Catalog, job: str, records: list[SnapshotRecord]) -> list[str]:
    """A job's tables: of its snapshots, and those that a drop before this one left.

    Raises:
        DamagedLakeError: A table of a snapshot can't be opened.
        UnsafePathError: A table's path leads out of the lake.
    """
    named = {table.path for record in records for table in record.tables}
    paths = []
    for path in sorted(named.union(_directories(lake, job))):
        try:
            lake.table(path).open()
        except (DamagedLakeError, UnsafePathError) as error:  # noqa: PERF203 - each has its own
            if path in named:
                raise
            LOG.warning("left alone, as no snapshot has it: %s", error)
        else:
            paths.append(path)
    return paths


def _directories(lake: Catalog, job: str) -> Iterator[str]:
    """What may be a job's tables, in its areas."""
    keyed, timers, operator = areas_of(job)
    for area in (keyed, timers, operator):
        for name in lake.directory.names(area):
            above = f"{area}/{name}"
            try:
                names = [""] if area == timers else lake.directory.names(above)
            except UnsafePathError as error:
                LOG.warning("left alone: %s", error)
                continue
            paths = [f"{above}/{inner}" if inner else above for inner in names]
            yield from (path for path in paths if is_table_of(job, path))


def _tables_at(records: list[SnapshotRecord], path: str) -> list[TableRecord]:
    """What snapshots have of one table, in their order."""
    return [table for record in records for table in record.tables if table.path == path]


def _edit_leftovers(table: StateTable, latest: DeltaTable | None) -> list[tuple[str, int]]:
    """Files that an edit with Spark wrote and that are in the table no more.

    No snapshot needs them: a commit writes edited partitions again as files of our own.
    """
    if latest is None:
        return []
    names = latest.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False)
    leftovers = []
    for name in names:
        folder, _, file = name.rpartition("/")
        checksum = f"{folder}/.{file}.crc".lstrip("/")
        ours = [path for path in (name, checksum) if is_edited_file(path)]
        present = [path for path in ours if table.directory.is_file(path)]
        leftovers += [(path, table.directory.size(path)) for path in present]
    return leftovers


def sweep_carried(lake: Catalog) -> tuple[int, int]:
    """Delete carried files that no snapshot of any job needs."""
    present = lake.directory.files_below(CARRIED_DIRECTORY)
    if not present or attempt_tokens(lake):
        return 0, 0
    bad, named = lake.bad_rows(), set()
    for job in lake.jobs():
        records, unbelieved = lake.records(job)
        bad += unbelieved
        named |= {carried.blob for record in records for carried in record.carried}
    if bad:
        LOG.warning("carried files stay, as nobody knows which are needed: %s", bad[0].error)
        return 0, 0
    files = freed = 0
    for name, size in present:
        blob = name.removeprefix(f"{CARRIED_DIRECTORY}/")
        if is_digest(blob) and blob not in named:
            lake.directory.delete(name)
            files, freed = files + 1, freed + size
    return files, freed
