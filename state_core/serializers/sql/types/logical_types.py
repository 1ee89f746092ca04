"""Flink SQL's logical types: the types of columns, for a planner.

The serializers of SQL state have these in their snapshots, as Java object streams
(`state_core.serializers.sql.types.logical_type_streams`). Here they are values: equal by Flink's
`LogicalType.equals`, and with their SQL text, which `parse_logical_type` parses::

    >>> str(DecimalType(10, 2, nullable=False))
    'DECIMAL(10, 2) NOT NULL'

Source: `org.apache.flink.table.types.logical`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

MAX_LENGTH = (1 << 31) - 1


def quoted(text: str, mark: str) -> str:
    """Return text between marks, which are doubled where they occur in it."""
    return f"{mark}{text.replace(mark, mark * 2)}{mark}"


@dataclass(frozen=True)
class LogicalType:
    """A logical type.

    Attributes:
        nullable: Whether a value may be NULL; this is part of the type.
    """

    nullable: bool = field(default=True, kw_only=True)

    @property
    def root(self) -> str:
        """The constant of `LogicalTypeRoot`."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        """The SQL text without nullability."""
        raise NotImplementedError

    @property
    def children(self) -> tuple[LogicalType, ...]:
        """The types of its parts: those among its attributes by default."""
        return tuple(part for part in vars(self).values() if isinstance(part, LogicalType))

    def __str__(self) -> str:
        return self.text if self.nullable else f"{self.text} NOT NULL"


class _NamedByRoot:
    """A type of one of several roots."""

    name: str

    @property
    def root(self) -> str:
        """The name."""
        return self.name


@dataclass(frozen=True)
class SimpleType(_NamedByRoot, LogicalType):
    """A type that its root alone determines: BIGINT, BOOLEAN, DATE, ..."""

    name: str

    @property
    def text(self) -> str:
        """`INT` for INTEGER, otherwise the root."""
        return "INT" if self.name == "INTEGER" else self.name


@dataclass(frozen=True)
class LengthType(_NamedByRoot, LogicalType):
    """CHAR, VARCHAR, BINARY and VARBINARY, which have a length."""

    name: str
    length: int = MAX_LENGTH

    @property
    def text(self) -> str:
        """`VARCHAR(2147483647)`."""
        return f"{self.name}({self.length})"


@dataclass(frozen=True)
class DecimalType(LogicalType):
    """DECIMAL: up to 38 digits, `scale` of them behind the point."""

    root: ClassVar[str] = "DECIMAL"
    precision: int = 10
    scale: int = 0

    @property
    def text(self) -> str:
        """`DECIMAL(10, 2)`."""
        return f"DECIMAL({self.precision}, {self.scale})"


@dataclass(frozen=True)
class TimeType(LogicalType):
    """TIME: a time of the day."""

    root: ClassVar[str] = "TIME_WITHOUT_TIME_ZONE"
    precision: int = 0

    @property
    def text(self) -> str:
        """`TIME(3)`."""
        return f"TIME({self.precision})"


_ZONES = {
    "TIMESTAMP_WITHOUT_TIME_ZONE": "",
    "TIMESTAMP_WITH_LOCAL_TIME_ZONE": " WITH LOCAL TIME ZONE",
    "TIMESTAMP_WITH_TIME_ZONE": " WITH TIME ZONE",
}


@dataclass(frozen=True)
class TimestampType(_NamedByRoot, LogicalType):
    """TIMESTAMP, with or without a time zone.

    Attributes:
        precision: The digits of the second.
        name: The root.
        kind: The kind of time attribute, which is not part of the type's identity.
    """

    precision: int = 6
    name: str = "TIMESTAMP_WITHOUT_TIME_ZONE"
    kind: str = field(default="REGULAR", compare=False)

    @property
    def text(self) -> str:
        """`TIMESTAMP(3) WITH LOCAL TIME ZONE`."""
        return f"TIMESTAMP({self.precision}){_ZONES[self.name]}"


@dataclass(frozen=True)
class IntervalType(LogicalType):
    """INTERVAL of months, or of days and seconds.

    Attributes:
        resolution: The units: `DAY_TO_SECOND`.
        precision: The digits of the years, or of the days.
        fraction: The digits of the second; None for months.
    """

    resolution: str
    precision: int = 2
    fraction: int | None = None

    @property
    def root(self) -> str:
        """The root, which differs for months and for days."""
        return "INTERVAL_YEAR_MONTH" if self.fraction is None else "INTERVAL_DAY_TIME"

    @property
    def text(self) -> str:
        """`INTERVAL DAY(2) TO SECOND(6)`."""
        first, _, last = self.resolution.partition("_TO_")
        if first in ("DAY", "YEAR"):
            first += f"({self.precision})"
        if self.resolution.endswith("SECOND"):
            seconds = f"SECOND({self.fraction})"
            first, last = (first, seconds) if last else (seconds, "")
        return f"INTERVAL {first} TO {last}" if last else f"INTERVAL {first}"


@dataclass(frozen=True)
class ArrayType(LogicalType):
    """ARRAY."""

    root: ClassVar[str] = "ARRAY"
    element: LogicalType

    @property
    def text(self) -> str:
        """`ARRAY<INT>`."""
        return f"ARRAY<{self.element}>"


@dataclass(frozen=True)
class MultisetType(LogicalType):
    """MULTISET: elements with their number of occurrences."""

    root: ClassVar[str] = "MULTISET"
    element: LogicalType

    @property
    def text(self) -> str:
        """`MULTISET<INT>`."""
        return f"MULTISET<{self.element}>"


@dataclass(frozen=True)
class MapType(LogicalType):
    """MAP."""

    root: ClassVar[str] = "MAP"
    key: LogicalType
    value: LogicalType

    @property
    def text(self) -> str:
        """`MAP<INT, BIGINT>`."""
        return f"MAP<{self.key}, {self.value}>"


@dataclass(frozen=True)
class RowField:
    """A field of a row, or an attribute of a structured type."""

    name: str
    type: LogicalType
    description: str | None = None

    def __str__(self) -> str:
        text = f"{quoted(self.name, '`')} {self.type}"
        return text if self.description is None else f"{text} {quoted(self.description, chr(39))}"


@dataclass(frozen=True)
class RowType(LogicalType):
    """ROW: fields with names."""

    root: ClassVar[str] = "ROW"
    fields: tuple[RowField, ...]

    @property
    def text(self) -> str:
        """`` ROW<`id` BIGINT, `name` VARCHAR(10)> ``."""
        return f"ROW<{', '.join(map(str, self.fields))}>"

    @property
    def children(self) -> tuple[LogicalType, ...]:
        """The fields' types."""
        return tuple(child.type for child in self.fields)


