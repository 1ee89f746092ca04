"""Collections, maps, arrays of objects, and wrappers of one object.

Kryo 2.24 writes the class of each element, unless a field's type arguments give it and it is final.
Kryo 5 writes it once if all elements have the same class.

Source: `CollectionSerializer`, `MapSerializer`, `DefaultSerializers`, `ObjectArraySerializer`,
`OptionalSerializers`, `ImmutableCollectionsSerializers`; chill's `ArraysAsListSerializer` and
Flink 1's `PriorityQueueSerializer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from statelake.state_core.errors import EncodeError
from statelake.state_core.kernels import kryo as kernels
from statelake.state_core.serializers.kryo.graph import (
    DECLARE,
    KEEP_ANOTHER,
    Form,
    Item,
    ObjectReader,
    ObjectWriter,
)
from statelake.state_core.serializers.kryo.java_types import JavaType, component_of
from statelake.state_core.serializers.kryo.wire import KryoVersion

ELEMENTS = "elements"
AVRO_ARRAY = "org.apache.avro.generic.GenericData$Array"


def _known(reader: ObjectReader | ObjectWriter, arguments: tuple[JavaType, ...], at: int) -> str:
    """Return the class of elements from a field's type; empty if it is not final."""
    if len(arguments) <= at or not reader.classes.is_final(arguments[at].name):
        return ""
    return arguments[at].name


def _inner(version: KryoVersion, arguments: tuple[JavaType, ...], at: int) -> tuple[JavaType, ...]:
    """Return the type arguments of the elements, which only Kryo 5 passes on."""
    if version is KryoVersion.FLINK_1 or len(arguments) <= max(at, 0):
        return ()
    return arguments[at].arguments


@dataclass(frozen=True)
class _CountedForm(Form):
    """Parts behind their number.

    Attributes:
        code: The form's number in kernels.
        sorted: Whether a comparator precedes the parts, kept in `extra`: in Kryo 2.24, in Kryo 5.
        nulls: Whether Kryo 5 allows null.
        typed: Whether Kryo 2.24 uses a field's type arguments.
    """

    code: ClassVar[int]
    sorted: tuple[bool, bool] = (False, False)
    nulls: bool = True
    typed: bool = True

    @property
    def kernel(self) -> tuple[int, int]:  # type: ignore[override]  # else fixed
        """The number, with these attributes as flags."""
        flags = sum(is_so * kernels.SORTED << place for place, is_so in enumerate(self.sorted))
        flags |= kernels.WITHOUT_NULL * (not self.nulls) | kernels.UNTYPED * (not self.typed)
        return self.code, flags


class CollectionForm(_CountedForm):
    """A collection: its value is a list."""

    code = kernels.COLLECTION

    def read(self, reader: ObjectReader, item: Item, arguments: tuple[JavaType, ...]) -> None:
        """Read the elements."""
        known = _known(reader, arguments, 0)
        inner = _inner(reader.version, arguments, -1)
        if reader.version is KryoVersion.FLINK_1:
            self._read_older(reader, item, known if self.typed else "")
            return
        if known and not self.nulls:
            flag, count = False, reader.varint()
        else:
            flag, count = reader.flagged()
        if count == 0:
            raise reader.source.fault("null for a collection")
        count -= 1
        if self.sorted[1]:
            item.extra = reader.class_and_object()
        item.value = []
        if count == 0:
            return
        can_be_null = flag
        if not known and flag:
            known = reader.read_class() or ""
            if not known:
                reader.take_empty(count)
                item.value = [None] * count
                return
            can_be_null = reader.boolean() if self.nulls else False
        for _ in range(reader.length(ELEMENTS, count)):
            item.value.append(reader.part(known, inner, may_be_null=can_be_null))

    def _read_older(self, reader: ObjectReader, item: Item, known: str) -> None:
        if self.sorted[0]:
            item.extra = reader.class_and_object()
        item.value = []
        for _ in range(reader.length(ELEMENTS)):
            item.value.append(reader.part(known))

    def write(self, writer: ObjectWriter, item: Item, arguments: tuple[JavaType, ...]) -> None:
        """Write the elements."""
        elements: list[Item | None] = item.value
        known = _known(writer, arguments, 0)
        inner = _inner(writer.version, arguments, -1)
        if writer.version is KryoVersion.FLINK_1:
            self._write_older(writer, item, known if self.typed else "")
            return
        null = None in elements
        if null and not self.nulls:
            raise _null_in(item)
        can_be_null = null
        if not elements:
            writer.varint(1)
        elif known and not self.nulls:
            writer.varint(len(elements) + 1)
        elif known:
            writer.flagged(null, len(elements) + 1)
        else:
            classes = {element.java_class for element in elements if element is not None}
            writer.flagged(len(classes) < 2, len(elements) + 1)
            if len(classes) < 2:
                known = next(iter(classes), "null")
        if self.sorted[1]:
            writer.class_and_object(item.extra)
        if not elements:
            return
        if known and not _known(writer, arguments, 0):
            writer.write_class(None if known == "null" else known)
            if known == "null":
                return
            if self.nulls:
                writer.out.write_boolean(null)
        for element in elements:
            writer.part(element, known, inner, may_be_null=can_be_null)

    def _write_older(self, writer: ObjectWriter, item: Item, known: str) -> None:
        if self.sorted[0]:
            writer.class_and_object(item.extra)
        writer.varint(len(item.value))
        for element in item.value:
            writer.part(element, known)


