"""Columns of Kryo's values, alone and within other types.

Of a part of another type (a field of a POJO or a tuple, an element of a list) nothing but the value
itself tells where it ends. If it holds a class whose form is not known, the rest of its row can't
be read: the whole row is null then, with its exact bytes beside it.

Objects are read many at a time, as tables of their parts.
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.errors import EncodeError, StateError, UnknownEndError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.kernels.encode import copy_pieces
from statelake.state_core.serializers.framework.columns import (
    BoolArray,
    Cursor,
    I64Array,
    Target,
    U8Array,
)
from statelake.state_core.serializers.framework.opaque_values import DecodedSerializer
from statelake.state_core.serializers.kryo.decoding import KryoDecoder
from statelake.state_core.serializers.kryo.graph import Item
from statelake.state_core.serializers.kryo.tables import (
    FEW,
    MarkedTable,
    Parts,
    PlacedTable,
    tables_of,
)
from statelake.state_core.serializers.kryo.uuids import UUID, KryoUuids, uuid_halves, uuid_texts

_measured = threading.local()  # by each thread, the column whose sizes it has asked last


class KryoSerializer(DecodedSerializer):
    """A type that Kryo writes, of a class whose form is known.

    Args:
        java_class: The class of the values.
        decoder: The decoder.

    Attributes:
        to_end: Whether a value takes all bytes up to its end.
    """

    decoder: KryoDecoder
    to_end: ClassVar[bool] = True

    def __init__(self, java_class: str, decoder: KryoDecoder) -> None:
        super().__init__(java_class, decoder)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read a column; UUIDs at once, unless some have another form."""
        column = self._decode_uuids(cursor) if self.java_class == UUID else None
        if column is not None:
            return column
        return self._decode_many(cursor) if cursor.rows >= FEW else super().decode(cursor)

    @cached_property
    def _uuids(self) -> KryoUuids:
        return KryoUuids(self.decoder.values, self.decoder.values.version)

    def _decode_uuids(self, cursor: Cursor) -> pa.Array | None:
        """Read a column of new UUIDs; None, with the cursor where it was, if not all are."""
        rows = slice(None) if cursor.present.size == 0 else np.flatnonzero(cursor.present)
        end = cursor.end[rows]
        uuids = self._uuids.read(cursor.data, cursor.position[rows], end)
        if uuids is None:
            return None
        halves, behind = uuids
        if self.to_end and (behind != end).any():
            return None
        cursor.position[rows] = behind
        return uuid_texts(halves, cursor.present)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the bytes of each row, 0 where it is not present."""
        written = self._bytes(values, present)
        if written is None:
            return super().sizes(values, present)
        _measured.last = (self, values, present, written)
        return written[1]

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write each present row."""
        last, _measured.last = getattr(_measured, "last", None), None
        if last is not None and last[0] is self and last[1] is values and last[2] is target.present:
            written = last[3]  # as measured a moment ago
        else:
            written = self._bytes(values, target.present)
        if written is None:
            super().encode(values, target)
            return
        data, sizes = written
        ends = np.cumsum(sizes)
        copy_pieces(data, ends - sizes, ends, target.out, target.position)

    def _bytes(self, values: pa.Array, present: U8Array) -> tuple[U8Array, I64Array] | None:
        """Return the bytes of many rows, and the size of each; None to write each by itself."""
        rows = np.flatnonzero(present) if present.size else np.arange(len(values))
        chosen = values.take(pa.array(rows)) if present.size else values
        written = self._uuid_bytes(chosen)
        if written is None and len(values) >= FEW:
            written = self._planned_bytes(chosen)
        if written is None:
            return None
        spread = np.zeros(len(values), np.int64)
        spread[rows] = written[1]
        return written[0], spread

    def _uuid_bytes(self, values: pa.Array) -> tuple[U8Array, I64Array] | None:
        """Return the bytes and sizes of UUIDs by Kryo 5.6; None if not all values are UUIDs."""
        if self.java_class != UUID or not self._uuids.head or not pa.types.is_string(values.type):
            return None
        if self._uuids.older:  # kernels write them faster
            return None
        halves = uuid_halves(values)
        return None if halves is None else self._uuids.write(halves)

    def _planned_bytes(self, values: pa.Array) -> tuple[U8Array, I64Array] | None:
        """Return the bytes and sizes of objects; None if their column has no plan."""
        if values.null_count:
            return None
        try:
            values.validate(full=True)  # that all text is UTF-8
            plan = self.decoder.column.plan(values)
            stored = self.decoder.values
            table = PlacedTable(stored.version, stored.table, int(plan.sizes.sum()))
            lines = np.cumsum(plan.sizes) - plan.sizes
            plan.place(table, lines)
        except (EncodeError, pa.ArrowInvalid):  # which writing one by one says better
            return None
        data, sizes, fates = table.written(lines)
        return self._mended(values, data, sizes, fates) if fates.any() else (data, sizes)

    def _mended(
        self, values: pa.Array, data: U8Array, sizes: I64Array, fates: U8Array
    ) -> tuple[U8Array, I64Array]:
        """Return the bytes of all rows: those that are not there yet are written one by one."""
        pieces = np.split(data, np.cumsum(sizes)[:-1])
        for row in np.flatnonzero(fates).tolist():
            written = self.decoder.encode(values[row].as_py())
            pieces[row] = np.frombuffer(written, np.uint8)
        return np.concatenate(pieces), np.array([len(piece) for piece in pieces], np.int64)

    def _decode_many(self, cursor: Cursor) -> pa.Array:
        """Read a column of objects from tables of their parts; the others by themselves.

        An object that is shared, or of a class that kernels do not know, is read by itself.
        """
        rows = np.arange(cursor.rows)
        if cursor.present.size:
            rows = np.flatnonzero(cursor.present)
        starts, limits = cursor.position[rows], cursor.end[rows]
        columns, places = [pa.nulls(1, self.arrow_type)], np.zeros(cursor.rows, np.int64)
        count, left = 1, []
        values = self.decoder.values
        for begin, stop, parts, roots, ends in tables_of(values, cursor.data, starts, limits):
            fine = roots >= 0
            if self.to_end:
                fine &= ends == limits[begin:stop]
            mine = rows[begin:stop]
            known, inexact, column = self._column(
                parts, roots[fine], starts[begin:stop][fine], ends[fine]
            )
            fine[fine] = known
            done = mine[fine]
            cursor.position[done] = ends[fine]
            cursor.inexact[done] |= inexact
            columns.append(column)
            places[done] = count + np.arange(len(done))
            count += len(done)
            left.append(mine[~fine])
        others = np.concatenate(left) if left else np.empty(0, np.int64)
        if others.size:
            part = Cursor(cursor.data, cursor.position[others], cursor.end[others], cursor.place)
            columns.append(super().decode(part))
            cursor.position[others] = part.position
            cursor.inexact[others] |= part.inexact
            if part.present.size:
                cursor.lose(others[part.present == 0])
            places[others] = count + np.arange(len(others))
        return pa.concat_arrays(columns).take(pa.array(places))

    def _column(
        self, parts: Parts, lines: I64Array, starts: I64Array, ends: I64Array
    ) -> tuple[BoolArray, U8Array, pa.Array]:
        """Return which objects a column can be made of, which of these are inexact, and the column.

        Args:
            parts: The table of the objects' parts.
            lines: The line of each.
            starts: Where each begins.
            ends: Where each ends.
        """
        known, same = parts.compared(lines, starts, ends)
        table = MarkedTable.of(parts)
        try:
            column = self.decoder.column.many(table, lines[known])
        except EncodeError:  # half of a character, or a key that is null
            return np.zeros_like(known), np.empty(0, np.uint8), pa.nulls(0, self.arrow_type)
        untold = table.parts.has_within(table.untold, lines[known])
        unfit = table.parts.has_within(table.unfit, lines[known])
        loose = table.parts.has_within(table.loose, lines[known])
        loose |= table.present(lines[known]) == 0  # null is written from its bytes alone
        inexact = (~same[known] | unfit | loose)[~untold].astype(np.uint8)
        fitting = pc.if_else(pa.array(unfit), pa.scalar(None, column.type), column)
        fitting = fitting.filter(pa.array(~untold))
        known[known] = ~untold
        return known, inexact, fitting


class NestedKryoSerializer(KryoSerializer):
    """A part of another type that Kryo writes."""

    to_end = False

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
