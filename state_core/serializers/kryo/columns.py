"""Objects as Arrow's values, and back.

A class with known fields or elements is a struct, a list or a map; a value of any type is JSON. A
collection or a map is written back as the usual class (`ArrayList`, `HashSet`, `HashMap`) if its
field's type is an interface; if it was another class, its bytes stay beside the value.
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

from statelake.state_core.bounds import COLUMN_NESTING
from statelake.state_core.errors import EncodeError, UnsupportedFormatError
from statelake.state_core.kernels.kryo import NULL
from statelake.state_core.printable import is_text
from statelake.state_core.serializers.composite.collections import (
    elements_of,
    entries_of,
    list_array,
    offsets_of,
)
from statelake.state_core.serializers.framework.columns import (
    BoolArray,
    I64Array,
    fixed_values,
    variable_values,
)
from statelake.state_core.serializers.kryo.forms import decimal_parts, decimal_text
from statelake.state_core.serializers.kryo.graph import NUMBER_BITS, Classes, Item
from statelake.state_core.serializers.kryo.java_types import PRIMITIVES, JavaType, component_of
from statelake.state_core.serializers.kryo.json_values import (
    JsonParts,
    JsonValues,
    plan_of_json,
)
from statelake.state_core.serializers.kryo.objects import EnumForm, FieldForm
from statelake.state_core.serializers.kryo.protobuf import MessageType
from statelake.state_core.serializers.kryo.tables import (
    LISTS,
    MAPS,
    NUMBERS,
    Marked,
    Placed,
    Plan,
)
from statelake.state_core.serializers.kryo.uuids import uuid_halves

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
UTC_MICROS, MICROS = pa.timestamp("us", "UTC"), pa.timestamp("us")
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?")
# the written class for a field whose type is an interface
_USUAL = {
    "List": "ArrayList", "Collection": "ArrayList", "Set": "HashSet", "Map": "HashMap",
    "SortedSet": "TreeSet", "NavigableSet": "TreeSet", "SortedMap": "TreeMap",
    "NavigableMap": "TreeMap", "Queue": "LinkedList", "Deque": "ArrayDeque",
}  # fmt: skip
_USUAL = {f"java.util.{name}": f"java.util.{usual}" for name, usual in _USUAL.items()}
_MAPS = {f"java.util.{name}" for name in (
    "Map", "HashMap", "LinkedHashMap", "TreeMap", "SortedMap", "NavigableMap", "Hashtable",
    "concurrent.ConcurrentHashMap", "concurrent.ConcurrentSkipListMap",
)}  # fmt: skip
DECIMAL_DIGITS = 38
NANOS = 1_000_000_000  # of a second


class Column(ABC):
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

    def many(self, table: Marked, lines: I64Array) -> pa.Array:
        """Return the column of many objects, and mark those that are not as this one is.

        By default all have to be read by themselves.
        """
        table.untold[lines] = True
        return pa.nulls(len(lines), self.arrow_type)

    def plan(self, values: pa.Array) -> Plan:
        """Return how many values are written at once.

        Raises:
            EncodeError: They have to be written one by one, which may say what is wrong.
        """
        raise EncodeError(f"{self.arrow_type}, which is written one by one")


@dataclass(frozen=True)
class _Scalar(Column):
    """Values that one function shows, and another converts back."""

    java_class: str
    arrow_type: pa.DataType
    show: Callable[[Any], Any]
    keep: Callable[[Any], Any]

    @property
    def closed(self) -> bool:  # type: ignore[override]
        """Return whether both versions of Kryo write it in a known form."""
        return self.java_class != "java.util.Locale"

    def to_arrow(self, value: Any) -> Any:
        """Show the value, if it is of the class."""
        if value is None:
            return None
        if value.java_class != self.java_class:
            raise _not_for(value, self.java_class)
        return _show(self.show, value.value)

    def from_arrow(self, value: Any) -> Any:
        """Return the item."""
        return None if value is None else Item(self.java_class, _keep(self.keep, value))

    def many(self, table: Marked, lines: I64Array) -> pa.Array:
        """Return the column of many objects."""
        made = _MANY.get(self.java_class)
        if made is None:
            return super().many(table, lines)
        right = table.of_class(lines, self.java_class)
        return made(table, np.where(right, lines, table.a_null), self)

    def plan(self, values: pa.Array) -> Plan:
        """Return how many values are written at once."""
        if self.java_class == _LOCAL_DATE_TIME:
            return _plan_date_times(values)
        placed = _PLACED.get(self.java_class)
        if placed is None:
            return super().plan(values)
        rows = np.flatnonzero(present_mask(values))
        held = values if len(rows) == len(values) else values.take(pa.array(rows))

        def place(table: Placed, lines: I64Array) -> None:
            table.put(lines[rows], self.java_class)
            placed(table, lines[rows], held)

        return Plan(np.ones(len(values), np.int64), place)


@dataclass(frozen=True)
class EnumColumn(Column):
    """Constants of an enum, including those with their own class."""

    java_class: str
    classes: Classes
    arrow_type = pa.string()

    def to_arrow(self, value: Any) -> Any:
        """Show the constant's name."""
        if value is None:
            return None
        if self.classes.enum_of(value.java_class) != self.java_class:
            raise _not_for(value, self.java_class)
        return value.value

    def from_arrow(self, value: Any) -> Any:
        """Return the item."""
        return None if value is None else Item(self.java_class, value)

    def many(self, table: Marked, lines: I64Array) -> pa.Array:
        """Return the column of many constants."""
        right = table.of_class(lines, self.java_class)
        if not right.any():
            return pa.nulls(len(lines), self.arrow_type)
        return table.parts.constants(np.where(right, lines, table.a_null))

    def plan(self, values: pa.Array) -> Plan:
        """Return how many constants are written at once."""
        form = self.classes.form_of(self.java_class)
        constants = form.constants if isinstance(form, EnumForm) else ()
        numbers = pc.index_in(values, value_set=pa.array(constants, pa.string()))
        if numbers.null_count != values.null_count:
            raise EncodeError(f"no constant of {self.java_class}")
        rows = np.flatnonzero(present_mask(values))
        held = numbers.fill_null(0).to_numpy()[rows].astype(np.int64) + 1

        def place(table: Placed, lines: I64Array) -> None:
            table.put(lines[rows], self.java_class, held)

        return Plan(np.ones(len(values), np.int64), place)


