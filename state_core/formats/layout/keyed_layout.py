"""Entries to typed columns and back, for every kind of keyed state.

A `KeyedLayout` describes one state's entries in the unified format: the serializers of the key
bytes and of the value bytes, and the resulting columns::

    key bytes:    key [length] namespace [length] [user key]        (behind the key-group prefix)
    value bytes:  value, list elements joined by commas, one map entry, or nothing for a timer

The lengths are present only if neither key nor namespace is of fixed size. A value that a typed
column can't hold exactly (a lone surrogate, say) is kept beside it: `raw_key` and `raw_value` have
the bytes of those rows only, which are written back while the typed columns are unchanged.

Source: `SerializedCompositeKeyBuilder`, `CompositeKeySerializationUtils`,
`ListDelimitedSerializer` in `org.apache.flink.runtime.state`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import EncodeError, UnsupportedFormatError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.kernels.encode import copy_ranges
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.nested import elements_of, lists_of, same_lists
from statelake.state_core.serializers.basic.numbers import BooleanSerializer, LongSerializer
from statelake.state_core.serializers.composite.collections import DelimitedListSerializer
from statelake.state_core.serializers.composite.wrappers import TtlSerializer, flip_sign
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import (
    ALL_PRESENT,
    MAX_COLUMN_BYTES,
    Cursor,
    I64Array,
    Target,
    U8Array,
    equal_rows,
    fixed_values,
    present_rows,
    validity,
    variable_values,
)
from statelake.state_core.serializers.framework.opaque_values import (
    DecodedSerializer,
    OpaqueSerializer,
)


@dataclass(frozen=True)
class RowPart:
    """A column of an entry's key or value; `present` is 0 where it is left out."""

    serializer: TypeSerializer
    column: pa.Array
    present: U8Array = field(default_factory=lambda: ALL_PRESENT)


class RowWriter:
    """A writer of rows with several columns, each row as one piece of bytes.

    Args:
        parts: The columns, in order.
        rows: The number of rows.
        exact: 1 for rows that are written from `raw` instead.
        raw: Exact bytes.
    """

    def __init__(
        self, parts: list[RowPart], rows: int, exact: U8Array, raw: pa.Array | None
    ) -> None:
        self.raw = raw
        self.exact = exact
        self.sizes: I64Array = np.zeros(rows, np.int64)
        typed = ALL_PRESENT if exact.size == 0 else (1 - exact).astype(np.uint8)
        self.parts = []
        for part in parts:
            present = _both(part.present, typed)
            self.parts.append(RowPart(part.serializer, part.column, present))
            self.sizes += part.serializer.sizes(part.column, present)
        if exact.size:
            self.sizes += OpaqueSerializer().sizes(raw, exact)

    def write(self, out: U8Array, position: I64Array) -> None:
        """Write every row at its position, which moves to the row's end."""
        for part in self.parts:
            part.serializer.encode(part.column, Target(out, position, part.present))
        if self.exact.size:
            OpaqueSerializer().encode(self.raw, Target(out, position, self.exact))

    def to_binary(self) -> pa.Array:
        """Return every row's bytes as a binary column."""
        bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.sizes)))
        out = np.empty(int(bounds[-1]), np.uint8)
        self.write(out, bounds[:-1].copy())
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(out)]
        return pa.Array.from_buffers(pa.large_binary(), len(self.sizes), buffers)