class MapForm(_CountedForm):
    """A map: its value is a list of pairs."""

    code = kernels.MAP

    def read(self, reader: ObjectReader, item: Item, arguments: tuple[JavaType, ...]) -> None:
        """Read the entries."""
        older = reader.version is KryoVersion.FLINK_1
        if older and self.sorted[0]:
            item.extra = reader.class_and_object()
        count = reader.varint()
        if not older:
            if count == 0:
                raise reader.source.fault("null for a map")
            count -= 1
            if self.sorted[1]:
                item.extra = reader.class_and_object()
        item.value = []
        for _ in range(reader.length("entries", count)):
            pair = [self._read_part(reader, arguments, at) for at in (0, 1)]
            item.value.append(tuple(pair))

    def _read_part(
        self, reader: ObjectReader, arguments: tuple[JavaType, ...], at: int
    ) -> Item | None:
        known, inner = _known(reader, arguments, at), _inner(reader.version, arguments, at)
        nulls = self.nulls or reader.version is KryoVersion.FLINK_1
        return reader.part(known, inner, may_be_null=nulls)

    def write(self, writer: ObjectWriter, item: Item, arguments: tuple[JavaType, ...]) -> None:
        """Write the entries."""
        older = writer.version is KryoVersion.FLINK_1
        if older and self.sorted[0]:
            writer.class_and_object(item.extra)
        writer.varint(len(item.value) + (0 if older else 1))
        if not older and self.sorted[1]:
            writer.class_and_object(item.extra)
        if not (older or self.nulls) and any(None in pair for pair in item.value):
            raise _null_in(item)
        for pair in item.value:
            for at, part in enumerate(pair):
                known, inner = _known(writer, arguments, at), _inner(writer.version, arguments, at)
                writer.part(part, known, inner, may_be_null=self.nulls or older)


def _null_in(item: Item) -> EncodeError:
    """Return the error for null in a collection that Kryo 5 writes without."""
    return EncodeError(
        f"a {item.java_class} with null in it, as of Stream.toList(), which Flink 2's Kryo can't"
        " write",
        remedy="in Flink 1, let the job keep an ArrayList in its place, and take another savepoint",
    )


class ArrayForm(Form):
    """An array of objects: its value is a list."""

    def read(self, reader: ObjectReader, item: Item, arguments: tuple[JavaType, ...]) -> None:
        """Read the elements."""
        final = _final_component(reader, item)
        count = reader.varint()
        if count == 0:
            raise reader.source.fault("null for an array")
        item.value = []
        for _ in range(reader.length(ELEMENTS, count - 1)):
            item.value.append(reader.part(final))

    def write(self, writer: ObjectWriter, item: Item, arguments: tuple[JavaType, ...]) -> None:
        """Write the elements."""
        final = _final_component(writer, item)
        writer.varint(len(item.value) + 1)
        for element in item.value:
            writer.part(element, final)


