"""Logical types as Java objects, with the class descriptors of Flink 2.3.0.

They determine the output of `ObjectOutputStream` for a type.

Source: the `serialVersionUID`s and fields of `org.apache.flink.table.types.logical`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.java_stream import (
    JavaClass,
    JavaEnum,
    JavaField,
    JavaObject,
    JavaString,
    JavaValue,
)
from statelake.state_core.serializers.sql.types.logical_types import (
    MAX_LENGTH,
    ArrayType,
    DecimalType,
    DistinctType,
    IntervalType,
    LengthType,
    LogicalType,
    MapType,
    MultisetType,
    RowField,
    RowType,
    SimpleType,
    StructuredType,
    TimestampType,
    TimeType,
)

LOGICAL = "org.apache.flink.table.types.logical."
LOGICAL_SIGNATURE = "Lorg/apache/flink/table/types/logical/LogicalType;"
LIST_SIGNATURE, STRING_SIGNATURE = "Ljava/util/List;", "Ljava/lang/String;"
SERIALIZABLE, ENUM, CUSTOM = 0x02, 0x12, 0x03
IMMUTABLE_LIST = 1


def java_class(
    name: str,
    uid: int,
    fields: Iterable[tuple[str, str]] = (),
    parent: JavaClass | None = None,
    flags: int = SERIALIZABLE,
) -> JavaClass:
    """Return a class descriptor of fields with name and JVM signature, in the stream's order."""
    members = (
        JavaField(kind[0], field, kind if kind[0] in "[L" else None) for field, kind in fields
    )
    return JavaClass(name, uid, flags, tuple(members), parent)


def java_object(described: JavaClass, **values: JavaValue) -> JavaObject:
    """Return an object with these field values, those of superclasses first."""
    return JavaObject(described, values)


def _constant(described: JavaClass, constant: str) -> JavaEnum:
    """Return an enum constant; the same object each time, as in Java."""
    key = (described.name, constant)
    if key not in _CONSTANTS:
        _CONSTANTS[key] = JavaEnum(described, constant)
    return _CONSTANTS[key]


_CONSTANTS: dict[tuple[str, str], JavaEnum] = {}
_ENUM = java_class("java.lang.Enum", 0, flags=ENUM)


def _enum_class(name: str) -> JavaClass:
    return java_class(LOGICAL + name, 0, parent=_ENUM, flags=ENUM)


_ROOT = _enum_class("LogicalTypeRoot")
_KIND = _enum_class("TimestampKind")
_MONTHS = _enum_class("YearMonthIntervalType$YearMonthResolution")
_SECONDS = _enum_class("DayTimeIntervalType$DayTimeResolution")
_COMPARISON = _enum_class("StructuredType$StructuredComparison")
_TYPE = java_class(
    f"{LOGICAL}LogicalType",
    1,
    [("isNullable", "Z"), ("typeRoot", "Lorg/apache/flink/table/types/logical/LogicalTypeRoot;")],
)


def _type_class(
    name: str, *fields: tuple[str, str], uid: int = 1, parent: JavaClass = _TYPE
) -> JavaClass:
    return java_class(LOGICAL + name, uid, fields, parent)


class Range(NamedTuple):
    """The numbers that a field may have.

    Attributes:
        low: The least.
        high: The greatest, or the attribute that has it.
    """

    low: int
    high: int | str


@dataclass(frozen=True)
class TypeForm:
    """How a type is written, beside its nullability and its root.

    Attributes:
        described: Its Java class.
        type: Its class here.
        members: Of each field, in the stream's order: its name in Java; the attribute; and the
            range of a number, the class of a constant, or None for a type.
    """

    described: JavaClass
    type: type[LogicalType]
    members: tuple[tuple[str, str, Range | JavaClass | None], ...]

    @property
    def is_named(self) -> bool:
        """Return whether the type is one of several roots, and has its root as name."""
        return self.type in (SimpleType, LengthType, TimestampType)


def _forms(
    java_names: Mapping[str, str],
    kind: type[LogicalType],
    *members: tuple[str, str, Range | JavaClass | None],
) -> dict[str, TypeForm]:
    """Return the form of some roots, given the Java class of each."""
    fields = [(name, _signature_of(of)) for name, _, of in members]
    return {
        root: TypeForm(_type_class(name, *fields, uid=_UIDS.get(name, 1)), kind, members)
        for root, name in java_names.items()
    }


