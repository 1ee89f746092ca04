"""Objects field by field, enums, and the table of all forms.

Fields are in the order of their names. A primitive is written by itself; a field of a final class
as an object of that class or null; any other with its class.

Source: `FieldSerializer`, `ObjectField`, `ReflectField`, `EnumSerializer`; Flink's `KryoUtils`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, datetime, timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from statelake.state_core.errors import EncodeError
from statelake.state_core.kernels import kryo as kernels
from statelake.state_core.serializers.kryo.containers import CONTAINER_FORMS
from statelake.state_core.serializers.kryo.forms import SIMPLE_FORMS, TIMES, primitive
from statelake.state_core.serializers.kryo.graph import (
    BOXES,
    GENERIC,
    ZONE_OFFSET,
    Classes,
    ContentStep,
    Form,
    Item,
    ObjectReader,
    ObjectWriter,
)
from statelake.state_core.serializers.kryo.java_types import (
    PRIMITIVES,
    JavaType,
    UserClass,
    parse_java_type,
)
from statelake.state_core.serializers.kryo.protobuf import MessageForm, MessageType
from statelake.state_core.serializers.kryo.wire import KryoVersion

ENUMS = {
    "java.time.Month": (
        "JANUARY", "FEBRUARY", "MARCH", "APRIL", "MAY", "JUNE", "JULY", "AUGUST", "SEPTEMBER",
        "OCTOBER", "NOVEMBER", "DECEMBER",
    ),
    "java.time.DayOfWeek": (
        "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY",
    ),
    "java.time.temporal.ChronoUnit": (
        "NANOS", "MICROS", "MILLIS", "SECONDS", "MINUTES", "HOURS", "HALF_DAYS", "DAYS", "WEEKS",
        "MONTHS", "YEARS", "DECADES", "CENTURIES", "MILLENNIA", "ERAS", "FOREVER",
    ),
    "java.util.concurrent.TimeUnit": (
        "NANOSECONDS", "MICROSECONDS", "MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS",
    ),
    "java.util.Comparators$NaturalOrderComparator": ("INSTANCE",),
    "java.math.RoundingMode": (
        "UP", "DOWN", "CEILING", "FLOOR", "HALF_UP", "HALF_DOWN", "HALF_EVEN", "UNNECESSARY",
    ),
    "org.apache.flink.types.RowKind": ("INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE"),
}  # fmt: skip
# types without fields
_EMPTY = ("java.util.Collections$ReverseComparator", "java.lang.String$CaseInsensitiveComparator",
          "java.lang.Object")  # fmt: skip
_FINAL = frozenset(
    {
        *BOXES, *TIMES, *ENUMS, "java.lang.Class", "java.lang.String", "java.lang.StringBuilder",
        "java.lang.StringBuffer", "java.math.MathContext", "java.net.URI", "java.net.URL",
        "java.time.ZoneRegion", "java.time.ZonedDateTime", "java.util.Currency",
        "java.util.KeyValueHolder", "java.util.Locale", "java.util.Optional",
        "java.util.OptionalDouble", "java.util.OptionalInt", "java.util.OptionalLong",
        "java.util.UUID", "java.util.regex.Pattern", "org.apache.flink.types.Row",
    }
)  # fmt: skip
_PRIMITIVE_IDS = ("Integer", "String", "Float", "Boolean", "Byte", "Character", "Short", "Long",
                  "Double")  # fmt: skip
FIRST_CHILL, FIRST_OF_JOB = 73, 85
_CHILL = (
    "java.util.Arrays$ArrayList", "java.util.BitSet", "java.util.PriorityQueue",
    "java.util.regex.Pattern", "java.sql.Date", "java.sql.Time", "java.sql.Timestamp",
    "java.net.URI", "java.net.InetSocketAddress", "java.util.UUID", "java.util.Locale",
    "java.text.SimpleDateFormat",
)  # fmt: skip
_BUILT_IN_IDS = MappingProxyType(
    {number: f"java.lang.{name}" for number, name in enumerate(_PRIMITIVE_IDS)}
    | {FIRST_CHILL + number: name for number, name in enumerate(_CHILL)}
)


@dataclass(frozen=True)
class EnumForm(Form):
    """An enum: its value is the constant's name.

    Attributes:
        constants: The constants, in order.
    """

    constants: tuple[str, ...]
    kernel = (kernels.ENUM, 0)

    def steps(self, _: KryoVersion) -> tuple[ContentStep, ...]:
        """Return the only one."""
        return (ContentStep("+", 0, (1, len(self.constants))),)

    def read(self, reader: ObjectReader, item: Item, _: tuple[JavaType, ...]) -> None:
        """Read the constant."""
        number = reader.varint()
        if not 0 < number <= len(self.constants):
            raise reader.source.fault(
                f"constant {number - 1} of {item.java_class}, which has {len(self.constants)}",
                remedy="declare all constants of the enum, in order",
            )
        item.value = self.constants[number - 1]

    def write(self, writer: ObjectWriter, item: Item, _: tuple[JavaType, ...]) -> None:
        """Write the constant."""
        if item.value not in self.constants:
            raise EncodeError(f"{item.value!r} is no constant of {item.java_class}")
        writer.varint(self.constants.index(item.value) + 1)


def in_java_order(names: Iterable[str]) -> list[str]:
    """Return names in the order of Java's strings."""
    return sorted(names, key=lambda name: name.encode("utf-16-be"))


