"""Kafka's sources: splits of the `KafkaSource`, its enumerator, and the `FlinkKafkaConsumer`.

An offset here is that of the next record to read, also for the old consumer, which stores the last
behind topic and partition by Kryo.

Source: `org.apache.flink.connector.kafka.source` (`KafkaPartitionSplitSerializer`,
`KafkaSourceEnumStateSerializer`), `FlinkKafkaConsumerBase`, `KafkaTopicPartitionStateSentinel`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from statelake.state_core.connectors.records import (
    BOOLEAN,
    INT,
    LONG,
    UTF,
    Code,
    Sized,
    VersionedList,
    among,
    many,
    record,
)
from statelake.state_core.connectors.versioned import (
    ShownFields,
    encoded,
    read_exactly,
    reader_of,
)
from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.serializers.basic.text import StringSerializer
from statelake.state_core.serializers.kryo.wire import KryoInput, KryoVersion

# the offset of the next record, or a word for the place where the broker begins
Offset: TypeAlias = int | str

WORDS = ("earliest", "latest", "committed")
NO_OFFSET = -(1 << 63)
GREATEST = (1 << 63) - 1
_GREATEST_PARTITION = (1 << 31) - 1
_SPLIT_MARKS = {NO_OFFSET: None, -2: "earliest", -1: "latest", -3: "committed"}
_OLD_MARKS = {
    -915623761776: None,
    -915623761775: "earliest",
    -915623761774: "latest",
    -915623761773: "committed",
}
ASSIGNED, UNASSIGNED = 0, 1
_SPLIT_VERSION = 0
_OFFSET, _OLD_OFFSET = (Code(marks, LONG, others=True) for marks in (_SPLIT_MARKS, _OLD_MARKS))
_PARTITION = {"topic": UTF, "partition": INT}
_SPLIT = record(**_PARTITION, offset=_OFFSET, stopping_offset=_OFFSET)
_STATUS = among(ASSIGNED, UNASSIGNED)
# the state of the enumerator, by its version
_ENUMERATORS = {
    0: record(subtasks=VersionedList({0: record(subtask=INT, splits=many(Sized(_SPLIT)))})),
    1: record(partitions=many(record(**_PARTITION))),
    2: record(partitions=many(record(**_PARTITION, status=_STATUS)), discovered=BOOLEAN),
    3: record(
        partitions=VersionedList({0: record(split=Sized(_SPLIT), status=_STATUS)}),
        discovered=BOOLEAN,
    ),
}
_SHOWN = (
    ("topic", "<topic"), ("partition", ">partition"), ("offset", ">offset"),
    ("stopping_offset", ">stops at"),
)  # fmt: skip


def parse_offset(text: str) -> Offset:
    """Parse an offset: a number from 0 on, or one of `WORDS`.

    Raises:
        EncodeError: The text is neither of them.
    """
    if text in WORDS:
        return text
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) < GREATEST:
        return int(text)
    raise EncodeError(
        f"{text!r} is no offset", remedy=f"give a number from 0 on, or one of {', '.join(WORDS)}"
    )


@dataclass(frozen=True, slots=True)
class KafkaSplit(ShownFields):
    """A partition, and the range to read.

    Attributes:
        topic: Its topic.
        partition: Its number.
        offset: The next record to read; None if the job decides on a restore.
        stopping_offset: The first record not to read; None without an end.
    """

    kind: ClassVar[str] = "kafka"
    version: ClassVar[int] = _SPLIT_VERSION
    shown = _SHOWN

    topic: str
    partition: int
    offset: Offset | None
    stopping_offset: Offset | None

    @property
    def fields(self) -> tuple[object, ...]:
        """The fields in order."""
        return self.topic, self.partition, self.offset, self.stopping_offset

    def encode(self) -> bytes:
        """Return the bytes of version 0."""
        return encoded(_SPLIT, self.fields)


def _checked(fields: dict[str, Any], source: DataInput) -> KafkaSplit:
    split = KafkaSplit(**fields)
    offsets = split.offset, split.stopping_offset
    numbers = [offset for offset in offsets if isinstance(offset, int)]
    if split.partition < 0 or split.stopping_offset == "earliest" or min(numbers, default=0) < 0:
        raise source.fault("no partition of Kafka")
    return split


# reads a split of the `KafkaSource`
read_kafka_split = reader_of(
    (_SPLIT_VERSION,), lambda _, source: _checked(_SPLIT.read(source), source)
)


@dataclass(frozen=True, slots=True)
class EnumeratedPartition:
    """A partition in the enumerator's state.

    Attributes:
        split: The partition; without offsets in versions 1 and 2.
        status: `ASSIGNED`, or `UNASSIGNED` before a reader has it.
        subtask: The reader that has it; only in version 0.
    """

    split: KafkaSplit
    status: int = ASSIGNED
    subtask: int | None = None


@dataclass(frozen=True, slots=True)
class KafkaEnumerator:
    """The state of a `KafkaSource`'s enumerator.

    Attributes:
        version: The version of the format.
        partitions: All partitions that it has found.
        discovered: Whether the initial discovery is done. Later partitions are read from their
            start.
        subtasks: The readers with partitions, in order; only in version 0.
    """

    kind: ClassVar[str] = "kafka"

    version: int
    partitions: tuple[EnumeratedPartition, ...]
    discovered: bool = True
    subtasks: tuple[int, ...] = ()

    def encode(self) -> bytes:
        """Return the bytes of its version."""
        rows = [
            {
                "topic": each.split.topic,
                "partition": each.split.partition,
                "split": each.split.fields,
                "status": each.status,
            }
            for each in self.partitions
        ]
        subtasks = [
            (number, [each.split.fields for each in self.partitions if each.subtask == number])
            for number in self.subtasks
        ]
        fields = {
            "subtasks": (_SPLIT_VERSION, subtasks),
            "partitions": (_SPLIT_VERSION, rows) if self.version == 3 else rows,
            "discovered": self.discovered,
        }
        return encoded(_ENUMERATORS[self.version], fields)


def _read_enumerator(version: int, source: DataInput) -> KafkaEnumerator:
    fields = _ENUMERATORS[version].read(source)
    if version == 0:
        subtasks = fields["subtasks"][1]
        partitions = [
            EnumeratedPartition(_checked(split, source), ASSIGNED, each["subtask"])
            for each in subtasks
            for split in each["splits"]
        ]
        numbers = tuple(each["subtask"] for each in subtasks)
        return KafkaEnumerator(version, tuple(partitions), True, numbers)
    partitions = []
    for each in fields["partitions"][1] if version == 3 else fields["partitions"]:
        if version == 3:
            split = _checked(each["split"], source)
        else:
            split = KafkaSplit(each["topic"], each["partition"], None, None)
        partitions.append(EnumeratedPartition(split, each.get("status", ASSIGNED)))
    return KafkaEnumerator(version, tuple(partitions), fields.get("discovered", True))


# reads an enumerator's state
read_kafka_enumerator = reader_of(range(4), _read_enumerator)


@dataclass(frozen=True, slots=True)
class OldKafkaElement(ShownFields):
    """An element of the `FlinkKafkaConsumer`'s state.

    Attributes:
        head: The bytes before the offset: topic and partition, by Kryo.
        topic: The topic.
        partition: The partition's number.
        offset: The next record to read; None if it was not set.
    """

    kind: ClassVar[str] = "kafka"
    version: ClassVar[None] = None
    stopping_offset: ClassVar[None] = None
    shown = _SHOWN

    head: bytes
    topic: str
    partition: int
    offset: Offset | None

    def encode(self) -> bytes:
        """Return the element, with the offset of the last record, one before the next."""
        next_one = self.offset
        last = next_one - 1 if isinstance(next_one, int) else next_one
        return self.head + encoded(_OLD_OFFSET, last)


def read_old_kafka_element(data: bytes) -> OldKafkaElement | None:
    """Return an element of the `FlinkKafkaConsumer`; None if the bytes are not one."""
    return read_exactly(lambda source: _read_old_element(source, data), data)


def _read_old_element(source: DataInput, data: bytes) -> OldKafkaElement:
    """Read Kryo 2: class, mark of a new object, then its fields by name: hash, partition, topic.

    The hash is that of both other fields, which identifies these bytes.
    """
    kryo = KryoInput(source, KryoVersion.FLINK_1)
    kryo.varint()
    if not kryo.boolean():
        raise source.fault("no new object of Kryo")
    hash_code, partition = kryo.zigzag(32), kryo.zigzag(32)
    topic = kryo.string() if kryo.boolean() else None
    if not topic:
        raise source.fault("no topic")
    expected = (31 * StringSerializer().hash_code(topic) + partition) & 0xFFFFFFFF
    if hash_code & 0xFFFFFFFF != expected or not 0 <= partition <= _GREATEST_PARTITION:
        raise source.fault("no topic and partition")
    head = data[: source.position]
    last = _OLD_OFFSET.read(source)
    if not isinstance(last, int):
        return OldKafkaElement(head, topic, partition, last)
    if not -1 <= last < GREATEST:  # the next one would be a mark, or no number of 64 bits
        raise source.fault(f"no offset: {last}")
    return OldKafkaElement(head, topic, partition, last + 1)
