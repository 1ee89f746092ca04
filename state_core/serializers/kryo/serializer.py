"""Columns of Kryo's values, alone and within other types.

Of a part of another type (a field of a POJO or a tuple, an element of a list) nothing but the value
itself tells where it ends. If it holds a class whose form is not known, the rest of its row can't
be read: the whole row is null then, with its exact bytes beside it.

UUIDs are decoded a column at a time, and lists of short texts without reading their objects, since
both are frequent.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import EncodeError, StateError, UnknownEndError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I64Array,
    U8Array,
    arrow_buffer,
    validity,
)
from statelake.state_core.serializers.framework.decoders import DecodedSerializer
from statelake.state_core.serializers.kryo.columns import JsonColumn
from statelake.state_core.serializers.kryo.decoding import KryoDecoder
from statelake.state_core.serializers.kryo.graph import Item
from statelake.state_core.serializers.kryo.wire import LAST, KryoVersion

UUID, TEXT, LIST = "java.util.UUID", "java.lang.String", "java.util.ArrayList"
UUID_BYTES, UUID_TEXT = 16, 36
NO_UUID = "00000000-0000-0000-0000-000000000000"
U64Array: TypeAlias = npt.NDArray[np.uint64]
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_HYPHENS = (8, 13, 18, 23)
_DIGITS = np.array([at for at in range(UUID_TEXT) if at not in _HYPHENS])
# two characters or more, of which JSON escapes none
_SHORT_TEXT = rb"[ !#-\[\]-~]{1,62}[\xa0\xa1\xa3-\xdb\xdd-\xfe]"
_WITHOUT_LAST = bytes(byte & ~LAST for byte in range(256))
_MOST_TEXTS = 127  # a count of one byte


def _longs(data: U8Array, at: I64Array, end: I64Array) -> tuple[U64Array, I64Array]:
    """Read a fixed number of each row, low byte first; no number if one does not fit."""
    if (at + 8 > end).any():
        return np.empty(0, np.uint64), at
    return data[at[:, None] + np.arange(8)].view("<u8").ravel(), at + 8


def _zigzags(data: U8Array, at: I64Array, end: I64Array) -> tuple[U64Array, I64Array]:
    """Read a signed number of each row, of variable length; no number if one has another form.

    Returns:
        The numbers, and the positions behind them.
    """
    value = np.zeros(len(at), np.uint64)
    last = np.zeros(len(at), np.uint8)
    more = np.ones(len(at), np.bool_)
    behind = at.copy()
    for index in range(9):
        if (more & (behind >= end)).any():
            return value[:0], at
        byte = data[np.where(more, behind, 0)]
        part = byte if index == 8 else byte & (LAST - 1)  # the ninth byte has eight bits
        value |= np.where(more, part, 0).astype(np.uint64) << np.uint64(7 * index)
        last = np.where(more, byte, last)
        behind += more
        more &= byte >= LAST
    if ((last == 0) & (behind > at + 1)).any():  # longer than it need be
        return value[:0], at
    return value >> np.uint64(1) ^ -(value & np.uint64(1)), behind


class KryoSerializer(DecodedSerializer):
    """A type that Kryo writes, of a class whose form is known.

    Args:
        java_class: The class of the values.
        decoder: The decoder.

    Attributes:
        whole: Whether a value takes all bytes up to its end.
    """

    decoder: KryoDecoder
    whole: ClassVar[bool] = True

    def __init__(self, java_class: str, decoder: KryoDecoder) -> None:
        super().__init__(java_class, decoder)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read a column; UUIDs at once, unless some have another form."""
        column = self._decode_uuids(cursor) if self.java_class == UUID else None
        return super().decode(cursor) if column is None else column

    def _decode_uuids(self, cursor: Cursor) -> pa.Array | None:
        """Read a column of new UUIDs; None, with the cursor where it was, if not all are."""
        older = self.decoder.values.version is KryoVersion.FLINK_1
        head = self._head(Item(UUID, NO_UUID), 2 if older else UUID_BYTES)
        there = np.ones(cursor.rows, np.uint8) if cursor.present.size == 0 else cursor.present
        rows = np.flatnonzero(there)
        start, end = cursor.position[rows], cursor.end[rows]
        at = start + len(head)
        if not head or (at > end).any():
            return None
        if (cursor.data[start[:, None] + np.arange(len(head))] != np.frombuffer(head, "u1")).any():
            return None
        halves = []
        for _ in range(2):
            half, at = _zigzags(cursor.data, at, end) if older else _longs(cursor.data, at, end)
            if len(half) < len(at):
                return None
            halves.append(half)
        if self.whole and (at != end).any():
            return None
        digits = np.stack(halves, 1).astype(">u8").view(np.uint8)
        text = np.full((len(start), UUID_TEXT), ord("-"), np.uint8)
        text[:, _DIGITS[::2]] = _HEX[digits >> 4]
        text[:, _DIGITS[1::2]] = _HEX[digits & 15]
        cursor.position[rows] = at
        offsets = np.concatenate(([0], np.cumsum(there * np.int64(UUID_TEXT)))).astype(np.int32)
        bitmap, nulls = validity(cursor.present)
        buffers = [bitmap, arrow_buffer(offsets), arrow_buffer(text)]
        return pa.Array.from_buffers(pa.string(), cursor.rows, buffers, nulls)

    def _head(self, item: Item, behind: int) -> bytes:
        """Return the bytes of an object in front of its last ones; empty if it has no known form.

        Args:
            item: The object.
            behind: The number of the last bytes.
        """
        try:
            return self.decoder.values.write(item, self.decoder.values.version)[:-behind]
        except EncodeError:
            return b""

    @cached_property
    def _texts(self) -> tuple[re.Pattern[bytes], bytes] | None:
        """A pattern of lists of short texts, and the head of each text; None without such lists."""
        older = self.decoder.values.version is KryoVersion.FLINK_1
        if not older or not isinstance(self.decoder.column, JsonColumn):
            return None
        head = self._head(Item(LIST, []), 1)
        text = self._head(Item(LIST, [Item(TEXT, "ab")]), 2)[len(head) + 1 :]
        if not head or not text:
            return None
        texts = b"((?:" + re.escape(text) + _SHORT_TEXT + b")*)"
        return re.compile(re.escape(head) + b"([\\x00-\\x7f])" + texts), text

    def _decode_values(self, cursor: Cursor) -> list[Any]:
        """Read lists of short texts as JSON by their pattern, and all else value by value."""
        if self._texts is None:
            return super()._decode_values(cursor)
        pattern, text = self._texts
        data = cursor.data.data
        positions, ends = cursor.position.tolist(), cursor.end.tolist()
        present = cursor.present.tolist() or [1] * cursor.rows
        values: list[Any] = [None] * cursor.rows
        other = []
        for row in range(cursor.rows):
            if not present[row]:
                continue
            found = pattern.match(data, positions[row], ends[row])
            texts = b"" if found is None else found[2]
            known = found is not None and texts.count(text) == found[1][0]
            if found is None or not known or (self.whole and found.end() != ends[row]):
                other.append(row)
                continue
            joined = texts.translate(_WITHOUT_LAST).replace(text, b'", "')
            values[row] = (b'["' + joined[4:] + b'"]').decode() if joined else "[]"
            positions[row] = found.end()
        cursor.position[:] = positions
        if other:
            rows = np.array(other)
            part = Cursor(cursor.data, cursor.position[rows], cursor.end[rows], cursor.place)
            for row, value in zip(other, super()._decode_values(part), strict=True):
                values[row] = value
            cursor.position[rows] = part.position
            cursor.inexact[rows] |= part.inexact
            if part.present.size:
                cursor.lose(rows[part.present == 0])
        return values


class NestedKryoSerializer(KryoSerializer):
    """A part of another type that Kryo writes."""

    whole = False

    def __init__(self, java_class: str, decoder: KryoDecoder) -> None:
        super().__init__(java_class, decoder)
        self.self_delimiting = True

    def read(self, source: DataInput) -> Any:
        """Read one value; None if its column can't hold it."""
        start = source.position
        item = self._next(source)
        return self.decoder.show(item, source.position - start)

    def skip(self, source: DataInput) -> None:
        """Move behind one value."""
        self._next(source)

    def _next(self, source: DataInput) -> Item | None:
        values = self.decoder.values
        try:
            return values.read_next(source, values.version)
        except StateError as error:
            raise UnknownEndError(
                f"{error.problem}, so that the end of this {self.java_class} is not known",
                place=error.place,
                remedy=error.remedy,
            ) from error
