"""Rows that are the same: as comparing them one by one would say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.serializers.framework.columns import equal_rows

KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "numbers": (pa.int32(), st.integers(0, 2)),
    "texts": (pa.string(), st.sampled_from(["", "a", "b"])),
    "bits": (pa.bool_(), st.booleans()),
    "floats": (pa.float32(), st.sampled_from([0.0, -0.0, 1.0, math.nan])),
    "nothing": (pa.null(), st.none()),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.Array, pa.Array]:
    """Two columns of one type, with few values, so that many are the same."""
    kind, value = _kind(draw, 2)
    rows = st.lists(st.none() | value, min_size=4, max_size=4)
    return pa.array(draw(rows), kind), pa.array(draw(rows), kind)


def _kind(draw: st.DrawFn, depth: int) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    shape = draw(st.sampled_from(["leaf", "list", "map", "struct"])) if depth else "leaf"
    if shape == "leaf":
        return KINDS[draw(st.sampled_from(list(KINDS)))]
    kind, value = _kind(draw, depth - 1)
    if shape == "list":
        return pa.list_(kind), st.lists(st.none() | value, max_size=2)
    other, held = _kind(draw, depth - 1)
    if shape == "map":
        pairs = st.tuples(st.integers(0, 1), st.none() | value)
        return pa.map_(pa.int8(), kind), st.lists(pairs, max_size=2)
    both = {"a": st.none() | value, "b": st.none() | held}
    return pa.struct([("a", kind), ("b", other)]), st.fixed_dictionaries(both)


@given(columns(), st.integers(0, 3))
def test_as_one_by_one(pair: tuple[pa.Array, pa.Array], cut: int) -> None:
    """The answer is that of comparing values of Python as text; of slices, too."""
    first, second = (column.slice(cut) for column in pair)
    wanted = [
        repr(a) == repr(b) for a, b in zip(first.to_pylist(), second.to_pylist(), strict=True)
    ]
    assert equal_rows(first, second).tolist() == wanted


def test_fields_in_another_order() -> None:
    """Fields are found by name, as engines may reorder them."""
    first = pa.array([{"a": 1, "b": "x"}], pa.struct([("a", pa.int8()), ("b", pa.string())]))
    second = pa.array([{"b": "x", "a": 1}], pa.struct([("b", pa.string()), ("a", pa.int8())]))
    assert equal_rows(first, second).tolist() == [True]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_numbers_that_are_not_numbers(kind: pa.DataType) -> None:
    """NaNs of other bits are other values."""
    width = kind.bit_width // 8
    one = np.frombuffer(b"\x00" * (width - 2) + b"\xc0\x7f", f"<i{width}")
    other = np.frombuffer(b"\x01" + b"\x00" * (width - 3) + b"\xc0\x7f", f"<i{width}")
    first, second = (pa.array(bits).view(kind) for bits in (one, other))
    assert equal_rows(first, first).tolist() == [True]
    assert equal_rows(first, second).tolist() == [False]
