"""Rows, arrays and maps in Flink SQL's binary format: sections of slots and longer values.

A section is one piece of bytes. By itself in state it has its size in front (`SectionFormat` under
a serializer of `section_data`); within another section a slot has its position (`ReferenceFormat`).

Source: `BinaryRowData`, `BinaryArrayData`, `BinaryMapData` in
`org.apache.flink.table.data.binary`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import check_names
from statelake.state_core.kernels import binary_rows as reading
from statelake.state_core.kernels import binary_rows_encode as writing
from statelake.state_core.kernels.binary_rows import VALUE
from statelake.state_core.nested import elements_of
from statelake.state_core.serializers.composite.collections import (
    entries_of,
    list_array,
    offsets_of,
    without_null_keys,
)
from statelake.state_core.serializers.framework.columns import (
    ALL_PRESENT,
    Cursor,
    I64Array,
    Target,
    U8Array,
    fixed_sizes,
    require_values,
    struct_array,
)
from statelake.state_core.serializers.sql.binary.columns import pad, write_states
from statelake.state_core.serializers.sql.binary.slots import (
    OF_THEIR_OWN,
    SlotFormat,
    SlotPlaces,
    Slots,
)

# Parquet can't store a column without fields
EMPTY_ROW = pa.struct([pa.field("empty", pa.bool_())])


class SectionFormat(ABC):
    """The form of a value that is one section.

    Attributes:
        arrow_type: The type of the column.
    """

    arrow_type: pa.DataType

    @abstractmethod
    def decode(self, cursor: Cursor) -> pa.Array:
        """Read the sections from `cursor.position` to `cursor.end`; the cursor does not move."""

    @abstractmethod
    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the bytes of each section, 0 where it is not present."""

    @abstractmethod
    def encode(self, values: pa.Array, target: Target) -> None:
        """Write each present section at the target, which moves behind it."""


