"""Rows of Flink SQL's state: those of one key merged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.formats.layout.keyed_layout import VALUE
from statelake.state_core.formats.rewriting.value_migration import with_columns
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.plans.states import MAX_DECIMAL


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
