"""Lists and maps, and the form that a list state takes in the unified format.

Source: `ListSerializer` and `MapSerializer` in `org.apache.flink.api.common.typeutils.base`;
`org.apache.flink.runtime.state.ListDelimitedSerializer`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import EncodeError, UnknownEndError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.kernels import decode, encode, skip
from statelake.state_core.nested import elements_of
from statelake.state_core.serializers.framework.base import TypeSerializer, named, to_int32
from statelake.state_core.serializers.framework.columns import (
    ALL_PRESENT,
    Cursor,
    I64Array,
    Target,
    U8Array,
    arrow_buffer,
    null_rows,
    present_rows,
    require_values,
    validity,
)
from statelake.state_core.serializers.framework.layouts import ByteLayout, repeat, sequence, when
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from statelake.state_core.serializers.framework.registry import register
from statelake.state_core.serializers.framework.snapshots import CompositeTypeSerializerSnapshot


def offsets_of(sizes: I64Array) -> I64Array:
    """Return the starts of consecutive values of these sizes, and the end of the last one."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)))


def locate(cursor: Cursor, counts: I64Array, first: I64Array, element: TypeSerializer) -> Cursor:
    """Return a cursor over the elements of all rows; this one moves behind them.

    A row with an element whose end can't be found is lost: `first` then gives it no elements.

    Args:
        cursor: The cursor, at each row's first element.
        counts: The number of elements of each row.
        first: The index of each row's first element, and the number of all elements.
        element: The serializer of an element.
    """
    total = int(first[-1])
    width = element.wire_length
    if width > 0:
        short = np.flatnonzero(counts * width > cursor.end - cursor.position)
        cursor.check(int(short[0]) if short.size else -1, f"elements of {element.name}")
        starts, ends = np.empty(total, np.int64), np.empty(total, np.int64)
        decode.spread_fixed(cursor.position, counts, first, width, starts, ends)
        cursor.position += counts * width
        return cursor.children(starts, ends)
    program = element.skip_program()
    if program is not None:
        return locate_by_program(cursor, counts, first, program)
    starts, ends = np.empty(total, np.int64), np.empty(total, np.int64)
    unknown = []
    for row in np.flatnonzero(counts).tolist():
        at, end = int(cursor.position[row]), int(cursor.end[row])
        source = DataInput(cursor.data.data[at:end], cursor.place(at))
        try:
            for index in range(int(first[row]), int(first[row + 1])):
                starts[index] = at + source.position
                element.skip(source)
                ends[index] = at + source.position
        except UnknownEndError:
            unknown.append(row)
        cursor.position[row] = at + source.position
    return _without_unknown(cursor, counts, first, np.array(unknown, np.intp), starts, ends)


def locate_by_program(
    cursor: Cursor, counts: I64Array, first: I64Array, program: tuple[int, ...]
) -> Cursor:
    """Locate elements as `locate` does, with the program of `kernels.skip` that walks one."""
    total = int(first[-1])
    starts, ends = np.empty(total, np.int64), np.empty(total, np.int64)
    failed = skip.locate_counted(
        cursor.data, cursor.position, cursor.end, counts, first,
        np.array(program, np.int32), starts, ends,
    )  # fmt: skip
    cursor.check(failed, "elements of variable size")
    unknown = np.flatnonzero(cursor.position == skip.UNKNOWN)
    return _without_unknown(cursor, counts, first, unknown, starts, ends)


def _without_unknown(
    cursor: Cursor,
    counts: I64Array,
    first: I64Array,
    unknown: npt.NDArray[np.intp],
    starts: I64Array,
    ends: I64Array,
) -> Cursor:
    """Return a cursor over the located elements, and lose the rows of unknown ones."""
    if unknown.size:
        cursor.lose(unknown)
        kept = np.ones(cursor.rows, np.int64)
        kept[unknown] = 0
        located = np.repeat(kept, counts) != 0
        starts, ends = starts[located], ends[located]
        first[:] = offsets_of(counts * kept)
    return cursor.children(starts, ends)


