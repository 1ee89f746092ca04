"""Objects of Kryo as the serializers of Flink 2 write them: as columns, or one by one.

A column has times to the microsecond, in the years of Python, and no key that is null. Objects with
more than that are written one by one, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.formats.rewriting.kryo_parts import KryoPart, PartSnapshot
from statelake.state_core.kernels.kryo import AS_LIST, WRITTEN
from statelake.state_core.nested import column_names
from statelake.state_core.serializers.avro.schema_types import (
    AvroArray,
    AvroEnum,
    AvroMap,
    AvroOptional,
    AvroRecord,
    AvroString,
)
from statelake.state_core.serializers.avro.serializer import AvroSerializer, AvroSerializerSnapshot
from statelake.state_core.serializers.basic.enums import EnumSerializerSnapshot
from statelake.state_core.serializers.basic.numbers import (
    BooleanSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntSerializer,
    LongSerializer,
)
from statelake.state_core.serializers.composite.arrays import (
    GenericArraySerializerSnapshot,
    SetSerializerSnapshot,
)
from statelake.state_core.serializers.composite.collections import (
    ListSerializerSnapshot,
    MapSerializerSnapshot,
    offsets_of,
)
from statelake.state_core.serializers.composite.optionals import NullableSerializerSnapshot
from statelake.state_core.serializers.composite.pojo import SubclassValue
from statelake.state_core.serializers.composite.pojo_snapshot import PojoSerializerSnapshot
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.columns import I64Array, arrow_buffer, validity
from statelake.state_core.serializers.kryo.columns import (
    EnumColumn,
    ListColumn,
    MapColumn,
    StructColumn,
)
from statelake.state_core.serializers.kryo.forms import check_time, decimal_text
from statelake.state_core.serializers.kryo.graph import Classes, Item
from statelake.state_core.serializers.kryo.objects import FieldForm
from statelake.state_core.serializers.kryo.scalars import (
    MILLIS_ONLY,
    NANOS,
    SCALARS,
    Scalar,
    ScalarColumn,
)
from statelake.state_core.serializers.kryo.tables import LISTS, NUMBERS, MarkedTable
from statelake.state_core.serializers.kryo.wire import KryoVersion
from statelake.state_core.serializers.type_spec import parse_type

# classes with a serializer of Flink's own, by the name of the type
OWN = {
    **{
        f"java.lang.{name}": name
        for name in ("Boolean", "Byte", "Character", "Double", "Float", "Integer", "Long", "Short",
                     "String", "Void")
    },
    "java.math.BigDecimal": "BigDecimal",
    "java.math.BigInteger": "BigInteger",
    "java.util.Date": "Date",
    "java.sql.Date": "java.sql.Date",
    "java.sql.Time": "java.sql.Time",
    "java.sql.Timestamp": "Timestamp",
    "java.time.Instant": "Instant",
    "[B": "byte[]", "[S": "short[]", "[I": "int[]", "[J": "long[]", "[F": "float[]",
    "[D": "double[]", "[Z": "boolean[]", "[C": "char[]", "[Ljava.lang.String;": "String[]",
}  # fmt: skip
# classes whose serializers only a job names
_NEVER_EXTRACTED = {
    f"java.time.{name}": name for name in ("LocalDate", "LocalTime", "LocalDateTime")
}
# what Avro's types are as objects
_BOXES: dict[type[TypeSerializer], str] = {
    BooleanSerializer: "java.lang.Boolean", IntSerializer: "java.lang.Integer",
    LongSerializer: "java.lang.Long", FloatSerializer: "java.lang.Float",
    DoubleSerializer: "java.lang.Double", AvroString: "java.lang.String",
}  # fmt: skip


def target_column(
    target: TypeSerializerSnapshot, classes: Classes, *, may_be_null: bool = False
) -> ScalarColumn:
    """Return the column of objects that a serializer of Flink 2 writes.

    Args:
        target: The snapshot of that serializer.
        classes: The known classes of the objects.
        may_be_null: Whether what is around the serializer writes null.
    """
    column: ScalarColumn
    if isinstance(target, NullableSerializerSnapshot):
        return target_column(target.nested[0], classes, may_be_null=True)
    if isinstance(target, PartSnapshot):
        return _KryoColumn(target.part, may_be_null)
    if isinstance(target, ListSerializerSnapshot):
        element = target_column(target.nested[0], classes)
        column = ListColumn("", element, LISTS | {AS_LIST})
    elif isinstance(target, (SetSerializerSnapshot, GenericArraySerializerSnapshot)):
        element = target_column(target.nested[0], classes, may_be_null=True)
        column = ListColumn("", element, LISTS | {AS_LIST})
    elif isinstance(target, MapSerializerSnapshot):
        key, value = target.nested
        of_values = target_column(value, classes, may_be_null=True)
        column = _Entries("", target_column(key, classes), of_values)
    elif isinstance(target, PojoSerializerSnapshot):
        column = _PojoColumn(target, classes)
    elif isinstance(target, EnumSerializerSnapshot):
        column = EnumColumn(target.enum_class, classes)
    elif isinstance(target, AvroSerializerSnapshot):
        column = _AvroColumn(target)
    else:
        column = _OwnColumn(target)
    return column if may_be_null else _Required(column, target.type_name)


class _TargetColumn(ScalarColumn):
    """A column that only the serializer of Flink 2 reads."""

    def from_arrow(self, value: Any) -> Any:
        """Raise an error: nothing becomes Kryo's again."""
        raise EncodeError(f"{value!r}, which is not for Kryo")


