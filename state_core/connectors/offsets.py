"""Changes of offsets: of partitions of Kafka, and of the logs that Flink CDC reads.

A partition is read by the reader that has its split, from the split's offset on; an unassigned one
is read from the enumerator's offset. A partition that would be read twice after a restore, or not
at all, is refused; and so is a log. A partition that is dropped is in neither of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias

from statelake.state_core.connectors.cdc import MYSQL, OTHERS, CdcEnumerator, CdcSplit
from statelake.state_core.connectors.elements import StateElement
from statelake.state_core.connectors.kafka import (
    ASSIGNED,
    UNASSIGNED,
    EnumeratedPartition,
    KafkaEnumerator,
    KafkaSplit,
    Offset,
    OldKafkaElement,
    parse_offset,
)
from statelake.state_core.connectors.kinesis import KinesisEnumerator, KinesisShard
from statelake.state_core.connectors.pulsar import PulsarEnumerator, PulsarSplit
from statelake.state_core.connectors.sources import (
    READER_STATE,
    Enumerator,
    SourceState,
    Split,
    SplitBytes,
    SplitElement,
    write_split,
)
from statelake.state_core.errors import EncodeError, NotFoundError

Partition: TypeAlias = tuple[str, int]

_SHOWN = 10
LOGS = ("binlog-split", "stream-split")  # the names of splits that Flink CDC gives to logs
_AT_LAST = "take a new savepoint, or start the source without state and with these offsets"


@dataclass(frozen=True)
class NewOffset:
    """A new start offset for a partition or a log.

    Attributes:
        topic: The partition's topic, or the name of the log's split.
        partition: Its number; None for a log.
        offset: The next record to read, or a word; a position in the log as text.
        operator: The source's uid or id; empty if a single one reads it.
    """

    topic: str
    partition: int | None
    offset: Offset
    operator: str = ""

    value: ClassVar[str] = "=..."  # what stands behind the name, in messages

    def covers(self, partition: Partition) -> bool:
        """Return whether a partition is this one."""
        return partition == (self.topic, self.partition)

    def __str__(self) -> str:
        return _text((self.topic, self.partition), self.operator)


def parse_new_offset(text: str) -> NewOffset:
    """Parse `[operator/]topic:partition=offset`, or `[operator/]split=position` of a log.

    Raises:
        EncodeError: The text does not have that form.
    """
    place, equals, offset = text.strip().rpartition("=")
    operator, _, name = place.strip().rpartition("/")
    if equals and name in LOGS:
        return NewOffset(name, None, offset.strip(), operator)
    topic, colon, partition = name.rpartition(":")
    if not (equals and colon and topic and _is_number(partition)):
        raise EncodeError(
            f"{text!r} names no partition and offset",
            remedy="write topic:partition=offset, such as orders:0=4711, or of Flink CDC"
            " binlog-split=FILE:POSITION, or stream-split=LSN",
        )
    return NewOffset(topic, int(partition), parse_offset(offset.strip()), operator)


@dataclass(frozen=True)
class MovedOffset:
    """A partition or a log with another offset.

    Attributes:
        operator: The source's uid or id.
        topic: The partition's topic, or the name of the log's split.
        partition: Its number; None for a log.
        before: The old offset of the next record to read.
        after: The new offset of the next record to read.
    """

    operator: str
    topic: str
    partition: int | None
    before: Offset | None
    after: Offset


@dataclass(frozen=True)
class NamedPartition:
    """A partition, or all of a topic.

    Attributes:
        topic: The topic.
        partition: The partition's number; None for all.
        operator: The source's uid or id; empty if a single one reads it.
    """

    topic: str
    partition: int | None = None
    operator: str = ""

    value: ClassVar[str] = ""

    def covers(self, partition: Partition) -> bool:
        """Return whether a partition is this one, or one of the topic."""
        return partition[0] == self.topic and self.partition in (None, partition[1])

    def __str__(self) -> str:
        return _text((self.topic, self.partition), self.operator)


def parse_partition(text: str) -> NamedPartition:
    """Parse `[operator/]topic[:partition]`.

    Raises:
        EncodeError: The text does not have that form.
    """
    operator, _, name = text.strip().rpartition("/")
    topic, colon, partition = name.partition(":")
    if not topic or (colon and not _is_number(partition)):
        raise EncodeError(
            f"{text!r} names no topic or partition",
            remedy="write topic or topic:partition, such as orders or orders:0",
        )
    return NamedPartition(topic, int(partition) if colon else None, operator)


@dataclass(frozen=True)
class DroppedPartition:
    """A partition that a source does not have any more.

    Attributes:
        operator: The source's uid or id.
        topic: The partition's topic.
        partition: Its number.
        offset: The next record that would have been read; None without an offset.
        status: `assigned`, `waiting` or `finished`.
        subtask: The reader that had it; None without one.
    """

    operator: str
    topic: str
    partition: int
    offset: Offset | None
    status: str
    subtask: int | None


@dataclass
class SourceChange:
    """The change of a source's state.

    Attributes:
        operator_id: The operator's id.
        elements: The new bytes of elements, by state, subtask and position; None for an element
            that goes.
        coordinator: The new state of the coordinator; None if it is unchanged.
        moved: The partitions with other offsets.
        dropped: The partitions that it does not have any more.
    """

    operator_id: str
    elements: dict[tuple[str, int, int], bytes | None] = field(default_factory=dict)
    coordinator: bytes | None = None
    moved: list[MovedOffset] = field(default_factory=list)
    dropped: list[DroppedPartition] = field(default_factory=list)

    def elements_by_state(self) -> dict[str, dict[tuple[int, int], bytes | None]]:
        """Return the new bytes by subtask and position, for each state."""
        by_state: dict[str, dict[tuple[int, int], bytes | None]] = {}
        for (state, subtask, position), data in self.elements.items():
            by_state.setdefault(state, {})[subtask, position] = data
        return by_state

    def applied_to(self, source: SourceState) -> SourceState:
        """Return the source after the change, if it is the one that is changed."""
        if source.operator_id != self.operator_id:
            return source
        elements = []
        for element in source.elements:
            place = element.state, element.subtask, element.position
            data = self.elements.get(place)
            if data is not None:
                elements.append(SplitElement.of(StateElement(*place, data)))
            elif place not in self.elements:
                elements.append(element)
        coordinator = source.coordinator_bytes if self.coordinator is None else self.coordinator
        return replace(source, elements=tuple(elements), coordinator_bytes=coordinator)


def move_offsets(sources: Iterable[SourceState], wanted: Sequence[NewOffset]) -> list[SourceChange]:
    """Return the changes that make partitions of Kafka, and logs, be read from other offsets.

    Args:
        sources: The sources of a snapshot.
        wanted: The offsets.

    Returns:
        The change of each source with one of the partitions.

    Raises:
        NotFoundError: No source has a partition, or no source has that name.
        EncodeError: A partition is named twice or read by several sources, or is not read exactly
            once, or has no offset that could be changed.
    """
    sources = list(sources)
    logs = [new for new in wanted if new.partition is None]
    changes = (
        _move_logs([each for each in sources if each.kind in (MYSQL, OTHERS)], logs) if logs else []
    )
    wanted = [new for new in wanted if new.partition is not None]
    kafka = [source for source in sources if source.kind == "kafka"]
    partitions = [(source, _partitions(source)) for source in kafka]
    by_source: dict[str, dict[Partition, Offset]] = {}
    for new in wanted:
        source = _source_of(partitions, new)
        offsets = by_source.setdefault(source.operator_id, {})
        partition = new.topic, new.partition or 0
        if partition in offsets:
            raise EncodeError(f"{new} is given two offsets", remedy="give it one")
        offsets[partition] = new.offset
    return changes + [
        _move(source, by_source[source.operator_id])
        for source in kafka
        if source.operator_id in by_source
    ]


def drop_partitions(
    sources: Iterable[SourceState], wanted: Sequence[NamedPartition]
) -> list[SourceChange]:
    """Return the changes that take partitions of Kafka out of readers and enumerators.

    Args:
        sources: The sources of a snapshot.
        wanted: The partitions, and topics of which all go.

    Returns:
        The change of each source with one of them.

    Raises:
        NotFoundError: No source has a partition, or no source has that name.
        EncodeError: A partition is read by several sources, or is not read exactly once.
    """
    kafka = [source for source in sources if source.kind == "kafka"]
    partitions = [(source, _partitions(source)) for source in kafka]
    going: dict[str, set[Partition]] = {}
    for named in wanted:
        source = _source_of(partitions, named)
        having = _partitions(source)
        going.setdefault(source.operator_id, set()).update(filter(named.covers, having))
    return [
        _drop(source, going[source.operator_id]) for source in kafka if source.operator_id in going
    ]


def _drop(source: SourceState, going: set[Partition]) -> SourceChange:
    check_assignment(source)
    change = SourceChange(source.operator_id)
    for partition, element in _held(source):
        if partition in going:
            change.elements[element.state, element.subtask, element.position] = None
    for status, subtask, split in source.splits():
        if isinstance(split, KafkaSplit | OldKafkaElement):
            partition = split.topic, split.partition
            if partition in going:
                gone = DroppedPartition(source.operator, *partition, split.offset, status, subtask)
                change.dropped.append(gone)
    enumerator, coordinator = source.enumerator, source.coordinator
    if isinstance(enumerator, KafkaEnumerator) and coordinator is not None:
        left = tuple(
            each
            for each in enumerator.partitions
            if (each.split.topic, each.split.partition) not in going
        )
        data = replace(enumerator, partitions=left).encode()
        change.coordinator = replace(coordinator, data=data).encode()
    return change


def _move_logs(sources: Sequence[SourceState], wanted: Sequence[NewOffset]) -> list[SourceChange]:
    """Return the changes that make logs be read from other positions."""
    changes: dict[str, SourceChange] = {}
    for new in wanted:
        readers = [
            (source, element)
            for source in sources
            for element in source.elements
            if isinstance(element.split, CdcSplit)
            and element.split.is_log
            and element.split.split_id == new.topic
            and new.operator in ("", source.operator, source.operator_id)
        ]
        if not readers:
            names = ", ".join(source.operator for source in sources[:_SHOWN]) or "none"
            raise NotFoundError(
                f"no reader has the log {new}: Flink CDC reads it after its snapshot of the tables",
                remedy=f"sources of Flink CDC in it: {names}; take a savepoint when it reads the"
                " log",
            )
        if len({source.operator_id for source, _ in readers}) > 1:
            names = ", ".join(source.operator for source, _ in readers[:_SHOWN])
            raise EncodeError(
                f"{new} is read by several sources: {names}",
                remedy=f"name one: OPERATOR/{new.topic}=...",
            )
        source, element = readers[0]
        place = f"source {source.operator}"
        if len(readers) > 1:
            raise EncodeError(
                f"{new} is assigned twice, in the state of two readers",
                place=place,
                remedy=_AT_LAST,
            )
        if not isinstance(source.enumerator, CdcEnumerator) or not source.enumerator.log_assigned:
            raise EncodeError(
                f"{new} would be assigned twice: subtask {element.subtask} has it, and the"
                " enumerator does not know that",
                place=place,
                remedy=_AT_LAST,
            )
        if source.operator_id in changes:
            raise EncodeError(f"{new} is given two offsets", remedy="give it one")
        split = element.split
        if not isinstance(split, CdcSplit):  # as asked above
            raise TypeError(type(split))
        moved = split.with_offset(str(new.offset))
        change = changes[source.operator_id] = SourceChange(source.operator_id)
        change.elements[element.state, element.subtask, element.position] = write_split(moved)
        before, after = split.shown_offset(), moved.shown_offset()
        change.moved.append(MovedOffset(source.operator, new.topic, None, before, after))
    return list(changes.values())


def partitions_read(source: SourceState) -> list[Partition]:
    """Return the partitions of Kafka that a source still reads, by topic and number."""
    waiting = {
        (split.topic, split.partition) for split in source.waiting if isinstance(split, KafkaSplit)
    }
    return sorted({place for place, _ in _held(source)} | waiting)


def _source_of(
    sources: Sequence[tuple[SourceState, set[Partition]]], new: NewOffset | NamedPartition
) -> SourceState:
    """Return the one source that has a partition, or some of a topic."""
    candidates = [
        (source, partitions)
        for source, partitions in sources
        if not new.operator or new.operator in (source.operator, source.operator_id)
    ]
    if not candidates:
        whose = (
            f"no operator {new.operator!r} is a source of Kafka"
            if new.operator
            else ("there is no source of Kafka")
        )
        labels = ", ".join(source.operator for source, _ in sources[:_SHOWN]) or "none"
        raise NotFoundError(whose, remedy=f"sources of Kafka in it: {labels}")
    having = [source for source, partitions in candidates if any(map(new.covers, partitions))]
    what = _text((new.topic, new.partition))
    if len(having) > 1:
        names = ", ".join(source.operator for source in having[:_SHOWN])
        raise EncodeError(
            f"{new} is read by several sources: {names}",
            remedy=f"name one: OPERATOR/{what}{new.value}",
        )
    if not having:
        known_places = sorted({place for _, partitions in candidates for place in partitions})
        raise NotFoundError(
            f"no source has a partition {what}"
            if new.partition is not None
            else f"no source has a partition of topic {what}",
            remedy=f"there are: {_texts(known_places) or 'none'}",
        )
    return having[0]


def _partitions(source: SourceState) -> set[Partition]:
    places = {place for place, _ in _held(source)}
    if isinstance(source.enumerator, KafkaEnumerator):
        places |= {
            (each.split.topic, each.split.partition) for each in source.enumerator.partitions
        }
    return places


def _held(source: SourceState) -> list[tuple[Partition, SplitElement]]:
    """Return the partitions that readers have."""
    return [
        ((element.split.topic, element.split.partition), element)
        for element in source.elements
        if isinstance(element.split, KafkaSplit | OldKafkaElement)
    ]


def _parts(source: SourceState) -> list[tuple[Partition, SplitElement]]:
    """Return what readers have, by names: topic and number, or another name without a number."""
    named = ((_part_of(element.split), element) for element in source.elements)
    return [(part, element) for part, element in named if part is not None]


def _part_of(split: Split) -> Partition | None:
    """Return the name of what a split reads; None if it is not known."""
    if isinstance(split, KafkaSplit | OldKafkaElement | PulsarSplit):
        return split.topic, -1 if split.partition is None else split.partition
    if isinstance(split, SplitBytes):
        return None
    return (f"{split.stream}/" if isinstance(split, KinesisShard) else "") + split.split_id, -1


def check_assignment(source: SourceState) -> None:
    """Refuse a source that would read a partition, or another part of its input, twice.

    Raises:
        EncodeError: A partition would be read twice after a restore, or that is not known.
    """
    parts = _parts(source)
    place = f"source {source.operator}"
    twice = [partition for partition, times in Counter(at for at, _ in parts).items() if times > 1]
    if twice:
        raise EncodeError(
            f"{_noun(source)} {_texts(twice)} is assigned twice, in the state of two readers",
            place=place,
            remedy=_AT_LAST,
        )
    if parts and all(element.state != READER_STATE for _, element in parts):
        return  # the old consumers have no enumerator
    enumerator = source.enumerator
    if enumerator is None or {element.split.kind for _, element in parts} - {enumerator.kind}:
        problem = "there is no state of its enumerator, which would assign all partitions again"
        if source.coordinator_bytes is not None:
            problem = "its enumerator's state is of a version that is not known"
        raise EncodeError(problem, place=place, remedy=_AT_LAST)
    if not isinstance(enumerator, KafkaEnumerator):
        for part in sorted({at for at, _ in parts} & set(map(_part_of, source.waiting))):
            raise EncodeError(
                f"{_noun(source)} {_text(part)} would be assigned twice: a reader has it, and the"
                " enumerator has it as unassigned",
                place=place,
                remedy=_AT_LAST,
            )
        return
    statuses: dict[Partition, list[int]] = {}
    for each in enumerator.partitions:
        statuses.setdefault((each.split.topic, each.split.partition), []).append(each.status)
    twice = [partition for partition, listed in statuses.items() if len(listed) > 1]
    if twice:
        raise EncodeError(
            f"partition {_texts(twice)} stands twice in the enumerator's state",
            place=place,
            remedy=_AT_LAST,
        )
    for partition, element in parts:
        if statuses.get(partition) != [0]:
            what = "does not know it" if partition not in statuses else "has it as unassigned"
            raise EncodeError(
                f"partition {_text(partition)} would be assigned twice: subtask"
                f" {element.subtask} has it, and the enumerator {what}",
                place=place,
                remedy=_AT_LAST,
            )


def check_readers(before: SourceState, after: SourceState) -> None:
    """Refuse a source of which rows were edited so that a partition has two readers, or none.

    Files and ranges of numbers may go: their enumerators do not know what they have assigned.

    Args:
        before: The source before the edit.
        after: The source after it.

    Raises:
        EncodeError: A partition would be read twice, or not at all although it was assigned.
    """
    had, has = (Counter(place for place, _ in _parts(source)) for source in (before, after))
    if had == has:
        return
    lost = sorted((had.keys() - has.keys()) & _assigned(after.enumerator, had.keys()))
    if lost:
        is_kafka = before.kind == "kafka"
        other = "; give them other offsets by `edit --set-offsets`" if is_kafka else ""
        raise EncodeError(
            f"nobody would read {_noun(before)} {_texts(lost)}, which no reader would have, while"
            " the enumerator has it as assigned",
            place=f"source {after.operator}",
            remedy=f"leave these rows{other}, or drop the source's operator, which then starts"
            " anew",
        )
    if has or before.kind == "kafka":
        check_assignment(after)


def _assigned(enumerator: Enumerator | None, had: AbstractSet[Partition]) -> set[Partition]:
    """Return what an enumerator takes for assigned, of what readers had or of all."""
    if isinstance(enumerator, KafkaEnumerator):
        known = enumerator.partitions
        return {(at.split.topic, at.split.partition) for at in known if at.status == ASSIGNED}
    if isinstance(enumerator, PulsarEnumerator):
        return set(enumerator.partitions)
    if isinstance(enumerator, KinesisEnumerator):  # it looks for later shards alone
        return {part for part in had if part not in set(map(_part_of, enumerator.splits))}
    if isinstance(enumerator, CdcEnumerator):
        logs = {part for part in had if part[0] in LOGS and enumerator.log_assigned}
        return logs | {(each.split_id, -1) for each in enumerator.assigned}
    return set()


def _noun(source: SourceState) -> str:
    """Return what a source calls the parts of its input."""
    return {"kafka": "partition", "pulsar": "partition", "kinesis": "shard"}.get(
        source.kind, "split"
    )


def _move(source: SourceState, offsets: dict[Partition, Offset]) -> SourceChange:
    check_assignment(source)
    change = SourceChange(source.operator_id)
    assigned = dict(_held(source))
    waiting = []
    for partition, offset in offsets.items():
        element = assigned.get(partition)
        if element is None:
            waiting.append(partition)
            continue
        split = element.split
        if not isinstance(split, KafkaSplit | OldKafkaElement):  # `_held` returns only these
            raise TypeError(type(split))
        _check_end(source, split, offset)
        place = element.state, element.subtask, element.position
        change.elements[place] = write_split(replace(split, offset=offset))
        change.moved.append(MovedOffset(source.operator, *partition, split.offset, offset))
    if waiting:
        _move_waiting(source, {partition: offsets[partition] for partition in waiting}, change)
    return change


def _move_waiting(
    source: SourceState, offsets: dict[Partition, Offset], change: SourceChange
) -> None:
    """Change the offsets of unassigned partitions."""
    enumerator, coordinator = source.enumerator, source.coordinator
    if not isinstance(enumerator, KafkaEnumerator) or coordinator is None:  # checked before
        raise TypeError(type(enumerator))
    partitions: list[EnumeratedPartition] = []
    for each in enumerator.partitions:
        partition = each.split.topic, each.split.partition
        offset = offsets.get(partition)
        if offset is None:
            partitions.append(each)
            continue
        if each.status != UNASSIGNED:
            raise EncodeError(
                f"no reader has partition {_text(partition)}, which was assigned: it was read to"
                " its end, or is lost",
                place=f"source {source.operator}",
                remedy=_AT_LAST,
            )
        if enumerator.version < 3:
            raise EncodeError(
                f"no reader has got partition {_text(partition)} yet, and an enumerator of version"
                f" {enumerator.version} keeps no offset for it",
                place=f"source {source.operator}",
                remedy="have the job begin there by its own offsets initializer",
            )
        _check_end(source, each.split, offset)
        change.moved.append(MovedOffset(source.operator, *partition, each.split.offset, offset))
        partitions.append(replace(each, split=replace(each.split, offset=offset)))
    data = replace(enumerator, partitions=tuple(partitions)).encode()
    change.coordinator = replace(coordinator, data=data).encode()


def _check_end(source: SourceState, split: KafkaSplit | OldKafkaElement, offset: Offset) -> None:
    """Refuse an offset behind the end."""
    stopping = split.stopping_offset
    if isinstance(stopping, int) and isinstance(offset, int) and offset > stopping:
        raise EncodeError(
            f"partition {split.topic}:{split.partition} is read up to {stopping}, and"
            f" {offset} lies behind that",
            place=f"source {source.operator}",
            remedy="give an offset up to there",
        )


def _is_number(text: str) -> bool:
    """Return whether a text may be the number of a partition."""
    return text.isascii() and text.isdigit() and len(text) <= len("2147483647")


def _text(place: tuple[str, int | None], operator: str = "") -> str:
    name, number = place
    text = name if number in (None, -1) else f"{name}:{number}"
    return f"{operator}/{text}" if operator else text


def _texts(places: Sequence[tuple[str, int | None]]) -> str:
    """Return the names of some partitions; of very many the first ones."""
    return ", ".join([*map(_text, places[:_SHOWN]), *(["..."] if len(places) > _SHOWN else [])])
