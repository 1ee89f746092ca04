"""Rows of Flink SQL's state: those of one key merged, and whether typed columns say all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.formats.layout.keyed_layout import RAW_VALUE, VALUE
from statelake.state_core.formats.rewriting.value_migration import TTL_BYTES, with_columns
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.plans.states import MAX_DECIMAL
from statelake.state_core.serializers.composite.collections import ListSerializerSnapshot
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.columns import I64Array
from statelake.state_core.serializers.framework.snapshots import CompositeTypeSerializerSnapshot
from statelake.state_core.serializers.sql.row_data import RowDataSerializerSnapshot

KIND_AT = 4  # of a row's bytes, behind their length: the kind of change


def constant(value: Any, kind: pa.DataType, length: int) -> pa.Array:
    """Return a column of one value."""
    if value is None:
        return pa.nulls(length, kind)
    return pa.array([value], kind).take(pa.array([0] * length, pa.int64()))


def merged_column(column: pa.Array, how: str, places: pa.Array, first: pa.Array) -> pa.Array:
    """Return the merged value of each group, in order; NULL if all its values are."""
    if how == "first":
        return first
    kind = column.type
    if how == "sum":
        whole = pa.types.is_integer(kind)
        wide = pa.int64() if whole else kind
        if pa.types.is_decimal(kind):
            wide = pa.decimal256(2 * MAX_DECIMAL, kind.scale)
        total = grouped(column.cast(wide), "sum", places)
        # whole numbers wrap around, as in Java
        return total.cast(kind, safe=not whole)
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(column)).as_py():
        raise pa.ArrowInvalid("NaN has no order")
    ranks = pc.rank(column, "ascending", tiebreaker="dense")
    ranks = pc.if_else(column.is_valid(), ranks.cast(pa.int64()), pa.scalar(None, pa.int64()))
    chosen = grouped(ranks, how, places)
    row_of = pa.array(np.arange(len(column)))
    ordered = pa.table({"rank": ranks, "row": row_of}).group_by("rank", use_threads=False)
    known = ordered.aggregate([("row", "min")])
    at = pc.index_in(chosen, known["rank"].combine_chunks(), skip_nulls=True)
    return column.take(known["row_min"].combine_chunks().take(at))


def grouped(column: pa.Array, how: str, places: pa.Array) -> pa.Array:
    """Return what the values of each place come to, in the order of places."""
    table = pa.table({"place": places, "column": column})
    done = table.group_by("place", use_threads=False).aggregate([("column", how)])
    return done.sort_by("place")[f"column_{how}"].combine_chunks()


def _begins_with_row(value: TypeSerializerSnapshot) -> bool:
    """Return whether a value's first bytes are those of a row."""
    while isinstance(value, CompositeTypeSerializerSnapshot) and value.nested:
        if isinstance(value, ListSerializerSnapshot):
            return False
        value = value.nested[0]
    return isinstance(value, RowDataSerializerSnapshot)


def typed_only(rows: StateRows, before: TypeSerializerSnapshot) -> bool:
    """Return whether exact bytes differ from those of typed columns in kinds of changes alone.

    What an operator holds it has by its kind of change as it came. No operator reads that again.
    """
    batch = rows.batch
    raw = batch.column(RAW_VALUE)
    if raw.null_count == len(raw):
        return True
    in_list = isinstance(before, ListSerializerSnapshot) and _begins_with_row(before.nested[0])
    if rows.layout.kind is StateKind.LIST or not (in_list or _begins_with_row(before)):
        return False
    held = replace(rows, batch=batch.filter(raw.is_valid()))
    exact = held.layout.value_writer(held.batch).to_binary()
    typed = with_columns(held, held.layout, {RAW_VALUE: pa.nulls(len(held.batch), pa.binary())})
    in_map = held.layout.kind is StateKind.MAP  # whose values begin with whether they are null
    at = TTL_BYTES * held.layout.with_ttl + in_map
    if in_list:
        return bool(_inserted(exact, at).equals(held.layout.value_writer(typed).to_binary()))
    at += KIND_AT
    inserted = pc.binary_replace_slice(exact, start=at, stop=at + 1, replacement=b"\0")
    return bool(inserted.equals(held.layout.value_writer(typed).to_binary()))


def _inserted(lists: pa.LargeBinaryArray, at: int) -> pa.LargeBinaryArray:
    """Return lists of rows that are all inserts.

    Args:
        lists: The lists: a length, and as many rows, each behind its own length.
        at: Where each list begins.
    """
    bounds = np.frombuffer(lists.buffers()[1], np.int64, len(lists) + 1, lists.offset * 8)
    data = np.frombuffer(lists.buffers()[2], np.uint8).copy()

    def number(position: I64Array) -> I64Array:
        found = np.zeros(len(position), np.int64)
        for byte in range(4):
            found = found << 8 | data[position + byte]
        return found

    position = bounds[:-1] + at
    left, position = number(position), position + 4
    while (going := left > 0).any():
        left, position = left[going] - 1, position[going]
        data[position + KIND_AT] = 0
        position = position + 4 + number(position)
    buffers = [None, lists.buffers()[1], pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(lists), buffers, offset=lists.offset)


def merged_counts(rows: StateRows) -> StateRows:
    """Return rows of a map without equal keys: their counts are added up."""
    batch = rows.batch
    keys = rows.layout.key_writer(batch).to_binary().dictionary_encode()
    if len(keys.dictionary) == len(batch):
        return rows
    value = batch.column(VALUE)
    structured = pa.types.is_struct(value.type)
    counts = value.field(0) if structured else value
    table = pa.table({"key": keys.indices, "count": counts, "row": np.arange(len(batch))})
    merged = table.group_by("key", use_threads=False).aggregate([("count", "sum"), ("row", "min")])
    merged = merged.sort_by("row_min")
    taken = batch.take(merged["row_min"].combine_chunks())
    total = merged["count_sum"].combine_chunks().cast(counts.type)
    held = taken.column(VALUE)
    if structured:
        fields = [held.type.field(index) for index in range(held.type.num_fields)]
        others = [held.field(index) for index in range(1, len(fields))]
        total = pa.StructArray.from_arrays([total, *others], fields=fields)
    changed = replace(rows, batch=taken)
    return replace(changed, batch=with_columns(changed, rows.layout, {VALUE: total}))