@dataclass(frozen=True)
class _Primitive(Column):
    """Primitives in an object's fields and in arrays, which are not items."""

    box: _Scalar

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of the boxed number."""
        return self.box.arrow_type

    def to_arrow(self, value: Any) -> Any:
        """Show the number."""
        return _show(self.box.show, value)

    def from_arrow(self, value: Any) -> Any:
        """Return the number."""
        if value is None:
            raise EncodeError(f"null for a primitive of {self.box.java_class}")
        return _keep(self.box.keep, value)

    def many(self, table: Marked, lines: I64Array) -> pa.Array:
        """Return the column of many numbers."""
        return self.box.many(table, lines)

    def plan(self, values: pa.Array) -> Plan:
        """Return how many numbers are written at once."""
        if values.null_count:
            raise EncodeError(f"null for a primitive of {self.box.java_class}")
        return self.box.plan(values)


def _each(column: _Scalar, table: Marked, lines: I64Array, value: Callable[[int], Any]) -> pa.Array:
    """Return a column whose values are shown one by one, by their lines."""
    shown: list[Any] = []
    for line in lines.tolist():
        if line == table.a_null or table.parts.kind[line] == NULL:
            shown.append(None)
            continue
        held = value(line)
        try:
            shown.append(_show(column.show, held))
            table.loose[line] |= _keep(column.keep, shown[-1]) != held
        except (UnsupportedFormatError, EncodeError):
            shown.append(None)
            table.unfit[line] = True
    return pa.array(shown, column.arrow_type)


def _show(show: Callable[[Any], Any], value: Any) -> Any:
    try:
        shown = show(value)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise UnsupportedFormatError(f"{value!r} is in no column ({error})") from error
    if isinstance(shown, str) and not is_text(shown):
        raise UnsupportedFormatError(f"{shown!r} is no text")
    return shown


def _keep(keep: Callable[[Any], Any], value: Any) -> Any:
    try:
        return keep(value)
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise EncodeError(f"{str(value)[:200]!r} can't be written ({error})") from error


def _not_for(value: Any, expected: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(f"a {value.java_class}, where a column holds {expected}")


class JsonColumn(Column):
    """Values of any class, as JSON."""

    arrow_type = pa.string()
    closed = False

    def __init__(self, classes: Classes) -> None:
        self.classes = classes

    def to_arrow(self, value: Any) -> Any:
        """Return the item as JSON."""
        return None if value is None else JsonValues(self.classes).text(value)

    def from_arrow(self, value: Any) -> Any:
        """Return the item of a JSON text."""
        return None if value is None else JsonValues(self.classes).item(str(value))

    def many(self, table: Marked, lines: I64Array) -> pa.Array:
        """Return the JSON of many objects, if they are of the usual classes."""
        return JsonParts(table).texts(lines)

    def plan(self, values: pa.Array) -> Plan:
        """Return how many values are written at once, if they are of the usual classes."""
        return plan_of_json(values)


@dataclass(frozen=True)
class _Message(Column):
    """Protobuf messages, field by field."""

    java_class: str
    message: MessageType

    @property
    def arrow_type(self) -> pa.DataType:
        """A struct."""
        return self.message.arrow_type

    def to_arrow(self, value: Any) -> Any:
        """Show the message."""
        if value is None:
            return None
        if value.java_class != self.java_class:
            raise _not_for(value, self.java_class)
        return self.message.read(value.value)

    def from_arrow(self, value: Any) -> Any:
        """Return the item."""
        return None if value is None else Item(self.java_class, self.message.write(value))


@dataclass(frozen=True)
class _List(Column):
    """Collections, and arrays."""

    java_class: str
    element: Column

    @property
    def arrow_type(self) -> pa.DataType:
        """A list."""
        return pa.list_(self.element.arrow_type)

    @property
    def closed(self) -> bool:  # type: ignore[override]
        """Return whether the elements' type determines all nested values."""
        return self.element.closed

    def to_arrow(self, value: Any) -> Any:
        """Show the elements."""
        if value is None:
            return None
        if not isinstance(value.value, list):
            raise _not_for(value, self.java_class)
        of_objects = not isinstance(self.element, _Primitive)
        if any(isinstance(each, Item) != of_objects for each in value.value if each is not None):
            raise _not_for(value, self.java_class)
        return [self.element.to_arrow(element) for element in value.value]

    def from_arrow(self, value: Any) -> Any:
        """Return the items."""
        if value is None:
            return None
        return Item(self.java_class, [self.element.from_arrow(element) for element in value])

    def many(self, table: Marked, lines: I64Array) -> pa.Array:
        """Return the column of many collections."""
        lines = table.of_forms(lines, LISTS, self.java_class)
        counts, elements = table.parts.elements(lines, LISTS)
        items = self.element.many(table, elements)
        return list_array(self.arrow_type, offsets_of(counts), table.present(lines), items)

    def plan(self, values: pa.Array) -> Plan:
        """Return how many collections are written at once."""
        if isinstance(self.element, _Primitive):
            raise EncodeError("an array of numbers, which is written by itself")
        present = present_mask(values)
        first, items = elements_of(values, present.astype(np.uint8))
        inner, counts = self.element.plan(items), np.diff(first)
        if self.java_class == "java.util.Optional" and (counts[present] != 1).any():
            raise EncodeError("an Optional without its value")
        before = offsets_of(inner.sizes)

        def place(table: Placed, lines: I64Array) -> None:
            table.put(lines[present], self.java_class, counts[present])
            inner.place(table, _spread(lines + 1, first, before))

        return Plan(1 + before[first[1:]] - before[first[:-1]], place)


