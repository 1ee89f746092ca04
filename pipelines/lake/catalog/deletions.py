"""Delete files that are no longer needed: those listed in the log, and those that a sweep finds.

A deletion lists its files in the catalog's log, so that the next writer finishes a deletion whose
process was killed. A sweep finds files that no log lists: files that a task wrote after its attempt
was taken back, and rows of a commit that failed. It lists the files first, and reads the catalog
second: every file below a token was written after that token's attempt had begun. So a file that no
snapshot names is not needed, now or later, if its attempt has ended.

Entries of a log before the oldest version that is needed are deleted, the oldest first.

Only files in tables of the lake are deleted, one by one, if their names are those that statelake or
a Delta engine gives, and no snapshot, open attempt or newest version of a table has them.
"""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError

from statelake.pipelines.lake.catalog.catalog import Catalog, CatalogChange, CatalogVersion
from statelake.pipelines.lake.catalog.claims import DeletionClaim
from statelake.pipelines.lake.catalog.processes import Process, read_note
from statelake.pipelines.lake.catalog.unmanaged_state import UNMANAGED_DIRECTORY
from statelake.pipelines.lake.tables.delta_commit import DeltaCommit
from statelake.pipelines.lake.tables.log_entries import LOG_DIRECTORY, read_entry
from statelake.pipelines.lake.tables.names import (
    AREAS,
    RUNS,
    SNAPSHOTS,
    is_edited_file,
    is_table_path,
    is_token,
    is_unmanaged_name,
    token_in,
    token_of,
    version_in,
)
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.pipelines.lake.tables.table_log import (
    checkpoint_name,
    file_actions,
    log_cut,
    log_files_before,
)
from statelake.pipelines.lake.tables.tables import DATA_DIRECTORY, StateTable, TableFile, files_of
from statelake.state_core.errors import (
    DamagedLakeError,
    MissingFileError,
    NotFoundError,
    StateError,
    UnsafePathError,
)
from statelake.state_core.files.confinement import is_part
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.files.held_directories import (
    left_exports,
    remove_left,
    stale_temporary_directories,
)

OLD_NOTES = ("_statelake/attempts", "_statelake/erasures")
"""Directories of older versions of statelake, for claims that are now in the catalog's log."""

# makers of versions that take another version back, or replace that of a dropped snapshot
UNDO_MAKER, DROP_MAKER = "undo-", "drop"
SIGNS_OF_LIFE_DIRECTORY = "_statelake/alive"
LOG = logging.getLogger(__name__)
_RUN = re.compile(r"\d{8,12}", re.ASCII)
_ATTEMPT = re.compile(r"attempt-[0-9a-f]{12}/")

Result = TypeVar("Result")


@dataclass(frozen=True)
class Freed:
    """Files that were deleted, or would be.

    Attributes:
        files: Their number.
        size: Their bytes.
    """

    files: int = 0
    size: int = 0

    def __add__(self, other: Freed) -> Freed:
        return Freed(self.files + other.files, self.size + other.size)


class _CachedRecords:
    """The records of a job, read again only when the catalog has another version.

    Args:
        lake: The lake.
        job: The job; all jobs if None.
    """

    def __init__(self, lake: Catalog, job: str | None) -> None:
        self._lake = lake
        self._job = job
        self._number = -1
        self._records: list[SnapshotRecord] = []

    def latest(self) -> tuple[CatalogVersion, list[SnapshotRecord]]:
        """Return the newest version of the catalog, and its records.

        Raises:
            DamagedLakeError: A row is invalid, so that the files that it needs are not known.
        """
        version = self._lake.version()
        if version.number != self._number:
            self._number, self._records = version.number, version.records(self._job).all_valid()
        return version, self._records

    def run(self, work: Callable[[CatalogVersion, list[SnapshotRecord]], Result]) -> Result:
        """Do work that depends on the newest records, and repeat it if others have changed them.

        The work may fail because an erasure deletes files whose records it has exchanged.

        Raises:
            StateError: The work failed, and the catalog has not changed.
        """
        while True:
            version, records = self.latest()
            try:
                return work(version, records)
            except StateError:
                if self._lake.version().number == version.number:
                    raise