@dataclass(frozen=True)
class _Required(_TargetColumn):
    """Objects that are not null: the serializer has no form for it."""

    column: ScalarColumn
    name: str

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of the column."""
        return self.column.arrow_type

    def to_arrow(self, value: Any) -> Any:
        """Return the object as the serializer writes it."""
        if value is None:
            raise EncodeError(f"null for a {self.name}")
        return self.column.to_arrow(value)

    def many(self, table: MarkedTable, lines: I64Array) -> pa.Array:
        """Return the column; null is left to `to_arrow`."""
        table.untold[lines[table.present(lines) == 0]] = True
        return self.column.many(table, lines)


@dataclass(frozen=True)
class _KryoColumn(_TargetColumn):
    """Objects that stay Kryo's: their bytes."""

    part: KryoPart
    may_be_null: bool
    arrow_type = pa.binary()

    def to_arrow(self, value: Any) -> Any:
        """Return the object itself."""
        return value

    def many(self, table: MarkedTable, lines: I64Array) -> pa.Array:
        """Return the bytes of many objects."""
        classes = self.part.values.classes
        out, sizes, outcomes = table.parts.written(lines, KryoVersion.FLINK_2, classes)
        table.untold[lines[outcomes != WRITTEN]] = True
        first = offsets_of(sizes)
        if first[-1] >> 31:
            raise EncodeError("too many bytes of a column")
        present = table.present(lines) if self.may_be_null else np.ones(len(lines), np.uint8)
        bitmap, nulls = validity(present)
        buffers = [bitmap, arrow_buffer(first.astype(np.int32)), arrow_buffer(out)]
        return pa.Array.from_buffers(pa.binary(), len(lines), buffers, nulls)


class _Entries(MapColumn):
    """Maps, of which a key may be null."""

    def to_arrow(self, value: Any) -> Any:
        """Return the entries."""
        return None if value is None else self.pairs(value)


class _OwnColumn(_TargetColumn):
    """Objects with a serializer of Flink's own, and primitives.

    Args:
        target: The snapshot of that serializer.
    """

    def __init__(self, target: TypeSerializerSnapshot) -> None:
        self.target = target
        self.arrow_type = target.restore_serializer().arrow_type
        self.java_class = _written_by().get(target.java_class, "")

    def to_arrow(self, value: Any) -> Any:
        """Return what the serializer writes exactly.

        Raises:
            EncodeError: The object is of another class.
        """
        if not isinstance(value, Item):
            return value
        if value.java_class != self.java_class:
            raise EncodeError(
                f"a {value.java_class} where there should be a {self.target.type_name}"
            )
        return _exactly(value)

    def many(self, table: MarkedTable, lines: I64Array) -> pa.Array:
        """Return the column of many objects."""
        if self.java_class in NUMBERS:  # with the bits of a NaN
            right = table.of_class(lines, self.java_class)
            return table.parts.numbers(np.where(right, lines, table.a_null), self.arrow_type)
        if self.java_class in SCALARS:
            return Scalar(self.java_class, *SCALARS[self.java_class]).many(table, lines)
        return super().many(table, lines)


class _AvroColumn(_OwnColumn):
    """Objects that become Avro's, one by one."""

    def to_arrow(self, value: Any) -> Any:
        """Return the object in the form that the serializer of its schema writes."""
        target = self.target
        if isinstance(value, Item) and getattr(target, "runtime_class", "") == value.java_class:
            serializer = target.restore_serializer()
            if isinstance(serializer, AvroSerializer) and not serializer.recursive:
                return _avro_of(serializer.value, value)
        return super().to_arrow(value)


