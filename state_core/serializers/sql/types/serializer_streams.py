"""Flink SQL's serializers as Java objects, in the snapshots of arrays and maps.

`ArrayDataSerializerSnapshot` and `MapDataSerializerSnapshot` write their elements' serializers with
Java serialization, accessors included: these are lambdas, which Java writes as the names of the
methods that javac generates. The names below are those of Flink 2.3.0. Objects that were read are
carried unchanged; this is for new snapshots.

Source: `ArrayData.createElementGetter`, `RowData.createFieldGetter`, `InternalSerializers`,
`java.lang.invoke.SerializedLambda`.
"""

from __future__ import annotations

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.java_stream import (
    JavaArray,
    JavaClass,
    JavaClassLiteral,
    JavaObject,
    JavaValue,
)
from statelake.state_core.serializers.sql.types.logical_type_objects import (
    JavaTypes,
    java_class,
    java_object,
)
from statelake.state_core.serializers.sql.types.logical_types import (
    ArrayType,
    DecimalType,
    DistinctType,
    LogicalType,
    MapType,
    MultisetType,
    RowType,
    SimpleType,
    StructuredType,
    TimestampType,
)

TYPEUTILS = "org.apache.flink.table.runtime.typeutils."
BASE = "org.apache.flink.api.common.typeutils."
DATA = "org/apache/flink/table/data/"
SERIALIZER_SIGNATURE = "Lorg/apache/flink/api/common/typeutils/TypeSerializer;"
TYPE_SIGNATURE = "Lorg/apache/flink/table/types/logical/LogicalType;"
GETTER_SIGNATURE = "Lorg/apache/flink/table/data/ArrayData$ElementGetter;"
STATIC, INTERFACE = 6, 9
BOXED_ONCE = 127


def java_serializer_of(type_: LogicalType) -> JavaObject:
    """Return the serializer of `InternalSerializers.create` for a type.

    Raises:
        EncodeError: The type contains a user's class, or can't be in state.
    """
    return _Builder().serializer(type_)


_TYPE_SERIALIZER = java_class(f"{BASE}TypeSerializer", 1)
_SINGLETON = java_class(
    f"{BASE}base.TypeSerializerSingleton", 8766687317209282373, (), _TYPE_SERIALIZER
)


def _singleton(name: str, uid: int = 1) -> JavaClass:
    return java_class(name, uid, (), _SINGLETON)


