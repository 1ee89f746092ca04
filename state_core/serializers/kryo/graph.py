"""Objects in Kryo's form: each with its class and its references.

A class is written as an id, if it is registered, or by name the first time, and then by the number
of that name. Each object, except boxes of primitives, is preceded by a mark: a new object, null, or
the number of an earlier one. In Kryo 5 enums have no such mark.

Source: `com.esotericsoftware.kryo.Kryo`, `DefaultClassResolver`, `MapReferenceResolver`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from statelake.state_core.bounds import EMPTY_ELEMENTS
from statelake.state_core.errors import EncodeError, UnsupportedFormatError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.kernels import kryo as kernels
from statelake.state_core.serializers.kryo.java_types import (
    PRIMITIVES,
    JavaType,
    UserClass,
    component_of,
)
from statelake.state_core.serializers.kryo.wire import KryoInput, KryoOutput, KryoVersion

if TYPE_CHECKING:
    from statelake.state_core.serializers.kryo.protobuf import MessageType

NULL, NEW, FIRST_REFERENCE = 0, 1, 2  # marks in front of an object
NO_CLASS, BY_NAME, FIRST_ID = 0, 1, 2  # marks in front of an object of unknown class
DEEPEST = 100
BOXES = frozenset(box for box, _ in PRIMITIVES.values())
# limits for shared objects, counted at each reference: values, and their characters and bytes
MOST_OF_A_BYTE, MOST_AT_ALL = 32, 10_000
LONG_LIMITS = (-(1 << 63), (1 << 63) - 1)
NUMBER_BITS = 14_000  # Python converts at most 4,300 digits to text
CLASS_NAME = 512
# classes with type parameters, each with the types of fields that may hold it besides its own
_TUPLE, _EITHER = "org.apache.flink.api.java.tuple.Tuple", "org.apache.flink.types.Either"
_ENTRY = "java.util.Map$Entry"
GENERIC = {
    "java.util.Optional": "",
    "java.util.concurrent.atomic.AtomicReference": "",
    "java.util.AbstractMap$SimpleEntry": _ENTRY,
    "java.util.AbstractMap$SimpleImmutableEntry": _ENTRY,
    "java.util.KeyValueHolder": _ENTRY,
    f"{_EITHER}$Left": _EITHER,
    f"{_EITHER}$Right": _EITHER,
    **{f"{_TUPLE}{count}": _TUPLE for count in range(1, 26)},
}
# the packages of Java's own classes
JDK = ("java.", "javax.", "jdk.", "sun.")
# classes with a single object in the JVM: empty collections, and offsets of quarters of an hour
EMPTY, ZONE_OFFSET, QUARTER = "java.util.Collections$Empty", "java.time.ZoneOffset", 900


class ContentStep(NamedTuple):
    """A part of content without objects, as one of the versions writes it.

    Attributes:
        codec: How it is written: a letter of `forms`.
        place: Its place among the numbers of the value.
        limits: The least and the most that it may be.
    """

    codec: str
    place: int = 0
    limits: tuple[int, int] = LONG_LIMITS


@dataclass(eq=False)
class Item:
    """An object.

    Attributes:
        java_class: The object's class, as it was written.
        value: Its value, from its form: a number, text, a list, ...; for an object with fields
            their values by name. Nested objects are items, or None for null.
        extra: Additional content of some classes: a comparator, the class of an array's elements.
    """

    java_class: str
    value: Any = None
    extra: Any = None


class Form(ABC):
    """The bytes of a class's values, behind their class and reference.

    Attributes:
        kernel: The form as kernels know it, with its operand.
    """

    kernel: tuple[int, int] = (kernels.UNKNOWN, 0)

    def steps(self, version: KryoVersion) -> tuple[ContentStep, ...]:
        """Return the steps of content without objects; empty if kernels do not know them."""
        return ()

    @abstractmethod
    def read(self, reader: ObjectReader, item: Item, arguments: tuple[JavaType, ...]) -> None:
        """Read the value of an item, whose field's type has these arguments."""

    @abstractmethod
    def write(self, writer: ObjectWriter, item: Item, arguments: tuple[JavaType, ...]) -> None:
        """Write the value of an item."""