class LengthTrailer(TypeSerializer):
    """The length behind an ambiguous key or namespace: base 256, low byte first, no zero on top.

    Source: `CompositeKeySerializationUtils.writeVariableIntBytes`.
    """

    name = "length"
    arrow_type = pa.int64()

    def read(self, source: DataInput) -> int:
        """Refuse: it is never read alone, as its end depends on the length itself."""
        raise source.fault("a length trailer can't be read without its length")

    def write(self, value: int, out: DataOutput) -> None:
        """Write one length."""
        out.write_bytes(value.to_bytes(max(1, (value.bit_length() + 7) // 8), "little"))

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the size of each length: one to four bytes."""
        sizes = trailer_sizes(fixed_values(values, np.int64))
        return sizes * present if present.size else sizes

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the low bytes of each length."""
        lengths = fixed_values(values, np.int64)
        sizes = trailer_sizes(lengths)
        chosen = np.ones(len(lengths), bool) if target.present.size == 0 else target.present != 0
        for byte in range(int(sizes.max(initial=0))):
            rows = chosen & (sizes > byte)
            target.out[target.position[rows] + byte] = lengths[rows] >> (8 * byte) & 0xFF
        target.position[chosen] += sizes[chosen]


def trailer_sizes(lengths: I64Array) -> I64Array:
    """Return the number of bytes of each length in base 256, at least one."""
    sizes = np.ones(len(lengths), np.int64)
    for shift in (8, 16, 24):
        sizes += lengths >= (1 << shift)
    return sizes


def _both(first: U8Array, second: U8Array) -> U8Array:
    if first.size == 0:
        return second
    return first if second.size == 0 else first & second


KEY_GROUP, TIMESTAMP, KEY, NAMESPACE, USER_KEY, VALUE, TTL = (
    "key_group", "timestamp", "key", "namespace", "user_key", "value", "ttl",
)  # fmt: skip
RAW_KEY, RAW_VALUE = "raw_key", "raw_value"
KEY_COLUMNS = (TIMESTAMP, KEY, NAMESPACE, USER_KEY, RAW_KEY)  # the columns of the key bytes
VALUE_COLUMNS = (VALUE, TTL, RAW_VALUE)  # the columns of the value bytes


@dataclass(frozen=True)
class KeyedLayout:
    """One state's entries as columns.

    Attributes:
        kind: The kind of state.
        key: The key's serializer.
        namespace: The namespace's serializer.
        value: The serializer of the value: a list's element, a map's value. None for timers.
        user_key: The serializer of a map's key; None for other kinds.
        with_ttl: Whether each value carries the time of its last access.
    """

    kind: StateKind
    key: TypeSerializer
    namespace: TypeSerializer
    value: TypeSerializer | None = None
    user_key: TypeSerializer | None = None
    with_ttl: bool = False

    @property
    def ambiguous(self) -> bool:
        """Return whether key and namespace are followed by their lengths."""
        timers = self.kind is StateKind.TIMERS
        return not timers and self.key.length < 0 and self.namespace.length < 0

    @property
    def opaque_key(self) -> bool:
        """Return whether the key's end can't be found: then the column `key` has all key bytes."""
        if self.key.self_delimiting and self.namespace.self_delimiting:
            return False
        fixed = self.namespace.wire_length > 0 and self.user_key is None
        return not (fixed and not self.ambiguous and self.kind is not StateKind.TIMERS)

    def stored_value(self) -> TypeSerializer | None:
        """The serializer of an entry's value bytes (of a map, behind the null flag)."""
        if self.value is None:
            return None
        value = self.value
        if self.kind is not StateKind.LIST and isinstance(value, DecodedSerializer):
            value = value.standing_last()
        stored = TtlSerializer(value) if self.with_ttl else value
        if self.kind is not StateKind.LIST:
            return stored
        if not stored.self_delimiting or stored.min_length == 0:
            return OpaqueSerializer(stored.name)
        return DelimitedListSerializer(stored)

    @property
    def schema(self) -> pa.Schema:
        """The columns, in order."""
        fields = [pa.field(KEY_GROUP, pa.int32(), nullable=False)]
        if self.kind is StateKind.TIMERS:
            fields.append(pa.field(TIMESTAMP, pa.int64()))
        key = pa.binary() if self.opaque_key else self.key.arrow_type
        namespace = pa.string() if self.opaque_key else self.namespace.arrow_type
        fields += [pa.field(KEY, key), pa.field(NAMESPACE, namespace)]
        if self.user_key is not None:
            user_key = pa.binary() if self.opaque_key else self.user_key.arrow_type
            fields.append(pa.field(USER_KEY, user_key))
        stored = self.stored_value()
        if stored is not None and self.value is not None:
            splits = self.with_ttl and not isinstance(stored, OpaqueSerializer)
            of_list = self.kind is StateKind.LIST
            shown = self.value.arrow_type if splits else stored.arrow_type
            fields.append(pa.field(VALUE, pa.list_(shown) if splits and of_list else shown))
            if splits:
                fields.append(pa.field(TTL, pa.list_(pa.int64()) if of_list else pa.int64()))
        fields.append(pa.field(RAW_KEY, pa.binary()))
        if stored is not None:
            fields.append(pa.field(RAW_VALUE, pa.binary()))
        return pa.schema(fields)

    # ----------------------------------------------------------------------- decoding

    def decode(self, entries: Entries, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Return entries of this state as typed columns.

        Args:
            entries: The entries, one per row.
            columns: The columns, in this order; all by default. Keys or values without a selected
                column are not decoded.

        Raises:
            CorruptSnapshotError: A key or value does not match its serializer.
        """
        schema = self.schema
        chosen = set(schema.names if columns is None else columns)
        decoded = {KEY_GROUP: pa.array(entries.group_of.astype(np.int32))}
        if not chosen.isdisjoint(KEY_COLUMNS):
            keys = Cursor(entries.data, entries.key_start.copy(), entries.key_end, entries.place)
            decoded |= self.decode_keys(keys)
        stored = self.stored_value()
        if stored is not None and not chosen.isdisjoint(VALUE_COLUMNS):
            start, end = entries.value_start, entries.value_end
            values = Cursor(entries.data, start.copy(), end, entries.place)
            names = [name for name in schema.names if name in VALUE_COLUMNS[:-1]]
            decoded |= zip(names, self._decode_value(values, stored), strict=True)
            decoded[RAW_VALUE] = raw_column(values, start, end)
        fields = [schema.field(name) for name in (schema.names if columns is None else columns)]
        return pa.RecordBatch.from_arrays(
            [decoded[field.name] for field in fields], schema=pa.schema(fields)
        )

    def decode_keys(self, cursor: Cursor) -> dict[str, pa.Array]:
        """Return the columns of key bytes, which have no key-group prefix, by name."""
        start = cursor.position.copy()
        names = [name for name in self.schema.names if name in KEY_COLUMNS[:-1]]
        columns = dict(zip(names, self.decode_key(cursor), strict=True))
        return {**columns, RAW_KEY: raw_column(cursor, start, cursor.end)}

    def decode_values(self, cursor: Cursor) -> list[pa.Array]:
        """Return the value's columns (and those of its last access) from value bytes alone."""
        stored = self.stored_value()
        return [] if stored is None else self._decode_value(cursor, stored)

    def decode_key(self, cursor: Cursor) -> list[pa.Array]:
        """Return the typed columns of key bytes, in order."""
        columns = []
        if self.kind is StateKind.TIMERS:
            columns.append(pa.array(flip_sign(cursor.read_int64("a timer"))))
        if self.opaque_key:
            columns += [OpaqueSerializer().decode(cursor), pa.nulls(cursor.rows, pa.string())]
            return (
                columns if self.user_key is None else [*columns, pa.nulls(cursor.rows, pa.binary())]
            )
        for part in (self.key, self.namespace):
            start = cursor.position.copy() if self.ambiguous else cursor.position
            if part.self_delimiting:
                columns.append(part.decode(cursor))
            else:
                ends = cursor.end - self.namespace.wire_length
                short = np.flatnonzero(ends < cursor.position)
                cursor.check(int(short[0]) if short.size else -1, "a namespace behind a key")
                inner = Cursor(cursor.data, cursor.position, ends, cursor.place)
                columns.append(part.decode(inner))
            if self.ambiguous:
                skip_lengths(cursor, cursor.position - start)
        if self.user_key is not None:
            columns.append(self.user_key.decode(cursor))
        cursor.check_at_end()
        return columns

    def _decode_value(self, cursor: Cursor, stored: TypeSerializer) -> list[pa.Array]:
        within = cursor
        if self.kind is StateKind.MAP:
            null = cursor.read_flags("the null flag of a map value")
            if null.any():
                cursor.inexact |= null & (cursor.position != cursor.end)
                cursor.position[null != 0] = cursor.end[null != 0]
                within = cursor.only((1 - null).astype(np.uint8))
        column = stored.decode(within)
        cursor.check_at_end()
        if self.kind is StateKind.MAP and column.null_count:  # null, though its flag is not
            none = 1 - present_rows(column)
            cursor.inexact |= none if within is cursor else within.present & none
        if not self.with_ttl or isinstance(stored, OpaqueSerializer):
            return [column]
        if self.kind is StateKind.LIST:
            parts = [column.values.field(name) for name in ("value", "ttl")]
            return [same_lists(pa.list_(part.type), column, [part]) for part in parts]
        return [_restruct(column, "value"), _restruct(column, "ttl")]

    # ----------------------------------------------------------------------- encoding

    def key_writer(self, batch: pa.RecordBatch) -> RowWriter:
        """Return the writer of the key bytes of a batch's rows, without the key-group prefix."""
        names = [name for name in (TIMESTAMP, KEY, NAMESPACE, USER_KEY) if name in self._names]
        exact = exact_rows(batch, RAW_KEY, names, self.decode_key)
        return RowWriter(self._key_parts(batch), len(batch), exact, batch.column(RAW_KEY))

    def value_writer(self, batch: pa.RecordBatch) -> RowWriter:
        """Return the writer of the value bytes of a batch's rows; a timer has no value."""
        stored = self.stored_value()
        if stored is None:
            return RowWriter([], len(batch), ALL_PRESENT, None)
        names = [name for name in (VALUE, TTL) if name in self._names]
        decode = partial(self._decode_value, stored=stored)
        exact = exact_rows(batch, RAW_VALUE, names, decode)
        parts = self._value_parts(batch, stored)
        return RowWriter(parts, len(batch), exact, batch.column(RAW_VALUE))

    @property
    def _names(self) -> list[str]:
        return list(self.schema.names)

    def _key_parts(self, batch: pa.RecordBatch) -> list[RowPart]:
        key = batch.column(KEY)
        parts = []
        if self.kind is StateKind.TIMERS:
            times = fixed_values(batch.column(TIMESTAMP), np.int64)
            parts.append(RowPart(LongSerializer(), pa.array(flip_sign(times))))
        if self.opaque_key:
            return [*parts, RowPart(OpaqueSerializer(), key)]
        for serializer, column in ((self.key, key), (self.namespace, batch.column(NAMESPACE))):
            parts.append(RowPart(serializer, column))
            if self.ambiguous:
                lengths = pa.array(serializer.sizes(column, ALL_PRESENT))
                parts.append(RowPart(LengthTrailer(), lengths))
        if self.user_key is not None:
            parts.append(RowPart(self.user_key, batch.column(USER_KEY)))
        return parts

    def _value_parts(self, batch: pa.RecordBatch, stored: TypeSerializer) -> list[RowPart]:
        column = batch.column(VALUE)
        present = ALL_PRESENT
        if TTL in self._names:
            ttl = batch.column(TTL)
            present = present_rows(ttl)
            column = _with_ttl(stored, column, ttl)
        elif self.kind is StateKind.MAP:
            present = present_rows(column)
        if self.kind is not StateKind.MAP:
            return [RowPart(stored, column)]
        flags = np.zeros(len(batch), bool) if present.size == 0 else present == 0
        return [RowPart(BooleanSerializer(), pa.array(flags)), RowPart(stored, column, present)]


# --------------------------------------------------------------------------- rows and columns


def raw_column(cursor: Cursor, start: I64Array, end: I64Array) -> pa.Array:
    """Return the bytes of the rows that are marked inexact, null for the rest."""
    if not cursor.inexact.any():
        return pa.nulls(cursor.rows, pa.binary())
    sizes = np.where(cursor.inexact != 0, end - start, 0)
    bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    if bounds[-1] > MAX_COLUMN_BYTES:
        raise UnsupportedFormatError(
            f"{bounds[-1]} exact bytes in one batch, and a column holds 2 GiB",
            place=cursor.place(int(start[0])),
            remedy="a single value this large can't be decoded; drop the state first",
        )
    out = np.empty(int(bounds[-1]), np.uint8)
    copy_ranges(cursor.data, start, start + sizes, out, bounds)
    bitmap, nulls = validity(cursor.inexact)
    buffers = [bitmap, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), cursor.rows, buffers, nulls)


def skip_lengths(cursor: Cursor, lengths: I64Array) -> None:
    """Skip the length trailers, which must be equal to `lengths`, of all rows that are not lost."""
    sizes = trailer_sizes(lengths)
    if cursor.present.size:
        sizes *= cursor.present
    short = np.flatnonzero(cursor.position + sizes > cursor.end)
    cursor.check(int(short[0]) if short.size else -1, "the length of a key or namespace")
    for byte in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > byte)
        actual = cursor.data[cursor.position[rows] + byte]
        wrong = rows[actual != (lengths[rows] >> (8 * byte) & 0xFF)]
        if wrong.size:
            raise cursor.fault(int(wrong[0]), "a key or namespace followed by another length")
    cursor.position += sizes


def _restruct(column: pa.Array, name: str) -> pa.Array:
    """Return a field of a struct column, null where the struct is null."""
    values = column.field(name)
    if column.null_count == 0:
        return values
    import pyarrow.compute as pc  # noqa: PLC0415 - it takes time, which opening a snapshot need not

    return pc.if_else(column.is_valid(), values, pa.scalar(None, values.type))


def _with_ttl(stored: TypeSerializer, values: pa.Array, ttl: pa.Array) -> pa.Array:
    """Return values and times joined to the stored type."""
    if not isinstance(stored, DelimitedListSerializer):
        return pa.StructArray.from_arrays([ttl, values], fields=list(stored.arrow_type))
    (bounds, elements), (times_bounds, times) = elements_of(values), elements_of(ttl)
    if not np.array_equal(bounds, times_bounds):
        raise EncodeError(
            "a list whose `ttl` has not as many elements as its `value`",
            remedy="change both together",
        )
    fields = list(stored.element.arrow_type)
    items = pa.StructArray.from_arrays([times, elements], fields=fields)
    return lists_of(pa.list_(items.type), bounds, [items])


def exact_rows(
    batch: pa.RecordBatch,
    raw_name: str,
    names: list[str],
    decode: Callable[[Cursor], list[pa.Array]],
) -> U8Array:
    """Return 1 for each row whose raw bytes still match its typed columns."""
    raw = batch.column(raw_name)
    exact = present_rows(raw)
    if exact.size == 0:
        exact = np.ones(len(batch), np.uint8)
    rows = np.flatnonzero(exact)
    if not rows.size:
        return ALL_PRESENT
    kept = raw.take(pa.array(rows))
    offsets, data = variable_values(kept)
    bounds = offsets.astype(np.int64)
    cursor = Cursor(data, bounds[:-1].copy(), bounds[1:].copy(), lambda at: f"{raw_name} byte {at}")
    for name, column in zip(names, decode(cursor), strict=True):
        exact[rows] &= equal_rows(column, batch.column(name).take(pa.array(rows)))
    return exact
