"""New versions of Delta tables to which others commit as well.

What a commit adds and removes follows from the version that it saw. So if another writer's came
first, all of it is worked out again: delta-rs must not put it behind the other's by itself, unless
the commit says that others are no conflict.

An object store may take a commit, and its answer be lost. Whoever asks again is told that there is
such a version. So each commit says a token of its own, by which it is found in the log: what is
there is neither written twice nor called another's.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from pipelines.lake.tables.table_log import (
    LOG_DIRECTORY,
    WAITS,
    create_log,
    is_lasting,
    problem_of,
    remedy_of,
)
from state_core.errors import ConflictError, DamagedLakeError, MissingFileError, StateError
from state_core.files.filesystem import Directory

__all__ = ["ATTEMPTS", "DeltaCommit", "until_committed"]

ATTEMPTS = 20
COMMIT_KEY = "statelake.commit"

Result = TypeVar("Result")


class DeltaCommit:
    """The files that one new version of a table adds and removes.

    Args:
        directory: The table's.
        schema: Its columns, the partition column among them.
        partition_by: The partition column, if there is one.
        properties: What is kept with the commit, and how often delta-rs may rebase it.
    """

    def __init__(
        self,
        directory: Directory,
        schema: pa.Schema,
        partition_by: str | None,
        properties: CommitProperties,
    ) -> None:
        self.directory = directory
        self.schema = _delta_schema(schema)
        self.partition_by = [] if partition_by is None else [partition_by]
        self._token = uuid.uuid4().hex
        metadata = {**(properties.custom_metadata or {}), COMMIT_KEY: self._token}
        self.properties = CommitProperties(
            metadata, properties.max_commit_retries, properties.app_transactions
        )
        self._now = int(time.time() * 1000)
        self._added: list[AddAction] = []
        self._removed: list[RemoveAction] = []
        self._paths: list[str] = []

    def add(
        self,
        path: str,
        size: int,
        rows: int,
        partition: object = None,
        key_groups: tuple[int, int] | None = None,
    ) -> None:
        """Add a file.

        Args:
            path: Below the table.
            size: Its bytes.
            rows: Its rows.
            partition: The value of the partition column in it.
            key_groups: The first and the last key group that it has rows of, by which engines
                leave files out.
        """
        file_statistics: dict[str, Any] = {"numRecords": rows}
        if key_groups is not None:
            file_statistics["minValues"], file_statistics["maxValues"] = (
                {"key_group": end} for end in key_groups
            )
            file_statistics["nullCount"] = {"key_group": 0}
        statistics = json.dumps(file_statistics)
        values = self._values(partition)
        self._paths.append(path)
        self._added.append(AddAction(path, size, values, self._now, True, statistics))

    def add_rows(self, path: str, rows: pa.Table, partition: object = None) -> None:
        """Write rows into a new file, and add it.

        Args:
            path: Below the table, of letters that need no escape.
            rows: All rows of one partition.
            partition: The value of the partition column in it.
        """
        stored = [name for name in rows.column_names if name not in self.partition_by]
        with self.directory.open_output(path) as output:
            pq.write_table(rows.select(stored), output, compression="zstd", compression_level=1)
            size = output.tell()
        self.add(path, size, len(rows), partition)

    def remove(self, path: str, size: int, partition: object = None) -> None:
        """Remove a file that the version before has; the arguments are those of `add`."""
        values = self._values(partition)
        self._removed.append(RemoveAction(path, True, self._now, size, values))

    def write(self, table: DeltaTable, *, replace_all: bool = False) -> None:
        """Make a version of a table.

        Args:
            table: The table, as it was when the commit was worked out.
            replace_all: Remove every file that it has, and set its columns.

        Raises:
            CommitFailedError: Another writer came first.
            DeltaError, OSError: The log can't be written.
        """
        self._commit(
            lambda: table.create_write_transaction(
                [*self._added, *self._removed],
                mode="overwrite" if replace_all else "append",
                schema=self.schema,
                partition_by=self.partition_by,
                commit_properties=self.properties,
            ),
            table.version(),
        )

    def create(
        self, configuration: Mapping[str, str | None] | None = None, name: str | None = None
    ) -> None:
        """Make the table, with the files that are added.

        Raises:
            DeltaError: There is one already.
            OSError: The log can't be written.
        """
        self._commit(
            lambda: create_log(
                self.directory,
                self.schema,
                self._added,
                partition_by=self.partition_by,
                configuration=configuration,
                properties=self.properties,
                name=name,
            ),
            -1,
        )

    def _commit(self, commit: Callable[[], None], before: int) -> None:
        """Commit behind a version, unless that was done and its answer lost."""
        # no log names a file that a power cut takes away
        self.directory.sync_files(self._paths)
        self._paths.clear()
        for wait in (*WAITS, None):
            if self._committed(commit, before, last=wait is None):
                return
            time.sleep(wait or 0)

    def _committed(self, commit: Callable[[], None], before: int, *, last: bool) -> bool:
        """Try it; whether the log has it."""
        try:
            commit()
        except StateError:
            raise
        except (DeltaError, OSError) as error:
            if self._is_in_log_after(before):
                return True
            refused = isinstance(error, CommitFailedError) or _says_exists(error)
            if refused or is_lasting(error) or last or self.directory.local:
                raise
            return False
        return True

    def _is_in_log_after(self, version: int) -> bool:
        """Whether the log has this commit behind a version."""
        with suppress(MissingFileError):
            while True:
                version += 1
                data = self.directory.read(f"{LOG_DIRECTORY}/{version:020d}.json")
                if f'"{COMMIT_KEY}":"{self._token}"'.encode() in data:
                    return True
        return False

    def _values(self, partition: object) -> dict[str, str | None]:
        return {column: str(partition) for column in self.partition_by}


def _delta_schema(schema: pa.Schema) -> Schema:
    """The columns as Delta has them.

    Spark's Delta opens no table with times without a zone and a column that is never null, as
    delta-rs leaves the feature of the latter (`invariants`) out of a protocol that has the former's
    (`timestampNtz`). So there the columns may be null, which statelake never writes.
    """
    columns = pa.schema(schema)  # of a table that there is, they come as Delta has them
    if any(map(_has_time_without_zone, columns.types)):
        columns = pa.schema([column.with_nullable(True) for column in columns])
    return Schema.from_arrow(columns)


def _has_time_without_zone(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return any(_has_time_without_zone(kind.field(i).type) for i in range(kind.num_fields))


def until_committed(
    attempt: Callable[[], Result | None],
    directory: Directory,
    *,
    attempts: int = ATTEMPTS,
    remedy: str = "try again when they are done",
) -> Result:
    """Try a commit until no other writer comes first.

    Args:
        attempt: Opens the table, works out what to commit and commits it; None if another writer
            came first, which delta-rs's own errors for that say as well.
        directory: The table's, for the error.
        attempts: How often it is tried.
        remedy: What to do if that was not often enough.

    Returns:
        What the attempt gave.

    Raises:
        ConflictError: Others kept committing.
        DamagedLakeError: The log can't be written, or is gone.
    """
    for _ in range(attempts):
        try:
            result = attempt()
        except CommitFailedError:
            continue
        except StateError:
            raise
        except (DeltaError, OSError) as error:
            if not _says_exists(error):
                raise DamagedLakeError(
                    f"no version can be added to the table ({problem_of(error, directory)})",
                    place=directory.uri,
                    remedy=remedy_of(error, "see whether its log is whole"),
                ) from error
            continue  # another writer created the table at this moment
        if result is not None:
            return result
    raise ConflictError(
        f"others committed {attempts} times while this was tried",
        place=directory.uri,
        remedy=remedy,
    )


def _says_exists(error: Exception) -> bool:
    """Whether the table, or the version, is there already."""
    return "already exists" in str(error)