@dataclass(frozen=True)
class FieldForm(Form):
    """An object with fields: its value has theirs by name, numbers and text for primitives.

    Attributes:
        fields: The type of each field.
    """

    fields: Mapping[str, JavaType]

    @cached_property
    def in_order(self) -> list[tuple[str, JavaType]]:
        """The fields in the order in which they are written."""
        return [(name, self.fields[name]) for name in in_java_order(self.fields)]

    def read(self, reader: ObjectReader, item: Item, _: tuple[JavaType, ...]) -> None:
        """Read the fields."""
        item.value = dict.fromkeys(self.fields)
        for name, kind in self.in_order:
            if kind.name in PRIMITIVES:
                item.value[name] = primitive(kind.name).get(reader)
                continue
            final = reader.classes.is_final(kind.name)
            if final and kind.arguments and kind.name in GENERIC:  # also of null
                reader.note_types(kind.name, kind.arguments)
            item.value[name] = reader.part(kind.name if final else "", kind.arguments)

    def write(self, writer: ObjectWriter, item: Item, _: tuple[JavaType, ...]) -> None:
        """Write the fields."""
        for name, kind in self.in_order:
            value = item.value[name]
            if kind.name in PRIMITIVES:
                primitive(kind.name).put(writer, value)
            else:
                final = writer.classes.is_final(kind.name)
                writer.part(value, kind.name if final else "", kind.arguments)


@dataclass(frozen=True)
class GenericForm(FieldForm):
    """An object with fields of its type parameters, which a field's type may tell.

    Attributes:
        parameters: The number of the type parameter of each such field.
    """

    parameters: Mapping[str, int]

    def read(self, reader: ObjectReader, item: Item, arguments: tuple[JavaType, ...]) -> None:
        """Read the fields."""
        if reader.version is KryoVersion.FLINK_1:
            reader.note_types(item.java_class, arguments)
        self.typed(arguments).read(reader, item, ())

    def write(self, writer: ObjectWriter, item: Item, arguments: tuple[JavaType, ...]) -> None:
        """Write the fields."""
        self.typed(arguments).write(writer, item, ())

    def typed(self, arguments: tuple[JavaType, ...]) -> FieldForm:
        """Return the form with the types that are known."""
        known = {
            name: JavaType(arguments[number].name)
            for name, number in self.parameters.items()
            if number < len(arguments)
        }
        return FieldForm({**self.fields, **known})


@dataclass(frozen=True)
class RenewedForm(FieldForm):
    """An object whose fields Kryo 2.24 writes, and for which Kryo 5 has a form of its own.

    Attributes:
        get: Returns the values of the fields.
        put: Writes them.
    """

    get: Callable[[ObjectReader], dict[str, Any]]
    put: Callable[[ObjectWriter, dict[str, Any]], None]

    def read(self, reader: ObjectReader, item: Item, arguments: tuple[JavaType, ...]) -> None:
        """Read the fields."""
        if reader.version is KryoVersion.FLINK_2:
            item.value = self.get(reader)
        else:
            super().read(reader, item, arguments)

    def write(self, writer: ObjectWriter, item: Item, arguments: tuple[JavaType, ...]) -> None:
        """Write the fields.

        Raises:
            EncodeError: Kryo 5 has no form for them.
        """
        if writer.version is KryoVersion.FLINK_2:
            self.put(writer, item.value)
        else:
            super().write(writer, item, arguments)