_STRING = _singleton(f"{TYPEUTILS}StringDataSerializer")
_BYTES = _singleton(f"{BASE}base.array.BytePrimitiveArraySerializer")
_INT = _singleton(f"{BASE}base.IntSerializer")
_LONG = _singleton(f"{BASE}base.LongSerializer")
# the serializers without attributes, by root
SINGLETONS = {
    "CHAR": _STRING,
    "VARCHAR": _STRING,
    "BINARY": _BYTES,
    "VARBINARY": _BYTES,
    "BOOLEAN": _singleton(f"{BASE}base.BooleanSerializer"),
    "TINYINT": _singleton(f"{BASE}base.ByteSerializer"),
    "SMALLINT": _singleton(f"{BASE}base.ShortSerializer"),
    "INTEGER": _INT,
    "DATE": _INT,
    "TIME_WITHOUT_TIME_ZONE": _INT,
    "INTERVAL_YEAR_MONTH": _INT,
    "BIGINT": _LONG,
    "INTERVAL_DAY_TIME": _LONG,
    "FLOAT": _singleton(f"{BASE}base.FloatSerializer"),
    "DOUBLE": _singleton(f"{BASE}base.DoubleSerializer"),
    "VARIANT": _singleton(f"{BASE}base.VariantSerializer", 5163454885762653491),
    "BITMAP": _singleton(f"{BASE}base.BitmapSerializer", 7562101549559034581),
}
_DECIMAL = java_class(
    f"{TYPEUTILS}DecimalDataSerializer", 1, [("precision", "I"), ("scale", "I")], _TYPE_SERIALIZER
)
_TIMESTAMP = java_class(
    f"{TYPEUTILS}TimestampDataSerializer", 1, [("precision", "I")], _TYPE_SERIALIZER
)
_ARRAY = java_class(
    f"{TYPEUTILS}ArrayDataSerializer",
    1,
    [
        ("eleSer", SERIALIZER_SIGNATURE),
        ("eleType", TYPE_SIGNATURE),
        ("elementGetter", GETTER_SIGNATURE),
    ],
    _TYPE_SERIALIZER,
)
_MAP = java_class(
    f"{TYPEUTILS}MapDataSerializer",
    4073842523628732956,
    [
        ("keyGetter", GETTER_SIGNATURE),
        ("keySerializer", SERIALIZER_SIGNATURE),
        ("keyType", TYPE_SIGNATURE),
        ("valueGetter", GETTER_SIGNATURE),
        ("valueSerializer", SERIALIZER_SIGNATURE),
        ("valueType", TYPE_SIGNATURE),
    ],
    _TYPE_SERIALIZER,
)
_ABSTRACT_ROW = java_class(
    f"{TYPEUTILS}AbstractRowDataSerializer",
    1,
    (),
    java_class(f"{TYPEUTILS}PagedTypeSerializer", 1, (), _TYPE_SERIALIZER),
)
_BINARY_ROW = java_class(
    f"{TYPEUTILS}BinaryRowDataSerializer",
    1,
    [("fixedLengthPartSize", "I"), ("numFields", "I")],
    _ABSTRACT_ROW,
)
_ROW = java_class(
    f"{TYPEUTILS}RowDataSerializer",
    1,
    [
        ("binarySerializer", f"L{TYPEUTILS.replace('.', '/')}BinaryRowDataSerializer;"),
        ("fieldGetters", "[Lorg/apache/flink/table/data/RowData$FieldGetter;"),
        ("fieldSerializers", f"[{SERIALIZER_SIGNATURE}"),
        ("types", f"[{TYPE_SIGNATURE}"),
    ],
    _ABSTRACT_ROW,
)
_LAMBDA = java_class(
    "java.lang.invoke.SerializedLambda",
    8025925345765570181,
    [
        ("implMethodKind", "I"),
        ("capturedArgs", "[Ljava/lang/Object;"),
        ("capturingClass", "Ljava/lang/Class;"),
        *(
            (name, "Ljava/lang/String;")
            for name in (
                "functionalInterfaceClass", "functionalInterfaceMethodName",
                "functionalInterfaceMethodSignature", "implClass", "implMethodName",
                "implMethodSignature", "instantiatedMethodType",
            )
        ),
    ],
)  # fmt: skip
_INTEGER = java_class(
    "java.lang.Integer",
    1360826667806852920,
    [("value", "I")],
    java_class("java.lang.Number", -8742448824652078965),
)
_OBJECTS = java_class("[Ljava.lang.Object;", -8012369246846506644)
_GETTERS = java_class("[Lorg.apache.flink.table.data.RowData$FieldGetter;", -7646304539732967285)
_SERIALIZERS = java_class(
    "[Lorg.apache.flink.api.common.typeutils.TypeSerializer;", 4143624638847974296
)
_TYPES = java_class("[Lorg.apache.flink.table.types.logical.LogicalType;", 1744097763440828726)