@dataclass(frozen=True)
class _Map(Column):
    """Maps."""

    java_class: str
    key: Column
    value: Column

    @property
    def arrow_type(self) -> pa.DataType:
        """A map."""
        return pa.map_(self.key.arrow_type, self.value.arrow_type)

    @property
    def closed(self) -> bool:  # type: ignore[override]
        """Return whether the types of keys and values determine all nested values."""
        return self.key.closed and self.value.closed

    def to_arrow(self, value: Any) -> Any:
        """Show the entries."""
        if value is None:
            return None
        if not isinstance(value.value, list) or not all(
            isinstance(pair, tuple) for pair in value.value
        ):
            raise _not_for(value, self.java_class)
        pairs = [(self.key.to_arrow(key), self.value.to_arrow(item)) for key, item in value.value]
        if any(key is None for key, _ in pairs):
            raise UnsupportedFormatError("a null key, which no column of maps holds")
        return pairs

    def from_arrow(self, value: Any) -> Any:
        """Return the items."""
        if value is None:
            return None
        pairs = [(self.key.from_arrow(key), self.value.from_arrow(item)) for key, item in value]
        return Item(self.java_class, pairs)

    def many(self, table: Marked, lines: I64Array) -> pa.Array:
        """Return the column of many maps."""
        lines = table.of_forms(lines, MAPS, self.java_class)
        counts, keys, values = table.parts.entries(lines)
        key, kind = self.key.many(table, keys), self.arrow_type
        if key.null_count:
            raise EncodeError("a key that is null, or in no column")
        entries = pa.StructArray.from_arrays(
            [key, self.value.many(table, values)], fields=[kind.key_field, kind.item_field]
        )
        return list_array(kind, offsets_of(counts), table.present(lines), entries)

    def plan(self, values: pa.Array) -> Plan:
        """Return how many maps are written at once."""
        present = present_mask(values)
        first, keys, items = entries_of(values, present.astype(np.uint8))
        key, value, counts = self.key.plan(keys), self.value.plan(items), np.diff(first)
        before = offsets_of(key.sizes + value.sizes)

        def place(table: Placed, lines: I64Array) -> None:
            table.put(lines[present], self.java_class, counts[present])
            entries = _spread(lines + 1, first, before)
            key.place(table, entries)
            value.place(table, entries + key.sizes)

        return Plan(1 + before[first[1:]] - before[first[:-1]], place)