def _optional(number: str, fixed: str, empty: float) -> RenewedForm:
    """Return the form of an `OptionalInt` and the like."""

    def get(reader: ObjectReader) -> dict[str, Any]:
        present = reader.boolean()
        return {"isPresent": present, "value": reader.fixed(fixed) if present else empty}

    def put(writer: ObjectWriter, value: dict[str, Any]) -> None:
        writer.out.write_boolean(value["isPresent"])
        if value["isPresent"]:
            writer.fixed(fixed, value["value"])

    fields = {"isPresent": JavaType("boolean"), "value": JavaType(number)}
    return RenewedForm(fields, get, put)


def _get_zone(reader: ObjectReader) -> dict[str, Any]:
    return {"id": Item("java.lang.String", reader.string())}


def _put_zone(writer: ObjectWriter, value: dict[str, Any]) -> None:
    writer.string(_text_in(value, "id"))


def _text_in(value: dict[str, Any], name: str) -> str | None:
    item = value[name]
    return None if item is None else str(item.value)


def _get_zoned(reader: ObjectReader) -> dict[str, Any]:
    local = Item(_LOCAL)
    SIMPLE_FORMS[_LOCAL].read(reader, local, ())
    name = reader.string() or ""
    zone = zone_item(name)
    offset = zone if zone.java_class == ZONE_OFFSET else Item(ZONE_OFFSET, (_offset(local, name),))
    return {"dateTime": local, "offset": offset, "zone": zone}


def _put_zoned(writer: ObjectWriter, value: dict[str, Any]) -> None:
    local, offset, zone = (value[name] for name in ("dateTime", "offset", "zone"))
    classes = [None if part is None else part.java_class for part in (local, offset, zone)]
    if classes[:2] != [_LOCAL, ZONE_OFFSET] or classes[2] not in (ZONE_OFFSET, ZONE_REGION):
        raise EncodeError("a java.time.ZonedDateTime without one of its parts")
    name = zone_id(zone)
    if _offset(local, name) != offset.value[0]:
        raise EncodeError(
            f"a java.time.ZonedDateTime of {name} at {offset_id(offset.value[0])}, an offset that"
            " Flink 2's Kryo does not keep: it would read the same time of day at"
            f" {offset_id(_offset(local, name))}"
        )
    SIMPLE_FORMS[_LOCAL].write(writer, local, ())
    writer.string(name)


def _offset(local: Item, zone: str) -> int:
    """Return the offset in seconds that Java gives a time of day in a zone: the earlier of two.

    Raises:
        EncodeError: The zone is not known here.
    """
    match = _FIXED_ZONE.fullmatch(zone)
    if zone and match is not None:
        sign, *parts = match.groups()
        hours, minutes, seconds = (int(part or 0) for part in parts)
        seconds += 3600 * hours + 60 * minutes
        return -seconds if sign == "-" else seconds
    year, month, day, hour, minute, second, _ = local.value
    if not MINYEAR <= year <= MAXYEAR:  # the rules of a zone are the same each 400 years
        year = MINYEAR if year < MINYEAR else 2000 + year % 400
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=ZoneInfo(zone))
        offset = moment.utcoffset()
    except (KeyError, OSError, ValueError, OverflowError):
        offset = None
    if offset is None:
        raise EncodeError(
            f"a java.time.ZonedDateTime of {zone}, a zone that is not known here",
            remedy="install the package tzdata",
        )
    return offset // timedelta(seconds=1)