def list_array(kind: pa.DataType, first: I64Array, present: U8Array, items: pa.Array) -> pa.Array:
    """Return a list or map column of these elements."""
    bitmap, nulls = validity(present)
    buffers = [bitmap, arrow_buffer(first.astype(np.int32))]
    return pa.Array.from_buffers(kind, len(first) - 1, buffers, nulls, children=[items])


def entries_of(values: pa.Array, present: U8Array) -> tuple[I64Array, pa.Array, pa.Array]:
    """Return offsets from 0, and keys and values of a map column: those of present rows only."""
    first, entries = elements_of(values, present)
    return first, entries.field(0), entries.field(1)


def place_elements(target: Target, first: I64Array, sizes: I64Array) -> Target:
    """Write the counts at the target, and return the targets of the elements behind them."""
    within = offsets_of(sizes)
    encode.write_fixed32(
        np.diff(first).astype(np.int32), target.present, target.out, target.position
    )
    start = target.position - within[first[:-1]]
    positions = np.repeat(start, np.diff(first)) + within[:-1]
    target.position += within[first[1:]] - within[first[:-1]]
    return Target(target.out, positions)


def write_counted(
    target: Target, first: I64Array, elements: pa.Array, element: TypeSerializer
) -> None:
    """Write the counts of lists, each followed by its elements."""
    element.encode(elements, place_elements(target, first, element.sizes(elements, ALL_PRESENT)))


def without_null_keys(
    cursor: Cursor, first: I64Array, keys: pa.Array, items: pa.Array
) -> tuple[U8Array, I64Array, pa.Array, pa.Array]:
    """Drop maps with a null key, which Arrow can't hold: their rows become null and inexact.

    Args:
        cursor: The cursor over the rows of the maps.
        first: The index of each row's first entry, and the number of all entries.
        keys: The keys of all rows.
        items: The values of all rows.

    Returns:
        The presence of rows, and offsets, keys and values without the dropped maps.
    """
    if not keys.null_count:
        return cursor.present, first, keys, items
    nulls = offsets_of(1 - present_rows(keys).astype(np.int64))
    bad = (nulls[first[1:]] > nulls[first[:-1]]).astype(np.uint8)
    cursor.inexact |= bad
    present: U8Array = 1 - bad if cursor.present.size == 0 else (1 - bad) & cursor.present
    counts = np.diff(first)
    kept = pa.array(np.flatnonzero(np.repeat(present, counts)))
    first = offsets_of(counts * present.astype(np.int64))
    return present, first, keys.take(kept), items.take(kept)


BASE = "org.apache.flink.api.common.typeutils.base."


class ListSerializer(TypeSerializer):
    """`List`: an i32 count, then the elements."""

    name = named("List<{element}>")

    def __init__(self, element: TypeSerializer) -> None:
        self.element = element
        self.arrow_type = pa.list_(element.arrow_type)

    @property
    def byte_layout(self) -> ByteLayout:
        """A count of elements."""
        return repeat(self.element)

    def read(self, source: DataInput) -> list[Any]:
        """Read one list."""
        count = source.read_count("list elements", self.element.min_length)
        return [self.element.read(source) for _ in range(count)]

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one list."""
        if not isinstance(value, list):
            raise EncodeError(f"{value!r} is no List")
        out.write_int(len(value))
        for element in value:
            self.element.write(element, out)

    def hash_code(self, value: Any) -> int:
        """Return `List.hashCode`: 1, then `31 * h + hash(element)`."""
        code = 1
        for element in value:
            element_code = 0 if element is None else self.element.hash_code(element)
            code = to_int32(31 * code + element_code)
        return code

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read the counts, then the elements of all rows as one column."""
        counts = cursor.read_counts("list elements", self.element.min_length)
        first = offsets_of(counts)
        children = locate(cursor, counts, first, self.element)
        elements = self.element.decode(children)
        cursor.adopt(children, first)
        return list_array(self.arrow_type, first, cursor.present, elements)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return four bytes and those of the elements."""
        require_values(values, present, self.name)
        first, elements = elements_of(values, present)
        within = offsets_of(self.element.sizes(elements, ALL_PRESENT))
        sizes = within[first[1:]] - within[first[:-1]] + 4
        return sizes * present if present.size else sizes

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the counts, then all elements at their places."""
        first, elements = elements_of(values, target.present)
        write_counted(target, first, elements, self.element)