@dataclass(frozen=True)
class _Struct(Column):
    """Objects with fields."""

    java_class: str
    fields: dict[str, Column]

    @property
    def arrow_type(self) -> pa.DataType:
        """A struct."""
        return pa.struct([pa.field(name, child.arrow_type) for name, child in self.fields.items()])

    @property
    def closed(self) -> bool:  # type: ignore[override]
        """Return whether the types of the fields determine all nested values."""
        return all(field.closed for field in self.fields.values())

    def to_arrow(self, value: Any) -> Any:
        """Show the fields."""
        if value is None:
            return None
        if value.java_class != self.java_class:
            raise _not_for(value, self.java_class)
        return {name: column.to_arrow(value.value[name]) for name, column in self.fields.items()}

    def from_arrow(self, value: Any) -> Any:
        """Return the items."""
        if value is None:
            return None
        fields = {name: column.from_arrow(value.get(name)) for name, column in self.fields.items()}
        return Item(self.java_class, fields)

    def many(self, table: Marked, lines: I64Array) -> pa.Array:
        """Return the column of many objects."""
        right = table.of_class(lines, self.java_class)
        held = lines[right]
        if not held.size:
            return pa.nulls(len(lines), self.arrow_type)
        fields = table.parts.fields(held, self.java_class)
        columns = [column.many(table, fields[name]) for name, column in self.fields.items()]
        whole = pa.StructArray.from_arrays(columns, fields=list(self.arrow_type))
        if right.all():
            return whole
        places = np.where(right, np.cumsum(right) - 1, 0)
        return whole.take(pa.array(places, mask=~right))

    def plan(self, values: pa.Array) -> Plan:
        """Return how many objects are written at once."""
        rows = np.flatnonzero(present_mask(values))
        held = values if len(rows) == len(values) else values.take(pa.array(rows))
        names = sorted(self.fields, key=lambda name: name.encode("utf-16-be"))
        plans = [self.fields[name].plan(held.field(name)) for name in names]
        sizes = np.ones(len(values), np.int64)
        for plan in plans:
            sizes[rows] += plan.sizes

        def place(table: Placed, lines: I64Array) -> None:
            table.put(lines[rows], self.java_class)
            at = lines[rows] + 1
            for plan in plans:
                plan.place(table, at)
                at = at + plan.sizes

        return Plan(sizes, place)


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


def _boxes() -> dict[str, tuple[pa.DataType, Callable[[Any], Any], Callable[[Any], Any]]]:
    types = {"Boolean": pa.bool_(), "Byte": pa.int8(), "Short": pa.int16(), "Integer": pa.int32(),
             "Long": pa.int64(), "Float": pa.float32(), "Double": pa.float64(),
             "Character": pa.string(), "String": pa.string(), "StringBuilder": pa.string(),
             "StringBuffer": pa.string()}  # fmt: skip
    return {f"java.lang.{name}": (kind, _same, _same) for name, kind in types.items()}


