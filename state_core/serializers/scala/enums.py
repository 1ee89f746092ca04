"""Scala's `Enumeration`: the number of a value, shown by its name.

Source: `EnumValueSerializer`, `ScalaEnumSerializerSnapshot` in
`org.apache.flink.api.scala.typeutils`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.basic.enums import EnumSerializer
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot, named
from statelake.state_core.serializers.framework.columns import Cursor, U8Array
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    as_is,
    incompatible,
)
from statelake.state_core.serializers.framework.registry import register


class ScalaEnumSerializer(EnumSerializer):
    """An `Enumeration`, whose numbers need not begin at 0 or be without gaps.

    Of two values with one name, the first is written; the other's exact bytes are kept.

    Args:
        enum_class: Its Java class.
        values: Each value's name and number.
    """

    name = named("Enumeration<{enum_class}>")

    def __init__(self, enum_class: str, values: tuple[tuple[str, int], ...]) -> None:
        super().__init__(enum_class, (name for name, _ in values))
        self.numbers = np.array([number for _, number in values], np.int32)
        self.index_of = {number: index for index, (_, number) in enumerate(values)}

    def read(self, source: DataInput) -> str:
        """Read one value's name."""
        number = source.read_int()
        if number not in self.index_of:
            raise source.fault(f"value {number} is not in {self.enum_class}")
        return self.constants[self.index_of[number]]

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value."""
        if value not in self.constants:
            raise EncodeError(f"{value!r} is no value of {self.enum_class}")
        out.write_int(int(self.numbers[self.constants.index(value)]))

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read the names of the constants."""
        numbers = cursor.read_int32(f"a value of {self.enum_class}")
        there = cursor.there
        indices = pc.index_in(pa.array(numbers, mask=~there), value_set=pa.array(self.numbers))
        bad = there & indices.is_null().to_numpy(zero_copy_only=False)
        cursor.refuse(bad, lambda row: f"value {numbers[row]} is not in {self.enum_class}")
        names = pa.array(self.constants, pa.string()).take(indices)
        again = self._ordinals(names, cursor.present).to_numpy()
        cursor.inexact |= (there & (again != numbers)).astype(np.uint8)
        return names

    def _ordinals(self, values: pa.Array, present: U8Array) -> pa.Array:
        indices = super()._ordinals(values, present)
        numbers = self.numbers if self.numbers.size else np.zeros(1, np.int32)
        return pa.array(numbers[indices.to_numpy()])


@register
class ScalaEnumSerializerSnapshot(TypeSerializerSnapshot):
    """`ScalaEnumSerializerSnapshot`: the class, and its values' names and numbers."""

    java_class = "org.apache.flink.api.scala.typeutils.ScalaEnumSerializerSnapshot"
    versions = range(2, 4)

    def __init__(self) -> None:
        self.enum_class = ""
        self.values: tuple[tuple[str, int], ...] = ()

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Read class, count, names and numbers."""
        self.check_version(version, source)
        self.enum_class = source.read_utf()
        count = source.read_members("values of an Enumeration", 6)
        self.values = tuple((source.read_utf(), source.read_int()) for _ in range(count))

    def write_snapshot(self, out: DataOutput) -> None:
        """Write class, count, names and numbers."""
        out.write_utf(self.enum_class)
        out.write_int(len(self.values))
        for name, number in self.values:
            out.write_utf(name)
            out.write_int(number)

    def restore_serializer(self) -> ScalaEnumSerializer:
        """Return the serializer with those values."""
        return ScalaEnumSerializer(self.enum_class, self.values)

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """Return as is if each old value's number is its position among the new ones.

        Flink takes the number for a position, and refuses even an unchanged Enumeration with gaps.
        """
        if not isinstance(old, ScalaEnumSerializerSnapshot) or old.enum_class != self.enum_class:
            return incompatible(old.type_name, self.type_name, "the Enumeration is another one")
        for name, number in old.values:
            there = self.values[number][0] if 0 <= number < len(self.values) else "none"
            if there != name:
                rule = f"the value in place {number} is another one"
                return incompatible(f"{name} = {number}", there, rule)
        return as_is()
