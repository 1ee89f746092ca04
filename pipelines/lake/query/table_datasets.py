"""A table as an Arrow dataset, with the files of a snapshot's record or of the table's log.

DuckDB reads such a dataset in many threads, only the columns that a query needs, and only the files
and row groups that its filters leave. On a local disk Arrow gets files that were opened through the
lake's confined directory, and not their paths: no link is followed, even one that is created
meanwhile. Nothing in its threads calls Python, since that would delay the end of a query.
"""

from __future__ import annotations

import errno
from contextlib import suppress

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable

from statelake.pipelines.lake.tables.file_spans import KEY_GROUP
from statelake.pipelines.lake.tables.parquet_bounds import check_parquet
from statelake.pipelines.lake.tables.records import TableRecord
from statelake.pipelines.lake.tables.tables import StateTable, TableFile, log_path, plain_files
from statelake.state_core.errors import LakeError, MissingFileError, StateError

NOT_THERE = "only `statelake drop` may remove files: restore it from a backup of the lake"


class OpenedTable:
    """A table, opened: the files that a snapshot has of it, or those of its newest version.

    Args:
        table: The table.
        recorded: The snapshot's record of it; by default its newest version is opened.
        edits: Whether edits of other engines since the record are included.

    Attributes:
        files: The files.
        schema: The table's columns.
        partition: The partition column; empty without one.

    Raises:
        UnreadableTableError: The table uses a feature of Delta that its files alone do not show.
        DamagedLakeError: The table's log can't be read.
        UnsafePathError: The table names files elsewhere, or there is a link.
    """

    def __init__(
        self, table: StateTable, recorded: TableRecord | None = None, *, edits: bool = False
    ) -> None:
        self.table = table
        log: DeltaTable = table.require(recorded.version if recorded and not edits else None)
        if recorded is None or (edits and table.is_edited(log, recorded.version)):
            self.files = plain_files(log, table.uri)
        else:
            if log.version() != recorded.version:
                log = table.require(recorded.version)
            self.files = [TableFile.of(file) for file in recorded.units]
        self.schema = pa.schema(log.schema().to_arrow())
        self.partition: str = next(iter(log.metadata().partition_columns), "")
        self._format = ds.ParquetFileFormat(
            default_fragment_scan_options=ds.ParquetFragmentScanOptions(
                page_checksum_verification=True
            )
        )

    def dataset(self) -> ds.Dataset:
        """Return a dataset of all rows.

        Raises:
            LakeError: A file is missing, or there are more files than may be open at once.
        """
        return self._dataset(self.files)

    def rows_of(self, file: TableFile) -> pa.Table:
        """Return the rows of one file.

        Raises:
            LakeError: The table can't be read.
        """
        try:
            return self._dataset([file]).to_table()
        except StateError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise self._not_read(file, error) from error

    def damage(self) -> StateError | None:
        """Read all its files, and return the error of the first one that is damaged."""
        try:
            for file in self.files:
                self.rows_of(file)
        except StateError as error:
            return error
        return None

    def _dataset(self, files: list[TableFile]) -> ds.FileSystemDataset:
        fragments = [self._fragment(file) for file in files]
        return ds.FileSystemDataset(
            fragments, self.schema, self._format, self.table.directory.filesystem
        )

    def _fragment(self, file: TableFile) -> ds.ParquetFileFragment:
        directory, path = self.table.directory, log_path(file.path, self.table.uri)
        partition = self._rows_in(file)
        if not directory.local:
            full, filesystem = directory.full(path), directory.filesystem
            # a store is not asked for a known size
            return self._format.make_fragment(full, filesystem, partition, file_size=file.size)
        try:
            source, opened = directory.open_input(path), None
            with suppress(OSError, pa.ArrowException):  # the error is raised when its rows are read
                opened = pq.ParquetFile(source)
            if opened is not None:
                check_parquet(opened, source, directory.full(path))
            return self._format.make_fragment(source, partition_expression=partition)
        except MissingFileError as error:
            raise self._not_read(file, error) from error
        except StateError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise self._not_read(file, error) from error

    def _not_read(self, file: TableFile, error: Exception) -> LakeError:
        many = isinstance(error, OSError) and error.errno == errno.EMFILE
        problem = error.problem if isinstance(error, StateError) else " ".join(str(error).split())
        return LakeError(
            f"a file of the table can't be read ({problem})",
            place=self.table.directory.full(log_path(file.path, self.table.uri)),
            remedy="allow more open files (ulimit -n), or ask for less" if many else NOT_THERE,
        )

    def _rows_in(self, file: TableFile) -> ds.Expression | None:
        """Return a condition that all rows of a file meet, by which a query can skip it."""
        if not self.partition:
            return None
        column = ds.field(self.partition)
        if file.partition < 0:
            return column.is_null()
        rows = column == pa.scalar(file.partition, self.schema.field(self.partition).type)
        if file.key_groups is not None:
            least, most = (pa.scalar(end, pa.int32()) for end in file.key_groups)
            rows &= (ds.field(KEY_GROUP) >= least) & (ds.field(KEY_GROUP) <= most)
        return rows
