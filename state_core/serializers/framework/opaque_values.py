"""Values that only their own class understands: carried as bytes if their end is known.

A class that Kryo writes is such a type, and so is every composite type with a part whose end can't
be found in its bytes. Values too wide or too deep for a table become bytes as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import pyarrow as pa

from statelake.state_core.bounds import COLUMN_NESTING, COLUMNS
from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.kernels import decode, encode
from statelake.state_core.serializers.framework.base import (
    TypeSerializer,
    TypeSerializerSnapshot,
    named,
)
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

_is_key: ContextVar[bool] = ContextVar("is_key", default=False)


def restore_bounded(snapshot: TypeSerializerSnapshot) -> TypeSerializer:
    """Return the snapshot's serializer, or bytes under its name if it has too many columns."""
    serializer = snapshot.restore_serializer()
    columns, levels = _measure(serializer.arrow_type)
    if columns <= COLUMNS.most and levels <= COLUMN_NESTING.most:
        return serializer
    return OpaqueSerializer(serializer.name)


@contextmanager
def as_key() -> Iterator[None]:
    """Restore serializers of keys and namespaces in this thread, until the context ends.

    Entries are found by these bytes, so a type whose equal values may have several forms stays
    bytes.
    """
    token = _is_key.set(True)
    try:
        yield
    finally:
        _is_key.reset(token)


def is_key() -> bool:
    """Return whether this thread restores the serializer of a key or a namespace."""
    return _is_key.get()


def restore_key(snapshot: TypeSerializerSnapshot) -> TypeSerializer:
    """Return the serializer of a key or a namespace, as `restore_bounded` does."""
    with as_key():
        return restore_bounded(snapshot)


def count_columns(schema: pa.Schema) -> int:
    """Return the number of a state's columns, including nested ones."""
    return sum(_measure(field.type)[0] for field in schema)


def _measure(kind: pa.DataType) -> tuple[int, int]:
    """Return the number of a type's columns, including nested ones, and their depth."""
    columns, deepest = 1, 0
    struct = pa.types.is_struct(kind)
    for field in kind if struct else [kind.field(i) for i in range(kind.num_fields)]:
        more, levels = _measure(field.type)
        columns += more
        deepest = max(deepest, levels)
    return columns, deepest + 1


class OpaqueSerializer(TypeSerializer):
    """A type whose bytes only its own class understands: they are kept as they are.

    A value extends to the end of its entry, so it must be the last part.
    """

    arrow_type = pa.binary()
    self_delimiting = False
    name = named("binary ({java_class})")

    def __init__(self, java_class: str = "unknown") -> None:
        self.java_class = java_class

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
        if not pa.types.is_binary(values.type):
            raise EncodeError(f"{values.type} where there should be bytes, of a {self.name}")
        require_values(values, present, self.name)
        return variable_sizes(values, present)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the bytes as they are."""
        offsets, data = variable_values(values)
        encode.write_units(offsets, data, target.present, target.out, target.position)
