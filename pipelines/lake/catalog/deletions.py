"""Files that nobody needs any more are deleted: named in the log before, or found by a sweep.

A deletion says in the catalog's log which files it is about, so that whoever writes next finishes
one that was killed. A sweep finds what nobody ever named: files that a task wrote after its attempt
was taken back, or the rows of a commit that failed. It lists what is there, and then looks at the
catalog: each file below a token came after that token's attempt had begun. So a file that no
snapshot has, of an attempt that is not there, is nobody's, and never will be anyone's.

Only files go that are called as statelake or a Delta engine calls them, in tables of the lake, one
by one, and none that a snapshot, an open attempt or the newest version of a table has.
"""

from __future__ import annotations

import json
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
from statelake.pipelines.lake.catalog.processes import read_note
from statelake.pipelines.lake.catalog.unmanaged_state import CARRIED_DIRECTORY
from statelake.pipelines.lake.tables.delta_commit import DeltaCommit
from statelake.pipelines.lake.tables.names import (
    AREAS,
    RUNS,
    is_carried_name,
    is_edited_file,
    is_table_path,
    is_token,
    token_in,
    token_of,
    version_in,
)
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.pipelines.lake.tables.table_log import log_entry
from statelake.pipelines.lake.tables.tables import DATA_DIRECTORY, StateTable, TableFile, files_of
from statelake.state_core.errors import MissingFileError, StateError, UnsafePathError
from statelake.state_core.files.held_directories import (
    left_exports,
    remove_left,
    stale_temporary_directories,
)
from statelake.state_core.files.paths import is_part

OLD_NOTES = ("_statelake/attempts", "_statelake/erasures")
"""Where older versions of statelake said what the catalog's log says now."""

# what versions say that take others back, and that show another snapshot than the one that is gone
UNDO, DROP = "undo-", "drop"
ALIVE = "_statelake/alive"
LOG = logging.getLogger(__name__)
_RUN = re.compile(r"\d{8,12}", re.ASCII)
_ATTEMPT = re.compile(r"attempt-[0-9a-f]{12}/")

Result = TypeVar("Result")


@dataclass(frozen=True)
class Freed:
    """Files that were deleted, or would be.

    Attributes:
        files: How many.
        size: Their bytes.
    """

    files: int = 0
    size: int = 0

    def __add__(self, other: Freed) -> Freed:
        return Freed(self.files + other.files, self.size + other.size)


class _Looks:
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

    def newest(self) -> tuple[CatalogVersion, list[SnapshotRecord]]:
        """The catalog as it is now, and its records.

        Raises:
            DamagedLakeError: A row can't be believed: who knows which files it needs?
        """
        version = self._lake.version()
        if version.number != self._number:
            records, bad = version.records(self._job)
            if bad:
                raise bad[0].error
            self._number, self._records = version.number, records
        return version, self._records

    def follow(self, work: Callable[[CatalogVersion, list[SnapshotRecord]], Result]) -> Result:
        """Do what follows from the newest records: again, if others have changed them meanwhile.

        An erasure deletes the files that it has exchanged.

        Raises:
            StateError: It can't be done, and the catalog is the same as before.
        """
        while True:
            version, records = self.newest()
            try:
                return work(version, records)
            except StateError:
                if self._lake.version().number == version.number:
                    raise


def finish_deletions(lake: Catalog, jobs: Collection[str] | None = None) -> Freed:
    """Delete what deletions in the catalog's log name, and take them out of it.

    One that fails keeps no other from its end, and stays for the next writer.

    Args:
        lake: The lake.
        jobs: The jobs whose deletions must succeed; of another's it is only logged that one
            failed. Those of all jobs by default.

    Raises:
        DamagedLakeError: A row or a table of one of these jobs can't be believed: who knows which
            files it needs?
    """
    freed, failed = Freed(), None
    for token, claim in lake.version().claims.deletions.items():
        try:
            freed += carry_out(lake, claim)
            lake.transact(partial(_without, token))
        except StateError as error:  # noqa: PERF203 - each has its own
            if jobs is None or claim.job in jobs:
                failed = failed or error
            else:
                LOG.warning("deletions are left to the next writer: %s", error)
    if failed is not None:
        raise failed
    return freed


