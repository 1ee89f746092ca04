"""Dates and times: fields of fixed width, each type with a pattern of its own for null.

=================================  =======================  ======================================
Java                               bytes                    column
=================================  =======================  ======================================
`Date`, `java.sql.Date`, `Time`    i64 milliseconds         timestamp, UTC
`java.sql.Timestamp`               i64 ms, i32 nanoseconds  timestamp, UTC
`Instant`                          i64 s, i32 nanoseconds   timestamp, UTC
`LocalDate`                        i32 year, month, day     date
`LocalDateTime`                    date and time            timestamp without a time zone
`LocalTime`                        hour, minute, s, i32 ns  text of `LocalTime.toString`
=================================  =======================  ======================================

Columns have microseconds, as Spark does, and the years 1 to 9999. A finer value keeps its exact
bytes beside it, a value outside that range keeps them beside a null.

Source: `DateSerializer`, `SqlTimestampSerializer`, `InstantSerializer`, `LocalDateSerializer` and
their like in `org.apache.flink.api.common.typeutils.base`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.serializers.basic.calendars import (
    date_fields,
    date_text,
    days_since_1970,
    hash_date,
    hash_long,
    hash_time,
    instant_text,
    is_date,
    is_null_time,
    is_time,
    moment_text,
    nanos_of_day,
    parse_time,
    time_fields,
    time_text,
)
from statelake.state_core.serializers.basic.fields import (
    NULL_BYTE,
    NULL_INT,
    NULL_LONG,
    Bools,
    FieldsSerializer,
    TimeColumn,
    micros_in,
)
from statelake.state_core.serializers.framework.base import to_int32
from statelake.state_core.serializers.framework.columns import I64Array, fixed_values, null_rows
from statelake.state_core.serializers.framework.snapshots import simple_snapshot

BASE = "org.apache.flink.api.common.typeutils.base."
DAY_MICROS = 86_400_000_000
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01, 9999-12-31
FIRST_MICRO, LAST_MICRO = FIRST_DAY * DAY_MICROS, (LAST_DAY + 1) * DAY_MICROS - 1
UTC = pa.timestamp("us", "UTC")
MILLI_NANOS, SECOND_NANOS = 1_000_000, 1_000_000_000
FIRST_SECOND, LAST_SECOND = -31_557_014_167_219_200, 31_556_889_864_403_199  # of `Instant`


def _from_millis(millis: I64Array, extra_nanos: I64Array, null: Bools) -> TimeColumn:
    """Convert milliseconds, and additional nanoseconds, to microseconds."""
    shown = (millis >= FIRST_MICRO // 1000) & (millis <= LAST_MICRO // 1000) & ~null
    micros = np.where(shown, millis, 0) * 1000 + extra_nanos // 1000
    exact = null | (shown & (extra_nanos % 1000 == 0))
    return TimeColumn(micros, null, shown, exact)


class DateSerializer(FieldsSerializer):
    """`java.util.Date`: milliseconds since 1970."""

    java_name = "Date"
    widths = (8,)
    arrow_type = UTC

    def to_column(self, fields: Sequence[I64Array]) -> TimeColumn:
        """Convert to microseconds."""
        (millis,) = fields
        return _from_millis(millis, np.zeros_like(millis), millis == NULL_LONG)

    def to_fields(self, values: pa.Array) -> list[I64Array]:
        """Convert to milliseconds."""
        micros = micros_in(values)
        finer = np.flatnonzero(micros % 1000)
        if finer.size:
            raise EncodeError(
                f"{values[int(finer[0])].as_py()} is finer than the milliseconds of a"
                f" {self.java_name}",
                remedy="cut it to milliseconds",
            )
        return [np.where(null_rows(values), np.int64(NULL_LONG), micros // 1000)]

    def text_of(self, numbers: Sequence[int]) -> str | None:
        """Return it in ISO form, in any year."""
        return None if numbers[0] == NULL_LONG else instant_text(numbers[0] * MILLI_NANOS)

    def hash_fields(self, fields: Sequence[int]) -> int:
        """Return `(int) ht ^ (int) (ht >> 32)` of the milliseconds."""
        return hash_long(fields[0])


class SqlDateSerializer(DateSerializer):
    """`java.sql.Date`: like `Date`."""

    java_name = "java.sql.Date"


class SqlTimeSerializer(DateSerializer):
    """`java.sql.Time`: like `Date`."""

    java_name = "java.sql.Time"


class SqlTimestampSerializer(FieldsSerializer):
    """`java.sql.Timestamp`: milliseconds, and the nanoseconds of their second."""

    java_name = "Timestamp"
    widths = (8, 4)
    arrow_type = UTC

    def to_column(self, fields: Sequence[I64Array]) -> TimeColumn:
        """Convert both numbers to microseconds; they must agree on the milliseconds."""
        millis, nanos = fields
        null = (millis == NULL_LONG) & (nanos == 0)
        agree = (millis % 1000 == nanos // 1_000_000) & (nanos >= 0) & (nanos < 1_000_000_000)
        times = _from_millis(millis, nanos % 1_000_000, null)
        return TimeColumn(times.values, null, times.shown & agree, times.exact & (agree | null))

    def to_fields(self, values: pa.Array) -> list[I64Array]:
        """Convert to milliseconds, and nanoseconds of the second."""
        micros, null = micros_in(values), null_rows(values)
        millis = np.where(null, np.int64(NULL_LONG), micros // 1000)
        return [millis, np.where(null, np.int64(0), micros % 1_000_000 * 1000)]

    def text_of(self, numbers: Sequence[int]) -> str | None:
        """Return it in ISO form; None if the numbers do not agree on the milliseconds."""
        millis, nanos = numbers
        if not 0 <= nanos < SECOND_NANOS or millis % 1000 != nanos // MILLI_NANOS:
            return None
        return instant_text(millis // 1000 * SECOND_NANOS + nanos)

    def hash_fields(self, fields: Sequence[int]) -> int:
        """Return the hash code of the milliseconds, as of `java.util.Date`."""
        return hash_long(fields[0])


class InstantSerializer(FieldsSerializer):
    """`Instant`: seconds since 1970, and nanoseconds."""

    java_name = "Instant"
    widths = (8, 4)
    arrow_type = UTC

    def to_column(self, fields: Sequence[I64Array]) -> TimeColumn:
        """Convert to microseconds."""
        seconds, nanos = fields
        null = (seconds == NULL_LONG) & (nanos == NULL_INT)
        valid = (nanos >= 0) & (nanos < 1_000_000_000)
        bounds = FIRST_MICRO // 1_000_000, LAST_MICRO // 1_000_000
        shown = (seconds >= bounds[0]) & (seconds <= bounds[1]) & valid
        micros = np.where(shown, seconds, 0) * 1_000_000 + np.where(valid, nanos, 0) // 1000
        return TimeColumn(micros, null, shown, null | (shown & (nanos % 1000 == 0)))

    def to_fields(self, values: pa.Array) -> list[I64Array]:
        """Convert to seconds and nanoseconds."""
        micros, null = micros_in(values), null_rows(values)
        seconds = np.where(null, np.int64(NULL_LONG), micros // 1_000_000)
        return [seconds, np.where(null, np.int64(NULL_INT), micros % 1_000_000 * 1000)]

    def text_of(self, numbers: Sequence[int]) -> str | None:
        """Return it in ISO form, if Java has such an instant."""
        seconds, nanos = numbers
        valid = FIRST_SECOND <= seconds <= LAST_SECOND and 0 <= nanos < SECOND_NANOS
        return instant_text(seconds * SECOND_NANOS + nanos) if valid else None

    def hash_fields(self, fields: Sequence[int]) -> int:
        """Return `(int) (s ^ (s >>> 32)) + 51 * nanos`."""
        seconds, nanos = fields
        return to_int32(hash_long(seconds) + 51 * nanos)


class LocalDateSerializer(FieldsSerializer):
    """`LocalDate`: year, month, day."""

    java_name = "LocalDate"
    widths = (4, 1, 1)
    arrow_type = pa.date32()

    def to_column(self, fields: Sequence[I64Array]) -> TimeColumn:
        """Convert to days since 1970."""
        days, shown = days_since_1970(*fields)
        null = fields[0] == NULL_INT
        pattern = (fields[1] == NULL_BYTE) & (fields[2] == 0)
        return TimeColumn(days.astype(np.int32), null, shown, shown | (null & pattern))

    def to_fields(self, values: pa.Array) -> list[I64Array]:
        """Convert to year, month and day."""
        null = null_rows(values)
        days = np.where(null, 0, fixed_values(values, np.int32)).astype(np.int64)
        return date_fields(days, null)

    def text_of(self, numbers: Sequence[int]) -> str | None:
        """Return it in ISO form, in any year."""
        year, month, day = numbers
        return date_text(year, month, day) if is_date(year, month, day) else None

    def hash_fields(self, fields: Sequence[int]) -> int:
        """Return `(year & 0xFFFFF800) ^ ((year << 11) + (month << 6) + day)`."""
        return hash_date(*fields)


class LocalDateTimeSerializer(FieldsSerializer):
    """`LocalDateTime`: a `LocalDate` and a `LocalTime`."""

    java_name = "LocalDateTime"
    widths = (4, 1, 1, 1, 1, 1, 4)
    arrow_type = pa.timestamp("us")

    def to_column(self, fields: Sequence[I64Array]) -> TimeColumn:
        """Convert to microseconds since 1970, on the local clock."""
        year, month, day, hour, minute, second, nano = fields
        days, shown = days_since_1970(year, month, day)
        null = (year == NULL_INT) & (hour == NULL_BYTE)
        pattern = (month == NULL_BYTE) & (day == 0) & is_null_time(fields[3:])
        of_day, valid = nanos_of_day(hour, minute, second, nano)
        micros = days * DAY_MICROS + of_day // 1000
        exact = (shown & valid & (of_day % 1000 == 0)) | (null & pattern)
        return TimeColumn(micros, null, shown & valid, exact)

    def to_fields(self, values: pa.Array) -> list[I64Array]:
        """Convert to the numbers of the date and of the time."""
        micros, null = micros_in(values), null_rows(values)
        days = micros // DAY_MICROS
        return [*date_fields(days, null), *time_fields(micros % DAY_MICROS * 1000, null)]

    def text_of(self, numbers: Sequence[int]) -> str | None:
        """Return it in ISO form, in any year."""
        year, month, day, hour, minute, second, nano = numbers
        if not is_date(year, month, day) or not is_time(hour, minute, second, nano):
            return None
        of_day = ((hour * 60 + minute) * 60 + second) * SECOND_NANOS + nano
        return moment_text(date_text(year, month, day), of_day)

    def hash_fields(self, fields: Sequence[int]) -> int:
        """Return the hash code of the date `^` that of the time."""
        return hash_date(*fields[:3]) ^ hash_time(*fields[3:])


class LocalTimeSerializer(FieldsSerializer):
    """`LocalTime`: hour, minute, second, nanoseconds; shown as ISO text, to the nanosecond."""

    java_name = "LocalTime"
    widths = (1, 1, 1, 4)
    arrow_type = pa.string()

    def to_column(self, fields: Sequence[I64Array]) -> TimeColumn:
        """Convert to nanoseconds of the day; the column has them as text."""
        null = fields[0] == NULL_BYTE
        of_day, valid = nanos_of_day(*fields)
        return TimeColumn(of_day, null, valid, valid | (null & is_null_time(fields)))

    def _array(self, values: npt.NDArray[Any], shown: Bools) -> pa.Array:
        texts = [time_text(v) if h else None for v, h in zip(values.tolist(), shown, strict=True)]
        return pa.array(texts, pa.string())

    def to_fields(self, values: pa.Array) -> list[I64Array]:
        """Convert to hour, minute, second and nanoseconds."""
        nanos = [0 if text is None else parse_time(text) for text in values.to_pylist()]
        return time_fields(np.array(nanos, np.int64), null_rows(values))

    def hash_fields(self, fields: Sequence[int]) -> int:
        """Return the hash code of the nanoseconds of the day, as a `Long`."""
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
