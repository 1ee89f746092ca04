"""Drop snapshots, and delete the files that only they needed.

One entry of the catalog's log removes the rows, so that the snapshots no longer exist, and names
the files that no other row has. Then these are deleted: by this process, or, if it is killed, by
the next writer. The last snapshot of a job is dropped in the same way.

An invalid row can be dropped by its name: its content is ignored. But while one stays it is not
known which files are needed, and nothing is dropped at all.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from statelake.pipelines.lake.catalog.attempts import (
    refuse_during_erasure,
    settle_attempts,
    take_back_dead,
    without_dead,
)
from statelake.pipelines.lake.catalog.catalog import BadRow, Catalog, CatalogChange, CatalogVersion
from statelake.pipelines.lake.catalog.catalog_rows import held_error, rows_without
from statelake.pipelines.lake.catalog.claims import AttemptClaim, DeletionClaim
from statelake.pipelines.lake.catalog.deletions import (
    Freed,
    file_sizes,
    finish_deletions,
    log_cuts,
    remove_left_directories,
    sweep_catalog,
    sweep_notes,
    sweep_parts,
    sweep_rows,
    sweep_runs,
    sweep_signs_of_life,
    sweep_tables,
    sweep_unmanaged,
    table_paths,
)
from statelake.pipelines.lake.catalog.snapshot_names import absent_snapshot
from statelake.pipelines.lake.catalog.unmanaged_state import UNMANAGED_DIRECTORY
from statelake.pipelines.lake.tables.log_entries import LOG_DIRECTORY
from statelake.pipelines.lake.tables.names import (
    COMMITS,
    ERASURE_RECORDS,
    SNAPSHOTS,
    is_table_of,
    job_directory,
)
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.pipelines.lake.tables.table_log import log_files_before
from statelake.pipelines.lake.tables.tables import files_of
from statelake.state_core.errors import (
    ConflictError,
    DamagedLakeError,
    NotFoundError,
    StateError,
    UnsafePathError,
)
from statelake.state_core.printable import Printed, bytes_text

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class DropPlan(Printed):
    """The plan of a drop.

    Attributes:
        going: The snapshots that would be dropped.
        kept: The others.
        frees: The approximate number of bytes that only the dropped snapshots need.
        held: The snapshots among `kept` that only a hold, or work that builds on them, keeps.
    """

    going: list[str]
    kept: list[str]
    frees: int
    held: list[str]

    def lines(self) -> Iterator[str]:
        """Yield the text form: lines and tables."""
        if self.going:
            yield (
                f"nothing was dropped: --yes drops {', '.join(self.going)}, and frees about"
                f" {bytes_text(self.frees)}; {_kept_text(self)}"
            )
        else:
            yield f"nothing to drop: {_kept_text(self)}"


@dataclass(frozen=True)
class DropResult(Printed):
    """The result of a drop.

    Attributes:
        dropped: The snapshots that were dropped.
        kept: The others.
        files: The number of deleted files.
        freed_bytes: Their bytes.
        held: The snapshots among `kept` that only a hold, or work that builds on them, keeps.
    """

    dropped: list[str]
    kept: list[str]
    files: int
    freed_bytes: int
    held: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield the text form: lines and tables."""
        yield (
            f"dropped {', '.join(self.dropped) or 'nothing'}: {bytes_text(self.freed_bytes)} freed"
            f" in {self.files} files; {_kept_text(self)}"
        )


def _kept_text(plan: DropPlan | DropResult) -> str:
    """Return how many snapshots stay, and which only because of a hold."""
    on_hold = f", {', '.join(plan.held)} by a hold" if plan.held else ""
    return f"{len(plan.kept)} snapshots kept{on_hold}"


def plan_drop(
    lake: Catalog, job: str, *, snapshot_ids: list[str] | None = None, keep: int | None = None
) -> DropPlan:
    """Plan what `drop_snapshots` would do, and change nothing.

    Args:
        lake: The lake.
        job: The job.
        snapshot_ids: The snapshots to drop.
        keep: How many of the newest to keep, if no ids are given.

    Raises:
        HeldError: There is a hold on one of those named.
        NotFoundError: There is no such snapshot.
        DamagedLakeError: A row of the job is invalid, and is not dropped by its name.
    """
    version = lake.version()
    dropped, on_hold = _chosen(version, job, snapshot_ids, keep)
    records, bad = version.records(job)
    _refuse_unbelieved(bad, snapshot_ids or ())
    going = [record for record in records if record.snapshot_id in dropped]
    staying = [record for record in records if record.snapshot_id not in dropped]
    for record in going:
        if record.holds:
            raise held_error(job, record.snapshot_id, [hold.reason for hold in record.holds])
    kept = [record.snapshot_id for record in staying]
    return DropPlan(dropped, kept, bytes_freed(going, staying), on_hold)