class RowFormat(SectionFormat):
    """A row: its kind, null bits, a slot of 8 bytes for each field, longer values.

    Args:
        names: The fields' names in the column.
        fields: Their formats.
    """

    def __init__(self, names: Sequence[str], fields: Sequence[SlotFormat]) -> None:
        check_names(names, "a field")
        self.names = tuple(names)
        self.fields = tuple(fields)
        self.mask_bytes = (len(fields) + 8 + 63) // 64 * 8
        self.fixed = self.mask_bytes + 8 * len(fields)
        self.arrow_type = EMPTY_ROW
        if fields:
            pairs = zip(self.names, self.fields, strict=True)
            self.arrow_type = pa.struct([pa.field(name, slot.arrow_type) for name, slot in pairs])

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read a struct column."""
        base, end, present = cursor.position, cursor.end, cursor.present
        expected = np.empty(cursor.rows, np.int64)
        failed = reading.open_rows(
            cursor.data, base, end, present, len(self.fields), self.mask_bytes, expected,
            cursor.inexact,
        )  # fmt: skip
        cursor.check(failed, f"a row of {len(self.fields)} fields")
        columns = []
        for index, field in enumerate(self.fields):
            state = np.empty(cursor.rows, np.uint8)
            reading.row_states(cursor.data, base, present, index, state)
            slots = Slots(
                cursor.data, base + (self.mask_bytes + 8 * index), state, base, end, OF_THEIR_OWN,
                expected, 8, cursor.inexact, cursor.place,
            )  # fmt: skip
            columns.append(field.decode(slots))
        reading.close_sections(end, present, expected, cursor.inexact)
        if not columns:
            columns = [pa.nulls(cursor.rows, pa.bool_())]
        return struct_array(self.arrow_type, present, columns, cursor.rows)

    def _columns(self, values: pa.Array) -> list[pa.Array]:
        """Return the columns of the fields, by name."""
        present = {field.name for field in values.type}
        for name in self.names:
            if name not in present:
                raise EncodeError(f"field {name!r} of a row is missing from the column")
        return [values.field(name) for name in self.names]

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the size of the fixed part and of the longer values."""
        require_values(values, present, "row")
        sizes = fixed_sizes(len(values), self.fixed, present)
        for field, column in zip(self.fields, self._columns(values), strict=True):
            more = field.reserve(column, write_states(column, present))
            if more is not None:
                sizes += more
        return sizes

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write rows of kind `+I`, laid out as `BinaryRowWriter` does."""
        sizes = self.sizes(values, target.present)
        base = target.position.copy()
        writing.zero_ranges(target.out, base, sizes)
        behind = base + self.fixed
        for index, (field, column) in enumerate(
            zip(self.fields, self._columns(values), strict=True)
        ):
            state = write_states(column, target.present)
            writing.set_row_nulls(state, index, target.out, base)
            targets = behind.copy()
            more = field.reserve(column, state)
            if more is not None:
                behind += more
            slots = base + (self.mask_bytes + 8 * index)
            field.encode(column, SlotPlaces(target.out, slots, state, base, OF_THEIR_OWN, targets))
        target.position += sizes


class ArrayFormat(SectionFormat):
    """An array: a count, null bits, a slot for each element, longer values."""

    def __init__(self, element: SlotFormat) -> None:
        self.element = element
        self.arrow_type = pa.list_(element.arrow_type)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read a list column."""
        first, items = self.decode_items(cursor)
        return list_array(self.arrow_type, first, cursor.present, items)

    def decode_items(self, cursor: Cursor) -> tuple[I64Array, pa.Array]:
        """Return the start of each row's elements, and the elements of all rows."""
        counts, expected = np.empty(cursor.rows, np.int64), np.empty(cursor.rows, np.int64)
        base, end, width = cursor.position, cursor.end, self.element.width
        failed = reading.open_arrays(
            cursor.data, base, end, cursor.present, width, counts, expected, cursor.inexact
        )
        cursor.check(failed, "an array")
        first = offsets_of(counts)
        total = int(first[-1])
        slots, owner = np.empty(total, np.int64), np.empty(total, np.int64)
        state = np.empty(total, np.uint8)
        reading.spread_arrays(cursor.data, base, counts, first, width, slots, state, owner)
        children = Cursor(cursor.data, slots, slots, cursor.place)
        items = self.element.decode(
            Slots(
                cursor.data, slots, state, base, end, owner, expected, 0, children.inexact,
                cursor.place,
            )
        )  # fmt: skip
        reading.close_sections(end, cursor.present, expected, cursor.inexact)
        cursor.adopt(children, first)
        return first, items

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the size of head, slots and longer values."""
        require_values(values, present, "array")
        first, items = elements_of(values, present)
        return self.item_sizes(first, items, present)

    def item_sizes(self, first: I64Array, items: pa.Array, present: U8Array) -> I64Array:
        """Return the sizes of arrays of these elements."""
        sizes = pad(_head(np.diff(first)) + np.diff(first) * self.element.width)
        if present.size:
            sizes *= present
        more = self.element.reserve(items, write_states(items, ALL_PRESENT))
        if more is not None:
            within = offsets_of(more)
            sizes += within[first[1:]] - within[first[:-1]]
        return sizes

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write arrays, laid out as `BinaryArrayWriter` does."""
        first, items = elements_of(values, target.present)
        self.encode_items(first, items, target)

    def encode_items(self, first: I64Array, items: pa.Array, target: Target) -> None:
        """Write arrays of these elements."""
        sizes = self.item_sizes(first, items, target.present)
        counts, width = np.diff(first), self.element.width
        base = target.position.copy()
        writing.zero_ranges(target.out, base, sizes)
        writing.write_array_heads(counts, target.present, target.out, base)
        state = write_states(items, ALL_PRESENT)
        writing.set_array_nulls(state, first, target.out, base)
        owner = np.repeat(np.arange(len(base)), counts)
        heads = _head(counts)
        slots = (base + heads)[owner] + (np.arange(len(items)) - first[:-1][owner]) * width
        targets = np.zeros(len(items), np.int64)
        more = self.element.reserve(items, state)
        if more is not None:
            within = offsets_of(more)
            behind = base + pad(heads + counts * width)
            targets = behind[owner] + within[:-1] - within[first[:-1]][owner]
        self.element.encode(items, SlotPlaces(target.out, slots, state, base, owner, targets))
        target.position += sizes


