"""Sound entries on their way into a new savepoint: a spill file of their bytes."""

from __future__ import annotations

import uuid

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.writing.spills import FILE, GROUP, STATE, Spill, runs_of
from statelake.state_core.formats.writing.unified_encode import LENGTH_BYTES, copy_entries
from statelake.state_core.model.snapshot import Entries


class EntrySpill:
    """A keeper of entries in its own file, which is created with the first entry.

    Args:
        directory: The directory for the file.
        prefix: The length of the key-group prefix in bytes.
    """

    def __init__(self, directory: Directory, prefix: int) -> None:
        self.directory = directory
        self.prefix = prefix
        self.name = f"{uuid.uuid4()}.spill"
        self._file: pa.NativeFile | None = None
        self._runs: list[npt.NDArray[np.int64]] = []
        self._size = 0

    def mark(self) -> int:
        """Return the number of runs kept so far."""
        return len(self._runs)

    def forget(self, mark: int) -> None:
        """Forget later runs; their bytes stay in the file, unused."""
        del self._runs[mark:]

    def keep(self, entries: Entries) -> None:
        """Append entries of one state."""
        if self._file is None:
            self._file = self.directory.open_output(self.name)
        written = copy_entries(entries, self.prefix)
        self._file.write(written.data.data)
        self._runs.append(runs_of(written, LENGTH_BYTES + self.prefix, self._size))
        self._size += len(written.data)

    def close(self) -> None:
        """End: no more entries follow."""
        if self._file is not None:
            self._file.close()

    def spill(self, ids: list[int], groups: set[int]) -> Spill | None:
        """Return the entries of some key groups with new state ids; -1 leaves a state out."""
        if not self._runs:
            return None
        runs = np.concatenate(self._runs)
        runs[:, STATE] = np.array(ids, np.int64)[runs[:, STATE]]
        kept = (runs[:, STATE] >= 0) & np.isin(runs[:, GROUP], list(groups))
        assert runs.shape[1] == FILE  # noqa: S101 - the columns of a spill
        return Spill(self.name, runs[kept], self.prefix)

    def delete(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self.directory.delete(self.name)
