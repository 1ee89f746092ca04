"""Cached reads of the catalog: only new entries and files are fetched, and checked.

In an object store, opening a Delta table costs a request or two for each entry of its log, and two
more for each file of rows; on a disk it costs milliseconds. So a reader gets the table that was
opened before, brought up to date; and files, which are never written again under their names, are
read once. On a disk the table is opened again if a file of its log is new, gone or another one, and
a file of rows is read again if its time or size is another one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from statelake.pipelines.lake.tables.log_entries import log_entry
from statelake.pipelines.lake.tables.parquet_bounds import open_parquet, parquet_input
from statelake.pipelines.lake.tables.parquet_seals import check_whole
from statelake.pipelines.lake.tables.table_log import log_files
from statelake.pipelines.lake.tables.tables import open_table
from statelake.state_core.errors import MissingFileError
from statelake.state_core.files.filesystem import Directory

MOST_OF_A_FILE = 1 << 20  # of a larger file only the required columns are read
MOST_BYTES = 64 << 20


class CatalogReader:
    """The cache of the catalog in one process.

    Args:
        directory: The catalog's directory.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._lock = Lock()
        self._table: DeltaTable | None = None
        self._entry = (0.0, 0)  # when the entry of its version was written, and its size
        self._log: list[tuple[str | int, ...]] | None = None  # on a disk: its log's files
        self._files: OrderedDict[tuple[str, float, int], pa.Table] = OrderedDict()
        self._bytes = 0

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the cache without its contents."""
        return (CatalogReader, (self._directory,))

    def newest(self) -> DeltaTable | None:
        """Return the newest version of the catalog, only to be read: it is shared.

        Returns:
            The table; None if there is no catalog.

        Raises:
            DamagedLakeError: The log of the catalog can't be read.
        """
        with self._lock:
            if not self._directory.is_object_store:
                log = log_files(self._directory)
                if self._table is None or log is None or log != self._log:
                    self._table, self._log = open_table(self._directory), log
            elif not self._is_up_to_date_after_refresh():
                self._table = open_table(self._directory)
                if self._table is not None:
                    self._entry = self._entry_of(self._table.version())
            return self._table

    def _is_up_to_date_after_refresh(self) -> bool:
        """Bring the open table up to date, and return whether it is still of this log."""
        table = self._table
        if table is None:
            return False
        version = table.version()
        try:
            table.update_incremental()
            # looked at afterwards: as long as it is there, no later entry was cleaned up
            if self._entry_of(version) != self._entry:
                return False  # perhaps another lake at the same location
            if table.version() != version:
                self._entry = self._entry_of(table.version())
        except (DeltaError, OSError, MissingFileError):
            return False
        return True

    def _entry_of(self, version: int) -> tuple[float, int]:
        return self._directory.modified_and_size(log_entry(version))

    @contextmanager
    def opened(self, path: str, place: str) -> Iterator[pa.Table | pq.ParquetFile]:
        """Open a file of rows: all of a small one, and a large one as a file.

        Args:
            path: Its path below the catalog.
            place: Its name in messages.

        Raises:
            MissingFileError: The file does not exist.
            UnsafePathError: The file is a link.
            SnapshotError: The file can't be read.
            OversizedError: It unpacks to more than its bytes allow.
            OSError, ArrowException: It is not a valid Parquet file.
        """
        key = (path, 0.0, 0)
        if not self._directory.is_object_store:
            key = (path, *self._directory.modified_and_size(path))
        with self._lock:
            rows = self._files.get(key)
            if rows is not None:
                self._files.move_to_end(key)
        if rows is not None:
            yield rows
            return
        source = self._directory.source(path)
        if source.size > MOST_OF_A_FILE:
            with self._directory.open_input(path) as file:
                yield open_parquet(file, place)
            return
        data = parquet_input(source.read_all())
        check_whole(data)
        rows = open_parquet(data, place).read()
        with self._lock:
            self._bytes += 0 if key in self._files else rows.nbytes
            self._files[key] = rows
            while self._bytes > MOST_BYTES:
                self._bytes -= self._files.popitem(last=False)[1].nbytes
        yield rows