_OF_ARRAYS, _OF_ROWS = f"{DATA}ArrayData", f"{DATA}RowData"
_CLASSES = {
    name: JavaClassLiteral(java_class(name.replace("/", "."), 0, flags=0))
    for name in (_OF_ARRAYS, _OF_ROWS)
}
# the accessor of an array's element (a method), and of a row's field (a lambda with this number)
_READERS = {
    "CHAR": (f"getString (I)L{DATA}StringData;", 1),
    "VARCHAR": (f"getString (I)L{DATA}StringData;", 1),
    "BOOLEAN": ("getBoolean (I)Z", 2),
    "BINARY": ("getBinary (I)[B", 3),
    "VARBINARY": ("getBinary (I)[B", 3),
    "TINYINT": ("getByte (I)B", 4),
    "SMALLINT": ("getShort (I)S", 5),
    "INTEGER": ("getInt (I)I", 6),
    "DATE": ("getInt (I)I", 6),
    "TIME_WITHOUT_TIME_ZONE": ("getInt (I)I", 6),
    "INTERVAL_YEAR_MONTH": ("getInt (I)I", 6),
    "BIGINT": ("getLong (I)J", 7),
    "INTERVAL_DAY_TIME": ("getLong (I)J", 7),
    "FLOAT": ("getFloat (I)F", 8),
    "DOUBLE": ("getDouble (I)D", 9),
    "ARRAY": (f"getArray (I)L{DATA}ArrayData;", 10),
    "MULTISET": (f"getMap (I)L{DATA}MapData;", 11),
    "MAP": (f"getMap (I)L{DATA}MapData;", 11),
    "VARIANT": ("getVariant (I)Lorg/apache/flink/types/variant/Variant;", 13),
    "BITMAP": ("getBitmap (I)Lorg/apache/flink/types/bitmap/Bitmap;", 14),
}


