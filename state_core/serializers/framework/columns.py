"""Cursors and targets, with which serializers read and write columns.

A `Cursor` is the position of many values at once, each at its own place in one buffer; a `Target`
is the same for writing. A serializer reads its part at the cursor and moves the cursor behind it,
so that a tuple is read field by field, a column at a time.

Rows of two columns are compared without Python values: floats bit by bit, so that a NaN is equal to
itself and 0.0 is not equal to -0.0; nulls are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.bounds import EMPTY_ELEMENTS
from statelake.state_core.errors import CorruptSnapshotError, EncodeError, UnsupportedFormatError
from statelake.state_core.kernels import decode
from statelake.state_core.kernels.compiler import Kernel
from statelake.state_core.nested import elements_of, is_list, leaves

BoolArray: TypeAlias = npt.NDArray[np.bool_]

_BITS = {2: pa.int16(), 4: pa.int32(), 8: pa.int64()}


def equal_rows(first: pa.Array, second: pa.Array) -> BoolArray:
    """Return which rows are equal in two columns of one type."""
    valid, valid_too = ~null_rows(first), ~null_rows(second)
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
    if is_list(kind) or pa.types.is_map(kind):
        same &= ~both | _equal_lists(first, second, both)
        return same
    if pa.types.is_floating(kind):
        bits = _BITS[kind.bit_width // 8]
        first, second = first.view(bits), second.view(bits)
    import pyarrow.compute as pc  # noqa: PLC0415 - it takes time, which opening a snapshot need not

    alike: BoolArray = np.asarray(pc.fill_null(pc.equal(first, second), False))
    same &= ~both | alike
    return same


def odd_nans(values: pa.Array) -> BoolArray:
    """Return which rows have, anywhere in them, a NaN of other bits than Java's own."""
    odd: BoolArray = np.zeros(len(values), np.bool_)
    for leaf in leaves(values, pa.types.is_floating):
        numbers = fixed_values(leaf.values, leaf.values.type.to_pandas_dtype())
        bits = numbers.view(f"i{numbers.itemsize}")
        marked = np.isnan(numbers) & (bits != np.array(np.nan, numbers.dtype).view(bits.dtype))
        if marked.any():
            odd[leaf.rows(np.flatnonzero(marked & ~null_rows(leaf.values)))[0]] = True
    return odd


def _equal_lists(first: pa.Array, second: pa.Array, both: BoolArray) -> BoolArray:
    """Return which rows of `both` have the same elements, or entries, in the same order."""
    (bounds, items), (bounds_too, items_too) = elements_of(first), elements_of(second)
    counts = np.diff(bounds)
    same: BoolArray = both & (counts == np.diff(bounds_too))
    rows = np.flatnonzero(same)
    kept = counts[rows]
    if not kept.sum():
        return same
    items = items.take(pa.array(_flat(bounds[rows], kept)))
    items_too = items_too.take(pa.array(_flat(bounds_too[rows], kept)))
    differing = np.concatenate(([0], np.cumsum(~equal_rows(items, items_too))))
    ends = np.cumsum(kept)
    same[rows] = differing[ends] == differing[ends - kept]
    return same


def _flat(starts: I64Array, counts: I64Array) -> I64Array:
    """Return all positions of the ranges that begin at `starts`."""
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    flat: I64Array = np.repeat(starts, counts) + within
    return flat


U8Array: TypeAlias = npt.NDArray[np.uint8]
I32Array: TypeAlias = npt.NDArray[np.int32]
I64Array: TypeAlias = npt.NDArray[np.int64]

ALL_PRESENT: U8Array = np.empty(0, np.uint8)
MAX_COLUMN_BYTES = (1 << 31) - 1


