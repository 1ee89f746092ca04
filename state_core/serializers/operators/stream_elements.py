"""Stream elements in state: the pending records of asynchronous I/O.

An `AsyncWaitOperator` has these in its list state: a tag, then the fields of each kind of element::

    0  record: i64 timestamp, value          4  watermark status: i32
    1  record without timestamp: value       5  record attributes: a flag, whether of a backlog
    2  watermark: i64                        6  internal watermark: i32 subpartition, i64
    3  latency marker: i64, 16 bytes of operator id, i32 subtask

Source: `org.apache.flink.streaming.runtime.streamrecord.StreamElementSerializer`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.nested import struct_column
from statelake.state_core.serializers.basic.numbers import (
    BooleanSerializer,
    IntSerializer,
    LongSerializer,
)
from statelake.state_core.serializers.composite.evolution import (
    MigrationRule,
    evolves,
    migrate_column,
    migrate_value,
)
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.snapshots import composite_snapshot

# the fields behind each tag
ELEMENTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("record", ("timestamp", "value")),
    ("record", ("value",)),
    ("watermark", ("timestamp",)),
    ("latency_marker", ("timestamp", "operator_id", "subtask_index")),
    ("watermark_status", ("status",)),
    ("record_attributes", ("is_backlog",)),
    ("internal_watermark", ("subpartition_index", "timestamp")),
)
WITHOUT_TIMESTAMP = 1
TAGS = {kind: tag for tag, (kind, _) in enumerate(ELEMENTS) if tag != WITHOUT_TIMESTAMP}


class OperatorIdSerializer(TypeSerializer):
    """`OperatorID`: 16 bytes, as hexadecimal digits."""

    name = "OperatorID"
    length = 16
    arrow_type = pa.string()

    def read(self, source: DataInput) -> str:
        """Read one id."""
        return source.read_bytes(self.length).hex()

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one id."""
        try:
            data = bytes.fromhex(value)
        except (TypeError, ValueError):
            data = b""
        if len(data) != self.length:
            raise EncodeError(f"{value!r} is no operator id of 32 hexadecimal digits")
        out.write_bytes(data)


class StreamElementSerializer(TypeSerializer):
    """`StreamElement`: a struct of the fields of all kinds, null for those of other kinds."""

    def __init__(self, value: TypeSerializer) -> None:
        self.value = value
        self.self_delimiting = value.self_delimiting
        self.parts: dict[str, TypeSerializer] = {
            "timestamp": LongSerializer(),
            "value": value,
            "operator_id": OperatorIdSerializer(),
            "subtask_index": IntSerializer(),
            "subpartition_index": IntSerializer(),
            "status": IntSerializer(),
            "is_backlog": BooleanSerializer(),
        }
        kinds = [pa.field(name, part.arrow_type) for name, part in self.parts.items()]
        self.arrow_type = pa.struct([pa.field("kind", pa.string()), *kinds])

    @property
    def name(self) -> str:
        """`StreamElement<...>`."""
        return f"StreamElement<{self.value.name}>"

    def read(self, source: DataInput) -> dict[str, Any]:
        """Read one element, in the fields of its kind."""
        tag = source.read_byte()
        if not 0 <= tag < len(ELEMENTS):
            raise source.fault(f"a stream element with tag {tag}")
        kind, names = ELEMENTS[tag]
        element: dict[str, Any] = {"kind": kind, **dict.fromkeys(self.parts)}
        element.update((name, self.parts[name].read(source)) for name in names)
        return element

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one element."""
        kind = value.get("kind") if isinstance(value, dict) else None
        if kind not in TAGS:
            raise EncodeError(
                f"{value!r} is no {self.name}: its `kind` is one of {', '.join(TAGS)}"
            )
        tag = TAGS[kind]
        if kind == "record" and value.get("timestamp") is None:
            tag = WITHOUT_TIMESTAMP
        _, names = ELEMENTS[tag]
        for name in self.parts:
            if name not in names and value.get(name) is not None:
                raise EncodeError(f"{value!r}: a {kind} has no `{name}`")
        out.write_byte(tag)
        for name in names:
            self.parts[name].write(value.get(name), out)


@evolves(StreamElementSerializer)
class _StreamElementRule(MigrationRule):
    """Converts the value of a record."""

    def column(
        self, old: StreamElementSerializer, new: StreamElementSerializer, column: pa.Array
    ) -> pa.Array:
        """Convert the column of values; the others stay."""
        columns = [
            migrate_column(old.value, new.value, column.field(field.name))
            if field.name == "value"
            else column.field(field.name)
            for field in old.arrow_type
        ]
        return struct_column(new.arrow_type, columns, column)

    def value(
        self, old: StreamElementSerializer, new: StreamElementSerializer, value: Any
    ) -> dict[str, Any]:
        """Convert one element."""
        return {**value, "value": migrate_value(old.value, new.value, value["value"])}


composite_snapshot(
    "org.apache.flink.streaming.runtime.streamrecord"
    ".StreamElementSerializer$StreamElementSerializerSnapshot",
    StreamElementSerializer,
    arity=1,
    nested_names=("value",),
    outer_versions=range(1, 3),
    delimited=slice(0),
)