class _PojoColumn(_TargetColumn):
    """Objects that become POJOs of Flink's, or values of their subclasses.

    Args:
        target: The snapshot of the POJO's serializer.
        classes: The known classes of the objects.
    """

    def __init__(self, target: PojoSerializerSnapshot, classes: Classes) -> None:
        self.pojo = target.pojo
        self.classes = classes
        self.arrow_type = target.restore_serializer().arrow_type
        self.fields = {
            entry.name: target_column(entry.value.snapshot, classes, may_be_null=True)
            for entry in self.pojo.fields
            if entry.value is not None and entry.value.snapshot is not None
        }

    def to_arrow(self, value: Any) -> Any:
        """Return the fields, or the value of a subclass."""
        if not isinstance(value, Item):
            return value
        if value.java_class != self.pojo.java_class:
            return self._subclass_of(value)
        values = {}
        for entry in self.pojo.fields:
            if entry.name not in self.fields:
                raise EncodeError(f"{self.pojo.java_class} without a serializer of {entry.name!r}")
            values[entry.name] = self.fields[entry.name].to_arrow(_field_of(value, entry.name))
        return values

    def _subclass_of(self, item: Item) -> SubclassValue:
        """Return an object of a subclass that the snapshot describes, by tag or by name."""
        pojo = self.pojo
        for entries, tagged in ((pojo.registered, True), (pojo.non_registered, False)):
            for tag, entry in enumerate(entries):
                snapshot = None if entry.value is None else entry.value.snapshot
                if entry.name == item.java_class and snapshot is not None:
                    value = target_column(snapshot, self.classes).to_arrow(item)
                    fields = value if isinstance(value, dict) else {}
                    return SubclassValue(
                        {each.name: fields.get(each.name) for each in pojo.fields},
                        item.java_class, value, tag if tagged else None,
                    )  # fmt: skip
        raise EncodeError(
            f"a {item.java_class} where there should be a {pojo.java_class}, whose serializer in"
            " the new job does not describe such a subclass",
            remedy="name a savepoint of the new job in which this state has such an object, or that"
            " registers the class, --like",
        )

    def many(self, table: MarkedTable, lines: I64Array) -> pa.Array:
        """Return the column of many objects, if their class has all fields of the POJO."""
        names, form = tuple(self.fields), self.classes.forms.get(self.pojo.java_class)
        known = type(form) is FieldForm and form.fields.keys() >= set(names)
        if not known or len(names) < len(self.pojo.fields):
            return super().many(table, lines)
        fields = dict(zip(column_names(names), self.fields.values(), strict=True))
        return StructColumn(self.pojo.java_class, names, fields).many(table, lines)


@lru_cache(maxsize=1)
def _written_by() -> dict[str, str]:
    """Return the classes with a serializer of Flink's own, by that of its snapshot."""
    own = {**OWN, **_NEVER_EXTRACTED}
    return {parse_type(name).java_class: java_class for java_class, name in own.items()}


def _exactly(item: Item) -> Any:
    """Return what Flink's own serializer writes of an object: of times their numbers.

    Raises:
        EncodeError: Java has no such time.
    """
    value = item.value
    check_time(item)
    if item.java_class == "java.sql.Timestamp":
        millis, nanos = value
        if not 0 <= nanos < NANOS:
            raise EncodeError(f"{value!r} is no java.sql.Timestamp")
        return millis + nanos // 1_000_000, nanos
    if item.java_class in MILLIS_ONLY:
        return (value,)
    if item.java_class == "java.math.BigDecimal":
        return decimal_text(*value)
    if item.java_class == "[Ljava.lang.String;":
        return [None if each is None else each.value for each in value]
    return value


def _avro_of(kind: TypeSerializer, item: Any) -> Any:
    """Return an object that becomes Avro's, in the form that the serializer of its schema writes.

    Raises:
        EncodeError: The object is not of the schema's type, or its class does not tell.
    """
    if isinstance(kind, AvroOptional):
        return None if item is None else _avro_of(kind.value, item)
    if isinstance(item, Item):
        if isinstance(kind, AvroRecord):
            return {
                column: _avro_of(field, _field_of(item, name))
                for name, (column, field) in zip(kind.names, kind.fields, strict=True)
            }
        if isinstance(kind, AvroArray):
            return [_avro_of(kind.item, each) for each in _elements(item)]
        if isinstance(kind, AvroMap):
            return [
                (_avro_of(AvroString(), key), _avro_of(kind.value, value))
                for key, value in _elements(item)
            ]
        is_enum = isinstance(kind, AvroEnum) and item.value in kind.constants
        if is_enum or item.java_class == _BOXES.get(type(kind)):
            return item.value
    elif item is not None and type(kind) in _BOXES:
        return item  # a primitive
    value = "null" if item is None else f"a {getattr(item, 'java_class', type(item).__name__)}"
    raise EncodeError(
        f"{value} where there should be Avro's {kind.name}, and how Avro writes it is not known",
        remedy="migrate the state to another type in Flink 1, or leave it out",
    )


def _elements(item: Item) -> list[Any]:
    if not isinstance(item.value, list):
        raise EncodeError(f"a {item.java_class} where there should be a collection")
    return item.value


def _field_of(item: Item, name: str) -> Any:
    """Return what an object has in a field."""
    if not isinstance(item.value, dict) or name not in item.value:
        raise EncodeError(
            f"{item.java_class} without a field {name!r}",
            remedy="say the fields of the class, with those of its base classes, in a file for"
            " --kryo",
        )
    return item.value[name]
