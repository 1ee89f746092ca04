"""Types of flink-scala-api whose class is the whole schema: times, durations, orderings, UUIDs.

Source: `DurationSerializer`, `ZoneIdSerializer`, `orderingSerializers` and their like in
`org.apache.flinkx.api.serializer`, and `UuidMapper`.
"""

from __future__ import annotations

import uuid
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.basic.enums import EnumSerializer
from statelake.state_core.serializers.basic.numbers import IntSerializer, LongSerializer
from statelake.state_core.serializers.basic.text import StringSerializer
from statelake.state_core.serializers.basic.times import LocalDateTimeSerializer
from statelake.state_core.serializers.composite.structs import ObjectSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I64Array,
    Target,
    U8Array,
    fixed_sizes,
    require_values,
)
from statelake.state_core.serializers.framework.snapshots import simple_snapshot
from statelake.state_core.serializers.kryo.uuids import uuid_halves, uuid_texts
from statelake.state_core.serializers.scala.flinkx import MappedSerializer, MarkedSerializer
from statelake.state_core.serializers.scala.flinkx_parts import FLINKX
from statelake.state_core.serializers.scala.sealed import CaseObjectSerializer, SealedSerializer
from statelake.state_core.serializers.scala.serializers import NothingSerializer

UNITS = ("NANOSECONDS", "MICROSECONDS", "MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS")
ORDERINGS = (
    "Unit", "DefaultBoolean", "DefaultByte", "DefaultChar", "DefaultShort", "DefaultInt",
    "DefaultLong", "DefaultFloat", "FloatIeee", "DefaultDouble", "DoubleIeee", "DefaultBigInt",
    "DefaultBigDecimal", "DefaultString",
)  # fmt: skip


class UuidSerializer(TypeSerializer):
    """`UUID`: an array of its 16 bytes, shown as text."""

    name = "flinkx.UUID"
    arrow_type = pa.string()

    @property
    def wire_length(self) -> int:
        """A count and 16 bytes, though the array's serializer has no length."""
        return 20

    def read(self, source: DataInput) -> str:
        """Read one UUID."""
        count = source.read_int()
        if count != 16:
            raise source.fault(f"a UUID of {count} bytes")
        return str(uuid.UUID(bytes=source.read_bytes(16)))

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one UUID."""
        out.write_int(16)
        out.write_bytes(_uuid(value).bytes)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read the halves of all UUIDs."""
        counts = cursor.read_int32("the length of a UUID")
        there = cursor.there
        cursor.refuse(there & (counts != 16), lambda row: f"a UUID of {counts[row]} bytes")
        halves = [cursor.read_int64("half of a UUID") for _ in range(2)]
        return uuid_texts(np.stack(halves, 1).view(np.uint64)[there], cursor.present)

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return 20 bytes for every present row."""
        require_values(values, present, "UUID")
        return fixed_sizes(len(values), 20, present)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the count and the halves of all UUIDs."""
        halves = uuid_halves(values)
        if halves is None:
            super().encode(values, target)
            return
        IntSerializer().encode(pa.array(np.full(len(values), 16, np.int32)), target)
        for column in (0, 1):
            half = np.ascontiguousarray(halves[:, column]).view(np.int64)
            LongSerializer().encode(pa.array(half), target)

    def hash_code(self, value: Any) -> int:
        """Return `UUID.hashCode`: the hash code of both halves, combined, as a Long."""
        high, low = (_uuid(value).int >> shift & (1 << 64) - 1 for shift in (64, 0))
        combined = high ^ low
        signed = combined - (1 << 64) if combined >= 1 << 63 else combined
        return LongSerializer().hash_code(signed)


def _uuid(value: Any) -> uuid.UUID:
    try:
        return uuid.UUID(value)
    except (AttributeError, TypeError, ValueError) as error:
        raise EncodeError(f"{value!r} is no UUID") from error


class FlinkxUnitSerializer(CaseObjectSerializer):
    """`Unit`: no bytes."""

    def __init__(self) -> None:
        super().__init__("flinkx.Unit")