def _without(token: str, version: CatalogVersion) -> CatalogChange:
    return CatalogChange(version.claims.without_deletion(token))


def carry_out(lake: Catalog, claim: DeletionClaim) -> Freed:
    """Delete the files of a deletion that nobody has at this moment; it may be done once more.

    Raises:
        DamagedLakeError: A row of the job can't be believed.
    """
    freed, looks = Freed(), _Looks(lake, claim.job)
    for path in sorted({*claim.files, *claim.tables, *claim.shown}):
        table = lake.table(path)
        sizes = {
            name: size
            for name in claim.files.get(path, ())
            if (size := _size_of(table, name)) is not None
        }
        if path in claim.tables and claim.tokens:
            # of the whole table: the directory of a token may be a link, and those are not listed
            present = table.directory.files_below(DATA_DIRECTORY)
            sizes |= {name: size for name, size in present if token_of(name) in claim.tokens}
            if not sizes and table.open() is None:
                continue  # the attempt did not get as far as this table
            for token in claim.tokens:
                looks.follow(partial(_take_back, table, token))
        freed += _delete_unneeded(looks, table, sizes, forced=path in claim.shown)
    if claim.carried or claim.tokens:
        freed += sweep_carried(lake, claim.carried, claim.tokens)
    for token in claim.tokens:
        lake.directory.delete(f"{ALIVE}/{token}")
    return freed


def _size_of(table: StateTable, name: str) -> int | None:
    """The bytes of a file; None if it does not exist, or is a link, which is left alone.

    Raises:
        UnsafePathError: A directory is a link.
    """
    try:
        return table.directory.size(name) if table.directory.is_file(name) else None
    except UnsafePathError as error:
        table.directory.files_below(posixpath.dirname(name))  # refused if that is the link
        LOG.warning("left alone: %s", error)
        return None


def _delete_unneeded(
    looks: _Looks, table: StateTable, present: Mapping[str, int], *, forced: bool = False
) -> Freed:
    """Let a table show a snapshot that there is, and delete those files that nobody has."""
    latest = looks.follow(partial(_show_newest, table, forced))
    version, records = looks.newest()  # behind the list: what comes later stays
    needed = named_files(records, table.path)
    if latest is not None:
        needed |= {file.path for file in files_of(latest)}
    return _delete(table, _nobodys(present, needed, _running(version)))


def _running(version: CatalogVersion) -> set[str]:
    """The tokens of whoever may still write files, or name them."""
    claims = version.claims
    return set(claims.attempts) | {claim.token for claim in claims.erasures.values()}


def _nobodys(
    present: Mapping[str, int], needed: Collection[str], running: Collection[str]
) -> dict[str, int]:
    """Files of ours that are not needed, and whose attempt is not there any more."""
    return {
        name: size
        for name, size in present.items()
        if name not in needed and (token := token_of(name)) and token not in running
    }


def _delete(table: StateTable, files: Mapping[str, int]) -> Freed:
    for name in files:
        table.directory.delete(name)
    return Freed(len(files), sum(files.values()))


def named_files(records: Iterable[SnapshotRecord], path: str) -> set[str]:
    """The files of a table that some snapshots have."""
    return {
        unit.path
        for record in records
        for table in record.tables
        if table.path == path
        for unit in table.units
    }


def _take_back(
    table: StateTable, token: str, _: CatalogVersion, records: list[SnapshotRecord]
) -> None:
    """If a table's newest version is an attempt's, let it show what it showed before.

    That is the newest version that a snapshot has or that someone else made: versions of other
    attempts may be taken back, too.
    """
    latest = table.open()
    registered = {
        held.version for record in records for held in record.tables if held.path == table.path
    }
    if latest is None or table.maker(latest.version()) != token or latest.version() in registered:
        return
    before = (version for version in table.versions_after(-1) if version < latest.version())
    shown = next(
        (v for v in before if v in registered or table.maker(v) in {"", DROP}), None
    )  # fmt: skip
    table.replace_files(
        (latest if shown is None else table.require(shown)).schema(),
        [] if shown is None else files_of(table.require(shown)),
        partition_by=_partition_of(latest),
        attempt=f"{UNDO}{token}",
    )