class Cursor:
    """The position of each row's next value in a buffer.

    Args:
        data: The buffer, of bytes.
        position: The position of each row, moved by reading.
        end: The end of each row, never passed.
        place: Returns the name of a position in `data` for messages: file and offset, or state and
            key group.
        present: One byte a row, 0 for absent rows; of size 0 if all are present.
        inexact: One byte a row, set to 1 if the typed value alone does not determine its bytes.
        outer: The cursor over the same rows from which this one was created.
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
        """The number of values, present or not."""
        return len(self.position)

    @property
    def there(self) -> BoolArray:
        """Return whether each value is present."""
        return np.ones(self.rows, np.bool_) if self.present.size == 0 else self.present != 0

    def refuse(self, rows: BoolArray, problem: Callable[[int], str]) -> None:
        """Raise the error for the first of some rows, if there is one.

        Args:
            rows: Whether each row is refused.
            problem: Returns what is wrong with a row.
        """
        bad = np.flatnonzero(rows)
        if bad.size:
            raise self.fault(int(bad[0]), problem(int(bad[0])))

    def only(self, wanted: U8Array) -> Cursor:
        """Return a cursor over the same rows, absent where `wanted` is 0."""
        present = wanted if self.present.size == 0 else self.present & wanted
        return Cursor(self.data, self.position, self.end, self.place, present, self.inexact, self)

    def children(self, starts: I64Array, ends: I64Array) -> Cursor:
        """Return a cursor over other values of the same buffer, such as the elements of lists."""
        return Cursor(self.data, starts, ends, self.place)

    def adopt(self, child: Cursor, first: I64Array) -> None:
        """Mark rows inexact that have inexact elements, from `first[row]` to `first[row + 1]`."""
        if child.inexact.any():
            marked = np.concatenate(([0], np.cumsum(child.inexact, dtype=np.int64)))
            self.inexact |= (marked[first[1:]] > marked[first[:-1]]).astype(np.uint8)

    def expect_values(self, values: pa.Array) -> None:
        """Mark null rows inexact whose null flag is not set.

        Flink reads such rows, but never writes them.
        """
        if values.null_count:
            hidden = 1 - present_rows(values)
            self.inexact |= hidden if self.present.size == 0 else hidden & self.present

    def lose(self, rows: npt.NDArray[np.intp]) -> None:
        """Give up rows whose value has no known end; their exact bytes stay.

        Nothing more is read of them, and the values that contain them are null.
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
        """Raise the error for the row that a kernel returned, if it is not -1."""
        if row >= 0:
            raise self.fault(row, f"what should be {what} does not fit in its bytes")

    def fault(self, row: int, problem: str) -> CorruptSnapshotError:
        """Return the error for one row."""
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
        """Read four bytes of every row, big-endian."""
        out = np.empty(self.rows, np.int32)
        failed = decode.read_fixed32(self.data, self.position, self.end, self.present, out)
        self.check(failed, what)
        return out

    def read_int64(self, what: str) -> I64Array:
        """Read eight bytes of every row, big-endian."""
        out = np.empty(self.rows, np.int64)
        failed = decode.read_fixed64(self.data, self.position, self.end, self.present, out)
        self.check(failed, what)
        return out

    def read_flags(self, what: str) -> U8Array:
        """Read one byte of every row as 0 or 1."""
        out = np.empty(self.rows, np.uint8)
        totals = np.zeros(2, np.int64)
        failed = decode.read_bools(
            self.data, self.position, self.end, self.present, out, self.inexact, totals
        )
        self.check(failed, what)
        return out

    def read_counts(self, what: str, min_bytes_each: int) -> I64Array:
        """Read an i32 count of every row; refuse one that the row's bytes can't hold."""
        counts = self.read_int32(what).astype(np.int64)
        room = self.end - self.position
        limit = room // min_bytes_each if min_bytes_each else EMPTY_ELEMENTS.most
        bad = np.flatnonzero((counts < 0) | (counts > limit))
        if bad.size:
            row = int(bad[0])
            raise self.fault(row, f"{counts[row]} {what} declared in too few bytes")
        return counts

    def room(self, numerator: int = 1, denominator: int = 1) -> int:
        """Return the largest possible number of decoded bytes of the present rows.

        Raises:
            UnsupportedFormatError: It is more than an Arrow column with 32-bit offsets can hold.
        """
        size = int(decode.room(self.position, self.end, self.present))
        if size > MAX_COLUMN_BYTES:
            raise UnsupportedFormatError(
                f"{size} bytes of values in one batch, and a column holds 2 GiB",
                place=self.place(int(self.position[0])),
                remedy="a single value this large can't be decoded; drop the state first",
            )
        return size * numerator // denominator + 16


class Target:
    """The position at which each row's next value is written.

    Args:
        out: The buffer.
        position: The position of each row, moved by writing.
        present: The rows that have a value, as in `Cursor`.
    """

    __slots__ = ("out", "position", "present")

    def __init__(self, out: U8Array, position: I64Array, present: U8Array = ALL_PRESENT) -> None:
        self.out = out
        self.position = position
        self.present = present

    def only(self, wanted: U8Array) -> Target:
        """Return a target for the same rows, absent where `wanted` is 0."""
        present = wanted if self.present.size == 0 else self.present & wanted
        return Target(self.out, self.position, present)

    def valued(self, values: pa.Array) -> Target:
        """Return a target for the rows of a column that are not null."""
        valid = present_rows(values)
        return self.only(valid) if valid.size else self

    def write_zeros(self, rows: BoolArray, size: int) -> None:
        """Write so many zeros in some of the rows, in those that are present."""
        wanted = rows if self.present.size == 0 else rows & (self.present != 0)
        positions = self.position[wanted]
        for byte in range(size):
            self.out[positions + byte] = 0
        self.position[wanted] += size


