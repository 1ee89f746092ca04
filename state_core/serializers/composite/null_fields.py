"""Null fields of POJOs that may be of a primitive type, which Flink can't restore.

A snapshot does not contain whether a field is `long` or `Long`: both have the same serializer, with
a null flag in front of each value. Flink fails on that flag if the field is `long`. So a null is
safe only if Flink itself wrote one before, or if the user declares the field as boxed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.errors import EncodeError
from statelake.state_core.serializers.basic.numbers import (
    BooleanSerializer,
    CharSerializer,
    FixedWidthSerializer,
)
from statelake.state_core.serializers.composite.collections import (
    DelimitedListSerializer,
    ListSerializer,
    MapSerializer,
    entries_of,
)
from statelake.state_core.serializers.composite.pojo import PojoSerializer
from statelake.state_core.serializers.composite.structs import StructSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import ALL_PRESENT

PRIMITIVE = (FixedWidthSerializer, BooleanSerializer, CharSerializer)


@dataclass(frozen=True)
class NullField:
    """A null field, of a type that may be primitive.

    Attributes:
        path: Its place: the path of the column in Parquet.
        siblings: The paths of the POJO's other fields.
        java_class: The POJO's class.
        kind: The field's type.
        remedy: The remedy.
    """

    path: str
    siblings: tuple[str, ...]
    java_class: str
    kind: str
    remedy: str = (
        "change single fields with struct_update(value, field := ...), which leaves the others as"
        " they are"
    )

    def was_written(self, null_counts: Mapping[str, int]) -> bool:
        """Return whether counts prove such a null: more than any other field of the POJO has.

        A POJO that is null counts as a null of each of its fields.

        Args:
            null_counts: The number of nulls in each column of a Parquet file, by path.
        """
        others = [
            count
            for path, count in null_counts.items()
            if any(path == other or path.startswith(f"{other}.") for other in self.siblings)
        ]
        return bool(others) and null_counts.get(self.path, 0) > min(others)

    def error(self) -> EncodeError:
        """Return the error to raise if Flink never wrote such a null."""
        name = ".".join(part for part in self.path.split(".") if part not in WRAPPERS)
        return EncodeError(
            f"field {name} of {self.java_class} would be null, and Flink fails to restore that if"
            f" its type is primitive ({self.kind})",
            remedy=self.remedy,
        )


WRAPPERS = ("list", "element", "key_value")


def null_fields(serializer: TypeSerializer, column: pa.Array, path: str) -> Iterator[NullField]:
    """Yield null fields in POJOs that are not null.

    Args:
        serializer: The values' serializer; a POJO's fields that are boxed may be null.
        column: The values.
        path: The path of the column in Parquet.
    """
    if isinstance(serializer, PojoSerializer):
        yield from _of_pojo(serializer, column, path)
    if isinstance(serializer, StructSerializer) and pa.types.is_struct(column.type):
        present = column.drop_null()
        for name, field in serializer.fields:
            if present.type.get_field_index(name) >= 0:
                yield from null_fields(field, present.field(name), f"{path}.{name}")
    elif isinstance(serializer, ListSerializer | DelimitedListSerializer):
        if pa.types.is_list(column.type):
            yield from null_fields(serializer.element, column.flatten(), f"{path}.list.element")
    elif isinstance(serializer, MapSerializer) and pa.types.is_map(column.type):
        _, _, items = entries_of(column, ALL_PRESENT)
        yield from null_fields(serializer.value, items, f"{path}.key_value.value")


def _of_pojo(serializer: PojoSerializer, column: pa.Array, path: str) -> Iterator[NullField]:
    present = column.drop_null()
    names = [name for name, _ in serializer.fields]
    for called, (name, field) in zip(serializer.names, serializer.fields, strict=True):
        if not isinstance(field, PRIMITIVE) or called in serializer.boxed:
            continue
        if (
            present.type.get_field_index(name) >= 0
            and pc.any(present.field(name).is_null()).as_py()
        ):
            siblings = tuple(f"{path}.{other}" for other in names if other != name)
            yield NullField(f"{path}.{name}", siblings, serializer.java_class, _java_name(field))


def _java_name(field: TypeSerializer) -> str:
    """Return Java's name of the primitive type."""
    return {"Integer": "int", "Character": "char"}.get(field.name, field.name.lower())
