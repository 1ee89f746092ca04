"""Sources of a snapshot: the splits in the state of readers and enumerators.

Version 0 of a coordinator's state may be followed by assignments that later versions dropped.

No class is named there: bytes are a split of a known class if its format reproduces them exactly.
All others stay bytes.

Source: `SourceOperator`, `SimpleVersionedListState`, `SourceCoordinatorSerdeUtils`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from statelake.state_core.connectors.cdc import (
    MYSQL,
    OTHERS,
    CdcEnumerator,
    CdcSplit,
    read_cdc_enumerator,
    read_cdc_split,
)
from statelake.state_core.connectors.elements import Element, StateElement, readable_elements
from statelake.state_core.connectors.files import (
    FileSplit,
    PendingFiles,
    read_file_split,
    read_pending_files,
)
from statelake.state_core.connectors.kafka import (
    UNASSIGNED,
    KafkaEnumerator,
    KafkaSplit,
    OldKafkaElement,
    read_kafka_enumerator,
    read_kafka_split,
    read_old_kafka_element,
)
from statelake.state_core.connectors.kinesis import (
    KinesisEnumerator,
    KinesisShard,
    read_kinesis_element,
    read_kinesis_enumerator,
    read_kinesis_split,
)
from statelake.state_core.connectors.pulsar import (
    PulsarEnumerator,
    PulsarSplit,
    read_pulsar_enumerator,
    read_pulsar_split,
)
from statelake.state_core.connectors.records import BYTES, INT, among, record
from statelake.state_core.connectors.sequences import (
    PendingSequences,
    SequenceSplit,
    read_pending_sequences,
    read_sequence_split,
)
from statelake.state_core.connectors.versioned import KeptBytes, encoded, read_exactly
from statelake.state_core.files.wire import DataInput
from statelake.state_core.model.snapshot import Snapshot
from statelake.state_core.printable import Printed, Table

READER_STATE = "SourceReaderState"
OLD_KAFKA_STATE = "topic-partition-offset-states"
KINESIS_STATE = "Kinesis-Stream-Shard-State"
SOURCE_STATES = (READER_STATE, OLD_KAFKA_STATE, KINESIS_STATE)
_COORDINATOR = record(version=among(0, 1), enumerator_version=INT, data=BYTES)
SHOWN = 1000  # splits of one source, to people
_TITLES = {
    "kafka": "Kafka",
    "file": "files",
    "sequence": "number sequence",
    "mysql-cdc": "MySQL, by Flink CDC",
    "cdc": "a database, by Flink CDC",
    "kinesis": "Kinesis",
    "pulsar": "Pulsar",
    "bytes": "a source that is not known",
}
# what is shown of a split: its name, and the column's head
_COLUMNS = {
    "kafka": KafkaSplit.shown,
    "file": (
        ("path", "<path"), ("start", ">start"), ("length", ">length"), ("position", ">position"),
        ("records_after_position", ">then skips"),
    ),
    "sequence": SequenceSplit.shown,
    "mysql-cdc": (
        ("split_id", "<split"), ("chunk_start", ">from"), ("chunk_end", ">to"), ("offset", "<at"),
        ("file", "<file"), ("position", ">position"), ("skipped_events", ">skips events"),
        ("skipped_rows", ">and rows"), ("gtids", "<GTIDs"),
    ),
    "cdc": (
        ("split_id", "<split"), ("chunk_start", ">from"), ("chunk_end", ">to"), ("lsn", "<LSN"),
        ("transaction", ">transaction"), ("place", "<position"),
    ),
    "kinesis": KinesisShard.shown,
    "pulsar": PulsarSplit.shown,
    "bytes": (("version", ">version"), ("bytes", ">bytes")),
}  # fmt: skip

# columns that are not shown if no split has them
_LEFT_OUT = {
    "kafka": {"stopping_offset"},
    "kinesis": {"timestamp_ms"},
    "pulsar": {"transaction"},
} | {kind: {name for name, _ in _COLUMNS[kind] if name != "split_id"} for kind in (MYSQL, OTHERS)}


@dataclass(frozen=True, slots=True)
class SplitBytes(KeptBytes):
    """A split of an unknown connector or version."""

    kind = "bytes"

    version: int | None
    data: bytes

    def columns(self) -> dict[str, object]:
        """Return its content by name: only the size is known."""
        return {"bytes": len(self.data)}


Split: TypeAlias = (
    KafkaSplit
    | OldKafkaElement
    | FileSplit
    | SequenceSplit
    | CdcSplit
    | KinesisShard
    | PulsarSplit
    | SplitBytes
)
_Detailed: TypeAlias = CdcEnumerator | KinesisEnumerator | PulsarEnumerator
Enumerator: TypeAlias = KafkaEnumerator | PendingFiles | PendingSequences | _Detailed
_READERS = (read_kafka_split, read_sequence_split, read_file_split, read_cdc_split,
            read_kinesis_split, read_pulsar_split)  # fmt: skip
_ENUMERATOR_READERS = (
    read_kafka_enumerator,
    read_pending_files,
    read_pending_sequences,
    read_cdc_enumerator,
    read_kinesis_enumerator,
    read_pulsar_enumerator,
)


def read_split(state: str, data: bytes) -> Split:
    """Return the split in an element of a source's state."""
    if state == OLD_KAFKA_STATE:
        return read_old_kafka_element(data) or SplitBytes(None, data)
    if state == KINESIS_STATE:
        return read_kinesis_element(data) or SplitBytes(None, data)
    element = Element.read(data)
    if element is None:
        return SplitBytes(None, data)
    for read in _READERS:
        split = read(element.version, element.data)
        if split is not None:
            return split
    return SplitBytes(element.version, element.data)


