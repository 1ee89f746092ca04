"""Values without nested objects: numbers, text, dates and times, arrays of numbers.

Source: `DefaultSerializers`, `DefaultArraySerializers`, `TimeSerializers`, `OptionalSerializers`,
and chill's serializers, which Flink 1 registers instead.
"""

from __future__ import annotations

import uuid
from calendar import isleap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from statelake.state_core.errors import EncodeError
from statelake.state_core.kernels import kryo as kernels
from statelake.state_core.serializers.kryo.graph import (
    BOXES,
    KEEP_ANOTHER,
    LONG_LIMITS,
    ContentStep,
    Form,
    Item,
    ObjectReader,
    ObjectWriter,
)
from statelake.state_core.serializers.kryo.java_types import PRIMITIVES, JavaType
from statelake.state_core.serializers.kryo.wire import KryoVersion

OFFSET_ELSEWHERE = 127  # an offset that is not a multiple of a quarter of an hour: seconds follow
QUARTER = 900
# the least and the most of the numbers of times, as Java has them
_MONTH, _DAY, _NANO = (1, 12), (1, 31), (0, 999_999_999)
_INT, _BIT = (-(1 << 31), (1 << 31) - 1), (0, 1)
_YEAR = (-999_999_999, 999_999_999)
_DATE_LIMITS = (_YEAR, _MONTH, _DAY)
_TIME_LIMITS = ((0, 23), (0, 59), (0, 59), _NANO)
_OFFSET_LIMITS = ((-18 * 3600, 18 * 3600),)
_SECONDS = (-31_557_014_167_219_200, 31_556_889_864_403_199)  # of an `Instant`
_MONTH_DAY_LIMITS, LEAP_YEAR = (_MONTH, _DAY), 2000


@dataclass(frozen=True)
class Simple(Form):
    """A value that two functions read and write.

    Attributes:
        get: Returns the value.
        put: Writes it.
        codecs: The steps in Kryo 2.24 and in Kryo 5, as letters of `PARTS` or names of arrays;
            empty if kernels do not know them.
        limits: The least and the most of each number.
    """

    get: Callable[[ObjectReader], Any]
    put: Callable[[ObjectWriter, Any], None]
    codecs: tuple[Sequence[str], Sequence[str]] = ("", "")
    limits: tuple[tuple[int, int], ...] = ()

    @property
    def kernel(self) -> tuple[int, int]:  # type: ignore[override]  # else fixed
        """A leaf, if kernels know the steps."""
        known = all(self.codecs) and "u" not in self.codecs[0]
        return (kernels.LEAF if known else kernels.UNKNOWN), 0

    def steps(self, version: KryoVersion) -> tuple[ContentStep, ...]:
        """Return the steps; text and bytes are not counted among the numbers."""
        codecs = self.codecs[version - 1]
        limits = (*self.limits, *[LONG_LIMITS] * len(codecs))
        steps: list[ContentStep] = []
        place = 0
        for codec in codecs:
            steps.append(ContentStep(codec, place, limits[place]))
            place += codec not in WITH_BYTES
        return tuple(steps)

    def read(self, reader: ObjectReader, item: Item, _: tuple[JavaType, ...]) -> None:
        """Read the value."""
        item.value = self.get(reader)

    def write(self, writer: ObjectWriter, item: Item, _: tuple[JavaType, ...]) -> None:
        """Write the value."""
        self.put(writer, item.value)


def _less_one(reader: ObjectReader, what: str) -> int:
    """Read a length that is written as one more; 0 would be null, which has its own place."""
    count = reader.varint()
    if count == 0:
        raise reader.source.fault(f"null for {what}")
    return reader.length(what, count - 1)


def _get_bytes(reader: ObjectReader) -> bytes:
    return reader.source.read_bytes(_less_one(reader, "bytes"))


def _put_bytes(writer: ObjectWriter, value: bytes) -> None:
    writer.varint(len(value) + 1)
    writer.out.write_bytes(value)


def _get_big(reader: ObjectReader) -> int:
    data = _get_bytes(reader)
    if not data:
        raise reader.source.fault("a number without bytes")
    return int.from_bytes(data, "big", signed=True)


