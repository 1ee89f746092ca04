"""The files of one writer in a shared table: those of its partition.

They are written first; a Delta transaction then adds them, and removes those that they replace.
Commits to other partitions are no conflict, one to the same partition is.
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
        column: The partition column, a string.
        value: Its value in these files.
    """

    table: StateTable
    columns: pa.Schema
    column: str
    value: str

    @property
    def directory(self) -> str:
        """The directory of the files below the table."""
        return f"{DATA_DIRECTORY}/{path_segment(self.value)}"

    def of(self, table: DeltaTable) -> list[PartitionFile]:
        """Return a version's files in the partition, without files elsewhere.

        Raises:
            DamagedLakeError: The log's entry of a file is not valid.
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
        """Yield the rows of a file, at most `rows` at a time.

        Raises:
            CommitError: The file does not exist, or has other content than was written.
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
        """Return the error for content that can't be read."""
        return CommitError(
            problem,
            place=f"{self.table.uri}, {self.column} {self.value}",
            remedy="restore from the last record of the checkpoint log, or from another backend",
        )

    def commit(self, choose: Choose, moment: Transaction) -> int:
        """Commit a version in which the partition has other files.

        Args:
            choose: Returns the files to add and to remove, from the present ones; raises if these
                are not as expected. It may be called again after commits of other writers.
            moment: The transaction that is kept with the commit.

        Returns:
            The version.

        Raises:
            ConflictError: Other writers were first each time.
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
