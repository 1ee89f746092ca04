"""Values of one of several types behind a number: sealed traits, Scala 3 enums, durations.

If no type has bytes (an enumeration of case objects) the column is the type's name, otherwise a
struct with the name and a field for each type that has bytes.

Source: `CoproductSerializer`, `Scala3EnumSerializer`, `ScalaCaseObjectSerializer` and
`DurationSerializer` in `org.apache.flinkx.api.serializer` of flink-scala-api.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.kernels import decode, encode
from statelake.state_core.nested import column_names, struct_column
from statelake.state_core.serializers.basic.values import ConstantSerializer
from statelake.state_core.serializers.composite.evolution import (
    MigrationRule,
    evolves,
    migrate_column,
    migrate_value,
)
from statelake.state_core.serializers.framework.base import VARIABLE, TypeSerializer
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I64Array,
    Target,
    U8Array,
    fixed_sizes,
    present_rows,
    require_values,
    struct_array,
)
from statelake.state_core.serializers.framework.layouts import ByteLayout, choice

MOST = 128  # types: the number is a signed byte
TYPE = "type"


class CaseObjectSerializer(ConstantSerializer):
    """A case object, or a constant of an enum: no bytes, as its class is its value."""

    content = b""

    def __init__(self, java_name: str) -> None:
        self.java_name = java_name  # type: ignore[misc] # of this type, not of the class


class SealedSerializer(TypeSerializer):
    """A value of one of several types: its number in a byte, then its bytes.

    Args:
        name: The name of the type.
        parts: The types, each with its label in the column.
        null: The number of null; None if there is no null.
        fixed: Whether Flink takes the length of the types, if they have one, for that of a value.
    """

    def __init__(
        self,
        name: str,
        parts: Sequence[tuple[str, TypeSerializer]],
        null: int | None,
        *,
        fixed: bool = False,
    ) -> None:
        self._name = name
        self.parts = dict(parts)
        self.null = null
        self.labels = pa.array(self.parts, pa.string())
        self.with_bytes = {label: part for label, part in parts if part.wire_length != 0}
        fields = [pa.field(label, part.arrow_type) for label, part in self.with_bytes.items()]
        self.arrow_type = pa.struct([pa.field(TYPE, pa.string()), *fields])
        if not fields:
            self.arrow_type = pa.string()
        lengths = {part.length for _, part in parts}
        self.length = lengths.pop() if fixed and len(lengths) == 1 else VARIABLE

    @property
    def name(self) -> str:
        """`SealedTrait<..., ...>`, or the name of another type of this form."""
        return self._name

    @property
    def wire_length(self) -> int:
        """The byte of the number, and the length of the types if they all have the same."""
        lengths = {part.wire_length for part in self.parts.values()}
        same = lengths.pop() if len(lengths) == 1 and self.null is None else VARIABLE
        return VARIABLE if same == VARIABLE else 1 + same

    @property
    def byte_layout(self) -> ByteLayout:
        """The number of a type, then a value of that type."""
        return choice([*self.parts.values()], None if self.null is None else 0)

    def read(self, source: DataInput) -> Any:
        """Read one value."""
        number = source.read_byte()
        if number == self.null:
            return None
        if not 0 <= number < len(self.parts):
            raise source.fault(self._no_type(number))
        label, part = list(self.parts.items())[number]
        value = part.read(source)
        if not self.with_bytes:
            return label
        shown: dict[str, Any] = {TYPE: label, **dict.fromkeys(self.with_bytes)}
        return shown | {label: value} if label in self.with_bytes else shown

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value."""
        if value is None and self.null is not None:
            out.write_byte(self.null)
            return
        label = value
        if self.with_bytes:
            label = value.get(TYPE) if isinstance(value, dict) else None
        if not isinstance(label, str) or label not in self.parts:
            raise EncodeError(f"{value!r} is no {self.name}", remedy=self._remedy)
        out.write_byte(list(self.parts).index(label))
        self.parts[label].write(value.get(label) if label in self.with_bytes else True, out)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read the numbers, then the values of each type."""
        bits = np.empty(cursor.rows, np.uint8)
        failed = decode.read_fixed8(cursor.data, cursor.position, cursor.end, cursor.present, bits)
        cursor.check(failed, f"the type of a value of {self.name}")
        numbers = bits.view(np.int8)
        there = cursor.there
        if self.null is not None:
            there = there & (numbers != self.null)
        bad = there & ((numbers < 0) | (numbers >= len(self.parts)))
        cursor.refuse(bad, lambda row: self._no_type(int(numbers[row])))
        inner = cursor.only(there.astype(np.uint8))
        columns = [
            part.decode(inner.only((numbers == index).astype(np.uint8)))
            for index, (label, part) in enumerate(self.parts.items())
            if label in self.with_bytes
        ]
        types = self.labels.take(pa.array(numbers.astype(np.int32), mask=~there))
        if not self.with_bytes:
            return types
        return struct_array(self.arrow_type, inner.present, (types, *columns), cursor.rows)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return one byte, and those of the value of its type."""
        if self.null is None:
            require_values(values, present, self.name)
        numbers = self._numbers(values, present)
        sizes = fixed_sizes(len(values), 1, present)
        for label, part, chosen in self._chosen(numbers, present):
            sizes += part.sizes(values.field(label), chosen)
        return sizes

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the numbers, then the values of each type."""
        numbers = self._numbers(values, target.present)
        null = 0 if self.null is None else self.null
        bits = np.where(numbers < 0, null, numbers).astype(np.int8).view(np.uint8)
        encode.write_fixed8(bits, target.present, target.out, target.position)
        for label, part, chosen in self._chosen(numbers, target.present):
            part.encode(values.field(label), Target(target.out, target.position, chosen))

    def _chosen(
        self, numbers: npt.NDArray[np.int64], present: U8Array
    ) -> list[tuple[str, TypeSerializer, U8Array]]:
        """Return each type that has bytes, with the rows that are of it."""
        chosen = []
        for index, (label, part) in enumerate(self.parts.items()):
            if label in self.with_bytes:
                rows = (numbers == index).astype(np.uint8)
                chosen.append((label, part, rows if present.size == 0 else rows & present))
        return chosen

    def _numbers(self, values: pa.Array, present: U8Array) -> npt.NDArray[np.int64]:
        """Return the number of each row's type, -1 for null; refuse a type that there is not."""
        types = values.field(TYPE) if self.with_bytes else values
        indexes = pc.fill_null(pc.index_in(types, value_set=self.labels), -1)
        numbers = np.asarray(indexes).astype(np.int64)
        valid = present_rows(values)
        if valid.size:
            numbers[valid == 0] = -1
        missing = numbers < 0
        if valid.size:
            missing &= valid != 0
        if present.size:
            missing &= present != 0
        rows = np.flatnonzero(missing)
        if rows.size:
            shown = types[int(rows[0])].as_py()
            raise EncodeError(f"{shown!r} is no type of {self.name}", remedy=self._remedy)
        return numbers

    def _no_type(self, number: int) -> str:
        return f"type {number} of {self.name}, which has {len(self.parts)}"

    @property
    def _remedy(self) -> str:
        what = f"`{TYPE}` is" if self.with_bytes else "it is"
        return f"{what} one of {', '.join(self.parts)}"


