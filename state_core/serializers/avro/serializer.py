"""Avro: the schema is in the snapshot, and Avro's own rules decide which schema may follow it.

A record becomes a struct, a union of null and one schema a nullable column, any other union a
struct of its branches. Logical types stay the numbers and bytes that Avro writes for them. A schema
that contains itself has no column type: its values stay `binary`.

Source: `org.apache.flink.formats.avro.typeutils.AvroSerializer` and `AvroSerializerSnapshot`;
schema resolution by `org.apache.avro.SchemaCompatibility`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa
from typing_extensions import Self

from statelake.state_core.bounds import AVRO_NESTING, COLUMNS, EMPTY_FIELDS
from statelake.state_core.errors import EncodeError, IncompatibleError, StateError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.avro.resolution import (
    Schema,
    named_schemas,
    parse_schema,
    resolve_schemas,
    same_schema,
)
from statelake.state_core.serializers.avro.schema_types import (
    AvroArray,
    AvroBytes,
    AvroEmptyRecord,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroNull,
    AvroOptional,
    AvroRecord,
    AvroString,
    AvroUnion,
)
from statelake.state_core.serializers.basic.numbers import (
    BooleanSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntSerializer,
    LongSerializer,
)
from statelake.state_core.serializers.composite.evolution import MigrationRule, evolves
from statelake.state_core.serializers.framework.base import (
    TypeSerializer,
    TypeSerializerSnapshot,
    named,
)
from statelake.state_core.serializers.framework.columns import Cursor, I64Array, Target, U8Array
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    Verdict,
    as_is,
    incompatible,
    migrate,
)
from statelake.state_core.serializers.framework.layouts import ByteLayout
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from statelake.state_core.serializers.framework.registry import register

GENERIC_RECORD = "org.apache.avro.generic.GenericRecord"

_PRIMITIVES: dict[str, type[TypeSerializer]] = {
    "null": AvroNull,
    "boolean": BooleanSerializer,
    "int": IntSerializer,
    "long": LongSerializer,
    "float": FloatSerializer,
    "double": DoubleSerializer,
    "bytes": AvroBytes,
    "string": AvroString,
}


class _UnboundedError(Exception):
    """A schema whose values may be much larger than their bytes."""


class AvroSerializer(TypeSerializer):
    """A value of an Avro schema.

    Args:
        schema: The schema, as JSON text.
        runtime_class: The Java class: `GenericRecord`, or a generated or reflected class.
    """

    name = named("Avro<{value}>")

    def __init__(self, schema: str, runtime_class: str = GENERIC_RECORD) -> None:
        self.schema_text = schema
        self.runtime_class = runtime_class
        self.schema = parse_schema(schema)
        self.names = named_schemas(self.schema)
        self.recursive = False
        self._built: dict[int, TypeSerializer] = {}
        self._sizes: dict[int, tuple[int, int]] = {}
        self.value = self._build(self.schema, ())
        self.arrow_type = pa.binary() if self.recursive else self.value.arrow_type

    def _build(self, schema: Schema, within: tuple[str, ...]) -> TypeSerializer:
        """Return the serializer of a schema, one for each; `within` are the records around it."""
        if isinstance(schema, list):
            return self._union([self._build(field, within) for field in schema])
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return self._counted(_PRIMITIVES[schema]())
            return self._build(self._known(schema), within)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self._build(kind, within)
        if kind in _PRIMITIVES:
            return self._counted(_PRIMITIVES[kind]())
        if kind == "array":
            item = self._build(schema["items"], within)
            if item.min_length == 0:
                raise _UnboundedError
            return self._counted(AvroArray(item), item)
        if kind == "map":
            value = self._build(schema["values"], within)
            return self._counted(AvroMap(value), value)
        if kind not in ("enum", "fixed", "record", "error"):
            return self._build(self._known(kind), within)
        if id(schema) not in self._built:
            built = self._named(schema, kind, within)
            if isinstance(built, _Recursive):
                return built
            self._built[id(schema)] = built
        return self._built[id(schema)]

    def _known(self, name: str) -> Schema:
        """Return the schema of a name."""
        if name not in self.names:
            raise ValueError(f"no type is called {name!r}")
        return self.names[name]

    def _named(
        self, schema: Mapping[str, Any], kind: str, within: tuple[str, ...]
    ) -> TypeSerializer:
        full_name = schema["full_name"]
        if kind == "enum":
            return self._counted(AvroEnum(full_name, schema["symbols"]))
        if kind == "fixed":
            return self._counted(AvroFixed(full_name, schema["size"]))
        if full_name in within or len(within) > AVRO_NESTING.most:
            self.recursive = True
            return self._counted(_Recursive(self, full_name))
        inner = (*within, full_name)
        fields = [(field["name"], self._build(field["type"], inner)) for field in schema["fields"]]
        if not fields:
            return self._counted(AvroEmptyRecord(full_name))
        return self._counted(AvroRecord(full_name, fields), *(field for _, field in fields))

    def _union(self, branches: list[TypeSerializer]) -> TypeSerializer:
        nulls = [index for index, branch in enumerate(branches) if isinstance(branch, AvroNull)]
        if len(branches) == 2 and len(nulls) == 1:
            value = branches[1 - nulls[0]]
            return self._counted(AvroOptional(value, nulls[0]), value)
        return self._counted(AvroUnion(branches), *branches)

    def _counted(self, serializer: TypeSerializer, *parts: TypeSerializer) -> TypeSerializer:
        """Return the serializer if it has few enough columns, and few enough fields without bytes.

        A part that is used again counts again, since it has its own columns.
        """
        sizes = [self._sizes[id(part)] for part in parts]
        columns = 1 + sum(count for count, _ in sizes)
        empty = sum(count for _, count in sizes) + (serializer.min_length == 0)
        if isinstance(serializer, AvroUnion):  # only one branch is read
            empty -= sum(isinstance(part, AvroNull) for part in parts)
        if columns > COLUMNS.most or empty > EMPTY_FIELDS.most:
            raise _UnboundedError
        self._sizes[id(serializer)] = columns, empty
        return serializer

    @cached_property
    def record_of(self) -> dict[str, TypeSerializer]:
        """The serializer of each named record, for schemas that contain themselves."""
        return {
            name: self._build(schema, ())
            for name, schema in self.names.items()
            if isinstance(schema, dict) and schema["type"] in ("record", "error")
        }

    @property
    def byte_layout(self) -> ByteLayout | None:
        """The layout of the schema's value; None if the schema contains itself."""
        return None if self.recursive else self.value

    def read(self, source: DataInput) -> Any:
        """Read one value; as bytes if the schema contains itself."""
        if not self.recursive:
            return self.value.read(source)
        start = source.position
        self.value.read(source)
        return bytes(source.data[start : source.position])

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value."""
        if not self.recursive:
            self.value.write(value, out)
        elif not isinstance(value, bytes):
            raise EncodeError(f"{value!r} is no bytes of {self.name}, which contains itself")
        else:
            out.write_bytes(value)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read a column of the schema's type; bytes if the schema contains itself."""
        return super().decode(cursor) if self.recursive else self.value.decode(cursor)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the sizes of the schema's values."""
        if self.recursive:
            return super().sizes(values, present)
        return self.value.sizes(values, present)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write a column of the schema's type."""
        if self.recursive:
            super().encode(values, target)
        else:
            self.value.encode(values, target)


