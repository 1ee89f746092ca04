"""Types of a few fixed-width numbers in one column: dates and times.

Source: `DateSerializer`, `InstantSerializer` and their like in
`org.apache.flink.api.common.typeutils.base`, each with a pattern of numbers for null.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.basic.numbers import CODECS
from statelake.state_core.serializers.framework.base import TypeSerializer, named
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I32Array,
    I64Array,
    Target,
    U8Array,
    arrow_buffer,
    fixed_sizes,
    fixed_values,
    null_rows,
    validity,
)
from statelake.state_core.serializers.framework.exact_values import ExactText, reads_exact

Bools: TypeAlias = npt.NDArray[np.bool_]

NULL_LONG, NULL_INT, NULL_BYTE = -(1 << 63), -(1 << 31), -(1 << 7)


@dataclass(frozen=True)
class TimeColumn:
    """The values of a column: the null ones, the representable ones, and the exact ones."""

    values: npt.NDArray[Any]
    null: Bools
    shown: Bools
    exact: Bools


class FieldsSerializer(TypeSerializer):
    """A value of a few numbers of fixed width.

    Attributes:
        java_name: The type's name in Java.
        widths: Bytes of each number.
    """

    java_name: ClassVar[str]
    widths: ClassVar[tuple[int, ...]]

    name = named("{java_name}")

    @property
    def length(self) -> int:  # type: ignore[override] # the sum of the widths
        """The sum of the widths."""
        return sum(self.widths)

    @abstractmethod
    def to_column(self, fields: Sequence[I64Array]) -> TimeColumn:
        """Convert the numbers of each row to the values of the column."""

    @abstractmethod
    def to_fields(self, values: pa.Array) -> list[I64Array]:
        """Convert the column to numbers, those of null where it is null."""

    def text_of(self, numbers: Sequence[int]) -> str | None:
        """Return the text of the value of these numbers; None if they are null, or no value."""
        return None

    def read(self, source: DataInput) -> Any:
        """Read one value, cut to microseconds unless it is read whole."""
        if reads_exact():
            position = source.position
            numbers = self._numbers(source)
            text = self.text_of(numbers)
            if text is not None:
                return ExactText(text, numbers)
            source.position = position
        data = np.frombuffer(source.read_bytes(self.length), np.uint8)
        bounds = np.zeros(1, np.int64), np.array([len(data)], np.int64)
        return self.decode(Cursor(data, *bounds, lambda _: source.place))[0].as_py()

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value, or None; a tuple is the value's numbers, as they are."""
        if isinstance(value, ExactText):
            value = value.numbers
        if isinstance(value, tuple):
            for width, number in zip(self.widths, value, strict=True):
                out.write_bytes(number.to_bytes(width, "big", signed=True))
            return
        try:
            column = pa.array([value], self.arrow_type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise EncodeError(f"{value!r} is no {self.java_name}") from error
        data = np.zeros(self.length, np.uint8)
        self.encode(column, Target(data, np.zeros(1, np.int64)))
        out.write_bytes(data.tobytes())

    def hash_code(self, value: Any) -> int:
        """Return the hash code of a value, from its numbers."""
        (code,) = self.hash_codes(pa.array([value], self.arrow_type)).tolist()
        return int(code)

    def hash_codes(self, values: pa.Array) -> I32Array:
        """Return the hash code of every row, from its numbers."""
        rows = zip(*(field.tolist() for field in self.to_fields(values)), strict=True)
        codes = [
            0 if is_null else self.hash_fields(numbers)
            for numbers, is_null in zip(rows, null_rows(values).tolist(), strict=True)
        ]
        return np.array(codes, np.int32)

    @abstractmethod
    def hash_fields(self, fields: Sequence[int]) -> int:
        """Return the hash code of the value of these numbers, to the nanosecond."""

    def hash_code_at(self, source: DataInput) -> int:
        """Return the hash code from the numbers, which may be finer than the Python value."""
        fields = self._numbers(source)
        nulls = {8: NULL_LONG, 4: NULL_INT, 1: NULL_BYTE}
        return 0 if fields[0] == nulls[self.widths[0]] else self.hash_fields(fields)

    def _numbers(self, source: DataInput) -> list[int]:
        return [
            int.from_bytes(source.read_bytes(width), "big", signed=True) for width in self.widths
        ]

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read each number of all rows, and convert them to the column."""
        fields = []
        for width in self.widths:
            read, _, dtype = CODECS[width]
            out: npt.NDArray[Any] = np.zeros(cursor.rows, dtype)
            failed = read(cursor.data, cursor.position, cursor.end, cursor.present, out)
            cursor.check(failed, f"a {self.java_name}")
            fields.append(out.view(f"i{width}").astype(np.int64))
        times = self.to_column(fields)
        there = cursor.there
        cursor.inexact |= (there & ~times.exact).astype(np.uint8)
        shown = there & times.shown & ~times.null
        return self._array(times.values, shown)

    def _array(self, values: npt.NDArray[Any], shown: Bools) -> pa.Array:
        bitmap, nulls = validity(shown.astype(np.uint8))
        buffers = [bitmap, arrow_buffer(values)]
        return pa.Array.from_buffers(self.arrow_type, len(values), buffers, nulls)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the width for every present row."""
        return fixed_sizes(len(values), self.length, present)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write each number of all rows."""
        for width, field in zip(self.widths, self.to_fields(values), strict=True):
            _, write, dtype = CODECS[width]
            write(field.astype(dtype), target.present, target.out, target.position)


def micros_in(values: pa.Array) -> I64Array:
    """Return the microseconds of a timestamp column; 0 where it is null."""
    micros = fixed_values(values, np.int64)
    return np.where(null_rows(values), np.int64(0), micros)
