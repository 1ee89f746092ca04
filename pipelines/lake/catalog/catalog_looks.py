"""Cached reads of the catalog: from an object store, only new entries and files are fetched.

Opening a Delta table there costs a request or two for each entry of its log, and two more for each
file of rows. So a reader gets the table that was opened before, brought up to date; and files,
which are never written again under their names, are fetched once.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from statelake.pipelines.lake.tables.table_log import LOG_DIRECTORY
from statelake.pipelines.lake.tables.tables import open_table
from statelake.state_core.files.filesystem import Directory

MOST_OF_A_FILE = 1 << 20  # of a larger file only the required columns are read
MOST_BYTES = 64 << 20


class CatalogLooks:
    """The cache of the catalog in one process.

    Args:
        directory: The catalog's directory.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._lock = Lock()
        self._table: DeltaTable | None = None
        self._entry = (0.0, 0)  # when the entry of its version was written, and its size
        self._files: OrderedDict[str, pa.Buffer] = OrderedDict()
        self._bytes = 0

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the cache without its contents."""
        return (CatalogLooks, (self._directory,))

    def newest(self) -> DeltaTable | None:
        """Return the newest version of the catalog, only to be read: it is shared.

        Returns:
            The table; None if there is no catalog.

        Raises:
            DamagedLakeError: The log of the catalog can't be read.
        """
        if not self._directory.is_object_store:
            return open_table(self._directory)
        with self._lock:
            if not self._is_up_to_date_after_refresh():
                self._table = open_table(self._directory)
                if self._table is not None:
                    self._entry = self._entry_of(self._table.version())
            return self._table

    def _is_up_to_date_after_refresh(self) -> bool:
        """Bring the open table up to date, and return whether it is still of this log."""
        table = self._table
        if table is None or self._entry_of(table.version()) != self._entry:
            return False  # perhaps another lake at the same location
        version = table.version()
        try:
            table.update_incremental()
        except (DeltaError, OSError):
            return False
        if table.version() != version:
            self._entry = self._entry_of(table.version())
        return True

    def _entry_of(self, version: int) -> tuple[float, int]:
        return self._directory.modified_and_size(f"{LOG_DIRECTORY}/{version:020d}.json")

    def open_file(self, path: str) -> pa.NativeFile:
        """Open a file of rows.

        Raises:
            MissingFileError: The file does not exist.
            UnsafePathError: The file is a link.
            SnapshotError: The file can't be read.
        """
        if not self._directory.is_object_store:
            return self._directory.open_input(path)
        with self._lock:
            data = self._files.get(path)
            if data is not None:
                self._files.move_to_end(path)
        if data is None:
            source = self._directory.source(path)
            if source.size > MOST_OF_A_FILE:
                return self._directory.open_input(path)
            data = pa.py_buffer(source.read_all())
            with self._lock:
                self._bytes += 0 if path in self._files else data.size
                self._files[path] = data
                while self._bytes > MOST_BYTES:
                    self._bytes -= self._files.popitem(last=False)[1].size
        return pa.BufferReader(data)