def write_split(split: KafkaSplit | OldKafkaElement | CdcSplit | KinesisShard) -> bytes:
    """Return the element of a source's state for a split."""
    if split.version is None:  # of an old source
        return split.encode()
    return Element(split.version, split.encode()).encode()


@dataclass(frozen=True, slots=True)
class SplitElement:
    """An assigned split.

    Attributes:
        state: The name of its state.
        subtask: The reader's subtask.
        position: Its place in the subtask's list.
        split: The split in the element.
    """

    state: str
    subtask: int
    position: int
    split: Split

    @classmethod
    def of(cls, element: StateElement) -> SplitElement:
        """Return the split in an element."""
        split = read_split(element.state, element.data)
        return cls(element.state, element.subtask, element.position, split)


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The state of a source's coordinator.

    Attributes:
        version: The version of the format around the enumerator's state.
        enumerator_version: The version of the enumerator's state.
        data: The enumerator's state.
        rest: The bytes behind it.
    """

    version: int
    enumerator_version: int
    data: bytes
    rest: bytes

    def encode(self) -> bytes:
        """Return the coordinator's bytes."""
        return encoded(_COORDINATOR, (self.version, self.enumerator_version, self.data)) + self.rest

    def enumerators(self) -> Iterator[Enumerator]:
        """Yield the possible forms of the enumerator's state: an empty one has several."""
        for read in _ENUMERATOR_READERS:
            enumerator = read(self.enumerator_version, self.data)
            if enumerator is not None:
                yield enumerator


def _read_coordinator(source: DataInput) -> Coordinator:
    fields = _COORDINATOR.read(source)
    return Coordinator(**fields, rest=source.read_rest() if fields["version"] == 0 else b"")


