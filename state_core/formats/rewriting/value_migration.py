"""Migration of one state's rows to a new value type, as in a restore by Flink, column by column.

In operator state these are the elements of a list, or the values of a broadcast state. Keys,
namespaces, times of last access, subtasks and positions stay as they are. Values that a typed
column can't hold exactly are converted one by one, by the old serializer's `read` and the new one's
`write`; but the result of a user decoder replaces the bytes. (Decoders are not used for operator
state.) The result is encoded, decoded and encoded again, and must be the same.

Source: `AbstractRocksDBState.migrateSerializedValue`, `RocksDBListState`, `RocksDBMapState` and
`OperatorStateRestoreOperation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.errors import CorruptSnapshotError, EncodeError, InexactError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.keyed_layout import (
    RAW_KEY,
    RAW_VALUE,
    TTL,
    VALUE,
    KeyedLayout,
    raw_column,
)
from statelake.state_core.formats.layout.keyed_states import value_snapshot
from statelake.state_core.formats.layout.meta_info import parse_state_meta_info
from statelake.state_core.formats.operator_state.operator_states import ElementRows, OperatorLayout
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.nested import elements_of, lists_of
from statelake.state_core.serializers.composite.collections import ListSerializer
from statelake.state_core.serializers.composite.evolution import migrate_column, migrate_value
from statelake.state_core.serializers.composite.null_fields import NullField, null_fields
from statelake.state_core.serializers.composite.structs import TupleSerializer
from statelake.state_core.serializers.contents.content import ContentSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.columns import (
    ALL_PRESENT,
    BoolArray,
    Cursor,
    I64Array,
    U8Array,
    equal_rows,
)
from statelake.state_core.serializers.framework.compatibility import Compatibility
from statelake.state_core.serializers.framework.opaque_values import DecodedSerializer, undecoded
from statelake.state_core.serializers.sql.section_data import RowDataSerializer

Rows = TypeVar("Rows", StateRows, ElementRows)

TTL_BYTES = 8  # a time of last access, before its value
KIND_AT = 4  # of a row of Flink SQL, behind its length: the kind of change
CHANGES = (b"\1", b"\2", b"\3")  # which are no inserts: what is updated, its update, a delete
DELIMITER = b","
BY_BYTES = (
    "say by {0} or is_exact which rows are meant, such as `{0} IS NULL` for none of these, or go by"
    " what the column shows: --inexact"
)
OF_BYTES = "edit or delete these rows first (WHERE raw_value IS NOT NULL)"
OF_VALUES = f"{OF_BYTES}, or go by what the column shows: --inexact"


def resolve_element(meta_info: bytes, value: TypeSerializerSnapshot) -> Compatibility:
    """Return whether the elements of a list, or the values of a broadcast state, can be migrated.

    Args:
        meta_info: As in `OperatorState.meta_info`.
        value: The elements' new type.
    """
    before = value_snapshot(parse_state_meta_info(meta_info))
    with undecoded():
        return value.resolve_schema_compatibility(before)


def migrate_rows(rows: Rows, value: TypeSerializer) -> Rows:
    """Return the same rows with other values: subtasks, positions, keys and times stay.

    Args:
        rows: The old rows.
        value: The value's new serializer.

    Raises:
        EncodeError: A value that exists only as exact bytes can't be converted.
    """
    old, batch = rows.layout, rows.batch
    new = replace(old, value=value)
    column = _carry_over(old, new, batch.column(VALUE))
    raw = current_exact(old, batch)
    if isinstance(old.value, DecodedSerializer):
        _refuse_undecoded(rows, old.value)
        raw = pa.nulls(len(batch), pa.binary())
    elif raw.null_count < len(raw):
        column, raw = _migrate_exact(
            column,
            raw,
            lambda data: _migrate_entry(old, new, data, rows.name),
            lambda cursor: new.decode_values(cursor)[0],
        )
    return replace(rows, layout=new, batch=with_columns(rows, new, {VALUE: column, RAW_VALUE: raw}))


def decode_rows(rows: StateRows, value: TypeSerializer) -> StateRows:
    """Return the same rows with their values, which are bytes, decoded by a user decoder.

    Args:
        rows: The rows without the decoder.
        value: The value's serializer with the decoder.
    """
    return rewritten_rows(rows, value, rows.layout.value_writer(rows.batch).to_binary())


def rewritten_rows(rows: Rows, value: TypeSerializer, stored: pa.LargeBinaryArray) -> Rows:
    """Return the same rows with other value bytes.

    Args:
        rows: The rows.
        value: The new serializer of the values.
        stored: The bytes of each row's value, in the form of a file.
    """
    layout = replace(rows.layout, value=value)
    cursor = binary_cursor(stored)
    starts, ends = cursor.position.copy(), cursor.end.copy()
    columns = _decoded(layout, cursor)
    columns[RAW_VALUE] = raw_column(cursor, starts, ends)
    return replace(rows, layout=layout, batch=with_columns(rows, layout, columns))


def with_value_bytes(rows: ElementRows, values: Mapping[int, bytes]) -> ElementRows:
    """Return the same rows of operator state, with some elements replaced.

    Args:
        rows: The rows.
        values: The new elements in the form of a file, by row.

    Raises:
        CorruptSnapshotError: The bytes don't match the state's serializer.
    """
    before = rows.layout.value_writer(rows.batch).to_binary().to_pylist()
    elements = [values.get(row, data) for row, data in enumerate(before)]
    return rewritten_rows(rows, rows.layout.value, pa.array(elements, pa.large_binary()))


def with_values(rows: Rows, value: TypeSerializer, column: pa.Array) -> Rows:
    """The same rows with other values, and with exact bytes of none.

    Args:
        rows: The rows.
        value: The serializer that the values are to have.
        column: The values, as the layout with that serializer has them.
    """
    layout = replace(rows.layout, value=value)
    columns = {VALUE: column, RAW_VALUE: pa.nulls(len(column), pa.binary())}
    return replace(rows, layout=layout, batch=with_columns(rows, layout, columns))


def _decoded(layout: KeyedLayout | OperatorLayout, cursor: Cursor) -> dict[str, pa.Array]:
    """Return the value's columns, by name."""
    names = [name for name in layout.schema.names if name in (VALUE, TTL)]
    return dict(zip(names, layout.decode_values(cursor), strict=True))


