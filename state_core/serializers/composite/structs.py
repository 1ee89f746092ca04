"""Tuples, rows and Java objects: consecutive fields.

Source: `org.apache.flink.api.java.typeutils.runtime` (`TupleSerializer`, `Tuple0Serializer`,
`RowSerializer`, `MaskUtils`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import CorruptSnapshotError, EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput, check_names
from statelake.state_core.kernels import decode, encode
from statelake.state_core.kernels.hashing import combine_hashes
from statelake.state_core.nested import column_names, struct_of
from statelake.state_core.serializers.composite.collections import ListSerializer, MapSerializer
from statelake.state_core.serializers.framework.base import (
    VARIABLE,
    TypeSerializer,
    named,
    to_int32,
)
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I32Array,
    I64Array,
    Target,
    U8Array,
    fixed_sizes,
    present_rows,
    require_values,
    struct_array,
    written_rows,
)
from statelake.state_core.serializers.framework.layouts import ByteLayout, masked, sequence
from statelake.state_core.serializers.framework.registry import register
from statelake.state_core.serializers.framework.snapshots import (
    CompositeTypeSerializerSnapshot,
    FlaggedSnapshot,
)

RUNTIME = "org.apache.flink.api.java.typeutils.runtime."


class StructSerializer(TypeSerializer):
    """Named, consecutive fields: an Arrow struct that is not null, nor are its fields.

    Args:
        fields: Each field's name and serializer.

    Attributes:
        names: The names of the fields in Flink.
        fields: Each field's column, which has another name if two differ only in their case, and
            its serializer.
    """

    def __init__(self, fields: list[tuple[str, TypeSerializer]]) -> None:
        self.names = tuple(name for name, _ in fields)
        check_names(self.names, "a field")
        kinds = [serializer for _, serializer in fields]
        self.fields = list(zip(column_names(self.names), kinds, strict=True))
        self.arrow_type = struct_of(self.names, (kind.arrow_type for kind in kinds))

    @property
    def parts(self) -> tuple[TypeSerializer, ...]:
        """The serializers of the fields."""
        return tuple(serializer for _, serializer in self.fields)

    @property
    def part_names(self) -> str:
        """The types of the fields."""
        return ", ".join(part.name for part in self.parts)

    @cached_property  # a schema that uses each record twice has 2^depth fields below it
    def min_length(self) -> int:
        """The smallest size of a value in bytes."""
        return super().min_length

    @property
    def byte_layout(self) -> ByteLayout | None:
        """The fields."""
        return sequence(*self.parts)

    def read(self, source: DataInput) -> Any:
        """Read one value, as a dict of its fields."""
        return {name: serializer.read(source) for name, serializer in self.fields}

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value: a dict of its fields, or a tuple or list of them in order."""
        for part, field_value in zip(self.parts, self._by_position(value), strict=True):
            part.write(field_value, out)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read a struct column, field after field."""
        columns = [part.decode(cursor) for part in self.parts]
        return self._struct(cursor.present, columns, cursor.rows)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the sums of the fields' sizes."""
        require_values(values, present, self.name)
        columns = zip(self.parts, self._columns(values), strict=True)
        sizes = [part.sizes(column, present) for part, column in columns]
        total: I64Array = np.sum(sizes, axis=0, dtype=np.int64)
        return total

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write a struct column, field after field."""
        for part, column in zip(self.parts, self._columns(values), strict=True):
            part.encode(column, target)

    def _struct(self, present: U8Array, columns: list[pa.Array], rows: int) -> pa.Array:
        return struct_array(self.arrow_type, present, columns, rows)

    def _columns(self, values: pa.Array) -> list[pa.Array]:
        """Return the columns of the fields by name; a struct may have them in any order."""
        present = {field.name for field in values.type}
        missing = [name for name, _ in self.fields if name not in present]
        if missing:
            raise EncodeError(f"field {missing[0]!r} of {self.name} is missing from the column")
        return [values.field(name) for name, _ in self.fields]

    def _by_position(self, value: Any) -> list[Any]:
        """Return the values of the fields in order, from a dict, tuple or list.

        The keys of a dict are the names of the columns, or those in Flink.
        """
        if isinstance(value, dict):
            names = zip(self.names, self.fields, strict=True)
            fields = [value.get(column, value.get(name)) for name, (column, _) in names]
        elif isinstance(value, tuple | list):
            fields = list(value)
        else:
            raise EncodeError(f"{value!r} is no {self.name}")
        if len(fields) != len(self.fields):
            raise EncodeError(f"{value!r} has {len(fields)} fields, not {len(self.fields)}")
        return fields


class TupleSerializer(StructSerializer):
    """`Tuple1` to `Tuple25`: only the fields, so neither a field nor a tuple is null.

    Args:
        elements: The fields' serializers.
        names: The fields' names; `f0`, `f1`, ... by default.
    """

    def __init__(self, elements: Sequence[TypeSerializer], names: Sequence[str] = ()) -> None:
        names = names or [f"f{index}" for index in range(len(elements))]
        super().__init__(list(zip(names, elements, strict=True)))
        lengths = [element.length for element in elements]
        self.length = sum(lengths) if lengths and min(lengths) > 0 else VARIABLE

    @property
    def name(self) -> str:
        """`Tuple2<..., ...>`."""
        return f"Tuple{len(self.parts)}<{self.part_names}>"

    def hash_code(self, value: Any) -> int:
        """Return the hash code of a tuple, from those of its fields."""
        return self._combined(self._codes(value))

    def hash_code_at(self, source: DataInput) -> int:
        """Return the hash code of the next tuple, from the bytes of its fields."""
        return self._combined(self._field_code_at(part, source) for part in self.parts)

    def _codes(self, value: Any) -> Iterator[int]:
        """Yield the hash code of each field: none where the tuple's own is not known."""
        for part, field in zip(self.parts, self._by_position(value), strict=True):
            yield self._field_code(part, field)

    def _field_code(self, part: TypeSerializer, value: Any) -> int:
        """Return the hash code of a field; 0 for null."""
        return 0 if value is None else part.hash_code(value)

    def _field_code_at(self, part: TypeSerializer, source: DataInput) -> int:
        """Return the hash code of the next field, from its bytes."""
        return part.hash_code_at(source)

    def _combined(self, codes: Iterable[int]) -> int:
        """Return `31 * h + hash(field)` from the first field on."""
        return to_int32(reduce(lambda code, element: 31 * code + element, codes))

    def hash_codes(self, values: pa.Array) -> I32Array:
        """Return the hash code of every row, a column at a time."""
        columns = zip(self.parts, self._columns(values), strict=True)
        codes = [part.hash_codes(column) for part, column in columns]
        total = codes[0]
        for element in codes[1:]:
            combine_hashes(total, element, 31, total)
        return total