def integer_bytes(value: int) -> bytes:
    """Return the bytes of `BigInteger.toByteArray`."""
    bits = (value if value >= 0 else ~value).bit_length()
    return value.to_bytes(bits // 8 + 1, "big", signed=True)


WITH_BYTES = frozenset("snyS")  # parts that are bytes of their own
# the parts of values: fixed numbers, by the letters of `struct`; `i` and `j` signed ones, `+` and
# `l` rarely negative ones of 32 and 64 bits; `u` numbers of values that kernels do not read; text,
# large numbers, and bytes
_WAYS: dict[str, tuple[Callable[[ObjectReader], Any], Callable[[ObjectWriter, Any], None]]] = {
    "z": (lambda r: r.boolean(), lambda w, value: w.out.write_boolean(value)),
    "c": (lambda r: chr(int(r.fixed("H"))), lambda w, value: w.fixed("H", ord(value))),
    "b": (lambda r: r.fixed("b"), lambda w, value: w.fixed("b", value)),
    "h": (lambda r: r.fixed("h"), lambda w, value: w.fixed("h", value)),
    "f": (lambda r: r.fixed("f"), lambda w, value: w.fixed("f", value)),
    "d": (lambda r: r.fixed("d"), lambda w, value: w.fixed("d", value)),
    "q": (lambda r: r.fixed("q"), lambda w, value: w.fixed("q", value)),
    "i": (lambda r: r.zigzag(32), lambda w, value: w.zigzag(value, 32)),
    "j": (lambda r: r.zigzag(64), lambda w, value: w.zigzag(value, 64)),
    "+": (lambda r: r.signed_varint(), lambda w, value: w.varint(value)),
    "u": (lambda r: r.varint(), lambda w, value: w.varint(value)),
    "l": (lambda r: r.varlong(), lambda w, value: w.varlong(value)),
    "s": (lambda r: r.string(), lambda w, value: w.string(value)),
    "n": (_get_big, lambda w, value: _put_bytes(w, integer_bytes(value))),
    "y": (_get_bytes, _put_bytes),
}
PARTS = {
    codec: Simple(*way, (codec, codec), (_BIT,) if codec == "z" else ())
    for codec, way in _WAYS.items()
}
_OF_PRIMITIVES = {
    "boolean": "z", "byte": "b", "char": "c", "short": "h", "int": "i", "long": "j", "float": "f",
    "double": "d",
}  # fmt: skip
_TEXT, _MILLIS = PARTS["s"], PARTS["l"]


def _parts(
    older: str,
    newer: str = "",
    show: Callable[[tuple[Any, ...]], Any] = tuple,
    keep: Callable[[Any], tuple[Any, ...]] = tuple,
) -> Simple:
    """Return the form of several parts.

    Args:
        older: How Kryo 2.24 writes them.
        newer: How Kryo 5 does; empty for likewise.
        show: Returns the value of the parts.
        keep: Returns the parts of a value.
    """
    codecs = older, newer or older
    forms = [[PARTS[codec] for codec in each] for each in codecs]

    def put(writer: ObjectWriter, value: Any) -> None:
        for form, part in zip(forms[writer.version - 1], keep(value), strict=True):
            form.put(writer, part)

    return Simple(
        lambda reader: show(tuple(form.get(reader) for form in forms[reader.version - 1])),
        put,
        codecs,
    )


def primitive(name: str) -> Simple:
    """Return the form of a primitive type, which is also that of its box."""
    return PARTS[_OF_PRIMITIVES[name]]


def _array(element: Simple) -> Simple:
    codecs = ("[" + element.codecs[0][0],)

    def get(reader: ObjectReader) -> list[Any]:
        count = _less_one(reader, "elements of an array")
        return [element.get(reader) for _ in range(count)]

    def put(writer: ObjectWriter, value: list[Any]) -> None:
        writer.varint(len(value) + 1)
        for part in value:
            element.put(writer, part)

    return Simple(get, put, (codecs, codecs))


def _uuid_text(halves: tuple[int, ...]) -> str:
    high, low = (half & (1 << 64) - 1 for half in halves)
    return str(uuid.UUID(int=high << 64 | low))


def _uuid_halves(text: str) -> tuple[int, int]:
    high, low = divmod(uuid.UUID(text).int, 1 << 64)
    return high - (high >> 63 << 64), low - (low >> 63 << 64)


def _get_timestamp(reader: ObjectReader) -> tuple[int, int]:
    """Return milliseconds of whole seconds, and nanoseconds."""
    millis, nanos = reader.varlong(), reader.varint()
    return millis - (millis % 1000 if reader.version is KryoVersion.FLINK_1 else 0), nanos


def _put_timestamp(writer: ObjectWriter, value: tuple[int, int]) -> None:
    millis, nanos = value
    if not 0 <= nanos <= _NANO[1] or not LONG_LIMITS[0] <= millis <= LONG_LIMITS[1]:
        raise EncodeError(f"{value!r} is no java.sql.Timestamp")
    extra_millis = nanos // 1_000_000 if writer.version is KryoVersion.FLINK_1 else 0
    writer.varlong(millis + extra_millis)
    writer.varint(nanos)


# Java's own stream of a `Locale`: the class, which the next one of the same value refers to
_JAVA_STREAM, _REFERENCE, _TEXT_OF_JAVA, _END = b"\xac\xed\0\5", 0x71, 0x74, 0x78
_FIRST_HANDLE = 0x7E0000
_LOCALE_CLASS = (
    b"sr\0\x10java.util.Locale" + bytes.fromhex("7ef811609c30f9ec03") + b"\0\6I\0\x08hashcode"
    b"L\0\7countryt\0\x12Ljava/lang/String;L\0\nextensionsq\0~\0\1L\0\x08languageq\0~\0\1"
    b"L\0\6scriptq\0~\0\1L\0\7variantq\0~\0\1xp"
)
_LOCALE_AGAIN = b"sq\0~\0\0"
_LOCALE_HASH = b"\xff" * 4  # which is not kept


def _get_locale(reader: ObjectReader) -> tuple[str, ...]:
    """Return language, country and variant; if there are any, also script and extensions."""
    if reader.version is KryoVersion.FLINK_2:
        return tuple(reader.string() or "" for _ in range(3))
    source, handles = reader.source, reader.java_handles
    head = _LOCALE_AGAIN if handles else _JAVA_STREAM + _LOCALE_CLASS
    if source.read_bytes(len(head) + len(_LOCALE_HASH)) != head + _LOCALE_HASH:
        raise reader.unknown("a java.util.Locale as a Java object of another kind", KEEP_ANOTHER)
    handles += [""] if handles else [""] * 3  # of the class, a type and the object
    country, extensions, language, script, variant = (_get_java_text(reader) for _ in range(5))
    if source.read_unsigned_byte() != _END:
        raise source.fault("no end of a Java object")
    return language, country, variant, *((script, extensions) if script or extensions else ())


def _get_java_text(reader: ObjectReader) -> str:
    source, handles = reader.source, reader.java_handles
    kind = source.read_unsigned_byte()
    if kind == _TEXT_OF_JAVA:
        handles.append(source.read_utf())
        return handles[-1]
    handle = source.read_int() - _FIRST_HANDLE
    if kind != _REFERENCE or not 0 <= handle < len(handles):
        raise source.fault("no text of a Java object")
    return handles[handle]


def _put_locale(writer: ObjectWriter, value: tuple[str, ...]) -> None:
    if writer.version is KryoVersion.FLINK_2:
        if len(value) > 3:
            raise EncodeError(
                f"a java.util.Locale with a script or extensions, {'-'.join(filter(None, value))},"
                " which Flink 2's Kryo would lose"
            )
        for part in value:
            writer.string(part)
        return
    handles = writer.java_handles
    writer.out.write_bytes(_LOCALE_AGAIN if handles else _JAVA_STREAM + _LOCALE_CLASS)
    writer.out.write_bytes(_LOCALE_HASH)
    handles += [""] if handles else ["", "Ljava/lang/String;", ""]
    language, country, variant, script, extensions = (*value, "", "")[:5]
    for text in (country, extensions, language, script, variant):
        place = next((n for n, written in enumerate(handles) if n > 2 and written == text), None)
        if place is not None:
            writer.out.write_byte(_REFERENCE)
            writer.out.write_int(_FIRST_HANDLE + place)
            continue
        handles.append(text)
        writer.out.write_byte(_TEXT_OF_JAVA)
        writer.out.write_utf(text)
    writer.out.write_byte(_END)


def _get_class(reader: ObjectReader) -> tuple[str, bool]:
    """Return a class's name, a box's of a primitive type, and whether it is that type."""
    name = reader.read_class()
    if name is None:
        raise reader.source.fault("null for a class")
    has_flag = reader.version is KryoVersion.FLINK_1 or name in BOXES
    return name, has_flag and reader.boolean()


def _put_class(writer: ObjectWriter, value: tuple[str, bool]) -> None:
    writer.write_class(value[0])
    if writer.version is KryoVersion.FLINK_1 or value[0] in BOXES:
        writer.out.write_boolean(value[1])


def _put_built(writer: ObjectWriter, value: str) -> None:
    writer.string(value, plain=writer.version is KryoVersion.FLINK_2)


def _get_pattern(reader: ObjectReader) -> tuple[str | None, int]:
    return reader.string(), 0 if reader.version is KryoVersion.FLINK_1 else reader.varint()


def _put_pattern(writer: ObjectWriter, value: tuple[str, int]) -> None:
    writer.string(value[0])
    if writer.version is KryoVersion.FLINK_2:
        writer.varint(value[1])


def _get_bits(reader: ObjectReader) -> list[int]:
    count = reader.length("words of bits")
    return [int(reader.fixed("q")) for _ in range(count)]


def _put_bits(writer: ObjectWriter, value: list[int]) -> None:
    writer.varint(len(value))
    for word in value:
        writer.fixed("q", word)


def _get_time(reader: ObjectReader) -> tuple[int, ...]:
    """Return hour, minute, second and nanosecond; the last unit that is not 0 is inverted."""
    parts: list[int] = []
    for _ in range(3):
        part = reader.source.read_byte()
        if part < 0:
            return (*parts, ~part, *[0] * (3 - len(parts)))
        parts.append(part)
    return (*parts, reader.varint())


def _put_time(writer: ObjectWriter, value: tuple[int, ...]) -> None:
    if value[3]:
        for part in value[:3]:
            writer.out.write_byte(part)
        writer.varint(value[3])
        return
    last = max([0] + [index for index in range(3) if value[index]])
    for part in value[:last]:
        writer.out.write_byte(part)
    writer.out.write_byte(~value[last])


def _get_offset(reader: ObjectReader) -> tuple[int, ...]:
    quarters = reader.source.read_byte()
    if quarters == OFFSET_ELSEWHERE:
        return (int(reader.fixed("i")),)
    return (quarters * QUARTER,)


def _put_offset(writer: ObjectWriter, value: tuple[int, ...]) -> None:
    (seconds,) = value
    if seconds % QUARTER:
        writer.out.write_byte(OFFSET_ELSEWHERE)
        writer.fixed("i", seconds)
        return
    writer.out.write_byte(seconds // QUARTER)


def _joined(*parts: tuple[Simple, int]) -> Simple:
    """Return the form of times that are composed of others, each with a number of numbers."""

    def put(writer: ObjectWriter, value: tuple[int, ...]) -> None:
        for form, count in parts:
            form.put(writer, value[:count])
            value = value[count:]

    return Simple(lambda r: tuple(field for form, _ in parts for field in form.get(r)), put)


def _days(year: int, month: int) -> int:
    """Return the days of a month."""
    if month == 2:
        return 28 + isleap(year)
    return 30 if month in (4, 6, 9, 11) else 31


_DATE, _TIME = _parts("+bb"), Simple(_get_time, _put_time, ("", "t"))
_OFFSET = Simple(_get_offset, _put_offset)


@dataclass(frozen=True)
class _Time(Form):
    """A class of `java.time`: Kryo 5 has its own forms, Kryo 2.24 writes the fields.

    Its value is a tuple of numbers, largest unit first.

    Attributes:
        newer: The form in Kryo 5.
        older: The fields in their order, each a primitive type or a class of `java.time`.
        places: For each number of the fields, its place in the value.
        limits: The least and the most of each number of the value.
    """

    newer: Simple
    older: tuple[str, ...]
    places: tuple[int, ...]
    limits: tuple[tuple[int, int], ...]

    @property
    def kernel(self) -> tuple[int, int]:  # type: ignore[override]  # else fixed
        """A leaf, if kernels know the steps: not of days of any year, or of other classes."""
        simple = all(kind in PRIMITIVES for kind in self.older) and all(self.newer.codecs[1:])
        if not simple or self.limits == _MONTH_DAY_LIMITS:
            return kernels.UNKNOWN, 0
        return kernels.LEAF, kernels.DATED if self.limits == _DATE_LIMITS else 0

    def steps(self, version: KryoVersion) -> tuple[ContentStep, ...]:
        """Return the steps."""
        older = "".join(_OF_PRIMITIVES.get(kind, "") for kind in self.older)
        codecs: Sequence[str] = older if version is KryoVersion.FLINK_1 else self.newer.codecs[1]
        places = self.places if version is KryoVersion.FLINK_1 else range(len(self.limits))
        return tuple(
            ContentStep(codec, place, self.limits[place])
            for codec, place in zip(codecs, places, strict=False)  # a clock is all of them
        )

    def read(self, reader: ObjectReader, item: Item, arguments: tuple[JavaType, ...]) -> None:
        """Read the value."""
        if reader.version is KryoVersion.FLINK_2:
            self.newer.read(reader, item, arguments)
            return
        numbers: list[int] = []
        for kind in self.older:
            if kind in PRIMITIVES:
                numbers.append(primitive(kind).get(reader))
                continue
            within = reader.known_or_null(kind)
            if within is None or within.java_class != kind or within.value is None:
                raise reader.source.fault(f"no {kind} in a {item.java_class}")
            numbers += within.value
        value = dict(zip(self.places, numbers, strict=True))
        item.value = tuple(value[place] for place in sorted(value))

    def write(self, writer: ObjectWriter, item: Item, arguments: tuple[JavaType, ...]) -> None:
        """Write the value.

        Raises:
            EncodeError: Java has no such value, and bytes that may stand for another one.
        """
        check_time(item)
        if writer.version is KryoVersion.FLINK_2:
            self.newer.write(writer, item, arguments)
            return
        numbers = [item.value[place] for place in self.places]
        for kind in self.older:
            if kind in PRIMITIVES:
                primitive(kind).put(writer, numbers.pop(0))
                continue
            within = tuple(numbers.pop(0) for _ in range(TIMES[kind]))
            writer.known_or_null(Item(kind, within))

    def has(self, value: tuple[int, ...]) -> bool:
        """Return whether Java has such a value."""
        if len(value) != len(self.limits):
            return False
        if not all(low <= n <= high for n, (low, high) in zip(value, self.limits, strict=True)):
            return False
        if self.limits[:3] == _DATE_LIMITS:
            return value[2] <= _days(value[0], value[1])
        return self.limits != _MONTH_DAY_LIMITS or value[1] <= _days(LEAP_YEAR, value[0])


_LOCAL_DATE, _LOCAL_TIME, _ZONE_OFFSET = (
    "java.time.LocalDate",
    "java.time.LocalTime",
    "java.time.ZoneOffset",
)
_TIME_FORMS = {
    _LOCAL_DATE: _Time(_DATE, ("short", "short", "int"), (2, 1, 0), _DATE_LIMITS),
    _LOCAL_TIME: _Time(_TIME, ("byte", "byte", "int", "byte"), (0, 1, 3, 2), _TIME_LIMITS),
    "java.time.LocalDateTime": _Time(
        _joined((_DATE, 3), (_TIME, 4)),
        (_LOCAL_DATE, _LOCAL_TIME),
        tuple(range(7)),
        _DATE_LIMITS + _TIME_LIMITS,
    ),
    _ZONE_OFFSET: _Time(_OFFSET, ("int",), (0,), _OFFSET_LIMITS),
    "java.time.OffsetTime": _Time(
        _joined((_TIME, 4), (_OFFSET, 1)),
        (_ZONE_OFFSET, _LOCAL_TIME),
        (4, 0, 1, 2, 3),
        _TIME_LIMITS + _OFFSET_LIMITS,
    ),
    "java.time.OffsetDateTime": _Time(
        _joined((_DATE, 3), (_TIME, 4), (_OFFSET, 1)),
        ("java.time.LocalDateTime", _ZONE_OFFSET),
        tuple(range(8)),
        _DATE_LIMITS + _TIME_LIMITS + _OFFSET_LIMITS,
    ),
    "java.time.Instant": _Time(_parts("l+"), ("int", "long"), (1, 0), (_SECONDS, _NANO)),
    "java.time.Duration": _Time(_parts("q+"), ("int", "long"), (1, 0), (LONG_LIMITS, _NANO)),
    "java.time.Period": _Time(_parts("+++"), ("int", "int", "int"), (2, 1, 0), (_INT, _INT, _INT)),
    "java.time.Year": _Time(_parts("+"), ("int",), (0,), (_YEAR,)),
    "java.time.YearMonth": _Time(_parts("+b"), ("int", "int"), (1, 0), (_YEAR, _MONTH)),
    "java.time.MonthDay": _Time(_parts("bb"), ("int", "int"), (1, 0), _MONTH_DAY_LIMITS),
}


def check_time(item: Item) -> None:
    """Refuse a time that Java does not have.

    Raises:
        EncodeError: The item is one.
    """
    form = _TIME_FORMS.get(item.java_class)
    if form is not None and not form.has(item.value):
        raise EncodeError(f"{item.value!r} is no {item.java_class}")


# by class, the number of numbers in its value
TIMES = {name: len(form.places) for name, form in _TIME_FORMS.items()}

SIMPLE_FORMS: dict[str, Form] = {
    **{box: primitive(name) for name, (box, _) in PRIMITIVES.items()},
    **{f"[{letter}": _array(primitive(name)) for name, (_, letter) in PRIMITIVES.items()},
    **_TIME_FORMS,
    "[B": PARTS["y"],
    "java.lang.Class": Simple(_get_class, _put_class),
    "java.lang.String": _TEXT,
    "java.lang.StringBuilder": Simple(_TEXT.get, _put_built, ("S", "s")),
    "java.lang.StringBuffer": Simple(_TEXT.get, _put_built, ("S", "s")),
    "java.math.BigInteger": PARTS["n"],
    "java.math.BigDecimal": _parts("ni"),
    "java.net.InetSocketAddress": _parts("su"),
    "java.net.URI": _TEXT,
    "java.sql.Date": _MILLIS,
    "java.sql.Time": _MILLIS,
    "java.sql.Timestamp": Simple(
        _get_timestamp, _put_timestamp, ("m+", "m+"), (LONG_LIMITS, _NANO)
    ),
    "java.util.BitSet": Simple(_get_bits, _put_bits),
    "java.util.Currency": _TEXT,
    "java.util.Date": _MILLIS,
    "java.util.GregorianCalendar": _parts("slzuuj"),
    "java.util.Locale": Simple(_get_locale, _put_locale),
    "java.util.UUID": _parts("jj", "qq", _uuid_text, _uuid_halves),
    "java.util.regex.Pattern": Simple(_get_pattern, _put_pattern),
    "sun.util.calendar.ZoneInfo": _TEXT,
}


def decimal_text(unscaled: int, scale: int) -> str:
    """Return the text of `BigDecimal.toString`."""
    digits = tuple(map(int, str(abs(unscaled))))
    return str(Decimal((int(unscaled < 0), digits, -scale)))


def decimal_parts(text: str) -> tuple[int, int]:
    """Return the unscaled number and the scale of a `BigDecimal`'s text."""
    sign, digits, exponent = Decimal(text).as_tuple()
    if not isinstance(exponent, int):
        raise EncodeError(f"{text} is no number")
    if not -(1 << 31) <= -exponent < 1 << 31:
        raise EncodeError(f"{text[:200]} has a scale of more than 32 bits")
    unscaled = int("".join(map(str, digits)))
    return -unscaled if sign else unscaled, -exponent