class _Recursive(TypeSerializer):
    """A record inside itself, which can be read but has no column type."""

    arrow_type = pa.binary()
    name = named("record {full_name}")

    def __init__(self, owner: AvroSerializer, full_name: str) -> None:
        self.owner = owner
        self.full_name = full_name

    def read(self, source: DataInput) -> Any:
        """Read one record."""
        AVRO_NESTING.check(source.nesting + 1, source)
        source.nesting += 1
        record = self.owner.record_of[self.full_name].read(source)
        source.nesting -= 1
        return record

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one record."""
        self.owner.record_of[self.full_name].write(value, out)


@evolves(AvroSerializer)
class _AvroRule(MigrationRule):
    """Converts values with Avro's schema resolution, done by fastavro."""

    def column(self, old: AvroSerializer, new: AvroSerializer, column: pa.Array) -> pa.Array:
        """Convert a column value by value."""
        if old.recursive or new.recursive:
            raise IncompatibleError(
                f"{old.name} can't become {new.name}: a schema that contains itself has no columns"
            )
        values = column.to_pylist()
        moved = [None if value is None else self.value(old, new, value) for value in values]
        try:
            return pa.array(moved, new.arrow_type)
        except (LookupError, OverflowError, TypeError, ValueError) as error:
            raise _unlike(old, new, error) from error

    def value(self, old: AvroSerializer, new: AvroSerializer, value: Any) -> Any:
        """Convert one value: written as Avro with the old schema, read with the new one."""
        import fastavro  # noqa: PLC0415 - only where an Avro value is migrated

        try:
            before, after = fastavro.parse_schema(old.schema), fastavro.parse_schema(new.schema)
            encoded = io.BytesIO()
            fastavro.schemaless_writer(encoded, before, _to_avro(old.value, value))
            encoded.seek(0)
            return _from_avro(new.value, fastavro.schemaless_reader(encoded, before, after))
        except StateError:
            raise
        except (
            fastavro.schema.SchemaParseException, fastavro.read.SchemaResolutionError,
            AttributeError, EOFError, LookupError, OverflowError, TypeError, ValueError,
        ) as error:  # fmt: skip
            raise _unlike(old, new, error) from error