class ObjectSerializer(TupleSerializer):
    """One of Flink's own Java objects: its fields under their names, never null.

    The last field may extend to the end; the others are self-delimiting.

    Args:
        java_name: The name of the type.
        fields: Each field's name and serializer.
        fixed: Whether Flink gives the type a length if all fields have one.
    """

    name = named("{java_name}")

    def __init__(
        self,
        java_name: str,
        fields: Sequence[tuple[str, TypeSerializer]],
        *,
        fixed: bool = False,
    ) -> None:
        names, elements = zip(*fields, strict=True)
        super().__init__(elements, names)
        self.java_name = java_name
        self.length = self.length if fixed else VARIABLE
        self.self_delimiting = elements[-1].self_delimiting

    def _combined(self, codes: Iterable[int]) -> int:
        """Return `Objects.hash` of the fields: a tuple's hash that begins with 1."""
        return to_int32(super()._combined(codes) + self._seed)

    def hash_codes(self, values: pa.Array) -> I32Array:
        """Return the hash code of every row."""
        codes: I32Array = super().hash_codes(values) + np.int32(self._seed)
        return codes

    @property
    def _seed(self) -> int:
        return to_int32(31 ** len(self.fields))


class RowSerializer(StructSerializer):
    """`Row`: a bit mask of row kind and nulls, then the fields that are not null.

    The column has only the fields. A row whose kind is not `+I` keeps its exact bytes, too.

    Args:
        elements: The fields' serializers; `Row` state has no names.
        with_kind: Whether the mask begins with two bits of row kind.
    """

    name = named("Row<{part_names}>")

    def __init__(self, elements: list[TypeSerializer], *, with_kind: bool = True) -> None:
        super().__init__([(f"f{index}", serializer) for index, serializer in enumerate(elements)])
        self.with_kind = with_kind
        self.leading = 2 if with_kind else 0
        self.bits = self.leading + len(elements)
        self.mask_bytes = (self.bits + 7) // 8

    @property
    def byte_layout(self) -> ByteLayout:
        """The mask, then the fields that are not null."""
        return masked(self.parts, self.leading)

    def read(self, source: DataInput) -> dict[str, Any]:
        """Read one row; a kind other than `+I` is lost."""
        mask = source.read_bytes(self.mask_bytes)
        row = {}
        for index, (name, serializer) in enumerate(self.fields, self.leading):
            null = mask[index >> 3] >> (7 - (index & 7)) & 1
            row[name] = None if null else serializer.read(source)
        return row

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one row of kind `+I`."""
        values = self._by_position(value)
        mask = bytearray(self.mask_bytes)
        for index, field_value in enumerate(values, self.leading):
            if field_value is None:
                mask[index >> 3] |= 0x80 >> (index & 7)
        out.write_bytes(bytes(mask))
        for part, field_value in zip(self.parts, values, strict=True):
            if field_value is not None:
                part.write(field_value, out)

    def hash_code(self, value: Any) -> int:
        """Return `RowUtils.deepHashCodeRow` of a row of kind `+I`, without list or map fields.

        Each field is hashed by `Arrays.deepHashCode` of an array of one, which adds 31.
        """
        code = 1
        for part, field in zip(self.parts, self._by_position(value), strict=True):
            if isinstance(part, ListSerializer | MapSerializer):
                return super().hash_code(value)
            element = 0 if field is None else 31 + part.hash_code(field)
            code = to_int32(31 * code + element)
        return code

    def hash_code_at(self, source: DataInput) -> int:
        """Return the hash code of the next row, which may be of any kind."""
        mask = source.read_bytes(self.mask_bytes)
        bits = [mask[index >> 3] >> (7 - (index & 7)) & 1 for index in range(self.bits)]
        kind = bits[0] + 2 * bits[1] if self.with_kind else 0
        code = 1
        for part, null in zip(self.parts, bits[self.leading :], strict=True):
            if isinstance(part, ListSerializer | MapSerializer):
                return super().hash_code(None)
            code = to_int32(31 * code + (0 if null else 31 + part.hash_code_at(source)))
        return to_int32(31 * kind + code)

    def _mask_bit(self, cursor: Cursor, index: int) -> U8Array:
        bit = np.empty(cursor.rows, np.uint8)
        failed = decode.read_bits(
            cursor.data, cursor.position, cursor.end, cursor.present, self.bits, index, bit
        )
        cursor.check(failed, "the null mask of a Row")
        return bit

    def _check_padding(self, cursor: Cursor) -> None:
        """Mark rows inexact whose unused mask bits are not zero, which Flink never writes."""
        unused = (1 << 8 * self.mask_bytes - self.bits) - 1
        if unused and cursor.rows:
            rows = slice(None) if cursor.present.size == 0 else cursor.present != 0
            last = cursor.data[cursor.position[rows] + self.mask_bytes - 1]
            cursor.inexact[rows] |= (last & unused != 0).astype(np.uint8)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read the bits of the mask, then field after field."""
        for index in range(self.leading):
            cursor.inexact |= self._mask_bit(cursor, index)
        valid = [1 - self._mask_bit(cursor, self.leading + i) for i in range(len(self.fields))]
        self._check_padding(cursor)
        width = self.mask_bytes
        cursor.position += cursor.present * np.int64(width) if cursor.present.size else width
        columns = []
        for part, present in zip(self.parts, valid, strict=True):
            within = cursor.only(present)
            columns.append(part.decode(within))
            within.expect_values(columns[-1])
        return self._struct(cursor.present, columns, cursor.rows)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the size of the mask and of the fields that are not null."""
        require_values(values, present, self.name)
        sizes = fixed_sizes(len(values), self.mask_bytes, present)
        for part, column in zip(self.parts, self._columns(values), strict=True):
            sizes += part.sizes(column, written_rows(column, present))
        return sizes

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the mask, then field after field."""
        width = self.mask_bytes
        rows = (
            target.position if target.present.size == 0 else (target.position[target.present != 0])
        )
        for byte in range(width):
            target.out[rows + byte] = 0
        columns = self._columns(values)
        for index, column in enumerate(columns, self.leading):
            valid = present_rows(column)
            if valid.size:
                nulls = (valid == 0).astype(np.uint8)
                encode.set_bits(nulls, target.present, index, target.out, target.position)
        target.position += target.present * np.int64(width) if target.present.size else width
        for part, column in zip(self.parts, columns, strict=True):
            part.encode(column, target.valued(column))