@dataclass(frozen=True)
class Classes:
    """The known classes of a job.

    Attributes:
        forms: The forms of the known classes, by class.
        final: Classes that no class extends.
        enums: Enums.
        ids: The classes that are registered, by their ids.
        users: The classes of users.
        messages: The types of Protobuf messages.
        own: The classes for which the job registers serializers of its own.
    """

    forms: Mapping[str, Form]
    final: frozenset[str]
    enums: frozenset[str]
    ids: Mapping[int, str]
    users: Mapping[str, UserClass] = field(default_factory=dict)
    messages: Mapping[str, MessageType] = field(default_factory=dict)
    own: frozenset[str] = frozenset()

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The ids of registered classes."""
        return {name: number for number, name in self.ids.items()}

    @cached_property
    def typed(self) -> frozenset[str]:
        """The classes with type parameters that fields of users' classes give final types.

        Kryo 2.24 writes an object of these in a collection as it wrote the last one in a field.
        """
        kinds = {
            kind.name
            for user in self.users.values()
            for kind in user.fields.values()
            if any(self.is_final(argument.name) for argument in kind.arguments)
        }
        return frozenset(name for name, base in GENERIC.items() if {name, base} & kinds)

    def form_of(self, java_class: str) -> Form | None:
        """Return a class's form, also for an enum constant with a body; None if it is unknown."""
        form = self.forms.get(java_class)
        if form is None and java_class.startswith("["):
            component = component_of(java_class)
            form = self.forms["[Ljava.lang.Object;"] if component not in ("", *PRIMITIVES) else None
        return form or (self.forms.get(self.enum_of(java_class)) if "$" in java_class else None)

    def enum_of(self, java_class: str) -> str:
        """Return the enum of a class or of a constant with a body; empty if it is not an enum."""
        if java_class in self.enums:
            return java_class
        name, _, number = java_class.rpartition("$")
        return name if name in self.enums and number.isdecimal() else ""

    def is_final(self, java_class: str) -> bool:
        """Return whether a field of the class holds only that class, so that it is not written."""
        element = java_class.lstrip("[")
        if element != java_class:
            java_class = component_of(f"[{element}")
        return java_class in self.final or java_class in PRIMITIVES

    def has_references(self, java_class: str, version: KryoVersion) -> bool:
        """Return whether values of the class are numbered, and written once."""
        if java_class in BOXES:
            return False
        return version is KryoVersion.FLINK_1 or not self.enum_of(java_class)

    def remedy_for(self, java_class: str) -> str:
        """Return what to do about a class whose form is not known."""
        return OF_THE_JOB if java_class in self.own else remedy_for(java_class)


DECLARE = "declare the class in a file for --kryo"
KEEP_ANOTHER = (
    "in Flink 1, let the job keep another class in its place (types.md, Kryo, has those that are"
    " known), and take another savepoint"
)
OF_THE_JOB = (
    "the job registers a serializer of its own for it: if that is Protobuf's, give the descriptors"
    f" of its messages, --kryo FILE.pb; otherwise, {KEEP_ANOTHER}"
)
OF_OTHERS = "the serializer's snapshot is of other values than these: do not trust it"
# Java's classes that at least one of the versions does not write field by field, or whose fields
# do not say what they hold: some internal ones, too
_NOT_BY_FIELDS = re.compile(
    r".*(Exception|Error|Throwable|ThreadDeath|Warning|DataTruncation)|sun\.nio\.cs\..*"
    r"|java\.net\.Inet.*Address|java\.util\.concurrent\.atomic\.(Long|Double)(Adder|Accumulator)"
    r"|java\.text\..*Format|.*(Calendar|TimeZone)"
    r"|java\.(.*[.$])?\w*(Collection|List|Set|Map|Queue|Deque|Vector|Stack|Properties|Hashtable"
    r"|Values|View|Partition|Attributes|Aliases|Cache|Classes|Environment)"
)


def is_by_fields(java_class: str) -> bool:
    """Return whether fields tell the form of a class, as far as Java's own classes are known."""
    return not (java_class.startswith(JDK) and _NOT_BY_FIELDS.fullmatch(java_class))


def remedy_for(java_class: str) -> str:
    """Return what to do about a class whose form is not known."""
    return DECLARE if is_by_fields(java_class) else KEEP_ANOTHER


class UncertainError(UnsupportedFormatError):
    """Values that can be read in several ways."""


