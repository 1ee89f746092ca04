"""Pulsar's source: partitions, and the last message that was read of each.

An id of a message is protobuf: 1 ledger, 2 entry, 3 partition, 4 place in a batch. A stop cursor is
a Java stream.

Source: `PulsarPartitionSplitSerializer`, `PulsarSourceEnumStateSerializer` in
`org.apache.flink.connector.pulsar.source`; `MessageIdData` of Pulsar.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from statelake.state_core.connectors.records import BYTES, INT, LONG, UTF, many, optional, record
from statelake.state_core.connectors.versioned import KeptBytes, ShownFields, reader_of
from statelake.state_core.errors import StateError
from statelake.state_core.files.java_stream import JavaObject, read_java_stream
from statelake.state_core.files.wire import DataInput

_SPLIT_VERSIONS, _ENUMERATOR_VERSIONS = (1, 2), (2, 3)
_LEDGER, _ENTRY, _BATCH = 1, 2, 4
_PLACE = {"topic": UTF, "number": INT, "ranges": many(record(first=INT, last=INT))}
_PARTITIONS = {1: record(**_PLACE, mode=INT), 2: record(**_PLACE)}  # by the version of splits
_LISTS = {version: many(partition) for version, partition in _PARTITIONS.items()}
_REST = record(
    stops=BYTES, message=optional(BYTES), transaction=optional(record(high=LONG, low=LONG))
)


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
    topic, number = _partition(_PARTITIONS[version].read(source), source)
    fields = _REST.read(source)
    message, transaction = fields["message"], fields["transaction"]
    return PulsarSplit(
        version, topic, None if number < 0 else number,
        None if message is None else _message(message), _stops(fields["stops"]),
        None if transaction is None else "({high},{low})".format(**transaction),
        bytes(source.data),
    )  # fmt: skip


# reads a split of Pulsar's source
read_pulsar_split = reader_of(_SPLIT_VERSIONS, _read_split)


def _partition(fields: Mapping[str, Any], source: DataInput) -> tuple[str, int]:
    topic, number = fields["topic"], fields["number"]
    if not topic or number < -1:
        raise source.fault("no partition of Pulsar")
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
    partitions = [_partition(each, source) for each in _LISTS[version - 1].read(source)]
    return PulsarEnumerator(version, tuple(partitions), bytes(source.data))


# reads the state of Pulsar's enumerator
read_pulsar_enumerator = reader_of(_ENUMERATOR_VERSIONS, _read_enumerator)