def finish_deletions(lake: Catalog, jobs: Collection[str] | None = None) -> Freed:
    """Carry out the deletions in the catalog's log, and remove them from it.

    A deletion that fails does not stop the others, and is left to the next writer.

    Args:
        lake: The lake.
        jobs: The jobs whose deletions must succeed, by default all; failures of other jobs are only
            logged.

    Raises:
        DamagedLakeError: A row or a table of one of these jobs is invalid, so that the files that
            it needs are not known.
        LakeFormatError: This statelake can't write into the lake.
    """
    freed, failed = Freed(), None
    version = lake.version()
    version.format.refuse_writing(lake.directory.uri)
    for token, claim in version.claims.deletions.items():
        try:
            freed += execute_deletion(lake, claim)
            lake.transact(partial(_without, token))
        except StateError as error:  # noqa: PERF203 - others go on
            if jobs is None or claim.job in jobs:
                failed = failed or error
            else:
                LOG.warning("deletions are left to the next writer: %s", error)
    if failed is not None:
        raise failed
    return freed


def _without(token: str, version: CatalogVersion) -> CatalogChange:
    return CatalogChange(version.claims.without_deletion(token))


def execute_deletion(lake: Catalog, claim: DeletionClaim) -> Freed:
    """Delete those files of a deletion that are not needed now; it may be repeated.

    Raises:
        DamagedLakeError: A row of the job is invalid.
    """
    freed, cached = Freed(), _CachedRecords(lake, claim.job)
    for path in sorted({*claim.files, *claim.tables, *claim.shown}):
        table = lake.table(path)
        sizes = {
            name: size
            for name in claim.files.get(path, ())
            if (size := _size_of(table, name)) is not None
        }
        if path in claim.tables and claim.tokens:
            # list the complete table: the directory of a token may be a link, and links are not
            # listed
            present = table.directory.files_below(DATA_DIRECTORY)
            sizes |= {name: size for name, size in present if token_of(name) in claim.tokens}
            if not sizes and table.open() is None:
                continue  # the attempt did not get as far as this table
            for token in claim.tokens:
                cached.run(partial(_take_back, table, token))
        freed += _delete_unneeded(cached, table, sizes, forced=path in claim.shown)
    for path, cut in claim.logs.items():
        freed += cached.run(partial(_clean_log, lake.table(path), cut))
    if claim.carried or claim.tokens:
        freed += sweep_unmanaged(lake, claim.carried, claim.tokens)
    for token in claim.tokens:
        lake.directory.delete(f"{SIGNS_OF_LIFE_DIRECTORY}/{token}")
    return freed


def log_cuts(
    lake: Catalog, version: CatalogVersion, records: Iterable[SnapshotRecord], paths: Iterable[str]
) -> dict[str, int]:
    """Return the tables whose logs are longer than needed, with the oldest version that is needed.

    A log is needed from the oldest version that a snapshot names. While an attempt writes to the
    table, all of it is needed, as the attempt may name the version that it began with.

    Args:
        lake: The lake.
        version: A version of the catalog.
        records: All snapshots that stay.
        paths: The tables.
    """
    oldest: dict[str, int] = {}
    for record in records:
        for used in record.tables:
            oldest[used.path] = min(used.version, oldest.get(used.path, used.version))
    busy = {path for claim in version.claims.attempts.values() for path in claim.tables}
    cuts = {}
    for path in sorted({*paths} - busy):
        names = lake.table(path).directory.names(LOG_DIRECTORY)
        cut = log_cut(names, oldest.get(path))
        if cut is not None and log_files_before(names, cut):
            cuts[path] = cut
    return cuts


def _clean_log(
    table: StateTable, cut: int, _: CatalogVersion, records: list[SnapshotRecord]
) -> Freed:
    """Delete a log's files before a version, which has a checkpoint, the oldest first."""
    named = [used.version for each in records for used in each.tables if used.path == table.path]
    names = table.directory.names(LOG_DIRECTORY)
    old = log_files_before(names, cut)
    if not old or min(named, default=cut) < cut or checkpoint_name(cut) not in names:
        return Freed()
    table.require(cut)  # the checkpoint is complete
    paths = [f"{LOG_DIRECTORY}/{name}" for name in old]
    return _delete(table.directory, {path: _size_of(table, path) or 0 for path in paths})