def bytes_freed(going: Iterable[SnapshotRecord], staying: Iterable[SnapshotRecord]) -> int:
    """Return the bytes of the files that only the dropped snapshots need."""
    needed = file_sizes(staying)
    return sum(size for file, size in file_sizes(going).items() if file not in needed)


def drop_snapshots(
    lake: Catalog, job: str, *, snapshot_ids: list[str] | None = None, keep: int | None = None
) -> DropResult:
    """Drop some snapshots of a job, or all but the newest.

    Args:
        lake: The lake.
        job: The job.
        snapshot_ids: The snapshots to drop.
        keep: How many of the newest to keep, if no ids are given, besides those with a hold and
            those on which an attempt builds at this moment.

    Raises:
        HeldError: There is a hold on one of those named; nothing is dropped.
        ConflictError: An attempt builds on one of those named, or an erasure of the job has not
            ended; nothing is dropped.
        NotFoundError: There is no such snapshot.
        DamagedLakeError: A row of the job is invalid, and is not dropped by its name.
        UnsafePathError: A table's path leads out of the lake.
        LakeFormatError: This statelake can't write into the lake.
    """
    version = lake.version()
    version.format.refuse_writing(lake.directory.uri)
    dropped, on_hold = _chosen(version, job, snapshot_ids, keep)
    records, _ = version.records(job)
    tables = tables_of_job(lake, job, records)
    settle_attempts(
        lake, partial(_builders, job, dropped), f"snapshots of job {job!r} can't be dropped"
    )
    token = uuid.uuid4().hex[:16]

    def decide(version: CatalogVersion) -> CatalogChange:
        nonlocal dropped, on_hold
        dropped, on_hold = _chosen(version, job, snapshot_ids, keep)
        return _drop(lake, version, job, dropped, snapshot_ids or (), token)

    lake.transact_to_free(decide)
    freed = finish_deletions(lake, {job})
    lake.reserve()
    freed += sweep_tables(lake, job, tables) + sweep_unmanaged(lake) + sweep_rows(lake, SNAPSHOTS)
    freed += sweep_runs(lake, job) + sweep_catalog(lake)
    logs = [f"{path}/{LOG_DIRECTORY}" for path in (*tables, SNAPSHOTS)]
    freed += sweep_parts(lake, [*logs, "_statelake"])
    sweep_signs_of_life(lake)
    remove_left_directories()
    left = [record.snapshot_id for record in records if record.snapshot_id not in set(dropped)]
    return DropResult(dropped, left, freed.files, freed.size, on_hold)


def _chosen(
    version: CatalogVersion, job: str, snapshot_ids: list[str] | None, keep: int | None
) -> tuple[list[str], list[str]]:
    """Return the snapshots to drop, and those that only a hold or an attempt keeps.

    Raises:
        NotFoundError: There is no such job or snapshot.
        DamagedLakeError: A row is invalid, and is not dropped by its name.
    """
    listed = version.listed(job)
    summaries, bad = listed
    known = [record.snapshot_id for record in summaries]
    rows = {*known, *(row.snapshot_id for row in bad)}
    if not rows:
        version.snapshot(job, "")  # raises the error that lists the jobs
    _refuse_unbelieved(bad, snapshot_ids or ())
    if snapshot_ids is not None:
        missing = sorted(set(snapshot_ids) - rows)
        if missing:
            error = absent_snapshot(missing[0], {job: listed})
            if len(missing) == 1:
                raise error
            raise NotFoundError(
                f"there are no snapshots {', '.join(missing)}",
                place=error.place, remedy=error.remedy,
            )  # fmt: skip
        return list(snapshot_ids), []
    older = summaries[: max(0, len(known) - (keep or 0))]
    claims = without_dead(version.claims)
    on_hold = [
        record.snapshot_id
        for record in older
        if record.holds or claims.builders_on(job, record.snapshot_id)
    ]
    return [record.snapshot_id for record in older if record.snapshot_id not in on_hold], on_hold


def _refuse_unbelieved(bad: Iterable[BadRow], named: Collection[str]) -> None:
    for row in bad:
        if row.snapshot_id not in named:
            raise row.error


def _builders(
    job: str, snapshot_ids: Iterable[str], version: CatalogVersion
) -> Mapping[str, AttemptClaim]:
    """Return the attempts that build on some snapshots."""
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
    """Return the change that removes snapshots from the catalog, and names their files.

    Raises:
        ConflictError: An attempt builds on one, or an erasure of the job has not ended.
        DamagedLakeError: A row of the job is invalid, and is not dropped by its name.
    """
    refuse_during_erasure(version.claims, job)
    claims = without_dead(version.claims)
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
    for path, name in sorted(file_sizes(going).keys() - file_sizes(staying).keys()):
        files.setdefault(path, []).append(name)
    gone = _contents(going) - _contents(staying)
    deletion = DeletionClaim(
        job,
        carried=files.pop(UNMANAGED_DIRECTORY, []),
        files=files,
        tables=sorted({table.path for record in going for table in record.tables}),
        shown=sorted(path for path, each in gone if _shows(lake, path, each)),
        logs=log_cuts(lake, version, staying, {each.path for r in going for each in r.tables}),
    )
    edits = {job: partial(rows_without, job, dropped)} if dropped else {}
    return CatalogChange(claims.with_deletion(token, deletion), edits=edits)


