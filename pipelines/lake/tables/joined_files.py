"""Join several Parquet files without decoding any: their row groups, and one footer.

Row groups are copied as bytes, or moved behind those of the first file; in the footer, all their
offsets are adjusted. Page indexes have offsets outside the footer, so the footer names no page
index: readers do without. The rest of a footer is kept.

Source: `parquet.thrift` of parquet-format 2.10.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from statelake.pipelines.lake.tables.thrift_compact import (
    I16,
    I64,
    LIST,
    STRUCT,
    Fields,
    read_struct,
    write_struct,
)
from statelake.state_core.errors import DamagedLakeError
from statelake.state_core.files.filesystem import ConfinedDirectory, Directory, FileSource
from statelake.state_core.files.moves import Move
from statelake.state_core.serializers.framework.columns import U8Array

MAGIC = b"PAR1"
TAIL = 8  # u32 length of the footer (little-endian), and the magic
BLOCK_BYTES = 8 << 20
# fields of `FileMetaData`, `RowGroup`, `ColumnChunk` and `ColumnMetaData`
SCHEMA, ROWS, ROW_GROUPS = 2, 3, 4
COLUMNS, GROUP_OFFSET, ORDINAL = 1, 5, 7
METADATA = 3
CHUNK_OFFSET = 2
PAGE_INDEXES = (4, 5, 6, 7)  # offsets and lengths of both indexes
PAGE_OFFSETS = (9, 10, 11, 14)  # data, index, dictionary, Bloom filter
LAST_ORDINAL = (1 << 15) - 1


def join_files(directory: Directory, paths: Sequence[str], path: str) -> int:
    """Write a file with the row groups of others, in their order.

    Args:
        directory: The directory of all of them.
        paths: The files, of one schema.
        path: The new file.

    Returns:
        Its bytes.

    Raises:
        DamagedLakeError: A file is not Parquet, or has another schema.
        SnapshotError: A file can't be read or written.
    """
    joined = _Joined()
    with directory.open_output(path) as out:
        out.write(MAGIC)
        for part in paths:
            source = directory.source(part)
            end = joined.add(source)
            for block in _blocks(source, len(MAGIC), end):
                out.write(block)
        out.write(joined.footer())
        return int(out.tell())


class MovedFiles:
    """Files whose row groups are moved behind those of the first, on a local disk.

    Args:
        directory: The directory of all of them.
        path: The first file.

    Raises:
        DamagedLakeError: A file is not Parquet, or has another schema.
        SnapshotError: A file can't be read.
    """

    def __init__(self, directory: ConfinedDirectory, path: str) -> None:
        self._directory = directory
        self.path = path
        self._joined = _Joined()
        self._joined.add(directory.source(path))

    def add(self, path: str) -> Move:
        """Return the move of the next file, which is empty afterwards; raises as for the first."""
        at = self._joined.size
        end = self._joined.add(self._directory.source(path))
        return Move(self._directory, path, len(MAGIC), end, self.path, at)

    def end(self, path: str) -> tuple[Move, int]:
        """Write the common footer into a new file, and return its move.

        Returns:
            The move, and the bytes of the first file afterwards.

        Raises:
            SnapshotError: The new file can't be written.
        """
        footer, at = self._joined.footer(), self._joined.size
        with self._directory.open_output(path) as out:
            out.write(footer)
        return Move(self._directory, path, 0, len(footer), self.path, at), at + len(footer)


class _Joined:
    """The file into which others are joined.

    Attributes:
        size: Its bytes so far, without a footer.
    """

    def __init__(self) -> None:
        self.size = len(MAGIC)
        self._fields: Fields = {}
        self._row_groups: list[bytes] = []
        self._rows = 0

    def add(self, source: FileSource) -> int:
        """Append the row groups of a file, and return where they end in that file."""
        footer, end = _footer(source)
        self._fields = self._fields or footer
        if footer[SCHEMA] != self._fields[SCHEMA]:
            raise DamagedLakeError("another schema than in the file before", place=source.name)
        try:
            self._rows += footer[ROWS][1]
            for row_group in footer[ROW_GROUPS][1][1]:
                _move(row_group, self.size - len(MAGIC), len(self._row_groups))
                self._row_groups.append(write_struct(row_group))  # takes a fortieth of the memory
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            problem = "a footer that is none of Parquet's"
            raise DamagedLakeError(problem, place=source.name) from error
        self.size += end - len(MAGIC)
        return end

    def footer(self) -> bytes:
        """Return the footer of the file."""
        row_groups = LIST, (STRUCT, self._row_groups)
        data = write_struct({**self._fields, ROWS: (I64, self._rows), ROW_GROUPS: row_groups})
        return data + len(data).to_bytes(4, "little") + MAGIC


def _footer(source: FileSource) -> tuple[Fields, int]:
    """Return a file's footer, and its position."""
    most = source.size - TAIL - len(MAGIC)
    tail = b"" if most < 0 else _read(source, source.size - TAIL, TAIL).tobytes()
    size = int.from_bytes(tail[:4], "little")
    if not tail.endswith(MAGIC) or size > most:
        raise DamagedLakeError("no Parquet", place=source.name)
    begins = source.size - TAIL - size
    try:
        footer, _ = read_struct(_read(source, begins, size).tobytes())
    except ValueError as error:
        raise DamagedLakeError(f"no footer of Parquet ({error})", place=source.name) from error
    if not {SCHEMA, ROWS, ROW_GROUPS} <= footer.keys():
        raise DamagedLakeError("a footer of Parquet that lacks fields", place=source.name)
    return footer, begins


def _move(row_group: Fields, by: int, ordinal: int) -> None:
    """Adjust the offsets of a row group to the new file."""
    _shift(row_group, (GROUP_OFFSET,), by)
    if ORDINAL in row_group:
        row_group[ORDINAL] = I16, min(ordinal, LAST_ORDINAL)
    for chunk in row_group[COLUMNS][1][1]:
        for number in PAGE_INDEXES:
            chunk.pop(number, None)
        _shift(chunk, (CHUNK_OFFSET,), by)
        _shift(chunk[METADATA][1], PAGE_OFFSETS, by)


def _shift(fields: Fields, numbers: Sequence[int], by: int) -> None:
    for number in numbers:
        _, value = fields.get(number, (I64, 0))
        if value:  # 0 means that it is absent
            fields[number] = I64, value + by


def _blocks(source: FileSource, start: int, end: int) -> Iterator[U8Array]:
    for at in range(start, end, BLOCK_BYTES):
        yield _read(source, at, min(BLOCK_BYTES, end - at))


def _read(source: FileSource, start: int, size: int) -> U8Array:
    data = np.empty(size, np.uint8)
    source.read_into(start, data)
    return data
