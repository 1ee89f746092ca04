"""Drop snapshots, and free the bytes that only they needed.

One entry of the catalog's log takes the rows out, which makes the snapshots not exist, and names
the files that no other row has. Then these are deleted: by this process, or, if it is killed, by
whoever writes next. So it is for the last snapshot of a job, too.

A row that can't be believed can be dropped by its name: what it says counts for nothing. But while
one stays nobody knows which files are needed, and nothing is dropped at all.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from statelake.pipelines.lake.catalog.attempts import (
    refuse_during_erasure,
    settle_attempts,
    take_back_dead,
    without_gone,
)
from statelake.pipelines.lake.catalog.catalog import BadRow, Catalog, CatalogChange, CatalogVersion
from statelake.pipelines.lake.catalog.catalog_rows import held_error, rows_without
from statelake.pipelines.lake.catalog.claims import AttemptClaim, DeletionClaim
from statelake.pipelines.lake.catalog.deletions import (
    Freed,
    finish_deletions,
    remove_left_directories,
    sweep_carried,
    sweep_notes,
    sweep_parts,
    sweep_rows,
    sweep_runs,
    sweep_signs,
    sweep_tables,
    table_paths,
)
from statelake.pipelines.lake.tables.names import (
    CHECKPOINTS,
    COMMITS,
    ERASURE_RECORDS,
    SNAPSHOTS,
    areas_of,
    is_table_of,
)
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.pipelines.lake.tables.table_log import LOG_DIRECTORY
from statelake.pipelines.lake.tables.tables import files_of
from statelake.state_core.errors import (
    ConflictError,
    DamagedLakeError,
    NotFoundError,
    StateError,
    UnsafePathError,
)

CARRIED = ""  # in the place of a table, for files that are carried
LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class DropPlan:
    """What a drop would do.

    Attributes:
        going: The snapshots that would be dropped.
        kept: The others.
        frees: About how many bytes only those that go need.
        held: The snapshots among `kept` that only a hold, or work that builds on them, keeps.
    """

    going: list[str]
    kept: list[str]
    frees: int
    held: list[str]


@dataclass(frozen=True)
class DropResult:
    """What a drop freed.

    Attributes:
        dropped: The snapshots that are gone.
        kept: The others.
        files: Files that were removed.
        freed_bytes: Their bytes.
        held: The snapshots among `kept` that only a hold, or work that builds on them, keeps.
    """

    dropped: list[str]
    kept: list[str]
    files: int
    freed_bytes: int
    held: list[str] = field(default_factory=list)


def plan_drop(
    lake: Catalog, job: str, *, snapshot_ids: list[str] | None = None, keep: int | None = None
) -> DropPlan:
    """Say what `drop_snapshots` would do, with nothing changed.

    Args:
        lake: The lake.
        job: The job.
        snapshot_ids: The snapshots to drop.
        keep: How many of the newest to keep, where no ids are given.

    Raises:
        HeldError: There is a hold on one of those named.
        NotFoundError: There is no such snapshot.
        DamagedLakeError: A row of the job can't be believed, and is not dropped by its name.
    """
    version = lake.version()
    dropped, held = _chosen(version, job, snapshot_ids, keep)
    records, bad = version.records(job)
    _refuse_unbelieved(bad, snapshot_ids or ())
    going = [record for record in records if record.snapshot_id in dropped]
    staying = [record for record in records if record.snapshot_id not in dropped]
    for record in going:
        if record.holds:
            raise held_error(job, record.snapshot_id, [hold.reason for hold in record.holds])
    kept = [record.snapshot_id for record in staying]
    return DropPlan(dropped, kept, bytes_freed(going, staying), held)


def bytes_freed(going: Iterable[SnapshotRecord], staying: Iterable[SnapshotRecord]) -> int:
    """Bytes of the files that only the snapshots which go need."""
    needed = _sizes(staying)
    return sum(size for file, size in _sizes(going).items() if file not in needed)


def _sizes(records: Iterable[SnapshotRecord]) -> dict[tuple[str, str], int]:
    """The bytes of each file that some snapshots need, by its table (or `CARRIED`) and its path."""
    sizes = {
        (table.path, unit.path): unit.size
        for record in records
        for table in record.tables
        for unit in table.units
    }
    return sizes | {
        (CARRIED, carried.blob): carried.size for record in records for carried in record.carried
    }


def drop_snapshots(
    lake: Catalog, job: str, *, snapshot_ids: list[str] | None = None, keep: int | None = None
) -> DropResult:
    """Drop some snapshots of a job, or all but the newest.

    Args:
        lake: The lake.
        job: The job.
        snapshot_ids: The snapshots to drop.
        keep: How many of the newest to keep, where no ids are given, beside those with a hold and
            those that somebody builds on at this moment.

    Raises:
        HeldError: There is a hold on one of those named; nothing is dropped.
        ConflictError: Somebody builds on one of those named, or the job is being erased from;
            nothing is dropped.
        NotFoundError: There is no such snapshot.
        DamagedLakeError: A row of the job can't be believed, and is not dropped by its name.
        UnsafePathError: A table of the job leads elsewhere.
    """
    version = lake.version()
    dropped, held = _chosen(version, job, snapshot_ids, keep)
    records, _ = version.records(job)
    tables = tables_of_job(lake, job, records)
    settle_attempts(
        lake, partial(_builders, job, dropped), f"snapshots of job {job!r} can't be dropped"
    )
    token = uuid.uuid4().hex[:16]

    def decide(version: CatalogVersion) -> CatalogChange:
        nonlocal dropped, held
        dropped, held = _chosen(version, job, snapshot_ids, keep)
        return _drop(lake, version, job, dropped, snapshot_ids or (), token)

    lake.transact_to_free(decide)
    freed = finish_deletions(lake, {job})
    lake.reserve()
    freed += sweep_tables(lake, job, tables) + sweep_carried(lake) + sweep_rows(lake, SNAPSHOTS)
    freed += sweep_runs(lake, job)
    logs = [f"{path}/{LOG_DIRECTORY}" for path in (*tables, SNAPSHOTS)]
    freed += sweep_parts(lake, [*logs, "_statelake"])
    sweep_signs(lake)
    remove_left_directories()
    left = [record.snapshot_id for record in records if record.snapshot_id not in set(dropped)]
    return DropResult(dropped, left, freed.files, freed.size, held)


def _chosen(
    version: CatalogVersion, job: str, snapshot_ids: list[str] | None, keep: int | None
) -> tuple[list[str], list[str]]:
    """The snapshots that are dropped, and those that would be but for a hold or a builder.

    Raises:
        NotFoundError: There is no such job or snapshot.
        DamagedLakeError: A row can't be believed, and is not dropped by its name.
    """
    summaries, bad = version.listed(job)
    known = [record.snapshot_id for record in summaries]
    rows = {*known, *(row.snapshot_id for row in bad)}
    if not rows:
        jobs = ", ".join(version.jobs()) or "none"
        raise NotFoundError(f"no job {job!r} in the lake", remedy=f"it has: {jobs}")
    _refuse_unbelieved(bad, snapshot_ids or ())
    if snapshot_ids is not None:
        missing = sorted(set(snapshot_ids) - rows)
        if missing:
            raise NotFoundError(
                f"job {job!r} has no snapshot {missing[0]!r}",
                remedy=f"it has: {', '.join(known)}",
            )
        return list(snapshot_ids), []
    older = summaries[: max(0, len(known) - (keep or 0))]
    claims = without_gone(version.claims)
    held = [
        record.snapshot_id
        for record in older
        if record.holds or claims.builders_on(job, record.snapshot_id)
    ]
    return [record.snapshot_id for record in older if record.snapshot_id not in held], held


def _refuse_unbelieved(bad: Iterable[BadRow], named: Collection[str]) -> None:
    for row in bad:
        if row.snapshot_id not in named:
            raise row.error


def _builders(
    job: str, snapshot_ids: Iterable[str], version: CatalogVersion
) -> Mapping[str, AttemptClaim]:
    """The attempts that build on some snapshots."""
    claims = version.claims
    return {
        token: claim
        for snapshot_id in snapshot_ids
        for token, claim in claims.builders_on(job, snapshot_id).items()
    }


def _drop(
    lake: Catalog,
    version: CatalogVersion,
    job: str,
    dropped: list[str],
    named: Collection[str],
    token: str,
) -> CatalogChange:
    """What takes snapshots out of the catalog, and names their files.

    Raises:
        ConflictError: Somebody builds on one, or the job is being erased from.
        DamagedLakeError: A row of the job can't be believed, and is not dropped by its name.
    """
    refuse_during_erasure(version.claims, job)
    claims = without_gone(version.claims)
    for snapshot_id in dropped:
        for claim in claims.builders_on(job, snapshot_id).values():
            raise ConflictError(
                f"snapshot {snapshot_id!r} of job {job!r} is what {claim.snapshot_id!r} is made of"
                " at this moment",
                remedy="try again when that is done",
            )
    records, bad = version.records()
    _refuse_unbelieved((row for row in bad if row.job == job), named)
    going = [r for r in records if r.job == job and r.snapshot_id in dropped]
    staying = [r for r in records if not (r.job == job and r.snapshot_id in dropped)]
    files: dict[str, list[str]] = {}
    for path, name in sorted(_sizes(going).keys() - _sizes(staying).keys()):
        files.setdefault(path, []).append(name)
    gone = _contents(going) - _contents(staying)
    deletion = DeletionClaim(
        job,
        carried=files.pop(CARRIED, []),
        files=files,
        tables=sorted({table.path for record in going for table in record.tables}),
        shown=sorted(path for path, held in gone if _shows(lake, path, held)),
    )
    edits = {job: partial(rows_without, job, dropped)} if dropped else {}
    return CatalogChange(claims.with_deletion(token, deletion), edits=edits)


def _contents(records: Iterable[SnapshotRecord]) -> set[tuple[str, frozenset[str]]]:
    """The tables of some snapshots, each with the files that it has in one of them."""
    return {
        (table.path, frozenset(unit.path for unit in table.units))
        for record in records
        for table in record.tables
    }


def _shows(lake: Catalog, path: str, files: Collection[str]) -> bool:
    """Whether the newest version of a table has just these files, whoever made it."""
    latest = lake.table(path).open()
    return latest is not None and files == {file.path for file in files_of(latest)}


def clean_lake(lake: Catalog, exports: Iterable[str] = (), *, dry_run: bool = True) -> Freed:
    """Delete what nobody names: what killed commands left, in all jobs, and in none.

    Args:
        lake: The lake.
        exports: The local directories in which savepoints were written: unfinished ones go.
        dry_run: Only look. Else a process of another machine that may be at work is watched for a
            lease: what it does is taken back if it gives no sign of life.

    Returns:
        What was found, or deleted.

    Raises:
        NotALakeError: There is neither a lake nor what a killed first import has left.
        DamagedLakeError: A row or a table of a job can't be believed; all else is cleaned.
    """
    freed = Freed()
    if not lake.exists():  # a first import that was killed leaves a part of its first entry
        freed = sweep_parts(lake, [SNAPSHOTS], dry_run=dry_run)
        if not freed.files:
            lake.version()
        return freed + remove_left_directories(exports, dry_run=dry_run)
    failures: list[StateError] = []

    def done(work: Callable[[], Freed | None]) -> Freed:
        """What is damaged keeps nothing else from being cleaned."""
        try:
            return work() or Freed()
        except StateError as error:
            failures.append(error)
            return Freed()

    if not dry_run:
        done(partial(take_back_dead, lake))
    folders = {areas_of(job)[0].partition("/")[0]: job for job in lake.jobs()}
    for folder in lake.directory.names():
        if not folder.startswith(("_", ".")):
            # a job may begin at any moment, or have no row that can be read: then all are asked
            job = folders.get(folder)
            tables = list(table_paths(lake, folder))
            freed += done(partial(sweep_tables, lake, job, tables, dry_run=dry_run))
            freed += done(partial(sweep_runs, lake, folder, dry_run=dry_run))
            for area in (CHECKPOINTS, COMMITS):
                freed += done(partial(sweep_rows, lake, f"{folder}/{area}", dry_run=dry_run))
    for path in (SNAPSHOTS, ERASURE_RECORDS):
        freed += done(partial(sweep_rows, lake, path, dry_run=dry_run))
    freed += sweep_carried(lake, dry_run=dry_run) + sweep_signs(lake, dry_run=dry_run)
    freed += sweep_notes(lake, dry_run=dry_run)
    freed += remove_left_directories(exports, dry_run=dry_run)
    freed += sweep_parts(lake, [""], dry_run=dry_run)
    if failures:
        raise failures[0]
    return freed


def tables_of_job(lake: Catalog, job: str, records: list[SnapshotRecord]) -> list[str]:
    """A job's tables: of its snapshots, and those that others left.

    Raises:
        DamagedLakeError: A table of a snapshot can't be opened.
        UnsafePathError: A table's path leads out of the lake.
    """
    named = {table.path for record in records for table in record.tables}
    folder = areas_of(job)[0].partition("/")[0]
    paths = []
    for path in sorted(named.union(p for p in table_paths(lake, folder) if is_table_of(job, p))):
        try:
            lake.table(path).open()
        except (DamagedLakeError, UnsafePathError) as error:  # noqa: PERF203 - each has its own
            if path in named:
                raise
            LOG.warning("left alone, as no snapshot has it: %s", error)
        else:
            paths.append(path)
    return paths
