"""Bounds on the unpacked size of a lake's Parquet files, checked before anything is unpacked.

A few bytes can stand for any number of rows, or for one value of a gigabyte. A footer may state
anything, so the head of every page is read as well: its number of values, and its unpacked bytes.
If values are written once and used often (dictionaries, shared prefixes), their lengths are added
up without unpacking them.

Honest state may compress as well: a gigabyte of zeros takes 30 kB. So the writer of a lake's files
makes them as long as the bounds require: zeros stand between their last page and their footer.

Source: `parquet.thrift` of parquet-format 2.10.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from statelake.pipelines.lake.tables.parquet_seals import SealingOutput, check_footer
from statelake.pipelines.lake.tables.thrift_compact import Fields, read_struct
from statelake.state_core.bounds import PAGE_BYTES, TABLE_BYTES, TABLE_ROWS
from statelake.state_core.errors import StateError
from statelake.state_core.nested import leaves

# fields of `PageHeader`, and of its header for each kind of page
KIND, UNPACKED, PACKED = 1, 2, 3
DATA, DICTIONARY, DATA_V2 = 0, 2, 3
ABOUT = {DATA: 5, DICTIONARY: 7, DATA_V2: 8}
VALUES = 1
ENCODING = {DATA: 2, DICTIONARY: 2, DATA_V2: 4}
DICTIONARIES, SHARED_BEGINNINGS = {2, 8}, {7}

WIDTHS = {"BOOLEAN": 1 / 8, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
TEXT, FIXED = "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"
OFFSET = 4  # bytes of a text in memory, besides its characters
HEAD_BYTES, LONGEST_HEAD = 256, 1 << 20
MEASURED_ROWS, MEASURED_BYTES = 1 << 16, 1 << 26

WIDENED = 4  # bytes in a page for one in memory, at most: small numbers are stored as wider ones
ZEROS = bytes(1 << 16)


def open_parquet(source: pa.NativeFile, place: str, **options: Any) -> pq.ParquetFile:
    """Open a file of a lake that unpacks to no more than its bytes allow.

    The checksums of its pages are compared as they are read, and its seal now.

    Args:
        source: The file.
        place: Its name in messages.
        options: Options of Arrow's reader.

    Raises:
        OversizedError: It has too many rows, or unpacks to too many bytes.
        OSError, ArrowException: It is not a valid Parquet file, or can't be read.
    """
    try:
        file = pq.ParquetFile(source, page_checksum_verification=True, **options)
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(f"the name of a column is no text ({error})") from error
    check_parquet(file, source, place)
    return file


def parquet_input(data: bytes) -> pa.BufferReader:
    """Return an input of bytes, for `open_parquet`, in memory of Arrow's own.

    A thread of Arrow's may drop the memory after Python has ended, and abort if it was Python's.
    """
    owned = pa.allocate_buffer(len(data))
    np.frombuffer(owned, np.uint8)[:] = np.frombuffer(data, np.uint8)
    return pa.BufferReader(owned)


def check_parquet(file: pq.ParquetFile, source: pa.NativeFile, place: str) -> None:
    """Refuse a file that is damaged, or unpacks to too much: see `open_parquet`."""
    pages = _Pages(file, source, place)
    if pages.is_near:
        check_footer(source)
    try:
        pages.check()
    except (StateError, pa.ArrowException):
        raise
    except (ValueError, KeyError, TypeError) as error:  # the head of a page is not valid Thrift
        raise pa.ArrowInvalid(f"a page's head can't be read ({error})") from error


class BoundedWriter(pq.ParquetWriter):  # type: ignore[misc]  # pyarrow has no types
    """A writer of sealed files that `open_parquet` accepts, however well their rows compress.

    A column of bytes has no statistics: its smallest and largest value are never used, and to
    compute both takes six times the memory of a large one.

    Args:
        output: The file to write.
        schema: Its columns.
        options: Options of Arrow's writer.
    """

    def __init__(self, output: pa.NativeFile, schema: pa.Schema, **options: Any) -> None:
        compared = [field for field in schema if not _is_bytes(field.type)]
        measured = [path for field in compared for path in _leaf_paths(field)]
        self._output = SealingOutput(output)
        self._file = output
        super().__init__(
            pa.PythonFile(self._output, mode="w"), schema, write_statistics=measured,
            write_page_checksum=True, **options,
        )  # fmt: skip
        self._rows = self._bytes = self._largest = 0

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        """Write rows, as one row group or several."""
        super().write_table(table, row_group_size)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        self._largest = max(self._largest, table.nbytes)

    def close(self) -> None:
        """Write the footer, behind as many zeros as are needed."""
        if self.is_open:
            least = max(
                TABLE_ROWS.least_size(self._rows),
                TABLE_BYTES.least_size(self._bytes * WIDENED),
                PAGE_BYTES.least_size(self._largest),
            )
            for at in range(self._file.tell(), least, len(ZEROS)):
                self._output.write(ZEROS[: least - at])
            self._output.begin_footer()
            super().close()
            self._output.seal()


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _leaf_paths(field: pa.Field, above: str = "") -> Iterator[str]:
    """Yield Parquet's names of the columns of a field."""
    path, kind = above + field.name, field.type
    if pa.types.is_struct(kind):
        for child in kind:
            yield from _leaf_paths(child, f"{path}.")
    elif pa.types.is_map(kind):
        yield from _leaf_paths(kind.key_field, f"{path}.key_value.")
        yield from _leaf_paths(kind.item_field, f"{path}.key_value.")
    elif pa.types.is_nested(kind):
        yield from _leaf_paths(kind.value_field.with_name("element"), f"{path}.list.")
    else:
        yield path