def _show_newest(
    table: StateTable, forced: bool, version: CatalogVersion, records: list[SnapshotRecord]
) -> DeltaTable | None:
    """If a table shows a snapshot that is gone, let it show the newest there is: how it is then.

    What others have edited and not committed stays, unless it is known to be what is gone.
    """
    latest = table.open()
    if latest is None:
        return None
    kept = [held for record in records for held in record.tables if held.path == table.path]
    shown = {file.path for file in files_of(latest)}
    if any(shown == {unit.path for unit in held.units} for held in kept):
        return latest
    maker = table.maker(latest.version())
    is_edited = not maker or maker.startswith(UNDO)
    if maker in _running(version) or (is_edited and not forced) or (not kept and not shown):
        return latest
    newest = kept[-1] if kept else None
    table.replace_files(
        (latest if newest is None else table.require(newest.version)).schema(),
        [] if newest is None else [TableFile.of(unit) for unit in newest.units],
        partition_by=_partition_of(latest),
        attempt=DROP,
    )
    return table.open()


def sweep_tables(
    lake: Catalog, job: str | None, paths: Iterable[str], *, dry_run: bool = False
) -> Freed:
    """Delete files of a job's tables that nobody named: tasks wrote them, or other engines.

    Args:
        lake: The lake.
        job: The job; None if it is not known whose tables they are, as a folder does not say it.
        paths: Its tables.
        dry_run: Only look.

    Raises:
        DamagedLakeError: A row of the job, or of any if it is not known, can't be believed.
    """
    freed, looks = Freed(), _Looks(lake, job)
    for path in paths:
        table = lake.table(path)
        present = dict(table.directory.files_below(DATA_DIRECTORY))
        leftovers = dict(_edit_leftovers(table, table.open()))
        if dry_run:
            freed += _unneeded(looks, table, present) + Freed(
                len(leftovers), sum(leftovers.values())
            )
        else:
            freed += _delete_unneeded(looks, table, present) + _delete(table, leftovers)
    return freed


def _unneeded(looks: _Looks, table: StateTable, present: Mapping[str, int]) -> Freed:
    """What a sweep of a table would delete."""
    version, records = looks.newest()
    latest, needed = table.open(), named_files(records, table.path)
    if latest is not None and not table.maker(latest.version()):
        needed |= {file.path for file in files_of(latest)}
    files = _nobodys(present, needed, _running(version))
    return Freed(len(files), sum(files.values()))


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


def sweep_carried(
    lake: Catalog,
    names: Collection[str] | None = None,
    tokens: Collection[str] = (),
    *,
    dry_run: bool = False,
) -> Freed:
    """Delete carried files that no snapshot of any job needs.

    Args:
        lake: The lake.
        names: Of these, and of those that some attempts wrote; of all by default.
        tokens: These attempts.
        dry_run: Only look.
    """
    present = [
        (path.removeprefix(f"{CARRIED_DIRECTORY}/"), size)
        for path, size in lake.directory.files_below(CARRIED_DIRECTORY)
    ]
    if names is not None:
        present = [
            (name, size) for name, size in present if name in names or token_in(name) in tokens
        ]
    if not present:
        return Freed()
    version = lake.version()  # behind the list: what comes later stays
    records, bad = version.records()
    if bad:
        LOG.warning("carried files stay, as nobody knows which are needed: %s", bad[0].error)
        return Freed()
    needed = {carried.blob for record in records for carried in record.carried}
    freed = Freed()
    for name, size in present:
        # an open attempt may still name what no snapshot has
        may_come = token_in(name) in version.claims.attempts
        if is_carried_name(name) and name not in needed and not may_come:
            if not dry_run:
                lake.directory.delete(f"{CARRIED_DIRECTORY}/{name}")
            freed += Freed(1, size)
    return freed


