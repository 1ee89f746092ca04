"""Positions of old sources as the state of those that took their place, and what is refused."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from statelake import open_snapshot
from statelake.state_core.connectors.elements import StateElement
from statelake.state_core.connectors.kafka import KafkaEnumerator, KafkaSplit
from statelake.state_core.connectors.kinesis import KinesisEnumerator, KinesisShard
from statelake.state_core.connectors.sources import (
    KINESIS_STATE,
    OLD_KAFKA_STATE,
    READER_STATE,
    SourceState,
    SplitBytes,
    SplitElement,
    read_split,
    sources_of,
)
from statelake.state_core.connectors.successors import Successor, successor_of
from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataOutput

GOLDEN = Path(__file__).parents[2] / "golden" / "sources"
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
NUMBER = "49590338271490256608559692538361571095921575989136588898"


def source(name: str, state: str) -> SourceState:
    """The source of a golden savepoint that has a state of that name."""
    return next(
        one
        for one in sources_of(open_snapshot(GOLDEN / name))
        if any(element.state == state for element in one.elements)
    )


def after(old: SourceState, successor: Successor) -> SourceState:
    """The new source, as its bytes are read."""
    elements = tuple(
        SplitElement.of(StateElement(READER_STATE, *place, data))
        for place, data in successor.elements.items()
    )
    return replace(old, elements=elements, coordinator_bytes=successor.coordinator)


def test_kafka() -> None:
    """Each reader has its partitions, and the enumerator takes just these for assigned."""
    old = source("old-kafka-3.2", OLD_KAFKA_STATE)
    found = successor_of(old, "new")
    new = after(old, found)
    held = [(each.subtask, each.split) for each in new.elements]
    assert held == [
        (0, KafkaSplit("orders", 1, 20, None)),
        (1, KafkaSplit("orders", 2, 20, None)),
        (1, KafkaSplit("orders", 0, 20, None)),
    ]
    assert isinstance(new.enumerator, KafkaEnumerator)
    assert (new.enumerator.version, new.enumerator.discovered) == (1, True)
    places = [(each.split.topic, each.split.partition) for each in new.enumerator.partitions]
    assert places == [("orders", 1), ("orders", 2), ("orders", 0)]
    assert new.waiting == new.finished == ()
    # as `SourceCoordinatorSerdeUtils` and `KafkaSourceEnumStateSerializer` write it
    partitions = b"".join(b"\0\6orders" + struct.pack(">i", number) for number in (1, 2, 0))
    assert found.coordinator == struct.pack(">iiii", 1, 1, 4 + len(partitions), 3) + partitions


@pytest.mark.parametrize(
    ("stored", "offset"),
    [(0, 1), (-915623761775, "earliest"), (-915623761774, "latest"), (-915623761773, "committed")],
)
def test_marks_of_the_old_consumer(stored: int, offset: int | str) -> None:
    """They have other numbers in the new one; an offset is that of the next record."""
    old = source("old-kafka-3.2", OLD_KAFKA_STATE)
    data = old_kafka(stored)
    found = successor_of(replace(old, elements=(SplitElement.of(data),)), "new")
    split = read_split(READER_STATE, found.elements[0, 0])
    assert split == KafkaSplit("abc", 13, offset, None)
    assert [each.position for each in found.moved] == [offset]


def old_kafka(stored: int, subtask: int = 0) -> StateElement:
    """An element of the `FlinkKafkaConsumer`."""
    data = bytes.fromhex("5701d6cfec021a016162e3") + struct.pack(">q", stored)
    return StateElement(OLD_KAFKA_STATE, subtask, 0, data)


def test_kinesis() -> None:
    """A shard is as the connector itself writes it, but for what later versions added behind."""
    old = source("kinesis-consumer-5.1", KINESIS_STATE)
    found = successor_of(old, "new", [ARN])
    new = after(old, found)
    first, second = (each.split for each in new.elements)
    real = source("kinesis-source-5.1", READER_STATE).elements[0].split
    assert isinstance(first, KinesisShard)
    assert isinstance(second, KinesisShard)
    assert (real.encode()[:-1], real.encode()[-1:]) == (first.encode(), b"\0")
    assert (first.version, second.starts) == (1, "trim_horizon")
    assert isinstance(new.enumerator, KinesisEnumerator)
    assert new.enumerator.details() == {"shards": 2, "last_shard": "shardId-000000000001"}
    assert new.waiting == ()
    assert [(each.split, each.position) for each in found.moved] == [
        ("shardId-000000000000", f"after_sequence_number {NUMBER}"),
        ("shardId-000000000001", "trim_horizon"),
    ]


@pytest.mark.parametrize("stored", [-2, -3, -4, -(1 << 63), (1 << 63) - 1])
def test_what_is_no_offset_becomes_none(stored: int) -> None:
    """The next number would be a word in the new source, or is too large."""
    old = source("old-kafka-3.2", OLD_KAFKA_STATE)
    with pytest.raises(EncodeError, match="is of a form that is not known"):
        successor_of(replace(old, elements=(SplitElement.of(old_kafka(stored)),)), "new")


def test_a_partition_has_a_number_of_32_bits() -> None:
    """As the new source's state has it; of another the element is not known."""
    data = bytes.fromhex("5701c3b093fd0f8080808010016162e30000000000000005")  # abc:2147483648
    split = SplitElement.of(StateElement(OLD_KAFKA_STATE, 0, 0, data)).split
    assert isinstance(split, SplitBytes)


