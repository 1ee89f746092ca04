"""Types of flink-scala-api, the successor of Flink's Scala API for Flink 1 and 2.

A case class becomes a nullable struct `f0`, `f1`, ..., a collection a list, a `Map` a map, and a
mapped type the type that its mapper maps it to. Keys of Scala jobs are assigned to key groups by
Scala's hash codes, which are derived for tuples only.

Source: `org.apache.flinkx.api.serializer` of flink-scala-api 1.1 to 2.2, and
`scala.util.hashing.MurmurHash3.productHash` of Scala 2.13, which Scala 3 has too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.kernels.skip import NULL_COUNT
from statelake.state_core.serializers.basic.numbers import IntSerializer
from statelake.state_core.serializers.basic.text import StringSerializer
from statelake.state_core.serializers.composite.collections import ListSerializer, MapSerializer
from statelake.state_core.serializers.composite.evolution import (
    ElementRule,
    LabelledRule,
    MapRule,
    PositionRule,
    ValueRule,
    evolves,
)
from statelake.state_core.serializers.composite.optionals import EitherSerializer, skip_padding
from statelake.state_core.serializers.framework.base import VARIABLE, TypeSerializer, named
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I32Array,
    I64Array,
    Target,
    U8Array,
    fixed_sizes,
    null_rows,
    require_values,
    written_rows,
)
from statelake.state_core.serializers.framework.layouts import ByteLayout, marked, prefix
from statelake.state_core.serializers.scala.serializers import (
    TUPLE,
    CaseClassSerializer,
    product_hash,
)

NULL_CLASS = -1  # fields of a null: every version that knows nulls reads it


class CountedClassSerializer(CaseClassSerializer):
    """A case class or a Scala tuple: the number of its fields, the fields, or padding for null.

    A value with fewer fields is of an older class: missing fields are null, and its exact bytes
    stay.

    Args:
        case_class: Its Java class.
        elements: The fields' serializers.
        current: Whether the version writes nulls and returns the right length, as since 1.2.8.
    """

    def __init__(
        self, case_class: str, elements: list[TypeSerializer], *, current: bool = True
    ) -> None:
        super().__init__(case_class, elements)
        self.current = current
        self.padding = max(0, self.length)
        if current and self.padding:
            self.length += 4

    @property
    def wire_length(self) -> int:
        """The fixed length: four bytes and the fields, if all of these have a length."""
        return 4 + self.padding if self.padding else VARIABLE

    @property
    def byte_layout(self) -> ByteLayout:
        """The layout: the number of fields, then so many fields, or padding."""
        return prefix(self.parts, self.padding if self.current else None)

    def read(self, source: DataInput) -> Any:
        """Read one value as a dict of its fields, or None."""
        count = source.read_int()
        if count < 0 and self.current:
            source.read_bytes(self.padding)
            return None
        if not 0 <= count <= len(self.fields):
            raise source.fault(self._miscounted(count), remedy=self._remedy)
        there = {name: serializer.read(source) for name, serializer in self.fields[:count]}
        return there | {name: None for name, _ in self.fields[count:]}

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value, or None."""
        if value is None and self.current:
            out.write_int(NULL_CLASS)
            out.write_bytes(bytes(self.padding))
            return
        fields = self._by_position(value)
        out.write_int(len(fields))
        for part, field in zip(self.parts, fields, strict=True):
            part.write(field, out)

    def hash_code_at(self, source: DataInput) -> int:
        """Return the hash code of the next case class, from the bytes of its fields."""
        if self._is_hashed and source.read_int() != len(self.fields):
            raise source.fault(f"a {self.case_class} without all its fields")
        return super().hash_code_at(source)

    @property
    def _is_hashed(self) -> bool:
        return self.current and TUPLE.fullmatch(self.case_class) is not None

    def _combined(self, codes: Iterable[int]) -> int:
        """Return the hash code of a Scala tuple; raise for a case class with its own."""
        if not self._is_hashed:
            return TypeSerializer.hash_code(self, None)
        return product_hash([*codes], StringSerializer().hash_code(f"Tuple{len(self.fields)}"))

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read the numbers of fields, then field after field."""
        counts = cursor.read_int32(f"the number of fields of {self.case_class}")
        there = cursor.there
        null = there & (counts < 0) & self.current
        present = there & ~null
        bad = np.flatnonzero(present & ((counts < 0) | (counts > len(self.fields))))
        if bad.size:
            fault = cursor.fault(int(bad[0]), self._miscounted(int(counts[bad[0]])))
            fault.remedy = self._remedy
            raise fault
        skip_padding(cursor, null, self.padding)
        short = present & (counts < len(self.fields))
        cursor.inexact |= (short | (null & (counts != NULL_CLASS))).astype(np.uint8)
        inner = cursor.only(present.astype(np.uint8))
        columns = [
            part.decode(inner.only((counts > index).astype(np.uint8)))
            for index, part in enumerate(self.parts)
        ]
        return self._struct(inner.present, columns, cursor.rows)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return four bytes, and those of the fields, or of the padding for null."""
        if not self.current:
            require_values(values, present, self.name)
        written = written_rows(values, present)
        sizes = fixed_sizes(len(values), 4, present)
        if self.padding and written.size:
            sizes += self.padding * (sizes > 0) * (written == 0)
        for part, column in zip(self.parts, self._columns(values), strict=True):
            sizes += part.sizes(column, written)
        return sizes

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the numbers of fields, then field after field, or the padding for null."""
        null = null_rows(values)
        counts = np.where(null, NULL_CLASS, len(self.fields)).astype(np.int32)
        IntSerializer().encode(pa.array(counts), target)
        if self.padding:
            target.write_zeros(null, self.padding)
        within = target.valued(values)
        for part, column in zip(self.parts, self._columns(values), strict=True):
            part.encode(column, within)

    def _miscounted(self, count: int) -> str:
        return f"{count} fields of {self.case_class}, which has {len(self.fields)}"

    @property
    def _remedy(self) -> str:
        if self.current:
            return "the snapshot is damaged, or its serializer is not the one it names"
        return (
            "flink-scala-api before 1.1.5, and later ones with DISABLE_CASE_CLASS_ARITY_USAGE, did"
            " not write this number: register a class with `counted = False` (docs/types.md)"
        )


class EmptyClassSerializer(TypeSerializer):
    """A case class without fields: the number 0, or -1 for null; the column has true or null."""

    arrow_type = pa.bool_()
    length = 4
    name = named("{case_class}<>")

    def __init__(self, case_class: str) -> None:
        self.case_class = case_class

    def read(self, source: DataInput) -> bool | None:
        """Read one value, or None."""
        count = source.read_int()
        if count > 0:
            raise source.fault(f"{count} fields of {self.case_class}, which has 0")
        return None if count < 0 else True

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value, or None."""
        if value is not None and value is not True:
            raise EncodeError(f"{value!r}, and a {self.case_class} is shown as true")
        out.write_int(NULL_CLASS if value is None else 0)