class ObjectReader(KryoInput):
    """A reader of objects.

    Args:
        source: The bytes.
        version: The Kryo that wrote the objects.
        classes: The known classes.
    """

    def __init__(self, source: DataInput, version: KryoVersion, classes: Classes) -> None:
        super().__init__(source, version)
        self.classes = classes
        self.items: list[Item] = []
        self.names: list[str] = []
        self.depth = 0
        self.empty = 0
        self.java_handles: list[str] = []
        self.alone: set[str] = set()
        self.typed: set[str] = set()

    def note_types(self, java_class: str, arguments: tuple[JavaType, ...]) -> None:
        """Note how an object of a class with type parameters is written.

        Kryo 2.24 writes one in a collection as the last one in a field, so that of values that have
        both nobody can tell.

        Raises:
            UncertainError: There are both in what was read.
        """
        if not arguments:
            self.alone.add(java_class)
        elif any(self.classes.is_final(argument.name) for argument in arguments):
            self.typed.add(java_class)
        if java_class in self.alone and java_class in self.typed:
            raise UncertainError(
                f"a {java_class} whose form depends on what Flink 1 wrote before, as a field of a"
                " declared class has it with type arguments, too",
                place=self.source.place,
                remedy="in Flink 1, let the job keep another class in its place, and take another"
                " savepoint",
            )

    def take_empty(self, count: int) -> None:
        """Count elements that take no bytes.

        Raises:
            OversizedError: The whole value has too many.
        """
        self.empty += count
        EMPTY_ELEMENTS.check(self.empty, self.source)

    def read_class(self) -> str | None:
        """Read a class; return None for null.

        Raises:
            UnsupportedFormatError: Its id is not registered, or its name is too long.
            CorruptSnapshotError: It refers to a name that was not read.
        """
        number = self.varint()
        if number == NO_CLASS:
            return None
        if number != BY_NAME:
            name = self.classes.ids.get(number - FIRST_ID)
            if name is None:
                raise self.unknown(f"a class with the id {number - FIRST_ID}", OF_OTHERS)
            return name
        number = self.varint()
        if number == len(self.names):
            name = self.string() or ""
            if len(name) > CLASS_NAME:
                raise self.unknown(f"a class whose name has {len(name)} characters", OF_OTHERS)
            self.names.append(name)
        elif number > len(self.names):
            raise self.source.fault(f"class name {number}, of {len(self.names)} read")
        return self.names[number]

    def class_and_object(self, arguments: tuple[JavaType, ...] = ()) -> Item | None:
        """Read an object of any class, or null."""
        java_class = self.read_class()
        return None if java_class is None else self.known(java_class, arguments)

    def part(
        self, java_class: str, arguments: tuple[JavaType, ...] = (), *, may_be_null: bool = True
    ) -> Item | None:
        """Read a part of an object: with its class, unless that is known from a type."""
        if not java_class:
            return self.class_and_object(arguments)
        return (
            self._object(java_class, arguments, may_be_null=True)
            if may_be_null
            else self.known(java_class, arguments)
        )

    def known_or_null(self, java_class: str, arguments: tuple[JavaType, ...] = ()) -> Item | None:
        """Read an object of a known class, or null."""
        return self._object(java_class, arguments, may_be_null=True)

    def known(self, java_class: str, arguments: tuple[JavaType, ...] = ()) -> Item:
        """Read an object of a known class."""
        item = self._object(java_class, arguments, may_be_null=False)
        if item is None:
            raise self.source.fault(f"null, where a {java_class} must be")
        return item

    def _object(
        self, java_class: str, arguments: tuple[JavaType, ...], *, may_be_null: bool
    ) -> Item | None:
        numbered = self.classes.has_references(java_class, self.version)
        if may_be_null or numbered:
            mark = self.varint()
            if mark == NULL:
                return None
            if mark >= FIRST_REFERENCE and (not numbered or mark - 2 >= len(self.items)):
                raise self.source.fault(f"object {mark - 2}, of {len(self.items)} read")
            if mark >= FIRST_REFERENCE:
                return self.items[mark - FIRST_REFERENCE]
        form = self.classes.form_of(java_class)
        if form is None:
            raise self.unknown(f"a value of {java_class}", self.classes.remedy_for(java_class))
        item = Item(java_class)
        if numbered:
            self.items.append(item)
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.unknown(f"objects {DEEPEST} deep in each other", KEEP_ANOTHER)
        form.read(self, item, arguments)
        self.depth -= 1
        return item

    def unknown(self, what: str, remedy: str) -> UnsupportedFormatError:
        """Return the error for what has an unknown form."""
        return UnsupportedFormatError(
            f"{what}, whose form is not known", place=self.source.place, remedy=remedy
        )


