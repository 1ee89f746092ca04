"""Unpack the pages of a Parquet file: dictionaries as well as values, used or not.

The parts that are not compressed (footers, statistics, page indexes) are searched with the file's
own bytes. Encodings that change the bytes of values (deltas, byte streams) are decoded by Arrow.

Source: `parquet.thrift` of parquet-format 2.10.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from statelake.pipelines.lake.tables.parquet_bounds import (
    ABOUT,
    DATA_V2,
    DICTIONARY,
    ENCODING,
    KIND,
    PACKED,
    UNPACKED,
    open_parquet,
)
from statelake.pipelines.lake.tables.thrift_compact import TRUE, Fields, read_struct
from statelake.state_core.errors import DamagedLakeError
from statelake.state_core.nested import leaves

AS_THEY_ARE = {0, 2, 3, 4, 8}  # PLAIN, dictionaries, runs, bits
BETWEEN = b"\n"  # separates texts, so that no match extends into the next one
_TEXTS = (
    pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary,
)  # fmt: skip
LARGEST_PAGE = 1 << 30


def pages_of(data: pa.Buffer) -> Iterator[tuple[str, pa.Buffer | bytes]]:
    """Yield the contents of all pages, each with its name.

    Args:
        data: A whole file.

    Raises:
        DamagedLakeError: The file can't be read.
    """
    try:
        file = open_parquet(pa.BufferReader(data), "a Parquet file")
        for group in range(file.num_row_groups):
            row_group = file.metadata.row_group(group)
            for index in range(row_group.num_columns):
                yield from _pages(data, file, group, row_group.column(index))
    except (OSError, pa.ArrowException, IndexError, ValueError, KeyError) as error:
        raise DamagedLakeError(f"not a readable Parquet file ({error})") from error


def _pages(data: pa.Buffer, file: Any, group: int, column: Any) -> Iterator[tuple[str, Any]]:
    """Yield the pages of a column of a row group, and its values if an encoding changes bytes."""
    name = f"row group {group}, {column.path_in_schema}"
    starts = (column.dictionary_page_offset, column.data_page_offset)
    at = min(start for start in starts if start)
    end = at + column.total_compressed_size
    view = memoryview(data).cast("B")
    codec = None if column.compression == "UNCOMPRESSED" else pa.Codec(_codec(column.compression))
    coded = False
    while at < end:
        header, length = read_struct(view[at:])
        packed, size = header[PACKED][1], header[UNPACKED][1]
        body = at + length
        behind = body + packed
        if behind > data.size:
            raise ValueError("a page beyond the end of the file")
        levels, encoding, compressed = _layout_of(header)
        coded |= encoding not in AS_THEY_ARE
        what = "dictionary" if header[KIND][1] == DICTIONARY else "page"
        if codec is None or not compressed:
            yield f"{name}, {what}", data.slice(body, packed)
        elif size > LARGEST_PAGE:
            raise ValueError(f"a page of {size} bytes")
        elif size > levels:
            piece = data.slice(body + levels, packed - levels)
            yield f"{name}, {what}", codec.decompress(piece, size - levels)
        at = behind
    if coded:
        table = file.read_row_group(group, columns=[column.path_in_schema])
        for leaf in (leaf for chunk in table.column(0).chunks for leaf in leaves(chunk)):
            yield f"{name}, values", _values(leaf.values)


def _values(leaf: pa.Array) -> pa.Buffer | bytes:
    """Return the bytes of a leaf array's values."""
    if pa.types.is_dictionary(leaf.type):
        leaf = leaf.dictionary_decode()
    if any(is_text(leaf.type) for is_text in _TEXTS):
        return BETWEEN.join(leaf.cast(pa.large_binary()).drop_null().to_pylist())
    return (leaf.nbytes and leaf.buffers()[1]) or b""


def _layout_of(header: Fields) -> tuple[int, int, bool]:
    """Return a page's number of leading plain bytes, its encoding, and if its rest is packed."""
    kind = header[KIND][1]
    about = header[ABOUT[kind]][1]
    encoding = about[ENCODING[kind]][1]
    if kind != DATA_V2:
        return 0, encoding, True
    packed = about.get(7, (TRUE, None))[0] == TRUE
    return about[5][1] + about[6][1], encoding, packed


def _codec(name: str) -> str:
    return "lz4_raw" if name.startswith("LZ4") else name.lower()
