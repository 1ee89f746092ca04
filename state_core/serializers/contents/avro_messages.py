"""Messages of Avro behind the number of their schema, as a schema registry's clients write them.

A message is a zero byte, the schema's number as an i32, and Avro's own binary encoding: integers
are zigzag varints, floating point is little-endian, lengths and counts are varints. The column has
the fields of the newest schema, and `schema_id`. A message of an older one is resolved, and keeps
its exact bytes.

Source: Avro's specification 1.12, "Binary Encoding"; `io.confluent.kafka.serializers`.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from statelake.state_core.bounds import EMPTY_ELEMENTS
from statelake.state_core.errors import EncodeError, StateError
from statelake.state_core.files.wire import DataInput, DataOutput
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
from statelake.state_core.serializers.avro.serializer import AvroSerializer, AvroSerializerSnapshot
from statelake.state_core.serializers.basic.numbers import (
    BooleanSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntSerializer,
    LongSerializer,
)
from statelake.state_core.serializers.contents.content import Content, UnfitError
from statelake.state_core.serializers.framework.base import TypeSerializer

ANY_ID = "*"  # in the place of a number: every message has this schema
MAGIC, HEAD_BYTES = 0, 5
SCHEMA_ID, WHOLE = "schema_id", "value"
_REMEDY = (
    'give a file with the schema, or with all schemas by number: {"7": {"type": "record", ...}}'
)
_INT_BITS, _LONG_BITS = 32, 64


def _read_long(source: DataInput, bits: int = _LONG_BITS) -> int:
    value = shift = 0
    while shift < _LONG_BITS + 6:
        byte = source.read_unsigned_byte()
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if value >= 1 << bits:
                break
            return value >> 1 ^ -(value & 1)
    raise source.fault(f"a number of more than {bits} bits")


def _write_long(value: Any, out: DataOutput, bits: int = _LONG_BITS) -> None:
    if type(value) is not int or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise EncodeError(f"{value!r} is no number of {bits} bits")
    rest = (value << 1 ^ value >> bits - 1) & (1 << bits) - 1
    while rest > 0x7F:
        out.write_byte(rest & 0x7F | 0x80)
        rest >>= 7
    out.write_byte(rest)


def _read_sized(source: DataInput) -> bytes:
    size = _read_long(source)
    if not 0 <= size <= source.remaining:
        raise source.fault(f"{size} bytes, of which {source.remaining} are there")
    return source.read_bytes(size)


def _write_sized(data: bytes, out: DataOutput) -> None:
    _write_long(len(data), out)
    out.write_bytes(data)


def _index(source: DataInput, count: int) -> int:
    index = _read_long(source, _INT_BITS)
    if not 0 <= index < count:
        raise source.fault(f"number {index} of {count}")
    return index


def _read_items(source: DataInput, read: Any, empty: bool) -> list[Any]:
    """Return the items of all blocks of an array, or of a map."""
    items: list[Any] = []
    while count := _read_long(source):
        if count < 0:  # the block's size follows, for readers that skip it
            count = -count
            _read_long(source)
        if count > (EMPTY_ELEMENTS.most - len(items) if empty else source.remaining):
            raise source.fault(f"a block of {count} items in {source.remaining} bytes")
        items += [read() for _ in range(count)]
    return items


def _is_empty(kind: TypeSerializer) -> bool:
    """Return whether values may take no bytes."""
    if isinstance(kind, AvroRecord):
        return all(_is_empty(member) for _, member in kind.fields)
    return isinstance(kind, AvroNull | AvroEmptyRecord) or (
        isinstance(kind, AvroFixed) and kind.size == 0
    )


def _read(kind: TypeSerializer, source: DataInput) -> Any:
    """Read a value in Avro's binary encoding."""
    if isinstance(kind, AvroRecord):
        return {name: _read(member, source) for name, member in kind.fields}
    if isinstance(kind, AvroOptional):
        return None if _index(source, 2) == kind.null_index else _read(kind.value, source)
    if isinstance(kind, AvroString):
        return _read_sized(source).decode()
    if isinstance(kind, IntSerializer):
        return _read_long(source, _INT_BITS)
    if isinstance(kind, LongSerializer):
        return _read_long(source)
    if isinstance(kind, DoubleSerializer):
        return struct.unpack("<d", source.read_bytes(8))[0]
    if isinstance(kind, FloatSerializer):
        return struct.unpack("<f", source.read_bytes(4))[0]
    if isinstance(kind, BooleanSerializer):
        return _index_byte(source)
    if isinstance(kind, AvroBytes):
        return _read_sized(source)
    if isinstance(kind, AvroEnum):
        return kind.constants[_index(source, len(kind.constants))]
    if isinstance(kind, AvroArray):
        item = kind.item
        return _read_items(source, lambda: _read(item, source), _is_empty(item))
    if isinstance(kind, AvroMap):
        value = kind.value
        pairs = _read_items(
            source, lambda: (_read_sized(source).decode(), _read(value, source)), empty=False
        )
        if len({name for name, _ in pairs}) < len(pairs):
            raise source.fault("a map with a name twice")
        return pairs
    if isinstance(kind, AvroUnion):
        at = _index(source, len(kind.branches))
        branches: dict[str, Any] = {f"b{i}": None for i in range(len(kind.branches))}
        branches[f"b{at}"] = _read(kind.branches[at], source)
        return {"branch": at, **branches}
    return kind.read(source)  # null, a fixed, a record without fields: as Flink writes them