class _Pages:
    """The sum of a file's pages, as they are checked."""

    def __init__(self, file: pq.ParquetFile, source: pa.NativeFile, place: str) -> None:
        self.file = file
        self.source = source
        self.place = place
        self.size = source.size()
        # in a store each head would be a request: there, the footer is trusted
        self.is_near = isinstance(source, pa.OSFile | pa.BufferReader | pa.MemoryMappedFile)
        self.unpacked = self.packed = 0

    def check(self) -> None:
        footer = self.file.metadata
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        rows = [group.num_rows for group in groups]
        if min(rows, default=0) < 0 or sum(rows) != footer.num_rows:
            raise pa.ArrowInvalid(f"{footer.num_rows} rows, and {sum(rows)} in its row groups")
        if footer.num_rows > TABLE_ROWS.allowed(self.size):
            raise TABLE_ROWS.exceeded(footer.num_rows, self.place, self.size)
        for index, group in enumerate(groups):
            for column in range(group.num_columns):
                self._column(index, column, group.column(column))

    def _column(self, group: int, column: int, chunk: Any) -> None:
        """Check a column of a row group, and add its size."""
        if chunk.num_values <= 0:  # no reader opens a page of it, and it may have no page
            return
        kind, start = chunk.physical_type, chunk.data_page_offset
        width = self.file.schema.column(column).length if kind == FIXED else WIDTHS.get(kind)
        if chunk.has_dictionary_page:
            start = min(start, chunk.dictionary_page_offset)
        at, end = start, start + chunk.total_compressed_size
        self.packed += chunk.total_compressed_size  # shared bytes count for each column
        if not 0 <= at <= end <= self.size or self.packed > self.size:
            raise pa.ArrowInvalid("a column beyond the end of the file")
        if not self.is_near:
            self._spend(max(chunk.total_uncompressed_size, chunk.num_values * (width or OFFSET)))
            return
        longest, values, encodings = 0, 0, set()
        while at < end:
            head, body = self._head(at, end)
            page, unpacked, packed = (head[field][1] for field in (KIND, UNPACKED, PACKED))
            at = body + packed
            if unpacked < 0 or packed < 0 or at > end:
                raise pa.ArrowInvalid("a page beyond the end of its column")
            if unpacked > PAGE_BYTES.allowed(self.size):
                raise PAGE_BYTES.exceeded(unpacked, self.place, self.size)
            if page not in ABOUT:
                raise pa.ArrowInvalid("a page of an unknown kind")
            about = head[ABOUT[page]][1]
            count = about[VALUES][1] if page != DICTIONARY else 0
            if width is None:
                encodings.add(about[ENCODING[page]][1])
                longest = max(longest, unpacked)
            values += count
            self._spend(max(unpacked, int(count * (width or OFFSET))))
        if values != chunk.num_values:
            raise pa.ArrowInvalid(f"{values} values in the pages of a column of {chunk.num_values}")
        shares = encodings & (DICTIONARIES | SHARED_BEGINNINGS)
        if shares and self.unpacked + values * longest > TABLE_BYTES.allowed(self.size):
            is_coded = bool(shares & SHARED_BEGINNINGS)
            if is_coded and self.file.schema.column(column).max_repetition_level:
                self._spend(values * longest)  # a row may have any number of them
            self._measure(group, chunk, longest if is_coded else 0)

    def _head(self, at: int, end: int) -> tuple[Fields, int]:
        """Return the head of a page, and the position of its bytes."""
        length = HEAD_BYTES
        while True:
            data = self.source.read_at(min(length, end - at), at)
            try:
                head, behind = read_struct(data)
            except ValueError:
                if length >= min(LONGEST_HEAD, end - at):
                    raise
                length *= 16
            else:
                return head, at + behind

    def _measure(self, group: int, chunk: Any, longest: int) -> None:
        """Add the sizes of texts that are written once and used several times.

        Args:
            group: The row group.
            chunk: The column.
            longest: The largest size of a value, if Arrow has to assemble values; otherwise 0.
        """
        texts = [
            column.path
            for column in map(self.file.schema.column, range(len(self.file.schema)))
            if column.physical_type == TEXT
        ]
        file = pq.ParquetFile(
            self.source,
            metadata=self.file.metadata,
            read_dictionary=[] if longest else texts,
            page_checksum_verification=True,
        )
        rows = max(1, MEASURED_BYTES // longest) if longest else MEASURED_ROWS
        for batch in file.iter_batches(rows, [group], [chunk.path_in_schema]):
            for array in batch.columns:
                for leaf in leaves(array):
                    self._spend(_bytes_of(leaf.values))

    def _spend(self, count: int) -> None:
        self.unpacked += count
        if self.unpacked > TABLE_BYTES.allowed(self.size):
            raise TABLE_BYTES.exceeded(self.unpacked, self.place, self.size)


def _bytes_of(array: pa.Array) -> int:
    """Return the bytes of values, each counted as often as it is used."""
    if not pa.types.is_dictionary(array.type):
        return int(array.nbytes)
    return pc.sum(pc.binary_length(array.dictionary).take(array.indices)).as_py() or 0
