"""Types of the state backends: namespaces, mostly windows; and what wraps a user's types.

Source: `org.apache.flink.runtime.state.VoidNamespaceSerializer`,
`org.apache.flink.streaming.api.windowing.windows.TimeWindow` and `GlobalWindow`,
`org.apache.flink.runtime.state.ttl.TtlStateFactory$TtlSerializer`,
`org.apache.flink.streaming.api.operators.TimerSerializer`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.kernels import decode
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.composite.structs import StructSerializer, TupleSerializer
from statelake.state_core.serializers.framework.base import VARIABLE, TypeSerializer, named
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I64Array,
    Target,
    U8Array,
    fixed_sizes,
    written_rows,
)
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from statelake.state_core.serializers.framework.registry import register
from statelake.state_core.serializers.framework.snapshots import (
    CompositeTypeSerializerSnapshot,
    composite_snapshot,
    simple_snapshot,
)

STATE = "org.apache.flink.runtime.state."
SIGN_BIT = -(1 << 63)


class TtlSerializer(StructSerializer):
    """A value with the time of its last access: i64 milliseconds, then the value.

    The time to live itself is in the job's code, not in the snapshot.
    """

    name = named("TtlValue<{value}>")

    def __init__(self, value: TypeSerializer) -> None:
        super().__init__([("ttl", LongSerializer()), ("value", value)])
        self.value = value
        self.length = 8 + value.length if value.length > 0 else VARIABLE
        self.self_delimiting = value.self_delimiting


class TimerSerializer(TupleSerializer):
    """A timer: its time, with the sign bit flipped so that bytes sort as times; key; namespace.

    A key without an end of its own ends before a namespace of known size; otherwise it has the
    bytes of both.
    """

    name = named("Timer<{key}, {namespace}>")

    def __init__(self, key: TypeSerializer, namespace: TypeSerializer) -> None:
        self._behind = 0 if key.self_delimiting else namespace.wire_length
        parts: list[TypeSerializer] = [LongSerializer(), key, namespace]
        if self._behind < 0:
            self._behind, parts[1:] = 0, [OpaqueSerializer(key.name)]
        super().__init__(parts, ("timestamp", "key", "namespace")[: len(parts)])
        self.key = key
        self.namespace = namespace
        self.self_delimiting = key.self_delimiting and namespace.self_delimiting

    def read(self, source: DataInput) -> dict[str, Any]:
        """Read one timer."""
        timestamp, limit = _flip(source.read_long()), source.limit
        source.limit = max(source.position, limit - self._behind)
        parts = []
        for _, serializer in self.fields[1:]:
            parts.append(serializer.read(source))
            source.limit = limit
        return dict(zip(self.names, (timestamp, *parts), strict=True))

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one timer."""
        timestamp, *others = self._by_position(value)
        super().write((_flip(timestamp), *others), out)

    def hash_code_at(self, source: DataInput) -> int:
        """Return the hash code of the next timer."""
        return self.hash_code(self.read(source))

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read a struct of times, keys and namespaces."""
        times = pa.array(flip_sign(cursor.read_int64("a timer")))
        of_key = cursor
        if self._behind:
            ends = np.maximum(cursor.position, cursor.end - self._behind)
            of_key = Cursor(
                cursor.data, cursor.position, ends, cursor.place, cursor.present, cursor.inexact
            )
        columns = [
            serializer.decode(each)
            for (_, serializer), each in zip(self.fields[1:], (of_key, cursor), strict=False)
        ]
        return self._struct(cursor.present, [times, *columns], cursor.rows)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write time, key and namespace."""
        times, *others = self._columns(values)
        flipped = pa.array(flip_sign(np.asarray(times.to_numpy(zero_copy_only=False))))
        LongSerializer().encode(flipped, target)
        for (_, serializer), column in zip(self.fields[1:], others, strict=True):
            serializer.encode(column, target)


