"""Arrow columns of Flink SQL's values, and back to the content of slots.

`state` tells for each row whether it has a value (`state_core.kernels.binary_rows`); a value that a
column can't hold is null in it, and marked inexact.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import EncodeError, UnsupportedFormatError
from statelake.state_core.kernels import binary_values as reading
from statelake.state_core.kernels.binary_rows import ABSENT, NULL, VALUE
from statelake.state_core.serializers.composite.collections import offsets_of
from statelake.state_core.serializers.framework.columns import (
    MAX_COLUMN_BYTES,
    I64Array,
    U8Array,
    arrow_buffer,
    fixed_values,
    present_rows,
    validity,
)

U64Array: TypeAlias = npt.NDArray[np.uint64]


def pad(sizes: I64Array) -> I64Array:
    """Return sizes rounded up to multiples of 8."""
    padded: I64Array = (sizes + 7) & ~np.int64(7)
    return padded


def write_states(values: pa.Array, present: U8Array) -> U8Array:
    """Return for each row whether it is absent, a value, or a null."""
    valid = present_rows(values)
    state = np.full(len(values), VALUE, np.uint8)
    if valid.size:
        state[valid == 0] = NULL
    if present.size:
        state[present == 0] = ABSENT
    return state


def state_validity(state: U8Array) -> tuple[pa.Buffer | None, int]:
    """Return a validity bitmap and its number of nulls."""
    return validity((state == VALUE).astype(np.uint8))


def fixed_column(kind: pa.DataType, values: npt.NDArray[Any], state: U8Array) -> pa.Array:
    """Return a column of fixed width."""
    bitmap, nulls = state_validity(state)
    return pa.Array.from_buffers(kind, len(state), [bitmap, arrow_buffer(values)], nulls)


def timestamp_type(*, local: bool) -> pa.DataType:
    """Return the column type: an instant for TIMESTAMP_LTZ; TIMESTAMP has no time zone."""
    return pa.timestamp("us", "UTC") if local else pa.timestamp("us")


def timestamp_column(
    kind: pa.DataType,
    millis: I64Array,
    nanos: npt.NDArray[np.int32] | None,
    state: U8Array,
    inexact: U8Array,
) -> pa.Array:
    """Return a column of milliseconds, and nanoseconds of the millisecond, as microseconds."""
    micros = np.empty(len(millis), np.int64)
    if nanos is None:
        reading.millis_to_micros(millis, state, micros, inexact)
    else:
        reading.join_nanos(millis, nanos, state, micros, inexact)
    return fixed_column(kind, micros, state)


def micros_of(values: pa.Array, state: U8Array) -> I64Array:
    """Return microseconds, 0 where there is no value."""
    return np.where(state == VALUE, fixed_values(values, np.int64), 0)


def millis_of(values: pa.Array, state: U8Array) -> I64Array:
    """Return the milliseconds of a column of microseconds.

    Raises:
        EncodeError: A value is finer than milliseconds.
    """
    micros = micros_of(values, state)
    millis: I64Array = micros // 1000
    finer = np.flatnonzero(millis * 1000 != micros)
    if finer.size:
        row = int(finer[0])
        raise EncodeError(
            f"row {row} is {values[row]}, and its type holds milliseconds",
            remedy="round it yourself, or choose a type of more digits",
        )
    return millis


def decimal_column(
    kind: pa.DataType,
    data: U8Array,
    starts: I64Array,
    ends: I64Array,
    state: U8Array,
    inexact: U8Array,
) -> tuple[pa.Array, int]:
    """Return big-endian two's complement as decimals, and the first row of no bytes, or -1."""
    words = np.empty(2 * len(starts), np.uint64)
    limit = 10**kind.precision
    low, high = np.uint64(limit & (1 << 64) - 1), np.uint64(limit >> 64)
    failed = reading.parse_decimals(data, starts, ends, low, high, state, words, inexact)
    return fixed_column(kind, words, state), int(failed)


def decimal_words(values: pa.Array) -> U64Array:
    """Return the two 64-bit words of each decimal, the low one first."""
    buffer = values.buffers()[1]
    if buffer is None:
        return np.zeros(2 * len(values), np.uint64)
    return np.frombuffer(buffer, np.uint64, 2 * len(values), values.offset * 16)


def _bounds(starts: I64Array, ends: I64Array) -> I64Array:
    bounds = offsets_of(ends - starts)
    if bounds[-1] > MAX_COLUMN_BYTES:
        raise UnsupportedFormatError(
            f"{bounds[-1]} bytes of values in one batch, and a column holds 2 GiB",
            remedy="a single value this large can't be decoded; drop the state first",
        )
    return bounds


def _variable_column(
    kind: pa.DataType, bounds: I64Array, data: U8Array, state: U8Array
) -> pa.Array:
    bitmap, nulls = state_validity(state)
    buffers = [bitmap, arrow_buffer(bounds.astype(np.int32)), arrow_buffer(data)]
    return pa.Array.from_buffers(kind, len(state), buffers, nulls)


def binary_column(data: U8Array, starts: I64Array, ends: I64Array, state: U8Array) -> pa.Array:
    """Return ranges of bytes as a column."""
    bounds = _bounds(starts, ends)
    out = np.empty(int(bounds[-1]), np.uint8)
    reading.gather(data, starts, ends, bounds, out)
    return _variable_column(pa.binary(), bounds, out, state)


def string_column(
    data: U8Array, starts: I64Array, ends: I64Array, state: U8Array, inexact: U8Array
) -> pa.Array:
    """Return ranges of UTF-8 as a column; invalid ones become U+FFFD and are inexact."""
    bounds = _bounds(starts, ends)
    out = np.empty(int(bounds[-1]), np.uint8)
    reading.gather(data, starts, ends, bounds, out)
    bad = np.empty(len(starts), np.uint8)
    if reading.find_bad_utf8(bounds, out, bad):
        inexact |= bad
        raw = [bytes(out[at:to]) for at, to in pairwise(bounds.tolist())]
        text = [text_bytes.decode("utf-8", "replace") for text_bytes in raw]
        return pa.array(text, pa.string(), mask=state != VALUE)
    return _variable_column(pa.string(), bounds, out, state)
