"""The lake: a directory of Delta tables, and the `snapshots` table that lists its snapshots.

A snapshot exists when its row is in `snapshots`. The log of that table alone decides which
snapshots exist: each change is one entry, computed from the version before, and written only if no
other writer has written that entry (`Catalog.transact`). The claims of writers are in the same log
(`claims`).

Whoever can write into the lake can write a row, too. So every row is checked by `record_rules` when
it is read. One that breaks them is not a snapshot: to open it by name is an error that says what is
wrong, and the others can be used as if it did not exist.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Concatenate, NamedTuple, ParamSpec, TypeAlias, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError

from statelake.pipelines.lake.catalog.catalog_reader import CatalogReader
from statelake.pipelines.lake.catalog.catalog_rows import rows_of, with_columns_of, without_views
from statelake.pipelines.lake.catalog.claims import Claims, is_claim, read_claims
from statelake.pipelines.lake.catalog.lake_format import LakeUpgrade, own_format, read_format
from statelake.pipelines.lake.tables.delta_commit import COMMIT_KEY, DeltaCommit, until_committed
from statelake.pipelines.lake.tables.names import (
    SNAPSHOTS,
    is_edited_file,
    new_edited_file,
    path_segment,
    version_in,
)
from statelake.pipelines.lake.tables.parquet_bounds import open_parquet
from statelake.pipelines.lake.tables.parquet_seals import check_whole
from statelake.pipelines.lake.tables.record_rules import record_fault
from statelake.pipelines.lake.tables.records import SNAPSHOT_SCHEMA, SnapshotRecord
from statelake.pipelines.lake.tables.table_log import file_actions
from statelake.pipelines.lake.tables.tables import (
    CONFIGURATION,
    StateTable,
    create_table,
    log_path,
    open_table,
    refuse_features,
)
from statelake.state_core.errors import (
    DamagedLakeError,
    MissingFileError,
    NotALakeError,
    NotFoundError,
    SnapshotError,
    StateError,
    UnsafePathError,
    did_you_mean,
)
from statelake.state_core.files.filesystem import Directory

MANY_FILES = 64
READINGS = 10
"""The number of attempts to read a version whose files are exchanged meanwhile."""

RESERVE, RESERVED_BYTES = "_statelake/reserve", 1 << 20
"""A file that gives way to an entry when a drop has to free a full disk."""

LOG = logging.getLogger(__name__)
_HEAVY_COLUMNS = ("metadata", "carried", "operators")
RowsEdit: TypeAlias = Callable[[pa.Table], pa.Table]
Result = TypeVar("Result")
Given = ParamSpec("Given")


@dataclass(frozen=True)
class BadRow:
    """An invalid row of the catalog, or a file of rows that can't be read.

    Attributes:
        job: Its job.
        snapshot_id: Its id, if it has one.
        error: What is wrong with it, and what to do.
    """

    job: str
    snapshot_id: str
    error: DamagedLakeError | UnsafePathError


class ListedRows(NamedTuple):
    """Snapshots of the catalog, and the rows that are not valid."""

    records: list[SnapshotRecord]
    bad: list[BadRow]

    def all_valid(self) -> list[SnapshotRecord]:
        """Return the snapshots, of which none may be missing.

        Raises:
            DamagedLakeError, UnsafePathError: A row is not valid.
        """
        if self.bad:
            raise self.bad[0].error
        return self.records


@dataclass(frozen=True)
class CatalogChange:
    """The changes of one entry of the catalog's log.

    Attributes:
        claims: The new claims; None if they stay.
        added: The snapshot that it adds.
        edits: By job, a function of the rows of a file: returns the same object if they stay.
        upgrades: Whether it gives the lake the newest format.
    """

    claims: Claims | None = None
    added: SnapshotRecord | None = None
    edits: Mapping[str, RowsEdit] = field(default_factory=dict)
    upgrades: bool = False


class CatalogVersion:
    """The catalog at one version of its log.

    Args:
        table: The catalog's table.
        reader: The reader of its files.
        log: The opened version.

    Raises:
        LakeFormatError: This statelake can't read the lake.

    Attributes:
        number: The version.
        columns: The columns of its rows.
        format: The lake's format at that version.
        is_exchanged: Whether a file was missing, since a later version no longer needs it.
    """

    def __init__(self, table: StateTable, reader: CatalogReader, log: DeltaTable) -> None:
        self._catalog = table
        self._reader = reader
        metadata = log.metadata()
        if metadata.partition_columns != ["job"]:
            raise _no_lake(table.directory.uri)
        self.number = log.version()
        self.properties: dict[str, str] = dict(metadata.configuration)
        self.properties.pop(COMMIT_KEY, None)
        self.format = read_format(self.properties, table.uri)
        self.format.refuse_reading(table.directory.uri)
        self.columns = pa.schema(log.schema().to_arrow())
        self.files = _files(log)
        self.is_exchanged = False

    @cached_property
    def claims(self) -> Claims:
        """The claims of writers.

        Raises:
            DamagedLakeError: A claim breaks a rule.
        """
        return read_claims(self.properties, self._catalog.uri)

    def jobs(self) -> list[str]:
        """Return the jobs that have rows, valid or not, sorted."""
        return sorted({file.job for file in self.files if file.job})

    def has(self, job: str, snapshot_id: str) -> bool:
        """Return whether an id is taken, even by an invalid row."""
        summaries, bad = self.listed(job)
        existing = {summary.snapshot_id for summary in summaries} | {row.snapshot_id for row in bad}
        return snapshot_id in existing

    def records(self, job: str | None = None) -> ListedRows:
        """Return all snapshots, or one job's, with their operators, and the invalid rows."""
        records, bad = self._read(SNAPSHOT_SCHEMA.names, job)
        return ListedRows(sorted(records, key=_by_age), bad)

    def snapshot(self, job: str, snapshot_id: str) -> SnapshotRecord:
        """Return one snapshot, with its operators.

        Raises:
            NotFoundError: There is no such job or snapshot.
            DamagedLakeError: The snapshot's row breaks a rule of the catalog.
        """
        records, bad = self._read(SNAPSHOT_SCHEMA.names, job, snapshot_id)
        if records:
            return records[0]
        if bad:
            raise bad[0].error
        ids = [record.snapshot_id for record in self.listed(job)[0]]
        if not ids:
            jobs = self.jobs()
            raise NotFoundError(
                f"no job {job!r} in the lake",
                remedy=f"it has: {', '.join(jobs) or 'none'}{did_you_mean(job, jobs)}",
            )
        raise NotFoundError(
            f"job {job!r} has no snapshot {snapshot_id!r}",
            remedy=f"its latest are: {', '.join(ids[-10:])}{did_you_mean(snapshot_id, ids)}",
        )

    def latest(self, job: str) -> SnapshotRecord | None:
        """Return the job's newest snapshot, if it has one.

        Raises:
            DamagedLakeError: A row is invalid, so that the newest is not known.
        """
        summaries = self.listed(job).all_valid()
        return self.snapshot(job, summaries[-1].snapshot_id) if summaries else None

    def listed(self, job: str | None = None) -> ListedRows:
        """Return all snapshots, or one job's, without their operators, and the invalid rows."""
        columns = [name for name in SNAPSHOT_SCHEMA.names if name not in _HEAVY_COLUMNS]
        records, bad = self._read(columns, job)
        by_name = {(record.job, record.snapshot_id): record for record in records}
        return ListedRows(sorted(by_name.values(), key=_by_age), bad)

    def _read(
        self, columns: list[str], job: str | None, snapshot_id: str | None = None
    ) -> ListedRows:
        """Read rows of the catalog directly from its files, without an engine."""
        all_columns = columns == SNAPSHOT_SCHEMA.names
        stored = [name for name in columns if name != "job"]
        records: list[SnapshotRecord] = []
        bad: list[BadRow] = []
        for path, _, owner in self.files:
            if job is not None and owner != job:
                continue
            try:
                with self._reader.opened(log_path(path, self._catalog.uri), path) as file:
                    rows = rows_of(file, stored, snapshot_id)
            except (
                UnsafePathError, MissingFileError, OSError, OverflowError, ValueError,
                pa.ArrowException,
            ) as error:  # fmt: skip
                self.is_exchanged |= isinstance(error, MissingFileError)
                if not isinstance(error, UnsafePathError):
                    error = self.unreadable(path, error)
                bad.append(BadRow(str(owner or ""), "", error))
                continue
            for row in rows:
                parsed = self._record(row | {"job": owner}, with_operators=all_columns)
                if isinstance(parsed, SnapshotRecord):
                    records.append(parsed)
                else:
                    bad.append(parsed)
        return self._told_apart(records, bad) if all_columns else ListedRows(records, bad)

    def _record(self, row: dict[str, object], *, with_operators: bool) -> SnapshotRecord | BadRow:
        """Return a row as a snapshot, or as invalid if it breaks a rule."""
        try:
            record = SnapshotRecord.from_row(row)
            problem = record_fault(record, with_operators=with_operators)
        except DamagedLakeError as error:
            problem = error.problem
        return self._bad(row, problem) if problem else record

    def _told_apart(self, records: list[SnapshotRecord], bad: list[BadRow]) -> ListedRows:
        """Move snapshots with several rows to the bad rows, since any of these may be false."""
        counts = Counter((record.job, record.snapshot_id) for record in records)
        alone = [record for record in records if counts[record.job, record.snapshot_id] == 1]
        twins = [
            self._bad({"job": job, "snapshot_id": name}, f"{count} rows of this snapshot")
            for (job, name), count in counts.items()
            if count > 1
        ]
        return ListedRows(alone, bad + twins)

    def _bad(self, row: dict[str, object], problem: str) -> BadRow:
        job, name = str(row.get("job") or ""), str(row.get("snapshot_id") or "")
        error = DamagedLakeError(
            problem,
            place=f"{self._catalog.uri}, job {job!r}, snapshot {name!r}",
            remedy="statelake did not write this row: restore the table from a backup or an older"
            f" version, or take the row out with `statelake drop --job {job!r} --snapshot"
            f" {name!r}`",
        )
        return BadRow(job, name, error)

    def unreadable(self, path: str, error: Exception) -> DamagedLakeError:
        """Return the error for a file of rows that can't be read."""
        return DamagedLakeError(
            f"a file of the catalog can't be read ({' '.join(str(error).split())})",
            place=f"{self._catalog.uri}/{path}",
            remedy="restore it, or an older version of the table, from a backup of the lake",
        )

    def rows(self, path: str) -> pa.Table:
        """Return all rows of a file of the catalog, with that file's columns.

        Raises:
            DamagedLakeError: The file can't be read.
        """
        try:
            with self._catalog.directory.open_input(log_path(path, self._catalog.uri)) as file:
                check_whole(file)
                return without_views(open_parquet(file, path).read())
        except (MissingFileError, OSError, KeyError, ValueError, pa.ArrowException) as error:
            self.is_exchanged |= isinstance(error, MissingFileError)
            raise self.unreadable(path, error) from error