@dataclass(frozen=True)
class SourceState(Printed):
    """A source's state in a snapshot.

    Attributes:
        operator_id: The operator's id.
        operator: The operator's uid, or otherwise its id.
        elements: The splits of its readers, by subtask and position.
        coordinator_bytes: The state of its coordinator; None without one.
        problems: Why not all of its readers' state can be read.
    """

    operator_id: str
    operator: str
    elements: tuple[SplitElement, ...]
    coordinator_bytes: bytes | None
    problems: tuple[str, ...] = ()

    @cached_property
    def coordinator(self) -> Coordinator | None:
        """The coordinator's state; None without one, or if it is not that of a source."""
        return read_exactly(_read_coordinator, self.coordinator_bytes or b"")

    @cached_property
    def enumerator(self) -> Enumerator | None:
        """The enumerator's state; None if it is unknown, or may be that of several sources."""
        known = () if self.coordinator is None else tuple(self.coordinator.enumerators())
        alike = [one for one in known if one.kind in {each.split.kind for each in self.elements}]
        chosen = alike or known
        return chosen[0] if len(chosen) == 1 else None

    @property
    def is_old(self) -> bool:
        """Return whether it is a source of before `SourceReaderState`, which has no enumerator."""
        return any(element.state != READER_STATE for element in self.elements)

    @property
    def kind(self) -> str:
        """Name of the kind: `kafka`, `file`, `sequence`, or `bytes` if it is unknown."""
        kinds = {element.split.kind for element in self.elements}
        if self.enumerator is not None:
            kinds.add(self.enumerator.kind)
        return kinds.pop() if len(kinds) == 1 else "bytes"

    @cached_property
    def waiting(self) -> tuple[Split, ...]:
        """Return the unassigned splits."""
        enumerator = self.enumerator
        if isinstance(enumerator, KafkaEnumerator):
            partitions = enumerator.partitions
            return tuple(each.split for each in partitions if each.status == UNASSIGNED)
        return () if enumerator is None else enumerator.splits

    @cached_property
    def finished(self) -> tuple[Split, ...]:
        """Return finished partitions of Kafka and chunks: assigned, and in no reader any more.

        The format of Kafka's does not mark them: a lost one looks the same.
        """
        if isinstance(self.enumerator, CdcEnumerator):
            current = {
                each.split.split_id for each in self.elements if isinstance(each.split, CdcSplit)
            }
            return tuple(each for each in self.enumerator.assigned if each.split_id not in current)
        if not isinstance(self.enumerator, KafkaEnumerator):
            return ()
        places = {
            (each.split.topic, each.split.partition)
            for each in self.elements
            if isinstance(each.split, KafkaSplit)
        }
        return tuple(
            replace(each.split, offset=None)
            for each in self.enumerator.partitions
            if each.status != UNASSIGNED and (each.split.topic, each.split.partition) not in places
        )

    def splits(self) -> Iterator[tuple[str, int | None, Split]]:
        """Yield each split with its status, and the subtask of its reader.

        Yields:
            `assigned`, `waiting` for a reader, or `finished`; a subtask or None; the split. If not
            all readers can be read, what no other has is `unknown`: finished, or assigned.
        """
        for element in self.elements:
            yield "assigned", element.subtask, element.split
        for split in self.waiting:
            yield "waiting", None, split
        for partition in self.finished:
            yield "unknown" if self.problems else "finished", None, partition

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        enumerator: dict[str, Any] | None = None
        if self.coordinator is not None:
            enumerator = {
                "kind": "bytes" if self.enumerator is None else self.enumerator.kind,
                "version": self.coordinator.enumerator_version,
                "bytes": len(self.coordinator.data),
            }
            if isinstance(self.enumerator, KafkaEnumerator):
                enumerator["initial_discovery_finished"] = self.enumerator.discovered
            if isinstance(self.enumerator, PendingFiles):
                enumerator["processed_paths"] = list(self.enumerator.processed)
            if isinstance(self.enumerator, CdcEnumerator | KinesisEnumerator | PulsarEnumerator):
                enumerator |= self.enumerator.details()
        splits = [
            {"status": status, "subtask": subtask, "version": split.version} | split.columns()
            for status, subtask, split in self.splits()
        ]
        described = {
            "operator": self.operator, "operator_id": self.operator_id, "kind": self.kind,
            "splits": splits, "enumerator": enumerator,
        }  # fmt: skip
        return described | ({"problems": list(self.problems)} if self.problems else {})

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: the table of splits."""
        rows: list[tuple[dict[str, Any], str]] = [
            ({"version": split.version} | split.columns(),
             status if subtask is None else f"subtask {subtask}")
            for status, subtask, split in self.splits()
        ]  # fmt: skip
        columns = list(_COLUMNS[self.kind])
        if self.kind == "kafka":
            rows.sort(key=lambda row: (row[0]["topic"], row[0]["partition"]))
        columns = [
            (name, head)
            for name, head in columns
            if name not in _LEFT_OUT.get(self.kind, ())
            or any(row.get(name) is not None for row, _ in rows)
        ]
        yield Table(
            f"{self.operator}: {_TITLES[self.kind]}",
            [*(head for _, head in columns), "<where"],
            [
                [*(_cell(row.get(name)) for name, _ in columns), where]
                for row, where in rows[:SHOWN]
            ],
            max(0, len(rows) - SHOWN),
        )
        if self.enumerator is None and self.coordinator is not None:
            yield (
                f"the enumerator's state, {len(self.coordinator.data):,} bytes of version"
                f" {self.coordinator.enumerator_version}, is not known"
            )
        yield from (f"? not all readers are known: {problem}" for problem in self.problems)


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def source_of(
    operator_id: str, operator: str, elements: Sequence[StateElement], coordinator: bytes | None
) -> SourceState | None:
    """Return an operator as a source; None if it has no state of a source.

    Args:
        operator_id: The operator's id.
        operator: The operator's label.
        elements: The elements of the operator's states in `SOURCE_STATES`.
        coordinator: The state of its coordinator; None without one.
    """
    source = SourceState(operator_id, operator, tuple(map(SplitElement.of, elements)), coordinator)
    return source if elements or source.coordinator is not None else None


def sources_of(snapshot: Snapshot) -> list[SourceState]:
    """Return the sources of a savepoint or checkpoint.

    Raises:
        SnapshotError: The snapshot's operator state can't be read.
    """
    handles = {
        operator.operator_id: operator.coordinator for operator in snapshot.metadata.operators
    }
    sources = []
    for operator in snapshot.operators:
        handle = handles[operator.operator_id]
        coordinator = None if handle is None else handle.data
        elements, problems = readable_elements(operator, SOURCE_STATES, partial=snapshot.partial)
        source = source_of(operator.operator_id, operator.label, elements, coordinator)
        if source is None and problems:
            source = SourceState(operator.operator_id, operator.label, (), coordinator)
        if source is not None:
            sources.append(replace(source, problems=tuple(problems)))
    return sources
