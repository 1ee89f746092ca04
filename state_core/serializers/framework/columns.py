"""Columns on their way between bytes and Arrow: what every serializer's fast path works with.

`Cursor` is the reading side: many values at once, each at its own place in one buffer. `Target`
is the writing side. A serializer reads its part at the cursor and leaves it behind what it read,
so a tuple is its fields one after the other, a column at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state_core.bounds import EMPTY_ELEMENTS
from state_core.errors import CorruptSnapshotError, EncodeError, UnsupportedFormatError
from state_core.kernels import decode

__all__ = [
    "Cursor",
    "I32Array",
    "I64Array",
    "Target",
    "U8Array",
    "arrow_buffer",
    "fixed_values",
    "list_offsets",
    "present_rows",
    "require_values",
    "validity",
    "variable_values",
]

U8Array: TypeAlias = npt.NDArray[np.uint8]
I32Array: TypeAlias = npt.NDArray[np.int32]
I64Array: TypeAlias = npt.NDArray[np.int64]

ALL_PRESENT: U8Array = np.empty(0, np.uint8)
MAX_COLUMN_BYTES = (1 << 31) - 1


class Cursor:
    """Where each row's next value lies in a buffer.

    Args:
        data: The buffer, of bytes.
        position: Per row, moved by what is read.
        end: Per row, never passed.
        place: Names a position of `data` for messages: file and offset, or state and key group.
        present: Per row, 0 where there is nothing to read; of size 0 if all are present.
        inexact: Per row, set to 1 where the typed value alone can't give its bytes back.
        outer: The cursor over the same rows that this one was made of.
    """

    __slots__ = ("data", "end", "inexact", "outer", "place", "position", "present")

    def __init__(
        self,
        data: U8Array,
        position: I64Array,
        end: I64Array,
        place: Callable[[int], str],
        present: U8Array = ALL_PRESENT,
        inexact: U8Array | None = None,
        outer: Cursor | None = None,
    ) -> None:
        self.data = data
        self.position = position
        self.end = end
        self.place = place
        self.present = present
        self.inexact = np.zeros(len(position), np.uint8) if inexact is None else inexact
        self.outer = outer

    @property
    def rows(self) -> int:
        """How many values there are, present or not."""
        return len(self.position)

    def only(self, wanted: U8Array) -> Cursor:
        """The same rows, with nothing to read where `wanted` is 0."""
        present = wanted if self.present.size == 0 else self.present & wanted
        return Cursor(self.data, self.position, self.end, self.place, present, self.inexact, self)

    def children(self, starts: I64Array, ends: I64Array) -> Cursor:
        """Other values of the same buffer, such as the elements of these rows' lists."""
        return Cursor(self.data, starts, ends, self.place)

    def adopt(self, child: Cursor, first: I64Array) -> None:
        """Mark rows inexact whose elements, from `first[row]` to `first[row + 1]`, are."""
        if child.inexact.any():
            marked = np.concatenate(([0], np.cumsum(child.inexact, dtype=np.int64)))
            self.inexact |= (marked[first[1:]] > marked[first[:-1]]).astype(np.uint8)

    def expect_values(self, values: pa.Array) -> None:
        """Mark rows inexact that are null though a flag before them says that they are not.

        Flink would read them, and writes none such.
        """
        if values.null_count:
            hidden = 1 - present_rows(values)
            self.inexact |= hidden if self.present.size == 0 else hidden & self.present

    def lose(self, rows: npt.NDArray[np.intp]) -> None:
        """Give rows up of which nobody knows where the value ends; their exact bytes stay.

        From here on nothing is read of them, and whatever they are part of is null.
        """
        self.inexact[rows] = 1
        self.position[rows] = self.end[rows]
        losing: Cursor | None = self
        while losing is not None:
            present = losing.present.copy() if losing.present.size else np.ones(self.rows, np.uint8)
            present[rows] = 0
            losing.present = present
            losing = losing.outer

    def check(self, row: int, what: str) -> None:
        """Raise for the row that a kernel returned, if it returned one."""
        if row >= 0:
            raise self.fault(row, f"what should be {what} does not fit in its bytes")

    def fault(self, row: int, problem: str) -> CorruptSnapshotError:
        """The error for one row."""
        return CorruptSnapshotError(
            problem,
            place=self.place(int(self.position[row])),
            remedy="the snapshot is damaged, or its serializer is not the one it names",
        )

    def check_at_end(self) -> None:
        """Refuse rows whose value ended before their bytes did."""
        row = decode.first_unfinished(self.position, self.end, self.present)
        if row >= 0:
            extra = int(self.end[row] - self.position[row])
            raise self.fault(row, f"{extra} bytes behind a complete value")

    def read_int32(self, what: str) -> I32Array:
        """Four bytes of every row, big-endian."""
        out = np.empty(self.rows, np.int32)
        failed = decode.read_fixed32(self.data, self.position, self.end, self.present, out)
        self.check(failed, what)
        return out

    def read_int64(self, what: str) -> I64Array:
        """Eight bytes of every row, big-endian."""
        out = np.empty(self.rows, np.int64)
        failed = decode.read_fixed64(self.data, self.position, self.end, self.present, out)
        self.check(failed, what)
        return out

    def read_flags(self, what: str) -> U8Array:
        """One byte of every row as 0 or 1."""
        out = np.empty(self.rows, np.uint8)
        totals = np.zeros(2, np.int64)
        failed = decode.read_bools(
            self.data, self.position, self.end, self.present, out, self.inexact, totals
        )
        self.check(failed, what)
        return out

    def read_counts(self, what: str, least_bytes_each: int) -> I64Array:
        """An i32 count of every row, refused where the row's bytes can't hold that many."""
        counts = self.read_int32(what).astype(np.int64)
        room = self.end - self.position
        most = room // least_bytes_each if least_bytes_each else EMPTY_ELEMENTS.most
        bad = np.flatnonzero((counts < 0) | (counts > most))
        if bad.size:
            row = int(bad[0])
            raise self.fault(row, f"{counts[row]} {what} declared in too few bytes")
        return counts

    def room(self, numerator: int = 1, denominator: int = 1) -> int:
        """Bytes that the present rows could decode to at most.

        Raises:
            UnsupportedFormatError: More than an Arrow column of 32-bit offsets holds.
        """
        held = int(decode.room(self.position, self.end, self.present))
        if held > MAX_COLUMN_BYTES:
            raise UnsupportedFormatError(
                f"{held} bytes of values in one batch, and a column holds 2 GiB",
                place=self.place(int(self.position[0])),
                remedy="a single value this large can't be decoded; drop the state first",
            )
        return held * numerator // denominator + 16