class DelimitedListSerializer(TypeSerializer):
    """A list as RocksDB and the unified format keep it: elements separated by a comma byte.

    It is never empty, as an empty list has no entry, and is the last part of a value.
    """

    self_delimiting = False
    name = named("List<{element}>")

    def __init__(self, element: TypeSerializer) -> None:
        self.element = element
        self.arrow_type = pa.list_(element.arrow_type)

    def read(self, source: DataInput) -> list[Any]:
        """Read one list, to the end of the bytes."""
        elements = []
        while source.remaining:
            elements.append(self.element.read(source))
            if source.remaining and (source.read_byte() != skip.DELIMITER or not source.remaining):
                raise source.fault("no delimiter between two list elements")
        return elements

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one list."""
        if not isinstance(value, list) or not value:
            raise EncodeError(f"{value!r} is no list of at least one element")
        for index, element in enumerate(value):
            if index:
                out.write_byte(skip.DELIMITER)
            self.element.write(element, out)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read the elements of all rows as one column."""
        program = self.element.skip_program()
        if program is None:
            return super().decode(cursor)
        words = np.array(program, np.int32)
        counts = np.zeros(cursor.rows, np.int64)
        failed = skip.count_delimited(cursor.data, cursor.position, cursor.end, words, counts)
        cursor.check(failed, f"a list of {self.element.name} with delimiters")
        unknown = np.flatnonzero(counts == skip.UNKNOWN)
        if unknown.size:
            cursor.lose(unknown)
            counts[unknown] = 0
        cursor.inexact |= counts == 0  # Flink writes no entry for an empty list
        first = offsets_of(counts)
        starts, ends = np.empty(int(first[-1]), np.int64), np.empty(int(first[-1]), np.int64)
        skip.locate_delimited(cursor.data, cursor.position, cursor.end, first, words, starts, ends)
        children = cursor.children(starts, ends)
        elements = self.element.decode(children)
        children.check_at_end()
        cursor.adopt(children, first)
        cursor.position[:] = cursor.end
        return list_array(self.arrow_type, first, cursor.present, elements)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the bytes of the elements, and one between two."""
        require_values(values, present, self.name)
        first, elements = elements_of(values, present)
        hollow = first[1:] == first[:-1]
        empty = np.flatnonzero(hollow if present.size == 0 else hollow & (present != 0))
        if empty.size:
            raise EncodeError(
                f"row {int(empty[0])} is an empty list, which list state can't hold",
                remedy="delete the row: in Flink an empty list and no list are the same",
            )
        within = offsets_of(self.element.sizes(elements, ALL_PRESENT) + 1)
        sizes: I64Array = within[first[1:]] - within[first[:-1]] - (1 - hollow)
        return sizes

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write all elements at their places, and the delimiters between them."""
        first, elements = elements_of(values, target.present)
        within = offsets_of(self.element.sizes(elements, ALL_PRESENT) + 1)
        counts = np.diff(first)
        filled = counts > 0
        positions = np.repeat(target.position - within[first[:-1]], counts) + within[:-1]
        followed = np.ones(len(elements), np.uint8)
        followed[first[1:][filled] - 1] = 0
        self.element.encode(elements, Target(target.out, positions))
        target.out[positions[followed != 0]] = skip.DELIMITER
        target.position += within[first[1:]] - within[first[:-1]] - filled