def _get_url(reader: ObjectReader) -> dict[str, Any]:
    match = _URL.fullmatch(reader.string() or "")
    if match is None:
        raise reader.source.fault("no java.net.URL")
    protocol, authority, file, ref = match.groups()
    host, _, port = (authority or "").rpartition("@")[2].partition(":")
    texts = {"protocol": protocol, "host": host, "file": file, "authority": authority, "ref": ref}
    fields = {
        name: None if text is None else Item("java.lang.String", text)
        for name, text in texts.items()
    }
    number = int(port) if port.isdecimal() and len(port) < PORT else -1
    return {**fields, "port": number, "hashCode": -1}


def _put_url(writer: ObjectWriter, value: dict[str, Any]) -> None:
    protocol, authority, file, ref = (
        _text_in(value, name) for name in ("protocol", "authority", "file", "ref")
    )
    if protocol is None:
        raise EncodeError("a java.net.URL without a protocol")
    text = f"{protocol}:" + (f"//{authority}" if authority else "") + (file or "")
    writer.string(text + ("" if ref is None else f"#{ref}"))


def offset_id(seconds: int) -> str:
    """Return the id of a `ZoneOffset`."""
    if seconds == 0:
        return "Z"
    hours, rest = divmod(abs(seconds), 3600)
    text = f"{'-' if seconds < 0 else '+'}{hours:02}:{rest // 60:02}"
    return f"{text}:{rest % 60:02}" if rest % 60 else text


def zone_id(zone: Item) -> str:
    """Return the id of a `ZoneId`."""
    if zone.java_class == ZONE_OFFSET:
        return offset_id(zone.value[0])
    return _text_in(zone.value, "id") or ""


def zone_item(name: str) -> Item:
    """Return the `ZoneId` of an id."""
    if name[:1] in ("Z", "+", "-") and _FIXED_ZONE.fullmatch(name):
        return Item(ZONE_OFFSET, (_offset(Item(_LOCAL), name),))
    return Item(ZONE_REGION, {"id": Item("java.lang.String", name)})


def _objects(**fields: str) -> FieldForm:
    return FieldForm({name: parse_java_type(kind) for name, kind in fields.items()})


def _generic(parameters: Mapping[str, int], **fields: str) -> GenericForm:
    names = {**dict.fromkeys(parameters, "Object"), **fields}
    return GenericForm(_objects(**names).fields, parameters)


PORT = 6  # so many digits no port has
_LOCAL, ZONE_REGION = "java.time.LocalDateTime", "java.time.ZoneRegion"
_FIXED_ZONE = re.compile(r"Z|(?:UTC|GMT|UT)?(?:([+-])(\d\d):(\d\d)(?::(\d\d))?)?")
_URL = re.compile(r"([^:/?#]+):(?://([^/?#]+))?([^#]*)(?:#(.*))?", re.DOTALL)
_ATOMIC, _FLINK = "java.util.concurrent.atomic.Atomic", "org.apache.flink."
_PAIR = _generic({"key": 0, "value": 1})
# Jackson's values of JSON, of the user and of Flink: the types of their only field
_JACKSON = "com.fasterxml.jackson.databind."
_JSON_VALUES = {
    "Boolean": "boolean", "Int": "int", "Long": "long", "Double": "double", "Float": "float",
    "Short": "short", "Text": "String", "Decimal": "BigDecimal", "BigInteger": "BigInteger",
}  # fmt: skip


def _json_nodes(package: str) -> dict[str, FieldForm]:
    """Return the forms of Jackson's classes, which are the same in both versions."""
    node, of = f"{package}node.", f"{package}node.JsonNodeFactory"
    return {
        of: _objects(_cfgBigDecimalExact="boolean"),
        f"{node}NullNode": FieldForm({}),
        f"{node}ArrayNode": _objects(_children=f"List<{package}JsonNode>", _nodeFactory=of),
        f"{node}ObjectNode": _objects(
            _children=f"LinkedHashMap<String, {package}JsonNode>", _nodeFactory=of
        ),
        **{f"{node}{name}Node": _objects(_value=kind) for name, kind in _JSON_VALUES.items()},
    }