def _unlike(old: AvroSerializer, new: AvroSerializer, error: Exception) -> IncompatibleError:
    return IncompatibleError(
        f"{old.name} can't become {new.name}: {' '.join(str(error).split())}",
        remedy="mind the defaults of new fields, which must be of the fields' types",
    )


def _to_avro(serializer: TypeSerializer, value: Any) -> Any:
    """Convert a value to fastavro's form: a map is a dict, a union is the value of its branch."""
    if value is None:
        return None
    if isinstance(serializer, AvroOptional):
        return _to_avro(serializer.value, value)
    if isinstance(serializer, AvroRecord):
        return {
            name: _to_avro(field, value[column])
            for name, (column, field) in zip(serializer.names, serializer.fields, strict=True)
        }
    if isinstance(serializer, AvroArray):
        return [_to_avro(serializer.item, item) for item in value]
    if isinstance(serializer, AvroMap):
        pairs = value.items() if isinstance(value, dict) else value
        return {key: _to_avro(serializer.value, item) for key, item in pairs}
    if isinstance(serializer, AvroUnion):
        index = value["branch"]
        return _to_avro(serializer.branches[index], value[f"b{index}"])
    return value


def _from_avro(serializer: TypeSerializer, value: Any) -> Any:
    """Convert a value of fastavro to ours: the reverse of `_to_avro`."""
    if value is None and not isinstance(serializer, AvroUnion):
        return None
    if isinstance(serializer, AvroOptional):
        return _from_avro(serializer.value, value)
    if isinstance(serializer, AvroRecord):
        return {
            column: _from_avro(field, value[name])
            for name, (column, field) in zip(serializer.names, serializer.fields, strict=True)
        }
    if isinstance(serializer, AvroArray):
        return [_from_avro(serializer.item, item) for item in value]
    if isinstance(serializer, AvroMap):
        return [(key, _from_avro(serializer.value, item)) for key, item in value.items()]
    if isinstance(serializer, AvroUnion):
        raise IncompatibleError(f"{serializer.name} can't be migrated: its branch is not known")
    return value


