"""State of sinks with two-phase commit: open transactions, and those to commit.

Source: `TwoPhaseCommitSinkFunction$StateSerializer` of flink-streaming-java, and the values of
Kafka's sink of Flink 1 in it (`FlinkKafkaProducer` of flink-connector-kafka).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.basic.numbers import (
    IntSerializer,
    LongSerializer,
    ShortSerializer,
)
from statelake.state_core.serializers.composite.arrays import SimpleArraySerializer
from statelake.state_core.serializers.composite.collections import ListSerializer
from statelake.state_core.serializers.composite.evolution import PositionRule, evolves
from statelake.state_core.serializers.composite.optionals import NullableSerializer
from statelake.state_core.serializers.composite.structs import ObjectSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.registry import register
from statelake.state_core.serializers.framework.snapshots import (
    FlaggedSnapshot,
    simple_snapshot,
)

SINKS = "org.apache.flink.streaming.api.functions.sink."
KAFKA = "org.apache.flink.streaming.connectors.kafka."


class TransactionHolderSerializer(ObjectSerializer):
    """`TransactionHolder`: a transaction, and when it began, in milliseconds."""

    def __init__(self, handle: TypeSerializer) -> None:
        fields = [("handle", handle), ("start_time", LongSerializer())]
        super().__init__(f"TransactionHolder<{handle.name}>", fields)


class TwoPhaseCommitStateSerializer(ObjectSerializer):
    """`TwoPhaseCommitSinkFunction.State`: the open transaction, those to commit, the context.

    Args:
        transaction: The serializer of a transaction.
        context: The serializer of the user's context.
        with_null: Whether a flag tells if a transaction is open.
    """

    def __init__(
        self, transaction: TypeSerializer, context: TypeSerializer, *, with_null: bool = True
    ) -> None:
        holder = TransactionHolderSerializer(transaction)
        fields: list[tuple[str, TypeSerializer]] = [
            (
                "pending_transaction",
                NullableSerializer(holder, null_flag=False) if with_null else holder,
            ),
            ("pending_commit_transactions", ListSerializer(holder)),
            ("context", NullableSerializer(context, null_flag=False)),
        ]
        super().__init__(f"TwoPhaseCommitState<{transaction.name}, {context.name}>", fields)
        self.with_null = with_null


evolves(TransactionHolderSerializer)(PositionRule)


@register
class StateSerializerSnapshot(FlaggedSnapshot):
    """`TwoPhaseCommitSinkFunction$StateSerializerSnapshot`, with those of its parts."""

    java_class = f"{SINKS}legacy.TwoPhaseCommitSinkFunction$StateSerializerSnapshot"
    opaque_name = "TwoPhaseCommitSinkFunction.State"
    outer_versions = range(1, 5)
    arity = 2
    always = 3
    forms = ("always an open transaction", "an open transaction or none")
    change = "a flag comes before it"
    nested_names = ("transaction", "context")

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the serializer of a sink's state."""
        return TwoPhaseCommitStateSerializer(*nested, with_null=self.flag)


@register
class OldStateSerializerSnapshot(StateSerializerSnapshot):
    """`StateSerializerSnapshot` of Flink 1, where the sink is in another package."""

    java_class = f"{SINKS}TwoPhaseCommitSinkFunction$StateSerializerSnapshot"


# ------------------------------------------------------------------------------------ Kafka's


class UtfSerializer(TypeSerializer):
    """Text of Java's `writeUTF`."""

    name = "String"
    arrow_type = pa.string()
    min_length = 2

    def read(self, source: DataInput) -> str:
        """Read one text."""
        return source.read_utf()

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one text."""
        if not isinstance(value, str):
            raise EncodeError(f"{value!r} is no text")
        out.write_utf(value)


class KafkaTransactionStateSerializer(ObjectSerializer):
    """`KafkaTransactionState`: the id, null if it is not transactional, producer and epoch."""

    def __init__(self) -> None:
        fields = [
            ("transactional_id", NullableSerializer(UtfSerializer(), null_flag=False)),
            ("producer_id", LongSerializer()),
            ("epoch", ShortSerializer()),
        ]
        super().__init__("KafkaTransactionState", fields)


class KafkaTransactionContextSerializer(SimpleArraySerializer):
    """`KafkaTransactionContext`: the ids that transactions may have."""

    java_name = "KafkaTransactionContext"
    element_class = UtfSerializer


class NextTransactionalIdHintSerializer(ObjectSerializer):
    """`NextTransactionalIdHint`: the next free id, and the last parallelism."""

    def __init__(self) -> None:
        fields: list[tuple[str, TypeSerializer]] = [
            ("next_free_transactional_id", LongSerializer()),
            ("last_parallelism", IntSerializer()),
        ]
        super().__init__("NextTransactionalIdHint", fields, fixed=True)


for _producer in ("FlinkKafkaProducer", "FlinkKafkaProducer011"):
    for _name, _serializer in (
        ("TransactionStateSerializer", KafkaTransactionStateSerializer),
        ("ContextStateSerializer", KafkaTransactionContextSerializer),
        ("NextTransactionalIdHintSerializer", NextTransactionalIdHintSerializer),
    ):
        simple_snapshot(f"{KAFKA}{_producer}${_name}${_name}Snapshot", _serializer)