def sweep_rows(lake: Catalog, path: str, *, dry_run: bool = False) -> Freed:
    """Delete what failed commits of a table of rows left: files that no version ever named.

    The name of such a file says which version may name it. Where that is the next one, an entry
    that changes nothing is written first: whoever was about to commit there works it out again.

    Args:
        lake: The lake.
        path: The table.
        dry_run: Only look.
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
            with suppress(CommitFailedError):  # then somebody else's entry is there
                properties = CommitProperties()
                columns, partition = pa.schema(log.schema().to_arrow()), _partition_of(log)
                DeltaCommit(table.directory, columns, partition, properties).write(log)
            log = table.require()
        is_next = dry_run and version == log.version() + 1
        if is_next or (version <= log.version() and not _is_named(table, version, name)):
            if not dry_run:
                table.directory.delete(name)
            freed += Freed(1, size)
    return freed


def _partition_of(log: DeltaTable) -> str | None:
    columns = log.metadata().partition_columns
    return columns[0] if columns else None


def _is_named(table: StateTable, version: int, path: str) -> bool:
    """Whether a version of a table names a file; so it is where the entry can't be read."""
    try:
        lines = table.directory.read(log_entry(version)).splitlines()
        added = [json.loads(line).get("add") or {} for line in lines]
        return path in {unquote(str(file.get("path"))) for file in added}
    except (MissingFileError, ValueError, AttributeError, RecursionError):
        return True


def sweep_parts(lake: Catalog, folders: Iterable[str], *, dry_run: bool = False) -> Freed:
    """Delete files that dead writers left before these got their names, of a local disk.

    Args:
        lake: The lake.
        folders: Where to look, and in all that is below; the whole lake if one is empty.
        dry_run: Only look.
    """
    running = _running(lake.version()) if lake.exists() else set()
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
        dry_run: Only look.
    """
    left = stale_temporary_directories()
    left += [path for directory in exports for path in left_exports(directory)]
    return Freed(len(left) if dry_run else sum(map(remove_left, left)), 0)


def sweep_signs(lake: Catalog, *, dry_run: bool = False) -> Freed:
    """Delete signs of life of attempts and erasures that are not there any more."""
    names = [name for name in lake.directory.names(ALIVE) if is_token(name)]
    running = _running(lake.version())
    gone = [name for name in names if name not in running]
    for name in gone:
        if not dry_run:
            lake.directory.delete(f"{ALIVE}/{name}")
    return Freed(len(gone), 0)


def sweep_runs(lake: Catalog, job: str, *, dry_run: bool = False) -> Freed:
    """Delete what runs of a job left behind that are done, and whose snapshots were dropped.

    No run can begin with these; what says what they were of stays.

    Args:
        lake: The lake.
        job: The job, as its directory of runs is called.
        dry_run: Only look.
    """
    runs = f"{job}/{RUNS}"
    done = []
    with suppress(UnsafePathError):  # no run is of a job that is called so
        done = [
            run
            for run in lake.directory.names(runs)
            if _RUN.fullmatch(run) and lake.directory.is_file(f"{runs}/{run}/done.json")
        ]
    if not done:
        return Freed()
    version = lake.version()  # behind the list: the snapshot of a run comes before it is done
    if version.listed(job)[1]:
        return Freed()  # nobody knows what was dropped
    freed = Freed()
    for run in done:
        for path, size in lake.directory.files_below(f"{runs}/{run}"):
            is_attempts = _ATTEMPT.match(path.removeprefix(f"{runs}/{run}/"))
            if is_attempts and not version.has(job, f"run-{run}"):
                if not dry_run:
                    lake.directory.delete(path)
                freed += Freed(1, size)
    return freed


def sweep_notes(lake: Catalog, *, dry_run: bool = False) -> Freed:
    """Delete what attempts and erasures of older versions of statelake said of themselves.

    Nobody reads that any more. An erasure that had not ended is told; no file of others is touched.
    """
    freed = Freed()
    for path in (
        f"{folder}/{name}" for folder in OLD_NOTES for name in lake.directory.names(folder)
    ):
        try:
            note = read_note(lake.directory, path, {})
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
    """The tables below one of the lake's folders: those of a job."""
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
