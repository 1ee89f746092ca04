"""Other offsets for partitions of Kafka, and every reason for which one is refused."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

import pytest

from statelake.state_core.connectors.elements import StateElement
from statelake.state_core.connectors.kafka import (
    ASSIGNED,
    UNASSIGNED,
    EnumeratedPartition,
    KafkaEnumerator,
    KafkaSplit,
    Offset,
)
from statelake.state_core.connectors.offsets import (
    NamedPartition,
    NewOffset,
    check_readers,
    drop_partitions,
    move_offsets,
    parse_new_offset,
    parse_partition,
)
from statelake.state_core.connectors.sources import (
    OLD_KAFKA_STATE,
    READER_STATE,
    Coordinator,
    SourceState,
    SplitElement,
)
from statelake.state_core.errors import EncodeError, NotFoundError, StateError

OLD = bytes.fromhex("5701d6cfec021a016162e30000000000004180")  # abc:13 at 16769


def element(
    subtask: int, partition: int, offset: Offset = 10, stop: int | None = None
) -> SplitElement:
    """A partition of `orders` that a reader has."""
    split = KafkaSplit("orders", partition, offset, stop).encode()
    data = struct.pack(">iii", len(split) + 8, 0, len(split)) + split
    return SplitElement.of(StateElement(READER_STATE, subtask, partition, data))


def coordinator(
    version: int, known: dict[int, int], enumerator_version: int | None = None
) -> bytes:
    """A coordinator's state, with the status of each partition of `orders`."""
    partitions = tuple(
        EnumeratedPartition(KafkaSplit("orders", number, 3 if version == 3 else None, None), status)
        for number, status in known.items()
    )
    data = KafkaEnumerator(version, partitions).encode()
    shown = version if enumerator_version is None else enumerator_version
    return Coordinator(1, shown, data, b"").encode()


def source(
    elements: Sequence[SplitElement], state: bytes | None, operator: str = "records"
) -> SourceState:
    """A source called `records`."""
    return SourceState(f"id of {operator}", operator, tuple(elements), state)


READ = coordinator(3, {0: ASSIGNED, 1: ASSIGNED, 2: UNASSIGNED})
HELD = (element(0, 0), element(1, 1))


def test_a_reader_has_it() -> None:
    """The element's offset is another, all else is as it was, and the coordinator stays."""
    (change,) = move_offsets([source(HELD, READ)], [NewOffset("orders", 1, 4)])
    assert set(change.elements) == {(READER_STATE, 1, 1)}
    assert change.elements[READER_STATE, 1, 1] == (
        struct.pack(">iii", 36, 0, 28) + KafkaSplit("orders", 1, 4, None).encode()
    )
    assert change.coordinator is None
    assert [(moved.before, moved.after) for moved in change.moved] == [(10, 4)]


def test_no_reader_has_got_it() -> None:
    """The enumerator's offset is another."""
    (change,) = move_offsets([source(HELD, READ)], [NewOffset("orders", 2, "latest")])
    assert change.elements == {}
    assert change.coordinator is not None
    again = source(HELD, change.coordinator)
    assert again.waiting == (KafkaSplit("orders", 2, "latest", None),)
    assert isinstance(again.enumerator, KafkaEnumerator)
    assert [each.split.offset for each in again.enumerator.partitions] == [3, 3, "latest"]


def test_the_old_consumer() -> None:
    """It has no enumerator, and keeps the record before."""
    held = SplitElement.of(StateElement(OLD_KAFKA_STATE, 0, 0, OLD))
    (change,) = move_offsets([source([held], None)], [NewOffset("abc", 13, 100)])
    assert change.elements[OLD_KAFKA_STATE, 0, 0] == OLD[:-8] + struct.pack(">q", 99)


def test_one_of_several_sources() -> None:
    """Where two read a partition, the operator says which is meant."""
    both = [source(HELD, READ), source(HELD, READ, "copies")]
    with pytest.raises(EncodeError, match="read by several sources: records, copies"):
        move_offsets(both, [NewOffset("orders", 0, 4)])
    (change,) = move_offsets(both, [NewOffset("orders", 0, 4, "copies")])
    assert change.operator_id == "id of copies"