def _signature_of(member: Range | JavaClass | None) -> str:
    if isinstance(member, Range):
        return "I"
    return LOGICAL_SIGNATURE if member is None else f"L{member.name.replace('.', '/')};"


_UIDS = {"VariantType": -7525210688776332292}
SIMPLE_TYPES = {
    "BOOLEAN": "BooleanType", "TINYINT": "TinyIntType", "SMALLINT": "SmallIntType",
    "INTEGER": "IntType", "BIGINT": "BigIntType", "FLOAT": "FloatType", "DOUBLE": "DoubleType",
    "DATE": "DateType", "NULL": "NullType", "VARIANT": "VariantType", "BITMAP": "BitmapType",
    "DESCRIPTOR": "DescriptorType",
}  # fmt: skip
LENGTH_TYPES = {
    "CHAR": "CharType", "VARCHAR": "VarCharType", "BINARY": "BinaryType",
    "VARBINARY": "VarBinaryType",
}  # fmt: skip
_TIMESTAMP_TYPES = {
    "TIMESTAMP_WITHOUT_TIME_ZONE": "TimestampType",
    "TIMESTAMP_WITH_LOCAL_TIME_ZONE": "LocalZonedTimestampType",
    "TIMESTAMP_WITH_TIME_ZONE": "ZonedTimestampType",
}
_PRECISION = ("precision", "precision", Range(0, 9))
_ELEMENT = ("elementType", "element", None)
# by root; other types have code of their own
FORMS = {
    **_forms(SIMPLE_TYPES, SimpleType),
    **_forms(LENGTH_TYPES, LengthType, ("length", "length", Range(0, MAX_LENGTH))),
    **_forms(_TIMESTAMP_TYPES, TimestampType, _PRECISION, ("kind", "kind", _KIND)),
    **_forms({"TIME_WITHOUT_TIME_ZONE": "TimeType"}, TimeType, _PRECISION),
    **_forms(
        {"DECIMAL": "DecimalType"},
        DecimalType,
        ("precision", "precision", Range(1, 38)),
        ("scale", "scale", Range(0, "precision")),
    ),
    **_forms(
        {"INTERVAL_YEAR_MONTH": "YearMonthIntervalType"},
        IntervalType,
        ("yearPrecision", "precision", Range(1, 4)),
        ("resolution", "resolution", _MONTHS),
    ),
    **_forms(
        {"INTERVAL_DAY_TIME": "DayTimeIntervalType"},
        IntervalType,
        ("dayPrecision", "precision", Range(1, 6)),
        ("fractionalPrecision", "fraction", Range(0, 9)),
        ("resolution", "resolution", _SECONDS),
    ),
    **_forms({"ARRAY": "ArrayType"}, ArrayType, _ELEMENT),
    **_forms({"MULTISET": "MultisetType"}, MultisetType, _ELEMENT),
    **_forms({"MAP": "MapType"}, MapType, ("keyType", "key", None), ("valueType", "value", None)),
}
_ROW = _type_class("RowType", ("fields", LIST_SIGNATURE))
_FIELD_MEMBERS = [
    ("description", STRING_SIGNATURE),
    ("name", STRING_SIGNATURE),
    ("type", LOGICAL_SIGNATURE),
]
_FIELD = java_class(f"{LOGICAL}RowType$RowField", 1, _FIELD_MEMBERS)
_ATTRIBUTE = java_class(f"{LOGICAL}StructuredType$StructuredAttribute", 1, _FIELD_MEMBERS)
_USER_DEFINED = _type_class(
    "UserDefinedType",
    ("isFinal", "Z"),
    ("description", STRING_SIGNATURE),
    ("objectIdentifier", "Lorg/apache/flink/table/catalog/ObjectIdentifier;"),
)
_DISTINCT = _type_class("DistinctType", ("sourceType", LOGICAL_SIGNATURE), parent=_USER_DEFINED)
_STRUCTURED = _type_class(
    "StructuredType",
    ("isInstantiable", "Z"),
    ("attributes", LIST_SIGNATURE),
    ("className", STRING_SIGNATURE),
    ("comparison", _signature_of(_COMPARISON)),
    ("implementationClass", "Ljava/lang/Class;"),
    ("superType", "Lorg/apache/flink/table/types/logical/StructuredType;"),
    parent=_USER_DEFINED,
)
_IDENTIFIER = java_class(
    "org.apache.flink.table.catalog.ObjectIdentifier",
    -6621218754811268019,
    [(name, STRING_SIGNATURE) for name in ("catalogName", "databaseName", "objectName")],
)
_ARRAY_LIST = java_class("java.util.ArrayList", 8683452581122892189, [("size", "I")], flags=CUSTOM)
_IMMUTABLE = java_class("java.util.CollSer", 6309168927139932177, [("tag", "I")], flags=CUSTOM)
_UNMODIFIABLE = java_class(
    "java.util.Collections$UnmodifiableList",
    -283967356065247728,
    [("list", LIST_SIGNATURE)],
    java_class(
        "java.util.Collections$UnmodifiableCollection",
        1820017752578914078,
        [("c", "Ljava/util/Collection;")],
    ),
)


