"""The types of an Avro schema, in Flink's own encoding.

Flink does not write Avro's binary encoding: numbers have their full width, big-endian; a string or
bytes have an i32 length, an enum and a union an i32 index; arrays and maps are blocks, each an
unsigned LEB128 count and its items, ended by a zero byte.

Source: `org.apache.flink.formats.avro.utils.DataOutputEncoder` and `DataInputDecoder`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from statelake.state_core.bounds import EMPTY_ELEMENTS
from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.basic.enums import EnumSerializer
from statelake.state_core.serializers.basic.numbers import IntSerializer
from statelake.state_core.serializers.basic.text import ByteArraySerializer, SizedSerializer
from statelake.state_core.serializers.composite.structs import StructSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer, named
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I64Array,
    Target,
    U8Array,
    fixed_sizes,
    null_rows,
    written_rows,
)
from statelake.state_core.serializers.framework.exact_values import reads_exact
from statelake.state_core.serializers.framework.layouts import NOTHING, ByteLayout, choice, fixed

_INT = IntSerializer()
_BYTES = ByteArraySerializer()


class AvroNull(TypeSerializer):
    """`null`: no bytes; a column of nulls, in a type that Parquet has."""

    name = "null"
    arrow_type = pa.binary()
    length = 0
    byte_layout = NOTHING

    def read(self, source: DataInput) -> None:
        """Read nothing, and return None."""

    def write(self, value: Any, out: DataOutput) -> None:
        """Write nothing."""
        if value is not None:
            raise EncodeError(f"{value!r} where an Avro schema has null")

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read a column of nulls."""
        return pa.nulls(cursor.rows, self.arrow_type)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return 0 for every row."""
        return np.zeros(len(values), np.int64)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write nothing."""


class AvroBytes(ByteArraySerializer):
    """`bytes`: an i32 length and the bytes."""

    name = "bytes"


class AvroString(SizedSerializer):
    """`string`: an i32 length and UTF-8; if invalid, the exact bytes are kept beside the text."""

    name = "string"
    arrow_type = pa.string()

    def read(self, source: DataInput) -> str:
        """Read one string; invalid UTF-8 becomes lone surrogates, which `write` converts back."""
        errors = "replace" if reads_exact() else "surrogateescape"  # no text has half a character
        return _BYTES.read(source).decode("utf-8", errors)

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one string."""
        if not isinstance(value, str):
            raise EncodeError(f"{value!r} is no string")
        _BYTES.write(value.encode("utf-8", "surrogateescape"), out)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read a string column."""
        column = _BYTES.decode(cursor)
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            return _mended(column, cursor)


def _mended(column: pa.Array, cursor: Cursor) -> pa.Array:
    """Return text in which invalid UTF-8 is replaced, with its rows marked inexact."""
    texts: list[str | None] = []
    for row, value in enumerate(column.to_pylist()):
        text = None if value is None else value.decode("utf-8", "replace")
        if text is not None and text.encode() != value:
            cursor.inexact[row] = 1
        texts.append(text)
    return pa.array(texts, pa.string())


