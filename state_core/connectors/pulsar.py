"""Pulsar's source: partitions, and the last message that was read of each.

::

    split, 1 and 2       partition; i32 length, stop cursor as a Java stream;
                         boolean, then i32 length, message; boolean, then i64 high, i64 low half of
                         an open transaction
    partition            UTF topic, i32 number or -1; i32 n, n * (i32 first, i32 last hash);
                         of splits 1 and enumerators 2: i32
    message              protobuf: 1 ledger, 2 entry, 3 partition, 4 place in a batch
    enumerator, 2 and 3  i32 n, n partitions

Source: `PulsarPartitionSplitSerializer`, `PulsarSourceEnumStateSerializer` in
`org.apache.flink.connector.pulsar.source`; `MessageIdData` of Pulsar.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from statelake.state_core.connectors.versioned import KeptBytes, ShownFields, reader_of
from statelake.state_core.errors import StateError
from statelake.state_core.files.java_stream import JavaObject, read_java_stream
from statelake.state_core.files.wire import DataInput

_SPLIT_VERSIONS, _ENUMERATOR_VERSIONS = (1, 2), (2, 3)
_LEDGER, _ENTRY, _BATCH = 1, 2, 4


@dataclass(frozen=True, slots=True)
class PulsarSplit(KeptBytes, ShownFields):
    """A partition, and the last message that was read of it.

    Attributes:
        version: The version of its format.
        topic: Its topic.
        partition: Its number; None of a topic without partitions.
        message_id: The last message that was read, as ledger:entry, and its place in a batch;
            None before the first.
        stops: The class of the stop cursor; None if it can't be read.
        transaction: The open transaction; None without one.
        data: Its bytes.
    """

    kind: ClassVar[str] = "pulsar"
    shown = (
        ("topic", "<topic"), ("partition", ">partition"), ("message_id", "<last message"),
        ("stops", "<stops by"), ("transaction", "<transaction"),
    )  # fmt: skip

    version: int
    topic: str
    partition: int | None
    message_id: str | None
    stops: str | None
    transaction: str | None
    data: bytes


def _read_split(version: int, source: DataInput) -> PulsarSplit:
    topic, partition = _partition(version, source)
    stops = _stops(source.read_bytes(source.read_length("bytes of a stop cursor")))
    message = transaction = None
    if source.read_boolean():
        message = _message(source.read_bytes(source.read_length("bytes of a message's id")))
    if source.read_boolean():
        transaction = "({},{})".format(*source.read_longs(2))
    data = bytes(source.data[: source.position])
    number = None if partition < 0 else partition
    return PulsarSplit(version, topic, number, message, stops, transaction, data)


# reads a split of Pulsar's source
read_pulsar_split = reader_of(_SPLIT_VERSIONS, _read_split)


def _partition(version: int, source: DataInput) -> tuple[str, int]:
    topic, number = source.read_utf(), source.read_int()
    if not topic or number < -1:
        raise source.fault("no partition of Pulsar")
    source.read_bytes(8 * source.read_count("ranges", 8))
    if version == _SPLIT_VERSIONS[0]:
        source.read_int()
    return topic, number


def _stops(data: bytes) -> str | None:
    try:
        cursor = read_java_stream(DataInput(data))
    except StateError:  # one of the job's own, in a form of its own
        return None
    name = cursor.java_class.name if isinstance(cursor, JavaObject) else ""
    return name.rpartition(".")[2] or None


def _message(data: bytes) -> str:
    source = DataInput(data)
    fields: dict[int, int] = {}
    while source.remaining:
        key = _varint(source)
        if key & 7 == 0:
            fields[key >> 3] = _varint(source)
        elif key & 7 == 2:
            source.read_bytes(_varint(source))
        else:
            raise source.fault("no id of a message")
    if _LEDGER not in fields or _ENTRY not in fields:
        raise source.fault("no id of a message")
    batch = fields.get(_BATCH, 0)
    place = f":{batch}" if _BATCH in fields and batch < 1 << 31 else ""
    return f"{fields[_LEDGER]}:{fields[_ENTRY]}{place}"


def _varint(source: DataInput) -> int:
    number = 0
    for shift in range(0, 70, 7):
        byte = source.read_unsigned_byte()
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number
    raise source.fault("a number that is too long")


@dataclass(frozen=True, slots=True)
class PulsarEnumerator(KeptBytes):
    """The state of the enumerator: the partitions that it has found, with or without a reader.

    Attributes:
        version: The version of its format.
        partitions: Topic and number of each.
        data: Its bytes.
    """

    kind: ClassVar[str] = "pulsar"
    splits: ClassVar[tuple[PulsarSplit, ...]] = ()

    version: int
    partitions: tuple[tuple[str, int], ...]
    data: bytes

    def details(self) -> dict[str, object]:
        """Return its values by name."""
        return {"partitions": len(self.partitions)}


def _read_enumerator(version: int, source: DataInput) -> PulsarEnumerator:
    count = source.read_count("partitions", 10)
    partitions = tuple(_partition(version - 1, source) for _ in range(count))
    return PulsarEnumerator(version, partitions, bytes(source.data[: source.position]))


# reads the state of Pulsar's enumerator
read_pulsar_enumerator = reader_of(_ENUMERATOR_VERSIONS, _read_enumerator)