def sweep_catalog(lake: Catalog, *, dry_run: bool = False) -> Freed:
    """Delete entries of the catalog's log that nobody reads, and the files that only these name.

    These are the entries before the last but one checkpoint: nothing reads older versions.

    Args:
        lake: The lake.
        dry_run: Only count them.
    """
    table, log = lake.table(SNAPSHOTS), f"{LOG_DIRECTORY}/"
    present = dict(table.directory.files_below())
    names = [path.removeprefix(log) for path in present if path.startswith(log)]
    cut = log_cut(names)
    if cut is None:
        return Freed()
    try:
        # the newest version, too: another engine may have restored files of an older one
        named = {
            unquote(path)
            for version in (cut, None)
            for path in file_actions(table.require(version)).column("path").to_pylist()
        }
    except (DamagedLakeError, NotFoundError):
        if table.directory.is_file(log + checkpoint_name(cut)):
            raise
        return Freed()  # another process has cleaned the log meanwhile
    old = [log + name for name in log_files_before(names, cut)]
    old += [
        path
        for path in present
        if is_edited_file(path) and 0 < (version_in(path) or 0) <= cut and path not in named
    ]
    return _delete(table.directory, {path: present[path] for path in old}, dry_run=dry_run)


def _size_of(table: StateTable, name: str) -> int | None:
    """Return the size of a file; None if it does not exist, or is a link, which is not followed.

    Raises:
        UnsafePathError: A directory is a link.
    """
    try:
        return table.directory.size(name) if table.directory.is_file(name) else None
    except UnsafePathError as error:
        table.directory.files_below(posixpath.dirname(name))  # raises if the directory is the link
        LOG.warning("left alone: %s", error)
        return None


def _delete_unneeded(
    cached: _CachedRecords,
    table: StateTable,
    present: Mapping[str, int],
    *,
    forced: bool = False,
    dry_run: bool = False,
) -> Freed:
    """Make a table show an existing snapshot, and delete those files that are not needed."""
    latest = (
        table.open() if dry_run else cached.run(partial(_restore_newest_content, table, forced))
    )
    version, records = cached.latest()  # after the listing: later files stay
    needed, running = named_files(records, table.path), version.claims.running()
    # a version of ours would show a snapshot first
    if latest is not None and not (dry_run and table.maker(latest.version())):
        needed |= {file.path for file in files_of(latest)}
    unneeded = {
        name: size
        for name, size in present.items()
        if name not in needed and (token := token_of(name)) and token not in running
    }
    return _delete(table.directory, unneeded, dry_run=dry_run)


def _delete(directory: Directory, files: Mapping[str, int], *, dry_run: bool = False) -> Freed:
    """Delete files, or only count them; by their paths below a directory, with their bytes."""
    for path in () if dry_run else files:
        directory.delete(path)
    return Freed(len(files), sum(files.values()))


def named_files(records: Iterable[SnapshotRecord], path: str) -> set[str]:
    """Return the files of a table that the records name."""
    return {
        file.path
        for record in records
        for table in record.tables
        if table.path == path
        for file in table.units
    }


def file_sizes(records: Iterable[SnapshotRecord]) -> dict[tuple[str, str], int]:
    """Return the bytes of each file that the records name, by its table and its path there.

    Carried files are in the directory of all of them, in place of a table.
    """
    listed = list(records)
    sizes = {
        (table.path, file.path): file.size
        for record in listed
        for table in record.tables
        for file in table.units
    }
    return sizes | {
        (UNMANAGED_DIRECTORY, carried.blob): carried.size
        for record in listed
        for carried in record.carried
    }


def _take_back(
    table: StateTable, token: str, _: CatalogVersion, records: list[SnapshotRecord]
) -> None:
    """Restore a table's former content if its newest version is an attempt's.

    The former content is that of the newest version that a snapshot has or another engine made:
    versions of other attempts may be taken back, too.
    """
    latest = table.open()
    registered = {
        used.version for record in records for used in record.tables if used.path == table.path
    }
    if latest is None or table.maker(latest.version()) != token or latest.version() in registered:
        return
    before = (version for version in table.versions_after(-1) if version < latest.version())
    shown = next(
        (v for v in before if v in registered or table.maker(v) in {"", DROP_MAKER}), None
    )  # fmt: skip
    table.replace_files(
        (latest if shown is None else table.require(shown)).schema(),
        [] if shown is None else files_of(table.require(shown)),
        partition_by=_partition_of(latest),
        attempt=f"{UNDO_MAKER}{token}",
    )


