"""Migration of values, as when Flink migrates state.

Flink reads each value with the old serializer and writes the object with the new one. Here a whole
column is converted (`migrate_column`), or one value from `TypeSerializer.read` (`migrate_value`).
`resolve_schema_compatibility` decides whether that is allowed.

A type with parts has a `MigrationRule`; the values of others stay as they are. Further types get a
rule with `evolves`.

Source: `AbstractRocksDBState.migrateSerializedValue`; for a POJO's fields `PojoSerializer`, which
reads into an object that its constructor created. A new field's initial value is only in the job's
code: here it is 0 or false for a type that can be a Java primitive, or otherwise null.

A value from a user decoder can become any type with its fields, by their names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

from statelake.state_core.errors import IncompatibleError
from statelake.state_core.nested import field_name, same_lists, struct_column
from statelake.state_core.serializers.basic.numbers import (
    BooleanSerializer,
    ByteSerializer,
    CharSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntSerializer,
    LongSerializer,
    ShortSerializer,
)
from statelake.state_core.serializers.composite.collections import (
    DelimitedListSerializer,
    ListSerializer,
    MapSerializer,
)
from statelake.state_core.serializers.composite.pojo import (
    PojoSerializer,
    SubclassValue,
    named_values,
)
from statelake.state_core.serializers.composite.structs import (
    RowSerializer,
    StructSerializer,
    TupleSerializer,
)
from statelake.state_core.serializers.composite.wrappers import TtlSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    Verdict,
    incompatible,
    migrate,
    unknown,
)
from statelake.state_core.serializers.framework.opaque_values import (
    DecodedSerializer,
    OpaqueSerializer,
)

NUMBERS = (
    ByteSerializer, ShortSerializer, IntSerializer, LongSerializer, FloatSerializer,
    DoubleSerializer,
)  # fmt: skip


class MigrationRule(ABC):
    """Converts values of one serializer to those of another serializer of the same class."""

    @abstractmethod
    def column(self, old: Any, new: Any, column: pa.Array) -> pa.Array:
        """Convert a whole column."""

    @abstractmethod
    def value(self, old: Any, new: Any, value: Any) -> Any:
        """Convert one value, which is not None."""


_RuleClass = TypeVar("_RuleClass", bound=type[MigrationRule])
_rules: dict[type[TypeSerializer], MigrationRule] = {}


def evolves(*kinds: type[TypeSerializer]) -> Callable[[_RuleClass], _RuleClass]:
    """Register a rule for values of these serializers; used as a decorator."""

    def add(rule: _RuleClass) -> _RuleClass:
        instance = rule()
        for kind in kinds:
            _rules[kind] = instance
        return rule

    return add


def migrate_column(old: TypeSerializer, new: TypeSerializer, column: pa.Array) -> pa.Array:
    """Convert a column of the old type to the new type.

    Raises:
        IncompatibleError: Values of the old type can't become values of the new type.
    """
    rule = _rule(old, new)
    return column if rule is None else rule.column(old, new, column)


def migrate_value(old: TypeSerializer, new: TypeSerializer, value: Any) -> Any:
    """Convert a value that the old serializer has read to one that the new serializer writes.

    Raises:
        IncompatibleError: Values of the old type can't become values of the new type.
    """
    rule = _rule(old, new)
    return value if rule is None or value is None else rule.value(old, new, value)


def resolve_decoded(new: TypeSerializerSnapshot, old: TypeSerializerSnapshot) -> Compatibility:
    """Return whether old values can be migrated here, if necessary with a user decoder.

    Flink refuses another serializer. Values of Kryo, which need a user decoder, can still be
    migrated here; without a decoder the verdict is `UNKNOWN`.
    """
    result = new.resolve_schema_compatibility(old)
    if result.verdict is not Verdict.INCOMPATIBLE:
        return result
    before, after = old.restore_serializer(), new.restore_serializer()
    if isinstance(before, DecodedSerializer):
        try:
            migrate_column(before, after, pa.array([], before.arrow_type))
        except IncompatibleError as error:
            return incompatible(before.name, after.name, error.problem)
        rule = "its decoder gives the values; Flink by itself would refuse"
        return migrate(before.name, after.name, rule)
    if isinstance(before, OpaqueSerializer):
        settled = "only a decoder for its class could say (register_decoder, in a plugin or SPEC)"
        return unknown(before.name, after.name, settled)
    return result


def _rule(old: TypeSerializer, new: TypeSerializer) -> MigrationRule | None:
    """Return the rule for both serializers; None where values stay as they are."""
    if isinstance(old, DecodedSerializer) and old.name != new.name:
        return _DECODED
    if type(old) is type(new):
        rule = _rules.get(type(old))
        if rule is not None:
            return rule
        if old.name == new.name and old.arrow_type == new.arrow_type:
            return None
    raise IncompatibleError(
        f"{old.name} can't become {new.name}",
        remedy="give an expression that says how the old value becomes the new",
    )


def _pairs(
    old: StructSerializer, new: StructSerializer
) -> list[tuple[tuple[str, TypeSerializer], tuple[str, TypeSerializer]]]:
    """Return pairs of the fields in the same position."""
    if len(old.fields) != len(new.fields):
        raise IncompatibleError(f"{old.name} can't become {new.name}, of another arity")
    return list(zip(old.fields, new.fields, strict=True))


_Lists: TypeAlias = ListSerializer | DelimitedListSerializer


@evolves(ListSerializer, DelimitedListSerializer)
class ElementRule(MigrationRule):
    """Converts lists, arrays and sets element by element."""

    def column(self, old: _Lists, new: _Lists, column: pa.Array) -> pa.Array:
        """Convert the elements as one column."""
        items = migrate_column(old.element, new.element, column.values)
        return same_lists(new.arrow_type, column, [items])

    def value(self, old: _Lists, new: _Lists, value: Any) -> list[Any]:
        """Convert one list."""
        return [migrate_value(old.element, new.element, item) for item in value]


@evolves(MapSerializer)
class MapRule(MigrationRule):
    """Converts the keys and the values of maps."""

    def column(self, old: MapSerializer, new: MapSerializer, column: pa.Array) -> pa.Array:
        """Convert the keys as one column, and the values as another."""
        keys = migrate_column(old.key, new.key, column.keys)
        items = migrate_column(old.value, new.value, column.items)
        return same_lists(new.arrow_type, column, [keys, items])

    def value(self, old: MapSerializer, new: MapSerializer, value: Any) -> list[tuple[Any, Any]]:
        """Convert one map."""
        return [
            (migrate_value(old.key, new.key, key), migrate_value(old.value, new.value, item))
            for key, item in value
        ]


class ValueRule(MigrationRule):
    """Converts the values of an optional or wrapped type that are not null."""

    def column(self, old: Any, new: Any, column: pa.Array) -> pa.Array:
        """Convert the values that are not null."""
        return migrate_column(old.value, new.value, column)

    def value(self, old: Any, new: Any, value: Any) -> Any:
        """Convert one value."""
        return migrate_value(old.value, new.value, value)


class LabelledRule(MigrationRule):
    """Converts the fields of a struct that have parts of that label; the others stay."""

    def column(self, old: Any, new: Any, column: pa.Array) -> pa.Array:
        """Convert the columns of the parts."""
        columns = [
            migrate_column(old.parts[name], new.parts[name], column.field(name))
            if name in new.parts
            else column.field(name)
            for name in (field.name for field in new.arrow_type)
        ]
        return struct_column(new.arrow_type, columns, column)

    def value(self, old: Any, new: Any, value: Any) -> dict[str, Any]:
        """Convert one value."""
        return {
            name: migrate_value(old.parts[name], new.parts[name], field)
            if name in new.parts
            else field
            for name, field in value.items()
        }


@evolves(TupleSerializer, RowSerializer, TtlSerializer)
class PositionRule(MigrationRule):
    """Converts field by field, in order."""

    def column(self, old: StructSerializer, new: StructSerializer, column: pa.Array) -> pa.Array:
        """Convert the column of each field."""
        columns = [
            migrate_column(before, after, column.field(name))
            for (name, before), (_, after) in _pairs(old, new)
        ]
        return struct_column(new.arrow_type, columns, column)

    def value(self, old: StructSerializer, new: StructSerializer, value: Any) -> dict[str, Any]:
        """Convert one tuple or row."""
        return {
            name: migrate_value(before, after, value[was])
            for (was, before), (name, after) in _pairs(old, new)
        }


@evolves(PojoSerializer)
class _PojoRule(MigrationRule):
    """Converts field by field, by name: a new field begins as in Java, a removed one is dropped."""

    def column(self, old: PojoSerializer, new: PojoSerializer, column: pa.Array) -> pa.Array:
        """Convert the column of each field."""
        before = dict(zip(old.names, old.fields, strict=True))
        columns = []
        for name, (_, after) in zip(new.names, new.fields, strict=True):
            if name in before:
                was, kind = before[name]
                columns.append(migrate_column(kind, after, column.field(was)))
            else:
                first = pa.scalar(_first_value(new, name, after), after.arrow_type)
                columns.append(pa.repeat(first, len(column)))
        return struct_column(new.arrow_type, columns, column)

    def value(self, old: PojoSerializer, new: PojoSerializer, value: Any) -> dict[str, Any]:
        """Convert one POJO, which may be of a subclass."""
        before = dict(zip(old.names, old.fields, strict=True))
        fields = {}
        for name, (called, after) in zip(new.names, new.fields, strict=True):
            if name in before:
                column, kind = before[name]
                fields[called] = migrate_value(kind, after, value[column])
            else:
                fields[called] = _first_value(new, name, after)
        if not isinstance(value, SubclassValue):
            return fields
        java_class = value.java_class
        was, becomes = old.subclass(java_class, value.tag), new.subclass(java_class)
        if was is None or becomes is None:
            raise IncompatibleError(
                f"a value of {java_class}, which the new {new.java_class} says nothing of",
                remedy="give it with the new type, among `registered` or `non_registered`",
            )
        tag = list(new.registered).index(java_class) if java_class in new.registered else None
        migrated = migrate_value(was, becomes, value.value)
        own = named_values(becomes, migrated)
        named = zip(new.names, fields.items(), strict=True)
        seen = {called: own.get(name, default) for name, (called, default) in named}
        return SubclassValue(seen, java_class, migrated, tag)


class _DecodedRule(MigrationRule):
    """Converts the result of a decoder: fields by name, numbers if they hold the same value."""

    def column(self, old: DecodedSerializer, new: TypeSerializer, column: pa.Array) -> pa.Array:
        """Convert a column to the fields of the new type."""
        if column.type != old.arrow_type:
            raise IncompatibleError(
                f"values of {old.java_class} whose ends are not known",
                remedy="give their decoder a `length`, so that it is known where each ends",
            )
        return _fitted(column, new.arrow_type, new, old.java_class)

    def value(self, old: DecodedSerializer, new: TypeSerializer, value: Any) -> Any:
        """Convert one value."""
        (fitted,) = self.column(old, new, pa.array([value], old.arrow_type)).to_pylist()
        return fitted


_DECODED = _DecodedRule()


def _fitted(
    column: pa.Array, kind: pa.DataType, serializer: TypeSerializer | None, path: str
) -> pa.Array:
    """Convert a column to another type without losing anything.

    Args:
        column: The column.
        kind: The new type.
        serializer: The serializer of that type, if known here, for the initial value of a new
            field.
        path: The path of the field, for messages.
    """
    if column.type == kind:
        return column
    if not (pa.types.is_struct(kind) and pa.types.is_struct(column.type)):
        try:
            return column.cast(kind)
        except pa.ArrowException as error:
            raise IncompatibleError(
                f"{path}: {column.type} can't become {kind} ({' '.join(str(error).split())})",
                remedy="have the decoder give what the new type holds, or give an expression",
            ) from error
    fields = dict(serializer.fields) if isinstance(serializer, StructSerializer) else {}
    indices = {field_name(field): index for index, field in enumerate(column.type)}
    columns = []
    for field in kind:
        name, within = field_name(field), fields.get(field.name)
        if name in indices:
            inner = column.field(indices[name])
            columns.append(_fitted(inner, field.type, within, f"{path}.{name}"))
        elif isinstance(serializer, PojoSerializer):
            first = pa.scalar(_first_value(serializer, name, fields[field.name]), field.type)
            columns.append(pa.repeat(first, len(column)))
        else:
            raise IncompatibleError(
                f"{path}: the decoder gives no field {name!r}",
                remedy=f"it gives {', '.join(indices)}; have it give this one,"
                " or give an expression",
            )
    return struct_column(kind, columns, column)


def _first_value(pojo: PojoSerializer, name: str, serializer: TypeSerializer) -> Any:
    """Return the initial value of a Java field that is not in the bytes."""
    if name in pojo.boxed:
        return None
    if type(serializer) is BooleanSerializer:
        return False
    if type(serializer) is CharSerializer:
        return "\0"
    return 0 if type(serializer) in NUMBERS else None
