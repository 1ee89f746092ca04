"""A Delta table of the lake: its files, and commits that name them exactly.

Files that statelake writes are in `_data/` below the table. Delta engines read them by the log,
and VACUUM skips directories whose names begin with an underscore; the log itself is configured
never to expire. So a snapshot that is kept stays readable: only statelake deletes files, and the
log's entries before the versions that snapshots name. The log is opened with delta-rs, which takes
milliseconds where Spark takes a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from statelake.pipelines.lake.tables.delta_commit import DeltaCommit, until_committed
from statelake.pipelines.lake.tables.log_entries import LOG_DIRECTORY, log_entry, read_entry
from statelake.pipelines.lake.tables.names import names_key_groups
from statelake.pipelines.lake.tables.parquet_bounds import open_parquet
from statelake.pipelines.lake.tables.parquet_seals import check_whole
from statelake.pipelines.lake.tables.records import DataFile, TableRecord
from statelake.pipelines.lake.tables.table_log import (
    file_actions,
    log_beginning,
    log_versions,
    open_log,
    problem_of,
)
from statelake.state_core.errors import (
    ConflictError,
    DamagedLakeError,
    MissingFileError,
    NotALakeError,
    NotFoundError,
    SnapshotError,
    UnreadableTableError,
    UnsafePathError,
)
from statelake.state_core.files.confinement import relative_path
from statelake.state_core.files.filesystem import ConfinedDirectory, Directory

DATA_DIRECTORY = "_data"
FOREVER = "interval 36500 days"
CONFIGURATION: Mapping[str, str | None] = {
    "delta.logRetentionDuration": FOREVER,
    "delta.deletedFileRetentionDuration": FOREVER,
    "delta.enableExpiredLogCleanup": "false",
    "statelake.note": "made by statelake; change it with statelake",
}
READABLE_FEATURES = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
ATTEMPT_KEY = "statelake.attempt"
SNAPSHOT_KEY = "userMetadata"  # which DESCRIBE HISTORY shows


@dataclass(frozen=True, slots=True)
class TableFile:
    """A Parquet file of a table.

    Attributes:
        path: Its path below the table.
        size: Its bytes.
        rows: The number of its rows, -1 if the log does not say.
        partition: The value of the partition column, -1 without one.
        key_groups: The first and the last key group of its rows, if they are known and not the
            partition.
    """

    path: str
    size: int
    rows: int
    partition: int
    key_groups: tuple[int, int] | None = None

    @classmethod
    def of(cls, file: DataFile) -> TableFile:
        """Return a file of a snapshot."""
        key_groups = (file.first, file.last) if names_key_groups(file.path) else None
        return cls(file.path, file.size, file.rows, file.partition, key_groups)


class StateTable:
    """A Delta table below a lake.

    Args:
        directory: The lake's directory.
        path: The table's path below it.
    """

    def __init__(self, directory: Directory, path: str) -> None:
        self.path = path
        self.directory = directory.confined().child(path)

    @property
    def uri(self) -> str:
        """The table's location."""
        return self.directory.uri

    def open(self, version: int | None = None) -> DeltaTable | None:
        """Open the table at a version, the latest by default; None if there is no table.

        Raises:
            DamagedLakeError: Its log can't be read, or has no such version.
            NotFoundError: The version was cleaned up.
            UnsafePathError: There is a link, or the log names a file elsewhere.
        """
        self.directory.refuse_links()
        if version is not None and not self.directory.is_file(log_entry(version)):
            # delta-rs would look for every version up to one that does not exist
            latest = open_table(self.directory, None)
            if latest is not None and version > latest.version():
                raise _unreadable(f"it has no version {version}", self.uri)
            if version < log_beginning(self.directory.names(LOG_DIRECTORY)):
                raise NotFoundError(
                    f"version {version} was cleaned up: no snapshot names it, or an older one",
                    place=self.uri,
                    remedy="see `statelake snapshots` for what there is",
                )
        table = open_table(self.directory, version)
        if table is not None:
            _log_paths(table, self.directory)
        return table

    def checked_directory(self, recorded: TableRecord | None = None) -> Directory:
        """Return its directory, for an engine that reads and writes it by its path.

        Args:
            recorded: A snapshot's record of it, whose version is going to be read; the newest
                version by default.

        Raises:
            UnsafePathError: A file of that version, or the way to it, is a link.
            ConflictError: The version's files are not the snapshot's.
        """
        log = self.require(None if recorded is None else recorded.version)
        check_files(log, self.directory)
        if recorded is not None and not has_files_of(log, recorded):
            raise ConflictError(
                f"version {recorded.version} of the log has other files than the snapshot, as an"
                " erasure has not ended",
                place=self.uri,
                remedy="let `statelake erase` end it: run it again; or read with DuckDB, which"
                " needs no log",
            )
        return self.directory

    def require(self, version: int | None = None) -> DeltaTable:
        """Open the table at a version.

        Raises:
            NotALakeError: There is no table.
        """
        table = self.open(version)
        if table is None:
            raise NotALakeError("no Delta table", place=self.uri, remedy="is this the lake?")
        return table

    def files(self, version: int | None = None) -> list[TableFile]:
        """Return the files of a version, from the log.

        Raises:
            UnreadableTableError: The files alone are not the table's content: it uses deletion
                vectors, column mapping, or another feature that files can't show.
        """
        return plain_files(self.require(version), self.uri)

    def commit_info(self, version: int) -> dict[str, Any]:
        """Return the commit information of a version; empty if its entry was cleaned up.

        It is read from the log itself: delta-rs numbers the history wrong for all versions but the
        latest.

        Raises:
            DamagedLakeError: The entry is not valid.
        """
        try:
            actions = read_entry(self.directory, version)
        except MissingFileError:
            return {}
        return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})

    def is_edited(self, newest: DeltaTable, version: int) -> bool:
        """Return whether another engine changed the table after a version.

        Args:
            newest: The newest version.
            version: The version.
        """
        return newest.version() > version and not all(map(self.maker, self.versions_after(version)))

    def versions_after(self, version: int) -> list[int]:
        """Return the versions after one of which the log has an entry, the latest first.

        They are listed, not counted up, since another writer may have written an entry with a huge
        number. Versions whose older entries a cleaning has deleted are left out, as they can't be
        opened.
        """
        names = self.directory.names(LOG_DIRECTORY)
        entries, _ = log_versions(names)
        first = max(version + 1, log_beginning(names))
        return sorted((later for later in entries if later >= first), reverse=True)

    def maker(self, version: int) -> str:
        """Return the attempt of statelake that made a version; empty if another engine did."""
        return str(self.commit_info(version).get(ATTEMPT_KEY, ""))

    def delete_leftovers(self, attempt: str, kept: Iterable[str]) -> None:
        """Delete an attempt's files except for some: those of tasks that ran more than once.

        Args:
            attempt: Its token.
            kept: The paths of files that stay.
        """
        named = set(kept)
        for path, _ in self.directory.files_below(f"{DATA_DIRECTORY}/{attempt}"):
            if path not in named:
                self.directory.delete(path)

    def replace_files(
        self,
        schema: pa.Schema,
        files: Iterable[TableFile],
        *,
        partition_by: str | None,
        attempt: str,
        snapshot: str = "",
    ) -> int:
        """Replace the whole content of the table by these files, as one new version.

        A commit of another writer meanwhile only costs another attempt: the added and removed files
        are computed from the latest version each time.

        Args:
            schema: The table's columns, including the partition column.
            files: All its files.
            partition_by: The partition column.
            attempt: A token of the caller's, kept in the log, by which its commit is found.
            snapshot: The name of the snapshot with this content, kept in the log.

        Returns:
            The version. If the files are the latest version's already, that one.

        Raises:
            ConflictError: Other writers were first each time.
        """
        new_files = {file.path: file for file in files}

        def commit() -> int | None:
            properties = _properties(attempt, snapshot)
            change = DeltaCommit(self.directory, schema, partition_by, properties)
            table = self.open()
            if table is None:
                for file in new_files.values():
                    change.add(file.path, file.size, file.rows, file.partition, file.key_groups)
                change.create(CONFIGURATION)
                return 0
            present = {file.path: file for file in files_of(table)}
            before = table.metadata().configuration
            if CONFIGURATION.keys() - before.keys():  # made in a lake of format 0
                change.configuration = {**CONFIGURATION, **before}
            same_schema = table.schema() == change.schema
            if same_schema and present.keys() == new_files.keys():
                return table.version()
            kept = present.keys() & new_files.keys() if same_schema else set()
            for path in sorted(new_files.keys() - kept):
                file = new_files[path]
                change.add(path, file.size, file.rows, file.partition, file.key_groups)
            if same_schema:
                for path in sorted(present.keys() - kept):
                    change.remove(path, present[path].size, present[path].partition)
            return change.write(table, replace_all=not same_schema)

        return until_committed(commit, self.directory)

    def commit_files(
        self, record: TableRecord, schema: pa.Schema, attempt: str, snapshot: str
    ) -> TableRecord:
        """Commit a record's files as a version, and return its record: see `replace_files`."""
        files = [TableFile.of(file) for file in record.units]
        version = self.replace_files(
            schema, files, partition_by=record.partition_by or None, attempt=attempt,
            snapshot=snapshot,
        )  # fmt: skip
        return replace(record, version=version)