def _restore_newest_content(
    table: StateTable, forced: bool, version: CatalogVersion, records: list[SnapshotRecord]
) -> DeltaTable | None:
    """Replace the content of a table of a dropped snapshot by the newest one's; return the table.

    Edits that are not committed stay, unless `forced`: then the content is known to be that of the
    dropped snapshot.
    """
    latest = table.open()
    if latest is None:
        return None
    kept = [used for record in records for used in record.tables if used.path == table.path]
    shown = {file.path for file in files_of(latest)}
    if any(shown == {data_file.path for data_file in used.units} for used in kept):
        return latest
    maker = table.maker(latest.version())
    is_edited = not maker or maker.startswith(UNDO_MAKER)
    if maker in version.claims.running() or (is_edited and not forced) or (not kept and not shown):
        return latest
    newest = kept[-1] if kept else None
    table.replace_files(
        (latest if newest is None else table.require(newest.version)).schema(),
        [] if newest is None else [TableFile.of(data_file) for data_file in newest.units],
        partition_by=_partition_of(latest),
        attempt=DROP_MAKER,
    )
    return table.open()


def sweep_tables(
    lake: Catalog, job: str | None, paths: Iterable[str], *, dry_run: bool = False
) -> Freed:
    """Delete files of a job's tables that no log names, written by tasks or by other engines.

    Args:
        lake: The lake.
        job: The job; None if it is not known, since a folder's name does not prove the job.
        paths: Its tables.
        dry_run: Only count them.

    Raises:
        DamagedLakeError: A row of the job, or of any job if it is not known, is invalid.
    """
    freed, cached = Freed(), _CachedRecords(lake, job)
    for path in paths:
        table = lake.table(path)
        present = dict(table.directory.files_below(DATA_DIRECTORY))
        leftovers = dict(_edit_leftovers(table, table.open()))
        freed += _delete_unneeded(cached, table, present, dry_run=dry_run)
        freed += _delete(table.directory, leftovers, dry_run=dry_run)
    return freed


def _edit_leftovers(table: StateTable, latest: DeltaTable | None) -> list[tuple[str, int]]:
    """Return the files that an edit with Spark wrote and that are no longer in the table.

    No snapshot needs them: a commit writes edited partitions again as files of its own.
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


def sweep_unmanaged(
    lake: Catalog,
    names: Collection[str] | None = None,
    tokens: Collection[str] = (),
    *,
    dry_run: bool = False,
) -> Freed:
    """Delete carried files that no snapshot of any job needs.

    Args:
        lake: The lake.
        names: Delete only these files, and those of the attempts of `tokens`; by default all.
        tokens: The tokens of attempts that were taken back.
        dry_run: Only count them.
    """
    present = [
        (path.removeprefix(f"{UNMANAGED_DIRECTORY}/"), size)
        for path, size in lake.directory.files_below(UNMANAGED_DIRECTORY)
    ]
    if names is not None:
        present = [
            (name, size) for name, size in present if name in names or token_in(name) in tokens
        ]
    if not present:
        return Freed()
    version = lake.version()  # after the listing: later files stay
    records, bad = version.records()
    if bad:
        LOG.warning("carried files are not deleted, since a record is unreadable: %s", bad[0].error)
        return Freed()
    needed = {carried.blob for record in records for carried in record.carried}
    # an open attempt may still name a file that no snapshot has
    unneeded = {
        f"{UNMANAGED_DIRECTORY}/{name}": size
        for name, size in present
        if is_unmanaged_name(name)
        and name not in needed
        and token_in(name) not in version.claims.attempts
    }
    return _delete(lake.directory, unneeded, dry_run=dry_run)


def sweep_rows(lake: Catalog, path: str, *, dry_run: bool = False) -> Freed:
    """Delete files of failed commits of a table of rows, which no version names.

    The name of such a file has the version that may name it. If that is the next version, an entry
    that changes nothing is written first, so that a writer of that version has to compute its
    change again.

    Args:
        lake: The lake.
        path: The table.
        dry_run: Only count them.
    """
    table = lake.table(path)
    present = [
        (name, size)
        for name, size in table.directory.files_below()
        if is_edited_file(name) and version_in(name)
    ]
    freed, log = Freed(), table.open()
    if log is None:
        return freed
    for name, size in present:
        version = version_in(name) or 0
        if version > log.version() and not dry_run:
            with suppress(CommitFailedError):  # then another writer's entry has that version
                properties = CommitProperties()
                columns, partition = pa.schema(log.schema().to_arrow()), _partition_of(log)
                DeltaCommit(table.directory, columns, partition, properties).write(log)
            log = table.require()
        is_next = dry_run and version == log.version() + 1
        if is_next or (version <= log.version() and not is_named(table, version, name)):
            if not dry_run:
                table.directory.delete(name)
            freed += Freed(1, size)
    return freed


def _partition_of(log: DeltaTable) -> str | None:
    columns = log.metadata().partition_columns
    return columns[0] if columns else None


def is_named(table: StateTable, version: int, path: str) -> bool:
    """Return whether a version of a table names a file; true if its entry can't be read."""
    try:
        actions = read_entry(table.directory, version)
    except (MissingFileError, DamagedLakeError):
        return True
    return path in {unquote(action["add"]["path"]) for action in actions if "add" in action}


