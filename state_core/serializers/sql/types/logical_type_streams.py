"""Logical types as Java object streams: parsed as data.

Nothing is instantiated: a stream is read by its grammar (`state_core.files.java_stream`), and the
objects in it become the types of `logical_types` by the names of their classes. A class that is
not known becomes an `UnknownType`, whose values stay binary.

Source: the fields of the classes of `org.apache.flink.table.types.logical`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from statelake.state_core.bounds import JAVA_NESTING, LOGICAL_NESTING
from statelake.state_core.errors import StateError
from statelake.state_core.files.java_stream import (
    JavaArray,
    JavaClass,
    JavaClassLiteral,
    JavaEnum,
    JavaObject,
    JavaValue,
    read_java_stream,
    write_java_stream,
)
from statelake.state_core.files.wire import DataInput
from statelake.state_core.serializers.sql.types.logical_type_objects import (
    FORMS,
    LOGICAL,
    JavaTypes,
    TypeForm,
)
from statelake.state_core.serializers.sql.types.logical_types import (
    DistinctType,
    LogicalType,
    RawType,
    RowField,
    RowType,
    StructuredType,
    UnknownType,
)

MAX_TYPES = 1 << 15
MAX_SUMMARY = 1 << 16
MAX_VIEWS = 16  # nested views of a list, as an object may contain itself


@dataclass(frozen=True)
class WrittenType:
    """A logical type with its Java stream."""

    type: LogicalType
    stream: bytes

    @classmethod
    def of(cls, type_: LogicalType) -> WrittenType:
        """Return the type with the stream that Flink 2.3.0 writes.

        Raises:
            EncodeError: The type contains a user's class, whose stream only Java can write.
        """
        return cls(type_, write_java_stream(JavaTypes().of(type_)))


def read_logical_type(source: DataInput) -> WrittenType:
    """Read one Java stream with a logical type in it.

    Raises:
        CorruptSnapshotError: The bytes are not such a stream, or their content is not a logical
            type.
    """
    start = source.position
    value = read_java_stream(source)
    stream = bytes(source.data[start : source.position])
    return WrittenType(logical_type_of(value, source), stream)


def logical_type_of(value: JavaValue, source: DataInput) -> LogicalType:
    """Return the logical type of a Java object.

    Args:
        value: The object.
        source: The input, for the place in messages.

    Raises:
        CorruptSnapshotError: The object is not a logical type.
    """
    return _Types(source).read(value, 0)


# --------------------------------------------------------------------------- reading


class _Types:
    """A converter of Java objects to logical types, each once, within bounds of size and depth."""

    def __init__(self, source: DataInput) -> None:
        self.source = source
        self.known: dict[int, LogicalType] = {}
        self.sizes: dict[int, int] = {}

    def read(self, value: JavaValue, depth: int) -> LogicalType:
        if not isinstance(value, JavaObject) or "isNullable" not in value.values:
            raise self.source.fault("no logical type where one should be")
        if depth > LOGICAL_NESTING.most:
            raise self.source.fault(f"logical types nested more than {LOGICAL_NESTING.most} deep")
        if id(value) not in self.known:
            logical_type = self._of(value, depth)
            size = 1 + sum(self.sizes.get(id(child), 1) for child in logical_type.children)
            if size > MAX_TYPES:
                raise self.source.fault(f"a logical type made of more than {MAX_TYPES}")
            self.known[id(value)] = logical_type
            self.sizes[id(logical_type)] = size
        return self.known[id(value)]

    def _of(self, value: JavaObject, depth: int) -> LogicalType:
        root = self.constant(value, "typeRoot")
        name = value.java_class.name.removeprefix(LOGICAL)
        form = _FORMS.get(name)
        if form is not None and form.is_named and FORMS.get(root) is not form:
            raise self.source.fault(f"a {name} that says it is {root}")
        try:
            if form is not None:
                return self.formed(value, form, root, depth)
            return _READERS.get(name, _Types.unknown)(self, value, root, depth)
        except StateError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise self.source.fault(f"a {name} that is none ({error})") from None

    def constant(self, value: JavaObject, name: str) -> str:
        constant = value.values.get(name)
        if not isinstance(constant, JavaEnum):
            raise self.source.fault(f"no enum constant in {name}")
        return constant.constant

    def nullable(self, value: JavaObject) -> bool:
        return bool(value.values["isNullable"])

    def number(self, value: JavaObject, name: str, low: int, high: int) -> int:
        number = value.values[name]
        if not isinstance(number, int) or not low <= number <= high:
            raise self.source.fault(f"{name} {number!r}, which is not from {low} to {high}")
        return number

    def text(self, value: JavaObject, name: str) -> str:
        text = value.values[name]
        if not isinstance(text, str):
            raise self.source.fault(f"no text in {name}")
        return text

    def optional(self, value: JavaObject, name: str) -> str | None:
        return None if value.values[name] is None else self.text(value, name)

    def fields(self, value: JavaValue, depth: int) -> tuple[RowField, ...]:
        """Return the fields in a `Collections.unmodifiableList(new ArrayList<>(...))`."""
        fields = []
        for list_item in list_items(value):
            if not isinstance(list_item, JavaObject):
                raise self.source.fault("no field where one should be")
            inner = self.read(list_item.values["type"], depth + 1)
            fields.append(
                RowField(
                    self.text(list_item, "name"), inner, self.optional(list_item, "description")
                )
            )
        if len({field.name for field in fields}) != len(fields):
            raise self.source.fault("two fields of one name")
        return tuple(fields)

    def identifier(self, value: JavaObject) -> tuple[str, ...]:
        identifier = value.values["objectIdentifier"]
        if not isinstance(identifier, JavaObject):
            return ()
        parts = [identifier.values[name] for name in ("catalogName", "databaseName", "objectName")]
        return tuple(part for part in parts if isinstance(part, str))

    # ------------------------------------------------------------------ one class each

    def formed(self, value: JavaObject, form: TypeForm, root: str, depth: int) -> LogicalType:
        """Return a type whose form is in the table."""
        values: dict[str, Any] = {"name": root} if form.is_named else {}
        for name, attribute, kind in form.members:
            if kind is None:
                values[attribute] = self.read(value.values[name], depth + 1)
            elif isinstance(kind, JavaClass):
                values[attribute] = self.constant(value, name)
            else:
                high = values[kind.high] if isinstance(kind.high, str) else kind.high
                values[attribute] = self.number(value, name, kind.low, high)
        return form.type(**values, nullable=self.nullable(value))

    def row(self, value: JavaObject, _root: str, depth: int) -> LogicalType:
        fields = self.fields(value.values["fields"], depth)
        return RowType(fields, nullable=self.nullable(value))

    def distinct(self, value: JavaObject, _root: str, depth: int) -> LogicalType:
        return DistinctType(
            self.identifier(value),
            self.read(value.values["sourceType"], depth + 1),
            bool(value.values["isFinal"]),
            self.optional(value, "description"),
            nullable=self.nullable(value),
        )

    def structured(self, value: JavaObject, _root: str, depth: int) -> LogicalType:
        parent = value.values["superType"]
        above = None if parent is None else self.read(parent, depth + 1)
        if above is not None and not isinstance(above, StructuredType):
            raise self.source.fault("a structured type below one that is none")
        implementation = value.values["implementationClass"]
        name = value.values.get("className")
        if not isinstance(name, str):
            name = (
                implementation.java_class.name
                if isinstance(implementation, JavaClassLiteral)
                else ""
            )
        return StructuredType(
            name,
            self.fields(value.values["attributes"], depth),
            self.identifier(value),
            self.constant(value, "comparison"),
            bool(value.values["isInstantiable"]),
            bool(value.values["isFinal"]),
            above,
            self.optional(value, "description"),
            nullable=self.nullable(value),
        )

    def raw(self, value: JavaObject, _root: str, _: int) -> LogicalType:
        java_type = value.values["clazz"]
        if not isinstance(java_type, JavaClassLiteral):
            raise self.source.fault("a RAW type of no class")
        serializer = summary(value.values["serializer"])
        return RawType(java_type.java_class.name, serializer, nullable=self.nullable(value))

    def unknown(self, value: JavaObject, root: str, _: int) -> LogicalType:
        return UnknownType(
            value.java_class.name, root, summary(value), nullable=self.nullable(value)
        )


_FORMS = {form.described.name.removeprefix(LOGICAL): form for form in FORMS.values()}
_Reader: TypeAlias = Callable[[_Types, JavaObject, str, int], LogicalType]
_READERS: dict[str, _Reader] = {
    "RowType": _Types.row,
    "DistinctType": _Types.distinct,
    "StructuredType": _Types.structured,
    "RawType": _Types.raw,
}


# lists that write their elements behind their fields; `CollSer` stands for `List.of`
_LISTS = ("java.util.ArrayList", "java.util.LinkedList", "java.util.CollSer")


def list_items(value: JavaValue) -> list[JavaValue]:
    """Return the elements of a Java list, which may be inside an unmodifiable view."""
    for _ in range(MAX_VIEWS):
        if not isinstance(value, JavaObject):
            break
        for name in _LISTS:
            if name in value.extra:
                return [item for item in value.extra[name] if not isinstance(item, bytes)]
        if "a" in value.values and isinstance(value.values["a"], JavaArray):  # Arrays.asList
            return value.values["a"].items
        value = value.values.get("list", value.values.get("c"))
    raise ValueError("a list of an unknown class")


def summary(value: JavaValue) -> object:
    """Return any Java object as nested tuples, for comparison.

    An object that occurs again is named by the number of its first occurrence.
    """
    seen: dict[int, int] = {}

    def walk(node: JavaValue, depth: int = 0) -> object:
        if isinstance(node, JavaClassLiteral):
            return ("class", node.java_class.name)
        if isinstance(node, JavaEnum):
            return (node.java_class.name, node.constant)
        if isinstance(node, JavaClass):
            return ("descriptor", node.name)
        if not isinstance(node, JavaObject | JavaArray):
            return node
        if id(node) in seen:
            return ("again", seen[id(node)])
        if len(seen) > MAX_SUMMARY or depth > JAVA_NESTING.most:
            raise ValueError("too many objects, or nested too deep")
        seen[id(node)] = len(seen)
        if isinstance(node, JavaArray):
            return (
                node.java_class.name,
                *(walk(item, depth + 1) for item in node.items),
            )
        fields = tuple((name, walk(inner, depth + 1)) for name, inner in node.values.items())
        more = tuple(
            (name, *(walk(item, depth + 1) for item in items)) for name, items in node.extra.items()
        )
        return (node.java_class.name, fields, more)

    return walk(value)
