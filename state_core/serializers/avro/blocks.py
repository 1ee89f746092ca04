"""What an Avro schema has many of: arrays and maps, in blocks.

Source: `org.apache.flink.formats.avro.utils.DataOutputEncoder` and `DataInputDecoder`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from state_core.bounds import EMPTY_ELEMENTS
from state_core.errors import EncodeError
from state_core.files.wire import DataInput, DataOutput
from state_core.serializers.avro.schema_types import AvroString
from state_core.serializers.framework.base import TypeSerializer

__all__ = ["AvroArray", "AvroMap"]


class AvroArray(TypeSerializer):
    """`array`: blocks of items."""

    def __init__(self, item: TypeSerializer) -> None:
        self.item = item
        self.arrow_type = pa.list_(item.arrow_type)

    @property
    def name(self) -> str:
        """`array<...>`."""
        return f"array<{self.item.name}>"

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
        for one in value:
            self.item.write(one, out)
        out.write_byte(0)


class AvroMap(TypeSerializer):
    """`map`: blocks of string keys and values."""

    def __init__(self, value: TypeSerializer) -> None:
        self.value = value
        self.key = AvroString()
        self.arrow_type = pa.map_(pa.string(), value.arrow_type)

    @property
    def name(self) -> str:
        """`map<...>`."""
        return f"map<{self.value.name}>"

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
        for key, one in pairs:
            self.key.write(key, out)
            self.value.write(one, out)
        out.write_byte(0)


def _block(source: DataInput, least: int) -> int:
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
    if count * least > source.remaining or (not least and count > EMPTY_ELEMENTS.most):
        raise source.fault(f"a block of {count} items in {source.remaining} bytes")
    return count