def with_columns(
    rows: StateRows | ElementRows,
    layout: KeyedLayout | OperatorLayout,
    columns: Mapping[str, pa.Array],
) -> pa.RecordBatch:
    """Return the rows' columns in a layout, some of them replaced."""
    schema = layout.schema
    arrays = [columns[n] if n in columns else rows.batch.column(n) for n in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def binary_cursor(values: pa.LargeBinaryArray) -> Cursor:
    """Return a cursor over the rows of a column of bytes."""
    bounds = np.frombuffer(values.buffers()[1], np.int64, len(values) + 1)
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    return Cursor(data, bounds[:-1].copy(), bounds[1:].copy(), lambda at: f"byte {at}")


def _refuse_undecoded(rows: StateRows | ElementRows, decoded: DecodedSerializer) -> None:
    """Refuse values that a decoder could not decode, as their bytes would be lost.

    Raises:
        EncodeError: A value was not decoded.
    """
    batch = rows.batch
    value, raw = batch.column(VALUE), batch.column(RAW_VALUE)
    holes = pc.and_(pc.is_null(value), pc.is_valid(raw))
    if pa.types.is_list(value.type):
        within = pa.array([None in (element or ()) for element in value.to_pylist()], pa.bool_())
        holes = pc.or_(holes, within)
    count = pc.sum(holes).as_py() or 0
    if count:
        row = pc.index(holes, value=True).as_py()
        raise EncodeError(
            f"{count} values that the decoder of {decoded.java_class} does not understand, that of"
            f" key {batch.column('key')[row].as_py()!r} first",
            place=f"state {rows.name!r}",
            remedy="mend the decoder, or delete these rows first",
        )


def validate_rows(rows: StateRows | ElementRows, written: Cursor | None = None) -> None:
    """Check that every value, encoded and decoded, is the same.

    Args:
        rows: The rows.
        written: A cursor over the bytes of their values, if they are encoded already.

    Raises:
        EncodeError: A value can't be written, or comes back as another.
    """
    layout = rows.layout
    if layout.stored_value() is None:
        return
    if written is None:
        written = binary_cursor(layout.value_writer(rows.batch).to_binary())
    columns = _decoded(layout, written)
    if all(equal_rows(column, rows.batch.column(name)).all() for name, column in columns.items()):
        return
    encoded, again = (
        layout.value_writer(batch).to_binary()
        for batch in (rows.batch, with_columns(rows, layout, columns))
    )
    if not again.equals(encoded):
        row = next(i for i in range(len(again)) if again[i] != encoded[i])
        keyed = "key" in layout.schema.names
        shown = f"key {rows.batch.column('key')[row].as_py()!r}" if keyed else f"row {row}"
        raise EncodeError(
            f"the migrated value of {shown} does not come back as it was written",
            place=f"state {rows.name!r}",
        )


def null_value_fields(rows: StateRows | ElementRows) -> dict[str, NullField]:
    """Return null fields of POJOs in values that may be of a primitive type, by their paths.

    Values that exist only as exact bytes were written by Flink, and are not examined.
    """
    value = rows.layout.value
    if value is None or VALUE not in rows.batch.schema.names:
        return {}
    fields = dict(_null_fields(rows, value, rows.batch.column(VALUE)))
    if fields and rows.batch.column(RAW_VALUE).null_count < len(rows.batch):
        typed = rows.batch.column(VALUE).filter(pc.invert(exact_values(rows)))
        fields = dict(_null_fields(rows, value, typed))
    return fields


def _null_fields(
    rows: StateRows | ElementRows, value: TypeSerializer, column: pa.Array
) -> Iterator[tuple[str, NullField]]:
    path = VALUE
    if rows.layout.kind is StateKind.LIST and pa.types.is_list(column.type):
        column, path = column.flatten(), f"{VALUE}.list.element"
    for field in null_fields(value, column, path):
        yield field.path, field


def exact_values(rows: StateRows | ElementRows) -> pa.BooleanArray:
    """Return whether each row's value exists only as exact bytes."""
    exact = current_exact(rows.layout, rows.batch).is_valid()
    if isinstance(rows.layout.value, DecodedSerializer):  # typed values are complete then
        exact = pc.and_(exact, rows.batch.column(VALUE).is_null())
    return exact


def without_left_bytes(rows: Rows) -> Rows:
    """Return the same rows without exact bytes of keys and values that have been edited since."""
    layout, batch = rows.layout, rows.batch
    columns = {}
    if isinstance(layout, KeyedLayout) and batch.column(RAW_KEY).null_count < len(batch):
        columns[RAW_KEY] = _current(batch.column(RAW_KEY), layout.key_writer(batch).exact)
    if RAW_VALUE in batch.schema.names and batch.column(RAW_VALUE).null_count < len(batch):
        columns[RAW_VALUE] = _renewed(layout, batch, layout, batch.column(RAW_VALUE))
    return replace(rows, batch=with_columns(rows, layout, columns)) if columns else rows


def inexact_rows(rows: StateRows | ElementRows, column: str = VALUE) -> BoolArray:
    """Return whether each row's columns say less than the exact bytes of its value, or of its key.

    What a row of Flink SQL is by its kind of change does not count: of what is edited, a temporal
    join alone reads that again.
    Nor does how a text or bytes would be written from what a user has them read as; but what could
    not be read as that does.

    Args:
        rows: The rows.
        column: `VALUE`, or `KEY` for all that key bytes hold.
    """
    raw_name = RAW_VALUE if column == VALUE else RAW_KEY
    less = np.zeros(len(rows.batch), bool)
    if raw_name not in rows.batch.schema.names:
        return less
    at = np.flatnonzero(rows.batch.column(raw_name).is_valid())
    less[at] = True
    if at.size and column == VALUE:
        exact_rows = replace(rows, batch=rows.batch.take(pa.array(at)))
        less[at] = np.asarray(current_exact(exact_rows.layout, exact_rows.batch).is_valid())
        if isinstance(exact_rows.layout.value, ContentSerializer | DecodedSerializer):
            less[at] &= _with_nulls(exact_rows)
        at = at[np.asarray(exact_rows.batch.column(VALUE).is_valid())]
        less[at] &= ~_differs_in_kind(replace(rows, batch=rows.batch.take(pa.array(at))))
    return less


def refuse_inexact(rows: StateRows | ElementRows, column: str, remedy: str) -> None:
    """Refuse rows whose columns say less than the exact bytes of their values, or of their keys.

    Raises:
        InexactError: There are some.
    """
    count = int(inexact_rows(rows, column).sum())
    if count:
        raise InexactError.of(count, column, place=f"state {rows.name!r}", remedy=remedy)


def _with_nulls(rows: StateRows | ElementRows) -> BoolArray:
    """Return whether each value is null, or a list of a state with a null element."""
    values = rows.batch.column(VALUE)
    null = np.array(values.is_null())
    if rows.layout.kind is StateKind.LIST and pa.types.is_list(values.type):
        null[np.asarray(pc.list_parent_indices(values))[np.asarray(values.flatten().is_null())]] = 1
    return null


def _differs_in_kind(rows: StateRows | ElementRows) -> BoolArray:
    """Return whether nothing but kinds of change is in the exact bytes of each row alone.

    Rows of Flink SQL have one: as a value, first in a tuple, or as elements of a value's list.

    Args:
        rows: Rows with exact bytes and a value each.
    """
    layout, value = rows.layout, rows.layout.value
    row = value.element if isinstance(value, ListSerializer) else value
    while type(row) is TupleSerializer:
        row = row.fields[0][1]
    if layout.kind is StateKind.LIST or not isinstance(row, RowDataSerializer):
        return np.zeros(len(rows.batch), bool)
    exact = layout.value_writer(rows.batch).to_binary()
    nothing = {RAW_VALUE: pa.nulls(len(rows.batch), pa.binary())}
    try:
        typed = layout.value_writer(with_columns(rows, layout, nothing)).to_binary()
    except EncodeError:  # a null where none can be written
        return np.zeros(len(rows.batch), bool)
    in_map = layout.kind is StateKind.MAP  # whose values begin with whether they are null
    at = TTL_BYTES * (TTL in layout.schema.names) + in_map
    if isinstance(value, ListSerializer):
        inserted = _inserted(exact, at)
    else:
        at += KIND_AT
        inserted = pc.binary_replace_slice(exact, start=at, stop=at + 1, replacement=b"\0")
    return np.asarray(pc.equal(inserted, typed))


def with_kinds(before: Rows, after: Rows) -> Rows:
    """Return rows with the kinds of change that they had before they were rewritten.

    A temporal join tells by them which versions of a row are there, and which were deleted.

    Args:
        before: The rows before.
        after: The same rows, of which some have no exact bytes any more; if some rows are gone,
            they are returned as they are.
    """
    old = before.batch.column(RAW_VALUE) if RAW_VALUE in before.batch.schema.names else None
    if old is None or old.null_count == len(old) or len(old) != len(after.batch):
        return after
    if _kind_at(before.layout) is None or _kind_at(after.layout) is None:
        return after
    left = after.batch.column(RAW_VALUE)
    lost = pc.if_else(left.is_null(), old, None)
    exact = pc.coalesce(left, _renewed(after.layout, after.batch, before.layout, lost))
    return replace(after, batch=with_columns(after, after.layout, {RAW_VALUE: exact}))


def _kind_at(layout: KeyedLayout | OperatorLayout) -> int | None:
    """Return where the kind of change is in a value's bytes; None if it is no row of Flink SQL."""
    if not isinstance(layout.value, RowDataSerializer) or layout.kind is StateKind.LIST:
        return None
    in_map = layout.kind is StateKind.MAP  # whose values begin with whether they are null
    return TTL_BYTES * (TTL in layout.schema.names) + in_map + KIND_AT


def _renewed(
    layout: KeyedLayout | OperatorLayout,
    batch: pa.RecordBatch,
    before: KeyedLayout | OperatorLayout,
    old: pa.Array,
) -> pa.BinaryArray:
    """Return the exact bytes of a batch's values: its own, or what keeps a kind of change.

    Args:
        layout: The layout of the rows.
        batch: The rows; exact bytes of their own that have another value count for nothing.
        before: The layout that the rows had.
        old: The exact bytes that they had; null for a row that gets none.
    """
    at = np.flatnonzero(old.is_valid())
    chosen = pa.array(at)
    taken = batch.take(chosen)
    writer = layout.value_writer(taken)
    exact = _current(taken.column(RAW_VALUE), writer.exact)
    place, was = _kind_at(layout), _kind_at(before)
    if place is not None and was is not None and exact.null_count:
        kinds = pc.binary_slice(old.take(chosen), was, was + 1)
        kinds = pc.if_else(pc.and_(exact.is_null(), taken.column(VALUE).is_valid()), kinds, None)
        written = writer.to_binary().cast(exact.type)
        for kind in CHANGES:
            changed = pc.binary_replace_slice(
                written, start=place, stop=place + 1, replacement=kind
            )
            exact = pc.if_else(pc.fill_null(pc.equal(kinds, kind), False), changed, exact)
    renewed = np.zeros(len(batch), object)
    renewed[:] = None
    renewed[at] = exact.to_pylist()
    return pa.array(renewed, pa.binary())


def _inserted(lists: pa.LargeBinaryArray, at: int) -> pa.LargeBinaryArray:
    """Return lists of rows that are all inserts.

    Args:
        lists: The lists: a length, and as many rows, each behind its own length.
        at: Where each list begins.
    """
    bounds = np.frombuffer(lists.buffers()[1], np.int64, len(lists) + 1, lists.offset * 8)
    data = np.frombuffer(lists.buffers()[2], np.uint8).copy()

    def number(position: I64Array) -> I64Array:
        result = np.zeros(len(position), np.int64)
        for byte in range(4):
            result = result << 8 | data[position + byte]
        return result

    position = bounds[:-1] + at
    left, position = number(position), position + 4
    while (going := left > 0).any():
        left, position = left[going] - 1, position[going]
        data[position + KIND_AT] = 0
        position = position + 4 + number(position)
    buffers = [None, lists.buffers()[1], pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(lists), buffers, offset=lists.offset)


def _carry_over(
    old: KeyedLayout | OperatorLayout, new: KeyedLayout | OperatorLayout, column: pa.Array
) -> pa.Array:
    assert old.value is not None and new.value is not None  # noqa: S101, PT018 - not of timers
    if old.kind is not StateKind.LIST or not pa.types.is_list(column.type):
        return migrate_column(old.value, new.value, column)
    bounds, elements = elements_of(column)
    moved = migrate_column(old.value, new.value, elements)
    return lists_of(pa.list_(moved.type), bounds, [moved])


def current_exact(layout: KeyedLayout | OperatorLayout, batch: pa.RecordBatch) -> pa.Array:
    """Return the exact bytes of a batch's values, without those of values edited since."""
    raw = batch.column(RAW_VALUE)
    exact = ALL_PRESENT if raw.null_count == len(raw) else layout.value_writer(batch).exact
    return _current(raw, exact)


def _current(raw: pa.Array, exact: U8Array) -> pa.Array:
    """Return exact bytes where `exact` is 1, and null for all others."""
    if not exact.size:
        return pa.nulls(len(raw), pa.binary())
    return pc.if_else(pa.array(exact.astype(bool)), raw, pa.scalar(None, raw.type))


def _migrate_exact(
    column: pa.Array,
    raw: pa.Array,
    migrate: Callable[[bytes], bytes],
    decode: Callable[[Cursor], pa.Array],
) -> tuple[pa.Array, pa.Array]:
    """Convert values with exact bytes one by one, by the serializers themselves.

    Args:
        column: The new values, including those with exact bytes.
        raw: The old exact bytes.
        migrate: Converts one value's old bytes to its new ones.
        decode: Decodes these to typed values.

    Returns:
        The new values and their exact bytes.
    """
    migrated: list[bytes | None] = [None] * len(raw)
    which = [index for index in range(len(raw)) if raw[index].is_valid]
    for index in which:
        migrated[index] = migrate(raw[index].as_py())
    exact = pa.array([migrated[index] for index in which], pa.large_binary())
    typed = decode(binary_cursor(exact))
    take = np.arange(len(column))
    take[which] = len(column) + np.arange(len(which))
    values = pa.concat_arrays([column, typed]).take(pa.array(take))
    return values, pa.array(migrated, pa.binary())


def _migrate_bytes(before: TypeSerializer, after: TypeSerializer, data: bytes, state: str) -> bytes:
    """Convert one value's bytes, by a Python object.

    Raises:
        EncodeError: The object does not represent the value exactly.
    """
    value = before.read(DataInput(data, f"state {state!r}, raw_value"))
    check = DataOutput()
    before.write(value, check)
    if check.to_bytes() != data:
        raise EncodeError(
            "a value that only its exact bytes hold can't be migrated",
            place=f"state {state!r}",
            remedy=OF_BYTES,
        )
    out = DataOutput()
    after.write(migrate_value(before, after, value), out)
    return out.to_bytes()


def _migrate_entry(
    old: KeyedLayout | OperatorLayout, new: KeyedLayout | OperatorLayout, data: bytes, state: str
) -> bytes:
    """Convert one entry's value bytes; those of a map begin with the null flag."""
    before, after = old.stored_value(), new.stored_value()
    assert before is not None and after is not None  # noqa: S101, PT018 - not of timers
    head = data[:1] if old.kind is StateKind.MAP else b""
    if head and head != b"\x00":
        return data
    return head + _migrate_bytes(before, after, data[len(head) :], state)


def rewrite_entry(
    source: DataInput, kind: StateKind, rewritten: Callable[[DataInput], bytes]
) -> bytes:
    """Return one entry's value bytes with each value rewritten; a map's null stays.

    Args:
        source: The value bytes: a map's begin with the null flag, a list's elements have
            delimiters in between.
        kind: The kind of state.
        rewritten: Reads one value, with its time of last access, and returns its new bytes.

    Raises:
        CorruptSnapshotError: The bytes are not of that form.
    """
    parts = [source.read_bytes(1)] if kind is StateKind.MAP else []
    if parts and parts[0] != b"\0":
        return parts[0] + source.read_rest()
    while True:
        parts.append(rewritten(source))
        if source.remaining and kind is not StateKind.LIST:
            raise CorruptSnapshotError(f"{source.remaining} bytes behind a value")
        if not source.remaining:
            return b"".join(parts)
        parts.append(source.read_bytes(1))
        if parts[-1] != DELIMITER:
            raise CorruptSnapshotError("no delimiter between elements of a list")