@register
class TupleSerializerSnapshot(CompositeTypeSerializerSnapshot):
    """`TupleSerializerSnapshot`: the tuple class, and the snapshots of the fields.

    The class is not compared: a user's subclass has the bytes of the tuple that it extends.
    """

    java_class = f"{RUNTIME}TupleSerializerSnapshot"
    outer_versions = range(2, 3)
    versions = range(2, 4)
    unnamed = "f{}"
    outer = ("tuple_class",)
    tuple_class: str = ""

    def write_outer_snapshot(self, out: DataOutput) -> None:
        """Write the tuple class."""
        out.write_utf(
            self.tuple_class or f"org.apache.flink.api.java.tuple.Tuple{len(self.nested)}"
        )

    @property
    def opaque_name(self) -> str:
        """The tuple class."""
        return self.tuple_class

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the serializer of a tuple of these fields."""
        if not nested:
            raise CorruptSnapshotError(f"{self.tuple_class} without fields")
        return TupleSerializer(list(nested))


@register
class RowSerializerSnapshot(FlaggedSnapshot):
    """`RowSerializer$RowSerializerSnapshot`: whether row kinds are written, and the fields."""

    java_class = f"{RUNTIME}RowSerializer$RowSerializerSnapshot"
    opaque_name = "org.apache.flink.types.Row"
    outer_versions = range(2, 5)
    versions = range(2, 4)
    unnamed = "f{}"
    always = 3
    forms = ("Row without row kind", "Row with row kind")
    change = "the null mask changes"

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the serializer of a row of these fields."""
        return RowSerializer(list(nested), with_kind=self.flag)
