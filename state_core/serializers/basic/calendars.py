"""Calendars and clocks as columns of numbers: dates, times of day, and their hash codes.

Source: `java.time.LocalDate`, `LocalTime` and their like.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from statelake.state_core.errors import EncodeError
from statelake.state_core.serializers.framework.base import to_int32
from statelake.state_core.serializers.framework.columns import I64Array

Bools: TypeAlias = npt.NDArray[np.bool_]

NULL_INT, NULL_BYTE = -(1 << 31), -(1 << 7)
SHORT = (4, 6, 9, 11)  # months of 30 days
LAST_YEAR = 999_999_999  # of `java.time`, before and after year 0
DAY_NANOS = 86_400_000_000_000
DAYS_OF_ERA, DAYS_TO_1970 = 146_097, 719_468  # of 400 years; from 1 March of year 0


def days_since_1970(year: I64Array, month: I64Array, day: I64Array) -> tuple[I64Array, Bools]:
    """Return days since 1970 of dates, and which of them are dates of the years 1 to 9999."""
    plausible = (year >= 1) & (year <= 9999) & (month >= 1) & (month <= 12)
    months = np.where(plausible, (year - 1970) * 12 + month - 1, 0)
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    behind = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    shown = plausible & (day >= 1) & (day <= behind - first)
    return np.where(shown, first + day - 1, 0), shown


def date_fields(days: I64Array, null: Bools) -> list[I64Array]:
    """Return year, month and day of days since 1970, and their pattern for null where null."""
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]").astype(np.int64)
    day = days - dates.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + 1
    year, month = months // 12 + 1970, months % 12 + 1
    patterns = ((year, NULL_INT), (month, NULL_BYTE), (day, 0))
    return [np.where(null, np.int64(pattern), field) for field, pattern in patterns]


def nanos_of_day(
    hour: I64Array, minute: I64Array, second: I64Array, nano: I64Array
) -> tuple[I64Array, Bools]:
    """Return nanoseconds of times of day, and which of them are valid times."""
    valid = (hour >= 0) & (hour < 24) & (minute >= 0) & (minute < 60) & (second >= 0)
    valid &= (second < 60) & (nano >= 0) & (nano < 1_000_000_000)
    nanos = ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + nano
    return np.where(valid, nanos, 0), valid


def time_fields(nanos: I64Array, null: Bools) -> list[I64Array]:
    """Return hour, minute, second and nanosecond, and their pattern for null where null."""
    seconds, nano = nanos // 1_000_000_000, nanos % 1_000_000_000
    patterns = (
        (seconds // 3600, NULL_BYTE),
        (seconds // 60 % 60, NULL_BYTE),
        (seconds % 60, 0),
        (nano, NULL_INT),
    )
    return [np.where(null, np.int64(pattern), field) for field, pattern in patterns]


def is_null_time(fields: Sequence[I64Array]) -> Bools:
    """Return which times have the pattern of null."""
    hour, minute, second, nano = fields
    null: Bools = (hour == NULL_BYTE) & (minute == NULL_BYTE) & (second == 0) & (nano == NULL_INT)
    return null


def time_text(nanos: int) -> str:
    """Return the text of `LocalTime.toString`."""
    seconds, nano = divmod(nanos, 1_000_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}"
    if seconds % 60 or nano:
        text += f":{seconds % 60:02}"
    if nano:
        digits = 3 if nano % 1_000_000 == 0 else 6 if nano % 1000 == 0 else 9
        text += f".{nano:09}"[: digits + 1]
    return text


def parse_time(text: str) -> int:
    """Return the nanoseconds of the day of a time as text."""
    clock, _, fraction = text.partition(".")
    parts = clock.split(":")
    try:
        hour, minute, second = (*map(int, parts), 0)[:3] if len(parts) in (2, 3) else (-1, 0, 0)
        nano = int(fraction.ljust(9, "0")) if fraction else 0
    except ValueError as error:
        raise EncodeError(f"{text!r} is no LocalTime") from error
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and len(fraction) <= 9):
        raise EncodeError(f"{text!r} is no LocalTime", remedy="write it as 10:15:30.123456789")
    return ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + nano


def is_date(year: int, month: int, day: int) -> bool:
    """Return whether `LocalDate` has a day, in a year of any number of digits."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    longest = 29 if month == 2 and leap else 28 if month == 2 else 30 if month in SHORT else 31
    return abs(year) <= LAST_YEAR and 1 <= month <= 12 and 1 <= day <= longest


def is_time(hour: int, minute: int, second: int, nano: int) -> bool:
    """Return whether a day has that time."""
    valid = 0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60
    return valid and 0 <= nano < 1_000_000_000


def date_text(year: int, month: int, day: int) -> str:
    """Return a day in ISO form; a year that does not have four digits has a sign."""
    shown = f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"
    return f"{shown}-{month:02}-{day:02}"


def date_of(days: int) -> tuple[int, int, int]:
    """Return year, month and day of days since 1970, in the calendar that goes on for ever."""
    era, day_of_era = divmod(days + DAYS_TO_1970, DAYS_OF_ERA)
    leaps = day_of_era // 1460 - day_of_era // 36_524 + day_of_era // (DAYS_OF_ERA - 1)
    year = (day_of_era - leaps) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)  # from 1 March
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    return year + 400 * era + (month > 9), month + 3 if month <= 9 else month - 9, day


def moment_text(date: str, nanos: int, zone: str = "") -> str:
    """Return a moment in ISO form, with no digits behind the second, or six, or nine.

    Args:
        date: The text of its day.
        nanos: The nanoseconds of the day.
        zone: The text of its time zone.
    """
    seconds, nano = divmod(nanos, 1_000_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    digits = f".{nano:09}" if nano % 1000 else f".{nano // 1000:06}" if nano else ""
    return f"{date}T{clock}{digits}{zone}"


def instant_text(nanos: int, zone: str = "+00:00") -> str:
    """Return nanoseconds since 1970 in ISO form, in any year."""
    days, of_day = divmod(nanos, DAY_NANOS)
    return moment_text(date_text(*date_of(days)), of_day, zone)


def hash_long(value: int) -> int:
    """Return `Long.hashCode`."""
    return to_int32(value ^ ((value & 0xFFFFFFFFFFFFFFFF) >> 32))


def hash_date(year: int, month: int, day: int) -> int:
    """Return `LocalDate.hashCode`."""
    return to_int32((year & 0xFFFFF800) ^ ((year << 11) + (month << 6) + day))


def hash_time(hour: int, minute: int, second: int, nano: int) -> int:
    """Return `LocalTime.hashCode`."""
    return hash_long(((hour * 60 + minute) * 60 + second) * 1_000_000_000 + nano)
