"""Files that one writer has in a table which it shares with others: those of a partition.

They are written beside the table first; a Delta transaction then names them, and no longer those
that they replace. Other writers' commits are no conflict, another one's in the same partition is.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction

from statelake.pipelines.lake.tables.delta_commit import DeltaCommit, until_committed
from statelake.pipelines.lake.tables.names import path_segment
from statelake.pipelines.lake.tables.parquet_bounds import open_parquet
from statelake.pipelines.lake.tables.table_log import file_actions
from statelake.pipelines.lake.tables.tables import (
    ATTEMPT_KEY,
    CONFIGURATION,
    DATA_DIRECTORY,
    StateTable,
    create_table,
)
from statelake.state_core.errors import CommitError, DamagedLakeError, MissingFileError


class PartitionFile(NamedTuple):
    """A file: its path below the table, its bytes, its rows."""

    path: str
    size: int
    rows: int


Choose = Callable[[list[PartitionFile]], tuple[Iterable[PartitionFile], Iterable[PartitionFile]]]


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """One partition of a table.

    Attributes:
        table: The table.
        columns: All columns, the partition's included.
        column: The partition's, a string.
        value: What it says in these files.
    """

    table: StateTable
    columns: pa.Schema
    column: str
    value: str

    @property
    def directory(self) -> str:
        """Where the files lie below the table."""
        return f"{DATA_DIRECTORY}/{path_segment(self.value)}"

    def of(self, table: DeltaTable) -> list[PartitionFile]:
        """The files that a version has of it; what lies elsewhere is none of them.

        Raises:
            DamagedLakeError: The log says something of them that can't be.
        """
        actions = file_actions(table)
        if not actions.num_rows:
            return []
        names = ("path", "size_bytes", "num_records", f"partition.{self.column}")
        try:
            rows = zip(*(actions.column(name).to_pylist() for name in names), strict=True)
            return [
                PartitionFile(path, int(size), int(count))
                for path, size, count, value in rows
                if value == self.value and posixpath.dirname(path) == self.directory
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedLakeError(
                f"the log has no file of ours ({error})", place=self.table.uri
            ) from error

    def batches(
        self, file: PartitionFile, columns: pa.Schema, rows: int
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file, so many at a time.

        Raises:
            CommitError: The file does not exist, or is not what was written.
        """
        count, directory = 0, self.table.directory
        try:
            with directory.open_input(file.path) as source:
                place = directory.full(file.path)
                parquet = open_parquet(source, place, page_checksum_verification=True)
                for batch in parquet.iter_batches(rows, columns=columns.names):
                    count += batch.num_rows
                    yield batch.cast(columns)
        except MissingFileError as error:
            raise self.lost(f"{file.path} was removed after a later commit") from error
        except (pa.ArrowException, OSError) as error:
            raise self.lost(f"{file.path} is damaged: {error}") from error
        if count != file.rows:
            raise self.lost(f"{file.path} has {count} rows, not {file.rows}")

    def lost(self, problem: str) -> CommitError:
        """The error of content that can't be read."""
        return CommitError(
            problem,
            place=f"{self.table.uri}, {self.column} {self.value}",
            remedy="restore from the last record of the checkpoint log, or from another backend",
        )

    def commit(self, choose: Choose, moment: Transaction) -> int:
        """Make a version in which the partition has other files.

        Args:
            choose: From the files that it has, those that come and those that go; raises if they
                are not what they should be. It may be asked again when others committed.
            moment: Kept with the commit.

        Returns:
            The version.

        Raises:
            ConflictError: Others kept committing.
        """
        properties = CommitProperties({ATTEMPT_KEY: uuid.uuid4().hex}, app_transactions=[moment])

        def commit() -> int:
            table = self.table.open() or create_table(
                self.table.directory, self.columns,
                partition_by=self.column, configuration=CONFIGURATION,
            )  # fmt: skip
            come, go = choose(self.of(table))
            change = DeltaCommit(self.table.directory, self.columns, self.column, properties)
            for file in come:
                change.add(file.path, file.size, file.rows, self.value)
            for file in go:
                change.remove(file.path, file.size, self.value)
            return change.write(table)

        remedy = "start the task again when they are done"
        return until_committed(commit, self.table.directory, remedy=remedy)
