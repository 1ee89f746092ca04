"""Export one slice: rows of some key groups become a part of a keyed file.

Plain functions of a task, as in `import_slice`. If the max parallelism stays, key groups go
straight from their tables into the file. If it changes, or keys are masked, every key gets a new
key group: then slices of the source sort their entries by new key group into spill files, and
parts of the target are assembled from these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from statelake.pipelines.lake.export.large_groups import GroupPiece, encoded_piece, piece_rows
from statelake.pipelines.lake.share.sharing import SampleAndMasks
from statelake.pipelines.lake.tables.table_rows import TableReader
from statelake.pipelines.times import phase, phase_of_each
from statelake.state_core.errors import UnknownHashError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.layout.meta_info import KeyedHeader, parse_keyed_header
from statelake.state_core.formats.writing.rehash import check_key_groups, rehash_rows
from statelake.state_core.formats.writing.spills import (
    PlannedPart,
    Spill,
    gathered_groups,
    spill_rows,
)
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.formats.writing.writer import KeyedPart, encoded_groups, write_keyed_part
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.key_groups import prefix_bytes

__all__ = [
    "AssembleTask",
    "ShuffleTask",
    "Spill",
    "WriteTask",
    "assemble_part",
    "slice_name",
    "spill_slice",
    "write_part",
]


@dataclass(frozen=True)
class WriteTask:
    """Task: write key groups whose numbers stay.

    Attributes:
        directory: The directory of the part.
        attempt: The beginning of the part's name.
        header: The header of the file, if the part begins with it.
        tables: The operator's tables.
        chunks: The key groups, in chunks that fit into memory; a large one in pieces.
        max_parallelism: The number of key groups.
        compressed: Whether key groups are compressed.
        shared: How rows are sampled and masked; None if they stay.
    """

    directory: str
    attempt: str
    header: bytes
    tables: tuple[TableReader, ...]
    chunks: tuple[KeyGroupRange | GroupPiece, ...]
    max_parallelism: int
    compressed: bool
    shared: SampleAndMasks | None = None


def write_part(task: WriteTask) -> KeyedPart:
    """Write one part.

    Raises:
        EncodeError: A serializer can't write a value.
        LakeError: A table can't be read.
    """
    directory = Directory(task.directory).confined()
    return write_keyed_part(
        directory, _header(task.header), _encoded(task),
        compressed=task.compressed, attempt=task.attempt,
    )  # fmt: skip


def _encoded(task: WriteTask) -> Iterator[tuple[int | None, memoryview]]:
    """Yield each key group with its bytes; None for more bytes of the one before."""
    for chunk in task.chunks:
        if isinstance(chunk, GroupPiece):
            if chunk.begins_group:  # the piece itself may have no row
                yield chunk.key_group, memoryview(b"")
            for data in phase_of_each("read and encoded", encoded_piece(chunk)):
                yield None, data.data
        else:
            with phase("read"):
                read = [rows for table in task.tables for rows in table.read(chunk)]
            with phase("encoded"):
                rows = [_shared(rows, task.shared) for rows in read]
            groups = encoded_groups([rows], prefix_bytes(task.max_parallelism))
            yield from phase_of_each("encoded", groups)


def _shared(rows: StateRows, shared: SampleAndMasks | None) -> StateRows:
    return rows if shared is None else shared.apply(rows)


def _header(encoded: bytes) -> KeyedHeader | None:
    return parse_keyed_header(encoded) if encoded else None


@dataclass(frozen=True)
class ShuffleTask:
    """Task: sort key groups whose entries get new ones, since their number or keys change."""

    directory: str
    attempt: str
    tables: tuple[TableReader, ...]
    chunks: tuple[KeyGroupRange | GroupPiece, ...]
    max_parallelism: int
    new_max_parallelism: int
    shared: SampleAndMasks | None = None


def spill_slice(task: ShuffleTask) -> Spill:
    """Sort entries by their new key group into a spill file.

    Raises:
        KeyGroupError: A key is not in the key group of its hash, so the hash is not known.
    """
    prefix = prefix_bytes(task.new_max_parallelism)
    return spill_rows(Directory(task.directory).confined(), _moved(task), prefix, task.attempt)


def _moved(task: ShuffleTask) -> Iterator[StateRows]:
    for chunk in task.chunks:
        for rows in phase_of_each("read", _rows(task, chunk)):
            try:
                with phase("rehashed"):
                    check_key_groups(rows, task.max_parallelism)
            except UnknownHashError as error:
                if task.shared is None or not task.shared.masks_keys:
                    raise
                raise UnknownHashError(
                    error.problem,
                    place=error.place,
                    remedy="say `keep` of these keys, as nobody knows where masked ones belong",
                ) from error
            with phase("rehashed"):
                moving = _shared(rows, task.shared)
                if len(moving.batch):
                    moving = rehash_rows(moving, task.new_max_parallelism)
            if len(moving.batch):
                yield moving


def _rows(task: ShuffleTask, chunk: KeyGroupRange | GroupPiece) -> Iterator[StateRows]:
    if isinstance(chunk, GroupPiece):
        yield from piece_rows(chunk)
        return
    for table in task.tables:
        yield from table.read(chunk)


@dataclass(frozen=True)
class AssembleTask:
    """Task: assemble a part of new key groups from spill files."""

    directory: str
    attempt: str
    header: bytes
    part: PlannedPart
    key_groups: KeyGroupRange
    compressed: bool


def assemble_part(task: AssembleTask) -> KeyedPart:
    """Write one part from the spill files of `spill_slice`."""
    directory = Directory(task.directory).confined()
    groups = phase_of_each("gathered", gathered_groups(directory, task.part))
    return write_keyed_part(
        directory, _header(task.header), groups, compressed=task.compressed, attempt=task.attempt
    )


def slice_name(task: WriteTask | ShuffleTask | AssembleTask) -> str:
    """Return the name of a slice in messages."""
    if isinstance(task, AssembleTask):
        first, last = task.key_groups.first, task.key_groups.last
        return f"a part of new key groups {first} to {last}"
    tables = ", ".join(table.path for table in task.tables)
    if not task.chunks:
        return tables
    head, tail = task.chunks[0], task.chunks[-1]
    begin = head.key_group if isinstance(head, GroupPiece) else head.first
    end = tail.key_group if isinstance(tail, GroupPiece) else tail.last
    return f"{tables}, key groups {begin} to {end}"