def _final_component(reader: ObjectReader | ObjectWriter, item: Item) -> str:
    """Return the class of an array's elements, if it is final, as arrays of any type are."""
    component = component_of(item.java_class)
    return component if component.startswith("[") or reader.classes.is_final(component) else ""


class _AsList(CollectionForm):
    """`Arrays.asList`: chill writes the class of the array's elements, kept in `extra`."""

    code = kernels.AS_LIST

    def _read_older(self, reader: ObjectReader, item: Item, _: str) -> None:
        count = reader.length(ELEMENTS)
        item.extra = reader.read_class()
        item.value = [reader.class_and_object() for _ in range(count)]

    def _write_older(self, writer: ObjectWriter, item: Item, _: str) -> None:
        writer.varint(len(item.value))
        writer.write_class(item.extra or "java.lang.Object")
        for element in item.value:
            writer.class_and_object(element)


@dataclass(frozen=True)
class _FixedObjects(Form):
    """A class that contains a fixed number of objects, each with its class; its value is a list."""

    count: int

    @property
    def kernel(self) -> tuple[int, int]:  # type: ignore[override]  # else fixed
        """So many objects."""
        return kernels.SINGLE, self.count

    def read(self, reader: ObjectReader, item: Item, _types: tuple[JavaType, ...]) -> None:
        """Read the objects."""
        item.value = [reader.class_and_object() for _ in range(self.count)]
        if self.count == 2:
            item.value = [tuple(item.value)]

    def write(self, writer: ObjectWriter, item: Item, _types: tuple[JavaType, ...]) -> None:
        """Write the objects."""
        _check_parts(item, 1 if self.count == 2 else self.count)
        for part in item.value[0] if self.count == 2 else item.value:
            writer.class_and_object(part)


class _Optional(_FixedObjects):
    """`Optional`: Kryo 2.24 writes its field, whose class is known from a field's type."""

    def read(self, reader: ObjectReader, item: Item, arguments: tuple[JavaType, ...]) -> None:
        """Read the object."""
        if reader.version is KryoVersion.FLINK_1:
            reader.note_types(item.java_class, arguments)
        item.value = [reader.part(_known_older(reader, arguments))]

    def write(self, writer: ObjectWriter, item: Item, arguments: tuple[JavaType, ...]) -> None:
        """Write the object."""
        _check_parts(item, 1)
        writer.part(item.value[0], _known_older(writer, arguments))


def _known_older(coder: ObjectReader | ObjectWriter, arguments: tuple[JavaType, ...]) -> str:
    """Return the class of an Optional's object in Kryo 2.24; empty if it is written."""
    return _known(coder, arguments, 0) if coder.version is KryoVersion.FLINK_1 else ""


class AvroArrayForm(Form):
    """An array of Avro's as Flink 1 registers it: it is read as an `ArrayList`, without schema."""

    def read(self, reader: ObjectReader, item: Item, arguments: tuple[JavaType, ...]) -> None:
        """Read the elements.

        Raises:
            UnsupportedFormatError: Flink 2 wrote it, which writes Avro's bytes.
        """
        if reader.version is KryoVersion.FLINK_2:
            raise reader.unknown(f"a value of {item.java_class}", KEEP_ANOTHER)
        item.java_class = f"{_UTIL}ArrayList"
        _COLLECTION.read(reader, item, arguments)

    def write(self, writer: ObjectWriter, item: Item, _types: tuple[JavaType, ...]) -> None:
        """Refuse to write one, as none is read."""
        raise EncodeError(f"a value of {item.java_class}, whose schema is not known")