def _index_byte(source: DataInput) -> bool:
    byte = source.read_byte()
    if byte not in (0, 1):
        raise source.fault(f"{byte} for a boolean")
    return bool(byte)


def _write(kind: TypeSerializer, value: Any, out: DataOutput) -> None:
    """Write a value in Avro's binary encoding."""
    if isinstance(kind, AvroRecord):
        for name, member in kind.fields:
            _write(member, value[name], out)
    elif isinstance(kind, AvroOptional):
        _write_long(kind.null_index if value is None else 1 - kind.null_index, out)
        if value is not None:
            _write(kind.value, value, out)
    elif isinstance(kind, AvroString):
        _write_sized(value.encode(), out)
    elif isinstance(kind, IntSerializer):
        _write_long(value, out, _INT_BITS)
    elif isinstance(kind, LongSerializer):
        _write_long(value, out)
    elif isinstance(kind, DoubleSerializer):
        out.write_bytes(struct.pack("<d", value))
    elif isinstance(kind, FloatSerializer):
        out.write_bytes(struct.pack("<f", value))
    elif isinstance(kind, AvroBytes):
        _write_sized(value, out)
    elif isinstance(kind, AvroEnum):
        _write_long(kind.constants.index(value), out)
    elif isinstance(kind, AvroArray | AvroMap):
        items = list(value.items()) if isinstance(value, dict) else value
        if items:
            _write_long(len(items), out)
        for item in items:
            if isinstance(kind, AvroMap):
                _write_sized(item[0].encode(), out)
                _write(kind.value, item[1], out)
            else:
                _write(kind.item, item, out)
        out.write_byte(0)
    elif isinstance(kind, AvroUnion):
        at = value["branch"]
        _write_long(range(len(kind.branches))[at], out)
        _write(kind.branches[at], value[f"b{at}"], out)
    else:  # a boolean, null, a fixed, a record without fields: as Flink writes them
        kind.write(value, out)


@lru_cache(maxsize=256)
def _serializer(schema: str) -> AvroSerializer:
    """Return the types of a schema.

    Raises:
        EncodeError: It is no schema, or has no column type.
    """
    serializer = AvroSerializerSnapshot.of(schema).restore_serializer()
    if not isinstance(serializer, AvroSerializer) or serializer.recursive:
        raise EncodeError(
            "the Avro schema contains itself, or is too wide, so it has no columns",
            remedy="leave the state's bytes as they are",
        )
    return serializer


def read_avro(schema: str, source: DataInput) -> Any:
    """Read a value of a schema in Avro's binary encoding.

    Raises:
        EncodeError: It is no schema, or has no column type.
        CorruptSnapshotError: It is no value of the schema.
    """
    kind = _serializer(schema).value
    try:
        return _read(kind, source)
    except UnicodeDecodeError as error:
        raise source.fault(f"no value of its schema of Avro ({error})") from error


def _resolved(body: bytes, writer: AvroSerializer, reader: AvroSerializer) -> bytes:
    """Return a message of one schema as one of another, by Avro's rules.

    Raises:
        ValueError: The schemas do not resolve, or not for this message.
    """
    import fastavro  # noqa: PLC0415 - only for messages of older schemas

    before, after = (_fast_schema(each.schema_text) for each in (writer, reader))
    out = io.BytesIO()
    try:
        value = fastavro.schemaless_reader(io.BytesIO(body), before, after)
        fastavro.schemaless_writer(out, after, value)
    except (
        fastavro.schema.SchemaParseException, fastavro.read.SchemaResolutionError, AttributeError,
        EOFError, LookupError, OverflowError, TypeError,
    ) as error:  # fmt: skip
        raise ValueError(str(error)) from error
    return out.getvalue()