def sweep_parts(lake: Catalog, folders: Iterable[str], *, dry_run: bool = False) -> Freed:
    """Delete unfinished files on a local disk, which dead writers left before renaming them.

    Args:
        lake: The lake.
        folders: The folders to search, with all folders below; the complete lake if one is empty.
        dry_run: Only count them.
    """
    running = lake.version().claims.running() if lake.exists() else set()
    freed = Freed()
    for folder in folders if lake.directory.local else ():
        for path, size in lake.directory.files_below(folder):
            is_idle = is_part(posixpath.basename(path)) and running.isdisjoint(path.split("/"))
            if is_idle and (dry_run or lake.directory.remove_left_part(path)):
                freed += Freed(1, size)
    return freed


def remove_left_directories(exports: Iterable[str] = (), *, dry_run: bool = False) -> Freed:
    """Delete this user's temporary directories, and unfinished savepoints, whose process is dead.

    Args:
        exports: The local directories in which savepoints were written.
        dry_run: Only count them.
    """
    left = stale_temporary_directories()
    left += [path for directory in exports for path in left_exports(directory)]
    return Freed(len(left) if dry_run else sum(map(remove_left, left)), 0)


def sweep_signs_of_life(lake: Catalog, *, dry_run: bool = False) -> Freed:
    """Delete signs of life of attempts and erasures that have ended."""
    names = [name for name in lake.directory.names(SIGNS_OF_LIFE_DIRECTORY) if is_token(name)]
    running = lake.version().claims.running()
    gone = {f"{SIGNS_OF_LIFE_DIRECTORY}/{name}": 0 for name in names if name not in running}
    return _delete(lake.directory, gone, dry_run=dry_run)


def sweep_runs(lake: Catalog, job: str, *, dry_run: bool = False) -> Freed:
    """Delete the files of a job's finished runs whose snapshots were dropped.

    No run can begin with their state. The files that describe the runs stay.

    Args:
        lake: The lake.
        job: The name of the job's directory of runs.
        dry_run: Only count them.
    """
    runs = f"{job}/{RUNS}"
    done = []
    with suppress(UnsafePathError):  # a job of that name has no runs
        done = [
            run
            for run in lake.directory.names(runs)
            if _RUN.fullmatch(run) and lake.directory.is_file(f"{runs}/{run}/done.json")
        ]
    if not done:
        return Freed()
    version = lake.version()  # after the listing: a run's snapshot exists before the run is done
    if version.listed(job)[1]:
        return Freed()  # it is not known which snapshots were dropped
    unneeded = {
        path: size
        for run in done
        if not version.has(job, f"run-{run}")
        for path, size in lake.directory.files_below(f"{runs}/{run}")
        if _ATTEMPT.match(path.removeprefix(f"{runs}/{run}/"))
    }
    return _delete(lake.directory, unneeded, dry_run=dry_run)


def sweep_notes(lake: Catalog, *, dry_run: bool = False) -> Freed:
    """Delete the notes that attempts and erasures of older versions of statelake wrote.

    They are no longer read. An erasure that had not ended is reported; other files are not touched.
    """
    freed = Freed()
    for path in (
        f"{folder}/{name}" for folder in OLD_NOTES for name in lake.directory.names(folder)
    ):
        try:
            _, note = read_note(lake.directory, path, Process)
            size = lake.directory.size(path)
        except StateError as error:
            LOG.warning("left alone: %s", error)
            continue
        if not dry_run:
            if "request" in note:
                LOG.warning(
                    "erasure %.200r, which an older statelake began, has not ended: erase again,"
                    " and audit it", note["request"],
                )  # fmt: skip
            lake.directory.delete(path)
        freed += Freed(1, size)
    return freed


def table_paths(lake: Catalog, folder: str) -> Iterator[str]:
    """Yield the tables below one of the lake's folders: those of a job."""
    for area in AREAS:
        above = f"{folder}/{area}"
        for name in lake.directory.names(above):
            if is_table_path(f"{above}/{name}"):
                yield f"{above}/{name}"
                continue
            try:
                inner = lake.directory.names(f"{above}/{name}")
            except UnsafePathError as error:
                LOG.warning("left alone: %s", error)
                continue
            yield from (path for last in inner if is_table_path(path := f"{above}/{name}/{last}"))