class JavaTypes:
    """A factory of Java objects for logical types, one object of each type, as in Java."""

    def __init__(self) -> None:
        self.made: dict[int, JavaObject] = {}
        self.types: list[LogicalType] = []

    def of(self, type_: LogicalType) -> JavaObject:
        """Return the Java object of a type.

        Raises:
            EncodeError: The type contains a user's class, whose stream only Java can write.
        """
        if id(type_) not in self.made:
            self.types.append(type_)  # keeps the object, so that no other type gets its id
            self.made[id(type_)] = self._of(type_)
        return self.made[id(type_)]

    def _of(self, type_: LogicalType) -> JavaObject:
        head: dict[str, JavaValue] = {
            "isNullable": type_.nullable,
            "typeRoot": _constant(_ROOT, type_.root),
        }
        form = FORMS.get(type_.root)
        if form is not None and type(type_) is form.type:
            for name, attribute, kind in form.members:
                value = getattr(type_, attribute)
                if isinstance(kind, JavaClass):
                    value = _constant(kind, value)
                head[name] = self.of(value) if kind is None else value
            return JavaObject(form.described, head)
        if isinstance(type_, RowType):
            return JavaObject(_ROW, {**head, "fields": self._array_list(type_.fields)})
        return self._user_defined(type_, head)

    def _user_defined(self, type_: LogicalType, head: dict[str, JavaValue]) -> JavaObject:
        if not isinstance(type_, DistinctType | StructuredType):
            raise EncodeError(
                f"{type_} holds a class whose Java stream only Java can write",
                remedy="take the type from a snapshot that has it",
            )
        values = {
            **head,
            "isFinal": type_.final,
            "description": type_.description,
            "objectIdentifier": _identifier(type_.identifier),
        }
        if isinstance(type_, DistinctType):
            return JavaObject(_DISTINCT, {**values, "sourceType": self.of(type_.source)})
        values |= {
            "isInstantiable": type_.instantiable,
            "attributes": self._immutable_list(type_.fields),
            "className": type_.class_name or None,
            "comparison": _constant(_COMPARISON, type_.comparison),
            "implementationClass": None,
            "superType": None if type_.parent is None else self.of(type_.parent),
        }
        return JavaObject(_STRUCTURED, values)

    def _fields(self, described: JavaClass, fields: tuple[RowField, ...]) -> list[JavaValue]:
        return [
            java_object(
                described,
                description=field.description,
                name=JavaString(field.name),
                type=self.of(field.type),
            )
            for field in fields
        ]

    def _array_list(self, fields: tuple[RowField, ...]) -> JavaObject:
        """`Collections.unmodifiableList(new ArrayList<>(...))`."""
        array = java_object(_ARRAY_LIST, size=len(fields))
        items = self._fields(_FIELD, fields)
        array.extra = {_ARRAY_LIST.name: [len(fields).to_bytes(4, "big"), *items]}
        return java_object(_UNMODIFIABLE, c=array, list=array)

    def _immutable_list(self, fields: tuple[RowField, ...]) -> JavaObject:
        """`List.copyOf(...)`."""
        java_list = java_object(_IMMUTABLE, tag=IMMUTABLE_LIST)
        items = self._fields(_ATTRIBUTE, fields)
        java_list.extra = {_IMMUTABLE.name: [len(fields).to_bytes(4, "big"), *items]}
        return java_list


def _identifier(parts: tuple[str, ...]) -> JavaObject | None:
    if not parts:
        return None
    catalog, database, name = (None,) * (3 - len(parts)) + parts
    return java_object(_IDENTIFIER, catalogName=catalog, databaseName=database, objectName=name)