def _of_newest(
    read: Callable[Concatenate[CatalogVersion, Given], Result],
) -> Callable[Concatenate[Catalog, Given], Result]:
    """Return the method of a lake that calls one of the newest version of its catalog."""

    @wraps(read)
    def method(lake: Catalog, /, *args: Given.args, **options: Given.kwargs) -> Result:
        def of_version(version: CatalogVersion) -> Result:
            result: Result = getattr(version, read.__name__)(*args, **options)
            return result

        return lake.at_one_version(of_version)

    return method


class Catalog:
    """A lake's catalog of snapshots, and its tables. Nothing is created before the first attempt.

    No path in the lake leads out of it: its directory is confined.

    Args:
        location: The lake's path or URI.
    """

    def __init__(self, location: str | os.PathLike[str]) -> None:
        self.directory = Directory(location).confined()
        # absolute, since tasks on other machines use it too
        self.location = self.directory.location
        self._catalog = StateTable(self.directory, SNAPSHOTS)
        self._reader = CatalogReader(self._catalog.directory)

    def table(self, path: str) -> StateTable:
        """Return a table of the lake."""
        return StateTable(self.directory, path)

    def check_tables(self, paths: Iterable[str]) -> None:
        """Open those of some tables that exist, before anything is written.

        Raises:
            DamagedLakeError: A table can't be opened.
            UnsafePathError: A table's path leads out of the lake.
        """
        for path in paths:
            self.table(path).open()

    def exists(self) -> bool:
        """Return whether the lake exists."""
        return self._reader.newest() is not None

    def version(self) -> CatalogVersion:
        """Return the newest version of the catalog.

        Raises:
            NotALakeError: There is no lake.
        """
        log = self._reader.newest()
        if log is None:
            raise _no_lake(self.directory.full())
        return CatalogVersion(self._catalog, self._reader, log)

    def at_one_version(self, read: Callable[[CatalogVersion], Result]) -> Result:
        """Read the newest version of the catalog; again, if a file was exchanged meanwhile."""
        for _ in range(READINGS):
            version = self.version()
            try:
                result = read(version)
            except DamagedLakeError:
                if not version.is_exchanged or self.version().number == version.number:
                    raise
            else:
                if not version.is_exchanged or self.version().number == version.number:
                    return result
        return read(self.version())

    # raise NotALakeError without a lake, besides what those of a version raise
    jobs = _of_newest(CatalogVersion.jobs)
    has = _of_newest(CatalogVersion.has)
    records = _of_newest(CatalogVersion.records)
    snapshot = _of_newest(CatalogVersion.snapshot)
    listed = _of_newest(CatalogVersion.listed)

    def summaries(self, job: str | None = None) -> list[SnapshotRecord]:
        """Return all snapshots, or one job's, the oldest first, without their operators.

        Invalid rows are left out: `listed` returns them, too, as far as they are known to be
        invalid without their operators.

        Raises:
            NotALakeError: There is no lake.
        """
        return self.listed(job)[0]

    def together(self, snapshots: Iterable[tuple[str, str]]) -> list[SnapshotRecord]:
        """Return some snapshots by job and id, all of one version: before or after an erasure.

        Raises:
            NotFoundError: There is no such job or snapshot.
            DamagedLakeError: A snapshot's row breaks a rule of the catalog.
        """
        wanted = list(snapshots)
        return self.at_one_version(
            lambda version: [version.snapshot(job, snapshot_id) for job, snapshot_id in wanted]
        )

    def latest(self, job: str) -> SnapshotRecord | None:
        """Return the job's newest snapshot, if it has one.

        Raises:
            DamagedLakeError: A row is invalid, so that the newest is not known.
        """
        return self.at_one_version(lambda version: version.latest(job)) if self.exists() else None

    def transact(
        self, decide: Callable[[CatalogVersion], CatalogChange | None], *, create: bool = False
    ) -> int:
        """Change the catalog by one entry of its log, which only one writer can write.

        Args:
            decide: Returns the change of the newest version, or None if nothing changes. It is
                called again with a newer version if another writer was first; an error that it
                raises ends the commit, and nothing is changed.
            create: Whether to create the lake if it does not exist.

        Returns:
            The version with the change; the newest one if nothing changed.

        Raises:
            NotALakeError: There is no lake.
            LakeFormatError: This statelake can't write into the lake.
            ConflictError: Other writers were first each time.
            DamagedLakeError: The catalog can't be read, or written.
        """
        directory = self._catalog.directory
        return until_committed(lambda: self._committed(decide, create=create), directory)

    def refuse_writing(self) -> None:
        """Refuse to write into a lake that this statelake can't write.

        Raises:
            LakeFormatError: It is of an older format, or has an unknown feature.
        """
        if self.exists():
            self.version().format.refuse_writing(self.directory.uri)

    def plan_upgrade(self) -> LakeUpgrade:
        """Return what `upgrade` would change.

        Raises:
            NotALakeError: There is no lake.
            LakeFormatError: It is of a newer format.
        """
        version = self.version()
        return LakeUpgrade.of(version.format, version.columns)

    def upgrade(self) -> LakeUpgrade:
        """Give the lake the newest format, in one entry of the catalog's log.

        Raises:
            NotALakeError: There is no lake.
            LakeFormatError: It is of a newer format.
        """
        done: list[LakeUpgrade] = []

        def decide(version: CatalogVersion) -> CatalogChange | None:
            done.append(LakeUpgrade.of(version.format, version.columns))
            return CatalogChange(upgrades=True) if done[-1].before < done[-1].after else None

        self.transact(decide)
        return replace(done[-1], upgraded=done[-1].before < done[-1].after)

    def transact_to_free(self, decide: Callable[[CatalogVersion], CatalogChange | None]) -> int:
        """Run `transact` for a change that frees space: on a full disk a reserve gives way to it.

        `reserve` makes the reserve again.
        """
        try:
            return self.transact(decide)
        except SnapshotError:
            if not (self.directory.local and self.directory.is_file(RESERVE)):
                raise
            self.directory.delete(RESERVE)
        return self.transact(decide)

    def reserve(self) -> None:
        """Reserve disk space for an entry of the log, unless that was done."""
        if self.directory.local and not self.directory.is_file(RESERVE):
            try:
                self.directory.write(RESERVE, bytes(RESERVED_BYTES))
            except StateError as error:
                LOG.warning("no room is reserved for drops: %s", error)

    def _committed(
        self, decide: Callable[[CatalogVersion], CatalogChange | None], *, create: bool
    ) -> int:
        log = open_table(self._catalog.directory)
        if log is None:
            if not create:
                raise _no_lake(self.directory.full())
            log = create_table(
                self._catalog.directory, SNAPSHOT_SCHEMA, partition_by="job",
                configuration={**CONFIGURATION, **own_format().to_properties()}, chained=True,
            )  # fmt: skip
            self.reserve()
        version = CatalogVersion(self._catalog, self._reader, log)
        try:
            return self._changed(version, log, decide)
        except StateError as error:
            if version.is_exchanged and self.version().number != version.number:
                raise CommitFailedError("files of rows were cleaned up meanwhile") from error
            raise

    def _changed(
        self,
        version: CatalogVersion,
        log: DeltaTable,
        decide: Callable[[CatalogVersion], CatalogChange | None],
    ) -> int:
        change = decide(version)
        if change is None:
            return version.number
        refuse_features(log, self._catalog.uri)
        columns = version.columns
        if change.upgrades:
            columns = with_columns_of(columns, SNAPSHOT_SCHEMA)
        else:
            version.format.refuse_writing(self.directory.uri)
        commit = self._new_commit(columns)
        is_empty = self._edit_rows(version, change.edits, commit)
        if change.added is not None:
            record = replace(change.added, sequence=version.number + 1)
            commit.add_rows(_new_file(record.job, version), record.to_table(), record.job)
            is_empty = False
        kept = {key: value for key, value in version.properties.items() if not is_claim(key)}
        claims = version.claims if change.claims is None else change.claims
        after = kept | claims.to_properties()
        if change.upgrades:
            after |= own_format().to_properties()
        if after != version.properties or commit.schema != log.schema():
            commit.configuration = after
            is_empty = False
        return version.number if is_empty else commit.write(log)

    def _new_commit(self, columns: pa.Schema) -> DeltaCommit:
        """Return an empty commit."""
        return DeltaCommit(
            self._catalog.directory, columns, "job", CommitProperties(), chained=True
        )

    def _edit_rows(
        self, version: CatalogVersion, edits: Mapping[str, RowsEdit], commit: DeltaCommit
    ) -> bool:
        """Replace rows of some jobs, file by file, and return whether all of them stayed."""
        is_empty = True
        for file in version.files:
            edit = edits.get(file.job)
            if edit is None:
                continue
            rows = version.rows(file.path)
            try:
                kept = edit(rows)
            except (KeyError, ValueError, pa.ArrowException) as error:
                raise version.unreadable(file.path, error) from error
            if kept is not rows:
                is_empty = False
                commit.remove(log_path(file.path, self._catalog.uri), file.size, file.job)
                if len(kept):
                    commit.add_rows(_new_file(file.job, version), kept, file.job)
        return is_empty

    def put_together(self, job: str) -> None:
        """Merge the catalog's files of a job when there are many, one for each snapshot."""
        # left to the next writer if another one was first, or a file is invalid
        with suppress(StateError, CommitFailedError, pa.ArrowException, OSError):
            if sum(file.job == job for file in self.version().files) < MANY_FILES:
                return
            log = open_table(self._catalog.directory)
            if log is None:
                return
            version = CatalogVersion(self._catalog, self._reader, log)
            files = [file for file in version.files if file.job == job]
            rows = [version.rows(file.path) for file in files]
            commit = self._new_commit(version.columns)
            together = pa.concat_tables(rows, promote_options="permissive")
            commit.add_rows(_new_file(job, version), together, job)
            for file in files:
                commit.remove(log_path(file.path, self._catalog.uri), file.size, job)
            commit.write(log)

    def delete_old_rows(self, jobs: Iterable[str]) -> None:
        """Delete files of rows of some jobs that the newest version of the catalog does not name.

        The name of each file says which version may name it: files that a running commit is writing
        stay.
        """
        folders = {f"job={path_segment(job)}" for job in jobs}
        present = [
            name
            for name, _ in self._catalog.directory.files_below()
            if name.partition("/")[0] in folders and is_edited_file(name)
        ]
        version = self.version()  # after the listing: later files stay
        named = {log_path(file.path, self._catalog.uri) for file in version.files}
        for name in present:
            if name not in named and (version_in(name) or 0) <= version.number:
                self._catalog.directory.delete(name)


class _CatalogFile(NamedTuple):
    """A file of the catalog."""

    path: str
    size: int
    job: str


def _files(table: DeltaTable) -> list[_CatalogFile]:
    actions = file_actions(table)
    names = ("path", "size_bytes", "partition.job")
    return list(map(_CatalogFile, *(actions.column(name).to_pylist() for name in names)))


def _new_file(job: str, version: CatalogVersion) -> str:
    return f"job={path_segment(job)}/{new_edited_file(version.number + 1)}"


def _by_age(record: SnapshotRecord) -> tuple[object, ...]:
    return record.job, record.sequence, record.imported_at, record.snapshot_id


def _no_lake(place: str) -> NotALakeError:
    return NotALakeError(
        "this is no lake: there is no `snapshots` table of ours in it",
        place=place,
        remedy="give the directory that `statelake import --lake` wrote to",
    )
