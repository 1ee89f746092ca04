"""Tuples and rows: fields one behind the other.

Source: `org.apache.flink.api.java.typeutils.runtime` (`TupleSerializer`, `Tuple0Serializer`,
`RowSerializer`, `MaskUtils`).
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from state_core.errors import CorruptSnapshotError, EncodeError
from state_core.files.wire import DataInput, DataOutput, check_names
from state_core.kernels import decode, encode, skip
from state_core.kernels.hashing import combine_hashes
from state_core.serializers.basic.text import OpaqueSerializer
from state_core.serializers.composite.collections import ListSerializer, MapSerializer
from state_core.serializers.framework.base import VARIABLE, TypeSerializer, to_int32
from state_core.serializers.framework.columns import (
    Cursor,
    I32Array,
    I64Array,
    Target,
    U8Array,
    present_rows,
    require_values,
    validity,
)
from state_core.serializers.framework.compatibility import Compatibility, as_is, migrate
from state_core.serializers.framework.registry import register
from state_core.serializers.framework.snapshots import CompositeTypeSerializerSnapshot

__all__ = ["RowSerializer", "StructSerializer", "TupleSerializer"]

RUNTIME = "org.apache.flink.api.java.typeutils.runtime."
ROW_KINDS = ("+I", "-U", "+U", "-D")


class StructSerializer(TypeSerializer):
    """What tuples and rows share: named fields in an Arrow struct.

    Args:
        fields: Each field's name and serializer.
    """

    def __init__(self, fields: list[tuple[str, TypeSerializer]]) -> None:
        check_names((name for name, _ in fields), "a field")
        self.fields = fields
        self.arrow_type = pa.struct([pa.field(name, one.arrow_type) for name, one in fields])

    def _struct(self, present: U8Array, columns: list[pa.Array], rows: int) -> pa.Array:
        bitmap, nulls = validity(present)
        return pa.Array.from_buffers(self.arrow_type, rows, [bitmap], nulls, children=columns)

    def _columns(self, values: pa.Array) -> list[pa.Array]:
        """The field columns of a struct column, by name; a struct may have them in any order."""
        present = {field.name for field in values.type}
        missing = [name for name, _ in self.fields if name not in present]
        if missing:
            raise EncodeError(f"field {missing[0]!r} of {self.name} is missing from the column")
        return [values.field(name) for name, _ in self.fields]

    def _by_position(self, value: Any) -> list[Any]:
        """A dict, tuple or list as field values in order."""
        if isinstance(value, dict):
            found = [value.get(name) for name, _ in self.fields]
        elif isinstance(value, tuple | list):
            found = list(value)
        else:
            raise EncodeError(f"{value!r} is no {self.name}")
        if len(found) != len(self.fields):
            raise EncodeError(f"{value!r} has {len(found)} fields, not {len(self.fields)}")
        return found


class TupleSerializer(StructSerializer):
    """`Tuple1` to `Tuple25`: the fields and nothing else, so no field and no tuple is null."""

    def __init__(self, elements: list[TypeSerializer]) -> None:
        super().__init__([(f"f{index}", one) for index, one in enumerate(elements)])
        lengths = [one.length for one in elements]
        self.length = sum(lengths) if lengths and min(lengths) > 0 else VARIABLE

    @property
    def name(self) -> str:
        """`Tuple2<..., ...>`."""
        return f"Tuple{len(self.fields)}<{', '.join(one.name for _, one in self.fields)}>"

    @property
    def least(self) -> int:
        """What the fields take at least."""
        return sum(one.least for _, one in self.fields)

    def read(self, source: DataInput) -> dict[str, Any]:
        """One tuple."""
        return {name: one.read(source) for name, one in self.fields}

    def write(self, value: Any, out: DataOutput) -> None:
        """One tuple."""
        for (_, serializer), one in zip(self.fields, self._by_position(value), strict=True):
            serializer.write(one, out)

    def hash_code(self, value: Any) -> int:
        """`31 * h + hash(field)` from the first field on; a null field counts 0."""
        fields = zip(self.fields, self._by_position(value), strict=True)
        codes = [0 if held is None else one.hash_code(held) for (_, one), held in fields]
        return to_int32(reduce(lambda code, element: 31 * code + element, codes))

    def hash_code_at(self, source: DataInput) -> int:
        """The same, of the fields' very bytes."""
        codes = [one.hash_code_at(source) for _, one in self.fields]
        return to_int32(reduce(lambda code, element: 31 * code + element, codes))

    def hash_codes(self, values: pa.Array) -> I32Array:
        """`hash_code` of every row, a column at a time."""
        columns = zip(self.fields, self._columns(values), strict=True)
        codes = [one.hash_codes(column) for (_, one), column in columns]
        total = codes[0]
        for element in codes[1:]:
            combine_hashes(total, element, 31, total)
        return total

    def skip_program(self) -> tuple[int, ...] | None:
        """The fields' programs."""
        programs = [one.skip_program() for _, one in self.fields]
        if any(one is None for one in programs):
            return None
        return tuple(word for one in programs if one is not None for word in one)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Field after field, a column each."""
        columns = [one.decode(cursor) for _, one in self.fields]
        return self._struct(cursor.present, columns, cursor.rows)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """The sum of the fields'."""
        require_values(values, present, self.name)
        columns = zip(self.fields, self._columns(values), strict=True)
        parts = [one.sizes(column, present) for (_, one), column in columns]
        total: I64Array = np.sum(parts, axis=0, dtype=np.int64)
        return total

    def encode(self, values: pa.Array, target: Target) -> None:
        """Field after field."""
        for (_, one), column in zip(self.fields, self._columns(values), strict=True):
            one.encode(column, target)