class Target:
    """Where each row's next value is to be written.

    Args:
        out: The buffer.
        position: Per row, moved by what is written.
        present: As in `Cursor`.
    """

    __slots__ = ("out", "position", "present")

    def __init__(self, out: U8Array, position: I64Array, present: U8Array = ALL_PRESENT) -> None:
        self.out = out
        self.position = position
        self.present = present

    def only(self, wanted: U8Array) -> Target:
        """The same rows, with nothing to write where `wanted` is 0."""
        present = wanted if self.present.size == 0 else self.present & wanted
        return Target(self.out, self.position, present)


# --------------------------------------------------------------------------- Arrow and NumPy


def arrow_buffer(values: npt.NDArray[Any]) -> pa.Buffer:
    """The array's memory as an Arrow buffer, not copied."""
    return pa.py_buffer(values)


def validity(present: U8Array) -> tuple[pa.Buffer | None, int]:
    """A validity bitmap and its number of nulls, of one byte a row (size 0: all valid)."""
    if present.size == 0:
        return None, 0
    nulls = int(present.size - np.count_nonzero(present))
    if nulls == 0:
        return None, 0
    return pa.py_buffer(np.packbits(present, bitorder="little")), nulls


def present_rows(values: pa.Array) -> U8Array:
    """One byte a row, 0 where it is null; of size 0 if none is."""
    if values.null_count == 0:
        return ALL_PRESENT
    if pa.types.is_null(values.type):
        return np.zeros(len(values), np.uint8)
    bitmap = np.frombuffer(values.buffers()[0], np.uint8)
    first = values.offset
    bits = np.unpackbits(bitmap, count=first + len(values), bitorder="little")
    return np.ascontiguousarray(bits[first:])


def require_values(values: pa.Array, present: U8Array, what: str) -> None:
    """Refuse nulls where a value is to be written.

    Raises:
        EncodeError: There is one, and the type has no form for it.
    """
    if values.null_count == 0:
        return
    missing = present_rows(values) == 0
    if present.size:
        missing &= present != 0
    rows = np.flatnonzero(missing)
    if rows.size:
        raise EncodeError(
            f"row {int(rows[0])} is null, and a {what} in Flink's state can't be",
            remedy="set a value, or delete the row",
        )


def fixed_values(values: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    """The values of a fixed-width array, not copied; where null, whatever lies there."""
    width = np.dtype(dtype).itemsize
    buffer = values.buffers()[1]
    if buffer is None:
        return np.zeros(len(values), dtype)
    return np.frombuffer(buffer, dtype, len(values), values.offset * width)


def variable_values(values: pa.Array) -> tuple[I32Array, U8Array]:
    """Offsets (one more than rows) and bytes of a string or binary array, not copied."""
    _, offsets, data = values.buffers()
    if offsets is None or offsets.size == 0:
        return np.zeros(len(values) + 1, np.int32), np.empty(0, np.uint8)
    starts = np.frombuffer(offsets, np.int32, len(values) + 1, values.offset * 4)
    held = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return starts, held


def list_offsets(values: pa.Array) -> I64Array:
    """Where each row's elements begin among `values.values`, and behind the last row's."""
    buffer = values.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(len(values) + 1, np.int64)
    raw = np.frombuffer(buffer, np.int32, len(values) + 1, values.offset * 4)
    return raw.astype(np.int64)