def _contents(records: Iterable[SnapshotRecord]) -> set[tuple[str, frozenset[str]]]:
    """Return the tables of some snapshots, each with the files that it has in one of them."""
    return {
        (table.path, frozenset(file.path for file in table.units))
        for record in records
        for table in record.tables
    }


def _shows(lake: Catalog, path: str, files: Collection[str]) -> bool:
    """Return whether the newest version of a table has exactly these files, whoever made it."""
    latest = lake.table(path).open()
    return latest is not None and files == {file.path for file in files_of(latest)}


def clean_lake(lake: Catalog, exports: Iterable[str] = (), *, dry_run: bool = True) -> Freed:
    """Delete files that killed commands left, inside and outside of the folders of jobs.

    Args:
        lake: The lake.
        exports: The local directories in which savepoints were written: unfinished ones are
            deleted.
        dry_run: Only count them. Otherwise a process of another machine that may be running is
            watched for a lease: its work is taken back if it gives no sign of life.

    Returns:
        The files that were found, or deleted.

    Raises:
        NotALakeError: There is neither a lake nor files that a killed first import left.
        DamagedLakeError: A row or a table of a job is invalid; all else is cleaned.
    """
    freed = Freed()
    if not lake.exists():  # a first import that was killed leaves a part of its first entry
        freed = sweep_parts(lake, [SNAPSHOTS], dry_run=dry_run)
        if not freed.files:
            lake.version()
        return freed + remove_left_directories(exports, dry_run=dry_run)
    failures: list[StateError] = []

    def done(work: Callable[[], Freed | None]) -> Freed:
        """Do a part of the cleaning; a damaged part does not stop the others."""
        try:
            return work() or Freed()
        except StateError as error:
            failures.append(error)
            return Freed()

    if not dry_run:
        done(partial(take_back_dead, lake))
    folders = {job_directory(job): job for job in lake.jobs()}
    for folder in lake.directory.names():
        if not folder.startswith(("_", ".")):
            # a job may begin at any moment, or have only unreadable rows: then all jobs are checked
            job = folders.get(folder)
            tables = list(table_paths(lake, folder))
            freed += done(partial(sweep_tables, lake, job, tables, dry_run=dry_run))
            freed += done(partial(_clean_logs, lake, job, tables, dry_run=dry_run))
            freed += done(partial(sweep_runs, lake, folder, dry_run=dry_run))
            freed += done(partial(sweep_rows, lake, f"{folder}/{COMMITS}", dry_run=dry_run))
    for path in (SNAPSHOTS, ERASURE_RECORDS):
        freed += done(partial(sweep_rows, lake, path, dry_run=dry_run))
    freed += done(partial(sweep_catalog, lake, dry_run=dry_run))
    freed += sweep_unmanaged(lake, dry_run=dry_run) + sweep_signs_of_life(lake, dry_run=dry_run)
    freed += sweep_notes(lake, dry_run=dry_run)
    freed += remove_left_directories(exports, dry_run=dry_run)
    freed += sweep_parts(lake, [""], dry_run=dry_run)
    if failures:
        raise failures[0]
    return freed


def _clean_logs(
    lake: Catalog, job: str | None, paths: Collection[str], *, dry_run: bool = False
) -> Freed:
    """Delete entries of the logs of a job's tables that no snapshot needs, unless it is closed.

    Raises:
        DamagedLakeError: A row of the job is invalid.
    """
    if job is None:
        return Freed()
    token = uuid.uuid4().hex[:16]

    def cuts(version: CatalogVersion) -> dict[str, int]:
        records = version.records(job).all_valid()
        return {} if version.claims.erasures_of(job) else log_cuts(lake, version, records, paths)

    def decide(version: CatalogVersion) -> CatalogChange:
        deletion = DeletionClaim(job, logs=cuts(version))
        return CatalogChange(version.claims.with_deletion(token, deletion))

    if not dry_run:
        lake.transact(decide)
        return finish_deletions(lake, {job})
    freed = Freed()
    for path, cut in cuts(lake.version()).items():
        directory = lake.table(path).directory
        old = log_files_before(directory.names(LOG_DIRECTORY), cut)
        freed += Freed(len(old), sum(directory.size(f"{LOG_DIRECTORY}/{name}") for name in old))
    return freed


def tables_of_job(lake: Catalog, job: str, records: list[SnapshotRecord]) -> list[str]:
    """Return a job's tables: those of its snapshots, and those that were left over.

    Raises:
        DamagedLakeError: A table of a snapshot can't be opened.
        UnsafePathError: A table's path leads out of the lake.
    """
    named = {table.path for record in records for table in record.tables}
    folder = job_directory(job)
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
