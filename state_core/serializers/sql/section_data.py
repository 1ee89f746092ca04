"""Sections of the binary format in state: an i32 size, then a row, an array or a map.

Source: `RowDataSerializer`, `BinaryRowDataSerializer`, `ArrayDataSerializer` and
`MapDataSerializer` in `org.apache.flink.table.runtime.typeutils`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.kernels import encode
from statelake.state_core.serializers.basic.text import ByteArraySerializer
from statelake.state_core.serializers.composite.collections import offsets_of
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import (
    ALL_PRESENT,
    Cursor,
    I32Array,
    I64Array,
    Target,
    U8Array,
    fixed_sizes,
    present_rows,
)
from statelake.state_core.serializers.framework.layouts import sized
from statelake.state_core.serializers.sql.binary.sections import SectionFormat
from statelake.state_core.serializers.sql.table_data import bytes_hash_codes, locate_sized


class SectionSerializer(TypeSerializer):
    """A section of the binary format behind its i32 size.

    Args:
        section: The form of the section.
        name: The type, for messages.
    """

    name = ""
    byte_layout = sized()

    def __init__(self, section: SectionFormat, name: str) -> None:
        self.section = section
        self.name = name
        self.arrow_type = section.arrow_type

    def read(self, source: DataInput) -> Any:
        """Read one value."""
        place = source.place
        data = source.read_bytes(source.read_length("bytes"))
        bounds = np.zeros(1, np.int64), np.array([len(data)])
        cursor = Cursor(np.frombuffer(data, np.uint8), *bounds, lambda _: place)
        return self.section.decode(cursor).to_pylist()[0]

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value."""
        try:
            column = pa.array([value], self.arrow_type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise EncodeError(f"{value!r} is no {self.name} ({error})") from None
        size = int(self.section.sizes(column, ALL_PRESENT)[0])
        data = np.empty(size, np.uint8)
        self.section.encode(column, Target(data, np.zeros(1, np.int64)))
        out.write_int(size)
        out.write_bytes(data.tobytes())

    def skip(self, source: DataInput) -> None:
        """Move behind the bytes of one value."""
        source.read_bytes(source.read_length("bytes"))

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read the sections of all rows at once."""
        starts, ends = locate_sized(cursor, f"a {self.name}")
        inner = Cursor(cursor.data, starts, ends, cursor.place, cursor.present, cursor.inexact)
        return self.section.decode(inner)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return four bytes and those of the section."""
        return self.section.sizes(values, present) + fixed_sizes(len(values), 4, present)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the sizes, and each section behind its size."""
        sizes = self.section.sizes(values, target.present).astype(np.int32)
        encode.write_fixed32(sizes, target.present, target.out, target.position)
        self.section.encode(values, target)


class RowDataSerializer(SectionSerializer):
    """`RowData`: fields `f0`, `f1`, ...; the hash code is that of the bytes."""

    def hash_code(self, value: Any) -> int:
        """Return murmur over the row's bytes, by words."""
        out = DataOutput()
        self.write(value, out)
        return self.hash_code_at(DataInput(out.to_bytes()))

    def hash_code_at(self, source: DataInput) -> int:
        """Return the hash code of the next row, of any kind and layout."""
        return _hash_bytes(source.read_bytes(source.read_length("bytes")))

    def hash_codes(self, values: pa.Array) -> I32Array:
        """Return the hash code of every row; 0 for null."""
        present = present_rows(values)
        sizes = self.section.sizes(values, present)
        bounds = offsets_of(sizes)
        out = np.empty(int(bounds[-1]), np.uint8)
        self.section.encode(values, Target(out, bounds[:-1].copy(), present))
        codes = bytes_hash_codes(out, bounds[:-1], bounds[1:])
        if present.size:
            codes[present == 0] = 0
        return codes


class BinarySerializer(ByteArraySerializer):
    """A section of unknown content behind its size: kept as bytes."""

    def __init__(self, name: str) -> None:
        self.name = name

    def hash_code(self, value: Any) -> int:
        """Return murmur over the bytes."""
        return _hash_bytes(value)


def _hash_bytes(data: bytes) -> int:
    bounds = np.zeros(1, np.int64), np.array([len(data)])
    return int(bytes_hash_codes(np.frombuffer(data, np.uint8), *bounds)[0])