REFUSED = {
    "nowhere": (HELD, READ, "orders:7=1", "no source has a partition orders:7"),
    "other topic": (HELD, READ, "order:0=1", "there are: orders:0, orders:1, orders:2"),
    "no such source": (HELD, READ, "clicks/orders:0=1", "no operator 'clicks' is a source"),
    "two readers": ((*HELD, element(2, 1)), READ, "orders:0=1", "orders:1 is assigned twice"),
    "unassigned too": (
        (*HELD, element(1, 2)), READ, "orders:0=1", "orders:2 would be assigned twice",
    ),
    "not known": ((*HELD, element(1, 3)), READ, "orders:0=1", "the enumerator does not know it"),
    "no coordinator": (HELD, None, "orders:0=1", "no state of its enumerator"),
    "unknown version": (HELD, coordinator(3, {}, 9), "orders:0=1", "version that is not known"),
    "finished": (HELD[:1], READ, "orders:1=1", "read to its end, or is lost"),
    "no offset kept": (
        HELD, coordinator(2, {0: ASSIGNED, 1: ASSIGNED, 2: UNASSIGNED}), "orders:2=1",
        "version 2 keeps no offset",
    ),
    "behind the end": ((element(0, 0, 1, 5), HELD[1]), READ, "orders:0=6", "lies behind that"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    """What is nowhere, or would not be read exactly once, is named."""
    elements, state, text, said = REFUSED[case]
    with pytest.raises(StateError, match=re.escape(said)) as caught:
        move_offsets([source(elements, state)], [parse_new_offset(text)])
    assert isinstance(caught.value, EncodeError | NotFoundError)
    assert caught.value.remedy


def test_two_offsets_of_one_partition() -> None:
    """Neither is taken."""
    twice = [NewOffset("orders", 0, 4), NewOffset("orders", 0, 5)]
    with pytest.raises(EncodeError, match="two offsets"):
        move_offsets([source(HELD, READ)], twice)


@pytest.mark.parametrize("text", ["orders=1", "orders:0", ":0=1", "orders:x=1", "orders:0=x", "="])
def test_what_names_no_offset(text: str) -> None:
    """The error says what to write."""
    with pytest.raises(EncodeError, match=r"write topic|give a number"):
        parse_new_offset(text)
    assert parse_new_offset("a/b/orders:3=4") == NewOffset("orders", 3, 4, "a/b")


ALL = (*HELD, element(2, 3))
KNOWN = {0: ASSIGNED, 1: ASSIGNED, 2: UNASSIGNED, 3: ASSIGNED, 4: ASSIGNED}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_partitions_are_dropped(version: int) -> None:
    """Out of readers and enumerator: one that is read, one that waits, one that was read."""
    known = {number: KNOWN[number] for number in KNOWN if version > 1 or number != 2}
    before = source(ALL, coordinator(version, known))
    wanted = [f"orders:{number}" for number in known if number not in (0, 3)]
    (change,) = drop_partitions([before], [parse_partition(text) for text in wanted])
    after = change.applied_to(before)
    assert [each.split for each in after.elements] == [HELD[0].split, ALL[2].split]
    assert isinstance(after.enumerator, KafkaEnumerator)
    assert [each.split.partition for each in after.enumerator.partitions] == [0, 3]
    assert after.waiting == after.finished == ()
    statuses = {each.partition: (each.status, each.subtask) for each in change.dropped}
    waiting = {2: ("waiting", None)} if version > 1 else {}
    assert statuses == {1: ("assigned", 1), 4: ("finished", None)} | waiting
    check_readers(before, after)


def test_a_topic_is_dropped() -> None:
    """With all its partitions; of the old consumer too, which has no enumerator."""
    (change,) = drop_partitions([source(HELD, READ)], [NamedPartition("orders")])
    after = change.applied_to(source(HELD, READ))
    assert (after.elements, after.kind) == ((), "kafka")
    held = SplitElement.of(StateElement(OLD_KAFKA_STATE, 0, 0, OLD))
    (change,) = drop_partitions([source([held], None)], [NamedPartition("abc")])
    assert (change.elements, change.coordinator) == ({(OLD_KAFKA_STATE, 0, 0): None}, None)


@pytest.mark.parametrize(
    ("text", "state", "said"),
    [
        ("orders:7", READ, "no source has a partition orders:7"),
        ("returns", READ, "no source has a partition of topic returns"),
        ("clicks/orders", READ, "no operator 'clicks' is a source of Kafka"),
        ("orders:1", None, "no state of its enumerator"),
        ("orders", coordinator(3, {}, 9), "version that is not known"),
    ],
)
def test_partitions_that_cannot_be_dropped(text: str, state: bytes | None, said: str) -> None:
    """One that is nowhere, or of a source whose enumerator is not known."""
    with pytest.raises(StateError, match=re.escape(said)) as caught:
        drop_partitions([source(HELD, state)], [parse_partition(text)])
    assert caught.value.remedy


def test_a_topic_of_several_sources_is_not_dropped() -> None:
    """Until one is named."""
    both = [source(HELD, READ), source(HELD, READ, "copies")]
    with pytest.raises(EncodeError, match="read by several sources") as caught:
        drop_partitions(both, [NamedPartition("orders")])
    assert caught.value.remedy == "name one: OPERATOR/orders"
    (change,) = drop_partitions(both, [parse_partition("copies/orders")])
    assert change.operator_id == "id of copies"


@pytest.mark.parametrize("text", ["", "orders:", "orders:x", ":1", "orders:-1", "a/"])
def test_what_names_no_partition(text: str) -> None:
    """The error says what to write."""
    with pytest.raises(EncodeError, match="write topic or topic:partition"):
        parse_partition(text)
    assert parse_partition("a/b/orders:3") == NamedPartition("orders", 3, "a/b")
