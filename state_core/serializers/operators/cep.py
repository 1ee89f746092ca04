"""State of pattern detection (flink-cep) for a key: partial matches, and buffered events.

An operator has three states of these types: `nfaStateName` with an `NFAState`, and two maps whose
values are counted references: `sharedBuffer-events`, from `EventId` to the event, and
`sharedBuffer-entries-with-lockable-edges`, from `NodeId` to the edges that lead back from it.

Source: `NFAStateSerializer` and `DeweyNumber` in `org.apache.flink.cep.nfa`, `EventId`, `NodeId`,
`Lockable`, `SharedBufferEdge` and `SharedBufferNodeSerializer` in its package `sharedbuffer`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.basic.numbers import IntSerializer, LongSerializer
from statelake.state_core.serializers.basic.text import StringSerializer
from statelake.state_core.serializers.composite.collections import ListSerializer
from statelake.state_core.serializers.composite.evolution import PositionRule, evolves
from statelake.state_core.serializers.composite.optionals import NullableSerializer
from statelake.state_core.serializers.composite.structs import ObjectSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer, to_int32
from statelake.state_core.serializers.framework.layouts import NOTHING
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from statelake.state_core.serializers.framework.registry import register
from statelake.state_core.serializers.framework.snapshots import (
    FlaggedSnapshot,
    composite_snapshot,
    simple_snapshot,
)

NFA = "org.apache.flink.cep.nfa."
BUFFER = f"{NFA}sharedbuffer."
NO_TIMESTAMP = -1


class DeweyNumberSerializer(ListSerializer):
    """`DeweyNumber`, the version of a run: an i32 count, then the digits."""

    name = "DeweyNumber"

    def __init__(self) -> None:
        super().__init__(IntSerializer())


class EventIdSerializer(ObjectSerializer):
    """`EventId`: the number among the events of a timestamp, and the timestamp."""

    def __init__(self) -> None:
        fields = [("id", IntSerializer()), ("timestamp", LongSerializer())]
        super().__init__("EventId", fields, fixed=True)


class NodeIdSerializer(NullableSerializer):
    """`NodeId`: a byte that is 0 for null; the event, and the name of the pattern's stage."""

    name = "NodeId"

    def __init__(self, event_id: TypeSerializer) -> None:
        fields = [("event_id", event_id), ("page_name", StringSerializer())]
        super().__init__(ObjectSerializer("NodeId", fields), null_flag=False)

    def hash_code(self, value: Any) -> int:
        """Return `Objects.hash` of both fields."""
        return self.value.hash_code(value)


class LockableSerializer(ObjectSerializer):
    """`Lockable`: the number of references to the element, then the element."""

    def __init__(self, element: TypeSerializer) -> None:
        fields = [("ref_counter", IntSerializer()), ("element", element)]
        super().__init__(f"Lockable<{element.name}>", fields)


class SharedBufferEdgeSerializer(ObjectSerializer):
    """`SharedBufferEdge`: the node that it leads to, and the version that may follow it."""

    def __init__(self, target: TypeSerializer, version: TypeSerializer) -> None:
        super().__init__("SharedBufferEdge", [("target", target), ("dewey_number", version)])


class SharedBufferNodeSerializer(ListSerializer):
    """`SharedBufferNode`: a count, then edges with the number of references to each."""

    name = "SharedBufferNode"

    def __init__(self, edge: TypeSerializer) -> None:
        super().__init__(LockableSerializer(edge))

    def hash_code(self, value: Any) -> int:
        """Return `Objects.hash` of the list alone."""
        return to_int32(31 + super().hash_code(value))


class _NoTimestampSerializer(TypeSerializer):
    """The time of the previous event, in state without it (before 1.19)."""

    name = "Long"
    length = 0
    arrow_type = pa.int64()
    byte_layout = NOTHING

    def read(self, source: DataInput) -> int:
        """Read nothing, and return Flink's default."""
        return NO_TIMESTAMP

    def write(self, value: Any, out: DataOutput) -> None:
        """Write nothing, and refuse a value that would be lost."""
        if value != NO_TIMESTAMP:
            raise EncodeError(
                f"a previous timestamp {value!r}, and this NFAState is written without",
                remedy=f"leave it {NO_TIMESTAMP}, or migrate the state",
            )


