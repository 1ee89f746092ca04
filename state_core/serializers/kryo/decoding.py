"""The decoder of a class that Kryo writes, and which Kryo wrote its bytes.

A snapshot of Flink 1 and one of Flink 2 describe a `KryoSerializer` in the same bytes, but the
values differ. Which of them it was is said by the user, or by the serializer of Avro's arrays where
a job has Avro; if by neither, a value is read as both: if only one makes sense, or both come to the
same, that is it. A value of which both make sense stays bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from state_core.errors import CorruptSnapshotError, EncodeError, IncompatibleError, StateError
from state_core.files.wire import DataInput
from state_core.serializers.framework import plugins
from state_core.serializers.kryo.columns import Column, column_of
from state_core.serializers.kryo.graph import Classes, Item, ObjectReader, ObjectWriter, check_tree
from state_core.serializers.kryo.java_types import JavaType, UserClass, parse_java_type
from state_core.serializers.kryo.objects import ENUMS, classes_of
from state_core.serializers.kryo.wire import KryoVersion
from state_core.serializers.opaque.decoders import Decoder

__all__ = ["KryoDecoder", "KryoValues", "declare_classes", "kryo_decoder", "kryo_values"]

# types of which no value is, that hold values of well-known classes
_INTERFACES = frozenset(
    f"java.util.{name}"
    for name in ("Collection", "List", "Set", "Map", "SortedMap", "SortedSet", "Queue", "Deque",
                 "NavigableMap", "NavigableSet")
)  # fmt: skip
_ANYTHING = frozenset({"java.lang.Object", "java.io.Serializable", "java.lang.Comparable"})
_KEYS = ("flink", "classes", "types")
_OF_CLASS = ("fields", "enum", "final")


class _Declared:
    """What users have declared in this process."""

    def __init__(self) -> None:
        self.classes: dict[str, UserClass] = {}
        self.types: dict[str, JavaType] = {}
        self.version: KryoVersion | None = None


_declared = _Declared()


def declare_classes(said: Mapping[str, Any], place: str = "") -> None:
    """Declare classes of a user that Kryo writes field by field, and enums.

    Args:
        said: `flink`, 1 or 2: which Flink wrote what is read; `classes`, by binary name
            `{fields: {name: type}}` or `{enum: [constants]}`, each with `final: true` where no
            class extends it; `types`, by a state's class its type with arguments, such as
            `java.util.List: List<Long>`.
        place: Where it is said, for messages.

    Raises:
        EncodeError: It is not of that form.
    """
    wrong = [key for key in said if key not in _KEYS]
    if wrong:
        known = f"it may have {', '.join(_KEYS)}"
        raise EncodeError(f"{wrong[0]!r} is not known", place=place, remedy=known)
    flink = said.get("flink")
    if flink not in (None, 1, 2):
        raise EncodeError(f"flink: {flink!r} is neither 1 nor 2", place=place)
    classes = {
        name: _class(str(name), one, place)
        for name, one in _mapping(said, "classes", place).items()
    }
    types = {
        name: _type(one, f"{place}, types: {name}".removeprefix(", "))
        for name, one in _mapping(said, "types", place).items()
    }
    _declared.classes.update(classes)
    _declared.types.update(types)
    if flink is not None:
        _declared.version = KryoVersion(flink)
    plugins.note_change()


def _mapping(said: Mapping[str, Any], key: str, place: str) -> Mapping[str, Any]:
    there = said.get(key) or {}
    if not isinstance(there, Mapping):
        raise EncodeError(f"`{key}` is no mapping by names of classes", place=place)
    return there


def _class(name: str, said: Any, place: str) -> UserClass:
    place = f"{place}, classes: {name}".removeprefix(", ")
    form = "give it `fields: {name: type}`, or `enum: [constants]`, and `final: true` if it is"
    if not isinstance(said, Mapping) or ("fields" in said) == ("enum" in said):
        raise EncodeError("it has neither fields nor constants, or both", place=place, remedy=form)
    wrong = [key for key in said if key not in _OF_CLASS]
    final = said.get("final", "enum" in said)
    if wrong or not isinstance(final, bool):
        problem = f"{wrong[0]!r} is not known" if wrong else f"final: {final!r} is no boolean"
        raise EncodeError(problem, place=place, remedy=form)
    if "enum" in said:
        constants = said["enum"]
        if not isinstance(constants, list) or not all(
            isinstance(constant, str) for constant in constants
        ):
            raise EncodeError("`enum` is no list of names", place=place, remedy=form)
        return UserClass(name, {}, tuple(constants), final)
    fields = _mapping(said, "fields", place)
    if not fields:
        raise EncodeError("it has no fields", place=place, remedy=form)
    return UserClass(
        name,
        {str(one): _type(kind, f"{place}, {one}") for one, kind in fields.items()},
        (),
        final,
    )


def _type(said: Any, place: str) -> JavaType:
    if not isinstance(said, str):
        raise EncodeError(f"{said!r} is no Java type", place=place, remedy="write it as in Java")
    try:
        return parse_java_type(said)
    except EncodeError as error:
        raise error.within(place) from error


class KryoValues:
    """The values of a state whose serializer is `KryoSerializer`.

    Args:
        registered: The classes that its snapshot registers, in order, each with whether it has a
            serializer of its own.
        version: Which Kryo wrote them; None if nothing says so.
    """

    def __init__(self, registered: Iterable[tuple[str, bool]], version: KryoVersion | None) -> None:
        self.classes = classes_of(registered, _declared.classes)
        self.version = version

    def read(self, data: bytes | memoryview) -> tuple[Item | None, KryoVersion]:
        """Return the value of exactly these bytes, and which Kryo wrote them.

        Raises:
            IncompatibleError: They are of the other version than the one that was declared.
            StateError: They are not understood, or as both versions in two ways.
        """
        if self.version is not None:
            try:
                return self._read(data, self.version), self.version
            except StateError:
                self._check_other(data, self.version)
                raise
        found: list[tuple[Item | None, KryoVersion]] = []
        refused: StateError | None = None
        for version in KryoVersion:
            try:
                found.append((self._read(data, version), version))
            except StateError as error:  # noqa: PERF203 - of two
                refused = refused or error
        if refused is not None and not found:
            raise refused
        if len(found) > 1 and not _alike(found[0][0], found[1][0]):
            raise EncodeError(
                "a value of Kryo's that makes sense as Flink 1 and as Flink 2 writes it",
                remedy="say `flink: 1` or `flink: 2` in a file for --kryo",
            )
        return found[0]

    def _read(self, data: bytes | memoryview, version: KryoVersion) -> Item | None:
        source = DataInput(data, "value of Kryo")
        item = self.read_next(source, version)
        if source.remaining:
            raise source.fault(f"{source.remaining} bytes behind a value")
        return item

    def _check_other(self, data: bytes | memoryview, version: KryoVersion) -> None:
        """Refuse a declaration that is wrong: what is edited would be written for another Flink.

        Raises:
            IncompatibleError: The bytes make sense as the other version.
        """
        (other,) = (one for one in KryoVersion if one is not version)
        try:
            self._read(data, other)
        except StateError:
            return
        raise IncompatibleError(
            f"a value of Kryo's makes sense as Flink {other.value} writes it, and not as Flink"
            f" {version.value}, which was declared",
            remedy=f"say `flink: {other.value}` in the file for --kryo",
        )

    def read_next(self, source: DataInput, version: KryoVersion) -> Item | None:
        """Return the value that comes next.

        Raises:
            StateError: It is not understood.
        """
        return ObjectReader(source, version, self.classes).class_and_object()

    def write(self, item: Item | None, version: KryoVersion) -> bytes:
        """Return the bytes of a value.

        Raises:
            EncodeError: It can't be written.
        """
        writer = ObjectWriter(version, self.classes)
        writer.class_and_object(item)
        return writer.out.to_bytes()


def _alike(one: Item | None, other: Item | None) -> bool:
    """Return whether two values say the same."""
    pairs: list[tuple[Any, Any]] = [(one, other)]
    met: set[tuple[int, int]] = set()
    while pairs:
        left, right = pairs.pop()
        if type(left) is not type(right):
            return False
        if isinstance(left, Item):
            if (id(left), id(right)) not in met:
                met.add((id(left), id(right)))
                if left.java_class != right.java_class:
                    return False
                pairs.append((left.value, right.value))
        elif isinstance(left, (list, tuple)):
            if len(left) != len(right):
                return False
            pairs += zip(left, right, strict=True)
        elif isinstance(left, dict):
            pairs += [(left[name], right[name]) for name in left]
        elif repr(left) != repr(right):  # NaN is like NaN
            return False
    return True


class KryoDecoder(Decoder):
    """The decoder of a state's values that Kryo writes.

    Args:
        values: What reads and writes them.
        column: What they are in Arrow.
    """

    def __init__(self, values: KryoValues, column: Column) -> None:
        self.values = values
        self.column = column
        self.arrow_type: pa.DataType = column.arrow_type

    def decode(self, data: bytes) -> Any:
        """Return the value, or None for bytes that are not understood, which then stay."""
        try:
            item, _ = self.values.read(data)
            check_tree(item, len(data))
            return self.column.shown(item)
        except IncompatibleError:
            raise
        except StateError:
            return None

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a value.

        Raises:
            EncodeError: It can't be written, or nothing says for which Flink.
        """
        if self.values.version is None:
            raise EncodeError(
                "a value of Kryo's, and nothing says whether Flink 1 or Flink 2 is to read it",
                remedy="say `flink: 1` or `flink: 2` in a file for --kryo",
            )
        return self.values.write(self.column.kept(value), self.values.version)


