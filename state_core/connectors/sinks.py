"""Sinks: the state of writers, and the pending commits of committers.

::

    element                i32 length, i32 version, i32 length, state
    writer, version 1      UTF prefix of transactional ids
    writer, version 2      the same, i32 subtask, i32 subtasks, i32 ownership,
                           i32 n, n * (UTF transactional id, i64 checkpoint)
    bucket of files,       i32 0x1E764B79; i32 1, i32 length, of that i32 length (little-endian) and
    version 3              UTF-8 bucket; UTF path, i64 time; boolean, then i32 version, i32 length,
                           file in progress
    committer, version 2   i32 0xB91F252C, list of checkpoints
    checkpoint             i64 id; version 1: i32 subtasks; list of subtasks
    subtask                versions 1, 2: i32 number; list of requests; i32 committables;
                           versions 0, 1: i32 drained; i32 failed
    request, version 0     i32 version, i32 length, committable; i32 retries, i32 state
    committable, version 1 of Kafka: i16 epoch, i64 producer, UTF transactional id; of others see
                           `committables`
    list                   i32 version, i32 n, n * (i32 length, member)

These are only read, never written. A file in progress, and one to be committed, depend on their
file system, and stay bytes.

Source: `SinkWriterOperator`, `CommittableCollectorSerializer`; `KafkaWriterStateSerializer` and
`KafkaCommittableSerializer` in `org.apache.flink.connector.kafka.sink`; of files,
`FileWriterBucketStateSerializer`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from statelake.state_core.connectors.committables import (
    ICEBERG_STATE,
    PAIMON_VERSIONS,
    read_delta,
    read_delta_table,
    read_iceberg,
    read_iceberg_checkpoints,
    read_paimon,
    read_pulsar,
)
from statelake.state_core.connectors.elements import Element, StateElement, readable_elements
from statelake.state_core.connectors.versioned import read_versioned
from statelake.state_core.errors import SnapshotError, StateError
from statelake.state_core.files.filesystem import ConfinedDirectory, Directory
from statelake.state_core.files.wire import DataInput
from statelake.state_core.model.snapshot import Snapshot
from statelake.state_core.printable import Printed, Table

WRITER_STATE = "writer_raw_states"
COMMITTER_STATE = "streaming_committer_raw_states"
SINK_STATES = (WRITER_STATE, COMMITTER_STATE, ICEBERG_STATE)
_MAGIC = 0xB91F252C - (1 << 32)
_BUCKET_MAGIC = 0x1E764B79
_REQUEST_STATES = ("received", "retry", "failed", "committed")
_OWNERSHIPS = ("implicit by subtask id", "explicit by writer state")
_UNKNOWN = -1
SHOWN = 1000  # commits of one sink, to people

Value = TypeVar("Value")
Row = dict[str, Any]


@dataclass(frozen=True)
class Sink(Printed):
    """A sink's state in a snapshot.

    Attributes:
        operator_id: The operator's id.
        operator: The operator's uid, or otherwise its id.
        writers: A row for the state of each writer.
        to_commit: A row for each committable.
        problems: Why not all of its state can be read.
    """

    JSON = ("operator_id", "operator", "writers", "to_commit", "problems?")

    operator_id: str
    operator: str
    writers: tuple[Row, ...]
    to_commit: tuple[Row, ...]
    problems: tuple[str, ...] = ()

    def looked_up(self, directory: str) -> Sink:
        """Return the sink, with `there` for each manifest of Iceberg below a directory.

        It is true if the manifest is there, and false if not. Others are not looked for, and no
        link is followed.

        Args:
            directory: The directory of a table or of a warehouse.
        """
        inside = Directory(directory).confined()
        rows = tuple(
            row
            if row.get("manifest") is None
            else row | {"there": _is_there(inside, row["manifest"])}
            for row in self.to_commit
        )
        return replace(self, to_commit=rows)

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: the table of pending committables."""
        yield from self._table()
        yield from (f"? not all is known: {problem}" for problem in self.problems)

    def _table(self) -> Iterator[str | Table]:
        names = list(dict.fromkeys(name for row in self.to_commit for name in row))
        title = f"{self.operator}: sink"
        title += f", {len(self.writers):,} writers" if self.writers else ""
        if not names:
            yield title
            return
        yield Table(
            f"{title}, {len(self.to_commit):,} to commit",
            [f"<{name.replace('_', ' ')}" for name in names],
            [
                ["-" if row.get(name) is None else str(row[name]) for name in names]
                for row in self.to_commit[:SHOWN]
            ],
            max(0, len(self.to_commit) - SHOWN),
        )


def sink_of(operator_id: str, operator: str, elements: Sequence[StateElement]) -> Sink | None:
    """Return an operator as a sink; None if it has no state of a sink.

    Args:
        operator_id: The operator's id.
        operator: The operator's label.
        elements: The elements of the operator's states in `SINK_STATES`.
    """
    if not elements:
        return None
    writers, to_commit = [], []
    for element in elements:
        if element.state == WRITER_STATE:
            writers.append({"subtask": element.subtask} | _writer(element.data))
        else:
            read = _iceberg if element.state == ICEBERG_STATE else _committer
            to_commit += [{"subtask": element.subtask} | row for row in read(element.data)]
    return Sink(operator_id, operator, tuple(writers), tuple(to_commit))


def sinks_of(snapshot: Snapshot) -> list[Sink]:
    """Return the sinks of a savepoint or checkpoint.

    Raises:
        SnapshotError: The snapshot's operator state can't be read.
    """
    sinks = []
    for operator in snapshot.operators:
        elements, problems = readable_elements(operator, SINK_STATES, partial=snapshot.partial)
        sink = sink_of(operator.operator_id, operator.label, elements)
        if sink is None and problems:
            sink = Sink(operator.operator_id, operator.label, (), ())
        if sink is not None:
            sinks.append(replace(sink, problems=tuple(problems)))
    return sinks