@evolves(SealedSerializer)
class SealedRule(MigrationRule):
    """Converts the values of each type, by its label; types may be added."""

    def column(self, old: SealedSerializer, new: SealedSerializer, column: pa.Array) -> pa.Array:
        """Convert the column of each type."""
        if not old.with_bytes and not new.with_bytes:
            return column
        types = column.field(TYPE) if old.with_bytes else column
        columns = [
            migrate_column(old.with_bytes[label], part, column.field(label))
            if label in old.with_bytes
            else pa.nulls(len(column), part.arrow_type)
            for label, part in new.with_bytes.items()
        ]
        return struct_column(new.arrow_type, [types, *columns], column)

    def value(self, old: SealedSerializer, new: SealedSerializer, value: Any) -> Any:
        """Convert one value."""
        label = value[TYPE] if old.with_bytes else value
        if not new.with_bytes:
            return label
        shown: dict[str, Any] = {TYPE: label, **dict.fromkeys(new.with_bytes)}
        if label in old.with_bytes and label in new.with_bytes:
            shown[label] = migrate_value(old.with_bytes[label], new.with_bytes[label], value[label])
        return shown


def labels_of(classes: Sequence[str]) -> list[str]:
    """Return a short name of each Java class: its own, or the whole one if others have it.

    Each is another one whatever its case, as columns are.
    """
    short = [name.rstrip("$").rpartition("$")[2].rpartition(".")[2] for name in classes]
    taken = [name.lower() for name in (*short, TYPE)]
    labels = [
        name if name and taken.count(name.lower()) == 1 else java_class
        for name, java_class in zip(short, classes, strict=True)
    ]
    return list(column_names(labels))
