"""Looks at the catalog: of an object store, only what is new is fetched at each but the first.

Opening a Delta table there costs a request or two for each entry of its log, and each file of rows
two more. So whoever only reads gets the table that was opened before, brought up to date; and
files, which are never written again under their names, are fetched once.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pipelines.lake.tables.table_log import LOG_DIRECTORY
from pipelines.lake.tables.tables import open_table
from state_core.files.filesystem import Directory

__all__ = ["CatalogLooks"]

MOST_FILES = 256
MOST_BYTES = 1 << 20  # a file that is larger is read in the columns that are wanted


class CatalogLooks:
    """What one process has seen of the catalog.

    Args:
        directory: The catalog's.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._lock = Lock()
        self._table: DeltaTable | None = None
        self._modified = 0.0
        self._files: OrderedDict[str, pa.Buffer] = OrderedDict()

    def newest(self) -> DeltaTable | None:
        """The catalog as it is now, to be read alone: others bring it up to date as well.

        Returns:
            None if there is none.

        Raises:
            DamagedLakeError: Its log can't be read.
        """
        if not self._directory.is_object_store:
            return open_table(self._directory)
        with self._lock:
            if not self._brought_up():
                self._table = open_table(self._directory)
                if self._table is not None:
                    self._modified = self._entry_modified(self._table.version())
            return self._table

    def _brought_up(self) -> bool:
        """Whether the table that was opened is still of this log, and shows what is new in it."""
        table = self._table
        if table is None or self._entry_modified(table.version()) != self._modified:
            return False  # perhaps another lake, in the place of the one that was there
        version = table.version()
        try:
            table.update_incremental()
        except (DeltaError, OSError):
            return False
        if table.version() != version:
            self._modified = self._entry_modified(table.version())
        return True

    def _entry_modified(self, version: int) -> float:
        return self._directory.modified(f"{LOG_DIRECTORY}/{version:020d}.json")

    def open_file(self, path: str) -> pa.NativeFile:
        """A file of rows.

        Raises:
            MissingFileError: It is not there.
            UnsafePathError: It is a link.
            SnapshotError: It can't be read.
        """
        if not self._directory.is_object_store:
            return self._directory.open_input(path)
        with self._lock:
            data = self._files.get(path)
        if data is None:
            source = self._directory.source(path)
            if source.size > MOST_BYTES:
                return self._directory.open_input(path)
            data = pa.py_buffer(source.read_all())
            with self._lock:
                self._files[path] = data
                while len(self._files) > MOST_FILES:
                    self._files.popitem(last=False)
        return pa.BufferReader(data)