def sync_attempt(lake: Directory, tables: Iterable[str], token: str) -> None:
    """Sync all files of an attempt below some tables to the disk, in one pass.

    It is for files that the catalog is about to name: `DeltaCommit` syncs those that a log names.

    Args:
        lake: The lake's directory.
        tables: The tables' paths below it.
        token: The attempt's token.
    """
    if lake.local:
        lake = lake.confined()
        folders = (f"{table}/{DATA_DIRECTORY}/{token}" for table in tables)
        lake.sync_files(path for folder in folders for path, _ in lake.files_below(folder))


def table_directory(lake: str, path: str) -> ConfinedDirectory:
    """Return the directory of a table below a lake, from the lake's location as text."""
    return Directory(lake).confined().child(path)


def open_table(directory: Directory, version: int | None = None) -> DeltaTable | None:
    """Open a table at a version, the latest by default; None if there is no table.

    Args:
        directory: The table's directory.
        version: The version.

    Raises:
        DamagedLakeError: Its log can't be read, or has no such version.
        UnsafePathError: There is a link.
    """
    try:
        return open_log(directory, version)
    except (TableNotFoundError, MissingFileError):
        return None
    except (UnsafePathError, DamagedLakeError):
        raise
    except (SnapshotError, DeltaError, ValueError, OverflowError) as error:
        if isinstance(error, SnapshotError) and not directory.exists():
            return None  # a file is in place of a directory above it
        problem = f"the table can't be opened ({problem_of(error, directory)})"
        raise _unreadable(problem, directory.uri) from error


