"""Read Thrift's compact protocol, as far as the headers of Parquet's pages need it.

Unknown fields are kept: a struct is a dict of its fields by number, each with its wire type.

Source: `doc/specs/thrift-compact-protocol.md` of Apache Thrift.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Fields: TypeAlias = dict[int, tuple[int, Any]]

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
NUMBERS = {I16, I32, I64}
SHORT_LIST = 15
LEVELS = 32


def read_struct(data: bytes | memoryview) -> tuple[Fields, int]:
    """Read the fields of a struct, and return them with its end.

    Lists are (kind of their elements, elements), maps (kind of keys, kind of values, pairs).

    Raises:
        ValueError: The bytes are not a valid struct.
    """
    try:
        return _CompactReader(data).struct(0, 0)
    except IndexError:
        raise ValueError("a truncated struct") from None


class _CompactReader:
    def __init__(self, data: bytes | memoryview) -> None:
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

    def _bytes(self, at: int, size: int) -> tuple[bytes | memoryview, int]:
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
        raise ValueError("a number that is too long")

    def _zigzag(self, at: int) -> tuple[int, int]:
        value, at = self._varint(at)
        return value >> 1 ^ -(value & 1), at