class MapFormat(SectionFormat):
    """A map: the size of its keys, an array of them, an array of its values."""

    def __init__(self, key: SlotFormat, value: SlotFormat) -> None:
        self.keys = ArrayFormat(key)
        self.items = ArrayFormat(value)
        self.arrow_type = pa.map_(key.arrow_type, value.arrow_type)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read a map column; a map with a null key is null in it, and inexact."""
        rows = cursor.rows
        starts, middles = np.empty(rows, np.int64), np.empty(rows, np.int64)
        failed = reading.split_maps(
            cursor.data, cursor.position, cursor.end, cursor.present, starts, middles
        )
        cursor.check(failed, "a map")
        halves = [
            Cursor(cursor.data, begin, end, cursor.place, cursor.present, cursor.inexact)
            for begin, end in ((starts, middles), (middles, cursor.end))
        ]
        first, keys = self.keys.decode_items(halves[0])
        second, items = self.items.decode_items(halves[1])
        unlike = np.flatnonzero(np.diff(first) != np.diff(second))
        cursor.check(int(unlike[0]) if unlike.size else -1, "a map of as many values as keys")
        present, first, keys, items = without_null_keys(cursor, first, keys, items)
        kind = self.arrow_type
        pairs = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
        return list_array(kind, first, present, pairs)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return four bytes and those of both arrays."""
        require_values(values, present, "map")
        first, keys, items = entries_of(values, present)
        sizes = self.keys.item_sizes(first, keys, present)
        sizes += self.items.item_sizes(first, items, present)
        return sizes + fixed_sizes(len(values), 4, present)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the array of keys, then the array of values."""
        first, keys, items = entries_of(values, target.present)
        key_sizes = self.keys.item_sizes(first, keys, target.present)
        writing.write_array_heads(key_sizes, target.present, target.out, target.position)
        target.position += fixed_sizes(len(values), 4, target.present)
        self.keys.encode_items(first, keys, target)
        self.items.encode_items(first, items, target)


class ReferenceFormat(SlotFormat):
    """A slot that refers to a section."""

    def __init__(self, section: SectionFormat) -> None:
        self.section = section
        self.arrow_type = section.arrow_type

    def decode(self, slots: Slots) -> pa.Array:
        """Read the column of the sections."""
        starts, ends = slots.locate(inline=False, what="a nested value")
        valid = (slots.state == VALUE).astype(np.uint8)
        present = ALL_PRESENT if valid.all() else valid
        return self.section.decode(
            Cursor(slots.data, starts, ends, slots.place, present, slots.inexact)
        )

    def reserve(self, values: pa.Array, state: U8Array) -> I64Array:
        """Return the size of each section."""
        return pad(self.section.sizes(values, (state == VALUE).astype(np.uint8)))

    def encode(self, values: pa.Array, places: SlotPlaces) -> None:
        """Write the section at its target."""
        valid = (places.state == VALUE).astype(np.uint8)
        sizes = self.section.sizes(values, valid)
        # padding of a map, whose size is not a multiple of 8
        writing.zero_ranges(places.out, places.targets + sizes, pad(sizes) - sizes)
        writing.write_references(
            sizes, places.state, places.slots, places.base, places.owner, places.targets, places.out
        )
        self.section.encode(values, Target(places.out, places.targets.copy(), valid))


def _head(counts: I64Array) -> I64Array:
    """Return the bytes of an array's count and null bits."""
    head: I64Array = 4 + (counts + 31) // 32 * 4
    return head