_SCALARS: dict[str, tuple[pa.DataType, Callable[[Any], Any], Callable[[Any], Any]]] = {
    **_boxes(),
    "[B": (pa.binary(), _same, _same),
    "java.math.BigInteger": (pa.decimal128(DECIMAL_DIGITS, 0), _big, int),
    "java.math.BigDecimal": (pa.string(), lambda parts: decimal_text(*parts), decimal_parts),
    "java.net.URI": (pa.string(), _same, _same),
    "java.util.Currency": (pa.string(), _same, _same),
    "java.util.UUID": (pa.string(), _same, _same),
    "java.util.BitSet": (pa.list_(pa.int64()), _same, _same),
    "java.util.Locale": (
        pa.struct({name: pa.string() for name in ("language", "country", "variant")}),
        *_parts("language", "country", "variant")[1:],
    ),
    "java.util.regex.Pattern": (pa.string(), lambda parts: parts[0], lambda text: (text, 0)),
    **{
        name: (UTC_MICROS, lambda millis: EPOCH + timedelta(milliseconds=millis), _millis)
        for name in ("java.util.Date", "java.sql.Date", "java.sql.Time")
    },
    "java.sql.Timestamp": (
        UTC_MICROS,
        lambda parts: _instant(parts[0] // 1000, parts[1]),
        lambda instant: (_since(instant)[0] * 1000, _since(instant)[1]),
    ),
    "java.time.Instant": (UTC_MICROS, lambda parts: _instant(*parts), _since),
    "java.time.LocalDate": (
        pa.date32(),
        lambda parts: date(*parts),
        lambda day: (day.year, day.month, day.day),
    ),
    "java.time.LocalTime": (pa.string(), _clock, _clock_parts),
    "java.time.LocalDateTime": (MICROS, _local, _local_parts),
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
    "java.time.Duration": _parts("seconds", "nanos"),
    "java.time.Period": _parts("years", "months", "days"),
    "java.time.YearMonth": _parts("year", "month"),
    "java.time.MonthDay": _parts("month", "day"),
    "java.time.Year": (pa.int32(), lambda parts: parts[0], lambda number: (number,)),
    "java.time.ZoneOffset": (pa.int32(), lambda parts: parts[0], lambda number: (number,)),
}


_LEAST_MICROS, _MOST_MICROS = (
    (edge.replace(tzinfo=timezone.utc) - EPOCH) // timedelta(microseconds=1)
    for edge in (datetime.min, datetime.max)  # noqa: DTZ901 - Python's own bounds
)


def _many_numbers(table: Marked, lines: I64Array, column: _Scalar) -> pa.Array:
    if column.java_class == "java.lang.Float":  # Python makes a NaN quiet that is not
        bits = table.parts.number[lines] & 0x7FFFFFFF
        table.loose[lines[(bits > 0x7F800000) & (bits < 0x7FC00000)]] = True
    return table.parts.numbers(lines, column.arrow_type)


def _many_texts(table: Marked, lines: I64Array, _: _Scalar) -> pa.Array:
    return table.parts.texts(lines)


def _many_uuids(table: Marked, lines: I64Array, _: _Scalar) -> pa.Array:
    return table.parts.uuids(lines)


def _many_characters(table: Marked, lines: I64Array, column: _Scalar) -> pa.Array:
    return _each(column, table, lines, lambda line: chr(int(table.parts.number[line]) & 0xFFFF))


def _many_bytes(table: Marked, lines: I64Array, column: _Scalar) -> pa.Array:
    return _each(column, table, lines, table.parts.content)


def _many_integers(table: Marked, lines: I64Array, column: _Scalar) -> pa.Array:
    return _each(column, table, lines, table.parts.integer)


def _many_decimals(table: Marked, lines: I64Array, column: _Scalar) -> pa.Array:
    parts = table.parts

    def value(line: int) -> tuple[int, int]:
        unscaled = parts.integer(line)
        if unscaled.bit_length() > NUMBER_BITS:
            table.unfit[line] = True
            return 0, 0
        return unscaled, int(parts.number[line])

    return _each(column, table, lines, value)


def _many_clocks(table: Marked, lines: I64Array, column: _Scalar) -> pa.Array:
    number, start = table.parts.number, table.parts.start

    def value(line: int) -> tuple[int, ...]:
        clock = int(number[line])
        return clock >> 16, clock >> 8 & 0xFF, clock & 0xFF, int(start[line])

    return _each(column, table, lines, value)


def _many_durations(table: Marked, lines: I64Array, column: _Scalar) -> pa.Array:
    parts, kind = table.parts, column.arrow_type
    seconds, nanos = pa.array(parts.number[lines]), pa.array(parts.start[lines])
    null = pa.array(table.present(lines) == 0)
    return pa.StructArray.from_arrays([seconds, nanos], fields=list(kind), mask=null)


def _many_moments(table: Marked, lines: I64Array, column: _Scalar) -> pa.Array:
    """Return times from seconds, or milliseconds, and nanoseconds."""
    parts, name = table.parts, column.java_class
    whole, nanos = parts.number[lines], parts.start[lines]
    exact = np.ones(len(lines), np.bool_)
    unit = 1_000_000 if name == "java.time.Instant" else 1000
    if name in _MILLIS_ONLY:
        nanos = np.zeros_like(nanos)
    elif name == "java.sql.Timestamp":  # of whole seconds
        exact = whole % 1000 == 0
        whole = whole // 1000 * 1000
    exact &= (nanos % 1000 == 0) & (nanos >= 0) & (nanos < NANOS)
    fits = (whole >= _LEAST_MICROS // unit) & (whole <= _MOST_MICROS // unit)
    micros = np.where(fits, whole, 0) * unit + nanos // 1000
    return _marked_moments(table, lines, column.arrow_type, (micros, fits, exact))


def _marked_moments(
    table: Marked, lines: I64Array, kind: pa.DataType, found: tuple[I64Array, BoolArray, BoolArray]
) -> pa.Array:
    """Return a column of microseconds, of which some do not fit, or are not exact."""
    micros, fits, exact = found
    fits = fits & (micros >= _LEAST_MICROS) & (micros <= _MOST_MICROS)
    null = table.present(lines) == 0
    table.unfit[lines[~fits & ~null]] = True
    table.loose[lines[~exact & ~null]] = True
    return pa.array(np.where(fits, micros, 0), pa.int64(), mask=null).cast(kind)


def _days(table: Marked, lines: I64Array) -> tuple[I64Array, BoolArray]:
    """Return the days since 1970 of dates, and which of them are dates of Python."""
    year, rest = table.parts.number[lines], table.parts.start[lines]
    fits = (year >= 1) & (year <= 9999)
    months = (np.where(fits, year, 1970) - 1970) * 12 + (rest >> 8) - 1
    months = np.where(fits & (table.parts.kind[lines] != NULL), months, 0)
    first = months.astype("M8[M]").astype("M8[D]").astype(np.int64)
    days = first + np.where(fits, rest & 0xFF, 1) - 1
    fits &= days.astype("M8[D]").astype("M8[M]").astype(np.int64) == months
    return np.where(fits, days, 0), fits


def _many_dates(table: Marked, lines: I64Array, column: _Scalar) -> pa.Array:
    days, fits = _days(table, lines)
    null = table.present(lines) == 0
    table.unfit[lines[~fits & ~null]] = True
    return pa.array(days.astype(np.int32), pa.int32(), mask=null).cast(column.arrow_type)


def _many_date_times(table: Marked, lines: I64Array, column: _Scalar) -> pa.Array:
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


def _spread(lines: I64Array, first: I64Array, before: I64Array) -> I64Array:
    """Return the first line of each element of some collections.

    Args:
        lines: The line of the first element of each collection.
        first: The number of elements before those of each collection, and of all.
        before: The number of lines that all elements before each take.
    """
    spread: I64Array = np.repeat(lines - before[first[:-1]], np.diff(first)) + before[:-1]
    return spread


def _place_numbers(table: Placed, lines: I64Array, values: pa.Array) -> None:
    kind = values.type
    if pa.types.is_floating(kind):
        width = kind.bit_width // 8
        bits = fixed_values(values, f"f{width}").view(f"i{width}").astype(np.int64)
        if width == 4:  # as Python writes a NaN
            bits[(bits & 0x7FFFFFFF) > 0x7F800000] |= 0x00400000
        table.number[lines] = bits
    else:
        table.number[lines] = values.cast(pa.int64()).to_numpy(zero_copy_only=False)


def _place_texts(table: Placed, lines: I64Array, values: pa.Array) -> None:
    table.put_texts(lines, values)


def _place_characters(table: Placed, lines: I64Array, values: pa.Array) -> None:
    texts = values.to_pylist()
    if any(len(text) != 1 or ord(text) > 0xFFFF for text in texts):
        raise EncodeError("a text that is no character")
    table.number[lines] = [ord(text) for text in texts]


def _place_bytes(table: Placed, lines: I64Array, values: pa.Array) -> None:
    bounds, data = variable_values(values)
    first, last = int(bounds[0]), int(bounds[-1])
    table.put_bytes(lines, data[first:last], bounds.astype(np.int64) - first)


def _place_integers(table: Placed, lines: I64Array, values: pa.Array) -> None:
    _put_integers(table, lines, [_keep(int, value) for value in values.to_pylist()])


def _put_integers(table: Placed, lines: I64Array, numbers: list[int]) -> None:
    pieces = [
        number.to_bytes(
            (number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True
        )
        for number in numbers
    ]
    bounds = offsets_of(np.array([len(piece) for piece in pieces], np.int64))
    table.put_bytes(lines, np.frombuffer(b"".join(pieces), np.uint8), bounds)


def _place_decimals(table: Placed, lines: I64Array, values: pa.Array) -> None:
    parts = [_keep(decimal_parts, text) for text in values.to_pylist()]
    table.number[lines] = [scale for _, scale in parts]
    _put_integers(table, lines, [unscaled for unscaled, _ in parts])


def _place_uuids(table: Placed, lines: I64Array, values: pa.Array) -> None:
    halves = uuid_halves(values) if len(values) else np.empty((0, 2), np.uint64)
    if halves is None:
        raise EncodeError("a text that is no UUID")
    table.number[lines], table.start[lines] = halves.view(np.int64).T


def _micros(values: pa.Array) -> I64Array:
    return fixed_values(values, np.int64)


def _place_millis(table: Placed, lines: I64Array, values: pa.Array) -> None:
    table.number[lines] = _micros(values) // 1000


def _place_timestamps(table: Placed, lines: I64Array, values: pa.Array) -> None:
    micros = _micros(values)
    table.number[lines] = micros // 1_000_000 * 1000
    table.start[lines] = micros % 1_000_000 * 1000


def _place_instants(table: Placed, lines: I64Array, values: pa.Array) -> None:
    micros = _micros(values)
    table.number[lines], table.start[lines] = micros // 1_000_000, micros % 1_000_000 * 1000


def _put_days(table: Placed, lines: I64Array, days: I64Array) -> None:
    """Make lines dates, of days since 1970."""
    months = days.astype("M8[D]").astype("M8[M]")
    count = months.astype(np.int64)
    day = days - months.astype("M8[D]").astype(np.int64) + 1
    table.number[lines] = count // 12 + 1970
    table.start[lines] = (count % 12 + 1) << 8 | day


def _place_dates(table: Placed, lines: I64Array, values: pa.Array) -> None:
    _put_days(table, lines, fixed_values(values, np.int32).astype(np.int64))


def _place_clocks(table: Placed, lines: I64Array, values: pa.Array) -> None:
    clocks = [_keep(_clock_parts, text) for text in values.to_pylist()]
    if any(hour > 23 or minute > 59 or second > 59 for hour, minute, second, _ in clocks):
        raise EncodeError("no time of a day")
    table.number[lines] = [h << 16 | m << 8 | s for h, m, s, _ in clocks]
    table.start[lines] = [nanos for *_, nanos in clocks]


def _place_durations(table: Placed, lines: I64Array, values: pa.Array) -> None:
    seconds, nanos = values.flatten()
    if seconds.null_count or nanos.null_count:
        raise EncodeError("a duration without a part")
    found = fixed_values(nanos, np.int64)
    if (np.abs(found) >> 31).any():
        raise EncodeError("nanoseconds of more than 32 bits")
    table.number[lines], table.start[lines] = fixed_values(seconds, np.int64), found


def _plan_date_times(values: pa.Array) -> Plan:
    """Return how many times are written: a date and a time within each."""
    present = present_mask(values)
    micros = _micros(values)[present]

    def place(table: Placed, lines: I64Array) -> None:
        at = lines[present]
        table.put(at, _LOCAL_DATE_TIME)
        table.put(at + 1, "java.time.LocalDate")
        _put_days(table, at + 1, micros // 86_400_000_000)
        seconds = micros // 1_000_000 % 86_400
        clock = seconds // 3600 << 16 | seconds // 60 % 60 << 8 | seconds % 60
        table.put(at + 2, "java.time.LocalTime", clock)
        table.start[at + 2] = micros % 1_000_000 * 1000

    return Plan(np.where(present, 3, 1), place)


_LOCAL_DATE_TIME = "java.time.LocalDateTime"
_PLACED: dict[str, Callable[[Placed, I64Array, pa.Array], None]] = {
    **dict.fromkeys(NUMBERS, _place_numbers),
    **dict.fromkeys(
        ("java.lang.String", "java.lang.StringBuilder", "java.lang.StringBuffer", "java.net.URI",
         "java.util.Currency"), _place_texts,
    ),
    "java.lang.Character": _place_characters,
    "[B": _place_bytes,
    "java.math.BigInteger": _place_integers,
    "java.math.BigDecimal": _place_decimals,
    "java.util.UUID": _place_uuids,
    **dict.fromkeys(("java.util.Date", "java.sql.Date", "java.sql.Time"), _place_millis),
    "java.sql.Timestamp": _place_timestamps,
    "java.time.Instant": _place_instants,
    "java.time.LocalDate": _place_dates,
    "java.time.LocalTime": _place_clocks,
    "java.time.Duration": _place_durations,
}  # fmt: skip
_MILLIS_ONLY = ("java.util.Date", "java.sql.Date", "java.sql.Time")
_MANY: dict[str, Callable[[Marked, I64Array, _Scalar], pa.Array]] = {
    **dict.fromkeys(NUMBERS, _many_numbers),
    **dict.fromkeys(
        ("java.lang.String", "java.lang.StringBuilder", "java.lang.StringBuffer", "java.net.URI",
         "java.util.Currency"), _many_texts,
    ),
    "java.lang.Character": _many_characters,
    "[B": _many_bytes,
    "java.math.BigInteger": _many_integers,
    "java.math.BigDecimal": _many_decimals,
    "java.util.UUID": _many_uuids,
    **dict.fromkeys((*_MILLIS_ONLY, "java.sql.Timestamp", "java.time.Instant"), _many_moments),
    "java.time.LocalDate": _many_dates,
    "java.time.LocalTime": _many_clocks,
    "java.time.LocalDateTime": _many_date_times,
    "java.time.Duration": _many_durations,
}  # fmt: skip


def column_of(
    kind: JavaType, classes: Classes, within: tuple[str, ...] = (), levels: int = 1
) -> Column:
    """Return the column of a type.

    Args:
        kind: The type.
        classes: The known classes.
        within: The classes that contain it: a class that contains itself is JSON there.
        levels: The depth of the column; a deeper one than tables allow is JSON.
    """
    if levels >= COLUMN_NESTING.most:
        return JsonColumn(classes)
    if kind.name in PRIMITIVES:
        return _Primitive(_Scalar(kind.box, *_SCALARS[kind.box]))
    if kind.name in classes.messages and kind.name in classes.forms:
        return _Message(kind.name, classes.messages[kind.name])
    user = classes.users.get(kind.name)
    if kind.name in classes.enums:
        return EnumColumn(kind.name, classes)
    if user is not None and user.fields and kind.name not in within:
        form = classes.forms.get(kind.name)
        if isinstance(form, FieldForm):
            deeper = (*within, kind.name)
            fields = {
                name: column_of(field, classes, deeper, levels + 1)
                for name, field in form.fields.items()
            }
            return _Struct(kind.name, fields)
    if kind.name in _SCALARS:
        return _Scalar(kind.name, *_SCALARS[kind.name])
    if kind.name.startswith("["):
        element = JavaType(component_of(kind.name))
        return _List(kind.name, column_of(element, classes, within, levels + 1))
    nested = [column_of(argument, classes, within, levels + 1) for argument in kind.arguments]
    if len(nested) == 2 and kind.name in _MAPS:
        return _Map(_USUAL.get(kind.name, kind.name), *nested)
    usual = _USUAL.get(kind.name, kind.name)
    if len(nested) == 1 and kind.name.startswith("java.util.") and usual in classes.forms:
        return _List(usual, *nested)
    return JsonColumn(classes)
