"""State of an old source as that of the source which took its place.

What readers of the old source held, readers of the new one hold, in the same subtasks; and the new
source's enumerator, which the old one did not have, takes all of it for assigned. Written are the
oldest versions that have all of this, which every later connector reads: of Kafka enumerator 1
(Flink 1.14 to connector 5.0), of Kinesis splits 1 and enumerator 1 (connector 5.0 to 6.0).

Source: `KafkaSourceEnumStateSerializer` in `org.apache.flink.connector.kafka.source`,
`KinesisStreamsSourceEnumeratorStateSerializer` in `org.apache.flink.connector.kinesis.source`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from statelake.state_core.connectors.kafka import (
    EnumeratedPartition,
    KafkaEnumerator,
    KafkaSplit,
    OldKafkaElement,
)
from statelake.state_core.connectors.kinesis import KinesisShard, assigned_shards, moved_shard
from statelake.state_core.connectors.offsets import check_assignment
from statelake.state_core.connectors.sources import (
    KINESIS_STATE,
    OLD_KAFKA_STATE,
    Coordinator,
    SourceState,
    SplitElement,
    write_split,
)
from statelake.state_core.errors import EncodeError, StateError

_KAFKA_ENUMERATOR = 1
_COORDINATOR = 1
_ARN = re.compile(r"arn:[^:]+:kinesis:[^:]+:\d+:stream/(.+)")


@dataclass(frozen=True)
class MovedPosition:
    """A split of the old source, and where the new one goes on.

    Attributes:
        operator: The old source's uid or id.
        uid: The new source's uid.
        split: The partition, as topic:number, or the shard.
        position: Of Kafka the offset of the next record, or a word; of Kinesis the kind of
            position, and the number.
        subtask: The reader that has it; None if it was read to its end, and has no reader.
    """

    operator: str
    uid: str
    split: str
    position: int | str
    subtask: int | None


@dataclass(frozen=True)
class Successor:
    """The state of the new source.

    Attributes:
        state: The name of the old source's state.
        elements: The new elements, by subtask and position; without those that have no reader.
        coordinator: The state of the new coordinator.
        moved: Where each split goes on.
    """

    state: str
    elements: Mapping[tuple[int, int], bytes]
    coordinator: bytes
    moved: Sequence[MovedPosition]


def successor_of(source: SourceState, uid: str, arns: Sequence[str] = ()) -> Successor:
    """Return the state of the new source that goes on where an old one stood.

    Args:
        source: A `FlinkKafkaConsumer` or a `FlinkKinesisConsumer`.
        uid: The new source's uid.
        arns: The ARNs of streams of Kinesis, which the old source knows by their names.

    Raises:
        EncodeError: It is another source, something in it is unknown, or it has a position that
            the new source can't have.
    """
    states = {element.state for element in source.elements}
    place = f"source {source.operator}"
    if not source.is_old or len(states) > 1:
        raise EncodeError(
            "this is no old source with positions",
            place=place,
            remedy="name the operator of a FlinkKafkaConsumer (state"
            f" {OLD_KAFKA_STATE!r}) or of a FlinkKinesisConsumer ({KINESIS_STATE!r})",
        )
    try:
        return (_kafka if OLD_KAFKA_STATE in states else _kinesis)(source, uid, arns)
    except StateError as error:
        raise error.within(place) from error


def _kafka(source: SourceState, uid: str, _: Sequence[str]) -> Successor:
    """Return the state of a `KafkaSource`: enumerator 1 has topics and partitions alone."""
    elements, partitions, moved = {}, [], []
    for element in source.elements:
        old = element.split
        if not isinstance(old, OldKafkaElement):
            raise _unknown(element)
        name = f"{old.topic}:{old.partition}"
        if old.offset is None:
            raise EncodeError(
                f"partition {name} has no offset yet",
                remedy=f"give it one at the same time: --set-offsets {name}=earliest",
            )
        split = KafkaSplit(old.topic, old.partition, old.offset, None)
        partitions.append(EnumeratedPartition(split))
        elements[element.subtask, element.position] = write_split(split)
        moved.append(MovedPosition(source.operator, uid, name, old.offset, element.subtask))
    data = KafkaEnumerator(_KAFKA_ENUMERATOR, tuple(partitions)).encode()
    check_assignment(source)
    coordinator = Coordinator(_COORDINATOR, _KAFKA_ENUMERATOR, data, b"").encode()
    return Successor(OLD_KAFKA_STATE, elements, coordinator, moved)


def _kinesis(source: SourceState, uid: str, arns: Sequence[str]) -> Successor:
    """Return the state of a `KinesisStreamsSource`, which reads a single stream by its ARN."""
    olds = []
    for element in source.elements:
        if not isinstance(element.split, KinesisShard):
            raise _unknown(element)
        olds.append((element, element.split))
    names = Counter((old.stream, old.split_id) for _, old in olds)
    twice = [shard for (_, shard), times in names.items() if times > 1]
    if twice:
        raise EncodeError(
            f"shard {twice[0]} is assigned twice, in the state of two readers",
            remedy="take a new savepoint",
        )
    arn = _arn_of(sorted({stream for stream, _ in names}), arns)
    elements, shards, moved = {}, [], []
    for element, old in olds:
        if old.read:
            moved.append(MovedPosition(source.operator, uid, old.split_id, "read to its end", None))
            continue
        shard = moved_shard(old, arn)
        shards.append(shard)
        elements[element.subtask, element.position] = write_split(shard)
        position = " ".join(filter(None, (shard.starts, shard.sequence_number)))
        moved.append(MovedPosition(source.operator, uid, old.split_id, position, element.subtask))
    version, data = assigned_shards(shards, max(shard for _, shard in names))
    coordinator = Coordinator(_COORDINATOR, version, data, b"").encode()
    return Successor(KINESIS_STATE, elements, coordinator, moved)


def _arn_of(streams: Sequence[str], arns: Sequence[str]) -> str:
    """Return the ARN of the only stream.

    Raises:
        EncodeError: There are several streams, or none of the ARNs is that of the stream.
    """
    if len(streams) > 1:
        raise EncodeError(
            f"it reads several streams ({', '.join(streams)}), and the new source reads one",
            remedy="begin with new sources, each at the time of this savepoint (AT_TIMESTAMP)",
        )
    (stream,) = streams
    for arn in (*arns, stream):
        match = _ARN.fullmatch(arn)
        if match and stream in (arn, match[1]):
            return arn
    raise EncodeError(
        f"the old source has only the name of its stream, {stream}, and the new one needs its ARN",
        remedy=f"give it: --stream-arn arn:aws:kinesis:REGION:ACCOUNT:stream/{stream}",
    )


def _unknown(element: SplitElement) -> EncodeError:
    return EncodeError(
        f"the element at position {element.position} of subtask {element.subtask} is of a form that"
        " is not known",
        remedy="`statelake offsets` shows what is known; begin with a new source without state",
    )