@dataclass(frozen=True)
class DistinctType(LogicalType):
    """A user's type that is stored as another one.

    Attributes:
        identifier: Catalog, database and name, or the name alone.
        source: The type that values are stored as.
    """

    root: ClassVar[str] = "DISTINCT_TYPE"
    identifier: tuple[str, ...]
    source: LogicalType
    final: bool = True
    description: str | None = None

    @property
    def text(self) -> str:
        """The quoted name."""
        return ".".join(quoted(part, "`") for part in self.identifier)


@dataclass(frozen=True)
class StructuredType(LogicalType):
    """A user's class with attributes, stored as a row of them.

    Attributes:
        class_name: The Java class; empty for a type of a catalog.
        fields: Its attributes.
        identifier: Catalog, database and name; empty for a type written inline.
        comparison: The allowed comparisons: NONE, EQUALS, FULL.
        parent: The type that it extends.
    """

    root: ClassVar[str] = "STRUCTURED_TYPE"
    class_name: str
    fields: tuple[RowField, ...]
    identifier: tuple[str, ...] = ()
    comparison: str = "EQUALS"
    instantiable: bool = True
    final: bool = True
    parent: StructuredType | None = None
    description: str | None = None

    @property
    def all_fields(self) -> tuple[RowField, ...]:
        """The attributes that a value has, those of the parent first."""
        return (*(self.parent.all_fields if self.parent else ()), *self.fields)

    @property
    def text(self) -> str:
        """`` STRUCTURED<'com.acme.Order', `id` BIGINT> ``."""
        if self.identifier:
            return ".".join(quoted(part, "`") for part in self.identifier)
        fields = "".join(f", {all_field}" for all_field in self.all_fields)
        return f"STRUCTURED<{quoted(self.class_name, chr(39))}{fields}>"

    @property
    def children(self) -> tuple[LogicalType, ...]:
        """The attributes' types."""
        return tuple(all_field.type for all_field in self.all_fields)


@dataclass(frozen=True)
class RawType(LogicalType):
    """RAW: any value of a Java serializer.

    Attributes:
        class_name: The Java class of the value.
        serializer: The class and the content of the serializer, as nested tuples.
    """

    root: ClassVar[str] = "RAW"
    class_name: str
    serializer: object = ()

    @property
    def text(self) -> str:
        """`RAW('java.util.LinkedList', ...)`."""
        return f"RAW({quoted(self.class_name, chr(39))}, ...)"


@dataclass(frozen=True)
class UnknownType(_NamedByRoot, LogicalType):
    """A type whose form in the binary format is not known here; the stream names its root."""

    java_class: str
    name: str
    content: object = ()

    @property
    def text(self) -> str:
        """The name and the class."""
        return f"{self.name}({quoted(self.java_class, chr(39))})"


@dataclass(frozen=True)
class TypeDifference:
    """A difference of two types: the path of the field, both types, and whether it is certain."""

    path: str
    old: str
    new: str
    certain: bool


def type_differences(
    old: LogicalType, new: LogicalType, path: str = ""
) -> Iterator[TypeDifference]:
    """Yield the innermost places where `new` is not equal to `old`.

    Whether two serializers of one RAW type are equal is decided in Java: if they only differ in
    their content, the difference is not certain.
    """
    if old == new:
        return
    parted = False
    if type(old) is type(new) and old.root == new.root and old.nullable == new.nullable:
        names = _child_names(old)
        if names == _child_names(new) and len(old.children) == len(new.children):
            for name, before, after in zip(names, old.children, new.children, strict=True):
                inner = f"{path}.{name}" if path else name
                for type_difference in type_differences(before, after, inner):
                    parted = True
                    yield type_difference
    if not parted:
        yield TypeDifference(path, str(old), str(new), not _alike(old, new))


def _alike(old: LogicalType, new: LogicalType) -> bool:
    """Return whether only the content of a Java object could make the difference."""
    if isinstance(old, RawType) and isinstance(new, RawType):
        return replace(old, serializer=()) == replace(new, serializer=())
    if isinstance(old, UnknownType) and isinstance(new, UnknownType):
        return replace(old, content=()) == replace(new, content=())
    return False


def _child_names(type_: LogicalType) -> tuple[str, ...]:
    if isinstance(type_, RowType):
        return tuple(field.name for field in type_.fields)
    if isinstance(type_, StructuredType):
        return tuple(field.name for field in type_.all_fields)
    return ("key", "value") if isinstance(type_, MapType) else ("[]",) * len(type_.children)