class CollectionSerializer(ListSerializer):
    """A collection: a count, then the elements.

    Args:
        kind: Its class in `scala.collection`, or `Array`.
        element: The elements' serializer.
    """

    name = named("scala.{kind}<{element}>")

    def __init__(self, kind: str, element: TypeSerializer) -> None:
        super().__init__(element)
        self.kind = kind

    hash_code = TypeSerializer.hash_code  # unknown: it is Scala's


class EntriesSerializer(MapSerializer):
    """A map: a count, then key and value of each entry.

    Args:
        kind: Its class in `scala.collection`.
        key: The keys' serializer.
        value: The values' serializer.
    """

    null_flags = False
    name = named("scala.{kind}<{key}, {value}>")

    def __init__(self, kind: str, key: TypeSerializer, value: TypeSerializer) -> None:
        super().__init__(key, value)
        self.kind = kind

    hash_code = TypeSerializer.hash_code  # unknown: it is Scala's


class MappedSerializer(TypeSerializer):
    """A type with the bytes of another, but with hash codes of its own.

    Args:
        value: The serializer of the other type.
        name: The name of the type.
    """

    def __init__(self, value: TypeSerializer, name: str) -> None:
        self.value = value
        self._name = name
        self.arrow_type = value.arrow_type
        self.length = value.length
        self.self_delimiting = value.self_delimiting

    @property
    def name(self) -> str:
        """The name of the type."""
        return self._name

    @property
    def wire_length(self) -> int:
        """The length of the other type."""
        return self.value.wire_length

    @property
    def byte_layout(self) -> ByteLayout:
        """The layout of the other type."""
        return self.value

    def read(self, source: DataInput) -> Any:
        """Read one value of the other type."""
        return self.value.read(source)

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value of the other type."""
        self.value.write(value, out)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read a column of the other type."""
        return self.value.decode(cursor)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the sizes of the other type."""
        return self.value.sizes(values, present)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write a column of the other type."""
        self.value.encode(values, target)

    def hash_code_at(self, source: DataInput) -> int:
        """Raise: the hash code is that of the type itself."""
        return self.hash_code(None)

    def hash_codes(self, values: pa.Array) -> I32Array:
        """Raise: the hash code is that of the type itself."""
        self.hash_code(None)
        return super().hash_codes(values)


