"""Write Thrift's compact protocol, for footers of Parquet that say what they should not."""

from __future__ import annotations

from typing import Any

from statelake.pipelines.lake.tables.thrift_compact import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    LIST,
    MAP,
    NUMBERS,
    SET,
    SHORT_LIST,
    TRUE,
    Fields,
)


def write_struct(fields: Fields) -> bytes:
    """Write a struct as `read_struct` returns it; nested structs may be written bytes already."""
    out = bytearray()
    _write_struct(fields, out)
    return bytes(out)


def _write_struct(fields: Fields, out: bytearray) -> None:
    before = 0
    for number, (kind, value) in sorted(fields.items()):
        if 0 < number - before < 16:
            out.append((number - before) << 4 | kind)
        else:
            out.append(kind)
            _write_zigzag(number, out)
        before = number
        if kind not in (TRUE, FALSE):
            _write_value(kind, value, out)
    out.append(0)


def _write_value(kind: int, value: Any, out: bytearray) -> None:
    if kind in NUMBERS:
        _write_zigzag(value, out)
    elif kind in (TRUE, FALSE, BYTE):
        out.append(value)
    elif kind == DOUBLE:
        out += value
    elif kind == BINARY:
        _write_varint(len(value), out)
        out += value
    elif kind in (LIST, SET):
        _write_list(value[0], value[1], out)
    elif kind == MAP:
        _write_map(value[0], value[1], value[2], out)
    elif isinstance(value, bytes):
        out += value
    else:
        _write_struct(value, out)


def _write_list(kind: int, elements: list[Any], out: bytearray) -> None:
    count = len(elements)
    out.append(min(count, SHORT_LIST) << 4 | kind)
    if count >= SHORT_LIST:
        _write_varint(count, out)
    for element in elements:
        _write_value(kind, element, out)


def _write_map(keys: int, values: int, pairs: list[tuple[Any, Any]], out: bytearray) -> None:
    _write_varint(len(pairs), out)
    if pairs:
        out.append(keys << 4 | values)
    for key, value in pairs:
        _write_value(keys, key, out)
        _write_value(values, value, out)


def _write_varint(value: int, out: bytearray) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _write_zigzag(value: int, out: bytearray) -> None:
    _write_varint(value << 1 if value >= 0 else (-value << 1) - 1, out)
