"""What stands in a slot of Flink SQL's binary format: numbers, and references to longer values.

A `SlotFormat` is the form that one SQL type has in a slot of a row or an array. It reads a field
of many sections at once (`Slots`) into an Arrow column, and writes it back (`Places`). A value
that the column can't hold (a TIMESTAMP of the year 20000, a DECIMAL of more digits than its type
has) becomes null there, and its row is marked inexact, so that its exact bytes travel beside.

Source: `org.apache.flink.table.data.writer.BinaryWriter`, `BinarySegmentUtils`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state_core.errors import CorruptSnapshotError, EncodeError, UnsupportedFormatError
from state_core.kernels import binary_rows as reading
from state_core.kernels import binary_rows_encode as writing
from state_core.kernels.binary_rows import ABSENT, NULL, VALUE
from state_core.serializers.columns import (
    MAX_COLUMN_BYTES,
    I64Array,
    U8Array,
    arrow_buffer,
    fixed_values,
    present_rows,
    validity,
    variable_values,
)

__all__ = [
    "BinaryFormat", "BooleanFormat", "DateFormat", "NumberFormat", "Places", "SlotFormat", "Slots",
    "SmallDecimalFormat", "SmallTimestampFormat", "StringFormat", "WideDecimalFormat",
    "WideTimestampFormat", "binary_column", "decimal_column", "decimal_words", "micros_of",
    "millis_of", "pad", "string_column", "timestamp_column", "timestamp_type", "write_states",
]  # fmt: skip

U64Array: TypeAlias = npt.NDArray[np.uint64]

OF_THEIR_OWN: I64Array = np.empty(0, np.int64)


@dataclass(frozen=True)
class Slots:
    """One field of many sections, to be read.

    Attributes:
        data: The bytes.
        slots: Where each slot begins.
        state: Of each slot, what `state_core.kernels.binary_rows` says of it.
        base: Where each section begins.
        end: Where each section ends.
        owner: Each slot's section; of size 0 if each slot has a section of its own.
        cursor: Of each section, where its next longer value is expected.
        padding: How wide a slot is at least: 8 in a row, 0 in an array.
        inexact: Per slot.
        place: Names a position for messages.
    """

    data: U8Array
    slots: I64Array
    state: U8Array
    base: I64Array
    end: I64Array
    owner: I64Array
    cursor: I64Array
    padding: int
    inexact: U8Array
    place: Callable[[int], str]

    def check(self, slot: int, what: str) -> None:
        """Raise for the slot that a kernel returned, if it returned one."""
        if slot >= 0:
            raise CorruptSnapshotError(
                f"{what} that leads out of its row or array",
                place=self.place(int(self.slots[slot])),
                remedy="the snapshot is damaged, or its serializer is not the one it names",
            )

    def locate(self, *, inline: bool, what: str) -> tuple[I64Array, I64Array]:
        """Where the bytes of longer values lie."""
        starts, ends = np.empty(len(self.slots), np.int64), np.empty(len(self.slots), np.int64)
        failed = reading.locate_values(
            self.data, self.slots, self.state, self.base, self.end, self.owner, self.cursor, inline,
            starts, ends, self.inexact,
        )  # fmt: skip
        self.check(failed, what)
        return starts, ends

    def column(self, kind: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
        """A column of fixed width."""
        return _fixed_column(kind, values, self.state)


@dataclass(frozen=True)
class Places:
    """One field of many sections, to be written into a zeroed buffer.

    Attributes:
        out: The buffer.
        slots: Where each slot begins.
        state: Per slot: absent, a value, or null.
        base: Where each section begins.
        owner: Each slot's section; of size 0 if each slot has a section of its own.
        targets: Per slot, where its longer value goes.
    """

    out: U8Array
    slots: I64Array
    state: U8Array
    base: I64Array
    owner: I64Array
    targets: I64Array


class SlotFormat(ABC):
    """The form of one SQL type in a slot.

    Attributes:
        width: Bytes of a slot in an array; in a row it is always 8.
        arrow_type: The type of the column.
    """

    width: int = 8
    arrow_type: pa.DataType

    @abstractmethod
    def decode(self, slots: Slots) -> pa.Array:
        """The column."""

    @abstractmethod
    def encode(self, values: pa.Array, places: Places) -> None:
        """Write the column, which `reserve` has checked."""

    def reserve(self, values: pa.Array, state: U8Array) -> I64Array | None:
        """Bytes that each value takes outside its slot, a multiple of 8; None if never any.

        Raises:
            EncodeError: A value that the type has no form for.
        """
        return None


class NumberFormat(SlotFormat):
    """A number of 1, 2, 4 or 8 bytes.

    Args:
        arrow_type: An Arrow type of that width.
        width: Its bytes.
    """

    def __init__(self, arrow_type: pa.DataType, width: int) -> None:
        self.arrow_type = arrow_type
        self.width = width

    def decode(self, slots: Slots) -> pa.Array:
        """The numbers, zero where null."""
        return slots.column(self.arrow_type, read_numbers(slots, self.width))

    def encode(self, values: pa.Array, places: Places) -> None:
        """The numbers."""
        _, write, dtype = _NUMBERS[self.width]
        write(fixed_values(values, dtype), places.state, places.slots, places.out)


class BooleanFormat(SlotFormat):
    """BOOLEAN: a byte, 0 or 1."""

    width = 1
    arrow_type = pa.bool_()

    def decode(self, slots: Slots) -> pa.Array:
        """Bytes into bits; any other byte is true too, and inexact."""
        found = read_numbers(slots, 1)
        slots.inexact[found > 1] = 1
        bits = pa.py_buffer(np.packbits(found != 0, bitorder="little"))
        bitmap, nulls = _validity(slots.state)
        return pa.Array.from_buffers(pa.bool_(), len(found), [bitmap, bits], nulls)

    def encode(self, values: pa.Array, places: Places) -> None:
        """Bits into bytes."""
        found = np.asarray(values.fill_null(False)).astype(np.uint8)
        writing.write_slots8(found, places.state, places.slots, places.out)


class DateFormat(NumberFormat):
    """DATE: days since 1970."""

    def __init__(self) -> None:
        super().__init__(pa.date32(), 4)

    def decode(self, slots: Slots) -> pa.Array:
        """Days of years 1 to 9999."""
        days = read_numbers(slots, 4)
        reading.check_dates(days, slots.state, slots.inexact)
        return slots.column(self.arrow_type, days)


class SmallTimestampFormat(SlotFormat):
    """TIMESTAMP of up to 3 digits: milliseconds."""

    def __init__(self, arrow_type: pa.DataType) -> None:
        self.arrow_type = arrow_type

    def decode(self, slots: Slots) -> pa.Array:
        """As microseconds, which is what Spark has."""
        millis = read_numbers(slots, 8)
        return timestamp_column(self.arrow_type, millis, None, slots.state, slots.inexact)

    def reserve(self, values: pa.Array, state: U8Array) -> None:
        """Nothing, but microseconds are refused."""
        millis_of(values, state)

    def encode(self, values: pa.Array, places: Places) -> None:
        """As milliseconds."""
        millis = millis_of(values, places.state)
        writing.write_slots64(millis, places.state, places.slots, places.out)


class WideTimestampFormat(SlotFormat):
    """TIMESTAMP of more than 3 digits: nanoseconds in the slot, milliseconds outside."""

    def __init__(self, arrow_type: pa.DataType) -> None:
        self.arrow_type = arrow_type

    def decode(self, slots: Slots) -> pa.Array:
        """As microseconds; what they cut off is inexact."""
        micros = np.empty(len(slots.slots), np.int64)
        failed = reading.read_wide_timestamps(
            slots.data, slots.slots, slots.state, slots.base, slots.end, slots.owner, slots.cursor,
            micros, slots.inexact,
        )  # fmt: skip
        slots.check(failed, "a TIMESTAMP")
        return slots.column(self.arrow_type, micros)

    def reserve(self, values: pa.Array, state: U8Array) -> I64Array:
        """Eight bytes."""
        sizes: I64Array = (state == VALUE).astype(np.int64) * 8
        return sizes

    def encode(self, values: pa.Array, places: Places) -> None:
        """Both parts."""
        writing.write_wide_timestamps(
            fixed_values(values, np.int64), places.state, places.slots, places.base, places.owner,
            places.targets, places.out,
        )  # fmt: skip


class SmallDecimalFormat(SlotFormat):
    """DECIMAL of up to 18 digits: the unscaled value."""

    def __init__(self, precision: int, scale: int) -> None:
        self.arrow_type = pa.decimal128(precision, scale)

    def decode(self, slots: Slots) -> pa.Array:
        """As 128 bits."""
        unscaled = read_numbers(slots, 8)
        words = np.empty(2 * len(unscaled), np.uint64)
        limit = 10**self.arrow_type.precision
        reading.widen_decimals(unscaled, limit, slots.state, words, slots.inexact)
        return slots.column(self.arrow_type, words)

    def encode(self, values: pa.Array, places: Places) -> None:
        """The low 64 bits."""
        low = np.ascontiguousarray(decimal_words(values)[::2]).view(np.int64)
        writing.write_slots64(low, places.state, places.slots, places.out)


class WideDecimalFormat(SlotFormat):
    """DECIMAL of more than 18 digits: up to 16 bytes, big-endian, in a space of 16."""

    def __init__(self, precision: int, scale: int) -> None:
        self.arrow_type = pa.decimal128(precision, scale)

    def decode(self, slots: Slots) -> pa.Array:
        """As 128 bits."""
        starts, ends = np.empty(len(slots.slots), np.int64), np.empty(len(slots.slots), np.int64)
        failed = reading.locate_decimals(
            slots.data, slots.slots, slots.state, slots.base, slots.end, slots.owner, slots.cursor,
            starts, ends, slots.inexact,
        )  # fmt: skip
        slots.check(failed, "a DECIMAL")
        column, failed = decimal_column(
            self.arrow_type, slots.data, starts, ends, slots.state, slots.inexact
        )
        slots.check(failed, "a DECIMAL")
        return column

    def reserve(self, values: pa.Array, state: U8Array) -> I64Array:
        """Sixteen bytes."""
        sizes: I64Array = (state == VALUE).astype(np.int64) * 16
        return sizes

    def encode(self, values: pa.Array, places: Places) -> None:
        """As few bytes as hold the number."""
        words = decimal_words(values)
        lengths = np.empty(len(values), np.int64)
        writing.decimal_lengths(words, places.state, lengths)
        writing.write_references(
            lengths, places.state, places.slots, places.base, places.owner, places.targets,
            places.out,
        )  # fmt: skip
        writing.write_decimals(words, lengths, places.targets, places.out)


class BinaryFormat(SlotFormat):
    """Bytes: up to 7 in the slot where `inline` says so, else outside.

    Args:
        inline: BINARY and VARBINARY are; RAW, VARIANT and BITMAP never.
    """

    arrow_type = pa.binary()

    def __init__(self, *, inline: bool) -> None:
        self.inline = inline

    def decode(self, slots: Slots) -> pa.Array:
        """The bytes as they are."""
        starts, ends = slots.locate(inline=self.inline, what="bytes")
        return binary_column(slots.data, starts, ends, slots.state)

    def reserve(self, values: pa.Array, state: U8Array) -> I64Array:
        """Its bytes, where they are not in the slot."""
        sizes = np.where(state == VALUE, _lengths(values), 0)
        return pad(np.where(sizes > reading.MAX_INLINE, sizes, 0) if self.inline else sizes)

    def encode(self, values: pa.Array, places: Places) -> None:
        """The bytes as they are."""
        offsets, data = variable_values(values)
        if self.inline:
            writing.write_inline(
                offsets, data, places.state, places.slots, places.base, places.owner,
                places.targets, places.out,
            )  # fmt: skip
            return
        sizes = np.where(places.state == VALUE, _lengths(values), 0)
        writing.write_references(
            sizes, places.state, places.slots, places.base, places.owner, places.targets, places.out
        )
        starts = offsets[:-1].astype(np.int64)
        reading.gather(data, starts, starts + sizes, places.targets, places.out)


class StringFormat(BinaryFormat):
    """CHAR and VARCHAR: UTF-8."""

    arrow_type = pa.string()

    def __init__(self) -> None:
        super().__init__(inline=True)

    def decode(self, slots: Slots) -> pa.Array:
        """The text; what is no UTF-8 becomes U+FFFD and is inexact."""
        starts, ends = slots.locate(inline=True, what="a string")
        return string_column(slots.data, starts, ends, slots.state, slots.inexact)


_NUMBERS: dict[int, tuple[Any, Any, type]] = {
    1: (reading.read_slots8, writing.write_slots8, np.uint8),
    2: (reading.read_slots16, writing.write_slots16, np.int16),
    4: (reading.read_slots32, writing.write_slots32, np.int32),
    8: (reading.read_slots64, writing.write_slots64, np.int64),
}


def read_numbers(slots: Slots, width: int) -> npt.NDArray[Any]:
    """Little-endian numbers of some width; 0 where there is none."""
    read, _, dtype = _NUMBERS[width]
    out: npt.NDArray[Any] = np.empty(len(slots.slots), dtype)
    padding = () if width == 8 else (max(0, slots.padding - width),)
    read(slots.data, slots.slots, slots.state, *padding, out, slots.inexact)
    return out


def pad(sizes: I64Array) -> I64Array:
    """Sizes rounded up to multiples of 8."""
    padded: I64Array = (sizes + 7) & ~np.int64(7)
    return padded


def write_states(values: pa.Array, present: U8Array) -> U8Array:
    """What is to be written of each row: nothing, a value, or a null."""
    valid = present_rows(values)
    state = np.full(len(values), VALUE, np.uint8)
    if valid.size:
        state[valid == 0] = NULL
    if present.size:
        state[present == 0] = ABSENT
    return state


# --------------------------------------------------------------------------- columns


def _validity(state: U8Array) -> tuple[pa.Buffer | None, int]:
    return validity((state == VALUE).astype(np.uint8))


def _fixed_column(kind: pa.DataType, values: npt.NDArray[Any], state: U8Array) -> pa.Array:
    bitmap, nulls = _validity(state)
    return pa.Array.from_buffers(kind, len(state), [bitmap, arrow_buffer(values)], nulls)


def timestamp_type(*, local: bool) -> pa.DataType:
    """TIMESTAMP_LTZ is an instant; TIMESTAMP has no time zone."""
    return pa.timestamp("us", "UTC") if local else pa.timestamp("us")


def timestamp_column(
    kind: pa.DataType,
    millis: I64Array,
    nanos: npt.NDArray[np.int32] | None,
    state: U8Array,
    inexact: U8Array,
) -> pa.Array:
    """Milliseconds, and nanoseconds of the millisecond, as microseconds."""
    micros = np.empty(len(millis), np.int64)
    if nanos is None:
        reading.millis_to_micros(millis, state, micros, inexact)
    else:
        reading.join_nanos(millis, nanos, state, micros, inexact)
    return _fixed_column(kind, micros, state)


def micros_of(values: pa.Array, state: U8Array) -> I64Array:
    """Microseconds, 0 where there is no value."""
    return np.where(state == VALUE, fixed_values(values, np.int64), 0)


def millis_of(values: pa.Array, state: U8Array) -> I64Array:
    """Milliseconds of a column of microseconds.

    Raises:
        EncodeError: There is more than milliseconds.
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
    """Big-endian two's complement as decimals, and the first row of no bytes, or -1."""
    words = np.empty(2 * len(starts), np.uint64)
    limit = 10**kind.precision
    low, high = np.uint64(limit & (1 << 64) - 1), np.uint64(limit >> 64)
    failed = reading.parse_decimals(data, starts, ends, low, high, state, words, inexact)
    return _fixed_column(kind, words, state), int(failed)