class _Builder:
    """A factory of serializers as Java objects, which are shared as in Java."""

    def __init__(self) -> None:
        self.types = JavaTypes()
        self.singletons: dict[str, JavaObject] = {}
        self.integers: dict[int, JavaObject] = {}

    def serializer(self, type_: LogicalType) -> JavaObject:
        if isinstance(type_, DistinctType):
            return self.serializer(type_.source)
        described = SINGLETONS.get(type_.root)
        if described is not None:
            return self.singletons.setdefault(described.name, java_object(described))
        if isinstance(type_, DecimalType):
            return java_object(_DECIMAL, precision=type_.precision, scale=type_.scale)
        if isinstance(type_, TimestampType) and "WITH_TIME_ZONE" not in type_.name:
            return java_object(_TIMESTAMP, precision=type_.precision)
        if isinstance(type_, ArrayType):
            return java_object(
                _ARRAY,
                eleSer=self.serializer(type_.element),
                eleType=self.types.of(type_.element),
                elementGetter=self.element_getter(type_.element),
            )
        if isinstance(type_, MapType):
            return self.map(type_.key, type_.value)
        if isinstance(type_, MultisetType):
            return self.map(type_.element, SimpleType("INTEGER", nullable=False))
        if isinstance(type_, RowType | StructuredType):
            return self.row(type_)
        raise EncodeError(
            f"{type_} has no serializer whose Java stream could be written here",
            remedy="take the type from a snapshot that has it",
        )

    def map(self, key: LogicalType, value: LogicalType) -> JavaObject:
        return java_object(
            _MAP,
            keyGetter=self.element_getter(key),
            keySerializer=self.serializer(key),
            keyType=self.types.of(key),
            valueGetter=self.element_getter(value),
            valueSerializer=self.serializer(value),
            valueType=self.types.of(value),
        )

    def row(self, type_: LogicalType) -> JavaObject:
        fields = type_.children
        count = len(fields)
        mask = (count + 8 + 63) // 64 * 8
        return java_object(
            _ROW,
            binarySerializer=java_object(
                _BINARY_ROW, fixedLengthPartSize=mask + 8 * count, numFields=count
            ),
            fieldGetters=JavaArray(
                _GETTERS, [self.field_getter(field, index) for index, field in enumerate(fields)]
            ),
            fieldSerializers=JavaArray(_SERIALIZERS, [self.serializer(field) for field in fields]),
            types=JavaArray(_TYPES, [self.types.of(field) for field in fields]),
        )

    # ------------------------------------------------------------------ lambdas

    def integer(self, value: int) -> JavaObject:
        """Return a boxed number; Java keeps one object of each small one."""
        java_integer = java_object(_INTEGER, value=value)
        return (
            self.integers.setdefault(value, java_integer) if value <= BOXED_ONCE else java_integer
        )

    def element_getter(self, type_: LogicalType) -> JavaObject:
        return self.array_lambda("95d74a6c$1", self.bare_getter(type_))

    def bare_getter(self, type_: LogicalType) -> JavaObject:
        """Return the inner getter of `createElementGetter`: a lambda over numbers, or a method."""
        if isinstance(type_, DistinctType):
            return self.element_getter(type_.source)
        if isinstance(type_, DecimalType):
            return self.array_lambda("55d7a3db$1", type_.precision, type_.scale)
        if isinstance(type_, TimestampType):
            return self.array_lambda("644eb446$1", type_.precision)
        if isinstance(type_, RowType | StructuredType):
            return self.array_lambda("3705b7fb$1", len(type_.children))
        method, _, signature = _READERS[type_.root][0].partition(" ")
        getter = self.lambda_of(_OF_ARRAYS, INTERFACE, method, signature, [])
        return self.singletons.setdefault(method, getter)  # a single one, as it captures nothing

    def field_getter(self, type_: LogicalType, field: int) -> JavaObject:
        position = self.integer(field)
        captured: list[JavaValue] = [position, self.bare_field_getter(type_, field)]
        signature = f"(IL{DATA}RowData$FieldGetter;L{DATA}RowData;)Ljava/lang/Object;"
        return self.lambda_of(
            _OF_ROWS, STATIC, "lambda$createFieldGetter$25774257$1", signature, captured
        )

    def bare_field_getter(self, type_: LogicalType, field: int) -> JavaObject:
        if isinstance(type_, DistinctType):
            return self.field_getter(type_.source, field)
        numbers = [field]
        if isinstance(type_, DecimalType):
            name, numbers = "89bd9445$1", [field, type_.precision, type_.scale]
        elif isinstance(type_, TimestampType):
            name, numbers = "39385f9c$1", [field, type_.precision]
        elif isinstance(type_, RowType | StructuredType):
            name, numbers = "1547cee5$1", [field, len(type_.children)]
        else:
            name = f"245ca7d1${_READERS[type_.root][1]}"
        signature = f"({'I' * len(numbers)}L{DATA}RowData;)Ljava/lang/Object;"
        captured: list[JavaValue] = [self.integer(number) for number in numbers]
        return self.lambda_of(
            _OF_ROWS, STATIC, f"lambda$createFieldGetter${name}", signature, captured
        )

    def array_lambda(self, name: str, *captured: int | JavaObject) -> JavaObject:
        kinds = "".join(
            "I" if isinstance(argument, int) else GETTER_SIGNATURE for argument in captured
        )
        arguments: list[JavaValue] = [
            self.integer(argument) if isinstance(argument, int) else argument
            for argument in captured
        ]
        signature = f"({kinds}L{DATA}ArrayData;I)Ljava/lang/Object;"
        return self.lambda_of(
            _OF_ARRAYS, STATIC, f"lambda$createElementGetter${name}", signature, arguments
        )

    def lambda_of(
        self, owner: str, kind: int, method: str, signature: str, captured: list[JavaValue]
    ) -> JavaObject:
        arrays = owner == _OF_ARRAYS
        shape = f"(L{owner};{'I' if arrays else ''})Ljava/lang/Object;"
        return java_object(
            _LAMBDA,
            implMethodKind=kind,
            capturedArgs=JavaArray(_OBJECTS, captured),
            capturingClass=_CLASSES[owner],
            functionalInterfaceClass=f"{owner}${'ElementGetter' if arrays else 'FieldGetter'}",
            functionalInterfaceMethodName="getElementOrNull" if arrays else "getFieldOrNull",
            functionalInterfaceMethodSignature=shape,
            implClass=owner,
            implMethodName=method,
            implMethodSignature=signature,
            instantiatedMethodType=shape,
        )
