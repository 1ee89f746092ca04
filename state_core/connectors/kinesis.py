"""Kinesis's sources: shards of the `KinesisStreamsSource`, and of the `FlinkKinesisConsumer`.

An element of the consumer is a POJO of texts, and a sequence number by Kryo: class, mark, hash,
mark, text, number within it.

Source: `KinesisShardSplitSerializer`, `KinesisStreamsSourceEnumeratorStateSerializer` in
`org.apache.flink.connector.kinesis.source`; `KinesisStateUtil.createShardsStateSerializer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from statelake.state_core.connectors.records import (
    BOOLEAN,
    BYTES,
    LONG,
    UTF,
    VersionedList,
    among,
    later,
    many,
    optional,
    record,
)
from statelake.state_core.connectors.versioned import (
    KeptBytes,
    ShownFields,
    encoded,
    read_exactly,
    reader_of,
)
from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.serializers.kryo.wire import KryoInput, KryoVersion

_POSITIONS = {
    "TRIM_HORIZON", "LATEST", "AT_TIMESTAMP", "AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER",
}  # fmt: skip
_ASSIGNED, _UNASSIGNED = 0, 1
# of `StreamShardMetadata`, in the order in which a POJO's serializer writes them
_FIELDS = (
    "adjacentParentShardId", "endingHashKey", "endingSequenceNumber", "parentShardId", "shardId",
    "startingHashKey", "startingSequenceNumber", "streamName",
)  # fmt: skip
_PARENTS = ("parentShardId", "adjacentParentShardId")
_NO_HASH_KEYS = ("-1", "0")  # what the connector takes for those of a split of version 0
_NO_SUBCLASS = 2
_SENTINEL = "_SEQUENCE_NUM"
_ENDED = f"SHARD_ENDING{_SENTINEL}"
_MARKS = {_ENDED, *(f"{start}{_SENTINEL}" for start in ("EARLIEST", "LATEST", "AT_TIMESTAMP"))}
_MOVED_SPLITS, _MOVED_ENUMERATOR = 1, 1  # which all connectors from 5.0 on read
# the bytes of splits of versions 0 to 2, and of enumerators of versions 0 and 1
_SPLITS = later(
    {
        "stream": UTF, "split_id": UTF, "starts": UTF,
        "place": optional(record(timestamp_ms=optional(LONG), sequence_number=optional(UTF))),
        "parents": many(UTF), "first_hash_key": UTF, "last_hash_key": UTF, "read": BOOLEAN,
    },
    (4, 7, 8),
)  # fmt: skip
_ENUMERATORS = [
    record(last_shard=optional(UTF), shards=VersionedList(dict.fromkeys(range(3), shard)))
    for shard in later({"split": BYTES, "status": among(_ASSIGNED, _UNASSIGNED)}, (1, 2))
]


@dataclass(frozen=True, slots=True)
class KinesisShard(KeptBytes, ShownFields):
    """A shard, and where it is read from.

    Attributes:
        version: The version of its format; None of the consumer.
        stream: The stream's name or ARN.
        split_id: The shard's name.
        starts: The kind of the position, in small letters.
        sequence_number: The last record that was read; None before the first.
        timestamp_ms: The time from which it is read; None if it is another position.
        read: Whether it is read to its end.
        data: Its bytes.
    """

    kind: ClassVar[str] = "kinesis"
    shown = (
        ("stream", "<stream"), ("split_id", "<shard"), ("starts", "<starts"),
        ("sequence_number", "<sequence number"), ("timestamp_ms", ">time in ms"),
        ("read", "<read to its end"),
    )  # fmt: skip

    version: int | None
    stream: str
    split_id: str
    starts: str
    sequence_number: str | None
    timestamp_ms: int | None
    read: bool
    data: bytes


def _read_split(version: int, source: DataInput) -> KinesisShard:
    fields = _SPLITS[version].read(source)
    if fields["starts"] not in _POSITIONS:
        raise source.fault("no position in a shard")
    place = fields["place"] or {}
    return KinesisShard(
        version, fields["stream"], fields["split_id"], fields["starts"].lower(),
        place.get("sequence_number"), place.get("timestamp_ms"), fields.get("read", False),
        bytes(source.data),
    )  # fmt: skip


# reads a split of the `KinesisStreamsSource`
read_kinesis_split = reader_of(range(len(_SPLITS)), _read_split)


def read_kinesis_element(data: bytes) -> KinesisShard | None:
    """Return an element of the `FlinkKinesisConsumer`; None if the bytes are not one."""
    return read_exactly(_read_element, data)


def _read_metadata(source: DataInput) -> Mapping[str, str | None]:
    if source.read_byte() != _NO_SUBCLASS:
        raise source.fault("no shard of Kinesis")
    return {name: None if source.read_boolean() else source.read_string() for name in _FIELDS}


def _read_element(source: DataInput) -> KinesisShard:
    fields = _read_metadata(source)
    kryo = KryoInput(source, KryoVersion.FLINK_1)
    kryo.varint()
    is_new = kryo.boolean()
    kryo.varint()
    has_number = kryo.boolean()
    number = kryo.string() or ""
    part = kryo.zigzag(32)
    stream, shard = fields["streamName"], fields["shardId"]
    is_number = number.isascii() and number.isdigit()
    is_known = is_new and has_number and (is_number or number in _MARKS)
    if stream is None or shard is None or not is_known:
        raise source.fault("no sequence number of Kinesis")
    starts = "after_sequence_number" if is_number else number.removesuffix(_SENTINEL).lower()
    shown = None if not is_number else number if part < 0 else f"{number}-{part}"
    ended = number == _ENDED
    return KinesisShard(None, stream, shard, starts, shown, None, ended, bytes(source.data))


def moved_shard(shard: KinesisShard, arn: str) -> KinesisShard:
    """Return a shard of the `FlinkKinesisConsumer` as a split of the `KinesisStreamsSource`.

    A number within an aggregated record has no place in it: it begins with that record again.

    Args:
        shard: A shard that is not read to its end.
        arn: The ARN of its stream.

    Raises:
        EncodeError: It begins at a time that the job's program has, not its state.
    """
    fields = _read_metadata(DataInput(shard.data))
    number, _, part = (shard.sequence_number or "").partition("-")
    positions = {"earliest": "TRIM_HORIZON", "latest": "LATEST"}
    behind = "AT_SEQUENCE_NUMBER" if part else "AFTER_SEQUENCE_NUMBER"
    position = positions.get(shard.starts, behind)
    if not number and shard.starts not in positions:
        raise EncodeError(
            f"nothing was read of shard {shard.split_id} yet, and the time from which it is read is"
            " the program's",
            remedy="take a savepoint when records have come from it",
        )
    parents = [parent for name in _PARENTS if (parent := fields[name])]
    hash_keys = fields["startingHashKey"], fields["endingHashKey"]
    firsts = [given or default for given, default in zip(hash_keys, _NO_HASH_KEYS, strict=True)]
    place = (None, number) if number else None
    data = encoded(_SPLITS[_MOVED_SPLITS], (arn, shard.split_id, position, place, parents, *firsts))
    return KinesisShard(
        _MOVED_SPLITS, arn, shard.split_id, position.lower(), number or None, None, False, data
    )


def assigned_shards(shards: Sequence[KinesisShard], last_shard: str) -> tuple[int, bytes]:
    """Return the state of an enumerator whose shards all have readers, and its version.

    Args:
        shards: The shards that are read, of `moved_shard`.
        last_shard: The last shard that was seen: only later ones are looked for.
    """
    rows = [(shard.data, _ASSIGNED) for shard in shards]
    state = last_shard, (_MOVED_SPLITS, rows)
    return _MOVED_ENUMERATOR, encoded(_ENUMERATORS[_MOVED_ENUMERATOR], state)


@dataclass(frozen=True, slots=True)
class KinesisEnumerator(KeptBytes):
    """The state of the enumerator.

    Attributes:
        version: The version of its format.
        splits: The shards that no reader has got.
        known: The number of all that it knows.
        last_shard: The last shard that it has seen; None before the first.
        data: Its bytes.
    """

    kind: ClassVar[str] = "kinesis"

    version: int
    splits: tuple[KinesisShard, ...]
    known: int
    last_shard: str | None
    data: bytes

    def details(self) -> dict[str, object]:
        """Return its values other than splits, by name."""
        return {"shards": self.known, "last_shard": self.last_shard}


def _read_enumerator(version: int, source: DataInput) -> KinesisEnumerator:
    fields = _ENUMERATORS[version].read(source)
    splits_version, shards = fields["shards"]
    waiting = []
    for shard in shards:
        split = read_kinesis_split(splits_version, shard["split"])
        if split is None:
            raise source.fault("no shard of Kinesis")
        if shard.get("status", _UNASSIGNED) == _UNASSIGNED:
            waiting.append(split)
    last, data = fields["last_shard"], bytes(source.data)
    return KinesisEnumerator(version, tuple(waiting), len(shards), last, data)


# reads the state of Kinesis's enumerator
read_kinesis_enumerator = reader_of(range(len(_ENUMERATORS)), _read_enumerator)
