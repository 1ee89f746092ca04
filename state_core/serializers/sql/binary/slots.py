"""Slots of Flink SQL's binary format: numbers, and references to longer values.

A `SlotFormat` is the form that one SQL type has in a slot of a row or an array. It reads a field
of many sections at once (`Slots`) into an Arrow column, and writes it back (`SlotPlaces`). A value
that the column can't hold (a TIMESTAMP of the year 20000, a DECIMAL of more digits than its type
has) becomes null there, and its row is marked inexact, so that its exact bytes are kept beside it.

Source: `org.apache.flink.table.data.writer.BinaryWriter`, `BinarySegmentUtils`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import CorruptSnapshotError
from statelake.state_core.kernels import binary_rows, binary_values
from statelake.state_core.kernels import binary_rows_encode as writing
from statelake.state_core.kernels.binary_rows import VALUE
from statelake.state_core.serializers.framework.columns import (
    I64Array,
    U8Array,
    fixed_values,
    variable_sizes,
    variable_values,
)
from statelake.state_core.serializers.sql.binary.columns import (
    binary_column,
    decimal_column,
    decimal_words,
    fixed_column,
    millis_of,
    pad,
    state_validity,
    string_column,
    timestamp_column,
)

OF_THEIR_OWN: I64Array = np.empty(0, np.int64)


@dataclass(frozen=True)
class Slots:
    """One field of many sections, for reading.

    Attributes:
        data: The bytes.
        slots: The position of each slot.
        state: The state of each slot, as in `state_core.kernels.binary_rows`.
        base: The start of each section.
        end: The end of each section.
        owner: The section of each slot; of size 0 if each slot has its own section.
        cursor: The position in each section where its next longer value is expected.
        padding: The minimum width of a slot: 8 in a row, 0 in an array.
        inexact: One byte a slot, set to 1 if the typed value does not determine its bytes.
        place: Returns the name of a position, for messages.
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
        """Raise the error for the slot that a kernel returned, if it is not -1."""
        if slot >= 0:
            raise CorruptSnapshotError(
                f"{what} that leads out of its row or array",
                place=self.place(int(self.slots[slot])),
                remedy="the snapshot is damaged, or its serializer is not the one it names",
            )

    def locate(self, *, inline: bool, what: str) -> tuple[I64Array, I64Array]:
        """Return the start and end of longer values."""
        starts, ends = np.empty(len(self.slots), np.int64), np.empty(len(self.slots), np.int64)
        failed = binary_values.locate_values(
            self.data, self.slots, self.state, self.base, self.end, self.owner, self.cursor, inline,
            starts, ends, self.inexact,
        )  # fmt: skip
        self.check(failed, what)
        return starts, ends

    def column(self, kind: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
        """Return a column of fixed width."""
        return fixed_column(kind, values, self.state)


@dataclass(frozen=True)
class SlotPlaces:
    """One field of many sections, for writing into a zeroed buffer.

    Attributes:
        out: The buffer.
        slots: The position of each slot.
        state: The state of each slot: absent, a value, or null.
        base: The start of each section.
        owner: The section of each slot; of size 0 if each slot has its own section.
        targets: The position at which each slot's longer value is written.
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
        """Read the column."""

    @abstractmethod
    def encode(self, values: pa.Array, places: SlotPlaces) -> None:
        """Write the column, after `reserve` has checked it."""

    def reserve(self, values: pa.Array, state: U8Array) -> I64Array | None:
        """Return the bytes of each value outside its slot, a multiple of 8; None if always inside.

        Raises:
            EncodeError: A value has no form in this type.
        """
        return None


class NumberFormat(SlotFormat):
    """A number of 1, 2, 4 or 8 bytes.

    Args:
        arrow_type: An Arrow type of that width.
        width: Its width in bytes.
    """

    def __init__(self, arrow_type: pa.DataType, width: int) -> None:
        self.arrow_type = arrow_type
        self.width = width

    def decode(self, slots: Slots) -> pa.Array:
        """Read the numbers, zero where null."""
        return slots.column(self.arrow_type, read_numbers(slots, self.width))

    def encode(self, values: pa.Array, places: SlotPlaces) -> None:
        """Write the numbers."""
        _, write, dtype = _NUMBERS[self.width]
        write(fixed_values(values, dtype), places.state, places.slots, places.out)


class BooleanFormat(SlotFormat):
    """BOOLEAN: a byte, 0 or 1."""

    width = 1
    arrow_type = pa.bool_()

    def decode(self, slots: Slots) -> pa.Array:
        """Read bytes into bits; any byte but 0 and 1 is true and inexact."""
        flags = read_numbers(slots, 1)
        slots.inexact[flags > 1] = 1
        bits = pa.py_buffer(np.packbits(flags != 0, bitorder="little"))
        bitmap, nulls = state_validity(slots.state)
        return pa.Array.from_buffers(pa.bool_(), len(flags), [bitmap, bits], nulls)

    def encode(self, values: pa.Array, places: SlotPlaces) -> None:
        """Write bits as bytes."""
        flags = np.asarray(values.fill_null(False)).astype(np.uint8)
        writing.write_slots8(flags, places.state, places.slots, places.out)


class DateFormat(NumberFormat):
    """DATE: days since 1970."""

    def __init__(self) -> None:
        super().__init__(pa.date32(), 4)

    def decode(self, slots: Slots) -> pa.Array:
        """Read days of the years 1 to 9999."""
        days = read_numbers(slots, 4)
        binary_values.check_dates(days, slots.state, slots.inexact)
        return slots.column(self.arrow_type, days)


class SmallTimestampFormat(SlotFormat):
    """TIMESTAMP of up to 3 digits: milliseconds."""

    def __init__(self, arrow_type: pa.DataType) -> None:
        self.arrow_type = arrow_type

    def decode(self, slots: Slots) -> pa.Array:
        """Read milliseconds as microseconds, Spark's unit."""
        millis = read_numbers(slots, 8)
        return timestamp_column(self.arrow_type, millis, None, slots.state, slots.inexact)

    def reserve(self, values: pa.Array, state: U8Array) -> None:
        """Reserve nothing, and refuse values finer than milliseconds."""
        millis_of(values, state)

    def encode(self, values: pa.Array, places: SlotPlaces) -> None:
        """Write milliseconds."""
        millis = millis_of(values, places.state)
        writing.write_slots64(millis, places.state, places.slots, places.out)


class WideTimestampFormat(SlotFormat):
    """TIMESTAMP of more than 3 digits: nanoseconds in the slot, milliseconds outside."""

    def __init__(self, arrow_type: pa.DataType) -> None:
        self.arrow_type = arrow_type

    def decode(self, slots: Slots) -> pa.Array:
        """Read microseconds; a finer value is inexact."""
        micros = np.empty(len(slots.slots), np.int64)
        failed = binary_values.read_wide_timestamps(
            slots.data, slots.slots, slots.state, slots.base, slots.end, slots.owner, slots.cursor,
            micros, slots.inexact,
        )  # fmt: skip
        slots.check(failed, "a TIMESTAMP")
        return slots.column(self.arrow_type, micros)

    def reserve(self, values: pa.Array, state: U8Array) -> I64Array:
        """Return eight bytes for each value."""
        sizes: I64Array = (state == VALUE).astype(np.int64) * 8
        return sizes

    def encode(self, values: pa.Array, places: SlotPlaces) -> None:
        """Write nanoseconds into the slot, and milliseconds at the target."""
        writing.write_wide_timestamps(
            fixed_values(values, np.int64), places.state, places.slots, places.base, places.owner,
            places.targets, places.out,
        )  # fmt: skip


class SmallDecimalFormat(SlotFormat):
    """DECIMAL of up to 18 digits: the unscaled value."""

    def __init__(self, precision: int, scale: int) -> None:
        self.arrow_type = pa.decimal128(precision, scale)

    def decode(self, slots: Slots) -> pa.Array:
        """Read decimals of 128 bits."""
        unscaled = read_numbers(slots, 8)
        words = np.empty(2 * len(unscaled), np.uint64)
        limit = 10**self.arrow_type.precision
        binary_values.widen_decimals(unscaled, limit, slots.state, words, slots.inexact)
        return slots.column(self.arrow_type, words)

    def encode(self, values: pa.Array, places: SlotPlaces) -> None:
        """Write the low 64 bits."""
        low = np.ascontiguousarray(decimal_words(values)[::2]).view(np.int64)
        writing.write_slots64(low, places.state, places.slots, places.out)


class WideDecimalFormat(SlotFormat):
    """DECIMAL of more than 18 digits: up to 16 bytes, big-endian, in a space of 16."""

    def __init__(self, precision: int, scale: int) -> None:
        self.arrow_type = pa.decimal128(precision, scale)

    def decode(self, slots: Slots) -> pa.Array:
        """Read decimals of 128 bits."""
        starts, ends = np.empty(len(slots.slots), np.int64), np.empty(len(slots.slots), np.int64)
        failed = binary_values.locate_decimals(
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
        """Return sixteen bytes for each value."""
        sizes: I64Array = (state == VALUE).astype(np.int64) * 16
        return sizes

    def encode(self, values: pa.Array, places: SlotPlaces) -> None:
        """Write as few bytes as hold the number."""
        words = decimal_words(values)
        lengths = np.empty(len(values), np.int64)
        writing.decimal_lengths(words, places.state, lengths)
        writing.write_references(
            lengths, places.state, places.slots, places.base, places.owner, places.targets,
            places.out,
        )  # fmt: skip
        writing.write_decimals(words, lengths, places.targets, places.out)


class BinaryFormat(SlotFormat):
    """Bytes: up to 7 in the slot if they may be inline, otherwise outside.

    Args:
        inline: Whether they may: those of BINARY and VARBINARY; not of RAW, VARIANT and BITMAP.
    """

    arrow_type = pa.binary()

    def __init__(self, *, inline: bool) -> None:
        self.inline = inline

    def decode(self, slots: Slots) -> pa.Array:
        """Read the bytes as they are."""
        starts, ends = slots.locate(inline=self.inline, what="bytes")
        return binary_column(slots.data, starts, ends, slots.state)

    def reserve(self, values: pa.Array, state: U8Array) -> I64Array:
        """Return the bytes of each value that does not fit into its slot."""
        sizes = np.where(state == VALUE, variable_sizes(values), 0)
        return pad(np.where(sizes > binary_values.MAX_INLINE, sizes, 0) if self.inline else sizes)

    def encode(self, values: pa.Array, places: SlotPlaces) -> None:
        """Write the bytes as they are."""
        offsets, data = variable_values(values)
        if self.inline:
            writing.write_inline(
                offsets, data, places.state, places.slots, places.base, places.owner,
                places.targets, places.out,
            )  # fmt: skip
            return
        sizes = np.where(places.state == VALUE, variable_sizes(values), 0)
        writing.write_references(
            sizes, places.state, places.slots, places.base, places.owner, places.targets, places.out
        )
        starts = offsets[:-1].astype(np.int64)
        binary_values.gather(data, starts, starts + sizes, places.targets, places.out)


class StringFormat(BinaryFormat):
    """CHAR and VARCHAR: UTF-8."""

    arrow_type = pa.string()

    def __init__(self) -> None:
        super().__init__(inline=True)

    def decode(self, slots: Slots) -> pa.Array:
        """Read text; invalid UTF-8 becomes U+FFFD and is inexact."""
        starts, ends = slots.locate(inline=True, what="a string")
        return string_column(slots.data, starts, ends, slots.state, slots.inexact)


_NUMBERS: dict[int, tuple[Any, Any, type]] = {
    1: (binary_rows.read_slots8, writing.write_slots8, np.uint8),
    2: (binary_rows.read_slots16, writing.write_slots16, np.int16),
    4: (binary_rows.read_slots32, writing.write_slots32, np.int32),
    8: (binary_rows.read_slots64, writing.write_slots64, np.int64),
}


def read_numbers(slots: Slots, width: int) -> npt.NDArray[Any]:
    """Read little-endian numbers of this width; 0 without a value."""
    read, _, dtype = _NUMBERS[width]
    out: npt.NDArray[Any] = np.empty(len(slots.slots), dtype)
    padding = max(0, slots.padding - width)
    read(slots.data, slots.slots, slots.state, padding, out, slots.inexact)
    return out
