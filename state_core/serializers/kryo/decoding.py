"""The decoder of a class that Kryo writes, and the version of Kryo.

A snapshot of Flink 1 and one of Flink 2 describe a `KryoSerializer` in the same bytes, but the
values differ. The user declares the version, in a file for `--kryo`; without it nothing is decoded.
The snapshot itself takes precedence, if it determines the version: by the serializer of Avro's
arrays, if a job has Avro, and by the mark of values that were rewritten here.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from statelake.state_core.errors import (
    CorruptSnapshotError,
    EncodeError,
    IncompatibleError,
    StateError,
    UnknownEndError,
)
from statelake.state_core.files.java_stream import read_java_stream
from statelake.state_core.files.wire import DataInput
from statelake.state_core.serializers.framework import plugins
from statelake.state_core.serializers.framework.opaque_values import Decoder, writer
from statelake.state_core.serializers.kryo.columns import column_of
from statelake.state_core.serializers.kryo.graph import (
    NEW,
    Classes,
    Item,
    ObjectReader,
    ObjectWriter,
    UncertainError,
    check_expanded_size,
    is_by_fields,
    remedy_for,
)
from statelake.state_core.serializers.kryo.java_types import (
    JavaType,
    UserClass,
    component_of,
    parse_java_type,
)
from statelake.state_core.serializers.kryo.objects import ENUMS, KNOWN_FORMS, classes_of
from statelake.state_core.serializers.kryo.protobuf import MessageType, message_types
from statelake.state_core.serializers.kryo.scalars import ScalarColumn
from statelake.state_core.serializers.kryo.tables import ClassTable
from statelake.state_core.serializers.kryo.wire import KryoVersion

# types that hold values of well-known classes, but are never a value's class
_INTERFACES = frozenset(
    f"java.util.{name}"
    for name in ("Collection", "List", "Set", "Map", "SortedMap", "SortedSet", "Queue", "Deque",
                 "NavigableMap", "NavigableSet", "Calendar", "EnumSet", "TimeZone")
) | {"java.time.ZoneId"}  # fmt: skip
_ANYTHING = frozenset({"java.lang.Object", "java.io.Serializable", "java.lang.Comparable"})
_EXCEPTION = re.compile(r".*(Exception|Error|Throwable)")
_KEYS = ("flink", "classes", "types")
_OF_CLASS = ("fields", "enum", "final")


class _Declared:
    """The declarations of users in this process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset the declarations."""
        self.classes: dict[str, UserClass] = {}
        self.types: dict[str, JavaType] = {}
        self.messages: dict[str, MessageType] = {}
        self.version: KryoVersion | None = None


_declared = _Declared()
plugins.forget_with(lambda: _declared.forget())  # noqa: PLW0108 - whichever it is then


def declare_classes(declared: Mapping[str, Any], place: str = "") -> None:
    """Declare a user's classes that Kryo writes field by field, and enums.

    Args:
        declared: The declaration: `flink`, 1 or 2, the version that wrote the values; `classes`, by
            binary name
            `{fields: {name: type}}` or `{enum: [constants]}`, each with `final: true` if no class
            extends it; `types`, by a state's class its type with arguments, such as
            `java.util.List: List<Long>`.
        place: The place of the declaration, for messages.

    Raises:
        EncodeError: The declaration does not have that form.
    """
    wrong = [key for key in declared if key not in _KEYS]
    if wrong:
        allowed = f"it may have {', '.join(_KEYS)}"
        raise EncodeError(f"{wrong[0]!r} is not known", place=place, remedy=allowed)
    flink = declared.get("flink")
    if flink is None:
        raise EncodeError(
            "the Flink that wrote the values is not given",
            place=place,
            remedy="say `flink: 1` or `flink: 2`",
        )
    if isinstance(flink, bool) or flink not in (1, 2):
        raise EncodeError(f"flink: {flink!r} is neither 1 nor 2", place=place)
    if _declared.version not in (None, flink):
        raise EncodeError(f"flink: {flink}, and another file says otherwise", place=place)
    classes = {
        name: _class(str(name), fields, place)
        for name, fields in _mapping(declared, "classes", place).items()
    }
    types = {
        name: _type(text, f"{place}, types: {name}".removeprefix(", "))
        for name, text in _mapping(declared, "types", place).items()
    }
    _declared.classes.update(classes)
    _declared.types.update(types)
    _declared.version = KryoVersion(flink)
    plugins.note_change()


def declare_messages(descriptors: bytes, place: str = "") -> None:
    """Declare the Protobuf messages that Kryo writes with chill's `ProtobufSerializer`.

    Args:
        descriptors: What `protoc --include_imports --descriptor_set_out=FILE` has written.
        place: The file, for messages.

    Raises:
        EncodeError: It is no such set, or it lacks an import.
    """
    _declared.messages.update(message_types(descriptors, place))
    plugins.note_change()


def declared_version() -> KryoVersion | None:
    """Return the version of Flink that wrote the values, as a user declared it; None if not."""
    return _declared.version


def _mapping(declared: Mapping[str, Any], key: str, place: str) -> Mapping[str, Any]:
    there = declared.get(key) or {}
    if not isinstance(there, Mapping):
        raise EncodeError(f"`{key}` is no mapping by names of classes", place=place)
    return there


def _class(name: str, declared: Any, place: str) -> UserClass:
    place = f"{place}, classes: {name}".removeprefix(", ")
    form = "give it `fields: {name: type}`, or `enum: [constants]`, and `final: true` if it is"
    if not isinstance(declared, Mapping) or ("fields" in declared) == ("enum" in declared):
        raise EncodeError("neither fields nor constants, or both", place=place, remedy=form)
    wrong = [key for key in declared if key not in _OF_CLASS]
    final = declared.get("final", "enum" in declared)
    if wrong or not isinstance(final, bool):
        problem = f"{wrong[0]!r} is not known" if wrong else f"final: {final!r} is no boolean"
        raise EncodeError(problem, place=place, remedy=form)
    _check_own(name, place, enum="enum" in declared)
    if "enum" in declared:
        constants = declared["enum"]
        if (
            not isinstance(constants, list)
            or not constants
            or not all(isinstance(constant, str) for constant in constants)
        ):
            raise EncodeError("`enum` is no list of names", place=place, remedy=form)
        return UserClass(name, {}, tuple(constants), final)
    fields = _mapping(declared, "fields", place)
    if not fields:
        raise EncodeError("no fields are given", place=place, remedy=form)
    return UserClass(
        name,
        {str(field): _type(kind, f"{place}, {field}") for field, kind in fields.items()},
        (),
        final,
    )


def _check_own(name: str, place: str, *, enum: bool) -> None:
    """Refuse the fields of a class that both versions of Flink do not write by them.

    Raises:
        EncodeError: It is such a class.
    """
    if name in KNOWN_FORMS and not (enum and name in ENUMS):
        raise EncodeError(
            "its form is known, and is not the same in Flink 1 and 2",
            place=place,
            remedy="leave it out of the file",
        )
    if not enum and not is_by_fields(name):
        raise EncodeError(
            "Kryo does not write it by its fields, so that what follows it would be wrong",
            place=place,
            remedy=remedy_for(name),
        )


def _type(text: Any, place: str) -> JavaType:
    if not isinstance(text, str):
        raise EncodeError(f"{text!r} is no Java type", place=place, remedy="write it as in Java")
    try:
        return parse_java_type(text)
    except EncodeError as error:
        raise error.within(place) from error


@lru_cache(maxsize=64)  # each part of each piece of a table has the same
def _known(registered: tuple[tuple[str, bool], ...], _changes: int) -> tuple[Classes, ClassTable]:
    """Return the known classes of a job, and the same as kernels know them."""
    classes = classes_of(registered, dict(_declared.classes), dict(_declared.messages))
    return classes, ClassTable(classes)


class KryoValues:
    """The values of a state whose serializer is `KryoSerializer`.

    Args:
        registered: The classes that its snapshot registers, in order, each with whether it has its
            own serializer.
        version: The Kryo that wrote the values.
        recorded: Whether the version comes from the snapshot, and not from a user.
    """

    def __init__(
        self, registered: Iterable[tuple[str, bool]], version: KryoVersion, *, recorded: bool
    ) -> None:
        self.classes, self.table = _known(tuple(registered), plugins.changes())
        self.version = version
        self.recorded = recorded
        self._alone: set[str] = set()
        self._typed: set[str] = set()

    def read(self, data: bytes | memoryview) -> Item | None:
        """Return the value of exactly these bytes.

        Raises:
            IncompatibleError: The bytes are of the other version.
            StateError: The bytes can't be parsed.
        """
        try:
            return self._read(data, self.version)
        except UncertainError:
            raise
        except StateError:
            self._check_other(data)
            raise

    def _read(self, data: bytes | memoryview, version: KryoVersion) -> Item | None:
        source = DataInput(data, "value of Kryo")
        return self.read_next(source, version, alone=True)

    def _check_other(self, data: bytes | memoryview) -> None:
        """Refuse a wrong version, with which edited values would be written for another Flink.

        Raises:
            IncompatibleError: The bytes are valid in the other version.
        """
        (other,) = (version for version in KryoVersion if version is not self.version)
        try:
            self._read(data, other)
        except StateError:
            return
        who, remedy = "was declared", f"say `flink: {other.value}` in the file for --kryo"
        if self.recorded:
            who, remedy = "the snapshot says", "do not trust it: its serializer and values disagree"
        raise IncompatibleError(
            f"a value of Kryo's makes sense as Flink {other.value} writes it, and not as Flink"
            f" {self.version.value}, which {who}",
            remedy=remedy,
        )

    def read_next(
        self, source: DataInput, version: KryoVersion, *, alone: bool = False
    ) -> Item | None:
        """Return the next value.

        Args:
            source: The bytes.
            version: The Kryo that wrote them.
            alone: Whether nothing may follow it.

        Raises:
            StateError: The value can't be parsed.
        """
        reader = ObjectReader(source, version, self.classes)
        reader.alone, reader.typed = self._alone, self._typed
        try:
            item = reader.class_and_object()
            if alone and source.remaining:
                raise source.fault(f"{source.remaining} bytes behind a value")
        except CorruptSnapshotError as error:
            met = {item.java_class for item in reader.items} & self.classes.users.keys()
            if not met:
                raise
            remedy = (
                f"see whether {', '.join(sorted(met))} is declared as the job has it: all fields,"
                " their types, and `final: true` if no class can extend it; or the file is damaged"
            )
            raise type(error)(error.problem, place=error.place, remedy=remedy) from error
        return item

    def write(self, item: Item | None, version: KryoVersion) -> bytes:
        """Return the bytes of a value.

        Raises:
            EncodeError: The value can't be written.
        """
        writer = ObjectWriter(version, self.classes)
        writer.class_and_object(item)
        return writer.out.to_bytes()


class KryoDecoder(Decoder):
    """The decoder of a state's values that Kryo writes.

    Args:
        values: The reader and writer of the values.
        kind: The type of the values.
    """

    def __init__(self, values: KryoValues, kind: JavaType) -> None:
        column = column_of(kind, values.classes)
        self.kind = kind
        self.values = values
        self.column = column
        self.arrow_type: pa.DataType = column.arrow_type
        self.declared = _digest(values, kind, column)

    def decode(self, data: bytes) -> Any:
        """Return the value, or None for bytes that can't be parsed, which then stay."""
        try:
            return self.show(self.values.read(data), len(data))
        except IncompatibleError:
            raise
        except StateError:
            return None

    def show(self, item: Item | None, size: int) -> Any:
        """Return an object of `size` bytes as the column has it; None if it can't hold it."""
        try:
            check_expanded_size(item, size)
            return self.column.to_arrow(item)
        except StateError:
            return None

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a value.

        Raises:
            EncodeError: The value can't be written.
        """
        try:
            return self.values.write(self.column.from_arrow(value), self.values.version)
        except (
            ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error,
        ) as error:  # fmt: skip
            raise EncodeError(
                f"{str(value)[:200]!r} can't be written as {self.kind} ({error})"
            ) from error


class _MeasuringDecoder(KryoDecoder):
    """A decoder of values that can be nested, since all their parts are known."""

    def standing_last(self) -> KryoDecoder:
        """Return a decoder that takes all bytes, and so also reads values of unknown form."""
        return KryoDecoder(self.values, self.kind)

    def length(self, data: memoryview) -> int:
        """Return the length of the value at the start."""
        source = DataInput(data, "value of Kryo")
        try:
            self.values.read_next(source, self.values.version)
        except StateError as error:
            raise CorruptSnapshotError(
                error.problem,
                place=error.place,
                remedy="correct the class in the file for --kryo, or leave it out of it: its values"
                " are then carried as bytes",
            ) from error
        return source.position


class ExceptionEnds(Decoder):
    """Finds the end of an exception, which both Flinks have Kryo write as a Java object.

    Args:
        values: The reader of its class.
    """

    arrow_type = pa.binary()

    def __init__(self, values: KryoValues) -> None:
        self.values = values

    def decode(self, data: bytes) -> bytes:
        """Return the bytes as they are."""
        return data

    def length(self, data: memoryview) -> int:
        """Return the length of the exception, or null, at the start.

        Raises:
            UnknownEndError: It is not written as a Java object.
        """
        source = DataInput(data, "exception of Kryo's")
        reader = ObjectReader(source, self.values.version, self.values.classes)
        try:
            java_class = reader.read_class()
            if java_class is not None:
                if reader.varint() != NEW:
                    raise source.fault(f"no new object, where a {java_class} must be")
                read_java_stream(source)
        except StateError as error:
            raise UnknownEndError(
                f"{error.problem}, so that the end of this exception is not known",
                place=error.place,
                remedy=error.remedy,
            ) from error
        return source.position


def exception_ends(
    java_class: str, registered: Iterable[tuple[str, bool]], version: KryoVersion | None
) -> ExceptionEnds | None:
    """Return what finds the ends of a class that is an exception by its name; None for others.

    Args:
        java_class: The class.
        registered: The registered classes, as in `KryoValues`.
        version: As of `nested_decoder`.
    """
    version = _version(version)
    if version is None or not _EXCEPTION.fullmatch(java_class):
        return None
    return ExceptionEnds(KryoValues(registered, version, recorded=True))


def kryo_decoder(
    java_class: str, registered: Iterable[tuple[str, bool]], version: KryoVersion | None
) -> KryoDecoder | None:
    """Return the decoder of a state's class; None without a sufficient declaration.

    Args:
        java_class: The class.
        registered: The registered classes, as in `KryoValues`.
        version: The version from the snapshot, which takes precedence over users' declarations.
    """
    declared = _declared.version
    if declared is None and java_class in _declared.messages and writer():
        declared = KryoVersion(writer())
    if declared is None:
        return None
    values = KryoValues(registered, version or declared, recorded=version is not None)
    classes = values.classes
    if not _is_known(java_class, classes):
        return None
    kind = _kind_of(java_class)
    closed = column_of(kind, classes).closed
    return (_MeasuringDecoder if closed else KryoDecoder)(values, kind)


def nested_decoder(
    java_class: str, registered: Iterable[tuple[str, bool]], version: KryoVersion | None
) -> KryoDecoder | None:
    """Return the decoder of a part of another type; None if its class or version is not known.

    No declaration is needed: the Flink that wrote the whole snapshot is known in most cases.

    Args:
        java_class: The class.
        registered: The registered classes, as in `KryoValues`.
        version: The version from the serializer's own snapshot, which takes precedence.
    """
    version = _version(version)
    if version is None:
        return None
    values = KryoValues(registered, version, recorded=True)
    if java_class not in _ANYTHING and not _is_known(java_class, values.classes):
        return None
    return KryoDecoder(values, _kind_of(java_class))


def _version(recorded: KryoVersion | None) -> KryoVersion | None:
    """Return the version of a part of another type: of its snapshot, as declared, or of Flink."""
    return recorded or _declared.version or (KryoVersion(writer()) if writer() else None)


def _kind_of(java_class: str) -> JavaType:
    return _declared.types.get(java_class, JavaType(java_class))


def _digest(values: KryoValues, kind: JavaType, column: ScalarColumn) -> str:
    """Return eight digits of all declarations that determine a type's values."""
    users = values.classes.users
    reached: dict[str, UserClass] = {}
    todo = [kind] if column.closed else [JavaType(name) for name in users]
    reached_parts: list[JavaType] = []
    while todo:
        part = todo.pop()
        reached_parts.append(part)
        todo += part.arguments
        name = component_of("[" + part.name.lstrip("[")) if "[" in part.name else part.name
        if name in users and name not in reached:
            reached[name] = users[name]
            todo += users[name].fields.values()
    classes = [
        (user.name, sorted(user.fields.items()), user.constants, user.final)
        for _, user in sorted(reached.items())
    ]
    messages = values.classes.messages
    known = {part.name for part in reached_parts} if column.closed else set(messages)
    digests = sorted(messages[name].digest for name in known if name in messages)
    described = repr((values.version.value, kind, classes, *digests))
    return hashlib.sha256(described.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _is_known(java_class: str, classes: Classes) -> bool:
    if java_class in _ANYTHING:
        return bool(_declared.classes)
    if java_class in _INTERFACES or java_class in ENUMS:
        return True
    return classes.form_of(java_class) is not None
