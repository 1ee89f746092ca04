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

from statelake.pipelines.lake.tables.table_log import LOG_DIRECTORY
from statelake.pipelines.lake.tables.tables import open_table
from statelake.state_core.files.filesystem import Directory

MOST_OF_A_FILE = 1 << 20  # one that is larger is read in the columns that are wanted
MOST_BYTES = 64 << 20


class CatalogLooks:
    """What one process has seen of the catalog.

    Args:
        directory: The catalog's.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._lock = Lock()
        self._table: DeltaTable | None = None
        self._entry = (0.0, 0)  # when that of its version was written, and its size
        self._files: OrderedDict[str, pa.Buffer] = OrderedDict()
        self._bytes = 0

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes: what was seen stays behind."""
        return (CatalogLooks, (self._directory,))

    def newest(self) -> DeltaTable | None:
        """The catalog as it is now, to be read alone: others bring it up to date as well.

        Returns:
            None if there is none.

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
        """Whether the table that was opened is still of this log, and shows what is new in it."""
        table = self._table
        if table is None or self._entry_of(table.version()) != self._entry:
            return False  # perhaps another lake, in the place of the one that was there
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
        """A file of rows.

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