@lru_cache(maxsize=256)
def _fast_schema(schema: str) -> Any:
    import fastavro  # noqa: PLC0415 - only for messages of older schemas

    return fastavro.parse_schema(json.loads(schema))


class AvroMessages(Content):
    """Messages of some schemas of a registry.

    Args:
        schemas: The schemas as JSON text, by number, the newest last; under `*` that of every
            message.

    Attributes:
        fields: The columns of a message but `schema_id`, with their types.

    Raises:
        EncodeError: A schema is not valid, or has no column type.
    """

    def __init__(self, schemas: Mapping[str, str]) -> None:
        self.schemas = {number: _serializer(schema) for number, schema in schemas.items()}
        self.newest, self.reader = list(self.schemas.items())[-1]
        kind = self.reader.arrow_type
        self.is_record = pa.types.is_struct(kind) and isinstance(self.reader.value, AvroRecord)
        members = [kind.field(i) for i in range(kind.num_fields)] if self.is_record else []
        if not self.is_record:
            members = [pa.field(WHOLE, kind)]
        self.id_name = SCHEMA_ID
        while any(member.name.lower() == self.id_name for member in members):
            self.id_name = f"_{self.id_name}"
        self.arrow_type = pa.struct([*members, pa.field(self.id_name, pa.int32())])
        record = self.reader.value
        self.fields = record.fields if isinstance(record, AvroRecord) else [(WHOLE, record)]
        self.name = f"{self.reader.name} of a registry"

    @classmethod
    def parse(cls, text: str) -> AvroMessages:
        """Return the content of the rest of a saying, or of a file.

        Raises:
            EncodeError: There is no schema in it.
        """
        try:
            schemas = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise EncodeError(f"no schema of Avro ({error})", remedy=_REMEDY) from error
        if not isinstance(schemas, dict) or "type" in schemas:
            schemas = {ANY_ID: schemas}
        numbers = [number for number in schemas if number != ANY_ID]
        if not schemas or any(not each.isdecimal() or int(each) >= 1 << 31 for each in numbers):
            raise EncodeError("schemas that are not by number", remedy=_REMEDY)
        if numbers and len(numbers) < len(schemas):
            raise EncodeError(f"a schema of {ANY_ID}, beside others by number", remedy=_REMEDY)
        ordered = sorted(schemas, key=lambda number: (len(number), number))
        return cls({number: json.dumps(schemas[number]) for number in ordered})

    @property
    def saying(self) -> str:
        """The saying that is kept with a state."""
        schemas = {number: json.loads(each.schema_text) for number, each in self.schemas.items()}
        return f"avro {json.dumps(schemas, ensure_ascii=False, separators=(',', ':'))}"

    def read(self, data: bytes) -> Any:
        """Return the value of a message."""
        if len(data) < HEAD_BYTES or data[0] != MAGIC:
            raise UnfitError("no message of a registry")
        number = int.from_bytes(data[1:HEAD_BYTES], "big", signed=True)
        writer = self.schemas.get(ANY_ID) or self.schemas.get(str(number))
        if writer is None:
            raise UnfitError(f"schema {number} is not there")
        body = data[HEAD_BYTES:]
        try:
            source = DataInput(body)
            value = _read(writer.value, source)
            if source.remaining:
                raise UnfitError("bytes behind the message")
            if writer is not self.reader:
                value = _read(self.reader.value, DataInput(_resolved(body, writer, self.reader)))
        except (StateError, ValueError, RecursionError) as error:
            raise UnfitError(str(error)) from error
        members = value if self.is_record else {WHOLE: value}
        return {**members, self.id_name: number}

    def write(self, value: Any) -> bytes:
        """Return the message of a value of the newest schema."""
        try:
            number = value[self.id_name]
            if self.newest not in (ANY_ID, str(number)):
                raise EncodeError(
                    f"a message of schema {number}, and only those of {self.newest} are written",
                    remedy=f"set {self.id_name} to {self.newest}",
                )
            out = DataOutput()
            out.write_byte(MAGIC)
            out.write_int(number)
            _write(self.reader.value, value if self.is_record else value[WHOLE], out)
        except (
            AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError,
            ValueError, struct.error,
        ) as error:  # fmt: skip
            raise EncodeError(
                f"{str(value)[:200]} is no message of {self.reader.name} ({error})"
            ) from error
        return out.to_bytes()
