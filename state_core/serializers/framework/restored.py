"""Serializers within the limits of tables: values too wide or too deep become bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import pyarrow as pa

from statelake.state_core.bounds import COLUMN_NESTING, COLUMNS
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer

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