class ObjectWriter(KryoOutput):
    """A writer of objects.

    Args:
        version: The version of Kryo to write.
        classes: The known classes.
    """

    def __init__(self, version: KryoVersion, classes: Classes) -> None:
        super().__init__(version)
        self.classes = classes
        self.ids = classes.numbers
        # each written object with its number, kept so that no other object gets its identity
        self.items: dict[object, tuple[Item, int]] = {}
        self.names: dict[str, int] = {}
        self.depth = 0
        self.java_handles: list[str] = []

    def write_class(self, java_class: str | None) -> None:
        """Write a class, or null."""
        if java_class is None:
            self.varint(NO_CLASS)
            return
        number = self.ids.get(java_class)
        if number is None and self.classes.enum_of(java_class) in self.ids:
            number = self.ids[self.classes.enum_of(java_class)]
        if number is not None:
            self.varint(number + FIRST_ID)
            return
        self.varint(BY_NAME)
        if java_class in self.names:
            self.varint(self.names[java_class])
            return
        self.names[java_class] = len(self.names)
        self.varint(self.names[java_class])
        self.string(java_class, always=self.version is KryoVersion.FLINK_2)

    def class_and_object(self, item: Item | None, arguments: tuple[JavaType, ...] = ()) -> None:
        """Write an object of any class, or null."""
        self.write_class(None if item is None else item.java_class)
        if item is not None:
            self.known(item, arguments)

    def part(
        self,
        item: Item | None,
        java_class: str,
        arguments: tuple[JavaType, ...] = (),
        *,
        may_be_null: bool = True,
    ) -> None:
        """Write a part of an object: with its class, unless that is known from a type."""
        if not java_class:
            self.class_and_object(item, arguments)
        elif may_be_null or item is None:
            self.known_or_null(item, arguments)
        else:
            self.known(item, arguments)

    def known_or_null(self, item: Item | None, arguments: tuple[JavaType, ...] = ()) -> None:
        """Write an object whose class is known, or null."""
        if item is None:
            self.varint(NULL)
            return
        if not self.classes.has_references(item.java_class, self.version):
            self.varint(NEW)
        self.known(item, arguments)

    def known(self, item: Item, arguments: tuple[JavaType, ...] = ()) -> None:
        """Write an object whose class is known."""
        if self.classes.has_references(item.java_class, self.version):
            who = self._identity(item)
            if who in self.items:
                self.varint(self.items[who][1] + FIRST_REFERENCE)
                return
            self.items[who] = (item, len(self.items))
            self.varint(NEW)
        form = self.classes.form_of(item.java_class)
        if form is None:
            raise EncodeError(
                f"a value of {item.java_class}, whose form is not known",
                remedy=self.classes.remedy_for(item.java_class),
            )
        self.depth += 1
        if self.depth > DEEPEST:
            raise EncodeError(f"objects {DEEPEST} deep in each other")
        form.write(self, item, arguments)
        self.depth -= 1

    def _identity(self, item: Item) -> object:
        """Return the identity of an object; some classes have a single object in a JVM."""
        name, value = item.java_class, item.value
        if self.classes.enum_of(name):
            return self.classes.enum_of(name), value
        if name == ZONE_OFFSET and value[0] % QUARTER == 0:
            return name, value
        if name.startswith(EMPTY):
            return name
        return id(item)


def check_expanded_size(item: Item | None, size: int) -> None:
    """Refuse objects that are too large for their bytes when written without references.

    Args:
        item: The objects.
        size: The size of their bytes.

    Raises:
        UnsupportedFormatError: An object contains itself, shared ones expand too far, or a number
            has too many digits to show.
    """
    left = MOST_AT_ALL + MOST_OF_A_BYTE * size
    within: set[int] = set()

    def walk(part: object) -> None:
        nonlocal left
        left -= len(part) if isinstance(part, (str, bytes)) else 1
        if left < 0:
            raise UnsupportedFormatError("shared objects expand to too many values")
        if isinstance(part, int) and part.bit_length() > NUMBER_BITS:
            raise UnsupportedFormatError(f"a number of {part.bit_length()} bits")
        if isinstance(part, Item):
            if id(part) in within:
                raise UnsupportedFormatError(f"a {part.java_class} that contains itself")
            within.add(id(part))
            walk(part.value)
            walk(part.extra)
            within.remove(id(part))
        elif isinstance(part, (list, tuple)):
            for child in part:
                walk(child)
        elif isinstance(part, dict):
            for child in part.values():
                walk(child)

    walk(item)
