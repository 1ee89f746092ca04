"""Splits and enumerators of sources: bytes as Flink writes them, and the same bytes again."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.connectors.elements import StateElement
from statelake.state_core.connectors.files import (
    FilePath,
    FileSplit,
    PendingFiles,
    read_file_split,
    read_pending_files,
)
from statelake.state_core.connectors.kafka import (
    ASSIGNED,
    UNASSIGNED,
    EnumeratedPartition,
    KafkaEnumerator,
    KafkaSplit,
    Offset,
    parse_offset,
    read_kafka_enumerator,
    read_kafka_split,
    read_old_kafka_element,
)
from statelake.state_core.connectors.sequences import (
    PendingSequences,
    SequenceSplit,
    read_pending_sequences,
    read_sequence_split,
)
from statelake.state_core.connectors.sources import (
    OLD_KAFKA_STATE,
    READER_STATE,
    SourceState,
    SplitElement,
)
from statelake.state_core.errors import EncodeError

# what Kryo 2 wrote of `KafkaTopicPartition`s: ("abc", 13) at 16768, ("def", 7) at 987654321
OLD_ELEMENTS = {
    "5701d6cfec021a016162e30000000000004180": ("abc", 13, 16769),
    "5701c4f2f7020e016465e6000000003ade68b1": ("def", 7, 987654322),
}

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
POSITIVE = st.integers(0, (1 << 63) - 2)
OFFSETS = st.one_of(st.none(), POSITIVE, st.sampled_from(["earliest", "latest", "committed"]))
ENDS = st.one_of(st.none(), POSITIVE, st.sampled_from(["latest", "committed"]))
PARTITIONS = st.integers(0, (1 << 31) - 1)
KAFKA_SPLITS = st.builds(KafkaSplit, TEXTS, PARTITIONS, OFFSETS, ENDS)
BARE_SPLITS = st.builds(KafkaSplit, TEXTS, PARTITIONS, st.none(), st.none())
STATUSES = st.sampled_from([ASSIGNED, UNASSIGNED])
NULLABLE = st.one_of(st.none(), TEXTS)
PATHS = st.builds(
    FilePath, NULLABLE, NULLABLE, NULLABLE, st.integers(-1, 65535), NULLABLE, NULLABLE, NULLABLE
)
FILE_SPLITS = st.builds(
    FileSplit, TEXTS, st.one_of(st.none(), PATHS), LONGS, LONGS, LONGS, LONGS,
    st.lists(TEXTS, max_size=3).map(tuple), st.one_of(st.none(), st.tuples(LONGS, LONGS)),
)  # fmt: skip
SEQUENCES = st.tuples(TEXTS, LONGS, LONGS).map(
    lambda made: SequenceSplit(made[0], min(made[1:]), max(made[1:]))
)


@st.composite
def enumerators(draw: st.DrawFn) -> KafkaEnumerator:
    """The state of an enumerator of any version."""
    version = draw(st.integers(0, 3))
    if version == 0:
        subtasks = tuple(draw(st.lists(st.integers(0, 99), unique=True, max_size=4)))
        partitions = [
            EnumeratedPartition(split, ASSIGNED, subtask)
            for subtask in subtasks
            for split in draw(st.lists(KAFKA_SPLITS, max_size=3))
        ]
        return KafkaEnumerator(0, tuple(partitions), True, subtasks)
    splits = draw(st.lists(KAFKA_SPLITS if version == 3 else BARE_SPLITS, max_size=5))
    made = (
        EnumeratedPartition(split, draw(STATUSES) if version > 1 else ASSIGNED) for split in splits
    )
    return KafkaEnumerator(version, tuple(made), draw(st.booleans()) if version > 1 else True)


@given(KAFKA_SPLITS, enumerators())
def test_kafka_comes_back(split: KafkaSplit, enumerator: KafkaEnumerator) -> None:
    """Splits, and enumerators of every version."""
    assert read_kafka_split(0, split.encode()) == split
    assert read_kafka_enumerator(enumerator.version, enumerator.encode()) == enumerator


@given(FILE_SPLITS, st.lists(FILE_SPLITS, max_size=3), st.lists(TEXTS, max_size=3))
def test_files_come_back(split: FileSplit, splits: list[FileSplit], paths: list[str]) -> None:
    """Splits, and what an enumerator has of them."""
    assert read_file_split(1, split.encode()) == split
    pending = PendingFiles(tuple(splits), tuple(paths))
    assert read_pending_files(1, pending.encode()) == pending


@given(SEQUENCES, st.lists(SEQUENCES, max_size=4))
def test_sequences_come_back(split: SequenceSplit, splits: list[SequenceSplit]) -> None:
    """Splits, and what an enumerator has of them."""
    assert read_sequence_split(1, split.encode()) == split
    pending = PendingSequences(tuple(splits))
    assert read_pending_sequences(1, pending.encode()) == pending


@pytest.mark.parametrize(("data", "said"), OLD_ELEMENTS.items())
def test_the_old_consumer_keeps_the_last_record(data: str, said: tuple[str, int, int]) -> None:
    """Its element is topic, partition, and one less than the offset to read next."""
    element = read_old_kafka_element(bytes.fromhex(data))
    assert element is not None
    assert (element.topic, element.partition, element.offset) == said
    assert element.encode().hex() == data


@pytest.mark.parametrize(("stored", "offset"), [
    (-915623761776, None), (-915623761775, "earliest"), (-915623761774, "latest"),
    (-915623761773, "committed"), (-1, 0),
])  # fmt: skip
def test_marks_of_the_old_consumer(stored: int, offset: Offset | None) -> None:
    """Numbers that are no offsets are words, and come back as they are."""
    data = bytes.fromhex("5701d6cfec021a016162e3") + struct.pack(">q", stored)
    element = read_old_kafka_element(data)
    assert element is not None
    assert element.offset == offset
    assert element.encode() == data


def test_long_topics_of_the_old_consumer() -> None:
    """Kryo writes names of a single letter, and of 64 or more, with their length."""
    for topic in ("t", "t" * 63, "t" * 64, "t" * 249):
        hashed = 0
        for char in topic:
            hashed = (31 * hashed + ord(char)) & 0xFFFFFFFF
        code = (31 * hashed + 5) & 0xFFFFFFFF
        signed = code - (1 << 32) if code >> 31 else code
        zigzag = (signed << 1 ^ signed >> 31) & 0xFFFFFFFF
        name = topic[:-1].encode() + bytes([ord(topic[-1]) | 0x80])
        if not 1 < len(topic) < 64:
            length = len(topic) + 1
            head = [length | 0x80] if length < 64 else [length & 0x3F | 0xC0, length >> 6]
            name = bytes(head) + topic.encode()
        data = b"\x57\x01" + leb128(zigzag) + leb128(10) + b"\x01" + name + bytes(8)
        element = read_old_kafka_element(data)
        assert element is not None
        assert (element.topic, element.partition, element.offset) == (topic, 5, 1)


def leb128(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@given(st.data())
def test_any_bytes_are_a_split_or_bytes(data: st.DataObject) -> None:
    """Damaged, cut or foreign: nothing is raised, and what is read gives the same bytes."""
    made = data.draw(
        st.one_of(
            st.binary(max_size=60),
            KAFKA_SPLITS.map(lambda split: framed(0, split.encode())),
            FILE_SPLITS.map(lambda split: framed(1, split.encode())),
            SEQUENCES.map(lambda split: framed(1, split.encode())),
            st.sampled_from(sorted(OLD_ELEMENTS)).map(bytes.fromhex),
        )
    )
    damaged = bytearray(made)
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    for element in (bytes(damaged), cut):
        for state in (READER_STATE, OLD_KAFKA_STATE):
            split = SplitElement.of(StateElement(state, 0, 0, element)).split
            assert split.encode() in element
            assert split.columns()
        source = SourceState("id", "source", (), element)
        assert source.kind in {"kafka", "file", "sequence", "bytes"}
        assert source.coordinator is None or source.coordinator.encode() == element
        assert isinstance(source.waiting, tuple)
        assert isinstance(source.finished, tuple)


def framed(version: int, split: bytes) -> bytes:
    """An element of a reader's state."""
    return struct.pack(">iii", len(split) + 8, version, len(split)) + split


def test_unknown_versions_stay_bytes() -> None:
    """A split of Kafka with another version is not read as one that is known."""
    split = KafkaSplit("orders", 0, 7, None)
    known, unknown = (
        SplitElement.of(StateElement(READER_STATE, 0, 0, framed(version, split.encode()))).split
        for version in (0, 9)
    )
    assert known == split
    assert (unknown.kind, unknown.version, unknown.encode()) == ("bytes", 9, split.encode())


@pytest.mark.parametrize("text", ["-1", "", "x", "1e3", "9223372036854775807", "٣"])
def test_what_is_no_offset(text: str) -> None:
    """Neither a number from 0 on nor a word."""
    with pytest.raises(EncodeError, match="is no offset"):
        parse_offset(text)
    assert parse_offset("9223372036854775806") == (1 << 63) - 2