def flip_sign(values: I64Array) -> I64Array:
    """Invert the sign bit, so that unsigned bytes sort as the signed numbers do."""
    flipped: I64Array = values ^ np.int64(SIGN_BIT)
    return flipped


def _flip(value: int) -> int:
    return value + (1 << 63) if value < 0 else value - (1 << 63)


@register
class TtlSerializerSnapshot(CompositeTypeSerializerSnapshot):
    """`TtlStateFactory$TtlSerializerSnapshot`, with the snapshots of a Long and the value."""

    java_class = f"{STATE}ttl.TtlStateFactory$TtlSerializerSnapshot"
    same_bytes = (f"{STATE}v2.ttl.TtlStateFactory$TtlSerializerSnapshot",)
    outer_versions = range(1, 3)
    arity = 2
    delimited = slice(1)

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the serializer of a value with the time of its last access."""
        return TtlSerializer(nested[1])


@register
class AsyncTtlSerializerSnapshot(TtlSerializerSnapshot):
    """`TtlSerializerSnapshot` of the asynchronous state API (`...runtime.state.v2`)."""

    java_class = f"{STATE}v2.ttl.TtlStateFactory$TtlSerializerSnapshot"
    same_bytes = (TtlSerializerSnapshot.java_class,)


TimerSerializerSnapshot = composite_snapshot(
    "org.apache.flink.streaming.api.operators.TimerSerializerSnapshot",
    TimerSerializer,
    arity=2,
    outer_versions=range(1, 3),
    delimited=slice(0),  # the backend finds the end of a timer's key, or keeps both as bytes
)


WINDOWS = "org.apache.flink.streaming.api.windowing.windows."


class SingletonSerializer(TypeSerializer):
    """A type with one value: a byte 0 in state, a null in the column."""

    arrow_type = pa.string()

    def read(self, source: DataInput) -> None:
        """Read the only value."""
        source.read_byte()

    def write(self, value: Any, out: DataOutput) -> None:
        """Write the only value."""
        if value is not None:
            raise EncodeError(f"{value!r}, and {self.name} has one value, written as null")
        out.write_byte(0)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read a column of nulls."""
        failed = decode.read_zeros(
            cursor.data, cursor.position, cursor.end, cursor.present, cursor.inexact
        )
        cursor.check(failed, f"a {self.name}")
        return pa.nulls(cursor.rows, pa.string())

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return one byte for every present row."""
        rows = written_rows(values, present)  # below the null of a struct may be anything
        if rows.any() or (len(values) and not rows.size):
            raise EncodeError(
                f"a column of {self.name} holds a value that is not null",
                remedy="leave it null: the type has one value",
            )
        return fixed_sizes(len(values), 1, present)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write a byte 0 for every present row."""
        target.write_zeros(np.ones(len(values), np.bool_), 1)


class VoidNamespaceSerializer(SingletonSerializer):
    """`VoidNamespace`: one byte, though its `getLength()` says 0."""

    name = "VoidNamespace"
    length = 0
    wire_length = 1


class GlobalWindowSerializer(SingletonSerializer):
    """`GlobalWindow`: one byte."""

    name = "GlobalWindow"
    length = 1


class TimeWindowSerializer(StructSerializer):
    """`TimeWindow`: start and end in milliseconds, the end excluded."""

    name = "TimeWindow"
    length = 16

    def __init__(self) -> None:
        super().__init__([("start", LongSerializer()), ("end", LongSerializer())])


VoidNamespaceSerializerSnapshot = simple_snapshot(
    "org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot",
    VoidNamespaceSerializer,
)
GlobalWindowSerializerSnapshot = simple_snapshot(
    f"{WINDOWS}GlobalWindow$Serializer$GlobalWindowSerializerSnapshot", GlobalWindowSerializer
)
TimeWindowSerializerSnapshot = simple_snapshot(
    f"{WINDOWS}TimeWindow$Serializer$TimeWindowSerializerSnapshot", TimeWindowSerializer
)