class RowSerializer(StructSerializer):
    """`Row`: a bit mask of row kind and nulls, then the fields that are not null.

    The column has the fields only. A row whose kind is not `+I` keeps its exact bytes beside.

    Args:
        elements: The fields' serializers; `Row` state holds no names.
        with_kind: Whether the mask begins with two bits of row kind.
    """

    def __init__(self, elements: list[TypeSerializer], *, with_kind: bool = True) -> None:
        super().__init__([(f"f{index}", one) for index, one in enumerate(elements)])
        self.with_kind = with_kind
        self.leading = 2 if with_kind else 0
        self.bits = self.leading + len(elements)
        self.mask_bytes = (self.bits + 7) // 8

    @property
    def name(self) -> str:
        """`Row<..., ...>`."""
        return f"Row<{', '.join(one.name for _, one in self.fields)}>"

    @property
    def least(self) -> int:
        """The mask."""
        return self.mask_bytes

    def read(self, source: DataInput) -> dict[str, Any]:
        """One row; its kind, where it is not `+I`, is lost."""
        mask = source.read_bytes(self.mask_bytes)
        found = {}
        for index, (name, one) in enumerate(self.fields, self.leading):
            null = mask[index >> 3] >> (7 - (index & 7)) & 1
            found[name] = None if null else one.read(source)
        return found

    def write(self, value: Any, out: DataOutput) -> None:
        """One row of kind `+I`."""
        values = self._by_position(value)
        mask = bytearray(self.mask_bytes)
        for index, one in enumerate(values, self.leading):
            if one is None:
                mask[index >> 3] |= 0x80 >> (index & 7)
        out.write_bytes(bytes(mask))
        for (_, serializer), one in zip(self.fields, values, strict=True):
            if one is not None:
                serializer.write(one, out)

    def hash_code(self, value: Any) -> int:
        """`RowUtils.deepHashCodeRow` of a row of kind `+I`, whose fields are no lists or maps.

        Each field goes through `Arrays.deepHashCode` of an array of one, which adds 31.
        """
        code = 1
        for (_, one), held in zip(self.fields, self._by_position(value), strict=True):
            if isinstance(one, ListSerializer | MapSerializer):
                return super().hash_code(value)
            element = 0 if held is None else 31 + one.hash_code(held)
            code = to_int32(31 * code + element)
        return code

    def hash_code_at(self, source: DataInput) -> int:
        """The same, of any kind, which counts 31 times, and of the fields' very bytes."""
        mask = source.read_bytes(self.mask_bytes)
        bits = [mask[index >> 3] >> (7 - (index & 7)) & 1 for index in range(self.bits)]
        kind = bits[0] + 2 * bits[1] if self.with_kind else 0
        code = 1
        for (_, one), null in zip(self.fields, bits[self.leading :], strict=True):
            if isinstance(one, ListSerializer | MapSerializer):
                return super().hash_code(None)
            code = to_int32(31 * code + (0 if null else 31 + one.hash_code_at(source)))
        return to_int32(31 * kind + code)

    def skip_program(self) -> tuple[int, ...] | None:
        """The mask and the programs of the fields."""
        programs = [one.skip_program() for _, one in self.fields]
        if any(one is None for one in programs):
            return None
        lengths = [len(one) for one in programs if one is not None]
        bodies = [word for one in programs if one is not None for word in one]
        return (skip.MASKED, len(programs), self.leading, *lengths, *bodies)

    def _mask_bit(self, cursor: Cursor, index: int) -> U8Array:
        bit = np.empty(cursor.rows, np.uint8)
        failed = decode.read_bits(
            cursor.data, cursor.position, cursor.end, cursor.present, self.bits, index, bit
        )
        cursor.check(failed, "the null mask of a Row")
        return bit

    def _check_padding(self, cursor: Cursor) -> None:
        """Bits behind the mask's are zero wherever Flink wrote them; others are kept as bytes."""
        unused = (1 << 8 * self.mask_bytes - self.bits) - 1
        if unused and cursor.rows:
            wanted = slice(None) if cursor.present.size == 0 else cursor.present != 0
            last = cursor.data[cursor.position[wanted] + self.mask_bytes - 1]
            cursor.inexact[wanted] |= (last & unused != 0).astype(np.uint8)

    def decode(self, cursor: Cursor) -> pa.Array:
        """The mask's bits a column each, then field after field."""
        for index in range(self.leading):
            cursor.inexact |= self._mask_bit(cursor, index)
        held = [1 - self._mask_bit(cursor, self.leading + i) for i in range(len(self.fields))]
        self._check_padding(cursor)
        width = self.mask_bytes
        cursor.position += cursor.present * np.int64(width) if cursor.present.size else width
        columns = []
        for (_, one), wanted in zip(self.fields, held, strict=True):
            within = cursor.only(wanted)
            columns.append(one.decode(within))
            within.expect_values(columns[-1])
        return self._struct(cursor.present, columns, cursor.rows)

    def _held(self, column: pa.Array, present: U8Array) -> U8Array:
        """Where the field is written: its row is present and it is not null."""
        held = present_rows(column)
        if held.size == 0:
            return present
        return held if present.size == 0 else held & present

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """The mask and the fields that are not null."""
        require_values(values, present, self.name)
        sizes = np.full(len(values), self.mask_bytes, np.int64)
        if present.size:
            sizes *= present
        for (_, one), column in zip(self.fields, self._columns(values), strict=True):
            sizes += one.sizes(column, self._held(column, present))
        return sizes

    def encode(self, values: pa.Array, target: Target) -> None:
        """The mask, then field after field."""
        width = self.mask_bytes
        rows = (
            target.position if target.present.size == 0 else (target.position[target.present != 0])
        )
        for byte in range(width):
            target.out[rows + byte] = 0
        columns = self._columns(values)
        for index, column in enumerate(columns, self.leading):
            held = present_rows(column)
            if held.size:
                nulls = (held == 0).astype(np.uint8)
                encode.set_bits(nulls, target.present, index, target.out, target.position)
        target.position += target.present * np.int64(width) if target.present.size else width
        for (_, one), column in zip(self.fields, columns, strict=True):
            held = present_rows(column)
            one.encode(column, target.only(held) if held.size else target)


