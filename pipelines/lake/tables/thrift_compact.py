"""Read and write Thrift's compact protocol, as far as Parquet's footers need it.

Unknown fields are kept: a struct is its fields by number, each with its kind on the wire.

Source: `doc/specs/thrift-compact-protocol.md` of Apache Thrift.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Fields: TypeAlias = dict[int, tuple[int, Any]]

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
NUMBERS = {I16, I32, I64}
SHORT_LIST = 15
LEVELS = 32


def read_struct(data: bytes) -> tuple[Fields, int]:
    """Read the fields of a struct, and return them with its end.

    Lists are (kind of their elements, elements), maps (kind of keys, kind of values, pairs).

    Raises:
        ValueError: The bytes are not a valid struct.
    """
    try:
        return _Reader(data).struct(0, 0)
    except IndexError:
        raise ValueError("a struct that breaks off") from None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def struct(self, at: int, level: int) -> tuple[Fields, int]:
        fields: Fields = {}
        number = 0
        while True:
            head = self.data[at]
            at += 1
            if not head:
                return fields, at
            kind = head & 0x0F
            if head >> 4:
                number += head >> 4
            else:
                number, at = self._zigzag(at)
            value: Any = None  # the value of a boolean is its kind
            if kind not in (TRUE, FALSE):
                value, at = self._value(kind, at, level + 1)
            fields[number] = kind, value

    def _value(self, kind: int, at: int, level: int) -> tuple[Any, int]:
        if level > LEVELS:
            raise ValueError("a struct of too many levels")
        if kind in NUMBERS:
            return self._zigzag(at)
        if kind in (TRUE, FALSE, BYTE):
            return self.data[at], at + 1
        if kind == DOUBLE:
            return self._bytes(at, 8)
        if kind == BINARY:
            size, at = self._varint(at)
            return self._bytes(at, size)
        if kind in (LIST, SET):
            return self._list(at, level)
        if kind == MAP:
            return self._map(at, level)
        if kind == STRUCT:
            return self.struct(at, level)
        raise ValueError(f"a field of kind {kind}")

    def _list(self, at: int, level: int) -> tuple[Any, int]:
        count, kind = self.data[at] >> 4, self.data[at] & 0x0F
        at += 1
        if count == SHORT_LIST:
            count, at = self._varint(at)
        elements = []
        for _ in range(count):
            element, at = self._value(kind, at, level + 1)
            elements.append(element)
        return (kind, elements), at

    def _map(self, at: int, level: int) -> tuple[Any, int]:
        count, at = self._varint(at)
        if not count:
            return (0, 0, []), at
        keys, values = self.data[at] >> 4, self.data[at] & 0x0F
        at += 1
        pairs = []
        for _ in range(count):
            key, at = self._value(keys, at, level + 1)
            value, at = self._value(values, at, level + 1)
            pairs.append((key, value))
        return (keys, values, pairs), at

    def _bytes(self, at: int, size: int) -> tuple[bytes, int]:
        if size > len(self.data) - at:
            raise IndexError
        return self.data[at : at + size], at + size

    def _varint(self, at: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
        raise ValueError("a number without an end")

    def _zigzag(self, at: int) -> tuple[int, int]:
        value, at = self._varint(at)
        return value >> 1 ^ -(value & 1), at


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