class MarkedSerializer(MappedSerializer):
    """A value that begins with an i32, whose smallest number stands for null."""

    def __init__(self, value: TypeSerializer, name: str = "") -> None:
        super().__init__(value, name or value.name)

    @property
    def byte_layout(self) -> ByteLayout:
        """The mark of null, or the value."""
        return marked(self.value)

    def read(self, source: DataInput) -> Any:
        """Read one value, or None."""
        if source.read_int() == NULL_COUNT:
            return None
        source.position -= 4
        return self.value.read(source)

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value, or None."""
        if value is None:
            out.write_int(NULL_COUNT)
        else:
            self.value.write(value, out)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read the marks of null, then the values that are not null."""
        here = Cursor(cursor.data, cursor.position.copy(), cursor.end, cursor.place, cursor.present)
        null = here.read_int32(f"the beginning of a {self.name}") == NULL_COUNT
        if cursor.present.size:
            null &= cursor.present != 0
        cursor.position += 4 * null
        return self.value.decode(cursor.only((~null).astype(np.uint8)))

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return four bytes for null, and the sizes of the values."""
        marks = null_rows(values) * fixed_sizes(len(values), 4, present)
        return marks + self.value.sizes(values, written_rows(values, present))

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the marks of null, and the values."""
        null = null_rows(values)
        if null.any():
            marks = pa.array(np.full(len(values), NULL_COUNT, np.int32))
            IntSerializer().encode(marks, target.only(null.astype(np.uint8)))
        self.value.encode(values, target.valued(values))


class ScalaEitherSerializer(EitherSerializer):
    """`Either`; since 2.0 with the length of its sides if both have the same, without the flag."""

    def __init__(self, left: TypeSerializer, right: TypeSerializer) -> None:
        super().__init__(left, right)
        self.length = left.length if left.length == right.length else VARIABLE

    @property
    def wire_length(self) -> int:
        """The fixed length: one byte for the flag, and the sides, if they have the same length."""
        same = self.left.wire_length == self.right.wire_length
        return 1 + self.left.wire_length if same and self.left.wire_length >= 0 else VARIABLE


evolves(CountedClassSerializer)(PositionRule)
evolves(CollectionSerializer)(ElementRule)
evolves(EntriesSerializer)(MapRule)
evolves(MappedSerializer, MarkedSerializer)(ValueRule)
evolves(ScalaEitherSerializer)(LabelledRule)
