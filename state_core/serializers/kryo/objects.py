"""Objects field by field, enums, and the table of all forms.

Fields are in the order of their names. A primitive is written by itself; a field of a final class
as an object of that class or null; any other with its class.

Source: `FieldSerializer`, `ObjectField`, `ReflectField`, `EnumSerializer`; Flink's `KryoUtils`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from statelake.state_core.errors import EncodeError
from statelake.state_core.serializers.kryo.containers import CONTAINER_FORMS
from statelake.state_core.serializers.kryo.forms import SIMPLE_FORMS, TIMES, primitive
from statelake.state_core.serializers.kryo.graph import (
    BOXES,
    Classes,
    Form,
    Item,
    ObjectReader,
    ObjectWriter,
)
from statelake.state_core.serializers.kryo.java_types import PRIMITIVES, JavaType, UserClass
from statelake.state_core.serializers.kryo.protobuf import MessageForm, MessageType

ENUMS = {
    "java.time.Month": (
        "JANUARY", "FEBRUARY", "MARCH", "APRIL", "MAY", "JUNE", "JULY", "AUGUST", "SEPTEMBER",
        "OCTOBER", "NOVEMBER", "DECEMBER",
    ),
    "java.time.DayOfWeek": (
        "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY",
    ),
    "java.util.concurrent.TimeUnit": (
        "NANOSECONDS", "MICROSECONDS", "MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS",
    ),
    "java.util.Comparators$NaturalOrderComparator": ("INSTANCE",),
}  # fmt: skip
# types without fields
_EMPTY = ("java.util.Collections$ReverseComparator", "java.lang.String$CaseInsensitiveComparator",
          "java.lang.Object")  # fmt: skip
_FINAL = frozenset(
    {
        *BOXES, *TIMES, *ENUMS, "java.lang.String", "java.lang.StringBuilder", "java.net.URI",
        "java.lang.StringBuffer", "java.util.Currency", "java.util.Locale", "java.util.Optional",
        "java.util.UUID", "java.util.regex.Pattern",
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
            elif reader.classes.is_final(kind.name):
                item.value[name] = reader.known_or_null(kind.name, kind.arguments)
            else:
                java_class = reader.read_class()
                if java_class is not None:
                    item.value[name] = reader.known(java_class, kind.arguments)

    def write(self, writer: ObjectWriter, item: Item, _: tuple[JavaType, ...]) -> None:
        """Write the fields."""
        for name, kind in self.in_order:
            value = item.value[name]
            if kind.name in PRIMITIVES:
                primitive(kind.name).put(writer, value)
            elif writer.classes.is_final(kind.name):
                writer.known_or_null(value, kind.arguments)
            else:
                writer.write_class(None if value is None else value.java_class)
                if value is not None:
                    writer.known(value, kind.arguments)


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
    forms = SIMPLE_FORMS | CONTAINER_FORMS
    forms |= {name: EnumForm(constants) for name, constants in ENUMS.items()}
    forms |= {name: FieldForm({}) for name in _EMPTY}
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
        elif name in classes:  # Flink keeps its id
            continue
        classes.add(name)
        ids[number] = name
        number += 1
    final = _FINAL | {user.name for user in users.values() if user.final}
    enums = frozenset(ENUMS) | {user.name for user in users.values() if user.constants}
    return Classes(forms, final, enums, ids, users, messages)
