"""Flink SQL's variants and bitmaps, each by itself in state.

Source: `VariantSerializer` and `BitmapSerializer` in
`org.apache.flink.api.common.typeutils.base`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.kernels import encode
from statelake.state_core.kernels.binary_rows import VALUE
from statelake.state_core.serializers.basic.text import ByteArraySerializer
from statelake.state_core.serializers.composite.structs import StructSerializer
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I64Array,
    Target,
    U8Array,
    require_values,
    variable_values,
)
from statelake.state_core.serializers.framework.snapshots import simple_snapshot
from statelake.state_core.serializers.sql.binary.columns import binary_column
from statelake.state_core.serializers.sql.table_data import presence

BASE = "org.apache.flink.api.common.typeutils.base."


class BitmapSerializer(ByteArraySerializer):
    """`Bitmap`: an i32 length and a Roaring bitmap, kept as bytes."""

    name = "Bitmap"


class VariantSerializer(StructSerializer):
    """`Variant`: two i32 lengths, then the value and its metadata in Parquet's variant encoding."""

    name = "Variant"
    min_length = 8
    byte_layout = None  # both lengths precede the parts, which no program walks

    def __init__(self) -> None:
        super().__init__([("value", ByteArraySerializer()), ("metadata", ByteArraySerializer())])

    def read(self, source: DataInput) -> dict[str, bytes]:
        """Read one variant."""
        lengths = source.read_int(), source.read_int()
        return {
            name: source.read_bytes(length)
            for (name, _), length in zip(self.fields, lengths, strict=True)
        }

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one variant."""
        parts = self._by_position(value)
        if not all(isinstance(part, bytes) for part in parts):
            raise EncodeError(f"{value!r} is no Variant")
        for part in parts:
            out.write_int(len(part))
        for part in parts:
            out.write_bytes(part)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read a struct of two binary columns."""
        lengths = [cursor.read_int32(f"a {self.name}").astype(np.int64) for _ in self.fields]
        columns, state = [], presence(cursor)
        for length in lengths:
            sizes = np.where(state == VALUE, length, 0)
            bad = np.flatnonzero((sizes < 0) | (sizes > cursor.end - cursor.position))
            cursor.check(int(bad[0]) if bad.size else -1, f"a {self.name}")
            starts = np.where(state == VALUE, cursor.position, 0)
            columns.append(binary_column(cursor.data, starts, starts + sizes, state))
            cursor.position += sizes
        return self._struct(cursor.present, columns, cursor.rows)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return eight bytes and those of both parts."""
        require_values(values, present, self.name)
        total = np.zeros(len(values), np.int64)
        for (_, serializer), column in zip(self.fields, self._columns(values), strict=True):
            total += serializer.sizes(column, present)
        return total

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write both lengths, then both parts."""
        columns = self._columns(values)
        for column in columns:
            lengths = np.diff(variable_values(column)[0]).astype(np.int32)
            encode.write_fixed32(lengths, target.present, target.out, target.position)
        for column in columns:
            offsets, data = variable_values(column)
            encode.write_units(offsets, data, target.present, target.out, target.position)


for _name, _serializer in (("Bitmap", BitmapSerializer), ("Variant", VariantSerializer)):
    simple_snapshot(f"{BASE}{_name}Serializer${_name}SerializerSnapshot", _serializer)