def decimal_words(values: pa.Array) -> U64Array:
    """Two words of each decimal, the low one first."""
    buffer = values.buffers()[1]
    if buffer is None:
        return np.zeros(2 * len(values), np.uint64)
    return np.frombuffer(buffer, np.uint64, 2 * len(values), values.offset * 16)


def _bounds(starts: I64Array, ends: I64Array) -> I64Array:
    bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(ends - starts, dtype=np.int64)))
    if bounds[-1] > MAX_COLUMN_BYTES:
        raise UnsupportedFormatError(
            f"{bounds[-1]} bytes of values in one batch, and a column holds 2 GiB",
            remedy="a single value this large can't be decoded; drop the state first",
        )
    return bounds


def _variable_column(
    kind: pa.DataType, bounds: I64Array, data: U8Array, state: U8Array
) -> pa.Array:
    bitmap, nulls = _validity(state)
    buffers = [bitmap, arrow_buffer(bounds.astype(np.int32)), arrow_buffer(data)]
    return pa.Array.from_buffers(kind, len(state), buffers, nulls)


def binary_column(data: U8Array, starts: I64Array, ends: I64Array, state: U8Array) -> pa.Array:
    """Ranges of bytes as a column."""
    bounds = _bounds(starts, ends)
    out = np.empty(int(bounds[-1]), np.uint8)
    reading.gather(data, starts, ends, bounds, out)
    return _variable_column(pa.binary(), bounds, out, state)


def string_column(
    data: U8Array, starts: I64Array, ends: I64Array, state: U8Array, inexact: U8Array
) -> pa.Array:
    """Ranges of UTF-8 as a column; what is none becomes U+FFFD and is inexact."""
    bounds = _bounds(starts, ends)
    out = np.empty(int(bounds[-1]), np.uint8)
    reading.gather(data, starts, ends, bounds, out)
    bad = np.empty(len(starts), np.uint8)
    if reading.find_bad_utf8(bounds, out, bad):
        inexact |= bad
        raw = [bytes(out[at:to]) for at, to in pairwise(bounds.tolist())]
        text = [one.decode("utf-8", "replace") for one in raw]
        return pa.array(text, pa.string(), mask=state != VALUE)
    return _variable_column(pa.string(), bounds, out, state)


def _lengths(values: pa.Array) -> I64Array:
    offsets, _ = variable_values(values)
    return np.diff(offsets).astype(np.int64)
