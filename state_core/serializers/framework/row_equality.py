"""Equality of two columns, row by row, nested ones too, without creating Python values.

Floats are compared bit by bit, so a NaN is equal to itself and 0.0 is not equal to -0.0; nulls are
equal.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.serializers.framework.columns import I64Array, list_offsets

BoolArray: TypeAlias = npt.NDArray[np.bool_]

_BITS = {2: pa.int16(), 4: pa.int32(), 8: pa.int64()}


def equal_rows(first: pa.Array, second: pa.Array) -> BoolArray:
    """Return which rows are equal in two columns of one type."""
    valid, valid_too = _held(first), _held(second)
    same: BoolArray = valid == valid_too
    both = valid & valid_too
    if not both.any():
        return same
    kind = first.type
    if pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            name = kind.field(index).name
            same &= ~both | equal_rows(first.field(index), second.field(name))
        return same
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        same &= ~both | _equal_lists(first, second, both)
        return same
    if pa.types.is_floating(kind):
        bits = _BITS[kind.bit_width // 8]
        first, second = first.view(bits), second.view(bits)
    alike: BoolArray = np.asarray(pc.fill_null(pc.equal(first, second), False))
    same &= ~both | alike
    return same


def _held(values: pa.Array) -> BoolArray:
    if values.null_count == 0:
        return np.ones(len(values), np.bool_)
    valid: BoolArray = np.asarray(values.is_valid())
    return valid


def _equal_lists(first: pa.Array, second: pa.Array, both: BoolArray) -> BoolArray:
    """Return which rows of `both` have the same elements, or entries, in the same order."""
    bounds, bounds_too = list_offsets(first), list_offsets(second)
    counts = np.diff(bounds)
    same: BoolArray = both & (counts == np.diff(bounds_too))
    rows = np.flatnonzero(same)
    kept = counts[rows]
    if not kept.sum():
        return same
    items, items_too = (
        _items(values).take(pa.array(_flat(starts[rows], kept)))
        for values, starts in ((first, bounds), (second, bounds_too))
    )
    differing = np.concatenate(([0], np.cumsum(~equal_rows(items, items_too))))
    ends = np.cumsum(kept)
    same[rows] = differing[ends] == differing[ends - kept]
    return same


def _items(values: pa.Array) -> pa.Array:
    if not pa.types.is_map(values.type):
        return values.values
    return pa.StructArray.from_arrays([values.keys, values.items], ["key", "value"])


def _flat(starts: I64Array, counts: I64Array) -> I64Array:
    """Return all positions of the ranges that begin at `starts`."""
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    flat: I64Array = np.repeat(starts, counts) + within
    return flat