def _serializer_of(schema: str, runtime_class: str) -> TypeSerializer:
    try:
        return AvroSerializer(schema, runtime_class)
    except _UnboundedError:
        return OpaqueSerializer(runtime_class)


@register
class AvroSerializerSnapshot(TypeSerializerSnapshot):
    """`AvroSerializerSnapshot`: the runtime class and the schema."""

    java_class = "org.apache.flink.formats.avro.typeutils.AvroSerializerSnapshot"
    versions = range(1, 4)

    def __init__(self) -> None:
        self.runtime_class = GENERIC_RECORD
        self.schema_text = '"null"'
        self._serializer: TypeSerializer | None = None

    @classmethod
    def of(cls, schema: Schema, runtime_class: str = GENERIC_RECORD) -> Self:
        """Return the snapshot of a new job's serializer.

        Args:
            schema: The schema: parsed JSON, or JSON text.
            runtime_class: The Java class of the values.

        Raises:
            EncodeError: The schema is not valid, or has no column type.
        """
        snapshot = cls()
        try:
            text = schema if isinstance(schema, str) and schema[:1] in '{["' else json.dumps(schema)
            parsed = parse_schema(text)
            snapshot.schema_text = json.dumps(parsed, separators=(",", ":"), ensure_ascii=False)
            AvroSerializer(snapshot.schema_text)
        except StateError as error:
            raise EncodeError(f"the Avro schema is no type ({error.problem})") from error
        except (ValueError, TypeError, RecursionError) as error:
            raise EncodeError(f"the Avro schema is no type ({error})") from error
        except _UnboundedError as error:
            problem = "the Avro schema has no columns: it has items without bytes, or is too wide"
            raise EncodeError(problem) from error
        snapshot.runtime_class = runtime_class
        return snapshot

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Read class and schema; version 1 had the schema only."""
        self.check_version(version, source)
        read = source.read_string if version == 3 else source.read_utf
        if version > 1:
            self.runtime_class = read() or GENERIC_RECORD
        self.schema_text = read() or '"null"'
        try:
            self._serializer = _serializer_of(self.schema_text, self.runtime_class)
        except StateError as error:
            raise error.within(source.place) from error
        except (ValueError, RecursionError) as error:
            raise source.fault(f"an Avro schema that is none ({error})") from error

    def write_snapshot(self, out: DataOutput) -> None:
        """Write class and schema, as `StringValue`s."""
        out.write_string(self.runtime_class)
        out.write_string(self.schema_text)

    def restore_serializer(self) -> TypeSerializer:
        """Return the serializer of the schema; bytes if it declares more than its size allows."""
        if self._serializer is None:
            self._serializer = _serializer_of(self.schema_text, self.runtime_class)
        return self._serializer

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """Return as is for the same schema, else whether Avro can read the old with the new."""
        if not isinstance(old, AvroSerializerSnapshot):
            return incompatible(old.type_name, self.type_name, "the serializer is another one")
        new, before = json.loads(self.schema_text), json.loads(old.schema_text)
        if same_schema(new, before):
            return as_is()
        reasons = resolve_schemas(new, before)
        if not reasons:
            rule = "another schema, which Avro resolves"
            if self.runtime_class == GENERIC_RECORD:
                # `AvroFactory.fromGeneric` reads with the old schema, and writes with the new
                rule += "; but Flink writes a GenericRecord's fields by position: migrate it here"
            return migrate(old.type_name, self.type_name, rule)
        return Compatibility(Verdict.INCOMPATIBLE, tuple(reasons))


@register
class AvroSchemaSerializerConfigSnapshot(AvroSerializerSnapshot):
    """`AvroSerializer$AvroSchemaSerializerConfigSnapshot`, the former name of the same class."""

    java_class = (
        "org.apache.flink.formats.avro.typeutils.AvroSerializer$AvroSchemaSerializerConfigSnapshot"
    )