def _is_there(directory: ConfinedDirectory, path: str) -> bool | None:
    """Return whether there is a file; None if it is not below the directory."""
    place = re.sub(r"^file:(//)?(?=/)", "", path)
    anchor = directory.full().rstrip("/") + "/"
    if not place.startswith(anchor):
        return None
    try:
        return directory.is_file(place.removeprefix(anchor))
    except SnapshotError:  # a link, or a path that leads above
        return None


def _whole(read: Callable[[DataInput], Value], data: bytes) -> Value | None:
    """Return a value that takes all of some bytes; None if the bytes are not such a value."""
    source = DataInput(data)
    try:
        value = read(source)
    except StateError:
        return None
    return value if source.remaining == 0 else None


def _writer(data: bytes) -> Row:
    element = Element.read(data)
    if element is None:
        return {"version": None, "bytes": len(data)}
    read = {1: _read_writer, 2: _read_new_writer, 3: _read_bucket}.get(element.version)
    row = None if read is None else _whole(read, element.data)
    return {"version": element.version} | (row or {"bytes": len(element.data)})


def _read_writer(source: DataInput) -> Row:
    return {"transactional_id_prefix": source.read_utf()}


def _read_new_writer(source: DataInput) -> Row:
    row: Row = {
        "transactional_id_prefix": source.read_utf(),
        "owned_subtask": _known(source.read_int()),
        "owned_subtasks": _known(source.read_int()),
        "ownership": _named(source, _OWNERSHIPS),
    }
    row["precommitted"] = [
        {"transactional_id": source.read_utf(), "checkpoint": source.read_long()}
        for _ in range(source.read_count("transactions", 10))
    ]
    return row


def _read_bucket(source: DataInput) -> Row:
    if source.read_int() != _BUCKET_MAGIC:
        raise source.fault("no bucket of files")
    version, name = read_versioned(source)
    if version != 1 or int.from_bytes(name[:4], "little") != len(name) - 4:
        raise source.fault("no bucket's name")
    row: Row = {
        "bucket": name[4:].decode("utf-8", "replace"),
        "path": source.read_utf(),
        "created_ms": source.read_long(),
        "in_progress_handle_bytes": None,
    }
    if source.read_boolean():
        row["in_progress_handle_bytes"] = len(read_versioned(source)[1])
    return row


def _known(number: int) -> int | None:
    return None if number == _UNKNOWN else number


def _named(source: DataInput, names: Sequence[str]) -> str:
    ordinal = source.read_int()
    if not 0 <= ordinal < len(names):
        raise source.fault(f"number {ordinal} of {len(names)}")
    return names[ordinal]


def _iceberg(data: bytes) -> list[Row]:
    rows = _whole(read_iceberg_checkpoints, data)
    return [{"bytes": len(data)}] if rows is None else rows


def _committer(data: bytes) -> list[Row]:
    element = Element.read(data)
    if element is None:
        return [{"version": None, "bytes": len(data)}]
    version, rows = element.version, None
    if version == 2:
        rows = _whole(_read_committer, element.data)
    elif version in PAIMON_VERSIONS:
        rows = _whole(lambda source: read_paimon(version, source), element.data)
    if rows is None:
        return [{"version": element.version, "bytes": len(element.data)}]
    return rows


def _read_committer(source: DataInput) -> list[Row]:
    if source.read_int() != _MAGIC:
        raise source.fault("no state of a committer")
    return [
        row
        for version, checkpoint in _members(source, (0, 1))
        for row in _read_checkpoint(version, checkpoint)
    ]


def _members(source: DataInput, versions: Sequence[int]) -> Iterator[tuple[int, DataInput]]:
    """Yield the version of a list with each of its members, all of whose bytes have to be read."""
    version = source.read_int()
    if version not in versions:
        raise source.fault(f"a list of version {version}")
    for _ in range(source.read_count("members", 4)):
        member = DataInput(source.read_bytes(source.read_length("bytes of a member")))
        yield version, member
        if member.remaining:
            raise source.fault(f"{member.remaining} bytes behind a member")


def _read_checkpoint(version: int, source: DataInput) -> Iterator[Row]:
    checkpoint = source.read_long()
    if version == 1:
        source.read_int()
    for subtask_version, subtask in _members(source, (0, 1, 2)):
        if subtask_version > 0:
            subtask.read_int()
        for _, request in _members(subtask, (0,)):
            for row in _read_request(request):
                yield {"checkpoint": checkpoint} | row
        for _ in range(2 if subtask_version == 2 else 3):
            subtask.read_int()


def _read_request(source: DataInput) -> list[Row]:
    version, data = read_versioned(source)
    row: Row = {
        "version": version,
        "retries": source.read_int(),
        "state": _named(source, _REQUEST_STATES),
    }
    for read in _COMMITTABLES if version == 1 else ():
        committables = _whole(read, data)
        if committables is not None:
            return [row | one for one in committables]
    return [row | {"bytes": len(data)}]


def _read_kafka(source: DataInput) -> list[Row]:
    epoch, producer = source.read_short(), source.read_long()
    return [{"transactional_id": source.read_utf(), "producer_id": producer, "epoch": epoch}]


# by their first bytes, and because all bytes have to be read, only one of them can succeed
_COMMITTABLES = (read_delta, read_delta_table, _read_kafka, read_iceberg, read_pulsar)