@register
class TupleSerializerSnapshot(CompositeTypeSerializerSnapshot):
    """`TupleSerializerSnapshot`: the tuple class, and the fields' snapshots nested.

    The class is not compared: a user's subclass has the bytes of the tuple that it extends.
    """

    java_class = f"{RUNTIME}TupleSerializerSnapshot"
    outer_version = 2
    outer_versions = range(2, 3)
    versions = range(2, 4)

    def __init__(self) -> None:
        super().__init__()
        self.tuple_class = ""

    def read_outer_snapshot(self, version: int, source: DataInput) -> None:
        """The tuple class."""
        self.tuple_class = source.read_utf()

    def write_outer_snapshot(self, out: DataOutput) -> None:
        """The tuple class."""
        out.write_utf(
            self.tuple_class or f"org.apache.flink.api.java.tuple.Tuple{len(self.nested)}"
        )

    def nested_name(self, index: int) -> str:
        """`f0`, `f1`, ..."""
        return f"f{index}"

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """A tuple of them."""
        if not all(one.self_delimiting for one in nested):
            return OpaqueSerializer(self.tuple_class)
        if not nested:
            raise CorruptSnapshotError(f"{self.tuple_class} without fields")
        return TupleSerializer(list(nested))


@register
class RowSerializerSnapshot(CompositeTypeSerializerSnapshot):
    """`RowSerializer$RowSerializerSnapshot`: whether kinds are written, and the fields' nested."""

    java_class = f"{RUNTIME}RowSerializer$RowSerializerSnapshot"
    outer_version = 4
    outer_versions = range(2, 5)
    versions = range(2, 4)

    def __init__(self) -> None:
        super().__init__()
        self.with_kind = True

    def read_outer_snapshot(self, version: int, source: DataInput) -> None:
        """A boolean since version 4; version 2 had no kinds, version 3 always."""
        self.with_kind = source.read_boolean() if version == 4 else version == 3

    def write_outer_snapshot(self, out: DataOutput) -> None:
        """Whether kinds are written."""
        out.write_boolean(self.with_kind)

    def resolve_outer_schema_compatibility(self, old: RowSerializerSnapshot) -> Compatibility:
        """Rows with and without kinds are written differently."""
        if self.with_kind == old.with_kind:
            return as_is()
        forms = {False: "Row without row kind", True: "Row with row kind"}
        return migrate(forms[old.with_kind], forms[self.with_kind], "the null mask changes")

    def nested_name(self, index: int) -> str:
        """`f0`, `f1`, ..."""
        return f"f{index}"

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """A row of them."""
        if not all(one.self_delimiting for one in nested):
            return OpaqueSerializer("org.apache.flink.types.Row")
        return RowSerializer(list(nested), with_kind=self.with_kind)
