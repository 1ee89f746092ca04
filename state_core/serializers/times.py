"""Dates and times: fields of fixed width, each type with a pattern of its own for null.

=================================  =======================  ======================================
Java                               bytes                    column
=================================  =======================  ======================================
`Date`, `java.sql.Date`, `Time`    i64 milliseconds         timestamp, UTC
`java.sql.Timestamp`               i64 ms, i32 nanoseconds  timestamp, UTC
`Instant`                          i64 s, i32 nanoseconds   timestamp, UTC
`LocalDate`                        i32 year, month, day     date
`LocalDateTime`                    date and time            timestamp without a time zone
`LocalTime`                        hour, minute, s, i32 ns  text, as `LocalTime.toString` has it
=================================  =======================  ======================================

Columns have microseconds, as Spark does, and the years 1 to 9999. What is finer keeps its exact
bytes beside the value, what lies outside keeps them beside a null.

Source: `DateSerializer`, `SqlTimestampSerializer`, `InstantSerializer`, `LocalDateSerializer` and
their like in `org.apache.flink.api.common.typeutils.base`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from state_core.errors import EncodeError
from state_core.kernels import decode, encode
from state_core.kernels.skip import FIXED
from state_core.serializers.base import TypeSerializer, to_int32
from state_core.serializers.calendars import (
    date_fields,
    days_since_1970,
    hash_date,
    hash_long,
    hash_time,
    is_null_time,
    micros_of,
    millis_of,
    nanos_of_day,
    parse_time,
    time_fields,
    time_text,
)
from state_core.serializers.columns import (
    Cursor,
    I64Array,
    Target,
    U8Array,
    arrow_buffer,
    fixed_values,
    present_rows,
    validity,
)
from state_core.serializers.snapshots import simple_snapshot
from state_core.wire import DataInput, DataOutput

__all__ = [
    "DateSerializer",
    "InstantSerializer",
    "LocalDateSerializer",
    "LocalDateTimeSerializer",
    "LocalTimeSerializer",
    "SqlDateSerializer",
    "SqlTimeSerializer",
    "SqlTimestampSerializer",
]

BASE = "org.apache.flink.api.common.typeutils.base."
Bools: TypeAlias = npt.NDArray[np.bool_]

_READERS: dict[int, tuple[Any, Any, Any]] = {
    1: (decode.read_fixed8, encode.write_fixed8, np.int8),
    2: (decode.read_fixed16, encode.write_fixed16, np.int16),
    4: (decode.read_fixed32, encode.write_fixed32, np.int32),
    8: (decode.read_fixed64, encode.write_fixed64, np.int64),
}
NULL_LONG, NULL_INT, NULL_SHORT, NULL_BYTE = -(1 << 63), -(1 << 31), -(1 << 15), -(1 << 7)
DAY_MICROS = 86_400_000_000
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01, 9999-12-31
FIRST_MICRO, LAST_MICRO = FIRST_DAY * DAY_MICROS, (LAST_DAY + 1) * DAY_MICROS - 1
UTC = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class _Column:
    """Values on their way to a column: null, shown, and whether showing them loses something."""

    values: npt.NDArray[Any]
    null: Bools
    shown: Bools
    exact: Bools


class _FieldsSerializer(TypeSerializer):
    """A value of a few numbers of fixed width.

    Attributes:
        java_name: The type's name in Java.
        widths: Bytes of each number.
    """

    java_name: ClassVar[str]
    widths: ClassVar[tuple[int, ...]]

    @property
    def name(self) -> str:
        """The type's name in Java."""
        return self.java_name

    @property
    def length(self) -> int:  # type: ignore[override] # the sum of the widths
        """The sum of the widths."""
        return sum(self.widths)

    @abstractmethod
    def to_column(self, fields: Sequence[I64Array]) -> _Column:
        """The numbers of each row as what the column holds."""

    @abstractmethod
    def to_fields(self, values: pa.Array) -> list[I64Array]:
        """The column as numbers, null's pattern where it is null."""

    def read(self, source: DataInput) -> Any:
        """One value; what is finer than a microsecond is cut off."""
        data = np.frombuffer(source.read_bytes(self.length), np.uint8)
        bounds = np.zeros(1, np.int64), np.array([len(data)], np.int64)
        return self.decode(Cursor(data, *bounds, lambda _: source.place))[0].as_py()

    def write(self, value: Any, out: DataOutput) -> None:
        """One value, or None."""
        try:
            column = pa.array([value], self.arrow_type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise EncodeError(f"{value!r} is no {self.java_name}") from error
        found = np.zeros(self.length, np.uint8)
        self.encode(column, Target(found, np.zeros(1, np.int64)))
        out.write_bytes(found.tobytes())

    @abstractmethod
    def hash_fields(self, fields: Sequence[int]) -> int:
        """The hash code of the value that these numbers are, to the nanosecond."""

    def hash_code_at(self, source: DataInput) -> int:
        """That of the numbers: a value as Python has it may be less than they are."""
        fields = [
            int.from_bytes(source.read_bytes(width), "big", signed=True) for width in self.widths
        ]
        nulls = {8: NULL_LONG, 4: NULL_INT, 1: NULL_BYTE}
        return 0 if fields[0] == nulls[self.widths[0]] else self.hash_fields(fields)

    def skip_program(self) -> tuple[int, ...]:
        """The width."""
        return (FIXED, self.length)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Number by number, then the column."""
        fields = []
        for width in self.widths:
            read, _, dtype = _READERS[width]
            out = np.zeros(cursor.rows, np.uint8 if width == 1 else dtype)
            failed = read(cursor.data, cursor.position, cursor.end, cursor.present, out)
            cursor.check(failed, f"a {self.java_name}")
            fields.append(out.view(dtype).astype(np.int64))
        found = self.to_column(fields)
        there = np.ones(cursor.rows, bool) if cursor.present.size == 0 else cursor.present != 0
        cursor.inexact |= (there & ~found.exact).astype(np.uint8)
        held = there & found.shown & ~found.null
        return self._array(found.values, held)

    def _array(self, values: npt.NDArray[Any], held: Bools) -> pa.Array:
        bitmap, nulls = validity(held.astype(np.uint8))
        buffers = [bitmap, arrow_buffer(values)]
        return pa.Array.from_buffers(self.arrow_type, len(values), buffers, nulls)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """The width of every present row."""
        if present.size:
            return present.astype(np.int64) * self.length
        return np.full(len(values), self.length, np.int64)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Number by number."""
        for width, field in zip(self.widths, self.to_fields(values), strict=True):
            _, write, dtype = _READERS[width]
            numbers = field.astype(dtype)
            out = numbers.view(np.uint8) if width == 1 else numbers
            write(out, target.present, target.out, target.position)


def _null_rows(values: pa.Array) -> Bools:
    held = present_rows(values)
    return np.zeros(len(values), bool) if held.size == 0 else held == 0


def _micros(values: pa.Array) -> I64Array:
    """The microseconds of a timestamp column; 0 where it is null."""
    found = fixed_values(values, np.int64)
    return np.where(_null_rows(values), np.int64(0), found)


def _from_millis(millis: I64Array, extra_nanos: I64Array, null: Bools) -> _Column:
    """Milliseconds, and nanoseconds on top of them, as microseconds."""
    shown = (millis >= FIRST_MICRO // 1000) & (millis <= LAST_MICRO // 1000) & ~null
    whole = np.where(shown, millis, 0) * 1000 + extra_nanos // 1000
    exact = null | (shown & (extra_nanos % 1000 == 0))
    return _Column(whole, null, shown, exact)


class DateSerializer(_FieldsSerializer):
    """`java.util.Date`: milliseconds since 1970."""

    java_name = "Date"
    widths = (8,)
    arrow_type = UTC

    def to_column(self, fields: Sequence[I64Array]) -> _Column:
        """As microseconds."""
        (millis,) = fields
        return _from_millis(millis, np.zeros_like(millis), millis == NULL_LONG)

    def to_fields(self, values: pa.Array) -> list[I64Array]:
        """As milliseconds."""
        micros = _micros(values)
        finer = np.flatnonzero(micros % 1000)
        if finer.size:
            raise EncodeError(
                f"{values[int(finer[0])].as_py()} is finer than the milliseconds of a"
                f" {self.java_name}",
                remedy="cut it to milliseconds",
            )
        return [np.where(_null_rows(values), np.int64(NULL_LONG), micros // 1000)]

    def hash_code(self, value: Any) -> int:
        """`(int) ht ^ (int) (ht >> 32)` of the milliseconds."""
        return hash_long(millis_of(value))

    def hash_fields(self, fields: Sequence[int]) -> int:
        """The same."""
        return hash_long(fields[0])


class SqlDateSerializer(DateSerializer):
    """`java.sql.Date`: like `Date`."""

    java_name = "java.sql.Date"


class SqlTimeSerializer(DateSerializer):
    """`java.sql.Time`: like `Date`."""

    java_name = "java.sql.Time"


class SqlTimestampSerializer(_FieldsSerializer):
    """`java.sql.Timestamp`: milliseconds, and the nanoseconds of their second."""

    java_name = "Timestamp"
    widths = (8, 4)
    arrow_type = UTC

    def to_column(self, fields: Sequence[I64Array]) -> _Column:
        """Both together as microseconds; they must agree on the milliseconds."""
        millis, nanos = fields
        null = (millis == NULL_LONG) & (nanos == 0)
        agree = (millis % 1000 == nanos // 1_000_000) & (nanos >= 0) & (nanos < 1_000_000_000)
        found = _from_millis(millis, nanos % 1_000_000, null)
        return _Column(found.values, null, found.shown & agree, found.exact & (agree | null))

    def to_fields(self, values: pa.Array) -> list[I64Array]:
        """Milliseconds, and nanoseconds of the second."""
        micros, null = _micros(values), _null_rows(values)
        millis = np.where(null, np.int64(NULL_LONG), micros // 1000)
        return [millis, np.where(null, np.int64(0), micros % 1_000_000 * 1000)]

    def hash_code(self, value: Any) -> int:
        """That of its milliseconds, as `java.util.Date` has it."""
        return hash_long(millis_of(value))

    def hash_fields(self, fields: Sequence[int]) -> int:
        """The same."""
        return hash_long(fields[0])


class InstantSerializer(_FieldsSerializer):
    """`Instant`: seconds since 1970, and nanoseconds."""

    java_name = "Instant"
    widths = (8, 4)
    arrow_type = UTC

    def to_column(self, fields: Sequence[I64Array]) -> _Column:
        """As microseconds."""
        seconds, nanos = fields
        null = (seconds == NULL_LONG) & (nanos == NULL_INT)
        valid = (nanos >= 0) & (nanos < 1_000_000_000)
        bounds = FIRST_MICRO // 1_000_000, LAST_MICRO // 1_000_000
        shown = (seconds >= bounds[0]) & (seconds <= bounds[1]) & valid
        micros = np.where(shown, seconds, 0) * 1_000_000 + np.where(valid, nanos, 0) // 1000
        return _Column(micros, null, shown, null | (shown & (nanos % 1000 == 0)))

    def to_fields(self, values: pa.Array) -> list[I64Array]:
        """Seconds and nanoseconds."""
        micros, null = _micros(values), _null_rows(values)
        seconds = np.where(null, np.int64(NULL_LONG), micros // 1_000_000)
        return [seconds, np.where(null, np.int64(NULL_INT), micros % 1_000_000 * 1000)]

    def hash_code(self, value: Any) -> int:
        """`(int) (s ^ (s >>> 32)) + 51 * nanos`."""
        micros = micros_of(value)
        return self.hash_fields([micros // 1_000_000, micros % 1_000_000 * 1000])

    def hash_fields(self, fields: Sequence[int]) -> int:
        """The same, with every nanosecond."""
        seconds, nanos = fields
        return to_int32(hash_long(seconds) + 51 * nanos)


class LocalDateSerializer(_FieldsSerializer):
    """`LocalDate`: year, month, day."""

    java_name = "LocalDate"
    widths = (4, 1, 1)
    arrow_type = pa.date32()

    def to_column(self, fields: Sequence[I64Array]) -> _Column:
        """As days since 1970."""
        days, shown = days_since_1970(*fields)
        null = fields[0] == NULL_INT
        pattern = (fields[1] == NULL_BYTE) & (fields[2] == 0)
        return _Column(days.astype(np.int32), null, shown, shown | (null & pattern))

    def to_fields(self, values: pa.Array) -> list[I64Array]:
        """Year, month, day."""
        null = _null_rows(values)
        days = np.where(null, 0, fixed_values(values, np.int32)).astype(np.int64)
        return date_fields(days, null)

    def hash_code(self, value: Any) -> int:
        """`(year & 0xFFFFF800) ^ ((year << 11) + (month << 6) + day)`."""
        return hash_date(value.year, value.month, value.day)

    def hash_fields(self, fields: Sequence[int]) -> int:
        """The same."""
        return hash_date(*fields)


class LocalDateTimeSerializer(_FieldsSerializer):
    """`LocalDateTime`: a `LocalDate` and a `LocalTime`."""

    java_name = "LocalDateTime"
    widths = (4, 1, 1, 1, 1, 1, 4)
    arrow_type = pa.timestamp("us")

    def to_column(self, fields: Sequence[I64Array]) -> _Column:
        """As microseconds since 1970, on the local clock."""
        year, month, day, hour, minute, second, nano = fields
        days, shown = days_since_1970(year, month, day)
        null = (year == NULL_INT) & (hour == NULL_BYTE)
        pattern = (month == NULL_BYTE) & (day == 0) & is_null_time(fields[3:])
        of_day, valid = nanos_of_day(hour, minute, second, nano)
        micros = days * DAY_MICROS + of_day // 1000
        exact = (shown & valid & (of_day % 1000 == 0)) | (null & pattern)
        return _Column(micros, null, shown & valid, exact)

    def to_fields(self, values: pa.Array) -> list[I64Array]:
        """The date's and the time's."""
        micros, null = _micros(values), _null_rows(values)
        days = micros // DAY_MICROS
        return [*date_fields(days, null), *time_fields(micros % DAY_MICROS * 1000, null)]

    def hash_code(self, value: Any) -> int:
        """The date's, `^` the time's."""
        date = value.year, value.month, value.day
        time = value.hour, value.minute, value.second, value.microsecond * 1000
        return self.hash_fields([*date, *time])

    def hash_fields(self, fields: Sequence[int]) -> int:
        """The same, with every nanosecond."""
        return hash_date(*fields[:3]) ^ hash_time(*fields[3:])


class LocalTimeSerializer(_FieldsSerializer):
    """`LocalTime`: hour, minute, second, nanoseconds; shown as ISO text, to the nanosecond."""

    java_name = "LocalTime"
    widths = (1, 1, 1, 4)
    arrow_type = pa.string()

    def to_column(self, fields: Sequence[I64Array]) -> _Column:
        """As text; a fraction of a second has 3, 6 or 9 digits, and no zero seconds are shown."""
        null = fields[0] == NULL_BYTE
        of_day, valid = nanos_of_day(*fields)
        return _Column(of_day, null, valid, valid | (null & is_null_time(fields)))

    def _array(self, values: npt.NDArray[Any], held: Bools) -> pa.Array:
        texts = [time_text(v) if h else None for v, h in zip(values.tolist(), held, strict=True)]
        return pa.array(texts, pa.string())

    def to_fields(self, values: pa.Array) -> list[I64Array]:
        """Hour, minute, second, nanoseconds."""
        nanos = [0 if text is None else parse_time(text) for text in values.to_pylist()]
        return time_fields(np.array(nanos, np.int64), _null_rows(values))

    def hash_code(self, value: Any) -> int:
        """That of the nanoseconds of the day, as a `Long`."""
        return hash_long(parse_time(value))

    def hash_fields(self, fields: Sequence[int]) -> int:
        """The same."""
        return hash_time(*fields)


for _serializer, _java in (
    (DateSerializer, "DateSerializer$DateSerializerSnapshot"),
    (SqlDateSerializer, "SqlDateSerializer$SqlDateSerializerSnapshot"),
    (SqlTimeSerializer, "SqlTimeSerializer$SqlTimeSerializerSnapshot"),
    (SqlTimestampSerializer, "SqlTimestampSerializer$SqlTimestampSerializerSnapshot"),
    (InstantSerializer, "InstantSerializer$InstantSerializerSnapshot"),
    (LocalDateSerializer, "LocalDateSerializer$LocalDateSerializerSnapshot"),
    (LocalTimeSerializer, "LocalTimeSerializer$LocalTimeSerializerSnapshot"),
    (LocalDateTimeSerializer, "LocalDateTimeSerializer$LocalDateTimeSerializerSnapshot"),
):
    simple_snapshot(BASE + _java, _serializer)