class EnumSetForm(Form):
    """A set of constants of an enum: its value is a list of them, and `extra` the enum's class."""

    def read(self, reader: ObjectReader, item: Item, _types: tuple[JavaType, ...]) -> None:
        """Read the constants."""
        item.extra = reader.read_class()
        form = self._form(reader, item)
        if form is None:
            raise reader.unknown(f"a set of the enum {item.extra}", DECLARE)
        item.value = []
        for _number in range(reader.length(ELEMENTS)):
            constant = Item(item.extra)
            form.read(reader, constant, ())
            item.value.append(constant)

    def write(self, writer: ObjectWriter, item: Item, _types: tuple[JavaType, ...]) -> None:
        """Write the constants."""
        form = self._form(writer, item)
        if form is None:
            raise EncodeError(f"a set of the enum {item.extra}, whose constants are not declared")
        writer.write_class(item.extra)
        writer.varint(len(item.value))
        for constant in item.value:
            form.write(writer, constant, ())

    @staticmethod
    def _form(coder: ObjectReader | ObjectWriter, item: Item) -> Form | None:
        return coder.classes.forms.get(coder.classes.enum_of(item.extra or ""))


class _Empty(Form):
    """A class without content, which takes no bytes; its value is an empty list."""

    kernel = (kernels.EMPTY, 0)

    def read(self, _reader: ObjectReader, item: Item, _types: tuple[JavaType, ...]) -> None:
        """Read nothing."""
        item.value = []

    def write(self, writer: ObjectWriter, item: Item, _types: tuple[JavaType, ...]) -> None:
        """Write nothing."""
        _check_parts(item, 0)


def _check_parts(item: Item, count: int) -> None:
    """Refuse an object with another number of parts than its class has."""
    if len(item.value) != count:
        raise EncodeError(f"a {item.java_class} of {len(item.value)} parts, which has {count}")


_COLLECTION, _MAP = CollectionForm(), MapForm()
_IN_BOTH = (True, True)
_FIXED, _FIXED_MAP = CollectionForm(nulls=False), MapForm(nulls=False)
_UTIL = "java.util."
_IMMUTABLE = f"{_UTIL}ImmutableCollections$"
CONTAINER_FORMS: dict[str, Form] = {
    "[Ljava.lang.Object;": ArrayForm(),
    **{
        f"{_UTIL}{name}": _COLLECTION
        for name in (
            "ArrayList", "LinkedList", "ArrayDeque", "HashSet", "LinkedHashSet", "Vector", "Stack",
            "concurrent.CopyOnWriteArrayList", "concurrent.CopyOnWriteArraySet",
            "concurrent.ConcurrentLinkedQueue", "concurrent.ConcurrentLinkedDeque",
            "concurrent.ConcurrentSkipListSet", "concurrent.LinkedBlockingDeque",
            "concurrent.LinkedBlockingQueue", "concurrent.LinkedTransferQueue",
            "concurrent.PriorityBlockingQueue",
        )
    },
    **{
        f"{_UTIL}{name}": _MAP
        for name in (
            "HashMap", "LinkedHashMap", "Hashtable", "IdentityHashMap", "Properties",
            "WeakHashMap", "concurrent.ConcurrentHashMap",
        )
    },
    f"{_UTIL}TreeSet": CollectionForm(_IN_BOTH),
    f"{_UTIL}TreeMap": MapForm(_IN_BOTH),
    f"{_UTIL}concurrent.ConcurrentSkipListMap": MapForm((False, True)),
    f"{_UTIL}Arrays$ArrayList": _AsList(typed=False),
    f"{_UTIL}PriorityQueue": CollectionForm(_IN_BOTH, typed=False),
    f"{_UTIL}Collections$EmptyList": _Empty(),
    f"{_UTIL}Collections$EmptySet": _Empty(),
    f"{_UTIL}Collections$EmptyMap": _Empty(),
    f"{_UTIL}Collections$SingletonList": _FixedObjects(1),
    f"{_UTIL}Collections$SingletonSet": _FixedObjects(1),
    f"{_UTIL}Collections$SingletonMap": _FixedObjects(2),
    f"{_UTIL}Optional": _Optional(1),
    AVRO_ARRAY: AvroArrayForm(),
    f"{_UTIL}RegularEnumSet": EnumSetForm(),
    f"{_UTIL}JumboEnumSet": EnumSetForm(),
    **{f"{_IMMUTABLE}{name}": _FIXED for name in ("ListN", "List12", "SetN", "Set12")},
    **{f"{_IMMUTABLE}{name}": _FIXED_MAP for name in ("MapN", "Map1")},
}  # fmt: skip