def log_path(path: str, place: str) -> str:
    """Return the path of a file on disk, from its path in a table's log.

    Args:
        path: The path in the log, percent-encoded.
        place: The table's location.

    Raises:
        UnsafePathError: The path leads out of the table, as written or URL-decoded.
    """
    for name in (path, unquote(path)):
        relative_path(name, what="a file of the table", place=place, inside="it")
    return unquote(path)


def check_files(table: DeltaTable, directory: Directory) -> None:
    """Check the paths of an opened version's files, before an engine follows them.

    Raises:
        UnsafePathError: A file is elsewhere, or it or a directory above it is a link.
    """
    directory.confined().refuse_links()
    for path in _log_paths(table, directory):
        directory.confined().checked_path(path)


def has_files_of(table: DeltaTable, recorded: TableRecord) -> bool:
    """Return whether an opened version has exactly the files of a snapshot."""
    return {file.path for file in files_of(table)} == {
        data_file.path for data_file in recorded.units
    }


def _log_paths(table: DeltaTable, directory: Directory) -> list[str]:
    """Return the paths of a version's files below its table."""
    paths = file_actions(table).column("path").to_pylist()
    return [log_path(path, directory.uri) for path in paths]


def create_table(
    directory: Directory,
    schema: pa.Schema,
    *,
    partition_by: str | None = None,
    configuration: Mapping[str, str | None] | None = None,
    name: str | None = None,
    chained: bool = False,
) -> DeltaTable:
    """Create a table without rows, or open the one that another process created meanwhile."""
    with suppress(CommitFailedError):
        commit = DeltaCommit(directory, schema, partition_by, CommitProperties(), chained=chained)
        commit.create(configuration, name)
    table = open_table(directory)
    if table is None:
        raise _unreadable("the table was removed as soon as it was made", directory.uri)
    return table