def shard(
    number: int, text: str, part: int = -1, stream: str = "orders", parent: str | None = None
) -> SplitElement:
    """A shard of the `FlinkKinesisConsumer`."""
    out = DataOutput()
    out.write_bytes(b"\2")
    name = f"shardId-{number:012d}"
    for field in (None, "9", None, parent, name, "5", "4959", stream):
        out.write_boolean(field is None)
        if field is not None:
            out.write_bytes(bytes([len(field) + 1]) + field.encode())
    zigzag = 2 * part if part >= 0 else -2 * part - 1
    coded = text.encode()[:-1] + bytes([ord(text[-1]) | 0x80])
    out.write_bytes(b"W\1\0\1" + coded + bytes([zigzag]))
    return SplitElement.of(StateElement(KINESIS_STATE, number % 2, number, out.to_bytes()))


def kinesis(*shards: SplitElement) -> SourceState:
    """An old source of Kinesis."""
    return SourceState("id", "records", shards, None)


def test_shards_of_all_kinds() -> None:
    """One that was read to its end has no reader; an aggregate is read from its begin."""
    old = kinesis(
        shard(0, "SHARD_ENDING_SEQUENCE_NUM"),
        shard(1, "123", 4, parent="shardId-000000000000"),
        shard(2, "LATEST_SEQUENCE_NUM"),
    )
    found = successor_of(old, "new", ["arn:aws:kinesis:us-east-1:1:stream/other", ARN])
    new = after(old, found)
    shown = [
        (each.subtask, each.split.columns()["starts"], each.split.columns()["sequence_number"])
        for each in new.elements
    ]
    assert shown == [(1, "at_sequence_number", "123"), (0, "latest", None)]
    assert b"\0\0\0\1\0\x14shardId-000000000000\0\x015\0\x019" in new.elements[0].split.encode()
    assert isinstance(new.enumerator, KinesisEnumerator)
    assert new.enumerator.details() == {"shards": 2, "last_shard": "shardId-000000000002"}
    assert [(each.position, each.subtask) for each in found.moved] == [
        ("read to its end", None), ("at_sequence_number 123", 1), ("latest", 0),
    ]  # fmt: skip


REFUSED: dict[str, tuple[Sequence[SplitElement | StateElement], str]] = {
    "no position": ((), "no old source"),
    "a new source": (
        (SplitElement(READER_STATE, 0, 0, KafkaSplit("orders", 0, 1, None)),), "no old source",
    ),
    "unknown": ((StateElement(OLD_KAFKA_STATE, 1, 3, b"?"),), "position 3 of subtask 1"),
    "not set": ((old_kafka(-915623761776),), "partition abc:13 has no offset yet"),
    "two readers": ((old_kafka(0), old_kafka(0, 1)), "abc:13 is assigned twice"),
    "a time": ((shard(0, "AT_TIMESTAMP_SEQUENCE_NUM"),), "the time from which it is read"),
    "two streams": (
        (shard(0, "1" * 20), shard(1, "2" * 20, stream="returns")), "streams (orders, returns)",
    ),
    "two readers of a shard": ((shard(0, "1" * 20), shard(0, "2" * 20)), "is assigned twice"),
    "no number": ((shard(0, "12-3"),), "position 0 of subtask 0"),
    "no mark": ((shard(0, "SHARD_ENDING"),), "position 0 of subtask 0"),
    "another stream": ((shard(0, "1" * 20, stream="returns"),), "stream/returns"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    """What can't go on where it stood is named, with the source."""
    given, said = REFUSED[case]
    elements = [each if isinstance(each, SplitElement) else SplitElement.of(each) for each in given]
    with pytest.raises(EncodeError, match=re.escape(said)) as caught:
        successor_of(kinesis(*elements), "new", [ARN])
    assert "source records" in str(caught.value)
    assert caught.value.remedy
