"""Let snapshots go, and free the bytes that only they needed.

First their rows leave `snapshots`, which makes them not exist; then whatever no kept snapshot, no
table's current version and no running attempt names is deleted. What is left behind by a crash in
between is taken by the next drop.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.lake.attempts import attempt_tokens, recover_attempts
from pipelines.lake.carrying import CARRIED_DIRECTORY
from pipelines.lake.catalog import Lake
from pipelines.lake.records import SnapshotRecord
from pipelines.lake.tables import DATA_DIRECTORY, StateTable, TableFile
from state_core.errors import NotFoundError

__all__ = ["DropResult", "drop_snapshots"]


@dataclass(frozen=True)
class DropResult:
    """What a drop freed."""

    dropped: list[str]
    kept: list[str]
    files: int
    freed_bytes: int


def drop_snapshots(
    lake: Lake, job: str, *, snapshot_ids: list[str] | None = None, keep: int | None = None
) -> DropResult:
    """Drop some snapshots of a job, or all but the newest.

    Args:
        lake: The lake.
        job: The job.
        snapshot_ids: Which to drop.
        keep: How many of the newest to keep, where no ids are given.

    Raises:
        NotFoundError: There is no such snapshot.
    """
    known = [one.snapshot_id for one in lake.summaries(job)]
    if not known:
        raise NotFoundError(f"no job {job!r} in the lake", remedy=f"it has: {lake.jobs()}")
    dropped = (
        snapshot_ids if snapshot_ids is not None else known[: max(0, len(known) - (keep or 0))]
    )
    missing = sorted(set(dropped) - set(known))
    if missing:
        raise NotFoundError(
            f"job {job!r} has no snapshot {missing[0]!r}", remedy=f"it has: {', '.join(known)}"
        )
    recover_attempts(lake, job)
    going = [lake.snapshot(job, one) for one in dropped]
    if dropped:
        lake.remove(job, dropped)
    kept = [lake.snapshot(job, one) for one in known if one not in set(dropped)]
    files = freed = 0
    for path in sorted(
        {table.path for one in going + kept for op in one.operators for table in op.tables}
    ):
        _show_newest(lake.table(path), path, going, kept)
        count, size = _sweep(lake, path, kept)
        files, freed = files + count, freed + size
    count, size = _sweep_carried(lake)
    return DropResult(list(dropped), [one.snapshot_id for one in kept], files + count, freed + size)


def _show_newest(
    table: StateTable, path: str, going: list[SnapshotRecord], kept: list[SnapshotRecord]
) -> None:
    """If the table shows a dropped snapshot, let it show the newest that is kept."""
    latest = table.open()
    if latest is None:
        return
    versions = {
        t.version for one in going for op in one.operators for t in op.tables if t.path == path
    }
    if latest.version() not in versions:
        return
    units = [
        unit
        for one in kept[-1:]
        for op in one.operators
        for t in op.tables
        if t.path == path
        for unit in t.units
    ]
    columns = latest.metadata().partition_columns
    table.replace_files(
        latest.schema(),
        [TableFile(one.path, one.size, one.rows, one.partition) for one in units],
        partition_by=columns[0] if columns else None,
        attempt="drop",
    )


def _sweep(lake: Lake, path: str, kept: list[SnapshotRecord]) -> tuple[int, int]:
    """Delete a table's files that nothing names. Listed first: what comes later is not ours."""
    table = lake.table(path)
    present = table.directory.files_below(DATA_DIRECTORY)
    running = attempt_tokens(lake)
    newer = lake.summaries(kept[0].job) if kept else []
    records = kept + [
        lake.snapshot(one.job, one.snapshot_id)
        for one in newer
        if one.snapshot_id not in {record.snapshot_id for record in kept}
    ]
    named = {
        unit.path
        for record in records
        for op in record.operators
        for t in op.tables
        if t.path == path
        for unit in t.units
    }
    latest = table.open()
    if latest is not None:
        named |= {file.path for file in table.files()}
    unneeded = [
        (name, size)
        for name, size in present
        if name not in named and name.split("/")[1] not in running
    ]
    unneeded += _edit_leftovers(table)
    for name, _ in unneeded:
        table.directory.delete(name)
    return len(unneeded), sum(size for _, size in unneeded)


def _edit_leftovers(table: StateTable) -> list[tuple[str, int]]:
    """Files that an edit with Spark wrote and that are in the table no more.

    No snapshot needs them: a commit writes edited partitions again as files of our own.
    """
    latest = table.open()
    if latest is None:
        return []
    names = latest.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False)
    found = []
    for name in names:
        folder, _, file = name.rpartition("/")
        checksum = f"{folder}/.{file}.crc".lstrip("/")
        present = [one for one in (name, checksum) if table.directory.is_file(one)]
        found += [(one, table.directory.size(one)) for one in present]
    return found


def _sweep_carried(lake: Lake) -> tuple[int, int]:
    """Delete carried files that no snapshot of any job needs."""
    present = lake.directory.files_below(CARRIED_DIRECTORY)
    if not present or attempt_tokens(lake):
        return 0, 0
    named = {
        carried.blob
        for one in lake.summaries()
        for carried in lake.snapshot(one.job, one.snapshot_id).carried
    }
    files = freed = 0
    for name, size in present:
        if name.rpartition("/")[2] not in named:
            lake.directory.delete(name)
            files, freed = files + 1, freed + size
    return files, freed
