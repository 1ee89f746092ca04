"""Values that only their own class understands: carried as bytes if their end is known.

A class that Kryo writes is such a type, and so is every composite type with a part whose end can't
be found in its bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.kernels import decode, encode
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I64Array,
    Target,
    U8Array,
    decode_bytes,
    require_values,
    variable_sizes,
    variable_values,
)


class OpaqueSerializer(TypeSerializer):
    """A type whose bytes only its own class understands: they are kept as they are.

    A value extends to the end of its entry, so it must be the last part.
    """

    arrow_type = pa.binary()
    self_delimiting = False

    def __init__(self, java_class: str = "unknown") -> None:
        self.java_class = java_class

    @property
    def name(self) -> str:
        """The Java class, marked as not understood."""
        return f"binary ({self.java_class})"

    def read(self, source: DataInput) -> bytes:
        """Read all bytes that are left."""
        return source.read_rest()

    def write(self, value: Any, out: DataOutput) -> None:
        """Write the bytes as they are."""
        if not isinstance(value, bytes):
            raise EncodeError(f"{value!r} is not bytes, and {self.java_class} is not understood")
        out.write_bytes(value)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read all bytes up to the end of each row."""
        column = decode_bytes(cursor, decode.read_units, "bytes")
        there = True if cursor.present.size == 0 else cursor.present != 0
        np.copyto(cursor.position, cursor.end, where=there)
        return column

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the lengths of the bytes."""
        require_values(values, present, self.name)
        return variable_sizes(values, present)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the bytes as they are."""
        offsets, data = variable_values(values)
        encode.write_units(offsets, data, target.present, target.out, target.position)
