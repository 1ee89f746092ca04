"""Export one slice: rows of some key groups become a part of a keyed file.

Plain functions of a task, as in `import_slice`. Where the max parallelism stays, key groups go
straight from their tables into the file. Where it changes every key gets a new key group: then
slices of the source sort their entries by new key group into spill files, and slices of the target
put the pieces together.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.lake.table_rows import TableRows
from state_core.filesystem import Directory
from state_core.formats.meta_info import KeyedHeader, read_keyed_header
from state_core.formats.rehash import check_key_groups, rehash_rows
from state_core.formats.unified_encode import END_OF_KEY_GROUP, encode_rows
from state_core.formats.writer import KeyedPart, encoded_groups, write_keyed_part
from state_core.handles import KeyGroupRange
from state_core.key_groups import prefix_bytes
from state_core.snapshot import Entries
from state_core.wire import DataInput

__all__ = [
    "AssembleTask",
    "ExportTask",
    "ShuffleTask",
    "Spill",
    "assemble_slice",
    "export_slice",
    "shuffle_slice",
]

LAST_OF_RUN = 0x80


@dataclass(frozen=True)
class ExportTask:
    """Key groups that are written as they are.

    Attributes:
        directory: Where the part is to be.
        header: The head of the file, if the part begins with it.
        tables: The operator's tables.
        chunks: The key groups, cut to what is held in memory at once.
        max_parallelism: The number of key groups.
        compressed: Whether key groups are compressed.
    """

    directory: str
    header: bytes
    tables: tuple[TableRows, ...]
    chunks: tuple[KeyGroupRange, ...]
    max_parallelism: int
    compressed: bool


def export_slice(task: ExportTask) -> KeyedPart:
    """Write one part.

    Raises:
        EncodeError: A value that its serializer can't write.
        LakeError: A table can't be read.
    """
    chunks = ([rows for table in task.tables for rows in table.read(one)] for one in task.chunks)
    groups = encoded_groups(chunks, prefix_bytes(task.max_parallelism))
    directory = Directory(task.directory)
    return write_keyed_part(directory, _header(task.header), groups, compressed=task.compressed)


def _header(encoded: bytes) -> KeyedHeader | None:
    return read_keyed_header(DataInput(encoded, "keyed header")) if encoded else None


@dataclass(frozen=True)
class ShuffleTask:
    """Key groups whose entries get new ones."""

    directory: str
    tables: tuple[TableRows, ...]
    chunks: tuple[KeyGroupRange, ...]
    max_parallelism: int
    new_max_parallelism: int


@dataclass(frozen=True)
class Spill:
    """Entries sorted by their new key group, one run a state and key group, in a file.

    Attributes:
        name: The file.
        runs: Rows of key group, state id, start, end, and start of the last entry.
        entries: How many entries it holds.
    """

    name: str
    runs: npt.NDArray[np.int64]
    entries: int

    def within(self, key_groups: KeyGroupRange) -> Spill:
        """Only the runs of some key groups."""
        inside = (self.runs[:, 0] >= key_groups.first) & (self.runs[:, 0] <= key_groups.last)
        return Spill(self.name, self.runs[inside], self.entries)


def shuffle_slice(task: ShuffleTask) -> Spill:
    """Sort entries by their new key group into a spill file.

    Raises:
        KeyGroupError: A key is not in the key group that its hash says, so the hash is not known.
    """
    name = f"{uuid.uuid4()}.spill"
    prefix = prefix_bytes(task.new_max_parallelism)
    found: list[npt.NDArray[np.int64]] = []
    size = entries = 0
    with Directory(task.directory).open_output(name) as file:
        for chunk in task.chunks:
            for rows in (one for table in task.tables for one in table.read(chunk)):
                check_key_groups(rows, task.max_parallelism)
                moved = rehash_rows(rows, task.new_max_parallelism)
                encoded = encode_rows(moved, prefix)
                file.write(encoded.data.data)
                found.append(_runs(encoded, 4 + prefix, size))
                size += len(encoded.data)
                entries += len(rows.batch)
    runs = np.concatenate(found) if found else np.empty((0, 5), np.int64)
    return Spill(name, runs, entries)


def _runs(entries: Entries, head: int, base: int) -> npt.NDArray[np.int64]:
    """The runs of encoded entries, for a spill file in which they begin at `base`."""
    groups = entries.group_of
    first = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))
    last = np.append(first[1:], len(groups)) - 1
    starts = entries.key_start - head + base
    columns = [
        groups[first],
        entries.state_of[first].astype(np.int64),
        starts[first],
        entries.value_end[last] + base,
        starts[last],
    ]
    return np.stack(columns, axis=1)


@dataclass(frozen=True)
class AssembleTask:
    """New key groups that are put together from spill files."""

    directory: str
    header: bytes
    spills: tuple[Spill, ...]
    key_groups: KeyGroupRange
    compressed: bool


def assemble_slice(task: AssembleTask) -> KeyedPart:
    """Write one part from what `shuffle_slice` left."""
    directory = Directory(task.directory)
    groups = _assembled(directory, task)
    return write_keyed_part(directory, _header(task.header), groups, compressed=task.compressed)


def _assembled(directory: Directory, task: AssembleTask) -> Iterator[tuple[int, bytes]]:
    """Each new key group's bytes: its states' runs from all spills, with ids, flags and the end."""
    order: list[tuple[int, int, int, list[int]]] = []
    for index, spill in enumerate(task.spills):
        for group, state, *where in spill.runs.tolist():
            order.append((group, state, index, where))
    order.sort(key=lambda one: one[:3])
    at = 0
    while at < len(order):
        group = order[at][0]
        data = bytearray()
        while at < len(order) and order[at][0] == group:
            state = order[at][1]
            data += state.to_bytes(2, "big")
            last = 0
            while at < len(order) and order[at][:2] == (group, state):
                start, end, last_entry = order[at][3]
                piece = np.empty(end - start, np.uint8)
                directory.read_into(task.spills[order[at][2]].name, start, piece)
                last = len(data) + last_entry - start
                data += piece.data
                at += 1
            data[last + 4] |= LAST_OF_RUN
        yield group, bytes(data + END_OF_KEY_GROUP)
