"""A key group that is too large for one task, written in consecutive pieces.

In the unified format a key group has its states one after the other; each is the state's id and its
entries, the last of which has a flag. So a piece only needs to know whether it begins or ends a
state or the key group, and any executor can write it. A piece is some row groups of a file, or all
of a table's rows of the key group if these are few.

Source: `org.apache.flink.runtime.state.FullSnapshotAsyncWriter`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.pipelines.lake.tables.data_files import table_columns
from statelake.pipelines.lake.tables.file_spans import KEY_GROUP
from statelake.pipelines.lake.tables.records import DataFile
from statelake.pipelines.lake.tables.table_rows import TableReader, open_data_file, typed_rows
from statelake.pipelines.lake.tables.tables import table_directory
from statelake.state_core.errors import LakeError
from statelake.state_core.formats.writing.spills import LAST_OF_RUN
from statelake.state_core.formats.writing.unified_encode import (
    END_OF_KEY_GROUP,
    STATE_ID_BYTES,
    StateRows,
    encode_rows,
)
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.key_groups import prefix_bytes
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.framework.columns import U8Array

ENCODED_BYTES = 8 << 20  # of a row group, encoded at once


@dataclass(frozen=True)
class GroupPiece:
    """Some entries of one key group.

    Attributes:
        key_group: The key group.
        table: Their table; with one file if row groups are given.
        row_groups: The row groups of that file; None for all the table's rows of the key group.
        size: The bytes of those row groups as they are encoded in the file.
        begins_group: Whether the key group begins with it.
        ends_group: Whether it ends with it.
        begins_state: Whether its state begins with it.
        ends_state: Whether its state ends with it.
    """

    key_group: int
    table: TableReader
    row_groups: tuple[int, ...] | None = None
    size: int = 0
    begins_group: bool = False
    ends_group: bool = False
    begins_state: bool = True
    ends_state: bool = True


def plan_pieces(
    tables: Sequence[TableReader], key_group: int, piece_bytes: int
) -> list[GroupPiece]:
    """Cut a key group into pieces of about so many bytes of its files, in order.

    Raises:
        LakeError: A file can't be read.
    """
    pieces: list[GroupPiece] = []
    for table in tables:
        within = table.within(KeyGroupRange(key_group, key_group))
        if within.units:
            pieces += _pieces_of_table(within, key_group, piece_bytes)
    if pieces:
        pieces[0] = replace(pieces[0], begins_group=True)
        pieces[-1] = replace(pieces[-1], ends_group=True)
    return pieces


def _pieces_of_table(table: TableReader, key_group: int, piece_bytes: int) -> list[GroupPiece]:
    uncut = [GroupPiece(key_group, table)]
    kinds = {table.parse(state)[0].kind for _, state in table.states}
    if StateKind.TIMERS in kinds:
        return uncut  # several states in one file
    sizes = [
        (file, row_group, size)
        for file in table.units
        for row_group, size in _row_groups(table, file, key_group).items()
    ]
    if sum(size for _, _, size in sizes) <= piece_bytes or len(sizes) == 1:
        return uncut
    cut: list[tuple[DataFile, list[int], int]] = []
    for file, row_group, size in sizes:
        if cut and cut[-1][0] is file and cut[-1][2] + size <= piece_bytes:
            _, row_groups, total = cut.pop()
            cut.append((file, [*row_groups, row_group], total + size))
        else:
            cut.append((file, [row_group], size))
    return [
        GroupPiece(
            key_group, replace(table, units=(file,)), tuple(row_groups), total,
            begins_state=index == 0, ends_state=index == len(cut) - 1,
        )
        for index, (file, row_groups, total) in enumerate(cut)
    ]  # fmt: skip


def _row_groups(table: TableReader, data_file: DataFile, key_group: int) -> dict[int, int]:
    """Return the row groups that may have rows of a key group, with their bytes in memory."""
    with open_data_file(table.lake, table.path, data_file) as file:
        metadata = file.metadata
        paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
        sizes = {}
        for index in range(metadata.num_row_groups):
            row_group = metadata.row_group(index)
            stats = None
            if KEY_GROUP in paths:
                stats = row_group.column(paths.index(KEY_GROUP)).statistics
            if stats is None or not stats.has_min_max or stats.min <= key_group <= stats.max:
                sizes[index] = row_group.total_byte_size
    return sizes


def encoded_piece(piece: GroupPiece) -> Iterator[U8Array]:
    """Yield the bytes of a piece, at most a row group at a time.

    Raises:
        LakeError: A row group has no row of the key group.
        EncodeError: Its serializer can't write a value.
    """
    prefix = prefix_bytes(piece.table.max_parallelism)
    if piece.row_groups is None:
        for rows in _whole(piece):
            yield _encoded(rows, prefix, begins=True, ends=True)
    else:
        begins, batches = piece.begins_state, _by_row_group(piece, piece.row_groups)
        rows = next(batches)
        for following in batches:
            yield _encoded(rows, prefix, begins=begins, ends=False)
            begins, rows = False, following
        yield _encoded(rows, prefix, begins=begins, ends=piece.ends_state)
    if piece.ends_group:
        yield np.frombuffer(END_OF_KEY_GROUP, np.uint8)


def piece_rows(piece: GroupPiece) -> Iterator[StateRows]:
    """Yield the rows of a piece, a state or a row group at a time; raises as `encoded_piece`."""
    if piece.row_groups is None:
        return _whole(piece)
    return _by_row_group(piece, piece.row_groups)


def _encoded(rows: StateRows, prefix: int, *, begins: bool, ends: bool) -> U8Array:
    """Return the entries of some rows of one state, with its id before and its flag at the end."""
    entries = encode_rows(rows, prefix)
    if ends:
        last = int(entries.key_start[-1]) - prefix
        entries.data[last] |= LAST_OF_RUN
    if not begins:
        return entries.data
    head = np.frombuffer(rows.state.to_bytes(STATE_ID_BYTES, "big"), np.uint8)
    return np.concatenate((head, entries.data))


def _whole(piece: GroupPiece) -> Iterator[StateRows]:
    """Yield all rows of the table in the key group, a state at a time."""
    states: dict[int, list[StateRows]] = {}
    for rows in piece.table.read(KeyGroupRange(piece.key_group, piece.key_group)):
        states.setdefault(rows.state, []).append(rows)
    for parts in states.values():
        batches = pa.Table.from_batches([part.batch for part in parts]).combine_chunks()
        (batch,) = batches.to_batches()
        yield replace(parts[0], batch=batch)


def _by_row_group(piece: GroupPiece, row_groups: Sequence[int]) -> Iterator[StateRows]:
    """Yield the rows of a state, a part of a row group at a time.

    Raises:
        LakeError: A row group has no row of the key group.
    """
    table = piece.table
    ((index, table_state),), (data_file,) = table.states, table.units
    state, layout = table.parse(table_state)
    columns = table_columns(state)
    names = table.partitioning.file_schema(columns).names
    place = table_directory(table.lake, table.path).full(data_file.path)
    with open_data_file(table.lake, table.path, data_file) as file:
        for row_group in row_groups:
            read = file.read_row_group(row_group, columns=names)
            rows = typed_rows(read, data_file, columns, table.partitioning, place)
            matching = pc.equal(rows.column(KEY_GROUP), piece.key_group)
            if not pc.all(matching).as_py():
                rows = rows.filter(matching)
            if not len(rows):
                raise LakeError(
                    f"row group {row_group} has no row of key group {piece.key_group}",
                    place=place,
                    remedy="restore the file from a backup of the lake",
                )
            (batch,) = rows.select(layout.schema.names).combine_chunks().to_batches()
            count = -(-len(batch) * ENCODED_BYTES // max(1, batch.nbytes))
            for first in range(0, len(batch), max(1, count)):
                yield StateRows(index, state.name, layout, batch.slice(first, count))
