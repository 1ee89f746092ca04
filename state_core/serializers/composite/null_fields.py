"""Fields of POJOs that are null and may be of a primitive type, which Flink can't restore.

A snapshot does not say whether a field is `long` or `Long`: both have one serializer, and a flag in
front of each value that says whether it is null. Flink fails on that flag if the field is `long`.
So a null is safe only where Flink itself wrote one before, or where someone says that it is boxed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from state_core.errors import EncodeError
from state_core.serializers.basic.numbers import (
    BooleanSerializer,
    CharSerializer,
    FixedWidthSerializer,
)
from state_core.serializers.composite.collections import (
    DelimitedListSerializer,
    ListSerializer,
    MapSerializer,
)
from state_core.serializers.composite.pojo import PojoSerializer
from state_core.serializers.composite.structs import StructSerializer
from state_core.serializers.framework.base import TypeSerializer

__all__ = ["NullField", "null_fields"]

PRIMITIVE = (FixedWidthSerializer, BooleanSerializer, CharSerializer)


@dataclass(frozen=True)
class NullField:
    """A field that is null, of a type that may be primitive.

    Attributes:
        path: Where it is, as Parquet calls the column.
        siblings: The paths of the POJO's other fields.
        java_class: The POJO's class.
        kind: The field's type.
    """

    path: str
    siblings: tuple[str, ...]
    java_class: str
    kind: str

    def error(self) -> EncodeError:
        """The error to raise where Flink never wrote such a null."""
        names = [part for part in self.path.split(".") if part not in WRAPPERS]
        return EncodeError(
            f"field {'.'.join(names)} of {self.java_class} would be null, and Flink fails to"
            f" restore that if its type is a primitive one ({self.kind})",
            remedy="change single fields with struct_update(value, field := ...), which leaves the"
            " others as they are",
        )


WRAPPERS = ("list", "element", "key_value")


def null_fields(serializer: TypeSerializer, column: pa.Array, path: str) -> Iterator[NullField]:
    """Find fields that are null in a POJO which is not.

    Args:
        serializer: The values' serializer; a POJO's fields that are boxed may be null.
        column: The values.
        path: What Parquet calls the column.
    """
    if isinstance(serializer, PojoSerializer):
        yield from _of_pojo(serializer, column, path)
    if isinstance(serializer, StructSerializer) and pa.types.is_struct(column.type):
        present = column.filter(column.is_valid())
        for name, field in serializer.fields:
            if present.type.get_field_index(name) >= 0:
                yield from null_fields(field, present.field(name), f"{path}.{name}")
    elif isinstance(serializer, ListSerializer | DelimitedListSerializer):
        if pa.types.is_list(column.type):
            yield from null_fields(serializer.element, column.flatten(), f"{path}.list.element")
    elif isinstance(serializer, MapSerializer) and pa.types.is_map(column.type):
        present = column.filter(column.is_valid())
        yield from null_fields(serializer.value, present.items, f"{path}.key_value.value")


def _of_pojo(serializer: PojoSerializer, column: pa.Array, path: str) -> Iterator[NullField]:
    present = column.filter(column.is_valid())
    names = [name for name, _ in serializer.fields]
    for name, field in serializer.fields:
        if not isinstance(field, PRIMITIVE) or name in serializer.boxed:
            continue
        if (
            present.type.get_field_index(name) >= 0
            and pc.any(present.field(name).is_null()).as_py()
        ):
            siblings = tuple(f"{path}.{other}" for other in names if other != name)
            yield NullField(f"{path}.{name}", siblings, serializer.java_class, field.name.lower())