class _MeasuringDecoder(KryoDecoder):
    """One whose values can stand inside others, since all that they may have within is known."""

    def length(self, data: memoryview) -> int:
        """Return the length of the value at the start."""
        source = DataInput(data, "value of Kryo")
        try:
            self.values.read_next(source, self.values.version or KryoVersion.FLINK_2)
        except StateError as error:
            raise CorruptSnapshotError(
                error.problem,
                place=error.place,
                remedy="correct the class in the file for --kryo; without `flink` there, values"
                " whose form is not known are carried as bytes",
            ) from error
        return source.position


def kryo_values(registered: Iterable[tuple[str, bool]], version: KryoVersion | None) -> KryoValues:
    """Return what reads and writes the values of a snapshot, as users have declared them.

    Args:
        registered: As `KryoValues` has it.
        version: What the snapshot says of it, which goes before what users say.
    """
    return KryoValues(registered, version or _declared.version)


def kryo_decoder(
    java_class: str, registered: Iterable[tuple[str, bool]], version: KryoVersion | None
) -> KryoDecoder | None:
    """Return the decoder of a state's class; None if its form is not known."""
    values = kryo_values(registered, version)
    classes = values.classes
    kind = _declared.types.get(java_class, JavaType(java_class))
    if not _is_known(java_class, classes):
        return None
    column = column_of(kind, classes)
    closed = values.version is not None and column.closed
    return (_MeasuringDecoder if closed else KryoDecoder)(values, column)


def _is_known(java_class: str, classes: Classes) -> bool:
    if java_class in _ANYTHING:
        return bool(_declared.classes)
    if java_class in _INTERFACES or java_class in ENUMS:
        return True
    return classes.form_of(java_class) is not None