class _QueueSerializer(ListSerializer):
    """A `PriorityQueue` of computation states, in the order of its array."""

    hash_code = TypeSerializer.hash_code  # unknown: that of a queue is its identity


class NFAStateSerializer(ObjectSerializer):
    """`NFAState`: the computation states of partial matches, and of completed ones.

    Args:
        version: The serializer of a run's version.
        node_id: The serializer of the node of the last event.
        event_id: The serializer of the first event's id.
        with_previous: Whether the time of the previous event is written.
    """

    def __init__(
        self,
        version: TypeSerializer,
        node_id: TypeSerializer,
        event_id: TypeSerializer,
        *,
        with_previous: bool = True,
    ) -> None:
        previous = LongSerializer() if with_previous else _NoTimestampSerializer()
        fields = [
            ("current_state_name", StringSerializer()),
            ("previous_buffer_entry", node_id),
            ("version", version),
            ("start_timestamp", LongSerializer()),
            ("previous_timestamp", previous),
            ("start_event_id", NullableSerializer(event_id, null_flag=False)),
        ]
        states = _QueueSerializer(ObjectSerializer("ComputationState", fields))
        super().__init__("NFAState", [("partial_matches", states), ("completed_matches", states)])


# the only snapshot with a type of the user's inside
evolves(LockableSerializer)(PositionRule)

simple_snapshot(
    f"{NFA}DeweyNumber$DeweyNumberSerializer$DeweyNumberSerializerSnapshot", DeweyNumberSerializer
)
simple_snapshot(f"{BUFFER}EventId$EventIdSerializer$EventIdSerializerSnapshot", EventIdSerializer)

composite_snapshot(
    f"{BUFFER}NodeId$NodeIdSerializer$NodeIdSerializerSnapshot",
    NodeIdSerializer,
    arity=1,
    opaque_name="NodeId",
)
composite_snapshot(
    f"{BUFFER}LockableTypeSerializerSnapshot",
    LockableSerializer,
    arity=1,
    nested_names=("element",),
    delimited=slice(0),
)
composite_snapshot(
    f"{BUFFER}SharedBufferEdge$SharedBufferEdgeSerializer$SharedBufferEdgeSerializerSnapshot",
    SharedBufferEdgeSerializer,
    arity=2,
    opaque_name="SharedBufferEdge",
)
composite_snapshot(
    f"{BUFFER}SharedBufferNodeSerializerSnapshotV2",
    SharedBufferNodeSerializer,
    arity=1,
    opaque_name="SharedBufferNode",
)
# up to Flink 1.13: a list of edges without their counts
composite_snapshot(
    f"{BUFFER}SharedBufferNode$SharedBufferNodeSerializer$SharedBufferNodeSerializerSnapshot",
    lambda edges: edges,
    arity=1,
    delimited=slice(0),
)


@register
class NFAStateSerializerSnapshot(FlaggedSnapshot):
    """`NFAStateSerializerSnapshot`: whether the previous timestamp is written, and three others."""

    java_class = f"{NFA}NFAStateSerializerSnapshot"
    opaque_name = "NFAState"
    outer_versions = range(1, 3)
    arity = 3
    forms = ("without previous timestamps", "with previous timestamps")
    change = "each computation state gains or loses a time"

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the serializer of a key's partial and completed matches."""
        return NFAStateSerializer(*nested, with_previous=self.flag)


# snapshots of Flink 1.5, which later versions only name in a state that they have emptied
composite_snapshot(
    f"{NFA}NFA$MigratedNFASerializerSnapshot",
    lambda _event, _buffer: OpaqueSerializer(f"{NFA}NFA"),
    arity=2,
    outer_versions=range(1, 3),
    delimited=slice(0),
)
composite_snapshot(
    f"{NFA}SharedBuffer$SharedBufferSerializerSnapshot",
    lambda _key, _value, _version: OpaqueSerializer(f"{NFA}SharedBuffer"),
    arity=3,
    outer_versions=range(1, 3),
    delimited=slice(0),
)