class MapSerializer(TypeSerializer):
    """`Map`: an i32 count, then key, null flag and value of each entry.

    Attributes:
        null_flags: Whether there is a null flag in front of each value.
    """

    null_flags: ClassVar[bool] = True
    name = named("Map<{key}, {value}>")

    def __init__(self, key: TypeSerializer, value: TypeSerializer) -> None:
        self.key = key
        self.value = value
        self.arrow_type = pa.map_(key.arrow_type, value.arrow_type)

    def read(self, source: DataInput) -> list[tuple[Any, Any]]:
        """Read one map as a list of pairs."""
        count = source.read_count("map entries", self._entry.min_length)
        return [self._read_entry(source) for _ in range(count)]

    def _read_entry(self, source: DataInput) -> tuple[Any, Any]:
        key = self.key.read(source)
        null = self.null_flags and source.read_boolean()
        return key, None if null else self.value.read(source)

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one map, from a dict or a list of pairs."""
        pairs = list(value.items()) if isinstance(value, dict) else value
        if not isinstance(pairs, list):
            raise EncodeError(f"{value!r} is no Map")
        out.write_int(len(pairs))
        for key, item in pairs:
            self.key.write(key, out)
            if self.null_flags:
                out.write_boolean(item is None)
            if item is not None or not self.null_flags:
                self.value.write(item, out)

    def hash_code(self, value: Any) -> int:
        """Return `Map.hashCode`: the sum of `hash(key) ^ hash(value)`."""
        codes = [
            (0 if key is None else self.key.hash_code(key))
            ^ (0 if item is None else self.value.hash_code(item))
            for key, item in value
        ]
        return to_int32(sum(codes))

    @property
    def _entry(self) -> ByteLayout:
        return sequence(self.key, when(self.value) if self.null_flags else self.value)

    @property
    def byte_layout(self) -> ByteLayout:
        """A count of entries."""
        return repeat(self._entry)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read the counts, then the keys of all rows as one column and the values as another."""
        entry = self._entry
        program = entry.skip_program()
        if program is None:
            return super().decode(cursor)
        counts = cursor.read_counts("map entries", entry.min_length)
        first = offsets_of(counts)
        entries = locate_by_program(cursor, counts, first, program)
        keys = self.key.decode(entries)
        if self.null_flags:
            valued = entries.only(1 - entries.read_flags("a null flag"))
            values = self.value.decode(valued)
            valued.expect_values(values)
        else:
            values = self.value.decode(entries)
        cursor.adopt(entries, first)
        present, first, keys, values = without_null_keys(cursor, first, keys, values)
        struct = pa.StructArray.from_arrays([keys, values], fields=list(_entry_fields(self)))
        return list_array(self.arrow_type, first, present, struct)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return four bytes, and those of each entry with its null flag."""
        require_values(values, present, self.name)
        first, keys, items = entries_of(values, present)
        within = offsets_of(self._entry_sizes(keys, items))
        sizes = within[first[1:]] - within[first[:-1]] + 4
        return sizes * present if present.size else sizes

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the counts, then key, null flag and value of all entries at their places."""
        first, keys, items = entries_of(values, target.present)
        entries = place_elements(target, first, self._entry_sizes(keys, items))
        self.key.encode(keys, entries)
        if not self.null_flags:
            self.value.encode(items, entries)
            return
        flags = null_rows(items).astype(np.uint8)
        encode.write_fixed8(flags, ALL_PRESENT, entries.out, entries.position)
        self.value.encode(items, entries.valued(items))

    def _entry_sizes(self, keys: pa.Array, items: pa.Array) -> I64Array:
        present = present_rows(items) if self.null_flags else ALL_PRESENT
        sizes: I64Array = self.key.sizes(keys, ALL_PRESENT) + self.value.sizes(items, present)
        return sizes + self.null_flags


def _entry_fields(serializer: MapSerializer) -> tuple[pa.Field, pa.Field]:
    kind = serializer.arrow_type
    return kind.key_field, kind.item_field


@register
class ListSerializerSnapshot(CompositeTypeSerializerSnapshot):
    """`ListSerializerSnapshot`, with the snapshot of the element."""

    java_class = f"{BASE}ListSerializerSnapshot"
    arity = 1
    same_bytes = ("org.apache.flink.runtime.state.ArrayListSerializerSnapshot",)

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the serializer of a list; one of bytes if an element may have no bytes."""
        (element,) = nested
        return ListSerializer(element) if element.min_length else OpaqueSerializer(self.java_class)


@register
class MapSerializerSnapshot(CompositeTypeSerializerSnapshot):
    """`MapSerializerSnapshot`, with the snapshots of key and value."""

    java_class = f"{BASE}MapSerializerSnapshot"
    arity = 2

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the serializer of a map; one of bytes if a key may have no bytes."""
        key, value = nested
        return MapSerializer(key, value) if key.min_length else OpaqueSerializer(self.opaque_name)
