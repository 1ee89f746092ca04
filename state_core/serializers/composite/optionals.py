"""Values that may be absent, and values of one of two types.

Source: `NullableSerializer`, `EitherSerializer` and `JavaEitherSerializerSnapshot` in
`org.apache.flink.api.java.typeutils.runtime`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import Self

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.kernels import encode
from statelake.state_core.serializers.basic.numbers import BooleanSerializer
from statelake.state_core.serializers.composite.evolution import LabelledRule, ValueRule, evolves
from statelake.state_core.serializers.framework.base import (
    VARIABLE,
    TypeSerializer,
    TypeSerializerSnapshot,
    named,
)
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I64Array,
    Target,
    U8Array,
    arrow_buffer,
    fixed_sizes,
    null_rows,
    require_values,
    struct_array,
    written_rows,
)
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    as_is,
    incompatible,
)
from statelake.state_core.serializers.framework.layouts import ByteLayout, either, fixed
from statelake.state_core.serializers.framework.registry import register
from statelake.state_core.serializers.framework.snapshots import (
    CompositeTypeSerializerSnapshot,
    WithoutMagicSnapshot,
)

RUNTIME = "org.apache.flink.api.java.typeutils.runtime."
_FLAG = BooleanSerializer()
MAX_PADDING = 1 << 20


class NullableSerializer(TypeSerializer):
    """A flag that is true for null, then the value, or padding that keeps the length fixed.

    Args:
        value: The value's serializer.
        padding: Bytes behind the flag of a null.
        null_flag: The flag of a null: true, but false within arrays.
    """

    name = named("Nullable<{value}>")

    def __init__(self, value: TypeSerializer, padding: int = 0, *, null_flag: bool = True) -> None:
        self.value = value
        self.padding = padding
        self.null_flag = null_flag
        self.arrow_type = value.arrow_type
        self.length = 1 + value.length if padding and value.length > 0 else VARIABLE

    @property
    def byte_layout(self) -> ByteLayout:
        """A flag, then padding or the value."""
        sides = (fixed(self.padding), self.value)
        return either(*sides) if self.null_flag else either(*reversed(sides))

    def read(self, source: DataInput) -> Any:
        """Read one value, or None."""
        if source.read_boolean() != self.null_flag:
            return self.value.read(source)
        source.read_bytes(self.padding)
        return None

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value, or None."""
        out.write_boolean((value is None) == self.null_flag)
        if value is None:
            out.write_bytes(bytes(self.padding))
        else:
            self.value.write(value, out)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read the null flags, then the values that are not null."""
        null = cursor.read_flags("a null flag") ^ np.uint8(not self.null_flag)
        if cursor.present.size:
            null &= cursor.present
        skip_padding(cursor, null, self.padding)
        within = cursor.only((1 - null).astype(np.uint8))
        column = self.value.decode(within)
        within.expect_values(column)
        return column

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the size of the flag and of the value or the padding."""
        own = fixed_sizes(len(values), 1, present)
        if self.padding:
            own *= 1 + self.padding * null_rows(values)
        return own + self.value.sizes(values, written_rows(values, present))

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the null flag, and the value or zeros."""
        null = null_rows(values)
        flags = (null == self.null_flag).astype(np.uint8)
        encode.write_fixed8(flags, target.present, target.out, target.position)
        if self.padding:
            target.write_zeros(null, self.padding)
        self.value.encode(values, target.valued(values))


def skip_padding(cursor: Cursor, null: npt.NDArray[Any], padding: int) -> None:
    """Move behind the padding of the rows that are null; mark those inexact where it is not 0."""
    rows = np.flatnonzero(null) if padding else np.empty(0, np.intp)
    cut = rows[cursor.position[rows] + padding > cursor.end[rows]]
    cursor.check(int(cut[0]) if cut.size else -1, "the padding of a null")
    for byte in range(padding):
        dirty = rows[cursor.data[cursor.position[rows] + byte] != 0]
        cursor.inexact[dirty] = 1
    cursor.position[rows] += padding


class EitherSerializer(TypeSerializer):
    """`Either`: a flag that is true for left, then the value; a struct with one side set.

    If the value itself is null (of a nullable type) its exact bytes are kept.

    Attributes:
        java_name: The name of the type.
        labels: The names of the struct's fields: the flag, and each side.
    """

    java_name: ClassVar[str] = "Either"
    labels: ClassVar[tuple[str, str, str]] = ("is_left", "left", "right")
    name = named("{java_name}<{left}, {right}>")

    def __init__(self, left: TypeSerializer, right: TypeSerializer) -> None:
        self.left = left
        self.right = right
        self.parts = dict(zip(self.labels[1:], (left, right), strict=True))
        kinds = (pa.bool_(), left.arrow_type, right.arrow_type)
        self.arrow_type = pa.struct(list(map(pa.field, self.labels, kinds)))

    @property
    def byte_layout(self) -> ByteLayout:
        """A flag, then one of two values."""
        return either(self.left, self.right)

    def read(self, source: DataInput) -> dict[str, Any]:
        """Read one value, in the field of its side."""
        if source.read_boolean():
            parts = (True, self.left.read(source), None)
        else:
            parts = (False, None, self.right.read(source))
        return dict(zip(self.labels, parts, strict=True))

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value."""
        flag, first, second = self.labels
        if not isinstance(value, dict) or not isinstance(value.get(flag), bool):
            raise EncodeError(
                f"{value!r} is no {self.java_name}: set `{flag}`, and `{first}` or `{second}`"
            )
        out.write_boolean(value[flag])
        side, serializer = (first, self.left) if value[flag] else (second, self.right)
        serializer.write(value.get(side), out)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read the flags, then the left values, then the right ones."""
        flags = cursor.read_flags(f"the flag of {self.java_name}")
        if cursor.present.size:
            flags &= cursor.present
        left = self.left.decode(cursor.only(flags))
        right = self.right.decode(cursor.only((1 - flags).astype(np.uint8)))
        bits = arrow_buffer(np.packbits(flags, bitorder="little"))
        is_left = pa.Array.from_buffers(pa.bool_(), cursor.rows, [None, bits])
        return struct_array(self.arrow_type, cursor.present, (is_left, left, right), cursor.rows)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the size of the flag and of the value."""
        require_values(values, present, self.name)
        there = fixed_sizes(len(values), 1, present)
        _, first, second = self.labels
        left, right = self._sides(values, present)
        parts = self.left.sizes(values.field(first), left)
        return there + parts + self.right.sizes(values.field(second), right)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the flag, then the value."""
        flag, first, second = self.labels
        left, right = self._sides(values, target.present)
        _FLAG.encode(values.field(flag), target)
        self.left.encode(values.field(first), Target(target.out, target.position, left))
        self.right.encode(values.field(second), Target(target.out, target.position, right))

    def _sides(self, values: pa.Array, present: U8Array) -> tuple[U8Array, U8Array]:
        """Return which rows are left ones and which are right ones, of those that are present."""
        flag_column = values.field(self.labels[0])
        require_values(flag_column, present, f"flag of {self.java_name}")
        flags = flag_column.fill_null(False).to_numpy(zero_copy_only=False)
        left = flags.astype(np.uint8)
        right = (1 - left).astype(np.uint8)
        return (left, right) if present.size == 0 else (left & present, right & present)


evolves(NullableSerializer)(ValueRule)
evolves(EitherSerializer)(LabelledRule)


@register
class NullableSerializerSnapshot(CompositeTypeSerializerSnapshot):
    """`NullableSerializer$NullableSerializerSnapshot`: the padding, and the value's snapshot."""

    java_class = f"{RUNTIME}NullableSerializer$NullableSerializerSnapshot"
    outer_versions = range(2, 3)
    arity = 1
    outer = ("padding",)
    padding: int = 0

    @classmethod
    def of(cls, value: TypeSerializerSnapshot, *, padded: bool = False) -> Self:
        """Return the snapshot of a new job's serializer."""
        snapshot = cls.around(value)
        snapshot.padding = max(0, value.restore_serializer().length) if padded else 0
        return snapshot

    def read_outer_snapshot(self, version: int, source: DataInput) -> None:
        """Read the padding."""
        super().read_outer_snapshot(version, source)
        if not 0 <= self.padding <= MAX_PADDING:
            raise source.fault(f"{self.padding} bytes of padding")

    def resolve_outer_schema_compatibility(self, old: NullableSerializerSnapshot) -> Compatibility:
        """Return as is for the same padding, else incompatible."""
        if self.padding == old.padding:
            return as_is()
        return incompatible(
            f"{old.padding} bytes of padding", f"{self.padding}", "the padding of null stays"
        )

    @property
    def opaque_name(self) -> str:
        """`Nullable<...>`."""
        return f"Nullable<{self.nested[0].restore_serializer().name}>"

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the serializer of a value that may be null."""
        return NullableSerializer(nested[0], self.padding)


@register
class JavaEitherSerializerSnapshot(CompositeTypeSerializerSnapshot):
    """`JavaEitherSerializerSnapshot`, with the snapshots of both sides."""

    java_class = f"{RUNTIME}JavaEitherSerializerSnapshot"
    arity = 2
    nested_names = ("left", "right")
    opaque_name = "org.apache.flink.types.Either"
    same_bytes = (f"{RUNTIME}EitherSerializerSnapshot",)

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the serializer of a value of one of two types."""
        return EitherSerializer(*nested)


@register
class EitherSerializerSnapshot(WithoutMagicSnapshot, JavaEitherSerializerSnapshot):
    """`EitherSerializerSnapshot`, which Flink 1.7 wrote instead."""

    java_class = f"{RUNTIME}EitherSerializerSnapshot"