def read_rows(
    table: DeltaTable, directory: Directory, schema: pa.Schema, wanted: pc.Expression | None = None
) -> pa.Table:
    """Read all rows of an opened version that has few, without following links.

    Args:
        table: The version.
        directory: The table's directory.
        schema: The columns; those that a file lacks are null.
        wanted: The condition of the rows.

    Raises:
        UnreadableTableError: The table has features that its files alone can't show.
        OSError, ArrowException: A file can't be read.
    """
    refuse_features(table, directory.uri)
    batches = [schema.empty_table()]
    for path in _log_paths(table, directory):
        with directory.open_input(path) as file:
            open_parquet(file, directory.full(path))
            check_whole(file)
            rows = pq.read_table(
                file, schema=schema, filters=wanted, partitioning=None,
                page_checksum_verification=True,
            )  # fmt: skip
            batches.append(rows)
    return pa.concat_tables(batches)


def plain_files(table: DeltaTable, place: str) -> list[TableFile]:
    """Return the files of an opened version, which alone must be its content.

    Args:
        table: The version.
        place: The table's location, for the error.

    Raises:
        UnreadableTableError: It uses deletion vectors, column mapping, or another feature that
            files can't show.
        DamagedLakeError: The log's entry of a file is not valid.
    """
    refuse_features(table, place)
    return files_of(table)


def refuse_features(table: DeltaTable, place: str) -> None:
    """Refuse a version whose content is not its files alone.

    Args:
        table: The version.
        place: The table's location, for the error.

    Raises:
        UnreadableTableError: It uses deletion vectors, column mapping, or another feature that
            files can't show.
    """
    features = set(table.protocol().reader_features or ()) - READABLE_FEATURES
    if features or table.protocol().min_reader_version == 2:
        names = ", ".join(sorted(features)) or "columnMapping"
        raise UnreadableTableError(
            f"the table uses {names}, so its files alone do not tell its content",
            place=place,
            remedy="ALTER TABLE ... DROP FEATURE it, or REORG TABLE ... APPLY (PURGE)",
        )


def files_of(table: DeltaTable) -> list[TableFile]:
    """Return the files of an opened version.

    Raises:
        DamagedLakeError: The log's entry of a file is not valid.
    """
    actions = file_actions(table)
    columns = set(actions.schema.names)
    paths, sizes = actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist()
    rows = actions.column("num_records").to_pylist() if "num_records" in columns else []
    names = [name for name in actions.schema.names if name.startswith("partition.")]
    values = actions.column(names[0]).to_pylist() if names else []
    key_groups = [
        actions.column(name).to_pylist() if name in columns else [None] * len(paths)
        for name in ("min.key_group", "max.key_group")
    ]
    try:
        return [
            TableFile(
                path,
                int(size),
                -1 if not rows or rows[i] is None else int(rows[i]),
                -1 if not values or values[i] is None else int(values[i]),
                None if least is None or most is None else (int(least), int(most)),
            )
            for i, (path, size, least, most) in enumerate(
                zip(paths, sizes, *key_groups, strict=True)
            )
        ]
    except (TypeError, ValueError) as error:
        raise _unreadable(f"no file of ours ({error})", table.table_uri) from error


def _unreadable(problem: str, place: str) -> DamagedLakeError:
    return DamagedLakeError(" ".join(problem.split()), place=place)


def _properties(attempt: str, snapshot: str) -> CommitProperties:
    """Return properties without delta-rs's retries, which would add files to another writer's."""
    named = {SNAPSHOT_KEY: snapshot} if snapshot else {}
    return CommitProperties(custom_metadata={ATTEMPT_KEY: attempt, **named})
