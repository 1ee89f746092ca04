"""Values of one serializer as bytes and as a column: what tests of serializers go through."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.kernels import skip
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import Cursor, Target

NOBODY = np.empty(0, np.uint8)


def cursor_over(values: list[bytes]) -> Cursor:
    """A cursor over values that lie one behind the other."""
    bounds = np.cumsum([0, *map(len, values)]).astype(np.int64)
    data = np.frombuffer(b"".join(values), np.uint8)
    return Cursor(data, bounds[:-1].copy(), bounds[1:].copy(), lambda at: f"byte {at}")


def decode(serializer: TypeSerializer, values: list[bytes]) -> tuple[pa.Array, list[bool]]:
    """The column, and of each row whether it is inexact."""
    cursor = cursor_over(values)
    column = serializer.decode(cursor)
    cursor.check_at_end()
    column.validate(full=True)
    return column, (cursor.inexact != 0).tolist()


def encode(serializer: TypeSerializer, column: pa.Array) -> list[bytes]:
    """Each row's bytes."""
    bounds = np.concatenate(([0], np.cumsum(serializer.sizes(column, NOBODY))))
    out = np.empty(int(bounds[-1]), np.uint8)
    target = Target(out, bounds[:-1].copy())
    serializer.encode(column, target)
    assert target.position.tolist() == bounds[1:].tolist()
    return [bytes(out[start:end]) for start, end in pairwise(bounds.tolist())]


def read(serializer: TypeSerializer, data: bytes) -> Any:
    """One value, which must take all bytes."""
    source = DataInput(data)
    found = serializer.read(source)
    if source.remaining:
        raise source.fault("bytes behind a complete value")
    return found


def write(serializer: TypeSerializer, value: Any) -> bytes:
    """One value's bytes."""
    out = DataOutput()
    serializer.write(value, out)
    return out.to_bytes()


def walked(serializer: TypeSerializer, values: list[bytes]) -> list[int]:
    """How long each value is as its program walks it; `skip.UNKNOWN` where nobody knows."""
    program = serializer.skip_program()
    assert program is not None
    cursor = cursor_over(values)
    begin, rows = cursor.position.copy(), cursor.rows
    starts, ends = np.empty(rows, np.int64), np.empty(rows, np.int64)
    failed = skip.locate_counted(
        cursor.data, cursor.position, cursor.end, np.ones(rows, np.int64),
        np.arange(rows + 1), np.array(program, np.int32), starts, ends,
    )  # fmt: skip
    assert failed == -1
    return np.where(ends == skip.UNKNOWN, skip.UNKNOWN, ends - begin).tolist()