class FlinkxNothingSerializer(NothingSerializer):
    """`Nothing`, the type without values."""

    name = "flinkx.Nothing"


class OrderingSerializer(CaseObjectSerializer):
    """An `Ordering` that has no bytes, as its class is the whole.

    Attributes:
        ordering: Its name in the class of its serializer.
    """

    ordering: ClassVar[str]

    def __init__(self) -> None:
        super().__init__(f"flinkx.{self.ordering}Ordering")


class ZoneIdSerializer(MappedSerializer):
    """`ZoneId`: its id, or null."""

    def __init__(self) -> None:
        super().__init__(StringSerializer(), "flinkx.ZoneId")


class ZoneOffsetSerializer(MarkedSerializer):
    """`ZoneOffset`: its seconds, or null."""

    def __init__(self) -> None:
        super().__init__(IntSerializer(), "flinkx.ZoneOffset")


class _ObjectSerializer(MappedSerializer):
    """One of Java's or Scala's objects, of a few fields.

    Attributes:
        java_name: Its class.
        field_types: Its fields' names and serializers.
    """

    java_name: ClassVar[str]
    field_types: ClassVar[tuple[tuple[str, type[TypeSerializer]], ...]]

    def __init__(self) -> None:
        fields = [(name, kind()) for name, kind in self.field_types]
        value = ObjectSerializer(self.java_name, fields, fixed=True)
        super().__init__(value, f"flinkx.{self.java_name}")


class ZonedDateTimeSerializer(_ObjectSerializer):
    """`ZonedDateTime`: both fields are null for null."""

    java_name = "ZonedDateTime"
    field_types = (("local", LocalDateTimeSerializer), ("zone", ZoneIdSerializer))


class OffsetDateTimeSerializer(_ObjectSerializer):
    """`OffsetDateTime`: both fields are null for null."""

    java_name = "OffsetDateTime"
    field_types = (("local", LocalDateTimeSerializer), ("offset", ZoneOffsetSerializer))


class TimeUnitSerializer(EnumSerializer):
    """`TimeUnit`."""

    def __init__(self) -> None:
        super().__init__("java.util.concurrent.TimeUnit", UNITS)


class FiniteDurationSerializer(_ObjectSerializer):
    """`FiniteDuration`: a number and its unit."""

    java_name = "FiniteDuration"
    field_types = (("length", LongSerializer), ("unit", TimeUnitSerializer))


class DurationSerializer(SealedSerializer):
    """`Duration`: a finite one, or one of three that are not."""

    def __init__(self) -> None:
        others = ("undefined", "infinite", "minus_infinite")
        parts: list[tuple[str, TypeSerializer]] = [("finite", FiniteDurationSerializer())]
        parts += [(label, CaseObjectSerializer(label)) for label in others]
        super().__init__("flinkx.Duration", parts, -1)


def _ordering(name: str) -> None:
    members: dict[str, Any] = {
        "ordering": name,
        "__module__": __name__,
        "__doc__": f"`{name}OrderingSerializer`.",
    }
    kind: Any = type(f"{name}OrderingSerializer", (OrderingSerializer,), members)
    simple_snapshot(f"{FLINKX}{name}OrderingSerializerSnapshot", kind)


for _name in ORDERINGS:
    _ordering(_name)
_SIMPLE: dict[str, type[Any]] = {
    "UnitSerializer$UnitSerializer": FlinkxUnitSerializer,
    "NothingSerializer": FlinkxNothingSerializer,
    "ZoneIdSerializer": ZoneIdSerializer,
    "ZoneOffsetSerializer": ZoneOffsetSerializer,
    "ZonedDateTimeSerializer": ZonedDateTimeSerializer,
    "OffsetDateTimeSerializer": OffsetDateTimeSerializer,
    "DurationSerializer": DurationSerializer,
    "FiniteDurationSerializer": FiniteDurationSerializer,
}
for _name, _kind in _SIMPLE.items():
    simple_snapshot(f"{FLINKX}{_name}Snapshot", _kind)