# --------------------------------------------------------------------------- Arrow and NumPy


def arrow_buffer(values: npt.NDArray[Any]) -> pa.Buffer:
    """Return the array's memory as an Arrow buffer, without copying."""
    return pa.py_buffer(values)


def validity(present: U8Array) -> tuple[pa.Buffer | None, int]:
    """Return a validity bitmap and its number of nulls, of one byte a row (size 0: all valid)."""
    if present.size == 0:
        return None, 0
    nulls = int(present.size - np.count_nonzero(present))
    if nulls == 0:
        return None, 0
    return pa.py_buffer(np.packbits(present, bitorder="little")), nulls


def present_rows(values: pa.Array) -> U8Array:
    """Return one byte a row, 0 where it is null; of size 0 without nulls."""
    if values.null_count == 0:
        return ALL_PRESENT
    if pa.types.is_null(values.type):
        return np.zeros(len(values), np.uint8)
    bitmap = np.frombuffer(values.buffers()[0], np.uint8)
    first = values.offset
    bits = np.unpackbits(bitmap, count=first + len(values), bitorder="little")
    return np.ascontiguousarray(bits[first:])


def null_rows(values: pa.Array) -> BoolArray:
    """Return which rows are null."""
    valid = present_rows(values)
    return np.zeros(len(values), np.bool_) if valid.size == 0 else valid == 0


def struct_array(
    kind: pa.DataType, present: U8Array, columns: Sequence[pa.Array], rows: int
) -> pa.Array:
    """Return a struct of these columns."""
    bitmap, nulls = validity(present)
    return pa.Array.from_buffers(kind, rows, [bitmap], nulls, children=list(columns))


def written_rows(values: pa.Array, present: U8Array) -> U8Array:
    """Return one byte a row, 0 where it is null or absent; of size 0 if all rows are written."""
    valid = present_rows(values)
    if present.size == 0 or valid.size == 0:
        return valid if present.size == 0 else present
    return valid & present


def require_values(values: pa.Array, present: U8Array, what: str) -> None:
    """Refuse nulls where a value must be written.

    Raises:
        EncodeError: There is a null, and the type has no form for it.
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
    """Return the values of a fixed-width array without copying; undefined where null."""
    width = np.dtype(dtype).itemsize
    buffer = values.buffers()[1]
    if buffer is None:
        return np.zeros(len(values), dtype)
    return np.frombuffer(buffer, dtype, len(values), values.offset * width)


def fixed_sizes(rows: int, size: int, present: U8Array) -> I64Array:
    """Return the same size for every row, 0 where it is not present."""
    return present.astype(np.int64) * size if present.size else np.full(rows, size, np.int64)


def variable_sizes(values: pa.Array, present: U8Array = ALL_PRESENT, head: int = 0) -> I64Array:
    """Return the bytes of each row of a string or binary array, 0 where it is not present.

    Args:
        values: The array.
        present: The rows that have a value, as in `Cursor`.
        head: Bytes in front of those of each present row, such as its length.
    """
    sizes: I64Array = np.diff(variable_values(values)[0]).astype(np.int64) + head
    return sizes * present if present.size else sizes


def decode_bytes(cursor: Cursor, read: Kernel, what: str) -> pa.Array:
    """Read a binary column with a kernel of `state_core.kernels.decode`."""
    offsets = np.empty(cursor.rows + 1, np.int32)
    data = np.empty(cursor.room(), np.uint8)
    totals = np.zeros(2, np.int64)
    failed = read(cursor.data, cursor.position, cursor.end, cursor.present, offsets, data, totals)
    cursor.check(failed, what)
    bitmap, nulls = validity(cursor.present)
    buffers = [bitmap, arrow_buffer(offsets), arrow_buffer(data[: totals[0]])]
    return pa.Array.from_buffers(pa.binary(), cursor.rows, buffers, nulls)


def variable_values(values: pa.Array) -> tuple[I32Array, U8Array]:
    """Return offsets (one more than rows) and bytes of a string or binary array, not copied."""
    _, offsets, data = values.buffers()
    if offsets is None or offsets.size == 0:
        return np.zeros(len(values) + 1, np.int32), np.empty(0, np.uint8)
    starts = np.frombuffer(offsets, np.int32, len(values) + 1, values.offset * 4)
    content = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return starts, content
