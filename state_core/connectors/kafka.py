"""Kafka's sources: splits of the `KafkaSource`, its enumerator, and the `FlinkKafkaConsumer`.

::

    split, version 0             UTF topic, i32 partition, i64 offset, i64 stopping offset
    enumerator, version 0        i32 subtasks, i32 version of splits; of each subtask
                                 i32 subtask, i32 n, n * (i32 length, split)
    enumerator, version 1        i32 n, n * (UTF topic, i32 partition)
    enumerator, version 2        the same, each with i32 status; boolean: initial discovery done
    enumerator, version 3        i32 n, i32 version of splits, n * (i32 length, split, i32 status),
                                 boolean
    element of the old consumer  topic and partition by Kryo, i64 offset of the last record read

An offset here is that of the next record to read, also for the old consumer, which stores the last.

Source: `org.apache.flink.connector.kafka.source` (`KafkaPartitionSplitSerializer`,
`KafkaSourceEnumStateSerializer`), `FlinkKafkaConsumerBase`, `KafkaTopicPartitionStateSentinel`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from statelake.state_core.connectors.versioned import ShownFields, read_exactly, reader_of
from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.basic.text import StringSerializer
from statelake.state_core.serializers.kryo.wire import KryoInput, KryoVersion

# the offset of the next record, or a word for the place where the broker begins
Offset: TypeAlias = int | str

WORDS = ("earliest", "latest", "committed")
NO_OFFSET = -(1 << 63)
GREATEST = (1 << 63) - 1
_GREATEST_PARTITION = (1 << 31) - 1
_SPLIT_MARKS = {-2: "earliest", -1: "latest", -3: "committed"}
_OLD_NOT_SET = -915623761776
_OLD_MARKS = {
    -915623761775: "earliest",
    -915623761774: "latest",
    -915623761773: "committed",
}
ASSIGNED, UNASSIGNED = 0, 1
_LEAST_SPLIT_BYTES = 22
_SPLIT_VERSION = 0
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


def _marked(stored: int, marks: dict[int, str]) -> Offset:
    return marks.get(stored, stored)


def _stored(offset: Offset, marks: dict[int, str]) -> int:
    """Return the number for an offset or a word."""
    if isinstance(offset, int):
        return offset
    return next(mark for mark, word in marks.items() if word == offset)


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

    def encode(self) -> bytes:
        """Return the bytes of version 0."""
        out = DataOutput()
        out.write_utf(self.topic)
        out.write_int(self.partition)
        for offset in (self.offset, self.stopping_offset):
            out.write_long(NO_OFFSET if offset is None else _stored(offset, _SPLIT_MARKS))
        return out.to_bytes()


def _read_split(source: DataInput) -> KafkaSplit:
    topic, partition = source.read_utf(), source.read_int()
    offset, stopping = (
        None if stored == NO_OFFSET else _marked(stored, _SPLIT_MARKS)
        for stored in source.read_longs(2)
    )
    numbers = [offset for offset in (offset, stopping) if isinstance(offset, int)]
    if partition < 0 or stopping == "earliest" or min(numbers, default=0) < 0:
        raise source.fault("no partition of Kafka")
    return KafkaSplit(topic, partition, offset, stopping)


# reads a split of the `KafkaSource`
read_kafka_split = reader_of((_SPLIT_VERSION,), lambda _, source: _read_split(source))


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
        out = DataOutput()
        if self.version == 0:
            self._encode_assignments(out)
            return out.to_bytes()
        out.write_int(len(self.partitions))
        if self.version == 3:
            out.write_int(_SPLIT_VERSION)
        for partition in self.partitions:
            if self.version == 3:
                out.write_sized(partition.split.encode())
            else:
                out.write_utf(partition.split.topic)
                out.write_int(partition.split.partition)
            if self.version > 1:
                out.write_int(partition.status)
        if self.version > 1:
            out.write_boolean(self.discovered)
        return out.to_bytes()

    def _encode_assignments(self, out: DataOutput) -> None:
        out.write_int(len(self.subtasks))
        out.write_int(_SPLIT_VERSION)
        for subtask in self.subtasks:
            splits = [each.split for each in self.partitions if each.subtask == subtask]
            out.write_int(subtask)
            out.write_int(len(splits))
            for split in splits:
                out.write_sized(split.encode())


def _read_sized_split(source: DataInput) -> KafkaSplit:
    return _read_split(DataInput(source.read_bytes(source.read_length("bytes of a split"))))


def _check_split_version(source: DataInput) -> None:
    version = source.read_int()
    if version != _SPLIT_VERSION:
        raise source.fault(f"splits of version {version}")


def _read_assignments(source: DataInput) -> KafkaEnumerator:
    count = source.read_count("subtasks", 8)
    _check_split_version(source)
    subtasks, partitions = [], []
    for _ in range(count):
        subtasks.append(source.read_int())
        for _ in range(source.read_count("splits", 4 + _LEAST_SPLIT_BYTES)):
            split = _read_sized_split(source)
            partitions.append(EnumeratedPartition(split, ASSIGNED, subtasks[-1]))
    return KafkaEnumerator(0, tuple(partitions), True, tuple(subtasks))


def _read_enumerator(version: int, source: DataInput) -> KafkaEnumerator:
    if version == 0:
        return _read_assignments(source)
    least = {1: 6, 2: 10, 3: 8 + _LEAST_SPLIT_BYTES}[version]
    count = source.read_int()
    if version == 3:
        _check_split_version(source)
    if not 0 <= count * least <= source.remaining:
        raise source.fault(f"{count} partitions")
    partitions = []
    for _ in range(count):
        if version == 3:
            split = _read_sized_split(source)
        else:
            split = KafkaSplit(source.read_utf(), source.read_int(), None, None)
        status = source.read_int() if version > 1 else ASSIGNED
        if status not in (ASSIGNED, UNASSIGNED):
            raise source.fault(f"a partition of status {status}")
        partitions.append(EnumeratedPartition(split, status))
    discovered = source.read_boolean() if version > 1 else True
    return KafkaEnumerator(version, tuple(partitions), discovered)


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
        out = DataOutput()
        out.write_bytes(self.head)
        if self.offset is None:
            out.write_long(_OLD_NOT_SET)
        elif isinstance(self.offset, int):
            out.write_long(self.offset - 1)
        else:
            out.write_long(_stored(self.offset, _OLD_MARKS))
        return out.to_bytes()


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
    stored = source.read_long()
    if stored == _OLD_NOT_SET:
        return OldKafkaElement(head, topic, partition, None)
    if stored in _OLD_MARKS:
        return OldKafkaElement(head, topic, partition, _OLD_MARKS[stored])
    if not -1 <= stored < GREATEST:  # the next one would be a mark, or no number of 64 bits
        raise source.fault(f"no offset: {stored}")
    return OldKafkaElement(head, topic, partition, stored + 1)
