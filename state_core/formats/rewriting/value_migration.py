"""Rows of one state under a new value type: what Flink does on a restore, for a whole column.

Keys, namespaces and times of last access stay as they are. Values that a typed column can't hold
exactly go one by one through the old serializer's `read` and the new one's `write`; but what a
user's decoder has made of bytes is the value, and the bytes go. What comes out
is encoded, decoded and encoded again, and must be the same.

Source: `AbstractRocksDBState.migrateSerializedValue`, `RocksDBListState` and `RocksDBMapState`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state_core.errors import EncodeError
from state_core.files.wire import DataInput, DataOutput
from state_core.formats.layout.keyed_layout import RAW_VALUE, TTL, VALUE, KeyedLayout, raw_column
from state_core.formats.writing.unified_encode import StateRows
from state_core.model.snapshot import StateKind
from state_core.serializers.composite.evolution import migrate_column, migrate_value
from state_core.serializers.framework.base import TypeSerializer
from state_core.serializers.framework.columns import Cursor, U8Array, list_offsets
from state_core.serializers.opaque.decoders import DecodedSerializer

__all__ = [
    "binary_cursor",
    "current_exact",
    "decode_rows",
    "migrate_bytes",
    "migrate_exact",
    "migrate_rows",
    "validate_rows",
]


def migrate_rows(rows: StateRows, layout: KeyedLayout, values: pa.Array | None = None) -> StateRows:
    """The same rows in another layout, which differs in the value's serializer only.

    Args:
        rows: The rows as they were.
        layout: What they are to be.
        values: The new `value` column, if it was computed elsewhere; by default old values are
            carried over as Flink does.

    Raises:
        EncodeError: A value that only exact bytes hold can't be carried over.
    """
    old, batch = rows.layout, rows.batch
    column = values if values is not None else _carry_over(old, layout, batch.column(VALUE))
    raw = current_exact(batch.column(RAW_VALUE), old.value_writer(batch).exact)
    if isinstance(old.value, DecodedSerializer):
        _refuse_undecoded(rows, old.value)
        raw = pa.nulls(len(batch), pa.binary())
    elif raw.null_count < len(raw):
        if values is not None:
            raise EncodeError(
                f"{len(raw) - raw.null_count} values that only their exact bytes hold, which an"
                " expression would not see",
                place=f"state {rows.name!r}",
                remedy="edit or delete these rows first (WHERE raw_value IS NOT NULL)",
            )
        column, raw = migrate_exact(
            column,
            raw,
            lambda data: _migrate_entry(old, layout, data, rows.name),
            lambda cursor: layout.decode_values(cursor)[0],
        )
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns |= {VALUE: column, RAW_VALUE: raw}
    schema = layout.schema
    arrays = [columns[name] for name in schema.names]
    made = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return StateRows(rows.state, rows.name, layout, made)


def decode_rows(rows: StateRows, value: TypeSerializer) -> StateRows:
    """The same rows with their values, which are bytes, decoded by a user's decoder.

    Args:
        rows: The rows as they are without it.
        value: The value's serializer with it.
    """
    layout = replace(rows.layout, value=value)
    encoded = rows.layout.value_writer(rows.batch).to_binary()
    cursor = binary_cursor(encoded)
    starts, ends = cursor.position.copy(), cursor.end.copy()
    columns = {name: rows.batch.column(name) for name in rows.batch.schema.names}
    names = [name for name in layout.schema.names if name in (VALUE, TTL)]
    columns |= dict(zip(names, layout.decode_values(cursor), strict=True))
    columns[RAW_VALUE] = raw_column(cursor, starts, ends)
    arrays = [columns[name] for name in layout.schema.names]
    made = pa.RecordBatch.from_arrays(arrays, schema=layout.schema)
    return StateRows(rows.state, rows.name, layout, made)


def binary_cursor(values: pa.LargeBinaryArray) -> Cursor:
    """A cursor over the rows of a column of bytes."""
    bounds = np.frombuffer(values.buffers()[1], np.int64, len(values) + 1)
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    return Cursor(data, bounds[:-1].copy(), bounds[1:].copy(), lambda at: f"byte {at}")


def _refuse_undecoded(rows: StateRows, decoded: DecodedSerializer) -> None:
    """What a decoder has given says all that is to be kept; where it gave none, all would be lost.

    Raises:
        EncodeError: There is such a value.
    """
    batch = rows.batch
    value, raw = batch.column(VALUE), batch.column(RAW_VALUE)
    holes = pc.and_(pc.is_null(value), pc.is_valid(raw))
    if pa.types.is_list(value.type):
        within = pa.array([None in (one or ()) for one in value.to_pylist()], pa.bool_())
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


def validate_rows(rows: StateRows) -> None:
    """Read every value back from the bytes that it becomes, and write it again.

    Raises:
        EncodeError: A value can't be written, or comes back as another.
    """
    first = rows.layout.value_writer(rows.batch)
    encoded = first.to_binary()
    stored = rows.layout.stored_value()
    if stored is None:
        return
    again = rows.layout.value_writer(_decoded(rows, encoded)).to_binary()
    if not again.equals(encoded):
        row = next(i for i in range(len(again)) if again[i] != encoded[i])
        shown = rows.batch.column("key")[row].as_py()
        raise EncodeError(
            f"the migrated value of key {shown!r} does not come back as it was written",
            place=f"state {rows.name!r}",
        )


def _decoded(rows: StateRows, encoded: pa.Array) -> pa.RecordBatch:
    """The rows with their value columns read back from bytes."""
    layout = rows.layout
    stored = layout.stored_value()
    assert stored is not None  # noqa: S101 - the caller has looked
    cursor = binary_cursor(encoded)
    columns = {name: rows.batch.column(name) for name in layout.schema.names}
    names = [name for name in layout.schema.names if name in (VALUE, TTL)]
    columns |= dict(zip(names, layout.decode_values(cursor), strict=True))
    rest = [columns[name] for name in layout.schema.names]
    return pa.RecordBatch.from_arrays(rest, schema=layout.schema)


def _carry_over(old: KeyedLayout, new: KeyedLayout, column: pa.Array) -> pa.Array:
    assert old.value is not None and new.value is not None  # noqa: S101, PT018 - not of timers
    if old.kind is not StateKind.LIST or not pa.types.is_list(column.type):
        return migrate_column(old.value, new.value, column)
    first = list_offsets(column)
    held = column.values.slice(int(first[0]), int(first[-1] - first[0]))
    moved = migrate_column(old.value, new.value, held)
    return pa.ListArray.from_arrays(pa.array((first - first[0]).astype(np.int32)), moved)


def current_exact(raw: pa.Array, exact: U8Array) -> pa.Array:
    """Exact bytes, but for those of values that were edited since.

    Args:
        raw: The bytes.
        exact: 1 for each row that is written from them, as `exact_rows` says.
    """
    if not exact.size:
        return pa.nulls(len(raw), pa.binary())
    return pc.if_else(pa.array(exact.astype(bool)), raw, pa.scalar(None, raw.type))


def migrate_exact(
    column: pa.Array,
    raw: pa.Array,
    migrate: Callable[[bytes], bytes],
    decode: Callable[[Cursor], pa.Array],
) -> tuple[pa.Array, pa.Array]:
    """Values with exact bytes beside them, one by one, by the serializers themselves.

    Args:
        column: The new values, those with exact bytes too.
        raw: The old exact bytes.
        migrate: From one value's old bytes to its new ones.
        decode: What these are as typed values.

    Returns:
        The new values and their exact bytes.
    """
    found: list[bytes | None] = [None] * len(raw)
    which = [index for index in range(len(raw)) if raw[index].is_valid]
    for index in which:
        found[index] = migrate(raw[index].as_py())
    typed = decode(binary_cursor(pa.array([found[index] for index in which], pa.large_binary())))
    take = np.arange(len(column))
    take[which] = len(column) + np.arange(len(which))
    whole = pa.concat_arrays([column, typed]).take(pa.array(take))
    return whole, pa.array(found, pa.binary())


def migrate_bytes(before: TypeSerializer, after: TypeSerializer, data: bytes, state: str) -> bytes:
    """One value's bytes, through a Python object.

    Raises:
        EncodeError: It does not come back from that as it was.
    """
    value = before.read(DataInput(data, f"state {state!r}, raw_value"))
    check = DataOutput()
    before.write(value, check)
    if check.to_bytes() != data:
        raise EncodeError(
            "a value that only its exact bytes hold can't be migrated",
            place=f"state {state!r}",
            remedy="edit or delete these rows first (WHERE raw_value IS NOT NULL)",
        )
    out = DataOutput()
    after.write(migrate_value(before, after, value), out)
    return out.to_bytes()


def _migrate_entry(old: KeyedLayout, new: KeyedLayout, data: bytes, state: str) -> bytes:
    """One entry's value bytes; those of a map begin with whether there is none."""
    before, after = old.stored_value(), new.stored_value()
    assert before is not None and after is not None  # noqa: S101, PT018 - not of timers
    head = data[:1] if old.kind is StateKind.MAP else b""
    if head and head != b"\x00":
        return data
    return head + migrate_bytes(before, after, data[len(head) :], state)
