"""Columns of objects without others within them: numbers, text, dates and times.

Each class is a line of `SCALARS`: the type of its column, how a value is shown and kept, how a
column is made of a table of parts, and how parts are made of a column.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.errors import EncodeError, UnsupportedFormatError
from statelake.state_core.kernels.kryo import NULL
from statelake.state_core.printable import is_text
from statelake.state_core.serializers.composite.collections import offsets_of
from statelake.state_core.serializers.framework.columns import (
    BoolArray,
    I64Array,
    U8Array,
    arrow_buffer,
    fixed_values,
    variable_values,
)
from statelake.state_core.serializers.kryo.forms import (
    decimal_parts,
    decimal_text,
    integer_bytes,
)
from statelake.state_core.serializers.kryo.graph import NUMBER_BITS, Item
from statelake.state_core.serializers.kryo.tables import (
    NUMBERS,
    MarkedTable,
    PlacedTable,
    TablePlan,
)
from statelake.state_core.serializers.kryo.uuids import uuid_halves

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
UTC_MICROS, MICROS = pa.timestamp("us", "UTC"), pa.timestamp("us")
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?")
DECIMAL_DIGITS = 38
# numbers of which `BigDecimal.toString` has no exponent, as far as they are made many at a time
MOST_PLACES, LEAST_EXPONENT = 30, -6
_PLAIN_DECIMAL = r"^-?[0-9]{1,9}(\.[0-9]{1,9})?$"
NANOS = 1_000_000_000  # of a second
MILLIS_ONLY = ("java.util.Date", "java.sql.Date", "java.sql.Time")
_TEXTS = ("java.lang.String", "java.lang.StringBuilder", "java.lang.StringBuffer", "java.net.URI",
          "java.util.Currency")  # fmt: skip


class ScalarColumn(ABC):
    """A column of values of a type.

    Attributes:
        arrow_type: The column's type.
        closed: Whether its type alone determines all nested values.
    """

    arrow_type: pa.DataType
    closed: bool = True

    @abstractmethod
    def to_arrow(self, value: Any) -> Any:
        """Return Arrow's value of an item, or of a primitive; None for null.

        Raises:
            UnsupportedFormatError: The column can't hold it.
        """

    @abstractmethod
    def from_arrow(self, value: Any) -> Any:
        """Return the item, or the primitive, for a value from `to_pylist`.

        Raises:
            EncodeError: The value is not of the type.
        """

    def many(self, table: MarkedTable, lines: I64Array) -> pa.Array:
        """Return the column of many objects, and mark those that are not as this one is.

        By default all have to be read by themselves.
        """
        table.untold[lines] = True
        return pa.nulls(len(lines), self.arrow_type)

    def plan(self, values: pa.Array) -> TablePlan:
        """Return the plan by which many values are written.

        Raises:
            EncodeError: They have to be written one by one, which may say what is wrong.
        """
        raise EncodeError(f"{self.arrow_type}, which is written one by one")


@dataclass(frozen=True)
class Scalar(ScalarColumn):
    """Values that one function shows, and another converts back.

    Attributes:
        java_class: Their class.
        arrow_type: The column's type.
        show: Returns a value as the column has it.
        keep: Returns the value for it.
        made: Makes the column of some lines of a table; None if they are read one by one.
        placed: Fills lines of a table from a column; None if they are written one by one.
        lines: The lines of a value.
    """

    java_class: str
    arrow_type: pa.DataType
    show: Callable[[Any], Any]
    keep: Callable[[Any], Any]
    made: Callable[[MarkedTable, I64Array, Scalar], pa.Array] | None = None
    placed: Callable[[PlacedTable, I64Array, pa.Array], None] | None = None
    lines: int = 1

    def to_arrow(self, value: Any) -> Any:
        """Show the value, if it is of the class."""
        if value is None:
            return None
        if value.java_class != self.java_class:
            raise not_for(value, self.java_class)
        return show_value(self.show, value.value)

    def from_arrow(self, value: Any) -> Any:
        """Return the item."""
        return None if value is None else Item(self.java_class, keep_value(self.keep, value))

    def many(self, table: MarkedTable, lines: I64Array) -> pa.Array:
        """Return the column of many objects."""
        if self.made is None:
            return super().many(table, lines)
        right = table.of_class(lines, self.java_class)
        return self.made(table, np.where(right, lines, table.a_null), self)

    def plan(self, values: pa.Array) -> TablePlan:
        """Return the plan by which many values are written."""
        placed = self.placed
        if placed is None:
            return super().plan(values)
        rows, present = not_null(values)

        def place(table: PlacedTable, lines: I64Array) -> None:
            table.put(lines[rows], self.java_class)
            placed(table, lines[rows], present)

        sizes = np.ones(len(values), np.int64)
        sizes[rows] = self.lines
        return TablePlan(sizes, place)


def _each(
    column: Scalar, table: MarkedTable, lines: I64Array, value: Callable[[int], Any]
) -> pa.Array:
    """Return a column whose values are shown one by one, by their lines."""
    shown: list[Any] = []
    for line in lines.tolist():
        if table.parts.kind[line] == NULL:
            shown.append(None)
            continue
        original = value(line)
        try:
            shown.append(show_value(column.show, original))
            table.loose[line] |= keep_value(column.keep, shown[-1]) != original
        except (UnsupportedFormatError, EncodeError):
            shown.append(None)
            table.unfit[line] = True
    return pa.array(shown, column.arrow_type)


def show_value(show: Callable[[Any], Any], value: Any) -> Any:
    """Return a value as its column has it.

    Raises:
        UnsupportedFormatError: The column can't hold it.
    """
    try:
        shown = show(value)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise UnsupportedFormatError(f"{value!r} is in no column ({error})") from error
    if isinstance(shown, str) and not is_text(shown):
        raise UnsupportedFormatError(f"{shown!r} is no text")
    return shown


def keep_value(keep: Callable[[Any], Any], value: Any) -> Any:
    """Return the value of an object that a column's value stands for.

    Raises:
        EncodeError: No value of the class has this form.
    """
    try:
        return keep(value)
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise EncodeError(f"{str(value)[:200]!r} can't be written ({error})") from error


def not_for(value: Any, expected: str) -> UnsupportedFormatError:
    """Return the error for an object of another class than a column has."""
    return UnsupportedFormatError(f"a {value.java_class}, where a column holds {expected}")


def _same(value: Any) -> Any:
    return value


def _instant(seconds: int, nanos: int) -> datetime:
    return EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)


def _since(moment: datetime) -> tuple[int, int]:
    """Return seconds since 1970, and nanoseconds."""
    micros = (moment - EPOCH) // timedelta(microseconds=1)
    return micros // 1_000_000, micros % 1_000_000 * 1000


def _millis(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def _local(value: tuple[int, ...]) -> datetime:
    *parts, nanos = value
    year, month, day, hour, minute, second = parts
    return datetime(year, month, day, hour, minute, second, nanos // 1000)  # noqa: DTZ001


def _local_parts(moment: datetime) -> tuple[int, ...]:
    return (*moment.timetuple()[:6], moment.microsecond * 1000)


def _clock(value: tuple[int, ...]) -> str:
    """Return the text of `LocalTime.toString`."""
    hour, minute, second, nanos = value
    if not 0 <= nanos < NANOS:
        raise ValueError(f"{nanos} nanoseconds of a second")
    text = f"{hour:02}:{minute:02}"
    if second or nanos:
        text += f":{second:02}"
    if nanos:
        digits = f"{nanos:09}"
        text += "." + next(digits[:n] for n in (3, 6, 9) if not digits[n:].strip("0"))
    return text


def _clock_parts(text: str) -> tuple[int, ...]:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("no time, such as 12:30:00.5")
    hour, minute, second, fraction = match.groups()
    return int(hour), int(minute), int(second or 0), int((fraction or "0").ljust(9, "0"))


def _big(value: int) -> Decimal:
    if len(str(abs(value))) > DECIMAL_DIGITS:
        raise ValueError(f"more than {DECIMAL_DIGITS} digits")
    return Decimal(value)


def _parts(*names: str) -> tuple[pa.DataType, Callable[[Any], Any], Callable[[Any], Any]]:
    """Return the type of a struct of some numbers, with its conversions."""
    return (
        pa.struct({name: pa.int64() for name in names}),
        lambda value: dict(zip(names, value, strict=True)),
        lambda value: tuple(value[name] for name in names),
    )


_LEAST_MICROS, _MOST_MICROS = (
    (edge.replace(tzinfo=timezone.utc) - EPOCH) // timedelta(microseconds=1)
    for edge in (datetime.min, datetime.max)  # noqa: DTZ901 - Python's own bounds
)


def _many_numbers(table: MarkedTable, lines: I64Array, column: Scalar) -> pa.Array:
    if column.java_class == "java.lang.Float":  # Python makes a NaN quiet that is not
        bits = table.parts.number[lines] & 0x7FFFFFFF
        table.loose[lines[(bits > 0x7F800000) & (bits < 0x7FC00000)]] = True
    return table.parts.numbers(lines, column.arrow_type)


def _many_characters(table: MarkedTable, lines: I64Array, column: Scalar) -> pa.Array:
    return _each(column, table, lines, lambda line: chr(int(table.parts.number[line]) & 0xFFFF))


def _many_bytes(table: MarkedTable, lines: I64Array, column: Scalar) -> pa.Array:
    return _each(column, table, lines, table.parts.content)


def _many_integers(table: MarkedTable, lines: I64Array, column: Scalar) -> pa.Array:
    numbers = table.parts.small_integers(lines)
    if numbers is None:
        return _each(column, table, lines, table.parts.integer)
    return _with_nulls(_decimals(numbers, column.arrow_type), table.present(lines))


def _many_decimals(table: MarkedTable, lines: I64Array, column: Scalar) -> pa.Array:
    parts = table.parts
    scales, numbers = parts.number[lines], parts.small_integers(lines)
    if numbers is not None and _are_plain(numbers, scales):
        texts = pa.nulls(len(lines), pa.string())
        for scale in np.unique(scales).tolist():
            mine = scales == scale
            kind = pa.decimal128(DECIMAL_DIGITS, scale)
            texts = pc.replace_with_mask(
                texts, mine, _decimals(numbers[mine], kind).cast(texts.type)
            )
        return _with_nulls(texts, table.present(lines))

    def value(line: int) -> tuple[int, int]:
        unscaled = parts.integer(line)
        if unscaled.bit_length() > NUMBER_BITS:
            table.unfit[line] = True
            return 0, 0
        return unscaled, int(parts.number[line])

    return _each(column, table, lines, value)


def _decimals(unscaled: I64Array, kind: pa.DataType) -> pa.Array:
    """Return decimals of a type from their unscaled numbers."""
    words = np.stack((unscaled, unscaled >> 63), 1)
    return pa.Array.from_buffers(kind, len(unscaled), [None, arrow_buffer(words.reshape(-1))])


def _are_plain(unscaled: I64Array, scales: I64Array) -> bool:
    """Return whether `BigDecimal.toString` writes all of some numbers without an exponent."""
    size = np.abs(unscaled.astype(np.float64))
    exponent = np.floor(np.log10(np.maximum(size, 1))) - scales
    return bool(((scales >= 0) & (scales <= MOST_PLACES) & (exponent >= LEAST_EXPONENT)).all())


def _with_nulls(values: pa.Array, present: U8Array) -> pa.Array:
    """Return values, those of rows that are not present replaced by null."""
    if present.all():
        return values
    return pc.if_else(pa.array(present != 0), values, pa.scalar(None, values.type))


def _many_clocks(table: MarkedTable, lines: I64Array, column: Scalar) -> pa.Array:
    number, start = table.parts.number, table.parts.start

    def value(line: int) -> tuple[int, ...]:
        clock = int(number[line])
        return clock >> 16, clock >> 8 & 0xFF, clock & 0xFF, int(start[line])

    return _each(column, table, lines, value)


def _many_durations(table: MarkedTable, lines: I64Array, column: Scalar) -> pa.Array:
    parts, kind = table.parts, column.arrow_type
    seconds, nanos = pa.array(parts.number[lines]), pa.array(parts.start[lines])
    null = pa.array(table.present(lines) == 0)
    return pa.StructArray.from_arrays([seconds, nanos], fields=list(kind), mask=null)


def _many_moments(table: MarkedTable, lines: I64Array, column: Scalar) -> pa.Array:
    """Return times from seconds, or milliseconds, and nanoseconds."""
    parts, name = table.parts, column.java_class
    ticks, nanos = parts.number[lines], parts.start[lines]
    exact = np.ones(len(lines), np.bool_)
    unit = 1_000_000 if name == "java.time.Instant" else 1000
    if name in MILLIS_ONLY:
        nanos = np.zeros_like(nanos)
    elif name == "java.sql.Timestamp":  # of whole seconds
        exact = ticks % 1000 == 0
        ticks = ticks // 1000 * 1000
    exact &= (nanos % 1000 == 0) & (nanos >= 0) & (nanos < NANOS)
    fits = (ticks >= _LEAST_MICROS // unit) & (ticks <= _MOST_MICROS // unit)
    micros = np.where(fits, ticks, 0) * unit + nanos // 1000
    return _marked_moments(table, lines, column.arrow_type, (micros, fits, exact))


def _marked_moments(
    table: MarkedTable,
    lines: I64Array,
    kind: pa.DataType,
    moments: tuple[I64Array, BoolArray, BoolArray],
) -> pa.Array:
    """Return a column of microseconds, of which some do not fit, or are not exact."""
    micros, fits, exact = moments
    fits = fits & (micros >= _LEAST_MICROS) & (micros <= _MOST_MICROS)
    null = table.present(lines) == 0
    table.unfit[lines[~fits & ~null]] = True
    table.loose[lines[~exact & ~null]] = True
    return pa.array(np.where(fits, micros, 0), pa.int64(), mask=null).cast(kind)


def _days(table: MarkedTable, lines: I64Array) -> tuple[I64Array, BoolArray]:
    """Return the days since 1970 of dates, and which of them are dates of Python."""
    year, month = table.parts.number[lines], table.parts.start[lines]
    fits = (year >= 1) & (year <= 9999)
    months = (np.where(fits, year, 1970) - 1970) * 12 + month - 1
    months = np.where(fits & (table.parts.kind[lines] != NULL), months, 0)
    first = months.astype("M8[M]").astype("M8[D]").astype(np.int64)
    days = first + np.where(fits, table.parts.end[lines], 1) - 1
    fits &= days.astype("M8[D]").astype("M8[M]").astype(np.int64) == months
    return np.where(fits, days, 0), fits


def _many_dates(table: MarkedTable, lines: I64Array, column: Scalar) -> pa.Array:
    days, fits = _days(table, lines)
    null = table.present(lines) == 0
    table.unfit[lines[~fits & ~null]] = True
    return pa.array(days.astype(np.int32), pa.int32(), mask=null).cast(column.arrow_type)


def _many_date_times(table: MarkedTable, lines: I64Array, column: Scalar) -> pa.Array:
    parts, null = table.parts, table.present(lines) == 0
    halves = np.full((len(lines), 2), table.a_null)
    halves[~null] = parts.within(lines[~null], np.full(int((~null).sum()), 2)).reshape(-1, 2)
    half = (parts.kind[halves] == NULL).any(axis=1)
    table.untold[lines[half & ~null]] = True
    days, fits = _days(table, halves[:, 0].copy())
    clock, nanos = parts.number[halves[:, 1]], parts.start[halves[:, 1]]
    seconds = (clock >> 16) * 3600 + (clock >> 8 & 0xFF) * 60 + (clock & 0xFF)
    fits &= nanos < NANOS
    micros = np.where(half, 0, (days * 86_400 + seconds) * 1_000_000 + nanos // 1000)
    exact = half | (nanos % 1000 == 0)
    return _marked_moments(table, lines, column.arrow_type, (micros, fits | half, exact))


def present_mask(values: pa.Array) -> BoolArray:
    """Return which values are not null."""
    mask: BoolArray = np.asarray(values.is_valid())
    return mask


def not_null(values: pa.Array) -> tuple[I64Array, pa.Array]:
    """Return the rows that are not null, and their values."""
    rows: I64Array = np.flatnonzero(present_mask(values))
    return rows, values if len(rows) == len(values) else values.take(pa.array(rows))


def _place_numbers(table: PlacedTable, lines: I64Array, values: pa.Array) -> None:
    kind = values.type
    if pa.types.is_floating(kind):
        width = kind.bit_width // 8
        bits = fixed_values(values, f"f{width}").view(f"i{width}").astype(np.int64)
        if width == 4:  # as Python writes a NaN
            bits[(bits & 0x7FFFFFFF) > 0x7F800000] |= 0x00400000
        table.number[lines] = bits
    else:
        table.number[lines] = values.cast(pa.int64()).to_numpy(zero_copy_only=False)


def _place_characters(table: PlacedTable, lines: I64Array, values: pa.Array) -> None:
    texts = values.to_pylist()
    if any(len(text) != 1 or ord(text) > 0xFFFF for text in texts):
        raise EncodeError("a text that is no character")
    table.number[lines] = [ord(text) for text in texts]


def _place_bytes(table: PlacedTable, lines: I64Array, values: pa.Array) -> None:
    bounds, data = variable_values(values)
    first, last = int(bounds[0]), int(bounds[-1])
    table.put_bytes(lines, data[first:last], bounds.astype(np.int64) - first)


def _place_integers(table: PlacedTable, lines: I64Array, values: pa.Array) -> None:
    _put_integers(table, lines, [keep_value(int, value) for value in values.to_pylist()])


def _put_integers(table: PlacedTable, lines: I64Array, numbers: list[int]) -> None:
    pieces = list(map(integer_bytes, numbers))
    bounds = offsets_of(np.array(list(map(len, pieces)), np.int64))
    table.put_bytes(lines, np.frombuffer(b"".join(pieces), np.uint8), bounds)


def _place_decimals(table: PlacedTable, lines: I64Array, values: pa.Array) -> None:
    if pc.all(pc.match_substring_regex(values, _PLAIN_DECIMAL)).as_py() is not False:
        point = pc.find_substring(values, ".").to_numpy(zero_copy_only=False)
        behind = pc.binary_length(values).to_numpy(zero_copy_only=False) - 1 - point
        table.number[lines] = np.where(point < 0, 0, behind)
        digits = pc.replace_substring(values, ".", "")
        table.put_integers(lines, digits.cast(pa.int64()).to_numpy(zero_copy_only=False))
        return
    parts = [keep_value(decimal_parts, text) for text in values.to_pylist()]
    table.number[lines] = [scale for _, scale in parts]
    _put_integers(table, lines, [unscaled for unscaled, _ in parts])


def _place_uuids(table: PlacedTable, lines: I64Array, values: pa.Array) -> None:
    halves = uuid_halves(values) if len(values) else np.empty((0, 2), np.uint64)
    if halves is None:
        raise EncodeError("a text that is no UUID")
    table.number[lines], table.start[lines] = halves.view(np.int64).T


def _micros(values: pa.Array) -> I64Array:
    return _shown(fixed_values(values, np.int64), 1)


def _shown(times: I64Array, unit: int) -> I64Array:
    """Return times in units of so many microseconds.

    Raises:
        EncodeError: One is outside of the years that Python has.
    """
    if ((times < _LEAST_MICROS // unit) | (times > _MOST_MICROS // unit)).any():
        raise EncodeError("a time outside of the years 1 to 9999")
    return times


def _place_millis(table: PlacedTable, lines: I64Array, values: pa.Array) -> None:
    table.number[lines] = _micros(values) // 1000


def _place_timestamps(table: PlacedTable, lines: I64Array, values: pa.Array) -> None:
    micros = _micros(values)
    table.number[lines] = micros // 1_000_000 * 1000
    table.start[lines] = micros % 1_000_000 * 1000


def _place_instants(table: PlacedTable, lines: I64Array, values: pa.Array) -> None:
    micros = _micros(values)
    table.number[lines], table.start[lines] = micros // 1_000_000, micros % 1_000_000 * 1000


def _put_days(table: PlacedTable, lines: I64Array, days: I64Array) -> None:
    """Make lines dates, of days since 1970."""
    months = days.astype("M8[D]").astype("M8[M]")
    count = months.astype(np.int64)
    day = days - months.astype("M8[D]").astype(np.int64) + 1
    table.number[lines] = count // 12 + 1970
    table.start[lines], table.end[lines] = count % 12 + 1, day


def _place_dates(table: PlacedTable, lines: I64Array, values: pa.Array) -> None:
    days = fixed_values(values, np.int32).astype(np.int64)
    _put_days(table, lines, _shown(days, 86_400_000_000))


def _place_clocks(table: PlacedTable, lines: I64Array, values: pa.Array) -> None:
    clocks = [keep_value(_clock_parts, text) for text in values.to_pylist()]
    if any(hour > 23 or minute > 59 or second > 59 for hour, minute, second, _ in clocks):
        raise EncodeError("no time of a day")
    table.number[lines] = [h << 16 | m << 8 | s for h, m, s, _ in clocks]
    table.start[lines] = [nanos for *_, nanos in clocks]


def _place_durations(table: PlacedTable, lines: I64Array, values: pa.Array) -> None:
    seconds, nanos = values.flatten()
    if seconds.null_count or nanos.null_count:
        raise EncodeError("a duration without a part")
    fractions = fixed_values(nanos, np.int64)
    if ((fractions < 0) | (fractions >= NANOS)).any():
        raise EncodeError("nanoseconds that are not those of a second")
    table.number[lines], table.start[lines] = fixed_values(seconds, np.int64), fractions


def _place_date_times(table: PlacedTable, lines: I64Array, values: pa.Array) -> None:
    """Fill a date and a time within each."""
    micros = _micros(values)
    table.put(lines + 1, "java.time.LocalDate")
    _put_days(table, lines + 1, micros // 86_400_000_000)
    seconds = micros // 1_000_000 % 86_400
    clock = seconds // 3600 << 16 | seconds // 60 % 60 << 8 | seconds % 60
    table.put(lines + 2, "java.time.LocalTime", clock)
    table.start[lines + 2] = micros % 1_000_000 * 1000


# by class, what a `Scalar` has besides
SCALARS: dict[str, tuple[Any, ...]] = {
    **{
        name: (kind, _same, _same, _many_numbers, _place_numbers) for name, kind in NUMBERS.items()
    },
    **dict.fromkeys(_TEXTS, (
        pa.string(), _same, _same, lambda table, lines, _: table.parts.texts(lines),
        PlacedTable.put_texts,
    )),
    "java.lang.Character": (pa.string(), _same, _same, _many_characters, _place_characters),
    "[B": (pa.binary(), _same, _same, _many_bytes, _place_bytes),
    "java.math.BigInteger": (
        pa.decimal128(DECIMAL_DIGITS, 0), _big, int, _many_integers, _place_integers
    ),
    "java.math.BigDecimal": (
        pa.string(), lambda parts: decimal_text(*parts), decimal_parts, _many_decimals,
        _place_decimals,
    ),
    "java.util.UUID": (
        pa.string(), _same, _same, lambda table, lines, _: table.parts.uuids(lines), _place_uuids
    ),
    "java.util.BitSet": (pa.list_(pa.int64()), _same, _same),
    "java.util.Locale": (
        pa.struct({name: pa.string() for name in ("language", "country", "variant")}),
        *_parts("language", "country", "variant")[1:],
    ),
    "java.util.regex.Pattern": (pa.string(), lambda parts: parts[0], lambda text: (text, 0)),
    **{
        name: (
            UTC_MICROS, lambda millis: EPOCH + timedelta(milliseconds=millis), _millis,
            _many_moments, _place_millis,
        )
        for name in MILLIS_ONLY
    },
    "java.sql.Timestamp": (
        UTC_MICROS,
        lambda parts: _instant(parts[0] // 1000, parts[1]),
        lambda instant: (_since(instant)[0] * 1000, _since(instant)[1]),
        _many_moments, _place_timestamps,
    ),
    "java.time.Instant": (
        UTC_MICROS, lambda parts: _instant(*parts), _since, _many_moments, _place_instants
    ),
    "java.time.LocalDate": (
        pa.date32(),
        lambda parts: date(*parts),
        lambda day: (day.year, day.month, day.day),
        _many_dates, _place_dates,
    ),
    "java.time.LocalTime": (pa.string(), _clock, _clock_parts, _many_clocks, _place_clocks),
    "java.time.LocalDateTime": (
        MICROS, _local, _local_parts, _many_date_times, _place_date_times, 3
    ),
    "java.time.OffsetDateTime": (
        pa.struct({"local": MICROS, "offset_seconds": pa.int64()}),
        lambda parts: {"local": _local(parts[:7]), "offset_seconds": parts[7]},
        lambda row: (*_local_parts(row["local"]), row["offset_seconds"]),
    ),
    "java.time.OffsetTime": (
        pa.struct({"local": pa.string(), "offset_seconds": pa.int64()}),
        lambda parts: {"local": _clock(parts[:4]), "offset_seconds": parts[4]},
        lambda row: (*_clock_parts(row["local"]), row["offset_seconds"]),
    ),
    "java.time.Duration": (*_parts("seconds", "nanos"), _many_durations, _place_durations),
    "java.time.Period": _parts("years", "months", "days"),
    "java.time.YearMonth": _parts("year", "month"),
    "java.time.MonthDay": _parts("month", "day"),
    "java.time.Year": (pa.int32(), lambda parts: parts[0], lambda number: (number,)),
    "java.time.ZoneOffset": (pa.int32(), lambda parts: parts[0], lambda number: (number,)),
}  # fmt: skip
