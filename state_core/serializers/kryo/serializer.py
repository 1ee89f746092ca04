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
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import EncodeError, StateError, UnknownEndError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.kernels.encode import copy_pieces
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I64Array,
    Target,
    U8Array,
)
from statelake.state_core.serializers.framework.decoders import DecodedSerializer
from statelake.state_core.serializers.kryo.columns import JsonColumn
from statelake.state_core.serializers.kryo.decoding import KryoDecoder
from statelake.state_core.serializers.kryo.graph import Item
from statelake.state_core.serializers.kryo.uuids import UUID, KryoUuids, uuid_halves, uuid_texts
from statelake.state_core.serializers.kryo.wire import LAST, KryoVersion

TEXT, LIST = "java.lang.String", "java.util.ArrayList"
# two characters or more, of which JSON escapes none
_SHORT_TEXT = rb"[ !#-\[\]-~]{1,62}[\xa0\xa1\xa3-\xdb\xdd-\xfe]"
_WITHOUT_LAST = bytes(byte & ~LAST for byte in range(256))
_MOST_TEXTS = 127  # a count of one byte


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

    @cached_property
    def _uuids(self) -> KryoUuids:
        return KryoUuids(self.decoder.values, self.decoder.values.version)

    def _decode_uuids(self, cursor: Cursor) -> pa.Array | None:
        """Read a column of new UUIDs; None, with the cursor where it was, if not all are."""
        rows = slice(None) if cursor.present.size == 0 else np.flatnonzero(cursor.present)
        end = cursor.end[rows]
        found = self._uuids.read(cursor.data, cursor.position[rows], end)
        if found is None:
            return None
        halves, behind = found
        if self.whole and (behind != end).any():
            return None
        cursor.position[rows] = behind
        return uuid_texts(halves, cursor.present)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the bytes of each row, 0 where it is not present."""
        written = self._uuid_bytes(values, present)
        return super().sizes(values, present) if written is None else written[1]

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write each present row; UUIDs at once."""
        written = self._uuid_bytes(values, target.present)
        if written is None:
            super().encode(values, target)
            return
        data, sizes = written
        ends = np.cumsum(sizes)
        copy_pieces(data, ends - sizes, ends, target.out, target.position)

    def _uuid_bytes(self, values: pa.Array, present: U8Array) -> tuple[U8Array, I64Array] | None:
        """Return the bytes of UUIDs, and the size of each row; None if not all rows have one."""
        if self.java_class != UUID or not self._uuids.head or not pa.types.is_string(values.type):
            return None
        rows = None if present.size == 0 else np.flatnonzero(present)
        halves = uuid_halves(values if rows is None else values.take(pa.array(rows)))
        if halves is None:
            return None
        data, sizes = self._uuids.write(halves)
        if rows is None:
            return data, sizes
        spread = np.zeros(len(values), np.int64)
        spread[rows] = sizes
        return data, spread

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
