"""A DELETE, UPDATE or INSERT as the newest version of its table, without Spark.

The rows of each file are changed by DuckDB, and what has changed is written beside it, as Spark and
delta-rs would; the log is written by delta-rs, in one commit. Until `statelake commit` makes a
snapshot of it, no snapshot has that version.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError

from pipelines.lake.query.literals import without_literals
from pipelines.lake.query.session import QueryError, Session
from pipelines.lake.query.statements import PreparedStatement, Statement
from pipelines.lake.query.table_datasets import OpenedTable
from pipelines.lake.tables.delta_commit import DeltaCommit
from pipelines.lake.tables.names import new_edited_file
from pipelines.lake.tables.tables import TableFile
from pipelines.lake.tables.units import KEY_GROUP
from state_core.errors import ConflictError, StateError

__all__ = ["change_table"]

STATEMENT_KEY = "statelake.statement"  # what a version's log says of it


def change_table(session: Session, statement: Statement) -> int:
    """Carry out a statement over the newest version of its table.

    Args:
        session: What runs it.
        statement: The statement.

    Returns:
        How many rows were deleted, updated or inserted. If none was, there is no new version.

    Raises:
        QueryError: DuckDB refuses the statement, or it moves rows to another partition.
        ConflictError: Somebody else changed the table meanwhile.
        StateError: The table can't be read.
    """
    opened = OpenedTable(session.lake.table(statement.table.path))
    prepared = PreparedStatement(session, statement)
    change = _Change(opened)
    try:
        if statement.kind == "INSERT":
            rows = prepared.inserted(opened.schema)
            change.insert(rows)
            met = len(rows)
        else:
            met = sum(change.apply(prepared, file) for file in opened.files)
    except BaseException:
        change.take_back()
        raise
    if met:
        try:
            change.commit(without_literals(statement.text))
        except ConflictError:
            change.take_back()
            raise
    return met


class _Change:
    """The files that go, and those that come instead."""

    def __init__(self, opened: OpenedTable) -> None:
        self.opened = opened
        self.removed: list[TableFile] = []
        self.added: list[TableFile] = []

    def apply(self, prepared: PreparedStatement, file: TableFile) -> int:
        """Change the rows of a file, and say how many were met."""
        rows = self.opened.rows_of(file).combine_chunks()
        changes = [prepared.change(batch) for batch in rows.to_batches()]
        met = sum(count for _, count in changes)
        if met:
            after = pa.Table.from_batches([batch for batch, _ in changes])
            if prepared.statement.kind == "UPDATE":
                self._check_place(rows, after)
            self.removed.append(file)
            self._write(after, file.partition)
        return met

    def insert(self, rows: pa.Table) -> None:
        """Write rows that are new, each partition's into a file of its own."""
        name = self.opened.partition
        if not name:
            self._write(rows, -1)
            return
        column = rows.column(name)
        if column.null_count:
            raise QueryError(
                f"a row without {name}",
                remedy="give each row its own: key_group(key, max_parallelism) computes key groups",
            )
        for partition in pc.unique(column).to_pylist():
            self._write(rows.filter(pc.equal(column, partition)), partition)

    def _check_place(self, before: pa.Table, after: pa.Table) -> None:
        """Refuse rows that would have to be in another file now."""
        for name in (KEY_GROUP, self.opened.partition):
            if name in before.schema.names and not after.column(name).equals(before.column(name)):
                raise QueryError(
                    f"rows with another {name} than they had",
                    remedy="a row's key group follows from its key: DELETE it, and INSERT another",
                )

    def _write(self, rows: pa.Table, partition: int) -> None:
        if not len(rows):
            return
        name = self.opened.partition
        path = new_edited_file()
        if name:
            path = f"{name}={partition}/{path}"
            rows = rows.drop_columns([name])
        directory = self.opened.table.directory
        self.added.append(TableFile(path, 0, len(rows), partition))
        with directory.open_output(path) as output:
            pq.write_table(rows, output, compression="zstd", compression_level=1)
            size = output.tell()
        self.added[-1] = TableFile(path, size, len(rows), partition)

    def commit(self, statement: str) -> None:
        """Make it the table's next version.

        Raises:
            ConflictError: Somebody else has committed since the table was opened.
        """
        properties = CommitProperties(
            custom_metadata={STATEMENT_KEY: statement}, max_commit_retries=0
        )
        directory, log = self.opened.table.directory, self.opened.log
        columns = pa.schema(log.schema().to_arrow())
        change = DeltaCommit(directory, columns, self.opened.partition or None, properties)
        for file in self.added:
            change.add(file.path, file.size, file.rows, file.partition)
        for file in self.removed:
            change.remove(file.path, file.size, file.partition)
        try:
            change.write(log)
        except CommitFailedError as error:
            raise ConflictError(
                "somebody else changed the table meanwhile",
                place=self.opened.table.uri,
                remedy="try again",
            ) from error

    def take_back(self) -> None:
        """Remove what was written for nothing."""
        for file in self.added:
            with suppress(StateError):
                self.opened.table.directory.delete(file.path)
