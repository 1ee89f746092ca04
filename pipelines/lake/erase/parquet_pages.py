"""Unpack the pages of a Parquet file: dictionaries as well as values, used or not.

The parts that are not compressed (footers, statistics, page indexes) are searched with the file's
own bytes. Encodings that change the bytes of values (deltas, byte streams) are decoded by Arrow.

Source: `parquet.thrift` of parquet-format 2.10, and Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from statelake.pipelines.lake.tables.parquet_bounds import open_parquet
from statelake.state_core.errors import DamagedLakeError
from statelake.state_core.nested import leaves

DICTIONARY, DATA_V2 = 2, 3
AS_THEY_ARE = {0, 2, 3, 4, 8}  # PLAIN, dictionaries, runs, bits
BETWEEN = b"\n"  # separates texts, so that no match extends into the next one
_TEXTS = (
    pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary,
)  # fmt: skip
NESTED = 12
LARGEST_PAGE = 1 << 30
LEVELS = 16


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
        header, body = _struct(view, at)
        packed, size = header[3], header[2]
        behind = body + packed
        if behind > data.size:
            raise ValueError("a page beyond the end of the file")
        levels, encoding, compressed = _layout_of(header)
        coded |= encoding not in AS_THEY_ARE
        what = "dictionary" if header[1] == DICTIONARY else "page"
        if codec is None or not compressed:
            yield f"{name}, {what}", data.slice(body, packed)
        elif size > LARGEST_PAGE:
            raise ValueError(f"a page of {size} bytes")
        elif size > levels:
            piece = data.slice(body + levels, packed - levels)
            yield f"{name}, {what}", codec.decompress(piece, size - levels)
        at = behind
    if coded:
        whole = file.read_row_group(group, columns=[column.path_in_schema])
        for leaf in (leaf for chunk in whole.column(0).chunks for leaf in leaves(chunk)):
            yield f"{name}, values", _values(leaf.values)


def _values(leaf: pa.Array) -> pa.Buffer | bytes:
    """Return the bytes of a leaf array's values."""
    if pa.types.is_dictionary(leaf.type):
        leaf = leaf.dictionary_decode()
    if any(is_text(leaf.type) for is_text in _TEXTS):
        return BETWEEN.join(leaf.cast(pa.large_binary()).drop_null().to_pylist())
    return (leaf.nbytes and leaf.buffers()[1]) or b""


def _layout_of(header: dict[int, Any]) -> tuple[int, int, bool]:
    """Return a page's number of leading plain bytes, its encoding, and if its rest is packed."""
    if header[1] == DATA_V2:
        about = header[8]
        return about[5] + about[6], about[4], about.get(7, True)
    about = header[7] if header[1] == DICTIONARY else header.get(5, {})
    return 0, about.get(2, 0), True


def _codec(name: str) -> str:
    return "lz4_raw" if name.startswith("LZ4") else name.lower()


def _struct(data: memoryview, at: int, level: int = 0) -> tuple[dict[int, Any], int]:
    """Return the fields of a struct in Thrift's compact protocol, by number, and its end."""
    if level > LEVELS:
        raise ValueError("a header of too many levels")
    fields: dict[int, Any] = {}
    number = 0
    while True:
        head = data[at]
        at += 1
        if head == 0:
            return fields, at
        kind = head & 0x0F
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(data, at)
        if kind in (1, 2):
            fields[number] = kind == 1
        elif kind == 3:
            at += 1
        elif kind in (4, 5, 6):
            fields[number], at = _integer(data, at)
        elif kind == 7:
            at += 8
        elif kind == 8:
            size, at = _varint(data, at)
            at += size
        elif kind == NESTED:
            fields[number], at = _struct(data, at, level + 1)
        else:
            raise ValueError(f"a header with a field of kind {kind}")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number without an end")


def _integer(data: memoryview, at: int) -> tuple[int, int]:
    """Return a number in zigzag encoding, and its end."""
    value, at = _varint(data, at)
    return value >> 1 ^ -(value & 1), at
