"""Serializers as tables can hold them: what is too wide or too deep for columns becomes bytes."""

from __future__ import annotations

import pyarrow as pa

from state_core.bounds import COLUMN_NESTING, COLUMNS
from state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from state_core.serializers.framework.opaque_values import OpaqueSerializer

__all__ = ["count_columns", "restore_bounded"]


def restore_bounded(snapshot: TypeSerializerSnapshot) -> TypeSerializer:
    """The snapshot's serializer, or bytes under its name if it has too many columns."""
    serializer = snapshot.restore_serializer()
    columns, levels = _measure(serializer.arrow_type)
    if columns <= COLUMNS.most and levels <= COLUMN_NESTING.most:
        return serializer
    return OpaqueSerializer(serializer.name)


def count_columns(schema: pa.Schema) -> int:
    """The columns of a state, with those within them."""
    return sum(_measure(field.type)[0] for field in schema)


def _measure(kind: pa.DataType) -> tuple[int, int]:
    """How many columns a type is, with those within it, and how deep they are nested."""
    columns, deepest = 1, 0
    struct = pa.types.is_struct(kind)
    for field in kind if struct else [kind.field(i) for i in range(kind.num_fields)]:
        more, levels = _measure(field.type)
        columns += more
        deepest = max(deepest, levels)
    return columns, deepest + 1