# classes of the JDK and of Flink with fields
OBJECT_FORMS: dict[str, FieldForm] = {
    **{name: FieldForm({}) for name in _EMPTY},
    "java.util.OptionalInt": _optional("int", "i", 0),
    "java.util.OptionalLong": _optional("long", "q", 0),
    "java.util.OptionalDouble": _optional("double", "d", math.nan),
    ZONE_REGION: RenewedForm({"id": JavaType("java.lang.String")}, _get_zone, _put_zone),
    "java.time.ZonedDateTime": RenewedForm(
        {
            "dateTime": JavaType(_LOCAL),
            "offset": JavaType(ZONE_OFFSET),
            "zone": JavaType("java.time.ZoneId"),
        },
        _get_zoned,
        _put_zoned,
    ),
    "java.net.URL": RenewedForm(
        _objects(
            protocol="String", host="String", port="int", file="String", authority="String",
            ref="String", hashCode="int",
        ).fields,
        _get_url,
        _put_url,
    ),
    f"{_ATOMIC}Boolean": _objects(value="int"),
    f"{_ATOMIC}Integer": _objects(value="int"),
    f"{_ATOMIC}Long": _objects(value="long"),
    f"{_ATOMIC}Reference": _generic({"value": 0}),
    "java.util.AbstractMap$SimpleEntry": _PAIR,
    "java.util.AbstractMap$SimpleImmutableEntry": _PAIR,
    "java.util.KeyValueHolder": _PAIR,
    "java.util.IntSummaryStatistics": _objects(count="long", sum="long", min="int", max="int"),
    "java.util.LongSummaryStatistics": _objects(count="long", sum="long", min="long", max="long"),
    "java.util.DoubleSummaryStatistics": _objects(
        count="long", sum="double", sumCompensation="double", simpleSum="double", min="double",
        max="double",
    ),
    "java.math.MathContext": _objects(precision="int", roundingMode="java.math.RoundingMode"),
    **{
        f"{_FLINK}api.java.tuple.Tuple{count}": _generic({f"f{n}": n for n in range(count)})
        for count in range(26)
    },
    f"{_FLINK}types.Either$Left": _generic({"value": 0}, right=f"{_FLINK}types.Either$Right"),
    f"{_FLINK}types.Either$Right": _generic({"value": 1}, left=f"{_FLINK}types.Either$Left"),
    f"{_FLINK}types.Row": _objects(
        kind=f"{_FLINK}types.RowKind", fieldByPosition="Object[]",
        fieldByName="Map<String, Object>", positionByName="LinkedHashMap<String, Integer>",
    ),
    f"{_FLINK}streaming.api.windowing.windows.TimeWindow": _objects(start="long", end="long"),
    **_json_nodes(_JACKSON),
    **_json_nodes(f"{_FLINK}shaded.jackson2.{_JACKSON}"),
}  # fmt: skip
# all classes whose form needs no declaration
KNOWN_FORMS: Mapping[str, Form] = MappingProxyType(
    {
        **SIMPLE_FORMS,
        **CONTAINER_FORMS,
        **OBJECT_FORMS,
        **{name: EnumForm(constants) for name, constants in ENUMS.items()},
    }
)


def classes_of(
    registered: Iterable[tuple[str, bool]],
    users: Mapping[str, UserClass],
    messages: Mapping[str, MessageType] = MappingProxyType({}),
) -> Classes:
    """Return the known classes of a job.

    Args:
        registered: The classes that its snapshot registers, in order, and whether each has its own
            serializer, whose form is not known.
        users: The classes that a user has declared, by name.
        messages: The types of Protobuf messages that a user has declared, by their classes; their
            own serializer is taken for chill's.
    """
    forms = dict(KNOWN_FORMS)
    own: set[str] = set()
    for user in users.values():
        forms[user.name] = EnumForm(user.constants) if user.constants else FieldForm(user.fields)
    ids = dict(_BUILT_IN_IDS)
    classes = set(ids.values())
    number = FIRST_OF_JOB
    for given, custom in registered:
        name = JavaType(given).box
        if name in messages:
            forms[name] = MessageForm()
        elif custom:
            forms.pop(name, None)
            own.add(name)
        elif name in classes:  # Flink keeps its id
            continue
        classes.add(name)
        ids[number] = name
        number += 1
    final = _FINAL | {user.name for user in users.values() if user.final}
    enums = frozenset(ENUMS) | {user.name for user in users.values() if user.constants}
    return Classes(forms, final, enums, ids, users, messages, frozenset(own))
