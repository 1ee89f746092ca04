"""Flink SQL's timestamps, each by itself in state.

Source: `org.apache.flink.table.runtime.typeutils.TimestampDataSerializer`.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.kernels import encode
from statelake.state_core.kernels.binary_values import FIRST_MILLI, LAST_MILLI
from statelake.state_core.serializers.basic.calendars import hash_long, instant_text
from statelake.state_core.serializers.framework.base import TypeSerializer, named, to_int32
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I64Array,
    Target,
    U8Array,
    fixed_sizes,
    require_values,
)
from statelake.state_core.serializers.framework.exact_values import ExactText, reads_exact
from statelake.state_core.serializers.framework.registry import register
from statelake.state_core.serializers.sql.binary.columns import (
    micros_of,
    millis_of,
    timestamp_column,
    timestamp_type,
    write_states,
)
from statelake.state_core.serializers.sql.table_data import TYPEUTILS, NumbersSnapshot, presence

MILLI_DIGITS = 3
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class TimestampDataSerializer(TypeSerializer):
    """`TimestampData`: i64 milliseconds, and above 3 digits i32 nanoseconds of the millisecond.

    The column has microseconds without a time zone: the bytes don't contain whether there is one.
    """

    arrow_type = timestamp_type(local=False)
    name = named("TimestampData({precision})")

    def __init__(self, precision: int) -> None:
        self.precision = precision
        self.small = precision <= MILLI_DIGITS
        self.length = 8 if self.small else 12

    def read(self, source: DataInput) -> datetime | str | None:
        """Read one timestamp, cut to microseconds unless read whole; None in a year of 5 digits."""
        millis, nanos = source.read_long(), 0 if self.small else source.read_int()
        if reads_exact() and 0 <= nanos <= 999_999:
            return ExactText(instant_text(millis * 1_000_000 + nanos, ""), (millis, nanos))
        if not FIRST_MILLI <= millis <= LAST_MILLI or not 0 <= nanos <= 999_999:
            return None
        moved = EPOCH + timedelta(milliseconds=millis, microseconds=nanos // 1000)
        return moved.replace(tzinfo=None)

    def _parts(self, value: Any) -> tuple[int, int]:
        """Return milliseconds, and nanoseconds of the millisecond."""
        if isinstance(value, ExactText):
            return value.numbers[0], value.numbers[1]
        if not isinstance(value, datetime):
            raise EncodeError(f"{value!r} is no {self.name}")
        aware = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        millis, micros = divmod((aware - EPOCH) // timedelta(microseconds=1), 1000)
        if micros and self.small:
            raise EncodeError(f"{value!r} has more digits than {self.name}")
        return millis, micros * 1000

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one timestamp."""
        millis, nanos = self._parts(value)
        out.write_long(millis)
        if not self.small:
            out.write_int(nanos)

    def hash_code(self, value: Any) -> int:
        """Return `TimestampData.hashCode`."""
        return self._hash(*self._parts(value))

    def hash_code_at(self, source: DataInput) -> int:
        """Return the hash code with the nanoseconds that the column cuts off."""
        return self._hash(source.read_long(), 0 if self.small else source.read_int())

    @staticmethod
    def _hash(millis: int, nanos: int) -> int:
        return to_int32(31 * hash_long(millis) + nanos)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read timestamps as microseconds."""
        millis = cursor.read_int64(f"a {self.name}")
        nanos = None if self.small else cursor.read_int32(f"a {self.name}")
        return timestamp_column(self.arrow_type, millis, nanos, presence(cursor), cursor.inexact)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return eight or twelve bytes for every present row."""
        require_values(values, present, self.name)
        if self.small:
            millis_of(values, write_states(values, present))
        return fixed_sizes(len(values), self.length, present)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write milliseconds and nanoseconds."""
        micros = micros_of(values, write_states(values, target.present))
        millis = micros // 1000
        encode.write_fixed64(millis, target.present, target.out, target.position)
        if not self.small:
            nanos = ((micros - millis * 1000) * 1000).astype(np.int32)
            encode.write_fixed32(nanos, target.present, target.out, target.position)


@register
class TimestampDataSerializerSnapshot(NumbersSnapshot):
    """`TimestampDataSerializer$TimestampDataSerializerSnapshot`: the precision."""

    java_class = f"{TYPEUTILS}TimestampDataSerializer$TimestampDataSerializerSnapshot"
    versions = range(1, 2)
    serializer_of = TimestampDataSerializer
    label = "TIMESTAMP({})"
    rule = "the precision never changes"
    numbers = (6,)

    def is_valid(self, *numbers: int) -> bool:
        """Return whether a TIMESTAMP has this precision."""
        return 0 <= numbers[0] <= 9