class AvroFixed(TypeSerializer):
    """`fixed`: bytes of a fixed size."""

    arrow_type = pa.binary()
    name = named("fixed {full_name}({size})")

    def __init__(self, full_name: str, size: int) -> None:
        self.full_name = full_name
        self.size = size

    @property
    def byte_layout(self) -> ByteLayout:
        """The bytes."""
        return fixed(self.size)

    def read(self, source: DataInput) -> bytes:
        """Read one value."""
        return source.read_bytes(self.size)

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value."""
        if not isinstance(value, bytes) or len(value) != self.size:
            raise EncodeError(f"{value!r} is not {self.size} bytes")
        out.write_bytes(value)


class AvroEnum(EnumSerializer):
    """`enum`: the i32 index of its symbol."""

    name = named("enum {enum_class}")
    word = "symbol"


class AvroEmptyRecord(TypeSerializer):
    """`record` without fields: no bytes; binary, since Parquet has no struct without fields."""

    arrow_type = pa.binary()
    length = 0
    byte_layout = NOTHING
    name = named("record {full_name}")

    def __init__(self, full_name: str) -> None:
        self.full_name = full_name

    def read(self, source: DataInput) -> bytes:
        """Read nothing, and return an empty value that is not null."""
        return b""

    def write(self, value: Any, out: DataOutput) -> None:
        """Write nothing."""
        if value != b"":
            raise EncodeError(f"{value!r} where {self.name} has no fields")


class AvroRecord(StructSerializer):
    """`record`: its fields in order, each with its name."""

    name = named("record {full_name}")

    def __init__(self, full_name: str, fields: list[tuple[str, TypeSerializer]]) -> None:
        super().__init__(fields)
        self.full_name = full_name


class AvroOptional(TypeSerializer):
    """A union of null and one other schema: an i32 index, then the value unless it is null."""

    name = named("{value}?")

    def __init__(self, value: TypeSerializer, null_index: int) -> None:
        self.value = value
        self.null_index = null_index
        self.arrow_type = value.arrow_type

    @property
    def byte_layout(self) -> ByteLayout:
        """The index of a branch, then the value or nothing."""
        branches = (NOTHING, self.value) if self.null_index == 0 else (self.value, NOTHING)
        return choice(branches, width=4)

    def read(self, source: DataInput) -> Any:
        """Read one value, or None."""
        index = source.read_int()
        if index not in (0, 1):
            raise source.fault(f"branch {index} of a union of 2")
        return None if index == self.null_index else self.value.read(source)

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value, or None."""
        out.write_int(self.null_index if value is None else 1 - self.null_index)
        if value is not None:
            self.value.write(value, out)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read a column with nulls."""
        index = cursor.read_int32("a union")
        bad = cursor.there & (index != 0) & (index != 1)
        cursor.refuse(bad, lambda row: f"branch {index[row]} of a union of 2")
        return self.value.decode(cursor.only((index != self.null_index).astype(np.uint8)))

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return four bytes, and those of the value."""
        written = written_rows(values, present)
        return fixed_sizes(len(values), 4, present) + self.value.sizes(values, written)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the index of the branch, then the value."""
        index = np.where(null_rows(values), self.null_index, 1 - self.null_index)
        _INT.encode(pa.array(index.astype(np.int32)), target)
        self.value.encode(values, target.valued(values))


class AvroUnion(TypeSerializer):
    """Any other union: a struct with the branch's index, and a field for each branch."""

    def __init__(self, branches: list[TypeSerializer]) -> None:
        self.branches = branches
        fields = [pa.field(f"b{i}", branch.arrow_type) for i, branch in enumerate(branches)]
        self.arrow_type = pa.struct([pa.field("branch", pa.int32()), *fields])

    @property
    def name(self) -> str:
        """Its branches."""
        return f"union<{', '.join(branch.name for branch in self.branches)}>"

    @property
    def byte_layout(self) -> ByteLayout:
        """The index of a branch, then its value."""
        return choice(self.branches, width=4)

    def read(self, source: DataInput) -> dict[str, Any]:
        """Read one value, in the field of its branch."""
        index = source.read_int()
        if not 0 <= index < len(self.branches):
            raise source.fault(f"branch {index} of a union of {len(self.branches)}")
        branches: dict[str, Any] = {f"b{i}": None for i in range(len(self.branches))}
        branches[f"b{index}"] = self.branches[index].read(source)
        return {"branch": index, **branches}

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value."""
        index = value.get("branch") if isinstance(value, dict) else None
        if not isinstance(index, int) or not 0 <= index < len(self.branches):
            raise EncodeError(f"{value!r} names no branch of {self.name}")
        out.write_int(index)
        self.branches[index].write(value.get(f"b{index}"), out)


class AvroArray(TypeSerializer):
    """`array`: blocks of items."""

    name = named("array<{item}>")

    def __init__(self, item: TypeSerializer) -> None:
        self.item = item
        self.arrow_type = pa.list_(item.arrow_type)

    def read(self, source: DataInput) -> list[Any]:
        """Read one array."""
        items: list[Any] = []
        while count := _block(source, self.item.min_length):
            items += [self.item.read(source) for _ in range(count)]
        return items

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one array, in one block."""
        if not isinstance(value, list):
            raise EncodeError(f"{value!r} is no array")
        if value:
            out.write_varint(len(value))
        for item in value:
            self.item.write(item, out)
        out.write_byte(0)


class AvroMap(TypeSerializer):
    """`map`: blocks of string keys and values."""

    name = named("map<{value}>")

    def __init__(self, value: TypeSerializer) -> None:
        self.value = value
        self.key = AvroString()
        self.arrow_type = pa.map_(pa.string(), value.arrow_type)

    def read(self, source: DataInput) -> list[tuple[str, Any]]:
        """Read one map, as pairs."""
        pairs: list[tuple[str, Any]] = []
        while count := _block(source, 4 + self.value.min_length):
            pairs += [(self.key.read(source), self.value.read(source)) for _ in range(count)]
        return pairs

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one map, in one block."""
        pairs = list(value.items()) if isinstance(value, dict) else value
        if not isinstance(pairs, list):
            raise EncodeError(f"{value!r} is no map")
        if pairs:
            out.write_varint(len(pairs))
        for key, item in pairs:
            self.key.write(key, out)
            self.value.write(item, out)
        out.write_byte(0)


def _block(source: DataInput, min_length: int) -> int:
    """Read the number of a block's items; 0 at the end."""
    count = shift = 0
    while True:
        byte = source.read_unsigned_byte()
        count |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
        if shift > 56:
            raise source.fault("a block's count that does not end")
    if count * min_length > source.remaining or (not min_length and count > EMPTY_ELEMENTS.most):
        raise source.fault(f"a block of {count} items in {source.remaining} bytes")
    return count
