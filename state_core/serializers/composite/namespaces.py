"""Namespaces: the scope of keyed state in addition to the key, mostly a window.

Source: `org.apache.flink.runtime.state.VoidNamespaceSerializer`,
`org.apache.flink.streaming.api.windowing.windows.TimeWindow` and `GlobalWindow`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.kernels import decode
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.composite.structs import StructSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I64Array,
    Target,
    U8Array,
    fixed_sizes,
    written_rows,
)
from statelake.state_core.serializers.framework.snapshots import simple_snapshot

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
